//! Bodies of WAL records: Arrow IPC record batch messages without a schema, which follows from table, version and kind.
//!
//! There are no dictionaries and no compression, and buffers are aligned to 8 bytes, so that replay reads numbers in
//! place.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, FixedSizeBinaryBuilder, Float64Array, Int64Array,
    RecordBatch, StringArray, StringBuilder, StructArray, UInt32Array,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Fields, Float64Type, Int64Type, Schema, SchemaRef, UInt8Type, UInt32Type};
use arrow::error::ArrowError;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow::ipc::{MetadataVersion, root_as_message};
use quiver_types::histogram::{HistogramBuilder, histogram_fields, read_histogram};
use quiver_types::metrics::MetricMetadata;
use quiver_types::spans::{context_schema, span_schema};
use quiver_types::tables::history::TableRows;
use quiver_types::tables::{TableDef, logs, metric_metadata, metrics, record_tables, spans};
use quiver_types::{Millis, SeriesId, SpansBatch};

use crate::idempotency::{Answer, AnsweredRequest, RequestId};
use crate::memtable::HistogramRow;
use crate::memtable::logs::LogRows;
use crate::memtable::series::exemplar;
use crate::series_run::RunExemplar;
use crate::wal::record::{OPTIONAL, OPTIONAL_2};

/// What the body of a record contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// Series that are new to the generation: slot, id, label set, service.
    Definitions,
    /// Float samples: slot, time, value, start time if known.
    Samples,
    /// Native histograms: slot, time, start time, histogram.
    Histograms,
    /// Exemplars: slot, time, value, labels.
    Exemplars,
    /// Rows of `metric_metadata`.
    Metadata,
    /// Log streams that are new to the generation, in the form of `Definitions`.
    LogStreams,
    /// Names of the fields of the rows that follow.
    LogNames,
    /// Rows of `logs`.
    LogRows,
    /// The request of the write, with its response.
    LogRequest,
    /// Contexts of the spans that follow.
    SpanContexts,
    /// Rows of `spans`.
    SpanRows,
    /// Rows of a table without series, identified by its number.
    Rows(u16),
}

impl RecordKind {
    /// The table that the record belongs to.
    pub(crate) fn table(self) -> &'static TableDef {
        match self {
            Self::Metadata => &metric_metadata::TABLE,
            Self::LogStreams | Self::LogNames | Self::LogRows | Self::LogRequest => &logs::TABLE,
            Self::SpanContexts | Self::SpanRows => &spans::TABLE,
            Self::Rows(number) => record_tables::numbered(number).expect("made of a table's number"),
            _ => &metrics::TABLE,
        }
    }

    /// Its number among the table's record kinds.
    pub(crate) fn number(self) -> u16 {
        match self {
            Self::Definitions | Self::Metadata | Self::LogStreams | Self::SpanContexts | Self::Rows(_) => 0,
            Self::Samples | Self::LogNames | Self::SpanRows => 1,
            Self::Histograms | Self::LogRows => 2,
            Self::Exemplars | Self::LogRequest => 3,
        }
    }

    /// Tells whether its records define what other records refer to; these do not count among the records of a write.
    pub(crate) fn defines(self) -> bool {
        matches!(self, Self::Definitions | Self::LogStreams)
    }

    /// The kind with a table and number; `None` if there is none.
    pub(crate) fn of(table: u16, number: u16) -> Option<Self> {
        let metrics = [Self::Definitions, Self::Samples, Self::Histograms, Self::Exemplars, Self::Metadata];
        let all = metrics.into_iter().chain([Self::LogStreams, Self::LogNames, Self::LogRows, Self::LogRequest]);
        let all = all.chain([Self::SpanContexts, Self::SpanRows]);
        let mut all = all.chain(record_tables::TABLES.map(|table| Self::Rows(table.number)));
        all.find(|k| k.table().number == table && k.number() == number)
    }

    /// The columns of a body for a version of the table; `flags` of the record tell which optional ones it has.
    fn schema(self, version: u16, flags: u16) -> SchemaRef {
        match self {
            Self::SpanContexts => return context_schema(),
            Self::SpanRows => return span_schema(),
            Self::Rows(_) => return self.table().columns_of(version),
            _ => {}
        }
        let schemas = &*SCHEMAS;
        let (first, second) = (flags & OPTIONAL != 0, flags & OPTIONAL_2 != 0);
        Arc::clone(match (self, first) {
            (Self::Definitions | Self::LogStreams, _) => &schemas[0],
            (Self::Samples, false) => &schemas[1],
            (Self::Samples, true) => &schemas[2],
            (Self::Histograms, _) => &schemas[3],
            (Self::Exemplars, _) => &schemas[4],
            (Self::Metadata, _) => &schemas[5],
            (Self::LogNames, _) => &schemas[6],
            (Self::LogRows, false) => &schemas[7],
            (Self::LogRows, true) if second => &schemas[10],
            (Self::LogRows | Self::SpanContexts | Self::SpanRows | Self::Rows(_), _) => &schemas[8],
            (Self::LogRequest, _) => &schemas[9],
        })
    }
}

