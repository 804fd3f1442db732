//! Roll-ups of few spans, in every order.

use super::*;
use crate::spans::{ContextFields, RollupKind, RollupRow, SHARED, SpanFields, SpansBuilder, UNLISTED, Value};

/// Id, parent, service, kind, minute, peer.
type Short = (u64, u64, &'static str, u8, i64, &'static str);

fn batch(spans: &[Short]) -> RecordBatch {
    let mut b = SpansBuilder::default();
    for &(id, parent, service, kind, minute, peer) in spans {
        let context = b.context(&ContextFields { service, ..Default::default() });
        if !peer.is_empty() {
            b.attributes(&mut vec![("peer.service", Value::Text(peer))]);
        }
        b.span(&SpanFields {
            trace_id: 7u128.to_be_bytes(),
            span_id: (id & 0xff).to_be_bytes(),
            parent: parent.to_be_bytes(),
            context,
            name: "op",
            kind,
            start: minute * 60_000_000_000,
            end: minute * 60_000_000_000 + 1000,
            marks: if id > 0xff { SHARED } else { 0 },
            ..Default::default()
        });
    }
    b.finish().flat()
}

/// Edges as `caller>called sort count`, then the ids of open spans.
fn edges(builder: &RollupBuilder) -> Vec<String> {
    let rows = builder.rows(|kind| matches!(kind, RollupKind::EdgeHour | RollupKind::Open));
    let text = |row: &RollupRow| match row.ids {
        Some((_, id, _)) => format!("open {}", u64::from_be_bytes(id)),
        None => format!("{}>{} {} {}", row.service, row.peer, row.sort, row.counts.spans),
    };
    rows.iter().map(text).collect()
}

fn check(spans: &[Short], expected: &[&str]) {
    let mut order: Vec<Short> = spans.to_vec();
    for _ in 0..order.len() {
        order.rotate_left(1);
        let mut builder = RollupBuilder::default();
        for one in &order {
            builder.push(&batch(&[*one])).unwrap();
        }
        assert_eq!(edges(&builder), expected, "{order:?}");
    }
}

#[test]
fn every_order_gives_the_same_calls() {
    let all = [
        (1, 0, "front", 2, 0, ""),
        (2, 1, "front", 3, 0, "back"),
        (3, 2, "back", 2, 0, ""),
        (4, 3, "back", 3, 1, "db"),
    ];
    check(&all, &[">front 4 1", "back>db 3 1", "front>back 0 1"]);
    // Who answers is not there: the call is to something that sends no spans.
    check(&all[..2], &[">front 4 1", "front>back 3 1"]);
    // The caller is not there.
    check(&all[2..], &["back>db 3 1", "open 3"]);
}

#[test]
fn halves_of_a_shared_id_call_each_other() {
    let all = [(1, 0, "front", 2, 0, ""), (2, 1, "front", 3, 0, "back"), (0x102, 1, "back", 2, 0, "")];
    check(&all, &[">front 4 1", "front>back 0 1"]);
    // What the called half did is no call of the other half.
    let below = [(3, 2, "back", 1, 0, ""), (4, 2, "back", 3, 0, "db")];
    let all = [&all[..], &below].concat();
    check(&all, &[">front 4 1", "back>db 3 1", "front>back 0 1"]);
}

/// A called half that comes first, and was counted as called by its parent, or by a user, is called by the other half.
#[test]
fn a_called_half_has_one_caller() {
    let user = (1, 0, "front", 2, 0, "");
    let cases: [(u64, u64, &[Short]); 4] = [(1, 2, &[user]), (1, 0x102, &[user]), (0, 2, &[]), (0, 0x102, &[])];
    for (parent, called, above) in cases {
        let halves = [(2, parent, "front", 3, 0, "back"), (called, parent, "back", 2, 0, "")];
        let mut all = [above, &halves].concat();
        let expected = [">front 4 1", "front>back 0 1"];
        check(&all, &expected[1 - above.len()..]);
        all.reverse();
        check(&all, &expected[1 - above.len()..]);
    }
}

