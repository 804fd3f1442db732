//! The notification policy over REST: receivers, routes, whole configurations. Changes take effect at once and survive
//! restarts.

use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};

use crate::alerting::{Sink, at_rest, is, sample, write};

const POLICY: &str = "/rulesapi/rulepolicy";

async fn call(server: &Server, method: &str, path: &str, body: &Value) -> Answer {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    server.send(method, &format!("{POLICY}{path}"), &[("content-type", "application/json")], body).await
}

async fn made(server: &Server, path: &str, body: Value) -> Value {
    let answer = call(server, "POST", path, &body).await;
    assert_eq!(answer.status, 201, "{path} {body}: {}", answer.text());
    answer.json()
}

async fn yaml(server: &Server, query: &str, text: &str) -> Answer {
    let headers = [("content-type", "application/yaml")];
    server.send("POST", &format!("{POLICY}/deploy{query}"), &headers, text.as_bytes().to_vec()).await
}

fn options() -> Options {
    Options::default().env("QUIVER_EGRESS__ALLOW", "[\"127.0.0.0/8\"]")
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_and_routes_act_at_once() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::open().await);
    let server = Server::start(dir.path(), &options()).await;
    let tree = call(&server, "GET", "/routes/tree", &Value::Null).await.json();
    assert_eq!((&tree["receiver"], &tree["effective"]["group_wait"]), (&json!("empty"), &json!("30s")), "{tree}");
    let hook = json!({"url": format!("http://{}/hook?key=s3cret", sink.address)});
    let ops = made(&server, "/receivers", json!({"name": "ops", "webhook_configs": [hook]})).await;
    assert_eq!(ops["webhook_configs"][0]["url"], json!("<secret>"), "{ops}");
    let own = format!("/receivers/{}", ops["id"].as_str().expect("an id"));
    let tried = call(&server, "POST", &format!("{own}/test"), &json!({})).await.json();
    assert_eq!(tried["results"][0]["ok"], json!(true), "{tried}");
    sink.until("a test", |told| told["alerts"][0]["labels"]["alertname"] == "TestAlert").await;
    let route =
        json!({"receiver": "ops", "matchers": ["severity=\"page\""], "group_wait": "1s", "group_by": ["alertname"]});
    let page = made(&server, "/routes", route).await;
    // What is shown comes back and changes nothing.
    let body = json!({"name": "ops", "webhook_configs": ops["webhook_configs"], "description": "who is awake"});
    let put = call(&server, "PUT", &own, &body).await;
    assert_eq!((put.status, &put.json()["version"]), (200, &json!(2)), "{}", put.text());

    sample(&server, 0.0).await;
    let rules = json!({"interval": "1s", "rules": [{"alert": "ShopDown", "expr": "shop_up == 0", "severity": "page"}]});
    let body = rules.to_string().into_bytes();
    let answer = server.send("PUT", "/rulesapi/groups/shop/g", &[("content-type", "application/json")], body).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let told = sink.until("that the shop is down", is("ShopDown", "firing")).await;
    assert_eq!(told["groupKey"], json!("{}/{severity=\"page\"}:{alertname=\"ShopDown\"}"));
    let tried = call(&server, "POST", "/routes/test", &json!({"labels": {"severity": "page"}})).await.json();
    assert_eq!(tried["matches"][0]["routeId"], page["id"], "{tried}");

    // Siblings in order, moved, and never below themselves.
    let own = |route: &Value| format!("/routes/{}", route["id"].as_str().expect("an id"));
    let other = made(&server, "/routes", json!({"receiver": "empty", "matchers": [{"name": "a", "value": "b"}]})).await;
    let below = made(&server, "/routes", json!({"parentId": other["id"], "continue": true})).await;
    // Matchers that the two syntaxes read differently are taken, with a word about it.
    for (text, warned) in [("a=\"x\\ty\"", true), ("a=\"x\"", false)] {
        let tried = call(&server, "PATCH", &format!("{}?dryRun=true", own(&below)), &json!({"matchers": [text]})).await;
        assert_eq!((tried.status, tried.headers.contains_key("warning")), (200, warned), "{text}: {}", tried.text());
    }
    let moved = call(&server, "POST", &format!("{}/move", own(&other)), &json!({"before": page["id"]})).await;
    let ids = |tree: &Value| tree["routes"].as_array().map(|a| a.iter().map(|r| r["id"].clone()).collect::<Vec<_>>());
    assert_eq!(ids(&moved.json()), Some(vec![other["id"].clone(), page["id"].clone()]), "{}", moved.text());
    assert_eq!(moved.json()["routes"][0]["routes"][0]["effective"]["receiver"], json!("empty"));
    let order = json!({"ids": [page["id"], other["id"]]});
    let ordered = call(&server, "PUT", "/routes/order", &order).await.json();
    assert_eq!(ids(&ordered), Some(vec![page["id"].clone(), other["id"].clone()]));
    let cycle = call(&server, "POST", &format!("{}/move", own(&other)), &json!({"parentId": below["id"]})).await;
    assert_eq!((cycle.status, &cycle.json()["code"]), (409, &json!("CYCLE")), "{}", cycle.text());

    // Those below a route that goes take its place, if they are to.
    assert_eq!(call(&server, "DELETE", &format!("{}?children=up", own(&other)), &Value::Null).await.status, 400);
    assert_eq!(call(&server, "PATCH", &format!("{}?children=lift", own(&other)), &json!({})).await.status, 400);
    let lifted = call(&server, "DELETE", &format!("{}?children=lift", own(&other)), &Value::Null).await;
    assert_eq!(lifted.status, 204, "{}", lifted.text());
    let tree = call(&server, "GET", "/routes/tree", &Value::Null).await.json();
    assert_eq!(ids(&tree), Some(vec![page["id"].clone(), below["id"].clone()]), "{tree}");

    // What is named stays; what is wrong says where.
    let named = format!("/receivers/{}", ops["id"].as_str().expect("an id"));
    let refused = call(&server, "DELETE", &named, &Value::Null).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("REFERENCED")), "{}", refused.text());
    assert_eq!(refused.json()["hiddenReferences"], 0, "{}", refused.text());
    for (path, body, field) in [
        ("/receivers", json!({"name": "x", "webhook_configs": [{"url": "ftp://x"}]}), "/webhook_configs/0/url"),
        ("/receivers", json!({"name": "x", "slack_configs": [{"foo": 1}]}), "/slack_configs/0/foo"),
        ("/routes", json!({"receiver": "nobody"}), "/receiver"),
        ("/routes", json!({"receiver": "ops", "matchers": ["=b"]}), "/matchers/0"),
        ("/routes", json!({"mute_time_intervals": ["none"]}), "/mute_time_intervals"),
        ("/templates", json!({"name": "t", "content": "{{ define"}), "/content"),
        ("/inhibit-rules", json!({"source_matchers": ["a=~\"(\""]}), "/source_matchers/0"),
    ] {
        let answer = call(&server, "POST", path, &body).await;
        assert_eq!(answer.status, 422, "{path} {body}: {}", answer.text());
        assert_eq!(answer.json()["errors"][0]["field"], json!(field), "{}", answer.text());
    }
    let root = format!("/routes/{}", tree["id"].as_str().expect("an id"));
    assert_eq!(call(&server, "DELETE", &root, &Value::Null).await.json()["code"], json!("MANAGED_ENTITY"));
    let global =
        call(&server, "PATCH", "/global", &json!({"resolve_timeout": "1m", "smtp_auth_password": "p4ss"})).await;
    assert_eq!(global.json()["smtp_auth_password"], json!("<secret>"), "{}", global.text());
    assert_eq!(call(&server, "PUT", "/global", &json!({"nonsense": 1})).await.status, 422);

    // Nothing is forgotten, and nothing is told twice.
    at_rest(&server).await;
    let before = sink.told().len();
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &options()).await;
    let answer = server.get(&format!("{POLICY}/deploy")).await;
    assert!(answer.text().contains("severity=") && !answer.text().contains("s3cret"), "{}", answer.text());
    let whole = server.get(&format!("{POLICY}/deploy?secrets=true")).await.text();
    assert!(whole.contains("s3cret") && whole.contains("p4ss"), "{whole}");
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(sink.told().len(), before, "{:#?}", sink.told());
}

