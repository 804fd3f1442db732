//! `decolorize`: colours of terminals go.

use std::fmt::{self, Display, Formatter};

use quiver_types::logs::MSG;
use serde::{Deserialize, Serialize};

use super::pipe::Pipe;
use super::row_pipe::{RowPipe, conditional, of_one};
use super::syntax::condition_text;
use crate::ast::Filter;
use crate::error::Result;
use crate::lexer::quote;
use crate::ops::computed_fields::Compute;
use crate::parser::{Parser, PipeDef};
use crate::print::word;
use crate::row_functions;

/// `decolorize [if (f)] [f]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decolorize {
    /// The field whose values are changed.
    pub at: String,
    /// `if (f)`: rows that do not match stay as they are; `None`: all are worked on.
    pub condition: Option<Filter>,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["decolorize"], doc: "Takes ANSI escapes for colours out of a text.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    parser.skip("at");
    let at = if parser.at_pipe_end() { MSG.to_owned() } else { parser.field()? };
    Ok(Decolorize { at, condition }.into())
}

impl Display for Decolorize {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "decolorize{}", condition_text(self.condition.as_ref()))?;
        match self.at.as_str() {
            MSG => Ok(()),
            // Without quotes it stands before a field.
            at if at.eq_ignore_ascii_case("at") => write!(f, " {}", quote(at)),
            at => write!(f, " {}", word(at)),
        }
    }
}

impl RowPipe for Decolorize {
    const KIND: &'static str = "decolorize";

    fn sources(&self) -> Vec<String> {
        vec![self.at.clone()]
    }

    fn targets(&self) -> Vec<String> {
        vec![self.at.clone()]
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        Ok(of_one(row_functions::decolorize))
    }

    conditional!();
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads};

    #[test]
    fn cases() {
        reads(&[
            ("decolorize", "decolorize"),
            ("decolorize at x", "decolorize x"),
            ("decolorize 'at'", "decolorize \"at\""),
            ("decolorize at At", "decolorize \"At\""),
            ("decolorize if (a:b) x", "decolorize if (a:b) x"),
        ]);
        gives("decolorize a", &["a=\"\\u001b[31mred\\u001b[0m\" b=1"], &["a=red b=1"]);
    }
}
