//! Writes a log part: row groups in sort key order, then the streams, the index and the footer that describes
//! everything.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, DictionaryArray, MapArray, RecordBatch, StringArray,
    TimestampNanosecondArray, UInt8Array, UInt32Array, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, UInt32Type};
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use quiver_types::logs::{OBSERVED_TIME, SEVERITY_NUMBER, TIME};
use quiver_types::tables::columns::{map, nanos};
use quiver_types::tables::logs as table;
use xxhash_rust::xxh3::xxh3_64;

use super::super::bloom::{Words, hash};
use super::super::file::{ColumnEncodings, Draft, PartFile, codec, column, properties};
use super::super::{FileMeta, NameFilter, PartMeta, PartSpec, SERVICES_MAX};
use super::columns::{COLUMNS_KEY, ColumnKind, LogColumns, Optional};
use super::labels_file;
use super::streams_file::Streams;
use crate::error::{Context, Error, Result};
use crate::memtable::log_streams::LiveStream;

/// Rows per row group.
pub(crate) const GROUP_ROWS: usize = 128 * 1024;
/// Rows that one word filter of a text column covers.
const INDEX_ROWS: usize = 8192;
const PAGE_ROWS: usize = 8192;
/// Size limit of a page; with long texts it has fewer rows, so that reading one row does not cost a megabyte.
const PAGE_BYTES: usize = 96 * 1024;
/// With more field names than this the catalog gets no list, and every name counts as possibly present.
const NAMES_MAX: usize = 16 * 1024;

/// The rows of one row group, in the order of the sort key.
#[derive(Debug)]
pub(crate) struct GroupColumns {
    pub(crate) time: Vec<i64>,
    /// Runs of rows: the stream with its service, and the number of rows.
    pub(crate) streams: Vec<(Arc<LiveStream>, usize)>,
    /// Severity of each row, 0 for none; empty if no row of the part has one.
    pub(crate) severity: Vec<u8>,
    /// Observed time of each row, 0 for none; empty if no row of the part has one.
    pub(crate) observed: Vec<i64>,
    /// One array for each column of the plan.
    pub(crate) columns: Vec<ArrayRef>,
    /// Fields without a column; `None` if no row of the part has any.
    pub(crate) overflow: Option<MapArray>,
}

/// Writes a log part. If dropped before [`LogPartWriter::finish`], it deletes its files.
pub(crate) struct LogPartWriter {
    plan: LogColumns,
    schema: SchemaRef,
    rows: PartFile,
    index: Index,
    streams: Streams,
    with: Optional,
    range: (i64, i64),
    /// Names of all fields; `None` if there are too many to list.
    names: Option<BTreeSet<String>>,
    draft: Draft,
}

