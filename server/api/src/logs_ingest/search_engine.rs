//! Endpoints of the search engine API: bulk requests, and the calls that shippers make before them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use quiver_ingest::logs::Report;
use quiver_ingest::logs::bulk::{Bulk, BulkAnswer};
use quiver_types::{Error, ErrorKind};

use super::idempotency::{Success, write_once};
use super::lines::{LineBody, RowUse, stream};
use super::metrics::Endpoint;
use super::request::Intake;
use super::store::judge;
use crate::body_memory::Share;
use crate::encode::json::json_response;
use crate::error::{log, public_text, status_of, with_retry_after};
use crate::forbidden_records;
use crate::request_context::RequestInfo;
use crate::state::AppState;

/// First path segments of setup calls (templates, pipelines and so on) that shippers make; nothing needs setting up
/// here.
const SET_UP: &[&str] = &[
    "_ilm",
    "_index_template",
    "_template",
    "_component_template",
    "_ingest",
    "_nodes",
    "_logstash",
    "_xpack",
    "_cat",
    "_cluster",
    "_alias",
    "_data_stream",
    "_rollup",
];

/// Whether a path is that of a setup call: besides those above, Logstash looks for the index that its alias stands for,
/// and makes it.
fn is_set_up(first: &str, second: Option<&str>) -> bool {
    SET_UP.contains(&first) || first.starts_with("logstash") && second.is_none()
}

/// Whether a path is the name of an index. Clients check for theirs, and create it, before they write. Quiver has no
/// indexes, so it answers as if each existed. Names with a date (`<app-{now/d}-000001>`) contain a slash.
fn is_index(path: &str) -> bool {
    let name = path.trim_matches('/');
    let has_date = name.starts_with('<') && name.ends_with('>');
    !name.is_empty() && !name.starts_with('_') && (has_date || !name.contains('/'))
}

/// The alternative to a call that is not supported: writing documents one by one, or searching.
fn hint(path: &str) -> &'static str {
    let (mut writes, mut searches) = (false, false);
    for segment in path.split('/') {
        writes |= matches!(segment, "_doc" | "_create" | "_update");
        searches |= matches!(segment, "_search" | "_msearch" | "_count" | "_async_search" | "_sql" | "_field_caps");
    }
    if searches {
        "; of the search engine's API only the intake is here, logs are queried in LogsQL, at `/select/logsql/query`"
    } else if writes {
        "; documents are sent in bulk requests, to `_bulk`"
    } else {
        ""
    }
}

/// Largest uncompressed response that is kept for `Idempotency-Key`.
const KEPT_BYTES_MAX: usize = 16 << 20;

const LICENSE: &str = r#"{"license":{"uid":"cbff45e7-c553-41f7-ae4f-9205eabd80xx","type":"oss","status":"active","expiry_date_in_millis":4000000000000}}"#;

/// Adds the product header; clients refuse to talk to a server without it.
fn product(mut response: Response) -> Response {
    let name = HeaderName::from_static("x-elastic-product");
    response.headers_mut().insert(name, HeaderValue::from_static("Elasticsearch"));
    response
}

fn failed(error: &Error) -> Response {
    log(error, "/insert/searchengine");
    if error.kind == ErrorKind::Forbidden {
        let request = RequestInfo::current();
        let id = request.as_ref().map_or("", RequestInfo::id);
        let mut answer = refusal(StatusCode::FORBIDDEN, "FORBIDDEN", public_text(error), id);
        let challenge = HeaderValue::from_static(r#"Bearer realm="platform", error="insufficient_scope""#);
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        return answer;
    }
    let kind = match error.kind {
        ErrorKind::TooLarge => "content_too_long_exception",
        ErrorKind::Unavailable | ErrorKind::LimitExceeded => "es_rejected_execution_exception",
        ErrorKind::NotFound => "resource_not_found_exception",
        ErrorKind::Damaged | ErrorKind::Internal => "exception",
        _ => "illegal_argument_exception",
    };
    let status = status_of(error.kind);
    let cause = serde_json::json!({"type": kind, "reason": public_text(error)});
    let mut whole = serde_json::json!({"error": cause, "status": status.as_u16()});
    whole["error"]["root_cause"] = serde_json::json!([cause]);
    with_retry_after(product(json_response(status, whole.to_string())))
}

/// Refuses a caller without a valid token or right, in the format of a search engine: its clients read only JSON of
/// that media type.
pub(crate) fn refusal(status: StatusCode, code: &str, detail: &str, request_id: &str) -> Response {
    let mut whole = forbidden_records::object(status, code, detail, request_id);
    let cause = serde_json::json!({"type": "security_exception", "reason": detail});
    whole["error"] = serde_json::json!({"type": cause["type"], "reason": detail, "root_cause": [cause]});
    product(json_response(status, whole.to_string()))
}

/// Refuses a method, and says which of them are used.
fn not_allowed(used: &'static str) -> Response {
    let mut answer = json_response(StatusCode::METHOD_NOT_ALLOWED, "{\"error\":\"method not allowed\",\"status\":405}");
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(used));
    product(answer)
}

