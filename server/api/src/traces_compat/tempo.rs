//! Tempo's query API, below a prefix of its own, as `/api/traces/{id}` has another meaning for Jaeger's clients.
//!
//! Responses are protobuf if `Accept` asks for it; searches are in TraceQL or by tags. Times are Unix seconds. The same
//! questions are answered over gRPC (`streaming`).

mod by_tags;
mod hits;
mod messages;
mod metrics_json;
mod params;
mod search;
mod streaming;
mod tags;
#[cfg(test)]
mod testing;
mod values;

use std::io::Write;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, StatusCode, header};
use quiver_ingest::traces::to_protobuf;
use quiver_query::QueryReservation;
use quiver_traces::export::tempo::{Form, write_blocks};
use quiver_traces::{JsonWriter, ReaderClosed, Selection, Trace, TraceError};
use quiver_types::Error;
use quiver_types::spans::{Span, TraceId, parse_hex};
use serde_json::json;

use self::messages::{AnswerForm, put_whole};
use self::params::{part_asked, window};
pub(super) use self::streaming::routes as grpc_routes;
use super::status_and_text;
use crate::encode::body_pieces::Text;
use crate::encode::json::json_answer;
use crate::encode::protobuf::put_text;
use crate::error::plain;
use crate::fallback::not_allowed;
use crate::handlers::boxed;
use crate::state::AppState;
use crate::traces_api::Call;

/// The version shown to clients, which decides what they ask for: Grafana streams searches from 2.2 on, metrics from 2.7 on.
const VERSION: &str = "2.7.0";

/// Spans that become protobuf together; their JSON is in memory beside the message.
const SPANS_AT_ONCE: usize = 256;

/// What an answer of a part says beside it (`PARTIAL`), as Tempo does.
const FILTERED: &str = "Trace filtered, only a subset of spans matching the filter is returned";

pub(super) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/tempo/api/echo", get(boxed(|| async { plain(StatusCode::OK, "echo\n") })))
        .route("/tempo/api/status/buildinfo", get(boxed(build_info)))
        .route("/tempo/api/traces/{id}", get(boxed(trace)))
        .route("/tempo/api/v2/traces/{id}", get(boxed(trace_v2)))
        .route("/tempo/api/search", get(boxed(search::traces_over_http)))
        .route("/tempo/api/search/tags", get(boxed(tags::names_over_http)))
        .route("/tempo/api/v2/search/tags", get(boxed(tags::names_by_scope_over_http)))
        .route("/tempo/api/search/tag/{tag}/values", get(boxed(tags::values_over_http)))
        .route("/tempo/api/v2/search/tag/{tag}/values", get(boxed(tags::typed_values_over_http)))
        .route("/tempo/api/metrics/query_range", get(boxed(search::metrics_over_http)))
        .route("/tempo/api/metrics/query", get(boxed(search::metrics_at_once_over_http)))
}

fn failed(error: &TraceError) -> Response {
    let (status, text) = status_and_text(error);
    plain(status, text)
}

/// Answers a request over HTTP by what a function makes of its parameters.
async fn answered<F: Future<Output = Result<Response, TraceError>>>(
    state: Arc<AppState>,
    request: Request,
    answer: impl FnOnce(Call, AnswerForm) -> F,
) -> Response {
    let form = AnswerForm::of(request.headers());
    let run = async { answer(Call::of(state, request).await?, form).await };
    Box::pin(run).await.unwrap_or_else(|e: TraceError| failed(&e))
}

async fn build_info(State(state): State<Arc<AppState>>) -> Response {
    json_answer(&json!({
        "version": VERSION, "revision": format!("quiver {}", state.settings.version), "branch": "", "buildUser": "",
        "buildDate": "", "goVersion": "",
    }))
}

