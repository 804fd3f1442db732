//! The decoders compared with the messages of `opentelemetry-proto`, and each rule of `traces-api` 6.2.

use quiver_types::spans::{Span, SpansBatch, Value, read_spans};
use quiver_types::{Access, ErrorKind};

use super::*;
use crate::wire::put_bytes;

fn with<T>(f: impl FnOnce(&TraceContext<'_>) -> T) -> T {
    let access = Access::full();
    f(&TraceContext {
        body_bytes_max: 64 << 20,
        batch_bytes_max: 128 << 20,
        now_ns: 2_000_000_000_000_000_000,
        earliest_ns: 1_000,
        latest_ns: 2_000_000_600_000_000_000,
        access: &access,
    })
}

/// Decodes with room for anything.
fn decode(format: TraceFormat, encoding: Option<&str>, body: &[u8], ctx: &TraceContext<'_>) -> Result<DecodedSpans> {
    super::decode(format, encoding, body, ctx, &mut |_| true)
}

/// Reads a batch back, as a scan would give it.
pub(crate) fn spans_of(batch: &SpansBatch) -> Vec<Span> {
    let mut out = Vec::new();
    read_spans(&batch.flat(), &mut out).unwrap();
    out
}

fn json(body: &str) -> DecodedSpans {
    with(|ctx| decode(TraceFormat::OtlpJson, None, body.as_bytes(), ctx)).unwrap()
}

fn one(span: &str) -> DecodedSpans {
    json(&format!(
        r#"{{"resourceSpans":[{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"s"}}}}]}},"scopeSpans":[{{"scope":{{"name":"l"}},"spans":[{span}]}}]}}]}}"#
    ))
}

const IDS: &str = r#""traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174","startTimeUnixNano":"1544712660000000000""#;

/// A request with every field, for the fuzz loop.
pub(crate) const EVERYTHING_JSON: &str = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"s"}},
    {"key":"host.name","value":{"stringValue":"h"}}]},"scopeSpans":[{"scope":{"name":"l","version":"1","attributes":[{"key":"a","value":{"boolValue":true}}]},
    "spans":[{"traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174","parentSpanId":"EEE19B7EC3C1B173","traceState":"a=b","flags":1,
    "name":"n","kind":2,"startTimeUnixNano":"1544712660000000000","endTimeUnixNano":"1544712661000000000","droppedAttributesCount":1,
    "attributes":[{"key":"i","value":{"intValue":"5"}},{"key":"d","value":{"doubleValue":0.5}},{"key":"x","value":{"bytesValue":"AQI="}},
    {"key":"l","value":{"arrayValue":{"values":[{"intValue":"1"},{"kvlistValue":{"values":[{"key":"k","value":{}}]}}]}}}],
    "events":[{"timeUnixNano":"1544712660000000001","name":"e","attributes":[{"key":"k","value":{"stringValue":"v"}}],"droppedAttributesCount":2}],
    "links":[{"traceId":"00000000000000000000000000000001","spanId":"0000000000000002","traceState":"c=d","attributes":[],"flags":3}],
    "status":{"code":2,"message":"m"}}]}]}]}"#;

/// Spans with every member.
pub(crate) const ZIPKIN_JSON: &str = r#"[{"traceId":"a03ee8fff1dcd9b9","id":"1","parentId":"2","kind":"CLIENT","name":"g","timestamp":10,"duration":3,
    "localEndpoint":{"serviceName":"api","ipv4":"10.0.0.1","port":80},"remoteEndpoint":{"serviceName":"db","ipv6":"::1"},"shared":true,
    "annotations":[{"timestamp":12,"value":"ev|{\"n\":2}|3"}],"tags":{"n":"1","error":""},"debug":true}]"#;

/// A trace in the internal form.
pub(crate) const TRACE1_JSON: &str = r#"{"format":"trace/1","traceId":"00000000000000000000000000000001","spans":[{"spanId":"0000000000000002",
    "parentSpanId":null,"service":"s","resource":0,"scope":0,"name":"n","kind":"server","start":"10","end":"20","statusCode":"ok",
    "tags":{"a":"b","l":"[1]"},"metrics":{"m":1},"types":{"m":"int","l":"array"},"values":{"l":{"arrayValue":{"values":[{"intValue":"1"}]}}},
    "events":[{"time":"11","name":"e","tags":{"k":"v"}}],"links":[{"traceId":"1","spanId":"2"}]}],"resources":[{"tags":{"h":"x"}}],"scopes":[{"name":"l"}]}"#;

