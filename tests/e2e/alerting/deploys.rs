//! Edits that wait for a deploy (`/rulesapi/settings`), and the forms in which rules are exported.

use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};

use crate::alerting::{Sink, is, sample, until};

const RULES: &str = "/rulesapi/rules";
const POLICY: &str = "/rulesapi/rulepolicy";

async fn call(server: &Server, method: &str, path: &str, body: &Value) -> Answer {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    server.send(method, path, &[("content-type", "application/json")], body).await
}

async fn made(server: &Server, path: &str, body: &Value) -> Value {
    let answer = call(server, "POST", path, body).await;
    assert_eq!(answer.status, 201, "{path} {body}: {}", answer.text());
    answer.json()
}

async fn deploy(server: &Server, path: &str, query: &str, yaml: &str) -> Answer {
    let headers = [("content-type", "application/yaml")];
    server.send("POST", &format!("{path}/deploy{query}"), &headers, yaml.as_bytes().to_vec()).await
}

/// Names of the rules that run, with their expressions.
async fn running(server: &Server) -> Vec<String> {
    let groups = server.get("/metrics-api/api/v1/rules").await.json()["data"]["groups"].clone();
    let rules =
        groups.as_array().into_iter().flatten().flat_map(|g| g["rules"].as_array().cloned().unwrap_or_default());
    rules.map(|r| format!("{}: {}", r["name"].as_str().unwrap_or(""), r["query"].as_str().unwrap_or(""))).collect()
}

fn options() -> Options {
    Options::default().env("QUIVER_EGRESS__ALLOW", "[\"127.0.0.0/8\"]")
}

fn id_of(entity: &Value) -> &str {
    entity["id"].as_str().expect("an id")
}