static SCHEMAS: LazyLock<[SchemaRef; 11]> = LazyLock::new(|| {
    let field = |name: &str, t: DataType| Field::new(name, t, false);
    let schema = |fields: Vec<Field>| Arc::new(Schema::new(fields));
    let series = || field("series", DataType::UInt32);
    let ts = || field("ts", DataType::Int64);
    let start_ts = || field("start_ts", DataType::Int64);
    let value = || field("value", DataType::Float64);
    let text = |name| field(name, DataType::Utf8);
    [
        schema(vec![
            series(),
            field("series_id", DataType::FixedSizeBinary(16)),
            field("labels", DataType::Binary),
            text("service"),
        ]),
        schema(vec![series(), ts(), value()]),
        schema(vec![series(), ts(), value(), start_ts()]),
        schema(vec![series(), ts(), start_ts(), field("histogram", DataType::Struct(histogram_fields()))]),
        schema(vec![series(), ts(), value(), field("labels", DataType::Binary)]),
        schema(vec![ts(), text("metric"), text("type"), text("help"), text("unit"), text("service")]),
        schema(vec![text("name")]),
        schema(vec![field("time", DataType::Int64), field("stream", DataType::UInt32), log_fields()]),
        schema(vec![
            field("time", DataType::Int64),
            field("stream", DataType::UInt32),
            log_fields(),
            field("severity", DataType::UInt8),
        ]),
        schema(vec![
            text("caller"),
            text("path"),
            text("key"),
            field("body_hash", DataType::FixedSizeBinary(16)),
            ts(),
            field("status", DataType::UInt32),
            text("content_type"),
            field("answer", DataType::Binary),
        ]),
        schema(vec![
            field("time", DataType::Int64),
            field("stream", DataType::UInt32),
            log_fields(),
            field("severity", DataType::UInt8),
            field("observed", DataType::Int64),
        ]),
    ]
});

/// Entries of the map with a row's fields: index of the name in the write's names, value.
fn log_entries() -> Fields {
    vec![Field::new("name", DataType::UInt32, false), Field::new("value", DataType::Utf8, false)].into()
}

fn log_fields() -> Field {
    let entries = Arc::new(Field::new("entries", DataType::Struct(log_entries()), false));
    Field::new("fields", DataType::Map(entries, false), false)
}

/// A series or stream for a definitions record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Definition {
    /// Its number in the WAL: the slot in the generation.
    pub(crate) slot: u32,
    pub(crate) id: SeriesId,
    /// Canonical label bytes.
    pub(crate) labels: Vec<u8>,
    pub(crate) service: String,
}

/// Float samples as Arrow columns, shared with the WAL record that is written from them.
#[derive(Debug)]
pub(crate) struct SampleColumns {
    pub(crate) slots: UInt32Array,
    pub(crate) ts: Int64Array,
    pub(crate) values: Float64Array,
    /// `None` if no sample has one.
    pub(crate) start_ts: Option<Int64Array>,
}

