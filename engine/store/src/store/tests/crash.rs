//! Crashes at every fail point. A child process (this test binary again) runs a workload and aborts there. Afterwards
//! everything that was acknowledged must be there exactly once, and no unlisted file may remain (promises D2, D7).

use std::io::Write;
use std::process::Command;

use arrow::array::AsArray;
use arrow::datatypes::TimestampNanosecondType;
use quiver_types::failpoint::{VARIABLE, arm};
use quiver_types::logs::{LogColumn, LogFilter, LogForm, LogOrder, LogRequest, MSG, TIME};
use quiver_types::{LogsBatch, ReadStats};

use super::*;
use crate::{failpoint, outbox};

const DIRECTORY: &str = "QUIVER_TEST_CRASH_DIR";
/// What a child does: see [`Life`].
const LIFE: &str = "QUIVER_TEST_CRASH_LIFE";
const RETENTION_DAYS: i64 = 5;
/// Commits after which objects of old ones are deleted for sure (two full lists, each 256).
const COMMITS_TO_PRUNE: usize = 520;

/// The life of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// Everything that most points need.
    Whole,
    /// Starts once more, and cleans up after the one before.
    Again,
    /// Commits until old commit objects go.
    Old,
}

impl Life {
    fn of(name: &str) -> Self {
        [Self::Whole, Self::Again, Self::Old].into_iter().find(|l| format!("{l:?}") == name).unwrap_or(Self::Whole)
    }
}

fn bench(dir: &Path) -> Bench {
    let mut bench = Bench::new(false);
    bench.tune = |s| {
        s.retention = Some(Duration::from_secs(RETENTION_DAYS as u64 * 86_400));
        s.drop_grace = Duration::ZERO;
        if let Ok(dir) = std::env::var(DIRECTORY) {
            s.data_dir = Path::new(&dir).join("data");
        }
    };
    bench.dir = tempfile::TempDir::new_in(dir).unwrap();
    bench
}

fn remote_storage(dir: &Path, settings: &StoreSettings) -> Storage {
    // A directory as a remote store: what it got survives the child.
    let folder = dir.join("remote");
    std::fs::create_dir_all(&folder).unwrap();
    let store = object_store::local::LocalFileSystem::new_with_prefix(folder).unwrap();
    Storage::remote(Arc::new(store), "p", "s3://bucket/p", settings)
}

/// Tells the parent what was acknowledged.
fn acknowledge(dir: &Path, clock: Millis, line: &str) {
    let mut log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).unwrap();
    writeln!(log, "{clock} {line}").unwrap();
}

/// A log row at each of some times; the message tells the write.
fn log_batch(times: &[Millis], value: u64) -> LogsBatch {
    let mut batch = LogsBatch { services: vec!["".into()], names: vec![MSG.into()], ..LogsBatch::default() };
    for &ts in times {
        let stream =
            batch.push_stream(LabelSet::from_pairs([("app", if ts % 2 == 0 { "a" } else { "b" })]).canonical());
        batch.push_field(0, &value.to_string());
        batch.end_row(ts * 1_000_000, stream, 0, quiver_types::logs::RecordMarks::default());
    }
    batch
}

/// Samples and log rows.
async fn everything(store: &Store) -> Content {
    let mut found = content(store).await;
    let snapshot = crate::logs_source(store).snapshot();
    let columns = vec![LogColumn::text(TIME), LogColumn::text(MSG)];
    let request =
        LogRequest { filter: LogFilter::All, columns, rest: false, order: LogOrder::Any, form: LogForm::Rows };
    let table = crate::logs_table(&*snapshot, &Access::full(), request, &ReadStats::default()).unwrap();
    let table = quiver_query::scan_table(table);
    let batches = datafusion::prelude::SessionContext::new().read_table(table).unwrap().collect().await.unwrap();
    for batch in batches {
        let (times, messages) =
            (batch.column(0).as_primitive::<TimestampNanosecondType>(), batch.column(1).as_string_view());
        for (ts, message) in times.values().iter().zip(messages) {
            let message = message.unwrap_or_default();
            let before = found.insert((format!("log {message}"), ts / 1_000_000), 0);
            assert_eq!(before, None, "log row {message} at {ts} is there twice");
        }
    }
    found
}

