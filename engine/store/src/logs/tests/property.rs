//! Random rows and filters: the store returns the same as the model in every state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use quiver_types::logs::{
    FieldPattern, LogColumn, LogFilter, LogForm, LogOrder, LogRequest, MSG, RowMatcher, STREAM, STREAM_ID,
    StreamSelector, TIME, ValueCounts, ValueLimits,
};
use quiver_types::{Access, LabelSet, Matcher};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::model::{Any, Contains, Equals, Model, ModelRow, Number, Word};
use super::{Row, T0, everything, open, read, settings, sorted, texts};
use crate::store::Store;

/// Two fields are equal.
#[derive(Debug)]
struct Same;

impl RowMatcher for Same {
    fn matches(&self, values: &[&str]) -> bool {
        values[0] == values[1]
    }

    fn describe(&self) -> String {
        "same".into()
    }
}

fn pick<'a, T>(rng: &mut StdRng, list: &'a [T]) -> &'a T {
    &list[rng.random_range(0..list.len())]
}

const NAMES: [&str; 12] =
    [MSG, "level", "status", "ip", "when", "took", "trace_id", "Level", "a.b", "__q_mine", "rare1", "rare2"];

/// A value that a field may have; most fields keep to one kind, some rows do not.
fn value(rng: &mut StdRng, name: &str, odd: bool) -> String {
    let words = ["error", "timeout", "GET", "тест", "foo_bar", "x"];
    match name {
        _ if odd => (*pick(rng, &["", " ", "0x1f", "1.50", "-0", "a\"b\\c\n", "9223372036854775808"])).into(),
        "level" | "Level" => (*pick(rng, &["info", "error"])).into(),
        "status" => rng.random_range(100..600).to_string(),
        "ip" => format!("10.0.{}.{}", rng.random_range(0..3), rng.random_range(0..256)),
        "when" => format!("2025-06-01T00:00:{:02}.{:03}Z", rng.random_range(0..60), rng.random_range(0..1000)),
        "took" => format!("{}", f64::from(rng.random_range(0..1000)) / 8.0),
        "trace_id" => format!("{:016x}", rng.random_range(0..u64::MAX) / 7),
        "a.b" => "constant".into(),
        _ => {
            let n = rng.random_range(1..6);
            let mut text: Vec<String> = (0..n).map(|_| (*pick(rng, &words)).to_owned()).collect();
            text.push(rng.random_range(0..50).to_string());
            text.join(*pick(rng, &[" ", "-", ", "]))
        }
    }
}

fn rows(rng: &mut StdRng, count: usize, odd_in: u32) -> Vec<ModelRow> {
    let streams: Vec<Vec<(String, String)>> = (0..6)
        .map(|i| match i {
            0 => vec![],
            i if i < 4 => vec![("app".into(), format!("app{i}"))],
            i => vec![("app".into(), "app1".into()), ("host".into(), format!("h{i}"))],
        })
        .collect();
    (0..count)
        .map(|_| {
            let mut row = ModelRow {
                time: T0 + rng.random_range(0..7200) * 500_000_000 - 1_800_000_000_000,
                stream: pick(rng, &streams).clone(),
                service: (*pick(rng, &["", "s1", "s2"])).into(),
                severity: *pick(rng, &[0, 0, 9, 17]),
                observed: *pick(rng, &[0, 0, 1, T0]),
                fields: Vec::new(),
            };
            for name in NAMES {
                let there = match name {
                    "a.b" => true,
                    "rare1" | "rare2" => rng.random_range(0..300) == 0,
                    _ => rng.random_range(0..4) > 0,
                };
                let odd = name != "a.b" && odd_in > 0 && rng.random_range(0..odd_in) == 0;
                let value = value(rng, name, odd);
                if there && !value.is_empty() {
                    row.fields.push((name.into(), value));
                }
            }
            // Most senders repeat the labels of the stream in each row; nothing forces them to.
            for (name, value) in row.stream.clone() {
                if odd_in == 0 || rng.random_range(0..odd_in) > 0 {
                    row.fields.push((name, value));
                }
            }
            row
        })
        .collect()
}

