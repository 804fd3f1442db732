//! Functions that make JSON of values: of a single value, of names and values, of lists that aggregates have collected.
//! Some have names of our own, which `quiver_sql` uses where it translates a function of PostgreSQL.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray, StringBuilder};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::json::{document_of, field, is_document, is_json, list_field};
use super::json_values::{Numbers, Values, push_text, push_with};
use super::result_memory::Room;
use super::row_builder::OutputMemory;
use super::text_views::text_views;

/// What a function makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum JsonBuildOperation {
    /// `to_json`: JSON of a value of any type.
    Of,
    /// `json_value`: a string that contains JSON, as that JSON; NULL for any other string.
    Read,
    /// `json_known`: marks a string that is known to be JSON.
    Known,
    /// `json_known_list`: marks a list whose items are known to be JSON.
    KnownList,
    /// `json_normal`: the normal form of `jsonb`.
    Normal,
    /// `json_alike`: a form in which equal documents are equal strings, whatever the form of their numbers.
    Alike,
    /// `json_row`: an object of names and values, without spaces.
    Row,
    /// `json_outer_row`: as `json_row`, but NULL if all values are: then the outer join found no row of the table.
    OuterRow,
    /// `json_build_object`, with spaces as PostgreSQL writes them.
    Object,
    /// `json_build_array`.
    Array,
    /// `json_member`: a name and a value, to become part of an object.
    Member,
    /// `json_list`: an array of the items of a list, which are JSON.
    List,
    /// `json_rows`: as `json_list`, each item on a line of its own.
    Rows,
    /// `json_dense`: as `json_list`, without spaces.
    Dense,
    /// `json_members`: an object of the members in a list.
    Members,
    /// `json_object`: an object of strings, from one list of alternating names and values, or from a list of each.
    Pairs,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonMade {
    name: &'static str,
    made: JsonBuildOperation,
    room: Room,
    signature: Signature,
}

pub(super) fn functions(room: &Room) -> impl Iterator<Item = Arc<ScalarUDF>> {
    let named = [
        ("to_json", JsonBuildOperation::Of),
        ("json_value", JsonBuildOperation::Read),
        ("json_known", JsonBuildOperation::Known),
        ("json_known_list", JsonBuildOperation::KnownList),
        ("json_normal", JsonBuildOperation::Normal),
        ("json_alike", JsonBuildOperation::Alike),
        ("json_row", JsonBuildOperation::Row),
        ("json_outer_row", JsonBuildOperation::OuterRow),
        ("json_build_object", JsonBuildOperation::Object),
        ("json_build_array", JsonBuildOperation::Array),
        ("json_member", JsonBuildOperation::Member),
        ("json_list", JsonBuildOperation::List),
        ("json_rows", JsonBuildOperation::Rows),
        ("json_dense", JsonBuildOperation::Dense),
        ("json_members", JsonBuildOperation::Members),
        ("json_object", JsonBuildOperation::Pairs),
    ];
    named.into_iter().map(|(name, made)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(JsonMade { name, made, room: room.clone(), signature }))
    })
}

/// Punctuation: before the first member or item, between two, after a name, after the last.
const fn marks(made: JsonBuildOperation) -> (&'static str, &'static str, &'static str, &'static str) {
    match made {
        JsonBuildOperation::Row | JsonBuildOperation::OuterRow => ("{", ",", ":", "}"),
        JsonBuildOperation::Object | JsonBuildOperation::Pairs => ("{", ", ", " : ", "}"),
        JsonBuildOperation::Member => ("", "", " : ", ""),
        JsonBuildOperation::Rows => ("[", ", \n ", "", "]"),
        JsonBuildOperation::Dense => ("[", ",", "", "]"),
        JsonBuildOperation::Members => ("{ ", ", ", "", " }"),
        _ => ("[", ", ", "", "]"),
    }
}

