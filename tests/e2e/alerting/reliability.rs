//! Promises A1 to A6 over the real binary: kills, failing receivers, failing rules, and many rules at once. The long
//! forms run with `QUIVER_SOAK=1`.

#![allow(clippy::print_stderr, reason = "the figures are the outcome")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quiver_database::{Database, Row, statement};
use quiver_tests::server::{Options, Server};
use quiver_tests::time_limits::within;
use quiver_types::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::alerting::{until, write};

fn soak() -> bool {
    std::env::var_os("QUIVER_SOAK").is_some()
}

/// What a receiver was told: by path, when and what.
type Told = BTreeMap<String, Vec<(Instant, Value)>>;

/// A receiver that behaves as its paths say: `/good`, `/hang`, `/reset`, `/500`, `/429`; the last three take what they are
/// sent the third time.
#[derive(Debug)]
struct Moody {
    address: String,
    told: Arc<Mutex<Told>>,
}

impl Moody {
    async fn open() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = socket.local_addr().expect("an address").to_string();
        let told = Arc::<Mutex<Told>>::default();
        let tries = Arc::<Mutex<BTreeMap<String, usize>>>::default();
        let kept = Arc::clone(&told);
        tokio::spawn(async move {
            while let Ok((peer, _)) = socket.accept().await {
                tokio::spawn(serve(peer, Arc::clone(&kept), Arc::clone(&tries)));
            }
        });
        Self { address, told }
    }

    fn told(&self, path: &str) -> Vec<(Instant, Value)> {
        self.told.lock().expect("whole").get(path).cloned().unwrap_or_default()
    }

    /// How often each alert was told as firing, by its name.
    fn firing(&self, path: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (_, body) in self.told(path) {
            let firing = body["alerts"].as_array().into_iter().flatten().filter(|a| a["status"] == "firing");
            for alert in firing {
                *counts.entry(alert["labels"]["alertname"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
            }
        }
        counts
    }
}

async fn serve(mut peer: TcpStream, kept: Arc<Mutex<Told>>, tries: Arc<Mutex<BTreeMap<String, usize>>>) {
    let (mut text, mut buffer) = (Vec::new(), vec![0; 65_536]);
    let (path, body) = loop {
        let n = peer.read(&mut buffer).await.unwrap_or(0);
        text.extend_from_slice(&buffer[..n]);
        let head = text.windows(4).position(|w| w == b"\r\n\r\n");
        let body = head.and_then(|at| serde_json::from_slice::<Value>(&text[at + 4..]).ok());
        if let Some(body) = body {
            let head = String::from_utf8_lossy(&text);
            break (head.split(' ').nth(1).unwrap_or_default().to_owned(), body);
        }
        if n == 0 {
            return;
        }
    };
    let first = {
        let mut tries = tries.lock().expect("whole");
        let count = tries.entry(path.clone()).or_default();
        *count += 1;
        *count <= 2
    };
    let refusal = match path.as_str() {
        "/hang" => {
            tokio::time::sleep(Duration::from_mins(10)).await;
            return;
        }
        "/reset" if first => {
            // Without a word, and with what was not read: the other side sees a reset.
            let _ = peer.set_zero_linger();
            return;
        }
        "/500" if first => "500 no\r\n",
        "/429" if first => "429 later\r\nretry-after: 1\r\n",
        _ => "",
    };
    if refusal.is_empty() {
        kept.lock().expect("whole").entry(path).or_default().push((Instant::now(), body));
    }
    let status = if refusal.is_empty() { "200 OK\r\n" } else { refusal };
    let answer = format!("HTTP/1.1 {status}content-length: 0\r\nconnection: close\r\n\r\n");
    let _ = peer.write_all(answer.as_bytes()).await;
}

async fn post(server: &Server, name: &str, at: &str) -> bool {
    let body = json!([{"labels": {"alertname": name, "at": at}}]).to_string();
    let sent = server.try_post("/api/v2/alerts", &[("content-type", "application/json")], body.into_bytes()).await;
    sent.is_ok_and(|answer| answer.status == 200)
}

fn options(policy: &str) -> Options {
    Options::default()
        .args(&["--alert-policy", policy])
        .env("QUIVER_EGRESS__ALLOW", "[\"127.0.0.0/8\"]")
        .env("QUIVER_QUERY__TIMEOUT", "20s")
}

fn simple(sink: &str) -> String {
    format!(
        "route: {{receiver: hook, group_by: [alertname], group_wait: 50ms, group_interval: 1s}}\n\
         receivers: [{{name: hook, webhook_configs: [{{url: 'http://{sink}/good'}}]}}]\n"
    )
}

/// A number from 0 to `below` that follows from a seed.
fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

/// A1, A2: killed at each step from an alert to the note that it was told, it forgets none and repeats one at most.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_each_step_of_a_message() {
    let dir = tempfile::tempdir().expect("a folder");
    for point in quiver_alertd::failpoint::NAMES {
        let sink = Moody::open().await;
        let policy = write(&dir.path().join("policy.yml"), &simple(&sink.address));
        let rules = write(
            &dir.path().join("rules.yml"),
            "groups: [{name: g, interval: 1s, rules: [{alert: Always, expr: vector(1)}]}]\n",
        );
        let data = dir.path().join(point);
        let armed = options(&policy).args(&["--rules", &rules]).env("QUIVER_FAILPOINT", point);
        Server::start_to_end(&data, &armed);
        let before = sink.firing("/good").get("Always").copied().unwrap_or(0);
        let server = Server::start(&data, &options(&policy).args(&["--rules", &rules])).await;
        until("the alert is told", async || sink.firing("/good").contains_key("Always")).await;
        // Two more flushes: nothing comes after it.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let told = sink.firing("/good")["Always"];
        let expected = match *point {
            "alerts.after-message" => 1..=2,
            // The router runs concurrently, so the kill may come after it sent a message and before it recorded that.
            "rules.after-alerts" => 1..=1 + before,
            _ => 1..=1,
        };
        assert!(expected.contains(&told), "{point}: told {before} times before the kill and {told} in all");
        assert_eq!(server.stop(), Some(0));
    }
}

