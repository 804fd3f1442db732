//! Every route of the API description (another test checks that it is complete): without a token, with a token without
//! rights, and with the right to view one service. Each is refused or restricted, and discloses nothing about other
//! services.

use std::collections::BTreeMap;

use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};

use crate::identity::{PASSWORD, bearer, login, made, user, with_password};

/// A service that nobody but the administrator sees, and the one that the viewer sees.
pub(crate) const HIDDEN: &str = "zzhidden";
pub(crate) const SEEN: &str = "qqseen";
/// The type of resources that are services.
const SERVICE_TYPE: &str = "00000000-0000-7000-8000-000000000101";
/// Time of the data, in Unix seconds.
pub(crate) const AT: i64 = 1_772_402_400;

/// Access control, and nothing that a job of the server finds in its own time.
pub(crate) fn options() -> Options {
    with_password().args(&["--retention", "none"]).env("QUIVER_RESOURCES__DISCOVERY_INTERVAL", "0s")
}

/// Telemetry and configuration that name a service wherever they can. Gives ids of entities by path.
pub(crate) async fn fill(server: &Server, admin: &str, service: &str, digit: char) -> BTreeMap<&'static str, String> {
    let post = async |path: &str, kind: &str, body: Vec<u8>| {
        let answer = server.post(path, &[("authorization", admin), ("content-type", kind)], body).await;
        assert!(answer.status < 300, "{path}: {} {}", answer.status, answer.text());
        answer
    };
    let text = format!(
        "# TYPE up_{service} gauge\n# HELP up_{service} Of {service}.\nup_{service}{{service_name=\"{service}\"}} 1 {AT}\n\
         common{{service_name=\"{service}\"}} 1 {AT} # {{trace_id=\"{service}\"}} 1\n"
    );
    post(
        "/metrics-api/api/v1/import/prometheus",
        "application/openmetrics-text",
        format!("{text}# EOF\n").into_bytes(),
    )
    .await;
    let row = json!({"_time": AT.to_string(), "_msg": format!("says {service}"), "service.name": service, format!("f_{service}"): service,
        "trace_id": digit.to_string().repeat(32)});
    post("/insert/jsonline?_stream_fields=service.name", "application/stream+json", row.to_string().into_bytes()).await;
    let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let span = json!({"traceId": digit.to_string().repeat(32), "spanId": digit.to_string().repeat(16), "kind": 2, "name": format!("op {service}"),
        "startTimeUnixNano": format!("{AT}000000000"), "endTimeUnixNano": format!("{AT}100000000"),
        "attributes": [attribute(&format!("tag_{service}"), service)],
        "events": [{"timeUnixNano": format!("{AT}000000000"), "name": format!("event {service}")}]});
    let traces = json!({"resourceSpans": [{"resource": {"attributes": [attribute("service.name", service), attribute("host.name", &format!("h-{service}"))]},
        "scopeSpans": [{"spans": [span]}]}]});
    post("/v1/traces", "application/json", traces.to_string().into_bytes()).await;
    let alert = json!([{"labels": {"alertname": format!("A{service}"), "service": service}}]);
    post("/api/v2/alerts", "application/json", alert.to_string().into_bytes()).await;
    let silence = json!({"matchers": [{"name": "service", "value": service, "isRegex": false, "isEqual": true}], "createdBy": service,
        "comment": service, "startsAt": "2020-01-01T00:00:00Z", "endsAt": "2090-01-01T00:00:00Z"});
    post("/api/v2/silences", "application/json", silence.to_string().into_bytes()).await;
    let mut ids = BTreeMap::new();
    let name = format!("n-{service}");
    for (path, body) in [
        ("/transactions", json!({"name": name, "service": service, "transactionName": service})),
        ("/rum-key-business-transactions", json!({"name": name, "application": service, "transactionName": service})),
        ("/rulesapi/rules", json!({"alert": name, "group": service, "expr": "up == 0", "service": service})),
        ("/platform-api/apdex-thresholds", json!({"service": service, "thresholdMs": 100})),
        (
            "/platform-api/resources",
            json!({"typeId": SERVICE_TYPE, "service": service, "attributes": {"service.name": service}}),
        ),
    ] {
        ids.insert(
            path,
            post(path, "application/json", body.to_string().into_bytes()).await.json()["id"]
                .as_str()
                .expect("an id")
                .to_owned(),
        );
    }
    ids
}

