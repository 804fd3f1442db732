//! Clients that go away in the middle of what they asked for.

use quiver_tests::server::Server;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{LONG, open, until_queries};

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
