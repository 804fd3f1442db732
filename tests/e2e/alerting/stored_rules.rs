//! Rules that are stored over REST: they run, fire, survive restarts, and show no rows that their editor may not see.

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

use crate::alerting::{Sink, is, notifying, sample, until};
use crate::identity::{PASSWORD, permitted, signed_in, with_password};
use crate::json_calls::{asked, call, made};

fn path_of(rule: &Value) -> String {
    format!("/rulesapi/rules/{}", rule["id"].as_str().expect("an id"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_rule_fires_and_outlives_a_restart() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::open().await);
    let options = notifying(dir.path(), &sink);
    let data = dir.path().join("data");
    let server = Server::start(&data, &options).await;
    sample(&server, 0.0).await;
    let path = "/rulesapi/groups/shop/web";
    let group = json!({"interval": "1s", "labels": {"team": "web"},
        "rules": [{"record": "shop:up:sum", "expr": "sum(shop_up)"}]});
    let answer = call(&server, "", "PUT", path, &group).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let rule = json!({"namespace": "shop", "group": "web", "alert": "ShopDown", "expr": "shop:up:sum == 0",
        "severity": "page", "service": "cart", "runbook_url": "http://wiki/down"});
    let rule = made(&server, "", "/rulesapi/rules", rule).await;
    assert_eq!((&rule["name"], &rule["position"]), (&json!("ShopDown"), &json!(1)), "{rule}");
    let told = sink.until("that the shop is down", is("ShopDown", "firing")).await;
    let labels = json!({"alertname": "ShopDown", "severity": "page", "service": "cart", "team": "web"});
    assert_eq!(told["alerts"][0]["labels"], labels);
    assert_eq!(told["alerts"][0]["annotations"], json!({"runbook_url": "http://wiki/down"}));

    let state = server.get(&format!("{}/state", path_of(&rule))).await.json();
    assert_eq!((&state["health"], &state["state"]), (&json!("ok"), &json!("firing")), "{state}");
    let since = state["alerts"][0]["activeAt"].clone();
    // One that says the same is taken, with a word about it.
    let alike =
        json!({"namespace": "other", "group": "g", "alert": "X", "expr": "vector(0) > 1", "labels": {"a": "b"}});
    for warned in [false, true] {
        let answer = call(&server, "", "POST", "/rulesapi/rules", &alike).await;
        assert_eq!((answer.status, answer.headers.contains_key("warning")), (201, warned), "{}", answer.text());
    }
    assert_eq!(call(&server, "", "DELETE", "/rulesapi/groups/other/g", &Value::Null).await.status, 204);
    // Another rule of the group leaves this one alone.
    let copy = made(&server, "", &format!("{}/clone", path_of(&rule)), Value::Null).await;
    assert_eq!((&copy["alert"], &copy["enabled"]), (&json!("ShopDown_copy"), &json!(false)), "{copy}");
    let listed = server.get("/rulesapi/groups?namespace=shop").await.json();
    assert_eq!((&listed["items"][0]["ruleCount"], &listed["items"][0]["interval"]), (&json!(3), &json!("1s")));
    let patched = call(&server, "", "PATCH", &path_of(&rule), &json!({"annotations": {"a": "b"}})).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(server.stop(), Some(0));

    let server = Server::start(&data, &options).await;
    let state = async || server.get(&format!("{}/state", path_of(&rule))).await.json();
    until("it fires after the restart", async || state().await["state"] == "firing").await;
    assert_eq!(state().await["alerts"][0]["activeAt"], since, "as before");
    // Off: its alert ends, and the receiver hears of it.
    let off = call(&server, "", "PATCH", &path_of(&rule), &json!({"enabled": false})).await;
    assert_eq!(off.status, 200, "{}", off.text());
    sink.until("that it is over", is("ShopDown", "resolved")).await;
    assert_eq!(call(&server, "", "DELETE", path, &Value::Null).await.status, 204);
    assert_eq!(server.get("/rulesapi/groups").await.json()["items"], json!([]));
    assert_eq!(server.get(&path_of(&rule)).await.status, 404);
    let groups = server.get("/metrics-api/api/v1/rules").await.json()["data"]["groups"].clone();
    assert_eq!(groups, json!([]), "nothing runs any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn places_and_ids_stay() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let rule = |alert: &str, expr: &str| json!({"group": "g", "alert": alert, "expr": expr});
    let first = made(&server, "", "/rulesapi/rules", rule("A", "up")).await;
    made(&server, "", "/rulesapi/rules", rule("B", "up")).await;
    let group = async || server.get("/rulesapi/groups?fields=name").await.json()["items"][0]["id"].clone();
    let id = group().await;
    assert!(id.is_string(), "{id}");
    // What says no place keeps its own, and what was read changes nothing.
    let put = call(&server, "", "PUT", &path_of(&first), &rule("A", "up == 0")).await;
    assert_eq!((put.status, &put.json()["position"]), (200, &json!(0)), "{}", put.text());
    let put = call(&server, "", "PUT", &path_of(&first), &put.json()).await;
    assert_eq!((put.status, &put.json()["version"]), (200, &json!(2)), "{}", put.text());
    // In another group it comes last.
    made(&server, "", "/rulesapi/rules", json!({"group": "h", "alert": "C", "expr": "up"})).await;
    let body = json!({"group": "h", "alert": "A", "expr": "up"});
    let put = call(&server, "", "PUT", &path_of(&first), &body).await;
    assert_eq!(put.json()["position"], json!(1), "{}", put.text());
    let patched = call(&server, "", "PATCH", "/rulesapi/groups/default/g", &json!({"interval": "2m"})).await;
    assert_eq!((patched.status, &patched.json()["id"]), (200, &id), "{}", patched.text());
    assert_eq!(group().await, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_file_lacks_goes_with_prune() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let deploy = async |query: &str, text: &str| {
        let path = format!("/rulesapi/deploy?{query}");
        let sent = server.post(&path, &[("content-type", "application/yaml")], text.as_bytes().to_vec()).await;
        assert_eq!(sent.status, 200, "{path} {text}: {}", sent.text());
        sent.json()["summary"]["deleted"].clone()
    };
    let rules = "groups: [{name: g, rules: [{alert: A, expr: up}]}, {name: h, rules: [{alert: B, expr: up}]}]";
    for namespace in ["a", "b"] {
        deploy(&format!("namespace={namespace}"), rules).await;
    }
    assert_eq!(deploy("namespace=a", "groups: []").await, 0);
    assert_eq!(deploy("namespace=a&prune=true", "groups: [{name: g, rules: [{alert: A, expr: up}]}]").await, 1);
    // Its last group, too.
    assert_eq!(deploy("namespace=a&prune=true", "groups: []").await, 1);
    let left = server.get("/rulesapi/groups?fields=namespace").await.json()["items"].clone();
    assert_eq!(left.as_array().map(|all| all.iter().filter(|g| g["namespace"] == "b").count()), Some(2), "{left}");
    assert_eq!(left.as_array().map(Vec::len), Some(2), "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let check = async |rule: Value, field: &str, code: &str| {
        let answer = call(&server, "", "POST", "/rulesapi/rules", &rule).await;
        let errors = answer.json()["errors"].clone();
        let found = errors.as_array().is_some_and(|e| e.iter().any(|e| e["field"] == field && e["code"] == code));
        assert!(answer.status == 422 && found, "{rule}: {}", answer.text());
    };
    check(json!({"alert": "A", "group": "g", "expr": "up =="}), "/expr", "INVALID_EXPR").await;
    check(json!({"alert": "A", "group": "g", "expr": "{}", "language": "olap"}), "/expr", "INVALID_EXPR").await;
    check(json!({"alert": "A", "group": "g", "expr": "1", "language": "basic"}), "/language", "INVALID_VALUE").await;
    check(json!({"group": "g", "expr": "up"}), "/alert", "REQUIRED").await;
    check(json!({"record": "a", "group": "g", "expr": "up", "for": "1m"}), "/for", "INVALID_VALUE").await;
    check(json!({"alert": "A", "group": "g", "expr": "up", "runbook_url": "x"}), "/runbook_url", "PATTERN").await;
    // A group comes whole or not at all.
    let group = json!({"rules": [{"alert": "A", "expr": "up"}, {"alert": "B", "expr": "up =="}]});
    let refused = call(&server, "", "PUT", "/rulesapi/groups/n/g", &group).await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.json()["errors"][0]["field"], "/rules/1/expr", "{}", refused.text());
    assert_eq!(server.get("/rulesapi/groups").await.json()["items"], json!([]));
    let group = json!({"interval": "10ms"});
    let refused = call(&server, "", "PUT", "/rulesapi/groups/n/g", &group).await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.json()["errors"][0]["field"], "/interval", "{}", refused.text());
}

/// Of many that make a group if there is none, one makes it: also where it is there by its rules alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_made_by_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    for n in 0..5 {
        let path = format!("/rulesapi/groups/shop/g{n}");
        let makes = |who: usize| {
            let (server, path) = (&server, &path);
            async move {
                let group = json!({"rules": [{"record": format!("by:{who}"), "expr": "up"}]});
                let headers = [("content-type", "application/json"), ("if-none-match", "*")];
                server.send("PUT", path, &headers, group.to_string().into_bytes()).await.status
            }
        };
        let mut found = futures::future::join_all((0..6).map(makes)).await;
        found.sort_unstable();
        assert_eq!(found, [201, 412, 412, 412, 412, 412]);
        let group = server.get(&path).await.json();
        assert_eq!((&group["ruleCount"], &group["concurrency"]), (&json!(1), &json!(1)), "{group}");
    }
}

