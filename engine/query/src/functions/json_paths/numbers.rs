//! Numbers of JSON documents with all their digits, as PostgreSQL's `numeric` has them, up to 76.

use std::cmp::Ordering;
use std::fmt;

use arrow::datatypes::i256;

use super::path::Arithmetic;

/// Most digits behind the point, and highest exponent, of what is read.
const SCALE_MAX: u32 = 76;
/// Digits that a quotient has at least, and how many a step of its length is, as in PostgreSQL's `select_div_scale`.
const QUOTIENT_DIGITS: i64 = 16;
const STEP: u32 = 4;

/// A number: digits, so many of them behind the point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number {
    digits: i256,
    scale: u32,
}

impl Number {
    /// Reads what JSON writes; `None` if it is no number, or too long.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let exponent: i32 = exponent.parse().ok()?;
        let (sign, number) = number.strip_prefix('-').map_or(("", number), |number| ("-", number));
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let is_number = !(whole.is_empty() && part.is_empty());
        if !is_number || !whole.bytes().chain(part.bytes()).all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let digits = i256::from_string(&format!("{sign}{whole}{part}"))?;
        let scale = i32::try_from(part.len()).ok()?.checked_sub(exponent)?;
        match u32::try_from(scale) {
            Ok(scale) => (scale <= SCALE_MAX).then_some(Self { digits, scale }),
            Err(_) => Some(Self { digits: digits.checked_mul(power(scale.unsigned_abs())?)?, scale: 0 }),
        }
    }

    /// The digits with so many behind the point as the longer one has.
    fn aligned(self, other: Self) -> Option<(i256, i256, u32)> {
        let scale = self.scale.max(other.scale);
        let shifted = |number: Self| number.digits.checked_mul(power(scale - number.scale)?);
        Some((shifted(self)?, shifted(other)?, scale))
    }

    /// What is calculated of two numbers; `None` if it is too long. The second one is no zero of a division.
    pub(super) fn calculated(self, operator: Arithmetic, other: Self) -> Option<Self> {
        let (digits, scale) = match operator {
            Arithmetic::Times => (self.digits.checked_mul(other.digits)?, self.scale + other.scale),
            Arithmetic::Divided => return self.divided(other),
            Arithmetic::Plus | Arithmetic::Minus | Arithmetic::Modulo => {
                let (left, right, scale) = self.aligned(other)?;
                let digits = match operator {
                    Arithmetic::Plus => left.checked_add(right)?,
                    Arithmetic::Minus => left.checked_sub(right)?,
                    _ => left.checked_rem(right)?,
                };
                (digits, scale)
            }
        };
        (scale <= SCALE_MAX).then_some(Self { digits, scale })
    }

    fn divided(self, other: Self) -> Option<Self> {
        let ((weight, first), (other_weight, other_first)) = (self.weight()?, other.weight()?);
        let steps = weight - other_weight - i64::from(first <= other_first);
        let scale = (QUOTIENT_DIGITS - steps * i64::from(STEP)).max(self.scale.into()).max(other.scale.into());
        let scale = u32::try_from(scale).ok()?;
        let left = self.digits.checked_mul(power((scale + other.scale).checked_sub(self.scale)?)?)?;
        let (quotient, rest) = (left.checked_div(other.digits)?, left.checked_rem(other.digits)?);
        // Halves are rounded away from zero.
        let is_up = rest.checked_abs()?.checked_mul(i256::from_i128(2))? >= other.digits.checked_abs()?;
        let away = if left.is_negative() == other.digits.is_negative() { i256::ONE } else { i256::MINUS_ONE };
        let digits = if is_up { quotient.checked_add(away)? } else { quotient };
        Some(Self { digits, scale })
    }

    /// The place of the first of its digits that are not zero, in steps of four of them, and these four.
    fn weight(self) -> Option<(i64, i256)> {
        let size = self.digits.checked_abs()?;
        if size == i256::ZERO {
            return Some((0, i256::ZERO));
        }
        let top = i64::try_from(size.to_string().len()).ok()? - 1 - i64::from(self.scale);
        let weight = top.div_euclid(STEP.into());
        let shift = i64::from(self.scale) + weight * i64::from(STEP);
        let factor = power(u32::try_from(shift.unsigned_abs()).ok()?)?;
        Some((weight, if shift < 0 { size.checked_mul(factor)? } else { size.checked_div(factor)? }))
    }

    pub(super) fn is_zero(self) -> bool {
        self.digits == i256::ZERO
    }

    pub(super) fn turned(self) -> Option<Self> {
        Some(Self { digits: self.digits.checked_neg()?, ..self })
    }

    /// The whole number at or below it.
    pub(super) fn floor(self) -> Option<Self> {
        let whole = self.whole()?;
        let is_below = self.digits.is_negative() && whole.checked_mul(power(self.scale)?)? != self.digits;
        let digits = if is_below { whole.checked_sub(i256::ONE)? } else { whole };
        Some(Self { digits, scale: 0 })
    }

    /// The whole number at or above it.
    pub(super) fn ceiling(self) -> Option<Self> {
        self.turned()?.floor()?.turned()
    }

    /// It without what is behind the point.
    fn whole(self) -> Option<i256> {
        self.digits.checked_div(power(self.scale)?)
    }

    /// The place that it means, if 32 bits hold it.
    pub(super) fn place(self) -> Option<i64> {
        i32::try_from(self.whole()?.to_i128()?).ok().map(i64::from)
    }

    /// How it compares to another; `None` if they are too long.
    pub(super) fn order(self, other: Self) -> Option<Ordering> {
        let (left, right, _) = self.aligned(other)?;
        Some(left.cmp(&right))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = self.digits.to_string();
        let (sign, digits) = written.strip_prefix('-').map_or(("", written.as_str()), |digits| ("-", digits));
        let scale = self.scale as usize;
        if scale == 0 {
            return write!(out, "{sign}{digits}");
        }
        let padded = format!("{digits:0>width$}", width = scale + 1);
        let (whole, part) = padded.split_at(padded.len() - scale);
        write!(out, "{sign}{whole}.{part}")
    }
}

