//! Resources discovered in telemetry, and who may see them.

use std::time::{Duration, Instant};

use quiver_tests::server::{Answer, Options, Server};
use quiver_tests::time_limits::until;
use quiver_types::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::identity::{PASSWORD, bearer, login, made, user, with_password};

const PATIENCE: Duration = Duration::from_mins(5);

async fn get(server: &Server, who: &str, path: &str) -> Answer {
    server.get_as(path, &[("authorization", who)]).await
}

fn attributes(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().map(|(k, v)| json!({"key": k, "value": {"stringValue": v}})).collect()
}

/// A trace: `web` calls `cart`, which asks a database; both on one host, `cart` in a pod.
pub(crate) async fn send(server: &Server, who: &str, now_s: i64) {
    let span = |id: u8, parent: &str, kind: u8, more: &[(&str, &str)], failed: bool| {
        json!({"traceId": "0000000000000000000000000000000a", "spanId": format!("{id:016x}"), "parentSpanId": parent,
            "name": "call", "kind": kind, "attributes": attributes(more), "status": {"code": if failed { 2 } else { 0 }},
            "startTimeUnixNano": format!("{now_s}000000000"), "endTimeUnixNano": format!("{now_s}250000000")})
    };
    let of = |resource: &[(&str, &str)], spans: Vec<Value>| json!({"resource": {"attributes": attributes(resource)}, "scopeSpans": [{"spans": spans}]});
    let web = of(&[("service.name", "web"), ("host.name", "h1")], vec![span(1, "", 2, &[], false)]);
    let pod = [
        ("service.name", "cart"),
        ("service.instance.id", "i1"),
        ("host.name", "h1"),
        ("k8s.namespace.name", "shop"),
        ("k8s.pod.name", "cart-0"),
    ];
    let database = [("db.system", "redis"), ("server.address", "cache")];
    let parent = format!("{:016x}", 1);
    let own = format!("{:016x}", 2);
    let cart = of(&pod, vec![span(2, &parent, 2, &[], true), span(3, &own, 3, &database, false)]);
    let body = json!({"resourceSpans": [web, cart]}).to_string().into_bytes();
    let headers = [("content-type", "application/json"), ("authorization", who)];
    let answer = server.post("/v1/traces", &headers, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

async fn keys(server: &Server, who: &str) -> Vec<String> {
    let list = get(server, who, "/platform-api/resources?sort=key&limit=1000").await.json();
    let key = |e: &Value| e["key"].as_str().expect("a key").to_owned();
    list["items"].as_array().expect("a list").iter().map(key).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn telemetry_tells_of_resources() {
    let dir = tempfile::tempdir().expect("a folder");
    let options: Options = with_password().env("QUIVER_RESOURCES__DISCOVERY_INTERVAL", "300ms");
    let server = Server::start(dir.path(), &options).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    user(&server, &admin, "carol", "viewer", json!(["cart"])).await;
    let carol = bearer(&login(&server, "carol", PASSWORD).await);
    send(&server, &admin, SystemClock.now_ms() / 1000 - 5).await;
    let wanted = ["cart", "cart/i1", "h1", "redis/cache", "shop", "shop/cart-0", "web"];
    let began = Instant::now();
    let all = loop {
        let links = get(&server, &admin, "/platform-api/resource-relationships?limit=1000").await.json();
        let links = links["items"].as_array().expect("a list").clone();
        if keys(&server, &admin).await == wanted && links.len() >= 7 {
            break links;
        }
        assert!(began.elapsed() < PATIENCE, "{:?} {links:?}", keys(&server, &admin).await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(all.iter().all(|link| link["origin"] == "discovered"));
    let list = get(&server, &admin, "/platform-api/resources?limit=1000").await.json();
    let items = list["items"].as_array().expect("a list").clone();
    let of = |key: &str| items.iter().find(|e| e["key"] == key).expect("found").clone();
    assert_eq!((&of("cart")["service"], &of("cart")["source"]), (&json!("cart"), &json!("discovered")));
    assert_eq!(of("h1")["service"], Value::Null, "two services tell of it");
    assert_eq!(of("shop/cart-0")["displayName"], "cart-0");
    assert!(of("web")["firstSeen"].is_string() && of("web")["lastSeen"].is_string());
    let id = |key: &str| of(key)["id"].as_str().expect("an id").to_owned();
    let graph = format!("/platform-api/resources/{}/dependency-graph", id("web"));
    let walked = get(&server, &admin, &graph).await.json();
    let mut found: Vec<&str> =
        walked["nodes"].as_array().expect("nodes").iter().filter_map(|n| n["key"].as_str()).collect();
    found.sort_unstable();
    assert!(["cart", "h1", "redis/cache", "web"].iter().all(|key| found.contains(key)), "{found:?}");
    // How one does, by the spans that the caller may see.
    let summary = get(&server, &admin, &format!("/platform-api/resources/{}/summary", id("cart"))).await;
    assert_eq!(summary.status, 200, "{}", summary.text());
    let summary = summary.json();
    assert_eq!(
        (&summary["errorRate"], &summary["p95Ms"], &summary["openAlerts"]),
        (&json!(1.0), &json!(250.0), &json!(0))
    );
    let database = get(&server, &admin, &format!("/platform-api/resources/{}/summary", id("redis/cache"))).await.json();
    assert_eq!((&database["errorRate"], &database["relationships"]), (&json!(0.0), &json!({"in": 1, "out": 0})));
    // A caller who sees one service sees what that one alone tells of: the host is hidden, not walked through, not counted.
    assert_eq!(keys(&server, &carol).await, ["cart", "cart/i1", "redis/cache", "shop", "shop/cart-0"]);
    assert_eq!(get(&server, &carol, &graph).await.status, 404);
    let graph = format!("/platform-api/resources/{}/dependency-graph?direction=both&depth=10", id("cart"));
    let walked = get(&server, &carol, &graph).await.json();
    let shown: Vec<&Value> = walked["nodes"].as_array().expect("nodes").iter().map(|n| &n["key"]).collect();
    assert!(!shown.contains(&&json!("h1")) && !shown.contains(&&json!("web")), "{shown:?}");
    assert_eq!((&walked["frontier"], &walked["truncated"]), (&json!([]), &json!(false)));
    let summary = get(&server, &carol, &format!("/platform-api/resources/{}/summary", id("cart"))).await.json();
    assert_eq!(summary["relationships"]["in"], 1, "the instance; `web` is hidden: {summary}");
    // A caller who sees resources alone has no figures of spans and alerts: not even that there are none.
    made(&server, &admin, "roles", json!({"name": "things", "permissions": ["{view, resources, cart}"]})).await;
    user(&server, &admin, "dora", "things", Value::Null).await;
    let dora = bearer(&login(&server, "dora", PASSWORD).await);
    let bare = get(&server, &dora, &format!("/platform-api/resources/{}/summary", id("cart"))).await.json();
    for figure in ["requestRate", "errorRate", "p95Ms", "openAlerts"] {
        assert!(bare.get(figure).is_some_and(Value::is_null) && !summary[figure].is_null(), "{figure}: {bare}");
    }
    let counted = get(&server, &carol, "/platform-api/resources/summary?groupBy=state").await.json();
    assert_eq!((&counted["total"], &counted["groups"][0]["key"]), (&json!(5), &json!({"state": "active"})));
    in_tables_and_models(&server, &admin, &carol).await;
    // Seen again: no new version, no audit row.
    let before = of("cart")["version"].clone();
    send(&server, &admin, SystemClock.now_ms() / 1000).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let now = async || get(&server, &admin, &format!("/platform-api/resources/{}", id("cart"))).await.json();
    until("its health is known", async || now().await["health"] == "ok").await;
    assert_eq!(now().await["version"], before);
    said_of_services(&server, &admin, &id("cart")).await;
    let wanted = json!([["a", id("cart/i1")], ["b", id("shop/cart-0")], ["c", id("web")], ["d", null]]);
    of_events(&server, &admin, &wanted).await;
    of_alerts(&server, &admin, &wanted).await;
}

/// An event is of the narrowest resource whose identity it says.
async fn of_events(server: &Server, admin: &str, wanted: &Value) {
    let events = [
        json!({"event_name": "a", "service.name": "cart", "service.instance.id": "i1", "host.name": "h1"}),
        json!({"event_name": "b", "service.name": "cart", "k8s.namespace.name": "shop", "k8s.pod.name": "cart-0"}),
        json!({"event_name": "c", "service.name": "web", "service.instance.id": "none"}),
        json!({"event_name": "d", "service.name": "other", "host.name": "h9"}),
    ];
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    let path = "/insert/jsonline?_stream_fields=service.name";
    let sent = server.post(path, &[("authorization", admin)], lines.into_bytes()).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    let query = json!({"dimensions": ["Events.eventName", "Events.resourceId"], "order": {"Events.eventName": "asc"}});
    let rows = post(server, admin, "/olap-api/v1/load", &json!({"query": query, "cache": "no-cache"})).await;
    let cells = |row: &Value| json!([row["Events.eventName"], row["Events.resourceId"]]);
    let found: Value = rows["data"].as_array().into_iter().flatten().map(cells).collect();
    assert_eq!(&found, wanted);
}

/// Alerts are of resources as events are, for a caller who sees both; resources have the alerts that are of them.
async fn of_alerts(server: &Server, admin: &str, wanted: &Value) {
    let alerts = json!([
        {"labels": {"alertname": "a", "service": "cart", "instance": "i1", "host_name": "h1"}},
        {"labels": {"alertname": "b", "service": "cart", "k8s.namespace.name": "shop", "k8s_pod_name": "cart-0"}},
        {"labels": {"alertname": "c", "service": "web", "service_instance_id": "none"}},
        {"labels": {"alertname": "d", "service": "other", "host_name": "h9"}},
    ]);
    let headers = [("content-type", "application/json"), ("authorization", admin)];
    let sent = server.post("/api/v2/alerts", &headers, alerts.to_string().into_bytes()).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    let load = async |who: &str, query: &Value| {
        post(server, who, "/olap-api/v1/load", &json!({"query": query, "cache": "no-cache"})).await["data"].take()
    };
    let query = json!({"dimensions": ["Alerts.alertName", "Alerts.resourceId"], "order": {"Alerts.alertName": "asc"}});
    let cells = |row: &Value| json!([row["Alerts.alertName"], row["Alerts.resourceId"]]);
    let began = Instant::now();
    loop {
        let found: Value = load(admin, &query).await.as_array().into_iter().flatten().map(cells).collect();
        if &found == wanted {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{found}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let counts = json!({"dimensions": ["Resources.key"], "measures": ["Alerts.count", "Resources.count"],
        "order": {"Resources.key": "asc"}});
    let row =
        |key: Value, resources: &str| json!({"Resources.key": key, "Alerts.count": "1", "Resources.count": resources});
    let rows = ["cart/i1", "shop/cart-0", "web"].map(|key| row(key.into(), "1"));
    let all: Value = rows.into_iter().chain([row(Value::Null, "0")]).collect();
    assert_eq!(load(admin, &counts).await, all);
    // A caller who sees alerts alone does not hear of resources.
    made(server, admin, "roles", json!({"name": "alerted", "permissions": ["{view, alerts, cart}"]})).await;
    user(server, admin, "erin", "alerted", Value::Null).await;
    let erin = bearer(&login(server, "erin", PASSWORD).await);
    let found: Value = load(&erin, &query).await.as_array().into_iter().flatten().map(cells).collect();
    assert_eq!(found, json!([["a", null], ["b", null]]));
}

/// What people say of the resource of a service is told of the service, beside its health in the newest minute.
async fn said_of_services(server: &Server, admin: &str, cart: &str) {
    let patch = json!({"displayName": "Shopping cart",
        "attributes": {"service.name": "cart", "team": "sales", "service.criticality": "high"}});
    let headers = [("content-type", "application/json"), ("authorization", admin)];
    let path = format!("/platform-api/resources/{cart}");
    let patched = server.send("PATCH", &path, &headers, patch.to_string().into_bytes()).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    let members = ["service", "displayName", "team", "criticality", "health"].map(|name| format!("Services.{name}"));
    let wanted = json!([["cart", "Shopping cart", "sales", "high", "critical"], ["web", "web", null, null, "ok"]]);
    let query = json!({"dimensions": members, "order": {"Services.service": "asc"}});
    let body = json!({"query": query, "cache": "no-cache"});
    let began = Instant::now();
    loop {
        let rows = post(server, admin, "/olap-api/v1/load", &body).await["data"].take();
        let cells = |row: &Value| members.iter().map(|name| row[name].clone()).collect::<Value>();
        let found: Value = rows.as_array().into_iter().flatten().map(cells).collect();
        if found == wanted {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{found}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let counts = json!({"measures": ["Services.count", "Services.unhealthyCount", "Services.teamCount"]});
    let rows = post(server, admin, "/olap-api/v1/load", &json!({"query": counts, "cache": "no-cache"})).await;
    let counts =
        ["count", "unhealthyCount", "teamCount"].map(|name| rows["data"][0][format!("Services.{name}")].clone());
    assert_eq!(counts, [json!("2"), json!("1"), json!("1")]);
    let segments = json!({"dimensions": ["Services.service"], "segments": ["Services.withoutOwner"]});
    let rows = post(server, admin, "/olap-api/v1/load", &json!({"query": segments, "cache": "no-cache"})).await;
    assert_eq!(rows["data"], json!([{"Services.service": "web"}]));
}

async fn post(server: &Server, who: &str, path: &str, body: &Value) -> Value {
    let headers = [("content-type", "application/json"), ("authorization", who)];
    let answer = server.post(path, &headers, body.to_string().into_bytes()).await;
    assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
    answer.json()
}

/// The same resources are rows of SQL and of analytics, for whom they are there at all.
async fn in_tables_and_models(server: &Server, admin: &str, carol: &str) {
    let sql = async |who: &str, text: &str| {
        post(server, who, "/sql-api/v1/query", &json!({"query": text})).await["rows"].clone()
    };
    let keys = "SELECT key FROM quiver.resources ORDER BY key";
    let all = json!([["cart"], ["cart/i1"], ["h1"], ["redis/cache"], ["shop"], ["shop/cart-0"], ["web"]]);
    assert_eq!(sql(admin, keys).await, all);
    assert_eq!(sql(carol, keys).await, json!([["cart"], ["cart/i1"], ["redis/cache"], ["shop"], ["shop/cart-0"]]));
    let host = "SELECT type, \"attributes.host.name\", relationships > 0, first_seen <= last_seen \
        FROM quiver.resources WHERE key = 'h1'";
    assert_eq!(sql(admin, host).await, json!([["host", "h1", true, true]]));
    let calls = "SELECT source_name, target_name FROM quiver.resource_relationships \
        WHERE source_type = 'service' AND target_type = 'service'";
    assert_eq!(sql(admin, calls).await, json!([["web", "cart"]]));
    assert_eq!(sql(carol, calls).await, json!([]), "one end is hidden");
    let load = async |who: &str, query: Value| {
        post(server, who, "/olap-api/v1/load", &json!({"query": query, "cache": "no-cache"})).await["data"].clone()
    };
    let types = json!({"dimensions": ["Resources.type"], "measures": ["Resources.count", "Resources.isolatedCount"],
        "segments": ["Resources.active"], "order": {"Resources.type": "asc"}});
    let found = |rows: &Value| -> Vec<String> {
        rows.as_array()
            .expect("rows")
            .iter()
            .map(|row| row["Resources.type"].as_str().unwrap_or("").to_owned())
            .collect()
    };
    let expected = ["database", "host", "k8s_namespace", "k8s_pod", "service", "service_instance"];
    assert_eq!(found(&load(admin, types.clone()).await), expected);
    let seen: Vec<&str> = expected.into_iter().filter(|kind| *kind != "host").collect();
    assert_eq!(found(&load(carol, types).await), seen);
    let open = json!({"dimensions": ["Resources.attr_host__name"], "filters": [
        {"member": "Resources.key", "operator": "equals", "values": ["h1"]}]});
    assert_eq!(load(admin, open).await, json!([{"Resources.attr_host__name": "h1"}]));
    let related = json!({"dimensions": ["ResourceRelationships.sourceName", "ResourceRelationships.targetName"],
        "measures": ["ResourceRelationships.confidenceAvg", "ResourceRelationships.outDegreeMax"],
        "filters": [{"member": "ResourceRelationships.type", "operator": "equals", "values": ["calls"]}]});
    assert!(!load(admin, related).await.as_array().expect("rows").is_empty());
    // Hidden relationships are not counted.
    let degrees = json!({"dimensions": ["ResourceRelationships.sourceId"],
        "measures": ["ResourceRelationships.count", "ResourceRelationships.outDegreeMax"]});
    let seen = load(carol, degrees.clone()).await.as_array().cloned().expect("rows");
    let numbers =
        |row: &Value| ["count", "outDegreeMax"].map(|name| row[format!("ResourceRelationships.{name}")].clone());
    for row in &seen {
        let [count, degree] = numbers(row);
        assert_eq!(count, degree, "{row}");
    }
    let fewer = |row: &Value| {
        let same = |one: &&Value| one["ResourceRelationships.sourceId"] == row["ResourceRelationships.sourceId"];
        seen.iter().find(same).is_some_and(|one| numbers(one) != numbers(row))
    };
    assert!(load(admin, degrees).await.as_array().expect("rows").iter().any(fewer), "some are hidden: {seen:?}");
}