#[test]
fn what_waited_long_enough_is_let_go() {
    let mut builder = RollupBuilder::in_order();
    builder.push(&batch(&[(1, 0, "a", 3, 0, "b"), (2, 9, "b", 2, 1, "")])).unwrap();
    builder.push(&batch(&[(3, 1, "b", 2, 5, ""), (4, 1, "b", 2, 30, "")])).unwrap();
    assert_eq!(edges(&builder), ["a>b 0 1", "open 2", "open 4"]);
    assert!(builder.known.len() == 1);
}

#[test]
fn too_many_operations_are_said_to_be() {
    let mut b = SpansBuilder::default();
    let context = b.context(&ContextFields { service: "s", ..Default::default() });
    for i in 0..=LISTED_MAX as u64 {
        let name = format!("GET /items/{i}");
        let (trace_id, span_id) = (u128::from(i + 1).to_be_bytes(), (i + 1).to_be_bytes());
        b.span(&SpanFields { trace_id, span_id, context, name: &name, start: 5, end: 6, ..Default::default() });
    }
    let mut builder = RollupBuilder::default();
    builder.push(&b.finish().flat()).unwrap();
    let rows = builder.rows(|kind| kind == RollupKind::Operation);
    assert_eq!(rows.iter().map(|r| r.sort).collect::<Vec<_>>(), [UNLISTED]);
    assert_eq!(builder.rows(|kind| kind == RollupKind::Instance)[0].counts.spans, LISTED_MAX as u64 + 1);
}

#[test]
fn rows_come_back_from_a_batch() {
    let mut builder = RollupBuilder::default();
    builder.push(&batch(&[(1, 0, "a", 3, 0, "b"), (2, 9, "b", 2, 70, "")])).unwrap();
    let rows = builder.rows(|_| true);
    let batch = crate::spans::rollup_batch(rows.iter()).unwrap();
    let read = crate::spans::RollupRows::of(&batch).unwrap();
    let back: Vec<RollupRow> = (0..batch.num_rows()).filter_map(|i| read.row(i)).collect();
    assert_eq!(back, rows);
    assert_eq!(rows.iter().filter(|r| r.kind == RollupKind::Operation).count(), 2);
    assert!(rows.is_sorted_by_key(|r| (r.kind, r.minute)));
}

#[test]
fn what_was_reported_elsewhere_counts_without_its_calls() {
    let flat = batch(&[(1, 0, "front", 2, 0, ""), (2, 1, "front", 3, 0, "back"), (3, 2, "back", 2, 0, "")]);
    let mut b = SpansBuilder::default();
    let context = b.context(&ContextFields { service: "back", ..Default::default() });
    for (id, kind) in [(3u64, 2), (4, 3)] {
        b.attributes(&mut vec![("peer.service", Value::Text("store"))]);
        let (trace_id, span_id, parent) = (7u128.to_be_bytes(), id.to_be_bytes(), (id - 1).to_be_bytes());
        b.span(&SpanFields { trace_id, span_id, parent, context, name: "op", kind, end: 500, ..Default::default() });
    }
    let again = b.finish();
    let of = again.spans["context"].as_primitive::<arrow::datatypes::UInt32Type>().values();
    let attributes = again.spans["attributes"].as_binary::<i32>();
    let mut builder = RollupBuilder::default();
    builder.push(&flat).unwrap();
    builder.push_spans(&again.spans, &again.contexts, of, |i| attributes.value(i), false).unwrap();
    assert_eq!(edges(&builder), [">front 4 1", "front>back 0 1"], "no call, and nothing open");
    for kind in [RollupKind::NodeHour, RollupKind::Operation, RollupKind::Instance] {
        let rows = builder.rows(|k| k == kind);
        let of_back: u64 = rows.iter().filter(|r| r.service == "back").map(|r| r.counts.spans).sum();
        assert_eq!(of_back, 3, "{kind:?}");
    }
}
