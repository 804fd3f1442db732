//! `PREPARE` and `EXECUTE` in SQL. These statements are stored among those of the protocol, under the same names.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use quiver_sql::type_named;

use super::statement_parts::{blank, closing, is_word, offset, part};
use super::{Command, Fault};

/// A statement to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::postgres) struct Prepare {
    pub(in crate::postgres) name: String,
    /// OIDs of its parameter types, as far as they are declared.
    pub(in crate::postgres) types: Vec<u32>,
    pub(in crate::postgres) query: String,
}

fn name_of(token: &Token) -> Option<String> {
    let Token::Word(word) = token else { return None };
    let name = if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() };
    // The unnamed statement belongs to the protocol.
    Some(name).filter(|name| !name.is_empty())
}

/// Parses `PREPARE name [(type, …)] AS query`; `None` if it is not such a statement.
///
/// # Errors
/// An unknown type, or something other than a query.
pub(super) fn prepare(text: &str, tokens: &[TokenWithSpan]) -> Result<Option<Command>, Fault> {
    let Some(name) = tokens.get(1).and_then(|token| name_of(&token.token)) else { return Ok(None) };
    let (mut at, mut types) = (2, Vec::new());
    if tokens.get(at).is_some_and(|token| token.token == Token::LParen) {
        let Some(end) = closing(tokens, at) else { return Ok(None) };
        types = types_of(&tokens[at + 1..end])?;
        at = end + 1;
    }
    let (Some(word), Some(first)) = (tokens.get(at), tokens.get(at + 1)) else { return Ok(None) };
    let query = offset(text, first.span.start).and_then(|from| part(text, from, text.len()));
    let Some(query) = query.filter(|_| is_word(&word.token, "as")) else { return Ok(None) };
    // A nested `PREPARE` is refused without parsing it: with each level the whole text would be parsed again.
    if is_word(&first.token, "prepare") || super::read(&query)? != Command::Query {
        return Err(Fault::new("42601", "cannot read the statement: `PREPARE` keeps queries alone"));
    }
    Ok(Some(Command::Prepare(Prepare { name, types, query })))
}

/// OIDs of a list of types.
fn types_of(tokens: &[TokenWithSpan]) -> Result<Vec<u32>, Fault> {
    let (mut types, mut words, mut depth, mut is_list) = (Vec::new(), Vec::<String>::new(), 0_usize, false);
    for token in tokens.iter().map(|token| &token.token).chain([&Token::Comma]) {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            // The length of a string or the precision of a number is ignored.
            _ if depth > 0 => {}
            Token::Comma => {
                types.push(type_of(&words.join(" "), is_list)?);
                (words, is_list) = (Vec::new(), false);
            }
            Token::LBracket => is_list = true,
            Token::RBracket | Token::Number(..) if is_list => {}
            // A schema before the name of a type can only be the system's.
            Token::Period => words.clear(),
            Token::Word(word) => words.push(word.value.to_lowercase()),
            other => return Err(no_type(&other.to_string())),
        }
    }
    Ok(types)
}

fn no_type(name: &str) -> Fault {
    Fault::new("42704", format!("there is no type `{}`", name.escape_debug()))
}

fn type_of(name: &str, is_list: bool) -> Result<u32, Fault> {
    let known = type_named(name).ok_or_else(|| no_type(name))?;
    match known.array {
        0 if is_list => Err(no_type(&format!("{name}[]"))),
        array if is_list => Ok(array),
        _ => Ok(known.oid),
    }
}

/// Parses `EXECUTE name [(value, …)]`; `None` if it is not such a statement. The values become the only row of a
/// query, so that any expression is allowed.
pub(super) fn execute(text: &str, tokens: &[TokenWithSpan]) -> Option<Command> {
    let name = name_of(&tokens.get(1)?.token)?;
    let Some(open) = tokens.get(2) else { return Some(Command::Execute(name, None)) };
    let is_whole = open.token == Token::LParen && closing(tokens, 2)? + 1 == tokens.len() && tokens.len() > 4;
    let (begin, from) = (offset(text, tokens[0].span.start)?, offset(text, open.span.start)?);
    let end = offset(text, tokens.last()?.span.start)? + 1;
    // One character shorter than the text that it replaces.
    let values: String = blank(text.get(..begin)?)
        .chain("VALUES ".chars())
        .chain(blank(text.get(begin + "execute".len()..from)?))
        .chain(text.get(from..end)?.chars())
        .collect();
    is_whole.then_some(Command::Execute(name, Some(values)))
}
