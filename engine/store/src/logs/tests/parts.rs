//! Parts of logs: differences of columns between files, limits on field names, damage, pruning.

use std::sync::Arc;
use std::time::Duration;

use quiver_query::scan_table;
use quiver_types::logs::{
    FieldPattern, LogColumn, LogFilter, LogForm, LogRequest, MSG, ValueCounts, ValueLimits, ValueMatcher,
};
use quiver_types::scan::ScanShape;
use quiver_types::{Access, LogsBatch, ReadStats};

use super::model::{Contains, Equals, Model, Number, Word, row};
use super::{SECOND, T0, counting, everything, open, read, settings, sorted, texts};
use crate::logs::{logs_source, logs_table};
use crate::part::logs::ColumnKind;
use crate::store::Store;

fn value(name: &str, matcher: impl ValueMatcher + 'static) -> LogFilter {
    LogFilter::Value { field: FieldPattern::Name(name.into()), matcher: Arc::new(matcher) }
}

/// The kind of a column in each part that has it.
async fn kinds(store: &Store, name: &str) -> Vec<ColumnKind> {
    let mut out = Vec::new();
    for part in store.visible().table("logs") {
        let logs = part.logs(&ReadStats::default()).await.expect("readable");
        out.extend(logs.columns.find(name).map(|at| logs.columns.columns[at].kind));
    }
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_is_filtered_alike_wherever_it_stands() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(settings(dir.path())).await;
    let mut model = Model::default();
    // In turn: integers, a constant, text, in the overflow map, nowhere, times, and live.
    for part in 0..7i64 {
        let mut here = Model::default();
        for i in 0..2000i64 {
            let mut r = row(T0 + (part * 2000 + i) * SECOND / 100, &[("app", "a")], "s");
            r.field(MSG, &format!("row {i}"));
            let code = if i % 3 == 0 { "500" } else { "200" };
            match part {
                0 => r.field("code", code),
                1 => r.field("code", "500"),
                2 => r.field("code", if i == 7 { "none" } else { code }),
                3 if i % 1000 == 3 => r.field("code", "500"),
                5 => r.field("code", &format!("2025-06-01T00:00:{:02}.000Z", i % 60)),
                6 => r.field("code", if i % 2 == 0 { "500" } else { "501" }),
                _ => {}
            }
            here.rows.push(r);
        }
        for batch in here.batches(500) {
            store.write_logs(batch).await.expect("written");
        }
        if part < 6 {
            store.flush_all().await.expect("flushed");
        }
        model.rows.extend(here.rows);
    }
    assert_eq!(kinds(&store, "code").await, [ColumnKind::Int, ColumnKind::Coded, ColumnKind::Time(3)]);
    let filters = [
        value("code", Equals("500".into())),
        value("code", Word("500".into())),
        value("code", Contains("50".into())),
        value("code", Number(300.0, 600.0)),
        value("code", Equals(String::new())),
        LogFilter::Not(Box::new(value("code", Equals("500".into())))),
        LogFilter::Value { field: FieldPattern::Prefix("co".into()), matcher: Arc::new(Word("500".into())) },
        LogFilter::And(vec![value("code", Equals("500".into())), value(MSG, Word("3".into()))]),
        LogFilter::Or(vec![value("code", Equals("501".into())), value(MSG, Word("7".into()))]),
    ];
    let check = async |state: &str| {
        for filter in &filters {
            for more in [LogColumn::text("code"), LogColumn::stored("code")] {
                let mut request = everything(filter.clone());
                request.columns.push(more);
                let seen = sorted(texts(&read(&store, &Access::full(), &request).await));
                let expected = sorted(model.select(&Access::full(), filter));
                assert!(seen == expected, "{state} {filter}: {} rows, expected {}", seen.len(), expected.len());
            }
        }
    };
    check("flushed").await;
    store.compact_all().await.expect("compacted");
    assert_eq!(kinds(&store, "code").await, [ColumnKind::Text]);
    check("compacted").await;
    store.close(Duration::from_secs(10)).await;
}

/// Set for a test that has a process of its own.
const ALONE: &str = "QUIVER_TEST_ALONE";

fn rss_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("linux");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

