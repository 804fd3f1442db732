//! Encodes text for e-mail: quoted-printable bodies and encoded words in headers, with lines broken where Go breaks them.

use std::fmt::Write as _;

/// Longest line of a body, `=` at its end included.
const LINE_MAX: usize = 76;
/// Longest content of an encoded word: 75 characters without `=?UTF-8?q?` and `?=`.
const WORD_MAX: usize = 75 - 12;

/// A body under way.
#[derive(Default)]
struct QuotedPrintableBody {
    out: Vec<u8>,
    /// Bytes of the line that is not ended yet.
    line: Vec<u8>,
    /// The byte before was a carriage return, which has ended its line.
    after_return: bool,
}

impl QuotedPrintableBody {
    /// Goes on in a new line, which readers join with this one.
    fn break_line(&mut self) {
        self.line.push(b'=');
        self.end_line();
    }

    fn end_line(&mut self) {
        self.out.append(&mut self.line);
        self.out.extend_from_slice(b"\r\n");
    }

    /// White space at the end of a line would get lost on the way.
    fn guard_end(&mut self) {
        if let Some(last) = self.line.pop_if(|b| matches!(b, b' ' | b'\t')) {
            self.encode(last);
        }
    }

    fn encode(&mut self, byte: u8) {
        if LINE_MAX - 1 - self.line.len() < 3 {
            self.break_line();
        }
        self.line.extend_from_slice(format!("={byte:02X}").as_bytes());
    }

    fn push(&mut self, byte: u8) {
        match byte {
            b'\n' if std::mem::take(&mut self.after_return) => {}
            b'\r' | b'\n' => {
                self.guard_end();
                self.end_line();
                self.after_return = byte == b'\r';
            }
            b' ' | b'\t' | b'!'..=b'~' if byte != b'=' => {
                if self.line.len() == LINE_MAX - 1 {
                    self.break_line();
                }
                self.line.push(byte);
                self.after_return = false;
            }
            _ => {
                self.encode(byte);
                self.after_return = false;
            }
        }
    }
}

/// Writes a body so that any server lets it pass (RFC 2045 section 6.7).
pub(super) fn quoted_printable(text: &str) -> Vec<u8> {
    let mut quoted = QuotedPrintableBody::default();
    text.bytes().for_each(|byte| quoted.push(byte));
    quoted.guard_end();
    quoted.out.append(&mut quoted.line);
    quoted.out
}

