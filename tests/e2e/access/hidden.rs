//! What is hidden from a caller looks to him as if it did not exist: entities by their ids, and rows by the limits of
//! queries (`identity-and-access` 1.4, 4.1).

use quiver_tests::server::{Answer, Server};
use serde_json::{Value, json};
use std::fmt::Write as _;

use crate::access::every_route::{AT, HIDDEN, SEEN, fill, options, steady};
use crate::identity::{PASSWORD, bearer, login, user};

/// An id that nothing has.
const NOBODY: &str = "00000000-0000-7000-8000-00000000dead";
/// Series, rows and spans of the service that is hidden, and of the one that is seen.
const MANY: usize = 1000;
const FEW: usize = 10;

/// What may be done with an entity, by its id: method, what follows the id, a header, a body.
fn operations() -> Vec<(&'static str, &'static str, (&'static str, &'static str), Value)> {
    let none = ("x-none", "none");
    let patch = json!({"description": "x"});
    let whole = json!({"name": "n", "service": SEEN});
    let mut all = Vec::new();
    for header in [none, ("if-match", "\"1\""), ("if-match", "\"9\""), ("if-none-match", "\"1\"")] {
        all.push(("GET", "", header, Value::Null));
        all.push(("PATCH", "", header, patch.clone()));
        all.push(("PUT", "", header, whole.clone()));
        all.push(("DELETE", "", header, Value::Null));
    }
    for below in ["/history", "/state", "/alerts-history", "/stats", "/neighbours"] {
        all.push(("GET", below, none, Value::Null));
    }
    for below in ["/clone", "/apply-to-all", "/merge", "/expire"] {
        all.push(("POST", below, none, json!({})));
    }
    all.push(("POST", "/restore", none, json!({"version": 1})));
    all
}

/// The same in bulk: method, what follows the path of the family, a body; `ID` stands for the id.
fn in_bulk() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("POST", "/bulk-delete", json!({"ids": ["ID"]})),
        ("POST", "/bulk-delete", json!({"filter": "id eq \"ID\""})),
        ("POST", "/bulk-update", json!({"ids": ["ID"], "patch": {"description": "x"}})),
        ("DELETE", "?ids=ID", Value::Null),
        ("PUT", "", json!({"id": "ID", "name": "n", "service": SEEN})),
        ("PATCH", "", json!({"id": "ID", "description": "x"})),
        ("GET", "?filter=id%20eq%20%22ID%22&count=true", Value::Null),
        ("GET", "/export?filter=id%20eq%20%22ID%22", Value::Null),
    ]
}

