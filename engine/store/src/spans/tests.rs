//! Spans through the store: they are returned as written when live, flushed, compacted, and after a restart; filters
//! select the same rows in every state.

mod filters;
mod lookup;
mod memory;
mod merge;
mod reports;
mod rollup;
mod tags;

use std::sync::Arc;
use std::time::Duration;

use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use quiver_query::scan_table;
use quiver_types::spans::{
    AttributeTest, ContextFields, LinkRef, Place, SHARED, Span, SpanFields, SpanFilter, SpanRequest, SpanSource,
    SpansBuilder, TagRequest, TextTest, Value, all_columns, read_spans,
};
use quiver_types::{Access, Clock, MillisRange, ReadStats, RunShared, SpansBatch, read_stats};

use crate::{Store, StoreSettings, spans_table};

const DAY: i64 = 86_400_000_000_000;
const T0: i64 = 1_700_000_000_000_000_000;

#[derive(Debug)]
struct Fixed;

impl Clock for Fixed {
    fn now_ms(&self) -> i64 {
        T0 / 1_000_000
    }
}

/// Makes some spans with every kind of value, over two days and two services.
fn batch(from: u64, count: u64) -> SpansBatch {
    let mut b = SpansBuilder::default();
    for n in from..from + count {
        let service = if n % 3 == 0 { "" } else { ["a", "b"][(n % 2) as usize] };
        let mut resource = Vec::new();
        let host = format!("host-{}", n % 4);
        b.write_attributes(
            &mut vec![("host.name", Value::Text(&host)), ("r", Value::Int(n as i64 % 2))],
            &mut resource,
        );
        let context =
            b.context(&ContextFields { service, resource: &resource, scope_name: "lib", ..Default::default() });
        let text = format!("v{n}");
        let mut list = vec![
            ("text", Value::Text(&text)),
            ("number", Value::Int(n as i64)),
            ("double", Value::Double(n as f64 / 2.0)),
            ("flag", Value::Bool(n % 2 == 0)),
            ("bytes", Value::Bytes(&[1, 2, 255])),
            ("list", Value::Json(r#"{"arrayValue":{"values":[{"intValue":"1"}]}}"#)),
        ];
        // One key with two types: one of them has no column.
        list.push(("mixed", if n % 5 == 0 { Value::Text("five") } else { Value::Int(5) }));
        // Some spans have what their resource has.
        list.push(("r", Value::Int(n as i64 % 3)));
        if n == from {
            list.push(("rare", Value::Text("once")));
        }
        b.attributes(&mut list);
        b.event(T0 + n as i64, "event", 1, &mut vec![("in.event", Value::Int(n as i64))]);
        if n % 2 == 0 {
            let link = LinkRef {
                trace_id: [9; 16],
                span_id: [8; 8],
                trace_state: "s=1",
                flags: 1,
                dropped: 2,
                attributes: &[],
            };
            b.link(link, &mut vec![("in.link", Value::Text("x"))]);
        }
        let start = T0 + (n as i64 % 7) * 61_000_000_000 - if n % 11 == 0 { DAY } else { 0 };
        let parent = if n % 4 == 0 { [0; 8] } else { (n - n % 4 + 1).to_be_bytes() };
        b.span(&SpanFields {
            trace_id: u128::from(n / 4 + 1).to_be_bytes(),
            span_id: (n + 1).to_be_bytes(),
            parent,
            context,
            name: ["GET /", "POST /"][(n % 2) as usize],
            kind: (n % 6) as u8,
            start,
            end: start + n as i64 * 1000,
            status: (n % 3) as u8,
            status_message: if n % 3 == 2 { "failed" } else { "" },
            trace_state: "k=v",
            flags: 1,
            dropped: [1, 2, 3],
            received: T0,
            marks: if n % 10 == 0 { SHARED } else { 0 },
        });
    }
    b.finish()
}

async fn read(source: &Arc<dyn SpanSource>, access: &Access, filter: SpanFilter) -> Vec<Span> {
    let request = SpanRequest { filter, columns: all_columns() };
    let stats = ReadStats::default();
    let table = scan_table(spans_table(&source.snapshot(), access, &request, &stats).unwrap());
    let plan = LogicalPlanBuilder::scan("spans", provider_as_source(table), None).unwrap().build().unwrap();
    let session = SessionContext::new();
    let physical = session.state().create_physical_plan(&plan).await.unwrap();
    let mut spans = Vec::new();
    for batch in collect(physical, session.task_ctx()).await.unwrap() {
        read_spans(&batch, &mut spans).unwrap();
    }
    spans.sort_by_key(|s| (s.trace_id, s.span_id));
    spans
}

fn attribute(place: Option<Place>, key: &str, value: &str) -> SpanFilter {
    SpanFilter::Attribute { place, key: key.into(), test: AttributeTest::equals(value) }
}

/// Asks for an item of a list.
fn of_list(value: &str) -> SpanFilter {
    let test = AttributeTest::Item(Box::new(AttributeTest::equals(value)));
    SpanFilter::Attribute { place: Some(Place::Span), key: "list".into(), test }
}

/// A filter, and a direct model of it.
type Modelled = (SpanFilter, Box<dyn Fn(&Span) -> bool>);

/// Filters with a direct model of each.
fn cases() -> Vec<Modelled> {
    let is = |text: &str| TextTest::Is(text.into());
    vec![
        (SpanFilter::All, Box::new(|_| true)),
        (SpanFilter::Traces(Arc::new(vec![3u128.to_be_bytes()])), Box::new(|s| s.trace_id == 3u128.to_be_bytes())),
        (SpanFilter::Service(is("a")), Box::new(|s| s.context.service == "a")),
        (SpanFilter::Service(is("unknown_service")), Box::new(|s| s.context.service.is_empty())),
        (SpanFilter::Name(TextTest::Prefix("GET".into())), Box::new(|s| s.name.starts_with("GET"))),
        (SpanFilter::Root, Box::new(|s| s.parent.is_none())),
        (SpanFilter::Kinds(vec![2, 3]), Box::new(|s| s.kind == 2 || s.kind == 3)),
        (SpanFilter::Status(2), Box::new(|s| s.status == 2)),
        (SpanFilter::Duration(5_000, 9_000), Box::new(|s| (5_000..=9_000).contains(&s.duration()))),
        (SpanFilter::Starts(T0, T0 + 70_000_000_000), Box::new(|s| (T0..=T0 + 70_000_000_000).contains(&s.start))),
        (of_list("1"), Box::new(|s| s.attributes.get("list").is_some())),
        (of_list("2"), Box::new(|_| false)),
        (attribute(Some(Place::Span), "number", "7"), Box::new(|s| s.attributes.get("number") == Some(Value::Int(7)))),
        (attribute(None, "mixed", "five"), Box::new(|s| s.attributes.get("mixed") == Some(Value::Text("five")))),
        (attribute(None, "mixed", "5"), Box::new(|s| s.attributes.get("mixed") == Some(Value::Int(5)))),
        (attribute(None, "flag", "true"), Box::new(|s| s.attributes.get("flag") == Some(Value::Bool(true)))),
        (attribute(None, "rare", "once"), Box::new(|s| s.attributes.get("rare").is_some())),
        (
            attribute(Some(Place::Resource), "host.name", "host-2"),
            Box::new(|s| s.context.resource.get("host.name") == Some(Value::Text("host-2"))),
        ),
        (attribute(None, "in.event", "6"), Box::new(|s| s.events[0].attributes.get("in.event") == Some(Value::Int(6)))),
        (attribute(Some(Place::Link), "in.link", "x"), Box::new(|s| !s.links.is_empty())),
        (attribute(None, "service.name", "b"), Box::new(|s| s.context.service == "b")),
        (
            SpanFilter::Not(Box::new(SpanFilter::Or(vec![SpanFilter::Status(2), SpanFilter::Root]))),
            Box::new(|s| s.status != 2 && s.parent.is_some()),
        ),
        (SpanFilter::EventName(is("event")).and(SpanFilter::ScopeName(is("lib"))), Box::new(|_| true)),
        (SpanFilter::None, Box::new(|_| false)),
    ]
}

async fn check(store: &Arc<Store>, expected: &[Span], state: &str) {
    let source = store.span_source();
    for (filter, model) in cases() {
        let text = filter.to_string();
        let got = read(&source, &Access::full(), filter).await;
        let wanted: Vec<Span> = expected.iter().filter(|s| model(s)).cloned().collect();
        assert_eq!(got, wanted, "{state}: {text}");
    }
    let some = cases().into_iter().map(|(filter, _)| filter).step_by(4).collect();
    tags::check(&source, some, state).await;
    let only_b = read(&source, &Access::services(["b"]), SpanFilter::All).await;
    let wanted: Vec<Span> = expected.iter().filter(|s| s.context.service == "b").cloned().collect();
    assert_eq!(only_b, wanted, "{state}: rights");
}

fn settings(dir: &tempfile::TempDir, memory_limit_bytes: u64) -> StoreSettings {
    let data_dir = dir.path().to_owned();
    StoreSettings { data_dir, retention: None, memory_limit_bytes, ..StoreSettings::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_come_back_in_every_state() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (batch(0, 100), batch(100, 60));
    let mut expected = Vec::new();
    for b in [&first, &second] {
        read_spans(&b.flat(), &mut expected).unwrap();
    }
    expected.sort_by_key(|s| (s.trace_id, s.span_id));
    let settings = || settings(&dir, 512 << 20);
    let store = Store::open(settings(), Arc::new(Fixed)).await.unwrap();
    assert_eq!(store.write_spans(first.clone()).await.unwrap().spans, 100);
    store.write_spans(second).await.unwrap();
    check(&store, &expected, "live").await;
    drop(store);
    // As after a kill: the WAL has it all.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let store = loop {
        match Store::open(settings(), Arc::new(Fixed)).await {
            Ok(store) => break store,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    check(&store, &expected, "replayed").await;
    store.flush_all().await.unwrap();
    check(&store, &expected, "flushed").await;
    // Sent again: rows that differ in nothing go with the compaction.
    store.write_spans(first).await.unwrap();
    store.flush_all().await.unwrap();
    store.compact_all().await.unwrap();
    check(&store, &expected, "compacted").await;
    let parts = store.visible().table("spans").len();
    assert_eq!(parts, 2, "one part per day");
    store.close(Duration::from_secs(10)).await;
}

/// A plan may run more than once, and a table may be scanned more than once in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_read_as_often_as_it_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(settings(&dir, 2 << 30), Arc::new(Fixed)).await.unwrap();
    for from in [0, 100, 200, 300] {
        store.write_spans(batch(from, 100)).await.unwrap();
        if from < 200 {
            store.flush_all().await.unwrap();
        }
    }
    let source = store.span_source();
    let session = SessionContext::new();
    let request = SpanRequest { filter: SpanFilter::All, columns: all_columns() };
    let table = spans_table(&source.snapshot(), &Access::full(), &request, &ReadStats::default()).unwrap();
    let table = scan_table(table);
    let scan = || LogicalPlanBuilder::scan("spans", provider_as_source(Arc::clone(&table)), None).unwrap();
    let rows = async |plan| {
        let physical = session.state().create_physical_plan(&plan).await.unwrap();
        let (mut rows, mut parts) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (counted, shared) = (Arc::new(ReadStats::default()), Arc::new(RunShared::default()));
            let config = SessionConfig::new().with_extension(Arc::clone(&counted)).with_extension(shared);
            let task = SessionContext::new_with_config(config).task_ctx();
            let batches = collect(Arc::clone(&physical), task).await.unwrap();
            parts.push(read_stats::get(&counted.parts_total));
            rows.push(batches.iter().map(arrow::array::RecordBatch::num_rows).sum::<usize>());
        }
        assert!(parts[0] > 0 && parts[0] == parts[1], "each run counts for itself: {parts:?}");
        rows
    };
    assert_eq!(rows(scan().build().unwrap()).await, [400, 400]);
    let both = scan().union(scan().build().unwrap()).unwrap().build().unwrap();
    assert_eq!(rows(both).await, [800, 800]);
    let key = TagRequest { filter: SpanFilter::All, place: None, key: None };
    let tags = scan_table(crate::tags_table(&source.snapshot(), &Access::full(), &key).unwrap());
    let plan = LogicalPlanBuilder::scan("tags", provider_as_source(tags), None).unwrap().build().unwrap();
    let found = rows(plan).await;
    assert!(found[0] > 0 && found[0] == found[1], "{found:?}");
    store.close(Duration::from_secs(10)).await;
}

/// Spans that were sent again are read once, whatever stands between the copies; what differs in anything is no copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeats_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(settings(&dir, 2 << 30), Arc::new(Fixed)).await.unwrap();
    let source = store.span_source();
    let count = async || {
        let (full, all) = (Access::full(), SpanFilter::All);
        read(&source, &full, all).await.len()
    };
    store.write_spans(batch(0, 100)).await.unwrap();
    store.write_spans(batch(0, 100)).await.unwrap();
    assert_eq!(count().await, 100, "live");
    store.flush_all().await.unwrap();
    assert_eq!(count().await, 100, "flushed");
    // Half of it known; of the first span of each batch one attribute is its own.
    store.write_spans(batch(50, 100)).await.unwrap();
    assert_eq!(count().await, 151, "half");
    store.flush_all().await.unwrap();
    assert_eq!(count().await, 151, "two parts of each day");
    store.write_spans(batch(0, 150)).await.unwrap();
    assert_eq!(count().await, 151, "parts and live");
    store.flush_all().await.unwrap();
    assert_eq!(count().await, 151, "three parts of each day");
    store.compact_all().await.unwrap();
    assert_eq!(count().await, 151, "compacted");
    assert_eq!(store.visible().table("spans").iter().map(|p| p.meta.rows).sum::<u64>(), 151);
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_is_unchanged_until_spans_start_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(settings(&dir, 2 << 30), Arc::new(Fixed)).await.unwrap();
    let source = store.span_source();
    let first = source.snapshot();
    store.write_spans(batch(1, 10)).await.unwrap();
    let (then, since) = (source.snapshot(), source.snapshot().version().unwrap());
    let of_batch = MillisRange::new(T0 / 1_000_000, T0 / 1_000_000 + 600_000);
    let after = MillisRange::new(of_batch.max + 600_000, i64::MAX);
    assert!(!then.is_unchanged(first.version().unwrap(), of_batch), "something came");
    assert!(then.is_unchanged(first.version().unwrap(), after), "elsewhere");
    assert!(!first.is_unchanged(since, after), "an older snapshot says nothing of a younger one");
    store.flush_all().await.unwrap();
    assert!(source.snapshot().is_unchanged(since, MillisRange::ALL), "rows were moved");
    store.write_spans(batch(1, 10)).await.unwrap();
    assert!(!source.snapshot().is_unchanged(since, of_batch) && source.snapshot().is_unchanged(since, after));
    let since = source.snapshot().version().unwrap();
    store.core_shared().dropping();
    assert!(!source.snapshot().is_unchanged(since, after), "days were dropped");
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_many_spans_there_are_is_not_for_who_sees_some() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(settings(&dir, 2 << 30), Arc::new(Fixed)).await.unwrap();
    store.write_spans(batch(0, 100)).await.unwrap();
    let snapshot = store.span_source().snapshot();
    let request = SpanRequest { filter: SpanFilter::All, columns: all_columns() };
    let about = |stats: &ReadStats| spans_table(&snapshot, &Access::full(), &request, stats).unwrap().rows_about();
    let hidden = ReadStats::default();
    hidden.hide();
    assert_eq!([about(&ReadStats::default()), about(&hidden)], [Some(100), None]);
    store.close(Duration::from_secs(10)).await;
}
