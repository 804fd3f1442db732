//! `md5(text)`: the hash of a text in hexadecimal digits, as PostgreSQL writes it.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use md5::Digest as _;
use quiver_types::write_hex;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Md5 {
    signature: Signature,
}

/// Gives the function.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Md5 { signature: Signature::user_defined(Volatility::Immutable) }))
}

/// Puts the digits of a text's hash into `digits`.
fn digest(text: &str, digits: &mut String) {
    digits.clear();
    write_hex(&md5::Md5::digest(text.as_bytes()), digits);
}

impl ScalarUDFImpl for Md5 {
    fn name(&self) -> &'static str {
        "md5"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [kind] if kind.is_string() || kind.is_null() => Ok(vec![DataType::Utf8View]),
            _ => plan_err!("`md5` takes a text"),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts] = args.args.as_slice() else { return exec_err!("`md5` takes a text") };
        let texts = cast(&texts.to_array(args.number_rows)?, &DataType::Utf8View)?;
        let mut out = StringViewBuilder::with_capacity(texts.len());
        let mut digits = String::with_capacity(32);
        for text in texts.as_string_view() {
            match text {
                Some(text) => {
                    digest(text, &mut digits);
                    out.append_value(&digits);
                }
                None => out.append_null(),
            }
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_postgresql() {
        let mut digits = String::new();
        for (text, expected) in [("", "d41d8cd98f00b204e9800998ecf8427e"), ("abc", "900150983cd24fb0d6963f7d28e17f72")]
        {
            digest(text, &mut digits);
            assert_eq!(digits, expected, "{text}");
        }
    }
}
