//! Operands: literals, parentheses, calls, aggregations, selectors.

use quiver_types::time::duration;

use super::Parser;
use crate::ast::{AggregateExpr, AggregateOp, Expr, ExprKind, Text};
use crate::duration::seconds;
use crate::error::{ParseError, Result};
use crate::functions;
use crate::lexer::quote::quote;
use crate::lexer::token::{Token, TokenKind};
use crate::lexer::{number, string};

impl Parser<'_> {
    /// Reads an operand without its modifiers.
    pub(super) fn primary(&mut self) -> Result<Expr> {
        let token = self.peek()?;
        self.count_operand(token.pos)?;
        let kind = match token.kind {
            TokenKind::Number | TokenKind::Duration => {
                let (value, duration) = self.number()?;
                ExprKind::Number { value, duration }
            }
            TokenKind::String => {
                self.advance()?;
                ExprKind::String(self.unquote(token)?)
            }
            TokenKind::LeftParen => {
                self.advance()?;
                let expr = self.expr()?;
                self.expect(TokenKind::RightParen)?;
                ExprKind::Paren(Box::new(expr))
            }
            TokenKind::LeftBrace => ExprKind::VectorSelector(self.selector()?),
            TokenKind::Aggregate(op) => {
                self.advance()?;
                match self.peek()?.kind {
                    TokenKind::LeftParen | TokenKind::By | TokenKind::Without => self.aggregate(op, token)?,
                    _ => ExprKind::VectorSelector(self.named_selector(token)?),
                }
            }
            kind if kind == TokenKind::Identifier || kind.is_named_function() => {
                self.advance()?;
                match self.peek()?.kind {
                    TokenKind::LeftParen => self.call(token)?,
                    _ => ExprKind::VectorSelector(self.named_selector(token)?),
                }
            }
            kind if kind == TokenKind::MetricIdentifier || kind.is_metric_keyword() => {
                self.advance()?;
                ExprKind::VectorSelector(self.named_selector(token)?)
            }
            _ => return self.stray(),
        };
        Ok(Expr { kind, pos: self.since(token.pos.start) })
    }

    /// Reads a number or a duration, which stands for its seconds; says also whether it was a duration.
    pub(super) fn number(&mut self) -> Result<(f64, bool)> {
        let token = self.advance()?;
        let text = token.text(self.text);
        let is_duration = token.kind == TokenKind::Duration;
        let value = if is_duration { duration::parse(text).map(seconds) } else { number::value(text) };
        value.map(|v| (v, is_duration)).map_err(|message| ParseError::new(token.pos, message))
    }

    /// Gives what a quoted text stands for.
    pub(super) fn unquote(&self, token: Token) -> Result<Text> {
        let text = token.text(self.text);
        string::decode(text)
            .map(|(text, _)| text)
            .map_err(|reason| ParseError::new(token.pos, format!("error unquoting string {}: {reason}", quote(text))))
    }

    fn call(&mut self, name: Token) -> Result<ExprKind> {
        let args = self.arguments()?;
        let function = name.text(self.text);
        match functions::lookup(function) {
            None => {
                let message = format!("unknown function with name {}", quote(function));
                Err(ParseError::new(name.pos, message))
            }
            Some(f) if f.experimental && !self.options.experimental_functions => {
                Err(ParseError::new(name.pos, format!("function {} is not enabled", quote(function))))
            }
            Some(_) => {
                // The fifth argument of `label_replace` is a pattern too.
                if let ("label_replace", Some(Expr { kind: ExprKind::String(pattern), pos })) = (function, args.get(4))
                {
                    self.patterns.count(pattern.shown()).map_err(|e| ParseError::of(*pos, e))?;
                }
                Ok(ExprKind::Call { function: function.to_owned(), args })
            }
        }
    }

    fn arguments(&mut self) -> Result<Vec<Expr>> {
        self.expect(TokenKind::LeftParen)?;
        let mut args = Vec::new();
        if self.eat(TokenKind::RightParen)? {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            let token = self.peek()?;
            match token.kind {
                TokenKind::RightParen => {
                    self.advance()?;
                    return Ok(args);
                }
                TokenKind::Comma => {
                    self.advance()?;
                    if !self.peek()?.kind.starts_expr() {
                        let message = "trailing commas not allowed in function call args";
                        return Err(ParseError::new(token.pos, message));
                    }
                }
                _ => return self.stray(),
            }
        }
    }

    fn aggregate(&mut self, op: AggregateOp, name: Token) -> Result<ExprKind> {
        self.aggregations += 1;
        let before = self.grouping()?;
        let mut args = self.arguments()?;
        self.aggregations -= 1;
        let written = match before {
            Some(_) => before,
            None => self.grouping()?,
        };
        let (grouping, without) = written.unwrap_or_default();
        let fail = |message: String| Err(ParseError::new(name.pos, message));
        if args.is_empty() {
            return fail("no arguments for aggregate expression provided".to_owned());
        }
        if matches!(op, AggregateOp::Limitk | AggregateOp::LimitRatio) && !self.options.experimental_functions {
            let name = op.as_str();
            return fail(format!(
                "{name}() is experimental and must be enabled with --enable-feature=promql-experimental-functions"
            ));
        }
        let expected = if op.has_param() { 2 } else { 1 };
        if args.len() != expected {
            let got = args.len();
            return fail(format!(
                "wrong number of arguments for aggregate expression provided, expected {expected}, got {got}"
            ));
        }
        let expr = args.pop().expect("there is at least one");
        Ok(ExprKind::Aggregate(Box::new(AggregateExpr { op, expr, param: args.pop(), grouping, without })))
    }

    /// Reads `by (...)` or `without (...)` if there is one; says also whether it was `without`.
    fn grouping(&mut self) -> Result<Option<(Vec<String>, bool)>> {
        let kind = self.peek()?.kind;
        if !matches!(kind, TokenKind::By | TokenKind::Without) {
            return Ok(None);
        }
        self.advance()?;
        Ok(Some((self.labels()?, kind == TokenKind::Without)))
    }
}
