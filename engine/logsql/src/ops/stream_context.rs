//! `stream_context`: the neighbours of matching rows in their streams. The input holds the rows of these streams by
//! (stream, time); a filter says which of them match.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray, StringViewArray, TimestampNanosecondArray, UInt32Array};
use arrow::compute::{concat_batches, interleave_record_batch, take, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::{StreamExt, TryStreamExt};
use quiver_query::unpinned;
use quiver_types::logs::{LogFilter, MSG, STREAM, STREAM_ID, TIME};
use serde::{Deserialize, Serialize};

use super::filter::evaluate;
use super::sort::{Sort, row_key};
use crate::partial_plan::PartialPlan;
use crate::rows::{Shape, batch, empty_rest, missing, texts_of};
use crate::step::{Batches, Step, StepKind, StepReader};

/// How its step is read.
pub(crate) const STEPS: &[StepReader] = &[StepReader::of::<Neighbours>()];

/// What `stream_context` asks for.
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
pub(crate) fn plan(context: Context, rows: PartialPlan) -> quiver_types::Result<PartialPlan> {
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

    fn needs_all_rows(&self) -> bool {
        true
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let streams = Streams {
            rows,
            shape: self.shape.clone(),
            held: Vec::new(),
            stream: String::new(),
            reservation: MemoryConsumer::new("stream_context").register(task.memory_pool()),
            given: 0,
            done: false,
        };
        let kept = MemoryConsumer::new("groups of stream_context").register(task.memory_pool());
        let found = async move {
            let found = self.find(streams, &kept).await?;
            let is_closed = found.iter().map(|chosen| chosen.groups).sum::<usize>() > 1;
            // A group alone needs nothing that closes it.
            let closed = move |chosen: ContextGroups| [Some(chosen.rows), is_closed.then_some(chosen.closing)];
            let batches = found.into_iter().flat_map(closed).flatten();
            Ok::<_, DataFusionError>(futures::stream::iter(batches).map(move |rows| {
                // Kept rows are counted until the last one has been returned.
                let _counted = &kept;
                Ok::<_, DataFusionError>(rows)
            }))
        };
        Ok(futures::stream::once(found).try_flatten().boxed())
    }
}

impl Neighbours {
    /// The groups of all streams, in the order of their first matching rows.
    async fn find(&self, mut streams: Streams, kept: &MemoryReservation) -> Result<Vec<ContextGroups>> {
        let mut found = Vec::new();
        while let Some(stream) = streams.next().await? {
            let room = stream.num_rows() * CHOSEN_BYTES;
            streams.reservation.try_grow(room)?;
            let chosen = choose(&stream, &self.context, &self.shape)?;
            streams.reservation.shrink(room);
            if let Some(chosen) = chosen {
                let parts = [&chosen.rows, &chosen.closing];
                kept.try_grow(parts.map(get_record_batch_memory_size).into_iter().sum())?;
                found.push(chosen);
            }
        }
        found.sort_by_key(|chosen| chosen.first_ns);
        Ok(found)
    }
}

/// Cuts ordered rows into streams.
struct Streams {
    rows: SendableRecordBatchStream,
    shape: Shape,
    held: Vec<RecordBatch>,
    stream: String,
    reservation: MemoryReservation,
    /// Bytes of the stream that was given last, which is looked at until the next one is asked for.
    given: usize,
    done: bool,
}

impl Streams {
    /// The rows of the next stream.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.reservation.shrink(std::mem::take(&mut self.given));
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
        let bytes = self.reservation.size();
        if self.held.len() > 1 {
            // They are there twice until they are together.
            self.reservation.try_grow(self.held.iter().map(copied_bytes).sum())?;
        }
        let rows = concat_batches(&self.shape.schema(), &self.held)?;
        self.held.clear();
        self.reservation.resize(bytes);
        self.given = bytes;
        Ok(rows)
    }
}

/// Bytes that are copied where rows are put together: of texts, only their views are.
fn copied_bytes(rows: &RecordBatch) -> usize {
    let bytes = |column: &ArrayRef| match column.data_type() {
        DataType::Utf8View => column.len() * size_of::<u128>(),
        _ => column.get_array_memory_size(),
    };
    rows.columns().iter().map(bytes).sum()
}

/// The groups of one stream.
struct ContextGroups {
    /// The time of the first matching row.
    first_ns: i64,
    rows: RecordBatch,
    groups: usize,
    /// The row `---` that closes the last of them.
    closing: RecordBatch,
}

