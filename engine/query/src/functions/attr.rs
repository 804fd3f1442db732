//! `attr(map, key)`: the value of a computed key of a map of texts; of a text that holds JSON what `->>` gives, since a
//! statement does not always say which of the two stands before that operator.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, MapArray, StringArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::json;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Attr {
    /// The function for texts.
    of_text: Arc<ScalarUDF>,
    signature: Signature,
}

/// Gives the function.
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

/// Looks each row's key up in its map.
pub(super) fn found(maps: &MapArray, wanted: &StringArray) -> Result<ArrayRef> {
    let (Some(keys), Some(values)) = (maps.keys().as_string_opt::<i32>(), maps.values().as_string_opt::<i32>()) else {
        return exec_err!("`attr` reads maps of texts");
    };
    let ends = maps.value_offsets();
    let mut out = StringViewBuilder::with_capacity(maps.len());
    for row in 0..maps.len() {
        let entries =
            if maps.is_valid(row) && wanted.is_valid(row) { ends[row] as usize..ends[row + 1] as usize } else { 0..0 };
        let value = entries.into_iter().find(|&at| keys.value(at) == wanted.value(row)).map(|at| values.value(at));
        // An empty text is NULL, as in all tables.
        out.append_option(value.filter(|text| !text.is_empty()));
    }
    Ok(Arc::new(out.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::TextMaps;

    #[test]
    fn keys_are_looked_up() {
        let mut maps = TextMaps::default();
        maps.push("a", "1");
        maps.push("b", "");
        maps.end();
        maps.end();
        maps.push("b", "2");
        maps.end();
        let maps = maps.finish().unwrap();
        let check = |keys: [Option<&str>; 3], expected: [Option<&str>; 3]| {
            let values = found(&maps, &StringArray::from(keys.to_vec())).unwrap();
            assert_eq!(values.as_string_view().iter().collect::<Vec<_>>(), expected);
        };
        check([Some("a"); 3], [Some("1"), None, None]);
        check([Some("b"); 3], [None, None, Some("2")]);
        check([None, Some("a"), Some("b")], [None, None, Some("2")]);
    }

    #[test]
    fn types_are_checked() {
        let attr = attr();
        let map = quiver_types::tables::spans::map();
        assert_eq!(attr.coerce_types(&[map.clone(), DataType::Utf8View]).unwrap(), [map, DataType::Utf8]);
        let texts = [DataType::Utf8View, DataType::Utf8View];
        assert_eq!(attr.coerce_types(&[DataType::Utf8, DataType::Utf8]).unwrap(), texts);
        assert!(attr.coerce_types(&[DataType::Int64, DataType::Utf8]).is_err());
        assert!(attr.coerce_types(&[]).is_err());
    }
}