/// A path with what stands for its parameters, and parameters that most endpoints need.
fn asked(template: &str, ids: &BTreeMap<&'static str, String>) -> String {
    let of_family = ids.iter().find(|(family, _)| template.starts_with(**family)).map(|(_, id)| id.as_str());
    let mut path = String::new();
    for part in template.split('/').skip(1) {
        let part = match part.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
            None => part.to_owned(),
            Some(_) if template.contains("trace") && !template.contains("tag") => "e".repeat(32),
            Some(_) if template.contains("/label/") => "service_name".to_owned(),
            Some(_) if template.contains("tag") => format!("tag_{HIDDEN}"),
            Some(_) => of_family.unwrap_or("service.name").to_owned(),
        };
        path.extend(["/", part.as_str()]);
    }
    let (from, to) = (AT - 600, AT + 600);
    let all = "%7B__name__%3D~%22.%2B%22%7D";
    let more = if path == "/sql-api/v1/query" {
        "query=select%20*%20from%20spans".to_owned()
    } else if path.starts_with("/metrics-api") {
        format!("query={all}&match[]={all}&start={from}&end={to}&time={AT}&step=60")
    } else if path.starts_with("/logs-api") || path.starts_with("/select") {
        format!("query=*&field=service.name&start={from}&end={to}&step=60s&limit=100")
    } else if path.starts_with("/tempo") {
        format!("q=%7B%7D&start={from}&end={to}")
    } else if path.starts_with("/api") || path.starts_with("/jaeger") || path.starts_with("/zipkin") {
        format!(
            "service={HIDDEN}&start={from}000000&end={to}000000&endTs={to}000&lookback=1200000&serviceName={HIDDEN}"
        )
    } else if ["/traces/histogram", "/traces/heatmap"].contains(&template) {
        format!("from={from}&to={to}&step=60s")
    } else if path.starts_with("/traces") && !template.contains("{id}") && template != "/traces/compare" {
        format!("from={from}&to={to}")
    } else {
        String::new()
    };
    if more.is_empty() { path } else { format!("{path}?{more}") }
}

async fn send(server: &Server, who: Option<&str>, method: &str, path: &str) -> Answer {
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(who.map(|who| ("authorization", who)));
    let body = if method == "GET" || method == "DELETE" { vec![] } else { b"{}".to_vec() };
    server.send(method, path, &headers, body).await
}

/// Answers without a token: what is public (`identity-and-access` 1.4).
fn is_public(path: &str) -> bool {
    ["/health", "/-/", "/realms/", "/metrics-api/-/", "/rulesapi/swagger"].iter().any(|p| path.starts_with(p))
        || ["/", "/ready", "/insert/ready", "/logs-api/insert/ready", "/logs-api/health", "/metrics"].contains(&path)
        || path == "/platform-api/rbac/me/password"
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_refuses_or_cuts() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let ids = fill(&server, &admin, HIDDEN, 'e').await;
    fill(&server, &admin, SEEN, 'f').await;
    made(&server, &admin, "users", json!({"username": "empty", "password": PASSWORD})).await;
    user(&server, &admin, "viewer", "viewer", json!([SEEN])).await;
    let (empty, viewer) = (login(&server, "empty", PASSWORD).await, login(&server, "viewer", PASSWORD).await);
    let (empty, viewer) = (bearer(&empty), bearer(&viewer));
    let document = server.get_as("/platform-api/openapi.json", &[("authorization", &admin)]).await.json();
    let (mut routes, mut cut, mut wrong) = (0, 0, Vec::new());
    for (template, item) in document["paths"].as_object().expect("paths") {
        for method in ["get", "post", "put", "patch", "delete"].into_iter().filter(|m| item.get(*m).is_some()) {
            // Those that answer as long as they are asked have tests of their own.
            if template.ends_with("/tail") || template.contains("subscribe") {
                continue;
            }
            // Open to whoever is on this machine, as this test is.
            if template == "/metrics" {
                continue;
            }
            let (method, path) = (method.to_uppercase(), asked(template, &ids));
            routes += 1;
            let nobody = send(&server, None, &method, &path).await;
            let refused = nobody.status == 401 || nobody.headers.get("grpc-status").is_some_and(|s| s == "16");
            if !is_public(template) && !refused {
                wrong.push(format!("{method} {path}: {} without a token", nobody.status));
            }
            let named = |answer: &Answer, names: &[&str]| {
                // What the request itself said may come back in the text of an error.
                let said = |name: &&&str| answer.text().replace(&format!("tag_{HIDDEN}"), "").contains(**name);
                names.iter().any(|name| said(&name)) && answer.status < 400
            };
            let none = send(&server, Some(&empty), &method, &path).await;
            // An archive of Jaeger's there is not, whoever asks.
            let broken = |answer: &Answer| answer.status >= 500 && answer.status != 501;
            if named(&none, &[HIDDEN, SEEN]) || broken(&none) {
                wrong.push(format!("{method} {path}: {} for who may nothing: {:.300}", none.status, none.text()));
            }
            let some = send(&server, Some(&viewer), &method, &path).await;
            if named(&some, &[HIDDEN]) || broken(&some) {
                wrong.push(format!("{method} {path}: {} for a viewer: {:.300}", some.status, some.text()));
            }
            cut += usize::from(named(&some, &[SEEN]));
        }
    }
    assert!(wrong.is_empty(), "{} of {routes}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(routes > 250 && cut > 20, "{routes} routes, {cut} of which showed what may be seen");
    // The administrator sees what was there to be hidden.
    for path in ids.keys() {
        let answer = send(&server, Some(&admin), "GET", path).await;
        assert!(answer.text().contains(HIDDEN), "{path}: {}", answer.text());
    }
}

/// Routes that tell of the server itself.
const OF_THE_SERVER: [&str; 5] = [
    "/metrics-api/api/v1/status/config",
    "/metrics-api/api/v1/status/flags",
    "/metrics-api/api/v1/status/runtimeinfo",
    "/realms/",
    "/health",
];
/// Members that say when and how an answer was made, and how far a rule is.
const OF_THE_ANSWER: [&str; 16] = [
    "requestId",
    "instance",
    "elapsedMs",
    "elapsed_ms",
    "elapsedUs",
    "time_ms",
    "executionTimeMsec",
    "durationMs",
    "queryId",
    "timings",
    "took",
    "health",
    "evaluationTime",
    "lastEvaluation",
    "lastRefreshTime",
    "nextCursor",
];

/// A value without what differs between two servers with the same data: ids and times of now, and the order of lists.
fn clean(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|name, _| !OF_THE_ANSWER.contains(&name.as_str()));
            map.values_mut().for_each(clean);
        }
        Value::Array(items) => {
            items.iter_mut().for_each(clean);
            items.sort_by_cached_key(Value::to_string);
        }
        Value::String(text) => {
            let at = |n: usize| text.as_bytes().get(n).copied();
            let is_id = text.len() == 36 && [at(8), at(13), at(18), at(23)] == [Some(b'-'); 4] && at(14) == Some(b'7');
            let is_time = text.starts_with("20") && at(10) == Some(b'T');
            if (is_id && !text.starts_with("00000000")) || (is_time && !text.starts_with("2026-03-01T")) {
                "OWN".clone_into(text);
            }
        }
        _ => {}
    }
}

