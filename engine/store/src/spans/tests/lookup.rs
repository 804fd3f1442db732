//! Trace look-ups over many parts: a part without the trace costs its filter only, a large index costs one page, and
//! repeated look-ups decode nothing again.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use datafusion::datasource::provider_as_source;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::{FutureExt as _, StreamExt as _};
use quiver_query::scan_table;
use quiver_types::spans::{
    AttributeTest, ContextFields, Span, SpanColumn, SpanFields, SpanFilter, SpanRequest, SpanSnapshot, SpanSource,
    SpansBuilder, TextTest, Value, all_columns, read_spans,
};
use quiver_types::{Access, ReadStats, RunShared, SpansBatch, read_stats};

use super::rollup::{DAY, MINUTE_NS, open};
use crate::snapshot::{SnapshotPublisher, Visible};
use crate::spans::SpanSnapshots;
use crate::{Store, spans_table};

const PARTS: u64 = 30;
const TRACES: u64 = 5_000;

fn id(trace: u64) -> [u8; 16] {
    (u128::from(trace.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(trace)).to_be_bytes()
}

/// Traces of two spans of two services.
fn batch(from: u64) -> SpansBatch {
    batch_of(from..from + TRACES)
}

fn batch_of(traces: impl Iterator<Item = u64>) -> SpansBatch {
    let mut b = SpansBuilder::default();
    for trace in traces {
        for (i, service) in ["front", "back"].into_iter().enumerate() {
            let context = b.context(&ContextFields { service, ..Default::default() });
            let start = DAY * MINUTE_NS + (trace % TRACES) as i64 * 1_000_000;
            b.attributes(&mut vec![("n", Value::Int(trace as i64))]);
            b.span(&SpanFields {
                trace_id: id(trace),
                span_id: (trace * 2 + i as u64 + 1).to_be_bytes(),
                context,
                name: "work",
                start,
                end: start + 1000,
                received: DAY * MINUTE_NS,
                ..Default::default()
            });
        }
    }
    b.finish()
}

/// The parts of a store with empty caches, as they were before some kind of file was known.
fn cold(store: &Store, without: &str) -> Arc<dyn SpanSnapshot> {
    let visible = store.visible();
    let parts = visible.parts.iter().map(|part| Arc::new(part.without(without))).collect();
    let visible = Visible { parts: Arc::new(parts), ..Visible::clone(&visible) };
    SpanSnapshots::new(Arc::new(SnapshotPublisher::new(visible, u64::MAX))).snapshot()
}

/// The spans of some traces; objects that were read, and bytes.
async fn look_up(store: &Store, without: &str, access: &Access, ids: &[u64]) -> (Vec<Span>, u64, u64) {
    let (spans, counted) = look_up_in(&cold(store, without), access, ids).await;
    let bytes = read_stats::get(&counted.bytes_read) + read_stats::get(&counted.index_bytes_read);
    (spans, read_stats::get(&counted.objects_read), bytes)
}

/// The spans of some traces in a snapshot, in order, and what was read.
async fn look_up_in(snapshot: &Arc<dyn SpanSnapshot>, access: &Access, ids: &[u64]) -> (Vec<Span>, Arc<ReadStats>) {
    let mut ids: Vec<[u8; 16]> = ids.iter().map(|&n| id(n)).collect();
    ids.sort_unstable();
    found_in(snapshot, access, SpanFilter::Traces(Arc::new(ids))).await
}

/// A plan of a request of a snapshot, and what a run needs, which counts what is read.
async fn planned(
    snapshot: &Arc<dyn SpanSnapshot>,
    access: &Access,
    request: SpanRequest,
    counted: &Arc<ReadStats>,
) -> (Arc<dyn ExecutionPlan>, Arc<TaskContext>) {
    let table = scan_table(spans_table(snapshot, access, &request, counted).unwrap());
    let plan = LogicalPlanBuilder::scan("spans", provider_as_source(table), None).unwrap().build().unwrap();
    let config = SessionConfig::new().with_extension(Arc::new(RunShared::default()));
    let session = SessionContext::new_with_config(config.with_extension(Arc::clone(counted)));
    (session.state().create_physical_plan(&plan).await.unwrap(), session.task_ctx())
}

/// The spans of a snapshot that pass a filter, in order, and what was read.
async fn found_in(
    snapshot: &Arc<dyn SpanSnapshot>,
    access: &Access,
    filter: SpanFilter,
) -> (Vec<Span>, Arc<ReadStats>) {
    let counted = Arc::new(ReadStats::default());
    let request = SpanRequest { filter, columns: all_columns() };
    let (physical, task) = planned(snapshot, access, request, &counted).await;
    let mut spans = Vec::new();
    for batch in collect(physical, task).await.unwrap() {
        read_spans(&batch, &mut spans).unwrap();
    }
    spans.sort_by_key(|s| (s.trace_id, s.span_id));
    (spans, counted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_among_thirty_parts_costs_filters_and_one_part() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    for part in 0..PARTS {
        store.write_spans(batch(part * TRACES)).await.unwrap();
        store.flush_all().await.unwrap();
    }
    let parts = store.visible().table("spans").to_vec();
    assert_eq!(parts.len() as u64, PARTS);
    let filters: u64 = parts.iter().filter_map(|p| p.meta.file("traces")).map(|f| f.bytes).sum();
    let full = Access::full();
    let (spans, objects, bytes) = look_up(&store, "nothing", &full, &[77_777]).await;
    let (as_before, objects_before, bytes_before) = look_up(&store, "traces", &full, &[77_777]).await;
    assert!(spans == as_before && spans.len() == 2, "{}", spans.len());
    // Each filter, and of the part that has the trace, or of one that only seems to, footer, index and rows.
    assert!(objects <= PARTS + 3 * 3, "{objects}, before {objects_before}");
    assert!(objects_before >= 2 * PARTS && bytes * 2 < bytes_before, "{bytes}, before {bytes_before}");
    assert!(filters > 0 && filters < PARTS * (TRACES * 2 + 4096), "{filters}");
    let (none, objects, _) = look_up(&store, "nothing", &full, &[10_000_000]).await;
    assert!(none.is_empty() && objects <= PARTS + 3, "{objects}");
    let (some, ..) = look_up(&store, "nothing", &Access::services(["back"]), &[7, 77_777, 149_999]).await;
    assert!(some.len() == 3 && some.iter().all(|s| s.context.service == "back"), "{}", some.len());

    store.compact_all().await.unwrap();
    let parts = store.visible().table("spans").to_vec();
    let index: u64 = parts.iter().filter_map(|p| p.meta.file("index")).map(|f| f.bytes).sum();
    assert!(parts.len() == 1 && index > 512 << 10, "{} parts, {index}", parts.len());
    for ids in [&[77_777][..], &[0, 149_999, 77_777, 10_000_000], &[10_000_000]] {
        let (spans, _, bytes) = look_up(&store, "nothing", &full, ids).await;
        let (as_before, _, bytes_before) = look_up(&store, "traces", &full, ids).await;
        assert!(spans == as_before, "{ids:?}");
        // Pages that lie close are read as one: of many traces that is the index, and the filter comes on top.
        let most = if ids.len() == 1 { bytes_before } else { bytes_before + (512 << 10) };
        assert!(bytes < most, "{ids:?}: {bytes}, before {bytes_before}");
    }
    store.close(Duration::from_secs(10)).await;
}

/// Look-ups stay on the thread of their caller until they give way: they must before files are read, and not before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_of_traces_is_told_without_giving_way() {
    const ABSENT: u64 = 10_000_000;
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    for part in 0..2 {
        store.write_spans(batch(part * TRACES)).await.unwrap();
        store.flush_all().await.unwrap();
    }
    let (snapshot, counted) = (store.span_source().snapshot(), Arc::new(ReadStats::default()));
    // How many spans the first batch has, if that is known at once.
    let at_once = async |trace: u64| {
        let request = SpanRequest { filter: SpanFilter::Traces(Arc::new(vec![id(trace)])), columns: all_columns() };
        let (physical, task) = planned(&snapshot, &Access::full(), request, &counted).await;
        assert_eq!(physical.output_partitioning().partition_count(), 1, "one partition for one trace");
        let mut rows = physical.execute(0, task).unwrap();
        rows.next().now_or_never().map(|batch| batch.map_or(0, |batch| batch.unwrap().num_rows()))
    };
    assert_eq!(at_once(ABSENT).await, None, "filters are read");
    assert!(look_up_in(&snapshot, &Access::full(), &[ABSENT]).await.0.is_empty());
    assert_eq!(at_once(ABSENT).await, Some(0), "they are kept");
    assert_eq!(at_once(77).await, None, "its spans are read");
    for _ in 0..3 {
        look_up_in(&snapshot, &Access::full(), &[77]).await;
    }
    assert_eq!(at_once(77).await, Some(2), "they are kept, too");
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_traces_that_are_asked_for_again_are_kept_decoded() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    store.write_spans(batch(0)).await.unwrap();
    store.flush_all().await.unwrap();
    let snapshot = store.span_source().snapshot();
    // An id of zeros is none.
    let ids: Vec<u64> = (1..TRACES).collect();
    // A trace of one page, traces of some, and so many that they lie in all of them.
    for ids in [&ids[7..8], &[3, 8, 2_000, 4_999], &ids[1_000..1_040], &ids[..]] {
        for access in [Access::full(), Access::services(["back"])] {
            let (first, _) = look_up_in(&snapshot, &access, ids).await;
            assert_eq!(first.len(), ids.len() * if access.is_full() { 2 } else { 1 });
            for _ in 0..3 {
                let (again, _) = look_up_in(&snapshot, &access, ids).await;
                assert!(again == first, "{ids:?}");
            }
        }
    }
    // Of spans without lists and maps nothing is left to be read, of other traces of the page neither.
    for trace in [7, 8] {
        let (spans, read) = look_up_in(&snapshot, &Access::full(), &[trace]).await;
        assert!(spans.len() == 2 && spans.iter().all(|s| s.trace_id == id(trace)), "{trace}");
        assert_eq!(read_stats::get(&read.pages_read), 0, "{read:?}");
    }
    store.close(Duration::from_secs(10)).await;
}

/// Breaks if a search that finds the same few rows reads and decodes their pages every time, or takes others from them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_few_rows_that_are_searched_again_are_kept_decoded() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    store.write_spans(batch_of(1..TRACES)).await.unwrap();
    store.flush_all().await.unwrap();
    let snapshot = store.span_source().snapshot();
    for trace in [2_000, 77] {
        let expected = [1, 2].map(|span| (id(trace).to_vec(), (trace * 2 + span).to_be_bytes().to_vec()));
        // All traces start within a minute, so that all rows are looked at.
        let start = DAY * MINUTE_NS + trace as i64 * 1_000_000;
        let mut pages = Vec::new();
        for _ in 0..4 {
            let columns = vec![SpanColumn::Own("trace_id"), SpanColumn::Own("span_id")];
            let request = SpanRequest { filter: SpanFilter::Starts(start, start), columns };
            let counted = Arc::new(ReadStats::default());
            let (physical, task) = planned(&snapshot, &Access::full(), request, &counted).await;
            let mut found = Vec::new();
            for batch in collect(physical, task).await.unwrap() {
                let [traces, spans] = ["trace_id", "span_id"].map(|name| batch[name].as_fixed_size_binary().clone());
                found.extend((0..batch.num_rows()).map(|i| (traces.value(i).to_vec(), spans.value(i).to_vec())));
            }
            found.sort_unstable();
            assert_eq!(found, expected);
            pages.push(read_stats::get(&counted.pages_read));
        }
        assert!(pages[0] > 0 && pages[3] == 0, "{pages:?}");
        // With all columns, a look at all rows gives way.
        for (columns, at_once) in [(vec![SpanColumn::Own("trace_id")], Some(2)), (all_columns(), None)] {
            let request = SpanRequest { filter: SpanFilter::Starts(start, start), columns };
            let (physical, task) = planned(&snapshot, &Access::full(), request, &Arc::default()).await;
            let first = physical.execute(0, task).unwrap().next().now_or_never();
            assert_eq!(first.map(|batch| batch.map_or(0, |batch| batch.unwrap().num_rows())), at_once);
        }
    }
    store.close(Duration::from_secs(10)).await;
}