/// `/`: the version.
pub(super) async fn root(method: Method) -> Response {
    match method {
        Method::GET => product(json_response(StatusCode::OK, "{\"version\":{\"number\":\"8.9.0\"}}")),
        Method::HEAD => product(json_response(StatusCode::OK, "")),
        _ => not_allowed("GET, HEAD"),
    }
}

/// All paths below the root: bulk writes, and what senders ask before they begin.
pub(super) async fn dispatch(
    State(state): State<Arc<AppState>>,
    Path(path): Path<String>,
    request: Request,
) -> Response {
    let mut segments = path.trim_matches('/').split('/');
    let (first, second, third) = (segments.next().unwrap_or_default(), segments.next(), segments.next());
    let is_bulk = matches!((first, second, third), ("_bulk", None, None) | (_, Some("_bulk"), None));
    if is_bulk && !SET_UP.contains(&first) {
        return match *request.method() {
            Method::POST | Method::PUT => product(bulk(&state, request).await),
            _ => not_allowed("POST, PUT"),
        };
    }
    match *request.method() {
        Method::GET if first == "_license" => product(json_response(StatusCode::OK, LICENSE)),
        Method::GET | Method::HEAD | Method::PUT | Method::POST if is_set_up(first, second) => {
            product(json_response(StatusCode::OK, "{}"))
        }
        Method::GET | Method::HEAD if is_index(&path) => product(json_response(StatusCode::OK, "{}")),
        Method::PUT if is_index(&path) => {
            let index = path.trim_matches('/');
            let made = serde_json::json!({"acknowledged": true, "shards_acknowledged": true, "index": index});
            product(json_response(StatusCode::OK, made.to_string()))
        }
        _ => failed(&Error::new(ErrorKind::NotFound, format!("there is nothing at `/{path}`{}", hint(&path)))),
    }
}

/// Streams the response while it is being made, so that it is never in memory as a whole.
fn send(mut answer: BulkAnswer, share: Share) -> Response {
    let (Some(first), second) = (answer.next(), answer.next()) else { return json_response(StatusCode::OK, "") };
    let Some(second) = second else { return json_response(StatusCode::OK, first) };
    let pieces = [first, second].into_iter().chain(answer).map(move |piece| {
        let _held = &share;
        Ok::<_, Infallible>(piece)
    });
    json_response(StatusCode::OK, Body::from_stream(futures::stream::iter(pieces)))
}

