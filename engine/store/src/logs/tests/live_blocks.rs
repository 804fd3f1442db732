//! Blocks of live rows on their own: the values they return for selected rows, and which values they read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arrow::array::{Array, AsArray};
use arrow::buffer::BooleanBuffer;
use quiver_types::logs::{
    FieldPattern, LogFilter, MSG, OBSERVED_TIME, RowMatcher, SEVERITY_NUMBER, STREAM, STREAM_ID, StreamSelector, TIME,
    TimePredicate, ValueLimits, ValueMatcher,
};
use quiver_types::tables::logs::SERVICE;
use quiver_types::{Access, ErrorKind, Matcher};

use super::model::{Any, Equals, ModelRow, Number, batch, row};
use super::{SECOND, T0};
use crate::logs::block::{Block, values};
use crate::logs::column::Values;
use crate::logs::evaluation::{eval, within};
use crate::logs::live_blocks::{LiveBlock, LiveStreams};
use crate::logs::stream_values::{StreamValue, StreamValues};
use crate::logs::value_counts::{LeftOut, value_counts};
use crate::memtable::logs::{LiveLogs, PreparedLogs};
use crate::scan::testing::Within;

const ALL: (i64, i64) = (i64::MIN, i64::MAX);

fn block(rows: &[ModelRow], access: &Access) -> LiveBlock {
    let logs = LiveLogs::default();
    let prepared = PreparedLogs::new(batch(rows)).expect("sound");
    for (place, pair) in (0..).zip(&prepared.pairs) {
        assert_eq!(logs.slot(pair), (place, true));
    }
    logs.insert(prepared.rows, 0, &[]);
    let view = logs.view(0, ALL);
    let (chunk, rows) = view.chunks[0].clone();
    let streams = LiveStreams::new(view.streams.clone(), Arc::clone(&view.index), access, &Arc::default());
    LiveBlock { chunk, rows, streams: Arc::new(streams) }
}

/// Three rows of two streams.
fn sample() -> Vec<ModelRow> {
    let mut rows = vec![
        row(T0, &[("app", "x")], "web"),
        row(T0 + SECOND, &[("app", "y")], ""),
        row(T0 + 2 * SECOND, &[("app", "x")], "web"),
    ];
    rows[0].field(MSG, "hello");
    rows[0].field("n", "1");
    rows[0].severity = 9;
    rows[1].field("n", "2");
    rows[2].field(MSG, "world");
    rows[2].observed = T0;
    rows
}

fn set(len: usize, rows: &[usize]) -> BooleanBuffer {
    BooleanBuffer::collect_bool(len, |row| rows.contains(&row))
}

fn indices(rows: &BooleanBuffer) -> Vec<usize> {
    rows.set_indices().collect()
}

fn texts(values: &Values, rows: usize) -> Vec<String> {
    let mut buffer = String::new();
    (0..rows).map(|at| values.text(at, &mut buffer).to_owned()).collect()
}

#[tokio::test]
async fn a_column_has_the_rows_that_are_asked_for() {
    let rows = sample();
    let ids = [0, 1, 2].map(|at: usize| format!("{:?}", rows[at].labels().id()));
    let mut block = block(&rows, &Access::full());
    for (name, expected) in [
        (TIME, ["2025-06-01T00:00:00Z", "2025-06-01T00:00:01Z", "2025-06-01T00:00:02Z"]),
        (SEVERITY_NUMBER, ["9", "", ""]),
        (OBSERVED_TIME, ["", "", "2025-06-01T00:00:00Z"]),
        (STREAM, ["{app=\"x\"}", "{app=\"y\"}", "{app=\"x\"}"]),
        (STREAM_ID, [&*ids[0], &*ids[1], &*ids[2]]),
        (SERVICE, ["web", "", "web"]),
        (MSG, ["hello", "", "world"]),
        ("n", ["1", "2", ""]),
        ("absent", ["", "", ""]),
    ] {
        for asked in [&[0, 1, 2][..], &[1, 2], &[0, 2], &[1], &[]] {
            let found = values(&mut block, name, &set(3, asked)).await.unwrap();
            let expected: Vec<&str> = asked.iter().map(|&row| expected[row]).collect();
            assert_eq!(texts(&found, asked.len()), expected, "{name} of {asked:?}");
        }
    }
}

