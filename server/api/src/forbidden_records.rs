//! Records that their sender may not write (`identity-and-access` 4.2). Rights are checked per record; the rest of a
//! request is stored, and each response gives the number of refused records in a header.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use quiver_ingest::Sender;
use quiver_types::{Access, Domain, Error, ErrorKind, Right, Services, Triple};
use serde_json::{Value, json};

use crate::encode::problem::{PROBLEM, problem_object, problem_response};
use crate::request_context::RequestInfo;

/// Says how many records of a request were refused for want of a right.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-quiver-refused");
/// What stands before the triple in the text of an error.
const NEEDS: &str = "this needs the right ";
/// The same where a text begins with its code.
const NAMED: &str = "FORBIDDEN: ";

/// Whose records a caller of such an access may write; none: all. `names` are the labels or fields that name a service.
pub(crate) fn sender(access: Access, names: impl FnOnce() -> Arc<[String]>) -> Option<Arc<Sender>> {
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

/// What `WWW-Authenticate` says beside a code.
pub(crate) fn challenge(code: &str) -> Option<HeaderValue> {
    Some(HeaderValue::from_static(match code {
        "TOKEN_MISSING" => r#"Bearer realm="platform""#,
        "TOKEN_INVALID" => r#"Bearer realm="platform", error="invalid_token""#,
        "TOKEN_EXPIRED" => {
            r#"Bearer realm="platform", error="invalid_token", error_description="The access token expired""#
        }
        "FORBIDDEN" => r#"Bearer realm="platform", error="insufficient_scope""#,
        _ => return None,
    }))
}

/// Marks an answer of 403 that no right would change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForbiddenToAll;

/// Adds it to the answer of a handler that found a right lacking.
pub(crate) fn challenged(mut response: Response) -> Response {
    let told = response.headers().contains_key(header::WWW_AUTHENTICATE);
    let lacks = response.status() == StatusCode::FORBIDDEN && response.extensions().get::<ForbiddenToAll>().is_none();
    if let Some(value) = challenge("FORBIDDEN").filter(|_| lacks && !told) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }
    response
}

/// The answer to a caller that may not do what it asks.
pub(crate) fn problem(error: &Error) -> Response {
    forbidden(error, PROBLEM)
}

/// The same for clients of Alertmanager's API.
pub(crate) fn alertmanager_problem(error: &Error) -> Response {
    forbidden(error, "application/json")
}

fn forbidden(error: &Error, kind: &'static str) -> Response {
    let detail = error.message.strip_prefix(NAMED).unwrap_or(&error.message);
    let request = RequestInfo::current();
    let body = body(StatusCode::FORBIDDEN, "FORBIDDEN", detail, request.as_ref().map_or("", RequestInfo::id));
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(kind))];
    challenged((StatusCode::FORBIDDEN, kind, body).into_response())
}

/// The media type of a problem object on a path. Clients that are generated from Alertmanager's description, as `amtool`
/// is, know no other JSON than `application/json`: with another one they say that they cannot read it, and not what it says.
pub(crate) fn problem_type(path: &str) -> &'static str {
    let of_alertmanager = path.strip_prefix("/api/v2/").is_some_and(|rest| {
        let family = rest.split('/').next().unwrap_or_default();
        ["alerts", "alertprocess", "silences", "silence", "status", "receivers"].contains(&family)
    });
    if of_alertmanager { "application/json" } else { PROBLEM }
}

/// The answer to a request that has no family of its own to tell what is wrong.
pub(crate) fn problem_of(status: StatusCode, code: &str, detail: &str) -> Response {
    let request = RequestInfo::current();
    let body = body(status, code, detail, request.as_ref().map_or("", RequestInfo::id));
    problem_response(status, body)
}

/// A problem object; one for want of a right names the right.
pub(crate) fn body(status: StatusCode, code: &str, detail: &str, request_id: &str) -> String {
    object(status, code, detail, request_id).to_string()
}

