//! Numbers in texts without exponent (`1.5e3` as `1500`): arrow reads decimals from plain digits alone. The rule
//! [`crate::relational::text_casts`] puts the function into casts of texts to decimals; other texts stay as they are.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// The name of the function.
pub(crate) const NAME: &str = "plain_digits";
/// The largest exponent that is written out: no decimal has more than 76 digits.
const EXPONENT_MAX: u32 = 80;

#[derive(Debug, PartialEq, Eq, Hash)]
struct PlainDigits {
    signature: Signature,
}

/// Gives the function, of one text.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(PlainDigits { signature: Signature::any(1, Volatility::Immutable) })
}

impl ScalarUDFImpl for PlainDigits {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else { return internal_err!("one text is written out") };
        let texts = cast(&value.to_array(args.number_rows)?, &DataType::Utf8View)?;
        let found = texts.as_string_view();
        if !found.iter().flatten().any(|text| text.contains(['e', 'E'])) {
            return Ok(ColumnarValue::Array(texts));
        }
        let mut out = StringViewBuilder::with_capacity(found.len());
        for text in found {
            out.append_option(text.map(|text| without_exponent(text).map_or(Cow::Borrowed(text), Cow::Owned)));
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

/// Gives a number with its exponent written out; `None`: it has none, or one beyond 80, or is no number.
pub fn without_exponent(number: &str) -> Option<String> {
    let (digits, exponent) = number.trim().split_once(['e', 'E'])?;
    let exponent: i32 = exponent.parse().ok()?;
    if exponent.unsigned_abs() > EXPONENT_MAX {
        return None;
    }
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits.strip_prefix('+').unwrap_or(digits)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = [whole, fraction].concat();
    if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let point = i64::try_from(whole.len()).ok()? + i64::from(exponent);
    let zeros = |count: usize| "0".repeat(count);
    Some(match usize::try_from(point) {
        Err(_) | Ok(0) => format!("{sign}0.{}{all}", zeros(point.unsigned_abs() as usize)),
        Ok(point) if point >= all.len() => format!("{sign}{all}{}", zeros(point - all.len())),
        Ok(point) => format!("{sign}{}.{}", &all[..point], &all[point..]),
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::super::testing::{call, column, shown};
    use super::*;

    #[test]
    fn exponents_are_written_out() {
        for (number, expected) in [
            ("1e5", Some("100000")),
            ("1.5E-3", Some("0.0015")),
            (" -2.50e+2 ", Some("-250")),
            ("+12.5e1", Some("125")),
            ("12.345e1", Some("123.45")),
            (".5e0", Some("0.5")),
            ("5.e0", Some("5")),
            ("1e-1", Some("0.1")),
            ("12e-1", Some("1.2")),
            ("1e81", None),
            ("1e-2147483648", None),
            ("1e", None),
            ("e5", None),
            ("--1e5", None),
            ("1e5e5", None),
            ("15", None),
            ("apple", None),
        ] {
            assert_eq!(without_exponent(number).as_deref(), expected, "{number}");
        }
    }

    #[test]
    fn other_texts_stay() {
        let texts = column(StringArray::from(vec![Some("1e2"), None, Some("apple"), Some("1.50")]));
        let found = shown(&call(&function(), &[texts], 4).unwrap());
        assert_eq!(found, [Some("100"), None, Some("apple"), Some("1.50")].map(|text| text.map(str::to_owned)));
        let plain = column(StringArray::from(vec![Some("7"), None]));
        let found = shown(&call(&function(), &[plain], 2).unwrap());
        assert_eq!(found, [Some("7".to_owned()), None]);
    }
}