/// A metadata row: time of arrival, metadata, service.
pub(crate) type MetadataRow = (Millis, MetricMetadata, String);

/// An exemplar with its slot.
pub(crate) type ExemplarRow = (u32, RunExemplar);

type EncodeFn = dyn FnMut(&RecordBatch, &mut Vec<u8>) -> Result<(), ArrowError> + Send;

/// Encodes bodies; reuses the buffers of the IPC writer.
pub(crate) struct Encoder {
    encode: Box<EncodeFn>,
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

impl Default for Encoder {
    fn default() -> Self {
        let generator = IpcDataGenerator::default();
        let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5).expect("8 is a valid alignment");
        let mut dictionaries = DictionaryTracker::new(false);
        // The type of the context is not public, but a closure can capture it.
        #[allow(clippy::default_trait_access, reason = "it has no name to be called by")]
        let mut context = Default::default();
        Self {
            encode: Box::new(move |batch, out| {
                let (_, message) = generator.encode(batch, &mut dictionaries, &options, &mut context)?;
                write_message(&mut *out, message, &options)?;
                Ok(())
            }),
        }
    }
}

impl Encoder {
    fn write(&mut self, kind: RecordKind, flags: u16, columns: Vec<ArrayRef>, out: &mut Vec<u8>) {
        let schema = kind.schema(kind.table().version, flags);
        let batch = RecordBatch::try_new(schema, columns).expect("columns of the kind's own schema");
        (self.encode)(&batch, out).expect("a vector takes any message without dictionaries");
        out.resize(out.len().next_multiple_of(8), 0);
    }

    /// `kind` is that of series or of log streams.
    pub(crate) fn definitions(&mut self, kind: RecordKind, rows: &[Definition], out: &mut Vec<u8>) {
        let mut ids = FixedSizeBinaryBuilder::with_capacity(rows.len(), 16);
        let bytes = rows.iter().map(|r| r.labels.len()).sum();
        let mut labels = BinaryBuilder::with_capacity(rows.len(), bytes);
        let mut services = StringBuilder::new();
        for row in rows {
            ids.append_value(row.id.to_bytes()).expect("16 bytes");
            labels.append_value(&row.labels);
            services.append_value(&row.service);
        }
        let slots: UInt32Array = rows.iter().map(|r| r.slot).collect::<Vec<_>>().into();
        let columns: Vec<ArrayRef> =
            vec![Arc::new(slots), Arc::new(ids.finish()), Arc::new(labels.finish()), Arc::new(services.finish())];
        self.write(kind, 0, columns, out);
    }

