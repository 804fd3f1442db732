//! Routes that compute a result by POST: a viewer of one service gets the same whether or not there is data of other
//! services. Every POST in the API description is either one of them or changes something.

use std::collections::BTreeSet;

use quiver_tests::server::{Answer, Server};
use serde_json::{Value, json};

use crate::access::every_route::{AT, HIDDEN, SEEN, fill, options, steady};
use crate::identity::{PASSWORD, bearer, login, user};
use crate::remote_read::request;
use crate::traces::tempo_grpc::{self, Part};

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
/// When the question is about, around the data: as seconds and as texts.
const WINDOW: (i64, i64) = (AT - 600, AT + 600);
const TIMES: (&str, &str) = ("2026-03-01T21:50:00Z", "2026-03-01T22:10:00Z");
const RESOURCES: &str = "/platform-api/resources";
const CALLS: &str = "00000000-0000-7000-8000-000000000202";

/// A question.
#[derive(Debug, Clone)]
struct Post {
    path: String,
    kind: &'static str,
    body: Vec<u8>,
    /// Whether the answer names what may be seen.
    shows: bool,
}

impl Post {
    fn new(path: impl Into<String>, kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), kind, body: body.into(), shows: false }
    }

    fn json(path: impl Into<String>, body: &Value) -> Self {
        Self::new(path, JSON, body.to_string())
    }

    fn form(path: impl Into<String>, parameters: &[(&str, &str)]) -> Self {
        let mut url = reqwest::Url::parse("http://form/").expect("a URL");
        url.query_pairs_mut().extend_pairs(parameters);
        Self::new(path, FORM, url.query().unwrap_or_default())
    }

    fn shows(self) -> Self {
        Self { shows: true, ..self }
    }

    fn route(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    fn names_hidden(&self) -> bool {
        String::from_utf8_lossy(&self.body).contains(HIDDEN) || self.path.contains(HIDDEN)
    }

    async fn ask(&self, server: &Server, who: &str) -> Answer {
        let mut headers = vec![("authorization", who), ("content-type", self.kind), ("x-wait", "60")];
        if self.route().ends_with("/read") {
            headers.push(("content-encoding", "snappy"));
        }
        let mut answer = server.post(&self.path, &headers, self.body.clone()).await;
        if self.route().ends_with("/read") && answer.status == 200 {
            answer.body = snap::raw::Decoder::new().decompress_vec(&answer.body).expect("snappy");
        }
        answer
    }
}

fn metrics() -> Vec<Post> {
    let (from, to, at) = (WINDOW.0.to_string(), WINDOW.1.to_string(), AT.to_string());
    let (from, to, at) = (from.as_str(), to.as_str(), at.as_str());
    let nowhere = format!("up_{HIDDEN}");
    let path = |name: &str| format!("/metrics-api/api/v1/{name}");
    let all = "{__name__=~\".+\"}";
    let of_series = [("match[]", all), ("start", from), ("end", to)];
    let ranged = [("query", all), ("start", from), ("end", to), ("step", "60")];
    vec![
        Post::form(path("query"), &[("query", all), ("time", at)]).shows(),
        Post::form(path("query"), &[("query", nowhere.as_str()), ("time", at), ("explain", "analyze")]),
        Post::form(path("query_range"), &ranged).shows(),
        Post::form(path("query_exemplars"), &[("query", "common"), ("start", from), ("end", to)]).shows(),
        Post::form(path("series"), &of_series).shows(),
        Post::form(path("labels"), &of_series),
        Post::form(path("format_query"), &[("query", "a+b")]),
        Post::form(path("parse_query"), &[("query", "a+b")]),
        Post::new(
            path("read"),
            "application/x-protobuf",
            request(&[(2, "__name__", ".+")], WINDOW.0 * 1000, WINDOW.1 * 1000, &[]),
        )
        .shows(),
    ]
}

fn logs() -> Vec<Post> {
    let (from, to) = (WINDOW.0.to_string(), WINDOW.1.to_string());
    let (from, to) = (from.as_str(), to.as_str());
    let by_service = "* | stats by (service.name) count() n";
    let mut all = Vec::new();
    for base in ["/select/logsql", "/logs-api/select/logsql"] {
        for (name, query, shows) in [
            ("query", "*", true),
            ("query", "* | query_stats", false),
            ("hits", "*", true),
            ("field_names", "*", true),
            ("field_values", "*", true),
            ("streams", "*", true),
            ("stream_ids", "*", false),
            ("stream_field_names", "*", false),
            ("stream_field_values", "*", true),
            ("facets", "*", false),
            ("query_time_range", "_time:1h", false),
            ("stats_query", by_service, true),
            ("stats_query_range", by_service, true),
        ] {
            let more = [("step", "60s"), ("field", "service.name"), ("limit", "100")];
            let asked = [&[("query", query), ("start", from), ("end", to), ("time", to)], &more[..]].concat();
            all.push(Post { shows, ..Post::form(format!("{base}/{name}"), &asked) });
        }
    }
    all
}

