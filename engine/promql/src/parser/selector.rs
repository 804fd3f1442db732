//! Vector selectors: metric name and matchers; lists of labels.

use quiver_query::Pace;
use quiver_types::{MatchOp, Matcher};

use super::Parser;
use crate::ast::{BinaryOp, PosRange, VectorSelector};
use crate::error::{ParseError, Result};
use crate::lexer::token::{Token, TokenKind};
use crate::range_ends::RangeEnds;

/// The label that holds the metric's name.
const NAME: &str = "__name__";

impl Parser<'_> {
    /// Reads a selector.
    pub(super) fn selector(&mut self) -> Result<VectorSelector> {
        let token = self.peek()?;
        match token.kind {
            TokenKind::LeftBrace => {
                let matchers = self.matchers()?;
                Ok(self.vector_selector(token.pos.start, None, matchers))
            }
            kind if is_metric(kind) => {
                self.advance()?;
                self.named_selector(token)
            }
            _ => self.stray(),
        }
    }

    /// Reads the rest of a selector whose name is read.
    pub(super) fn named_selector(&mut self, name: Token) -> Result<VectorSelector> {
        let mut matchers = if self.peek()?.kind == TokenKind::LeftBrace { self.matchers()? } else { Vec::new() };
        let text = name.text(self.text);
        matchers.push(Matcher::equal(NAME, text));
        Ok(self.vector_selector(name.pos.start, Some(text.to_owned()), matchers))
    }

    fn vector_selector(&self, start: u32, name: Option<String>, matchers: Vec<Matcher>) -> VectorSelector {
        let pos = self.since(start);
        VectorSelector { name, matchers, offset: None, at: None, ends: RangeEnds::Samples, pos }
    }

    fn matchers(&mut self) -> Result<Vec<Matcher>> {
        const PLACE: &str = "label matching";
        self.expect(TokenKind::LeftBrace)?;
        let mut matchers = Vec::new();
        if self.eat(TokenKind::RightBrace)? {
            return Ok(matchers);
        }
        loop {
            let token = self.peek()?;
            match token.kind {
                TokenKind::Identifier => {
                    self.advance()?;
                    let Some(op) = self.match_op()? else { return self.unexpected(PLACE, "label matching operator") };
                    matchers.push(self.matcher(token, token.text(self.text).to_owned(), op)?);
                }
                TokenKind::String => {
                    self.advance()?;
                    let text = self.unquote(token)?.shown().to_owned();
                    matchers.push(match self.match_op()? {
                        Some(op) => self.matcher(token, text, op)?,
                        None => Matcher::equal(NAME, text),
                    });
                }
                TokenKind::RightBrace if !matchers.is_empty() => {
                    self.advance()?;
                    return Ok(matchers);
                }
                _ => return self.unexpected(PLACE, "identifier or \"}\""),
            }
            if self.eat(TokenKind::RightBrace)? {
                return Ok(matchers);
            }
            if !self.eat(TokenKind::Comma)? {
                return self.unexpected(PLACE, "\",\" or \"}\"");
            }
        }
    }

    fn match_op(&mut self) -> Result<Option<MatchOp>> {
        let op = match self.peek()?.kind {
            TokenKind::Equal => MatchOp::Equal,
            TokenKind::Op(BinaryOp::Neq) => MatchOp::NotEqual,
            TokenKind::EqualRegex => MatchOp::Regex,
            TokenKind::NotRegex => MatchOp::NotRegex,
            _ => return Ok(None),
        };
        self.advance()?;
        Ok(Some(op))
    }

    fn matcher(&mut self, label: Token, name: String, op: MatchOp) -> Result<Matcher> {
        let value = self.peek()?;
        if value.kind != TokenKind::String {
            return self.unexpected("label matching", "string");
        }
        self.advance()?;
        let pos = PosRange { start: label.pos.start, end: value.pos.end };
        let text = self.unquote(value)?;
        let is_pattern = matches!(op, MatchOp::Regex | MatchOp::NotRegex);
        if is_pattern && text.name().is_none() {
            let message = format!("invalid regular expression {}: invalid UTF-8", text.quoted());
            return Err(ParseError::new(pos, message));
        }
        if is_pattern {
            // Each may take long to be compiled.
            self.pace.map_or(Ok(()), Pace::check).map_err(|e| ParseError::of(pos, e))?;
        }
        self.patterns.matcher(name, op, text.shown()).map_err(|e| ParseError::of(pos, e))
    }

    /// Reads a list of labels in parentheses.
    pub(super) fn labels(&mut self) -> Result<Vec<String>> {
        const PLACE: &str = "grouping opts";
        if !self.eat(TokenKind::LeftParen)? {
            return self.unexpected(PLACE, "\"(\"");
        }
        let mut labels = Vec::new();
        if self.eat(TokenKind::RightParen)? {
            return Ok(labels);
        }
        loop {
            let token = self.peek()?;
            match token.kind {
                TokenKind::RightParen if !labels.is_empty() => {
                    self.advance()?;
                    return Ok(labels);
                }
                TokenKind::String => {
                    self.advance()?;
                    let label = self.unquote(token)?;
                    let Some(name) = label.name().filter(|name| !name.is_empty()) else {
                        let message = format!("invalid label name for grouping: {}", label.quoted());
                        return Err(ParseError::new(token.pos, message));
                    };
                    labels.push(name.to_owned());
                }
                kind if kind.is_label() => {
                    self.advance()?;
                    labels.push(token.text(self.text).to_owned());
                }
                _ => return self.unexpected(PLACE, "label"),
            }
            if self.eat(TokenKind::RightParen)? {
                return Ok(labels);
            }
            if !self.eat(TokenKind::Comma)? {
                return self.unexpected(PLACE, "\",\" or \")\"");
            }
        }
    }
}

fn is_metric(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::Identifier | TokenKind::MetricIdentifier | TokenKind::Aggregate(_))
        || kind.is_metric_keyword()
}
