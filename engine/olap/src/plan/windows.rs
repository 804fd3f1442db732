//! Rolling windows: each bucket's value is computed from the rows around it, and buckets without rows are included
//! (`olap-api.md` 10).
//!
//! Rows and buckets are joined by a range condition, which compares each with each. Additive measures are grouped
//! first by cells of time, which lie between the boundaries of all windows; so few rows are compared, however many
//! there were.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, TimestampNanosecondType};
use datafusion::catalog::TableFunctionArgs;
use datafusion::common::{DFSchema, JoinType, ScalarValue, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, lit, when};

use super::fan_out::{GroupedRows, Leaf, aggregated};
use super::filters::instant;
use super::results::coalesce;
use super::{Group, Planner, Stage, Tree, column, model_error};
use crate::dates::granularity::{Buckets, Interval};
use crate::dates::range::WallRange;
use crate::error::{OlapResult, QueryError, Reason};
use crate::functions::{WallBucket, WallEdge, WallMove, instant_type};
use crate::model::{MeasureType, MemberId, Reach, RollingWindow};

/// The most buckets of a window.
const BUCKETS_MAX: i64 = 50_000;
/// The table function that numbers buckets.
const SERIES: &str = "generate_series";

/// A window as instants, the second excluded; `None` is unbounded.
type Span = (Option<Expr>, Option<Expr>);

/// The buckets of a range with their windows.
struct Series {
    /// One row per bucket: `__bucket` is wall time, `__low` and `__high` are instants.
    plan: LogicalPlan,
    /// The span that contains all windows.
    all: Span,
    /// The cells between the boundaries of all windows; `None` if they have no boundaries.
    cells: Option<Cells>,
}

/// Periods of equal length such that each window consists of whole ones: all rows of a cell are in the same windows.
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

    /// An instant that identifies the cell of a time. Everything before the first boundary is one cell, and
    /// everything after the last.
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

/// The greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// A bucket of wall time.
struct Bucket {
    start: Expr,
    end: Expr,
    /// A time in the unit at which a to-date window starts.
    within: Expr,
}

