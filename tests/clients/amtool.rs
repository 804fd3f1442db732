//! All commands of `amtool` that talk to a server, run against this one; and checks of our exports by `amtool` and
//! `promtool`.

use quiver_tests::server::{Options, Server, run};
use serde_json::Value;

use crate::tools::program;

/// The address of a webhook carries a secret, of which only the rest is shown: Debian's amtool wants an address there.
const POLICY: &str = "route:\n  receiver: ops\n  group_by: [alertname]\n  routes:\n  - {receiver: pages, matchers: ['severity=\"page\"']}\n\
    receivers:\n- {name: ops, slack_configs: [{api_url: 'http://127.0.0.1:1/?key=s3cret', channel: '#ops'}], \
    webhook_configs: [{url: 'http://127.0.0.1:1/?key=s3cret'}, {url: 'http://127.0.0.1:1/x'}]}\n- {name: pages}\n";

fn amtool(server: &Server, args: &[&str]) -> String {
    let mut command = program("amtool");
    let (code, output, errors) = run(command.arg(format!("--alertmanager.url={}", server.url(""))).args(args));
    assert_eq!(code, Some(0), "amtool {args:?}: {output}{errors}");
    output
}

fn json(server: &Server, args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["-o", "json"]).collect();
    serde_json::from_str(&amtool(server, &args)).expect("JSON")
}

