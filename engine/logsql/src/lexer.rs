//! Text → tokens. A token is a run of letters, digits, `_` and `.`, a quoted text, or one sign; each knows its source text
//! and whether blanks stood before it, because adjacent tokens may form one word (`foo-bar/baz`).

mod quote;

pub(crate) use quote::{quote, unquote};

use crate::error::{Result, at};

/// A word, a quoted text or a sign of a query, with where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token<'a> {
    /// What it means: without quotes and escapes.
    pub(crate) text: std::borrow::Cow<'a, str>,
    /// As written, quotes and escapes included.
    pub(crate) raw: &'a str,
    /// Whether it was quoted: then it is never a keyword.
    pub(crate) quoted: bool,
    /// Whether blanks or a comment stood before it.
    pub(crate) spaced: bool,
    /// Byte offset in the query.
    pub(crate) offset: usize,
}

impl Token<'_> {
    /// Whether it is this keyword or sign; case of letters does not count.
    pub(crate) fn is(&self, keyword: &str) -> bool {
        !self.quoted && self.text.eq_ignore_ascii_case(keyword)
    }

    /// Whether it is one of them.
    pub(crate) fn is_any(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.is(keyword))
    }

    /// Whether it is a run of word characters.
    pub(crate) fn is_word(&self) -> bool {
        !self.quoted && self.text.chars().next().is_some_and(is_word_char)
    }
}

/// Whether a character belongs to words.
pub(crate) fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Signs of two characters that are one token.
const PAIRS: &[&str] = &["=~", "!~", "!="];

/// Cuts a query into tokens; the last one is the empty text at the end.
pub(crate) fn tokens(query: &str) -> Result<Vec<Token<'_>>> {
    let mut found = Vec::new();
    let mut offset = 0;
    loop {
        let start = skip_blanks(query, offset);
        let rest = &query[start..];
        let spaced = start > offset;
        let Some(first) = rest.chars().next() else {
            found.push(Token { text: "".into(), raw: "", quoted: false, spaced, offset: start });
            return Ok(found);
        };
        let (text, len, quoted) = match first {
            '"' | '\'' | '`' => match unquote(rest) {
                Ok((text, len)) => (text, len, true),
                // A quote that nothing ends may stand within a word.
                Err(_) if !spaced && found.last().is_some_and(Token::is_word) => (rest[..1].into(), 1, false),
                Err(fault) => return Err(at(query, start, fault)),
            },
            c if is_run_char(c) => {
                let len = rest.find(|c| !is_run_char(c)).unwrap_or(rest.len());
                (rest[..len].into(), len, false)
            }
            c => {
                let pair = PAIRS.iter().find(|pair| rest.starts_with(**pair));
                let len = pair.map_or(c.len_utf8(), |pair| pair.len());
                (rest[..len].into(), len, false)
            }
        };
        found.push(Token { text, raw: &rest[..len], quoted, spaced, offset: start });
        offset = start + len;
    }
}

fn is_run_char(c: char) -> bool {
    is_word_char(c) || c == '.'
}

/// Gives the offset of the next character that is neither blank nor part of a comment.
fn skip_blanks(query: &str, mut offset: usize) -> usize {
    loop {
        let rest = &query[offset..];
        let trimmed = rest.trim_start();
        offset += rest.len() - trimmed.len();
        if !trimmed.starts_with('#') {
            return offset;
        }
        offset += trimmed.find('\n').map_or(trimmed.len(), |end| end + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, expected: &[&str]) {
        let found = tokens(query).expect("a valid text");
        let texts: Vec<_> = found[..found.len() - 1].iter().map(|t| t.text.as_ref()).collect();
        assert_eq!(texts, expected, "{query}");
    }

    #[test]
    fn cuts() {
        check("  ", &[]);
        check("foo-bar:1.5ms", &["foo", "-", "bar", ":", "1.5ms"]);
        check("`foo, bar`* AND 'd\\'\"x'", &["foo, bar", "*", "AND", "d'\"x"]);
        check("{foo=\"bar\",a=~b, c != 'd'}", &["{", "foo", "=", "bar", ",", "a", "=~", "b", ",", "c", "!=", "d", "}"]);
        check("a # b | c\n| d #e", &["a", "|", "d"]);
        check("a:>=1", &["a", ":", ">", "=", "1"]);
        check("a\"b, c", &["a", "\"", "b", ",", "c"]);
        assert!(tokens("\"foo").is_err() && tokens("a \"foo").is_err());
    }
}
