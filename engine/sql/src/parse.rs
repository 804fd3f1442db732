//! From text to one statement that only reads, with its parameters in place.

mod backtracking;
mod cast_calls;
mod equality_lists;
mod expansion_limits;
mod explain_options;
mod nesting_limits;
mod operator_signs;
mod params;
mod postfix_operators;
mod qualified_names;
mod read_only;
mod search_cycle;
mod string_literals;
mod unicode_literals;
mod whole_rows;

use datafusion::sql::parser::{DFParserBuilder, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{Expr, Query};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Tokenizer};
use quiver_types::{Error, ErrorKind, Result};

use crate::error::{TOO_DEEP, of_parser, unreadable};
use crate::syntax_rewrites;
use nesting_limits::{Bounded, bounded, few_operators};
use read_only::{not_reading, only_reads, reading};

pub(crate) use backtracking::Patience;
pub(crate) use explain_options::ExplainOptions;
pub(crate) use nesting_limits::OPERATORS_MAX;
pub use nesting_limits::TEXT_BYTES_MAX;
pub use params::{Param, Params};
pub(crate) use params::{is_typed_param, params_of, put_params};
pub(crate) use qualified_names::qualified;
pub(crate) use read_only::ReadStatement;
pub(crate) use string_literals::{keep as keep_texts, literal as text_literal};
pub use unicode_literals::plain as plain_literals;

/// How deeply brackets and subqueries may be nested.
const DEPTH_MAX: usize = 50;

/// A statement and whether it is to be explained.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(crate) statement: ReadStatement,
    /// `EXPLAIN`, and how.
    pub(crate) explain: Option<ExplainOptions>,
}

/// Parses a statement.
///
/// # Errors
/// Invalid: it cannot be read (with line and column), writes, is none or several, lacks a parameter or has one too many.
/// LimitExceeded: it is too long or too deep.
pub(crate) fn parse(text: &str, params: &Params) -> Result<Read> {
    let mut read = parse_open(text)?;
    match &mut read.statement {
        ReadStatement::Query(query) => {
            params.fit(params_of(query))?;
            put_params(query, params)?;
        }
        ReadStatement::ShowTables | ReadStatement::Describe(_) => params.fit(0)?,
    }
    Ok(read)
}

/// Parses a statement whose parameters have no values yet.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_open(text: &str) -> Result<Read> {
    let plain = plain_literals(text)?;
    let Bounded { words, needs_lists } = bounded(&plain)?;
    let known = syntax_rewrites::known(&plain)?;
    let text: &str = &known;
    let dialect = Patience::for_words(words);
    let tokens = Tokenizer::new(&dialect, text).tokenize_with_location();
    let tokens = operator_signs::apart(tokens.map_err(|e| unreadable(&e.message, e.location))?);
    let (tokens, clauses) = search_cycle::taken(whole_rows::members(whole_rows::bare(tokens)));
    let parser = DFParserBuilder::new(tokens).with_dialect(&dialect).with_recursion_limit(DEPTH_MAX).build();
    let mut parser = parser.map_err(|e| of_parser(&e, None))?;
    let options = explain_options::options(&mut parser.parser)?;
    let statements = parser.parse_statements();
    // Some errors have no place; then the parser's position is just after the token that it could not read.
    let statements = statements.map_err(|e| match text.split_whitespace().next() {
        // DataFusion has another `COPY`, so PostgreSQL's would be reported as a syntax error within it.
        Some(word) if word.eq_ignore_ascii_case("copy") => not_reading("COPY"),
        _ => {
            let at = parser.parser.get_current_token().span.start;
            // There is no token after the end of the text.
            of_parser(&e, Some(if at.line > 0 { at } else { end_of(text) }))
        }
    })?;
    let mut statements = statements.into_iter();
    let statement = statements.next().ok_or_else(|| Error::invalid("there is no statement"))?;
    if statements.next().is_some() {
        return Err(Error::invalid("one statement at a time: there is more behind `;`"));
    }
    let (statement, explain) = match (statement, options) {
        (DfStatement::Explain(explained), None) => {
            (*explained.statement, Some(ExplainOptions { analyze: explained.options.analyze, as_json: false }))
        }
        others => others,
    };
    let mut statement = reading(statement)?;
    if let ReadStatement::Query(query) = &mut statement {
        only_reads(query)?;
        if needs_lists {
            few_operators(equality_lists::make(query))?;
        }
        keep_texts(query);
        qualified_names::put(query);
        operator_signs::keep(query);
        cast_calls::as_casts(query);
        // It prints parts of the statement, and reads them again.
        search_cycle::put(query, &clauses)?;
    }
    Ok(Read { statement, explain })
}

