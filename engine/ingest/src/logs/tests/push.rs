//! Push of an aggregator: both encodings give the same rows; shapes that fail as a whole.

use serde_json::{Value, json};

use super::{NOW, context, rows_of};
use crate::logs::push::{decode_json, decode_protobuf};
use crate::wire::{put_bytes, put_varint};

fn protobuf(body: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for stream in body["streams"].as_array().unwrap() {
        let labels = stream["stream"].as_object().cloned().unwrap_or_default();
        let labels: Vec<String> = labels.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let mut message = Vec::new();
        put_bytes(&mut message, 1, format!("{{{}}}", labels.join(", ")).as_bytes());
        for entry in stream["values"].as_array().unwrap() {
            let nanos: i64 = entry[0].as_str().unwrap().parse().unwrap();
            let mut time = vec![0x08];
            put_varint(&mut time, (nanos / 1_000_000_000) as u64);
            time.push(0x10);
            put_varint(&mut time, (nanos % 1_000_000_000) as u64);
            let mut one = Vec::new();
            put_bytes(&mut one, 1, &time);
            put_bytes(&mut one, 2, entry[1].as_str().unwrap().as_bytes());
            for (name, value) in entry[2].as_object().into_iter().flatten() {
                let mut pair = Vec::new();
                put_bytes(&mut pair, 1, name.as_bytes());
                put_bytes(&mut pair, 2, value.as_str().unwrap().as_bytes());
                put_bytes(&mut one, 3, &pair);
            }
            put_bytes(&mut message, 2, &one);
        }
        put_bytes(&mut out, 1, &message);
    }
    out
}

fn check(query: &[(&str, &str)], body: Value, expected: Value) {
    let ctx = context(query);
    let rows = rows_of(&decode_json(body.to_string().as_bytes(), &ctx).unwrap().batches);
    assert_eq!(Value::Array(rows), expected, "{body}");
    let rows = rows_of(&decode_protobuf(&protobuf(&body), &ctx).unwrap().batches);
    assert_eq!(Value::Array(rows), expected, "{body} as protobuf");
}

const T: &str = "1741600000000000000";
const NANOS: i64 = 1_741_600_000_000_000_000;

#[test]
fn entries() {
    check(
        &[],
        json!({"streams": [{"stream": {"app": "x", "env": "p"}, "values": [[T, "one"], ["1741600000000000001", "two", {"user": "u"}]]}]}),
        json!([
            {"_time": NANOS, "_msg": "one", "app": "x", "env": "p", "_stream": {"app": "x", "env": "p"}, "_service": "x"},
            {"_time": NANOS + 1, "_msg": "two", "app": "x", "env": "p", "user": "u", "_stream": {"app": "x", "env": "p"}, "_service": "x"},
        ]),
    );
    check(
        &[],
        json!({"streams": [{"stream": {"a": "x"}, "values": [[T, ""]]}]}),
        json!([{"_time": NANOS, "a": "x", "_stream": {"a": "x"}}]),
    );
    check(&[], json!({"streams": [{"values": [["0", "x"]]}]}), json!([{"_time": NOW, "_msg": "x"}]));
    check(
        &[("_stream_fields", "user"), ("ignore_fields", "b"), ("extra_fields", "e=f")],
        json!({"streams": [{"stream": {"a": "x", "b": "y"}, "values": [[T, "m", {"user": "u"}]]}]}),
        json!([{"_time": NANOS, "_msg": "m", "a": "x", "user": "u", "e": "f", "_stream": {"user": "u"}}]),
    );
    // A field of the request's own is no label of the sender's.
    check(
        &[("extra_fields", "a=z")],
        json!({"streams": [{"stream": {"a": "x", "b": "y"}, "values": [[T, "m"]]}]}),
        json!([{"_time": NANOS, "_msg": "m", "a": "z", "b": "y", "_stream": {"b": "y"}}]),
    );
    check(
        &[("ignore_fields", "b")],
        json!({"streams": [{"stream": {"a": "x", "b": "y", "_time": "z"}, "values": [[T, "m"]]}]}),
        json!([{"_time": NANOS, "_msg": "m", "a": "x", "_stream": {"a": "x"}}]),
    );
}

#[test]
fn lines_that_are_json() {
    let body = json!({"streams": [
        {"stream": {"foo": "bar", "a": "b"}, "values": [[T, "{\"user_id\":\"123\"}"], [T, "abc", {"trace_id": "pqw"}], [T, "{def}"]]},
        {"stream": {"x": "y"}, "values": [[T, "{\"trace_id\":\"432\",\"parent_id\":\"q\"} "]]},
    ]});
    let ab = json!({"foo": "bar", "a": "b"});
    check(
        &[("_msg_field", "a,trace_id")],
        body,
        json!([
            {"_time": NANOS, "foo": "bar", "a": "b", "user_id": "123", "_stream": ab},
            {"_time": NANOS, "foo": "bar", "a": "b", "trace_id": "pqw", "_msg": "abc", "_stream": ab},
            {"_time": NANOS, "foo": "bar", "a": "b", "_msg": "{def}", "_stream": ab},
            {"_time": NANOS, "x": "y", "_msg": "432", "parent_id": "q", "_stream": {"x": "y"}},
        ]),
    );
    let mut ctx = context(&[]);
    let options = crate::logs::FieldOptions { keep_messages: true, ..(*ctx.options).clone() };
    ctx.options = std::sync::Arc::new(options);
    let body = json!({"streams": [{"values": [[T, "{\"a\":1}"]]}]});
    let rows = rows_of(&decode_json(body.to_string().as_bytes(), &ctx).unwrap().batches);
    assert_eq!(rows, [json!({"_time": NANOS, "_msg": "{\"a\":1}"})]);
}