fn power(exponent: u32) -> Option<i256> {
    i256::from_i128(10).checked_pow(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Number {
        Number::read(text).expect(text)
    }

    #[test]
    fn numbers_keep_their_digits() {
        for (text, shown) in [
            ("0", "0"),
            ("-0", "0"),
            ("1.50", "1.50"),
            ("-0.05", "-0.05"),
            (".5", "0.5"),
            ("1e2", "100"),
            ("1.50e1", "15.0"),
            ("1e-3", "0.001"),
            ("-12.5E+1", "-125"),
            ("123456789012345678901234567890123456789012345", "123456789012345678901234567890123456789012345"),
        ] {
            assert_eq!(of(text).to_string(), shown, "{text}");
        }
        for text in ["", "-", ".", "x", "1x", "1e", "1e999", "--1", "1.2.3", "1e-100"] {
            assert_eq!(Number::read(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_calculated() {
        for (left, operator, right, shown) in [
            ("1", Arithmetic::Plus, "0.50", "1.50"),
            ("1", Arithmetic::Minus, "2.5", "-1.5"),
            ("1.5", Arithmetic::Times, "-2.50", "-3.750"),
            ("7", Arithmetic::Modulo, "-3", "1"),
            ("-7.5", Arithmetic::Modulo, "2", "-1.5"),
            ("1", Arithmetic::Divided, "3", "0.33333333333333333333"),
            ("2", Arithmetic::Divided, "-3", "-0.66666666666666666667"),
            ("10", Arithmetic::Divided, "4", "2.5000000000000000"),
            ("100000", Arithmetic::Divided, "3", "33333.333333333333"),
            ("0", Arithmetic::Divided, "5", "0.00000000000000000000"),
        ] {
            let found = of(left).calculated(operator, of(right)).unwrap();
            assert_eq!(found.to_string(), shown, "{left} {operator:?} {right}");
        }
        let long = of(&"9".repeat(60));
        assert_eq!(long.calculated(Arithmetic::Times, long), None);
    }

    #[test]
    fn numbers_have_whole_neighbours() {
        for (text, floor, ceiling) in
            [("1.5", "1", "2"), ("-1.5", "-2", "-1"), ("2.00", "2", "2"), ("-0.5", "-1", "0"), ("7", "7", "7")]
        {
            let number = of(text);
            assert_eq!(number.floor().unwrap().to_string(), floor, "{text}");
            assert_eq!(number.ceiling().unwrap().to_string(), ceiling, "{text}");
        }
        assert_eq!((of("1.9").place(), of("-1.9").place(), of("3000000000").place()), (Some(1), Some(-1), None));
        assert_eq!(of("1.50").order(of("1.5")), Some(Ordering::Equal));
        assert_eq!(of("-2").order(of("0.1")), Some(Ordering::Less));
        assert!(of("0.00").is_zero() && !of("0.01").is_zero());
    }
}
