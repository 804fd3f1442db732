//! Rights that change after a caller has been admitted, access control switched off, and an external issuer.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use quiver_tests::held_server::Hold;
use quiver_tests::server::{Answer, Options, Server, binary};
use quiver_tests::time_limits::within;
use serde_json::{Value, json};

use crate::identity::{PASSWORD, signed_in};
use crate::json_calls;

const TOKEN: &str = "/realms/platform/protocol/openid-connect/token";
const USERINFO: &str = "/realms/platform/protocol/openid-connect/userinfo";
/// Within which a right that was taken away acts.
const ACTS_WITHIN: Duration = Duration::from_secs(5);

fn options(mode: &str) -> Options {
    Options::default().args(&["--rbac", mode]).env("QUIVER_ADMIN_PASSWORD", PASSWORD)
}

async fn call(server: &Server, who: &str, method: &str, path: &str, body: Value) -> Answer {
    json_calls::call(server, who, method, &format!("/platform-api/rbac/{path}"), &body).await
}

async fn made(server: &Server, who: &str, path: &str, body: Value) -> Value {
    let answer = call(server, who, "POST", path, body).await;
    assert_eq!(answer.status, 201, "{path}: {}", answer.text());
    answer.json()
}

/// Binds somebody to a built-in role.
async fn bind(server: &Server, admin: &str, subject: Value, role: &str, services: Value) -> Value {
    let roles = call(server, admin, "GET", &format!("roles?name={role}"), Value::Null).await.json();
    let binding = json!({"subject": subject, "roleId": roles["items"][0]["id"], "services": services});
    made(server, admin, "bindings", binding).await
}

async fn viewer_of_cart(server: &Server, admin: &str, name: &str) -> (Value, Value) {
    let user = made(server, admin, "users", json!({"username": name, "password": PASSWORD})).await;
    let binding = bind(server, admin, json!({"type": "user", "id": user["id"]}), "viewer", json!(["cart"])).await;
    (user, binding)
}

/// Opens a live tail and waits for its first row.
async fn tail(server: &Server, admin: &str, who: &str) -> reqwest::Response {
    let url = server.url("/logs-api/select/logsql/tail?query=*&refresh_interval=100ms&offset=0s&start_offset=1h");
    let mut rows = reqwest::Client::new().get(url).header("authorization", who).send().await.expect("answered");
    assert_eq!(rows.status(), 200);
    let began = Instant::now();
    loop {
        let headers = [("authorization", admin)];
        let row = b"{\"_msg\":\"seen\",\"service\":\"cart\"}\n{\"_msg\":\"unseen\",\"service\":\"bank\"}\n".to_vec();
        let written = server.post("/insert/jsonline?_stream_fields=service", &headers, row).await;
        assert_eq!(written.status, 200, "{}", written.text());
        let chunk = tokio::time::timeout(Duration::from_mins(5), rows.chunk()).await.expect("in time");
        let chunk = chunk.expect("a tail goes on").expect("a tail does not end");
        let text = String::from_utf8_lossy(&chunk);
        assert!(!text.contains("unseen"), "{text}");
        if text.contains("seen") {
            return rows;
        }
        assert!(began.elapsed() < Duration::from_mins(5), "no row comes");
    }
}

