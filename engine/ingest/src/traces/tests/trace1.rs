//! The internal form `trace/1`: types, shared data, missing and invalid fields.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::*;
use crate::decode_memory::{DecodeRoom, within};

fn read(trace: &Json) -> Result<DecodedSpans> {
    with(|ctx| decode(TraceFormat::Internal, None, trace.to_string().as_bytes(), ctx))
}

fn trace(spans: Json) -> Json {
    json!({"format": "trace/1", "traceId": "1f", "spans": spans,
        "resources": [{"tags": {"h": "x"}}], "scopes": [{"name": "l", "version": "2", "tags": {"s": "t"}}]})
}

/// Decodes a trace of one span, with members beside its id and times.
fn one_of(members: &Json) -> DecodedSpans {
    let mut span = json!({"spanId": "1", "start": "1000", "end": "1005", "name": "n"});
    span.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    read(&trace(json!([span]))).unwrap()
}

fn span_of(members: Json) -> Span {
    let decoded = one_of(&members);
    assert_eq!(decoded.text(), "");
    spans_of(&decoded.batch).remove(0)
}

/// Values of two bytes take many times as much while they are read.
#[test]
fn reading_takes_memory() {
    struct Megabyte;
    impl DecodeRoom for Megabyte {
        fn hold(&self, bytes: usize) -> bool {
            bytes <= 1 << 20
        }
    }
    let mut long = trace(json!([]));
    long["x"] = json!(vec![0; 100_000]);
    assert!(read(&long).is_ok());
    assert!(within(Arc::new(Megabyte), || read(&trace(json!([])))).is_ok());
    assert!(within(Arc::new(Megabyte), || read(&json!({"data": trace(json!([]))}))).is_ok());
    assert!(matches!(within(Arc::new(Megabyte), || read(&long)), Err(Error::NoRoom)));
    let body = long.to_string();
    let small = with(|ctx| {
        let ctx = TraceContext { batch_bytes_max: 1 << 20, ..ctx.clone() };
        decode(TraceFormat::Internal, None, body.as_bytes(), &ctx)
    });
    assert!(matches!(small, Err(Error::TooLarge { .. })), "a request that is alone has room for anything");
}

#[test]
fn types_of_attributes() {
    let values = json!({"l": {"arrayValue": {"values": [{"intValue": "1"}]}}});
    let span = span_of(json!({
        "tags": {"b": "true", "bad": "maybe", "i": i64::MIN.to_string(), "big": "9223372036854775808", "n": "NaN", "p": "+Inf",
            "m": "-Inf", "x": "AQI=", "y": "?", "l": "[1]", "none": "[1]", "t": "5"},
        "types": {"b": "bool", "bad": "bool", "i": "int", "big": "int", "n": "double", "p": "double", "m": "double", "x": "bytes",
            "y": "bytes", "l": "array", "none": "map", "five": "int", "half": "int"},
        "metrics": {"five": 5, "half": 5.5, "d": 2}, "values": values,
    }));
    let get = |key: &str| span.attributes.get(key).unwrap();
    assert_eq!((get("b"), get("bad")), (Value::Bool(true), Value::Text("maybe")));
    assert_eq!((get("i"), get("big")), (Value::Int(i64::MIN), Value::Text("9223372036854775808")));
    assert!(matches!(get("n"), Value::Double(v) if v.is_nan()));
    assert_eq!((get("p"), get("m")), (Value::Double(f64::INFINITY), Value::Double(f64::NEG_INFINITY)));
    assert_eq!((get("x"), get("y")), (Value::Bytes(&[1, 2]), Value::Text("?")));
    assert_eq!((get("l"), get("none")), (Value::Json(&values["l"].to_string()), Value::Text("[1]")));
    assert_eq!((get("t"), get("five")), (Value::Text("5"), Value::Int(5)));
    assert_eq!((get("half"), get("d")), (Value::Double(5.5), Value::Double(2.0)));
}

