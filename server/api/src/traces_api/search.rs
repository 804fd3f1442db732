//! Reads the parameters of a search, and of the calls that take its filter (`traces-api` 3.1).

use quiver_traces::condition::filter_of;
use quiver_traces::traceql::Query;
use quiver_traces::{Cursor, ParamError, Search, Sort, TraceError, of_environment, of_instance};
use quiver_types::condition::{Condition, ConditionError};
use quiver_types::spans::{AttributeTest, STATUS_ERROR, SpanFilter, TextTest, parse_hex};
use quiver_types::text::EXACT_INTEGERS_MAX;

use crate::traces_params::{TraceParams, kind, place};

/// The default window, in nanoseconds.
const HOUR: i64 = 3_600_000_000_000;

/// Reads a search.
///
/// # Errors
/// A parameter is wrong, or the cursor is of another search.
pub(super) fn search(params: &TraceParams, now: i64) -> Result<Search, TraceError> {
    const MOST: u64 = EXACT_INTEGERS_MAX;
    let mut ids = Vec::new();
    for text in params.all("ids").flat_map(|list| list.split(',')).map(str::trim).filter(|t| !t.is_empty()) {
        let id = parse_hex::<16>(text).filter(|id| *id != [0; 16]);
        ids.push(id.ok_or_else(|| ParamError::new("ids", format!("`{text}` is no trace id")))?);
    }
    if ids.len() > 100 {
        return Err(ParamError::new("ids", "more than 100 traces").into());
    }
    let mut search = Search::new(params.range(now, HOUR)?);
    if !ids.is_empty() && !params.has("from") && !params.has("to") {
        search.range = (i64::MIN, i64::MAX);
    }
    search.ids = ids;
    search.conditions = conditions(params)?;
    add_traceql(&mut search, params)?;
    search.any_span = params.word("spans", &["one", "any"])? == Some("any");
    if params.word("durationOf", &["span", "trace"])? == Some("trace") {
        search.duration = durations(params)?;
    }
    if params.word("errorOf", &["span", "trace"])? == Some("trace") {
        search.error = params.switch("error")?;
    }
    search.spans.0 = params.number("minSpans", 0..=MOST)?.unwrap_or(0);
    search.spans.1 = params.number("maxSpans", 0..=MOST)?.unwrap_or(u64::MAX);
    search.services_min = params.number("minServices", 0..=MOST)?.unwrap_or(0);
    let words = ["-start", "start", "-duration", "duration", "-spans", "spans", "-errors", "errors"];
    let sort = params.word("sort", &words)?.unwrap_or("-start");
    search.descending = sort.starts_with('-');
    search.sort = match sort.trim_start_matches('-') {
        "duration" => Sort::Duration,
        "spans" => Sort::Spans,
        "errors" => Sort::Errors,
        _ => Sort::Start,
    };
    search.limit = params.number("limit", 1..=1000)?.unwrap_or(20) as usize;
    if let Some(text) = params.one("cursor")? {
        let cursor =
            Cursor::parse(text).ok_or_else(|| ParamError::new("cursor", "is not the `nextCursor` of an answer"))?;
        search.go_on(cursor, params.has("from") && params.has("to"))?;
    }
    Ok(search)
}

/// Reads the filter of a search alone, for calls that list and count spans, and whose `limit` and `sort` are their own.
///
/// # Errors
/// A parameter is wrong, or asks something of whole traces.
pub(super) fn filter_alone(params: &TraceParams, now: i64) -> Result<Search, TraceError> {
    for name in ["durationOf", "errorOf"] {
        params.word(name, &["span"])?;
    }
    let mut search = Search::new(params.range(now, HOUR)?);
    search.conditions = conditions(params)?;
    Ok(search)
}

/// Adds the condition of `q`, for calls where it is none on names.
///
/// # Errors
/// It is no TraceQL, or asks something of more than single spans.
pub(super) fn add_traceql(search: &mut Search, params: &TraceParams) -> Result<(), ParamError> {
    if let Some(text) = params.one("q")? {
        search.conditions.push(of_traceql(text)?);
    }
    Ok(())
}