/// The rows of each time at which one matches with their neighbours, a row `---` behind each group but the last; none
/// without any.
fn choose(rows: &RecordBatch, context: &Context, shape: &Shape) -> Result<Option<ContextGroups>> {
    let rows = &ties_in_order(rows, shape)?;
    let mask = evaluate(&context.filter, rows, shape)?;
    let times = times_of(rows, shape);
    let matching = moments(mask.set_indices(), times.values());
    let (Some(first), Some(last)) = (matching.first(), matching.last()) else { return Ok(None) };
    let (first_ns, last_ns) = (times.value(first.start), times.value(last.start));
    let window = first_ns.saturating_sub(context.window_ns)..=last_ns.saturating_add(context.window_ns);
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
    let rows = unpinned(interleave_record_batch(&[rows, &closing], &order)?);
    // Of its own: a slice would keep those of all groups.
    let closing = take_record_batch(&closing, &UInt32Array::from(vec![groups.len() as u32 - 1]))?;
    Ok(Some(ContextGroups { first_ns, rows, groups: groups.len(), closing: unpinned(closing) }))
}

fn times_of<'r>(rows: &'r RecordBatch, shape: &Shape) -> &'r TimestampNanosecondArray {
    rows.column(shape.index(TIME).unwrap_or(0)).as_primitive()
}

/// Puts rows of one time in the order of their fields: which of them came first nobody knows.
fn ties_in_order(rows: &RecordBatch, shape: &Shape) -> Result<RecordBatch> {
    let times = times_of(rows, shape).values();
    if times.windows(2).all(|pair| pair[0] < pair[1]) {
        return Ok(rows.clone());
    }
    let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
    let mut from = 0;
    for run in times.chunk_by(|a, b| a == b) {
        if run.len() > 1 {
            let keys = row_key(&rows.slice(from, run.len()), shape)?;
            let keys = keys.as_binary::<i32>();
            order[from..from + run.len()].sort_by_key(|row| keys.value(*row as usize - from));
        }
        from += run.len();
    }
    Ok(take_record_batch(rows, &UInt32Array::from(order))?)
}

/// The rows of each time at which one matches, of matching rows in their order.
fn moments(matching: impl Iterator<Item = usize>, times: &[i64]) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    for row in matching {
        if out.last().is_some_and(|last| row < last.end) {
            continue;
        }
        let same = |other: &&i64| **other == times[row];
        let before = times[..row].iter().rev().take_while(same).count();
        let behind = times[row..].iter().take_while(same).count();
        out.push(row - before..row + behind);
    }
    out
}

