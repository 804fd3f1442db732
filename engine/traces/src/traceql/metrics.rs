//! Metrics queries: numbers over time, computed from the spans that a query selects.
//!
//! Counts by columns that a plan can group by are left to the plan. Everything else reads the spans (whole traces if a
//! single span cannot tell whether it is selected), and keeps one cell for each series and step. Histograms count
//! values by powers of two, as the data sources of this API expect.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::fast::FixedState;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use hashbrown::HashSet;
use quiver_query::{QueryContext, QueryReservation, give_way};
use quiver_types::spans::{Place, Span, SpanColumn, SpanFilter, TraceId, all_columns, read_spans, whole_sample_weight};

use super::ast::{Aggregate, Choice, Metric, MetricFunction, Query};
use super::compare::{self, AttributeCounts};
use super::evaluation::{TraceView, attribute, figure_of, intrinsic_number, intrinsic_text};
use super::fields::{Field, Intrinsic};
use super::memory::{LABEL_BYTES, reserve};
use super::series::{MetricExemplar, MetricSeries, MetricWindow, SECOND_NS, keep, pick, step_start};
use super::step_values::{Cell, Groups, bucket, quantile, unit};
use super::steps::fill_for;
use super::value::FieldValue;
use crate::assemble::{Trace, assemble_all};
use crate::columns::{Columns, columns as columns_of};
use crate::engine::{ParamError, Reader, TraceError, TracesEngine, lookup_filter, summary_columns};
use crate::lists::histogram::{Histogram, Measure, SeriesRequest, SplitBy, check_steps};

/// What a trace that is known takes, about.
const KNOWN_BYTES: usize = 48;
/// Most traces that are held at once.
const TRACES: usize = 100;

impl MetricFunction {
    /// Its name in queries.
    fn name(&self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Count | Self::Of(Aggregate::Count, _) => "count_over_time",
            Self::Of(Aggregate::Avg, _) => "avg_over_time",
            Self::Of(Aggregate::Min, _) => "min_over_time",
            Self::Of(Aggregate::Max, _) => "max_over_time",
            Self::Of(Aggregate::Sum, _) => "sum_over_time",
            Self::Quantiles(..) => "quantile_over_time",
            Self::Histogram(_) => "histogram_over_time",
            Self::Compare(_) => "compare",
        }
    }
}

/// Whether a function counts spans, whatever they are.
fn counts_spans(function: &MetricFunction) -> bool {
    matches!(function, MetricFunction::Rate | MetricFunction::Count)
}

/// Gives how a plan counts by itself, where it can.
fn counted_by(metric: &Metric) -> Option<SplitBy> {
    if !counts_spans(&metric.function) || metric.extrapolates {
        return None;
    }
    match metric.by.as_slice() {
        [] => Some(SplitBy::Nothing),
        [Field::Attribute(Some(Place::Resource) | None, key)] if key == "service.name" => Some(SplitBy::Service),
        [Field::Intrinsic(Intrinsic::Name)] => Some(SplitBy::Operation),
        [Field::Intrinsic(Intrinsic::Status)] => Some(SplitBy::Status),
        _ => None,
    }
}

/// Whether only the whole trace tells the value of a field.
fn is_of_trace(field: &Field) -> bool {
    use Intrinsic::{ChildCount, NestedSetLeft, NestedSetParent, NestedSetRight};
    use Intrinsic::{RootName, RootService, TraceDuration, TraceId};
    let numbers = [ChildCount, NestedSetLeft, NestedSetParent, NestedSetRight, TraceDuration];
    let names = [RootName, RootService, TraceId];
    matches!(field, Field::Intrinsic(i) if numbers.contains(i) || names.contains(i))
}

/// The value of a span; with powers of two none that has no place among them, so that it makes no series, as in Tempo
/// (`bucketizeAttribute`).
fn placed(value: Option<f64>, by_power: bool) -> Option<f64> {
    value.filter(|value| !by_power || bucket(*value).is_some())
}

