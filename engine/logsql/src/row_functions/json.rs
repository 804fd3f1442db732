//! A small reader of JSON that keeps what it reads as it is written: numbers keep their text (`2.50`, also `NaN`),
//! arrays become their text without blanks. Objects are flattened with dots.

use quiver_types::logs::MSG;

use super::fields::Fields;
use crate::ast::field::FieldPattern;
use crate::kernels::values::code;

/// Deepest nesting that is read.
const DEPTH_MAX: usize = 128;

/// A name that would be longer is not made: the object becomes its text instead.
const NAME_BYTES_MAX: usize = 128;

/// Reads a text.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Names under which objects stay what they are.
    preserve: &'a [String],
    /// Fields that are kept; none: all.
    wanted: &'a [FieldPattern],
}

/// A value as it stands in the text.
enum Token<'a> {
    /// Between the quotes.
    Text(&'a str),
    /// A number, `true`, `false`.
    Plain(&'a str),
    Null,
    Array,
    Object,
}

/// Why a field is kept.
#[derive(Debug, Clone, Copy)]
enum KeptBy {
    /// All are.
    All,
    /// The one at this place wants it.
    Wanted(usize),
}

impl KeptBy {
    fn place(self) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Wanted(place) => Some(place),
        }
    }
}

impl<'a> Reader<'a> {
    fn skip_blanks(&mut self) {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Takes this byte, after blanks.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let found = self.text.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    /// Begins a value: for arrays and objects only the bracket is taken.
    fn token(&mut self) -> Option<Token<'a>> {
        self.skip_blanks();
        let rest = &self.text.as_bytes()[self.at..];
        match rest.first()? {
            b'"' => self.string().map(Token::Text),
            b'[' => {
                self.at += 1;
                Some(Token::Array)
            }
            b'{' => {
                self.at += 1;
                Some(Token::Object)
            }
            _ => {
                let length =
                    rest.iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.')).count();
                let word = &self.text[self.at..self.at + length];
                self.at += length;
                match word {
                    "null" => Some(Token::Null),
                    "true" | "false" => Some(Token::Plain(word)),
                    _ if is_number(word) => Some(Token::Plain(word)),
                    _ => None,
                }
            }
        }
    }

