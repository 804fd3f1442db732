//! Requests other than `load`: plans as executable SQL, the rows behind a measure, values of dimensions; models over logs
//! and metrics.

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};
use std::fmt::Write as _;

use crate::identity::{PASSWORD, bearer, login, user, with_password};

/// 2025-03-10T00:00:00Z.
const START_S: i64 = 1_741_564_800;
const JSON: (&str, &str) = ("content-type", "application/json");

fn options() -> Options {
    Options::default().args(&["--retention", "none"])
}

async fn post(server: &Server, path: &str, headers: &[(&str, &str)], body: Value) -> Value {
    let headers: Vec<_> = headers.iter().copied().chain([JSON, ("x-wait", "60")]).collect();
    let answer = server.post(path, &headers, body.to_string().into_bytes()).await;
    assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
    answer.json()
}

async fn load(server: &Server, headers: &[(&str, &str)], query: &Value) -> Value {
    post(server, "/olap-api/v1/load", headers, json!({"query": query})).await["data"].take()
}

/// Two minutes of a host, a queue of two workers, records and events of two services.
pub(crate) async fn fill(server: &Server, headers: &[(&str, &str)]) {
    let mut text = String::new();
    let mut sample = |series: &str, at: i64, value: f64| {
        let _ = writeln!(text, "{series} {value} {}", (START_S + at) * 1000);
    };
    let host = |name: &str, more: &str| format!("{name}{{service_name=\"agent\",host_name=\"h1\",{more}}}");
    for (at, idle, user) in [(0, 100.0, 100.0), (60, 150.0, 110.0), (119, 190.0, 110.0)] {
        sample(&host("system_cpu_time_seconds_total", "cpu=\"0\",state=\"idle\""), at, idle);
        sample(&host("system_cpu_time_seconds_total", "cpu=\"0\",state=\"user\""), at, user);
    }
    for (at, used) in [(0, 10.0), (60, 20.0)] {
        sample(&host("system_memory_usage_bytes", "state=\"used\""), at, used);
        sample(&host("system_memory_usage_bytes", "state=\"free\""), at, 85.0);
    }
    for (at, bytes) in [(-30, 1000.0), (30, 1600.0), (90, 100.0)] {
        sample(&host("system_network_io_bytes_total", "device=\"eth0\",direction=\"receive\""), at, bytes);
    }
    for (worker, first, last) in [("a", 2.0, 4.0), ("b", 10.0, 30.0)] {
        sample(&format!("queue{{service_name=\"cart\",job=\"j\",worker=\"{worker}\"}}"), 0, first);
        sample(&format!("queue{{service_name=\"cart\",job=\"j\",worker=\"{worker}\"}}"), 60, last);
    }
    let path = "/metrics-api/api/v1/import/prometheus";
    let answer = server.post(path, headers, text.into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text());
    let record = |n: i64, service: &str, more: Value| {
        let mut line = json!({"_time": START_S + n, "_msg": format!("line {n}"), "service.name": service});
        more.as_object().into_iter().flatten().for_each(|(k, v)| line[k] = v.clone());
        line.to_string()
    };
    let lines = [
        record(0, "cart", json!({"severity_text": "ERROR", "trace_id": "a".repeat(32)})),
        record(1, "cart", json!({"severity_text": "INFO"})),
        record(2, "pay", json!({"severity_text": "INFO"})),
        record(3, "cart", json!({"event_name": "order.placed", "user.id": "u1"})),
        record(4, "cart", json!({"event_name": "browser.click"})),
        record(5, "pay", json!({"event.name": "order.paid", "user.id": "u2"})),
        record(
            6,
            "pay",
            json!({"k8s.event.reason": "BackOff", "k8s.event.count": "3", "k8s.object.kind": "Pod",
            "k8s.object.name": "pay-1", "severity_text": "Warning"}),
        ),
    ];
    let path = "/insert/jsonline?_stream_fields=service.name";
    let answer = server.post(path, headers, lines.join("\n").into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// A cell as it is compared: numbers as such, times to the second.
fn plain(value: &Value) -> Value {
    let text = match value {
        Value::String(text) => text.clone(),
        other => return other.as_f64().map_or_else(|| other.clone(), Value::from),
    };
    match text.parse::<f64>() {
        Ok(number) => number.into(),
        Err(_) if text.len() > 19 && text.as_bytes()[10] == b'T' => text[..19].into(),
        Err(_) => text.into(),
    }
}

/// Runs the text of a query and compares its rows with those of `load`.
async fn same_rows(server: &Server, headers: &[(&str, &str)], query: &Value) -> Result<(), String> {
    let shown = post(server, "/olap-api/v1/sql", headers, json!({"query": query})).await;
    let sql = &shown["sql"];
    let body = json!({"query": sql["sql"][0], "params": sql["sql"][1]});
    let headers_json: Vec<_> = headers.iter().copied().chain([JSON]).collect();
    let answer = server.post("/sql-api/v1/query", &headers_json, body.to_string().into_bytes()).await;
    if answer.status != 200 {
        return Err(format!("{query}: {} of {body}", answer.text()));
    }
    let answer = answer.json();
    let members: Vec<String> = answer["columns"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| c["name"].as_str().or(c.as_str()).unwrap_or_default())
        .map(|alias| sql["aliasNameToMember"][alias].as_str().unwrap_or(alias).to_owned())
        .collect();
    let mut got: Vec<String> = Vec::new();
    for row in answer["rows"].as_array().into_iter().flatten() {
        let cells: Vec<Value> = row.as_array().into_iter().flatten().map(plain).collect();
        got.push(Value::from(cells).to_string());
    }
    let mut wanted: Vec<String> = Vec::new();
    for row in load(server, headers, query).await.as_array().into_iter().flatten() {
        let cells: Vec<Value> = members.iter().map(|m| plain(&row[m])).collect();
        wanted.push(Value::from(cells).to_string());
    }
    got.sort();
    wanted.sort();
    if got == wanted { Ok(()) } else { Err(format!("{query}: got {got:?}, want {wanted:?} of {body}")) }
}

fn day(member: &str) -> Value {
    json!([{"dimension": member, "dateRange": ["2025-03-10T00:00:00.000", "2025-03-10T00:01:59.999"]}])
}

#[tokio::test(flavor = "multi_thread")]
async fn models_over_metrics() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    fill(&server, &[]).await;
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        let hot =
            json!({"measures": ["Hosts.hostCount"], "segments": ["Hosts.hot"], "timeDimensions": day("Hosts.time")});
        assert_eq!(load(&server, &[], &hot).await, json!([{"Hosts.hostCount": "0"}]), "a tenth is not hot");
        let hosts = json!({
            "measures": ["Hosts.hostCount", "Hosts.cpuUtilisation", "Hosts.memoryUsed", "Hosts.memoryUtilisation", "Hosts.networkIn"],
            "dimensions": ["Hosts.host"], "timeDimensions": day("Hosts.time"),
        });
        // 90 of 100 seconds idle; 15 of 100 bytes; 600 bytes, then 100 after a reset, in two minutes.
        let row = &load(&server, &[], &hosts).await[0];
        assert_eq!((&row["Hosts.host"], &row["Hosts.hostCount"]), (&json!("h1"), &json!("1")), "flushed: {flushed}");
        let near = |member: &str, wanted: f64| {
            let got = row[member].as_f64().unwrap_or(f64::NAN);
            assert!((got - wanted).abs() < 1e-9, "{member}: {got}, not {wanted}; flushed: {flushed}");
        };
        near("Hosts.cpuUtilisation", 0.1);
        near("Hosts.memoryUsed", 15.0);
        near("Hosts.memoryUtilisation", 0.15);
        near("Hosts.networkIn", 700.0 / 120.0);
        let queue = json!({
            "measures": ["Metrics.avg", "Metrics.sum", "Metrics.last", "Metrics.max", "Metrics.increase", "Metrics.count", "Metrics.seriesCount"],
            "filters": [{"member": "Metrics.metricName", "operator": "equals", "values": ["queue"]}],
        });
        let wanted = json!([{
            "Metrics.avg": 11.5, "Metrics.sum": 23, "Metrics.last": 34, "Metrics.max": 30, "Metrics.increase": 22,
            "Metrics.count": "4", "Metrics.seriesCount": "2",
        }]);
        assert_eq!(load(&server, &[], &queue).await, wanted, "flushed: {flushed}");
        let by_minute = json!({
            "measures": ["HostNetworks.bytesIn"], "dimensions": ["HostNetworks.interface"],
            "timeDimensions": [{"dimension": "HostNetworks.time", "granularity": "minute",
                "dateRange": ["2025-03-10T00:00:00.000", "2025-03-10T00:01:59.999"]}],
        });
        let rates: Vec<Value> = load(&server, &[], &by_minute)
            .await
            .as_array()
            .expect("rows")
            .iter()
            .map(|row| row["HostNetworks.bytesIn"].clone())
            .collect();
        assert_eq!(rates, [json!(10), json!(100.0 / 60.0)], "buckets add up; flushed: {flushed}");
        let series = json!({"measures": ["MetricSeries.count", "MetricSeries.metricCount", "MetricSeries.activeCount"],
            "dimensions": ["MetricSeries.service"]});
        let wanted = json!([
            {"MetricSeries.service": "agent", "MetricSeries.count": "5", "MetricSeries.metricCount": "3", "MetricSeries.activeCount": "0"},
            {"MetricSeries.service": "cart", "MetricSeries.count": "2", "MetricSeries.metricCount": "1", "MetricSeries.activeCount": "0"},
        ]);
        assert_eq!(load(&server, &[], &series).await, wanted, "flushed: {flushed}");
    }
}

