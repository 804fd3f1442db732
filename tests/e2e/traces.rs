//! Traces over the real binary: the service graph with late spans and odd windows, lists from roll-ups and from rows,
//! different reports of a trace, ports, and invalid values of every parameter.

mod hostile;
mod ids;
mod tempo;
pub(crate) mod tempo_grpc;
mod traceql;
mod traceql_steps;
mod zipkin;

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

/// 2026-03-01 12:00 UTC.
const NOON: i64 = 1_772_366_400_000_000_000;
const MINUTE: i64 = 60_000_000_000;

fn attributes(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().map(|(k, v)| json!({"key": k, "value": {"stringValue": v}})).collect()
}

/// One span: trace, span, parent, service, kind, start, tags.
fn span(ids: (u64, u64, u64), service: &str, kind: u8, start: i64, tags: &[(&str, &str)]) -> Value {
    let (trace, id, parent) = ids;
    let mut span = json!({"traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"), "name": format!("op {id}"),
        "kind": kind, "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 1_000_000).to_string(),
        "attributes": attributes(tags)});
    if parent > 0 {
        span["parentSpanId"] = format!("{parent:016x}").into();
    }
    let resource = attributes(&[("service.name", service), ("host.name", "h1"), ("service.version", "1")]);
    json!({"resource": {"attributes": resource}, "scopeSpans": [{"spans": [span]}]})
}

async fn send(server: &Server, spans: Vec<Value>) {
    let body = json!({"resourceSpans": spans}).to_string().into_bytes();
    let answer = server.post("/v1/traces", &[("content-type", "application/json")], body).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
}

