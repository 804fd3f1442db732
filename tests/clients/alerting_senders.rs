//! Debian's Prometheus and Alertmanager as senders: alerts that they send to this server are passed on to receivers, and
//! end when they resolve them.

use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use quiver_tests::bodies::remote_write;
use quiver_tests::server::{Options, Server};
use quiver_types::{Clock as _, SystemClock};
use serde_json::{Value, json};

use crate::alertmanager::Sink;
use crate::tools::{Program, free_port, program, until};

const PATIENCE: Duration = Duration::from_mins(5);

/// Ours, with a webhook at `/ours/hook` of the sink.
async fn server(dir: &Path, sink: &Sink) -> Server {
    let policy = write(
        &dir.join("policy.yml"),
        &format!(
            "route: {{receiver: hook, group_by: [alertname], group_wait: 100ms, group_interval: 1s, repeat_interval: 1h}}\n\
             receivers: [{{name: hook, webhook_configs: [{{url: 'http://{}/ours/hook'}}]}}]\n",
            sink.address
        ),
    );
    let options =
        Options::default().args(&["--alert-policy", &policy]).env("QUIVER_EGRESS__ALLOW", "[\"127.0.0.0/8\"]");
    Server::start(&dir.join("data"), &options).await
}

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).expect("writable");
    path.display().to_string()
}

async fn is_ready(client: &reqwest::Client, at: &str) {
    let url = format!("http://{at}/-/ready");
    until(&url, PATIENCE, async || client.get(&url).send().await.is_ok_and(|a| a.status() == 200)).await;
}

/// What the sink was told of an alert, in order.
fn told(sink: &Sink, name: &str) -> Vec<Value> {
    let messages = sink.side("/ours").remove("/hook").unwrap_or_default();
    let alerts = messages.iter().flat_map(|message| message["alerts"].as_array().into_iter().flatten());
    alerts.filter(|alert| alert["labels"]["alertname"] == name).cloned().collect()
}

/// Waits until the newest that the sink was told of an alert says so; gives it.
async fn is_told(sink: &Sink, name: &str, status: &str) -> Value {
    let mut newest = Value::Null;
    until(&format!("{name} is {status}"), PATIENCE, async || {
        newest = told(sink, name).pop().unwrap_or_default();
        newest["status"] == status
    })
    .await;
    newest
}

