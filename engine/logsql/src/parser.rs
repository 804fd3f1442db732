//! Tokens → [`Query`]. One file per part of the grammar; stats functions and filter functions stand in registries,
//! pipes in files of their own (`pipes`).
//!
//! A text without quotes may join adjacent tokens into one word (`foo-bar/baz:1`); where such a word ends depends on the
//! place, so each place says which signs stop it.

pub(crate) mod calls;
mod filter;
mod math;
mod names;
mod options;
pub(crate) mod stats;
mod stream;
mod time;

use std::collections::HashSet;

pub(crate) use names::or_all;
use quiver_types::Error;
use quiver_types::meant::did_you_mean;
pub(crate) use stats::{documents as stats_func_documents, names as stats_func_names};
pub(crate) use time::moment;

use crate::ast::{Filter, Options, Pipe, Query};
use crate::error::{Result, at};
use crate::lexer::{Token, tokens};
use crate::pipes::rows::Rows;
use crate::{normal, pipes};

/// How deep filters, subqueries and expressions may nest: a bound on the stack, far above what is written by hand.
const DEPTH_MAX: usize = 64;

/// Most pipes of a query and its subqueries together: plans are as deep as pipes are many.
const PIPES_MAX: usize = 256;

/// Most operators of `math` in a query: expressions are as deep as they have operators.
const MATH_OPS_MAX: usize = 1024;

/// Most fields that the pipes of a query name together: a column may be made for each, and each is looked for among all.
const FIELDS_MAX: usize = 1024;

/// Most cells of the tables that written rows of a query make: each row has all columns.
const CELLS_MAX: usize = 1 << 20;

/// Most regular expressions of a query: each may take a megabyte when it is compiled.
const REGEXPS_MAX: usize = 256;

/// Longest query that is read, in bytes.
pub const QUERY_LEN_MAX: usize = 1 << 20;

/// Reads a query.
///
/// # Errors
/// `Invalid`, with the position and, for names, what may have been meant.
pub fn parse(text: &str) -> Result<Query> {
    let mut parser = Parser::new(text)?;
    let query = parser.query()?;
    parser.expect_end()?;
    Ok(normal::query(query))
}

/// Reads a filter alone, as `extra_filters` have it. The empty text is no filter.
///
/// # Errors
/// As [`parse`].
pub fn parse_filter(text: &str) -> Result<Option<Filter>> {
    let mut parser = Parser::new(text)?;
    if parser.at_end() {
        return Ok(None);
    }
    let filter = parser.filter_or(None)?;
    parser.skip(";");
    parser.expect_end()?;
    Ok(Some(normal::filter(filter)))
}

