//! `stream_context`: the neighbours of matching rows in their streams. The input holds the rows of these streams by
//! (stream, time); a filter says which of them match.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringViewArray, TimestampNanosecondArray, UInt32Array};
use arrow::compute::{concat_batches, interleave_record_batch, take};
use arrow::datatypes::{SchemaRef, TimestampNanosecondType};
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::StreamExt;
use quiver_types::logs::{LogFilter, MSG, STREAM, STREAM_ID, TIME};
use serde::{Deserialize, Serialize};

use super::filter::evaluate;
use super::sort::Sort;
use crate::nodes::{Batches, Step};
use crate::plan::Planned;
use crate::rows::{Shape, batch, empty_rest, missing, texts_of};
use crate::written::{StepKind, StepReader};

/// How its step is read.
pub(crate) const STEPS: &[StepReader] = &[StepReader::of::<Neighbours>()];

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Context {
    pub(crate) filter: LogFilter,
    pub(crate) before: u64,
    pub(crate) after: u64,
    /// How far before the first and behind the last matching row of its stream a neighbour may be, in nanoseconds.
    pub(crate) window_ns: i64,
}

/// How far away a neighbour may be unless said otherwise.
pub(crate) const WINDOW_NS: i64 = 3_600_000_000_000;

/// What the order of a row in the answer takes, and a row `---` behind it.
const CHOSEN_BYTES: usize = 96;

/// Gives matching rows with their neighbours, stream by stream, of rows by stream and time. Lacks in DataFusion: rows that
/// are kept for their neighbours, and delimiters between them.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Neighbours {
    context: Context,
    shape: Shape,
}

/// Adds it, and the order that it needs, to a plan.
pub(crate) fn plan(context: Context, rows: Planned) -> quiver_types::Result<Planned> {
    let by = vec![(STREAM_ID.to_owned(), false), (TIME.to_owned(), false)];
    let rows = Sort::by(rows.shape.clone(), by).plan(rows)?;
    let shape = rows.shape.clone();
    rows.then(Neighbours { context, shape: shape.clone() }, shape)
}

impl StepKind for Neighbours {
    const KIND: &'static str = "stream_context";
}

impl Step for Neighbours {
    fn name(&self) -> &'static str {
        "LogsStreamContext"
    }

    fn detail(&self) -> String {
        format!("before={} after={}", self.context.before, self.context.after)
    }

    fn schema(&self) -> SchemaRef {
        self.shape.schema()
    }

    fn once(&self) -> bool {
        true
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let streams = Streams {
            rows,
            shape: self.shape.clone(),
            held: Vec::new(),
            stream: String::new(),
            reservation: MemoryConsumer::new("stream_context").register(task.memory_pool()),
            done: false,
        };
        let begun = (streams, self, Open::default());
        let batches = futures::stream::try_unfold(begun, |(mut streams, own, mut open)| async move {
            while let Some(stream) = streams.next().await? {
                let room = stream.num_rows() * CHOSEN_BYTES;
                streams.reservation.try_grow(room)?;
                let chosen = choose(&stream, &own.context, &own.shape)?;
                streams.reservation.shrink(room);
                let Some(chosen) = chosen else { continue };
                open.groups += chosen.groups;
                let rows = match open.closing.replace(chosen.closing) {
                    Some(before) => concat_batches(&own.shape.schema(), [&before, &chosen.rows])?,
                    None => chosen.rows,
                };
                return Ok(Some((rows, (streams, own, open))));
            }
            // A group alone needs nothing that closes it.
            let closing = open.closing.take().filter(|_| open.groups > 1);
            Ok(closing.map(|rows| (rows, (streams, own, open))))
        });
        Ok(batches.boxed())
    }
}

/// What is known of the groups so far.
#[derive(Default)]
struct Open {
    groups: usize,
    /// The row `---` behind the last of them, which is written with the next, or at the end.
    closing: Option<RecordBatch>,
}

/// Cuts ordered rows into streams.
struct Streams {
    rows: SendableRecordBatchStream,
    shape: Shape,
    held: Vec<RecordBatch>,
    stream: String,
    reservation: MemoryReservation,
    done: bool,
}

