//! The session of relational languages (SQL, analytics): DataFusion's analyzer, optimizer and functions over the same pool,
//! limits and cancellation that all other plans run under.
//!
//! Nothing is registered in its catalog: a statement's tables come from [`crate::tables`], with the caller's rights. What the
//! session has beside DataFusion's own rules and nodes stands in a file each, which says what DataFusion would do without it.

mod arithmetic;
pub(crate) mod asking;
mod beside;
mod beyond;
mod bounds;
mod copies;
mod dates;
mod distinct_counts;
pub(crate) mod grouping;
mod inner_order;
mod joined_ids;
mod lengths;
pub(crate) mod list_pieces;
mod literals;
mod marks;
pub(crate) mod overflow;
mod parts;
pub(crate) mod patterns;
pub(crate) mod plain;
mod printed;
mod quantiles;
mod repeated;
pub(crate) mod slices;
mod subscripts;
mod truths;
pub(crate) mod unkeyed;
mod untyped;
pub(crate) mod windows;

use std::sync::Arc;
use std::time::Instant;

use chrono::{DateTime, Utc};
use datafusion::common::alias::AliasGenerator;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{LogicalPlan, ScalarUDF};
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerConfig};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::physical_planner::PhysicalPlanner as _;
use datafusion::prelude::SessionConfig;
use futures::StreamExt as _;
use quiver_types::logs::read_matchers;
use quiver_types::{Result, RunShared};
use serde_json::Value;

use self::arithmetic::Arithmetic;
use self::beside::Beside;
use self::bounds::{few_keys, few_products, giving_way};
use self::copies::few_parts;
use self::dates::Dates;
use self::distinct_counts::DistinctCounts;
use self::inner_order::InnerOrder;
use self::lengths::{Lengths, WindowLengths};
use self::literals::Literals;
use self::marks::Marks;
use self::overflow::Overflows;
use self::parts::Parts;
use self::patterns::Patterns;
use self::plain::is_plain;
use self::printed::Printing;
use self::quantiles::Quantiles;
use self::subscripts::Subscripts;
use self::truths::Truths;
use self::unkeyed::{Keys, Planned, Relations};
use self::untyped::UntypedTimes;
use crate::context::QueryContext;
use crate::engine::QueryEngine;
use crate::error::{from_datafusion, of_planning};
use crate::functions::Room;
use crate::in_turn::few_at_once;
use crate::running::Phase;
use crate::tables::MATCHERS;
use crate::{explain, functions};

/// Makes the session.
pub(crate) fn session(
    config: SessionConfig,
    runtime_env: Arc<RuntimeEnv>,
    languages: Vec<Arc<ScalarUDF>>,
    room: &Room,
) -> SessionState {
    // What its tables ask of log records.
    read_matchers(MATCHERS);
    // Moments (`now()`, `to_timestamp`, `timestamptz`) are told from readings of a clock by their zone alone.
    let config = config.set_str("datafusion.execution.time_zone", "UTC");
    // Whether `coalesce(a, 0)` may be NULL is judged by two rules in a logical and in a physical plan; where they differ,
    // grouping by it would be an internal error, though it runs well.
    let config = config.set_bool("datafusion.execution.skip_physical_aggregate_schema_check", true);
    // The rule about inner orders says where they are of no use.
    let config = config.set_bool("datafusion.sql_parser.enable_subquery_sort_elimination", false);
    let state = SessionStateBuilder::new().with_config(config).with_runtime_env(runtime_env);
    // They are asked before those of DataFusion.
    let state = state.with_expr_planners(vec![Arc::new(Arithmetic), Arc::new(Subscripts)]).with_default_features();
    let state = state.with_relation_planners(vec![Arc::new(Relations::Keyed)]);
    let before: [Arc<dyn AnalyzerRule + Send + Sync>; 6] = [
        Arc::new(Planned),
        Arc::new(InnerOrder),
        Arc::new(WindowLengths),
        Arc::new(Truths),
        Arc::new(Dates),
        Arc::new(Parts),
    ];
    let behind: [Arc<dyn AnalyzerRule + Send + Sync>; 11] = [
        Arc::new(Literals),
        Arc::new(Beside),
        Arc::new(Marks),
        Arc::new(DistinctCounts),
        Arc::new(Quantiles),
        Arc::new(Overflows),
        Arc::new(UntypedTimes),
        Arc::new(Printing),
        Arc::new(Lengths),
        Arc::new(Patterns),
        Arc::new(Keys),
    ];
    let analyzers = before.into_iter().chain(Analyzer::new().rules).chain(behind);
    let state = state
        .with_analyzer_rules(asking::analyzers(analyzers))
        .with_optimizer_rules(asking::optimizers(Optimizer::new().rules))
        .with_physical_optimizer_rules(asking::physical(PhysicalOptimizer::new().rules));
    let mut state = state.build();
    functions::register(&mut state, room).expect("a registry of its own takes each function");
    for function in languages {
        state.register_udf(function).expect("a registry of its own takes each function");
    }
    state
}

