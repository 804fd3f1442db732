//! SQL over HTTP: tables and columns, formats, errors, limits, rights; live and flushed.

use std::time::{Duration, Instant};

use quiver_tests::server::{Answer, Options, Server};
use quiver_tests::time_limits::within;
use serde_json::{Value, json};

use crate::identity::{PASSWORD, signed_in, user};

pub(crate) const API: &str = "/sql-api/v1/query";
/// 2025-03-10T00:00:00Z.
pub(crate) const START_S: i64 = 1_741_564_800;
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

pub(crate) fn options() -> Options {
    Options::default().args(&["--retention", "none"])
}

pub(crate) async fn ask(server: &Server, statement: &str) -> Answer {
    server.ask(API, &[("query", statement)]).await
}

pub(crate) async fn rows(server: &Server, statement: &str) -> Value {
    let answer = ask(server, statement).await;
    assert_eq!(answer.status, 200, "{statement}: {}", answer.text());
    answer.json()["rows"].take()
}

/// 300 records of three services, 200 spans of two, two series; written in pieces of which one is flushed.
async fn fill(server: &Server) {
    for third in 0..3 {
        let line = |n: i64| {
            json!({
                "_time": START_S + n, "_msg": format!("request {n} served"), "service.name": format!("app{}", n % 3),
                "n": n.to_string(), "ratio": (n as f64 / 4.0).to_string(), "trace_id": format!("{:032x}", n / 2 + 1),
                "level": if n % 10 == 0 { "error" } else { "info" }, "mixed": if n == 7 { "x".into() } else { n.to_string() },
            })
        };
        let lines: Vec<String> = (0..300).filter(|n| n % 3 == third).map(|n| line(n).to_string()).collect();
        let path = "/insert/jsonline?_stream_fields=service.name";
        let answer = server.post(path, &[], lines.join("\n").into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        if third == 0 {
            server.flush().await;
        }
    }
    for (service, parity) in [("cart", 0), ("pay", 1)] {
        let span = |n: i64| {
            let start = (START_S + n) * 1_000_000_000;
            json!({
                "traceId": format!("{:032x}", n / 2 + 1), "spanId": format!("{:016x}", n + 1),
                "parentSpanId": if parity == 0 { String::new() } else { format!("{n:016x}") },
                "name": format!("op{}", n % 4), "kind": 2 + parity, "startTimeUnixNano": start.to_string(),
                "endTimeUnixNano": (start + n * 1_000_000).to_string(), "status": {"code": if n % 7 == 0 { 2 } else { 0 }},
                "attributes": [
                    {"key": "http.route", "value": {"stringValue": format!("/r{}", n % 5)}},
                    {"key": "http.status_code", "value": {"intValue": (200 + n % 3).to_string()}},
                ],
            })
        };
        let spans: Vec<Value> = (0..200).filter(|n| n % 2 == parity).map(span).collect();
        let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": service}}]});
        let body = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]});
        let headers = [("content-type", "application/json")];
        let answer = server.post("/insert/opentelemetry/v1/traces", &headers, body.to_string().into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let sample = |mode: &str, n: i64| {
        format!("cpu{{mode=\"{mode}\",service_name=\"cart\"}} {n} {}\n", (START_S + n * 15) * 1000)
    };
    let text: String = ["idle", "user"].iter().flat_map(|mode| (0..20).map(move |n| sample(mode, n))).collect();
    let answer = server.post("/metrics-api/api/v1/import/prometheus", &[], text.into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text());
}

