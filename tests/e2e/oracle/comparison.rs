//! When two responses are equal: timings, the order of unordered rows, and the last bit of a sum are ignored.

use quiver_tests::server::Answer;
use serde_json::Value;
use std::fmt::Write as _;

use super::questions::Case;

/// Members that tell of the server and of its work, not of data. The last three are told only to a caller who sees all.
const OWN: [&str; 16] = [
    "timings",
    "elapsedMs",
    "scannedBytes",
    "requestId",
    "instance",
    "executionTimeMsec",
    "durationMs",
    "queryId",
    "took",
    "inspectedBytes",
    "totalBlocks",
    "dataSource",
    "lastRefreshTime",
    "chunkCount",
    "minTime",
    "maxTime",
];

fn cleaned(value: &mut Value, ordered: bool) {
    match value {
        Value::Object(map) => {
            for key in &OWN {
                drop(map.remove(*key));
            }
            map.values_mut().for_each(|v| cleaned(v, ordered));
        }
        Value::Array(items) => {
            for v in items.iter_mut() {
                cleaned(v, ordered);
            }
            if !ordered {
                items.sort_by_cached_key(key);
            }
        }
        _ => {}
    }
}

/// What entries are sorted by: not by numbers, whose last bit may differ.
fn key(value: &Value) -> String {
    fn text(value: &Value, out: &mut String) {
        match value {
            Value::Number(n) => {
                let _ = write!(out, "{:.6e}", n.as_f64().unwrap_or_default());
            }
            Value::String(s) => match s.parse::<f64>() {
                Ok(n) => {
                    let _ = write!(out, "{n:.6e}");
                }
                Err(_) => out.push_str(s),
            },
            Value::Array(items) => items.iter().for_each(|v| {
                text(v, out);
                out.push(',');
            }),
            Value::Object(map) => map.iter().for_each(|(k, v)| {
                out.push_str(k);
                out.push(':');
                text(v, out);
            }),
            other => out.push_str(&other.to_string()),
        }
    }
    let mut out = String::new();
    text(value, &mut out);
    out
}

fn close(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-6)
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => {
            x == y || close(x.as_f64().unwrap_or(f64::NAN), y.as_f64().unwrap_or(f64::NAN))
        }
        (Value::String(x), Value::String(y)) => {
            x == y || matches!((x.parse::<f64>(), y.parse::<f64>()), (Ok(x), Ok(y)) if close(x, y))
        }
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| equal(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(k, v)| y.get(k).is_some_and(|other| equal(v, other)))
        }
        _ => a == b,
    }
}

/// An answer as a value: a document, lines of documents, or lines of text.
fn value(case: &Case, answer: &Answer) -> Value {
    let mut value = serde_json::from_slice::<Value>(&answer.body).unwrap_or_else(|_| {
        let text = answer.text();
        let line = |l: &str| serde_json::from_str(l).unwrap_or_else(|_| Value::String(l.to_owned()));
        Value::Array(text.lines().map(line).collect())
    });
    if case.path.starts_with("/sql-api/")
        && let Value::Object(members) = &mut value
    {
        // What was read, which who does not see all is not told (`unlearnt`).
        members.remove("stats");
    }
    cleaned(&mut value, case.ordered);
    value
}

/// Whether a path is that of an export of a trace.
fn is_export(path: &str) -> bool {
    path.starts_with("/platform-api/traces/")
}

/// Says how two answers differ; none: they are the same.
pub(super) fn differs(case: &Case, seen: &Answer, expected: &Answer) -> Option<String> {
    let (a, b) = (value(case, seen), value(case, expected));
    if seen.status == expected.status && equal(&a, &b) {
        return None;
    }
    // Of a trace these say that it is there, and nothing else does (`traces-api` 2.5).
    let says_hidden = a["detail"] == "no access to any service of this trace";
    let of_trace = case.path.strip_prefix("/traces/").is_some_and(|id| !id.contains('/'));
    if (seen.status, expected.status) == (403, 404) && says_hidden && (of_trace || is_export(&case.path)) {
        return None;
    }
    let cut = |v: &Value| v.to_string().chars().take(700).collect::<String>();
    Some(format!("seen     {} {}\n  expected {} {}", seen.status, cut(&a), expected.status, cut(&b)))
}
