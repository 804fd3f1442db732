//! Rate limits of API keys.

use quiver_tests::server::Server;

use crate::account_use::grpc_answers;
use crate::identity::{ingest_key, signed_in, with_password};

/// The time of all data, in Unix seconds.
const AT: i64 = 1_700_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn keys_send_no_more_than_they_may() {
    let options = with_password().env("QUIVER_RBAC__KEY_INGEST_RECORDS_PER_SECOND", "5");
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options).await;
    let admin = signed_in(&server, "admin").await;
    let (fast, slow) = (ingest_key(&server, &admin, "fast").await, ingest_key(&server, &admin, "slow").await);
    let lines = |n: i64| (0..n).map(|i| format!("{{\"_time\":{},\"_msg\":\"m\"}}\n", AT + i)).collect::<String>();
    let send = async |who: &str, n: i64| {
        let headers = [("authorization", who), ("content-type", "application/x-ndjson")];
        server.post("/insert/jsonline", &headers, lines(n).into_bytes()).await
    };
    // What comes at once is taken whole; what it is more than ten rows is made up for at five a second.
    assert_eq!(send(&fast, 260).await.status, 200);
    let refused = send(&fast, 1).await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    let wait_s: u64 = refused.headers["retry-after"].to_str().unwrap().parse().expect("seconds");
    assert!((10..=50).contains(&wait_s), "{wait_s}");
    let refused = server.post("/v1/traces", &[("authorization", &fast[..])], Vec::new()).await;
    assert_eq!(refused.status, 429, "all signals share it: {}", refused.text());
    grpc_answers(&server, &admin, &fast).await;
    assert_eq!(send(&slow, 10).await.status, 200);
    assert_eq!(send(&slow, 1).await.status, 200);
}
