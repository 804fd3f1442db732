//! `stats`: functions over groups of rows.

use std::fmt::{self, Display, Formatter};

use quiver_types::Result;
use quiver_types::logs::{STREAM, TIME};

use super::pipe::{At, Pipe, PipeKind};
use super::row_pipe::of_condition;
use super::syntax::different;
use crate::ast::{FieldPattern, Filter, GroupBy, StatsCall, StatsFunc};
use crate::ops::project::ReshapeStep;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::plan::stats::{self, Grouping};
use crate::print::list;
use crate::required_fields::Needs;
use crate::series_columns::StatsColumns;

/// `[stats] [by (...)] f(...) [if (...)] [as r], ..`
#[derive(Debug, Clone, PartialEq)]
pub struct Stats {
    /// What rows are grouped by; all rows are one group without it.
    pub by: Vec<GroupBy>,
    /// Functions, at least one.
    pub calls: Vec<StatsCall>,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["stats"], doc: "Computes functions over groups of rows; the word may be left out.", parse }];

/// Reads what follows the name.
pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let by = if parser.skip("by") || parser.is("(") { parser.group_by()? } else { Vec::new() };
    let at = parser.next;
    let calls = parser.with_commas(Parser::stats_calls)?.concat();
    different(parser, at, calls.iter().map(|call| &call.name), by.iter().map(|by| &by.field))?;
    Ok(Stats { by, calls }.into())
}

impl Display for Stats {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("stats")?;
        if !self.by.is_empty() {
            write!(f, " by ({})", list(&self.by, ToString::to_string))?;
        }
        write!(f, " {}", list(&self.calls, ToString::to_string))
    }
}

impl PipeKind for Stats {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = Needs::of(self.by.iter().map(|by| &by.field));
        for call in self.calls.iter().filter(|call| after.has(&call.name)) {
            of_condition(call.condition.as_ref(), &mut needs);
            match &call.func {
                StatsFunc::Rate => {}
                StatsFunc::Count(fields) if fields.iter().any(FieldPattern::is_all) => {}
                func => {
                    let (names, patterns) = stats::args(func);
                    needs.add_all(names.iter().map(String::as_str));
                    for pattern in &patterns {
                        needs.add_pattern(pattern);
                    }
                }
            }
        }
        if !stats::stream_keys(self.grouping()).is_empty() {
            needs.add(STREAM);
        }
        needs
    }

    fn is_barrier(&self) -> bool {
        true
    }

    fn stored(&self) -> Vec<String> {
        stats::named(self.grouping())
    }

    fn counts_rows(&self) -> bool {
        self.calls.iter().all(|call| {
            let counts = match &call.func {
                StatsFunc::Count(fields) => fields.iter().any(FieldPattern::is_all),
                func => matches!(func, StatsFunc::Rate),
            };
            counts && call.condition.is_none()
        })
    }

    fn filters_mut(&mut self) -> Vec<&mut Filter> {
        self.calls.iter_mut().filter_map(|call| call.condition.as_mut()).collect()
    }

    fn follow_columns(&self, columns: &mut StatsColumns) -> Result<()> {
        columns.labels = self.by.iter().map(|by| by.field.clone()).collect();
        columns.values = self.calls.iter().map(|call| call.name.clone()).collect();
        let histograms = self.calls.iter().filter(|call| matches!(call.func, StatsFunc::Histogram(_)));
        columns.histograms = histograms.map(|call| call.name.clone()).collect();
        let is_row = |call: &&StatsCall| {
            matches!(call.func, StatsFunc::RowAny(_) | StatsFunc::RowMin { .. } | StatsFunc::RowMax { .. })
        };
        columns.rows = self.calls.iter().filter(is_row).map(|call| call.name.clone()).collect();
        Ok(())
    }

    fn plan(&self, rows: PartialPlan, at: At<'_>) -> Result<PartialPlan> {
        let rows = ReshapeStep::with_columns(rows, &stats::named(self.grouping()))?;
        let (min, max) = rows.time;
        let bounded = min != i64::MIN && max != i64::MAX && min <= max;
        let seconds = bounded.then(|| max.saturating_sub(min).saturating_add(1) as f64 / 1e9);
        stats::aggregate(self.grouping(), self.to_string(), rows.shape.clone(), at.scope, seconds)?.plan(rows)
    }
}

