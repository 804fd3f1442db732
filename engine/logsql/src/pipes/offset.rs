//! `offset`: the first rows go, in the order in which they come.

use std::fmt::{self, Display, Formatter};

use quiver_types::Result;

use super::limit::{Limit, cut};
use super::pipe::{At, Output, Pipe, PipeKind, PipeMerge, RowSlice};
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::required_fields::Needs;
use crate::series_columns::StatsColumns;

/// `offset N`, `skip N`: the number of rows that are left out at the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offset(pub u64);

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["offset", "skip"], doc: "Leaves out so many rows at the beginning.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    parser.count("a number of rows").map(|rows| Offset(rows).into())
}

impl Display for Offset {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "offset {}", self.0)
    }
}

impl PipeKind for Offset {
    fn before(&self, after: &Needs) -> Needs {
        after.clone()
    }

    fn output(&self) -> Output<'_> {
        Output::Same
    }

    fn cut(&self) -> Option<RowSlice> {
        Some(RowSlice::Offset(self.0))
    }

    fn take_over(&mut self, next: &mut Pipe) -> PipeMerge {
        match next.kind().cut() {
            Some(RowSlice::Offset(offset)) => {
                // A `limit` before them may have no row left.
                PipeMerge::Others(vec![Self(self.0.saturating_add(offset)).into()])
            }
            // Fewer rows go on from one pipe to the next.
            Some(RowSlice::Limit(limit)) => {
                PipeMerge::Others(vec![Limit(limit.saturating_add(self.0)).into(), Self(self.0).into()])
            }
            None => PipeMerge::Apart,
        }
    }

    fn follow_columns(&self, _: &mut StatsColumns) -> Result<()> {
        Ok(())
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> Result<PartialPlan> {
        cut(rows, self.0, None)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("skip 3", "offset 3"),
            ("offset 2 | limit 3", "limit 5 | offset 2"),
            ("offset 1 | skip 2", "offset 3"),
        ]);
        refuses(&[("offset", "a number of rows"), ("offset 1.5", "a number of rows")]);
        gives("offset 1", &["a=1", "a=2", "a=3"], &["a=2", "a=3"]);
        gives("offset 1 | limit 1", &["a=1", "a=2", "a=3"], &["a=2"]);
        gives("offset 9", &["a=1"], &[]);
    }
}
