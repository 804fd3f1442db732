//! Debian's Prometheus and Alertmanager side by side with this server: both get the same samples, rules and policy, with
//! minutes of alerting compressed into seconds. Rules, alerts, groups and messages must be equal, also across restarts of
//! both sides.

#![allow(clippy::print_stderr, reason = "the figures are the outcome")]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quiver_tests::bodies::remote_write;
use quiver_tests::server::{Options, Server};
use quiver_tests::time_limits::one_holds;
use quiver_types::{Clock as _, SystemClock};
use serde_json::{Map, Value, json};

use crate::alertmanager::{Sink, Told};
use crate::tools::{Program, free_port, program, soak, until};

const PATIENCE: Duration = Duration::from_mins(5);

const RULES: &str = r#"groups:
- name: shop
  interval: 1s
  rules:
  - record: job:errors:ratio
    expr: sum by (job) (errors) / sum by (job) (requests)
  - alert: HighErrors
    expr: job:errors:ratio > 0.1
    for: 2s
    labels: {severity: page, tier: '{{ if eq $labels.job "web" }}front{{ else }}back{{ end }}'}
    annotations:
      summary: '{{ $labels.job }} fails: {{ $value | humanizePercentage }} in {{ $externalLabels.dc }}'
      all: '{{ range query "sum(requests)" }}{{ .Value }}{{ end }} requests & <more>'
  - alert: Down
    expr: shop_up == 0
    keep_firing_for: 3s
    labels: {severity: page}
    annotations: {summary: '{{ $labels.instance }} is down'}
  - alert: Slow
    expr: latency > 1
    labels: {severity: info}
"#;

/// A policy whose receivers lie below `/<side>` of the sink.
fn policy(sink: &str, side: &str) -> String {
    let hook = |path: &str| format!("[{{url: 'http://{sink}/{side}/{path}'}}]");
    format!(
        "route:\n  receiver: all\n  group_by: [alertname]\n  group_wait: 1s\n  group_interval: 2s\n  repeat_interval: 1h\n  \
         routes:\n  - {{receiver: info, matchers: ['severity=\"info\"'], group_by: ['...']}}\n\
         inhibit_rules:\n- {{source_matchers: ['alertname=\"Down\"'], target_matchers: ['severity=\"info\"'], equal: [instance]}}\n\
         receivers:\n- {{name: all, webhook_configs: {}}}\n- {{name: info, webhook_configs: {}}}\n",
        hook("all"),
        hook("info")
    )
}

/// What the samples say of the shop, one bit each.
#[derive(Clone, Copy)]
enum Bad {
    Web = 1,
    Db = 2,
    Down = 4,
    Slow = 8,
}

/// Both sides, and what writes to them.
struct Twins {
    client: reqwest::Client,
    theirs: String,
    router: String,
    ours: Arc<Mutex<String>>,
    bad: Arc<AtomicU8>,
    over: Arc<AtomicBool>,
    sink: Sink,
    /// When their side was started anew, in seconds.
    restarts: Mutex<Vec<f64>>,
}

impl Drop for Twins {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
    }
}

fn samples(bad: u8) -> Vec<u8> {
    let (now, is) = (SystemClock.now_ms(), |what: Bad| bad & what as u8 != 0);
    let one = |labels: &[(&'static str, &'static str)], value: f64| (labels.to_vec(), vec![(now, value)]);
    let mut all = Vec::new();
    for (job, fails) in [("web", is(Bad::Web)), ("db", is(Bad::Db))] {
        all.push(one(&[("__name__", "requests"), ("job", job)], 100.0));
        all.push(one(&[("__name__", "errors"), ("job", job)], if fails { 25.0 } else { 1.0 }));
    }
    for instance in ["a:80", "b:80"] {
        let down = if is(Bad::Down) { 0.0 } else { 1.0 };
        all.push(one(&[("__name__", "shop_up"), ("instance", instance), ("job", "web")], down));
        let slow = if is(Bad::Slow) { 2.0 } else { 0.5 };
        all.push(one(&[("__name__", "latency"), ("instance", instance), ("job", "web")], slow));
    }
    remote_write(&all)
}

