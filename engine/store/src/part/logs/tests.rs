//! Parts of logs written and read back: columns by row group, words, bounds of pages, and streams by blocks.

#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

mod many_streams;

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, Int64Array, StringViewArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Int64Type, UInt8Type, UInt32Type};
use quiver_types::logs::{MSG, SEVERITY_NUMBER};
use quiver_types::{LabelSet, ReadStats};

use super::super::bloom::{hash, may_hold};
use super::super::tests::{block_on, open, spec};
use super::super::{Part, PartMeta, PartSpec, Purpose};
use super::*;
use crate::ErrorKind;
use crate::memtable::log_streams::LiveStream;

fn logs_spec() -> PartSpec {
    PartSpec { table: "logs".to_owned(), ..spec(0) }
}

fn stream(pairs: &[(&str, &str)], service: &str) -> Arc<LiveStream> {
    let labels = LabelSet::from_pairs(pairs.iter().copied());
    Arc::new(LiveStream { id: labels.id(), labels, service: service.into() })
}

fn planned(name: &str, kind: ColumnKind) -> ColumnPlan {
    ColumnPlan { name: name.to_owned(), kind, rows: 0, of_stream: false, in_groups: Vec::new() }
}

/// Message, application and status of a row.
type Row = (Option<&'static str>, Option<&'static str>, Option<i64>);

const SEVERITY: Optional = Optional { severity: true, observed: false, overflow: false };

fn plan() -> LogColumns {
    let columns = [(MSG, ColumnKind::Text), ("app", ColumnKind::Coded), ("status", ColumnKind::Int)];
    LogColumns { columns: columns.map(|(name, kind)| planned(name, kind)).to_vec(), ..LogColumns::default() }
}

/// Rows at one nanosecond after the other.
fn group(first: i64, streams: &[(Arc<LiveStream>, usize)], rows: &[Row]) -> GroupColumns {
    GroupColumns {
        time: (first..).take(rows.len()).collect(),
        streams: streams.to_vec(),
        severity: rows.iter().map(|row| if row.2 == Some(500) { 17 } else { 0 }).collect(),
        observed: Vec::new(),
        columns: vec![
            Arc::new(rows.iter().map(|row| row.0).collect::<StringViewArray>()),
            Arc::new(rows.iter().map(|row| row.1).collect::<StringViewArray>()),
            Arc::new(rows.iter().map(|row| row.2).collect::<Int64Array>()),
        ],
        overflow: None,
    }
}

/// Two row groups of two streams, of which the second goes on in the second group.
fn two_groups(root: &Path) -> PartMeta {
    let (web, db) = (stream(&[("app", "web")], "web"), stream(&[("app", "db")], ""));
    let mut writer = LogPartWriter::new(root, logs_spec(), plan(), SEVERITY).unwrap();
    let first: [Row; 3] = [
        (Some("user alice logged in"), Some("web"), Some(200)),
        (Some("timeout of bob"), Some("web"), Some(500)),
        (None, Some("db"), None),
    ];
    writer.write(group(1_000_000, &[(web, 2), (Arc::clone(&db), 1)], &first)).unwrap();
    let second: [Row; 2] = [(Some("late carol"), Some("db"), Some(404)), (Some(""), Some("db"), None)];
    writer.write(group(5_999_999, &[(db, 2)], &second)).unwrap();
    assert_eq!(writer.len(), 5);
    writer.finish().unwrap()
}

fn logs(part: &Part) -> Arc<PartLogs> {
    block_on(part.logs(&ReadStats::default())).unwrap()
}

#[test]
fn the_catalog_is_told_what_is_in_a_part() {
    let dir = tempfile::tempdir().unwrap();
    let meta = two_groups(dir.path());
    assert_eq!((meta.rows, meta.series, meta.min_ts, meta.max_ts), (5, 2, 1, 6));
    assert_eq!(meta.services, ["", "web"]);
    assert_eq!(meta.names.list().unwrap(), [MSG, "app", "status"]);
    assert_eq!(meta.files.iter().map(|f| f.kind.as_str()).collect::<Vec<_>>(), ["rows", "streams", "index"]);
    block_on(open(dir.path(), &meta).verify()).unwrap();
}

#[test]
fn what_is_known_before_a_row_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let part = open(dir.path(), &two_groups(dir.path()));
    let logs = logs(&part);
    assert_eq!((logs.groups(), logs.group_rows(0), logs.group_rows(1)), (2, 0..3, 3..5));
    assert_eq!(logs.group_ranges, [(1_000_000, 1_000_002), (5_999_999, 6_000_000)]);
    assert_eq!((logs.has, logs.long_streams), (SEVERITY, false));
    let known: Vec<_> =
        logs.columns.columns.iter().map(|c| (c.name.as_str(), c.of_stream, c.in_groups.clone())).collect();
    assert_eq!(known, [(MSG, false, vec![2, 2]), ("app", true, vec![3, 2]), ("status", false, vec![2, 1])]);
    let streams = logs.streams.as_ref().unwrap();
    let told: Vec<_> = streams.iter().map(|s| (s.stream.labels.get("app"), s.rows.clone(), s.range)).collect();
    assert_eq!(told, [("web", 0..2, (1_000_000, 1_000_001)), ("db", 2..5, (1_000_002, 6_000_000))]);
    // A job reads the same past the caches.
    let uncached = block_on(part.logs_uncached()).unwrap();
    assert_eq!((uncached.columns, uncached.group_ranges), (logs.columns.clone(), logs.group_ranges.clone()));
}