    pub(crate) fn samples(&mut self, rows: &SampleColumns, out: &mut Vec<u8>) {
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(rows.slots.clone()), Arc::new(rows.ts.clone()), Arc::new(rows.values.clone())];
        columns.extend(rows.start_ts.iter().map(|s| Arc::new(s.clone()) as ArrayRef));
        self.write(RecordKind::Samples, if rows.start_ts.is_some() { OPTIONAL } else { 0 }, columns, out);
    }

    pub(crate) fn histograms(&mut self, rows: &[HistogramRow], out: &mut Vec<u8>) {
        let mut histograms = HistogramBuilder::default();
        for r in rows {
            histograms.push(&r.histogram);
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(|r| r.slot))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.ts))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.start_ts))),
            Arc::new(histograms.finish()),
        ];
        self.write(RecordKind::Histograms, 0, columns, out);
    }

    pub(crate) fn exemplars(&mut self, rows: &[ExemplarRow], out: &mut Vec<u8>) {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(|r| r.0))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.1.ts))),
            Arc::new(Float64Array::from_iter_values(rows.iter().map(|r| r.1.value))),
            Arc::new(BinaryArray::from_iter_values(rows.iter().map(|r| r.1.labels.canonical()))),
        ];
        self.write(RecordKind::Exemplars, 0, columns, out);
    }

    pub(crate) fn span_contexts(&mut self, batch: &SpansBatch, out: &mut Vec<u8>) {
        self.write(RecordKind::SpanContexts, 0, batch.contexts.columns().to_vec(), out);
    }

    pub(crate) fn span_rows(&mut self, spans: &RecordBatch, out: &mut Vec<u8>) {
        self.write(RecordKind::SpanRows, 0, spans.columns().to_vec(), out);
    }

    pub(crate) fn rows(&mut self, rows: &TableRows, out: &mut Vec<u8>) {
        self.write(RecordKind::Rows(rows.table.number), 0, rows.rows.columns().to_vec(), out);
    }

    pub(crate) fn log_names(&mut self, rows: &LogRows, out: &mut Vec<u8>) {
        self.write(RecordKind::LogNames, 0, vec![Arc::new(rows.names.clone())], out);
    }

    pub(crate) fn log_rows(&mut self, rows: &LogRows, out: &mut Vec<u8>) {
        self.write(RecordKind::LogRows, rows.flags(), rows.columns(log_entries()), out);
    }

    pub(crate) fn log_request(&mut self, request: &AnsweredRequest, out: &mut Vec<u8>) {
        let AnsweredRequest { id, body_hash, at, answer } = request;
        let text = |text: &str| -> ArrayRef { Arc::new(StringArray::from_iter_values([text])) };
        let mut hash = FixedSizeBinaryBuilder::with_capacity(1, 16);
        hash.append_value(body_hash.to_be_bytes()).expect("16 bytes");
        let columns: Vec<ArrayRef> = vec![
            text(&id.caller),
            text(&id.path),
            text(&id.key),
            Arc::new(hash.finish()),
            Arc::new(Int64Array::from_iter_values([*at])),
            Arc::new(UInt32Array::from_iter_values([u32::from(answer.status)])),
            text(&answer.content_type),
            Arc::new(BinaryArray::from_iter_values([&answer.body])),
        ];
        self.write(RecordKind::LogRequest, 0, columns, out);
    }

    pub(crate) fn metadata(&mut self, rows: &[MetadataRow], out: &mut Vec<u8>) {
        let text = |get: fn(&MetadataRow) -> &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(rows.iter().map(get)))
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0))),
            text(|r| &r.1.metric),
            text(|r| &r.1.metric_type),
            text(|r| &r.1.help),
            text(|r| &r.1.unit),
            text(|r| &r.2),
        ];
        self.write(RecordKind::Metadata, 0, columns, out);
    }
}

/// A body that does not match its header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("WAL record body: {0}")]
pub(crate) struct BadBody(String);

pub(crate) fn bad(what: impl Into<String>) -> BadBody {
    BadBody(what.into())
}

/// Decodes a body written with a version of the table, without copying numbers.
pub(crate) fn decode(kind: RecordKind, version: u16, flags: u16, body: &Buffer) -> Result<RecordBatch, BadBody> {
    let head = body.get(..8).ok_or_else(|| bad("no room for a message"))?;
    let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if head[..4] != [0xff; 4] {
        return Err(bad("no continuation marker"));
    }
    let metadata = body.get(8..8 + length).ok_or_else(|| bad("metadata runs past the end"))?;
    let message = root_as_message(metadata).map_err(|e| bad(e.to_string()))?;
    let batch = message.header_as_record_batch().ok_or_else(|| bad("not a record batch"))?;
    let data = body.slice(8 + length);
    // The IPC reader slices without bounds checks, so check them here.
    let inside = |offset: i64, length: i64| {
        let end = usize::try_from(offset).ok().zip(usize::try_from(length).ok()).and_then(|(o, l)| o.checked_add(l));
        end.is_some_and(|end| end <= data.len())
    };
    let rows = batch.length();
    let nodes_fit =
        batch.nodes().is_some_and(|n| n.iter().all(|n| n.null_count() == 0 && (0..=1 << 32).contains(&n.length())));
    let buffers_fit = batch.buffers().is_some_and(|b| b.iter().all(|b| inside(b.offset(), b.length())));
    if !nodes_fit || !buffers_fit || batch.compression().is_some() || !(0..=1 << 32).contains(&rows) {
        return Err(bad("buffers do not fit"));
    }
    let schema = kind.schema(version, flags);
    let read = arrow::ipc::reader::read_record_batch(&data, batch, schema, &HashMap::new(), None, &message.version());
    let read = read.map_err(|e| bad(e.to_string()))?;
    match kind {
        RecordKind::Rows(_) => kind.table().completed(&read).map_err(|e| bad(e.message)),
        _ => Ok(read),
    }
}

