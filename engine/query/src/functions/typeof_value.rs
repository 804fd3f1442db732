//! `pg_typeof(x)`: PostgreSQL's name of the type of a value.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::json::is_json;

#[derive(Debug, PartialEq, Eq, Hash)]
struct TypeOf {
    signature: Signature,
}

/// Gives the function, of one argument of any type.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(TypeOf { signature: Signature::any(1, Volatility::Immutable) }))
}

fn name_of(kind: &DataType) -> String {
    let name = match kind {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            return format!("{}[]", name_of(item.data_type()));
        }
        DataType::Dictionary(_, value) => return name_of(value),
        DataType::Null => "unknown",
        DataType::Boolean => "boolean",
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => "smallint",
        DataType::Int32 | DataType::UInt16 => "integer",
        DataType::Int64 | DataType::UInt32 => "bigint",
        DataType::Float16 | DataType::Float32 => "real",
        DataType::Float64 => "double precision",
        DataType::Date32 | DataType::Date64 => "date",
        DataType::Time32(_) | DataType::Time64(_) => "time without time zone",
        DataType::Timestamp(_, None) => "timestamp without time zone",
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone",
        DataType::Interval(_) | DataType::Duration(_) => "interval",
        kind if kind.is_string() => "text",
        kind if kind.is_binary() => "bytea",
        kind if kind.is_numeric() => "numeric",
        _ => "json",
    };
    name.to_owned()
}

impl ScalarUDFImpl for TypeOf {
    fn name(&self) -> &'static str {
        "pg_typeof"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else { return exec_err!("`pg_typeof` takes one value") };
        if args.arg_fields.iter().any(|field| is_json(field)) {
            return Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some("json".to_owned()))));
        }
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name_of(&value.data_type())))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_names_of_postgresql() {
        let check = |kind: &DataType, expected: &str| assert_eq!(name_of(kind), expected);
        check(&DataType::Int64, "bigint");
        check(&DataType::UInt64, "numeric");
        check(&DataType::Decimal128(10, 2), "numeric");
        check(&DataType::Utf8View, "text");
        check(&DataType::BinaryView, "bytea");
        check(&DataType::new_list(DataType::Float64, true), "double precision[]");
    }
}
