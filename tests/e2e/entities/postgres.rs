//! Configuration and accounts in a PostgreSQL database: outages, several servers on one database, kills during changes;
//! and the suites of configuration and identity over it.

use std::cell::Cell;
use std::time::Duration;

use quiver_testpg::Postgres;
use quiver_tests::server::{Answer, Options, Server};
use quiver_tests::time_limits::{until, within};
use serde_json::{Value, json};

use crate::identity::{PASSWORD, bearer, login, user};

fn over(url: &str, data: &std::path::Path) -> Options {
    // Servers that share a database share the key under which secrets in it are encrypted.
    let key = data.parent().expect("a parent").join("master-key");
    Options::default()
        .args(&["--rbac", "on"])
        .env("QUIVER_ADMIN_PASSWORD", PASSWORD)
        .env("QUIVER_MASTER_KEY_FILE", key.display())
        .env("QUIVER_CONFIG__DATABASE_URL", url)
}

async fn call(server: &Server, who: &str, method: &str, path: &str, body: &Value) -> Answer {
    call_if(server, who, method, path, None, body).await
}

async fn call_if(server: &Server, who: &str, method: &str, path: &str, etag: Option<&str>, body: &Value) -> Answer {
    let mut headers = vec![("content-type", "application/json"), ("authorization", who)];
    headers.extend(etag.map(|etag| ("if-match", etag)));
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    server.send(method, path, &headers, body).await
}

#[test]
fn the_suites_hold_over_postgres() {
    let suites = ["configuration::", "identity::", "alerting::stored_rules::"];
    quiver_testpg::run_again(&suites, "the_suites_hold_over_postgres");
}

#[tokio::test(flavor = "multi_thread")]
async fn gone_and_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut postgres = Postgres::start();
    let data = dir.path().join("data");
    let server = Server::start(&data, &over(&postgres.create("quiver"), &data)).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    user(&server, &admin, "carol", "viewer", json!(["cart"])).await;
    let carol = bearer(&login(&server, "carol", PASSWORD).await);
    let segment = json!({"key": "s", "name": "s", "visibility": "shared",
        "conditions": {"logs": {"field": "service.name", "op": "eq", "value": "cart"}}});
    let made = call(&server, &admin, "POST", "/platform-api/segments", &segment).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let rows = "{\"_msg\":\"a\",\"service.name\":\"cart\"}\n{\"_msg\":\"b\",\"service.name\":\"web\"}\n";
    let write = async || {
        let headers = [("content-type", "application/stream+json"), ("authorization", admin.as_str())];
        server.post("/insert/jsonline?_stream_fields=service.name", &headers, rows.as_bytes().to_vec()).await.status
    };
    assert_eq!(write().await, 200);
    let seen = async |who: &str| {
        let path = "/logs-api/select/logsql/query?query=*&segment=s";
        let answer = server.get_as(path, &[("authorization", who)]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text().lines().count()
    };
    assert_eq!((seen(&admin).await, seen(&carol).await), (1, 1));
    postgres.kill();
    // What is known goes on: tokens, rights, segments, writes. What is not is told so.
    assert_eq!(write().await, 200);
    assert_eq!((seen(&admin).await, seen(&carol).await), (2, 2));
    let listed = call(&server, &admin, "GET", "/platform-api/segments", &Value::Null).await;
    assert_eq!((listed.status, &listed.json()["code"]), (503, &json!("STORE_BUSY")), "{}", listed.text());
    assert!(listed.headers.contains_key("retry-after"));
    let refused = call(&server, &admin, "POST", "/platform-api/segments", &json!({"key": "t", "name": "t"})).await;
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("STORE_BUSY")), "{}", refused.text());
    let form = format!("grant_type=password&client_id=ui&username=carol&password={}", PASSWORD.replace(' ', "+"));
    let kind = [("content-type", "application/x-www-form-urlencoded")];
    let token = server.post("/realms/platform/protocol/openid-connect/token", &kind, form.into_bytes()).await;
    assert_eq!(token.status, 503, "{}", token.text());
    postgres.resume();
    until("a change after PostgreSQL is back", async || {
        let made = call(&server, &admin, "POST", "/platform-api/segments", &json!({"key": "u", "name": "u"})).await;
        matches!(made.status, 201 | 409)
    })
    .await;
    login(&server, "carol", PASSWORD).await;
    let verified = call(&server, &admin, "GET", "/platform-api/rbac/audit/verify", &Value::Null).await.json();
    assert_eq!(verified["sound"], true, "{verified}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_over_one_database() {
    let dir = tempfile::tempdir().expect("a folder");
    let postgres = Postgres::start();
    let url = postgres.create("quiver");
    let (a_data, b_data) = (dir.path().join("a"), dir.path().join("b"));
    let a = Server::start(&a_data, &over(&url, &a_data)).await;
    // The second finds what the first made: its tokens name another issuer, so it has its own.
    let b = Server::start(&b_data, &over(&url, &b_data)).await;
    let (at_a, at_b) = (bearer(&login(&a, "admin", PASSWORD).await), bearer(&login(&b, "admin", PASSWORD).await));
    // A right given on one acts on the other, and so does its end.
    let mut daves = 0;
    within("the end of a user acts on the other server", Duration::from_secs(5), async || {
        daves += 1;
        let name = format!("dave{daves}");
        let dave = user(&a, &at_a, &name, "viewer", json!(["cart"])).await;
        until("a user of one server on the other", async || {
            let secret = PASSWORD.replace(' ', "+");
            let text = format!("grant_type=password&client_id=ui&username={name}&password={secret}");
            let kind = [("content-type", "application/x-www-form-urlencoded")];
            b.post("/realms/platform/protocol/openid-connect/token", &kind, text.into_bytes()).await.status == 200
        })
        .await;
        let at_dave = bearer(&login(&b, &name, PASSWORD).await);
        let logs = "/logs-api/select/logsql/query?query=*";
        // His role is a change of its own.
        until("the rights of a user on the other server", async || {
            b.get_as(logs, &[("authorization", &at_dave)]).await.status == 200
        })
        .await;
        let path = format!("/platform-api/rbac/users/{}", dave["id"].as_str().expect("an id"));
        assert_eq!(call(&a, &at_a, "PATCH", &path, &json!({"enabled": false})).await.status, 200);
        until("the end of a user on the other server", async || {
            b.get_as(logs, &[("authorization", &at_dave)]).await.status == 401
        })
        .await
    })
    .await;
    // Of two patches of one version exactly one wins, whichever server they come to.
    let segment = json!({"key": "s", "name": "s", "visibility": "shared", "conditions": {}});
    let made = call(&a, &at_a, "POST", "/platform-api/segments", &segment).await;
    let path = format!("/platform-api/segments/{}", made.json()["id"].as_str().expect("an id"));
    for round in 1..=20 {
        let etag = format!("\"{round}\"");
        let patch = |n: i64| json!({"description": format!("{round} {n}")});
        let (one, two) =
            tokio::join!(async { call_if(&a, &at_a, "PATCH", &path, Some(&etag), &patch(1)).await }, async {
                call_if(&b, &at_b, "PATCH", &path, Some(&etag), &patch(2)).await
            });
        let mut statuses = [one.status, two.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412], "{} {}", one.text(), two.text());
    }
    let history = call(&b, &at_b, "GET", &format!("{path}/history"), &Value::Null).await.json();
    assert_eq!(history["items"].as_array().map(Vec::len), Some(21));
    for (server, who) in [(&a, &at_a), (&b, &at_b)] {
        let verified = call(server, who, "GET", "/platform-api/rbac/audit/verify", &Value::Null).await.json();
        assert_eq!(verified["sound"], true, "{verified}");
    }
}

