//! The rows of a query, for endpoints that send them on batch by batch.
//!
//! The query keeps its place and its memory until the last row is taken; it is cancelled if the client disconnects
//! before, or takes nothing for long while others need what it holds. Rows that wait for a slow client are charged to
//! the query and handed out a few at a time, since what is made of them (mostly text) is several times as large.

pub(crate) mod batch_split;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::StreamExt as _;
use quiver_types::{Error, ErrorKind, Result};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use crate::context::QueryContext;
use crate::engine::QueryEngine;
use crate::error::from_datafusion;
use crate::repeated_work::AnswerStarted;
use crate::slow_readers::Beside;
pub use batch_split::slice_bytes;
use batch_split::{GIVEN_BYTES, held_bytes, parts, written_bytes};

/// Most batches that wait for the reader, beside the one that it has.
const WAITING_MAX: usize = 1;

/// Rows that are held back at the beginning, so that a query that fails early gives only its error.
const HELD_ROWS: usize = 1024;
const HELD_BYTES: usize = 1 << 20;
const HELD_FOR: Duration = Duration::from_millis(100);

/// The result of a query.
#[derive(Debug)]
pub enum Answer {
    /// The plan, for `explain`.
    Plan(Value),
    /// Rows as they are found.
    Rows(Rows),
}

/// Rows as they are found. Dropping them ends the query.
#[derive(Debug)]
pub struct Rows {
    schema: SchemaRef,
    batches: mpsc::Receiver<Result<Piece>>,
    /// Memory of the rows that were given out last and are now being encoded.
    given: Option<Arc<BatchCharge>>,
    task: tokio::task::JoinHandle<()>,
}

/// Charges a batch to the query until the last part of it has been encoded.
#[derive(Debug)]
struct BatchCharge {
    memory: Arc<MemoryReservation>,
    bytes: usize,
    /// The batch that these rows are a part of.
    _whole: Option<Arc<BatchCharge>>,
}

impl BatchCharge {
    /// Never fails, since the rows exist already; later requests are refused instead.
    fn new(memory: &Arc<MemoryReservation>, bytes: usize) -> Arc<Self> {
        memory.grow(bytes);
        Arc::new(Self { memory: Arc::clone(memory), bytes, _whole: None })
    }

    /// Also charges the encoded form of a part, if a single row is large.
    ///
    /// # Errors
    /// LimitExceeded.
    fn written(self: &Arc<Self>, part: &RecordBatch) -> Result<Arc<Self>> {
        let bytes = written_bytes(part);
        if bytes <= 2 * GIVEN_BYTES {
            return Ok(Arc::clone(self));
        }
        // Quoting makes text longer, and its buffer grows by doubling.
        let bytes = bytes.saturating_mul(2);
        self.memory.try_grow(bytes).map_err(from_datafusion)?;
        Ok(Arc::new(Self { memory: Arc::clone(&self.memory), bytes, _whole: Some(Arc::clone(self)) }))
    }
}

impl Drop for BatchCharge {
    fn drop(&mut self) {
        self.memory.shrink(self.bytes);
    }
}

/// A piece of the result on its way to the reader.
#[derive(Debug)]
enum Piece {
    Begin(SchemaRef),
    Batch(RecordBatch, Arc<BatchCharge>),
    Plan(Value),
}

/// Where a query puts its result.
#[derive(Debug, Clone)]
pub struct RowSender {
    to: mpsc::Sender<Result<Piece>>,
    memory: Arc<MemoryReservation>,
    /// Says whether others need what the query holds.
    beside: Beside,
    sent: AnswerStarted,
}

