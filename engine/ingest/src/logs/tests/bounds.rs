//! Limits on what small bodies can cause: names, shared fields and lists of fields cost no more than their size.

use quiver_types::logs::FIELD_BYTES;
use quiver_types::{ErrorKind, LogsBatch};
use serde_json::json;

use super::{NOW, context, lines, rows_of};
use crate::logs::{DecodedLogs, DropReason, JsonLines, LogsLimits, otlp, push, saas};
use crate::wire::put_bytes;

fn dropped(decoded: &DecodedLogs) -> Vec<(DropReason, u64)> {
    decoded.report.dropped().collect()
}

fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, number, bytes);
    out
}

/// An OTLP request: a resource with so many attributes of nothing, and records of nothing.
fn empties(attributes: usize, records: usize) -> Vec<u8> {
    let resource = field(1, &field(1, &[]).repeat(attributes));
    let records = field(2, &field(2, &[]).repeat(records));
    field(1, &[resource, records].concat())
}

/// A stream of a push with so many labels without a value, and entries of nothing.
fn labels(labels: usize, entries: usize) -> Vec<u8> {
    let text = format!("{{{}}}", vec!["a=\"\""; labels].join(","));
    field(1, &[field(1, text.as_bytes()), field(2, &[]).repeat(entries)].concat())
}

/// Short records become long rows where the request adds fields, and whoever decodes them knows by how much.
#[test]
fn what_a_request_adds_to_rows_is_told() {
    let added = |query: &[(&str, &str)]| {
        let mut decoder = JsonLines::new(&context(query));
        let told = decoder.rows.added_bytes();
        decoder.feed(b"{}\n{}\n");
        let batches = decoder.rows.take_all();
        let values = batches.iter().map(|batch| batch.values.len() + FIELD_BYTES * batch.value_ends.len());
        assert_eq!(values.sum::<usize>(), 2 * told, "{query:?}");
        told
    };
    assert_eq!(added(&[]), 0, "rows of nothing are dropped");
    assert_eq!(added(&[("extra_fields", "a=xyz,long=12345678")]), 11 + 2 * FIELD_BYTES);
}

#[test]
fn names_of_broken_lines_are_forgotten() {
    let mut decoder = JsonLines::new(&context(&[]));
    for line in 0..20 {
        let names: Vec<String> = (0..15_000).map(|i| format!("\"{:x}\":\"\"", line * 15_000 + i)).collect();
        decoder.feed(format!("{{{},x\n", names.join(",")).as_bytes());
        assert!(decoder.rows.names.list.len() <= 20_000, "{}", decoder.rows.names.list.len());
    }
    decoder.feed(b"{\"a\":\"1\"}\n");
    decoder.finish();
    assert_eq!(rows_of(&decoder.rows.take_all()), [json!({"_time": NOW, "a": "1"})]);
    assert_eq!(decoder.rows.report.dropped().collect::<Vec<_>>(), [(DropReason::Unreadable, 20)]);
}

/// Fields without a value are none, but their names were kept however many there were.
#[test]
fn a_row_brings_names_within_reason() {
    let members: Vec<String> = (0..100_000).map(|i| format!("\"{i:x}\":\"\"")).collect();
    let record = format!("{{{}}}", members.join(","));
    let check = |decoded: DecodedLogs, of: &str| {
        assert_eq!((dropped(&decoded), decoded.report.rows), (vec![(DropReason::TooManyFields, 1)], 0), "{of}");
    };
    check(saas::decode(record.as_bytes(), &saas::UrlFields::default(), &context(&[])).unwrap(), "saas");
    let stream = |entry: serde_json::Value| json!({"streams": [{"stream": {}, "values": [entry]}]}).to_string();
    check(
        push::decode_json(stream(json!(["1", record])).as_bytes(), &context(&[])).unwrap(),
        "a line that is an object",
    );
    let metadata: serde_json::Value = serde_json::from_str(&record).unwrap();
    check(push::decode_json(stream(json!(["1", "m", metadata])).as_bytes(), &context(&[])).unwrap(), "metadata");
    let attributes =
        (0..100_000).map(|i| field(6, &field(1, format!("{i:x}").as_bytes()))).collect::<Vec<_>>().concat();
    let request = field(1, &field(2, &field(2, &attributes)));
    check(otlp::decode(&request, &context(&[])).unwrap(), "attributes");
    // A name too long keeps an object JSON; those before it are forgotten with it.
    let (rows, _) = lines(&[], &format!("{{\"o\":{{\"p\":\"1\",\"{}\":\"2\"}},\"q\":\"3\"}}\n", "n".repeat(200)));
    assert_eq!((rows.len(), &rows[0]["q"]), (1, &json!("3")));
}

