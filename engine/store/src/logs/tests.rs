//! Logs from batches to query results, compared with a naive model: live, flushed, compacted, replayed.

mod live_blocks;
mod model;
mod otel_fields;
mod parts;
mod property;
mod pruning;
mod query_memory;
mod streams;
mod windows;

use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::TimestampNanosecondType;
use datafusion::prelude::{SessionConfig, SessionContext};
use quiver_query::scan_table;
use quiver_types::logs::{
    FieldPattern, LogColumn, LogFilter, LogForm, LogOrder, MSG, REST, STREAM, STREAM_ID, StoredField, StreamSelector,
    TIME, TimePredicate,
};
use quiver_types::{Clock, LogsBatch, Matcher, Millis, MillisRange, RunShared};

use super::*;
use crate::settings::{CompactionSettings, StoreSettings};
use model::{Contains, Equals, Model, Number, Row, Word, row};

/// A moment of the tests: 2025-06-01T00:00:00Z.
pub(super) const T0: i64 = 1_748_736_000_000_000_000;
pub(super) const SECOND: i64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct FixedClock(Millis);

impl Clock for FixedClock {
    fn now_ms(&self) -> Millis {
        self.0
    }
}

pub(super) fn settings(dir: &std::path::Path) -> StoreSettings {
    StoreSettings {
        data_dir: dir.to_owned(),
        retention: None,
        disk_reserve_bytes: 0,
        compaction: CompactionSettings { enabled: false, ..CompactionSettings::default() },
        ..StoreSettings::default()
    }
}

pub(super) async fn open(settings: StoreSettings) -> Arc<Store> {
    Store::open(settings, Arc::new(FixedClock(T0 / 1_000_000))).await.expect("opens")
}

/// Reads a table with two partitions at hand.
pub(super) async fn read(store: &Store, access: &Access, request: &LogRequest) -> Vec<RecordBatch> {
    read_of(&*logs_source(store).snapshot(), access, request, &Arc::default()).await
}

/// The same of a snapshot.
pub(super) async fn read_of(
    snapshot: &dyn LogSnapshot,
    access: &Access,
    request: &LogRequest,
    stats: &Arc<ReadStats>,
) -> Vec<RecordBatch> {
    let table = logs_table(snapshot, access, request.clone(), stats).expect("a table");
    // As an engine runs it: partitions meet in what comes with the run.
    let shared = Arc::new(RunShared::default());
    let config = SessionConfig::new().with_target_partitions(2).with_extension(shared);
    let config = config.with_extension(Arc::clone(stats));
    let session = SessionContext::new_with_config(config);
    session.read_table(scan_table(table)).expect("readable").collect().await.expect("read")
}

/// A session whose scans count for somebody.
pub(super) fn counting(stats: &Arc<ReadStats>) -> SessionContext {
    SessionContext::new_with_config(SessionConfig::new().with_extension(Arc::clone(stats)))
}

/// Rows as texts: columns in order, then the map of the rest.
pub(super) fn texts(batches: &[RecordBatch]) -> Vec<Row> {
    let mut out = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let mut fields = Row::new();
            for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
                let name = field.name().as_str();
                if name == TIME {
                    let mut text = String::new();
                    typed_text::write_time(
                        column.as_primitive::<TimestampNanosecondType>().value(row),
                        None,
                        &mut text,
                    );
                    fields.insert(TIME.into(), text);
                } else if name == REST {
                    let map = column.as_map().value(row);
                    let (names, values) = (map.column(0).as_string::<i32>(), map.column(1).as_string::<i32>());
                    let mut last = None;
                    for i in 0..map.len() {
                        assert!(last < Some(names.value(i)), "in name order, each once");
                        last = Some(names.value(i));
                        assert!(fields.insert(names.value(i).into(), values.value(i).into()).is_none());
                    }
                } else if let Some(stored) = StoredField::of(column) {
                    if let Some(value) = stored.text(row, &mut String::new()) {
                        fields.insert(name.into(), value.into());
                    }
                } else if let Some(view) = column.as_string_view_opt() {
                    if !view.is_null(row) {
                        assert!(!view.value(row).is_empty(), "missing is null");
                        fields.insert(name.into(), view.value(row).into());
                    }
                } else if !column.is_null(row) {
                    let numbers = column.as_primitive::<arrow::datatypes::UInt8Type>();
                    fields.insert(name.into(), numbers.value(row).to_string());
                }
            }
            out.push(fields);
        }
    }
    out
}

