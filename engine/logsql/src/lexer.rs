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
    use proptest::collection::vec;
    use proptest::prelude::*;

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

    #[test]
    fn letters_signs_and_blanks_of_all_scripts() {
        check("日本語:é_1", &["日本語", ":", "é_1"]);
        check("a\u{3000}b\u{a0}c\u{2028}d", &["a", "b", "c", "d"]);
        check("a😀b", &["a", "😀", "b"]);
        check("\u{0}a\u{200b}", &["\u{0}", "a", "\u{200b}"]);
        check("..1.2.", &["..1.2."]);
        check("a\r\nb", &["a", "b"]);
    }

    #[test]
    fn signs_of_two_characters_are_taken_first() {
        check("a!=~b", &["a", "!=", "~", "b"]);
        check("a=~~b", &["a", "=~", "~", "b"]);
        check("a!!=b", &["a", "!", "!=", "b"]);
        check("a==~b", &["a", "=", "=~", "b"]);
        check("a= ~b", &["a", "=", "~", "b"]);
        check("a<=b>=c", &["a", "<", "=", "b", ">", "=", "c"]);
    }

    #[test]
    fn a_comment_ends_with_its_line_and_stands_in_no_quotes() {
        check("# all of it", &[]);
        check("a#b\nc", &["a", "c"]);
        check("#\n#\n\n a", &["a"]);
        check("'#' \"a # b\" `#`", &["#", "a # b", "#"]);
        check("a # it's \"half\nb", &["a", "b"]);
    }

    #[test]
    fn what_is_quoted_is_no_keyword() {
        let found = tokens("AND 'and' `|` | and2").expect("a valid text");
        let is = |at: usize, keyword: &str| found[at].is(keyword);
        assert!(is(0, "and") && is(0, "And") && !is(0, "or"));
        assert!(!is(1, "and") && !is(2, "|") && is(3, "|") && !is(4, "and"));
        assert!(found[0].is_any(&["or", "and"]) && !found[1].is_any(&["or", "and"]) && !found[0].is_any(&[]));
        let words: Vec<bool> = found.iter().map(Token::is_word).collect();
        assert_eq!(words, [true, false, false, false, true, false]);
    }

    #[test]
    fn places_are_told_in_characters() {
        let fault = |query: &str| tokens(query).expect_err(query).message;
        assert_eq!(fault("жж 'a"), "missing closing quote of the text that begins here at offset 3");
        assert_eq!(fault("😀:`a"), "missing closing quote of the text that begins here at offset 2");
        assert_eq!(fault("é \"a\\q\""), "unknown escape `\\q` at offset 2");
    }

    /// What queries are made of, whatever stands beside it.
    const PARTS: [&str; 26] = [
        "a", "foo.bar", "Ж1", "_x", "-", ":", "=", "=~", "!~", "!=", "!", "~", "|", "(", ")", "*", " ", "\t",
        "\u{3000}", "# c\n", "\"q w\"", "'it\\'s'", "`r\\`", "{", "😀", "''",
    ];

    proptest! {
        /// Breaks if a part of a query is lost or read twice: words are joined of what adjacent tokens were written as.
        #[test]
        fn tokens_and_what_is_between_them_are_the_query(parts in vec(0..PARTS.len(), 0..16)) {
            let query: String = parts.iter().map(|&part| PARTS[part]).collect();
            let found = tokens(&query).expect("whole parts");
            let mut end = 0;
            for token in &found {
                let between = &query[end..token.offset];
                prop_assert_eq!(token.spaced, !between.is_empty(), "{}", query);
                prop_assert!(between.chars().all(|c| c.is_whitespace() || "#c".contains(c)), "{query}");
                end = token.offset + token.raw.len();
                prop_assert_eq!(token.raw, &query[token.offset..end]);
                prop_assert!(token.quoted || token.text == token.raw, "{query}");
                prop_assert!(!token.quoted || token.raw.len() >= token.text.len() + 2, "{query}");
            }
            let last = found.last().expect("the end is one");
            prop_assert_eq!((last.raw, last.offset), ("", query.len()));
            prop_assert!(found[..found.len() - 1].iter().all(|token| !token.raw.is_empty()));
        }
    }
}
