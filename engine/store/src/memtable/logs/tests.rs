use quiver_types::logs::{MSG, RecordMarks};

use super::*;

fn batch(rows: &[(i64, &[(&str, &str)])]) -> LogsBatch {
    let mut batch = LogsBatch { services: vec!["".into(), "s".into()], ..Default::default() };
    let stream = batch.push_stream(LabelSet::from_pairs([("app", "a")]).canonical());
    for (time, fields) in rows {
        for (name, value) in *fields {
            let at = batch.names.iter().position(|n| **n == **name).unwrap_or_else(|| {
                batch.names.push((*name).into());
                batch.names.len() - 1
            });
            batch.push_field(at as u32, value);
        }
        let marks = RecordMarks { severity: u8::from(*time == 3), observed: i64::from(*time == 4) };
        batch.end_row(*time, stream, 1, marks);
    }
    batch
}

fn dump(view: &LogsView) -> Vec<String> {
    let mut out = Vec::new();
    for (chunk, visible) in &view.chunks {
        let rows = &chunk.rows;
        for row in 0..*visible {
            let fields = rows
                .fields(row)
                .map(|f| (rows.names.value(rows.field_names[f] as usize).to_owned(), rows.values.value(f).to_owned()));
            let severity = rows.severity.as_ref().map_or(0, |s| s[row]);
            let observed = rows.observed.as_ref().map_or(0, |o| o[row]);
            let fields = fields.collect::<Vec<_>>();
            out.push(format!("{} {} {severity} {observed} {fields:?}", rows.time[row], rows.slots[row]));
        }
    }
    out
}