impl std::fmt::Debug for LogPartWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogPartWriter")
            .field("spec", &self.draft.spec)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl LogPartWriter {
    /// Starts a part.
    pub(crate) fn new(root: &Path, spec: PartSpec, plan: LogColumns, with: Optional) -> Result<Self> {
        let mut draft = Draft::new(root, spec);
        let written = schema(&plan, with, true);
        let schema = schema(&plan, with, false);
        let properties = rows_properties(&draft.spec, &plan);
        let rows = PartFile::create_as(&mut draft, "rows", &schema, &written, properties)?;
        let index = Index::new(&plan);
        let names = plan.columns.iter().map(|c| c.name.clone()).chain(plan.constants.keys().cloned());
        let names = names.collect::<Vec<_>>().into_iter();
        Ok(Self {
            schema,
            rows,
            index,
            streams: Streams::default(),
            with,
            range: (i64::MAX, i64::MIN),
            names: Some(names.collect()),
            draft,
            plan,
        })
    }

    /// Number of rows so far.
    pub(crate) fn len(&self) -> u64 {
        self.rows.rows()
    }

    /// Appends a row group.
    pub(crate) fn write(&mut self, group: GroupColumns) -> Result<()> {
        let first_row = self.rows.rows();
        let mut numbers = Vec::with_capacity(group.time.len());
        let mut services: Vec<&str> = Vec::new();
        let mut service_codes = Vec::with_capacity(group.time.len());
        for (stream, rows) in &group.streams {
            let at = numbers.len();
            let number = self.streams.add(stream, first_row + at as u64, &group.time[at..at + rows]);
            numbers.resize(at + rows, number);
            let code = services.iter().position(|s| **s == *stream.service).unwrap_or_else(|| {
                services.push(&stream.service);
                services.len() - 1
            });
            service_codes.resize(at + rows, code as u32);
        }
        for &time in &group.time {
            self.range = (self.range.0.min(time), self.range.1.max(time));
        }
        let services: ArrayRef = Arc::new(StringArray::from_iter_values(services));
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(TimestampNanosecondArray::from(group.time).with_timezone("UTC")),
            Arc::new(UInt32Array::from(numbers)),
            Arc::new(DictionaryArray::<UInt32Type>::new(service_codes.into(), services)),
        ];
        if self.with.severity {
            let severity = group.severity.iter().map(|&s| (s > 0).then_some(s));
            columns.push(Arc::new(severity.collect::<UInt8Array>()));
        }
        if self.with.observed {
            let observed = group.observed.iter().map(|&o| (o != 0).then_some(o));
            let observed: TimestampNanosecondArray = observed.collect();
            columns.push(Arc::new(observed.with_timezone("UTC")));
        }
        columns.extend(group.columns.iter().cloned());
        if self.with.overflow {
            let overflow = group.overflow.ok_or_else(|| Error::internal("a row group without its overflow map"))?;
            self.note_names(&overflow);
            columns.push(Arc::new(overflow));
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).internal("cannot build a row group")?;
        for (at, array) in group.columns.iter().enumerate() {
            let plan = &mut self.plan.columns[at];
            plan.of_stream = (plan.of_stream || first_row == 0) && are_labels(&plan.name, array, &group.streams);
            plan.in_groups.push((array.len() - array.null_count()) as u64);
            self.index.add(at, first_row, array)?;
        }
        self.rows.write(&batch)?;
        self.rows.end_group()
    }

    /// Collects the names of fields without a column.
    fn note_names(&mut self, overflow: &MapArray) {
        let keys = overflow.keys().as_string::<i32>();
        for name in keys.iter().flatten() {
            let Some(names) = &mut self.names else { return };
            if !names.contains(name) {
                names.insert(name.to_owned());
                if names.len() > NAMES_MAX {
                    self.names = None;
                }
            }
        }
    }

    /// Finishes all files, and syncs them and their directories.
    ///
    /// # Errors
    /// Invalid: no rows were written.
    pub(crate) fn finish(mut self) -> Result<PartMeta> {
        if self.rows.rows() == 0 {
            return Err(Error::invalid("a part without rows"));
        }
        let draft = &mut self.draft;
        let range = (table::millis_of(self.range.0), table::millis_of(self.range.1));
        let mut files = vec![self.streams.write(draft, range)?];
        files.extend(self.index.write(draft, range)?);
        files.extend(labels_file::write(draft, self.streams.all(), range)?);
        let mut services: BTreeSet<String> = BTreeSet::new();
        for stream in self.streams.all() {
            if services.len() <= SERVICES_MAX {
                services.insert(stream.service.to_string());
            }
        }
        let names = self.names.take().map_or(NameFilter::Bloom(Vec::new()), |names| {
            NameFilter::of(&names.iter().map(String::as_str).collect::<Vec<_>>())
        });
        let spec = &draft.spec;
        let mut meta = PartMeta {
            series: self.streams.all().len() as u64,
            names,
            files,
            ..spec.describe(range, self.rows.rows(), services.into_iter().collect())
        };
        let plan = serde_json::to_string(&self.plan).internal("cannot write the columns of a part")?;
        self.rows.put(COLUMNS_KEY, plan);
        self.rows.put_meta(&meta)?;
        meta.files.insert(0, self.rows.finish(spec, range, table::TABLE.sort_key)?);
        meta.bytes = meta.files.iter().map(|f| f.bytes).sum();
        draft.keep();
        Ok(meta)
    }
}

/// Tells whether the value in each row equals the label of this name of the row's stream (or both are absent).
fn are_labels(name: &str, array: &ArrayRef, streams: &[(Arc<LiveStream>, usize)]) -> bool {
    let Some(texts) = array.as_string_view_opt() else { return false };
    let mut next = 0;
    streams.iter().all(|(stream, rows)| {
        let label = stream.labels.get(name);
        let mut own = next..next + rows;
        next = own.end;
        own.all(|row| label == if texts.is_null(row) { "" } else { texts.value(row) })
    })
}

/// The columns of `.rows`: with the types that the writer is given, or (`of_file`) with the types declared in the file.
fn schema(plan: &LogColumns, with: Optional, of_file: bool) -> SchemaRef {
    let data_type = |kind: ColumnKind| match kind {
        ColumnKind::Text if of_file => DataType::Utf8,
        ColumnKind::Coded if of_file => table::dictionary(),
        kind => array_type(kind),
    };
    let mut fields = vec![
        nanos(TIME),
        Field::new(table::STREAM_NUMBER, DataType::UInt32, false),
        Field::new(table::SERVICE, table::dictionary(), false),
    ];
    if with.severity {
        fields.push(Field::new(SEVERITY_NUMBER, DataType::UInt8, true));
    }
    if with.observed {
        fields.push(nanos(OBSERVED_TIME).with_nullable(true));
    }
    fields.extend(plan.columns.iter().map(|c| Field::new(&c.name, data_type(c.kind), true)));
    if with.overflow {
        fields.push(Field::new(table::FIELDS, map(), false));
    }
    Arc::new(Schema::new(fields))
}

/// The array type that the writer expects for a kind of column.
pub(crate) fn array_type(kind: ColumnKind) -> DataType {
    match kind {
        ColumnKind::Text | ColumnKind::Coded => DataType::Utf8View,
        ColumnKind::Int => DataType::Int64,
        ColumnKind::Float => DataType::Float64,
        ColumnKind::Ipv4 => DataType::UInt32,
        ColumnKind::Time(_) => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
        ColumnKind::Hex(bytes) => DataType::FixedSizeBinary(i32::from(bytes)),
    }
}

