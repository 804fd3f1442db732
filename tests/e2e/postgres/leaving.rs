//! Clients that go away in the middle of what they asked for, or whose account does.

use std::time::{Duration, Instant};

use quiver_tests::server::Server;
use quiver_tests::within::within;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_postgres::Error;

use super::{ACTS_WITHIN, LONG, code, connect_with, open, try_connect, until_queries};
use crate::identity::{PASSWORD, bearer, login, made, user, with_password};

/// Behind so many messages that no more are read ahead.
#[tokio::test(flavor = "multi_thread")]
async fn who_goes_away_behind_much_that_was_sent_takes_the_statement_along() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &open().env("QUIVER_QUERY__TIMEOUT", "1h")).await;
    let begin = [&18_u32.to_be_bytes()[..], &196_608_u32.to_be_bytes(), b"user\0ann\0\0"].concat();
    let query = [&b"Q"[..], &(LONG.len() as u32 + 5).to_be_bytes(), LONG.as_bytes(), b"\0"].concat();
    let mut stream = TcpStream::connect(&server.postgres).await.expect("connected");
    let syncs = b"S\0\0\0\x04".repeat(16 << 10);
    stream.write_all(&[begin, query, syncs].concat()).await.expect("sent");
    until_queries(&server, 1).await;
    stream.shutdown().await.expect("it says that it goes");
    until_queries(&server, 0).await;
}

/// A connection that asks nothing ends with its account or key, too; another's goes on.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_end_with_their_account() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password().args(&["--postgres", "127.0.0.1:0"])).await;
    let admin_token = login(&server, "admin", PASSWORD).await;
    let admin = bearer(&admin_token);
    let bob = user(&server, &admin, "bob", "viewer", json!(["app1"])).await;
    let bob_id = bob["id"].as_str().expect("an id");
    let bob_token = login(&server, "bob", PASSWORD).await;
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    let all = try_connect(&server, &text(&admin_token["access_token"])).await.expect("connected");
    let (_own, own_task) = connect_with(&server, &text(&bob_token["access_token"])).await.expect("connected");
    let headers = [("authorization", &*admin), ("content-type", "application/json")];
    let ended = async |task: JoinHandle<Result<(), Error>>| {
        let began = Instant::now();
        let ended = tokio::time::timeout(Duration::from_mins(5), task).await.expect("it ends");
        let error = ended.expect("no panic").expect_err("the client is told");
        assert_eq!(code(&error), "28000", "{error:?}");
        began.elapsed()
    };
    let mut number = 0;
    within("the end of a key acts", ACTS_WITHIN, async || {
        number += 1;
        let name = json!({"name": format!("tool{number}")});
        let key = made(&server, &bearer(&bob_token), &format!("users/{bob_id}/keys"), name).await;
        let (_by_key, key_task) = connect_with(&server, &text(&key["key"])).await.expect("connected");
        let path = format!("/platform-api/rbac/users/{bob_id}/keys/{}", text(&key["id"]));
        assert_eq!(server.send("DELETE", &path, &headers, Vec::new()).await.status, 204);
        ended(key_task).await
    })
    .await;
    within("the end of an account acts", ACTS_WITHIN, async || {
        number += 1;
        let name = format!("eve{number}");
        let eve = user(&server, &admin, &name, "viewer", json!(["app1"])).await;
        let token = text(&login(&server, &name, PASSWORD).await["access_token"]);
        let (_eves, task) = connect_with(&server, &token).await.expect("connected");
        let path = format!("/platform-api/rbac/users/{}", text(&eve["id"]));
        let off = server.send("PATCH", &path, &headers, b"{\"enabled\": false}".to_vec()).await;
        assert_eq!(off.status, 200, "{}", off.text());
        ended(task).await
    })
    .await;
    assert!(!own_task.is_finished(), "a key of his is gone, the account is not");
    assert_eq!(all.query_one("select 1::int", &[]).await.expect("a row").get::<_, i32>(0), 1);
}
