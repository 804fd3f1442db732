//! Time series for the search page, and the heat map of durations.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::error::Result as DataFusionResult;
use datafusion::functions_aggregate::expr_fn::{min, sum};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::functions_window::expr_fn::dense_rank;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Expr, ExprFunctionExt as _, LogicalPlan, LogicalPlanBuilder, cast, ident, lit, when};
use foldhash::fast::FixedState;
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use hashbrown::HashMap;
use quiver_query::{QueryContext, QueryReservation};
use quiver_types::spans::{Place, SpanColumn, SpanFilter, SpanRequest, TraceId};

use super::sketch::{Sketch, aggregate};
use crate::columns::{Columns, columns};
use crate::engine::{ParamError, Reader, TraceError, TracesEngine};
use crate::plan::{ascending, built, failed, functions, rows, shown_service, status_word};

/// Maximum number of steps of a window.
const STEPS_MAX: i64 = 11_000;
/// Estimated memory of a cell of the finest heat map.
const HEAT_BYTES: usize = 96;
/// Memory of a column of a heat map without its rows, and of one of these.
const COLUMN_BYTES: usize = size_of::<i64>() + 2 * size_of::<Vec<u64>>() + size_of::<Vec<Option<TraceId>>>();
const ROW_BYTES: usize = 2 * size_of::<u64>() + size_of::<Option<TraceId>>();
/// Memory of a point of a series, of which twice as many may have room.
const POINT_BYTES: usize = 2 * size_of::<(i64, Measured)>();

/// What series are grouped by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SplitBy {
    /// Not at all.
    Nothing,
    /// By service (`service`).
    Service,
    /// By name of the span (`operation`).
    Operation,
    /// By status (`status`): `unset`, `ok`, `error`.
    Status,
    /// By the value of an attribute (`tag:<key>`), at one place or at any.
    Tag(Option<Place>, String),
}

/// What is measured of the spans of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Number of spans that start in the step.
    Count,
    /// Number of those that failed (status `error`).
    Errors,
    /// A percentile of their duration in nanoseconds.
    Quantile(u8),
    /// Mean duration in nanoseconds.
    Average,
}

/// Validates the step and the number of steps of a window.
pub(crate) fn check_steps(range: (i64, i64), step: i64) -> Result<(), ParamError> {
    if step <= 0 {
        return Err(ParamError::new("step", "must be above 0"));
    }
    if range.1.saturating_sub(range.0) / step > STEPS_MAX {
        return Err(ParamError::new("step", format!("gives more than {STEPS_MAX} points")));
    }
    Ok(())
}

/// The default step for a window: gives about 60 points.
pub fn default_step(range: (i64, i64)) -> i64 {
    (range.1.saturating_sub(range.0) / 60).max(1_000_000_000)
}

/// Which time series of spans are wanted.
#[derive(Debug, Clone)]
pub struct SeriesRequest {
    /// Which spans count.
    pub filter: SpanFilter,
    /// First and last time, Unix nanoseconds.
    pub range: (i64, i64),
    /// Length of a step in nanoseconds; steps begin at multiples of it.
    pub step: i64,
    /// Whether steps hold their end, which is the beginning of the next one, instead of their beginning.
    pub holds_ends: bool,
    /// What the series are grouped by.
    pub by: SplitBy,
    /// What is computed for each step.
    pub measure: Measure,
    /// Maximum number of series, the most common ones; the rest is combined as `other`. `None`: there is a series for each
    /// value.
    pub series_max: Option<usize>,
}

/// Time series of spans.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Length of a step in nanoseconds.
    pub step: i64,
    /// By name.
    pub series: Vec<Series>,
}

/// One of the series of a [`Histogram`].
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The value that its spans have in common; empty if all are in one series. `other` holds those of the rarest values.
    pub name: String,
    /// Starts of steps in Unix nanoseconds, ascending, with what was measured; steps without spans have none.
    pub points: Vec<(i64, Measured)>,
}

/// What was measured in a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measured {
    /// A number of spans, or a percentile of their duration in nanoseconds.
    Whole(i64),
    /// A mean duration in nanoseconds.
    Mean(f64),
}

impl Measured {
    /// Gives the number as a double.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Whole(number) => number as f64,
            Self::Mean(number) => number,
        }
    }
}

