//! Answers other than JSON: Arrow, Parquet, CSV, lines of JSON, as `Accept` asks for (`olap-api.md` 12.6).

use std::collections::HashMap;
use std::sync::Arc;

use axum::response::{IntoResponse as _, Response};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::StreamWriter;
use http::{HeaderMap, header};
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use quiver_olap::answer::Frame;
use quiver_olap::engine::ResultSet;
use quiver_olap::meta::annotation;
use quiver_olap::query::LIMIT_MAX;
use quiver_olap::query::request::Request;
use quiver_olap::{OlapError, OlapResult};
use quiver_types::Error;
use serde_json::Value;

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As the format has it.
    Json,
    /// Arrow IPC stream.
    Arrow,
    /// A file of Parquet.
    Parquet,
    /// CSV with a header.
    Csv,
    /// An object a line.
    Lines,
}

const TYPES: [(&str, Form); 4] = [
    ("application/vnd.apache.arrow.stream", Form::Arrow),
    ("application/vnd.apache.parquet", Form::Parquet),
    ("text/csv", Form::Csv),
    ("application/x-ndjson", Form::Lines),
];

impl Form {
    /// The first form that `Accept` names.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let mut types = accepted.split(',').map(|t| t.split(';').next().unwrap_or_default().trim());
        types.find_map(|t| TYPES.iter().find(|(name, _)| *name == t).map(|(_, form)| *form)).unwrap_or(Self::Json)
    }
}

/// Takes a limit out of a query that is above those of answers in JSON: other forms have none of their own.
pub(super) fn take_high_limit(query: &mut Value) -> Option<u64> {
    let limit = query.get("limit").and_then(Value::as_u64).filter(|n| *n > LIMIT_MAX)?;
    query.as_object_mut()?.remove("limit");
    Some(limit)
}

/// Whether a query says how many rows it wants.
pub(super) fn is_limited(query: &Value) -> bool {
    ["limit", "rowLimit"].iter().any(|key| query.get(*key).is_some_and(|n| !n.is_null()))
}

/// What a cell takes as JSON beside its bytes: its name in each row, its value, their place in a map.
const CELL_BYTES: usize = 160;

/// About how many bytes rows take as JSON, before they are made.
pub(super) fn made_bytes(sets: &[ResultSet]) -> usize {
    let batches = sets.iter().flat_map(|set| &set.batches);
    batches.map(|b| b.num_rows() * b.num_columns() * CELL_BYTES + b.get_array_memory_size()).sum()
}

