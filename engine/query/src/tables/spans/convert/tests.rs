//! Rows of spans out of stored columns.

use arrow::array::{
    Array as _, AsArray as _, BinaryArray, BinaryViewBuilder, FixedSizeBinaryArray, Int64Array, MapArray,
    StringViewArray, UInt8Array,
};
use arrow::datatypes::{Int64Type, TimeUnit, TimestampNanosecondType};
use quiver_types::ErrorKind;
use quiver_types::spans::{Attributes, EventRef, LinkRef, Value, code_each, hex, push_event, push_link};

use super::*;
use crate::tables::cells::{text, text_map, time, uncoded};
use crate::tables::spans::columns::span_columns;

/// Plans columns of spans by their names.
fn planned(names: &[&str], kinds: &[(&str, CellKind)]) -> SpanRows {
    let fixed = span_columns();
    let field = |name: &&str| {
        let kind = kinds.iter().find(|(known, _)| known == name).map_or(CellKind::Text, |(_, kind)| *kind);
        let found = fixed.iter().find(|field| field.name() == name).cloned();
        found.unwrap_or_else(|| Field::new(*name, kind.data_type(), true))
    };
    let schema: SchemaRef = Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()));
    let kinds = kinds.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
    let all: Vec<usize> = (0..names.len()).collect();
    SpanRows::new(SpanRowKind::Span, &schema, &all, &kinds, &Arc::default()).unwrap()
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(code_each(&StringViewArray::from(values.to_vec())))
}

/// The stored columns that a conversion reads: those that are given by name, others are texts that no row has.
fn stored(rows: &SpanRows, count: usize, given: &[(&str, ArrayRef)]) -> RecordBatch {
    let column = |column: &SpanColumn| {
        let name = column.name();
        let found = given.iter().find(|(known, _)| *known == name).map(|(_, column)| Arc::clone(column));
        let column = found.unwrap_or_else(|| texts(&vec![None; count]));
        (name, column)
    };
    RecordBatch::try_from_iter_with_nullable(
        rows.stored().iter().map(column).map(|(name, column)| (name, column, true)),
    )
    .unwrap()
}

fn converted(rows: Arc<dyn Convert>, stored: RecordBatch) -> RecordBatch {
    let schema = rows.schema();
    let batches: Vec<RecordBatch> = rows.convert(stored).map(Result::unwrap).collect();
    arrow::compute::concat_batches(&schema, &batches).unwrap()
}

fn ids<const N: usize>(ids: &[[u8; N]]) -> ArrayRef {
    Arc::new(FixedSizeBinaryArray::try_from_iter(ids.iter()).unwrap())
}

fn shown(column: &ArrayRef) -> Vec<Option<&str>> {
    column.as_string_view().iter().collect()
}

/// The entries of a row of maps.
fn entries(maps: &MapArray, row: usize) -> Vec<(String, String)> {
    let entries = maps.value(row);
    let text = |column: usize, at: usize| entries.column(column).as_string::<i32>().value(at).to_owned();
    (0..entries.len()).map(|at| (text(0, at), text(1, at))).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn each_column_is_made_of_its_stored_one() {
    let names = ["trace_id", "parent_span_id", "service_name", "kind", "status_code", "start_time", "duration"];
    let rows = planned(&names, &[]);
    let given: [(&str, ArrayRef); 7] = [
        ("trace_id", ids(&[[0xab; 16], [0; 16]])),
        ("parent_span_id", ids(&[[0; 8], [1; 8]])),
        ("service", texts(&[Some("cart"), Some("")])),
        ("kind", Arc::new(UInt8Array::from(vec![2, 9]))),
        ("status", Arc::new(UInt8Array::from(vec![0, 2]))),
        ("start", Arc::new(Int64Array::from(vec![5, -1]))),
        ("duration", Arc::new(Int64Array::from(vec![7, 0]))),
    ];
    let of = stored(&rows, 2, &given);
    let out = converted(Arc::new(rows), of);
    assert_eq!(shown(out.column(0)), [Some("ab".repeat(16).as_str()), Some("0".repeat(32).as_str())]);
    assert_eq!(shown(out.column(1)), [None, Some("0101010101010101")], "an id of zeros is none");
    assert_eq!(shown(out.column(2)), [Some("cart"), None]);
    assert_eq!(shown(out.column(3)), [Some("SERVER"), Some("UNSPECIFIED")]);
    assert_eq!(shown(out.column(4)), [Some("UNSET"), Some("ERROR")]);
    assert_eq!(out.column(5).as_primitive::<TimestampNanosecondType>().values(), &[5, -1]);
    assert_eq!(out.column(6).as_primitive::<Int64Type>().values(), &[7, 0]);
}

/// Breaks if spans are put together by their number: each has a map of its own of what all share.
#[test]
fn resources_that_spans_share_are_read_few_at_once() {
    let rows = Arc::new(planned(&["resource"], &[]));
    let long = Attributes::of([("long", Value::Text(&"x".repeat(100_000)))]);
    let mut shared = BinaryViewBuilder::new().with_deduplicate_strings();
    (0..100).for_each(|_| shared.append_value(long.bytes()));
    let given: [(&str, ArrayRef); 2] =
        [("resource", Arc::new(shared.finish())), ("service", texts(&[Some("cart"); 100]))];
    let of = stored(&rows, 100, &given);
    let batches: Vec<RecordBatch> = Arc::clone(&rows).convert(of).map(Result::unwrap).collect();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [41, 41, 18]);
    let maps = arrow::compute::concat_batches(&rows.schema(), &batches).unwrap();
    assert_eq!(entries(maps.column(0).as_map(), 99)[0].1.len(), 100_000);
}