/// Where each value stands takes eight times as much as a value of one byte.
#[test]
fn batches_of_short_values_are_no_longer_than_others() {
    let mut decoder = JsonLines::new(&context(&[]));
    let members: Vec<String> = (0..990).map(|i| format!("\"{i:x}\":1")).collect();
    let line = format!("{{{}}}\n", members.join(","));
    let (mut rows, limit) = (0, LogsLimits::default().batch_bytes);
    for _ in 0..2000 {
        decoder.feed(line.as_bytes());
        assert!(decoder.rows.open_bytes() < 2 * limit, "{}", decoder.rows.open_bytes());
        rows += decoder.rows.take_full().iter().map(LogsBatch::len).sum::<usize>();
    }
    assert!(rows > 1000, "{rows}");
    rows += decoder.rows.take_all().iter().map(LogsBatch::len).sum::<usize>();
    assert_eq!(rows, 2000);
}

#[test]
fn rows_share_fields_within_reason() {
    let few = otlp::decode(&empties(4096, 10), &context(&[])).unwrap();
    assert_eq!((dropped(&few), few.report.rows), (vec![], 10));
    let many = otlp::decode(&empties(4097, 1_000_000), &context(&[])).unwrap();
    assert_eq!(dropped(&many), [(DropReason::TooManyFields, 1_000_000)]);
    let many = push::decode_protobuf(&labels(4097, 1_000_000), &context(&[])).unwrap();
    assert_eq!(dropped(&many), [(DropReason::TooManyFields, 1_000_000)]);
    let mut ctx = context(&[]);
    ctx.limits.total_bytes_max = 8 << 20;
    for decoded in
        [otlp::decode(&empties(4096, 1_000_000), &ctx), push::decode_protobuf(&labels(4096, 1_000_000), &ctx)]
    {
        assert_eq!(decoded.unwrap_err().kind(), ErrorKind::TooLarge, "each of them is added a million times");
    }
    let url = saas::UrlFields { ddtags: Some(vec!["a:"; 4000].join(",")), ..saas::UrlFields::default() };
    let records = format!("[{}]", vec!["{}"; 100_000].join(","));
    let decoded = saas::decode(records.as_bytes(), &url, &ctx);
    assert_eq!(decoded.unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn what_rows_share_is_no_longer_than_a_row() {
    let pair = [field(1, b"k"), field(2, &field(1, "x".repeat(3 << 20).as_bytes()))].concat();
    let resource = field(1, &field(1, &pair));
    let records = field(2, &field(2, &[]).repeat(100_000));
    let decoded = otlp::decode(&field(1, &[resource, records].concat()), &context(&[])).unwrap();
    assert_eq!(dropped(&decoded), [(DropReason::LargeRow, 100_000)]);
    // Lists of nothing are longer as text than as they came.
    let list = field(6, &field(2, &field(5, &field(1, &[]).repeat(5 << 20))));
    let decoded = otlp::decode(&field(1, &field(2, &field(2, &list))), &context(&[])).unwrap();
    assert_eq!(dropped(&decoded), [(DropReason::LargeRow, 1)]);
    // A map of a million of nothing.
    let map = field(6, &field(2, &field(6, &field(1, &[]).repeat(1 << 20))));
    let decoded = otlp::decode(&field(1, &field(2, &field(2, &map))), &context(&[])).unwrap();
    assert_eq!(dropped(&decoded), [(DropReason::TooManyFields, 1)]);
}