/// Counts of spans by time and duration: a column for each step, and in it a row for each range of durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heatmap {
    /// Starts of the columns in Unix nanoseconds, ascending; steps without spans have none.
    pub times: Vec<i64>,
    /// Bounds of the rows in nanoseconds: one more than there are rows.
    pub bounds: Vec<i64>,
    /// Number of spans by column and row.
    pub counts: Vec<Vec<u64>>,
    /// Those of them that failed (status `error`).
    pub errors: Vec<Vec<u64>>,
    /// The trace with the least id of each cell that has spans.
    pub exemplars: Vec<Vec<Option<TraceId>>>,
}

impl TracesEngine {
    /// Computes time series.
    ///
    /// # Errors
    /// Too many steps; those of the engine.
    pub fn histogram(
        self: &Arc<Self>,
        ctx: &QueryContext,
        request: SeriesRequest,
    ) -> BoxFuture<'_, Result<Histogram, TraceError>> {
        let (range, step, measure) = (request.range, request.step, request.measure);
        if let Err(refused) = check_steps(range, step) {
            return ready(Err(refused.into())).boxed();
        }
        self.read(ctx, request, move |reader, request| async move {
            let plan = reader.series_plan(request)?;
            let mut series: Vec<Series> = Vec::new();
            let memory = reader.collected("points");
            // Counts in addition to the points until these are written.
            let _rows = reader
                .groups(&plan, |batch| {
                    let c = Columns(batch);
                    let (names, steps) = (c.text("name")?, c.times("step")?);
                    let (counts, errors) = (c.times("count")?, c.times("errors")?);
                    memory.add(batch.num_rows() * POINT_BYTES)?;
                    for i in 0..batch.num_rows() {
                        let sketch = || Ok::<_, TraceError>(Sketch::read(c.bytes("durations")?.value(i)));
                        let value = match measure {
                            Measure::Count => Measured::Whole(counts.value(i)),
                            Measure::Errors => Measured::Whole(errors.value(i)),
                            Measure::Quantile(q) => Measured::Whole(sketch()?.quantile(f64::from(q) / 100.0)),
                            Measure::Average => Measured::Mean(sketch()?.mean()),
                        };
                        let point = (steps.value(i) * step, value);
                        if let Some(one) = series.last_mut().filter(|one| one.name == names.value(i)) {
                            one.points.push(point);
                        } else {
                            memory.add(2 * size_of::<Series>() + names.value(i).len())?;
                            series.push(Series { name: names.value(i).to_owned(), points: vec![point] });
                        }
                    }
                    Ok(())
                })
                .await?;
            reader.ctx.keep(memory);
            Ok(Histogram { step, series })
        })
    }

    /// Counts by time and duration.
    ///
    /// # Errors
    /// Too many steps; those of the engine.
    pub fn heatmap(
        self: &Arc<Self>,
        ctx: &QueryContext,
        filter: SpanFilter,
        range: (i64, i64),
        step: i64,
        buckets: usize,
    ) -> BoxFuture<'_, Result<Heatmap, TraceError>> {
        if let Err(refused) = check_steps(range, step) {
            return ready(Err(refused.into())).boxed();
        }
        self.read(ctx, (filter, step, buckets), |reader, (filter, step, buckets)| async move {
            // Finer than any result; reduced to the wanted number of rows once the extremes are known.
            let mut cells = HeatCells::default();
            let _rows = reader
                .groups(&reader.heat_plan(filter, step)?, |batch| {
                    let c = Columns(batch);
                    let (steps, counts, errors) = (c.times("step")?, c.times("count")?, c.times("errors")?);
                    let (scales, ids) = (c.scales("scale")?, c.bytes("trace_id")?);
                    // Accounted in addition to the rows.
                    reader.collect(batch.num_rows() * HEAT_BYTES)?;
                    for i in 0..batch.num_rows() {
                        let id: TraceId = ids.value(i).try_into().unwrap_or_default();
                        let cell = (counts.value(i) as u64, errors.value(i) as u64, id);
                        cells.insert((steps.value(i) * step, scales.value(i)), cell);
                    }
                    Ok(())
                })
                .await?;
            let memory = reader.collected("heat map");
            let folded = fold_heatmap(&cells, buckets, &memory)?;
            reader.ctx.keep(memory);
            Ok(folded)
        })
    }
}

