//! Tables of the decoders: bodies and the rows decoded from them.

use quiver_ingest::logs::{LogsContext, time};
use quiver_tests::bodies::{field, varint};
use serde_json::{Map, Value, json};

use super::{Case, NOW_NS, Outcome, context, decode};

const PUSH: &str = "/insert/aggregator/api/v1/push";
const JSON_LINES: &str = "/insert/jsonline";

pub(super) fn run(cases: &[Value]) -> Vec<Case> {
    cases
        .iter()
        .map(|case| {
            let test = text(&case["test"]);
            let key = format!("upstream/{test}/{}", text(&case["id"]));
            Case { key, fault: check(test, text(&case["format"]), &case["args"]).err(), skipped: None }
        })
        .collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn check(test: &str, format: &str, args: &Value) -> Result<(), String> {
    let data = args["data"].as_str().or(args["s"].as_str()).unwrap_or_default();
    match test {
        "TestLineReader_Success" | "TestLineReader_Failure" => {
            let lines = quiver_ingest::fuzz::lines(data.as_bytes(), test.ends_with("Success"));
            let expected: Vec<&str> = args["linesExpected"].as_array().into_iter().flatten().map(text).collect();
            return same(&json!(lines), &json!(expected));
        }
        "TestExtractTimestampFromFields_Error" => {
            let line = json!({"time": data, "a": "b"}).to_string();
            return refused(run_one(JSON_LINES, true, line.as_bytes(), &json!({"_time_field": "time"})));
        }
        "TestExtractTimestampFromFields_Success" | "TestExtractTimestampFromFields_Now" => {
            let mut row: Map<String, Value> = Map::from_iter([("x".to_owned(), json!("y"))]);
            for pair in args["fields"].as_array().into_iter().flatten() {
                row.insert(text(&pair[0]).to_owned(), pair[1].clone());
            }
            let line = Value::Object(row).to_string();
            let query = json!({"_time_field": args["timeField"]});
            let (rows, _) = run_one(JSON_LINES, true, line.as_bytes(), &query)?;
            let expected = args["nsecsExpected"].as_i64().unwrap_or(NOW_NS);
            return same(&rows[0]["_time"], &json!(expected));
        }
        "TestParsePromLabels_Success" | "TestParsePromLabels_Failure" => {
            let mut stream = Vec::new();
            field(&mut stream, 1, data.as_bytes());
            let mut body = Vec::new();
            field(&mut body, 1, &stream);
            let outcome = run_one(PUSH, false, &body, &json!({}));
            return if test.ends_with("Success") { outcome.map(drop) } else { refused(outcome) };
        }
        _ => {}
    }
    let mut query = json!({});
    if let Some(name) = args["timeField"].as_str() {
        query["_time_field"] = json!(name);
    } else if test == "TestProcessStreamInternalFailure" {
        query["_time_field"] = json!("time");
    }
    let fields: Vec<&str> = args["msgFields"].as_array().into_iter().flatten().map(text).collect();
    if let Some(name) = args["msgField"].as_str() {
        query["_msg_field"] = json!(name);
    } else if !fields.is_empty() {
        query["_msg_field"] = json!(fields.join(","));
    }
    let (path, is_json, body) = match format {
        "datadog" => ("/insert/saas/api/v2/logs", true, data.as_bytes().to_vec()),
        "elasticsearch" => ("/insert/searchengine/_bulk", true, data.as_bytes().to_vec()),
        "jsonline" => (JSON_LINES, true, data.as_bytes().to_vec()),
        "loki" if test.contains("Protobuf") => (PUSH, false, push_protobuf(data)?),
        "loki" => (PUSH, true, data.as_bytes().to_vec()),
        "opentelemetry" => ("/insert/opentelemetry/v1/logs", false, otlp_protobuf(&args["src"])),
        other => return Err(format!("unknown format {other}")),
    };
    let outcome = run_one(path, is_json, &body, &query);
    if test.ends_with("Failure") {
        return refused(outcome);
    }
    let (mut rows, _) = outcome?;
    let times: Vec<Value> = rows.iter().map(|r| r["_time"].clone()).collect();
    for row in &mut rows {
        let row = row.as_object_mut().expect("a row is an object");
        row.retain(|name, _| name != "_time" && name != "_stream");
    }
    let expected: Vec<Value> = text(&args["resultExpected"])
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|e| e.to_string()))
        .collect::<Result<_, String>>()?;
    same(&json!(rows), &json!(expected))?;
    match &args["timestampsExpected"] {
        Value::Array(expected) => same(&json!(times), &json!(expected)),
        _ => Ok(()),
    }
}

