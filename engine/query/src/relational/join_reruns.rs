//! Joins without an equality condition whose collected side does not fit into memory. DataFusion then executes the same
//! nodes a second time within the run, to spill their rows. But those nodes have already given their rows: an exchange
//! panicked, and a scan whose partitions share a queue was empty, so that a count was 0. Besides, joins that also
//! return unmatched rows, or each row once, lose some of them: of two rows on the right side, `RIGHT JOIN` returned
//! one.
//!
//! A node over the collected side lets it run anew for an inner join, and fails with "out of memory" for the others.

use std::fmt;
use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ReplaceChildrenOptions,
};
use quiver_types::RunShared;

use crate::node_defaults::rows_of_input;
use crate::plan_walk::change_physical;

/// Puts the node over what joins hold and may read twice.
///
/// # Errors
/// Those of making the nodes.
pub(crate) fn read_anew(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        let Some(join) = node.downcast_ref::<NestedLoopJoinExec>().filter(|join| !join.left().is::<RerunExec>()) else {
            return Ok(Transformed::no(node));
        };
        let is_recursive = join.left().exists(|node| Ok(node.is::<WorkTableExec>()))?;
        let may_spill = *join.join_type() == JoinType::Inner && !is_recursive;
        let left = Arc::new(RerunExec::new(Arc::clone(join.left()), may_spill));
        let children = vec![left as Arc<dyn ExecutionPlan>, Arc::clone(join.right())];
        let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Transformed::yes(node.replace_children(children, anew)?))
    })
}

/// Tells the nodes of one run apart.
#[derive(Debug)]
struct Identity;

/// Runs its input, and another one like it where it is executed again within a run.
#[derive(Debug)]
pub(crate) struct RerunExec {
    input: Arc<dyn ExecutionPlan>,
    may_spill: bool,
    identity: Arc<Identity>,
}

impl RerunExec {
    /// Makes the node; `may_spill`: the join that holds the rows may spill them.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, may_spill: bool) -> Self {
        Self { input, may_spill, identity: Arc::new(Identity) }
    }

    pub(crate) fn may_spill(&self) -> bool {
        self.may_spill
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(input, self.may_spill)
    }
}

impl DisplayAs for RerunExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RerunExec: may_spill={}", self.may_spill)
    }
}

