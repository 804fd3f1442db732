//! Calls, errors and latencies of services over time; each point covers a period before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, cast, ident};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use quiver_query::QueryContext;
use quiver_types::spans::{Durations, SpanColumn, SpanFilter, SpanRequest, TextTest};

use super::sketch::{Sketch, aggregate};
use crate::columns::{Columns, columns};
use crate::engine::{ParamError, Reader, TraceError, TracesEngine};
use crate::plan::{built, failed, functions, shown_service, view};

/// Maximum number of points of a series.
const POINTS_MAX: i64 = 11_000;
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

impl TracesEngine {
    /// Computes series, sorted by service and operation.
    ///
    /// # Errors
    /// Too many points; those of the engine.
    pub fn rates(
        self: &Arc<Self>,
        ctx: &QueryContext,
        request: RateRequest,
    ) -> BoxFuture<'_, Result<Vec<Rates>, TraceError>> {
        if request.range.1.saturating_sub(request.range.0) / request.step.max(1) > POINTS_MAX {
            let refused = ParamError::new("step", format!("gives more than {POINTS_MAX} points"));
            return ready(Err(refused.into())).boxed();
        }
        self.read(ctx, move |reader| async move {
            let from = request.range.0.saturating_sub(request.per);
            let any = request.services.iter().map(|s| SpanFilter::Service(TextTest::Is(s.clone()))).collect();
            let filter = SpanFilter::Starts(from, request.range.1)
                .and(SpanFilter::Kinds(request.kinds.clone()))
                .and(SpanFilter::Or(any));
            // Cells of one step each; a point is the sum of the cells in its period.
            let mut all: BTreeMap<(String, Option<String>), BTreeMap<i64, Cell>> = BTreeMap::new();
            let plan = reader.cells_plan(filter, &request)?;
            reader
                .list(&plan, |batch| {
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
            Ok(all
                .into_iter()
                .map(|((service, operation), cells)| Rates { service, operation, points: points(&request, &cells) })
                .collect())
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

/// Sums up cells. DataFusion's windows would need a row, with a sketch, for each step without spans.
fn points(request: &RateRequest, cells: &BTreeMap<i64, Cell>) -> Vec<RatePoint> {
    let steps = request.range.1.saturating_sub(request.range.0).div_euclid(request.step);
    let width = (request.per / request.step).max(1);
    let seconds = (width * request.step) as f64 / 1e9;
    let point = |n: i64| {
        let mut sum = Cell::default();
        for cell in cells.range(n - width..n).map(|c| c.1) {
            sum.errors += cell.errors;
            sum.durations.merge(&cell.durations);
        }
        let calls = sum.durations.count();
        RatePoint {
            time: request.range.0 + n * request.step,
            calls_per_s: calls as f64 / seconds,
            error_ratio: (calls > 0).then(|| sum.errors as f64 / calls as f64),
            latency_ms: (calls > 0).then(|| sum.durations.quantile(request.quantile) as f64 / 1e6),
        }
    };
    (0..=steps).map(point).collect()
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::bucket;

    use super::*;

    #[test]
    fn a_point_looks_back() {
        let second = 1_000_000_000;
        let request = RateRequest {
            services: Vec::new(),
            kinds: vec![2],
            by_operation: false,
            range: (0, 4 * second),
            step: second,
            per: 2 * second,
            quantile: 0.5,
        };
        let mut cell = Cell { errors: 1, ..Cell::default() };
        cell.durations.add(bucket(1_000_000), 4);
        let found = points(&request, &BTreeMap::from([(0, cell)]));
        let calls: Vec<f64> = found.iter().map(|p| p.calls_per_s).collect();
        assert_eq!(calls, [0.0, 2.0, 2.0, 0.0, 0.0]);
        assert_eq!(found[1].error_ratio, Some(0.25));
        assert!((found[1].latency_ms.unwrap() - 1.0).abs() < 0.03);
        // Breaks where averages over time take calls that there are none of for fast ones without errors.
        assert_eq!((found[0].error_ratio, found[0].latency_ms), (None, None));
    }
}
