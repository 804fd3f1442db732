//! Canonical text of expressions.

use super::{list, literal, word};
use crate::ast::math::MathExpr;

/// An expression; an operator at the top stands in parentheses.
pub(crate) fn math_text(expr: &MathExpr) -> String {
    let text = operand(expr, u8::MAX);
    if matches!(expr, MathExpr::Binary { .. }) { format!("({text})") } else { text }
}

/// The name of a result that was given none: the expression without parentheses around it.
pub(crate) fn math_name(expr: &MathExpr) -> String {
    operand(expr, u8::MAX)
}

/// An expression as part of an operator that takes operators up to a rank without parentheses.
fn operand(expr: &MathExpr, loosest: u8) -> String {
    match expr {
        MathExpr::Number(number) => literal(&number.text),
        MathExpr::Field(name) => word(name),
        MathExpr::Negate(inner) => format!("-{}", operand(inner, 0)),
        MathExpr::Call { func, args } => {
            format!("{}({})", func.name(), list(args, |arg| operand(arg, u8::MAX)))
        }
        MathExpr::Binary { op, left, right } => {
            let (sign, rank) = op.text();
            let text = format!("{} {sign} {}", operand(left, rank), operand(right, rank - 1));
            if rank > loosest { format!("({text})") } else { text }
        }
    }
}
