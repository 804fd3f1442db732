//! Arithmetic between queries of metrics in parentheses, and constants.

use super::super::error::TraceqlError;
use super::super::expressions::{End, Sign};
use super::super::numbers::Node;
use super::metric::COMPARED_ALONE;
use super::{CONDITIONS_MAX, Literal, Parser, Result};

/// What was read so far.
enum Side {
    /// A constant, and whether it is a whole number.
    Fixed(f64, bool),
    Numbers(Node),
}

/// Reads numbers over time that are worked out.
pub(in crate::traceql) fn numbers(text: &str) -> Result<Node> {
    let mut p = Parser::of(text);
    p.blank();
    let side = p.numbers_chain()?;
    let hints = p.hints()?;
    if !p.is_end() {
        return Err(p.unexpected_for("with"));
    }
    match side {
        Side::Numbers(mut node) => {
            if hints.extrapolates {
                node.extrapolate();
            }
            Ok(node)
        }
        Side::Fixed(..) => Err(p.error_at(p.at, "arithmetic of numbers over time needs a query of metrics")),
    }
}

impl Parser<'_> {
    /// Reads arithmetic, and what of its numbers is kept.
    fn numbers_chain(&mut self) -> Result<Side> {
        let mut side = self.numbers_sum()?;
        loop {
            let node = match side {
                Side::Numbers(node) => node,
                fixed @ Side::Fixed(..) => return Ok(fixed),
            };
            let begin = self.at;
            if let Some((compare, number)) = self.kept()? {
                self.count_choice(&node, begin)?;
                side = Side::Numbers(Node::Kept(Box::new(node), compare, number));
                continue;
            }
            let is_pick = self.rest().starts_with('|');
            if !is_pick {
                return Ok(Side::Numbers(node));
            }
            self.eat("|");
            let at = self.at;
            let name = self.take(|c| c.is_alphanumeric() || c == '_');
            self.blank();
            let Some(end) = End::of_function(name) else {
                return Err(self.error_at(at, "only `topk` and `bottomk` can follow arithmetic of numbers over time"));
            };
            self.count_choice(&node, at)?;
            side = Side::Numbers(Node::Picked(Box::new(node), end, self.pick_most()?));
        }
    }

    /// Reads a constant, or arithmetic with constants.
    pub(super) fn constant(&mut self) -> Result<f64> {
        let at = self.at;
        self.only_constants = true;
        let found = self.numbers_sum();
        self.only_constants = false;
        match found? {
            Side::Fixed(number, _) => Ok(number),
            Side::Numbers(_) => Err(self.error_at(at, "numbers over time are compared with a number")),
        }
    }

    fn numbers_sum(&mut self) -> Result<Side> {
        let mut left = self.numbers_product()?;
        loop {
            let at = self.at;
            let Some(sign) = self.sign(&[("+", Sign::Plus), ("-", Sign::Minus)]) else { return Ok(left) };
            let right = self.numbers_product()?;
            left = self.numbers_worked(left, sign, right, at)?;
        }
    }

    fn numbers_product(&mut self) -> Result<Side> {
        let mut left = self.numbers_one()?;
        loop {
            let at = self.at;
            let Some(sign) = self.sign(&[("*", Sign::Times), ("/", Sign::By)]) else { return Ok(left) };
            let right = self.numbers_one()?;
            left = self.numbers_worked(left, sign, right, at)?;
        }
    }

    /// Reads a constant, or what is in parentheses: a query, or arithmetic.
    fn numbers_one(&mut self) -> Result<Side> {
        let at = self.at;
        if self.is_negation() {
            self.eat("-");
            return match self.deeper(Self::numbers_one)? {
                Side::Fixed(number, is_whole) => Ok(Side::Fixed(-number, is_whole)),
                Side::Numbers(_) => {
                    self.at = at;
                    Err(self.unexpected())
                }
            };
        }
        if !self.eat("(") {
            return match self.number()? {
                Literal::Number(number, text) => {
                    self.blank();
                    Ok(Side::Fixed(number, number.fract() == 0.0 && !text.contains(['.', 'e', 'E'])))
                }
                _ => Err(self.error_at(at, "expected a number without a unit")),
            };
        }
        self.deeper(|p| {
            // Else what is in many parentheses would be tried once more at each of them.
            if p.only_constants {
                let inner = p.numbers_sum()?;
                p.expect(")")?;
                return Ok(inner);
            }
            let begin = (p.at, p.conditions, p.stages, p.groups, p.depth);
            let failed = match p.query() {
                Ok(query) if query.is_metric() && p.eat(")") => {
                    return Ok(Side::Numbers(Node::Query(Box::new(query))));
                }
                Ok(_) => None,
                Err(failed) => Some(failed),
            };
            (p.at, p.conditions, p.stages, p.groups, p.depth) = begin;
            let inner = p.numbers_chain().and_then(|inner| p.expect(")").map(|()| inner));
            inner.map_err(|other| match failed {
                Some(failed) => TraceqlError::or_later(failed, other),
                None => other,
            })
        })
    }

    /// Counts a part, so that what is read is not nested without bounds.
    pub(super) fn count_part(&mut self, at: usize) -> Result<()> {
        self.conditions += 1;
        if self.conditions > CONDITIONS_MAX {
            return Err(self.error_at(at, format!("more than {CONDITIONS_MAX} conditions")));
        }
        Ok(())
    }

    /// Counts what is done with numbers, which must not be those of `compare`.
    fn count_choice(&mut self, node: &Node, at: usize) -> Result<()> {
        self.count_part(at)?;
        if node.has_comparison() { Err(self.error_at(at, COMPARED_ALONE)) } else { Ok(()) }
    }

    /// Joins two sides; constants at once, whole ones as whole numbers.
    fn numbers_worked(&mut self, left: Side, sign: Sign, right: Side, at: usize) -> Result<Side> {
        self.count_part(at)?;
        let compared = |side: &Side| matches!(side, Side::Numbers(node) if node.has_comparison());
        if compared(&left) || compared(&right) {
            return Err(self.error_at(at, COMPARED_ALONE));
        }
        Ok(match (left, right) {
            (Side::Fixed(left, is_whole), Side::Fixed(right, is_whole_too)) => {
                let is_whole = is_whole && is_whole_too;
                let value = sign.of(left, right);
                if !value.is_finite() {
                    return Err(self.error_at(at, "a number without bounds"));
                }
                Side::Fixed(if is_whole { value.trunc() } else { value }, is_whole)
            }
            (Side::Fixed(fixed, _), Side::Numbers(of)) => {
                Side::Numbers(Node::Fixed { of: Box::new(of), sign, fixed, is_left: true })
            }
            (Side::Numbers(of), Side::Fixed(fixed, _)) => {
                Side::Numbers(Node::Fixed { of: Box::new(of), sign, fixed, is_left: false })
            }
            (Side::Numbers(left), Side::Numbers(right)) => {
                Side::Numbers(Node::Worked(Box::new(left), sign, Box::new(right)))
            }
        })
    }
}