#[test]
fn small_batches_are_merged_and_cut_by_their_writes() {
    let logs = LiveLogs::default();
    for i in 1..=20 {
        let text = format!("message number {i}");
        let name = format!("f{}", i % 3);
        let prepared = PreparedLogs::new(batch(&[(i, &[(MSG, &text), (&name, "x")])])).expect("sound");
        let (slot, new) = logs.slot(&prepared.pairs[0]);
        assert_eq!((slot, new), (0, i == 1));
        logs.insert(prepared.rows, i as u32, &[0]);
    }
    let all = logs.view(u32::MAX, (i64::MIN, i64::MAX));
    assert!(all.chunks.len() < 6, "{}", all.chunks.len());
    let lines = dump(&all);
    assert_eq!(lines.len(), 20);
    assert_eq!(lines[2], r#"3 0 1 0 [("_msg", "message number 3"), ("f0", "x")]"#);
    for cut in [0, 1, 7, 19] {
        assert_eq!(dump(&logs.view(cut, (i64::MIN, i64::MAX))), lines[..cut as usize]);
    }
    let (chunk, rows) = &all.chunks[0];
    let column = chunk.rows.column(chunk.rows.name("f1").expect("there"), *rows);
    assert_eq!((column.value(0), column.is_null(1)), ("x", true));
    assert_eq!(chunk.rows.column(chunk.rows.name(MSG).expect("there"), 2).value(1), "message number 2");
}

/// Breaks if a batch of a decoder with a fault ends the process, or is stored as something else.
#[test]
fn a_batch_that_contradicts_itself_is_refused() {
    let check = |why: &str, change: fn(&mut LogsBatch)| {
        let mut batch = batch(&[(1, &[(MSG, "first"), ("a", "x")]), (2, &[]), (3, &[(MSG, "third")])]);
        assert!(PreparedLogs::new(batch.clone()).is_ok());
        change(&mut batch);
        let error = PreparedLogs::new(batch).expect_err(why);
        assert_eq!(error.kind(), crate::ErrorKind::Internal, "{why}");
        assert!(error.message.contains(why), "{error}");
    };
    check("columns differ in length", |b| b.row_streams.truncate(2));
    check("columns differ in length", |b| b.row_services.push(0));
    check("columns differ in length", |b| b.field_ends.truncate(2));
    check("columns differ in length", |b| b.time.clear());
    check("severities or times of observation", |b| b.severity.truncate(1));
    check("severities or times of observation", |b| b.observed = vec![1, 2]);
    check("an index is out of bounds", |b| b.row_streams[1] = 1);
    check("an index is out of bounds", |b| b.row_services[0] = u32::MAX);
    check("an index is out of bounds", |b| b.field_names[2] = 2);
    check("an index is out of bounds", |b| b.names.truncate(1));
    check("an index is out of bounds", |b| b.value_ends.truncate(2));
    check("an index is out of bounds", |b| b.field_ends[2] = 2);
    check("an index is out of bounds", |b| b.field_ends[2] = 4);
    check("ends of rows do not ascend", |b| b.field_ends[0] = 4);
    check("ends of values do not ascend", |b| b.value_ends[0] = 7);
    check("not UTF-8", |b| b.values[0] = 0xff);
    // The end of a value within a character, and values that end behind all bytes.
    check("not UTF-8", |b| {
        b.values[4..6].copy_from_slice("é".as_bytes());
    });
    check("not UTF-8", |b| b.value_ends[2] += 1);
}

#[test]
fn a_batch_without_rows_or_fields_is_sound() {
    let empty = PreparedLogs::new(LogsBatch::default()).expect("sound");
    assert_eq!((empty.rows.len(), empty.pairs.len(), empty.rows.names_len()), (0, 0, 0));
    let bare = PreparedLogs::new(batch(&[(7, &[]), (i64::MIN, &[])])).expect("sound");
    assert_eq!((bare.rows.len(), bare.rows.range(), bare.rows.flags()), (2, (i64::MIN, 7), 0));
    assert!(bare.rows.fields(0).is_empty() && bare.rows.fields(1).is_empty());
    assert_eq!(bare.rows.name(MSG), None);
}

#[test]
fn streams_and_services_are_pairs() {
    let mut all = LogsBatch { services: vec!["".into(), "s".into()], ..LogsBatch::default() };
    let labels = LabelSet::from_pairs([("app", "a")]);
    // The same stream stands twice.
    let streams = [labels.canonical(), &[], labels.canonical()].map(|bytes| all.push_stream(bytes));
    for (stream, service) in [(0, 0), (0, 0), (1, 0), (0, 1), (0, 0), (2, 0)] {
        all.end_row(1, streams[stream], service, RecordMarks::default());
    }
    let prepared = PreparedLogs::new(all).expect("sound");
    assert_eq!(prepared.rows.slots.to_vec(), [0, 0, 1, 2, 0, 3]);
    let keys: Vec<_> = prepared.pairs.iter().map(LiveStream::key).collect();
    assert_eq!(keys, [(labels.canonical(), ""), (&[][..], ""), (labels.canonical(), "s"), (labels.canonical(), "")]);
    // In a generation they have one slot.
    let joined = PreparedLogs::join(vec![prepared]);
    assert_eq!((joined.rows.slots.to_vec(), joined.pairs.len()), (vec![0, 0, 1, 2, 0, 0], 3));
}

#[test]
fn batches_are_joined_with_their_names_and_marks() {
    let of = |rows: &[(i64, &[(&str, &str)])]| PreparedLogs::new(batch(rows)).expect("sound");
    let parts = vec![
        of(&[(1, &[(MSG, "one"), ("a", "x")])]),
        of(&[(2, &[("b", "y"), (MSG, "two")]), (3, &[])]),
        of(&[(4, &[("a", "")])]),
    ];
    let bytes: usize = parts.iter().map(|part| part.bytes).sum();
    let PreparedLogs { rows, pairs, bytes: joined } = PreparedLogs::join(parts);
    assert_eq!((rows.len(), pairs.len(), joined), (4, 1, bytes));
    assert_eq!(rows.names.iter().flatten().collect::<Vec<_>>(), [MSG, "a", "b"]);
    let field = |row: usize| {
        let one = |f: usize| (rows.names.value(rows.field_names[f] as usize), rows.values.value(f));
        rows.fields(row).map(one).collect::<Vec<_>>()
    };
    assert_eq!(
        [field(0), field(1), field(2), field(3)],
        [vec![(MSG, "one"), ("a", "x")], vec![("b", "y"), (MSG, "two")], vec![], vec![("a", "")]]
    );
    // Rows of batches without marks have none.
    assert_eq!(rows.severity.as_ref().map(|s| s.to_vec()), Some(vec![0, 0, 1, 0]));
    assert_eq!(rows.observed.as_ref().map(|o| o.to_vec()), Some(vec![0, 0, 0, 1]));
    assert_eq!(rows.flags(), record::OPTIONAL | record::OPTIONAL_2);
}

/// The record's columns have an order: a time of observation never stands where the severity is looked for.
#[test]
fn times_of_observation_come_with_severities() {
    let entries: Fields = vec![
        arrow::datatypes::Field::new("name", arrow::datatypes::DataType::UInt32, false),
        arrow::datatypes::Field::new("value", arrow::datatypes::DataType::Utf8, false),
    ]
    .into();
    let check = |times: &[i64], columns: usize, flags: u16| {
        let rows: Vec<(i64, &[(&str, &str)])> = times.iter().map(|&time| (time, &[][..])).collect();
        let rows = PreparedLogs::new(batch(&rows)).expect("sound").rows;
        assert_eq!((rows.columns(entries.clone()).len(), rows.flags()), (columns, flags), "{times:?}");
    };
    check(&[], 3, 0);
    check(&[1, 2], 3, 0);
    check(&[1, 3], 4, record::OPTIONAL);
    check(&[1, 4], 5, record::OPTIONAL | record::OPTIONAL_2);
    check(&[3, 4], 5, record::OPTIONAL | record::OPTIONAL_2);
}

#[test]
fn a_view_holds_what_may_lie_in_a_range() {
    let logs = LiveLogs::default();
    // So many rows that batches stay apart.
    let many = |first: i64| -> Vec<(i64, &[(&str, &str)])> {
        (first..first + MERGE_ROWS as i64).map(|time| (time, &[][..])).collect()
    };
    for (seq, first) in [(1, 10_000), (2, 20_000), (4, 30_000)] {
        let prepared = PreparedLogs::new(batch(&many(first))).expect("sound");
        logs.slot(&prepared.pairs[0]);
        logs.insert(prepared.rows, seq, &[0, first as i32]);
    }
    let check = |cut: u32, range: (i64, i64), expected: &[i64]| {
        let view = logs.view(cut, range);
        let firsts: Vec<i64> = view.chunks.iter().map(|(chunk, _)| chunk.range.0).collect();
        assert_eq!(firsts, expected, "{range:?} up to {cut}");
        assert!(view.chunks.iter().all(|(chunk, rows)| *rows == chunk.rows.len()));
        assert_eq!(view.streams.len(), usize::from(!expected.is_empty()), "none without rows");
    };
    let all = (i64::MIN, i64::MAX);
    check(u32::MAX, all, &[10_000, 20_000, 30_000]);
    check(3, all, &[10_000, 20_000]);
    check(0, all, &[]);
    check(u32::MAX, (0, 9_999), &[]);
    check(u32::MAX, (14_095, 20_000), &[10_000, 20_000]);
    check(u32::MAX, (14_096, 19_999), &[]);
    check(u32::MAX, (i64::MAX, i64::MIN), &[]);
    assert_eq!(logs.days(), [0, 10_000, 20_000, 30_000]);
}