fn traces() -> Vec<Post> {
    let mut all = Vec::new();
    for (path, more, shows) in [
        ("", json!({}), true),
        ("/services", json!({}), true),
        ("/operations", json!({}), true),
        ("/instances", json!({}), false),
        ("/tags", json!({}), true),
        ("/tags/{key}/values", json!({}), true),
        ("/dependencies", json!({}), false),
        ("/histogram", json!({"step": "60s", "by": "service"}), true),
        ("/heatmap", json!({"step": "60s"}), false),
        ("/facets", json!({}), true),
        ("/difference", json!({"select": {"minDuration": "1ms"}}), false),
        ("/compare", json!({"left": "f".repeat(32), "right": "e".repeat(32)}), false),
    ] {
        let window = json!({"from": WINDOW.0, "to": WINDOW.1});
        let mut body = if path == "/compare" { json!({}) } else { window };
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        let path = format!("/traces{}", path.replace("{key}", "service.name"));
        all.push(Post { shows, ..Post::json(path, &body) });
    }
    all.extend(streams());
    all
}

/// Calls of Tempo's API over gRPC.
fn streams() -> Vec<Post> {
    let (from, to) = (WINDOW.0 as u64, WINDOW.1 as u64);
    let times = |a: u32, b: u32, unit: u64| [Part::Number(a, from * unit), Part::Number(b, to * unit)];
    let rate = "{} | rate() by (resource.service.name)";
    let calls = [
        ("Search", Part::Text(8, "{}"), times(5, 6, 1)),
        ("SearchTags", Part::Text(2, "{}"), times(3, 4, 1)),
        ("SearchTagsV2", Part::Text(2, "{}"), times(3, 4, 1)),
        ("SearchTagValues", Part::Text(1, "service.name"), times(4, 5, 1)),
        ("SearchTagValuesV2", Part::Text(1, "resource.service.name"), times(4, 5, 1)),
        ("MetricsQueryRange", Part::Text(1, rate), times(2, 3, 1_000_000_000)),
        ("MetricsQueryInstant", Part::Text(1, rate), times(2, 3, 1_000_000_000)),
    ];
    let made = calls.into_iter().map(|(method, about, [from, to])| {
        Post::new(tempo_grpc::path(method), "application/grpc", tempo_grpc::request(&[about, from, to])).shows()
    });
    made.collect()
}

fn statements() -> Vec<Post> {
    let statement = |text: &str| Post::json("/sql-api/v1/query", &json!({"query": text}));
    let mut all = vec![
        statement("select service_name, name from spans").shows(),
        statement("select service_name, count(*) from logs group by 1").shows(),
        statement("explain select * from spans"),
        statement("explain analyze select count(*) from logs"),
        statement("select count(*) from information_schema.columns"),
        Post::form("/sql-api/v1/query", &[("query", "select name from metric_series")]).shows(),
        Post::new("/sql-api/v1/query", "application/sql", "select service_name from traces, spans").shows(),
    ];
    let query = json!({"dimensions": ["Spans.service"], "measures": ["Spans.count"]});
    let drill = |service: &str| json!({"query": query, "row": {"Spans.service": service}, "measure": "Spans.count"});
    for (name, body, shows) in [
        ("load", json!({"query": query}), true),
        ("subscribe", json!({"query": query}), true),
        ("dry-run", json!({"query": query}), false),
        ("sql", json!({"query": query}), true),
        ("explain", json!({"query": query, "analyze": true}), true),
        ("drill", drill(SEEN), true),
        ("drill", drill(HIDDEN), false),
    ] {
        all.push(Post { shows, ..Post::json(format!("/olap-api/v1/{name}"), &body) });
    }
    let counted = r#"SELECT "service", MEASURE("count") AS n FROM "Spans" GROUP BY 1"#;
    all.push(Post::json("/olap-api/v1/cubesql", &json!({"query": counted})).shows());
    all
}

