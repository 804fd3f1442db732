//! Contexts within a script, and the escaping of values in them.

use std::fmt::Write as _;

use super::super::value::{ListKind, MapKind, Value};

/// The context within a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Script {
    #[default]
    Code,
    /// After a `/`, which may begin a comment.
    Slash,
    /// Within a string, with its closing quote.
    Text(char),
    /// After a backslash in a string.
    Escape(char),
    LineComment,
    Comment,
    /// After a `*`, which may end a comment.
    Star,
}

impl Script {
    /// Advances over a character.
    pub(super) fn next(self, c: char) -> Self {
        match (self, c) {
            (Self::Code | Self::Slash, '"' | '\'' | '`') => Self::Text(c),
            (Self::Slash, '/') => Self::LineComment,
            (Self::Slash, '*') => Self::Comment,
            (Self::Code, '/') => Self::Slash,
            (Self::Text(quote), '\\') => Self::Escape(quote),
            (Self::Text(quote), c) if c == quote => Self::Code,
            // Only template literals may span lines.
            (Self::Code | Self::Slash, _) | (Self::Text('"' | '\'') | Self::LineComment, '\n') | (Self::Star, '/') => {
                Self::Code
            }
            (Self::Escape(quote), _) => Self::Text(quote),
            (Self::Comment | Self::Star, '*') => Self::Star,
            (Self::Star, _) => Self::Comment,
            (same @ (Self::Text(_) | Self::LineComment | Self::Comment), _) => same,
        }
    }
}

/// Escapes a text for a string literal.
pub(super) fn script_text(text: &str, quote: char) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\x0c' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '/' => out.push_str("\\/"),
            '\\' => out.push_str("\\\\"),
            '\0' | '\x0b' | '"' | '&' | '\'' | '+' | '<' | '>' | '`' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            // In a template literal they begin an expression.
            '$' | '{' | '}' if quote == '`' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

/// Writes a value as a JavaScript literal. What has a text of its own in Go is that text.
pub(super) fn script_value(value: &Value, shown: &str) -> String {
    let mut json = String::new();
    let is_text = match value {
        Value::Duration(_) | Value::Named(..) | Value::Histogram(_) => true,
        Value::Map(map) => map.kind == MapKind::Labels,
        Value::List(list) => list.kind == ListKind::Pairs,
        _ => false,
    };
    if is_text {
        Value::text(shown).json(&mut json);
    } else {
        value.json(&mut json);
    }
    // It must not become one word with what stands beside it.
    let in_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$');
    if json.starts_with(in_word) || json.ends_with(in_word) { format!(" {json} ") } else { json }
}

#[cfg(test)]
mod tests {
    use super::super::super::Time;
    use super::super::tests::check;
    use super::{MapKind, Value};

    #[test]
    fn within_scripts() {
        let script = |body: &str, value: &str, expected: &str| {
            check(&format!("<script>{body}</script>"), Value::text(value), &format!("<script>{expected}</script>"));
        };
        script("a = \"{{.}}\"", "it's \"b\"", "a = \"it\\u0027s \\u0022b\\u0022\"");
        script("a = '\\'{{.}}' + {{.}}", "x/y", "a = '\\'x\\/y' + \"x/y\"");
        script("a = `{{.}}`, b = '{{.}}'", "${x}", "a = `\\u0024\\u007bx\\u007d`, b = '${x}'");
        script("// it's {{.}}\nb = {{.}}", "x", "// it's \nb = \"x\"");
        script("/* \" */ b = 1 / {{.}}", "x", "/* \" */ b = 1 / \"x\"");
        check("<p onclick=\"f('{{.}}')\">", Value::text("a'b"), "<p onclick=\"f('a\\u0027b')\">");
    }

    #[test]
    fn values_of_scripts() {
        let script = |value: Value, expected: &str| {
            check("<script>x={{.}}</script>", value, &format!("<script>x={expected}</script>"));
        };
        script(Value::Bool(true), " true ");
        script(Value::Nil, " null ");
        script(Value::Time(Time::from_nanos(0)), "\"1970-01-01T00:00:00Z\"");
        script(Value::text_map(MapKind::Labels, [("b", "1"), ("a", "2")]), "\"a=2, b=1\"");
        script(Value::text_map(MapKind::Texts, [("a", "2")]), "{\"a\":\"2\"}");
        script(Value::Int(-5), " -5 ");
        script(Value::Float(0.5), " 0.5 ");
        script(Value::text("5"), "\"5\"");
        script(Value::Duration(1_500_000_000), "\"1.5s\"");
        script(Value::texts(["a", "<"]), "[\"a\",\"\\u003c\"]");
    }
}