/// An answer without the id that was asked for.
fn told(mut answer: Answer, id: &str) -> (u16, Option<String>, String) {
    let tag = answer.headers.get("etag").map(|tag| format!("{tag:?}"));
    answer.body = answer.text().replace(id, "ID").into_bytes();
    (answer.status, tag, steady(&answer))
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_entities_are_unknown_ones() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    fill(&server, &admin, SEEN, 'f').await;
    let mut hidden = fill(&server, &admin, HIDDEN, 'e').await;
    let silences = server.get_as("/api/v2/silences", &[("authorization", &admin)]).await.json();
    let silence = silences.as_array().expect("silences").iter().find(|silence| silence["createdBy"] == HIDDEN);
    let silence = silence.and_then(|silence| silence["id"].as_str()).expect("it has an id").to_owned();
    hidden.insert("/rulesapi/silences", silence.clone());
    hidden.insert("/api/v2/silence", silence);
    user(&server, &admin, "editor", "editor", json!([SEEN])).await;
    let editor = bearer(&login(&server, "editor", PASSWORD).await);
    let ask = async |method: &str, path: &str, header: (&str, &str), body: &Value| {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        server.send(method, path, &[("authorization", editor.as_str()), ("content-type", kind), header], body).await
    };
    let (mut wrong, mut unknown) = (Vec::new(), 0);
    for (family, id) in &hidden {
        for (method, below, header, body) in operations() {
            let mut both = Vec::new();
            for id in [id.as_str(), NOBODY] {
                both.push(told(ask(method, &format!("{family}/{id}{below}"), header, &body).await, id));
            }
            unknown += usize::from(both[1].0 == 404);
            if both[0] != both[1] || both[0].0 < 400 {
                wrong.push(format!("{method} {family}/ID{below} {header:?}: {both:?}"));
            }
        }
        for (method, below, body) in in_bulk() {
            let mut both = Vec::new();
            for id in [id.as_str(), NOBODY] {
                let body: Value = serde_json::from_str(&body.to_string().replace("ID", id)).expect("JSON");
                let path = format!("{family}{}", below.replace("ID", id));
                both.push(told(ask(method, &path, ("x-none", "none"), &body).await, id));
            }
            if both[0] != both[1] {
                wrong.push(format!("{method} {family}{below} {body}: {both:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(unknown > 60, "{unknown}");
    // Nothing became of them.
    for (family, id) in &hidden {
        let answer = server.get_as(&format!("{family}/{id}"), &[("authorization", &admin)]).await;
        assert!(answer.status == 200 && answer.text().contains(HIDDEN), "{family}: {}", answer.text());
        if *family == "/api/v2/silence" {
            assert_eq!(answer.json()["status"]["state"], "active", "{}", answer.text());
        }
    }
}

/// Many series, rows and spans of one trace that are hidden, and few that are not.
async fn crowd(server: &Server, admin: &str) {
    let (mut series, mut rows, mut spans) = (String::new(), String::new(), Vec::new());
    for (service, count, from) in [(HIDDEN, MANY, 1), (SEEN, FEW, 1 + MANY)] {
        let name = json!({"key": "service.name", "value": {"stringValue": service}});
        let mut own = Vec::new();
        for n in 0..count {
            let _ = writeln!(series, "crowd{{service_name=\"{service}\",n=\"{n}\"}} {n} {}", AT * 1000);
            let row =
                json!({"_time": AT.to_string(), "_msg": "m", "service.name": service, "n": format!("{service}{n}")});
            let _ = writeln!(rows, "{row}");
            own.push(json!({"traceId": format!("{:032x}", 1), "spanId": format!("{:016x}", from + n), "kind": 2,
                "name": format!("op {n}"), "startTimeUnixNano": format!("{AT}000000000"),
                "endTimeUnixNano": format!("{AT}500000000")}));
        }
        spans.push(json!({"resource": {"attributes": [name]}, "scopeSpans": [{"spans": own}]}));
    }
    let spans = json!({ "resourceSpans": spans }).to_string();
    for (path, kind, body) in [
        ("/metrics-api/api/v1/import/prometheus", "text/plain", series),
        ("/insert/jsonline?_stream_fields=host", "application/stream+json", rows),
        ("/v1/traces", "application/json", spans),
    ] {
        let headers = [("authorization", admin), ("content-type", kind)];
        let answer = server.post(path, &headers, body.into_bytes()).await;
        assert!(answer.status < 300, "{path}: {} {}", answer.status, answer.text());
    }
}

/// Questions of which the answers over all rows are beyond the limits.
fn questions() -> Vec<(String, Vec<(&'static str, String)>)> {
    let (from, to) = ((AT - 600).to_string(), (AT + 600).to_string());
    let window = [("start", from.clone()), ("end", to.clone())];
    let metrics = |path: &str, name: &'static str, query: &str| {
        let given = [(name, query.to_owned()), ("time", AT.to_string()), ("step", "60".to_owned())];
        (format!("/metrics-api/api/v1/{path}"), [&given[..], &window].concat())
    };
    let logs = |path: &str, query: &str| {
        let given = [("query", query.to_owned()), ("field", "n".to_owned()), ("step", "60s".to_owned())];
        (format!("/logs-api/select/logsql/{path}"), [&given[..], &window].concat())
    };
    let sql = |query: &str| ("/sql-api/v1/query".to_owned(), vec![("query", query.to_owned())]);
    let loaded = |model: &str, name: &str| {
        let query = json!({"measures": [format!("{model}.count")], "dimensions": [format!("{model}.{name}")]});
        ("/olap-api/v1/load".to_owned(), vec![("query", query.to_string())])
    };
    let mut all = vec![
        metrics("query", "query", "crowd"),
        metrics("query", "query", "sum(crowd)"),
        metrics("query", "query", "sum_over_time(crowd[5m:1m])"),
        metrics("query_range", "query", "count by (n) (crowd)"),
        logs("hits", "*"),
        logs("field_values", "*"),
        logs("stats_query", "* | stats by (n) count() c"),
        sql("select * from promql_instant('crowd', timestamp '2026-03-01 22:00:00')"),
        sql("select * from logsql('*')"),
        loaded("Spans", "name"),
        loaded("Logs", "attr_n"),
        ("/traces".to_owned(), vec![("from", from.clone()), ("to", to.clone())]),
    ];
    for path in ["/platform-api/traces/ID/otlp", "/traces/ID", "/api/traces/ID", "/tempo/api/traces/ID"] {
        all.push((path.replace("ID", &format!("{:032x}", 1)), Vec::new()));
    }
    all
}

/// Whether a query is within its limits follows from rows that its caller sees.
#[tokio::test(flavor = "multi_thread")]
async fn limits_count_what_is_seen() {
    let dir = tempfile::tempdir().expect("a folder");
    let limited = options()
        .env("QUIVER_QUERY__SAMPLES_MAX", 400)
        .env("QUIVER_QUERY__SERIES_MAX", 100)
        .env("QUIVER_QUERY__ROWS_MAX", 300)
        .env("QUIVER_TRACES__EXPORT_SPANS_MAX", 100);
    let server = Server::start(dir.path(), &limited).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    crowd(&server, &admin).await;
    user(&server, &admin, "viewer", "viewer", json!([SEEN])).await;
    let viewer = bearer(&login(&server, "viewer", PASSWORD).await);
    for state in ["live", "flushed"] {
        if state == "flushed" {
            let answer = server.post("/admin/flush", &[("authorization", &admin)], vec![]).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        for (path, params) in questions() {
            let url = reqwest::Url::parse_with_params(&server.url(&path), &params).expect("a URL");
            let target = format!("{}?{}", url.path(), url.query().unwrap_or_default());
            let ask = async |who: &str| server.get_as(&target, &[("authorization", who), ("x-wait", "60")]).await;
            let (seen, all) = (ask(&viewer).await, ask(&admin).await);
            assert_eq!(seen.status, 200, "{state} {path} {params:?}: {}", seen.text());
            assert!(matches!(all.status, 413 | 422), "{state} {path} {params:?}: {} has no limit", all.status);
        }
    }
}
