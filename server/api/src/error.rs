//! The one mapping from error kinds to HTTP statuses, and the envelopes in which errors are sent.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use quiver_types::{Error, ErrorKind, LogPace, brief};

/// Default of `Retry-After` on 429 and 503, in seconds.
pub const RETRY_AFTER_S: u32 = 1;

/// Gives the HTTP status of a kind.
pub fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        // A client that is still there to read of a cancellation did not cause it: an operator did, and a retry should
        // not be suggested.
        ErrorKind::Execution | ErrorKind::LimitExceeded | ErrorKind::Cancelled => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::Unsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ErrorKind::SenderTimeout => StatusCode::REQUEST_TIMEOUT,
        ErrorKind::Timeout | ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Damaged | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Gives the gRPC status code of a kind.
pub fn grpc_code_of(kind: ErrorKind) -> tonic::Code {
    match kind {
        ErrorKind::Invalid | ErrorKind::Execution => tonic::Code::InvalidArgument,
        ErrorKind::Unauthenticated => tonic::Code::Unauthenticated,
        ErrorKind::Forbidden => tonic::Code::PermissionDenied,
        ErrorKind::NotFound => tonic::Code::NotFound,
        ErrorKind::Conflict => tonic::Code::Aborted,
        // Without retry information, since a retry can never succeed.
        ErrorKind::TooLarge | ErrorKind::LimitExceeded => tonic::Code::ResourceExhausted,
        ErrorKind::Unsupported => tonic::Code::Unimplemented,
        ErrorKind::Timeout | ErrorKind::SenderTimeout => tonic::Code::DeadlineExceeded,
        ErrorKind::Cancelled => tonic::Code::Cancelled,
        ErrorKind::Unavailable => tonic::Code::Unavailable,
        ErrorKind::Damaged => tonic::Code::DataLoss,
        ErrorKind::Internal => tonic::Code::Internal,
    }
}

/// Gives the message for the caller; internal errors never show their cause.
pub fn public_text(error: &Error) -> &str {
    &error.message
}

/// Of requests that are refused for want of something: where that lasts, as with a full disk, each request is.
static PACE: LogPace = LogPace::new();

/// Logs an error once, at the edge: the caller's fault at `debug`, ours at `error`. What many requests lack alike is
/// logged once in a second for each route.
pub fn log(error: &Error, route: &str) {
    // Written only where a level is logged: a cause may hold a value of any length.
    let cause = || error.source.as_ref().map(brief);
    match error.kind {
        ErrorKind::Damaged | ErrorKind::Internal => tracing::error!(route, cause = cause(), "{error}"),
        ErrorKind::Unavailable => {
            if let Some(left_out) = PACE.turn(&pace_key(error, route)) {
                tracing::warn!(route, cause = cause(), left_out, "{error}");
            }
        }
        _ => tracing::debug!(route, cause = cause(), "{error}"),
    }
}

/// The route and the words of a message, without the numbers and names in it.
fn pace_key(error: &Error, route: &str) -> String {
    let words = error.message.split(|c: char| c.is_ascii_digit() || c == '`').next().unwrap_or_default();
    format!("{route} {words}")
}

/// Adds `Retry-After` to responses that ask for a retry.
pub fn with_retry_after(mut response: Response) -> Response {
    if matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        response.headers_mut().entry(header::RETRY_AFTER).or_insert_with(|| HeaderValue::from(RETRY_AFTER_S));
    }
    response
}

/// Makes a plain-text answer.
pub fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    let mut text = text.into();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let content_type = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    with_retry_after((status, content_type, Body::from(text)).into_response())
}

