//! Steps that may change any field of a row, and those that unpack strings into fields whose names are not known in
//! advance.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use foldhash::fast::FixedState;
use quiver_types::logs::LogFilter;
use serde::{Deserialize, Serialize};

use super::computed_fields::mask;
use crate::ast::field::FieldPattern;
use crate::ast::literal::Overwrite;
use crate::chunked_stream::{OutputChunk, map_values};
use crate::row_functions::{self, Fields, SyslogContext};
use crate::rows::{Rest, RestBuilder, Shape, Texts, batch, push_text, texts_of};
use crate::step::{Batches, Step, StepKind, StepReader};

/// How its step is read.
pub(crate) const STEPS: &[StepReader] = &[StepReader::of::<UnpackStep>()];

/// What is unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Format {
    Json,
    Logfmt,
    Syslog(SyslogContext),
}

impl Format {
    /// Finds the fields of a text: those that are wanted (none: all), or more.
    fn read(self, text: &str, preserve: &[String], wanted: &[FieldPattern], found: &mut Fields) {
        found.clear();
        match self {
            Self::Json => {
                row_functions::unpack_json_fields(text, preserve, wanted, found);
            }
            Self::Logfmt => row_functions::unpack_logfmt(text, found),
            Self::Syslog(ctx) => row_functions::unpack_syslog(text, ctx, found),
        }
    }
}

/// Unpacks a field into others: those with a column in the output, and the map if there is one. Lacks in DataFusion:
/// fields that nobody knows before they are read.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct UnpackStep {
    pub(crate) format: Format,
    pub(crate) from: String,
    pub(crate) fields: Vec<FieldPattern>,
    pub(crate) result_prefix: String,
    pub(crate) preserve_keys: Vec<String>,
    pub(crate) overwrite: Overwrite,
    pub(crate) condition: Option<LogFilter>,
    /// What plans show.
    pub(crate) text: String,
    pub(crate) input: Shape,
    pub(crate) output: Shape,
}

impl UnpackStep {
    fn map(&self, rows: &RecordBatch, room: usize, found: &mut Fields) -> Result<OutputChunk> {
        let mask = mask(self.condition.as_ref(), rows, &self.input)?;
        let source = texts_of(rows, &self.input, &self.from)?;
        let mut writer = Writer::new(rows, &self.input, &self.output)?;
        let mut scratch = String::new();
        let columns = self.columns(&writer);
        let mut name = String::new();
        for row in 0..rows.num_rows() {
            found.clear();
            let applies = mask.as_ref().is_none_or(|mask| mask.value(row));
            let mut is_plain = false;
            if applies {
                let text = source.get(row, &mut scratch);
                is_plain = self.format == Format::Json && !text.trim_start().starts_with('{');
                self.format.read(text, &self.preserve_keys, &self.fields, found);
            }
            writer.begin(row);
            if applies {
                self.write(found, is_plain, &columns, &mut name, &mut writer);
            }
            writer.end();
            if writer.bytes >= room {
                break;
            }
        }
        writer.finish(&self.output)
    }

    /// Of each of `fields` that is a name, the column that it has in the output.
    fn columns(&self, writer: &Writer<'_>) -> Vec<Option<usize>> {
        let column = |field: &FieldPattern| writer.column(&format!("{}{}", self.result_prefix, field.name()?));
        self.fields.iter().map(column).collect()
    }

    /// Whether a field that is asked for by its name stays as it was where the text is not even the beginning of an object:
    /// the text itself, and what has a prefix. Others are emptied, as in the reference.
    fn is_left(&self, wanted: &str) -> bool {
        wanted == self.from || !self.result_prefix.is_empty()
    }