async fn workload(dir: &Path, remote: bool) {
    let mut bench = bench(dir);
    let settings = bench.settings();
    let storage = remote.then(|| remote_storage(dir, &settings));
    let clock = Arc::clone(&bench.clock);
    let open = || {
        let overrides = StoreOverrides { storage: storage.clone(), wal_disk: None };
        Store::open_with(settings.clone(), Arc::clone(&clock) as Arc<dyn Clock>, overrides)
    };
    let store = open().await.unwrap();
    for round in 0..2i64 {
        for i in 0..3 {
            let times = [START + round * 100 + i, START - DAY_MS + round * 100 + i];
            let values = bench.next;
            bench.write(&store, &times).await;
            store.write_logs(log_batch(&times, values)).await.unwrap();
            acknowledge(dir, bench.clock.now_ms(), &format!("{} {} {values}", times[0], times[1]));
            store.flush_all().await.unwrap();
        }
        store.compact_all().await.unwrap();
    }
    end(store).await;
    let store = open().await.unwrap();
    let times = [START + 1000, START + 1001];
    let values = bench.next;
    bench.write(&store, &times).await;
    store.write_logs(log_batch(&times, values)).await.unwrap();
    acknowledge(dir, bench.clock.now_ms(), &format!("{} {} {values}", times[0], times[1]));
    store.close(Duration::ZERO).await;
    drop(store);
    let store = open().await.unwrap();
    store.expire().await.unwrap();
    // The old day is past its retention now.
    bench.clock.pass(RETENTION_DAYS * DAY_MS);
    acknowledge(dir, bench.clock.now_ms(), "moved");
    store.expire().await.unwrap();
    store.flush_all().await.unwrap();
    store.clean().await.unwrap();
    store.close(CLOSE).await;
}

/// A store on the folder of the child before, or of this one.
async fn other_life(dir: &Path, life: Life) {
    let bench = bench(dir);
    let (_, _, clock) = promised(dir);
    bench.clock.0.store(clock, Relaxed);
    let store = bench.open().await;
    if life == Life::Old {
        for _ in 0..COMMITS_TO_PRUNE {
            store.core.catalog.commit(&crate::catalog::Change::default()).await.unwrap();
        }
    }
    store.flush_all().await.unwrap();
    outbox::drain(&store.core).await.unwrap();
    store.clean().await.unwrap();
    store.close(CLOSE).await;
}

/// What the log promises: content that must be there, and whether the old day may be gone.
fn promised(dir: &Path) -> (Content, bool, Millis) {
    let log = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
    let (mut content, mut moved, mut clock) = (Content::new(), false, START);
    for line in log.lines() {
        let mut words = line.split(' ');
        clock = words.next().unwrap().parse().unwrap();
        let numbers: Vec<i64> = words.map_while(|w| w.parse().ok()).collect();
        let [a, b, mut value] = numbers[..] else {
            moved = true;
            continue;
        };
        for ts in [a, b] {
            content.insert((format!("log {value}"), ts), 0);
        }
        for series in 0..10 {
            for ts in [a, b] {
                value += 1;
                content.insert((format!("{:?}", labels(series)), ts), (value as f64).to_bits());
            }
        }
    }
    (content, moved, clock)
}

#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn child() {
    let Ok(dir) = std::env::var(DIRECTORY) else { return };
    let remote = std::env::var("QUIVER_TEST_CRASH_REMOTE").is_ok();
    let point = std::env::var(VARIABLE).expect("the parent says where to die");
    arm(&point, &[failpoint::NAMES]).expect("one of the list");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match Life::of(&std::env::var(LIFE).unwrap_or_default()) {
        Life::Whole => runtime.block_on(workload(Path::new(&dir), remote)),
        life => runtime.block_on(other_life(Path::new(&dir), life)),
    }
}

/// Gives whether the point was reached.
fn crash_at(point: &str, remote: bool) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let crashed = crash_in(dir.path(), point, remote, Life::Whole);
    check_after(dir.path(), point, remote);
    crashed
}

/// Lets a child live in a folder until it dies at a point; says whether it did.
fn crash_in(dir: &Path, point: &str, remote: bool, life: Life) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "store::tests::crash::child", "--ignored", "--nocapture"]);
    command.env(DIRECTORY, dir).env(VARIABLE, point).env(LIFE, format!("{life:?}"));
    if remote {
        command.env("QUIVER_TEST_CRASH_REMOTE", "1");
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("panicked"), "{point}: {text}");
    !output.status.success()
}

fn check_after(dir: &Path, point: &str, remote: bool) {
    let (written, moved, clock) = promised(dir);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(verify(point, dir, remote, written, moved, clock));
}

async fn verify(point: &str, dir: &Path, remote: bool, mut written: Content, moved: bool, clock: Millis) {
    let bench = bench(dir);
    bench.clock.0.store(clock, Relaxed);
    let settings = StoreSettings { data_dir: dir.join("data"), ..bench.settings() };
    let storage = remote.then(|| remote_storage(dir, &settings));
    let clock = || Arc::clone(&bench.clock) as Arc<dyn Clock>;
    let open = || {
        let overrides = StoreOverrides { storage: storage.clone(), wal_disk: None };
        Store::open_with(settings.clone(), clock(), overrides)
    };
    let store = unlocked(open).await.unwrap_or_else(|e| panic!("{point}: {e}"));
    let mut found = everything(&store).await;
    if moved {
        // Whether retention came before or after the crash: the old day may be gone.
        written.retain(|(_, ts), _| *ts >= START - 2 * 3_600_000);
        found.retain(|(_, ts), _| *ts >= START - 2 * 3_600_000);
    }
    let lost: Vec<_> = written.iter().filter(|(key, value)| found.get(key) != Some(value)).collect();
    assert!(lost.is_empty(), "{point}: lost {lost:?}");
    // One batch may have been written without its acknowledgement having been logged.
    assert!(found.len() <= written.len() + 22, "{point}: {} instead of {}", found.len(), written.len());
    store.flush_all().await.unwrap_or_else(|e| panic!("{point}: {e}"));
    store.clean().await.unwrap();
    let after = everything(&store).await;
    assert!(found.iter().all(|(key, value)| moved || after.get(key) == Some(value)), "{point}: changed by the flush");
    end(store).await;
    let report = unlocked(|| check_with(settings.clone(), clock(), storage.clone())).await.unwrap();
    assert!(report.sound() && report.unknown.is_empty(), "{point}: {report:?}");
}

