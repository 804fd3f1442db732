//! Clauses of queries that the planner takes in another form, and those that it would read as something else.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, LimitClause, Query, Select, SetExpr, SetOperator, SetQuantifier, TableFactor,
};
use quiver_types::{Error, ErrorKind, Result};

use super::{empty, expr, number, outputs};

fn unsupported(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, text)
}

/// Writes `FETCH FIRST n ROWS ONLY` as `LIMIT n`, and refuses sets that count.
pub(super) fn translate(query: &mut Query) -> Result<()> {
    counts(&query.body)?;
    let Some(fetch) = query.fetch.take() else { return Ok(()) };
    if fetch.with_ties || fetch.percent {
        return Err(unsupported("`FETCH` with `TIES` or `PERCENT` is not supported: write `FETCH FIRST n ROWS ONLY`"));
    }
    let rows = fetch.quantity.unwrap_or_else(|| number(1));
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = Some(rows),
        Some(_) => return Err(Error::invalid("`LIMIT` and `FETCH` say the same: write one of them")),
        none => *none = Some(LimitClause::LimitOffset { limit: Some(rows), offset: None, limit_by: Vec::new() }),
    }
    Ok(())
}

/// Refuses `EXCEPT ALL` and `INTERSECT ALL`: the planner joins, and a join does not tell how often a row is there.
fn counts(body: &SetExpr) -> Result<()> {
    let mut open = vec![body];
    while let Some(body) = open.pop() {
        let SetExpr::SetOperation { left, op, set_quantifier, right } = body else { continue };
        if *set_quantifier == SetQuantifier::All && matches!(op, SetOperator::Except | SetOperator::Intersect) {
            return Err(unsupported(format!("`{op} ALL` is not supported: number equal rows by `row_number()`")));
        }
        open.extend([&**left, &**right]);
    }
    Ok(())
}

/// Leaves `()` out of a `GROUP BY`. Where nothing else is in it, all rows are one group, whatever the outputs are.
pub(super) fn ungroup(select: &mut Select, is_aggregate: &dyn Fn(&str) -> bool) {
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else { return };
    let count = keys.len();
    keys.retain(|key| !matches!(key, Expr::Tuple(items) if items.is_empty()));
    let is_one_group = keys.is_empty() && keys.len() < count;
    if is_one_group && select.having.is_none() && !empty::aggregates(select, is_aggregate) {
        select.having = expr("count(*) >= 0").ok();
    }
}

/// Puts `(a, b) IN (SELECT …)` as an `EXISTS` where it is a condition of the `WHERE`: there rows of which it is not known
/// are left out as those of which it is false.
pub(super) fn rows_in(select: &mut Select) -> Result<()> {
    let mut open: Vec<&mut Expr> = select.selection.iter_mut().collect();
    while let Some(place) = open.pop() {
        match place {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => open.extend([&mut **left, &mut **right]),
            Expr::Nested(inner) => open.push(&mut **inner),
            Expr::InSubquery { expr: row, subquery, negated: false } => {
                let Expr::Tuple(items) = &**row else { continue };
                outputs::of_query(subquery);
                let names: Vec<String> = (1..=items.len()).map(|at| format!("\"of row {at}\"")).collect();
                let equal = items.iter().zip(&names).map(|(item, name)| format!("\"rows\".{name} = ({item})"));
                let sql = format!(
                    "EXISTS (SELECT 1 FROM ({subquery}) AS \"rows\" ({}) WHERE {})",
                    names.join(", "),
                    equal.collect::<Vec<_>>().join(" AND ")
                );
                *place = expr(&sql)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses rows that are looked for in a subquery elsewhere.
pub(super) fn lone_rows() -> Result<()> {
    Err(unsupported(
        "`(a, b) IN (SELECT …)` stands in `WHERE`, joined to other conditions by `AND`, without `NOT`: elsewhere write \
         `EXISTS` or `NOT EXISTS`",
    ))
}

/// Refuses what the planner leaves out of a `FROM` without a word.
pub(super) fn plain(factor: &TableFactor) -> Result<()> {
    let (is_numbered, is_sampled) = match factor {
        TableFactor::Table { with_ordinality, sample, .. } => (*with_ordinality, sample.is_some()),
        TableFactor::Derived { sample, .. } => (false, sample.is_some()),
        TableFactor::Function { with_ordinality, .. } | TableFactor::UNNEST { with_ordinality, .. } => {
            (*with_ordinality, false)
        }
        _ => (false, false),
    };
    match (is_numbered, is_sampled) {
        (true, _) => Err(unsupported("`WITH ORDINALITY` is not supported: number rows by `row_number()`")),
        (_, true) => Err(unsupported("`TABLESAMPLE` is not supported: `WHERE random() < 0.1` takes a tenth of rows")),
        _ => Ok(()),
    }
}
