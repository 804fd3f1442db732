//! `LIKE … ESCAPE`: the planner knows only the backslash as escape, so constant patterns are rewritten with it.
//! `SIMILAR TO`: the planner takes its pattern for a regular expression that may match anywhere, so it is rewritten
//! as one that matches the whole text.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, FunctionArguments, Value};
use quiver_query::postgres_regex::Options;
use quiver_types::{Error, Result};

use super::expressions::{arguments, call, literal, number, take, text, value_of};
use super::{data_types, function_rewrites};
use crate::error::unsupported;

/// Functions of the session that read patterns from columns as PostgreSQL does.
const READERS: [&str; 6] = [
    "regexp_split_to_array",
    "regexp_split_to_table",
    "regexp_matches",
    "regexp_groups",
    "regexp_substr",
    REPLACE_FROM,
];

/// The function that replaces what is found from a letter on, or one of several places.
const REPLACE_FROM: &str = "regexp_replace_from";

/// Rewrites a pattern with another escape character as one with backslashes.
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

/// Rewrites `SIMILAR TO` as a match of a regular expression.
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

/// The regular expression for a pattern of `SIMILAR TO`.
fn whole(pattern: &str, escape: Option<char>) -> Result<String> {
    Ok(format!("(?s)^(?:{})$", parts_of(pattern, escape, EscapedQuote::Letter)?.concat()))
}

/// `substring(text SIMILAR 'a#"%#"c' ESCAPE '#')`: what is between the marks, where all of the text is like the pattern.
/// What stands before the first mark is as short as it can be.
///
/// # Errors
///
/// Invalid: the pattern has too many marks, or the escape is no letter. Unsupported: one of them is not written out.
pub(super) fn similar_part(within: Expr, pattern: &Expr, escape: &Expr) -> Result<Expr> {
    let (Some(pattern), Some(escape)) = (literal(pattern), literal(escape)) else {
        return Err(unsupported(
            "`substring(… SIMILAR … ESCAPE …)` takes a pattern and an escape that are written out",
        ));
    };
    if escape.chars().count() > 1 {
        return Err(Error::invalid("`ESCAPE` takes one character, or none"));
    }
    let regex = match parts_of(pattern, escape.chars().next(), EscapedQuote::Mark)?.as_slice() {
        [all] => format!("(?s)^({all})$"),
        [before, found] => format!("(?s)^(?U:{before})({found})$"),
        [before, found, behind] => format!("(?s)^(?U:{before})({found})(?:{behind})$"),
        _ => return Err(Error::invalid("a pattern has two marks (`#\"`) at most: what is between them is found")),
    };
    Ok(call("array_element", vec![function_rewrites::matched(vec![within, text(&regex)]), number(1)]))
}

/// What an escaped `"` in a pattern means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EscapedQuote {
    Letter,
    /// The pattern is divided there.
    Mark,
}

/// A pattern of `SIMILAR TO` as a regular expression, divided at its marks.
fn parts_of(pattern: &str, escape: Option<char>, quote: EscapedQuote) -> Result<Vec<String>> {
    let (mut parts, mut out) = (Vec::new(), String::with_capacity(pattern.len() + 16));
    let (mut chars, mut in_class) = (pattern.chars(), false);
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            let end = || Error::invalid("a `SIMILAR TO` pattern must not end with its escape");
            let next = chars.next().ok_or_else(end)?;
            if quote == EscapedQuote::Mark && next == '"' {
                parts.push(std::mem::take(&mut out));
                continue;
            }
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
    parts.push(out);
    Ok(parts)
}

/// Whether the right operand of an operator is a regular expression.
pub(super) fn is_regex(op: &BinaryOperator) -> bool {
    use BinaryOperator::{PGRegexIMatch, PGRegexMatch, PGRegexNotIMatch, PGRegexNotMatch};
    matches!(op, PGRegexMatch | PGRegexIMatch | PGRegexNotMatch | PGRegexNotIMatch)
}

/// Rewrites a constant regular expression in the syntax of the planner's engine.
///
/// # Errors
///
/// Unsupported: the pattern asks for one of PostgreSQL's older syntaxes.
pub(super) fn regular(pattern: &mut Expr) -> Result<()> {
    written(pattern, Options::default())
}