/// Parses an expression that a translation has generated as SQL.
///
/// # Errors
/// LimitExceeded: parts of the statement within it make it deeper than the parser allows. Internal: it cannot be
/// parsed.
pub(crate) fn read_expression(sql: &str) -> Result<Expr> {
    // It contains parts of the statement, so its length decides how long the parser may take.
    let dialect = Patience::for_words(sql.len());
    let mut parser = Parser::new(&dialect)
        .try_with_sql(sql)
        .map_err(|e| Error::internal("cannot read an expression of ours").with_source(e))?;
    let mut found = parser.parse_expr().map_err(|e| match e {
        ParserError::RecursionLimitExceeded => Error::new(ErrorKind::LimitExceeded, TOO_DEEP),
        e => Error::internal("cannot read an expression of ours").with_source(e),
    })?;
    if sql.contains("''") {
        keep_texts(&mut found);
    }
    if sql.contains('[') {
        qualified_names::put(&mut found);
    }
    Ok(found)
}

/// Parses a query that a translation has generated as SQL; `None` if it cannot be parsed.
pub(crate) fn read_query(sql: &str) -> Option<Query> {
    let dialect = Patience::for_words(sql.len());
    let mut parser = Parser::new(&dialect).try_with_sql(sql).ok()?;
    let mut query = parser.parse_query().ok()?;
    keep_texts(&mut query);
    Some(*query)
}

/// The place just after the end of a text.
fn end_of(text: &str) -> Location {
    let text = text.trim_end();
    let last = text.rsplit('\n').next().unwrap_or_default();
    Location { line: text.split('\n').count() as u64, column: last.chars().count() as u64 + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Error {
        parse(text, &Params::default()).expect_err(text)
    }

    #[test]
    fn plans_are_asked_for_with_options() {
        let explain = |text: &str| parse(text, &Params::default()).unwrap_or_else(|e| panic!("{text}: {e}")).explain;
        let asked = |analyze, as_json| Some(ExplainOptions { analyze, as_json });
        for (text, expected) in [
            ("explain select 1", asked(false, false)),
            ("explain analyze select 1", asked(true, false)),
            ("EXPLAIN (ANALYZE, VERBOSE, BUFFERS, FORMAT JSON) SELECT 1", asked(true, true)),
            ("explain (analyze off, costs false, timing 0, format 'text') select 1", asked(false, false)),
            ("explain (format json) values (1)", asked(false, true)),
            ("explain (select 1)", asked(false, false)),
        ] {
            assert_eq!(explain(text), expected, "{text}");
        }
        for (wrong, named) in [
            ("explain (memory) select 1", "`memory`"),
            ("explain (format xml) select 1", "FORMAT JSON"),
            ("explain (analyze maybe) select 1", "ON or OFF"),
            ("explain (analyze) explain select 1", "EXPLAIN"),
            ("explain (analyze) delete from logs", "DELETE FROM"),
        ] {
            let error = error(wrong);
            assert!(error.message.contains(named), "{wrong}: {error}");
        }
        assert!(error("explain (memory) select 1").message.ends_with("line 1, column 10"));
    }

    #[test]
    fn errors_have_places() {
        let error = error("select 1,\n  from where");
        assert!(error.message.contains("line 2"), "{error}");
        for (text, place) in [
            ("select 1 +", "line 1, column 11"),
            ("select *\n from logs where ", "line 2, column 17"),
            ("select 'a", "line 1, column 8"),
        ] {
            let error = self::error(text);
            assert!(error.message.ends_with(place), "{error}");
        }
        assert!(self::error("").message.contains("no statement"));
        assert!(self::error("select 1; select 2").message.contains("one statement"));
    }
}
