//! Determines which parts of an expression do not depend on the step, so that they are evaluated once and broadcast.
//!
//! Semantics: Prometheus 3.14 `promql/engine.go`: `preprocessExprHelper`.

use crate::ast::{BinaryExpr, Expr, ExprKind, PosRange};
use crate::functions::lookup;

/// Removes parentheses.
pub(crate) fn unparen(mut expr: &Expr) -> &Expr {
    while let ExprKind::Paren(inner) = &expr.kind {
        expr = inner;
    }
    expr
}

/// Splits `a + b - c …` into its first operand and the operators that follow, innermost first. Chains may be long, so
/// they must not be walked recursively.
pub(crate) fn chain(expr: &Expr) -> (&Expr, Vec<(&BinaryExpr, PosRange)>) {
    let (mut first, mut operators) = (expr, Vec::new());
    while let ExprKind::Binary(binary) = &first.kind {
        operators.push((&**binary, first.pos));
        first = &binary.lhs;
    }
    operators.reverse();
    (first, operators)
}

/// Tells whether an expression is to be evaluated once for all steps.
pub(crate) fn evaluates_once(expr: &Expr) -> bool {
    let (invariant, wrap) = step_invariant(expr);
    invariant && wrap
}

/// Tells whether an expression is independent of the step, and whether its result must be broadcast (range vectors and
/// literals need not be).
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
        // These are constants of the query and need no broadcast, just like literals.
        ExprKind::Call { function, .. } if matches!(function.as_str(), "start" | "end" | "range" | "step") => {
            (true, false)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    /// Whether an expression is independent of the step, and whether it is evaluated once.
    #[test]
    fn what_does_not_depend_on_the_step() {
        for (query, invariant, once) in [
            ("1", true, false),
            ("'a'", true, false),
            ("m", false, false),
            ("m @ 5", true, true),
            ("m @ start()", true, true),
            ("(-m @ 5)", true, true),
            ("m[5m] @ 5", true, false),
            ("m[5m:1m] @ end()", true, false),
            ("(m @ 5)[5m:1m]", false, false),
            ("rate(m[5m] @ 5)", true, true),
            ("rate(m[5m])", false, false),
            ("predict_linear(m[5m] @ 5, 60)", false, false),
            ("sum(m @ 5)", true, true),
            ("sum((m @ 5))", true, true),
            ("topk(scalar(n), m @ 5)", true, true),
            ("1 + 2", true, true),
            ("m @ 5 + 1", true, true),
            ("m @ 5 + n", false, false),
            ("n + m @ 5 + 1", false, false),
            ("time()", false, false),
            ("pi()", true, true),
            ("start()", true, false),
            ("range() / step()", true, true),
            ("vector(end())", true, true),
            ("m @ 5 + start()", true, true),
            ("clamp(m @ 5, 1, (start()))", true, true),
            ("m + start()", false, false),
            ("time() - start()", false, false),
            ("hour()", false, false),
            ("hour(m @ 5)", false, false),
            ("timestamp(m @ 5)", true, true),
            ("timestamp((m @ 5))", true, true),
            ("timestamp(m @ 5 + 1)", false, false),
            ("timestamp(m)", false, false),
            ("label_replace(m @ 5, 'a', 'b', 'c', 'd')", true, true),
            ("max_of(1, time())", false, false),
        ] {
            let expr = parse(query).expect(query);
            assert_eq!((step_invariant(&expr).0, evaluates_once(&expr)), (invariant, once), "{query}");
        }
    }

    #[test]
    fn chains_from_their_first_operand() {
        let expr = parse("(a + b) - c * d - e").expect("a chain");
        let (first, operators) = chain(&expr);
        assert!(matches!(first.kind, ExprKind::Paren(_)));
        let shown: Vec<_> = operators.iter().map(|(b, pos)| (b.op.as_str(), pos.start, pos.end)).collect();
        assert_eq!(shown, [("-", 0, 15), ("-", 0, 19)]);
        let alone = parse("((a))").expect("an operand");
        assert!(chain(&alone).1.is_empty() && matches!(unparen(&alone).kind, ExprKind::VectorSelector(_)));
    }
}
