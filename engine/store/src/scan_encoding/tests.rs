//! Scans that were written and read give the same rows, partition by partition.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use arrow::array::RecordBatch;
use quiver_types::logs::{LogColumn, LogFilter, LogForm, LogOrder, LogRequest, MSG, RecordMarks, TIME};
use quiver_types::scan::{ScanShape, ScanSource, ScanTask, ScanText};
use quiver_types::spans::{
    AttributeKind, ContextFields, Place, RollupRequest, SpanColumn, SpanFields, SpanFilter, SpanRequest, SpansBuilder,
    TagRequest, TextTest, Value, all_columns,
};
use quiver_types::{Access, Clock, LabelSet, LogsBatch, MillisRange, ReadStats, RunShared, SampleRequest, SpansBatch};

use super::*;
use crate::scan::testing::{Uncounted, Within};
use crate::select::testing::{Item, World, labels, select};
use crate::{Store, StoreSettings, logs_source, logs_table, rollups_table, spans_table, tags_table};

/// 2023-11-14 22:00 UTC.
const T0: i64 = 1_700_000_000_000_000_000 / 3_600_000_000_000 * 3_600_000_000_000;

#[derive(Debug)]
struct Fixed;

impl Clock for Fixed {
    fn now_ms(&self) -> i64 {
        T0 / 1_000_000
    }
}

/// A scan as plans show it.
struct Shown<'a>(&'a dyn PlannedScan);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.explain(ScanText::Line, f)
    }
}

/// The rows of each partition, in the order of their texts.
async fn rows(scan: &dyn PlannedScan) -> Vec<Vec<String>> {
    let (shared, mut all) = (Arc::new(RunShared::default()), Vec::new());
    for partition in 0..scan.partitions() {
        let task = ScanTask {
            memory: Arc::new(Within::new(usize::MAX)),
            counters: Arc::new(Uncounted),
            stats: Arc::new(ReadStats::default()),
            shared: Some(Arc::clone(&shared)),
        };
        let (mut batches, mut rows) = (scan.open(partition, task).unwrap(), Vec::new());
        while let Some(batch) = batches.next().await.unwrap() {
            let row = |batch: &RecordBatch, at: usize| format!("{:?}", batch.slice(at, 1).columns());
            rows.extend((0..batch.num_rows()).map(|at| row(&batch, at)));
        }
        rows.sort();
        all.push(rows);
    }
    all
}

/// Writes and reads scans of a table, and says how they are called.
async fn check(source: &dyn ScanSource) -> &'static str {
    let forms = PlanForms::default();
    let mut name = "";
    for shape in [
        ScanShape { projection: None, limit: None, partitions: 3 },
        ScanShape { projection: Some(vec![1]), limit: Some(2), partitions: 1 },
    ] {
        let scan = source.scan(&shape).unwrap();
        name = scan.name();
        let bytes = forms.write(&*scan).unwrap().expect("it is one of ours");
        let read = PlanForms::default().read(&bytes).unwrap();
        assert_eq!((read.name(), read.schema(), read.order()), (name, scan.schema(), scan.order()));
        assert_eq!((read.partitions(), read.known()), (scan.partitions(), scan.known()), "{name}");
        assert_eq!(Shown(&*read).to_string(), Shown(&*scan).to_string());
        let expected = rows(&*scan).await;
        assert!(!expected.concat().is_empty(), "{name} has nothing to read");
        assert_eq!(rows(&*read).await, expected, "{name}");
        for end in 0..bytes.len() {
            assert!(forms.read(&bytes[..end]).is_err(), "{name}: {end} bytes");
        }
    }
    name
}

fn logs(from: i64, count: i64) -> LogsBatch {
    let mut batch = LogsBatch { services: vec!["a".into()], names: vec![MSG.into()], ..LogsBatch::default() };
    let streams = ["x", "y"].map(|app| batch.push_stream(LabelSet::from_pairs([("app", app)]).canonical()));
    for n in from..from + count {
        batch.push_field(0, &format!("row {n}"));
        batch.end_row(T0 + n, streams[n as usize % 2], 0, RecordMarks::default());
    }
    batch
}

fn spans(from: u64, count: u64) -> SpansBatch {
    let mut b = SpansBuilder::default();
    for n in from..from + count {
        let service = ["a", "b"][n as usize % 2];
        let context = b.context(&ContextFields { service, ..Default::default() });
        b.attributes(&mut vec![("n", Value::Int(n as i64))]);
        b.span(&SpanFields {
            trace_id: u128::from(n + 1).to_be_bytes(),
            span_id: (n + 1).to_be_bytes(),
            context,
            name: "work",
            start: T0 + n as i64,
            end: T0 + n as i64 + 5,
            received: T0,
            ..Default::default()
        });
    }
    b.finish()
}