#[test]
fn attributes_are_maps_in_order_of_their_keys() {
    let rows = planned(&["attributes", "resource"], &[]);
    let own = Attributes::of([("a", Value::Int(-1)), ("b", Value::Bool(true)), ("c", Value::Text("x"))]);
    let around = Attributes::of([("host.name", Value::Text("h")), ("zone", Value::Text("z"))]);
    let before = Attributes::of([("host.name", Value::Text("h"))]);
    let given: [(&str, ArrayRef); 3] = [
        ("attributes", Arc::new(BinaryArray::from_vec(vec![own.bytes(), &[], &[]]))),
        ("resource", Arc::new(BinaryArray::from_vec(vec![around.bytes(), before.bytes(), before.bytes()]))),
        ("service", texts(&[Some("cart"), Some("cart"), Some("")])),
    ];
    let of = stored(&rows, 3, &given);
    let out = converted(Arc::new(rows), of);
    let (own, resource) = (out.column(0).as_map(), out.column(1).as_map());
    assert_eq!(entries(own, 0), pairs(&[("a", "-1"), ("b", "true"), ("c", "x")]));
    assert!(entries(own, 1).is_empty());
    let service = ("service.name", "cart");
    assert_eq!(entries(resource, 0), pairs(&[("host.name", "h"), service, ("zone", "z")]), "it has its place");
    assert_eq!(entries(resource, 1), pairs(&[("host.name", "h"), service]));
    assert_eq!(entries(resource, 2), pairs(&[("host.name", "h")]), "there is no service");
}

#[test]
fn older_names_stand_in_for_newer_ones() {
    let rows = planned(&["@server.port", "@url.path", "@rpc.method"], &[("@server.port", CellKind::Int)]);
    let given: [(&str, ArrayRef); 8] = [
        ("kind", Arc::new(UInt8Array::from(vec![3, 2, 3, 2]))),
        ("span.server.port", texts(&[None, None, Some("none"), Some("443")])),
        ("span.net.peer.port", texts(&[Some("80"), Some("80"), Some("80"), Some("80")])),
        ("resource.net.host.port", texts(&[None, Some("90"), None, Some("90")])),
        ("span.url.path", texts(&[Some("/a"), None, Some(""), None])),
        ("span.http.target", texts(&[Some("/b"), Some("/b?c=d"), Some("/b#e"), Some("?q")])),
        ("span.rpc.method", texts(&[Some("Get"), Some("a/Get"), Some("Get"), None])),
        ("span.rpc.service", texts(&[Some("shop"), Some("shop"), None, Some("shop")])),
    ];
    let of = stored(&rows, 4, &given);
    let out = converted(Arc::new(rows), of);
    let ports: Vec<Option<i64>> = out.column(0).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(ports, [Some(80), Some(90), None, Some(443)], "what is no number is NULL, whatever older names have");
    assert_eq!(shown(out.column(1)), [Some("/a"), Some("/b"), Some("/b"), None]);
    assert_eq!(shown(out.column(2)), [Some("shop/Get"), Some("a/Get"), Some("Get"), None]);
}

