//! Parts and generations with very many streams: conditions on streams are answered from postings with the same result as
//! the model, and the cost of a small result does not grow with the number of streams.

use std::collections::BTreeMap;

use arrow::array::UInt64Array;
use quiver_types::logs::{StreamId, StreamSelector};
use quiver_types::tables::logs::SERVICE;
use quiver_types::{LabelSet, MatchOp, read_stats};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::model::{Any, ModelRow};
use super::*;
use crate::snapshot::Visible;

/// Rows of streams that are nearly all different: of some apps, of very many pods, half of them in a zone.
fn many(rng: &mut StdRng, count: usize) -> Model {
    let mut model = Model::default();
    for i in 0..count {
        let (app, pod) = (format!("app{}", rng.random_range(0..5)), format!("pod-{}", rng.random_range(0..1500)));
        let mut labels = vec![("app", app.as_str()), ("pod", pod.as_str())];
        if rng.random_range(0..2) == 0 {
            labels.push(("zone", if rng.random_range(0..50) == 0 { "rare" } else { "common" }));
        }
        let service = if rng.random_range(0..4) == 0 { "" } else { &app };
        let mut r = row(T0 + i as i64 * SECOND / 10, &labels, service);
        r.field(MSG, &format!("request {i} done"));
        r.field("n", if i % 3 == 0 { "third" } else { "other" });
        for (name, value) in r.stream.clone() {
            // Not all senders repeat all labels in each row.
            if name != "zone" || i % 7 > 0 {
                r.field(&name, &value);
            }
        }
        model.rows.push(r);
    }
    model
}

fn stream(matchers: Vec<Matcher>) -> LogFilter {
    LogFilter::Stream(StreamSelector { groups: vec![matchers] })
}

fn matcher(name: &str, op: MatchOp, value: &str) -> Matcher {
    Matcher::new(name, op, value).expect("valid")
}

fn one_matcher(rng: &mut StdRng, some: &ModelRow) -> Matcher {
    let name = ["app", "pod", "zone", "nothing"][rng.random_range(0..4)];
    let own = some.stream.iter().find(|l| l.0 == name).map_or("", |l| &l.1);
    let (op, value) = match rng.random_range(0..9) {
        0 => (MatchOp::Equal, own.to_owned()),
        1 => (MatchOp::NotEqual, own.to_owned()),
        2 => (MatchOp::Equal, String::new()),
        3 => (MatchOp::NotEqual, String::new()),
        4 => (MatchOp::Regex, format!("{own}|pod-1..|app3")),
        5 => (MatchOp::NotRegex, format!(".*{}", own.chars().last().unwrap_or('7'))),
        6 => (MatchOp::Regex, ".*".to_owned()),
        7 => (MatchOp::NotRegex, ".+".to_owned()),
        _ => (MatchOp::Equal, "no such value".to_owned()),
    };
    matcher(name, op, &value)
}

fn condition(rng: &mut StdRng, model: &Model, depth: usize) -> LogFilter {
    let some = &model.rows[rng.random_range(0..model.rows.len())];
    let pod = some.stream.iter().find(|l| l.0 == "pod").map_or(String::new(), |l| l.1.clone());
    match rng.random_range(0..if depth == 0 { 9 } else { 13 }) {
        0..3 => {
            let groups = (0..rng.random_range(1..3))
                .map(|_| (0..rng.random_range(1..3)).map(|_| one_matcher(rng, some)).collect())
                .collect();
            LogFilter::Stream(StreamSelector { groups })
        }
        3 => LogFilter::StreamIds(vec![some.labels().id(), LabelSet::from_pairs([("no", "stream")]).id()]),
        4 => value("pod", Equals(pod)),
        5 => value(["pod", "zone", "app"][rng.random_range(0..3)], Contains(pod[pod.len() - 2..].to_owned())),
        6 => value("zone", Any),
        7 => value("zone", Equals(String::new())),
        8 => value([STREAM, STREAM_ID][rng.random_range(0..2)], Contains("1".into())),
        9 | 10 => LogFilter::And((0..2).map(|_| condition(rng, model, depth - 1)).collect()),
        11 => LogFilter::Or((0..2).map(|_| condition(rng, model, depth - 1)).collect()),
        _ => LogFilter::Not(Box::new(condition(rng, model, depth - 1))),
    }
}