#[test]
fn columns_come_back_by_rows_of_their_group() {
    let dir = tempfile::tempdir().unwrap();
    let part = open(dir.path(), &two_groups(dir.path()));
    let (logs, stats) = (logs(&part), ReadStats::default());
    let read = |group: usize, column: &str, rows: &[std::ops::Range<u32>]| {
        block_on(part.read_log_column(GroupRows { logs: &logs, group, rows }, column, Purpose::Query, &stats))
    };
    let texts = read(0, MSG, &[0..3]).unwrap();
    let texts: Vec<_> = texts.as_string_view().iter().collect();
    assert_eq!(texts, [Some("user alice logged in"), Some("timeout of bob"), None]);
    let one = read(0, MSG, &[1..2]).unwrap();
    assert_eq!((one.len(), one.as_string_view().value(0)), (1, "timeout of bob"));
    let apart = read(0, "status", &[0..1, 2..3]).unwrap();
    assert_eq!(apart.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(200), None]);
    let second = read(1, "status", &[0..2]).unwrap();
    assert_eq!(second.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(404), None]);
    let severity = read(0, SEVERITY_NUMBER, &[0..3]).unwrap();
    assert_eq!(severity.as_primitive::<UInt8Type>().iter().collect::<Vec<_>>(), [None, Some(17), None]);
    let apps = read(0, "app", &[0..3]).unwrap();
    let apps = apps.as_dictionary::<UInt32Type>();
    let app = |row: usize| apps.values().as_string::<i32>().value(apps.key(row).unwrap());
    assert_eq!([0, 1, 2].map(app), ["web", "web", "db"]);
    let error = read(0, "other", &[0..3]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.message.ends_with("is damaged: it has no column `other`"), "{}", error.message);
}

#[test]
fn words_are_known_by_rows() {
    let dir = tempfile::tempdir().unwrap();
    let part = open(dir.path(), &two_groups(dir.path()));
    let stats = ReadStats::default();
    let index = |column: &str| block_on(part.log_index(column, &stats)).unwrap().unwrap();
    for (column, words) in [(MSG, [["alice", "timeout"], ["late", "carol"]]), ("app", [["web", "db"], ["db", "db"]])] {
        let index = index(column);
        assert_eq!(index.filters.iter().map(|f| (f.0, f.1)).collect::<Vec<_>>(), [(0, 3), (3, 2)], "{column}");
        for ((_, _, filter), words) in index.filters.iter().zip(words) {
            assert!(words.iter().all(|word| may_hold(filter, hash(word))), "{words:?}");
            let wrong = (0..300).filter(|n| may_hold(filter, hash(&format!("absent{n}")))).count();
            assert!(wrong < 30, "{wrong} of 300");
        }
    }
    assert!(index("status").filters.is_empty(), "numbers have bounds and no words");
    assert!(index("other").filters.is_empty());
    let bare = part.without("index");
    assert!(block_on(bare.log_index(MSG, &stats)).unwrap().is_none());
}

#[test]
fn pages_tell_bounds_of_times_and_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let part = open(dir.path(), &two_groups(dir.path()));
    let logs = logs(&part);
    assert_eq!(page_times(&logs.footer, 0), [(0, (1_000_000, 1_000_002))]);
    assert_eq!(page_numbers(&logs.footer, 0, "status"), [(0, Some((200.0, 500.0)))]);
    assert_eq!(page_numbers(&logs.footer, 1, "status"), [(0, Some((404.0, 404.0)))]);
    assert!(page_numbers(&logs.footer, 0, MSG).is_empty() && page_numbers(&logs.footer, 0, "other").is_empty());
    let pages = |bits: [bool; 3], most: usize| logs.pages_of(0, "status", &BooleanBuffer::from(&bits[..]), most);
    assert_eq!(pages([true, false, true], 5), Some(vec![(0, 0..3)]));
    assert_eq!(pages([false; 3], 0), Some(Vec::new()));
    assert_eq!(pages([true; 3], 0), None, "more than none");
    assert_eq!((logs.pages(0, "status"), logs.pages(0, "other")), (1, 0));
    let all = logs.wanted_bytes(0, &|_| true);
    assert!(logs.column_bytes(0, MSG) > 0 && all > logs.column_bytes(0, MSG));
    assert_eq!((logs.wanted_bytes(0, &|_| false), logs.column_bytes(0, "other")), (0, 0));
    let rows = logs.row_bytes(0, 1, &|_| true, &BooleanBuffer::from(&[true, false, true][..]));
    assert_eq!(rows.len(), 3);
    assert!(rows[0] > 0.0 && rows[1] == 0.0 && (rows[0] - rows[2]).abs() < 1e-3, "{rows:?}");
}

#[test]
fn parts_that_are_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let empty = LogPartWriter::new(dir.path(), logs_spec(), plan(), SEVERITY).unwrap();
    let error = empty.finish().unwrap_err();
    assert_eq!((error.kind(), error.message.as_str()), (ErrorKind::Invalid, "a part without rows"));
    let with = Optional { overflow: true, ..Optional::default() };
    let mut writer = LogPartWriter::new(dir.path(), logs_spec(), plan(), with).unwrap();
    let rows: [Row; 1] = [(None, None, None)];
    let error = writer.write(group(0, &[(stream(&[], ""), 1)], &rows)).unwrap_err();
    assert_eq!(error.message, "a row group without its overflow map");
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path().join("logs/2024-10-04")).unwrap().count(), 0);
}
