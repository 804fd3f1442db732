//! Access control with the real binary: first start, tokens, keys, and who sees what.

use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};
use std::fmt::Write as _;

pub(crate) const PASSWORD: &str = "correct horse battery";
const TOKEN: &str = "/realms/platform/protocol/openid-connect/token";
/// The time of all data, in Unix seconds.
const AT: i64 = 1_700_000_000;

fn on() -> Options {
    Options::default().args(&["--rbac", "on"])
}

pub(crate) fn with_password() -> Options {
    on().env("QUIVER_ADMIN_PASSWORD", PASSWORD)
}

async fn form(server: &Server, path: &str, form: &str) -> Answer {
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    server.post(path, &headers, form.as_bytes().to_vec()).await
}

pub(crate) async fn login(server: &Server, name: &str, password: &str) -> Value {
    let password = password.replace(' ', "+");
    let text = format!("grant_type=password&client_id=ui&username={name}&password={password}");
    let answer = form(server, TOKEN, &text).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

pub(crate) fn bearer(token: &Value) -> String {
    format!("Bearer {}", token["access_token"].as_str().expect("a token"))
}

/// Lets somebody in who has the password of all tests; gives what `authorization` is then.
pub(crate) async fn signed_in(server: &Server, name: &str) -> String {
    bearer(&login(server, name, PASSWORD).await)
}

/// The secret of a key of a new service account that may send everything.
pub(crate) async fn ingest_key(server: &Server, admin: &str, name: &str) -> String {
    let account = made(server, admin, "service-accounts", json!({"clientId": name})).await;
    bind(server, admin, "serviceAccount", &account["id"], "ingest", Value::Null).await;
    let id = account["id"].as_str().expect("an id");
    let key = made(server, admin, &format!("service-accounts/{id}/keys"), json!({"name": name})).await;
    format!("Bearer {}", key["key"].as_str().expect("a key"))
}

/// Calls as somebody, with a JSON body where there is one.
async fn call(server: &Server, who: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
    let headers = [("authorization", who), ("content-type", "application/json")];
    server.send(method, path, &headers, body.map(|b| b.to_string().into_bytes()).unwrap_or_default()).await
}

pub(crate) async fn made(server: &Server, who: &str, path: &str, body: Value) -> Value {
    let answer = call(server, who, "POST", &format!("/platform-api/rbac/{path}"), Some(body)).await;
    assert_eq!(answer.status, 201, "{path}: {}", answer.text());
    assert!(answer.headers.contains_key("etag") && answer.headers.contains_key("location"), "{path}");
    answer.json()
}

/// A user who holds a role for some services (null: for all).
pub(crate) async fn user(server: &Server, admin: &str, name: &str, role: &str, services: Value) -> Value {
    let user = made(server, admin, "users", json!({"username": name, "password": PASSWORD})).await;
    bind(server, admin, "user", &user["id"], role, services).await;
    user
}

/// What a new user shows who holds a role of some permissions, and no other.
pub(crate) async fn permitted(server: &Server, admin: &str, name: &str, permissions: &[&str]) -> String {
    made(server, admin, "roles", json!({"name": name, "permissions": permissions})).await;
    user(server, admin, name, name, Value::Null).await;
    signed_in(server, name).await
}

pub(crate) async fn bind(server: &Server, admin: &str, kind: &str, id: &Value, role: &str, services: Value) -> Value {
    let roles = call(server, admin, "GET", &format!("/platform-api/rbac/roles?name={role}"), None).await.json();
    let role = &roles["items"][0]["id"];
    let binding = json!({"subject": {"type": kind, "id": id}, "roleId": role, "services": services});
    made(server, admin, "bindings", binding).await
}

#[tokio::test(flavor = "multi_thread")]
async fn first_start() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("log");
    let data = dir.path().join("data");
    let server = Server::start(&data, &on().log_to(&log)).await;
    let file = data.join("initial-admin-password");
    let password = std::fs::read_to_string(&file).expect("written").trim().to_owned();
    assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(data.join("master-key")).expect("there").permissions().mode() & 0o777, 0o600);
    let said = std::fs::read_to_string(&log).expect("readable");
    assert_eq!(said.matches(&password).count(), 1, "told once: {said}");
    // A temporary password gives no token; changing it needs nothing else.
    let text = format!("grant_type=password&client_id=ui&username=admin&password={password}");
    let refused = form(&server, TOKEN, &text).await;
    assert_eq!((refused.status, &refused.json()["error_description"]), (400, &json!("Account is not fully set up")));
    let basic = reqwest::Client::new()
        .put(server.url("/platform-api/rbac/me/password"))
        .basic_auth("admin", Some(&password))
        .json(&json!({"currentPassword": password, "newPassword": PASSWORD}));
    assert_eq!(basic.send().await.expect("answered").status(), 204);
    assert!(!file.exists(), "the file went with the password");
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let me = call(&server, &admin, "GET", "/platform-api/rbac/me", None).await.json();
    assert_eq!((&me["rbac"], &me["roles"], &me["services"]), (&json!("on"), &json!(["admin"]), &json!(["*"])));
    drop(server);
    // The next start changes nothing, and prints nothing; tokens of before are still good.
    let said = std::fs::read_to_string(&log).expect("readable").len();
    let server = Server::start(&data, &on().log_to(&log)).await;
    login(&server, "admin", PASSWORD).await;
    let new = std::fs::read_to_string(&log).expect("readable")[said..].to_owned();
    assert!(!new.contains("first start") && !new.contains(PASSWORD), "{new}");
    drop(server);
    // An operator who lost the password.
    let mut command = std::process::Command::new(quiver_tests::server::binary());
    command.args(["admin", "reset-password", "--data"]).arg(&data);
    command.env("QUIVER_ADMIN_PASSWORD", "another horse battery");
    quiver_tests::server::over_given_database(&mut command, &data);
    let reset = command.output().expect("the binary runs");
    assert!(reset.status.success(), "{}", String::from_utf8_lossy(&reset.stderr));
    let server = Server::start(&data, &on()).await;
    let admin = bearer(&login(&server, "admin", "another horse battery").await);
    let verified = call(&server, &admin, "GET", "/platform-api/rbac/audit/verify", None).await.json();
    assert_eq!(verified["sound"], true, "{verified}");
    let audit = call(&server, &admin, "GET", "/platform-api/rbac/audit?action=LOGIN", None).await.json();
    assert_eq!(audit["items"].as_array().map(Vec::len), Some(4), "{audit}");
    for (times, expected) in [("start=now-1h", 4), ("start=0&end=now%2B1m", 4), ("end=now-1h", 0)] {
        let path = format!("/platform-api/rbac/audit?action=LOGIN&{times}");
        let found = call(&server, &admin, "GET", &path, None).await.json();
        assert_eq!(found["items"].as_array().map(Vec::len), Some(expected), "{times}: {found}");
    }
    let all = call(&server, &admin, "GET", "/platform-api/rbac/audit/export", None).await.text();
    assert!(!all.contains("horse") && !all.contains("argon2") && all.contains("PASSWORD_CHANGE"), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_refusals() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let discovery = server.get("/realms/platform/.well-known/openid-configuration").await.json();
    assert_eq!(discovery["issuer"], json!(format!("http://{}/realms/platform", server.http)));
    assert_eq!(
        server.get("/realms/platform/protocol/openid-connect/certs").await.json()["keys"].as_array().map(Vec::len),
        Some(2)
    );
    // Nobody gets anything, whatever the path, and each client in its own form.
    let check = async |method: &str, path: &str, kind: &str, basic: bool, part: &str| {
        let answer = server.send(method, path, &[("content-type", kind)], vec![]).await;
        assert_eq!(answer.status, 401, "{path}: {}", answer.text());
        assert!(answer.text().contains("TOKEN_MISSING") && answer.text().contains(part), "{path}: {}", answer.text());
        let asked: Vec<_> = answer.headers.get_all("www-authenticate").iter().collect();
        assert_eq!(asked.len(), 1 + usize::from(basic), "{path} {asked:?}");
    };
    check("GET", "/metrics-api/api/v1/query?query=1", "", true, r#""errorType":"unauthorized""#).await;
    check("GET", "/logs-api/select/logsql/query?query=*", "", true, "urn:quiver:problem:token-missing").await;
    check("GET", "/traces", "", false, "urn:quiver:problem:token-missing").await;
    check("GET", "/platform-api/rbac/users", "", false, "/requests/").await;
    check("POST", "/admin/flush", "", false, "token").await;
    check("GET", "/not/there", "", false, "token").await;
    check("POST", "/v1/logs", "application/json", true, r#""code":16"#).await;
    // Where pages would be anybody may hear that there are none.
    for path in ["/", "/ui/", "/ui/a.js"] {
        assert_eq!(server.get_as(path, &[("authorization", "Bearer x")]).await.status, 404, "{path}");
    }
    check("POST", "/insert/jsonline", "", true, "token").await;
    check("GET", "/realms/platform/protocol/openid-connect/userinfo", "", false, "invalid_token").await;
    let grpc = server
        .send(
            "POST",
            "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
            &[("content-type", "application/grpc")],
            vec![],
        )
        .await;
    assert_eq!(grpc.headers.get("grpc-status").map(reqwest::header::HeaderValue::as_bytes), Some(&b"16"[..]));
    let first = login(&server, "admin", PASSWORD).await;
    let admin = bearer(&first);
    assert_eq!(call(&server, &admin, "GET", "/not/there", None).await.status, 404);
    assert_eq!(call(&server, &admin, "POST", "/admin/flush", None).await.status, 200);
    assert_eq!(call(&server, "Bearer a.b.c", "GET", "/traces", None).await.json()["code"], "TOKEN_INVALID");
    // A refresh token used twice ends its session; so do its access tokens.
    let refresh = async |token: &Value| {
        let text = format!(
            "grant_type=refresh_token&client_id=ui&refresh_token={}",
            token["refresh_token"].as_str().expect("one")
        );
        form(&server, TOKEN, &text).await
    };
    let second = refresh(&first).await.json();
    let third = refresh(&second).await.json();
    assert_eq!(refresh(&first).await.json()["error"], "invalid_grant");
    assert_eq!(refresh(&third).await.json()["error"], "invalid_grant");
    assert_eq!(call(&server, &bearer(&third), "GET", "/traces", None).await.json()["code"], "TOKEN_INVALID");
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let audit = call(&server, &admin, "GET", "/platform-api/rbac/audit?action=REFRESH_REUSE", None).await.json();
    assert_eq!(audit["items"].as_array().map(Vec::len), Some(1), "{audit}");
    let twice = form(&server, TOKEN, "grant_type=password&grant_type=password").await;
    assert_eq!((twice.status, &twice.json()["error"]), (400, &json!("invalid_request")));
    let large = form(&server, TOKEN, &"x".repeat(17 << 10)).await;
    assert_eq!(large.status, 413, "{}", large.text());
}

/// Telemetry of one service: series, log rows, spans, all with its name in every text.
async fn send(server: &Server, who: &[(&str, &str)], service: &str) {
    let headers = |kind: &'static str| [who, &[("content-type", kind)]].concat();
    let mut text = String::new();
    for i in 0..3 {
        let _ = writeln!(text, "hits_{service}{{service_name=\"{service}\",pod=\"{service}-{i}\"}} {i} {}", AT * 1000);
        let _ = writeln!(text, "common{{service_name=\"{service}\",pod=\"{service}-{i}\"}} {} {}", i + 1, AT * 1000);
    }
    let answer = server.post("/metrics-api/api/v1/import/prometheus", &headers("text/plain"), text.into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text());
    let rows: String = (0..5)
        .map(|i| {
            let row = json!({"_time": format!("2023-11-14T22:13:2{i}Z"), "_msg": format!("{service} says {i}"),
                "service.name": service, format!("field_{service}"): i.to_string()});
            format!("{row}\n")
        })
        .collect();
    let path = "/insert/jsonline?_stream_fields=service.name";
    let answer = server.post(path, &headers("application/stream+json"), rows.into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text());
    let digit = if service == "aaa" { 'a' } else { 'b' };
    let span = |i: u64, trace: String, parent: Option<u64>| {
        let mut span = json!({"traceId": trace, "spanId": format!("{digit}{i:015x}"), "name": format!("op-{service}"),
            "kind": 2, "startTimeUnixNano": format!("{}", AT * 1_000_000_000 + i as i64),
            "endTimeUnixNano": format!("{}", AT * 1_000_000_000 + 5_000_000),
            "attributes": [{"key": format!("tag_{service}"), "value": {"stringValue": service}}]});
        if let Some(parent) = parent {
            span["parentSpanId"] = json!(format!("a{parent:015x}"));
        }
        span
    };
    let own = digit.to_string().repeat(32);
    let shared = "c".repeat(32);
    let parent = (service == "bbb").then_some(2);
    let spans = [span(1, own, None), span(if parent.is_some() { 3 } else { 2 }, shared, parent)];
    let body = json!({"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
        "scopeSpans": [{"scope": {"name": "x"}, "spans": spans}]}]});
    let answer = server.post("/v1/traces", &headers("application/json"), body.to_string().into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text());
}