    /// Writes what was found in a row. `is_plain`: its text should be JSON and is no object; `columns`: see
    /// [`Self::columns`].
    fn write(
        &self,
        found: &Fields,
        is_plain: bool,
        columns: &[Option<usize>],
        name: &mut String,
        writer: &mut Writer<'_>,
    ) {
        let mut put = |wanted_by: Option<usize>, key: &str, value: &str| {
            if let Some(column) = wanted_by.and_then(|place| columns[place]) {
                return writer.put_column(column, value, self.overwrite);
            }
            name.clear();
            name.push_str(&self.result_prefix);
            name.push_str(key);
            writer.put(name, value, self.overwrite);
        };
        // A field that is requested by name is always created.
        for (place, wanted) in self.fields.iter().enumerate() {
            let Some(wanted) = wanted.name() else { continue };
            let was_found =
                (0..found.len()).any(|at| found.wanted_by(at) == Some(place)) || found.get(wanted).is_some();
            if !(was_found || is_plain && self.is_left(wanted)) {
                put(Some(place), wanted, "");
            }
        }
        // Of equal keys the last one is taken.
        let mut seen = (self.overwrite == Overwrite::KeepOriginal).then(HashSet::new);
        for i in 0..found.len() {
            let at = if seen.is_some() { found.len() - 1 - i } else { i };
            let (key, value) = found.at(at);
            // A value behind a bare `=` is not the message: the prefix is its name, or it has none.
            let is_nameless = self.format == Format::Logfmt && found.is_nameless(at);
            if is_nameless && self.result_prefix.is_empty() {
                continue;
            }
            let key = if is_nameless { "" } else { key };
            if seen.as_mut().is_some_and(|seen| !seen.insert(key)) {
                continue;
            }
            let wanted_by = found.wanted_by(at);
            if self.fields.is_empty() || wanted_by.is_some() || self.fields.iter().any(|field| field.matches(key)) {
                put(wanted_by, key, value);
            }
        }
    }
}

impl StepKind for UnpackStep {
    const KIND: &'static str = "unpack";
}

impl Step for UnpackStep {
    fn name(&self) -> &'static str {
        "LogsUnpack"
    }

    fn detail(&self) -> String {
        self.text.clone()
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let mut found = Fields::default();
        Ok(map_values(rows, &task, Box::new(move |rows, room| self.map(rows, room, &mut found))))
    }
}

/// Builds rows of which any field may change.
pub(crate) struct Writer<'a> {
    columns: Vec<(&'a str, Texts, StringViewBuilder)>,
    index: HashMap<&'a str, usize, FixedState>,
    rest: Option<RestBuilder>,
    old_rest: Option<Rest>,
    /// The row as it is being built: columns by place, then the map by name.
    row: usize,
    values: Vec<String>,
    more: Vec<(String, String)>,
    /// Places in `more` by name, once there are many.
    places: HashMap<String, usize>,
    /// Rows that ended, and the bytes of their values.
    rows: usize,
    pub(crate) bytes: usize,
}

/// From so many fields on, a set is used instead of comparing them one by one.
const MANY: usize = 32;

/// Sets a value that may have been there before.
fn set(old: &mut String, value: &str, overwrite: Overwrite) {
    let keep = match overwrite {
        Overwrite::Always => false,
        Overwrite::SkipEmpty => value.is_empty(),
        Overwrite::KeepOriginal => !old.is_empty(),
    };
    if !keep {
        old.clear();
        old.push_str(value);
    }
}

impl<'a> Writer<'a> {
    /// Over the rows of a batch.
    pub(crate) fn new(rows: &RecordBatch, input: &'a Shape, output: &'a Shape) -> Result<Self> {
        let mut columns = Vec::with_capacity(output.columns.len());
        for name in output.names() {
            columns.push((name, texts_of(rows, input, name)?, StringViewBuilder::with_capacity(rows.num_rows())));
        }
        let index = output.names().enumerate().map(|(i, name)| (name, i)).collect();
        Ok(Self {
            values: vec![String::new(); columns.len()],
            columns,
            index,
            rest: output.rest.then(|| RestBuilder::new(rows.num_rows())),
            old_rest: Rest::of(rows, input),
            row: 0,
            more: Vec::new(),
            places: HashMap::new(),
            rows: 0,
            bytes: 0,
        })
    }

    /// Begins with the fields that a row has.
    pub(crate) fn begin(&mut self, row: usize) {
        self.row = row;
        let mut scratch = String::new();
        for ((_, old, _), value) in self.columns.iter().zip(&mut self.values) {
            value.clear();
            value.push_str(old.get(row, &mut scratch));
        }
        self.more.clear();
        self.places.clear();
        for (name, value) in self.old_rest.iter().flat_map(|rest| rest.row(row)) {
            match self.index.get(name) {
                Some(&i) => value.clone_into(&mut self.values[i]),
                None => self.more.push((name.to_owned(), value.to_owned())),
            }
        }
    }

    /// Begins a row without fields.
    pub(crate) fn begin_empty(&mut self) {
        self.values.iter_mut().for_each(String::clear);
        self.more.clear();
        self.places.clear();
    }

