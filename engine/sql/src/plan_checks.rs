//! Rejects plans that PostgreSQL rejects but DataFusion's planner accepts: window functions and aggregates in clauses
//! that are evaluated before them, window functions in correlated subqueries, which decorrelation would compute over the
//! rows of all outer rows together, and the smallest and largest of records.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, ExprSchemable as _, LogicalPlan};
use quiver_types::{Error, Result};

use crate::error::unsupported;

/// Looks at a plan before anything is done with it.
///
/// # Errors
/// Invalid: groups are made of windows, or a join has a condition about windows or aggregates. Unsupported: a window of a
/// subquery that reads the row at hand.
pub(crate) fn check(plan: &LogicalPlan) -> Result<()> {
    let mut said = None;
    // Looking never fails.
    let _ = plan.apply_with_subqueries(|node| {
        said = refused(node);
        Ok(if said.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    said.map_or(Ok(()), Err)
}

fn refused(node: &LogicalPlan) -> Option<Error> {
    match node {
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.iter().any(|key| holds(key, is_window)) => {
            Some(misplaced("window functions", "`GROUP BY`"))
        }
        LogicalPlan::Aggregate(aggregate) => {
            let input = aggregate.input.schema();
            aggregate.aggr_expr.iter().find_map(|value| extreme_of_record(value, input)).map(|name| {
                Error::invalid(format!(
                    "No function matches: `{name}` takes no records, such as `row(a, b)`: order by their fields"
                ))
            })
        }
        LogicalPlan::Join(join) => {
            let keys = join.on.iter().flat_map(|(left, right)| [left, right]);
            let mut conditions = keys.chain(&join.filter);
            let what = conditions.find_map(|condition| {
                let window = holds(condition, is_window).then_some("window functions");
                window.or_else(|| holds(condition, is_aggregate).then_some("Aggregate functions"))
            });
            what.map(|what| misplaced(what, "conditions of joins"))
        }
        LogicalPlan::Window(window) if reads_row(&window.input) => Some(unsupported(
            "a window in a subquery that reads the row at hand is supported in a `LATERAL` of one select alone, whose columns \
             have their table before them: compute it in a subquery that reads no other row, or join",
        )),
        _ => None,
    }
}

/// The name of `min` or `max` where its argument is a record. PostgreSQL 15 has neither, and DataFusion keeps the buffers
/// of all earlier records with each group: memory that grows with the square of their number and that no pool counts.
fn extreme_of_record(value: &Expr, input: &DFSchema) -> Option<String> {
    let mut found = None;
    // Looking never fails; what has no type has its error from the planner.
    let _ = value.apply(|part| {
        if let Expr::AggregateFunction(call) = part
            && matches!(call.func.name(), "min" | "max")
            && call.params.args.iter().any(|arg| matches!(arg.get_type(input), Ok(DataType::Struct(_))))
        {
            found = Some(call.func.name().to_owned());
        }
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

fn misplaced(what: &str, place: &str) -> Error {
    Error::invalid(format!("{what} are not allowed in {place}: compute them in a subquery"))
}

fn holds(expr: &Expr, is_one: impl Fn(&Expr) -> bool) -> bool {
    expr.exists(|part| Ok(is_one(part))).unwrap_or_default()
}

fn is_window(expr: &Expr) -> bool {
    matches!(expr, Expr::WindowFunction(_))
}

fn is_aggregate(expr: &Expr) -> bool {
    matches!(expr, Expr::AggregateFunction(_))
}

/// Whether a plan reads columns of a row around it. What subqueries in it read is its own.
fn reads_row(plan: &LogicalPlan) -> bool {
    let mut reads = false;
    let _ = plan.apply(|node| {
        if matches!(node, LogicalPlan::Subquery(_)) {
            return Ok(TreeNodeRecursion::Jump);
        }
        reads |= node.contains_outer_reference();
        Ok(if reads { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    reads
}
