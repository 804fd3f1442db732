//! Responses to unknown paths and unused methods, in the format that clients of the path expect.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use quiver_config::families::FAMILIES;
use quiver_config::{Problem, ProblemKind};
use serde_json::json;

use crate::config_api::response::Answer;
use crate::error::plain;
use crate::{forbidden_records, grpc_call};

mod path_hints;

/// Nothing is at this path. Calls of gRPC are told so in its own form.
pub(crate) async fn not_found(uri: Uri, headers: HeaderMap) -> Response {
    if grpc_call::is_call(&headers) {
        return no_such_call(uri.path());
    }
    let hint = path_hints::hint(uri.path()).map(|hint| format!(": {hint}")).unwrap_or_default();
    let problem = Problem::new(ProblemKind::NotFound, "NOT_FOUND", format!("nothing is at this path{hint}"));
    answer(uri.path(), StatusCode::NOT_FOUND, &problem, &format!("404 page not found{hint}"))
}

/// There is no method of gRPC at this path.
fn no_such_call(path: &str) -> Response {
    let hint = path_hints::call_hint(path).map(|hint| format!(": {hint}")).unwrap_or_default();
    grpc_call::unimplemented(&format!("unknown service or method{hint}"))
}

/// Nothing is at this path of a port with one protocol. Calls of gRPC are told so in its own form.
pub(crate) async fn not_on_this_port(uri: Uri, headers: HeaderMap) -> Response {
    if grpc_call::is_call(&headers) {
        return grpc_call::unimplemented("this port does not speak gRPC; `otlp.grpc_listen` and the main port do");
    }
    let problem = Problem::new(ProblemKind::NotFound, "NOT_FOUND", "nothing is at this path of this port");
    let text = "404 page not found: this port is for one protocol; everything else is on the main one (`http.listen`)";
    answer(uri.path(), StatusCode::NOT_FOUND, &problem, text)
}

/// Nothing is at this path of the port of OTLP over gRPC. Errors of gRPC have status 200, which would tell a sender of
/// OTLP over HTTP, or a probe of health, that all is well: these get 404.
pub(crate) async fn not_on_grpc_port(uri: Uri, headers: HeaderMap) -> Response {
    if grpc_call::is_call(&headers) {
        return no_such_call(uri.path());
    }
    let problem = Problem::new(ProblemKind::NotFound, "NOT_FOUND", "nothing is at this path of this port");
    let text = "404 page not found: this port is for OTLP over gRPC; OTLP over HTTP has a port of its own \
                (`otlp.http_listen`), and everything is on the main one (`http.listen`)";
    answer(uri.path(), StatusCode::NOT_FOUND, &problem, text)
}

/// Something is, but not for this method; the router says for which.
pub(crate) async fn not_allowed(uri: Uri) -> Response {
    let problem = Problem::new(ProblemKind::MethodNotAllowed, "METHOD_NOT_ALLOWED", "this method is not used here");
    let hint = path_hints::method_hint(uri.path()).map(|hint| format!(": {hint}")).unwrap_or_default();
    answer(uri.path(), StatusCode::METHOD_NOT_ALLOWED, &problem, &format!("Method Not Allowed{hint}"))
}

/// Tells of a problem in the form of a path; where that is text, this one.
pub(crate) fn answer(path: &str, status: StatusCode, problem: &Problem, text: &str) -> Response {
    if path.starts_with("/realms/") {
        let body = json!({"error": "invalid_request", "error_description": problem.detail, "code": problem.code});
        let kind = HeaderValue::from_static("application/json");
        return (status, [(header::CONTENT_TYPE, kind)], body.to_string()).into_response();
    }
    if is_configuration(path) {
        return Answer::of_problem(problem).into_response(None);
    }
    if QUERIES.iter().any(|base| is_below(path, base)) {
        return forbidden_records::problem_of(status, problem.code, &problem.detail);
    }
    plain(status, text)
}

/// Paths of queries whose errors are problem documents. Clients made for other servers know these by text elsewhere.
const QUERIES: &[&str] = &["/sql-api", "/olap-api", "/traces"];

