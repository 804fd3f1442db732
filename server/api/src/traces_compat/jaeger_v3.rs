//! Jaeger's query API, version 3, as its current UI uses it.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use quiver_traces::export::ExportOptions;
use quiver_traces::export::otlp::write_all;
use quiver_traces::lists::services::ServiceName;
use quiver_traces::{ParamError, Search, Selection, Summary, Trace, TraceError};
use quiver_types::spans::{SpanFilter, TextTest, hex};
use serde_json::{Value, json};

use super::jaeger::{ALWAYS, either_id, operation_objects, operations_of, tag_map};
use super::{spans_of, status_and_text};
use crate::encode::json::json_response;
use crate::error::with_retry_after;
use crate::handlers::boxed;
use crate::state::AppState;
use crate::traces_api::Call;

/// Default number of traces in a response.
const DEPTH: usize = 100;
const KIND_INTERNAL: u8 = 1;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new();
    for at in ["/api/v3", "/jaeger/api/v3"] {
        router = router
            .route(&format!("{at}/services"), get(boxed(services)))
            .route(&format!("{at}/operations"), get(boxed(operations)))
            .route(&format!("{at}/trace-summaries"), get(boxed(summaries)))
            .route(&format!("{at}/traces"), get(boxed(traces)))
            .route(&format!("{at}/traces/{{id}}"), get(boxed(trace)));
    }
    router
}

pub(super) fn failed(error: &TraceError) -> Response {
    let (status, text) = status_and_text(error);
    refused(status, &text)
}

fn refused(status: StatusCode, text: &str) -> Response {
    let body = json!({"error": {"httpCode": status.as_u16(), "message": text}});
    with_retry_after(json_response(status, body.to_string()))
}

async fn services(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let names = call.state.engines.traces.service_names(&call.ctx, ALWAYS, call.segments()?).await?;
        call.json(&json!({"services": names}))
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

async fn operations(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let span_kind = call.params.one("spanKind")?.or(call.params.one("span_kind")?);
        let service = call.params.one("service")?.map(|name| ServiceName::Exact(name.to_owned()));
        let mut operations = operations_of(&call, service, span_kind).await?;
        // In this version each operation has a span kind.
        for (_, kind) in &mut operations {
            *kind = (*kind).max(KIND_INTERNAL);
        }
        operations.sort_unstable();
        operations.dedup();
        call.json(&json!({"operations": operation_objects(operations)}))
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

/// A parameter by its name in camel case or snake case; an empty one is as good as none, as there.
fn either<'c>(call: &'c Call, name: &str) -> Result<Option<&'c str>, ParamError> {
    let snake: String =
        name.chars().flat_map(|c| if c.is_uppercase() { vec!['_', c.to_ascii_lowercase()] } else { vec![c] }).collect();
    let told = |name: &str| -> Result<Option<&'c str>, ParamError> {
        Ok(call.params.one(&format!("query.{name}"))?.filter(|text| !text.is_empty()))
    };
    Ok(told(name)?.or(told(&snake)?))
}

/// Says whether reports are wanted as they were received, by either name of the parameter.
fn is_raw(call: &Call, camel: &str, snake: &str) -> Result<bool, ParamError> {
    Ok(call.params.switch(camel)?.or(call.params.switch(snake)?).unwrap_or(false))
}

/// Like [`is_raw`], of a search.
fn is_raw_search(call: &Call) -> Result<bool, ParamError> {
    is_raw(call, "query.rawTraces", "query.raw_traces")
}

/// Says what is wrong in Jaeger's words.
fn as_there(text: &str) -> TraceError {
    ParamError::new("", text).into()
}

/// Says what is wrong with a parameter of a search, by the name that clients give it.
fn malformed(name: &str, reason: &str) -> TraceError {
    as_there(&format!("malformed parameter query.{name}: {reason}"))
}

