//! `field_values`: the values of a field, with their counts.

use std::fmt::{self, Display, Formatter};

use quiver_types::Result;

use super::pipe::{At, Pipe, PipeKind};
use super::syntax::{limited, source, text_filter, text_filter_text};
use super::uniq::Uniq;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::print::word;
use crate::required_fields::Needs;

/// `field_values f [filter s] [limit N]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldValues {
    /// The field whose values are listed.
    pub field: String,
    /// `limit N`: at most so many values; `None`: all.
    pub limit: Option<u64>,
    /// Only values that hold this text.
    pub filter: Option<String>,
}

pub(super) const DEFS: &[PipeDef] = &[PipeDef {
    names: &["field_values"],
    doc: "Gives the values of a field, with the number of rows that have them.",
    parse,
}];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let field = source(parser)?;
    let filter = text_filter(parser)?;
    let limit = parser.limit()?;
    Ok(FieldValues { field, limit, filter }.into())
}

impl Display for FieldValues {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (filter, limit) = (text_filter_text(self.filter.as_deref()), limited(self.limit));
        write!(f, "field_values {}{filter}{limit}", word(&self.field))
    }
}

impl PipeKind for FieldValues {
    fn before(&self, _: &Needs) -> Needs {
        Needs::of([&self.field])
    }

    fn is_barrier(&self) -> bool {
        true
    }

    fn stored(&self) -> Vec<String> {
        vec![self.field.clone()]
    }

    fn counts_rows(&self) -> bool {
        self.filter.is_none()
    }

    fn plan(&self, rows: PartialPlan, at: At<'_>) -> Result<PartialPlan> {
        let hits = if self.field == "hits" { "hitss" } else { "hits" };
        let by = vec![self.field.clone()];
        let uniq = Uniq { by, hits: Some(hits.to_owned()), limit: self.limit, filter: self.filter.clone() };
        uniq.grouped(rows, self.to_string(), at)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("field_values x", "field_values x"),
            ("field_values (x)", "field_values x"),
            ("field_values x filter a limit 5", "field_values x filter a limit 5"),
            ("field_values x limit 0", "field_values x"),
        ]);
        refuses(&[("field_values", "a field name expected"), ("field_values x*", "one field expected")]);
        let rows = ["a=1", "a=2", "a=1", "b=3"];
        gives("field_values a | sort by (hits, a)", &rows, &["hits=1", "a=2 hits=1", "a=1 hits=2"]);
        gives("field_values a filter 1", &rows, &["a=1 hits=2"]);
        gives("field_values a limit 1 | fields hits", &rows, &["hits=0"]);
    }
}