/// Parts, and something live.
async fn store(dir: &tempfile::TempDir) -> Arc<Store> {
    let settings = StoreSettings { data_dir: dir.path().to_owned(), retention: None, ..StoreSettings::default() };
    let store = Store::open(settings, Arc::new(Fixed)).await.unwrap();
    for round in 0..3 {
        store.write_logs(logs(round * 100, 100)).await.unwrap();
        store.write_spans(spans(round as u64 * 100, 100)).await.unwrap();
        if round < 2 {
            store.flush_all().await.unwrap();
        }
    }
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_come_back_over_the_same_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir).await;
    let (stats, access) = (ReadStats::default(), Access::services(["a"]));
    let mut names = BTreeSet::new();
    let snapshot = logs_source(&store).snapshot();
    for order in [LogOrder::Any, LogOrder::NewestFirst] {
        let columns = vec![LogColumn::text(TIME), LogColumn::stored(MSG)];
        let request = LogRequest { filter: LogFilter::All, columns, rest: true, order, form: LogForm::Rows };
        names.insert(check(&*logs_table(&*snapshot, &access, request, &stats).unwrap()).await);
    }
    let snapshot = store.span_source().snapshot();
    let filter = SpanFilter::Name(TextTest::Prefix("wo".to_owned())).and(SpanFilter::Starts(T0, T0 + 250));
    let mut columns = all_columns();
    columns.push(SpanColumn::Attribute(Place::Span, "n".to_owned(), AttributeKind::Int));
    let request = SpanRequest { filter: filter.clone(), columns };
    // What comes later is not of the snapshot.
    store.write_spans(spans(10, 5)).await.unwrap();
    names.insert(check(&*spans_table(&snapshot, &access, &request, &stats).unwrap()).await);
    let request = TagRequest { filter, place: None, key: Some("n".to_owned()) };
    names.insert(check(&*tags_table(&snapshot, &access, &request).unwrap()).await);
    let minutes = T0 / 60_000_000_000;
    let request = RollupRequest::Graph(minutes - 60, minutes + 60);
    names.insert(check(&*rollups_table(&snapshot, &Access::full(), request).unwrap()).await);
    let mut world = World::new();
    let item = |i: i64| (labels(&[("__name__", "m"), ("i", &i.to_string())]), i * 1000, Item::Float(i as f64, 0));
    world.add_part(&(0..10).map(item).collect::<Vec<_>>());
    let generation = world.add_generation();
    world.insert(generation, &(5..15).map(item).collect::<Vec<_>>());
    let mut selected = select(&*world.snapshot(), vec![], MillisRange::ALL, &stats).await;
    selected.restrict((0..15).map(|row| row % 3 != 0).collect());
    let request = SampleRequest { read_repeatedly: true, ..SampleRequest::default() };
    names.insert(check(&*selected.samples_table(request, &stats)).await);
    let all = ["LogsExec", "SamplesExec", "SpanRollupsExec", "SpanTagsExec", "SpansExec"];
    assert_eq!(names, BTreeSet::from(all), "each scan has a form");
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn what_nobody_holds_is_not_read() {
    let mut world = World::new();
    world.add_part(&[(labels(&[("__name__", "m")]), 1000, Item::Float(1.0, 0))]);
    let stats = ReadStats::default();
    let selected = select(&*world.snapshot(), vec![], MillisRange::ALL, &stats).await;
    let table = selected.samples_table(SampleRequest::default(), &stats);
    let scan = table.scan(&ScanShape { partitions: 1, ..ScanShape::default() }).unwrap();
    let forms = PlanForms::default();
    let bytes = forms.write(&*scan).unwrap().unwrap();
    assert!(forms.read(&bytes).is_ok());
    drop((scan, table, selected));
    let error = forms.read(&bytes).unwrap_err();
    assert!(error.message.contains("not held any more"), "{error}");
}

/// Of another store.
#[derive(Debug)]
struct Other;

impl PlannedScan for Other {
    fn name(&self) -> &'static str {
        "OtherExec"
    }

    fn schema(&self) -> arrow::datatypes::SchemaRef {
        Arc::new(arrow::datatypes::Schema::empty())
    }

    fn partitions(&self) -> usize {
        1
    }

    fn explain(&self, _: ScanText, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OtherExec")
    }

    fn open(&self, _: usize, _: ScanTask) -> Result<Box<dyn quiver_types::scan::ScanBatches>> {
        Err(crate::Error::internal("it reads nothing"))
    }
}

#[test]
fn scans_of_others_are_left_to_them() {
    assert_eq!(PlanForms::default().write(&Other).unwrap(), None);
}
