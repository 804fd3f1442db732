//! Rows: colors, fields of each row, limits, rights, and random objects against a simple model.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};

use super::{NOW, check, context, lines, rows_of};
use crate::logs::{DropReason, FieldOptions, JsonLines, LogsContext, LogsLimits, Report, SERVICE_FIELDS};
use crate::sender_rights::Sender;

fn read(ctx: &LogsContext, body: &str) -> (Vec<Value>, Report) {
    let mut decoder = JsonLines::new(ctx);
    decoder.feed(body.as_bytes());
    decoder.finish();
    (rows_of(&decoder.rows.take_all()), decoder.rows.report)
}

fn dropped(report: &Report) -> Vec<(DropReason, u64)> {
    report.dropped().collect()
}

#[test]
fn colors() {
    check(
        &[("decolorize_fields", "_msg,c*")],
        r#"{"_msg":"\u001b[31mred\u001b[0m","c1":"\u001b[1m","c2":"a\u001b[mb","d":"\u001b[1mx"}"#,
        json!({"_time": NOW, "_msg": "red", "c2": "ab", "d": "\u{1b}[1mx"}),
    );
    // The message is named by its final name.
    check(
        &[("decolorize_fields", "_msg"), ("_msg_field", "a,m")],
        r#"{"m":"\u001b[31mred"}"#,
        json!({"_time": NOW, "_msg": "red"}),
    );
    check(
        &[("decolorize_fields", "_msg"), ("_msg_field", "a,m")],
        r#"{"m":"\u001b[31mred","a":"x"}"#,
        json!({"_time": NOW, "_msg": "x", "m": "\u{1b}[31mred"}),
    );
    check(
        &[("decolorize_fields", "s"), ("_stream_fields", "s")],
        r#"{"s":"a\u001b[0m","x":"1"}"#,
        json!({"_time": NOW, "s": "a", "x": "1", "_stream": {"s": "a"}}),
    );
}

/// Breaks if fields of a journal cannot be dropped together without its message.
#[test]
fn messages_are_dropped_by_their_name_alone() {
    let line = r#"{"_PID":"1","_msg":"x","a":"b","m":"y"}"#;
    let both = json!({"_time": NOW, "_msg": "x", "a": "b", "m": "y"});
    check(&[("ignore_fields", "_*")], line, both.clone());
    check(&[("ignore_fields", "_P*,_m*")], line, both);
    check(&[("ignore_fields", "_*"), ("_msg_field", "m")], line, json!({"_time": NOW, "_msg": "y", "a": "b"}));
    check(&[("ignore_fields", "_msg,_P*")], line, json!({"_time": NOW, "a": "b", "m": "y"}));
    check(&[("ignore_fields", "*"), ("extra_fields", "e=f")], line, json!({"_time": NOW, "e": "f"}));
}

/// Breaks if a row is kept of whose values nothing is left.
#[test]
fn records_of_nothing_but_colors_are_none() {
    let line = r#"{"_msg":"\u001b[31m\u001b[0m"}"#;
    let (rows, report) = lines(&[("decolorize_fields", "_msg")], line);
    assert_eq!((rows.len(), report.rows, report.empty), (0, 0, 1));
    let (rows, report) = lines(&[("decolorize_fields", "_msg")], &format!("{line}\n{{\"a\":\"1\"}}\n{line}"));
    assert_eq!((rows, report.rows, report.empty), (vec![json!({"_time": NOW, "a": "1"})], 1, 2));
    let mut ctx = context(&[("decolorize_fields", "_msg")]);
    ctx.options = FieldOptions { default_msg: "none".into(), ..(*ctx.options).clone() }.into();
    assert_eq!(read(&ctx, line).0, [json!({"_time": NOW, "_msg": "none"})]);
}

#[test]
fn default_messages() {
    let mut ctx = context(&[("_msg_field", "m")]);
    ctx.options = FieldOptions { default_msg: "none".into(), ..(*ctx.options).clone() }.into();
    let body = "{\"a\":\"1\"}\n{\"m\":\"x\"}\n{\"m\":\"\",\"_msg\":\"y\"}\n{\"m\":\"\"}\n{\"m\":\"\",\"b\":2}";
    let (rows, report) = read(&ctx, body);
    let expected = [
        json!({"_time": NOW, "_msg": "none", "a": "1"}),
        json!({"_time": NOW, "_msg": "x"}),
        json!({"_time": NOW, "_msg": "y"}),
        json!({"_time": NOW, "_msg": "none", "b": "2"}),
    ];
    assert_eq!((rows, report.empty), (expected.to_vec(), 1));
}

