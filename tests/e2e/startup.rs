//! Responses while the WAL is being replayed, and errors about incomplete data directories.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quiver_tests::held_server::Hold;
use quiver_tests::server::{Options, Server, binary, command};
use quiver_tests::time_limits::{until, within};

#[tokio::test(flavor = "multi_thread")]
async fn the_start_can_be_watched() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let rows = "{\"_msg\":\"a row of some length, so that there is something to replay\"}\n".repeat(2000);
    assert_eq!(server.post("/insert/jsonline", &[], rows.into_bytes()).await.status, 200);
    server.kill();
    let hold = Hold::default();
    let options = Options::default().env("QUIVER_FAILPOINT", hold.at("replay.after-segment"));
    let server = Server::spawn(dir.path(), &options).expect("it says where it listens");
    let began = Instant::now();
    let seen = loop {
        let asked = Instant::now();
        let ready = server.get("/health/ready").await;
        assert_eq!(ready.status, 503, "the replay is over: {}", ready.text());
        assert!(asked.elapsed() > Duration::from_millis(400), "the end of the start was not waited for");
        assert!(ready.headers.contains_key("retry-after") && ready.headers.contains_key("x-request-id"));
        if ready.text().contains("replaying the log") {
            break ready.text();
        }
        assert!(began.elapsed() < Duration::from_mins(5), "{}", ready.text());
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
    hold.release();
    let began = Instant::now();
    while server.get("/health/ready").await.status != 200 {
        assert!(began.elapsed() < Duration::from_mins(5), "the replay does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.stop(), Some(0));
}

/// What is made at the first query of a language is made before anybody asks.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_of_each_language_ran_before_the_first_request() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let metrics = server.get("/metrics").await.text();
    let counted = |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    assert!(counted("quiver_query_started_total").is_some_and(|queries| queries >= 3.0), "{metrics}");
    assert_eq!(counted("quiver_query_failed_total"), Some(0.0), "{metrics}");
    assert_eq!(server.stop(), Some(0));
}

/// A start ends when it is asked to: in order while the log is replayed, and not in order where it hangs.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_ends_when_it_is_asked_to() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    assert_eq!(server.post("/insert/jsonline", &[], b"{\"_msg\":\"a row\"}\n".to_vec()).await.status, 200);
    server.kill();
    for (point, code) in [("replay.after-segment", 0), ("replay.begin", 128 + 15)] {
        within(&format!("{point}: an end with code {code}"), Duration::from_secs(20), async || {
            let hold = Hold::default();
            let options = Options::default().env("QUIVER_FAILPOINT", hold.at(point));
            let server = Server::spawn(dir.path(), &options).expect("it says where it listens");
            hold.reached().await;
            let began = Instant::now();
            // What has not ended in order after some seconds counts as hanging, also on a machine that stood still.
            if server.stop() == Some(code) { began.elapsed() } else { Duration::MAX }
        })
        .await;
    }
}

