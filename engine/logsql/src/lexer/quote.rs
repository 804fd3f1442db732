//! Quoted texts: `"..."` and `'...'` with escapes as in Go and C, `` `...` `` without.

use std::borrow::Cow;

use quiver_types::logs::quote_into;

use crate::kernels::values::code;

/// Reads the quoted text at the beginning; gives its meaning and the bytes it took.
pub(crate) fn unquote(text: &str) -> Result<(Cow<'_, str>, usize), String> {
    let quote = text.chars().next().unwrap_or('"');
    if quote == '`' {
        let end = text[1..].find('`').ok_or("missing closing quote of the text that begins here")?;
        return Ok((text[1..=end].into(), end + 2));
    }
    let end = closing(text, quote as u8).ok_or("missing closing quote of the text that begins here")?;
    let inner = &text[1..end];
    if !inner.contains('\\') {
        return Ok((inner.into(), end + 1));
    }
    Ok((unescape(inner)?.into(), end + 1))
}

/// Gives the offset of the closing quote.
fn closing(text: &str, quote: u8) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut i = 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b if b == quote => return Some(i),
            _ => i += 1,
        }
    }
    None
}

/// Resolves escapes. Bytes given by number that are no UTF-8 become the replacement character: rows hold text only.
fn unescape(inner: &str) -> Result<String, String> {
    let mut out: Vec<u8> = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(pos) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..pos]);
        rest = &rest[pos + 1..];
        let mut chars = rest.chars();
        let escape = chars.next().ok_or("a lone `\\` at the end of the text")?;
        let after = chars.as_str();
        rest = match escape {
            'a' => push(&mut out, 7, after),
            'b' => push(&mut out, 8, after),
            'f' => push(&mut out, 12, after),
            'n' => push(&mut out, b'\n', after),
            'r' => push(&mut out, b'\r', after),
            't' => push(&mut out, b'\t', after),
            'v' => push(&mut out, 11, after),
            '\\' | '\'' | '"' | '`' => push(&mut out, escape as u8, after),
            'x' => byte(&mut out, after, 2, 16, escape)?,
            '0'..='7' => byte(&mut out, rest, 3, 8, escape)?,
            'u' => unicode(&mut out, after, 4, escape)?,
            'U' => unicode(&mut out, after, 8, escape)?,
            _ => return Err(format!("unknown escape `\\{escape}`")),
        };
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(match String::from_utf8(out) {
        Ok(text) => text,
        Err(bad) => String::from_utf8_lossy(bad.as_bytes()).into_owned(),
    })
}

fn push<'a>(out: &mut Vec<u8>, byte: u8, after: &'a str) -> &'a str {
    out.push(byte);
    after
}

fn number(text: &str, digits: usize, radix: u32, escape: char) -> Result<(u32, &str), String> {
    let value = text.get(..digits).and_then(|text| code(text, radix));
    let value = value.ok_or_else(|| format!("escape `\\{escape}` needs {digits} digits"))?;
    Ok((value, &text[digits..]))
}

fn byte<'a>(out: &mut Vec<u8>, text: &'a str, digits: usize, radix: u32, escape: char) -> Result<&'a str, String> {
    let (value, rest) = number(text, digits, radix, escape)?;
    out.push(u8::try_from(value).map_err(|_| format!("escape `\\{escape}` is no byte"))?);
    Ok(rest)
}

fn unicode<'a>(out: &mut Vec<u8>, text: &'a str, digits: usize, escape: char) -> Result<&'a str, String> {
    let (value, rest) = number(text, digits, 16, escape)?;
    let c = char::from_u32(value).ok_or_else(|| format!("escape `\\{escape}` is no character"))?;
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(rest)
}