const WHOLE: &str = "global:
  resolve_timeout: 7m
route:
  receiver: night
  group_by: [service]
  routes:
    - match_re: {severity: page|down}
      receiver: ops
      group_wait: 10s
      routes:
        - matchers: [team=\"web\"]
          continue: true
    - matchers: ['severity=\"info\"']
      mute_time_intervals: [always]
receivers:
  - name: night
  - name: ops
    webhook_configs:
      - url: http://127.0.0.1:9/x?key=s3cret
time_intervals:
  - name: always
    time_intervals:
      - weekdays: ['sunday:saturday']
inhibit_rules:
  - source_matchers: [severity=\"page\"]
    target_matchers: [severity=\"info\"]
    equal: [service]
";

#[tokio::test(flavor = "multi_thread")]
async fn whole_configurations_are_deployed() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    made(&server, "/receivers", json!({"name": "old"})).await;
    let tried = yaml(&server, "?action=diff", WHOLE).await;
    assert_eq!(tried.json()["summary"]["created"], json!(7), "{}", tried.text());
    assert!(server.get("/api/v2/status").await.text().contains("receiver: empty"), "nothing has changed");
    let done = yaml(&server, "?source=git", WHOLE).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(done.json()["summary"]["deleted"], json!(1), "{}", done.text());
    // The number that it names is that of a revision.
    let kept = server.get(&format!("{POLICY}/revisions/{}", done.json()["revision"])).await;
    assert_eq!((kept.status, &kept.json()["live"]), (200, &json!(true)), "{}", kept.text());
    let first = server.get(&format!("{POLICY}/deploy")).await.text();
    assert!(first.contains("severity=~\\\"^(?:page|down)$\\\"") || first.contains("^(?:page|down)$"), "{first}");
    assert!(!first.contains("empty") && !first.contains("s3cret"), "{first}");
    // The same again changes nothing; what is exported is what was applied.
    let again = yaml(&server, "?source=git", WHOLE).await.json();
    let changed = ["created", "updated", "deleted"].map(|key| again["summary"][key].clone());
    assert_eq!(changed, [json!(0), json!(0), json!(0)], "{again}");
    let whole = server.get(&format!("{POLICY}/deploy?secrets=true")).await.text();
    assert_eq!(yaml(&server, "?source=git", &whole).await.json()["summary"]["updated"], json!(0));
    assert_eq!(server.get(&format!("{POLICY}/deploy?secrets=true")).await.text(), whole);
    let matches = call(&server, "POST", "/routes/test", &json!({"labels": {"severity": "down", "team": "web"}})).await;
    let found = &matches.json()["matches"][0];
    assert_eq!((&found["receiver"], &found["group_by"]), (&json!("ops"), &json!(["service"])), "{found}");
    assert_eq!(found["path"].as_array().map(Vec::len), Some(3));
    let live = server.get("/api/v2/status").await.json()["config"]["original"].to_string();
    assert!(live.contains("ops") && !live.contains("s3cret"), "{live}");

    // What is wrong has a line, and nothing is applied.
    let bad = yaml(&server, "", "route:\n  receiver: nobody\nreceivers: []\n").await;
    assert_eq!((bad.status, &bad.json()["errors"][0]["line"]), (422, &json!(2)), "{}", bad.text());
    assert_eq!(yaml(&server, "", "route: [").await.json()["code"], json!("MALFORMED_YAML"));
    let long = format!("route: {{receiver: a}}\nreceivers: [{{name: a}}, {{name: {}}}]\n", "x".repeat(300));
    let bad = yaml(&server, "", &long).await;
    assert_eq!((bad.status, &bad.json()["errors"][0]["field"]), (422, &json!("/receivers/1/name")), "{}", bad.text());
    let sns = "route: {receiver: a}\nreceivers: [{name: a, sns_configs: [{topic_arn: x, sigv4: {region: r}}]}]\n";
    assert_eq!(yaml(&server, "", sns).await.json()["errors"][0]["code"], json!("UNSUPPORTED"));
    assert_eq!(yaml(&server, "?allowUnsupported=true&action=validate", sns).await.status, 200);
    let by_reference = "route: {receiver: a}\nreceivers: [{name: a, webhook_configs: [{url: 'http://h', http_config: {basic_auth: {password_ref: x}}}]}]\n";
    let refused = yaml(&server, "", by_reference).await.json()["errors"][0].clone();
    assert_eq!(refused["code"], json!("UNSUPPORTED"));
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("basic_auth.password_ref")), "{refused}");
    assert_eq!(server.get(&format!("{POLICY}/deploy?secrets=true")).await.text(), whole);
    let audit = server.get("/platform-api/rbac/audit?action=EXPORT_SECRETS").await.json();
    assert_eq!(audit["items"].as_array().map(Vec::len), Some(3), "each of them: {audit}");
    assert_eq!(audit["items"][0]["entityName"], json!("GET /rulesapi/rulepolicy/deploy"), "{audit}");
    // What a deploy owns is changed by deploys.
    let ops = server.get(&format!("{POLICY}/receivers?name=ops")).await.json()["items"][0].clone();
    assert_eq!(ops["managedBy"], json!("deploy:git"), "{ops}");
    let own = format!("/receivers/{}", ops["id"].as_str().expect("an id"));
    assert_eq!(call(&server, "PATCH", &own, &json!({"description": "x"})).await.status, 409);
}

