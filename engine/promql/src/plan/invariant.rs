//! Which parts of an expression do not depend on the step, so that they are evaluated once and broadcast.
//!
//! Semantics: Prometheus 3.14 `promql/engine.go`: `preprocessExprHelper`.

use crate::ast::{BinaryExpr, Expr, ExprKind, PosRange};
use crate::functions::lookup;

/// Takes parentheses off.
pub(crate) fn unparen(mut expr: &Expr) -> &Expr {
    while let ExprKind::Paren(inner) = &expr.kind {
        expr = inner;
    }
    expr
}

/// Splits `a + b - c …` into its first operand and the operators that follow, innermost first. Chains may be long, so
/// whoever walks them must not call itself for each operator.
pub(crate) fn chain(expr: &Expr) -> (&Expr, Vec<(&BinaryExpr, PosRange)>) {
    let (mut first, mut operators) = (expr, Vec::new());
    while let ExprKind::Binary(binary) = &first.kind {
        operators.push((&**binary, first.pos));
        first = &binary.lhs;
    }
    operators.reverse();
    (first, operators)
}

/// Says whether an expression is to be evaluated once for all steps.
pub(crate) fn evaluates_once(expr: &Expr) -> bool {
    let (invariant, wrap) = step_invariant(expr);
    invariant && wrap
}

/// Says whether an expression is independent of the step, and whether its result must be repeated (range vectors and
/// literals are not).
pub(crate) fn step_invariant(expr: &Expr) -> (bool, bool) {
    match &expr.kind {
        ExprKind::Number { .. } | ExprKind::String(_) => (true, false),
        ExprKind::Paren(inner) => step_invariant(inner),
        ExprKind::Unary { expr, .. } => step_invariant(expr),
        ExprKind::VectorSelector(s) => (s.at.is_some(), s.at.is_some()),
        ExprKind::MatrixSelector { selector, .. } => (selector.at.is_some(), false),
        ExprKind::Subquery(s) => (s.at.is_some(), false),
        ExprKind::Aggregate(a) => step_invariant(unparen(&a.expr)),
        ExprKind::Binary(_) => {
            let (first, chain) = chain(expr);
            let all = step_invariant(first).0 && chain.iter().all(|(b, _)| step_invariant(&b.rhs).0);
            (all, all)
        }
        ExprKind::Call { function, args } => {
            let safe = lookup(function).is_some_and(|f| !f.uses_step_time);
            let fixed = |e: &Expr| step_invariant(unparen(e)).0;
            let selector = |e: &Expr| matches!(unparen(e).kind, ExprKind::VectorSelector(_));
            let invariant = (safe && args.iter().all(fixed))
                || (function == "timestamp" && args.iter().all(|a| fixed(a) && selector(a)));
            (invariant, invariant)
        }
    }
}
