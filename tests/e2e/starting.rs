//! What is answered while the log is being replayed.

use std::time::{Duration, Instant};

use quiver_tests::server::{Options, Server};

#[tokio::test(flavor = "multi_thread")]
async fn the_start_can_be_watched() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let rows = "{\"_msg\":\"a row of some length, so that there is something to replay\"}\n".repeat(2000);
    assert_eq!(server.post("/insert/jsonline", &[], rows.into_bytes()).await.status, 200);
    server.kill();
    let options = Options::default().env("QUIVER_FAILPOINT", "replay.after-segment=sleep:3000");
    let server = Server::spawn(dir.path(), &options).expect("it says where it listens");
    let began = Instant::now();
    let seen = loop {
        let ready = server.get("/health/ready").await;
        assert_eq!(ready.status, 503, "the replay is over: {}", ready.text());
        assert!(ready.headers.contains_key("retry-after") && ready.headers.contains_key("x-request-id"));
        if ready.text().contains("replaying the log") {
            break ready.text();
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{}", ready.text());
    };
    assert!(seen.contains(" of ") && seen.contains("KiB"), "{seen}");
    assert_eq!(server.get("/health/live").await.status, 200);
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    let text = metrics.text();
    for name in ["quiver_build_info", "process_resident_memory_bytes", "quiver_wal_replay_bytes"] {
        assert!(text.contains(&format!("# TYPE {name} ")), "{name} is missing:\n{text}");
    }
    let replay = text.lines().find_map(|l| l.strip_prefix("quiver_wal_replay_bytes ")).expect("told");
    assert!(replay.parse::<f64>().is_ok_and(|bytes| bytes > 0.0), "{replay}");
    for path in ["/metrics-api/api/v1/query?query=1", "/admin/queries", "/logs-api/select/logsql/query?query=*"] {
        assert_eq!(server.get(path).await.status, 503, "{path}");
    }
    let began = Instant::now();
    while server.get("/health/ready").await.status != 200 {
        assert!(began.elapsed() < Duration::from_secs(60), "the replay does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.stop(), Some(0));
}
