//! Tests of the whole write side, over real files and over a disk that fails on demand.

mod damage;
mod disk_faults;
mod faulty_disk;
mod idempotency;
mod property;
mod speed;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use quiver_types::metrics::MetricMetadata;
use quiver_types::time::DAY_MS;
use quiver_types::{Access, Clock, ErrorKind, Matcher, MetricsBatch, Millis, MillisRange};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use uuid::Uuid;

use super::memory_wait::{MEMORY_WAIT_STEP, SMALL_GENERATIONS_MAX};
use super::*;
use crate::flush::memory::FlushMemory;
use crate::memtable::testing::batch;
use crate::registry::Work;
use crate::series_run::SeriesRun;
use crate::settings::{StoreSettings, WalLevel};
use crate::wal::disk::LocalDisk;

#[derive(Debug)]
struct FixedClock(Millis);

impl Clock for FixedClock {
    fn now_ms(&self) -> Millis {
        self.0
    }
}

/// A write path over a folder, with what stands around it.
struct Rig {
    path: WritePath,
    shared: Arc<SnapshotPublisher>,
    registry: Arc<Registry>,
    sealed: UnboundedReceiver<Arc<Generation>>,
    replayed: Vec<Arc<Generation>>,
    aside: Vec<Arc<Generation>>,
}

fn settings() -> WriteSettings {
    WriteSettings {
        accept_past_ms: None,
        accept_future_ms: None,
        disk_reserve_bytes: 0,
        ..StoreSettings::default().write()
    }
}

fn try_open(dir: &Path, disk: Arc<dyn WalDisk>, settings: WriteSettings) -> Result<Rig> {
    let (on_sealed, sealed) = unbounded_channel();
    let shared = Arc::new(SnapshotPublisher::default());
    let parts = WritePathParts {
        dir: dir.to_owned(),
        disk,
        settings,
        clock: Arc::new(FixedClock(1_700_000_000_000)),
        shared: Arc::clone(&shared),
        on_sealed,
        writer: Uuid::now_v7(),
        floors: HashMap::new(),
    };
    let (path, StartupGenerations { replayed, aside }) = WritePath::open(parts)?;
    let registry = Arc::clone(&path.registry);
    Ok(Rig { path, shared, registry, sealed, replayed, aside })
}

fn open(dir: &Path) -> Rig {
    try_open(dir, Arc::new(LocalDisk), settings()).expect("opens")
}

impl Rig {
    /// All samples that a new snapshot sees of the series that match, by generation.
    fn read(&self, matchers: &[Matcher]) -> Vec<(i64, f64)> {
        let snapshot = self.shared.snapshot();
        let mut rows = Vec::new();
        for g in &snapshot.visible.generations {
            for series in g.matching(matchers, &Access::full(), MillisRange::ALL, snapshot.seq) {
                let run = g.copy_floats(series.slot, MillisRange::ALL, snapshot.seq);
                rows.extend(run.ts.into_iter().zip(run.values));
            }
        }
        rows.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        rows
    }
}

fn one(name: &str, ts: i64, value: f64) -> MetricsBatch {
    batch(&[(&[("__name__", name), ("job", "test")], &[(ts, value)])])
}

/// Everything that a sealed generation holds, comparable.
fn dump(generation: &Generation) -> Vec<String> {
    let mut out = Vec::new();
    for day in generation.days() {
        for run in generation.runs(day) {
            let SeriesRun { labels, service, samples, hists, exemplars, .. } = &run;
            let bits: Vec<u64> = samples.values.iter().map(|v| v.to_bits()).collect();
            out.push(format!("{day} {labels:?} {service} {:?} {bits:?} {:?}", samples.ts, samples.start_ts));
            let hist_bytes: Vec<_> = hists.hists.iter().map(quiver_types::Histogram::canonical_bytes).collect();
            out.push(format!("{:?} {:?} {hist_bytes:?} {exemplars:?}", hists.ts, hists.start_ts));
        }
    }
    out.push(format!("{:?}", generation.metadata(u64::MAX)));
    out
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut files = LocalDisk.list(dir).expect("lists");
    files.sort();
    files
}