fn rows_properties(spec: &PartSpec, plan: &LogColumns) -> WriterProperties {
    let mut p = properties()
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_compression(codec(spec.compression))
        .delta(&[TIME])
        .page_statistics(&[TIME])
        .page_statistics(&[table::STREAM_NUMBER]);
    for plan in &plan.columns {
        let path = column(&[&plan.name]);
        p = match plan.kind {
            ColumnKind::Text => p.set_column_dictionary_enabled(path, false),
            ColumnKind::Coded => p.set_column_dictionary_enabled(path, true),
            // With few distinct values a dictionary is smaller; the writer falls back to plain values if it grows too
            // large.
            ColumnKind::Int => p.set_column_statistics_enabled(path, EnabledStatistics::Page),
            ColumnKind::Time(_) => p.delta(&[&plan.name]).page_statistics(&[&plan.name]),
            ColumnKind::Ipv4 | ColumnKind::Float => p.page_statistics(&[&plan.name]),
            ColumnKind::Hex(_) => {
                let p = p.set_column_dictionary_enabled(path.clone(), false);
                p.set_column_compression(path, Compression::UNCOMPRESSED)
            }
        };
    }
    p.build()
}

/// First row, number of rows, filter of their words.
type WordFilter = (u64, u64, Vec<u8>);

/// Builds the word filters of the columns.
#[derive(Debug)]
struct Index {
    /// For each column: name, kind, and the filters so far.
    columns: Vec<(String, ColumnKind, Vec<WordFilter>)>,
    words: Words,
}

impl Index {
    fn new(plan: &LogColumns) -> Self {
        let columns = plan.columns.iter().map(|c| (c.name.clone(), c.kind, Vec::new())).collect();
        Self { columns, words: Words::default() }
    }

    /// Adds the words of a column of a row group.
    fn add(&mut self, column: usize, first_row: u64, array: &ArrayRef) -> Result<()> {
        let Self { columns, words } = self;
        let (_, kind, filters) = &mut columns[column];
        let step = match kind {
            ColumnKind::Text | ColumnKind::Hex(_) => INDEX_ROWS,
            ColumnKind::Coded => array.len().max(1),
            _ => return Ok(()),
        };
        let mut text = String::new();
        for start in (0..array.len()).step_by(step) {
            let rows = step.min(array.len() - start);
            match array.data_type() {
                DataType::Utf8View => {
                    let array = array.as_string_view();
                    let coded = *kind == ColumnKind::Coded;
                    let mut known: HashSet<u64, FixedState> = HashSet::default();
                    let mut last = "";
                    for i in (start..start + rows).filter(|&i| !array.is_null(i)) {
                        let value = array.value(i);
                        if coded {
                            // Each of the few values of a coded column is split into words only once; equal values
                            // mostly come in runs.
                            if value == last || !known.insert(xxh3_64(value.as_bytes())) {
                                continue;
                            }
                            last = value;
                        }
                        words.add(value);
                    }
                }
                DataType::FixedSizeBinary(_) => {
                    let array = array.as_fixed_size_binary();
                    for i in (start..start + rows).filter(|&i| !array.is_null(i)) {
                        text.clear();
                        crate::logs::typed_text::write_hex(array.value(i), &mut text);
                        // A string of hex digits is one word.
                        words.add_hash(hash(&text));
                    }
                }
                other => return Err(Error::internal(format!("no index of a column of type {other}"))),
            }
            filters.push((first_row + start as u64, rows as u64, words.finish()));
        }
        Ok(())
    }

    fn write(&self, draft: &mut Draft, range: (i64, i64)) -> Result<Option<FileMeta>> {
        if self.columns.iter().all(|c| c.2.is_empty()) {
            return Ok(None);
        }
        let p = properties()
            .set_compression(Compression::UNCOMPRESSED)
            .set_max_row_group_row_count(Some(1 << 20))
            .set_data_page_row_count_limit(64)
            .set_write_batch_size(16)
            .set_data_page_size_limit(256 * 1024)
            .set_column_dictionary_enabled(column(&["payload"]), false)
            .page_statistics(&["column"]);
        let mut file = PartFile::create(draft, "index", table::index(), p.build())?;
        for (name, _, filters) in self.columns.iter().filter(|c| !c.2.is_empty()) {
            let mut payloads = BinaryBuilder::new();
            for f in filters {
                payloads.append_value(&f.2);
            }
            let columns: Vec<ArrayRef> = vec![
                Arc::new(StringArray::from_iter_values(filters.iter().map(|_| name))),
                Arc::new(StringArray::from_iter_values(filters.iter().map(|_| "bloom"))),
                Arc::new(UInt64Array::from_iter_values(filters.iter().map(|f| f.0))),
                Arc::new(UInt64Array::from_iter_values(filters.iter().map(|f| f.1))),
                Arc::new(payloads.finish()),
            ];
            file.write(&RecordBatch::try_new(table::index(), columns).internal("cannot build a batch of the index")?)?;
        }
        file.finish(&draft.spec, range, &["column", "kind", "first_row"]).map(Some)
    }
}
