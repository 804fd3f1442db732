//! Responses as messages of Tempo's `tempopb`: JSON by field names, or protobuf by field numbers. All of them have a
//! list in field 1 and statistics in field 2, which are empty over HTTP. Over gRPC a list may go in several messages, since
//! clients take none of more than 4 MiB; they join what they get.

use std::io::{self, Write};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use quiver_ingest::wire::{VARINT, put_bytes, put_varint, tag};
use quiver_traces::TraceError;
use quiver_types::Result as EngineResult;
use quiver_types::text::from_base64;
use serde_json::Value;

use super::wants_protobuf;
use crate::encode::body_pieces::Text;
use crate::encode::protobuf::{put_double, put_message, put_text, put_uint};
use crate::grpc_call::{frame_head, framed};
use crate::traces_api::Call;

/// Field of the list.
pub(super) const LIST: u32 = 1;
/// Field of the statistics.
const FIGURES: u32 = 2;
/// Field of the status, and its value `PARTIAL`.
const STATUS: u32 = 3;
const PARTIAL: u64 = 1;
/// Field of the reason for that.
const REASON: u32 = 4;
/// Messages of a stream are no longer, unless a single row is: as in Tempo (`max_grpc_streaming_packet_size`).
const STREAMED_BYTES: usize = 1 << 20;

/// How a response is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerForm {
    /// JSON over HTTP.
    Json,
    /// One message over HTTP.
    Message,
    /// Messages over gRPC.
    Stream(StreamFigures),
}

impl AnswerForm {
    /// The form that a request over HTTP asks for.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        if wants_protobuf(headers) { Self::Message } else { Self::Json }
    }
}

/// The type of the statistics of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamFigures {
    /// `SearchMetrics`.
    Search,
    /// `MetadataMetrics`.
    Metadata,
}

impl StreamFigures {
    /// Appends how far the stream is: bytes that were read for it, if it is whole. A stream counts as one job.
    fn put(self, out: &mut Vec<u8>, whole: Option<u64>) {
        let [bytes, completed, total] = match self {
            Self::Search => [2, 4, 5],
            Self::Metadata => [1, 3, 2],
        };
        put_message(out, FIGURES, |out| {
            put_uint(out, bytes, whole.unwrap_or_default());
            put_uint(out, completed, u64::from(whole.is_some()));
            put_uint(out, total, 1);
        });
    }
}

/// The type of a field; a repeated one is a list in JSON.
#[derive(Debug)]
pub(super) enum FieldType {
    Text,
    /// Base64 in JSON.
    Bytes,
    /// An integer; may be a string in JSON, as may a double.
    Whole,
    Double,
    Bool,
    Message(&'static [Field]),
}

/// A field: name in JSON, number, type.
#[derive(Debug)]
pub(super) struct Field(&'static str, u32, FieldType);

static ANY: [Field; 7] = [
    Field("stringValue", 1, FieldType::Text),
    Field("boolValue", 2, FieldType::Bool),
    Field("intValue", 3, FieldType::Whole),
    Field("doubleValue", 4, FieldType::Double),
    Field("arrayValue", 5, FieldType::Message(&VALUES)),
    Field("kvlistValue", 6, FieldType::Message(&PAIRS)),
    Field("bytesValue", 7, FieldType::Bytes),
];
static VALUES: [Field; 1] = [Field("values", 1, FieldType::Message(&ANY))];
static PAIRS: [Field; 1] = [Field("values", 1, FieldType::Message(&PAIR))];
static PAIR: [Field; 2] = [Field("key", 1, FieldType::Text), Field("value", 2, FieldType::Message(&ANY))];

static SCOPE_FIELDS: [Field; 2] = [Field("name", 1, FieldType::Text), Field("tags", 2, FieldType::Text)];
static TYPED_FIELDS: [Field; 2] = [Field("type", 1, FieldType::Text), Field("value", 2, FieldType::Text)];

/// Tags of a scope (`SearchTagsV2Scope`).
pub(super) static SCOPE: FieldType = FieldType::Message(&SCOPE_FIELDS);
/// A value with its type (`TagValue`).
pub(super) static TYPED: FieldType = FieldType::Message(&TYPED_FIELDS);

/// Appends a JSON value as a field; null and values of the wrong type are left out.
pub(super) fn put(out: &mut Vec<u8>, number: u32, kind: &FieldType, value: &Value) {
    match (kind, value) {
        (_, Value::Null) => {}
        (_, Value::Array(list)) => list.iter().for_each(|one| put(out, number, kind, one)),
        (FieldType::Message(fields), value) => put_message(out, number, |out| put_fields(out, fields, value)),
        (FieldType::Text, Value::String(text)) => put_text(out, number, text),
        (FieldType::Bytes, Value::String(text)) => put_bytes(out, number, &from_base64(text).unwrap_or_default()),
        (FieldType::Bool, Value::Bool(value)) => put_whole(out, number, u64::from(*value)),
        (FieldType::Whole, value) => {
            let signed = |value: &Value| value.as_i64().or_else(|| value.as_str()?.parse().ok());
            if let Some(value) = value.as_u64().or_else(|| signed(value).map(|v| v as u64)) {
                put_whole(out, number, value);
            }
        }
        (FieldType::Double, value) => {
            if let Some(value) = value.as_f64().or_else(|| value.as_str()?.parse().ok()) {
                put_double(out, number, value);
            }
        }
        _ => {}
    }
}

/// Appends an integer, even 0: in a `oneof` it tells which type the value has.
pub(super) fn put_whole(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(tag(number, VARINT)));
    put_varint(out, value);
}

/// Appends the field of an `AnyValue`, which is given as JSON.
pub(super) fn put_any(out: &mut Vec<u8>, value: &Value) {
    put_fields(out, &ANY, value);
}

fn put_fields(out: &mut Vec<u8>, fields: &[Field], value: &Value) {
    for Field(name, number, kind) in fields {
        if let Some(value) = value.get(name) {
            put(out, *number, kind, value);
        }
    }
}

/// The list of a response while it is written.
struct ListWriter {
    text: Text,
    /// Set for a stream, whose messages are framed.
    stream: Option<StreamFigures>,
    /// The index of the first piece of the open message.
    begin: usize,
    /// Bytes of the open message.
    len: usize,
}

impl ListWriter {
    fn new(text: Text, form: AnswerForm) -> Self {
        let stream = if let AnswerForm::Stream(figures) = form { Some(figures) } else { None };
        Self { text, stream, begin: 0, len: 0 }
    }