impl Rows {
    /// Runs the work of a query on the engine; returns once the first rows have been found, or it has ended without
    /// any. The work reads only: it is done anew where others held the memory that it needs before it gave anything.
    ///
    /// # Errors
    /// Those of the work before its first rows, and of [`QueryEngine::run`].
    pub async fn run<F>(
        engine: &Arc<QueryEngine>,
        ctx: &QueryContext,
        mut work: impl FnMut(RowSender) -> F + Send + 'static,
    ) -> Result<Answer>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let (send, batches) = mpsc::channel(WAITING_MAX);
        let memory = Arc::new(engine.reservation("rows", ctx));
        let beside = Beside::new(ctx.query(), &engine.used, &engine.memory);
        let out = RowSender { to: send.clone(), memory, beside, sent: AnswerStarted::default() };
        let (engine, ctx) = (Arc::clone(engine), ctx.clone());
        let run = async move {
            let sent = out.sent.clone();
            if let Err(error) = engine.run_anew(&ctx, &sent, move || work(out.clone())).await {
                let _ = send.send(Err(error)).await;
            }
        };
        // Dropping this future before the first row must end the query, too.
        let task = tokio::spawn(run.in_current_span());
        let mut rows = Self { schema: Arc::new(Schema::empty()), batches, given: None, task };
        match rows.batches.recv().await {
            Some(Ok(Piece::Begin(schema))) => {
                rows.schema = schema;
                Ok(Answer::Rows(rows))
            }
            Some(Ok(Piece::Plan(plan))) => Ok(Answer::Plan(plan)),
            Some(Err(error)) => Err(error),
            Some(Ok(Piece::Batch(..))) | None => Err(Error::internal("a query ended without an answer")),
        }
    }

    /// Names and types of the columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Gives the next rows; `None` at the end.
    ///
    /// # Errors
    /// Those of running.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.given = None;
        match self.batches.recv().await {
            None | Some(Ok(Piece::Begin(_) | Piece::Plan(_))) => Ok(None),
            Some(Ok(Piece::Batch(batch, counted))) => {
                self.given = Some(counted);
                Ok(Some(batch))
            }
            Some(Err(error)) => Err(error),
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RowSender {
    /// Rules out that the work is repeated, because rows are about to be sent.
    pub fn commit(&self) {
        self.sent.set();
    }

    async fn put(&self, piece: Piece) -> Result<()> {
        self.sent.set();
        let sent = self.beside.taken(self.to.send(Ok(piece))).await?;
        sent.map_err(|_| gone())
    }

    /// Waits until something can be put. Nobody else puts anything.
    async fn room(&self) -> Result<()> {
        let place = self.beside.taken(self.to.reserve()).await?;
        place.map(drop).map_err(|_| gone())
    }

    /// Gives plans instead of rows.
    ///
    /// # Errors
    /// Cancelled: the reader is gone.
    pub async fn plan(&self, plan: Value) -> Result<()> {
        self.put(Piece::Plan(plan)).await
    }

    /// Gives the rows of a stream with the types of `schema`, as `shown` makes each batch. An error before or soon
    /// after the first rows fails the query as a whole; `told` converts errors.
    ///
    /// # Errors
    /// Those of the stream; Cancelled: the reader is gone.
    pub async fn rows(
        &self,
        mut rows: SendableRecordBatchStream,
        schema: SchemaRef,
        shown: impl Fn(RecordBatch) -> Result<RecordBatch> + Send + Sync,
        told: fn(DataFusionError) -> Error,
        ctx: &QueryContext,
    ) -> Result<()> {
        let (first, is_all) = first_of(&mut rows, told).await?;
        let first = first.into_iter().map(&shown).collect::<Result<Vec<_>>>()?;
        first.first().map_or(Ok(()), |batch| self.affordable(batch))?;
        self.put(Piece::Begin(schema)).await?;
        for batch in first {
            self.give(&batch).await?;
        }
        // A stream must not be polled after its end.
        if is_all {
            return Ok(());
        }
        loop {
            // Otherwise a batch would be made before it can be taken.
            self.room().await?;
            let Some(batch) = next_of(&mut rows, told).await? else { return Ok(()) };
            ctx.check("query execution")?;
            self.give(&shown(batch)?).await?;
        }
    }

    /// Refuses a first row that is too large to encode, while an error can still be the whole response.
    fn affordable(&self, batch: &RecordBatch) -> Result<()> {
        let none = BatchCharge::new(&self.memory, 0);
        parts(batch, written_bytes(batch)).next().map_or(Ok(()), |part| none.written(&part).map(drop))
    }

    /// Gives a batch to the reader, in parts if it is large.
    async fn give(&self, batch: &RecordBatch) -> Result<()> {
        let counted = BatchCharge::new(&self.memory, held_bytes(batch));
        for part in parts(batch, written_bytes(batch)) {
            let counted = counted.written(&part)?;
            self.put(Piece::Batch(part, counted)).await?;
        }
        Ok(())
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Cancelled, "the reader went away")
}

/// Gives the first rows as far as they arrive soon, and whether these are all.
async fn first_of(
    rows: &mut SendableRecordBatchStream,
    told: fn(DataFusionError) -> Error,
) -> Result<(Vec<RecordBatch>, bool)> {
    let (mut first, mut count, mut bytes) = (Vec::new(), 0, 0);
    let mut next = next_of(rows, told).await?;
    let until = Instant::now() + HELD_FOR;
    while let Some(batch) = next.take() {
        count += batch.num_rows();
        bytes += batch.get_array_memory_size();
        first.push(batch);
        if count >= HELD_ROWS || bytes >= HELD_BYTES {
            return Ok((first, false));
        }
        next = match timeout_at(until, next_of(rows, told)).await {
            Ok(next) => next?,
            Err(_) => return Ok((first, false)),
        };
    }
    Ok((first, true))
}

/// Gives the next batch that is not empty.
async fn next_of(
    rows: &mut SendableRecordBatchStream,
    told: fn(DataFusionError) -> Error,
) -> Result<Option<RecordBatch>> {
    loop {
        match rows.next().await.transpose().map_err(told)? {
            Some(batch) if batch.num_rows() == 0 => {}
            other => return Ok(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use arrow::array::{ArrayRef, AsArray as _, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field};
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::stream::BoxStream;
    use quiver_types::Access;

    use super::*;
    use crate::context::Limits;
    use crate::engine::EngineSettings;
    use crate::error::to_datafusion;

    fn engine() -> Arc<QueryEngine> {
        QueryEngine::new(&EngineSettings::small(1 << 24)).unwrap()
    }

    /// Wraps work that is never repeated.
    fn done_once<F>(work: impl FnOnce(RowSender) -> F) -> impl FnMut(RowSender) -> F {
        let mut work = Some(work);
        move |out| work.take().expect("nothing else takes memory")(out)
    }

    /// A stream of batches of one row; after `good` of them it fails, or never gives another.
    async fn rows(engine: &Arc<QueryEngine>, good: i64, fails: bool) -> Result<Answer> {
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let (inner, types) = (ctx.clone(), Arc::clone(&schema));
        let batch = move |n: i64| {
            let column = Arc::new(Int64Array::from(vec![n]));
            RecordBatch::try_new(Arc::clone(&types), vec![column]).map_err(DataFusionError::from)
        };
        let found = futures::stream::iter(0..good).map(batch);
        let rest: BoxStream<'static, datafusion::error::Result<RecordBatch>> = if fails {
            let failed = to_datafusion(Error::new(ErrorKind::Execution, "it breaks off"));
            futures::stream::iter([Err(failed)]).boxed()
        } else {
            futures::stream::pending().boxed()
        };
        let all = found.chain(rest);
        let stream: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), all));
        let work = move |out: RowSender| async move { out.rows(stream, schema, Ok, from_datafusion, &inner).await };
        Rows::run(engine, &ctx, done_once(work)).await
    }

    #[tokio::test]
    async fn what_fails_at_first_is_no_answer() {
        let engine = engine();
        for few in [0, 3] {
            assert_eq!(rows(&engine, few, true).await.unwrap_err().message, "it breaks off");
        }
        let Answer::Rows(mut rows) = rows(&engine, 2000, true).await.unwrap() else { panic!("rows") };
        for _ in 0..2000 {
            assert_eq!(rows.next().await.unwrap().map(|batch| batch.num_rows()), Some(1));
        }
        assert_eq!(rows.next().await.unwrap_err().message, "it breaks off");
    }

    /// Some streams panic when they are asked again.
    #[tokio::test]
    async fn what_has_ended_is_not_asked_again() {
        let engine = engine();
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let (inner, types) = (ctx.clone(), Arc::clone(&schema));
        let once = futures::stream::unfold(0i64, move |n| {
            let column = Arc::new(Int64Array::from(vec![n]));
            let batch = RecordBatch::try_new(Arc::clone(&types), vec![column]).map_err(DataFusionError::from);
            async move { (n < 2).then_some((batch, n + 1)) }
        });
        let stream: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), once));
        let work = move |out: RowSender| async move { out.rows(stream, schema, Ok, from_datafusion, &inner).await };
        let Answer::Rows(mut rows) = Rows::run(&engine, &ctx, done_once(work)).await.unwrap() else { panic!("rows") };
        assert_eq!(rows.next().await.unwrap().map(|batch| batch.num_rows()), Some(1));
        assert_eq!(rows.next().await.unwrap().map(|batch| batch.num_rows()), Some(1));
        assert!(rows.next().await.unwrap().is_none());
    }

    /// Its place is kept while rows are on their way, and free once the reader is gone.
    #[tokio::test]
    async fn who_goes_away_ends_it() {
        let engine = engine();
        let Answer::Rows(first) = rows(&engine, 1, false).await.unwrap() else { panic!("rows") };
        let second = tokio::time::timeout(Duration::from_millis(50), rows(&engine, 1, false)).await;
        assert!(second.is_err(), "it waits for the only place");
        drop(first);
        let third = tokio::time::timeout(Duration::from_mins(1), rows(&engine, 1, false)).await;
        assert!(third.is_ok_and(|answer| answer.is_ok()));
    }

    /// A reader that takes nothing keeps its place only while nobody else waits for it.
    #[tokio::test]
    async fn who_takes_nothing_gives_way() {
        let engine = engine();
        let Answer::Rows(mut first) = rows(&engine, 5000, false).await.unwrap() else { panic!("rows") };
        let second = tokio::time::timeout(Duration::from_mins(1), rows(&engine, 1, false)).await;
        assert!(second.is_ok_and(|answer| answer.is_ok()), "long before the time limit of the first");
        let ended = loop {
            match first.next().await {
                Ok(Some(_)) => {}
                ended => break ended,
            }
        };
        assert_eq!(ended.unwrap_err().kind, ErrorKind::Unavailable);
    }

    /// A reader that takes nothing has few rows made for it.
    #[tokio::test]
    async fn no_rows_are_made_that_cannot_be_taken() {
        let engine = engine();
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("text", DataType::Utf8, false)]));
        let made = Arc::new(AtomicUsize::new(0));
        let (inner, types, counted) = (ctx.clone(), Arc::clone(&schema), Arc::clone(&made));
        let batches = futures::stream::iter(0..100).map(move |_| {
            counted.fetch_add(1, Relaxed);
            let column = Arc::new(StringArray::from(vec!["x".repeat(HELD_BYTES)]));
            RecordBatch::try_new(Arc::clone(&types), vec![column]).map_err(DataFusionError::from)
        });
        let stream: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), batches));
        let work = move |out: RowSender| async move { out.rows(stream, schema, Ok, from_datafusion, &inner).await };
        let Answer::Rows(mut rows) = Rows::run(&engine, &ctx, done_once(work)).await.unwrap() else { panic!("rows") };
        for taken in 1..=3 {
            assert_eq!(rows.next().await.unwrap().map(|batch| batch.num_rows()), Some(1));
            // The one that it has, and one that waits.
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(made.load(Relaxed) <= taken + 1, "{} were made, {taken} taken", made.load(Relaxed));
        }
        let mut count = 3;
        while rows.next().await.unwrap().is_some() {
            count += 1;
        }
        assert_eq!((count, made.load(Relaxed)), (100, 100));
    }

    /// A reader that takes its time holds what counts, and gets large batches in parts.
    #[tokio::test]
    async fn rows_that_wait_count_and_come_in_parts() {
        const ROWS: usize = 12;
        let engine = engine();
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("text", DataType::Utf8, false)]));
        let texts: Vec<String> = (0..ROWS).map(|n| char::from(b'a' + n as u8).to_string().repeat(1 << 20)).collect();
        let column = Arc::new(StringArray::from(texts.clone()));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).map_err(DataFusionError::from);
        let once = futures::stream::iter([batch]);
        let stream: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), once));
        let inner = ctx.clone();
        let work = move |out: RowSender| async move { out.rows(stream, schema, Ok, from_datafusion, &inner).await };
        let Answer::Rows(mut rows) = Rows::run(&engine, &ctx, done_once(work)).await.unwrap() else { panic!("rows") };
        let mut found = Vec::new();
        while let Some(part) = rows.next().await.unwrap() {
            assert!(part.num_rows() <= GIVEN_BYTES >> 20, "{} rows at once", part.num_rows());
            assert!(engine.memory_reserved() >= ROWS << 20, "{} bytes are known", engine.memory_reserved());
            found.extend(part.column(0).as_string::<i32>().iter().flatten().map(str::to_owned));
        }
        assert!(found == texts, "other rows, or in another order");
        drop(rows);
        assert_eq!(engine.memory_reserved(), 0);
    }

    /// A row of columns that share one text is small where it is found, and many times as large where it is written.
    #[tokio::test]
    async fn a_row_that_is_long_only_where_it_is_written_counts() {
        let engine = engine();
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let fields = (0..100).map(|n| Field::new(format!("c{n}"), DataType::Utf8, false));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let column: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1 << 20)]));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column; 100]).map_err(DataFusionError::from);
        let once = futures::stream::iter([batch]);
        let stream: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), once));
        let inner = ctx.clone();
        let work = move |out: RowSender| async move { out.rows(stream, schema, Ok, from_datafusion, &inner).await };
        let error = Rows::run(&engine, &ctx, done_once(work)).await.expect_err("100 MB of 16");
        assert_eq!(error.kind, ErrorKind::LimitExceeded);
    }
}
