//! `time_add`: moves a time.

use std::fmt::{self, Display, Formatter};

use quiver_types::logs::TIME;
use serde::{Deserialize, Serialize};

use super::pipe::Pipe;
use super::row_pipe::{RowPipe, of_one};
use super::syntax::unless;
use crate::ast::Literal;
use crate::error::Result;
use crate::ops::computed_fields::Compute;
use crate::parser::{Parser, PipeDef};
use crate::print::literal;
use crate::row_functions;

/// `time_add d [at f]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeAdd {
    /// By how many nanoseconds; negative ones move to the past.
    pub shift: Literal<i64>,
    /// The field that holds the time.
    pub at: String,
}

pub(super) const DEFS: &[PipeDef] = &[PipeDef { names: &["time_add"], doc: "Moves a time by a duration.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let shift = parser.duration("a duration")?;
    let at = if parser.skip("at") { parser.field()? } else { TIME.to_owned() };
    Ok(TimeAdd { shift, at }.into())
}

impl Display for TimeAdd {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "time_add {}{}", literal(&self.shift.text), unless(&self.at, TIME, "at"))
    }
}

impl RowPipe for TimeAdd {
    const KIND: &'static str = "time_add";

    fn sources(&self) -> Vec<String> {
        vec![self.at.clone()]
    }

    fn targets(&self) -> Vec<String> {
        vec![self.at.clone()]
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        let shift_ns = self.shift.value;
        Ok(of_one(move |value, out| row_functions::time_add(value, shift_ns, out)))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[("time_add 1h", "time_add 1h"), ("time_add -5m at t", "time_add -5m at t")]);
        refuses(&[("time_add", "a duration"), ("time_add x", "a duration")]);
        gives("time_add -1h at t", &["t=2025-01-01T00:30:00Z"], &["t=2024-12-31T23:30:00Z"]);
    }
}
