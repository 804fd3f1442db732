//! `VALUES` with subqueries: the planner takes constants alone there, so that rows with subqueries are selects without
//! tables, put together with the others. They are numbered, since a list of rows comes in the order it is written in.
//!
//! And rows of constants that are written as selects, `SELECT 1 UNION ALL SELECT 2`: as `VALUES` they are one table in that
//! order, where the planner would make a part of each, takes the parts for sorted, and refuses some joins of them.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, SetOperator, SetQuantifier,
    UnaryOperator, Value, Values, Visitor,
};
use quiver_types::{Error, Result};

use super::expressions::expr;
use super::{empty_queries, naming};
use crate::statement_walk::walk;

/// The column that holds the number of a row.
const NUMBER: &str = "of row";

/// Rewrites the `VALUES` of a query for the planner.
pub(super) fn translate(query: &mut Query) -> Result<()> {
    let is_whole = matches!(&*query.body, SetExpr::Values(_));
    let mut is_ordered = false;
    let mut open = vec![&mut *query.body];
    while let Some(body) = open.pop() {
        if let Some(sql) = of_constants(body) {
            *body = body_of(&sql)?;
            continue;
        }
        match body {
            SetExpr::SetOperation { left, right, .. } => open.extend([&mut **left, &mut **right]),
            SetExpr::Values(values) => {
                let Some(sql) = united(values) else { continue };
                *body = body_of(&sql)?;
                is_ordered = is_whole;
            }
            _ => {}
        }
    }
    if is_ordered && query.order_by.is_none() {
        let order = OrderByExpr::from(Ident::with_quote('"', NUMBER));
        query.order_by = Some(OrderBy { kind: OrderByKind::Expressions(vec![order]), interpolate: None });
    }
    Ok(())
}

fn body_of(sql: &str) -> Result<SetExpr> {
    match expr(sql)? {
        Expr::Subquery(rows) => Ok(*rows.body),
        _ => Err(Error::internal("no subquery of ours")),
    }
}

/// Rows of constants as a select from `VALUES`; `None` if there are other rows, or columns of mixed types, which the
/// planner reports.
fn of_constants(body: &SetExpr) -> Option<String> {
    let (mut rows, mut open) = (Vec::new(), vec![body]);
    while let Some(body) = open.pop() {
        match body {
            SetExpr::SetOperation { op: SetOperator::Union, set_quantifier: SetQuantifier::All, left, right } => {
                open.extend([&**left, &**right]);
            }
            SetExpr::Select(select) if empty_queries::is_single_row(select) => rows.push(items_of(select)?),
            _ => return None,
        }
    }
    rows.reverse();
    let first = rows.first()?;
    let width = first.len();
    if rows.len() < 2 || rows.iter().any(|row| row.len() != width) {
        return None;
    }
    for column in 0..width {
        let mut types = Vec::with_capacity(rows.len());
        for row in &rows {
            types.push(constant(row.get(column)?.0)?);
        }
        types.retain(|kind| !kind.is_empty());
        types.dedup();
        if types.len() > 1 {
            return None;
        }
    }
    let columns: Vec<String> = (1..=width).map(|at| format!("\"column{at}\"")).collect();
    let named = columns.iter().zip(first).map(|(column, (_, name))| format!("{column} AS {name}"));
    let written = rows.iter().map(|row| {
        let items: Vec<String> = row.iter().map(|(value, _)| value.to_string()).collect();
        format!("({})", items.join(", "))
    });
    Some(format!(
        "(SELECT {} FROM (VALUES {}) AS \"values\" ({}))",
        named.collect::<Vec<_>>().join(", "),
        written.collect::<Vec<_>>().join(", "),
        columns.join(", ")
    ))
}

/// Outputs with their names.
fn items_of(select: &Select) -> Option<Vec<(&Expr, Ident)>> {
    fn named(item: &SelectItem) -> Option<(&Expr, Ident)> {
        match item {
            SelectItem::UnnamedExpr(value) => Some((value, naming::name(value))),
            SelectItem::ExprWithAlias { expr: value, alias } => Some((value, alias.clone())),
            _ => None,
        }
    }
    select.projection.iter().map(named).collect()
}

/// The type of a constant (empty for NULL); `None` if it is no constant.
fn constant(value: &Expr) -> Option<String> {
    match value {
        Expr::Nested(inner) => constant(inner),
        Expr::Value(value) => match &value.value {
            Value::Null => Some(String::new()),
            Value::Placeholder(_) => None,
            _ => Some("literal".to_owned()),
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } if matches!(&**expr, Expr::Value(_)) => constant(expr),
        Expr::TypedString(typed) => Some(typed.data_type.to_string()),
        Expr::Cast { expr, data_type, .. } => constant(expr).map(|_| data_type.to_string()),
        _ => None,
    }
}

/// Rows with and without subqueries as one select; `None` if no row has one, or their lengths differ, which the
/// planner reports.
fn united(values: &Values) -> Option<String> {
    let width = values.rows.first()?.len();
    if values.rows.iter().any(|row| row.len() != width) || walk(values, &mut Subqueries).is_continue() {
        return None;
    }
    let columns: Vec<String> = (1..=width).map(|at| format!("\"column{at}\"")).collect();
    let columns = columns.join(", ");
    // Consecutive rows without subqueries stay together, so a thousand of them do not become a thousand selects.
    let mut parts: Vec<String> = Vec::new();
    let mut plain: Vec<String> = Vec::new();
    for (at, row) in values.rows.iter().enumerate() {
        if walk(&row.content, &mut Subqueries).is_continue() {
            let items: Vec<String> = row.iter().map(Expr::to_string).collect();
            plain.push(format!("({}, {at})", items.join(", ")));
            continue;
        }
        if !plain.is_empty() {
            parts.push(format!("VALUES {}", plain.join(", ")));
            plain.clear();
        }
        let items = row.iter().zip(1..).map(|(item, at)| format!("{item} AS \"column{at}\""));
        parts.push(format!("SELECT {}, {at} AS \"{NUMBER}\"", items.collect::<Vec<_>>().join(", ")));
    }
    if !plain.is_empty() {
        parts.push(format!("VALUES {}", plain.join(", ")));
    }
    let rows = parts.join(" UNION ALL ");
    Some(format!("(SELECT {columns} FROM ({rows}) AS \"values\" ({columns}, \"{NUMBER}\"))"))
}

/// Stops at a subquery.
struct Subqueries;

impl Visitor for Subqueries {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}
