//! Operators on JSON. Types are not known before planning: what is cast to `json`, or is the result of such an
//! operator, counts as JSON, and `->>` behind anything else reads a map.
//!
//! A column that is cast to `jsonb` is put in its normal form, NULL where it is no JSON. Operators read it as it is
//! written, and only what they find in it is put in that form.

use datafusion::sql::sqlparser::ast::{BinaryOperator, CastKind, DataType, Expr, Value};

use super::data_types;
use super::expressions::{bare, call, literal, take, text};
use crate::names::parts;

/// The function for an operator with this left operand; `None` if it is no operator on JSON.
pub(super) fn function(left: &Expr, op: &BinaryOperator) -> Option<&'static str> {
    Some(match op {
        BinaryOperator::Arrow => "json_get",
        BinaryOperator::LongArrow if is_json(left) => "json_get_text",
        BinaryOperator::HashArrow => "json_get_path",
        BinaryOperator::HashLongArrow => "json_get_path_text",
        _ => return None,
    })
}

/// What stands behind an operator of JSON, with the list that says a path (`#> array['a', 'b']`) as its text.
pub(super) fn written_path(op: &BinaryOperator, place: Expr) -> Expr {
    if !matches!(op, BinaryOperator::HashArrow | BinaryOperator::HashLongArrow) || !is_list(&place) {
        return place;
    }
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(place), data_type: DataType::Text, array: false, format: None }
}

/// Whether an expression shows that it is a list.
fn is_list(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_list(inner),
        Expr::Array(_) => true,
        Expr::Cast { data_type, .. } => matches!(data_type, DataType::Array(_)),
        Expr::Function(call) => {
            bare(&call.name).is_some_and(|name| matches!(name.as_str(), "make_array" | "string_to_array"))
        }
        _ => false,
    }
}

/// Whether an expression is JSON. Its operands have been translated already.
fn is_json(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_json(inner),
        Expr::Cast { data_type, .. } => data_types::is_text(data_type),
        Expr::Function(call) => bare(&call.name).is_some_and(|name| name.starts_with("json")),
        other => literal(other).is_some(),
    }
}

/// Whether an expression is a document, or found in one. It has been translated already.
pub(super) fn is_document(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_document(inner),
        Expr::Function(call) => {
            bare(&call.name).is_some_and(|name| matches!(name.as_str(), "json_get" | "json_get_path" | "json_normal"))
        }
        _ => false,
    }
}

/// Whether one of two operands is cast to JSON, or read from it.
pub(super) fn is_either(left: &Expr, right: &Expr) -> bool {
    let is_one = |side: &Expr| literal(side).is_none_or(|_| matches!(side, Expr::Cast { .. })) && is_json(side);
    is_one(left) || is_one(right)
}

/// Functions with a `jsonb` name that return another type.
const OTHERS: [&str; 7] = [
    "jsonb_typeof",
    "jsonb_array_length",
    "jsonb_pretty",
    "jsonb_array_elements_text",
    "jsonb_extract_path_text",
    "jsonb_path_exists",
    "jsonb_path_match",
];

pub(super) fn is_binary_type(data_type: &DataType) -> bool {
    match data_type {
        DataType::JSONB => true,
        DataType::Custom(name, _) => parts(name).pop().as_deref() == Some("jsonb"),
        _ => false,
    }
}

/// Whether an expression shows that it is `jsonb`. Nothing in it has been translated yet.
fn is_binary(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_binary(inner),
        Expr::Cast { data_type, .. } => is_binary_type(data_type),
        Expr::TypedString(typed) => is_binary_type(&typed.data_type),
        Expr::Function(call) => bare(&call.name)
            .is_some_and(|name| name == "to_jsonb" || (name.starts_with("jsonb_") && !OTHERS.contains(&name.as_str()))),
        Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } => is_binary(left) || is_binary(right),
        Expr::BinaryOp { left, op, .. } => {
            matches!(
                op,
                BinaryOperator::Arrow | BinaryOperator::HashArrow | BinaryOperator::Minus | BinaryOperator::HashMinus
            ) && is_binary(left)
        }
        _ => false,
    }
}

