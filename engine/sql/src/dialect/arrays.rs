//! `ARRAY(SELECT …)`, which makes a list of the rows of a subquery in their order, slices of lists, and lists that are texts
//! beside `||`.

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, DataType as SqlType, Distinct, Expr, Ident, OrderBy, OrderByExpr, OrderByKind, Query,
    SelectItem, SetExpr, Subscript, TableFactor, UnaryOperator, Value,
};
use quiver_query::functions::is_document;
use quiver_types::{Error, Result};

use super::expressions::{arguments, bare, call, expr, is_null, items_of_text, number, take};
use super::{empty_queries, equality_lookups, naming, nested_lists};
use crate::catalog::Catalog;
use crate::names::normal;
use crate::statement_walk::has_expression;

/// Turns a query into one that gives the list of its rows, and returns whether the aggregate itself puts them in their
/// order, if they have one. A query that gives one row for each that it reads is made an aggregate itself, since the
/// planner can turn such correlated queries into joins; any other is wrapped in an aggregating query.
pub(super) fn listed(query: &mut Query, is_aggregate: &dyn Fn(&str) -> bool) -> Result<bool> {
    let is_whole = query.limit_clause.is_none() && query.fetch.is_none();
    if let SetExpr::Select(select) = &mut *query.body
        && is_whole
        && select.distinct.is_none()
        && select.having.is_none()
        && empty_queries::is_ungrouped(select)
        && !empty_queries::aggregates(select, is_aggregate)
        && let [SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }] =
            select.projection.as_slice()
        && !is_of_several(value)
    {
        let alias = match select.projection.as_slice() {
            [SelectItem::ExprWithAlias { alias, .. }] => Some(normal(alias)),
            _ => None,
        };
        if let Some(keys) = keys_of(query.order_by.as_ref(), value, alias.as_deref()) {
            let list = expr(&format!("array_agg({value}{keys})"))?;
            select.projection = vec![SelectItem::UnnamedExpr(list)];
            query.order_by = None;
            return Ok(true);
        }
    }
    // Correlated queries become joins, which keep no order.
    let order = if equality_lookups::reads_row(query) { order_of_items(query) } else { None };
    let is_ordered = query.order_by.is_none() || order.is_some();
    let Order { keys, columns } = order.unwrap_or_default();
    let list = expr(&format!("(SELECT array_agg(items.item{keys}) FROM (SELECT 1) AS items (item{columns}))"))?;
    let Expr::Subquery(mut list) = list else { return Err(Error::internal("no subquery of ours")) };
    if let SetExpr::Select(select) = &mut *list.body
        && let Some(TableFactor::Derived { subquery, .. }) = select.from.first_mut().map(|from| &mut from.relation)
    {
        std::mem::swap(&mut **subquery, query);
    }
    *query = *list;
    Ok(is_ordered)
}

/// The order of the rows of a query, for an aggregate around it.
#[derive(Default)]
struct Order {
    /// The `ORDER BY` of the aggregate.
    keys: String,
    /// The names of the outputs that were added to the query to sort by.
    columns: String,
}

/// Adds the sort keys of a query to its outputs, unless they are its only output; `None` if it has none, or they cannot
/// be added.
fn order_of_items(query: &mut Query) -> Option<Order> {
    let Query { body, order_by: Some(order), .. } = query else { return None };
    let OrderByKind::Expressions(sorted) = &order.kind else { return None };
    let (mut keys, mut added) = (Vec::new(), Vec::new());
    for key in sorted {
        let mut key = key.clone();
        let is_item = match &**body {
            SetExpr::Select(select) => is_output(&key.expr, &select.projection),
            // The rows of several selects are sorted by their outputs, of which there is one.
            _ => true,
        };
        key.expr = if is_item {
            expr("items.item").ok()?
        } else {
            let name = Ident::with_quote('"', format!("order {}", added.len() + 1));
            added.push(SelectItem::ExprWithAlias { expr: key.expr, alias: name.clone() });
            Expr::CompoundIdentifier(vec![Ident::new("items"), name])
        };
        keys.push(key.to_string());
    }
    let names = added.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(format!(", {alias}")),
        _ => None,
    });
    let columns = names.collect();
    if let SetExpr::Select(select) = &mut **body
        && !added.is_empty()
    {
        if matches!(select.distinct, Some(Distinct::Distinct)) || select.projection.len() != 1 {
            return None;
        }
        select.projection.extend(added);
    }
    Some(Order { keys: format!(" ORDER BY {}", keys.join(", ")), columns })
}