impl Stats {
    /// What it asks for.
    pub(crate) fn grouping(&self) -> Grouping<'_> {
        Grouping { by: &self.by, calls: &self.calls }
    }

    /// Groups by time, in place of how it does so far; `by` is of the field [`TIME`].
    pub(crate) fn by_time(&mut self, by: GroupBy) {
        match self.by.iter_mut().find(|by| by.field == TIME) {
            Some(own) => *own = by,
            None => self.by.push(by),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn texts() {
        reads(&[
            ("stats count()", "stats count(*) as \"count(*)\""),
            ("stats by (a, b:5m offset 1h) sum(c) s", "stats by (a, b:5m offset 1h) sum(c) as s"),
            ("by (a) rate() r, max(b*) if (c:d) m", "stats by (a) rate() as r, max(b*) if (c:d) as m"),
            ("stats quantile(0.9, a, b) q", "stats quantile(0.9, a, b) as q"),
            ("stats json_values(a) sort by (b desc) limit 3 j", "stats json_values(a) sort by (b desc) limit 3 as j"),
            ("count() switch(case (a:1) as x, default as y)", "stats count(*) if (a:1) as x, count(*) if (!a:1) as y"),
        ]);
        refuses(&[
            ("stats", "a stats function expected"),
            ("stats cuont() x", "did you mean `count`?"),
            ("stats by (a) count() a", "a result cannot have the same name"),
            ("stats count() x, sum(a) x", "two results have the name `x`"),
            ("stats quantile(2, a) q", "a number from 0 to 1 expected"),
            ("stats field_min(a) q", "two fields expected"),
        ]);
    }

    #[test]
    fn counts_and_sums() {
        let rows = ["a=1 b=x n=5", "a=1 b=y n=7", "a=2 n=x", "b=x n=-1"];
        let groups = ["c=1", "a=1 c=2", "a=2 c=1"];
        gives("by (a) count() c | sort by (a)", &rows, &groups);
        gives("count() c, count(a) d, count_empty(b) e, count_uniq(a) u", &rows, &["c=4 d=3 e=1 u=2"]);
        gives("sum(n) s, avg(n) a, min(n) i, max(n) m", &["n=5", "n=7"], &["s=12 a=6 i=5 m=7"]);
        gives("count() if (a:1) c, sum_len(b) l", &rows, &["c=2 l=3"]);
        gives("by (a) sum(n) s | filter a:1", &rows, &["a=1 s=12"]);
        let rows = ["_time=2025-03-10T00:00:01Z n=1ms", "_time=2025-03-10T05:00:00Z n=2ms"];
        gives("by (_time:1d) sum(n) s", &rows, &["_time=2025-03-10T00:00:00Z s=3000000"]);
        gives("by (_time:12h) sum(n) s", &rows, &["_time=2025-03-10T00:00:00Z s=NaN"]);
        gives("by (_stream) sum(n) s", &["_stream=x n=1ms", "_stream=x n=2KB"], &["_stream=x s=1002000"]);
        let rows = [
            "_stream='{a=\"1\"}' a=1 b=x n=1ms",
            "_stream='{a=\"1\"}' a=1 b=y n=2ms m=3KB",
            "_stream='{b=\"z\"}' b=z n=5ms",
        ];
        gives("by (a) sum(n) s | sort by (a)", &rows, &["s=5000000", "a=1 s=3000000"]);
        gives("by (a, _time:1d) avg(n) s | sort by (a)", &rows, &["s=5000000", "a=1 s=1500000"]);
        gives("by (a) sum(n*, m*) s | sort by (a)", &rows, &["s=5000000", "a=1 s=3003000"]);
        gives("by (b) sum(n) s | sort by (b)", &rows, &["b=x s=NaN", "b=y s=NaN", "b=z s=5000000"]);
        gives("median(n) m, quantile(0, n) q", &["n=3", "n=1", "n=2"], &["m=2 q=1"]);
    }

    #[test]
    fn lists_and_rows() {
        let rows = ["a=2 b=x", "a=1 b=y", "a=3 b=x"];
        gives("count_uniq(b) limit 0", &rows, &["count_uniq(b)=2"]);
        gives("uniq_values(b) u, values(b) v", &rows, &["u='[\"x\",\"y\"]' v='[\"x\",\"y\",\"x\"]'"]);
        gives("row_min(a, b) r, row_max(a, a) s", &rows, &["r='{\"b\":\"y\"}' s='{\"a\":\"3\"}'"]);
        gives("field_min(a, b) f, field_max(a, b) g", &rows, &["f=y g=x"]);
        gives("json_values(a) sort by (a desc) limit 2 j", &rows, &["j='[{\"a\":\"3\"},{\"a\":\"2\"}]'"]);
    }
}