/// Makes a plain-text response of an error, and logs it. A missing right is reported in the common form.
pub fn plain_error(error: &Error, route: &str) -> Response {
    log(error, route);
    if error.kind == ErrorKind::Forbidden {
        return crate::forbidden_records::problem(error);
    }
    plain(status_of(error.kind), public_text(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_stands_on_overload() {
        let check = |kind, expected| {
            let response = plain_error(&Error::new(kind, "x"), "/");
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), expected, "{kind:?}");
        };
        check(ErrorKind::Unavailable, true);
        check(ErrorKind::Timeout, true);
        check(ErrorKind::Invalid, false);
    }

    #[test]
    fn what_differs_in_numbers_alone_is_logged_at_one_pace() {
        let key = |text: &str, route| pace_key(&Error::new(ErrorKind::Unavailable, text.to_owned()), route);
        assert_eq!(
            key("disk is nearly full: 17 bytes are free", "/w"),
            key("disk is nearly full: 8 bytes are free", "/w")
        );
        assert_eq!(key("cannot read object `a`", "/w"), key("cannot read object `b`", "/w"));
        assert_ne!(key("disk is full", "/w"), key("disk is full", "/v"));
        assert_ne!(key("disk is full", "/w"), key("write-ahead log cannot be written", "/w"));
    }

    /// Breaks if a kind has no fixed status over HTTP and code over gRPC, or asks for a repetition that cannot succeed.
    #[test]
    fn each_kind_has_its_status() {
        use tonic::Code;
        for (kind, status, code, comes_back) in [
            (ErrorKind::Invalid, 400, Code::InvalidArgument, false),
            (ErrorKind::Execution, 422, Code::InvalidArgument, false),
            (ErrorKind::LimitExceeded, 422, Code::ResourceExhausted, false),
            (ErrorKind::Cancelled, 422, Code::Cancelled, false),
            (ErrorKind::Unauthenticated, 401, Code::Unauthenticated, false),
            (ErrorKind::Forbidden, 403, Code::PermissionDenied, false),
            (ErrorKind::NotFound, 404, Code::NotFound, false),
            (ErrorKind::Conflict, 409, Code::Aborted, false),
            (ErrorKind::TooLarge, 413, Code::ResourceExhausted, false),
            (ErrorKind::Unsupported, 415, Code::Unimplemented, false),
            (ErrorKind::SenderTimeout, 408, Code::DeadlineExceeded, false),
            (ErrorKind::Timeout, 503, Code::DeadlineExceeded, true),
            (ErrorKind::Unavailable, 503, Code::Unavailable, true),
            (ErrorKind::Damaged, 500, Code::DataLoss, false),
            (ErrorKind::Internal, 500, Code::Internal, false),
        ] {
            assert_eq!((status_of(kind).as_u16(), grpc_code_of(kind)), (status, code), "{kind:?}");
            let answer = plain_error(&Error::new(kind, "x"), "/");
            assert_eq!(answer.status().as_u16(), status, "{kind:?}");
            assert_eq!(answer.headers().contains_key(header::RETRY_AFTER), comes_back, "{kind:?}");
        }
    }

    #[tokio::test]
    async fn plain_answers_end_with_one_line_break() {
        use http_body_util::BodyExt as _;
        for (text, expected) in [("", "\n"), ("a", "a\n"), ("a\n", "a\n"), ("a\nb", "a\nb\n")] {
            let answer = plain(StatusCode::OK, text);
            assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/plain; charset=utf-8");
            let body = answer.into_body().collect().await.expect("a body").to_bytes();
            assert_eq!(body, expected, "{text:?}");
        }
        // What a handler knows better stays.
        let mut busy = StatusCode::TOO_MANY_REQUESTS.into_response();
        busy.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("30"));
        assert_eq!(with_retry_after(busy).headers()[header::RETRY_AFTER], "30");
        assert!(!with_retry_after(StatusCode::OK.into_response()).headers().contains_key(header::RETRY_AFTER));
    }

    /// The cause of a fault is in the log alone.
    #[tokio::test]
    async fn causes_are_not_told() {
        use http_body_util::BodyExt as _;
        let fault = Error::internal("it broke").with_source(std::io::Error::other("a path"));
        let answer = plain_error(&fault, "/").into_body().collect().await.expect("a body").to_bytes();
        assert_eq!(answer, "it broke\n");
    }
}