impl ScalarUDFImpl for JsonMade {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let list = || DataType::new_list(DataType::Utf8, true);
        match (self.made, types) {
            (JsonBuildOperation::Row | JsonBuildOperation::OuterRow | JsonBuildOperation::Object, types)
                if !types.len().is_multiple_of(2) =>
            {
                plan_err!("`{}` takes names and values: argument list must have even number of elements", self.name)
            }
            (JsonBuildOperation::Row | JsonBuildOperation::OuterRow | JsonBuildOperation::Object, types)
            | (JsonBuildOperation::Member, types @ [_, _]) => {
                let each = types.iter().enumerate();
                Ok(each
                    .map(|(at, kind)| if at.is_multiple_of(2) { DataType::Utf8View } else { kind.clone() })
                    .collect())
            }
            (JsonBuildOperation::Array, types)
            | (JsonBuildOperation::Of | JsonBuildOperation::Read | JsonBuildOperation::KnownList, types @ [_]) => {
                Ok(types.to_vec())
            }
            // A rule marks values of plans whose columns have got their types.
            (JsonBuildOperation::Known, [kind]) if is_text(kind) => Ok(vec![kind.clone()]),
            (JsonBuildOperation::Known, [_]) => Ok(vec![DataType::Utf8]),
            (JsonBuildOperation::Normal | JsonBuildOperation::Alike, [_]) => Ok(vec![DataType::Utf8View]),
            (
                JsonBuildOperation::List
                | JsonBuildOperation::Rows
                | JsonBuildOperation::Dense
                | JsonBuildOperation::Members,
                [_],
            ) => Ok(vec![list()]),
            (JsonBuildOperation::Pairs, [_] | [_, _]) => Ok(types.iter().map(|_| list()).collect()),
            _ => plan_err!("`{}` does not take {} arguments", self.name, types.len()),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(match (self.made, args.arg_fields) {
            (JsonBuildOperation::KnownList, [list]) => list_field(self.name, list.data_type().clone()),
            (JsonBuildOperation::Known, [text]) if is_text(text.data_type()) => {
                field(self.name, text.data_type().clone())
            }
            (JsonBuildOperation::Member, _) => Arc::new(Field::new(self.name, DataType::Utf8, true)),
            _ => field(self.name, DataType::Utf8),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let mut making = OutputMemory::new(self.name, &self.room);
        let arrays = args.args.iter().map(|value| value.to_array(rows)).collect::<Result<Vec<ArrayRef>>>()?;
        let columns: Vec<(&ArrayRef, &FieldRef)> = arrays.iter().zip(&args.arg_fields).collect();
        let made = match self.made {
            JsonBuildOperation::Of => of(&columns, rows, &mut making)?,
            JsonBuildOperation::Read => read(&columns, rows, &mut making)?,
            JsonBuildOperation::Known | JsonBuildOperation::KnownList => match arrays.as_slice() {
                [array] => Arc::clone(array),
                _ => return internal_err!("one value is known"),
            },
            JsonBuildOperation::Normal => normal(Numbers::AsTheyAre, &columns, rows, &mut making)?,
            JsonBuildOperation::Alike => normal(Numbers::BySize, &columns, rows, &mut making)?,
            JsonBuildOperation::Row
            | JsonBuildOperation::OuterRow
            | JsonBuildOperation::Object
            | JsonBuildOperation::Member => self.named(&columns, rows, &mut making)?,
            JsonBuildOperation::Array => self.array(&columns, rows, &mut making)?,
            JsonBuildOperation::List
            | JsonBuildOperation::Rows
            | JsonBuildOperation::Dense
            | JsonBuildOperation::Members => self.joined(&columns, rows, &mut making)?,
            JsonBuildOperation::Pairs => self.pairs(&columns, rows, &mut making)?,
        };
        Ok(ColumnarValue::Array(made))
    }
}

/// Whether a type is one of texts, written out.
fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8)
}

type Columns<'c> = [(&'c ArrayRef, &'c FieldRef)];

/// Each value; NULL of NULL.
fn of(columns: &Columns<'_>, rows: usize, making: &mut OutputMemory<'_>) -> Result<ArrayRef> {
    let [(array, field)] = columns else { return internal_err!("one value is shown") };
    let values = Values::of(array, field)?;
    let (mut out, mut text) = (StringBuilder::new(), String::new());
    for row in 0..rows {
        if values.is_null(row) {
            out.append_null();
            continue;
        }
        text.clear();
        values.push(row, &mut text, making)?;
        out.append_value(&text);
    }
    Ok(Arc::new(out.finish()))
}