#[test]
fn kept_objects() {
    let line = r#"{"a":{"b":{"c": [1, 2]},"d":{"e":{}}},"b":{"c":"x"},"p":{"q":"r"}}"#;
    check(
        &[("preserve_json_keys", "a.b,a.d,p")],
        line,
        json!({"_time": NOW, "a.b": "{\"c\":[1,2]}", "a.d": "{\"e\":{}}", "b.c": "x", "p": "{\"q\":\"r\"}"}),
    );
    check(&[], line, json!({"_time": NOW, "a.b.c": "[1,2]", "b.c": "x", "p.q": "r"}));
}

#[test]
fn times_out_of_bounds() {
    let ctx = context(&[]);
    let latest = ctx.future_max_ns;
    let body = format!(
        "{{\"_time\":\"{latest}\",\"a\":1}}\n{{\"_time\":\"{}\",\"a\":2}}\n{{\"_time\":\"0001-01-01T00:00:00Z\",\"a\":3}}\n\
         {{\"_time\":\"-5\",\"a\":4}}\n{{\"_time\":\"9999-01-01T00:00:00Z\",\"a\":5}}\n{{\"_time\":0,\"a\":6}}\n{{\"_time\":{{}},\"a\":7}}",
        latest + 1
    );
    let (rows, report) = read(&ctx, &body);
    let times: Vec<_> = rows.iter().map(|row| (row["_time"].as_i64(), row["a"].as_str())).collect();
    let kept = [(latest, "1"), (-5_000_000_000, "4"), (NOW, "6"), (NOW, "7")];
    assert_eq!(times, kept.map(|(time, a)| (Some(time), Some(a))));
    assert_eq!(dropped(&report), [(DropReason::TooOld, 1), (DropReason::TooNew, 2)]);
}

/// Breaks if a record is dropped for what it has of its own, though the request has fields for it.
#[test]
fn fields_of_the_request_make_a_row() {
    let query = [("extra_fields", "x=1"), ("ignore_fields", "a"), ("_stream_fields", "a,x")];
    let body = "{}\n{\"a\":\"2\"}\n{\"_time\":\"1970-01-01T00:00:05Z\"}\n";
    let (rows, report) = lines(&query, body);
    let row = |time: i64| json!({"_time": time, "x": "1", "_stream": {"x": "1"}});
    assert_eq!(rows, [row(NOW), row(NOW), row(5_000_000_000)]);
    assert_eq!((report.rows, report.empty), (3, 0));
    let (rows, report) = lines(&[("ignore_fields", "a")], "{}\n{\"a\":\"2\"}\n");
    assert_eq!((rows.len(), report.rows, report.empty), (0, 0, 2));
}

#[test]
fn limits_of_a_row() {
    let with = |query: &[(&str, &str)], limits: LogsLimits| LogsContext { limits, ..context(query) };
    let two = LogsLimits { fields_max: 2, ..LogsLimits::default() };
    let body = "{\"a\":1,\"b\":2}\n{\"a\":1,\"b\":2,\"c\":3}\n{\"a\":1,\"a\":2,\"b\":3,\"c\":null}\n{\"_time\":5,\"a\":1,\"b\":2}";
    let (rows, report) = read(&with(&[], two), body);
    assert_eq!((rows.len(), dropped(&report)), (3, vec![(DropReason::TooManyFields, 1)]));
    assert_eq!(rows[1], json!({"_time": NOW, "a": "2", "b": "3"}));
    // What each row gets counts.
    let (rows, report) = read(&with(&[("extra_fields", "x=1,b=2")], two), "{\"a\":1}\n{\"a\":1,\"b\":1}\n{\"b\":1}");
    assert_eq!((rows.len(), dropped(&report)), (1, vec![(DropReason::TooManyFields, 2)]));
    assert_eq!(rows[0], json!({"_time": NOW, "x": "1", "b": "2"}));
    let ten = LogsLimits { row_bytes_max: 10, ..LogsLimits::default() };
    let body = "{\"ab\":\"12345678\"}\n{\"ab\":\"123456789\"}\n{\"ab\":\"1234\",\"c\":\"123\"}\n{\"a\":\"12345678901\"}\n{\"x\":\"y\"}";
    let (rows, report) = read(&with(&[], ten), body);
    assert_eq!((rows.len(), dropped(&report)), (3, vec![(DropReason::LargeRow, 2)]));
    let (rows, report) = read(&with(&[("extra_fields", "e=12345")], ten), "{\"a\":\"123\"}\n{\"a\":\"1234\"}");
    assert_eq!((rows.len(), dropped(&report)), (1, vec![(DropReason::LargeRow, 1)]));
}