/// Whether a sort key is the only output: by its place, by its name, or as it is written.
fn is_output(key: &Expr, outputs: &[SelectItem]) -> bool {
    let (value, name) = match outputs {
        [SelectItem::UnnamedExpr(value)] => (value, naming::name(value)),
        [SelectItem::ExprWithAlias { expr: value, alias }] => (value, alias.clone()),
        _ => return false,
    };
    match key {
        Expr::Identifier(key) => normal(key) == normal(&name),
        Expr::Value(place) => matches!(&place.value, Value::Number(place, _) if place == "1"),
        key => key == value,
    }
}

/// The upper bound of a slice that has none: the largest index.
const LAST: i64 = 2_147_483_647;

/// Writes out the bounds that slices omit: `list[:2]`, `list[2:]`.
pub(super) fn bounded(chain: &mut [AccessExpr]) {
    for access in chain {
        if let AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, .. }) = access {
            at_least(lower_bound.get_or_insert_with(|| number(1)), 1);
            at_least(upper_bound.get_or_insert_with(|| number(LAST)), 0);
        }
    }
}

/// Whether subscripts one behind the other are ranges of several levels, where the planner would take the second one from what
/// the first one gives.
pub(super) fn are_of_levels(chain: &[AccessExpr]) -> bool {
    let is_slice = |access: &AccessExpr| matches!(access, AccessExpr::Subscript(Subscript::Slice { .. }));
    let is_subscript = |access: &AccessExpr| matches!(access, AccessExpr::Subscript(_));
    chain.windows(2).any(|pair| pair.iter().any(is_slice) && pair.iter().all(is_subscript))
}

/// A slice of lists of lists. Beside ranges, a place is the range that ends there.
pub(super) fn of_levels(list: Expr, subscripts: Vec<AccessExpr>) -> Expr {
    let mut args = vec![list];
    for subscript in subscripts {
        match subscript {
            AccessExpr::Subscript(Subscript::Slice { lower_bound: Some(low), upper_bound: Some(high), .. }) => {
                args.extend([low, high]);
            }
            AccessExpr::Subscript(Subscript::Index { index }) => args.extend([number(1), index]),
            _ => {}
        }
    }
    call("level_slices", args)
}

/// Raises a bound to the first index at least: the planner counts lower ones from the end of the list, where
/// PostgreSQL finds no items.
fn at_least(bound: &mut Expr, least: i64) {
    let found = match &*bound {
        Expr::Value(_) => None,
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } if matches!(**expr, Expr::Value(_)) => Some(number(least)),
        // The bound would be written twice, and so would the slices within it.
        bound if holds_lists(bound) => None,
        bound => expr(&format!("CASE WHEN {bound} < {least} THEN {least} ELSE {bound} END")).ok(),
    };
    if let Some(found) = found {
        *bound = found;
    }
}

fn holds_lists(bound: &Expr) -> bool {
    has_expression(bound, |part| {
        matches!(
            part,
            Expr::CompoundFieldAccess { .. } | Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. }
        )
    })
}

/// Functions that return lists.
const LISTS: [&str; 14] = [
    "array_agg",
    "array_append",
    "array_cat",
    "array_prepend",
    "array_remove",
    "array_remove_all",
    "array_replace",
    "array_replace_all",
    "array_slice",
    "array_sort",
    "make_array",
    "or_empty",
    "regexp_split_to_array",
    "string_to_array",
];

