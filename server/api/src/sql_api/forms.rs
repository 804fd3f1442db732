//! Formats of SQL results: JSON, JSON lines, CSV, Arrow IPC and Parquet, each written batch by batch.
//!
//! In the text formats integers and decimals keep all digits (those of `numeric` that are needed), times are RFC 3339
//! with their zone, intervals are written as PostgreSQL does, maps are objects, and NaN and infinities are null in
//! JSON. In CSV NULL is an empty field and an empty string is `""`.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use arrow::json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder, make_encoder};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use http::{HeaderMap, header};
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use quiver_query::cut_by_bytes;
use quiver_query::functions::{interval_texts, is_open_numeric, needed_digits};
use quiver_sql::type_name;
use quiver_types::{Error, Result};
use serde_json::{Value, json};

use crate::params::invalid;
use crate::streamed_responses::BatchWriter;

/// Most rows and bytes of a Parquet row group, which is in memory until it is complete.
const GROUP_ROWS: usize = 32 * 1024;
const GROUP_BYTES: usize = 2 << 20;

/// Bytes of the rows of a Parquet file that are encoded at once: a group is looked at only then.
const WRITTEN_BYTES: usize = 512 << 10;

/// Columns with dictionaries: each takes 74 KB from its first value on, and of a group with many columns each has little.
const DICTIONARIES_MAX: usize = 32;

/// What is kept of each column of a written row group until the file ends.
const GROUP_COLUMN_BYTES: usize = 1 << 10;

/// Bytes of a buffer that need not be given back before it is sent.
const SPARE_BYTES: usize = 64 << 10;

/// A format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One object with columns and all rows.
    Json,
    /// JSON lines: an object per row.
    Lines,
    /// CSV (RFC 4180); NULL is an empty field, an empty string is `""`.
    Csv,
    /// An Arrow IPC stream.
    Arrow,
    /// A Parquet file.
    Parquet,
}

/// Names for `format=`, and content types.
const FORMS: [(Form, &str, &str); 5] = [
    (Form::Json, "json", "application/json"),
    (Form::Lines, "ndjson", "application/x-ndjson"),
    (Form::Csv, "csv", "text/csv"),
    (Form::Arrow, "arrow", "application/vnd.apache.arrow.stream"),
    (Form::Parquet, "parquet", "application/vnd.apache.parquet"),
];

impl Form {
    /// The format of a name in `format=`.
    pub fn named(name: &str) -> Option<Self> {
        FORMS.iter().find(|(_, word, _)| *word == name).map(|(form, ..)| *form)
    }

    /// The preferred known format in `Accept`; JSON if there is none.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        accepted(headers).unwrap_or(Self::Json)
    }

    /// The format of a request; JSON if it names none.
    ///
    /// # Errors
    /// Invalid: `format` is unknown.
    pub(super) fn of(format: Option<&str>, headers: &HeaderMap) -> Result<Self> {
        let Some(name) = format else { return Ok(Self::accepted(headers)) };
        let names = || FORMS.map(|(_, word, _)| word).join(", ");
        Self::named(name).ok_or_else(|| invalid("format", &format!("`{name}` is not one of {}", names())))
    }

    /// Its content type.
    pub(crate) fn content_type(self) -> &'static str {
        FORMS.iter().find(|(form, ..)| *form == self).map_or("", |(.., content_type)| content_type)
    }
}

/// The preferred known format in `Accept`: of equals the first, and an explicit one before a wildcard.
fn accepted(headers: &HeaderMap) -> Option<Form> {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut best: Option<((f64, bool), Form)> = None;
    for range in values.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(|part| part.trim().to_ascii_lowercase());
        let wanted = parts.next().unwrap_or_default();
        let named = FORMS.iter().find(|(.., content_type)| *content_type == wanted).map(|(form, ..)| *form);
        let any = match wanted.as_str() {
            "*/*" | "application/*" => Some(Form::Json),
            "text/*" => Some(Form::Csv),
            _ => None,
        };
        let quality = parts.find_map(|part| part.strip_prefix("q=")?.trim().parse::<f64>().ok()).unwrap_or(1.0);
        let Some(form) = named.or(any).filter(|_| quality > 0.0) else { continue };
        let rank = (quality, named.is_some());
        if best.as_ref().is_none_or(|(other, _)| rank > *other) {
            best = Some((rank, form));
        }
    }
    best.map(|(_, form)| form)
}

