//! Text → tree: recursive descent with precedence climbing, one token of look-ahead.
//!
//! The grammar is that of Prometheus 3.14 (`promql/parser/generated_parser.y`), error texts too: the first error
//! ends the work. Nesting is limited, so that no text can exhaust the stack of whoever walks the tree; a chain of
//! left-associative operators (`1 + 1 + 1 + …`) may be long, it is a list in all but name (see `ast::chain`).

mod duration;
mod expr;
mod matching;
mod modifier;
mod primary;
mod selector;

use quiver_query::Pace;
use quiver_types::Matcher;
use quiver_types::matcher::Patterns;

use crate::ast::{Expr, PosRange};
use crate::error::{ParseError, Result};
use crate::lexer::Lexer;
use crate::lexer::token::{Token, TokenKind};
use crate::type_check;

/// What the parser allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseOptions {
    /// Whether experimental functions and aggregations may be called.
    pub experimental_functions: bool,
    /// Longest text, in bytes.
    pub text_bytes_max: usize,
    /// Deepest nesting of parentheses, calls, unary operators and right operands.
    pub depth_max: usize,
    /// Most operands (numbers, texts, selectors, calls, aggregations, parentheses) of an expression.
    pub operands_max: usize,
}

impl Default for ParseOptions {
    fn default() -> Self {
        Self { experimental_functions: true, text_bytes_max: 1 << 20, depth_max: 200, operands_max: 50_000 }
    }
}

/// Tokens that are read at a stretch, and what each of them costs as [`Pace`] counts.
const TOKENS: usize = 256;
const TOKEN_UNITS: usize = 16;

/// Parses and checks an expression with the default options.
///
/// # Errors
/// The text is not a valid expression.
pub fn parse(query: &str) -> Result<Expr> {
    parse_with(query, &ParseOptions::default(), None)
}

/// Parses and checks an expression; `pace` hears of the work and may end it.
///
/// # Errors
/// The text is not a valid expression, or exceeds a limit; what `pace` says.
pub fn parse_with(query: &str, options: &ParseOptions, pace: Option<&Pace>) -> Result<Expr> {
    let work = || -> Result<_> {
        let mut parser = Parser::new(query, options)?;
        parser.pace = pace;
        if parser.peek()?.kind == TokenKind::Eof {
            return Err(ParseError::new(PosRange::default(), "no expression found in input"));
        }
        let mut expr = parser.expr()?;
        parser.end()?;
        type_check::check(&mut expr, query)?;
        Ok(expr)
    };
    work().map_err(|e| e.locate(query))
}

/// Parses the selectors of `match[]` parameters: each a metric name, matchers in braces, or both. Matchers may all match the
/// empty text; who needs one that does not has to look. The patterns of all share one limit; `pace` hears of the work and
/// may end it.
///
/// # Errors
/// A text is not a selector; what `pace` says.
pub fn parse_selectors<'a>(texts: impl IntoIterator<Item = &'a str>, pace: Option<&Pace>) -> Result<Vec<Vec<Matcher>>> {
    let mut patterns = Patterns::default();
    let mut one = |text: &'a str| -> Result<_> {
        let mut parser = Parser::new(text, &ParseOptions::default())?;
        parser.pace = pace;
        parser.patterns = std::mem::take(&mut patterns);
        let selector = parser.selector()?;
        parser.end()?;
        patterns = parser.patterns;
        Ok(selector.matchers)
    };
    texts.into_iter().map(|text| one(text).map_err(|e| e.locate(text))).collect()
}

/// The state of a parse.
struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    options: ParseOptions,
    ahead: Option<Token>,
    /// Where the newest consumed token ends.
    last_end: u32,
    depth: usize,
    operands: usize,
    /// How many aggregations are being read: errors inside say so.
    aggregations: usize,
    /// Regular expressions of matchers and of `label_replace` so far, which are bounded together.
    patterns: Patterns,
    /// Is told of the work that was done, and may end it.
    pace: Option<&'a Pace>,
    /// Tokens read since `pace` was last told.
    tokens: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, options: &ParseOptions) -> Result<Self> {
        if text.len() > options.text_bytes_max {
            let message = format!(
                "expression of {} bytes is too long, at most {} are allowed",
                text.len(),
                options.text_bytes_max
            );
            return Err(ParseError::new(PosRange::default(), message));
        }
        let lexer = Lexer::new(text);
        Ok(Self {
            text,
            lexer,
            options: *options,
            ahead: None,
            last_end: 0,
            depth: 0,
            operands: 0,
            aggregations: 0,
            patterns: Patterns::default(),
            pace: None,
            tokens: 0,
        })
    }

    /// Gives the next token and leaves it.
    fn peek(&mut self) -> Result<Token> {
        match self.ahead {
            Some(token) => Ok(token),
            None => Ok(*self.ahead.insert(self.lexer.token()?)),
        }
    }

    /// Takes the next token.
    fn advance(&mut self) -> Result<Token> {
        let token = self.peek()?;
        self.ahead = None;
        self.last_end = token.pos.end;
        self.tokens += 1;
        if self.tokens == TOKENS {
            self.tokens = 0;
            self.pace
                .map_or(Ok(()), |pace| pace.did(TOKENS * TOKEN_UNITS))
                .map_err(|e| ParseError::of(token.pos, e))?;
        }
        Ok(token)
    }

    /// Takes the next token if it is of a kind.
    fn eat(&mut self, kind: TokenKind) -> Result<bool> {
        let found = self.peek()?.kind == kind;
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Takes the next token, which must be of a kind.
    fn expect(&mut self, kind: TokenKind) -> Result<Token> {
        if self.peek()?.kind == kind { self.advance() } else { self.stray() }
    }

    fn end(&mut self) -> Result<()> {
        if self.peek()?.kind == TokenKind::Eof { Ok(()) } else { self.stray() }
    }

    /// Fails because of the next token.
    fn unexpected<T>(&mut self, place: &str, expected: &str) -> Result<T> {
        let token = self.peek()?;
        let mut message = format!("unexpected {}", token.describe(self.text));
        if !place.is_empty() {
            message += " in ";
            message += place;
        }
        if !expected.is_empty() {
            message += ", expected ";
            message += expected;
        }
        Err(ParseError::new(token.pos, message))
    }

    /// Fails because of the next token, where nothing more is known.
    fn stray<T>(&mut self) -> Result<T> {
        self.unexpected(if self.aggregations > 0 { "aggregation" } else { "" }, "")
    }

    /// Counts a level of nesting; `leave` undoes it.
    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > self.options.depth_max {
            let pos = self.peek()?.pos;
            let message =
                format!("expression is nested too deeply, at most {} levels are allowed", self.options.depth_max);
            return Err(ParseError::new(pos, message));
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    fn count_operand(&mut self, pos: PosRange) -> Result<()> {
        self.operands += 1;
        if self.operands > self.options.operands_max {
            let message =
                format!("expression is too large, at most {} operands are allowed", self.options.operands_max);
            return Err(ParseError::new(pos, message));
        }
        Ok(())
    }

    /// Gives the range from a byte to the newest consumed token.
    fn since(&self, start: u32) -> PosRange {
        PosRange { start, end: self.last_end }
    }
}

#[cfg(test)]
mod tests;