/// Writes a text so that [`unquote`] gives it back, with the escapes of Go.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    quote_into(text, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: &str) {
        let (found, len) = unquote(text).expect("a valid text");
        assert_eq!((found.as_ref(), len), (expected, text.len()), "{text}");
        assert_eq!(unquote(&quote(expected)).expect("quoted").0, expected);
    }

    #[test]
    fn escapes() {
        check("\"a\\x20b\"", "a b");
        check("'it\\'s \\u0416 \\101'", "it's Ж A");
        check("`a\\n`", "a\\n");
        check("\"\"", "");
        check("\"\\U0001F600\\t\"", "😀\t");
        check("\"\\xd0\\x96\"", "Ж");
        assert!(unquote("\"a").is_err());
        assert!(unquote("\"a\\q\"").is_err());
        assert!(unquote("\"a\\\"").is_err());
    }

    #[test]
    fn escapes_that_are_none() {
        for (text, part) in [
            (r#""\q""#, "unknown escape `\\q`"),
            (r#""\x4""#, "needs 2 digits"),
            (r#""\x+4""#, "needs 2 digits"),
            (r#""\u+041""#, "needs 4 digits"),
            (r#""\u04""#, "needs 4 digits"),
            (r#""\U+0000041""#, "needs 8 digits"),
            (r#""\ud800""#, "is no character"),
            (r#""\U00110000""#, "is no character"),
            (r#""\777""#, "is no byte"),
            (r#""\18""#, "needs 3 digits"),
            ("'a", "missing closing quote"),
            ("`a", "missing closing quote"),
            ("'a\\'", "missing closing quote"),
            ("\"\\u0ж\"", "needs 4 digits"),
        ] {
            let fault = unquote(text).expect_err(text);
            assert!(fault.contains(part), "{text}: {fault}");
        }
        // What is read ends at its quote; the rest is left.
        for (text, expected, length) in [("'a'b", "a", 3), ("``x", "", 2)] {
            let (found, len) = unquote(text).expect("a text");
            assert_eq!((found.as_ref(), len), (expected, length), "{text}");
        }
    }

    /// Texts are valid, whatever bytes are given by number.
    #[test]
    fn bytes_that_are_no_characters_are_replaced() {
        for (text, expected) in [
            (r#""\xff\xfe""#, "\u{fffd}\u{fffd}"),
            (r#""a\xc3(b""#, "a\u{fffd}(b"),
            (r#""\xed\xa0\x80""#, "\u{fffd}\u{fffd}\u{fffd}"),
            (r#""\xd0\x96\xd0""#, "Ж\u{fffd}"),
            (r#""\377\000""#, "\u{fffd}\0"),
            (r"'\xf0\x9f\x98\x80'", "😀"),
        ] {
            let (found, len) = unquote(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            assert_eq!((found.as_ref(), len), (expected, text.len()), "{text}");
        }
    }

    #[test]
    fn each_kind_of_quotes_has_its_own_end() {
        for (text, expected) in [
            ("\"it's `x`\"", "it's `x`"),
            ("'a \"b\" `c`'", "a \"b\" `c`"),
            ("`a \"b\" 'c' \\`", "a \"b\" 'c' \\"),
            ("`a\nb`", "a\nb"),
            ("\"a\nb\"", "a\nb"),
            (r#""\a\b\f\n\r\t\v\\\'\"\`""#, "\u{7}\u{8}\u{c}\n\r\t\u{b}\\'\"`"),
            (r#""\U0010ffff\u0000""#, "\u{10ffff}\0"),
        ] {
            let (found, len) = unquote(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            assert_eq!((found.as_ref(), len), (expected, text.len()), "{text}");
        }
    }

    proptest! {
        /// Breaks if a value that is written into a query is read as another, or ends it too soon.
        #[test]
        fn any_text_is_read_as_it_was_quoted(letters in vec(any::<char>(), 0..24), behind in "[\"'`\\\\a-z |]{0,4}") {
            let text: String = letters.into_iter().collect();
            let written = quote(&text);
            prop_assert!(written.chars().all(|c| !c.is_control()), "{written:?}");
            let query = format!("{written}{behind}");
            let (found, len) = unquote(&query).expect("it is quoted");
            prop_assert_eq!((found.as_ref(), len), (text.as_str(), written.len()));
            // The same between single quotes, where these are escaped in place of double ones.
            let single = format!("'{}'{behind}", text.replace('\\', "\\\\").replace('\'', "\\'"));
            let (found, len) = unquote(&single).expect("it is quoted");
            prop_assert_eq!((found.as_ref(), len), (text.as_str(), single.len() - behind.len()));
        }
    }

    #[test]
    fn what_is_quoted_is_read_again() {
        for text in
            ["", "a b", "\"", "\\", "'`", "\n\r\t\u{7}\u{0}", "\u{7f}\u{80}\u{feff}", "ж😀", "\u{fffd}", "a\\x41"]
        {
            let written = quote(text);
            let (found, len) = unquote(&written).unwrap_or_else(|fault| panic!("{written}: {fault}"));
            assert_eq!((found.as_ref(), len), (text, written.len()), "{written}");
        }
    }
}
