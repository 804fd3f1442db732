//! A logs table in memory, so that pipes can be run on exactly the given rows.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, MapArray, StringArray, StringViewArray, StructArray, TimestampNanosecondArray, UInt64Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use quiver_logsql::LogsqlEngine;
use quiver_logsql::kernels::values::parse_rfc3339;
use quiver_query::{EngineSettings, LogTables, QueryEngine};
use quiver_types::logs::{
    FieldPattern, LogFilter, LogForm, LogRequest, LogSnapshot, LogSource, REST, STREAM, STREAM_ID, StoredField,
    StreamInfo, StreamSelector, TIME, ValueCounts, ValueLimits, write_float, write_int,
};
use quiver_types::{Access, Error, ReadStats, Result};

/// A row: names and values in order.
pub(crate) type Row = Vec<(String, String)>;

/// The rows, and after how many of them each batch ends.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    pub(crate) rows: Arc<Vec<Row>>,
    pub(crate) batch_rows: usize,
}

/// A small engine.
pub(crate) fn engine() -> Arc<QueryEngine> {
    let settings =
        EngineSettings { spill_bytes: 1 << 30, threads: 2, concurrent_max: 4, ..EngineSettings::small(256 << 20) };
    let start = || QueryEngine::new(&settings).expect("an engine");
    let engine = start();
    if quiver_tests::through_codec() {
        quiver::codec_loop::send(&engine, start()).expect("plans go through one codec");
    }
    engine
}

/// Says how to make a table out of what it is asked for.
pub(crate) trait Table: std::fmt::Debug + Send + Sync {
    /// Makes it.
    fn table(&self, request: LogRequest) -> Result<MemTable>;
}

/// LogsQL over such a table.
pub(crate) fn logsql_over(table: Arc<dyn Table>, engine: Arc<QueryEngine>) -> LogsqlEngine {
    let tables = Arc::new(Tables(table));
    LogsqlEngine::new(Arc::<Tables>::clone(&tables), tables, engine)
}

#[derive(Debug)]
struct Tables(Arc<dyn Table>);

/// A snapshot without streams.
#[derive(Debug)]
struct Nothing;

#[async_trait]
impl LogSnapshot for Nothing {
    async fn streams(
        &self,
        _: &Access,
        _: &StreamSelector,
        _: (i64, i64),
        _: &Arc<ReadStats>,
    ) -> Result<Vec<StreamInfo>> {
        Ok(Vec::new())
    }
}

impl LogSource for Tables {
    fn snapshot(&self) -> Arc<dyn LogSnapshot> {
        Arc::new(Nothing)
    }
}

impl LogTables for Tables {
    fn logs(
        &self,
        _: &Arc<dyn LogSnapshot>,
        _: &Access,
        request: LogRequest,
        _: &ReadStats,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(Arc::new(self.0.table(request)?))
    }
}

impl Table for Memory {
    fn table(&self, request: LogRequest) -> Result<MemTable> {
        let fields = request
            .schema()
            .fields()
            .iter()
            .map(|f| Field::clone(f).with_nullable(f.name() != REST))
            .collect::<Vec<_>>();
        let schema = Arc::new(Schema::new(fields));
        let rows: Vec<&Row> = self.rows.iter().filter(|row| matches(&request.filter, row)).collect();
        let batches = rows
            .chunks(self.batch_rows.max(1))
            .map(|rows| {
                if request.form == LogForm::Counted {
                    return counted(&schema, rows, &request);
                }
                if let LogForm::ValueCounts(limits) = request.form {
                    return value_counts(limits, rows);
                }
                if request.form == LogForm::FieldCounts {
                    return field_counts(&schema, rows);
                }
                let columns = schema.fields().iter().map(|field| column(field, rows, &request)).collect();
                let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
                RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)
            })
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|e| Error::internal(e.to_string()))?;
        MemTable::try_new(schema, vec![batches]).map_err(|e| Error::internal(e.to_string()))
    }
}

/// One row for neighbours with the same values; no count says one.
fn counted(
    schema: &Arc<Schema>,
    rows: &[&Row],
    request: &LogRequest,
) -> std::result::Result<RecordBatch, arrow::error::ArrowError> {
    let values = |row: &Row| -> Vec<String> { request.columns.iter().map(|c| get(row, &c.name).to_owned()).collect() };
    let runs: Vec<&[&Row]> = rows.chunk_by(|a, b| values(a) == values(b)).collect();
    let first: Vec<&Row> = runs.iter().map(|run| run[0]).collect();
    let fields = schema.fields().iter().take(request.columns.len());
    let mut columns: Vec<ArrayRef> = fields.map(|field| column(field, &first, request)).collect();
    let counts = runs.iter().map(|run| Some(run.len() as u64).filter(|n| *n > 1));
    columns.push(Arc::new(counts.collect::<UInt64Array>()));
    RecordBatch::try_new(Arc::clone(schema), columns)
}