/// How often a span counts.
fn weight(metric: &Metric, span: &Span) -> f64 {
    if metric.extrapolates { whole_sample_weight(&span.trace_state) } else { 1.0 }
}

/// The field whose values count.
fn counted(metric: &Metric) -> Option<&Field> {
    match &metric.function {
        MetricFunction::Rate | MetricFunction::Count | MetricFunction::Compare(_) => None,
        MetricFunction::Of(_, field) | MetricFunction::Quantiles(field, _) | MetricFunction::Histogram(field) => {
            Some(field)
        }
    }
}

/// Columns of the fields of a metric.
fn columns(metric: &Metric) -> Vec<SpanColumn> {
    let is_near = |field: &Field| match field {
        Field::Attribute(place, _) => matches!(place, None | Some(Place::Span | Place::Resource)),
        Field::Intrinsic(i) => {
            matches!(i, Intrinsic::Duration | Intrinsic::Name | Intrinsic::Status | Intrinsic::Kind)
        }
    };
    if !metric.by.iter().chain(counted(metric)).all(is_near) {
        return all_columns();
    }
    let mut columns = summary_columns();
    columns.extend([SpanColumn::Own("attributes"), SpanColumn::Context("resource")]);
    columns.extend(metric.extrapolates.then_some(SpanColumn::Own("trace_state")));
    columns
}

/// The value of a field as a label.
fn label(span: &Span, field: &Field) -> FieldValue {
    let value = match field {
        Field::Attribute(place, key) => attribute(span, *place, key).map(FieldValue::of),
        Field::Intrinsic(i) if i.is_duration() => intrinsic_number(span, *i).map(FieldValue::Nanos),
        Field::Intrinsic(i) => intrinsic_text(span, *i).map(FieldValue::text),
    };
    value.unwrap_or_else(|| nothing(field))
}

/// The label of a span without a value: where every span has a text, it is empty.
fn nothing(field: &Field) -> FieldValue {
    let is_text = matches!(field, Field::Intrinsic(intrinsic) if intrinsic.is_text_of_all());
    if is_text { FieldValue::text("") } else { FieldValue::Nil }
}

/// Names and values of labels: of those without a value none, as in Tempo (`engine_metrics.go`: `labelsFor`), and the
/// first where all are without, unless another label stands beside them.
fn labels_of(metric: &Metric, values: &[FieldValue], has_other: bool) -> Vec<(String, FieldValue)> {
    let named = || metric.by.iter().map(ToString::to_string).zip(values.iter().cloned());
    let labels: Vec<(String, FieldValue)> = named().filter(|(_, value)| *value != FieldValue::Nil).collect();
    if labels.is_empty() && !has_other { named().take(1).collect() } else { labels }
}

