//! Formats numbers like Go's `fmt`.

use std::fmt::Write as _;

/// Formats a number like `%v`: the fewest digits that identify it, with an exponent below 1e-4 and from 1e6 on.
pub fn float_text(value: f64) -> String {
    general(value, None, false)
}

fn special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("NaN")
    } else if value.is_infinite() {
        Some(if value > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        None
    }
}

/// Digits and exponent of `d.ddd × 10^exponent`: shortest, or with `precision` digits in total.
fn digits(value: f64, precision: Option<usize>) -> (bool, String, i32) {
    let text = match precision {
        Some(precision) => format!("{:.*e}", precision.max(1) - 1, value.abs()),
        None => format!("{:e}", value.abs()),
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent = exponent.parse().unwrap_or(0);
    (value.is_sign_negative(), mantissa.replace('.', ""), exponent)
}

/// Formats an exponent with a sign and at least two digits.
fn exponent_text(letter: char, exponent: i32) -> String {
    format!("{letter}{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// Formats a number like `%g` (`None`: the shortest form) or `%.<precision>g`. With `keep`, trailing zeros stay
/// (`%#g`).
pub fn general(value: f64, precision: Option<usize>, keep: bool) -> String {
    if let Some(word) = special(value) {
        return word.to_owned();
    }
    let precision = precision.map(|p| p.clamp(1, PRECISION_MAX));
    let (negative, mut digits, exponent) = digits(value, precision);
    if !keep {
        let short = digits.trim_end_matches('0').len().max(1);
        digits.truncate(short);
    } else if precision.is_none() {
        digits += &"0".repeat(DIGITS.saturating_sub(digits.len()));
    }
    // Where the shortest form is wanted, 6 digits decide.
    let bound = match precision {
        Some(precision) if precision > digits.len() && digits.len() as i32 > exponent => digits.len() as i32,
        Some(precision) => precision as i32,
        None => DIGITS as i32,
    };
    let mut out = if negative { "-".to_owned() } else { String::new() };
    if exponent < -4 || exponent >= bound {
        out.push_str(&digits[..1]);
        if digits.len() > 1 {
            out.push('.');
            out.push_str(&digits[1..]);
        } else if keep {
            out.push('.');
        }
        out += &exponent_text('e', exponent);
    } else if exponent < 0 {
        let _ = write!(out, "0.{}{digits}", "0".repeat((-exponent - 1) as usize));
    } else {
        let whole = exponent as usize + 1;
        if digits.len() <= whole {
            let _ = write!(out, "{digits}{}", "0".repeat(whole - digits.len()));
            if keep {
                out.push('.');
            }
        } else {
            let _ = write!(out, "{}.{}", &digits[..whole], &digits[whole..]);
        }
    }
    out
}

/// Number of digits that decides about the exponent if no precision is given.
const DIGITS: usize = 6;

/// Maximum number of digits written.
const PRECISION_MAX: usize = 1000;

/// Formats a number like `%.<precision>f` or `%.<precision>e`.
pub fn with_precision(value: f64, verb: char, precision: Option<usize>) -> String {
    if let Some(word) = special(value) {
        return word.to_owned();
    }
    let precision = precision.unwrap_or(6).min(PRECISION_MAX);
    if matches!(verb, 'f' | 'F') {
        return format!("{value:.precision$}");
    }
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{mantissa}{}", exponent_text(verb, exponent.parse().unwrap_or(0)))
}

/// Sign, mantissa and exponent: the value is mantissa × 2^(exponent − 52).
fn parts(value: f64) -> (&'static str, u64, i32) {
    let bits = value.to_bits();
    let (fraction, exponent) = (bits & ((1 << 52) - 1), ((bits >> 52) & 0x7ff) as i32);
    let sign = if value.is_sign_negative() { "-" } else { "" };
    // Subnormal numbers have no implicit leading one.
    if exponent == 0 { (sign, fraction, -1022) } else { (sign, fraction | (1 << 52), exponent - 1023) }
}

/// Formats a number like `%b`.
pub fn binary(value: f64) -> String {
    if let Some(word) = special(value) {
        return word.to_owned();
    }
    let (sign, mantissa, exponent) = parts(value);
    format!("{sign}{mantissa}p{:+}", exponent - 52)
}

/// Formats a number like `%x` (`None`: as many digits as needed) or `%.<precision>x`.
pub fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    if let Some(word) = special(value) {
        return word.to_owned();
    }
    let (sign, mut mantissa, mut exponent) = parts(value);
    // Move the leading one to the bit above 15 hex digits.
    mantissa <<= 8;
    if mantissa == 0 {
        exponent = 0;
    }
    while mantissa != 0 && mantissa < 1 << 60 {
        mantissa <<= 1;
        exponent -= 1;
    }
    if let Some(precision) = precision.filter(|p| *p < 15) {
        let cut = 60 - 4 * precision as u32;
        let rest = mantissa & ((1 << cut) - 1);
        mantissa >>= cut;
        // Round to nearest, ties to even.
        let half = 1 << (cut - 1);
        if rest > half || (rest == half && mantissa % 2 == 1) {
            mantissa += 1;
        }
        mantissa <<= cut;
        if mantissa >= 1 << 61 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let digits = format!("{:015x}", mantissa & ((1 << 60) - 1));
    let digits = match precision.map(|p| p.min(PRECISION_MAX)) {
        None => digits.trim_end_matches('0').to_owned(),
        Some(width) => format!("{digits:0<width$.width$}"),
    };
    let point = if digits.is_empty() { "" } else { "." };
    format!("{sign}0x{}{point}{digits}{}", mantissa >> 60, exponent_text('p', exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest() {
        let check = |value: f64, expected: &str| assert_eq!(float_text(value), expected);
        check(0.0, "0");
        check(1.5, "1.5");
        check(100_000.0, "100000");
        check(1e-4, "0.0001");
        check(1e-5, "1e-05");
        check(123_456_789.0, "1.23456789e+08");
        check(1_353_755_652.0, "1.353755652e+09");
        check(1e6, "1e+06");
        check(-0.25, "-0.25");
        check(123_456.0, "123456");
        check(1_234_567.5, "1.2345675e+06");
        check(f64::NAN, "NaN");
        check(f64::NEG_INFINITY, "-Inf");
    }

    #[test]
    fn by_powers_of_two() {
        let check = |value: f64, precision: Option<usize>, expected: &str| {
            assert_eq!(hexadecimal(value, precision), expected, "{value} {precision:?}");
        };
        check(3.5, None, "0x1.cp+01");
        check(0.0, None, "0x0p+00");
        check(-1.0, None, "-0x1p+00");
        check(0.1, None, "0x1.999999999999ap-04");
        check(1e300, None, "0x1.7e43c8800759cp+996");
        check(5e-324, None, "0x1p-1074");
        check(1.999, Some(0), "0x1p+01");
        check(1.5, Some(3), "0x1.800p+00");
        check(1.0, Some(20), "0x1.00000000000000000000p+00");
        check(f64::NEG_INFINITY, None, "-Inf");
        assert_eq!((binary(1.0).as_str(), binary(0.0).as_str()), ("4503599627370496p-52", "0p-1074"));
    }

    #[test]
    fn precise() {
        let check =
            |value: f64, precision: usize, expected: &str| assert_eq!(general(value, Some(precision), false), expected);
        check(1.234_567, 4, "1.235");
        check(123_456_700.0, 4, "1.235e+08");
        check(0.0, 4, "0");
        check(120.0, 4, "120");
        check(999.96, 4, "1000");
        check(12345.0, 4, "1.234e+04");
        check(1234.0, 4, "1234");
        check(10.0, 2, "10");
        check(100.0, 2, "1e+02");
        check(0.123, 2, "0.12");
        check(1.26, 2, "1.3");
        assert_eq!(with_precision(3720.01, 'f', Some(2)), "3720.01");
        assert_eq!(with_precision(1500.0, 'e', None), "1.500000e+03");
    }

    #[test]
    fn zeros_that_stay() {
        let check = |value: f64, precision: Option<usize>, expected: &str| {
            assert_eq!(general(value, precision, true), expected, "{value} {precision:?}");
        };
        check(1.0, None, "1.00000");
        check(100.0, None, "100.000");
        check(1e6, None, "1.00000e+06");
        check(0.5, Some(3), "0.500");
        check(100.0, Some(3), "100.");
        check(1000.0, Some(3), "1.00e+03");
        check(f64::NAN, Some(3), "NaN");
    }

    #[test]
    fn signs_exponents_and_words() {
        let check = |value: f64, verb: char, precision: Option<usize>, expected: &str| {
            assert_eq!(with_precision(value, verb, precision), expected, "{value} {verb}");
        };
        check(-0.0, 'f', Some(1), "-0.0");
        check(1e21, 'f', Some(0), "1000000000000000000000");
        check(1234.5, 'e', Some(2), "1.23e+03");
        check(1e-7, 'e', Some(0), "1e-07");
        check(1e300, 'E', Some(1), "1.0E+300");
        check(f64::INFINITY, 'f', Some(2), "+Inf");
        check(0.5, 'F', None, "0.500000");
        assert_eq!(
            [-0.0, 1e-4, 9.9e-5, 1e20, -1e-300].map(float_text),
            ["-0", "0.0001", "9.9e-05", "1e+20", "-1e-300"]
        );
        assert_eq!((binary(-1.5), binary(5e-324)), ("-6755399441055744p-52".to_owned(), "1p-1074".to_owned()));
        // From the middle to the even one, and over to the next power.
        assert_eq!(
            (hexadecimal(1.5, Some(0)), hexadecimal(1.03125, Some(1))),
            ("0x1p+01".to_owned(), "0x1.0p+00".to_owned())
        );
        assert_eq!(
            (hexadecimal(1.09375, Some(1)), hexadecimal(-0.0, None)),
            ("0x1.2p+00".to_owned(), "-0x0p+00".to_owned())
        );
    }
}