/// The session at the time of a plan. Without one, `now()` and `current_date` stay in the plan, where they cannot run; a copy
/// of the session for each plan, as DataFusion's own contexts make it, would copy all tables of functions.
struct Moment<'s> {
    state: &'s SessionState,
    options: &'s Arc<ConfigOptions>,
    now: DateTime<Utc>,
}

impl OptimizerConfig for Moment<'_> {
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

impl QueryEngine {
    /// Gives the session whose rules and functions relational plans are made with.
    pub fn relational(&self) -> &SessionState {
        &self.relational
    }

    /// Optimizes a relational plan and makes the physical one.
    ///
    /// # Errors
    /// Those of the rules and of the planners.
    pub async fn plan_relational(&self, plan: &LogicalPlan) -> Result<(LogicalPlan, Arc<dyn ExecutionPlan>)> {
        few_keys(plan)?;
        few_parts(plan)?;
        let moment = Moment { state: &self.relational, options: &self.planning.options, now: Utc::now() };
        let analyzed = self.relational.analyzer().execute_and_check(plan.clone(), &moment.options(), |_, _| {});
        let optimized = analyzed.and_then(|plan| {
            let rules = if is_plain(&plan)? { &self.planning.plain } else { self.relational.optimizer() };
            rules.optimize(plan, &moment, |_, _| {})
        });
        let optimized = optimized.and_then(unkeyed::removed).and_then(repeated::left_out);
        let optimized = optimized.and_then(beyond::told).map_err(of_planning)?;
        let counted = functions::counted(optimized.clone(), &self.planning.room).map_err(of_planning)?;
        let physical = self.planner.create_physical_plan(&counted, &self.relational).await.map_err(of_planning)?;
        let physical = joined_ids::as_bytes(physical).and_then(grouping::by_codes);
        let physical = physical.and_then(slices::below_constants).and_then(list_pieces::below_unnest);
        let physical = physical.and_then(windows::with_memory);
        let at_once = self.relational.config().target_partitions();
        let physical = physical.and_then(|plan| few_at_once(plan, at_once)).map_err(from_datafusion)?;
        few_products(&physical)?;
        Ok((optimized, self.passed(giving_way(physical)?, &self.relational)?))
    }

    /// Plans and starts a relational plan; call it inside of [`Self::run`].
    ///
    /// # Errors
    /// Those of planning; the stream carries those of running.
    pub async fn execute_relational(
        &self,
        plan: &LogicalPlan,
        ctx: &QueryContext,
    ) -> Result<SendableRecordBatchStream> {
        ctx.check("query planning")?;
        let (optimized, physical) = self.plan_relational(plan).await?;
        if let Some(no_rows) = ctx.planned(&optimized, &physical) {
            return Ok(no_rows);
        }
        ctx.query().enter(Phase::Execute);
        // Aggregates look at their constants when they begin to run.
        let task = self.relational_task(ctx, &optimized, &physical)?;
        execute_stream(physical, task).map_err(of_planning)
    }

    /// Gives the optimized plans as JSON; with `analyze` runs them first and shows what each node did (no rows either way).
    ///
    /// # Errors
    /// Those of planning and running.
    pub async fn explain_relational(&self, plan: &LogicalPlan, ctx: &QueryContext, analyze: bool) -> Result<Value> {
        let (optimized, physical) = self.plan_relational(plan).await?;
        let began = Instant::now();
        if analyze {
            let task = self.relational_task(ctx, &optimized, &physical)?;
            let mut rows = execute_stream(Arc::clone(&physical), task).map_err(of_planning)?;
            while let Some(batch) = rows.next().await {
                batch.map_err(from_datafusion)?;
                ctx.check("query execution")?;
            }
        }
        let mut shown = explain::to_json(&optimized, &physical, analyze, &ctx.stats);
        if analyze {
            shown["totals"] = explain::totals(&[&ctx.stats], began.elapsed());
        }
        ctx.put_children(&mut shown);
        Ok(shown)
    }

    /// The context of a run, with batches that are not too large.
    fn relational_task(
        &self,
        ctx: &QueryContext,
        optimized: &LogicalPlan,
        physical: &Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<TaskContext>> {
        let (config, runtime) = self.bound(ctx, RunShared::default());
        let rows = slices::batch_rows(optimized, physical).map_err(from_datafusion)?;
        let rows = rows.min(config.batch_size());
        Ok(Self::task_in(config.with_batch_size(rows), runtime))
    }
}

#[cfg(test)]
mod tests;