/// Tries of what is not saved, over what is stored.
fn tries(resource: &str) -> Vec<Post> {
    let leaf = json!({"field": "span.name", "op": "contains", "value": "op"});
    let stored = |mut body: Value| {
        (body["start"], body["end"]) = (json!(TIMES.0), json!(TIMES.1));
        body
    };
    let rule = |owner: &str, service: &str| json!({"name": "r", owner: service, "nameTemplate": "{span.name}", "condition": leaf});
    let mut all = Vec::new();
    for (family, owner) in [("/bt-detection-rules", "service"), ("/rum-bt-detection-rules", "application")] {
        let path = format!("{family}/test");
        all.push(Post::json(&path, &stored(json!({"rule": rule(owner, SEEN)}))));
        all.push(Post::json(&path, &stored(json!({"rule": rule(owner, HIDDEN)}))));
        let pattern = json!({"op": "contains", "pattern": "a", "inputs": ["abc"]});
        all.push(Post::json(format!("{family}/test-pattern"), &pattern));
    }
    all[0].shows = true;
    let process = |service: &str| {
        let step = |name: &str| {
            let condition = json!({"field": format!("tag_{service}"), "op": "exists"});
            json!({"name": name, "kind": "span", "service": service, "condition": condition})
        };
        let process = json!({"name": "p", "correlationField": format!("tag_{service}"), "timeout": "2m",
            "steps": [step("one"), step("two")]});
        stored(json!({"process": process}))
    };
    let extraction = |signal: &str| {
        let rule = json!({"name": "x", "signal": signal, "service": SEEN, "method": "constant", "expression": "x",
            "targets": [{"field": "y"}]});
        json!({"rule": rule, "query": stored(json!({}))})
    };
    let segment = json!({"conditions": {"logs": {"field": "_msg", "op": "contains", "value": "says"},
        "spans": {"field": "span.name", "op": "contains", "value": "op"}}});
    let test = |rule: Value| json!({"rule": rule, "time": AT + 1});
    let olap = json!({"measures": ["Spans.count"], "dimensions": ["Spans.service"]}).to_string();
    let checked = [SEEN, HIDDEN].map(|service| format!("{{view, logs, {service}}}"));
    all.extend([
        Post::json("/business-processes/test", &process(SEEN)).shows(),
        Post::json("/business-processes/test", &process(HIDDEN)),
        Post::json("/platform-api/segments/preview", &stored(json!({"segment": segment}))).shows(),
        Post::json("/platform-api/data-extraction-rules/test", &extraction("logs")).shows(),
        Post::json("/platform-api/data-extraction-rules/test", &extraction("spans")).shows(),
        Post::json(
            "/platform-api/resources/dependency-graph",
            &json!({"roots": [resource], "direction": "both", "depth": 5}),
        )
        .shows(),
        Post::json("/platform-api/rbac/permissions/check", &json!({"triples": checked})).shows(),
        Post::json("/rulesapi/rules/test", &test(json!({"alert": "A", "expr": "common", "service": SEEN}))).shows(),
        Post::json(
            "/rulesapi/rules/test",
            &test(json!({"alert": "A", "expr": "* | stats by (service.name) count() n", "language": "logsql"})),
        )
        .shows(),
        Post::json("/rulesapi/rules/test", &test(json!({"alert": "A", "expr": olap, "language": "olap"}))).shows(),
        Post::json("/rulesapi/rules/unit-test", &json!({"rules": "groups: []", "tests": "tests: []"})),
        Post::json("/rulesapi/silences/preview", &json!({"matchers": ["alertname=~\".+\""]})).shows(),
    ]);
    for test in ["routes/test", "templates/test", "receivers/test", "deploy?action=validate"] {
        all.push(Post::json(format!("/rulesapi/rulepolicy/{test}"), &json!({"labels": {"a": "b"}})));
    }
    // Files of rules: in a group of others' there is nothing but what they bring.
    for (action, group) in [("validate", HIDDEN), ("diff", HIDDEN), ("diff&prune=true", HIDDEN), ("diff", SEEN)] {
        let rule = format!("{{alert: X, expr: up, labels: {{service: {SEEN}}}}}");
        let file = format!("groups:\n- {{name: {group}, rules: [{rule}]}}\n");
        all.push(Post::new(format!("/rulesapi/deploy?action={action}"), YAML, file));
    }
    all
}

