//! The effects of configuration on telemetry that arrives after a change, and on queries; also for callers with
//! restricted rights.

use quiver_tests::server::{Options, Server};
use quiver_types::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::identity::{signed_in, user, with_password};
use crate::json_calls::{call, made};

async fn logs(server: &Server, rows: &[Value]) {
    let body: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let path = "/insert/jsonline?_stream_fields=service.name";
    let answer = server.post(path, &[("content-type", "application/stream+json")], body.into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text());
}

async fn found(server: &Server, query: &str, more: &[(&str, &str)]) -> Vec<Value> {
    let parameters = [&[("query", query)], more].concat();
    let answer = server.get_with("/logs-api/select/logsql/query", &parameters).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_take_fields_out_of_logs() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    logs(&server, &[json!({"_msg": "took 1 ms", "service.name": "cart"})]).await;
    let rule = json!({"name": "took", "signal": "logs", "service": "cart", "method": "regex",
        "expression": "took (?P<ms>[0-9]+)", "targets": [{"field": "took_ms", "from": "ms", "type": "int"}]});
    let rule = made(&server, "", "/platform-api/data-extraction-rules", rule).await;
    let path = format!("/platform-api/data-extraction-rules/{}", rule["id"].as_str().expect("an id"));
    logs(
        &server,
        &[json!({"_msg": "took 12 ms", "service.name": "cart"}), json!({"_msg": "took 9 ms", "service.name": "x"})],
    )
    .await;
    let rows = found(&server, "took_ms:>5", &[]).await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((&rows[0]["took_ms"], &rows[0]["_msg"]), (&json!("12"), &json!("took 12 ms")));
    let stats = server.get(&format!("{path}/stats")).await.json();
    assert_eq!((&stats["seen"], &stats["matched"]), (&json!(1), &json!(1)));
    assert_eq!(call(&server, "", "PATCH", &path, &json!({"enabled": false})).await.status, 200);
    logs(&server, &[json!({"_msg": "took 13 ms", "service.name": "cart"})]).await;
    assert_eq!(found(&server, "took_ms:*", &[]).await.len(), 1, "off from the next record on");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_rules_take_out_of_events_is_their_value() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let rule = json!({"name": "orders", "signal": "logs", "method": "regex", "expression": "order (?P<id>[^ ]+) of (?P<sum>[0-9.]+)",
        "targets": [{"field": "extracted_correlation", "from": "id", "type": "string"},
            {"field": "extracted_value", "from": "sum", "type": "double"}]});
    made(&server, "", "/platform-api/data-extraction-rules", rule).await;
    let event = |text: &str, name: &str| json!({"_msg": text, "service.name": "cart", "event_name": name});
    let events = [
        event("order a1 of 12.5", "order.placed"),
        event("order a2 of 7.5", "order.placed"),
        event("gone", "order.lost"),
    ];
    logs(&server, &events).await;
    let load = async |query: Value| {
        let answer = call(&server, "", "POST", "/olap-api/v1/load", &json!({"query": query})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["data"].take()
    };
    let sums = json!({"measures": ["BusinessEvents.valueSum", "BusinessEvents.valueAvg"],
        "dimensions": ["BusinessEvents.eventName"], "order": {"BusinessEvents.eventName": "asc"}});
    let rows = load(sums).await;
    assert_eq!(
        (&rows[0]["BusinessEvents.valueSum"], &rows[0]["BusinessEvents.eventName"]),
        (&Value::Null, &json!("order.lost"))
    );
    let placed = ["BusinessEvents.valueSum", "BusinessEvents.valueAvg"].map(|name| rows[1][name].as_f64());
    assert_eq!(placed, [Some(20.0), Some(10.0)], "{rows}");
    let one = json!({"dimensions": ["BusinessEvents.correlationValue", "BusinessEvents.value"],
        "filters": [{"member": "BusinessEvents.value", "operator": "gt", "values": ["10"]}]});
    let rows = load(one).await;
    assert_eq!(rows[0]["BusinessEvents.correlationValue"], json!("a1"), "{rows}");
    assert_eq!(rows[0]["BusinessEvents.value"].as_f64(), Some(12.5), "{rows}");
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_become_transactions() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let condition = json!({"field": "http.route", "op": "glob", "value": "/cart/{id}"});
    let rule = json!({"name": "cart", "condition": condition, "nameTemplate": "{http.request.method} cart {id}"});
    let rule = made(&server, "", "/bt-detection-rules", rule).await;
    let value = json!({"name": "value", "signal": "spans", "source": "http.route", "method": "regex",
        "expression": "/cart/(?P<value>[0-9]+)", "targets": [{"field": "extracted_value", "from": "value", "type": "double"}]});
    made(&server, "", "/platform-api/data-extraction-rules", value).await;
    let now_ns = i128::from(SystemClock.now_ms()) * 1_000_000;
    let span = |id: u8, route: &str, parent: &str| {
        json!({"traceId": format!("{id:032x}"), "spanId": format!("{id:016x}"), "parentSpanId": parent, "name": "GET",
            "kind": 3, "startTimeUnixNano": now_ns.to_string(), "endTimeUnixNano": (now_ns + 1000).to_string(),
            "attributes": [{"key": "http.route", "value": {"stringValue": route}},
                {"key": "http.request.method", "value": {"stringValue": "GET"}}]})
    };
    let spans = [span(1, "/cart/7", ""), span(2, "/health", ""), span(3, "/cart/8", "00000000000000ff")];
    let body = json!({"resourceSpans": [{"resource": {"attributes": [
        {"key": "service.name", "value": {"stringValue": "cart"}}]}, "scopeSpans": [{"spans": spans}]}]});
    let sent = call(&server, "", "POST", "/v1/traces", &body).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    let tags = server.get("/traces/tags/bt.name/values").await.json();
    assert!(tags.to_string().contains("GET cart 7") && !tags.to_string().contains("cart 8"), "{tags}");
    let rules = server.get("/traces/tags/bt.rule/values").await.json();
    assert!(rules.to_string().contains(rule["id"].as_str().expect("an id")), "{rules}");
    let query = json!({"measures": ["BusinessTransactions.count", "BusinessTransactions.valueSum"]});
    let sums = call(&server, "", "POST", "/olap-api/v1/load", &json!({"query": query})).await.json();
    let row = &sums["data"][0];
    assert_eq!(row["BusinessTransactions.count"], "1", "{sums}");
    assert_eq!(row["BusinessTransactions.valueSum"].as_f64(), Some(7.0), "what a rule took from its span: {sums}");
    // A segment narrows what is there.
    let segment = json!({"key": "carts", "name": "Carts", "visibility": "shared", "variables": [{"name": "route"}],
        "conditions": {"spans": {"field": "http.route", "op": "startsWith", "value": "$route"}}});
    made(&server, "", "/platform-api/segments", segment).await;
    let count = async |more: &str| {
        let answer = server.get(&format!("/traces?limit=100{more}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["data"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(count("").await, 3);
    assert_eq!(count("&segment=carts&segment.route=/cart").await, 2);
    assert_eq!(count("&segment=carts&segment.route=/nothing").await, 0);
    for wrong in ["&segment=no", "&segment=carts", "&segment=carts&segment.route=/&segment.x=1", "&segment.route=1"] {
        assert_eq!(server.get(&format!("/traces?limit=1{wrong}")).await.status, 400, "{wrong}");
    }
    // APIs of other tools search and list in segments, too.
    for (path, list) in [
        ("/jaeger/api/traces?service=cart", "/data"),
        (
            "/api/v3/trace-summaries?query.service_name=cart&query.start_time_min=now-1h&query.start_time_max=now",
            "/summaries",
        ),
        ("/zipkin/api/v2/traces?serviceName=cart", ""),
        ("/tempo/api/search?limit=20", "/traces"),
    ] {
        for (more, expected) in
            [("", 3), ("&segment=carts&segment.route=/cart", 2), ("&segment=carts&segment.route=/nothing", 0)]
        {
            let answer = server.get(&format!("{path}{more}")).await;
            let found = answer.json().pointer(list).and_then(Value::as_array).map(Vec::len);
            assert_eq!((answer.status, found), (200, Some(expected)), "{path}{more}: {}", answer.text());
        }
        assert_eq!(server.get(&format!("{path}&segment=no")).await.status, 400, "{path}");
    }
    for (path, list) in [
        ("/jaeger/api/services?x=1", "/data"),
        ("/jaeger/api/services/cart/operations?x=1", "/data"),
        ("/api/v3/operations?service=cart", "/operations"),
        ("/zipkin/api/v2/services?x=1", ""),
    ] {
        for (route, expected) in [("/cart", 1), ("/nothing", 0)] {
            let answer = server.get(&format!("{path}&segment=carts&segment.route={route}")).await;
            let found = answer.json().pointer(list).and_then(Value::as_array).map(Vec::len);
            assert_eq!((answer.status, found), (200, Some(expected)), "{path} {route}: {}", answer.text());
        }
    }
    let named = format!("/jaeger/api/traces/{:032x}?x=1", 1);
    let [own, summary] = ["", "/summary"].map(|of| format!("/traces/{:032x}{of}?explain=false", 1));
    for path in [
        "/metrics-api/api/v1/metadata?x=1",
        "/olap-api/v1/meta?x=1",
        "/jaeger/api/metrics/calls?service=cart",
        "/jaeger/api/traces?traceID=1",
        &named,
        &own,
        &summary,
    ] {
        let answer = server.get(&format!("{path}&segment=carts")).await;
        assert_eq!(answer.status, 400, "{path} would ignore it: {}", answer.text());
    }
    let metrics = server.get("/metrics-api/api/v1/query?query=up&segment=no").await;
    assert_eq!((metrics.status, metrics.json()["errorType"].clone()), (400, json!("bad_data")));
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_of_logs() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let row = |env: &str, level: &str, n: u8| json!({"_msg": format!("m{n}"), "env": env, "level": level, "n": n.to_string()});
    logs(&server, &[row("prod", "error", 1), row("prod", "info", 2), row("test", "error", 3), json!({"_msg": "m4"})])
        .await;
    let segment = |key: &str, condition: Value, strict: bool| json!({"key": key, "name": key, "visibility": "shared", "strict": strict, "conditions": {"logs": condition}});
    let leaf = |field: &str, op: &str, value: Value| json!({"field": field, "op": op, "value": value});
    let cases = [
        ("prod", leaf("env", "eq", json!("prod")), "m1 m2"),
        ("not-prod", leaf("env", "ne", json!("prod")), "m3 m4"),
        ("some", leaf("level", "in", json!(["info", "error"])), "m1 m2 m3"),
        ("range", leaf("n", "between", json!([2, 3])), "m2 m3"),
        ("pattern", leaf("env", "regex", json!("^p|x*$")), "m1 m2 m3"),
        ("absent", leaf("env", "exists", json!(false)), "m4"),
        ("glob", leaf("level", "glob", json!("err*")), "m1 m3"),
        ("folded", json!({"field": "env", "op": "startsWith", "value": "PR", "caseSensitive": false}), "m1 m2"),
        ("either", json!({"any": [leaf("n", "gt", json!(2)), leaf("level", "eq", json!("info"))]}), "m2 m3"),
    ];
    for (key, condition, expected) in cases {
        made(&server, "", "/platform-api/segments", segment(key, condition, false)).await;
        let rows = found(&server, "*", &[("segment", key)]).await;
        let mut names: Vec<&str> = rows.iter().filter_map(|r| r["_msg"].as_str()).collect();
        names.sort_unstable();
        assert_eq!(names.join(" "), expected, "{key}");
    }
    assert_eq!(found(&server, "*", &[("segment", "prod"), ("segment", "glob")]).await.len(), 1, "segments are and-ed");
    made(&server, "", "/platform-api/segments", segment("strict", Value::Null, true)).await;
    assert_eq!(found(&server, "*", &[("segment", "strict")]).await.len(), 0);
}

/// What a caller may not see is not there, and what it may not write is refused.
#[tokio::test(flavor = "multi_thread")]
async fn rights_by_row() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = signed_in(&server, "admin").await;
    user(&server, &admin, "ann", "editor", json!(["cart"])).await;
    let ann = signed_in(&server, "ann").await;
    let key = |service: &str| json!({"name": service, "service": service, "transactionName": "t"});
    made(&server, &admin, "/transactions", key("pay")).await;
    made(&server, &ann, "/transactions", key("cart")).await;
    let refused = call(&server, &ann, "POST", "/transactions", &key("other")).await;
    assert_eq!((refused.status, refused.json()["required"].clone()), (403, json!("{edit, transactions, other}")));
    let list = call(&server, &ann, "GET", "/transactions?count=true", &Value::Null).await.json();
    assert_eq!((&list["total"], &list["items"][0]["service"]), (&json!(1), &json!("cart")));
    let hidden = call(&server, &admin, "GET", "/transactions?service=pay", &Value::Null).await.json();
    let path = format!("/transactions/{}", hidden["items"][0]["id"].as_str().expect("an id"));
    assert_eq!(call(&server, &ann, "GET", &path, &Value::Null).await.status, 404);
    assert_eq!(call(&server, &ann, "DELETE", &path, &Value::Null).await.status, 404);
    // A rule for all services needs the right for all of them.
    let leaf = json!({"field": "http.route", "op": "exists"});
    let wide = call(&server, &ann, "POST", "/bt-detection-rules", &json!({"name": "r", "condition": leaf})).await;
    assert_eq!((wide.status, wide.json()["required"].clone()), (403, json!("{edit, transactions, *}")));
    // Types everybody reads and few write.
    let types = call(&server, &ann, "GET", "/platform-api/resource-types?count=true", &Value::Null).await.json();
    assert_eq!(types["total"], 13);
    let no = call(&server, &ann, "POST", "/platform-api/resource-types", &json!({"name": "x", "key": "x"})).await;
    assert_eq!(no.status, 403);
    // A private segment is its owner's.
    let own = json!({"key": "mine", "name": "mine", "conditions": {"logs": leaf}});
    let own = made(&server, &ann, "/platform-api/segments", own).await;
    let path = format!("/platform-api/segments/{}", own["id"].as_str().expect("an id"));
    assert_eq!(call(&server, &admin, "GET", &path, &Value::Null).await.status, 404);
    let shared = call(&server, &ann, "PATCH", &path, &json!({"visibility": "shared"})).await;
    assert_eq!(shared.status, 403, "sharing needs the right for all services");
    // A relationship shows when both ends do.
    let resource = |service: &str| {
        json!({"typeId": "00000000-0000-7000-8000-000000000101", "service": service,
        "attributes": {"service.name": service}})
    };
    let cart = made(&server, &ann, "/platform-api/resources", resource("cart")).await;
    let pay = made(&server, &admin, "/platform-api/resources", resource("pay")).await;
    let edge = json!({"typeId": "00000000-0000-7000-8000-000000000202", "sourceId": cart["id"], "targetId": pay["id"]});
    let unseen = call(&server, &ann, "POST", "/platform-api/resource-relationships", &edge).await.json();
    assert_eq!(unseen["errors"][0]["code"], "UNKNOWN_REFERENCE", "{unseen}");
    made(&server, &admin, "/platform-api/resource-relationships", edge).await;
    let list = call(&server, &ann, "GET", "/platform-api/resource-relationships", &Value::Null).await.json();
    assert_eq!(list["items"], json!([]));
    // Nor do analytics name the other end.
    let query = json!({"query": {"dimensions": ["ResourceRelationships.targetName"],
        "measures": ["ResourceRelationships.count"]}});
    let edges = async |who: &str| {
        let answer = call(&server, who, "POST", "/olap-api/v1/load", &query).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["data"].as_array().expect("rows").len()
    };
    assert_eq!((edges(&admin).await, edges(&ann).await), (1, 0));
    // Nor is it counted.
    let degree = async |who: &str| {
        let statement = "select%20relationships%20from%20quiver.resources%20where%20service_name%3D%27cart%27";
        let answer = call(&server, who, "GET", &format!("/sql-api/v1/query?query={statement}"), &Value::Null).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["rows"][0][0].clone()
    };
    assert_eq!((degree(&admin).await, degree(&ann).await), (json!(1), json!(0)));
    let path = format!("/platform-api/resources/{}/neighbours", cart["id"].as_str().expect("an id"));
    let near = call(&server, &ann, "GET", &path, &Value::Null).await.json();
    assert_eq!(near["nodes"].as_array().map(Vec::len), Some(1), "{near}");
    let audit =
        call(&server, &admin, "GET", "/platform-api/rbac/audit?family=transactions&outcome=refused", &Value::Null)
            .await;
    assert!(audit.json()["items"].as_array().is_some_and(|rows| !rows.is_empty()), "{}", audit.text());
}