/// Like [`regular`] for the right operand of an operator. Options in the pattern take precedence over the operator's
/// case sensitivity.
///
/// # Errors
///
/// Like [`regular`].
pub(super) fn operator(op: &mut BinaryOperator, pattern: &mut Expr) -> Result<()> {
    // `.*` matches every text, whatever `.` matches; the planner recognizes exactly this pattern.
    if constant(pattern).is_some_and(|text| text == ".*") {
        return Ok(());
    }
    regular(pattern)?;
    let begin = constant(pattern).and_then(|text| text.strip_prefix("(?")?.split_once(')'));
    let keeps_case = begin.is_some_and(|(options, _)| {
        options.contains("-i") && options.chars().all(|letter| letter == '-' || letter.is_ascii_alphabetic())
    });
    match op {
        BinaryOperator::PGRegexIMatch if keeps_case => *op = BinaryOperator::PGRegexMatch,
        BinaryOperator::PGRegexNotIMatch if keeps_case => *op = BinaryOperator::PGRegexNotMatch,
        _ => {}
    }
    Ok(())
}

/// Like [`regular`] with these options.
fn written(pattern: &mut Expr, options: Options) -> Result<()> {
    let Some(text) = constant(pattern) else { return Ok(()) };
    if options.is_literal() || text.starts_with("***=") {
        *text = options.written(text)?;
        return Ok(());
    }
    *text = options.written(&with_words(text))?;
    Ok(())
}

/// Translates word boundaries (`\y` and `\Y`, `\m` and `\M`, `[[:<:]]` and `[[:>:]]`) and the end of the text.
fn with_words(pattern: &str) -> String {
    let words = replaced(pattern, |letter| match letter {
        'y' => Some("\\b"),
        'Y' => Some("\\B"),
        'm' => Some("\\b{start}"),
        'M' => Some("\\b{end}"),
        'Z' => Some("\\z"),
        _ => None,
    });
    let (mut out, mut rest) = (String::with_capacity(words.len()), words.as_str());
    while let Some(at) = rest.find(['\\', '[']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let known = [("[[:<:]]", "\\b{start}"), ("[[:>:]]", "\\b{end}")];
        let found = known.into_iter().find_map(|(from, to)| Some((rest.strip_prefix(from)?, to)));
        let Some((behind, to)) = found else {
            // An escaped bracket begins no class.
            let mut letters = rest.chars();
            let escape = letters.next().filter(|letter| *letter == '\\').and_then(|_| letters.next());
            let len = 1 + escape.map_or(0, char::len_utf8);
            out.push_str(&rest[..len]);
            rest = &rest[len..];
            continue;
        };
        out.push_str(to);
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// The function that a call means by its arguments: `regexp_replace` with a number begins at a later letter.
pub(super) fn called(name: String, args: &FunctionArguments) -> String {
    fn is_number(arg: &Expr) -> bool {
        match arg {
            Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => is_number(inner),
            Expr::Value(value) => matches!(value.value, Value::Number(..)),
            Expr::Cast { data_type, .. } => data_types::is_whole(data_type),
            _ => false,
        }
    }
    let counts = name == "regexp_replace"
        && arguments(args).is_some_and(|args| args.len() > 4 || args.get(3).is_some_and(is_number));
    if counts { REPLACE_FROM.to_owned() } else { name }
}

/// Translates the arguments of a function of regular expressions.
///
/// # Errors
///
/// Invalid: unknown flags. Unsupported: flags that need another pattern, where the pattern is no constant.
pub(super) fn in_call(name: &str, args: &mut FunctionArguments) -> Result<()> {
    let FunctionArguments::List(list) = args else { return Ok(()) };
    let mut args: Vec<Option<&mut Expr>> = list.args.iter_mut().map(value_of).collect();
    let is_constant = args.get_mut(1).and_then(Option::as_deref_mut).and_then(constant).is_some();
    if !is_constant && READERS.contains(&name) {
        return Ok(());
    }
    let first = if matches!(name, "regexp_replace" | REPLACE_FROM) { 3 } else { 2 };
    let is_text = |arg: &mut Option<&mut Expr>| arg.as_deref_mut().and_then(constant).is_some();
    let place = args.iter_mut().skip(first).position(is_text).map(|at| at + first);
    let before = match name {
        REPLACE_FROM => 5,
        "regexp_substr" => 4,
        _ => 2,
    };
    let has_flags = args.len() > before;
    if READERS.contains(&name) && has_flags && place.is_none() {
        // Flags that differ by row may change how the pattern is read, so only the function itself can translate it.
        if let Some(text) = args.get_mut(1).and_then(Option::as_deref_mut).and_then(constant)
            && !text.starts_with("***=")
        {
            *text = with_words(text);
        }
        return Ok(());
    }
    let mut options = Options::default();
    if let Some(flags) = place.and_then(|at| args[at].as_deref_mut()).and_then(constant) {
        options = Options::of(flags)?;
        // The called function supports case-insensitive matching by a flag.
        let mut left = String::new();
        if !options.is_literal() && options.take_folds() {
            left.push('i');
        }
        if options.is_global() {
            left.push('g');
        }
        *flags = left;
    }
    if let Some(Some(pattern)) = args.get_mut(1) {
        written(pattern, options)?;
    }
    if let (false, Some(flags)) = (is_constant, place.and_then(|at| args[at].as_deref_mut()).and_then(constant)) {
        let others = options.flags().ok_or_else(|| {
            unsupported("the flags `n`, `m`, `p` and `q` of regular expressions go with patterns that are written out")
        })?;
        *flags = others + flags.as_str();
    }
    // An empty text means no flags, but not every function accepts that.
    if let Some(at) = place
        && at + 1 == list.args.len()
        && list.args.get_mut(at).and_then(value_of).and_then(constant).is_some_and(|flags| flags.is_empty())
    {
        list.args.pop();
    }
    Ok(())
}

/// The value of a text literal.
fn constant(expr: &mut Expr) -> Option<&mut String> {
    match expr {
        Expr::Value(value) => match &mut value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            _ => None,
        },
        Expr::Nested(inner) => constant(inner),
        Expr::Cast { expr: inner, data_type, .. } if data_types::is_text(data_type) => constant(inner),
        _ => None,
    }
}

/// Replaces escape sequences by what `by` returns for the escaped character.
fn replaced(text: &str, by: impl Fn(char) -> Option<&'static str>) -> String {
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
    out
}

/// Whether an expression is a text literal.
pub(super) fn is_written(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => matches!(value.value, Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_)),
        _ => false,
    }
}

