//! Alerting in the running server: rules fire, receivers are notified, alerts are posted and silenced, and kills lose
//! nothing.

mod deploys;
mod history;
mod policy;
mod reliability;
mod silences;
mod stored_rules;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quiver_tests::bodies::remote_write;
use quiver_tests::server::{Options, Server};
pub(crate) use quiver_tests::time_limits::until;
use quiver_types::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A webhook receiver that keeps what it was told; it answers 500 as often as it is asked to.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) address: String,
    told: Arc<Mutex<Vec<Value>>>,
    failures: Arc<AtomicUsize>,
}

impl Sink {
    pub(crate) async fn open() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = socket.local_addr().expect("an address").to_string();
        let (told, failures) = (Arc::<Mutex<Vec<Value>>>::default(), Arc::<AtomicUsize>::default());
        let (kept, failing) = (Arc::clone(&told), Arc::clone(&failures));
        tokio::spawn(async move {
            while let Ok((mut peer, _)) = socket.accept().await {
                let (kept, failing) = (Arc::clone(&kept), Arc::clone(&failing));
                tokio::spawn(async move {
                    let (mut text, mut buffer) = (Vec::new(), vec![0; 65_536]);
                    let body = loop {
                        let n = peer.read(&mut buffer).await.unwrap_or(0);
                        text.extend_from_slice(&buffer[..n]);
                        let Some(at) = text.windows(4).position(|w| w == b"\r\n\r\n") else {
                            if n == 0 {
                                return;
                            }
                            continue;
                        };
                        if let Ok(body) = serde_json::from_slice::<Value>(&text[at + 4..]) {
                            break body;
                        }
                        if n == 0 {
                            return;
                        }
                    };
                    let fails = failing.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok();
                    let status = if fails { "500 no" } else { "200 OK" };
                    if !fails {
                        kept.lock().expect("whole").push(body);
                    }
                    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                    let _ = peer.write_all(answer.as_bytes()).await;
                });
            }
        });
        Self { address, told, failures }
    }

    pub(crate) fn told(&self) -> Vec<Value> {
        self.told.lock().expect("whole").clone()
    }

    /// Waits until something that it was told fits.
    pub(crate) async fn until(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            if let Some(found) = self.told().into_iter().find(|v| fits(v)) {
                return found;
            }
            assert!(began.elapsed() < Duration::from_mins(5), "never told: {what}; {:#?}", self.told());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn now_ms() -> i64 {
    SystemClock.now_ms()
}

pub(crate) fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).expect("writable");
    path.display().to_string()
}

const RULES: &str = r#"groups:
- name: shop
  interval: 1s
  labels: {team: web}
  rules:
  - record: shop:up:sum
    expr: sum(shop_up)
  - alert: ShopDown
    expr: shop:up:sum == 0
    labels: {severity: page}
    annotations: {summary: 'shop has {{ $value }} of {{ with query "count(shop_up)" }}{{ . | first | value }}{{ end }}'}
  - alert: Broken
    expr: label_join(shop_up or label_replace(shop_up, "x", "1", "", ""), "x", "")
- name: logs
  type: vlogs
  interval: 1s
  rules:
  - alert: Errors
    expr: '_time:1h level:error | stats by (app) count() n | filter n:>1'
"#;

pub(crate) fn policy(sink: &str) -> String {
    format!(
        "route:\n  receiver: nobody\n  group_by: [alertname]\n  group_wait: 100ms\n  group_interval: 1s\n  routes:\n  \
         - receiver: hook\n    matchers: ['alertname=~\"ShopDown|Posted|Errors\"']\n    \
         labels: {{tier: one, of: '{{{{ .CommonLabels.team }}}}'}}\n\
         receivers:\n- name: nobody\n- name: hook\n  webhook_configs:\n  - url: http://{sink}/hook\n"
    )
}

/// Options of a server that notifies a sink by [`policy`], which is written into a folder.
pub(crate) fn notifying(dir: &Path, sink: &Sink) -> Options {
    let policy = write(&dir.join("policy.yml"), &policy(&sink.address));
    Options::default().args(&["--alert-policy", &policy]).env("QUIVER_EGRESS__ALLOW", "[\"127.0.0.0/8\"]")
}

