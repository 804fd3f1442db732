//! Text as Go formats it: quoting, escaping, numbers. Prometheus and Alertmanager use these formats in messages, labels
//! and templates.

mod number;

use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::Regex;

pub use number::{binary, float_text, general, hexadecimal, with_precision};

/// Quotes a text as Go's `strconv.Quote` does.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        push_escaped(&mut out, c, '"');
    }
    out.push('"');
    out
}

/// Quotes a character as Go's `strconv.QuoteRune` does.
pub fn quote_char(c: char) -> String {
    let mut out = "'".to_owned();
    push_escaped(&mut out, c, '\'');
    out.push('\'');
    out
}

/// Appends a character as it stands within such quotes.
pub fn push_escaped(out: &mut String, c: char, quote: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        c if c == quote => {
            out.push('\\');
            out.push(c);
        }
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
        c if is_printable(c) => out.push(c),
        c if (c as u32) < 0x80 => {
            let _ = write!(out, "\\x{:02x}", c as u32);
        }
        c if (c as u32) < 0x1_0000 => {
            let _ = write!(out, "\\u{:04x}", c as u32);
        }
        c => {
            let _ = write!(out, "\\U{:08x}", c as u32);
        }
    }
}

/// Says whether Go prints a character as itself: letters, marks, numbers, punctuation, symbols, and the plain space.
pub fn is_printable(c: char) -> bool {
    static PRINTABLE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]$").expect("a constant pattern"));
    if c.is_ascii() { (' '..='~').contains(&c) } else { PRINTABLE.is_match(c.encode_utf8(&mut [0; 4])) }
}

/// Reads a text in double quotes, back quotes or single quotes with Go's escapes; none when it is not one.
pub fn unquote(text: &str) -> Option<String> {
    let mut chars = text.chars();
    let quote = chars.next()?;
    if text.len() < 2 || chars.next_back() != Some(quote) {
        return None;
    }
    let body = chars.as_str();
    match quote {
        '`' if !body.contains('`') => Some(body.replace('\r', "")),
        '"' | '\'' => unescape(body, quote),
        _ => None,
    }
}

fn unescape(body: &str, quote: char) -> Option<String> {
    fn digits(chars: &mut std::str::Chars<'_>, value: u32, count: usize, radix: u32) -> Option<u32> {
        (0..count).try_fold(value, |value, _| {
            let digit = chars.next().and_then(|c| c.to_digit(radix))?;
            value.checked_mul(radix).map(|v| v + digit)
        })
    }
    let mut out = Vec::with_capacity(body.len());
    let mut chars = body.chars();
    let mut buffer = [0; 4];
    while let Some(c) = chars.next() {
        if c == quote || c == '\n' {
            return None;
        }
        let c = match c {
            '\\' => match chars.next()? {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                '\\' => '\\',
                c if c == quote => c,
                'x' => {
                    out.push(digits(&mut chars, 0, 2, 16)? as u8);
                    continue;
                }
                c @ '0'..='7' => {
                    let value = digits(&mut chars, c as u32 - '0' as u32, 2, 8)?;
                    out.push(u8::try_from(value).ok()?);
                    continue;
                }
                'u' => char::from_u32(digits(&mut chars, 0, 4, 16)?)?,
                'U' => char::from_u32(digits(&mut chars, 0, 8, 16)?)?,
                _ => return None,
            },
            c => c,
        };
        out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_and_back() {
        let check = |text: &str, quoted: &str| {
            assert_eq!(quote(text), quoted);
            assert_eq!(unquote(quoted).as_deref(), Some(text));
        };
        check("a\"b\\\n\t", r#""a\"b\\\n\t""#);
        check("\u{1}é🙂\u{200b}", r#""\x01é🙂\u200b""#);
        check("e\u{301}", "\"e\u{301}\"");
        check("\u{a0}\u{e000}\u{10ffff}", r#""\u00a0\ue000\U0010ffff""#);
        assert_eq!(quote_char('\''), r"'\''");
        assert_eq!(unquote(r#""\xf0\x9f\x99\x82\U0001f642\101""#).as_deref(), Some("🙂🙂A"));
        assert_eq!(unquote("`a\\b`").as_deref(), Some("a\\b"));
        for t in [r#""\w""#, r#""\xf0\x9f""#, "\"", "a", "\"a", r#""\'""#, "\"a\nb\"", ""] {
            assert_eq!(unquote(t), None, "{t}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_quoted_and_back(text in proptest::prelude::any::<String>()) {
            proptest::prop_assert_eq!(unquote(&quote(&text)), Some(text));
        }
    }

    #[test]
    fn escapes_of_go() {
        for (quoted, text) in [
            (r#""\a\b\f\n\r\t\v\\""#, "\u{7}\u{8}\u{c}\n\r\t\u{b}\\"),
            (r#""\x41\101\u0041\U00000041""#, "AAAA"),
            (r#""\000""#, "\0"),
            (r"'it\'s'", "it's"),
            (r#"'"'"#, "\""),
            (r#""'""#, "'"),
            ("``", ""),
            ("`a\r\nb`", "a\nb"),
            (r#""""#, ""),
        ] {
            assert_eq!(unquote(quoted).as_deref(), Some(text), "{quoted}");
        }
        for wrong in [
            r#""\x4""#,
            r#""\xg0""#,
            r#""\08""#,
            r#""\400""#,
            r#""\u12""#,
            r#""\ud800""#,
            r#""\U00110000""#,
            r#""\xff""#,
            r#""\"#,
            r#""a"b""#,
            r#"'\"'"#,
            "`a`b`",
            "'a",
            "a'",
            "\"a`",
            "«a»",
        ] {
            assert_eq!(unquote(wrong), None, "{wrong}");
        }
        assert_eq!((quote("'\"`"), quote_char('"')), (r#""'\"`""#.to_owned(), "'\"'".to_owned()));
        assert_eq!(quote("\u{7f}\u{ad}\u{3000}\u{fffd}"), "\"\\x7f\\u00ad\\u3000\u{fffd}\"");
    }
}
