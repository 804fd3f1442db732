//! Access to JSON in strings: a member or an item as JSON or as a string, the number of items, the type of a value. The
//! result is NULL if there is no such value, and if the string is not JSON, since log messages may be anything.
//!
//! A document is scanned, never built as a tree; the result is a piece of the text as it was written.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray, Int64Builder, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use quiver_types::text::push_json_text;

use super::list_texts::items;
use super::maps;

/// What is read from a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum JsonOperation {
    /// `->`: the member of a name, or the item at a position.
    Get,
    /// `#>`: the value at the path `{a,0,b}`.
    Path,
    /// DuckDB's `json_extract`: the value at a name or at the path `$.a[0].b`.
    Extract,
    /// `json_array_length`.
    Length,
    /// `json_typeof`.
    Type,
}

/// A function of a document.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Json {
    name: &'static str,
    asked: JsonOperation,
    /// Whether the result is a string without quotes instead of JSON.
    as_text: bool,
    signature: Signature,
}

/// The functions: name, further names, what they read, and whether they return a string instead of JSON.
const FUNCTIONS: [(&str, &[&str], JsonOperation, bool); 8] = [
    ("json_get", &[], JsonOperation::Get, false),
    ("json_get_text", &[], JsonOperation::Get, true),
    ("json_get_path", &[], JsonOperation::Path, false),
    ("json_get_path_text", &[], JsonOperation::Path, true),
    ("json_extract", &[], JsonOperation::Extract, false),
    ("json_extract_string", &[], JsonOperation::Extract, true),
    ("json_array_length", &["jsonb_array_length"], JsonOperation::Length, false),
    ("json_typeof", &["jsonb_typeof"], JsonOperation::Type, true),
];

pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    FUNCTIONS.into_iter().map(|(name, others, asked, as_text)| {
        let function = made(name, asked, as_text);
        // `with_aliases` makes another function even if the list of names is empty.
        Arc::new(if others.is_empty() { function } else { function.with_aliases(others.iter().copied()) })
    })
}

fn made(name: &'static str, asked: JsonOperation, as_text: bool) -> ScalarUDF {
    ScalarUDF::from(Json { name, asked, as_text, signature: Signature::user_defined(Volatility::Immutable) })
}

/// Gives the function of `->`.
pub(crate) fn get() -> Arc<ScalarUDF> {
    Arc::new(made("json_get", JsonOperation::Get, false))
}

/// Gives the function of `->>`.
pub(super) fn get_text() -> Arc<ScalarUDF> {
    Arc::new(made("json_get_text", JsonOperation::Get, true))
}

/// The key of a field's metadata that names its extension type, as Arrow defines it.
const EXTENSION: &str = "ARROW:extension:name";
/// The extension type for JSON strings, which Arrow defines.
const JSON: &str = "arrow.json";

/// Whether a column is marked as JSON, and not just strings.
pub fn is_json(field: &Field) -> bool {
    field.metadata().get(EXTENSION).is_some_and(|kind| kind == JSON)
}

/// The field of a column of JSON.
pub fn field(name: &str, kind: DataType) -> FieldRef {
    let metadata = HashMap::from([(EXTENSION.to_owned(), JSON.to_owned())]);
    Arc::new(Field::new(name, kind, true).with_metadata(metadata))
}

/// The key of a list field's metadata that names the extension type of its items.
const ITEMS: &str = "quiver.items";

/// Whether a list has items that are JSON, and not just texts. The type of the list does not say so, since lists of texts
/// would be of different types.
pub(crate) fn is_json_list(field: &Field) -> bool {
    field.metadata().get(ITEMS).is_some_and(|kind| kind == JSON)
}

/// The field of a column of lists of JSON.
pub(super) fn list_field(name: &str, kind: DataType) -> FieldRef {
    Arc::new(Field::new(name, kind, true).with_metadata(HashMap::from([(ITEMS.to_owned(), JSON.to_owned())])))
}