/// The rows of one change: entity, unique values, references, version, audit.
const ROWS: &str = "SELECT (SELECT count(*) FROM entity WHERE family = 'resources') || ' ' || \
    (SELECT count(*) FROM entity_key WHERE family = 'resources') || ' ' || \
    (SELECT count(*) FROM entity_link WHERE family = 'resources') || ' ' || \
    (SELECT count(*) FROM entity_version WHERE family = 'resources') || ' ' || \
    (SELECT count(*) FROM audit WHERE row LIKE '%\"family\":\"resources\"%')";

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_of_changes() {
    let dir = tempfile::tempdir().expect("a folder");
    let postgres = Postgres::start();
    let url = postgres.create("quiver");
    let data = dir.path().join("data");
    let options = over(&url, &data);
    let mut acknowledged = 0;
    for round in 0..4_u64 {
        let server = Server::start(&data, &options).await;
        let admin = bearer(&login(&server, "admin", PASSWORD).await);
        let made = Cell::new(0);
        let work = async |worker: u64| {
            let mut done = 0;
            for n in 0..1000 {
                let name = format!("s-{round}-{worker}-{n}");
                let body = json!({"typeId": "00000000-0000-7000-8000-000000000101",
                    "attributes": {"service.name": name}})
                .to_string();
                let request = reqwest::Client::new()
                    .post(server.url("/platform-api/resources"))
                    .header("authorization", &admin)
                    .header("content-type", "application/json")
                    .body(body);
                match request.send().await {
                    Ok(answer) if answer.status() == 201 => {
                        done += 1;
                        made.set(done);
                    }
                    _ => break,
                }
            }
            done
        };
        let pid = server.pid();
        let killer = async {
            // In the middle of changes, so there is one first.
            until("a change", async || made.get() > 0).await;
            tokio::time::sleep(Duration::from_millis(300 + 170 * round)).await;
            let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
            assert!(killed.expect("kill runs").success());
        };
        let ((), one, two) = tokio::join!(killer, work(1), work(2));
        acknowledged += one + two;
        server.kill();
        // Sessions of the process that went end with its connections.
        until("the end of what was under way", async || {
            postgres.sql("quiver", "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'quiver'") == "0"
        })
        .await;
        let rows: Vec<i64> = postgres.sql("quiver", ROWS).split(' ').map(|n| n.parse().expect("a number")).collect();
        assert!(rows.iter().all(|n| *n == rows[0]), "all or none: {rows:?}");
        assert!(rows[0] >= acknowledged, "{rows:?}, {acknowledged} acknowledged");
    }
    assert!(acknowledged > 0);
}