fn series_of(metric: &Metric, groups: &Groups, memory: &QueryReservation) -> Result<Vec<MetricSeries>, TraceError> {
    if let MetricFunction::Compare(comparison) = &metric.function {
        return compare::series(comparison, groups, memory);
    }
    let mut out = Vec::new();
    let has_other = matches!(metric.function, MetricFunction::Quantiles(..) | MetricFunction::Histogram(_));
    for (values, cells) in groups {
        let labels_bytes = LABEL_BYTES + values.iter().map(|value| LABEL_BYTES + value.held_bytes()).sum::<usize>();
        let labels = labels_of(metric, values, has_other);
        let with = |name: &str, value: f64| {
            let mut labels = labels.clone();
            labels.push((name.to_owned(), FieldValue::Double(value)));
            labels
        };
        let unit = counted(metric).map_or(1.0, unit);
        // Those whose own value is one of the series, and all of them.
        let of_values = |is_in: &dyn Fn(f64) -> bool| {
            let own = matches!(metric.function, MetricFunction::Of(..) | MetricFunction::Quantiles(..));
            let firsts = cells.iter().filter_map(|(at, cell)| Some((*at, cell.first?)));
            let one = |(at, (trace, start, value)): (i64, (TraceId, i64, f64))| MetricExemplar {
                trace,
                start,
                at,
                value: own.then_some(value / unit),
            };
            firsts.filter(|(_, first)| is_in(first.2)).map(one).collect::<Vec<_>>()
        };
        match &metric.function {
            MetricFunction::Quantiles(_, list) => {
                for (n, &q) in list.iter().enumerate() {
                    reserve(memory, labels_bytes, cells.len(), if n + 1 == list.len() { cells.len() } else { 0 })?;
                    let points = cells.iter().map(|(at, cell)| (*at, quantile(&cell.buckets, q) / unit)).collect();
                    // They are of no quantile in particular; once is enough.
                    let exemplars = if n + 1 == list.len() { of_values(&|_| true) } else { Vec::new() };
                    out.push(MetricSeries { labels: with("p", q), points, exemplars });
                }
            }
            MetricFunction::Histogram(_) => {
                let bounds: BTreeSet<u64> = cells.values().flat_map(|cell| cell.buckets.keys().copied()).collect();
                for bound in bounds {
                    let held = cells.values().filter(|cell| cell.buckets.contains_key(&bound)).count();
                    reserve(memory, labels_bytes, held, held)?;
                    let count = |cell: &Cell| cell.buckets.get(&bound).copied();
                    let points = cells.iter().filter_map(|(at, cell)| Some((*at, count(cell)?))).collect();
                    let exemplars = of_values(&|value| bucket(value) == Some(bound));
                    out.push(MetricSeries { labels: with("__bucket", bound as f64 / unit), points, exemplars });
                }
            }
            function => {
                reserve(memory, labels_bytes, cells.len(), cells.len())?;
                let points = cells.iter().map(|(at, cell)| (*at, cell.number(function))).collect();
                out.push(MetricSeries { labels: labels.clone(), points, exemplars: of_values(&|_| true) });
            }
        }
    }
    Ok(out)
}

