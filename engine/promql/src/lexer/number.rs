//! Numbers and durations: where they end, and what number a text stands for.
//!
//! Forms: decimal with fraction, exponent and underscores between digits, hexadecimal `0x1F`, octal `017`, `Inf`,
//! `NaN`; durations `1h30m`.

use super::quote::quote;
use super::token::TokenKind;

/// Finds the end of the number or duration that `text` starts with. Gives the length of what was read and, unless it
/// is malformed, the kind.
pub(crate) fn scan(text: &str) -> (usize, Option<TokenKind>) {
    let mut scan = Scan { bytes: text.as_bytes(), pos: 0 };
    if scan.number() {
        return (scan.pos, Some(TokenKind::Number));
    }
    if !scan.rest_of_duration() {
        return (scan.pos, None);
    }
    if scan.at_word() {
        // The character that does not fit belongs to what the error shows.
        return (scan.pos + 1, None);
    }
    (scan.pos, Some(TokenKind::Duration))
}

struct Scan<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.pos).copied()
    }

    fn accept(&mut self, set: &[u8]) -> bool {
        let found = self.peek().is_some_and(|b| set.contains(&b));
        self.pos += usize::from(found);
        found
    }

    fn at_word(&self) -> bool {
        self.peek().is_some_and(|b| b == b'_' || b.is_ascii_alphanumeric())
    }

    fn number(&mut self) -> bool {
        let mut hex = false;
        if self.accept(b"0") && self.accept(b"xX") {
            self.accept(b"_");
            hex = true;
        }
        let (mut dot, mut exponent) = (false, false);
        while let Some(b) = self.peek() {
            let digit = if hex { b.is_ascii_hexdigit() } else { b.is_ascii_digit() };
            match b {
                _ if digit => self.pos += 1,
                b'.' => {
                    self.pos += 1;
                    if dot || hex || self.accept(b"_.") {
                        return false;
                    }
                    dot = true;
                }
                b'e' | b'E' => {
                    self.pos += 1;
                    if exponent {
                        return false;
                    }
                    exponent = true;
                    self.accept(b"+-");
                    if self.accept(b"._eE") || self.peek().is_none() {
                        return false;
                    }
                }
                b'_' => {
                    self.pos += 1;
                    if self.accept(b"._eE") || self.peek().is_none() {
                        return false;
                    }
                }
                _ => break,
            }
        }
        !self.at_word()
    }

    /// Reads from the first unit of a duration on; the order of the units is looked at when it is evaluated.
    fn rest_of_duration(&mut self) -> bool {
        if !self.accept(b"smhdwy") {
            return false;
        }
        self.accept(b"s");
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            while self.peek().is_some_and(|b| b.is_ascii_digit()) {
                self.pos += 1;
            }
            if !self.accept(b"smhdw") {
                return false;
            }
            self.accept(b"s");
        }
        true
    }
}

/// Gives the number that a number token stands for.
pub(crate) fn value(text: &str) -> Result<f64, String> {
    let lower = text.to_ascii_lowercase();
    let fail =
        |reason: &str| Err(format!("error parsing number: strconv.ParseFloat: parsing {}: {reason}", quote(text)));
    match lower.as_str() {
        "inf" => return Ok(f64::INFINITY),
        "nan" => return Ok(f64::NAN),
        _ => {}
    }
    if !underscores_fit(&lower) {
        return fail("invalid syntax");
    }
    let digits = lower.replace('_', "");
    if let Some(integer) = integer(&digits) {
        return Ok(integer as f64);
    }
    match digits.parse::<f64>() {
        Ok(value) if value.is_infinite() => fail("value out of range"),
        Ok(value) => Ok(value),
        Err(_) => fail("invalid syntax"),
    }
}

fn integer(digits: &str) -> Option<i64> {
    if let Some(hex) = digits.strip_prefix("0x") {
        return i64::from_str_radix(hex, 16).ok();
    }
    match digits.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => i64::from_str_radix(octal, 8).ok(),
        _ => digits.parse().ok(),
    }
}

