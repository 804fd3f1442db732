//! The SaaS intake: messages, tags, and fields that the URL provides.

use serde_json::{Value, json};

use super::{NOW, context, rows_of};
use crate::error::Result;
use crate::logs::saas::{UrlFields, decode};

fn read(body: &str, url: &UrlFields) -> Result<Vec<Value>> {
    decode(body.as_bytes(), url, &context(&[])).map(|d| rows_of(&d.batches))
}

fn check(record: Value, expected: Value) {
    let rows = read(&json!([record]).to_string(), &UrlFields::default()).unwrap();
    assert_eq!(rows, [expected]);
    assert_eq!(read(&record.to_string(), &UrlFields::default()).unwrap(), rows);
}

#[test]
fn records() {
    let t0 = 1_741_600_000_000_000_000i64;
    check(
        json!({"ddsource": "nginx", "ddtags": "env:prod,version:1.2,x,a:1,a:2,b:,:c,d:e:f,", "message": "m", "timestamp": 1_741_600_000_000i64}),
        json!({"_time": t0, "_msg": "m", "ddsource": "nginx", "env": "prod", "version": "1.2", "x": "no_label_value", "a": "2", "d": "e:f"}),
    );
    check(json!({"message": {"level": "x", "message": "inner"}}), json!({"_time": NOW, "_msg": "inner"}));
    check(
        json!({"message": {"message": "m", "status": "warn", "lambda": {"arn": "a:b", "n": 5}}}),
        json!({"_time": NOW, "_msg": "m", "status": "warn", "arn": "a:b"}),
    );
    check(json!({"message": {"level": "x"}}), json!({"_time": NOW, "_msg": "{\"level\":\"x\"}"}));
    check(
        json!({"message": 5, "n": 5, "o": {"a": 1}, "b": true, "timestamp": "2025-03-10T09:46:40Z"}),
        json!({"_time": t0, "_msg": "5", "n": "5", "o.a": "1", "b": "true"}),
    );
}

#[test]
fn bodies() {
    let none = UrlFields::default();
    let rows = read(r#"[{"message":"1","timestamp":1741600000000},{"message":"2"}]"#, &none).unwrap();
    assert_eq!(rows[1], json!({"_time": NOW, "_msg": "2"}));
    assert!(read("[]", &none).unwrap().is_empty());
    assert!(read("{}", &none).unwrap().is_empty());
    for bad in ["", "[{", "[1]", "{\"create\":{}}\nfoobar", "[{}", "[{},]", "x", "[{\"message\":{\"a\":}}]"] {
        assert!(read(bad, &none).is_err(), "{bad}");
    }
}

#[test]
fn what_the_url_fills_in() {
    let url = UrlFields {
        ddtags: Some("team:core".to_owned()),
        fields: vec![("ddsource", "url".to_owned()), ("service", "s".to_owned())],
        ..UrlFields::default()
    };
    let rows = read(r#"[{"ddsource": "nginx","ddtags":"a:b","message":"1"},{"message":"2","service":null}]"#, &url);
    let expected = [
        json!({"_time": NOW, "_msg": "1", "ddsource": "nginx", "a": "b", "service": "s", "_service": "s"}),
        json!({"_time": NOW, "_msg": "2", "ddsource": "url", "team": "core", "service": "s", "_service": "s"}),
    ];
    assert_eq!(rows.unwrap(), expected);
}

/// Agents say when they took in what has no time of its own.
#[test]
fn the_head_gives_a_time_to_records_without_one() {
    let sent = 1_741_600_001_123_000_000;
    let url = UrlFields { time_ns: Some(sent), ..UrlFields::default() };
    let body = r#"[{"message":"1","timestamp":1741600000000},{"message":"2"}]"#;
    let rows = read(body, &url).unwrap();
    let times: Vec<&Value> = rows.iter().map(|row| &row["_time"]).collect();
    assert_eq!(times, [&json!(1_741_600_000_000_000_000i64), &json!(sent)]);
}
