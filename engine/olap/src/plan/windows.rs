//! Rolling windows: each bucket's value is made of rows around it; buckets without rows are there too (`olap-api.md` 10).

use datafusion::common::{JoinType, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};

use super::filters::instant;
use super::parts::Leaf;
use super::{Group, Planner, Stage, Tree, column};
use crate::dates::granularity::Buckets;
use crate::dates::range::WallRange;
use crate::dates::zone::{Edge, utc_ns};
use crate::error::{OlapResult, QueryError, Reason};
use crate::functions::WallBucket;
use crate::model::{MemberId, Reach, RollingWindow};

/// Most buckets of a window.
const BUCKETS_MAX: usize = 50_000;

/// A window as instants: from the first to before the second; none: without end.
type Span = (Option<i64>, Option<i64>);

impl Planner<'_> {
    /// Plans measures that have one window.
    pub(super) fn windowed(
        &self,
        stage: &Stage,
        tree: &Tree,
        window: &RollingWindow,
        measures: &[MemberId],
    ) -> OlapResult<Vec<(LogicalPlan, Vec<Leaf>)>> {
        // The finest bucket leads; coarser ones of the same time follow from it.
        let grouped = stage.groups.iter().filter_map(|g| g.buckets.map(|b| (g, b)));
        let leading = grouped.min_by_key(|(_, b)| b.about_ns()).map(|(g, b)| (g.member.clone(), b));
        let ranged = |member: &MemberId| stage.ranges.iter().find(|(of, _)| of == member).map(|(_, range)| *range);
        let Some((member, buckets)) = leading else {
            let Some((member, range)) = stage.ranges.first().cloned() else {
                let rows = self.rows(stage, tree, measures, &[])?;
                return self.parts(stage, &rows, &self.group_exprs(stage)?, tree, measures, None);
            };
            let rows = self.rows(stage, tree, measures, std::slice::from_ref(&member))?;
            let time = self.dimension(stage, &member)?;
            let span = span(window, range.start_ns, range.end_ns, range.end_ns, stage, &member);
            let rows = within(rows, &time, span)?;
            return self.parts(stage, &rows, &self.group_exprs(stage)?, tree, measures, None);
        };
        let Some(range) = ranged(&member) else {
            let text = format!("a rolling window by `{member}` needs a `dateRange` on it");
            return Err(QueryError::new(Reason::RangeRequired, "/timeDimensions", text).into());
        };
        let time = self.dimension(stage, &member)?;
        let (series, all) = series(window, buckets, range, stage, &member)?;
        let rows = within(self.rows(stage, tree, measures, std::slice::from_ref(&member))?, &time, all)?;
        // Groups are those of rows; a bucket without rows has none.
        let leads = |group: &Group| group.member == member && group.buckets.is_some();
        let mut out: Vec<Expr> = rows.schema().columns().into_iter().map(Expr::Column).collect();
        for (i, group) in stage.groups.iter().enumerate().filter(|(_, group)| !leads(group)) {
            out.push(self.group_value(stage, group)?.alias(format!("__group_{i}")));
        }
        let rows = LogicalPlanBuilder::from(rows).project(out)?.build()?;
        let meets = time.clone().gt_eq(column("__low")).and(time.clone().lt(column("__high")));
        let rows = LogicalPlanBuilder::from(series).join_on(rows, JoinType::Left, [meets])?.build()?;
        let mut groups = Vec::new();
        for (i, group) in stage.groups.iter().enumerate() {
            let value = if leads(group) {
                let start = datafusion::logical_expr::cast(column("__bucket"), crate::functions::instant_type());
                WallBucket::call(
                    start,
                    chrono_tz::Tz::UTC,
                    group.buckets,
                    crate::dates::granularity::Interval::default(),
                )
            } else {
                column(format!("__group_{i}"))
            };
            groups.push(value.alias(group.column.clone()));
        }
        self.parts(stage, &rows, &groups, tree, measures, Some(&time.is_not_null()))
    }
}

fn within(rows: LogicalPlan, time: &Expr, (low, high): Span) -> OlapResult<LogicalPlan> {
    let low = low.map(|low| time.clone().gt_eq(instant(low)));
    let high = high.map(|high| time.clone().lt(instant(high)));
    match low.into_iter().chain(high).reduce(Expr::and) {
        Some(condition) => Ok(LogicalPlanBuilder::from(rows).filter(condition)?.build()?),
        None => Ok(rows),
    }
}

/// The window of a bucket of wall time.
fn span(window: &RollingWindow, start: i64, end: i64, last: i64, stage: &Stage, member: &MemberId) -> Span {
    let back = stage.shift(member).negated();
    let utc = |wall: i64, edge| utc_ns(stage.tz, back.add_to(wall), edge);
    match window {
        RollingWindow::ToDate(granularity) => {
            let unit = if last == end && start != end {
                granularity.buckets.floor(end - 1)
            } else {
                granularity.buckets.floor(start)
            };
            (Some(utc(unit, Edge::Start)), Some(utc(end, Edge::End)))
        }
        RollingWindow::Around { trailing, leading, from_start } => {
            let at = if *from_start { start } else { end };
            let low = match trailing {
                Reach::Unbounded => None,
                Reach::Of(interval) => Some(utc(interval.negated().add_to(at), Edge::Start)),
            };
            let high = match leading {
                Reach::Unbounded => None,
                Reach::Of(interval) => Some(utc(interval.add_to(at), Edge::End)),
            };
            (low, high)
        }
    }
}

/// One row a bucket (`__bucket` wall time, `__low`, `__high` instants), and the span that holds all windows.
fn series(
    window: &RollingWindow,
    buckets: Buckets,
    range: WallRange,
    stage: &Stage,
    member: &MemberId,
) -> OlapResult<(LogicalPlan, Span)> {
    let mut values = Vec::new();
    let mut all: Option<Span> = None;
    let mut bucket = buckets.floor(range.start_ns);
    while bucket < range.end_ns {
        if values.len() >= BUCKETS_MAX {
            let text = format!("the range has more than {BUCKETS_MAX} buckets");
            return Err(QueryError::new(Reason::BadDateRange, "/timeDimensions", text).into());
        }
        let next = buckets.next(bucket);
        // A bucket to date ends with the bucket, and belongs to the unit of its first day.
        let (low, high) = span(window, bucket, next, i64::MAX, stage, member);
        all = Some(match all {
            None => (low, high),
            Some((a, b)) => (a.zip(low).map(|(a, b)| a.min(b)), b.zip(high).map(|(a, b)| a.max(b))),
        });
        values.push(vec![
            lit(ScalarValue::TimestampNanosecond(Some(bucket), None)),
            instant(low.unwrap_or(i64::MIN)),
            instant(high.unwrap_or(i64::MAX)),
        ]);
        bucket = next;
    }
    let is_empty = values.is_empty();
    if is_empty {
        values.push(vec![lit(ScalarValue::TimestampNanosecond(Some(0), None)), instant(0), instant(0)]);
    }
    let names = ["__bucket", "__low", "__high"];
    let out = names.iter().enumerate().map(|(i, name)| column(format!("column{}", i + 1)).alias(*name));
    let mut plan = LogicalPlanBuilder::values(values)?.project(out)?;
    if is_empty {
        plan = plan.filter(lit(false))?;
    }
    Ok((plan.build()?, all.unwrap_or((Some(0), Some(0)))))
}
