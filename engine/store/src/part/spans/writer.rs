//! Writes parts of spans: sorts spans, and writes row groups with their index.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeBinaryArray, RecordBatch, UInt8Array, UInt32Array};
use arrow::datatypes::{DataType, Int64Type, UInt8Type, UInt32Type};
use parquet::basic::Compression;
use parquet::file::properties::EnabledStatistics;
use quiver_types::SpansBatch;
use quiver_types::spans::{FIRST, RollupBuilder, RollupRow, first_received};
use quiver_types::tables::spans::{self as table, minute_of, trace_hash};

use super::chunks::{CHUNK_ROWS, Weights};
use super::columns::{Builder, GatheredRows};
use super::dedicated_columns::OwnColumn;
use super::filters::{FILTERS, FilterWriter};
use super::index::SpanIndex;
use super::keys::{KEYS, SpanKeys};
use super::longest_durations::{SLOWEST, SlowestWriter};
use super::{MINUTES, SpanGroup, rollup, traces};
use crate::error::{Context, Result};
use crate::part::file::{ColumnEncodings, Draft, PartFile, codec, column, properties};
use crate::part::{Part, PartCompression, PartMeta, PartSpec};

/// Rows per page.
const PAGE_ROWS: usize = 2048;
/// Entries per page of the index.
const INDEX_PAGE_ROWS: usize = 4096;
/// Largest dictionary of a column, in bytes.
const DICTIONARY_BYTES: usize = 32 * 1024;
/// Rows per row group.
pub(crate) const GROUP_ROWS: usize = 64 * 1024;

/// Rows of batches, as pairs of batch and row.
pub(crate) struct SortedRows<'b> {
    /// The batches. Rows that replace an earlier report are marked in them as first reports.
    pub(crate) batches: Cow<'b, [SpansBatch]>,
    pub(crate) rows: Vec<(u32, u32)>,
}

/// Columns of a batch that tell rows apart.
struct Keys<'b> {
    ids: &'b FixedSizeBinaryArray,
    span_ids: &'b FixedSizeBinaryArray,
    starts: &'b [i64],
    received: &'b [i64],
    marks: &'b [u8],
}

impl<'b> Keys<'b> {
    fn of(batch: &'b SpansBatch) -> Self {
        Self {
            ids: batch.spans["trace_id"].as_fixed_size_binary(),
            span_ids: batch.spans["span_id"].as_fixed_size_binary(),
            starts: batch.spans["start"].as_primitive::<Int64Type>().values(),
            received: batch.spans["received"].as_primitive::<Int64Type>().values(),
            marks: batch.spans["marks"].as_primitive::<UInt8Type>().values(),
        }
    }
}

/// A row, and what it is sorted by. The id of the trace is a number: with this many rows, the cost of a comparison matters.
#[derive(Clone, Copy)]
struct KeyedRow {
    minute: i64,
    trace: u128,
    start: i64,
    batch: u32,
    row: u32,
}

