//! SQL: our own statements in the format of sqllogictest over fixed data, run by the real binary over PostgreSQL's
//! protocol; live, flushed and compacted. Where DuckDB can run a statement, the expected result is DuckDB's
//! (`tests/clients/postgres` checks that).

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Record, Runner};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Runs all files; says whether all passed.
pub(crate) fn run(report: &mut Vec<Value>) -> bool {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/sql");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server::start(dir.path(), &Options::default().args(&["--postgres", "127.0.0.1:0"])).await;
        fill(&server, &folder).await;
        let mut all = Outcome { report, good: true, passed: 0, failed: 0 };
        for state in ["live", "flushed", "compacted"] {
            match state {
                "flushed" => server.flush().await,
                "compacted" => server.compact().await,
                _ => {}
            }
            for file in files(&folder) {
                all.file(&server, state, &file).await;
            }
        }
        println!("sql: {} passed, {} failed", all.passed, all.failed);
        all.good
    })
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder of statements");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|e| e == "slt")).collect();
    files.sort();
    files
}

struct Outcome<'r> {
    report: &'r mut Vec<Value>,
    good: bool,
    passed: u64,
    failed: u64,
}

impl Outcome<'_> {
    async fn file(&mut self, server: &Server, state: &str, file: &Path) {
        let records = sqllogictest::parse_file::<DefaultColumnType>(file).unwrap_or_else(|e| panic!("{e}"));
        let address = server.postgres.clone();
        let mut runner = Runner::new(move || {
            let address = address.clone();
            async move { Ok(Asker(connect(&address).await)) }
        });
        let shown = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for record in records {
            let asks = matches!(record, Record::Query { .. } | Record::Statement { .. });
            let problem = runner.run_async(record).await.err();
            if asks || problem.is_some() {
                self.report
                    .push(json!({"suite": "sql", "case": format!("{shown} ({state})"), "passed": problem.is_none()}));
            }
            match problem {
                None => self.passed += u64::from(asks),
                Some(problem) => {
                    println!("FAILED {shown} ({state}): {}", problem.display(false));
                    self.good = false;
                    self.failed += 1;
                }
            }
        }
        runner.shutdown_async().await;
    }
}

async fn connect(address: &str) -> Client {
    let (host, port) = address.rsplit_once(':').expect("a port");
    let config = format!("host={host} port={port} user=tester dbname=quiver");
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.expect("connected");
    tokio::spawn(connection);
    client
}

/// A connection that statements are asked by.
struct Asker(Client);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

impl From<tokio_postgres::Error> for Refused {
    fn from(error: tokio_postgres::Error) -> Self {
        Self(error.as_db_error().map_or_else(|| error.to_string(), |e| format!("{}: {}", e.code().code(), e.message())))
    }
}

#[async_trait]
impl AsyncDB for Asker {
    type Error = Refused;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Refused> {
        let columns = self.0.prepare(sql).await?;
        let columns: Vec<Type> = columns.columns().iter().map(|column| column.type_().clone()).collect();
        let types = columns.iter().map(|column| match *column {
            Type::INT2 | Type::INT4 | Type::INT8 => DefaultColumnType::Integer,
            Type::FLOAT4 | Type::FLOAT8 | Type::NUMERIC => DefaultColumnType::FloatingPoint,
            _ => DefaultColumnType::Text,
        });
        let types: Vec<DefaultColumnType> = types.collect();
        let mut rows = Vec::new();
        for message in self.0.simple_query(sql).await? {
            if let SimpleQueryMessage::Row(row) = message {
                let cell = |at: usize| {
                    let value = row.get(at);
                    // Counts are NUMERIC, for they may be larger than a signed number.
                    let is_whole = columns[at] == Type::NUMERIC && value.is_some_and(|text| !text.contains('.'));
                    shown(value, types[at] == DefaultColumnType::FloatingPoint && !is_whole)
                };
                rows.push((0..types.len()).map(cell).collect());
            }
        }
        Ok(DBOutput::Rows { types, rows })
    }

    async fn shutdown(&mut self) {}
}

/// A value as files have it: numbers with fractions by nine digits.
fn shown(value: Option<&str>, is_float: bool) -> String {
    match value {
        None => "NULL".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(text) if is_float => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => scientific(number),
            Ok(number) if number.is_nan() => "nan".to_owned(),
            _ => text.to_owned(),
        },
        Some(text) => text.to_owned(),
    }
}

fn scientific(number: f64) -> String {
    let text = format!("{number:.8e}");
    let (digits, exponent) = text.split_once('e').expect("an exponent");
    let exponent: i32 = exponent.parse().expect("a number");
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn lines(folder: &Path, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{name}: {e}"))).collect()
}

/// Sends the data, each signal as its senders do.
async fn fill(server: &Server, folder: &Path) {
    let logs = lines(folder, "logs.ndjson").into_iter().map(|mut row| {
        let mut put = |from: &str, to: &str| {
            if let Some(value) = row.as_object_mut().and_then(|row| row.remove(from)) {
                row[to] = value;
            }
        };
        put("time", "_time");
        put("message", "_msg");
        put("service_name", "service.name");
        row.to_string()
    });
    let body = logs.collect::<Vec<_>>().join("\n").into_bytes();
    sent(server.post("/insert/jsonline?_stream_fields=service.name", &[], body).await);
    for service in ["cart", "pay", "mail"] {
        let spans = lines(folder, "spans.ndjson").into_iter().filter(|span| span["service_name"] == service);
        let spans: Vec<Value> = spans.map(|span| otlp(&span)).collect();
        let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": service}}]});
        let body = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]});
        let headers = [("content-type", "application/json")];
        sent(server.post("/v1/traces", &headers, body.to_string().into_bytes()).await);
    }
    let sample = |row: Value| {
        let (name, service, mode) = (row["name"].as_str(), &row["service_name"], &row["mode"]);
        let ms = row["time"].as_i64().unwrap_or_default() * 1000;
        format!("{}{{service_name={service},mode={mode}}} {} {ms}\n", name.unwrap_or_default(), row["value"])
    };
    let text: String = lines(folder, "samples.ndjson").into_iter().map(sample).collect();
    sent(server.post("/metrics-api/api/v1/import/prometheus", &[], text.into_bytes()).await);
}

fn sent(answer: quiver_tests::server::Answer) {
    assert!(answer.status < 300, "{} {}", answer.status, answer.text());
}

fn otlp(span: &Value) -> Value {
    let start = span["start"].as_i64().unwrap_or_default();
    let end = start + span["duration"].as_i64().unwrap_or_default();
    let kind = match span["kind"].as_str() {
        Some("SERVER") => 2,
        Some("CLIENT") => 3,
        _ => 1,
    };
    let status = match span["status_code"].as_str() {
        Some("OK") => 1,
        Some("ERROR") => 2,
        _ => 0,
    };
    let mut attributes = Vec::new();
    if let Some(route) = span["route"].as_str() {
        attributes.push(json!({"key": "http.route", "value": {"stringValue": route}}));
    }
    if let Some(code) = span["status"].as_i64() {
        attributes.push(json!({"key": "http.status_code", "value": {"intValue": code.to_string()}}));
    }
    json!({
        "traceId": span["trace_id"], "spanId": span["span_id"], "parentSpanId": span["parent_span_id"].as_str().unwrap_or(""),
        "name": span["name"], "kind": kind, "startTimeUnixNano": start.to_string(), "endTimeUnixNano": end.to_string(),
        "status": {"code": status}, "attributes": attributes,
    })
}