impl Streams {
    /// The rows of the next stream.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(rows) = self.split()? {
                return Ok(Some(rows));
            }
            if self.done {
                return if self.held.is_empty() { Ok(None) } else { self.take().map(Some) };
            }
            match self.rows.next().await {
                None => self.done = true,
                Some(rows) => {
                    let rows = rows?;
                    self.reservation.try_grow(rows.get_array_memory_size())?;
                    self.held.push(rows);
                }
            }
        }
    }

    /// Cuts where the last batch held begins another stream.
    fn split(&mut self) -> Result<Option<RecordBatch>> {
        let Some(last) = self.held.last().cloned() else { return Ok(None) };
        let ids = texts_of(&last, &self.shape, STREAM_ID)?;
        let mut scratch = String::new();
        if self.held.len() == 1 {
            ids.get(0, &mut scratch).clone_into(&mut self.stream);
        }
        let Some(cut) = (0..last.num_rows()).find(|row| ids.get(*row, &mut scratch) != self.stream) else {
            return Ok(None);
        };
        self.held.pop();
        if cut > 0 {
            self.held.push(last.slice(0, cut));
        }
        let stream = self.take()?;
        self.held.push(last.slice(cut, last.num_rows() - cut));
        self.reservation.try_grow(last.get_array_memory_size())?;
        Ok(Some(stream))
    }

    fn take(&mut self) -> Result<RecordBatch> {
        let rows = concat_batches(&self.shape.schema(), &self.held)?;
        self.held.clear();
        self.reservation.free();
        Ok(rows)
    }
}

/// The groups of one stream.
struct Chosen {
    rows: RecordBatch,
    groups: usize,
    /// The row `---` that closes the last of them.
    closing: RecordBatch,
}

/// Each matching row of a stream with its neighbours, a row `---` behind each group but the last; none without any.
fn choose(rows: &RecordBatch, context: &Context, shape: &Shape) -> Result<Option<Chosen>> {
    let mask = evaluate(&context.filter, rows, shape)?;
    let index = shape.index(TIME).unwrap_or(0);
    let times = rows.column(index).as_primitive::<TimestampNanosecondType>();
    let matching: Vec<usize> = mask.set_indices().collect();
    let (Some(&first), Some(&last)) = (matching.first(), matching.last()) else { return Ok(None) };
    let (first, last) = (times.value(first), times.value(last));
    let window = first.saturating_sub(context.window_ns)..=last.saturating_add(context.window_ns);
    let near = |other: usize| window.contains(&times.value(other));
    let groups = groups(&matching, rows.num_rows(), (context.before as usize, context.after as usize), near);
    let ends: UInt32Array = groups.iter().map(|group| group.end.saturating_sub(1) as u32).collect();
    let closing = delimiters(rows, shape, times, &ends)?;
    let mut order: Vec<(usize, usize)> = Vec::new();
    for (n, group) in groups.iter().enumerate() {
        order.extend(group.clone().map(|row| (0, row)));
        if n + 1 < groups.len() {
            order.push((1, n));
        }
    }
    let rows = interleave_record_batch(&[rows, &closing], &order)?;
    Ok(Some(Chosen { rows, groups: groups.len(), closing: closing.slice(groups.len() - 1, 1) }))
}

/// The rows of each matching row's group. What lies between two of them goes to the earlier one as far as `after`
/// reaches, then to the later one.
fn groups(
    matching: &[usize],
    rows: usize,
    (before, after): (usize, usize),
    near: impl Fn(usize) -> bool,
) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::with_capacity(matching.len());
    let mut next = 0;
    for (n, &row) in matching.iter().enumerate() {
        let bound = matching.get(n + 1).copied().unwrap_or(rows);
        let (mut from, mut to) = (row, row + 1);
        while from > next && row - from < before && near(from - 1) {
            from -= 1;
        }
        while to < bound && to - row <= after && near(to) {
            to += 1;
        }
        out.push(from..to);
        next = to;
    }
    out
}

/// Makes a row `---` behind each of some rows.
fn delimiters(
    rows: &RecordBatch,
    shape: &Shape,
    times: &TimestampNanosecondArray,
    ends: &UInt32Array,
) -> Result<RecordBatch> {
    let count = ends.len();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (i, name) in shape.names().enumerate() {
        columns.push(match name {
            TIME => {
                let behind = ends.values().iter().map(|&row| times.value(row as usize).saturating_add(1));
                Arc::new(TimestampNanosecondArray::from_iter_values(behind).with_timezone("UTC"))
            }
            MSG => Arc::new(StringViewArray::from(vec!["---"; count])),
            STREAM | STREAM_ID => take(rows.column(i), ends, None)?,
            _ => missing(count),
        });
    }
    if shape.rest {
        columns.push(empty_rest(count)?);
    }
    batch(shape, columns, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_matching_row_has_a_group_of_its_own() {
        let check = |before: usize, after: usize, expected: &[Range<usize>]| {
            assert_eq!(groups(&[4, 6, 7, 15], 20, (before, after), |_| true), expected, "{before} {after}");
        };
        check(1, 0, &[3..5, 5..7, 7..8, 14..16]);
        check(0, 1, &[4..6, 6..7, 7..9, 15..17]);
        check(2, 3, &[2..6, 6..7, 7..11, 13..19]);
        check(10, 10, &[0..6, 6..7, 7..15, 15..20]);
        assert_eq!(groups(&[4], 20, (9, 9), |row| (2..6).contains(&row)), [2..6]);
    }
}