#[test]
fn codes_and_bytes_stand_for_the_same_values() {
    let names = ["trace_id", "parent_span_id", "name", "kind", "status_code", "@url.path", "@db.system.name"];
    let rows = Arc::new(planned(&names, &[]));
    let given: [(&str, ArrayRef); 7] = [
        ("trace_id", ids(&[[0xab; 16], [0; 16]])),
        ("parent_span_id", ids(&[[0; 8], [1; 8]])),
        ("name", texts(&[Some("GET"), Some("")])),
        ("kind", Arc::new(UInt8Array::from(vec![200, 5]))),
        ("status", Arc::new(UInt8Array::from(vec![1, 0]))),
        ("span.http.target", texts(&[Some("/a?b"), Some("?b")])),
        ("resource.db.system", texts(&[None, Some("mssql")])),
    ];
    let of = stored(&rows, 2, &given);
    let plain = converted(Arc::<SpanRows>::clone(&rows), of.clone());
    let convert = rows.coded().unwrap();
    assert_eq!(convert.detail(), ", texts by codes");
    let out = converted(convert, of.clone());
    for (at, name) in names.iter().enumerate().skip(2) {
        let texts = uncoded(out.column(at)).unwrap_or_else(|| panic!("{name} has codes"));
        assert_eq!(texts.iter().collect::<Vec<_>>(), shown(plain.column(at)), "{name}");
    }
    for (at, size) in [(0, 16), (1, 8)] {
        assert!(rows.has_id(at) && out.schema().field(at).metadata().contains_key("quiver.hex"));
        let bytes = out.column(at).as_fixed_size_binary();
        let hex: Vec<Option<String>> = bytes.iter().map(|id| id.map(hex)).collect();
        assert_eq!(
            (bytes.value_length(), hex),
            (size, shown(plain.column(at)).iter().map(|id| id.map(str::to_owned)).collect())
        );
    }
    let one = converted(rows.with_bytes(&[1]).unwrap(), of);
    assert_eq!(shown(one.column(0)), shown(plain.column(0)), "only what was asked for is bytes");
    assert_eq!(one.column(1).as_fixed_size_binary().null_count(), 1);
    assert!(!rows.has_id(2) && !rows.has_id(7) && rows.with_bytes(&[0, 2]).is_none(), "a name is no id");
}

#[test]
fn events_and_links_are_lists_of_their_span() {
    let rows = planned(&["events", "links"], &[]);
    let attributes = Attributes::of([("k", Value::Double(0.5))]);
    let (mut two, mut link) = (Vec::new(), Vec::new());
    for (time, name) in [(5, "first"), (6, "")] {
        push_event(&mut two, &EventRef { time, name, dropped: 1, attributes: attributes.bytes() });
    }
    let to = LinkRef { trace_id: [1; 16], span_id: [2; 8], trace_state: "", flags: 1, dropped: 0, attributes: &[] };
    push_link(&mut link, &to);
    let given: [(&str, ArrayRef); 2] = [
        ("events", Arc::new(BinaryArray::from_vec(vec![&two, &[], &two]))),
        ("links", Arc::new(BinaryArray::from_vec(vec![&[], &link, &[]]))),
    ];
    let of = stored(&rows, 3, &given);
    let out = converted(Arc::new(rows), of);
    let (events, links) = (out.column(0).as_list::<i32>(), out.column(1).as_list::<i32>());
    assert_eq!([0, 1, 2].map(|row| (events.value_length(row), links.value_length(row))), [(2, 0), (0, 1), (2, 0)]);
    let last = events.value(2);
    let last = last.as_struct();
    assert_eq!(last.column(0).as_primitive::<TimestampNanosecondType>().values(), &[5, 6]);
    assert_eq!(last.column(1).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("first"), None]);
    assert_eq!(entries(last.column(2).as_map(), 1), pairs(&[("k", "0.5")]));
    let link = links.value(1);
    let link = link.as_struct();
    assert_eq!(link.column(0).as_string::<i32>().value(0), "01".repeat(16));
    assert_eq!(link.column(1).as_string::<i32>().value(0), "02".repeat(8));
    assert!(link.column(2).is_null(0), "an empty state is none");
}

