//! Limits chains of operators: steps into a document or a list (`x -> 'a' -> 'b'`, `x['a']['b']`), arithmetic and
//! concatenation (`a + b + c`, `a || b`). They become nested function calls, whose names and types planning derives
//! again and again: three hundred steps took a minute, nine hundred sums five seconds, in which nothing could cancel
//! the query.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Query, Value, Visitor};
use quiver_types::{Error, ErrorKind, Result};

use crate::statement_walk::walk;

/// Most steps; `#>` takes a whole path as one.
const STEPS_MAX: usize = 50;
/// Most operations of numbers and texts.
const OPERATIONS_MAX: usize = 300;

/// Refuses more.
///
/// # Errors
/// LimitExceeded.
pub(crate) fn few_steps(query: &Query) -> Result<()> {
    let text = match walk(query, &mut Chains) {
        ControlFlow::Continue(()) => return Ok(()),
        ControlFlow::Break(Chain { steps, .. }) if steps > STEPS_MAX => {
            format!("{steps} steps lead into a document or a list, at most {STEPS_MAX} are allowed")
        }
        ControlFlow::Break(Chain { operations, .. }) => format!(
            "{operations} operations such as `+` and `||` stand one behind the other, at most {OPERATIONS_MAX} are \
             allowed; `concat(…)` takes many texts"
        ),
    };
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

struct Chains;

impl Visitor for Chains {
    type Break = Chain;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Chain> {
        let chain = Chain::of(expr);
        let is_long = chain.steps > STEPS_MAX || chain.operations > OPERATIONS_MAX;
        if is_long { ControlFlow::Break(chain) } else { ControlFlow::Continue(()) }
    }
}

/// What leads on from the first operand of an expression; what leads on from others is counted where these are visited.
#[derive(Default)]
struct Chain {
    steps: usize,
    operations: usize,
}

impl Chain {
    fn of(expr: &Expr) -> Self {
        let (mut first, mut chain) = (expr, Self::default());
        loop {
            first = match first {
                Expr::BinaryOp { left, op, right } => {
                    if is_step(op, right) {
                        chain.steps += 1;
                    } else if is_operation(op) {
                        chain.operations += 1;
                    }
                    left.as_ref()
                }
                Expr::CompoundFieldAccess { root, access_chain } => {
                    chain.steps += access_chain.len();
                    root.as_ref()
                }
                Expr::Cast { expr: inner, .. } | Expr::Nested(inner) => inner.as_ref(),
                _ => return chain,
            };
        }
    }
}

fn is_operation(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::Plus
            | BinaryOperator::Minus
            | BinaryOperator::Multiply
            | BinaryOperator::Divide
            | BinaryOperator::Modulo
            | BinaryOperator::StringConcat
    )
}

fn is_step(op: &BinaryOperator, right: &Expr) -> bool {
    match op {
        BinaryOperator::Arrow
        | BinaryOperator::LongArrow
        | BinaryOperator::HashArrow
        | BinaryOperator::HashLongArrow
        | BinaryOperator::HashMinus => true,
        // A key that is taken out of a document.
        BinaryOperator::Minus => match right {
            Expr::Value(value) => matches!(value.value, Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_)),
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::parse::{Params, ReadStatement, parse};

    use super::*;

    fn read(text: &str) -> Result<()> {
        let ReadStatement::Query(query) = parse(text, &Params::default())?.statement else {
            panic!("no query: {text}")
        };
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

    #[test]
    fn operations_one_behind_the_other_are_bounded() {
        for operation in [" + a", " - 1", " * a", " / 2", " % 3", " || 'x'"] {
            let chain = |count: usize| format!("select a{} from t", operation.repeat(count));
            read(&chain(OPERATIONS_MAX)).unwrap_or_else(|e| panic!("{operation}: {e}"));
            let error = read(&chain(OPERATIONS_MAX + 1)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::LimitExceeded, "{operation}: {error}");
            assert!(error.message.starts_with("301 operations "), "{error}");
        }
        // Conditions are no chain of them, nor are values beside each other.
        read(&format!("select 1 from t where a = 1{}", " or a + 1 = 2".repeat(300))).unwrap();
        read(&format!("select a + 1{} from t", ", a + 1".repeat(900))).unwrap();
    }
}
