//! Data-extraction rules for signals other than logs, and tests of rules on stored data.

use super::*;
use crate::identity;

const PATH: &str = "/platform-api/data-extraction-rules";

#[tokio::test(flavor = "multi_thread")]
async fn spans_alerts_and_tests_over_history() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let old = Sent::new("cart", 1, 10).with("url.path", "/orders/16").with("http.route", "/o");
    send(&server, &[old]).await;
    let rule = json!({"name": "order", "signal": "spans", "service": "cart", "source": "url.path", "method": "regex",
        "expression": "/orders/(?P<id>[0-9]+)", "targets": [{"field": "order.id", "from": "id", "type": "int"}]});
    let test =
        json!({"rule": rule, "query": {"filter": {"field": "http.route", "op": "eq", "value": "/o"}, "limit": 5}});
    let tried = asked(&server, "", "POST", &format!("{PATH}/test"), &test).await;
    let result = &tried["results"][0];
    assert_eq!((&result["matched"], &result["fields"]), (&json!(true), &json!({"order.id": 16})), "{tried}");
    let rule = made(&server, "", PATH, rule).await;
    // Rules of transactions see what was taken out.
    let detection = json!({"name": "orders", "nameTemplate": "order {order.id}", "condition": {"field": "order.id", "op": "gt", "value": 1}});
    made(&server, "", "/bt-detection-rules", detection).await;
    send(
        &server,
        &[
            Sent::new("cart", 2, 10).with("url.path", "/orders/17"),
            Sent::new("pay", 3, 10).with("url.path", "/orders/18"),
        ],
    )
    .await;
    let text = "SELECT \"attributes.order.id\" + 1 AS n, \"attributes.bt.name\" AS t FROM quiver.spans \
        WHERE \"attributes.order.id\" IS NOT NULL";
    assert_eq!(rows(&server, "", text).await, [json!({"n": 18, "t": "order 17"})], "numbers, and not of history");
    let stats = asked(&server, "", "GET", &format!("{PATH}/{}/stats", id(&rule)), &Value::Null).await;
    assert_eq!((&stats["seen"], &stats["matched"]), (&json!(1), &json!(1)));
    // Alerts.
    let kind = json!({"name": "kind", "signal": "alerts", "source": "labels.instance", "method": "regex",
        "expression": "^(?P<kind>[a-z]+)-", "targets": [{"field": "labels.kind", "from": "kind"}, {"field": "note", "from": "kind", "transform": "upper"}]});
    made(&server, "", PATH, kind).await;
    let alert = json!([{"labels": {"alertname": "Full", "instance": "db-1:9100"}}]);
    assert_eq!(call(&server, "", "POST", "/api/v2/alerts", &alert).await.status, 200);
    let alerts = asked(&server, "", "GET", "/api/v2/alerts", &Value::Null).await;
    assert_eq!(
        (&alerts[0]["labels"]["kind"], &alerts[0]["annotations"]["note"]),
        (&json!("db"), &json!("DB")),
        "{alerts}"
    );
    // Logs that are stored.
    let record = json!({"_msg": "took 12 ms", "service.name": "cart"}).to_string();
    let sent =
        server.post("/insert/jsonline", &[("content-type", "application/stream+json")], record.into_bytes()).await;
    assert!(sent.status < 300);
    let took = json!({"name": "took", "signal": "logs", "method": "pattern", "expression": "took <ms> ms",
        "targets": [{"field": "took", "from": "ms", "type": "int"}]});
    let test = json!({"rule": took, "query": {"filter": "took"}});
    let tried = asked(&server, "", "POST", &format!("{PATH}/test"), &test).await;
    assert_eq!(tried["results"][0]["fields"], json!({"took": 12}), "{tried}");
    // A comment ends no more than the filter.
    let record = json!({"_msg": "took 13 ms", "service.name": "cart"}).to_string();
    let sent =
        server.post("/insert/jsonline", &[("content-type", "application/stream+json")], record.into_bytes()).await;
    assert!(sent.status < 300);
    let test = json!({"rule": took, "query": {"filter": "took # ms", "limit": 1}});
    let tried = asked(&server, "", "POST", &format!("{PATH}/test"), &test).await;
    assert_eq!(tried["results"].as_array().map(Vec::len), Some(1), "{tried}");
    let wrong = json!({"rule": took, "query": {"filter": "(("}});
    let wrong = call(&server, "", "POST", &format!("{PATH}/test"), &wrong).await;
    assert_eq!(wrong.json()["errors"][0]["field"], json!("/query/filter"), "{}", wrong.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn tests_read_what_the_caller_sees() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let (admin, ann) = restricted(&server, "cart").await;
    let text = |service: &str| json!({"_msg": format!("of {service}"), "service.name": service}).to_string();
    let body = format!("{}\n{}\n", text("cart"), text("pay")).into_bytes();
    let path = "/insert/jsonline?_stream_fields=service.name";
    let headers = [("content-type", "application/stream+json"), ("authorization", admin.as_str())];
    assert!(server.post(path, &headers, body).await.status < 300);
    let rule = json!({"name": "all", "signal": "logs", "service": "cart", "method": "constant", "expression": "x",
        "targets": [{"field": "y"}]});
    let test = json!({"rule": rule, "query": {"filter": "*"}});
    let seen = asked(&server, &ann, "POST", &format!("{PATH}/test"), &test).await;
    assert_eq!(seen["results"].as_array().map(Vec::len), Some(1), "{seen}");
    let all = asked(&server, &admin, "POST", &format!("{PATH}/test"), &test).await;
    assert_eq!(all["results"].as_array().map(Vec::len), Some(2));
    made(&server, &ann, PATH, rule.clone()).await;
    let mut wide = rule;
    wide["service"] = json!("*");
    assert_eq!(call(&server, &ann, "POST", PATH, &wide).await.status, 403);
}

