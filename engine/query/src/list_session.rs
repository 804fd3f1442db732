//! The session for lists (labels, services, operations, …): their plans are written as they are to run, of DataFusion
//! nodes with groups, order and joins over many partitions.
//!
//! It has the two physical rules that such plans need: one decides how each join distributes its rows, the other
//! inserts exchanges where a node needs rows together (by hash for groups, sorted for windows, in one partition for
//! limits). All other rules would take longer than a small list does. Most lists are a chain of nodes in one partition
//! and run without these two as well. What sorts and joins of lists hold is compacted as in statements
//! ([`held_inputs`](crate::relational::held_inputs)).

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::datasource::source_as_provider;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::combine_partial_final_agg::CombinePartialFinalAggregate;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::join_selection::JoinSelection;
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;

/// Lists of so few rows are made in one partition: to divide them takes longer than to go over them.
pub(crate) const ROWS_FEW: usize = 256 * 1024;

/// Says whether a plan reads few rows, as far as its tables know.
pub(crate) fn is_small(plan: &LogicalPlan) -> bool {
    let mut rows = Some(0usize);
    let counted = plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let table = source_as_provider(&scan.source).ok();
            let here = table.and_then(|table| table.statistics()?.num_rows.get_value().copied());
            rows = rows.zip(here).map(|(all, here)| all.saturating_add(here));
        }
        Ok(if rows.is_some() { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    counted.is_ok() && rows.is_some_and(|rows| rows <= ROWS_FEW)
}

/// A rule about partitions, order and joins, for plans that have more than one partition, need an order or join.
#[derive(Debug)]
struct OfSeveral<R>(R);

/// Says whether a plan is a chain of nodes in one partition of which none needs an order: as it is, it can run.
pub(crate) fn is_chain(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let inputs = plan.children();
    plan.properties().output_partitioning().partition_count() == 1
        && inputs.len() <= 1
        && plan.required_input_ordering().iter().all(Option::is_none)
        && inputs.into_iter().all(is_chain)
}

impl<R: PhysicalOptimizerRule> PhysicalOptimizerRule for OfSeveral<R> {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        if is_chain(&plan) { Ok(plan) } else { self.0.optimize(plan, config) }
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        if is_chain(&plan) { Ok(plan) } else { self.0.optimize_with_context(plan, context) }
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// Makes the session of lists of few rows.
pub(crate) fn small_session(config: SessionConfig, runtime_env: Arc<RuntimeEnv>) -> SessionState {
    let small = session(config.with_target_partitions(1), runtime_env);
    // Groups of one partition need no second step.
    SessionStateBuilder::new_from_existing(small)
        .with_physical_optimizer_rule(Arc::new(CombinePartialFinalAggregate::new()))
        .build()
}

/// Makes the session.
pub(crate) fn session(config: SessionConfig, runtime_env: Arc<RuntimeEnv>) -> SessionState {
    SessionStateBuilder::new()
        // A list has few rows compared with what it reads, so additional partitions are not worth creating.
        .with_config(config.with_round_robin_repartition(false))
        .with_runtime_env(runtime_env)
        .with_analyzer_rules(vec![])
        .with_optimizer_rules(vec![])
        .with_physical_optimizer_rules(vec![
            Arc::new(OfSeveral(JoinSelection::new())),
            Arc::new(OfSeveral(EnsureRequirements::new())),
        ])
        .build()
}
