//! `filter`: rows that match stay.

use std::fmt::{self, Display, Formatter};

use quiver_types::Result;

use super::pipe::{At, Output, Pipe, PipeKind, PipeMerge};
use crate::ast::Filter;
use crate::filter_fields::add_needs;
use crate::ops::filter::FilterStep;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::plan::filter::lower;
use crate::required_fields::Needs;
use crate::series_columns::StatsColumns;

/// `filter f`, `where f`: the filter that rows must match.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterRows(pub Filter);

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["filter", "where"], doc: "Keeps the rows that a filter matches.", parse }];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let filter = parser.filter_or(None)?;
    parser.count_reads_of(&filter)?;
    Ok(FilterRows(filter).into())
}

impl Display for FilterRows {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "filter {}", self.0)
    }
}

impl PipeKind for FilterRows {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        add_needs(&self.0, &mut needs);
        needs
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn keeps_rows(&self) -> bool {
        true
    }

    fn output(&self) -> Output<'_> {
        Output::Same
    }

    fn filters_mut(&mut self) -> Vec<&mut Filter> {
        vec![&mut self.0]
    }

    fn only_filter(&mut self) -> Option<&mut Filter> {
        Some(&mut self.0)
    }

    fn take_over(&mut self, next: &mut Pipe) -> PipeMerge {
        let Some(next) = next.kind_mut().only_filter() else { return PipeMerge::Apart };
        let filter = std::mem::replace(next, Filter::All);
        match &mut self.0 {
            Filter::And(all) => all.push(filter),
            own => *own = Filter::And(vec![std::mem::replace(own, Filter::All), filter]),
        }
        PipeMerge::One
    }

    fn follow_columns(&self, _: &mut StatsColumns) -> Result<()> {
        Ok(())
    }

    fn plan(&self, rows: PartialPlan, at: At<'_>) -> Result<PartialPlan> {
        let filter = lower(&self.0, at.scope)?;
        FilterStep { filter, shape: rows.shape.clone() }.plan(rows)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("where a:b", "filter a:b"),
            ("filter a:>5 | filter b:c", "filter a:>5 b:c"),
            ("filter (a or b) !c", "filter (a or b) !c"),
        ]);
        refuses(&[("filter", "a filter expected"), ("where a:", "a filter expected")]);
        gives("filter a:>5", &["a=5", "a=6 b=x"], &["a=6 b=x"]);
        gives("count() n | filter n:>1", &["a=1"], &[]);
        let numbers = ["a=inf", "a=-inf", "a=nan", "a=1", "a=zoo"];
        gives("filter a:<inf", &numbers, &["a=inf", "a=-inf", "a=1"]);
        gives("filter a:>-inf", &numbers, &["a=inf", "a=-inf", "a=1"]);
        for op in ["<", "<=", ">", ">="] {
            gives(&format!("filter a:{op}nan"), &numbers, &[]);
        }
        gives("filter a:range[nan, inf]", &numbers, &[]);
        // Behind pipes a message may be missing.
        gives("filter _msg:*", &["_msg=x a=1", "a=2"], &["_msg=x a=1"]);
        gives("filter !_msg:~'.+'", &["_msg=x a=1", "a=2"], &["a=2"]);
        gives("count() if (_msg:*) as m, count() if (*) as n", &["_msg=x a=1", "a=2"], &["m=1 n=2"]);
        gives("delete _msg | filter _msg:*", &["_msg=x a=1", "a=2"], &[]);
    }
}