/// A1, A2: killed at any moment while alerts come in.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Moody::open().await);
    let policy = write(&dir.path().join("policy.yml"), &simple(&sink.address));
    let kills = if soak() { 50 } else { 5 };
    let mut seed = std::env::var("QUIVER_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(7);
    eprintln!("QUIVER_SEED={seed}");
    let (mut acknowledged, mut number) = (Vec::<String>::new(), 0);
    let missed = |acknowledged: &[String]| {
        let told = sink.firing("/good");
        acknowledged.iter().filter(|name| !told.contains_key(*name)).count()
    };
    for _ in 0..kills {
        let server = Server::start(&dir.path().join("data"), &options(&policy)).await;
        let end = Instant::now() + Duration::from_millis(200 + random(&mut seed, 1500));
        while Instant::now() < end {
            // One message at a time is under way: so a kill can repeat one.
            if missed(&acknowledged) > 0 || under_way(&server).await > 0.0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
            number += 1;
            let name = format!("A{number}");
            if post(&server, &name, "x").await {
                acknowledged.push(name);
            }
        }
        server.kill();
    }
    let _server = Server::start(&dir.path().join("data"), &options(&policy)).await;
    until("all are told", async || missed(&acknowledged) == 0).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let extra: usize = sink.firing("/good").values().map(|n| n - 1).sum();
    assert!(extra <= kills, "{extra} messages were repeated by {kills} kills");
    assert!(!acknowledged.is_empty());
    eprintln!("{} alerts, {kills} kills: 0 missed, {extra} repeated", acknowledged.len());
}

/// Messages under way: each counts until it is noted that it was told.
async fn under_way(server: &Server) -> f64 {
    figure(&server.get("/metrics").await.text(), "quiver_notification_queue_length")
}

/// When each alert of a server became active, in seconds, and its state, by name.
async fn pending(server: &Server) -> BTreeMap<String, (f64, String)> {
    let told = server.get("/metrics-api/api/v1/alerts").await.json();
    let alerts = told["data"]["alerts"].as_array().cloned().unwrap_or_default();
    let one = |alert: &Value| {
        let at = chrono::DateTime::parse_from_rfc3339(alert["activeAt"].as_str()?).ok()?;
        let name = alert["labels"]["alertname"].as_str()?.to_owned();
        Some((name, (at.timestamp_millis() as f64 / 1000.0, alert["state"].as_str()?.to_owned())))
    };
    alerts.iter().filter_map(one).collect()
}

/// What alerting has kept of a kind, so that it is there after a kill.
async fn kept(data: &Path, kind: &str) -> Vec<Value> {
    let base = Database::sqlite(&data.join("alerts.db")).await.expect("a database");
    let rows = statement("SELECT kind, value FROM kept").fetch_all(&base).await.expect("rows");
    base.close().await;
    let text = |row: &Row, at| row.try_get::<String>(at).expect("a text");
    let of_kind = rows.iter().filter(|row| text(row, 0) == kind);
    of_kind.map(|row| serde_json::from_str(&text(row, 1)).expect("JSON")).collect()
}

