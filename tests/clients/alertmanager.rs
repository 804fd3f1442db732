//! Debian's Alertmanager side by side with this server: with the same policy and alerts, a dozen receivers must get equal
//! messages. Mail goes through a real server that requires TLS and a password.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use quiver_tests::server::{Options, Server, tools};
use quiver_tests::time_limits::one_holds;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::tools::{Program, document, free_port, program, until};

const PATIENCE: Duration = Duration::from_mins(5);

/// Bodies by the path that they were sent to.
pub(crate) type Told = BTreeMap<String, Vec<Value>>;

/// An HTTP receiver that takes all.
pub(crate) struct Sink {
    pub(crate) address: String,
    told: Arc<Mutex<Told>>,
}

impl Sink {
    pub(crate) async fn open() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = socket.local_addr().expect("an address").to_string();
        let told = Arc::<Mutex<Told>>::default();
        let kept = Arc::clone(&told);
        tokio::spawn(async move {
            while let Ok((mut peer, _)) = socket.accept().await {
                let kept = Arc::clone(&kept);
                tokio::spawn(async move {
                    let (mut text, mut buffer) = (Vec::new(), vec![0; 65_536]);
                    loop {
                        let n = peer.read(&mut buffer).await.unwrap_or(0);
                        if n == 0 {
                            return;
                        }
                        text.extend_from_slice(&buffer[..n]);
                        let Some(at) = text.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
                        let head = String::from_utf8_lossy(&text[..at]).into_owned();
                        let length = head.lines().find_map(|line| {
                            let (name, value) = line.split_once(':')?;
                            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
                        });
                        if text.len() < at + 4 + length.unwrap_or(0) {
                            continue;
                        }
                        let body = serde_json::from_slice(&text[at + 4..]).unwrap_or(Value::Null);
                        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                        kept.lock().expect("whole").entry(path).or_default().push(body);
                        // What each kind takes for a yes.
                        let yes = "{\"ok\":true,\"status\":\"success\"}";
                        let length = yes.len();
                        let answer = format!(
                            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{yes}"
                        );
                        let _ = peer.write_all(answer.as_bytes()).await;
                        return;
                    }
                });
            }
        });
        Self { address, told }
    }

    /// What was told below a path, the path of the side taken away.
    pub(crate) fn side(&self, name: &str) -> Told {
        let told = self.told.lock().expect("whole");
        let own = told.iter().filter_map(|(path, all)| Some((path.strip_prefix(name)?.to_owned(), all.clone())));
        own.collect()
    }
}

/// A mail with headers and a page of its own: addresses with names and comments, and texts in each kind of place of a page.
const OWN_MAIL: &str = r#"  - to: 'Täm Ops <team@b.example>, duty@my_host.example (on call),'
    send_resolved: true
    headers: {subject: 'Ü {{ .GroupLabels.alertname }} {{ range .Alerts }}{{ .Labels.instance }} {{ end }}', from: 'Me <me@x.example>', TO: all of us, reply-to: 'R <r@b.example>', message-id: '<own@b.example>'}
    html: '<a href="{{ .CommonAnnotations.link }}" title={{ .CommonLabels.team }} onclick="f({{ .CommonLabels.team }})">{{ .CommonLabels.team }}</a><script>var x={{ .CommonLabels.team }};</script><p style="color:{{ .Status }}">{{ .CommonAnnotations.summary | safeHtml }}{{ len .Alerts }}</p>'
"#;

/// A template that yields nothing.
const NONE: &str = "{{ .CommonLabels.none }}";

/// Mails of one message.
const MAILS: usize = 2;

/// A policy whose receivers lie below `/<side>` of the sink, and whose mails come from `<side>@q.example`.
fn policy(sink: &str, side: &str, mail: u16, ca: &str) -> String {
    let at = format!("http://{sink}/{side}");
    format!(
        "global:\n  smtp_smarthost: 'localhost:{mail}'\n  smtp_from: '{side}@q.example'\n  smtp_auth_username: mailer\n  \
         smtp_auth_password: s3cret\n  smtp_hello: q.example\n\
         route:\n  receiver: all\n  group_by: [alertname]\n  group_wait: 1s\n  group_interval: 2s\n  repeat_interval: 1h\n\
         inhibit_rules:\n- {{source_matchers: ['severity=\"page\"'], target_matchers: ['severity=\"info\"'], equal: [shop]}}\n\
         receivers:\n- name: all\n  webhook_configs:\n  - {{url: '{at}/webhook'}}\n  - {{url: '{at}/one', max_alerts: 1}}\n  \
         slack_configs:\n  - api_url: '{at}/slack'\n    channel: '#ops'\n    send_resolved: true\n    \
         fields: [{{title: T, value: '{{{{ .Status }}}}', short: true}}, {{title: E, value: '{NONE}'}}]\n    \
         actions: [{{type: button, text: go, url: 'https://x.example', style: danger}}, \
         {{type: button, text: '{NONE}', name: n, confirm: {{text: '{NONE}'}}}}]\n  \
         pagerduty_configs:\n  - {{routing_key: k, url: '{at}/pagerduty', severity: '{NONE}', links: [{{href: 'https://x', text: t}}]}}\n  \
         opsgenie_configs:\n  - {{api_key: k, api_url: '{at}/opsgenie/', tags: 'a,b', update_alerts: true, description: '{NONE}', \
         responders: [{{name: team, type: team}}, {{name: u, type: User}}, {{name: '{NONE}', type: team}}, {{name: '{NONE}', type: '{NONE}'}}]}}\n  \
         discord_configs:\n  - {{webhook_url: '{at}/discord'}}\n  \
         email_configs:\n  - to: ops@b.example\n    send_resolved: true\n    headers: {{X-Team: '{{{{ .GroupLabels.alertname }}}}'}}\n    \
         text: 'plain = {{{{ .Status }}}} ü'\n    tls_config: {{ca_file: '{ca}'}}\n\
         {OWN_MAIL}    tls_config: {{ca_file: '{ca}'}}\n"
    )
}