pub(crate) async fn sample(server: &Server, value: f64) {
    let series = [(vec![("__name__", "shop_up"), ("instance", "a")], vec![(now_ms(), value)])];
    server.write(remote_write(&series)).await;
}

/// Waits until no message is under way: that one was told is noted then, and outlives a kill.
pub(crate) async fn at_rest(server: &Server) {
    until("no message is under way", async || {
        server.get("/metrics").await.text().contains("\nquiver_notification_queue_length 0\n")
    })
    .await;
}

pub(crate) fn is(alert: &str, status: &str) -> impl Fn(&Value) -> bool {
    let (alert, status) = (alert.to_owned(), status.to_owned());
    move |told| told["groupLabels"]["alertname"] == *alert && told["status"] == *status
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_fire_and_a_webhook_is_told() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::open().await);
    let rules = write(&dir.path().join("rules.yml"), RULES);
    let policy = write(&dir.path().join("policy.yml"), &policy(&sink.address));
    let options = Options::default()
        .args(&["--rules", &rules, "--alert-policy", &policy])
        .env("QUIVER_EGRESS__ALLOW", "[\"127.0.0.0/8\"]")
        .env("QUIVER_ALERTING__EXTERNAL_LABELS", "[\"dc=north\"]");
    let server = Server::start(&dir.path().join("data"), &options).await;
    sink.failures.store(2, SeqCst);
    sample(&server, 0.0).await;

    let told = sink.until("that the shop is down", is("ShopDown", "firing")).await;
    let alert = &told["alerts"][0];
    assert_eq!(
        (&told["version"], &told["receiver"], &told["routeLabels"]),
        (&json!("4"), &json!("hook"), &json!({"tier": "one", "of": "web"}))
    );
    assert_eq!(told["groupKey"], "{}/{alertname=~\"ShopDown|Posted|Errors\"}:{alertname=\"ShopDown\"}");
    assert_eq!(told["notification_reason"], "first notification");
    let labels = json!({"alertname": "ShopDown", "severity": "page", "team": "web", "dc": "north"});
    assert_eq!((&alert["labels"], &alert["status"]), (&labels, &json!("firing")));
    assert_eq!(alert["annotations"], json!({"summary": "shop has 0 of 1"}));
    assert_eq!(told["externalURL"], format!("http://{}", server.http));
    assert!(alert["generatorURL"].as_str().is_some_and(|u| u.contains("/graph?g0.expr=shop%3Aup%3Asum")), "{alert}");

    // What rules wrote is there as any other series.
    let now = now_ms() as f64 / 1000.0;
    let series = server.query("ALERTS{alertstate=\"firing\"}", now).await;
    assert_eq!(series["result"][0]["metric"]["alertname"], "ShopDown", "{series}");
    assert_eq!(server.query("shop:up:sum", now).await["result"][0]["metric"]["team"], "web");
    assert_eq!(server.query("ALERTS_FOR_STATE", now).await["result"].as_array().map(Vec::len), Some(1));

    // One that errs harms only itself, and is told.
    let groups = server.get("/metrics-api/api/v1/rules").await.json()["data"]["groups"].clone();
    let shop = groups.as_array().and_then(|g| g.iter().find(|g| g["name"] == "shop")).expect("the group");
    assert_eq!((&shop["file"], &shop["interval"]), (&json!(rules), &json!(1)));
    let kinds: Vec<_> =
        (0..3).map(|i| (shop["rules"][i]["type"].clone(), shop["rules"][i]["health"].clone())).collect();
    assert_eq!(
        kinds,
        [("recording", "ok"), ("alerting", "ok"), ("alerting", "err")].map(|(a, b)| (json!(a), json!(b)))
    );
    assert_eq!(shop["rules"][1]["state"], "firing");
    assert_eq!(shop["rules"][1]["alerts"][0]["value"], "0e+00");
    let filtered = [("type", "alert"), ("rule_name[]", "ShopDown"), ("exclude_alerts", "true")];
    let filtered = server.get_with("/metrics-api/api/v1/rules", &filtered).await.json()["data"]["groups"].clone();
    assert_eq!(
        (filtered[0]["rules"].as_array().map(Vec::len), &filtered[0]["rules"][0]["alerts"]),
        (Some(1), &Value::Null)
    );
    let page = server.get("/metrics-api/api/v1/rules?group_limit=1").await.json()["data"].clone();
    let next = page["groupNextToken"].as_str().expect("a token").to_owned();
    let page = server.get(&format!("/metrics-api/api/v1/rules?group_limit=1&group_next_token={next}")).await.json();
    assert_eq!(
        (page["data"]["groups"][0]["name"].clone(), page["data"]["groupNextToken"].clone()),
        (json!("shop"), Value::Null)
    );
    let alerts = server.get("/metrics-api/api/v1/alerts").await.json()["data"]["alerts"].clone();
    assert_eq!((alerts.as_array().map(Vec::len), &alerts[0]["state"]), (Some(1), &json!("firing")));

    // Logs by their language.
    let line = |app: &str| format!("{{\"_msg\":\"x\",\"level\":\"error\",\"app\":\"{app}\"}}\n");
    let lines = line("cart") + &line("cart") + &line("pay");
    server.post("/insert/jsonline?_stream_fields=app", &[], lines.into_bytes()).await;
    let told = sink.until("errors in logs", is("Errors", "firing")).await;
    assert_eq!(
        told["alerts"][0]["labels"],
        json!({"alertname": "Errors", "app": "cart", "stats_result": "n", "dc": "north"})
    );

    sample(&server, 1.0).await;
    let told = sink.until("that the shop is up", is("ShopDown", "resolved")).await;
    assert_eq!(
        (&told["notification_reason"], &told["alerts"][0]["status"]),
        (&json!("all alerts resolved"), &json!("resolved"))
    );
    let metrics = server.get("/metrics").await.text();
    for line in ["quiver_notifications_total{integration=\"webhook\"}", "quiver_rule_group_evaluations_total"] {
        assert!(metrics.contains(line), "{line}");
    }

    // Rules are read anew, all or nothing.
    write(Path::new(&rules), "groups: [{name: shop, rules: [{alert: A, expr: 'up =='}]}]\n");
    let refused = server.post("/admin/reload", &[], vec![]).await;
    assert!(refused.status == 400 && refused.text().contains("rules.yml: 1:"), "{}", refused.text());
    write(Path::new(&rules), "groups: [{name: other, interval: 1s, rules: [{alert: Always, expr: vector(1)}]}]\n");
    server.hangup();
    until("the new rules", async || {
        let alerts = server.get("/metrics-api/api/v1/alerts").await.json();
        alerts["data"]["alerts"][0]["labels"]["alertname"] == "Always"
    })
    .await;
    assert_eq!(server.query("ALERTS{alertname=\"Errors\"}", now_ms() as f64 / 1000.0).await["result"], json!([]));
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn posted_alerts_outlive_kills_and_are_silenced() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::open().await);
    let options = notifying(dir.path(), &sink);
    let data = dir.path().join("data");
    let server = Server::start(&data, &options).await;
    let send = async |server: &Server, path: &str, body: &str| {
        server.post(path, &[("content-type", "application/json")], body.as_bytes().to_vec()).await
    };
    let posted = |n: &str| {
        format!("[{{\"labels\":{{\"alertname\":\"Posted\",\"n\":\"{n}\"}},\"annotations\":{{\"a\":\"b\"}}}}]")
    };
    let answer = send(&server, "/api/v2/alerts", &posted("1")).await;
    assert_eq!((answer.status, answer.body.len()), (200, 0), "{}", answer.text());
    server.kill();
    // Acknowledged means told, though the server was killed at once; and told once, though it is killed again.
    let server = Server::start(&data, &options).await;
    sink.until("the alert of before", is("Posted", "firing")).await;
    at_rest(&server).await;
    server.kill();
    let server = Server::start(&data, &options).await;
    let rows = server.get("/api/v2/alerts").await.json();
    assert_eq!((&rows[0]["labels"]["n"], &rows[0]["status"]["state"]), (&json!("1"), &json!("active")));
    assert_eq!(rows[0]["receivers"], json!([{"name": "hook"}]));
    assert!(rows[0].get("generatorURL").is_none(), "{rows}");

    // A silence covers what comes after it.
    let silence = json!({
        "matchers": [{"name": "n", "value": "2", "isRegex": false}], "startsAt": "2020-01-01T00:00:00Z",
        "endsAt": "2100-01-01T00:00:00Z", "createdBy": "me", "comment": "quiet",
    });
    let id = send(&server, "/api/v2/silences", &silence.to_string()).await.json()["silenceID"].clone();
    let id = id.as_str().expect("an id");
    assert_eq!(send(&server, "/api/v2/alerts", &posted("2")).await.status, 200);
    assert_eq!(send(&server, "/api/v2/alerts", &posted("3")).await.status, 200);
    let told = sink.until("the third one", |told| told.to_string().contains("\"n\":\"3\"")).await;
    assert!(!told.to_string().contains("\"n\":\"2\""), "{told}");
    let rows = server.get("/api/v2/alerts?active=false").await.json();
    assert_eq!((rows.as_array().map(Vec::len), &rows[0]["status"]["silencedBy"]), (Some(1), &json!([id])));
    let groups = server.get("/api/v2/alerts/groups?filter=n%3D%221%22").await.json();
    assert_eq!(
        (&groups[0]["receiver"]["name"], groups[0]["alerts"].as_array().map(Vec::len)),
        (&json!("hook"), Some(1))
    );
    assert_eq!(server.get("/api/v2/silences?expired=false").await.json()[0]["status"]["state"], "active");
    assert_eq!(server.send("DELETE", &format!("/api/v2/silence/{id}"), &[], vec![]).await.status, 200);
    assert_eq!(server.get(&format!("/api/v2/silence/{id}")).await.json()["status"]["state"], "expired");
    sink.until("the second one", |told| told.to_string().contains("\"n\":\"2\"")).await;

    // Each was told once, whatever the kills.
    let first = sink.told().iter().filter(|t| t["notification_reason"] == "first notification").count();
    assert_eq!(first, 1, "{:#?}", sink.told());

    // An Alertmanager as sender, and what it takes back.
    let envelope =
        json!({"receiver": "x", "status": "resolved", "alerts": [{"labels": {"alertname": "Posted", "n": "1"}}]});
    assert_eq!(send(&server, "/api/v2/alertprocess", &envelope.to_string()).await.status, 200);
    sink.until("an end", |told| told["notification_reason"] == "some alerts resolved").await;
    let check = async |path: &str, body: &str, status: u16, part: &str| {
        let answer = send(&server, path, body).await;
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.text());
        assert!(answer.json().as_str().is_some_and(|text| text.contains(part)), "{}", answer.text());
    };
    check("/api/v2/alerts", "[{\"labels\":{}}]", 400, "label").await;
    check("/api/v2/alerts", "{", 400, "parsing").await;
    check("/api/v2/silences", "{", 400, "parsing").await;
    for (path, body, code, message) in [
        ("/api/v2/alerts", "[{}]", 602, "0.labels in body is required"),
        ("/api/v2/silences", "{}", 602, "comment in body is required"),
        ("/api/v2/silences", "", 602, "silence in body is required"),
    ] {
        let answer = send(&server, path, body).await;
        assert_eq!(answer.status, 422, "{path} {body}: {}", answer.text());
        assert_eq!(answer.json(), json!({"code": code, "message": message}), "{path} {body}");
    }
    check("/api/v2/silences", &silence.to_string().replace("2100", "2021"), 400, "past").await;
    let unknown = "/api/v2/silence/0191d0a0-7c3e-7abc-8def-0123456789ab";
    // What is no id is told as Alertmanager's own check of the request does.
    for (path, status) in [(unknown, 404), ("/api/v2/silence/none", 422)] {
        assert_eq!(server.get(path).await.status, status, "{path}");
        assert_eq!(server.send("DELETE", path, &[], vec![]).await.status, status, "{path}");
    }
    let told = server.get("/api/v2/silence/none").await.json();
    assert_eq!(told, json!({"code": 601, "message": "silenceID in path must be of type uuid: \"none\""}));
    let json = [("content-type", "application/json")];
    let alerts =
        |url: &str| json!([{"labels": {"odd": "0"}}, {"labels": {"odd": "1"}, "generatorURL": url}]).to_string();
    let posted = server.send("POST", "/api/v2/alerts", &json, alerts("::bad").into_bytes()).await;
    assert_eq!(posted.status, 422, "{}", posted.text());
    assert_eq!(posted.json(), json!({"code": 601, "message": "1.generatorURL in body must be of type uri: \"::bad\""}));
    let none = server.get("/api/v2/alerts?filter=odd%3D~%22.%2B%22").await.json();
    assert_eq!(none, json!([]));
    let status = server.get("/api/v2/status").await.json();
    assert_eq!(status["versionInfo"]["version"], "0.34.0");
    let original = status["config"]["original"].as_str().expect("a text");
    // An address without a name, a password and parameters is no secret.
    assert!(original.contains(&sink.address), "{original}");
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_goes_where_egress_does_not_let_it() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::open().await);
    let policy = write(&dir.path().join("policy.yml"), &policy(&sink.address));
    let server = Server::start(&dir.path().join("data"), &Options::default().args(&["--alert-policy", &policy])).await;
    let body = b"[{\"labels\":{\"alertname\":\"Posted\"}}]".to_vec();
    assert_eq!(server.post("/api/v2/alerts", &[("content-type", "application/json")], body).await.status, 200);
    until("a refusal", async || {
        let metrics = server.get("/metrics").await.text();
        metrics.contains("quiver_notifications_failed_total{integration=\"webhook\",reason=\"other\"} 1")
    })
    .await;
    assert!(sink.told().is_empty());
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_rule_and_a_policy_would_do() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::open().await);
    let options = notifying(dir.path(), &sink);
    let server = Server::start(&dir.path().join("data"), &options).await;
    sample(&server, 0.0).await;
    let ask = async |path: &str, body: Value| {
        let headers = [("content-type", "application/json")];
        let answer = server.post(&format!("/rulesapi/{path}"), &headers, body.to_string().into_bytes()).await;
        (answer.status, answer.json())
    };
    let rule = json!({"alert": "A", "expr": "shop_up == 0", "for": "1m", "severity": "page", "annotations": {"s": "{{ $value }}"}});
    let (status, one) = ask("rules/test", json!({"rule": rule})).await;
    let labels = json!({"alertname": "A", "instance": "a", "severity": "page"});
    let expected = json!([{"labels": labels, "value": 0.0, "state": "pending", "annotations": {"s": "0"}}]);
    assert_eq!((status, &one["series"]), (200, &expected), "{one}");
    // The sample lies within this second.
    let now = now_ms() / 1000 + 1;
    let (_, many) = ask("rules/test", json!({"rule": rule, "start": now, "end": now + 120, "step": "30s"})).await;
    let states: Vec<&Value> = many["series"][0]["points"].as_array().expect("points").iter().map(|p| &p[2]).collect();
    assert_eq!(states, ["pending", "pending", "firing", "firing", "firing"]);
    let (status, told) = ask("rules/test", json!({"rule": {"alert": "A", "expr": "up =="}})).await;
    assert_eq!((status, &told["errors"][0]["code"]), (422, &json!("INVALID_EXPR")), "{told}");
    let (status, recorded) = ask("rules/test", json!({"rule": {"record": "r", "expr": "shop_up + 1"}})).await;
    assert_eq!((status, &recorded["series"][0]["value"]), (200, &json!(1.0)), "{recorded}");
    assert_eq!(server.query("r", now as f64 + 1.0).await["result"], json!([]), "nothing is stored");

    let (status, routes) = ask("rulepolicy/routes/test", json!({"labels": {"alertname": "Posted"}})).await;
    let found = &routes["matches"][0];
    assert_eq!((status, &found["receiver"], &found["routeId"]), (200, &json!("hook"), &json!("root/0")));
    assert_eq!((&found["group_interval"], &found["group_by"]), (&json!("1s"), &json!(["alertname"])));
    let text = "{{ template \"slack.default.title\" . }} {{ .Receiver }} {{ .RouteLabels.t }} {{ routeLabels \"t\" }}";
    let (group, route) = (json!({"alertname": "A"}), json!({"t": "{{ .GroupLabels.alertname }}s"}));
    let alerts = [json!({"labels": group})];
    let body = json!({"text": text, "alerts": alerts, "groupLabels": group, "routeLabels": route, "receiver": "r"});
    let (status, shown) = ask("rulepolicy/templates/test", body).await;
    assert_eq!((status, &shown["output"]), (200, &json!("[FIRING:1] A  r As As")), "{shown}");
    let (status, told) = ask("rulepolicy/templates/test", json!({"text": "a\n{{ nope }}"})).await;
    assert_eq!(
        (status, &told["code"], &told["errors"][0]["line"]),
        (422, &json!("INVALID_TEMPLATE"), &json!(2)),
        "{told}"
    );

    let checked = json!({"receiver": "hook", "alerts": [{"labels": {"alertname": "Unsent"}}]});
    let (status, results) = ask("rulepolicy/receivers/test?dryRun=true", checked).await;
    let result = &results["results"][0];
    assert_eq!((status, &result["ok"], &result["error"]), (200, &json!(false), &json!("not sent: a dry run")));
    let (status, results) = ask("rulepolicy/receivers/test", json!({"receiver": "hook"})).await;
    let result = &results["results"][0];
    assert_eq!((status, &result["ok"], &result["httpStatus"]), (200, &json!(true), &json!(200)), "{results}");
    sink.until("a test", |told| told["alerts"][0]["labels"]["alertname"] == "TestAlert").await;
    assert!(sink.told().iter().all(|told| told["alerts"][0]["labels"]["alertname"] != "Unsent"), "a dry run was sent");
    let own = json!({"receiver": {"name": "x", "webhook_configs": [{"url": "http://169.254.169.254/"}]}});
    let (_, results) = ask("rulepolicy/receivers/test", own).await;
    let error = results["results"][0]["error"].as_str().expect("a refusal");
    assert!(error.contains("egress refused"), "{error}");
    // Its fields may stand beside the alerts.
    let whole = json!({"name": "x", "webhook_configs": [{"url": format!("http://{}/whole", sink.address)}],
        "alerts": [{"labels": {"alertname": "Whole"}}]});
    let (status, results) = ask("rulepolicy/receivers/test", whole).await;
    assert_eq!((status, &results["results"][0]["ok"]), (200, &json!(true)), "{results}");
    sink.until("a test", |told| told["alerts"][0]["labels"]["alertname"] == "Whole").await;
    for wrong in [json!({}), json!({"receiver": "hook", "webhook_configs": []}), json!({"nope": 1})] {
        assert_eq!(ask("rulepolicy/receivers/test", wrong.clone()).await.0, 422, "{wrong}");
    }
    assert_eq!(server.stop(), Some(0));
}