impl ExecutionPlan for RerunExec {
    fn name(&self) -> &'static str {
        "RerunExec"
    }

    rows_of_input!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let run = context.session_config().get_extension::<RunShared>();
        if run.is_none_or(|run| run.is_first(&self.identity)) {
            return self.input.execute(partition, context);
        }
        if !self.may_spill {
            let text =
                "the held side of a join that is no inner one, or that is in a recursion, does not fit into memory";
            return Err(DataFusionError::ResourcesExhausted(text.to_owned()));
        }
        reset_plan_states(Arc::clone(&self.input))?.execute(partition, context)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::JoinSide;
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
    use datafusion::physical_plan::repartition::RepartitionExec;
    use datafusion::physical_plan::{Partitioning, collect, displayable};
    use datafusion::prelude::{SessionConfig, SessionContext};
    use quiver_types::ErrorKind;

    use super::*;
    use crate::error::from_datafusion;
    use crate::node_encoding::tests::passed;

    /// Rows of a batch, and bytes of it.
    const ROWS: i64 = 8192;
    const BYTES: usize = 8 * ROWS as usize;

    /// Numbers from 0 in so many batches of so many rows, in partitions in turn.
    fn numbers(name: &str, (batches, rows_each): (i64, i64), partitions: usize) -> Arc<dyn ExecutionPlan> {
        let schema = Arc::new(Schema::new(vec![Field::new(name, DataType::Int64, false)]));
        let mut rows = vec![Vec::new(); partitions];
        for n in 0..batches {
            let column: ArrayRef = Arc::new(Int64Array::from_iter_values(n * rows_each..(n + 1) * rows_each));
            rows[n as usize % partitions].push(RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap());
        }
        MemorySourceConfig::try_new_exec(&rows, schema, None).unwrap()
    }

    /// A join by `x + y = 0`, which one pair fulfils, of 40 batches behind an exchange with two rows.
    fn join(kind: JoinType, partitions: usize) -> Arc<dyn ExecutionPlan> {
        let exchange = RepartitionExec::try_new(numbers("x", (40, ROWS), 1), Partitioning::RoundRobinBatch(2)).unwrap();
        let left = Arc::new(CoalescePartitionsExec::new(Arc::new(exchange)));
        let schema = Schema::new(["x", "y"].map(|name| Field::new(name, DataType::Int64, false)).to_vec());
        let column = |name: &str, at: usize| Arc::new(Column::new(name, at));
        let sum = Arc::new(BinaryExpr::new(column("x", 0), Operator::Plus, column("y", 1)));
        let zero = Arc::new(Literal::new(0_i64.into()));
        let on = Arc::new(BinaryExpr::new(sum, Operator::Eq, zero));
        let columns = [JoinSide::Left, JoinSide::Right].map(|side| ColumnIndex { index: 0, side });
        let filter = JoinFilter::new(on, columns.to_vec(), Arc::new(schema));
        let right = numbers("y", (2, 1), partitions);
        let join = NestedLoopJoinExec::try_new(left, right, Some(filter), &kind, None).unwrap();
        let (plan, names) = passed(read_anew(Arc::new(join)).unwrap());
        assert!(names.contains("RerunExec"), "{names:?}");
        plan
    }

    /// The rows of a plan that runs with so many bytes of memory.
    async fn rows(plan: Arc<dyn ExecutionPlan>, bytes: usize) -> quiver_types::Result<usize> {
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(bytes)));
        let config = SessionConfig::new().with_extension(Arc::new(RunShared::default()));
        let session = SessionContext::new_with_config_rt(config, runtime.build_arc().unwrap());
        let plan: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(plan));
        let batches = collect(plan, session.task_ctx()).await.map_err(from_datafusion)?;
        Ok(batches.iter().map(RecordBatch::num_rows).sum())
    }

    /// Breaks if the second run of a side panics or finds nothing, or if rows without a partner come once for each
    /// partition.
    #[tokio::test]
    async fn what_does_not_fit_is_read_anew_or_refused() {
        let all = 40 * ROWS as usize;
        for (kind, partitions, expected) in [
            (JoinType::Inner, 2, Some(1)),
            (JoinType::Inner, 1, Some(1)),
            (JoinType::Right, 2, None),
            (JoinType::RightSemi, 2, None),
            (JoinType::Left, 1, None),
            (JoinType::Left, 2, None),
            (JoinType::LeftSemi, 2, None),
            (JoinType::LeftAnti, 2, None),
        ] {
            let plan = join(kind, partitions);
            let shown = displayable(plan.as_ref()).indent(false).to_string();
            assert!(shown.contains(&format!("RerunExec: may_spill={}", expected.is_some())), "{shown}");
            match (rows(plan, 20 * BYTES).await, expected) {
                (Ok(rows), Some(expected)) => assert_eq!(rows, expected, "{kind}, {partitions} partitions"),
                (Err(error), None) => assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}"),
                (found, expected) => panic!("{kind}, {partitions} partitions: {found:?}, not {expected:?}"),
            }
            // Another plan: the join keeps what its first run came to.
            let enough = rows(join(kind, partitions), 1000 * BYTES).await.unwrap();
            let of_kind = match kind {
                JoinType::Left => all,
                JoinType::LeftAnti => all - 1,
                JoinType::Right => 2,
                _ => 1,
            };
            assert_eq!(enough, of_kind, "{kind}, {partitions} partitions");
        }
    }

    #[tokio::test]
    async fn it_stands_there_once_and_each_run_is_the_first() {
        let plan = read_anew(join(JoinType::Inner, 1)).unwrap();
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        assert_eq!(shown.matches("RerunExec").count(), 1, "{shown}");
        for bytes in [20 * BYTES, 1000 * BYTES, 20 * BYTES] {
            assert_eq!(rows(Arc::clone(&plan), bytes).await.unwrap(), 1);
        }
    }
}
