//! Quotients of sums: `sum` of whole numbers of eight bytes has a fraction in PostgreSQL, and one of smaller ones has none,
//! so that `100 * count(*) / sum(count(*)) OVER ()` is 22.75 and `sum(CASE WHEN a THEN 1 ELSE 0 END) / count(*)` is 0.

use datafusion::sql::sqlparser::ast::{BinaryOperator, DataType, Expr, Function};

use super::expressions::{arguments, bare, call, take};

/// Functions that give one of their arguments.
const CHOOSING: [&str; 6] = ["coalesce", "nullif", "abs", "greatest", "least", "divisor"];

/// Has two sides of a quotient divided with a fraction, if one of them is such a sum.
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

/// Whether a value is made of a sum of large numbers.
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

/// Whether a value is of eight bytes if it is whole: columns are, and counts; literals are not.
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
