//! Processes the rows of a stream in pieces: a query can be cancelled between two pieces, and their results stay small.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::StreamExt;
use quiver_query::{Held, Underway, to_datafusion};

use crate::step::Batches;

/// How long work on a piece of a batch should take.
const PIECE_TIME: Duration = Duration::from_millis(4);
/// Rows of the first piece, of the smallest and of the largest. What the work on a row takes is known from the first piece
/// on, which may be a filter of a hundred thousand words; pieces grow fast where it is little, as each piece of a batch
/// counts with all of its memory where rows are kept.
const PIECE_ROWS: usize = 64;
const PIECE_ROWS_MIN: usize = 8;
const PIECE_ROWS_MAX: usize = 64 * 1024;
const GROWTH_MAX: usize = 8;

/// Cuts the batches of a stream so that the work on each piece takes a few milliseconds, and gives way between pieces:
/// there a query ends whose time is up or whose caller is gone.
pub(crate) struct Pieces {
    input: SendableRecordBatchStream,
    /// The batch at hand, and its next row.
    batch: Option<(RecordBatch, usize)>,
    rows: usize,
    /// Work since it gave way.
    worked: Duration,
}

impl Pieces {
    pub(crate) fn new(input: SendableRecordBatchStream) -> Self {
        Self { input, batch: None, rows: PIECE_ROWS, worked: Duration::ZERO }
    }

    /// The next piece.
    pub(crate) async fn next(&mut self) -> Option<Result<RecordBatch>> {
        if self.worked >= PIECE_TIME {
            tokio::task::yield_now().await;
            self.worked = Duration::ZERO;
        }
        let (batch, at) = match self.batch.take() {
            Some(left) => left,
            None => match self.input.next().await? {
                Ok(batch) => (batch, 0),
                Err(e) => return Some(Err(e)),
            },
        };
        let rows = (batch.num_rows() - at).min(self.rows);
        if at == 0 && rows == batch.num_rows() {
            return Some(Ok(batch));
        }
        let piece = batch.slice(at, rows);
        if at + rows < batch.num_rows() {
            self.batch = Some((batch, at + rows));
        }
        Some(Ok(piece))
    }

    /// Gives back the rows of the last piece that were not worked on; the next pieces are as short as this one was.
    pub(crate) fn leave(&mut self, piece: RecordBatch, taken: usize) {
        let left = piece.num_rows() - taken;
        self.batch = Some(match self.batch.take() {
            Some((batch, at)) => (batch, at - left),
            None => (piece, taken),
        });
        self.rows = taken.max(PIECE_ROWS_MIN);
    }

    /// Says how long the work on a piece of so many rows took: the next ones become shorter, or longer.
    pub(crate) fn took(&mut self, rows: usize, time: Duration) {
        self.worked += time;
        if rows < self.rows && time <= PIECE_TIME {
            // The end of a batch says little.
            return;
        }
        let fitting = rows as u128 * PIECE_TIME.as_nanos() / time.as_nanos().max(1);
        self.rows = (fitting as usize).clamp(PIECE_ROWS_MIN, (self.rows * GROWTH_MAX).min(PIECE_ROWS_MAX));
    }
}

/// A function from batch to batch; each run of a partition has its own, so it may keep buffers.
pub(crate) type BatchMap = Box<dyn FnMut(RecordBatch) -> Result<RecordBatch> + Send>;

/// A function from the first rows of a batch to a batch. It takes no row after those of which it made so many bytes as are
/// given. Where it makes rows but takes none, it goes on within the first one when it is called again.
pub(crate) type ValueMap = Box<dyn FnMut(&RecordBatch, usize) -> Result<OutputChunk> + Send>;

/// What was made of some rows.
pub(crate) struct OutputChunk {
    pub(crate) batch: RecordBatch,
    /// How many rows were taken.
    pub(crate) taken: usize,
    /// Bytes of new values.
    pub(crate) bytes: usize,
}

/// Runs a function over each batch, piece by piece; empty batches are left out.
pub(crate) fn map_batches(rows: SendableRecordBatchStream, task: &TaskContext, mut map: BatchMap) -> Batches {
    let map: ValueMap = Box::new(move |piece, _| {
        let taken = piece.num_rows();
        Ok(OutputChunk { batch: map(piece.clone())?, taken, bytes: 0 })
    });
    map_values(rows, task, map)
}

/// Like [`map_batches`], for functions whose values may be much longer than what they are made of: the more of them are on
/// their way between the nodes of a query, the fewer are made at once.
pub(crate) fn map_values(rows: SendableRecordBatchStream, task: &TaskContext, map: ValueMap) -> Batches {
    let underway = task.session_config().get_extension::<Underway>().unwrap_or_default();
    let work = Work { pieces: Pieces::new(rows), map, underway, held: None };
    futures::stream::try_unfold(work, async |mut work| Ok(work.next().await?.map(|batch| (batch, work)))).boxed()
}

struct Work {
    pieces: Pieces,
    map: ValueMap,
    underway: Arc<Underway>,
    /// The values of the last batch. A caller that asks for the next one has dropped them, or accounts for them itself.
    held: Option<Held>,
}