/// How long a tail still goes on.
async fn goes_on(mut rows: reqwest::Response) -> Duration {
    let began = Instant::now();
    while began.elapsed() < ACTS_WITHIN * 2 {
        match tokio::time::timeout(ACTS_WITHIN * 2, rows.chunk()).await {
            Ok(Ok(Some(_))) => {}
            _ => break,
        }
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn live_tails_end_with_their_rights() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options("on")).await;
    let admin = signed_in(&server, "admin").await;
    let mut users = 0;
    let mut viewer = async || {
        users += 1;
        let name = format!("ann{users}");
        let (user, binding) = viewer_of_cart(&server, &admin, &name).await;
        (name, user["id"].as_str().expect("an id").to_owned(), binding["id"].as_str().expect("an id").to_owned())
    };
    within("a binding that was removed acts", ACTS_WITHIN, async || {
        let (name, _, binding) = viewer().await;
        let rows = tail(&server, &admin, &signed_in(&server, &name).await).await;
        assert_eq!(call(&server, &admin, "DELETE", &format!("bindings/{binding}"), Value::Null).await.status, 204);
        goes_on(rows).await
    })
    .await;
    within("a tail that waits long for its next look ends", ACTS_WITHIN, async || {
        let (name, _, binding) = viewer().await;
        let url = server.url("/logs-api/select/logsql/tail?query=*&refresh_interval=1h");
        let asked = reqwest::Client::new().get(url).header("authorization", signed_in(&server, &name).await);
        let rows = asked.send().await.expect("answered");
        assert_eq!(rows.status(), 200);
        assert_eq!(call(&server, &admin, "DELETE", &format!("bindings/{binding}"), Value::Null).await.status, 204);
        goes_on(rows).await
    })
    .await;
    // An account that is disabled, a session that is ended, a key that is revoked.
    within("a session that was ended ends", ACTS_WITHIN, async || {
        let (name, id, _) = viewer().await;
        let rows = tail(&server, &admin, &signed_in(&server, &name).await).await;
        assert_eq!(call(&server, &admin, "POST", &format!("users/{id}/logout"), Value::Null).await.status, 204);
        goes_on(rows).await
    })
    .await;
    within("a key that was revoked ends", ACTS_WITHIN, async || {
        let (_, id, _) = viewer().await;
        let key = made(&server, &admin, &format!("users/{id}/keys"), json!({"name": "k"})).await;
        let who = format!("Bearer {}", key["key"].as_str().expect("a key"));
        let rows = tail(&server, &admin, &who).await;
        let path = format!("users/{id}/keys/{}", key["id"].as_str().expect("an id"));
        assert_eq!(call(&server, &admin, "DELETE", &path, Value::Null).await.status, 204);
        goes_on(rows).await
    })
    .await;
    within("an account that is disabled ends", ACTS_WITHIN, async || {
        let (name, id, _) = viewer().await;
        let rows = tail(&server, &admin, &signed_in(&server, &name).await).await;
        let off = call(&server, &admin, "PATCH", &format!("users/{id}"), json!({"enabled": false})).await;
        assert_eq!(off.status, 200, "{}", off.text());
        goes_on(rows).await
    })
    .await;
}

