//! Searches by TraceQL or by tags, and TraceQL metrics.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use quiver_traces::traceql::{Figures, MetricWindow, Query, TraceqlSearch};
use quiver_traces::{ParamError, TraceError};

use super::by_tags::TagSearch;
use super::messages::{self, AnswerForm};
use super::metrics_json::{SeriesJson, SingleValue, Steps, cut, with_exemplars, write_at_once, write_range};
use super::params::{disordered, limit, text_error, whole, window};
use super::{answered, hits};
use crate::state::AppState;
use crate::traces_api::Call;
use crate::traces_params::TraceParams;

const HOUR_NS: i64 = 3_600_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;
/// Most samples of a response.
const SAMPLES_MAX: usize = 1_000_000;
/// Default number of exemplars.
const EXEMPLARS: usize = 100;
const MINUTE_NS: i64 = 60 * SECOND_NS;
/// How many samples the default step gives, unless it is rounded.
const STEPS: i64 = 240;
/// Lengths of which the default step is a multiple: of time ranges from a minute on, and of shorter ones.
const GRANULARITIES_NS: [i64; 6] = [HOUR_NS, 5 * MINUTE_NS, MINUTE_NS, 15 * SECOND_NS, 5 * SECOND_NS, SECOND_NS];
const FINEST_NS: i64 = SECOND_NS / 20;
/// The parameter that asks for one sample of the whole range.
const INSTANT: &str = "instant";

/// The time range of a search: by default the last hour.
pub(super) fn range(call: &Call) -> Result<(i64, i64), ParamError> {
    let (start, end) = window(call)?;
    let end = end.unwrap_or(call.now);
    Ok((start.unwrap_or_else(|| end.saturating_sub(HOUR_NS)), end))
}

pub(super) async fn traces_over_http(State(state): State<Arc<AppState>>, request: Request) -> Response {
    answered(state, request, traces).await
}

/// Searches traces.
pub(super) async fn traces(call: Call, form: AnswerForm) -> Result<Response, TraceError> {
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
    let found = call.state.engines.traces.traceql(&call.ctx, &wanted, call.now).await?;
    // A search by tags shows no spans.
    let with_spans = text.is_some();
    if form != AnswerForm::Json {
        return messages::answer(&call, form, &found, |out, hit| {
            hits::put(hit, with_spans, out);
            Ok(())
        });
    }
    let spans: usize = found.iter().flat_map(|hit| &hit.sets).map(|set| set.spans.len()).sum();
    call.written(spans + found.len(), move |w| {
        w.object(|w| {
            w.key("metrics").object(|_| ());
            w.key("traces").array(|w| {
                for hit in &found {
                    if w.is_closed() {
                        return;
                    }
                    hits::write(hit, with_spans, w);
                }
            });
        });
    })
}

/// The time range of metrics: start and end in any unit, or `since`; by default the last hour.
fn metric_range(call: &Call) -> Result<(i64, i64), ParamError> {
    let time = |name: &str| Ok::<_, ParamError>(call.params.time(name, call.now)?.filter(|t| *t > 0));
    let (start, end) = (time("start")?, time("end")?.unwrap_or(call.now));
    let since = call.params.one("since")?.map_or(Ok(HOUR_NS), length)?;
    let start = start.unwrap_or_else(|| begin_of(end, since, call.now));
    if start > end { Err(ParamError::new("start", "is after 'end'")) } else { Ok((start, end)) }
}

/// Parses the length of a range: a duration of Prometheus, which has days and weeks.
fn length(text: &str) -> Result<i64, ParamError> {
    let has_unit = text == "0" || text.ends_with(char::is_alphabetic);
    let nanos = quiver_types::time::duration::parse_nanos(text).filter(|_| has_unit);
    nanos.ok_or_else(|| text_error(format!("could not parse 'since' parameter: not a valid duration string: {text:?}")))
}

/// The begin of a range of this length: an end that is still to come counts as now, as in Tempo (`determineBounds`).
fn begin_of(end: i64, length: i64, now: i64) -> i64 {
    end.min(now).saturating_sub(length)
}

