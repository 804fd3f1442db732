//! Plans lists in a [session of their own](crate::list_session).

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use quiver_types::Result;

use super::QueryEngine;
use crate::context::QueryContext;
use crate::error::from_datafusion;
use crate::list_session::is_small;
use crate::operator::planned;
use crate::relational::held_inputs;

impl QueryEngine {
    /// Makes the physical plan of a list.
    ///
    /// # Errors
    /// Those of the planner.
    pub(super) async fn plan_list(&self, plan: &LogicalPlan, ctx: &QueryContext) -> Result<Arc<dyn ExecutionPlan>> {
        // Row counts of tables include rows hidden from the caller, who may see the plan and must not learn them from
        // it.
        let is_few = !ctx.stats.is_hidden() && is_small(plan);
        let state = if is_few { &self.small_lists } else { &self.lists };
        let physical = planned(plan, &self.planner, state).await;
        let physical = physical.and_then(held_inputs::held).map_err(from_datafusion)?;
        self.passed(physical, state)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::AsArray as _;
    use datafusion::arrow::array::{Int64Array, RecordBatch};
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
    use datafusion::catalog::{MemTable, Session, TableProvider};
    use datafusion::common::Statistics;
    use datafusion::common::stats::Precision;
    use datafusion::datasource::provider_as_source;
    use datafusion::execution::session_state::SessionStateBuilder;
    use datafusion::functions_aggregate::expr_fn::sum;
    use datafusion::logical_expr::{Expr, LogicalPlanBuilder, TableType, col};
    use datafusion::physical_optimizer::PhysicalOptimizerRule;
    use datafusion::physical_optimizer::combine_partial_final_agg::CombinePartialFinalAggregate;
    use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
    use datafusion::physical_optimizer::join_selection::JoinSelection;
    use datafusion::physical_plan::displayable;
    use datafusion::physical_planner::PhysicalPlanner as _;
    use futures::StreamExt as _;
    use futures::future::BoxFuture;
    use quiver_types::{Access, ErrorKind};

    use super::*;
    use crate::list_session::{ROWS_FEW, is_chain};
    use crate::planning_rules::Rules;
    use crate::table_provider::scan_by_plan;
    use crate::{EngineSettings, Explain, Limits, PlanRecorder};

    fn engine(memory_bytes: usize) -> Arc<QueryEngine> {
        let settings = EngineSettings { spill_bytes: 64 << 20, threads: 2, ..EngineSettings::small(memory_bytes) };
        QueryEngine::new(&settings).unwrap()
    }

    /// A table that states its number of rows.
    #[derive(Debug)]
    struct Counted(MemTable, Option<usize>);

    impl TableProvider for Counted {
        fn schema(&self) -> SchemaRef {
            self.0.schema()
        }

        fn table_type(&self) -> TableType {
            TableType::Base
        }

        scan_by_plan!();

        fn statistics(&self) -> Option<Statistics> {
            Some(Statistics { num_rows: Precision::Inexact(self.1?), ..Statistics::new_unknown(&self.schema()) })
        }
    }

    impl Counted {
        fn plan<'a>(
            &'a self,
            state: &'a dyn Session,
            projection: Option<&'a Vec<usize>>,
            filters: &'a [Expr],
            limit: Option<usize>,
        ) -> BoxFuture<'a, datafusion::error::Result<Arc<dyn ExecutionPlan>>> {
            Box::pin(async move { self.0.scan(state, projection, filters, limit).await })
        }
    }

    fn numbers(count: i64) -> LogicalPlan {
        numbers_of(count, None)
    }

    /// Three partitions that each contain the same numbers; the table states the given number of rows.
    fn numbers_of(count: i64, about: Option<usize>) -> LogicalPlan {
        numbers_in(3, count, about)
    }

    fn numbers_in(partitions: i64, count: i64, about: Option<usize>) -> LogicalPlan {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let batch = |from: i64| {
            let values: Int64Array = (0..count).map(|n| (n + from) % count).collect();
            vec![RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(values)]).unwrap()]
        };
        let table = MemTable::try_new(Arc::clone(&schema), (0..partitions).map(batch).collect()).unwrap();
        let table = provider_as_source(Arc::new(Counted(table, about)));
        let plan = LogicalPlanBuilder::scan("numbers", table, None).unwrap();
        let grouped = plan.aggregate([col("n")], [sum(col("n")).alias("sum")]).unwrap();
        grouped.sort(vec![col("n").sort(false, false)]).unwrap().build().unwrap()
    }

    async fn rows(engine: &Arc<QueryEngine>, ctx: &QueryContext, count: i64) -> Result<Vec<(i64, i64)>> {
        let (own, inner, plan) = (Arc::clone(engine), ctx.clone(), numbers(count));
        let work = async move {
            let mut batches = own.execute(&plan, &inner, Rules::Lists).await?;
            let mut out = Vec::new();
            while let Some(batch) = batches.next().await {
                let batch = batch.map_err(from_datafusion)?;
                let [n, sum] = [0, 1].map(|at| batch.column(at).as_primitive::<Int64Type>().clone());
                out.extend(n.values().iter().copied().zip(sum.values().iter().copied()));
            }
            Ok(out)
        };
        engine.run(ctx, work).await
    }

    #[tokio::test]
    async fn groups_of_all_partitions_come_together_in_order() {
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let found = rows(&engine(16 << 20), &ctx, 1000).await.unwrap();
        assert_eq!(found, (0..1000).rev().map(|n| (n, 3 * n)).collect::<Vec<_>>());
        assert_eq!(ctx.query().plans(), 1);
    }

    /// Groups are slices of one batch, which a sort would count for each of them.
    #[tokio::test]
    async fn sorts_of_groups_hold_copies() {
        let engine = engine(16 << 20);
        for about in [10, ROWS_FEW + 1] {
            let ctx = QueryContext::new(Access::full(), Limits::default());
            let physical = engine.plan_list(&numbers_of(10, Some(about)), &ctx).await.unwrap();
            let shown = displayable(&*physical).indent(false).to_string();
            let lines: Vec<&str> = shown.lines().map(str::trim).collect();
            let below = |sort: usize| lines.get(sort + 1).copied();
            let sorts: Vec<_> = (0..lines.len()).filter(|&at| lines[at].starts_with("SortExec")).map(below).collect();
            assert_eq!(sorts, [Some("HeldRowsExec")], "{shown}");
        }
    }

    #[tokio::test]
    async fn plans_do_not_tell_how_many_rows_others_have() {
        let engine = engine(16 << 20);
        let shown = async |access: Access, about: usize| {
            let ctx = QueryContext::new(access, Limits::default());
            let physical = engine.plan_list(&numbers_of(10, Some(about)), &ctx).await.unwrap();
            displayable(&*physical).indent(false).to_string()
        };
        let one = || Access::services(["one"]);
        assert_eq!(shown(one(), 10).await, shown(one(), ROWS_FEW + 1).await);
        assert_ne!(shown(Access::full(), 10).await, shown(Access::full(), ROWS_FEW + 1).await);
    }

    /// Guards against leaving out the merge of partitions in a plan that needs it.
    #[tokio::test]
    async fn chains_in_one_partition_are_planned_as_by_the_rules() {
        let engine = engine(16 << 20);
        let rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> = vec![
            Arc::new(JoinSelection::new()),
            Arc::new(EnsureRequirements::new()),
            Arc::new(CombinePartialFinalAggregate::new()),
        ];
        let small = || SessionStateBuilder::new_from_existing(engine.small_lists.clone());
        let by_rules = small().with_physical_optimizer_rules(rules).build();
        let by_none = small().with_physical_optimizer_rules(Vec::new()).build();
        let shown = |plan: &Arc<dyn ExecutionPlan>| displayable(&**plan).indent(false).to_string();
        for partitions in [1, 3] {
            let plan = numbers_in(partitions, 10, Some(10));
            let bare = engine.planner.create_physical_plan(&plan, &by_none).await.unwrap();
            assert_eq!(is_chain(&bare), partitions == 1, "{}", shown(&bare));
            let own = engine.planner.create_physical_plan(&plan, &engine.small_lists).await.unwrap();
            let expected = engine.planner.create_physical_plan(&plan, &by_rules).await.unwrap();
            assert_eq!(shown(&own), shown(&expected));
        }
    }

    #[tokio::test]
    async fn more_groups_than_memory_spill_or_are_refused() {
        let engine = engine(2 << 20);
        let ctx = QueryContext::new(Access::full(), Limits::default());
        match rows(&engine, &ctx, 200_000).await {
            Ok(found) => assert_eq!(found.len(), 200_000),
            Err(e) => assert_eq!(e.kind, ErrorKind::LimitExceeded, "{e}"),
        }
        drop(ctx);
        // Partitions that are still running end by themselves.
        for _ in 0..6000 {
            if engine.memory_reserved() > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
        assert_eq!(engine.memory_reserved(), 0);
    }

    #[tokio::test]
    async fn what_is_only_planned_gives_no_rows() {
        let engine = engine(16 << 20);
        let explaining = PlanRecorder::new(Explain::Plan);
        let ctx = QueryContext::new(Access::full(), Limits::default()).explaining(Some(Arc::clone(&explaining)));
        assert_eq!(rows(&engine, &ctx, 10).await.unwrap(), []);
        // A run that has ended releases what it began, so each gets a context of its own.
        assert_eq!(rows(&engine, &ctx.another_run().planning(), 10).await.unwrap().len(), 10);
        assert_eq!(rows(&engine, &ctx.another_run(), 10).await.unwrap(), []);
        let shown = explaining.shown().expect("plans");
        let children = shown["children"].as_array().expect("those before");
        assert_eq!((children.len(), shown.get("executed"), shown.get("totals")), (2, None, None), "{shown}");
        let executed: Vec<bool> = children.iter().map(|plan| plan["executed"] == true).collect();
        assert_eq!(executed, [false, true], "planning needed the second");
        assert_eq!(children[0]["digest"], shown["digest"], "the same plan");
        // With `analyze` all of them run.
        let explaining = PlanRecorder::new(Explain::Analyze);
        let ctx = QueryContext::new(Access::full(), Limits::default()).explaining(Some(Arc::clone(&explaining)));
        assert_eq!(rows(&engine, &ctx, 10).await.unwrap().len(), 10);
        let shown = explaining.shown().expect("a plan");
        assert_eq!(shown["nodes"][0]["rows"], 10, "{shown}");
        assert!(shown["totals"]["time_ms"].is_number(), "{shown}");
    }
}