    /// A string with its quotes; gives what is between.
    fn string(&mut self) -> Option<&'a str> {
        if !self.take(b'"') {
            return None;
        }
        let start = self.at;
        let bytes = self.text.as_bytes();
        loop {
            let next = memchr::memchr2(b'"', b'\\', bytes.get(self.at..)?)?;
            self.at += next + 1;
            if bytes[self.at - 1] == b'"' {
                return Some(&self.text[start..self.at - 1]);
            }
            // The escaped byte may be the first of a longer character; the others are no quotes.
            self.at += 1;
        }
    }

    /// Writes a value without blanks.
    fn compact(&mut self, token: Token<'a>, depth: usize, out: &mut String) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match token {
            Token::Text(raw) => {
                out.push('"');
                out.push_str(raw);
                out.push('"');
            }
            Token::Plain(raw) => out.push_str(raw),
            Token::Null => out.push_str("null"),
            Token::Array => {
                out.push('[');
                let mut first = true;
                while self.more(b']', &mut first, out)? {
                    let item = self.token()?;
                    self.compact(item, depth + 1, out)?;
                }
                out.push(']');
            }
            Token::Object => {
                out.push('{');
                let mut first = true;
                while self.more(b'}', &mut first, out)? {
                    let key = self.string()?;
                    out.push('"');
                    out.push_str(key);
                    out.push_str("\":");
                    if !self.take(b':') {
                        return None;
                    }
                    let item = self.token()?;
                    self.compact(item, depth + 1, out)?;
                }
                out.push('}');
            }
        }
        Some(())
    }

    /// Whether another item follows; its comma is taken.
    fn follows(&mut self, close: u8, first: &mut bool) -> Option<bool> {
        if self.take(close) {
            return Some(false);
        }
        (std::mem::replace(first, false) || self.take(b',')).then_some(true)
    }

    /// Like [`Self::follows`], and writes the comma before the item.
    fn more(&mut self, close: u8, first: &mut bool, out: &mut String) -> Option<bool> {
        let comma = !*first;
        let follows = self.follows(close, first)?;
        if follows && comma {
            out.push(',');
        }
        Some(follows)
    }

    /// What keeps a field: the place of the first that wants it; `None`: nothing does. An empty name stands for the message, as in
    /// [`Fields::push`].
    fn kept_by(&self, name: &str) -> Option<KeptBy> {
        if self.wanted.is_empty() {
            return Some(KeptBy::All);
        }
        let name = if name.is_empty() { MSG } else { name };
        self.wanted.iter().position(|field| field.matches(name)).map(KeptBy::Wanted)
    }

    fn at_end(&mut self) -> bool {
        self.skip_blanks();
        self.at == self.text.len()
    }

    /// Reads a value that becomes a text without blanks.
    fn whole(&mut self, token: Token<'a>, name: &str, depth: usize, out: &mut Fields) -> Option<()> {
        let mut text = String::new();
        self.compact(token, depth, &mut text)?;
        if let Some(kept_by) = self.kept_by(name) {
            out.push_wanted(kept_by.place(), name, |out| out.push_str(&text));
        }
        Some(())
    }

    /// Flattens an object whose bracket was taken.
    fn flatten(&mut self, prefix: &mut String, depth: usize, out: &mut Fields) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        let (start, own) = (self.at, prefix.len());
        let known = out.len();
        let mut first = true;
        while self.follows(b'}', &mut first)? {
            let key = self.string()?;
            if !self.take(b':') {
                return None;
            }
            unescape(key, prefix);
            if prefix.len() > NAME_BYTES_MAX && own > 0 {
                // The whole object becomes a text under the name so far.
                prefix.truncate(own);
                out.truncate(known);
                self.at = start;
                let name = &prefix[..own - 1];
                return self.whole(Token::Object, name, depth, out);
            }
            match self.token()? {
                Token::Text(raw) => {
                    if let Some(kept_by) = self.kept_by(prefix) {
                        out.push_wanted(kept_by.place(), prefix, |text| unescape(raw, text));
                    }
                }
                Token::Plain(raw) => {
                    if let Some(kept_by) = self.kept_by(prefix) {
                        out.push_wanted(kept_by.place(), prefix, |text| text.push_str(raw));
                    }
                }
                Token::Null => {}
                token @ Token::Array => self.whole(token, prefix, depth + 1, out)?,
                token @ Token::Object if self.preserve.contains(prefix) => self.whole(token, prefix, depth + 1, out)?,
                Token::Object => {
                    prefix.push('.');
                    self.flatten(prefix, depth + 1, out)?;
                }
            }
            prefix.truncate(own);
        }
        Some(())
    }
}

fn is_number(word: &str) -> bool {
    let digits = word.trim_start_matches(['-', '+']);
    digits.eq_ignore_ascii_case("nan")
        || digits.eq_ignore_ascii_case("inf")
        || (digits.bytes().next().is_some_and(|b| b.is_ascii_digit())
            && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E')))
}

/// Appends a string without its escapes. What is no escape stays as it is.
pub(crate) fn unescape(raw: &str, out: &mut String) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        let plain = match tail.as_bytes().first() {
            Some(b'"') => "\"",
            Some(b'\\') => "\\",
            Some(b'/') => "/",
            Some(b'b') => "\u{8}",
            Some(b'f') => "\u{c}",
            Some(b'n') => "\n",
            Some(b'r') => "\r",
            Some(b't') => "\t",
            Some(b'u') => {
                if let Some((c, length)) = code_point(tail) {
                    out.push(c);
                    rest = &tail[length..];
                } else {
                    out.push('\\');
                    rest = tail;
                }
                continue;
            }
            _ => {
                out.push('\\');
                rest = tail;
                continue;
            }
        };
        out.push_str(plain);
        rest = &tail[1..];
    }
    out.push_str(rest);
}

