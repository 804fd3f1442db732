//! Clauses of queries that the planner supports in another form only, or would misread.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, GroupByExpr, Ident, LimitClause, Query, Select, SelectItem, SetExpr,
    SetOperator, SetQuantifier, TableFactor, Value,
};
use quiver_types::{Error, Result};

use super::expressions::{expr, number, take};
use super::operators::{binary, nested};
use super::{empty_queries, naming, types};
use crate::error::unsupported;
use crate::statement_walk::look_outside_subqueries;

/// Rewrites `FETCH FIRST n ROWS ONLY` as `LIMIT n`, and `EXCEPT ALL` and `INTERSECT ALL` by row numbers.
pub(super) fn translate(query: &mut Query) -> Result<()> {
    counted(&mut query.body)?;
    if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
        let bounds = limit.iter_mut().chain(offset.as_mut().map(|offset| &mut offset.value));
        for bound in bounds {
            whole(bound)?;
        }
    }
    let Some(fetch) = query.fetch.take() else { return Ok(()) };
    if fetch.percent {
        return Err(unsupported("`FETCH` with `PERCENT` is not supported: write `FETCH FIRST n ROWS ONLY`"));
    }
    let mut rows = fetch.quantity.unwrap_or_else(|| number(1));
    whole(&mut rows)?;
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = Some(rows),
        Some(_) => return Err(Error::invalid("`LIMIT` and `FETCH` say the same: write one of them")),
        none => *none = Some(LimitClause::LimitOffset { limit: Some(rows), offset: None, limit_by: Vec::new() }),
    }
    Ok(())
}

/// Rewrites a bound that is a text, or has a fraction, as an integer.
///
/// # Errors
///
/// Invalid: the number is out of range.
pub(super) fn whole(bound: &mut Expr) -> Result<()> {
    while let Expr::Nested(inner) = bound {
        *bound = take(inner);
    }
    let Expr::Value(value) = &mut *bound else {
        if types::is_fraction(bound) {
            let (expr, data_type) = (Box::new(take(bound)), DataType::BigInt(None));
            *bound = Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None };
        }
        return Ok(());
    };
    let written = match &value.value {
        // Any other text is refused by the planner.
        Value::SingleQuotedString(text) => text.trim().parse::<i128>().ok().map(|rows| rows.to_string()),
        Value::Number(text, _) if text.contains(['.', 'e', 'E']) => {
            text.parse::<f64>().ok().map(|rows| rows.round().to_string())
        }
        _ => None,
    };
    if let Some(rows) = written {
        if rows.parse::<i64>().is_err() {
            return Err(Error::invalid(format!("a number of rows, {rows}, is out of range for type bigint")));
        }
        value.value = Value::Number(rows, false);
    }
    Ok(())
}

/// Rewrites `EXCEPT ALL` and `INTERSECT ALL` over rows that are numbered among equal rows: the planner makes joins of
/// them, and a join does not count duplicates.
fn counted(body: &mut SetExpr) -> Result<()> {
    let mut open = vec![body];
    while let Some(body) = open.pop() {
        match body {
            SetExpr::SetOperation {
                left,
                op: op @ (SetOperator::Except | SetOperator::Intersect),
                set_quantifier: SetQuantifier::All,
                right,
            } => {
                let names = names_of(left).ok_or_else(|| {
                    unsupported(format!("`{op} ALL` takes queries that list their outputs: write them instead of `*`"))
                })?;
                let columns: Vec<String> = (1..=names.len()).map(|at| format!("\"of set {at}\"")).collect();
                let named = columns.iter().zip(&names).map(|(column, name)| format!("{column} AS {name}"));
                let named = named.collect::<Vec<_>>().join(", ");
                let columns = columns.join(", ");
                let (left, right) = (numbered(left, &columns), numbered(right, &columns));
                let sql = format!("(SELECT {named} FROM ({left} {op} {right}) AS sides)");
                let Expr::Subquery(rows) = expr(&sql)? else { return Err(Error::internal("no subquery of ours")) };
                *body = *rows.body;
            }
            SetExpr::SetOperation { left, right, .. } => open.extend([&mut **left, &mut **right]),
            _ => {}
        }
    }
    Ok(())
}

/// The rows of a set, each with its number among equal rows.
fn numbered(set: &SetExpr, columns: &str) -> String {
    format!(
        "SELECT {columns}, row_number() OVER (PARTITION BY {columns}) AS \"of set\" FROM ({set}) AS side ({columns})"
    )
}

/// The names of the outputs of a query body; `None` if they are not listed (`*`).
pub(super) fn names_of(set: &SetExpr) -> Option<Vec<Ident>> {
    let mut set = set;
    loop {
        match set {
            SetExpr::Select(select) => {
                let name = |item: &SelectItem| match item {
                    SelectItem::UnnamedExpr(value) => Some(naming::name(value)),
                    SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
                    _ => None,
                };
                return select.projection.iter().map(name).collect();
            }
            SetExpr::Query(inner) => set = &*inner.body,
            SetExpr::SetOperation { left, .. } => set = &**left,
            SetExpr::Values(values) => {
                let width = values.rows.first().map_or(0, |row| row.len());
                return Some((1..=width).map(|at| Ident::new(format!("column{at}"))).collect());
            }
            _ => return None,
        }
    }
}

/// Removes `()` from a `GROUP BY`. If it is the only key, or there is only a `HAVING`, all rows are one group, even if no
/// output aggregates.
pub(super) fn ungroup(select: &mut Select, is_aggregate: &dyn Fn(&str) -> bool) {
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else { return };
    let count = keys.len();
    keys.retain(|key| !matches!(key, Expr::Tuple(items) if items.is_empty()));
    let (is_ungrouped, is_one_group) = (keys.is_empty(), keys.is_empty() && keys.len() < count);
    if !is_ungrouped || empty_queries::aggregates(select, is_aggregate) {
        return;
    }
    if let Some(kept) = &mut select.having {
        // It makes one group, too, whatever it says.
        if !empty_queries::has_aggregate(kept, is_aggregate)
            && !names_columns(kept)
            && let Ok(any) = expr("count(*) >= 0")
        {
            *kept = binary(nested(take(kept)), BinaryOperator::And, any);
        }
    } else if is_one_group {
        select.having = expr("count(*) >= 0").ok();
    }
}

/// Whether a condition has names of columns, or subqueries.
fn names_columns(condition: &Expr) -> bool {
    let mut found = false;
    look_outside_subqueries(condition, |part| {
        found |= matches!(
            part,
            Expr::Identifier(_)
                | Expr::CompoundIdentifier(_)
                | Expr::Subquery(_)
                | Expr::InSubquery { .. }
                | Expr::Exists { .. }
        );
    });
    found
}

/// Refuses clauses of tables that the planner would ignore silently.
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
