//! Ingestion of logs: another implementation's test tables against the decoders, and recorded requests against the
//! endpoints. Stored rows are queried by LogsQL where it is served.

mod golden;
mod upstream;

use std::path::Path;
use std::sync::Arc;

use quiver_ingest::logs::{
    DecodedLogs, FieldOptions, JsonLines, LogsContext, LogsLimits, Report, SERVICE_FIELDS, bulk, otlp, push, saas,
};
use quiver_types::LogsBatch;
use quiver_types::label::Pairs;
use serde_json::{Map, Value, json};

/// Time of arrival of what is decoded here.
pub(crate) const NOW_NS: i64 = 1_790_000_000_000_000_000;

/// A case and what was wrong with it.
pub(crate) struct Case {
    pub(crate) key: String,
    pub(crate) fault: Option<String>,
    /// Why it has no counterpart.
    pub(crate) skipped: Option<&'static str>,
}

/// A decoder's outcome: rows as JSON (`_time` in nanoseconds, `_stream` as a text) and the report; or why not.
pub(crate) type Outcome = Result<(Vec<Value>, Report), String>;

/// Reads a file of one JSON object per line.
fn cases(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a case is JSON")).collect()
}

/// Makes what decoders know out of parameters and headers.
pub(crate) fn context(query: &Map<String, Value>, headers: &Map<String, Value>) -> Result<LogsContext, String> {
    let service = SERVICE_FIELDS.map(str::to_owned).into();
    let header =
        |name: &str| headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).and_then(|(_, value)| value.as_str());
    let options = FieldOptions::read(|n| query.get(n).and_then(Value::as_str), header, &service);
    Ok(LogsContext {
        options: Arc::new(options.map_err(|e| e.to_string())?),
        limits: LogsLimits::default(),
        now_ns: NOW_NS,
        future_max_ns: NOW_NS + 2 * 86_400_000_000_000,
        sender: None,
    })
}

fn rows(batches: &[LogsBatch]) -> Vec<Value> {
    let mut rows = Vec::new();
    for batch in batches {
        quiver_ingest::fuzz::check_logs(batch);
        for i in 0..batch.len() {
            let mut row: Map<String, Value> = batch.row(i).map(|(n, v)| (n.to_owned(), json!(v))).collect();
            let labels = Pairs::new(batch.labels(batch.row_streams[i])).map(|(n, v)| format!("{n}={v:?}"));
            row.insert("_stream".into(), json!(format!("{{{}}}", labels.collect::<Vec<_>>().join(","))));
            row.insert("_time".into(), json!(batch.time[i]));
            rows.push(Value::Object(row));
        }
    }
    rows
}

fn whole(decoded: Result<DecodedLogs, quiver_ingest::Error>) -> Outcome {
    decoded.map(|d| (rows(&d.batches), d.report)).map_err(|e| e.to_string())
}

/// Decodes a body, decompressed, as the endpoint at a path does.
pub(crate) fn decode(path: &str, is_json: bool, body: &[u8], query: &Map<String, Value>, ctx: &LogsContext) -> Outcome {
    match path {
        "/insert/jsonline" => {
            let mut lines = JsonLines::new(ctx);
            lines.feed(body);
            lines.finish();
            let batches = lines.rows.take_all();
            if lines.rows.report.all_faulty() {
                Err(lines.rows.report.text())
            } else {
                Ok((rows(&batches), lines.rows.report))
            }
        }
        "/insert/searchengine/_bulk" => {
            let mut bulk = bulk::Bulk::new(ctx);
            bulk.feed(body).and_then(|()| bulk.finish()).map_err(|e| e.to_string())?;
            Ok((rows(&bulk.take_all()), bulk.report().clone()))
        }
        "/insert/aggregator/api/v1/push" if is_json => whole(push::decode_json(body, ctx)),
        "/insert/aggregator/api/v1/push" => whole(push::decode_protobuf(body, ctx)),
        "/insert/saas/api/v2/logs" => {
            let given = |name: &'static str| query.get(name)?.as_str().map(|v| (name, v.to_owned()));
            let url = saas::UrlFields {
                ddtags: given("ddtags").map(|(_, v)| v),
                fields: ["ddsource", "hostname", "service"].into_iter().filter_map(given).collect(),
                time_ns: None,
            };
            whole(saas::decode(body, &url, ctx))
        }
        "/insert/opentelemetry/v1/logs" if is_json => whole(otlp::decode_json(body, 64 << 20, ctx)),
        "/insert/opentelemetry/v1/logs" => whole(otlp::decode(body, ctx)),
        other => Err(format!("no decoder for {other}")),
    }
}

/// Runs all cases; says whether none failed.
pub(crate) fn run(folder: &Path, out: &mut Vec<Value>) -> bool {
    let mut all = upstream::run(&cases(&folder.join("upstream/ingest.jsonl")));
    all.extend(golden::run(&cases(&folder.join("golden/ingest.jsonl"))));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for case in &all {
        let status = match (&case.fault, case.skipped) {
            (None, None) => {
                passed += 1;
                "passed"
            }
            (None, Some(_)) => {
                skipped += 1;
                "skipped"
            }
            (Some(fault), _) => {
                failed += 1;
                println!("FAILED {}: {fault}", case.key);
                "failed"
            }
        };
        out.push(json!({"suite": "logsql_ingest", "case": case.key, "status": status, "fault": case.fault}));
    }
    println!("logsql_ingest: {passed} passed, {failed} failed, {skipped} skipped");
    failed == 0 && passed > 0
}