/// Takes out what differs between the two by their version, each difference named.
fn normal(mut body: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(map) => {
                // Younger than 0.25. Details of an incident were texts there; texts that are YAML become what they say since.
                for field in ["routeLabels", "notification_reason", "custom_details"] {
                    map.remove(field);
                }
                map.values_mut().for_each(walk);
            }
            Value::Array(items) => items.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut body);
    body
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn alert(name: &str, labels: &Value, (starts, ends): (DateTime<Utc>, DateTime<Utc>)) -> Value {
    let mut all = labels.clone();
    all["alertname"] = json!(name);
    json!({
        "labels": all, "annotations": {
            "summary": "it is <b>hot</b> & \"wet\" – ñandú", "runbook": "https://r.example/1",
            "link": "https://r.example/ü?a=1&b=<2>",
        },
        "startsAt": time(starts), "endsAt": time(ends), "generatorURL": "http://p.example/graph?g0.expr=up",
    })
}

async fn post(client: &reqwest::Client, at: &str, alerts: &Value) {
    let sent = client.post(format!("{at}/api/v2/alerts")).json(alerts).send().await.expect("it answers");
    assert_eq!(sent.status(), 200, "{at}");
}

/// Mails of a sender, by whom they are to.
fn mails(log: &Path, side: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut own: Vec<Value> = all.filter(|mail| mail["from"] == json!(format!("{side}@q.example"))).collect();
    own.sort_by_key(|mail| mail["to"].to_string());
    own
}

/// Headers of a mail without what is different in each: its time, its id unless that is given, the mark between its parts.
fn headers(mail: &Value, side: &str) -> BTreeMap<String, String> {
    let all = mail["headers"].as_object().into_iter().flatten();
    let mut out: BTreeMap<String, String> =
        all.map(|(name, text)| (name.clone(), text.as_str().unwrap_or_default().replace(side, "side"))).collect();
    assert!(out.get("message-id").is_some_and(|id| id.starts_with('<') && id.ends_with('>')), "{mail}");
    out.retain(|name, text| (name != "message-id" || text == "<own@b.example>") && name != "date");
    out.entry("content-type".to_owned()).and_modify(|text| text.truncate("multipart/alternative;".len()));
    out
}

struct Both {
    client: reqwest::Client,
    sides: [String; 2],
    sink: Sink,
    mail_log: PathBuf,
    /// What Alertmanager says.
    log: PathBuf,
}

impl Both {
    async fn post(&self, alerts: &Value) {
        for at in &self.sides {
            post(&self.client, at, alerts).await;
        }
    }

