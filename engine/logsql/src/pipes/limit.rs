//! `limit`: no more than so many rows, in the order in which they come.

use std::fmt::{self, Display, Formatter};

use datafusion::logical_expr::LogicalPlanBuilder;
use quiver_query::{from_datafusion, gathered};
use quiver_types::Result;

use super::pipe::{At, Output, Pipe, PipeKind, PipeMerge, RowSlice};
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::required_fields::Needs;
use crate::series_columns::StatsColumns;

/// `limit N`, `head N`: most rows that come through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit(pub u64);

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["limit", "head"], doc: "Lets no more than so many rows through; 10 unless said.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let rows = if parser.at_pipe_end() { 10 } else { parser.count("a number of rows")? };
    Ok(Limit(rows).into())
}

impl Display for Limit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "limit {}", self.0)
    }
}

impl PipeKind for Limit {
    fn before(&self, after: &Needs) -> Needs {
        after.clone()
    }

    fn output(&self) -> Output<'_> {
        Output::Same
    }

    fn cut(&self) -> Option<RowSlice> {
        Some(RowSlice::Limit(self.0))
    }

    fn take_over(&mut self, next: &mut Pipe) -> PipeMerge {
        match next.kind().cut() {
            Some(RowSlice::Limit(limit)) => self.0 = self.0.min(limit),
            Some(RowSlice::Offset(offset)) if self.0 <= offset => self.0 = 0,
            _ => return PipeMerge::Apart,
        }
        PipeMerge::One
    }

    fn most_rows(&self) -> Option<u64> {
        Some(self.0)
    }

    fn follow_columns(&self, _: &mut StatsColumns) -> Result<()> {
        Ok(())
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> Result<PartialPlan> {
        cut(rows, 0, Some(self.0))
    }
}

/// Skips rows, then lets some through; reading stops with the last of them.
pub(crate) fn cut(rows: PartialPlan, skip: u64, fetch: Option<u64>) -> Result<PartialPlan> {
    // The planner takes signed numbers, which are larger than any number of rows.
    let count = |rows: u64| rows.min(i64::MAX as u64) as usize;
    let plan = LogicalPlanBuilder::from(gathered(rows.plan)?)
        .limit(count(skip), fetch.map(count))
        .and_then(LogicalPlanBuilder::build)
        .map_err(from_datafusion)?;
    Ok(PartialPlan { plan, ..rows })
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[("limit", "limit 10"), ("head 5", "limit 5"), ("limit 5 | limit 7", "limit 5")]);
        refuses(&[("limit x", "a number of rows expected, got `x`"), ("limit -1", "a number of rows")]);
        gives("limit 2", &["a=1", "a=2", "a=3"], &["a=1", "a=2"]);
        gives("limit 0", &["a=1"], &[]);
        gives("sort by (a) | limit 0", &["a=1", "a=2"], &[]);
        gives("sort by (a) limit 1 | limit 0 | offset 1", &["a=1", "a=2"], &[]);
        gives("limit 18446744073709551615", &["a=1"], &["a=1"]);
        gives("offset 18446744073709551615", &["a=1"], &[]);
        gives("limit 9 | fields a", &["a=1"], &["a=1"]);
    }
}
