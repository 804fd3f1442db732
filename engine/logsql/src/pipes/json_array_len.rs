//! `json_array_len`: how many items a JSON array has.

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

/// `json_array_len(f) [as r]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JsonArrayLen {
    /// The source field.
    pub from: String,
    /// The result field.
    pub to: String,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["json_array_len"], doc: "Counts the items of a JSON array; 0 for what is none.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let from = source(parser)?;
    Ok(JsonArrayLen { from, to: result(parser)? }.into())
}

impl Display for JsonArrayLen {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "json_array_len({}){}", word(&self.from), unless(&self.to, MSG, "as"))
    }
}

impl RowPipe for JsonArrayLen {
    const KIND: &'static str = "json_array_len";

    fn sources(&self) -> Vec<String> {
        vec![self.from.clone()]
    }

    fn targets(&self) -> Vec<String> {
        vec![self.to.clone()]
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        Ok(of_one(|value, out| out.push_str(&row_functions::json_array_len(value).to_string())))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads};

    #[test]
    fn cases() {
        reads(&[("json_array_len(a) as b", "json_array_len(a) as b"), ("json_array_len a", "json_array_len(a)")]);
        gives("json_array_len(a) as n | fields n", &["a='[1,[2],\"x\"]'", "a=x"], &["n=3", "n=0"]);
    }
}
