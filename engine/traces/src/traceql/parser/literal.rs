//! Literals: texts, numbers, durations, words.

use quiver_types::time::duration::parse_nanos;

use super::super::expressions::ExprValue;
use super::{Parser, Result};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Text(String),
    /// With its text as it was written.
    Number(f64, String),
    /// A duration in nanoseconds.
    Nanos(i64),
    Bool(bool),
    Nil,
    /// A word: a status or a kind.
    Word(String),
}

impl Literal {
    /// Gives a duration as the number of its nanoseconds, all else as it is.
    pub(super) fn or_number(self) -> Self {
        match self {
            Self::Nanos(nanos) => Self::Number(nanos as f64, nanos.to_string()),
            other => other,
        }
    }

    /// Gives the value that it stands for; none of what has no value.
    pub(super) fn value(self) -> Option<ExprValue> {
        Some(match self {
            Self::Number(v, text) => text.parse::<i64>().map_or(ExprValue::Number(v), ExprValue::Whole),
            Self::Nanos(nanos) => ExprValue::Nanos(nanos),
            Self::Text(text) => ExprValue::Text(text),
            Self::Bool(v) => ExprValue::Bool(v),
            Self::Nil | Self::Word(_) => return None,
        })
    }
}

/// Gives the character whose number a text begins with, in so many hexadecimal digits; two stand for those of one byte.
fn numbered(text: &str, digits: usize) -> Option<char> {
    let number = text.get(..digits).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
    let number = u32::from_str_radix(number, 16).ok()?;
    char::from_u32(number).filter(|c| digits > 2 || c.is_ascii())
}

impl Parser<'_> {
    /// Reads a text in quotes.
    pub(super) fn quoted(&mut self) -> Result<String> {
        let begin = self.at;
        let mut chars = self.rest().char_indices();
        let quote = chars.next().map_or('"', |c| c.1);
        let mut out = String::new();
        while let Some((i, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.at += i + c.len_utf8();
                    return Ok(out);
                }
                '\\' if quote == '"' => match chars.next().map(|c| c.1) {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('r') => out.push('\r'),
                    Some(c @ ('"' | '\\')) => out.push(c),
                    Some(c @ ('x' | 'u' | 'U')) => {
                        let digits = match c {
                            'x' => 2,
                            'u' => 4,
                            _ => 8,
                        };
                        match numbered(&self.rest()[chars.offset()..], digits) {
                            Some(shown) => {
                                out.push(shown);
                                chars.nth(digits - 1);
                            }
                            None => out.extend(['\\', c]),
                        }
                    }
                    // Regular expressions are often written without doubling.
                    Some(c) => out.extend(['\\', c]),
                    None => break,
                },
                c => out.push(c),
            }
        }
        Err(self.error_at(begin, "a text that does not end"))
    }

    /// Whether a number comes next, which may begin with its point.
    pub(super) fn is_number(&self) -> bool {
        let rest = self.rest();
        rest.starts_with('-') || rest.strip_prefix('.').unwrap_or(rest).starts_with(|c: char| c.is_ascii_digit())
    }

    /// Whether a sign comes next that stands apart from its number, or before parentheses.
    pub(super) fn is_negation(&self) -> bool {
        let rest = self.rest().strip_prefix('-').map(|rest| rest.strip_prefix('.').unwrap_or(rest));
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// Reads a number, or a duration in nanoseconds.
    pub(super) fn number(&mut self) -> Result<Literal> {
        let begin = self.at;
        let negative = self.rest().starts_with('-');
        self.at += usize::from(negative);
        let digits = self.take(|c| c.is_ascii_digit() || c == '.');
        let exponent = self.rest().starts_with(['e', 'E'])
            && self.rest()[1..].trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_digit());
        if exponent {
            self.at += 1;
            self.at += usize::from(self.rest().starts_with(['+', '-']));
            self.take(|c| c.is_ascii_digit());
        }
        let unit = self.take(|c| c.is_alphanumeric() || c == '.');
        let text = &self.text[begin..self.at];
        let wrong = || self.error_at(begin, format!("`{text}` is neither a number nor a duration"));
        if unit.is_empty() {
            // Whole numbers have 64 bits.
            let fits = exponent || digits.contains('.') || digits.parse::<i64>().is_ok();
            let value = text.parse::<f64>().ok().filter(|n| fits && n.is_finite());
            return value.map(|v| Literal::Number(v, text.to_owned())).ok_or_else(wrong);
        }
        let nanos = parse_nanos(text.trim_start_matches('-')).ok_or_else(wrong)?;
        let nanos = if negative { -nanos } else { nanos };
        Ok(Literal::Nanos(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_may_be_written_as_numbers() {
        for (text, expected) in [
            (r#""ro\x6ft""#, "root"),
            (r#""k\u00e4se \U0001F600!""#, "käse 😀!"),
            (r#""a\"b\\c\n""#, "a\"b\\c\n"),
            // What is none stays, as do the classes of regular expressions.
            (r#""\d+\.\bx""#, r"\d+\.\bx"),
            (r#""\xff \xg0 \u12 \ud800 \U00110000""#, r"\xff \xg0 \u12 \ud800 \U00110000"),
            (r#""\u12é\x""#, r"\u12é\x"),
            (r"`\x6f`", r"\x6f"),
        ] {
            assert_eq!(Parser::of(text).quoted().unwrap(), expected, "{text}");
        }
    }
}