/// Parses a metrics query and its time range.
fn metric(call: &Call) -> Result<(Figures, (i64, i64)), TraceError> {
    // Tempo accepts Prometheus's parameter name, too; `q` takes precedence.
    let text = match call.params.one("q")? {
        Some(text) => text,
        None => call.params.one("query")?.ok_or_else(|| ParamError::new("q", "is missing"))?,
    };
    let query = Figures::parse(text)?;
    if !query.is_metric() {
        return Err(ParamError::new("q", "a query of metrics ends in a function of metrics").into());
    }
    Ok((query, metric_range(call)?))
}

/// Parses the number of series; 0 is any.
fn series_max(call: &Call) -> Result<usize, ParamError> {
    let asked = call.params.number("maxSeries", 0..=u64::from(u32::MAX))?.filter(|n| *n > 0);
    Ok(asked.map_or(usize::MAX, |n| n as usize))
}

/// Parses the number of exemplars; `None` if nothing states it.
fn exemplars(call: &Call, query: &Figures) -> Result<Option<usize>, ParamError> {
    let asked = call.params.number("exemplars", 0..=10_000)?.map(|n| n as usize);
    Ok(query.exemplars().or(asked))
}

/// Says whether one sample of the whole range is asked for; what is no truth value asks for nothing, as in Tempo.
fn is_instant(params: &TraceParams) -> Result<bool, ParamError> {
    Ok(matches!(params.one(INSTANT)?, Some("1" | "t" | "T" | "true" | "True" | "TRUE")))
}

/// Parses the step, in seconds or with a unit.
fn step(call: &Call, range: (i64, i64)) -> Result<i64, ParamError> {
    let Some(text) = call.params.one("step")? else { return Ok(default_step(range)) };
    let seconds = text.parse::<f64>().ok().map(|s| (s * SECOND_NS as f64) as i64);
    let nanos = seconds.or_else(|| quiver_types::time::duration::parse_nanos(text)).filter(|n| *n > 0);
    nanos.ok_or_else(|| ParamError::new("step", format!("`{text}` is no duration")))
}

/// The step of a time range without one: that of Tempo (`DefaultQueryRangeStep`), which gives 240 samples or some more.
fn default_step(range: (i64, i64)) -> i64 {
    let length = range.1.saturating_sub(range.0);
    let wanted = length / STEPS;
    if length < MINUTE_NS {
        return (wanted / FINEST_NS * FINEST_NS).max(FINEST_NS);
    }
    let fitting = GRANULARITIES_NS.into_iter().find(|granularity| wanted > *granularity);
    fitting.map_or(SECOND_NS, |granularity| wanted / granularity * granularity)
}

pub(super) async fn metrics_over_http(State(state): State<Arc<AppState>>, request: Request) -> Response {
    answered(state, request, metrics).await
}

/// Values for each step of the time range, or one for all of it.
pub(super) async fn metrics(call: Call, form: AnswerForm) -> Result<Response, TraceError> {
    let (query, range) = metric(&call)?;
    let step = step(&call, range)?;
    let (wanted, series_max) = (exemplars(&call, &query)?, series_max(&call)?);
    let instant = is_instant(&call.params)?;
    let window = if instant {
        MetricWindow::whole(range)
    } else {
        MetricWindow::of_steps(range, step, wanted.is_some_and(|n| n > 0)).begun_by(call.now)
    };
    let mut all = call.state.engines.traces.traceql_figures(&call.ctx, &query, window).await?;
    if instant {
        all.retain(|one| one.points.first().is_some_and(|(_, value)| !value.is_nan()));
    }
    let missing = cut(&mut all, series_max);
    let seconds = if instant { whole_seconds(range) } else { step as f64 / SECOND_NS as f64 };
    let by = if query.is_rate() { seconds } else { 1.0 };
    let (first, last) = window.steps().unwrap_or_default();
    let samples = usize::try_from(last - first).unwrap_or(usize::MAX).saturating_add(1).saturating_mul(all.len());
    if samples > SAMPLES_MAX {
        return Err(ParamError::new("step", format!("gives more than {SAMPLES_MAX} samples")).into());
    }
    let steps = if instant {
        Steps::whole(range.1, by)
    } else {
        Steps { first, last, step, by, none: (!query.leaves_gaps()).then_some(0.0) }
    };
    let exemplars = if instant { 0 } else { wanted.unwrap_or(EXEMPLARS) };
    if form != AnswerForm::Json {
        let memory = call.state.engines.query.collected("message", &call.ctx);
        let shown = with_exemplars(&all, exemplars, steps);
        return messages::answer_of(&call, form, shown, missing.as_deref(), |out, series: SeriesJson<'_>| {
            // The samples of the longest series, and its encoded message.
            memory.add(2 * series.samples_bytes().saturating_sub(out.capacity()))?;
            series.put(out);
            Ok(())
        });
    }
    call.written(samples, move |w| write_range(&all, missing.as_deref(), (exemplars, steps), w))
}

