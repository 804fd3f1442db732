//! Scans within the memory of a query.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use quiver_types::scan::{ScanMemory, ScanShape, ScanTask, batch_bytes};
use quiver_types::{Error, ErrorKind, Result};

use super::model::{Model, row};
use super::*;
use crate::scan::testing::{Uncounted, Within};

/// Rows in the order of time, read within some memory; with the most that was asked for.
async fn in_order(store: &Store, most: usize) -> (Result<Vec<RecordBatch>>, usize) {
    read_within(store, LogRequest { order: LogOrder::OldestFirst, ..everything(LogFilter::All) }, most).await
}

/// Rows, read within some memory; with the most that was asked for.
async fn read_within(store: &Store, request: LogRequest, most: usize) -> (Result<Vec<RecordBatch>>, usize) {
    let stats = Arc::new(ReadStats::default());
    let snapshot = logs_source(store).snapshot();
    let table = logs_table(&*snapshot, &Access::full(), request, &stats).expect("a table");
    let scan = table.scan(&ScanShape { partitions: 1, ..ScanShape::default() }).expect("a scan");
    let memory = Arc::new(Within::new(most));
    let (of_query, shared) = (Arc::clone(&memory), Some(Arc::new(RunShared::default())));
    let task = ScanTask { memory, counters: Arc::new(Uncounted), stats, shared };
    let (mut batches, mut out) = (scan.open(0, task).expect("a partition"), Ok(Vec::new()));
    while let Ok(known) = &mut out {
        match batches.next().await {
            Ok(Some(batch)) => known.push(batch),
            Ok(None) => break,
            Err(e) => out = Err(e),
        }
    }
    (out, of_query.highest())
}