fn filter(rng: &mut StdRng, model: &Model, depth: usize) -> LogFilter {
    let some_row = &model.rows[rng.random_range(0..model.rows.len())];
    let name = (*pick(rng, &NAMES)).to_owned();
    let own = some_row.fields.iter().find(|f| f.0 == name).map_or(String::new(), |f| f.1.clone());
    let of =
        |field: FieldPattern, matcher: Arc<dyn quiver_types::logs::ValueMatcher>| LogFilter::Value { field, matcher };
    match rng.random_range(0..if depth == 0 { 13 } else { 17 }) {
        0 => of(FieldPattern::Name(name), Arc::new(Equals(own))),
        1 => {
            let word = quiver_types::logs::words(&own).next().unwrap_or("nothing").to_owned();
            of(FieldPattern::Name(name), Arc::new(Word(word)))
        }
        2 => of(FieldPattern::Name(name), Arc::new(Contains(own.chars().skip(1).take(3).collect()))),
        3 => of(FieldPattern::Name(name), Arc::new(Number(rng.random_range(0..400).into(), 450.0))),
        4 => of(FieldPattern::Name("ip".into()), Arc::new(Number(f64::from(0x0a00_0100), f64::from(0x0a00_0180)))),
        5 => {
            let from = T0 + rng.random_range(-1800..1800) * 1_000_000_000;
            LogFilter::Time(vec![(from, from + 400_000_000_000), (from + 500_000_000_000, from + 600_000_000_000)])
        }
        6 => LogFilter::Stream(StreamSelector { groups: vec![vec![Matcher::equal("app", "app1")], vec![]] }).clone(),
        7 => LogFilter::Stream(StreamSelector {
            groups: vec![vec![Matcher::equal("app", "app1"), Matcher::equal("host", "")]],
        }),
        8 => LogFilter::StreamIds(vec![some_row.labels().id(), LabelSet::from_pairs([("no", "stream")]).id()]),
        9 => LogFilter::Row { fields: vec!["level".into(), "Level".into()], matcher: Arc::new(Same) },
        10 => {
            let prefix = *pick(rng, &["", "l", "r", "a.", "_", "nothing"]);
            of(FieldPattern::Prefix(prefix.into()), Arc::new(Word("error".into())))
        }
        11 => of(FieldPattern::Name((*pick(rng, &[TIME, STREAM, STREAM_ID])).into()), Arc::new(Contains("1".into()))),
        12 => of(FieldPattern::Name(name), Arc::new(Any)),
        13 | 14 => LogFilter::And((0..3).map(|_| filter(rng, model, depth - 1)).collect()),
        15 => LogFilter::Or((0..2).map(|_| filter(rng, model, depth - 1)).collect()),
        _ => LogFilter::Not(Box::new(filter(rng, model, depth - 1))),
    }
}

/// Rows counted by some fields are as many as there are.
async fn counted(store: &Store, model: &Model, access: &Access, filter: &LogFilter, i: usize, state: &str) {
    let names = [&["app"][..], &["app", "host"], &[STREAM], &["app", "level"], &["a.b", "nowhere", "host"], &[]][i % 6];
    let columns = names.iter().map(|n| LogColumn { name: (*n).into(), stored: i.is_multiple_of(2) }).collect();
    let filter = filter.clone();
    let request = LogRequest { filter, columns, rest: false, order: LogOrder::Any, form: LogForm::Counted };
    let mut seen: BTreeMap<Row, u64> = BTreeMap::new();
    for batch in read(store, access, &request).await {
        let counts = batch.column(names.len()).as_primitive::<UInt64Type>();
        let columns: Vec<usize> = (0..names.len()).collect();
        let keys = texts(&[batch.project(&columns).expect("some of its columns")]);
        for (key, count) in keys.into_iter().zip(counts) {
            *seen.entry(key).or_default() += count.unwrap_or(1);
        }
    }
    let mut expected: BTreeMap<Row, u64> = BTreeMap::new();
    for row in model.select(access, &request.filter) {
        *expected.entry(row.into_iter().filter(|(n, _)| names.contains(&n.as_str())).collect()).or_default() += 1;
    }
    assert_eq!(seen, expected, "{state}: {} by {names:?}", request.filter);
}