/// Writes the same samples to both, four times a second.
fn write_on(twins: &Twins) {
    let (client, theirs, ours) = (twins.client.clone(), twins.theirs.clone(), Arc::clone(&twins.ours));
    let (bad, over) = (Arc::clone(&twins.bad), Arc::clone(&twins.over));
    tokio::spawn(async move {
        let mut every = tokio::time::interval(Duration::from_millis(250));
        while !over.load(SeqCst) {
            every.tick().await;
            let body = samples(bad.load(SeqCst));
            let ours = format!("{}/metrics-api/api/v1/write", ours.lock().expect("whole"));
            for url in [format!("{theirs}/api/v1/write"), ours] {
                let request = client.post(url).body(body.clone());
                let request = request.header("content-encoding", "snappy");
                let request = request.header("content-type", "application/x-protobuf");
                // One that is down misses some.
                let _ = request.header("x-prometheus-remote-write-version", "0.1.0").send().await;
            }
        }
    });
}

/// Takes out what differs between two runs and two versions: times, the own path.
fn normal(value: &mut Value) {
    match value {
        Value::Object(map) => {
            // Younger than Debian's versions: `routeLabels`, `notification_reason`. Times are compared elsewhere.
            for field in ["routeLabels", "notification_reason", "startsAt", "endsAt", "activeAt", "updatedAt", "value"]
            {
                map.remove(field);
            }
            map.values_mut().for_each(normal);
        }
        Value::Array(items) => items.iter_mut().for_each(normal),
        _ => {}
    }
}

fn normalised(mut value: Value) -> String {
    normal(&mut value);
    value.to_string()
}

/// The messages to a path: with times, and without.
fn messages(told: &Told, path: &str) -> Vec<Value> {
    told.get(path).cloned().unwrap_or_default()
}

