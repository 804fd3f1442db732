//! Hypothetical-set aggregates: `rank(x) WITHIN GROUP (ORDER BY y)` and similar, the rank that a value would have in
//! a group. The planner knows only window functions of these names, so they become counts of the rows that sort
//! before the value.

use datafusion::sql::sqlparser::ast::{Expr, Function, OrderByExpr};
use quiver_types::{Error, Result};

use super::expressions::{arguments, copied, expr, literal};

/// The rank as counts; `None` if it is another call.
pub(super) fn of_value(name: &str, function: &Function) -> Result<Option<Expr>> {
    let orders = function.within_group.as_slice();
    let is_rank = matches!(name, "rank" | "dense_rank" | "percent_rank" | "cume_dist");
    if !is_rank || orders.is_empty() || function.over.is_some() {
        return Ok(None);
    }
    let values = arguments(&function.args).unwrap_or_default();
    if values.len() != orders.len() {
        let text = format!(
            "`{name} WITHIN GROUP` takes a value for each of the {} that it orders by, not {}",
            orders.len(),
            values.len()
        );
        return Err(Error::invalid(text));
    }
    copied(&Expr::Function(function.clone()), 4)?;
    let mut kept = before(&values, orders);
    if name == "cume_dist" {
        kept = format!("{kept} OR {}", alike(&values, orders));
    }
    let whole = function.filter.as_ref().map_or_else(String::new, |own| format!(" FILTER (WHERE {own})"));
    let own = function.filter.as_ref().map_or_else(String::new, |own| format!("({own}) AND "));
    let filter = format!("FILTER (WHERE {own}({kept}))");
    expr(&match name {
        "rank" => format!("(count(*) {filter} + 1)"),
        "dense_rank" => {
            let keys: Vec<String> = orders.iter().map(|order| order.expr.to_string()).collect();
            // A struct of NULLs is counted; a NULL is not.
            format!("(count(DISTINCT struct({})) {filter} + 1)", keys.join(", "))
        }
        "percent_rank" => {
            format!("coalesce(count(*) {filter} / CAST(nullif(count(*){whole}, 0) AS DOUBLE PRECISION), 0.0)")
        }
        _ => format!("((count(*) {filter} + 1) / CAST(count(*){whole} + 1 AS DOUBLE PRECISION))"),
    })
    .map(Some)
}

/// A condition: the row sorts before the value, decided by the first key in which they differ.
fn before(values: &[Expr], orders: &[OrderByExpr]) -> String {
    let mut whole = String::new();
    for (value, order) in values.iter().zip(orders).rev() {
        let key = &order.expr;
        let is_descending = order.options.asc == Some(false);
        let sooner = if is_descending { ">" } else { "<" };
        let (missing, there) = if order.options.nulls_first.unwrap_or(is_descending) {
            (format!("({key}) IS NULL"), format!("({value}) IS NOT NULL"))
        } else {
            (format!("({value}) IS NULL"), format!("({key}) IS NOT NULL"))
        };
        let is_sooner = format!("({key}) {sooner} ({value}) OR ({missing} AND {there})");
        whole =
            if whole.is_empty() { is_sooner } else { format!("{is_sooner} OR ({} AND ({whole}))", same(value, order)) };
    }
    whole
}

/// A condition: the row has the value in all keys.
fn alike(values: &[Expr], orders: &[OrderByExpr]) -> String {
    let same: Vec<String> = values.iter().zip(orders).map(|(value, order)| same(value, order)).collect();
    format!("({})", same.join(" AND "))
}

fn same(value: &Expr, order: &OrderByExpr) -> String {
    let key = &order.expr;
    // As an operand of `=`, a literal gets the type of the other side.
    match literal(value) {
        Some(_) => format!("(({key}) = ({value})) IS TRUE"),
        None => format!("(({key}) IS NOT DISTINCT FROM ({value}))"),
    }
}