/// Since when alerts of rules are active, in seconds, as it is kept.
async fn kept_rules(data: &Path) -> BTreeMap<String, f64> {
    let rules = kept(data, "rule").await;
    let alerts = rules.iter().flat_map(|rule| rule["alerts"].as_array().into_iter().flatten());
    let one = |alert: &Value| {
        let name = alert["labels"]["alertname"].as_str()?.to_owned();
        Some((name, alert["activeAt"].as_i64()? as f64 / 1000.0))
    };
    alerts.filter_map(one).collect()
}

fn now_s() -> f64 {
    SystemClock.now_ms() as f64 / 1000.0
}

/// A4: the time that an alert is pending survives a kill and a stop: a short one goes on as if nothing had been; of a long
/// one the time down does not count, and at least ten minutes are left.
#[tokio::test(flavor = "multi_thread")]
async fn pending_time_survives_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let rule = |name: &str, hold: &str| format!("{{alert: {name}, expr: vector(1), for: {hold}}}");
    let rules = [("Short", "40s"), ("Ten", "10m"), ("Twenty", "20m")].map(|(name, hold)| rule(name, hold)).join(", ");
    let file =
        write(&dir.path().join("rules.yml"), &format!("groups: [{{name: g, interval: 1s, rules: [{rules}]}}]\n"));
    let (data, options) = (dir.path().join("data"), Options::default().args(&["--rules", &file]));
    let mut server = Server::start(&data, &options).await;
    until("all are pending", async || pending(&server).await.len() == 3).await;
    let mut before = pending(&server).await;
    for kills in [true, false] {
        let since = |alerts: &BTreeMap<String, (f64, String)>| {
            alerts.iter().map(|(name, (at, _))| (name.clone(), *at)).collect::<BTreeMap<_, _>>()
        };
        until("all are kept", async || kept_rules(&data).await == since(&before)).await;
        until("it is known to be up", async || kept(&data, "service").await.iter().any(Value::is_number)).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        // It was up then, and knows so after its next start.
        let seen_up = kept(&data, "service").await.iter().find_map(Value::as_f64).expect("a time") / 1000.0;
        if kills {
            server.kill();
        } else {
            assert_eq!(server.stop(), Some(0));
        }
        let down = now_s();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let up = now_s();
        server = Server::start(&data, &options).await;
        until("all are known again", async || pending(&server).await.len() == 3).await;
        let (after, seen) = (pending(&server).await, now_s());
        let is_over = seen > before["Short"].0 + 40.0;
        let waits = |name: &str, state: &str| state == "pending" || (name == "Short" && is_over);
        assert!(after.iter().all(|(name, (_, state))| waits(name, state)), "{after:?}");
        assert_eq!(since(&after)["Short"], since(&before)["Short"], "no grace, and no time lost");
        // Ten minutes from the restart on.
        assert!((up..=seen).contains(&after["Ten"].0), "{up} {seen}: {after:?}");
        // Moved by the gap since it was up last.
        let moved = after["Twenty"].0 - before["Twenty"].0;
        assert!(moved >= up - down && moved <= seen - seen_up, "{moved}: {} to {}", up - down, seen - seen_up);
        before = after;
    }
    until("the short one fires", async || pending(&server).await["Short"].1 == "firing").await;
    // No cycle before its time found it firing, and none after its time found it pending.
    let over = before["Short"].0 + 40.0;
    let cycles = async |state: &str| {
        let query = format!("ALERTS{{alertname=\"Short\",alertstate=\"{state}\"}}[10m]");
        let data = server.query(&query, now_s() + 1.0).await;
        let values = data["result"][0]["values"].as_array().cloned().unwrap_or_default();
        values.iter().filter_map(|value| value[0].as_f64()).collect::<Vec<_>>()
    };
    until("its series says so", async || !cycles("firing").await.is_empty()).await;
    let (waited, fired) = (cycles("pending").await, cycles("firing").await);
    assert!(!waited.is_empty() && waited.iter().all(|at| *at < over - 0.001), "{over}: {waited:?}");
    assert!(fired.iter().all(|at| *at > over - 0.001), "{over}: {fired:?}");
}

