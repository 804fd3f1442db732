//! The text forms of numbers, bytes and texts, the same wherever they are shown or stored.

use std::fmt::{self, Display, Write};

/// Up to here, 2^53, a double holds each integer exactly; from here on one may stand for several.
pub const EXACT_INTEGERS_MAX: u64 = 1 << 53;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends a double: shortest digits that read back equal, whole numbers without a point, an exponent below 1e-6 and from
/// 1e21, `NaN`, `+Inf`, `-Inf`.
pub fn push_double(v: f64, out: &mut String) {
    let magnitude = v.abs();
    // A `String` takes whatever is written.
    let _ = if v.is_nan() {
        write!(out, "NaN")
    } else if v.is_infinite() {
        write!(out, "{}Inf", if v > 0.0 { '+' } else { '-' })
    } else if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        write!(out, "{v}")
    } else {
        let text = format!("{v:e}");
        write!(out, "{}", if magnitude >= 1.0 { text.replace('e', "e+") } else { text })
    };
}

/// Writes some things in parentheses, with a text between them.
pub(crate) fn write_list<T: Display>(f: &mut fmt::Formatter<'_>, all: &[T], between: &str) -> fmt::Result {
    f.write_str("(")?;
    for (i, one) in all.iter().enumerate() {
        write!(f, "{}{one}", if i == 0 { "" } else { between })?;
    }
    f.write_str(")")
}

/// Tells whether a whole number of this size is no other one as a double.
pub(crate) fn is_exact(number: f64) -> bool {
    number.abs() < EXACT_INTEGERS_MAX as f64
}

/// Tells whether two texts, which both are read as this double, stand for one number. Whole numbers that no double holds
/// exactly compare by their digits: ids are such numbers, and as doubles they equal those beside them.
pub(crate) fn is_same_number(left: &str, right: &str, number: f64) -> bool {
    match (whole_digits(left), whole_digits(right)) {
        (Some(left), Some(right)) => is_exact(number) || left == right,
        _ => true,
    }
}

/// Sign and digits of a whole number, without leading zeros; none of other texts.
fn whole_digits(text: &str) -> Option<(bool, &str)> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_whole.then(|| (text.starts_with('-'), digits.trim_start_matches('0')))
}

/// Appends bytes as base64 (RFC 4648 section 4), padded.
pub fn push_base64(bytes: &[u8], out: &mut String) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().enumerate().fold(0u32, |bits, (i, b)| bits | u32::from(*b) << (16 - 8 * i));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i)) as usize & 63];
            out.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
}

/// Gives bytes as base64.
pub fn to_base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    push_base64(bytes, &mut out);
    out
}

/// Reads base64 with the standard or the URL alphabet, padded or not; `None`: it is none.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    if digits.len() % 4 == 1 || text.len() - digits.len() > 2 {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (mut bits, mut held) = (0u32, 0);
    for byte in digits {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(digit);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    Some(out)
}

/// Decodes a value of a URL or a form: `%41` is `A`, `+` a blank; a `%` without two digits stays as it is.
pub fn form_decoded(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        let digit = |i: usize| behind.get(i).and_then(|b| char::from(*b).to_digit(16));
        rest = behind;
        bytes.push(match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                rest = &behind[2..];
                (high * 16 + low) as u8
            }
            (b'+', ..) => b' ',
            _ => byte,
        });
    }
    bytes
}