/// How many of the rows have each field.
fn field_counts(schema: &Arc<Schema>, rows: &[&Row]) -> std::result::Result<RecordBatch, arrow::error::ArrowError> {
    let mut counts: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    for (name, _) in rows.iter().flat_map(|row| row.iter()).filter(|(_, value)| !value.is_empty()) {
        *counts.entry(name).or_default() += 1;
    }
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(counts.keys()));
    RecordBatch::try_new(Arc::clone(schema), vec![names, Arc::new(UInt64Array::from_iter_values(counts.into_values()))])
}

/// How many of the rows have each value of each field.
fn value_counts(limits: ValueLimits, rows: &[&Row]) -> std::result::Result<RecordBatch, arrow::error::ArrowError> {
    let mut counts = ValueCounts::new(limits);
    counts.rows = rows.len() as u64;
    for (name, value) in rows.iter().flat_map(|row| row.iter()) {
        let field = counts.field(name);
        counts.add(field, value, 1);
    }
    counts.to_batch().map_err(|e| arrow::error::ArrowError::ExternalError(Box::new(e)))
}

fn get<'a>(row: &'a Row, name: &str) -> &'a str {
    row.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
}

fn column(field: &Field, rows: &[&Row], request: &LogRequest) -> ArrayRef {
    match (field.name().as_str(), field.data_type()) {
        (REST, _) => rest(field, rows, request),
        (TIME, _) => Arc::new(
            rows.iter()
                .map(|row| parse_rfc3339(get(row, TIME)))
                .collect::<TimestampNanosecondArray>()
                .with_timezone("UTC"),
        ),
        (name, DataType::Struct(_)) => {
            let values: Vec<&str> = rows.iter().map(|row| get(row, name)).collect();
            stored(&values, name).into_array(rows.len())
        }
        (name, _) => Arc::new(
            rows.iter().map(|row| Some(get(row, name)).filter(|value| !value.is_empty())).collect::<StringViewArray>(),
        ),
    }
}

/// Values in the most special form that gives each of them back.
fn stored(values: &[&str], name: &str) -> StoredField {
    fn all<T: Clone>(
        values: &[&str],
        read: impl Fn(&str) -> Option<T>,
        write: fn(T, &mut String),
    ) -> Option<Vec<Option<T>>> {
        let value = |text: &&str| {
            if text.is_empty() {
                return Some(None);
            }
            let value = read(text)?;
            let mut back = String::new();
            write(value.clone(), &mut back);
            (back == **text).then_some(Some(value))
        };
        values.iter().map(value).collect()
    }
    if let Some(ints) = all(values, |text| text.parse().ok(), write_int) {
        return StoredField::Int(ints.into());
    }
    if let Some(floats) = all(values, |text| text.parse().ok().filter(|n: &f64| n.is_finite()), write_float) {
        return StoredField::Float(floats.into());
    }
    let options = values.iter().map(|value| Some(*value).filter(|value| !value.is_empty()));
    if name.len().is_multiple_of(2) {
        StoredField::Text(options.collect())
    } else {
        StoredField::Coded(options.collect())
    }
}

fn rest(field: &Field, rows: &[&Row], request: &LogRequest) -> ArrayRef {
    let own = |name: &str| request.columns.iter().any(|c| c.name == name) || [TIME, STREAM, STREAM_ID].contains(&name);
    let (mut names, mut values, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let before = names.len();
        for (name, value) in row.iter().filter(|(name, value)| !own(name) && !value.is_empty()) {
            names.push(name.as_str());
            values.push(value.as_str());
        }
        lengths.push(names.len() - before);
    }
    let DataType::Map(entries, sorted) = field.data_type() else { panic!("the map is a map") };
    let DataType::Struct(parts) = entries.data_type() else { panic!("entries are pairs") };
    let columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from(names)), Arc::new(StringArray::from(values))];
    let entries_array = StructArray::new(parts.clone(), columns, None);
    let offsets = OffsetBuffer::from_lengths(lengths);
    Arc::new(MapArray::new(Arc::clone(entries), offsets, entries_array, None, *sorted))
}

fn matches(filter: &LogFilter, row: &Row) -> bool {
    match filter {
        LogFilter::All => true,
        LogFilter::And(all) => all.iter().all(|one| matches(one, row)),
        LogFilter::Or(any) => any.iter().any(|one| matches(one, row)),
        LogFilter::Not(one) => !matches(one, row),
        LogFilter::Value { field: FieldPattern::Name(name), matcher } => matcher.matches(get(row, name)),
        LogFilter::Value { field: FieldPattern::Prefix(prefix), matcher } => {
            row.iter().any(|(name, value)| name.starts_with(prefix) && matcher.matches(value))
        }
        LogFilter::Row { fields, matcher } => {
            let values: Vec<&str> = fields.iter().map(|name| get(row, name)).collect();
            matcher.matches(&values)
        }
        LogFilter::Time(ranges) => {
            parse_rfc3339(get(row, TIME)).is_some_and(|ns| ranges.iter().any(|(min, max)| (*min..=*max).contains(&ns)))
        }
        LogFilter::TimeOf(predicate) => parse_rfc3339(get(row, TIME)).is_some_and(|ns| predicate.matches(ns)),
        LogFilter::None | LogFilter::Stream(_) | LogFilter::StreamIds(_) => false,
    }
}