/// Address spaces in which threads cannot be had: a start says so and ends, or ends when it is asked to.
#[test]
fn a_start_without_room_for_threads_ends() {
    for kib in (200_000..=320_000).step_by(20_000) {
        let dir = tempfile::tempdir().expect("a folder");
        let options = Options::default().limits(&format!("-v {kib}")).log_to(&dir.path().join("log"));
        let mut child = command(dir.path(), &options).stdout(Stdio::null()).spawn().expect("the shell runs");
        std::thread::sleep(Duration::from_millis(500));
        let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        let began = Instant::now();
        while child.try_wait().expect("ours to wait for").is_none() {
            if began.elapsed() > Duration::from_mins(5) {
                let _ = child.kill();
                let log = std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
                panic!("with {kib} KiB it does not end:\n{log}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Lines of rows that do not compress.
fn noise(rows: u64) -> Vec<u8> {
    let mut state = 1_u64;
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{state:016x}")
    };
    let lines = (0..rows).map(|_| format!("{{\"_msg\":\"{}\"}}\n", (0..6).map(|_| number()).collect::<String>()));
    lines.collect::<String>().into_bytes()
}

/// Breaks if a write beyond what the process may write to a file ends it, or if a start that finds no room says no
/// more than that it has waited for a connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_file_sizes_is_a_full_disk() {
    let dir = tempfile::tempdir().expect("a folder");
    let (data, log) = (dir.path().join("data"), dir.path().join("log"));
    // Blocks of 512 bytes.
    let server = Server::start(&data, &Options::default().limits("-f 4096")).await;
    for _ in 0..3 {
        assert_eq!(server.post("/insert/jsonline", &[], noise(12_000)).await.status, 200);
    }
    let refused = server.post("/insert/jsonline", &[], noise(90_000)).await;
    assert_eq!((refused.status, refused.text().trim()), (503, "disk is full"));
    let count = [("query", "* | count() n")];
    let counted = server.get_with("/logs-api/select/logsql/query", &count).await;
    assert_eq!(counted.text().trim(), "{\"n\":\"36000\"}", "it lives, and has what it acknowledged");
    server.kill();
    let options = Options::default().limits("-f 100").log_to(&log);
    let status = command(&data, &options).stdout(Stdio::null()).status().expect("the shell runs");
    let said = std::fs::read_to_string(&log).expect("a log");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("quiver.db`, the catalog, cannot be read or written, says the disk"), "{said}");
    let server = Server::start(&data, &Options::default()).await;
    let counted = server.get_with("/logs-api/select/logsql/query", &count).await;
    assert_eq!(counted.text().trim(), "{\"n\":\"36000\"}");
    assert_eq!(server.stop(), Some(0));
}

/// What is gone or cannot be read is named, and the start goes on.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_start_finds_missing_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let (data, log) = (dir.path().join("data"), dir.path().join("log"));
    let options = Options::default().log_to(&log);
    let is_said = |words: [&str; 2]| {
        let text = std::fs::read_to_string(&log).expect("a log");
        text.lines().any(|line| words.iter().all(|word| line.contains(word)))
    };
    let (emptied, removed) =
        (["a WAL segment is empty", ".wal"], ["folder of this installation is missing", "data/wal"]);
    let unreadable = ["the time that retention goes by cannot be read", "data/CLOCK"];
    let forgotten = ["the database of accounts and configuration is missing", "data/config.db"];
    let keyless = ["the master key is missing", "data/master-key"];
    let all = [emptied, removed, unreadable, forgotten, keyless];
    let start = async || {
        let server = Server::start(&data, &options).await;
        let row = b"{\"_msg\":\"a row\"}\n".to_vec();
        assert_eq!(server.post("/insert/jsonline", &[], row).await.status, 200);
        server
    };
    for _ in 0..2 {
        start().await.kill();
        assert!(!all.into_iter().any(is_said), "all is there");
    }
    let mut segments = 0;
    for entry in std::fs::read_dir(data.join("wal")).expect("a folder").flatten() {
        if entry.path().is_file() {
            std::fs::write(entry.path(), "").expect("ours");
            segments += 1;
        }
    }
    assert!(segments > 0);
    std::fs::remove_file(data.join("master-key")).expect("it was made");
    start().await.kill();
    assert!(is_said(emptied) && is_said(keyless) && !is_said(removed));
    std::fs::remove_dir_all(data.join("wal")).expect("ours");
    std::fs::write(data.join("CLOCK"), "soon\n").expect("ours");
    for name in ["config.db", "config.db-wal", "config.db-shm"] {
        let _ = std::fs::remove_file(data.join(name));
    }
    let server = start().await;
    assert!(is_said(removed) && is_said(forgotten));
    until("the clock is named", async || is_said(unreadable)).await;
    assert_eq!(server.stop(), Some(0));
}

/// The disk of the log may be full, or its reader gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_written_ends_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_LOG__FILTER", "info").log_to(Path::new("/dev/full"));
    let server = Server::start(&dir.path().join("data"), &options).await;
    assert_eq!(server.post("/insert/jsonline", &[], b"{\"_msg\":\"a row\"}\n".to_vec()).await.status, 200);
    // Threads of the store log, too.
    server.flush().await;
    server.compact().await;
    assert_eq!(server.get("/health/ready").await.status, 200);
    assert_eq!(server.stop(), Some(0));
}

/// A limit above what there is cannot be kept: the system ends the process first.
#[tokio::test(flavor = "multi_thread")]
async fn more_memory_than_there_is_is_told() {
    let dir = tempfile::tempdir().expect("a folder");
    for (limit, is_told) in [("64TiB", true), ("0", false)] {
        let log = dir.path().join(limit);
        let options = Options::default().env("QUIVER_MEMORY__LIMIT", limit).log_to(&log);
        let server = Server::start(&dir.path().join("data"), &options).await;
        assert_eq!(server.stop(), Some(0));
        let text = std::fs::read_to_string(&log).expect("a log");
        assert_eq!(text.contains("`memory.limit` is more than this process may have"), is_told, "{limit}: {text}");
    }
}