/// A1, A6: each receiver that comes to its senses is told once; one that hangs delays nobody, not even a neighbour in the
/// same receiver.
#[tokio::test(flavor = "multi_thread")]
async fn bad_receivers_delay_nobody() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Moody::open().await);
    let paths = ["hang", "reset", "500", "429", "good"];
    let hook = |path: &str| format!("{{url: 'http://{}/{path}'}}", sink.address);
    let route = |path: &str| format!("  - {{receiver: {path}, matchers: ['at=\"{path}\"']}}\n");
    let receiver = |path: &str| {
        // Beside the one that hangs stands a good one.
        let beside = if path == "hang" { format!(", {}", hook("beside")) } else { String::new() };
        format!("- {{name: '{path}', webhook_configs: [{}{beside}]}}\n", hook(path))
    };
    let policy = format!(
        "route:\n  receiver: good\n  group_by: [alertname]\n  group_wait: 100ms\n  group_interval: 2s\n  routes:\n{}receivers:\n{}",
        paths.map(route).concat(),
        paths.map(receiver).concat()
    );
    let policy = policy.replace("receiver: 500", "receiver: '500'").replace("receiver: 429", "receiver: '429'");
    let policy = write(&dir.path().join("policy.yml"), &policy);
    let server = Server::start(&dir.path().join("data"), &options(&policy)).await;
    for path in &paths[..4] {
        assert!(post(&server, &format!("Bad{path}"), path).await);
    }
    let (mut slowest, mut number) = (Duration::ZERO, 0);
    let alerts = if soak() { 200 } else { 20 };
    for _ in 0..alerts {
        let took = within("a good receiver waits", Duration::from_secs(3), async || {
            number += 1;
            let (name, began) = (format!("Good{number}"), Instant::now());
            assert!(post(&server, &name, "good").await);
            until("the good one is told", async || sink.firing("/good").contains_key(&name)).await;
            began.elapsed()
        });
        slowest = slowest.max(took.await);
    }
    for path in ["/reset", "/500", "/429", "/beside"] {
        until(path, async || !sink.told(path).is_empty()).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    for path in ["/reset", "/500", "/429", "/beside"] {
        assert_eq!(sink.told(path).len(), 1, "{path}: {:?}", sink.told(path));
    }
    assert!(sink.told("/hang").is_empty());
    let metrics = server.get("/metrics").await.text();
    assert!(metrics.contains("quiver_notification_queue_length"), "{metrics}");
    eprintln!("slowest message to a good receiver: {slowest:?}");
}

const BAD_RULES: &str = r#"groups:
- name: explodes
  interval: 1s
  rules:
  - alert: Explodes
    expr: many
- name: bomb
  interval: 1s
  rules:
  - alert: Bomb
    expr: vector(1)
    annotations: {s: '{{ define "x" }}{{ template "x" . }}{{ template "x" . }}{{ end }}{{ template "x" . }}'}
- name: endless
  interval: 1s
  rules:
  - alert: Endless
    expr: 'sum_over_time(sum(rate(many[1h:1s]))[1000h:1s]) > 0'
- name: good
  interval: 1s
  rules:
  - alert: Good
    expr: vector(1)
"#;

/// A5: a rule with too many results, a template without end, a query without end: each errs alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_harms_only_itself() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Moody::open().await);
    let policy = write(&dir.path().join("policy.yml"), &simple(&sink.address));
    let rules = write(&dir.path().join("rules.yml"), BAD_RULES);
    let options = options(&policy).args(&["--rules", &rules]).env("QUIVER_ALERTING__RESULTS_MAX", "500");
    let server = Server::start(&dir.path().join("data"), &options).await;
    let text: String = (0..2000).map(|n| format!("many{{n=\"{n}\"}} 1\n")).collect();
    let taken = server.post("/metrics-api/api/v1/import/prometheus", &[], text.into_bytes()).await;
    assert!(taken.status < 300, "{}", taken.text());
    let group = async |name: &str| {
        let found = server.get_with("/metrics-api/api/v1/rules", &[("rule_group[]", name)]).await.json();
        found["data"]["groups"][0].clone()
    };
    for name in ["explodes", "endless"] {
        until(name, async || group(name).await["rules"][0]["health"] == "err").await;
    }
    until("a template that fails", async || sink.firing("/good").contains_key("Bomb")).await;
    let bomb = sink.told("/good").into_iter().find(|(_, t)| t["groupLabels"]["alertname"] == "Bomb");
    let said = bomb.map(|(_, told)| told["alerts"][0]["annotations"]["s"].to_string()).unwrap_or_default();
    assert!(said.contains("<error expanding template"), "{said}");
    // The good one goes on each second.
    let last = async || group("good").await["lastEvaluation"].as_str().unwrap_or_default().to_owned();
    within("eight cycles of the good one", Duration::from_secs(10), async || {
        let (began, mut times) = (Instant::now(), BTreeSet::from([last().await]));
        until("eight cycles", async || {
            times.insert(last().await);
            times.len() >= 8
        })
        .await;
        began.elapsed()
    })
    .await;
    assert_eq!(group("good").await["rules"][0]["health"], "ok");
    assert!(sink.firing("/good").contains_key("Good") && !sink.firing("/good").contains_key("Explodes"));
}

