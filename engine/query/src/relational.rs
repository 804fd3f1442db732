//! The session of relational languages (SQL, analytics): DataFusion's analyzer, optimizer and functions over the same pool,
//! limits and cancellation that all other plans run under.
//!
//! Nothing is registered in its catalog: a statement's tables come from [`crate::tables`], with the caller's rights. What the
//! session has beside DataFusion's own rules and nodes stands in a file each, which says what DataFusion would do without it.

mod arithmetic;
mod beside;
mod bounds;
mod distinct_counts;
pub(crate) mod grouping;
mod inner_order;
mod joined_ids;
mod lengths;
pub(crate) mod list_pieces;
mod literals;
mod marks;
pub(crate) mod overflow;
pub(crate) mod patterns;
pub(crate) mod plain;
mod printed;
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
use datafusion::optimizer::{Analyzer, AnalyzerRule, OptimizerConfig};
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
use self::distinct_counts::DistinctCounts;
use self::inner_order::InnerOrder;
use self::lengths::{Lengths, WindowLengths};
use self::literals::Literals;
use self::marks::Marks;
use self::overflow::Overflows;
use self::patterns::Patterns;
use self::plain::is_plain;
use self::printed::Printing;
use self::subscripts::Subscripts;
use self::truths::Truths;
use self::unkeyed::{Keys, Planned, Relations};
use self::untyped::UntypedTimes;
use crate::context::QueryContext;
use crate::engine::QueryEngine;
use crate::error::{from_datafusion, of_planning};
use crate::explaining::put_children;
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
    let before: [Arc<dyn AnalyzerRule + Send + Sync>; 4] =
        [Arc::new(Planned), Arc::new(InnerOrder), Arc::new(WindowLengths), Arc::new(Truths)];
    let state = state.with_analyzer_rules(before.into_iter().chain(Analyzer::new().rules).collect());
    let state = state.with_analyzer_rule(Arc::new(Literals)).with_analyzer_rule(Arc::new(Beside));
    let state = state.with_analyzer_rule(Arc::new(Marks)).with_analyzer_rule(Arc::new(DistinctCounts));
    let state = state.with_analyzer_rule(Arc::new(Overflows)).with_analyzer_rule(Arc::new(UntypedTimes));
    let state = state.with_analyzer_rule(Arc::new(Printing)).with_analyzer_rule(Arc::new(Lengths));
    let state = state.with_analyzer_rule(Arc::new(Patterns)).with_analyzer_rule(Arc::new(Keys));
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
        let moment = Moment { state: &self.relational, options: &self.planning.options, now: Utc::now() };
        let analyzed = self.relational.analyzer().execute_and_check(plan.clone(), &moment.options(), |_, _| {});
        let optimized = analyzed.and_then(|plan| {
            let rules = if is_plain(&plan)? { &self.planning.plain } else { self.relational.optimizer() };
            rules.optimize(plan, &moment, |_, _| {})
        });
        let optimized = optimized.and_then(unkeyed::removed).map_err(of_planning)?;
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
        execute_stream(physical, self.relational_task(ctx)).map_err(of_planning)
    }

    /// Gives the optimized plans as JSON; with `analyze` runs them first and shows what each node did (no rows either way).
    ///
    /// # Errors
    /// Those of planning and running.
    pub async fn explain_relational(&self, plan: &LogicalPlan, ctx: &QueryContext, analyze: bool) -> Result<Value> {
        let (optimized, physical) = self.plan_relational(plan).await?;
        let began = Instant::now();
        if analyze {
            let mut rows = execute_stream(Arc::clone(&physical), self.relational_task(ctx)).map_err(of_planning)?;
            while let Some(batch) = rows.next().await {
                batch.map_err(from_datafusion)?;
                ctx.check("query execution")?;
            }
        }
        let mut shown = explain::to_json(&optimized, &physical, analyze, &ctx.stats);
        if analyze {
            shown["totals"] = explain::totals(&[&ctx.stats], began.elapsed());
        }
        put_children(&mut shown, ctx);
        Ok(shown)
    }

    /// The context of a run, with the functions of the session.
    fn relational_task(&self, ctx: &QueryContext) -> Arc<TaskContext> {
        let (config, runtime) = self.bound(ctx, RunShared::default());
        Arc::new(TaskContext::from(&self.runs().relational).with_session_config(config).with_runtime(runtime))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::datatypes::{DataType, TimeUnit};
    use datafusion::physical_plan::displayable;
    use quiver_types::{Access, ErrorKind};

    use super::*;
    use crate::names::Names;
    use crate::{EngineSettings, Limits};

    fn engine() -> Arc<QueryEngine> {
        let settings = EngineSettings {
            memory_bytes: 64 << 20,
            spill_dir: std::env::temp_dir(),
            spill_bytes: 1 << 20,
            threads: 1,
            concurrent_max: 2,
            pressure: Arc::default(),
        };
        QueryEngine::new(&settings).unwrap()
    }

    /// How many rows a statement gives.
    async fn count(engine: &Arc<QueryEngine>, statement: &'static str, timeout_ms: u64) -> Result<usize> {
        let limits = Limits { timeout: Duration::from_millis(timeout_ms), ..Limits::default() };
        let ctx = QueryContext::new(Access::full(), limits);
        let (own, inner) = (Arc::clone(engine), ctx.clone());
        let work = async move {
            let plan = Names::new(own.relational()).plan(statement)?;
            let mut rows = own.execute_relational(&plan, &inner).await?;
            let mut count = 0;
            while let Some(batch) = rows.next().await {
                count += batch.map_err(from_datafusion)?.num_rows();
            }
            Ok(count)
        };
        engine.run(&ctx, work).await
    }

    #[tokio::test]
    async fn a_plan_has_a_moment() {
        let engine = engine();
        for statement in ["select now()", "select current_date", "select 1 where now() > timestamp '2020-01-01'"] {
            assert_eq!(count(&engine, statement, 10_000).await.unwrap(), 1, "{statement}");
        }
    }

    #[tokio::test]
    async fn moments_have_their_zone() {
        let engine = engine();
        let names = Names::new(engine.relational());
        for (expr, zone) in [
            ("now()", Some("UTC")),
            ("current_timestamp", Some("UTC")),
            ("to_timestamp(0)", Some("UTC")),
            ("timestamptz '2025-03-10 00:00:00+01'", Some("UTC")),
            ("cast('2025-03-10' as timestamp with time zone)", Some("UTC")),
            ("timestamp '2025-03-10 00:00:00'", None),
        ] {
            let plan = names.plan(&format!("select {expr} as t")).unwrap();
            let expected = DataType::Timestamp(TimeUnit::Nanosecond, zone.map(Into::into));
            assert_eq!(*plan.schema().field(0).data_type(), expected, "{expr}");
            engine.plan_relational(&plan).await.unwrap();
        }
    }

    #[tokio::test]
    async fn constants_that_are_none_are_the_statements_fault() {
        let engine = engine();
        let names = Names::new(engine.relational());
        for statement in [
            "select cast('abc' as int)",
            "select date '2025-13-01'",
            "select 'a' ~ '('",
            "select ntile(0) over () from generate_series(1, 3)",
        ] {
            let plan = names.plan(statement).unwrap();
            let refused = engine.plan_relational(&plan).await.unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Invalid, "{statement}: {refused:?}");
        }
    }

    /// Breaks where what an aggregate makes of its constants when it begins to run is told as a fault of ours.
    #[tokio::test]
    async fn constants_of_aggregates_are_the_statements_fault() {
        let engine = engine();
        for statement in [
            "select percentile_cont(-1) within group (order by 1)",
            "select percentile_cont(null) within group (order by 1)",
            "select quantile(-1, 1.5)",
            "select nth_value(1, 0)",
            "select nth_value(value, -9223372036854775807 - 1 order by value) from generate_series(1, 3)",
        ] {
            let refused = count(&engine, statement, 10_000).await.expect_err(statement);
            assert_eq!(refused.kind, ErrorKind::Invalid, "{statement}: {refused:?}");
        }
    }

    #[tokio::test]
    async fn whole_numbers_do_not_begin_anew() {
        let engine = engine();
        for statement in [
            "select 9223372036854775807 + 1",
            "select -9223372036854775807 - value from generate_series(1, 3)",
            "select sum(value * 9223372036854775807) from generate_series(1, 3)",
            "select 1 from generate_series(1, 3) where value + 9223372036854775807 > 0",
            "select cast(2147483647 as int) + cast(1 as int)",
            "select 6 / value from generate_series(0, 3)",
            "select value from generate_series(0, 3) where value % 0 = 1",
        ] {
            count(&engine, statement, 10_000).await.expect_err(statement);
        }
        for (statement, rows) in [
            ("select value + 1, value * 2 - 1 as b from generate_series(1, 3) order by value + 1", 3),
            ("select value + 1, count(*) + 1 from generate_series(1, 3) group by value + 1", 3),
            ("select a.value from generate_series(1, 3) a join generate_series(1, 3) b on a.value + 1 = b.value", 2),
            ("with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select n from r", 5),
            ("select value, (select max(b.value) + 1 from generate_series(1, 3) b) from generate_series(1, 2)", 2),
            ("select 1 from generate_series(1, 9) limit 2 + 1", 3),
            ("select value from generate_series(1, 9) where '5' + value = 8 and value * '2' = 6", 1),
            ("select value from generate_series(0, 3) where value <> 0 and 6 / value >= 3", 2),
            ("select value from generate_series(0, 3) where value > 0 and 6 % value = 0 and value < 3", 2),
            ("select sum(6 / value) filter (where value > 0) from generate_series(0, 3)", 1),
            ("select value from generate_series(1, 3) where value + 1 in (select 2 * 1 union all select 3 + 1)", 2),
        ] {
            assert_eq!(count(&engine, statement, 10_000).await.unwrap(), rows, "{statement}");
        }
        let plan = Names::new(engine.relational()).plan("select value + 1 from generate_series(1, 3)").unwrap();
        let (optimized, _) = engine.plan_relational(&plan).await.unwrap();
        assert_eq!(optimized.schema().field(0), plan.schema().field(0));
    }

    #[tokio::test]
    async fn little_does_not_become_much_at_once() {
        let engine = engine();
        for statement in [
            "select repeat('x', 1000000000)",
            "select lpad('a', 100000000)",
            "select length(rpad('a', value)) from generate_series(1000000, 1000200) t",
            "select array_repeat('xy', 100000000)",
            "select range(1, 1000000000000)",
            "select replace(repeat('a', 1000000), 'a', repeat('b', 1000))",
            "select length(replace(repeat('a', value), '', repeat('b', 1000))) from generate_series(1000000, 1000002)",
            "select regexp_replace(repeat('a', 1000000), 'a', repeat('b', 1000), 'g')",
            "select regexp_replace(repeat('a', 1000000), '(a+)', repeat('\\1', 1000))",
            "select generate_series(9000000000, 1, -1)",
            "select length(a || a || a || a) from (select repeat('x', 20000000) a from generate_series(1, 1))",
            "select length(concat(a, a, a, a)) from (select repeat('x', 20000000) a from generate_series(1, 1))",
            "select length(concat_ws(',', a, a, a, a)) from (select repeat('x', 20000000) a from generate_series(1, 1))",
            "select length(encode(encode(repeat('x', 30000000)::bytea, 'hex')::bytea, 'hex'))",
            "select array_to_string(array_repeat('x', 100000), repeat('y', 1000000))",
            "select array_repeat(array_repeat(repeat('x', 6000), 1000), 100)",
            "select array_resize(make_array('x'), 1000, repeat('y', 1000000))",
            "select array_replace_all(array_repeat('x', 1000), 'x', repeat('y', 1000000))",
            "select generate_series(timestamp '1970-01-01', timestamp '2262-01-01', interval '1 second')",
            "select range(date '0001-01-01', date '9999-01-01', interval '1 minute')",
            "select levenshtein(repeat('a', 1000000), repeat('b', 1000000))",
            "select to_char(to_timestamp(value), repeat('%Y', 100000)) from generate_series(1, 8000)",
            "select regexp_match(repeat('a', 1000000), repeat('(', 100) || 'a*' || repeat(')', 100))",
            "select max(a) from (select repeat('x', 1000000) || value::text a from generate_series(1, 8000)) t",
            // Many that are each small enough.
            "select repeat('a', 9000000), repeat('b', 9000000), repeat('c', 9000000), repeat('d', 9000000), \
             repeat('e', 9000000), repeat('f', 9000000), repeat('g', 9000000)",
        ] {
            let error = count(&engine, statement, 10_000).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::LimitExceeded, "{statement}: {error:?}");
        }
        for statement in [
            "select repeat('x', 1000000), range(3)",
            "select range(5, 1, -2), lpad('a', 3, 'b')",
            "select length(replace(repeat('ab', 10000000), 'a', 'c'))",
            "select regexp_replace(repeat('a', 1000000), 'a', repeat('b', 1000))",
            "select regexp_replace(repeat('ab ', 100000), '^a', repeat('x', 300), 'g')",
            "select replace(repeat('a', 1000000), 'b', repeat('c', 1000)), replace('a', NULL, 'b')",
            "select 'a' || NULL, concat('a', NULL), 'a' || 1, string_to_array(repeat('a,b', 100000), ',')",
            "select length(repeat('a', 5000000) || repeat('b', 5000000)), array_to_string(make_array(1, 2), '-')",
            "select generate_series(date '2020-01-01', date '2020-12-31', interval '1 month'), range(3, 0, -1)",
            "select max(upper(repeat('a', 1000) || value)) from generate_series(1, 20000)",
        ] {
            assert_eq!(count(&engine, statement, 10_000).await.unwrap(), 1, "{statement}");
        }
    }

    #[tokio::test]
    async fn copies_of_long_values_count() {
        let engine = engine();
        let over = |outputs: fn(usize) -> String, count: usize| -> &'static str {
            let outputs: Vec<String> = (2..count + 2).map(outputs).collect();
            let rows = "select repeat('x', 1000) || value a, repeat('y', 1000) || value b, \
                        range(value, value + 150) l, value from generate_series(1, 8000)";
            format!("select {} from ({rows}) t", outputs.join(", ")).leak()
        };
        let copies: [fn(usize) -> String; 6] = [
            |n| format!("case when value % {n} = 0 then a else b end"),
            |n| format!("coalesce(nullif(a, 'x{n}'), b)"),
            |n| format!("greatest(a, 'b{n}')"),
            |n| format!("array_slice(l, 1, {}::bigint)::text", 100 + n),
            |n| format!("quote_literal(a || '{n}')"),
            |n| format!("named_struct('a', quote_literal(a || '{n}'))"),
        ];
        for copy in copies {
            let (few, many) = (over(copy, 1), over(copy, 12));
            assert_eq!(count(&engine, few, 10_000).await.unwrap(), 8000, "{few}");
            let error = count(&engine, many, 10_000).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::LimitExceeded, "{many}: {error:?}");
        }
        // What is cut out of a text points at it.
        let cut: fn(usize) -> String = |n| format!("substr(arrow_cast(a, 'Utf8View'), {n})");
        assert_eq!(count(&engine, over(cut, 12), 10_000).await.unwrap(), 8000);
        // Names and types stay.
        let statement = "select case when value > 1 then 'a' else 'b' end, value::text, upper('x') || value::text as u \
                         from generate_series(1, 3) order by case when value > 1 then 'a' else 'b' end";
        let plan = Names::new(engine.relational()).plan(statement).unwrap();
        let (_, physical) = engine.plan_relational(&plan).await.unwrap();
        let (fields, asked) = (physical.schema(), plan.schema());
        assert_eq!(fields.fields().len(), asked.fields().len());
        for (field, asked) in fields.fields().iter().zip(asked.fields()) {
            assert_eq!((field.name(), field.data_type()), (asked.name(), asked.data_type()));
        }
    }

    #[tokio::test]
    async fn windows_take_memory_before_they_give() {
        let engine = engine();
        let rows = "(select case when value = 1 then repeat('x', 300000) else 'y' || value end a, value \
                    from generate_series(1, 8000))";
        let words = "(select repeat('x', 100) || value a, value from generate_series(1, 8000))";
        for statement in [
            format!("select string_agg(a, ',') over (order by value) from {words}"),
            format!("select string_agg(a, ',') over () from {words}"),
            format!("select array_agg(a) over (order by value) from {words}"),
            format!("select array_agg(a) over (partition by value % 2) from {words}"),
            format!("select min(a) over () from {rows}"),
            format!("select max(a) filter (where value = 1 or a = 'y') over () from {rows}"),
            format!("select min(a) over (order by value rows between 1000 preceding and current row) from {rows}"),
            format!("select first_value(a) over (order by value) from {rows}"),
            format!("select nth_value(a, 1) over () from {rows}"),
            format!(
                "select last_value(a) over (order by value desc rows between 1 preceding and unbounded following) \
                     from {rows}"
            ),
            format!("select lag('y' || value, 8000, '{}') over (order by value) from {words}", "x".repeat(30_000)),
            "select sum(value) over (), avg(value) over () from generate_series(1, 5000000)".to_owned(),
        ] {
            let statement: &'static str = statement.leak();
            let error = count(&engine, statement, 60_000).await.expect_err(statement);
            assert_eq!(error.kind, ErrorKind::LimitExceeded, "{statement}: {error:?}");
        }
        for statement in [
            format!("select string_agg(a, ',') over (partition by value / 4 order by value) from {words}"),
            format!("select string_agg(a, ',') over (partition by value / 4), count(*) over () from {words}"),
            format!("select array_agg(a) filter (where value > 3) over (partition by value / 4) from {words}"),
            format!("select max(a) over (), lag(a) over (), lead(a, 2, '-') over (), ntile(4) over () from {words}"),
            format!("select last_value(a) over (order by value), min(a) over (order by value) from {words}"),
            format!("select sum(value) over (partition by value % 3), rank() over (order by value) from {words}"),
        ] {
            let statement: &'static str = statement.leak();
            assert_eq!(count(&engine, statement, 60_000).await.unwrap(), 8000, "{statement}");
        }
        assert_eq!(count(&engine, "select sum(1) over () from generate_series(1, 0)", 10_000).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn long_lists_become_rows_piece_by_piece() {
        let engine = engine();
        let long = "(select repeat('x', 10000) || value a, range(0, 100000) l from generate_series(1, 1))";
        for (statement, rows) in [
            (format!("select unnest(l) x, a from {long}"), 100_000),
            (format!("select unnest(l) x, unnest(range(0, 3)) y, a from {long}"), 100_000),
            ("select unnest(range(0, value)) from generate_series(0, 3)".to_owned(), 6),
            ("select unnest(unnest(array_repeat(range(0, value), 2))) from generate_series(0, 3)".to_owned(), 12),
        ] {
            let statement: &'static str = statement.leak();
            assert_eq!(count(&engine, statement, 20_000).await.unwrap(), rows, "{statement}");
        }
        let nested = format!("select unnest(unnest(make_array(l))) x, a from {long}").leak();
        assert_eq!(count(&engine, nested, 20_000).await.unwrap_err().kind, ErrorKind::LimitExceeded);
    }

    #[tokio::test]
    async fn long_constants_are_put_into_few_rows_at_once() {
        let engine = engine();
        let long = "x".repeat(20_000);
        for (statement, is_sliced, rows) in [
            (format!("select '{long}' as a, value from generate_series(1, 3000)"), true, 3000),
            (format!("select value % 3, max('{long}') from generate_series(1, 3000) group by value % 3"), true, 3),
            (format!("select value from generate_series(1, 3000) where '{long}' <> value::text"), false, 3000),
            ("select 'short', value from generate_series(1, 3000)".to_owned(), false, 3000),
        ] {
            let statement: &'static str = statement.leak();
            let plan = Names::new(engine.relational()).plan(statement).unwrap();
            let (_, physical) = engine.plan_relational(&plan).await.unwrap();
            let shown = displayable(&*physical).indent(false).to_string();
            assert_eq!(shown.contains("SliceExec"), is_sliced, "{shown}");
            assert_eq!(count(&engine, statement, 10_000).await.unwrap(), rows, "{shown}");
        }
    }

    #[tokio::test]
    async fn products_of_tables_are_few() {
        let engine = engine();
        let product = |tables: usize| -> &'static str {
            let tables: Vec<_> = (0..tables).map(|n| format!("generate_series(1, 2) t{n}")).collect();
            format!("select count(*) from {}", tables.join(" cross join ")).leak()
        };
        assert_eq!(count(&engine, product(8), 20_000).await.unwrap(), 1);
        let error = count(&engine, product(40), 20_000).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error:?}");
        let value = |n: usize| format!("(select max(value) + {n} from generate_series(1, 3)) a{n}");
        let values: Vec<_> = (0..30).map(value).collect();
        let statement: &'static str = format!("select {} from generate_series(1, 2)", values.join(", ")).leak();
        assert_eq!(count(&engine, statement, 20_000).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn inputs_of_a_union_begin_in_turn() {
        let engine = engine();
        let part = |n| format!("select column1 from (values ({n}), ({n} + 1)) t");
        let statement: &'static str = (0..30).map(part).collect::<Vec<_>>().join(" union all ").leak();
        let plan = Names::new(engine.relational()).plan(statement).unwrap();
        let (_, physical) = engine.plan_relational(&plan).await.unwrap();
        let shown = displayable(&*physical).indent(false).to_string();
        assert!(shown.contains("InTurnExec: partitions=1"), "{shown}");
        assert_eq!(count(&engine, statement, 20_000).await.unwrap(), 60);
    }

    #[tokio::test]
    async fn statements_without_end_give_their_threads_back() {
        let engine = engine();
        for statement in [
            "select count(*) from generate_series(1, 1000000000000)",
            "select count(*) from generate_series(1, 100000) a cross join generate_series(1, 1000000) b",
            "with recursive r as (select 1 as n union all select n + 1 from r) select count(*) from r",
            "select count(*) from generate_series(1, 100000) a join generate_series(1, 100000) b on a.value < b.value",
        ] {
            assert_eq!(count(&engine, statement, 300).await.unwrap_err().kind, ErrorKind::Timeout, "{statement}");
            // The one thread is free again.
            assert_eq!(count(&engine, "select 1", 10_000).await.unwrap(), 1, "{statement}");
        }
    }
}
