//! Clauses of queries that the planner takes in another form, and those that it would read as something else.

use datafusion::sql::sqlparser::ast::{LimitClause, Query, SetExpr, SetOperator, SetQuantifier, TableFactor};
use quiver_types::{Error, ErrorKind, Result};

use super::number;

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