/// Encodes a result in one of the formats.
#[allow(missing_debug_implementations, reason = "writers of Arrow and Parquet have none that says something")]
pub struct Writer {
    schema: SchemaRef,
    /// Bytes that are encoded and not sent yet.
    out: Vec<u8>,
    rows: u64,
    kind: FormatWriter,
}

enum FormatWriter {
    Json,
    Lines,
    Csv,
    Arrow(Box<StreamWriter<Vec<u8>>>),
    Parquet(Box<ArrowWriter<Vec<u8>>>),
}

fn failed(error: ArrowError) -> Error {
    Error::internal("cannot write an answer").with_source(error)
}

fn parquet_failed(error: ParquetError) -> Error {
    Error::internal("cannot write an answer as Parquet").with_source(error)
}

impl Writer {
    /// Begins a result.
    ///
    /// # Errors
    /// Invalid: the format does not support the type of a column.
    pub fn new(form: Form, schema: &SchemaRef) -> Result<Self> {
        let mut out = Vec::new();
        // Checked here since the JSON encoder fails only at the first rows, when the response has begun. CSV writes
        // maps as JSON, too.
        if matches!(form, Form::Json | Form::Lines | Form::Csv)
            && let Some(field) = schema.fields().iter().find(|field| has_bare_keys(field.data_type()))
        {
            let text = format!("JSON has no maps whose keys are no texts: cast those of column `{}`", field.name());
            return Err(Error::invalid(text));
        }
        let kind = match form {
            Form::Json => {
                let columns = schema.fields().iter();
                let columns = columns.map(|f| json!({ "name": f.name(), "type": type_name(f.data_type()) }));
                let columns = Value::Array(columns.collect());
                out.extend_from_slice(format!("{{\"columns\":{columns},\"rows\":[").as_bytes());
                FormatWriter::Json
            }
            Form::Lines => FormatWriter::Lines,
            Form::Csv => {
                for (at, field) in schema.fields().iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    push_quoted(field.name(), &mut out);
                }
                out.extend_from_slice(b"\r\n");
                FormatWriter::Csv
            }
            Form::Arrow => FormatWriter::Arrow(Box::new(StreamWriter::try_new(Vec::new(), schema).map_err(failed)?)),
            Form::Parquet => {
                // Checked here since the writer fails only at the first rows, when the response has begun.
                if let Some(field) = schema.fields().iter().find(|field| holds_interval(field.data_type())) {
                    let text = format!("Parquet has no intervals: cast column `{}` to text", field.name());
                    return Err(Error::invalid(text));
                }
                // Indexes of pages are kept until the file ends, which no answer has room for.
                let properties = WriterProperties::builder()
                    .set_max_row_group_row_count(Some(GROUP_ROWS))
                    .set_max_row_group_bytes(Some(GROUP_BYTES))
                    .set_dictionary_enabled(schema.fields().len() <= DICTIONARIES_MAX)
                    .set_statistics_enabled(EnabledStatistics::Chunk)
                    .set_offset_index_disabled(true)
                    .build();
                let writer = ArrowWriter::try_new(Vec::new(), std::sync::Arc::clone(schema), Some(properties));
                let refused = |e: ParquetError| Error::invalid(format!("Parquet has no such columns: {e}"));
                FormatWriter::Parquet(Box::new(writer.map_err(refused)?))
            }
        };
        Ok(Self { schema: std::sync::Arc::clone(schema), out, rows: 0, kind })
    }

    /// Encodes rows. Returns the bytes that can be sent.
    ///
    /// # Errors
    /// Internal: only by a bug.
    pub fn batch(&mut self, batch: &RecordBatch) -> Result<Bytes> {
        let is_text = matches!(self.kind, FormatWriter::Json | FormatWriter::Lines | FormatWriter::Csv);
        let spelled = if is_text { with_texts(&self.schema, batch)? } else { None };
        let schema = spelled.as_ref().map_or_else(|| SchemaRef::clone(&self.schema), RecordBatch::schema);
        let batch = spelled.as_ref().unwrap_or(batch);
        match &mut self.kind {
            FormatWriter::Json => rows_of_json(&schema, batch, &mut self.rows, &mut self.out)?,
            FormatWriter::Lines => lines_of_json(&schema, batch, &mut self.out)?,
            FormatWriter::Csv => csv(&schema, batch, &mut self.out)?,
            FormatWriter::Arrow(writer) => {
                writer.write(batch).map_err(failed)?;
                self.out.append(writer.get_mut());
            }
            FormatWriter::Parquet(writer) => {
                for piece in cut_by_bytes(batch, WRITTEN_BYTES)? {
                    writer.write(&piece).map_err(parquet_failed)?;
                }
                self.out.append(writer.inner_mut());
            }
        }
        let mut out = std::mem::take(&mut self.out);
        // A piece may wait long for its client, and its buffer grew by doubling.
        if out.capacity() > out.len() + SPARE_BYTES {
            out.shrink_to_fit();
        }
        Ok(out.into())
    }

    /// Bytes that are held until more rows come, or the end: of Parquet the row group at hand, and what its end says of all.
    pub fn held_bytes(&self) -> usize {
        let FormatWriter::Parquet(writer) = &self.kind else { return 0 };
        let groups = writer.flushed_row_groups().iter().map(|group| group.num_columns() * GROUP_COLUMN_BYTES);
        writer.memory_size() + groups.sum::<usize>()
    }

    /// Encodes the end of a result.
    ///
    /// # Errors
    /// Internal: only by a bug.
    pub fn end(self, stats: &Value) -> Result<Bytes> {
        let Self { mut out, kind, .. } = self;
        match kind {
            FormatWriter::Json => out.extend_from_slice(format!("],\"stats\":{stats}}}").as_bytes()),
            FormatWriter::Lines | FormatWriter::Csv => {}
            FormatWriter::Arrow(mut writer) => {
                writer.finish().map_err(failed)?;
                out.append(writer.get_mut());
            }
            FormatWriter::Parquet(writer) => out.append(&mut writer.into_inner().map_err(parquet_failed)?),
        }
        Ok(out.into())
    }
}

