//! Settings reloaded while the server runs: by request and by SIGHUP, all or nothing.

use std::time::{Duration, Instant};

use quiver_tests::server::{Options, Server};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_read_anew() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, log) = (dir.path().join("quiver.toml"), dir.path().join("log"));
    let put = |text: &str| std::fs::write(&file, text).expect("writable");
    put("[query]\nslow = \"1h\"\n");
    let options = Options::default().args(&["--config", &file.display().to_string()]).log_to(&log);
    let server = Server::start(&dir.path().join("data"), &options).await;
    let reload = || server.post("/admin/reload", &[], vec![]);
    let flag = async |name: &str| server.get("/metrics-api/api/v1/status/flags").await.json()["data"][name].clone();

    assert_eq!(reload().await.json(), json!({"applied": [], "needsRestart": []}));
    put(
        "[query]\nslow = \"1ms\"\nconcurrent_max = 3\ntimeout = \"1ms\"\n[http]\ncors_origins = [\"https://a.example\"]\n",
    );
    let expected = json!({
        "applied": ["http.cors_origins", "query.timeout", "query.slow"],
        "needsRestart": ["query.concurrent_max"],
    });
    assert_eq!(reload().await.json(), expected);
    assert_eq!(flag("query.timeout").await, "1ms");
    assert_eq!(flag("query.concurrent_max").await, "20", "what is listed is in force");
    let allowed = server.send("GET", "/health/live", &[("origin", "https://a.example")], vec![]).await;
    assert_eq!(allowed.headers["access-control-allow-origin"], "https://a.example");

    // A file with any fault changes nothing.
    for bad in ["[query]\nslow = \"soon\"\n", "[query]\nslo = \"1s\"\n", "[log]\nfilter = \"quiver=loud\"\n", "["] {
        put(bad);
        let refused = reload().await;
        assert_eq!(refused.status, 400, "{bad}: {}", refused.text());
        assert_eq!(flag("query.timeout").await, "1ms", "{bad}");
    }

    put("[log]\naccess = true\n");
    server.hangup();
    let began = Instant::now();
    while flag("log.access").await != "true" {
        assert!(began.elapsed() < Duration::from_mins(5), "SIGHUP does nothing");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(flag("query.timeout").await, "2m");
    assert_eq!(server.get("/health/ready").await.status, 200);
    let began = Instant::now();
    while !std::fs::read_to_string(&log).unwrap_or_default().contains("quiver::access") {
        assert!(began.elapsed() < Duration::from_mins(5), "the access log is not on");
        tokio::time::sleep(Duration::from_millis(10)).await;
        server.get("/health/live").await;
    }
    put("[log]\nfilter = \"off\"\n");
    assert_eq!(reload().await.json()["applied"], json!(["log.filter", "log.access"]));
    let length = std::fs::metadata(&log).expect("a log").len();
    server.get("/nothing").await;
    assert_eq!(std::fs::metadata(&log).expect("a log").len(), length);
    assert_eq!(server.stop(), Some(0));
}
