//! Quotients of sums. In PostgreSQL the `sum` of 64-bit integers is a `numeric`, whose quotient has a fraction; that
//! of smaller integers is an integer. So `100 * count(*) / sum(count(*)) OVER ()` is 22.75, and `sum(CASE WHEN a THEN
//! 1 ELSE 0 END) / count(*)` is 0.

use datafusion::sql::sqlparser::ast::{BinaryOperator, DataType, Expr, Function};

use super::expressions::{arguments, bare, call, take};

/// Functions that return one of their arguments, or one of the same type.
const CHOOSING: [&str; 6] = ["coalesce", "nullif", "abs", "greatest", "least", "divisor"];

/// Makes a quotient one with a fraction, if one of its operands is such a sum.
pub(super) fn divided(left: &mut Expr, right: &mut Expr) {
    if let Some(sum) = [left, right].into_iter().find(|side| has_sum(side)) {
        let whole = take(sum);
        *sum = call("fractional", vec![whole]);
    }
}

fn calculates(op: &BinaryOperator) -> bool {
    matches!(op, BinaryOperator::Plus | BinaryOperator::Minus | BinaryOperator::Multiply)
}

/// Whether some argument of a function is one that is looked for.
fn any(function: &Function, found: fn(&Expr) -> bool) -> bool {
    arguments(&function.args).is_some_and(|args| args.iter().any(found))
}

/// Whether a value is computed from a sum of 64-bit integers.
fn has_sum(value: &Expr) -> bool {
    match value {
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => has_sum(inner),
        Expr::BinaryOp { left, op, right } if calculates(op) => has_sum(left) || has_sum(right),
        Expr::Function(function) => match bare(&function.name).as_deref() {
            Some("sum") => any(function, is_large),
            Some(name) if CHOOSING.contains(&name) => any(function, has_sum),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a value has 64 bits if it is an integer: columns and counts have, literals have not.
fn is_large(value: &Expr) -> bool {
    match value {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => true,
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => is_large(inner),
        Expr::Cast { data_type, .. } => matches!(data_type, DataType::BigInt(_) | DataType::Int8(_)),
        Expr::BinaryOp { left, op, right } if calculates(op) => is_large(left) || is_large(right),
        Expr::Case { conditions, else_result, .. } => {
            conditions.iter().any(|when| is_large(&when.result)) || else_result.as_ref().is_some_and(|e| is_large(e))
        }
        Expr::Function(function) => match bare(&function.name).as_deref() {
            Some("count" | "sum") => true,
            Some(name) if CHOOSING.contains(&name) => any(function, is_large),
            _ => false,
        },
        _ => false,
    }
}