impl Work {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.held = None;
        while let Some(piece) = self.pieces.next().await {
            let (piece, began) = (piece?, Instant::now());
            let made = (self.map)(&piece, self.underway.room())?;
            self.pieces.took(made.taken, began.elapsed());
            if made.taken < piece.num_rows() {
                self.pieces.leave(piece, made.taken);
            }
            if made.batch.num_rows() > 0 {
                self.held = Some(Underway::hold(&self.underway, made.bytes).map_err(to_datafusion)?);
                return Ok(Some(made.batch));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

    use super::*;

    fn one_batch(rows: usize) -> SendableRecordBatchStream {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let numbers = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![numbers]).expect("a batch");
        Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter([Ok(batch)])))
    }

    fn numbers(batches: &[RecordBatch]) -> Vec<i64> {
        batches.iter().flat_map(|b| b.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
    }

    #[tokio::test]
    async fn all_rows_come_in_order_whatever_their_work_takes() {
        let mut turn = 0u64;
        let map: BatchMap = Box::new(move |rows| {
            turn += 1;
            std::thread::sleep(Duration::from_micros(if turn.is_multiple_of(3) { 9000 } else { 1 }));
            Ok(rows)
        });
        let made = map_batches(one_batch(100_000), &TaskContext::default(), map);
        let batches: Vec<RecordBatch> = made.map(|batch| batch.expect("made")).collect().await;
        assert_eq!(numbers(&batches), (0..100_000).collect::<Vec<i64>>());
    }

    #[tokio::test]
    async fn work_within_a_batch_ends_with_its_query() {
        let worked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&worked);
        // 10 microseconds a row: all of the batch takes 6.4 s.
        let map: BatchMap = Box::new(move |rows: RecordBatch| {
            std::thread::sleep(Duration::from_micros(10) * rows.num_rows() as u32);
            counted.fetch_add(rows.num_rows(), Relaxed);
            Ok(rows.slice(0, 0))
        });
        let mut rows = map_batches(one_batch(640_000), &TaskContext::default(), map);
        let ended = tokio::time::timeout(Duration::from_millis(100), rows.next()).await;
        assert!(ended.is_err(), "its time was up before its work was done");
        let done = worked.load(Relaxed);
        assert!(done < 64_000, "{done} rows were worked on");
    }

    #[tokio::test]
    async fn long_values_are_made_of_few_rows_at_once() {
        let largest = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&largest);
        // A megabyte of each row.
        let map: ValueMap = Box::new(move |rows, room| {
            let taken = rows.num_rows().min(room.div_ceil(1 << 20));
            seen.fetch_max(taken, Relaxed);
            Ok(OutputChunk { batch: rows.slice(0, taken), taken, bytes: taken << 20 })
        });
        let mut made: Vec<RecordBatch> = Vec::new();
        let mut rows = map_values(one_batch(1000), &TaskContext::default(), map);
        while let Some(batch) = rows.next().await {
            made.push(batch.expect("made"));
        }
        assert_eq!(numbers(&made), (0..1000).collect::<Vec<i64>>());
        assert!(largest.load(Relaxed) <= 16, "{largest:?} rows");
    }

    async fn next(pieces: &mut Pieces) -> RecordBatch {
        pieces.next().await.expect("a piece").expect("rows")
    }

    #[tokio::test]
    async fn pieces_are_as_long_as_their_work_lets_them() {
        let mut pieces = Pieces::new(one_batch(100_000));
        let longer = PIECE_ROWS * GROWTH_MAX;
        let mut from = 0;
        for (rows, worked) in [
            // However little the work is, they do not grow at once.
            (PIECE_ROWS, Some((PIECE_ROWS, Duration::ZERO))),
            (longer, Some((longer, PIECE_TIME * 4))),
            // A few rows that took no time say nothing of others.
            (longer / 4, Some((1, Duration::ZERO))),
            (longer / 4, Some((longer / 4, Duration::from_hours(1)))),
            (PIECE_ROWS_MIN, None),
        ] {
            let piece = next(&mut pieces).await;
            assert_eq!(numbers(&[piece]), (from..from + rows as i64).collect::<Vec<_>>());
            from += rows as i64;
            if let Some((rows, time)) = worked {
                pieces.took(rows, time);
            }
        }
    }

    #[tokio::test]
    async fn rows_that_are_left_come_again() {
        let mut pieces = Pieces::new(one_batch(100));
        let piece = next(&mut pieces).await;
        assert_eq!(piece.num_rows(), PIECE_ROWS);
        pieces.leave(piece, 3);
        // The next ones are as short, but not shorter than is bearable.
        let piece = next(&mut pieces).await;
        assert_eq!(numbers(std::slice::from_ref(&piece)), (3..3 + PIECE_ROWS_MIN as i64).collect::<Vec<_>>());
        pieces.leave(piece, 0);
        let mut seen = Vec::new();
        while let Some(piece) = pieces.next().await {
            seen.extend(numbers(&[piece.expect("rows")]));
        }
        assert_eq!(seen, (3..100).collect::<Vec<i64>>());
        // The last rows of the last batch, too.
        let mut pieces = Pieces::new(one_batch(5));
        let piece = next(&mut pieces).await;
        pieces.leave(piece, 4);
        assert_eq!(numbers(&[next(&mut pieces).await]), [4]);
        assert!(pieces.next().await.is_none());
    }
}