#[tokio::test]
async fn a_sender_that_walks_over_years_fills_one_generation() {
    let dir = TempDir::new().expect("a folder");
    let settings = WriteSettings { days_max: 10, generation_days_max: 2000, ..settings() };
    let mut rig = try_open(dir.path(), Arc::new(LocalDisk), settings).expect("opens");
    // Series by series over three years, ten days a request.
    let mut written = 0;
    for series in 0..4 {
        for request in 0..110 {
            let name = format!("m{series}");
            let days = (0..10).map(|day| (1_600_000_000_000 + (request * 10 + day) * DAY_MS, 1.0));
            let samples: Vec<(i64, f64)> = days.collect();
            rig.path.write_metrics(batch(&[(&[("__name__", &name)], &samples)])).await.expect("taken");
            written += samples.len();
        }
    }
    assert!(rig.sealed.try_recv().is_err(), "nothing was sealed before its time");
    assert_eq!(rig.read(&[]).len(), written);
    let generation = rig.path.seal().await.expect("runs").expect("rows");
    assert_eq!(generation.days().len(), 1100, "a part for each day, however many requests there were");
    assert_eq!(generation.days().iter().map(|&day| generation.runs(day).count()).sum::<usize>(), written);
}

#[tokio::test]
async fn many_small_generations_wait_for_their_flush() {
    let dir = TempDir::new().expect("a folder");
    let settings = WriteSettings { generation_days_max: 1, ..settings() };
    let rig = try_open(dir.path(), Arc::new(LocalDisk), settings).expect("opens");
    // Each write is of another day, so each seals; nobody flushes.
    let mut refused = None;
    for day in 0..100 {
        if day > SMALL_GENERATIONS_MAX[0] as i64 {
            // Without the pause that a sender gets.
            rig.path.seal().await.expect("runs");
        }
        if day > SMALL_GENERATIONS_MAX[0] as i64 && rig.shared.visible().generations.len() <= SMALL_GENERATIONS_MAX[1] {
            rig.path
                .enqueue(Batch::Metrics(one("m", day * DAY_MS, 1.0)), 1, vec![day as i32])
                .expect("queued")
                .await
                .expect("runs")
                .expect("written");
            continue;
        }
        if let Err(error) = rig.path.write_metrics(one("m", day * DAY_MS, 1.0)).await {
            refused = Some(error);
            break;
        }
    }
    let refused = refused.expect("not without end");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("too many generations"), "{refused}");
    assert!(rig.shared.visible().generations.len() <= SMALL_GENERATIONS_MAX[1] + 2);
}

#[tokio::test]
async fn a_generation_that_was_set_aside_is_found_again() {
    let dir = TempDir::new().expect("a folder");
    let rig = open(dir.path());
    rig.path.write_metrics(one("first", 1, 1.0)).await.expect("taken");
    let first = rig.path.seal().await.expect("runs").expect("rows").id();
    rig.path.write_metrics(one("second", 2, 2.0)).await.expect("taken");
    rig.path.set_aside(first).expect("moves");
    assert_eq!((segments(dir.path()).len(), segments(&dir.path().join(HELD)).len()), (1, 1));
    rig.path.shutdown().await;
    drop(rig);
    let rig = open(dir.path());
    assert_eq!(rig.read(&[]), [(1, 1.0), (2, 2.0)]);
    assert_eq!((rig.replayed.len(), rig.aside.len()), (1, 1));
    assert_eq!(rig.aside[0].id(), first);
    rig.path.retire(first);
    assert!(segments(&dir.path().join(HELD)).is_empty());
    assert_eq!(rig.read(&[]), [(2, 2.0)]);
}

