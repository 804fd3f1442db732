//! Complex constants (`1i`, `1+2i`) of Go's templates, and their formatting.

use super::ast::Number;
use crate::text::float_text;

/// Parses a constant that ends with its imaginary part; `None` if it is not a valid complex constant.
pub(super) fn complex(text: &str) -> Option<Number> {
    let text = text.strip_suffix('i')?;
    // A sign after `e` belongs to the exponent.
    let between = |(at, c): &(usize, char)| matches!(c, '+' | '-') && *at > 0 && !text[..*at].ends_with(['e', 'E']);
    let at = text.char_indices().find(between).map_or(0, |(at, _)| at);
    let part = |text: &str| {
        let is_decimal = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
        text.parse().ok().filter(|value: &f64| is_decimal && value.is_finite())
    };
    let real = if at == 0 { 0.0 } else { part(&text[..at])? };
    Some(Number::Complex(real, part(&text[at..])?))
}

/// Formats one as Go's `fmt.Print` does.
pub(super) fn complex_text(real: f64, imaginary: f64) -> String {
    let sign = if imaginary.is_sign_negative() { "" } else { "+" };
    format!("({}{sign}{}i)", float_text(real), float_text(imaginary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants() {
        let check = |text: &str, expected: Option<&str>| {
            let shown = complex(text).map(|number| match number {
                Number::Complex(real, imaginary) => complex_text(real, imaginary),
                other => format!("{other:?}"),
            });
            assert_eq!(shown.as_deref(), expected, "{text}");
        };
        check("1i", Some("(0+1i)"));
        check("1.5i", Some("(0+1.5i)"));
        check("1+2i", Some("(1+2i)"));
        check("-2.5e1i", Some("(0-25i)"));
        check("1e+2-3e-1i", Some("(100-0.3i)"));
        check("010i", Some("(0+10i)"));
        for other in ["1", "0x10i", "1+2", "1e999i", "'i'", "1+2+3i"] {
            check(other, None);
        }
    }
}
