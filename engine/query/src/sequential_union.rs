//! Runs the inputs of a union a few at a time. `UnionExec` has the partitions of all its inputs, and whoever merges
//! them starts them all at once. Each holds the data it reads, so that a union of sixty inputs would hold blocks of
//! more than a hundred scans before its first row, and fail halfway through its result. Here there are as many
//! partitions as in other plans, and each runs some of the union's partitions one after the other.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::internal_err;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties as _, Partitioning, PlanProperties,
};
use futures::{TryStreamExt as _, stream};

use crate::node_defaults::{no_expressions, one_input};
use crate::operator::{Operator, operator_plan};
use crate::plan_walk::change_physical;

/// Makes a union run its inputs in turn. The order of its rows is not defined.
///
/// # Errors
/// Internal: the names of the columns are not unique.
pub fn in_turn(union: LogicalPlan) -> quiver_types::Result<LogicalPlan> {
    let schema = Arc::clone(union.schema().inner());
    operator_plan(InTurn(schema), vec![union])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct InTurn(SchemaRef);

impl Operator for InTurn {
    fn name(&self) -> &'static str {
        "InTurn"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0)
    }

    fn physical(
        self: Arc<Self>,
        mut inputs: Vec<Arc<dyn ExecutionPlan>>,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (input, most) = (inputs.swap_remove(0), session.config().target_partitions());
        if input.output_partitioning().partition_count() <= most {
            return Ok(input);
        }
        Ok(Arc::new(InTurnExec::new(input, most)))
    }
}

/// Makes the unions of a plan run their inputs in turn, at most `most` at once. Sorted unions stay as they are, since
/// a merge needs the first row of each input.
///
/// # Errors
/// Those of making the nodes.
pub(crate) fn few_at_once(plan: Arc<dyn ExecutionPlan>, most: usize) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        let is_many = node.is::<UnionExec>() && node.output_partitioning().partition_count() > most;
        if !is_many || node.output_ordering().is_some() {
            return Ok(Transformed::no(node));
        }
        Ok(Transformed::yes(Arc::new(InTurnExec::new(node, most)) as Arc<dyn ExecutionPlan>))
    })
}

/// Runs many partitions as a few, each a sequence of the original ones.
#[derive(Debug)]
pub(crate) struct InTurnExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl InTurnExec {
    /// Makes the node, with at most `most` partitions and at least one.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, most: usize) -> Self {
        let partitions = most.min(input.output_partitioning().partition_count()).max(1);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(partitions),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self { input, properties: Arc::new(properties) }
    }

    /// Number of its output partitions.
    pub(crate) fn partitions(&self) -> usize {
        self.properties.output_partitioning().partition_count()
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(input, self.partitions())
    }
}

impl DisplayAs for InTurnExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InTurnExec: partitions={}", self.partitions())
    }
}

impl ExecutionPlan for InTurnExec {
    fn name(&self) -> &'static str {
        "InTurnExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    one_input!();
    no_expressions!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (input, partitions) = (Arc::clone(&self.input), self.partitions());
        if partition >= partitions {
            return internal_err!("there are {partitions} partitions, not {}", partition + 1);
        }
        let turns = (partition..input.output_partitioning().partition_count()).step_by(partitions);
        // Each partition is opened only after the previous one has ended.
        let batches = stream::iter(turns.map(move |turn| input.execute(turn, Arc::clone(&context)))).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use arrow::array::{AsArray as _, Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::physical_expr::expressions::Column;
    use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
    use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
    use futures::StreamExt as _;

    use super::*;
    use crate::node_encoding::tests::passed;

    /// A partition of one number, and how many partitions were opened.
    #[derive(Debug)]
    struct Number(i64, SchemaRef, Arc<AtomicUsize>);

    impl PartitionStream for Number {
        fn schema(&self) -> &SchemaRef {
            &self.1
        }

        fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
            self.2.fetch_add(1, Relaxed);
            let batch = RecordBatch::try_new(Arc::clone(&self.1), vec![Arc::new(Int64Array::from(vec![self.0]))]);
            let batches = stream::iter([Ok(batch.unwrap())]);
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.1), batches))
        }
    }

    #[tokio::test]
    async fn each_partition_goes_through_its_part_in_turn() {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let opened = Arc::<AtomicUsize>::default();
        let part = |n| Arc::new(Number(n, Arc::clone(&schema), Arc::clone(&opened))) as Arc<dyn PartitionStream>;
        let rows =
            StreamingTableExec::try_new(Arc::clone(&schema), (0..5).map(part).collect(), None, None, false, None);
        let plan: Arc<dyn ExecutionPlan> = Arc::new(InTurnExec::new(Arc::new(rows.unwrap()), 2));
        assert_eq!(plan.output_partitioning().partition_count(), 2);
        let (plan, names) = passed(plan);
        assert!(names.contains("InTurnExec"), "it comes back from what is written");
        let context = Arc::<TaskContext>::default();
        let mut found = Vec::new();
        for partition in 0..2 {
            let mut rows = plan.execute(partition, Arc::clone(&context)).unwrap();
            let before = opened.load(Relaxed);
            while let Some(batch) = rows.next().await {
                found.push(batch.unwrap().column(0).as_primitive::<Int64Type>().value(0));
                let part = found.len() - before;
                assert_eq!(opened.load(Relaxed), before + part, "the next one is opened in its turn");
            }
        }
        assert_eq!(found, [0, 2, 4, 1, 3]);
        assert!(plan.execute(2, context).is_err());
    }

    #[test]
    fn unions_that_are_in_no_order_go_in_turn() {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let union = |inputs: i64, order: Option<LexOrdering>| {
            let input = |n| {
                let part = Number(n, Arc::clone(&schema), Arc::default());
                let parts: Vec<Arc<dyn PartitionStream>> = vec![Arc::new(part)];
                let rows = StreamingTableExec::try_new(Arc::clone(&schema), parts, None, order.clone(), false, None);
                Arc::new(rows.unwrap()) as Arc<dyn ExecutionPlan>
            };
            UnionExec::try_new((0..inputs).map(input).collect()).unwrap()
        };
        let given = |plan| {
            let plan = few_at_once(plan, 3).unwrap();
            (plan.name().to_owned(), plan.output_partitioning().partition_count())
        };
        assert_eq!(given(union(60, None)), ("InTurnExec".to_owned(), 3));
        assert_eq!(given(union(3, None)), ("UnionExec".to_owned(), 3));
        let order = LexOrdering::new([PhysicalSortExpr::new_default(Arc::new(Column::new("n", 0)))]);
        assert_eq!(given(union(60, order)), ("UnionExec".to_owned(), 60));
    }
}
