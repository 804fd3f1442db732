//! Whole queries: options, a filter, pipes.

use super::{PIPES_MAX, Parser, stats};
use crate::ast::Query;
use crate::error::Result;

impl Parser<'_> {
    /// Options, a filter, and any number of pipes.
    pub(crate) fn query(&mut self) -> Result<Query> {
        self.deeper(|parser| {
            let options = parser.options()?;
            parser.no_pipe_here()?;
            let filter = parser.filter_or(None)?;
            let mut pipes = Vec::new();
            while parser.skip("|") {
                parser.pipes += 1;
                if parser.pipes > PIPES_MAX {
                    return Err(parser.fault(format!("more than {PIPES_MAX} pipes")));
                }
                pipes.push((parser.table.parse)(parser)?);
                parser.expect_pipe_end()?;
            }
            // A query may be ended as a statement is.
            parser.skip(";");
            Ok(Query { options, filter, pipes })
        })
    }

    /// Refuses the name of a pipe as the first word of a query: what was forgotten before it is the filter. Names of
    /// fields and words that go on (`top-level`) are no such names.
    fn no_pipe_here(&self) -> Result<()> {
        let (token, after) = (self.token(), self.after_next());
        let is_alone = after.spaced || after.is_any(&["", "|", "(", ")", ";"]);
        let is_name = || self.table.names().chain(stats::names()).chain(["by"]).any(|name| token.is(name));
        if !token.is_word() || !is_alone || after.is(":") || !is_name() {
            return Ok(());
        }
        Err(self.fault(format!("`{0}` is a pipe: write `* | {0}`, or quote the word to look for it,", token.raw)))
    }

    /// Reads `(query)`.
    pub(crate) fn query_in_parens(&mut self) -> Result<Query> {
        self.expect("(")?;
        let query = self.query()?;
        self.expect(")")?;
        Ok(query)
    }
}