/// Writes the value of a header: as it is, or where it holds more than printable ASCII in encoded words (RFC 2047).
pub(super) fn header_value(text: &str) -> String {
    if text.bytes().all(|b| matches!(b, b' '..=b'~' | b'\t')) {
        return text.to_owned();
    }
    let mut out = "=?utf-8?q?".to_owned();
    let mut length = 0;
    for c in text.chars() {
        let plain = matches!(c, ' '..='~') && !matches!(c, '=' | '?' | '_');
        let width = if plain { 1 } else { 3 * c.len_utf8() };
        // A character is never split over two words.
        if length + width > WORD_MAX {
            out.push_str("?= =?utf-8?q?");
            length = 0;
        }
        length += width;
        match c {
            ' ' => out.push('_'),
            _ if plain => out.push(c),
            _ => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(out, "={byte:02X}");
                }
            }
        }
    }
    out + "?="
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies() {
        let check = |text: &str, expected: &str| {
            assert_eq!(String::from_utf8(quoted_printable(text)).unwrap(), expected, "{text:?}");
        };
        check("a=b\nü \n", "a=3Db\r\n=C3=BC=20\r\n");
        check("a\r\nb\rc", "a\r\nb\r\nc");
        check("end \t", "end =09");
        check(&"x".repeat(80), &format!("{}=\r\n{}", "x".repeat(75), "x".repeat(5)));
        check(&format!("{}ü", "x".repeat(73)), &format!("{}=\r\n=C3=BC", "x".repeat(73)));
    }

    #[test]
    fn headers() {
        assert_eq!(header_value("[FIRING:1] a?"), "[FIRING:1] a?");
        assert_eq!(header_value("hä ?_="), "=?utf-8?q?h=C3=A4_=3F=5F=3D?=");
        // Nothing comes out of its line.
        assert_eq!(header_value("a\r\nBcc: x"), "=?utf-8?q?a=0D=0ABcc:_x?=");
        let long = header_value(&"ü".repeat(20));
        assert_eq!(long.split(' ').count(), 2);
        assert!(long.split(' ').all(|word| word.len() <= 75), "{long}");
    }

    /// Undoes what a body is written in, and checks what RFC 2045 asks of its lines.
    fn read_back(body: &[u8]) -> Vec<u8> {
        let text = std::str::from_utf8(body).expect("ASCII");
        let mut out = Vec::new();
        let lines: Vec<&str> = text.split("\r\n").collect();
        for (n, line) in lines.iter().enumerate() {
            assert!(line.len() <= LINE_MAX && line.is_ascii(), "{line:?}");
            assert!(!line.ends_with([' ', '\t', '\r', '\n']), "{line:?}");
            let (line, soft) = line.strip_suffix('=').map_or((*line, false), |line| (line, true));
            let mut bytes = line.bytes();
            while let Some(byte) = bytes.next() {
                out.push(match byte {
                    b'=' => {
                        let digits: String = bytes.by_ref().take(2).map(char::from).collect();
                        u8::from_str_radix(&digits, 16).expect(&digits)
                    }
                    byte => byte,
                });
            }
            if !soft && n + 1 < lines.len() {
                out.extend(b"\r\n");
            }
        }
        out
    }

    #[test]
    fn bodies_come_back() {
        let lines = |text: &str| text.replace("\r\n", "\n").replace('\r', "\n").replace('\n', "\r\n");
        let pieces = ["a", " ", "\t", "=", "ü", "🙂", "\n", "\r\n", "\r", ".", "~", &"x".repeat(74), &" ".repeat(40)];
        let mut state = 7_u64;
        for _ in 0..300 {
            let mut text = String::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text += pieces[(state >> 33) as usize % pieces.len()];
            }
            assert_eq!(String::from_utf8(read_back(&quoted_printable(&text))).unwrap(), lines(&text), "{text:?}");
        }
    }

    /// A carriage return ends a line by itself; what comes behind it keeps its own end.
    #[test]
    fn ends_of_lines() {
        let check = |text: &str, expected: &str| {
            assert_eq!(String::from_utf8(quoted_printable(text)).unwrap(), expected, "{text:?}");
        };
        check("", "");
        check("\n", "\r\n");
        check("\r\r\n\n", "\r\n\r\n\r\n");
        check("a\rb\nc", "a\r\nb\r\nc");
        check("a\r=\nc", "a\r\n=3D\r\nc");
        check("a\r\u{fc}\nc", "a\r\n=C3=BC\r\nc");
        check(" ", "=20");
        check(&"x".repeat(75), &"x".repeat(75));
        check(&format!("{} \n", "x".repeat(74)), &format!("{}=\r\n=20\r\n", "x".repeat(74)));
    }

    #[test]
    fn words_of_headers() {
        for (text, expected) in [
            ("", ""),
            ("a\tb =?_", "a\tb =?_"),
            ("é", "=?utf-8?q?=C3=A9?="),
            ("\u{7f}", "=?utf-8?q?=7F?="),
            ("a\tbé", "=?utf-8?q?a=09b=C3=A9?="),
        ] {
            assert_eq!(header_value(text), expected, "{text:?}");
        }
        // Each word is whole, and none is too long.
        let long = header_value(&"🙂a".repeat(100));
        let words: Vec<&str> = long.split(' ').collect();
        assert!(words.len() > 10);
        let mut bytes = Vec::new();
        for word in words {
            assert!(word.len() <= 75, "{word}");
            let inner = word.strip_prefix("=?utf-8?q?").and_then(|rest| rest.strip_suffix("?=")).expect(word);
            let part = read_back(inner.as_bytes());
            assert!(std::str::from_utf8(&part).is_ok(), "a character is in one word: {word}");
            bytes.extend(part);
        }
        assert_eq!(String::from_utf8(bytes).unwrap(), "🙂a".repeat(100));
    }
}
