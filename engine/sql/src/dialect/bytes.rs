//! Values of type `bytea` in statements, and forms of calls that the planner would resolve to functions of texts.

use datafusion::sql::sqlparser::ast::{BinaryOperator, DataType, Expr};
use quiver_query::quoting::text as quoted;
use quiver_types::Result;

use super::expressions::{arguments, bare, call, copied, expr, literal, number, take, text};

/// Functions that return bytes, and those that return bytes if their argument is bytes.
const MADE: [&str; 9] =
    ["decode", "sha224", "sha256", "sha384", "sha512", "convert_to", "set_byte", "set_bit", "bytes_unescaped"];
const PARTS: [&str; 7] = ["substr", "substring", "substring_from", "btrim", "trim", "ltrim", "rtrim"];

/// Whether the statement itself shows that a value is bytes.
pub(super) fn is_bytes(value: &Expr) -> bool {
    match value {
        Expr::Nested(inner) | Expr::Trim { expr: inner, .. } => is_bytes(inner),
        Expr::Cast { data_type, .. } => *data_type == DataType::Bytea,
        Expr::Function(function) => bare(&function.name).is_some_and(|name| {
            let of_bytes = || arguments(&function.args).is_some_and(|args| args.first().is_some_and(is_bytes));
            MADE.contains(&name.as_str()) || (PARTS.contains(&name.as_str()) && of_bytes())
        }),
        Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } => is_bytes(left) && is_bytes(right),
        _ => false,
    }
}

/// Rewrites `substring(a FROM 2 FOR 1)` and `position(part IN a)` as calls of the session's functions of these names,
/// which take texts and bytes. The planner's own take only texts.
///
/// # Errors
/// As [`read_text_operand`].
pub(super) fn translate(place: &mut Expr) -> Result<()> {
    match place {
        Expr::Substring { expr, substring_from, substring_for, .. } => {
            let from = substring_from.as_mut().map_or_else(|| number(1), |from| take(from));
            let count = substring_for.as_mut().map(|count| take(count));
            *place = call("substr", [take(expr), from].into_iter().chain(count).collect());
        }
        Expr::Position { expr, r#in } => {
            read_text_operand(expr, r#in)?;
            *place = call("strpos", vec![take(r#in), take(expr)]);
        }
        _ => {}
    }
    Ok(())
}

/// Rewrites `overlay(bytes PLACING other FROM 2 FOR 1)` as the parts around, with the other between them. The planner's own
/// takes only texts.
///
/// # Errors
/// LimitExceeded: the bytes are copied, and are too long for that.
pub(super) fn overlaid(place: &mut Expr) -> Result<()> {
    if let Expr::Overlay { expr: within, overlay_what: other, .. } = place {
        read_text_operand(within, other)?;
    }
    let Expr::Overlay { expr: within, overlay_what: other, overlay_from: from, overlay_for: count } = &*place else {
        return Ok(());
    };
    if !is_bytes(within) {
        return Ok(());
    }
    for part in [within, other, from] {
        copied(part, 2)?;
    }
    let count = count.as_ref().map_or_else(|| format!("octet_length({other})"), ToString::to_string);
    // In quotes it is no word of the grammar, whose `substr` takes only texts.
    let before = format!("\"substr\"({within}, 1, ({from}) - 1)");
    let found = expr(&format!("({before} || {other} || \"substr\"({within}, ({from}) + ({count})))"))?;
    *place = found;
    Ok(())
}

/// A literal text that is an operand beside bytes (`bytes || 'a'`) is read as bytes.
///
/// # Errors
/// Those of an expression of ours.
pub(super) fn read_text_operand(left: &mut Expr, right: &mut Expr) -> Result<()> {
    let other = match (is_bytes(left), is_bytes(right)) {
        (true, false) => right,
        (false, true) => left,
        _ => return Ok(()),
    };
    if literal(other).is_some() {
        let bytes = written(other)?;
        *other = bytes.map_or_else(|| expr(&format!("CAST({other} AS BYTEA)")), Ok)?;
    }
    Ok(())
}

/// The value of a text in one of PostgreSQL's written forms of bytes; `None` if the bytes are those of its letters.
pub(super) fn written(value: &Expr) -> Result<Option<Expr>> {
    let Some(letters) = literal(value) else { return Ok(None) };
    match letters.strip_prefix("\\x") {
        Some(digits) => expr(&format!("decode({}, 'hex')", quoted(digits))).map(Some),
        None if letters.contains('\\') => Ok(Some(call("bytes_unescaped", vec![text(letters)]))),
        None => Ok(None),
    }
}
