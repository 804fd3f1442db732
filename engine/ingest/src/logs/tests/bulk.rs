//! Bulk requests: pairs of lines, items, which errors fail an item and which the request.

use quiver_types::ErrorKind;
use serde_json::{Value, json};

use super::{context, rows_of};
use crate::error::Result;
use crate::logs::bulk::Bulk;

const FIELDS: &[(&str, &str)] = &[("_msg_field", "message"), ("_time_field", "@timestamp")];

fn decode(body: &str) -> Result<(Vec<Value>, Value)> {
    let mut bulk = Bulk::new(&context(FIELDS));
    for piece in body.as_bytes().chunks(5) {
        bulk.feed(piece)?;
    }
    bulk.finish()?;
    let rows = rows_of(&bulk.take_all());
    let answer: String = bulk.into_answer(3).collect();
    Ok((rows, serde_json::from_str(&answer).expect("the answer is JSON")))
}

#[test]
fn items() {
    let body = "{\"create\":{\"_index\":\"logs\"}}\n{\"@timestamp\":\"2025-03-10\",\"message\":\"one\"}\n\n\
        {\"delete\":{\"_id\":\"1\"}}\n{\"index\":{}}\nnonsense\n{\"update\":{}}\n{\"doc\":{}}\n\
        {\"index\":{}}\n{\"@timestamp\":\"xyz\"}\r\n{ \"create\" : { } }\n{\"message\":\"two\",\"@timestamp\":1741600000}";
    let (rows, answer) = decode(body).unwrap();
    let t0 = 1_741_600_000_000_000_000i64;
    assert_eq!(
        rows,
        [json!({"_time": 1_741_564_800_000_000_000i64, "_msg": "one"}), json!({"_time": t0, "_msg": "two"})]
    );
    assert_eq!((&answer["took"], &answer["errors"]), (&json!(3), &json!(true)));
    let items: Vec<(String, u64)> = answer["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            let (action, item) = item.as_object().unwrap().iter().next().unwrap();
            assert_eq!(item.get("error").is_some(), item["status"] == 400, "{item}");
            (action.clone(), item["status"].as_u64().unwrap())
        })
        .collect();
    let expected = [("create", 201), ("delete", 400), ("index", 400), ("update", 400), ("index", 400), ("create", 201)];
    assert_eq!(items, expected.map(|(action, status)| (action.to_owned(), status)));
    let (rows, answer) = decode("").unwrap();
    assert_eq!((rows.len(), answer), (0, json!({"took": 3, "errors": false, "items": []})));
}

/// winston's transport for Elasticsearch counts there how often it has tried to send a document.
#[test]
fn members_behind_an_action() {
    let body = "{\"index\":{\"_index\":\"logs-2026.11.30\"},\"attempts\":0}\n{\"message\":\"one\",\"@timestamp\":1741600000}\n\
        {\"create\":{},\"a\":{\"index\":[1]},\"b\":\"}\"}\n{\"message\":\"two\",\"@timestamp\":1741600000}\n";
    let (rows, answer) = decode(body).unwrap();
    assert_eq!(rows.iter().map(|row| &row["_msg"]).collect::<Vec<_>>(), ["one", "two"]);
    let items = json!([{"create": {"status": 201}}, {"create": {"status": 201}}]);
    assert_eq!((&answer["errors"], &answer["items"]), (&json!(false), &items));
}

#[test]
fn actions_are_bounded() {
    let mut bulk = Bulk::new(&context(FIELDS));
    let lines = "{\"delete\":{}}\n".repeat(1 << 16);
    for _ in 0..64 {
        bulk.feed(lines.as_bytes()).expect("as many as allowed");
    }
    assert!(bulk.kept_bytes() <= 8 << 20, "{}", bulk.kept_bytes());
    let error = bulk.feed(lines.as_bytes()).expect_err("one more");
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::TooLarge, "more than 4194304 actions of a request".into())
    );
}

#[test]
fn broken_requests() {
    for body in [
        "foobar",
        "{}",
        "{\"create\":{}}",
        "{\"creat\":{}}\n{}",
        "{\"create\":{}}\n{\"a\":1}\n{\"a\":1}\n",
        "{\"create\":1}\n{}",
        "{\"create\":{},\"index\":{}}\n{}",
        "{\"attempts\":0,\"create\":{}}\n{}",
        "{\"create\":{},\"attempts\":}\n{}",
        "{\"create\":{}} x\n{}",
    ] {
        assert!(decode(body).is_err(), "{body}");
    }
}
