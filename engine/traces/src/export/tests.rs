use std::sync::Arc;

use quiver_types::spans::{
    Attributes, Event, Link, NEGATIVE_DURATION, STATUS_ERROR, STATUS_OK, Span, SpanContext, Value,
};
use serde_json::{Value as Json, json};

use super::*;
use crate::assemble::tests::span;
use crate::assemble::{Trace, assemble};
use crate::json_writer::JsonWriter;

/// Texts that JSON must not take as they are.
const ODD: &str = "a\"b\\c\u{1}\n\u{2028}é日\u{10FFFF}";

fn context(service: &str, resource: &[(&str, Value<'_>)]) -> Arc<SpanContext> {
    let resource = Attributes::of(resource.iter().copied());
    Arc::new(SpanContext { service: service.to_owned(), resource, ..SpanContext::default() })
}

/// A call with all that a span can hold, and what it calls: a span without a service that failed.
fn call() -> Trace {
    let list = r#"{"arrayValue":{"values":[{"intValue":"1"},{"stringValue":"x"}]}}"#;
    let mut root = span(1, 0, "", 2, 5_000, 2_005_999);
    let scope_attributes = Attributes::of([("safe", Value::Bool(true))]);
    root.context = Arc::new(SpanContext {
        service: "web".to_owned(),
        resource: Attributes::of([("host", Value::Text("h1")), ("cpus", Value::Int(4))]),
        scope_name: "lib".to_owned(),
        scope_version: "1.0".to_owned(),
        scope_attributes,
    });
    root.attributes = Attributes::of([
        ("big", Value::Int((1 << 53) + 1)),
        ("bytes", Value::Bytes(&[0, 255])),
        ("inf", Value::Double(f64::NEG_INFINITY)),
        ("list", Value::Json(list)),
        ("nan", Value::Double(f64::NAN)),
        ("odd", Value::Text(ODD)),
        ("size", Value::Double(1.5)),
        ("yes", Value::Bool(true)),
    ]);
    (root.name, root.status, root.flags, root.dropped) = (ODD.to_owned(), STATUS_OK, 1, [1, 2, 3]);
    root.trace_state = "k=v".to_owned();
    let attributes = Attributes::of([("event", Value::Text("hidden")), ("n", Value::Int(7))]);
    root.events = vec![Event { time: 6_999, name: "a|b".to_owned(), dropped: 4, attributes }];
    let attributes = Attributes::of([("why", Value::Text("retry"))]);
    let state = "s".to_owned();
    root.links =
        vec![Link { trace_id: [2; 16], span_id: [3; 8], trace_state: state, flags: 1, dropped: 5, attributes }];
    let mut failed = span(2, 1, "", 3, 6_000, 6_000);
    (failed.status, failed.status_message, failed.marks) = (STATUS_ERROR, "no".to_owned(), NEGATIVE_DURATION);
    failed.attributes = Attributes::of([
        ("db.name", Value::Text("orders")),
        ("error", Value::Text("its own")),
        ("peer.address", Value::Text("10.0.0.1")),
        ("peer.service", Value::Text("")),
        ("server.address", Value::Int(7)),
    ]);
    assemble([1; 16], vec![root, failed])
}

/// Writes a trace as one piece.
fn to_json(trace: &Trace, format: &ExportFormat, options: ExportOptions) -> Vec<u8> {
    let mut writer = JsonWriter::default();
    (format.write)(trace, options, &mut writer);
    writer.finish().expect("nobody reads it who could go away")
}

fn exported(name: &str, trace: &Trace, options: ExportOptions) -> Json {
    let text = to_json(trace, find(name).unwrap(), options);
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{name}: {e}: {}", String::from_utf8_lossy(&text)))
}

const NATIVE: ExportOptions =
    ExportOptions { native: true, link_references: true, extras: true, flat: FlatForm::Documented };

/// Breaks if a format writes what no reader of JSON takes, or loses a character of a name.
#[test]
fn every_format_is_json_whatever_texts_hold() {
    let trace = call();
    for format in FORMATS.iter().chain([&internal::FORMAT]) {
        for options in [ExportOptions::default(), NATIVE, ExportOptions { extras: false, ..NATIVE }] {
            let text = to_json(&trace, format, options);
            let json: Json = serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", format.name));
            let name = serde_json::to_string(ODD).unwrap();
            assert!(json.to_string().contains(&name), "{} {options:?}: {json}", format.name);
        }
    }
    for form in [tempo::Form::Protobuf, tempo::Form::Otlp] {
        let mut w = JsonWriter::default();
        w.object(|w| tempo::write_blocks(&trace.spans, "batches", form, w));
        serde_json::from_slice::<Json>(&w.finish().unwrap()).unwrap_or_else(|e| panic!("{form:?}: {e}"));
    }
}

/// Breaks if Zipkin's readers get a name that its own server would not give.
#[test]
fn names_of_the_flat_form_are_in_lower_case_if_asked_for() {
    let mut call = call();
    for span in &mut call.spans {
        (span.name, span.kind) = ("GET /É".to_owned(), 3);
        span.context = context("Web", &[("Host", Value::Text("H1"))]);
        span.attributes = Attributes::of([("peer.service", Value::Text("DB"))]);
    }
    let names = |flat| {
        let json = exported("spanarray", &call, ExportOptions { flat, ..ExportOptions::default() });
        let span = &json[0];
        assert_eq!((&span["tags"]["Host"], &span["tags"]["peer.service"]), (&json!("H1"), &json!("DB")), "{span}");
        json!([span["name"], span["localEndpoint"]["serviceName"], span["remoteEndpoint"]["serviceName"]])
    };
    assert_eq!(names(FlatForm::Documented), json!(["GET /É", "Web", "DB"]));
    assert_eq!(names(FlatForm::Zipkin), json!(["get /é", "web", "db"]));
}

/// Breaks where Zipkin's readers are not told why a span failed.
#[test]
fn errors_say_why_in_zipkins_form() {
    let error = |flat| {
        exported("spanarray", &call(), ExportOptions { flat, ..ExportOptions::default() })[1]["tags"]["error"].clone()
    };
    assert_eq!((error(FlatForm::Documented), error(FlatForm::Zipkin)), (json!("true"), json!("no")));
}

/// Breaks where a server's caller is kept from Zipkin's readers, or its own address taken for one.
#[test]
fn who_calls_is_named_in_zipkins_form() {
    let mut call = call();
    for span in &mut call.spans {
        span.kind = 2;
        span.attributes =
            Attributes::of([("peer.service", Value::Text("User")), ("server.address", Value::Text("web-1"))]);
    }
    let other = |call: &Trace, flat| {
        exported("spanarray", call, ExportOptions { flat, ..ExportOptions::default() })[0]["remoteEndpoint"].clone()
    };
    assert_eq!(other(&call, FlatForm::Documented), Json::Null);
    assert_eq!(other(&call, FlatForm::Zipkin), json!({"serviceName": "user"}));
    for span in &mut call.spans {
        span.attributes = Attributes::of([("server.address", Value::Text("web-1"))]);
    }
    assert_eq!(other(&call, FlatForm::Zipkin), Json::Null);
}

/// Breaks if a value of OTLP loses its type, or a number that JSON has not is written as one.
#[test]
fn otlp_keeps_types() {
    let json = exported("otlp", &call(), NATIVE);
    let block = &json["resourceSpans"][0];
    assert_eq!(
        block["resource"]["attributes"],
        json!([
            {"key": "service.name", "value": {"stringValue": "web"}},
            {"key": "cpus", "value": {"intValue": "4"}},
            {"key": "host", "value": {"stringValue": "h1"}},
        ])
    );
    let scope = json!({"name": "lib", "version": "1.0", "attributes": [{"key": "safe", "value": {"boolValue": true}}]});
    assert_eq!(block["scopeSpans"][0]["scope"], scope);
    let span = &block["scopeSpans"][0]["spans"][0];
    let value = |key: &str| {
        let all = span["attributes"].as_array().into_iter().flatten();
        all.filter(|one| one["key"] == key).map(|one| one["value"].clone()).collect::<Vec<Json>>()
    };
    assert_eq!(value("big"), [json!({"intValue": "9007199254740993"})]);
    assert_eq!(value("bytes"), [json!({"bytesValue": "AP8="})]);
    assert_eq!(value("inf"), [json!({"doubleValue": "-Infinity"})]);
    assert_eq!(value("nan"), [json!({"doubleValue": "NaN"})]);
    assert_eq!(value("size"), [json!({"doubleValue": 1.5})]);
    assert_eq!(value("list"), [json!({"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "x"}]}})]);
    assert_eq!((&span["flags"], &span["status"]), (&json!(1), &json!({"code": 1})));
    let dropped = ["droppedAttributesCount", "droppedEventsCount", "droppedLinksCount"].map(|name| span[name].as_u64());
    assert_eq!(dropped, [Some(1), Some(2), Some(3)]);
    assert_eq!(span["links"][0]["flags"], 1);
    // The documented form: texts, without flags, and status only of what failed.
    let plain = exported("otlp", &call(), ExportOptions::default());
    let span = &plain["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(span["attributes"][0], json!({"key": "big", "value": {"stringValue": "9007199254740993"}}));
    assert_eq!((&span["flags"], &span["status"]), (&Json::Null, &Json::Null));
    let failed = &plain["resourceSpans"][1];
    assert_eq!(failed["resource"]["attributes"][0]["value"], json!({"stringValue": "unknown_service"}));
    assert_eq!(failed["scopeSpans"][0]["spans"][0]["status"], json!({"code": 2, "message": "no"}));
}

/// Breaks if instances of a service are told apart no longer, or what a sender said of a span is written over.
#[test]
fn what_instances_differ_in_is_on_their_spans() {
    let mut one = span(1, 0, "", 2, 1_000, 2_000);
    one.context = context("a", &[("host", Value::Text("h1")), ("zone", Value::Text("z")), ("n", Value::Int(1))]);
    let mut two = span(2, 1, "", 2, 1_100, 1_900);
    two.context = context("a", &[("host", Value::Text("h2")), ("zone", Value::Text("z")), ("n", Value::Text("1"))]);
    two.attributes = Attributes::of([("host", Value::Text("own"))]);
    let json = exported("otlp", &assemble([1; 16], vec![one, two]), NATIVE);
    let blocks = json["resourceSpans"].as_array().unwrap();
    let keys = |list: &Json| -> Vec<String> {
        let all = list.as_array().into_iter().flatten();
        all.map(|one| format!("{}={}", one["key"].as_str().unwrap_or_default(), one["value"])).collect()
    };
    assert_eq!(blocks.len(), 1);
    let (service, zone) = (r#"service.name={"stringValue":"a"}"#, r#"zone={"stringValue":"z"}"#);
    // Equal as texts is equal, and what the first said stands.
    assert_eq!(keys(&blocks[0]["resource"]["attributes"]), [service, r#"n={"intValue":"1"}"#, zone]);
    let spans = &blocks[0]["scopeSpans"][0]["spans"];
    assert_eq!(keys(&spans[0]["attributes"]), [r#"host={"stringValue":"h1"}"#]);
    assert_eq!(keys(&spans[1]["attributes"]), [r#"host={"stringValue":"own"}"#]);
}

#[test]
fn the_flat_list_has_tags_of_text() {
    let json = exported("spanarray", &call(), ExportOptions::default());
    let (root, failed) = (&json[0], &json[1]);
    assert_eq!((&root["kind"], &root["timestamp"], &root["duration"]), (&json!("SERVER"), &json!(5), &json!(2000)));
    assert_eq!(root["localEndpoint"], json!({"serviceName": "web"}));
    assert!(root["remoteEndpoint"].is_null() && root["parentId"].is_null(), "{root}");
    assert_eq!(root["annotations"], json!([{"timestamp": 6, "value": r#"a/b|{"event":"hidden","n":7}|0"#}]));
    for (key, text) in [
        ("cpus", "4"),
        ("list", r#"[1,"x"]"#),
        ("nan", "NaN"),
        ("otel.scope.name", "lib"),
        ("w3c.tracestate", "k=v"),
        ("otlp.link.0", r#"02020202020202020202020202020202|0303030303030303|s|{"why":"retry"}|0"#),
    ] {
        assert_eq!(root["tags"][key], text, "{root}");
    }
    assert!(root["tags"]["error"].is_null() && root["tags"]["service.name"].is_null(), "{root}");
    // The name of the other side: an empty one and a number are none, and the better name goes before the first.
    assert_eq!(failed["remoteEndpoint"], json!({"serviceName": "10.0.0.1"}));
    assert_eq!((&failed["duration"], &failed["tags"]["error"]), (&json!(1), &json!("true")));
    assert_eq!(failed["tags"]["otel.status_description"], "no");
}

#[test]
fn the_trace_object_has_each_tag_once() {
    let mut trace = call();
    trace.left_out = vec!["part x".to_owned()];
    let json = exported("traceobject", &trace, NATIVE);
    assert_eq!(json["errors"], json!([{"code": 500, "msg": "part x"}]));
    let data = &json["data"][0];
    let (root, failed) = (&data["spans"][0], &data["spans"][1]);
    assert_eq!((&root["processID"], &failed["processID"]), (&json!("p1"), &json!("p2")));
    assert_eq!(data["processes"]["p2"], json!({"serviceName": "unknown_service", "tags": []}));
    let tags = |span: &Json, key: &str| -> Vec<Json> {
        span["tags"].as_array().into_iter().flatten().filter(|tag| tag["key"] == key).cloned().collect()
    };
    assert_eq!(tags(failed, "error"), [json!({"key": "error", "type": "bool", "value": true})]);
    assert_eq!(tags(failed, "span.kind"), [json!({"key": "span.kind", "type": "string", "value": "client"})]);
    let code = |word: &str| [json!({"key": "otel.status_code", "type": "string", "value": word})];
    assert_eq!(
        (tags(root, "otel.status_code"), tags(failed, "otel.status_code")),
        (code("OK").to_vec(), code("ERROR").to_vec())
    );
    let documented = exported("traceobject", &trace, ExportOptions::default());
    assert!(tags(&documented["data"][0]["spans"][0], "otel.status_code").is_empty());
    let big = "9007199254740993";
    assert_eq!(tags(root, "big"), [json!({"key": "big", "type": "string", "value": big})], "no double holds it");
    assert_eq!(tags(root, "size"), [json!({"key": "size", "type": "float64", "value": 1.5})]);
    assert_eq!(tags(root, "yes"), [json!({"key": "yes", "type": "bool", "value": true})]);
    let keys: Vec<&str> = root["tags"].as_array().into_iter().flatten().filter_map(|tag| tag["key"].as_str()).collect();
    assert!(keys.is_sorted(), "{keys:?}");
    // An attribute that is called as the name of the event does not hide it.
    let fields = json!([
        {"key": "event", "type": "string", "value": "a|b"},
        {"key": "n", "type": "int64", "value": 7},
    ]);
    assert_eq!(root["logs"], json!([{"timestamp": 6, "fields": fields}]));
    let link = json!({"refType": "FOLLOWS_FROM", "traceID": "02".repeat(16), "spanID": "03".repeat(8)});
    assert_eq!(root["references"], json!([link]));
    assert_eq!((&root["warnings"], &failed["warnings"]), (&Json::Null, &json!(["NEGATIVE_DURATION"])));
    // An attribute with the name of an extra goes before it.
    let mut own = span(1, 0, "a", 2, 1_000, 2_000);
    own.trace_state = "k=v".to_owned();
    let [a, z] = ["a", "z"].map(|key| (key, Value::Int(1)));
    own.attributes = Attributes::of([z, ("w3c.tracestate", Value::Text("own")), ("span.kind", Value::Text("odd")), a]);
    let json = exported("traceobject", &assemble([1; 16], vec![own]), NATIVE);
    let own = &json["data"][0]["spans"][0];
    assert_eq!(tags(own, "w3c.tracestate"), [json!({"key": "w3c.tracestate", "type": "string", "value": "own"})]);
    assert_eq!(tags(own, "span.kind"), [json!({"key": "span.kind", "type": "string", "value": "server"})]);
    let keys: Vec<&str> = own["tags"].as_array().into_iter().flatten().filter_map(|tag| tag["key"].as_str()).collect();
    assert_eq!(keys, ["a", "span.kind", "w3c.tracestate", "z"]);
}

/// Breaks if ids or words of protobuf's JSON are those of OTLP/JSON, or the other way round.
#[test]
fn blocks_of_resources_in_both_forms() {
    let written = |form: tempo::Form| -> Json {
        let mut w = JsonWriter::default();
        w.object(|w| tempo::write_blocks(&call().spans, "batches", form, w));
        serde_json::from_slice(&w.finish().unwrap()).unwrap()
    };
    let span = |json: &Json, block: usize| json["batches"][block]["scopeSpans"][0]["spans"][0].clone();
    let words = written(tempo::Form::Protobuf);
    let (root, failed) = (span(&words, 0), span(&words, 1));
    assert_eq!((&root["traceId"], &root["spanId"]), (&json!("AQEBAQEBAQEBAQEBAQEBAQ=="), &json!("AAAAAAAAAAE=")));
    assert_eq!((&failed["parentSpanId"], &failed["kind"]), (&json!("AAAAAAAAAAE="), &json!("SPAN_KIND_CLIENT")));
    assert_eq!(root["status"], json!({"code": "STATUS_CODE_OK"}));
    assert_eq!(failed["status"], json!({"message": "no", "code": "STATUS_CODE_ERROR"}));
    assert_eq!(words["batches"][1]["resource"], json!({}), "a service that none told is not made up");
    let numbers = written(tempo::Form::Otlp);
    let (root, failed) = (span(&numbers, 0), span(&numbers, 1));
    assert_eq!((&root["traceId"], &root["kind"]), (&json!("01".repeat(16)), &json!(2)));
    assert_eq!(failed["status"], json!({"message": "no", "code": 2}));
    let unset = assemble([1; 16], vec![span_of_kind(0)]);
    let mut w = JsonWriter::default();
    w.object(|w| tempo::write_blocks(&unset.spans, "batches", tempo::Form::Protobuf, w));
    let json: Json = serde_json::from_slice(&w.finish().unwrap()).unwrap();
    let one = &json["batches"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!((&one["kind"], &one["status"]), (&Json::Null, &json!({})));
}

fn span_of_kind(kind: u8) -> Span {
    span(1, 0, "a", kind, 1_000, 2_000)
}

/// Breaks if a view counts children twice, or a bound of the window that was not given is told as a time.
#[test]
fn the_view_tells_what_it_works_out() {
    let mut w = JsonWriter::default();
    internal::write_trace(&call(), Some((i64::MIN, 9)), &mut w);
    let json: Json = serde_json::from_slice(&w.finish().unwrap()).unwrap();
    assert_eq!(json["window"], json!({"start": null, "end": "9"}));
    assert_eq!(json["services"], json!(["web", "unknown_service"]));
    let (root, failed) = (&json["spans"][0], &json["spans"][1]);
    assert_eq!((&root["depth"], &root["childCount"], &failed["depth"]), (&json!(0), &json!(1), &json!(1)));
    assert_eq!((&root["serviceMissing"], &failed["serviceMissing"]), (&Json::Null, &json!(true)));
    assert_eq!((&root["resource"], &failed["resource"]), (&json!(0), &json!(1)));
    assert_eq!(json["resources"][0]["metrics"], json!({"cpus": 4}));
    let types =
        json!({"big": "int", "bytes": "bytes", "inf": "double", "list": "array", "nan": "double", "yes": "bool"});
    assert_eq!(root["types"], types);
    assert_eq!(root["metrics"], json!({"size": 1.5}));
    assert_eq!(root["tags"]["big"], "9007199254740993");
    assert_eq!(root["values"]["list"]["arrayValue"]["values"][1], json!({"stringValue": "x"}));
    assert_eq!((&failed["orphan"], &failed["selfNs"]), (&json!(false), &json!(0)));
}

/// A span of the test below, which is written to its end if the piece was handed on at its beginning.
const SPAN_BYTES: usize = 50_000;

/// Breaks if the spans of a large trace are written on and on for a reader that went away.
#[test]
fn no_span_is_written_for_a_reader_that_went_away() {
    let large = |id: u64| {
        let mut large = span(id, 0, "a", 2, id as i64, 9);
        large.attributes = Attributes::of([("k", Value::Text(&"x".repeat(40_000)))]);
        large
    };
    let trace = assemble([1; 16], (1..=5).map(large).collect());
    // What waits to be handed on after all; the reader leaves with the first piece, which holds two spans.
    let held = |write: &dyn Fn(&mut JsonWriter<'_>)| {
        let mut w = JsonWriter::pieces(|_| Err(crate::json_writer::ReaderClosed));
        write(&mut w);
        assert!(w.is_closed());
        let digits: String = format!("{w:?}").chars().filter(char::is_ascii_digit).collect();
        digits.parse::<usize>().expect("a number")
    };
    let otlp = held(&|w| otlp::write(&trace, ExportOptions::default(), w));
    assert!(otlp < SPAN_BYTES, "{otlp}");
    for form in [tempo::Form::Protobuf, tempo::Form::Otlp] {
        let held = held(&|w| w.object(|w| tempo::write_blocks(&trace.spans, "batches", form, w)));
        assert!(held < SPAN_BYTES, "{form:?}: {held}");
    }
}
