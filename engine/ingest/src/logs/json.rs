//! A JSON reader for logs: fast on lines, lenient within strings (control characters, unknown escapes and lone surrogates
//! are accepted) and in the form of numbers, strict otherwise. It builds no tree, and does not recurse into nested
//! values.

use std::borrow::Cow;

use memchr::memchr2;
use quiver_types::text::push_json_text;

/// A syntax error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonFault {
    /// Byte offset in the text.
    pub(crate) offset: usize,
    /// The error at that offset.
    pub(crate) what: &'static str,
}

impl From<JsonFault> for crate::error::Error {
    fn from(fault: JsonFault) -> Self {
        Self::Json { offset: fault.offset, what: fault.what }
    }
}

type Result<T, E = JsonFault> = std::result::Result<T, E>;

/// A string in a document, as it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawText<'a> {
    /// The text between the quotes.
    pub(crate) raw: &'a str,
    /// Whether it contains escapes.
    pub(crate) escaped: bool,
}

impl<'a> RawText<'a> {
    /// Appends the string with escapes resolved.
    pub(crate) fn append(self, out: &mut Vec<u8>) {
        if self.escaped { unescape(self.raw, out) } else { out.extend_from_slice(self.raw.as_bytes()) }
    }

    /// The string with escapes resolved.
    pub(crate) fn text(self) -> Cow<'a, str> {
        if !self.escaped {
            return Cow::Borrowed(self.raw);
        }
        let mut out = Vec::with_capacity(self.raw.len());
        unescape(self.raw, &mut out);
        Cow::Owned(String::from_utf8_lossy(&out).into_owned())
    }
}

/// A position in a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    pub(crate) pos: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, pos: 0 }
    }

    pub(crate) fn fault(&self, what: &'static str) -> JsonFault {
        JsonFault { offset: self.pos, what }
    }

    /// The remaining bytes.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.pos..]
    }

    /// The next byte that is no white space, without consuming it; 0 at the end.
    #[inline]
    pub(crate) fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.pos) {
            if byte > b' ' || !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return byte;
            }
            self.pos += 1;
        }
        0
    }

    /// Consumes a byte if it comes next; returns whether it did.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte;
        self.pos += usize::from(found);
        found
    }

    /// Consumes a byte; an error if it does not come next.
    #[inline]
    pub(crate) fn expect(&mut self, byte: u8, what: &'static str) -> Result<()> {
        if self.take(byte) { Ok(()) } else { Err(self.fault(what)) }
    }

    /// Whether only white space follows.
    pub(crate) fn at_end(&mut self) -> bool {
        self.peek() == 0 && self.pos == self.text.len()
    }

    /// Moves to the next key of an object, behind its opening quote; `false` at the end of the object.
    #[inline]
    pub(crate) fn next_key(&mut self, first: bool) -> Result<bool> {
        if !self.next_item(first, b'}')? {
            return Ok(false);
        }
        self.expect(b'"', "expected a key")?;
        Ok(true)
    }

    /// Moves to the next item of a list or object that ends with `close`; `false` at its end.
    #[inline]
    pub(crate) fn next_item(&mut self, first: bool, close: u8) -> Result<bool> {
        if self.take(close) {
            return Ok(false);
        }
        if !first {
            self.expect(b',', "expected `,` or the end of the list or object")?;
            if self.peek() == close {
                return Err(self.fault("unexpected `,`"));
            }
        }
        Ok(true)
    }

    /// Reads a string whose opening quote has been consumed.
    #[inline]
    pub(crate) fn text_rest(&mut self) -> Result<RawText<'a>> {
        let bytes = self.text.as_bytes();
        let start = self.pos;
        let mut escaped = false;
        let mut at = start;
        loop {
            let Some(found) = find_quote(&bytes[at..]) else { return Err(self.fault("text does not end")) };
            at += found;
            if bytes[at] == b'"' {
                self.pos = at + 1;
                return Ok(RawText { raw: &self.text[start..at], escaped });
            }
            escaped = true;
            at += 2;
            if at > bytes.len() {
                return Err(self.fault("text does not end"));
            }
        }
    }

    /// Reads a string.
    pub(crate) fn string(&mut self, what: &'static str) -> Result<RawText<'a>> {
        self.expect(b'"', what)?;
        self.text_rest()
    }

    /// Reads a number, `true`, `false` or `null`, as written. Senders that fill in templates write numbers such as `007`,
    /// `.5` and `+1`, which are taken, as are `NaN` and infinities.
    #[inline]
    pub(crate) fn literal(&mut self) -> Result<&'a str> {
        let rest = self.rest();
        let len = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.')).count();
        let text = &self.text[self.pos..self.pos + len];
        let good = match rest.first() {
            Some(b'-' | b'+') => is_number(text) || is_special(&text[1..]),
            Some(b'.' | b'0'..=b'9') => is_number(text),
            _ => matches!(text, "true" | "false" | "null") || is_special(text),
        };
        if !good {
            return Err(self.fault("expected a value"));
        }
        self.pos += len;
        Ok(text)
    }

    /// Appends the next value as compact JSON.
    pub(crate) fn compact(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.walk(Some(out))
    }

    /// Skips the next value.
    pub(crate) fn skip(&mut self) -> Result<()> {
        self.walk(None)
    }

    fn walk(&mut self, mut out: Option<&mut Vec<u8>>) -> Result<()> {
        let mut put = |bytes: &[u8]| {
            if let Some(out) = &mut out {
                out.extend_from_slice(bytes);
            }
        };
        let mut open: Vec<u8> = Vec::new();
        let mut first = true;
        loop {
            if let Some(&close) = open.last() {
                if !self.next_item(first, close)? {
                    put(&[close]);
                    open.pop();
                    first = false;
                    if open.is_empty() {
                        return Ok(());
                    }
                    continue;
                }
                if !first {
                    put(b",");
                }
                if close == b'}' {
                    let key = self.string("expected a key")?;
                    self.expect(b':', "expected `:`")?;
                    quote(key, &mut put);
                    put(b":");
                }
            }
            first = false;
            match self.peek() {
                start @ (b'{' | b'[') => {
                    self.pos += 1;
                    put(&[start]);
                    open.push(if start == b'{' { b'}' } else { b']' });
                    first = true;
                }
                b'"' => {
                    self.pos += 1;
                    let text = self.text_rest()?;
                    quote(text, &mut put);
                }
                _ => put(self.literal()?.as_bytes()),
            }
            if open.is_empty() {
                return Ok(());
            }
        }
    }
}

