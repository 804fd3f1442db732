//! Parses `EXPLAIN (option [value], …)` of PostgreSQL.

use datafusion::sql::sqlparser::ast::{Expr, Ident, UtilityOption, Value};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use quiver_types::{Error, Result};

use crate::error::{of_parser, unreadable};

/// How a statement is to be explained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ExplainOptions {
    /// Whether the statement is run (`ANALYZE`).
    pub(crate) analyze: bool,
    /// Whether clients that read lines get one JSON document.
    pub(crate) as_json: bool,
}

/// Options for the level of detail. They are accepted without effect: everything known is always shown.
const DETAILS: [&str; 7] = ["verbose", "costs", "settings", "buffers", "wal", "timing", "summary"];

/// Parses `EXPLAIN` with its options, if it comes next; the statement follows.
///
/// # Errors
///
/// Invalid: an unknown option, or a value that it does not take.
pub(super) fn options(parser: &mut Parser<'_>) -> Result<Option<ExplainOptions>> {
    let begins_query = |token: &Token| match token {
        Token::Word(word) => {
            matches!(word.keyword, Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE)
        }
        _ => true,
    };
    let is_list = parser.peek_keyword(Keyword::EXPLAIN)
        && parser.peek_nth_token_ref(1).token == Token::LParen
        && !begins_query(&parser.peek_nth_token_ref(2).token);
    if !is_list {
        return Ok(None);
    }
    parser.next_token();
    let options = parser.parse_utility_options().map_err(|e| of_parser(&e.into(), None))?;
    let mut explained = ExplainOptions::default();
    for option in &options {
        match option.name.value.to_lowercase().as_str() {
            "analyze" => explained.analyze = flag(option)?,
            "format" => explained.as_json = is_json(option)?,
            name if DETAILS.contains(&name) => {
                flag(option)?;
            }
            name => {
                let known = "there are ANALYZE, FORMAT, VERBOSE, COSTS, SETTINGS, BUFFERS, WAL, TIMING and SUMMARY";
                return Err(wrong(&option.name, &format!("`EXPLAIN` has no option `{name}`: {known}")));
            }
        }
    }
    Ok(Some(explained))
}

fn wrong(name: &Ident, text: &str) -> Error {
    unreadable(text, name.span.start)
}

fn word(value: &Expr) -> Option<String> {
    match value {
        Expr::Identifier(word) => Some(word.value.to_lowercase()),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::Number(text, _) => Some(text.to_lowercase()),
            Value::Boolean(value) => Some(value.to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// An option without a value is on.
fn flag(option: &UtilityOption) -> Result<bool> {
    let Some(value) = &option.arg else { return Ok(true) };
    match word(value).as_deref() {
        Some("true" | "on" | "1") => Ok(true),
        Some("false" | "off" | "0") => Ok(false),
        _ => Err(wrong(&option.name, &format!("option `{}` of `EXPLAIN` is ON or OFF", option.name))),
    }
}

fn is_json(option: &UtilityOption) -> Result<bool> {
    match option.arg.as_ref().and_then(word).as_deref() {
        Some("json") => Ok(true),
        Some("text") => Ok(false),
        _ => Err(wrong(&option.name, "plans are shown by `FORMAT TEXT` or `FORMAT JSON`")),
    }
}