/// Whether a path is another one, or below it.
pub(crate) fn is_below(path: &str, base: &str) -> bool {
    path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_configuration(path: &str) -> bool {
    let below = |base: &str| is_below(path, base);
    below("/platform-api") || below("/rulesapi") || FAMILIES.iter().any(|family| below(family.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn forms() {
        for (path, form) in [
            ("/sql-api/none", "application/problem+json"),
            ("/olap-api", "application/problem+json"),
            ("/traces/a/b", "application/problem+json"),
            ("/platform-api/none", "application/problem+json"),
            ("/metrics-api/none", "text/plain; charset=utf-8"),
            ("/sql-apis", "text/plain; charset=utf-8"),
        ] {
            let answer = not_found(path.parse().expect("a path"), HeaderMap::new()).await;
            assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
            assert_eq!(answer.headers()[header::CONTENT_TYPE], form, "{path}");
        }
    }

    #[test]
    fn paths_of_configuration() {
        for path in ["/platform-api/nothing", "/rulesapi", "/transactions/x/y/z", "/business-processes"] {
            assert!(is_configuration(path), "{path}");
        }
        for path in ["/", "/platform-apis", "/transactionsx", "/metrics-api/x", "/none"] {
            assert!(!is_configuration(path), "{path}");
        }
    }

    async fn read(response: Response) -> (u16, String, String) {
        use http_body_util::BodyExt as _;

        let kind = response.headers()[header::CONTENT_TYPE].to_str().expect("a text").to_owned();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, kind, String::from_utf8(body.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn clients_read_what_they_know() {
        let at = |path: &'static str| Uri::from_static(path);
        let (text, json) = ("text/plain; charset=utf-8".to_owned(), "application/json".to_owned());
        let not_found = |path: &'static str| not_found(at(path), HeaderMap::new());
        assert_eq!(read(not_found("/none").await).await, (404, text.clone(), "404 page not found\n".to_owned()));
        // Who asks for what another server has there is told where it is here.
        let (status, kind, body) = read(not_found("/api/v1/query").await).await;
        let expected = "404 page not found: Prometheus' API is below `/metrics-api`\n";
        assert_eq!((status, &kind, body.as_str()), (404, &text, expected));
        // The places of other APIs are on the main port.
        let (status, _, body) = read(not_on_this_port(at("/api/v1/query"), HeaderMap::new()).await).await;
        assert_eq!((status, body.contains("`http.listen`"), body.contains("/metrics-api")), (404, true, false));
        let method = read(not_allowed(at("/metrics-api/api/v1/write")).await).await;
        assert_eq!(method, (405, text, "Method Not Allowed\n".to_owned()));
        let (status, _, body) = read(not_allowed(at("/tempo/api/v2/traces/diff")).await).await;
        assert_eq!(
            (status, body.contains("diff is not supported"), body.contains("/traces/compare")),
            (405, true, true)
        );
        let (status, kind, body) = read(not_found("/realms/other").await).await;
        let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        let expected = json!({
            "error": "invalid_request", "error_description": "nothing is at this path", "code": "NOT_FOUND",
        });
        assert_eq!((status, kind, body), (404, json, expected));
        let (status, kind, body) = read(not_allowed(at("/traces/x")).await).await;
        let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(
            (status, kind.as_str(), &body["code"]),
            (405, "application/problem+json", &json!("METHOD_NOT_ALLOWED"))
        );
        assert_eq!((&body["status"], &body["detail"]), (&json!(405), &json!("this method is not used here")));
    }

    /// Documents tell as much as texts.
    #[tokio::test]
    async fn problems_say_where_it_is() {
        for (path, place) in [("/sql-api", "`/sql-api/v1/query`"), ("/platform-api", "`/platform-api/openapi.json`")] {
            let (status, _, body) = read(not_found(path.parse().expect("a path"), HeaderMap::new()).await).await;
            let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
            let detail = body["detail"].as_str().unwrap_or_default();
            assert!(status == 404 && detail.starts_with("nothing is at this path: "), "{body}");
            assert!(detail.contains(place), "{body}");
        }
    }

    /// A sender of OTLP that mixes up the two ports is told which is which, in what it speaks.
    #[tokio::test]
    async fn ports_of_otlp() {
        let at = Uri::from_static("/v1/traces");
        let call = || HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"))]);
        let posted =
            || HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"))]);
        let (status, kind, body) = read(not_on_grpc_port(at.clone(), posted()).await).await;
        assert_eq!((status, kind.as_str()), (404, "text/plain; charset=utf-8"));
        assert!(body.contains("`otlp.http_listen`"), "{body}");
        for (told, message) in [
            (not_on_grpc_port(at.clone(), call()).await, "unknown%20service%20or%20method"),
            (not_found(at.clone(), call()).await, "unknown%20service%20or%20method"),
            (not_on_this_port(at.clone(), call()).await, "this%20port%20does%20not%20speak%20gRPC;"),
        ] {
            assert!(told.status() == 200 && told.headers()["grpc-status"] == "12", "{message}");
            let found = told.headers()["grpc-message"].to_str().expect("text");
            assert!(found.starts_with(message), "{found}");
        }
        let (status, _, body) = read(not_on_this_port(at, posted()).await).await;
        assert!(status == 404 && body.contains("`http.listen`"), "{body}");
    }

    #[test]
    fn paths_below_others() {
        for (path, base, expected) in [
            ("/traces", "/traces", true),
            ("/traces/", "/traces", true),
            ("/traces/x", "/traces", true),
            ("/tracesx", "/traces", false),
            ("/Traces", "/traces", false),
            ("traces", "/traces", false),
            ("", "/traces", false),
        ] {
            assert_eq!(is_below(path, base), expected, "{path} below {base}");
        }
    }
}
