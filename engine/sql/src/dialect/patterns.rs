//! `LIKE … ESCAPE`: the planner knows the backslash alone, so a constant pattern is written with it.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value};
use quiver_types::{Error, Result};

use super::{text, types};

/// Puts a pattern with an escape of its own as one with backslashes.
pub(super) fn translate(place: &mut Expr) -> Result<()> {
    let (Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. }) = place else {
        return Ok(());
    };
    let Some(escape) = escape_char else { return Ok(()) };
    let escape = match &escape.value {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => text.clone(),
        other => return Err(Error::invalid(format!("`ESCAPE` takes a text of one character, not `{other}`"))),
    };
    let mut chars = escape.chars();
    let (escape, None) = (chars.next(), chars.next()) else {
        return Err(Error::invalid("`ESCAPE` takes one character, or none"));
    };
    let constant = folded(pattern);
    let constant = constant.ok_or_else(|| Error::invalid("`LIKE … ESCAPE` takes a constant pattern"))?;
    if let Some(constant) = constant {
        **pattern = text(&escaped(&constant, escape)?);
    }
    *escape_char = None;
    Ok(())
}

/// A constant text, through casts and `||`; the inner none is NULL, or a parameter while a statement is described: it has
/// no value yet.
#[expect(clippy::option_option, reason = "no constant, and the constant NULL")]
pub(super) fn folded(expr: &Expr) -> Option<Option<String>> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(Some(text.clone())),
            Value::Null | Value::Placeholder(_) => Some(None),
            _ => None,
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => folded(inner),
        Expr::Cast { expr: inner, data_type, .. } if types::is_text(data_type) => folded(inner),
        Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } => {
            let (left, right) = (folded(left)?, folded(right)?);
            Some(left.zip(right).map(|(left, right)| left + &right))
        }
        _ => None,
    }
}

fn escaped(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            let next = chars.next().ok_or_else(|| Error::invalid("a `LIKE` pattern must not end with its escape"))?;
            if matches!(next, '%' | '_' | '\\') {
                out.push('\\');
            }
            out.push(next);
        } else {
            if c == '\\' {
                out.push('\\');
            }
            out.push(c);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_backslashes() {
        let check = |pattern: &str, escape: Option<char>, expected: &str| {
            assert_eq!(escaped(pattern, escape).unwrap(), expected, "{pattern}");
        };
        check("pg/_%", Some('/'), "pg\\_%");
        check("a//b", Some('/'), "a/b");
        check("a\\b%", Some('/'), "a\\\\b%");
        check("a\\_", Some('\\'), "a\\_");
        check("a\\_", None, "a\\\\_");
        assert!(escaped("a/", Some('/')).is_err());
    }
}
