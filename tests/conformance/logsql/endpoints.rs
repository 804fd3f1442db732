//! Recorded responses of the endpoints: rows are posted to a server and queried over HTTP, unflushed, flushed and
//! compacted.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quiver::server::BoundServer;
use quiver::settings::LoadedSettings;
use quiver_api::AppState;
use quiver_logsql::kernels::values::{parse_rfc3339, push_rfc3339};
use quiver_logsql::request_params::duration_param;
use quiver_types::SystemClock;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::world::{STATES, State};
use super::{Suite, Verdict, read, text};

/// The suites of this file.
pub(crate) fn suites(folder: &Path) -> Vec<Suite<'static>> {
    let dataset = std::fs::read(folder.join("golden/dataset.jsonl")).expect("the dataset is there");
    let times: Vec<i64> = read(&folder.join("golden/dataset.jsonl"))
        .iter()
        .map(|row| parse_rfc3339(text(row, "_time")).expect("a time"))
        .collect();
    STATES
        .into_iter()
        .map(|state| {
            let (server, times) = (Server::start(&dataset, state), times.clone());
            let name = match state {
                State::Live => "endpoints",
                State::Flushed => "endpoints_flushed",
                State::Compacted => "endpoints_compacted",
            };
            Suite {
                name,
                cases: read(&folder.join("golden/endpoints.jsonl")),
                run: Box::new(move |case: &Value| match &server {
                    Ok(server) => match server.check(&with_rule(case, &times)) {
                        Ok(()) => Verdict::Passed,
                        Err(e) => Verdict::Failed(format!("{} {}: {e}", text(case, "path"), case["params"])),
                    },
                    Err(e) => Verdict::Failed(e.clone()),
                }),
            }
        })
        .collect()
}

/// The case with the answer that the rule of the product gives, where the reference is no model: `offset` of `hits` is a
/// time zone, so a bucket of a day begins so much before midnight.
fn with_rule(case: &Value, times: &[i64]) -> Value {
    let mut case = case.clone();
    if case["binding"] != Value::Bool(false) {
        return case;
    }
    let param = |name: &str| text(&case["params"], name);
    assert!(text(&case, "path").ends_with("/hits") && param("query") == "*", "no rule for {case}");
    let bound = |name: &str| parse_rfc3339(param(name)).expect("a time");
    let span = |name: &str| duration_param(param(name)).expect("a duration");
    let (start, end, step, offset) = (bound("start"), bound("end"), span("step"), span("offset"));
    let mut buckets: BTreeMap<i64, u64> = BTreeMap::new();
    for at in times.iter().filter(|at| (start..=end).contains(*at)) {
        *buckets.entry((at + offset).div_euclid(step) * step - offset).or_default() += 1;
    }
    let written = |ns: &i64| {
        let mut out = String::new();
        push_rfc3339(&mut out, *ns);
        out
    };
    let timestamps: Vec<String> = buckets.keys().map(written).collect();
    let (values, total): (Vec<u64>, u64) = (buckets.values().copied().collect(), buckets.values().sum());
    case["body"] = json!({"hits": [{"fields": {}, "timestamps": timestamps, "values": values, "total": total}]});
    case
}