async fn call(server: &Server, who: &str, path: &str, body: &Value) -> Value {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let answer = server.post(path, &[("authorization", who), ("content-type", JSON)], body).await;
    assert!(answer.status < 300, "{path}: {} {}", answer.status, answer.text());
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

/// Ends of routes that change what they are about, or begin something that does.
const CHANGES: [&str; 18] = [
    "/apply-to-all",
    "/archive/{id}",
    "/bulk-delete",
    "/bulk-update",
    "/clone",
    "/expire",
    "/from-candidates",
    "/import",
    "/logout",
    "/merge",
    "/move",
    "/receivers/{id}/test",
    "/reset-password",
    "/restore",
    "/rollback",
    "/rotate",
    "/rotate-secret",
    "/steps",
];
/// Beginnings of routes that take telemetry in, give tokens, end queries or are about the caller's own body alone.
const TAKES: [&str; 16] = [
    "/admin/",
    "/api/traces",
    "/api/transform",
    "/api/v2/",
    "/insert/",
    "/jaeger/api/",
    "/logs-api/insert/",
    "/loki/",
    "/metrics-api/api/v1/import/",
    "/metrics-api/api/v1/otlp/",
    "/metrics-api/api/v1/write",
    "/opentelemetry.proto.",
    "/realms/",
    "/services/",
    "/v1/",
    "/zipkin/api/",
];

/// A route that lists, exports and makes entities makes one by POST.
fn changes(route: &str, paths: &serde_json::Map<String, Value>) -> bool {
    CHANGES.iter().any(|end| route.ends_with(end))
        || TAKES.iter().any(|begin| route.starts_with(begin))
        || paths.contains_key(&format!("{route}/export"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_post_that_computes_answers_as_if_there_were_nothing_else() {
    let (dir, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    // Two batches of spans that lie in memory would be two partitions.
    let options = options().env("QUIVER_QUERY__THREADS", 2);
    let (server, only) = (Server::start(dir.path(), &options).await, Server::start(other.path(), &options).await);
    let (mut sides, mut administrators) = (Vec::new(), Vec::new());
    for side in [&server, &only] {
        let admin = bearer(&login(side, "admin", PASSWORD).await);
        let ids = fill(side, &admin, SEEN, 'f').await;
        user(side, &admin, "ann", "editor", json!([SEEN])).await;
        let who = bearer(&login(side, "ann", PASSWORD).await);
        let asked = [metrics(), logs(), traces(), statements(), tries(&ids[RESOURCES])].concat();
        sides.push((side, who, ids, asked));
        administrators.push(admin);
    }
    let admin = &administrators[0];
    let hidden = fill(&server, admin, HIDDEN, 'e').await;
    let call_of = json!({"typeId": CALLS, "sourceId": sides[0].2[RESOURCES], "targetId": hidden[RESOURCES]});
    call(&server, admin, "/platform-api/resource-relationships", &call_of).await;
    let document = server.get_as("/platform-api/openapi.json", &[("authorization", admin)]).await.json();
    let paths = document["paths"].as_object().expect("paths");
    let asked_of: BTreeSet<String> =
        sides[0].3.iter().map(|post| post.route().replace("service.name", "{key}")).collect();
    let neither = paths
        .iter()
        .filter(|(route, item)| item.get("post").is_some() && !route.ends_with("/tail") && !asked_of.contains(*route));
    let neither: Vec<&String> = neither.map(|(route, _)| route).filter(|route| !changes(route, paths)).collect();
    assert!(neither.is_empty(), "is it a question, or a change? {neither:?}");
    let (mut wrong, mut hides) = (Vec::new(), 0);
    for state in ["live", "flushed"] {
        for ((side, ..), admin) in sides.iter().zip(&administrators).filter(|_| state == "flushed") {
            call(side, admin, "/admin/flush", &Value::Null).await;
        }
        for (n, post) in sides[0].3.iter().enumerate() {
            let mut said = Vec::new();
            for (side, who, ids, asked) in &sides {
                let answer = asked[n].ask(side, who).await;
                let text = ids.values().fold(steady(&answer), |text, id| text.replace(id, "ID"));
                said.push((answer.status, text.replace(&side.http, "HOST")));
            }
            let [(status, text), expected] = &said[..] else { panic!("two sides") };
            let cut = |text: &str| text.chars().take(500).collect::<String>();
            let about = || format!("{state} {} {}", post.path, String::from_utf8_lossy(&post.body));
            if said[0] != *expected {
                wrong.push(format!("{}:\n  {status} {}\n  {} {}", about(), cut(text), expected.0, cut(&expected.1)));
            }
            if post.shows && (*status != 200 || !text.contains(SEEN)) || text.contains(HIDDEN) && !post.names_hidden() {
                wrong.push(format!("{}: {status} {}", about(), cut(text)));
            }
            // There is something to hide.
            hides += usize::from(post.shows && post.ask(&server, admin).await.text().contains(HIDDEN));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(hides > 50, "{hides}");
}