/// Appends a text as a JSON string; escapes only what JSON asks for.
pub fn push_json_text(text: &str, out: &mut String) {
    let special = |byte: u8| matches!(byte, 0..0x20 | b'"' | b'\\');
    out.push('"');
    // Without a way out of the loop, so that it goes many bytes at a time.
    if !text.bytes().fold(false, |any, byte| any | special(byte)) {
        out.push_str(text);
        out.push('"');
        return;
    }
    let mut plain = 0;
    for (i, byte) in text.bytes().enumerate() {
        if !special(byte) {
            continue;
        }
        out.push_str(&text[plain..i]);
        plain = i + 1;
        // A `String` takes whatever is written.
        let _ = match byte {
            b'"' => write!(out, "\\\""),
            b'\\' => write!(out, "\\\\"),
            b'\n' => write!(out, "\\n"),
            b'\r' => write!(out, "\\r"),
            b'\t' => write!(out, "\\t"),
            other => write!(out, "\\u{other:04x}"),
        };
    }
    out.push_str(&text[plain..]);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_texts_escape_what_they_must() {
        let written = |text: &str| {
            let mut out = String::from("x");
            push_json_text(text, &mut out);
            out
        };
        assert_eq!(written("plain <'&é"), "x\"plain <'&é\"");
        assert_eq!(written("é\"\\\n\r\t\u{1}\u{1f}\u{7f}é"), "x\"é\\\"\\\\\\n\\r\\t\\u0001\\u001f\u{7f}é\"");
    }

    #[test]
    fn forms_are_decoded() {
        let check = |text: &str, expected: &[u8]| assert_eq!(form_decoded(text), expected, "{text}");
        check("a%20b+c%2B", b"a b c+");
        check("%C3%a4", "ä".as_bytes());
        check("%ff", b"\xff");
        check("100%", b"100%");
        check("%4%zz", b"%4%zz");
    }

    #[test]
    fn base64_round_trip() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\xfe\xfd\xfc", "//79/A==")]
        {
            assert_eq!(to_base64(bytes), text);
            assert_eq!(from_base64(text).as_deref(), Some(bytes));
            assert_eq!(from_base64(text.trim_end_matches('=')).as_deref(), Some(bytes));
        }
        assert_eq!(from_base64("_-8="), Some(vec![0xff, 0xef]));
        for bad in ["A", "a===", "====", "Zg=a", "Z!==", "Zm8=Zm8=", "*"] {
            assert_eq!(from_base64(bad), None, "{bad}");
        }
    }

    #[test]
    fn doubles() {
        let check = |v: f64, expected: &str| {
            let mut out = String::new();
            push_double(v, &mut out);
            assert_eq!(out, expected);
        };
        check(0.1, "0.1");
        check(100.0, "100");
        check(-0.0, "-0");
        check(1e21, "1e+21");
        check(1.5e-7, "1.5e-7");
        check(f64::NEG_INFINITY, "-Inf");
        check(f64::NAN, "NaN");
    }

    #[test]
    fn bytes_of_all_lengths_come_back() {
        let mut random = 9_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 40) as u8
        };
        for length in 0..200 {
            let bytes: Vec<u8> = (0..length).map(|_| next()).collect();
            let text = to_base64(&bytes);
            assert_eq!((text.len(), from_base64(&text)), (bytes.len().div_ceil(3) * 4, Some(bytes.clone())), "{text}");
            let of_addresses = text.replace('+', "-").replace('/', "_");
            assert_eq!(from_base64(of_addresses.trim_end_matches('=')), Some(bytes), "{text}");
        }
        for wrong in ["Zg===", "Z", "Zm9vZ", "Zm9v\n", " Zg==", "Zgé="] {
            assert_eq!(from_base64(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn doubles_at_the_borders_of_exponents() {
        for (value, expected) in [
            (1e-6, "0.000001"),
            (9.99e-7, "9.99e-7"),
            (1e20, "100000000000000000000"),
            (-1e21, "-1e+21"),
            (1.5e300, "1.5e+300"),
            (5e-324, "5e-324"),
            (0.0, "0"),
            (f64::INFINITY, "+Inf"),
            (-0.1, "-0.1"),
        ] {
            let mut out = String::from("x");
            push_double(value, &mut out);
            assert_eq!(out, format!("x{expected}"));
            assert_eq!(expected.parse::<f64>().map(f64::to_bits), Ok(value.to_bits()), "{expected}");
        }
    }

    /// Breaks if ids that round to the same double are treated as equal, or a number as different from itself.
    #[test]
    fn numbers_beyond_doubles_go_by_their_digits() {
        let same = |left: &str, right: &str| {
            let number: f64 = left.parse().unwrap();
            assert_eq!(right.parse(), Ok(number), "{left} {right}");
            is_same_number(left, right, number) && is_same_number(right, left, number)
        };
        assert!(same("5", "5") && same("5", "+5") && same("5", "05") && same("5", "5.0") && same("-0", "0"));
        assert!(same("9007199254740991", "09007199254740991"));
        assert!(!same("9007199254740992", "9007199254740993") && !same("-9007199254740992", "-9007199254740993"));
        assert!(same("9007199254740993", "+9007199254740993") && same("1e18", "1000000000000000000"));
        assert!(!same("20240101123456789012", "20240101123456789013"));
        assert!([1.0, -9_007_199_254_740_991.0, 0.5].map(is_exact) == [true; 3]);
        assert!([9_007_199_254_740_992.0, -1e300, f64::NAN].map(is_exact) == [false; 3]);
    }
}
