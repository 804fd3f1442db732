//! Searches by TraceQL or by tags, and TraceQL metrics.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use quiver_traces::traceql::{Figures, HitSet, MetricWindow, Query, TraceqlHit, TraceqlSearch};
use quiver_traces::{ParamError, TraceError};
use quiver_types::spans::hex;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::by_tags::TagSearch;
use super::metrics_json::{Numbers, Once, SeriesJson, Steps};
use super::params::{disordered, limit, whole, window};
use super::{failed, messages, wants_protobuf};
use crate::state::AppState;
use crate::traces_api::Call;

const HOUR_NS: i64 = 3_600_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;
/// Most samples of a response.
const SAMPLES_MAX: usize = 200_000;
/// Default number of exemplars.
const EXEMPLARS: usize = 100;
/// The root name of a trace whose root span has not arrived.
const NO_ROOT: &str = "<root span not yet received>";

/// The time range of a search: by default the last hour.
pub(super) fn range(call: &Call) -> Result<(i64, i64), ParamError> {
    let (start, end) = window(call)?;
    let end = end.unwrap_or(call.now);
    Ok((start.unwrap_or_else(|| end.saturating_sub(HOUR_NS)), end))
}

pub(super) async fn traces(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let as_message = wants_protobuf(request.headers());
        let call = Call::of(state, request).await?;
        let text = call.params.one("q")?;
        let asked = TagSearch::of(&call, text.is_some())?;
        let query = match text {
            Some(text) => Query::parse(text)?,
            None => Query::parse(&asked.query())?,
        };
        if query.is_metric() {
            return Err(ParamError::new("q", "functions of metrics belong to /api/metrics").into());
        }
        let mut conditions = asked.spans;
        conditions.extend(call.segments()?);
        let range = range(&call)?;
        if range.0 == range.1 {
            return Err(disordered(range.0 / SECOND_NS, range.1 / SECOND_NS).into());
        }
        let wanted = TraceqlSearch {
            query: Arc::new(query),
            range,
            conditions,
            limit: limit(&call, 1500)?.unwrap_or(20),
            // 0 means the default, as in Tempo.
            spans: whole(&call, "spss", 1000)?.filter(|n| *n > 0).unwrap_or(3) as usize,
        };
        let hits = call.state.engines.traces.traceql(&call.ctx, &wanted, call.now).await?;
        if as_message {
            let rows = hits.iter().map(|hit| row(hit, text.is_some()));
            return messages::of_values(&call, &messages::TRACE, rows);
        }
        let traces = hits.iter().map(|hit| Row { hit, with_spans: text.is_some() }).collect();
        call.json(&SearchResponse { metrics: Map::new(), traces })
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

/// The response to a search. Rows are converted to JSON values one by one, as those take many times their size.
#[derive(Serialize)]
struct SearchResponse<'a> {
    metrics: Map<String, Value>,
    traces: Vec<Row<'a>>,
}

struct Row<'a> {
    hit: &'a TraceqlHit,
    with_spans: bool,
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        row(self.hit, self.with_spans).serialize(to)
    }
}

/// A trace of the response; a search by tags has no spans.
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

/// The time range of metrics: start and end in any unit, or `since`; by default the last hour.
fn metric_range(call: &Call) -> Result<(i64, i64), ParamError> {
    let time = |name: &str| Ok::<_, ParamError>(call.params.time(name, call.now)?.filter(|t| *t > 0));
    let (start, end) = (time("start")?, time("end")?.unwrap_or(call.now));
    let since = call.params.go_duration("since")?.unwrap_or(HOUR_NS);
    let start = start.unwrap_or_else(|| end.saturating_sub(since));
    if start > end { Err(ParamError::new("start", "is after 'end'")) } else { Ok((start, end)) }
}

/// Parses a metrics query and its time range.
fn metric(call: &Call) -> Result<(Figures, (i64, i64)), TraceError> {
    // Tempo accepts Prometheus's parameter name, too; `q` takes precedence.
    let text = match call.params.one("q")? {
        Some(text) => text,
        None => call.params.one("query")?.ok_or_else(|| ParamError::new("q", "is missing"))?,
    };
    // Refused, since ignoring it would return more than was asked for.
    if call.params.has("maxSeries") {
        return Err(ParamError::new("maxSeries", "is not supported: write `| topk(n)`").into());
    }
    let query = Figures::parse(text)?;
    if !query.is_metric() {
        return Err(ParamError::new("q", "a query of metrics ends in a function of metrics").into());
    }
    Ok((query, metric_range(call)?))
}

/// Parses the number of exemplars; `None` if nothing states it.
fn exemplars(call: &Call, query: &Figures) -> Result<Option<usize>, ParamError> {
    let asked = call.params.number("exemplars", 0..=10_000)?.map(|n| n as usize);
    Ok(query.exemplars().or(asked))
}

