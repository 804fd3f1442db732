//! Errors of the traces API as problem documents (`config-api` 1.5).

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use quiver_traces::TraceError;
use quiver_types::ErrorKind;
use serde_json::json;

use crate::error::{log, public_text, status_of, with_retry_after};
use crate::request::RequestInfo;

fn document(status: StatusCode, code: &str, title: &str, detail: &str, more: &[(&str, &str)]) -> Response {
    let slug = code.to_ascii_lowercase().replace('_', "-");
    let mut body = json!({
        "type": format!("urn:quiver:problem:{slug}"), "title": title, "status": status.as_u16(), "code": code,
        "detail": detail, "error": detail,
    });
    // The same as in the header, for those who keep bodies only.
    if let Some(request) = RequestInfo::current() {
        body["requestId"] = request.id().into();
        body["instance"] = format!("/requests/{}", request.id()).into();
    }
    for (key, value) in more {
        body[*key] = (*value).into();
    }
    with_retry_after((status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response())
}

/// Gives the answer of what is made of a trace: that a hidden one is there shows on the trace itself and its exports only.
pub(super) fn derived(error: &TraceError, route: &str) -> Response {
    problem(if matches!(error, TraceError::Forbidden) { &TraceError::NotFound } else { error }, route)
}

/// Gives the answer to an error.
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
