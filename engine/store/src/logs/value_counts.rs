//! Counts how many rows have each value of each field ([`LogForm::ValueCounts`](quiver_types::logs::LogForm)). A field
//! with too many values is usually detected in its first rows, and not read in later blocks.

use std::collections::{HashMap, HashSet};

use arrow::array::{Array, RecordBatch};
use arrow::buffer::BooleanBuffer;
use foldhash::fast::FixedState;
use parking_lot::Mutex;
use quiver_types::logs::{CountedField, ValueCounts, ValueLimits};
use quiver_types::scan::ScanMemory;

use super::block::{Block, COMPUTED, column, given_by_stream};
use super::column::{Column, Values, dictionary};
use super::evaluation::{none, within};
use crate::error::{Context, Result};

/// A field is checked for too many values on this many rows before the others are read.
const FIRST_ROWS: usize = 4096;
/// Rows that are counted before the memory of what they brought is reserved. A row group may have a different value of
/// each field in each of its rows.
const PIECE_ROWS: usize = 8192;

/// Names of fields that are left out because they have too many values; shared by the partitions of a scan.
#[derive(Debug, Default)]
pub(super) struct LeftOut(Mutex<HashSet<String, FixedState>>);

/// Counts the values of the selected rows. Their memory, and that of the columns read, is reserved while they are counted.
///
/// # Errors
/// [`LimitExceeded`](quiver_types::ErrorKind::LimitExceeded) if there is no such memory; errors of reading.
pub(super) async fn value_counts(
    block: &mut dyn Block,
    limits: ValueLimits,
    left_out: &LeftOut,
    rows: &BooleanBuffer,
    memory: &dyn ScanMemory,
) -> Result<ValueCounts> {
    let mut counts = ValueCounts::new(limits);
    counts.rows = rows.count_set_bits() as u64;
    if counts.rows == 0 {
        return Ok(counts);
    }
    let windows = windows(rows);
    for name in COMPUTED.into_iter().map(str::to_owned).chain(block.names("")) {
        let field = counts.field(&name);
        if left_out.0.lock().contains(&name) {
            // Repeated for each block: rows without columns may have the field too, and the plan may run again.
            counts.leave_out(field);
            continue;
        }
        match given_by_stream(block, &name) {
            Some(value) => {
                let mut buffer = String::new();
                for window in windows.iter().flatten() {
                    if counts.is_out(field) {
                        break;
                    }
                    let (values, rows) = block.by_streams(std::slice::from_ref(&value), window).await?;
                    for (values, (at, rows)) in values.iter().flat_map(|v| rows.iter().enumerate().map(move |r| (v, r)))
                    {
                        counts.add(field, values.text(at, &mut buffer), *rows);
                    }
                    memory.try_resize(taken(block.bytes(), &counts))?;
                }
            }
            None => {
                for window in windows.iter().flatten() {
                    if !counts.is_out(field) {
                        let column = column(block, &name, window).await?;
                        for piece in pieces(window) {
                            add_column(&mut counts, field, &column, &piece);
                            memory.try_resize(taken(block.bytes(), &counts))?;
                        }
                    }
                }
            }
        }
        if counts.is_out(field) {
            left_out.0.lock().insert(name);
        }
    }
    let (of_columns, mut added, mut reserved) = (block.bytes(), 0_usize, Ok(()));
    block
        .each_overflow(rows, &mut |name, value| {
            if reserved.is_ok() {
                let field = counts.field(name);
                counts.add(field, value, 1);
                added += 1;
                if added.is_multiple_of(PIECE_ROWS) {
                    reserved = memory.try_resize(taken(of_columns, &counts));
                }
            }
        })
        .await?;
    reserved?;
    memory.try_resize(taken(block.bytes(), &counts))?;
    Ok(counts)
}

/// Memory of a block's columns and of counts. These count twice: what grows is copied, and in the end it becomes a batch.
fn taken(of_columns: usize, counts: &ValueCounts) -> usize {
    of_columns.saturating_add(2 * counts.memory_bytes())
}

/// The counts as a batch with the projected columns.
pub(super) fn to_batch(counts: ValueCounts, projection: &[usize]) -> Result<RecordBatch> {
    counts.to_batch()?.project(projection).internal("cannot build a batch of counts")
}

/// The first selected rows, and the rest.
fn windows(rows: &BooleanBuffer) -> [Option<BooleanBuffer>; 2] {
    match rows.set_indices().nth(FIRST_ROWS) {
        None => [Some(rows.clone()), None],
        Some(end) => [Some(within(rows, 0, end)), Some(within(rows, end, rows.len()))],
    }
}

/// The selected rows, some at a time.
fn pieces(rows: &BooleanBuffer) -> impl Iterator<Item = BooleanBuffer> {
    let piece = move |from: usize| within(rows, from, rows.len().min(from + PIECE_ROWS));
    (0..rows.len()).step_by(PIECE_ROWS).map(piece).filter(|piece| !none(piece))
}

fn add_column(counts: &mut ValueCounts, field: CountedField, column: &Column, rows: &BooleanBuffer) {
    let values = &column.values;
    match values {
        Values::Missing => {}
        Values::Constant(value) => counts.add(field, value, rows.count_set_bits() as u64),
        Values::Coded(array) => {
            let Some(texts) = dictionary(array) else { return };
            let mut of_codes = vec![0; texts.len()];
            let (keys, nulls) = (array.keys().values(), array.keys().nulls());
            // Codes of missing values are undefined.
            column.for_each(rows, |_, at| {
                if nulls.is_none_or(|nulls| nulls.is_valid(at)) {
                    of_codes[keys[at] as usize] += 1;
                }
            });
            of_codes.iter().enumerate().for_each(|(code, n)| counts.add(field, texts.value(code), *n));
        }
        Values::Int(array) | Values::Time(array, _) => {
            add_numbers(counts, field, column, rows, |at| array.value(at) as u64);
        }
        Values::Float(array) => add_numbers(counts, field, column, rows, |at| array.value(at).to_bits()),
        Values::Ipv4(array) => add_numbers(counts, field, column, rows, |at| u64::from(array.value(at))),
        Values::Text(_) | Values::Hex(_) => {
            let mut buffer = String::new();
            column.for_each(rows, |_, at| {
                if !counts.is_out(field) {
                    counts.add(field, values.text(at, &mut buffer), 1);
                }
            });
        }
    }
}

/// Counts numbers by their bit patterns; only distinct ones are converted to text.
fn add_numbers(
    counts: &mut ValueCounts,
    field: CountedField,
    column: &Column,
    rows: &BooleanBuffer,
    bits: impl Fn(usize) -> u64,
) {
    // For each number, where it first occurs and how often.
    let mut found: HashMap<u64, (usize, u64), FixedState> = HashMap::default();
    // One value more than the field may have shows that it is to be left out; the rest need not be known.
    let values_max = counts.limits().values;
    column.for_each(rows, |_, at| {
        if found.len() as u64 <= values_max && !column.values.is_null(at) {
            found.entry(bits(at)).or_insert((at, 0)).1 += 1;
        }
    });
    let mut buffer = String::new();
    for (at, n) in found.into_values() {
        counts.add(field, column.values.text(at, &mut buffer), n);
    }
}