/// What a restricted caller must get as if there were nothing else.
fn questions() -> Vec<String> {
    let m = |path: &str, more: &str| {
        format!("/metrics-api/api/v1/{path}?time={AT}&start={}&end={}{more}", AT - 300, AT + 300)
    };
    let l =
        |path: &str, more: &str| format!("/logs-api/select/logsql/{path}?start={}&end={}{more}", AT - 300, AT + 300);
    let t = |path: &str, more: &str| format!("{path}?from={}&to={}{more}", AT - 300, AT + 300);
    let all = "%7B__name__%3D~%22.%2B%22%7D";
    vec![
        m("query", &format!("&query={all}")),
        m("query", &format!("&query=count({all})")),
        m("query", "&query=sum(common)"),
        m("query", "&query=hits_bbb"),
        m("query_range", &format!("&query={all}&step=60")),
        m("series", &format!("&match[]={all}")),
        m("labels", ""),
        m("label/service_name/values", ""),
        m("label/__name__/values", ""),
        m("label/pod/values", ""),
        m("metadata", ""),
        format!("/metrics-api/federate?match[]={all}"),
        l("query", "&query=*%20|%20sort%20by%20(_time,_msg)"),
        l("query", "&query=says%20|%20stats%20count()%20n"),
        l("hits", "&query=*&step=1m"),
        l("field_names", "&query=*"),
        l("field_values", "&query=*&field=service.name"),
        l("streams", "&query=*"),
        l("stream_field_values", "&query=*&field=service.name"),
        l("facets", "&query=*"),
        l("stats_query", "&query=*%20|%20stats%20by%20(service.name)%20count()%20n"),
        t("/traces", ""),
        t("/traces/services", ""),
        t("/traces/operations", ""),
        t("/traces/instances", ""),
        t("/traces/tags", ""),
        t("/traces/tags/tag_bbb/values", ""),
        t("/traces/histogram", "&step=1m"),
        format!("/api/services?start={}&end={}", (AT - 300) * 1_000_000, (AT + 300) * 1_000_000),
        format!("/api/v2/services?endTs={}&lookback=600000", (AT + 300) * 1000),
        format!("/api/traces/{}", "a".repeat(32)),
        format!("/traces/{}/logs", "a".repeat(32)),
    ]
}

