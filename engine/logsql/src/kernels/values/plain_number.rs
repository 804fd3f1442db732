//! Plain numbers: integers and decimals without exponent and unit.

/// Powers of ten that are exact in a double.
const POW10: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// Reads an unsigned integer: digits, `_` between them, no leading zero.
pub fn parse_u64(text: &str) -> Option<u64> {
    unsigned(text.as_bytes())
}

fn unsigned(bytes: &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    if !first.is_ascii_digit() || (first == b'0' && bytes.len() > 1) || bytes.len() > 40 {
        return None;
    }
    let mut value: u64 = 0;
    for &b in bytes {
        match b {
            b'0'..=b'9' => value = value.checked_mul(10)?.checked_add(u64::from(b - b'0'))?,
            b'_' => {}
            _ => return None,
        }
    }
    Some(value)
}

/// Reads the number of a character or byte as escapes have it: digits alone, where the library takes a sign, too.
pub(crate) fn code(digits: &str, radix: u32) -> Option<u32> {
    let is_plain = digits.bytes().all(|b| b.is_ascii_alphanumeric());
    u32::from_str_radix(digits, radix).ok().filter(|_| is_plain)
}

/// Reads a signed integer: as [`parse_u64`] with an optional `-`.
pub fn parse_i64(text: &str) -> Option<i64> {
    match text.as_bytes() {
        [b'-', rest @ ..] => {
            let magnitude = unsigned(rest)?;
            (magnitude <= 1 << 63).then(|| (magnitude as i64).wrapping_neg())
        }
        bytes => i64::try_from(unsigned(bytes)?).ok(),
    }
}

/// Reads a plain decimal: `-`, digits, and perhaps a dot with digits on both sides; `_` between digits; no leading
/// zero, no exponent, no unit.
pub fn parse_float(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, bytes),
    };
    if !digits.first()?.is_ascii_digit() {
        return None;
    }
    let value = decimal(digits)?;
    Some(if negative { -value } else { value })
}

/// The digits of [`parse_float`], correctly rounded.
fn decimal(bytes: &[u8]) -> Option<f64> {
    let mut mantissa: u64 = 0;
    let mut fits = true;
    let mut whole = 0usize;
    let mut dot = None;
    let mut fraction = 0usize;
    for (i, &b) in bytes.iter().enumerate() {
        match b {
            b'0'..=b'9' => {
                fits = fits && mantissa < (1 << 53) / 10;
                if fits {
                    mantissa = mantissa * 10 + u64::from(b - b'0');
                }
                if dot.is_some() {
                    fraction += 1;
                } else {
                    whole += 1;
                }
            }
            b'_' if i > 0 && bytes[i - 1] != b'.' => {}
            b'.' if dot.is_none() => dot = Some(i),
            _ => return None,
        }
    }
    if (bytes[0] == b'0' && whole > 1) || (dot.is_some() && fraction == 0) {
        return None;
    }
    if fits && fraction < POW10.len() {
        // Both are exact, so their quotient is correctly rounded.
        return Some(mantissa as f64 / POW10[fraction]);
    }
    if dot.is_none() {
        return unsigned(bytes).map(|n| n as f64);
    }
    let clean: String = bytes.iter().filter(|&&b| b != b'_').map(|&b| b as char).collect();
    // What is beyond all doubles is no number here either.
    clean.parse().ok().filter(|n: &f64| n.is_finite())
}
