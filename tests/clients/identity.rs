//! Unmodified clients of token services, and senders that use an API key or fetch tokens themselves.

use std::process::Command;
use std::time::Duration;

use quiver_tests::server::{Answer, Options, Server, run, tools};
use serde_json::{Value, json};

use crate::tools::{Program, document, free_port, newer_program, program, python, until};

const PASSWORD: &str = "correct horse battery";
const TOKEN: &str = "/realms/platform/protocol/openid-connect/token";

/// A server with access control, its administrator, and an account for programs that may write services `shop*`.
struct Setup {
    server: Server,
    admin: String,
    secret: String,
    key: String,
    dir: tempfile::TempDir,
}

async fn call(server: &Server, who: &str, path: &str, body: Option<Value>) -> Answer {
    let headers = [("authorization", who), ("content-type", "application/json")];
    let path = format!("/platform-api/rbac/{path}");
    match body {
        Some(body) => server.post(&path, &headers, body.to_string().into_bytes()).await,
        None => server.get_as(&path, &headers).await,
    }
}

async fn made(server: &Server, who: &str, path: &str, body: Value) -> Value {
    let answer = call(server, who, path, Some(body)).await;
    assert_eq!(answer.status, 201, "{path}: {}", answer.text());
    answer.json()
}

impl Setup {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let options = Options::default().args(&["--rbac", "on"]).env("QUIVER_ADMIN_PASSWORD", PASSWORD);
        let server = Server::start(&dir.path().join("data"), &options).await;
        let form = format!("grant_type=password&client_id=ui&username=admin&password={}", PASSWORD.replace(' ', "+"));
        let kind = [("content-type", "application/x-www-form-urlencoded")];
        let token = server.post(TOKEN, &kind, form.into_bytes()).await.json();
        let admin = format!("Bearer {}", token["access_token"].as_str().expect("a token"));
        let agent = made(&server, &admin, "service-accounts", json!({"clientId": "agent-1.x@y+z"})).await;
        for (role, services) in [("ingest", json!(["shop*", "prometheus"])), ("viewer", json!(["shop*", "prometheus"]))]
        {
            let roles = call(&server, &admin, &format!("roles?name={role}"), None).await.json();
            let subject = json!({"type": "serviceAccount", "id": agent["id"]});
            let binding = json!({"subject": subject, "roleId": roles["items"][0]["id"], "services": services});
            made(&server, &admin, "bindings", binding).await;
        }
        let keys = format!("service-accounts/{}/keys", agent["id"].as_str().expect("an id"));
        let key = made(&server, &admin, &keys, json!({"name": "k"})).await;
        let text = |value: &Value| value.as_str().expect("shown this once").to_owned();
        Self { server, admin, secret: text(&agent["secret"]), key: text(&key["key"]), dir }
    }

    fn base(&self) -> String {
        format!("http://{}", self.server.http)
    }
}

/// The name of the account: with signs that clients encode before base64, or do not.
const AGENT: &str = "agent-1.x@y+z";

#[tokio::test(flavor = "multi_thread")]
async fn of_npm() {
    let setup = Setup::new().await;
    let modules = tools().join("node");
    let mut node = Command::new("node");
    node.arg(document("tests/tools/identity_clients.mjs")).arg(modules);
    let (code, output, errors) = run(node.args([&setup.base(), "admin", PASSWORD, AGENT, &setup.secret]));
    assert_eq!(code, Some(0), "{output}{errors}");
    let found: Value = serde_json::from_str(output.trim()).expect("JSON");
    for (client, name) in [("openid", AGENT), ("keycloak", "admin")] {
        let who = format!("Bearer {}", found[client]["access"].as_str().expect("a token"));
        let me = call(&setup.server, &who, "me", None).await;
        assert_eq!((me.status, &me.json()["subject"]["name"]), (200, &json!(name)), "{client}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_python() {
    let setup = Setup::new().await;
    let (server, key) = (&setup.server, &setup.key);
    let args = [&setup.base(), "admin", PASSWORD, AGENT, &setup.secret, key, &server.otlp_http, &server.otlp_grpc];
    python("identity_clients.py", &args);
    let headers = [("authorization", setup.admin.as_str())];
    let path = "/logs-api/select/logsql/query?query=*%20%7C%20stats%20by%20(service.name)%20count()%20n";
    let rows = server.get_as(path, &headers).await.text();
    let mut counts: Vec<(String, String)> = rows
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).expect("JSON"))
        .map(|r| {
            (r["service.name"].as_str().unwrap_or_default().to_owned(), r["n"].as_str().unwrap_or_default().to_owned())
        })
        .collect();
    counts.sort_unstable();
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(counts, [pair("shop-bulk", "4"), pair("shop-grpc", "1"), pair("shop-http", "1")]);
}

