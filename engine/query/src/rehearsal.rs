//! Runs of a plan whose rows are thrown away: whatever a node kept from them would show in the run that follows.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt as _;

/// Makes a plan ready for another run. Nodes of ours keep nothing; some of DataFusion's do (the sort with a limit, the
/// build side of joins), and say how to begin anew.
pub(crate) fn again(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
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

    use datafusion::arrow::datatypes::{Schema, SchemaRef};
    use datafusion::execution::SendableRecordBatchStream;
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};

    use super::*;

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
}
