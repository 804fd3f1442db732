//! Key transactions and Apdex, which are joined to stored data at query time.

use super::*;

async fn summary(server: &Server, who: &str, key: &Value) -> Value {
    let path = format!("/transactions/{}/summary", id(key));
    asked(server, who, "GET", &path, &Value::Null).await
}

/// Five payments, of which one failed, and a request of another kind.
fn payments() -> Vec<Sent> {
    let mut spans: Vec<Sent> = [100, 300, 700, 3000]
        .into_iter()
        .zip(1..)
        .map(|(ms, n)| Sent::new("cart", n, ms).with("http.route", "/pay"))
        .collect();
    spans.push(Sent { error: true, ..Sent::new("cart", 5, 50).with("http.route", "/pay") });
    spans.push(Sent::new("cart", 6, 10).with("http.route", "/cart"));
    spans
}

#[tokio::test(flavor = "multi_thread")]
async fn key_transactions_judge_history() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let rule = json!({"name": "all", "nameTemplate": "{http.route}", "condition": {"field": "http.route", "op": "exists"},
        "maxNames": 2});
    made(&server, "", "/bt-detection-rules", rule).await;
    send(&server, &payments()).await;
    let found = asked(&server, "", "GET", "/transactions/candidates?service=cart", &Value::Null).await;
    let first = &found["items"][0];
    assert_eq!(
        (&first["service"], &first["transactionName"], &first["count"], &first["errorRate"]),
        (&json!("cart"), &json!("/pay"), &json!(5), &json!(0.2)),
        "{found}"
    );
    assert_eq!(found["items"].as_array().map(Vec::len), Some(2));
    let by_name =
        asked(&server, "", "GET", "/transactions/candidates?sort=transactionName&limit=1", &Value::Null).await;
    assert_eq!(by_name["items"][0]["transactionName"], json!("/cart"));
    assert_eq!(call(&server, "", "GET", "/transactions/candidates?sort=x", &Value::Null).await.status, 400);
    let items = json!({"items": [{"service": "cart", "transactionName": "/pay"}]});
    let key = made(&server, "", "/transactions/from-candidates", items).await["items"][0].clone();
    let left = asked(&server, "", "GET", "/transactions/candidates", &Value::Null).await;
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1), "{left}");

    // 500 ms are built in: two satisfied, one tolerating, one frustrated, one in error.
    let figures = summary(&server, "", &key).await;
    assert_eq!((&figures["count"], &figures["apdex"], &figures["errorRate"]), (&json!(5), &json!(0.5), &json!(0.2)));
    assert_eq!((&figures["p50Ms"], &figures["slo"]["latencyMet"]), (&json!(300.0), &Value::Null), "{figures}");
    let apdex = async |measure: &str| {
        let query = json!({"measures": [measure], "timeDimensions": [{"dimension": format!("{}.startTime",
            measure.split('.').next().unwrap_or_default()), "dateRange": "from 2 hours ago to now"}]});
        load(&server, "", query).await[0][measure].clone()
    };
    let close = |value: &Value, expected: f64| {
        value.as_f64().is_some_and(|v| (v - expected).abs() < 1e-9)
            || value.as_str().and_then(|t| t.parse::<f64>().ok()).is_some_and(|v| (v - expected).abs() < 1e-9)
    };
    let of_pay = json!({"measures": ["BusinessTransactions.apdex", "BusinessTransactions.count"],
        "dimensions": ["BusinessTransactions.btName", "BusinessTransactions.isKey", "BusinessTransactions.tier",
            "BusinessTransactions.owner", "BusinessTransactions.apdexT"],
        "filters": [{"member": "BusinessTransactions.btName", "operator": "equals", "values": ["/pay"]}]});
    let before = load(&server, "", of_pay.clone()).await;
    assert!(close(&before[0]["BusinessTransactions.apdex"], 0.5), "{before:?}");
    // Each threshold is more specific than the one before, and scores what is stored anew.
    let thresholds = "/platform-api/apdex-thresholds";
    let effective = async |operation: &str| {
        asked(&server, "", "GET", &format!("{thresholds}/effective?service=cart&operation={operation}"), &Value::Null)
            .await
    };
    made(&server, "", thresholds, json!({"service": "*", "thresholdMs": 50})).await;
    // 50 ms: none satisfied, one tolerating (100 ≤ 200).
    assert!(close(&summary(&server, "", &key).await["apdex"], 0.1));
    made(&server, "", thresholds, json!({"service": "cart", "thresholdMs": 100})).await;
    // 100 ms: one satisfied, one tolerating (300 ≤ 400).
    assert!(close(&summary(&server, "", &key).await["apdex"], 0.3));
    made(&server, "", thresholds, json!({"service": "cart", "operation": "GET", "thresholdMs": 700})).await;
    // 700 ms: three satisfied, none tolerating (3000 > 2800).
    assert!(close(&summary(&server, "", &key).await["apdex"], 0.6));
    assert_eq!(effective("GET").await["source"], json!("operation"));
    let patch = json!({"apdexThresholdMs": 1000, "owner": "team-pay", "tier": "critical", "latencySloMs": 1000,
        "latencyPercentile": 50, "errorRateSloPct": 10});
    let path = format!("/transactions/{}", id(&key));
    assert_eq!(call(&server, "", "PATCH", &path, &patch).await.status, 200);
    // 1000 ms: three satisfied, one tolerating (3000 ≤ 4000).
    let figures = summary(&server, "", &key).await;
    assert!(close(&figures["apdex"], 0.7), "{figures}");
    assert_eq!(
        (&figures["slo"]["latencyMet"], &figures["slo"]["errorRateMet"]),
        (&json!(true), &json!(false)),
        "{figures}"
    );
    let after = load(&server, "", of_pay).await;
    let row = &after[0];
    assert!(close(&row["BusinessTransactions.apdex"], 0.7), "{after:?}");
    assert_eq!(
        (&row["BusinessTransactions.owner"], &row["BusinessTransactions.tier"]),
        (&json!("team-pay"), &json!("critical")),
        "{after:?}"
    );
    assert!(row["BusinessTransactions.isKey"] == json!(true) || row["BusinessTransactions.isKey"] == json!("true"));
    // Entry spans of the service are scored by the same thresholds: /cart by its operation, /pay as a key transaction.
    let of_service = apdex("ServiceRequests.apdex").await;
    assert!(close(&of_service, (0.7 * 5.0 + 1.0) / 6.0), "{of_service}");
    let health = load(
        &server,
        "",
        json!({"dimensions": ["KeyBusinessTransactions.name", "KeyBusinessTransactions.health"],
        "measures": ["KeyBusinessTransactions.executions"]}),
    )
    .await;
    assert_eq!(health[0]["KeyBusinessTransactions.health"], json!("warning"), "{health:?}");
    // Names beyond the rule's bound fold, those of key transactions do not.
    let key = json!({"name": "late", "service": "cart", "transactionName": "/late/**"});
    made(&server, "", "/transactions", key).await;
    send(
        &server,
        &[Sent::new("cart", 7, 10).with("http.route", "/more"), Sent::new("cart", 8, 10).with("http.route", "/late/1")],
    )
    .await;
    let names = rows(&server, "", "SELECT DISTINCT \"attributes.bt.name\" AS n FROM quiver.spans ORDER BY n").await;
    let names: Vec<&str> = names.iter().filter_map(|r| r["n"].as_str()).collect();
    assert_eq!(names, ["(other)", "/cart", "/late/1", "/pay"]);
    // Errors need not frustrate.
    let own = asked(&server, "", "GET", &format!("{thresholds}?operation=GET"), &Value::Null).await;
    let path = format!("{thresholds}/{}", id(&own["items"][0]));
    assert_eq!(call(&server, "", "PATCH", &path, &json!({"errorsFrustrate": false})).await.status, 200);
    assert!(close(&summary(&server, "", &health_key(&server).await).await["apdex"], 0.9));
}