/// Without what differs from one run to the next.
fn steady(answer: &Answer) -> String {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for key in ["elapsedMs", "scannedBytes", "requestId", "instance", "executionTimeMsec"] {
                    map.remove(key);
                }
                map.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    match serde_json::from_slice::<Value>(&answer.body) {
        Ok(mut value) => {
            strip(&mut value);
            value.to_string()
        }
        Err(_) => answer.text(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_sees_its_services_only() {
    let (dir, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let server = Server::start(dir.path(), &with_password()).await;
    // What a caller with service `aaa` must see is what whoever sees where there is nothing else.
    let only = Server::start(other.path(), &Options::default()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let agent = made(&server, &admin, "service-accounts", json!({"clientId": "agent"})).await;
    bind(&server, &admin, "serviceAccount", &agent["id"], "ingest", Value::Null).await;
    let keys = format!("service-accounts/{}/keys", agent["id"].as_str().expect("an id"));
    let key = made(&server, &admin, &keys, json!({"name": "k"})).await;
    let secret = key["key"].as_str().expect("shown this once").to_owned();
    let sender = format!("Bearer {secret}");
    for service in ["aaa", "bbb"] {
        send(&server, &[("authorization", &sender)], service).await;
    }
    send(&only, &[], "aaa").await;
    // The key sends, and reads nothing; as Elasticsearch's clients and the SaaS agents show it, it is the same key.
    assert_eq!(call(&server, &sender, "GET", "/logs-api/select/logsql/query?query=*", None).await.status, 403);
    let saas = [("dd-api-key", secret.as_str()), ("content-type", "application/json")];
    for path in ["/insert/saas/api/v2/logs", "/api/v2/logs"] {
        assert_eq!(server.post(path, &saas, b"[]".to_vec()).await.status / 100, 2, "{path}");
    }
    assert_eq!(server.get_as("/api/v1/validate", &saas).await.status, 200);
    assert_eq!(server.get("/api/v1/validate").await.status, 401);
    assert_eq!(server.post("/insert/jsonline", &saas, vec![]).await.status, 401);
    user(&server, &admin, "alice", "viewer", json!(["aaa"])).await;
    user(&server, &admin, "nobody", "viewer", json!(["zzz"])).await;
    let (alice, nobody) = (login(&server, "alice", PASSWORD).await, login(&server, "nobody", PASSWORD).await);
    let (alice, nobody) = (bearer(&alice), bearer(&nobody));
    for round in ["live", "flushed"] {
        for question in questions() {
            let seen = call(&server, &alice, "GET", &question, None).await;
            let expected = only.get(&question).await;
            let (seen, wanted) = ((seen.status, steady(&seen)), (expected.status, steady(&expected)));
            assert_eq!(seen, wanted, "{round} {question}");
            let asked = question.contains("bbb");
            assert!(asked || !seen.1.contains("bbb"), "{round} {question}: {}", seen.1);
            let none = call(&server, &nobody, "GET", &question, None).await;
            let text = none.text();
            assert!(
                asked || !(text.contains("aaa") || text.contains("bbb")) || none.status >= 400,
                "{question}: {text}"
            );
        }
        // A trace that others have spans of: only its own are there; one of others only is forbidden, or not there.
        let shared = call(&server, &alice, "GET", &format!("/traces/{}", "c".repeat(32)), None).await;
        assert!(shared.status == 200 && !shared.text().contains("bbb"), "{}", shared.text());
        let hidden = call(&server, &alice, "GET", &format!("/platform-api/traces/{}/otlp", "b".repeat(32)), None).await;
        assert_eq!((hidden.status, &hidden.json()["code"]), (403, &json!("FORBIDDEN")));
        assert_eq!(call(&server, &alice, "GET", &format!("/api/traces/{}", "b".repeat(32)), None).await.status, 404);
        let full = call(&server, &admin, "GET", &questions()[1], None).await.text();
        assert!(full.contains("\"12\""), "{full}");
        assert_eq!(call(&server, &admin, "POST", "/admin/flush", None).await.status, 200);
        only.flush().await;
    }
    // A binding that goes acts at once, on tokens that are under way, too.
    let bindings = call(&server, &admin, "GET", "/platform-api/rbac/bindings?limit=1000", None).await.json();
    for binding in bindings["items"].as_array().expect("a list").iter().filter(|b| b["services"] == json!(["aaa"])) {
        let path = format!("/platform-api/rbac/bindings/{}", binding["id"].as_str().expect("an id"));
        assert_eq!(call(&server, &admin, "DELETE", &path, None).await.status, 204);
    }
    assert_eq!(call(&server, &alice, "GET", "/traces", None).await.status, 403);
    // So does a key that is revoked.
    let path = format!("/platform-api/rbac/{keys}/{}", key["id"].as_str().expect("an id"));
    assert_eq!(call(&server, &admin, "DELETE", &path, None).await.status, 204);
    assert_eq!(call(&server, &sender, "POST", "/insert/jsonline", None).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn administration() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let at = |path: &str| format!("/platform-api/rbac/{path}");
    let group = made(&server, &admin, "groups", json!({"name": "ops", "labels": {"team": "x"}})).await;
    let id = group["id"].as_str().expect("an id").to_owned();
    let one = at(&format!("groups/{id}"));
    let headers = |more: &[(&'static str, &'static str)]| {
        [&[("authorization", admin.as_str()), ("content-type", "application/json")], more].concat()
    };
    let stale =
        server.send("PATCH", &one, &headers(&[("if-match", "\"7\"")]), br#"{"description":"x"}"#.to_vec()).await;
    assert_eq!((stale.status, &stale.json()["current"]["version"]), (412, &json!(1)));
    let changed =
        server.send("PATCH", &one, &headers(&[("if-match", "\"1\"")]), br#"{"description":"x"}"#.to_vec()).await;
    assert_eq!((changed.status, changed.headers["etag"].as_bytes()), (200, &b"\"2\""[..]));
    let same = server.send("GET", &one, &headers(&[("if-none-match", "\"2\"")]), vec![]).await;
    assert_eq!((same.status, same.body.len()), (304, 0));
    let dry = call(&server, &admin, "DELETE", &format!("{one}?dryRun=true"), None).await;
    assert_eq!((dry.status, dry.headers["x-dry-run"].as_bytes()), (204, &b"true"[..]));
    // A request that names itself is answered once.
    let named = headers(&[("idempotency-key", "k1")]);
    let first = server.send("POST", &at("service-accounts"), &named, br#"{"clientId":"agent"}"#.to_vec()).await;
    let again = server.send("POST", &at("service-accounts"), &named, br#"{"clientId":"agent"}"#.to_vec()).await;
    assert_eq!((first.status, first.json()), (201, again.json()));
    assert_eq!(again.headers["idempotency-replayed"].as_bytes(), b"true");
    let other = server.send("POST", &at("service-accounts"), &named, br#"{"clientId":"other"}"#.to_vec()).await;
    assert_eq!((other.status, &other.json()["code"]), (422, &json!("IDEMPOTENCY_KEY_REUSED")));
    // The secret is good for a token, and shown this once.
    let agent = first.json();
    let secret = agent["secret"].as_str().expect("shown").to_owned();
    let path = at(&format!("service-accounts/{}", agent["id"].as_str().expect("an id")));
    assert!(call(&server, &admin, "GET", &path, None).await.json().get("secret").is_none());
    let text = format!("grant_type=client_credentials&client_id=agent&client_secret={secret}");
    assert_eq!(form(&server, TOKEN, &text).await.status, 200);
    let rotated = call(&server, &admin, "POST", &format!("{path}/rotate-secret"), Some(json!({}))).await.json();
    assert_ne!(rotated["secret"], json!(secret));
    assert_eq!(form(&server, TOKEN, &text).await.json()["error"], "invalid_client");
    let check = async |method: &str, path: &str, body: &str, status: u16, code: &str| {
        let answer = server.send(method, &at(path), &headers(&[]), body.as_bytes().to_vec()).await;
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (status, &json!(code)),
            "{method} {path} {}",
            answer.text()
        );
        assert_eq!(answer.headers["content-type"].as_bytes(), b"application/problem+json", "{path}");
    };
    check("POST", "groups", "{", 400, "MALFORMED_JSON").await;
    check("POST", "groups", r#"{"name":"a","name":"b"}"#, 400, "MALFORMED_JSON").await;
    check("POST", "groups", r#"{"name":"ops"}"#, 409, "DUPLICATE").await;
    check("POST", "groups", r#"{"nmae":"ops"}"#, 422, "VALIDATION_FAILED").await;
    check("POST", "users", r#"{"username":"bob","password":"short"}"#, 422, "VALIDATION_FAILED").await;
    check("GET", "groups?limit=0", "", 400, "INVALID_PARAMETER").await;
    check("GET", "groups?filter=name", "", 400, "INVALID_PARAMETER").await;
    check("GET", "groups/nothing", "", 404, "NOT_FOUND").await;
    check("GET", "groups/..%2f..%2fetc", "", 404, "NOT_FOUND").await;
    check("DELETE", "groups", "", 400, "INVALID_PARAMETER").await;
    check("POST", "groups/bulk-delete", r#"{"ids":[]}"#, 422, "VALIDATION_FAILED").await;
    check("GET", "groups?dryRun=maybe", "", 400, "INVALID_PARAMETER").await;
    let me = call(&server, &admin, "GET", &at("me"), None).await.json();
    let own = me["subject"]["id"].as_str().expect("an id").to_owned();
    check("DELETE", &format!("users/{own}"), "", 403, "LAST_ADMIN").await;
    // Whoever may not administrate sees its own keys and no others.
    let bob = user(&server, &admin, "bob", "viewer", json!(["aaa"])).await;
    let bob_token = bearer(&login(&server, "bob", PASSWORD).await);
    let bob_id = bob["id"].as_str().expect("an id");
    assert_eq!(call(&server, &bob_token, "GET", &at("users"), None).await.status, 403);
    assert_eq!(call(&server, &bob_token, "GET", &at(&format!("users/{bob_id}/keys")), None).await.status, 200);
    assert_eq!(call(&server, &bob_token, "GET", &at(&format!("users/{own}/keys")), None).await.status, 403);
    let key = made(
        &server,
        &bob_token,
        &format!("users/{bob_id}/keys"),
        json!({"name": "mine", "permissions": ["{view, logs, aaa}"]}),
    )
    .await;
    let by_key = format!("Bearer {}", key["key"].as_str().expect("shown"));
    assert_eq!(call(&server, &by_key, "GET", "/logs-api/select/logsql/query?query=*", None).await.status, 200);
    assert_eq!(call(&server, &by_key, "GET", "/traces", None).await.status, 403, "the key is for logs");
    let asked = json!({"triples": ["{view, logs, aaa}", "{view, logs, bbb}"]});
    let results = call(&server, &bob_token, "POST", &at("permissions/check"), Some(asked)).await.json();
    assert_eq!((&results["results"][0]["allowed"], &results["results"][1]["allowed"]), (&json!(true), &json!(false)));
    // A disabled user is out at once.
    let patched =
        call(&server, &admin, "PATCH", &at(&format!("users/{bob_id}")), Some(json!({"enabled": false}))).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(call(&server, &bob_token, "GET", &at("me"), None).await.status, 401);
    assert_eq!(call(&server, &by_key, "GET", &at("me"), None).await.status, 401);
    let rotated = call(&server, &admin, "POST", &at("keys/rotate?revokeOld=true"), None).await;
    assert_eq!(rotated.status, 200, "{}", rotated.text());
    assert_eq!(call(&server, &admin, "GET", &at("me"), None).await.status, 401, "tokens of the old key ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn special_operations_know_dry_runs_and_names() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let at = |path: &str| format!("/platform-api/rbac/{path}");
    let bob = user(&server, &admin, "bob", "viewer", json!(["aaa"])).await;
    let bob_token = bearer(&login(&server, "bob", PASSWORD).await);
    let bob_at = at(&format!("users/{}", bob["id"].as_str().expect("an id")));
    let dry = async |who: &str, method: &str, path: &str, body: Value, status: u16| {
        let answer = call(&server, who, method, &format!("{path}?dryRun=true"), Some(body)).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert_eq!(answer.headers["x-dry-run"].as_bytes(), b"true", "{path}");
        answer
    };
    let keys = "/realms/platform/protocol/openid-connect/certs";
    let before = server.get(keys).await.json();
    dry(&admin, "POST", &format!("{bob_at}/reset-password"), json!({"password": "another horse battery"}), 204).await;
    dry(&admin, "POST", &format!("{bob_at}/logout"), json!({}), 204).await;
    dry(&admin, "POST", &at("keys/rotate"), json!({}), 200).await;
    let misspelt = call(&server, &admin, "DELETE", &format!("{bob_at}?dryrun=true"), None).await;
    assert_eq!((misspelt.status, &misspelt.json()["code"]), (400, &json!("INVALID_PARAMETER")));
    let own = json!({"currentPassword": PASSWORD, "newPassword": "another horse battery"});
    dry(&bob_token, "PUT", &at("me/password"), own, 204).await;
    assert_eq!(server.get(keys).await.json(), before, "the keys that sign are those of before");
    assert_eq!(call(&server, &bob_token, "GET", &at("me"), None).await.status, 200, "the session goes on");
    login(&server, "bob", PASSWORD).await;
    // A secret that was asked for twice under one name is made once.
    let agent = made(&server, &admin, "service-accounts", json!({"clientId": "agent"})).await;
    let path = at(&format!("service-accounts/{}/rotate-secret", agent["id"].as_str().expect("an id")));
    let named = [("authorization", admin.as_str()), ("content-type", "application/json"), ("idempotency-key", "r1")];
    let first = server.send("POST", &path, &named, b"{}".to_vec()).await;
    let again = server.send("POST", &path, &named, b"{}".to_vec()).await;
    assert_eq!((first.status, first.json()), (200, again.json()));
    assert_eq!(again.headers["idempotency-replayed"].as_bytes(), b"true");
}

/// Analytics takes access tokens only, as its reference has it, unless a setting lets keys in.
#[tokio::test(flavor = "multi_thread")]
async fn analytics_takes_tokens_only() {
    for (setting, by_key, by_secret) in
        [("false", (401, "TOKEN_INVALID"), (401, "TOKEN_MISSING")), ("true", (200, ""), (200, ""))]
    {
        let dir = tempfile::tempdir().expect("a folder");
        let options = with_password().env("QUIVER_AUTH__OLAP_API_KEYS", setting);
        let server = Server::start(dir.path(), &options).await;
        let admin = bearer(&login(&server, "admin", PASSWORD).await);
        let agent = made(&server, &admin, "service-accounts", json!({"clientId": "agent"})).await;
        bind(&server, &admin, "serviceAccount", &agent["id"], "viewer", Value::Null).await;
        let keys = format!("service-accounts/{}/keys", agent["id"].as_str().expect("an id"));
        let key = made(&server, &admin, &keys, json!({"name": "k"})).await;
        let secret = agent["secret"].as_str().expect("shown this once");
        let text = format!("grant_type=client_credentials&client_id=agent&client_secret={secret}");
        let token = bearer(&form(&server, TOKEN, &text).await.json());
        let key = format!("Bearer {}", key["key"].as_str().expect("shown this once"));
        let check = async |who: &str, expected: (u16, &str)| {
            let answer = call(&server, who, "GET", "/olap-api/v1/meta", None).await;
            let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
            assert_eq!((answer.status, code.as_str()), expected, "{setting}: {}", answer.text());
            let elsewhere = call(&server, who, "GET", "/logs-api/select/logsql/query?query=*", None).await;
            assert_eq!(elsewhere.status, 200, "{setting}: {}", elsewhere.text());
        };
        check(&token, (200, "")).await;
        check(&key, by_key).await;
        let basic = reqwest::Client::new().get(server.url("/olap-api/v1/meta")).basic_auth("agent", Some(secret));
        let answer = basic.send().await.expect("answered");
        assert_eq!(answer.status(), by_secret.0, "{setting}");
        let code = answer.json::<Value>().await.expect("JSON")["code"].as_str().unwrap_or_default().to_owned();
        assert_eq!(code, by_secret.1, "{setting}");
    }
}

/// A member or parameter that is misspelt is told, and so is an account that is not there.
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_knows_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let at = |rest: &str| format!("/platform-api/rbac/{rest}");
    for kind in ["users", "service-accounts"] {
        let path = at(&format!("{kind}/00000000-0000-7000-8000-00000000dead/keys"));
        for (method, body) in [("GET", None), ("POST", Some(json!({"name": "k"})))] {
            assert_eq!(call(&server, &admin, method, &path, body).await.status, 404, "{method} {path}");
        }
    }
    let user = made(&server, &admin, "users", json!({"username": "bob"})).await;
    let account = made(&server, &admin, "service-accounts", json!({"clientId": "robot"})).await;
    let (user, account) = (user["id"].as_str().expect("an id"), account["id"].as_str().expect("an id"));
    let keys = call(&server, &admin, "GET", &at(&format!("users/{user}/keys")), None).await;
    assert_eq!((keys.status, keys.json()["items"].clone()), (200, json!([])));
    let reset = format!("users/{user}/reset-password");
    let rotate = format!("service-accounts/{account}/rotate-secret");
    let password = json!({"password": "a horse, a battery", "mustChangePasword": false});
    let named = json!({"triples": [], "subject": {"type": "user", "id": user, "name": "bob"}});
    for (path, body, field) in [
        (reset.as_str(), password, "/mustChangePasword"),
        (rotate.as_str(), json!({"graceSecond": 5}), "/graceSecond"),
        ("permissions/check", json!({"triples": [], "subjcet": null}), "/subjcet"),
        ("permissions/check", named, "/subject/name"),
    ] {
        let answer = call(&server, &admin, "POST", &at(path), Some(body)).await;
        let error = answer.json()["errors"][0].clone();
        assert_eq!((answer.status, &error["code"], &error["field"]), (422, &json!("UNKNOWN_FIELD"), &json!(field)));
        let answer = call(&server, &admin, "POST", &at(&format!("{path}?dryrun=true")), Some(json!({}))).await;
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("INVALID_PARAMETER")), "{path}");
    }
}