/// A server in this process with the rows of the dataset.
struct Server {
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
    base: String,
    stop: CancellationToken,
    task: Option<tokio::task::JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Server {
    fn start(dataset: &[u8], state: State) -> Result<Self, String> {
        let runtime = tokio::runtime::Runtime::new().map_err(|e| e.to_string())?;
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let flags = [
            ("store.data", dir.path().display().to_string()),
            ("store.retention", "none".to_owned()),
            ("http.listen", "127.0.0.1:0".to_owned()),
            ("otlp.http_listen", String::new()),
            ("otlp.grpc_listen", String::new()),
            ("rbac.mode", "off".to_owned()),
            ("query.through_codec", quiver_tests::through_codec().to_string()),
        ];
        let loaded = LoadedSettings::load(None, std::iter::empty(), &flags).map_err(|e| e.to_string())?;
        let client = reqwest::Client::builder().timeout(Duration::from_mins(5)).build().map_err(|e| e.to_string())?;
        let stop = CancellationToken::new();
        let (base, task) = runtime.block_on(async {
            let bound = BoundServer::bind(&loaded).await.map_err(|e| e.to_string())?;
            let base = format!("http://{}", bound.addresses.http);
            let (ready, opened) = tokio::sync::oneshot::channel::<Arc<AppState>>();
            let ended = stop.clone();
            let task = tokio::spawn(async move {
                let run = bound.run(Arc::new(SystemClock), ended, move |app| {
                    let _ = ready.send(Arc::clone(app));
                });
                run.await.expect("a clean end");
            });
            let app = opened.await.map_err(|e| e.to_string())?;
            let url = format!("{base}/insert/jsonline?_stream_fields=app,env,host");
            let sent = client.post(url).body(dataset.to_vec()).send().await.map_err(|e| e.to_string())?;
            sent.error_for_status().map_err(|e| e.to_string())?;
            if state != State::Live {
                app.engines.store.flush_all().await.map_err(|e| e.to_string())?;
            }
            if state == State::Compacted {
                app.engines.store.compact_all().await.map_err(|e| e.to_string())?;
            }
            Ok::<_, String>((base, task))
        })?;
        Ok(Self { runtime, client, base, stop, task: Some(task), _dir: dir })
    }

    fn check(&self, case: &Value) -> Result<(), String> {
        let mut params: Vec<(&str, &str)> = Vec::new();
        for (name, value) in case["params"].as_object().into_iter().flatten() {
            match value {
                Value::Array(all) => params.extend(all.iter().map(|v| (name.as_str(), v.as_str().unwrap_or_default()))),
                one => params.push((name, one.as_str().unwrap_or_default())),
            }
        }
        let url = format!("{}{}", self.base, text(case, "path"));
        let (status, content_type, body) = self.runtime.block_on(async {
            let answer = self.client.get(url).query(&params).send().await.map_err(|e| e.to_string())?;
            let content_type = answer.headers().get("content-type").and_then(|v| v.to_str().ok()).map(str::to_owned);
            let status = answer.status().as_u16();
            Ok::<_, String>((status, content_type, answer.text().await.map_err(|e| e.to_string())?))
        })?;
        if case["status"] != status {
            return Err(format!("status {status} instead of {}: {body}", case["status"]));
        }
        if let Some(wanted) = case["content_type"].as_str()
            && content_type.as_deref() != Some(wanted)
        {
            return Err(format!("content type {content_type:?} instead of {wanted}"));
        }
        match text(case, "compare") {
            "" => Ok(()),
            "multiset" => {
                let lines: Result<Vec<Value>, _> = body.lines().map(serde_json::from_str).collect();
                let found = Value::Array(lines.map_err(|e| format!("{e}: {body}"))?);
                same(&found, &case["rows"])
            }
            "body" => same(&parsed(&body)?, &case["body"]),
            "shape" => {
                let (found, wanted) = (shape(&parsed(&body)?), shape(&case["body"]));
                if found == wanted { Ok(()) } else { Err(format!("{found} instead of {wanted}")) }
            }
            other => Err(format!("a comparison `{other}` is not known here")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            let _ = self.runtime.block_on(task);
        }
    }
}

fn parsed(body: &str) -> Result<Value, String> {
    serde_json::from_str(body).map_err(|e| format!("{e}: {body}"))
}

fn same(found: &Value, wanted: &Value) -> Result<(), String> {
    let (found, wanted) = (normal(found, ""), normal(wanted, ""));
    if near(&found, &wanted) { Ok(()) } else { Err(format!("{found} instead of {wanted}")) }
}

/// Lists in one order, but for points, which keep theirs; identifiers of streams hidden; what belongs together paired.
fn normal(value: &Value, key: &str) -> Value {
    match value {
        Value::Object(fields) => {
            let mut out: BTreeMap<String, Value> =
                fields.iter().map(|(name, value)| (name.clone(), normal(value, name))).collect();
            if let (Some(Value::Array(times)), Some(Value::Array(counts))) =
                (fields.get("timestamps"), fields.get("values"))
            {
                let points: BTreeMap<String, Value> =
                    times.iter().zip(counts).map(|(t, n)| (t.to_string(), n.clone())).collect();
                out.remove("timestamps");
                out.insert("values".to_owned(), points.into_iter().collect());
            }
            out.into_iter().collect()
        }
        // A point: a time and a number.
        Value::Array(pair) if key == "value" => Value::Array(pair.clone()),
        Value::Array(points) if key == "values" && points.iter().all(Value::is_array) => value.clone(),
        Value::Array(all) => {
            let mut all: Vec<Value> = all.iter().map(|one| normal(one, "")).collect();
            all.sort_by_key(Value::to_string);
            Value::Array(all)
        }
        Value::String(text) if text.len() >= 32 && text.bytes().all(|b| b.is_ascii_hexdigit()) => "<stream_id>".into(),
        other => other.clone(),
    }
}

/// Equal, numbers in texts but for a billionth.
fn near(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(name, value)| y.get(name).is_some_and(|other| near(value, other)))
        }
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| near(x, y)),
        (Value::String(x), Value::String(y)) if x != y => match (x.parse::<f64>(), y.parse::<f64>()) {
            (Ok(x), Ok(y)) => (x - y).abs() <= 1e-9 * x.abs().max(y.abs()),
            _ => false,
        },
        _ => a == b,
    }
}

/// Keys and numbers of entries.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
        Value::Array(all) => {
            let mut all: Vec<Value> = all.iter().map(shape).collect();
            all.sort_by_key(Value::to_string);
            Value::Array(all)
        }
        _ => Value::Null,
    }
}