/// Breaks if a look at all rows of a group, instead of a choice of them, finds those that are left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn most_rows_of_a_group_are_found_among_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    // The second part has the traces of the first again, between its own.
    for every in [7, 1] {
        store.write_spans(batch_of((1..TRACES).step_by(every))).await.unwrap();
        store.flush_all().await.unwrap();
    }
    assert_eq!(store.visible().table("spans").len(), 2);
    let snapshot = store.span_source().snapshot();
    let service = |name: &str| SpanFilter::Service(TextTest::Is(name.to_owned()));
    let tag = |value: &str| {
        let test = AttributeTest::equals(value);
        SpanFilter::Attribute { place: None, key: "service.name".to_owned(), test }
    };
    let own = |spans: &[Span]| spans.iter().all(|s| s.context.service == "back");
    for _ in 0..4 {
        for filter in [service("back"), tag("back"), SpanFilter::Kinds(vec![0])] {
            let one = !matches!(filter, SpanFilter::Kinds(_));
            let (full, _) = found_in(&snapshot, &Access::full(), filter.clone()).await;
            assert_eq!(full.len() as u64, (TRACES - 1) * if one { 1 } else { 2 }, "{filter}");
            assert!(!one || own(&full), "{filter}");
            let (some, _) = found_in(&snapshot, &Access::services(["back"]), filter.clone()).await;
            assert!(some.len() as u64 == TRACES - 1 && own(&some), "{filter}");
        }
        let (none, _) = found_in(&snapshot, &Access::full(), tag("nobody")).await;
        assert!(none.is_empty());
    }
    store.close(Duration::from_secs(10)).await;
}