/// Whether an expression is a constant text, quoted in any way or given as a parameter.
fn is_constant(expr: &Expr) -> bool {
    matches!(folded(expr), Some(Some(_)))
}

/// Whether the statement itself shows that a value is a text. Columns need a cast.
pub(super) fn is_text(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_text(inner),
        Expr::Cast { data_type, .. } => data_types::is_text(data_type),
        Expr::BinaryOp { op: BinaryOperator::StringConcat, .. } => true,
        other => is_constant(other),
    }
}

/// Whether a value may be a text or a number: the types of columns and of function results are not known.
pub(super) fn may_be_text(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => may_be_text(inner),
        Expr::Identifier(_)
        | Expr::CompoundIdentifier(_)
        | Expr::CompoundFieldAccess { .. }
        | Expr::Function(_)
        | Expr::Case { .. }
        | Expr::Subquery(_) => true,
        _ => false,
    }
}

/// The value of a constant text, through casts and `||`. The inner `None` is NULL, or a parameter of a statement that
/// is only described and has no value yet.
#[expect(clippy::option_option, reason = "no constant, and the constant NULL")]
pub(super) fn folded(expr: &Expr) -> Option<Option<String>> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(Some(text.clone())),
            Value::Null | Value::Placeholder(_) => Some(None),
            _ => None,
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => folded(inner),
        Expr::Cast { expr: inner, data_type, .. } if data_types::is_text(data_type) => folded(inner),
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
    use super::super::expressions::expr;
    use super::*;

    #[test]
    fn parts_are_between_marks() {
        let of = |pattern: &str, escape: &str| {
            similar_part(expr("a").unwrap(), &text(pattern), &text(escape)).map(|found| found.to_string())
        };
        let found = of("%#\"o_a#\"_", "#").unwrap();
        assert_eq!(found, "array_element(regexp_match(a, '(?s)^(?U:.*)(o.a)(?:.)$'), 1)");
        assert_eq!(of("a%", "#").unwrap(), "array_element(regexp_match(a, '(?s)^(a.*)$'), 1)");
        assert!(of("#\"#\"#\"", "#").is_err() && of("a", "##").is_err());
    }

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
            regular(&mut found).unwrap();
            assert_eq!(found, text(expected), "{pattern}");
        };
        check("\\mfoo\\M|\\ybar\\Y", "\\b{start}foo\\b{end}|\\bbar\\B");
        check("\\Aa\\Z", "\\Aa\\z");
        check("[[:<:]]foo[[:>:]]", "\\b{start}foo\\b{end}");
        check("\\[[:<:]]é\\\\[[:>:]]\\é", "\\[[:<:]]é\\\\\\b{end}\\é");
        check("a.b", "(?s)a.b");
        check("(?n)^a.b", "(?m-s)^a.b");
        check("***=\\y", "\\\\y");
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
    #[test]
    fn patterns_say_whose_case_matters() {
        for (pattern, expected) in [
            ("(?c)a", BinaryOperator::PGRegexMatch),
            ("(?-i)a", BinaryOperator::PGRegexMatch),
            ("(?cw)^a.", BinaryOperator::PGRegexMatch),
            ("(?-i:a)b", BinaryOperator::PGRegexIMatch),
            ("(?i)a", BinaryOperator::PGRegexIMatch),
            ("a-i)", BinaryOperator::PGRegexIMatch),
        ] {
            let mut op = BinaryOperator::PGRegexIMatch;
            operator(&mut op, &mut text(pattern)).unwrap();
            assert_eq!(op, expected, "{pattern}");
        }
        let mut any = text(".*");
        operator(&mut BinaryOperator::PGRegexMatch, &mut any).unwrap();
        assert_eq!(any, text(".*"));
    }

    /// Translates a call and returns its arguments as they are then.
    fn called(name: &str, args: &str) -> Result<String> {
        let call = expr(&format!("{name}({args})"))?;
        let Expr::Function(mut function) = call else { panic!("no call") };
        in_call(name, &mut function.args)?;
        Ok(function.args.to_string())
    }

    #[test]
    fn flags_go_with_the_pattern() {
        for (name, args, expected) in [
            ("regexp_replace", "a, 'b.', 'x'", "(a, '(?s)b.', 'x')"),
            ("regexp_replace", "a, '^b', 'x', 'gn'", "(a, '(?m-s)^b', 'x', 'g')"),
            ("regexp_replace", "a, '^b', 'x', 'ni'", "(a, '(?m-s)^b', 'x', 'i')"),
            ("regexp_replace", "a, '^b', 'x', 'p'", "(a, '^b', 'x')"),
            ("regexp_replace", "a, 'b', 'x\\&', ''", "(a, 'b', 'x\\&')"),
            ("regexp_replace_from", "a, '.', 'x', 2, 0, 'q'", "(a, '\\.', 'x', 2, 0)"),
            ("regexp_replace_from", "a, b, 'x', 2, 0, 'gw'", "(a, b, 'x', 2, 0, 'gw')"),
            ("regexp_replace_from", "a, '.', 'x', 2, 0, b", "(a, '.', 'x', 2, 0, b)"),
            ("regexp_replace_from", "a, '.', b, 2", "(a, '(?s).', b, 2)"),
            ("regexp_replace", "a, b, 'x', 'gw'", "(a, b, 'x', 'smg')"),
            ("regexp_like", "a, 'B', 'i'", "(a, 'B', 'i')"),
            ("regexp_like", "a, '.', 'qi'", "(a, '(?i)\\.')"),
            ("regexp_like", "a, b, 'ix'", "(a, b, 'sxi')"),
            ("regexp_like", "a, b, c", "(a, b, c)"),
            ("regexp_match", "a, ('a.'), 'c'", "(a, ('(?s)a.'))"),
            ("regexp_count", "a, 'b c', 1, 'x'", "(a, '(?x)b c', 1)"),
            ("regexp_substr", "a, '^b', 1, 1, 'n', 2", "(a, '(?m-s)^b', 1, 1, '', 2)"),
            ("regexp_like", "a", "(a)"),
            ("regexp_matches", "a, b, 'gw'", "(a, b, 'gw')"),
            ("regexp_matches", "a, '^b.', 'gw'", "(a, '(?ms-U)^b.', 'g')"),
            ("regexp_matches", "a, '^b.', CAST('gw' AS TEXT)", "(a, '(?ms-U)^b.', CAST('g' AS TEXT))"),
            ("regexp_match", "a, 'b', CAST('c' AS TEXT)", "(a, 'b')"),
            // Flags that differ by row.
            ("regexp_matches", "a, '\\y.', b", "(a, '\\b.', b)"),
            ("regexp_split_to_array", "a, '***=.', b", "(a, '***=.', b)"),
            ("regexp_substr", "a, '.', 1, 1, b", "(a, '.', 1, 1, b)"),
            ("regexp_substr", "a, '.', 1, 1", "(a, '(?s).', 1, 1)"),
        ] {
            assert_eq!(called(name, args).unwrap(), expected, "{name}({args})");
        }
        for (args, kind) in [
            ("a, b, 'n'", quiver_types::ErrorKind::Unsupported),
            ("a, b, 'q'", quiver_types::ErrorKind::Unsupported),
            ("a, 'b', 'e'", quiver_types::ErrorKind::Unsupported),
            ("a, 'b', 'z'", quiver_types::ErrorKind::Invalid),
        ] {
            let error = called("regexp_like", args).unwrap_err();
            assert_eq!(error.kind, kind, "{args}: {error}");
        }
    }
}