/// The values of keys of maps of texts as JSON.
fn of_maps(maps: &ArrayRef, keys: &ArrayRef) -> Result<ArrayRef> {
    let keys = cast(keys, &DataType::Utf8)?;
    let (Some(maps), Some(keys)) = (maps.as_map_opt(), keys.as_string_opt::<i32>()) else {
        return exec_err!("`->` reads maps of texts");
    };
    let found = maps::found(maps, keys)?;
    let (mut out, mut text) = (StringViewBuilder::with_capacity(maps.len()), String::new());
    for value in found.as_string_view() {
        text.clear();
        if let Some(value) = value {
            push_json_text(value, &mut text);
        }
        out.append_option(value.map(|_| text.as_str()));
    }
    Ok(Arc::new(out.finish()))
}

impl Json {
    fn arity(&self) -> usize {
        if matches!(self.asked, JsonOperation::Length | JsonOperation::Type) { 1 } else { 2 }
    }
}

impl ScalarUDFImpl for Json {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_text = |kind: &DataType| kind.is_string() || kind.is_null();
        let [document, steps @ ..] = types else { return plan_err!("`{}` reads a text that holds JSON", self.name) };
        if steps.len() + 1 != self.arity() {
            return plan_err!("`{}` takes {} arguments, not {}", self.name, self.arity(), types.len());
        }
        if let (JsonOperation::Get, false, DataType::Map(entries, _), [key]) =
            (self.asked, self.as_text, document, steps)
            && let DataType::Struct(pair) = entries.data_type()
            && pair.get(1).is_some_and(|value| value.data_type() == &DataType::Utf8)
            && is_text(key)
        {
            return Ok(vec![document.clone(), DataType::Utf8]);
        }
        let Some(document) = maps::document_type(document) else {
            return plan_err!("`{}` reads texts that hold JSON, and maps of texts, not `{document}`", self.name);
        };
        let step = |kind: &DataType| match kind {
            kind if is_text(kind) => Ok(DataType::Utf8View),
            kind if kind.is_integer() && self.asked != JsonOperation::Path => Ok(DataType::Int64),
            other => plan_err!("`{}` is told by a text where to look, not by `{other}`", self.name),
        };
        let steps = steps.iter().map(step).collect::<Result<Vec<_>>>()?;
        Ok([vec![document], steps].concat())
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(if self.asked == JsonOperation::Length { DataType::Int64 } else { DataType::Utf8View })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let kind = self.return_type(&types)?;
        let is_piece =
            matches!(self.asked, JsonOperation::Get | JsonOperation::Path | JsonOperation::Extract) && !self.as_text;
        Ok(if is_piece { field(self.name, kind) } else { Arc::new(Field::new(self.name, kind, true)) })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let Some(documents) = args.args.first() else { return exec_err!("`{}` reads a text", self.name) };
        // A look-up of keys in a map does not read documents, and its keys are plain texts, not views.
        if let (DataType::Map(..), Some(keys)) = (documents.data_type(), args.args.get(1))
            && keys.data_type() == DataType::Utf8
        {
            return of_maps(&documents.to_array(rows)?, &keys.to_array(rows)?).map(ColumnarValue::Array);
        }
        let documents = maps::documents(&documents.to_array(rows)?)?;
        let present = |row: usize| documents.is_valid(row).then(|| documents.value(row));
        if self.asked == JsonOperation::Length {
            let mut out = Int64Builder::with_capacity(rows);
            (0..rows).for_each(|row| out.append_option(present(row).and_then(length)));
            return Ok(ColumnarValue::Array(Arc::new(out.finish())));
        }
        let mut out = StringViewBuilder::with_capacity(rows);
        if self.asked == JsonOperation::Type {
            (0..rows).for_each(|row| out.append_option(present(row).and_then(type_of)));
            return Ok(ColumnarValue::Array(Arc::new(out.finish())));
        }
        let Some(places) = args.args.get(1) else { return exec_err!("`{}` is told where to look", self.name) };
        let is_constant = matches!(places, ColumnarValue::Scalar(_));
        let places = places.to_array(if is_constant { 1 } else { rows })?;
        let (mut steps, mut is_known) = (None, false);
        for row in 0..rows {
            // A constant is read once.
            if !(is_constant && is_known) {
                steps = self.steps(&places, if is_constant { 0 } else { row });
                is_known = true;
            }
            let found = present(row).zip(steps.as_deref()).and_then(|(document, steps)| walk(document, steps));
            match found {
                Some(found) if self.as_text => out.append_option(text_of(found)),
                found => out.append_option(found),
            }
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

/// A step into a document.
#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    Member(Cow<'a, str>),
    /// From the end where it is below 0.
    Item(i64),
    /// A member of an object, an item of an array.
    Either(Cow<'a, str>),
}

impl Json {
    /// The steps of the path in a row. `None`: it is NULL, or not a path.
    fn steps<'p>(&self, places: &'p ArrayRef, row: usize) -> Option<Vec<Step<'p>>> {
        if !places.is_valid(row) {
            return None;
        }
        if let Some(places) = places.as_primitive_opt::<Int64Type>() {
            return Some(vec![Step::Item(places.value(row))]);
        }
        let place = places.as_string_view_opt()?.value(row);
        match self.asked {
            JsonOperation::Path => items(place)?.into_iter().map(|step| Some(Step::Either(step?.into()))).collect(),
            JsonOperation::Extract if place.starts_with('$') => path(place),
            _ => Some(vec![Step::Member(place.into())]),
        }
    }
}

