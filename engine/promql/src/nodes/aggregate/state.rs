//! The state of an aggregation as record batches, sent from a partition to the node that merges.
//!
//! Columns: `partition` and `group` (`UInt32`); the numbers of the operator (`sum`, its compensation `lost`, …), each
//! `FixedSizeList<Float64, S>`; its flags (`seen`, …), each `FixedSizeList<Boolean, S>`, with S steps; and if native
//! histograms are possible `h` `List<Struct>`, with an entry for each step of the group that has one. A partition sends
//! one batch with a row for each group; for `quantile` its rows, in batches as they come. Numbers are passed on without
//! copying.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, Float64Array, ListArray, StringBuilder, StructArray,
    UInt32Array,
};
use arrow::buffer::{BooleanBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, Float64Type, Schema, SchemaRef, UInt32Type};
use arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use quiver_types::histogram::{HistogramBuilder, histogram_fields, read_histogram};
use quiver_types::{Error, ErrorKind};

use crate::aggregate::{HistogramPart, Parts};
use crate::ast::AggregateOp;
use crate::histogram::Compensation;

/// Columns before those of the operator: partition and group.
const KEYS: usize = 2;

fn item(of: DataType) -> Arc<Field> {
    Arc::new(Field::new("item", of, false))
}

/// Fields of a histogram in a state, as in `HistogramPart`; the compensation has the form of a histogram, too.
fn histogram_state() -> Fields {
    let field = |name: &str, of: DataType| Field::new(name, of, false);
    Fields::from(vec![
        field("step", DataType::UInt32),
        field("total", DataType::Struct(histogram_fields())),
        field("lost", DataType::Struct(histogram_fields())),
        field("count", DataType::Float64),
        field("incremental", DataType::Boolean),
        field("saw_reset", DataType::Boolean),
        field("saw_no_reset", DataType::Boolean),
        field("incompatible", DataType::Boolean),
        field("metric", DataType::Utf8),
    ])
}

/// The schema of an operator's states.
pub(super) fn schema(op: AggregateOp, steps: usize, histograms: bool) -> SchemaRef {
    let list = |name: &str, of: DataType| Field::new(name, DataType::FixedSizeList(item(of), steps as i32), false);
    let (numbers, flags) = Parts::columns(op);
    let mut fields: Vec<Field> = ["partition", "group"].map(|name| Field::new(name, DataType::UInt32, false)).into();
    fields.extend(numbers.iter().map(|&name| list(name, DataType::Float64)));
    fields.extend(flags.iter().map(|&name| list(name, DataType::Boolean)));
    if histograms {
        fields.push(Field::new("h", DataType::List(item(DataType::Struct(histogram_state()))), false));
    }
    Arc::new(Schema::new(fields))
}

/// The partition that a batch comes from.
pub(super) fn partition(batch: &RecordBatch) -> Option<u32> {
    let column = batch.columns().first()?.as_primitive_opt::<UInt32Type>()?;
    column.values().first().copied()
}

/// Memory of a batch together with the state made from it, whose rows take `row_bytes` each.
pub(super) fn held_bytes(batch: &RecordBatch, row_bytes: usize) -> usize {
    const PLACE_BYTES: usize = size_of::<(u32, u32)>() + size_of::<u32>();
    let hists = batch.column_by_name("h").map_or(0, |column| {
        column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size())
    });
    batch.num_rows() * (row_bytes + PLACE_BYTES) + 2 * hists
}

/// Converts the state of a partition to a batch.
pub(super) fn to_batch(partition: usize, parts: Parts, steps: usize, schema: &SchemaRef) -> Result<RecordBatch> {
    let Parts { groups, numbers, flags, hists } = parts;
    let rows = groups.len();
    let mut columns: Vec<ArrayRef> =
        vec![Arc::new(UInt32Array::from_value(partition as u32, rows)), Arc::new(UInt32Array::from(groups))];
    for numbers in numbers {
        let numbers = Arc::new(Float64Array::new(ScalarBuffer::from(numbers), None));
        let list = FixedSizeListArray::try_new(item(DataType::Float64), steps as i32, numbers, None)?;
        columns.push(Arc::new(list));
    }
    for flags in flags {
        let bits = BooleanBuffer::collect_bool(flags.len(), |at| flags[at]);
        let flags = Arc::new(BooleanArray::new(bits, None));
        let list = FixedSizeListArray::try_new(item(DataType::Boolean), steps as i32, flags, None)?;
        columns.push(Arc::new(list));
    }
    if schema.fields().len() > columns.len() {
        columns.push(Arc::new(histogram_column(hists, rows, steps)?));
    } else if !hists.is_empty() {
        return Err(DataFusionError::Internal("histograms in a state that can hold none".into()));
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

fn histogram_column(parts: Vec<HistogramPart>, rows: usize, steps: usize) -> Result<ListArray> {
    // Lists and strings of a column have 32-bit offsets.
    let longest = |h: &quiver_types::Histogram| h.positive.len().max(h.negative.len()).max(h.custom_bounds.len());
    let items: usize = parts.iter().map(|part| longest(&part.total).max(part.metric.len())).sum();
    if i32::try_from(items).is_err() {
        let error = Error::new(ErrorKind::LimitExceeded, "the histograms of an aggregation have too many buckets");
        return Err(quiver_query::to_datafusion(error));
    }
    let mut lengths = vec![0; rows];
    let mut at = Vec::with_capacity(parts.len());
    let (mut totals, mut lost) = (HistogramBuilder::default(), HistogramBuilder::default());
    let mut counts = Vec::with_capacity(parts.len());
    let mut metrics = StringBuilder::new();
    let flag = |of: fn(&HistogramPart) -> bool| {
        Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(parts.len(), |i| of(&parts[i])), None)) as ArrayRef
    };
    let flags = [
        flag(|part| part.incremental),
        flag(|part| part.saw_reset),
        flag(|part| part.saw_no_reset),
        flag(|part| part.incompatible),
    ];
    for part in parts {
        lengths[part.slot / steps] += 1;
        at.push((part.slot % steps) as u32);
        totals.push(&part.total);
        lost.push(&part.lost.into_histogram());
        counts.push(part.count);
        metrics.append_value(&part.metric);
    }
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(UInt32Array::from(at)),
        Arc::new(totals.finish()),
        Arc::new(lost.finish()),
        Arc::new(Float64Array::from(counts)),
    ];
    columns.extend(flags);
    columns.push(Arc::new(metrics.finish()));
    let items = StructArray::try_new(histogram_state(), columns, None)?;
    let field = item(DataType::Struct(histogram_state()));
    Ok(ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), Arc::new(items), None)?)
}

