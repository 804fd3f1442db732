//! `LIKE … ESCAPE`: the planner knows the backslash alone, so a constant pattern is written with it. `SIMILAR TO`: the
//! planner takes its pattern for a regular expression that is found anywhere; it is written as one that takes the whole text.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Value};
use quiver_types::{Error, Result};

use super::{take, text, types};

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

/// Puts `SIMILAR TO` as a regular expression.
pub(super) fn similar(place: &mut Expr) -> Result<()> {
    let Expr::SimilarTo { negated, expr, pattern, escape_char } = place else { return Ok(()) };
    let escape = match escape_char.as_ref().map(|escape| &escape.value) {
        None => Some('\\'),
        Some(Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text)) if text.chars().count() <= 1 => {
            text.chars().next()
        }
        Some(_) => return Err(Error::invalid("`ESCAPE` takes one character, or none")),
    };
    let constant = folded(pattern).ok_or_else(|| Error::invalid("`SIMILAR TO` takes a constant pattern"))?;
    let right = match constant {
        Some(pattern) => text(&whole(&pattern, escape)?),
        None => take(pattern),
    };
    let op = if *negated { BinaryOperator::PGRegexNotMatch } else { BinaryOperator::PGRegexMatch };
    let left = Expr::Nested(Box::new(take(expr)));
    *place = Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }));
    Ok(())
}

/// The regular expression of a pattern of `SIMILAR TO`.
fn whole(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    out.push_str("(?s)^(?:");
    let (mut chars, mut in_class) = (pattern.chars(), false);
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            let end = || Error::invalid("a `SIMILAR TO` pattern must not end with its escape");
            let next = chars.next().ok_or_else(end)?;
            if !next.is_alphanumeric() {
                out.push('\\');
            }
            out.push(next);
            continue;
        }
        match c {
            '[' if !in_class => in_class = true,
            ']' if in_class => in_class = false,
            '%' if !in_class => out.push_str(".*"),
            '_' if !in_class => out.push('.'),
            '(' if !in_class => out.push_str("(?:"),
            '.' | '^' | '$' if !in_class => out.push('\\'),
            '\\' => out.push('\\'),
            _ => {}
        }
        if in_class || !matches!(c, '%' | '_' | '(') {
            out.push(c);
        }
    }
    out.push_str(")$");
    Ok(out)
}

/// Whether an operator has a regular expression on its right.
pub(super) fn is_regex(op: &BinaryOperator) -> bool {
    use BinaryOperator::{PGRegexIMatch, PGRegexMatch, PGRegexNotIMatch, PGRegexNotMatch};
    matches!(op, PGRegexMatch | PGRegexIMatch | PGRegexNotMatch | PGRegexNotIMatch)
}

/// Writes the ends of words in a constant regular expression as the planner knows them: `\y` and `\Y`, `\m` and `\M`.
pub(super) fn with_words(pattern: &mut Expr) {
    replace(pattern, |letter| match letter {
        'y' => Some("\\b"),
        'Y' => Some("\\B"),
        'm' => Some("\\b{start}"),
        'M' => Some("\\b{end}"),
        _ => None,
    });
}

/// The same in what a function of regular expressions takes; `\&` in a replacement is all that was found.
pub(super) fn in_call(name: &str, args: &mut FunctionArguments) {
    let FunctionArguments::List(list) = args else { return };
    let mut args = list.args.iter_mut().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => Some(arg),
        _ => None,
    });
    if let Some(Some(pattern)) = args.nth(1) {
        with_words(pattern);
    }
    if name == "regexp_replace"
        && let Some(Some(replacement)) = args.next()
    {
        replace(replacement, |letter| (letter == '&').then_some("\\0"));
    }
}

/// Puts something in the place of letters behind a backslash, in a constant.
fn replace(constant: &mut Expr, by: impl Fn(char) -> Option<&'static str>) {
    let Expr::Value(value) = constant else { return };
    let (Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text)) = &mut value.value else { return };
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let next = if letter == '\\' { letters.next() } else { None };
        match next.map(|next| (next, by(next))) {
            Some((_, Some(other))) => out.push_str(other),
            Some((next, None)) => out.extend([letter, next]),
            None => out.push(letter),
        }
    }
    *text = out;
}

/// Whether it is a text that is written out.
pub(super) fn is_written(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_)))
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
    fn similar_texts_are_whole_ones() {
        let check = |pattern: &str, escape: Option<char>, expected: &str| {
            assert_eq!(whole(pattern, escape).unwrap(), format!("(?s)^(?:{expected})$"), "{pattern}");
        };
        check("%(b|d)_", Some('\\'), ".*(?:b|d).");
        check("a.c$", Some('\\'), "a\\.c\\$");
        check("[%_(]+\\%", Some('\\'), "[%_(]+\\%");
        check("a!_b\\", Some('!'), "a\\_b\\\\");
        assert!(whole("a\\", Some('\\')).is_err());
    }

    #[test]
    fn ends_of_words_are_known() {
        let check = |pattern: &str, expected: &str| {
            let mut found = text(pattern);
            with_words(&mut found);
            assert_eq!(found, text(expected), "{pattern}");
        };
        check("\\mfoo\\M|\\ybar\\Y", "\\b{start}foo\\b{end}|\\bbar\\B");
        check("\\\\y\\d", "\\\\y\\d");
    }

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