#[test]
fn batches_are_bounded() {
    let ctx = LogsContext { limits: LogsLimits { batch_bytes: 30, ..LogsLimits::default() }, ..context(&[]) };
    let mut decoder = JsonLines::new(&ctx);
    assert!(!decoder.rows.has_rows());
    decoder.feed("{\"a\":\"fifteen letters\"}\n".repeat(5).as_bytes());
    // The third row passes thirty bytes, and ends its batch.
    let full = decoder.rows.take_full();
    assert_eq!(full.iter().map(quiver_types::LogsBatch::len).collect::<Vec<_>>(), [3]);
    assert!(decoder.rows.has_rows());
    let rest = decoder.rows.take_all();
    assert_eq!((rest.len(), rest[0].len(), decoder.rows.has_rows()), (1, 2, false));
    assert!(decoder.rows.take_all().is_empty());
    assert_eq!(rows_of(&rest)[0], json!({"_time": NOW, "a": "fifteen letters"}));
}

#[test]
fn rows_of_some_services() {
    let names = SERVICE_FIELDS.map(str::to_owned);
    let with = |services: &[&str], limits: LogsLimits| {
        let sender = Sender::of(quiver_types::Access::services(services.iter().copied()), names.clone().into());
        LogsContext { limits, sender, ..context(&[]) }
    };
    let body = "{\"app\":\"a\",\"m\":1}\n{\"app\":\"b\"}\n{\"m\":2}\n{\"app\":\"a\",\"service.name\":\"c\"}\n{\"app\":\"c\",\"service.name\":\"a\"}";
    let (rows, report) = read(&with(&["a"], LogsLimits::default()), body);
    let expected = [
        json!({"_time": NOW, "app": "a", "m": "1", "_service": "a"}),
        json!({"_time": NOW, "service.name": "a", "m": "2", "_service": "a"}),
        json!({"_time": NOW, "app": "c", "service.name": "a", "_service": "a"}),
    ];
    assert_eq!(rows, expected);
    assert_eq!((report.forbidden(), report.first_forbidden.as_deref()), (2, Some("b")));
    assert!(!report.all_forbidden());
    // Who may write several services has to name one.
    let (rows, report) = read(&with(&["x", "y"], LogsLimits::default()), body);
    assert_eq!((rows.len(), report.forbidden(), report.first_forbidden.as_deref()), (0, 5, Some("a")));
    assert!(report.all_forbidden());
    let one = LogsLimits { fields_max: 1, ..LogsLimits::default() };
    let (rows, report) = read(&with(&["a"], one), "{\"m\":2}\n{\"app\":\"a\"}");
    assert_eq!((rows.len(), dropped(&report)), (1, vec![(DropReason::TooManyFields, 1)]));
}

/// Objects of any form, flattened step by step.
fn flatten(name: &str, value: &Value, out: &mut Map<String, Value>) {
    if let Value::Object(members) = value {
        for (key, value) in members {
            let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            flatten(&name, value, out);
        }
        return;
    }
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    // Of equal names the last one counts, also where it is empty.
    out.remove(name);
    if !text.is_empty() {
        out.insert(name.to_owned(), text.into());
    }
}

fn any_value(rng: &mut StdRng, depth: u32) -> Value {
    match rng.random_range(0..if depth > 3 { 7 } else { 11 }) {
        0 => Value::Null,
        1 => json!(rng.random_range(-5..5)),
        2 => json!(rng.random::<bool>()),
        3 => Value::from(["", "x", "a \"b\" \\", "é\n\t", "{\"a\":1}"][rng.random_range(0..5)]),
        4 => json!([1, "a\"", {"b": [null, {}]}]),
        5 => json!({}),
        6 => json!(1.5),
        _ => {
            let keys = ["a", "b", "a.b", "b.a", "é", "q\"", "\\n\n"];
            let members = (0..rng.random_range(0..4)).map(|_| {
                let key = keys[rng.random_range(0..keys.len())].to_owned();
                (key, any_value(rng, depth + 1))
            });
            Value::Object(members.collect())
        }
    }
}

#[test]
fn objects_agree_with_the_model() {
    let mut rng = StdRng::seed_from_u64(3);
    let (mut body, mut expected) = (String::new(), Vec::new());
    for _ in 0..500 {
        let mut document = any_value(&mut rng, 0);
        if !document.is_object() {
            document = json!({"a": document});
        }
        let mut row = Map::new();
        flatten("", &document, &mut row);
        if !row.is_empty() {
            row.insert("_time".to_owned(), json!(NOW));
            expected.push(Value::Object(row));
        }
        body.push_str(&document.to_string());
        body.push('\n');
    }
    // One request: names that were seen before, in other orders and places, are found again.
    let (rows, report) = read(&context(&[]), &body);
    assert_eq!(report.rows + report.empty, 500);
    assert_eq!(rows.len(), expected.len());
    for (row, expected) in rows.iter().zip(&expected) {
        assert_eq!(row, expected);
    }
}