    /// Waits until each of a number of receivers has been told so often, mails included.
    async fn until(&self, what: &str, times: usize) {
        let began = Instant::now();
        loop {
            let told = ["am", "quiver"].map(|side| {
                let counts = self.sink.side(&format!("/{side}")).into_iter().map(|(path, all)| (path, all.len()));
                (counts.collect::<BTreeMap<String, usize>>(), mails(&self.mail_log, side).len())
            });
            // Five receivers are called once each; Opsgenie three times while something fires, and once at the end.
            let calls = 5 * times + 3 * times.min(2) + times.saturating_sub(2);
            let whole = |(counts, mails): &(BTreeMap<String, usize>, usize)| {
                counts.values().sum::<usize>() >= calls && *mails >= MAILS * times
            };
            if told.iter().all(whole) {
                return;
            }
            let log = || std::fs::read_to_string(&self.log).unwrap_or_default();
            assert!(began.elapsed() < PATIENCE, "{what}: {told:#?}\n{}", log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Compares what both sides were told.
    fn compare(&self) {
        let [am, ours] = ["/am", "/quiver"].map(|side| {
            let told = self.sink.side(side);
            told.into_iter().map(|(path, all)| (path, all.into_iter().map(normal).collect())).collect::<Told>()
        });
        let paths = |told: &Told| told.keys().cloned().collect::<Vec<_>>();
        assert_eq!(paths(&am), paths(&ours), "receivers that were told");
        for (path, theirs) in &am {
            let mine = &ours[path];
            assert_eq!(theirs.len(), mine.len(), "messages to {path}: {theirs:#?} and {mine:#?}");
            for (a, b) in theirs.iter().zip(mine) {
                let (a, b) = (a.to_string().replace("/am/", "/x/"), b.to_string().replace("/quiver/", "/x/"));
                assert_eq!(a, b, "{path}");
            }
        }
        let [theirs, mine] = ["am", "quiver"].map(|side| mails(&self.mail_log, side));
        assert_eq!(theirs.len(), mine.len(), "mails");
        for (a, b) in theirs.iter().zip(&mine) {
            assert_eq!(headers(a, "am@q"), headers(b, "quiver@q"));
            assert_eq!(a["structure"], b["structure"]);
            assert_eq!(a["parts"]["text/plain"], b["parts"]["text/plain"]);
            assert_eq!((&b["tls"], &b["user"], &b["to"]), (&json!(true), &json!("mailer"), &a["to"]));
            // Its address of the schema has been encrypted since 0.25.
            let html = |mail: &Value| {
                let text =
                    mail["parts"]["text/html"].as_str().unwrap_or_default().replace("http://schema", "https://schema");
                text.lines().map(str::to_owned).collect::<Vec<_>>()
            };
            let (a, b) = (html(a), html(b));
            let differing: Vec<_> = a.iter().zip(&b).filter(|(a, b)| a != b).collect();
            assert!(differing.is_empty() && a.len() == b.len(), "{differing:#?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_are_told_the_same() {
    one_holds(told_the_same).await;
}

async fn told_the_same() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let certificate = |name: &str| document(&format!("tests/certificates/{name}")).display().to_string();
    let (sink, mail) = (Sink::open().await, free_port());
    let mail_log = at("mails");
    let script = document("tests/tools/smtp_sink.py");
    let mut smtp = std::process::Command::new(tools().join("venv/bin/python"));
    smtp.arg(script).args([certificate("server.pem"), certificate("server.key"), mail.to_string()]);
    let _smtp = Program::start(&mut smtp, &mail_log);
    until("the mail server", PATIENCE, async || std::net::TcpStream::connect(("127.0.0.1", mail)).is_ok()).await;

    std::fs::copy(certificate("ca.pem"), at("ca.pem")).expect("a copy");
    let write = |side: &str, ca: &str| {
        let file = at(&format!("{side}.yml"));
        std::fs::write(&file, policy(&sink.address, side, mail, ca)).expect("a file");
        file.display().to_string()
    };
    let options = Options::default()
        .env("QUIVER_ALERTING__POLICY", write("quiver", "ca.pem"))
        .env("QUIVER_ALERTING__FILES_DIR", dir.path().display())
        .env("QUIVER_ALERTING__EXTERNAL_URL", "http://monitor.example")
        .env("QUIVER_EGRESS__ALLOW", "[\"127.0.0.0/8\", \"::1/128\"]");
    let server = Server::start(&at("data"), &options).await;
    let port = free_port();
    let mut command = program("prometheus-alertmanager");
    command
        .arg(format!("--config.file={}", write("am", &at("ca.pem").display().to_string())))
        .arg(format!("--storage.path={}", at("am").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .arg("--cluster.listen-address=")
        .arg("--web.external-url=http://monitor.example")
        .arg("--web.route-prefix=/");
    let _alertmanager = Program::start(&mut command, &at("am.log"));
    let client = reqwest::Client::new();
    let theirs = format!("http://127.0.0.1:{port}");
    until("Alertmanager", PATIENCE, async || {
        client.get(format!("{theirs}/-/ready")).send().await.is_ok_and(|a| a.status() == 200)
    })
    .await;
    let both = Both { client, sides: [theirs, server.url("")], sink, mail_log, log: at("am.log") };

    let now = Utc::now();
    let later = now + TimeDelta::hours(1);
    let started = now - TimeDelta::minutes(1);
    let high = |n: usize, ends| {
        let labels = json!({
            "shop": "a", "severity": "page", "job": "web", "instance": format!("i{n}:80"), "team": "Tëam <A> & \"B\"",
        });
        alert("High", &labels, (started, ends))
    };
    both.post(&json!([high(1, later), high(2, later)])).await;
    both.until("alerts that fire", 1).await;
    // One ends, another comes; and one that they keep quiet. Beside the first it would race with them: groups whose
    // alerts are older than `group_wait` are told at once.
    let ended = Utc::now();
    let quiet = alert("Quiet", &json!({"shop": "a", "severity": "info"}), (started, later));
    both.post(&json!([high(1, ended), high(3, later), quiet])).await;
    both.until("a change of a group", 2).await;
    let ended = Utc::now();
    both.post(&json!([high(2, ended), high(3, ended)])).await;
    both.until("the end", 3).await;
    both.compare();
}