impl Reader {
    /// Plans `name`, `step`, `count`, `errors` and, if the measure needs them, `durations`, sorted by name and step.
    fn series_plan(&self, request: SeriesRequest) -> Result<LogicalPlan, TraceError> {
        let SeriesRequest { filter, step, holds_ends, by, measure, series_max, .. } = request;
        let durations = matches!(measure, Measure::Quantile(_) | Measure::Average);
        let mut wanted = columns(&["start", "status"], &[]);
        wanted.extend(durations.then_some(SpanColumn::Duration));
        let name = match &by {
            SplitBy::Nothing => Ok(lit("")),
            SplitBy::Service => {
                wanted.extend(columns(&[], &["service"]));
                shown_service(ident("service"))
            }
            SplitBy::Operation => {
                wanted.push(SpanColumn::Text("name"));
                Ok(ident("name"))
            }
            SplitBy::Status => status_word(),
            SplitBy::Tag(place, key) => {
                let (value, columns) = functions::attribute(*place, key);
                wanted.extend(columns);
                Ok(value)
            }
        };
        let scan = LogicalPlanBuilder::from(self.plan(&SpanRequest { filter, columns: wanted })?);
        let sketch = |of: fn(Expr) -> Expr, column: &str| durations.then(|| of(ident(column)).alias("durations"));
        let plan = || {
            let keys =
                vec![name?.alias("name"), functions::step(ident("start"), i64::from(holds_ends), step).alias("step")];
            let mut sums = vec![rows().alias("count"), failed().alias("errors")];
            sums.extend(sketch(aggregate::durations, "duration"));
            let each = scan.aggregate(keys, sums)?;
            let mut columns = vec![cast(ident("name"), DataType::Utf8).alias("name")];
            columns.extend(["step", "count", "errors"].map(ident));
            columns.extend(durations.then(|| ident("durations")));
            let each = each.project(columns)?;
            let most = match (&by, series_max) {
                (SplitBy::Nothing | SplitBy::Status, _) | (_, None) => each,
                (_, Some(most)) => {
                    let mut sums = ["count", "errors"].map(|name| sum(ident(name)).alias(name)).to_vec();
                    sums.extend(sketch(aggregate::sketches, "durations"));
                    commonest(each, most, durations)?.aggregate(["name", "step"].map(ident), sums)?
                }
            };
            most.sort(ascending(["name", "step"]))
        };
        built(plan())
    }

    /// Plans `step`, `scale`, `count`, `errors`, and the smallest `trace_id` of each cell.
    fn heat_plan(&self, filter: SpanFilter, step: i64) -> Result<LogicalPlan, TraceError> {
        let mut wanted = columns(&["trace_id", "start", "status"], &[]);
        wanted.push(SpanColumn::Duration);
        let scan = LogicalPlanBuilder::from(self.plan(&SpanRequest { filter, columns: wanted })?);
        let keys = vec![
            functions::step(ident("start"), 0, step).alias("step"),
            functions::scale(ident("duration")).alias("scale"),
        ];
        let least = min(cast(ident("trace_id"), DataType::Binary)).alias("trace_id");
        built(scan.aggregate(keys, vec![rows().alias("count"), failed().alias("errors"), least]))
    }
}

/// Renames all but so many names, the most common ones, to `other`.
fn commonest(each: LogicalPlanBuilder, most: usize, durations: bool) -> DataFusionResult<LogicalPlanBuilder> {
    let total = Expr::from(WindowFunction::new(sum_udaf(), vec![ident("count")]));
    let total = total.partition_by(vec![ident("name")]).build()?.alias("total");
    let order = vec![ident("total").sort(false, false), ident("name").sort(true, false)];
    let place = dense_rank().order_by(order).build()?.alias("place");
    let placed = each.window(vec![total])?.window(vec![place])?;
    let name = when(ident("place").lt_eq(lit(most as u64)), ident("name")).otherwise(lit("other"))?.alias("name");
    let mut columns = vec![name];
    columns.extend(["step", "count", "errors"].map(ident));
    columns.extend(durations.then(|| ident("durations")));
    placed.project(columns)
}

/// Cells of the finest heat map, by time and sixteenths of powers of two: spans, failed ones, and the least trace id.
type HeatCells = HashMap<(i64, i32), (u64, u64, TraceId), FixedState>;

