//! `stream_context`: the neighbours of matching rows in their streams.

use std::fmt::{self, Display, Formatter};

use quiver_types::Result;
use quiver_types::logs::{STREAM_ID, TIME};

use super::pipe::{At, Pipe, PipeKind};
use crate::ast::{Filter, Literal};
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::{PartialPlan, internal};
use crate::print::literal;
use crate::required_fields::Needs;

/// `stream_context [before N] [after N] [time_window d]`
#[derive(Debug, Clone, PartialEq)]
pub struct StreamContext {
    /// How many rows before each match.
    pub before: Option<u64>,
    /// How many rows after each match.
    pub after: Option<u64>,
    /// How far away a neighbour may be; nanoseconds.
    pub time_window: Option<Literal<i64>>,
    /// What binds neighbours too; no part of the text, a request lays it upon the query.
    pub within: Vec<Filter>,
}

pub(super) const DEFS: &[PipeDef] = &[PipeDef {
    names: &["stream_context"],
    doc: "Gives rows before and after matching rows in their streams, too.",
    parse,
}];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let at = parser.next;
    let mut context = StreamContext { before: None, after: None, time_window: None, within: Vec::new() };
    while !parser.at_pipe_end() {
        if context.before.is_none() && parser.skip("before") {
            context.before = Some(parser.count("a number of rows after `before`")?);
        } else if context.after.is_none() && parser.skip("after") {
            context.after = Some(parser.count("a number of rows after `after`")?);
        } else if context.time_window.is_none() && parser.skip("time_window") {
            context.time_window = Some(parser.duration("a duration after `time_window`")?);
        } else {
            return Err(parser.unexpected("`before N`, `after N` or `time_window d`"));
        }
    }
    if context.before.is_none() && context.after.is_none() {
        return Err(parser.fault_at(at.saturating_sub(1), "`stream_context` needs `before N` or `after N`"));
    }
    Ok(context.into())
}

impl Display for StreamContext {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("stream_context")?;
        if let Some(before) = self.before {
            write!(f, " before {before}")?;
        }
        if let Some(after) = self.after {
            write!(f, " after {after}")?;
        }
        self.time_window.as_ref().map_or(Ok(()), |window| write!(f, " time_window {}", literal(&window.text)))
    }
}

impl PipeKind for StreamContext {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        needs.add_all([TIME, STREAM_ID]);
        needs
    }

    fn plan(&self, _: PartialPlan, _: At<'_>) -> Result<PartialPlan> {
        Err(internal("`stream_context` is planned with the scan"))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("stream_context after 3 before 5", "stream_context before 5 after 3"),
            ("stream_context before 1 time_window 5m", "stream_context before 1 time_window 5m"),
        ]);
        refuses(&[
            ("stream_context", "needs `before N` or `after N`"),
            ("stream_context before x", "a number of rows after `before`"),
            ("stream_context before 1 before 2", "`before N`, `after N`"),
        ]);
    }
}
