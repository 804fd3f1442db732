//! Roll-ups through the store: the same counts in every state, in a hundredth of the bytes of the spans.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use quiver_query::scan_table;
use quiver_types::scan::{ScanShape, ScanTask, batch_bytes};
use quiver_types::spans::{
    ContextFields, Counts, RollupKind, RollupRequest, RollupRow, RollupRows, SpanFields, SpanSnapshot, SpanSource,
    SpansBuilder, Value,
};
use quiver_types::{Access, Clock, ErrorKind, ReadStats, Result, SpansBatch, read_stats};

use super::settings;
use crate::scan::testing::{Uncounted, Within};
use crate::{Store, rollups_table};

/// 2023-11-14 00:00 UTC, in minutes.
pub(super) const DAY: i64 = 28_331_640 - 28_331_640 % 1440;
pub(super) const MINUTE_NS: i64 = 60_000_000_000;
const SERVICES: u64 = 22;

#[derive(Debug)]
struct Fixed;

impl Clock for Fixed {
    fn now_ms(&self) -> i64 {
        DAY * 60_000
    }
}

/// Opens a store on that day.
pub(super) async fn open(dir: &tempfile::TempDir) -> Arc<Store> {
    open_within(dir, 2 << 30).await
}

/// A store with so many bytes of memory.
pub(super) async fn open_within(dir: &tempfile::TempDir, bytes: u64) -> Arc<Store> {
    Store::open(settings(dir, bytes), Arc::new(Fixed)).await.unwrap()
}

fn mix(n: u64) -> u64 {
    let z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (z >> 32)
}

/// Traces of eight spans over some minutes: each service calls the next ones of a ring, and its database.
fn traces(from: u64, count: u64, minutes: u64) -> SpansBatch {
    traces_of(from, count, (0, minutes))
}

/// The same, from some minute of the day on.
pub(super) fn traces_of(from: u64, count: u64, (first_minute, minutes): (u64, u64)) -> SpansBatch {
    let mut b = SpansBuilder::default();
    for trace in from..from + count {
        let first = mix(trace) % SERVICES;
        let start = (DAY + first_minute as i64) * MINUTE_NS + (mix(trace + 7) % (minutes * 60_000)) as i64 * 1_000_000;
        for i in 0..8u64 {
            let name = format!("service-{}", (first + i / 3) % SERVICES);
            let mut resource = Vec::new();
            let host = format!("{name}-{}", trace % 3);
            b.write_attributes(&mut vec![("host.name", Value::Text(&host))], &mut resource);
            let context = b.context(&ContextFields { service: &name, resource: &resource, ..Default::default() });
            let user = format!("user-{}", mix(trace) % 50_000);
            let url = format!("/api/v1/items/{:016x}", mix(trace * 8 + i));
            let mut tags = vec![("user.id", Value::Text(&user)), ("url.path", Value::Text(&url))];
            tags.push(("http.response.status_code", Value::Int(200)));
            // Server, database call, call of the next.
            let kind = if i % 3 == 0 { 2 } else { 3 };
            if i % 3 == 1 {
                tags.push(("db.system.name", Value::Text("postgresql")));
                tags.push(("db.namespace", Value::Text("items")));
            }
            b.attributes(&mut tags);
            let begin = start + i as i64 * 1_000_000;
            b.span(&SpanFields {
                trace_id: (u128::from(mix(trace)) << 64 | u128::from(trace + 1)).to_be_bytes(),
                span_id: (mix(trace * 8 + i) & !7 | i).max(1).to_be_bytes(),
                parent: if i == 0 {
                    [0; 8]
                } else {
                    // The server span of its service; of a server the call before it.
                    let p = if i % 3 == 0 { i - 1 } else { i / 3 * 3 };
                    (mix(trace * 8 + p) & !7 | p).max(1).to_be_bytes()
                },
                context,
                name: ["GET /items", "SELECT items", "call items"][(i % 3) as usize],
                kind,
                start: begin,
                end: begin + (mix(trace + i) % 50_000_000) as i64,
                status: if mix(trace + i).is_multiple_of(100) { 2 } else { 0 },
                received: DAY * MINUTE_NS,
                ..Default::default()
            });
        }
    }
    b.finish()
}