/// Replaces intervals by texts. `None` if there are none.
fn with_texts(schema: &SchemaRef, batch: &RecordBatch) -> Result<Option<RecordBatch>> {
    let is_interval = |data_type: &DataType| matches!(data_type, DataType::Interval(_) | DataType::Duration(_));
    if !schema.fields().iter().any(|field| is_interval(field.data_type())) {
        return Ok(None);
    }
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if is_interval(column.data_type()) {
            fields.push(FieldRef::new(Field::new(field.name(), DataType::Utf8View, true)));
            columns.push(interval_texts(column)?);
        } else {
            fields.push(FieldRef::clone(field));
            columns.push(ArrayRef::clone(column));
        }
    }
    RecordBatch::try_new(SchemaRef::new(Schema::new(fields)), columns).map(Some).map_err(failed)
}

/// Whether a type is or contains intervals.
fn holds_interval(data_type: &DataType) -> bool {
    match data_type {
        DataType::Interval(_) => true,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => holds_interval(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds_interval(field.data_type())),
        _ => false,
    }
}

/// Whether a type is or contains maps whose keys are not strings.
fn has_bare_keys(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            has_bare_keys(item.data_type())
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(of) => {
                of.first().is_some_and(|key| !key.data_type().is_string())
                    || of.iter().any(|field| has_bare_keys(field.data_type()))
            }
            _ => false,
        },
        DataType::Struct(fields) => fields.iter().any(|field| has_bare_keys(field.data_type())),
        _ => false,
    }
}

impl BatchWriter for Writer {
    fn batch(&mut self, batch: &RecordBatch) -> Result<Bytes> {
        Self::batch(self, batch)
    }

    fn held_bytes(&self) -> usize {
        Self::held_bytes(self)
    }

    fn end(self: Box<Self>, stats: &Value) -> Result<Bytes> {
        Self::end(*self, stats)
    }
}

fn options() -> EncoderOptions {
    EncoderOptions::default().with_explicit_nulls(true).with_encoder_factory(std::sync::Arc::new(OpenNumerics))
}

/// Writes the digits that values of `numeric` without digits need, as PostgreSQL does.
#[derive(Debug)]
struct OpenNumerics;

impl EncoderFactory for OpenNumerics {
    fn make_default_encoder<'a>(
        &self,
        _field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        if !is_open_numeric(array.data_type()) {
            return Ok(None);
        }
        let written = ArrayFormatter::try_new(array, &FormatOptions::default())?;
        Ok(Some(NullableEncoder::new(Box::new(NeededDigits(written)), array.nulls().cloned())))
    }
}

