//! A full disk (promise F1), for real: a small file system, filled by data and by other files to the last byte. Writes
//! and configuration changes are refused with 503 and `Retry-After`, queries go on, no acknowledged data is lost, and
//! writes resume within seconds once there is space.

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quiver_tests::history::History;
use quiver_tests::load::{Caller, Piece, Run, Shape, Writer, Written, seed};
use quiver_tests::server::{Answer, Options, Server};

use crate::arena::{START_MS, busy, start};

const METRIC: &str = "full_disk_samples";
/// Size of the file system.
const DISK_BYTES: usize = 24 << 20;
/// What others take of it from the start.
const BALLAST_BYTES: usize = 12 << 20;
/// Sorts more than there is memory for queries, and than there is disk.
const SPILLS: &str = "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY t) AS r \
                      FROM (SELECT repeat('x', 100) || value AS t FROM generate_series(1, 1000000)))";
const PATIENCE: Duration = Duration::from_mins(5);
/// Within this time of there being room writes are taken again.
const RESUMES_WITHIN: Duration = Duration::from_secs(5);

/// A file system in memory, mounted as long as the value lives.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts one. `None`, loudly, where that is not permitted; where tests run on their own (`CI`) that is a failure.
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        let size = format!("size={DISK_BYTES}");
        let mut mount = Command::new("mount");
        let done = mount.args(["-t", "tmpfs", "-o", &size, "quiver-test"]).arg(dir.path()).output();
        match done {
            Ok(output) if output.status.success() => Some(Self { dir }),
            failed => {
                let why = failed.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stderr).into_owned());
                assert!(std::env::var_os("CI").is_none(), "cannot mount a small file system: {why}");
                quiver_tests::skipped(&format!(
                    "a full disk, since no file system can be mounted (be root): {}",
                    why.trim()
                ));
                None
            }
        }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Takes all that is free, to the last byte. Called again, also what was given back since.
    fn fill(&self) {
        let filler = self.dir.path().join("filler");
        let mut file = std::fs::File::options().create(true).append(true).open(filler).expect("a file");
        let block = vec![7; 64 << 10];
        for step in [block.len(), 4096, 1] {
            while file.write_all(&block[..step]).is_ok() {}
        }
    }

    fn empty(&self, name: &str) {
        std::fs::remove_file(self.dir.path().join(name)).expect("ours");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server that is being killed may still hold files.
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

/// Writes requests until one is refused or acknowledged as wanted; `before` is done before each.
async fn write_until(writer: &mut Writer, run: &Run, wanted: &Written, within: Duration, before: impl Fn()) {
    let began = Instant::now();
    loop {
        before();
        let pieces: Vec<Piece> = writer.request();
        let body = writer.body(&pieces);
        for (series, samples) in &pieces {
            run.history.sent(series, samples);
        }
        let written = run.caller.write(body).await;
        if written == Written::Taken {
            for (series, samples) in &pieces {
                run.history.acknowledged(series, samples);
            }
        }
        if written == *wanted {
            return;
        }
        assert!(matches!(written, Written::Taken | Written::Later), "{written:?}");
        assert!(began.elapsed() < within, "never {wanted:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sends log rows that do not pack until they are refused; gives the number of those that were taken.
async fn fill_with_logs(server: &Server, seed: u64) -> u64 {
    let (began, mut rows, mut state) = (Instant::now(), 0, seed | 1);
    loop {
        let mut body = String::new();
        for _ in 0..200 {
            let mut text = String::new();
            for _ in 0..64 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let _ = write!(text, "{:016x}", state ^ (state >> 29));
            }
            let _ = writeln!(body, "{{\"_time\":\"2026-03-01T12:00:00Z\",\"app\":\"full\",\"_msg\":\"{text}\"}}");
        }
        let answer = server.post("/insert/jsonline?_stream_fields=app", &[], body.into_bytes()).await;
        match answer.status {
            200 | 204 => rows += 200,
            429 | 503 | 507 => {
                assert!(answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
                return rows;
            }
            other => panic!("{other}: {}", answer.text()),
        }
        assert!(began.elapsed() < PATIENCE, "the disk is never full");
    }
}

async fn log_rows(server: &Server) -> u64 {
    let answer = server.ask("/logs-api/select/logsql/query", &[("query", "app:full | stats count() n")]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["n"].as_str().and_then(|n| n.parse().ok()).unwrap_or_default()
}

/// Asks what needs more spill files than the disk has room for: it is told to come again, as it is not at fault.
async fn spills_in_vain(server: &Server) {
    let began = Instant::now();
    loop {
        let answer = server.get_with("/sql-api/v1/query", &[("query", SPILLS)]).await;
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
        if answer.text().contains("the disk has no room for the spill files") {
            return;
        }
        // Others may hold the memory that it takes first.
        assert!(began.elapsed() < PATIENCE, "{}", answer.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A change of configuration, which is kept by SQLite.
async fn configure(server: &Server, service: usize) -> Answer {
    let body = format!("{{\"service\":\"s{service}\",\"thresholdMs\":100}}");
    server.post("/platform-api/apdex-thresholds", &[("content-type", "application/json")], body.into_bytes()).await
}

/// Changes the configuration until that finds no room, which may take some changes: its log has room of its own. Then gives
/// the service that was refused.
async fn configure_in_vain(server: &Server, disk: &SmallDisk, from: usize) -> usize {
    let (began, mut service) = (Instant::now(), from);
    loop {
        disk.fill();
        let answer = configure(server, service).await;
        if answer.status == 503 {
            assert!(answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
            return service;
        }
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert!(began.elapsed() < PATIENCE, "{service} changes, and none is refused");
        service += 1;
    }
}

/// A silence, which is kept by the database of alerts.
async fn silence(server: &Server, n: usize) -> Answer {
    let body = format!(
        "{{\"matchers\":[{{\"name\":\"n\",\"value\":\"{n}\",\"isRegex\":false}}],\
         \"startsAt\":\"2026-01-01T00:00:00Z\",\"endsAt\":\"2100-01-01T00:00:00Z\",\
         \"createdBy\":\"me\",\"comment\":\"{}\"}}",
        "c".repeat(2000)
    );
    server.post("/api/v2/silences", &[("content-type", "application/json")], body.into_bytes()).await
}

/// Sets silences until there is no room for one; what was refused is not there. Gives how many there are.
async fn silence_in_vain(server: &Server, disk: &SmallDisk, from: usize) -> usize {
    let (began, mut set) = (Instant::now(), from);
    loop {
        disk.fill();
        let answer = silence(server, set).await;
        let listed = server.get("/api/v2/silences").await.json().as_array().map_or(0, Vec::len);
        if answer.status == 503 {
            assert!(answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
            assert_eq!(listed, set, "a refused silence mutes nothing");
            return set;
        }
        assert_eq!((answer.status, listed), (200, set + 1), "{}", answer.text());
        assert!(began.elapsed() < PATIENCE, "{set} silences, and none is refused");
        set += 1;
    }
}

async fn verdict(caller: &Caller, history: &History, settle: bool) {
    let (first, last) = history.bounds().expect("written");
    let found = caller.samples(METRIC, first, last).await.expect("it lives").expect("queries go on");
    let verdict = history.judge(&found, settle);
    assert!(verdict.clean(), "{verdict}");
}

/// Fills the disk, with a reserve that is kept, or with none so that every part of the server meets its end.
async fn a_disk_runs_full(name: &str, reserve: usize) {
    let seed = seed(name);
    let Some(disk) = SmallDisk::mount() else { return };
    std::fs::write(disk.dir.path().join("ballast"), vec![1; BALLAST_BYTES]).expect("room");
    // Small budgets, so that a large query spills.
    let options =
        busy(Options::default()).env("QUIVER_STORE__DISK_RESERVE", reserve).env("QUIVER_MEMORY__LIMIT", "256MiB");
    let (server, caller) = start(&disk.data(), &options).await;
    let history = Arc::new(History::default());
    let run = Run::new(&caller, &history);
    let mut writer = Writer::new(0, Shape { asked: 0.0, ..Shape::small(METRIC) }, seed, START_MS);
    write_until(&mut writer, &run, &Written::Taken, PATIENCE, || ()).await;
    let pieces = writer.request();
    let known = writer.body(&pieces);
    // Filled by data first, then by others to the last byte, twice.
    let rows = fill_with_logs(&server, seed).await;
    let (mut soonest, mut service, mut silences) = (Duration::MAX, 0, 0);
    for (round, room) in ["ballast", "filler", "filler"].into_iter().enumerate() {
        // Again and again: a flush or compaction that finds no room removes what it had begun to write, and the bytes of
        // it would do for a minute of small writes.
        write_until(&mut writer, &run, &Written::Later, PATIENCE, || disk.fill()).await;
        let answer = server.post("/metrics-api/api/v1/write", &[], known.clone()).await;
        assert!(matches!(answer.status, 503 | 507), "{} {}", answer.status, answer.text());
        assert!(answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
        assert!(answer.text().contains("disk"), "{}", answer.text());
        // Flush, compaction and catalog have no room either: they say so, or wait, and go on living.
        for path in ["/admin/compact?force=true", "/admin/flush"] {
            let asked = tokio::time::timeout(Duration::from_secs(2), server.post(path, &[], vec![])).await;
            if let Ok(answer) = asked {
                assert!(matches!(answer.status, 200 | 500 | 503 | 507), "{path}: {} {}", answer.status, answer.text());
            }
        }
        verdict(&caller, &history, false).await;
        assert_eq!(log_rows(&server).await, rows, "round {round}");
        let large =
            server.get_with("/logs-api/select/logsql/query", &[("query", "app:full | sort by (_msg) | limit 3")]).await;
        assert!(matches!(large.status, 200 | 422 | 503 | 507), "{} {}", large.status, large.text());
        spills_in_vain(&server).await;
        // Where it is kept by PostgreSQL, that has another disk.
        if quiver_testpg::given().is_none() {
            service = configure_in_vain(&server, &disk, service).await;
        }
        silences = silence_in_vain(&server, &disk, silences).await;
        disk.empty("filler");
        if room == "ballast" {
            disk.empty(room);
        }
        let began = Instant::now();
        write_until(&mut writer, &run, &Written::Taken, PATIENCE, || ()).await;
        soonest = soonest.min(began.elapsed());
        // What was refused was not done, and is now.
        assert_eq!(configure(&server, service).await.status, 201, "round {round}");
        service += 1;
        assert_eq!(silence(&server, silences).await.status, 200, "round {round}");
        silences += 1;
        verdict(&caller, &history, false).await;
    }
    // A machine may stand still in one of them.
    assert!(soonest < RESUMES_WITHIN, "writes are taken again after {soonest:?}");
    server.kill();
    let (server, caller) = start(&disk.data(), &options).await;
    verdict(&caller, &history, true).await;
    assert_eq!(log_rows(&server).await, rows);
    assert_eq!(server.get("/api/v2/silences").await.json().as_array().map_or(0, Vec::len), silences);
    for known in [0, service - 1] {
        assert_eq!(configure(&server, known).await.status, 409, "it is there already");
    }
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_and_recovers() {
    a_disk_runs_full("a_full_disk_refuses_and_recovers", 2 << 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_without_reserve_refuses_and_recovers() {
    a_disk_runs_full("a_disk_without_reserve_refuses_and_recovers", 0).await;
}
