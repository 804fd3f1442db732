//! Correlated subqueries whose rows each stand for several: groups, and `DISTINCT`. Only rows of the same outer row
//! may be combined.

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, OrderBy, OrderByExpr, OrderByKind, Select, SelectItem, Value,
};

use super::super::empty_queries::{self, IsAggregate};
use super::empty_groups::{Parts, groups_of_nothing, is_nothing, is_one_group};
use super::outer_references::reads_keys;
use super::window_partitions;
use crate::names::normal;

/// Whether a select combines rows by `GROUP BY` or `DISTINCT`.
pub(super) fn is_one(select: &Select) -> bool {
    !empty_queries::is_ungrouped(select)
        || select.having.is_some()
        || matches!(select.distinct, Some(Distinct::Distinct | Distinct::On(_)))
}

/// Whether the outer values can be added to the grouping keys.
pub(super) fn is_plain(select: &Select, is_aggregate: IsAggregate<'_>) -> bool {
    let GroupByExpr::Expressions(keys, sets) = &select.group_by else { return false };
    let is_key = |key: &Expr| match key {
        Expr::Tuple(_) => is_nothing(key),
        // An added key would be NULL in some of the grouping sets.
        Expr::GroupingSets(sets) | Expr::Rollup(sets) | Expr::Cube(sets) => !reads_keys(sets),
        _ => true,
    };
    if !sets.is_empty() || !keys.iter().all(is_key) {
        return false;
    }
    match groups_of_nothing(select, is_aggregate) {
        0 => true,
        1 => {
            let is_whole = select.having.is_none() || !window_partitions::has(&select.projection);
            is_whole
                && !matches!(select.distinct, Some(Distinct::On(_)))
                && Parts::of(select, &[], is_aggregate).is_some()
        }
        _ => false,
    }
}

/// Whether the planner would misread a select that is correlated by `=`: over no rows it takes outputs that are no
/// aggregates for NULL, and it has no groups for empty grouping sets.
pub(super) fn is_misread(select: &Select, is_aggregate: IsAggregate<'_>) -> bool {
    if matches!(select.distinct, Some(Distinct::On(_))) {
        return true;
    }
    if !is_one_group(select, is_aggregate) {
        return groups_of_nothing(select, is_aggregate) > 0;
    }
    !select.projection.iter().all(|item| empty_queries::has_aggregate(item, is_aggregate))
}

/// Whether a `DISTINCT` query orders only by its outputs, as it must.
pub(super) fn is_ordered(select: &Select, order: Option<&OrderBy>) -> bool {
    let (Some(Distinct::Distinct), Some(order)) = (&select.distinct, order) else { return true };
    let OrderByKind::Expressions(keys) = &order.kind else { return false };
    let is_output = |key: &OrderByExpr| match &key.expr {
        Expr::Value(value) => matches!(value.value, Value::Number(..)),
        key => select.projection.iter().any(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } => {
                expr == key || matches!(key, Expr::Identifier(name) if normal(name) == normal(alias))
            }
            SelectItem::UnnamedExpr(expr) => expr == key,
            _ => matches!(key, Expr::Identifier(_) | Expr::CompoundIdentifier(_)),
        }),
    };
    keys.iter().all(is_output)
}

/// What precedes the outputs of a select (`DISTINCT`, `DISTINCT ON`), and its order if that decides which rows
/// remain.
pub(super) fn begins(select: &Select, values: &[String], order: &[OrderByExpr]) -> (String, String) {
    match &select.distinct {
        Some(Distinct::Distinct) => ("SELECT DISTINCT".to_owned(), String::new()),
        Some(Distinct::On(ons)) => first_of_each(ons, select, values, order),
        _ => ("SELECT".to_owned(), String::new()),
    }
}

/// Adds the outer values to a `DISTINCT ON`: its expressions must be the ones that the order begins with.
fn first_of_each(ons: &[Expr], select: &Select, values: &[String], order: &[OrderByExpr]) -> (String, String) {
    let ons = ons.iter().map(|on| output_at(on, &select.projection).unwrap_or(on));
    let ons: Vec<String> = ons.map(|on| within(on).to_string()).collect();
    let keys: Vec<String> = order.iter().map(|key| within(&key.expr).to_string()).collect();
    let mut first = values.to_vec();
    for on in keys.iter().filter(|key| ons.contains(key)).chain(&ons) {
        if !first.contains(on) {
            first.push(on.clone());
        }
    }
    let mut ordered: Vec<String> = values.iter().cloned().chain(order.iter().map(ToString::to_string)).collect();
    if keys.iter().all(|key| ons.contains(key)) {
        ordered.extend(first.iter().filter(|on| !values.contains(on) && !keys.contains(on)).cloned());
    }
    (format!("SELECT DISTINCT ON ({})", first.join(", ")), format!(" ORDER BY {}", ordered.join(", ")))
}

/// An expression without parentheses around it.
fn within(value: &Expr) -> &Expr {
    match value {
        Expr::Nested(inner) => within(inner),
        value => value,
    }
}

/// The output that a sort key refers to by name or position.
pub(super) fn output_at<'s>(key: &Expr, outputs: &'s [SelectItem]) -> Option<&'s Expr> {
    let item = match key {
        Expr::Value(value) => match &value.value {
            Value::Number(at, _) => at.parse::<usize>().ok().and_then(|at| outputs.get(at.checked_sub(1)?)),
            _ => None,
        },
        Expr::Identifier(name) => outputs.iter().find(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => normal(alias) == normal(name),
            _ => false,
        }),
        _ => None,
    };
    match item {
        Some(SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr)) => Some(expr),
        _ => None,
    }
}

/// The `GROUP BY` of a select with the outer values added. A select may have none.
pub(super) fn groups(select: &Select, values: &[String]) -> String {
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return String::new() };
    if keys.is_empty() {
        return String::new();
    }
    let own = keys.iter().filter(|key| !is_nothing(key)).map(ToString::to_string).filter(|key| !values.contains(key));
    let keys: Vec<String> = values.iter().cloned().chain(own).collect();
    let having = select.having.as_ref().map_or_else(String::new, |is| format!(" HAVING {is}"));
    format!(" GROUP BY {}{having}", keys.join(", "))
}