/// A place in the tokens of a query.
#[derive(Debug)]
pub(crate) struct Parser<'a> {
    text: &'a str,
    pub(crate) tokens: Vec<Token<'a>>,
    pub(crate) next: usize,
    depth: usize,
    pipes: usize,
    math_ops: usize,
    fields: usize,
    /// Fields that filters, expressions and templates of pipes read, each counted once.
    read: HashSet<String>,
    cells: usize,
    regexps: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self> {
        if text.len() > QUERY_LEN_MAX {
            return Err(Error::invalid(format!("query of {} bytes is longer than {QUERY_LEN_MAX}", text.len())));
        }
        Ok(Self {
            text,
            tokens: tokens(text)?,
            next: 0,
            depth: 0,
            pipes: 0,
            math_ops: 0,
            fields: 0,
            read: HashSet::new(),
            cells: 0,
            regexps: 0,
        })
    }

    fn query(&mut self) -> Result<Query> {
        self.deeper(|parser| {
            let options = parser.options()?;
            parser.no_pipe_here()?;
            let filter = parser.filter_or(None)?;
            let mut pipes = Vec::new();
            while parser.skip("|") {
                parser.pipes += 1;
                if parser.pipes > PIPES_MAX {
                    return Err(parser.fault(format!("more than {PIPES_MAX} pipes")));
                }
                pipes.push(parser.pipe()?);
                parser.expect_pipe_end()?;
            }
            // A query may be ended as a statement is.
            parser.skip(";");
            Ok(Query { options, filter, pipes })
        })
    }

    /// Refuses the name of a pipe as the first word of a query: what was forgotten before it is the filter. Names of
    /// fields and words that go on (`top-level`) are no such names.
    fn no_pipe_here(&self) -> Result<()> {
        let (token, after) = (self.token(), self.after_next());
        let is_alone = after.spaced || after.is_any(&["", "|", "(", ")", ";"]);
        let is_name = || pipes::names().chain(stats::names()).chain(["by"]).any(|name| token.is(name));
        if !token.is_word() || !is_alone || after.is(":") || !is_name() {
            return Ok(());
        }
        Err(self.fault(format!("`{0}` is a pipe: write `* | {0}`, or quote the word to look for it,", token.raw)))
    }

    /// Reads `(query)`.
    fn query_in_parens(&mut self) -> Result<Query> {
        self.expect("(")?;
        let query = self.query()?;
        self.expect(")")?;
        Ok(query)
    }

    /// `(query)` or `rows({name:value, ..}, ..)`.
    pub(crate) fn query_or_rows(&mut self) -> Result<Query> {
        if !self.skip("rows") {
            return self.query_in_parens();
        }
        let mut columns = HashSet::new();
        let rows = self.in_parens(|parser| {
            parser.expect("{")?;
            let mut row = Vec::new();
            while !parser.skip("}") {
                let name = names::field_name(parser.word("a field name", &[":", "=", "{", "}"])?);
                if !parser.skip_any(&[":", "="]) {
                    return Err(parser.unexpected("`:` or `=`"));
                }
                if !columns.contains(&name) {
                    parser.count_field()?;
                    columns.insert(name.clone());
                }
                row.push((name, parser.word("a value", &["{", "}"])?));
                parser.skip(",");
            }
            Ok(row)
        })?;
        self.cells += rows.len() * columns.len();
        if self.cells > CELLS_MAX {
            return Err(self.fault(format!("more than {CELLS_MAX} cells in rows: each of them has all columns")));
        }
        Ok(Query { options: Options::default(), filter: Filter::All, pipes: vec![Rows(rows).into()] })
    }

    fn pipe(&mut self) -> Result<Pipe> {
        pipes::parse(self)
    }

    /// Runs a part that may hold itself again, within the depth that the stack allows.
    fn deeper<T>(&mut self, part: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == DEPTH_MAX {
            return Err(self.fault(format!("more than {DEPTH_MAX} levels of nesting")));
        }
        self.depth += 1;
        let result = part(self);
        self.depth -= 1;
        result
    }

    pub(crate) fn token(&self) -> &Token<'a> {
        &self.tokens[self.next]
    }

    pub(crate) fn after_next(&self) -> &Token<'a> {
        &self.tokens[(self.next + 1).min(self.tokens.len() - 1)]
    }

    pub(crate) fn at_end(&self) -> bool {
        self.next + 1 == self.tokens.len()
    }

    pub(crate) fn is(&self, keyword: &str) -> bool {
        self.token().is(keyword)
    }

    pub(crate) fn is_any(&self, keywords: &[&str]) -> bool {
        self.token().is_any(keywords)
    }

    /// Whether the keyword stands here without blanks before it.
    pub(crate) fn is_adjacent(&self, keyword: &str) -> bool {
        !self.token().spaced && self.is(keyword)
    }

    pub(crate) fn advance(&mut self) {
        if !self.at_end() {
            self.next += 1;
        }
    }

    /// Takes the keyword if it stands here.
    pub(crate) fn skip(&mut self, keyword: &str) -> bool {
        let found = self.is(keyword) && !self.at_end();
        if found {
            self.advance();
        }
        found
    }

    pub(crate) fn skip_any(&mut self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.skip(keyword))
    }

    pub(crate) fn expect(&mut self, keyword: &str) -> Result<()> {
        if self.skip(keyword) { Ok(()) } else { Err(self.unexpected(&format!("`{keyword}`"))) }
    }

    fn expect_end(&mut self) -> Result<()> {
        if self.at_end() { Ok(()) } else { Err(self.unexpected("`|` or the end of the query")) }
    }

    fn expect_pipe_end(&mut self) -> Result<()> {
        if self.at_pipe_end() { Ok(()) } else { Err(self.unexpected("`|` or the end of the pipe")) }
    }

    pub(crate) fn at_pipe_end(&self) -> bool {
        self.at_end() || self.is_any(&["|", ")", ";"])
    }

    /// An error about the token that comes next.
    pub(crate) fn fault(&self, message: impl AsRef<str>) -> Error {
        self.fault_at(self.next, message)
    }

    pub(crate) fn fault_at(&self, token: usize, message: impl AsRef<str>) -> Error {
        at(self.text, self.tokens[token].offset, message)
    }

    pub(crate) fn unexpected(&self, wanted: &str) -> Error {
        if self.at_end() {
            self.fault(format!("unexpected end of the query, {wanted} expected"))
        } else {
            self.fault(format!("unexpected `{}`, {wanted} expected", self.token().raw))
        }
    }

    /// An error about an unknown word, with the nearest known one.
    pub(crate) fn unknown<'k>(&self, token: usize, what: &str, known: impl IntoIterator<Item = &'k str>) -> Error {
        let word = &self.tokens[token].text;
        let error = self.fault_at(token, format!("unknown {what} `{word}`"));
        Error::invalid(format!("{}{}", error.message, did_you_mean(word, known)))
    }
}

#[cfg(test)]
mod tests;