/// The rows of batches in table order.
fn in_table_order(keys: &[Keys<'_>], keep: impl Fn(i64) -> bool) -> Vec<KeyedRow> {
    let mut rows: Vec<KeyedRow> = Vec::with_capacity(keys.iter().map(|k| k.starts.len()).sum());
    for (batch, k) in keys.iter().enumerate() {
        for (row, &start) in k.starts.iter().enumerate().filter(|(_, s)| keep(**s)) {
            let trace = u128::from_be_bytes(k.ids.value(row).try_into().unwrap_or_default());
            rows.push(KeyedRow { minute: minute_of(start), trace, start, batch: batch as u32, row: row as u32 });
        }
    }
    let span_id = |r: &KeyedRow| keys[r.batch as usize].span_ids.value(r.row as usize);
    // Spans arrive roughly by minute, and the spans of a minute are few enough to be sorted in the CPU cache.
    rows.sort_by_key(|row| row.minute);
    for minute in rows.chunk_by_mut(|a, b| a.minute == b.minute) {
        minute.sort_by(|a, b| (a.trace, a.start).cmp(&(b.trace, b.start)).then_with(|| span_id(a).cmp(span_id(b))));
    }
    rows
}

/// Sorts the rows of batches in table order; reports of the same span stay in batch order. Of rows that differ only in
/// their received time, the first is kept. But if another report of the same side of the span was received after it,
/// the row received last takes its place: the latest report wins, and the call still counts as the first one's.
pub(crate) fn sorted(batches: &[SpansBatch], keep: impl Fn(i64) -> bool) -> Result<SortedRows<'_>> {
    let keys: Vec<Keys<'_>> = batches.iter().map(Keys::of).collect();
    let rows = in_table_order(&keys, keep);
    let at = |(batch, row): (u32, u32)| (&batches[batch as usize], row as usize);
    let mut out: Vec<(u32, u32)> = Vec::with_capacity(rows.len());
    let (mut firsts, mut group_start) = (BTreeSet::<usize>::new(), 0);
    for (n, row) in rows.iter().enumerate() {
        let (k, i) = (&keys[row.batch as usize], row.row as usize);
        let same_span = |other: &(u32, u32)| {
            let (o, j) = (&keys[other.0 as usize], other.1 as usize);
            o.starts[j] == row.start
                && o.ids.value(j) == row.trace.to_be_bytes()
                && o.span_ids.value(j) == k.span_ids.value(i)
        };
        if n == 0 || !out.last().is_some_and(same_span) {
            group_start = out.len();
        }
        let here = (row.batch, row.row);
        let known = out[group_start..].iter().rposition(|other| equal_but_received(at(*other), at(here)));
        let Some(known) = known.map(|known| group_start + known) else {
            out.push(here);
            continue;
        };
        let kind = |row: (u32, u32)| {
            let (batch, row) = at(row);
            batch.spans["kind"].as_primitive::<UInt8Type>().value(row)
        };
        let received = |(batch, row): (u32, u32)| keys[batch as usize].received[row as usize];
        let is_marked = |(batch, row): (u32, u32)| keys[batch as usize].marks[row as usize] & FIRST != 0;
        let first_of = |n: usize| match out[n] {
            _ if firsts.contains(&n) => i64::MIN,
            (batch, row) => first_received(received((batch, row)), keys[batch as usize].marks[row as usize]),
        };
        let (mut is_first, mut later) = (true, is_marked(here));
        for n in (group_start..out.len()).filter(|n| *n != known && kind(out[*n]) == kind(here)) {
            is_first &= first_of(n) >= first_of(known);
            later |= received(out[n]) >= received(out[known]);
        }
        if later && received(here) > received(out[known]) {
            if is_first || is_marked(here) {
                firsts.insert(known);
            }
            out[known] = here;
        }
    }
    let batches = marked(batches, &out, &firsts)?;
    Ok(SortedRows { batches, rows: out })
}

/// Marks rows as first reports; copies the batches for that.
fn marked<'b>(
    batches: &'b [SpansBatch],
    rows: &[(u32, u32)],
    firsts: &BTreeSet<usize>,
) -> Result<Cow<'b, [SpansBatch]>> {
    if firsts.is_empty() {
        return Ok(Cow::Borrowed(batches));
    }
    let mut all = batches.to_vec();
    let mut firsts: Vec<(u32, u32)> = firsts.iter().map(|n| rows[*n]).collect();
    firsts.sort_unstable();
    for of_batch in firsts.chunk_by(|a, b| a.0 == b.0) {
        let batch = &mut all[of_batch[0].0 as usize];
        let mut marks = batch.spans["marks"].as_primitive::<UInt8Type>().values().to_vec();
        for (_, row) in of_batch {
            marks[*row as usize] |= FIRST;
        }
        let failed = "cannot mark spans";
        let at = batch.spans.schema_ref().index_of("marks").internal(failed)?;
        let mut columns = batch.spans.columns().to_vec();
        columns[at] = Arc::new(UInt8Array::from(marks));
        batch.spans = RecordBatch::try_new(batch.spans.schema(), columns).internal(failed)?;
    }
    Ok(Cow::Owned(all))
}

