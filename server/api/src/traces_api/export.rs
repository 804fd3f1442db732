//! `GET /platform-api/traces/{traceId}/otlp|spanarray|traceobject`.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use quiver_traces::export::{self, ExportFormat, ExportOptions, FlatForm};
use quiver_traces::{JsonWriter, ParamError, Selection, Trace, TraceError};
use quiver_types::spans::hex;

use super::{Call, problem};
use crate::forbidden_records::problem_of;
use crate::state::AppState;

pub(super) async fn without_id() -> Response {
    problem(&TraceError::InvalidId, "/platform-api/traces")
}

pub(super) async fn export_trace(
    State(state): State<Arc<AppState>>,
    Path((id, format)): Path<(String, String)>,
    request: Request,
) -> Response {
    let Some(format) = export::find(&format) else { return no_such(&format) };
    let route = "/platform-api/traces";
    match answer(state, &id, format, request).await {
        Ok(response) => response,
        Err(e) => problem(&e, route),
    }
}

fn no_such(format: &str) -> Response {
    let known = export::FORMATS.iter().map(|f| format!("`{}`", f.name)).collect::<Vec<_>>().join(", ");
    problem_of(StatusCode::NOT_FOUND, "NOT_FOUND", &format!("there is no format `{format}`; there are {known}"))
}

/// Parses which spans of a trace are wanted; `start_time` and `end_time` are nanoseconds in decimal.
pub(super) fn selection(call: &Call, id: &str) -> Result<Selection, TraceError> {
    let id = Selection::parse_id(id)?;
    let time = |name: &str| -> Result<Option<i64>, TraceError> {
        let Some(text) = call.params.one(name)? else { return Ok(None) };
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let nanos = text.parse::<i64>().ok().filter(|_| digits);
        let wrong = || ParamError::new(name, format!("`{text}` is no time in nanoseconds"));
        Ok(Some(nanos.ok_or_else(wrong)?))
    };
    let window = (time("start_time")?.unwrap_or(i64::MIN), time("end_time")?.unwrap_or(i64::MAX));
    if window.0 > window.1 {
        return Err(ParamError::new("start_time", "is after `end_time`").into());
    }
    let services = call.params.all("service").map(str::to_owned).collect();
    Ok(Selection { id, window, services, as_received: false })
}

fn options(call: &Call) -> Result<ExportOptions, TraceError> {
    Ok(ExportOptions {
        native: call.params.word("types", &["native", "text"])? == Some("native"),
        link_references: call.params.word("links", &["references", "tags"])? == Some("references"),
        extras: call.params.switch("extras")?.unwrap_or(true),
        flat: FlatForm::Documented,
    })
}

async fn answer(
    state: Arc<AppState>,
    id: &str,
    format: &'static ExportFormat,
    request: Request,
) -> Result<Response, TraceError> {
    let call = Call::of(state, request).await?;
    let selection = selection(&call, id)?;
    let options = options(&call)?;
    let download = call.params.switch("download")?.unwrap_or(false);
    let trace = call.state.engines.traces.trace(&call.ctx, selection).await?;
    let name = download.then(|| format!("trace-{}-{}.json", hex(&trace.id), format.name));
    send(&call, trace, move |trace, w| (format.write)(trace, options, w), name)
}

/// Sends a trace as JSON.
pub(super) fn send(
    call: &Call,
    trace: Trace,
    write: impl FnOnce(&Trace, &mut JsonWriter<'_>) + Send + 'static,
    file_name: Option<String>,
) -> Result<Response, TraceError> {
    let mut response = call.written(trace.spans.len(), move |w| write(&trace, w))?;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(name) = file_name
        && let Ok(value) = HeaderValue::try_from(format!("attachment; filename=\"{name}\""))
    {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}
