//! Recorded requests: status and body of the response, the rows that the decoder returns, and the rows that are stored.
//! These are read from live data after each request, then flushed, then compacted; also by LogsQL.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::TimestampNanosecondType;
use datafusion::prelude::SessionContext;
use quiver::server::BoundServer;
use quiver::settings::LoadedSettings;
use quiver_api::AppState;
use quiver_ingest::{Encoding, content_encoding};
use quiver_types::logs::{LogColumn, LogFilter, LogForm, LogOrder, LogRequest, STREAM, TIME};
use quiver_types::{Access, ReadStats, SystemClock};
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{Case, NOW_NS, context, decode};

const QUERY: &str = "/logs-api/select/logsql/query";

pub(super) fn run(cases: &[Value]) -> Vec<Case> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let dir = tempfile::tempdir().expect("a folder");
        let flags = [
            ("store.data", dir.path().display().to_string()),
            ("store.retention", "none".to_owned()),
            ("http.listen", "127.0.0.1:0".to_owned()),
            ("otlp.http_listen", String::new()),
            ("otlp.grpc_listen", String::new()),
            ("rbac.mode", "off".to_owned()),
        ];
        let loaded = LoadedSettings::load(None, std::iter::empty(), &flags).expect("valid settings");
        let bound = BoundServer::bind(&loaded).await.expect("free ports");
        let (address, stop) = (bound.addresses.http, CancellationToken::new());
        let (ready, opened) = tokio::sync::oneshot::channel::<Arc<AppState>>();
        let server = tokio::spawn(bound.run(Arc::new(SystemClock), stop.clone(), move |app| {
            let _ = ready.send(Arc::clone(app));
        }));
        let app = opened.await.expect("the server opens");
        let client = reqwest::Client::builder().timeout(Duration::from_mins(5)).build().expect("a client");
        let golden = Golden { base: format!("http://{address}"), client, app: Arc::clone(&app) };
        let mut all = Vec::new();
        for case in cases {
            let key = format!("golden/{}", case["name"].as_str().unwrap_or_default());
            let fault = golden.check(case).await.err();
            all.push(Case { key, fault, skipped: None });
        }
        app.engines.store.flush_all().await.expect("a flush");
        golden.check_again(cases, &mut all, "flushed").await;
        app.engines.store.compact_all().await.expect("a compaction");
        golden.check_again(cases, &mut all, "compacted").await;
        drop((golden, app));
        stop.cancel();
        server.await.expect("no fault").expect("a clean end");
        all
    })
}

struct Golden {
    base: String,
    client: reqwest::Client,
    app: Arc<AppState>,
}

/// What is right where the recorded answer is no model: status, and rows without `_time` and `_stream` (`None`: as
/// recorded).
fn product_rule(name: &str) -> Option<(u64, Option<Vec<Value>>)> {
    let row = |fields: Value| vec![fields];
    Some(match name {
        "jsonline_long_field_name" => (200, Some(row(json!({"_msg": "mark034x long name", "k".repeat(128): "v"})))),
        "jsonline_many_fields" => (200, Some(vec![])),
        "bulk_delete_line" => {
            let one = |n, level| json!({"_msg": format!("mark044x {n}"), "log.level": level});
            (200, Some(vec![one("one", "info"), one("two", "warn")]))
        }
        "bulk_bad_action" | "bulk_missing_doc" => (400, Some(vec![])),
        "bulk_bad_time" => {
            let one = |n, level| json!({"_msg": format!("mark050x {n}"), "log.level": level});
            (200, Some(vec![one("one", "info"), one("two", "warn")]))
        }
        "saas_object" => (202, Some(row(json!({"_msg": "mark071x one", "env": "dev", "service": "web"})))),
        "saas_params_in_url" => {
            let one = json!({"_msg": "mark074x one", "ddsource": "nginx", "env": "prod", "hostname": "h1",
                "service": "web", "version": "1.2"});
            let two = json!({"_msg": "mark074x two", "status": "warn", "ddsource": "from-url", "team": "core"});
            (202, Some(vec![one, two]))
        }
        "saas_attribute_types" => (202, Some(row(json!({"_msg": "mark079x one", "n": "5", "o.a": "1", "b": "true"})))),
        "saas_second_without_time" => {
            (202, Some(vec![json!({"_msg": "mark080x one"}), json!({"_msg": "mark080x two"})]))
        }
        "saas_empty_object" => (202, Some(vec![])),
        "otlp_pb_msg_field" => {
            let fields = json!({"_msg": "mark093x from attribute", "mark": "mark093x", "severity": "Unspecified"});
            (200, Some(row(fields)))
        }
        "otlp_json" => {
            let fields = json!({"_msg": "mark096x json", "service.name": "shop", "severity": "INFO", "n": "5"});
            (200, Some(row(fields)))
        }
        "jsonline_content_type_" => (200, None),
        _ => return None,
    })
}

