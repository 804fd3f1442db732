//! Texts as mail carries them: quoted-printable bodies and encoded words of headers, cut where Go cuts them.

use std::fmt::Write as _;

/// Longest line of a body, `=` at its end included.
const LINE_MAX: usize = 76;
/// Longest content of an encoded word: 75 characters without `=?UTF-8?q?` and `?=`.
const WORD_MAX: usize = 75 - 12;

/// A body under way.
#[derive(Default)]
struct Quoted {
    out: Vec<u8>,
    /// Bytes of the line that is not ended yet.
    line: Vec<u8>,
    /// The byte before was a carriage return, which has ended its line.
    after_return: bool,
}

impl Quoted {
    fn end_line(&mut self, soft: bool) {
        if soft {
            self.line.push(b'=');
        }
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
            self.end_line(true);
        }
        self.line.extend_from_slice(format!("={byte:02X}").as_bytes());
    }

    fn push(&mut self, byte: u8) {
        match byte {
            b'\n' if std::mem::take(&mut self.after_return) => {}
            b'\r' | b'\n' => {
                self.guard_end();
                self.end_line(false);
                self.after_return = byte == b'\r';
            }
            b' ' | b'\t' | b'!'..=b'~' if byte != b'=' => {
                if self.line.len() == LINE_MAX - 1 {
                    self.end_line(true);
                }
                self.line.push(byte);
                self.after_return = false;
            }
            _ => self.encode(byte),
        }
    }
}

/// Writes a body so that any server lets it pass (RFC 2045 section 6.7).
pub(super) fn quoted_printable(text: &str) -> Vec<u8> {
    let mut quoted = Quoted::default();
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
}