/// The length of a range by which rates over all of it are divided.
fn whole_seconds(range: (i64, i64)) -> f64 {
    range.1.saturating_sub(range.0).max(SECOND_NS) as f64 / SECOND_NS as f64
}

pub(super) async fn metrics_at_once_over_http(State(state): State<Arc<AppState>>, request: Request) -> Response {
    answered(state, request, metrics_at_once).await
}

/// One value for the whole time range.
pub(super) async fn metrics_at_once(call: Call, form: AnswerForm) -> Result<Response, TraceError> {
    let (query, range) = metric(&call)?;
    let series_max = series_max(&call)?;
    let window = MetricWindow::whole(range);
    let mut all = call.state.engines.traces.traceql_figures(&call.ctx, &query, window).await?;
    let missing = cut(&mut all, series_max);
    let by = if query.is_rate() { whole_seconds(range) } else { 1.0 };
    if form != AnswerForm::Json {
        let shown = all.iter().filter_map(|one| SingleValue::of(one, by));
        return messages::answer_of(&call, form, shown, missing.as_deref(), |out, series: SingleValue<'_>| {
            series.put(out);
            Ok(())
        });
    }
    call.written(all.len(), move |w| write_at_once(&all, missing.as_deref(), by, w))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would fail if days were refused, which Tempo takes here, or a number without a unit counted as nanoseconds.
    #[test]
    fn lengths_are_durations_of_prometheus() {
        for (text, expected) in [
            ("1d", Some(24 * HOUR_NS)),
            ("2w", Some(14 * 24 * HOUR_NS)),
            ("1h30m", Some(90 * MINUTE_NS)),
            ("0", Some(0)),
            ("5", None),
            ("-1h", None),
            ("x", None),
        ] {
            assert_eq!(length(text).ok(), expected, "{text}");
        }
        let told = length("5").unwrap_err();
        assert_eq!(told.reason, "could not parse 'since' parameter: not a valid duration string: \"5\"");
    }

    /// Would fail if a word that Go does not take for true asked for an instant, or were refused.
    #[test]
    fn instants_are_asked_for_in_the_words_of_go() {
        for (text, expected) in
            [("", false), ("instant=", false), ("instant=1", true), ("instant=TRUE", true), ("instant=0", false)]
        {
            let params = TraceParams::of_query(Some(text)).expect("parameters");
            assert_eq!(is_instant(&params).ok(), Some(expected), "{text}");
        }
        let odd = TraceParams::of_query(Some("instant=yes")).expect("parameters");
        assert_eq!(is_instant(&odd).ok(), Some(false));
    }

    #[test]
    fn ranges_without_a_begin_end_by_now() {
        for (end, length, now, expected) in
            [(100, 30, 100, 70), (100, 30, 200, 70), (500, 30, 200, 170), (0, i64::MAX, 9, -i64::MAX)]
        {
            assert_eq!(begin_of(end, length, now), expected, "{end} {length} {now}");
        }
    }

    #[test]
    fn the_default_step_is_that_of_tempo() {
        let of = |length: i64| default_step((7, 7 + length));
        let millis = |n: i64| n * 1_000_000;
        for (length, expected) in [
            (0, millis(50)),
            (12 * SECOND_NS, millis(50)),
            (59 * SECOND_NS, millis(200)),
            (MINUTE_NS, SECOND_NS),
            (5 * MINUTE_NS, SECOND_NS),
            // 15 seconds are no more than the granularity of 15.
            (HOUR_NS, 15 * SECOND_NS),
            (3 * HOUR_NS, 45 * SECOND_NS),
            (24 * HOUR_NS, 5 * MINUTE_NS),
            (7 * 24 * HOUR_NS, 40 * MINUTE_NS),
        ] {
            assert_eq!(of(length), expected, "{length}");
        }
        assert_eq!(default_step((i64::MIN, i64::MAX)) % HOUR_NS, 0);
    }
}
