//! OTLP over gRPC: one unary call per signal. A message is read like any other body: within the memory for bodies, at
//! the minimum pace, and decompressed within the same limits.

use std::sync::Arc;
use std::time::Duration;

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

use crate::body_memory::read_body;
use crate::error::{grpc_code_of, log, public_text};
use crate::handlers::boxed;
use crate::ingest_api::{decode_and_write, export_outcome, export_response};
use crate::metrics::phases;
use crate::otlp_form::OtlpForm;
use crate::state::AppState;

/// What stands before a message: whether it is compressed, and its length.
const FRAME_BYTES: usize = 5;
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// A signal and what to do with its messages.
pub(crate) trait Signal: Send + Sync + 'static {
    /// Full name of the gRPC service.
    const SERVICE: &'static str;
    /// The route's name in logs.
    const ROUTE: &'static str;
    /// The signal under which durations are counted.
    const COUNTED: phases::Signal;
    /// How its messages may be compressed, for `grpc-accept-encoding`.
    const ENCODINGS: &'static str = "identity,gzip,deflate,zstd";

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
        Ok(export_response(rejected, &text, OtlpForm::Protobuf))
    }
}

/// Path and handler of a signal.
pub(crate) fn route<S: Signal>() -> (String, MethodRouter<Arc<AppState>>) {
    (format!("/{}/Export", S::SERVICE), post(boxed(handle::<S>)))
}

/// The answer to calls of what is not here.
pub(crate) fn unimplemented(text: &str) -> Response {
    Status::new(Code::Unimplemented, text).into_http::<Body>()
}

/// Whether a request is a call of gRPC in any of its forms.
pub(crate) fn is_call(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    kind.get(..16).is_some_and(|start| start.eq_ignore_ascii_case("application/grpc"))
}

async fn handle<S: Signal>(State(state): State<Arc<AppState>>, request: Request) -> Response {
    if !is_protobuf(request.headers()) {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, [(header::CONTENT_TYPE, CONTENT_TYPE)]).into_response();
    }
    let answer = match deadline_of(request.headers()) {
        Ok(None) => export::<S>(&state, request).await,
        Ok(Some(limit)) => {
            tokio::time::timeout(limit, export::<S>(&state, request)).await.unwrap_or_else(|_| Err(late()))
        }
        Err(e) => Err(e),
    };
    match answer {
        Ok(answer) => accepting::<S>(message(&answer)),
        Err(e) => {
            log(&e, S::ROUTE);
            accepting::<S>(status(&e, state.settings.retry_after_s).into_http::<Body>())
        }
    }
}

/// Whether a call brings protobuf: `+json` and gRPC-Web are told so instead of being read as what they are not.
fn is_protobuf(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()) else { return false };
    let kind = value.split(';').next().unwrap_or_default().trim();
    ["application/grpc", "application/grpc+proto"].iter().any(|known| kind.eq_ignore_ascii_case(known))
}

/// Says how messages of this signal may be compressed.
fn accepting<S: Signal>(mut response: Response) -> Response {
    response.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static(S::ENCODINGS));
    response
}

async fn export<S: Signal>(state: &Arc<AppState>, request: Request) -> Result<Vec<u8>> {
    let (head, body) = request.into_parts();
    let encoding = encoding_of(&head.headers)?;
    let bytes_max = state.settings.body_bytes_max.saturating_add(FRAME_BYTES);
    let body = read_body(&state.capacity.bodies, &head.headers, body, bytes_max);
    let body = state.metrics.phases.timed(S::COUNTED, phases::Step::Read, body).await?;
    let (packed, body) = unframe(body)?;
    S::export(state, &head.headers, encoding_within(packed, encoding)?, body).await
}

/// How long a call may take, by `grpc-timeout`: at most eight digits and a unit. Whoever sent it waits no longer.
fn deadline_of(headers: &HeaderMap) -> Result<Option<Duration>> {
    let mut given = headers.get_all("grpc-timeout").iter();
    let Some(value) = given.next() else { return Ok(None) };
    let malformed = || {
        Err(Error::invalid(
            "`grpc-timeout` is not one number of 1 to 8 digits with a unit of `H`, `M`, `S`, `m`, `u` or `n`",
        ))
    };
    let Some((unit, digits)) = value.as_bytes().split_last() else { return malformed() };
    if given.next().is_some() || !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return malformed();
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Ok(Some(match unit {
        b'H' => Duration::from_hours(number),
        b'M' => Duration::from_mins(number),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return malformed(),
    }))
}

/// What a call hears whose time is over. What it brought may be stored all the same, as with any call that is given up.
fn late() -> Error {
    Error::new(ErrorKind::Timeout, "the deadline of the call (`grpc-timeout`) has passed")
}

