use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use quiver_types::logs::{MSG, RecordMarks};
use quiver_types::metrics::{Exemplar, HistogramSample, MetricMetadata};
use quiver_types::spans::{ContextFields, SpanFields, SpansBuilder};
use quiver_types::tables::history::RULE_EVALUATIONS;
use quiver_types::{Histogram, LabelSet, LogsBatch, ResetHint};
use uuid::Uuid;

use super::*;
use crate::idempotency::{Answer, RequestId};
use crate::memtable::GenerationId;
use crate::registry::Registry;
use crate::wal::codec::decode;
use crate::wal::record::{LAST, OPTIONAL, SegmentEntry};

#[test]
fn the_service_is_the_first_label_that_is_there() {
    let check = |pairs: &[(&str, &str)], expected: &str| {
        let labels = LabelSet::from_pairs(pairs.iter().copied());
        let names = ["service_name", "service", "job"].map(String::from);
        assert_eq!(service(labels.canonical(), &names), expected);
    };
    check(&[("__name__", "m")], "");
    check(&[("job", "j"), ("a", "b")], "j");
    check(&[("job", "j"), ("service", "s")], "s");
    check(&[("job", "j"), ("service_name", "n"), ("service", "s")], "n");
}

#[test]
fn metadata_knows_the_services_of_its_metric() {
    let mut batch = MetricsBatch::default();
    for (name, job) in [("a_total", "x"), ("a_total", "y"), ("b", "")] {
        let labels = LabelSet::from_pairs([("__name__", name), ("job", job)]);
        batch.push_series(labels.canonical());
    }
    let services = services_by_metric(&batch, &["job".to_owned()]);
    let of = |name: &str| {
        let mut list: Vec<_> = services.get(name).into_iter().flat_map(Services::iter).collect();
        list.sort_unstable();
        list
    };
    assert_eq!(of("a"), ["x", "y"]);
    assert_eq!(of("a_total"), ["x", "y"]);
    assert_eq!(of("b"), [""]);
    assert!(of("c").is_empty());
}

/// A stager with its generation.
struct Bench {
    generation: Generation,
    stager: Stager,
    service_labels: [String; 1],
    registry_bytes_max: usize,
    new_series_per_hour: u64,
}

/// Of a record: its kind, index and flags, and the number of rows in it.
type Told = (RecordKind, u16, u16, usize);

impl Bench {
    fn new() -> Self {
        let id = GenerationId { writer: Uuid::from_u128(1), number: 1 };
        Self {
            generation: Generation::new(id, 1, Arc::new(Registry::default())),
            stager: Stager::default(),
            service_labels: ["job".to_owned()],
            registry_bytes_max: usize::MAX,
            new_series_per_hour: 0,
        }
    }

    /// Stages a batch, and reads what would be written of it.
    fn stage(&mut self, seq: u64, batch: Batch) -> (StagedRows, Vec<Told>) {
        let ctx = StageContext {
            generation: &self.generation,
            service_labels: &self.service_labels,
            registry_bytes_max: self.registry_bytes_max,
            new_series_per_hour: self.new_series_per_hour,
            metadata_bytes_max: usize::MAX,
            hint_bytes_max: usize::MAX,
            now: 7,
        };
        let (mut out, mut told, mut at) = (Vec::new(), Vec::new(), 0);
        let staged = self.stager.stage(ctx, seq, batch, &mut out);
        while at < out.len() {
            let SegmentEntry::Record(header, end) = record::read(&out, at) else { panic!("no record at {at}") };
            let kind = RecordKind::of(header.table, header.kind).unwrap();
            let body = Buffer::from_vec(out[at + record::HEADER_BYTES..end].to_vec());
            let rows = decode(kind, header.version, header.flags, &body).unwrap();
            assert_eq!((staged.seq, header.seq), (seq, seq));
            told.push((kind, header.index, header.flags, rows.num_rows()));
            at = end;
        }
        (staged, told)
    }

    fn series(&mut self, seq: u64, names: &[&str]) -> Vec<Told> {
        self.stage(seq, Batch::Metrics(metrics(names))).1
    }
}

/// A sample of each series.
fn metrics(names: &[&str]) -> MetricsBatch {
    let mut batch = MetricsBatch::default();
    for name in names {
        let labels = LabelSet::from_pairs([("__name__", *name), ("job", "j")]);
        let series = batch.push_series(labels.canonical());
        batch.push_sample(series, 5, 1.0, 0);
    }
    batch
}