pub(crate) fn steady(answer: &Answer) -> String {
    let cleaned = |text: &str| -> Option<String> {
        let mut value = serde_json::from_str(text).ok()?;
        clean(&mut value);
        Some(value.to_string())
    };
    let text = answer.text();
    cleaned(&text).unwrap_or_else(|| {
        let mut lines: Vec<String> = text.lines().map(|l| cleaned(l).unwrap_or_else(|| l.to_owned())).collect();
        lines.sort_unstable();
        lines.join("\n")
    })
}

/// What a viewer of one service gets from each route, beside data of others and where there is nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn every_route_answers_as_if_there_were_nothing_else() {
    let (dir, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (server, only) = (Server::start(dir.path(), &options()).await, Server::start(other.path(), &options()).await);
    let mut sides = Vec::new();
    for side in [&server, &only] {
        let admin = bearer(&login(side, "admin", PASSWORD).await);
        let ids = fill(side, &admin, SEEN, 'f').await;
        user(side, &admin, "viewer", "viewer", json!([SEEN])).await;
        sides.push((side, ids, admin, bearer(&login(side, "viewer", PASSWORD).await)));
    }
    fill(&server, &sides[0].2, HIDDEN, 'e').await;
    let who = [("authorization", sides[0].2.as_str())];
    let document = server.get_as("/platform-api/openapi.json", &who).await.json();
    let (mut asked_of, mut wrong) = (0, Vec::new());
    for state in ["live", "flushed"] {
        for (side, _, admin, _) in sides.iter().filter(|_| state == "flushed") {
            let answer = side.post("/admin/flush", &[("authorization", admin)], vec![]).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        for (template, item) in document["paths"].as_object().expect("paths") {
            let endless = template.ends_with("/tail") || template.contains("subscribe") || template == "/metrics";
            let own = OF_THE_SERVER.iter().any(|path| template.starts_with(path));
            if item.get("get").is_none() || endless || own {
                continue;
            }
            asked_of += 1;
            let mut said = Vec::new();
            for (side, ids, _, viewer) in &sides {
                let answer = send(side, Some(viewer), "GET", &asked(template, ids)).await;
                let text = ids.values().fold(steady(&answer), |text, id| text.replace(id, "ID"));
                said.push((answer.status, text.replace(&side.http, "HOST")));
            }
            // A trace of which nothing may be seen is told of here (`traces-api` 2.5).
            let told = template == "/traces/{id}" && (said[0].0, said[1].0) == (403, 404);
            if said[0] != said[1] && !told {
                let [a, b] = [0, 1].map(|n| said[n].1.chars().take(500).collect::<String>());
                wrong.push(format!("{state} {template}:\n  {} {a}\n  {} {b}", said[0].0, said[1].0));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {asked_of}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(asked_of > 400, "{asked_of}");
}
