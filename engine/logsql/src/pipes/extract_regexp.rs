//! `extract_regexp`: named groups of a regular expression become fields.

use std::fmt::{self, Display, Formatter};

use quiver_types::Error;
use quiver_types::logs::MSG;
use serde::{Deserialize, Serialize};

use super::pipe::Pipe;
use super::row_pipe::{RowPipe, conditional};
use super::syntax::{condition_text, from, overwrite, overwrite_text, template, unless};
use crate::ast::{Filter, Overwrite};
use crate::error::Result;
use crate::kernels::golang_regex;
use crate::lexer::quote;
use crate::ops::computed_fields::Compute;
use crate::parser::{Parser, PipeDef};
use crate::row_functions;

/// `extract_regexp [if (f)] "re" [from f]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExtractRegexp {
    /// RE2 text with named groups; checked when parsed.
    pub pattern: String,
    /// The source field.
    pub from: String,
    /// Whether a result takes the place of a value that the row has already.
    pub overwrite: Overwrite,
    /// `if (f)`: rows that do not match stay as they are; `None`: all are worked on.
    pub condition: Option<Filter>,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["extract_regexp"], doc: "Makes fields of the named groups of a regular expression.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let condition = parser.condition()?;
    let begin = parser.next;
    let pattern = template(parser, "a regular expression with named groups")?;
    let regex = parser.check_regexp(begin, &pattern)?;
    if regex.capture_names().flatten().next().is_none() {
        return Err(parser.fault_at(begin, format!("`{pattern}` has no named group such as `(?P<name>...)`")));
    }
    regex.capture_names().flatten().try_for_each(|_| parser.count_field())?;
    let from = from(parser)?;
    Ok(ExtractRegexp { pattern, from, overwrite: overwrite(parser), condition }.into())
}

impl Display for ExtractRegexp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (condition, from) = (condition_text(self.condition.as_ref()), unless(&self.from, MSG, "from"));
        write!(f, "extract_regexp{condition} {}{from}{}", quote(&self.pattern), overwrite_text(self.overwrite))
    }
}

impl RowPipe for ExtractRegexp {
    const KIND: &'static str = "extract_regexp";

    fn sources(&self) -> Vec<String> {
        vec![self.from.clone()]
    }

    fn targets(&self) -> Vec<String> {
        let names = golang_regex::compile(&self.pattern)
            .map(|regex| regex.capture_names().flatten().map(str::to_owned).collect::<Vec<_>>());
        crate::rows::unique(names.unwrap_or_default())
    }

    fn compute(&self, _: i64) -> Result<Compute> {
        let mut extract = row_functions::ExtractRegexp::new(&self.pattern).map_err(Error::invalid)?;
        let names = crate::rows::unique(extract.names().map(str::to_owned));
        let mut found = row_functions::Fields::default();
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
            ("extract_regexp '(?P<n>\\\\d+)' from x", "extract_regexp \"(?P<n>\\\\d+)\" from x"),
            ("extract_regexp '(?P<n>a)' skip_empty_results", "extract_regexp \"(?P<n>a)\" skip_empty_results"),
        ]);
        refuses(&[("extract_regexp 'a'", "no named group"), ("extract_regexp '(?P<n>'", "(?P<n>")]);
        gives("extract_regexp '(?P<n>\\\\d+)(?P<u>ms|s)' from a", &["a='in 15ms' n=1"], &["a='in 15ms' n=15 u=ms"]);
        gives("extract_regexp '(?P<n>\\\\d+)' from a keep_original_fields", &["a=5 n=1"], &["a=5 n=1"]);
    }
}