/// What a large write took is no room for the next: it would be held for as long as the server runs.
#[test]
fn room_for_many_new_series_is_given_back() {
    let mut bench = Bench::new();
    bench.stager.begin_group();
    let names: Vec<String> = (0..3 * ENTRIES_KEEP).map(|n| format!("m{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let ctx = StageContext {
        generation: &bench.generation,
        service_labels: &bench.service_labels,
        registry_bytes_max: usize::MAX,
        new_series_per_hour: 0,
        metadata_bytes_max: usize::MAX,
        hint_bytes_max: usize::MAX,
        now: 7,
    };
    let mut out = Vec::new();
    bench.stager.stage(ctx, 1, Batch::Metrics(metrics(&names)), &mut out);
    let stager = &mut bench.stager;
    assert!(stager.slots.capacity() <= ENTRIES_KEEP && stager.unknown.capacity() <= ENTRIES_KEEP);
    assert_eq!(stager.unlogged.len(), names.len(), "needed until they are in the log");
    assert_eq!(size_of_val(&stager.unlogged[0]), 8, "their labels stand in the registry alone");
    stager.logged();
    assert!(stager.unlogged.capacity() <= ENTRIES_KEEP, "{}", stager.unlogged.capacity());
}

#[test]
fn series_are_defined_before_the_first_record_that_refers_to_them() {
    let mut bench = Bench::new();
    bench.stager.begin_group();
    let defined = |rows: usize| -> Told { (RecordKind::Definitions, 0, 0, rows) };
    let samples = |rows: usize| -> Told { (RecordKind::Samples, 0, LAST, rows) };
    assert_eq!(bench.series(1, &["a", "b"]), [defined(2), samples(2)]);
    assert_eq!(bench.series(2, &["b"]), [samples(1)]);
    assert_eq!(bench.series(3, &["c", "a", "c"]), [defined(1), samples(3)]);
    bench.stager.logged();
    bench.stager.begin_group();
    assert_eq!(bench.series(4, &["a", "b", "c", "d"]), [defined(1), samples(4)]);
    // What could not be logged is defined anew, whatever comes next; what is in the log is not.
    bench.stager.failed();
    bench.stager.begin_group();
    assert_eq!(bench.series(5, &["e", "a"]), [defined(2), samples(2)]);
    bench.stager.logged();
    bench.stager.begin_group();
    assert_eq!(bench.series(6, &["d", "e"]), [samples(2)]);
    // A record of samples alone: nothing else has something to define.
    let (staged, told) = bench.stage(7, Batch::Metrics(MetricsBatch::default()));
    assert!(staged.is_empty() && told.is_empty());
}

/// Breaks if definitions in the log differ from what was sent, in particular after a failed write.
#[test]
fn definitions_tell_labels_and_service_of_their_series() {
    let mut bench = Bench::new();
    let sets =
        [&[("__name__", "a"), ("i", "1"), ("job", "x")][..], &[("__name__", "b")], &[("__name__", "c"), ("job", "y")]]
            .map(|pairs| LabelSet::from_pairs(pairs.iter().copied()));
    let batch = |sets: &[LabelSet]| {
        let mut batch = MetricsBatch::default();
        for set in sets {
            let series = batch.push_series(set.canonical());
            batch.push_sample(series, 5, 1.0, 0);
        }
        Batch::Metrics(batch)
    };
    let defined = |bench: &mut Bench, seq, sets: &[LabelSet]| {
        let ctx = StageContext {
            generation: &bench.generation,
            service_labels: &bench.service_labels,
            registry_bytes_max: usize::MAX,
            new_series_per_hour: 0,
            metadata_bytes_max: usize::MAX,
            hint_bytes_max: usize::MAX,
            now: 7,
        };
        let mut out = Vec::new();
        bench.stager.stage(ctx, seq, batch(sets), &mut out);
        let SegmentEntry::Record(header, end) = record::read(&out, 0) else { panic!("no record") };
        let body = Buffer::from_vec(out[record::HEADER_BYTES..end].to_vec());
        let rows = decode(RecordKind::Definitions, header.version, header.flags, &body).unwrap();
        crate::wal::codec::read_definitions(&rows).unwrap()
    };
    let told = |slot: u32, set: &LabelSet, service: &str| Definition {
        slot,
        id: set.id(),
        labels: set.canonical().to_vec(),
        service: service.to_owned(),
    };
    bench.stager.begin_group();
    let first = [told(0, &sets[0], "x"), told(1, &sets[1], "")];
    assert_eq!(defined(&mut bench, 1, &sets[..2]), first);
    bench.stager.failed();
    bench.stager.begin_group();
    let all = first.into_iter().chain([told(2, &sets[2], "y")]).collect::<Vec<_>>();
    assert_eq!(defined(&mut bench, 2, &sets[2..]), all);
}

#[test]
fn the_last_record_of_a_write_says_so() {
    let mut batch = metrics(&["m_total"]);
    batch.push_sample(0, 6, 2.0, 3);
    let histogram = |ts, count| HistogramSample {
        series: 0,
        ts,
        start_ts: 0,
        histogram: Histogram { count, ..Histogram::default() },
    };
    batch.histograms.extend([histogram(7, 1.0), histogram(8, 2.0)]);
    batch.exemplars.push(Exemplar { series: 0, ts: 9, value: 1.0, labels: Vec::new() });
    let said = |metric: &str| MetricMetadata {
        metric: metric.to_owned(),
        metric_type: "counter".to_owned(),
        help: String::new(),
        unit: String::new(),
    };
    batch.metadata.extend([said("m"), said("other")]);
    let mut bench = Bench::new();
    let (staged, told) = bench.stage(1, Batch::Metrics(batch.clone()));
    assert_eq!(
        told,
        [
            (RecordKind::Definitions, 0, 0, 1),
            (RecordKind::Samples, 0, OPTIONAL, 2),
            (RecordKind::Histograms, 1, 0, 2),
            (RecordKind::Exemplars, 2, 0, 1),
            (RecordKind::Metadata, 3, LAST, 2)
        ]
    );
    assert_eq!(staged.times().collect::<Vec<_>>(), [5, 6, 7, 8]);
    let services: Vec<_> = staged.metadata.iter().map(|(ts, m, service)| (*ts, &*m.metric, &**service)).collect();
    assert_eq!(services, [(7, "m", "j"), (7, "other", "")], "of the family, and of no series");
    let hints: Vec<_> = staged.histograms.iter().map(|row| row.histogram.reset_hint).collect();
    assert_eq!(hints, [ResetHint::Unknown, ResetHint::NotReset]);
    // The same again: metadata is said once a day.
    let (_, told) = bench.stage(2, Batch::Metrics(batch));
    let expected =
        [(RecordKind::Samples, 0, OPTIONAL, 2), (RecordKind::Histograms, 1, 0, 2), (RecordKind::Exemplars, 2, LAST, 1)];
    assert_eq!(told, expected);
}

#[test]
fn rows_of_series_that_are_not_let_in_are_counted_and_left_out() {
    let batch = || {
        let mut batch = metrics(&["a", "b"]);
        batch.push_sample(1, 6, 2.0, 9);
        batch.histograms.push(HistogramSample { series: 1, ts: 7, start_ts: 0, histogram: Histogram::default() });
        batch.exemplars.push(Exemplar { series: 1, ts: 8, value: 1.0, labels: Vec::new() });
        Batch::Metrics(batch)
    };
    let mut bench = Bench { new_series_per_hour: 1, ..Bench::new() };
    let (staged, told) = bench.stage(1, batch());
    assert_eq!((staged.refused, staged.barred), (0, 3), "samples and histograms");
    let samples = staged.samples.as_ref().unwrap();
    assert_eq!((samples.ts.values().to_vec(), samples.start_ts.is_none()), (vec![5], true));
    assert!(staged.histograms.is_empty() && staged.exemplars.is_empty());
    assert_eq!(told, [(RecordKind::Definitions, 0, 0, 1), (RecordKind::Samples, 0, LAST, 1)]);
    let mut bench = Bench { registry_bytes_max: 0, ..Bench::new() };
    let (staged, told) = bench.stage(1, batch());
    assert_eq!((staged.refused, staged.barred, told.len()), (4, 0, 0));
    assert!(staged.is_empty());
    // What is in already stays in, however full it is.
    let mut bench = Bench::new();
    bench.series(1, &["a", "b"]);
    bench.registry_bytes_max = 0;
    let (staged, told) = bench.stage(2, batch());
    assert_eq!((staged.refused, told.len()), (0, 3));
    assert_eq!(bench.stage(3, Batch::Metrics(metrics(&["a", "c"]))).0.refused, 1);
}

fn logs(apps: &[&str]) -> PreparedLogs {
    let mut batch = LogsBatch { services: vec!["web".into()], names: vec![MSG.into()], ..LogsBatch::default() };
    for app in apps {
        let stream = batch.push_stream(LabelSet::from_pairs([("app", *app)]).canonical());
        batch.push_field(0, "text");
        batch.end_row(-1, stream, 0, RecordMarks::default());
    }
    PreparedLogs::new(batch).unwrap()
}

#[test]
fn streams_are_defined_and_rows_refer_to_them() {
    let mut bench = Bench::new();
    bench.stager.begin_group();
    let stage = |bench: &mut Bench, seq, apps: &[&str]| {
        let (staged, told) = bench.stage(seq, Batch::Logs(Box::new(logs(apps)), None));
        (staged.logs.as_ref().map(|rows| rows.slots.to_vec()), staged.log_times().collect::<Vec<_>>(), told)
    };
    let names = (RecordKind::LogNames, 0, 0, 1);
    let (slots, times, told) = stage(&mut bench, 1, &["x", "y"]);
    assert_eq!((slots, times), (Some(vec![0, 1]), vec![-1, -1]), "times before 1970 are rounded down");
    assert_eq!(told, [(RecordKind::LogStreams, 0, 0, 2), names, (RecordKind::LogRows, 1, LAST, 2)]);
    let (slots, _, told) = stage(&mut bench, 2, &["y", "z", "x"]);
    assert_eq!(slots, Some(vec![1, 2, 0]));
    assert_eq!(told, [(RecordKind::LogStreams, 0, 0, 1), names, (RecordKind::LogRows, 1, LAST, 3)]);
    bench.stager.failed();
    bench.stager.begin_group();
    let (slots, _, told) = stage(&mut bench, 3, &["y"]);
    assert_eq!((slots, told.len(), told[0]), (Some(vec![1]), 3, (RecordKind::LogStreams, 0, 0, 3)));
    bench.stager.logged();
    bench.stager.begin_group();
    assert_eq!(stage(&mut bench, 4, &["z"]).2.len(), 2, "all are in the log");
}

#[tokio::test]
async fn a_request_is_the_last_record_of_its_write() {
    let mut bench = Bench::new();
    let requests = crate::idempotency::Requests::new(1 << 20);
    for (seq, apps, expected) in [
        (
            1,
            &["x"][..],
            &[
                (RecordKind::LogStreams, 0, 0, 1),
                (RecordKind::LogNames, 0, 0, 1),
                (RecordKind::LogRows, 1, 0, 1),
                (RecordKind::LogRequest, 2, LAST, 1),
            ][..],
        ),
        (2, &[], &[(RecordKind::LogRequest, 0, LAST, 1)]),
    ] {
        let id = RequestId { caller: String::new(), path: "/p".to_owned(), key: format!("k{seq}") };
        let claimed = requests.claim(&id, 1, || 0).await.unwrap();
        let crate::idempotency::ClaimOutcome::New(claim) = claimed else { panic!("nobody has it") };
        let answer = Answer { status: 200, content_type: String::new(), body: Vec::new() };
        let request = Arc::new(AnsweredRequest { id, body_hash: 1, at: 0, answer });
        let named = Some(Box::new(KeyedRequest { request, claim }));
        let (staged, told) = bench.stage(seq, Batch::Logs(Box::new(logs(apps)), named));
        assert_eq!(told, expected);
        assert!(!staged.is_empty() && staged.request.is_some() && staged.logs.is_some() != apps.is_empty());
    }
}

#[test]
fn spans_follow_their_contexts_and_tables_their_order() {
    let mut bench = Bench::new();
    let mut builder = SpansBuilder::default();
    let context = builder.context(&ContextFields { service: "web", ..ContextFields::default() });
    for start in [-1, 1_999_999] {
        builder.span(&SpanFields { context, start, end: start, ..SpanFields::default() });
    }
    let (staged, told) = bench.stage(1, Batch::Spans(builder.finish()));
    assert_eq!(told, [(RecordKind::SpanContexts, 0, 0, 1), (RecordKind::SpanRows, 1, LAST, 2)]);
    assert_eq!(staged.span_times().collect::<Vec<_>>(), [-1, 1]);
    // Breaks where a large write is one record: whoever encodes it holds all of it twice more.
    let mut builder = SpansBuilder::default();
    for start in 0..100_000 {
        builder.span(&SpanFields { context, start, end: start, ..SpanFields::default() });
    }
    let bytes = 100_000 * 100;
    let (staged, told) = bench.stage(1, Batch::Spans(builder.finish()));
    let [(RecordKind::SpanContexts, 0, 0, _), rest @ .., (RecordKind::SpanRows, last, LAST, _)] = &told[..] else {
        panic!("{told:?}")
    };
    assert!(rest.iter().all(|(kind, _, flags, _)| (*kind, *flags) == (RecordKind::SpanRows, 0)), "{told:?}");
    assert!(usize::from(*last) >= bytes / RECORD_BYTES && usize::from(*last) == rest.len() + 1, "{told:?}");
    assert_eq!(told.iter().skip(1).map(|(.., rows)| rows).sum::<usize>(), 100_000);
    assert_eq!(staged.spans.map(|spans| spans.len()), Some(100_000));
    let rows = || TableRows { table: &RULE_EVALUATIONS, rows: RecordBatch::new_empty(RULE_EVALUATIONS.columns()) };
    let (staged, told) = bench.stage(2, Batch::Rows(vec![rows(), rows()]));
    let kind = RecordKind::Rows(RULE_EVALUATIONS.number);
    assert_eq!(told, [(kind, 0, 0, 0), (kind, 1, LAST, 0)]);
    assert!(!staged.is_empty());
    let (staged, told) = bench.stage(3, Batch::Rows(Vec::new()));
    assert!(staged.is_empty() && told.is_empty());
}
