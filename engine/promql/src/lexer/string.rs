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

    #[test]
    fn escapes_at_their_ends() {
        let check = |text: &str, expected: &[u8]| {
            assert_eq!(decode_bytes(text), Ok((expected.to_vec(), text.len())), "{text}");
        };
        check(r#""""#, b"");
        check("``", b"");
        check(r#""\000\177\377""#, b"\x00\x7f\xff");
        check(r#""\x00\xfF""#, b"\x00\xff");
        check(r#""\u0000\uD7FF\uE000""#, "\0\u{d7ff}\u{e000}".as_bytes());
        check(r#""\U0010FFFF""#, "\u{10ffff}".as_bytes());
        check(r#""\ufffd""#, "\u{fffd}".as_bytes());
        check("`\\x41\"'\r\n`", b"\\x41\"'\r\n");
        check("'\u{1f600}\"`'", "\u{1f600}\"`".as_bytes());
        let fail = |text: &str, expected: &str| assert_eq!(decode_bytes(text), Err(expected.to_owned()), "{text}");
        fail(r#""\8""#, "unknown escape sequence U+0038 '8'");
        fail(r#"'\"'"#, "unknown escape sequence U+0022 '\"'");
        fail("\"\\\n\"", "unknown escape sequence U+000A");
        fail(r#""\é""#, "unknown escape sequence U+00E9 'é'");
        fail(r#""\u12""#, "illegal character U+0022 '\"' in escape sequence");
        fail(r#""\08""#, "illegal character U+0038 '8' in escape sequence");
        fail(r#""\xé""#, "illegal character U+00E9 'é' in escape sequence");
        fail(r#""\U00110000""#, "escape sequence is an invalid Unicode code point");
        fail(r#""\uDFFF""#, "escape sequence is an invalid Unicode code point");
        fail(r#""\777""#, "escape sequence is an invalid Unicode code point");
        fail(r#""\U0010"#, "escape sequence not terminated");
        fail("`\u{fffd}`", "invalid UTF-8 rune");
        fail("\"", "unterminated quoted string");
    }

    /// What is written in quotes is read as the same bytes, whatever they are.
    #[test]
    fn quoting_and_reading_are_inverse() {
        use rand::rngs::SmallRng;
        use rand::{RngExt, SeedableRng};

        use super::super::quote::{quote, quote_bytes};

        let mut random = SmallRng::seed_from_u64(32);
        for _ in 0..500 {
            let bytes: Vec<u8> =
                (0..random.random_range(0_usize..12)).map(|_| random.random_range(0_u32..256) as u8).collect();
            let written = quote_bytes(&bytes);
            assert_eq!(decode_bytes(&format!("{written} rest")), Ok((bytes, written.len())), "{written}");
            let text: String = (0..random.random_range(0_usize..12))
                .filter_map(|_| char::from_u32(random.random_range(0..0x11_0000)))
                .collect();
            let written = quote(&text);
            assert_eq!(decode_bytes(&written), Ok((text.into_bytes(), written.len())), "{written}");
        }
        for text in ["\u{fffd}", "'\"`\\", "\n\r\t\0\u{7f}\u{85}", "e\u{301}\u{200d}"] {
            assert_eq!(decode_bytes(&quote(text)).map(|(bytes, _)| bytes), Ok(text.as_bytes().to_vec()), "{text:?}");
        }
    }
}
