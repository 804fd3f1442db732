//! `len`: the length of a text in bytes.

use std::fmt::{self, Display, Formatter};

use quiver_types::logs::MSG;
use serde::{Deserialize, Serialize};

use super::pipe::Pipe;
use super::row_pipe::{RowPipe, of_one};
use super::syntax::{result, source, unless};
use crate::error::Result;
use crate::ops::computed_fields::Compute;
use crate::parser::{Parser, PipeDef};
use crate::print::word;

/// `len(f) [as r]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Len {
    /// The source field.
    pub from: String,
    /// The result field.
    pub to: String,
}

pub(super) const DEFS: &[PipeDef] = &[PipeDef { names: &["len"], doc: "Gives the length of a text in bytes.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let from = source(parser)?;
    Ok(Len { from, to: result(parser)? }.into())
}

impl Display for Len {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "len({}){}", word(&self.from), unless(&self.to, MSG, "as"))
    }
}

impl RowPipe for Len {
    const KIND: &'static str = "len";

    fn sources(&self) -> Vec<String> {
        vec![self.from.clone()]
    }

    fn targets(&self) -> Vec<String> {
        vec![self.to.clone()]
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        Ok(of_one(|value, out| out.push_str(&value.len().to_string())))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[("len(a) as b", "len(a) as b"), ("len a b", "len(a) as b"), ("len(a)", "len(a)")]);
        refuses(&[("len()", "a field name expected")]);
        gives("len(a) as n", &["a=abc", "a=ж b=1", "b=1"], &["a=abc n=3", "a=ж b=1 n=2", "b=1 n=0"]);
    }
}