/// The rows of each group: those of a time, and their neighbours. What lies between two of them goes to the earlier one as
/// far as `after` reaches, then to the later one.
fn groups(
    matching: &[Range<usize>],
    rows: usize,
    (before, after): (usize, usize),
    near: impl Fn(usize) -> bool,
) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::with_capacity(matching.len());
    let mut next = 0;
    for (n, own) in matching.iter().enumerate() {
        let bound = matching.get(n + 1).map_or(rows, |later| later.start);
        let (mut from, mut to) = (own.start, own.end);
        while from > next && own.start - from < before && near(from - 1) {
            from -= 1;
        }
        while to < bound && to - own.end < after && near(to) {
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
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

    use super::*;
    use crate::plan::filter::lower;
    use crate::query_text::parse_filter;
    use crate::reference_time::TimeScope;
    use crate::rows::{Column, ColumnStorage};

    #[test]
    fn each_time_of_a_matching_row_has_a_group_of_its_own() {
        let alone = [4, 6, 7, 15].map(|row| row..row + 1);
        let check = |before: usize, after: usize, expected: &[Range<usize>]| {
            assert_eq!(groups(&alone, 20, (before, after), |_| true), expected, "{before} {after}");
        };
        check(1, 0, &[3..5, 5..7, 7..8, 14..16]);
        check(0, 1, &[4..6, 6..7, 7..9, 15..17]);
        check(2, 3, &[2..6, 6..7, 7..11, 13..19]);
        check(10, 10, &[0..6, 6..7, 7..15, 15..20]);
        assert_eq!(groups(&alone[..1], 20, (9, 9), |row| (2..6).contains(&row)), [2..6]);
        let together = [3..6, 8..9];
        assert_eq!(groups(&together, 12, (1, 1), |_| true), [2..7, 7..10]);
        let times = [1, 2, 2, 2, 3, 4, 4];
        assert_eq!(moments([2, 3, 6].into_iter(), &times), [1..4, 5..7]);
        assert_eq!(moments([0, 1, 4].into_iter(), &times), [0..1, 1..4, 4..5]);
    }

    /// Rows of `stream time message`, by stream and time.
    fn rows_of(lines: &[&str]) -> (Shape, RecordBatch) {
        let columns = [(MSG, ColumnStorage::Text), (STREAM_ID, ColumnStorage::Text), (TIME, ColumnStorage::Time)];
        let columns = columns.map(|(name, kind)| Column { name: name.to_owned(), kind });
        let shape = Shape { columns: columns.to_vec(), rest: false };
        let part = |line: &str, at: usize| line.split(' ').nth(at).expect("three parts").to_owned();
        let texts = |at: usize| -> ArrayRef {
            Arc::new(lines.iter().map(|line| Some(part(line, at))).collect::<StringViewArray>())
        };
        let times = lines.iter().map(|line| part(line, 1).parse::<i64>().expect("a time"));
        let times: ArrayRef = Arc::new(TimestampNanosecondArray::from_iter_values(times).with_timezone("UTC"));
        let rows = batch(&shape, vec![texts(2), texts(0), times], lines.len()).expect("rows");
        (shape, rows)
    }

    /// Asks for `hit` with neighbours.
    fn hits((before, after): (u64, u64)) -> Context {
        let hit = parse_filter("hit").expect("a filter").expect("one");
        let filter = lower(&hit, TimeScope { now_ns: 0, offset_ns: 0 }).expect("lowered");
        Context { filter, before, after, window_ns: WINDOW_NS }
    }

    /// What `hit` with neighbours makes of rows.
    fn around(lines: &[&str], neighbours: (u64, u64)) -> Vec<String> {
        let (shape, rows) = rows_of(lines);
        let step = Arc::new(Neighbours { context: hits(neighbours), shape: shape.clone() });
        // In batches that streams do not end with.
        let pieces = (0..rows.num_rows()).step_by(2).map(|at| Ok(rows.slice(at, 2.min(rows.num_rows() - at))));
        let input = futures::stream::iter(pieces.collect::<Vec<Result<_>>>());
        let input = Box::pin(RecordBatchStreamAdapter::new(shape.schema(), input));
        let batches = step.open(input, Arc::default()).expect("begun");
        let found: Vec<RecordBatch> = futures::executor::block_on(batches.try_collect()).expect("rows");
        let shown = |rows: &RecordBatch| {
            let column = |name| texts_of(rows, &shape, name).expect("texts");
            let (streams, messages, times) = (column(STREAM_ID), column(MSG), times_of(rows, &shape).clone());
            let (mut one, mut other) = (String::new(), String::new());
            let row = |i| format!("{} {} {}", streams.get(i, &mut one), times.value(i), messages.get(i, &mut other));
            (0..rows.num_rows()).map(row).collect::<Vec<_>>()
        };
        found.iter().flat_map(shown).collect()
    }

    #[test]
    fn streams_come_by_their_first_match_and_times_as_a_whole() {
        let rows = ["a 1 x", "a 9 hit", "b 2 y", "b 3 z", "b 3 hit", "b 3 c", "b 4 w", "c 5 no", "d 3 hit"];
        let alone = ["a 1 x", "a 9 hit"];
        assert_eq!(around(&rows[..2], (1, 0)), alone, "nothing closes a group alone");
        let expected = [
            "b 2 y", "b 3 c", "b 3 hit", "b 3 z", "b 4 w", "b 5 ---", "d 3 hit", "d 4 ---", "a 1 x", "a 9 hit",
            "a 10 ---",
        ];
        assert_eq!(around(&rows, (1, 1)), expected);
        assert!(around(&rows[7..8], (1, 1)).is_empty());
    }

    #[test]
    fn a_stream_counts_until_the_next_is_asked_for() {
        let (shape, rows) = rows_of(&["a 1 x", "a 2 y", "a 3 hit", "b 1 z"]);
        let pieces: Vec<Result<RecordBatch>> = (0..4).map(|at| Ok(rows.slice(at, 1))).collect();
        let rows = Box::pin(RecordBatchStreamAdapter::new(shape.schema(), futures::stream::iter(pieces)));
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
        let reservation = MemoryConsumer::new("stream_context").register(&pool);
        let (held, stream) = (Vec::new(), String::new());
        let mut streams = Streams { rows, shape, held, stream, reservation, given: 0, done: false };
        for count in [3, 1] {
            let rows = futures::executor::block_on(streams.next()).expect("memory").expect("a stream");
            assert_eq!(rows.num_rows(), count);
            assert!(pool.reserved() > 0, "{count} rows are looked at");
        }
        assert!(futures::executor::block_on(streams.next()).expect("memory").is_none());
        assert_eq!(pool.reserved(), 0);
    }

    /// Each stream keeps the row that closes its last group until all streams are known.
    #[test]
    fn a_row_that_closes_is_kept_without_the_others() {
        let lines: Vec<String> = (0..1000).map(|time| format!("a {time} hit")).collect();
        let bytes = |lines: &[String]| {
            let (shape, rows) = rows_of(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            let chosen = choose(&rows, &hits((0, 0)), &shape).expect("chosen").expect("some");
            assert_eq!((chosen.groups, chosen.closing.num_rows()), (lines.len(), 1));
            get_record_batch_memory_size(&chosen.closing)
        };
        assert_eq!(bytes(&lines), bytes(&lines[..1]));
    }
}
