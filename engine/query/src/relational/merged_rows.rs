//! Limits the batches that DataFusion merges. Filters and exchanges merge short batches into ones of 8,192 rows,
//! however large the rows, and count them nowhere: rows of 100 KB that arrive ten at a time become a batch of 800 MB.
//!
//! Above nodes that return long rows in short batches, filters merge only up to a few rows, and pass larger batches on
//! as they are. Batches of numbers are merged as before: where few rows pass a filter, each would otherwise be nearly a
//! batch of its own. The rows of a recursion are never distributed by an exchange; they come one after the other on one
//! processor.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};

use super::batch_bytes::may_be_long;
use super::node_names::node_names;
use super::text_views::TextViewsExec;
use crate::plan_walk::change_physical;

/// Rows that a condition puts together at least; batches of more than half of them stay as they are.
const MERGED_ROWS: usize = 8;
/// Nodes whose batches have few rows where rows are long.
const GIVING_FEW: [&str; 7] = node_names![
    CrossJoinExec,
    HashJoinExec,
    NestedLoopJoinExec,
    RecursiveQueryExec,
    TextViewsExec,
    UnnestExec,
    WorkTableExec,
];
/// Nodes of a recursion.
const RECURSIVE: [&str; 2] = node_names![RecursiveQueryExec, WorkTableExec];
/// Nodes that hand on rows of one input, batch by batch.
const HANDING_ON: [&str; 5] =
    node_names![CoalescePartitionsExec, CooperativeExec, FilterExec, ProjectionExec, RepartitionExec];

/// Keeps long rows apart.
///
/// # Errors
/// Those of making the nodes.
pub(crate) fn few_merged(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        if let Some(filter) = node.downcast_ref::<FilterExec>()
            && may_be_long(&node.schema())
            && comes_from(filter.input(), &GIVING_FEW)
        {
            let few: Arc<dyn ExecutionPlan> = Arc::new(filter.with_batch_size(MERGED_ROWS)?);
            return Ok(Transformed::yes(few));
        }
        if let Some(exchange) = node.downcast_ref::<RepartitionExec>()
            && matches!(exchange.partitioning(), Partitioning::RoundRobinBatch(_))
            && comes_from(exchange.input(), &RECURSIVE)
        {
            return Ok(Transformed::yes(Arc::clone(exchange.input())));
        }
        Ok(Transformed::no(node))
    })
}

/// Whether the rows of a plan are those of one of these nodes, handed on.
fn comes_from(plan: &Arc<dyn ExecutionPlan>, nodes: &[&str]) -> bool {
    if nodes.contains(&plan.name()) {
        return true;
    }
    HANDING_ON.contains(&plan.name()) && plan.children().into_iter().all(|input| comes_from(input, nodes))
}

#[cfg(test)]
mod tests {
    use arrow::array::RecordBatch;
    use datafusion::physical_plan::displayable;
    use futures::TryStreamExt as _;
    use quiver_types::Access;

    use super::*;
    use crate::error::from_datafusion;
    use crate::name_resolution::Names;
    use crate::{EngineSettings, Limits, QueryContext, QueryEngine, Rules};

    /// The plan of a statement, and its rows.
    async fn run(statement: &'static str) -> (String, Vec<RecordBatch>) {
        let settings = EngineSettings { threads: 2, ..EngineSettings::small(64 << 20) };
        let engine = QueryEngine::new(&settings).unwrap();
        let plan = Names::new(engine.relational()).plan(statement).unwrap();
        let (_, physical) = engine.plan_relational(&plan).await.unwrap();
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let (own, inner) = (Arc::clone(&engine), ctx.clone());
        let work = async move {
            let rows = own.execute(&plan, &inner, Rules::Relational).await?;
            rows.try_collect::<Vec<RecordBatch>>().await.map_err(from_datafusion)
        };
        let batches = engine.run(&ctx, work).await.unwrap();
        (displayable(physical.as_ref()).indent(false).to_string(), batches)
    }

    #[tokio::test]
    async fn long_rows_stay_apart_behind_a_condition() {
        let statement = "select u, s from (select unnest(l) u, s from \
                         (select array_agg(g.value) l from generate_series(1, 300) g) a, \
                         (select string_agg(repeat('x', 1000), '') s from generate_series(1, 100) g) b) z \
                         where length(s) > u";
        let (shown, batches) = run(statement).await;
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 300, "{shown}");
        let most = batches.iter().map(RecordBatch::get_array_memory_size).max();
        assert!(most.is_some_and(|bytes| bytes < 6 << 20), "{most:?} of 30 MB at once\n{shown}");
    }

    /// How many rows the conditions of a plan merge.
    fn merged(plan: &Arc<dyn ExecutionPlan>) -> Vec<usize> {
        let own = plan.downcast_ref::<FilterExec>().map(FilterExec::batch_size);
        own.into_iter().chain(plan.children().into_iter().flat_map(merged)).collect()
    }

    #[tokio::test]
    async fn numbers_are_merged_whatever_they_come_from() {
        let engine = QueryEngine::new(&EngineSettings::small(64 << 20)).unwrap();
        for (unnested, other, rows) in [("g.value", "5", 8192), ("cast(g.value as text)", "'5'", MERGED_ROWS)] {
            let statement = format!(
                "select u from (select unnest(l) u from (select array_agg({unnested}) l from generate_series(1, 9) g) a) b \
                 where u <> {other}"
            );
            let plan = Names::new(engine.relational()).plan(&statement).unwrap();
            let (_, physical) = engine.plan_relational(&plan).await.unwrap();
            let shown = displayable(physical.as_ref()).indent(false).to_string();
            assert_eq!(merged(&physical), [rows], "{shown}");
        }
    }

    #[tokio::test]
    async fn rows_of_a_recursion_are_not_spread() {
        let statement = "with recursive t(n) as (select 1 union all select n + 1 from t where n < 5) \
                         select count(*), max(n) from t";
        let (shown, batches) = run(statement).await;
        assert!(shown.contains("RecursiveQueryExec") && !shown.contains("RoundRobinBatch"), "{shown}");
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
    }
}