/// `quiver sql … | head`: who reads may have seen enough before anything is written.
#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_command_may_leave() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    assert_eq!(Server::start(&data, &Options::default()).await.stop(), Some(0));
    for words in [&["sql", "select 1"][..], &["store", "check"], &["check-config"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(binary());
        let output = command.args(words).arg("--data").arg(&data).stdout(writer).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(0) && !errors.contains("quiver: "), "{words:?}: {errors}");
    }
}

/// Breaks if warnings of a command on a stopped store are not shown.
#[tokio::test(flavor = "multi_thread")]
async fn warnings_of_commands_are_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let server = Server::start(&data, &Options::default()).await;
    assert_eq!(server.post("/insert/jsonline", &[], b"{\"_msg\":\"a row\"}\n".to_vec()).await.status, 200);
    server.flush().await;
    assert_eq!(server.stop(), Some(0));
    let objects = std::fs::read_dir(data.join("store/_catalog")).expect("a folder");
    let newest = objects.map(|entry| entry.expect("a file").path()).max().expect("a commit");
    std::fs::write(newest, "{").expect("ours");
    let mut command = Command::new(binary());
    let output =
        command.args(["catalog", "rebuild", "--data"]).arg(&data).env_remove("RUST_LOG").output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("WARN") && errors.contains("a commit object cannot be read"), "{errors}");
}

/// What `Type=notify` of the unit waits for.
#[tokio::test(flavor = "multi_thread")]
async fn the_service_manager_is_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(Duration::from_mins(1))).expect("it may be set");
    let told = || {
        let mut text = [0; 64];
        let length = manager.recv(&mut text).expect("it is told");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let options = Options::default().env("NOTIFY_SOCKET", socket.display().to_string());
    let server = Server::start(&dir.path().join("data"), &options).await;
    assert_eq!(told(), "READY=1");
    assert_eq!(server.stop(), Some(0));
    assert_eq!(told(), "STOPPING=1");
}

/// Breaks where a start waits until somebody writes into a pipe that stands in the place of a file.
#[tokio::test(flavor = "multi_thread")]
async fn pipes_in_the_place_of_files_are_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let (data, log, pipe) = (dir.path().join("data"), dir.path().join("log"), dir.path().join("pipe"));
    let make = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().expect("it runs").success());
    assert_eq!(Server::start(&data, &Options::default()).await.stop(), Some(0));
    make(&pipe);
    let refused = |options: Options, words: &str| {
        let _ = std::fs::remove_file(&log);
        let mut child =
            command(&data, &options.log_to(&log)).stdout(Stdio::null()).spawn().expect("the server is started");
        let began = Instant::now();
        let status = loop {
            match child.try_wait().expect("ours to wait for") {
                None if began.elapsed() < Duration::from_mins(5) => std::thread::sleep(Duration::from_millis(10)),
                None => {
                    let _ = child.kill();
                    panic!("{words}: it waits");
                }
                Some(status) => break status,
            }
        };
        let said = std::fs::read_to_string(&log).expect("a log");
        let is_said = said.contains(words) && said.contains("it is no regular file");
        assert!(status.code() == Some(1) && is_said, "{words}: {status}: {said}");
    };
    let shown = pipe.display().to_string();
    for (variable, words) in [
        ("QUIVER_HTTP__ADMIN_TOKEN_FILE", "`http.admin_token_file`"),
        ("QUIVER_AUTH__MASTER_KEY_FILE", "the master key `"),
        ("QUIVER_CONFIG__DATABASE_URL_FILE", "`config.database_url_file`"),
        ("QUIVER_ALERTING__POLICY", "`alerting.policy`"),
    ] {
        refused(Options::default().env(variable, &shown), words);
    }
    let rules = Options::default().env("QUIVER_ALERTING__RULES", format!("[\"{shown}\"]"));
    refused(rules, "`alerting.rules`");
    let tls = Options::default().env("QUIVER_TLS__CERTIFICATE_FILE", &shown).env("QUIVER_TLS__KEY_FILE", &shown);
    refused(tls, "`tls.certificate_file`");
    let identity = data.join("store/_quiver.json");
    std::fs::remove_file(&identity).expect("it was made");
    make(&identity);
    refused(Options::default(), "_quiver.json");
}
