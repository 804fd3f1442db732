use std::sync::Arc;

use quiver_types::label::Pairs;
use serde_json::{Map, Value, json};

use super::*;

pub(crate) const NOW: i64 = 1_750_000_000_000_000_000;
const T0: i64 = 1_741_600_000_000_000_000;

pub(crate) fn context(query: &[(&str, &str)]) -> LogsContext {
    let owned: Vec<(String, String)> = query.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let find = |name: &str| owned.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let service: Arc<[String]> = SERVICE_FIELDS.iter().map(|s| (*s).to_owned()).collect();
    let options = FieldOptions::read(find, |_| None, &service).unwrap();
    LogsContext {
        options: Arc::new(options),
        limits: LogsLimits::default(),
        now_ns: NOW,
        future_max_ns: NOW + 2 * 86_400_000_000_000,
        sender: None,
    }
}

/// Rows as JSON: fields, `_time` in nanoseconds, `_stream` as an object, `_service` where there is one.
pub(crate) fn rows_of(batches: &[LogsBatch]) -> Vec<Value> {
    let mut rows = Vec::new();
    for batch in batches {
        crate::fuzz::check_logs(batch);
        for i in 0..batch.len() {
            let mut row: Map<String, Value> = batch.row(i).map(|(n, v)| (n.to_owned(), json!(v))).collect();
            let labels: Map<String, Value> =
                Pairs::new(batch.labels(batch.row_streams[i])).map(|(n, v)| (n.to_owned(), json!(v))).collect();
            row.insert("_time".into(), json!(batch.time[i]));
            if !labels.is_empty() {
                row.insert("_stream".into(), Value::Object(labels));
            }
            let service = &batch.services[batch.row_services[i] as usize];
            if !service.is_empty() {
                row.insert("_service".into(), json!(&**service));
            }
            rows.push(Value::Object(row));
        }
    }
    rows
}

fn lines(query: &[(&str, &str)], body: &str) -> (Vec<Value>, Report) {
    let ctx = context(query);
    let mut decoder = JsonLines::new(&ctx);
    decoder.feed(body.as_bytes());
    decoder.finish();
    let rows = rows_of(&decoder.rows.take_all());
    // In any pieces the same.
    for piece in [1, 7, 4096] {
        let mut again = JsonLines::new(&ctx);
        body.as_bytes().chunks(piece).for_each(|piece| again.feed(piece));
        again.finish();
        assert_eq!(rows_of(&again.rows.take_all()), rows, "pieces of {piece}");
        assert_eq!(again.rows.report, decoder.rows.report, "pieces of {piece}");
    }
    (rows, decoder.rows.report)
}

fn check(query: &[(&str, &str)], line: &str, expected: Value) {
    let (rows, report) = lines(query, line);
    assert_eq!(Value::Array(rows), json!([expected]), "{line}: {report:?}");
}

