//! Numbers as Go's `fmt` writes them.

/// Writes a number as `%v` does: the fewest digits that tell it, with an exponent below 1e-4 and from 1e6 on.
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

/// Gives digits and exponent of `d.ddd × 10^exponent`, shortest or with `precision` digits in all.
fn digits(value: f64, precision: Option<usize>) -> (bool, String, i32) {
    let text = match precision {
        Some(precision) => format!("{:.*e}", precision.max(1) - 1, value.abs()),
        None => format!("{:e}", value.abs()),
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent = exponent.parse().unwrap_or(0);
    (value.is_sign_negative(), mantissa.replace('.', ""), exponent)
}

/// Writes an exponent with a sign and at least two digits.
fn exponent_text(letter: char, exponent: i32) -> String {
    format!("{letter}{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// Writes a number as `%g` (`None`: the shortest form) or `%.<precision>g` does. `keep`: zeros at the end stay (`%#g`).
pub fn general(value: f64, precision: Option<usize>, keep: bool) -> String {
    if let Some(word) = special(value) {
        return word.to_owned();
    }
    let precision = precision.map(|p| p.clamp(1, PRECISION_MAX));
    let (negative, mut digits, exponent) = digits(value, precision);
    if !keep {
        let short = digits.trim_end_matches('0').len().max(1);
        digits.truncate(short);
    }
    // Where the shortest form is wanted, 6 digits decide.
    let bound = match precision {
        Some(precision) if precision > digits.len() && digits.len() as i32 > exponent => digits.len() as i32,
        Some(precision) => precision as i32,
        None => 6,
    };
    let mut out = if negative { "-".to_owned() } else { String::new() };
    if exponent < -4 || exponent >= bound {
        out.push_str(&digits[..1]);
        if digits.len() > 1 {
            out.push('.');
            out.push_str(&digits[1..]);
        }
        out += &exponent_text('e', exponent);
    } else if exponent < 0 {
        out += &format!("0.{}{digits}", "0".repeat((-exponent - 1) as usize));
    } else {
        let whole = exponent as usize + 1;
        if digits.len() <= whole {
            out += &format!("{digits}{}", "0".repeat(whole - digits.len()));
        } else {
            out += &format!("{}.{}", &digits[..whole], &digits[whole..]);
        }
    }
    out
}

/// Most digits that are written.
const PRECISION_MAX: usize = 1000;

/// Writes a number as `%.<precision>f` or `%.<precision>e` does.
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
        check(f64::NAN, "NaN");
        check(f64::NEG_INFINITY, "-Inf");
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
        assert_eq!(with_precision(3720.01, 'f', Some(2)), "3720.01");
        assert_eq!(with_precision(1500.0, 'e', None), "1.500000e+03");
    }
}
