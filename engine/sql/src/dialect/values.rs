//! `VALUES` with subqueries: the planner takes constants alone there, so that rows with subqueries are selects without
//! tables, put together with the others. They are numbered, since a list of rows comes in the order it is written in.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderBy, OrderByExpr, OrderByKind, Query, SetExpr, Values, Visitor,
};
use quiver_types::{Error, Result};

use super::expr;
use crate::walk::walk;

/// The column with the numbers of rows.
const NUMBER: &str = "of row";

/// Puts the `VALUES` of a query as the planner takes them.
pub(super) fn translate(query: &mut Query) -> Result<()> {
    let is_whole = matches!(&*query.body, SetExpr::Values(_));
    let mut is_ordered = false;
    let mut open = vec![&mut *query.body];
    while let Some(body) = open.pop() {
        match body {
            SetExpr::SetOperation { left, right, .. } => open.extend([&mut **left, &mut **right]),
            SetExpr::Values(values) => {
                let Some(sql) = united(values) else { continue };
                let Expr::Subquery(rows) = expr(&sql)? else { return Err(Error::internal("no subquery of ours")) };
                *body = *rows.body;
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

/// Rows with and without subqueries as one select; none: none has any, or they differ in length, of which the planner says
/// so.
fn united(values: &Values) -> Option<String> {
    let width = values.rows.first()?.len();
    if values.rows.iter().any(|row| row.len() != width) || walk(values, &mut Subqueries).is_continue() {
        return None;
    }
    let columns: Vec<String> = (1..=width).map(|at| format!("\"column{at}\"")).collect();
    let columns = columns.join(", ");
    // Rows without subqueries that follow each other stay together: a thousand of them are no thousand selects.
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

/// Breaks at a subquery.
struct Subqueries;

impl Visitor for Subqueries {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}