/// The objectives of a key transaction are two: how often it may fail, and how many executions may be slow.
#[tokio::test(flavor = "multi_thread")]
async fn objectives_have_budgets() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let rule = json!({"name": "all", "nameTemplate": "{http.route}", "condition": {"field": "http.route", "op": "exists"},
        "maxNames": 2});
    made(&server, "", "/bt-detection-rules", rule).await;
    let key = json!({"name": "pay", "service": "cart", "transactionName": "/pay", "latencySloMs": 1000,
        "latencyPercentile": 50, "errorRateSloPct": 10});
    made(&server, "", "/transactions", key).await;
    let plain = json!({"name": "no objective", "service": "cart", "transactionName": "/cart"});
    made(&server, "", "/transactions", plain).await;
    // A dry run answers what it would make.
    let items = json!({"items": [{"service": "cart", "transactionName": "/new"}]});
    let tried = made(&server, "", "/transactions/from-candidates?dryRun=true", items).await["items"][0].clone();
    assert_eq!((&tried["name"], &tried["tier"]), (&json!("cart: /new"), &json!("normal")), "{tried}");
    send(&server, &payments()).await;
    let measures = ["goodEvents", "totalEvents", "attainment", "budgetLeft", "burnRate"];
    let query = json!({"dimensions": ["SloStatus.sloName", "SloStatus.kind", "SloStatus.target"],
        "measures": measures.map(|name| format!("SloStatus.{name}")), "order": [["SloStatus.kind", "asc"]]});
    let rows = load(&server, "", query).await;
    let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.parse().ok());
    // One of five failed where one of ten may; one of five was slow where every other may be.
    for (at, kind, target, expected) in
        [(0, "error rate", 0.9, [4.0, 5.0, 0.8, -1.0, 2.0]), (1, "latency", 0.5, [4.0, 5.0, 0.8, 0.6, 0.4])]
    {
        let row = &rows[at];
        assert_eq!((&row["SloStatus.sloName"], &row["SloStatus.kind"]), (&json!("pay"), &json!(kind)), "{rows:?}");
        let all = measures.iter().zip(expected).chain([(&"target", target)]);
        for (name, expected) in all {
            let found = number(&row[format!("SloStatus.{name}")]);
            assert!(found.is_some_and(|found| (found - expected).abs() < 1e-9), "{kind} {name}: {rows:?}");
        }
    }
    let breached = json!({"dimensions": ["SloStatus.kind", "SloStatus.status"], "measures": ["SloStatus.count"],
        "segments": ["SloStatus.breached"]});
    let breached = load(&server, "", breached).await;
    assert_eq!(
        (&breached[0]["SloStatus.kind"], &breached[0]["SloStatus.status"], breached.get(1)),
        (&json!("error rate"), &json!("breached"), None)
    );
}

