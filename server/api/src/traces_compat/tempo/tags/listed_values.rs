//! Values of a tag as they are listed: of any type as texts, or with their types.

use std::collections::{BTreeSet, HashSet};

use quiver_query::QueryReservation;
use quiver_traces::TraceError;
use quiver_types::spans::{TAG_DOUBLE, tag_kind};
use serde_json::{Value, json};

/// Names of the types that a value has, by the bits of [`tag_value_kind`].
///
/// [`tag_value_kind`]: quiver_types::spans::tag_value_kind
fn types(kinds: u8) -> impl Iterator<Item = &'static str> {
    let (int, bool) = (tag_kind(quiver_types::spans::Value::Int(0)), tag_kind(quiver_types::spans::Value::Bool(true)));
    let known = [("int", int), ("float", TAG_DOUBLE), ("bool", bool), ("string", !(int | TAG_DOUBLE | bool))];
    known.into_iter().filter(move |(_, bits)| kinds & bits != 0).map(|(name, _)| name)
}

/// The bit of values that are lists.
fn list_kind() -> u8 {
    tag_kind(quiver_types::spans::Value::Json("[]"))
}

/// A value with each of its types. Of a list it is the items, which conditions find as well.
fn typed(value: String, kinds: u8) -> Vec<(&'static str, String)> {
    let lists = list_kind();
    let items = if kinds & lists == 0 { None } else { serde_json::from_str::<Vec<Value>>(&value).ok() };
    if let Some(items) = items {
        let own = types(kinds & !lists).map(|kind| (kind, value.clone()));
        return own.chain(items.iter().filter_map(item)).collect();
    }
    let mut names: Vec<&'static str> = types(kinds).collect();
    let Some(last) = names.pop() else { return Vec::new() };
    let mut out: Vec<(&'static str, String)> = names.into_iter().map(|kind| (kind, value.clone())).collect();
    out.push((last, value));
    out
}

/// Bytes that a text of a list takes besides what it says, while the list grows.
const TEXT_BYTES: usize = 96;
/// Bytes of a value whose text was that of its row.
const PLACE_BYTES: usize = 48;
/// So many bytes are counted at once.
const COUNTED_BYTES: usize = 64 << 10;

/// Counts what a list is made of beside its rows, in the memory of its query: a value that is a list has an item for every two
/// bytes.
struct ListMemory<'m> {
    memory: &'m QueryReservation,
    /// Not counted yet.
    bytes: usize,
}

impl ListMemory<'_> {
    fn add(&mut self, bytes: usize) -> Result<(), TraceError> {
        self.bytes += bytes;
        if self.bytes < COUNTED_BYTES { Ok(()) } else { self.count() }
    }

    fn count(&mut self) -> Result<(), TraceError> {
        Ok(self.memory.add(std::mem::take(&mut self.bytes))?)
    }
}

/// Values of any type as texts, in order, each once.
pub(super) fn texts(
    rows: Vec<(String, u8)>,
    limit: Option<usize>,
    memory: &QueryReservation,
) -> Result<Vec<String>, TraceError> {
    let most = limit.unwrap_or(usize::MAX);
    if rows.iter().all(|(_, kinds)| kinds & list_kind() == 0) {
        // Without lists each row is one value.
        let mut list: Vec<String> = rows.into_iter().filter(|(_, kinds)| *kinds != 0).map(|(value, _)| value).collect();
        list.sort_unstable();
        list.dedup();
        list.truncate(most);
        return Ok(list);
    }
    let (mut once, mut taken) = (BTreeSet::new(), ListMemory { memory, bytes: 0 });
    for (_, text) in rows.into_iter().flat_map(|(value, kinds)| typed(value, kinds)) {
        if !once.contains(&text) {
            taken.add(text.len() + TEXT_BYTES)?;
            once.insert(text);
        }
    }
    taken.count()?;
    Ok(once.into_iter().take(most).collect())
}

