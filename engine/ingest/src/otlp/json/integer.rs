//! Integers by protobuf's JSON mapping: a number, or a text that holds one, without a fraction (`1.0` and `1e3` have
//! none), and within the bounds of its field. Nothing goes through a double, so no digit is lost.

/// The integers that a field can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Unsigned32,
    Unsigned64,
    Signed32,
    Signed64,
}

impl Width {
    fn holds(self, value: i128) -> bool {
        match self {
            Self::Unsigned32 => u32::try_from(value).is_ok(),
            Self::Unsigned64 => u64::try_from(value).is_ok(),
            Self::Signed32 => i32::try_from(value).is_ok(),
            Self::Signed64 => i64::try_from(value).is_ok(),
        }
    }

    /// What is said of a value that the field cannot hold.
    fn expected(self) -> &'static str {
        match self {
            Self::Unsigned32 => "expected an integer from 0 to 4294967295",
            Self::Unsigned64 => "expected an integer from 0 to 18446744073709551615",
            Self::Signed32 => "expected an integer from -2147483648 to 2147483647",
            Self::Signed64 => "expected an integer from -9223372036854775808 to 9223372036854775807",
        }
    }
}

/// Reads an integer, as the bits of 64 with its sign.
///
/// # Errors
/// What was expected: the text is no integer, or none that the field can hold.
pub(super) fn read(text: &str, width: Width) -> Result<u64, &'static str> {
    let value = whole(text).ok_or("expected an integer")?;
    if width.holds(value) { Ok(value as u64) } else { Err(width.expected()) }
}

/// Reads a number without a fraction; one of more than 128 bits is as large as one can be.
fn whole(text: &str) -> Option<i128> {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    // Nearly all are of this form.
    if is_digits(text)
        && let Ok(value) = text.parse::<u64>()
    {
        return Some(value.into());
    }
    let (is_negative, magnitude) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (number, exponent) = match magnitude.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i64>().ok()?),
        None => (magnitude, 0),
    };
    let (before_point, fraction) = match number.split_once('.') {
        Some((before_point, fraction)) if is_digits(fraction) => (before_point, fraction),
        Some(_) => return None,
        None => (number, ""),
    };
    if !is_digits(before_point) {
        return None;
    }
    // The magnitude is `significant * 10^shift`, with no zeros at either end of `significant`.
    let digits = [before_point, fraction].concat();
    let without_zeros = digits.trim_end_matches('0');
    let significant = without_zeros.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let zeros = (digits.len() - without_zeros.len()) as i64 - fraction.len() as i64;
    let shift = u32::try_from(exponent.saturating_add(zeros).min(u32::MAX.into())).ok()?;
    let scale = 10_i128.checked_pow(shift);
    let value = significant.parse::<i128>().ok().zip(scale).and_then(|(value, scale)| value.checked_mul(scale));
    let value = value.unwrap_or(i128::MAX);
    Some(if is_negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_a_fraction() {
        let check = |text: &str, expected: Option<i128>| assert_eq!(whole(text), expected, "{text}");
        check("0", Some(0));
        check("-0", Some(0));
        check("0.0", Some(0));
        check("0e5", Some(0));
        check("12", Some(12));
        check("-12", Some(-12));
        check("1.0", Some(1));
        check("1.50e1", Some(15));
        check("100e-2", Some(1));
        check("1e3", Some(1000));
        check("1E+3", Some(1000));
        check("-1.5e1", Some(-15));
        // Digits that a double would lose.
        check("9007199254740993.0", Some(9_007_199_254_740_993));
        check("1.8446744073709551615e19", Some(u64::MAX.into()));
        check("18446744073709551616", Some(1 << 64));
        check("1e400", Some(i128::MAX));
        check("1e9223372036854775807", Some(i128::MAX));
        check("-1e400", Some(-i128::MAX));
        check(&"9".repeat(1000), Some(i128::MAX));
        for none in
            ["", "-", "+5", "--5", "1.5", "1e-1", "0.1", "1e-9223372036854775808", ".5", "5.", "5e", "e5", "5e1.0"]
        {
            check(none, None);
        }
        for none in [" 5", "5 ", "0x10", "1_000", "NaN", "Infinity", "٥", "true", "1.2.3", "1-2"] {
            check(none, None);
        }
    }

    #[test]
    fn bounds_are_those_of_the_field() {
        let check = |width: Width, least: &str, most: &str, beyond: [&str; 2]| {
            for held in [least, most] {
                let expected = held.parse::<i128>().unwrap() as u64;
                assert_eq!(read(held, width), Ok(expected), "{width:?} {held}");
            }
            for other in beyond {
                assert_eq!(read(other, width), Err(width.expected()), "{width:?} {other}");
            }
            assert_eq!(width.expected(), format!("expected an integer from {least} to {most}"));
            assert_eq!(read("1.5", width), Err("expected an integer"));
        };
        check(Width::Unsigned32, "0", "4294967295", ["-1", "4294967296"]);
        check(Width::Unsigned64, "0", "18446744073709551615", ["-1", "18446744073709551616"]);
        check(Width::Signed32, "-2147483648", "2147483647", ["-2147483649", "2147483648"]);
        let (least, most) = ("-9223372036854775808", "9223372036854775807");
        check(Width::Signed64, least, most, ["-9223372036854775809", "9223372036854775808"]);
    }
}