/// Reads the conditions on spans that all calls with a search filter share.
fn conditions(params: &TraceParams) -> Result<Vec<SpanFilter>, ParamError> {
    let mut all = Vec::new();
    all.extend(any_text(params.all("service"), SpanFilter::Service));
    all.extend(any_text(params.all("operation"), SpanFilter::Name));
    all.extend(any_text(params.all("instance"), |t| of_instance(&t)));
    all.extend(any_text(params.all("env"), |t| of_environment(&t)));
    let kinds = params.all("kind").map(|k| kind("kind", k)).collect::<Result<Vec<u8>, _>>()?;
    if !kinds.is_empty() {
        all.push(SpanFilter::Kinds(kinds));
    }
    for text in params.all("tag") {
        all.push(tag("tag", text)?);
    }
    if let Some(text) = params.one("filter")? {
        all.push(condition("filter", text)?);
    }
    let of_trace = params.word("durationOf", &["span", "trace"])? == Some("trace");
    if !of_trace && (params.has("minDuration") || params.has("maxDuration")) {
        let (min, max) = durations(params)?;
        all.push(SpanFilter::Duration(min, max));
    }
    if params.word("errorOf", &["span", "trace"])? != Some("trace")
        && let Some(error) = params.switch("error")?
    {
        let failed = SpanFilter::Status(STATUS_ERROR);
        all.push(if error { failed } else { SpanFilter::Not(Box::new(failed)) });
    }
    match params.switch("root")? {
        Some(true) => all.push(SpanFilter::Root),
        Some(false) => all.push(SpanFilter::Not(Box::new(SpanFilter::Root))),
        None => {}
    }
    Ok(all)
}

/// Reads TraceQL, as far as one span alone tells whether it matches.
fn of_traceql(text: &str) -> Result<SpanFilter, ParamError> {
    let query = Query::parse(text).map_err(|e| ParamError::new("q", e.to_string()))?;
    let whole = "structure, aggregates and conditions on the trace are supported by `/tempo/api/search` only";
    let filter = if query.is_metric() { None } else { query.exact_filter() };
    filter.ok_or_else(|| ParamError::new("q", whole))
}

fn durations(params: &TraceParams) -> Result<(i64, i64), ParamError> {
    let (min, max) =
        (params.duration("minDuration")?.unwrap_or(0), params.duration("maxDuration")?.unwrap_or(i64::MAX));
    if min > max { Err(ParamError::new("minDuration", "is above `maxDuration`")) } else { Ok((min, max)) }
}

/// Reads the condition that a parameter has.
///
/// # Errors
/// Not a condition, or one that scans of spans do not know.
pub(super) fn condition(name: &str, text: &str) -> Result<SpanFilter, ParamError> {
    let wrong = |reason: String| ParamError::new(name, reason);
    let value: serde_json::Value = serde_json::from_str(text).map_err(|e| wrong(format!("not JSON: {e}")))?;
    let condition = Condition::parse(&value).map_err(|all| wrong(all.first().map(told).unwrap_or_default()))?;
    filter_of(&condition).map_err(|e| wrong(e.message))
}

/// Says what is wrong, and where in the condition.
fn told(error: &ConditionError) -> String {
    match error.pointer.as_str() {
        "" => format!("a condition {}", error.message),
        at => format!("`{at}`: {}", error.message),
    }
}

/// Reads a tag: `key:value`, `key` (there is one), `!key:value`.
///
/// # Errors
/// No key stands there.
fn tag(name: &str, text: &str) -> Result<SpanFilter, ParamError> {
    let (negated, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
    let (key, value) = text.split_once(':').map_or((text, None), |(key, value)| (key, Some(value)));
    if key.is_empty() {
        return Err(ParamError::new(name, "a tag has no key"));
    }
    let (place, key) = place(key);
    let test = value.map_or(AttributeTest::Exists, AttributeTest::equals);
    let filter = SpanFilter::Attribute { place, key: key.to_owned(), test };
    Ok(if negated { SpanFilter::Not(Box::new(filter)) } else { filter })
}

/// Any of some texts, `*` at the end for the rest.
fn any_text<'a>(texts: impl Iterator<Item = &'a str>, filter: impl Fn(TextTest) -> SpanFilter) -> Option<SpanFilter> {
    let mut any: Vec<SpanFilter> = texts.map(|t| filter(TextTest::of_pattern(t))).collect();
    match any.len() {
        0 => None,
        1 => any.pop(),
        _ => Some(SpanFilter::Or(any)),
    }
}

#[cfg(test)]
mod tests;