/// Whether an operand may take the type of the other one: a literal without a type, or a column.
fn is_open(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_open(inner),
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => true,
        Expr::Value(value) => !matches!(value.value, Value::Number(..) | Value::Boolean(_)),
        _ => false,
    }
}

/// Whether a cast is one to `jsonb` of something that is not written out, whose form is not known.
pub(super) fn is_of_column(data_type: &DataType, value: &Expr) -> bool {
    is_binary_type(data_type) && !matches!(value, Expr::Value(_))
}

/// Reads the column of a cast to `jsonb`, or that which members are looked up in, as it is written. Returns whether it is one.
fn as_written(document: &mut Expr) -> bool {
    match document {
        Expr::Nested(inner) => as_written(inner),
        Expr::BinaryOp { left, op: BinaryOperator::Arrow | BinaryOperator::HashArrow, .. } => as_written(left),
        Expr::Cast { expr, data_type, .. } if is_of_column(data_type, expr) => {
            *data_type = DataType::JSON;
            true
        }
        _ => false,
    }
}

/// Looks a member up in a column that is cast to `jsonb`.
fn looked_up(place: &mut Expr) {
    let Expr::BinaryOp { left, op, .. } = place else { return };
    if !as_written(left) {
        return;
    }
    let is_text = matches!(op, BinaryOperator::LongArrow | BinaryOperator::HashLongArrow);
    match op {
        BinaryOperator::LongArrow => *op = BinaryOperator::Arrow,
        BinaryOperator::HashLongArrow => *op = BinaryOperator::HashArrow,
        _ => {}
    }
    let found = call("json_normal", vec![take(place)]);
    *place = if is_text { call("json_get_path_text", vec![found, text("{}")]) } else { found };
}

/// Translates operators that change, concatenate, compare or read documents. Other types have the same operators, so
/// the operands are examined before they are translated.
pub(super) fn changed(place: &mut Expr) {
    let (left, op, right) = match place {
        Expr::BinaryOp { left, op, right } => (left, op, right),
        Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => return alike(left, right),
        _ => return,
    };
    let function = match op {
        BinaryOperator::StringConcat => {
            let (is_left, is_right) = (is_binary(left), is_binary(right));
            let joins = is_left && (is_right || is_open(right)) || is_right && is_open(left);
            if !joins {
                return;
            }
            "jsonb_concat"
        }
        BinaryOperator::Eq | BinaryOperator::NotEq => return alike(left, right),
        BinaryOperator::Minus if is_binary(left) => "jsonb_less",
        BinaryOperator::HashMinus => "jsonb_less_path",
        BinaryOperator::Arrow
        | BinaryOperator::LongArrow
        | BinaryOperator::HashArrow
        | BinaryOperator::HashLongArrow => return looked_up(place),
        BinaryOperator::Question
        | BinaryOperator::QuestionAnd
        | BinaryOperator::QuestionPipe
        | BinaryOperator::AtArrow
        | BinaryOperator::ArrowAt
        | BinaryOperator::AtQuestion
        | BinaryOperator::AtAt => {
            as_written(left);
            as_written(right);
            return;
        }
        _ => return,
    };
    as_written(left);
    as_written(right);
    *place = call(function, vec![take(left), take(right)]);
}

/// Normalizes two documents that are compared, since a document may be written in several ways.
fn alike(left: &mut Expr, right: &mut Expr) {
    let (is_left, is_right) = (is_binary(left), is_binary(right));
    if is_left && (is_right || is_open(right)) || is_right && is_open(left) {
        for side in [left, right] {
            as_written(side);
            let document = take(side);
            *side = call("json_alike", vec![document]);
        }
    }
}