/// The value of a sample of `/metrics`.
fn figure(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {metrics}"))
}

/// A3: many groups of rules on small data, on time by the server's own figures.
#[tokio::test(flavor = "multi_thread")]
async fn many_rules_run_on_time() {
    let dir = tempfile::tempdir().expect("a folder");
    // Missed cycles and the start of 99 of 100 groups; short forms share their machine with others.
    let (groups, cycles, missed_max, start_max) = if soak() { (1000, 8, 0.001, 0.5) } else { (100, 2, 0.01, 5.0) };
    let group = |n: usize| {
        let rules: String = (0..10)
            .map(|k| format!("  - {{record: 'job{k}:up:sum', expr: 'sum(up{{job=\"j{k}\"}})', labels: {{g: g{n}}}}}\n"))
            .collect();
        format!("- name: g{n}\n  interval: 15s\n  rules:\n{rules}")
    };
    let text: String = (0..groups).map(group).collect();
    let rules = write(&dir.path().join("rules.yml"), &format!("groups:\n{text}"));
    let server = Server::start(&dir.path().join("data"), &Options::default().args(&["--rules", &rules])).await;
    let text: String = (0..100).map(|n| format!("up{{job=\"j{}\",instance=\"i{n}\"}} 1\n", n % 10)).collect();
    server.post("/metrics-api/api/v1/import/prometheus", &[], text.into_bytes()).await;
    // Figures of a window; another one follows where the machine stood still.
    let names = [
        "quiver_rule_group_evaluations_total".to_owned(),
        "quiver_rule_missed_iterations_total".to_owned(),
        format!("quiver_rule_group_start_delay_seconds_bucket{{le=\"{start_max}\"}}"),
        "quiver_rule_group_start_delay_seconds_count".to_owned(),
    ];
    let (mut last, mut told) = ([0.0; 4], String::new());
    let expected = (groups as u64 * cycles) as f64;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(15 * cycles + 2)).await;
        let metrics = server.get("/metrics").await.text();
        let now = names.each_ref().map(|name| figure(&metrics, name));
        let [evaluated, missed, on_time, all] = std::array::from_fn(|n| now[n] - last[n]);
        last = now;
        told = format!("{evaluated} evaluations of {expected}, {missed} missed, {on_time} of {all} on time");
        eprintln!("{told}, that is within {start_max} s");
        let few_missed = missed / (evaluated + missed) <= missed_max;
        if evaluated >= 0.9 * expected && few_missed && on_time >= 0.99 * all {
            return;
        }
    }
    panic!("in no window: {told}");
}

/// A receiver that is gone fails for each group, and again until it is back; the log has that once in a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_gone_fills_no_log() {
    const ALERTS: usize = 200;
    let dir = tempfile::tempdir().expect("a folder");
    // Egress lets nothing go to this machine.
    let policy = "route: {receiver: gone, group_by: ['...'], group_wait: 1s, group_interval: 1s}\n\
                  receivers: [{name: gone, webhook_configs: [{url: 'http://127.0.0.1:9/'}]}]\n";
    let policy = write(&dir.path().join("policy.yml"), policy);
    let (log, began) = (dir.path().join("log"), Instant::now());
    let options = Options::default().args(&["--alert-policy", &policy]).log_to(&log);
    let server = Server::start(&dir.path().join("data"), &options).await;
    let alerts: Vec<Value> = (0..ALERTS).map(|n| json!({"labels": {"alertname": format!("a{n}")}})).collect();
    let body = json!(alerts).to_string().into_bytes();
    assert_eq!(server.post("/api/v2/alerts", &[("content-type", "application/json")], body).await.status, 200);
    let name = "quiver_notifications_failed_total{integration=\"webhook\",reason=\"other\"} ";
    let told = || {
        let text = std::fs::read_to_string(&log).expect("a log");
        text.lines().filter(|line| line.contains("a receiver was not told")).count()
    };
    until("failures of all groups", async || {
        let metrics = server.get("/metrics").await.text();
        let failed = metrics.lines().find_map(|line| line.strip_prefix(name)?.parse::<usize>().ok());
        failed.is_some_and(|failed| failed >= ALERTS) && told() > 0
    })
    .await;
    let told = told() as f64;
    assert!(told <= began.elapsed().as_secs_f64() + 1.0, "{told} lines in {:?}", began.elapsed());
    assert_eq!(server.stop(), Some(0));
}