/// `u0416`, or a pair of surrogates; with the length.
fn code_point(tail: &str) -> Option<(char, usize)> {
    let unit = |from: usize| tail.get(from..from + 4).and_then(|hex| code(hex, 16));
    let high = unit(1)?;
    if (0xd800..0xdc00).contains(&high) && tail.get(5..7) == Some("\\u") {
        let low = unit(7)?;
        if (0xdc00..0xe000).contains(&low) {
            return Some((char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))?, 11));
        }
    }
    Some((char::from_u32(high)?, 5))
}

/// Gives the items of a JSON array as texts: strings without quotes, other items without blanks. `None`: not an array.
pub fn array_items(text: &str) -> Option<Vec<String>> {
    items(text, true)
}

/// Like [`array_items`], without items that are arrays or objects.
pub(crate) fn plain_items(text: &str) -> Option<Vec<String>> {
    items(text, false)
}

fn items(text: &str, nested: bool) -> Option<Vec<String>> {
    let mut reader = Reader { text, at: 0, preserve: &[], wanted: &[] };
    if !reader.take(b'[') {
        return None;
    }
    let mut items = Vec::new();
    let mut first = true;
    while reader.follows(b']', &mut first)? {
        let mut item = String::new();
        let token = reader.token()?;
        let is_wanted = nested || !matches!(token, Token::Array | Token::Object);
        match token {
            Token::Text(raw) => unescape(raw, &mut item),
            token => reader.compact(token, 1, &mut item)?,
        }
        if is_wanted {
            items.push(item);
        }
    }
    reader.at_end().then_some(items)
}

/// Appends the fields of a JSON object, nested names joined with dots; objects under the names to preserve become texts
/// without blanks. False, and nothing appended: not an object.
pub fn object_fields(text: &str, preserve: &[String], out: &mut Fields) -> bool {
    wanted_fields(text, preserve, &[], out)
}