/// Tells whether rows of two batches are the same span, sent twice: equal except for the received time.
pub(crate) fn equal_but_received((a, i): (&SpansBatch, usize), (b, j): (&SpansBatch, usize)) -> bool {
    let context =
        |batch: &SpansBatch, row: usize| batch.spans["context"].as_primitive::<UInt32Type>().value(row) as usize;
    let contexts = || {
        let columns = a.contexts.columns().iter().zip(b.contexts.columns());
        let (i, j) = (context(a, i), context(b, j));
        columns.into_iter().all(|(x, y)| equal_values(x, i, y, j))
    };
    let schema = a.spans.schema_ref();
    let own = schema.fields().iter().zip(a.spans.columns().iter().zip(b.spans.columns()));
    let own = own.filter(|(field, _)| !matches!(field.name().as_str(), "received" | "context" | "marks"));
    // The mark `FIRST` tells which report came first; it is not part of the content.
    let marks = |batch: &SpansBatch, row: usize| batch.spans["marks"].as_primitive::<UInt8Type>().value(row) & !FIRST;
    own.into_iter().all(|(_, (x, y))| equal_values(x, i, y, j)) && marks(a, i) == marks(b, j) && contexts()
}

fn equal_values(a: &ArrayRef, i: usize, b: &ArrayRef, j: usize) -> bool {
    match a.data_type() {
        _ if a.data_type() != b.data_type() => false,
        DataType::Utf8 => a.as_string::<i32>().value(i) == b.as_string::<i32>().value(j),
        DataType::Binary => a.as_binary::<i32>().value(i) == b.as_binary::<i32>().value(j),
        DataType::FixedSizeBinary(_) => a.as_fixed_size_binary().value(i) == b.as_fixed_size_binary().value(j),
        DataType::Int64 => a.as_primitive::<Int64Type>().value(i) == b.as_primitive::<Int64Type>().value(j),
        _ => a.slice(i, 1).to_data() == b.slice(j, 1).to_data(),
    }
}

/// The roll-up of the rows of batches, which may be in any order.
pub(crate) fn roll_up(batches: &[SpansBatch]) -> Result<Vec<RollupRow>> {
    let mut rollup = RollupBuilder::in_order();
    let sorted = sorted(batches, |_| true)?;
    for chunk in sorted.rows.chunks(CHUNK_ROWS) {
        GatheredRows::of(&sorted.batches, chunk)?.roll_up(&mut rollup)?;
    }
    Ok(rollup.rows(|_| true))
}

/// Writes one part; rows must come in the order of the table.
pub(crate) struct SpanPartWriter {
    own: Vec<OwnColumn>,
    file: PartFile,
    draft: Draft,
    group_rows: usize,
    /// A row group with so many encoded bytes is ended.
    group_bytes: usize,
    starts: (i64, i64),
    services: BTreeSet<String>,
    traces: Vec<(u32, u32, u32)>,
    last_trace: [u8; 16],
    minutes: Vec<(i64, u64)>,
    /// `None` if the caller provides the roll-up.
    rollup: Option<RollupBuilder>,
    keys: SpanKeys,
    filters: FilterWriter,
    slowest: SlowestWriter,
    services_all: bool,
}