async fn health_key(server: &Server) -> Value {
    asked(server, "", "GET", "/transactions?transactionName=%2Fpay", &Value::Null).await["items"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_are_of_what_the_caller_sees() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let (admin, ann) = restricted(&server, "cart").await;
    let key = |service: &str, owner: &str| json!({"name": service, "service": service, "transactionName": "t", "owner": owner});
    let own = made(&server, &ann, "/transactions", key("cart", "1")).await;
    let other = made(&server, &admin, "/transactions", key("pay", "somebody")).await;
    assert_eq!(summary(&server, &ann, &own).await["count"], json!(0));
    let path = format!("/transactions/{}/summary", id(&other));
    assert_eq!(call(&server, &ann, "GET", &path, &Value::Null).await.status, 404);
    let seen = rows(&server, &ann, "SELECT service_name AS s FROM quiver.key_transactions").await;
    assert_eq!(seen, [json!({"s": "cart"})]);
    // An error of the cast would disclose a hidden value, so hidden rows must be removed before the condition is evaluated.
    let model = "SELECT service AS s FROM olap.\"KeyBusinessTransactions\" WHERE CAST(owner AS INT) > 0";
    assert_eq!(rows(&server, &ann, model).await, seen);
    // A caller who sees transactions and no spans gets no figures.
    let role = json!({"name": "transactions only", "permissions": ["{edit, transactions, cart}"]});
    let role = made(&server, &admin, "/platform-api/rbac/roles", role).await;
    let account = made(&server, &admin, "/platform-api/rbac/service-accounts", json!({"clientId": "bot"})).await;
    let binding = json!({"subject": {"type": "serviceAccount", "id": account["id"]}, "roleId": role["id"]});
    made(&server, &admin, "/platform-api/rbac/bindings", binding).await;
    let text = format!(
        "grant_type=client_credentials&client_id=bot&client_secret={}",
        account["secret"].as_str().expect("one")
    );
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    let token = server.post("/realms/platform/protocol/openid-connect/token", &headers, text.into_bytes()).await;
    let bot = format!("Bearer {}", token.json()["access_token"].as_str().expect("a token"));
    assert_eq!(summary(&server, &bot, &own).await["count"], Value::Null);
    assert_eq!(call(&server, &bot, "GET", "/transactions/candidates", &Value::Null).await.status, 403);
    let test = json!({"rule": {"name": "r", "service": "cart", "condition": {"field": "a", "op": "exists"}}});
    assert_eq!(call(&server, &bot, "POST", "/bt-detection-rules/test", &test).await.status, 403);
}
