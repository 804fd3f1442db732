//! Binary operators that the planner knows under another name, or as functions.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use quiver_types::Result;

use super::expressions::{Quantifier, boolean, calculates, call, expr, take};
use super::{arrays, bytes, decimals, json_operators, nested_lists, operators, patterns, row_values, sum_quotients};

/// Rewrites an operator for the planner. Its operands have been translated already.
pub(super) fn translate(place: &mut Expr) -> Result<()> {
    let Expr::BinaryOp { left, op, right } = place else { return Ok(()) };
    operator(op);
    if calculates(op) || *op == BinaryOperator::Modulo {
        for side in [&mut **left, &mut **right] {
            if let Some(exact) = decimals::beyond_bigint(side) {
                *side = exact;
            }
        }
    }
    if let Some(name) = json_operators::function(left, op) {
        let (document, place_in_it) = (take(left), json_operators::written_path(op, take(right)));
        *place = call(name, vec![document, place_in_it]);
        return Ok(());
    }
    if matches!(op, BinaryOperator::AtArrow | BinaryOperator::ArrowAt | BinaryOperator::PGOverlap) {
        // It is about the values of lists, however deep these are.
        let is_of_json = json_operators::is_either(left, right);
        for list in [&mut **left, &mut **right] {
            let values = nested_lists::flattened(list);
            if let Some(values) = values.or_else(|| arrays::of_untyped(list).filter(|_| !is_of_json)) {
                *list = values;
            }
        }
    }
    if patterns::is_regex(op) {
        return patterns::operator(op, right);
    }
    let found = match &*op {
        // Clients see maps as `json`, and read them with its operators.
        BinaryOperator::LongArrow => expr(&format!("attr({left}, {right})"))?,
        BinaryOperator::Question => call("json_has", vec![take(left), take(right)]),
        BinaryOperator::QuestionPipe => operators::has_several(left, right, Quantifier::Any)?,
        BinaryOperator::QuestionAnd => operators::has_several(left, right, Quantifier::All)?,
        BinaryOperator::AtArrow if json_operators::is_either(left, right) => {
            call("json_contains", vec![take(left), take(right)])
        }
        BinaryOperator::ArrowAt if json_operators::is_either(left, right) => {
            call("json_contains", vec![take(right), take(left)])
        }
        // These are silent about faults of their paths.
        BinaryOperator::AtQuestion => call("jsonb_path_exists", vec![take(left), take(right), boolean(true)]),
        BinaryOperator::AtAt => call("jsonb_path_match", vec![take(left), take(right), boolean(true)]),
        BinaryOperator::PGOverlap => call("array_has_any", vec![take(left), take(right)]),
        BinaryOperator::PGStartsWith => call("starts_with", vec![take(left), take(right)]),
        BinaryOperator::Overlaps => operators::overlaps(left, right)?,
        _ if row_values::is_row(left) => match row_values::compared(left, op, right)? {
            Some(found) => found,
            None => return Ok(()),
        },
        BinaryOperator::StringConcat => {
            decimals::keep_joined_digits(left, right);
            return bytes::read_text_operand(left, right);
        }
        BinaryOperator::Divide => {
            sum_quotients::divided(left, right);
            return Ok(());
        }
        _ => return Ok(()),
    };
    *place = found;
    Ok(())
}

/// `OPERATOR(pg_catalog.~)` and the like.
fn operator(op: &mut BinaryOperator) {
    let BinaryOperator::PGCustomBinaryOperator(name) = op else { return };
    let known = match name.last().map(String::as_str) {
        Some("=") => BinaryOperator::Eq,
        Some("<>" | "!=") => BinaryOperator::NotEq,
        Some("<") => BinaryOperator::Lt,
        Some(">") => BinaryOperator::Gt,
        Some("<=") => BinaryOperator::LtEq,
        Some(">=") => BinaryOperator::GtEq,
        Some("~") => BinaryOperator::PGRegexMatch,
        Some("~*") => BinaryOperator::PGRegexIMatch,
        Some("!~") => BinaryOperator::PGRegexNotMatch,
        Some("!~*") => BinaryOperator::PGRegexNotIMatch,
        Some("~~") => BinaryOperator::PGLikeMatch,
        Some("~~*") => BinaryOperator::PGILikeMatch,
        Some("!~~") => BinaryOperator::PGNotLikeMatch,
        Some("!~~*") => BinaryOperator::PGNotILikeMatch,
        Some("||") => BinaryOperator::StringConcat,
        Some("+") => BinaryOperator::Plus,
        Some("-") => BinaryOperator::Minus,
        Some("*") => BinaryOperator::Multiply,
        Some("/") => BinaryOperator::Divide,
        _ => return,
    };
    *op = known;
}