/// Without the first of its webhooks, a receiver tells the second by its own address.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_go_with_their_webhooks() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::open().await);
    let server = Server::start(dir.path(), &options()).await;
    let gone = json!({"url": "http://127.0.0.1:1/?key=g0ne"});
    let kept = json!({"url": format!("http://{}/hook?key=s3cret", sink.address), "max_alerts": 9});
    let two = made(&server, "/receivers", json!({"name": "two", "webhook_configs": [gone, kept]})).await;
    let own = format!("/receivers/{}", two["id"].as_str().expect("an id"));
    let changed = json!({"webhook_configs": [{"url": "<secret>", "max_alerts": 8}]});
    let refused = call(&server, "PATCH", &own, &changed).await;
    let error = &refused.json()["errors"][0];
    assert_eq!((refused.status, &error["code"]), (422, &json!("REQUIRED")), "which of them it was: {error}");
    let one = json!({"webhook_configs": [two["webhook_configs"][1]]});
    let patched = call(&server, "PATCH", &own, &one).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    let tried = call(&server, "POST", &format!("{own}/test"), &json!({})).await.json();
    assert_eq!(tried["results"][0]["ok"], json!(true), "{tried}");
}

/// Who may edit receivers does not get at their secrets by a host of his own.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_stay_with_their_addresses() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    let hook = |url: &str, token: &str| {
        let http = json!({"authorization": {"credentials": token}});
        json!({"webhook_configs": [{"url": url, "http_config": http}]})
    };
    let mut body = hook("http://127.0.0.1:1/a", "s3cret");
    body["name"] = json!("ops");
    let ops = made(&server, "/receivers", body).await;
    let own = format!("/receivers/{}", ops["id"].as_str().expect("an id"));
    let check = async |method: &str, path: &str, body: Value, refused: &str| {
        let answer = call(&server, method, path, &body).await;
        assert_eq!(answer.status, if refused.is_empty() { 200 } else { 422 }, "{path} {body}: {}", answer.text());
        if !refused.is_empty() {
            let error = &answer.json()["errors"][0];
            assert_eq!((&error["field"], &error["code"]), (&json!(refused), &json!("REQUIRED")), "{error}");
        }
    };
    let credentials = "/webhook_configs/0/http_config/authorization/credentials";
    check("PATCH", &own, hook("http://127.0.0.1:1/b", "<secret>"), "").await;
    check("PATCH", &own, hook("http://127.0.0.1:2/b", "<secret>"), credentials).await;
    check("PATCH", &own, hook("http://127.0.0.1:2/b", "s3cret"), "").await;
    // A former version would have the present secret sent to the former address.
    check("POST", &format!("{own}/restore"), json!({"version": 1}), credentials).await;

    let mail = json!({"smtp_smarthost": "127.0.0.1:1", "smtp_from": "q@b.example", "smtp_auth_password": "p4ss"});
    check("PATCH", "/global", mail, "").await;
    check("PATCH", "/global", json!({"smtp_smarthost": "127.0.0.1:2"}), "/smtp_auth_password").await;
    check("PATCH", "/global", json!({"smtp_smarthost": "127.0.0.1:2", "smtp_auth_password": "p4ss"}), "").await;
    let other = json!({"email_configs": [{"to": "a@b.example", "smarthost": "127.0.0.1:3"}]});
    check("PATCH", &own, other.clone(), "/email_configs/0/auth_password").await;
    let tried = "/receiver/email_configs/0/auth_password";
    check("POST", "/receivers/test", json!({"receiver": other}), tried).await;
    check("PATCH", &own, json!({"email_configs": [{"to": "a@b.example"}]}), "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_of_a_file_goes_before() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = write(&dir.path().join("policy.yml"), "route: {receiver: mine}\nreceivers: [{name: mine}]\n");
    let data = dir.path().join("data");
    let server = Server::start(&data, &options().args(&["--alert-policy", &file])).await;
    let refused = call(&server, "POST", "/receivers", &json!({"name": "x"})).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("MANAGED_ENTITY")), "{}", refused.text());
    assert!(server.get("/api/v2/status").await.text().contains("mine"));
    let tried = call(&server, "POST", "/routes/test", &json!({"labels": {"a": "b"}})).await;
    assert_eq!(tried.json()["matches"][0]["receiver"], json!("mine"));
}