fn column<'a, T: 'a>(
    batch: &'a RecordBatch,
    at: usize,
    cast: impl FnOnce(&'a ArrayRef) -> Option<&'a T>,
) -> Result<&'a T, BadBody> {
    batch.columns().get(at).and_then(cast).ok_or_else(|| bad(format!("column {at} is of another type")))
}

/// Reads a body of [`RecordKind::Definitions`].
pub(crate) fn read_definitions(batch: &RecordBatch) -> Result<Vec<Definition>, BadBody> {
    let slots = column(batch, 0, |c| c.as_primitive_opt::<UInt32Type>())?;
    let ids = column(batch, 1, |c| c.as_fixed_size_binary_opt())?;
    let labels = column(batch, 2, |c| c.as_binary_opt::<i32>())?;
    let services = column(batch, 3, |c| c.as_string_opt::<i32>())?;
    let rows = (0..batch.num_rows()).map(|i| {
        let id = ids.value(i).try_into().map_err(|_| bad("an id is not 16 bytes"))?;
        Ok(Definition {
            slot: slots.value(i),
            id: SeriesId::from_bytes(id),
            labels: labels.value(i).to_vec(),
            service: services.value(i).to_owned(),
        })
    });
    rows.collect()
}

/// Reads a body of [`RecordKind::Samples`].
pub(crate) fn read_samples(batch: &RecordBatch) -> Result<SampleColumns, BadBody> {
    let start_ts = match batch.num_columns() {
        4 => Some(column(batch, 3, |c| c.as_primitive_opt::<Int64Type>())?.clone()),
        _ => None,
    };
    Ok(SampleColumns {
        slots: column(batch, 0, |c| c.as_primitive_opt::<UInt32Type>())?.clone(),
        ts: column(batch, 1, |c| c.as_primitive_opt::<Int64Type>())?.clone(),
        values: column(batch, 2, |c| c.as_primitive_opt::<Float64Type>())?.clone(),
        start_ts,
    })
}

/// Reads a body of [`RecordKind::Histograms`].
pub(crate) fn read_histograms(batch: &RecordBatch) -> Result<Vec<HistogramRow>, BadBody> {
    let slots = column(batch, 0, |c| c.as_primitive_opt::<UInt32Type>())?;
    let ts = column(batch, 1, |c| c.as_primitive_opt::<Int64Type>())?;
    let start_ts = column(batch, 2, |c| c.as_primitive_opt::<Int64Type>())?;
    let histograms: &StructArray = column(batch, 3, |c| c.as_struct_opt())?;
    let rows = (0..batch.num_rows()).map(|i| {
        let histogram = read_histogram(histograms, i).ok_or_else(|| bad("a histogram has another shape"))?;
        Ok(HistogramRow { slot: slots.value(i), ts: ts.value(i), start_ts: start_ts.value(i), histogram })
    });
    rows.collect()
}

/// Reads a body of [`RecordKind::Exemplars`].
pub(crate) fn read_exemplars(batch: &RecordBatch) -> Result<Vec<ExemplarRow>, BadBody> {
    let slots = column(batch, 0, |c| c.as_primitive_opt::<UInt32Type>())?;
    let ts = column(batch, 1, |c| c.as_primitive_opt::<Int64Type>())?;
    let values = column(batch, 2, |c| c.as_primitive_opt::<Float64Type>())?;
    let labels = column(batch, 3, |c| c.as_binary_opt::<i32>())?;
    let row = |i| (slots.value(i), exemplar(ts.value(i), values.value(i), labels.value(i)));
    Ok((0..batch.num_rows()).map(row).collect())
}

