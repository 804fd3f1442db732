//! `split`: a text becomes a JSON array of its parts.

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

/// `split "s" [from f] [as r]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Between the items.
    pub separator: String,
    /// The source field.
    pub from: String,
    /// The result field.
    pub to: String,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["split"], doc: "Cuts a text at a separator to a JSON array.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    if parser.is_any(&["from", "as"]) {
        return Err(parser.unexpected("a separator"));
    }
    let separator = template(parser, "a separator")?;
    let (from, to) = from_to(parser)?;
    Ok(Split { separator, from, to }.into())
}

impl Display for Split {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (from, to) = (unless(&self.from, MSG, "from"), unless(&self.to, &self.from, "as"));
        write!(f, "split {}{from}{to}", quote(&self.separator))
    }
}

impl RowPipe for Split {
    const KIND: &'static str = "split";

    fn sources(&self) -> Vec<String> {
        vec![self.from.clone()]
    }

    fn targets(&self) -> Vec<String> {
        vec![self.to.clone()]
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        let separator = self.separator.clone();
        Ok(of_one(move |value, out| row_functions::split(value, &separator, out)))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[("split ',' from a as b", "split \",\" from a as b"), ("split '-' a", "split \"-\" from a")]);
        refuses(&[("split", "a separator"), ("split as x", "a separator"), ("split , a", "a separator")]);
        gives("split '-' from a as b | fields b", &["a=1-2-x"], &["b='[\"1\",\"2\",\"x\"]'"]);
    }
}
