//! Calls, errors and latencies of services over time; each point covers a period before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, cast, ident};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use quiver_query::{Pace, QueryContext, QueryReservation};
use quiver_types::Result;
use quiver_types::spans::{Durations, SpanColumn, SpanFilter, SpanRequest, TextTest};

use super::histogram::check_steps;
use super::sketch::{Sketch, aggregate};
use crate::columns::{Columns, columns};
use crate::engine::{Reader, TraceError, TracesEngine};
use crate::plan::{built, failed, functions, shown_service, view};

/// Estimated memory of a step of a series while it is counted.
const CELL_BYTES: usize = 512;

/// Parameters of a request.
#[derive(Debug, Clone)]
pub struct RateRequest {
    /// Services as displayed: `unknown_service` stands for spans without one.
    pub services: Vec<String>,
    /// Kinds of spans (0 to 5) that count as calls.
    pub kinds: Vec<u8>,
    /// Whether each operation is a separate series.
    pub by_operation: bool,
    /// First and last point, Unix nanoseconds.
    pub range: (i64, i64),
    /// Interval between points in nanoseconds.
    pub step: i64,
    /// Period that each point covers, in nanoseconds.
    pub per: i64,
    /// The quantile of durations, from 0 to 1.
    pub quantile: f64,
}

/// The calls whose spans start in `[time - per, time)`.
#[derive(Debug, Clone, PartialEq)]
pub struct RatePoint {
    /// End of the period (exclusive), Unix nanoseconds.
    pub time: i64,
    /// Calls per second.
    pub calls_per_s: f64,
    /// Share of failed calls; `None` without calls.
    pub error_ratio: Option<f64>,
    /// The quantile of their duration in milliseconds; `None` without calls.
    pub latency_ms: Option<f64>,
}

/// Calls of one service, or of one of its operations, over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    /// `service.name`; `unknown_service` if spans have none.
    pub service: String,
    /// Operation, if series are by operation.
    pub operation: Option<String>,
    /// Sorted by time.
    pub points: Vec<RatePoint>,
}

#[derive(Debug, Clone, Default)]
struct Cell {
    errors: u64,
    durations: Durations,
}

/// Cells of one step each, by the number of the step, for each service and operation.
type Cells = BTreeMap<(String, Option<String>), BTreeMap<i64, Cell>>;

impl RateRequest {
    /// Number of steps; a series has one point more.
    fn steps(&self) -> i64 {
        self.range.1.saturating_sub(self.range.0).div_euclid(self.step)
    }
}

impl TracesEngine {
    /// Computes series, sorted by service and operation.
    ///
    /// # Errors
    /// Too many points; LimitExceeded: the points of all series take more memory than there is; those of the engine.
    pub fn rates(
        self: &Arc<Self>,
        ctx: &QueryContext,
        request: RateRequest,
    ) -> BoxFuture<'_, Result<Vec<Rates>, TraceError>> {
        if let Err(refused) = check_steps(request.range, request.step) {
            return ready(Err(refused.into())).boxed();
        }
        self.read(ctx, request, |reader, request| async move {
            let from = request.range.0.saturating_sub(request.per);
            let any = request.services.iter().map(|s| SpanFilter::Service(TextTest::Is(s.clone()))).collect();
            let filter = SpanFilter::Starts(from, request.range.1)
                .and(SpanFilter::Kinds(request.kinds.clone()))
                .and(SpanFilter::Or(any));
            let mut all = Cells::new();
            let plan = reader.cells_plan(filter, &request)?;
            let _rows = reader
                .groups(&plan, |batch| {
                    let c = Columns(batch);
                    let (services, names) = (c.text("service")?, c.text("name")?);
                    let (steps, errors, durations) = (c.times("step")?, c.times("errors")?, c.bytes("durations")?);
                    reader.collect(batch.num_rows() * CELL_BYTES)?;
                    for i in 0..batch.num_rows() {
                        let operation = request.by_operation.then(|| names.value(i).to_owned());
                        let cell = Cell {
                            errors: errors.value(i) as u64,
                            durations: Sketch::read(durations.value(i)).into_buckets(),
                        };
                        let series = all.entry((services.value(i).to_owned(), operation)).or_default();
                        series.insert(steps.value(i), cell);
                    }
                    Ok(())
                })
                .await?;
            let memory = reader.collected("rates");
            let found = series(&request, all, &memory, &Pace::new(&reader.ctx, "query execution"))?;
            reader.ctx.keep(memory);
            Ok(found)
        })
    }
}