/// Figures count records of all services of a rule: they are for callers who may see all of those, and not for a caller who sees the rule.
#[tokio::test(flavor = "multi_thread")]
async fn figures_are_for_who_sees_the_records() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let (admin, ann) = restricted(&server, "cart").await;
    let rule = |service: &str| {
        json!({"name": format!("took {service}"), "signal": "logs", "service": service, "method": "pattern",
            "expression": "took <ms> ms", "targets": [{"field": "took", "from": "ms", "type": "int"}]})
    };
    let (own, all) = (made(&server, &admin, PATH, rule("cart")).await, made(&server, &admin, PATH, rule("*")).await);
    for (name, logs) in [("bob", "pay"), ("eve", "*")] {
        let permissions = json!(["{view, extraction, *}", format!("{{view, logs, {logs}}}")]);
        identity::made(&server, &admin, "roles", json!({"name": name, "permissions": permissions})).await;
        user(&server, &admin, name, name, Value::Null).await;
    }
    let (bob, eve) = (identity::login(&server, "bob", PASSWORD).await, identity::login(&server, "eve", PASSWORD).await);
    let (bob, eve) = (identity::bearer(&bob), identity::bearer(&eve));
    let headers = [("authorization", admin.as_str()), ("content-type", "application/stream+json")];
    let record = json!({"_msg": "took 12 ms", "service.name": "cart"}).to_string();
    assert!(server.post("/insert/jsonline", &headers, record.into_bytes()).await.status < 300);
    let (none, some) = (Value::Null, json!(1));
    for (who, rule, expected) in [
        (&admin, &own, &some),
        (&admin, &all, &some),
        (&ann, &own, &some),
        (&bob, &own, &none),
        (&bob, &all, &none),
        (&eve, &own, &some),
        (&eve, &all, &some),
    ] {
        let stats = asked(&server, who, "GET", &format!("{PATH}/{}/stats", id(rule)), &Value::Null).await;
        assert_eq!((&stats["seen"], stats["meanUs"].is_null()), (expected, expected.is_null()), "{rule}: {stats}");
    }
}

/// Each record may take half a second, and there may be a thousand, but not both.
#[tokio::test(flavor = "multi_thread")]
async fn a_test_has_a_time_in_all() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    // No letter of it is looked for ahead, and each place of the text may be the beginning.
    let mut state = 7_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if state >> 63 == 0 { 'a' } else { 'b' }
    };
    let text: String = (0..60_000).map(|_| letter()).collect();
    let rule = json!({"name": "slow", "signal": "logs", "service": "*", "source": "_msg", "method": "regex",
        "expression": "(?P<v>[ab]*a[ab]{900}[^ab])", "targets": [{"field": "v", "from": "v"}]});
    let test = |samples: usize| json!({"rule": rule, "samples": vec![json!({"_msg": text}); samples]});
    let one = asked(&server, "", "POST", &format!("{PATH}/test"), &test(1)).await;
    assert_eq!(one["results"][0]["matched"], false, "{}", one["results"][0]["errors"]);
    let many = call(&server, "", "POST", &format!("{PATH}/test"), &test(60)).await;
    let told = many.json()["errors"][0].clone();
    assert_eq!(
        (many.status, &told["code"], &told["field"]),
        (422, &json!("LIMIT_EXCEEDED"), &json!("/samples")),
        "{told}"
    );
}