pub(super) async fn read(source: &Arc<dyn SpanSource>, request: RollupRequest) -> (Vec<RollupRow>, u64) {
    let counted = Arc::new(ReadStats::default());
    let table = scan_table(rollups_table(&source.snapshot(), &Access::full(), request).unwrap());
    let plan = LogicalPlanBuilder::scan("rollups", provider_as_source(table), None).unwrap().build().unwrap();
    let session = SessionContext::new_with_config(SessionConfig::new().with_extension(Arc::clone(&counted)));
    let physical = session.state().create_physical_plan(&plan).await.unwrap();
    let mut rows = Vec::new();
    for batch in collect(physical, session.task_ctx()).await.unwrap() {
        let columns = RollupRows::of(&batch).unwrap();
        rows.extend((0..batch.num_rows()).filter_map(|i| columns.row(i)));
    }
    (rows, read_stats::get(&counted.bytes_read) + read_stats::get(&counted.index_bytes_read))
}

/// Spans or calls by what they are about, service and peer.
fn sums(rows: &[RollupRow]) -> BTreeMap<(bool, String, String, u8), u64> {
    let mut all = BTreeMap::new();
    for row in rows.iter().filter(|r| r.kind != RollupKind::Open) {
        let edge = matches!(row.kind, RollupKind::EdgeHour | RollupKind::EdgeMinute);
        *all.entry((edge, row.service.clone(), row.peer.clone(), row.sort)).or_default() += row.counts.spans;
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_are_the_same_in_every_state_and_small() {
    let soak = std::env::var("QUIVER_SOAK").is_ok_and(|v| v == "1");
    // Two million spans over a day; a tenth of them over a tenth of the day as a rule.
    let (count, minutes) = if soak { (250_000, 1440) } else { (25_000, 144) };
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    for from in (0..count).step_by(5_000) {
        store.write_spans(traces(from, 5_000, minutes)).await.unwrap();
    }
    let source = store.span_source();
    let whole = RollupRequest::Graph(DAY, DAY + 1439);
    let (live, _) = read(&source, whole.clone()).await;
    let expected = sums(&live);
    assert_eq!(expected.iter().filter(|(k, _)| !k.0).map(|(_, n)| n).sum::<u64>(), count * 8);
    assert!(expected.len() > 22 * 3, "{expected:?}");
    assert!(live.iter().all(|r| r.kind != RollupKind::Open), "every parent is there");
    store.flush_all().await.unwrap();
    store.compact_all().await.unwrap();
    let bytes: u64 = store.visible().table("spans").iter().map(|p| p.meta.bytes).sum();
    let (compacted, read_bytes) = read(&source, whole).await;
    assert_eq!(sums(&compacted), expected);
    // A footer is as long for few spans as for many.
    let footer = if soak { 0 } else { 16 << 10 };
    assert!((read_bytes - footer) * 100 <= bytes, "{read_bytes} of {bytes} bytes were read");
    // Any window is the sum of its minutes.
    let (minutes_only, _) = read(&source, RollupRequest::Graph(DAY, DAY + 59)).await;
    let mut by_parts = BTreeMap::new();
    for (from, to) in [(0, 17), (18, 58), (59, 59)] {
        for (key, n) in sums(&read(&source, RollupRequest::Graph(DAY + from, DAY + to)).await.0) {
            *by_parts.entry(key).or_default() += n;
        }
    }
    assert_eq!(by_parts, sums(&minutes_only));
    let operations = read(&source, RollupRequest::Operations(DAY, DAY + 1439)).await.0;
    assert_eq!(operations.iter().map(|r| r.counts.spans).sum::<u64>(), count * 8);
    let instances = read(&source, RollupRequest::Instances(DAY, DAY + 1439)).await.0;
    assert_eq!(instances.iter().map(|r| r.counts.spans).sum::<u64>(), count * 8);
    store.close(Duration::from_secs(10)).await;
}

/// Reads a day within some memory: bytes of what came, and the most that was taken at once.
async fn read_within(snapshot: &Arc<dyn SpanSnapshot>, most: usize) -> (Result<usize>, usize) {
    let table = rollups_table(snapshot, &Access::full(), RollupRequest::Graph(DAY, DAY + 1439)).unwrap();
    let scan = table.scan(&ScanShape { partitions: 1, ..ScanShape::default() }).unwrap();
    let memory = Arc::new(Within::new(most));
    let (of_query, stats) = (Arc::clone(&memory), Arc::new(ReadStats::default()));
    let mut batches = scan.open(0, ScanTask { memory, counters: Arc::new(Uncounted), stats, shared: None }).unwrap();
    let mut bytes = Ok(0);
    loop {
        match batches.next().await {
            Ok(Some(batch)) => bytes = bytes.map(|bytes| bytes + batch_bytes(&batch)),
            Ok(None) => break,
            Err(e) => {
                bytes = Err(e);
                break;
            }
        }
    }
    assert!(bytes.is_err() || of_query.taken() == 0, "it is given back");
    (bytes, of_query.highest())
}

/// No more of roll-ups is there at once than that of one part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roll_ups_are_read_within_the_memory_of_a_query() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let source = store.span_source();
    for round in 0..8 {
        store.write_spans(traces(round * 500, 500, 60)).await.unwrap();
        store.flush_all().await.unwrap();
    }
    let snapshot = source.snapshot();
    let (bytes, highest) = read_within(&snapshot, usize::MAX).await;
    let bytes = bytes.unwrap();
    assert!(highest > 0 && highest < bytes, "{highest} of {bytes} bytes at once");
    assert_eq!(read_within(&snapshot, highest).await.0.unwrap(), bytes);
    assert_eq!(read_within(&snapshot, 1).await.0.unwrap_err().kind, ErrorKind::LimitExceeded);
    // What lies in memory is asked for, too.
    store.write_spans(traces(9_000, 500, 60)).await.unwrap();
    assert_eq!(read_within(&source.snapshot(), 1).await.0.unwrap_err().kind, ErrorKind::LimitExceeded);
    store.close(Duration::from_secs(10)).await;
}

/// Both sides of calls, of some traces; the second reports of them last longer.
fn calls(count: u64, lasts: i64) -> SpansBatch {
    calls_after(count, lasts, 0)
}

/// The same that start later.
fn calls_after(count: u64, lasts: i64, after: i64) -> SpansBatch {
    let mut b = SpansBuilder::default();
    for trace in 1..=count {
        for (id, service, kind) in [(1u64, "front", 2), (2, "front", 3), (3, "back", 2)] {
            let context = b.context(&ContextFields { service, ..Default::default() });
            let start = DAY * MINUTE_NS + after + (trace * 100 + id) as i64;
            b.span(&SpanFields {
                trace_id: u128::from(trace).to_be_bytes(),
                span_id: id.to_be_bytes(),
                parent: (id - 1).to_be_bytes(),
                context,
                name: "op",
                kind,
                start,
                end: start + lasts,
                received: DAY * MINUTE_NS + lasts,
                ..Default::default()
            });
        }
    }
    b.finish()
}

/// A span that two reports describe differently is two spans of its service and one call, wherever the reports stand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_that_differ_are_one_call() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let source = store.span_source();
    let state = async || {
        let (rows, _) = read(&source, RollupRequest::Graph(DAY, DAY + 59)).await;
        let open = rows.iter().filter(|r| r.kind == RollupKind::Open).count();
        let mut found: Vec<String> = Vec::new();
        for ((edge, service, peer, _), count) in sums(&rows) {
            found.push(if edge { format!("{service}>{peer} {count}") } else { format!("{service} {count}") });
        }
        (found, open)
    };
    let expected = (["back 20", "front 40", ">front 10", "front>back 10"].map(str::to_owned).to_vec(), 0);
    store.write_spans(calls(10, 1_000)).await.unwrap();
    store.flush_all().await.unwrap();
    store.write_spans(calls(10, 9_000_000)).await.unwrap();
    assert_eq!(state().await, expected, "a part, and live");
    store.flush_all().await.unwrap();
    assert_eq!(store.visible().table("spans").len(), 2);
    assert_eq!(state().await, expected, "two parts");
    store.write_spans(calls(10, 1_000)).await.unwrap();
    store.write_spans(calls(10, 9_000_000)).await.unwrap();
    assert_eq!(state().await, expected, "copies");
    store.flush_all().await.unwrap();
    assert_eq!(state().await, expected, "three parts");
    store.compact_all().await.unwrap();
    assert_eq!(state().await, expected, "compacted");
    store.close(Duration::from_secs(10)).await;
}

