//! Compares responses to 30 calls of Tempo's API with those recorded from another server.
//!
//! Lists are compared regardless of order; cost counters and exemplars are ignored; of samples only those other than 0
//! are compared, since that server returns none after its own clock. Calls where the design differs, or that are not
//! supported, are listed with our response.

use std::path::Path;

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

use super::{Outcome, difference, read, send, states};

/// Calls that are answered otherwise: a part of the request, our status, a part of our answer, and why.
const OTHERWISE: &[(&str, u16, &str, &str)] = &[
    ("span.amount+%3E+1000", 200, "2000000000000001", "numbers compare as numbers: 1299.5 is above 1000"),
    ("/api/status/buildinfo", 200, "\"version\":", "each says its own"),
    (
        "q=%7B+%7D&",
        200,
        "\"matched\":10",
        "which three of ten spans are shown is the order of its files there, of time here",
    ),
    // Looked up without times it is too old for that server's newest blocks.
    ("/api/v2/traces/4bf92f3577b34da6a3ce929d0e0e4736", 200, "POST /checkout", "found without times, too"),
];

/// Runs the recorded calls.
pub(super) async fn run(root: &Path, all: &mut Outcome<'_>) {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    send(&server, "/v1/traces", &root.join("tempo/ingest.otlp.json")).await;
    let recorded = read(&root.join("tempo/recorded.json"));
    for step in 0..3 {
        let state = states(&server, step).await;
        for call in recorded["calls"].as_array().into_iter().flatten() {
            let request = call["request"].as_str().unwrap_or_default();
            let answer = server.get(&format!("/tempo{request}")).await;
            let otherwise = OTHERWISE.iter().find(|(part, ..)| {
                // The look-up without times is the path alone.
                if part.contains("/traces/") { request == *part } else { request.contains(part) }
            });
            let problem = match otherwise {
                Some((_, status, part, _)) => {
                    let good = answer.status == *status && answer.text().contains(part);
                    (!good).then(|| format!("status {}: {}", answer.status, answer.text()))
                }
                None if u64::from(answer.status) != call["status"].as_u64().unwrap_or(0) => {
                    Some(format!("status {}: {}", answer.status, answer.text()))
                }
                None if call["body"].is_object() => difference("", &normal(&call["body"]), &normal(&answer.json())),
                None => {
                    (call["body"].as_str().map(str::trim_end) != Some(answer.text().trim_end())).then(|| answer.text())
                }
            };
            all.note(&format!("tempo{request} ({state})"), problem);
        }
    }
}

/// Brings an answer into an order of its own, without what is not compared.
fn normal(value: &Value) -> Value {
    match value {
        Value::Array(list) => {
            let mut list: Vec<Value> = list.iter().map(normal).filter(|v| !is_empty_sample(v)).collect();
            list.sort_by_cached_key(|v| {
                let names = ["spanId", "spanID", "key", "name", "value", "timestampMs", "labels", "resource"];
                (names.map(|n| v[n].to_string()).concat(), v.to_string())
            });
            Value::Array(list)
        }
        Value::Object(map) => {
            let left_out = |k: &str| matches!(k, "metrics" | "exemplars");
            map.iter().filter(|(k, _)| !left_out(k)).map(|(k, v)| (k.clone(), normal(v))).collect()
        }
        Value::Number(n) => json!(n.as_f64()),
        other => other.clone(),
    }
}

fn is_empty_sample(value: &Value) -> bool {
    value.get("timestampMs").is_some() && value["value"].as_f64().unwrap_or(0.0) == 0.0
}