    /// Appends an encoded item.
    fn add(&mut self, item: &[u8]) -> io::Result<()> {
        if let Some(figures) = self.stream.filter(|_| self.len > 0 && self.len + item.len() > STREAMED_BYTES) {
            let mut end = Vec::new();
            figures.put(&mut end, None);
            self.end_message(&end)?;
        }
        self.len += item.len();
        self.text.write_all(item)
    }

    fn end_message(&mut self, end: &[u8]) -> io::Result<()> {
        self.text.write_all(end)?;
        let head = frame_head(self.len + end.len());
        (self.begin, self.len) = (self.text.enclose(self.begin, head.to_vec())?, 0);
        Ok(())
    }

    /// Ends it, with the bytes that were read for it, and why items are missing.
    fn finish(mut self, read_bytes: u64, missing: Option<&str>) -> EngineResult<Body> {
        let mut end = Vec::new();
        match self.stream {
            Some(figures) => figures.put(&mut end, Some(read_bytes)),
            None => put_bytes(&mut end, FIGURES, &[]),
        }
        put_missing(&mut end, missing);
        // The body reports errors.
        let _ = if self.stream.is_some() { self.end_message(&end) } else { self.text.write_all(&end) };
        self.text.body()
    }
}

/// Sends a list whose items are appended by a function, each as a field. One item is in memory at a time, besides the
/// encoded ones, which are accounted.
pub(super) fn answer<R>(
    call: &Call,
    form: AnswerForm,
    rows: impl IntoIterator<Item = R>,
    put: impl FnMut(&mut Vec<u8>, R) -> Result<(), TraceError>,
) -> Result<Response, TraceError> {
    answer_of(call, form, rows, None, put)
}

/// Sends messages as a list, and why some are missing.
pub(super) fn answer_of<R>(
    call: &Call,
    form: AnswerForm,
    rows: impl IntoIterator<Item = R>,
    missing: Option<&str>,
    mut put: impl FnMut(&mut Vec<u8>, R) -> Result<(), TraceError>,
) -> Result<Response, TraceError> {
    let (mut list, mut one) = (ListWriter::new(call.text(), form), Vec::new());
    for row in rows {
        one.clear();
        put(&mut one, row)?;
        // The body reports errors.
        if list.add(&one).is_err() {
            break;
        }
    }
    let is_stream = list.stream.is_some();
    let body = list.finish(call.scanned_bytes(), missing)?;
    if is_stream {
        return Ok(framed(body));
    }
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, "application/protobuf")], body).into_response())
}

