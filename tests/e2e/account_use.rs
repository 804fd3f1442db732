//! Recorded account activity: last use of keys, users of external issuers; and rate limits of keys.

use std::time::{Duration, Instant};

use quiver_tests::server::Server;
use serde_json::{Value, json};

use crate::identity::{PASSWORD, bearer, bind, login, made, permitted, user, with_password};

async fn get(server: &Server, who: &str, path: &str) -> Value {
    let answer = server.get_as(&format!("/platform-api/rbac/{path}"), &[("authorization", who)]).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// Asks until the answer is good.
async fn until(server: &Server, who: &str, path: &str, good: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let found = get(server, who, path).await;
        if good(&found) {
            return found;
        }
        assert!(began.elapsed() < Duration::from_mins(5), "{path}: {found}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_say_when_they_were_used() {
    let dir = tempfile::tempdir().expect("a folder");
    let limited =
        with_password().env("QUIVER_RBAC__KEY_REQUESTS_PER_SECOND", "1").env("QUIVER_RBAC__KEY_REQUESTS_BURST", "5");
    let server = Server::start(dir.path(), &limited).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let ann = user(&server, &admin, "ann", "viewer", json!(["cart"])).await;
    let keys = format!("users/{}/keys", ann["id"].as_str().expect("an id"));
    let key = made(&server, &admin, &keys, json!({"name": "k"})).await;
    let who = format!("Bearer {}", key["key"].as_str().expect("shown"));
    let one = format!("{keys}/{}", key["id"].as_str().expect("an id"));
    assert_eq!(get(&server, &admin, &one).await["lastUsedAt"], Value::Null);
    // A burst is answered, what comes after it waits; another caller does not.
    let mut statuses = Vec::new();
    for _ in 0..200 {
        let answer = server.get_as("/platform-api/rbac/me", &[("authorization", &who)]).await;
        if answer.status == 429 {
            assert!(
                answer.headers.contains_key("retry-after") && answer.text().contains("RATE_LIMITED"),
                "{}",
                answer.text()
            );
        }
        statuses.push(answer.status);
        if answer.status == 429 {
            break;
        }
    }
    // More than a burst, where the machine took its time for it.
    assert!(statuses.len() > 5 && statuses[..5] == [200; 5] && statuses.last() == Some(&429), "{statuses:?}");
    let used = until(&server, &admin, &one, |key| !key["lastUsedAt"].is_null()).await;
    assert_eq!(used["version"], json!(1), "its use is no change: {used}");
    let rows = until(&server, &admin, "audit?action=KEY_FIRST_USE", |a| a["items"][0].is_object()).await;
    let rows = rows["items"].as_array().expect("a list");
    assert_eq!((rows.len(), &rows[0]["actor"], &rows[0]["entityId"]), (1, &json!("ann"), &key["id"]), "{rows:?}");
    assert_eq!(get(&server, &admin, "audit/verify").await["sound"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_other_issuers_appear() {
    let (theirs, ours) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let issuer = Server::start(theirs.path(), &with_password()).await;
    let url = format!("http://{}/realms/platform", issuer.http);
    let trusted = format!("[{{issuer = \"{url}\", audiences = [\"platform\"]}}]");
    let server = Server::start(ours.path(), &with_password().env("QUIVER_AUTH__OIDC", trusted)).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let eve = bearer(&login(&issuer, "admin", PASSWORD).await);
    let ask = async |who: &str| server.get_as("/api/services", &[("authorization", who)]).await.status;
    assert_eq!(ask(&eve).await, 403);
    // There is an `admin` already: the newcomer is told from it, and holds nothing of what it holds.
    let found = until(&server, &admin, "users?filter=source%20eq%20%22oidc%22", |a| a["items"][0].is_object()).await;
    let newcomer = &found["items"][0];
    assert_eq!(
        (&newcomer["username"], &newcomer["attributes"]["issuer"]),
        (&json!("admin@127.0.0.1"), &json!(url)),
        "{found}"
    );
    let me = get(&server, &eve, "me").await;
    assert_eq!((&me["subject"]["id"], &me["triples"]), (&newcomer["id"], &json!([])), "{me}");
    // What is bound to it here counts beside its roles there; disabled it is out.
    bind(&server, &admin, "user", &newcomer["id"], "viewer", json!(["cart"])).await;
    assert_eq!(ask(&eve).await, 200);
    let path = format!("/platform-api/rbac/users/{}", newcomer["id"].as_str().expect("an id"));
    let headers = [("authorization", admin.as_str()), ("content-type", "application/json")];
    let off = server.send("PATCH", &path, &headers, br#"{"enabled":false}"#.to_vec()).await;
    assert_eq!(off.status, 200, "{}", off.text());
    assert_eq!(ask(&eve).await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_need_the_domain_of_what_they_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let ann = permitted(&server, &admin, "ann", &["{view, logs, cart}"]).await;
    made(&server, &admin, "users", json!({"username": "empty", "password": PASSWORD})).await;
    let empty = bearer(&login(&server, "empty", PASSWORD).await);
    let check = async |who: &str, statement: &str, status: u16, required: &str| {
        let headers = [("authorization", who), ("content-type", "application/json")];
        let body = json!({"query": statement}).to_string().into_bytes();
        let answer = server.post("/sql-api/v1/query", &headers, body).await;
        assert_eq!(answer.status, status, "{statement}: {}", answer.text());
        if status == 403 {
            assert_eq!(answer.json()["required"], json!(required), "{statement}: {}", answer.text());
        }
    };
    check(&ann, "select count(*) from logs", 200, "").await;
    check(&ann, "select count(*) from logsql('*')", 200, "").await;
    check(&ann, "select count(*) from spans", 403, "{view, traces, *}").await;
    check(&ann, "select * from promql_instant('up', '2026-03-01T00:00:00Z')", 403, "{view, metrics, *}").await;
    check(&ann, "select * from logs l join spans s on l.trace_id = s.trace_id", 403, "{view, traces, *}").await;
    check(&ann, "select * from nothing", 400, "").await;
    check(&empty, "select 1", 403, "{view, *, *}").await;
}

/// What OTLP's senders hear over gRPC: of a key that sent too much, of a caller who may not, and of nobody.
pub(crate) async fn grpc_answers(server: &Server, admin: &str, fast: &str) {
    // Over gRPC as over HTTP it is told when to come back: a sender that hears of credentials drops what it has.
    let export = async |who: &str| {
        let path = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
        let headers = [("authorization", who), ("content-type", "application/grpc"), ("te", "trailers")];
        let answer = server.post(path, &headers, vec![0; 5]).await;
        let text = |name: &str| answer.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        (answer.status, text("grpc-status"), text("grpc-message"), text("grpc-status-details-bin"))
    };
    let (status, code, text, details) = export(fast).await;
    assert!(status == 200 && code == "14" && text.starts_with("RATE_LIMITED"), "{status} {code} {text}");
    assert!(!details.is_empty(), "it says when to come back");
    user(server, admin, "reader", "viewer", Value::Null).await;
    let reader = bearer(&login(server, "reader", PASSWORD).await);
    for (who, code, said) in [(&*reader, "7", "FORBIDDEN"), ("Bearer x", "16", "TOKEN_INVALID"), ("", "16", "TOKEN_")] {
        let (_, status, text, _) = export(who).await;
        assert!(status == code && text.starts_with(said), "{who}: {status} {text}");
    }
}
