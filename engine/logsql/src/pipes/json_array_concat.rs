//! `json_array_concat`: the items of a JSON array as one text.

use std::fmt::{self, Display, Formatter};

use quiver_types::logs::MSG;
use serde::{Deserialize, Serialize};

use super::pipe::Pipe;
use super::row_pipe::{RowPipe, of_one};
use super::syntax::{from_to, template, unless};
use crate::error::Result;
use crate::lexer::quote;
use crate::ops::computed_fields::Compute;
use crate::parser::{Parser, PipeDef};
use crate::row_functions;

/// `json_array_concat "s" [from f] [as r]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JsonArrayConcat {
    /// Between the items.
    pub separator: String,
    /// The source field.
    pub from: String,
    /// The result field.
    pub to: String,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["json_array_concat"], doc: "Joins the items of a JSON array to one text.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    // Without a separator the items stand side by side.
    let none = parser.at_pipe_end() || parser.is_any(&["from", "as"]);
    let separator = if none { String::new() } else { template(parser, "a separator")? };
    let (from, to) = from_to(parser)?;
    Ok(JsonArrayConcat { separator, from, to }.into())
}

impl Display for JsonArrayConcat {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (from, to) = (unless(&self.from, MSG, "from"), unless(&self.to, &self.from, "as"));
        write!(f, "json_array_concat {}{from}{to}", quote(&self.separator))
    }
}

impl RowPipe for JsonArrayConcat {
    const KIND: &'static str = "json_array_concat";

    fn sources(&self) -> Vec<String> {
        vec![self.from.clone()]
    }

    fn targets(&self) -> Vec<String> {
        vec![self.to.clone()]
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        let separator = self.separator.clone();
        Ok(of_one(move |value, out| row_functions::json_array_concat(value, &separator, out)))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("json_array_concat ',' from a as b", "json_array_concat \",\" from a as b"),
            ("json_array_concat '' a", "json_array_concat \"\" from a"),
            ("json_array_concat from a", "json_array_concat \"\" from a"),
            ("json_array_concat", "json_array_concat \"\""),
            ("json_array_concat ',' as b", "json_array_concat \",\" as b"),
        ]);
        refuses(&[("json_array_concat from", "field"), ("json_array_concat ',' from", "field")]);
        gives("json_array_concat '-' from a", &["a='[1,\"x\"]'"], &["a=1-x"]);
        gives("json_array_concat '' from a as b | fields b", &["a='[1,\"x\"]'"], &["b=1x"]);
    }
}
