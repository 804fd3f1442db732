//! Merges the partitions of a plan into one stream. DataFusion's `execute_stream` does it through channels that hold
//! some batches of each partition, uncounted by any budget: with long texts tens of megabytes for each slow client.
//! Here waiting batches are charged to the query, and partitions make no more while a few of them wait.
//!
//! Partitions of groups or sorted rows give their first rows once they have read all of theirs. Rows of one are not given out
//! before each of the others has come as far: it may still find no memory, and an answer would break off that could have been
//! an error.

use std::panic::resume_unwind;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::runtime::JoinSet;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _, execute_stream};
use futures::{StreamExt as _, stream};
use tokio::sync::{Barrier, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinError;
use tracing::Instrument as _;

use crate::rows::batch_split::held_bytes;

/// Bytes of batches that wait for their reader, beside those that partitions had begun when there was room: a batch at least.
const WAITING_BYTES: u32 = 2 << 20;
/// Batches that wait: small ones, mostly.
const WAITING_MAX: usize = 64;

/// A batch that waits, what it takes of the query's memory, and of the room for those that wait.
struct QueuedBatch {
    batch: RecordBatch,
    _memory: MemoryReservation,
    _room: OwnedSemaphorePermit,
}

/// Runs a plan. In which order rows of several partitions come is not said.
///
/// # Errors
/// Those of starting a partition; the stream carries those of running.
pub(crate) fn gathered(
    plan: &Arc<dyn ExecutionPlan>,
    task: &Arc<TaskContext>,
    memory: MemoryReservation,
) -> Result<SendableRecordBatchStream> {
    let partitions = plan.output_partitioning().partition_count();
    if partitions <= 1 {
        return execute_stream(Arc::clone(plan), Arc::clone(task));
    }
    let (send, receive) = mpsc::channel(WAITING_MAX);
    let (memory, room) = (Arc::new(memory), Arc::new(Semaphore::new(WAITING_BYTES as usize)));
    let begun = gives_rows_last(plan).then(|| Arc::new(Barrier::new(partitions)));
    // DataFusion's `JoinSet` passes the current query on to its tasks.
    let mut running = JoinSet::new();
    for partition in 0..partitions {
        let batches = plan.execute(partition, Arc::clone(task))?;
        let out = PartitionSender { to: send.clone(), memory: Arc::clone(&memory), room: Arc::clone(&room) };
        running.spawn(out.hand_on(batches, begun.clone()).in_current_span());
    }
    let batches = stream::unfold((receive, running), |(mut receive, mut running)| async move {
        loop {
            tokio::select! {
                // In this order, so that the others do not go on for long beside a partition that panicked.
                biased;
                Some(ended) = running.join_next(), if !running.is_empty() => raise(ended),
                next = receive.recv() => {
                    let Some(next) = next else { break };
                    return Some((next.map(|waiting: QueuedBatch| waiting.batch), (receive, running)));
                }
            }
        }
        while let Some(ended) = running.join_next().await {
            raise(ended);
        }
        None
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(plan.schema(), batches)))
}

/// Goes on with the panic of a partition, if it ended in one.
fn raise(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        resume_unwind(error.into_panic());
    }
}

/// Whether each partition of a plan gives no row before it has read all of its input.
fn gives_rows_last(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.pipeline_behavior() == EmissionType::Final {
        return true;
    }
    // Below an exchange every partition receives rows of every other one, so a waiting partition would let rows pile up.
    match plan.children().as_slice() {
        [input] if !plan.is::<RepartitionExec>() => gives_rows_last(input),
        _ => false,
    }
}

/// Where a partition puts its batches.
struct PartitionSender {
    to: mpsc::Sender<Result<QueuedBatch, DataFusionError>>,
    memory: Arc<MemoryReservation>,
    room: Arc<Semaphore>,
}

