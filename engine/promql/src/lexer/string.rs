//! Quoted texts: `"..."` and `'...'` with the escapes of Go, and raw ones in back quotes.

use super::quote::code_point;
use crate::ast::Text;

/// Reads the quoted text that `text` starts with: gives what it stands for and how many bytes it takes.
///
/// Escapes of single bytes (`\xff`, `\377`) may give something that is not UTF-8.
pub(crate) fn decode(text: &str) -> Result<(Text, usize), String> {
    decode_bytes(text).map(|(bytes, length)| (Text::new(bytes), length))
}

/// Reads a quoted text like [`decode`], but gives the very bytes.
pub(crate) fn decode_bytes(text: &str) -> Result<(Vec<u8>, usize), String> {
    let quote = text.chars().next().unwrap_or('"');
    let mut out = Vec::new();
    let mut chars = Chars { text, pos: quote.len_utf8() };
    loop {
        match chars.next() {
            None if quote == '`' => return Err("unterminated raw string".to_owned()),
            Some('\n') if quote != '`' => return Err("unterminated quoted string".to_owned()),
            None => return Err("unterminated quoted string".to_owned()),
            Some('\u{fffd}') => return Err("invalid UTF-8 rune".to_owned()),
            Some(c) if c == quote => break,
            Some('\\') if quote != '`' => escape(&mut chars, quote, &mut out)?,
            Some(c) => push(&mut out, c),
        }
    }
    Ok((out, chars.pos))
}

struct Chars<'a> {
    text: &'a str,
    pos: usize,
}

impl Chars<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.text[self.pos..].chars().next()?;
        self.pos += c.len_utf8();
        Some(c)
    }
}

fn escape(chars: &mut Chars<'_>, quote: char, out: &mut Vec<u8>) -> Result<(), String> {
    const UNENDED: &str = "escape sequence not terminated";
    let first = chars.next().ok_or(UNENDED)?;
    if let Some(byte) = simple(first, quote) {
        out.push(byte);
        return Ok(());
    }
    let (digits, base, max) = match first {
        '0'..='7' => (3, 8, 0xff),
        'x' => (2, 16, 0xff),
        'u' => (4, 16, 0x0010_ffff),
        'U' => (8, 16, 0x0010_ffff),
        _ => return Err(format!("unknown escape sequence {}", code_point(first))),
    };
    let mut value = 0_u32;
    for i in 0..digits {
        let c = if base == 8 && i == 0 { first } else { chars.next().ok_or(UNENDED)? };
        let digit =
            c.to_digit(base).ok_or_else(|| format!("illegal character {} in escape sequence", code_point(c)))?;
        value = value.wrapping_mul(base).wrapping_add(digit);
    }
    match char::from_u32(value) {
        // Short forms mean a byte, long ones a character.
        Some(_) if value <= max && max == 0xff => out.push(value as u8),
        Some(c) if value <= max => push(out, c),
        _ => return Err("escape sequence is an invalid Unicode code point".to_owned()),
    }
    Ok(())
}

/// Gives what a letter after a backslash stands for.
fn simple(letter: char, quote: char) -> Option<u8> {
    Some(match letter {
        'a' => 0x07,
        'b' => 0x08,
        'f' => 0x0c,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        '\\' => b'\\',
        _ if letter == quote => quote as u8,
        _ => return None,
    })
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

pub(crate) fn replace_broken(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<(String, usize), String> {
        decode(text).map(|(text, length)| (text.shown().to_owned(), length))
    }

    #[test]
    fn texts() {
        let check =
            |text: &str, expected: &str| assert_eq!(shown(text), Ok((expected.to_owned(), text.len())), "{text}");
        check(r#""a\"b'""#, "a\"b'");
        check(r"'a\'b\\'", "a'b\\");
        check("`a\\n\n'`", "a\\n\n'");
        check(r#""\a\b\f\n\r\t\v\u1234\U00010111""#, "\x07\x08\x0c\n\r\t\x0b\u{1234}\u{10111}");
        check(r#""\x41\101\xe2\x98\xba""#, "AA☺");
        check(r#""\xFF\377☺""#, "\u{fffd}\u{fffd}☺");
        assert_eq!(shown("'a' b"), Ok(("a".to_owned(), 3)));
    }

    #[test]
    fn errors() {
        let check = |text: &str, expected: &str| assert_eq!(shown(text), Err(expected.to_owned()), "{text}");
        check("\"a", "unterminated quoted string");
        check("'a\n'", "unterminated quoted string");
        check("`a", "unterminated raw string");
        check(r#""\"#, "escape sequence not terminated");
        check(r#""\x4"#, "escape sequence not terminated");
        check(r#""\c""#, "unknown escape sequence U+0063 'c'");
        check(r#""\'""#, "unknown escape sequence U+0027 '''");
        check(r#""\x.""#, "illegal character U+002E '.' in escape sequence");
        check(r#""\400""#, "escape sequence is an invalid Unicode code point");
        check(r#""\ud800""#, "escape sequence is an invalid Unicode code point");
        check(r#""\Uffffffff""#, "escape sequence is an invalid Unicode code point");
        check("'\u{fffd}'", "invalid UTF-8 rune");
    }
}