/// Whatever the language: what runs with a right that is taken away gives nothing more.
#[tokio::test(flavor = "multi_thread")]
async fn queries_end_with_their_rights() {
    let dir = tempfile::tempdir().expect("a folder");
    let hold = Hold::default();
    hold.release();
    let slow = options("on").env("QUIVER_FAILPOINT", hold.at("query.begin")).env("QUIVER_QUERY__THREADS", 16);
    let server = Server::start(dir.path(), &slow).await;
    let admin = signed_in(&server, "admin").await;
    let paths = [
        "/metrics-api/api/v1/query?query=count(up)",
        "/metrics-api/api/v1/series?match[]=up",
        "/logs-api/select/logsql/query?query=*",
        "/sql-api/v1/query?query=select%20count(*)%20from%20logs",
        "/api/services",
    ];
    let listed = async || {
        let listed = server.get_as("/admin/queries", &[("authorization", &admin)]).await.json();
        listed["queries"].as_array().map_or(0, Vec::len)
    };
    let until = async |what: &str, holds: &dyn Fn(usize) -> bool| {
        let began = Instant::now();
        while !holds(listed().await) {
            assert!(began.elapsed() < Duration::from_mins(5), "{what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut users = 0;
    within("a right that was taken away acts", ACTS_WITHIN, async || {
        users += 1;
        let name = format!("ann{users}");
        // One that nobody has asked before.
        let shared =
            format!("/olap-api/v1/load?query=%7B%22measures%22:%5B%22Logs.count%22%5D,%22limit%22:{}%7D", users + 10);
        let (user, binding) = viewer_of_cart(&server, &admin, &name).await;
        let keys = format!("users/{}/keys", user["id"].as_str().expect("an id"));
        let key = made(&server, &admin, &keys, json!({"name": "k"})).await;
        let key = format!("Bearer {}", key["key"].as_str().expect("a key"));
        let token = signed_in(&server, &name).await;
        hold.set();
        let (at, token, key) = (&server, &*token, &*key);
        let ask = |path: String| async move {
            let who = if path.starts_with("/olap-api") { token } else { key };
            let answer = at.get_as(&path, &[("authorization", who), ("x-wait", "60")]).await;
            (path, answer, Instant::now())
        };
        let taking = async {
            until("not all of them run", &|running| running > paths.len()).await;
            let id = binding["id"].as_str().expect("an id");
            assert_eq!(call(&server, &admin, "DELETE", &format!("bindings/{id}"), Value::Null).await.status, 204);
            Instant::now()
        };
        // They are answered while their work stands still. Equal queries of analytics share an execution, which goes on;
        // who may not have it gets nothing of it.
        let asking = async {
            let answers = futures::future::join_all(paths.map(|path| ask(path.to_owned()))).await;
            hold.release();
            answers
        };
        let (answers, last, taken) = tokio::join!(asking, ask(shared), taking);
        until("they run on", &|running| running == 0).await;
        let slowest = answers.iter().map(|(_, _, at)| at.duration_since(taken)).max();
        for (path, answer, _) in answers.into_iter().chain([last]) {
            let text = answer.text();
            assert!(answer.status == 422 && text.contains("was taken away"), "{path}: {} {text}", answer.status);
        }
        slowest.unwrap_or_default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_access_control() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options("off")).await;
    // Nobody is asked, and a bad token does no harm.
    assert_eq!(server.get("/api/services").await.status, 200);
    assert_eq!(server.get_as("/api/services", &[("authorization", "Bearer a.b.c")]).await.status, 200);
    let me = server.get("/platform-api/rbac/me").await.json();
    assert_eq!((&me["rbac"], &me["services"]), (&json!("off"), &json!(["*"])), "{me}");
    let metrics = server.get("/metrics").await.text();
    assert!(metrics.contains("\nrbac_enabled 0\n"), "no rbac_enabled");
    // The token service is there all the same: scripts that fetch a token first go on.
    let discovery = server.get("/realms/platform/.well-known/openid-configuration").await.json();
    assert_eq!(discovery["issuer"], json!(format!("http://{}/realms/platform", server.http)));
    assert_eq!(server.get("/realms/platform").await.json()["realm"], json!("platform"));
    let admin = signed_in(&server, "admin").await;
    let info = server.get_as(USERINFO, &[("authorization", &admin)]).await;
    assert_eq!(info.json()["preferred_username"], json!("admin"), "{}", info.text());
    assert_eq!(server.get(USERINFO).await.status, 401);
    // Accounts can be made before it is switched on; keys are turned on this machine only, and by no proxy.
    assert_eq!(server.post("/platform-api/rbac/keys/rotate", &[], vec![]).await.status, 200);
    let proxied = server.post("/platform-api/rbac/keys/rotate", &[("x-forwarded-for", "192.0.2.1")], vec![]).await;
    assert_eq!(proxied.status, 403, "{}", proxied.text());
    let user = json!({"username": "ann", "password": PASSWORD}).to_string().into_bytes();
    let json_body = [("content-type", "application/json")];
    assert_eq!(server.post("/platform-api/rbac/users", &json_body, user).await.status, 201);
    let audit = server.get("/platform-api/rbac/audit?action=RBAC_OFF").await.json();
    assert_eq!(audit["items"].as_array().map(Vec::len), Some(1), "{audit}");
    drop(server);
    let server = Server::start(dir.path(), &options("on")).await;
    assert_eq!(server.get("/api/services").await.status, 401);
    assert!(server.get("/metrics").await.text().contains("\nrbac_enabled 1\n"));
    signed_in(&server, "ann").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_on_by_default() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(binary());
    command.arg("serve").arg("--data").arg(dir.path()).args(["--http", "127.0.0.1:0", "--otlp-http", ""]);
    command.args(["--otlp-grpc", ""]).env("QUIVER_ADMIN_PASSWORD", PASSWORD).stdout(std::process::Stdio::piped());
    let mut server = command.spawn().expect("the binary runs");
    let mut line = String::new();
    let mut out = std::io::BufReader::new(server.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut out, &mut line).expect("readable");
    let at = line.split("http ").nth(1).and_then(|rest| rest.split(',').next()).expect("an address").to_owned();
    let began = Instant::now();
    let status = loop {
        let answer = reqwest::get(format!("http://{at}/api/services")).await;
        match answer.map(|a| a.status().as_u16()) {
            Ok(503) | Err(_) => assert!(began.elapsed() < Duration::from_mins(5), "it is not ready"),
            Ok(status) => break status,
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    server.kill().expect("ours to kill");
    let _ = server.wait();
    assert_eq!(status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_not_reset_beside_a_running_server() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options("on")).await;
    let reset = |data: &Path| {
        let mut command = Command::new(binary());
        command.args(["admin", "reset-password", "--data"]).arg(data);
        command.env("QUIVER_ADMIN_PASSWORD", "another horse battery").output().expect("the binary runs")
    };
    let refused = reset(dir.path());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("the server runs"), "{said}");
    signed_in(&server, "admin").await;
    assert_eq!(server.stop(), Some(0));
    assert!(reset(dir.path()).status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_another_issuer() {
    let (theirs, ours) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let issuer = Server::start(theirs.path(), &options("on")).await;
    let url = format!("http://{}/realms/platform", issuer.http);
    let trusted = format!("[{{issuer = \"{url}\", audiences = [\"platform\"]}}]");
    let server = Server::start(ours.path(), &options("on").env("QUIVER_AUTH__OIDC", trusted)).await;
    let (admin, eve) = (signed_in(&server, "admin").await, signed_in(&issuer, "admin").await);
    let ask = async |who: &str| server.get_as("/api/services", &[("authorization", who)]).await;
    // A token of theirs lets in, its role means nothing until something is bound to it.
    let unbound = ask(&eve).await;
    assert_eq!((unbound.status, &unbound.json()["code"]), (403, &json!("FORBIDDEN")), "{}", unbound.text());
    let binding =
        bind(&server, &admin, json!({"type": "externalRole", "id": "admin"}), "viewer", json!(["cart"])).await;
    assert_eq!(ask(&eve).await.status, 200);
    let me = server.get_as("/platform-api/rbac/me", &[("authorization", &eve)]).await.json();
    assert_eq!((&me["services"], &me["subject"]["name"]), (&json!(["cart"]), &json!("admin")), "{me}");
    assert_eq!(call(&server, &eve, "GET", "users", Value::Null).await.status, 403, "not our administrator");
    // Who was seen is a user here, and has keys of its own: they hold what is bound to that user.
    let id = me["subject"]["id"].as_str().expect("an id");
    let (own, began) = (format!("users/{id}/keys"), Instant::now());
    while call(&server, &eve, "GET", &own, Value::Null).await.status != 200 {
        assert!(began.elapsed() < Duration::from_mins(5), "nobody was seen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let to_user = bind(&server, &admin, json!({"type": "user", "id": id}), "viewer", json!(["cart"])).await;
    let key = made(&server, &eve, &own, json!({"name": "k"})).await;
    let key = format!("Bearer {}", key["key"].as_str().expect("a key"));
    assert_eq!(ask(&key).await.status, 200);
    let effective = format!("users/{id}/effective-permissions");
    assert_eq!(call(&server, &eve, "GET", &effective, Value::Null).await.status, 200);
    let admins = call(&server, &admin, "GET", "me", Value::Null).await.json()["subject"]["id"].clone();
    let foreign = format!("users/{}/keys", admins.as_str().expect("an id"));
    assert_eq!(call(&server, &eve, "GET", &foreign, Value::Null).await.status, 403);
    let more = json!({"name": "m", "permissions": ["{admin, *, *}"]});
    assert_eq!(call(&server, &eve, "POST", &own, more).await.status, 403, "more than its maker holds");
    let id = to_user["id"].as_str().expect("an id");
    assert_eq!(call(&server, &admin, "DELETE", &format!("bindings/{id}"), Value::Null).await.status, 204);
    assert_eq!(ask(&key).await.status, 403);
    // Keys that are known serve while the issuer is down.
    drop(issuer);
    assert_eq!(ask(&eve).await.status, 200);
    let id = binding["id"].as_str().expect("an id");
    assert_eq!(call(&server, &admin, "DELETE", &format!("bindings/{id}"), Value::Null).await.status, 204);
    assert_eq!(ask(&eve).await.status, 403);
    // An issuer that nobody trusts here.
    let stranger = Server::start(theirs.path(), &options("on")).await;
    let other = ask(&signed_in(&stranger, "admin").await).await;
    assert_eq!((other.status, &other.json()["code"]), (401, &json!("TOKEN_INVALID")), "{}", other.text());
}

/// Asks with headers, a token of somebody's in front.
async fn ask(server: &Server, path: &str, who: &str, headers: &[(&str, &str)]) -> Answer {
    server.get_as(path, &[&[("authorization", who)], headers].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_that_are_believed() {
    let (ours, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let believing = options("on").env("QUIVER_HTTP__TRUSTED_PROXIES", "['127.0.0.0/8']");
    let server = Server::start(ours.path(), &believing).await;
    let by_name = [("x-forwarded-proto", "https"), ("x-forwarded-host", "quiver.example")];
    let discovery = "/realms/platform/.well-known/openid-configuration";
    let found = server.get_as(discovery, &by_name).await;
    assert_eq!(found.json()["issuer"], json!("https://quiver.example/realms/platform"));
    assert!(found.headers.contains_key("strict-transport-security"));
    // A token is good for the address by which it was got.
    let admin = signed_in(&server, "admin").await;
    let me = "/platform-api/rbac/me";
    assert_eq!(ask(&server, me, &admin, &[]).await.status, 200);
    assert_eq!(ask(&server, me, &admin, &by_name).await.status, 401);
    // A key for one network.
    let (ann, _) = viewer_of_cart(&server, &admin, "ann").await;
    let path = format!("users/{}/keys", ann["id"].as_str().expect("an id"));
    let key = made(&server, &admin, &path, json!({"name": "k", "allowedCidrs": ["192.0.2.0/24"]})).await;
    let key = format!("Bearer {}", key["key"].as_str().expect("a key"));
    for (from, status) in [("192.0.2.7", 200), ("203.0.113.1", 401), ("192.0.2.7, 203.0.113.1", 401), ("x", 401)] {
        assert_eq!(ask(&server, me, &key, &[("x-forwarded-for", from)]).await.status, status, "{from}");
    }
    assert_eq!(ask(&server, me, &key, &[]).await.status, 401);
    assert_eq!(server.get("/metrics").await.status, 200);
    assert_eq!(server.get_as("/metrics", &[("x-forwarded-for", "127.0.0.1")]).await.status, 401, "not by a proxy");
    let some = ask(&server, "/metrics", &key, &[("x-forwarded-for", "192.0.2.7")]).await;
    assert_eq!((some.status, &some.json()["required"]), (403, &json!("{view, system, *}")), "figures of all services");
    // Who is not told to believe does not.
    let server = Server::start(other.path(), &options("on")).await;
    let own = json!(format!("http://{}/realms/platform", server.http));
    assert_eq!(server.get_as(discovery, &by_name).await.json()["issuer"], own);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_web_interface_has_its_token_in_a_cookie() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options("on")).await;
    let origin = format!("http://{}", server.http);
    let send = async |path: &str, form: &str, headers: &[(&str, &str)]| {
        let kind = [("content-type", "application/x-www-form-urlencoded")];
        server.post(path, &[&kind, headers].concat(), form.as_bytes().to_vec()).await
    };
    let cookie_of = |answer: &Answer| {
        let set = answer.headers.get("set-cookie").expect("a cookie").to_str().expect("text").to_owned();
        for part in ["__Host-qv_rt=", "; Path=/;", "; HttpOnly", "; Secure", "; SameSite=Strict"] {
            assert!(set.contains(part), "{part}: {set}");
        }
        set.split(';').next().expect("a pair").to_owned()
    };
    let ours = [("x-quiver-ui", "1"), ("origin", origin.as_str())];
    let password = format!("grant_type=password&client_id=ui&username=admin&password={}", PASSWORD.replace(' ', "+"));
    // An ordinary client gets it in the body, and no cookie.
    let plain = send(TOKEN, &password, &[("origin", origin.as_str())]).await;
    assert!(plain.json()["refresh_token"].is_string() && !plain.headers.contains_key("set-cookie"));
    let login = send(TOKEN, &password, &ours).await;
    assert!(
        login.json()["access_token"].is_string() && login.json().get("refresh_token").is_none(),
        "{}",
        login.text()
    );
    let first = cookie_of(&login);
    let refresh = "grant_type=refresh_token&client_id=ui";
    let next = send(TOKEN, refresh, &[ours[0], ours[1], ("cookie", &first)]).await;
    assert_eq!(next.status, 200, "{}", next.text());
    let second = cookie_of(&next);
    let with_second = [ours[0], ours[1], ("cookie", second.as_str())];
    assert_ne!(first, second, "rotated");
    // Without either condition the cookie is not looked at; nothing else ever does.
    assert_eq!(send(TOKEN, refresh, &[("cookie", &second)]).await.status, 400);
    assert_eq!(send(TOKEN, refresh, &[ours[0], ("cookie", &second)]).await.status, 400);
    let foreign = send(TOKEN, refresh, &[ours[0], ("origin", "https://evil.example"), ("cookie", &second)]).await;
    assert!(matches!(foreign.status, 400 | 403), "{}", foreign.text());
    assert_eq!(server.get_as("/platform-api/rbac/me", &with_second).await.status, 401);
    let out = send("/realms/platform/protocol/openid-connect/logout", "client_id=ui", &with_second).await;
    assert!(out.status == 204 && cookie_of(&out) == "__Host-qv_rt=", "{}", out.text());
    assert_eq!(send(TOKEN, refresh, &with_second).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_in_the_audit_log() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options("on")).await;
    let admin = signed_in(&server, "admin").await;
    viewer_of_cart(&server, &admin, "ann").await;
    let ann = signed_in(&server, "ann").await;
    for _ in 0..3 {
        assert_eq!(ask(&server, "/platform-api/rbac/users", &ann, &[]).await.status, 403);
        let sent = server.send("POST", "/v1/traces", &[("authorization", &ann)], vec![]).await;
        assert_eq!(sent.status, 403, "{}", sent.text());
    }
    let began = Instant::now();
    let rows = loop {
        let audit = call(&server, &admin, "GET", "audit?outcome=refused", Value::Null).await.json();
        let rows = audit["items"].as_array().expect("a list").clone();
        if rows.len() >= 2 {
            break rows;
        }
        assert!(began.elapsed() < Duration::from_mins(5), "{audit}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    // One per route and minute; a minute may have ended meanwhile.
    assert!(rows.len() <= 4, "{rows:?}");
    let said = |action: &str, family: &str| rows.iter().any(|r| r["action"] == action && r["family"] == family);
    assert!(said("READ", "query") && said("WRITE", "ingest"), "{rows:?}");
    assert!(rows.iter().all(|r| r["code"] == "FORBIDDEN" && r.to_string().contains("ann")), "{rows:?}");
    let verified = call(&server, &admin, "GET", "audit/verify", Value::Null).await.json();
    assert_eq!(verified["sound"], true, "{verified}");
}

/// What fails before its change begins is a refused write like another one.
#[tokio::test(flavor = "multi_thread")]
async fn writes_that_cannot_be_read_are_in_the_audit_log() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options("on")).await;
    let admin = signed_in(&server, "admin").await;
    let path = "/platform-api/ci-classes";
    let send = async |method: &str, more: &str, kind: &str, body: &str| {
        let headers = [("authorization", admin.as_str()), ("content-type", kind)];
        server.send(method, &format!("{path}{more}"), &headers, body.as_bytes().to_vec()).await
    };
    let json = "application/json";
    let mut wanted = Vec::new();
    for (method, more, kind, body, action, code) in [
        ("POST", "", json, "{", "CREATE", "MALFORMED_JSON"),
        ("POST", "", "text/plain", "{}", "CREATE", "UNSUPPORTED_MEDIA_TYPE"),
        ("POST", "?bogus=1", json, "{}", "CREATE", "INVALID_PARAMETER"),
        ("DELETE", "?ids=,", json, "", "DELETE", "INVALID_PARAMETER"),
        ("POST", "/bulk-delete", json, "{\"ids\":[]}", "DELETE", "VALIDATION_FAILED"),
        // Within its change: one row, not two.
        ("POST", "", json, "{}", "CREATE", "VALIDATION_FAILED"),
        ("DELETE", "/none", json, "", "DELETE", "NOT_FOUND"),
    ] {
        let refused = send(method, more, kind, body).await;
        assert_eq!(refused.json()["code"], json!(code), "{method} {more} {body}: {}", refused.text());
        let dry = if more.contains('?') { format!("{more}&dryRun=true") } else { format!("{more}?dryRun=true") };
        assert_eq!(send(method, &dry, kind, body).await.json()["code"], json!(code), "{method} {dry}");
        wanted.push(format!("{action} {code}"));
    }
    let headers = [("authorization", admin.as_str()), ("content-type", json)];
    let silence = server.send("POST", "/rulesapi/silences", &headers, b"{".to_vec()).await;
    assert_eq!(silence.status, 400, "{}", silence.text());
    let rows = call(&server, &admin, "GET", "audit?family=silences&outcome=refused", Value::Null).await.json();
    assert_eq!(rows["items"][0]["code"], json!("MALFORMED_JSON"), "{rows}");
    // Special operations are writes, too, but for those that only look.
    for more in ["none/merge", "dependency-graph"] {
        let path = format!("/platform-api/resources/{more}");
        let refused = server.send("POST", &path, &headers, b"{".to_vec()).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text());
    }
    for action in ["apply", "validate"] {
        let path = format!("/rulesapi/deploy?action={action}&bogus=1");
        let refused = server.send("POST", &path, &headers, b"groups: []".to_vec()).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text());
    }
    for (family, wanted) in [
        ("resources", json!(["UPDATE", "none", "MALFORMED_JSON"])),
        ("rules", json!(["DEPLOY", null, "INVALID_PARAMETER"])),
    ] {
        let path = format!("audit?family={family}&outcome=refused");
        let rows = call(&server, &admin, "GET", &path, Value::Null).await.json();
        let said = |row: &Value| json!([row["action"], row["entityId"], row["code"]]);
        let said: Vec<Value> = rows["items"].as_array().expect("a list").iter().map(said).collect();
        assert_eq!(said, [wanted], "{rows}");
    }
    let rows =
        call(&server, &admin, "GET", "audit?family=ci-classes&outcome=refused&sort=at", Value::Null).await.json();
    let said: Vec<String> = rows["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| format!("{} {}", row["action"].as_str().unwrap_or(""), row["code"].as_str().unwrap_or("")))
        .collect();
    assert_eq!(said, wanted, "{rows}");
}

/// Routes beside the families pass over no parameter, and no id that is no text.
#[tokio::test(flavor = "multi_thread")]
async fn routes_beside_the_families_refuse_what_they_do_not_know() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options("on")).await;
    let admin = signed_in(&server, "admin").await;
    let nobody = "00000000-0000-7000-8000-00000000dead";
    for path in ["rbac/me", "rbac/permissions", &format!("jobs/{nobody}")] {
        let path = format!("/platform-api/{path}?bogus=1");
        let answer = ask(&server, &path, &admin, &[]).await;
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("INVALID_PARAMETER")), "{path}");
    }
    assert_eq!(call(&server, &admin, "GET", "me?dryRun=true", Value::Null).await.status, 200);
    for path in ["users/%ff/effective-permissions", "service-accounts/%ff/effective-permissions"] {
        let answer = call(&server, &admin, "GET", path, Value::Null).await;
        assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("NOT_FOUND")), "{path}: {}", answer.text());
    }
    for test in ["rulepolicy/routes/test", "rulepolicy/templates/test", "rules/test", "rules/unit-test"] {
        let headers = [("authorization", admin.as_str()), ("content-type", "application/json")];
        for (more, body, code) in
            [("?bogus=1", "{}", "INVALID_PARAMETER"), ("", "{\"labels\":{},\"labels\":{}}", "MALFORMED_JSON")]
        {
            let answer = server.post(&format!("/rulesapi/{test}{more}"), &headers, body.as_bytes().to_vec()).await;
            assert_eq!((answer.status, &answer.json()["code"]), (400, &json!(code)), "{test}{more}");
        }
    }
}