/// The protobuf form of a request in JSON.
pub(crate) fn to_protobuf(json: &[u8]) -> Vec<u8> {
    crate::otlp::json::to_protobuf(json, &schema::TRACES_REQUEST, 1 << 20).unwrap()
}

#[test]
fn the_examples_are_taken() {
    for (format, body) in [
        (TraceFormat::OtlpJson, EVERYTHING_JSON.as_bytes().to_vec()),
        (TraceFormat::Otlp, to_protobuf(EVERYTHING_JSON.as_bytes())),
        (TraceFormat::Zipkin, ZIPKIN_JSON.as_bytes().to_vec()),
        (TraceFormat::Internal, TRACE1_JSON.as_bytes().to_vec()),
    ] {
        let decoded = with(|ctx| decode(format, None, &body, &TraceContext { earliest_ns: 1, ..ctx.clone() })).unwrap();
        assert_eq!((decoded.text().as_str(), decoded.batch.len()), ("", 1), "{format:?}");
    }
}

/// A resource of eight kilobytes, and scopes of a few bytes each.
fn scopes(count: usize, span: Option<&[u8]>) -> Vec<u8> {
    let (mut text, mut pair) = (Vec::new(), Vec::new());
    put_bytes(&mut text, 1, &[b'x'; 8000]);
    put_bytes(&mut pair, 1, b"k");
    put_bytes(&mut pair, 2, &text);
    let (mut resource, mut all) = (Vec::new(), Vec::new());
    put_bytes(&mut resource, 1, &pair);
    put_bytes(&mut all, 1, &resource);
    for i in 0..count {
        let (mut name, mut scope) = (Vec::new(), Vec::new());
        put_bytes(&mut name, 1, i.to_string().as_bytes());
        put_bytes(&mut scope, 1, &name);
        if let Some(span) = span {
            put_bytes(&mut scope, 2, span);
        }
        put_bytes(&mut all, 2, &scope);
    }
    let mut body = Vec::new();
    put_bytes(&mut body, 1, &all);
    body
}

