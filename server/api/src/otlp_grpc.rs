//! OTLP over gRPC: one unary call per signal. A message is read like any other body: within the memory for bodies, at
//! the minimum pace, and decompressed within the same limits.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, Full};
use quiver_ingest::wire::{put_bytes, put_varint};
use quiver_ingest::{Encoding, formats};
use quiver_types::{Error, ErrorKind, Result};
use tonic::{Code, Status};

use crate::bodies::read_body;
use crate::error::{grpc_code_of, log, public_text};
use crate::ingest_api::{decode_and_write, export_outcome, export_response};
use crate::metrics::phases;
use crate::state::AppState;

/// What stands before a message: whether it is compressed, and its length.
const FRAME_BYTES: usize = 5;
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");
const ENCODINGS: HeaderValue = HeaderValue::from_static("identity,gzip,deflate,zstd,snappy");

/// A signal and what to do with its messages.
pub(crate) trait Signal: Send + Sync + 'static {
    /// Full name of the gRPC service.
    const SERVICE: &'static str;
    /// The route's name in logs.
    const ROUTE: &'static str;
    /// The signal under which durations are counted.
    const COUNTED: phases::Signal;

    /// Ingests an export request. Returns the export response.
    fn export(
        state: &Arc<AppState>,
        headers: &HeaderMap,
        encoding: Encoding,
        body: Bytes,
    ) -> impl Future<Output = Result<Vec<u8>>> + Send;
}

/// The metrics signal.
#[derive(Debug)]
pub(crate) struct Metrics;

impl Signal for Metrics {
    const SERVICE: &'static str = "opentelemetry.proto.collector.metrics.v1.MetricsService";
    const ROUTE: &'static str = "otlp/grpc/metrics";
    const COUNTED: phases::Signal = phases::Signal::Metrics;

    async fn export(state: &Arc<AppState>, _: &HeaderMap, encoding: Encoding, body: Bytes) -> Result<Vec<u8>> {
        let encoding = Some(encoding.name().to_owned());
        let written = decode_and_write(state, &formats::otlp_metrics::FORMAT, encoding, body).await?;
        let (rejected, text) = export_outcome(&written)?;
        Ok(export_response(rejected, &text, false))
    }
}

/// Path and handler of a signal.
pub(crate) fn route<S: Signal>() -> (String, MethodRouter<Arc<AppState>>) {
    (format!("/{}/Export", S::SERVICE), post(handle::<S>))
}

/// The answer to calls of unknown methods.
pub(crate) async fn unknown() -> Response {
    Status::new(Code::Unimplemented, "unknown service or method").into_http::<Body>()
}

async fn handle<S: Signal>(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    if !content_type.is_some_and(|v| v.as_bytes().starts_with(CONTENT_TYPE.as_bytes())) {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, [(header::CONTENT_TYPE, CONTENT_TYPE)]).into_response();
    }
    match export::<S>(&state, request).await {
        Ok(answer) => message(&answer),
        Err(e) => {
            log(&e, S::ROUTE);
            let mut response = status(&e, state.settings.retry_after_s).into_http::<Body>();
            response.headers_mut().insert("grpc-accept-encoding", ENCODINGS);
            response
        }
    }
}

async fn export<S: Signal>(state: &Arc<AppState>, request: Request) -> Result<Vec<u8>> {
    let (head, body) = request.into_parts();
    let encoding = head.headers.get("grpc-encoding").map(|v| v.to_str().unwrap_or("?"));
    let encoding = Encoding::from_header(encoding)?;
    let bytes_max = state.settings.body_bytes_max.saturating_add(FRAME_BYTES);
    let body = read_body(&state.capacity.bodies, &head.headers, body, bytes_max);
    let body = state.metrics.phases.timed(S::COUNTED, phases::Step::Read, body).await?;
    let (packed, body) = unframe(body)?;
    S::export(state, &head.headers, if packed { encoding } else { Encoding::Identity }, body).await
}

/// Takes the single message out of a body. Returns whether it is compressed, and its bytes.
fn unframe(body: Bytes) -> Result<(bool, Bytes)> {
    let bad = |text: &str| Err(Error::invalid(text));
    let [packed, a, b, c, d, ..] = *body else { return bad("there is no message") };
    let len = u32::from_be_bytes([a, b, c, d]) as usize;
    match (packed, len == body.len() - FRAME_BYTES) {
        (0 | 1, true) => Ok((packed == 1, body.slice(FRAME_BYTES..))),
        (0 | 1, false) => bad("the body is not one whole message"),
        _ => bad("the frame has an unknown flag"),
    }
}

/// A successful response.
fn message(answer: &[u8]) -> Response {
    let mut frame = Vec::with_capacity(FRAME_BYTES + answer.len());
    frame.push(0);
    frame.extend_from_slice(&(answer.len() as u32).to_be_bytes());
    frame.extend_from_slice(answer);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(Bytes::from(frame)).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
    response.headers_mut().insert("grpc-accept-encoding", ENCODINGS);
    response
}

/// The status of an error. Only errors that may be retried say when.
fn status(error: &Error, retry_after_s: u32) -> Status {
    let text = public_text(error);
    if error.kind == ErrorKind::Unavailable {
        return come_back(text, u64::from(retry_after_s));
    }
    Status::new(grpc_code_of(error.kind), text)
}

/// The status of a valid call that must be repeated later: senders keep their data and send it again then.
pub(crate) fn come_back(text: &str, retry_after_s: u64) -> Status {
    // google.rpc.Status { code, message, details: [Any { type_url, value: RetryInfo { retry_delay } }] }
    let (mut delay, mut info, mut any, mut out) = (vec![0x08], Vec::new(), Vec::new(), vec![0x08]);
    put_varint(&mut delay, retry_after_s);
    put_bytes(&mut info, 1, &delay);
    put_bytes(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    put_bytes(&mut any, 2, &info);
    put_varint(&mut out, Code::Unavailable as u64);
    put_bytes(&mut out, 2, text.as_bytes());
    put_bytes(&mut out, 3, &any);
    Status::with_details(Code::Unavailable, text, out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_to_come_back() {
        let status = come_back("RATE_LIMITED: later", 300);
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "RATE_LIMITED: later"));
        let text = &b"\x08\x0e\x12\x13RATE_LIMITED: later"[..];
        let kind = b"\x1a\x31\x0a\x28type.googleapis.com/google.rpc.RetryInfo";
        let seconds = b"\x12\x05\x0a\x03\x08\xac\x02";
        assert_eq!(status.details(), [text, kind, seconds].concat());
        let refused = super::status(&Error::new(ErrorKind::Forbidden, "x"), 1);
        assert!(refused.details().is_empty(), "what is refused for good does not say when to come back");
    }

    #[test]
    fn frames() {
        let check = |body: &[u8], expected: Option<(bool, &[u8])>| {
            let read = unframe(Bytes::copy_from_slice(body)).ok();
            assert_eq!(read.as_ref().map(|(packed, body)| (*packed, &body[..])), expected, "{body:?}");
        };
        check(&[0, 0, 0, 0, 0], Some((false, b"")));
        check(&[1, 0, 0, 0, 2, 7, 8], Some((true, &[7, 8])));
        for bad in [&[][..], &[0, 0, 0, 0], &[0, 0, 0, 0, 1], &[0, 0, 0, 0, 1, 7, 7], &[2, 0, 0, 0, 0], &[0xff; 9]] {
            check(bad, None);
        }
    }
}
