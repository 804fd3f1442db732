//! Canonical text of queries: reading it gives the same query again.

mod filter;
pub(crate) mod math;
pub(crate) mod stats;

use std::fmt::{self, Display, Formatter};

use crate::ast::{FieldPattern, Options, Query};
use crate::lexer::{is_word_char, quote};

impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.options, self.filter)?;
        for pipe in &self.pipes {
            write!(f, " | {pipe}")?;
        }
        Ok(())
    }
}

impl Display for Options {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut all = Vec::new();
        let mut add = |name: &str, value: Option<String>| all.extend(value.map(|value| format!("{name}={value}")));
        add("concurrency", self.concurrency.map(|n| n.to_string()));
        add("parallel_readers", self.parallel_readers.map(|n| n.to_string()));
        add("ignore_global_time_filter", self.ignore_global_time_filter.map(|b| b.to_string()));
        add("time_offset", self.time_offset.as_ref().map(|d| d.text.clone()));
        add("global_filter", self.global_filter.as_ref().map(|filter| format!("({filter})")));
        add("allow_partial_response", self.allow_partial_response.map(|b| b.to_string()));
        if all.is_empty() { Ok(()) } else { write!(f, "options({}) ", all.join(", ")) }
    }
}

/// A text as a word of a query, in quotes where it could be read as something else: by the names of all that can stand
/// there, which are above what is printed (`reserved_words`).
pub(crate) struct Word<'a>(pub(crate) &'a str);

/// A name among the arguments of a stats function, where fewer words mean something else: the texts of functions are the
/// names of their results, so they are written as the reference writes them.
pub(crate) struct ArgumentName<'a>(pub(crate) &'a str);

/// Writes a word, in quotes where it could be read as something else.
pub(crate) fn word(text: &str) -> String {
    Word(text).to_string()
}

/// Writes a literal that begins like a number as it is: signs and units in it need no quotes.
pub(crate) fn literal(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+'))
        && text.chars().all(|c| is_word_char(c) || matches!(c, '.' | '-' | '+' | ':' | '/'));
    if plain { text.to_owned() } else { word_or_infinity(text) }
}

/// Writes the number of a range or comparison as it is, in quotes where a blank would end it: a time may have one.
pub(crate) fn bound(text: &str) -> String {
    if text.contains(char::is_whitespace) { quote(text) } else { text.to_owned() }
}

fn word_or_infinity(text: &str) -> String {
    if matches!(text.to_ascii_lowercase().as_str(), "inf" | "now") { text.to_owned() } else { word(text) }
}

impl Display for FieldPattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(&word(name)),
            Self::Prefix(prefix) if prefix.is_empty() => f.write_str("*"),
            Self::Prefix(prefix) => write!(f, "{}*", word(prefix)),
        }
    }
}

/// Joins with `, `.
pub(crate) fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Writes `a, b*`.
pub(crate) fn patterns(fields: &[FieldPattern]) -> String {
    list(fields, ToString::to_string)
}

/// `a desc, b`.
pub(crate) fn sort_fields(by: &[(String, bool)]) -> String {
    list(by, |(field, descending)| format!("{}{}", word(field), if *descending { " desc" } else { "" }))
}

#[cfg(test)]
mod tests;
