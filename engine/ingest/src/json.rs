//! Reads JSON as a stream of tokens, driven by the schema of a format: builds no tree, keeps the text of numbers (so
//! doubles are exact and 64-bit integers are not rounded to one), and skips unwanted values without recursion.

use std::borrow::Cow;

use crate::error::{Error, Result};

/// A value that is not an object or a list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    /// The number as written.
    Number(&'a str),
    Text(Cow<'a, str>),
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Object,
    List,
    Scalar,
}

/// A reader over one document.
#[derive(Debug)]
pub(crate) struct Json<'a> {
    text: &'a str,
    pos: usize,
}

impl<'a> Json<'a> {
    /// Starts at the first byte.
    pub(crate) fn new(body: &'a [u8]) -> Result<Self> {
        let invalid = |e: std::str::Utf8Error| Error::Json { offset: e.valid_up_to(), what: "invalid UTF-8" };
        Ok(Self { text: std::str::from_utf8(body).map_err(invalid)?, pos: 0 })
    }

    /// Gives the offset of the next byte.
    pub(crate) fn position(&self) -> usize {
        self.pos
    }

    pub(crate) fn error(&self, what: &'static str) -> Error {
        Error::Json { offset: self.pos, what }
    }

    /// Gives the next byte that is no white space, without taking it.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.pos) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(*byte);
            }
            self.pos += 1;
        }
        None
    }

    /// Takes a byte if it comes next.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.pos += usize::from(found);
        found
    }

    /// Says what comes next.
    pub(crate) fn next(&mut self) -> Result<Next> {
        match self.peek() {
            Some(b'{') => Ok(Next::Object),
            Some(b'[') => Ok(Next::List),
            Some(_) => Ok(Next::Scalar),
            None => Err(self.error("unexpected end")),
        }
    }

    /// Enters an object or a list: `{` or `[`.
    pub(crate) fn enter(&mut self, open: u8) -> Result<()> {
        if self.take(open) { Ok(()) } else { Err(self.error("expected an object or a list")) }
    }

    /// Moves to the next key of an object, `None` at its end. `first` is true for the first call.
    pub(crate) fn key(&mut self, first: bool) -> Result<Option<Cow<'a, str>>> {
        if !self.item(first, b'}')? {
            return Ok(None);
        }
        if self.peek() != Some(b'"') {
            return Err(self.error("expected a key"));
        }
        let key = self.string()?;
        if !self.take(b':') {
            return Err(self.error("expected `:`"));
        }
        Ok(Some(key))
    }

    /// Moves to the next item of a list (`close` is `]`); `false` at its end.
    pub(crate) fn item(&mut self, first: bool, close: u8) -> Result<bool> {
        if self.take(close) {
            return Ok(false);
        }
        if !first && !self.take(b',') {
            return Err(self.error("expected `,`"));
        }
        if !first && self.peek() == Some(close) {
            return Err(self.error("unexpected `,`"));
        }
        Ok(true)
    }

    /// Reads a value that is no object or list.
    pub(crate) fn scalar(&mut self) -> Result<Scalar<'a>> {
        let literals = [("null", Scalar::Null), ("true", Scalar::Bool(true)), ("false", Scalar::Bool(false))];
        match self.peek() {
            Some(b'"') => return Ok(Scalar::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => return self.number().map(Scalar::Number),
            _ => {}
        }
        for (literal, value) in literals {
            if self.text[self.pos..].starts_with(literal) {
                self.pos += literal.len();
                return Ok(value);
            }
        }
        Err(self.error("expected a value"))
    }

    fn number(&mut self) -> Result<&'a str> {
        let bytes = self.text.as_bytes();
        let start = self.pos;
        let digits = |pos: &mut usize| {
            let from = *pos;
            while bytes.get(*pos).is_some_and(u8::is_ascii_digit) {
                *pos += 1;
            }
            *pos - from
        };
        let mut pos = start + usize::from(bytes[start] == b'-');
        let leading_zero = bytes.get(pos) == Some(&b'0');
        let whole = digits(&mut pos);
        let mut ok = whole > 0 && (whole == 1 || !leading_zero);
        if bytes.get(pos) == Some(&b'.') {
            pos += 1;
            ok &= digits(&mut pos) > 0;
        }
        if let Some(b'e' | b'E') = bytes.get(pos) {
            pos += 1;
            pos += usize::from(matches!(bytes.get(pos), Some(b'+' | b'-')));
            ok &= digits(&mut pos) > 0;
        }
        if !ok {
            return Err(self.error("bad number"));
        }
        self.pos = pos;
        Ok(&self.text[start..pos])
    }

    /// Reads a string; the caller has seen its quote.
    fn string(&mut self) -> Result<Cow<'a, str>> {
        self.pos += 1;
        let start = self.pos;
        let mut owned: Option<String> = None;
        let mut plain_from = start;
        loop {
            let rest = &self.text.as_bytes()[self.pos..];
            let Some(len) = rest.iter().position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f)) else {
                return Err(self.error("unclosed string"));
            };
            self.pos += len;
            let plain = &self.text[plain_from..self.pos];
            match rest[len] {
                b'"' => {
                    self.pos += 1;
                    return Ok(match owned {
                        None => Cow::Borrowed(plain),
                        Some(owned) => Cow::Owned(owned + plain),
                    });
                }
                b'\\' => {
                    let text = owned.get_or_insert_with(String::new);
                    text.push_str(plain);
                    text.push(self.escape()?);
                    plain_from = self.pos;
                }
                _ => return Err(self.error("control character in a string")),
            }
        }
    }

    /// Reads an escape; the position is at its backslash.
    fn escape(&mut self) -> Result<char> {
        let escaped = self.text.as_bytes().get(self.pos + 1).copied();
        let plain = match escaped {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.error("bad escape")),
        };
        self.pos += 2;
        Ok(plain)
    }

    /// A surrogate without the other half of its pair is U+FFFD, as in the reader of the OpenTelemetry Collector: senders
    /// that cut texts by UTF-16 units write such, and all records of the request would be lost with one.
    fn unicode_escape(&mut self) -> Result<char> {
        let unit = |at: usize| {
            let bytes = self.text.as_bytes().get(at..at + 6)?;
            let digits = bytes.strip_prefix(b"\\u").filter(|d| d.iter().all(u8::is_ascii_hexdigit))?;
            u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        let first = unit(self.pos).ok_or_else(|| self.error("bad escape"))?;
        let pair = [Some(first), (0xd800..0xdc00).contains(&first).then(|| unit(self.pos + 6)).flatten()];
        let mut chars = char::decode_utf16(pair.into_iter().flatten());
        let decoded = chars.next().and_then(std::result::Result::ok).unwrap_or(char::REPLACEMENT_CHARACTER);
        self.pos += 6 * decoded.len_utf16();
        Ok(decoded)
    }

    /// Skips any value. Keeps one bit per level, so depth costs next to nothing.
    pub(crate) fn skip(&mut self) -> Result<()> {
        let mut open: Vec<u8> = Vec::new();
        let mut first = true;
        loop {
            // At the place of a value, unless a list or object ends here.
            if let Some(&close) = open.last() {
                let more = if close == b'}' { self.key(first)?.is_some() } else { self.item(first, close)? };
                if !more {
                    open.pop();
                    first = false;
                    if open.is_empty() {
                        return Ok(());
                    }
                    continue;
                }
            }
            match self.next()? {
                Next::Scalar => {
                    self.scalar()?;
                    first = false;
                    if open.is_empty() {
                        return Ok(());
                    }
                }
                container => {
                    let (start, close) = if container == Next::Object { (b'{', b'}') } else { (b'[', b']') };
                    self.enter(start)?;
                    open.push(close);
                    first = true;
                }
            }
        }
    }

    /// Checks that nothing follows.
    pub(crate) fn end(&mut self) -> Result<()> {
        if self.peek().is_some() { Err(self.error("unexpected text after the document")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip_all(text: &str) -> Result<()> {
        let mut json = Json::new(text.as_bytes())?;
        json.skip()?;
        json.end()
    }

    #[test]
    fn skipping_agrees_with_serde_json() {
        for text in [
            "null",
            "true",
            "1",
            "-0.5e+3",
            "01",
            "1.",
            "-",
            "\"a\"",
            "\"\\u00e9\\n\"",
            "\"\\ud83d\\ude00\"",
            "\"\\x\"",
            "\"\u{1}\"",
            "\"",
            "[]",
            "[1,2]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{}",
            "{\"a\":1}",
            "{\"a\":1,}",
            "{\"a\"}",
            "{a:1}",
            "{\"a\":{\"b\":[[],{}]},\"c\":null}",
            "[}",
            "{]",
            "[1]x",
            "",
            " \t\n[ 1 , 2 ]\r ",
            "nul",
            "tru",
            "\"\\u12g4\"",
            "[\"\\\\\"]",
            "1e",
            "1e5",
            "{\"a\":1 \"b\":2}",
        ] {
            let expected = serde_json::from_str::<serde_json::Value>(text).is_ok();
            assert_eq!(skip_all(text).is_ok(), expected, "{text}");
        }
        let deep = "[".repeat(1_000_000);
        assert!(skip_all(&deep).is_err());
        assert!(skip_all(&(deep + &"]".repeat(1_000_000))).is_ok());
        assert!(Json::new(b"\xff").is_err());
    }

    #[test]
    fn scalars() {
        let check = |text: &str, expected: Scalar<'_>| {
            assert_eq!(Json::new(text.as_bytes()).unwrap().scalar().unwrap(), expected, "{text}");
        };
        check("null", Scalar::Null);
        check("false", Scalar::Bool(false));
        check("-12.5e3", Scalar::Number("-12.5e3"));
        check(r#""plain é""#, Scalar::Text(Cow::Borrowed("plain é")));
        for lone in [r#""\ud83d""#, r#""\ude00""#, r#""\udbff""#] {
            check(lone, Scalar::Text(Cow::Borrowed("\u{fffd}")));
        }
        check(r#""a\ud83d\ud83d\ude00\ude00\nz""#, Scalar::Text(Cow::Borrowed("a\u{fffd}😀\u{fffd}\nz")));
        check(r#""\ud83d\u0041\ud83dz""#, Scalar::Text(Cow::Borrowed("\u{fffd}A\u{fffd}z")));
        check(r#""a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00z""#, Scalar::Text(Cow::Borrowed("a\"\\/\u{8}\u{c}\n\r\té😀z")));
    }
}