impl Planner<'_> {
    /// Plans measures that share a window.
    pub(super) fn windowed(
        &self,
        stage: &Stage,
        tree: &Tree,
        window: &RollingWindow,
        measures: &[MemberId],
    ) -> OlapResult<Vec<(LogicalPlan, Vec<Leaf>)>> {
        // The finest buckets of a time are generated; coarser ones follow from these.
        let grouped = stage.groups.iter().filter_map(|g| g.buckets.map(|b| (g, b)));
        let leading = grouped.min_by_key(|(_, b)| b.about_ns()).map(|(g, b)| (g.member.clone(), b));
        let ranged = |member: &MemberId| stage.ranges.iter().find(|(of, _)| of == member).map(|(_, range)| *range);
        let Some((member, buckets)) = leading else {
            let Some((member, range)) = stage.ranges.first().cloned() else {
                let rows = self.rows(stage, tree, measures, &[])?;
                let input = GroupedRows { rows, groups: self.group_exprs(stage)?, there: None };
                return self.parts(stage, input, tree, measures);
            };
            let rows = self.rows(stage, tree, measures, std::slice::from_ref(&member))?;
            let time = self.dimension(stage, &member)?;
            // A to-date window over a range starts with the unit that contains the end of the range.
            let last = if range.start_ns == range.end_ns { range.start_ns } else { range.end_ns - 1 };
            let bucket = Bucket { start: wall(range.start_ns), end: wall(range.end_ns), within: wall(last) };
            let rows = within(rows, &time, span(window, stage, &member, bucket))?;
            let input = GroupedRows { rows, groups: self.group_exprs(stage)?, there: None };
            return self.parts(stage, input, tree, measures);
        };
        let Some(range) = ranged(&member) else {
            let text = format!("a rolling window by `{member}` needs a `dateRange` on it");
            return Err(QueryError::new(Reason::RangeRequired, "/timeDimensions", text).into());
        };
        let time = self.dimension(stage, &member)?;
        let series = self.series(window, buckets, range, stage, &member)?;
        let rows = within(self.rows(stage, tree, measures, std::slice::from_ref(&member))?, &time, series.all)?;
        // Other groups come from rows; they are NULL in buckets without rows.
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
            let rows = aggregated(rows, of_rows, &leaves)?;
            let leaves = leaves.iter().map(|leaf| self.of_parts(&rows, leaf)).collect::<OlapResult<Vec<_>>>()?;
            let rows = in_windows(rows, &column("__cell"))?;
            return Ok(vec![(aggregated(rows, groups, &leaves)?, leaves)]);
        }
        let columns = rows.schema().columns().into_iter().map(Expr::Column);
        let out: Vec<Expr> = columns.chain(of_rows).collect();
        let rows = in_windows(LogicalPlanBuilder::from(rows).project(out)?.build()?, &time)?;
        // A bucket without rows is joined with a row of NULLs, which must not count as a row of the measures.
        let input = GroupedRows { rows, groups, there: Some(time.is_not_null()) };
        self.parts(stage, input, tree, measures)
    }

    /// Whether a measure is additive: its value follows from those of parts of the rows.
    fn adds_up(&self, tree: &Tree, id: &MemberId) -> bool {
        let Ok((model, measure)) = self.measure(id) else { return false };
        match measure.ty {
            MeasureType::Min | MeasureType::Max => true,
            MeasureType::Count | MeasureType::Sum | MeasureType::RunningTotal => {
                // Rows that a join multiplies may be in several parts.
                !tree.is_multiplied(self.catalog, &model.common.name)
            }
            _ => false,
        }
    }

    /// An additive measure computed from its values for parts.
    fn of_parts(&self, rows: &LogicalPlan, leaf: &Leaf) -> OlapResult<Leaf> {
        let name = leaf.id.to_string();
        let function = match self.measure(&leaf.id)?.1.ty {
            MeasureType::Min => "min",
            MeasureType::Max => "max",
            _ => "sum",
        };
        // A sum of sums has a longer type than a sum.
        let ty = rows.schema().field_with_unqualified_name(&name)?.data_type().clone();
        let whole = cast(self.aggregate(function, vec![column(name)])?, ty);
        let expr = if leaf.is_count { coalesce(vec![whole, lit(0_i64)]) } else { whole };
        Ok(Leaf { expr, ..leaf.clone() })
    }

    /// The buckets of a range with their windows.
    ///
    /// Buckets are numbered, and computed from their numbers, so the plan is of the same size for every minute of a
    /// year as for one.
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
            // A to-date window ends with its bucket, and starts with the unit that contains the bucket's start.
            let (start, end) = (border(number.clone()), border(number + lit(1_i64)));
            span(window, stage, member, Bucket { within: start.clone(), start, end })
        };
        let (low, high) = span_of(column("value"));
        let cells = Cells::between(&self.borders(first..=last, low.iter().chain(&high))?);
        let low = low.unwrap_or_else(|| instant(i64::MIN)).alias("__low");
        let high = high.unwrap_or_else(|| instant(i64::MAX)).alias("__high");
        let out = [border(column("value")).alias("__bucket"), low, high];
        let plan = LogicalPlanBuilder::from(self.numbers(first, last)?).project(out)?.build()?;
        // Windows start in the order of their buckets.
        Ok(Series { plan, all: (span_of(lit(first)).0, span_of(lit(last)).1), cells })
    }

    /// Evaluates expressions over bucket numbers for some of them, as instants.
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

    /// Integers from `first` to `last`, in the column `value`.
    fn numbers(&self, first: i64, last: i64) -> OlapResult<LogicalPlan> {
        let function = self.state.table_functions().get(SERIES);
        let function = function.ok_or_else(|| model_error(format!("there is no function `{SERIES}`")))?;
        let bounds = [lit(first), lit(last)];
        let table = function.create_table_provider_with_args(TableFunctionArgs::new(&bounds, self.state))?;
        // Named like the call, for printed plans and SQL.
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

/// A literal wall time.
fn wall(ns: i64) -> Expr {
    lit(ScalarValue::TimestampNanosecond(Some(ns), None))
}

/// The start of the bucket that contains a wall time.
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