async fn server(dir: &std::path::Path) -> Server {
    let policy = dir.join("policy.yml");
    std::fs::write(&policy, POLICY).expect("a file");
    Server::start(&dir.join("data"), &Options::default().env("QUIVER_ALERTING__POLICY", policy.display())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_and_silences() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = server(dir.path()).await;
    amtool(&server, &["alert", "add", "High", "severity=page", "job=web", "--annotation=summary=hot"]);
    amtool(&server, &["alert", "add", "alertname=Low", "job=db"]);
    let names = |found: &Value| {
        let mut names: Vec<String> =
            found.as_array().expect("a list").iter().map(|a| a["labels"]["alertname"].to_string()).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(names(&json(&server, &["alert", "query"])), "\"High\" \"Low\"");
    assert_eq!(names(&json(&server, &["alert", "query", "job=~w.*"])), "\"High\"");
    assert_eq!(names(&json(&server, &["alert", "query", "--receiver=pages"])), "\"High\"");
    assert!(amtool(&server, &["alert", "query", "-o", "extended"]).contains("hot"));

    let silence = ["silence", "add", "alertname=Low", "job=db", "--comment=night", "--author=me", "--duration=2h"];
    let id = amtool(&server, &silence).trim().to_owned();
    assert_eq!(names(&json(&server, &["alert", "query"])), "\"High\"");
    assert_eq!(names(&json(&server, &["alert", "query", "--silenced"])), "\"Low\"");
    let found = json(&server, &["silence", "query", "alertname=Low"]);
    assert_eq!((&found[0]["id"], &found[0]["createdBy"]), (&Value::from(id.as_str()), &"me".into()));
    assert_eq!(amtool(&server, &["silence", "query", "-q"]).trim(), id);
    amtool(&server, &["silence", "update", &id, "--duration=3h", "--comment=longer"]);
    assert_eq!(json(&server, &["silence", "query"])[0]["comment"], "longer");

    // What is exported here comes in again after all have ended.
    let kept = dir.path().join("silences.json");
    std::fs::write(&kept, json(&server, &["silence", "query"]).to_string()).expect("a file");
    let id = amtool(&server, &["silence", "query", "-q"]).trim().to_owned();
    amtool(&server, &["silence", "expire", &id]);
    assert_eq!(amtool(&server, &["silence", "query", "-q"]).trim(), "");
    assert_eq!(amtool(&server, &["silence", "query", "-q", "--expired"]).trim(), id);
    amtool(&server, &["silence", "import", "--force", &kept.display().to_string()]);
    assert_eq!(json(&server, &["silence", "query"]).as_array().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = server(dir.path()).await;
    let shown = amtool(&server, &["config", "show"]);
    assert!(shown.contains("receiver: ops") && !shown.contains("s3cret"), "{shown}");
    assert!(amtool(&server, &["config", "routes", "show"]).contains("pages"));
    assert_eq!(amtool(&server, &["config", "routes", "test", "severity=page"]).trim(), "pages");
    amtool(&server, &["config", "routes", "test", "--verify.receivers=ops", "severity=info"]);
    assert!(amtool(&server, &["cluster", "show"]).contains("disabled"));

    // A policy that is stored here is one for Alertmanager.
    let other = dir.path().join("stored");
    let server = Server::start(&other, &Options::default()).await;
    let yaml = [("content-type", "application/yaml")];
    let deployed = server.post("/rulesapi/rulepolicy/deploy", &yaml, POLICY.into()).await;
    assert_eq!(deployed.status, 200, "{}", deployed.text());
    let exported = server.get("/rulesapi/rulepolicy/deploy?secrets=true").await.text();
    let file = dir.path().join("exported.yml");
    std::fs::write(&file, exported).expect("a file");
    let (code, output, errors) = run(program("amtool").arg("check-config").arg(&file));
    assert_eq!(code, Some(0), "{output}{errors}");
}

/// Its client reads no other media type of JSON than one: it says what the matter is only where errors have that.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_let_in_is_told_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().args(&["--rbac", "on"]).env("QUIVER_ADMIN_PASSWORD", "correct horse battery");
    let server = Server::start(dir.path(), &options).await;
    let asked: [&[&str]; 4] = [
        &["alert", "query"],
        &["silence", "query"],
        &["config", "show"],
        &["silence", "add", "a=b", "--comment=x", "--author=y"],
    ];
    for args in asked {
        let mut command = program("amtool");
        let (code, output, errors) = run(command.arg(format!("--alertmanager.url={}", server.url(""))).args(args));
        assert_eq!(code, Some(1), "amtool {args:?}: {output}{errors}");
        assert!(errors.contains("401") && !errors.contains("consumer"), "amtool {args:?}: {output}{errors}");
    }
    let answer = server.get("/api/v2/alerts").await;
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!((answer.status, &answer.json()["code"]), (401, &Value::from("TOKEN_MISSING")));
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_rules_are_prometheus() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&dir.path().join("data"), &Options::default()).await;
    let rules = "groups:\n- name: shop\n  interval: 30s\n  limit: 10\n  labels: {team: web}\n  rules:\n  \
        - {record: 'shop:up', expr: sum(up)}\n  - {alert: Down, expr: 'shop:up == 0', for: 5m, keep_firing_for: 1m, \
        labels: {severity: page}, annotations: {summary: '{{ $value }} up'}}\n";
    let yaml = [("content-type", "application/yaml")];
    assert_eq!(server.post("/rulesapi/deploy", &yaml, rules.into()).await.status, 200);
    let own = r#"{"group": "own", "alert": "A", "expr": "up == 0", "severity": "page", "service": "cart", "runbook_url": "https://r"}"#;
    let made = server.post("/rulesapi/rules", &[("content-type", "application/json")], own.into()).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let exported = server.get("/rulesapi/deploy?format=prometheus").await.text();
    let file = dir.path().join("rules.yml");
    // Labels of groups are younger than Debian's promtool.
    let known: String = exported
        .lines()
        .filter(|line| !line.contains("team: web") && *line != "    labels:")
        .map(|l| format!("{l}\n"))
        .collect();
    std::fs::write(&file, &known).expect("a file");
    let (code, output, errors) = run(program("promtool").arg("check").arg("rules").arg(&file));
    assert_eq!(code, Some(0), "{known}\n{output}{errors}");
    assert!(output.contains("3 rules found"), "{output}");
    // Back in, nothing changes, and what comes out is the same byte for byte.
    let again = server.post("/rulesapi/deploy", &yaml, exported.clone().into_bytes()).await;
    assert_eq!((again.status, &again.json()["summary"]["unchanged"]), (200, &3.into()), "{}", again.text());
    assert_eq!(server.get("/rulesapi/deploy?format=prometheus").await.text(), exported);
}
