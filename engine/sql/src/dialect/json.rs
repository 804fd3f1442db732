//! Operators on JSON. Types are not known here: what is cast to `json`, or comes out of such an operator, is a text that
//! holds it, and `->>` behind anything else reads a map.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};

use super::{bare, literal, types};

/// The function that an operator behind `left` is; none: it is no operator on JSON.
pub(super) fn function(left: &Expr, op: &BinaryOperator) -> Option<&'static str> {
    Some(match op {
        BinaryOperator::Arrow => "json_get",
        BinaryOperator::LongArrow if is_json(left) => "json_get_text",
        BinaryOperator::HashArrow => "json_get_path",
        BinaryOperator::HashLongArrow => "json_get_path_text",
        _ => return None,
    })
}

/// Whether it is a text that is read as JSON: what it holds was translated before it.
fn is_json(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_json(inner),
        Expr::Cast { data_type, .. } => types::is_text(data_type),
        Expr::Function(call) => bare(&call.name).is_some_and(|name| name.starts_with("json_")),
        other => literal(other).is_some(),
    }
}