/// Reads a batch; takes its numbers without copying if they are not shared.
pub(super) fn to_parts(batch: RecordBatch, op: AggregateOp, groups: usize, steps: usize) -> Result<Parts> {
    let shape = || DataFusionError::Internal("a batch that is no state of an aggregation".into());
    let (numbers, flags) = Parts::columns(op);
    if batch.num_columns() < KEYS + numbers.len() + flags.len() {
        return Err(shape());
    }
    let of_row = batch.column(1).as_primitive_opt::<UInt32Type>().ok_or_else(shape)?.values().to_vec();
    if of_row.iter().any(|group| *group as usize >= groups) {
        return Err(shape());
    }
    let columns = batch.columns()[KEYS..].to_vec();
    drop(batch);
    let mut columns = columns.into_iter();
    let numbers = columns.by_ref().take(numbers.len()).map(|column| read_numbers(column, steps).ok_or_else(shape));
    let numbers = numbers.collect::<Result<Vec<_>>>()?;
    let flags = columns.by_ref().take(flags.len()).map(|column| read_flags(column, steps).ok_or_else(shape));
    let flags = flags.collect::<Result<Vec<_>>>()?;
    let hists = match columns.next() {
        Some(column) => read_histograms(&column, steps).ok_or_else(shape)?,
        None => vec![],
    };
    Ok(Parts { groups: of_row, numbers, flags, hists })
}

/// The child array of a fixed-size list, and the offset and length of its used part.
fn items(column: ArrayRef, steps: usize) -> Option<(ArrayRef, usize, usize)> {
    let list = column.as_fixed_size_list_opt()?.clone();
    drop(column);
    if list.value_length() as usize != steps {
        return None;
    }
    let (offset, len) = (list.value_offset(0) as usize, list.len() * steps);
    let (_, _, items, _) = list.into_parts();
    Some((items, offset, len))
}

fn read_numbers(column: ArrayRef, steps: usize) -> Option<Vec<f64>> {
    let (items, offset, len) = items(column, steps)?;
    let numbers = items.as_primitive_opt::<Float64Type>()?.slice(offset, len);
    drop(items);
    let (_, buffer, _) = numbers.into_parts();
    Some(match buffer.into_inner().into_vec::<f64>() {
        Ok(numbers) => numbers,
        Err(shared) => ScalarBuffer::<f64>::from(shared).to_vec(),
    })
}

fn read_flags(column: ArrayRef, steps: usize) -> Option<Vec<bool>> {
    let (items, offset, len) = items(column, steps)?;
    let bits = items.as_boolean_opt()?.values().slice(offset, len);
    // Usually all or none are set.
    Some(match bits.count_set_bits() {
        0 => vec![false; len],
        set if set == len => vec![true; len],
        _ => bits.iter().collect(),
    })
}

fn read_histograms(column: &ArrayRef, steps: usize) -> Option<Vec<HistogramPart>> {
    let lists = column.as_list_opt::<i32>()?;
    let items = lists.values().as_struct_opt()?;
    let named = |name: &str| items.column_by_name(name);
    let flag = |name: &str| named(name)?.as_boolean_opt();
    let at = named("step")?.as_primitive_opt::<UInt32Type>()?;
    let (totals, lost) = (named("total")?.as_struct_opt()?, named("lost")?.as_struct_opt()?);
    let counts = named("count")?.as_primitive_opt::<Float64Type>()?;
    let (incremental, incompatible) = (flag("incremental")?, flag("incompatible")?);
    let (saw_reset, saw_no_reset) = (flag("saw_reset")?, flag("saw_no_reset")?);
    let metrics = named("metric")?.as_string_opt::<i32>()?;
    let mut parts = Vec::new();
    for (row, range) in lists.offsets().windows(2).enumerate() {
        for i in range[0] as usize..range[1] as usize {
            let step = at.value(i) as usize;
            if step >= steps {
                return None;
            }
            parts.push(HistogramPart {
                slot: row * steps + step,
                total: read_histogram(totals, i)?,
                lost: Compensation::of_histogram(read_histogram(lost, i)?),
                count: counts.value(i),
                incremental: incremental.value(i),
                saw_reset: saw_reset.value(i),
                saw_no_reset: saw_no_reset.value(i),
                incompatible: incompatible.value(i),
                metric: metrics.value(i).to_owned(),
            });
        }
    }
    Some(parts)
}
