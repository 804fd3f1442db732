//! A caller to whom rows are hidden does not learn what a query read to find its rows (`identity-and-access` 4.1). A
//! search for a word that only hidden rows contain reads more than one for a word that nobody has, so counters of reads
//! would tell them apart. Nor does he learn how often hidden data changes.

use quiver_tests::server::Server;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::identity::{PASSWORD, bearer, login, user, with_password};

/// Time of the data, in Unix seconds.
const AT: i64 = 1_772_402_400;
/// Words of the same length: of the service that is hidden, of nobody, and of the one that is seen.
const HIDDEN: &str = "hhhhword";
const NOBODY: &str = "nnnnword";
const SEEN: &str = "sssssword";

/// Telemetry of a service that says a word in each place that has an index.
async fn fill(server: &Server, admin: &str, service: &str, word: &str) {
    let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let mut rows = String::new();
    let mut spans = Vec::new();
    for n in 0..50_i64 {
        let message = format!("says {word} {n}");
        let row = json!({"_time": (AT + n).to_string(), "_msg": message, "service.name": service, word: word});
        let _ = writeln!(rows, "{row}");
        let id = format!("{:032x}", n * 2 + 1 + i64::from(service == HIDDEN));
        spans.push(json!({"traceId": id, "spanId": id[16..], "kind": 2, "name": word,
            "startTimeUnixNano": format!("{}000000000", AT + n), "endTimeUnixNano": format!("{}500000000", AT + n),
            "attributes": [attribute(word, word)]}));
    }
    let series = |n: i64| format!("{word}{{service_name=\"{service}\",n=\"{n}\"}} {n} {}\n", AT * 1000);
    let series: String = (0..20).map(series).collect();
    post(server, admin, "/metrics-api/api/v1/import/prometheus", "text/plain", series).await;
    send(server, admin, service, rows, &spans).await;
}

async fn post(server: &Server, admin: &str, path: &str, kind: &str, body: String) {
    let headers = [("authorization", admin), ("content-type", kind)];
    let answer = server.post(path, &headers, body.into_bytes()).await;
    assert!(answer.status < 300, "{path}: {} {}", answer.status, answer.text());
}

/// Log rows, and spans of a service.
async fn send(server: &Server, admin: &str, service: &str, rows: String, spans: &[Value]) {
    let name = json!({"key": "service.name", "value": {"stringValue": service}});
    let traces =
        json!({"resourceSpans": [{"resource": {"attributes": [name]}, "scopeSpans": [{"spans": spans}]}]}).to_string();
    post(server, admin, "/insert/jsonline?_stream_fields=service.name", "application/stream+json", rows).await;
    post(server, admin, "/v1/traces", "application/json", traces).await;
}

/// More rows than one partition of a scan is worth, and more spans than a search looks through at once.
async fn crowd(server: &Server, admin: &str, service: &str) {
    let mut rows = String::new();
    for n in 0..70_000_i64 {
        let _ = writeln!(rows, "{}", json!({"_time": (AT + n % 50).to_string(), "_msg": "m", "service.name": service}));
    }
    let span = |n: i64| {
        let (id, at) = (format!("{:032x}", 1_000_000 + n), AT + n % 50);
        json!({"traceId": id, "spanId": id[16..], "kind": 2, "name": "crowd",
            "startTimeUnixNano": format!("{at}000000000"), "endTimeUnixNano": format!("{at}500000000")})
    };
    send(server, admin, service, rows, &(0..1000).map(span).collect::<Vec<_>>()).await;
}