#[test]
fn what_is_missing() {
    let span = span_of(json!({"kind": "odd", "statusCode": "odd", "end": "?", "resource": 9, "scope": 9}));
    assert_eq!((span.kind, span.status, span.duration(), span.parent), (0, 0, 0, None));
    assert!(span.context.resource.is_empty() && span.context.scope_name.is_empty() && !span.is_shared());
    let span =
        span_of(json!({"kind": "consumer", "statusCode": "error", "service": "s", "parentSpanId": "", "shared": true}));
    assert_eq!((span.kind, span.status, span.duration(), span.parent), (5, 2, 5, None));
    assert_eq!((span.context.service.as_str(), span.context.scope_name.as_str()), ("s", "l"));
    assert_eq!(span.context.scope_attributes.get("s"), Some(Value::Text("t")));
    assert_eq!((span.context.resource.get("h"), span.is_shared()), (Some(Value::Text("x")), true));
    assert_eq!((span.trace_id[15], span.span_id[7]), (0x1f, 1));
    let span = span_of(json!({"service": "unknown", "serviceMissing": true, "warnings": ["x", "NEGATIVE_DURATION"]}));
    assert_eq!((span.context.service.as_str(), span.is_negative()), ("", true));
    let span = span_of(json!({
        "parentSpanId": "ab", "events": [{"time": "x"}, {"time": "7", "name": "e", "dropped": 4}],
        "links": [{"traceId": "zz", "spanId": "1"}, {"traceId": "1", "spanId": "2", "flags": 3, "traceState": "a=b"}],
    }));
    assert_eq!(span.parent, Some([0, 0, 0, 0, 0, 0, 0, 0xab]));
    let events: Vec<_> = span.events.iter().map(|e| (e.time, e.name.as_str(), e.dropped)).collect();
    assert_eq!(events, [(0, "", 0), (7, "e", 4)]);
    let [link] = &span.links[..] else { panic!("{:?}", span.links) };
    assert_eq!((link.span_id[7], link.flags, link.trace_state.as_str()), (2, 3, "a=b"));
}

/// Breaks if a time or an integer is kept that OTLP, in which the trace is exported, cannot have.
#[test]
fn what_no_field_of_otlp_can_hold() {
    let span = span_of(json!({
        "end": "-5", "events": [{"time": "-7", "name": "e"}],
        "metrics": {"large": 1e19, "least": -1e300, "most": 9e18}, "types": {"large": "int", "least": "int", "most": "int"},
    }));
    assert_eq!((span.duration(), span.events[0].time), (0, 0));
    let get = |key: &str| span.attributes.get(key).unwrap();
    assert_eq!((get("large"), get("least")), (Value::Double(1e19), Value::Double(-1e300)));
    assert_eq!(get("most"), Value::Int(9_000_000_000_000_000_000));
}

#[test]
fn spans_that_are_refused() {
    let check = |members: Json, reason: SpanReason| {
        let decoded = one_of(&members);
        let refused: Vec<_> = decoded.refused.iter().map(|r| (r.reason, r.count, r.first.as_str())).collect();
        assert_eq!((refused, decoded.batch.len()), (vec![(reason, 1, "\"n\"")], 0), "{members}");
    };
    check(json!({"spanId": ""}), SpanReason::SpanId);
    check(json!({"spanId": "0"}), SpanReason::SpanId);
    check(json!({"spanId": "12345678901234567"}), SpanReason::SpanId);
    check(json!({"parentSpanId": "xyz"}), SpanReason::ParentId);
    check(json!({"start": "-1000"}), SpanReason::NoStart);
    check(json!({"start": "0"}), SpanReason::NoStart);
    check(json!({"start": "999"}), SpanReason::TooOld);
    check(json!({"start": "18446744073709551615"}), SpanReason::TooNew);
    let access = Access::services(["a", "b"]);
    let body = trace(json!([{"spanId": "1", "start": "1000", "end": "1", "service": "c"},
        {"spanId": "2", "start": "1000", "end": "1", "service": "b"}, {"spanId": "3", "start": "1000", "end": "1"}]));
    let decoded = with(|ctx| {
        let ctx = TraceContext { access: &access, ..ctx.clone() };
        decode(TraceFormat::Internal, None, body.to_string().as_bytes(), &ctx).unwrap()
    });
    assert_eq!((decoded.batch.len(), decoded.forbidden(), decoded.first_forbidden()), (1, 2, Some("c")));
    assert_eq!(decoded.text(), "2 spans: no right to write this service (first: c)");
}

#[test]
fn whole_bodies() {
    let wrapped = json!({"data": trace(json!([{"spanId": "1", "start": "1000", "end": "1"}]))});
    assert_eq!(read(&wrapped).unwrap().batch.len(), 1);
    assert!(read(&json!({"format": "trace/1", "traceId": ""})).unwrap().batch.is_empty());
    let told = |body: &Json| read(body).unwrap_err().to_string();
    let other = json!({"format": "trace/2", "traceId": "1"});
    assert_eq!(told(&other), "invalid JSON at offset 0: `format` is not `trace/1`");
    for bad in [
        json!([]),
        json!({}),
        json!({"format": "trace/1"}),
        json!({"format": "trace/1", "traceId": 1}),
        trace(json!([{}])),
        trace(json!([{"spanId": "1", "start": 1000, "end": "1"}])),
        trace(json!([{"spanId": "1", "start": "1000", "end": "1", "flags": -1}])),
        trace(json!([{"spanId": "1", "start": "1000", "end": "1", "tags": {"a": 1}}])),
    ] {
        assert_eq!(told(&bad), "invalid JSON at offset 0: not a trace of the format `trace/1`", "{bad}");
    }
}