/// Prometheus fetches tokens by itself and writes with them; promtool asks with a key.
#[tokio::test(flavor = "multi_thread")]
async fn of_prometheus() {
    let setup = Setup::new().await;
    let own = format!("127.0.0.1:{}", free_port());
    let folder = setup.dir.path();
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
         scrape_configs:\n\
         - {{job_name: prometheus, static_configs: [{{targets: ['{own}']}}]}}\n\
         - {{job_name: other, static_configs: [{{targets: ['{own}']}}]}}\n\
         remote_write:\n\
         - url: {base}/metrics-api/api/v1/write\n\
        \x20 oauth2: {{client_id: '{AGENT}', client_secret: '{secret}', token_url: '{base}{TOKEN}', scopes: [profile]}}\n\
        \x20 queue_config: {{max_shards: 1, batch_send_deadline: 1s}}\n",
        base = setup.base(),
        secret = setup.secret,
    );
    let file = folder.join("prometheus.yml");
    std::fs::write(&file, config).expect("writable");
    let mut command = program("prometheus");
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()));
    let log = folder.join("prometheus.log");
    let _prometheus = Program::start(command.arg(format!("--web.listen-address={own}")), &log);
    let headers = [("authorization", setup.admin.as_str())];
    until("Prometheus writes", Duration::from_mins(5), async || {
        let answer = setup.server.get_as("/metrics-api/api/v1/query?query=up", &headers).await.json();
        answer["data"]["result"].as_array().is_some_and(|r| !r.is_empty())
    })
    .await;
    // What it may not write is left out, and it goes on.
    let answer = setup.server.get_as("/metrics-api/api/v1/label/job/values", &headers).await.json();
    assert_eq!(answer["data"], json!(["prometheus"]), "{}", std::fs::read_to_string(&log).unwrap_or_default());
    // Debian's promtool takes credentials in the address alone.
    let url = setup.base().replace("http://", &format!("http://any:{}@", setup.key));
    let mut promtool = program("promtool");
    let (code, output, errors) = run(promtool.args(["query", "instant", &format!("{url}/metrics-api"), "count(up)"]));
    assert!(code == Some(0) && output.contains("=> 1 @"), "{output}{errors}");
    let mut promtool = program("promtool");
    let bare = format!("{}/metrics-api", setup.base());
    let (code, output, errors) = run(promtool.args(["query", "instant", &bare, "count(up)"]));
    assert!(code != Some(0) && errors.contains("401"), "{output}{errors}");
}

/// `promtool` with a file of credentials (`--http.config.file`), in each way that such a file has: queries and writes.
#[tokio::test(flavor = "multi_thread")]
async fn of_promtool_with_a_file() {
    let Some(promtool) = newer_program("promtool") else {
        quiver_tests::skipped("promtool with a file of credentials, since the mirror has no newer promtool");
        return;
    };
    let setup = Setup::new().await;
    let (base, secret, key) = (setup.base(), &setup.secret, &setup.key);
    let kind = [("content-type", "application/x-www-form-urlencoded")];
    let form = format!("grant_type=client_credentials&client_id=agent-1.x%40y%2Bz&client_secret={secret}");
    let token = setup.server.post(TOKEN, &kind, form.into_bytes()).await.json();
    let token = token["access_token"].as_str().expect("a token");
    let folder = setup.dir.path();
    let samples = folder.join("samples.txt");
    std::fs::write(&samples, "# TYPE shop_up gauge\nshop_up{service=\"shop-a\"} 1\n").expect("writable");
    let promtool = |config: &str, args: &[&str]| {
        let file = folder.join("http.yml");
        std::fs::write(&file, config).expect("writable");
        let mut command = Command::new(&promtool);
        let (code, output, errors) = run(command.args(args).arg(format!("--http.config.file={}", file.display())));
        (code == Some(0), output + &errors)
    };
    let url = format!("{base}/metrics-api");
    let client = format!("oauth2: {{client_id: '{AGENT}', token_url: '{base}{TOKEN}'");
    let ways = [
        format!("{client}, client_secret: '{secret}'}}"),
        format!("{client}, client_secret: '{secret}', scopes: [profile, any], endpoint_params: {{audience: x}}}}"),
        format!("authorization: {{credentials: '{token}'}}"),
        format!("authorization: {{credentials: '{key}'}}"),
        format!("authorization: {{type: ApiKey, credentials: '{key}'}}"),
        format!("basic_auth: {{username: '{AGENT}', password: '{secret}'}}"),
        format!("basic_auth: {{username: any, password: '{key}'}}"),
    ];
    for way in &ways {
        let write = format!("{url}/api/v1/write");
        let (good, said) = promtool(way, &["push", "metrics", &write, samples.to_str().expect("UTF-8")]);
        assert!(good, "{way}: {said}");
        let query = ["query", "instant", &url, "count(shop_up)"];
        let (good, said) = promtool(way, &query);
        assert!(good && said.contains("=> 1 @"), "{way}: {said}");
        let (good, said) = promtool(way, &["query", "labels", &url, "__name__"]);
        assert!(good && said.contains("shop_up"), "{way}: {said}");
        let (good, said) = promtool(way, &["query", "series", "--match=shop_up", &url]);
        assert!(good && said.contains("shop-a"), "{way}: {said}");
    }
    let (good, said) = promtool("follow_redirects: true", &["query", "instant", &url, "count(shop_up)"]);
    assert!(!good && said.contains("TOKEN_MISSING"), "{said}");
    let wrong = format!("{client}, client_secret: 'x{secret}'}}");
    let (good, said) = promtool(&wrong, &["query", "instant", &url, "count(shop_up)"]);
    assert!(!good && said.contains("invalid_client"), "{said}");
    let wrong = format!("authorization: {{credentials: '{token}x'}}");
    let (good, said) = promtool(&wrong, &["query", "instant", &url, "count(shop_up)"]);
    assert!(!good && said.contains("TOKEN_INVALID"), "{said}");
}
