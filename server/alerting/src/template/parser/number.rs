//! Numeric and character constants.

use super::super::ast::Number;
use super::super::humanize::hex_float;
use crate::text::unquote;

/// Parses a constant as Go does.
pub(super) fn number(text: &str) -> Option<Number> {
    if text.starts_with('\'') {
        let value = unquote(text)?;
        let mut chars = value.chars();
        let c = chars.next()?;
        return chars.next().is_none().then_some(Number::Int(c as i64));
    }
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || digits.ends_with('_') || digits.starts_with('_') || digits.contains("__") {
        return None;
    }
    let plain = digits.replace('_', "").to_ascii_lowercase();
    let radix = [("0x", 16), ("0o", 8), ("0b", 2)].into_iter().find(|(prefix, _)| plain.starts_with(prefix));
    let whole = match radix {
        Some((prefix, radix)) => i128::from_str_radix(&plain[prefix.len()..], radix).ok(),
        None if plain.len() > 1 && plain.starts_with('0') && plain.bytes().all(|b| b.is_ascii_digit()) => {
            i128::from_str_radix(&plain, 8).ok()
        }
        None => plain.parse::<i128>().ok(),
    };
    let signed = whole.map(|w| if negative { -w } else { w });
    if let Some(whole) = signed {
        return match (i64::try_from(whole), u64::try_from(whole)) {
            (Ok(int), _) => Some(Number::Int(int)),
            (_, Ok(uint)) => Some(Number::Uint(uint)),
            _ => None,
        };
    }
    if radix.is_some_and(|(_, radix)| radix == 16) {
        let value = hex_float(&plain[2..]).filter(|v| v.is_finite())?;
        return Some(Number::Float(if negative { -value } else { value }));
    }
    if radix.is_some() || !plain.contains(['.', 'e']) || !plain.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    let value: f64 = plain.parse().ok().filter(|v: &f64| v.is_finite())?;
    Some(Number::Float(if negative { -value } else { value }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants() {
        let check = |text: &str, expected: Option<Number>| assert_eq!(number(text), expected, "{text}");
        check("12", Some(Number::Int(12)));
        check("-0x10", Some(Number::Int(-16)));
        check("010", Some(Number::Int(8)));
        check("1e3", Some(Number::Float(1000.0)));
        check("18446744073709551615", Some(Number::Uint(u64::MAX)));
        check("'a'", Some(Number::Int(97)));
        check("''", None);
        check("08", None);
        check("1_000", Some(Number::Int(1000)));
        check(".", None);
        check("0x1p4", Some(Number::Float(16.0)));
        check("-0x1.8P1", Some(Number::Float(-3.0)));
        check("0x.8p-1", Some(Number::Float(0.25)));
        check("0x_1p4_0", Some(Number::Float(1_099_511_627_776.0)));
        check("0x1p-1074", Some(Number::Float(f64::from_bits(1))));
        check("-0x.8p-1073", Some(Number::Float(-f64::from_bits(1))));
        check("0x0p5000", Some(Number::Float(0.0)));
        for wrong in ["0x1p", "0xp1", "0x1.8", "0x+1p4", "0x1p99999"] {
            check(wrong, None);
        }
    }
}
