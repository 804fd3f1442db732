//! The store as a whole: what was written is there exactly once, through flush, compaction, retention, restart, a lost
//! catalog, and an object store that fails.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use quiver_types::metrics::{Exemplar, HistogramSample, MetricMetadata};
use quiver_types::time::DAY_MS;
use quiver_types::{Access, Clock, ErrorKind, Histogram, LabelSet, Millis, MillisRange};

use super::*;
use crate::consistency_check::check_with;
use crate::object::Storage;
use crate::object::faulty::FaultyStore;
use crate::part::Place;
use crate::rebuild::rebuild_with;
use crate::timer::Timer;

mod backup;
mod crash;
mod job_failures;
mod masters;
mod metadata;
mod outage;
mod retention;

/// Where time starts in these tests: 2 h into a day.
const START: Millis = 20_000 * DAY_MS + 2 * 3_600_000;

/// The wall clock, and what the monotonic one says beside it.
#[derive(Debug)]
struct TestClock(AtomicI64, AtomicI64);

impl Clock for TestClock {
    fn now_ms(&self) -> Millis {
        self.0.load(Relaxed)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.1.load(Relaxed) as u64)
    }
}

impl TestClock {
    /// Lets time pass.
    fn pass(&self, ms: Millis) {
        self.0.fetch_add(ms, Relaxed);
        self.1.fetch_add(ms, Relaxed);
    }
}

/// (labels, time) → bits of the value; times of histograms have bit 62 set.
type Content = BTreeMap<(String, Millis), u64>;

struct Bench {
    dir: tempfile::TempDir,
    clock: Arc<TestClock>,
    remote: Option<FaultyStore>,
    written: Content,
    next: u64,
    tune: fn(&mut StoreSettings),
    timer: Timer,
}

impl Bench {
    fn new(remote: bool) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            clock: Arc::new(TestClock(AtomicI64::new(START), AtomicI64::new(0))),
            remote: remote.then(FaultyStore::default),
            written: Content::new(),
            next: 0,
            tune: |_| {},
            timer: Timer::default(),
        }
    }

    /// A bench and its open store, with one part.
    async fn flushed(remote: bool) -> (Self, Arc<Store>) {
        let mut bench = Self::new(remote);
        let store = bench.open().await;
        bench.write(&store, &[START]).await;
        store.flush_all().await.unwrap();
        (bench, store)
    }

    /// The data directory.
    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn settings(&self) -> StoreSettings {
        let mut settings = StoreSettings {
            data_dir: self.data(),
            store_retry_budget: Duration::from_secs(1),
            retention_interval: Duration::from_hours(1),
            timer: self.timer.clone(),
            ..StoreSettings::default()
        };
        settings.compaction.enabled = false;
        (self.tune)(&mut settings);
        settings
    }

    fn storage(&self) -> Option<Storage> {
        let store = self.remote.clone()?;
        Some(Storage::remote(Arc::new(store), "prefix", "s3://bucket/prefix", &self.settings()))
    }

    async fn try_open(&self) -> Result<Arc<Store>> {
        let overrides = StoreOverrides { storage: self.storage(), wal_disk: None };
        Store::open_with(self.settings(), Arc::clone(&self.clock) as Arc<dyn Clock>, overrides).await
    }

    async fn open(&self) -> Arc<Store> {
        unlocked(|| self.try_open()).await.unwrap()
    }

    /// Writes samples of 10 series at the given times, each value once in the whole test.
    async fn write(&mut self, store: &Store, times: &[Millis]) {
        self.try_write(store, times).await.unwrap();
    }

    async fn try_write(&mut self, store: &Store, times: &[Millis]) -> Result<()> {
        let mut batch = MetricsBatch::default();
        let mut written = Content::new();
        for series in 0..10 {
            let labels = labels(series);
            let at = batch.push_series(labels.canonical());
            for &ts in times {
                self.next += 1;
                batch.push_sample(at, ts, self.next as f64, 0);
                written.insert((format!("{labels:?}"), ts), (self.next as f64).to_bits());
            }
        }
        store.write_metrics(batch).await?;
        self.written.extend(written);
        Ok(())
    }

    async fn verify(&self, store: &Store) {
        let found = content(store).await;
        assert_eq!(found.len(), self.written.len());
        assert!(found == self.written, "the store holds something else than what was written");
    }

    async fn sound(&self) {
        let report =
            check_with(self.settings(), Arc::clone(&self.clock) as Arc<dyn Clock>, self.storage()).await.unwrap();
        assert!(report.sound() && report.unknown.is_empty(), "{report:?}");
    }

    /// Makes the catalog anew from the store.
    async fn rebuild(&self) {
        rebuild_with(self.settings(), Arc::clone(&self.clock) as Arc<dyn Clock>, self.storage()).await.unwrap();
    }
}