/// An index that nothing scans is unused; a table is none.
#[tokio::test(flavor = "multi_thread")]
async fn unused_indexes() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    let of_table = "service_name=\"db\",instance=\"i1\",postgresql_table_name=\"t\"";
    let mut text = String::new();
    for (at, scans) in [(0, 5), (60, 8)] {
        let time = (START_S + at) * 1000;
        for (index, scans) in [("busy", scans), ("idle", 5)] {
            let labels = format!("{of_table},postgresql_index_name=\"{index}\"");
            let _ = writeln!(text, "postgresql_index_scans_total{{{labels}}} {scans} {time}");
        }
        let _ = writeln!(text, "postgresql_table_size_bytes{{{of_table}}} 500 {time}");
    }
    let answer = server.post("/metrics-api/api/v1/import/prometheus", &[], text.into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text());
    let query = json!({"measures": ["DatabaseTables.indexScans"], "dimensions": ["DatabaseTables.index"],
        "segments": ["DatabaseTables.unusedIndexes"], "timeDimensions": day("DatabaseTables.time")});
    let wanted = json!([{"DatabaseTables.index": "idle", "DatabaseTables.indexScans": 0}]);
    assert_eq!(load(&server, &[], &query).await, wanted);
}

/// Quantiles are those of what the buckets of all series rose by in the range.
#[tokio::test(flavor = "multi_thread")]
async fn quantiles_of_histograms() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    let mut text = String::new();
    for (instance, rises) in [("i1", [2.0, 6.0, 8.0]), ("i2", [2.0, 2.0, 2.0])] {
        for (le, rise) in ["0.1", "0.5", "+Inf"].into_iter().zip(rises) {
            for (at, value) in [(0, 1.0), (60, 1.0 + rise)] {
                let time = (START_S + at) * 1000;
                let _ = writeln!(
                    text,
                    "db_client_connection_wait_time_seconds_bucket{{service_name=\"shop\",instance=\"{instance}\",le=\"{le}\"}} {value} {time}"
                );
            }
        }
    }
    let answer = server.post("/metrics-api/api/v1/import/prometheus", &[], text.into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text());
    let ask = async |measure: &str| {
        let (model, _) = measure.split_once('.').expect("of a model");
        let query = json!({"measures": [measure], "timeDimensions": [{"dimension": format!("{model}.time"),
            "dateRange": ["2025-03-10T00:00:00.000", "2025-03-10T00:01:59.999"]}]});
        load(&server, &[], &query).await[0][measure].as_f64().unwrap_or(f64::NAN)
    };
    // Of ten waits four were within 0.1 s, eight within 0.5 s.
    for (measure, wanted) in
        [("Metrics.p50", 0.2), ("Metrics.p95", 0.5), ("DatabaseConnectionPools.waitTimeP95", 500.0)]
    {
        let found = ask(measure).await;
        assert!((found - wanted).abs() < 1e-9, "{measure}: {found}, not {wanted}");
    }
}