/// Like [`object_fields`], of the fields that are wanted only; an empty list wants all.
pub(crate) fn wanted_fields(text: &str, preserve: &[String], wanted: &[FieldPattern], out: &mut Fields) -> bool {
    let known = out.len();
    let mut reader = Reader { text, at: 0, preserve, wanted };
    let done = reader.take(b'{') && reader.flatten(&mut String::new(), 1, out).is_some() && reader.at_end();
    if !done {
        out.truncate(known);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects() {
        let check = |text: &str, want: Option<&[(&str, &str)]>| {
            let mut fields = Fields::default();
            let done = object_fields(text, &[], &mut fields);
            assert_eq!(done.then(|| fields.iter().collect::<Vec<_>>()).as_deref(), want, "{text}");
            assert!(done || fields.is_empty());
        };
        check(r#"{"foo":"bar"}"#, Some(&[("foo", "bar")]));
        check(
            r#" {"foo":{"bar":{"x":"y","z":["foo"]}},"a":1,"b":true,"c":[1, 2],"d":false,"e":null,"n":NaN, "f":2.50} "#,
            Some(&[
                ("foo.bar.x", "y"),
                ("foo.bar.z", r#"["foo"]"#),
                ("a", "1"),
                ("b", "true"),
                ("c", "[1,2]"),
                ("d", "false"),
                ("n", "NaN"),
                ("f", "2.50"),
            ]),
        );
        check(r#"{"a":"\u+041\u00e9"}"#, Some(&[("a", "\\u+041é")]));
        check(r#"{"":"x","a\n":"\u0416\ud83d\ude00\"\q"}"#, Some(&[("_msg", "x"), ("a\n", "Ж😀\"\\q")]));
        check("{}", Some(&[]));
        for bad in ["", "{foo", r#"{"foo",}"#, r#"["foobar"]"#, "1234", "{} x", r#"{"a":1,}"#, r#"{"a":tru}"#, r#"{"a"#]
        {
            check(bad, None);
        }
        let mut fields = Fields::default();
        let preserve = ["a.b".to_owned(), "d".to_owned(), "e".to_owned()];
        assert!(object_fields(r#"{"a":{"b":{"x": [1, 2]},"c":{"b":1}},"d":{"d":{}},"e":"f"}"#, &preserve, &mut fields));
        let want = [("a.b", r#"{"x":[1,2]}"#), ("a.c.b", "1"), ("d", r#"{"d":{}}"#), ("e", "f")];
        assert_eq!(fields.iter().collect::<Vec<_>>(), want);
        let long = "k".repeat(200);
        check(&format!(r#"{{"a":{{"b": 1, "{long}": 2}}}}"#), Some(&[("a", &format!(r#"{{"b":1,"{long}":2}}"#))]));
    }

    #[test]
    fn some_fields() {
        let text = r#"{"a":1,"b":{"c":"x","d":[1, 2]},"":"m","e":{"f": 2},"a":3,"g":null}"#;
        let check = |wanted: &[FieldPattern], want: &[(&str, &str)]| {
            let mut fields = Fields::default();
            assert!(wanted_fields(text, &["e".to_owned()], wanted, &mut fields));
            assert_eq!(fields.iter().collect::<Vec<_>>(), want, "{wanted:?}");
            let by = |i: usize| &wanted[fields.wanted_by(i).expect("each field was wanted")];
            assert!((0..fields.len()).all(|i| by(i).matches(fields.at(i).0)), "{wanted:?}");
            // A text that is cut off has no fields, whichever are wanted.
            assert!(!wanted_fields(&text[..text.len() - 1], &[], wanted, &mut fields));
        };
        let name = |name: &str| FieldPattern::Name(name.to_owned());
        check(&[name("a")], &[("a", "1"), ("a", "3")]);
        check(&[name("b.c"), name("_msg"), name("none")], &[("b.c", "x"), ("_msg", "m")]);
        check(&[FieldPattern::Prefix("b.".to_owned())], &[("b.c", "x"), ("b.d", "[1,2]")]);
        check(&[name("e")], &[("e", r#"{"f":2}"#)]);
        check(&[name("e.f"), name("g")], &[]);
    }

    #[test]
    fn arrays() {
        let check = |text: &str, want: Option<&[&str]>| {
            let got = array_items(text);
            assert_eq!(
                got.as_ref().map(|v| v.iter().map(String::as_str).collect::<Vec<_>>()).as_deref(),
                want,
                "{text}"
            );
        };
        check(r#"["foo",1,{"baz":"x"},[1,2],null,NaN]"#, Some(&["foo", "1", r#"{"baz":"x"}"#, "[1,2]", "null", "NaN"]));
        check("[]", Some(&[]));
        for bad in ["123", r#"{"foo":"bar"}"#, "[foo", "[1,]", "[1] 2", "", "[1 2]"] {
            check(bad, None);
        }
        assert_eq!(array_items(&"[".repeat(100_000)), None);
    }

    #[test]
    fn escapes_that_are_none_stay() {
        for (raw, want) in [
            (r"a\/b\\\b\f\r", "a/b\\\u{8}\u{c}\r"),
            (r"\u0041\u00e9\ud83d\ude00", "Aé😀"),
            (r"\ud83d", r"\ud83d"),
            (r"\ud83dx\ude00", r"\ud83dx\ude00"),
            (r"\ud83d\u0041", r"\ud83dA"),
            (r"\ud83d\ud83d\ude00", r"\ud83d😀"),
            (r"\u00", r"\u00"),
            (r"\u00zz\u", r"\u00zz\u"),
            (r"\u12é4", r"\u12é4"),
            (r"\q\'\é", r"\q\'\é"),
            ("\\", "\\"),
            ("", ""),
        ] {
            let mut out = String::new();
            unescape(raw, &mut out);
            assert_eq!(out, want, "{raw}");
        }
    }

    #[test]
    fn values_as_they_are_written() {
        let of = |text: &str| {
            let mut fields = Fields::default();
            object_fields(text, &[], &mut fields)
                .then(|| fields.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>())
        };
        for (text, want) in [
            (r#"{"a":-1.5e-3,"b":-0,"c":+1,"d":-Inf,"e":nan}"#, "a=-1.5e-3 b=-0 c=+1 d=-Inf e=nan"),
            (r#"{"a":1,"a":2}"#, "a=1 a=2"),
            ("{\"a\"\t:\r\n\"b\" , \"c\":[ ] }", "a=b c=[]"),
            (r#"{"a":{},"b":{"c":{}}}"#, ""),
            (r#"{"a":[{"b" : null, "c":"\u0041"}, true ]}"#, r#"a=[{"b":null,"c":"\u0041"},true]"#),
            (r#"{"a":{"":1,".":{"b":2}}}"#, "a.=1 a...b=2"),
            (r#"{"a":"","é":"ü"}"#, "a= é=ü"),
            ("{}", ""),
        ] {
            assert_eq!(of(text).map(|all| all.join(" ")).as_deref(), Some(want), "{text}");
        }
        for bad in [
            r#"{"a":-}"#,
            r#"{"a":Infinity}"#,
            r#"{"a":.5}"#,
            r#"{"a":1]"#,
            r#"{"a":1 "b":2}"#,
            "{,}",
            r#"{"a":"\"#,
            r#"{"a":"\"}"#,
            r#"{"a":}"#,
            r#"{"a":[1}}"#,
            r#"{"a":{"b":1}"#,
            "{a:1}",
            r#"{"a":é}"#,
            "{\"a\":1}\u{a0}",
            "{",
            "{\"",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
        // As deep as is read.
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(of(&nested(DEPTH_MAX - 1)).is_some() && of(&nested(DEPTH_MAX)).is_none());
    }

    #[test]
    fn items_as_they_are_written() {
        let text = r#" [ "a\nb" , 1.50, [1 , "x"] ,{"x" : "\u0041"},"", null ] "#;
        assert_eq!(array_items(text).unwrap(), ["a\nb", "1.50", r#"[1,"x"]"#, r#"{"x":"\u0041"}"#, "", "null"]);
        assert_eq!(plain_items(text).unwrap(), ["a\nb", "1.50", "", "null"]);
        for bad in ["[,]", "[1,,2]", "[1", "[\"", "[[1]", "[1]]", "[.5]", "null", "[{\"a\"}]", "[{\"a\":1,}]"] {
            assert_eq!((array_items(bad), plain_items(bad)), (None, None), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_packed_is_unpacked(fields in proptest::collection::vec((".{0,6}", ".{0,10}"), 0..6)) {
            let mut packed = String::new();
            crate::row_functions::pack_json(fields.iter().map(|(name, value)| (name.as_str(), value.as_str())), &mut packed);
            let mut found = Fields::default();
            proptest::prop_assert!(object_fields(&packed, &[], &mut found), "{}", packed);
            let own: Vec<(&str, &str)> = fields
                .iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(name, value)| (if name.is_empty() { MSG } else { name.as_str() }, value.as_str()))
                .collect();
            proptest::prop_assert_eq!(found.iter().collect::<Vec<_>>(), own);
        }

        #[test]
        fn no_text_stops_it(text in "[{}\\[\\]\",:a\\\\u0-9 é]{0,30}") {
            let mut fields = Fields::default();
            let done = object_fields(&text, &["a".to_owned()], &mut fields);
            proptest::prop_assert!(done || fields.is_empty());
            let _ = (array_items(&text), plain_items(&text));
        }
    }
}
