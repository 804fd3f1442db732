//! The selectors of an expression, for endpoints that need to know which series a query is about and not its value
//! (exemplars).

use std::collections::{HashMap, HashSet};

use quiver_types::Matcher;

use crate::ast::{Expr, ExprKind};

/// Gives the matchers of every selector, in the order of the text.
pub fn selectors(expr: &Expr) -> Vec<&[Matcher]> {
    let mut found = Vec::new();
    // An explicit stack, because recursion over a long chain of operators could overflow the thread's.
    let mut waiting = vec![expr];
    while let Some(expr) = waiting.pop() {
        match &expr.kind {
            ExprKind::Number { .. } | ExprKind::String(_) => {}
            ExprKind::VectorSelector(selector) | ExprKind::MatrixSelector { selector, .. } => {
                found.push(&selector.matchers[..]);
            }
            ExprKind::Paren(inner) | ExprKind::Unary { expr: inner, .. } => waiting.push(inner),
            ExprKind::Subquery(subquery) => waiting.push(&subquery.expr),
            ExprKind::Binary(binary) => waiting.extend([&binary.rhs, &binary.lhs]),
            ExprKind::Aggregate(aggregate) => {
                waiting.push(&aggregate.expr);
                waiting.extend(aggregate.param.as_ref());
            }
            ExprKind::Call { args, .. } => waiting.extend(args.iter().rev()),
        }
    }
    found
}

/// Gives the matchers that more than one selector has.
#[allow(clippy::mutable_key_type, reason = "the compiled pattern of a matcher is no part of what it is compared by")]
pub(crate) fn repeated(expr: &Expr) -> HashSet<Vec<Matcher>> {
    // Expressions may have tens of thousands of selectors.
    let mut times: HashMap<&[Matcher], usize> = HashMap::new();
    for matchers in selectors(expr) {
        *times.entry(matchers).or_default() += 1;
    }
    times.into_iter().filter(|(_, times)| *times > 1).map(|(matchers, _)| matchers.to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    #[test]
    fn all_in_order() {
        let check = |text: &str, expected: &[&str]| {
            let expr = parse(text).unwrap();
            let names: Vec<&str> = selectors(&expr).iter().map(|m| m[0].value.as_str()).collect();
            assert_eq!(names, expected, "{text}");
        };
        check("1 + 2", &[]);
        check("a + rate(b[5m]) * (c)", &["a", "b", "c"]);
        check("topk(scalar(k), -max_over_time(x[1h:5m]))", &["k", "x"]);
        check("histogram_quantile(0.9, sum by (le) (rate(h[1m])))", &["h"]);
    }

    #[test]
    fn selectors_that_are_there_more_than_once() {
        let check = |text: &str, expected: &[&str]| {
            let expr = parse(text).unwrap();
            let mut names: Vec<String> = repeated(&expr).iter().map(|m| m[0].value.clone()).collect();
            names.sort_unstable();
            assert_eq!(names, expected, "{text}");
        };
        check("a + b", &[]);
        check("a / a", &["a"]);
        // Ranges, offsets and modifiers are no part of what is selected.
        check("rate(a[5m]) + a offset 1h + b + max_over_time(b[1h:] @ 5)", &["a", "b"]);
        check("a{x='1'} + a{x='2'} + a{x=~'1'}", &[]);
        check("a{x='1'} + a{x='1'}", &["1"]);
        check("{__name__='a'} + a", &["a"]);
    }
}
