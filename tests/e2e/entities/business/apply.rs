//! Detection rules on stored spans: tests, and jobs that replace membership.

use quiver_tests::held_server::Hold;

use super::*;

fn rule(name: &str, prefix: &str, template: &str) -> Value {
    let condition = json!({"field": "http.route", "op": "startsWith", "value": prefix});
    json!({"name": name, "condition": condition, "nameTemplate": template})
}

async fn members(server: &Server) -> Vec<(String, String)> {
    let text = "SELECT \"attributes.bt.name\" AS n, span_id AS s FROM quiver.spans WHERE \"attributes.bt.name\" IS NOT NULL ORDER BY s";
    let all = rows(server, "", text).await;
    all.iter()
        .map(|r| (r["s"].as_str().unwrap_or_default().to_owned(), r["n"].as_str().unwrap_or_default().to_owned()))
        .collect()
}

async fn apply(server: &Server, who: &str, path: &str, body: Value) -> String {
    let answer = call(server, who, "POST", path, &body).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let location = answer.headers.get("location").expect("a location").to_str().expect("text").to_owned();
    assert_eq!(location, format!("/platform-api/jobs/{}", id(&answer.json())));
    location
}

fn of(pairs: &[(u64, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(n, name)| (format!("{n:016x}"), (*name).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_reach_what_is_stored() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let now = now_ns();
    let day = 86_400_000_000_000;
    let spans = [
        Sent::new("cart", 1, 10).with("http.route", "/cart/1").at(now - 3 * day),
        Sent::new("cart", 2, 20).with("http.route", "/cart/2").at(now - day),
        Sent::new("cart", 3, 30).with("http.route", "/health").at(now - day),
        Sent::new("pay", 4, 40).with("http.route", "/cart/4"),
    ];
    send(&server, &spans).await;
    server.flush().await;
    send(&server, &[Sent::new("cart", 5, 50).with("http.route", "/cart/5")]).await;
    // A rule is tried on what is stored before it is saved.
    let carts = rule("carts", "/cart", "cart");
    let test = json!({"rule": carts, "start": (now - 4 * day).to_string(), "limit": 10});
    let tried = asked(&server, "", "POST", "/bt-detection-rules/test", &test).await;
    assert_eq!((&tried["scanned"], &tried["matched"]), (&json!(5), &json!(4)), "{tried}");
    assert_eq!((&tried["names"][0]["name"], &tried["names"][0]["count"]), (&json!("cart"), &json!(4)));
    assert_eq!(tried["names"][0]["errorRate"], json!(0.0), "{tried}");
    assert_eq!(tried["examples"].as_array().map(Vec::len), Some(4));
    assert_eq!(tried["shadowedBy"], json!([]));
    let carts = made(&server, "", "/bt-detection-rules", carts).await;
    assert_eq!(members(&server).await, [], "what is stored is as it was");
    let shadowed = json!({"rule": rule("later", "/cart/2", "x"), "start": (now - 4 * day).to_string()});
    let shadowed = asked(&server, "", "POST", "/bt-detection-rules/test", &shadowed).await;
    assert_eq!(shadowed["shadowedBy"], json!([{"ruleId": carts["id"], "count": 1}]), "{shadowed}");

    // A dry run shows the job that it would be, and makes none.
    let dry = call(&server, "", "POST", "/bt-detection-rules/apply-to-all?dryRun=true", &json!({})).await;
    let job = dry.json();
    assert_eq!((dry.status, &job["kind"], &job["state"]), (202, &json!("bt-apply-to-all"), &json!("queued")), "{job}");
    assert_eq!(server.get(&format!("/platform-api/jobs/{}", id(&job))).await.status, 404);
    let job = apply(&server, "", "/bt-detection-rules/apply-to-all", json!({})).await;
    let job = ended(&server, "", &job).await;
    assert_eq!(
        (&job["state"], &job["progress"], &job["error"]),
        (&json!("succeeded"), &json!(1.0), &Value::Null),
        "{job}"
    );
    assert_eq!((&job["counters"]["scanned"], &job["counters"]["changed"]), (&json!(5), &json!(4)), "{job}");
    let all = of(&[(1, "cart"), (2, "cart"), (4, "cart"), (5, "cart")]);
    assert_eq!(members(&server).await, all);
    let tags = server.get("/traces/tags/bt.name/values?from=now-7d").await.json();
    assert!(tags.to_string().contains("cart"), "searches see it, too: {tags}");
    // Again: nothing changes.
    let again = ended(&server, "", &apply(&server, "", "/bt-detection-rules/apply-to-all", Value::Null).await).await;
    assert_eq!((&again["counters"]["changed"], &again["state"]), (&json!(0), &json!("succeeded")), "{again}");
    // Another rule for some of them, by service and window; what the first says of the others stays.
    let two = json!({"name": "two", "priority": 200, "service": "cart", "nameTemplate": "{http.route}",
        "condition": {"field": "http.route", "op": "exists"}});
    let two = made(&server, "", "/bt-detection-rules", two).await;
    let path = format!("/bt-detection-rules/{}/apply-to-all", id(&two));
    let start = json!({"start": (now - 2 * day).to_string()});
    ended(&server, "", &apply(&server, "", &path, start).await).await;
    let mixed = of(&[(1, "cart"), (2, "/cart/2"), (3, "/health"), (4, "cart"), (5, "/cart/5")]);
    assert_eq!(members(&server).await, mixed);
    // Gone rules leave nothing behind.
    for rule in [&carts, &two] {
        let path = format!("/bt-detection-rules/{}", id(rule));
        assert_eq!(call(&server, "", "DELETE", &path, &Value::Null).await.status, 204);
    }
    ended(&server, "", &apply(&server, "", "/bt-detection-rules/apply-to-all", json!({})).await).await;
    assert_eq!(members(&server).await, []);
    let count = rows(&server, "", "SELECT count(*) AS n FROM quiver.spans").await;
    assert_eq!(count[0]["n"], json!(5), "no span is lost or doubled");
}

/// Killed at each step of a rewriting, the job goes on when the server is back.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_survive_kills() {
    let dir = tempfile::tempdir().expect("a folder");
    let now = now_ns();
    let day = 86_400_000_000_000;
    let spans: Vec<Sent> = (0..40)
        .map(|n: u64| Sent::new("cart", n + 1, 5).with("http.route", "/cart").at(now - (n as i64 % 4) * day))
        .collect();
    {
        let server = Server::start(dir.path(), &Options::default()).await;
        send(&server, &spans).await;
        server.flush().await;
        made(&server, "", "/bt-detection-rules", rule("carts", "/cart", "cart")).await;
        server.stop();
    }
    // Killed at the first step, once it has said what job it is.
    let hold = Hold::default();
    let armed = Options::default().env("QUIVER_FAILPOINT", hold.at("compact.after-part"));
    let server = Server::start(dir.path(), &armed).await;
    let url = server.url("/bt-detection-rules/apply-to-all");
    let answer = reqwest::Client::new().post(url).json(&json!({})).send().await.expect("an answer");
    let body: Value = answer.json().await.expect("JSON");
    let job = format!("/platform-api/jobs/{}", id(&body));
    hold.reached().await;
    server.kill();
    for point in ["compact.before-commit", "compact.after-commit", "compact.after-swap:2"] {
        // The job goes on before anybody asks.
        Server::start_to_end(dir.path(), &Options::default().env("QUIVER_FAILPOINT", point));
    }
    let server = Server::start(dir.path(), &Options::default()).await;
    let job = ended(&server, "", &job).await;
    assert_eq!(job["state"], json!("succeeded"), "{job}");
    assert_eq!(members(&server).await.len(), 40);
    let count = rows(&server, "", "SELECT count(*) AS n FROM quiver.spans").await;
    assert_eq!(count[0]["n"], json!(40));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_of_who_made_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let (admin, ann) = restricted(&server, "cart").await;
    let wide = call(&server, &ann, "POST", "/bt-detection-rules/apply-to-all", &json!({})).await;
    assert_eq!((wide.status, wide.json()["required"].clone()), (403, json!("{operate, transactions, *}")));
    let own = apply(&server, &ann, "/bt-detection-rules/apply-to-all", json!({"services": ["cart"]})).await;
    assert_eq!(ended(&server, &ann, &own).await["createdBy"], json!("ann"));
    asked(&server, &admin, "GET", &own, &Value::Null).await;
    let others = apply(&server, &admin, "/bt-detection-rules/apply-to-all", json!({})).await;
    assert_eq!(call(&server, &ann, "GET", &others, &Value::Null).await.status, 404);
    assert_eq!(call(&server, &ann, "DELETE", &others, &Value::Null).await.status, 404);
    let over = ended(&server, &admin, &others).await;
    let kept = asked(&server, &admin, "DELETE", &others, &Value::Null).await;
    assert_eq!(kept["state"], over["state"], "what is over stays as it is");
    assert_eq!(call(&server, &admin, "GET", "/platform-api/jobs/none", &Value::Null).await.status, 404);
    let unknown = json!({"ruleIds": ["none"]});
    let unknown = call(&server, &admin, "POST", "/bt-detection-rules/apply-to-all", &unknown).await;
    assert_eq!(unknown.json()["errors"][0]["code"], json!("UNKNOWN_REFERENCE"));
}

/// What browsers send belongs to transactions of pages, by rules of their own.
#[tokio::test(flavor = "multi_thread")]
async fn pages_have_rules_of_their_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let browser = |number: u64, name: &'static str, url: &str| Sent {
        name,
        kind: 1,
        resource: vec![("telemetry.sdk.language", "webjs")],
        ..Sent::new("shop-web", number, 1200).with("http.url", url)
    };
    made(&server, "", "/bt-detection-rules", rule("all", "/", "service")).await;
    send(&server, &[browser(1, "documentLoad", "https://shop.example/cart?x=1")]).await;
    let loads = json!({"name": "loads", "application": "shop-web", "kind": "pageLoad", "nameTemplate": "load {url.path}",
        "condition": {"field": "url.path", "op": "exists"},
        "samples": [{"kind": "pageLoad", "attributes": {"url.path": "/a"}, "expectName": "load /a"},
            {"kind": "xhr", "attributes": {"url.path": "/a"}, "expectName": null}]});
    made(&server, "", "/rum-bt-detection-rules", loads).await;
    let more = [
        browser(2, "documentLoad", "https://shop.example/pay"),
        browser(3, "click", "https://shop.example/pay").with("event_type", "click"),
        Sent::new("front", 4, 10).with("http.route", "/x"),
    ];
    send(&server, &more).await;
    assert_eq!(members(&server).await, of(&[(2, "load /pay"), (4, "service")]));
    ended(&server, "", &apply(&server, "", "/rum-bt-detection-rules/apply-to-all", json!({})).await).await;
    assert_eq!(members(&server).await, of(&[(1, "load /cart"), (2, "load /pay"), (4, "service")]));
    ended(&server, "", &apply(&server, "", "/bt-detection-rules/apply-to-all", json!({})).await).await;
    assert_eq!(members(&server).await, of(&[(1, "load /cart"), (2, "load /pay"), (4, "service")]));
    let candidates = asked(&server, "", "GET", "/rum-key-business-transactions/candidates", &Value::Null).await;
    assert_eq!(candidates["items"].as_array().map(Vec::len), Some(2), "{candidates}");
    for (sort, status) in [("-application", 200), ("service", 400)] {
        let path = format!("/rum-key-business-transactions/candidates?sort={sort}");
        assert_eq!(call(&server, "", "GET", &path, &Value::Null).await.status, status, "{sort}");
    }
    // Examples are read as what is stored: pages by the names of senders.
    let rule =
        json!({"name": "any", "nameTemplate": "{kind} {url.path}", "condition": {"field": "url.path", "op": "exists"}});
    let samples = json!([{"kind": "xhr", "attributes": {"http.url": "https://shop.example/pay?x"}}]);
    let path = "/rum-bt-detection-rules/test";
    let tested = asked(&server, "", "POST", path, &json!({"rule": rule, "samples": samples})).await;
    assert_eq!(tested["results"][0]["name"], "xhr /pay", "{tested}");
    let stored = asked(&server, "", "POST", path, &json!({"rule": rule, "start": 0})).await;
    assert_eq!(
        (&stored["matched"], &stored["examples"][0]["application"]),
        (&json!(3), &json!("shop-web")),
        "{stored}"
    );
    let misspelt = call(&server, "", "POST", &format!("{path}?x=1"), &json!({"rule": rule, "samples": samples})).await;
    assert_eq!(misspelt.status, 400);
    let some = json!({"applications": ["shop-web"]});
    ended(&server, "", &apply(&server, "", "/rum-bt-detection-rules/apply-to-all", some).await).await;
    let both = json!({"applications": ["shop-web"], "services": ["shop-web"]});
    assert_eq!(call(&server, "", "POST", "/rum-bt-detection-rules/apply-to-all", &both).await.status, 422);
    let key = json!({"name": "pay", "application": "shop-web", "transactionName": "load /pay",
        "vitals": {"lcpMs": 2500, "cls": 0.1}});
    let key = made(&server, "", "/rum-key-business-transactions", key).await;
    let path = format!("/rum-key-business-transactions/{}/summary", id(&key));
    let summary = asked(&server, "", "GET", &path, &Value::Null).await;
    assert_eq!((&summary["count"], &summary["apdex"]), (&json!(1), &json!(1.0)), "{summary}");
    let member = |name: &str| format!("RumBusinessTransactions.{name}");
    let query = json!({"dimensions": [member("btName"), member("kind"), member("pageGroup"), member("isKey")],
        "measures": [member("count"), member("durationP95")], "order": {member("btName"): "asc"}});
    let row = |page: &str, is_key: bool| {
        json!({member("btName"): format!("load {page}"), member("kind"): "pageLoad", member("pageGroup"): page,
            member("isKey"): is_key, member("count"): "1", member("durationP95"): 1200})
    };
    assert_eq!(load(&server, "", query).await, [row("/cart", false), row("/pay", true)]);
    let unknown = |limit: Value| json!({"p75": null, "limit": limit, "met": null});
    let none = json!({"lcpMs": unknown(json!(2500.0)), "inpMs": unknown(Value::Null), "cls": unknown(json!(0.1))});
    assert_eq!(summary["vitals"], none);
    vitals(&server).await;
    let summary = asked(&server, "", "GET", &path, &Value::Null).await;
    let known = json!({"lcpMs": {"p75": 3000.0, "limit": 2500.0, "met": false}, "inpMs": unknown(Value::Null),
        "cls": {"p75": 0.05, "limit": 0.1, "met": true}});
    assert_eq!(summary["vitals"], known);
    let limits = json!({"query": "SELECT lcp_limit_ms, inp_limit_ms, cls_limit FROM quiver.key_transactions"});
    let limits = asked(&server, "", "POST", "/sql-api/v1/query", &limits).await;
    assert_eq!(limits["rows"], json!([[2500.0, null, 0.1]]));
}

/// What browsers tell of two pages: the page that is asked for, with two reports of one shift, and another one.
async fn vitals(server: &Server) {
    let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let now = now_ns() - 1_000_000_000;
    let reports = [
        ("lcp", 3000.0, "l", "/pay?x=1"),
        ("cls", 0.5, "c", "/pay"),
        ("cls", 0.05, "c", "/pay#end"),
        ("cls", 0.9, "d", "/cart"),
    ];
    let record = |(n, (name, value, id, path)): (usize, &(&str, f64, &str, &str))| {
        json!({"timeUnixNano": (now + n as i64).to_string(), "eventName": "browser.web_vital", "attributes": [
            attribute("browser.web_vital.name", name), attribute("browser.web_vital.id", id),
            attribute("url.full", &format!("https://shop.example{path}")),
            {"key": "browser.web_vital.value", "value": {"doubleValue": value}}]})
    };
    let records: Vec<Value> = reports.iter().enumerate().map(record).collect();
    let body = json!({"resourceLogs": [{"resource": {"attributes": [attribute("service.name", "shop-web")]},
        "scopeLogs": [{"logRecords": records}]}]});
    assert_eq!(call(server, "", "POST", "/v1/logs", &body).await.status, 200);
}
