//! Join conditions with correlated subqueries, which the planner takes only in a `WHERE`. The condition of an inner
//! join moves there. The condition of a left join becomes a filter of the table on its right.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, JoinConstraint, JoinOperator, Select, TableAlias, TableFactor, TableWithJoins,
    visit_expressions,
};
use quiver_types::Result;

use super::super::columns::{Known, called, constraint};
use super::super::expressions::{boolean, expr, take};
use super::super::operators::binary;
use super::super::{empty, lookups, tuples};
use super::keeps_left;

/// Moves such conditions to where the planner, or a look-up, takes them.
pub(super) fn translate(select: &mut Select, known: Known<'_>) -> Result<()> {
    let mut moved = Vec::new();
    for from in select.from.iter_mut().filter(|from| keeps_left(from)) {
        for at in 0..from.joins.len() {
            let condition = constraint(&from.joins[at].join_operator);
            if !matches!(condition, Some(JoinConstraint::On(condition)) if asks(condition)) {
                continue;
            }
            let before = TableWithJoins { relation: from.relation.clone(), joins: from.joins[..=at].to_vec() };
            let join = &mut from.joins[at];
            match &mut join.join_operator {
                JoinOperator::Join(JoinConstraint::On(condition))
                | JoinOperator::Inner(JoinConstraint::On(condition)) => {
                    let (asking, others): (Vec<Expr>, Vec<Expr>) =
                        parts_of(take(condition)).into_iter().partition(asks);
                    *condition = all(others);
                    moved.extend(asking);
                }
                JoinOperator::Left(JoinConstraint::On(condition))
                | JoinOperator::LeftOuter(JoinConstraint::On(condition)) => {
                    let mut own = condition.clone();
                    let is_named = tuples::with_tables(&mut own, std::slice::from_ref(&before), known)?;
                    if let Some(table) = within(&join.relation, &own, known).filter(|_| is_named) {
                        join.relation = table;
                        *condition = boolean(true);
                    }
                }
                _ => {}
            }
        }
    }
    if !moved.is_empty() {
        moved.extend(select.selection.take());
        select.selection = Some(all(moved));
    }
    Ok(())
}

/// Whether a condition contains a correlated subquery.
fn asks(condition: &Expr) -> bool {
    let look = |part: &Expr| match part {
        Expr::Subquery(query) | Expr::Exists { subquery: query, .. } | Expr::InSubquery { subquery: query, .. }
            if lookups::reads_row(query) =>
        {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    visit_expressions(condition, look).is_break()
}

/// Splits a condition at its `AND`s.
fn parts_of(condition: Expr) -> Vec<Expr> {
    let (mut parts, mut open) = (Vec::new(), vec![condition]);
    while let Some(part) = open.pop() {
        match part {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => open.extend([*right, *left]),
            Expr::Nested(inner) if matches!(*inner, Expr::BinaryOp { op: BinaryOperator::And, .. }) => {
                open.push(*inner);
            }
            other => parts.push(other),
        }
    }
    parts
}

/// Joins conditions by `AND`.
fn all(conditions: Vec<Expr>) -> Expr {
    let nested = conditions.into_iter().map(|condition| Expr::Nested(Box::new(condition)));
    nested.reduce(|before, next| binary(before, BinaryOperator::And, next)).unwrap_or_else(|| boolean(true))
}

/// The rows of a table for which a condition holds; `None` if the table may have more columns than are known.
fn within(factor: &TableFactor, condition: &Expr, known: Known<'_>) -> Option<TableFactor> {
    let is_whole = match factor {
        TableFactor::Derived { lateral: false, .. } => true,
        TableFactor::Table { name, args: None, .. } => known.common_table(&empty::named(name)).is_some(),
        _ => false,
    };
    let name = called(factor).filter(|_| is_whole && known.of_factor(factor).is_some())?;
    let Ok(Expr::Subquery(subquery)) = expr(&format!("(SELECT * FROM {factor} WHERE {condition})")) else {
        return None;
    };
    let name = Ident::with_quote('"', name);
    let alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
    Some(TableFactor::Derived { lateral: true, subquery, alias, sample: None })
}