/// Rows, and rows by labels, are those of the model.
async fn check(snapshot: &dyn LogSnapshot, model: &Model, filters: &[LogFilter], state: &str) {
    for (i, filter) in filters.iter().enumerate() {
        let access = if i % 3 == 0 { Access::services(["app1", "app3"]) } else { Access::full() };
        let expected = sorted(model.select(&access, filter));
        let request = everything(filter.clone());
        let seen = sorted(texts(&read_of(snapshot, &access, &request, &Arc::default()).await));
        assert_eq!(seen.len(), expected.len(), "{state}: {filter}");
        let other = seen.iter().zip(&expected).find(|(a, b)| a != b);
        assert!(other.is_none(), "{state}: {filter}: {other:?}");
        let names = [&["app"][..], &["pod", "app"], &[STREAM_ID], &[STREAM], &["zone"], &["n", "app"], &[]][i % 7];
        let stored = |n: &&str| LogColumn { name: (*n).into(), stored: i % 2 == 0 };
        let columns = names.iter().map(stored).collect();
        let request = LogRequest { columns, rest: false, form: LogForm::Counted, ..request };
        let mut seen: BTreeMap<Row, u64> = BTreeMap::new();
        for batch in read_of(snapshot, &access, &request, &Arc::default()).await {
            let counts: UInt64Array = batch.column(names.len()).as_primitive().clone();
            let keys = batch.project(&(0..names.len()).collect::<Vec<_>>()).expect("some of its columns");
            for (key, count) in texts(&[keys]).into_iter().zip(&counts) {
                *seen.entry(key).or_default() += count.unwrap_or(1);
            }
        }
        let mut counted: BTreeMap<Row, u64> = BTreeMap::new();
        for row in expected {
            *counted.entry(row.into_iter().filter(|(n, _)| names.contains(&n.as_str())).collect()).or_default() += 1;
        }
        assert_eq!(seen, counted, "{state}: {filter} by {names:?}");
    }
}

/// The streams that a snapshot names are those of the rows that may be seen.
async fn check_streams(snapshot: &dyn LogSnapshot, model: &Model, state: &str) {
    let range = (T0 + 20 * SECOND, T0 + 60 * SECOND);
    for access in [Access::full(), Access::services(["app2"])] {
        let selector = StreamSelector { groups: vec![vec![matcher("pod", MatchOp::Regex, "pod-.*7")]] };
        let seen = snapshot.streams(&access, &selector, range, &Arc::default()).await.expect("read");
        let seen: BTreeMap<StreamId, LabelSet> = seen.into_iter().map(|s| (s.id, s.labels)).collect();
        let timely = |r: &&ModelRow| range.0 <= r.time && r.time <= range.1;
        let own = |r: &&ModelRow| access.allows(&r.service) && r.labels().get("pod").ends_with('7');
        for row in model.rows.iter().filter(timely).filter(own) {
            assert_eq!(seen.get(&row.labels().id()), Some(&row.labels()), "{state}");
        }
        // Bounds are those of the stream, or of batches.
        let all: Vec<StreamId> = model.rows.iter().filter(own).map(|r| r.labels().id()).collect();
        assert!(seen.keys().all(|id| all.contains(id)), "{state}");
    }
}

