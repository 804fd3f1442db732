//! Calls of gRPC: one message comes, messages or a status go. Its frames are made and read here, as its services are routes
//! like any other: within the memory for bodies, at the minimum pace, and decompressed within the same limits.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt;
use quiver_ingest::Encoding;
use quiver_ingest::wire::{put_bytes, put_varint};
use quiver_types::{Error, ErrorKind, Result};
use tonic::{Code, Status};

use crate::body_memory::{read_body, unpacked};
use crate::error::{grpc_code_of, log, public_text};
use crate::state::AppState;

/// What stands before a message: whether it is compressed, and its length.
pub(crate) const FRAME_BYTES: usize = 5;
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// A method of a gRPC service, without its messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Method {
    /// Its name in logs.
    pub(crate) route: &'static str,
    /// The supported compressions of its messages, for `grpc-accept-encoding`.
    pub(crate) encodings: &'static str,
}

/// The answer to calls of unknown services and methods.
pub(crate) fn unimplemented(text: &str) -> Response {
    Status::new(Code::Unimplemented, text).into_http::<Body>()
}

/// Whether a request is a call of gRPC in any of its forms.
pub(crate) fn is_call(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    kind.get(..16).is_some_and(|start| start.eq_ignore_ascii_case("application/grpc"))
}

/// Answers a call by what a function makes of it, within the deadline that the caller names.
pub(crate) async fn answered<F: Future<Output = Result<Response>>>(
    state: &AppState,
    method: Method,
    request: Request,
    run: impl FnOnce(Request) -> F,
) -> Response {
    if !is_protobuf(request.headers()) {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, [(header::CONTENT_TYPE, CONTENT_TYPE)]).into_response();
    }
    let answer = match deadline_of(request.headers()) {
        Ok(None) => run(request).await,
        Ok(Some(limit)) => tokio::time::timeout(limit, run(request)).await.unwrap_or_else(|_| Err(late())),
        Err(e) => Err(e),
    };
    let answer = answer.unwrap_or_else(|e| {
        log(&e, method.route);
        status(&e, state.settings.retry_after_s).into_http::<Body>()
    });
    accepting(method, answer)
}

/// Whether a call brings protobuf: `+json` and gRPC-Web are told so instead of being read as what they are not.
fn is_protobuf(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()) else { return false };
    let kind = value.split(';').next().unwrap_or_default().trim();
    ["application/grpc", "application/grpc+proto"].iter().any(|known| kind.eq_ignore_ascii_case(known))
}

/// Says how messages of a method may be compressed.
fn accepting(method: Method, mut response: Response) -> Response {
    response.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static(method.encodings));
    response
}

/// Reads the message of a call that asks for something, unpacked.
///
/// # Errors
/// Invalid: no single message, or not packed as is said; Unsupported: packed in a way that nobody knows; TooLarge and the rest as
/// [`read_body`].
pub(crate) async fn read_message(state: &AppState, request: Request) -> Result<Bytes> {
    let (head, body) = request.into_parts();
    let encoding = encoding_of(&head.headers)?;
    let bytes_max = state.settings.form_bytes_max;
    let framed_max = bytes_max.saturating_add(FRAME_BYTES);
    let body = read_body(&state.capacity.bodies, &head.headers, body, framed_max).await?;
    let (packed, body) = unframe(body)?;
    unpacked(&state.capacity.bodies, encoding_within(packed, encoding)?, body, bytes_max).await
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

/// The error of a call whose deadline has passed. Its data may be stored all the same, as with any abandoned call.
fn late() -> Error {
    Error::new(ErrorKind::Timeout, "the deadline of the call (`grpc-timeout`) has passed")
}

/// The compression that a call uses for its compressed messages.
pub(crate) fn encoding_of(headers: &HeaderMap) -> Result<Encoding> {
    let mut named = headers.get_all("grpc-encoding").iter().map(|v| v.to_str().unwrap_or("?"));
    let encoding = Encoding::from_header(named.next())?;
    if named.next().is_some() {
        return Err(Error::invalid("`grpc-encoding` is given more than once"));
    }
    Ok(encoding)
}

/// How a message is compressed. One that says it is, in a call that names no codec, would be read as what it is not.
pub(crate) fn encoding_within(packed: bool, encoding: Encoding) -> Result<Encoding> {
    match (packed, encoding) {
        (true, Encoding::Identity) => {
            Err(Error::invalid("the message is marked as compressed, but `grpc-encoding` names no codec"))
        }
        (true, _) => Ok(encoding),
        (false, _) => Ok(Encoding::Identity),
    }
}

/// Takes the single message out of a body. Returns whether it is compressed, and its bytes.
pub(crate) fn unframe(body: Bytes) -> Result<(bool, Bytes)> {
    let bad = |text: &str| Err(Error::invalid(text));
    let [packed, a, b, c, d, ..] = *body else { return bad("there is no message") };
    let len = u32::from_be_bytes([a, b, c, d]) as usize;
    match (packed, len == body.len() - FRAME_BYTES) {
        (0 | 1, true) => Ok((packed == 1, body.slice(FRAME_BYTES..))),
        (0 | 1, false) => bad("the body is not one whole message"),
        _ => bad("the frame has an unknown flag"),
    }
}

/// The frame header of an uncompressed message of so many bytes.
pub(crate) fn frame_head(len: usize) -> [u8; FRAME_BYTES] {
    let [a, b, c, d] = (len as u32).to_be_bytes();
    [0, a, b, c, d]
}

/// A successful answer of one message.
pub(crate) fn message(answer: &[u8]) -> Response {
    framed(Body::from([&frame_head(answer.len())[..], answer].concat()))
}

/// A successful answer: its messages with what stands before each.
pub(crate) fn framed(messages: Body) -> Response {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = messages.with_trailers(std::future::ready(Some(Ok(trailers))));
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

    #[tokio::test]
    async fn answers_end_with_a_status() {
        let mut body = message(b"ab").into_body();
        let data = body.frame().await.expect("a frame").expect("a frame").into_data().expect("data");
        assert_eq!(data[..], [0, 0, 0, 0, 2, b'a', b'b']);
        let trailers = body.frame().await.expect("a frame").expect("a frame").into_trailers().expect("trailers");
        assert_eq!(trailers["grpc-status"], "0");
        assert!(body.frame().await.is_none());
        assert_eq!(frame_head(0x0102_0304), [0, 1, 2, 3, 4]);
    }
}
