//! How many steps into a document or a list stand one behind the other (`x -> 'a' -> 'b'`, `x['a']['b']`). They become calls of
//! functions one in the other, each of which takes the name of the one within it for its own: three hundred of them, which the
//! parser reads as a chain, took a minute to plan.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Query, Value, Visitor};
use quiver_types::{Error, ErrorKind, Result};

use crate::walk::walk;

/// Most of them; `#>` takes a whole path as one.
const STEPS_MAX: usize = 50;

/// Refuses more.
///
/// # Errors
/// LimitExceeded.
pub(crate) fn few_steps(query: &Query) -> Result<()> {
    match walk(query, &mut Steps) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(steps) => {
            let text = format!("{steps} steps lead into a document or a list, at most {STEPS_MAX} are allowed");
            Err(Error::new(ErrorKind::LimitExceeded, text))
        }
    }
}

struct Steps;

impl Visitor for Steps {
    type Break = usize;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<usize> {
        let count = steps(expr);
        if count > STEPS_MAX { ControlFlow::Break(count) } else { ControlFlow::Continue(()) }
    }
}

/// How many steps lead on from the first operand of an expression; those of others are counted where these are visited.
fn steps(expr: &Expr) -> usize {
    let (mut first, mut count) = (expr, 0);
    loop {
        first = match first {
            Expr::BinaryOp { left, op, right } => {
                count += usize::from(is_step(op, right));
                left.as_ref()
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                count += access_chain.len();
                root.as_ref()
            }
            Expr::Cast { expr: inner, .. } | Expr::Nested(inner) => inner.as_ref(),
            _ => return count,
        };
    }
}

fn is_step(op: &BinaryOperator, right: &Expr) -> bool {
    match op {
        BinaryOperator::Arrow
        | BinaryOperator::LongArrow
        | BinaryOperator::HashArrow
        | BinaryOperator::HashLongArrow
        | BinaryOperator::HashMinus => true,
        // A key that is taken out of a document.
        BinaryOperator::Minus => {
            matches!(right, Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::parse::{Params, Parsed, parse};

    use super::*;

    fn read(text: &str) -> Result<()> {
        let Parsed::Query(query) = parse(text, &Params::default())?.statement else { panic!("no query: {text}") };
        few_steps(&query)
    }

    #[test]
    fn steps_into_documents_are_bounded() {
        for step in [" -> 'a'", " ->> 0", " #> '{a}'", " #- '{a}'", " - 'a'", "['a']", " -> 'a' || ''"] {
            let stepped = |count: usize| format!("select x{} from t", step.repeat(count));
            read(&stepped(STEPS_MAX)).unwrap_or_else(|e| panic!("{step}: {e}"));
            let error = read(&stepped(STEPS_MAX + 1)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::LimitExceeded, "{step}: {error}");
        }
        // Those of different values, and of numbers, are no chain.
        read(&format!("select 1{} from t", " + (x -> 'a' ->> 'b')::int".repeat(100))).unwrap();
        read(&format!("select x - 1{} from t", " - y - 2".repeat(100))).unwrap();
        read(&format!("select true{} from t", " and x ->> 'a' = 'b'".repeat(100))).unwrap();
    }
}
