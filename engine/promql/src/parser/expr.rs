//! Operators: precedence climbing over operands, and unary signs.

use super::Parser;
use crate::ast::{BinaryExpr, BinaryOp, Expr, ExprKind, PosRange};
use crate::error::Result;
use crate::lexer::token::TokenKind;

/// Binding of unary signs: stronger than `*`, weaker than `^`.
const POWER: u8 = 6;

/// Gives how strongly an operator binds.
fn binding(op: BinaryOp) -> u8 {
    match op {
        BinaryOp::Or => 1,
        BinaryOp::And | BinaryOp::Unless => 2,
        BinaryOp::Eql
        | BinaryOp::Neq
        | BinaryOp::Lss
        | BinaryOp::Lte
        | BinaryOp::Gtr
        | BinaryOp::Gte
        | BinaryOp::TrimUpper
        | BinaryOp::TrimLower => 3,
        BinaryOp::Add | BinaryOp::Sub => 4,
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::Mod | BinaryOp::Atan2 => 5,
        BinaryOp::Pow => POWER,
    }
}

impl Parser<'_> {
    /// Reads an expression.
    pub(super) fn expr(&mut self) -> Result<Expr> {
        self.binary(0)
    }

    /// Reads an expression of operators that bind at least as strongly as `min`.
    fn binary(&mut self, min: u8) -> Result<Expr> {
        self.enter()?;
        let mut lhs = self.operand()?;
        while let TokenKind::Op(op) = self.peek()?.kind
            && binding(op) >= min
        {
            self.advance()?;
            let (return_bool, matching) = self.matching()?;
            let right_associative = op == BinaryOp::Pow;
            let rhs = self.binary(binding(op) + u8::from(!right_associative))?;
            let pos = PosRange { start: lhs.pos.start, end: rhs.pos.end };
            let binary = BinaryExpr { op, lhs, rhs, return_bool, matching: Some(matching) };
            lhs = Expr { kind: ExprKind::Binary(Box::new(binary)), pos };
        }
        self.leave();
        Ok(lhs)
    }

    fn operand(&mut self) -> Result<Expr> {
        let sign = self.peek()?;
        let TokenKind::Op(op @ (BinaryOp::Add | BinaryOp::Sub)) = sign.kind else {
            let expr = self.primary()?;
            return self.modified(expr);
        };
        self.advance()?;
        let negate = op == BinaryOp::Sub;
        let expr = self.binary(POWER)?;
        let pos = PosRange { start: sign.pos.start, end: expr.pos.end };
        let kind = match expr.kind {
            ExprKind::Number { value, duration } => {
                ExprKind::Number { value: if negate { -value } else { value }, duration }
            }
            _ => ExprKind::Unary { negate, expr: Box::new(expr) },
        };
        Ok(Expr { kind, pos })
    }
}