fn search(call: &Call) -> Result<Search, TraceError> {
    let time = |name: &str| -> Result<Option<i64>, TraceError> {
        let Some(text) = either(call, name)? else { return Ok(None) };
        let time = crate::traces_params::time(text, call.now);
        Ok(Some(time.ok_or_else(|| malformed(name, &format!("`{text}` is no time")))?))
    };
    let duration = |name: &str| -> Result<Option<i64>, TraceError> {
        let Some(text) = either(call, name)? else { return Ok(None) };
        let duration = crate::traces_params::go_duration(text);
        Ok(Some(duration.ok_or_else(|| malformed(name, &format!("`{text}` is no duration")))?))
    };
    if either(call, "filter")?.is_some() {
        // Refused, since ignoring it would return more than was asked for.
        return Err(ParamError::new("query.filter", "is not supported").into());
    }
    let (Some(start), Some(end)) = (time("startTimeMin")?, time("startTimeMax")?) else {
        return Err(as_there("query.startTimeMin and query.startTimeMax are required"));
    };
    if start >= end {
        return Err(as_there("query.startTimeMin must be before query.startTimeMax"));
    }
    let mut search = Search::new((start, end));
    search.conditions = call.segments()?;
    let is = |text: &str| TextTest::Is(text.to_owned());
    search.conditions.extend(either(call, "serviceName")?.map(|s| SpanFilter::Service(is(s))));
    search.conditions.extend(either(call, "operationName")?.map(|s| SpanFilter::Name(is(s))));
    let (min, max) = (duration("durationMin")?, duration("durationMax")?);
    if min.is_some() || max.is_some() {
        search.conditions.push(SpanFilter::Duration(min.unwrap_or(0), max.unwrap_or(i64::MAX)));
    }
    if let Some(text) = either(call, "attributes")? {
        search.conditions.extend(tag_map("attributes", text).map_err(|e| malformed(&e.name, &e.reason))?);
    }
    let depth = match either(call, "searchDepth")?.or(either(call, "numTraces")?) {
        None => DEPTH,
        Some(text) => {
            let depth = text.parse::<usize>().ok().filter(|n| (1..=1500).contains(n));
            depth.ok_or_else(|| malformed("searchDepth", &format!("`{text}` is no number from 1 to 1500")))?
        }
    };
    search.limit = depth;
    Ok(search)
}

fn result(call: &Call, traces: Vec<Trace>) -> Result<Response, TraceError> {
    let options = ExportOptions { native: true, ..ExportOptions::default() };
    call.written(spans_of(&traces), move |w| w.object(|w| write_all(&traces, options, w.key("result"))))
}

fn summary(row: &Summary) -> Value {
    let services: Vec<Value> = (row.services.iter())
        .map(|s| json!({"name": s.name, "spanCount": s.spans, "errorSpanCount": s.errors}))
        .collect();
    // A root is a span without a parent: what stands in for one that has not arrived is not named as such.
    let (service, name) = if row.root_missing { ("", "") } else { (row.root_service.as_str(), row.root_name.as_str()) };
    json!({
        "traceId": hex(&row.id), "rootServiceName": service, "rootOperationName": name,
        "minStartTimeUnixNano": row.start.to_string(), "maxEndTimeUnixNano": row.end.to_string(),
        "spanCount": row.spans, "errorSpanCount": row.errors, "orphanSpanCount": row.orphans,
        "services": services,
    })
}

async fn summaries(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        // Sums are of whole spans, whatever is said.
        is_raw_search(&call)?;
        let page = call.state.engines.traces.search(&call.ctx, search(&call)?, call.now).await?;
        let rows: Vec<Value> = page.rows.iter().map(summary).collect();
        call.json(&json!({"summaries": rows}))
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

async fn traces(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let (engine, search) = (&call.state.engines.traces, search(&call)?);
        let traces = if is_raw_search(&call)? {
            engine.search_as_received(&call.ctx, search, call.now).await?
        } else {
            engine.search_whole(&call.ctx, search, call.now).await?
        };
        // In this version a search without results is an error; but a request for plans does not search.
        if traces.is_empty() && !call.ctx.is_only_planned() {
            return Ok(refused(StatusCode::NOT_FOUND, "No traces found"));
        }
        result(&call, traces)
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

async fn trace(State(state): State<Arc<AppState>>, Path(id): Path<String>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let time = |name: &str, snake: &str| -> Result<Option<i64>, TraceError> {
            let camel = call.params.time(name, call.now)?;
            Ok(if camel.is_some() { camel } else { call.params.time(snake, call.now)? })
        };
        let window =
            (time("startTime", "start_time")?.unwrap_or(i64::MIN), time("endTime", "end_time")?.unwrap_or(i64::MAX));
        let as_received = is_raw(&call, "rawTraces", "raw_traces")?;
        let selection = Selection { id: either_id(&id)?, window, services: Vec::new(), as_received };
        let trace = call.state.engines.traces.trace(&call.ctx, selection).await?;
        result(&call, vec![trace])
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    #[test]
    fn errors_have_their_shape() {
        assert_eq!(failed(&TraceError::NotFound).status(), StatusCode::NOT_FOUND);
        assert_eq!(failed(&TraceError::InvalidId).status(), StatusCode::BAD_REQUEST);
    }

    #[tokio::test]
    async fn errors_tell_their_status_in_the_body() {
        use http_body_util::BodyExt as _;

        for (error, status, text) in [
            (TraceError::NotFound, 404, "trace not found"),
            (
                TraceError::Param(ParamError::new("query.filter", "is not supported")),
                400,
                "parameter 'query.filter': is not supported",
            ),
            (TraceError::TooLarge(7), 413, "more than 7 spans"),
        ] {
            let response = failed(&error);
            assert_eq!(
                (response.status().as_u16(), &response.headers()[header::CONTENT_TYPE]),
                (status, &http::HeaderValue::from_static("application/json"))
            );
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!(body, json!({"error": {"httpCode": status, "message": text}}));
        }
    }
}
