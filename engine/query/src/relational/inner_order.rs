//! Keeps the `ORDER BY` of an inner query where its effect is visible, as PostgreSQL does: to aggregates and windows
//! that depend on the order and have none of their own, to a limit, to the result. DataFusion only honours the order of
//! the outermost query.
//!
//! The sort keys pass through filters, projections and aliases to the node that needs them, as additional columns where
//! they are no outputs. Where the order is not visible (groups, joins, sets, conditions) it is dropped.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{AggregateFunction, Exists, InSubquery, WindowFunction};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, LogicalPlan, Projection, Sort, SortExpr, Subquery, Window, WindowFrameUnits,
};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::{Exclusion, exclusion, is_mark};
use crate::plan_walk::{any_expression, change_nodes, change_parts};

/// The rule. It comes before all others, so that they see the keys as if the statement contained them.
#[derive(Debug)]
pub(crate) struct InnerOrder;

/// Aggregates whose value depends on the order of their rows.
const AGGREGATES: [&str; 5] = ["array_agg", "string_agg", "first_value", "last_value", "nth_value"];
/// Window functions that depend on the order of the whole partition, whatever the frame.
const OF_PARTITIONS: [&str; 4] = ["row_number", "ntile", "lag", "lead"];
/// Window functions that ask the order which rows are equal: without one, all are.
const RANKS: [&str; 4] = ["rank", "dense_rank", "percent_rank", "cume_dist"];

impl AnalyzerRule for InnerOrder {
    fn name(&self) -> &'static str {
        "inner_order"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = change_nodes(plan, &mut |node| {
            let node = in_conditions(node)?;
            let made = match &node.data {
                LogicalPlan::Aggregate(aggregate) => aggregated(aggregate)?,
                LogicalPlan::Window(window) => windowed(window, &node.data)?,
                LogicalPlan::Limit(limit) => match ordered(&limit.input)? {
                    Some(input) => Some(over(&node.data, input)?),
                    None => None,
                },
                _ => None,
            };
            match made {
                Some(made) => Ok(Transformed::yes(made)),
                None => node.transform_data(without_order),
            }
        })?;
        Ok(ordered(&changed)?.unwrap_or(changed))
    }
}

/// A plan whose columns include its sort keys.
struct KeyedPlan {
    plan: LogicalPlan,
    /// The sort keys, each a column of the plan.
    keys: Vec<SortExpr>,
    /// Whether there is a node above the sort through which DataFusion does not keep the order.
    is_inner: bool,
}

/// Adds the sort keys of a plan to its columns. It remains sorted if `keeps_order`, or if the order decides which rows
/// there are (a limit). `None` if it has no order.
fn keyed(plan: &LogicalPlan, keeps_order: bool) -> Result<Option<KeyedPlan>> {
    let (below, is_inner) = match plan {
        LogicalPlan::Sort(sort) => return sorted(sort, keeps_order),
        LogicalPlan::Projection(projection) => {
            let Some(below) = keyed(&projection.input, keeps_order)? else { return Ok(None) };
            return projected(projection, below).map(Some);
        }
        LogicalPlan::SubqueryAlias(alias) => (keyed(&alias.input, keeps_order)?, true),
        LogicalPlan::Filter(filter) => (keyed(&filter.input, keeps_order)?, true),
        LogicalPlan::Limit(limit) => (keyed(&limit.input, true)?, false),
        LogicalPlan::Window(window) => match keyed(&window.input, true)? {
            Some(below) if window.window_expr.iter().all(|e| has_order(e, &below.keys)) => (Some(below), true),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let Some(below) = below else { return Ok(None) };
    let schema = Arc::clone(below.plan.schema());
    let made = over(plan, below.plan)?;
    let mut keys = Vec::with_capacity(below.keys.len());
    for key in &below.keys {
        let Expr::Column(column) = &key.expr else { return Ok(None) };
        let Some(idx) = schema.maybe_index_of_column(column) else { return Ok(None) };
        keys.push(key.with_expr(column_at(&made, idx)));
    }
    Ok(Some(KeyedPlan { plan: made, keys, is_inner: is_inner || below.is_inner }))
}

fn column_at(plan: &LogicalPlan, idx: usize) -> Expr {
    Expr::Column(Column::from(plan.schema().qualified_field(idx)))
}

/// The same node over another input.
fn over(node: &LogicalPlan, input: LogicalPlan) -> Result<LogicalPlan> {
    node.with_new_exprs(node.expressions(), vec![input])
}

/// The name of a sort key that is no output.
fn carried(at: usize) -> String {
    format!("__order_key_{at}")
}

/// Computed keys become columns, so that `random()` has one value per row wherever it is read.
fn sorted(sort: &Sort, keeps_order: bool) -> Result<Option<KeyedPlan>> {
    // DataFusion finds outer columns only in certain places, so they must stay there.
    if sort.expr.iter().any(|key| key.expr.contains_outer()) {
        return Ok(None);
    }
    let mut exprs: Vec<Expr> = sort.input.schema().columns().into_iter().map(Expr::Column).collect();
    let own = exprs.len();
    let mut keys = Vec::with_capacity(sort.expr.len());
    for (at, key) in sort.expr.iter().enumerate() {
        if matches!(key.expr, Expr::Column(_)) {
            keys.push(key.clone());
        } else {
            exprs.push(key.expr.clone().alias(carried(at)));
            keys.push(key.with_expr(Expr::Column(Column::from_name(carried(at)))));
        }
    }
    let input = if exprs.len() == own {
        Arc::clone(&sort.input)
    } else {
        Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, Arc::clone(&sort.input))?))
    };
    let plan = if keeps_order || sort.fetch.is_some() {
        LogicalPlan::Sort(Sort { expr: keys.clone(), input, fetch: sort.fetch })
    } else {
        Arc::unwrap_or_clone(input)
    };
    Ok(Some(KeyedPlan { plan, keys, is_inner: false }))
}