/// Breaks if the columns of a slice of time are read before there is memory for them: many readers that come at once all
/// hold theirs before the first one is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_slice_without_memory_is_read_batch_by_batch() {
    const MOST: usize = 2 << 20;
    let dir = tempfile::tempdir().expect("a folder");
    let mut model = Model::default();
    for i in 0..10_000_i64 {
        let mut r = row(T0 + i * SECOND, &[("app", "a")], "a");
        let noise = format!("{:016x}", (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        r.field(MSG, &format!("request {i} of {}", noise.repeat(80)));
        model.rows.push(r);
    }
    let store = open(settings(dir.path())).await;
    for batch in model.batches(10_000) {
        store.write_logs(batch).await.expect("written");
    }
    store.flush_all().await.expect("flushed");
    let (read, highest) = in_order(&store, usize::MAX).await;
    let expected = texts(&read.expect("there is memory"));
    assert_eq!(expected.len(), 10_000);
    assert!(highest > 2 * MOST, "the columns of a slice are held where there is memory for them, not {highest} bytes");
    let (read, _) = in_order(&store, MOST).await;
    assert!(texts(&read.expect("there is memory for batches")) == expected, "rows differ");
    store.close(Duration::from_secs(10)).await;
}

/// Memory that is refused at first, and tells what was read before somebody asked for much.
#[derive(Debug)]
struct Refusing {
    stats: Arc<ReadStats>,
    refuses: AtomicBool,
    read_before: AtomicU64,
}

impl ScanMemory for Refusing {
    fn try_grow(&self, bytes: usize) -> Result<()> {
        self.try_resize(bytes)
    }

    fn try_resize(&self, bytes: usize) -> Result<()> {
        if bytes < 1 << 20 {
            return Ok(());
        }
        self.read_before.fetch_min(self.stats.pages_read.load(Relaxed), Relaxed);
        let refused = || Error::new(ErrorKind::LimitExceeded, "it is too much");
        if self.refuses.swap(false, Relaxed) { Err(refused()) } else { Ok(()) }
    }

    fn free(&self) {}
}

/// Breaks if the columns of a block are read before there is memory for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_without_memory_is_read_window_by_window() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut model = Model::default();
    for i in 0..2_500_i64 {
        let mut r = row(T0 + i * SECOND, &[("app", "a")], "a");
        let noise = format!("{:016x}", (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        r.field(MSG, &format!("request {i} of {}", noise.repeat(80)));
        model.rows.push(r);
    }
    let store = open(settings(dir.path())).await;
    for batch in model.batches(2_500) {
        store.write_logs(batch).await.expect("written");
    }
    store.flush_all().await.expect("flushed");
    let mut counts = Vec::new();
    for refuses in [false, true] {
        let stats = Arc::new(ReadStats::default());
        let snapshot = logs_source(&store).snapshot();
        let table = logs_table(&*snapshot, &Access::full(), everything(LogFilter::All), &stats).expect("a table");
        let scan = table.scan(&ScanShape { partitions: 1, ..ScanShape::default() }).expect("a scan");
        let (refuses, read_before) = (AtomicBool::new(refuses), AtomicU64::new(u64::MAX));
        let memory = Arc::new(Refusing { stats: Arc::clone(&stats), refuses, read_before });
        let (asked, shared) = (Arc::clone(&memory), Some(Arc::new(RunShared::default())));
        let task = ScanTask { memory, counters: Arc::new(Uncounted), stats: Arc::clone(&stats), shared };
        let (mut batches, mut read) = (scan.open(0, task).expect("a partition"), Vec::new());
        while let Some(batch) = batches.next().await.expect("there is memory") {
            read.push(batch);
        }
        assert!(sorted(texts(&read)) == sorted(model.select(&Access::full(), &LogFilter::All)), "rows differ");
        let before = asked.read_before.load(Relaxed);
        // The second time, caches may have some.
        if counts.is_empty() {
            let all = stats.pages_read.load(Relaxed);
            assert!(before <= all / 2, "{before} pages of {all} were read before");
        }
        counts.push(read.len());
    }
    assert!(counts[0] < counts[1], "{counts:?} batches");
    store.close(Duration::from_secs(10)).await;
}

/// Breaks if the rows of a batch are counted by what is read of them: each names its fields again.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_many_fields_come_in_small_batches() {
    const MOST: usize = 8 << 20;
    let dir = tempfile::tempdir().expect("a folder");
    let mut model = Model::default();
    for i in 0..12_000_i64 {
        let mut r = row(T0 + i * SECOND, &[("app", "a")], "a");
        (0..40).for_each(|field| r.field(&format!("request_attribute_{field}"), ["yes", "no"][(i % 2) as usize]));
        model.rows.push(r);
    }
    let store = open(settings(dir.path())).await;
    for batch in model.batches(12_000) {
        store.write_logs(batch).await.expect("written");
    }
    store.flush_all().await.expect("flushed");
    let expected = sorted(model.select(&Access::full(), &LogFilter::All));
    for order in [LogOrder::Any, LogOrder::OldestFirst] {
        let request = LogRequest { order, ..everything(LogFilter::All) };
        let (read, highest) = read_within(&store, request, 4 * MOST).await;
        let read = read.expect("there is memory");
        let largest = read.iter().map(batch_bytes).max().unwrap_or(0);
        assert!(largest < MOST, "{order:?}: a batch of {largest} bytes");
        assert!(largest < highest, "{order:?}: {largest} bytes are not reserved");
        assert!(sorted(texts(&read)) == expected, "{order:?}: rows differ");
    }
    store.close(Duration::from_secs(10)).await;
}

/// Breaks if a compaction takes as many rows at once, and makes as large row groups, whatever they hold.
#[tokio::test(flavor = "multi_thread")]
async fn long_rows_are_merged_within_the_memory_of_a_compaction() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut model = Model::default();
    for i in 0..6_000_i64 {
        let mut r = row(T0 + i * SECOND, &[("app", ["a", "b"][(i % 2) as usize])], "a");
        let noise = format!("{:016x}", (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        r.field(MSG, &format!("request {i} of {}", noise.repeat(80)));
        model.rows.push(r);
    }
    let store = open(settings(dir.path())).await;
    for batch in model.batches(2_000) {
        store.write_logs(batch).await.expect("written");
        store.flush_all().await.expect("flushed");
    }
    assert_eq!(store.visible().table("logs").len(), 3);
    store.close(Duration::from_secs(10)).await;
    drop(store);
    let small = StoreSettings { memory_limit_bytes: 16 << 20, ..settings(dir.path()) };
    let pending = small.compaction_memory_bytes() / 8 * 3;
    let store = open(small).await;
    store.compact_all().await.expect("compacted");
    let parts = store.visible().table("logs").to_vec();
    assert_eq!(parts.len(), 1);
    let logs = parts[0].logs_uncached().await.expect("readable");
    // Each window adds at most what its input may hold.
    let most = pending + 4 * (256 << 10);
    let bytes: Vec<u64> = (0..logs.groups()).map(|group| logs.wanted_bytes(group, &|name| name == MSG)).collect();
    assert!(bytes.len() > 3 && bytes.iter().all(|&bytes| bytes < most), "{bytes:?}, {most} at most");
    let expected = sorted(model.select(&Access::full(), &LogFilter::All));
    let found = read(&store, &Access::full(), &everything(LogFilter::All)).await;
    assert!(sorted(texts(&found)) == expected, "rows differ");
    store.close(Duration::from_secs(10)).await;
}