/// Appends why items are missing.
fn put_missing(out: &mut Vec<u8>, missing: Option<&str>) {
    if let Some(reason) = missing {
        put_whole(out, STATUS, PARTIAL);
        put_text(out, REASON, reason);
    }
}

/// Sends a list of JSON values.
pub(super) fn of_values(
    call: &Call,
    form: AnswerForm,
    kind: &FieldType,
    values: impl IntoIterator<Item = Value>,
) -> Result<Response, TraceError> {
    answer(call, form, values, |out, value| {
        put(out, LIST, kind, &value);
        Ok(())
    })
}

/// Sends a list of strings.
pub(super) fn of_texts<'t>(
    call: &Call,
    form: AnswerForm,
    texts: impl IntoIterator<Item = &'t String>,
) -> Result<Response, TraceError> {
    answer(call, form, texts, |out, text| {
        put_text(out, LIST, text);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use quiver_query::{EngineSettings, Limits, QueryContext, QueryEngine};
    use quiver_types::Access;
    use serde_json::json;

    use super::super::testing::read;
    use super::*;

    #[test]
    fn values_of_all_types() {
        let check = |value: Value, field: u32, bytes: &[u8], number: u64| {
            let mut out = Vec::new();
            put_fields(&mut out, &ANY, &value);
            assert_eq!(read(&out), [(field, bytes.to_vec(), number)], "{value}");
        };
        check(json!({"stringValue": ""}), 1, b"", 0);
        check(json!({"boolValue": false}), 2, b"", 0);
        check(json!({"intValue": "-1"}), 3, b"", u64::MAX);
        check(json!({"doubleValue": 0.5}), 4, b"", 0.5f64.to_bits());
        check(json!({"arrayValue": {"values": [{"intValue": "1"}]}}), 5, &[10, 2, 24, 1], 0);
        check(json!({"bytesValue": "AQI="}), 7, &[1, 2], 0);
    }

    #[test]
    fn numbers_may_be_texts() {
        let written = |kind: &FieldType, value: Value| {
            let mut out = Vec::new();
            put(&mut out, 3, kind, &value);
            read(&out).into_iter().map(|(number, _, value)| (number, value)).collect::<Vec<_>>()
        };
        for (value, expected) in [
            (json!(0), Some(0)),
            (json!(5), Some(5)),
            (json!("5"), Some(5)),
            (json!(u64::MAX), Some(u64::MAX)),
            (json!(-1), Some(u64::MAX)),
            (json!("-9223372036854775808"), Some(1 << 63)),
            (json!("9223372036854775808"), None),
            (json!(1.5), None),
            (json!("x"), None),
            (json!(""), None),
            (json!(true), None),
            (json!(null), None),
            (json!({"a": 1}), None),
        ] {
            let expected: Vec<(u32, u64)> = expected.map(|number| (3, number)).into_iter().collect();
            assert_eq!(written(&FieldType::Whole, value.clone()), expected, "{value}");
        }
        for (value, expected) in [
            (json!(0.25), Some(0.25)),
            (json!(-3), Some(-3.0)),
            (json!("1e3"), Some(1000.0)),
            (json!("inf"), Some(f64::INFINITY)),
            (json!("x"), None),
            (json!(false), None),
        ] {
            let expected: Vec<(u32, u64)> = expected.map(|number: f64| (3, number.to_bits())).into_iter().collect();
            assert_eq!(written(&FieldType::Double, value.clone()), expected, "{value}");
        }
    }

    #[test]
    fn what_is_of_another_kind_is_left_out() {
        for (kind, value) in [
            (FieldType::Text, json!(5)),
            (FieldType::Text, json!({})),
            (FieldType::Bytes, json!(5)),
            (FieldType::Bool, json!("true")),
            (FieldType::Bool, json!(1)),
            (FieldType::Message(&PAIR), json!(null)),
            (FieldType::Text, json!([null, 5])),
        ] {
            let mut out = Vec::new();
            put(&mut out, 1, &kind, &value);
            assert!(out.is_empty(), "{kind:?} {value}: {out:?}");
        }
        // A message without known members is present and empty.
        let mut out = Vec::new();
        put(&mut out, 1, &FieldType::Message(&PAIR), &json!({"other": 1}));
        assert_eq!(out, [10, 0]);
        // Invalid base64 counts as empty.
        let mut out = Vec::new();
        put(&mut out, 1, &FieldType::Bytes, &json!("%"));
        assert_eq!(out, [10, 0]);
    }

    /// The bytes of a list of items in a form.
    async fn written(form: AnswerForm, items: &[Vec<u8>], missing: Option<&str>) -> Vec<u8> {
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let engine = QueryEngine::new(&EngineSettings::small(32 << 20)).expect("an engine");
        let mut list = ListWriter::new(Text::new(&engine, &ctx), form);
        for item in items {
            list.add(item).expect("room");
        }
        let body = list.finish(300, missing).expect("room");
        body.collect().await.expect("a body").to_bytes().to_vec()
    }

    #[tokio::test]
    async fn what_is_missing_is_told_behind_the_list() {
        let item = [vec![10, 1, b'a']];
        assert_eq!(written(AnswerForm::Message, &item, None).await, [10, 1, b'a', 18, 0]);
        let expected = [10, 1, b'a', 18, 0, 24, 1, 34, 3, b'w', b'h', b'y'];
        assert_eq!(written(AnswerForm::Message, &item, Some("why")).await, expected);
        let search = AnswerForm::Stream(StreamFigures::Search);
        let expected =
            [&[0, 0, 0, 0, 19, 10, 1, b'a', 18, 7, 16, 0xac, 2, 32, 1, 40, 1][..], &[24, 1, 34, 3, b'w', b'h', b'y']];
        assert_eq!(written(search, &item, Some("why")).await, expected.concat());
        // An empty list is sent as a message, too.
        let metadata = AnswerForm::Stream(StreamFigures::Metadata);
        let expected = [0, 0, 0, 0, 9, 18, 7, 8, 0xac, 2, 24, 1, 16, 1];
        assert_eq!(written(metadata, &[], None).await, expected);
    }

    /// Would fail if a long list were one message, which clients refuse, or one of its items were split or lost.
    #[tokio::test]
    async fn long_lists_go_in_several_messages() {
        let item = |bytes: usize| {
            let mut out = Vec::new();
            put_text(&mut out, LIST, &"x".repeat(bytes));
            out
        };
        for (sizes, expected) in [
            (vec![STREAMED_BYTES / 2; 5], vec![1, 1, 1, 1, 1]),
            (vec![STREAMED_BYTES / 3; 5], vec![2, 2, 1]),
            (vec![1, STREAMED_BYTES, 1], vec![1, 1, 1]),
            (vec![3 * STREAMED_BYTES], vec![1]),
            (vec![1; 100], vec![100]),
        ] {
            let items: Vec<Vec<u8>> = sizes.iter().map(|bytes| item(*bytes)).collect();
            let all = written(AnswerForm::Stream(StreamFigures::Search), &items, None).await;
            let (mut rest, mut counts, mut read_items) = (&all[..], Vec::new(), Vec::new());
            while let [0, a, b, c, d, behind @ ..] = rest {
                let (message, behind) = behind.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
                let mut fields = read(message);
                let figures = fields.pop().expect("statistics");
                let is_last = behind.is_empty();
                let jobs: Vec<(u32, u64)> = read(&figures.1).into_iter().map(|(field, _, n)| (field, n)).collect();
                assert_eq!((figures.0, jobs), (2, if is_last { vec![(2, 300), (4, 1), (5, 1)] } else { vec![(5, 1)] }));
                counts.push(fields.len());
                read_items.extend(fields.into_iter().map(|(field, bytes, _)| (field, bytes.len())));
                rest = behind;
            }
            assert!(rest.is_empty());
            assert_eq!(counts, expected, "{sizes:?}");
            assert_eq!(read_items, sizes.iter().map(|bytes| (LIST, *bytes)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn lists_are_repeated() {
        let mut out = Vec::new();
        put(&mut out, 2, &FieldType::Text, &json!(["a", "", "ä"]));
        let texts: Vec<Vec<u8>> = read(&out).into_iter().map(|field| field.1).collect();
        assert_eq!(texts, [b"a".to_vec(), Vec::new(), "ä".as_bytes().to_vec()]);
        // Nested values of any depth.
        let deep = json!({"kvlistValue": {"values": [{"key": "k", "value": {"arrayValue": {"values": [
            {"boolValue": true}, {"stringValue": "x"},
        ]}}}]}});
        let mut out = Vec::new();
        put_fields(&mut out, &ANY, &deep);
        let pair = read(&read(&read(&out)[0].1)[0].1);
        assert_eq!(pair[0], (1, b"k".to_vec(), 0));
        let list = read(&read(&pair[1].1)[0].1);
        let values: Vec<_> = list.iter().map(|field| read(&field.1)).collect();
        assert_eq!(values, [vec![(2, Vec::new(), 1)], vec![(1, b"x".to_vec(), 0)]]);
    }
}
