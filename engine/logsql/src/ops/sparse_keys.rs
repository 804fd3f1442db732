//! Encodes hundreds of sort or group keys, most of them empty, as one key per row. Absent values take almost no space,
//! so sorts and groups need not hold a column for each key.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, StringViewBuilder};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use serde::{Deserialize, Serialize};

use super::grouping::Key;
use super::packed_columns::{PACKED, push_packed, unpack};
use crate::chunked_stream::map_batches;
use crate::rows::{Column, ColumnStorage, Shape, Texts, batch, push_text, texts, texts_of};
use crate::step::{Batches, Step, StepKind, StepReader};

/// How its steps are read.
pub(crate) const STEPS: &[StepReader] = &[StepReader::of::<PackedKeys>(), StepReader::of::<UnpackedKeys>()];

/// Writes a value as a part of a key.
pub(crate) type Push = fn(&mut Vec<u8>, &str);

/// One of the keys of a sort.
#[derive(Debug)]
pub(crate) struct SparseKey {
    pub(crate) texts: Texts,
    pub(crate) descending: bool,
    pub(crate) push: Push,
    /// Whether what is pushed may be the beginning of what is pushed for another value.
    pub(crate) is_open: bool,
    /// Whether times are compared as they are.
    pub(crate) as_time: bool,
}

/// What keys begin with: the length of a run of values that are absent, a value.
const ABSENT: u8 = 0;
const VALUE: u8 = 1;

impl SparseKey {
    /// Appends the value of a row, which is not absent.
    fn push(&self, out: &mut Vec<u8>, row: usize, scratch: &mut String) {
        let start = out.len();
        out.push(VALUE);
        match &self.texts {
            Texts::Time(times) if self.as_time => {
                out.extend_from_slice(&((times.value(row) as u64) ^ 1 << 63).to_be_bytes());
            }
            texts => (self.push)(out, texts.get(row, scratch)),
        }
        if self.is_open {
            close(out, start + 1);
        }
        if self.descending {
            invert(&mut out[start..]);
        }
    }
}

/// Turns an order around.
fn invert(key: &mut [u8]) {
    for byte in key {
        *byte = !*byte;
    }
}

/// Ends what was pushed so that it is the beginning of nothing else: zeros are told from the end.
fn close(out: &mut Vec<u8>, from: usize) {
    if out[from..].contains(&0) {
        let pushed = out.split_off(from);
        for byte in pushed {
            out.push(byte);
            if byte == 0 {
                out.push(0xff);
            }
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// Values that are absent one after the other.
#[derive(Debug, Default, Clone, Copy)]
struct AbsentRun {
    length: u32,
    descending: bool,
}

impl AbsentRun {
    fn push(&mut self, out: &mut Vec<u8>, length: u32, descending: bool) {
        if self.descending != descending {
            self.end(out);
        }
        self.descending = descending;
        self.length += length;
    }

    /// The more values are absent the less the key is: where a shorter run ends, a longer one has another absent value.
    fn end(&mut self, out: &mut Vec<u8>) {
        if self.length > 0 {
            let start = out.len();
            out.push(ABSENT);
            out.extend_from_slice(&(!self.length).to_be_bytes());
            if self.descending {
                invert(&mut out[start..]);
            }
        }
        self.length = 0;
    }
}

/// Keys of rows whose bytes compare as their values do, one after the other. What no row of the batch has is not looked at
/// row by row.
pub(crate) fn sort_keys(parts: &[SparseKey], rows: usize) -> ArrayRef {
    // The parts that some row has, each with the runs of absent ones before it; what is absent behind the last of them.
    let mut present: Vec<(Vec<AbsentRun>, &SparseKey)> = Vec::new();
    let mut absent: Vec<AbsentRun> = Vec::new();
    for part in parts {
        if !part.texts.is_absent() {
            present.push((std::mem::take(&mut absent), part));
        } else if let Some(run) = absent.last_mut().filter(|run| run.descending == part.descending) {
            run.length += 1;
        } else {
            absent.push(AbsentRun { length: 1, descending: part.descending });
        }
    }
    let (mut scratch, mut key) = (String::new(), Vec::new());
    let mut keys = BinaryBuilder::new();
    for row in 0..rows {
        key.clear();
        let mut run = AbsentRun::default();
        for (before, part) in &present {
            for absent in before {
                run.push(&mut key, absent.length, absent.descending);
            }
            if part.texts.is_empty(row) {
                run.push(&mut key, 1, part.descending);
            } else {
                run.end(&mut key);
                part.push(&mut key, row, &mut scratch);
            }
        }
        for absent in &absent {
            run.push(&mut key, absent.length, absent.descending);
        }
        run.end(&mut key);
        keys.append_value(&key);
    }
    Arc::new(keys.finish())
}

/// Puts what rows are grouped by into one column, beside the others. Lacks in DataFusion: keys that take nothing where
/// they are absent.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct PackedKeys {
    pub(crate) keys: Vec<Key>,
    pub(crate) input: Shape,
}

impl PackedKeys {
    pub(crate) fn output(&self) -> Shape {
        self.input.with_texts([PACKED])
    }
}

impl StepKind for PackedKeys {
    const KIND: &'static str = "group.packed_keys";
}

impl Step for PackedKeys {
    fn name(&self) -> &'static str {
        "LogsPackKeys"
    }

    fn detail(&self) -> String {
        format!("{} keys", self.keys.len())
    }

    fn schema(&self) -> SchemaRef {
        self.output().schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let output = self.output();
        let places: Vec<Option<usize>> = self.keys.iter().map(|key| self.input.index(&key.field)).collect();
        let map = move |rows: RecordBatch| {
            let count = rows.num_rows();
            let mut present = Vec::new();
            for (i, (key, place)) in self.keys.iter().zip(&places).enumerate() {
                let Some(place) = place else { continue };
                let column = texts(rows.column(*place))?;
                if !column.is_absent() {
                    present.push((i, key, column));
                }
            }
            let (mut line, mut scratch, mut bucketed) = (String::new(), String::new(), String::new());
            let mut packed = StringViewBuilder::with_capacity(count);
            for row in 0..count {
                line.clear();
                for (i, key, column) in &present {
                    let text = column.get(row, &mut scratch);
                    if let Some(bucket) = &key.bucket {
                        bucketed.clear();
                        bucket.push(&mut bucketed, text);
                        push_packed(&mut line, *i, &bucketed);
                    } else {
                        push_packed(&mut line, *i, text);
                    }
                }
                push_text(&mut packed, &line);
            }
            let mut columns = rows.columns().to_vec();
            columns.insert(self.input.columns.len(), Arc::new(packed.finish()));
            batch(&output, columns, count)
        };
        Ok(map_batches(rows, &task, Box::new(map)))
    }
}

/// Gives what rows were grouped by columns of their own. Lacks in DataFusion: [`PackedKeys`].
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct UnpackedKeys {
    /// The fields of the keys that were packed.
    pub(crate) fields: Vec<String>,
    pub(crate) input: Shape,
    pub(crate) output: Shape,
}

impl StepKind for UnpackedKeys {
    const KIND: &'static str = "group.unpacked_keys";
}

impl Step for UnpackedKeys {
    fn name(&self) -> &'static str {
        "LogsUnpackKeys"
    }

    fn detail(&self) -> String {
        format!("{} keys", self.fields.len())
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        /// Where a column comes from.
        #[derive(Clone, Copy)]
        enum Source {
            Input(usize),
            Packed(usize),
        }
        let from = |column: &Column| match self.input.index(&column.name) {
            Some(own) => Some(Source::Input(own)),
            // Of keys of one name the last wins.
            None => self.fields.iter().rposition(|field| *field == column.name).map(Source::Packed),
        };
        let places: Vec<Source> = self.output.columns.iter().filter_map(from).collect();
        let map = move |rows: RecordBatch| {
            let packed = texts_of(&rows, &self.input, PACKED)?;
            let unpacked = unpack(&packed, self.fields.len(), rows.num_rows())?;
            let columns = places.iter().map(|place| match place {
                Source::Input(own) => Arc::clone(rows.column(*own)),
                Source::Packed(own) => Arc::clone(&unpacked[*own]),
            });
            batch(&self.output, columns.collect(), rows.num_rows())
        };
        Ok(map_batches(rows, &task, Box::new(map)))
    }
}