/// Says whether each underscore stands between two digits, or a base prefix and a digit.
fn underscores_fit(text: &str) -> bool {
    let (hex, rest) = text.strip_prefix("0x").map_or((false, text), |rest| (true, rest));
    let digit = |b: u8| if hex { b.is_ascii_hexdigit() } else { b.is_ascii_digit() };
    let bytes = rest.as_bytes();
    bytes.iter().enumerate().filter(|(_, b)| **b == b'_').all(|(i, _)| {
        let before = if i == 0 { hex } else { digit(bytes[i - 1]) };
        before && bytes.get(i + 1).is_some_and(|&b| digit(b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |text: &str, expected: f64| {
            assert_eq!(scan(text), (text.len(), Some(TokenKind::Number)), "{text}");
            assert_eq!(value(text), Ok(expected), "{text}");
        };
        check("5.", 5.0);
        check(".5", 0.5);
        check("0xc", 12.0);
        check("0X_1e", 30.0);
        check("0755", 493.0);
        check("0_755", 493.0);
        check("08", 8.0);
        check("5e-3", 0.005);
        check("1_000.5", 1000.5);
        check("4.23_42e1_0", 4.2342e10);
        check("9223372036854775808", 9_223_372_036_854_775_808.0);
        let fail = |text: &str, reason: &str| {
            let expected = format!("error parsing number: strconv.ParseFloat: parsing \"{text}\": {reason}");
            assert_eq!(value(text), Err(expected));
        };
        fail("1e999", "value out of range");
        fail("0xffffffffffffffff", "invalid syntax");
        fail("0x", "invalid syntax");
    }

    #[test]
    fn ends() {
        let check = |text: &str, length: usize, kind| assert_eq!(scan(text), (length, kind), "{text}");
        check("5m]", 2, Some(TokenKind::Duration));
        check("1h30m5s1ms ", 10, Some(TokenKind::Duration));
        check("5y1hs]", 5, Some(TokenKind::Duration));
        check("1+", 1, Some(TokenKind::Number));
        check("2.5.", 4, None);
        check("100..4", 5, None);
        check("0deadbeef", 3, None);
        check("5mm]", 3, None);
        check("5m1]", 3, None);
        check("1x", 1, None);
        check("1__0", 3, None);
        check("1e", 2, None);
    }

    #[test]
    fn underscores_stand_between_digits() {
        for (text, expected) in [
            ("1_000", Ok(1000.0)),
            ("0x_1_f", Ok(31.0)),
            ("0_7", Ok(7.0)),
            ("1_0e1_0", Ok(1e11)),
            ("1_", Err(())),
            ("1__0", Err(())),
            ("1_.5", Err(())),
            ("1._5", Err(())),
            ("1e_5", Err(())),
            ("1_e5", Err(())),
            ("0x1_", Err(())),
            ("_1", Err(())),
        ] {
            assert_eq!(value(text).map_err(drop), expected, "{text}");
        }
    }

    #[test]
    fn whole_numbers_of_all_bases() {
        for (text, expected) in [
            ("0", 0.0),
            ("00", 0.0),
            ("017", 15.0),
            ("019", 19.0),
            ("017.5", 17.5),
            ("017e1", 170.0),
            ("0XfF", 255.0),
            ("0x7fffffffffffffff", 9_223_372_036_854_775_808.0),
            ("9223372036854775807", 9_223_372_036_854_775_808.0),
            ("9007199254740993", 9_007_199_254_740_992.0),
            ("0777777777777777777777", 9_223_372_036_854_775_808.0),
            ("100000000000000000000", 1e20),
            ("1E+3", 1000.0),
            (".5e1", 5.0),
            ("1e-400", 0.0),
            ("iNf", f64::INFINITY),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
        assert!(value("NAN").is_ok_and(f64::is_nan));
        for text in ["", "0b11", "1e", "0x1.8", "0xg", "1.2.3", "infinity", "1 "] {
            assert!(value(text).is_err(), "{text}");
        }
    }

    /// Whatever stands there, what is read ends at a character and is what is read of it alone.
    #[test]
    fn reading_ends_within_the_text() {
        use rand::rngs::SmallRng;
        use rand::{RngExt, SeedableRng};

        const PARTS: [&str; 14] = ["0", "1", "9", "x", "e", ".", "_", "m", "s", "h", "+", "é", " ", "F"];
        let mut random = SmallRng::seed_from_u64(31);
        for _ in 0..3000 {
            let mut text = String::from("1");
            for _ in 0..random.random_range(0_usize..8) {
                text += PARTS[random.random_range(0..PARTS.len())];
            }
            let (length, kind) = scan(&text);
            let read = text.get(..length).unwrap_or_else(|| panic!("{text}: {length}"));
            if kind.is_some() {
                // What is no number after all (`1e`) is known once it is read.
                if kind == Some(TokenKind::Duration) || value(read).is_ok() {
                    assert_eq!(scan(read), (length, kind), "{text}");
                }
                assert!(!text[length..].starts_with(|c: char| c == '_' || c.is_ascii_alphanumeric()), "{text}: {read}");
            }
        }
    }
}
