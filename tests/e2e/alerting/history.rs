//! The history of alerting as rows: SQL reads it with the caller's rights, kills lose nothing of it, and lists over HTTP
//! come from it. Also revisions of the policy, silences as a family, unit tests of rules, and rules over analytics.

use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};

use crate::alerting::{Sink, policy, sample, until, write};
use crate::identity::{permitted, signed_in, with_password};
use crate::json_calls;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

async fn call(server: &Server, method: &str, path: &str, body: &Value) -> Answer {
    server.send(method, path, &JSON, body.to_string().into_bytes()).await
}

async fn rows(server: &Server, statement: &str) -> Vec<Value> {
    let answer = server.get_with("/sql-api/v1/query", &[("query", statement), ("format", "ndjson")]).await;
    assert_eq!(answer.status, 200, "{statement}: {}", answer.text());
    answer.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

async fn count(server: &Server, statement: &str) -> usize {
    rows(server, statement).await.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_firing_is_a_row() {
    let dir = tempfile::tempdir().expect("a folder");
    let sink = Sink::open().await;
    let file = write(&dir.path().join("policy.yml"), &policy(&sink.address));
    let options =
        || Options::default().env("QUIVER_ALERTING__POLICY", &file).env("QUIVER_EGRESS__ALLOW", "[\"127.0.0.0/8\"]");
    let data = dir.path().join("data");
    let server = Server::start(&data, &options()).await;
    let group = json!({"interval": "1s", "rules": [
        {"alert": "ShopDown", "expr": "sum(shop_up) == 0", "service": "shop", "severity": "page"},
        {"record": "broken", "expr": "label_join(shop_up or label_replace(shop_up, \"x\", \"1\", \"\", \"\"), \"x\", \"\")"},
    ]});
    let made = call(&server, "PUT", "/rulesapi/groups/default/shop", &group).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()["rules"][0]["id"].as_str().expect("an id").to_owned();
    sample(&server, 0.0).await;
    let events = "SELECT from_state, to_state, \"labels.severity\" AS severity, service_name FROM alert_events \
        WHERE source = 'rule' ORDER BY time";
    until("the alert fires", async || count(&server, events).await > 0).await;
    let fired = rows(&server, events).await;
    assert_eq!(
        fired[0],
        json!({"from_state": "inactive", "to_state": "firing", "severity": "page", "service_name": "shop"})
    );
    until("somebody is told", async || {
        count(&server, "SELECT receiver FROM notifications WHERE outcome = 'sent' AND alert_count = 1").await > 0
    })
    .await;
    // What is posted is there, too, and its end without a word.
    let soon = chrono::Utc::now() + chrono::TimeDelta::seconds(12);
    let posted = json!([{"labels": {"alertname": "Posted", "service": "shop"}, "endsAt": soon.to_rfc3339()}]);
    assert_eq!(call(&server, "POST", "/api/v2/alerts", &posted).await.status, 200);
    until("the posted alert ends", async || {
        count(&server, "SELECT time FROM alert_events WHERE source = 'intake' AND to_state = 'resolved'").await == 1
    })
    .await;
    // A kill takes nothing of what is there, and makes no second firing.
    server.kill();
    let server = Server::start(&data, &options()).await;
    assert_eq!(count(&server, events).await, 1);
    sample(&server, 1.0).await;
    let resolved = "SELECT episode_id, state, ends_at, last_receiver FROM alert_episodes WHERE state = 'resolved' \
        AND rule_name = 'ShopDown' AND last_receiver IS NOT NULL";
    until("the alert ends", async || count(&server, resolved).await == 1).await;
    let failed = "SELECT error FROM rule_evaluations WHERE outcome = 'error' AND rule_name = 'broken'";
    until("an evaluation fails", async || count(&server, failed).await > 0).await;
    // Parts give what the WAL gave.
    server.flush().await;
    assert_eq!(count(&server, events).await, 2);
    assert_eq!(count(&server, resolved).await, 1);
    let listed = server.get(&format!("/rulesapi/rules/{id}/alerts-history")).await;
    let items = listed.json()["items"].clone();
    assert_eq!(
        (listed.status, &items[0]["to"], &items[1]["to"]),
        (200, &json!("resolved"), &json!("firing")),
        "{items}"
    );
    assert_eq!((&items[1]["labels"]["alertname"], &items[1]["value"]), (&json!("ShopDown"), &json!(0.0)));
    let early = server.get(&format!("/rulesapi/rules/{id}/alerts-history?start=0&end=1")).await.json();
    assert_eq!(early["items"], json!([]));
    let lately = server.get(&format!("/rulesapi/rules/{id}/alerts-history?start=now-1h&end=now")).await.json();
    assert_eq!(lately["items"], items);
    for refused in ["start=x", "start=2&end=1"] {
        assert_eq!(
            server.get(&format!("/rulesapi/rules/{id}/alerts-history?{refused}")).await.status,
            400,
            "{refused}"
        );
    }
}

/// The first row that analytics gives.
async fn loaded(server: &Server, query: Value) -> Value {
    let answer = call(server, "POST", "/olap-api/v1/load", &json!({ "query": query })).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()["data"][0].clone()
}

/// Models over alerting count what its tables hold.
#[tokio::test(flavor = "multi_thread")]
async fn models_read_what_alerting_did() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let group = json!({"interval": "1s", "rules": [
        {"alert": "ShopDown", "expr": "sum(shop_up) == 0", "service": "shop", "severity": "critical",
         "labels": {"team": "x"}},
    ]});
    assert_eq!(call(&server, "PUT", "/rulesapi/groups/default/shop", &group).await.status, 201);
    sample(&server, 0.0).await;
    until("the alert fires", async || count(&server, "SELECT time FROM alert_events").await > 0).await;
    until("it can be silenced", async || server.get("/api/v2/alerts").await.json()[0].is_object()).await;
    let silence = json!({"matchers": ["alertname=ShopDown"], "endsAt": "2099-01-01T00:00:00Z", "comment": "known"});
    assert_eq!(call(&server, "POST", "/rulesapi/silences", &silence).await.status, 201);
    until("the silence is a row", async || count(&server, "SELECT time FROM alert_actions").await > 0).await;
    let alerts = json!({
        "dimensions": [
            "Alerts.alertName", "Alerts.service", "Alerts.severity", "Alerts.isSilenced", "Alerts.label_team",
        ],
        "measures": ["Alerts.count", "Alerts.firingCount", "Alerts.criticalCount", "AlertTransitions.firedCount"],
        "segments": ["Alerts.open", "Alerts.suppressed"],
    });
    assert_eq!(
        loaded(&server, alerts).await,
        json!({
            "Alerts.alertName": "ShopDown", "Alerts.service": "shop", "Alerts.severity": "critical",
            "Alerts.isSilenced": true, "Alerts.label_team": "x", "Alerts.count": "1", "Alerts.firingCount": "1",
            "Alerts.criticalCount": "1", "AlertTransitions.firedCount": "1",
        })
    );
    // Lengths keep their milliseconds, so that an alert that has just begun has one.
    let long = loaded(&server, json!({"measures": ["Alerts.durationAvg", "Alerts.firingTime"]})).await;
    let lasted = |member: &str| long[member].as_f64() > Some(0.0);
    assert!(lasted("Alerts.durationAvg") && lasted("Alerts.firingTime"), "{long}");
    let actions = json!({"dimensions": ["AlertActions.action"], "measures": ["AlertActions.count"]});
    let action = loaded(&server, actions).await;
    assert_eq!(action, json!({"AlertActions.action": "silence", "AlertActions.count": "1"}));
    let evaluations = json!({
        "dimensions": ["RuleEvaluations.ruleName", "RuleEvaluations.outcome"],
        "measures": ["RuleEvaluations.failedCount", "RuleEvaluations.failureRate"],
    });
    let read = json!({"measures": ["RuleEvaluations.scannedBytes"]});
    assert!(loaded(&server, read.clone()).await["RuleEvaluations.scannedBytes"].is_number());
    // What was not yet written into files is read of memory.
    server.flush().await;
    until("a rule reads a file", async || {
        loaded(&server, read.clone()).await["RuleEvaluations.scannedBytes"].as_f64() > Some(0.0)
    })
    .await;
    let evaluated = loaded(&server, evaluations).await;
    assert_eq!(
        evaluated,
        json!({
            "RuleEvaluations.ruleName": "ShopDown", "RuleEvaluations.outcome": "ok",
            "RuleEvaluations.failedCount": "0", "RuleEvaluations.failureRate": 0,
        })
    );
    let rules = json!({
        "dimensions": [
            "AlertRules.name", "AlertRules.kind", "AlertRules.ruleGroup", "AlertRules.service", "AlertRules.health",
        ],
        "measures": ["AlertRules.count", "AlertRules.firingCount", "AlertRules.neverFiredCount"],
    });
    assert_eq!(
        loaded(&server, rules).await,
        json!({
            "AlertRules.name": "ShopDown", "AlertRules.kind": "alerting", "AlertRules.ruleGroup": "shop",
            "AlertRules.service": "shop", "AlertRules.health": "ok", "AlertRules.count": "1",
            "AlertRules.firingCount": "1", "AlertRules.neverFiredCount": "0",
        })
    );
    // A rule is there as soon as it is configured, and one without a service, too.
    let more = json!({"namespace": "default", "group": "shop", "record": "shop:up", "expr": "shop_up"});
    assert_eq!(call(&server, "POST", "/rulesapi/rules", &more).await.status, 201);
    let listed = rows(&server, "SELECT alert, record, service_name, enabled FROM alert_rules ORDER BY alert").await;
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert_eq!(listed[0], json!({"alert": "ShopDown", "record": null, "service_name": "shop", "enabled": true}));
    assert_eq!(listed[1], json!({"alert": null, "record": "shop:up", "service_name": null, "enabled": true}));
}

/// An alert that another one holds back is told apart for as long as it is.
#[tokio::test(flavor = "multi_thread")]
async fn models_know_which_alerts_are_inhibited() {
    let dir = tempfile::tempdir().expect("a folder");
    let policy = "route: {receiver: nobody, group_by: [alertname], group_wait: 100ms, group_interval: 200ms}\n\
        receivers: [{name: nobody}]\n\
        inhibit_rules: [{source_matchers: [alertname=Cause], target_matchers: [alertname=Effect]}]\n";
    let file = write(&dir.path().join("policy.yml"), policy);
    let options = Options::default().env("QUIVER_ALERTING__POLICY", &file);
    let server = Server::start(&dir.path().join("data"), &options).await;
    let post = async |alerts: Value| assert_eq!(call(&server, "POST", "/api/v2/alerts", &alerts).await.status, 200);
    let labels = |name: &str| json!({"alertname": name, "service": "shop"});
    post(json!([{"labels": labels("Cause")}, {"labels": labels("Effect")}])).await;
    let suppressed =
        async || loaded(&server, json!({"dimensions": ["Alerts.alertName"], "segments": ["Alerts.suppressed"]})).await;
    until("one is held back", async || suppressed().await == json!({"Alerts.alertName": "Effect"})).await;
    let by = |name: &str| {
        let filter = json!({"member": "Alerts.alertName", "operator": "equals", "values": [name]});
        json!({"dimensions": ["Alerts.isInhibited"], "measures": ["Alerts.count"], "filters": [filter]})
    };
    assert_eq!(loaded(&server, by("Effect")).await, json!({"Alerts.isInhibited": true, "Alerts.count": "1"}));
    assert_eq!(loaded(&server, by("Cause")).await, json!({"Alerts.isInhibited": false, "Alerts.count": "1"}));
    // It is no action of anybody.
    let actions = json!({"measures": ["AlertActions.count"]});
    assert_eq!(loaded(&server, actions).await, json!({"AlertActions.count": "0"}));
    post(json!([{"labels": labels("Cause"), "endsAt": chrono::Utc::now().to_rfc3339()}])).await;
    until("nothing holds it back", async || suppressed().await.is_null()).await;
    let noted = "SELECT action, actor, actor_type FROM alert_actions ORDER BY time";
    let noted = rows(&server, noted).await;
    assert_eq!(noted.len(), 2, "{noted:?}");
    assert_eq!(noted[0], json!({"action": "inhibit", "actor": null, "actor_type": "service"}));
    assert_eq!(noted[1]["action"], "uninhibit");
}

/// A caller who sees one service sees its alerts and rules in the models, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn models_over_alerting_are_cut_to_what_a_caller_sees() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let ask = async |token: &str, method: &str, path: &str, body: Value| {
        json_calls::call(&server, token, method, path, &body).await
    };
    let admin = signed_in(&server, "admin").await;
    let group = json!({"interval": "1s", "rules": [
        {"alert": "CartDown", "expr": "vector(1)", "service": "cart"},
        {"alert": "PayDown", "expr": "vector(1)", "service": "pay"},
        {"record": "one", "expr": "vector(1)"},
    ]});
    assert_eq!(ask(&admin, "PUT", "/rulesapi/groups/default/two", group).await.status, 201);
    let ann = permitted(&server, &admin, "ann", &["{view, alerts, cart}", "{view, alerting, cart}"]).await;
    let names = async |token: &str, member: &str| {
        let query = json!({"query": {"dimensions": [member]}});
        let answer = ask(token, "POST", "/olap-api/v1/load", query).await;
        assert_eq!(answer.status, 200, "{member}: {}", answer.text());
        let rows = answer.json()["data"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<String> = rows.iter().map(|row| row[member].as_str().unwrap_or("?").to_owned()).collect();
        names.sort_unstable();
        names
    };
    until("both fire", async || names(&admin, "Alerts.alertName").await.len() == 2).await;
    until("all are evaluated", async || names(&admin, "RuleEvaluations.ruleName").await.len() == 3).await;
    for member in ["Alerts.alertName", "AlertTransitions.alertName", "RuleEvaluations.ruleName", "AlertRules.name"] {
        let all = names(&admin, member).await;
        assert!(all.len() >= 2 && all.contains(&"PayDown".to_owned()), "{member}: {all:?}");
        assert_eq!(names(&ann, member).await, ["CartDown"], "{member}");
    }
    // What a rule read tells how much there is of others.
    let read = async |token: &str, measure: &str| {
        let query = json!({"query": {"measures": [measure]}});
        ask(token, "POST", "/olap-api/v1/load", query).await.json()["data"][0][measure].take()
    };
    assert!(read(&admin, "RuleEvaluations.scannedBytes").await.is_number());
    assert!(read(&ann, "RuleEvaluations.scannedBytes").await.is_null());
    assert!(!read(&admin, "RuleEvaluations.seriesMax").await.is_null());
    assert!(read(&ann, "RuleEvaluations.seriesMax").await.is_null());
}