impl TracesEngine {
    /// Gives the numbers of a query over time. Rates are not yet divided by the time. Series have exemplars where spans
    /// are read, and spans are read where exemplars are wanted.
    ///
    /// # Errors
    /// The query has no function of metrics, or one of what has no number; those of the engine.
    pub fn traceql_metric<'a>(
        self: &'a Arc<Self>,
        ctx: &'a QueryContext,
        query: &'a Query,
        window: MetricWindow,
    ) -> BoxFuture<'a, Result<Vec<MetricSeries>, TraceError>> {
        async move {
            let MetricWindow { range, step, exemplars } = window;
            let wrong = |reason: &str| ParamError::new("q", reason);
            let metric =
                query.metric.clone().ok_or_else(|| wrong("a query of metrics ends in a function of metrics"))?;
            if let Some(step) = step {
                check_steps(range, step)?;
            }
            let (choices, name) = (metric.choices.clone(), metric.function.name());
            let needs_trace = metric.is_comparison() || metric.by.iter().chain(counted(&metric)).any(is_of_trace);
            let starts = SpanFilter::Starts(range.0, range.1);
            let counts_all = metric.by.is_empty() && counts_spans(&metric.function);
            let has_zeros = !matches!(metric.function, MetricFunction::Of(..));
            let mut series = match (query.exact_filter().filter(|_| !needs_trace), counted_by(&metric)) {
                (Some(filter), Some(by)) if !exemplars => {
                    self.counts(ctx, &metric, by, starts.and(filter), window).await?
                }
                (filter, _) => {
                    let asked = Arc::new((query.clone(), metric, filter.map(|filter| starts.and(filter))));
                    self.look_up(ctx, asked, move |reader, asked| async move {
                        give_way().await;
                        let (query, metric, filter) = &*asked;
                        let groups = match filter {
                            Some(filter) => reader.cells(metric, filter.clone(), step).await?,
                            None => reader.cells_of_traces(query, metric, range, step).await?,
                        };
                        let memory = reader.collected("series of spans");
                        let series = series_of(metric, &groups, &memory)?;
                        reader.ctx.keep(memory);
                        Ok(series)
                    })
                    .await?
                }
            };
            let by = match step {
                _ if !query.is_rate() => 1.0,
                Some(step) => step as f64 / SECOND_NS,
                None => (range.1.saturating_sub(range.0) as f64 / SECOND_NS).max(1.0),
            };
            if series.is_empty() && counts_all {
                // Without labels there is one series, also where there are no spans.
                let points = vec![(step_start(range.0, step), 0.0)];
                series.push(MetricSeries { points, ..MetricSeries::default() });
            }
            if has_zeros {
                let memory = self.collected("steps without spans", ctx);
                fill_for(&choices, &mut series, window, &memory)?;
                ctx.keep(memory);
            }
            for choice in choices {
                match choice {
                    Choice::Kept(compare, number) => {
                        keep(&mut series, (compare, number), by, step.is_none() || query.leaves_gaps());
                    }
                    Choice::Picked(end, most) => pick(&mut series, end, most),
                }
            }
            // Steps without a value count as 0. A series that has a value for every step, but no number among them, is
            // dropped.
            if let Some((first, last)) = window.steps().filter(|_| !query.leaves_gaps()) {
                let steps = usize::try_from(last.saturating_sub(first)).unwrap_or_default() + 1;
                series.retain(|one| one.points.len() < steps || one.points.iter().any(|(_, value)| !value.is_nan()));
            }
            for one in series.iter_mut().filter(|one| one.labels.is_empty()) {
                one.labels.push(("__name__".to_owned(), FieldValue::text(name)));
            }
            Ok(series)
        }
        .boxed()
    }

    /// Counts spans by a plan.
    async fn counts(
        self: &Arc<Self>,
        ctx: &QueryContext,
        metric: &Metric,
        by: SplitBy,
        filter: SpanFilter,
        MetricWindow { range, step, .. }: MetricWindow,
    ) -> Result<Vec<MetricSeries>, TraceError> {
        let whole = range.1.saturating_sub(range.0).max(1);
        let request = SeriesRequest {
            filter,
            range,
            step: step.unwrap_or(whole),
            holds_ends: true,
            by,
            measure: Measure::Count,
            series_max: None,
        };
        let counts = self.histogram(ctx, request).await?;
        let memory = self.collected("series of spans", ctx);
        let series = series_of_counts(metric, &counts, step.is_some(), &memory)?;
        ctx.keep(memory);
        Ok(series)
    }
}

/// Makes series of what a plan counted; without steps they have one number.
fn series_of_counts(
    metric: &Metric,
    counts: &Histogram,
    has_steps: bool,
    memory: &QueryReservation,
) -> Result<Vec<MetricSeries>, TraceError> {
    let mut out = Vec::new();
    for one in &counts.series {
        let labels_bytes = LABEL_BYTES + metric.by.len() * (LABEL_BYTES + one.name.len());
        reserve(memory, labels_bytes, one.points.len(), 0)?;
        let points: Vec<(i64, f64)> = one.points.iter().map(|(at, count)| (*at, count.as_f64())).collect();
        let sum: f64 = points.iter().map(|p| p.1).sum();
        let points = if has_steps { points } else { vec![(0, sum)] };
        let named = |field: &Field| (field.to_string(), FieldValue::text(one.name.as_str()));
        out.push(MetricSeries { labels: metric.by.iter().map(named).collect(), points, exemplars: Vec::new() });
    }
    Ok(out)
}