#[test]
fn links_become_rows() {
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        text("linked_trace_id"),
        text("linked_span_id"),
        text_map("attributes"),
        text("span_id"),
    ]));
    let rows = SpanRows::new(SpanRowKind::Link, &schema, &[0, 1, 2, 3], &Vec::new(), &Arc::default()).unwrap();
    let mut two = Vec::new();
    for byte in [1, 2] {
        let attributes = Attributes::of([("n", Value::Int(i64::from(byte)))]);
        let (trace_id, span_id) = ([byte; 16], [byte; 8]);
        let to = LinkRef { trace_id, span_id, trace_state: "s", flags: 0, dropped: 0, attributes: attributes.bytes() };
        push_link(&mut two, &to);
    }
    let given: [(&str, ArrayRef); 2] =
        [("span_id", ids(&[[9; 8], [8; 8]])), ("links", Arc::new(BinaryArray::from_vec(vec![&[], &two])))];
    let of = stored(&rows, 2, &given);
    assert!(rows.coded().is_none() && !rows.has_id(3), "rows of links have no other form");
    let out = converted(Arc::new(rows), of);
    assert_eq!(shown(out.column(0)), [Some("01".repeat(16).as_str()), Some("02".repeat(16).as_str())]);
    assert_eq!(shown(out.column(1)), [Some("01".repeat(8).as_str()), Some("02".repeat(8).as_str())]);
    assert_eq!(entries(out.column(2).as_map(), 1), pairs(&[("n", "2")]));
    assert_eq!(shown(out.column(3)), [Some("0808080808080808"); 2], "what is of the span is of each of its rows");
}

#[test]
fn what_is_no_column_is_an_error() {
    let plan = |name: &str| {
        let schema: SchemaRef = Arc::new(Schema::new(vec![text(name)]));
        SpanRows::new(SpanRowKind::Span, &schema, &[0], &Vec::new(), &Arc::default())
    };
    for name in ["nope", "attributes.unknown", "attributes.", "linked_trace_id"] {
        let error = plan(name).unwrap_err();
        assert_eq!((error.kind, error.message), (ErrorKind::Internal, format!("spans have no column `{name}`")));
    }
    for (name, of_another_type) in [("trace_id", "an id"), ("kind", "a number"), ("start_time", "a time")] {
        let rows = plan(name).unwrap();
        let of = stored(&rows, 1, &[]);
        let error = Arc::new(rows).convert(of).next().unwrap().unwrap_err();
        assert_eq!(error.message, format!("{of_another_type} of a scan of spans is of another type"));
    }
}

#[test]
fn events_become_rows() {
    let schema: SchemaRef = Arc::new(Schema::new(vec![text("name"), time("span_start", TimeUnit::Nanosecond)]));
    let rows = SpanRows::new(SpanRowKind::Event, &schema, &[0, 1], &Vec::new(), &Arc::default()).unwrap();
    assert_eq!(rows.stored(), [SpanColumn::Own("start"), SpanColumn::Own("events")]);
    let attributes = Attributes::of([("k", Value::Int(1))]);
    let mut two = Vec::new();
    for name in ["first", ""] {
        push_event(&mut two, &EventRef { time: 5, name, dropped: 0, attributes: attributes.bytes() });
    }
    let stored = RecordBatch::try_from_iter([
        ("start", Arc::new(Int64Array::from(vec![7, 8])) as ArrayRef),
        ("events", Arc::new(BinaryArray::from_vec(vec![&[], &two])) as ArrayRef),
    ]);
    let stored = stored.unwrap();
    let out: Vec<RecordBatch> = Arc::new(rows).convert(stored).map(Result::unwrap).collect();
    assert_eq!(out.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
    assert_eq!(out[0].column(0).as_string_view().iter().collect::<Vec<_>>(), [Some("first"), None]);
    let starts = out[0].column(1).as_primitive::<TimestampNanosecondType>();
    assert_eq!(starts.values(), &[8, 8]);
}

#[test]
fn counting_needs_no_column() {
    let schema: SchemaRef = Arc::new(Schema::new(vec![text("name")]));
    let rows = SpanRows::new(SpanRowKind::Span, &schema, &[], &Vec::new(), &Arc::default()).unwrap();
    assert_eq!(rows.stored(), []);
    let stored = batch(&Arc::new(Schema::empty()), Vec::new(), 10_000);
    let out = Arc::new(rows).convert(stored.unwrap()).map(|b| b.unwrap().num_rows());
    assert_eq!(out.collect::<Vec<_>>(), [8192, 1808]);
}