fn crash_everywhere(remote: bool, points: &[&str]) {
    let mut unreached = Vec::new();
    for &point in points {
        if !crash_at(point, remote) {
            unreached.push(point);
        }
    }
    assert!(unreached.is_empty(), "never reached: {unreached:?}");
}

/// Points that are passed only when a job died before its commit, after a point where it does.
const DOOMED: [(&str, &str); 3] = [
    ("flush.after-part", "cleaner.after-doom"),
    ("flush.before-commit", "cleaner.after-doomed-delete"),
    ("compact.before-commit", "cleaner.after-doomed-forget"),
];

/// Points that are passed in an old store only.
const OLD: [&str; 3] = ["outbox.before-prune", "outbox.after-prune-object", "outbox.after-prune"];

/// Points that one life in a new folder does not reach.
fn elsewhere(point: &str) -> bool {
    let others = ["backup.", "restore."].iter().any(|area| point.starts_with(area));
    others || OLD.contains(&point) || DOOMED.iter().any(|(_, after)| *after == point)
}

fn only_remote(point: &str) -> bool {
    ["upload.", "spool."].iter().any(|area| point.starts_with(area))
}

fn points(of: impl Fn(&str) -> bool) -> Vec<&'static str> {
    failpoint::NAMES.iter().copied().filter(|p| of(p) && !elsewhere(p)).collect()
}

#[test]
fn flush_and_commit() {
    crash_everywhere(
        false,
        &points(|p| p.starts_with("flush.") || p.starts_with("commit.") || p.starts_with("object.")),
    );
    crash_everywhere(false, &["commit.after-end:3", "flush.after-part:2", "flush.after-part:3"]);
}

#[test]
fn compaction_retention_and_cleaner() {
    crash_everywhere(false, &points(|p| ["compact.", "retention.", "cleaner."].iter().any(|a| p.starts_with(a))));
    crash_everywhere(false, &["compact.in-merge:15", "compact.after-part:2", "cleaner.after-delete:2"]);
}

#[test]
fn open_outbox_and_close() {
    crash_everywhere(false, &points(|p| ["open.", "replay.", "outbox.", "close."].iter().any(|a| p.starts_with(a))));
    crash_everywhere(false, &["outbox.after-put:3", "replay.end:2"]);
}

#[test]
fn upload() {
    crash_everywhere(true, &points(only_remote));
    crash_everywhere(
        true,
        &["flush.after-commit", "outbox.before-put:2", "compact.after-commit", "upload.after-file:3"],
    );
    crash_everywhere(true, &["flush.before-commit:2", "cleaner.in-delete"]);
}

#[test]
fn write_ahead_log() {
    crash_everywhere(false, &points(|p| p.starts_with("wal.")));
    crash_everywhere(false, &["wal.after-write:4", "wal.after-retire:2"]);
}

#[test]
fn after_the_death_of_a_job() {
    for (first, then) in DOOMED {
        let dir = tempfile::tempdir().unwrap();
        assert!(crash_in(dir.path(), first, false, Life::Whole), "{first} was not reached");
        assert!(crash_in(dir.path(), then, false, Life::Again), "{then} was not reached after {first}");
        check_after(dir.path(), then, false);
    }
}

#[test]
fn in_an_old_store() {
    for point in OLD {
        // In memory where there is such a folder: a thousand commits are a thousand syncs.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        assert!(crash_in(dir.path(), point, false, Life::Old), "{point} was not reached");
        check_after(dir.path(), point, false);
    }
}

/// Each point is in the list of one of the tests above, all of which fail where one is not reached.
#[test]
fn every_point_is_walked() {
    let areas = ["flush.", "commit.", "object.", "compact.", "retention.", "cleaner.", "open.", "replay.", "outbox."];
    let more = ["close.", "wal.", "upload.", "spool."];
    let walked = |point: &&str| elsewhere(point) || areas.iter().chain(&more).any(|area| point.starts_with(area));
    let left: Vec<_> = failpoint::NAMES.iter().filter(|point| !walked(point)).collect();
    assert!(left.is_empty(), "no test passes {left:?}");
}
