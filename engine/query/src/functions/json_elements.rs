//! The parts of a JSON document as a list, which statements unnest into rows, and tests of what a document contains.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanBuilder, ListBuilder, StringBuilder, StringViewArray};
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use quiver_types::cancellation;
use serde_json::Value;

use super::json::{document_of, member, parts, text_of, tree_bytes, unquoted};
use super::maps;
use super::result_memory::{COUNTED, Room};
use super::row_builder::OutputMemory;

/// Bytes of an item of a list beside its text.
const ITEM: usize = 8;

/// What is read from a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum JsonElementsOperation {
    /// The items of an array, as JSON.
    Items,
    /// The items of an array as strings, without quotes.
    Texts,
    /// The names of an object's members.
    Keys,
    /// The values of an object's members, as JSON.
    Values,
    /// The values of an object's members as strings, without quotes.
    ValueTexts,
    /// `?`: whether an object has a member of a name, or an array a string among its items.
    Has,
    /// `@>`: whether it contains another document.
    Contains,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonParts {
    name: &'static str,
    asked: JsonElementsOperation,
    room: Room,
    signature: Signature,
}

pub(super) fn functions(room: &Room) -> impl Iterator<Item = Arc<ScalarUDF>> {
    let named = [
        ("json_items", JsonElementsOperation::Items),
        ("json_items_text", JsonElementsOperation::Texts),
        ("json_keys", JsonElementsOperation::Keys),
        ("json_values", JsonElementsOperation::Values),
        ("json_values_text", JsonElementsOperation::ValueTexts),
        ("json_has", JsonElementsOperation::Has),
        ("json_contains", JsonElementsOperation::Contains),
    ];
    named.into_iter().map(|(name, asked)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(JsonParts { name, asked, room: room.clone(), signature }))
    })
}

impl JsonParts {
    fn is_condition(&self) -> bool {
        matches!(self.asked, JsonElementsOperation::Has | JsonElementsOperation::Contains)
    }

    fn lists(&self, documents: &StringViewArray) -> Result<ArrayRef> {
        let mut making = OutputMemory::new(self.name, &self.room);
        let mut out = ListBuilder::new(StringBuilder::new());
        for text in documents {
            let bracket = if matches!(self.asked, JsonElementsOperation::Items | JsonElementsOperation::Texts) {
                '['
            } else {
                '{'
            };
            let Some(piece) = text.and_then(document_of).filter(|piece| piece.starts_with(bracket)) else {
                out.append(false);
                continue;
            };
            making.add(piece.len())?;
            let mut count = 0;
            let _ = parts(piece, |name, value| {
                count += 1;
                let items = out.values();
                match (self.asked, name) {
                    (JsonElementsOperation::Keys, Some(name)) => items.append_option(unquoted(name)),
                    (JsonElementsOperation::Texts | JsonElementsOperation::ValueTexts, _) => {
                        items.append_option(text_of(value));
                    }
                    _ => items.append_value(value),
                }
                None::<()>
            });
            making.add(count * ITEM)?;
            out.append(true);
        }
        Ok(Arc::new(out.finish()))
    }

    fn conditions(&self, documents: &StringViewArray, others: &StringViewArray) -> Result<ArrayRef> {
        let mut out = BooleanBuilder::with_capacity(documents.len());
        for (document, other) in documents.iter().zip(others.iter()) {
            let Some((document, other)) = document.zip(other) else {
                out.append_null();
                continue;
            };
            if self.asked == JsonElementsOperation::Has {
                out.append_option(has(document, other));
                continue;
            }
            let bytes = tree_bytes(document.as_bytes()).saturating_add(tree_bytes(other.as_bytes()));
            let _trees = (bytes > COUNTED).then(|| self.room.take(bytes)).transpose()?;
            out.append_option(holds(document, other));
        }
        Ok(Arc::new(out.finish()))
    }
}