/// Statements and their rows, the same in every state of the data.
fn statements() -> Vec<(&'static str, Value)> {
    vec![
        ("select count(*) from logs", json!([[300]])),
        (
            "select level, count(*), sum(n), max(ratio) from logs group by level order by level",
            json!([["error", 30, 4350, 72.5], ["info", 270, 40500, 74.75]]),
        ),
        ("select mixed, n from logs where mixed = 'x'", json!([["x", 7]])),
        ("select count(*) from logs where nothing is null", json!([[300]])),
        ("select count(*) from logs where level <> 'info' and n between 100 and 200", json!([[11]])),
        (
            "select attr(fields, 'level') l, count(*) from logs group by l order by l",
            json!([["error", 30], ["info", 270]]),
        ),
        (
            "select message from logs where message like '%7 served' and n < 20 order by n",
            json!([["request 7 served"], ["request 17 served"]]),
        ),
        ("select service_name, count(*) from spans group by 1 order by 1", json!([["cart", 100], ["pay", 100]])),
        (
            "select \"attributes.http.status_code\" c, count(*) from spans where \"attributes.http.route\" = '/r1' group by c order by c",
            json!([[200, 13], [201, 14], [202, 13]]),
        ),
        (
            "select name, kind from spans where trace_id = '00000000000000000000000000000003' order by start_time",
            json!([["op0", "SERVER"], ["op1", "CLIENT"]]),
        ),
        (
            "select root_service, spans, services from traces where trace_id = '00000000000000000000000000000003'",
            json!([["cart", 2, ["cart", "pay"]]]),
        ),
        ("select sum(calls) from service_edges where caller = 'cart' and callee = 'pay'", json!([[100]])),
        (
            "select \"labels.mode\" m, count(*), max(value) from metric_samples where name = 'cpu' group by m order by m",
            json!([["idle", 20, 19.0], ["user", 20, 19.0]]),
        ),
        ("select count(*) from metric_samples where time < '2025-03-10T00:01:00Z'", json!([[8]])),
        (
            "select name, service_name, first_time from metric_series where \"labels.mode\" = 'idle'",
            json!([["cpu", "cart", "2025-03-10T00:00:00Z"]]),
        ),
        ("select sum(value) from promql_instant('sum(cpu)', '2025-03-10T00:02:00Z')", json!([[16.0]])),
        ("select count(*) from logsql('level:error')", json!([[30]])),
        (
            "select count(*) from logs l join spans s on l.trace_id = s.trace_id \
             join promql_range('sum(cpu)', '2025-03-10T00:00:00Z', '2025-03-10T00:05:00Z', interval '1 minute') p \
             on date_trunc('minute', l.time) = p.time where l.level = 'error' and s.kind = 'SERVER'",
            json!([[20]]),
        ),
        ("with e as (select level, n from logs) select level from e where n = 10", json!([["error"]])),
        ("select quantile(n, 0.5), count_distinct_approx(level) from logs", json!([[149.5, 2]])),
        ("select count(*) from information_schema.columns where table_name = 'traces'", json!([[9]])),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_live_flushed_and_compacted() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    fill(&server).await;
    for state in ["live", "flushed", "compacted"] {
        match state {
            "flushed" => server.flush().await,
            "compacted" => server.compact().await,
            _ => {}
        }
        for (statement, expected) in statements() {
            assert_eq!(rows(&server, statement).await, expected, "{state}: {statement}");
        }
    }
    // `*` is the fixed columns, whatever else the statement names.
    let stars = ["select * from logs limit 1", "select * from logs where level = 'error' limit 1"];
    for statement in stars {
        assert_eq!(ask(&server, statement).await.json()["columns"].as_array().map(Vec::len), Some(11), "{statement}");
    }
}

/// Statements over tables of every kind whose plans have nodes of ours, with their rows.
fn of_every_kind() -> Vec<(&'static str, Value)> {
    vec![
        (
            "select n, lag(n) over (order by n), count(*) over (partition by level) from logs where n < 3 order by n",
            json!([[0, null, 1], [1, 0, 2], [2, 1, 2]]),
        ),
        (
            "select service_name, count(*) from logs where level = 'error' group by 1 order by 1",
            json!([["app0", 10], ["app1", 10], ["app2", 10]]),
        ),
        ("select count(distinct trace_id) from spans where status_code = 'ERROR'", json!([[29]])),
        ("select count(*), count(distinct metric_series.name) from metric_series", json!([[2, 1]])),
        ("select count(*) from metric_metadata where name = 'nothing'", json!([[0]])),
        ("select count(*) from exemplars", json!([[0]])),
        ("select count(*) from alert_events", json!([[0]])),
        ("select n from logs order by n limit 1 offset 5000000000", json!([])),
        ("select count(*) from (select n from logs limit 5000000000 offset 1) l", json!([[299]])),
        (
            "with recursive r(n) as (select 1 union all select n + 1 from r where n < 4) \
             select r.n, count(l.n) from r left join logs l on l.n < r.n group by r.n order by r.n",
            json!([[1, 1], [2, 2], [3, 3], [4, 4]]),
        ),
        (
            "select l.message, s.name from logs l join spans s on l.trace_id = s.trace_id where l.n = 10 order by s.name",
            json!([["request 10 served", "op2"], ["request 10 served", "op3"]]),
        ),
        (
            "select sum(value) from metric_samples where value > (select avg(value) from metric_samples)",
            json!([[290.0]]),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_through_written_plans() {
    for through_codec in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let options = options().env("QUIVER_QUERY__THROUGH_CODEC", through_codec);
        let server = Server::start(dir.path(), &options).await;
        fill(&server).await;
        for (statement, expected) in statements().into_iter().chain(of_every_kind()) {
            assert_eq!(rows(&server, statement).await, expected, "{through_codec}: {statement}");
        }
        server.flush().await;
        for (statement, expected) in of_every_kind() {
            assert_eq!(rows(&server, statement).await, expected, "{through_codec}, flushed: {statement}");
        }
        assert_eq!(server.stop(), Some(0));
    }
}

/// Both ends of a call are reported twice, and differently.
#[tokio::test(flavor = "multi_thread")]
async fn reports_of_a_span_are_one_call() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    for (lasts, status) in [(1_000, 2), (3_000, 0)] {
        for (service, id, parent, kind) in [("cart", 1, String::new(), 3), ("pay", 2, format!("{:016x}", 1), 2)] {
            let start = START_S * 1_000_000_000 + id;
            let span = json!({
                "traceId": format!("{:032x}", 1), "spanId": format!("{id:016x}"), "parentSpanId": parent, "name": "op",
                "kind": kind, "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + lasts).to_string(),
                "status": {"code": status},
            });
            let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": service}}]});
            let body = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]});
            let headers = [("content-type", "application/json")];
            let answer = server.post("/insert/opentelemetry/v1/traces", &headers, body.to_string().into_bytes()).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
    let edges = "select caller, callee, calls, errors, duration_sum, duration_max from service_edges";
    let expected = json!([["cart", "pay", 1, 1, 3_000, 3_000]]);
    assert_eq!(rows(&server, edges).await, expected);
    server.flush().await;
    assert_eq!(rows(&server, edges).await, expected);
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_place_and_statement() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    let check = async |statement: &str, status: u16, parts: &[&str]| {
        let answer = ask(&server, statement).await;
        assert_eq!(answer.status, status, "{statement}: {}", answer.text());
        let kind = answer.json()["type"].as_str().unwrap_or_default().to_owned();
        assert!(kind.starts_with("urn:quiver:problem:"), "{statement}: {kind}");
        let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
        for part in parts {
            assert!(detail.contains(part), "{statement}: {detail}");
        }
    };
    check("selec 1", 400, &["line 1, column 1"]).await;
    check("select 1,\n from", 400, &["line 2"]).await;
    check("select servicename from spans", 400, &["`servicename`", "line 1, column 8", "`service_name`"]).await;
    check("select * from span", 400, &["`span`", "`spans`"]).await;
    check("delete from logs", 400, &["`DELETE FROM`"]).await;
    check("select 1; select 2", 400, &["one statement"]).await;
    check("select nothing(1)", 400, &["nothing"]).await;
    check("select 1/0", 422, &[]).await;
    check("select 9223372036854775807 + 1", 422, &["verflow"]).await;
    // Constants that do not fit, of a cast and of an aggregate, which looks at them when it begins.
    check("select 5::numeric(3, 3)", 400, &["too large"]).await;
    check("select approx_percentile_cont(n, 2.0) from (values (1), (2)) t(n)", 400, &["ercentile"]).await;
    for sum in ["sum(x)", "sum(x) over (order by x)", "sum(x) filter (where x > 0)"] {
        let values = "(values (9223372036854775807, 'a'), (1, 'a')) t(x, k)";
        check(&format!("select {sum} from {values}"), 422, &["a sum of whole numbers"]).await;
    }
    check("select k, sum(x) from (values (9223372036854775807, 'a'), (1, 'a')) t(x, k) group by k", 422, &["a sum"])
        .await;
    check("select sum(distinct x) from (values (9223372036854775807), (9223372036854775806)) t(x)", 422, &["a sum"])
        .await;
    check("select * from promql_instant('sum(', 5)", 400, &["PromQL"]).await;
    check("select * from promql_instant('up')", 400, &["promql_instant('expression', time)"]).await;
    check("select * from promql_range('up', 9, 5, '1m')", 400, &["the end `5` is before the start `9`"]).await;
    check("select * from promql_range('up', 5, 9, 'often')", 400, &["step `often`", "'1m'"]).await;
    check("select * from promql_range('up', 'then', 9, 5)", 400, &["start `then`"]).await;
    let deep = format!("select 1{}", " + 1".repeat(20_000));
    let answer = server.post(API, &[("content-type", "application/sql")], deep.into_bytes()).await;
    assert_eq!(answer.status, 422, "{}", answer.text());
    let long = format!("select 1{}", " + 1".repeat(300));
    let answer = server.post(API, &[("content-type", "application/sql")], long.into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    for (name, value) in
        [("limit", "x"), ("format", "xml"), ("explain", "maybe"), ("params", "["), ("time_zone", "Nowhere/X")]
    {
        let answer = server.get_with(API, &[("query", "select 1"), (name, value)]).await;
        assert_eq!(answer.status, 400, "{name}: {}", answer.text());
        assert!(answer.text().contains(name), "{name}: {}", answer.text());
    }
    // What nothing heeds is told of.
    let answer = server.get_with(API, &[("query", "select 1"), ("limt", "5")]).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains("`limt`"), "{}", answer.text());
    for (body, named) in [
        (json!({"query": "select 1", "timezone": "UTC"}), "`timezone`"),
        (json!({"query": "select $1", "params": [1, 2]}), "2 values"),
    ] {
        let answer = server.post(API, &[("content-type", "application/json")], body.to_string().into_bytes()).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains(named), "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_parameters_and_plans() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    fill(&server).await;
    let statement = "select n, level from logs where level = $1 order by n";
    let params = [("query", statement), ("params", "[\"error\"]"), ("limit", "2")];
    let answer = server.get_with(API, &params).await.json();
    assert_eq!(answer["rows"], json!([[0, "error"], [10, "error"]]));
    assert_eq!(answer["columns"], json!([{"name": "n", "type": "bigint"}, {"name": "level", "type": "text"}]));
    assert_eq!(answer["stats"]["rows"], 2);
    // What a client leaves open is as if it were not there.
    let open = json!({"query": "select now() > timestamp '2020-01-01'", "params": null, "time_zone": null});
    let answer = server.post(API, &[("content-type", "application/json")], open.to_string().into_bytes()).await;
    assert_eq!(answer.json()["rows"], json!([[true]]), "{}", answer.text());
    let body = json!({"query": "select $a, $b", "params": {"a": "x'; --", "b": null}, "format": "ndjson"});
    let answer = server.post(API, &[("content-type", "application/json")], body.to_string().into_bytes()).await;
    assert_eq!(answer.headers["content-type"], "application/x-ndjson", "{}", answer.text());
    assert!(answer.text().contains("x'; --"), "{}", answer.text());
    let answer = server.post(API, &[FORM, ("accept", "text/csv")], b"query=select+1+as+a,null+as+b".to_vec()).await;
    assert_eq!(answer.text(), "a,b\r\n1,\r\n");
    // As `curl -d` sends it.
    let bare = server.post(API, &[FORM], b"select 1".to_vec()).await;
    assert!(bare.status == 400 && bare.text().contains("`Content-Type: application/sql`"), "{}", bare.text());
    let answer = server
        .get_with(API, &[("query", "select time from logs order by time limit 1"), ("time_zone", "Europe/Berlin")])
        .await;
    assert_eq!(answer.json()["rows"], json!([["2025-03-10T01:00:00+01:00"]]));
    for (format, begin) in [("parquet", &b"PAR1"[..]), ("arrow", &[0xff, 0xff, 0xff, 0xff][..])] {
        let answer = server.get_with(API, &[("query", "select * from logs"), ("format", format)]).await;
        assert_eq!(answer.status, 200, "{format}");
        assert!(answer.body.starts_with(begin), "{format}");
    }
    let explained = server
        .get_with(API, &[("query", "select message from logs where level = 'error' limit 3"), ("explain", "true")])
        .await;
    let physical = explained.json()["physical"].as_str().unwrap_or_default().to_owned();
    assert!(physical.contains("LogsExec: filter=level:=\"error\"") && physical.contains("limit=3"), "{physical}");
    assert!(!physical.contains("FilterExec"), "the store filters exactly: {physical}");
    // What planning ran is shown below the plan.
    let statement = "explain select max(value) from promql_instant('sum(cpu)', '2025-03-10T00:02:00Z')";
    let explained = ask(&server, statement).await.json();
    let children = explained["children"].as_array().cloned().unwrap_or_default();
    let physical = children.first().and_then(|child| child["physical"].as_str()).unwrap_or_default();
    assert!(children.len() == 1 && physical.contains("SamplesExec"), "{explained}");
    assert_eq!(children[0]["executed"], json!(true), "{explained}");
    // Lists are read when a plan runs.
    let plan = async |explain: &str| {
        let statement = format!("{explain} select min(first_time) from metric_series");
        ask(&server, &statement).await.json()
    };
    let (planned, ran) = (plan("explain").await, plan("explain analyze").await);
    assert_eq!(planned["digest"], ran["digest"], "{planned} {ran}");
    assert!(ran["totals"]["samples"].as_u64() > Some(0), "{ran}");
    let tables = server.get("/sql-api/v1/tables").await.json();
    assert!(tables["tables"].as_array().is_some_and(|tables| tables.len() >= 11), "{tables}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_statements_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = options().env("QUIVER_QUERY__TIMEOUT", "2s");
    let server = Server::start(dir.path(), &options).await;
    for statement in [
        "select count(*) from generate_series(1, 1000000000000)",
        "select count(*) from generate_series(1, 1000000) a cross join generate_series(1, 1000000) b",
        "with recursive r as (select 1 as n union all select n + 1 from r) select count(*) from r",
        "select value, count(*) from generate_series(1, 1000000000) group by value order by 2 desc limit 1",
    ] {
        within(statement, Duration::from_secs(10), async || {
            let began = Instant::now();
            let answer = server.get_with(API, &[("query", statement)]).await;
            assert!(matches!(answer.status, 422 | 503), "{statement}: {} {}", answer.status, answer.text());
            began.elapsed()
        })
        .await;
    }
    within("it serves on", Duration::from_secs(2), async || {
        let (began, answer) = (Instant::now(), ask(&server, "select 1").await);
        if answer.status == 200 { began.elapsed() } else { Duration::MAX }
    })
    .await;
}

/// What a restricted caller gets is what everybody gets from that caller's data alone.
#[tokio::test(flavor = "multi_thread")]
async fn rows_go_by_rights() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = options().args(&["--rbac", "on"]).env("QUIVER_ADMIN_PASSWORD", PASSWORD);
    let server = Server::start(dir.path(), &options).await;
    let admin = signed_in(&server, "admin").await;
    let call = async |who: &str, method: &str, path: &str, body: Value| {
        let headers = [("authorization", who), ("content-type", "application/json")];
        server.send(method, path, &headers, body.to_string().into_bytes()).await
    };
    let spans = |service: &str, n: i64| {
        let start = (START_S + n) * 1_000_000_000;
        let span = json!({
            "traceId": format!("{:032x}", n + 1), "spanId": format!("{:016x}", n + 1), "name": "op", "kind": 2,
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 5).to_string(),
            "attributes": [{"key": "size", "value": if service == "cart" { json!({"intValue": "5"}) } else { json!({"stringValue": "large"}) }}],
        });
        let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": service}}]});
        json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]})
    };
    for (n, service) in ["cart", "pay", "cart"].into_iter().enumerate() {
        let answer = call(&admin, "POST", "/insert/opentelemetry/v1/traces", spans(service, n as i64)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    user(&server, &admin, "eve", "viewer", json!(["cart"])).await;
    let eve = signed_in(&server, "eve").await;
    let rows = async |who: &str, statement: &str| {
        let answer = call(who, "POST", API, json!({ "query": statement })).await;
        assert_eq!(answer.status, 200, "{statement}: {}", answer.text());
        answer.json()["rows"].take()
    };
    let counts = "select service_name, count(*) from spans group by 1 order by 1";
    assert_eq!(rows(&admin, counts).await, json!([["cart", 2], ["pay", 1]]));
    assert_eq!(rows(&eve, counts).await, json!([["cart", 2]]));
    assert_eq!(rows(&eve, "select count(*) from traces").await, json!([[2]]));
    assert_eq!(rows(&eve, "select count(*) from spans where service_name = 'pay'").await, json!([[0]]));
    // What a column holds is told by rows that the caller sees, too.
    assert_eq!(rows(&eve, "select sum(\"attributes.size\") from spans").await, json!([[10]]));
    assert_eq!(rows(&admin, "select max(\"attributes.size\") from spans").await, json!([["large"]]));
    let nobody = server.post(API, &[FORM], b"query=select+1".to_vec()).await;
    assert_eq!(nobody.status, 401, "{}", nobody.text());
}

/// What a filter takes does not depend on who evaluates it: the scan, or DataFusion above a limit that nothing passes.
#[allow(clippy::too_many_lines, reason = "most of it is the list of filters")]
#[tokio::test(flavor = "multi_thread")]
async fn pushed_filters_take_the_same_rows() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    fill(&server).await;
    let tables: [(&str, &str, &[&str]); 3] = [
        (
            "logs",
            "level, n, ratio, mixed, message, service_name, trace_id, nothing, time",
            &[
                "level = 'error'",
                "level <> 'error'",
                "n > 17",
                "n in (3, 4, 500)",
                "n not in (3, 4)",
                "ratio <= 12.5",
                "mixed = '12'",
                "mixed like '1%'",
                "message like '%7 s%'",
                "message like 'request 2%'",
                "nothing is null",
                "nothing is not null",
                "nothing = 'x'",
                "service_name = 'app1'",
                "service_name in ('app0', 'app2')",
                "time >= '2025-03-10T00:01:00Z'",
                "time between '2025-03-10T00:00:10Z' and '2025-03-10T00:02:00.5Z'",
                "trace_id = '00000000000000000000000000000011'",
                "level = ''",
                "level > 'f'",
                "not (n > 40)",
            ],
        ),
        (
            "spans",
            "name, kind, service_name, duration, start_time, end_time, status_code, parent_span_id, trace_id, \
             \"attributes.http.route\", \"attributes.http.status_code\", \"attributes.none\", \"resource.service.name\"",
            &[
                "name = 'op1'",
                "name <> 'op1'",
                "name like 'op%'",
                "kind = 'SERVER'",
                "kind <> 'SERVER'",
                "kind in ('CLIENT', 'UNSPECIFIED')",
                "service_name = 'pay'",
                "service_name = 'unknown_service'",
                "service_name not in ('pay')",
                "duration > 20000000",
                "duration in (0, 1000000)",
                "start_time < '2025-03-10T00:01:00Z'",
                "end_time >= '2025-03-10T00:01:00.061Z'",
                "end_time <= '2025-03-10T00:01:00Z'",
                "status_code = 'ERROR'",
                "status_code <> 'ERROR'",
                "parent_span_id is null",
                "parent_span_id is not null",
                "trace_id in ('00000000000000000000000000000003', 'x')",
                "\"attributes.http.route\" = '/r1'",
                "\"attributes.http.route\" <> '/r1'",
                "\"attributes.http.route\" like '/r%'",
                "\"attributes.http.status_code\" = 201",
                "\"attributes.http.status_code\" < 202",
                "\"attributes.none\" is null",
                "\"resource.service.name\" = 'cart'",
            ],
        ),
        (
            "metric_samples",
            "name, value, time, service_name, \"labels.mode\", \"labels.none\"",
            &[
                "name = 'cpu'",
                "name <> 'cpu'",
                "name like 'c%'",
                "value > 4",
                "time > '2025-03-10T00:01:00Z'",
                "time <= '2025-03-10T00:01:00.0005Z'",
                "service_name = 'cart'",
                "service_name is null",
                "\"labels.mode\" = 'idle'",
                "\"labels.mode\" <> 'idle'",
                "\"labels.mode\" in ('idle', 'user', 'x')",
                "\"labels.none\" is null",
                "\"labels.none\" = 'x'",
                "\"labels.mode\" like '%se%'",
            ],
        ),
    ];
    // A generator of its own, so that a failure comes again.
    let mut seed = 0x2545_f491_u64;
    let mut next = move |n: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % n as u64) as usize
    };
    for (table, columns, tests) in tables {
        for round in 0..tests.len() + 25 {
            let filter = if round < tests.len() {
                tests[round].to_owned()
            } else {
                let (a, b, c) = (tests[next(tests.len())], tests[next(tests.len())], tests[next(tests.len())]);
                let (inner, outer) = (["and", "or"][next(2)], ["and", "or"][next(2)]);
                format!("({a} {inner} {b}) {outer} {c}")
            };
            let pushed = rows(&server, &format!("select count(*) from {table} where {filter}")).await;
            let above = format!("select count(*) from (select {columns} from {table} limit 1000000) t where {filter}");
            assert_eq!(pushed, rows(&server, &above).await, "{table}: {filter}");
        }
    }
}