impl Reader {
    /// Plans `service`, `name` (empty if not by operation), `step`, `errors`, `durations`.
    fn cells_plan(&self, filter: SpanFilter, request: &RateRequest) -> Result<LogicalPlan, TraceError> {
        let mut wanted = columns(&["start", "status"], &["service"]);
        wanted.extend([SpanColumn::Text("name"), SpanColumn::Duration]);
        let scan = LogicalPlanBuilder::from(self.plan(&SpanRequest { filter, columns: wanted })?);
        let plan = || {
            let name = if request.by_operation { ident("name") } else { view("") };
            let step = functions::step(ident("start"), request.range.0, request.step);
            let keys = vec![shown_service(ident("service"))?.alias("service"), name.alias("name"), step.alias("step")];
            let sums = vec![failed().alias("errors"), aggregate::durations(ident("duration")).alias("durations")];
            let text = |name: &str| cast(ident(name), DataType::Utf8).alias(name);
            let columns = vec![text("service"), text("name"), ident("step"), ident("errors"), ident("durations")];
            scan.aggregate(keys, sums)?.project(columns)
        };
        built(plan())
    }
}

/// Makes the series. Each has all points, however few of them have calls.
fn series(request: &RateRequest, all: Cells, memory: &QueryReservation, pace: &Pace) -> Result<Vec<Rates>> {
    let mut found = Vec::with_capacity(all.len());
    for ((service, operation), cells) in all {
        memory.add((request.steps() + 1) as usize * size_of::<RatePoint>())?;
        found.push(Rates { service, operation, points: points(request, &cells, pace)? });
    }
    Ok(found)
}

/// Sums up the cells in the period of each point. DataFusion's windows would need a row, with a sketch, for each step
/// without spans.
fn points(request: &RateRequest, cells: &BTreeMap<i64, Cell>, pace: &Pace) -> Result<Vec<RatePoint>> {
    let width = (request.per / request.step).max(1);
    let seconds = (width * request.step) as f64 / 1e9;
    let point = |n: i64| -> Result<RatePoint> {
        let (mut sum, mut buckets) = (Cell::default(), 1);
        for cell in cells.range(n - width..n).map(|c| c.1) {
            sum.errors += cell.errors;
            sum.durations.merge(&cell.durations);
            buckets += cell.durations.iter().count();
        }
        pace.did(buckets)?;
        let calls = sum.durations.count();
        Ok(RatePoint {
            time: request.range.0 + n * request.step,
            calls_per_s: calls as f64 / seconds,
            error_ratio: (calls > 0).then(|| sum.errors as f64 / calls as f64),
            latency_ms: (calls > 0).then(|| sum.durations.quantile(request.quantile) as f64 / 1e6),
        })
    };
    (0..=request.steps()).map(point).collect()
}

#[cfg(test)]
mod tests {
    use quiver_query::Limits;
    use quiver_types::spans::bucket;
    use quiver_types::{Access, ErrorKind};

    use super::*;
    use crate::testing::memory;

    /// As many as a window may have.
    const STEPS: i64 = 11_000;
    const SECOND: i64 = 1_000_000_000;

    fn request(steps: i64) -> RateRequest {
        RateRequest {
            services: Vec::new(),
            kinds: vec![2],
            by_operation: true,
            range: (0, steps * SECOND),
            step: SECOND,
            per: 2 * SECOND,
            quantile: 0.5,
        }
    }

    fn ctx() -> QueryContext {
        QueryContext::new(Access::full(), Limits::default())
    }

    #[test]
    fn a_point_looks_back() {
        let mut cell = Cell { errors: 1, ..Cell::default() };
        cell.durations.add(bucket(1_000_000), 4);
        let pace = Pace::new(&ctx(), "a test");
        let found = points(&request(4), &BTreeMap::from([(0, cell)]), &pace).unwrap();
        let calls: Vec<f64> = found.iter().map(|p| p.calls_per_s).collect();
        assert_eq!(calls, [0.0, 2.0, 2.0, 0.0, 0.0]);
        assert_eq!(found[1].error_ratio, Some(0.25));
        assert!((found[1].latency_ms.unwrap() - 1.0).abs() < 0.03);
        // Breaks where averages over time take calls that there are none of for fast ones without errors.
        assert_eq!((found[0].error_ratio, found[0].latency_ms), (None, None));
    }

    /// Breaks if many operations over many steps take memory that nothing counts, or go on for who went away.
    #[test]
    fn series_count_and_end_with_their_query() {
        let (ctx, long) = (ctx(), request(STEPS));
        let pace = Pace::new(&ctx, "a test");
        let cells = |operations: usize| -> Cells {
            (0..operations).map(|n| (("s".to_owned(), Some(n.to_string())), BTreeMap::new())).collect()
        };
        let found = series(&long, cells(4), &memory(16 << 20), &pace).unwrap();
        assert!(found.len() == 4 && found.iter().all(|one| one.points.len() as i64 == STEPS + 1));
        let error = series(&long, cells(4), &memory(1 << 20), &pace).unwrap_err();
        assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");
        ctx.cancel.cancel();
        let error = series(&long, cells(8), &memory(16 << 20), &pace).unwrap_err();
        assert_eq!(error.message, "query was canceled in a test");
    }
}
