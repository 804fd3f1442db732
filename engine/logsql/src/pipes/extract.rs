//! `extract`: parts of a text become fields, by a pattern.

use std::fmt::{self, Display, Formatter};

use quiver_types::Error;
use quiver_types::logs::MSG;
use serde::{Deserialize, Serialize};

use super::pipe::Pipe;
use super::row_pipe::{RowPipe, conditional};
use super::syntax::{condition_text, from, overwrite, overwrite_text, template, unless};
use crate::ast::{Filter, Overwrite};
use crate::error::Result;
use crate::lexer::quote;
use crate::ops::computed_fields::Compute;
use crate::parser::{Parser, PipeDef};
use crate::row_functions;

/// `extract [if (f)] "p" [from f]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Extract {
    /// Text with `<name>`; checked when parsed.
    pub pattern: String,
    /// The source field.
    pub from: String,
    /// Whether a result takes the place of a value that the row has already.
    pub overwrite: Overwrite,
    /// `if (f)`: rows that do not match stay as they are; `None`: all are worked on.
    pub condition: Option<Filter>,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["extract"], doc: "Makes fields of what stands at `<name>` in a pattern.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    let begin = parser.next;
    let pattern = template(parser, "a pattern such as `\"ip=<ip> \"`")?;
    row_functions::Extract::new(&pattern).map_err(|fault| parser.fault_at(begin, fault))?;
    row_functions::template::fields(&pattern).iter().try_for_each(|_| parser.count_field())?;
    let from = from(parser)?;
    Ok(Extract { pattern, from, overwrite: overwrite(parser), condition }.into())
}

impl Display for Extract {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (condition, from) = (condition_text(self.condition.as_ref()), unless(&self.from, MSG, "from"));
        write!(f, "extract{condition} {}{from}{}", quote(&self.pattern), overwrite_text(self.overwrite))
    }
}

impl RowPipe for Extract {
    const KIND: &'static str = "extract";

    fn sources(&self) -> Vec<String> {
        vec![self.from.clone()]
    }

    fn targets(&self) -> Vec<String> {
        row_functions::template::fields(&self.pattern)
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        let extract = row_functions::Extract::new(&self.pattern).map_err(Error::invalid)?;
        let (names, mut found) = (self.targets(), row_functions::Fields::default());
        Ok(Box::new(move |values, out| {
            found.clear();
            extract.apply(values[0], &mut found);
            found.take(&names, out);
        }))
    }

    fn overwrite(&self) -> Overwrite {
        self.overwrite
    }

    conditional!();
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("extract 'ip=<ip> '", "extract \"ip=<ip> \""),
            (
                "extract if (a:b) '<x>-' from y keep_original_fields",
                "extract if (a:b) \"<x>-\" from y keep_original_fields",
            ),
        ]);
        refuses(&[("extract", "a pattern such as"), ("extract 'abc'", "at least one named field")]);
        gives("extract 'ip=<ip> n=<n>' from a", &["a='ip=::1 n=5' ip=x"], &["a='ip=::1 n=5' ip=::1 n=5"]);
        gives("extract 'ip=<ip>' from a skip_empty_results", &["a=none ip=x"], &["a=none ip=x"]);
        gives("extract if (b:1) 'x<y>' from a", &["a=x5 b=1", "a=x6 b=2"], &["a=x5 b=1 y=5", "a=x6 b=2"]);
    }
}
