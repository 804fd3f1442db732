//! Ingestion of spans over HTTP: OTLP, Zipkin v2 and the internal JSON format, with the responses of each protocol
//! (`traces-api` 6).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, StatusCode, header};
use quiver_ingest::rules::Clients;
use quiver_ingest::traces::response::TracePartial;
use quiver_ingest::traces::{DecodedSpans, TraceContext, TraceFormat, decode};
use quiver_ingest::transaction_detection::detect;
use quiver_ingest::within;
use quiver_types::tables::logs::millis_of;
use quiver_types::{Access, Domain, Error, ErrorKind, Result};

use crate::body_memory::read_body;
use crate::effects::{Signal, suspend};
use crate::error::{log, plain, public_text, status_of, with_retry_after};
use crate::forbidden_records;
use crate::handlers::boxed;
use crate::metrics::phases::{Signal as Phase, Step};
use crate::otlp_form::OtlpForm;
use crate::request_context::RequestInfo;
use crate::state::AppState;
use crate::usage::AcceptedRecords;

/// Larger bodies are decoded on a blocking thread, so that they do not hold up the threads that serve sockets.
const INLINE_BYTES_MAX: usize = 256 * 1024;

/// OTLP paths on the main port.
const OTLP_PATHS: [&str; 2] = ["/v1/traces", "/insert/opentelemetry/v1/traces"];
/// Paths of Zipkin.
const ZIPKIN_PATHS: [&str; 2] = ["/api/v2/spans", "/zipkin/api/v2/spans"];

/// Routes that ingest spans on the main port.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new();
    for path in OTLP_PATHS {
        router = router.route(path, post(boxed(otlp)));
    }
    router
}

/// Routes that ingest spans on the OTLP port.
pub(crate) fn otlp_routes() -> Router<Arc<AppState>> {
    Router::new().route(OTLP_PATHS[0], post(boxed(otlp)))
}

/// Paths that Zipkin senders use; the same paths serve readers, too.
pub(crate) fn zipkin_paths() -> [&'static str; 2] {
    ZIPKIN_PATHS
}

/// Makes the context of decoders. If retention is "none" there is no limit on age.
fn context<'a>(state: &AppState, access: &'a Access) -> TraceContext<'a> {
    let settings = state.engines.store.settings();
    let now_ns = state.clock.now_ms().saturating_mul(1_000_000);
    let nanos = |d: std::time::Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
    let retention = settings.retention_of(quiver_types::tables::spans::TABLE.name);
    let limits = state.settings.decode_limits;
    TraceContext {
        body_bytes_max: limits.body_bytes_max,
        batch_bytes_max: limits.batch_bytes_max,
        now_ns,
        earliest_ns: retention.map_or(1, |kept| {
            let past = settings.accept_past.map_or(kept, |accepted| accepted.min(kept));
            now_ns.saturating_sub(nanos(past)).max(1)
        }),
        latest_ns: match retention {
            Some(_) => now_ns.saturating_add(nanos(settings.accept_future)),
            None => i64::MAX,
        },
        access,
    }
}

