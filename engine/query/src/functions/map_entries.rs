//! `map_entries(m)`. DataFusion's function declares pairs whose values may be NULL, and makes the list of the pairs as the
//! map has them: those of maps of tables have no NULL, which is another type, and it panicked.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, ListArray, StructArray};
use arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::functions_nested::map_entries::map_entries_udf;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::delegated_head::delegated_head;

/// DataFusion's function, with entries as it declares them.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Entries(Arc<ScalarUDF>);

/// Gives the function.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Entries(map_entries_udf())))
}

impl ScalarUDFImpl for Entries {
    delegated_head!(0);

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let maps = match args.args.as_slice() {
            [maps] => maps.to_array(args.number_rows)?,
            _ => return internal_err!("`map_entries` takes a map"),
        };
        let (Some(maps), DataType::List(item)) = (maps.as_map_opt(), args.return_type()) else {
            return internal_err!("`map_entries` gives a list of a map");
        };
        let DataType::Struct(fields) = item.data_type() else {
            return internal_err!("`map_entries` gives pairs");
        };
        let (columns, nulls) = (maps.entries().columns().to_vec(), maps.entries().nulls().cloned());
        let pairs = StructArray::try_new(fields.clone(), columns, nulls)?;
        let nulls = maps.nulls().cloned();
        let lists = ListArray::try_new(Arc::clone(item), maps.offsets().clone(), Arc::new(pairs), nulls)?;
        Ok(ColumnarValue::Array(Arc::new(lists)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion::common::config::ConfigOptions;

    use super::*;
    use crate::tables::TextMaps;

    #[test]
    fn maps_of_tables_become_lists_of_pairs() {
        let mut maps = TextMaps::default();
        maps.push("a", "1");
        maps.push("b", "");
        maps.end();
        maps.end();
        let maps = maps.finish().unwrap();
        let kind = maps.data_type().clone();
        let gives = function().return_type(std::slice::from_ref(&kind)).unwrap();
        let args = ScalarFunctionArgs {
            args: vec![ColumnarValue::Array(Arc::new(maps))],
            arg_fields: vec![Arc::new(Field::new("m", kind, true))],
            number_rows: 2,
            return_field: Arc::new(Field::new("f", gives, true)),
            config_options: Arc::new(ConfigOptions::default()),
        };
        let found = function().invoke_with_args(args).unwrap().into_array(2).unwrap();
        let lists = found.as_list::<i32>();
        assert_eq!((lists.value_length(0), lists.value_length(1)), (2, 0));
        let first = lists.value(0);
        let texts = |name: &str| -> Vec<String> {
            let column = first.as_struct().column_by_name(name).unwrap();
            column.as_string::<i32>().iter().flatten().map(str::to_owned).collect()
        };
        assert_eq!(texts("key"), ["a", "b"]);
        assert_eq!(texts("value"), ["1", ""]);
    }
}
