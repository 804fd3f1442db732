//! Records that are not their sender's to write (`identity-and-access` 4.2): who may write what is asked per record, the
//! rest of a request is taken, and every answer says in a header how many were not.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use quiver_ingest::Sender;
use quiver_types::{Domain, Error, ErrorKind, Right, Services, Triple};
use serde_json::{Value, json};

use crate::request::RequestInfo;
use crate::state::AppState;

/// Says how many records of a request were refused for want of a right.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-quiver-refused");
/// What stands before the triple in the text of an error.
const NEEDS: &str = "this needs the right ";
/// The same where a text begins with its code.
const NAMED: &str = "FORBIDDEN: ";

/// Whose records of a domain the caller may write; none: all. `names` are the labels or fields that name a service.
pub(crate) fn sender(state: &AppState, domain: Domain, names: impl FnOnce() -> Arc<[String]>) -> Option<Arc<Sender>> {
    let access = state.ingest_access(domain);
    if access.is_full() { None } else { Sender::of(access, names()) }
}

/// Counts records that were refused; the answer to the request says how many.
pub(crate) fn note(count: u64) {
    if count > 0 {
        RequestInfo::note_refused(count);
    }
}

/// None of a request's records is the caller's to write; `service` is that of the first.
pub(crate) fn error(domain: Domain, service: Option<&str>) -> Error {
    let named = service.filter(|s| !s.is_empty()).and_then(Services::parse).filter(|s| s.prefix().is_none());
    let triple = Triple::new(Right::Ingest, Some(domain), named.unwrap_or_else(Services::all));
    Error::new(ErrorKind::Forbidden, format!("{NEEDS}{triple}"))
}

/// The same for OTLP, whose texts begin with the code.
pub(crate) fn otlp_error(domain: Domain, service: Option<&str>) -> Error {
    let Error { kind, message, .. } = error(domain, service);
    Error::new(kind, format!("{NAMED}{message}"))
}

/// The answer to a caller that may not do what it asks.
pub(crate) fn problem(error: &Error) -> Response {
    let detail = error.message.strip_prefix(NAMED).unwrap_or(&error.message);
    let request = RequestInfo::current();
    let body = body(StatusCode::FORBIDDEN, "FORBIDDEN", detail, request.as_ref().map_or("", RequestInfo::id));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json")),
        (header::WWW_AUTHENTICATE, HeaderValue::from_static(r#"Bearer realm="platform", error="insufficient_scope""#)),
    ];
    (StatusCode::FORBIDDEN, headers, body).into_response()
}

/// The answer to a request that has no family of its own to tell what is wrong.
pub(crate) fn problem_of(status: StatusCode, code: &str, detail: &str) -> Response {
    let request = RequestInfo::current();
    let body = body(status, code, detail, request.as_ref().map_or("", RequestInfo::id));
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"))], body).into_response()
}

/// A problem object; one for want of a right names the right.
pub(crate) fn body(status: StatusCode, code: &str, detail: &str, request_id: &str) -> String {
    object(status, code, detail, request_id).to_string()
}

/// The same as JSON.
pub(crate) fn object(status: StatusCode, code: &str, detail: &str, request_id: &str) -> Value {
    let slug = code.to_ascii_lowercase().replace('_', "-");
    let mut body = json!({
        "type": format!("urn:quiver:problem:{slug}"), "title": status.canonical_reason(), "status": status.as_u16(),
        "code": code, "detail": detail, "error": detail, "instance": format!("/requests/{request_id}"),
    });
    if let Some(triple) = detail.strip_prefix(NEEDS) {
        body["required"] = json!(triple);
    }
    body
}

/// The text of a refusal for want of a right.
pub(crate) fn needs(triple: &str) -> String {
    format!("{NEEDS}{triple}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_is_named() {
        let check = |service: Option<&str>, triple: &str| {
            let error = error(Domain::Logs, service);
            assert_eq!(error.message, format!("this needs the right {triple}"));
            let body: Value =
                serde_json::from_str(&body(StatusCode::FORBIDDEN, "FORBIDDEN", &error.message, "7")).expect("JSON");
            assert_eq!((&body["required"], &body["instance"]), (&json!(triple), &json!("/requests/7")));
        };
        check(Some("cart"), "{ingest, logs, cart}");
        check(Some(""), "{ingest, logs, *}");
        check(None, "{ingest, logs, *}");
        check(Some("ca*"), "{ingest, logs, *}");
        assert_eq!(
            otlp_error(Domain::Metrics, Some("a")).message,
            "FORBIDDEN: this needs the right {ingest, metrics, a}"
        );
    }
}