/// Decodes a body and writes its spans.
///
/// # Errors
/// Those of the decoder and of the store: nothing of the request was written then, or it can be repeated safely.
/// Forbidden: the caller may not write any of the spans.
pub(crate) async fn decode_and_write(
    state: &Arc<AppState>,
    format: TraceFormat,
    encoding: Option<String>,
    body: Bytes,
) -> Result<TracePartial> {
    let own_thread = body.len() > INLINE_BYTES_MAX;
    // Held until the spans are stored.
    let room = state.capacity.bodies.decoding_on(own_thread);
    let run = {
        let (state, access, room) = (Arc::clone(state), state.ingest_access(Domain::Traces), Arc::clone(&room));
        move |body: Bytes| -> Result<(DecodedSpans, Vec<String>)> {
            let ctx = context(&state, &access);
            let mut beside = state.capacity.bodies.share_beside(own_thread);
            let hold = &mut |bytes| beside.hold(bytes);
            let decode = || decode(format, encoding.as_deref(), &body, &ctx, hold);
            let mut decoded = within(room, decode).map_err(Error::from)?;
            let mut slow = Vec::new();
            for (signal, clients) in [(Signal::Spans, Clients::All), (Signal::Rum, Clients::Browsers)] {
                let rules = state.effects.extraction(signal);
                slow.extend(rules.apply_to_spans(&mut decoded.batch, clients, state.clock.now_ms()));
            }
            detect(&mut decoded.batch, &state.effects.detector(), &state.effects.pages());
            Ok((decoded, slow))
        }
    };
    let phases = &state.metrics.phases;
    let began = Instant::now();
    let (mut decoded, slow) = if own_thread {
        tokio::task::spawn_blocking(move || run(body))
            .await
            .map_err(|e| Error::internal("the decoder met a fault of ours; the log has it").with_source(e))??
    } else {
        run(body)?
    };
    suspend(&state.config, slow);
    phases.step(Phase::Traces, Step::Decode, began.elapsed());
    let partial = TracePartial::of(&decoded);
    forbidden_records::note(partial.forbidden);
    let batch = std::mem::take(&mut decoded.batch);
    RequestInfo::note_records(batch.len() as u64);
    let mut services: BTreeMap<String, AcceptedRecords> = BTreeMap::new();
    RequestInfo::note_taken(|taken| {
        let mut sizes = batch.span_bytes().into_iter();
        batch.each(|service, _, end| {
            let one = AcceptedRecords::record(millis_of(end), sizes.next().unwrap_or_default());
            match services.get_mut(service) {
                Some(brought) => brought.join(one),
                None => services.entry(service.to_owned()).or_default().join(one),
            }
        });
        decoded.refused.iter().for_each(|one| taken.add_rejected("traces", one.reason.word(), one.count));
    });
    state.metrics.spans.count(format.name(), &batch, &decoded, state.clock.now_ms());
    if !batch.is_empty() {
        phases.timed(Phase::Traces, Step::Store, state.engines.store.write_spans(batch)).await?;
    }
    RequestInfo::note_taken(|taken| {
        for (service, brought) in &services {
            taken.add_records("traces", service, *brought);
        }
    });
    if partial.all && partial.forbidden > 0 && partial.forbidden == partial.rejected {
        return Err(forbidden_records::otlp_error(Domain::Traces, partial.first_forbidden.as_deref()));
    }
    Ok(partial)
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned)
}

async fn take(
    state: &Arc<AppState>,
    headers: &HeaderMap,
    body: axum::body::Body,
    format: TraceFormat,
    path: &str,
) -> Result<TracePartial> {
    let encoding = text(headers, header::CONTENT_ENCODING);
    let body = read_body(&state.capacity.bodies, headers, body, state.settings.body_bytes_max);
    let written = match state.metrics.phases.timed(Phase::Traces, Step::Read, body).await {
        Ok(body) => decode_and_write(state, format, encoding, body).await,
        Err(e) => Err(e),
    };
    if let Err(e) = &written {
        log(e, path);
    }
    written
}

/// Determines the format from the content type, or from `?format=trace/1`.
fn format_of(headers: &HeaderMap, query: Option<&str>) -> Result<TraceFormat> {
    let mut asked = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()).filter(|(k, _)| k == "format");
    if let Some((_, format)) = asked.next() {
        if asked.next().is_some() {
            return Err(Error::invalid("`format` is given more than once"));
        }
        return match &*format {
            "trace/1" => Ok(TraceFormat::Internal),
            other => Err(Error::invalid(format!("unknown format `{other}`"))),
        };
    }
    let content_type = text(headers, header::CONTENT_TYPE).unwrap_or_default();
    match content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/x-protobuf" | "application/protobuf" => Ok(TraceFormat::Otlp),
        "application/json" => Ok(TraceFormat::OtlpJson),
        other => {
            let text = format!("unsupported content type `{other}`; send application/x-protobuf or application/json");
            Err(Error::new(ErrorKind::Unsupported, text))
        }
    }
}