fn projected(projection: &Projection, below: KeyedPlan) -> Result<KeyedPlan> {
    let mut exprs = projection.expr.clone();
    let mut places = Vec::with_capacity(below.keys.len());
    for (at, key) in below.keys.iter().enumerate() {
        let is_key = |output: &Expr| match output {
            Expr::Alias(alias) => *alias.expr == key.expr,
            other => *other == key.expr,
        };
        let place = exprs.iter().position(is_key).unwrap_or_else(|| {
            exprs.push(key.expr.clone().alias(carried(at)));
            exprs.len() - 1
        });
        places.push(place);
    }
    let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(below.plan))?);
    let keys = below.keys.iter().zip(places).map(|(key, place)| key.with_expr(column_at(&plan, place))).collect();
    Ok(KeyedPlan { plan, keys, is_inner: below.is_inner })
}

/// The plan sorted at its top, if it has the order of an inner query.
fn ordered(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let Some(below) = keyed(plan, false)?.filter(|below| below.is_inner) else { return Ok(None) };
    let sort = Sort { expr: below.keys, input: Arc::new(below.plan), fetch: None };
    outputs(LogicalPlan::Sort(sort), plan).map(Some)
}

/// Projects to the columns of the original plan, without the added sort keys.
fn outputs(made: LogicalPlan, asked: &LogicalPlan) -> Result<LogicalPlan> {
    if made.schema().fields().len() == asked.schema().fields().len() {
        return Ok(made);
    }
    let columns = asked.schema().columns().into_iter().map(Expr::Column).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(made))?))
}

/// Gives aggregates that depend on an order, but have none, the order of their input.
fn aggregated(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    let calls = || aggregate.aggr_expr.iter().filter_map(aggregate_in);
    // Functions that cannot sort by themselves may not be combined with others that have another order.
    let is_alone = calls().all(|call| call.params.order_by.is_empty());
    let takes = |call: &AggregateFunction| {
        let params = &call.params;
        AGGREGATES.contains(&call.func.name())
            && params.order_by.is_empty()
            && !params.distinct
            && (is_alone || !call.func.order_sensitivity().hard_requires())
    };
    if !calls().any(takes) {
        return Ok(None);
    }
    let Some(below) = keyed(&aggregate.input, false)? else { return Ok(None) };
    let given = |expr: &Expr| match aggregate_in(expr) {
        Some(call) if takes(call) => {
            let mut call = call.clone();
            call.params.order_by.clone_from(&below.keys);
            Expr::AggregateFunction(call).alias(expr.schema_name().to_string())
        }
        _ => expr.clone(),
    };
    let exprs = aggregate.aggr_expr.iter().map(given).collect();
    let made = Aggregate::try_new(Arc::new(below.plan), aggregate.group_expr.clone(), exprs)?;
    Ok(Some(LogicalPlan::Aggregate(made)))
}