impl ScalarUDFImpl for JsonParts {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let arity = if self.is_condition() { 2 } else { 1 };
        if types.len() != arity {
            return plan_err!("`{}` takes {arity} arguments, not {}", self.name, types.len());
        }
        let read = |(at, kind): (usize, &DataType)| {
            let is_name = at > 0 && self.asked == JsonElementsOperation::Has;
            let read = maps::document_type(kind).filter(|read| !is_name || *read == DataType::Utf8View);
            let Some(read) = read else {
                return plan_err!("`{}` reads texts that hold JSON, not `{kind}`", self.name);
            };
            Ok(read)
        };
        types.iter().enumerate().map(read).collect()
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(if self.is_condition() { DataType::Boolean } else { DataType::new_list(DataType::Utf8, true) })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        if let (JsonElementsOperation::Has, [objects, names]) = (self.asked, args.args.as_slice())
            && matches!(objects.data_type(), DataType::Map(..))
        {
            let names = maps::documents(&names.to_array(rows)?)?;
            return Ok(ColumnarValue::Array(maps::have(objects.to_array(rows)?.as_map(), &names)?));
        }
        let mut columns = Vec::with_capacity(2);
        for value in &args.args {
            columns.push(maps::documents(&value.to_array(rows)?)?);
        }
        Ok(ColumnarValue::Array(match columns.as_slice() {
            [documents] => self.lists(documents)?,
            [documents, others] => self.conditions(documents, others)?,
            _ => return exec_err!("`{}` reads a text", self.name),
        }))
    }
}

/// Whether a document has a member of that name, has that string as an item, or is that string. `None`: it is not JSON.
fn has(text: &str, wanted: &str) -> Option<bool> {
    let piece = document_of(text)?;
    let is_wanted = |value: &str| value.starts_with('"') && unquoted(value).is_some_and(|text| text == wanted);
    Some(match piece.as_bytes().first() {
        Some(b'{') => member(piece, wanted).is_some(),
        Some(b'[') => parts(piece, |_, value| is_wanted(value).then_some(())).is_some(),
        _ => is_wanted(piece),
    })
}

/// Whether a document contains another one. `None`: one of them is not JSON.
fn holds(document: &str, other: &str) -> Option<bool> {
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    let (document, other) = (read(document)?, read(other)?);
    // An array has a plain value that is one of its items, at the top alone.
    let is_item = match (&document, &other) {
        (Value::Array(items), Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            items.iter().any(|item| contains(item, &other))
        }
        _ => false,
    };
    Some(is_item || contains(&document, &other))
}

