//! Tokens → [`Query`](crate::ast::Query). One file per part of the grammar; stats functions and filter functions stand in
//! registries, pipes in files of their own (`pipes`), which the parser is handed as a table.
//!
//! A text without quotes may join adjacent tokens into one word (`foo-bar/baz:1`); where such a word ends depends on the
//! place, so each place says which signs stop it.

pub(crate) mod calls;
mod filter;
mod math;
pub(crate) mod names;
mod options;
mod query;
mod regexps;
pub(crate) mod stats;
mod stream;
pub(crate) mod time;

use std::collections::HashSet;

use quiver_types::Error;
use quiver_types::suggestions::did_you_mean;

use crate::ast::Pipe;
use crate::error::{Result, at};
use crate::lexer::{Token, tokens};
pub use regexps::Regexps;

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

/// Longest query that is read, in bytes.
pub const QUERY_LEN_MAX: usize = 1 << 20;

/// A pipe as it is written: its names, the canonical one first, what it does, and how what follows the name is read.
#[derive(Debug)]
pub(crate) struct PipeDef {
    pub(crate) names: &'static [&'static str],
    pub(crate) doc: &'static str,
    pub(crate) parse: fn(&mut Parser<'_>) -> Result<Pipe>,
}

/// The pipes as the parser knows them. It cannot name them, because their files, which know how they are parsed, use it.
#[derive(Debug)]
pub(crate) struct PipeTable {
    /// How they are written, file by file.
    pub(crate) defs: &'static [&'static [PipeDef]],
    /// Reads one where it begins.
    pub(crate) parse: fn(&mut Parser<'_>) -> Result<Pipe>,
}

impl PipeTable {
    /// How each is written.
    pub(crate) fn defs(&self) -> impl Iterator<Item = &'static PipeDef> {
        self.defs.iter().copied().flatten()
    }

    /// The names of all of them, aliases too.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.defs().flat_map(|def| def.names.iter().copied())
    }
}

/// A place in the tokens of a query.
#[derive(Debug)]
pub(crate) struct Parser<'a> {
    text: &'a str,
    table: &'static PipeTable,
    pub(crate) tokens: Vec<Token<'a>>,
    pub(crate) next: usize,
    depth: usize,
    pipes: usize,
    math_ops: usize,
    fields: usize,
    /// Fields that filters, expressions and templates of pipes read, each counted once.
    read: HashSet<String>,
    cells: usize,
    pub(crate) regexps: Regexps,
}

impl<'a> Parser<'a> {
    /// Begins to read a text, with these pipes.
    ///
    /// # Errors
    /// Invalid: a text that is too long, or has a quote without its end.
    pub(crate) fn new(text: &'a str, table: &'static PipeTable) -> Result<Self> {
        if text.len() > QUERY_LEN_MAX {
            return Err(Error::invalid(format!("query of {} bytes is longer than {QUERY_LEN_MAX}", text.len())));
        }
        Ok(Self {
            text,
            table,
            tokens: tokens(text)?,
            next: 0,
            depth: 0,
            pipes: 0,
            math_ops: 0,
            fields: 0,
            read: HashSet::new(),
            cells: 0,
            regexps: Regexps::default(),
        })
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

    pub(crate) fn expect_end(&mut self) -> Result<()> {
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
        Error { message: format!("{}{}", error.message, did_you_mean(word, known)), ..error }
    }
}

#[cfg(test)]
mod tests;
