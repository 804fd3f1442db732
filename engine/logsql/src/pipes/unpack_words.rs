//! `unpack_words`: the words of a text as a JSON array.

use std::fmt::{self, Display, Formatter};

use quiver_types::logs::MSG;
use serde::{Deserialize, Serialize};

use super::pipe::Pipe;
use super::row_pipe::{RowPipe, conditional, of_one};
use super::syntax::{condition_text, unless};
use crate::ast::Filter;
use crate::error::Result;
use crate::ops::computed_fields::Compute;
use crate::parser::{Parser, PipeDef};
use crate::row_functions;

/// `unpack_words [if (f)] [from f] [as r] [drop_duplicates]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnpackWords {
    /// The source field.
    pub from: String,
    /// The result field.
    pub to: String,
    /// Whether each word is given once only.
    pub drop_duplicates: bool,
    /// `if (f)`: rows that do not match stay as they are; `None`: all are worked on.
    pub condition: Option<Filter>,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["unpack_words"], doc: "Makes a JSON array of the words of a text.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    const NEXT: &[&str] = &["as", "drop_duplicates"];
    let condition = parser.condition()?;
    let from = if parser.skip("from") || !parser.at_pipe_end() && !parser.is_any(NEXT) {
        parser.field()?
    } else {
        MSG.to_owned()
    };
    let to = if parser.is("drop_duplicates") { None } else { parser.as_name()? };
    // The words take the place of the text unless said otherwise.
    let to = to.unwrap_or_else(|| from.clone());
    Ok(UnpackWords { from, to, drop_duplicates: parser.skip("drop_duplicates"), condition }.into())
}

impl Display for UnpackWords {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (from, to) = (unless(&self.from, MSG, "from"), unless(&self.to, &self.from, "as"));
        write!(f, "unpack_words{}{from}{to}", condition_text(self.condition.as_ref()))?;
        if self.drop_duplicates { f.write_str(" drop_duplicates") } else { Ok(()) }
    }
}

impl RowPipe for UnpackWords {
    const KIND: &'static str = "unpack_words";

    fn sources(&self) -> Vec<String> {
        vec![self.from.clone()]
    }

    fn targets(&self) -> Vec<String> {
        vec![self.to.clone()]
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        let drop_duplicates = self.drop_duplicates;
        Ok(of_one(move |value, out| row_functions::unpack_words(value, drop_duplicates, out)))
    }

    conditional!();
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads};

    #[test]
    fn cases() {
        reads(&[
            ("unpack_words", "unpack_words"),
            ("unpack_words a as b drop_duplicates", "unpack_words from a as b drop_duplicates"),
            ("unpack_words if (a:b) from c", "unpack_words if (a:b) from c"),
        ]);
        gives("unpack_words from a as b | fields b", &["a='x, y-x'"], &["b='[\"x\",\"y\",\"x\"]'"]);
        gives("unpack_words from a drop_duplicates", &["a='x, y-x'"], &["a='[\"x\",\"y\"]'"]);
    }
}
