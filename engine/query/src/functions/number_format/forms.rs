//! Numbers in other forms than digits in their places: Roman ones (`RN`), ordinals (`TH`), with an exponent (`EEEE`), and
//! multiplied by powers of ten (`V`).

use super::{DIGITS_MAX, rounded};

/// The width of the longest Roman number, which is that of all without `FM`.
pub(super) const ROMAN_WIDTH: usize = 15;

const ROMAN: [(i64, &str); 13] = [
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
];

/// A Roman number of a text that is a whole one; what has none is `#`.
pub(super) fn roman(number: &str) -> String {
    let Some(mut left) = number.parse::<i64>().ok().filter(|number| (1..=3999).contains(number)) else {
        return "#".repeat(ROMAN_WIDTH);
    };
    let mut out = String::new();
    for (value, letters) in ROMAN {
        while left >= value {
            out.push_str(letters);
            left -= value;
        }
    }
    out
}

/// What makes digits an ordinal.
pub(super) fn ordinal(digits: &str) -> &'static str {
    let mut from_last = digits.bytes().rev();
    let (last, before) = (from_last.next(), from_last.next());
    match last.filter(|_| before != Some(b'1')) {
        Some(b'1') => "st",
        Some(b'2') => "nd",
        Some(b'3') => "rd",
        _ => "th",
    }
}

/// A number, as it is printed, times a power of ten.
pub(super) fn shifted(number: &str, places: usize) -> String {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let (moved, rest) = fraction.split_at_checked(places).unwrap_or((fraction, ""));
    let zeros = "0".repeat(places - moved.len());
    let point = if rest.is_empty() { "" } else { "." };
    let digits = format!("{whole}{moved}{zeros}{point}{rest}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |digits| ("-", digits));
    let said = digits.trim_start_matches('0');
    let zero = if said.is_empty() || said.starts_with('.') { "0" } else { "" };
    format!("{sign}{zero}{said}")
}

/// A double with an exponent, and so many digits behind its point.
pub(super) fn exponent_of(number: f64, behind: usize) -> String {
    // Behind these there are zeros alone, and the precision of `format!` has 16 bits.
    let exact = behind.min(DIGITS_MAX);
    let text = format!("{number:.exact$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let zeros = "0".repeat(behind - exact);
    with_exponent(&format!("{digits}{zeros}"), exponent.parse().unwrap_or_default())
}

/// The same of a number as it is printed; a half goes away from zero.
pub(super) fn exponent_of_digits(number: &str, behind: usize) -> String {
    let (sign, number) = number.strip_prefix('-').map_or(("", number), |number| ("-", number));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let Some(first) = digits.bytes().position(|digit| digit != b'0') else {
        return with_exponent(&rounded("0", behind), 0);
    };
    let (one, rest) = digits[first..].split_at(1);
    let (mut said, mut exponent) = (rounded(&format!("{one}.{rest}"), behind), whole.len() as i64 - 1 - first as i64);
    if said.starts_with("10") {
        (said, exponent) = (rounded("1", behind), exponent + 1);
    }
    with_exponent(&format!("{sign}{said}"), exponent)
}

fn with_exponent(digits: &str, exponent: i64) -> String {
    let (place, sign) = (if digits.starts_with('-') { "" } else { " " }, if exponent < 0 { '-' } else { '+' });
    format!("{place}{digits}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roman_numbers_end() {
        for (number, expected) in [("485", "CDLXXXV"), ("4", "IV"), ("3888", "MMMDCCCLXXXVIII"), ("1999", "MCMXCIX")] {
            assert_eq!(roman(number), expected, "{number}");
        }
        for number in ["0", "-1", "4000", "NaN"] {
            assert_eq!(roman(number), "###############", "{number}");
        }
    }

    #[test]
    fn ordinals_go_by_two_digits() {
        for (digits, expected) in [("1", "st"), ("11", "th"), ("112", "th"), ("22", "nd"), ("103", "rd"), ("0", "th")] {
            assert_eq!(ordinal(digits), expected, "{digits}");
        }
    }

    #[test]
    fn points_move() {
        for (number, places, expected) in [
            ("12", 3, "12000"),
            ("12.45", 1, "124.5"),
            ("-12.45", 2, "-1245"),
            ("0.005", 2, "0.5"),
            ("0", 2, "0"),
            ("7", 0, "7"),
        ] {
            assert_eq!(shifted(number, places), expected, "{number}");
        }
    }

    #[test]
    fn exponents_have_two_digits() {
        for (number, behind, expected) in [
            ("485", 2, " 4.85e+02"),
            ("-485", 2, "-4.85e+02"),
            ("0.0004859", 2, " 4.86e-04"),
            ("9.996", 2, " 1.00e+01"),
            ("0", 2, " 0.00e+00"),
            ("1234", 0, " 1e+03"),
            ("1.25", 1, " 1.3e+00"),
        ] {
            assert_eq!(exponent_of_digits(number, behind), expected, "{number}");
        }
        assert_eq!(exponent_of(485.0, 2), " 4.85e+02");
        assert_eq!(exponent_of(1e100, 1), " 1.0e+100");
        assert_eq!(exponent_of(-1e-9, 0), "-1e-09");
        assert_eq!(exponent_of(0.0, 2), " 0.00e+00");
        assert_eq!(exponent_of(0.5, 70_000), format!(" 5.{}e-01", "0".repeat(70_000)));
    }
}
