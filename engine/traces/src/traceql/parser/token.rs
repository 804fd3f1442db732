//! Names the token that was found where another was expected, in Tempo's words: its clients show these errors, and
//! recorded responses of Tempo are compared with them.

use super::super::error::TraceqlError;
use super::{Parser, Result};

/// Words with a meaning of their own.
const WORDS: &[&str] = &[
    "true",
    "false",
    "nil",
    "ok",
    "error",
    "unset",
    "unspecified",
    "internal",
    "server",
    "client",
    "producer",
    "consumer",
    "duration",
    "childCount",
    "name",
    "status",
    "statusMessage",
    "kind",
    "rootName",
    "rootServiceName",
    "rootService",
    "traceDuration",
    "nestedSetLeft",
    "nestedSetRight",
    "nestedSetParent",
    "id",
    "traceID",
    "spanID",
    "parentID",
    "timeSinceStart",
    "version",
    "parent",
    "count",
    "avg",
    "max",
    "min",
    "sum",
    "by",
    "coalesce",
    "select",
    "rate",
    "count_over_time",
    "min_over_time",
    "max_over_time",
    "avg_over_time",
    "sum_over_time",
    "quantile_over_time",
    "histogram_over_time",
    "compare",
    "topk",
    "bottomk",
    "with",
];
/// Words that make one token with a dot behind them, and with a colon.
const BEFORE_DOT: [&str; 6] = ["parent", "resource", "span", "event", "link", "instrumentation"];
const BEFORE_COLON: [&str; 5] = ["trace", "span", "event", "link", "instrumentation"];
/// Signs, longer ones before those that they begin with.
const SIGNS: &[&str] = &[
    "!>>", "!<<", "&>>", "&<<", "!=", "!~", "=~", ">=", "<=", "&&", "||", ">>", "<<", "!>", "!<", "&~", "&>", "&<",
    ",", ".", "{", "}", "(", ")", "=", ">", "<", "+", "-", "/", "%", "*", "^", "!", "|", "~",
];

/// Gives the name of the token that a text begins with.
fn token(text: &str) -> &str {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return "$end" };
    match first {
        '"' | '`' => "STRING",
        '0'..='9' => number(text),
        '.' if chars.next().is_some_and(|c| c.is_ascii_digit()) => number(text),
        c if c.is_alphabetic() || c == '_' => word(text),
        _ => SIGNS.iter().copied().find(|sign| text.starts_with(*sign)).unwrap_or("IDENTIFIER"),
    }
}

fn number(text: &str) -> &'static str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '.').unwrap_or(text.len());
    match &text[..end] {
        all if all.bytes().all(|b| b.is_ascii_digit()) => "INTEGER",
        all if all.parse::<f64>().is_ok() => "FLOAT",
        _ => "DURATION",
    }
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let is_place = match rest.chars().next() {
        Some('.') => BEFORE_DOT.contains(&word),
        Some(':') => BEFORE_COLON.contains(&word),
        _ => false,
    };
    if is_place {
        &text[..=end]
    } else if WORDS.contains(&word) {
        word
    } else {
        "IDENTIFIER"
    }
}

impl Parser<'_> {
    /// Says that what stands here was not expected.
    pub(super) fn unexpected(&self) -> TraceqlError {
        self.error_at(self.at, format!("syntax error: unexpected {}", token(self.rest())))
    }

    /// Says, too, which few tokens were.
    pub(super) fn unexpected_for(&self, expected: &str) -> TraceqlError {
        self.error_at(self.at, format!("syntax error: unexpected {}, expecting {expected}", token(self.rest())))
    }

    /// Takes a sign, in whose place much else could stand.
    pub(super) fn expect(&mut self, sign: &str) -> Result<()> {
        if self.eat(sign) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Takes the sign behind what can only be followed by these.
    pub(super) fn expect_of(&mut self, sign: &str, expected: &str) -> Result<()> {
        if self.eat(sign) { Ok(()) } else { Err(self.unexpected_for(expected)) }
    }

    /// Takes a sign that nothing else can stand for.
    pub(super) fn expect_only(&mut self, sign: &str) -> Result<()> {
        self.expect_of(sign, sign)
    }

    /// Says whether a whole number comes next.
    pub(super) fn is_integer(&self) -> bool {
        token(self.rest()) == "INTEGER"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tokens() {
        for (text, expected) in [
            ("", "$end"),
            ("\"a\"", "STRING"),
            ("`a`", "STRING"),
            ("12)", "INTEGER"),
            (".5 ", "FLOAT"),
            ("1.5e3", "FLOAT"),
            ("1.5ms", "DURATION"),
            (".a", "."),
            ("span.a", "span."),
            ("span:id", "span:"),
            ("trace.a", "IDENTIFIER"),
            ("topk(1)", "topk"),
            ("größe", "IDENTIFIER"),
            ("!>> {}", "!>>"),
            ("<>", "<"),
            ("==", "="),
            ("]", "IDENTIFIER"),
        ] {
            assert_eq!(token(text), expected, "{text}");
        }
    }
}
