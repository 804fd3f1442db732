//! Functions that combine or change JSON documents: `||`, `-`, `#-`, `jsonb_set` and similar. Results have the normal
//! form of `jsonb` (except those of `json_strip_nulls`), and are NULL if an argument is not JSON.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray, BooleanArray, ListArray, StringBuilder, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::json::{document_of, field, parts, unquoted};
use super::json_values::push_normal;
use super::list_texts::items;
use super::maps;
use super::result_memory::Room;
use super::row_builder::OutputMemory;

/// How a document is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Change {
    /// `||`: merges two objects, or appends two arrays.
    Concat,
    /// `-`: removes a member or an item.
    Less,
    /// `#-`: removes what is at a path.
    LessPath,
    /// `jsonb_set`.
    Set,
    /// `jsonb_insert`.
    Insert,
    /// `jsonb_strip_nulls`: removes members that are null.
    Strip,
    /// `json_strip_nulls`: as above, but keeps order and repeated names of members, as the type `json` does.
    StripWritten,
    /// `jsonb_pretty`: indented lines.
    Pretty,
}

/// Names of the functions.
const FUNCTIONS: [(&str, Change); 8] = [
    ("jsonb_concat", Change::Concat),
    ("jsonb_less", Change::Less),
    ("jsonb_less_path", Change::LessPath),
    ("jsonb_set", Change::Set),
    ("jsonb_insert", Change::Insert),
    ("jsonb_strip_nulls", Change::Strip),
    ("json_strip_nulls", Change::StripWritten),
    ("jsonb_pretty", Change::Pretty),
];

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonChanged {
    name: &'static str,
    change: Change,
    room: Room,
    signature: Signature,
}

pub(super) fn functions(room: &Room) -> impl Iterator<Item = Arc<ScalarUDF>> {
    FUNCTIONS.into_iter().map(|(name, change)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(JsonChanged { name, change, room: room.clone(), signature }))
    })
}