/// The steps of `$.a[0].b`.
fn path(place: &str) -> Option<Vec<Step<'_>>> {
    let mut rest = place.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(item) = rest.strip_prefix('[') {
            let (number, after) = item.split_once(']')?;
            steps.push(Step::Item(number.trim().parse().ok()?));
            rest = after;
        } else {
            let member = rest.strip_prefix('.')?;
            let (name, after) = match member.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => member.split_at(member.find(['.', '[']).unwrap_or(member.len())),
            };
            steps.push(Step::Member(name.into()));
            rest = after;
        }
    }
    Some(steps)
}

/// The piece of a document that steps lead to.
fn walk<'d>(document: &'d str, steps: &[Step<'_>]) -> Option<&'d str> {
    let mut piece = whole(document)?;
    for step in steps {
        piece = match step {
            Step::Item(at) => item(piece, *at)?,
            Step::Either(text) if piece.starts_with('[') => item(piece, text.parse().ok()?)?,
            Step::Member(name) | Step::Either(name) => member(piece, name)?,
        };
    }
    Some(piece)
}

fn space(bytes: &[u8], at: usize) -> usize {
    at + bytes.iter().skip(at).take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// Behind the text in quotes that begins at `at`.
fn quoted_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Behind the value that begins at `at`.
fn end(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'"' => quoted_end(bytes, at),
        b'{' | b'[' => {
            let (mut at, mut depth) = (at, 0_usize);
            loop {
                match bytes.get(at)? {
                    b'"' => {
                        at = quoted_end(bytes, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        _ => {
            let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
            let count = bytes.iter().skip(at).take_while(|byte| is_plain(byte)).count();
            let plain = std::str::from_utf8(bytes.get(at..at + count)?).ok()?;
            serde_json::from_str::<serde_json::Value>(plain).is_ok().then_some(at + count)
        }
    }
}

/// Whether a text is JSON throughout.
pub fn is_document(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Upper estimate of the bytes that a JSON text takes as a tree of values: a node of an object has room for eleven members
/// at once, and lists grow by doubling. Marks within texts count as if they were outside.
pub fn tree_bytes(text: &[u8]) -> usize {
    let taken = |byte: &u8| match byte {
        b'{' => 704,
        b'[' => 160,
        b',' | b':' => 64,
        _ => 1,
    };
    text.iter().map(taken).sum()
}

/// A text that is JSON throughout, without white space around.
pub(super) fn document_of(text: &str) -> Option<&str> {
    is_document(text).then(|| text.trim_matches([' ', '\t', '\n', '\r']))
}

/// A text that is one value as far as its brackets and quotes tell, without white space around.
pub(super) fn whole(document: &str) -> Option<&str> {
    let bytes = document.as_bytes();
    let begin = space(bytes, 0);
    let end = end(bytes, begin)?;
    (space(bytes, end) == bytes.len()).then(|| document.get(begin..end)).flatten()
}

/// Looks at the parts of an object or an array, each with its name, until one is taken.
pub(super) fn parts<'d, T>(piece: &'d str, mut take: impl FnMut(Option<&'d str>, &'d str) -> Option<T>) -> Option<T> {
    let bytes = piece.as_bytes();
    let is_object = match bytes.first()? {
        b'{' => true,
        b'[' => false,
        _ => return None,
    };
    let mut at = space(bytes, 1);
    loop {
        let name = if is_object && bytes.get(at) == Some(&b'"') {
            let end = quoted_end(bytes, at)?;
            let name = piece.get(at..end)?;
            at = space(bytes, end);
            if bytes.get(at) != Some(&b':') {
                return None;
            }
            at = space(bytes, at + 1);
            Some(name)
        } else if is_object {
            return None;
        } else {
            None
        };
        let end = end(bytes, at)?;
        if let Some(found) = take(name, piece.get(at..end)?) {
            return Some(found);
        }
        at = space(bytes, end);
        if bytes.get(at) != Some(&b',') {
            return None;
        }
        at = space(bytes, at + 1);
    }
}

/// The member of an object with a name: of several the last, which is the one that counts in PostgreSQL.
pub(super) fn member<'d>(piece: &'d str, wanted: &str) -> Option<&'d str> {
    if !piece.starts_with('{') {
        return None;
    }
    let mut last = None;
    let _ = parts(piece, |name, value| {
        if unquoted(name?)? == wanted {
            last = Some(value);
        }
        None::<()>
    });
    last
}

fn item(piece: &str, at: i64) -> Option<&str> {
    if !piece.starts_with('[') {
        return None;
    }
    let at = if at < 0 { at.saturating_add(count(piece)) } else { at };
    if at < 0 {
        return None;
    }
    let mut left = at;
    parts(piece, |_, value| {
        left -= 1;
        (left < 0).then_some(value)
    })
}

/// A text in quotes without these.
pub(super) fn unquoted(written: &str) -> Option<Cow<'_, str>> {
    if written.contains('\\') {
        return serde_json::from_str::<String>(written).ok().map(Cow::Owned);
    }
    written.strip_prefix('"')?.strip_suffix('"').map(Cow::Borrowed)
}

/// A piece as text: NULL is none.
pub(super) fn text_of(piece: &str) -> Option<Cow<'_, str>> {
    match piece {
        "null" => None,
        text if text.starts_with('"') => unquoted(text),
        other => Some(Cow::Borrowed(other)),
    }
}

/// How many items an array has.
fn length(text: &str) -> Option<i64> {
    document_of(text).filter(|piece| piece.starts_with('[')).map(count)
}

fn count(piece: &str) -> i64 {
    let mut count = 0;
    let _ = parts(piece, |_, _| {
        count += 1;
        None::<()>
    });
    count
}

fn type_of(text: &str) -> Option<&'static str> {
    Some(match document_of(text)?.as_bytes().first()? {
        b'{' => "object",
        b'[' => "array",
        b'"' => "string",
        b't' | b'f' => "boolean",
        b'n' => "null",
        _ => "number",
    })
}

#[cfg(test)]
mod tests;