/// Sums and counts of histograms rise as counters do; those of several runtimes stand for each other.
#[tokio::test(flavor = "multi_thread")]
async fn collections_of_runtimes() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    let mut text = String::new();
    for (service, name, rise) in [
        ("shop", "jvm_gc_duration_seconds_sum", 30.0),
        ("shop", "jvm_gc_duration_seconds_count", 5.0),
        ("api", "go_memory_gc_pause_duration_seconds_sum", 1.5),
        ("api", "go_memory_gc_cycles_total", 4.0),
        ("api", "dotnet_gc_pause_time_seconds_total", 1.5),
    ] {
        for (at, value) in [(0, 1.0), (60, 1.0 + rise)] {
            let time = (START_S + at) * 1000;
            let _ = writeln!(text, "{name}{{service_name=\"{service}\",instance=\"i1\"}} {value} {time}");
        }
    }
    let answer = server.post("/metrics-api/api/v1/import/prometheus", &[], text.into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text());
    let time = json!([{"dimension": "Runtimes.time",
        "dateRange": ["2025-03-10T00:00:00.000", "2025-03-10T00:01:59.999"]}]);
    let query = json!({"measures": ["Runtimes.gcTime", "Runtimes.gcCount", "Runtimes.gcShare"],
        "dimensions": ["Runtimes.service"], "timeDimensions": time, "order": {"Runtimes.service": "asc"}});
    let wanted = json!([
        {"Runtimes.service": "api", "Runtimes.gcTime": 3, "Runtimes.gcCount": 4, "Runtimes.gcShare": 0.025},
        {"Runtimes.service": "shop", "Runtimes.gcTime": 30, "Runtimes.gcCount": 5, "Runtimes.gcShare": 0.25},
    ]);
    assert_eq!(load(&server, &[], &query).await, wanted);
    let pressed = json!({"measures": ["Runtimes.gcTime"], "dimensions": ["Runtimes.service"],
        "segments": ["Runtimes.gcPressure"], "timeDimensions": time});
    assert_eq!(load(&server, &[], &pressed).await, json!([{"Runtimes.service": "shop", "Runtimes.gcTime": 30}]));
}

