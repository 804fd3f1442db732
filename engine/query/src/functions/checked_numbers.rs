//! Range checks for numbers that PostgreSQL's functions limit differently from DataFusion's: `letter_code(n)` checks
//! the argument of `chr`, and `items_left(length, count)` is the number of items that `trim_array` leaves. NULL if an
//! argument is NULL.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, Int64Array};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{exec_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum CheckedNumber {
    LetterCode,
    ItemsLeft,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumberCheck {
    number: CheckedNumber,
    signature: Signature,
}

pub(super) fn functions() -> [Arc<ScalarUDF>; 2] {
    [(CheckedNumber::LetterCode, 1), (CheckedNumber::ItemsLeft, 2)].map(|(number, count)| {
        let signature = Signature::exact(vec![DataType::Int64; count], Volatility::Immutable);
        Arc::new(ScalarUDF::from(NumberCheck { number, signature }))
    })
}

impl ScalarUDFImpl for NumberCheck {
    fn name(&self) -> &'static str {
        match self.number {
            CheckedNumber::LetterCode => "letter_code",
            CheckedNumber::ItemsLeft => "items_left",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns =
            args.args.iter().map(|value| value.to_array(args.number_rows)).collect::<Result<Vec<ArrayRef>>>()?;
        let checked: Int64Array = match columns.as_slice() {
            [codes] => codes
                .as_primitive::<Int64Type>()
                .iter()
                .map(|code| code.map(letter_code).transpose())
                .collect::<Result<_>>()?,
            [lengths, counts] => {
                let pairs = lengths.as_primitive::<Int64Type>().iter().zip(counts.as_primitive::<Int64Type>());
                let left = |(length, count): (Option<i64>, Option<i64>)| {
                    length.zip(count).map(|(length, count)| items_left(length, count)).transpose()
                };
                pairs.map(left).collect::<Result<_>>()?
            }
            _ => return internal_err!("`{}` takes numbers", self.name()),
        };
        Ok(ColumnarValue::Array(Arc::new(checked)))
    }
}

/// The code of a letter that a text may hold.
fn letter_code(code: i64) -> Result<i64> {
    match u32::try_from(code) {
        Ok(0) => exec_err!("null character not permitted"),
        Err(_) if code < 0 => exec_err!("character number must be positive"),
        Ok(known) if char::from_u32(known).is_some() => Ok(code),
        Ok(0xD800..0xE000) => exec_err!("requested character not valid for encoding: {code}"),
        _ => exec_err!("requested character too large for encoding: {code}"),
    }
}

fn items_left(length: i64, count: i64) -> Result<i64> {
    if (0..=length).contains(&count) {
        Ok(length - count)
    } else {
        exec_err!("number of elements to trim must be between 0 and {length}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{call, column, shown};
    use super::*;

    #[test]
    fn numbers_have_bounds() {
        let [code, left] = functions();
        let some = |text: &str| Some(text.to_owned());
        let given = column(Int64Array::from(vec![Some(65), None, Some(0x10_FFFF)]));
        assert_eq!(shown(&call(&code, &[given], 3).unwrap()), [some("65"), None, some("1114111")]);
        for (wrong, said) in [
            (0, "null character not permitted"),
            (-1, "character number must be positive"),
            (0xD800, "not valid for encoding: 55296"),
            (0x11_0000, "too large for encoding: 1114112"),
            (i64::MAX, "too large for encoding"),
        ] {
            let error = call(&code, &[column(Int64Array::from(vec![wrong]))], 1).unwrap_err().to_string();
            assert!(error.contains(said), "{wrong}: {error}");
        }
        let of = |length: Option<i64>, count: Option<i64>| {
            call(&left, &[column(Int64Array::from(vec![length])), column(Int64Array::from(vec![count]))], 1)
        };
        assert_eq!(shown(&of(Some(3), Some(3)).unwrap()), [some("0")]);
        assert_eq!(shown(&of(Some(3), Some(0)).unwrap()), [some("3")]);
        assert_eq!(shown(&of(None, Some(4)).unwrap()), [None]);
        for wrong in [4, -1] {
            let error = of(Some(3), Some(wrong)).unwrap_err().to_string();
            assert!(error.contains("must be between 0 and 3"), "{wrong}: {error}");
        }
    }
}
