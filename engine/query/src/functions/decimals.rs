//! Division of decimals with PostgreSQL's precision: at least 16 decimals if there is room, the last one rounded.
//! Arrow truncates after 4 more decimals than the dividend has.
//!
//! And texts of `numeric` without digits, which holds ten decimals here and the needed ones in PostgreSQL.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, Decimal128Array};
use arrow::datatypes::{DataType, Decimal128Type, i256};
use arrow::error::ArrowError;
use datafusion::common::{exec_datafusion_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast,
};

use super::operator_names::operation;

/// The most digits of a decimal.
const DIGITS: i16 = 38;
/// The decimals of a quotient, if there is room.
const FRACTION: i16 = 16;
/// The decimals of `numeric` without digits.
const NUMERIC_FRACTION: i16 = 10;
/// The most digits of a whole number that is no decimal.
const WHOLE: i16 = 20;

/// Whether a type is the one that `numeric` without digits becomes.
pub fn is_open_numeric(kind: &DataType) -> bool {
    *kind == DataType::Decimal128(38, 10)
}

/// The digits of a value of that type without the zeros at the end of its decimals.
pub fn needed_digits(written: &str) -> &str {
    if written.contains('.') { written.trim_end_matches('0').trim_end_matches('.') } else { written }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DecimalDivisionFunction {
    signature: Signature,
}

/// Precision and scale of a type that is divided here; `None` for other types.
fn digits(kind: &DataType) -> Option<(u8, i8)> {
    Some(match kind {
        DataType::Decimal128(precision, scale) if *scale >= 0 => (*precision, *scale),
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 | DataType::UInt64 => (20, 0),
        _ => return None,
    })
}

/// The scale of a quotient.
fn scale_of(left: (u8, i8), right: (u8, i8)) -> i8 {
    let whole = i16::from(left.0) - i16::from(left.1) + i16::from(right.1);
    let wanted = FRACTION.max(i16::from(left.1)).max(i16::from(right.1));
    // At least as many as Arrow gives; a quotient without room for them is an error there as well. A whole number has as many
    // as if it were cast to `numeric`.
    let is_whole = left.1 == 0 && i16::from(left.0) <= WHOLE;
    let own = if is_whole { NUMERIC_FRACTION } else { i16::from(left.1) };
    wanted.min(DIGITS - whole).max((own + 4).min(DIGITS)) as i8
}

/// The quotient of two numbers, at least one of them a decimal; `None` for other types.
pub(crate) fn quotient(left: &Expr, left_kind: &DataType, right: &Expr, right_kind: &DataType) -> Option<Expr> {
    let is_decimal = |kind: &DataType| matches!(kind, DataType::Decimal128(..));
    if !is_decimal(left_kind) && !is_decimal(right_kind) {
        return None;
    }
    let as_decimal = |value: &Expr, kind: &DataType| -> Option<Expr> {
        let (precision, scale) = digits(kind)?;
        let value = value.clone();
        Some(if is_decimal(kind) { value } else { cast(value, DataType::Decimal128(precision, scale)) })
    };
    let sides = vec![as_decimal(left, left_kind)?, as_decimal(right, right_kind)?];
    Some(function().call(sides))
}

/// The function `decimal_quotient`, which replaces `/` of decimals.
pub(super) fn function() -> ScalarUDF {
    ScalarUDF::from(DecimalDivisionFunction { signature: Signature::any(2, Volatility::Immutable) })
}

impl ScalarUDFImpl for DecimalDivisionFunction {
    fn name(&self) -> &'static str {
        "decimal_quotient"
    }

    /// Columns keep the names that they had with the operator.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let [left, right] = args else { return internal_err!("a quotient has two sides") };
        Ok(operation(left, "/", right))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [left, right] = types else { return internal_err!("a quotient has two sides") };
        let (Some(left), Some(right)) = (digits(left), digits(right)) else {
            return internal_err!("a quotient is one of decimals");
        };
        Ok(DataType::Decimal128(DIGITS as u8, scale_of(left, right)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else { return internal_err!("a quotient has two sides") };
        let (left, right) = (left.to_array(args.number_rows)?, right.to_array(args.number_rows)?);
        let (Some(of_left), Some(of_right)) = (digits(left.data_type()), digits(right.data_type())) else {
            return internal_err!("a quotient is one of decimals");
        };
        let (Some(left), Some(right)) =
            (left.as_primitive_opt::<Decimal128Type>(), right.as_primitive_opt::<Decimal128Type>())
        else {
            return internal_err!("a quotient is one of decimals");
        };
        let scale = scale_of(of_left, of_right);
        let shift = i16::from(scale) + i16::from(of_right.1) - i16::from(of_left.1);
        let factor = i256::from_i128(10).checked_pow(shift.max(0) as u32);
        let mut out = Decimal128Array::builder(left.len());
        for (left, right) in left.iter().zip(right.iter()) {
            let (Some(left), Some(right)) = (left, right) else {
                out.append_null();
                continue;
            };
            if right == 0 {
                return Err(ArrowError::DivideByZero.into());
            }
            let value = factor.and_then(|factor| rounded(i256::from_i128(left).checked_mul(factor)?, right));
            out.append_value(value.ok_or_else(|| exec_datafusion_err!("a quotient has more than {DIGITS} digits"))?);
        }
        let out = out.finish().with_precision_and_scale(DIGITS as u8, scale)?;
        out.validate_decimal_precision(DIGITS as u8)?;
        Ok(ColumnarValue::Array(Arc::new(out)))
    }
}

/// A quotient rounded half away from zero; `None` if it does not fit into a decimal.
fn rounded(left: i256, right: i128) -> Option<i128> {
    let (left_size, right_size) = (left.checked_abs()?, i256::from_i128(right).checked_abs()?);
    let whole = left_size.checked_div(right_size)?;
    let rest = left_size.checked_rem(right_size)?;
    let is_up = rest.checked_add(rest)? >= right_size;
    let size = if is_up { whole.checked_add(i256::from_i128(1))? } else { whole };
    let size = size.to_i128()?;
    if left.is_negative() == (right < 0) { Some(size) } else { size.checked_neg() }
}

#[cfg(test)]
mod tests {
    use arrow::array::ArrayRef;
    use datafusion::logical_expr::lit;

    use super::super::testing::{call, column, draws, shown};
    use super::*;

    fn decimals(values: Vec<Option<i128>>, precision: u8, scale: i8) -> ColumnarValue {
        column(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap())
    }

    fn divided(left: ColumnarValue, right: ColumnarValue, rows: usize) -> Result<ArrayRef> {
        call(&function(), &[left, right], rows)
    }

    #[test]
    fn digits_are_those_that_are_needed() {
        for (written, expected) in [
            ("1.5000000000", "1.5"),
            ("-20.0000000000", "-20"),
            ("0.0000000000", "0"),
            ("0.0000000001", "0.0000000001"),
            ("100", "100"),
        ] {
            assert_eq!(needed_digits(written), expected, "{written}");
        }
        assert!(is_open_numeric(&DataType::Decimal128(38, 10)) && !is_open_numeric(&DataType::Decimal128(10, 2)));
    }

    #[test]
    fn quotients_have_room_for_their_digits() {
        assert_eq!(scale_of((10, 2), (20, 0)), 16);
        assert_eq!(scale_of((10, 2), (10, 2)), 16);
        assert_eq!(scale_of((20, 18), (5, 0)), 18 + 4);
        assert_eq!(scale_of((38, 2), (20, 0)), 6);
        assert_eq!(scale_of((38, 38), (38, 38)), 38);
        assert_eq!(scale_of((20, 0), (38, 10)), 14, "as of `numeric`");
        assert_eq!(scale_of((38, 0), (38, 10)), 4);
    }

    #[test]
    fn halves_go_away_from_zero() {
        let check = |left: i128, right: i128, expected: i128| {
            assert_eq!(rounded(i256::from_i128(left), right), Some(expected), "{left} / {right}");
        };
        check(10, 3, 3);
        check(11, 2, 6);
        check(-11, 2, -6);
        check(11, -2, -6);
        check(-20, -3, 7);
        check(0, -5, 0);
        assert_eq!(rounded(i256::MAX, 1), None);
    }

    #[test]
    fn only_decimals_are_divided() {
        let numeric = DataType::Decimal128(10, 2);
        let of = |left: &DataType, right: &DataType| quotient(&lit(1), left, &lit(2), right).is_some();
        assert!(of(&numeric, &DataType::Int64) && of(&DataType::Int32, &numeric) && of(&numeric, &numeric));
        assert!(!of(&DataType::Int64, &DataType::Int64) && !of(&numeric, &DataType::Float64));
    }

    #[test]
    fn quotients_are_written_with_all_their_digits() {
        let left = decimals(vec![Some(100), Some(200), Some(-100), None, Some(1), Some(0)], 10, 2);
        let right = decimals(vec![Some(3), Some(3), Some(6), Some(1), None, Some(-7)], 20, 0);
        let some = |text: &str| Some(text.to_owned());
        let expected = [
            some("0.3333333333333333"),
            some("0.6666666666666667"),
            some("-0.1666666666666667"),
            None,
            None,
            some("0.0000000000000000"),
        ];
        assert_eq!(shown(&divided(left, right, 6).unwrap()), expected);
        let (one, none) = (|| decimals(vec![Some(1)], 10, 2), decimals(vec![Some(0)], 10, 2));
        let refused = divided(one(), none, 1).unwrap_err().to_string();
        assert!(refused.to_lowercase().contains("divide by zero"), "{refused}");
        let most = || decimals(vec![Some(10_i128.pow(37))], 38, 0);
        for (left, right) in [
            // Beyond 256 bits, beyond 128 bits, and beyond 38 digits.
            (most(), decimals(vec![Some(1)], 38, 38)),
            (most(), decimals(vec![Some(1)], 1, 0)),
            (decimals(vec![Some(10_i128.pow(34))], 38, 0), decimals(vec![Some(1)], 1, 0)),
        ] {
            assert!(divided(left, right, 1).is_err());
        }
        let last = divided(decimals(vec![Some(10_i128.pow(34) - 1)], 38, 0), decimals(vec![Some(1)], 1, 0), 1).unwrap();
        assert_eq!(shown(&last), [Some(format!("{}.0000", "9".repeat(34)))]);
    }

    /// No other number with the same decimals is closer to the quotient.
    #[test]
    fn quotients_are_the_nearest() {
        let mut draw = draws(71);
        for _ in 0..2_000 {
            let mut number = |most: usize| draw(most) as i128 * if draw(2) == 0 { 1 } else { -1 };
            let (left, right) = (number(1_000_000), number(1_000));
            if right == 0 {
                continue;
            }
            let scaled = left * 10_i128.pow(16);
            let found = rounded(i256::from_i128(scaled), right).unwrap();
            assert!(2 * (found * right - scaled).abs() <= right.abs(), "{left} / {right}: {found}");
            // Negating both operands gives the same quotient, negating one its negative.
            assert_eq!(rounded(i256::from_i128(-scaled), -right), Some(found));
            assert_eq!(rounded(i256::from_i128(-scaled), right), Some(-found));
        }
    }

    #[test]
    fn columns_are_called_as_those_of_the_operator() {
        let (left, right) = (datafusion::logical_expr::col("a"), lit(2));
        let kind = DataType::Decimal128(10, 2);
        let quotient = quotient(&left, &kind, &right, &DataType::Int32).unwrap();
        assert_eq!(quotient.schema_name().to_string(), "a / Int32(2)");
        let types = |left: &DataType, right: &DataType| function().inner().return_type(&[left.clone(), right.clone()]);
        assert_eq!(types(&kind, &DataType::Decimal128(10, 0)).unwrap(), DataType::Decimal128(38, 16));
        assert!(types(&kind, &DataType::Float64).is_err() && types(&kind, &DataType::Decimal128(10, -2)).is_err());
    }
}
