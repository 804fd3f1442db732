//! Business processes: instances found in stored data.

use super::*;

/// Orders that go through a shop: spans of front and pay, a log record of the store.
async fn orders(server: &Server, now: i64) {
    let second = 1_000_000_000;
    // What an order is worth is told by its checkout, and more exactly by its payment.
    let span = |service: &'static str, number: u64, order: u64, at: i64, route: &str| {
        let sent = Sent::new(service, number, 10).with("http.route", route).with("order.id", order);
        let worth = match route {
            "/checkout" => Some(10 * order),
            "/pay" => Some(10 * order + 5),
            _ => None,
        };
        let sent = worth.into_iter().fold(sent, |sent, worth| sent.with("extracted_value", worth));
        sent.at(now - 600 * second + at * second)
    };
    let spans = [
        // Order 1 goes through, order 2 stops after its payment, order 3 fails, order 4 never pays.
        span("front", 1, 1, 0, "/checkout"),
        span("pay", 2, 1, 5, "/pay"),
        span("front", 3, 2, 1, "/checkout"),
        span("pay", 4, 2, 21, "/pay"),
        span("front", 5, 3, 2, "/checkout"),
        span("pay", 6, 3, 3, "/refused"),
        span("front", 7, 4, 4, "/checkout"),
    ];
    send(server, &spans).await;
    let time = (now - 580 * second).to_string();
    let shipped = json!({"_time": time, "_msg": "shipped", "service.name": "store", "order.id": "1",
        "event_name": "order.shipped", "session.id": "s1"});
    let began = |session: &str| {
        json!({"_time": time, "_msg": "", "service.name": "front", "event_name": "session.start",
            "session.id": session})
    };
    let lines = [shipped, began("s1"), began("s2")].map(|record| record.to_string()).join("\n");
    let path = "/insert/jsonline?_stream_fields=service.name";
    let sent = server.post(path, &[("content-type", "application/stream+json")], lines.into_bytes()).await;
    assert!(sent.status < 300, "{}", sent.text());
}