/// Which keys are packed, and which stay as they are: times are no texts.
pub(crate) fn parted(keys: Vec<Key>, input: &Shape) -> (Vec<Key>, Vec<Key>) {
    let times: Vec<&str> = input
        .columns
        .iter()
        .filter(|column| column.kind == ColumnStorage::Time)
        .map(|column| column.name.as_str())
        .collect();
    keys.into_iter().partition(|key| !times.contains(&key.field.as_str()))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, StringViewArray};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn push_bytes(key: &mut Vec<u8>, text: &str) {
        key.extend_from_slice(text.as_bytes());
    }

    fn part(values: impl Iterator<Item = String>, descending: bool) -> SparseKey {
        let array: StringViewArray = values.map(|value| Some(value).filter(|value| !value.is_empty())).collect();
        let array: ArrayRef = Arc::new(array);
        SparseKey { texts: texts(&array).expect("texts"), descending, push: push_bytes, is_open: true, as_time: false }
    }

    proptest! {
        /// Keys compare as the values of rows do, of which the first that differ decide.
        #[test]
        fn keys_compare_as_values(
            rows in vec(vec(0..6_usize, 7), 1..12),
            descending in vec(any::<bool>(), 7),
            absent in vec(any::<bool>(), 7),
        ) {
            let values = ["", "", "a", "a\0", "a\0\u{1}", "b"];
            let value = |row: &Vec<usize>, column: usize| if absent[column] { "" } else { values[row[column]] };
            let parts: Vec<SparseKey> = (0..7)
                .map(|column| part(rows.iter().map(|row| value(row, column).to_owned()), descending[column]))
                .collect();
            let keys = sort_keys(&parts, rows.len());
            let keys = keys.as_binary::<i32>();
            for (i, a) in rows.iter().enumerate() {
                for (j, b) in rows.iter().enumerate() {
                    let expected = (0..7).fold(std::cmp::Ordering::Equal, |order, column| {
                        let own = value(a, column).cmp(value(b, column));
                        order.then(if descending[column] { own.reverse() } else { own })
                    });
                    prop_assert_eq!(keys.value(i).cmp(keys.value(j)), expected, "{:?} {:?}", a, b);
                }
            }
        }
    }

    #[test]
    fn what_is_absent_takes_next_to_nothing() {
        let one = |n: usize| part([if n == 500 { "x" } else { "" }].map(str::to_owned).into_iter(), n % 1000 > 700);
        let parts: Vec<SparseKey> = (0..1000).map(one).collect();
        // A run, a value, a run, and one in the other direction.
        assert_eq!(sort_keys(&parts, 1).as_binary::<i32>().value(0).len(), 5 + (1 + 1 + 2) + 5 + 5);
    }
}