fn aggregate_in(expr: &Expr) -> Option<&AggregateFunction> {
    match expr {
        Expr::AggregateFunction(call) => Some(call),
        Expr::Alias(alias) => aggregate_in(&alias.expr),
        _ => None,
    }
}

/// Gives window functions without an order that of their input. All functions of a node have the same.
fn windowed(window: &Window, node: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let calls = || window.window_expr.iter().filter_map(window_in);
    let depends = |call: &WindowFunction| {
        let name = call.fun.name();
        AGGREGATES.contains(&name) || OF_PARTITIONS.contains(&name) || !is_whole(call)
    };
    if !calls().any(depends) || !calls().all(may_take_order) {
        return Ok(None);
    }
    let Some(below) = keyed(&window.input, true)? else { return Ok(None) };
    let given = |expr: &Expr| match window_in(expr) {
        Some(call) => {
            let mut call = call.clone();
            call.params.order_by.clone_from(&below.keys);
            Expr::from(call).alias(expr.schema_name().to_string())
        }
        None => expr.clone(),
    };
    let exprs = window.window_expr.iter().map(given).collect();
    let made = Window::try_new(exprs, Arc::new(below.plan))?;
    outputs(LogicalPlan::Window(made), node).map(Some)
}

fn window_in(expr: &Expr) -> Option<&WindowFunction> {
    match expr {
        Expr::WindowFunction(call) => Some(call),
        Expr::Alias(alias) => window_in(&alias.expr),
        _ => None,
    }
}

/// Whether a window function's frame is the whole partition.
fn is_whole(call: &WindowFunction) -> bool {
    let frame = &call.params.window_frame;
    frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded()
}

/// Whether a call has no order, and its frame stays the same if it is given one.
fn may_take_order(call: &WindowFunction) -> bool {
    let name = call.fun.name();
    let counts_rows = call.params.window_frame.units == WindowFrameUnits::Rows;
    let same_rows = counts_rows || is_whole(call) || OF_PARTITIONS.contains(&name);
    // Without an order all rows are peers, which may be excluded together.
    let by_equals = matches!(exclusion(&call.params), Some(Exclusion::Group | Exclusion::Ties));
    call.params.order_by.is_empty() && same_rows && !by_equals && !RANKS.contains(&name)
}

/// Whether the output of a window is in this order.
fn has_order(expr: &Expr, keys: &[SortExpr]) -> bool {
    window_in(expr).is_some_and(|call| {
        let params = &call.params;
        params.partition_by.iter().all(is_mark) && (params.order_by.is_empty() || params.order_by == keys)
    })
}

/// Removes sorts below a node to whose result they make no difference.
fn without_order(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let has_no_use = matches!(
        node,
        LogicalPlan::Aggregate(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::Distinct(Distinct::All(_))
    );
    if !has_no_use {
        return Ok(Transformed::no(node));
    }
    node.map_children(|child| {
        let stripped = unordered(&child)?;
        Ok(stripped.map_or_else(|| Transformed::no(child), Transformed::yes))
    })
}

/// The plan without its order; `None` if there is none that may be removed.
fn unordered(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
            Some(unordered(&sort.input)?.unwrap_or_else(|| LogicalPlan::clone(&sort.input)))
        }
        LogicalPlan::Subquery(inner) => of_subquery(inner)?.map(LogicalPlan::Subquery),
        LogicalPlan::Projection(projection) => {
            unordered(&projection.input)?.map(|input| over(plan, input)).transpose()?
        }
        LogicalPlan::Filter(filter) => unordered(&filter.input)?.map(|input| over(plan, input)).transpose()?,
        LogicalPlan::SubqueryAlias(alias) => unordered(&alias.input)?.map(|input| over(plan, input)).transpose()?,
        _ => None,
    })
}

fn of_subquery(subquery: &Subquery) -> Result<Option<Subquery>> {
    Ok(unordered(&subquery.subquery)?.map(|plan| subquery.with_plan(Arc::new(plan))))
}

