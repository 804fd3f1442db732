//! `LIMIT (SELECT …)` and `OFFSET (SELECT …)`: the planner takes only constant limits, so the rows are numbered and
//! filtered by number.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, LimitClause, ObjectName, Query, SelectItem, SetExpr, TableFactor, visit_expressions,
};
use quiver_types::{Error, Result};

use super::expressions::expr;

/// The column that holds the number of a row.
const ROW: &str = "number of";

/// Rewrites a query with such bounds as one over its numbered rows.
pub(super) fn translate(query: &mut Query) -> Result<()> {
    let bounds = query.limit_clause.take_if(|clause| match clause {
        LimitClause::LimitOffset { limit, offset, limit_by } => {
            let asks = limit.iter().chain(offset.as_ref().map(|offset| &offset.value)).any(asks);
            asks && limit_by.is_empty()
        }
        LimitClause::OffsetCommaLimit { .. } => false,
    });
    let Some(LimitClause::LimitOffset { limit, offset, .. }) = bounds else { return Ok(()) };
    let first = offset.map_or_else(|| "CAST(0 AS BIGINT)".to_owned(), |offset| checked(&offset.value, "OFFSET"));
    // A bound that is NULL leaves no rows out.
    let mut kept = vec![format!("(\"{ROW}\" > {first}) IS NOT FALSE")];
    if let Some(limit) = limit {
        let last = format!("coalesce({first}, 0) + {}", checked(&limit, "LIMIT"));
        kept.push(format!("(\"{ROW}\" <= {last}) IS NOT FALSE"));
    }
    let around = expr(&format!(
        "(SELECT * FROM (SELECT *, row_number() OVER () AS \"{ROW}\" FROM (SELECT 1) AS \"bounded\") AS \"numbered\" \
         WHERE {} ORDER BY \"{ROW}\")",
        kept.join(" AND ")
    ))?;
    let Expr::Subquery(mut around) = around else { return Err(Error::internal("no subquery of ours")) };
    // The bounds may read common tables of the query.
    around.with = query.with.take();
    let SetExpr::Select(select) = &mut *around.body else { return Err(Error::internal("no select of ours")) };
    if let Some(SelectItem::Wildcard(options)) = select.projection.first_mut() {
        let name = ObjectName::from(vec![Ident::with_quote('"', ROW)]);
        options.opt_exclude = Some(ExcludeSelectItem::Multiple(vec![name]));
    }
    let numbered = select.from.first_mut().map(|from| &mut from.relation);
    if let Some(TableFactor::Derived { subquery: numbered, .. }) = numbered
        && let SetExpr::Select(select) = &mut *numbered.body
        && let Some(TableFactor::Derived { subquery, .. }) = select.from.first_mut().map(|from| &mut from.relation)
    {
        std::mem::swap(&mut **subquery, query);
    }
    *query = *around;
    Ok(())
}

/// SQL of a bound that must not be negative.
fn checked(bound: &Expr, word: &str) -> String {
    format!("row_bound(CAST(({bound}) AS BIGINT), '{word}')")
}

/// Whether a bound is or contains a subquery.
fn asks(bound: &Expr) -> bool {
    let is_query =
        |e: &Expr| if matches!(e, Expr::Subquery(_)) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    visit_expressions(bound, is_query).is_break()
}
