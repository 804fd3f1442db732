//! Response formats other than JSON: Arrow, Parquet, CSV and JSON lines, chosen by `Accept` (`olap-api.md` 12.6).
//! They are streamed batch by batch; totals and exemplars are only part of JSON responses.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use http::header;
use quiver_olap::engine::ResultSet;
use quiver_olap::metadata::annotation;
use quiver_olap::model::catalog::Catalog;
use quiver_olap::query::request::Request;
use quiver_olap::query::{LIMIT_MAX, whole_number};
use quiver_olap::response::Frame;
use quiver_olap::{OlapError, OlapResult};
use quiver_types::{Error, Result};
use serde_json::Value;

use super::CheckedRequest;
use crate::sql_api::forms::{Form, Writer, push_quoted};
use crate::state::AppState;
use crate::streamed_responses::{BatchWriter, StreamedResponse};

/// The endpoint that offers these formats.
const ROUTE: &str = "/olap-api/v1/load";

/// Removes a limit from a query if it is above the maximum for JSON, and returns it: other formats have no maximum.
pub(super) fn take_high_limit(query: &mut Value) -> Option<u64> {
    let limit = query.get("limit").and_then(whole_number).filter(|n| *n > LIMIT_MAX)?;
    query.as_object_mut()?.remove("limit");
    Some(limit)
}

/// Whether a query has a limit of rows.
pub(super) fn is_limited(query: &Value) -> bool {
    ["limit", "rowLimit"].iter().any(|key| query.get(*key).is_some_and(|n| !n.is_null()))
}

/// Bytes that a cell takes as JSON besides its value: the name in each row, the `Value`, the place in the map.
const CELL_BYTES: usize = 160;

/// Estimates how many bytes the rows take as JSON, before they are made.
pub(super) fn made_bytes(sets: &[ResultSet]) -> usize {
    let batches = sets.iter().flat_map(|set| &set.batches);
    batches.map(|b| b.num_rows() * b.num_columns() * CELL_BYTES + b.get_array_memory_size()).sum()
}

/// Streams the rows of the one query of a request as they are found.
pub(super) async fn send(state: &AppState, form: Form, checked: CheckedRequest) -> OlapResult<Response> {
    let began = Instant::now();
    let CheckedRequest { catalog, asked: mut request, access, ctx } = checked;
    request.queries[0].exemplars = 0;
    let (columns, rows) = state.engines.olap.rows(&catalog, &request, &access, &ctx).await?;
    let writer: Box<dyn BatchWriter> = match form {
        Form::Arrow | Form::Parquet => Box::new(TypedWriter::new(form, &rows.schema(), &catalog, &request)?),
        Form::Csv | Form::Lines | Form::Json => Box::new(Texts::new(form, catalog, request, columns)),
    };
    let memory = state.engines.query.collected("answer", &ctx);
    let body = StreamedResponse::new(rows, writer, (ctx, memory), began, ROUTE).body();
    Ok(([(header::CONTENT_TYPE, form.content_type())], body).into_response())
}

/// Writes rows as text, with the same values as in JSON responses.
struct Texts {
    form: Form,
    catalog: Arc<Catalog>,
    request: Request,
    columns: Vec<String>,
    /// Bytes that are written and not sent yet.
    out: Vec<u8>,
}

impl Texts {
    fn new(form: Form, catalog: Arc<Catalog>, request: Request, columns: Vec<String>) -> Self {
        let mut out = Vec::new();
        if form == Form::Csv {
            let names = columns.iter().map(|name| Value::from(name.as_str())).collect::<Vec<_>>();
            push_line(names.iter(), &mut out);
        }
        Self { form, catalog, request, columns, out }
    }
}

impl BatchWriter for Texts {
    fn batch(&mut self, batch: &RecordBatch) -> Result<Bytes> {
        let frame = Frame { catalog: &self.catalog, refreshed: String::new(), request_id: String::new(), slow: false };
        let rows = frame.rows(&self.request, &self.columns, batch).map_err(|error| match error {
            OlapError::Engine(error) => error,
            OlapError::Query(error) => Error::invalid(error.message),
        })?;
        for row in &rows {
            if self.form == Form::Csv {
                push_line(self.columns.iter().map(|name| &row[name.as_str()]), &mut self.out);
            } else {
                self.out.extend_from_slice(row.to_string().as_bytes());
                self.out.push(b'\n');
            }
        }
        Ok(std::mem::take(&mut self.out).into())
    }

    fn end(self: Box<Self>, _stats: &Value) -> Result<Bytes> {
        Ok(self.out.into())
    }
}