impl ScalarUDFImpl for JsonChanged {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_list = |kind: &DataType| matches!(kind, DataType::List(_) | DataType::LargeList(_));
        let text = |kind: &DataType| {
            let Some(read) = maps::document_type(kind) else {
                return plan_err!("`{}` reads texts that hold JSON, not `{kind}`", self.name);
            };
            Ok(read)
        };
        let place = |kind: &DataType| match kind {
            kind if is_list(kind) => Ok(DataType::new_list(DataType::Utf8View, true)),
            kind if kind.is_integer() && self.change == Change::Less => Ok(DataType::Int64),
            kind if maps::are_texts(kind) => {
                plan_err!("`{}` is told by a text what to change, not by `{kind}`", self.name)
            }
            kind => text(kind),
        };
        match (self.change, types) {
            (Change::Concat, [left, right]) => Ok(vec![text(left)?, text(right)?]),
            (Change::Less | Change::LessPath, [document, at]) => Ok(vec![text(document)?, place(at)?]),
            (Change::Set | Change::Insert, [document, at, value]) => {
                Ok(vec![text(document)?, place(at)?, text(value)?])
            }
            (Change::Set | Change::Insert, [document, at, value, flag]) if *flag == DataType::Boolean => {
                Ok(vec![text(document)?, place(at)?, text(value)?, DataType::Boolean])
            }
            (Change::Strip | Change::StripWritten | Change::Pretty, [document]) => Ok(vec![text(document)?]),
            _ => plan_err!("`{}` does not take {types:?}", self.name),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, _args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(match self.change {
            Change::Pretty => Arc::new(Field::new(self.name, DataType::Utf8, true)),
            _ => field(self.name, DataType::Utf8),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let columns = args.args.iter().map(|value| Column::of(&value.to_array(rows)?));
        let columns = columns.collect::<Result<Vec<Column>>>()?;
        let mut making = OutputMemory::new(self.name, &self.room);
        let (mut out, mut text) = (StringBuilder::new(), String::new());
        for row in 0..rows {
            text.clear();
            let is_there = columns.iter().all(|column| !column.is_null(row));
            if is_there && self.row(&columns, row, &mut text, &mut making)? {
                making.add(text.len())?;
                out.append_value(&text);
            } else {
                out.append_null();
            }
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

/// An argument as a column, by its type.
enum Column {
    Text(StringViewArray),
    Number(arrow::array::Int64Array),
    Flag(BooleanArray),
    List(ListArray),
}

impl Column {
    fn of(array: &ArrayRef) -> Result<Self> {
        Ok(match array.data_type() {
            DataType::Int64 => Self::Number(array.as_primitive::<Int64Type>().clone()),
            DataType::Boolean => Self::Flag(array.as_boolean().clone()),
            DataType::List(_) => {
                let lists = cast(array, &DataType::new_list(DataType::Utf8View, true))?;
                Self::List(lists.as_list::<i32>().clone())
            }
            _ => Self::Text(maps::documents(array)?),
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Text(values) => values.is_null(row),
            Self::Number(values) => values.is_null(row),
            Self::Flag(values) => values.is_null(row),
            Self::List(values) => values.is_null(row),
        }
    }

    fn text(&self, row: usize) -> Option<&str> {
        match self {
            Self::Text(values) => Some(values.value(row)),
            _ => None,
        }
    }

    fn is_set(&self, row: usize) -> bool {
        matches!(self, Self::Flag(values) if values.value(row))
    }

    /// The steps of a path, given as a list or as the text of a list. `None`: it is not a path, or a step is NULL.
    fn path(&self, row: usize) -> Option<Vec<String>> {
        match self {
            Self::List(lists) => {
                let steps = lists.value(row);
                let steps = steps.as_string_view_opt()?;
                steps.iter().map(|step| step.map(str::to_owned)).collect()
            }
            Self::Text(values) => items(values.value(row))?.into_iter().collect(),
            _ => None,
        }
    }
}

impl JsonChanged {
    /// Writes the result for a row. Returns false if it is NULL.
    fn row(&self, columns: &[Column], row: usize, out: &mut String, making: &mut OutputMemory<'_>) -> Result<bool> {
        let [first, others @ ..] = columns else { return internal_err!("`{}` reads a document", self.name) };
        let mut document = String::new();
        // In normal form each name occurs once.
        if !normal(first.text(row), &mut document, making)? {
            return Ok(false);
        }
        let mut changed = String::new();
        making.add(document.len())?;
        match (self.change, others) {
            (Change::Concat, [other]) => {
                let mut second = String::new();
                if !normal(other.text(row), &mut second, making)? {
                    return Ok(false);
                }
                making.add(second.len())?;
                concat(&document, &second, &mut changed);
            }
            (Change::Less, [Column::Number(at)]) => less_item(&document, at.value(row), &mut changed)?,
            (Change::Less, [Column::Text(name)]) => less_names(&document, &[name.value(row).to_owned()], &mut changed)?,
            (Change::Less, [list @ Column::List(_)]) => {
                let Some(names) = list.path(row) else { return Ok(false) };
                less_names(&document, &names, &mut changed)?;
            }
            (Change::LessPath, [path]) => {
                let Some(path) = path.path(row) else { return Ok(false) };
                at_path(&document, &path, &JsonEdit::Less, &mut changed)?;
            }
            (Change::Set | Change::Insert, [path, value, flag @ ..]) => {
                let Some(path) = path.path(row) else { return Ok(false) };
                let Some(value) = value.text(row).and_then(document_of) else { return Ok(false) };
                making.add(value.len())?;
                let put = if self.change == Change::Set {
                    JsonEdit::Set { value, creates: flag.first().is_none_or(|flag| flag.is_set(row)) }
                } else {
                    JsonEdit::Insert { value, behind: flag.first().is_some_and(|flag| flag.is_set(row)) }
                };
                at_path(&document, &path, &put, &mut changed)?;
            }
            (Change::Strip, []) => strip(&document, &mut changed),
            (Change::StripWritten, []) => {
                // It is a document, as its normal form above says.
                strip(first.text(row).and_then(document_of).unwrap_or(&document), out);
                return Ok(true);
            }
            (Change::Pretty, []) => {
                pretty(&document, 0, out, making)?;
                return Ok(true);
            }
            _ => return internal_err!("`{}` does not take {} arguments", self.name, columns.len()),
        }
        push_normal(&changed, 0, out, making)
    }
}

/// Writes the normal form of a JSON text. Returns false if the text is not JSON.
fn normal(text: Option<&str>, out: &mut String, making: &mut OutputMemory<'_>) -> Result<bool> {
    match text.and_then(document_of) {
        Some(piece) => push_normal(piece, 0, out, making),
        None => Ok(false),
    }
}

fn is_object(piece: &str) -> bool {
    piece.starts_with('{')
}

fn is_array(piece: &str) -> bool {
    piece.starts_with('[')
}

/// The text between the brackets of an object or an array.
fn inner(piece: &str) -> &str {
    piece.get(1..piece.len().saturating_sub(1)).unwrap_or_default()
}

/// Writes the members of both objects, or the items of both arrays; any other value counts as an array of one item.
fn concat(left: &str, right: &str, out: &mut String) {
    let are_objects = is_object(left) && is_object(right);
    let content = |piece| if are_objects || is_array(piece) { inner(piece) } else { piece };
    let (left, right) = (content(left), content(right));
    let comma = if left.is_empty() || right.is_empty() { "" } else { "," };
    let (open, close) = if are_objects { ("{", "}") } else { ("[", "]") };
    for part in [open, left, comma, right, close] {
        out.push_str(part);
    }
}

/// Writes an object or an array with only the parts that `keeps` accepts.
fn rebuilt<'d>(piece: &'d str, out: &mut String, mut keeps: impl FnMut(usize, Option<&'d str>, &'d str) -> bool) {
    let (mut at, mut count) = (0, 0);
    out.push_str(if is_object(piece) { "{" } else { "[" });
    let _ = parts(piece, |name, value| {
        if keeps(at, name, value) {
            push_part(count, name, out);
            out.push_str(value);
            count += 1;
        }
        at += 1;
        None::<()>
    });
    out.push_str(if is_object(piece) { "}" } else { "]" });
}

/// Writes the comma and the name that precede a value.
fn push_part(at: usize, name: Option<&str>, out: &mut String) {
    if at > 0 {
        out.push(',');
    }
    if let Some(name) = name {
        out.push_str(name);
        out.push(':');
    }
}

fn count_of(piece: &str) -> usize {
    let mut count = 0;
    let _ = parts(piece, |_, _| {
        count += 1;
        None::<()>
    });
    count
}

/// The index of an item; negative positions count from the end.
fn place_of(at: i64, count: usize) -> i64 {
    if at < 0 { at.saturating_add(i64::try_from(count).unwrap_or(i64::MAX)) } else { at }
}

fn less_item(piece: &str, at: i64, out: &mut String) -> Result<()> {
    if is_object(piece) {
        return exec_err!("cannot delete from object using integer index");
    }
    if !is_array(piece) {
        return exec_err!("cannot delete from scalar");
    }
    let place = place_of(at, count_of(piece));
    rebuilt(piece, out, |at, _, _| i64::try_from(at) != Ok(place));
    Ok(())
}

fn less_names(piece: &str, names: &[String], out: &mut String) -> Result<()> {
    if !is_object(piece) && !is_array(piece) {
        return exec_err!("cannot delete from scalar");
    }
    let is_named = |written: &str| unquoted(written).is_some_and(|text| names.iter().any(|name| *name == *text));
    rebuilt(piece, out, |_, name, value| match name {
        Some(name) => !is_named(name),
        None => !value.starts_with('"') || !is_named(value),
    });
    Ok(())
}

/// What to do at the end of a path.
enum JsonEdit<'v> {
    Set { value: &'v str, creates: bool },
    Insert { value: &'v str, behind: bool },
    Less,
}

/// Writes a document with a change at a path. If the path leads nowhere, the document stays as it is.
fn at_path(piece: &str, path: &[String], put: &JsonEdit<'_>, out: &mut String) -> Result<()> {
    if path.is_empty() {
        out.push_str(piece);
        return Ok(());
    }
    if !is_object(piece) && !is_array(piece) {
        return if let JsonEdit::Less = put {
            exec_err!("cannot delete path in scalar")
        } else {
            exec_err!("cannot set path in scalar")
        };
    }
    step(piece, PathPlace { path, level: 0 }, put, out)
}

#[derive(Clone, Copy)]
struct PathPlace<'p> {
    path: &'p [String],
    /// How many of its elements were followed.
    level: usize,
}

impl<'p> PathPlace<'p> {
    /// The name or number that is followed next; `None` at the end.
    fn wanted(self) -> Option<&'p str> {
        self.path.get(self.level).map(String::as_str)
    }

    /// Whether nothing is behind the next element.
    fn is_last(self) -> bool {
        self.level + 1 == self.path.len()
    }

    fn behind(self) -> Self {
        Self { level: self.level + 1, ..self }
    }
}

fn step(piece: &str, at: PathPlace<'_>, put: &JsonEdit<'_>, out: &mut String) -> Result<()> {
    let Some(wanted) = at.wanted() else {
        out.push_str(piece);
        return Ok(());
    };
    let is_last = at.is_last();
    if is_object(piece) {
        return in_object(piece, wanted, at, put, out);
    }
    if !is_array(piece) {
        out.push_str(piece);
        return Ok(());
    }
    let Ok(number) = wanted.parse::<i64>() else {
        return exec_err!("path element at position {} is not an integer: \"{wanted}\"", at.level + 1);
    };
    let count = count_of(piece);
    let place = place_of(number, count);
    // What is put before the first item, or behind the last.
    let lone = match put {
        JsonEdit::Set { value, creates: true } | JsonEdit::Insert { value, .. } if is_last => Some(*value),
        _ => None,
    };
    let mut failed = Ok(());
    let (mut index, mut written) = (0_i64, 0);
    out.push('[');
    if let Some(value) = lone.filter(|_| place < 0) {
        out.push_str(value);
        written = 1;
    }
    let _ = parts(piece, |_, item| {
        let is_it = index == place;
        index += 1;
        let values: [Option<&str>; 2] = match put {
            _ if !is_it || !is_last => [Some(item), None],
            JsonEdit::Set { value, .. } => [Some(*value), None],
            JsonEdit::Insert { value, behind: false } => [Some(*value), Some(item)],
            JsonEdit::Insert { value, behind: true } => [Some(item), Some(*value)],
            JsonEdit::Less => [None, None],
        };
        for value in values.into_iter().flatten() {
            push_part(written, None, out);
            written += 1;
            if is_it && !is_last {
                failed = step(value, at.behind(), put, out);
            } else {
                out.push_str(value);
            }
        }
        failed.is_err().then_some(())
    });
    if let Some(value) = lone.filter(|_| place >= index) {
        push_part(written, None, out);
        out.push_str(value);
    }
    out.push(']');
    failed
}

fn in_object(piece: &str, wanted: &str, at: PathPlace<'_>, put: &JsonEdit<'_>, out: &mut String) -> Result<()> {
    let is_last = at.is_last();
    let mut failed = Ok(());
    let (mut is_found, mut written) = (false, 0);
    out.push('{');
    let _ = parts(piece, |name, value| {
        let is_it = name.and_then(unquoted).is_some_and(|name| name == wanted);
        is_found |= is_it;
        let value = match put {
            _ if !is_it || !is_last => value,
            JsonEdit::Set { value, .. } => *value,
            JsonEdit::Insert { .. } => {
                failed = exec_err!("cannot replace existing key: `jsonb_set` does");
                return Some(());
            }
            JsonEdit::Less => return None,
        };
        push_part(written, name, out);
        written += 1;
        if is_it && !is_last {
            failed = step(value, at.behind(), put, out);
        } else {
            out.push_str(value);
        }
        failed.is_err().then_some(())
    });
    if let JsonEdit::Set { value, creates: true } | JsonEdit::Insert { value, .. } = put
        && is_last
        && !is_found
    {
        let name = serde_json::Value::from(wanted).to_string();
        push_part(written, Some(&name), out);
        out.push_str(value);
    }
    out.push('}');
    failed
}

/// Writes a document, which does not nest more deeply than its normal form may, without members that are null.
fn strip(piece: &str, out: &mut String) {
    if !is_object(piece) && !is_array(piece) {
        out.push_str(piece);
        return;
    }
    let mut count = 0;
    out.push_str(if is_object(piece) { "{" } else { "[" });
    let _ = parts(piece, |name, value| {
        if name.is_none() || value != "null" {
            push_part(count, name, out);
            strip(value, out);
            count += 1;
        }
        None::<()>
    });
    out.push_str(if is_object(piece) { "}" } else { "]" });
}

/// Writes a normal form in lines, four blanks before each for every level.
fn pretty(piece: &str, depth: usize, out: &mut String, making: &mut OutputMemory<'_>) -> Result<()> {
    const BLANKS: &str = "    ";
    if !is_object(piece) && !is_array(piece) {
        making.add(piece.len())?;
        out.push_str(piece);
        return Ok(());
    }
    let mut failed = Ok(());
    let mut count = 0;
    out.push_str(if is_object(piece) { "{" } else { "[" });
    let _ = parts(piece, |name, value| {
        failed = making.add(BLANKS.len() * (depth + 2) + name.map_or(0, str::len));
        if failed.is_err() {
            return Some(());
        }
        out.push_str(if count > 0 { ",\n" } else { "\n" });
        count += 1;
        for _ in 0..=depth {
            out.push_str(BLANKS);
        }
        if let Some(name) = name {
            out.push_str(name);
            out.push_str(": ");
        }
        failed = pretty(value, depth + 1, out, making);
        failed.is_err().then_some(())
    });
    failed?;
    making.add(BLANKS.len() * (depth + 1))?;
    out.push('\n');
    for _ in 0..depth {
        out.push_str(BLANKS);
    }
    out.push_str(if is_object(piece) { "}" } else { "]" });
    Ok(())
}

#[cfg(test)]
mod tests;