pub(super) fn everything(filter: LogFilter) -> LogRequest {
    let columns = vec![LogColumn::text(TIME), LogColumn::stored(STREAM), LogColumn::text(STREAM_ID)];
    LogRequest { filter, columns, rest: true, order: LogOrder::Any, form: LogForm::Rows }
}

pub(super) fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort();
    rows
}

fn value(name: &str, matcher: impl quiver_types::logs::ValueMatcher + 'static) -> LogFilter {
    LogFilter::Value { field: FieldPattern::Name(name.into()), matcher: Arc::new(matcher) }
}

fn sample() -> Model {
    let mut model = Model::default();
    let apps = ["nginx", "api", "db"];
    for i in 0..300i64 {
        let app = apps[(i % 3) as usize];
        let mut r = row(T0 + i * SECOND, &[("app", app)], if i % 3 == 2 { "" } else { app });
        r.field(MSG, &format!("request {i} took {}ms", i % 7));
        r.field("app", app);
        r.field("status", if i % 10 == 0 { "500" } else { "200" });
        if i % 5 == 0 {
            r.field("trace_id", &format!("{:032x}", i * 1_000_003));
        }
        if i == 77 {
            r.field("rare.name", "needle in hay");
        }
        r.severity = (i % 25) as u8;
        model.rows.push(r);
    }
    model
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_seen_at_once_and_after_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = sample();
    // Every second second.
    let odd = TimePredicate {
        text: "odd".into(),
        period_ns: 2 * SECOND,
        phase_ns: 0,
        zone_ns: 0,
        part_ns: (SECOND, 2 * SECOND - 1),
    };
    let check = async |store: &Store| {
        let seen = sorted(texts(&read(store, &Access::full(), &everything(LogFilter::All)).await));
        assert_eq!(seen, sorted(model.select(&Access::full(), &LogFilter::All)));
        for (filter, rows) in [
            (value("status", Equals("500".into())), 30),
            (value(MSG, Word("77".into())), 1),
            (value("rare.name", Word("needle".into())), 1),
            (value("rare.name", Equals(String::new())), 299),
            (value("status", Number(300.0, 599.0)), 30),
            (
                LogFilter::Value {
                    field: FieldPattern::Prefix("ra".into()),
                    matcher: Arc::new(Contains("hay".into())),
                },
                1,
            ),
            (LogFilter::Stream(StreamSelector { groups: vec![vec![Matcher::equal("app", "db")]] }), 100),
            (LogFilter::Time(vec![(T0, T0 + 9 * SECOND), (T0 + 20 * SECOND, T0 + 20 * SECOND)]), 11),
            (LogFilter::TimeOf(odd.clone()), 150),
            (LogFilter::Not(Box::new(value("status", Equals("200".into())))), 30),
            (value(TIME, Equals("2025-06-01T00:00:07Z".into())), 1),
            (value(STREAM, Contains("nginx".into())), 100),
        ] {
            for access in [Access::full(), Access::services(["api", "db"])] {
                let seen = sorted(texts(&read(store, &access, &everything(filter.clone())).await));
                assert_eq!(seen, sorted(model.select(&access, &filter)), "{filter}");
                assert!(!access.is_full() || seen.len() == rows, "{filter}: {}", seen.len());
            }
        }
        let coded = vec![LogColumn::stored("status"), LogColumn::stored(MSG), LogColumn::text(SEVERITY)];
        let request = LogRequest { columns: coded, rest: false, ..everything(LogFilter::All) };
        let seen = texts(&read(store, &Access::full(), &request).await);
        assert_eq!(seen.iter().filter(|r| r.get("status").is_some_and(|s| s == "500")).count(), 30);
        assert_eq!(seen.iter().filter(|r| r.contains_key(SEVERITY)).count(), 288);
        let none = LogRequest { columns: Vec::new(), rest: false, ..everything(value("status", Equals("500".into()))) };
        let batches = read(store, &Access::full(), &none).await;
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 30);
    };
    let store = open(settings(dir.path())).await;
    for batch in model.batches(17) {
        let outcome = store.write_logs(batch).await.expect("written");
        assert!(outcome.rows > 0 && outcome.refused.is_empty());
    }
    check(&store).await;
    drop(store);
    // As after a kill: the rows come out of the WAL.
    let store = loop {
        let again = Store::open(settings(dir.path()), Arc::new(FixedClock(T0 / 1_000_000))).await;
        match again {
            Ok(store) => break store,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    check(&store).await;
    store.close(Duration::from_secs(10)).await;
}

const SEVERITY: &str = quiver_types::logs::SEVERITY_NUMBER;

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_in_the_order_of_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = sample();
    let store = open(settings(dir.path())).await;
    for batch in model.batches(50) {
        store.write_logs(batch).await.expect("written");
    }
    for order in [LogOrder::NewestFirst, LogOrder::OldestFirst] {
        for filter in [LogFilter::All, value("status", Equals("500".into()))] {
            let request = LogRequest { order, ..everything(filter.clone()) };
            let seen = texts(&read(&store, &Access::full(), &request).await);
            let mut expected = model.select(&Access::full(), &filter);
            expected.sort_by(|a, b| a[TIME].len().cmp(&b[TIME].len()).then(a[TIME].cmp(&b[TIME])));
            if order == LogOrder::NewestFirst {
                expected.reverse();
            }
            assert_eq!(seen, expected, "{order:?} {filter}");
        }
    }
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn absurd_times_are_dropped_and_counted() {
    let dir = tempfile::tempdir().expect("a folder");
    let day = Duration::from_hours(24);
    let store = open(StoreSettings { retention: Some(7 * day), ..settings(dir.path()) }).await;
    let mut model = Model::default();
    for days in [-8, -6, 0, 1, 3] {
        model.rows.push(row(T0 + days * 86_400 * SECOND + days, &[], ""));
    }
    let outcome = store.write_logs(model.batches(10).remove(0)).await.expect("written");
    assert_eq!(outcome.rows, 3);
    let refused = [(crate::Refusal::TooOld, 1), (crate::Refusal::TooFarInFuture, 1)];
    assert_eq!(outcome.refused, refused);
    let empty = store.write_logs(LogsBatch::default()).await.expect("nothing to do");
    assert_eq!(empty.rows, 0);
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_is_unchanged_until_logs_come_to_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(settings(dir.path())).await;
    let source = store.logs();
    let (here, there) = (MillisRange::new(T0 / 1_000_000, T0 / 1_000_000 + 9_000), MillisRange::new(i64::MIN, 0));
    let since = source.snapshot().version().expect("a moment");
    store.write_logs(sample().batches(300).remove(0)).await.expect("written");
    let now = source.snapshot();
    assert!(!now.is_unchanged(since, here) && now.is_unchanged(since, there));
    let since = now.version().expect("a moment");
    store.flush_all().await.expect("flushed");
    assert!(source.snapshot().is_unchanged(since, MillisRange::ALL), "rows were moved");
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_do_not_tell_how_many_rows_are_hidden() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(settings(dir.path())).await;
    store.write_logs(sample().batches(300).remove(0)).await.expect("written");
    for state in ["live", "flushed"] {
        if state == "flushed" {
            store.flush_all().await.expect("flushed");
        }
        let partitions = |access: &Access, stats: &ReadStats| {
            let snapshot = logs_source(&store).snapshot();
            let table = logs_table(&*snapshot, access, everything(LogFilter::All), stats).expect("a table");
            table.scan(&ScanShape { partitions: 8, ..ScanShape::default() }).expect("a scan").partitions()
        };
        assert_eq!(partitions(&Access::full(), &ReadStats::default()), 1, "{state}: few rows");
        let hidden = ReadStats::default();
        hidden.hide();
        assert_eq!(partitions(&Access::services(["api"]), &hidden), 8, "{state}");
    }
    store.close(Duration::from_secs(10)).await;
}
