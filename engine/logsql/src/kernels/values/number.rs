//! Everything that counts as a number in a filter or an expression.

use super::duration::parse_duration;
use super::ip::parse_ipv4;
use super::plain_number::parse_float;
use super::size::parse_size;
use super::time::parse_rfc3339;

/// Reads a number with or without a unit: decimals, durations (nanoseconds), sizes (bytes), then floats with an
/// exponent, `inf`, and integers in other bases. This is what sums and sorting take for a number.
pub fn number(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let first = match bytes {
        [b'-' | b'+', next, ..] => *next,
        [first, ..] => *first,
        [] => return None,
    };
    match first {
        b'0'..=b'9' => {}
        b'.' | b'i' | b'I' => return exotic(text),
        _ => return None,
    }
    let last = bytes[bytes.len() - 1];
    if last.is_ascii_digit() || last == b'_' {
        // No unit: a decimal, an integer in another base, or something with an exponent.
        return parse_float(text).or_else(|| parse_size(text).map(|n| n as f64)).or_else(|| exotic(text));
    }
    parse_duration(text).map(|ns| ns as f64).or_else(|| parse_size(text).map(|n| n as f64)).or_else(|| exotic(text))
}

/// Reads what [`number`] reads, then an RFC 3339 time (Unix nanoseconds), then an IPv4 address (its 32 bits). This is
/// what range filters and expressions take for a number.
pub fn numeric(text: &str) -> Option<f64> {
    if !matches!(text.as_bytes().first()?, b'0'..=b'9' | b'-' | b'+' | b'.' | b'i' | b'I') {
        return None;
    }
    number(text).or_else(|| parse_rfc3339(text).map(|ns| ns as f64)).or_else(|| parse_ipv4(text).map(f64::from))
}

/// Floats with an exponent, infinities, integers in other bases. Texts that look like times or addresses are refused.
fn exotic(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    if bytes.len() > 400 {
        return None;
    }
    let (mut dots, mut minus) = (0, 0);
    for &b in bytes {
        match b {
            b'.' => dots += 1,
            b'-' => minus += 1,
            b':' => return None,
            _ => {}
        }
    }
    if dots > 1 || minus > 2 {
        return None;
    }
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, bytes),
    };
    let sign = |value: f64| if negative { -value } else { value };
    if digits.eq_ignore_ascii_case(b"inf") {
        return Some(sign(f64::INFINITY));
    }
    if let [b'0', base, rest @ ..] = digits {
        let radix = match base {
            b'x' | b'X' => 16,
            b'o' | b'O' => 8,
            b'b' | b'B' => 2,
            _ => 0,
        };
        if radix != 0 {
            return in_base(rest, radix).map(|n| sign(n as f64));
        }
    }
    if !digits.iter().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
        return None;
    }
    // An overflowing text is no number, as in the reference.
    text.parse::<f64>().ok().filter(|f| f.is_finite())
}

fn in_base(digits: &[u8], radix: u32) -> Option<u64> {
    let mut value: u64 = 0;
    let mut any = false;
    for &b in digits {
        if b == b'_' {
            continue;
        }
        let digit = (b as char).to_digit(radix)?;
        any = true;
        value = value.checked_mul(u64::from(radix))?.checked_add(u64::from(digit))?;
    }
    any.then_some(value)
}
