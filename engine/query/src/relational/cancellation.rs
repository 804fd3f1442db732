//! Makes DataFusion's rules cancellable. A few kilobytes of SQL (a hundred joins of tables with twenty columns each, a
//! hundred common table expressions of hundreds of columns) keep the rules busy for seconds, in which nothing could end
//! the query. Each rule is wrapped so that it checks whether the query goes on before it works on a node, or on a plan
//! if the rule walks that itself.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use quiver_types::{Error, ErrorKind, cancellation};

use crate::error::to_datafusion;

/// Steps that a rule takes for each column of a node, in the unit of [`cancellation::goes_on`]: it looks each up among the
/// others.
const STEPS: usize = 1 << 11;

/// Counts steps of planning, and now and then checks whether the query goes on.
///
/// # Errors
///
/// Cancelled: the query has ended.
fn goes_on(steps: usize) -> Result<()> {
    if cancellation::goes_on(steps) {
        return Ok(());
    }
    Err(to_datafusion(Error::new(ErrorKind::Cancelled, "query was canceled in query planning")))
}

/// Checks at once whether the query goes on, before work that may take long.
///
/// # Errors
///
/// As [`goes_on`].
pub(crate) fn goes_on_now() -> Result<()> {
    goes_on(usize::MAX)
}

/// A rule that checks whether the query goes on before it works.
#[derive(Debug)]
struct CancellableRule<R: ?Sized>(Arc<R>);

/// Wraps analyzer rules.
pub(super) fn analyzers(
    rules: impl IntoIterator<Item = Arc<dyn AnalyzerRule + Send + Sync>>,
) -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    rules.into_iter().map(|rule| -> Arc<dyn AnalyzerRule + Send + Sync> { Arc::new(CancellableRule(rule)) }).collect()
}

/// Wraps optimizer rules.
pub(super) fn optimizers(
    rules: impl IntoIterator<Item = Arc<dyn OptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    rules.into_iter().map(|rule| -> Arc<dyn OptimizerRule + Send + Sync> { Arc::new(CancellableRule(rule)) }).collect()
}

/// Wraps physical optimizer rules.
pub(super) fn physical(
    rules: impl IntoIterator<Item = Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    rules
        .into_iter()
        .map(|rule| -> Arc<dyn PhysicalOptimizerRule + Send + Sync> { Arc::new(CancellableRule(rule)) })
        .collect()
}

impl AnalyzerRule for CancellableRule<dyn AnalyzerRule + Send + Sync> {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        goes_on_now()?;
        self.0.analyze(plan, config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

impl OptimizerRule for CancellableRule<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match self.0.apply_order() {
            Some(_) => goes_on(STEPS * (1 + plan.schema().fields().len()))?,
            None => goes_on_now()?,
        }
        self.0.rewrite(plan, config)
    }
}

impl PhysicalOptimizerRule for CancellableRule<dyn PhysicalOptimizerRule + Send + Sync> {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        goes_on_now()?;
        self.0.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        goes_on_now()?;
        self.0.optimize_with_context(plan, context)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use datafusion::logical_expr::LogicalPlanBuilder;
    use datafusion::optimizer::OptimizerContext;
    use datafusion::optimizer::eliminate_filter::EliminateFilter;
    use datafusion::prelude::lit;
    use quiver_types::cancellation::Watch;
    use quiver_types::read_stats::Gate;

    use super::*;
    use crate::name_resolution::Names;
    use crate::relational::tests::engine;

    /// Lets the query go on for a given number of checks.
    #[derive(Debug)]
    struct Few {
        most: usize,
        asked: AtomicUsize,
    }

    impl Gate for Few {
        fn take(&self, _: usize) -> quiver_types::Result<()> {
            Ok(())
        }

        fn give_back(&self, _: usize) {}

        fn check(&self) -> quiver_types::Result<()> {
            let before = self.asked.fetch_add(1, Relaxed);
            if before < self.most { Ok(()) } else { Err(Error::new(ErrorKind::Cancelled, "it ended")) }
        }
    }

    fn few(most: usize) -> Arc<Few> {
        Arc::new(Few { most, asked: AtomicUsize::new(0) })
    }

    #[tokio::test]
    async fn planning_ends_at_any_rule() {
        let engine = engine();
        let statement = "select a.value, count(*) from generate_series(1, 3) a \
                         join generate_series(1, 3) b on a.value = b.value group by 1 order by 1";
        let plan = Names::new(engine.relational()).plan(statement).unwrap();
        // Plans with a limit on the number of checks; returns the result and how many there were.
        let planned = async |most| {
            let gate = few(most);
            let watch = Watch::new(Arc::clone(&gate) as _);
            let mut work = Box::pin(engine.plan_relational(&plan));
            let planned = std::future::poll_fn(|cx| watch.over(|| work.as_mut().poll(cx))).await;
            (planned.map(|_| ()).map_err(|e| e.kind), gate.asked.load(Relaxed))
        };
        let (done, all) = planned(usize::MAX).await;
        let rules = engine.relational().analyzer().rules.len() + engine.relational().physical_optimizers().len();
        assert!(done.is_ok() && all > rules, "{done:?}, {all} questions of {rules} rules and more");
        for most in [0, all / 2, all - 1] {
            assert_eq!(planned(most).await, (Err(ErrorKind::Cancelled), most + 1));
        }
    }

    #[test]
    fn wide_nodes_are_asked_about_more_often() {
        let rules = optimizers([Arc::new(EliminateFilter::new()) as Arc<dyn OptimizerRule + Send + Sync>]);
        for (columns, ends) in [(1, false), (3_000, true)] {
            // A check resets the steps that were counted by others.
            goes_on_now().unwrap();
            let plan = LogicalPlanBuilder::values(vec![vec![lit(1_i64); columns]]).unwrap().build().unwrap();
            let rewritten = Watch::new(few(0)).over(|| rules[0].rewrite(plan, &OptimizerContext::new()));
            assert_eq!(rewritten.is_err(), ends, "{columns} columns");
        }
    }
}
