//! Responses of the configuration API: entities, lists, problems; and the form in which they are stored for
//! repetition.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use quiver_config::{ChangeMode, FieldError, Problem, ProblemKind};
use serde_json::{Value, json};

use super::export::ExportBody;
use super::list_body::ListBody;
use crate::encode::problem::{PROBLEM, problem_object};
use crate::error::with_retry_after;
use crate::forbidden_records::ForbiddenToAll;
use crate::request_context::RequestInfo;

/// Longest text of a warning, in characters.
const CHARS_MAX: usize = 1000;

/// A complete response.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Null if there is no body.
    pub(crate) body: Value,
    pub(crate) etag: Option<String>,
    pub(crate) location: Option<String>,
    pub(crate) is_problem: bool,
    pub(crate) is_replayed: bool,
    /// Sent unchanged, instead of the body.
    pub(crate) yaml: Option<String>,
    /// Sent instead of both. It is not stored: no request that exports takes a key.
    pub(crate) sent: Option<ExportBody>,
    /// A list, as JSON; not stored either.
    pub(crate) listed: Option<ListBody>,
    /// For people: what is incomplete or doubtful (`Warning` header).
    pub(crate) warning: Option<String>,
}

/// What is wrong with a field, with the place if the field is a text.
fn shown_error(error: &FieldError) -> Value {
    let mut shown = json!({"field": error.field, "code": error.code, "message": error.message});
    if let Some((line, column)) = error.place {
        (shown["line"], shown["column"]) = (json!(line), json!(column));
    }
    shown
}

impl Answer {
    /// 200 with a body.
    pub(crate) fn ok(body: Value) -> Self {
        Self {
            status: 200,
            body,
            etag: None,
            location: None,
            is_problem: false,
            is_replayed: false,
            yaml: None,
            sent: None,
            listed: None,
            warning: None,
        }
    }

    /// 204, without a body.
    pub(crate) fn nothing() -> Self {
        Self { status: 204, ..Self::ok(Value::Null) }
    }

    /// The response for a problem; internal errors are logged here, once.
    pub(crate) fn of_problem(problem: &Problem) -> Self {
        if matches!(problem.kind, ProblemKind::Internal | ProblemKind::Busy) {
            tracing::error!(code = problem.code, cause = problem.cause, "configuration cannot be read or written");
        }
        let status: u16 = match problem.kind {
            ProblemKind::Malformed => 400,
            ProblemKind::Unauthenticated => 401,
            ProblemKind::Forbidden => 403,
            ProblemKind::NotFound => 404,
            ProblemKind::MethodNotAllowed => 405,
            ProblemKind::SenderTimeout => 408,
            ProblemKind::Conflict => 409,
            ProblemKind::Precondition => 412,
            ProblemKind::TooLarge => 413,
            ProblemKind::UnsupportedMediaType => 415,
            ProblemKind::Invalid => 422,
            ProblemKind::Limited => 429,
            ProblemKind::Busy => 503,
            ProblemKind::Internal => 500,
        };
        let shown = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut body = problem_object(shown, problem.code, &problem.detail);
        if let Some(request) = RequestInfo::current() {
            body["instance"] = json!(format!("/requests/{}", request.id()));
        }
        let errors = problem.errors.iter().map(shown_error);
        if !problem.errors.is_empty() {
            body["errors"] = errors.collect();
        }
        for (key, value) in problem.more.iter().filter(|(key, _)| *key != "etag") {
            body[key] = value.clone();
        }
        let etag = problem.more.get("etag").and_then(Value::as_str).map(str::to_owned);
        Self { status, etag, is_problem: true, ..Self::ok(body) }
    }

    /// Serializes the response for storing.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Self { status, body, etag, location, is_problem, is_replayed: _, yaml, sent: _, listed: _, warning } = self;
        json!([status, body, etag, location, is_problem, yaml, warning]).to_string().into_bytes()
    }

    /// A replacement if the response is too long to be stored: the outcome without the body.
    pub(crate) fn shortened(&self) -> Self {
        let warning = "the answer was too long to be kept; this says only how the request ended".to_owned();
        Self { body: Value::Null, yaml: None, warning: Some(warning), ..self.clone() }
    }

    /// Reads a stored response.
    pub(crate) fn replayed(bytes: &[u8]) -> Self {
        let kept = serde_json::from_slice(bytes).or_else(|_| {
            // Earlier builds stored neither YAML nor warnings.
            serde_json::from_slice(bytes).map(|(status, body, etag, location, is_problem)| {
                (status, body, etag, location, is_problem, None, None)
            })
        });
        match kept {
            Ok((status, body, etag, location, is_problem, yaml, warning)) => {
                Self { status, etag, location, is_problem, is_replayed: true, yaml, warning, ..Self::ok(body) }
            }
            Err(error) => Self::of_problem(&Problem::internal(error)),
        }
    }

    /// Responds with an outcome, without a revision.
    pub(crate) fn respond(outcome: quiver_config::Result<Self>) -> Response {
        outcome.unwrap_or_else(|problem| Self::of_problem(&problem)).into_response(None)
    }

    /// Makes the HTTP response.
    pub(crate) fn into_response(self, revision: Option<u64>) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (kind, body) = match (self.sent, self.yaml, self.listed) {
            (Some(sent), ..) => (Some(sent.content_type()), sent.body()),
            (None, Some(text), _) => (Some("application/yaml"), Body::from(text)),
            (None, None, Some(listed)) => (Some("application/json"), listed.body()),
            (None, None, None) if self.body.is_null() => (None, Body::empty()),
            (None, None, None) => {
                let kind = if self.is_problem { PROBLEM } else { "application/json" };
                (Some(kind), Body::from(self.body.to_string()))
            }
        };
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        if let Some(kind) = kind {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, value) in [(header::ETAG, self.etag), (header::LOCATION, self.location)] {
            if let Some(value) = value.and_then(|v| HeaderValue::try_from(v).ok()) {
                headers.insert(name, value);
            }
        }
        let is_forever = self.is_problem && self.status == 403 && self.body["code"] != "FORBIDDEN";
        if let Some(text) = self.warning.and_then(|w| HeaderValue::try_from(header_text(&w)).ok()) {
            headers.insert(header::WARNING, text);
        }
        if self.is_replayed {
            headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
        }
        if let Some(revision) = revision {
            headers.insert("x-config-revision", HeaderValue::from(revision));
        }
        if is_forever {
            response.extensions_mut().insert(ForbiddenToAll);
        }
        with_retry_after(response)
    }
}

