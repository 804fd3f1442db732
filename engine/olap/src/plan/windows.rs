//! Rolling windows: each bucket's value is made of rows around it; buckets without rows are there too (`olap-api.md` 10).

use datafusion::catalog::TableFunctionArgs;
use datafusion::common::{JoinType, ScalarValue, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, lit};

use super::filters::instant;
use super::parts::Leaf;
use super::{Group, Planner, Stage, Tree, column, model_error};
use crate::dates::granularity::{Buckets, Interval};
use crate::dates::range::WallRange;
use crate::error::{OlapResult, QueryError, Reason};
use crate::functions::{WallBucket, WallEdge, WallMove, instant_type};
use crate::model::{MemberId, Reach, RollingWindow};

/// Most buckets of a window.
const BUCKETS_MAX: i64 = 50_000;
/// The function whose rows are numbers.
const SERIES: &str = "generate_series";

/// A window as instants: from the first to before the second; none: without end.
type Span = (Option<Expr>, Option<Expr>);

/// A bucket of wall time.
struct Bucket {
    start: Expr,
    end: Expr,
    /// Lies in the unit with which a window to date begins.
    within: Expr,
}

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
            // A range to date begins with the unit that it ends in.
            let last = if range.start_ns == range.end_ns { range.start_ns } else { range.end_ns - 1 };
            let bucket = Bucket { start: wall(range.start_ns), end: wall(range.end_ns), within: wall(last) };
            let rows = within(rows, &time, span(window, stage, &member, bucket))?;
            return self.parts(stage, &rows, &self.group_exprs(stage)?, tree, measures, None);
        };
        let Some(range) = ranged(&member) else {
            let text = format!("a rolling window by `{member}` needs a `dateRange` on it");
            return Err(QueryError::new(Reason::RangeRequired, "/timeDimensions", text).into());
        };
        let time = self.dimension(stage, &member)?;
        let (series, all) = self.series(window, buckets, range, stage, &member)?;
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
            let value = match group.buckets {
                Some(buckets) if leads(group) => floor(column("__bucket"), buckets),
                _ => column(format!("__group_{i}")),
            };
            groups.push(value.alias(group.column.clone()));
        }
        self.parts(stage, &rows, &groups, tree, measures, Some(&time.is_not_null()))
    }

    /// One row a bucket (`__bucket` wall time, `__low`, `__high` instants), and the span that holds all windows.
    ///
    /// Buckets are numbered, and the plan computes what they are from their numbers: so it is as small for all of a year's
    /// minutes as for one.
    fn series(
        &self,
        window: &RollingWindow,
        buckets: Buckets,
        range: WallRange,
        stage: &Stage,
        member: &MemberId,
    ) -> OlapResult<(LogicalPlan, Span)> {
        let (first, last) = (buckets.steps(range.start_ns), buckets.steps(range.end_ns.saturating_sub(1)));
        if last.saturating_sub(first) >= BUCKETS_MAX {
            let text = format!("the range has more than {BUCKETS_MAX} buckets");
            return Err(QueryError::new(Reason::BadDateRange, "/timeDimensions", text).into());
        }
        let border = |number: Expr| WallMove::call(wall(buckets.origin_ns), number, buckets.length);
        let span_of = |number: Expr| {
            // A bucket to date ends with the bucket, and belongs to the unit of its first day.
            let (start, end) = (border(number.clone()), border(number + lit(1_i64)));
            span(window, stage, member, Bucket { within: start.clone(), start, end })
        };
        let (low, high) = span_of(column("value"));
        let low = low.unwrap_or_else(|| instant(i64::MIN)).alias("__low");
        let high = high.unwrap_or_else(|| instant(i64::MAX)).alias("__high");
        let out = [border(column("value")).alias("__bucket"), low, high];
        let series = LogicalPlanBuilder::from(self.numbers(first, last)?).project(out)?.build()?;
        // Later buckets have no earlier windows.
        Ok((series, (span_of(lit(first)).0, span_of(lit(last)).1)))
    }

    /// Whole numbers up to and with the last, in the column `value`.
    fn numbers(&self, first: i64, last: i64) -> OlapResult<LogicalPlan> {
        let function = self.state.table_functions().get(SERIES);
        let function = function.ok_or_else(|| model_error(format!("there is no function `{SERIES}`")))?;
        let bounds = [lit(first), lit(last)];
        let table = function.create_table_provider_with_args(TableFunctionArgs::new(&bounds, self.state))?;
        // Named as it is called, for those who read plans and for texts.
        let name = TableReference::bare(format!("{SERIES}({first}, {last})"));
        Ok(LogicalPlanBuilder::scan(name, provider_as_source(table), None)?.build()?)
    }
}

fn within(rows: LogicalPlan, time: &Expr, (low, high): Span) -> OlapResult<LogicalPlan> {
    let low = low.map(|low| time.clone().gt_eq(low));
    let high = high.map(|high| time.clone().lt(high));
    match low.into_iter().chain(high).reduce(Expr::and) {
        Some(condition) => Ok(LogicalPlanBuilder::from(rows).filter(condition)?.build()?),
        None => Ok(rows),
    }
}

/// A wall time as a literal.
fn wall(ns: i64) -> Expr {
    lit(ScalarValue::TimestampNanosecond(Some(ns), None))
}

/// The start of the bucket that a wall time lies in.
fn floor(wall: Expr, buckets: Buckets) -> Expr {
    WallBucket::call(cast(wall, instant_type()), chrono_tz::Tz::UTC, Some(buckets), Interval::default())
}

/// The window of a bucket.
fn span(window: &RollingWindow, stage: &Stage, member: &MemberId, bucket: Bucket) -> Span {
    let back = stage.shift(member).negated();
    let instant =
        |wall: Expr, is_end: bool| WallEdge::call(WallMove::call(wall, lit(1_i64), back), stage.tz, None, is_end);
    match window {
        RollingWindow::ToDate(granularity) => {
            let unit = floor(bucket.within, granularity.buckets);
            (Some(instant(unit, false)), Some(instant(bucket.end, true)))
        }
        RollingWindow::Around { trailing, leading, from_start } => {
            let at = if *from_start { bucket.start } else { bucket.end };
            let moved = |reach: &Reach, count: i64, is_end: bool| match reach {
                Reach::Unbounded => None,
                Reach::Of(length) => Some(instant(WallMove::call(at.clone(), lit(count), *length), is_end)),
            };
            (moved(trailing, -1, false), moved(leading, 1, true))
        }
    }
}