/// The caller of a database: the only service that sends from the address, else the one that the application is called like; to a
/// caller only services that he sees.
#[tokio::test(flavor = "multi_thread")]
async fn services_behind_database_sessions() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password().args(&["--retention", "none"])).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let headers = [("authorization", admin.as_str())];
    let at = START_S * 1_000_000_000;
    let span = |(n, (service, key, address)): (usize, (&str, &str, &str))| {
        let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        json!({
            "resource": {"attributes": [attribute("service.name", service), attribute(key, address)]},
            "scopeSpans": [{"spans": [{"traceId": format!("{:032x}", n + 1), "spanId": format!("{:016x}", n + 1), "name": "q",
                "kind": 3, "startTimeUnixNano": at.to_string(), "endTimeUnixNano": (at + 5).to_string()}]}],
        })
    };
    let senders = [
        ("cart", "host.ip", "10.0.0.1"),
        ("pay", "k8s.pod.ip", "10.0.0.2"),
        ("cart", "host.ip", "10.0.0.3"),
        ("pay", "host.ip", "10.0.0.3"),
        ("web", "x", "y"),
    ];
    let spans: Vec<Value> = senders.into_iter().enumerate().map(span).collect();
    post(&server, "/insert/opentelemetry/v1/traces", &headers, json!({"resourceSpans": spans})).await;
    let asking =
        [("10.0.0.1", "psql"), ("10.0.0.2", "web"), ("10.0.0.3", "psql"), ("10.0.0.3", "web"), ("10.0.0.9", "x")];
    let mut records = String::new();
    for (n, (address, application)) in asking.into_iter().enumerate() {
        let record = json!({"_time": (START_S + 1).to_string(), "_msg": "m", "event_name": "db.server.query_sample",
            "service.name": "db", "network.peer.address": address, "postgresql.application_name": application,
            "postgresql.pid": n.to_string()});
        let _ = writeln!(records, "{record}");
    }
    let sent = server.post("/insert/jsonline", &headers, records.into_bytes()).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    let query = json!({"dimensions": ["DatabaseSessions.sessionPid", "DatabaseSessions.clientService"],
        "order": {"DatabaseSessions.sessionPid": "asc"}});
    let services = |rows: &Value| -> Vec<Value> {
        let rows = rows.as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row["DatabaseSessions.clientService"].clone()).collect()
    };
    let all = load(&server, &headers, &query).await;
    assert_eq!(services(&all), [json!("cart"), json!("pay"), Value::Null, json!("web"), Value::Null]);
    user(&server, &admin, "ann", "viewer", json!(["db", "cart"])).await;
    let ann = bearer(&login(&server, "ann", PASSWORD).await);
    // Of what ann sees, cart alone sends from the third address.
    let own = load(&server, &[("authorization", ann.as_str())], &query).await;
    assert_eq!(services(&own), [json!("cart"), Value::Null, json!("cart"), json!("cart"), Value::Null]);
}

