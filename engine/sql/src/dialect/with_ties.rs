//! `FETCH FIRST n ROWS WITH TIES`: the first rows, and those that are equal to the last of them in the order. The
//! planner has only limits, so the rows are ranked and filtered by rank.

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, LimitClause, ObjectName, OrderByExpr, OrderByKind, Query, Select, SelectItem,
    SetExpr, TableFactor, Value,
};
use quiver_types::{Error, Result};

use super::expressions::{copied, expr, number};
use super::{naming, queries};
use crate::error::unsupported;
use crate::names::normal;

/// Columns of the rank and of the number of a row.
const RANK: &str = "rank of";
const ROW: &str = "row of";

/// Rewrites a query with ties as one over its ranked rows.
///
/// # Errors
///
/// Invalid: the query has no order. Unsupported: it is no single select, or a `SELECT DISTINCT`.
pub(super) fn translate(query: &mut Query) -> Result<()> {
    let Some(fetch) = query.fetch.take_if(|fetch| fetch.with_ties && !fetch.percent) else { return Ok(()) };
    let Some(order) = query.order_by.take() else {
        return Err(Error::invalid("`WITH TIES` needs an `ORDER BY`, which says what ties are"));
    };
    let SetExpr::Select(select) = &mut *query.body else { return Err(refused()) };
    let OrderByKind::Expressions(keys) = order.kind else { return Err(refused()) };
    if select.distinct.is_some() {
        return Err(refused());
    }
    let keys = keys.into_iter().map(|key| by_value(key, select)).collect::<Result<Vec<_>>>()?;
    let keys = keys.iter().map(OrderByExpr::to_string).collect::<Vec<_>>().join(", ");
    for (function, name) in [("rank", RANK), ("row_number", ROW)] {
        let expr = expr(&format!("{function}() OVER (ORDER BY {keys})"))?;
        select.projection.push(SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) });
    }
    let mut first = match query.limit_clause.take() {
        None => number(0),
        Some(LimitClause::LimitOffset { limit: None, offset, .. }) => offset.map_or_else(|| number(0), |o| o.value),
        Some(_) => return Err(Error::invalid("`LIMIT` and `FETCH` say the same: write one of them")),
    };
    let mut count = fetch.quantity.unwrap_or_else(|| number(1));
    queries::whole(&mut first)?;
    queries::whole(&mut count)?;
    copied(&first, 2)?;
    copied(&count, 2)?;
    let around = expr(&format!(
        "(SELECT * FROM (SELECT 1) AS \"tied\" WHERE \"{RANK}\" <= ({first}) + ({count}) AND \"{ROW}\" > ({first}) \
         AND ({count}) > 0 ORDER BY \"{ROW}\")"
    ))?;
    let Expr::Subquery(mut around) = around else { return Err(Error::internal("no subquery of ours")) };
    if let SetExpr::Select(select) = &mut *around.body {
        if let Some(SelectItem::Wildcard(options)) = select.projection.first_mut() {
            let names = [RANK, ROW].map(|name| ObjectName::from(vec![Ident::with_quote('"', name)]));
            options.opt_exclude = Some(ExcludeSelectItem::Multiple(names.to_vec()));
        }
        if let Some(TableFactor::Derived { subquery, .. }) = select.from.first_mut().map(|from| &mut from.relation) {
            std::mem::swap(&mut **subquery, query);
        }
    }
    *query = *around;
    Ok(())
}

fn refused() -> Error {
    unsupported("`WITH TIES` takes one select without `DISTINCT`: select from a subquery")
}

/// A sort key with the name or position of an output replaced by the output's expression.
fn by_value(mut key: OrderByExpr, select: &Select) -> Result<OrderByExpr> {
    let value = match &key.expr {
        Expr::Identifier(name) => {
            let name = normal(name);
            select.projection.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias } if normal(alias) == name => Some(expr),
                SelectItem::UnnamedExpr(expr) if normal(&naming::name(expr)) == name => Some(expr),
                _ => None,
            })
        }
        Expr::Value(value) => {
            let Value::Number(place, _) = &value.value else { return Ok(key) };
            let place = place.parse::<usize>().ok().and_then(|place| place.checked_sub(1));
            let values = select.projection.iter().map(|item| match item {
                SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr) => Some(expr),
                _ => None,
            });
            // Behind a `*` the position of an output is not known.
            let values = values.collect::<Option<Vec<&Expr>>>();
            let value = values.and_then(|values| values.get(place?).copied());
            Some(value.ok_or_else(|| unsupported("`WITH TIES` takes an order by names: write that of the output"))?)
        }
        _ => None,
    };
    if let Some(value) = value.cloned() {
        key.expr = Expr::Nested(Box::new(value));
    }
    Ok(key)
}