async fn bulk(state: &Arc<AppState>, request: Request) -> Response {
    let began = Instant::now();
    let (head, body) = request.into_parts();
    let outcome = async {
        let Intake { ctx, encoding, id, .. } = Intake::read(state, &head)?;
        let lines = LineBody { body, encoding, rows: RowUse::of(id.as_ref()) };
        let streamed = stream(state, Endpoint::Bulk, Bulk::new(&ctx), lines).await;
        streamed.outcome?;
        let (decoder, mut share) = (streamed.decoder, streamed.share);
        let judged = judge(&streamed.whole.report);
        if decoder.all_forbidden() {
            judged?;
        }
        let answer = move || decoder.into_answer(began.elapsed().as_millis() as u64);
        let Some(id) = id else { return Ok(send(answer(), share)) };
        // A response that is kept must be in memory as a whole.
        let answer = answer();
        if answer.bytes_max() > KEPT_BYTES_MAX {
            let text = "the answer is too large to be kept for `Idempotency-Key`; send fewer records in a request";
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        share.hold(share.held_bytes() + answer.bytes_max()).await?;
        let answer = |_: &Report| Ok(Success::new(StatusCode::OK, "application/json", answer.collect::<String>()));
        write_once(state, Endpoint::Bulk, id, streamed.whole, answer).await
    };
    outcome.await.unwrap_or_else(|e: Error| failed(&e))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::Value;

    use super::*;

    /// Reads status, one header and the body of a response, and checks the product header.
    async fn read(response: Response, name: HeaderName) -> (u16, Option<String>, Value) {
        assert_eq!(response.headers()["x-elastic-product"], "Elasticsearch");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let (status, header) = (response.status().as_u16(), response.headers().get(name).cloned());
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).expect("JSON") };
        (status, header.map(|value| value.to_str().expect("a text").to_owned()), body)
    }

    #[tokio::test]
    async fn errors_have_the_words_of_a_search_engine() {
        for (kind, status, exception, comes_back) in [
            (ErrorKind::Invalid, 400, "illegal_argument_exception", false),
            (ErrorKind::NotFound, 404, "resource_not_found_exception", false),
            (ErrorKind::TooLarge, 413, "content_too_long_exception", false),
            (ErrorKind::Unsupported, 415, "illegal_argument_exception", false),
            (ErrorKind::LimitExceeded, 422, "es_rejected_execution_exception", false),
            (ErrorKind::Internal, 500, "exception", false),
            (ErrorKind::Damaged, 500, "exception", false),
            (ErrorKind::Unavailable, 503, "es_rejected_execution_exception", true),
        ] {
            let answer = failed(&Error::new(kind, "what is said"));
            let (found, later, body) = read(answer, header::RETRY_AFTER).await;
            assert_eq!((found, later.is_some()), (status, comes_back), "{kind:?}");
            let cause = serde_json::json!({"type": exception, "reason": "what is said"});
            assert_eq!(body["error"]["root_cause"], serde_json::json!([cause]), "{kind:?}");
            assert_eq!(body["error"]["type"], exception);
            assert_eq!(body["status"], status);
        }
    }

    #[test]
    fn names_of_indexes() {
        for path in ["app", "app-2026.11.30/", "<app-{now/d}-000001>", ".app"] {
            assert!(is_index(path), "{path}");
        }
        for path in ["", "/", "_search", "_bulk", "app/_doc", "app/_search", "<app/x"] {
            assert!(!is_index(path), "{path}");
        }
    }

    #[test]
    fn what_there_is_instead() {
        for (path, told) in [
            ("app/_doc", "`_bulk`"),
            ("app/_doc/1", "`_bulk`"),
            ("app/_create/1", "`_bulk`"),
            ("_search", "`/select/logsql/query`"),
            ("app/_search", "`/select/logsql/query`"),
            ("app/_count", "`/select/logsql/query`"),
        ] {
            assert!(hint(path).contains(told), "{path}: {}", hint(path));
        }
        for path in ["app", "app/_mapping", "_docs", ""] {
            assert_eq!(hint(path), "", "{path}");
        }
    }

    #[tokio::test]
    async fn who_may_not_is_told_in_its_words() {
        let answer = failed(&Error::new(ErrorKind::Forbidden, "no right"));
        let (status, challenge, body) = read(answer, header::WWW_AUTHENTICATE).await;
        assert_eq!(status, 403);
        assert!(challenge.is_some_and(|text| text.contains("insufficient_scope")));
        assert_eq!(body["error"]["type"], "security_exception");
        assert_eq!(body["error"]["root_cause"][0]["reason"], "no right");
        assert_eq!(body["code"], "FORBIDDEN");
    }

    #[tokio::test]
    async fn shippers_ask_for_the_version_first() {
        let (status, _, body) = read(root(Method::GET).await, header::ETAG).await;
        assert_eq!((status, &body["version"]["number"]), (200, &serde_json::json!("8.9.0")));
        assert_eq!(read(root(Method::HEAD).await, header::ETAG).await, (200, None, Value::Null));
        let (status, used, body) = read(root(Method::DELETE).await, header::ALLOW).await;
        assert_eq!((status, used.as_deref(), &body["status"]), (405, Some("GET, HEAD"), &serde_json::json!(405)));
    }
}