/// Closes a store and releases the lock of its data directory.
async fn end(store: Arc<Store>) {
    store.close(CLOSE).await;
    drop(store);
}

/// Tries until the lock of the data directory is free: what a store before still does in the background must end
/// first, and a process that another test forks holds every lock until it runs its own program.
async fn unlocked<T>(mut attempt: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    for _ in 0..500 {
        match attempt().await {
            Err(e) if e.kind() == ErrorKind::Conflict => tokio::time::sleep(Duration::from_millis(20)).await,
            outcome => return outcome,
        }
    }
    attempt().await
}

fn labels(series: u64) -> LabelSet {
    let text = format!("{series:03}");
    LabelSet::from_pairs([("__name__", "requests_total"), ("instance", text.as_str()), ("job", "test")])
}

/// Reads everything that a query could see, and fails when something is there twice.
async fn content(store: &Store) -> Content {
    let mut found = Content::new();
    let visible = store.visible();
    let mut add = |labels: &LabelSet, ts: Millis, bits: u64| {
        let before = found.insert((format!("{labels:?}"), ts), bits);
        assert_eq!(before, None, "{labels:?} at {ts} is there twice");
    };
    for part in visible.parts.iter().filter(|p| p.meta.table == "metrics") {
        let mut runs = part.runs();
        while let Some(run) = runs.next().await.unwrap() {
            run.samples.ts.iter().zip(&run.samples.values).for_each(|(&ts, v)| add(&run.labels, ts, v.to_bits()));
        }
    }
    for generation in &visible.generations {
        for series in generation.matching(&[], &Access::full(), MillisRange::ALL, u64::MAX) {
            let run = generation.copy_floats(series.slot, MillisRange::ALL, u64::MAX);
            run.ts.iter().zip(&run.values).for_each(|(&ts, v)| add(&series.labels, ts, v.to_bits()));
        }
    }
    found
}

fn levels(store: &Store) -> Vec<u8> {
    let visible = store.visible();
    let mut levels: Vec<_> = visible.parts.iter().filter(|p| p.meta.table == "metrics").map(|p| p.meta.level).collect();
    levels.sort_unstable();
    levels
}

fn files_below(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => files.push(path.to_string_lossy().into_owned()),
            }
        }
    }
    files
}

const CLOSE: Duration = Duration::from_secs(20);

