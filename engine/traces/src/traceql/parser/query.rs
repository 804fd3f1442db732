//! A whole query: sets of spans, and the stages behind them.

use std::cell::RefCell;

use super::super::ast::{Expr, Query, Spanset};
use super::super::fields::Field;
use super::{Parser, Result};

/// Reads a whole query.
pub(super) fn parse(text: &str) -> Result<Query> {
    let mut p = Parser::of(text);
    p.blank();
    let mut query = p.query()?;
    let hints = p.hints()?;
    query.exemplars = hints.exemplars;
    if hints.extrapolates {
        query.extrapolate();
    }
    if !p.is_end() {
        return Err(p.unexpected_for("with"));
    }
    Ok(query)
}

/// Reads a field that stands alone.
pub(super) fn field(text: &str) -> Option<Field> {
    let mut p = Parser::of(text);
    p.blank();
    let field = p.operand().ok()?.ok()?;
    p.is_end().then_some(field)
}

impl<'a> Parser<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let regexes = RefCell::default();
        Self { text, at: 0, depth: 0, conditions: 0, stages: 0, groups: 0, only_constants: false, regexes }
    }

    /// Reads sets of spans and the stages behind them.
    pub(super) fn query(&mut self) -> Result<Query> {
        // What is done with all spans may stand alone.
        let is_stage = self.rest().starts_with(char::is_alphabetic) && !self.is_hint();
        // But for what joins sets, of which there are none yet.
        if self.rest().starts_with("coalesce") {
            return Err(self.unexpected());
        }
        let spans = if self.is_end() || is_stage { Spanset::Filter(Expr::True) } else { self.spanset()? };
        // All of it in parentheses leaves the same sets as without them; beside others, only their spans would count.
        let (spans, stages) = match spans {
            Spanset::Piped(spans, stages) => (*spans, stages),
            spans => (spans, Vec::new()),
        };
        let mut query = Query { spans, stages, metric: None, exemplars: None };
        if is_stage {
            self.stage(&mut query)?;
        }
        // Hints stand behind a pipe, too, as they did in older queries.
        while self.eat("|") && !self.is_hint() {
            self.stage(&mut query)?;
        }
        Ok(query)
    }
}