/// A value with its type, as which it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct TypedValue(pub(super) &'static str, pub(super) String);

impl From<TypedValue> for Value {
    fn from(TypedValue(kind, value): TypedValue) -> Self {
        json!({"type": kind, "value": value})
    }
}

/// Values with each of their types, in the order of rows, each once.
pub(super) fn typed_values_of(
    rows: Vec<(String, u8)>,
    limit: Option<usize>,
    memory: &QueryReservation,
) -> Result<Vec<TypedValue>, TraceError> {
    let most = limit.unwrap_or(usize::MAX);
    // Rows differ; items of lists may be values as well.
    let may_repeat = rows.iter().any(|(_, kinds)| kinds & list_kind() != 0);
    let (mut out, mut seen) = (Vec::with_capacity(rows.len().min(most)), HashSet::new());
    let mut taken = ListMemory { memory, bytes: 0 };
    'rows: for (value, kinds) in rows {
        for (at, (kind, text)) in typed(value, kinds).into_iter().enumerate() {
            if out.len() >= most {
                break 'rows;
            }
            let one = TypedValue(kind, text);
            if may_repeat {
                if seen.contains(&one) {
                    continue;
                }
                taken.add(one.1.len() + TEXT_BYTES)?;
                seen.insert(one.clone());
            }
            let is_copy = may_repeat || at > 0;
            taken.add(if is_copy { one.1.len() + TEXT_BYTES } else { PLACE_BYTES })?;
            out.push(one);
        }
    }
    taken.count()?;
    Ok(out)
}