/// The same as JSON.
pub(crate) fn object(status: StatusCode, code: &str, detail: &str, request_id: &str) -> Value {
    let mut body = problem_object(status, code, detail);
    body["instance"] = json!(format!("/requests/{request_id}"));
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
    fn the_media_type_is_one_that_clients_read() {
        for path in ["alerts", "alerts/groups", "alertprocess", "silences", "silence/7", "status", "receivers"] {
            assert_eq!(problem_type(&format!("/api/v2/{path}")), "application/json", "{path}");
        }
        for path in ["/api/v2/spans", "/api/v2/traces", "/api/v2/alertsome", "/rulesapi/silences", "/api/traces"] {
            assert_eq!(problem_type(path), PROBLEM, "{path}");
        }
    }

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

    #[test]
    fn challenges_say_what_is_wrong_with_the_token() {
        for (code, error) in [
            ("TOKEN_MISSING", None),
            ("TOKEN_INVALID", Some("invalid_token")),
            ("TOKEN_EXPIRED", Some("invalid_token")),
            ("FORBIDDEN", Some("insufficient_scope")),
        ] {
            let told = challenge(code).expect(code);
            let told = told.to_str().expect("a text");
            assert!(told.starts_with("Bearer realm=\"platform\""), "{told}");
            let named = told.split("error=\"").nth(1).and_then(|rest| rest.split('"').next());
            assert_eq!(named, error, "{code}");
        }
        assert_eq!(challenge("RATE_LIMITED").or(challenge("")), None);
    }

    /// A right that lacks is asked for, once; what no right would change is not.
    #[test]
    fn only_who_lacks_a_right_is_asked_for_one() {
        let is_asked = |response: Response| challenged(response).headers().contains_key(header::WWW_AUTHENTICATE);
        assert!(is_asked(StatusCode::FORBIDDEN.into_response()));
        for status in [StatusCode::OK, StatusCode::BAD_REQUEST, StatusCode::UNAUTHORIZED, StatusCode::NOT_FOUND] {
            assert!(!is_asked(status.into_response()), "{status}");
        }
        let mut forever = StatusCode::FORBIDDEN.into_response();
        forever.extensions_mut().insert(ForbiddenToAll);
        assert!(!is_asked(forever));
        let told = challenged(challenged(StatusCode::FORBIDDEN.into_response()));
        assert_eq!(told.headers().get_all(header::WWW_AUTHENTICATE).iter().count(), 1);
    }

    #[test]
    fn problems_have_their_fields() {
        let shown = object(StatusCode::NOT_FOUND, "NO_SUCH_THING", "what is wrong", "7");
        let expected = json!({
            "type": "urn:quiver:problem:no-such-thing", "title": "Not Found", "status": 404, "code": "NO_SUCH_THING",
            "detail": "what is wrong", "error": "what is wrong", "instance": "/requests/7",
        });
        assert_eq!(shown, expected);
        let lacking = object(StatusCode::FORBIDDEN, "FORBIDDEN", &needs("{view, logs, *}"), "");
        assert_eq!(lacking["required"], "{view, logs, *}");
        // Only a text that begins so names a right.
        let other = object(StatusCode::FORBIDDEN, "FORBIDDEN", "say why this needs the right {a}", "");
        assert_eq!(other.get("required"), None);
    }

    /// Clients of Alertmanager read no other JSON; everybody else is told that it is a problem.
    #[test]
    fn forms_of_refusals() {
        let error = error(Domain::Alerts, Some("cart"));
        for (answer, kind) in [(problem(&error), PROBLEM), (alertmanager_problem(&error), "application/json")] {
            assert_eq!(answer.status(), StatusCode::FORBIDDEN);
            assert_eq!(answer.headers()[header::CONTENT_TYPE], kind);
            assert!(
                answer.headers()[header::WWW_AUTHENTICATE].to_str().is_ok_and(|t| t.contains("insufficient_scope"))
            );
        }
        let gone = problem_of(StatusCode::GONE, "GONE", "it was there");
        assert_eq!(
            (gone.status(), &gone.headers()[header::CONTENT_TYPE]),
            (StatusCode::GONE, &HeaderValue::from_static(PROBLEM))
        );
    }
}
