//! For tests: runs each plan twice, and discards the rows of the first run. If a node kept state between runs, rows or
//! counters of the second one would differ (contract P4).

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use futures::StreamExt as _;

use crate::context::QueryContext;
use crate::error::from_datafusion;

/// Which run of a plan something is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanRun {
    /// One whose rows are thrown away.
    Rehearsal,
    /// The one that the answer comes out of.
    Answer,
}

/// Runs a plan as a whole and partition by partition, in tasks as the engine makes them, and gives it ready for its own run.
/// What rehearsals read and count is not added to the query's counters, so its statistics are the same with and without
/// them.
pub(crate) async fn rehearsed(
    physical: Arc<dyn ExecutionPlan>,
    ctx: &QueryContext,
    bound: impl Fn() -> Arc<TaskContext>,
) -> quiver_types::Result<Arc<dyn ExecutionPlan>> {
    let task = || {
        let bound = bound();
        let config = bound.session_config().clone().with_extension(Arc::new(ctx.stats.for_another_run()));
        Arc::new(TaskContext::default().with_session_config(config).with_runtime(bound.runtime_env()))
    };
    let mut rows = execute_stream(Arc::clone(&physical), task()).map_err(from_datafusion)?;
    while let Some(batch) = rows.next().await {
        batch.map_err(from_datafusion)?;
    }
    let physical = ready_for_a_run(physical).map_err(from_datafusion)?;
    by_partition(&physical, &task).await.map_err(from_datafusion)?;
    ready_for_a_run(physical).map_err(from_datafusion)
}

/// Makes a plan ready for another run. Nodes of ours keep nothing; some of DataFusion's do (the sort with a limit, the
/// build side of joins), and say how to begin anew.
fn ready_for_a_run(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    reset_plan_states(plan)
}

/// Runs the parts of a plan that have several partitions, one partition after the other and the last one first, as other
/// machines might.
pub(crate) async fn by_partition(plan: &Arc<dyn ExecutionPlan>, task: impl Fn() -> Arc<TaskContext>) -> Result<()> {
    let mut below = vec![Arc::clone(plan)];
    while let Some(node) = below.pop() {
        let partitions = node.output_partitioning().partition_count();
        if partitions == 1 {
            below.extend(node.children().into_iter().cloned());
            continue;
        }
        let task = task();
        for partition in (0..partitions).rev() {
            let mut rows = node.execute(partition, Arc::clone(&task))?;
            while let Some(batch) = rows.next().await {
                batch?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use datafusion::catalog::streaming::StreamingTable;
    use datafusion::datasource::provider_as_source;
    use datafusion::execution::SendableRecordBatchStream;
    use datafusion::logical_expr::LogicalPlanBuilder;
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
    use quiver_types::read_stats::{add, get};
    use quiver_types::{Access, ReadStats, RunShared};

    use super::*;
    use crate::{EngineSettings, Limits, QueryEngine, Rules, SharedState};

    /// Notes when it runs.
    #[derive(Debug)]
    struct Noted {
        number: usize,
        order: Arc<Mutex<Vec<usize>>>,
        schema: SchemaRef,
    }

    impl PartitionStream for Noted {
        fn schema(&self) -> &SchemaRef {
            &self.schema
        }

        fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
            self.order.lock().unwrap().push(self.number);
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), futures::stream::empty()))
        }
    }

    #[tokio::test]
    async fn partitions_run_in_turn_and_the_last_one_first() {
        let (order, schema) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Schema::empty()));
        let noted = |number| {
            let (order, schema) = (Arc::clone(&order), Arc::clone(&schema));
            Arc::new(Noted { number, order, schema }) as Arc<dyn PartitionStream>
        };
        let partitions = (0..3).map(noted).collect();
        let leaf = StreamingTableExec::try_new(Arc::clone(&schema), partitions, None, None, false, None).unwrap();
        let plan: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(Arc::new(leaf)));
        let tasks = AtomicUsize::new(0);
        let task = || {
            tasks.fetch_add(1, Relaxed);
            Arc::default()
        };
        by_partition(&plan, task).await.unwrap();
        assert_eq!(*order.lock().unwrap(), [2, 1, 0]);
        assert_eq!(tasks.into_inner(), 1, "partitions of one run meet");
    }

    /// Counts a sample for the query of its task each time that it runs, and notes it where nodes of the query meet.
    #[derive(Debug)]
    struct Counted(SchemaRef);

    impl PartitionStream for Counted {
        fn schema(&self) -> &SchemaRef {
            &self.0
        }

        fn execute(&self, task: Arc<TaskContext>) -> SendableRecordBatchStream {
            let found = task.session_config().get_extension::<ReadStats>().expect("an engine runs it");
            add(&found.samples, 1);
            let shared = task.session_config().get_extension::<RunShared>().expect("as well");
            shared.of_query::<AtomicUsize>().expect("what the run began with").fetch_add(1, Relaxed);
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.0), futures::stream::empty()))
        }
    }

    /// The counters of rehearsals and of the run that answers.
    #[derive(Debug)]
    struct ByRun {
        rehearsed: Arc<AtomicUsize>,
        answered: Arc<AtomicUsize>,
    }

    impl SharedState for ByRun {
        fn of_run(self: Arc<Self>, run: PlanRun) -> RunShared {
            RunShared::with(Arc::clone(match run {
                PlanRun::Rehearsal => &self.rehearsed,
                PlanRun::Answer => &self.answered,
            }))
        }
    }

    #[tokio::test]
    async fn what_rehearsals_count_is_none_of_the_querys() {
        let engine = QueryEngine::new(&EngineSettings::small(16 << 20)).unwrap();
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let partition = || Arc::new(Counted(Arc::clone(&schema))) as Arc<dyn PartitionStream>;
        let table = StreamingTable::try_new(Arc::clone(&schema), vec![partition(), partition()]).unwrap();
        let plan = LogicalPlanBuilder::scan("t", provider_as_source(Arc::new(table)), None).unwrap().build().unwrap();
        let ctx = QueryContext::new(Access::full(), Limits::default()).rehearsed(true);
        let [rehearsed, answered] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let (own, inner) = (Arc::clone(&engine), ctx.clone());
        let noted = Arc::new(ByRun { rehearsed: Arc::clone(&rehearsed), answered: Arc::clone(&answered) });
        let work = async move {
            let mut rows = own.execute(&plan, &inner, Rules::Shared(noted)).await?;
            while let Some(batch) = rows.next().await {
                batch.map_err(from_datafusion)?;
            }
            Ok(())
        };
        engine.run(&ctx, work).await.unwrap();
        assert_eq!((rehearsed.load(Relaxed), answered.load(Relaxed)), (4, 2), "two rehearsals of two partitions");
        assert_eq!(get(&ctx.stats.samples), 2);
    }
}
