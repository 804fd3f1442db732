//! Clients that disconnect in the middle of a statement, or whose account is removed.

use std::time::{Duration, Instant};

use quiver_tests::server::Server;
use quiver_tests::time_limits::within;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_postgres::Error;

use super::{ACTS_WITHIN, LONG, code, connect_with, open, try_connect, until_queries};
use crate::identity::{PASSWORD, bearer, login, made, user, with_password};

/// A statement whose rows fill all buffers on the way to a client that does not read.
const ROWS: &str = "select repeat('x', 1000) from generate_series(1, 10000000)";

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

/// A message of a simple query.
fn query(text: &str) -> Vec<u8> {
    [&b"Q"[..], &(text.len() as u32 + 5).to_be_bytes(), text.as_bytes(), b"\0"].concat()
}

/// Connects; gives the connection, and the message that cancels its statement.
async fn connected(server: &Server) -> (TcpStream, Vec<u8>) {
    let mut stream = TcpStream::connect(&server.postgres).await.expect("connected");
    let begin = [&18_u32.to_be_bytes()[..], &196_608_u32.to_be_bytes(), b"user\0ann\0\0"].concat();
    stream.write_all(&begin).await.expect("sent");
    let mut key = None;
    loop {
        let kind = stream.read_u8().await.expect("a message");
        let mut body = vec![0; stream.read_u32().await.expect("its length") as usize - 4];
        stream.read_exact(&mut body).await.expect("its body");
        match kind {
            b'K' => key = Some(body),
            b'Z' => break,
            _ => {}
        }
    }
    let request = [&16_u32.to_be_bytes()[..], &80_877_102_u32.to_be_bytes(), &key.expect("a key")].concat();
    (stream, request)
}

/// Reads on to the end of the statement; gives the code of its error.
async fn error_of(stream: &mut TcpStream) -> String {
    let mut code = String::new();
    loop {
        let kind = stream.read_u8().await.expect("a message");
        let mut body = vec![0; stream.read_u32().await.expect("its length") as usize - 4];
        stream.read_exact(&mut body).await.expect("its body");
        match kind {
            b'E' => {
                let mut fields = body.split(|byte| *byte == 0);
                let field = fields.find_map(|field| field.strip_prefix(b"C")).expect("a code");
                code = String::from_utf8_lossy(field).into_owned();
            }
            b'Z' => return code,
            _ => {}
        }
    }
}

async fn ask_again_and_again(server: &Server, request: &[u8]) {
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut other = TcpStream::connect(&server.postgres).await.expect("connected");
        other.write_all(request).await.expect("asked");
    }
}

/// Nobody reads the rows, and nothing else would end the statement for an hour: its query is gone all the same, and who
/// reads on finds why.
#[tokio::test(flavor = "multi_thread")]
async fn statements_that_nobody_reads_are_cancelled() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = open().env("QUIVER_QUERY__TIMEOUT", "1h").env("QUIVER_HTTP__SEND_TIMEOUT", "1h");
    let server = Server::start(dir.path(), &options).await;
    let (mut stream, request) = connected(&server).await;
    stream.write_all(&query(ROWS)).await.expect("sent");
    until_queries(&server, 1).await;
    // As in PostgreSQL one that comes between the description of a statement and its run is lost.
    tokio::select! {
        () = until_queries(&server, 0) => {}
        () = ask_again_and_again(&server, &request) => {}
    }
    assert_eq!(error_of(&mut stream).await, "57014");
    // The time limit of a statement ends it just as well, and the connection goes on.
    stream.write_all(&query("set statement_timeout = '500ms'")).await.expect("sent");
    assert_eq!(error_of(&mut stream).await, "");
    stream.write_all(&query(ROWS)).await.expect("sent");
    until_queries(&server, 1).await;
    until_queries(&server, 0).await;
    assert_eq!(error_of(&mut stream).await, "57014");
    // `COPY` has a way of its own, and so has an operator to end a query.
    stream.write_all(&query("reset statement_timeout")).await.expect("sent");
    assert_eq!(error_of(&mut stream).await, "");
    stream.write_all(&query(&format!("copy ({ROWS}) to stdout"))).await.expect("sent");
    until_queries(&server, 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let listed = server.get("/admin/queries").await.json();
    let id = listed["queries"][0]["id"].to_string();
    let ended = server.send("DELETE", &format!("/admin/queries/{}", id.trim_matches('"')), &[], Vec::new()).await;
    assert!(ended.status < 300, "{}", ended.status);
    until_queries(&server, 0).await;
    assert_eq!(error_of(&mut stream).await, "57014");
}
