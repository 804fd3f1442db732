//! `hash`: a numeric hash of a field.

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
use crate::row_functions;

/// `hash(f) [as r]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashOf {
    /// The source field.
    pub from: String,
    /// The result field.
    pub to: String,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["hash"], doc: "Gives the xxhash64 of a text as a number.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let from = source(parser)?;
    Ok(HashOf { from, to: result(parser)? }.into())
}

impl Display for HashOf {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "hash({}){}", word(&self.from), unless(&self.to, MSG, "as"))
    }
}

impl RowPipe for HashOf {
    const KIND: &'static str = "hash";

    fn sources(&self) -> Vec<String> {
        vec![self.from.clone()]
    }

    fn targets(&self) -> Vec<String> {
        vec![self.to.clone()]
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        Ok(of_one(|value, out| out.push_str(&row_functions::hash(value).to_string())))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[("hash(a) as b", "hash(a) as b"), ("hash a", "hash(a)"), ("hash(a,) b", "hash(a) as b")]);
        refuses(&[("hash(a, b)", "`)` expected"), ("hash", "a field name expected")]);
        gives("hash(a) as h | filter h:>0 | fields a", &["a=x"], &["a=x"]);
    }
}
