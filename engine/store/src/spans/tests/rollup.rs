//! Roll-ups through the store: the same counts in every state, and a hundredth of the bytes of the spans.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::catalog::TableProvider;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionContext;
use quiver_types::spans::{
    ContextFields, RollupKind, RollupRequest, RollupRow, RollupRows, SpanFields, SpanSource, SpansBuilder, Value,
};
use quiver_types::{Access, Clock, ReadStats, SpansBatch, stats};

use super::settings;
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
    Store::open(settings(dir, 2 << 30), Arc::new(Fixed)).await.unwrap()
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
                parent: match i {
                    0 => [0; 8],
                    _ => {
                        // The server span of its service; of a server the call before it.
                        let p = if i % 3 == 0 { i - 1 } else { i / 3 * 3 };
                        (mix(trace * 8 + p) & !7 | p).max(1).to_be_bytes()
                    }
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

async fn read(source: &Arc<dyn SpanSource>, request: RollupRequest) -> (Vec<RollupRow>, u64) {
    let counted = Arc::new(ReadStats::default());
    let table: Arc<dyn TableProvider> =
        rollups_table(&source.snapshot(), &Access::full(), request, Arc::clone(&counted)).unwrap();
    let plan = LogicalPlanBuilder::scan("rollups", provider_as_source(table), None).unwrap().build().unwrap();
    let session = SessionContext::new();
    let physical = session.state().create_physical_plan(&plan).await.unwrap();
    let mut rows = Vec::new();
    for batch in collect(physical, session.task_ctx()).await.unwrap() {
        let columns = RollupRows::of(&batch).unwrap();
        rows.extend((0..batch.num_rows()).filter_map(|i| columns.row(i)));
    }
    (rows, stats::get(&counted.bytes_read) + stats::get(&counted.index_bytes_read))
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
    store.compact_all(true).await.unwrap();
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