/// The snapshot as a store has it whose parts were written before `.labels` was known.
fn old_parts(store: &Store) -> StoreLogSnapshot {
    let mut snapshot = store.core_snapshot();
    let parts = snapshot.visible.parts.iter().map(|part| Arc::new(part.without("labels"))).collect();
    snapshot.visible = Arc::new(Visible { parts: Arc::new(parts), ..Visible::clone(&snapshot.visible) });
    StoreLogSnapshot { snapshot, shared: store.core_shared() }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_streams_answer_as_the_model_in_every_state() {
    let seeds = if std::env::var_os("QUIVER_SOAK").is_some() { 12 } else { 2 };
    for seed in 0..seeds {
        let mut rng = StdRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().expect("a folder");
        let model = many(&mut rng, 5000);
        let filters: Vec<LogFilter> = (0..42).map(|i| condition(&mut rng, &model, i % 3)).collect();
        let store = open(settings(dir.path())).await;
        let batches = model.batches(500);
        let source = logs_source(&store);
        for batch in &batches[..6] {
            store.write_logs(batch.clone()).await.expect("written");
        }
        let first = Model { rows: model.rows[..3000].to_vec() };
        check(&*source.snapshot(), &first, &filters, "live").await;
        store.flush_all().await.expect("flushed");
        for batch in &batches[6..] {
            store.write_logs(batch.clone()).await.expect("written");
        }
        check(&*source.snapshot(), &model, &filters, "half live").await;
        check_streams(&*source.snapshot(), &model, "half live").await;
        store.flush_all().await.expect("flushed");
        let parts = store.visible().table("logs").to_vec();
        assert!(parts.iter().all(|part| part.has_labels()), "so many streams that they are read by blocks");
        check(&*source.snapshot(), &model, &filters, "flushed").await;
        check(&old_parts(&store), &model, &filters, "as it was written before").await;
        check_streams(&old_parts(&store), &model, "as it was written before").await;
        store.compact_all().await.expect("compacted");
        check(&*source.snapshot(), &model, &filters, "compacted").await;
        check_streams(&*source.snapshot(), &model, "compacted").await;
        store.close(Duration::from_secs(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_sees_streams_of_other_services() {
    let dir = tempfile::tempdir().expect("a folder");
    // The same labels in two services, and rows without one.
    let mut model = Model::default();
    for i in 0..4000i64 {
        let pod = format!("pod-{}", i / 2);
        let mut r = row(T0 + i * SECOND / 10, &[("pod", &pod)], ["a", "b", "b", ""][(i % 4) as usize]);
        r.field("pod", &pod);
        model.rows.push(r);
    }
    let store = open(settings(dir.path())).await;
    for batch in model.batches(1000) {
        store.write_logs(batch).await.expect("written");
    }
    let filters = || {
        let id = model.rows[42].labels().id();
        vec![
            LogFilter::All,
            stream(vec![Matcher::equal("pod", "pod-21")]),
            stream(vec![matcher("pod", MatchOp::NotEqual, "pod-21")]),
            LogFilter::StreamIds(vec![id]),
            value(STREAM_ID, Equals(format!("{id:?}"))),
            value("pod", Equals("pod-21".into())),
            LogFilter::Not(Box::new(stream(vec![Matcher::equal("pod", "pod-21")]))),
        ]
    };
    for flushed in [false, true] {
        if flushed {
            store.flush_all().await.expect("flushed");
        }
        for access in [Access::services(["a"]), Access::services(["b"]), Access::services(["c"]), Access::full()] {
            for filter in filters() {
                let seen = sorted(texts(&read(&store, &access, &everything(filter.clone())).await));
                assert_eq!(seen, sorted(model.select(&access, &filter)), "{access:?} {filter}");
            }
            let by_service = LogRequest {
                columns: vec![LogColumn::text(SERVICE)],
                rest: false,
                form: LogForm::Counted,
                ..everything(LogFilter::All)
            };
            let services = read(&store, &access, &by_service).await;
            let services: Vec<_> = services.iter().map(|b| b.project(&[0]).expect("a column")).collect();
            let services = texts(&services);
            let allowed = services.iter().all(|row| access.allows(row.get(SERVICE).map_or("", String::as_str)));
            assert!(allowed, "{access:?}: {services:?}");
        }
    }
    store.close(Duration::from_secs(10)).await;
}

/// Bytes that are read because they lie between pages that do not lie far apart; in small files there are none.
const BETWEEN: f64 = (160 << 10) as f64;

/// What a query reads of parts whose footers are known.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cost {
    rows: usize,
    /// Blocks of streams and pages of labels.
    blocks: u64,
    bytes: u64,
}

async fn cost(store: &Store, request: &LogRequest) -> Cost {
    let mut snapshot = store.core_snapshot();
    let parts: Vec<_> = snapshot.visible.parts.iter().map(|part| Arc::new(part.without("nothing"))).collect();
    let parts = Arc::new(parts);
    snapshot.visible = Arc::new(Visible { parts: Arc::clone(&parts), ..Visible::clone(&snapshot.visible) });
    let snapshot = StoreLogSnapshot { snapshot, shared: store.core_shared() };
    // The first time bytes are read in whole blocks, to be checked.
    read_of(&snapshot, &Access::full(), request, &Arc::default()).await;
    parts.iter().for_each(|part| part.cache().streams.clear());
    let stats = Arc::new(ReadStats::default());
    let read = read_of(&snapshot, &Access::full(), request, &stats).await;
    let rows = read.iter().map(RecordBatch::num_rows).sum();
    let bytes = read_stats::get(&stats.bytes_read) + read_stats::get(&stats.index_bytes_read);
    Cost { rows, blocks: read_stats::get(&stats.stream_blocks_read), bytes }
}

#[tokio::test(flavor = "multi_thread")]
async fn small_answers_cost_the_same_among_more_streams() {
    let sizes: &[i64] =
        if std::env::var_os("QUIVER_SOAK").is_some() { &[10_000, 100_000, 1_000_000] } else { &[10_000, 100_000] };
    let mut all: Vec<Vec<Cost>> = Vec::new();
    for &size in sizes {
        let dir = tempfile::tempdir().expect("a folder");
        let store = open(settings(dir.path())).await;
        for from in (0..size).step_by(10_000) {
            let mut model = Model::default();
            for i in from..from + 10_000 {
                let (app, pod) = (format!("app{}", i % (size / 1000)), format!("pod-{i:07}"));
                let mut r = row(T0 + i * SECOND / 1000, &[("app", &app), ("pod", &pod)], "s");
                r.field(MSG, &format!("request {i}"));
                r.field("pod", &pod);
                r.field("app", &app);
                model.rows.push(r);
            }
            store.write_logs(model.batches(10_000).remove(0)).await.expect("written");
        }
        store.flush_all().await.expect("flushed");
        store.compact_all().await.expect("compacted");
        let id = LabelSet::from_pairs([("app", "app7"), ("pod", "pod-0000007")]).id();
        let rows = |filter| LogRequest { rest: false, ..everything(filter) };
        let counted = |filter| LogRequest {
            columns: vec![LogColumn::stored("app")],
            rest: false,
            form: LogForm::Counted,
            ..everything(filter)
        };
        let mut own = Vec::new();
        for request in [
            everything(stream(vec![Matcher::equal("pod", "pod-0000777")])),
            everything(LogFilter::StreamIds(vec![id])),
            rows(value("pod", Equals("pod-0000777".into()))),
            // A thousand streams side by side.
            counted(stream(vec![Matcher::equal("app", "app7")])),
            rows(stream(vec![Matcher::equal("pod", "pod-0000777"), matcher("app", MatchOp::NotRegex, "app1.*")])),
        ] {
            own.push(cost(&store, &request).await);
        }
        all.push(own);
        store.close(Duration::from_secs(10)).await;
    }
    for pair in all.windows(2) {
        for (i, (few, many)) in pair[0].iter().zip(&pair[1]).enumerate() {
            assert_eq!(few.rows, many.rows, "query {i}: {all:?}");
            assert!(many.blocks as f64 <= few.blocks as f64 * 1.2, "query {i}: {all:?}");
            assert!(many.bytes as f64 <= few.bytes as f64 * 1.2 + BETWEEN, "query {i}: {all:?}");
        }
    }
}
