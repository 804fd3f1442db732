//! Search by TraceQL or by tags, and numbers over time.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use quiver_traces::traceql::{HitSet, MetricExemplar, MetricSeries, Query, TraceqlHit, TraceqlSearch};
use quiver_traces::{ParamError, TraceError};
use quiver_types::spans::{SpanFilter, hex};
use serde_json::{Map, Value, json};

use super::{failed, window};
use crate::state::AppState;
use crate::traces_api::Call;
use crate::traces_compat::jaeger::condition;

const HOUR_NS: i64 = 3_600_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;
/// Most samples of an answer.
const SAMPLES_MAX: usize = 200_000;
/// Exemplars of an answer unless it says how many.
const EXEMPLARS: usize = 100;
/// What the name of a root is as long as it did not come.
const NO_ROOT: &str = "<root span not yet received>";

/// The window of a search: the last hour, if it is not said.
pub(super) fn range(call: &Call) -> Result<(i64, i64), ParamError> {
    let (start, end) = window(call)?;
    let end = end.unwrap_or(call.now);
    Ok((start.unwrap_or_else(|| end.saturating_sub(HOUR_NS)), end))
}

/// Reads `tags`: pairs `key=value`, values in quotes where they hold blanks.
fn tag_pairs(text: &str) -> Result<Vec<SpanFilter>, ParamError> {
    let wrong = || ParamError::new("tags", "expected pairs key=value");
    let mut rest = text.trim();
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (key, behind) = rest.split_once('=').ok_or_else(wrong)?;
        let (value, after) = match behind.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or_else(wrong)?,
            None => behind.split_once(' ').unwrap_or((behind, "")),
        };
        if key.is_empty() || key.contains(' ') {
            return Err(wrong());
        }
        all.push(condition(key.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(all)
}

pub(super) async fn traces(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let text = call.params.one("q")?;
        let query = Query::parse(text.unwrap_or("{}"))?;
        if query.is_metric() {
            return Err(ParamError::new("q", "functions of metrics belong to /api/metrics").into());
        }
        let mut conditions = match call.params.one("tags")? {
            Some(tags) => tag_pairs(tags)?,
            None => Vec::new(),
        };
        let (min, max) = (call.params.go_duration("minDuration")?, call.params.go_duration("maxDuration")?);
        if min.is_some() || max.is_some() {
            conditions.push(SpanFilter::Duration(min.unwrap_or(0), max.unwrap_or(i64::MAX)));
        }
        let wanted = TraceqlSearch {
            query: Arc::new(query),
            range: range(&call)?,
            conditions,
            limit: call.params.number("limit", 1..=1500)?.unwrap_or(20) as usize,
            spans: call.params.number("spss", 0..=1000)?.unwrap_or(3) as usize,
        };
        let hits = call.state.traces.traceql(&call.ctx, &wanted, call.now).await?;
        let rows: Vec<Value> = hits.iter().map(|hit| row(hit, text.is_some())).collect();
        call.json(&json!({"traces": rows, "metrics": {}}))
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

/// A trace of the answer; a search by tags tells no spans.
fn row(hit: &TraceqlHit, with_spans: bool) -> Value {
    let s = &hit.summary;
    let mut out = json!({
        "traceID": hex(&s.id),
        "rootServiceName": if s.root_missing { NO_ROOT } else { &s.root_service },
        "rootTraceName": if s.root_missing { "" } else { &s.root_name },
        "startTimeUnixNano": s.start.to_string(),
        "durationMs": s.duration() / 1_000_000,
    });
    if with_spans {
        let sets: Vec<Value> = hit.sets.iter().map(span_set).collect();
        out["spanSet"] = sets.first().cloned().unwrap_or_default();
        out["spanSets"] = sets.into();
        let mut services = Map::new();
        for service in &s.services {
            let mut counts = json!({"spanCount": service.spans});
            if service.errors > 0 {
                counts["errorCount"] = service.errors.into();
            }
            services.insert(service.name.clone(), counts);
        }
        out["serviceStats"] = services.into();
    }
    out
}

fn span_set(set: &HitSet) -> Value {
    let pair = |(key, value): &(String, Value)| json!({"key": key, "value": value});
    let spans: Vec<Value> = (set.spans.iter())
        .map(|span| {
            let mut out = json!({
                "spanID": hex(&span.id), "startTimeUnixNano": span.start.to_string(),
                "durationNanos": span.duration.to_string(),
            });
            if let Some(name) = &span.name {
                out["name"] = name.as_str().into();
            }
            if !span.attributes.is_empty() {
                out["attributes"] = span.attributes.iter().map(pair).collect();
            }
            out
        })
        .collect();
    let mut out = json!({"spans": spans, "matched": set.matched});
    if !set.attributes.is_empty() {
        let pair = |(key, value): &(Arc<str>, Value)| json!({"key": &**key, "value": value});
        out["attributes"] = set.attributes.iter().map(pair).collect();
    }
    out
}

/// The window of numbers: its ends in any unit, or `since` when there is none; the last hour, if nothing is said.
fn metric_range(call: &Call) -> Result<(i64, i64), ParamError> {
    let time = |name: &str| Ok::<_, ParamError>(call.params.time(name, call.now)?.filter(|t| *t > 0));
    let (start, end) = (time("start")?, time("end")?.unwrap_or(call.now));
    let since = call.params.go_duration("since")?.unwrap_or(HOUR_NS);
    let start = start.unwrap_or_else(|| end.saturating_sub(since));
    if start > end { Err(ParamError::new("start", "is after 'end'")) } else { Ok((start, end)) }
}

/// Reads a query of metrics with its window.
fn metric(call: &Call) -> Result<(Query, (i64, i64)), TraceError> {
    // Tempo takes the name of Prometheus as well; `q` wins.
    let text = match call.params.one("q")? {
        Some(text) => text,
        None => call.params.one("query")?.ok_or_else(|| ParamError::new("q", "is missing"))?,
    };
    let query = Query::parse(text)?;
    if !query.is_metric() {
        return Err(ParamError::new("q", "a query of metrics ends in a function of metrics").into());
    }
    Ok((query, metric_range(call)?))
}

/// The labels of a series.
fn labels(series: &MetricSeries) -> Value {
    series.labels.iter().map(|(key, value)| json!({"key": key, "value": value})).collect()
}

/// Reads how many exemplars are wanted; none where nothing says it.
fn exemplars(call: &Call, query: &Query) -> Result<Option<usize>, ParamError> {
    let asked = call.params.number("exemplars", 0..=10_000)?.map(|n| n as usize);
    Ok(query.exemplars().or(asked))
}

/// A span that a sample is made of.
fn exemplar(series: &MetricSeries, one: &MetricExemplar, sample: Option<f64>) -> Value {
    let mut labels = vec![json!({"key": "trace:id", "value": {"stringValue": hex(&one.trace)}})];
    let own = series.labels.iter().filter(|(key, _)| !key.starts_with("__") && key != "p");
    labels.extend(own.map(|(key, value)| json!({"key": key, "value": value})));
    let value = one.value.or(sample).unwrap_or_default();
    json!({"labels": labels, "value": value, "timestampMs": one.start.div_euclid(1_000_000).to_string()})
}

/// Reads the step, in seconds or with a unit.
fn step(call: &Call, range: (i64, i64)) -> Result<i64, ParamError> {
    let Some(text) = call.params.one("step")? else {
        return Ok((quiver_traces::lists::histogram::default_step(range) / SECOND_NS).max(1) * SECOND_NS);
    };
    let seconds = text.parse::<f64>().ok().map(|s| (s * SECOND_NS as f64) as i64);
    let nanos = seconds.or_else(|| quiver_traces::params::duration(text)).filter(|n| *n > 0);
    nanos.ok_or_else(|| ParamError::new("step", format!("`{text}` is no duration")))
}

pub(super) async fn metrics(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let (query, range) = metric(&call)?;
        let step = step(&call, range)?;
        let wanted = exemplars(&call, &query)?;
        let asked = wanted.is_some_and(|n| n > 0);
        let all = call.state.traces.traceql_metric(&call.ctx, &query, range, Some(step), asked).await?;
        let by = if query.is_rate() { step as f64 / SECOND_NS as f64 } else { 1.0 };
        let (first, last) = (range.0.div_euclid(step), range.1.div_euclid(step));
        if (last - first + 1) as usize * all.len() > SAMPLES_MAX {
            return Err(ParamError::new("step", format!("gives more than {SAMPLES_MAX} samples")).into());
        }
        let none = (!query.leaves_gaps()).then_some(0.0);
        let mut left = wanted.unwrap_or(EXEMPLARS);
        let series: Vec<Value> = (all.iter())
            .map(|one| {
                let known: BTreeMap<i64, f64> = one.points.iter().copied().collect();
                // A sample tells of the step that ends there.
                let samples: Vec<Value> = (first..=last)
                    .filter_map(|at| {
                        let value = known.get(&(at * step)).copied().or(none)? / by;
                        Some(json!({"timestampMs": ((at + 1) * step / 1_000_000).to_string(), "value": value}))
                    })
                    .collect();
                let mut out = json!({"labels": labels(one), "samples": samples});
                let shown = one.exemplars.iter().take(left);
                let shown: Vec<Value> = shown.map(|e| exemplar(one, e, known.get(&e.at).map(|v| v / by))).collect();
                left -= shown.len();
                if !shown.is_empty() {
                    out["exemplars"] = shown.into();
                }
                out
            })
            .collect();
        call.json(&json!({"series": series, "metrics": {}}))
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

/// One number for the whole window.
pub(super) async fn metrics_at_once(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let (query, range) = metric(&call)?;
        let length = range.1.saturating_sub(range.0).max(SECOND_NS);
        let all = call.state.traces.traceql_metric(&call.ctx, &query, range, None, false).await?;
        let by = if query.is_rate() { length as f64 / SECOND_NS as f64 } else { 1.0 };
        let series: Vec<Value> = (all.iter())
            .filter_map(|one| Some(json!({"labels": labels(one), "value": one.points.first()?.1 / by})))
            .collect();
        call.json(&json!({"series": series, "metrics": {}}))
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}
