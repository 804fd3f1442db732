//! `replace_regexp`: what a regular expression matches becomes another text.

use std::fmt::{self, Display, Formatter};

use quiver_types::Error;
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

/// `replace_regexp [if (f)] ("re", "b") [at f] [limit N]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplaceRegexp {
    /// RE2 text; checked when parsed.
    pub pattern: String,
    /// Text with `$1`, `${1}`, `${name}`.
    pub new: String,
    /// The field whose values are changed.
    pub at: String,
    /// `limit N`: at most so many places of a value; 0 and `None`: all.
    pub limit: Option<u64>,
    /// `if (f)`: rows that do not match stay as they are; `None`: all are worked on.
    pub condition: Option<Filter>,
}

pub(super) const DEFS: &[PipeDef] = &[PipeDef {
    names: &["replace_regexp"],
    doc: "Puts a text, perhaps with groups, in the place of what a regular expression matches.",
    parse,
}];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    let begin = parser.next;
    let (pattern, new) = two_texts(parser)?;
    parser.check_regexp(begin, &pattern)?;
    let at = at(parser)?;
    Ok(ReplaceRegexp { pattern, new, at, limit: parser.limit()?, condition }.into())
}

impl Display for ReplaceRegexp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (condition, at) = (condition_text(self.condition.as_ref()), unless(&self.at, MSG, "at"));
        write!(f, "replace_regexp{condition} ({}, {}){at}", word(&self.pattern), word(&self.new))?;
        f.write_str(&limited(self.limit))
    }
}

impl RowPipe for ReplaceRegexp {
    const KIND: &'static str = "replace_regexp";

    fn sources(&self) -> Vec<String> {
        vec![self.at.clone()]
    }

    fn targets(&self) -> Vec<String> {
        vec![self.at.clone()]
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        let mut replace =
            row_functions::ReplaceRegexp::new(&self.pattern, &self.new, self.limit).map_err(Error::invalid)?;
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
            ("replace_regexp ('a+', b) at x limit 2", "replace_regexp (\"a+\", b) at x limit 2"),
            ("replace_regexp if (a:b) ('(x)', '$1',)", "replace_regexp if (a:b) (\"(x)\", \"$1\")"),
        ]);
        refuses(&[("replace_regexp ('(', b)", "("), ("replace_regexp ('a')", "`,` expected")]);
        gives("replace_regexp ('(\\\\w+)@(\\\\w+)', '$2 at ${1}') at a", &["a='x@y'"], &["a='y at x'"]);
    }
}
