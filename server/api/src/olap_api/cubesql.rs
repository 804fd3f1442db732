//! Runs statements over models in the form of Cube's SQL over HTTP, which `cubeSql` and `cubeSqlStream` of its JavaScript
//! client ask for: a line of JSON with the columns, then lines with rows.
//!
//! Statements, rights and numbers are those of `/sql-api`; values are written as `load` writes them.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use chrono_tz::Tz;
use http::header;
use quiver_olap::plan::json_values::cells;
use quiver_olap::query::CacheMode;
use quiver_olap::{OlapError, OlapResult, QueryError, Reason};
use quiver_sql::{Answer, Request as Statement, Session};
use quiver_types::{Error, Result};
use serde_json::{Value, json};

use super::problem::problem;
use super::statements::query_error;
use super::{ParsedRequest, access, begin_as, json_answer, now};
use crate::metrics::phases::Language;
use crate::state::AppState;
use crate::streamed_responses::{BatchWriter, StreamedResponse};

const ROUTE: &str = "/olap-api/v1/cubesql";
/// Where tables without a schema are looked for: clients mean models.
const SEARCH_PATH: &str = "olap, public, quiver";
/// What clients send. Rows are read anew in every mode of the cache, and sent as they are found: nobody is told to wait.
const KNOWN: [&str; 4] = ["query", "timezone", "cache", "throwContinueWait"];

/// Runs the statement in `query`.
pub(super) async fn run(State(state): State<Arc<AppState>>, request: Request) -> Response {
    answer(&state, request).await.unwrap_or_else(|e| problem(&e, ROUTE))
}

async fn answer(state: &AppState, request: Request) -> OlapResult<Response> {
    let began = Instant::now();
    let given = ParsedRequest::read(state, request).await?;
    given.only(&KNOWN)?;
    let missing = || QueryError::new(Reason::QueryRequired, "", "a request needs a `query`: a statement");
    let text = given.word("query")?.ok_or_else(missing)?.to_owned();
    let zone = zone(&given)?;
    if let Some(word) = given.word("cache")?
        && CacheMode::parse(word).is_none()
    {
        return Err(QueryError::new(Reason::BadValue, "/cache", format!("`{word}` is no cache mode")).into());
    }
    let ctx = begin_as(state, &given, state.asked(Language::Sql, &text))?;
    let mut session = Session::of(&state.identity().name);
    session.settings.insert("search_path".to_owned(), SEARCH_PATH.to_owned());
    let statement = Statement { text, session, ..Statement::default() };
    let rows = match state.engines.sql.query(statement, &access(state), &ctx).await.map_err(query_error)? {
        Answer::Plan(plan) => return Ok(json_answer(&plan)),
        Answer::Rows(rows) => rows,
    };
    let writer = Box::new(Lines::new(&rows.schema(), zone, &now(state)));
    let memory = state.engines.query.collected("answer", &ctx);
    let body = StreamedResponse::new(rows, writer, (ctx, memory), began, ROUTE).body();
    Ok(([(header::CONTENT_TYPE, "application/json; charset=utf-8")], body).into_response())
}

/// The zone in which moments are shown.
fn zone(given: &ParsedRequest) -> std::result::Result<Tz, QueryError> {
    let Some(name) = given.word("timezone")? else { return Ok(Tz::UTC) };
    name.parse().map_err(|_| {
        let text = format!("unknown time zone `{name}`; name one of IANA such as `Europe/Berlin`");
        QueryError::new(Reason::UnknownTimezone, "/timezone", text)
    })
}

/// Writes rows as lines of JSON.
struct Lines {
    zone: Tz,
    /// Bytes that are written and not sent yet.
    out: Vec<u8>,
    /// Whether a line of rows has been written. A text of one line would be JSON as a whole, which clients do not take for
    /// a result.
    has_rows: bool,
}

