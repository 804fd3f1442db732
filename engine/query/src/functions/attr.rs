//! `attr(map, key)`: the value of a key in a map of texts, where the key is computed. For a text that holds JSON it
//! is `->>`, since a statement does not always show which of the two is the left operand.

use std::sync::Arc;

use arrow::array::AsArray as _;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::json;
use super::maps::found;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Attr {
    /// The function that is called if the first argument is a text.
    of_text: Arc<ScalarUDF>,
    signature: Signature,
}

pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(attr()))
}

fn attr() -> Attr {
    Attr { of_text: json::get_text(), signature: Signature::user_defined(Volatility::Immutable) }
}

impl ScalarUDFImpl for Attr {
    fn name(&self) -> &'static str {
        "attr"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [map @ DataType::Map(entries, _), _] => match entries.data_type() {
                DataType::Struct(pair) if pair.len() == 2 && pair[1].data_type() == &DataType::Utf8 => {
                    Ok(vec![map.clone(), DataType::Utf8])
                }
                _ => plan_err!("`attr` reads maps of texts, not `{map}`"),
            },
            [document, _] if document.is_string() => self.of_text.coerce_types(types),
            _ => plan_err!("`attr` is called as `attr(map, key)`"),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if args.args.first().is_some_and(|document| document.data_type().is_string()) {
            return self.of_text.invoke_with_args(args);
        }
        let rows = args.number_rows;
        let [maps, keys] = args.args.as_slice() else { return exec_err!("`attr` is called as `attr(map, key)`") };
        let (maps, keys) = (maps.to_array(rows)?, cast(&keys.to_array(rows)?, &DataType::Utf8)?);
        let (Some(maps), Some(keys)) = (maps.as_map_opt(), keys.as_string_opt::<i32>()) else {
            return exec_err!("`attr` reads maps of texts");
        };
        found(maps, keys).map(ColumnarValue::Array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_checked() {
        let attr = attr();
        let map = quiver_types::tables::columns::map();
        assert_eq!(attr.coerce_types(&[map.clone(), DataType::Utf8View]).unwrap(), [map, DataType::Utf8]);
        let texts = [DataType::Utf8View, DataType::Utf8View];
        assert_eq!(attr.coerce_types(&[DataType::Utf8, DataType::Utf8]).unwrap(), texts);
        assert!(attr.coerce_types(&[DataType::Int64, DataType::Utf8]).is_err());
        assert!(attr.coerce_types(&[]).is_err());
    }
}