impl Golden {
    async fn check(&self, case: &Value) -> Result<(), String> {
        let name = case["name"].as_str().unwrap_or_default();
        let rule = product_rule(name);
        if case["binding"] == json!(false) && rule.is_none() {
            return Err("the case has a rule of its own that is not written down here".to_owned());
        }
        let status = rule.as_ref().map_or(case["status"].as_u64(), |r| Some(r.0)).unwrap_or_default();
        let (expected, own_rows) = expected_rows(case);
        let empty = Map::new();
        let (query, headers) =
            (case["params"].as_object().unwrap_or(&empty), case["headers"].as_object().unwrap_or(&empty));
        let body = body(case)?;
        let path = case["path"].as_str().unwrap_or_default();

        // The endpoint.
        let mut request = self.client.post(format!("{}{path}", self.base)).body(body.clone());
        request = request.query(&query.iter().map(|(n, v)| (n, v.as_str().unwrap_or_default())).collect::<Vec<_>>());
        for (name, value) in headers {
            request = request.header(name, value.as_str().unwrap_or_default());
        }
        let answer = request.send().await.map_err(|e| e.to_string())?;
        let got = u64::from(answer.status().as_u16());
        let text = answer.text().await.map_err(|e| e.to_string())?;
        if got != status {
            return Err(format!("status {got} instead of {status}: {text}"));
        }
        if let (Some(recorded), true) = (case["response"].as_str(), !own_rows && case["binding"] != json!(false)) {
            let plain = |text: &str| {
                let mut value: Value = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
                if let Some(whole) = value.as_object_mut() {
                    whole.remove("took");
                }
                value
            };
            if plain(&text) != plain(recorded) {
                return Err(format!("answer {text} instead of {recorded}"));
            }
        }

        // The decoder.
        let header =
            |name: &str| headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).and_then(|(_, v)| v.as_str());
        let is_json = header(CONTENT_TYPE.as_str()) == Some("application/json");
        let encoding = header(CONTENT_ENCODING.as_str());
        let is_snappy = encoding.is_none() && path.ends_with("/push") && !is_json;
        let encoding = if is_snappy { Ok(Encoding::Snappy) } else { Encoding::from_header(encoding) };
        let plain = content_encoding::decompress(encoding.map_err(|e| e.to_string())?, &body, 64 << 20, &mut |_| true);
        let decoded = plain
            .map_err(|e| e.to_string())
            .and_then(|plain| decode(path, is_json, &plain, query, &context(query, headers)?));
        let rows = decoded.map(|d| d.0).unwrap_or_default();
        compare(&rows, &expected, own_rows).map_err(|e| format!("decoded: {e}"))?;

        // What is stored.
        let mark = case["mark"].as_str().unwrap_or_default();
        let stored = stored_rows(&self.app).await?;
        compare(&with_mark(&stored, mark), &expected, own_rows).map_err(|e| format!("stored: {e}"))?;
        let query = format!("* | filter \"{mark}\" or *:\"{mark}\"");
        let answer = self.client.get(format!("{}{QUERY}", self.base)).query(&[("query", query)]).send().await;
        let answer = answer.map_err(|e| e.to_string())?.error_for_status().map_err(|e| e.to_string())?;
        let text = answer.text().await.map_err(|e| e.to_string())?;
        let rows: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
        compare(&rows.map_err(|e| e.to_string())?, &expected, own_rows).map_err(|e| format!("asked: {e}"))
    }
}

impl Golden {
    /// Looks at the stored rows of all cases once more.
    async fn check_again(&self, cases: &[Value], all: &mut [Case], state: &str) {
        let stored = stored_rows(&self.app).await;
        for (case, outcome) in cases.iter().zip(all) {
            let (expected, own_rows) = expected_rows(case);
            let mark = case["mark"].as_str().unwrap_or_default();
            let found = stored.as_ref().map_err(Clone::clone);
            let fault = found.and_then(|rows| compare(&with_mark(rows, mark), &expected, own_rows)).err();
            outcome.fault = outcome.fault.take().or(fault.map(|f| format!("{state}: {f}")));
        }
    }
}