async fn life(remote: bool) {
    let mut bench = Bench::new(remote);
    let store = bench.open().await;
    assert!(store.ready());
    bench.write(&store, &[START, START + 1000]).await;
    bench.verify(&store).await;
    store.flush_all().await.unwrap();
    assert_eq!(levels(&store), [0]);
    bench.verify(&store).await;
    // Another window and another day, and something that stays in the WAL.
    bench.write(&store, &[START + 2000, START - 3 * 3_600_000, START + 60_000]).await;
    store.flush_all().await.unwrap();
    bench.write(&store, &[START + 3000]).await;
    bench.verify(&store).await;
    store.close(CLOSE).await;
    assert!(!store.ready());
    drop(store);
    bench.sound().await;

    let store = bench.open().await;
    bench.verify(&store).await;
    store.compact_all().await.unwrap();
    assert_eq!(levels(&store), [2, 2]);
    bench.verify(&store).await;
    assert!(store.visible().parts.iter().all(|p| p.meta.place == Place::Store));
    let data = bench.data();
    assert!(files_below(&data.join("parts")).is_empty(), "{:?}", files_below(&data.join("parts")));
    store.compact_all().await.unwrap();
    end(store).await;
    bench.sound().await;
    let store = bench.open().await;
    bench.verify(&store).await;
    store.close(CLOSE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_on_local_disk() {
    life(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_on_a_remote_store() {
    life(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_flushed_is_replayed() {
    let (mut bench, store) = Bench::flushed(false).await;
    bench.write(&store, &[START + 1]).await;
    store.close(Duration::ZERO).await;
    drop(store);
    let store = bench.open().await;
    bench.verify(&store).await;
    store.flush_all().await.unwrap();
    bench.verify(&store).await;
    end(store).await;
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn histograms_exemplars_and_metadata_survive() {
    let bench = Bench::new(false);
    let store = bench.open().await;
    let metadata = |help: &str| MetricMetadata {
        metric: "latency".into(),
        metric_type: "histogram".into(),
        help: help.into(),
        unit: "seconds".into(),
    };
    for i in 0..3i64 {
        let mut batch = MetricsBatch::default();
        let series = batch.push_series(labels(1).canonical());
        let ts = START + i * 1000;
        let histogram = Histogram { count: 3.0, sum: i as f64, ..Histogram::default() };
        batch.histograms.push(HistogramSample { series, ts, start_ts: START, histogram });
        // The float at the same time loses against the histogram.
        batch.push_sample(series, ts, 1.0, 0);
        batch.push_sample(series, ts + 500, 2.0, 0);
        let labels = LabelSet::from_pairs([("trace_id", "abc")]);
        batch.exemplars.push(Exemplar { series, ts, value: 7.0, labels: labels.canonical().to_vec() });
        batch.metadata.push(metadata(&format!("help {i}")));
        store.write_metrics(batch).await.unwrap();
        store.flush_all().await.unwrap();
        bench.clock.0.fetch_add(1000, Relaxed);
    }
    store.compact_all().await.unwrap();
    let visible = store.visible();
    let part = visible.parts.iter().find(|p| p.meta.table == "metrics").unwrap();
    let run = part.runs().next().await.unwrap().unwrap();
    assert_eq!(run.hists.hists.iter().map(|h| h.sum).collect::<Vec<_>>(), [0.0, 1.0, 2.0]);
    assert_eq!(run.hists.start_ts, [START; 3]);
    assert_eq!(run.samples.ts, [START + 500, START + 1500, START + 2500]);
    assert_eq!(run.exemplars.len(), 3);
    assert_eq!(&*run.service, "test");
    let part = visible.parts.iter().find(|p| p.meta.table == "metric_metadata").unwrap();
    assert_eq!((part.meta.level, part.meta.rows), (2, 1));
    let rows = part.rows(&quiver_types::ReadStats::default()).await.unwrap();
    let rows = crate::metric_metadata_rows::metadata_rows(&rows[0]).unwrap();
    assert_eq!(rows[0].metadata, metadata("help 2"));
    store.close(CLOSE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_keeps_the_winners_of_equal_keys() {
    let bench = Bench::new(false);
    let store = bench.open().await;
    let mut expected: BTreeMap<(u64, Millis), f64> = BTreeMap::new();
    let mut state = 12345u64;
    let mut random = move |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for round in 0..8 {
        let mut batch = MetricsBatch::default();
        for _ in 0..200 {
            let (series, ts, value) =
                (random(20), START - random(5) as i64 * 3_600_000 - random(5) as i64, random(9) as f64);
            let value = if value == 8.0 { quiver_types::stale_nan() } else { value };
            let at = batch.push_series(labels(series).canonical());
            batch.push_sample(at, ts, value, 0);
            let entry = expected.entry((series, ts)).or_insert(value);
            *entry = crate::series_run::better_float((*entry, 0), (value, 0)).0;
        }
        store.write_metrics(batch).await.unwrap();
        store.flush_all().await.unwrap();
        if round == 4 {
            store.compact_all().await.unwrap();
        }
    }
    store.compact_all().await.unwrap();
    let expected: Content =
        expected.into_iter().map(|((s, ts), v)| ((format!("{:?}", labels(s)), ts), v.to_bits())).collect();
    assert!(content(&store).await == expected);
    store.close(CLOSE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_then_days_by_themselves() {
    let mut bench = Bench::new(false);
    bench.tune = |s| s.compaction.part_bytes = 1;
    let store = bench.open().await;
    for i in 0..4 {
        bench.write(&store, &[START + i * 600_000, START + i * 600_000 + 1]).await;
        store.flush_all().await.unwrap();
        bench.clock.0.fetch_add(600_000, Relaxed);
    }
    store.compact_due().await.unwrap();
    assert_eq!(levels(&store), [0; 4], "the window is open");
    bench.clock.0.fetch_add(3 * 3_600_000, Relaxed);
    store.compact_due().await.unwrap();
    assert_eq!(levels(&store), [1]);
    assert_eq!(store.visible().parts[0].meta.window, START);
    bench.verify(&store).await;
    bench.clock.0.fetch_add(DAY_MS, Relaxed);
    store.compact_due().await.unwrap();
    let found = levels(&store);
    assert!(found.len() > 1 && found.iter().all(|&l| l == 2), "cut by series range: {found:?}");
    bench.verify(&store).await;
    // Late data is folded in, and the outputs of the earlier compaction are read as one source.
    for late in 5..9 {
        bench.write(&store, &[START + late]).await;
        store.flush_all().await.unwrap();
    }
    store.compact_due().await.unwrap();
    assert!(levels(&store).iter().all(|&l| l == 2), "{:?}", levels(&store));
    bench.verify(&store).await;
    end(store).await;
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cleaner_waits_for_snapshots() {
    let (bench, store) = Bench::flushed(false).await;
    let held = store.visible();
    let files = || files_below(&bench.data().join("store/metrics"));
    let before = files();
    store.compact_all().await.unwrap();
    assert!(before.iter().all(|f| files().contains(f)), "somebody reads them");
    assert!(held.parts[0].runs().next().await.unwrap().is_some());
    drop(held);
    store.clean().await.unwrap();
    assert!(before.iter().all(|f| !files().contains(f)), "nobody reads them");
    bench.verify(&store).await;
    store.close(CLOSE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_one_installation() {
    let mut bench = Bench::new(false);
    let store = bench.open().await;
    assert_eq!(bench.try_open().await.unwrap_err().kind(), ErrorKind::Conflict, "locked");
    bench.write(&store, &[START]).await;
    store.flush_all().await.unwrap();
    end(store).await;
    let identity = bench.data().join("store/_quiver.json");
    let own = std::fs::read(&identity).unwrap();
    std::fs::write(&identity, format!("{{\"format\":1,\"installation\":\"{}\"}}", Uuid::now_v7())).unwrap();
    let error = bench.try_open().await.unwrap_err();
    assert!(error.to_string().contains("belongs to installation"), "{error}");
    std::fs::remove_file(&identity).unwrap();
    let error = bench.try_open().await.unwrap_err();
    assert!(error.to_string().contains("holds no `_quiver.json`"), "{error}");
    std::fs::write(&identity, &own).unwrap();
    let database = bench.data().join("quiver.db");
    for ending in ["", "-wal", "-shm"] {
        let _ =
            std::fs::rename(format!("{}{ending}", database.display()), format!("{}.away{ending}", database.display()));
    }
    let error = bench.try_open().await.unwrap_err();
    assert!(error.to_string().contains("quiver catalog rebuild"), "{error}");
}

async fn lost_catalog(remote: bool) {
    let mut bench = Bench::new(remote);
    let store = bench.open().await;
    for i in 0..3 {
        bench.write(&store, &[START + i]).await;
        store.flush_all().await.unwrap();
    }
    store.compact_all().await.unwrap();
    bench.write(&store, &[START + 10]).await;
    store.flush_all().await.unwrap();
    if let Some(remote) = &bench.remote {
        // What is flushed from here on is in the spool only, and no commit object tells it.
        remote.faults.down.store(true, Relaxed);
    }
    bench.write(&store, &[START + 20]).await;
    store.flush_sealed().await.unwrap();
    bench.write(&store, &[START + 30]).await;
    let ids =
        |store: &Store| store.visible().parts.iter().map(|p| p.meta.id).collect::<std::collections::BTreeSet<_>>();
    let expected = ids(&store);
    store.close(Duration::ZERO).await;
    drop(store);
    if let Some(remote) = &bench.remote {
        remote.faults.down.store(false, Relaxed);
    }
    let database = bench.data().join("quiver.db");
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{ending}", database.display()));
    }
    let clock = Arc::clone(&bench.clock) as Arc<dyn Clock>;
    let report = rebuild_with(bench.settings(), clock, bench.storage()).await.unwrap();
    assert_eq!(report.unknown, Vec::<String>::new());
    // Closing seals what is open; its flush may come in before the end, as one more part that no commit object tells.
    let flushed_last = report.parts - expected.len();
    assert!(flushed_last <= 1, "{report:?}");
    let spooled = usize::from(remote);
    assert!((spooled..=spooled + flushed_last).contains(&report.adopted), "{report:?}");
    let store = bench.open().await;
    assert!(ids(&store).is_superset(&expected));
    bench.verify(&store).await;
    store.flush_all().await.unwrap();
    bench.verify(&store).await;
    end(store).await;
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_catalog_is_rebuilt_from_a_local_store() {
    lost_catalog(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_catalog_is_rebuilt_from_a_remote_store() {
    lost_catalog(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_down_fills_the_spool_and_drains() {
    let mut bench = Bench::new(true);
    bench.tune = |s| s.spool_limit_bytes = 60_000;
    let store = bench.open().await;
    bench.write(&store, &[START]).await;
    store.flush_all().await.unwrap();
    let faults = Arc::clone(&bench.remote.as_ref().unwrap().faults);
    faults.down.store(true, Relaxed);
    let mut at = START;
    let refused = loop {
        at += 1;
        match bench.try_write(&store, &[at]).await {
            Ok(()) => assert_eq!(store.flush_sealed().await.unwrap(), None),
            Err(e) => break e,
        }
        assert!(at < START + 1000, "the spool has a limit");
    };
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(at > START + 2, "it takes some before");
    // A restart with the store still down: what is local answers.
    end(store).await;
    let store = bench.open().await;
    assert!(store.visible().parts.iter().any(|p| p.meta.place == Place::Spool));
    faults.down.store(false, Relaxed);
    faults.fail_every.store(7, Relaxed);
    store.flush_all().await.unwrap();
    assert!(store.visible().parts.iter().all(|p| p.meta.place == Place::Store));
    bench.verify(&store).await;
    store.clean().await.unwrap();
    assert!(files_below(&bench.data().join("parts")).is_empty());
    bench.write(&store, &[START + 5000]).await;
    faults.fail_every.store(0, Relaxed);
    end(store).await;
    bench.sound().await;
}