impl SpanPartWriter {
    /// Starts a part. With `roll_up`, its roll-up is built from the rows pushed; otherwise it is given at the end.
    pub(crate) fn create(root: &Path, spec: PartSpec, own: Vec<OwnColumn>, roll_up: bool) -> Result<Self> {
        let mut draft = Draft::new(root, spec);
        let schema = Builder::new(&own).schema();
        let mut p = properties()
            // A lookup opens every column for a few rows, and zstd contexts would cost more than they save here.
            .set_compression(codec(PartCompression::Fresh))
            .set_data_page_row_count_limit(PAGE_ROWS)
            .set_write_batch_size(PAGE_ROWS)
            .delta(&["start_time"])
            .delta(&["duration"])
            .delta(&["__q_received"])
            // Mostly the same number in all rows; a dictionary would hash each of them.
            .delta(&["flags"])
            .delta(&["dropped_attributes"])
            .delta(&["dropped_events"])
            .delta(&["dropped_links"])
            .delta(&["__q_marks"])
            .page_statistics(&["start_time"])
            // A lookup reads the dictionary of each column for a few rows, so columns that need a large one do without.
            .set_dictionary_page_size_limit(DICTIONARY_BYTES);
        // These do not compress.
        for plain in ["span_id", "start_time", "duration"] {
            p = p.set_column_compression(column(&[plain]), Compression::UNCOMPRESSED);
        }
        for id in ["trace_id", "span_id", "parent_span_id"] {
            p = p.set_column_dictionary_enabled(column(&[id]), false);
        }
        for list in ["events", "links"] {
            p = p.set_column_statistics_enabled(column(&[list]), EnabledStatistics::None);
        }
        let file = PartFile::create(&mut draft, "rows", schema, p.build())?;
        Ok(Self {
            own,
            file,
            draft,
            group_rows: 0,
            group_bytes: usize::MAX,
            starts: (i64::MAX, i64::MIN),
            services: BTreeSet::new(),
            traces: Vec::new(),
            last_trace: [0; 16],
            minutes: Vec::new(),
            rollup: roll_up.then(RollupBuilder::in_order),
            keys: SpanKeys::none(),
            filters: FilterWriter::default(),
            slowest: SlowestWriter::default(),
            services_all: false,
        })
    }

    /// Ends row groups that have so many encoded bytes, which are in memory until then, even if they have few rows.
    pub(crate) fn with_group_bytes(mut self, bytes: usize) -> Self {
        self.group_bytes = bytes;
        self
    }

    /// Rows written so far.
    pub(crate) fn rows(&self) -> u64 {
        self.file.rows()
    }

