//! `top`: the most frequent combinations of values.

use std::fmt::{self, Display, Formatter};

use quiver_types::Result;

use super::pipe::{At, Order, Pipe, PipeKind};
use super::syntax::{above_0, by_fields, hits_name, name_beside, names, rank_name, rank_text};
use crate::ops::grouping::{Aggregate, Call, Key};
use crate::ops::project::ReshapeStep;
use crate::ops::sort;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::print::word;
use crate::required_fields::Needs;

/// `top [N] by (...) [hits as x] [rank]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Top {
    /// The combination; all fields when empty.
    pub by: Vec<String>,
    /// At most so many rows; 10 unless said.
    pub limit: u64,
    /// Whether the limit was written.
    pub limit_text: Option<String>,
    /// The column of the counts.
    pub hits: String,
    /// The column of the position, from 1.
    pub rank: Option<String>,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["top"], doc: "Gives the most frequent combinations of the values of some fields.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let numeric = !parser.token().quoted && parser.token().text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let (limit, limit_text) = if numeric { above_0(parser).map(|n| (n, Some(n.to_string())))? } else { (10, None) };
    let by = by_fields(parser)?;
    let mut top = Top { hits: hits_name(&by), by, limit, limit_text, rank: None };
    while !parser.at_pipe_end() {
        if parser.skip("hits") {
            parser.skip("as");
            top.hits = name_beside(&top.by, parser.field()?);
        } else if top.rank.is_none() && parser.skip("rank") {
            top.rank = Some(name_beside(&top.by, rank_name(parser)?));
        } else {
            return Err(parser.unexpected("`hits as`, `rank` or the end of the pipe"));
        }
    }
    Ok(top.into())
}

impl Display for Top {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("top")?;
        if self.limit != 10 {
            write!(f, " {}", self.limit)?;
        }
        write!(f, " by ({})", names(&self.by))?;
        if self.hits != "hits" {
            write!(f, " hits as {}", word(&self.hits))?;
        }
        f.write_str(&rank_text(self.rank.as_deref()))
    }
}

impl PipeKind for Top {
    fn before(&self, _: &Needs) -> Needs {
        Needs::of(&self.by)
    }

    fn is_barrier(&self) -> bool {
        true
    }

    fn order(&self) -> Order {
        Order::Made
    }

    fn stored(&self) -> Vec<String> {
        self.by.clone()
    }

    fn counts_rows(&self) -> bool {
        true
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> Result<PartialPlan> {
        let rows = ReshapeStep::with_columns(rows, &self.by)?;
        let keys = self.by.iter().map(|field| Key { field: field.clone(), bucket: None }).collect();
        let calls = vec![Call::count_rows(&self.hits)];
        let (stream_keys, text) = (Vec::new(), self.to_string());
        let rows = Aggregate { input: rows.shape.clone(), keys, calls, stream_keys, text }.plan(rows)?;
        let by = std::iter::once((self.hits.clone(), true)).chain(self.by.iter().map(|name| (name.clone(), false)));
        let sort = sort::Sort {
            limit: Some(self.limit),
            rank: self.rank.clone(),
            compared: sort::SortComparison::Top,
            ..sort::Sort::by(rows.shape.clone(), by.collect())
        };
        sort.plan(rows)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("top a", "top by (a)"),
            ("top 5 by (a, b) hits n rank", "top 5 by (a, b) hits as n rank"),
            ("top by (hits) rank as r", "top by (hits) hits as hitss rank as r"),
            ("top by (x, n) hits as x rank as n", "top by (x, n) hits as xs rank as ns"),
        ]);
        refuses(&[
            ("top", "fields expected"),
            ("top -1 by (a)", "a number greater than 0"),
            ("top 0 by (a)", "a number greater than 0"),
            ("top by (a) x", "`hits as`"),
        ]);
        let rows = ["a=1", "a=2", "a=2", "a=3"];
        gives("top 2 by (a)", &rows, &["a=2 hits=2", "a=1 hits=1"]);
        gives("top 1 by (a) hits as n rank as r", &rows, &["a=2 n=2 r=1"]);
        gives("top by (x) hits as x rank as r", &["x=5"], &["x=5 xs=1 r=1"]);
        gives("top by (a)", &["a=9", "a=10", "a=1KB"], &["a=10 hits=1", "a=1KB hits=1", "a=9 hits=1"]);
    }
}