/// Edges as `source>target calls`.
async fn edges(server: &Server, from: i64, to: i64, more: &[(&str, &str)]) -> Vec<String> {
    let (from, to) = (from.to_string(), to.to_string());
    let params = [&[("from", from.as_str()), ("to", to.as_str())], more].concat();
    let answer = server.get_with("/traces/dependencies", &params).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let list = answer.json()["data"]["edges"].clone();
    let row = |e: &Value| format!("{}>{} {}", text(&e["source"]), text(&e["target"]), e["calls"]);
    list.as_array().into_iter().flatten().map(row).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn late_spans_correct_the_graph() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let call = [("peer.service", "back")];
    let db = [("db.system.name", "postgresql"), ("db.namespace", "shop")];
    send(
        &server,
        vec![
            span((1, 1, 0), "front", 2, NOON, &[]),
            span((1, 2, 1), "front", 3, NOON, &call),
            span((2, 1, 0), "front", 2, NOON + 70 * MINUTE, &[]),
            span((2, 2, 1), "front", 3, NOON + 70 * MINUTE, &db),
        ],
    )
    .await;
    let day = (NOON - 5 * MINUTE, NOON + 24 * 60 * MINUTE);
    let unanswered = ["front>back 1", "front>shop 1", "user>front 2"];
    assert_eq!(edges(&server, day.0, day.1, &[]).await, unanswered);
    server.flush().await;
    assert_eq!(edges(&server, day.0, day.1, &[]).await, unanswered);
    // The callee comes late, and calls on; its own callee comes first.
    send(&server, vec![span((1, 5, 4), "store", 2, NOON + 2, &[])]).await;
    server.flush().await;
    send(&server, vec![span((1, 3, 2), "back", 2, NOON + 1, &[]), span((1, 4, 3), "back", 3, NOON + 1, &[])]).await;
    let whole = ["back>store 1", "front>back 1", "front>shop 1", "user>front 2"];
    for state in ["live", "flushed", "compacted"] {
        match state {
            "flushed" => server.flush().await,
            "compacted" => server.compact().await,
            _ => {}
        }
        assert_eq!(edges(&server, day.0, day.1, &[]).await, whole, "{state}");
        // Parts of hours, and conditions that no roll-up knows.
        assert_eq!(
            edges(&server, NOON, NOON + 10 * MINUTE, &[]).await,
            ["back>store 1", "front>back 1", "user>front 1"]
        );
        assert_eq!(edges(&server, NOON + 65 * MINUTE, NOON + 80 * MINUTE, &[]).await, ["front>shop 1", "user>front 1"]);
        let by_kind = edges(&server, day.0, day.1, &[("kind", "client"), ("kind", "server")]).await;
        assert_eq!(by_kind, whole, "{state}");
        let near = edges(&server, day.0, day.1, &[("service", "store"), ("depth", "1")]).await;
        assert_eq!(near, ["back>store 1"], "{state}");
        let jaeger = server.get(&format!("/api/dependencies?endTs={}", day.1 / 1_000_000)).await.json();
        let pair = |e: &Value| format!("{} {} {}", e["parent"], e["child"], e["callCount"]);
        let jaeger: Vec<String> = jaeger["data"].as_array().expect("edges").iter().map(pair).collect();
        assert_eq!(jaeger, [r#""back" "store" 1"#, r#""front" "back" 1"#], "{state}");
        lists(&server, state).await;
    }
    // Roll-ups answer what they can answer; a condition on spans reads spans.
    for list in ["dependencies", "services", "operations", "instances"] {
        for (more, rolled_up) in [("", true), ("&kind=client", false)] {
            let url = format!("/traces/{list}?explain=true&from={}&to={}{more}", day.0, day.1);
            let plan = server.get(&url).await.text();
            assert_eq!(plan.contains("span_rollups"), rolled_up, "{url}: {plan}");
        }
    }
    for (list, table) in [
        ("tags", "span_tags"),
        ("tags/peer.service/values", "span_tags"),
        ("tags/name/values?scope=intrinsic", "spans"),
    ] {
        let more = if list.contains('?') { '&' } else { '?' };
        let url = format!("/traces/{list}{more}explain=true&from={}&to={}", day.0, day.1);
        let plan = server.get(&url).await.text();
        assert!(plan.contains(&format!("TableScan: {table}")), "{url}: {plan}");
    }
    pages(&server).await;
}

/// Services and operations of a window, from roll-ups and from spans, are the same.
async fn lists(server: &Server, state: &str) {
    for (path, key, expected) in [
        ("services", "name", json!([["back", 2], ["front", 4], ["store", 1]])),
        ("operations", "service", json!([["back", 1], ["back", 1], ["front", 2], ["front", 2], ["store", 1]])),
        ("instances", "instance", json!([["h1", 2], ["h1", 4], ["h1", 1]])),
    ] {
        for more in ["", "&kind=client&kind=server"] {
            let url = format!("/traces/{path}?from={}&to={}{more}", NOON - MINUTE, NOON + 200 * MINUTE);
            let answer = server.get(&url).await.json();
            let rows: Vec<Value> =
                answer["data"].as_array().expect("rows").iter().map(|r| json!([r[key], r["spans"]])).collect();
            assert_eq!(json!(rows), expected, "{state} {path}{more}");
        }
    }
    let names = server.get("/api/services").await.json();
    assert_eq!(names["data"], json!(["back", "front", "store"]), "{state}");
    let names = server.get("/api/services/back/operations").await.json();
    assert_eq!(names["data"], json!(["op 3", "op 4"]), "{state}");
    let row = server.get(&format!("/traces/services?from={}&to={}", NOON - MINUTE, NOON + 200 * MINUTE)).await.json();
    assert_eq!(row["data"][1]["lastSeen"], (NOON + 70 * MINUTE).to_string(), "{state}");
    assert_eq!((&row["data"][1]["operations"], &row["data"][1]["instances"]), (&json!(2), &json!(1)), "{state}");
}

/// Pages from the newest to the oldest name each trace once.
async fn pages(server: &Server) {
    let mut cursor = String::new();
    let mut seen = Vec::new();
    loop {
        let mut params = vec![("from", "2020-01-01T00:00:00Z"), ("limit", "1"), ("service", "front")];
        if !cursor.is_empty() {
            params.push(("cursor", &cursor));
        }
        let answer = server.get_with("/traces", &params).await.json();
        seen.extend(answer["data"].as_array().expect("rows").iter().map(|r| r["traceId"].to_string()));
        match answer["meta"]["nextCursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    assert_eq!(seen, [format!("\"{:032x}\"", 2), format!("\"{:032x}\"", 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_and_exemplars_of_a_trace() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    send(&server, vec![span((7, 1, 0), "front", 2, NOON, &[])]).await;
    let id = format!("{:032x}", 7);
    let line = |time: i64, msg: &str, trace: &str, service: &str| {
        json!({"_time": time.to_string(), "_msg": msg, "trace_id": trace, "service.name": service}).to_string() + "\n"
    };
    let lines = [
        line(NOON + 5, "second", &id, "front"),
        line(NOON, "first", &id, "front"),
        line(NOON + 1, "another", "", "front"),
        line(NOON + 1, "elsewhere", "", "back"),
        line(NOON + 60 * MINUTE, "much later", &id, "front"),
    ];
    let answer = server.post("/insert/jsonline?_stream_fields=service.name", &[], lines.concat().into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    // One exemplar of this trace and one of another.
    let noon_s = NOON / 1_000_000_000;
    let exemplar = |series: &str, trace: &str| {
        format!("d_total{{job=\"{series}\"}} 1 {noon_s} # {{trace_id=\"{trace}\",span_id=\"1\"}} 0.5 {noon_s}\n")
    };
    let other = format!("{:032x}", 9);
    let metrics = format!("# TYPE d counter\n{}{}# EOF\n", exemplar("front", &id), exemplar("back", &other));
    let media = [("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    let answer = server.post("/metrics-api/api/v1/import/prometheus", &media, metrics.into_bytes()).await;
    assert_eq!((answer.status, &answer.json()["data"]["exemplars"]), (200, &json!(2)), "{}", answer.text());
    for state in ["live", "flushed"] {
        if state == "flushed" {
            server.flush().await;
        }
        let texts = async |query: &str| -> Vec<String> {
            let answer = server.get(&format!("/traces/{id}/logs?{query}")).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let rows = answer.json()["data"].clone();
            rows.as_array().expect("rows").iter().filter_map(|r| Some(r["_msg"].as_str()?.to_owned())).collect()
        };
        assert_eq!(texts("").await, ["first", "second"], "{state}");
        assert_eq!(texts("related=1").await, ["first", "another", "second"], "{state}");
        assert_eq!(texts("after=2h").await, ["first", "second", "much later"], "{state}");
        assert_eq!(texts("limit=1").await, ["first"], "{state}");
        let answer = server.get(&format!("/traces/{id}/exemplars")).await;
        let expected = json!([{
            "series": {"__name__": "d_total", "job": "front"},
            "labels": {"trace_id": id, "span_id": "1"},
            "value": 0.5,
            "time": NOON.to_string(),
        }]);
        assert_eq!((answer.status, &answer.json()["data"]), (200, &expected), "{state}");
        assert_eq!(server.get(&format!("/traces/{:032x}/logs", 8)).await.status, 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_of_services() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let spans: Vec<Value> =
        (0..60).map(|i| span((9, i + 1, 0), "front", 2, NOON + i as i64 * 1_000_000_000, &[])).collect();
    send(&server, spans).await;
    let end = (NOON + MINUTE) / 1_000_000;
    for (name, value) in [("calls", 1.0), ("errors", 0.0)] {
        let url = format!("/api/metrics/{name}?service=front&endTs={end}&lookback=60000&step=60000&ratePer=60000");
        let answer = server.get(&url).await.json();
        let points = answer["metrics"][0]["metricPoints"].as_array().expect("points").clone();
        assert_eq!(points.len(), 2, "{answer}");
        assert_eq!(points[1]["gaugeValue"]["doubleValue"], value, "{answer}");
        assert_eq!(points[1]["timestamp"], "2026-03-01T12:01:00Z");
    }
    let url = format!("/jaeger/api/metrics/latencies?service=front&quantile=0.5&groupByOperation=true&endTs={end}");
    let answer = server.get(&url).await.json();
    assert_eq!(answer["name"], "service_operation_latencies");
    assert_eq!(answer["metrics"].as_array().map(Vec::len), Some(60));
}

#[tokio::test(flavor = "multi_thread")]
async fn zipkin_has_a_port_if_asked() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_TRACES__ZIPKIN_LISTEN", "127.0.0.1:0");
    let server = Server::start(dir.path(), &options).await;
    let own = &server.zipkin;
    let http = reqwest::Client::new();
    let body =
        r#"[{"traceId":"a","id":"1","name":"n","timestamp":1772366400000000,"localEndpoint":{"serviceName":"z"}}]"#;
    let post = http.post(format!("http://{own}/api/v2/spans")).header("content-type", "application/json").body(body);
    assert_eq!(post.send().await.expect("an answer").status(), 202);
    let names = http.get(format!("http://{own}/api/v2/services")).send().await.expect("an answer");
    assert_eq!(names.text().await.expect("a body"), r#"["z"]"#);
    assert_eq!(http.get(format!("http://{own}/metrics")).send().await.expect("an answer").status(), 404);
}

/// Lists in Zipkin's form hold what its own server would: no names that are none, and failed calls where there are any.
#[tokio::test(flavor = "multi_thread")]
async fn zipkin_lists() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let mut nameless = span((1, 2, 1), "back", 2, NOON, &[]);
    nameless["scopeSpans"][0]["spans"][0]["name"] = "".into();
    let mut failed = span((2, 2, 1), "store", 2, NOON, &[]);
    failed["scopeSpans"][0]["spans"][0]["status"] = json!({"code": 2});
    let named = span((1, 3, 2), "back", 1, NOON, &[]);
    let callers = [span((1, 1, 0), "front", 3, NOON, &[]), span((2, 1, 0), "front", 3, NOON, &[])];
    send(&server, [nameless, failed, named].into_iter().chain(callers).collect()).await;
    assert_eq!(server.get("/api/v2/spans?serviceName=back").await.json(), json!(["op 3"]));
    let end = (NOON / 1_000_000 + 1000).to_string();
    let links = server.get(&format!("/api/v2/dependencies?endTs={end}&lookback=10000")).await.json();
    let expected = json!([
        {"parent": "front", "child": "back", "callCount": 1},
        {"parent": "front", "child": "store", "callCount": 1, "errorCount": 1},
    ]);
    assert_eq!(links, expected);
}

/// Breaks if a trace that Jaeger's clients ask for by its id, and that is not there, is passed over in silence.
#[tokio::test(flavor = "multi_thread")]
async fn traces_that_are_not_there_are_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    send(&server, vec![span((5, 1, 0), "back", 2, NOON, &[("a", "1"), ("b", "2")])]).await;
    let ask = async |params: &[(&str, &str)]| {
        let answer = server.get_with("/api/traces", params).await;
        assert_eq!(answer.status, 200, "{params:?}: {}", answer.text());
        let answer = answer.json();
        (answer["data"].as_array().map(Vec::len), answer["errors"].clone())
    };
    let missing = json!([{"msg": "trace not found", "traceID": format!("{:032x}", 6)}]);
    assert_eq!(ask(&[("traceID", "5"), ("traceID", "6")]).await, (Some(1), missing.clone()));
    assert_eq!(ask(&[("traceID", "6")]).await, (Some(0), missing));
    assert_eq!(ask(&[("traceID", "5")]).await, (Some(1), Value::Null));
    // Tags may be given in several objects.
    let end = ((NOON + MINUTE) / 1000).to_string();
    let of = |a: &'static str, b: &'static str| [("service", "back"), ("end", end.as_str()), ("tags", a), ("tags", b)];
    assert_eq!(ask(&of(r#"{"a":"1"}"#, r#"{"b":"2"}"#)).await, (Some(1), Value::Null));
    assert_eq!(ask(&of(r#"{"a":"1"}"#, r#"{"b":"3"}"#)).await, (Some(0), Value::Null));
}

/// Breaks if what stands in for a root that has not arrived is told to other tools as the root.
#[tokio::test(flavor = "multi_thread")]
async fn traces_whose_root_is_not_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let mut nameless = span((6, 1, 0), "front", 2, NOON, &[]);
    nameless["scopeSpans"][0]["spans"][0]["name"] = "".into();
    send(&server, vec![span((5, 2, 1), "back", 2, NOON, &[]), nameless, span((6, 2, 1), "back", 2, NOON, &[])]).await;
    let roots = async |path: &str, list: &str, [id, service, name]: [&str; 3]| {
        let answer = server.get(path).await.json();
        let text = |row: &Value, key: &str| row[key].as_str().map(str::to_owned);
        let row = |row: &Value| (text(row, id), text(row, service), text(row, name));
        let mut rows: Vec<_> = answer[list].as_array().into_iter().flatten().map(row).collect();
        rows.sort();
        rows
    };
    let row = |id: u64, service: &str, name: &str| {
        (Some(format!("{id:032x}")), Some(service.to_owned()), Some(name.to_owned()))
    };
    let range = "query.start_time_min=2026-03-01T11:59:00Z&query.start_time_max=2026-03-01T12:10:00Z";
    let path = format!("/api/v3/trace-summaries?{range}");
    let found = roots(&path, "summaries", ["traceId", "rootServiceName", "rootOperationName"]).await;
    assert_eq!(found, [row(5, "", ""), row(6, "front", "")]);
    let path = format!("/tempo/api/search?start={}&end={}", NOON / 1_000_000_000 - 60, NOON / 1_000_000_000 + 60);
    let found = roots(&path, "traces", ["traceID", "rootServiceName", "rootTraceName"]).await;
    assert_eq!(found, [row(5, "<root span not yet received>", ""), row(6, "front", "")]);
}

/// What was received last holds, wherever the reports lie, also when it is what was received first.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_report_holds_in_every_state() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    // Reports `a` and `b` of one span, `f` flushes, `c` compacts.
    for (trace, plan) in (1..).zip(["abafc", "abfafc", "afbfafc", "afbafc", "abfcaafc", "aabbafc"]) {
        let mut last = ' ';
        for step in plan.chars() {
            match step {
                'f' => server.flush().await,
                'c' => server.compact().await,
                report => {
                    last = report;
                    send(&server, vec![span((trace, 9, 0), "front", 2, NOON, &[("report", &report.to_string())])])
                        .await;
                }
            }
            let found = server.get(&format!("/traces/{trace:032x}")).await.json();
            let spans = found["data"]["spans"].as_array().cloned().unwrap_or_default();
            assert_eq!(spans.len(), 1, "{plan}, {step}: {found}");
            assert_eq!(spans[0]["tags"]["report"], json!(last.to_string()), "{plan}, {step}");
        }
    }
}

/// Every parameter of every path with values that are none: an answer of the family, never a fault.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_values_are_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    send(&server, vec![span((7, 1, 0), "front", 2, NOON, &[])]).await;
    let id = format!("{:032x}", 7);
    let one = format!("/traces/{id}");
    let paths = [
        (
            "/traces",
            "from to service operation kind instance env tag filter minDuration maxDuration durationOf error errorOf root minSpans maxSpans minServices ids sort limit cursor spans explain q",
        ),
        ("/traces/services", "from to q limit names"),
        ("/traces/operations", "service kind from to q limit"),
        ("/traces/instances", "service from to"),
        ("/traces/tags", "service scope from to q limit"),
        ("/traces/tags/a/values", "scope service from to q limit filter"),
        ("/traces/dependencies", "from to service depth env"),
        ("/traces/histogram", "step by measure from to"),
        ("/traces/heatmap", "step buckets from to"),
        ("/traces/facets", "keys limit from to"),
        ("/traces/difference", "select selectFilter limit"),
        ("/traces/compare", "left right"),
        (&one, "service start_time end_time download"),
        (&format!("{one}/statistics"), "groupBy"),
        (&format!("{one}/logs"), "before after limit related"),
        (&format!("{one}/exemplars"), "before after limit"),
        (&format!("{one}/similar"), "limit"),
        (&format!("/platform-api/traces/{id}/otlp"), "service start_time end_time types links extras download"),
        ("/api/traces", "service operation start end minDuration maxDuration tags tag limit traceID"),
        ("/api/operations", "service spanKind"),
        ("/api/dependencies", "endTs lookback service"),
        ("/api/metrics/latencies", "service quantile groupByOperation endTs lookback step ratePer spanKind"),
        (
            "/api/v3/traces",
            "query.serviceName query.startTimeMin query.startTimeMax query.searchDepth query.durationMin query.attributes",
        ),
        ("/api/v2/traces", "serviceName spanName annotationQuery minDuration maxDuration endTs lookback limit"),
        ("/api/v2/traceMany", "traceIds"),
        ("/api/v2/autocompleteValues", "key"),
    ];
    let long = "x".repeat(5_000);
    for (path, names) in paths {
        for name in names.split(' ') {
            for value in ["", "-1", "99999999999999999999", "1e400", "{", "[1]", "a:b", "\u{0}", "é*", &long] {
                for repeated in [false, true] {
                    let mut params = vec![(name, value)];
                    if repeated {
                        params.push((name, value));
                    }
                    let answer = server.get_with(path, &params).await;
                    let shown: String = value.chars().take(20).collect();
                    assert!(answer.status < 500, "{path}?{name}={shown}: {} {}", answer.status, answer.text());
                    if answer.status >= 400 && path.starts_with("/traces") {
                        assert!(answer.json()["code"].is_string(), "{path}?{name}={shown}: {}", answer.text());
                    }
                }
            }
        }
    }
    // A tag of Jaeger's is a pair: a key alone asks for nothing there.
    for tag in ["a", ":b"] {
        let answer = server.get_with("/api/traces", &[("service", "front"), ("tag", tag)]).await;
        let text = format!("parameter 'tag': expected key:value, got `{tag}`");
        assert_eq!((answer.status, &answer.json()["errors"]), (400, &json!([{"code": 400, "msg": text}])));
    }
}

/// Each span has keys that no other has: a list of them all is refused in clear words, other questions are answered.
#[tokio::test(flavor = "multi_thread")]
async fn very_many_keys_are_bounded() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_MEMORY__LIMIT", "256MiB").env("QUIVER_LOG__FILTER", "error");
    let server = Server::start(dir.path(), &options).await;
    for part in 0..50u64 {
        let spans = (part * 100..part * 100 + 100).map(|n| {
            let names: Vec<String> = (0..100).map(|k| format!("key{}", n * 100 + k)).collect();
            let tags: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
            span((n + 1, n + 1, 0), "a", 2, NOON, &tags)
        });
        send(&server, spans.collect()).await;
    }
    let (from, to) = ((NOON - MINUTE).to_string(), (NOON + MINUTE).to_string());
    for state in ["live", "flushed"] {
        if state == "flushed" {
            server.flush().await;
        }
        let ask = async |path: &str| server.get_with(path, &[("from", from.as_str()), ("to", to.as_str())]).await;
        let answer = ask("/traces/tags").await;
        assert_eq!((answer.status, &answer.json()["code"]), (422, &json!("LIMIT_EXCEEDED")), "{state}");
        let values = ask("/traces/tags/key777/values").await.json();
        assert_eq!(values["data"], json!([{"value": "v", "count": 1}]), "{state}");
    }
    // What requests made it hold, without pages of the executable, stays below the limit itself.
    let (peak, file) = (server.peak_bytes(), server.file_bytes());
    assert!(peak - file < 256 << 20, "{} MiB, {} MiB of them of files", peak >> 20, file >> 20);
}

/// A trace that nobody asked for since the start: of each part that holds it the footer, the index and its rows are read.
#[tokio::test(flavor = "multi_thread")]
async fn a_cold_look_up_reads_three_times_per_part() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let day = 24 * 60 * MINUTE;
    for trace in 1..200 {
        let start = NOON + trace as i64 * MINUTE;
        let tags = [("http.request.method", "GET"), ("user.id", "u1")];
        let more = [span((trace, 1, 0), "front", 2, start, &tags), span((trace, 2, 1), "back", 2, start + 1, &tags)];
        let next_day = (trace == 7).then(|| span((trace, 3, 1), "late", 2, start + day, &tags));
        send(&server, more.into_iter().chain(next_day).collect()).await;
    }
    server.flush().await;
    server.compact().await;
    assert_eq!(server.stop(), Some(0));
    for (trace, parts, spans) in [(5, 1, 2), (7, 2, 3)] {
        let server = Server::start(dir.path(), &Options::default()).await;
        let plan = server.get(&format!("/traces/{trace:032x}?explain=analyze")).await.json();
        let total = |name: &str| plan["totals"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {plan}"));
        assert_eq!(total("parts_read"), parts, "{plan}");
        // The part of the other day says that it has nothing of the trace.
        let others = 2 - parts;
        assert!(total("objects_read") <= 3 * parts + 2 * others, "{plan}");
        let answer = server.get(&format!("/api/traces/{trace:032x}")).await.json();
        assert_eq!(answer["data"][0]["spans"].as_array().map(Vec::len), Some(spans), "{answer}");
        assert_eq!(server.stop(), Some(0));
    }
}