    /// Appends rows of batches.
    pub(crate) fn push(&mut self, batches: &[SpansBatch], rows: &[(u32, u32)]) -> Result<()> {
        let weights = Weights::of(batches);
        let mut rest = rows;
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at(weights.rows_at_once(rest).min(GROUP_ROWS - self.group_rows));
            rest = later;
            let gathered = GatheredRows::of(batches, chunk)?;
            if let Some(rollup) = &mut self.rollup {
                gathered.roll_up(rollup)?;
            }
            let batch = Builder::new(&self.own).build(&gathered, &mut self.keys)?;
            let durations = batch["duration"].as_primitive::<Int64Type>().values();
            gathered.slowest(durations, &mut self.slowest, self.file.rows());
            self.note(&batch);
            self.filters.note(&batch, &self.own, self.file.rows());
            self.file.write(&batch)?;
            self.group_rows += chunk.len();
            if self.group_rows >= GROUP_ROWS || self.file.open_bytes() >= self.group_bytes {
                self.file.end_group()?;
                self.group_rows = 0;
            }
        }
        Ok(())
    }

    /// Copies an encoded row group of another part, whose columns must be a subset of this one's.
    pub(crate) async fn copy(&mut self, part: &Part, index: &SpanIndex, group: &SpanGroup) -> Result<()> {
        let first = self.file.rows();
        let leaves = self.file.leaves().to_vec();
        let columns = part.span_group_columns(group, &leaves).await?;
        let rows = group.rows.end - group.rows.start;
        self.file.append_group(rows, columns)?;
        self.group_rows = 0;
        self.starts = (self.starts.0.min(group.starts.0), self.starts.1.max(group.starts.1));
        for (minute, row) in index.minutes_in(&group.rows) {
            if self.minutes.last().is_none_or(|last| last.0 != minute) {
                self.minutes.push((minute, first + row - group.rows.start));
            }
        }
        let moved = |row: u64| (first + row - group.rows.start) as u32;
        self.traces.extend(
            index.entries_in(&group.rows).map(|(hash, rows)| (hash, moved(rows.start), (rows.end - rows.start) as u32)),
        );
        // A trace that continues after the group gets another entry for the rest.
        self.last_trace = [0; 16];
        self.services_all |= part.meta.services_all;
        self.services.extend(part.meta.services.iter().cloned());
        self.keys.unite(&index.keys);
        self.filters.copy(&index.filters, &group.rows, first);
        self.slowest.copy(&index.slowest, &group.rows, first);
        Ok(())
    }

    fn note(&mut self, batch: &RecordBatch) {
        let first = self.file.rows();
        let ids = batch["trace_id"].as_fixed_size_binary();
        let starts = batch["start_time"].as_primitive::<arrow::datatypes::TimestampNanosecondType>().values();
        for (i, &start) in starts.iter().enumerate() {
            let row = first + i as u64;
            self.starts = (self.starts.0.min(start), self.starts.1.max(start));
            if self.minutes.last().is_none_or(|last| last.0 != minute_of(start)) {
                self.minutes.push((minute_of(start), row));
                self.last_trace = [0; 16];
            }
            if ids.value(i) == self.last_trace {
                if let Some(last) = self.traces.last_mut() {
                    last.2 += 1;
                }
            } else {
                self.last_trace = ids.value(i).try_into().unwrap_or_default();
                self.traces.push((trace_hash(&self.last_trace), row as u32, 1));
            }
        }
    }

    /// The last minute that has rows.
    pub(crate) fn last_minute(&self) -> i64 {
        self.minutes.last().map_or(i64::MIN, |m| m.0)
    }

    /// Finishes the part. `Ok(None)` if no rows were written; then there is no part.
    pub(crate) fn finish(mut self) -> Result<Option<PartMeta>> {
        let rows = self.rollup.take().map(|rollup| rollup.rows(|_| true)).unwrap_or_default();
        self.finish_with(&rows)
    }

    /// Like `finish`, with the rows of the part's roll-up.
    pub(crate) fn finish_with(mut self, rollup: &[RollupRow]) -> Result<Option<PartMeta>> {
        if self.rows() == 0 {
            return Ok(None);
        }
        let range = (self.starts.0.div_euclid(1_000_000), self.starts.1.div_euclid(1_000_000));
        self.services.extend(self.slowest.services().iter().cloned());
        let index = self.write_index(range)?;
        let rollup = rollup::write(&mut self.draft, rollup, range)?;
        let traces = traces::write(&mut self.draft, &self.traces, range)?;
        let spec = &self.draft.spec;
        let mut meta = PartMeta {
            files: [Some(index), Some(rollup), traces].into_iter().flatten().collect(),
            ..spec.describe(range, self.file.rows(), self.services.into_iter().collect())
        };
        if self.services_all {
            // A part that it is made of has more than it lists.
            meta.services = Vec::new();
            meta.services_all = true;
        }
        let minutes = serde_json::to_string(&self.minutes).internal("cannot write the minutes of a part")?;
        self.file.put(MINUTES, minutes);
        self.file.put(KEYS, serde_json::to_string(&self.keys).internal("cannot write the keys of a part")?);
        self.file.put_meta(&meta)?;
        meta.files.insert(0, self.file.finish(spec, range, table::TABLE.sort_key)?);
        meta.bytes = meta.files.iter().map(|f| f.bytes).sum();
        self.draft.keep();
        Ok(Some(meta))
    }

    fn write_index(&mut self, range: (i64, i64)) -> Result<crate::part::FileMeta> {
        self.traces.sort_unstable();
        let p = properties()
            .set_compression(codec(self.draft.spec.compression))
            .delta(&["trace"])
            .delta(&["row"])
            .delta(&["rows"])
            .page_statistics(&["trace"])
            .set_data_page_row_count_limit(INDEX_PAGE_ROWS)
            .set_write_batch_size(INDEX_PAGE_ROWS)
            .build();
        let mut file = PartFile::create(&mut self.draft, "index", table::index(), p)?;
        let numbers = |get: fn(&(u32, u32, u32)) -> u32| -> ArrayRef {
            Arc::new(UInt32Array::from_iter_values(self.traces.iter().map(get)))
        };
        let columns = vec![numbers(|t| t.0), numbers(|t| t.1), numbers(|t| t.2)];
        file.write(&RecordBatch::try_new(table::index(), columns).internal("cannot build an index of traces")?)?;
        file.put(FILTERS, std::mem::take(&mut self.filters).finish()?);
        file.put(SLOWEST, std::mem::take(&mut self.slowest).finish()?);
        file.finish(&self.draft.spec, range, &["trace", "row"])
    }
}