/// Parses an id of up to 32 hex digits.
fn id_of(text: &str) -> Result<TraceId, String> {
    let wrong = |text: String| Err(text);
    if let Some((at, c)) = text.chars().enumerate().find(|(_, c)| !c.is_ascii_hexdigit()) {
        return wrong(format!(
            "trace IDs can only contain hex characters: invalid character '{c}' at position {}",
            at + 1
        ));
    }
    match parse_hex::<16>(text) {
        Some(id) => Ok(id),
        None if text.is_empty() => wrong("please provide a trace ID".into()),
        None => wrong("trace IDs can't be larger than 128 bits".into()),
    }
}

/// Looks up a trace; `None` if it does not exist or the caller may not see it.
async fn look_up(call: &Call, id: TraceId) -> Result<Option<Trace>, TraceError> {
    let (start, end) = window(call)?;
    // Only a hint where to look: the whole trace is returned if any part of it is in the range.
    let window = (start.unwrap_or(i64::MIN), end.unwrap_or(i64::MAX));
    let overlaps = |trace: &Trace| trace.start() <= window.1 && window.0 <= trace.end();
    match call.state.engines.traces.trace(&call.ctx, Selection::all(id)).await {
        Ok(trace) => Ok(Some(trace).filter(overlaps)),
        Err(TraceError::NotFound | TraceError::Forbidden) => Ok(None),
        Err(e) => Err(e),
    }
}

fn wants_protobuf(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let first = |t: &str| t.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    accept.split(',').any(|t| matches!(first(t).as_str(), "application/protobuf" | "application/x-protobuf"))
}

/// Encodes a trace as the message `Trace`, whose only field equals that of `ExportTraceServiceRequest`. A message of some
/// spans behind one of others is the message of all of them. Returns also how long it is.
fn message(call: &Call, trace: &Trace) -> Result<(Text, usize), TraceError> {
    let (mut text, mut len) = (call.text(), 0);
    for spans in trace.spans.chunks(SPANS_AT_ONCE) {
        let (part, _memory) = part_of(call, spans)?;
        len += part.len();
        if text.write_all(&part).is_err() {
            // The body reports it.
            break;
        }
    }
    Ok((text, len))
}

/// Encodes some spans, and gives the memory that is held for that.
fn part_of(call: &Call, spans: &[Span]) -> Result<(Vec<u8>, QueryReservation), TraceError> {
    // Memory for the JSON text, which grows by doubling, and for the message, which is shorter.
    let memory = call.state.engines.query.collected("message", &call.ctx);
    let mut json = Vec::new();
    let mut outcome = Ok(());
    let mut writer = JsonWriter::pieces(|piece| {
        outcome = memory.add(3 * piece.len());
        json.extend_from_slice(&piece);
        outcome.as_ref().copied().map_err(|_| ReaderClosed)
    });
    writer.object(|w| write_blocks(spans, "resourceSpans", Form::Otlp, w));
    // The outcome reports errors.
    let _ = writer.finish();
    outcome?;
    let written = to_protobuf(&json, usize::MAX).map_err(|e| Error::internal("cannot write a trace").with_source(e))?;
    Ok((written, memory))
}

/// Sends a message.
fn protobuf(message: Text) -> Result<Response, TraceError> {
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, "application/protobuf")], message.body()?).into_response())
}

