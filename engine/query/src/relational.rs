//! The session of SQL and analytics: DataFusion's analyzer, optimizer and functions, under the same memory pool, limits
//! and cancellation as all other plans.
//!
//! No table is registered in its catalog: the tables of a statement come from [`crate::tables`], with the caller's
//! rights. Each rule and node that the session adds to DataFusion's own is a file here, whose first comment says what
//! DataFusion does without it; `docs/internals/sql.md` lists them.

mod arithmetic;
pub(crate) mod batch_bytes;
mod boolean_texts;
mod call_arguments;
pub(crate) mod cancellable_joins;
pub(crate) mod cancellation;
mod dates;
mod distinct_counts;
mod document_operators;
mod documents;
mod duplicate_sort_keys;
pub(crate) mod exchanged_rows;
mod expression_size;
mod first_groups;
pub(crate) mod functional_dependencies;
pub(crate) mod grouping;
pub(crate) mod held_inputs;
mod in_subqueries;
mod inner_order;
mod interval_comparison;
mod interval_parts;
pub(crate) mod join_payloads;
pub(crate) mod join_reruns;
mod joined_ids;
mod lateral;
pub(crate) mod list_pieces;
mod literals;
pub(crate) mod long_constants;
mod merged_rows;
mod node_names;
mod out_of_range;
pub(crate) mod overflow;
mod packed_values;
pub(crate) mod patterns;
pub(crate) mod plan_limits;
mod quantiles;
pub(crate) mod single_table;
mod span_trees;
pub(crate) mod streaming;
mod subscripts;
mod text_casts;
pub(crate) mod text_views;
mod untyped_times;
pub(crate) mod visible_rows;
pub(crate) mod windows;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use datafusion::common::alias::AliasGenerator;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{LogicalPlan, ScalarUDF};
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerConfig};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::DefaultPhysicalPlanner;
use datafusion::prelude::SessionConfig;
use quiver_types::Result;
use quiver_types::logs::read_matchers;

use self::arithmetic::Arithmetic;
use self::batch_bytes::batch_bytes;
use self::boolean_texts::BooleanTexts;
use self::call_arguments::CallArguments;
use self::dates::Dates;
use self::distinct_counts::DistinctCounts;
use self::document_operators::DocumentOperators;
use self::documents::Documents;
use self::expression_size::few_parts;
use self::functional_dependencies::{Keys, Relations, UnkeyedRemoval};
use self::in_subqueries::InSubqueries;
use self::inner_order::InnerOrder;
use self::interval_comparison::{Lengths, WindowLengths};
use self::interval_parts::IntervalParts;
use self::lateral::Lateral;
use self::literals::Literals;
use self::overflow::Overflows;
use self::patterns::Patterns;
use self::plan_limits::{few_keys, few_products, giving_way};
use self::quantiles::Quantiles;
use self::single_table::is_plain;
use self::span_trees::SpanTrees;
use self::subscripts::Subscripts;
use self::text_casts::TextCasts;
use self::untyped_times::UntypedTimes;
use self::visible_rows::VisibleRowsPlanner;
use crate::current_query::statement_time;
use crate::error::{from_datafusion, of_planning};
use crate::functions::{self, PlanOptions, Room};
use crate::operator::OperatorPlanner;
use crate::sequential_union::few_at_once;
use crate::tables::logs::filter::MATCHERS;

/// Makes the session.
pub(crate) fn session(
    config: SessionConfig,
    runtime_env: Arc<RuntimeEnv>,
    languages: Vec<Arc<ScalarUDF>>,
    room: &Room,
) -> SessionState {
    // The conditions that tables of logs may push down to the store.
    read_matchers(MATCHERS);
    // A timestamp with this zone is a point in time (`now()`, `to_timestamp`, `timestamptz`); one without is wall-clock
    // time.
    let config = config.set_str("datafusion.execution.time_zone", "UTC");
    // Logical and physical plans derive by different rules whether `coalesce(a, 0)` may be NULL. The check would make
    // grouping by it an internal error, though it runs correctly.
    let config = config.set_bool("datafusion.execution.skip_physical_aggregate_schema_check", true);
    // `InnerOrder` drops the orders of subqueries that have no effect.
    let config = config.set_bool("datafusion.sql_parser.enable_subquery_sort_elimination", false);
    let state = SessionStateBuilder::new().with_config(config).with_runtime_env(runtime_env);
    // Added before the defaults, so that they are tried before DataFusion's own planners.
    let documents = Arc::new(DocumentOperators::new(room));
    let planners: Vec<Arc<dyn ExprPlanner>> = vec![documents, Arc::new(Arithmetic), Arc::new(Subscripts)];
    let state = state.with_expr_planners(planners).with_default_features();
    let state = state.with_relation_planners(vec![Arc::new(Relations::Keyed)]);
    let before: [Arc<dyn AnalyzerRule + Send + Sync>; 8] = [
        Arc::new(UnkeyedRemoval),
        Arc::new(InnerOrder),
        Arc::new(WindowLengths),
        Arc::new(BooleanTexts),
        Arc::new(Documents::new(room)),
        Arc::new(CallArguments),
        Arc::new(Dates),
        Arc::new(IntervalParts),
    ];
    let behind: [Arc<dyn AnalyzerRule + Send + Sync>; 12] = [
        Arc::new(Literals),
        Arc::new(Lateral),
        Arc::new(InSubqueries),
        Arc::new(DistinctCounts),
        Arc::new(Quantiles),
        Arc::new(SpanTrees),
        Arc::new(Overflows),
        Arc::new(UntypedTimes),
        Arc::new(TextCasts),
        Arc::new(Lengths),
        Arc::new(Patterns),
        Arc::new(Keys),
    ];
    let analyzers = before.into_iter().chain(Analyzer::new().rules).chain(behind);
    // Rules that push filters through physical plans find columns by their names, of which outputs of a join may have two
    // that are the same: rows stayed that a condition does not hold for. Filters are where they belong by then, and no
    // leaf takes those that joins make while they run.
    let physical = PhysicalOptimizer::new().rules.into_iter().filter(|rule| !rule.name().starts_with("FilterPushdown"));
    let state = state
        .with_analyzer_rules(cancellation::analyzers(analyzers))
        .with_optimizer_rules(cancellation::optimizers(visible_rows::with_rule(Optimizer::new().rules)))
        .with_physical_optimizer_rules(cancellation::physical(physical));
    let mut state = state.build();
    functions::register(&mut state, room).expect("a registry of its own takes each function");
    for function in languages {
        state.register_udf(function).expect("a registry of its own takes each function");
    }
    state
}