impl Lines {
    fn new(schema: &Schema, zone: Tz, refreshed: &str) -> Self {
        let columns = schema.fields().iter();
        let columns = columns.map(|f| json!({"name": f.name(), "column_type": column_type(f.data_type())}));
        let head = json!({"schema": columns.collect::<Vec<_>>(), "lastRefreshTime": refreshed});
        Self { zone, out: format!("{head}\n").into_bytes(), has_rows: false }
    }
}

impl BatchWriter for Lines {
    fn batch(&mut self, batch: &RecordBatch) -> Result<Bytes> {
        if batch.num_rows() == 0 {
            return Ok(Bytes::new());
        }
        let columns = batch.columns().iter().map(|column| cells(column, self.zone)).collect::<OlapResult<Vec<_>>>();
        let columns = columns.map_err(|error| match error {
            OlapError::Engine(error) => error,
            OlapError::Query(error) => Error::invalid(error.message),
        })?;
        let row = |at: usize| columns.iter().map(|column| &column[at]).collect::<Vec<&Value>>();
        let rows: Vec<Vec<&Value>> = (0..batch.num_rows()).map(row).collect();
        self.out.extend_from_slice(format!("{}\n", json!({ "data": rows })).as_bytes());
        self.has_rows = true;
        Ok(std::mem::take(&mut self.out).into())
    }

    fn end(mut self: Box<Self>, _stats: &Value) -> Result<Bytes> {
        if !self.has_rows {
            self.out.extend_from_slice(b"{\"data\":[]}\n");
        }
        Ok(std::mem::take(&mut self.out).into())
    }
}

/// The name that Cube has for a type.
fn column_type(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Boolean => "Boolean",
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 => "Int32",
        DataType::Int64 | DataType::UInt32 => "Int64",
        DataType::Float16 | DataType::Float32 | DataType::Float64 => "Double",
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => "Decimal",
        DataType::Date32 | DataType::Date64 => "Date",
        DataType::Timestamp(..) => "Timestamp",
        DataType::Interval(_) | DataType::Duration(_) => "Interval",
        DataType::Dictionary(_, values) => column_type(values),
        _ => "String",
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringArray, TimestampNanosecondArray};

    use super::*;

    fn lines(parts: &[&Bytes]) -> Vec<Value> {
        let text: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        let text = String::from_utf8(text).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn batch() -> RecordBatch {
        let at = TimestampNanosecondArray::from(vec![Some(1_774_915_200_000_000_000), None]).with_timezone("UTC");
        let columns: [(&str, ArrayRef); 3] = [
            ("kind", Arc::new(StringArray::from(vec![Some("a"), None]))),
            ("n", Arc::new(Int64Array::from(vec![5, 7]))),
            ("at", Arc::new(at)),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn columns_come_before_rows() {
        let batch = batch();
        let mut writer = Box::new(Lines::new(&batch.schema(), Tz::Europe__Berlin, "now"));
        let (first, second) = (writer.batch(&batch).unwrap(), writer.batch(&batch.slice(0, 1)).unwrap());
        let end = writer.end(&Value::Null).unwrap();
        let columns = json!([
            {"name": "kind", "column_type": "String"}, {"name": "n", "column_type": "Int64"},
            {"name": "at", "column_type": "Timestamp"},
        ]);
        let row = json!(["a", "5", "2026-03-31T02:00:00.000"]);
        let expected = [
            json!({"schema": columns, "lastRefreshTime": "now"}),
            json!({"data": [row, [null, "7", null]]}),
            json!({"data": [row]}),
        ];
        assert_eq!(lines(&[&first, &second, &end]), expected);
    }

    /// Clients take a text that is JSON as a whole for something else.
    #[test]
    fn a_result_without_rows_has_two_lines() {
        let writer = Box::new(Lines::new(&batch().schema(), Tz::UTC, "now"));
        let all = lines(&[&writer.end(&Value::Null).unwrap()]);
        assert_eq!((all.len(), &all[1]), (2, &json!({"data": []})));
    }
}
