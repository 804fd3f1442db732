//! `collapse_nums`: numbers in texts become `<N>`.

use std::fmt::{self, Display, Formatter};

use quiver_types::logs::MSG;
use serde::{Deserialize, Serialize};

use super::pipe::Pipe;
use super::row_pipe::{RowPipe, conditional, of_one};
use super::syntax::{at, condition_text, unless};
use crate::ast::Filter;
use crate::error::Result;
use crate::ops::computed_fields::Compute;
use crate::parser::{Parser, PipeDef};
use crate::row_functions;

/// `collapse_nums [if (f)] [at f] [prettify]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollapseNums {
    /// The field whose values are changed.
    pub at: String,
    /// Whether groups of numbers are named by what they are, such as `<UUID>` or `<IP4>`.
    pub prettify: bool,
    /// `if (f)`: rows that do not match stay as they are; `None`: all are worked on.
    pub condition: Option<Filter>,
}

pub(super) const DEFS: &[PipeDef] = &[PipeDef {
    names: &["collapse_nums"],
    doc: "Writes `<N>` in place of numbers, so that like texts become equal.",
    parse,
}];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    let at = at(parser)?;
    Ok(CollapseNums { at, prettify: parser.skip("prettify"), condition }.into())
}

impl Display for CollapseNums {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let condition = condition_text(self.condition.as_ref());
        write!(f, "collapse_nums{condition}{}", unless(&self.at, MSG, "at"))?;
        if self.prettify { f.write_str(" prettify") } else { Ok(()) }
    }
}

impl RowPipe for CollapseNums {
    const KIND: &'static str = "collapse_nums";

    fn sources(&self) -> Vec<String> {
        vec![self.at.clone()]
    }

    fn targets(&self) -> Vec<String> {
        vec![self.at.clone()]
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        let prettify = self.prettify;
        Ok(of_one(move |value, out| row_functions::collapse_nums(value, prettify, out)))
    }

    conditional!();
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("collapse_nums", "collapse_nums"),
            ("collapse_nums if (a:b) at x prettify", "collapse_nums if (a:b) at x prettify"),
        ]);
        refuses(&[("collapse_nums x", "`|` or the end of the pipe expected")]);
        gives("collapse_nums at a", &["a='took 12 of 34'"], &["a='took <N> of <N>'"]);
        gives("collapse_nums if (b:1) at a", &["a=5 b=1", "a=5 b=2"], &["a=<N> b=1", "a=5 b=2"]);
    }
}