    /// The place of the column of a field.
    fn column(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// Like [`Self::put`], for the column at a place.
    fn put_column(&mut self, place: usize, value: &str, overwrite: Overwrite) {
        set(&mut self.values[place], value, overwrite);
    }

    /// Sets a field of the row, by what the pipe says of old values.
    pub(crate) fn put(&mut self, name: &str, value: &str, overwrite: Overwrite) {
        let place = if let Some(&i) = self.index.get(name) {
            &mut self.values[i]
        } else {
            if self.rest.is_none() {
                return;
            }
            let at = self.place(name).unwrap_or_else(|| {
                self.more.push((name.to_owned(), String::new()));
                if !self.places.is_empty() {
                    self.places.insert(name.to_owned(), self.more.len() - 1);
                }
                self.more.len() - 1
            });
            &mut self.more[at].1
        };
        set(place, value, overwrite);
    }

    /// Where a field without a column stands.
    fn place(&mut self, name: &str) -> Option<usize> {
        if self.more.len() < MANY {
            return self.more.iter().position(|(own, _)| own == name);
        }
        if self.places.is_empty() {
            self.places.extend(self.more.iter().enumerate().map(|(i, (own, _))| (own.clone(), i)));
        }
        self.places.get(name).copied()
    }

    /// Ends the row.
    pub(crate) fn end(&mut self) {
        for ((_, _, builder), value) in self.columns.iter_mut().zip(&self.values) {
            push_text(builder, value);
            self.bytes += value.len();
        }
        if let Some(rest) = &mut self.rest {
            self.more.sort_unstable();
            for (name, value) in &self.more {
                rest.push(name, value);
                self.bytes += name.len() + value.len();
            }
            rest.end_row();
        }
        self.rows += 1;
    }

    /// Gives the rows that ended.
    pub(crate) fn finish(self, output: &Shape) -> Result<OutputChunk> {
        let (taken, bytes) = (self.rows, self.bytes);
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len() + 1);
        for (_, _, mut builder) in self.columns {
            arrays.push(Arc::new(builder.finish()));
        }
        if let Some(rest) = self.rest {
            arrays.push(rest.finish()?);
        }
        Ok(OutputChunk { batch: batch(output, arrays, taken)?, taken, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{empty_rest, missing};

    #[test]
    fn rows_of_many_fields_have_each_once() {
        let shape = Shape::of_texts(["a"]).with_rest();
        let rows = batch(&shape, vec![missing(2), empty_rest(2).expect("a map")], 2).expect("rows");
        let mut writer = Writer::new(&rows, &shape, &shape).expect("a writer");
        let name = |i: usize| format!("f{i:02}");
        for row in 0..2 {
            writer.begin(row);
            for value in ["old", "1"] {
                (0..MANY + 8).rev().for_each(|i| writer.put(&name(i), value, Overwrite::Always));
            }
            writer.put("a", "x", Overwrite::Always);
            writer.put(&name(0), "", Overwrite::SkipEmpty);
            writer.put(&name(1), "new", Overwrite::KeepOriginal);
            writer.put(&name(2), "", Overwrite::Always);
            writer.put("z", "new", Overwrite::KeepOriginal);
            writer.end();
        }
        let made = writer.finish(&shape).expect("rows");
        let map = Rest::of(&made.batch, &shape).expect("a map");
        let mut expected: Vec<(String, &str)> = (0..MANY + 8).filter(|i| *i != 2).map(|i| (name(i), "1")).collect();
        expected.push(("z".to_owned(), "new"));
        for row in 0..2 {
            let found: Vec<(String, &str)> = map.row(row).map(|(name, value)| (name.to_owned(), value)).collect();
            assert_eq!(found, expected);
        }
        // Each name has three bytes, and an empty value is counted by its name alone.
        assert_eq!((made.taken, made.bytes), (2, 2 * (1 + (MANY + 7) * 4 + 3 + 4)));
    }

    #[test]
    fn without_a_map_only_columns_are_written() {
        let shape = Shape::of_texts(["a", "b"]);
        let rows = batch(&shape, vec![missing(1), missing(1)], 1).expect("rows");
        let mut writer = Writer::new(&rows, &shape, &shape).expect("a writer");
        writer.begin_empty();
        writer.put("b", "1", Overwrite::KeepOriginal);
        writer.put("b", "2", Overwrite::KeepOriginal);
        writer.put("c", "3", Overwrite::Always);
        writer.end();
        let made = writer.finish(&shape).expect("rows");
        let column = |name: &str| texts_of(&made.batch, &shape, name).expect("texts");
        let mut scratch = String::new();
        assert_eq!(column("b").get(0, &mut scratch), "1");
        assert!(column("a").is_empty(0));
        assert_eq!((made.taken, made.bytes, made.batch.num_columns()), (1, 1, 2));
    }
}