/// Where the database of alerts is gone, their series say since when they are active.
#[tokio::test(flavor = "multi_thread")]
async fn alerts_go_on_from_their_series() {
    let dir = tempfile::tempdir().expect("a folder");
    let rules = "groups: [{name: g, interval: 1s, rules: [{alert: Down, expr: shop_up == 0, for: 5m}]}]";
    let rules = write(&dir.path().join("rules.yml"), rules);
    let (data, options) = (dir.path().join("data"), Options::default().args(&["--rules", &rules]));
    // To the second, as series have it.
    let active_at = async |server: &Server| {
        let alerts = server.get("/metrics-api/api/v1/alerts").await.json()["data"]["alerts"].clone();
        alerts[0]["activeAt"].as_str().and_then(|text| text.get(..19)).map(str::to_owned)
    };
    let server = Server::start(&data, &options).await;
    sample(&server, 0.0).await;
    until("an alert is pending", async || active_at(&server).await.is_some()).await;
    let before = active_at(&server).await;
    let is_kept = async || {
        let found = server.query("ALERTS_FOR_STATE{alertname=\"Down\"}", now_ms() as f64 / 1000.0 + 1.0).await;
        found["result"].as_array().is_some_and(|series| !series.is_empty())
    };
    until("its series says since when", is_kept).await;
    assert_eq!(server.stop(), Some(0));
    for file in ["alerts.db", "alerts.db-wal", "alerts.db-shm"] {
        let _ = std::fs::remove_file(data.join(file));
    }
    let server = Server::start(&data, &options).await;
    until("it is pending again", async || active_at(&server).await.is_some()).await;
    assert_eq!(active_at(&server).await, before);
    assert_eq!(server.stop(), Some(0));
}