async fn settings(server: &Server, rules: bool, policy: bool) {
    let body = json!({"autoDeploy": {"rules": rules, "policy": policy}});
    let put = call(server, "PUT", "/rulesapi/settings", &body).await;
    assert_eq!((put.status, put.json()), (200, body), "{}", put.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_wait_for_a_deploy() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    let first = server.get("/rulesapi/settings").await;
    assert_eq!(first.json(), json!({"autoDeploy": {"rules": true, "policy": true}}));
    assert!(first.headers.contains_key("etag"));
    let refused = call(&server, "PUT", "/rulesapi/settings", &json!({"autoDeploy": {"rule": true}})).await;
    assert_eq!((refused.status, &refused.json()["errors"][0]["field"]), (422, &json!("/autoDeploy/rule")));
    let old = made(&server, RULES, &json!({"group": "g", "alert": "Old", "expr": "vector(0) == 1"})).await;
    assert!(old.get("staged").is_none(), "{old}");
    assert_eq!((&old["interval"], &old["limit"]), (&json!("1m"), &json!(0)));
    assert_eq!(running(&server).await, ["Old: vector(0) == 1"]);

    let dry = call(&server, "PUT", "/rulesapi/settings?dryRun=true", &json!({"autoDeploy": {"rules": false}})).await;
    assert_eq!(dry.json()["autoDeploy"], json!({"rules": false, "policy": true}));
    settings(&server, false, true).await;
    let patched = call(&server, "PATCH", &format!("{RULES}/{}", id_of(&old)), &json!({"expr": "vector(0) == 2"})).await;
    assert_eq!((&patched.json()["staged"], &patched.json()["expr"]), (&json!(true), &json!("vector(0) == 2")));
    let new = made(&server, RULES, &json!({"group": "h", "alert": "New", "expr": "vector(3)"})).await;
    let gone = made(&server, RULES, &json!({"group": "h", "alert": "Gone", "expr": "vector(4)"})).await;
    assert_eq!(call(&server, "DELETE", &format!("{RULES}/{}", id_of(&gone)), &Value::Null).await.status, 204);
    assert_eq!(running(&server).await, ["Old: vector(0) == 1"], "nothing acts yet");
    let listed = server.get(&format!("{RULES}?staged=true&count=true")).await.json();
    assert_eq!(listed["total"], json!(2), "{listed}");
    let groups = server.get("/rulesapi/groups").await.json();
    assert_eq!(
        (&groups["items"][0]["staged"], &groups["items"][0]["rules"][0]["staged"]),
        (&json!(true), &json!(true))
    );
    // What is read can be put back.
    let read = server.get(&format!("{RULES}/{}", id_of(&new))).await.json();
    let put = call(&server, "PUT", &format!("{RULES}/{}", id_of(&new)), &read).await;
    assert_eq!((put.status, &put.json()["version"]), (200, &json!(1)), "{}", put.text());
    let wrong = call(&server, "PATCH", &format!("{RULES}/{}", id_of(&new)), &json!({"interval": "7s"})).await;
    assert_eq!((wrong.status, &wrong.json()["errors"][0]["code"]), (422, &json!("READ_ONLY_FIELD")));

    // A restart keeps both states.
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &options()).await;
    assert_eq!(running(&server).await, ["Old: vector(0) == 1"]);
    let state = server.get(&format!("{RULES}/{}/state", id_of(&new))).await.json();
    assert_eq!(state["health"], json!("unknown"), "it does not run");

    // A file is deployed alone; the rest goes on waiting.
    let file = "groups: [{name: f, rules: [{alert: File, expr: vector(5)}]}]\n";
    let tried = deploy(&server, "/rulesapi", "?action=diff", file).await.json();
    assert_eq!((&tried["dryRun"], &tried["summary"]["created"]), (&json!(true), &json!(1)), "{tried}");
    let done = deploy(&server, "/rulesapi", "?source=git", file).await;
    assert_eq!(done.json()["summary"]["created"], json!(1), "{}", done.text());
    assert_eq!(running(&server).await, ["File: vector(5)", "Old: vector(0) == 1"]);
    // Without a body all that is saved acts.
    let tried = deploy(&server, "/rulesapi", "?action=diff", "").await.json();
    assert_eq!((&tried["summary"]["created"], &tried["summary"]["updated"]), (&json!(1), &json!(1)), "{tried}");
    let done = deploy(&server, "/rulesapi", "", "").await.json();
    assert_eq!(done["summary"], json!({"created": 1, "updated": 1, "deleted": 0, "unchanged": 1}), "{done}");
    assert_eq!(running(&server).await, ["File: vector(5)", "Old: vector(0) == 2", "New: vector(3)"]);
    assert_eq!(server.get(&format!("{RULES}?staged=true&count=true")).await.json()["total"], json!(0));
    // A deletion waits, too.
    assert_eq!(call(&server, "DELETE", &format!("{RULES}/{}", id_of(&new)), &Value::Null).await.status, 204);
    assert_eq!(running(&server).await.len(), 3);
    let done = deploy(&server, "/rulesapi", "", "").await.json();
    assert_eq!(done["changes"][0]["op"], json!("delete"), "{done}");
    assert_eq!(running(&server).await.len(), 2);
    // Switched back, edits act at once, those that waited as well.
    made(&server, RULES, &json!({"group": "g", "alert": "Late", "expr": "vector(6)"})).await;
    assert_eq!(running(&server).await.len(), 2);
    settings(&server, true, true).await;
    assert_eq!(running(&server).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_waits_for_a_deploy() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::open().await);
    let server = Server::start(dir.path(), &options()).await;
    settings(&server, true, false).await;
    let hook = json!({"url": format!("http://{}/", sink.address)});
    let ops = made(&server, &format!("{POLICY}/receivers"), &json!({"name": "ops", "webhook_configs": [hook]})).await;
    assert_eq!(ops["staged"], json!(true), "{ops}");
    let root = server.get(&format!("{POLICY}/routes/tree")).await.json();
    let patch = json!({"receiver": "ops", "group_wait": "1s", "group_by": ["alertname"]});
    let path = format!("{POLICY}/routes/{}", id_of(&root));
    assert_eq!(call(&server, "PATCH", &path, &patch).await.status, 200);
    let live = async || server.get("/api/v2/status").await.json()["config"]["original"].to_string();
    let revisions = async || server.get(&format!("{POLICY}/revisions")).await.json()["items"].as_array().map(Vec::len);
    let before = revisions().await;
    assert!(!live().await.contains("ops"), "{}", live().await);
    let tested = call(&server, "POST", &format!("{POLICY}/routes/test"), &json!({"labels": {"a": "b"}})).await.json();
    assert_eq!(tested["matches"][0]["receiver"], json!("empty"), "over the live policy: {tested}");
    // What is saved is checked as a whole all the same.
    let wrong = call(&server, "POST", &format!("{POLICY}/routes"), &json!({"receiver": "nobody"})).await;
    assert_eq!(wrong.status, 422, "{}", wrong.text());
    sample(&server, 0.0).await;
    let rule = json!({"interval": "1s", "rules": [{"alert": "ShopDown", "expr": "shop_up == 0"}]});
    assert_eq!(call(&server, "PUT", "/rulesapi/groups/shop/g", &rule).await.status, 201);
    until("it fires", async || server.get("/api/v2/alerts").await.json()[0]["labels"]["alertname"] == "ShopDown").await;
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &options()).await;
    assert!(sink.told().is_empty(), "{:?}", sink.told());
    let deployed = deploy(&server, POLICY, "", "").await;
    assert_eq!(deployed.json()["summary"]["created"], json!(1), "{}", deployed.text());
    let live = async || server.get("/api/v2/status").await.json()["config"]["original"].to_string();
    assert!(live().await.contains("ops"));
    sink.until("that the shop is down", is("ShopDown", "firing")).await;
    let revisions = async || server.get(&format!("{POLICY}/revisions")).await.json()["items"].clone();
    let all = revisions().await;
    assert_eq!(all.as_array().map(Vec::len), before.map(|n| n + 1), "one deploy, one revision: {all}");

    // Back to what was: it acts, and is what is saved.
    let back =
        call(&server, "POST", &format!("{POLICY}/revisions/{}/rollback", all[1]["revision"]), &Value::Null).await;
    assert_eq!(back.status, 200, "{}", back.text());
    assert!(!live().await.contains("ops"), "{}", live().await);
    assert_eq!(server.get(&format!("{POLICY}/receivers?name=ops&count=true")).await.json()["total"], json!(0));
    // Kinds that are not delivered are refused by a deploy, also of what is saved.
    let sns = json!({"name": "s", "sns_configs": [{"topic_arn": "x", "sigv4": {"region": "r"}}]});
    made(&server, &format!("{POLICY}/receivers"), &sns).await;
    let refused = deploy(&server, POLICY, "", "").await;
    assert_eq!((refused.status, &refused.json()["errors"][0]["code"]), (422, &json!("UNSUPPORTED")));
    assert_eq!(deploy(&server, POLICY, "?allowUnsupported=true", "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_come_back_as_they_were() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    let yaml = async |query: &str| server.get(&format!("/rulesapi/deploy{query}")).await.text();
    let group = json!({"interval": "30s", "params": {"extra_label": ["dc=a"]}, "rules": [
        {"alert": "A", "expr": "up == 0", "severity": "page", "service": "cart", "description": "d"},
        {"alert": "B", "expr": "* | stats count() n", "language": "logsql", "enabled": false},
    ]});
    let put = call(&server, "PUT", "/rulesapi/groups/default/g", &group).await;
    assert_eq!(put.status, 201, "{}", put.text());
    let whole = yaml("").await;
    assert_eq!(whole, yaml("?format=quiver").await, "the first that loses nothing");
    assert!(whole.contains("service: cart") && whole.contains("enabled: false"), "{whole}");
    let again = deploy(&server, "/rulesapi", "", &whole).await.json();
    assert_eq!(again["summary"], json!({"created": 0, "updated": 0, "deleted": 0, "unchanged": 2}), "{again}");
    assert_eq!(call(&server, "DELETE", "/rulesapi/groups/default/g", &Value::Null).await.status, 204);
    let back = deploy(&server, "/rulesapi", "", &whole).await;
    assert_eq!(back.json()["summary"]["created"], json!(2), "{}", back.text());
    assert_eq!(yaml("").await, whole);
    let rules = server.get(RULES).await.json()["items"].clone();
    assert_eq!((&rules[0]["service"], &rules[1]["language"]), (&json!("cart"), &json!("logsql")), "{rules}");
    assert_eq!((&rules[0]["description"], &rules[1]["enabled"]), (&json!("d"), &json!(false)));
    // Others read less.
    let plain = server.get("/rulesapi/deploy?format=prometheus").await;
    assert!(plain.headers.contains_key("warning") && !plain.text().contains("params"), "{}", plain.text());
    assert!(plain.text().contains("severity: page"), "{}", plain.text());
    assert_eq!(server.get("/rulesapi/deploy?format=xml").await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_read_what_their_group_lets_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    let now = quiver_types::Clock::now_ms(&quiver_types::SystemClock);
    for dc in ["a", "b"] {
        let series = [(vec![("__name__", "shop_up"), ("dc", dc), ("service", "web")], vec![(now, 0.0)])];
        server.write(quiver_tests::bodies::remote_write(&series)).await;
    }
    let rule = json!({"alert": "Down", "expr": "shop_up == 0", "service": "cart"});
    let group = json!({"interval": "1s", "params": {"extra_label": ["dc=a"]}, "rules": [rule]});
    assert_eq!(call(&server, "PUT", "/rulesapi/groups/default/g", &group).await.status, 201);
    let alerts = async || server.get("/metrics-api/api/v1/alerts").await.json()["data"]["alerts"].clone();
    until("it fires", async || alerts().await[0]["state"] == "firing").await;
    let found = alerts().await;
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
    // The service of the rule is for alerts that have none of their own.
    assert_eq!((&found[0]["labels"]["dc"], &found[0]["labels"]["service"]), (&json!("a"), &json!("web")), "{found}");
}
