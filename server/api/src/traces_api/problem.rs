//! Errors of the traces API as problem documents (`config-api` 1.5).

use axum::response::Response;
use http::StatusCode;
use quiver_traces::TraceError;
use quiver_types::ErrorKind;

use crate::encode::problem::{problem_object, problem_response};
use crate::error::{log, public_text, status_of, with_retry_after};
use crate::request_context::RequestInfo;

fn document(status: StatusCode, code: &str, title: &str, detail: &str, more: &[(&str, &str)]) -> Response {
    let mut body = problem_object(status, code, detail);
    body["title"] = title.into();
    // The same as in the header, for clients that only keep bodies.
    if let Some(request) = RequestInfo::current() {
        body["requestId"] = request.id().into();
        body["instance"] = format!("/requests/{}", request.id()).into();
    }
    for (key, value) in more {
        body[*key] = (*value).into();
    }
    with_retry_after(problem_response(status, body.to_string()))
}

/// Makes the response for an error of something derived from a trace. Only the trace itself and its exports tell that
/// a hidden trace exists.
pub(super) fn derived(error: &TraceError, route: &str) -> Response {
    problem(if matches!(error, TraceError::Forbidden) { &TraceError::NotFound } else { error }, route)
}

/// Makes the response for an error.
pub(crate) fn problem(error: &TraceError, route: &str) -> Response {
    match error {
        TraceError::InvalidId => {
            let detail = "expected 32 or 16 hexadecimal digits";
            document(StatusCode::BAD_REQUEST, "INVALID_TRACE_ID", "Invalid trace id", detail, &[])
        }
        TraceError::Param(e) => {
            let detail = format!("parameter `{}`: {}", e.name, e.reason);
            document(
                StatusCode::BAD_REQUEST,
                "INVALID_PARAMETER",
                "Invalid parameter",
                &detail,
                &[("parameter", &e.name)],
            )
        }
        TraceError::Traceql(e) => {
            let detail = format!("invalid TraceQL query: {e}");
            document(StatusCode::BAD_REQUEST, "INVALID_PARAMETER", "Invalid TraceQL", &detail, &[("parameter", "q")])
        }
        TraceError::CursorMismatch => {
            let detail = "the cursor belongs to another search";
            document(StatusCode::BAD_REQUEST, "CURSOR_MISMATCH", "Cursor of another search", detail, &[])
        }
        TraceError::NotFound => {
            let detail = "trace not found or past its retention period";
            document(StatusCode::NOT_FOUND, "TRACE_NOT_FOUND", "Trace not found", detail, &[])
        }
        TraceError::Forbidden => {
            let (detail, required) = ("no access to any service of this trace", ("required", "{view, traces, *}"));
            document(StatusCode::FORBIDDEN, "FORBIDDEN", "Forbidden", detail, &[required])
        }
        TraceError::TooLarge(most) => {
            let detail = format!("more than {most} spans");
            document(StatusCode::PAYLOAD_TOO_LARGE, "TRACE_TOO_LARGE", "Trace too large", &detail, &[])
        }
        TraceError::Engine(e) => {
            log(e, route);
            let (code, title) = match e.kind {
                ErrorKind::Invalid => ("INVALID_PARAMETER", "Invalid request"),
                ErrorKind::TooLarge => ("BODY_TOO_LARGE", "Body too large"),
                ErrorKind::LimitExceeded => ("LIMIT_EXCEEDED", "Limit exceeded"),
                ErrorKind::Timeout | ErrorKind::SenderTimeout => ("TIMEOUT", "Timed out"),
                ErrorKind::Unavailable => ("STORE_BUSY", "Unavailable"),
                ErrorKind::Cancelled => ("CANCELLED", "Cancelled"),
                _ => ("INTERNAL", "Internal error"),
            };
            document(status_of(e.kind), code, title, public_text(e), &[])
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header;
    use http_body_util::BodyExt as _;
    use quiver_traces::ParamError;
    use quiver_traces::traceql::Query;
    use quiver_types::Error;
    use serde_json::Value;

    use super::*;

    /// Reads status and body of a response, which must be a problem document.
    async fn read(response: Response) -> (u16, Value) {
        let status = response.status();
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        let later = status == StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(response.headers().contains_key(header::RETRY_AFTER), later, "{status}");
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body["status"], status.as_u16());
        assert_eq!(body["detail"], body["error"]);
        let slug = body["code"].as_str().expect("a code").to_ascii_lowercase().replace('_', "-");
        assert_eq!(body["type"], format!("urn:quiver:problem:{slug}"));
        (status.as_u16(), body)
    }

    #[tokio::test]
    async fn errors_of_requests() {
        let wrong = Query::parse("{ broken").expect_err("no query");
        for (error, status, code, detail) in [
            (TraceError::InvalidId, 400, "INVALID_TRACE_ID", "expected 32 or 16 hexadecimal digits"),
            (
                TraceError::Param(ParamError::new("limit", "is no number")),
                400,
                "INVALID_PARAMETER",
                "parameter `limit`: is no number",
            ),
            (
                TraceError::Traceql(wrong),
                400,
                "INVALID_PARAMETER",
                "invalid TraceQL query: parse error at line 1, col 3: unknown identifier: broken",
            ),
            (TraceError::CursorMismatch, 400, "CURSOR_MISMATCH", "the cursor belongs to another search"),
            (TraceError::NotFound, 404, "TRACE_NOT_FOUND", "trace not found or past its retention period"),
            (TraceError::Forbidden, 403, "FORBIDDEN", "no access to any service of this trace"),
            (TraceError::TooLarge(5), 413, "TRACE_TOO_LARGE", "more than 5 spans"),
        ] {
            let (found, body) = read(problem(&error, "/traces")).await;
            assert_eq!((found, body["code"].as_str()), (status, Some(code)), "{body}");
            assert_eq!(body["detail"], detail);
        }
        let (_, body) = read(problem(&TraceError::Param(ParamError::new("limit", "")), "/traces")).await;
        assert_eq!(body["parameter"], "limit");
        let (_, body) = read(problem(&TraceError::Forbidden, "/traces")).await;
        assert_eq!(body["required"], "{view, traces, *}");
    }

    #[tokio::test]
    async fn errors_of_the_engine() {
        for (kind, status, code) in [
            (ErrorKind::Invalid, 400, "INVALID_PARAMETER"),
            (ErrorKind::TooLarge, 413, "BODY_TOO_LARGE"),
            (ErrorKind::LimitExceeded, 422, "LIMIT_EXCEEDED"),
            (ErrorKind::Timeout, 503, "TIMEOUT"),
            (ErrorKind::SenderTimeout, 408, "TIMEOUT"),
            (ErrorKind::Unavailable, 503, "STORE_BUSY"),
            (ErrorKind::Cancelled, 422, "CANCELLED"),
            (ErrorKind::Internal, 500, "INTERNAL"),
            (ErrorKind::Damaged, 500, "INTERNAL"),
        ] {
            let error = Error::new(kind, "what is said").with_source(std::io::Error::other("a secret"));
            let (found, body) = read(problem(&TraceError::Engine(error), "/traces")).await;
            assert_eq!((found, body["code"].as_str()), (status, Some(code)), "{kind:?}");
            assert_eq!(body["detail"], "what is said");
            assert!(!body.to_string().contains("secret"), "{body}");
        }
    }

    /// Would fail if something derived from a trace revealed the trace to a caller who may not see it.
    #[tokio::test]
    async fn a_hidden_trace_is_not_there() {
        let hidden = read(derived(&TraceError::Forbidden, "/traces/stats")).await;
        assert_eq!(hidden, read(derived(&TraceError::NotFound, "/traces/stats")).await);
        assert_eq!(hidden.0, 404);
        assert_eq!(read(derived(&TraceError::InvalidId, "/traces/stats")).await.0, 400);
    }
}
