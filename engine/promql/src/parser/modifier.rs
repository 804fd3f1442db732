//! What may follow an operand: ranges and subqueries in brackets, `offset`, `@`, `anchored`, `smoothed`.

use super::Parser;
use super::duration::{DurationPlace, normalized};
use crate::ast::{At, BinaryOp, DurationExpr, DurationKind, Expr, ExprKind, PosRange, SubqueryExpr};
use crate::error::{ParseError, Result};
use crate::lexer::token::TokenKind;
use crate::range_ends::RangeEnds;

const RANGE_START: DurationPlace =
    DurationPlace { name: "subquery or range selector", expected: "number, duration, step(), or range()" };
const STEP_START: DurationPlace =
    DurationPlace { name: "subquery selector", expected: "number, duration, step(), range(), or \"]\"" };

/// The furthest times that `@` tells of, in milliseconds: those beyond stand for these. Offsets, ranges and look-backs
/// can be added to them.
const AT_MS_MAX: i64 = 1 << 62;

impl Parser<'_> {
    /// Reads all modifiers of an operand.
    pub(super) fn modified(&mut self, mut expr: Expr) -> Result<Expr> {
        loop {
            match self.peek()?.kind {
                TokenKind::LeftBracket => expr = self.bracket(expr)?,
                TokenKind::Offset => self.offset(&mut expr)?,
                TokenKind::At => self.at(&mut expr)?,
                TokenKind::Anchored => {
                    self.advance()?;
                    extend(&mut expr, RangeEnds::Anchored)?;
                }
                TokenKind::Smoothed => {
                    self.advance()?;
                    extend(&mut expr, RangeEnds::Smoothed)?;
                }
                _ => return Ok(expr),
            }
            expr.pos.end = self.last_end;
        }
    }

    fn bracket(&mut self, expr: Expr) -> Result<Expr> {
        let open = self.expect(TokenKind::LeftBracket)?;
        let range = self.positive_duration(&RANGE_START)?;
        if self.eat(TokenKind::RightBracket)? {
            return self.range_selector(expr, range, self.since(open.pos.start));
        }
        if !self.eat(TokenKind::Colon)? {
            return self.unexpected("subquery or range", "\":\" or \"]\"");
        }
        let step = match self.peek()?.kind {
            TokenKind::RightBracket => None,
            _ => Some(self.positive_duration(&STEP_START)?),
        };
        if !self.eat(TokenKind::RightBracket)? {
            return self.unexpected("subquery selector", "\"]\"");
        }
        let pos = self.since(expr.pos.start);
        if matches!(expr.kind, ExprKind::MatrixSelector { .. } | ExprKind::Subquery(_)) {
            // The type check would say so too; here it keeps a row of brackets from nesting without end.
            return Err(ParseError::new(pos, "subquery is only allowed on instant vector, got matrix instead"));
        }
        let subquery = SubqueryExpr { expr, range, step, offset: None, at: None };
        Ok(Expr { kind: ExprKind::Subquery(Box::new(subquery)), pos })
    }

    fn range_selector(&mut self, expr: Expr, range: DurationExpr, brackets: PosRange) -> Result<Expr> {
        let pos = self.since(expr.pos.start);
        let message = match expr.kind {
            ExprKind::VectorSelector(selector) if selector.offset.is_none() && selector.at.is_none() => {
                return Ok(Expr { kind: ExprKind::MatrixSelector { selector, range }, pos });
            }
            ExprKind::VectorSelector(selector) if selector.offset.is_some() => {
                "no offset modifiers allowed before range"
            }
            ExprKind::VectorSelector(_) => "no @ modifiers allowed before range",
            _ => "ranges only allowed for vector selectors",
        };
        Err(ParseError::new(brackets, message))
    }

    fn positive_duration(&mut self, place: &DurationPlace) -> Result<DurationExpr> {
        let duration = self.duration(place)?;
        match duration.kind {
            DurationKind::Literal { seconds, .. } if seconds <= 0.0 => {
                Err(ParseError::new(duration.pos, "duration must be greater than 0"))
            }
            _ => Ok(normalized(duration)),
        }
    }

    fn offset(&mut self, expr: &mut Expr) -> Result<()> {
        self.expect(TokenKind::Offset)?;
        let duration = normalized(self.offset_duration()?);
        let pos = expr.pos;
        let Some((offset, _)) = time_modifiers(expr) else {
            let message =
                "offset modifier must be preceded by an instant vector selector or range vector selector or a subquery";
            return Err(ParseError::new(pos, message));
        };
        if offset.is_some() {
            return Err(ParseError::new(pos, "offset may not be set multiple times"));
        }
        let nothing = matches!(duration.kind, DurationKind::Literal { seconds, .. } if seconds == 0.0);
        *offset = (!nothing).then_some(duration);
        Ok(())
    }

    fn at(&mut self, expr: &mut Expr) -> Result<()> {
        self.expect(TokenKind::At)?;
        let token = self.peek()?;
        let pos = expr.pos;
        let at = match token.kind {
            TokenKind::Start | TokenKind::End => {
                self.advance()?;
                if !self.eat(TokenKind::LeftParen)? || !self.eat(TokenKind::RightParen)? {
                    return self.unexpected("@", "timestamp");
                }
                if token.kind == TokenKind::Start { At::Start } else { At::End }
            }
            _ => At::Time(self.timestamp(pos)?),
        };
        let Some((_, slot)) = time_modifiers(expr) else {
            let message =
                "@ modifier must be preceded by an instant vector selector or range vector selector or a subquery";
            return Err(ParseError::new(pos, message));
        };
        if slot.replace(at).is_some() {
            return Err(ParseError::new(pos, "@ <timestamp> may not be set multiple times"));
        }
        Ok(())
    }

    /// Reads a time in seconds; gives milliseconds.
    fn timestamp(&mut self, pos: PosRange) -> Result<i64> {
        let sign = match self.peek()?.kind {
            TokenKind::Op(BinaryOp::Add) => Some(1.0),
            TokenKind::Op(BinaryOp::Sub) => Some(-1.0),
            _ => None,
        };
        if sign.is_some() {
            self.advance()?;
        }
        if !matches!(self.peek()?.kind, TokenKind::Number | TokenKind::Duration) {
            return self.unexpected("@", "timestamp");
        }
        let seconds = sign.unwrap_or(1.0) * self.number()?.0;
        // Bounds of 64-bit integers, which are no such numbers themselves.
        if !(seconds > i64::MIN as f64 && seconds < i64::MAX as f64) {
            let shown = match seconds {
                s if s.is_nan() => "NaN".to_owned(),
                s if s.is_infinite() => (if s > 0.0 { "+Inf" } else { "-Inf" }).to_owned(),
                s => format!("{s:.6}"),
            };
            return Err(ParseError::new(pos, format!("timestamp out of bounds for @ modifier: {shown}")));
        }
        Ok(((seconds * 1000.0).round() as i64).clamp(-AT_MS_MAX, AT_MS_MAX))
    }
}

/// Marks a selector as `anchored` or `smoothed`.
fn extend(expr: &mut Expr, ends: RangeEnds) -> Result<()> {
    let message = match &mut expr.kind {
        ExprKind::VectorSelector(selector) | ExprKind::MatrixSelector { selector, .. } => {
            if selector.ends == RangeEnds::Samples || selector.ends == ends {
                selector.ends = ends;
                return Ok(());
            }
            "anchored and smoothed modifiers cannot be used together".to_owned()
        }
        ExprKind::Subquery(_) => format!("{} modifier is not supported for subqueries", ends.word()),
        _ => format!("{} modifier not implemented", ends.word()),
    };
    Err(ParseError::new(expr.pos, message))
}

/// Gives where `offset` and `@` of an expression are kept, if it can have them.
fn time_modifiers(expr: &mut Expr) -> Option<(&mut Option<DurationExpr>, &mut Option<At>)> {
    match &mut expr.kind {
        ExprKind::VectorSelector(s) | ExprKind::MatrixSelector { selector: s, .. } => Some((&mut s.offset, &mut s.at)),
        ExprKind::Subquery(s) => Some((&mut s.offset, &mut s.at)),
        _ => None,
    }
}
