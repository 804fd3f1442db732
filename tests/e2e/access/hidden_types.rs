//! Types of columns that are found by name follow from the values that the caller sees, also in models that are made of all
//! rows there are: else sums and orders would tell whether a hidden row holds a text (`identity-and-access` 4.1).

use std::fmt::Write as _;

use quiver_tests::server::Server;
use serde_json::{Value, json};

use crate::identity::{permitted, signed_in, user, with_password};
use crate::olap::members::differs;

/// Models that read all rows: spans, the same in another domain, and records of logs.
const MODELS: &str = "cubes:
  - name: Costs
    sql_table: quiver.spans
    row_right: {service: service, domain: traces, reads: all}
    open: {prefix: attr_, sql: '\"attributes.:key\"'}
    dimensions: [{name: service, type: string, sql: service_name}]
    measures:
      - {name: count, type: count}
      - {name: total, type: sum, sql: '\"attributes.cost\"'}
      - {name: share, type: sum, sql: '\"attributes.share\"'}
  - name: Deals
    sql: SELECT service_name, \"attributes.cost\" AS cost FROM quiver.spans
    row_right: {service: service, domain: transactions, reads: all}
    dimensions: [{name: service, type: string, sql: service_name}]
    measures: [{name: total, type: sum, sql: cost}]
  - name: Sizes
    sql_table: quiver.logs
    row_right: {service: service, domain: logs, reads: all}
    dimensions:
      - {name: service, type: string, sql: service_name}
      - {name: size, type: number, sql: '\"size\"'}
    measures: [{name: total, type: sum, sql: '\"size\"'}]
";

/// Spans and records of a service, with these values.
async fn send(server: &Server, admin: &str, service: &str, values: &[Value]) {
    let attribute = |key: &str, value: Value| json!({"key": key, "value": value});
    let (mut spans, mut rows) = (Vec::new(), String::new());
    for (n, value) in values.iter().enumerate() {
        let id = format!("{:030x}{:02x}", n + 1, service.len());
        let (cost, share) = match value.as_i64() {
            Some(number) => (json!({"intValue": number}), json!({"doubleValue": number as f64 + 0.5})),
            None => (json!({"stringValue": value}), json!({"stringValue": value})),
        };
        spans.push(json!({"traceId": id, "spanId": id[16..], "kind": 2, "name": "op",
            "startTimeUnixNano": "1772402400000000000", "endTimeUnixNano": "1772402401000000000",
            "attributes": [attribute("cost", cost), attribute("share", share)]}));
        let row = json!({"_time": "1772402400", "_msg": "m", "service.name": service, "size": value});
        let _ = writeln!(rows, "{row}");
    }
    let resource = json!({"attributes": [attribute("service.name", json!({"stringValue": service}))]});
    let traces = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}).to_string();
    for (path, kind, body) in [
        ("/v1/traces", "application/json", traces),
        ("/insert/jsonline?_stream_fields=service.name", "application/stream+json", rows),
    ] {
        let headers = [("authorization", admin), ("content-type", kind)];
        let answer = server.post(path, &headers, body.into_bytes()).await;
        assert!(answer.status < 300, "{path}: {} {}", answer.status, answer.text());
    }
}

fn queries() -> Vec<Value> {
    vec![
        json!({"measures": ["Costs.count", "Costs.total", "Costs.share"], "dimensions": ["Costs.service"]}),
        json!({"measures": ["Costs.count"], "dimensions": ["Costs.attr_cost"], "order": [["Costs.attr_cost", "desc"]]}),
        json!({"measures": ["Costs.count"], "dimensions": ["Costs.attr_share"],
            "filters": [{"member": "Costs.attr_share", "operator": "gt", "values": ["2"]}]}),
        json!({"measures": ["Deals.total"], "dimensions": ["Deals.service"]}),
        json!({"measures": ["Sizes.total"], "dimensions": ["Sizes.size"], "order": [["Sizes.size", "desc"]]}),
    ]
}

async fn data(server: &Server, who: &str, query: &Value) -> Value {
    let headers = [("authorization", who), ("content-type", "application/json"), ("x-wait", "60")];
    let body = json!({"query": query}).to_string().into_bytes();
    let answer = server.post("/olap-api/v1/load", &headers, body).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()["data"].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn types_follow_from_what_is_seen() {
    let dir = tempfile::tempdir().expect("a folder");
    let own = dir.path().join("own");
    std::fs::create_dir_all(&own).expect("a folder");
    std::fs::write(own.join("costs.yml"), MODELS).expect("written");
    let folder = own.display().to_string();
    let options = with_password().args(&["--retention", "none", "--olap-models", &folder]);
    let server = Server::start(&dir.path().join("data"), &options).await;
    let admin = signed_in(&server, "admin").await;
    user(&server, &admin, "viewer", "viewer", json!(["front"])).await;
    let viewer = signed_in(&server, "viewer").await;
    // This caller sees transactions only, and no spans.
    let dealer = permitted(&server, &admin, "dealer", &["{view, transactions, front}"]).await;
    send(&server, &admin, "front", &[json!(9), json!(10)]).await;
    let mut alone = Vec::new();
    for query in queries() {
        let rows = data(&server, &viewer, &query).await;
        assert!(!rows.as_array().expect("rows").is_empty(), "{query}");
        alone.push(rows);
    }
    let of_dealer = data(&server, &dealer, &queries()[3]).await;
    assert_eq!(of_dealer, alone[3]);
    for (state, values) in [("texts", vec![json!("hush"), json!("9")]), ("numbers", vec![json!(8), json!(70)])] {
        // Services with names of different lengths have different ids of spans.
        send(&server, &admin, &format!("hidden-{state}"), &values).await;
        for flushes in [false, true] {
            if flushes {
                let answer = server.post("/admin/flush", &[("authorization", admin.as_str())], vec![]).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
            for (query, alone) in queries().iter().zip(&alone) {
                assert_eq!(&data(&server, &viewer, query).await, alone, "{state} {flushes} {query}");
                let (difference, has_rows) = differs(&server, &[("authorization", viewer.as_str())], query).await;
                assert_eq!((difference, has_rows), (None, true), "{state} {flushes} {query}");
            }
            assert_eq!(data(&server, &dealer, &queries()[3]).await, of_dealer, "{state} {flushes}");
        }
    }
}