fn fold_heatmap(cells: &HeatCells, buckets: usize, memory: &QueryReservation) -> Result<Heatmap, TraceError> {
    let mut times: Vec<i64> = cells.keys().map(|k| k.0).collect();
    times.sort_unstable();
    times.dedup();
    let least = cells.keys().map(|k| k.1).min().unwrap_or(0);
    let most = cells.keys().map(|k| k.1).max().unwrap_or(0);
    let width = ((most - least + 1) as usize).div_ceil(buckets.max(1)).max(1);
    let rows = ((most - least + 1) as usize).div_ceil(width);
    let bounds: Vec<i64> =
        (0..=rows).map(|i| 2f64.powf((f64::from(least) + (i * width) as f64) / 16.0) as i64).collect();
    memory.add(times.len() * (COLUMN_BYTES + rows * ROW_BYTES))?;
    let mut counts = vec![vec![0u64; rows]; times.len()];
    let mut errors = counts.clone();
    let mut exemplars: Vec<Vec<Option<TraceId>>> = vec![vec![None; rows]; times.len()];
    for (&(at, log), &(count, failed, id)) in cells {
        let (Ok(column), row) = (times.binary_search(&at), (log - least) as usize / width) else { continue };
        counts[column][row] += count;
        errors[column][row] += failed;
        let exemplar = &mut exemplars[column][row];
        *exemplar = Some(exemplar.map_or(id, |known| known.min(id)));
    }
    Ok(Heatmap { times, bounds, counts, errors, exemplars })
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use super::*;
    use crate::testing::memory;

    #[test]
    fn steps_of_windows() {
        let reason = |range, step| check_steps(range, step).err().map(|error| error.reason);
        assert_eq!(reason((0, STEPS_MAX), 1), None);
        assert_eq!(reason((0, STEPS_MAX + 1), 1).as_deref(), Some("gives more than 11000 points"));
        assert_eq!(reason((i64::MIN, i64::MAX), i64::MAX), None);
        assert_eq!((reason((0, 1), 0), reason((0, 1), -1)), (reason((5, 1), 0), Some("must be above 0".to_owned())));
        assert_eq!(default_step((0, 3_600_000_000_000)), 60_000_000_000);
        assert_eq!(default_step((0, 59)), 1_000_000_000, "no step is shorter than a second");
        assert_eq!(default_step((i64::MIN, i64::MAX)), i64::MAX / 60);
    }

    /// Cells of a time and a sixteenth of a power of two, with counts, failures and the trace of an exemplar.
    #[test]
    fn heat_maps_are_folded_to_so_many_rows() {
        let cells = [((20, 16), (1, 0, [9; 16])), ((10, 16), (2, 1, [5; 16])), ((10, 33), (1, 0, [3; 16]))];
        let cells: HeatCells = cells.into_iter().collect();
        let fold = |cells: &HeatCells, buckets| fold_heatmap(cells, buckets, &memory(1 << 20)).unwrap();
        let id = |id: u8| Some([id; 16]);
        let expected = Heatmap {
            times: vec![10, 20],
            bounds: vec![2, 4],
            counts: vec![vec![3], vec![1]],
            errors: vec![vec![1], vec![0]],
            exemplars: vec![vec![id(3)], vec![id(9)]],
        };
        assert_eq!(fold(&cells, 1), expected);
        let expected = Heatmap {
            times: vec![10, 20],
            bounds: vec![2, 2, 4],
            counts: vec![vec![2, 1], vec![1, 0]],
            errors: vec![vec![1, 0], vec![0, 0]],
            exemplars: vec![vec![id(5), id(3)], vec![id(9), None]],
        };
        assert_eq!(fold(&cells, 2), expected);
        let rows = |buckets| fold(&cells, buckets).counts[0].len();
        assert_eq!((rows(0), rows(18), rows(1000)), (1, 18, 18));
        assert!(fold(&HeatCells::default(), 5).counts.is_empty());
    }

    /// Breaks if the columns of many steps are held without being counted.
    #[test]
    fn heat_maps_count_in_the_memory_of_their_query() {
        let cells: HeatCells = (0..STEPS_MAX).map(|at| ((at, (at % 60) as i32), (1, 0, [1; 16]))).collect();
        assert_eq!(fold_heatmap(&cells, 60, &memory(64 << 20)).unwrap().times.len() as i64, STEPS_MAX);
        let refused = fold_heatmap(&cells, 60, &memory(1 << 20)).unwrap_err();
        assert!(matches!(refused, TraceError::Engine(error) if error.kind == ErrorKind::LimitExceeded));
    }
}