struct NeededDigits<'a>(ArrayFormatter<'a>);

impl Encoder for NeededDigits<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(needed_digits(&self.0.value(row).to_string()).as_bytes());
    }
}

fn encoders<'a>(
    schema: &'a SchemaRef,
    batch: &'a RecordBatch,
    options: &'a EncoderOptions,
) -> Result<Vec<NullableEncoder<'a>>> {
    let each = schema.fields().iter().zip(batch.columns());
    each.map(|(field, column)| make_encoder(field, &**column, options).map_err(failed)).collect()
}

fn push_value(encoder: &mut NullableEncoder<'_>, row: usize, out: &mut Vec<u8>) {
    if encoder.is_null(row) {
        out.extend_from_slice(b"null");
    } else {
        encoder.encode(row, out);
    }
}

fn rows_of_json(schema: &SchemaRef, batch: &RecordBatch, before: &mut u64, out: &mut Vec<u8>) -> Result<()> {
    let options = options();
    let mut encoders = encoders(schema, batch, &options)?;
    for row in 0..batch.num_rows() {
        out.extend_from_slice(if *before > 0 { b",\n[" } else { b"[" });
        *before += 1;
        for (at, encoder) in encoders.iter_mut().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            push_value(encoder, row, out);
        }
        out.push(b']');
    }
    Ok(())
}

fn lines_of_json(schema: &SchemaRef, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
    let options = options();
    let names: Vec<String> =
        schema.fields().iter().map(|field| Value::from(field.name().as_str()).to_string()).collect();
    let mut encoders = encoders(schema, batch, &options)?;
    for row in 0..batch.num_rows() {
        out.push(b'{');
        for (at, (encoder, name)) in encoders.iter_mut().zip(&names).enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(name.as_bytes());
            out.push(b':');
            push_value(encoder, row, out);
        }
        out.extend_from_slice(b"}\n");
    }
    Ok(())
}

/// A column of CSV: scalars as text, nested values as JSON.
enum CsvColumn<'a> {
    Plain(ArrayFormatter<'a>, &'a dyn Array),
    Nested(NullableEncoder<'a>),
}

fn is_nested(field: &FieldRef) -> bool {
    matches!(
        field.data_type(),
        DataType::Map(..)
            | DataType::Struct(_)
            | DataType::List(_)
            | DataType::LargeList(_)
            | DataType::FixedSizeList(..)
    )
}

fn csv(schema: &SchemaRef, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
    let (options, format) = (options(), FormatOptions::default());
    let column = |(field, column): (&'_ FieldRef, &'_ ArrayRef)| -> Result<bool> {
        let _ = column;
        Ok(is_nested(field))
    };
    let nested = schema.fields().iter().zip(batch.columns()).map(column).collect::<Result<Vec<_>>>()?;
    let mut columns = Vec::with_capacity(nested.len());
    for ((field, array), nested) in schema.fields().iter().zip(batch.columns()).zip(nested) {
        columns.push(if nested {
            CsvColumn::Nested(make_encoder(field, &**array, &options).map_err(failed)?)
        } else {
            CsvColumn::Plain(ArrayFormatter::try_new(&**array, &format).map_err(failed)?, &**array)
        });
    }
    let mut scratch = Vec::new();
    for row in 0..batch.num_rows() {
        for (at, column) in columns.iter_mut().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            match column {
                // An array of type Null has no validity bitmap.
                CsvColumn::Plain(_, array) if array.is_null(row) || *array.data_type() == DataType::Null => {}
                CsvColumn::Plain(format, array) => {
                    let written = format.value(row).to_string();
                    let is_open = is_open_numeric(array.data_type());
                    push_quoted(if is_open { needed_digits(&written) } else { written.as_str() }, out);
                }
                CsvColumn::Nested(encoder) if encoder.is_null(row) => {}
                CsvColumn::Nested(encoder) => {
                    scratch.clear();
                    encoder.encode(row, &mut scratch);
                    push_quoted(&String::from_utf8_lossy(&scratch), out);
                }
            }
        }
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

/// Writes a field of CSV (RFC 4180), quoted if needed.
pub(crate) fn push_quoted(text: &str, out: &mut Vec<u8>) {
    let plain = !text.is_empty() && !text.contains(['"', ',', '\n', '\r']);
    if plain {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests;