impl PartitionSender {
    /// Sends the batches of a partition on, until its end, an error, or until the receiver is gone; the first one once all
    /// partitions have come as far as the barrier, if there is one.
    async fn hand_on(self, mut batches: SendableRecordBatchStream, mut begun: Option<Arc<Barrier>>) {
        let mut share = 1;
        loop {
            if begun.is_none() {
                // Wait before making a batch, which would otherwise wait in memory. Its size is not known yet; that of the
                // last one serves as an estimate.
                let Ok(place) = self.room.acquire_many(share).await else { return };
                drop(place);
            }
            let mut next = batches.next().await;
            let counted = self.memory.new_empty();
            if let Some(Ok(batch)) = &next {
                // The batch already exists and cannot be refused; others are refused instead.
                counted.grow(held_bytes(batch));
            }
            if let Some(Err(error)) = next {
                // An error is sent before the rows of the partitions that wait at the barrier.
                let _ = self.to.send(Err(error)).await;
                next = None;
            }
            if let Some(begun) = begun.take() {
                begun.wait().await;
            }
            let Some(Ok(batch)) = next else { return };
            share = u32::try_from(counted.size()).unwrap_or(u32::MAX).clamp(1, WAITING_BYTES);
            let Ok(permit) = Arc::clone(&self.room).acquire_many_owned(share).await else { return };
            if self.to.send(Ok(QueuedBatch { batch, _memory: counted, _room: permit })).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use arrow::array::StringArray;
    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
    use datafusion::physical_expr::expressions::Column;
    use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
    use datafusion::physical_plan::sorts::sort::SortExec;
    use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
    use futures::FutureExt as _;
    use quiver_types::cancellation::Watch;
    use quiver_types::read_stats::Gate;

    use super::*;
    use crate::current_query::{WatchedFuture, hand_on};

    const TEXT_BYTES: usize = 1 << 20;

    /// A query that goes on.
    #[derive(Debug)]
    struct Going;

    impl Gate for Going {
        fn take(&self, _: usize) -> quiver_types::Result<()> {
            Ok(())
        }

        fn give_back(&self, _: usize) {}

        fn check(&self) -> quiver_types::Result<()> {
            Ok(())
        }
    }

    /// What a partition does behind its batches.
    #[derive(Debug, Clone, Copy)]
    enum End {
        Ends,
        Fails,
        Panics,
    }

    /// A partition of so many batches of one long text each, and how many of them were asked for.
    #[derive(Debug)]
    struct Texts {
        schema: SchemaRef,
        count: usize,
        end: End,
        made: Arc<AtomicUsize>,
        /// How many of them were made for a known query.
        watched: Arc<AtomicUsize>,
    }

    impl PartitionStream for Texts {
        fn schema(&self) -> &SchemaRef {
            &self.schema
        }

        fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
            let (count, end, schema) = (self.count, self.end, Arc::clone(&self.schema));
            let (made, watched) = (Arc::clone(&self.made), Arc::clone(&self.watched));
            let batch = move |n: usize| {
                if n == count {
                    return match end {
                        End::Ends => None,
                        End::Fails => Some(Err(DataFusionError::Execution("it breaks off".to_owned()))),
                        End::Panics => panic!("a fault"),
                    };
                }
                made.fetch_add(1, Relaxed);
                watched.fetch_add(usize::from(Watch::current().is_some()), Relaxed);
                let column = Arc::new(StringArray::from(vec!["x".repeat(TEXT_BYTES)]));
                Some(RecordBatch::try_new(Arc::clone(&schema), vec![column]).map_err(DataFusionError::from))
            };
            let batches = stream::iter((0..).map_while(batch));
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
        }
    }

    /// Partitions whose rows come when they have read all of theirs, as those of groups.
    fn sorted(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let by = PhysicalSortExpr::new_default(Arc::new(Column::new("text", 0)));
        let order = LexOrdering::new([by]).unwrap();
        Arc::new(SortExec::new(order, plan).with_preserve_partitioning(true))
    }

    struct Run {
        pool: Arc<dyn MemoryPool>,
        made: Arc<AtomicUsize>,
        watched: Arc<AtomicUsize>,
        rows: SendableRecordBatchStream,
    }

    fn run(partitions: &[(usize, End)]) -> Run {
        run_as(partitions, |plan| plan)
    }

    fn run_as(partitions: &[(usize, End)], made_to: fn(Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan>) -> Run {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("text", DataType::Utf8, false)]));
        let [made, watched] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let partition = |&(count, end): &(usize, End)| -> Arc<dyn PartitionStream> {
            let (made, watched) = (Arc::clone(&made), Arc::clone(&watched));
            Arc::new(Texts { schema: Arc::clone(&schema), count, end, made, watched })
        };
        let partitions = partitions.iter().map(partition).collect();
        let plan = StreamingTableExec::try_new(Arc::clone(&schema), partitions, None, [], false, None).unwrap();
        let plan = made_to(Arc::new(plan));
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 30));
        let memory = MemoryConsumer::new("rows").register(&pool);
        let rows = gathered(&plan, &Arc::new(TaskContext::default()), memory).unwrap();
        Run { pool, made, watched, rows }
    }

    /// What partitions do, once nothing more happens.
    async fn at_rest(made: &AtomicUsize) -> usize {
        loop {
            let before = made.load(Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
            if made.load(Relaxed) == before {
                return before;
            }
        }
    }

    #[tokio::test]
    async fn what_waits_counts_and_is_little() {
        let Run { pool, made, mut rows, .. } = run(&[(100, End::Ends), (100, End::Ends), (100, End::Ends)]);
        assert!(rows.next().await.unwrap().is_ok());
        // One was taken and another one waits. Three partitions may have begun one more each.
        let begun = at_rest(&made).await;
        assert!(begun <= 5, "{begun} batches were made for a reader of one");
        let known = pool.reserved();
        assert!(known >= (begun - 1) * TEXT_BYTES, "{known} bytes are known of {begun} batches");
        let mut found = 1;
        while let Some(batch) = rows.next().await {
            found += batch.unwrap().num_rows();
        }
        assert_eq!((found, pool.reserved()), (300, 0));
    }

    /// Else what its functions make would be nobody's, and a refusal would blame others.
    #[tokio::test]
    async fn partitions_know_their_query() {
        hand_on();
        let work = async {
            let Run { made, watched, mut rows, .. } = run(&[(2, End::Ends), (3, End::Ends)]);
            while let Some(batch) = rows.next().await {
                assert_eq!(batch.unwrap().num_rows(), 1);
            }
            (made.load(Relaxed), watched.load(Relaxed))
        };
        let watch = Watch::new(Arc::new(Going));
        assert_eq!(WatchedFuture::new(watch, work.boxed()).await, (5, 5));
    }

    #[tokio::test]
    async fn an_error_comes_behind_the_rows_before_it() {
        let Run { mut rows, .. } = run(&[(2, End::Fails), (0, End::Ends)]);
        for _ in 0..2 {
            assert!(rows.next().await.unwrap().is_ok());
        }
        assert!(rows.next().await.unwrap().unwrap_err().to_string().contains("it breaks off"));
        assert!(rows.next().await.is_none());
    }

    /// Breaks if groups of one partition are returned while another partition may still fail.
    #[tokio::test]
    async fn an_error_of_groups_is_all_that_comes() {
        for _ in 0..20 {
            let Run { mut rows, .. } = run_as(&[(1, End::Ends), (3, End::Fails), (0, End::Ends)], sorted);
            assert!(rows.next().await.unwrap().unwrap_err().to_string().contains("it breaks off"));
        }
        let Run { pool, rows, .. } = run_as(&[(7, End::Ends), (0, End::Ends), (5, End::Ends)], sorted);
        let found: Vec<_> = rows.map(|batch| batch.unwrap().num_rows()).collect().await;
        assert_eq!((found.iter().sum::<usize>(), pool.reserved()), (12, 0));
    }

    #[tokio::test]
    #[should_panic(expected = "a fault")]
    async fn a_panic_of_groups_goes_on_to_the_reader() {
        let Run { mut rows, .. } = run_as(&[(1, End::Ends), (0, End::Panics)], sorted);
        while rows.next().await.is_some() {}
    }

    #[tokio::test]
    #[should_panic(expected = "a fault")]
    async fn a_panic_goes_on_to_the_reader() {
        let Run { mut rows, .. } = run(&[(1, End::Panics), (1, End::Ends)]);
        while rows.next().await.is_some() {}
    }

    #[tokio::test]
    #[should_panic(expected = "a fault")]
    async fn a_panic_does_not_wait_for_others() {
        let Run { mut rows, .. } = run(&[(0, End::Panics), (usize::MAX, End::Ends)]);
        for _ in 0..1000 {
            assert!(rows.next().await.is_some());
        }
    }

    #[tokio::test]
    async fn who_goes_away_ends_the_partitions() {
        let Run { pool, made, mut rows, .. } = run(&[(1000, End::Ends), (1000, End::Ends)]);
        assert!(rows.next().await.unwrap().is_ok());
        drop(rows);
        let begun = at_rest(&made).await;
        assert!(begun < 20, "{begun} batches");
        assert_eq!(pool.reserved(), 0);
    }
}