fn contains(value: &Value, other: &Value) -> bool {
    match (value, other) {
        (Value::Object(members), Value::Object(others)) => {
            others.iter().all(|(name, other)| members.get(name).is_some_and(|value| contains(value, other)))
        }
        (Value::Array(items), Value::Array(others)) => {
            let looked = 8 * items.len();
            others.iter().all(|other| cancellation::goes_on(looked) && items.iter().any(|value| contains(value, other)))
        }
        // Whole numbers are told apart to their last digit.
        (Value::Number(value), Value::Number(other)) if value.is_f64() || other.is_f64() => {
            value.as_f64() == other.as_f64()
        }
        _ => value == other,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};

    use super::super::testing::{call, document, draws, named, room, text, texts};
    use super::*;
    use crate::tables::TextMaps;

    #[test]
    fn parts_of_documents() {
        let check = |asked: JsonElementsOperation, document: &str, expected: Option<&[Option<&str>]>| {
            let room = Room::new(Arc::new(UnboundedMemoryPool::default()));
            let signature = Signature::user_defined(Volatility::Immutable);
            let asking = JsonParts { name: "f", asked, room, signature };
            let lists = asking.lists(&StringViewArray::from(vec![document])).unwrap();
            let lists = lists.as_list::<i32>();
            let list = lists.is_valid(0).then(|| lists.value(0));
            let found = list.as_ref().map(|list| list.as_string::<i32>().iter().collect::<Vec<_>>());
            assert_eq!(found.as_deref(), expected, "{document}");
        };
        let document = r#" [1, "a\"b", null, {"c": [2]}] "#;
        check(
            JsonElementsOperation::Items,
            document,
            Some(&[Some("1"), Some(r#""a\"b""#), Some("null"), Some(r#"{"c": [2]}"#)]),
        );
        check(JsonElementsOperation::Texts, document, Some(&[Some("1"), Some("a\"b"), None, Some(r#"{"c": [2]}"#)]));
        check(JsonElementsOperation::Keys, r#"{"a": 1, "b": {"c": 2}}"#, Some(&[Some("a"), Some("b")]));
        check(JsonElementsOperation::Values, r#"{"a": "x", "b": null}"#, Some(&[Some("\"x\""), Some("null")]));
        check(JsonElementsOperation::ValueTexts, r#"{"a": "x", "b": null}"#, Some(&[Some("x"), None]));
        check(JsonElementsOperation::Items, "[]", Some(&[]));
        check(JsonElementsOperation::Items, "{}", None);
        check(JsonElementsOperation::Keys, "[1", None);
    }

    #[test]
    fn documents_have_members_and_others() {
        assert_eq!(has(r#"{"a": null}"#, "a"), Some(true));
        assert_eq!(has(r#"{"b": "a"}"#, "a"), Some(false));
        assert_eq!((has(r#"["a", 1]"#, "a"), has(r#"["a", 1]"#, "1")), (Some(true), Some(false)));
        assert_eq!((has(r#""a""#, "a"), has("a", "a")), (Some(true), None));
        let check = |document: &str, other: &str, expected: Option<bool>| {
            assert_eq!(holds(document, other), expected, "{document} {other}");
        };
        check(r#"{"a": 1, "b": {"c": [1, 2]}}"#, r#"{"b": {"c": [2]}}"#, Some(true));
        check(r#"{"a": 1}"#, r#"{"a": 2}"#, Some(false));
        check("[1, 2.0, [3]]", "[2, 1, 1]", Some(true));
        check("[1, [3]]", "[3]", Some(false));
        check("[1]", "1", Some(true));
        check(r#"{"a": [1]}"#, r#"{"a": 1}"#, Some(false));
        check("{", "{}", None);
        check("{}", "{", None);
        // Numbers are equal by their size, also as the plain item of an array.
        check("[1]", "1.0", Some(true));
        check("[2.50]", "25e-1", Some(true));
        check("1", "1.0", Some(true));
        check("9007199254740993", "9007199254740992", Some(false));
        // An array has no array or object in the place of one of its items, and an item is looked for at the top alone.
        check("[[1]]", "1", Some(false));
        check("[[1, 2]]", "[[1]]", Some(true));
        check("[{\"a\": 1}]", "{\"a\": 1}", Some(false));
        check("[]", "[]", Some(true));
        check("{}", "{}", Some(true));
        check("[]", "{}", Some(false));
        check("null", "null", Some(true));
        check("[null]", "null", Some(true));
        check("\"a\"", "[\"a\"]", Some(false));
    }

    /// A document has itself, and each of its parts where it has them, and no more once a member is another.
    #[test]
    fn documents_have_what_is_in_them() {
        let mut draw = draws(5);
        for _ in 0..200 {
            let (left, right) = (document(&mut draw, 3), document(&mut draw, 2));
            let (left_text, right_text) = (left.to_string(), right.to_string());
            assert_eq!(holds(&left_text, &left_text), Some(true), "{left}");
            let both = serde_json::json!({ "x": left, "y": right });
            let one = serde_json::json!({ "y": right });
            assert_eq!(holds(&both.to_string(), &one.to_string()), Some(true), "{both} {one}");
            let list = serde_json::json!([left, right]);
            assert_eq!(holds(&list.to_string(), &format!("[{right_text},{right_text}]")), Some(true), "{list}");
            let other = format!("{{\"more\":1,\"y\":{right_text}}}");
            assert_eq!(holds(&both.to_string(), &other), Some(false), "{both} {other}");
        }
    }

    #[test]
    fn columns_give_lists_and_truths() {
        let room = room();
        let documents = texts(&[Some(r#"["a", null]"#), None, Some("[main]"), Some("{}")]);
        let found = call(&named(functions(&room), "json_items_text"), std::slice::from_ref(&documents), 4).unwrap();
        let lists = found.as_list::<i32>();
        assert_eq!((0..4).map(|row| lists.is_valid(row)).collect::<Vec<_>>(), [true, false, false, false]);
        assert_eq!(lists.value(0).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("a"), None]);
        let truths = |name: &str, other: &ColumnarValue| {
            let found = call(&named(functions(&room), name), &[documents.clone(), other.clone()], 4).unwrap();
            found.as_boolean().iter().collect::<Vec<_>>()
        };
        assert_eq!(truths("json_has", &text("a")), [Some(true), None, None, Some(false)]);
        assert_eq!(truths("json_contains", &text("null")), [Some(true), None, None, Some(false)]);
        let others = texts(&[Some("[]"), Some("[]"), Some("[]"), None]);
        assert_eq!(truths("json_contains", &others), [Some(true), None, None, None]);
        let refused = |name: &str, types: &[DataType]| {
            named(functions(&room), name).coerce_types(types).expect_err("refused").to_string()
        };
        for (name, types, said) in [
            ("json_items", vec![DataType::Utf8; 2], "`json_items` takes 1 arguments, not 2"),
            ("json_has", vec![DataType::Utf8], "`json_has` takes 2 arguments, not 1"),
            ("json_keys", vec![DataType::Int64], "`json_keys` reads texts that hold JSON, not `Int64`"),
        ] {
            let fault = refused(name, &types);
            assert!(fault.contains(said), "{fault}");
        }
    }

    #[test]
    fn maps_are_documents() {
        let mut maps = TextMaps::default();
        maps.push("a", "1");
        maps.push("b", "x");
        maps.end();
        maps.end();
        let maps = ColumnarValue::Array(Arc::new(maps.finish().unwrap()));
        let room = room();
        let truths = |name: &str, other: &ColumnarValue| {
            let found = call(&named(functions(&room), name), &[maps.clone(), other.clone()], 2).unwrap();
            found.as_boolean().iter().collect::<Vec<_>>()
        };
        assert_eq!(truths("json_has", &text("a")), [Some(true), Some(false)]);
        assert_eq!(truths("json_has", &texts(&[None, Some("a")])), [None, Some(false)]);
        assert_eq!(truths("json_contains", &text(r#"{"b": "x"}"#)), [Some(true), Some(false)]);
        assert_eq!(truths("json_contains", &maps), [Some(true), Some(true)]);
        let names = call(&named(functions(&room), "json_keys"), std::slice::from_ref(&maps), 2).unwrap();
        let names = names.as_list::<i32>();
        assert_eq!(names.value(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["a", "b"]);
        assert!(names.is_valid(1) && names.value(1).is_empty());
        // The second argument is a name, for which a map is refused.
        let kinds = [DataType::Utf8, maps.data_type()];
        assert!(named(functions(&room), "json_has").coerce_types(&kinds).is_err());
    }

    /// Breaks if documents that are compared take nothing from the memory of a query: their values take up to a hundred
    /// times what their texts do.
    #[test]
    fn documents_that_are_read_take_memory() {
        let room = Room::new(Arc::new(GreedyMemoryPool::new(1 << 20)));
        let contains = named(functions(&room), "json_contains");
        for long in [format!("[{}1]", "{\"a\":1},".repeat(2_000)), format!("[{}1]", "1,".repeat(20_000))] {
            for (document, other) in [(long.as_str(), "[]"), ("[]", long.as_str())] {
                let refused = call(&contains, &[text(document), text(other)], 1).unwrap_err();
                assert!(refused.to_string().contains("values of functions"), "{refused}");
            }
        }
        // Of each row for itself.
        let rows = texts(&vec![Some(r#"[{"a": 1}, {"b": 2}]"#); 5_000]);
        assert!(call(&contains, &[rows, text("[]")], 5_000).is_ok());
    }

    /// Breaks if lists are not counted in the memory of a query.
    #[test]
    fn lists_take_memory() {
        let room = Room::new(Arc::new(GreedyMemoryPool::new(1)));
        let long = format!("[\"{}\"]", "x".repeat(1 << 20));
        let lists = named(functions(&room), "json_items");
        let refused = call(&lists, &[text(&long)], 1).unwrap_err();
        assert!(refused.to_string().contains("values of functions"), "{refused}");
        assert!(call(&lists, &[text("[1,1]")], 1).is_ok());
    }
}