/// The text of an identifier is made once for each stream, unless hardly any row shares its stream.
#[test]
fn identifiers_are_coded_where_streams_have_many_rows() {
    let streams: Vec<_> = {
        let block = block(&sample(), &Access::full());
        (0..2).map(|slot| Arc::clone(block.streams.stream(slot))).collect()
    };
    let of = |value: &StreamValue, places: &[u32]| {
        StreamValues::of(value, streams.iter().map(|stream| &**stream)).of_rows(places.iter().copied())
    };
    let ids: Vec<String> = streams.iter().map(|stream| format!("{:?}", stream.id)).collect();
    let few = of(&StreamValue::Id, &[1, 0, 1]);
    assert!(matches!(few, Values::Hex(_)));
    assert_eq!(texts(&few, 3), [&*ids[1], &*ids[0], &*ids[1]]);
    let many = of(&StreamValue::Id, &[1, 0, 1, 1, 1, 1, 1, 0]);
    assert!(matches!(many, Values::Coded(_)));
    assert_eq!(texts(&many, 8)[..3], [&*ids[1], &*ids[0], &*ids[1]]);
    // What is empty is missing.
    let Values::Coded(services) = of(&StreamValue::Service, &[0, 1, 0]) else { panic!("by code") };
    assert_eq!((services.is_null(0), services.is_null(1), services.null_count()), (false, true, 1));
    let label = |name: &str| StreamValue::Label(name.to_owned());
    assert_eq!(texts(&of(&label("app"), &[1, 1, 0]), 3), ["y", "y", "x"]);
    let Values::Coded(none) = of(&label("missing"), &[1, 0]) else { panic!("by code") };
    assert_eq!(none.null_count(), 2);
    assert_eq!(texts(&of(&StreamValue::Same("s".into()), &[1, 0]), 2), ["s", "s"]);
}

#[tokio::test]
async fn rows_are_counted_by_their_streams() {
    let mut block = block(&sample(), &Access::full());
    let wanted = [StreamValue::Text, StreamValue::Service];
    for (asked, names, services, expected) in [
        (&[0, 1, 2][..], &["{app=\"x\"}", "{app=\"y\"}"][..], &["web", ""][..], &[2, 1][..]),
        (&[1, 2], &["{app=\"y\"}", "{app=\"x\"}"], &["", "web"], &[1, 1]),
        (&[], &[], &[], &[]),
    ] {
        let (columns, counts) = block.by_streams(&wanted, &set(3, asked)).await.unwrap();
        assert_eq!(counts, expected, "{asked:?}");
        let found = columns.iter().map(|column| texts(column, counts.len())).collect::<Vec<_>>();
        assert_eq!(found, [names, services], "{asked:?}");
    }
}

#[tokio::test]
async fn rows_of_other_services_are_not_allowed() {
    for (access, expected) in [
        (Access::full(), &[0, 1, 2][..]),
        (Access::services(["web"]), &[0, 2]),
        (Access::services(["web", "db", ""]), &[0, 2]),
        (Access::services(["db"]), &[]),
    ] {
        let allowed = block(&sample(), &access).allowed().await.unwrap();
        assert_eq!((allowed.len(), indices(&allowed)), (3, expected.to_vec()), "{access:?}");
    }
}

#[tokio::test]
async fn ranges_of_time_have_both_ends() {
    let mut block = block(&sample(), &Access::full());
    let (first, last) = (T0, T0 + 2 * SECOND);
    for (ranges, expected) in [
        (vec![(first, last)], &[0, 1, 2][..]),
        (vec![], &[]),
        (vec![(first, first)], &[0]),
        (vec![(first + 1, last - 1)], &[1]),
        (vec![(i64::MIN, first), (last, i64::MAX)], &[0, 2]),
        (vec![(last + 1, i64::MAX)], &[]),
    ] {
        let found = block.in_time(&ranges, &set(3, &[0, 1, 2])).await.unwrap();
        assert_eq!(indices(&found), expected, "{ranges:?}");
        let found = block.in_time(&ranges, &set(3, &[0])).await.unwrap();
        assert!(indices(&found).iter().all(|&row| row == 0), "{ranges:?}");
    }
}