/// An edit, a raised `for`, a deleted rule: what fired has an end in the history.
#[tokio::test(flavor = "multi_thread")]
async fn what_fired_under_an_edited_rule_has_an_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    sample(&server, 0.0).await;
    let put = async |rules: Value| {
        let path = "/rulesapi/groups/default/edited";
        let answer = call(&server, "PUT", path, &json!({"interval": "1s", "rules": rules})).await;
        assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    };
    let open = "SELECT episode_id FROM alert_episodes WHERE state = 'firing' AND rule_name = 'Edited'";
    let ended = "SELECT rule_id FROM alert_episodes WHERE state = 'resolved' AND ends_at IS NOT NULL \
        AND rule_name = 'Edited'";
    put(json!([{"alert": "Edited", "expr": "shop_up == 0"}, {"record": "other", "expr": "shop_up"}])).await;
    until("it fires", async || count(&server, open).await == 1).await;
    put(json!([{"alert": "Edited", "expr": "shop_up < 1"}, {"record": "other", "expr": "shop_up"}])).await;
    until("the first period ends", async || count(&server, ended).await == 1).await;
    until("the second one fires", async || count(&server, open).await == 1).await;
    let long = json!([{"alert": "Edited", "expr": "shop_up < 1", "for": "1d"}, {"record": "other", "expr": "shop_up"}]);
    put(long).await;
    until("the second period ends", async || count(&server, ended).await == 2).await;
    put(json!([{"alert": "Edited", "expr": "shop_up < 1"}, {"record": "other", "expr": "shop_up"}])).await;
    until("the third one fires", async || count(&server, open).await == 1).await;
    put(json!([{"record": "other", "expr": "shop_up"}])).await;
    until("the third period ends", async || count(&server, ended).await == 3).await;
    assert_eq!(count(&server, open).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn silences_are_a_family() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let posted = json!([{"labels": {"alertname": "A", "job": "x"}}, {"labels": {"alertname": "B"}}]);
    assert_eq!(call(&server, "POST", "/api/v2/alerts", &posted).await.status, 200);
    let body = json!({"matchers": ["job=x"], "endsAt": "2099-01-01T00:00:00Z", "comment": "night"});
    let preview = call(&server, "POST", "/rulesapi/silences/preview", &body).await.json();
    assert_eq!((&preview["total"], &preview["alerts"][0]["labels"]["alertname"]), (&json!(1), &json!("A")));
    let made = call(&server, "POST", "/rulesapi/silences", &body).await;
    assert_eq!((made.status, &made.json()["state"]), (201, &json!("active")), "{}", made.text());
    let path = format!("/rulesapi/silences/{}", made.json()["id"].as_str().expect("an id"));
    let changed = call(&server, "PATCH", &path, &json!({"comment": "longer"})).await;
    assert_eq!((changed.status, &changed.json()["comment"]), (200, &json!("longer")));
    assert_eq!(server.get("/api/v2/silences").await.json()[0]["comment"], "longer");
    assert_eq!(call(&server, "POST", &format!("{path}/expire"), &json!({})).await.json()["state"], "expired");
    assert_eq!(server.get("/rulesapi/silences?state=active&count=true").await.json()["total"], 0);
    assert_eq!(server.get("/rulesapi/silences?what=x").await.status, 400);
    assert_eq!(server.get("/rulesapi/silences/none").await.status, 404);
    let refused = call(&server, "POST", "/rulesapi/silences", &json!({"matchers": ["a=b"], "foo": 1})).await;
    assert_eq!((refused.status, &refused.json()["errors"][0]["code"]), (422, &json!("UNKNOWN_FIELD")));
    let statement = "SELECT action FROM alert_actions WHERE \"labels.alertname\" = 'A' ORDER BY time";
    until("actions are rows", async || count(&server, statement).await == 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn back_to_an_earlier_policy() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let yaml = [("content-type", "application/yaml")];
    let policy = |receiver: &str, secret: &str| {
        format!(
            "route: {{receiver: {receiver}}}\nreceivers:\n- name: {receiver}\n  webhook_configs: [{{url: 'http://h/?key={secret}'}}]\n"
        )
    };
    for text in [policy("one", "s3cret"), policy("two", "other")] {
        let sent = server.post("/rulesapi/rulepolicy/deploy", &yaml, text.into_bytes()).await;
        assert_eq!(sent.status, 200, "{}", sent.text());
    }
    let all = server.get("/rulesapi/rulepolicy/revisions").await.json()["items"].clone();
    assert_eq!(
        (all.as_array().map(Vec::len), &all[0]["live"], &all[1]["revision"]),
        (Some(3), &json!(true), &json!(2))
    );
    let shown = server.get("/rulesapi/rulepolicy/revisions/2").await.json();
    let config = shown["config"].as_str().expect("a text");
    assert!(config.contains("one") && !config.contains("s3cret"), "{config}");
    let tried = call(&server, "POST", "/rulesapi/rulepolicy/revisions/2/rollback?dryRun=true", &json!({})).await;
    assert_eq!(tried.status, 200, "{}", tried.text());
    assert!(server.get("/rulesapi/rulepolicy/deploy").await.text().contains("two"));
    let back = call(&server, "POST", "/rulesapi/rulepolicy/revisions/2/rollback", &json!({})).await;
    assert_eq!(back.status, 200, "{}", back.text());
    // Its secret is there again, which nobody is shown.
    let exported = server.get("/rulesapi/rulepolicy/deploy?secrets=true").await.text();
    assert!(exported.contains("receiver: one") && exported.contains("key=s3cret"), "{exported}");
    assert_eq!(server.get("/rulesapi/rulepolicy/revisions").await.json()["items"][0]["revision"], 4);
    assert_eq!(call(&server, "POST", "/rulesapi/rulepolicy/revisions/99/rollback", &json!({})).await.status, 404);
}

/// The engine of a unit test has a part of the server's memory, and not as much as a server would take on this machine.
#[tokio::test(flavor = "multi_thread")]
async fn unit_tests_keep_within_the_servers_memory() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().env("QUIVER_MEMORY__LIMIT", "320MiB")).await;
    let tests = "tests:\n- interval: 1m\n  promql_expr_test:\n  \
        - {expr: 'max_over_time(vector(1)[2h:1ms])', eval_time: 1m, exp_samples: [{labels: '{}', value: 1}]}\n  \
        - {expr: 'max_over_time(vector(1)[2m:1s])', eval_time: 1m, exp_samples: [{labels: '{}', value: 1}]}\n";
    let run = call(&server, "POST", "/rulesapi/rules/unit-test", &json!({"rules": "groups: []", "tests": tests})).await;
    let cases = run.json()["cases"].clone();
    assert_eq!((&cases[0]["ok"], &cases[1]["ok"]), (&json!(false), &json!(true)), "{}", run.text());
    assert!(cases[0]["got"].as_str().is_some_and(|got| got.contains("more memory")), "{}", run.text());
}

