//! Tables about the server's own use: who may see their rows, and that they survive restarts.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use quiver_tests::server::{Answer, Server};
use quiver_types::{Clock, SystemClock};
use serde_json::{Value, json};

use super::identity::{PASSWORD, bearer, login, user, with_password};
use crate::entities::resources::send;

async fn load(server: &Server, who: &str, query: &Value) -> Answer {
    let headers = [("authorization", who), ("content-type", "application/json")];
    server.post("/olap-api/v1/load", &headers, json!({"query": query}).to_string().into_bytes()).await
}

async fn sql(server: &Server, who: &str, statement: &str) -> Answer {
    let headers = [("authorization", who), ("content-type", "application/json")];
    server.post("/sql-api/v1/query", &headers, json!({"query": statement}).to_string().into_bytes()).await
}

/// Queries of the statement below, by how they ended.
fn asked() -> Value {
    json!({
        "dimensions": ["QueryUsage.api", "QueryUsage.endpoint", "QueryUsage.status", "QueryUsage.user"],
        "measures": ["QueryUsage.count", "QueryUsage.errorCount", "QueryUsage.cpuTime"],
        "filters": [
            {"member": "QueryUsage.text", "operator": "contains", "values": ["a_mark"]},
            // Those that ask for these rows have it in their text, too.
            {"member": "QueryUsage.api", "operator": "equals", "values": ["sql"]},
        ],
        "order": {"QueryUsage.status": "asc"},
    })
}