/// Makes the planner of physical plans, which knows our own nodes.
pub(crate) fn planner() -> DefaultPhysicalPlanner {
    DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(OperatorPlanner), Arc::new(VisibleRowsPlanner)])
}

/// The session with the start time of one statement. The optimizer needs a time to fold `now()` and `current_date`,
/// which cannot run as they are. DataFusion's own contexts copy the session for it, with all its tables of functions.
struct OptimizerSession<'s> {
    state: &'s SessionState,
    options: &'s Arc<ConfigOptions>,
    now: DateTime<Utc>,
}

impl OptimizerConfig for OptimizerSession<'_> {
    fn query_execution_start_time(&self) -> Option<DateTime<Utc>> {
        Some(self.now)
    }

    fn alias_generator(&self) -> &Arc<AliasGenerator> {
        self.state.alias_generator()
    }

    fn options(&self) -> Arc<ConfigOptions> {
        Arc::clone(self.options)
    }

    fn function_registry(&self) -> Option<&dyn FunctionRegistry> {
        Some(self.state)
    }
}

/// Analyzes and optimizes a plan, with the rules of the session and those that must run before or after them.
///
/// # Errors
/// Those of the rules; LimitExceeded if the plan is too large for them.
pub(crate) fn optimized(plan: &LogicalPlan, state: &SessionState, planning: &PlanOptions) -> Result<LogicalPlan> {
    few_keys(plan)?;
    few_parts(plan)?;
    let moment = OptimizerSession { state, options: &planning.options, now: statement_time() };
    let analyzed = state.analyzer().execute_and_check(plan.clone(), &moment.options(), |_, _| {});
    let optimized = analyzed.and_then(|plan| {
        let rules = if is_plain(&plan)? { &planning.plain } else { state.optimizer() };
        rules.optimize(plan, &moment, |_, _| {})
    });
    let optimized = optimized.and_then(functional_dependencies::removed).and_then(duplicate_sort_keys::left_out);
    optimized.and_then(out_of_range::refuse).map_err(of_planning)
}

/// Adds our own nodes to a physical plan: those that keep it within memory, and those that let other queries run.
///
/// # Errors
/// Those of the nodes; LimitExceeded if the plan has too many products of tables.
pub(crate) fn bounded(physical: Arc<dyn ExecutionPlan>, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
    let bytes = batch_bytes(state.runtime_env().memory_pool.as_ref());
    let physical = visible_rows::removed(physical).and_then(first_groups::few_apart);
    let physical = physical.and_then(joined_ids::as_bytes).and_then(grouping::by_codes);
    let physical = physical.and_then(|plan| long_constants::below_constants(plan, bytes));
    let physical = physical.and_then(join_payloads::through_joins).and_then(list_pieces::below_unnest);
    let physical = physical.and_then(windows::with_memory).and_then(merged_rows::few_merged);
    let physical = physical.and_then(held_inputs::held);
    let physical = physical.and_then(|plan| cancellable_joins::asking(plan, state.config_options()));
    let at_once = state.config().target_partitions();
    let physical = physical.and_then(|plan| few_at_once(plan, at_once)).and_then(streaming::without_exchange);
    let physical = physical.and_then(exchanged_rows::below_exchanges).and_then(join_reruns::read_anew);
    let physical = physical.map_err(from_datafusion)?;
    few_products(&physical)?;
    giving_way(physical)
}

#[cfg(test)]
mod tests;
