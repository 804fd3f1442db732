//! The one mapping from error kinds to statuses, and the envelopes that carry errors.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use quiver_types::{Error, ErrorKind};

/// What `Retry-After` says on 429 and 503, in seconds, where nothing better is known.
pub const RETRY_AFTER_S: u32 = 1;

/// Gives the HTTP status of a kind.
pub fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        // Who is told of a cancellation did not cancel it: an operator did, and asking again is not meant to help.
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
        // Without a word on when to come back: it never fits, and a sender must not repeat it.
        ErrorKind::TooLarge | ErrorKind::LimitExceeded => tonic::Code::ResourceExhausted,
        ErrorKind::Unsupported => tonic::Code::Unimplemented,
        ErrorKind::Timeout | ErrorKind::SenderTimeout => tonic::Code::DeadlineExceeded,
        ErrorKind::Cancelled => tonic::Code::Cancelled,
        ErrorKind::Unavailable => tonic::Code::Unavailable,
        ErrorKind::Damaged => tonic::Code::DataLoss,
        ErrorKind::Internal => tonic::Code::Internal,
    }
}

/// Gives the text that a caller sees: faults of ours never show their cause.
pub fn public_text(error: &Error) -> &str {
    &error.message
}

/// Logs an error once, at the edge: the caller's fault at `debug`, ours at `error`.
pub fn log(error: &Error, route: &str) {
    let cause = error.source.as_ref().map(ToString::to_string);
    match error.kind {
        ErrorKind::Damaged | ErrorKind::Internal => tracing::error!(route, cause, "{error}"),
        ErrorKind::Unavailable => tracing::warn!(route, cause, "{error}"),
        _ => tracing::debug!(route, cause, "{error}"),
    }
}

/// Adds `Retry-After` where a status asks to come back.
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

/// Makes a plain-text answer of an error, and logs it. Want of a right is told as everywhere.
pub fn plain_error(error: &Error, route: &str) -> Response {
    log(error, route);
    if error.kind == ErrorKind::Forbidden {
        return crate::refused::problem(error);
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
}