/// Questions after a word, each of another language or route.
fn questions(word: &str) -> Vec<(&'static str, Vec<(&'static str, String)>)> {
    let (from, to) = ((AT - 600).to_string(), (AT + 600).to_string());
    let logs = |query: String| vec![("query", query), ("start", from.clone()), ("end", to.clone())];
    let analyzed = |mut params: Vec<(&'static str, String)>| {
        params.push(("explain", "analyze".to_owned()));
        params
    };
    let sql = |text: &str| vec![("query", text.to_owned())];
    let search = vec![("q", format!("{{span.{word}=\"{word}\"}}")), ("start", from.clone()), ("end", to.clone())];
    let window = vec![("from", from.clone()), ("to", to.clone()), ("q", format!("{{name=\"{word}\"}}"))];
    vec![
        ("/logs-api/select/logsql/query", analyzed(logs(word.to_owned()))),
        ("/logs-api/select/logsql/query", analyzed(logs(format!("{word}:={word}")))),
        ("/logs-api/select/logsql/query", logs(format!("{word} | query_stats"))),
        ("/logs-api/select/logsql/hits", analyzed(logs(word.to_owned()))),
        ("/sql-api/v1/query", sql(&format!("select count(*) from logs where message like '%{word}%'"))),
        ("/sql-api/v1/query", sql(&format!("select count(*) from spans where name = '{word}'"))),
        ("/sql-api/v1/query", sql(&format!("select count(*) from metric_samples where name = '{word}'"))),
        ("/sql-api/v1/query", sql(&format!("explain analyze select count(*) from logs where message like '%{word}%'"))),
        ("/sql-api/v1/query", sql(&format!("explain select * from logs where message like '%{word}%'"))),
        ("/sql-api/v1/query", sql(&format!("explain select * from spans where name = '{word}'"))),
        ("/metrics-api/api/v1/query", analyzed(vec![("query", word.to_owned()), ("time", AT.to_string())])),
        ("/metrics-api/api/v1/label/n/values", analyzed(vec![("match[]", word.to_owned())])),
        ("/tempo/api/search", analyzed(search.clone())),
        ("/tempo/api/search", search),
        ("/traces", analyzed(window.clone())),
        ("/traces", window),
    ]
}

/// An answer without times, and without what follows from the word alone.
fn steady(value: &mut Value, word: &str) {
    match value {
        Value::Object(map) => {
            map.retain(|name, _| {
                !name.ends_with("_ms") && !["digest", "elapsedMs", "requestId", "instance"].contains(&name.as_str())
            });
            map.values_mut().for_each(|v| steady(v, word));
        }
        Value::Array(items) => items.iter_mut().for_each(|v| steady(v, word)),
        Value::String(text) => *text = text.replace(word, "WORD"),
        _ => {}
    }
}

async fn asked(server: &Server, who: &str, question: &(&str, Vec<(&str, String)>), word: &str) -> Value {
    let (path, params) = question;
    let url = reqwest::Url::parse_with_params(&server.url(path), params).expect("a URL");
    let target = format!("{}?{}", url.path(), url.query().unwrap_or_default());
    let answer = server.get_as(&target, &[("authorization", who)]).await;
    assert_eq!(answer.status, 200, "{path} {params:?}: {}", answer.text());
    let mut value = serde_json::from_slice(&answer.body).unwrap_or_else(|_| answer.text().into());
    steady(&mut value, word);
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_is_not_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    fill(&server, &admin, "seen", SEEN).await;
    fill(&server, &admin, HIDDEN, HIDDEN).await;
    user(&server, &admin, "viewer", "viewer", json!(["seen"])).await;
    let viewer = bearer(&login(&server, "viewer", PASSWORD).await);
    let mut told = 0;
    for state in ["live", "flushed"] {
        if state == "flushed" {
            let answer = server.post("/admin/flush", &[("authorization", &admin)], vec![]).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        for (of_hidden, of_nobody) in questions(HIDDEN).iter().zip(&questions(NOBODY)) {
            let (hidden, nobody) =
                (asked(&server, &viewer, of_hidden, HIDDEN).await, asked(&server, &viewer, of_nobody, NOBODY).await);
            assert_eq!(hidden, nobody, "{state} {of_hidden:?}");
            // Whoever sees everything is told of the difference: there is one to hide.
            let (hidden, nobody) =
                (asked(&server, &admin, of_hidden, HIDDEN).await, asked(&server, &admin, of_nobody, NOBODY).await);
            told += usize::from(hidden != nobody);
        }
    }
    assert!(told >= questions(HIDDEN).len(), "{told}");
    // Rows of one's own are counted as ever.
    let text = format!("select count(*) from metric_samples where name = '{SEEN}'");
    let own = ("/sql-api/v1/query", vec![("query", text)]);
    let own = asked(&server, &viewer, &own, SEEN).await;
    assert_eq!((&own["rows"], &own["stats"]["series"]), (&json!([[20]]), &json!(20)), "{own}");
    assert_eq!(own["stats"]["parts_total"], json!(0), "{own}");
    // How far results that are kept still hold follows from whatever was written.
    let range = [("start", AT - 600), ("end", AT + 600), ("step", 60)].map(|(name, n)| (name, n.to_string()));
    let params = [("query", SEEN.to_owned()), ("explain", "analyze".to_owned())].into_iter().chain(range).collect();
    let ranged = ("/metrics-api/api/v1/query_range", params);
    let [seen, all] = [asked(&server, &viewer, &ranged, SEEN).await, asked(&server, &admin, &ranged, SEEN).await];
    assert!(all["data"]["result_cache"].is_object(), "{all}");
    assert!(seen["data"]["nodes"].is_array() && seen["data"]["result_cache"].is_null(), "{seen}");
}

/// Questions after plans, in each language.
fn plans() -> Vec<(&'static str, Vec<(&'static str, String)>)> {
    let (from, to) = ((AT - 600).to_string(), (AT + 600).to_string());
    let is_plan = |(name, value): &(&str, String)| *name == "explain" || value.starts_with("explain");
    let mut all = questions(SEEN);
    all.retain(|(_, params)| params.iter().any(is_plan));
    for explain in ["true", "analyze"] {
        let explain = ("explain", explain.to_owned());
        for query in ["*", "* | stats by (service.name) count() n", "* | limit 5", "* | facets"] {
            let query = ("query", query.to_owned());
            let params = vec![query, ("start", from.clone()), ("end", to.clone()), explain.clone()];
            all.push(("/logs-api/select/logsql/query", params));
        }
        let window = [("from", from.clone()), ("to", to.clone()), explain];
        for path in ["/traces", "/traces/services", "/traces/operations", "/traces/facets"] {
            all.push((path, window.to_vec()));
        }
    }
    let joined = "select * from spans s join logs l on s.trace_id = l.trace_id";
    for text in ["select service_name, count(*) from logs group by 1", joined] {
        for explain in ["explain", "explain analyze", "explain verbose"] {
            all.push(("/sql-api/v1/query", vec![("query", format!("{explain} {text}"))]));
        }
    }
    all
}