impl Reader {
    /// Reads spans into the cells of a metric; without a step there is one of each series.
    async fn cells(&self, metric: &Metric, filter: SpanFilter, step: Option<i64>) -> Result<Groups, TraceError> {
        let mut groups = Groups::new();
        let mut spans: Vec<Span> = Vec::new();
        let by_power = matches!(metric.function, MetricFunction::Quantiles(..) | MetricFunction::Histogram(_));
        self.scan(filter, columns(metric), |batch| {
            spans.clear();
            read_spans(batch, &mut spans)?;
            for span in &spans {
                let value = match counted(metric) {
                    Some(field) => figure_of(span, field),
                    None => Some(0.0),
                };
                let Some(value) = placed(value, by_power) else { continue };
                let labels: Vec<FieldValue> = metric.by.iter().map(|field| label(span, field)).collect();
                let cell = self.cell(&mut groups, labels, step_start(span.start, step))?;
                cell.first.get_or_insert((span.trace_id, span.start, value));
                self.fill(cell, (value, weight(metric, span)), by_power)?;
            }
            Ok(true)
        })
        .await?;
        Ok(groups)
    }

    /// Reads whole traces into the cells of a metric.
    async fn cells_of_traces(
        &self,
        query: &Query,
        metric: &Metric,
        range: (i64, i64),
        step: Option<i64>,
    ) -> Result<Groups, TraceError> {
        let mut groups = Groups::new();
        let mut compared = AttributeCounts::default();
        let by_power = matches!(metric.function, MetricFunction::Quantiles(..) | MetricFunction::Histogram(_));
        let filter = SpanFilter::Starts(range.0, range.1).and(query.wide_filter());
        self.each_trace(filter, |trace| {
            let looked = TraceView::at(trace);
            let Some(found) = query.find_in(&looked) else { return Ok(()) };
            for i in found.spans {
                let span = &trace.spans[i];
                if !(range.0..=range.1).contains(&span.start) {
                    continue;
                }
                let at = step_start(span.start, step);
                if let MetricFunction::Compare(comparison) = &metric.function {
                    compared.add(self, comparison, (&looked, i), (&mut groups, at, weight(metric, span)))?;
                    continue;
                }
                let value = counted(metric).map_or(Some(0.0), |field| looked.figure(field, i));
                let Some(value) = placed(value, by_power) else { continue };
                let label = |field: &Field| looked.field_value(field, i).unwrap_or_else(|| nothing(field));
                let cell = self.cell(&mut groups, metric.by.iter().map(label).collect(), at)?;
                cell.first.get_or_insert((span.trace_id, span.start, value));
                self.fill(cell, (value, weight(metric, span)), by_power)?;
            }
            Ok(())
        })
        .await?;
        Ok(groups)
    }

    /// Hands each trace of which a span passes a filter to a function, as a whole; a few are held at a time.
    async fn each_trace(
        &self,
        filter: SpanFilter,
        mut each: impl FnMut(&Trace) -> Result<(), TraceError> + Send,
    ) -> Result<(), TraceError> {
        let mut known: HashSet<TraceId, FixedState> = HashSet::default();
        self.scan(filter, columns_of(&["trace_id"], &[]), |batch| {
            let ids = Columns(batch).ids("trace_id")?;
            for id in ids.iter().flatten() {
                let id: TraceId = id.try_into().unwrap_or_default();
                if !known.contains(&id) {
                    self.collect(KNOWN_BYTES)?;
                    known.insert(id);
                }
            }
            Ok(true)
        })
        .await?;
        let mut ids: Vec<TraceId> = known.into_iter().collect();
        ids.sort_unstable();
        // A plain `explain` shows how the first of them would be read.
        let planned = ids.is_empty() && self.ctx.is_only_planned();
        for chunk in ids.chunks(TRACES).chain(planned.then_some(&[] as &[TraceId])) {
            let (reports, memory) =
                self.spans(lookup_filter(chunk.to_vec(), (i64::MIN, i64::MAX)), all_columns()).await?;
            assemble_all(reports).iter().try_for_each(&mut each)?;
            drop(memory);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
