//! Names in place of the numbers of a list: `named_items('23 25', '23=integer;25=text')` is `{integer,text}`. The list is
//! one, or a text in the form of PostgreSQL's `oidvector` or of its lists. `quiver_sql` puts it in the place of casts such as
//! `proargtypes::regtype[]`, with the names of the catalog. Numbers without a name stay.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, ListBuilder, StringArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::common::{exec_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// The most bytes of all names, so that no list becomes much longer than it is.
const NAMES_MAX: usize = 4 << 10;

/// The most bytes of a name.
const NAME_MAX: usize = 64;

#[derive(Debug, PartialEq, Eq, Hash)]
struct NamedItems {
    signature: Signature,
}

/// Gives the function, of a list and a constant text.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(NamedItems { signature: Signature::any(2, Volatility::Immutable) }))
}

impl ScalarUDFImpl for NamedItems {
    fn name(&self) -> &'static str {
        "named_items"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [list, names] = args.args.as_slice() else { return internal_err!("a list and names are read") };
        let ColumnarValue::Scalar(names) = names else { return exec_err!("the names of items are a constant") };
        let names = names_of(names.try_as_str().flatten().unwrap_or_default())?;
        let list = list.to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(named(&list, &names)?))
    }
}

fn names_of(written: &str) -> Result<HashMap<&str, &str>> {
    let names: HashMap<&str, &str> = written.split(';').filter_map(|name| name.split_once('=')).collect();
    if written.len() > NAMES_MAX || names.values().any(|name| name.len() > NAME_MAX) {
        return exec_err!("names of items have at most {NAME_MAX} bytes each, and {NAMES_MAX} together");
    }
    Ok(names)
}

fn named(list: &ArrayRef, names: &HashMap<&str, &str>) -> Result<ArrayRef> {
    let mut found = ListBuilder::new(StringBuilder::new());
    let name = |item: &str| names.get(item).copied().unwrap_or(item).to_owned();
    if let DataType::List(_) = list.data_type() {
        let list = list.as_list::<i32>();
        let texts = cast(list.values(), &DataType::Utf8)?;
        let texts: &StringArray = texts.as_string::<i32>();
        for (row, ends) in list.value_offsets().windows(2).enumerate() {
            let is_some = list.is_valid(row);
            for at in (ends[0]..ends[1]).filter(|_| is_some) {
                let at = at as usize;
                found.values().append_option(texts.is_valid(at).then(|| name(texts.value(at))));
            }
            found.append(is_some);
        }
        return Ok(Arc::new(found.finish()));
    }
    let texts = cast(list, &DataType::Utf8)?;
    for text in texts.as_string::<i32>() {
        let items = text.into_iter().flat_map(|text| text.split(|c: char| c.is_whitespace() || "{,}".contains(c)));
        for item in items.filter(|item| !item.is_empty()) {
            found.values().append_option((!item.eq_ignore_ascii_case("null")).then(|| name(item)));
        }
        found.append(text.is_some());
    }
    Ok(Arc::new(found.finish()))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray};
    use arrow::datatypes::Int64Type;

    use super::super::testing::{call, column, text, texts};
    use super::*;

    const NAMES: &str = "23=integer;25=text;1009=text[]";

    fn items(list: ColumnarValue, rows: usize) -> Vec<Option<Vec<Option<String>>>> {
        let found = call(&function(), &[list, text(NAMES)], rows).unwrap();
        let of_row = |row: ArrayRef| row.as_string::<i32>().iter().map(|item| item.map(str::to_owned)).collect();
        found.as_list::<i32>().iter().map(|row| row.map(of_row)).collect()
    }

    fn all(items: &[&str]) -> Vec<Option<String>> {
        items.iter().map(|item| Some((*item).to_owned())).collect()
    }

    #[test]
    fn texts_are_lists_of_numbers() {
        let written = texts(&[Some("25 23"), None, Some(""), Some("{1009,7}"), Some("{}")]);
        assert_eq!(
            items(written, 5),
            [Some(all(&["text", "integer"])), None, Some(all(&[])), Some(all(&["text[]", "7"])), Some(all(&[]))]
        );
        assert_eq!(items(texts(&[Some("{25,NULL}")]), 1), [Some(vec![Some("text".to_owned()), None])]);
    }

    #[test]
    fn lists_keep_what_has_no_value() {
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(23), None]), None, Some(vec![])]);
        assert_eq!(items(column(list), 3), [Some(vec![Some("integer".to_owned()), None]), None, Some(all(&[]))]);
        assert_eq!(items(column(Int64Array::from(vec![Some(25)])), 1), [Some(all(&["text"]))]);
    }

    #[test]
    fn names_are_few_and_short() {
        for names in ["x".repeat(NAMES_MAX + 1), format!("1={}", "x".repeat(NAME_MAX + 1))] {
            assert!(call(&function(), &[texts(&[Some("1")]), text(&names)], 1).is_err());
        }
        let of_rows = call(&function(), &[texts(&[Some("1")]), texts(&[Some("1=a")])], 1).unwrap_err();
        assert!(of_rows.to_string().contains("constant"), "{of_rows}");
    }
}