/// Plans that run at once are told of in any order.
fn in_order(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(in_order),
        Value::Array(items) => {
            items.iter_mut().for_each(in_order);
            items.sort_by_cached_key(Value::to_string);
        }
        _ => {}
    }
}

/// Whatever lies beside the rows of a viewer, he is shown the same plans.
#[tokio::test(flavor = "multi_thread")]
async fn plans_do_not_tell_of_hidden_rows() {
    let (dir, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let options = with_password().args(&["--retention", "none"]).env("QUIVER_QUERY__THREADS", 2);
    let (server, only) = (Server::start(dir.path(), &options).await, Server::start(other.path(), &options).await);
    let mut sides = Vec::new();
    for side in [&server, &only] {
        let admin = bearer(&login(side, "admin", PASSWORD).await);
        fill(side, &admin, "seen", SEEN).await;
        user(side, &admin, "viewer", "viewer", json!(["seen"])).await;
        let viewer = bearer(&login(side, "viewer", PASSWORD).await);
        sides.push((side, admin, viewer));
    }
    fill(&server, &sides[0].1, HIDDEN, HIDDEN).await;
    crowd(&server, &sides[0].1, HIDDEN).await;
    let plans = plans();
    let (mut wrong, mut told) = (Vec::new(), 0);
    for (state, path) in [("live", ""), ("flushed", "/admin/flush"), ("compacted", "/admin/compact")] {
        for (side, admin, _) in sides.iter().filter(|_| !path.is_empty()) {
            let answer = side.post(path, &[("authorization", admin)], vec![]).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        for plan in &plans {
            let (mut viewers, mut administrators) = (Vec::new(), Vec::new());
            for (side, admin, viewer) in &sides {
                for (who, shown) in [(viewer, &mut viewers), (admin, &mut administrators)] {
                    let mut value = asked(side, who, plan, SEEN).await;
                    in_order(&mut value);
                    shown.push(value);
                }
            }
            if viewers[0] != viewers[1] {
                wrong.push(format!("{state} {plan:?}:\n  {}\n  {}", viewers[0], viewers[1]));
            }
            // Whoever sees everything is told of the difference: there is one to hide.
            told += usize::from(administrators[0] != administrators[1]);
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(told > plans.len(), "{told} of {}", 3 * plans.len());
}

/// Only callers who may view everything learn how often anything changes.
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_others_are_not_counted() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    user(&server, &admin, "editor", "editor", json!(["seen"])).await;
    user(&server, &admin, "auditor", "viewer", Value::Null).await;
    let editor = bearer(&login(&server, "editor", PASSWORD).await);
    let auditor = bearer(&login(&server, "auditor", PASSWORD).await);
    let revision = async |who: &str| {
        let answer = server.get_as("/rulesapi/rules", &[("authorization", who)]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.headers.get("x-config-revision")?.to_str().expect("text").parse::<u64>().ok()
    };
    let before = revision(&auditor).await;
    assert!(before.is_some(), "who sees all is told");
    assert_eq!(revision(&editor).await, None);
    let rule = json!({"alert": "A", "group": "g", "expr": "up == 0", "service": "seen"}).to_string();
    post(&server, &editor, "/rulesapi/rules", "application/json", rule).await;
    let file = "groups:\n- {name: g, rules: [{alert: A, expr: up, service: seen}]}\n";
    for (who, is_told) in [(&editor, false), (&admin, true)] {
        let headers = [("authorization", who.as_str()), ("content-type", "application/yaml")];
        let done = server.post("/rulesapi/deploy?action=apply", &headers, file.into()).await;
        assert_eq!(done.status, 200, "{}", done.text());
        assert_eq!(done.headers.contains_key("x-config-revision"), is_told, "{}", done.text());
        assert_eq!(done.json()["revision"].is_u64(), is_told, "{}", done.text());
    }
    assert!(revision(&auditor).await > before);
}

/// A name that others are written in, a line each, is another name than each of them.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_services_are_whole() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password().env("QUIVER_USAGE__INTERVAL", "100ms")).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    user(&server, &admin, "viewer", "viewer", json!(["seen"])).await;
    let viewer = bearer(&login(&server, "viewer", PASSWORD).await);
    for service in ["seen", "seen\nseen"] {
        let row = json!({"_msg": "m", "service.name": service}).to_string();
        post(&server, &admin, "/insert/jsonline", "application/stream+json", row).await;
        let alert = json!([{"labels": {"alertname": "A", "service": service}}]).to_string();
        post(&server, &admin, "/api/v2/alerts", "application/json", alert).await;
    }
    for table in ["alert_events", "ingest_usage_1m"] {
        let text = format!("select distinct service_name from {table} where service_name is not null order by 1");
        let question = ("/sql-api/v1/query", vec![("query", text)]);
        let began = Instant::now();
        let all = loop {
            let all = asked(&server, &admin, &question, NOBODY).await["rows"].take();
            if all.as_array().is_some_and(|rows| rows.len() > 1) {
                break all;
            }
            assert!(began.elapsed() < Duration::from_mins(5), "{table}: {all}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(all, json!([["seen"], ["seen\nseen"]]), "{table}");
        let seen = asked(&server, &viewer, &question, NOBODY).await;
        assert_eq!(seen["rows"], json!([["seen"]]), "{table}");
    }
    // How long a request took tells of all that was in it.
    let text = "select count(latency_ms) > 0, count(lag_ms) > 0 from ingest_usage_1m where service_name = 'seen'";
    let question = ("/sql-api/v1/query", vec![("query", text.to_owned())]);
    for (who, is_told) in [(&viewer, false), (&admin, true)] {
        let told = asked(&server, who, &question, NOBODY).await;
        assert_eq!(told["rows"], json!([[is_told, true]]), "{told}");
    }
}

/// When others write does not show in answers that are kept until somebody does.
#[tokio::test(flavor = "multi_thread")]
async fn kept_answers_do_not_tell_of_writes() {
    let dir = tempfile::tempdir().expect("a folder");
    // An answer that is not kept takes longer than a wait of nothing, as it does where there is much to read.
    let slow = with_password().env("QUIVER_FAILPOINT", "query.begin=sleep:50");
    let server = Server::start(dir.path(), &slow).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    user(&server, &admin, "viewer", "viewer", json!(["seen"])).await;
    let viewer = bearer(&login(&server, "viewer", PASSWORD).await);
    let row = json!({"_msg": "m", "service.name": "seen"}).to_string();
    post(&server, &admin, "/insert/jsonline", "application/stream+json", row).await;
    let load = async |who: &str| {
        let headers = [("authorization", who), ("content-type", "application/json")];
        let query = json!({"query": {"measures": ["Logs.count"], "cache": "must-revalidate"}}).to_string();
        let answer = server.post("/olap-api/v1/load", &headers, query.into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let (id, body) = (answer.headers["x-request-id"].clone(), answer.json());
        let is_own = body["requestId"].as_str().is_some_and(|told| id == told);
        (body["data"][0]["Logs.count"].clone(), is_own, body["lastRefreshTime"].clone())
    };
    let first = load(&viewer).await;
    assert_eq!((&first.0, first.1), (&json!("1"), true));
    // Nothing is written, and each answer is as good as one of its own time.
    let began = Instant::now();
    loop {
        let next = load(&viewer).await;
        assert_eq!((&next.0, next.1), (&json!("1"), true));
        if next.2 != first.2 {
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "it tells when it was made");
    }
    // Nor is it there at once, which says the same.
    let waits = async |who: &str| {
        let query = json!({"query": {"measures": ["Logs.count"], "cache": "must-revalidate"}}).to_string();
        // Straight: `Server::post` asks again until there is an answer.
        let request = reqwest::Client::new().post(server.url("/olap-api/v1/load")).header("authorization", who);
        let request = request.header("content-type", "application/json").header("x-wait", "0").body(query);
        let text = request.send().await.expect("sent").text().await.expect("an answer");
        serde_json::from_str::<Value>(&text).expect("JSON")["error"] == "Continue wait"
    };
    let began = Instant::now();
    while !waits(&viewer).await {
        assert!(began.elapsed() < Duration::from_mins(1), "it tells that nobody has written");
        load(&viewer).await;
    }
    // Whoever sees everything is told of the one execution.
    let first = load(&admin).await;
    let again = load(&admin).await;
    assert_eq!((&again.0, again.1, &again.2), (&first.0, false, &first.2), "the server keeps answers");
    assert!(!waits(&admin).await, "it is there");
}

/// Windows do not tell when hidden spans were: neither those of a trace that is seen in part, nor those of one that is hidden.
#[tokio::test(flavor = "multi_thread")]
async fn windows_do_not_tell_of_hidden_spans() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password().args(&["--retention", "none"])).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    user(&server, &admin, "viewer", "viewer", json!(["seen"])).await;
    let viewer = bearer(&login(&server, "viewer", PASSWORD).await);
    let span = |trace: u32, span: u32, at: i64| {
        json!({"traceId": format!("{trace:032x}"), "spanId": format!("{span:016x}"), "kind": 2, "name": "op",
            "startTimeUnixNano": format!("{at}000000000"), "endTimeUnixNano": format!("{at}500000000")})
    };
    send(&server, &admin, "seen", String::new(), &[span(1, 1, AT + 100)]).await;
    send(&server, &admin, HIDDEN, String::new(), &[span(1, 2, AT), span(2, 3, AT)]).await;
    let window = |at: i64| format!("?start_time={}000000000&end_time={}000000000", at - 10, at + 10);
    for state in ["live", "flushed"] {
        if state == "flushed" {
            let answer = server.post("/admin/flush", &[("authorization", &admin)], vec![]).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        for form in ["/platform-api/traces/ID/otlp", "/platform-api/traces/ID/spanarray", "/traces/ID"] {
            let check = async |who: &str, trace: u32, window: &str, expected: u16| {
                let path = form.replace("ID", &format!("{trace:032x}"));
                let answer = server.get_as(&format!("{path}{window}"), &[("authorization", who)]).await;
                assert_eq!(answer.status, expected, "{state} {path}{window}: {}", answer.text());
            };
            // Of a trace that is seen in part: only hidden spans, none at all, a span that is seen.
            check(&viewer, 1, "", 200).await;
            check(&viewer, 1, &window(AT), 404).await;
            check(&viewer, 1, &window(AT + 500), 404).await;
            check(&viewer, 1, &window(AT + 100), 200).await;
            // Of one that is hidden: that it is there is told, and no more.
            for window in [String::new(), window(AT), window(AT + 500)] {
                check(&viewer, 2, &window, 403).await;
                check(&viewer, 3, &window, 404).await;
            }
            // A caller who sees everything is told what is there.
            check(&admin, 1, &window(AT), 200).await;
            check(&admin, 2, &window(AT), 200).await;
            check(&admin, 2, &window(AT + 500), 404).await;
        }
    }
}