/// Gives the rows of a case, and whether they come from the rule of the product, which says neither time nor stream.
fn expected_rows(case: &Value) -> (Vec<Value>, bool) {
    match product_rule(case["name"].as_str().unwrap_or_default()).and_then(|r| r.1) {
        Some(rows) => (rows, true),
        None => (case["rows"].as_array().cloned().unwrap_or_default(), false),
    }
}

fn with_mark(rows: &[Value], mark: &str) -> Vec<Value> {
    rows.iter().filter(|row| row.to_string().contains(mark)).cloned().collect()
}

/// Reads all rows from the store.
async fn stored_rows(app: &AppState) -> Result<Vec<Value>, String> {
    let columns = vec![LogColumn::text(TIME), LogColumn::text(STREAM)];
    let request = LogRequest { filter: LogFilter::All, columns, rest: true, order: LogOrder::Any, form: LogForm::Rows };
    let snapshot = quiver_store::logs_source(&app.engines.store).snapshot();
    let table = quiver_store::logs_table(&*snapshot, &Access::full(), request, &ReadStats::default());
    let table = quiver_query::scan_table(table.map_err(|e| e.to_string())?);
    let batches = SessionContext::new().read_table(table).map_err(|e| e.to_string())?.collect().await;
    let mut rows = Vec::new();
    for batch in batches.map_err(|e| e.to_string())? {
        let (time, stream, rest) = (batch.column(0), batch.column(1).as_string_view(), batch.column(2).as_map());
        let time = time.as_primitive::<TimestampNanosecondType>();
        for row in 0..batch.num_rows() {
            let entries = rest.value(row);
            let (names, values) = (entries.column(0).as_string::<i32>(), entries.column(1).as_string::<i32>());
            let fields = names.iter().zip(values).map(|(n, v)| (n.unwrap_or_default().to_owned(), json!(v)));
            let mut fields: Map<String, Value> = fields.collect();
            fields.insert(TIME.to_owned(), json!(time.value(row)));
            fields.insert(STREAM.to_owned(), json!(stream.value(row)));
            rows.push(Value::Object(fields));
        }
    }
    Ok(rows)
}

fn body(case: &Value) -> Result<Vec<u8>, String> {
    let Some(packed) = case["body_gz_base64"].as_str() else {
        return Ok(case["body"].as_str().unwrap_or_default().as_bytes().to_vec());
    };
    let mut out = Vec::new();
    let bytes = quiver_types::text::from_base64(packed).ok_or("bad base64")?;
    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut out).map_err(|e| e.to_string())?;
    Ok(out)
}

/// Compares rows as sets of fields, in any order.
fn compare(got: &[Value], expected: &[Value], without_frame: bool) -> Result<(), String> {
    let normal = |rows: &[Value]| {
        let mut rows: Vec<String> = rows.iter().map(|row| normal_row(row, without_frame).to_string()).collect();
        rows.sort();
        rows
    };
    let (got, expected) = (normal(got), normal(expected));
    if got == expected { Ok(()) } else { Err(format!("{got:?} instead of {expected:?}")) }
}

fn normal_row(row: &Value, without_frame: bool) -> Value {
    let mut out = Map::new();
    for (name, value) in row.as_object().into_iter().flatten() {
        let skipped = name.starts_with("scope.") || matches!(name.as_str(), "severity_text" | "_stream_id");
        if skipped || without_frame && matches!(name.as_str(), "_time" | "_stream") {
            continue;
        }
        let value = if name == "_time" { time(value) } else { value.clone() };
        out.insert(name.clone(), value);
    }
    Value::Object(out)
}

/// Gives a time as Unix nanoseconds, or the word for the time of arrival.
fn time(value: &Value) -> Value {
    let nanos = match value {
        Value::String(text) if text == "<arrival>" => return json!("<arrival>"),
        Value::String(text) => match quiver_ingest::logs::time::parse(text) {
            Some(quiver_ingest::logs::time::Stamp::At(nanos)) => nanos,
            _ => return value.clone(),
        },
        other => other.as_i64().unwrap_or_default(),
    };
    // Recorded requests carry times of 2025 or 2090; whatever is near now arrived.
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos() as i64);
    if nanos == NOW_NS || (now - nanos).abs() < 600_000_000_000 { json!("<arrival>") } else { json!(nanos) }
}
