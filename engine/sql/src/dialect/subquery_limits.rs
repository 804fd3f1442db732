//! `LIMIT (SELECT …)` and `OFFSET (SELECT …)`: the planner takes only constant limits, so the rows are numbered and
//! filtered by number, unless the subquery is a constant itself.

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, LimitClause, ObjectName, Query, SelectItem, SetExpr, TableFactor, UnaryOperator,
    Value,
};
use quiver_types::{Error, Result};

use super::expressions::expr;
use super::{empty_queries, equality_lookups};
use crate::statement_walk::has_expression;

/// The column that holds the number of a row.
const ROW: &str = "number of";

/// Rewrites a query with such bounds as one over its numbered rows.
pub(super) fn translate(query: &mut Query) -> Result<()> {
    if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
        for bound in limit.iter_mut().chain(offset.iter_mut().map(|offset| &mut offset.value)) {
            if let Some(number) = constant(bound) {
                *bound = number;
            }
        }
    }
    let bounds = query.limit_clause.take_if(|clause| match clause {
        LimitClause::LimitOffset { limit, offset, limit_by } => {
            let asks = limit.iter().chain(offset.as_ref().map(|offset| &offset.value)).any(asks);
            asks && limit_by.is_empty()
        }
        LimitClause::OffsetCommaLimit { .. } => false,
    });
    let Some(LimitClause::LimitOffset { limit, offset, .. }) = bounds else { return Ok(()) };
    let first = match offset {
        Some(offset) => checked(&offset.value, "OFFSET")?,
        None => "CAST(0 AS BIGINT)".to_owned(),
    };
    // A bound that is NULL leaves no rows out.
    let mut kept = vec![format!("(\"{ROW}\" > {first}) IS NOT FALSE")];
    if let Some(limit) = limit {
        let last = format!("coalesce({first}, 0) + {}", checked(&limit, "LIMIT")?);
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

/// The whole number that a bound such as `(SELECT -1)` consists of; `None` if it is something else.
fn constant(bound: &Expr) -> Option<Expr> {
    let Expr::Subquery(query) = bound else { return None };
    let Query { with: None, body, order_by: None, limit_clause: None, fetch: None, .. } = &**query else { return None };
    let SetExpr::Select(select) = &**body else { return None };
    let is_row = select.from.is_empty()
        && select.distinct.is_none()
        && select.selection.is_none()
        && select.having.is_none()
        && empty_queries::is_ungrouped(select);
    let [SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }] = select.projection.as_slice()
    else {
        return None;
    };
    let digits = match value {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => &**expr,
        other => other,
    };
    let is_whole = matches!(digits, Expr::Value(digits)
        if matches!(&digits.value, Value::Number(digits, _) if digits.parse::<i64>().is_ok()));
    (is_row && is_whole).then(|| value.clone())
}

/// SQL of a bound that must not be negative. It is a subquery, which runs before the rows are read: a negative bound is
/// refused even if there are none. One that reads the row at hand can only be evaluated beside the rows.
fn checked(bound: &Expr, word: &str) -> Result<String> {
    let bound = format!("row_bound(CAST(({bound}) AS BIGINT), '{word}')");
    let sql = format!("(SELECT {bound} FROM (VALUES (1)) AS \"bound\")");
    let Expr::Subquery(query) = expr(&sql)? else { return Err(Error::internal("no subquery of ours")) };
    Ok(if equality_lookups::reads_row(&query) { bound } else { sql })
}

/// Whether a bound is or contains a subquery.
fn asks(bound: &Expr) -> bool {
    has_expression(bound, |part| matches!(part, Expr::Subquery(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_run_before_the_rows_unless_they_read_one() {
        let of = |bound: &str| checked(&expr(bound).unwrap(), "LIMIT").unwrap();
        assert_eq!(
            of("(select n from c)"),
            "(SELECT row_bound(CAST(((SELECT n FROM c)) AS BIGINT), 'LIMIT') FROM (VALUES (1)) AS \"bound\")"
        );
        assert_eq!(
            of("(select n from c where c.k = t.k)"),
            "row_bound(CAST(((SELECT n FROM c WHERE c.k = t.k)) AS BIGINT), 'LIMIT')"
        );
    }

    #[test]
    fn constants_are_no_subqueries() {
        let of = |bound: &str| constant(&expr(bound).unwrap()).map(|number| number.to_string());
        assert_eq!(of("(select -3)").as_deref(), Some("-3"));
        assert_eq!(of("(select 2 as n)").as_deref(), Some("2"));
        for other in
            ["(select 1.5)", "(select null)", "(select 1 where false)", "(select 1 limit 0)", "(select n from t)"]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