/// Looks up a trace by the id in the path, and sends what a function makes of it.
async fn looked_up(
    state: Arc<AppState>,
    id: &str,
    request: Request,
    answer: impl FnOnce(&Call, Option<Trace>, bool) -> Result<Response, TraceError>,
) -> Response {
    let wants_protobuf = wants_protobuf(request.headers());
    let id = match id_of(id) {
        Ok(id) => id,
        Err(wrong) => return plain(StatusCode::BAD_REQUEST, wrong),
    };
    let run = async {
        let call = Call::of(state, request).await?;
        let trace = look_up(&call, id).await?;
        answer(&call, trace, wants_protobuf)
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

async fn trace(State(state): State<Arc<AppState>>, Path(id): Path<String>, request: Request) -> Response {
    let answer = |call: &Call, trace: Option<Trace>, wants_protobuf| {
        let none = || (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")]).into_response();
        let Some(trace) = trace else { return Ok(none()) };
        if wants_protobuf {
            return protobuf(message(call, &trace)?.0);
        }
        call.written(trace.spans.len(), move |w| w.object(|w| write_blocks(&trace.spans, "batches", Form::Protobuf, w)))
    };
    looked_up(state, &id, request, answer).await
}

/// Keeps the spans that `q` asks for; says whether there were others.
fn filtered(call: &Call, trace: &mut Option<Trace>) -> Result<bool, TraceError> {
    let (Some(part), Some(trace)) = (part_asked(&call.params)?, trace) else { return Ok(false) };
    let all = trace.spans.len();
    part.keep(trace);
    Ok(trace.spans.len() < all)
}

async fn trace_v2(State(state): State<Arc<AppState>>, Path(id): Path<String>, request: Request) -> Response {
    // No id: what Tempo has here takes POST alone.
    if id == "diff" {
        return not_allowed(request.uri().clone()).await;
    }
    let answer = |call: &Call, mut trace: Option<Trace>, wants_protobuf| {
        let is_filtered = filtered(call, &mut trace)?;
        if wants_protobuf {
            let whole = trace.map(|trace| message(call, &trace)).transpose()?;
            let (mut text, len) = whole.unwrap_or_else(|| (call.text(), 0));
            let (mut head, mut tail) = (Vec::new(), Vec::new());
            quiver_ingest::wire::put_head(&mut head, 1, len);
            if is_filtered {
                put_whole(&mut tail, 3, 1);
                put_text(&mut tail, 4, FILTERED);
            }
            // The body reports errors.
            let _ = text.begin_with(head).and_then(|()| text.write_all(&tail));
            return protobuf(text);
        }
        let spans = trace.as_ref().map_or(0, |trace| trace.spans.len());
        call.written(spans, move |w| {
            w.object(|w| {
                w.key("trace").object(|w| {
                    if let Some(trace) = &trace {
                        write_blocks(&trace.spans, "resourceSpans", Form::Protobuf, w);
                    }
                });
                if is_filtered {
                    w.key("status").text("PARTIAL");
                    w.key("message").text(FILTERED);
                }
            });
        })
    };
    looked_up(state, &id, request, answer).await
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn ids_are_up_to_32_hex_digits() {
        let id = |low: u128| Ok(low.to_be_bytes());
        let wrong = |text: &str| Err(text.to_owned());
        let odd = "trace IDs can only contain hex characters: invalid character";
        for (text, expected) in [
            ("1", id(1)),
            ("AbC", id(0xabc)),
            ("00000000000000000000000000000010", id(16)),
            ("ffffffffffffffffffffffffffffffff", id(u128::MAX)),
            ("", wrong("please provide a trace ID")),
            ("000000000000000000000000000000001", wrong("trace IDs can't be larger than 128 bits")),
            ("0x1", wrong(&format!("{odd} 'x' at position 2"))),
            ("äa", wrong(&format!("{odd} 'ä' at position 1"))),
            ("ab ", wrong(&format!("{odd} ' ' at position 3"))),
        ] {
            assert_eq!(id_of(text), expected, "`{text}`");
        }
    }

    #[test]
    fn protobuf_is_answered_to_who_takes_it() {
        for (accept, expected) in [
            (None, false),
            (Some("application/protobuf"), true),
            (Some("application/json, application/x-protobuf;q=0.5"), true),
            (Some(" APPLICATION/PROTOBUF ; a=b"), true),
            (Some("application/json"), false),
            (Some("*/*"), false),
            (Some("application/protobufs"), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(accept.map(|accept| (header::ACCEPT, HeaderValue::from_static(accept))));
            assert_eq!(wants_protobuf(&headers), expected, "{accept:?}");
        }
    }
}