/// Labels of the alerts that a router has, with what else must be equal whoever told it of them.
async fn listed(client: &reqwest::Client, at: &str) -> Vec<String> {
    let answer = client.get(format!("{at}/api/v2/alerts")).send().await.expect("it answers");
    let alerts: Vec<Value> = answer.json().await.expect("a list");
    let parts = ["labels", "annotations", "fingerprint", "generatorURL"];
    let mut shown: Vec<String> = alerts.iter().map(|alert| json!(parts.map(|part| &alert[part])).to_string()).collect();
    shown.sort();
    shown
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_sends_alerts() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::open().await);
    let server = server(dir.path(), &sink).await;
    let rules = write(
        &dir.path().join("rules.yml"),
        "groups:\n- name: shop\n  interval: 1s\n  rules:\n  - alert: Down\n    expr: shop_up == 0\n    \
         labels: {severity: page}\n    annotations: {summary: '{{ $labels.job }} & <co>'}\n",
    );
    let config = format!(
        "global: {{evaluation_interval: 1s, external_labels: {{dc: north}}}}\nrule_files: ['{rules}']\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{}']}}]}}]}}\n",
        server.url("").trim_start_matches("http://")
    );
    let config = write(&dir.path().join("prometheus.yml"), &config);
    let own = format!("127.0.0.1:{}", free_port());
    let mut command = program("prometheus");
    command
        .arg(format!("--config.file={config}"))
        .arg(format!("--storage.tsdb.path={}", dir.path().join("tsdb").display()))
        .arg(format!("--web.listen-address={own}"))
        .arg("--web.enable-remote-write-receiver")
        .arg("--web.external-url=http://monitor.example")
        .arg("--web.route-prefix=/")
        .arg("--rules.alert.resend-delay=1s");
    let _prometheus = Program::start(&mut command, &dir.path().join("prometheus.log"));
    let client = reqwest::Client::new();
    is_ready(&client, &own).await;
    let is_up = async |value: f64| {
        let body =
            remote_write(&[(vec![("__name__", "shop_up"), ("job", "web")], vec![(SystemClock.now_ms(), value)])]);
        let request = client.post(format!("http://{own}/api/v1/write")).body(body);
        let request = request.header("content-encoding", "snappy").header("content-type", "application/x-protobuf");
        let sent = request.header("x-prometheus-remote-write-version", "0.1.0").send().await.expect("it answers");
        assert!(sent.status().is_success(), "{}", sent.status());
    };
    is_up(0.0).await;
    let alert = is_told(&sink, "Down", "firing").await;
    assert_eq!(alert["labels"], json!({"alertname": "Down", "dc": "north", "job": "web", "severity": "page"}));
    assert_eq!(alert["annotations"], json!({"summary": "web & <co>"}));
    let link = alert["generatorURL"].as_str().unwrap_or_default();
    assert!(link.starts_with("http://monitor.example/graph?g0.expr=shop_up"), "{link}");
    assert_eq!(alert["endsAt"], "0001-01-01T00:00:00Z");
    assert_eq!(listed(&client, &server.url("")).await.len(), 1);
    is_up(1.0).await;
    is_told(&sink, "Down", "resolved").await;
    // However often Prometheus repeats both.
    assert_eq!(told(&sink, "Down").len(), 2, "{:?}", told(&sink, "Down"));
    assert_eq!(listed(&client, &server.url("")).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn alertmanager_sends_alerts() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::open().await);
    let server = server(dir.path(), &sink).await;
    let policy = write(
        &dir.path().join("am.yml"),
        &format!(
            "route: {{receiver: ours, group_by: [shop], group_wait: 1s, group_interval: 1s, repeat_interval: 1h}}\n\
             receivers: [{{name: ours, webhook_configs: [{{url: '{}'}}]}}]\n",
            server.url("/api/v2/alertprocess")
        ),
    );
    let own = format!("127.0.0.1:{}", free_port());
    let mut command = program("prometheus-alertmanager");
    command
        .arg(format!("--config.file={policy}"))
        .arg(format!("--storage.path={}", dir.path().join("am").display()))
        .arg(format!("--web.listen-address={own}"))
        .arg("--cluster.listen-address=");
    let _alertmanager = Program::start(&mut command, &dir.path().join("am.log"));
    let client = reqwest::Client::new();
    is_ready(&client, &own).await;
    let began = Utc::now() - TimeDelta::minutes(1);
    let alert = |name: &str, ends: DateTime<Utc>| {
        let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Millis, true);
        json!({
            "labels": {"alertname": name, "shop": "ä \"b\"\\"}, "annotations": {"summary": "it is <hot>\n"},
            "startsAt": time(began), "endsAt": time(ends), "generatorURL": "http://p.example/graph?g0.expr=up&g0.tab=1",
        })
    };
    let post = async |alerts: Value| {
        let sent = client.post(format!("http://{own}/api/v2/alerts")).json(&alerts).send().await.expect("it answers");
        assert_eq!(sent.status(), 200);
    };
    let later = Utc::now() + TimeDelta::hours(1);
    post(json!([alert("Hot", later), alert("Wet", later)])).await;
    for name in ["Hot", "Wet"] {
        let (is, was) = (is_told(&sink, name, "firing").await, alert(name, later));
        for part in ["labels", "annotations", "generatorURL"] {
            assert_eq!(is[part], was[part], "{part} of {name}");
        }
        let starts = is["startsAt"].as_str().and_then(|at| DateTime::parse_from_rfc3339(at).ok());
        assert_eq!(starts.map(|at| at.timestamp_millis()), Some(began.timestamp_millis()), "{is}");
        assert_eq!(is["endsAt"], "0001-01-01T00:00:00Z");
    }
    let (theirs, ours) = (format!("http://{own}"), server.url(""));
    assert_eq!(listed(&client, &theirs).await, listed(&client, &ours).await);
    // One of the two ends: an envelope that still fires says so.
    post(json!([alert("Hot", Utc::now())])).await;
    is_told(&sink, "Hot", "resolved").await;
    let left = listed(&client, &ours).await;
    assert!(left.len() == 1 && left[0].contains("Wet"), "{left:?}");
    post(json!([alert("Wet", Utc::now())])).await;
    is_told(&sink, "Wet", "resolved").await;
    assert_eq!([told(&sink, "Hot").len(), told(&sink, "Wet").len()], [2, 2]);
}
