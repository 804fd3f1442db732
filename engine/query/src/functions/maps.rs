//! Look-ups in maps of strings, and maps as JSON text: clients see them as `json`, and so do functions of documents.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanBuilder, MapArray, StringArray, StringViewArray, StringViewBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, internal_err};
use datafusion::error::Result;
use quiver_types::text::push_json_text;

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

/// Whether a type is that of maps of texts.
pub(crate) fn are_texts(kind: &DataType) -> bool {
    let DataType::Map(entries, _) = kind else { return false };
    matches!(entries.data_type(), DataType::Struct(pair) if pair.iter().all(|part| *part.data_type() == DataType::Utf8))
}

/// The type that a document is read in; `None`: values of `kind` are no documents.
pub(super) fn document_type(kind: &DataType) -> Option<DataType> {
    match kind {
        kind if are_texts(kind) => Some(kind.clone()),
        kind if kind.is_string() || kind.is_null() => Some(DataType::Utf8View),
        _ => None,
    }
}

/// The texts of documents: texts as they are, and maps as the objects that clients see.
pub(super) fn documents(values: &ArrayRef) -> Result<StringViewArray> {
    let found = match values.data_type() {
        DataType::Map(..) => texts(values.as_map())?,
        _ => cast(values, &DataType::Utf8View)?,
    };
    let Some(found) = found.as_string_view_opt() else { return internal_err!("texts are none") };
    Ok(found.clone())
}

/// Whether each row's map has its key, whatever the value; NULL where one of them is.
pub(super) fn have(maps: &MapArray, wanted: &StringViewArray) -> Result<ArrayRef> {
    let Some(keys) = maps.keys().as_string_opt::<i32>() else {
        return exec_err!("maps of texts alone are looked into");
    };
    let ends = maps.value_offsets();
    let mut out = BooleanBuilder::with_capacity(maps.len());
    for row in 0..maps.len() {
        if maps.is_null(row) || wanted.is_null(row) {
            out.append_null();
            continue;
        }
        let mut entries = ends[row] as usize..ends[row + 1] as usize;
        out.append_value(entries.any(|at| keys.value(at) == wanted.value(row)));
    }
    Ok(Arc::new(out.finish()))
}

/// Maps as JSON objects, as clients see them.
pub(super) fn texts(maps: &MapArray) -> Result<ArrayRef> {
    let (Some(keys), Some(values)) = (maps.keys().as_string_opt::<i32>(), maps.values().as_string_opt::<i32>()) else {
        return exec_err!("maps of texts alone are printed");
    };
    let ends = maps.value_offsets();
    let (mut out, mut text) = (StringViewBuilder::with_capacity(maps.len()), String::new());
    for row in 0..maps.len() {
        if maps.is_null(row) {
            out.append_null();
            continue;
        }
        text.clear();
        text.push('{');
        for at in ends[row] as usize..ends[row + 1] as usize {
            text.push_str(if at > ends[row] as usize { "," } else { "" });
            push_json_text(keys.value(at), &mut text);
            text.push(':');
            if values.is_valid(at) {
                push_json_text(values.value(at), &mut text);
            } else {
                text.push_str("null");
            }
        }
        text.push('}');
        out.append_value(&text);
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
    fn maps_are_printed_as_objects() {
        let mut maps = TextMaps::default();
        maps.push("a", "1");
        maps.push("b \"c\"", "");
        maps.end();
        maps.end();
        let maps = maps.finish().unwrap();
        assert!(are_texts(maps.data_type()) && !are_texts(&DataType::Utf8));
        let shown = texts(&maps).unwrap();
        let shown: Vec<_> = shown.as_string_view().iter().collect();
        assert_eq!(shown, [Some(r#"{"a":"1","b \"c\"":""}"#), Some("{}")]);
    }
    #[test]
    fn maps_are_documents() {
        let mut maps = TextMaps::default();
        maps.push("a", "1");
        maps.push("b", "");
        maps.end();
        maps.end();
        let maps = maps.finish().unwrap();
        assert_eq!(document_type(maps.data_type()).as_ref(), Some(maps.data_type()));
        assert_eq!(document_type(&DataType::Utf8), Some(DataType::Utf8View));
        assert_eq!(document_type(&DataType::Int64), None);
        let has = |wanted: [Option<&str>; 2]| {
            let found = have(&maps, &StringViewArray::from(wanted.to_vec())).unwrap();
            found.as_boolean().iter().collect::<Vec<_>>()
        };
        assert_eq!(has([Some("a"); 2]), [Some(true), Some(false)]);
        assert_eq!(has([Some("b"), None]), [Some(true), None]);
        let maps: ArrayRef = Arc::new(maps);
        let shown = documents(&maps).unwrap();
        assert_eq!(shown.iter().collect::<Vec<_>>(), [Some(r#"{"a":"1","b":""}"#), Some("{}")]);
    }
}
