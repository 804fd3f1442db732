//! The older syntax: classic label names; values may be unquoted, and a backslash is literal unless it escapes
//! something.

use quiver_types::matcher::Patterns;
use quiver_types::{MatchOp, Matcher};

use super::syntax::{MatcherError, matcher_among};

/// Parses matchers.
///
/// # Errors
/// In the words of Alertmanager's older parser.
pub fn parse(text: &str) -> Result<Vec<Matcher>, MatcherError> {
    among(text, &mut Patterns::default())
}

/// Parses some of several whose patterns are bounded together.
pub(super) fn among(text: &str, patterns: &mut Patterns) -> Result<Vec<Matcher>, MatcherError> {
    let text = text.strip_prefix('{').unwrap_or(text);
    let text = text.strip_suffix('}').unwrap_or(text);
    let (mut tokens, mut token) = (Vec::new(), String::new());
    let (mut inside, mut escaped) = (false, false);
    for c in text.chars() {
        match c {
            ',' if !inside => {
                tokens.push(std::mem::take(&mut token));
                continue;
            }
            // As in Alertmanager, a comma within quotes does not reset `escaped`.
            ',' => {}
            '"' if escaped => escaped = false,
            '"' => inside = !inside,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
        token.push(c);
    }
    let last = token.trim();
    if !last.is_empty() {
        tokens.push(last.to_owned());
    }
    tokens.iter().map(|t| matcher(t, patterns)).collect()
}

/// Splits a matcher into name, operator and raw value.
fn cut(text: &str) -> Option<(&str, MatchOp, &str)> {
    // Go's `\s`, which is ASCII only.
    let space = |c: char| matches!(c, ' ' | '\t' | '\n' | '\x0c' | '\r');
    let rest = text.trim_start_matches(space);
    let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))).unwrap_or(rest.len());
    if length == 0 || rest.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (name, rest) = rest.split_at(length);
    let rest = rest.trim_start_matches(space);
    let ops = [("=~", MatchOp::Regex), ("=", MatchOp::Equal), ("!=", MatchOp::NotEqual), ("!~", MatchOp::NotRegex)];
    let (written, op) = ops.into_iter().find(|(op, _)| rest.starts_with(op))?;
    Some((name, op, rest[written.len()..].trim_matches(space)))
}

/// Parses one matcher.
pub(super) fn matcher(text: &str, patterns: &mut Patterns) -> Result<Matcher, MatcherError> {
    let (name, op, raw) = cut(text).ok_or_else(|| MatcherError::new(0, format!("bad matcher format: {text}")))?;
    let unescaped = || MatcherError::new(0, format!("matcher value contains unescaped double quote: {raw}"));
    let (body, mut open) = raw.strip_prefix('"').map_or((raw, false), |body| (body, true));
    let mut value = String::new();
    let mut chars = body.char_indices();
    while let Some((i, c)) = chars.next() {
        let is_last = i + 1 >= body.len();
        match c {
            '\\' if !is_last => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, c @ ('"' | '\\'))) => value.push(c),
                // Not an escape, so both characters are literal.
                Some((_, c)) => value.extend(['\\', c]),
                None => value.push('\\'),
            },
            '"' if !open || !is_last => return Err(unescaped()),
            '"' => open = false,
            c => value.push(c),
        }
    }
    if open {
        return Err(unescaped());
    }
    matcher_among(name, op, value, patterns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matchers::show;

    #[test]
    fn accepted() {
        let check = |text: &str, expected: &str| {
            let got = parse(text).map(|m| m.iter().map(show).collect::<Vec<_>>().join(","));
            assert_eq!(got.as_deref(), Ok(expected), "{text}");
        };
        check("{}", "");
        check("{foo = \"bar\", dings != \"bums\", }", "foo=\"bar\",dings!=\"bums\"");
        check("tricky=~~~", "tricky=~\"~~\"");
        check("{foo=bar}}", "foo=\"bar}\"");
        check("{foo=bar\\t}", "foo=\"bar\\\\t\"");
        check("{foo=bar\\\"}", "foo=\"bar\\\"\"");
        check("{foo=}b", "foo=\"}b\"");
        check("a=\"b,c\",d=e", "a=\"b,c\",d=\"e\"");
    }

    #[test]
    fn refused() {
        for t in [
            ",",
            "{,}",
            "job=\"v",
            "job=v\"",
            "a b=c",
            "{{foo=",
            "\"foo=\"bar\"\"",
            "1a=b",
            "{foo=~\"invalid[regexp\"}",
        ] {
            assert!(parse(t).is_err(), "{t}");
        }
    }

    /// From Alertmanager's own tests.
    #[test]
    fn values_and_escapes() {
        let check = |text: &str, expected: (&str, MatchOp, &str)| {
            let got = matcher(text, &mut Patterns::default()).expect(text);
            assert_eq!((got.name.as_str(), got.op, got.value.as_str()), expected, "{text}");
        };
        let (equal, regex) = (MatchOp::Equal, MatchOp::Regex);
        check("foo=bar", ("foo", equal, "bar"));
        check("  foo\t=\nbar  ", ("foo", equal, "bar"));
        check("foo!=bar", ("foo", MatchOp::NotEqual, "bar"));
        check("foo!~ba.*", ("foo", MatchOp::NotRegex, "ba.*"));
        check("foo=~\"ba.*\"", ("foo", regex, "ba.*"));
        check("foo=", ("foo", equal, ""));
        check("foo=\"\"", ("foo", equal, ""));
        check("foo=\" bar \"", ("foo", equal, " bar "));
        check("foo=a b", ("foo", equal, "a b"));
        check("foo=a=b", ("foo", equal, "a=b"));
        check("foo==b", ("foo", equal, "=b"));
        check("foo=!~b", ("foo", equal, "!~b"));
        check("_:a1=b", ("_:a1", equal, "b"));
        check("foo=bär", ("foo", equal, "bär"));
        check("foo=\"a\\nb\"", ("foo", equal, "a\nb"));
        check("foo=\"a\\\\b\"", ("foo", equal, "a\\b"));
        check("foo=\"a\\tb\"", ("foo", equal, "a\\tb"));
        check("foo=\"a\\\"b\"", ("foo", equal, "a\"b"));
        // A backslash at the end is literal.
        check("foo=a\\", ("foo", equal, "a\\"));
        check("foo=a,b", ("foo", equal, "a,b"));
        check("foo={b}", ("foo", equal, "{b}"));
    }

    #[test]
    fn told_why() {
        let check = |text: &str, expected: &str| {
            let told = parse(text).expect_err(text);
            assert_eq!((told.column, told.message.as_str()), (0, expected), "{text}");
        };
        check("foo", "bad matcher format: foo");
        check("{foo}", "bad matcher format: foo");
        check("=bar", "bad matcher format: =bar");
        check("fo-o=bar", "bad matcher format: fo-o=bar");
        check("föo=bar", "bad matcher format: föo=bar");
        check("foo!bar", "bad matcher format: foo!bar");
        let quote = "matcher value contains unescaped double quote: ";
        check("a=\"b,c", &format!("{quote}\"b,c"));
        check("a=b\"", &format!("{quote}b\""));
        check("a=\"b\"c", &format!("{quote}\"b\"c"));
        check("a=\"b\\\"", &format!("{quote}\"b\\\""));
        // The first error is reported.
        check("a=1,b,c=\"", "bad matcher format: b");
    }
}
