//! Durations: literals, and arithmetic over them in brackets and after `offset`.
//!
//! After `offset` an operator ends the duration unless it began with a parenthesis: `a offset 5m - b` subtracts `b`.

use super::Parser;
use crate::ast::{BinaryOp, DurationExpr, DurationKind, DurationOp, PosRange};
use crate::error::{ParseError, Result};
use crate::lexer::token::{Token, TokenKind};

/// Where a duration stands: words for errors.
pub(super) struct DurationPlace {
    pub(super) name: &'static str,
    pub(super) expected: &'static str,
}

const OFFSET: DurationPlace = DurationPlace { name: "offset", expected: "number, duration, step(), or range()" };

/// Binding of unary signs: stronger than `*`, weaker than `^`.
const POWER: u8 = 3;

/// Longest duration, in seconds: that of 64-bit nanoseconds.
const SECONDS_MAX: f64 = (1_u64 << 63) as f64 / 1e9;

impl Parser<'_> {
    /// Reads a duration expression.
    pub(super) fn duration(&mut self, place: &DurationPlace) -> Result<DurationExpr> {
        self.duration_binary(0, place)
    }

    /// Reads what follows `offset`.
    pub(super) fn offset_duration(&mut self) -> Result<DurationExpr> {
        let token = self.peek()?;
        match token.kind {
            TokenKind::LeftParen => self.duration(&OFFSET),
            TokenKind::Op(BinaryOp::Add | BinaryOp::Sub) => {
                self.advance()?;
                let next = self.peek()?;
                match next.kind {
                    TokenKind::Op(BinaryOp::Add | BinaryOp::Sub) => {}
                    TokenKind::Number | TokenKind::Duration => {
                        let (seconds, duration) = self.number()?;
                        return signed(
                            token,
                            DurationExpr { kind: DurationKind::Literal { seconds, duration }, pos: next.pos },
                        );
                    }
                    _ => {
                        let operand = self.duration_operand(&OFFSET)?;
                        return signed(token, operand);
                    }
                }
                let operand = self.duration_binary(POWER, &OFFSET)?;
                let duration = self.duration_rest(signed(token, operand)?, 0, &OFFSET)?;
                Ok(match duration.kind {
                    // Written back without parentheses, its operators would not be part of the offset.
                    DurationKind::Binary { .. } => {
                        let pos = duration.pos;
                        DurationExpr { kind: DurationKind::Paren(Box::new(duration)), pos }
                    }
                    _ => duration,
                })
            }
            _ => self.duration_operand(&OFFSET),
        }
    }

    fn duration_binary(&mut self, min: u8, place: &DurationPlace) -> Result<DurationExpr> {
        self.enter()?;
        let lhs = self.duration_operand(place)?;
        let duration = self.duration_rest(lhs, min, place)?;
        self.leave();
        Ok(duration)
    }

    fn duration_rest(&mut self, mut lhs: DurationExpr, min: u8, place: &DurationPlace) -> Result<DurationExpr> {
        let mut length = 0;
        while let TokenKind::Op(op) = self.peek()?.kind
            && let Some((op, binding)) = operator(op)
            && binding >= min
        {
            let token = self.advance()?;
            length += 1;
            if self.depth + length > self.options.depth_max {
                return Err(ParseError::new(
                    token.pos,
                    format!(
                        "duration expression is too long, at most {} operators are allowed",
                        self.options.depth_max
                    ),
                ));
            }
            let rhs = self.duration_binary(binding + u8::from(op != DurationOp::Pow), place)?;
            if matches!(rhs.kind, DurationKind::Literal { seconds, .. } if seconds == 0.0) {
                match op {
                    DurationOp::Div => return Err(ParseError::new(token.pos, "division by zero")),
                    DurationOp::Mod => return Err(ParseError::new(token.pos, "modulo by zero")),
                    _ => {}
                }
            }
            let pos = PosRange { start: lhs.pos.start, end: rhs.pos.end };
            let kind = DurationKind::Binary { op, lhs: Box::new(lhs), rhs: Box::new(rhs) };
            lhs = DurationExpr { kind, pos };
        }
        Ok(lhs)
    }

    fn duration_operand(&mut self, place: &DurationPlace) -> Result<DurationExpr> {
        let token = self.peek()?;
        let kind = match token.kind {
            TokenKind::Number | TokenKind::Duration => {
                let (seconds, duration) = self.number()?;
                in_range(seconds, token.pos)?;
                DurationKind::Literal { seconds, duration }
            }
            TokenKind::Op(BinaryOp::Add | BinaryOp::Sub) => {
                self.advance()?;
                let operand = self.duration_binary(POWER, place)?;
                return signed(token, operand);
            }
            TokenKind::Step | TokenKind::Range => {
                self.advance()?;
                self.duration_token(TokenKind::LeftParen, place)?;
                self.duration_token(TokenKind::RightParen, place)?;
                if token.kind == TokenKind::Step { DurationKind::Step } else { DurationKind::Range }
            }
            TokenKind::MinOf | TokenKind::MaxOf => {
                self.advance()?;
                self.duration_token(TokenKind::LeftParen, place)?;
                let lhs = Box::new(self.duration(place)?);
                self.duration_token(TokenKind::Comma, place)?;
                let rhs = Box::new(self.duration(place)?);
                self.duration_token(TokenKind::RightParen, place)?;
                let op = if token.kind == TokenKind::MinOf { DurationOp::Min } else { DurationOp::Max };
                DurationKind::Binary { op, lhs, rhs }
            }
            TokenKind::LeftParen => {
                self.advance()?;
                let inner = self.duration(place)?;
                self.duration_token(TokenKind::RightParen, place)?;
                match inner.kind {
                    // A second pair of parentheses says nothing new.
                    DurationKind::Paren(_) => return Ok(inner),
                    _ => DurationKind::Paren(Box::new(inner)),
                }
            }
            _ => return self.unexpected(place.name, place.expected),
        };
        Ok(DurationExpr { kind, pos: self.since(token.pos.start) })
    }

    fn duration_token(&mut self, kind: TokenKind, place: &DurationPlace) -> Result<()> {
        if self.eat(kind)? { Ok(()) } else { self.unexpected(place.name, place.expected) }
    }
}