async fn otlp(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let format = match format_of(&head.headers, head.uri.query()) {
        Ok(format) => format,
        Err(e) => return plain(status_of(e.kind), public_text(&e)),
    };
    let form = if format == TraceFormat::Otlp { OtlpForm::Protobuf } else { OtlpForm::Json };
    let answer = |status: StatusCode, body: Vec<u8>| {
        with_retry_after((status, [(header::CONTENT_TYPE, form.content_type())], body).into_response())
    };
    match (take(&state, &head.headers, body, format, head.uri.path()).await, form) {
        (Ok(partial), OtlpForm::Protobuf) => answer(StatusCode::OK, partial.to_protobuf()),
        (Ok(partial), OtlpForm::Json) => answer(StatusCode::OK, partial.to_json().into_bytes()),
        (Err(e), form) => answer(status_of(e.kind), form.status(&e)),
    }
}

/// Zipkin: 202 without a body, 400 with a text. If no span was accepted the response says why.
pub(crate) async fn zipkin(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let content_type = text(&head.headers, header::CONTENT_TYPE).unwrap_or_default();
    let media = content_type.split(';').next().unwrap_or_default().trim();
    let format = match media.to_ascii_lowercase().as_str() {
        "" | "application/json" => TraceFormat::Zipkin,
        "application/x-protobuf" | "application/protobuf" => TraceFormat::ZipkinProto,
        _ => {
            let text = format!("unsupported content type `{media}`: spans are taken as JSON or protobuf");
            return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
        }
    };
    match take(&state, &head.headers, body, format, head.uri.path()).await {
        Ok(partial) if partial.rejected > 0 && partial.all => plain(StatusCode::BAD_REQUEST, partial.message),
        Ok(_) => StatusCode::ACCEPTED.into_response(),
        Err(e) if e.kind == ErrorKind::Forbidden => forbidden_records::problem(&e),
        Err(e) => plain(status_of(e.kind), public_text(&e)),
    }
}

/// Refuses Jaeger's own (Thrift) format.
pub(crate) async fn jaeger_thrift() -> Response {
    let text = "spans are not taken in Jaeger's formats; send OTLP or Zipkin v2 JSON, or put an OpenTelemetry Collector \
                in front";
    plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format of a request, or the kind of error; an empty content type stands for none.
    fn format(content_type: &'static str, query: &str) -> Result<TraceFormat, ErrorKind> {
        let mut headers = HeaderMap::new();
        if !content_type.is_empty() {
            headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
        }
        format_of(&headers, Some(query)).map_err(|e| e.kind)
    }

    #[test]
    fn formats_are_found_by_content_type_and_parameter() {
        for (content_type, expected) in [
            ("application/x-protobuf", Ok(TraceFormat::Otlp)),
            ("application/protobuf", Ok(TraceFormat::Otlp)),
            ("application/json", Ok(TraceFormat::OtlpJson)),
            ("Application/JSON; charset=utf-8", Ok(TraceFormat::OtlpJson)),
            (" application/json ;", Ok(TraceFormat::OtlpJson)),
            ("application/jsonl", Err(ErrorKind::Unsupported)),
            ("text/plain", Err(ErrorKind::Unsupported)),
            ("", Err(ErrorKind::Unsupported)),
        ] {
            assert_eq!(format(content_type, ""), expected, "{content_type}");
            assert_eq!(format(content_type, "form=trace/1&x"), expected, "{content_type}");
            // The parameter takes precedence over the content type.
            assert_eq!(format(content_type, "a=b&format=trace%2F1"), Ok(TraceFormat::Internal), "{content_type}");
            for unknown in ["format=trace/2", "format=", "format", "format=TRACE/1", "format=trace/1&format=trace/1"] {
                assert_eq!(format(content_type, unknown), Err(ErrorKind::Invalid), "{content_type} {unknown}");
            }
        }
        assert_eq!(format_of(&HeaderMap::new(), None).unwrap_err().kind, ErrorKind::Unsupported);
    }
}