/// A patch may bring the rules of a group, and what asks for another state of it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_changed_as_any_entity() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let path = "/rulesapi/groups/shop/g";
    let group = json!({"rules": [{"alert": "A", "expr": "up == 0"}, {"record": "a:b", "expr": "up"}]});
    assert_eq!(call(&server, "", "PUT", path, &group).await.status, 201);
    let headers = [("content-type", "application/json"), ("if-none-match", "*")];
    let known = server.send("PUT", path, &headers, group.to_string().into_bytes()).await;
    assert_eq!((known.status, known.json()["current"]["ruleCount"].clone()), (412, json!(2)), "{}", known.text());
    for (patch, field) in [
        (json!({"rules": [{"alert": "A"}]}), "/rules/0/expr"),
        (json!({"rules": [{"alert": "A", "expr": "up"}, {"record": "c", "expr": "up", "for": "1m"}]}), "/rules/1/for"),
        (json!({"rules": 1}), "/rules"),
        (json!({"query_offset": "5s", "eval_delay": "6s"}), "/eval_delay"),
    ] {
        let refused = call(&server, "", "PATCH", path, &patch).await;
        let at = refused.json()["errors"][0]["field"].clone();
        assert_eq!((refused.status, at), (422, json!(field)), "{}", refused.text());
    }
    let before = asked(&server, "", "GET", path, &Value::Null).await;
    let one = json!({"rules": [{"alert": "A", "expr": "up == 0", "for": "5m"}]});
    let after = asked(&server, "", "PATCH", path, &one).await;
    assert_eq!((&after["ruleCount"], &after["rules"][0]["for"]), (&json!(1), &json!("5m")), "{after}");
    assert_eq!(after["rules"][0]["id"], before["rules"][0]["id"], "it goes on");
    let longer = asked(&server, "", "PATCH", path, &json!({"interval": "2m"})).await;
    assert_eq!((&longer["ruleCount"], &longer["interval"]), (&json!(1), &json!("2m")), "{longer}");
    // A dry run answers what it would make.
    let path = "/rulesapi/groups/shop/new";
    let group = json!({"interval": "3m", "rules": [{"record": "a", "expr": "up"}]});
    let tried = call(&server, "", "PUT", &format!("{path}?dryRun=true"), &group).await.json();
    assert_eq!((&tried["interval"], &tried["rules"][0]["record"]), (&json!("3m"), &json!("a")), "{tried}");
    let typo = json!({"intervall": "3m", "rules": [{"record": "a", "expr": "up"}]});
    let refused = call(&server, "", "PUT", path, &typo).await;
    assert_eq!((refused.status, &refused.json()["errors"][0]["field"]), (422, &json!("/intervall")));
    assert_eq!(refused.json()["detail"], json!("/intervall: there is no such field"));
    assert_eq!(server.get(path).await.status, 404, "nothing of it is there");
    // A group is there without rules, too.
    assert_eq!(call(&server, "", "PUT", path, &json!({"rules": []})).await.status, 201);
    let found = server.get("/rulesapi/groups?filter=ruleCount%20eq%200&fields=name,ruleCount").await.json();
    assert_eq!((&found["items"][0]["name"], found["items"].as_array().map(Vec::len)), (&json!("new"), Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_other_services_are_not_seen() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = signed_in(&server, "admin").await;
    let role = json!({"name": "cart rules", "permissions":
        ["{view, alerting, cart}", "{edit, alerting, cart}", "{view, metrics, cart}"]});
    let role = made(&server, &admin, "/platform-api/rbac/roles", role).await;
    let user = json!({"username": "ann", "password": PASSWORD});
    let user = made(&server, &admin, "/platform-api/rbac/users", user).await;
    let binding = json!({"subject": {"type": "user", "id": user["id"]}, "roleId": role["id"]});
    let binding = made(&server, &admin, "/platform-api/rbac/bindings", binding).await;
    let ann = signed_in(&server, "ann").await;

    let put = call(&server, &admin, "PUT", "/rulesapi/groups/default/g", &json!({"interval": "1s"})).await;
    assert_eq!(put.status, 201, "{}", put.text());
    let rule = |service: &str, alert: &str| json!({"group": "g", "alert": alert, "expr": "vector(1) or up", "service": service});
    let pay = made(&server, &admin, "/rulesapi/rules", rule("pay", "Pay")).await;
    let cart = made(&server, &ann, "/rulesapi/rules", rule("cart", "Cart")).await;
    // Alerts are another domain than rules, in which this caller sees nothing.
    let events = call(&server, &ann, "GET", &format!("{}/alerts-history", path_of(&cart)), &Value::Null).await;
    assert_eq!((events.status, &events.json()["required"]), (403, &json!("{view, alerts, *}")), "{}", events.text());
    for path in [path_of(&pay), format!("{}/state", path_of(&pay)), format!("{}/history", path_of(&pay))] {
        assert_eq!(call(&server, &ann, "GET", &path, &Value::Null).await.status, 404, "{path}");
    }
    for path in ["/rulesapi/rules", "/rulesapi/groups", "/rulesapi/groups/default/g"] {
        let text = call(&server, &ann, "GET", path, &Value::Null).await.text();
        assert!(text.contains("Cart") && !text.contains("Pay"), "{path}: {text}");
    }
    for (method, path, body) in [
        ("POST", "/rulesapi/rules".to_owned(), rule("pay", "X")),
        ("POST", "/rulesapi/rules".to_owned(), json!({"group": "g", "alert": "X", "expr": "up"})),
        ("PUT", "/rulesapi/groups/default/g".to_owned(), json!({})),
        ("POST", format!("{}/clone", path_of(&pay)), json!({})),
    ] {
        let status = call(&server, &ann, method, &path, &body).await.status;
        assert!(matches!(status, 403 | 404), "{method} {path} {body}: {status}");
    }
    // What a rule asks sees what its editor does.
    let secret = json!({"group": "g", "alert": "Peek", "expr": "count(secret) > 0", "service": "cart"});
    let peek = made(&server, &ann, "/rulesapi/rules", secret.clone()).await;
    let mut open = secret;
    open["alert"] = json!("Open");
    let open = made(&server, &admin, "/rulesapi/rules", open).await;
    let auth = [("authorization", admin.as_str())];
    let text = b"secret{service=\"pay\"} 1\nsecret{service=\"pay\",n=\"2\"} 1\n".to_vec();
    let written = server.post("/metrics-api/api/v1/import/prometheus", &auth, text).await;
    assert!(written.status < 300, "{}", written.text());
    let state = async |rule: &Value| {
        call(&server, &admin, "GET", &format!("{}/state", path_of(rule)), &Value::Null).await.json()
    };
    until("the administrator's fires", async || state(&open).await["state"] == "firing").await;
    let seen = state(&peek).await;
    assert_eq!((&seen["health"], &seen["state"]), (&json!("ok"), &json!("inactive")), "{seen}");
    // How much a rule found, and why it fails, tells of all that it reads: who may view less is told neither.
    let clash = json!({"group": "g", "alert": "Clash", "expr": "secret * on(x) secret", "service": "cart"});
    let clash = made(&server, &admin, "/rulesapi/rules", clash).await;
    until("it fails", async || state(&clash).await["health"] == "err").await;
    assert!(state(&clash).await["lastError"].as_str().is_some_and(|error| error.contains("pay")));
    assert!(state(&open).await["samples"].as_u64() > Some(0));
    let told =
        async |rule: &Value| call(&server, &ann, "GET", &format!("{}/state", path_of(rule)), &Value::Null).await.json();
    let (failed, found, own) = (told(&clash).await, told(&open).await, told(&peek).await);
    assert!(failed["lastError"].as_str().is_some_and(|error| error.contains("more than you may view")), "{failed}");
    assert_eq!((&found["samples"], &own["samples"]), (&Value::Null, &json!(0)), "{found} {own}");
    let listed = call(&server, &ann, "GET", "/metrics-api/api/v1/rules", &Value::Null).await.text();
    assert!(listed.contains("Clash") && !listed.contains("pay"), "{listed}");
    // Nor does it write what is another's by its labels, whatever it says of itself.
    let forged = json!({"group": "g", "alert": "Forged", "expr": "vector(1)", "service": "cart",
        "labels": {"service_name": "pay"}});
    let forged = made(&server, &ann, "/rulesapi/rules", forged).await;
    until("it was tried", async || state(&forged).await["health"] == "err").await;
    let alerts = server.get_as("/api/v2/alerts", &auth).await.text();
    assert!(!alerts.contains("Forged"), "{alerts}");
    // A right that its editor loses is missed at once, and the rule says so; others go on.
    let path = format!("/platform-api/rbac/bindings/{}", binding["id"].as_str().expect("an id"));
    assert_eq!(call(&server, &admin, "DELETE", &path, &Value::Null).await.status, 204);
    let lost = |state: &Value| state["lastError"].as_str().is_some_and(|e| e.starts_with("FORBIDDEN: the last editor"));
    until("the right is missed", async || lost(&state(&peek).await)).await;
    assert_eq!(state(&open).await["health"], "ok");
}

/// Headers of a group may be credentials: whoever sees a rule of it, and may not write its settings, learns their names.
#[tokio::test(flavor = "multi_thread")]
async fn headers_of_groups_are_for_who_writes_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = signed_in(&server, "admin").await;
    let rule = |name: &str, service: &str| json!({"alert": name, "expr": "up", "service": service});
    let headers = json!(["Authorization: Bearer hushhush"]);
    for (group, rules) in [("own", json!([rule("A", "cart")])), ("both", json!([rule("A", "cart"), rule("B", "pay")]))]
    {
        let body = json!({"headers": headers, "rules": rules});
        let answer = call(&server, &admin, "PUT", &format!("/rulesapi/groups/default/{group}"), &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let ann = permitted(&server, &admin, "ann", &["{view, alerting, cart}"]).await;
    let bob = permitted(&server, &admin, "bob", &["{edit, alerting, cart}"]).await;
    for (who, name, seen) in [(&admin, "admin", [1, 1, 2]), (&bob, "bob", [0; 3]), (&ann, "ann", [0; 3])] {
        let paths = ["/rulesapi/groups/default/own", "/rulesapi/groups/default/both", "/rulesapi/deploy"];
        for (path, seen) in paths.into_iter().zip(seen) {
            let text = call(&server, who, "GET", path, &Value::Null).await.text();
            assert_eq!(text.matches("hushhush").count(), seen, "{name} {path}: {text}");
            assert!(text.contains("Authorization: "), "{name} {path}: {text}");
        }
    }
}
