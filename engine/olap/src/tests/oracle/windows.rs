//! Rolling windows by definition: for each bucket of the range, the rows in its window (`olap-api.md` 10).

use super::evaluate::{Groups, Oracle, Refusal, Stage, key};
use super::measures::Window;
use super::time::{Range, about, bucket, end_instant, first_instant};
use super::tree::Tree;
use super::value::Val;

const HOUR_MS: i64 = 3_600_000;
/// Beyond, the product refuses.
const BUCKETS_MAX: usize = 50_000;

impl Oracle<'_> {
    /// The instants between which the rows of a bucket of wall time lie; `is_range`: it is a whole range, which `to_date`
    /// takes from the end.
    fn span(&self, window: &Window, (start, end): Range, is_range: bool) -> (i64, i64) {
        match window {
            Window::ToDate(unit) => {
                let begin = bucket(unit, if is_range { end - 1 } else { start }).0;
                (first_instant(self.tz, begin), end_instant(self.tz, end))
            }
            Window::Around { trailing, leading, from_start } => {
                let at = if *from_start { start } else { end };
                let low = trailing.map_or(i64::MIN, |hours| first_instant(self.tz, at - hours * HOUR_MS));
                let high = leading.map_or(i64::MAX, |hours| end_instant(self.tz, at + hours * HOUR_MS));
                (low, high)
            }
        }
    }

    pub(crate) fn windowed(&self, stage: &Stage, tree: &Tree, window: &Window) -> Result<Groups, Refusal> {
        let grained = stage.groups.iter().filter_map(|g| Some((g, g.grain?)));
        let Some((leading, grain)) = grained.min_by_key(|(_, grain)| about(grain)) else {
            let [one] = &stage.ranges[..] else {
                let none = stage.ranges.is_empty();
                let rows = || self.grouped(stage, self.rows(stage, tree, None)?);
                return if none { rows() } else { Err(Refusal::Unclear) };
            };
            let span = self.span(window, one.1, true);
            let mut rows = self.rows(stage, tree, Some(one.0))?;
            rows.retain(|row| {
                let at = self.column(one.0, "at", row);
                matches!(at, Val::Time(at) if span.0 <= at && at < span.1)
                    || (span == (i64::MIN, i64::MAX) && at.is_null())
            });
            return self.grouped(stage, rows);
        };
        let mut ranges = stage.ranges.iter().filter(|(model, _)| *model == leading.of.0);
        let Some((model, range)) = ranges.next() else { return Err(Refusal::RangeRequired) };
        if ranges.next().is_some() {
            return Err(Refusal::Unclear);
        }
        let rows = self.rows(stage, tree, Some(*model))?;
        let mut groups = Groups::new();
        let mut at = bucket(grain, range.0);
        let mut buckets = 0;
        while at.0 < range.1 {
            buckets += 1;
            if buckets > BUCKETS_MAX {
                return Err(Refusal::Unclear);
            }
            let span = self.span(window, at, false);
            let within: Vec<_> = rows
                .iter()
                .filter(|row| matches!(self.column(*model, "at", row), Val::Time(t) if span.0 <= t && t < span.1))
                .map(Some)
                .collect();
            // A bucket without rows is there, too.
            for row in if within.is_empty() { vec![None] } else { within } {
                let mut values = Vec::new();
                for group in &stage.groups {
                    values.push(match (group.grain, row) {
                        (Some(grain), _) if group.of.0 == *model => Val::Wall(bucket(grain, at.0).0),
                        (_, Some(row)) => self.group(stage, group, row)?,
                        (_, None) => Val::Null,
                    });
                }
                let of = groups.entry(key(&values)).or_insert((values, Vec::new()));
                of.1.extend(row.cloned());
            }
            at = bucket(grain, at.1);
        }
        Ok(groups)
    }
}