/// Reads the text that stands beside a list of `||` and has no type as a list, as PostgreSQL does: the planner would take it
/// for an item.
///
/// # Errors
/// Invalid: it is none.
pub(super) fn concatenated(place: &mut Expr, catalog: &Catalog) -> Result<()> {
    let Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } = place else { return Ok(()) };
    let (list, other) = match (is_list(left, catalog), is_list(right, catalog)) {
        (true, false) => (left, right),
        (false, true) => (right, left),
        _ => return Ok(()),
    };
    if is_null(other) {
        // It is no list rather than no item.
        let list = take(list);
        *place = list;
        return Ok(());
    }
    let Some(written) = untyped_text(other) else { return Ok(()) };
    if let Some(lists) = nested_lists::of_text(written)? {
        **other = lists;
        return Ok(());
    }
    let Some(items) = items_of_text(written) else {
        return Err(Error::invalid(format!("malformed array literal: \"{}\"", written.escape_debug())));
    };
    if items.is_empty() {
        let list = take(list);
        *place = list;
        return Ok(());
    }
    let items = if begins_with_number(list) { items.into_iter().map(as_number).collect() } else { items };
    **other = call("make_array", items);
    Ok(())
}

/// The list of values that a text without a type is beside `@>` and its like; `None` if it is a document, or no list.
pub(super) fn of_untyped(value: &Expr) -> Option<Expr> {
    let written = untyped_text(value).filter(|written| !is_document(written))?;
    let items = match nested_lists::of_text(written).ok()? {
        Some(lists) => nested_lists::values(&lists)?,
        None => items_of_text(written)?,
    };
    (!items.is_empty()).then(|| call("make_array", items))
}

/// The text of a literal without a type.
fn untyped_text(value: &Expr) -> Option<&str> {
    match value {
        Expr::Nested(inner) => untyped_text(inner),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the first item of a list that is written out is a number.
fn begins_with_number(list: &Expr) -> bool {
    let first = match list {
        Expr::Nested(inner) => return begins_with_number(inner),
        Expr::Array(list) => list.elem.first().cloned(),
        Expr::Function(call) if bare(&call.name).is_some_and(|name| name == "make_array") => {
            arguments(&call.args).and_then(|args| args.into_iter().next())
        }
        _ => None,
    };
    first.is_some_and(|first| matches!(first, Expr::Value(value) if matches!(value.value, Value::Number(..))))
}

/// The number that a text is; the same expression if it is none.
fn as_number(item: Expr) -> Expr {
    match untyped_text(&item) {
        Some(written) if written.parse::<f64>().is_ok_and(f64::is_finite) => {
            Expr::Value(Value::Number(written.to_owned(), false).into())
        }
        _ => item,
    }
}

/// Whether the expression itself shows that it is a list. A column counts if it is a list in every table that has it.
pub(super) fn is_list(value: &Expr, catalog: &Catalog) -> bool {
    match value {
        Expr::Nested(inner) => is_list(inner, catalog),
        Expr::Array(_) => true,
        Expr::Cast { data_type, .. } => matches!(data_type, SqlType::Array(_)),
        Expr::Function(function) => match bare(&function.name).as_deref() {
            Some("coalesce") => {
                arguments(&function.args).is_some_and(|args| args.iter().any(|arg| is_list(arg, catalog)))
            }
            Some(name) => LISTS.contains(&name),
            None => false,
        },
        column => catalog.is_column_of(column, |kind| matches!(kind, DataType::List(_))),
    }
}

/// Whether a value is computed over several rows (an aggregate or window) or returns several: aggregates cannot take
/// it.
fn is_of_several(value: &Expr) -> bool {
    has_expression(value, |part| match part {
        Expr::Function(call) => call.over.is_some() || bare(&call.name).as_deref() == Some("unnest"),
        _ => false,
    })
}

/// The `ORDER BY` to write into the aggregate of the only output; `None` if the order cannot be put there.
fn keys_of(order: Option<&OrderBy>, value: &Expr, alias: Option<&str>) -> Option<String> {
    let Some(order) = order else { return Some(String::new()) };
    let OrderByKind::Expressions(keys) = &order.kind else { return None };
    let written = |key: &OrderByExpr| {
        let mut key = key.clone();
        match &key.expr {
            Expr::Identifier(name) if alias == Some(normal(name).as_str()) => key.expr = value.clone(),
            Expr::Value(at) => match &at.value {
                Value::Number(at, _) if at == "1" => key.expr = value.clone(),
                _ => return None,
            },
            _ => {}
        }
        key.with_fill.is_none().then(|| key.to_string())
    };
    let keys = keys.iter().map(written).collect::<Option<Vec<_>>>()?;
    Some(format!(" ORDER BY {}", keys.join(", ")))
}
