//! `pg_size_pretty(bytes)`: a number of bytes in the unit that leaves it a few digits, as PostgreSQL writes it.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{AsArray, StringViewBuilder};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// Units behind that of single bytes.
const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
/// Bytes from which on there is a unit.
const BYTES: u64 = 10 << 10;

#[derive(Debug, PartialEq, Eq, Hash)]
struct SizePretty {
    signature: Signature,
}

/// Gives the function.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(SizePretty { signature: Signature::user_defined(Volatility::Immutable) }))
}

/// Writes a size in the first unit in which it is below 10240, rounded; in the last one it may be any.
fn push_size(size: i64, out: &mut String) {
    out.clear();
    if size.unsigned_abs() < BYTES {
        // Writing to a text does not fail.
        let _ = write!(out, "{size} bytes");
        return;
    }
    // Halves of the unit, of which the last one rounds.
    let mut halves = size / 512;
    for (at, unit) in UNITS.iter().enumerate() {
        if halves.unsigned_abs() < 2 * BYTES - 1 || at + 1 == UNITS.len() {
            let _ = write!(out, "{} {unit}", halves.midpoint(halves.signum()));
            return;
        }
        halves /= 1024;
    }
}

impl ScalarUDFImpl for SizePretty {
    fn name(&self) -> &'static str {
        "pg_size_pretty"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [kind] if kind.is_numeric() || kind.is_null() => Ok(vec![DataType::Int64]),
            _ => plan_err!("`pg_size_pretty` takes a number of bytes"),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [sizes] = args.args.as_slice() else { return exec_err!("`pg_size_pretty` takes a number of bytes") };
        let sizes = sizes.to_array(args.number_rows)?;
        let Some(sizes) = sizes.as_primitive_opt::<Int64Type>() else {
            return exec_err!("`pg_size_pretty` takes a whole number");
        };
        let mut out = StringViewBuilder::with_capacity(sizes.len());
        let mut text = String::new();
        for size in sizes {
            match size {
                Some(size) => {
                    push_size(size, &mut text);
                    out.append_value(&text);
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
    fn sizes_have_units() {
        let mut text = String::new();
        for (size, expected) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (-10_240, "-10 kB"),
            (10_485_247, "10239 kB"),
            (10_485_248, "10 MB"),
            (123_456_789, "118 MB"),
            (1 << 50, "1024 TB"),
            (i64::MAX, "8192 PB"),
        ] {
            push_size(size, &mut text);
            assert_eq!(text, expected, "{size}");
        }
    }
}