#[tokio::test(flavor = "multi_thread")]
async fn models_over_logs() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    fill(&server, &[]).await;
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        let ask = async |query: Value| load(&server, &[], &query).await;
        let all = ask(json!({"measures": ["Logs.count", "Logs.correlatedRate"], "segments": ["Logs.all"]})).await;
        assert_eq!(all[0]["Logs.count"], "7", "flushed: {flushed}");
        let by = ask(json!({"measures": ["Logs.count", "Logs.exemplarTraceId"], "dimensions": ["Logs.severity"],
            "order": {"Logs.severity": "asc"}}))
        .await;
        let row = |severity: &str, count: &str, trace: Value| json!({"Logs.severity": severity, "Logs.count": count, "Logs.exemplarTraceId": trace});
        let wanted = json!([
            row("error", "1", json!("a".repeat(32))),
            row("info", "2", Value::Null),
            row("warn", "1", Value::Null)
        ]);
        assert_eq!(by, wanted, "flushed: {flushed}");
        let events = ask(json!({"measures": ["Events.count", "Events.nameCount"]})).await;
        assert_eq!(events, json!([{"Events.count": "3", "Events.nameCount": "3"}]));
        let business = ask(json!({"measures": ["BusinessEvents.count"], "dimensions": ["BusinessEvents.eventName", "BusinessEvents.category"],
            "order": {"BusinessEvents.eventName": "asc"}})).await;
        assert_eq!(business[0]["BusinessEvents.eventName"], "order.paid");
        assert_eq!(
            (business.as_array().map(Vec::len), &business[1]["BusinessEvents.category"]),
            (Some(2), &json!("order"))
        );
        let cluster = ask(json!({"measures": ["KubernetesEvents.count", "KubernetesEvents.warningCount", "KubernetesEvents.backOffCount"],
            "dimensions": ["KubernetesEvents.pod"]})).await;
        assert_eq!(cluster[0]["KubernetesEvents.pod"], "pay-1");
        assert_eq!(
            (&cluster[0]["KubernetesEvents.count"], &cluster[0]["KubernetesEvents.warningCount"]),
            (&json!("3"), &json!("1"))
        );
        let streams = ask(json!({"measures": ["LogStreams.count", "LogStreams.records", "LogStreams.silentCount"],
            "timeDimensions": [{"dimension": "LogStreams.lastSeen", "dateRange": ["2025-03-10T00:00:01.000", "2025-03-10T00:00:04.999"]}]})).await;
        assert_eq!(
            streams,
            json!([{"LogStreams.count": "2", "LogStreams.records": "4", "LogStreams.silentCount": "2"}])
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_plans_run_on_the_sql_api() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    fill(&server, &[]).await;
    crate::olap::spans::fill(&server, &[]).await;
    let meta = server.get("/olap-api/v1/meta").await.json();
    let names = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|m| Some(m["name"].as_str()?.to_owned())).collect()
    };
    let mut wrong = Vec::new();
    for cube in meta["cubes"].as_array().expect("models") {
        let (measures, dimensions) = (names(&cube["measures"]), names(&cube["dimensions"]));
        let some: Vec<&String> = dimensions.iter().take(6).collect();
        // Without a range rates go to the time of the query, which is another each time.
        let times = cube["dimensions"].as_array().into_iter().flatten().filter(|d| d["type"] == "time");
        let times: Vec<Value> =
            times.take(1).map(|d| json!({"dimension": d["name"], "dateRange": ["2025-03-09", "2025-03-11"]})).collect();
        let whole = json!({"measures": measures, "timeDimensions": times});
        wrong.extend(same_rows(&server, &[], &whole).await.err());
        let grouped = json!({"dimensions": some, "measures": measures[..1], "timeDimensions": times});
        wrong.extend(same_rows(&server, &[], &grouped).await.err());
        for segment in names(&cube["segments"]) {
            let query = json!({"measures": measures[..1], "segments": [segment], "timeDimensions": times});
            wrong.extend(same_rows(&server, &[], &query).await.err());
        }
    }
    let bucketed = json!({
        "measures": ["Logs.count", "Logs.rate"], "dimensions": ["Logs.service"],
        "filters": [{"member": "Logs.body", "operator": "contains", "values": ["LINE"]},
            {"member": "Logs.count", "operator": "gt", "values": [0]}],
        "timeDimensions": [{"dimension": "Logs.time", "granularity": "minute", "dateRange": ["2025-03-10", "2025-03-10"]}],
        "timezone": "Europe/Berlin", "limit": 5,
    });
    wrong.extend(same_rows(&server, &[], &bucketed).await.err());
    // Each row counts 1, which is what tells months from other buckets, too.
    let single = json!({
        "measures": ["Logs.count"], "dimensions": ["Logs.service"], "ungrouped": true, "order": {"Logs.service": "desc"},
        "timeDimensions": [{"dimension": "Logs.time", "granularity": "month", "dateRange": ["2025-03-10", "2025-03-10"]}],
    });
    wrong.extend(same_rows(&server, &[], &single).await.err());
    let shown = post(&server, "/olap-api/v1/sql", &[], json!({"query": bucketed})).await;
    let text = shown["sql"]["sql"][0].as_str().expect("a text");
    assert!(
        !text.contains("line") && shown["sql"]["sql"][1].as_array().expect("values").contains(&json!("line")),
        "{shown}"
    );
    assert_eq!(shown["sql"]["aliasNameToMember"]["logs__time_minute"], "Logs.time.minute");
    assert_eq!(shown["sql"]["timeDimensionAlias"], "logs__time_minute");
    let refused = server.get_with("/olap-api/v1/sql", &[("format", "sql"), ("query", "select")]).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(wrong.is_empty(), "{} texts\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_behind_numbers_and_values() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password().args(&["--retention", "none"])).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let headers = [("authorization", admin.as_str())];
    fill(&server, &headers).await;
    let query = json!({
        "measures": ["Logs.count", "Logs.errorCount"], "dimensions": ["Logs.service"],
        "timeDimensions": [{"dimension": "Logs.time", "granularity": "minute", "dateRange": ["2025-03-10", "2025-03-10"]}],
        "order": {"Logs.service": "asc"},
    });
    let row = load(&server, &headers, &query).await[0].take();
    assert_eq!((&row["Logs.service"], &row["Logs.count"]), (&json!("cart"), &json!("2")));
    let drill = async |measure: &str, headers: &[(&str, &str)]| {
        let body = json!({"query": query, "row": row, "measure": measure});
        post(&server, "/olap-api/v1/drill", headers, body).await
    };
    let all = drill("Logs.count", &headers).await;
    assert_eq!(all["data"].as_array().map(Vec::len), Some(2), "{all}");
    assert_eq!(
        all["query"]["timeDimensions"][0]["dateRange"],
        json!(["2025-03-10T00:00:00.000", "2025-03-10T00:00:59.999"])
    );
    assert_eq!(all["links"]["traces"], "/traces?from=1741564800000&to=1741564860000&service=cart");
    let errors = drill("Logs.errorCount", &headers).await;
    assert!(errors["error"].is_null() && errors["data"] == json!([]), "severities are texts alone here: {errors}");
    let bad = json!({"query": query, "row": {"Logs.host": "h"}, "measure": "Logs.count"}).to_string();
    let json_headers = [headers[0], JSON];
    let refused = server.post("/olap-api/v1/drill", &json_headers, bad.into_bytes()).await;
    assert_eq!((refused.status, &refused.json()["pointer"]), (400, &json!("/row/Logs.host")), "{}", refused.text());

    let values = async |params: &str, who: &str| {
        let answer = server.get_as(&format!("/olap-api/v1/meta/values?{params}"), &[("authorization", who)]).await;
        assert_eq!(answer.status, 200, "{params}: {}", answer.text());
        answer.json()["values"].take()
    };
    let services = json!([{"value": "cart", "count": "2"}, {"value": "pay", "count": "2"}]);
    assert_eq!(values("member=Logs.service", &admin).await, services);
    assert_eq!(values("member=Logs.service&search=CA", &admin).await, json!([{"value": "cart", "count": "2"}]));
    assert_eq!(values("member=Logs.service&dateRange=yesterday", &admin).await, json!([]));
    // A caller who sees one service finds no value of another, and no row.
    user(&server, &admin, "reader", "viewer", json!(["pay"])).await;
    let reader = bearer(&login(&server, "reader", PASSWORD).await);
    let seen = [("authorization", reader.as_str())];
    assert_eq!(values("member=Logs.service", &reader).await, json!([{"value": "pay", "count": "2"}]));
    assert_eq!(drill("Logs.count", &seen).await["data"], json!([]));
    assert_eq!(load(&server, &seen, &json!({"measures": ["Metrics.count"]})).await, json!([{"Metrics.count": "0"}]));
    same_rows(&server, &seen, &query).await.expect("the row filter is in the text");
}
