//! Rolling windows: each bucket's value is made of rows around it; buckets without rows are there too (`olap-api.md` 10).
//!
//! Rows and buckets meet in a join by a range, which compares each with each. Measures that add up are grouped before it, by
//! the cells that the borders of all windows cut time into: few meet few then, however many rows there are.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, TimestampNanosecondType};
use datafusion::catalog::TableFunctionArgs;
use datafusion::common::{DFSchema, JoinType, ScalarValue, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, lit, when};

use super::filters::instant;
use super::parts::Leaf;
use super::results::coalesce;
use super::{Group, Planner, Stage, Tree, column, model_error};
use crate::dates::granularity::{Buckets, Interval};
use crate::dates::range::WallRange;
use crate::error::{OlapResult, QueryError, Reason};
use crate::functions::{WallBucket, WallEdge, WallMove, instant_type};
use crate::model::{MeasureType, MemberId, Reach, RollingWindow};

/// Most buckets of a window.
const BUCKETS_MAX: i64 = 50_000;
/// The function whose rows are numbers.
const SERIES: &str = "generate_series";

/// A window as instants: from the first to before the second; none: without end.
type Span = (Option<Expr>, Option<Expr>);

/// The buckets of a range with their windows.
struct Series {
    /// One row a bucket: `__bucket` wall time, `__low`, `__high` instants.
    plan: LogicalPlan,
    /// Holds all windows.
    all: Span,
    /// What the borders of all windows cut time into; none: they have none.
    cells: Option<Cells>,
}

/// Pieces of time between the borders of windows, all of one length: rows of one lie in the same windows.
struct Cells {
    first: i64,
    last: i64,
    buckets: Buckets,
}

impl Cells {
    fn between(borders: &[i64]) -> Option<Self> {
        let (first, last) = (*borders.iter().min()?, *borders.iter().max()?);
        let length = borders.iter().fold(0, |length, border| divisor(length, border.abs_diff(first)));
        let nanos = i64::try_from(length.max(1)).ok()?;
        Some(Self { first, last, buckets: Buckets { length: Interval { months: 0, nanos }, origin_ns: first } })
    }

    /// An instant of the cell that a time lies in; all before the first border are one, and all behind the last.
    fn of(&self, time: &Expr) -> OlapResult<Expr> {
        let before = instant(self.first.saturating_sub(1));
        let cell = cast(
            WallBucket::call(time.clone(), chrono_tz::Tz::UTC, Some(self.buckets), Interval::default()),
            instant_type(),
        );
        let cell = when(time.clone().lt(instant(self.first)), before)
            .when(time.clone().gt_eq(instant(self.last)), instant(self.last))
            .otherwise(cell)?;
        Ok(cell)
    }
}