fn run_one(path: &str, is_json: bool, body: &[u8], query: &Value) -> Outcome {
    let (none, empty) = (Map::new(), Map::new());
    let query = query.as_object().unwrap_or(&none);
    // Some times of the tables lie years ahead.
    let ctx = LogsContext { future_max_ns: i64::MAX, ..context(query, &empty)? };
    decode(path, is_json, body, query, &ctx)
}

fn refused(outcome: Outcome) -> Result<(), String> {
    outcome.map_or(Ok(()), |(rows, _)| Err(format!("taken: {}", json!(rows))))
}

fn same(got: &Value, expected: &Value) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("{got} instead of {expected}")) }
}

/// Encodes what the JSON form of a push says.
fn push_protobuf(data: &str) -> Result<Vec<u8>, String> {
    let request: Value = serde_json::from_str(data).map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    for stream in request["streams"].as_array().into_iter().flatten() {
        let labels = stream["stream"].as_object().into_iter().flatten().map(|(n, v)| format!("{n}={v}"));
        let mut message = Vec::new();
        field(&mut message, 1, format!("{{{}}}", labels.collect::<Vec<_>>().join(", ")).as_bytes());
        for entry in stream["values"].as_array().into_iter().flatten() {
            let Some(time::Stamp::At(nanos)) = time::unix(text(&entry[0])) else { return Err("no time".to_owned()) };
            let mut stamp = vec![0x08];
            varint(&mut stamp, (nanos / 1_000_000_000) as u64);
            stamp.push(0x10);
            varint(&mut stamp, (nanos % 1_000_000_000) as u64);
            let mut one = Vec::new();
            field(&mut one, 1, &stamp);
            field(&mut one, 2, text(&entry[1]).as_bytes());
            for (name, value) in entry[2].as_object().into_iter().flatten() {
                let mut pair = Vec::new();
                field(&mut pair, 1, name.as_bytes());
                field(&mut pair, 2, text(value).as_bytes());
                field(&mut one, 3, &pair);
            }
            field(&mut message, 2, &one);
        }
        field(&mut out, 1, &message);
    }
    Ok(out)
}

/// Encodes what the table writes as structures.
fn otlp_protobuf(src: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for resource_logs in src.as_array().into_iter().flatten() {
        let mut resource = Vec::new();
        attributes(&resource_logs["Resource"]["Attributes"], 1, &mut resource);
        let mut message = Vec::new();
        field(&mut message, 1, &resource);
        for scope_logs in resource_logs["ScopeLogs"].as_array().into_iter().flatten() {
            let mut scope = Vec::new();
            for record in scope_logs["LogRecords"].as_array().into_iter().flatten() {
                field(&mut scope, 2, &log_record(record));
            }
            field(&mut message, 2, &scope);
        }
        field(&mut out, 1, &message);
    }
    out
}

fn log_record(record: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, tag) in [("TimeUnixNano", 0x09), ("ObservedTimeUnixNano", 0x59)] {
        if let Some(nanos) = record[name].as_u64() {
            out.push(tag);
            out.extend_from_slice(&nanos.to_le_bytes());
        }
    }
    if let Some(number) = record["SeverityNumber"].as_u64() {
        out.push(0x10);
        varint(&mut out, number);
    }
    field(&mut out, 3, text(&record["SeverityText"]).as_bytes());
    field(&mut out, 5, &any_value(&record["Body"]));
    attributes(&record["Attributes"], 6, &mut out);
    for (name, number) in [("TraceID", 9), ("SpanID", 10)] {
        let digits = text(&record[name]).as_bytes().chunks(2);
        let bytes = digits.map(|d| u8::from_str_radix(&String::from_utf8_lossy(d), 16).expect("hex"));
        field(&mut out, number, &bytes.collect::<Vec<u8>>());
    }
    out
}

fn attributes(list: &Value, number: u64, out: &mut Vec<u8>) {
    for pair in list.as_array().into_iter().flatten() {
        let mut one = Vec::new();
        field(&mut one, 1, text(&pair["Key"]).as_bytes());
        field(&mut one, 2, &any_value(&pair["Value"]));
        field(out, number, &one);
    }
}

fn any_value(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(text) = value["StringValue"].as_str() {
        field(&mut out, 1, text.as_bytes());
    } else if let Some(number) = value["IntValue"].as_i64() {
        out.push(0x18);
        varint(&mut out, number as u64);
    } else if let Some(number) = value["DoubleValue"].as_f64() {
        out.push(0x21);
        out.extend_from_slice(&number.to_le_bytes());
    } else if value["KeyValueList"].is_object() {
        let mut list = Vec::new();
        attributes(&value["KeyValueList"]["Values"], 1, &mut list);
        field(&mut out, 6, &list);
    }
    out
}