/// How compressed messages of a call are compressed.
fn encoding_of(headers: &HeaderMap) -> Result<Encoding> {
    let mut named = headers.get_all("grpc-encoding").iter().map(|v| v.to_str().unwrap_or("?"));
    let encoding = Encoding::from_header(named.next())?;
    if named.next().is_some() {
        return Err(Error::invalid("`grpc-encoding` is given more than once"));
    }
    Ok(encoding)
}

/// How a message is compressed. One that says it is, in a call that names no codec, would be read as what it is not.
fn encoding_within(packed: bool, encoding: Encoding) -> Result<Encoding> {
    match (packed, encoding) {
        (true, Encoding::Identity) => {
            Err(Error::invalid("the message is marked as compressed, but `grpc-encoding` names no codec"))
        }
        (true, _) => Ok(encoding),
        (false, _) => Ok(Encoding::Identity),
    }
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

    fn head(name: &'static str, values: &[&'static str]) -> HeaderMap {
        values.iter().map(|&value| (http::HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn media_types() {
        for (values, expected) in [
            (&["application/grpc"][..], true),
            (&["Application/gRPC"], true),
            (&["application/grpc+proto"], true),
            (&["application/grpc; charset=utf-8"], true),
            (&["application/grpc+json"], false),
            (&["application/grpc-web"], false),
            (&["application/grpc-web+proto"], false),
            (&["application/grpcx"], false),
            (&["application/json"], false),
            (&[""], false),
            (&[], false),
        ] {
            let headers = head("content-type", values);
            assert_eq!(is_protobuf(&headers), expected, "{values:?}");
            assert_eq!(is_call(&headers), values.concat().to_ascii_lowercase().contains("grpc"), "{values:?}");
        }
    }

    #[test]
    fn deadlines() {
        let read = |values: &[&'static str]| deadline_of(&head("grpc-timeout", values));
        assert_eq!(read(&[]).ok(), Some(None));
        for (value, expected) in [
            ("1H", Duration::from_hours(1)),
            ("2M", Duration::from_mins(2)),
            ("30S", Duration::from_secs(30)),
            ("250m", Duration::from_millis(250)),
            ("7u", Duration::from_micros(7)),
            ("00000009n", Duration::from_nanos(9)),
            ("99999999H", Duration::from_hours(99_999_999)),
            ("0S", Duration::ZERO),
        ] {
            assert_eq!(read(&[value]).ok(), Some(Some(expected)), "{value}");
        }
        for values in
            [&[""][..], &["S"], &["5"], &["5s"], &["100000000S"], &["-1S"], &["+1S"], &["1.5S"], &["1S ", "1S"]]
        {
            assert_eq!(read(values).err().map(|e| e.kind), Some(ErrorKind::Invalid), "{values:?}");
        }
        let told = status(&late(), 1);
        assert_eq!((told.code(), told.details().len()), (Code::DeadlineExceeded, 0));
    }

    #[test]
    fn compressed_messages_need_a_codec() {
        let read = |packed: bool, values: &[&'static str]| {
            encoding_of(&head("grpc-encoding", values)).and_then(|encoding| encoding_within(packed, encoding))
        };
        for (packed, values, expected) in [
            (false, &[][..], Encoding::Identity),
            (false, &["gzip"], Encoding::Identity),
            (true, &["gzip"], Encoding::Gzip),
            (true, &["zstd"], Encoding::Zstd),
        ] {
            assert_eq!(read(packed, values).ok(), Some(expected), "{packed} {values:?}");
        }
        for (packed, values, expected) in [
            (true, &[][..], ErrorKind::Invalid),
            (true, &["identity"], ErrorKind::Invalid),
            (false, &["gzip", "zstd"], ErrorKind::Invalid),
            (true, &["gzip", "gzip"], ErrorKind::Invalid),
            (false, &["br"], ErrorKind::Unsupported),
        ] {
            assert_eq!(read(packed, values).err().map(|e| e.kind), Some(expected), "{packed} {values:?}");
        }
    }

    #[test]
    fn codecs_are_those_of_the_signal() {
        use crate::{logs_ingest::Logs, traces_grpc::Traces};

        fn told<S: Signal>() -> String {
            let response = accepting::<S>(message(b""));
            response.headers()["grpc-accept-encoding"].to_str().unwrap().to_owned()
        }
        // The decoders of metrics and traces refuse snappy.
        assert_eq!(told::<Metrics>(), "identity,gzip,deflate,zstd");
        assert_eq!(told::<Traces>(), told::<Metrics>());
        let taken = |name: &str| formats::otlp_metrics::FORMAT.encodings.iter().any(|one| one.name() == name);
        assert!(told::<Metrics>().split(',').all(|name| name == "identity" || taken(name)));
        assert_eq!(told::<Logs>(), "identity,gzip,deflate,zstd,snappy");
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