/// An item of a list with its type; lists and maps within it are none, as in Tempo.
fn item(item: &Value) -> Option<(&'static str, String)> {
    match item {
        Value::String(text) => Some(("string", text.clone())),
        Value::Bool(value) => Some(("bool", value.to_string())),
        Value::Number(number) => Some((if number.is_f64() { "float" } else { "int" }, number.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_shown_as_their_items() {
        use quiver_types::spans::Value;
        let (list, text) = (tag_kind(Value::Json("[]")), tag_kind(Value::Text("")));
        let rows = [("x", text), (r#"["b","a",7,[1],null]"#, list), ("[1]", text), ("a", text), ("[]", list)];
        let rows = rows.map(|(value, kinds)| (value.to_owned(), kinds));
        let memory = memory(1 << 20);
        assert_eq!(texts(rows.to_vec(), None, &memory).unwrap(), ["7", "[1]", "a", "b", "x"]);
        assert_eq!(texts(rows.to_vec(), Some(2), &memory).unwrap(), ["7", "[1]"]);
        let shown = |limit| {
            let values = typed_values_of(rows.to_vec(), limit, &memory).unwrap();
            values.into_iter().map(|TypedValue(kind, text)| format!("{kind} {text}")).collect::<Vec<_>>()
        };
        assert_eq!(shown(None), ["string x", "string b", "string a", "int 7", "string [1]"]);
        assert_eq!(shown(Some(2)), ["string x", "string b"]);
        // Without lists each row is there once.
        let values = [("a".to_owned(), text | tag_kind(Value::Int(1)))].to_vec();
        let kinds: Vec<_> = typed_values_of(values, None, &memory).unwrap().into_iter().map(|one| one.0).collect();
        assert_eq!(kinds, ["int", "string"]);
    }

    /// The memory of a query, out of a pool of so many bytes.
    fn memory(bytes: usize) -> QueryReservation {
        use quiver_query::{EngineSettings, Limits, QueryContext, QueryEngine};
        let engine = QueryEngine::new(&EngineSettings::small(bytes)).unwrap();
        engine.collected("values", &QueryContext::new(quiver_types::Access::full(), Limits::default()))
    }

    /// Breaks if only the texts of rows count, of which a list has an item for every two bytes.
    #[test]
    fn items_of_lists_count_before_they_are_many() {
        use quiver_types::spans::Value;
        let rows: Vec<(String, u8)> = (0..1000)
            .map(|n| (format!("[{}]", [n.to_string().as_str(); 50].join(",")), tag_kind(Value::Json("[]"))))
            .collect();
        let (few, many) = (rows[..10].to_vec(), memory(256 << 10));
        assert_eq!(typed_values_of(few, None, &many).unwrap().len(), 10, "an item is there once");
        let refused = [
            typed_values_of(rows.clone(), None, &memory(128 << 10)).map(|_| ()),
            texts(rows, None, &memory(64 << 10)).map(|_| ()),
        ];
        for refused in refused {
            assert!(matches!(refused, Err(TraceError::Engine(e)) if e.kind == quiver_types::ErrorKind::LimitExceeded));
        }
    }

    /// Breaks if texts of rows count once more where they only move.
    #[test]
    fn texts_of_rows_go_into_lists() {
        use quiver_types::spans::Value;
        let text = tag_kind(Value::Text(""));
        let rows: Vec<(String, u8)> = (0..1000).rev().map(|n| (format!("{n:01000}"), text)).collect();
        let shown = texts(rows.clone(), None, &memory(256 << 10)).unwrap();
        assert!(shown.iter().rev().eq(rows.iter().map(|(value, _)| value)));
        assert_eq!(texts(vec![("a".to_owned(), 0), ("b".to_owned(), text)], Some(1), &memory(1 << 20)).unwrap(), ["b"]);
        let typed = typed_values_of(rows.clone(), None, &memory(256 << 10)).unwrap();
        assert!(typed.iter().map(|one| &one.1).eq(rows.iter().map(|(value, _)| value)));
        // A value of several types is there for each of them.
        let several = rows.into_iter().map(|(value, kinds)| (value, kinds | TAG_DOUBLE)).collect();
        assert!(typed_values_of(several, None, &memory(256 << 10)).is_err());
    }

    #[test]
    fn types_of_values() {
        use quiver_types::spans::Value as Shown;

        let text = tag_kind(Shown::Text("a"));
        let (int, bool) = (tag_kind(Shown::Int(1)), tag_kind(Shown::Bool(false)));
        for (kinds, expected) in [
            (0, vec![]),
            (text, vec!["string"]),
            (int, vec!["int"]),
            (TAG_DOUBLE, vec!["float"]),
            (bool, vec!["bool"]),
            (int | TAG_DOUBLE, vec!["int", "float"]),
            (text | int, vec!["int", "string"]),
            (text | int | TAG_DOUBLE | bool, vec!["int", "float", "bool", "string"]),
            // Types unknown to Tempo are shown as strings.
            (tag_kind(Shown::Bytes(b"a")), vec!["string"]),
            (tag_kind(Shown::Json("[]")), vec!["string"]),
        ] {
            assert_eq!(types(kinds).collect::<Vec<_>>(), expected, "{kinds:b}");
        }
    }

    /// Would fail if a list were shown as a text, by which no condition finds it.
    #[test]
    fn lists_are_their_items() {
        use quiver_types::spans::Value as Shown;

        let [text, list, map] =
            [Shown::Text("a"), Shown::Json("{\"arrayValue\":{}}"), Shown::Json("{\"kvlistValue\":{}}")].map(tag_kind);
        let shown = |value: &str, kinds: u8| {
            typed(value.to_owned(), kinds)
                .into_iter()
                .map(|(kind, value)| format!("{kind} {value}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(r#"["a","b"]"#, list), ["string a", "string b"]);
        assert_eq!(shown(r#"[1,2.5,true,null,["x"],{"k":1}]"#, list), ["int 1", "float 2.5", "bool true"]);
        assert_eq!(shown("[]", list), [""; 0]);
        // A text may look like a list, even if the same tag also has lists.
        assert_eq!(shown("[1]", text), ["string [1]"]);
        assert_eq!(shown("[1]", text | list), ["string [1]", "int 1"]);
        assert_eq!(shown(r#"{"k":1}"#, map), [r#"string {"k":1}"#]);
    }
}