/// A template keeps what it makes until it ends, so few run at once.
#[tokio::test(flavor = "multi_thread")]
async fn tests_of_templates_wait_for_each_other() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().env("QUIVER_MEMORY__LIMIT", "256MiB")).await;
    let alerts: Vec<Value> = (0..1000).map(|n| json!({"labels": {"a": n.to_string()}})).collect();
    let doubled = "{{ $x = print $x $x }}".repeat(10);
    let text =
        ["{{ $x := printf \"%8000s\" \"\" }}", doubled.as_str(), "{{ $y := print $x 1 }}{{ range 300000 }}{{ end }}"]
            .concat();
    let body = json!({"text": text, "alerts": alerts});
    server.forget_peak();
    let run = || call(&server, "POST", "/rulesapi/rulepolicy/templates/test", &body);
    let answers = futures::future::join_all((0..40).map(|_| run())).await;
    // 503: the memory for request bodies is limited, too.
    assert!(answers.iter().all(|answer| [200, 503].contains(&answer.status)));
    assert!(answers.iter().any(|answer| answer.status == 200));
    let peak = server.peak_held_bytes();
    assert!(peak <= (256 << 20) * 115 / 100, "{peak}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unit_tests_and_analytics() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let rules = "groups:\n- name: g\n  rules:\n  - {alert: Down, expr: up == 0, for: 1m, labels: {a: b}}\n";
    let tests = "evaluation_interval: 1m\ntests:\n- name: it\n  input_series: [{series: 'up{job=\"x\"}', values: '1 0 0 0'}]\n  \
        alert_rule_test:\n  - {eval_time: 2m, alertname: Down, exp_alerts: [{exp_labels: {job: x, a: b}}]}\n  \
        - {eval_time: 1m, alertname: Down, exp_alerts: [{exp_labels: {job: x, a: b}}]}\n  \
        promql_expr_test:\n  - {expr: up, eval_time: 1m, exp_samples: [{labels: 'up{job=\"x\"}', value: 0}]}\n";
    let run = call(&server, "POST", "/rulesapi/rules/unit-test", &json!({"rules": rules, "tests": tests})).await;
    let answer = run.json();
    assert_eq!((run.status, &answer["passed"], &answer["failed"]), (200, &json!(2), &json!(1)), "{}", run.text());
    assert_eq!((&answer["cases"][0]["group"], &answer["cases"][0]["ok"]), (&json!("it"), &json!(false)));
    // A few characters stand for more samples than there is memory for; those up to the last time are made.
    let vast = "tests:\n- interval: 1m\n  input_series: [{series: up, values: 1x18446744073709551615}]\n  \
        promql_expr_test:\n  - {expr: up, eval_time: 1m, exp_samples: [{labels: up, value: 1}]}\n";
    let run = call(&server, "POST", "/rulesapi/rules/unit-test", &json!({"rules": rules, "tests": vast})).await;
    let answer = run.json();
    assert_eq!((run.status, &answer["passed"], &answer["failed"]), (200, &json!(1), &json!(0)), "{}", run.text());
    // Each may be long, and there may be many, but not both.
    let long = "- {promql_expr_test: [{expr: '1', eval_time: 300h, exp_samples: [{value: 1}]}]}\n".repeat(12);
    let long = json!({"rules": rules, "tests": format!("tests:\n{long}")});
    let run = call(&server, "POST", "/rulesapi/rules/unit-test", &long).await;
    let told = run.json()["errors"][0].clone();
    assert_eq!((run.status, &told["code"]), (422, &json!("LIMIT_EXCEEDED")), "{}", run.text());
    assert!(told["message"].as_str().is_some_and(|text| text.contains("at most 200000")), "{told}");
    let bad = call(&server, "POST", "/rulesapi/rules/unit-test", &json!({"rules": "groups: [", "tests": ""})).await;
    assert_eq!((bad.status, &bad.json()["code"]), (400, &json!("MALFORMED_YAML")));

    // A rule over analytics has the rows of its query as elements.
    let line = |n: usize| format!("{{\"_msg\":\"m{n}\",\"service.name\":\"shop\",\"severity\":\"ERROR\"}}\n");
    let lines: String = (0..3).map(line).collect();
    let sent = server.post("/insert/jsonline?_stream_fields=service.name", &[], lines.into_bytes()).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    let query = json!({"measures": ["Logs.count"], "dimensions": ["Logs.service"]}).to_string();
    let rule = json!({"rule": {"alert": "Many", "expr": query, "language": "olap"}});
    let tried = call(&server, "POST", "/rulesapi/rules/test", &rule).await;
    let series = tried.json()["series"].clone();
    assert_eq!(tried.status, 200, "{}", tried.text());
    assert_eq!((&series[0]["labels"]["service"], &series[0]["value"]), (&json!("shop"), &json!(3.0)), "{series}");
    let refused = json!({"rule": {"alert": "Many", "expr": "{\"measures\": []}", "language": "olap"}});
    assert_eq!(call(&server, "POST", "/rulesapi/rules/test", &refused).await.status, 422);
}