/// Senders normalize a label whose name stands in lines, too.
#[test]
fn fields_of_lines_have_the_prefix_that_is_asked_for() {
    let labels = json!({"level": "warn"});
    let line = r#"{"level":"40","_msg":"x","m":"text","o":{"a":1,"level":"y"},"k":{"b":2},"":"e"}"#;
    let values = json!([[T, line, {"m": "meta"}], [T, "plain"], [T, r#"{"level":"30","m":"again"}"#]]);
    let query = [
        ("message_fields_prefix", "in."),
        ("_msg_field", "in.m"),
        ("preserve_json_keys", "k"),
        ("ignore_fields", "in."),
    ];
    check(
        &query,
        json!({"streams": [{"stream": labels, "values": values}]}),
        json!([
            {"_time": NANOS, "level": "warn", "m": "meta", "_msg": "text", "in.level": "40", "in._msg": "x", "in.o.a": "1",
             "in.o.level": "y", "in.k": "{\"b\":2}", "_stream": labels},
            {"_time": NANOS, "level": "warn", "_msg": "plain", "_stream": labels},
            {"_time": NANOS, "level": "warn", "_msg": "again", "in.level": "30", "_stream": labels},
        ]),
    );
}

/// Breaks if what is read of a line before it turns out to be no object replaces labels, the time, or counts.
#[test]
fn lines_that_only_begin_as_objects_change_nothing() {
    let labels = json!({"level": "info", "a": "b"});
    let row = |line: &str| json!({"_time": NANOS, "_msg": line, "level": "info", "a": "b", "_stream": labels});
    let lines = [
        r#"{"level":"warn"} and more"#,
        r#"{"level":"warn","a":"c","level":"error", msg}"#,
        r#"{"level":"","t":"5"}}"#,
        r#"{"t":"yesterday","level":"warn""#,
        r#"{"m":"other","level":{"x":1},"a":[}"#,
    ];
    let values: Vec<_> = lines.iter().map(|line| json!([T, line])).collect();
    let rows: Vec<_> = lines.iter().copied().map(row).collect();
    let body = json!({"streams": [{"stream": labels, "values": values}]});
    check(&[("_time_field", "t"), ("_msg_field", "_msg,m")], body, Value::Array(rows));
    // What stands again is replaced as before: by metadata, and by a line that is an object.
    let body = json!({"streams": [{"stream": {"a": "b"}, "values": [[T, "{\"a\":\"c\"}", {"a": "m"}], [T, "{\"a\":1}x", {"a": "m"}]]}]});
    let stream = json!({"a": "b"});
    check(
        &[],
        body,
        json!([{"_time": NANOS, "a": "c", "_stream": stream}, {"_time": NANOS, "a": "m", "_msg": "{\"a\":1}x", "_stream": stream}]),
    );
    let many: serde_json::Map<String, Value> = (0..1001).map(|i| (format!("f{i}"), json!(1))).collect();
    let line = format!("{} x", Value::Object(many));
    let body = json!({"streams": [{"values": [[T, line]]}]});
    check(&[], body, json!([{"_time": NANOS, "_msg": line}]));
}

#[test]
fn other_shapes() {
    let ctx = context(&[]);
    for bad in [
        "{}",
        "[]",
        "123",
        "",
        r#"{"streams":[{}]}"#,
        r#"{"streams":[{"values":"foobar"}]}"#,
        r#"{"streams":[{"stream":[],"values":[]}]}"#,
        r#"{"streams":[{"values":[123]}]}"#,
        r#"{"streams":[{"values":[[]]}]}"#,
        r#"{"streams":[{"values":[[123,"456"]]}]}"#,
        r#"{"streams":[{"values":[["1577836800000000001","foo",{"m":1}]]}]}"#,
        r#"{"streams":[{"values":[["abc","x"]]}]}"#,
        r#"{"streams":[{"stream":{"a":1},"values":[["1","x"]]}]}"#,
        r#"{"streams":[{"values":[["1","x",{},1]]}]}"#,
        r#"{"streams":[]} x"#,
    ] {
        assert!(decode_json(bad.as_bytes(), &ctx).is_err(), "{bad}");
    }
    for time in ["9".repeat(1000), format!("-{}", "9".repeat(30)), "9223372036854775808".to_owned(), "1e300".to_owned()]
    {
        let bad = json!({"streams": [{"values": [[T, "m"], [time, "x"]]}]}).to_string();
        let Err(error) = decode_json(bad.as_bytes(), &ctx) else { panic!("a time: {bad}") };
        assert!(error.to_string().contains("the time of an entry cannot be read"), "{error}");
    }
    for good in [
        r#"{"streams":[]}"#,
        r#"{"streams":[{"values":[]}]}"#,
        r#"{"x":1,"streams":[{"values":[["1","x",{}]],"stream":{}}]}"#,
    ] {
        assert!(decode_json(good.as_bytes(), &ctx).is_ok(), "{good}");
    }
    // Labels behind the values.
    let body = r#"{"streams":[{"values":[["1741600000.5","x"]],"stream":{"a":"b"}}]}"#;
    let rows = rows_of(&decode_json(body.as_bytes(), &ctx).unwrap().batches);
    assert_eq!(rows, [json!({"_time": NANOS + 500_000_000, "_msg": "x", "a": "b", "_stream": {"a": "b"}})]);
    assert!(decode_protobuf(b"garbage mark069x", &ctx).is_err());
    let mut stream = Vec::new();
    put_bytes(&mut stream, 1, b"{app=x");
    let mut body = Vec::new();
    put_bytes(&mut body, 1, &stream);
    assert!(decode_protobuf(&body, &ctx).is_err());
}
