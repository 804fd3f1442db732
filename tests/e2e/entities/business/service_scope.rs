//! Configuration of a caller with rights for one service affects that service only, and shows him its effects there;
//! configuration of other services does not exist for him. Tested for every family that affects telemetry, except
//! resources, segments and rules, whose tests cover it.

use super::*;

/// What spans are called, by service.
async fn named(server: &Server, who: &str) -> Vec<(String, Option<String>)> {
    let statement = "SELECT service_name AS s, \"attributes.bt.name\" AS n FROM quiver.spans";
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let rows = rows(server, who, statement).await;
    let mut named: Vec<_> = rows.iter().map(|row| (text(&row["s"]).expect("a service"), text(&row["n"]))).collect();
    named.sort();
    named
}

fn of(list: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
    list.iter().map(|(service, name)| ((*service).to_owned(), name.map(str::to_owned))).collect()
}

async fn logs(server: &Server, who: &str, records: &[Value]) {
    let lines: String = records.iter().map(|record| format!("{record}\n")).collect();
    let headers = [("content-type", "application/stream+json"), ("authorization", who)];
    let sent = server.post("/insert/jsonline?_stream_fields=service.name", &headers, lines.into_bytes()).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
}

/// Makes an entity for `cart` by whom that service is, and one for `pay` by the administrator: each is of no concern to the
/// other service.
async fn both(server: &Server, (admin, ann): (&str, &str), path: &str, body: impl Fn(&str) -> Value) -> [Value; 2] {
    let own = made(server, ann, path, body("cart")).await;
    let refused = call(server, ann, "POST", path, &body("pay")).await;
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("FORBIDDEN")), "{path}: {}", refused.text());
    let other = made(server, admin, path, body("pay")).await;
    let hidden = format!("{path}/{}", id(&other));
    for method in ["GET", "DELETE"] {
        assert_eq!(call(server, ann, method, &hidden, &Value::Null).await.status, 404, "{method} {path}");
    }
    let list = asked(server, ann, "GET", &format!("{path}?count=true"), &Value::Null).await;
    assert_eq!((&list["total"], &list["items"][0]["id"]), (&json!(1), &own["id"]), "{path}: {list}");
    [own, other]
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_one_service() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let (admin, ann) = restricted(&server, "cart").await;
    let who = (admin.as_str(), ann.as_str());
    let route = |service, number| Sent::new(service, number, 100).with("http.route", "/a");
    send_as(&server, &admin, &[route("cart", 1)]).await;
    both(&server, who, "/bt-detection-rules", |service| {
        json!({"name": format!("of {service}"), "service": service, "nameTemplate": format!("{service} {{http.route}}"),
            "condition": {"field": "http.route", "op": "exists"}})
    })
    .await;
    send_as(&server, &admin, &[route("cart", 2), route("pay", 3), route("web", 4)]).await;
    let of_cart = [("cart", None), ("cart", Some("cart /a"))];
    assert_eq!(named(&server, &ann).await, of(&of_cart));
    let everywhere = [&of_cart[..], &[("pay", Some("pay /a")), ("web", None)]].concat();
    assert_eq!(named(&server, &admin).await, of(&everywhere));
    let query = json!({"dimensions": ["BusinessTransactions.btName"], "measures": ["BusinessTransactions.count"],
        "order": {"BusinessTransactions.btName": "asc"}});
    let names = async |who: &str| {
        let rows = load(&server, who, query.clone()).await;
        rows.iter().map(|row| row["BusinessTransactions.btName"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&ann).await, [json!("cart /a")]);
    assert_eq!(names(&admin).await, [json!("cart /a"), json!("pay /a")]);

    // Key transactions and thresholds judge what is stored already.
    let [own, other] = both(&server, who, "/transactions", |service| {
        json!({"name": format!("key of {service}"), "service": service, "transactionName": format!("{service} /a")})
    })
    .await;
    let apdex = async |who: &str, key: &Value| {
        let path = format!("/transactions/{}/summary", id(key));
        let summary = asked(&server, who, "GET", &path, &Value::Null).await;
        assert_eq!(summary["count"], json!(1), "{summary}");
        summary["apdex"].as_f64()
    };
    assert_eq!((apdex(&ann, &own).await, apdex(&admin, &other).await), (Some(1.0), Some(1.0)));
    let thresholds = "/platform-api/apdex-thresholds";
    let wide = call(&server, &ann, "POST", thresholds, &json!({"service": "*", "thresholdMs": 1})).await;
    assert_eq!((wide.status, &wide.json()["code"]), (403, &json!("FORBIDDEN")), "{}", wide.text());
    // 100 ms are tolerated of cart, frustrating of pay.
    both(
        &server,
        who,
        thresholds,
        |service| json!({"service": service, "thresholdMs": if service == "cart" { 50 } else { 10 }}),
    )
    .await;
    assert_eq!((apdex(&ann, &own).await, apdex(&admin, &other).await), (Some(0.5), Some(0.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_one_application() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let (admin, ann) = restricted(&server, "cart").await;
    let who = (admin.as_str(), ann.as_str());
    let page = |application, number| Sent {
        name: "documentLoad",
        kind: 1,
        resource: vec![("telemetry.sdk.language", "webjs")],
        ..Sent::new(application, number, 1200).with("http.url", "https://shop.example/x")
    };
    both(&server, who, "/rum-bt-detection-rules", |application| {
        json!({"name": format!("of {application}"), "application": application, "kind": "pageLoad",
            "nameTemplate": format!("{application} {{url.path}}"), "condition": {"field": "url.path", "op": "exists"}})
    })
    .await;
    send_as(&server, &admin, &[page("cart", 1), page("pay", 2), page("web", 3)]).await;
    assert_eq!(named(&server, &ann).await, of(&[("cart", Some("cart /x"))]));
    let everywhere = [("cart", Some("cart /x")), ("pay", Some("pay /x")), ("web", None)];
    assert_eq!(named(&server, &admin).await, of(&everywhere));
    let [own, other] = both(&server, who, "/rum-key-business-transactions", |application| {
        json!({"name": format!("key of {application}"), "application": application,
            "transactionName": format!("{application} /x")})
    })
    .await;
    for (who, key) in [(&ann, &own), (&admin, &other)] {
        let path = format!("/rum-key-business-transactions/{}/summary", id(key));
        let summary = asked(&server, who, "GET", &path, &Value::Null).await;
        assert_eq!((&summary["count"], &summary["apdex"]), (&json!(1), &json!(1.0)), "{summary}");
    }
}

/// Of history, too: what is sent comes before the processes.
#[tokio::test(flavor = "multi_thread")]
async fn processes_of_one_service() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let (admin, ann) = restricted(&server, "cart").await;
    let ordered = |service, number| Sent::new(service, number, 100).with("http.route", "/a").with("order.id", "o1");
    send_as(&server, &admin, &[ordered("cart", 1), ordered("pay", 2)]).await;
    let time = (now_ns() - 30_000_000_000).to_string();
    let shipped = |service| json!({"_time": time, "_msg": "shipped", "order.id": "o1", "service.name": service});
    logs(&server, &admin, &[shipped("cart"), shipped("pay")]).await;
    let [own, other] = both(&server, (admin.as_str(), ann.as_str()), "/business-processes", |service| {
        json!({"name": format!("of {service}"), "correlationField": "order.id", "steps": [
            {"name": "ordered", "kind": "span", "service": service, "condition": {"field": "http.route", "op": "exists"}},
            {"name": "shipped", "kind": "log", "service": service, "outcome": "success",
                "condition": {"field": "_msg", "op": "eq", "value": "shipped"}}]})
    })
    .await;
    for (who, process) in [(&ann, &own), (&admin, &other)] {
        let path = format!("/business-processes/{}/stats", id(process));
        let stats = asked(&server, who, "GET", &path, &Value::Null).await;
        assert_eq!((&stats["instances"], &stats["completed"]), (&json!(1), &json!(1)), "{stats}");
    }
    let statement = "SELECT process_name AS p, count(*) AS n FROM quiver.process_instances GROUP BY 1 ORDER BY 1";
    let of = |service: &str| json!({"p": format!("of {service}"), "n": 1});
    assert_eq!(rows(&server, &ann, statement).await, [of("cart")]);
    assert_eq!(rows(&server, &admin, statement).await, [of("cart"), of("pay")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_one_service() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let (admin, ann) = restricted(&server, "cart").await;
    both(&server, (admin.as_str(), ann.as_str()), "/platform-api/data-extraction-rules", |service| {
        json!({"name": format!("of {service}"), "signal": "logs", "service": service, "method": "regex",
            "expression": "took (?P<ms>[0-9]+)",
            "targets": [{"field": format!("{service}_ms"), "from": "ms", "type": "int"}]})
    })
    .await;
    let took = ["cart", "pay", "web"].map(|service| json!({"_msg": "took 12 ms", "service.name": service}));
    logs(&server, &admin, &took).await;
    let found = async |who: &str, query: &str| {
        let path = format!("/logs-api/select/logsql/query?query={query}");
        let answer = server.get_as(&path, &[("authorization", who)]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let service = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["service.name"].clone();
        answer.text().lines().map(service).collect::<Vec<_>>()
    };
    for (who, of_cart, of_pay) in [(&ann, vec!["cart"], vec![]), (&admin, vec!["cart"], vec!["pay"])] {
        assert_eq!(found(who, "cart_ms:12").await, of_cart);
        assert_eq!(found(who, "pay_ms:12").await, of_pay);
    }
}
