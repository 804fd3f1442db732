//! `replace`: a text within texts becomes another.

use std::fmt::{self, Display, Formatter};

use quiver_types::logs::MSG;
use serde::{Deserialize, Serialize};

use super::pipe::Pipe;
use super::row_pipe::{RowPipe, conditional, of_one};
use super::syntax::{at, condition_text, limited, two_texts, unless};
use crate::ast::Filter;
use crate::error::Result;
use crate::ops::computed_fields::Compute;
use crate::parser::{Parser, PipeDef};
use crate::print::word;
use crate::row_functions;

/// `replace [if (f)] ("a", "b") [at f] [limit N]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replace {
    /// The text that is replaced.
    pub old: String,
    /// What stands there afterwards.
    pub new: String,
    /// The field whose values are changed.
    pub at: String,
    /// `limit N`: at most so many places of a value; 0 and `None`: all.
    pub limit: Option<u64>,
    /// `if (f)`: rows that do not match stay as they are; `None`: all are worked on.
    pub condition: Option<Filter>,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["replace"], doc: "Puts a text in the place of another within a field.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    let (old, new) = two_texts(parser)?;
    let at = at(parser)?;
    Ok(Replace { old, new, at, limit: parser.limit()?, condition }.into())
}

impl Display for Replace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (condition, at) = (condition_text(self.condition.as_ref()), unless(&self.at, MSG, "at"));
        write!(f, "replace{condition} ({}, {}){at}{}", word(&self.old), word(&self.new), limited(self.limit))
    }
}

impl RowPipe for Replace {
    const KIND: &'static str = "replace";

    fn sources(&self) -> Vec<String> {
        vec![self.at.clone()]
    }

    fn targets(&self) -> Vec<String> {
        vec![self.at.clone()]
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        let replace = row_functions::Replace::new(&self.old, &self.new, self.limit);
        Ok(of_one(move |value, out| replace.apply(value, out)))
    }

    conditional!();
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("replace (a, b,) at x limit 2", "replace (a, b) at x limit 2"),
            ("replace if (a:b) ('x y', '') limit 0", "replace if (a:b) (\"x y\", \"\")"),
        ]);
        refuses(&[("replace (a)", "`,` expected"), ("replace a", "`(` expected")]);
        gives("replace (o, 0) at a limit 1", &["a=foo b=o"], &["a=f0o b=o"]);
        gives("replace if (b:1) (o, '') at a", &["a=foo b=1", "a=foo b=2"], &["a=f b=1", "a=foo b=2"]);
    }
}
