//! `stream_context`: the neighbours of matching rows in their streams. The input holds the rows of these streams by
//! (stream, time); a filter says which of them match.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringViewArray, TimestampNanosecondArray, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{SchemaRef, TimestampNanosecondType};
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::StreamExt;
use quiver_types::logs::{LogFilter, MSG, STREAM, STREAM_ID, TIME};

use super::filter::evaluate;
use super::sort::Sort;
use crate::nodes::{Batches, Step};
use crate::plan::Planned;
use crate::rows::{Shape, batch, empty_rest, missing, texts_of};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Context {
    pub(crate) filter: LogFilter,
    pub(crate) before: u64,
    pub(crate) after: u64,
    /// How far before the first and behind the last matching row of its stream a neighbour may be, in nanoseconds.
    pub(crate) window_ns: i64,
}

/// How far away a neighbour may be unless said otherwise.
pub(crate) const WINDOW_NS: i64 = 3_600_000_000_000;

/// Gives matching rows with their neighbours, stream by stream, of rows by stream and time. Lacks in DataFusion: rows that
/// are kept for their neighbours, and delimiters between them.
#[derive(Debug, PartialEq, Eq, Hash)]
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
        let batches = futures::stream::try_unfold((streams, self, false), |(mut streams, own, mut any)| async move {
            while let Some(stream) = streams.next().await? {
                let chosen = choose(&stream, &own.context, &own.shape, any)?;
                if chosen.num_rows() > 0 {
                    any = true;
                    return Ok(Some((chosen, (streams, own, any))));
                }
            }
            Ok(None)
        });
        Ok(batches.boxed())
    }
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
            self.stream = ids.get(0, &mut scratch).to_owned();
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

/// The matching rows of one stream with their neighbours; a row `---` between groups that do not touch.
fn choose(rows: &RecordBatch, context: &Context, shape: &Shape, any_before: bool) -> Result<RecordBatch> {
    let mask = evaluate(&context.filter, rows, shape)?;
    let index = shape.index(TIME).unwrap_or(0);
    let times = rows.column(index).as_primitive::<TimestampNanosecondType>();
    let mut chosen: Vec<u32> = Vec::new();
    let mut cuts: Vec<usize> = Vec::new();
    let mut next = 0;
    let first = mask.set_indices().next().map_or(0, |row| times.value(row));
    let last = mask.set_indices().last().map_or(0, |row| times.value(row));
    let window = first.saturating_sub(context.window_ns)..=last.saturating_add(context.window_ns);
    let near = |other: usize| window.contains(&times.value(other));
    for row in mask.set_indices() {
        let mut from = row;
        while from > 0 && (row - from) < context.before as usize && near(from - 1) {
            from -= 1;
        }
        let mut to = row;
        while to + 1 < rows.num_rows() && (to - row) < context.after as usize && near(to + 1) {
            to += 1;
        }
        if from > next && !chosen.is_empty() || (chosen.is_empty() && any_before) {
            cuts.push(chosen.len());
        }
        chosen.extend((from.max(next)..=to).map(|row| row as u32));
        next = next.max(to + 1);
    }
    with_delimiters(rows, shape, times, &chosen, &cuts)
}

fn with_delimiters(
    rows: &RecordBatch,
    shape: &Shape,
    times: &TimestampNanosecondArray,
    chosen: &[u32],
    cuts: &[usize],
) -> Result<RecordBatch> {
    let mut parts = Vec::new();
    let mut from = 0;
    for &cut in cuts.iter().chain([&chosen.len()]) {
        if cut > from {
            parts.push(take_record_batch(rows, &UInt32Array::from(chosen[from..cut].to_vec()))?);
        }
        if cut < chosen.len() {
            let near = chosen[cut.saturating_sub(1)] as usize;
            parts.push(delimiter(rows, shape, near, times.value(near).saturating_add(1))?);
        }
        from = cut;
    }
    Ok(concat_batches(&shape.schema(), &parts)?)
}

fn delimiter(rows: &RecordBatch, shape: &Shape, near: usize, time_ns: i64) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (i, name) in shape.names().enumerate() {
        columns.push(match name {
            TIME => Arc::new(TimestampNanosecondArray::from(vec![time_ns]).with_timezone("UTC")),
            MSG => Arc::new(StringViewArray::from(vec!["---"])),
            STREAM | STREAM_ID => rows.column(i).slice(near, 1),
            _ => missing(1),
        });
    }
    if shape.rest {
        columns.push(empty_rest(1)?);
    }
    batch(shape, columns, 1)
}