fn process(paid: &Value) -> Value {
    let leaf = |value: &str| json!({"field": "http.route", "op": "eq", "value": value});
    json!({"name": "orders", "correlationField": "order.id", "timeout": "2m", "slaMs": 10_000, "steps": [
        {"name": "checkout", "kind": "span", "service": "front", "condition": leaf("/checkout")},
        {"name": "paid", "kind": "transaction", "transactionId": paid["id"]},
        {"name": "refused", "kind": "span", "service": "pay", "condition": leaf("/refused"), "optional": true,
            "outcome": "failure"},
        {"name": "shipped", "kind": "event", "service": "store",
            "condition": {"field": "event_name", "op": "eq", "value": "order.shipped"}},
    ]})
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_follow_the_steps() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let rule = json!({"name": "pay", "service": "pay", "nameTemplate": "pay", "condition":
        {"field": "http.route", "op": "eq", "value": "/pay"}});
    made(&server, "", "/bt-detection-rules", rule).await;
    let paid = json!({"name": "paid", "service": "pay", "transactionName": "pay"});
    let paid = made(&server, "", "/transactions", paid).await;
    orders(&server, now_ns()).await;
    // A refusal may come right after the checkout.
    let mut body = process(&paid);
    body["steps"][1]["optional"] = json!(true);
    let tried = asked(&server, "", "POST", "/business-processes/test", &json!({"process": body})).await;
    assert_eq!(
        (&tried["stats"]["instances"], &tried["stats"]["failed"], &tried["instances"].as_array().map(Vec::len)),
        (&json!(4), &json!(1), &Some(4)),
        "{tried}"
    );
    let entity = made(&server, "", "/business-processes", body).await;
    let path = format!("/business-processes/{}", id(&entity));
    let stats = asked(&server, "", "GET", &format!("{path}/stats"), &Value::Null).await;
    let of = |key: &str| stats[key].as_u64().unwrap_or(99);
    assert_eq!(
        (of("instances"), of("completed"), of("failed"), of("abandoned"), of("running")),
        (4, 1, 1, 2, 0),
        "{stats}"
    );
    assert_eq!(stats["durationMs"]["p50"], json!(20_000.0));
    assert_eq!(stats["sla"], json!({"slaMs": 10_000.0, "breached": 1}));
    let steps: Vec<(u64, u64)> = stats["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .map(|s| (s["entered"].as_u64().unwrap_or(99), s["converted"].as_u64().unwrap_or(99)))
        .collect();
    assert_eq!(steps, [(4, 3), (2, 1), (1, 0), (1, 1)], "{stats}");
    assert_eq!(stats["steps"][1]["gapMs"]["p50"], json!(12_500.0), "{stats}");
    let failed = asked(&server, "", "GET", &format!("{path}/instances?state=failed"), &Value::Null).await;
    let row = &failed["items"][0];
    assert_eq!(
        (&row["correlationValue"], &row["lastStep"], &row["service"]),
        (&json!("3"), &json!("refused"), &json!("front")),
        "{failed}"
    );
    assert_eq!(call(&server, "", "GET", &format!("{path}/instances?state=x"), &Value::Null).await.status, 400);
    // A change acts on history: with more time the second order is still on its way.
    assert_eq!(call(&server, "", "PATCH", &path, &json!({"timeout": "1h"})).await.status, 200);
    let stats = asked(&server, "", "GET", &format!("{path}/stats"), &Value::Null).await;
    assert_eq!((&stats["running"], &stats["abandoned"]), (&json!(2), &json!(0)), "{stats}");
    // The same in statements and analytics.
    let text = "SELECT state, count(*) AS n FROM quiver.process_instances GROUP BY state ORDER BY state";
    let states = rows(&server, "", text).await;
    assert_eq!(
        states,
        [
            json!({"state": "completed", "n": 1}),
            json!({"state": "failed", "n": 1}),
            json!({"state": "running", "n": 2}),
        ]
    );
    let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.parse().ok());
    let measures = ["completionRate", "valueSum", "valueLost"].map(|name| format!("BusinessProcesses.{name}"));
    let query = json!({"measures": measures, "dimensions": ["BusinessProcesses.processName"]});
    let found = load(&server, "", query).await;
    let figures = measures.each_ref().map(|name| number(&found[0][name]));
    assert_eq!(figures, [Some(0.5), Some(15.0 + 25.0 + 30.0 + 40.0), Some(30.0)], "{found:?}");
    let query = json!({"measures": ["Funnels.entered", "Funnels.fromStart"], "dimensions": ["Funnels.stepPosition", "Funnels.stepName"],
        "order": {"Funnels.stepPosition": "asc"}});
    let funnel = load(&server, "", query).await;
    let entered: Vec<Option<f64>> = funnel.iter().map(|r| number(&r["Funnels.entered"])).collect();
    assert_eq!(entered, [Some(4.0), Some(2.0), Some(1.0), Some(1.0)], "{funnel:?}");
    let query = json!({"measures": ["BusinessProcessSteps.count"], "dimensions": ["BusinessProcessSteps.stepName"]});
    assert_eq!(load(&server, "", query).await.len(), 4);
    // The session in which the last step was seen is one that converted.
    let query = json!({"dimensions": ["Sessions.sessionId"], "segments": ["Sessions.converted"]});
    assert_eq!(load(&server, "", query).await, [json!({"Sessions.sessionId": "s1"})]);
    assert_eq!(load(&server, "", json!({"dimensions": ["Sessions.sessionId"]})).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_that_a_caller_sees() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let (admin, ann) = restricted(&server, "cart").await;
    let leaf = json!({"field": "a", "op": "exists"});
    let steps = |one: &str, two: &str| {
        json!({"name": format!("{one} {two}"), "correlationField": "order.id", "steps": [
            {"name": "one", "kind": "span", "service": one, "condition": leaf},
            {"name": "two", "kind": "log", "service": two, "condition": leaf}]})
    };
    let own = made(&server, &ann, "/business-processes", steps("cart", "cart")).await;
    let path = format!("/business-processes/{}/stats", id(&own));
    assert_eq!(asked(&server, &ann, "GET", &path, &Value::Null).await["instances"], json!(0));
    let wide = made(&server, &admin, "/business-processes", steps("cart", "pay")).await;
    for rest in ["stats", "instances"] {
        let path = format!("/business-processes/{}/{rest}", id(&wide));
        assert_eq!(call(&server, &ann, "GET", &path, &Value::Null).await.status, 404, "{rest}");
        asked(&server, &admin, "GET", &path, &Value::Null).await;
    }
    let test = json!({"process": steps("cart", "pay")});
    assert_eq!(call(&server, &ann, "POST", "/business-processes/test", &test).await.status, 403);
    asked(&server, &ann, "POST", "/business-processes/test", &json!({"process": steps("cart", "cart")})).await;
    assert_eq!(rows(&server, &ann, "SELECT count(*) AS n FROM quiver.process_instances").await[0]["n"], json!(0));
    // Nor do analytics tell of a process that has a step of another service: its name, how far its instances come, how
    // long they take.
    let by_logs = json!({"name": "by logs", "correlationField": "order.id", "steps": [
        {"name": "one", "kind": "log", "service": "cart", "condition": leaf},
        {"name": "two", "kind": "log", "service": "pay", "condition": leaf}]});
    made(&server, &admin, "/business-processes", by_logs).await;
    let now = now_ns();
    let row = |service: &str, ago_s: i64| {
        let time = (now - ago_s * 1_000_000_000).to_string();
        format!("{}\n", json!({"_time": time, "_msg": "m", "service.name": service, "order.id": "1", "a": "x"}))
    };
    let headers = [("content-type", "application/stream+json"), ("authorization", admin.as_str())];
    let lines = row("cart", 60) + &row("pay", 50);
    let sent = server.post("/insert/jsonline?_stream_fields=service.name", &headers, lines.into_bytes()).await;
    assert!(sent.status < 300, "{}", sent.text());
    for name in ["BusinessProcesses.processName", "BusinessProcessSteps.processName", "Funnels.funnelName"] {
        let query =
            json!({"dimensions": [name], "filters": [{"member": name, "operator": "equals", "values": ["by logs"]}]});
        let seen = (load(&server, &admin, query.clone()).await.len(), load(&server, &ann, query).await.len());
        assert_eq!(seen, (1, 0), "{name}");
    }
}
