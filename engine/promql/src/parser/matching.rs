//! What stands between a binary operator and its right side: `bool`, `on`, `ignoring`, `group_left`, `fill` and the
//! like.

use super::Parser;
use crate::ast::{BinaryOp, MatchCardinality, VectorMatching};
use crate::error::Result;
use crate::lexer::token::TokenKind;

impl Parser<'_> {
    /// Reads the modifiers of a binary operator; says also whether `bool` is among them.
    pub(super) fn matching(&mut self) -> Result<(bool, VectorMatching)> {
        let mut matching = VectorMatching {
            card: MatchCardinality::OneToOne,
            labels: Vec::new(),
            on: false,
            include: Vec::new(),
            fill_left: None,
            fill_right: None,
        };
        let return_bool = self.eat(TokenKind::Bool)?;
        let kind = self.peek()?.kind;
        if matches!(kind, TokenKind::On | TokenKind::Ignoring) {
            self.advance()?;
            matching.on = kind == TokenKind::On;
            matching.labels = self.labels()?;
            self.grouping_side(&mut matching)?;
        }
        self.fill(&mut matching)?;
        Ok((return_bool, matching))
    }

    fn grouping_side(&mut self, matching: &mut VectorMatching) -> Result<()> {
        matching.card = match self.peek()?.kind {
            TokenKind::GroupLeft => MatchCardinality::ManyToOne,
            TokenKind::GroupRight => MatchCardinality::OneToMany,
            _ => return Ok(()),
        };
        self.advance()?;
        let next = self.peek()?.kind;
        // What can start neither the right side nor labels is taken for a mistake in the labels.
        if next == TokenKind::LeftParen || !next.starts_expr() {
            matching.include = self.labels()?;
        }
        Ok(())
    }

    fn fill(&mut self, matching: &mut VectorMatching) -> Result<()> {
        if self.eat(TokenKind::Fill)? {
            matching.fill_left = Some(self.fill_value()?);
            matching.fill_right = matching.fill_left;
        } else if self.eat(TokenKind::FillLeft)? {
            matching.fill_left = Some(self.fill_value()?);
            if self.eat(TokenKind::FillRight)? {
                matching.fill_right = Some(self.fill_value()?);
            }
        } else if self.eat(TokenKind::FillRight)? {
            matching.fill_right = Some(self.fill_value()?);
            if self.eat(TokenKind::FillLeft)? {
                matching.fill_left = Some(self.fill_value()?);
            }
        }
        Ok(())
    }

    fn fill_value(&mut self) -> Result<f64> {
        self.expect(TokenKind::LeftParen)?;
        let sign = match self.peek()?.kind {
            TokenKind::Op(BinaryOp::Sub) => -1.0,
            _ => 1.0,
        };
        if matches!(self.peek()?.kind, TokenKind::Op(BinaryOp::Add | BinaryOp::Sub)) {
            self.advance()?;
        }
        if !matches!(self.peek()?.kind, TokenKind::Number | TokenKind::Duration) {
            return self.stray();
        }
        let (value, _) = self.number()?;
        self.expect(TokenKind::RightParen)?;
        Ok(sign * value)
    }
}