/// Values are as often as there are rows with them.
async fn value_counts(store: &Store, model: &Model, access: &Access, filter: &LogFilter, i: usize, state: &str) {
    let limits = ValueLimits { values: [3, 20, 1000][i % 3], bytes: [8, 128][i % 2] };
    let mut seen = ValueCounts::new(limits);
    for batch in read(store, access, &LogRequest::value_counts(filter.clone(), limits)).await {
        seen.add_batch(&batch).expect("counts");
    }
    let mut expected = ValueCounts::new(limits);
    for row in model.select(access, filter) {
        expected.rows += 1;
        for (name, value) in &row {
            let field = expected.field(name);
            expected.add(field, value, 1);
        }
    }
    let all = |counts: &ValueCounts| -> BTreeMap<String, Vec<(String, u64)>> {
        let sorted = |mut values: Vec<(&str, u64)>| {
            values.sort_unstable();
            values.into_iter().map(|(value, n)| (value.to_owned(), n)).collect()
        };
        counts.by_name().map(|(name, values)| (name.to_owned(), sorted(values))).collect()
    };
    assert_eq!(seen.rows, expected.rows, "{state}: {filter}");
    assert_eq!(all(&seen), all(&expected), "{state}: {filter} within {limits:?}");
}

async fn check(store: &Store, model: &Model, filters: &[LogFilter], state: &str) {
    let names = ["level", "status", "rare1", "a.b", "ip", "nowhere"];
    for (i, filter) in filters.iter().enumerate() {
        let access = if i % 4 == 0 { Access::services(["s1"]) } else { Access::full() };
        let expected = sorted(model.select(&access, filter));
        let order = [LogOrder::Any, LogOrder::Any, LogOrder::NewestFirst, LogOrder::OldestFirst][i % 4];
        let columns = everything(LogFilter::All).columns.into_iter();
        let more = names.iter().skip(i % 6).map(|n| LogColumn { name: (*n).into(), stored: i % 2 == 0 });
        let request = LogRequest {
            filter: filter.clone(),
            columns: columns.chain(more).collect(),
            rest: true,
            order,
            form: LogForm::Rows,
        };
        let seen = texts(&read(store, &access, &request).await);
        let times: Vec<i64> =
            seen.iter().map(|r| crate::logs::typed_text::read_time_short(&r[TIME]).expect("a time")).collect();
        match order {
            LogOrder::Any => {}
            LogOrder::NewestFirst => assert!(times.is_sorted_by(|a, b| a >= b), "{state}"),
            LogOrder::OldestFirst => assert!(times.is_sorted(), "{state}"),
        }
        counted(store, model, &access, filter, i, state).await;
        value_counts(store, model, &access, filter, i, state).await;
        let seen = sorted(seen);
        assert!(
            seen == expected,
            "{state}: {filter}: {} rows, expected {}; first difference {:?}",
            seen.len(),
            expected.len(),
            seen.iter().zip(&expected).find(|(a, b)| a != b)
        );
    }
}

/// Which odd values there are decides whether columns are typed.
async fn round(seed: u64, count: usize, odd_in: u32) {
    let mut rng = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().expect("a folder");
    let model = Model { rows: rows(&mut rng, count, odd_in) };
    let filters: Vec<LogFilter> = (0..40).map(|i| filter(&mut rng, &model, i % 3)).collect();
    let store = open(settings(dir.path())).await;
    let batches = model.batches(97);
    let half = batches.len() / 2;
    for batch in &batches[..half] {
        store.write_logs(batch.clone()).await.expect("written");
    }
    if flushes() {
        store.flush_all().await.expect("flushed");
    }
    for batch in &batches[half..] {
        store.write_logs(batch.clone()).await.expect("written");
    }
    check(&store, &model, &filters, &format!("seed {seed}, half live")).await;
    if flushes() {
        store.flush_all().await.expect("flushed");
        check(&store, &model, &filters, &format!("seed {seed}, flushed")).await;
        store.compact_all().await.expect("compacted");
        check(&store, &model, &filters, &format!("seed {seed}, compacted")).await;
    }
    store.close(Duration::from_secs(10)).await;
}

fn flushes() -> bool {
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_answers_as_the_model() {
    let seeds = if std::env::var_os("QUIVER_SOAK").is_some() { 40 } else { 4 };
    for seed in 0..seeds {
        round(seed, 1000 + 200 * seed as usize, [0, 200, 3, 40][seed as usize % 4]).await;
    }
}