/// Removes the order of subqueries used as sets, conditions or single values: DataFusion cannot make joins of
/// correlated ones that are sorted.
fn in_conditions(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let is_subquery = |e: &Expr| matches!(e, Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_));
    if !any_expression(&node, &is_subquery)? {
        return Ok(Transformed::no(node));
    }
    node.map_expressions(|expr| {
        change_parts(expr, &mut |e| {
            let made = match &e {
                Expr::Exists(exists) => of_subquery(&exists.subquery)?
                    .map(|subquery| Expr::Exists(Exists { subquery, negated: exists.negated })),
                Expr::InSubquery(within) => of_subquery(&within.subquery)?.map(|subquery| {
                    Expr::InSubquery(InSubquery { expr: within.expr.clone(), subquery, negated: within.negated })
                }),
                Expr::ScalarSubquery(subquery) => of_subquery(subquery)?.map(Expr::ScalarSubquery),
                _ => None,
            };
            Ok(made.map_or_else(|| Transformed::no(e), Transformed::yes))
        })
    })
}

#[cfg(test)]
mod tests {
    use datafusion::optimizer::Analyzer;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    /// The analyzed plan of a statement, printed without types.
    async fn planned(statement: &str) -> String {
        let config = SessionConfig::new().set_bool("datafusion.sql_parser.enable_subquery_sort_elimination", false);
        let state = SessionContext::new_with_config(config).state();
        let plan = state.create_logical_plan(statement).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
        let rules = Analyzer::with_rules(vec![Arc::new(InnerOrder)]);
        let analyzed = rules.execute_and_check(plan.clone(), state.config_options(), |_, _| {});
        let analyzed = analyzed.unwrap_or_else(|e| panic!("{statement}: {e}"));
        assert_eq!(analyzed.schema().field_names(), plan.schema().field_names(), "{statement}");
        analyzed.display_indent().to_string()
    }

    const ROWS: &str = "(values ('a', 1, 5), ('b', 3, 4), ('a', 2, 6)) v(k, x, y)";

    #[tokio::test]
    async fn keys_reach_who_depends_on_order() {
        for (statement, expected) in [
            ("select array_agg(x) from (select x from R order by x desc) t", "ORDER BY [t.x DESC NULLS FIRST]"),
            (
                "select k, string_agg(k, ',') from (select * from R order by y) t group by k",
                "ORDER BY [t.y ASC NULLS LAST]",
            ),
            ("select array_agg(x) from (select x from R order by y) t", "ORDER BY [t.__order_key_0 ASC NULLS LAST]"),
            ("select array_agg(z) from (select x + 1 z from R order by -y) t where z > 2", "ORDER BY [t.__order_key_0"),
            ("select first_value(x) from (select x from R order by y limit 2) t", "ORDER BY [t.__order_key_0"),
            ("with c as (select x from R order by y) select array_agg(x) from c", "ORDER BY [c.__order_key_0"),
            ("select x, row_number() over () from (select x from R order by y) t", "ORDER BY [t.__order_key_0"),
            ("select x from (select x from R order by y) t where x > 1", "__order_key_0 ASC NULLS LAST"),
            ("select x from (select x from R order by y) t where x > 1 limit 1", "__order_key_0 ASC NULLS LAST"),
        ] {
            let plan = planned(&statement.replace('R', ROWS)).await;
            assert!(plan.contains(expected), "{statement}: {plan}");
        }
    }

    #[tokio::test]
    async fn orders_of_their_own_stay() {
        for (statement, unwanted) in [
            ("select array_agg(x order by x) from (select x from R order by y) t", "__order_key"),
            (
                "select string_agg(k, ',' order by x), string_agg(k, '') from (select k, x from R order by y) t",
                "__order_key",
            ),
            ("select rank() over () from (select x from R order by x) t", "ORDER BY ["),
            // The order is not visible in these.
            ("select count(*) from (select x from R order by y) t", "Sort"),
            ("select k, max(x) from (select k, x from R order by x) t group by k", "Sort"),
            ("select distinct k from (select k, x from R order by x) t", "Sort"),
            ("select 1 where exists (select 1 from (select x from R order by x) t)", "Sort"),
            ("select 1 from (select x from R order by x) a join (select x from R order by x) b on a.x = b.x", "Sort"),
        ] {
            let plan = planned(&statement.replace('R', ROWS)).await;
            assert!(!plan.contains(unwanted), "{statement}: {plan}");
        }
        let limited = planned(&"select count(*) from (select x from R order by y limit 2) t".replace('R', ROWS)).await;
        assert!(limited.contains("Sort"), "{limited}");
    }
}