/// Takes out alerts that had ended and were told of as such before. A sender of alerts repeats that they have ended; whether
/// the repetition lies in its group when the next message is made is chance, with Alertmanager as with us. Says which
/// messages had some.
fn without_repetitions(all: &mut [Value]) -> Vec<bool> {
    let mut ended: HashSet<(String, String)> = HashSet::new();
    let mut had = Vec::new();
    for message in all {
        let group = message["groupKey"].to_string();
        let alerts = message["alerts"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let before = alerts.len();
        let mut is_news = |alert: &Value| {
            let key = (group.clone(), alert["fingerprint"].to_string());
            if alert["status"] == "resolved" {
                return ended.insert(key);
            }
            ended.remove(&key);
            true
        };
        let kept: Vec<Value> = alerts.into_iter().filter(&mut is_news).collect();
        had.push(kept.len() < before);
        message["alerts"] = kept.into();
    }
    had
}

/// Seconds of a time of each of a message's alerts.
fn times(message: &Value, field: &str) -> Vec<f64> {
    let alerts = message["alerts"].as_array().cloned().unwrap_or_default();
    let time = |alert: &Value| chrono::DateTime::parse_from_rfc3339(alert[field].as_str().unwrap_or_default()).ok();
    alerts.iter().filter_map(time).map(|t| t.timestamp_millis() as f64 / 1000.0).collect()
}

impl Twins {
    fn set(&self, bad: &[Bad]) {
        self.bad.store(bad.iter().fold(0, |all, one| all | *one as u8), SeqCst);
    }

    /// Waits until both sides were told so often, and says whether they were told the same.
    async fn told(&self, what: &str, counts: &[(&str, usize)]) {
        let enough = |side: &str| {
            let told = self.sink.side(side);
            counts.iter().all(|(path, count)| messages(&told, path).len() >= *count)
        };
        let began = std::time::Instant::now();
        while !(enough("/am") && enough("/quiver")) {
            let shown = ["/am", "/quiver"].map(|side| {
                let told = self.sink.side(side);
                counts
                    .iter()
                    .map(|(path, _)| format!("{side}{path} {}", messages(&told, path).len()))
                    .collect::<Vec<_>>()
            });
            assert!(began.elapsed() < PATIENCE, "{what}: {counts:?}, {shown:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.same(what, counts);
    }

    fn same(&self, what: &str, counts: &[(&str, usize)]) {
        let (theirs, ours) = (self.sink.side("/am"), self.sink.side("/quiver"));
        for (path, _) in counts {
            let (mut a, mut b) = (messages(&theirs, path), messages(&ours, path));
            if *path == "/info" {
                // A group per alert: which of two that are due at once is first is not defined.
                a.sort_by_cached_key(|m| normalised(m.clone()));
                b.sort_by_cached_key(|m| normalised(m.clone()));
            }
            let (had_a, had_b) = (without_repetitions(&mut a), without_repetitions(&mut b));
            for (i, (one, other)) in a.iter_mut().zip(&mut b).enumerate() {
                // What all alerts have in common is about others, too.
                if had_a[i] || had_b[i] {
                    for field in ["commonLabels", "commonAnnotations"] {
                        (one[field], other[field]) = (Value::Null, Value::Null);
                    }
                }
            }
            let text = |all: &[Value]| all.iter().cloned().map(normalised).collect::<Vec<_>>().join("\n");
            let (left, right) = (text(&a), text(&b));
            assert_eq!(left, right, "{what}: {path}");
            for (a, b) in a.iter().zip(&b) {
                let (starts, ends) = (times(a, "startsAt"), times(a, "endsAt"));
                let began = starts.into_iter().zip(times(b, "startsAt")).filter(|both| !self.began_anew(*both));
                // Groups are evaluated at phases of their own within a second, and flushed in seconds.
                let far = began.chain(ends.into_iter().zip(times(b, "endsAt"))).map(|(x, y)| (x - y).abs());
                let far = far.fold(0.0, f64::max);
                assert!(far < 4.0, "{what}: {path}: times differ by {far} s: {a} and {b}");
            }
        }
    }

    /// Whether an alert began anew on their side because that was started: Prometheus forgets since when an alert with a
    /// short `for` is active, where ours goes on.
    fn began_anew(&self, (theirs, ours): (f64, f64)) -> bool {
        self.restarts.lock().expect("whole").iter().any(|at| ours < *at && *at <= theirs)
    }

    /// Waits until their Prometheus has so many alerts that fire, and their Alertmanager has heard of them.
    async fn theirs_fire(&self, count: usize) {
        until("their alerts fire", PATIENCE, async || {
            let alerts = self.get(format!("{}/api/v1/alerts", self.theirs)).await["data"]["alerts"].clone();
            let firing = alerts.as_array().into_iter().flatten().filter(|a| a["state"] == "firing").count();
            let heard = self.get(format!("{}/api/v2/alerts", self.router)).await;
            firing == count && heard.as_array().map(Vec::len) == Some(count)
        })
        .await;
    }

    /// Waits until both of their programs answer.
    async fn theirs_are_there(&self) {
        for url in [format!("{}/-/ready", self.theirs), format!("{}/-/ready", self.router)] {
            until(&url, PATIENCE, async || self.client.get(&url).send().await.is_ok_and(|a| a.status() == 200)).await;
        }
    }

    async fn get(&self, url: String) -> Value {
        let sent = self.client.get(&url).send().await.unwrap_or_else(|e| panic!("{url}: {e}"));
        sent.json().await.unwrap_or_else(|e| panic!("{url}: {e}"))
    }

    /// Compares what both say of rules, alerts and groups.
    async fn same_lists(&self, what: &str) {
        let ours = self.ours.lock().expect("whole").clone();
        let sorted = |mut all: Vec<String>| {
            all.sort();
            all
        };
        let list =
            |value: &Value| sorted(value.as_array().cloned().unwrap_or_default().into_iter().map(normalised).collect());
        let sides = [format!("{}/api/v1", self.theirs), format!("{ours}/metrics-api/api/v1")];
        let (mut alerts, mut rules) = (Vec::new(), Vec::new());
        for side in &sides {
            alerts.push(list(&self.get(format!("{side}/alerts")).await["data"]["alerts"]));
            let groups = self.get(format!("{side}/rules")).await["data"]["groups"].clone();
            let rule = |rule: &Value| {
                let fields =
                    ["name", "query", "duration", "keepFiringFor", "labels", "annotations", "type", "state", "health"];
                let mut out: Map<String, Value> = fields.iter().map(|f| ((*f).to_owned(), rule[f].clone())).collect();
                // Prometheus 2 leaves out labels where there are none; younger ones give an empty object, as we do.
                out.entry("labels")
                    .and_modify(|labels| *labels = if labels.is_null() { json!({}) } else { labels.take() });
                out.insert("alerts".to_owned(), json!(list(&rule["alerts"])));
                Value::Object(out).to_string()
            };
            rules.push(groups[0]["rules"].as_array().map(|all| all.iter().map(rule).collect::<Vec<_>>()));
        }
        assert_eq!(alerts[0], alerts[1], "{what}: alerts of rules");
        assert_eq!(rules[0], rules[1], "{what}: rules");
        let mut groups = Vec::new();
        for side in [&self.router, &ours] {
            let all = self.get(format!("{side}/api/v2/alerts/groups")).await;
            let group = |group: &Value| {
                let alert = |a: &Value| {
                    let state = (a["status"]["state"].clone(), a["status"]["inhibitedBy"].clone());
                    json!([
                        a["labels"],
                        a["annotations"],
                        a["fingerprint"],
                        a["generatorURL"],
                        a["receivers"][0]["name"],
                        state
                    ])
                    .to_string()
                };
                let alerts = sorted(group["alerts"].as_array().into_iter().flatten().map(alert).collect());
                json!([group["labels"], group["receiver"]["name"], alerts]).to_string()
            };
            groups.push(sorted(all.as_array().into_iter().flatten().map(group).collect()));
        }
        assert_eq!(groups[0], groups[1], "{what}: groups of the router");
    }
}

/// Debian's programs, with what they are started with.
struct Theirs {
    prometheus: Program,
    alertmanager: Program,
    dir: PathBuf,
    own: String,
    router: String,
}

impl Theirs {
    fn start(dir: &Path, sink: &str) -> Self {
        let (own, router) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("writable");
        write("rules.yml", RULES);
        write("am.yml", &policy(sink, "am"));
        let config = format!(
            "global: {{evaluation_interval: 1s, external_labels: {{dc: north}}}}\nrule_files: ['{}']\n\
             alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{router}']}}]}}]}}\n",
            dir.join("rules.yml").display()
        );
        write("prometheus.yml", &config);
        let (prometheus, alertmanager) = (prometheus(dir, &own), alertmanager(dir, &router));
        Self { prometheus, alertmanager, dir: dir.to_owned(), own, router }
    }

    /// Kills Prometheus and stops Alertmanager, whose log of what was told does not survive a kill; starts both anew.
    fn again(self) -> Self {
        let Self { prometheus: former, alertmanager: router_before, dir, own, router } = self;
        router_before.stop();
        drop(former);
        let (prometheus, alertmanager) = (prometheus(&dir, &own), alertmanager(&dir, &router));
        Self { prometheus, alertmanager, dir, own, router }
    }
}

fn prometheus(dir: &Path, address: &str) -> Program {
    let mut command = program("prometheus");
    command
        .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("tsdb").display()))
        .arg(format!("--web.listen-address={address}"))
        .arg("--web.enable-remote-write-receiver")
        .arg("--web.external-url=http://monitor.example")
        .arg("--web.route-prefix=/")
        .arg("--rules.alert.resend-delay=2s");
    Program::start(&mut command, &dir.join("prometheus.log"))
}

fn alertmanager(dir: &Path, address: &str) -> Program {
    let mut command = program("prometheus-alertmanager");
    command
        .arg(format!("--config.file={}", dir.join("am.yml").display()))
        .arg(format!("--storage.path={}", dir.join("am").display()))
        .arg(format!("--web.listen-address={address}"))
        .arg("--cluster.listen-address=")
        .arg("--web.external-url=http://monitor.example")
        .arg("--web.route-prefix=/");
    Program::start(&mut command, &dir.join("am.log"))
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_and_messages_are_those_of_prometheus() {
    one_holds(the_same_as_prometheus).await;
}

async fn the_same_as_prometheus() {
    let dir = tempfile::tempdir().expect("a folder");
    let sink = Sink::open().await;
    let mut programs = Theirs::start(dir.path(), &sink.address);
    let policy_file = dir.path().join("quiver.yml");
    std::fs::write(&policy_file, policy(&sink.address, "quiver")).expect("writable");
    let rules = dir.path().join("rules.yml").display().to_string();
    let options = Options::default()
        .args(&["--rules", &rules, "--alert-policy", &policy_file.display().to_string()])
        .env("QUIVER_EGRESS__ALLOW", "[\"127.0.0.0/8\"]")
        .env("QUIVER_ALERTING__EXTERNAL_URL", "http://monitor.example")
        .env("QUIVER_ALERTING__EXTERNAL_LABELS", "[\"dc=north\"]")
        .env("QUIVER_ALERTING__RESEND_DELAY", "2s");
    let data = dir.path().join("data");
    let mut server = Server::start(&data, &options).await;
    let ours = Arc::new(Mutex::new(server.url("")));
    let twins = Twins {
        client: reqwest::Client::new(),
        theirs: format!("http://{}", programs.own),
        router: format!("http://{}", programs.router),
        ours,
        bad: Arc::default(),
        over: Arc::default(),
        sink,
        restarts: Mutex::default(),
    };
    twins.theirs_are_there().await;
    write_on(&twins);
    let rounds = if soak() { 5 } else { 1 };
    let (mut all, mut info) = (0, 0);
    for round in 0..rounds {
        twins.set(&[Bad::Web]);
        all += 1;
        twins.told("web fails", &[("/all", all)]).await;
        twins.set(&[Bad::Web, Bad::Db]);
        all += 1;
        twins.told("db fails, too", &[("/all", all)]).await;
        // Two at once; then those that they keep quiet.
        twins.set(&[Bad::Web, Bad::Db, Bad::Down]);
        all += 1;
        twins.told("instances are down", &[("/all", all)]).await;
        // Started anew while four fire: nobody hears of that either. Before there is anything to keep quiet: what comes
        // first to a new Alertmanager is chance.
        programs = programs.again();
        twins.restarts.lock().expect("whole").push(SystemClock.now_ms() as f64 / 1000.0);
        twins.theirs_are_there().await;
        twins.theirs_fire(4).await;
        twins.same_lists("after their restart").await;
        twins.told("nobody heard of their restart", &[("/all", all), ("/info", info)]).await;
        twins.set(&[Bad::Web, Bad::Db, Bad::Down, Bad::Slow]);
        tokio::time::sleep(Duration::from_secs(3)).await;
        twins.same_lists("all at once").await;
        twins.told("slow ones are kept quiet", &[("/all", all), ("/info", info)]).await;
        // Killed while all of them fire: nobody hears of it.
        server.kill();
        server = Server::start(&data, &options).await;
        *twins.ours.lock().expect("whole") = server.url("");
        tokio::time::sleep(Duration::from_secs(3)).await;
        twins.same_lists("after a kill").await;
        twins.told("nobody heard of the kill", &[("/all", all), ("/info", info)]).await;
        // One alert of a group ends; then the others, and what was kept quiet shows.
        twins.set(&[Bad::Db, Bad::Down, Bad::Slow]);
        all += 1;
        twins.told("web is well again", &[("/all", all)]).await;
        twins.set(&[Bad::Slow]);
        (all, info) = (all + 2, info + 2);
        twins.told("slow ones show", &[("/info", info)]).await;
        twins.set(&[]);
        info += 2;
        twins.told("all is well", &[("/info", info)]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        eprintln!("round {round}: {all} and {info} messages are equal");
    }
    twins.same("in the end", &[("/all", all), ("/info", info)]);
    let counts = |side: &str| messages(&twins.sink.side(side), "/all").len();
    assert_eq!((counts("/am"), counts("/quiver")), (all, all));
}
