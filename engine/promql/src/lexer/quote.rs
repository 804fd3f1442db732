//! Writes texts in quotes as Go does (`strconv.Quote`): in error messages and when expressions are printed.

use std::fmt::Write;
use std::sync::LazyLock;

use regex::Regex;

/// Quotes a text; reading it back gives the same text.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        push(&mut out, c, '"');
    }
    out.push('"');
    out
}

/// Quotes bytes that may not be UTF-8.
pub(crate) fn quote_bytes(bytes: &[u8]) -> String {
    let mut out = String::from('"');
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push(&mut out, c, '"'));
        for b in chunk.invalid() {
            // Writing to a text cannot fail.
            let _ = write!(out, "\\x{b:02x}");
        }
    }
    out.push('"');
    out
}

/// Quotes a character; the end of the text shows as U+FFFD, as Go shows its marker of the end.
pub(crate) fn quote_char(c: Option<char>) -> String {
    let mut out = String::from("'");
    match c {
        None | Some('\u{fffd}') => out.push('\u{fffd}'),
        Some(c) => push(&mut out, c, '\''),
    }
    out.push('\'');
    out
}

/// Shows a character by its code and, where it can be seen, by itself: `U+0063 'c'`.
pub(crate) fn code_point(c: char) -> String {
    let code = format!("U+{:04X}", c as u32);
    if is_printable(c) { format!("{code} '{c}'") } else { code }
}

fn push(out: &mut String, c: char, quote: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        _ if c == quote => out.extend(['\\', c]),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        // The lexer takes a bare U+FFFD for broken UTF-8, so it must not be written as it is.
        '\u{fffd}' => out.push_str("\\ufffd"),
        _ if is_printable(c) => out.push(c),
        _ if c < '\u{80}' => write!(out, "\\x{:02x}", c as u32).expect("writing to a text cannot fail"),
        _ if c < '\u{10000}' => write!(out, "\\u{:04x}", c as u32).expect("writing to a text cannot fail"),
        _ => write!(out, "\\U{:08x}", c as u32).expect("writing to a text cannot fail"),
    }
}

/// Says whether a character shows when printed: letters, marks, numbers, punctuation, symbols, and the space.
fn is_printable(c: char) -> bool {
    static PRINTABLE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]$").expect("a constant pattern"));
    if c.is_ascii() { (' '..='~').contains(&c) } else { PRINTABLE.is_match(c.encode_utf8(&mut [0; 4])) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_go_quotes() {
        let check = |text: &str, expected: &str| assert_eq!(quote(text), expected);
        check("a\"b\\'", r#""a\"b\\'""#);
        check("\x07\x08\x0c\n\r\t\x0b\0\x7f", r#""\a\b\f\n\r\t\v\x00\x7f""#);
        check("üé☺\u{301}", "\"üé☺\u{301}\"");
        check("\u{a0}\u{200b}\u{e000}\u{10ffff}", r#""\u00a0\u200b\ue000\U0010ffff""#);
        assert_eq!(quote_bytes(b"a\xc5\"z"), r#""a\xc5\"z""#);
        assert_eq!(quote_char(Some('\'')), r"'\''");
        assert_eq!(quote_char(Some('"')), "'\"'");
        assert_eq!(code_point('.'), "U+002E '.'");
        assert_eq!(code_point('\n'), "U+000A");
    }
}
