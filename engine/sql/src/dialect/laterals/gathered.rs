//! Such subqueries whose rows stand for several: groups, and `DISTINCT`. Rows of one row at hand stand together alone.

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, OrderBy, OrderByExpr, OrderByKind, Select, SelectItem, Value,
};

use super::super::empty;
use crate::names::normal;

/// Whether rows of a select stand for several.
pub(super) fn is_one(select: &Select) -> bool {
    !empty::is_ungrouped(select) || select.distinct == Some(Distinct::Distinct)
}

/// Whether its groups may be divided by a value: they have single keys.
pub(super) fn is_plain(select: &Select) -> bool {
    let is_key = |key: &Expr| !matches!(key, Expr::Tuple(_) | Expr::GroupingSets(_) | Expr::Rollup(_) | Expr::Cube(_));
    let GroupByExpr::Expressions(keys, sets) = &select.group_by else { return false };
    let has_groups = !keys.is_empty() || select.having.is_none();
    has_groups && sets.is_empty() && keys.iter().all(is_key) && !matches!(select.distinct, Some(Distinct::On(_)))
}

/// Whether what is distinct is in the order of its outputs, as it has to be.
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

/// What stands before the outputs of a select.
pub(super) fn begins(select: &Select) -> &'static str {
    if select.distinct == Some(Distinct::Distinct) { "SELECT DISTINCT" } else { "SELECT" }
}

/// The groups of a select, of each of some values; it may have none.
pub(super) fn groups(select: &Select, values: &[String]) -> String {
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return String::new() };
    if keys.is_empty() {
        return String::new();
    }
    let own = keys.iter().map(ToString::to_string).filter(|key| !values.contains(key));
    let keys: Vec<String> = values.iter().cloned().chain(own).collect();
    let having = select.having.as_ref().map_or_else(String::new, |is| format!(" HAVING {is}"));
    format!(" GROUP BY {}{having}", keys.join(", "))
}