#[tokio::test]
async fn the_rest_of_a_row_is_what_was_not_asked_for() {
    let mut rows = sample();
    rows[1].field("b", "x");
    rows[1].field("a", "y");
    let mut block = block(&rows, &Access::full());
    let check = async |block: &mut LiveBlock, without: &[&str], asked: &[usize], expected: &[&[(&str, &str)]]| {
        let map = block.rest(without, &set(3, asked)).await.unwrap();
        assert_eq!(map.len(), expected.len());
        for (row, expected) in expected.iter().enumerate() {
            let entries = map.value(row);
            let (names, values) = (entries.column(0).as_string::<i32>(), entries.column(1).as_string::<i32>());
            let found: Vec<_> = names.iter().flatten().zip(values.iter().flatten()).collect();
            assert_eq!(found, *expected, "row {row} without {without:?}");
        }
    };
    let second: &[(&str, &str)] = &[("a", "y"), ("b", "x"), ("n", "2")];
    check(&mut block, &[], &[0, 1, 2], &[&[(MSG, "hello"), ("n", "1")], second, &[(MSG, "world")]]).await;
    check(&mut block, &[MSG, "b", "no such"], &[1, 2], &[&[("a", "y"), ("n", "2")], &[]]).await;
    check(&mut block, &[], &[], &[]).await;
    let mut counts = BTreeMap::from([("n".to_owned(), 5)]);
    block.field_counts(&set(3, &[1, 2]), &mut counts).await.unwrap();
    let expected = [(MSG, 1), ("a", 1), ("b", 1), ("n", 6)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(counts, BTreeMap::from(expected));
}

/// Counts how often it is asked.
#[derive(Debug, Clone, Default)]
struct Asked(Arc<AtomicUsize>);

impl ValueMatcher for Asked {
    fn matches(&self, value: &str) -> bool {
        self.0.fetch_add(1, Relaxed);
        value.ends_with('3')
    }

    fn describe(&self) -> String {
        "asked".to_owned()
    }
}

fn value(name: &str, matcher: impl ValueMatcher + 'static) -> LogFilter {
    LogFilter::Value { field: FieldPattern::Name(name.to_owned()), matcher: Arc::new(matcher) }
}

/// Breaks if filters are put to rows that are decided already, or in the order in which they are written.
#[tokio::test]
async fn what_is_cheap_decides_first() {
    let mut rows: Vec<ModelRow> = (0..6).map(|n| row(T0 + n * SECOND, &[("app", "x")], "")).collect();
    for (n, row) in rows.iter_mut().enumerate() {
        row.field(MSG, &format!("number {n}"));
    }
    let mut block = block(&rows, &Access::full());
    let all = set(6, &[0, 1, 2, 3, 4, 5]);
    let asked = Asked::default();
    let message = || value(MSG, asked.clone());
    let time = || LogFilter::Time(vec![(T0 + 2 * SECOND, T0 + 3 * SECOND)]);
    let stream = |app: &str| LogFilter::Stream(StreamSelector { groups: vec![vec![Matcher::equal("app", app)]] });
    for (filter, found, times) in [
        (LogFilter::And(vec![message(), time()]), &[3][..], 2),
        (LogFilter::Or(vec![message(), time()]), &[2, 3], 4),
        (LogFilter::And(vec![message(), LogFilter::None]), &[], 0),
        (LogFilter::And(vec![message(), stream("y")]), &[], 0),
        (LogFilter::Or(vec![message(), stream("x")]), &[0, 1, 2, 3, 4, 5], 0),
        (LogFilter::Not(Box::new(LogFilter::And(vec![message(), time()]))), &[0, 1, 2, 4, 5], 2),
        (LogFilter::And(vec![message(), LogFilter::Not(Box::new(time()))]), &[], 4),
        (LogFilter::And(vec![]), &[0, 1, 2, 3, 4, 5], 0),
        (LogFilter::Or(vec![]), &[], 0),
    ] {
        let before = asked.0.load(Relaxed);
        let matching = eval(&mut block, &filter, all.clone()).await.unwrap();
        assert_eq!(indices(&matching), found, "{filter}");
        assert_eq!(asked.0.load(Relaxed) - before, times, "{filter}");
    }
    let none = eval(&mut block, &message(), set(6, &[])).await.unwrap();
    assert_eq!((none.len(), indices(&none)), (6, vec![]));
}

/// The first value is the second.
#[derive(Debug)]
struct Twins;

impl RowMatcher for Twins {
    fn matches(&self, values: &[&str]) -> bool {
        values[0] == values[1]
    }

    fn describe(&self) -> String {
        "twins".to_owned()
    }
}

#[tokio::test]
async fn each_kind_of_filter_finds_its_rows() {
    let mut rows = sample();
    rows[1].field("twin", "2");
    let mut block = block(&rows, &Access::full());
    let prefix = |prefix: &str, matcher: Arc<dyn ValueMatcher>| LogFilter::Value {
        field: FieldPattern::Prefix(prefix.to_owned()),
        matcher,
    };
    let twins =
        |fields: [&str; 2]| LogFilter::Row { fields: fields.map(str::to_owned).to_vec(), matcher: Arc::new(Twins) };
    // Every second second, from the first on.
    let even = TimePredicate {
        text: "even".to_owned(),
        period_ns: 2 * SECOND,
        phase_ns: 0,
        zone_ns: 0,
        part_ns: (0, SECOND - 1),
    };
    for (filter, expected) in [
        (LogFilter::All, &[0, 1, 2][..]),
        (LogFilter::None, &[]),
        (value("n", Equals(String::new())), &[2]),
        (value("n", Any), &[0, 1]),
        (value("n", Number(2.0, 9.0)), &[1]),
        (value("absent", Equals(String::new())), &[0, 1, 2]),
        (value(SEVERITY_NUMBER, Equals("9".to_owned())), &[0]),
        (value(SEVERITY_NUMBER, Number(0.0, 99.0)), &[0]),
        (value(OBSERVED_TIME, Any), &[2]),
        (value(SERVICE, Equals(String::new())), &[1]),
        (value(STREAM, Equals("{app=\"y\"}".to_owned())), &[1]),
        // Times and streams are no fields: the prefix of all names finds none of theirs.
        (prefix("", Arc::new(Equals("{app=\"y\"}".to_owned()))), &[]),
        (prefix("", Arc::new(Equals("2".to_owned()))), &[1]),
        (prefix("tw", Arc::new(Any)), &[1]),
        // No field that is missing is asked.
        (prefix("tw", Arc::new(Equals(String::new()))), &[]),
        (twins(["n", "twin"]), &[1, 2]),
        (twins(["absent", MSG]), &[1]),
        (twins(["n", "n"]), &[0, 1, 2]),
        (LogFilter::TimeOf(even), &[0, 2]),
        (LogFilter::StreamIds(vec![]), &[]),
        (LogFilter::StreamIds(vec![rows[1].labels().id()]), &[1]),
        (LogFilter::Stream(StreamSelector::default()), &[0, 1, 2]),
    ] {
        let matching = eval(&mut block, &filter, set(3, &[0, 1, 2])).await.unwrap();
        assert_eq!(indices(&matching), expected, "{filter}");
        // Rows that nobody asks for are not found.
        let matching = eval(&mut block, &filter, set(3, &[1])).await.unwrap();
        let expected: Vec<usize> = expected.iter().copied().filter(|&row| row == 1).collect();
        assert_eq!(indices(&matching), expected, "{filter}");
    }
}

#[test]
fn rows_outside_of_a_range_are_cleared() {
    // Not from the first bit of a byte on.
    let rows = BooleanBuffer::collect_bool(23, |row| row.is_multiple_of(3)).slice(3, 20);
    for (start, end) in [(0, 20), (0, 0), (20, 20), (1, 20), (0, 19), (9, 13), (12, 13), (13, 14)] {
        let expected: Vec<usize> = (start..end).filter(|row| *row % 3 == 0).collect();
        let found = within(&rows, start, end);
        assert_eq!((found.len(), indices(&found)), (20, expected), "{start} to {end}");
    }
}

#[tokio::test]
async fn values_are_counted_until_they_are_too_many() {
    const ROWS: usize = 5000;
    let make = |n: usize| {
        let app = ["x", "y"][n % 2];
        let mut row = row(T0 + n as i64, &[("app", app)], "");
        row.field("few", ["a", "b", "c"][n % 3]);
        row.field("many", &n.to_string());
        row.field("long", if n == ROWS - 1 { "more than ten bytes" } else { "short" });
        row
    };
    let rows: Vec<ModelRow> = (0..ROWS).map(make).collect();
    let mut block = block(&rows, &Access::full());
    let limits = ValueLimits { values: 10, bytes: 10 };
    let left_out = LeftOut::default();
    let wide = ValueLimits { values: 10, bytes: 1000 };
    let mut count = async |limits: ValueLimits, rows: &BooleanBuffer| {
        let counts = value_counts(&mut block, limits, &left_out, rows, &Within::new(usize::MAX)).await.unwrap();
        let fields: BTreeMap<String, BTreeMap<String, u64>> = counts
            .by_name()
            .map(|(name, values)| (name.to_owned(), values.iter().map(|(v, n)| ((*v).to_owned(), *n)).collect()))
            .collect();
        (counts.rows, fields)
    };
    let of = |values: &[(&str, u64)]| values.iter().map(|(v, n)| ((*v).to_owned(), *n)).collect::<BTreeMap<_, _>>();
    let all = BooleanBuffer::new_set(ROWS);
    // Times are all different, identifiers too long.
    let (looked, fields) = count(limits, &all).await;
    assert_eq!(looked, ROWS as u64);
    assert_eq!(fields.keys().collect::<Vec<_>>(), [STREAM, "few"]);
    assert_eq!(fields[STREAM], of(&[("{app=\"x\"}", 2500), ("{app=\"y\"}", 2500)]));
    assert_eq!(fields["few"], of(&[("a", 1667), ("b", 1667), ("c", 1666)]));
    // Without its one long value a field is counted, and so is one that has few values in these rows.
    let (looked, fields) = count(limits, &BooleanBuffer::collect_bool(ROWS, |row| row < 7)).await;
    assert_eq!(looked, 7);
    assert_eq!(fields.keys().collect::<Vec<_>>(), [STREAM, "few", "long", "many"]);
    assert_eq!(fields[STREAM], of(&[("{app=\"x\"}", 4), ("{app=\"y\"}", 3)]));
    assert_eq!(fields["few"], of(&[("a", 3), ("b", 2), ("c", 2)]));
    assert_eq!(fields["long"], of(&[("short", 7)]));
    // What was left out of the scan stays out of it, though it would fit.
    let (_, fields) = count(wide, &all).await;
    assert_eq!(fields.keys().collect::<Vec<_>>(), [STREAM, "few", "long"]);
    let (looked, fields) = count(wide, &BooleanBuffer::new_unset(ROWS)).await;
    assert_eq!((looked, fields.len()), (0, 0));
}

/// Breaks if a block's counts are reserved once they are complete: values that differ from row to row take many times
/// the memory of a query until then.
#[tokio::test]
async fn counts_are_reserved_while_they_grow() {
    const ROWS: usize = 40_000;
    const MOST: usize = 1 << 20;
    let make = |n: usize| {
        let mut row = row(T0 + n as i64, &[("app", "x")], "");
        row.field("id", &format!("a value of its own: {n:040}"));
        row
    };
    let rows: Vec<ModelRow> = (0..ROWS).map(make).collect();
    let mut block = block(&rows, &Access::full());
    let (limits, all) = (ValueLimits { values: u64::MAX, bytes: 1000 }, BooleanBuffer::new_set(ROWS));
    let plenty = Within::new(usize::MAX);
    let counts = value_counts(&mut block, limits, &LeftOut::default(), &all, &plenty).await.unwrap();
    let whole = plenty.highest();
    assert!(whole >= 2 * counts.memory_bytes() && whole > 8 * MOST, "{whole} bytes");
    let few = Within::new(MOST);
    let refused = value_counts(&mut block, limits, &LeftOut::default(), &all, &few).await.unwrap_err();
    let highest = few.highest();
    assert_eq!(refused.kind, ErrorKind::LimitExceeded);
    assert!(highest < whole / 2, "{highest} of {whole} bytes were there when it was refused");
}
