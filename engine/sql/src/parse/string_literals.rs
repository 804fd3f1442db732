//! Makes texts survive being printed and parsed again, which rewritten parts of a statement are. The printer takes
//! two consecutive quotes, and a quote behind a backslash, for escaped quotes, so the text would change, or end early
//! and have its rest read as SQL. Such texts are held as escape strings (`E'…'`), which are printed correctly.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Value, ValueWithSpan, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::tokenizer::Token;
use quiver_types::{Error, ErrorKind, Result};

use crate::statement_walk::walk_mut;

/// A literal that is read back as the same text.
pub(crate) fn literal(text: String) -> Value {
    if is_taken_for_escaped(&text, '\'') { Value::EscapedStringLiteral(text) } else { Value::SingleQuotedString(text) }
}

/// Converts all text literals of a part of a statement, however they are quoted.
pub(crate) fn keep(part: &mut impl VisitMut) {
    let _ = walk_mut(part, &mut LiteralRewriter);
}

/// Refuses quoted names that would not be read back unchanged, since they cannot be written otherwise.
///
/// # Errors
///
/// Unsupported: there is such a name.
pub(super) fn readable_names(tokens: &[Token]) -> Result<()> {
    let is_other = |token: &&Token| match token {
        Token::Word(word) => word.quote_style.is_some() && is_taken_for_escaped(&word.value, '"'),
        _ => false,
    };
    let Some(name) = tokens.iter().find(is_other) else { return Ok(()) };
    let text = format!(
        "the name {name} has two quotes one behind the other, or one behind a backslash: such names are not supported"
    );
    Err(Error::new(ErrorKind::Unsupported, text))
}

/// Whether the printer would take quotes in a text for escaped ones.
fn is_taken_for_escaped(text: &str, quote: char) -> bool {
    let mut before = '\0';
    text.chars().any(|letter| {
        let is_escaped = letter == quote && (before == '\\' || before == quote);
        before = letter;
        is_escaped
    })
}

struct LiteralRewriter;

impl VisitorMut for LiteralRewriter {
    type Break = ();

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
        let text = match &mut value.value {
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::UnicodeStringLiteral(text)
            | Value::NationalStringLiteral(text) => std::mem::take(text),
            Value::DollarQuotedString(text) => std::mem::take(&mut text.value),
            _ => return ControlFlow::Continue(()),
        };
        value.value = literal(text);
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Params, ReadStatement, parse, parse_open};

    fn printed(statement: &str, params: &Params) -> String {
        let ReadStatement::Query(query) = parse(statement, params).expect(statement).statement else {
            panic!("no query")
        };
        query.to_string()
    }

    #[test]
    fn printed_texts_are_read_again_as_the_same() {
        for text in [
            "",
            "it's",
            "''",
            "a''b",
            "'''",
            "\\",
            "a\\",
            "\\'",
            "\\''",
            "'\\''\\",
            "\\\\'",
            "\n'\t'\r''",
            "ä''ö\\'",
            "\\') || (select 5), null) --",
        ] {
            let params = Params::of_json(&serde_json::json!([text])).unwrap();
            let once = printed("select $1", &params);
            let again = printed(&once, &Params::default());
            assert_eq!(once, again, "{text}");
            let ReadStatement::Query(mut query) = parse_open(&once).expect(&once).statement else {
                panic!("no query: {once}")
            };
            let mut found = Texts(Vec::new());
            let _ = walk_mut(&mut query, &mut found);
            assert_eq!(found.0, [text], "{once}");
        }
    }

    struct Texts(Vec<String>);

    impl VisitorMut for Texts {
        type Break = ();

        fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
            self.0.extend(value.value.clone().into_string());
            ControlFlow::Continue(())
        }
    }

    #[test]
    fn texts_in_any_quotes_are_literals() {
        for (written, expected) in [
            ("'it''s'", "'it''s'"),
            ("E'it\\'s'", "'it''s'"),
            ("N'it''s'", "'it''s'"),
            ("U&'it''\\0061'", "'it''a'"),
            ("$$it's$$", "'it''s'"),
            ("$$''$$", r"E'\'\''"),
            ("'a''''b'", r"E'a\'\'b'"),
            (r"'a\''b'", r"E'a\\\'b'"),
            (r"E'a\\b'", r"'a\b'"),
            ("date E'2024-01-01'", "DATE '2024-01-01'"),
            ("a like 'b''''' escape N'c'", r"a LIKE E'b\'\'' ESCAPE 'c'"),
        ] {
            let found = printed(&format!("select {written}"), &Params::default());
            assert_eq!(found, format!("SELECT {expected}"), "{written}");
        }
    }

    #[test]
    fn names_that_cannot_be_read_again_are_refused() {
        for statement in [r#"select "a""""b" from t"#, r#"select 1 as "a\""b""#] {
            let error = parse(statement, &Params::default()).expect_err(statement);
            assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
        }
        for statement in [r#"select "a""b" from "t\u""#, r"select 'a\''b', ''''''"] {
            parse(statement, &Params::default()).unwrap_or_else(|e| panic!("{statement}: {e}"));
        }
    }
}