#[test]
fn scopes_do_not_repeat_their_resource_unseen() {
    let decoded = with(|ctx| decode(TraceFormat::Otlp, None, &scopes(20_000, None), ctx)).unwrap();
    assert_eq!(decoded.batch.contexts.num_rows(), 0, "they have no spans");
    let no_span = [0x0a, 1, 7];
    let decoded = with(|ctx| decode(TraceFormat::Otlp, None, &scopes(10, Some(&no_span)), ctx)).unwrap();
    assert_eq!(decoded.refused_count(), 10);
    let error = with(|ctx| decode(TraceFormat::Otlp, None, &scopes(20_000, Some(&no_span)), ctx)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
}

#[test]
fn attributes_beyond_all_measure_are_cut() {
    let (mut all, mut body) = (Vec::new(), Vec::new());
    put_bytes(&mut all, 1, &[0x0a_u8, 0].repeat(100_000));
    put_bytes(&mut body, 1, &all);
    let decoded = with(|ctx| decode(TraceFormat::Otlp, None, &body, ctx)).unwrap();
    assert_eq!(decoded.cuts, [(TruncationKind::Attributes, 100_000 - (16 << 10))]);
}

#[test]
fn types_and_places_are_kept() {
    let attributes = r#"[
        {"key":"i","value":{"intValue":"9007199254740993"}},{"key":"d","value":{"doubleValue":"NaN"}},
        {"key":"b","value":{"boolValue":true}},{"key":"x","value":{"bytesValue":"AQI="}},
        {"key":"l","value":{"arrayValue":{}}},{"key":"m","value":{"kvlistValue":{"values":[{"key":"k","value":{"intValue":1}}]}}},
        {"key":"s","value":{"stringValue":"first"}},{"key":"s","value":{"stringValue":"last"}},{"key":"","value":{"boolValue":true}},
        {"key":"error","value":{"stringValue":"boom"}}]"#;
    let decoded = one(&format!(
        r#"{{{IDS},"endTimeUnixNano":1544712660000000005,"kind":"SPAN_KIND_CLIENT","parentSpanId":null,"name":"n","flags":257,
        "traceState":"a=b","droppedAttributesCount":3,"attributes":{attributes},"unknown":{{"x":[1]}},
        "events":[{{"timeUnixNano":"7","name":"e","attributes":[{{"key":"k","value":{{"intValue":"2"}}}}]}}],
        "links":[{{"traceId":"00000000000000000000000000000001","spanId":"0000000000000002","attributes":[]}}]}}"#
    ));
    assert_eq!(decoded.text(), "");
    let span = &spans_of(&decoded.batch)[0];
    let get = |key| span.attributes.get(key).unwrap();
    assert_eq!(get("i"), Value::Int(9_007_199_254_740_993));
    assert!(matches!(get("d"), Value::Double(v) if v.is_nan()));
    assert_eq!((get("b"), get("x"), get("s")), (Value::Bool(true), Value::Bytes(&[1, 2]), Value::Text("last")));
    assert_eq!((get("l").text().as_ref(), get("m").text().as_ref()), ("[]", r#"{"k":1}"#));
    assert_eq!(span.attributes.iter().count(), 7, "empty keys and `error` are no tags");
    assert_eq!((span.status, span.status_message.as_str()), (2, "boom"));
    assert_eq!((span.kind, span.flags, span.dropped, span.duration()), (3, 257, [3, 0, 0], 5));
    assert_eq!((span.context.service.as_str(), span.context.scope_name.as_str()), ("s", "l"));
    assert_eq!(span.events[0].attributes.get("k"), Some(Value::Int(2)));
    assert_eq!((span.links[0].span_id[7], span.parent), (2, None));
}

#[test]
fn spans_are_refused_one_by_one() {
    let check = |span: &str, reason: Option<SpanReason>| {
        let decoded = one(span);
        assert_eq!(decoded.refused.first().map(|r| r.reason), reason, "{span}");
        assert_eq!(decoded.batch.len(), usize::from(reason.is_none()), "{span}");
    };
    let with_ids = |trace: &str, span: &str, more: &str| {
        format!(r#"{{"traceId":"{trace}","spanId":"{span}","startTimeUnixNano":"1544712660000000000"{more}}}"#)
    };
    let (trace, span) = ("5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174");
    check(&with_ids(trace, span, ""), None);
    check(&with_ids(&"0".repeat(32), span, ""), Some(SpanReason::TraceId));
    check(&with_ids("5b8e", span, ""), Some(SpanReason::TraceId));
    check(&with_ids("not hex", span, ""), Some(SpanReason::TraceId));
    check(&with_ids(trace, &"0".repeat(16), ""), Some(SpanReason::SpanId));
    check(&with_ids(trace, span, r#","parentSpanId":"12""#), Some(SpanReason::ParentId));
    check(&with_ids(trace, span, r#","parentSpanId":"0000000000000000""#), None);
    check(&with_ids(trace, span, r#","startTimeUnixNano":0"#), Some(SpanReason::NoStart));
    check(&with_ids(trace, span, r#","startTimeUnixNano":"999""#), Some(SpanReason::TooOld));
    check(&with_ids(trace, span, r#","startTimeUnixNano":"18446744073709551615""#), Some(SpanReason::TooNew));
    let decoded = json(&format!(
        r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{},{}]}}]}}]}}"#,
        with_ids("00", span, r#","name":"a""#),
        with_ids("00", span, r#","name":"b""#)
    ));
    assert_eq!(decoded.text(), r#"2 spans: invalid trace id (first: "a")"#);
    let refused = response::TracePartial::of(&decoded);
    let expected =
        r#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"2 spans: invalid trace id (first: \"a\")"}}"#;
    assert_eq!(refused.to_json(), expected);
}

#[test]
fn what_is_long_is_cut() {
    let attributes: Vec<String> =
        (0..1030).map(|i| format!(r#"{{"key":"k{i:04}","value":{{"intValue":{i}}}}}"#)).collect();
    let events = vec![r#"{"timeUnixNano":1,"name":"e"}"#; 1025].join(",");
    let link = r#"{"traceId":"00000000000000000000000000000001","spanId":"0000000000000002"}"#;
    let links = vec![link; 130].join(",");
    let decoded = one(&format!(
        r#"{{{IDS},"name":"{}","attributes":[{}],"events":[{events}],"links":[{links}]}}"#,
        "é".repeat(3000),
        attributes.join(",")
    ));
    let span = &spans_of(&decoded.batch)[0];
    assert_eq!(span.dropped, [6, 1, 2]);
    assert_eq!((span.attributes.iter().count(), span.events.len(), span.links.len()), (1024, 1024, 128));
    assert_eq!(span.name.len(), 4096);
    assert_eq!(decoded.text(), "6 attributes cut; 1 events cut; 2 links cut; 1 names cut");
    let long = "x".repeat(40_000);
    let decoded = one(&format!(r#"{{{IDS},"attributes":[{{"key":"{long}","value":{{"stringValue":"{long}"}}}}]}}"#));
    let span = &spans_of(&decoded.batch)[0];
    assert_eq!(span.attributes.iter().map(|(k, v)| (k.len(), v.text().len())).collect::<Vec<_>>(), [(256, 32768)]);
    let huge = "x".repeat(SPAN_BYTES_MAX);
    let decoded = one(&format!(r#"{{{IDS},"attributes":[{{"key":"k","value":{{"stringValue":"{huge}"}}}}]}}"#));
    assert_eq!(decoded.refused[0].reason, SpanReason::TooLarge);
}

/// Breaks if what many spans share, sent once, comes to gigabytes in the parts that repeat it.
#[test]
fn what_spans_share_is_bounded() {
    let decoded = |attributes: &[(usize, usize)], spans: usize| {
        let pair = |(n, (values, bytes)): (usize, &(usize, usize))| {
            let value = "x".repeat(*bytes);
            (0..*values).map(move |i| format!(r#"{{"key":"k{n}.{i}","value":{{"stringValue":"{value}"}}}}"#)).collect()
        };
        let pairs: Vec<Vec<String>> = attributes.iter().enumerate().map(pair).collect();
        let span = |n: usize| IDS.replace("EEE19B7EC3C1B174", &format!("{:016x}", n + 1));
        let spans: Vec<_> = (0..spans).map(|n| format!("{{{}}}", span(n))).collect();
        let body = format!(
            r#"{{"resourceSpans":[{{"resource":{{"attributes":[{}]}},"scopeSpans":[{{"spans":[{}]}}]}}]}}"#,
            pairs.concat().join(","),
            spans.join(",")
        );
        with(|ctx| decode(TraceFormat::OtlpJson, None, body.as_bytes(), ctx))
    };
    let check = |attributes: &[(usize, usize)], cut: &str, lengths: &[usize]| {
        let decoded = decoded(attributes, 1).unwrap();
        let resource = &spans_of(&decoded.batch)[0].context.resource;
        let found: Vec<_> = resource.iter().map(|(_, value)| value.text().len()).collect();
        assert_eq!((decoded.text().as_str(), found.as_slice()), (cut, lengths));
    };
    check(&[(1, 10_000), (2, 3000)], "", &[10_000, 3000, 3000]);
    check(&[(1, 10_000), (2, 3000), (1, 1000)], "3 values cut", &[1024, 1024, 1024, 1000]);
    check(&[(40, 1024)], "25 attributes cut", &[1024; 15]);
    // 16 KiB for each of 65,536 spans are a gibibyte.
    let many = |spans| decoded(&[(1, 15 << 10)], spans).map(|decoded| decoded.batch.len());
    assert_eq!(many(1000).unwrap(), 1000);
    // It is this bound that is met, not that of the batch.
    assert!(matches!(many(72_000), Err(Error::TooLarge { limit_bytes: REPEATED_BYTES_MAX, .. })));
}

#[test]
fn services_outside_of_the_rights_are_refused() {
    let access = Access::services(["other"]);
    let decoded = |resource: &str| {
        let body = format!(r#"{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"spans":[{{{IDS}}}]}}]}}]}}"#);
        with(|ctx| {
            let ctx = TraceContext { access: &access, ..ctx.clone() };
            decode(TraceFormat::OtlpJson, None, body.as_bytes(), &ctx).unwrap()
        })
    };
    let named = decoded(r#"{"attributes":[{"key":"service.name","value":{"stringValue":"api"}}]}"#);
    assert_eq!(named.refused[0].reason, SpanReason::Service);
    // A span that names no service is one of the only service that its sender may write.
    let unnamed = decoded("{}");
    assert!(unnamed.refused.is_empty() && spans_of(&unnamed.batch)[0].context.service == "other");
}

#[test]
fn ends_before_starts_are_marked() {
    let decoded = one(&format!(r#"{{{IDS},"endTimeUnixNano":"5"}}"#));
    let span = &spans_of(&decoded.batch)[0];
    assert!(span.is_negative() && span.duration() == 0);
}

#[test]
fn zipkin() {
    let body = r#"[{"traceId":"a03ee8fff1dcd9b9","id":"1","parentId":"f5f268651b2a2b34","kind":"client","name":"Get","timestamp":10,
        "duration":3.0,"localEndpoint":{"serviceName":"api","ipv4":"10.0.0.1","port":80},"remoteEndpoint":{"serviceName":"db","ipv6":"::1"},
        "annotations":[{"timestamp":11,"value":"plain | text"},{"timestamp":12,"value":"ev|{\"n\":2,\"s\":\"a|b\"}|3"}],
        "tags":{"n":"1","error":"timeout"},"debug":true,"shared":false,"x":null},
        {"traceId":"1","id":"2","annotations":[{"timestamp":7,"value":"a"},{"timestamp":6,"value":"b"}]},
        {"traceId":"1","id":"3"},{"traceId":"xyz","id":"3"}]"#;
    let decoded = with(|ctx| decode(TraceFormat::Zipkin, None, body.as_bytes(), ctx)).unwrap();
    let spans = spans_of(&decoded.batch);
    let first = &spans[0];
    assert_eq!((first.start, first.end, first.kind, first.flags), (10_000, 13_000, 3, 1));
    assert_eq!((first.status, first.status_message.as_str(), first.name.as_str()), (2, "timeout", "Get"));
    let attributes: Vec<_> = first.attributes.iter().map(|(k, v)| (k, v.text().into_owned())).collect();
    let expected = [
        ("n", "1"),
        ("network.local.address", "10.0.0.1"),
        ("network.local.port", "80"),
        ("network.peer.address", "::1"),
        ("peer.service", "db"),
    ];
    assert_eq!(attributes, expected.map(|(k, v)| (k, v.to_owned())));
    assert_eq!((first.events[0].name.as_str(), first.events[1].name.as_str()), ("plain | text", "ev"));
    assert_eq!(first.events[1].attributes.get("s"), Some(Value::Text("a|b")));
    assert_eq!(first.events[1].dropped, 3);
    assert_eq!((spans[1].start, spans[2].start), (6_000, 2_000_000_000_000_000_000));
    assert_eq!(decoded.text(), r#"1 span: invalid trace id (first: "xyz")"#);
    let first_version = r#"[{"traceId":"1","id":"2","binaryAnnotations":[]}]"#;
    for bad in ["{}", "[1]", "[{]", "null", " ", r#"[{"tags":[]}]"#, first_version] {
        assert!(with(|ctx| decode(TraceFormat::Zipkin, None, bad.as_bytes(), ctx)).is_err(), "{bad}");
    }
    let nothing = with(|ctx| decode(TraceFormat::Zipkin, None, b"", ctx)).unwrap();
    assert_eq!((spans_of(&nothing.batch).len(), nothing.text()), (0, String::new()));
}

/// A span with every field of Zipkin's message.
pub(crate) fn zipkin_proto() -> Vec<u8> {
    fn message(fields: &[(u32, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, bytes) in fields {
            put_bytes(&mut out, *number, bytes);
        }
        out
    }
    let local = [message(&[(1, b"api"), (2, &[10, 0, 0, 1])]), vec![0x20, 80]].concat();
    let remote = message(&[(1, b"db"), (3, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])]);
    let time = |field: u8, micros: u64| [&[field << 3 | 1][..], &micros.to_le_bytes()].concat();
    let event = [time(1, 12), message(&[(2, b"ev|{\"n\":2}|3")])].concat();
    let tag = message(&[(1, b"n"), (2, b"1")]);
    let ids: [(u32, &[u8]); 4] = [(1, &[1; 16]), (2, &[0, 0, 0, 0, 0, 0, 0, 2]), (3, &[3; 8]), (5, b"g")];
    let rest = message(&[(8, &local), (9, &remote), (10, &event), (11, &tag)]);
    let span = [message(&ids), vec![0x20, 1], time(6, 10), vec![0x38, 3], rest, vec![0x60, 1, 0x68, 1]].concat();
    message(&[(1, &span)])
}

#[test]
fn zipkin_as_protobuf() {
    let body = zipkin_proto();
    let take = |body: &[u8]| with(|ctx| decode(TraceFormat::ZipkinProto, None, body, ctx));
    let decoded = take(&body).unwrap();
    assert_eq!(decoded.text(), "");
    let span = &spans_of(&decoded.batch)[0];
    assert_eq!((span.trace_id, span.span_id, span.parent), ([1; 16], [3; 8], Some([0, 0, 0, 0, 0, 0, 0, 2])));
    assert_eq!((span.start, span.end, span.kind, span.flags), (10_000, 13_000, 3, 1));
    assert_eq!((span.name.as_str(), span.context.service.as_str(), span.events[0].name.as_str()), ("g", "api", "ev"));
    let attributes: Vec<_> = span.attributes.iter().map(|(k, v)| (k, v.text().into_owned())).collect();
    let expected = [
        ("n", "1"),
        ("network.local.address", "10.0.0.1"),
        ("network.local.port", "80"),
        ("network.peer.address", "::1"),
        ("peer.service", "db"),
    ];
    assert_eq!(attributes, expected.map(|(k, v)| (k, v.to_owned())));
    for end in 1..body.len() {
        assert!(take(&body[..end]).is_err(), "{end}");
    }
    assert!(take(b"").unwrap().batch.is_empty());
    // A span without ids, and one whose name is no text, are refused by themselves.
    let refused = take(&[0x0a, 0, 0x0a, 3, 0x2a, 1, 0xff]).unwrap();
    assert_eq!(refused.text(), "1 span: invalid trace id (first: \"\"); 1 span: text is not UTF-8");
    // A field of another type than its own is an error.
    assert!(take(&[0x0a, 2, 0x08, 1]).is_err());
}

#[test]
fn protobuf_agrees_with_the_oracle() {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use prost::Message;
    // No message of spans is in the oracle's features, so its bytes are only used as something that is none.
    let other = ExportMetricsServiceRequest::default().encode_to_vec();
    assert!(with(|ctx| decode(TraceFormat::Otlp, None, &other, ctx)).unwrap().batch.is_empty());
    for bad in [&[0x0a, 5, 1][..], &[0x08, 1], &[0x0a, 2, 0x12, 9]] {
        assert!(with(|ctx| decode(TraceFormat::Otlp, None, bad, ctx)).is_err(), "{bad:?}");
    }
}

#[test]
fn of_reports_of_one_span_in_a_body_the_last_is_the_latest() {
    let span =
        |id: u8, code: u16| format!(r#"{{"traceId":"1","id":"{id}","timestamp":10,"tags":{{"code":"{code}"}}}}"#);
    let body = format!("[{},{},{},{}]", span(1, 500), span(2, 1), span(1, 200), span(1, 404));
    let batch = with(|ctx| decode(TraceFormat::Zipkin, None, body.as_bytes(), ctx)).unwrap().batch;
    let now = 2_000_000_000_000_000_000;
    let received: Vec<i64> = spans_of(&batch).iter().map(|s| s.received - now).collect();
    assert_eq!(received, [0, 0, 1, 2]);
}

mod trace1;
mod values;