/// Reads the names of fields of log rows.
pub(crate) fn read_log_names(batch: &RecordBatch) -> Result<StringArray, BadBody> {
    column(batch, 0, |c| c.as_string_opt::<i32>()).cloned()
}

/// Reads log rows; their slots are numbers in the WAL.
pub(crate) fn read_log_rows(batch: &RecordBatch, names: &StringArray) -> Result<LogRows, BadBody> {
    let fields = column(batch, 2, |c| c.as_map_opt())?;
    let keys = fields.keys().as_primitive_opt::<UInt32Type>().ok_or_else(|| bad("names are of another type"))?;
    let values = fields.values().as_string_opt::<i32>().ok_or_else(|| bad("values are of another type"))?;
    if keys.values().iter().any(|&name| name as usize >= names.len()) {
        return Err(bad("a field without a name"));
    }
    let with = |at| batch.num_columns() > at;
    let severity = with(3).then(|| column(batch, 3, |c| c.as_primitive_opt::<UInt8Type>())).transpose()?;
    let observed = with(4).then(|| column(batch, 4, |c| c.as_primitive_opt::<Int64Type>())).transpose()?;
    Ok(LogRows {
        time: column(batch, 0, |c| c.as_primitive_opt::<Int64Type>())?.values().clone(),
        slots: column(batch, 1, |c| c.as_primitive_opt::<UInt32Type>())?.values().clone(),
        severity: severity.map(|s| s.values().clone()),
        observed: observed.map(|o| o.values().clone()),
        offsets: fields.offsets().clone(),
        field_names: keys.values().clone(),
        values: values.clone(),
        names: names.clone(),
    })
}

/// Reads the request of a write.
pub(crate) fn read_log_request(batch: &RecordBatch) -> Result<AnsweredRequest, BadBody> {
    let text = |at| column(batch, at, |c| c.as_string_opt::<i32>());
    let (caller, path, key, content_type) = (text(0)?, text(1)?, text(2)?, text(6)?);
    let hash = column(batch, 3, |c| c.as_fixed_size_binary_opt())?;
    let at = column(batch, 4, |c| c.as_primitive_opt::<Int64Type>())?;
    let status = column(batch, 5, |c| c.as_primitive_opt::<UInt32Type>())?;
    let body = column(batch, 7, |c| c.as_binary_opt::<i32>())?;
    if batch.num_rows() != 1 {
        return Err(bad("not one request"));
    }
    let id =
        RequestId { caller: caller.value(0).to_owned(), path: path.value(0).to_owned(), key: key.value(0).to_owned() };
    let hash = hash.value(0).try_into().map_err(|_| bad("a hash is not 16 bytes"))?;
    let answer = Answer {
        status: u16::try_from(status.value(0)).map_err(|_| bad("a status is too large"))?,
        content_type: content_type.value(0).to_owned(),
        body: body.value(0).to_vec(),
    };
    Ok(AnsweredRequest { id, body_hash: u128::from_be_bytes(hash), at: at.value(0), answer })
}

/// Reads metadata rows.
pub(crate) fn read_metadata(batch: &RecordBatch) -> Result<Vec<MetadataRow>, BadBody> {
    let ts = column(batch, 0, |c| c.as_primitive_opt::<Int64Type>())?;
    let mut texts = Vec::with_capacity(5);
    for at in 1..6 {
        texts.push(column(batch, at, |c| c.as_string_opt::<i32>())?);
    }
    let row = |i: usize| {
        let text = |at: usize| texts[at].value(i).to_owned();
        let metadata = MetricMetadata { metric: text(0), metric_type: text(1), help: text(2), unit: text(3) };
        (ts.value(i), metadata, text(4))
    };
    Ok((0..batch.num_rows()).map(row).collect())
}

#[cfg(test)]
mod tests;