/// Parses the step, in seconds or with a unit.
fn step(call: &Call, range: (i64, i64)) -> Result<i64, ParamError> {
    let Some(text) = call.params.one("step")? else {
        return Ok((quiver_traces::lists::histogram::default_step(range) / SECOND_NS).max(1) * SECOND_NS);
    };
    let seconds = text.parse::<f64>().ok().map(|s| (s * SECOND_NS as f64) as i64);
    let nanos = seconds.or_else(|| quiver_types::time::duration::parse_nanos(text)).filter(|n| *n > 0);
    nanos.ok_or_else(|| ParamError::new("step", format!("`{text}` is no duration")))
}

pub(super) async fn metrics(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let as_message = wants_protobuf(request.headers());
        let call = Call::of(state, request).await?;
        let (query, range) = metric(&call)?;
        let step = step(&call, range)?;
        let wanted = exemplars(&call, &query)?;
        let window = MetricWindow { range, step: Some(step), exemplars: wanted.is_some_and(|n| n > 0) };
        let all = call.state.engines.traces.traceql_figures(&call.ctx, &query, window).await?;
        let by = if query.is_rate() { step as f64 / SECOND_NS as f64 } else { 1.0 };
        let (first, last) = (range.0.div_euclid(step), range.1.div_euclid(step));
        if (last - first + 1) as usize * all.len() > SAMPLES_MAX {
            return Err(ParamError::new("step", format!("gives more than {SAMPLES_MAX} samples")).into());
        }
        let none = (!query.leaves_gaps()).then_some(0.0);
        let steps = Steps { first, last, step, by, none };
        let mut left = wanted.unwrap_or(EXEMPLARS);
        let shown = |one| {
            let series = SeriesJson::of(one, left, steps);
            left -= series.exemplars();
            series
        };
        if as_message {
            let memory = call.state.engines.query.collected("message", &call.ctx);
            return messages::answer(&call, all.iter().map(shown), |out, series: SeriesJson<'_>| {
                // The samples of the longest series, and its encoded message.
                memory.add(2 * series.samples_bytes().saturating_sub(out.capacity()))?;
                series.put(out);
                Ok(())
            });
        }
        call.json(&Numbers::of(all.iter().map(shown).collect()))
    };
    Box::pin(run).await.unwrap_or_else(|e: TraceError| failed(&e))
}

/// One value for the whole time range.
pub(super) async fn metrics_at_once(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let as_message = wants_protobuf(request.headers());
        let call = Call::of(state, request).await?;
        let (query, range) = metric(&call)?;
        let length = range.1.saturating_sub(range.0).max(SECOND_NS);
        let window = MetricWindow { range, step: None, exemplars: false };
        let all = call.state.engines.traces.traceql_figures(&call.ctx, &query, window).await?;
        let by = if query.is_rate() { length as f64 / SECOND_NS as f64 } else { 1.0 };
        let shown = all.iter().filter_map(|one| Once::of(one, by));
        if as_message {
            return messages::answer(&call, shown, |out, series: Once<'_>| {
                series.put(out);
                Ok(())
            });
        }
        call.json(&Numbers::of(shown.collect()))
    };
    Box::pin(run).await.unwrap_or_else(|e: TraceError| failed(&e))
}

#[cfg(test)]
mod tests {
    use quiver_traces::traceql::HitSpan;

    use super::*;

    #[test]
    fn sets_of_spans_show_what_the_query_names() {
        let mut span = HitSpan { id: [0xab; 8], name: None, start: 10, duration: 20, attributes: Vec::new() };
        let bare = json!({"spanID": "abababababababab", "startTimeUnixNano": "10", "durationNanos": "20"});
        let set = |spans: Vec<HitSpan>, attributes| span_set(&HitSet { matched: 5, spans, attributes });
        assert_eq!(set(Vec::new(), Vec::new()), json!({"spans": [], "matched": 5}));
        assert_eq!(set(vec![span.clone()], Vec::new()), json!({"spans": [bare], "matched": 5}));
        span.name = Some("GET".to_owned());
        span.attributes = vec![("http.status_code".to_owned(), json!({"intValue": "500"}))];
        let whole = json!({
            "spanID": "abababababababab", "startTimeUnixNano": "10", "durationNanos": "20", "name": "GET",
            "attributes": [{"key": "http.status_code", "value": {"intValue": "500"}}],
        });
        let attributes = vec![(Arc::from("count()"), json!({"intValue": "5"}))];
        let expected = json!({
            "spans": [whole], "matched": 5, "attributes": [{"key": "count()", "value": {"intValue": "5"}}],
        });
        assert_eq!(set(vec![span], attributes), expected);
    }

    #[test]
    fn sets_of_spans_keep_their_order_and_count() {
        let spans =
            (0..3).map(|n| HitSpan { id: [n; 8], name: None, start: i64::MIN, duration: 0, attributes: vec![] });
        let shown = span_set(&HitSet { matched: usize::MAX, spans: spans.collect(), attributes: Vec::new() });
        assert_eq!(shown["matched"], json!(u64::MAX));
        assert_eq!(shown["spans"][2]["spanID"], "0202020202020202");
        assert_eq!(shown["spans"][0]["startTimeUnixNano"], i64::MIN.to_string());
        assert_eq!(shown["spans"].as_array().map(Vec::len), Some(3));
    }
}