/// Writes a string as JSON, and escapes only what must be.
fn quote(text: RawText<'_>, put: &mut impl FnMut(&[u8])) {
    if !text.escaped && !text.raw.bytes().any(|b| b < b' ') {
        put(b"\"");
        put(text.raw.as_bytes());
        put(b"\"");
        return;
    }
    let mut plain = Vec::with_capacity(text.raw.len());
    text.append(&mut plain);
    let mut quoted = String::with_capacity(plain.len() + 8);
    push_json_text(&String::from_utf8_lossy(&plain), &mut quoted);
    put(quoted.as_bytes());
}

/// Finds the first quote or backslash. Most strings are short, so the first bytes are checked inline.
#[inline]
fn find_quote(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let mut at = 0;
    while at < 32 {
        let Some(chunk) = bytes.get(at..).and_then(|b| b.first_chunk::<8>()) else { break };
        let word = u64::from_le_bytes(*chunk);
        let (quote, slash) = (word ^ (ONES * u64::from(b'"')), word ^ (ONES * u64::from(b'\\')));
        let hit = ((quote.wrapping_sub(ONES) & !quote) | (slash.wrapping_sub(ONES) & !slash)) & HIGHS;
        if hit != 0 {
            return Some(at + hit.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    memchr2(b'"', b'\\', bytes.get(at..)?).map(|found| at + found)
}

/// Whether a text is made of what numbers are made of.
fn is_number(text: &str) -> bool {
    let mut digits = false;
    let fits = |b: u8| {
        digits |= b.is_ascii_digit();
        b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E')
    };
    text.bytes().all(fits) && digits
}

/// Whether a text is no number, or one without end.
fn is_special(text: &str) -> bool {
    ["nan", "inf", "infinity"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Appends a string with escapes resolved. Unknown escapes stay as they are; a lone surrogate becomes U+FFFD.
pub(crate) fn unescape(raw: &str, out: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let tail = &rest.as_bytes()[at + 1..];
        let plain = match tail.first() {
            Some(b'"') => b'"',
            Some(b'\\') => b'\\',
            Some(b'/') => b'/',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'u') => {
                if let Some((decoded, len)) = unicode(tail) {
                    let mut buffer = [0; 4];
                    out.extend_from_slice(decoded.encode_utf8(&mut buffer).as_bytes());
                    rest = &rest[at + 1 + len..];
                } else {
                    out.push(b'\\');
                    rest = &rest[at + 1..];
                }
                continue;
            }
            _ => {
                out.push(b'\\');
                rest = &rest[at + 1..];
                continue;
            }
        };
        out.push(plain);
        rest = &rest[at + 2..];
    }
    out.extend_from_slice(rest.as_bytes());
}

/// Parses `uXXXX`, or a surrogate pair; returns the character and the bytes consumed.
fn unicode(tail: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = tail.get(at..at + 4)?;
        digits.iter().try_fold(0u32, |n, &b| Some(n << 4 | char::from(b).to_digit(16)?))
    };
    let first = unit(1)?;
    if let Some(decoded) = char::from_u32(first) {
        return Some((decoded, 5));
    }
    let second = (tail.get(5..7) == Some(b"\\u")).then(|| unit(7)).flatten();
    match second {
        Some(second) if first < 0xdc00 && (0xdc00..0xe000).contains(&second) => {
            let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            Some((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 11))
        }
        _ => Some((char::REPLACEMENT_CHARACTER, 5)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compact(text: &str) -> Result<String> {
        let (mut cursor, mut out) = (Cursor::new(text), Vec::new());
        cursor.compact(&mut out)?;
        if !cursor.at_end() {
            return Err(cursor.fault("more"));
        }
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn compact_agrees_with_serde_json() {
        for text in [
            "null",
            "true",
            "1",
            "-0.5",
            "-",
            ".",
            "+",
            "-x",
            "1x",
            "\"a\"",
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
            " \t\n[ 1 , \"x y\" ]\r ",
            "nul",
            "{\"a\":1 \"b\":2}",
            "[\"\\\\\"]",
            "\"",
            "\"\\",
            "\"\\\"",
            "\"\\u00e9\\n\\\"\\\\\"",
            "\"\\ud83d\\ude00\"",
            "[\"12345678\\\"0123456789012345678901234567890123456789\"]",
        ] {
            let expected = serde_json::from_str::<serde_json::Value>(text).ok().map(|v| v.to_string());
            assert_eq!(compact(text).ok(), expected, "{text}");
        }
        let deep = "[".repeat(1_000_000);
        assert!(compact(&deep).is_err());
        assert_eq!(compact(&(deep.clone() + &"]".repeat(1_000_000))).unwrap().len(), 2_000_000);
    }

    #[test]
    fn forgiving_texts() {
        let check = |text: &str, expected: &str| assert_eq!(compact(text).as_deref(), Ok(expected), "{text}");
        check("\"a\u{1}b\"", "\"a\\u0001b\"");
        check("\"C:\\dir\"", "\"C:\\\\dir\"");
        check("\"\\u12g4\"", "\"\\\\u12g4\"");
        check("\"\\ud83d\"", "\"\u{fffd}\"");
        check("\"\\ud83d\\ud83d\\ude00\"", "\"\u{fffd}\u{1f600}\"");
        check("\"\\ude00x\"", "\"\u{fffd}x\"");
        check("\"\\u0000\"", "\"\\u0000\"");
        check("[NaN,-Infinity,+INF,nan]", "[NaN,-Infinity,+INF,nan]");
        // Templates such as those of a web server's log write them, and their rows must not be lost.
        check("[000,-007,.5,1.,+1,1e]", "[000,-007,.5,1.,+1,1e]");
    }

    #[test]
    fn quotes_are_found() {
        for len in 0..100 {
            for quote in ["\"", "\\"] {
                let text = format!("{}{quote}{}", "é".repeat(len), "xx\"");
                assert_eq!(find_quote(text.as_bytes()), Some(2 * len));
            }
            assert_eq!(find_quote(&vec![b'!'; len]), None);
        }
    }
}