/// A warning in the syntax of its header: quoted, on one line.
fn header_text(warning: &str) -> String {
    let mut text = String::from("199 - \"");
    for c in warning.chars().take(CHARS_MAX) {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_control() => text.push(' '),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

/// Marks the response of a dry run as such.
pub(crate) fn with_dry_run(mut response: Response, mode: ChangeMode) -> Response {
    if mode.is_dry_run() {
        response.headers_mut().insert("x-dry-run", HeaderValue::from_static("true"));
    }
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[test]
    fn each_problem_has_its_status() {
        for (kind, status) in [
            (ProblemKind::Malformed, 400),
            (ProblemKind::Unauthenticated, 401),
            (ProblemKind::Forbidden, 403),
            (ProblemKind::NotFound, 404),
            (ProblemKind::MethodNotAllowed, 405),
            (ProblemKind::SenderTimeout, 408),
            (ProblemKind::Conflict, 409),
            (ProblemKind::Precondition, 412),
            (ProblemKind::TooLarge, 413),
            (ProblemKind::UnsupportedMediaType, 415),
            (ProblemKind::Invalid, 422),
            (ProblemKind::Limited, 429),
            (ProblemKind::Busy, 503),
            (ProblemKind::Internal, 500),
        ] {
            let answer = Answer::of_problem(&Problem::new(kind, "SOME_CODE", "what is wrong"));
            assert!(answer.is_problem);
            assert_eq!((answer.status, &answer.body["status"]), (status, &json!(status)));
            assert_eq!(answer.body["type"], "urn:quiver:problem:some-code");
            assert_eq!(
                (&answer.body["detail"], &answer.body["error"]),
                (&json!("what is wrong"), &json!("what is wrong"))
            );
        }
        // The word is for programs; it decides nothing.
        assert_eq!(Answer::of_problem(&Problem::new(ProblemKind::Malformed, "TIMEOUT", "")).status, 400);
    }

    #[test]
    fn problems_say_where_and_keep_secrets() {
        let problem = Problem::field("/name", "REQUIRED", "is missing").with("etag", json!("\"5\""));
        let answer = Answer::of_problem(&problem.with("current", json!({"id": "a"})));
        assert_eq!(answer.body["errors"], json!([{"field": "/name", "code": "REQUIRED", "message": "is missing"}]));
        let inner = Problem::invalid(vec![FieldError::new("/expr", "INVALID_EXPR", "no").at(2, 7)]).below("/rule");
        let expected =
            json!([{"field": "/rule/expr", "code": "INVALID_EXPR", "message": "no", "line": 2, "column": 7}]);
        assert_eq!(Answer::of_problem(&inner).body["errors"], expected);
        assert_eq!(answer.body["detail"], "/name: is missing");
        assert_eq!(answer.body["current"], json!({"id": "a"}));
        assert_eq!((answer.etag.as_deref(), answer.body.get("etag")), (Some("\"5\""), None));
        let ours = Answer::of_problem(&Problem::internal("a secret"));
        assert_eq!((ours.status, ours.body.get("errors")), (500, None));
        assert!(!ours.body.to_string().contains("secret"), "{}", ours.body);
    }

    #[test]
    fn answers_are_kept() {
        let text = |text: &str| Some(text.to_owned());
        let kept =
            Answer { status: 201, etag: text("\"1\""), location: text("/a/b"), ..Answer::ok(json!({"id": "b"})) };
        let again = Answer::replayed(&kept.to_bytes());
        assert!(again.is_replayed && !again.is_problem);
        assert_eq!((again.status, &again.body, &again.etag), (kept.status, &kept.body, &kept.etag));
        assert_eq!(again.location, kept.location);
        let refused = Answer::replayed(&Answer::of_problem(&Problem::not_found("x")).to_bytes());
        assert!(refused.is_problem && refused.is_replayed);
        assert_eq!(refused.status, 404);
        let exported = Answer { yaml: text("a: 1\n"), warning: text("not all"), ..Answer::ok(Value::Null) };
        let again = Answer::replayed(&exported.to_bytes());
        assert_eq!((again.status, again.yaml, again.warning), (200, exported.yaml, exported.warning));
        // One that was too long to be stored.
        let again = Answer::replayed(&kept.shortened().to_bytes());
        assert_eq!((again.status, again.etag.as_deref(), &again.body), (201, Some("\"1\""), &Value::Null));
        assert!(again.warning.is_some_and(|warning| warning.contains("too long")));
        // Stored by an earlier build.
        let again = Answer::replayed(br#"[204,null,null,"/a",false]"#);
        assert_eq!((again.status, again.location, again.yaml, again.is_replayed), (204, text("/a"), None, true));
        for damaged in [&b""[..], b"[]", b"[200]", b"{}"] {
            assert_eq!(Answer::replayed(damaged).status, 500);
        }
    }

    /// Returns status, some headers, and the body as they are sent.
    async fn sent(answer: Answer, names: &[&str]) -> (u16, Vec<Option<String>>, String) {
        let response = answer.into_response(Some(7));
        let value = |name: &&str| response.headers().get(*name).map(|value| value.to_str().expect("a text").to_owned());
        let (status, headers) = (response.status().as_u16(), names.iter().map(value).collect());
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, headers, String::from_utf8(body.to_vec()).expect("a text"))
    }

    #[tokio::test]
    async fn answers_are_sent_with_their_headers() {
        let text = |text: &str| Some(text.to_owned());
        let names = ["content-type", "cache-control", "etag", "location", "idempotency-replayed", "x-config-revision"];
        let made = Answer {
            status: 201,
            etag: text("\"1\""),
            location: text("/a/b"),
            is_replayed: true,
            ..Answer::ok(json!({"id": "b"}))
        };
        let all = ["application/json", "no-store", "\"1\"", "/a/b", "true", "7"].map(text).to_vec();
        assert_eq!(sent(made, &names).await, (201, all, r#"{"id":"b"}"#.to_owned()));
        let (status, headers, body) = sent(Answer::nothing(), &names).await;
        assert_eq!((status, &headers[0], body.as_str()), (204, &None, ""));
        let yaml = Answer { yaml: text("a: 1\n"), ..Answer::ok(json!({"a": 1})) };
        let (_, headers, body) = sent(yaml, &names).await;
        assert_eq!((headers[0].as_deref(), body.as_str()), (Some("application/yaml"), "a: 1\n"));
        let busy = Answer::of_problem(&Problem::new(ProblemKind::Busy, "STORE_BUSY", ""));
        let (status, headers, _) = sent(busy, &["content-type", "retry-after"]).await;
        assert_eq!((status, headers[0].as_deref()), (503, Some("application/problem+json")));
        assert!(headers[1].is_some());
        // A line break in a value would begin another header.
        let warned = Answer { warning: text("a \"b\"\r\nSet-Cookie: c"), ..Answer::ok(json!({})) };
        let (_, headers, _) = sent(warned, &["warning", "set-cookie"]).await;
        assert_eq!(headers, [text("199 - \"a \\\"b\\\"  Set-Cookie: c\""), None]);
    }

    #[test]
    fn some_refusals_are_for_ever() {
        let is_forever = |problem: &Problem| {
            Answer::of_problem(problem).into_response(None).extensions().get::<ForbiddenToAll>().is_some()
        };
        assert!(is_forever(&Problem::new(ProblemKind::Forbidden, "BUILT_IN", "")));
        // The right may be granted later.
        assert!(!is_forever(&Problem::forbidden("{edit, rules, *}")));
        assert!(!is_forever(&Problem::not_found("a")));
    }

    #[test]
    fn warnings_stand_in_one_line_between_quotes() {
        let check = |warning: &str, expected: &str| assert_eq!(header_text(warning), expected, "{warning:?}");
        check("", "199 - \"\"");
        check("fine", "199 - \"fine\"");
        check("a=\"x\\ty\"\n", "199 - \"a=\\\"x\\\\ty\\\" \"");
        check("a\r\nX-Evil: 1", "199 - \"a  X-Evil: 1\"");
        check("a\u{0}\u{7f}b", "199 - \"a  b\"");
        check("\"", "199 - \"\\\"\"");
        check("\\\"", "199 - \"\\\\\\\"\"");
        check("é", "199 - \"é\"");
        // The limit applies to the text, not to its escaped form.
        let frame = "199 - \"\"".len();
        assert_eq!(header_text(&"x".repeat(CHARS_MAX)).len(), CHARS_MAX + frame);
        assert_eq!(header_text(&"x".repeat(CHARS_MAX + 1)).len(), CHARS_MAX + frame);
        assert_eq!(header_text(&"\"".repeat(CHARS_MAX + 1)).len(), 2 * CHARS_MAX + frame);
    }
}
