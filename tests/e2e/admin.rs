//! Start, stop, health, own metrics, and parameters that are refused by name.

use quiver_tests::server::{Options, Server, command, run};

#[tokio::test(flavor = "multi_thread")]
async fn health_and_own_metrics() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    assert_eq!(server.get("/health/live").await.status, 200);
    assert_eq!(server.get("/metrics-api/-/healthy").await.status, 200);
    let metrics = server.get("/metrics").await.text();
    for name in ["quiver_wal_commits_total", "process_resident_memory_bytes", "quiver_http_requests_total"] {
        assert!(metrics.contains(&format!("# TYPE {name} ")), "{name} is missing:\n{metrics}");
    }
    assert_eq!(server.get("/nothing/here").await.status, 404);
    assert_eq!(server.post("/health/live", &[], vec![]).await.status, 405);
    let info = server.get("/metrics-api/api/v1/status/buildinfo").await.json();
    assert_eq!(info["data"]["version"], "3.14.0");
    assert!(info["data"].get("features").is_none(), "Grafana would take it for Mimir");
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let (code, _, errors) = run(&mut command(dir.path(), &Options::default()));
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("data directory"), "{errors}");
    assert_eq!(server.get("/health/ready").await.status, 200);
}

#[test]
fn refused_by_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let check = |args: &[&str], expected: &str| {
        let (code, _, errors) = run(&mut command(dir.path(), &Options::default().args(args)));
        assert_ne!(code, Some(0), "{args:?}");
        assert!(errors.contains(expected), "{args:?}: {errors}");
    };
    check(&["--rbac", "maybe"], "`rbac.mode` is `maybe`");
    check(&["--store", "gs://bucket"], "gs://");
    check(&["--store", "nonsense"], "nonsense");
    check(&["--config", "/nowhere.toml"], "/nowhere.toml");
}