/// Texts as they are, where they hold JSON; other values as [`of`] has them.
fn read(columns: &Columns<'_>, rows: usize, making: &mut OutputMemory<'_>) -> Result<ArrayRef> {
    let [(array, field)] = columns else { return internal_err!("one value is read") };
    let is_text = match array.data_type() {
        DataType::Dictionary(_, values) => values.is_string(),
        kind => kind.is_string(),
    };
    if !is_text || is_json(field) {
        return of(columns, rows, making);
    }
    let mut out = StringBuilder::new();
    for text in &text_views(array)? {
        let text = text.filter(|text| is_document(text));
        making.add(text.map_or(0, str::len))?;
        out.append_option(text);
    }
    Ok(Arc::new(out.finish()))
}

fn normal(numbers: Numbers, columns: &Columns<'_>, rows: usize, making: &mut OutputMemory<'_>) -> Result<ArrayRef> {
    let [(array, _)] = columns else { return internal_err!("one document is put into a form") };
    let documents = text_views(array)?;
    let (mut out, mut text) = (StringBuilder::new(), String::new());
    for row in 0..rows {
        let piece = documents.is_valid(row).then(|| documents.value(row)).and_then(document_of);
        text.clear();
        match piece {
            Some(piece) if push_with(numbers, piece, 0, &mut text, making)? => out.append_value(&text),
            _ => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

impl JsonMade {
    /// Takes alternating names and values.
    fn named(&self, columns: &Columns<'_>, rows: usize, making: &mut OutputMemory<'_>) -> Result<ArrayRef> {
        let (open, between, behind, close) = marks(self.made);
        let mut members = Vec::with_capacity(columns.len() / 2);
        for pair in columns.chunks(2) {
            let [(names, _), (array, field)] = pair else { return internal_err!("a name has no value") };
            members.push((text_views(names)?, Values::of(array, field)?));
        }
        let (mut out, mut text) = (StringBuilder::new(), String::new());
        let is_outer = self.made == JsonBuildOperation::OuterRow;
        for row in 0..rows {
            if is_outer && members.iter().all(|(_, values)| values.is_null(row)) {
                out.append_null();
                continue;
            }
            text.clear();
            text.push_str(open);
            for (at, (names, values)) in members.iter().enumerate() {
                if names.is_null(row) {
                    return exec_err!("`{}`: a name in JSON must not be NULL", self.name);
                }
                text.push_str(if at > 0 { between } else { "" });
                push_text(names.value(row), &mut text, making)?;
                text.push_str(behind);
                values.push(row, &mut text, making)?;
            }
            text.push_str(close);
            out.append_value(&text);
        }
        Ok(Arc::new(out.finish()))
    }

    /// Takes names and values that are strings.
    fn pairs(&self, columns: &Columns<'_>, rows: usize, making: &mut OutputMemory<'_>) -> Result<ArrayRef> {
        let (open, between, behind, close) = marks(self.made);
        let list = |(array, _): &(&ArrayRef, &FieldRef)| {
            let Some(list) = array.as_list_opt::<i32>() else { return internal_err!("members are in lists") };
            Ok((list.clone(), text_views(list.values())?))
        };
        let lists = columns.iter().map(list).collect::<Result<Vec<_>>>()?;
        let (Some(names), Some(values)) = (lists.first(), lists.last()) else { return internal_err!("no members") };
        let in_turn = lists.len() == 1;
        let (mut out, mut text) = (StringBuilder::new(), String::new());
        for row in 0..rows {
            if names.0.is_null(row) || values.0.is_null(row) {
                out.append_null();
                continue;
            }
            let (name_of, count) = (names.0.value_offsets()[row] as usize, names.0.value_length(row) as usize);
            let value_of = values.0.value_offsets()[row] as usize;
            if in_turn && !count.is_multiple_of(2) {
                return exec_err!("`{}`: array must have even number of elements", self.name);
            }
            if !in_turn && count != values.0.value_length(row) as usize {
                return exec_err!("`{}`: mismatched array dimensions", self.name);
            }
            text.clear();
            text.push_str(open);
            for at in (0..count).step_by(1 + usize::from(in_turn)) {
                if names.1.is_null(name_of + at) {
                    return exec_err!("`{}`: a name in JSON must not be NULL", self.name);
                }
                text.push_str(if at > 0 { between } else { "" });
                push_text(names.1.value(name_of + at), &mut text, making)?;
                text.push_str(behind);
                let value = value_of + at + usize::from(in_turn);
                if values.1.is_null(value) {
                    text.push_str("null");
                } else {
                    push_text(values.1.value(value), &mut text, making)?;
                }
            }
            text.push_str(close);
            out.append_value(&text);
        }
        Ok(Arc::new(out.finish()))
    }

    fn array(&self, columns: &Columns<'_>, rows: usize, making: &mut OutputMemory<'_>) -> Result<ArrayRef> {
        let (open, between, _, close) = marks(self.made);
        let items = columns.iter().map(|(array, field)| Values::of(array, field)).collect::<Result<Vec<_>>>()?;
        let (mut out, mut text) = (StringBuilder::new(), String::new());
        for row in 0..rows {
            text.clear();
            text.push_str(open);
            for (at, values) in items.iter().enumerate() {
                text.push_str(if at > 0 { between } else { "" });
                values.push(row, &mut text, making)?;
            }
            text.push_str(close);
            out.append_value(&text);
        }
        Ok(Arc::new(out.finish()))
    }

    /// Takes the items of lists, which are JSON already.
    fn joined(&self, columns: &Columns<'_>, rows: usize, making: &mut OutputMemory<'_>) -> Result<ArrayRef> {
        let (open, between, _, close) = marks(self.made);
        let [(array, _)] = columns else { return internal_err!("one list is joined") };
        let Some(lists) = array.as_list_opt::<i32>() else { return internal_err!("a list is joined") };
        let items = text_views(lists.values())?;
        let ends = lists.value_offsets();
        let (mut out, mut text) = (StringBuilder::new(), String::new());
        for row in 0..rows {
            if lists.is_null(row) {
                out.append_null();
                continue;
            }
            text.clear();
            text.push_str(open);
            for at in ends[row]..ends[row + 1] {
                let is_there = items.is_valid(at as usize);
                let item = if is_there { items.value(at as usize) } else { "null" };
                // PostgreSQL begins a line for a row, but not for a NULL.
                let between = if is_there || self.made != JsonBuildOperation::Rows { between } else { ", " };
                making.add(between.len() + item.len())?;
                text.push_str(if at > ends[row] { between } else { "" });
                text.push_str(item);
            }
            text.push_str(close);
            out.append_value(&text);
        }
        Ok(Arc::new(out.finish()))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Int64Array, ListArray, StringViewArray};
    use datafusion::common::config::ConfigOptions;
    use datafusion::execution::memory_pool::UnboundedMemoryPool;
    use serde_json::Value;

    use super::super::testing::{document, draws};
    use super::*;

    /// What a function makes of the first row.
    fn made(name: &str, args: Vec<ArrayRef>) -> Result<Option<String>> {
        let room = Room::new(Arc::new(UnboundedMemoryPool::default()));
        let function = functions(&room).find(|function| function.name() == name).unwrap();
        let number_rows = args.first().map_or(1, Array::len);
        let arg_fields: Vec<FieldRef> =
            args.iter().map(|array| Arc::new(Field::new("a", array.data_type().clone(), true))).collect();
        let scalars = vec![None; args.len()];
        let of = ReturnFieldArgs { arg_fields: &arg_fields, scalar_arguments: &scalars };
        let return_field = function.return_field_from_args(of)?;
        let args = ScalarFunctionArgs {
            arg_fields,
            args: args.into_iter().map(ColumnarValue::Array).collect(),
            number_rows,
            return_field,
            config_options: Arc::new(ConfigOptions::default()),
        };
        let array = function.invoke_with_args(args)?.into_array(number_rows)?;
        let texts = text_views(&array)?;
        Ok(texts.is_valid(0).then(|| texts.value(0).to_owned()))
    }

    fn text(text: &str) -> ArrayRef {
        Arc::new(StringViewArray::from(vec![text]))
    }

    #[test]
    fn documents_are_written_as_in_postgresql() {
        let check = |name: &str, args: Vec<ArrayRef>, expected: Option<&str>| {
            assert_eq!(made(name, args).unwrap().as_deref(), expected, "{name}");
        };
        let number = || -> ArrayRef { Arc::new(Int64Array::from(vec![5])) };
        let pairs = || vec![text("a"), number(), text("b"), text("x")];
        check("json_build_object", pairs(), Some(r#"{"a" : 5, "b" : "x"}"#));
        check("json_build_object", Vec::new(), Some("{}"));
        check("json_row", pairs(), Some(r#"{"a":5,"b":"x"}"#));
        check("json_build_array", vec![number(), text("x")], Some(r#"[5, "x"]"#));
        check("to_json", vec![text("x")], Some("\"x\""));
        check("json_value", vec![text(" [1] ")], Some(" [1] "));
        check("json_value", vec![text("{")], None);
        check("json_normal", vec![text(r#"{"b" :1,"a":2}"#)], Some(r#"{"a": 2, "b": 1}"#));
        let list = |items: Vec<Option<&str>>| -> ArrayRef {
            let items: ArrayRef = Arc::new(StringViewArray::from(items));
            let offsets = arrow::buffer::OffsetBuffer::from_lengths([items.len()]);
            let item = Arc::new(Field::new_list_field(DataType::Utf8View, true));
            Arc::new(ListArray::new(item, offsets, items, None))
        };
        check("json_list", vec![list(vec![Some("1"), None])], Some("[1, null]"));
        check("json_rows", vec![list(vec![Some("{}"), Some("{}"), None])], Some("[{}, \n {}, null]"));
        check("json_dense", vec![list(vec![Some("1"), None])], Some("[1,null]"));
        check("json_outer_row", pairs(), Some(r#"{"a":5,"b":"x"}"#));
        let none = || -> ArrayRef { Arc::new(Int64Array::from(vec![None::<i64>])) };
        check("json_outer_row", vec![text("a"), none(), text("b"), none()], None);
        check("json_row", vec![text("a"), none()], Some(r#"{"a":null}"#));
        check("json_members", vec![list(vec![Some("\"a\" : 1")])], Some("{ \"a\" : 1 }"));
        let members = || list(vec![Some("a"), Some("1"), Some("b"), None]);
        check("json_object", vec![members()], Some(r#"{"a" : "1", "b" : null}"#));
        check("json_object", vec![list(vec![Some("k")]), list(vec![Some("\"")])], Some(r#"{"k" : "\""}"#));
        check("json_object", vec![list(Vec::new())], Some("{}"));
        for (args, said) in [
            (vec![list(vec![Some("a")])], "even number"),
            (vec![members(), list(vec![None])], "mismatched"),
            (vec![list(vec![None, None])], "must not be NULL"),
        ] {
            assert!(made("json_object", args).unwrap_err().to_string().contains(said), "{said}");
        }
        let nameless: ArrayRef = Arc::new(StringViewArray::from(vec![None::<&str>]));
        assert!(made("json_build_object", vec![nameless, number()]).unwrap_err().to_string().contains("not be NULL"));
    }

    /// What functions make of JSON reads back as the values that it was made of.
    #[test]
    fn documents_read_back() {
        let mut draw = draws(41);
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        for _ in 0..100 {
            let value = document(&mut draw, 3);
            let written = value.to_string();
            for name in ["json_known", "json_normal", "json_value"] {
                let found = made(name, vec![text(&written)]).unwrap().unwrap();
                assert_eq!(read(&found), value, "{name} {written}");
                // A form is one of itself.
                assert_eq!(made(name, vec![text(&found)]).unwrap(), Some(found), "{name} {written}");
            }
            let lines = format!("{value:#}");
            for name in ["json_normal", "json_alike"] {
                assert_eq!(
                    made(name, vec![text(&lines)]).unwrap(),
                    made(name, vec![text(&written)]).unwrap(),
                    "{lines}"
                );
            }
            let quoted = made("to_json", vec![text(&written)]).unwrap().unwrap();
            assert_eq!(read(&quoted), Value::from(written.as_str()));
            let object = made("json_build_object", vec![text(&written), text("x")]).unwrap().unwrap();
            assert_eq!(read(&object), serde_json::json!({ written: "x" }));
        }
    }

    #[test]
    fn equal_documents_are_alike() {
        let alike = |document: &str| made("json_alike", vec![text(document)]).unwrap();
        for (left, right, expected) in [
            ("[1, 2]", "[1.0,2e0]", true),
            (r#"{"a": 1, "b": 2}"#, r#"{"b": 20e-1, "a": 1}"#, true),
            (r#"{"a": 1, "a": 2}"#, r#"{"a": 2}"#, true),
            (r#""\u0041""#, "\"A\"", true),
            ("[1, 2]", "[2, 1]", false),
            ("1", "\"1\"", false),
            ("null", "\"null\"", false),
            ("{}", "[]", false),
        ] {
            assert_eq!(alike(left) == alike(right), expected, "{left} {right}");
        }
        for none in ["", "[main]", "{a}", "1 2"] {
            assert_eq!(alike(none), None, "{none}");
        }
    }

    #[test]
    fn pieces_of_json_are_not_quoted() {
        let document: ArrayRef = Arc::new(StringViewArray::from(vec![Some(" {\"a\": 1} "), None, Some("no")]));
        let fields = [field("a", DataType::Utf8View), Arc::new(Field::new("a", DataType::Utf8View, true))];
        let room = Room::new(Arc::new(UnboundedMemoryPool::default()));
        let shown = |field: &FieldRef| {
            let array = of(&[(&document, field)], 3, &mut OutputMemory::new("f", &room)).unwrap();
            array.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect::<Vec<_>>()
        };
        let some = |text: &str| Some(text.to_owned());
        // What is said to be JSON, and is none, would end the document around it.
        assert_eq!(shown(&fields[0]), [some("{\"a\": 1}"), None, some("null")]);
        assert_eq!(shown(&fields[1]), [some("\" {\\\"a\\\": 1} \""), None, some("\"no\"")]);
    }

    #[test]
    fn arguments_are_checked() {
        let room = Room::new(Arc::new(UnboundedMemoryPool::default()));
        let types = |name: &str, types: &[DataType]| {
            functions(&room).find(|function| function.name() == name).unwrap().coerce_types(types)
        };
        let (text, number) = (DataType::Utf8, DataType::Int64);
        let list = DataType::new_list(DataType::Utf8, true);
        assert_eq!(
            types("json_build_object", &[number.clone(), number.clone(), text.clone(), text.clone()]).unwrap(),
            [DataType::Utf8View, number.clone(), DataType::Utf8View, text.clone()]
        );
        assert_eq!(types("json_build_array", &[]).unwrap(), Vec::<DataType>::new());
        assert_eq!(types("json_object", &[number.clone(), text.clone()]).unwrap(), [list.clone(), list]);
        for (name, wrong, said) in [
            ("json_build_object", vec![text.clone()], "argument list must have even number of elements"),
            ("json_row", vec![text.clone(); 3], "argument list must have even number of elements"),
            ("json_member", vec![text.clone()], "`json_member` does not take 1 arguments"),
            ("to_json", vec![text.clone(), number], "`to_json` does not take 2 arguments"),
            ("json_object", vec![text; 3], "`json_object` does not take 3 arguments"),
            ("json_list", vec![], "`json_list` does not take 0 arguments"),
        ] {
            let refused = types(name, &wrong).unwrap_err().to_string();
            assert!(refused.contains(said), "{name}: {refused}");
        }
    }
}
