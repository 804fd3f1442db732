//! Unknown parameters: our own interfaces refuse them by name, interfaces of other products ignore them.

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

/// Interfaces of other products, and what probes and scrapers ask; `/` at the end: all below. Written out again, not taken
/// from the server: a path that comes to pass over names there by mistake must fail here.
const PASSING: [&str; 22] = [
    "/metrics-api/",
    "/logs-api/",
    "/select/",
    "/insert/",
    "/loki/",
    "/services/",
    "/v1/",
    "/api/",
    "/jaeger/",
    "/zipkin/",
    "/tempo/",
    "/realms/",
    "/olap-api/v1/load",
    "/olap-api/v1/subscribe",
    "/olap-api/v1/meta",
    "/olap-api/v1/dry-run",
    "/olap-api/v1/sql",
    "/health",
    "/health/",
    "/-/",
    "/ready",
    "/metrics",
];

fn passes(template: &str) -> bool {
    PASSING.iter().any(|one| template == *one || (one.ends_with('/') && template.starts_with(one)))
}

/// The path of a template, with the parameters that it needs and one that nobody knows.
fn asked(template: &str, operation: &Value, (user, account): (&str, &str)) -> String {
    let mut path = String::new();
    for part in template.split('/').skip(1) {
        let part = match part {
            "{id}" if template.contains("/users/") => user,
            "{id}" if template.contains("/service-accounts/") => account,
            "{id}" if template.contains("trace") => "4bf92f3577b34da6a3ce929d0e0e4736",
            "{id}" => "0191d0a0-7c3e-7abc-8def-0123456789ab",
            "{format}" => "otlp",
            "{n}" => "1",
            other if other.starts_with('{') => "x",
            other => other,
        };
        path.extend(["/", part]);
    }
    path.push('?');
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    for needed in parameters.filter(|p| p["in"] == "query" && p["required"] == true) {
        path.extend([needed["name"].as_str().expect("a name"), "=x&"]);
    }
    path + "zzz=1"
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_path_does_not_know_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let users = server.get("/platform-api/rbac/users").await.json();
    let user = users["items"][0]["id"].as_str().expect("the administrator");
    let headers = [("content-type", "application/json")];
    let made = server.post("/platform-api/rbac/service-accounts", &headers, br#"{"clientId":"agent"}"#.to_vec()).await;
    let made = made.json();
    let account = made["id"].as_str().expect("an id");
    let document = server.get("/platform-api/openapi.json").await.json();
    let (mut own, mut others, mut wrong) = (0, 0, Vec::new());
    for (template, item) in document["paths"].as_object().expect("paths") {
        // These answer as long as they are asked.
        if item.get("get").is_none() || template.ends_with("/tail") || template.contains("subscribe") {
            continue;
        }
        let path = asked(template, &item["get"], (user, account));
        let answer = server.get(&path).await;
        let (status, text) = (answer.status, answer.text());
        if passes(template) {
            others += 1;
            if text.contains("zzz") {
                wrong.push(format!("{path}: {status} {text:.200}"));
            }
            continue;
        }
        own += 1;
        if status != 400 || !text.contains("`zzz`") {
            wrong.push(format!("{path}: {status} {text:.200}"));
        }
        let head = server.send("HEAD", &path, &[], vec![]).await;
        if head.status != 400 {
            wrong.push(format!("HEAD {path}: {}", head.status));
        }
    }
    assert!(wrong.is_empty(), "{} of {own} and {others}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(own > 150 && others > 100, "{own} paths of our own, {others} of others");
}

/// What changes something, bodies, and the forms of the answers.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_told_in_the_form_of_the_interface() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let json_headers = [("content-type", "application/json")];
    for (method, path, body) in [
        ("POST", "/admin/flush?now=1", ""),
        ("POST", "/admin/compact?force=true&now=1", ""),
        ("POST", "/admin/reload?now=1", ""),
        ("DELETE", "/admin/queries/7?now=1", ""),
        ("GET", "/traces?limit=5&now=1", ""),
        ("POST", "/traces?limit=5&now=1", ""),
        ("POST", "/traces/services", r#"{"names": true, "now": 1}"#),
        ("POST", "/olap-api/v1/drill?now=1", "{}"),
        ("POST", "/olap-api/v1/explain", r#"{"query": {"measures": ["Spans.count"]}, "now": 1}"#),
    ] {
        let answer = server.send(method, path, &json_headers, body.as_bytes().to_vec()).await;
        assert_eq!(answer.status, 400, "{method} {path}: {}", answer.text());
        let plain = path.starts_with("/admin/");
        let form = if plain { "text/plain; charset=utf-8" } else { "application/problem+json" };
        assert_eq!(answer.headers["content-type"], form, "{method} {path}");
        assert!(answer.text().contains("`now`"), "{method} {path}: {}", answer.text());
        if path.starts_with("/olap-api") {
            let body = answer.json();
            assert_eq!((&body["reason"], &body["pointer"]), (&json!("UNKNOWN_KEY"), &json!("/now")), "{path}: {body}");
        }
        if path.starts_with("/traces") {
            let body = answer.json();
            let told = (&body["code"], &body["parameter"]);
            assert_eq!(told, (&json!("INVALID_PARAMETER"), &json!("now")), "{method} {path}");
            let detail = body["detail"].as_str().expect("a text");
            let begin = "parameter `now`: unknown on this path; known are ";
            assert!(detail.starts_with(begin) && detail.contains("explain"), "{method} {path}: {detail}");
            assert_eq!(body["requestId"].as_str(), answer.headers["x-request-id"].to_str().ok(), "{method} {path}");
        }
    }
    // Which of two values counts is not to be seen.
    for (method, path, name) in [
        ("POST", "/admin/compact?force=false&force=true", "force"),
        ("GET", "/traces?limit=5&limit=6", "limit"),
        ("GET", "/sql-api/v1/query?query=SELECT+1&query=SELECT+2", "query"),
        ("GET", "/olap-api/v1/meta?model=Spans&model=Logs", "model"),
        ("GET", "/olap-api/v1/meta/values?member=Spans.name&member=Spans.service", "member"),
        ("GET", "/olap-api/v1/load?query=%7B%7D&query=%7B%7D", "query"),
    ] {
        let answer = server.send(method, path, &[], vec![]).await;
        let text = answer.text();
        assert_eq!(answer.status, 400, "{method} {path}: {text}");
        assert!(text.contains(name) && text.contains("given more than once"), "{method} {path}: {text}");
    }
    // A caller who asks what is known is answered.
    for path in ["/admin/queries", "/traces?from=now-1h&explain=false&segment=", "/sql-api/v1/tables?"] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    let answer = server.post("/traces/facets", &json_headers, br#"{"keys": ["kind"], "segment": null}"#.to_vec()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}