fn operator(op: BinaryOp) -> Option<(DurationOp, u8)> {
    Some(match op {
        BinaryOp::Add => (DurationOp::Add, 1),
        BinaryOp::Sub => (DurationOp::Sub, 1),
        BinaryOp::Mul => (DurationOp::Mul, 2),
        BinaryOp::Div => (DurationOp::Div, 2),
        BinaryOp::Mod => (DurationOp::Mod, 2),
        BinaryOp::Pow => (DurationOp::Pow, POWER),
        _ => return None,
    })
}

/// Puts a sign before a duration: literals take it up, a plus before anything else is dropped.
fn signed(sign: Token, operand: DurationExpr) -> Result<DurationExpr> {
    let negate = sign.kind == TokenKind::Op(BinaryOp::Sub);
    let pos = PosRange { start: sign.pos.start, end: operand.pos.end };
    let kind = match operand.kind {
        DurationKind::Literal { seconds, duration } => {
            let seconds = if negate { -seconds } else { seconds };
            in_range(seconds, sign.pos)?;
            DurationKind::Literal { seconds, duration }
        }
        _ if negate => DurationKind::Unary { negate, expr: Box::new(operand) },
        _ => return Ok(operand),
    };
    Ok(DurationExpr { kind, pos })
}

fn in_range(seconds: f64, pos: PosRange) -> Result<()> {
    if seconds.abs() <= SECONDS_MAX { Ok(()) } else { Err(ParseError::new(pos, "duration out of range")) }
}

/// Brings a duration that stands alone into its one form: a literal counts nanoseconds, and `300` is `5m`.
pub(super) fn normalized(duration: DurationExpr) -> DurationExpr {
    match duration.kind {
        DurationKind::Literal { seconds, .. } => {
            let seconds = (seconds * 1e9).round() / 1e9;
            DurationExpr { kind: DurationKind::Literal { seconds, duration: true }, pos: duration.pos }
        }
        _ => duration,
    }
}
