//! What a scan returns: the requested columns of the matching rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayBuilder, ArrayRef, MapArray, RecordBatch, RecordBatchOptions, StringArray, StringBuilder, StructArray,
    TimestampNanosecondArray, UInt8Array, UInt64Array,
};
use arrow::buffer::{BooleanBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, SchemaRef};
use quiver_types::logs::{LogForm, LogRequest, OBSERVED_TIME, SEVERITY_NUMBER, TIME};
use quiver_types::tables::columns::map;

use super::block::{Block, COMPUTED, given_by_stream, values};
use super::column::Values;
use super::stream_values::StreamValue;
use crate::error::{Context, Result};

/// Builds a map column, row by row.
#[derive(Debug)]
pub(crate) struct MapWriter {
    offsets: Vec<i32>,
    names: StringBuilder,
    values: StringBuilder,
}

impl MapWriter {
    pub(crate) fn new(rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self { offsets, names: StringBuilder::new(), values: StringBuilder::new() }
    }

    /// Adds an entry to the current row. Entries must be sorted by name.
    pub(crate) fn push(&mut self, name: &str, value: &str) {
        self.names.append_value(name);
        self.values.append_value(value);
    }

    /// Ends the current row.
    pub(crate) fn end_row(&mut self) {
        self.offsets.push(self.names.len() as i32);
    }

    pub(crate) fn finish(mut self) -> Result<MapArray> {
        let DataType::Map(entries, sorted) = map() else { unreachable!("a map") };
        let DataType::Struct(fields) = entries.data_type().clone() else { unreachable!("of entries") };
        let pairs: Vec<ArrayRef> = vec![Arc::new(self.names.finish()), Arc::new(self.values.finish())];
        let what = "cannot build a column of fields";
        let structs = StructArray::try_new(fields, pairs, None).internal(what)?;
        MapArray::try_new(entries, OffsetBuffer::new(self.offsets.into()), structs, None, sorted).internal(what)
    }
}

fn asked(request: &LogRequest) -> Vec<&str> {
    request.columns.iter().map(|c| c.name.as_str()).collect()
}

/// Reads everything that the output of the rows needs, in advance of many calls of [`output`].
pub(crate) async fn prefetch(
    block: &mut dyn Block,
    request: &LogRequest,
    projection: &[usize],
    rows: &BooleanBuffer,
) -> Result<()> {
    for &at in projection {
        match request.columns.get(at) {
            Some(wanted) => block.prefetch(&wanted.name, rows).await?,
            None if request.form == LogForm::Counted => {}
            None => block.prefetch_rest(&asked(request), rows).await?,
        }
    }
    Ok(())
}

/// For each field, how many of the selected rows have it.
pub(crate) async fn field_counts(
    block: &mut dyn Block,
    projection: &[usize],
    schema: &SchemaRef,
    rows: &BooleanBuffer,
) -> Result<RecordBatch> {
    let mut counts = BTreeMap::new();
    let count = rows.count_set_bits() as u64;
    if count > 0 {
        counts.extend(COMPUTED.map(|name| (name.to_owned(), count)));
        block.field_counts(rows, &mut counts).await?;
    }
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(counts.keys()));
    let rows: ArrayRef = Arc::new(UInt64Array::from_iter_values(counts.values().copied()));
    let arrays = projection.iter().map(|&at| Arc::clone(if at == 0 { &names } else { &rows })).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(counts.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options).internal("cannot build a batch of counts")
}

/// One row for each stream of the selected rows; `None` if a column does not depend on the stream only.
pub(crate) async fn by_stream(
    block: &mut dyn Block,
    request: &LogRequest,
    projection: &[usize],
    schema: &SchemaRef,
    rows: &BooleanBuffer,
) -> Result<Option<RecordBatch>> {
    let mut values = Vec::with_capacity(projection.len());
    for wanted in projection.iter().filter_map(|&at| request.columns.get(at)) {
        let Some(value) = given_by_stream(block, &wanted.name) else { return Ok(None) };
        values.push(value);
    }
    let same = values.iter().all(|value| matches!(value, StreamValue::Same(_)));
    let (columns, counts) = if same {
        // No requested column distinguishes the streams.
        let one = |value: &StreamValue| match value {
            StreamValue::Same(text) if !text.is_empty() => Values::Constant(Arc::clone(text)),
            _ => Values::Missing,
        };
        let count = rows.count_set_bits() as u64;
        (values.iter().map(one).collect(), if count > 0 { vec![count] } else { Vec::new() })
    } else {
        block.by_streams(&values, rows).await?
    };
    let (mut columns, len) = (columns.into_iter(), counts.len());
    let counts: ArrayRef = Arc::new(UInt64Array::from(counts));
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(projection.len());
    for &at in projection {
        arrays.push(match request.columns.get(at) {
            None => Arc::clone(&counts),
            Some(wanted) => {
                let values = columns.next().unwrap_or(Values::Missing);
                if wanted.stored { values.to_stored(len).into_array(len) } else { Arc::new(values.to_text(len)) }
            }
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(len));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options);
    batch.internal("cannot build a batch of counted rows").map(Some)
}

/// The requested columns of the selected rows; `projection` selects among them, and `schema` describes the result.
pub(crate) async fn output(
    block: &mut dyn Block,
    request: &LogRequest,
    projection: &[usize],
    schema: &SchemaRef,
    rows: &BooleanBuffer,
) -> Result<RecordBatch> {
    let count = rows.count_set_bits();
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(projection.len());
    // A query may name hundreds of fields that no row has: they are one array.
    let mut missing: Option<ArrayRef> = None;
    for &at in projection {
        let Some(wanted) = request.columns.get(at) else {
            if request.form == LogForm::Counted {
                // Every row counts for itself only.
                arrays.push(Arc::new(UInt64Array::new_null(count)));
                continue;
            }
            arrays.push(Arc::new(block.rest(&asked(request), rows).await?));
            continue;
        };
        let values = values(block, &wanted.name, rows).await?;
        arrays.push(match (wanted.name.as_str(), values) {
            (TIME, Values::Time(times, _)) => {
                Arc::new(TimestampNanosecondArray::new(times.values().clone(), None).with_timezone("UTC"))
            }
            (SEVERITY_NUMBER, Values::Int(numbers)) => {
                Arc::new(numbers.iter().map(|n| n.map(|n| n as u8)).collect::<UInt8Array>())
            }
            (SEVERITY_NUMBER, _) => Arc::new(UInt8Array::new_null(count)),
            (OBSERVED_TIME, Values::Time(times, _)) => {
                let nulls = times.nulls().cloned();
                Arc::new(TimestampNanosecondArray::new(times.values().clone(), nulls).with_timezone("UTC"))
            }
            (OBSERVED_TIME, _) => Arc::new(TimestampNanosecondArray::new_null(count).with_timezone("UTC")),
            (_, values) if wanted.stored => values.to_stored(count).into_array(count),
            (_, Values::Missing) => Arc::clone(missing.get_or_insert_with(|| Arc::new(Values::Missing.to_text(count)))),
            (_, values) => Arc::new(values.to_text(count)),
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options).internal("cannot build a batch of logs")
}
