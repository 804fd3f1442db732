//! Writes texts in quotes as Go does (`strconv.Quote`): in error messages and when expressions are printed.

use std::fmt::Write;

use quiver_types::go_format::{is_printable, push_escaped};

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
    // The lexer takes a bare U+FFFD for broken UTF-8, so it must not be written as it is.
    if c == '\u{fffd}' {
        out.push_str("\\ufffd");
    } else {
        push_escaped(out, c, quote);
    }
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