/// The greatest number that divides both.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

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
        let series = self.series(window, buckets, range, stage, &member)?;
        let rows = within(self.rows(stage, tree, measures, std::slice::from_ref(&member))?, &time, series.all)?;
        // Groups are those of rows; a bucket without rows has none.
        let leads = |group: &Group| group.member == member && group.buckets.is_some();
        let (mut of_rows, mut groups) = (Vec::new(), Vec::new());
        for (i, group) in stage.groups.iter().enumerate() {
            let value = match group.buckets {
                Some(buckets) if leads(group) => floor(column("__bucket"), buckets),
                _ => {
                    of_rows.push(self.group_value(stage, group)?.alias(format!("__group_{i}")));
                    column(format!("__group_{i}"))
                }
            };
            groups.push(value.alias(group.column.clone()));
        }
        let in_windows = |rows: LogicalPlan, at: &Expr| {
            let meets = at.clone().gt_eq(column("__low")).and(at.clone().lt(column("__high")));
            LogicalPlanBuilder::from(series.plan.clone()).join_on(rows, JoinType::Left, [meets])?.build()
        };
        if let Some(cells) = series.cells.filter(|_| measures.iter().all(|id| self.adds_up(tree, id))) {
            let leaf = |id| self.leaf(stage, id, self.measure(id)?.0.common.name != tree.root, None);
            let leaves = measures.iter().map(leaf).collect::<OlapResult<Vec<_>>>()?;
            of_rows.push(cells.of(&time)?.alias("__cell"));
            let rows = self.aggregated(rows, of_rows, &leaves)?;
            let leaves = leaves.iter().map(|leaf| self.of_parts(&rows, leaf)).collect::<OlapResult<Vec<_>>>()?;
            let rows = in_windows(rows, &column("__cell"))?;
            return Ok(vec![(self.aggregated(rows, groups, &leaves)?, leaves)]);
        }
        let columns = rows.schema().columns().into_iter().map(Expr::Column);
        let out: Vec<Expr> = columns.chain(of_rows).collect();
        let rows = in_windows(LogicalPlanBuilder::from(rows).project(out)?.build()?, &time)?;
        self.parts(stage, &rows, &groups, tree, measures, Some(&time.is_not_null()))
    }

    /// Whether a measure of rows is made of what it is of each part of them.
    fn adds_up(&self, tree: &Tree, id: &MemberId) -> bool {
        let Ok((model, measure)) = self.measure(id) else { return false };
        match measure.ty {
            MeasureType::Min | MeasureType::Max => true,
            MeasureType::Count | MeasureType::Sum | MeasureType::RunningTotal => {
                // Rows that a join repeats may lie in several parts.
                !tree.is_multiplied(self.catalog, &model.common.name)
            }
            _ => false,
        }
    }

    /// A measure that adds up, over rows that have it of parts.
    fn of_parts(&self, rows: &LogicalPlan, leaf: &Leaf) -> OlapResult<Leaf> {
        let name = leaf.id.to_string();
        let function = match self.measure(&leaf.id)?.1.ty {
            MeasureType::Min => "min",
            MeasureType::Max => "max",
            _ => "sum",
        };
        // A sum of sums has more digits than a sum.
        let ty = rows.schema().field_with_unqualified_name(&name)?.data_type().clone();
        let whole = cast(self.aggregate(function, vec![column(name)])?, ty);
        let expr = if leaf.is_count { coalesce(vec![whole, lit(0_i64)]) } else { whole };
        Ok(Leaf { expr, ..leaf.clone() })
    }

    /// The buckets of a range with their windows.
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
    ) -> OlapResult<Series> {
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
        let cells = Cells::between(&self.borders(first..=last, low.iter().chain(&high))?);
        let low = low.unwrap_or_else(|| instant(i64::MIN)).alias("__low");
        let high = high.unwrap_or_else(|| instant(i64::MAX)).alias("__high");
        let out = [border(column("value")).alias("__bucket"), low, high];
        let plan = LogicalPlanBuilder::from(self.numbers(first, last)?).project(out)?.build()?;
        // Later buckets have no earlier windows.
        Ok(Series { plan, all: (span_of(lit(first)).0, span_of(lit(last)).1), cells })
    }

    /// What expressions over numbers of buckets are for some of them, as instants.
    fn borders<'e>(
        &self,
        numbers: RangeInclusive<i64>,
        borders: impl Iterator<Item = &'e Expr>,
    ) -> OlapResult<Vec<i64>> {
        let schema = Arc::new(Schema::new(vec![Field::new("value", DataType::Int64, false)]));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        let rows = RecordBatch::try_new(Arc::clone(&schema), vec![numbers]).map_err(DataFusionError::from)?;
        let schema = DFSchema::try_from(schema)?;
        let mut all = Vec::new();
        for border in borders {
            let border = self.state.create_physical_expr(border.clone(), &schema)?;
            let instants = border.evaluate(&rows)?.into_array(rows.num_rows())?;
            all.extend(instants.as_primitive::<TimestampNanosecondType>().values().iter().copied());
        }
        Ok(all)
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

#[cfg(test)]
mod tests {
    use arrow::array::TimestampNanosecondArray;
    use datafusion::prelude::SessionContext;

    use super::*;

    #[test]
    fn times_of_a_cell_lie_on_one_side_of_each_border() {
        let check = |borders: &[i64], length: i64| {
            let cells = Cells::between(borders).unwrap();
            assert_eq!(cells.buckets.length.nanos, length, "{borders:?}");
            let times: Vec<i64> = (-200..200).collect();
            let schema = Arc::new(Schema::new(vec![Field::new("time", instant_type(), false)]));
            let column_of_times = TimestampNanosecondArray::from(times.clone()).with_timezone("UTC");
            let rows = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(column_of_times)]).unwrap();
            let state = SessionContext::new().state();
            let of =
                state.create_physical_expr(cells.of(&column("time")).unwrap(), &DFSchema::try_from(schema).unwrap());
            let found = of.unwrap().evaluate(&rows).unwrap().into_array(times.len()).unwrap();
            let found = found.as_primitive::<TimestampNanosecondType>();
            for (time, cell) in times.iter().zip(found.values()) {
                for border in borders {
                    assert_eq!(time >= border, cell >= border, "{time} in {cell}: {borders:?}");
                }
            }
        };
        check(&[-21, 0, 105, 210, 84], 21);
        check(&[-100, 23, 0], 1);
        check(&[40], 1);
        assert!(Cells::between(&[]).is_none());
    }
}