#[tokio::test]
async fn an_answer_means_visible_and_durable() {
    let dir = TempDir::new().unwrap();
    let rig = open(dir.path());
    for n in 0..20 {
        let outcome = rig.path.write_metrics(one("m", n, n as f64)).await.unwrap();
        assert_eq!(outcome, WriteOutcome { samples: 1, ..WriteOutcome::default() });
        assert_eq!(rig.read(&[Matcher::equal("__name__", "m")]).len(), n as usize + 1);
    }
    // As a kill would leave it: no shutdown.
    let again = open(dir.path());
    assert_eq!(again.replayed.len(), 1);
    assert!(again.replayed[0].sealed());
    assert_eq!(again.read(&[]), rig.read(&[]));
    again.path.write_metrics(one("m", 20, 20.0)).await.unwrap();
    assert_eq!(again.read(&[Matcher::equal("job", "test")]).len(), 21);
    assert_eq!(again.shared.visible().generations.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_read_their_writes_and_snapshots_are_whole() {
    let dir = TempDir::new().unwrap();
    let rig = Arc::new(open(dir.path()));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reader = std::thread::spawn({
        let (rig, stop) = (Arc::clone(&rig), Arc::clone(&stop));
        move || {
            let mut seen = 0;
            while !stop.load(Relaxed) {
                let snapshot = rig.shared.snapshot();
                let (mut left, mut right) = (0.0, 0.0);
                for g in &snapshot.visible.generations {
                    for s in g.matching(&[], &Access::full(), MillisRange::ALL, snapshot.seq) {
                        let sum: f64 = g.copy_floats(s.slot, MillisRange::ALL, snapshot.seq).values.iter().sum();
                        *if s.labels.get("side") == "l" { &mut left } else { &mut right } += sum;
                    }
                }
                assert_eq!(left, right, "a write is seen in full or not at all");
                assert!(left >= seen as f64);
                seen = left as u64;
            }
        }
    });
    let writer = |w: u64| {
        let rig = Arc::clone(&rig);
        async move {
            let text = w.to_string();
            for n in 0..50i64 {
                let l: &[(&str, &str)] = &[("__name__", "m"), ("side", "l"), ("w", &text)];
                let r: &[(&str, &str)] = &[("__name__", "m"), ("side", "r"), ("w", &text)];
                rig.path.write_metrics(batch(&[(l, &[(n, 1.0)]), (r, &[(n, 1.0)])])).await.unwrap();
                let own = rig.read(&[Matcher::equal("w", text.as_str())]);
                assert_eq!(own.len(), 2 * (n as usize + 1));
                if w == 0 && n % 10 == 9 {
                    rig.path.seal().await.unwrap().expect("holds something");
                }
            }
        }
    };
    let tasks: Vec<_> = (0..8).map(|w| tokio::spawn(writer(w))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    stop.store(true, Relaxed);
    reader.join().unwrap();
    assert_eq!(rig.read(&[]).len(), 800);
    let again = open(dir.path());
    assert_eq!(again.read(&[]), rig.read(&[]));
}

#[tokio::test]
async fn sealing_by_size_age_days_and_by_hand() {
    let sealed_after = async |settings: WriteSettings, writes: &[MetricsBatch]| {
        let dir = TempDir::new().unwrap();
        let mut rig = try_open(dir.path(), Arc::new(LocalDisk), settings).unwrap();
        for write in writes {
            rig.path.write_metrics(write.clone()).await.unwrap();
        }
        rig.path.shutdown().await;
        let mut sealed = Vec::new();
        while let Ok(g) = rig.sealed.try_recv() {
            assert!(g.sealed());
            sealed.push((g.number, g.samples(), g.days().len()));
        }
        let open = open(dir.path());
        assert_eq!(open.read(&[]), rig.read(&[]));
        sealed
    };
    let small = WriteSettings { generation_bytes: 1, ..settings() };
    assert_eq!(sealed_after(small, &[one("a", 1, 1.0), one("a", 2, 1.0)]).await, [(1, 1, 1), (2, 1, 1)]);
    let young = WriteSettings { generation_age: Duration::ZERO, ..settings() };
    assert_eq!(sealed_after(young, &[one("a", 1, 1.0)]).await, [(1, 1, 1)]);
    let days = WriteSettings { generation_days_max: 2, ..settings() };
    let writes: Vec<_> = (0..5).map(|d| one("a", d * DAY_MS, 1.0)).collect();
    assert_eq!(sealed_after(days, &writes).await, [(1, 2, 2), (2, 2, 2)]);
    assert_eq!(sealed_after(settings(), &writes).await, []);
}

#[tokio::test]
async fn seal_and_retire() {
    let dir = TempDir::new().unwrap();
    let mut rig = open(dir.path());
    assert!(rig.path.seal().await.unwrap().is_none());
    rig.path.write_metrics(one("a", 1, 1.0)).await.unwrap();
    let sealed = rig.path.seal().await.unwrap().unwrap();
    assert_eq!(rig.sealed.recv().await.unwrap().id(), sealed.id());
    rig.path.write_metrics(one("a", 2, 1.0)).await.unwrap();
    assert_eq!((segments(dir.path()).len(), rig.registry.len()), (2, 1));
    rig.path.retire(sealed.id());
    assert_eq!((segments(dir.path()).len(), rig.read(&[]).len()), (1, 1));
    rig.path.retire(sealed.id());
    drop(sealed);
    let second = rig.path.seal().await.unwrap().unwrap();
    rig.path.retire(second.id());
    assert_eq!(rig.registry.len(), 1);
    drop((second, rig.sealed.recv().await));
    assert_eq!(rig.registry.len(), 0);
    assert!(segments(dir.path()).is_empty());
}

#[tokio::test]
async fn flushed_generations_are_not_replayed() {
    let dir = TempDir::new().unwrap();
    let rig = open(dir.path());
    rig.path.write_metrics(one("a", 1, 1.0)).await.unwrap();
    rig.path.seal().await.unwrap();
    rig.path.write_metrics(one("a", 2, 1.0)).await.unwrap();
    rig.path.shutdown().await;
    let registry = Arc::new(Registry::default());
    let found = replay(&LocalDisk, dir.path(), &registry, &|id| id.number == 1).unwrap();
    assert_eq!(found.iter().map(|r| r.generation.number).collect::<Vec<_>>(), [2]);
    assert_eq!(segments(dir.path()).len(), 1);
}

#[tokio::test]
async fn large_groups_fill_segments() {
    let dir = TempDir::new().unwrap();
    let rig = try_open(dir.path(), Arc::new(LocalDisk), WriteSettings { segment_bytes: 2000, ..settings() }).unwrap();
    for n in 0..20 {
        rig.path.write_metrics(one("a", n, 1.0)).await.unwrap();
    }
    assert!(segments(dir.path()).len() > 3);
    let again = open(dir.path());
    assert_eq!(again.replayed.len(), 1);
    assert_eq!(again.read(&[]).len(), 20);
    let id = again.replayed[0].id();
    again.path.retire(id);
    assert!(segments(dir.path()).is_empty());
}

#[tokio::test]
async fn refusals_are_counted_and_the_rest_is_stored() {
    let dir = TempDir::new().unwrap();
    let now = 1_700_000_000_000;
    let limited =
        WriteSettings { accept_past_ms: Some(1000), accept_future_ms: Some(600_000), days_max: 1, ..settings() };
    let rig = try_open(dir.path(), Arc::new(LocalDisk), limited).unwrap();
    let mixed = batch(&[(&[("__name__", "a")], &[(now - 2000, 1.0), (now, 2.0), (now + 600_001, 3.0)])]);
    let outcome = rig.path.write_metrics(mixed).await.unwrap();
    assert_eq!(outcome.samples, 1);
    assert_eq!(outcome.refused, [(Refusal::TooOld, 1), (Refusal::TooFarInFuture, 1)]);
    assert_eq!(rig.read(&[]), [(now, 2.0)]);
    let outcome = rig.path.write_metrics(one("a", 5, 1.0)).await.unwrap();
    assert_eq!((outcome.samples, outcome.refused), (0, vec![(Refusal::TooOld, 1)]));
}

#[tokio::test]
async fn a_full_registry_refuses_new_series_only() {
    let dir = TempDir::new().unwrap();
    let small = WriteSettings { memory_bytes: 400_000, ..settings() };
    let rig = try_open(dir.path(), Arc::new(LocalDisk), small).unwrap();
    let texts: Vec<String> = (0..3000).map(|n| n.to_string()).collect();
    let mut many = MetricsBatch::default();
    for (n, text) in texts.iter().enumerate() {
        // Of several services, so that none of them takes more than its share.
        let job = ["a", "b", "c", "d"][n % 4];
        let labels = quiver_types::LabelSet::from_pairs([("__name__", "m"), ("job", job), ("n", text.as_str())]);
        let at = many.push_series(labels.canonical());
        many.push_sample(at, 1, 1.0, 0);
    }
    let outcome = rig.path.write_metrics(many).await.unwrap();
    assert_eq!(outcome.refused.len(), 1);
    assert_eq!(outcome.refused[0].0, Refusal::SeriesLimit);
    assert_eq!(outcome.samples + outcome.refused[0].1, 3000);
    assert!(outcome.samples > 100);
    let again = open(dir.path());
    assert_eq!(again.read(&[]).len() as u64, outcome.samples);
}

#[tokio::test]
async fn over_the_memory_limit_writes_wait_then_fail() {
    let dir = TempDir::new().unwrap();
    let rig = try_open(dir.path(), Arc::new(LocalDisk), WriteSettings { memory_bytes: 100_000, ..settings() }).unwrap();
    let outcome = rig.path.write_metrics(one("a", 1, 1.0)).await.unwrap();
    assert!(outcome.refused.is_empty());
    rig.registry.add_generation_bytes(200_000);
    let waiting = rig.path.write_metrics(one("a", 1, 1.0));
    let error = waiting.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message.contains("memory"), "{error}");
    rig.registry.sub_generation_bytes(200_000);
    rig.path.write_metrics(one("a", 1, 1.0)).await.unwrap();
}

#[tokio::test]
async fn writes_wait_for_what_a_flush_takes() {
    let dir = TempDir::new().unwrap();
    let rig = try_open(dir.path(), Arc::new(LocalDisk), WriteSettings { memory_bytes: 100_000, ..settings() }).unwrap();
    let flush = FlushMemory::new(&rig.registry, Work::Flush, 200_000);
    assert!(rig.path.memory_bytes() >= 200_000);
    let error = rig.path.write_metrics(one("a", 1, 1.0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let (written, ()) = tokio::join!(rig.path.write_metrics(one("a", 1, 1.0)), async {
        tokio::time::sleep(MEMORY_WAIT_STEP).await;
        drop(flush);
    });
    written.expect("the flush has ended");
}

/// Breaks if writes are refused for as long as parts are merged, or each one that waits for that makes a part.
#[tokio::test]
async fn writes_wait_for_a_compaction_and_go_on() {
    let dir = TempDir::new().unwrap();
    let rig = try_open(dir.path(), Arc::new(LocalDisk), WriteSettings { memory_bytes: 100_000, ..settings() }).unwrap();
    let compaction = FlushMemory::new(&rig.registry, Work::Compaction, 200_000);
    assert!(rig.path.memory_bytes() >= 200_000 && rig.path.lacks_memory());
    for n in 0..2 {
        rig.path.write_metrics(one("a", n, 1.0)).await.expect("it has waited long enough");
    }
    assert_eq!(rig.path.unflushed().0, 1, "nothing was sealed");
    rig.registry.add_generation_bytes(200_000);
    let error = rig.path.write_metrics(one("a", 2, 1.0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    rig.registry.sub_generation_bytes(200_000);
    drop(compaction);
    assert!(!rig.path.lacks_memory());
}

#[tokio::test]
async fn metadata_is_logged_when_it_changes() {
    let dir = TempDir::new().unwrap();
    let rig = open(dir.path());
    let write = async |metric: &str, help: &str| {
        let metadata = MetricMetadata {
            metric: metric.to_owned(),
            metric_type: "counter".to_owned(),
            help: help.to_owned(),
            unit: String::new(),
        };
        rig.path.write_metrics(MetricsBatch { metadata: vec![metadata], ..MetricsBatch::default() }).await.unwrap();
    };
    for (metric, help) in [("a", "1"), ("a", "1"), ("a", "2"), ("b", "1"), ("a", "2")] {
        write(metric, help).await;
    }
    let again = open(dir.path());
    let rows = again.replayed[0].metadata(u64::MAX);
    let rows: Vec<_> = rows.iter().map(|(ts, m, s)| (*ts, &*m.metric, &*m.help, &**s)).collect();
    let now = 1_700_000_000_000;
    assert_eq!(rows, [(now, "a", "1", ""), (now + 1, "a", "2", ""), (now, "b", "1", "")]);
}

#[tokio::test]
async fn level_os_keeps_what_was_written() {
    let dir = TempDir::new().unwrap();
    let rig = try_open(dir.path(), Arc::new(LocalDisk), WriteSettings { level: WalLevel::Os, ..settings() }).unwrap();
    for n in 0..10 {
        rig.path.write_metrics(one("a", n, 1.0)).await.unwrap();
    }
    assert_eq!(open(dir.path()).read(&[]).len(), 10);
    rig.path.shutdown().await;
    assert_eq!(rig.path.write_metrics(one("a", 11, 1.0)).await.unwrap_err().kind(), ErrorKind::Unavailable);
    rig.path.shutdown().await;
}