/// Reports that start at other times are one call, too, in parts of which one ends before the other begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_that_start_apart_are_one_call() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let source = store.span_source();
    let called = async || {
        let (rows, _) = read(&source, RollupRequest::Graph(DAY, DAY + 59)).await;
        let open = rows.iter().filter(|r| r.kind == RollupKind::Open).count();
        let of = |from: &str, to: &str| -> u64 {
            let sums = sums(&rows);
            sums.iter().filter(|((edge, s, p, _), _)| *edge && s == from && p == to).map(|(_, count)| *count).sum()
        };
        (of("front", "back"), of("", "front"), open)
    };
    store.write_spans(calls(10, 1_000)).await.unwrap();
    store.flush_all().await.unwrap();
    store.write_spans(calls_after(10, 1_000, 20_000_000_000)).await.unwrap();
    assert_eq!(called().await, (10, 10, 0), "a part, and live");
    store.flush_all().await.unwrap();
    assert_eq!(store.visible().table("spans").len(), 2);
    assert_eq!(called().await, (10, 10, 0), "two parts");
    store.compact_all().await.unwrap();
    assert_eq!(called().await, (10, 10, 0), "compacted");
    store.close(Duration::from_secs(10)).await;
}

/// Of reports that differ the call of the first counts, also when its copy came after the other and parts were merged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_report_counts_after_its_copy() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let source = store.span_source();
    let median = async || {
        let (rows, _) = read(&source, RollupRequest::Graph(DAY, DAY + 59)).await;
        let mut all = Counts::default();
        rows.iter().filter(|r| r.kind == RollupKind::EdgeHour && r.peer == "back").for_each(|r| all.merge(&r.counts));
        (all.spans, all.durations.quantile(0.5))
    };
    let copy = || {
        let SpansBatch { spans, contexts } = calls(10, 1_000);
        let at = spans.schema().index_of("received").unwrap();
        let received = Int64Array::from(vec![DAY * MINUTE_NS + 10_000_000; spans.num_rows()]);
        let mut columns = spans.columns().to_vec();
        columns[at] = Arc::new(received);
        SpansBatch { spans: RecordBatch::try_new(spans.schema(), columns).unwrap(), contexts }
    };
    store.write_spans(calls(10, 1_000)).await.unwrap();
    let first = median().await;
    assert!(first.0 == 10 && first.1 < 2_000, "{first:?}");
    store.write_spans(calls(10, 9_000_000)).await.unwrap();
    store.write_spans(copy()).await.unwrap();
    assert_eq!(median().await, first, "live");
    store.flush_all().await.unwrap();
    assert_eq!(median().await, first, "flushed");
    store.write_spans(calls_after(10, 1_000, 20_000_000_000)).await.unwrap();
    store.flush_all().await.unwrap();
    store.compact_all().await.unwrap();
    assert_eq!(store.visible().table("spans").len(), 1);
    assert_eq!(median().await, first, "compacted");
    // What was received between them, and starts at another time, is no first report either.
    store.write_spans(calls_after(10, 9_500_000, 1_000_000_000)).await.unwrap();
    assert_eq!(median().await, first, "a part, and live");
    store.flush_all().await.unwrap();
    assert_eq!(median().await, first, "two parts");
    store.compact_all().await.unwrap();
    assert_eq!(median().await, first, "compacted again");
    store.close(Duration::from_secs(10)).await;
}