/// Writes the rows of a query.
pub(super) fn write(form: Form, frame: &Frame<'_>, request: &Request, sets: &[ResultSet]) -> OlapResult<Response> {
    let kind = TYPES.iter().find(|(_, f)| *f == form).map_or("application/json", |(name, _)| *name);
    let body = match form {
        Form::Arrow => arrow(frame, request, &sets[0])?,
        Form::Parquet => parquet(frame, request, &sets[0])?,
        _ => text(form, &rows(frame, request, sets)?, &sets[0].columns)?,
    };
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

fn rows(frame: &Frame<'_>, request: &Request, sets: &[ResultSet]) -> OlapResult<Vec<Value>> {
    let mut plain = request.clone();
    plain.queries[0].format = None;
    let mut answer = frame.load(&plain, sets, false)?;
    Ok(answer["data"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

fn text(form: Form, rows: &[Value], columns: &[String]) -> OlapResult<Vec<u8>> {
    if form == Form::Lines {
        return Ok(rows.iter().map(|row| format!("{row}\n")).collect::<String>().into_bytes());
    }
    let field = |text: &str| {
        // A field of nothing is NULL, so an empty text is quoted.
        if text.is_empty() || text.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.to_owned()
        }
    };
    let cell = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => field(text),
        other => other.to_string(),
    };
    let mut out = columns.iter().map(|c| field(c)).collect::<Vec<_>>().join(",") + "\r\n";
    for row in rows {
        out += &columns.iter().map(|c| cell(&row[c.as_str()])).collect::<Vec<_>>().join(",");
        out += "\r\n";
    }
    Ok(out.into_bytes())
}

/// The type of a column in a stream: texts by codes, times as wall time in milliseconds.
fn open_type(kind: &DataType) -> DataType {
    match kind {
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => {
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
        }
        DataType::Timestamp(..) => DataType::Timestamp(TimeUnit::Millisecond, None),
        other => other.clone(),
    }
}

fn failed(e: ArrowError) -> OlapError {
    OlapError::Engine(Error::internal("rows cannot be written as Arrow").with_source(e))
}

/// Rows with the types and the metadata of a stream.
fn opened(frame: &Frame<'_>, request: &Request, set: &ResultSet) -> OlapResult<(SchemaRef, Vec<RecordBatch>)> {
    let query = &request.queries[0];
    let metadata = HashMap::from([
        ("quiver.query".to_owned(), query.to_json().to_string()),
        ("quiver.annotation".to_owned(), annotation(frame.catalog, query).to_string()),
        ("quiver.timezone".to_owned(), query.timezone.clone()),
    ]);
    let fields = set.schema.fields().iter().map(|f| f.as_ref().clone().with_data_type(open_type(f.data_type())));
    let schema = Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), metadata));
    let mut batches = Vec::new();
    for batch in &set.batches {
        let columns = batch.columns().iter().map(|column| cast(column, &open_type(column.data_type())));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        batches.push(RecordBatch::try_new(Arc::clone(&schema), columns).map_err(failed)?);
    }
    Ok((schema, batches))
}

fn arrow(frame: &Frame<'_>, request: &Request, set: &ResultSet) -> OlapResult<Vec<u8>> {
    let (schema, batches) = opened(frame, request, set)?;
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).map_err(failed)?;
    batches.iter().try_for_each(|batch| writer.write(batch)).map_err(failed)?;
    writer.finish().map_err(failed)?;
    writer.into_inner().map_err(failed)
}

fn parquet(frame: &Frame<'_>, request: &Request, set: &ResultSet) -> OlapResult<Vec<u8>> {
    let failed = |e: ParquetError| OlapError::Engine(Error::internal("cannot write Parquet").with_source(e));
    let (schema, batches) = opened(frame, request, set)?;
    let mut writer = ArrowWriter::try_new(Vec::new(), schema, None).map_err(failed)?;
    batches.iter().try_for_each(|batch| writer.write(batch)).map_err(failed)?;
    writer.into_inner().map_err(failed)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn accepted_forms() {
        let check = |accept: &'static str, expected| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(Form::of(&headers), expected, "{accept}");
        };
        check("application/json, text/plain, */*", Form::Json);
        check("text/csv;q=0.9", Form::Csv);
        check("application/x-ndjson", Form::Lines);
        check("application/vnd.apache.arrow.stream, */*", Form::Arrow);
        check("application/vnd.apache.parquet", Form::Parquet);
    }

    #[test]
    fn limits_of_streams() {
        let mut query = serde_json::json!({"limit": 60_000});
        assert_eq!(take_high_limit(&mut query), Some(60_000));
        assert!(!is_limited(&query));
        let mut query = serde_json::json!({"limit": 50_000});
        assert_eq!(take_high_limit(&mut query), None);
        assert!(is_limited(&query));
        assert!(is_limited(&serde_json::json!({"rowLimit": 5})) && !is_limited(&serde_json::json!({"limit": null})));
    }

    #[test]
    fn csv_quotes() {
        let rows = [serde_json::json!({"A.b": "x,\"y\"", "A.n": null, "A.c": 1, "A.e": ""})];
        let columns = ["A.b", "A.n", "A.c", "A.e"].map(str::to_owned);
        let written = String::from_utf8(text(Form::Csv, &rows, &columns).unwrap()).unwrap();
        assert_eq!(written, "A.b,A.n,A.c,A.e\r\n\"x,\"\"y\"\"\",,1,\"\"\r\n");
    }
}
