//! Errors of analytics as problem documents that always have the text `error`, which client libraries show.

use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, header};
use quiver_olap::OlapError;
use quiver_types::ErrorKind;
use serde_json::json;

use crate::error::{log, public_text, status_of, with_retry_after};
use crate::request::RequestInfo;

/// Gives the answer to an error.
pub(super) fn problem(error: &OlapError, route: &str) -> Response {
    let (status, code, detail) = match error {
        OlapError::Query(e) => (StatusCode::BAD_REQUEST, "INVALID_QUERY", e.message.clone()),
        OlapError::Engine(e) => {
            log(e, route);
            let code = match e.kind {
                ErrorKind::Invalid => "INVALID_QUERY",
                ErrorKind::TooLarge => "BODY_TOO_LARGE",
                ErrorKind::LimitExceeded => "LIMIT_EXCEEDED",
                ErrorKind::Timeout => "QUERY_TIMEOUT",
                ErrorKind::Unavailable => "OVERLOADED",
                ErrorKind::Cancelled => "QUERY_CANCELLED",
                ErrorKind::Execution => "CANNOT_EXECUTE",
                _ => "INTERNAL",
            };
            (status_of(e.kind), code, public_text(e).to_owned())
        }
    };
    let mut body = json!({
        "type": format!("urn:quiver:problem:{}", code.to_ascii_lowercase().replace('_', "-")),
        "title": status.canonical_reason().unwrap_or_default(), "status": status.as_u16(), "code": code,
        "detail": detail, "error": detail,
    });
    if let OlapError::Query(e) = error {
        body["type"] = "UserError".into();
        body["reason"] = e.reason.as_str().into();
        body["pointer"] = e.pointer.as_str().into();
    }
    if let Some(request) = RequestInfo::current() {
        body["requestId"] = request.id().into();
    }
    with_retry_after((status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response())
}