/// Asks until the rows are such.
async fn until(server: &Server, who: &str, query: Value, such: impl Fn(&[Value]) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let answer = load(server, who, &query).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        let data = answer.json()["data"].take();
        if data.as_array().is_some_and(|rows| such(rows)) {
            return data;
        }
        assert!(began.elapsed() < Duration::from_mins(5), "{query}: {data}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn has_rows(rows: &[Value]) -> bool {
    !rows.is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_and_what_is_kept_have_rows() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = with_password().args(&["--retention", "30d"]).env("QUIVER_USAGE__INTERVAL", "200ms");
    let server = Server::start(dir.path(), &options).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let old = json!({"_msg": "old", "service.name": "cart", "_time": "2001-01-01T00:00:00Z"});
    let line = format!("{}\n{old}", json!({"_msg": "x", "service.name": "cart"}));
    let len = line.len();
    let path = "/insert/jsonline?_stream_fields=service.name";
    let taken = server.post(path, &[("authorization", admin.as_str())], line.into_bytes()).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    assert_eq!(sql(&server, &admin, "SELECT count(*) AS a_mark FROM logs").await.status, 200);
    let rows = until(&server, &admin, asked(), has_rows).await;
    let ok = rows.as_array().and_then(|all| all.iter().find(|row| row["QueryUsage.status"] == "ok"));
    let ok = ok.unwrap_or_else(|| panic!("{rows}"));
    assert_eq!(
        [&ok["QueryUsage.api"], &ok["QueryUsage.endpoint"], &ok["QueryUsage.count"], &ok["QueryUsage.errorCount"]],
        [&json!("sql"), &json!("/sql-api/v1/query"), &json!("1"), &json!("0")]
    );
    assert!(ok["QueryUsage.cpuTime"].as_f64().is_some_and(|ms| ms > 0.0), "{ok}");
    assert!(ok["QueryUsage.user"].as_str().is_some_and(|user| !user.is_empty()), "{ok}");
    let came = json!({
        "dimensions": ["IngestionUsage.signal", "IngestionUsage.protocol", "IngestionUsage.service"],
        "measures": [
            "IngestionUsage.records", "IngestionUsage.bytesIn", "IngestionUsage.requests", "IngestionUsage.bytesShare",
            "IngestionUsage.lagP95",
        ],
        "filters": [{"member": "IngestionUsage.service", "operator": "equals", "values": ["cart"]}],
    });
    let row = until(&server, &admin, came, has_rows).await[0].take();
    assert_eq!(
        [&row["IngestionUsage.signal"], &row["IngestionUsage.protocol"]],
        [&json!("logs"), &json!("jsonline")],
        "{row}"
    );
    let number = |name: &str| row[name].to_string().trim_matches('"').parse::<f64>().unwrap_or(f64::NAN);
    let numbers =
        ["IngestionUsage.records", "IngestionUsage.bytesIn", "IngestionUsage.requests", "IngestionUsage.bytesShare"];
    let [records, bytes, requests, share] = numbers.map(number);
    assert_eq!([records, requests, share], [1.0; 3], "{row}");
    // Of what was sent, the row that was taken.
    assert!((29.0..len as f64 / 2.0).contains(&bytes), "{row}");
    assert!((0.0..60_000.0).contains(&number("IngestionUsage.lagP95")), "{row}");
    // What the store does not take is not taken, and nothing else.
    let refused = json!({
        "dimensions": ["IngestionUsage.rejectReason"], "measures": ["IngestionUsage.rejected"],
        "filters": [{"member": "IngestionUsage.rejectReason", "operator": "set"}],
    });
    let rows = until(&server, &admin, refused, has_rows).await;
    assert_eq!(rows.as_array().map(|all| (all.len(), &all[0]["IngestionUsage.rejected"])), Some((1, &json!("1"))));
    // What the store keeps is counted as soon as it keeps something.
    let flushed = server.post("/admin/flush", &[("authorization", admin.as_str())], Vec::new()).await;
    assert!(flushed.status < 300, "{}", flushed.text());
    let kept = json!({
        "dimensions": ["StorageUsage.table"],
        "measures": ["StorageUsage.rows", "StorageUsage.files", "StorageUsage.bytesPerRow", "StorageUsage.oldestDay"],
        "filters": [{"member": "StorageUsage.table", "operator": "equals", "values": ["logs"]}],
    });
    let row = until(&server, &admin, kept, has_rows).await[0].take();
    assert_eq!(row["StorageUsage.rows"].to_string().trim_matches('"'), "1", "{row}");
    assert!(row["StorageUsage.bytesPerRow"].as_f64().is_some_and(|bytes| bytes > 1.0), "{row}");
    assert!(row["StorageUsage.oldestDay"].as_str().is_some_and(|day| day.contains("T00:00:00")), "{row}");
    // They are rows as others are: there after a restart.
    server.stop();
    let server = Server::start(dir.path(), &options).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    assert!(!until(&server, &admin, asked(), has_rows).await[0].is_null());
    // Whoever sees one service sees none of it, and no sum of it.
    user(&server, &admin, "cart", "viewer", json!(["cart"])).await;
    let cart = bearer(&login(&server, "cart", PASSWORD).await);
    let answer = sql(&server, &cart, "SELECT count(*) FROM storage_stats").await;
    assert!(answer.status == 403 || answer.json()["rows"] == json!([[0]]), "{}", answer.text());
    // But of queries his own, without what tells how much there is.
    assert_eq!(sql(&server, &cart, "SELECT count(*) AS a_mark FROM logs WHERE 1 = 1").await.status, 200);
    let own = json!({
        "dimensions": ["QueryUsage.user", "QueryUsage.api", "QueryUsage.text"],
        "measures": ["QueryUsage.count", "QueryUsage.scannedRows", "QueryUsage.cpuTime"],
    });
    let is_own =
        |row: &Value| row["QueryUsage.text"].as_str().is_some_and(|text| text.contains("a_mark FROM logs WHERE"));
    let rows = until(&server, &cart, own.clone(), |rows| rows.iter().any(is_own)).await;
    let all = rows.as_array().into_iter().flatten();
    let users: BTreeSet<&str> = all.filter_map(|row| row["QueryUsage.user"].as_str()).collect();
    assert_eq!(users.len(), 1, "{rows}");
    let is_untold = |row: &Value| row["QueryUsage.scannedRows"].is_null() && row["QueryUsage.cpuTime"].is_null();
    assert!(rows.as_array().is_some_and(|all| all.iter().all(is_untold)), "{rows}");
    // A caller who sees the same services and asks the same gets no rows of another.
    user(&server, &admin, "other", "viewer", json!(["cart"])).await;
    let other = bearer(&login(&server, "other", PASSWORD).await);
    let answer = load(&server, &other, &own).await;
    let rows = answer.json()["data"].take();
    assert!(rows.as_array().is_some_and(|all| !all.iter().any(is_own)), "{rows}");
    // Analytics says which models were asked for, and what was kept.
    let kept = json!({
        "dimensions": ["QueryUsage.models", "QueryUsage.cacheState"],
        "measures": ["QueryUsage.count", "QueryUsage.cacheHitRate"],
        "filters": [{"member": "QueryUsage.models", "operator": "equals", "values": ["StorageUsage"]}],
    });
    let rows = until(&server, &admin, kept, has_rows).await;
    assert!(rows[0]["QueryUsage.cacheState"].is_string() && rows[0]["QueryUsage.cacheHitRate"].is_number(), "{rows}");
}

/// A row and a span of one service, each in one request with others' or alone.
async fn send_with(server: &Server, who: &str, others: &[&str]) {
    let services = [&["cart"][..], others].concat();
    let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let row = |service: &&str| {
        json!({"_time": "2026-03-01T22:00:00Z", "_msg": service.repeat(9), "service.name": service}).to_string()
    };
    let spans = |(n, service): (usize, &&str)| {
        let span = json!({"traceId": format!("{:032x}", n + 1), "spanId": format!("{:016x}", n + 1), "kind": 2,
            "name": service.repeat(9), "startTimeUnixNano": "1772402400000000000",
            "endTimeUnixNano": "1772402400100000000"});
        let resource = json!({"attributes": [attribute("service.name", service)]});
        json!({"resource": resource, "scopeSpans": [{"spans": [span]}]})
    };
    let rows: Vec<String> = services.iter().map(row).collect();
    let traces = json!({"resourceSpans": services.iter().enumerate().map(spans).collect::<Vec<_>>()});
    for (path, kind, body) in [
        ("/insert/jsonline?_stream_fields=service.name", "application/stream+json", rows.join("\n")),
        ("/v1/traces", "application/json", traces.to_string()),
    ] {
        let headers = [("authorization", who), ("content-type", kind)];
        let answer = server.post(path, &headers, body.into_bytes()).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
}

/// A share of a request would tell of what else was in it (`identity-and-access` 4.3).
#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_a_service_are_its_own() {
    let options = with_password().args(&["--retention", "none"]).env("QUIVER_USAGE__INTERVAL", "200ms");
    let came = "SELECT signal, sum(records), sum(bytes_in) FROM ingest_usage_1m GROUP BY signal ORDER BY signal";
    let mut told = Vec::new();
    for others in [&["a-service-with-a-longer-name", "z"][..], &[]] {
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server::start(dir.path(), &options).await;
        let admin = bearer(&login(&server, "admin", PASSWORD).await);
        user(&server, &admin, "ann", "viewer", json!(["cart"])).await;
        let ann = bearer(&login(&server, "ann", PASSWORD).await);
        send_with(&server, &admin, others).await;
        let began = Instant::now();
        let rows = loop {
            let answer = sql(&server, &ann, came).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let rows = answer.json()["rows"].take();
            if rows.as_array().map(Vec::len) == Some(2) {
                break rows;
            }
            assert!(began.elapsed() < Duration::from_mins(5), "{rows}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert!(rows.as_array().is_some_and(|all| all.iter().all(|row| row[1] == json!(1))), "{rows}");
        told.push(rows);
    }
    assert_eq!(told[0], told[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_written_at_a_stop() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = with_password().env("QUIVER_USAGE__INTERVAL", "1h");
    let server = Server::start(dir.path(), &options).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    assert_eq!(sql(&server, &admin, "SELECT count(*) AS a_mark FROM logs").await.status, 200);
    assert_eq!(load(&server, &admin, &asked()).await.json()["data"], json!([]));
    server.stop();
    let server = Server::start(dir.path(), &options).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let answer = load(&server, &admin, &asked()).await;
    assert_eq!(answer.json()["data"][0]["QueryUsage.count"], "1", "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn health_of_resources_has_minutes() {
    let dir = tempfile::tempdir().expect("a folder");
    let options =
        with_password().env("QUIVER_USAGE__INTERVAL", "200ms").env("QUIVER_RESOURCES__DISCOVERY_INTERVAL", "300ms");
    let server = Server::start(dir.path(), &options).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    send(&server, &admin, SystemClock.now_ms() / 1000 - 5).await;
    let of_services = || {
        json!({
            "dimensions": ["ResourceHealth.service", "ResourceHealth.health", "ResourceHealth.cause"],
            "measures": ["ResourceHealth.count", "ResourceHealth.outageCount", "ResourceHealth.availability"],
            "filters": [{"member": "ResourceHealth.resourceType", "operator": "equals", "values": ["service"]}],
        })
    };
    let has = |rows: &[Value], service: &str, health: &str| {
        rows.iter().any(|row| row["ResourceHealth.service"] == service && row["ResourceHealth.health"] == health)
    };
    until(&server, &admin, of_services(), |rows| has(rows, "cart", "ok") && has(rows, "web", "ok")).await;
    let alert = json!([{"labels": {"alertname": "Down", "severity": "critical", "service_name": "cart"}}]);
    let headers = [("authorization", admin.as_str()), ("content-type", "application/json")];
    let posted = server.post("/api/v2/alerts", &headers, alert.to_string().into_bytes()).await;
    assert_eq!(posted.status, 200, "{}", posted.text());
    let rows = until(&server, &admin, of_services(), |rows| has(rows, "cart", "critical")).await;
    let row = rows.as_array().and_then(|all| all.iter().find(|row| row["ResourceHealth.health"] == "critical"));
    let row = row.unwrap_or_else(|| panic!("{rows}"));
    assert_eq!((&row["ResourceHealth.cause"], &row["ResourceHealth.outageCount"]), (&json!("alert"), &json!("1")));
    assert_eq!(row["ResourceHealth.availability"].as_f64(), Some(0.0), "{row}");
    // Whoever sees one service hears of that one.
    user(&server, &admin, "web", "viewer", json!(["web"])).await;
    let web = bearer(&login(&server, "web", PASSWORD).await);
    let seen = until(&server, &web, of_services(), has_rows).await;
    assert!(seen.as_array().is_some_and(|all| all.iter().all(|row| row["ResourceHealth.service"] == "web")), "{seen}");
}
