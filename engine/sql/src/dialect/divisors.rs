//! Division by zero is an error, as in PostgreSQL, also for floating-point numbers: the divisors in outputs are
//! checked. Those in conditions are not, because another condition beside them may exclude the rows with zeros.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Select, UnaryOperator, Value, Visitor, VisitorMut};

use super::expressions::{bare, call, take};
use crate::models::members::is_measure_call;
use crate::statement_walk::{counts_depth, has_expression, walk, walk_mut};

/// Wraps the divisors in a select's outputs in a check.
pub(super) fn checked(select: &mut Select) {
    // A quotient that is a grouping key must stay the same expression in `GROUP BY` and among the outputs.
    if walk(&select.group_by, &mut Finder).is_continue() {
        let _ = walk_mut(&mut select.projection, &mut Divisors { depth: 0, guarded: 0 });
    }
}

fn divides(op: &BinaryOperator) -> bool {
    matches!(op, BinaryOperator::Divide | BinaryOperator::Modulo)
}

/// Whether a divisor may be zero, as far as the statement shows.
fn may_be_zero(divisor: &Expr) -> bool {
    match divisor {
        Expr::Nested(inner)
        | Expr::Cast { expr: inner, .. }
        | Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr: inner } => may_be_zero(inner),
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number.parse::<f64>().is_ok_and(|number| number == 0.0),
            _ => false,
        },
        Expr::Function(function) => bare(&function.name).is_none_or(|name| !matches!(&*name, "nullif" | "divisor")),
        Expr::Interval(_) | Expr::TypedString(_) => false,
        _ => true,
    }
}

/// Whether a divisor contains a measure of a model: measures have division rules of their own.
fn has_measure(divisor: &Expr) -> bool {
    has_expression(divisor, is_measure_call)
}

struct Finder;

impl Visitor for Finder {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::BinaryOp { op, .. } if divides(op) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Wraps divisors, except in subqueries, whose outputs are handled by themselves.
struct Divisors {
    depth: usize,
    /// How many enclosing expressions (such as `CASE`) may exclude rows.
    guarded: usize,
}

/// Whether an expression evaluates parts of itself for some rows only.
fn guards(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, .. } => true,
        Expr::Function(function) => function.filter.is_some(),
        _ => false,
    }
}

impl VisitorMut for Divisors {
    type Break = ();

    counts_depth!();

    fn pre_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        self.guarded += usize::from(guards(place));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        self.guarded -= usize::from(guards(place));
        if self.depth == 0
            && self.guarded == 0
            && let Expr::BinaryOp { op, right, .. } = place
            && divides(op)
            && may_be_zero(right)
            && !has_measure(right)
        {
            let divisor = take(right);
            **right = call("divisor", vec![divisor]);
        }
        ControlFlow::Continue(())
    }
}