/// Writes a line of CSV. An empty field is NULL, so an empty string is quoted.
fn push_line<'v>(cells: impl Iterator<Item = &'v Value>, out: &mut Vec<u8>) {
    for (at, cell) in cells.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        match cell {
            Value::Null => {}
            Value::String(text) => push_quoted(text, out),
            other => out.extend_from_slice(other.to_string().as_bytes()),
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// The type of a column in the stream: dictionaries become strings, times become milliseconds without a zone.
fn open_type(kind: &DataType) -> DataType {
    match kind {
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => {
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
        }
        DataType::Timestamp(..) => DataType::Timestamp(TimeUnit::Millisecond, None),
        other => other.clone(),
    }
}

fn failed(e: ArrowError) -> Error {
    Error::internal("rows cannot be written as Arrow").with_source(e)
}

/// Writes rows with the types and the metadata of the stream.
struct TypedWriter {
    schema: SchemaRef,
    writer: Writer,
}

impl TypedWriter {
    fn new(form: Form, types: &SchemaRef, catalog: &Catalog, request: &Request) -> Result<Self> {
        let query = &request.queries[0];
        let metadata = HashMap::from([
            ("quiver.query".to_owned(), query.to_json().to_string()),
            ("quiver.annotation".to_owned(), annotation(catalog, query, types).to_string()),
            ("quiver.timezone".to_owned(), query.timezone.clone()),
        ]);
        let fields = types.fields().iter().map(|f| f.as_ref().clone().with_data_type(open_type(f.data_type())));
        let schema = Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), metadata));
        let writer = Writer::new(form, &schema)?;
        Ok(Self { schema, writer })
    }
}

impl BatchWriter for TypedWriter {
    fn batch(&mut self, batch: &RecordBatch) -> Result<Bytes> {
        let columns = batch.columns().iter().map(|column| cast(column, &open_type(column.data_type())));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>().map_err(failed)?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(failed)?;
        self.writer.batch(&batch)
    }

    fn held_bytes(&self) -> usize {
        self.writer.held_bytes()
    }

    fn end(self: Box<Self>, stats: &Value) -> Result<Bytes> {
        self.writer.end(stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_streams() {
        let mut query = serde_json::json!({"limit": 60_000});
        assert_eq!(take_high_limit(&mut query), Some(60_000));
        assert!(!is_limited(&query));
        assert_eq!(take_high_limit(&mut serde_json::json!({"limit": 60_000.0})), Some(60_000));
        let mut query = serde_json::json!({"limit": 50_000});
        assert_eq!(take_high_limit(&mut query), None);
        assert!(is_limited(&query));
        assert!(is_limited(&serde_json::json!({"rowLimit": 5})) && !is_limited(&serde_json::json!({"limit": null})));
    }

    #[test]
    fn csv_quotes() {
        let row = serde_json::json!(["x,\"y\"", null, 1, ""]);
        let mut out = Vec::new();
        push_line(row.as_array().unwrap().iter(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "\"x,\"\"y\"\"\",,1,\"\"\r\n");
    }

    #[test]
    fn high_limits_are_those_above_answers_in_json() {
        for (limit, expected) in [
            (serde_json::json!(LIMIT_MAX + 1), Some(LIMIT_MAX + 1)),
            (serde_json::json!(u64::MAX), Some(u64::MAX)),
            (serde_json::json!(LIMIT_MAX), None),
            (serde_json::json!(0), None),
            (serde_json::json!(-1), None),
            (serde_json::json!(60_000.5), None),
            (serde_json::json!("60000"), None),
            (serde_json::json!(null), None),
        ] {
            let mut query = serde_json::json!({"limit": limit, "measures": []});
            assert_eq!(take_high_limit(&mut query), expected, "{limit}");
            // Other limits stay in the query and are validated later.
            let left = if expected.is_some() { None } else { Some(&limit) };
            assert_eq!((query.get("limit"), query.get("measures").is_some()), (left, true), "{limit}");
        }
        for other in [
            serde_json::json!([]),
            serde_json::json!(null),
            serde_json::json!({}),
            serde_json::json!([{"limit": 60_000}]),
        ] {
            assert_eq!(take_high_limit(&mut other.clone()), None, "{other}");
            assert!(!is_limited(&other), "{other}");
        }
    }

    #[test]
    fn cells_of_csv() {
        let line = |cells: Value| {
            let mut out = b"before".to_vec();
            push_line(cells.as_array().unwrap().iter(), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(line(serde_json::json!([])), "before\r\n");
        assert_eq!(line(serde_json::json!([null])), "before\r\n");
        assert_eq!(line(serde_json::json!([null, null])), "before,\r\n");
        assert_eq!(
            line(serde_json::json!([true, -0.5, 18_446_744_073_709_551_615_u64, "é"])),
            "beforetrue,-0.5,18446744073709551615,é\r\n"
        );
        assert_eq!(line(serde_json::json!(["a\nb", " ", "1"])), "before\"a\nb\", ,1\r\n");
    }

    /// Texts of a stream go by codes, times by milliseconds without a zone; all else as it is.
    #[test]
    fn types_of_streams() {
        let texts = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        for kind in [DataType::Utf8, DataType::Utf8View, DataType::LargeUtf8] {
            assert_eq!(open_type(&kind), texts, "{kind}");
        }
        let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
        for (unit, zone) in
            [(TimeUnit::Nanosecond, Some("UTC")), (TimeUnit::Second, None), (TimeUnit::Millisecond, None)]
        {
            assert_eq!(open_type(&DataType::Timestamp(unit, zone.map(Into::into))), millis, "{unit:?} {zone:?}");
        }
        for kind in [DataType::Int64, DataType::Float64, DataType::Boolean, DataType::Date32, texts.clone()] {
            assert_eq!(open_type(&kind), kind);
        }
    }
}