/// Rows of which each has two names that no other has.
fn many_names(from: usize, rows: usize) -> LogsBatch {
    let mut batch = LogsBatch { services: vec!["s".into()], names: vec![MSG.into()], ..LogsBatch::default() };
    let stream = batch.push_stream(&[]);
    for i in from..from + rows {
        batch.push_field(0, "a row");
        for part in ["left", "right"] {
            batch.names.push(format!("{part}.{i}").into());
            batch.push_field(batch.names.len() as u32 - 1, "1");
        }
        batch.end_row(T0 + i as i64, stream, 0, quiver_types::logs::RecordMarks::default());
    }
    batch
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn millions_of_names_cost_neither_memory_nor_planning() {
    // Memory of the process: so it has one of its own, without the tests that run beside this one.
    if std::env::var_os(ALONE).is_none() {
        let test = "logs::tests::parts::millions_of_names_cost_neither_memory_nor_planning";
        let mut alone = std::process::Command::new(std::env::current_exe().expect("a test has a path"));
        let alone = alone.args([test, "--exact", "--nocapture"]).env(ALONE, "1").output().expect("it runs");
        let text = String::from_utf8_lossy(&alone.stdout);
        assert!(
            alone.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&alone.stderr)
        );
        return;
    }
    let rows = if std::env::var_os("QUIVER_SOAK").is_some() { 1_000_000 } else { 100_000 };
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(settings(dir.path())).await;
    let before = rss_bytes();
    let mut highest = 0;
    for from in (0..rows).step_by(5000) {
        store.write_logs(many_names(from, 5000)).await.expect("written");
        highest = highest.max(rss_bytes());
    }
    store.flush_all().await.expect("flushed");
    let grown = highest.max(rss_bytes()).saturating_sub(before);
    assert!(grown <= 200 << 20, "{} MiB", grown >> 20);
    let visible = store.visible();
    for part in visible.table("logs") {
        let tail = part.meta.file("rows").expect("there").tail_len;
        assert!(tail <= 1 << 20, "{tail}");
    }
    let name = format!("left.{}", rows / 2);
    let request =
        LogRequest { rest: false, columns: vec![LogColumn::text(MSG)], ..everything(value(&name, Equals("1".into()))) };
    let snapshot = logs_source(&store).snapshot();
    let session = datafusion::prelude::SessionContext::new();
    // The least of several: the machine may be busy with something else.
    let mut planning = Duration::MAX;
    for _ in 0..10 {
        let began = std::time::Instant::now();
        let table = logs_table(&*snapshot, &Access::full(), request.clone(), &ReadStats::default()).expect("a table");
        let plan =
            session.read_table(scan_table(table)).expect("readable").create_physical_plan().await.expect("planned");
        planning = planning.min(began.elapsed());
        assert_eq!(plan.schema().fields().len(), 1);
    }
    assert!(planning <= Duration::from_millis(20), "{planning:?}");
    println!("{rows} rows: {} MiB more, planned in {planning:?}", grown >> 20);
    assert_eq!(texts(&read(&store, &Access::full(), &request).await).len(), 1);
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn words_and_names_and_bounds_prune() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(settings(dir.path())).await;
    let mut model = Model::default();
    for i in 0..40_000i64 {
        let mut r = row(T0 + i * SECOND / 10, &[("app", if i % 2 == 0 { "a" } else { "b" })], "s");
        r.field(MSG, &format!("request {i} of user{}", i % 100));
        r.field("size", &(i * 7).to_string());
        r.field("trace_id", &format!("{:032x}", 1_000_003_u128 * i as u128));
        model.rows.push(r);
    }
    for batch in model.batches(10_000) {
        store.write_logs(batch).await.expect("written");
    }
    store.flush_all().await.expect("flushed");
    let check = async |filter: LogFilter, rows: usize, most: u64| {
        let stats = Arc::new(ReadStats::default());
        let snapshot = logs_source(&store).snapshot();
        let request = LogRequest { columns: vec![LogColumn::text(MSG)], rest: false, ..everything(filter.clone()) };
        let table = logs_table(&*snapshot, &Access::full(), request, &stats).expect("a table");
        let session = counting(&stats);
        let batches = session.read_table(scan_table(table)).expect("readable").collect().await.expect("read");
        assert_eq!(batches.iter().map(arrow::array::RecordBatch::num_rows).sum::<usize>(), rows, "{filter}");
        let pages = quiver_types::read_stats::get(&stats.pages_read);
        assert!(pages <= most, "{filter}: {pages} pages of {}", quiver_types::read_stats::get(&stats.pages_total));
    };
    check(value(MSG, Word("31234".into())), 1, 6).await;
    check(value("trace_id", Equals(format!("{:032x}", 1_000_003_u128 * 777))), 1, 4).await;
    check(value("size", Number(70_000.0, 70_010.0)), 2, 8).await;
    check(value("nowhere", Equals("x".into())), 0, 0).await;
    check(LogFilter::Time(vec![(T0, T0 + SECOND)]), 11, 8).await;
    check(value(MSG, Word("absent".into())), 0, 0).await;
    store.close(Duration::from_secs(10)).await;
}