/// Breaks if times of our own clock pass for those of senders.
#[test]
fn times_of_arrival_are_told_from_those_of_senders() {
    let timed = r#"{"_time":"2025-03-10T09:46:40Z","_msg":"m"}"#;
    let untimed = r#"{"_msg":"n"}"#;
    for (body, given) in [
        (timed.to_owned(), vec![T0]),
        (untimed.to_owned(), vec![]),
        (format!("{timed}\n{untimed}\n{timed}"), vec![T0, T0]),
        (r#"{"_time":"0","_msg":"n"}"#.to_owned(), vec![]),
    ] {
        let mut decoder = JsonLines::new(&context(&[]));
        decoder.feed(body.as_bytes());
        decoder.finish();
        let batches = decoder.rows.take_all();
        assert_eq!(batches.iter().flat_map(LogsBatch::given_times).collect::<Vec<_>>(), given, "{body}");
    }
}

#[test]
fn flattening() {
    check(
        &[],
        r#"{"_time":"2025-03-10T09:46:40Z","_msg":"m","n":2.50,"ok":true,"nil":null,"obj":{"k":{"z":"v"}},"arr":[1, "x",{"q":1}],"empty":""}"#,
        json!({"_time": T0, "_msg": "m", "n": "2.50", "ok": "true", "obj.k.z": "v", "arr": "[1,\"x\",{\"q\":1}]"}),
    );
    check(
        &[],
        r#"{"a":"1","a":"2","b.c":"3","b":{"c":"4"},"d":"x","d":""}"#,
        json!({"_time": NOW, "a": "2", "b.c": "4"}),
    );
    check(&[], r#"{"":"m","é\n":"\u00e9\ud83d\ude00"}"#, json!({"_time": NOW, "_msg": "m", "é\n": "é😀"}));
    check(&[], " { \"a\" : { } , \"b\" : \"x\" } ", json!({"_time": NOW, "b": "x"}));
}

#[test]
fn long_names_and_deep_objects() {
    let long = "k".repeat(160);
    let line = json!({"_msg": "m", &long: "v", "a": {"b": "1", &long: "2"}}).to_string();
    let (rows, report) = lines(&[], &line);
    let cut = &long[..128];
    let nested = json!({"b": "1", &long: "2"}).to_string();
    assert_eq!(rows, [json!({"_time": NOW, "_msg": "m", cut: "v", "a": nested})]);
    assert_eq!(report.cut_names, 1);
    // An object that stays JSON replaces nothing that stood before it.
    let line = format!(r#"{{"a.b":"1","a.c":"2","a":{{"b":"3","{long}":"4"}}}}"#);
    let nested = json!({"b": "3", &long: "4"}).to_string();
    assert_eq!(lines(&[], &line).0, [json!({"_time": NOW, "a.b": "1", "a.c": "2", "a": nested})]);
    // Each object within would be read again for each that it stands in.
    let inner = format!("{{\"p\":\"{}\",\"{long}\":1}}", "x".repeat(1000));
    let chain = (0..50).fold(inner, |inner, n| match n {
        0..40 => format!("{{\"a\":{inner},\"{long}\":1}}"),
        _ => format!("{{\"a\":{inner}}}"),
    });
    let (rows, _) = lines(&[], &format!("{{\"b\":1,\"a\":{chain},\"c\":{{\"d\":2}}}}"));
    assert_eq!(rows, [json!({"_time": NOW, "b": "1", "a": chain, "c.d": "2"})]);
    let deep = format!("{}1{}", "{\"a\":".repeat(1000), "}".repeat(1000));
    let (rows, _) = lines(&[], &deep);
    let name = rows[0].as_object().unwrap().keys().find(|k| k.starts_with("a.")).unwrap();
    assert_eq!((rows.len(), name.len()), (1, 127));
    let deep = format!("{}1{}", "{\"\":".repeat(1000), "}".repeat(1000));
    assert_eq!(lines(&[], &deep).0.len(), 1);
}

#[test]
fn parameters() {
    let line = r#"{"ts":"2025-03-10T09:46:40Z","log":{"message":"one"},"app":"a","host":"h"}"#;
    check(
        &[("_msg_field", "log.message"), ("_time_field", "ts"), ("_stream_fields", "host,app,nosuch")],
        line,
        json!({"_time": T0, "_msg": "one", "app": "a", "host": "h", "_stream": {"app": "a", "host": "h"}, "_service": "a"}),
    );
    check(
        &[("ignore_fields", "log*,app,ts"), ("_time_field", "ts"), ("_stream_fields", "app,host")],
        line,
        json!({"_time": T0, "host": "h", "_stream": {"host": "h"}}),
    );
    check(
        &[
            ("extra_fields", "host=x,b=c"),
            ("ignore_fields", "b"),
            ("_stream_fields", "b,host"),
            ("_time_field", "no,ts"),
        ],
        line,
        json!({"_time": T0, "log.message": "one", "app": "a", "host": "x", "b": "c", "_stream": {"b": "c", "host": "x"}, "_service": "a"}),
    );
    // The first in the list counts, not the first in the row; the others stay.
    check(
        &[("_time_field", "t2,t1"), ("_msg_field", "m2,m1,m3")],
        r#"{"t1":"1","t2":"1741600000","m1":"x","m2":"","m3":"z","_msg":"w"}"#,
        json!({"_time": T0, "t1": "1", "_msg": "x", "m3": "z"}),
    );
    check(
        &[("_time_field", "a,_time"), ("ignore_fields", "message,x"), ("_msg_field", "message,x")],
        r#"{"a":"1741600000","_time":"5","x":"1","message":"m"}"#,
        json!({"_time": T0, "_msg": "m"}),
    );
    // The message is named by the name under which it is stored.
    check(&[("ignore_fields", "_msg")], r#"{"_msg":"m","x":"1"}"#, json!({"_time": NOW, "x": "1"}));
    check(&[("ignore_fields", "_msg"), ("_msg_field", "m")], r#"{"m":"m","x":"1"}"#, json!({"_time": NOW, "x": "1"}));
}

#[test]
fn reserved_names() {
    check(
        &[],
        r#"{"_msg":"m","_stream":"{x=\"y\",a=\"b\"}","_stream_id":"abc"}"#,
        json!({"_time": NOW, "_msg": "m", "_stream": {"a": "b", "x": "y"}}),
    );
    check(
        &[("_stream_fields", "app")],
        r#"{"_msg":"m","_stream":"{x=\"y\"}","app":"a"}"#,
        json!({"_time": NOW, "_msg": "m", "app": "a", "_stream": {"app": "a"}, "_service": "a"}),
    );
    check(&[("_time_field", "t")], r#"{"_msg":"m","_time":"5","_stream":"x"}"#, json!({"_time": NOW, "_msg": "m"}));
    check(
        &[],
        r#"{"kubernetes":{"labels":{"app":"k"}},"service":"s"}"#,
        json!({"_time": NOW, "kubernetes.labels.app": "k", "service": "s", "_service": "s"}),
    );
}

#[test]
fn bad_lines_cost_themselves() {
    let long = format!("{{\"_msg\":\"{}\"}}", "x".repeat(256 << 10));
    let many: Map<String, Value> = (0..1001).map(|i| (format!("f{i}"), json!(1))).collect();
    let body = format!(
        "{{\"_msg\":\"1\"}}\nfoo\n\n{long}\n{{\"_msg\":\"2\"}}\r\n \n[{{\"_msg\":\"x\"}}]\n{{\"_msg\":\"x\"\n{{\"_msg\":\"x\"}} y\n{}\n\
         {{\"_time\":\"yesterday\",\"_msg\":\"x\"}}\n{{}}\n{{\"_time\":\"2090-01-01T00:00:00Z\",\"_msg\":\"x\"}}\n{{\"_msg\":\"3\"}}",
        Value::Object(many)
    );
    let (rows, report) = lines(&[], &body);
    let messages: Vec<&str> = rows.iter().filter_map(|r| r["_msg"].as_str()).collect();
    assert_eq!(messages, ["1", "2", "3"]);
    let dropped: Vec<_> = report.dropped().collect();
    let expected = [
        (DropReason::Unreadable, 4),
        (DropReason::BadTime, 1),
        (DropReason::TooManyFields, 1),
        (DropReason::LongLine, 1),
        (DropReason::TooNew, 1),
    ];
    assert_eq!(dropped, expected);
    assert_eq!((report.rows, report.empty, report.all_faulty()), (3, 1, false));
    assert!(report.first_fault.unwrap().starts_with("line 2: "));
    assert!(lines(&[], "foo\nbar").1.all_faulty());
    let told = |body: &str| lines(&[], body).1.first_fault.unwrap_or_default();
    let list = "line 1: invalid JSON at offset 1: expected an object; send each of a list on a line of its own";
    assert_eq!((told(" [{\"_msg\":\"x\"}]").as_str(), told("5").contains("of a list")), (list, false));
    let time = "line 1: the time cannot be read (RFC 3339 and Unix times are)";
    assert_eq!(told("{\"_time\":\"yesterday\",\"_msg\":\"x\"}"), time);
    assert!(!lines(&[], "").1.all_faulty());
    // As long as allowed, also with a carriage return.
    let fits = format!("{{\"_msg\":\"{}\"}}", "x".repeat((256 << 10) - 11));
    assert_eq!(lines(&[], &fits).0.len(), 1);
    assert_eq!(lines(&[], &format!("{fits}\n")).0.len(), 1);
}

#[test]
fn bytes_that_are_no_utf8() {
    let ctx = context(&[]);
    let mut decoder = JsonLines::new(&ctx);
    decoder.feed(b"{\"_msg\":\"a\xff\"}\n{\"_msg\":\"b\"}\n{\"_msg\":\"c\xfe\"}");
    decoder.finish();
    let rows = rows_of(&decoder.rows.take_all());
    let messages: Vec<&str> = rows.iter().filter_map(|r| r["_msg"].as_str()).collect();
    assert_eq!(messages, ["a\u{fffd}", "b", "c\u{fffd}"]);
}

/// Breaks if a value that the request drops is shown as a label nevertheless.
#[test]
fn labels_that_rows_bring_are_fields_as_well() {
    let line = r#"{"_msg":"m","_stream":"{x=\"y\",a=\"b\",_time=\"5\",_stream_id=\"6\"}","x":"y","a":"b"}"#;
    let both = json!({"_time": NOW, "_msg": "m", "a": "b", "x": "y", "_stream": {"a": "b", "x": "y"}});
    check(&[], line, both.clone());
    let one = json!({"_time": NOW, "_msg": "m", "a": "b", "_stream": {"a": "b"}});
    for ignored in ["x", "x*", "nosuch,x"] {
        check(&[("ignore_fields", ignored)], line, one.clone());
    }
    let mut other = one;
    other["x"] = json!("1");
    check(&[("extra_fields", "x=1")], line, other);
    for ignored in ["_stream", "_s*"] {
        let none = json!({"_time": NOW, "_msg": "m", "a": "b", "x": "y"});
        check(&[("ignore_fields", ignored)], line, none);
    }
}

#[test]
fn many_names_and_streams() {
    let ctx = context(&[("_stream_fields", "s")]);
    let mut decoder = JsonLines::new(&ctx);
    let mut rows = 0;
    for i in 0..60_000 {
        decoder.feed(format!("{{\"_msg\":\"m\",\"n{i}\":\"{i}\",\"s\":\"{}\"}}\n", i % 1000).as_bytes());
        for batch in decoder.rows.take_full() {
            assert!(batch.names.len() <= 20_100);
            rows += rows_of(&[batch]).len();
        }
    }
    rows += rows_of(&decoder.rows.take_all()).len();
    assert_eq!(rows, 60_000);
}

mod bounds;
mod bulk;
pub(crate) mod otlp;
mod push;
mod rows;
mod saas;
mod speed;
