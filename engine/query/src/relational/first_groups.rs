//! Keeps the first groups of an order apart from all others only if they are few. DataFusion makes room for ten times as
//! many groups as the limit before the first row, and counts it nowhere: `GROUP BY a ORDER BY a LIMIT 1000000000` took
//! the memory of the server, and ended it.
//!
//! Behind a larger limit all groups are made, which are counted as they come, and their sort keeps the first ones.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

use crate::plan_walk::change_physical;

/// Most groups that are kept apart: with the room for ten times as many less than a megabyte in each partition.
const GROUPS_MAX: usize = 1_000;

/// Lets aggregations make all groups where many are asked for.
///
/// # Errors
/// None of its own.
pub(crate) fn few_apart(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        let all: Option<Arc<dyn ExecutionPlan>> = match node.downcast_ref::<AggregateExec>() {
            Some(groups) if keeps_many_apart(groups) => Some(Arc::new(groups.with_new_limit_options(None))),
            _ => None,
        };
        Ok(all.map_or_else(|| Transformed::no(node), Transformed::yes))
    })
}

/// Whether an aggregation makes room for many groups. One without an order makes none: it ends with the last group that
/// it needs.
fn keeps_many_apart(groups: &AggregateExec) -> bool {
    let is_many = groups.limit_options().is_some_and(|options| options.limit() > GROUPS_MAX);
    is_many && !groups.is_unordered_unfiltered_group_by_distinct()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name_resolution::Names;
    use crate::relational::tests::{count, engine};

    /// Limits of the aggregations of a plan.
    fn limits(plan: &Arc<dyn ExecutionPlan>) -> Vec<usize> {
        let own = plan.downcast_ref::<AggregateExec>().and_then(AggregateExec::limit_options);
        let own = own.map(|options| options.limit());
        own.into_iter().chain(plan.children().into_iter().flat_map(limits)).collect()
    }

    #[tokio::test]
    async fn only_few_first_groups_are_kept_apart() {
        let engine = engine();
        for (limit, is_apart) in [(1, true), (GROUPS_MAX, true), (GROUPS_MAX + 1, false), (1 << 40, false)] {
            for (columns, order) in [("g.value", "1 desc"), ("g.value, min(g.value)", "2")] {
                let groups =
                    format!("select {columns} from generate_series(1, 5) g group by 1 order by {order} limit {limit}");
                let plan = Names::new(engine.relational()).plan(&groups).unwrap();
                let (_, physical) = engine.plan_relational(&plan).await.unwrap();
                let found = limits(&physical);
                assert_eq!(!found.is_empty(), is_apart, "{groups}: {found:?}");
                assert!(found.iter().all(|apart| *apart == limit), "{groups}: {found:?}");
            }
        }
    }

    #[tokio::test]
    async fn endless_limits_of_groups_take_no_room() {
        let engine = engine();
        for statement in [
            "select g.value from generate_series(1, 5) g group by 1 order by 1 limit 9223372036854775807",
            "select g.value::text from generate_series(1, 5) g group by 1 order by 1 desc limit 9000000000",
            "select g.value, min(g.value) from generate_series(1, 5) g group by 1 order by 2 limit 9000000000",
        ] {
            assert_eq!(count(&engine, statement, 60_000).await.unwrap(), 5, "{statement}");
        }
    }
}