/// Rows that differ by their times.
fn plain_rows(from: usize, rows: usize) -> LogsBatch {
    let mut batch = LogsBatch { services: vec!["s".into()], names: vec![MSG.into()], ..LogsBatch::default() };
    let streams =
        ["a", "b", "c"].map(|app| batch.push_stream(quiver_types::LabelSet::from_pairs([("app", app)]).canonical()));
    for i in from..from + rows {
        batch.push_field(0, if i % 1000 == 0 { "a rare row" } else { "a row" });
        batch.end_row(T0 + i as i64, streams[i % 3], 0, quiver_types::logs::RecordMarks::default());
    }
    batch
}

#[tokio::test(flavor = "multi_thread")]
async fn large_parts_are_packed_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(settings(dir.path())).await;
    let rare = async || {
        let filter = value(MSG, Contains("rare".into()));
        let request = LogRequest { rest: false, columns: vec![LogColumn::text(MSG)], ..everything(filter) };
        texts(&read(&store, &Access::full(), &request).await).len()
    };
    let levels = || {
        let mut levels: Vec<(u8, u64)> =
            store.visible().table("logs").iter().map(|p| (p.meta.level, p.meta.rows)).collect();
        levels.sort_unstable();
        levels
    };
    for from in (0..270_000).step_by(30_000) {
        store.write_logs(plain_rows(from, 30_000)).await.expect("written");
    }
    store.flush_all().await.expect("flushed");
    assert_eq!((levels(), rare().await), (vec![(1, 270_000)], 270));
    for from in [270_000, 280_000] {
        store.write_logs(plain_rows(from, 10_000)).await.expect("written");
        store.flush_all().await.expect("flushed");
    }
    assert_eq!((levels(), rare().await), (vec![(0, 10_000), (0, 10_000), (1, 270_000)], 290));
    let packed = |store: &Store| store.visible().table("logs").iter().find(|p| p.meta.level == 1).map(|p| p.meta.id);
    let before = packed(&store);
    store.compact_all().await.expect("compacted");
    assert_eq!((levels(), rare().await), (vec![(1, 270_000), (2, 20_000)], 290));
    assert_eq!(packed(&store), before);
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_streams_are_counted_without_being_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(settings(dir.path())).await;
    for part in 0..2i64 {
        let mut model = Model::default();
        for i in 0..5000i64 {
            let app = ["a", "b", "c"][(i % 3) as usize];
            let mut r = row(T0 + (part * 5000 + i) * SECOND / 10, &[("app", app), ("pod", "p")], "s");
            r.field("app", app);
            // One row of the second part says otherwise.
            r.field("pod", if part == 1 && i == 7 { "other" } else { "p" });
            r.field("n", if i % 2 == 0 { "even" } else { "odd" });
            model.rows.push(r);
        }
        for batch in model.batches(1000) {
            store.write_logs(batch).await.expect("written");
        }
        store.flush_all().await.expect("flushed");
    }
    let check = async |name: &str, filter: LogFilter, batch_rows: &[usize], pages: bool| {
        let stats = Arc::new(ReadStats::default());
        let snapshot = logs_source(&store).snapshot();
        let request = LogRequest {
            columns: vec![LogColumn::stored(name)],
            rest: false,
            form: LogForm::Counted,
            ..everything(filter.clone())
        };
        let table = logs_table(&*snapshot, &Access::full(), request, &stats).expect("a table");
        let session = counting(&stats);
        let batches = session.read_table(scan_table(table)).expect("readable").collect().await.expect("read");
        let mut rows: Vec<usize> = batches.iter().map(arrow::array::RecordBatch::num_rows).collect();
        rows.sort_unstable();
        assert_eq!(rows, batch_rows, "{name} {filter}");
        assert_eq!(quiver_types::read_stats::get(&stats.pages_read) > 0, pages, "{name} {filter}");
    };
    check("app", LogFilter::All, &[3, 3], false).await;
    check("app", value("app", Equals("b".into())), &[1, 1], false).await;
    check("app", LogFilter::Time(vec![(T0, T0 + 5000 * SECOND)]), &[3, 3], false).await;
    check("app", LogFilter::Time(vec![(T0, T0 + 10 * SECOND)]), &[3], true).await;
    check("pod", LogFilter::All, &[1, 5000], true).await;
    check("n", LogFilter::All, &[5000, 5000], true).await;
    store.compact_all().await.expect("compacted");
    check("app", LogFilter::All, &[3], false).await;
    check("pod", LogFilter::All, &[10_000], true).await;
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_counts_values_alike_whenever_it_runs() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(settings(dir.path())).await;
    let write = async |range: std::ops::Range<i64>| {
        let mut model = Model::default();
        for i in range {
            let mut r = row(T0 + i * SECOND, &[("app", "a")], "a");
            r.field("id", &format!("id {i}"));
            r.field("level", if i % 2 == 0 { "info" } else { "error" });
            model.rows.push(r);
        }
        store.write_logs(model.batches(1000).remove(0)).await.expect("written");
    };
    write(0..100).await;
    store.flush_all().await.expect("flushed");
    // Few enough of the same field in rows that have no columns.
    write(100..102).await;
    let limits = ValueLimits { values: 5, bytes: 128 };
    let request = LogRequest::value_counts(LogFilter::All, limits);
    let snapshot = logs_source(&store).snapshot();
    let table = logs_table(&*snapshot, &Access::full(), request, &ReadStats::default()).expect("a table");
    let session = datafusion::prelude::SessionContext::new();
    let frame = session.read_table(scan_table(table)).expect("readable");
    let plan = frame.create_physical_plan().await.expect("a plan");
    for turn in 0..2 {
        let stats = Arc::new(ReadStats::default());
        let task = counting(&stats).task_ctx();
        let batches = datafusion::physical_plan::collect(Arc::clone(&plan), task).await.expect("read");
        let parts =
            (quiver_types::read_stats::get(&stats.parts_total), quiver_types::read_stats::get(&stats.parts_read));
        assert_eq!(parts, (1, 1), "turn {turn}");
        let mut counts = ValueCounts::new(limits);
        for batch in &batches {
            counts.add_batch(batch).expect("counts");
        }
        let names: Vec<&str> = counts.by_name().map(|(name, _)| name).collect();
        assert_eq!((counts.rows, names), (102, vec!["_stream", "_stream_id", "level"]), "turn {turn}");
    }
    store.close(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_told_by_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut model = Model::default();
    for i in 0..5000i64 {
        let mut r = row(T0 + i, &[("app", "a")], "");
        r.field(MSG, &format!("some message with the number {i}"));
        model.rows.push(r);
    }
    let store = open(settings(dir.path())).await;
    for batch in model.batches(1000) {
        store.write_logs(batch).await.expect("written");
    }
    store.flush_all().await.expect("flushed");
    let keys: Vec<String> = store.visible().table("logs")[0].meta.files.iter().map(|f| f.key.clone()).collect();
    assert_eq!(keys.len(), 3);
    store.close(Duration::from_secs(10)).await;
    drop(store);
    for key in keys {
        let path = dir.path().join("store").join(&key);
        let good = std::fs::read(&path).expect("there");
        let mut bad = good.clone();
        bad[200] ^= 0x10;
        std::fs::write(&path, &bad).expect("written");
        let store = loop {
            match Store::open(settings(dir.path()), Arc::new(super::FixedClock(T0 / 1_000_000))).await {
                Ok(store) => break store,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let snapshot = logs_source(&store).snapshot();
        let request = everything(value(MSG, Word("4711".into())));
        let table = logs_table(&*snapshot, &Access::full(), request, &ReadStats::default()).expect("a table");
        let session = datafusion::prelude::SessionContext::new();
        let error = session.read_table(scan_table(table)).expect("readable").collect().await.expect_err("damaged");
        assert!(error.to_string().contains(&key), "{error}");
        store.close(Duration::from_secs(10)).await;
        drop((snapshot, store));
        std::fs::write(&path, &good).expect("written");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn how_many_values_a_field_has_is_known_without_reading() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(settings(dir.path())).await;
    let mut model = Model::default();
    for i in 0..5000i64 {
        let app = ["a", "b", "c"][(i % 3) as usize];
        let mut r = row(T0 + i * SECOND / 10, &[("app", app)], "s");
        r.field("app", app);
        r.field("level", if i % 7 == 0 { "odd" } else { "even" });
        r.field("user", &format!("user-{}", i * 7919 % 5000));
        model.rows.push(r);
    }
    for batch in model.batches(1000) {
        store.write_logs(batch).await.expect("written");
    }
    let stats = Arc::new(ReadStats::default());
    let about = |field: &str, access: &Access| {
        let snapshot = logs_source(&store).snapshot();
        let table = logs_table(&*snapshot, access, everything(LogFilter::All), &stats).expect("a table");
        table.scan(&ScanShape::default()).expect("a scan").values_about(field)
    };
    let all = Access::full();
    assert_eq!(about("app", &all), None, "rows are live");
    store.flush_all().await.expect("flushed");
    assert_eq!(about("app", &all), None, "nothing was read of the part");
    let session = counting(&stats);
    let snapshot = logs_source(&store).snapshot();
    let table = logs_table(&*snapshot, &all, everything(LogFilter::All), &stats).expect("a table");
    session.read_table(scan_table(table)).expect("readable").collect().await.expect("read");
    assert_eq!(about("app", &all), Some(3));
    assert_eq!(about("none", &all), Some(1));
    assert!(about("level", &all).is_some_and(|values| (2..=16).contains(&values)));
    assert!(about("user", &all).is_some_and(|values| (4000..=5000).contains(&values)));
    store.close(Duration::from_secs(10)).await;
}
