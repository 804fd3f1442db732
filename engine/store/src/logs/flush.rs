//! Writes the log rows of a sealed generation as parts: rows sorted by stream and time, with columns selected and typed
//! according to the values. Texts are not copied until the Parquet writer takes them.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, FixedSizeBinaryArray, Float64Array, Int64Array, MapArray, TimestampNanosecondArray, UInt32Array,
};
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer};
use arrow::util::bit_util::set_bit;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quiver_types::tables::logs::millis_of;
use quiver_types::text::EXACT_INTEGERS_MAX;
use quiver_types::time::day_of;
use xxhash_rust::xxh3::xxh3_64;

use super::output::MapWriter;
use super::typed_text;
use crate::error::{Context, Result};
use crate::memtable::log_streams::LiveStream;
use crate::memtable::logs::{LogChunk, LogsView};
use crate::memtable::string_views::{TextSources, TextViews};
use crate::part::logs::{
    ColumnKind, ColumnPlan, GROUP_ROWS, GroupColumns, LogColumns, LogPartWriter, NamePolicy, Optional, worth_codes,
};
use crate::part::{PartCompression, PartMeta, PartSpec};

/// Text bytes of a row group.
const GROUP_BYTES: usize = 64 << 20;
/// Number of values that are sampled to choose between plain and coded text.
const SAMPLE: usize = 8192;
/// Names that are counted exactly; others are counted in hash buckets.
const COUNTED_MAX: usize = 64 * 1024;
const BUCKETS: usize = 1 << 16;
/// A longer constant gets a column, because every query reads the footer.
const CONSTANT_BYTES_MAX: usize = 256;
/// Shorter strings of hex digits stay text.
const HEX_MIN: usize = 16;
/// A field without a column of its own: it goes to the overflow map.
const OVERFLOW: u32 = u32::MAX;

/// A row of a live batch, with what decides its place in the part.
#[derive(Debug, Clone, Copy)]
struct OrderedRow {
    /// Rank of its stream in the order of the part.
    stream_rank: u32,
    time: i64,
    /// Index of its batch.
    chunk: u32,
    /// Index within the batch.
    row: u32,
    /// Text bytes of its values.
    bytes: u32,
}

/// A part with at least this many rows, or bytes of text, fills whole row groups. It is written in the compressed form
/// and with the level of a compaction, so that while there are few such parts (see `compact::plan`) none of them is
/// rewritten.
const PACKED_ROWS: usize = GROUP_ROWS + GROUP_ROWS / 2;
const PACKED_BYTES: u64 = (GROUP_BYTES + GROUP_BYTES / 2) as u64;

/// Writes the rows of one day.
///
/// # Errors
/// Internal: an I/O error. Unavailable: the disk is full.
pub(crate) fn write_day(root: &Path, mut spec: PartSpec, view: &LogsView) -> Result<PartMeta> {
    let mut order = places(view, spec.day);
    if order.len() >= PACKED_ROWS || order.iter().map(|p| u64::from(p.bytes)).sum::<u64>() >= PACKED_BYTES {
        spec.level = 1;
        spec.compression = PartCompression::Compacted;
    }
    // In memory order, because what is examined here does not depend on the order.
    let mut fields = Fields::count(view, &order);
    let plan = fields.analyse(view, &order);
    let with = Optional {
        severity: order.iter().any(|p| severity(view, p) > 0),
        observed: order.iter().any(|p| observed(view, p) != 0),
        overflow: fields.overflow,
    };
    order.sort_by_key(|p| (p.stream_rank, p.time));
    let mut writer = LogPartWriter::new(root, spec, plan.clone(), with)?;
    let texts = TextSources::new(view.chunks.iter().map(|(c, _)| &c.rows.values));
    let source = GroupSource { view, plan: &plan, fields: &fields, texts, with };
    let mut rest = &order[..];
    while !rest.is_empty() {
        let (mut rows, mut bytes) = (0, 0);
        while rows < rest.len() && rows < GROUP_ROWS && bytes < GROUP_BYTES {
            bytes += rest[rows].bytes as usize;
            rows += 1;
        }
        let (now, later) = rest.split_at(rows);
        writer.write(source.group(now)?)?;
        rest = later;
    }
    writer.finish()
}

fn chunk(view: &LogsView, at: u32) -> &LogChunk {
    &view.chunks[at as usize].0
}

fn severity(view: &LogsView, place: &OrderedRow) -> u8 {
    chunk(view, place.chunk).rows.severity.as_ref().map_or(0, |s| s[place.row as usize])
}

fn observed(view: &LogsView, place: &OrderedRow) -> i64 {
    chunk(view, place.chunk).rows.observed.as_ref().map_or(0, |o| o[place.row as usize])
}

/// The rows of a day in order of arrival.
fn places(view: &LogsView, day: i32) -> Vec<OrderedRow> {
    let mut slots: Vec<u32> = (0..view.streams.len() as u32).collect();
    slots.sort_unstable_by_key(|&s| view.streams[s as usize].key());
    let mut ranks = vec![0; slots.len()];
    slots.iter().zip(0..).for_each(|(&slot, rank)| ranks[slot as usize] = rank);
    let mut out = Vec::new();
    for ((chunk, rows), at) in view.chunks.iter().zip(0..) {
        let (first, last) = (day_of(millis_of(chunk.range.0)), day_of(millis_of(chunk.range.1)));
        let ends = chunk.rows.values.value_offsets();
        for row in 0..*rows {
            let time = chunk.rows.time[row];
            if (first == day && last == day) || day_of(millis_of(time)) == day {
                let fields = chunk.rows.fields(row);
                let bytes = (ends[fields.end] - ends[fields.start]) as u32;
                let stream_rank = ranks[chunk.rows.slots[row] as usize];
                out.push(OrderedRow { stream_rank, time, chunk: at, row: row as u32, bytes });
            }
        }
    }
    out
}

/// Assigns the fields of the batches to columns.
#[derive(Debug, Default)]
struct Fields {
    /// For each batch and name, the column or [`OVERFLOW`].
    columns: Vec<Vec<u32>>,
    /// Names of the columns, with the number of rows that have them.
    names: Vec<(String, u64)>,
    /// Whether some field has no column.
    overflow: bool,
}

impl Fields {
    /// Counts names. Names too rare for a column are distinguished only by hash, so that millions of them take no
    /// memory.
    fn count(view: &LogsView, order: &[OrderedRow]) -> Self {
        let mut counts: Vec<Vec<u32>> = view.chunks.iter().map(|(c, _)| vec![0; c.rows.names_len()]).collect();
        for place in order {
            let rows = &chunk(view, place.chunk).rows;
            for field in rows.fields(place.row as usize) {
                counts[place.chunk as usize][rows.field_names[field] as usize] += 1;
            }
        }
        let policy = NamePolicy::new(order.len() as u64, GROUP_ROWS);
        let bucket = |name: &str| xxh3_64(name.as_bytes()) as usize % BUCKETS;
        let mut buckets = vec![0u64; BUCKETS];
        let each = || {
            view.chunks.iter().zip(&counts).flat_map(|((c, _), counts)| {
                c.rows.names.iter().zip(counts).filter_map(|(name, &n)| (n > 0).then_some((name?, u64::from(n))))
            })
        };
        each().for_each(|(name, n)| buckets[bucket(name)] += n);
        let mut exact: HashMap<&str, u64, FixedState> = HashMap::default();
        for (name, n) in each().filter(|(name, _)| buckets[bucket(name)] >= policy.rows_min()) {
            if let Some(count) = exact.get_mut(name) {
                *count += n;
            } else if exact.len() < COUNTED_MAX {
                exact.insert(name, n);
            }
        }
        let names = policy.choose(exact.into_iter().map(|(name, n)| (name.to_owned(), n)).collect());
        let mut fields = Self { names, ..Self::default() };
        fields.place(view, &counts);
        fields
    }

    /// Assigns a column to each name of each batch.
    fn place(&mut self, view: &LogsView, counts: &[Vec<u32>]) {
        let at: HashMap<&str, u32, FixedState> =
            self.names.iter().zip(0..).map(|((name, _), at)| (name.as_str(), at)).collect();
        let of = |name: Option<&str>| name.and_then(|n| at.get(n)).copied().unwrap_or(OVERFLOW);
        self.columns = view.chunks.iter().map(|(c, _)| c.rows.names.iter().map(of).collect()).collect();
        let lost = |(columns, counts): (&Vec<u32>, &Vec<u32>)| {
            columns.iter().zip(counts).any(|(&column, &n)| column == OVERFLOW && n > 0)
        };
        self.overflow = self.columns.iter().zip(counts).any(lost);
    }

    /// Selects the kinds of the columns. Constants get no column.
    fn analyse(&mut self, view: &LogsView, order: &[OrderedRow]) -> LogColumns {
        let mut found: Vec<Analysis> = self.names.iter().map(|_| Analysis::default()).collect();
        let stride = (order.len() / SAMPLE).max(1);
        for (i, place) in order.iter().enumerate() {
            let rows = &chunk(view, place.chunk).rows;
            for field in rows.fields(place.row as usize) {
                let column = self.columns[place.chunk as usize][rows.field_names[field] as usize];
                if column != OVERFLOW {
                    found[column as usize].see(rows.values.value(field), i % stride == 0);
                }
            }
        }
        let mut plan = LogColumns::default();
        // Maps old to new column numbers; constants have none, and are not written.
        let mut moved = vec![OVERFLOW; found.len()];
        for (at, ((name, rows), analysis)) in std::mem::take(&mut self.names).into_iter().zip(found).enumerate() {
            if let Some(value) =
                analysis.constant.clone().filter(|c| rows == order.len() as u64 && c.len() <= CONSTANT_BYTES_MAX)
            {
                moved[at] = CONSTANT;
                plan.constants.insert(name, value);
            } else {
                moved[at] = plan.columns.len() as u32;
                let kind = analysis.kind(&name);
                plan.columns.push(ColumnPlan { name, kind, rows, of_stream: false, in_groups: Vec::new() });
            }
        }
        for column in self.columns.iter_mut().flatten().filter(|c| **c != OVERFLOW) {
            *column = moved[*column as usize];
        }
        plan
    }
}

/// A field whose value is stored in the footer.
const CONSTANT: u32 = u32::MAX - 1;

/// What is known about the values of a column.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "what values of a column all are, each for itself")]
struct Analysis {
    seen: bool,
    constant: Option<String>,
    int: bool,
    float: bool,
    ipv4: bool,
    time: Option<u8>,
    no_time: bool,
    hex: Option<usize>,
    no_hex: bool,
    distinct: HashSet<u64, FixedState>,
    sampled: usize,
    buffer: String,
}

impl Default for Analysis {
    fn default() -> Self {
        Self {
            seen: false,
            constant: None,
            int: true,
            float: true,
            ipv4: true,
            time: None,
            no_time: false,
            hex: None,
            no_hex: false,
            distinct: HashSet::default(),
            sampled: 0,
            buffer: String::new(),
        }
    }
}

impl Analysis {
    fn see(&mut self, value: &str, sample: bool) {
        if !self.seen {
            self.seen = true;
            self.constant = Some(value.to_owned());
        } else if self.constant.as_deref().is_some_and(|c| c != value) {
            self.constant = None;
        }
        if sample {
            self.sampled += 1;
            self.distinct.insert(xxh3_64(value.as_bytes()));
        }
        let int = if self.int || self.float { typed_text::read_int(value) } else { None };
        self.int = self.int && int.is_some();
        // Integers that a double represents exactly can be restored as text.
        self.float = self.float
            && (int.is_some_and(|n| n.unsigned_abs() <= EXACT_INTEGERS_MAX)
                || typed_text::read_float(value, &mut self.buffer).is_some());
        self.ipv4 = self.ipv4 && typed_text::read_ipv4(value).is_some();
        if !self.no_time {
            match typed_text::read_time(value) {
                Some((_, digits)) if self.time.is_none_or(|d| d == digits) => self.time = Some(digits),
                _ => self.no_time = true,
            }
        }
        if !self.no_hex {
            let fits = value.len() >= HEX_MIN && self.hex.is_none_or(|len| len == value.len()) && value.len() <= 128;
            if fits && typed_text::is_hex(value) {
                self.hex = Some(value.len());
            } else {
                self.no_hex = true;
            }
        }
    }

    fn kind(&self, name: &str) -> ColumnKind {
        let codes = worth_codes(name, self.distinct.len(), self.sampled);
        match (self.time.filter(|_| !self.no_time), self.hex.filter(|_| !self.no_hex)) {
            _ if self.int => ColumnKind::Int,
            _ if self.float => ColumnKind::Float,
            _ if self.ipv4 => ColumnKind::Ipv4,
            (Some(digits), _) => ColumnKind::Time(digits),
            (_, Some(len)) if !codes => ColumnKind::Hex(len as u16 / 2),
            _ if codes => ColumnKind::Coded,
            _ => ColumnKind::Text,
        }
    }
}

/// A column of a row group being built.
enum Builder<'a> {
    Views(TextViews<'a>),
    Int(Vec<i64>),
    Float(Vec<f64>),
    Ipv4(Vec<u32>),
    Time(Vec<i64>),
    Hex(Vec<u8>, usize),
}

impl<'a> Builder<'a> {
    fn new(kind: ColumnKind, texts: &TextSources<'a>, rows: usize) -> Self {
        match kind {
            ColumnKind::Text => Self::Views(TextViews::new(texts.clone(), rows)),
            ColumnKind::Coded => Self::Views(TextViews::of_few(texts.clone(), rows)),
            ColumnKind::Int => Self::Int(vec![0; rows]),
            ColumnKind::Float => Self::Float(vec![0.0; rows]),
            ColumnKind::Ipv4 => Self::Ipv4(vec![0; rows]),
            ColumnKind::Time(_) => Self::Time(vec![0; rows]),
            ColumnKind::Hex(bytes) => Self::Hex(vec![0; rows * usize::from(bytes)], usize::from(bytes)),
        }
    }

    /// Sets a row to the value of a batch's field.
    fn set(&mut self, row: usize, value: &str, chunk: u32, field: usize, digits: &mut Vec<u8>) {
        // Values were already parsed when the kind was selected, so this does not fail.
        match self {
            Self::Views(views) => views.set(row, chunk as usize, field),
            Self::Int(v) => v[row] = typed_text::read_int(value).unwrap_or_default(),
            // It is already known that the text can be restored.
            Self::Float(v) => v[row] = value.parse().unwrap_or_default(),
            Self::Ipv4(v) => v[row] = typed_text::read_ipv4(value).unwrap_or_default(),
            Self::Time(v) => v[row] = typed_text::read_time(value).map_or(0, |t| t.0),
            Self::Hex(v, len) => {
                digits.clear();
                if typed_text::read_hex(value, digits) {
                    v[row * *len..(row + 1) * *len].copy_from_slice(digits);
                }
            }
        }
    }

    /// Finishes the column; `valid` has a bit per row that tells whether it has a value.
    fn finish(self, valid: MutableBuffer, rows: usize) -> Result<ArrayRef> {
        let nulls = NullBuffer::new(BooleanBuffer::new(valid.into(), 0, rows));
        let nulls = (nulls.null_count() > 0).then_some(nulls);
        let what = "cannot build a column of logs";
        Ok(match self {
            Self::Views(v) => Arc::new(v.finish(nulls)),
            Self::Int(v) => Arc::new(Int64Array::new(v.into(), nulls)),
            Self::Float(v) => Arc::new(Float64Array::new(v.into(), nulls)),
            Self::Ipv4(v) => Arc::new(UInt32Array::new(v.into(), nulls)),
            Self::Time(v) => Arc::new(TimestampNanosecondArray::new(v.into(), nulls).with_timezone("UTC")),
            Self::Hex(v, len) => {
                Arc::new(FixedSizeBinaryArray::try_new(len as i32, Buffer::from_vec(v), nulls).internal(what)?)
            }
        })
    }
}

/// What the row groups of a part are made from.
struct GroupSource<'a> {
    view: &'a LogsView,
    plan: &'a LogColumns,
    fields: &'a Fields,
    texts: TextSources<'a>,
    with: Optional,
}

impl GroupSource<'_> {
    /// Makes a row group of these rows, in this order.
    fn group(&self, order: &[OrderedRow]) -> Result<GroupColumns> {
        let (view, with) = (self.view, self.with);
        Ok(GroupColumns {
            time: order.iter().map(|p| p.time).collect(),
            streams: stream_runs(view, order),
            severity: if with.severity { order.iter().map(|p| severity(view, p)).collect() } else { Vec::new() },
            observed: if with.observed { order.iter().map(|p| observed(view, p)).collect() } else { Vec::new() },
            columns: self.columns(order)?,
            overflow: if with.overflow { Some(overflow(view, order, self.fields)?) } else { None },
        })
    }

    fn columns(&self, order: &[OrderedRow]) -> Result<Vec<ArrayRef>> {
        let rows = order.len();
        let columns = self.plan.columns.iter();
        let mut builders: Vec<Builder<'_>> = columns.map(|c| Builder::new(c.kind, &self.texts, rows)).collect();
        // Most columns have values in few rows; bits stay in the CPU cache where bytes would not.
        let mut valid: Vec<MutableBuffer> = builders.iter().map(|_| MutableBuffer::new_null(rows)).collect();
        let mut digits = Vec::new();
        // In memory order: scattered writes do not stall, scattered reads would.
        let mut places: Vec<(u32, u32, u32)> = order.iter().zip(0..).map(|(p, to)| (p.chunk, p.row, to)).collect();
        places.sort_unstable();
        for (at, row, to) in places {
            let (source, columns) = (&chunk(self.view, at).rows, &self.fields.columns[at as usize]);
            for field in source.fields(row as usize) {
                let column = columns[source.field_names[field] as usize];
                if column < CONSTANT {
                    builders[column as usize].set(to as usize, source.values.value(field), at, field, &mut digits);
                    set_bit(&mut valid[column as usize], to as usize);
                }
            }
        }
        builders.into_iter().zip(valid).map(|(b, valid)| b.finish(valid, rows)).collect()
    }
}

/// The streams of rows that are sorted by stream, each with the number of its rows.
fn stream_runs(view: &LogsView, order: &[OrderedRow]) -> Vec<(Arc<LiveStream>, usize)> {
    let run = |rows: &[OrderedRow]| {
        let slot = chunk(view, rows[0].chunk).rows.slots[rows[0].row as usize];
        (Arc::clone(&view.streams[slot as usize]), rows.len())
    };
    order.chunk_by(|a, b| a.stream_rank == b.stream_rank).map(run).collect()
}

/// The fields without a column, by row.
fn overflow(view: &LogsView, order: &[OrderedRow], fields: &Fields) -> Result<MapArray> {
    let mut map = MapWriter::new(order.len());
    let mut rest: Vec<(&str, &str)> = Vec::new();
    for place in order {
        let (source, columns) = (&chunk(view, place.chunk).rows, &fields.columns[place.chunk as usize]);
        for field in source.fields(place.row as usize) {
            let name = source.field_names[field] as usize;
            if columns[name] == OVERFLOW {
                rest.push((source.names.value(name), source.values.value(field)));
            }
        }
        rest.sort_unstable_by_key(|f| f.0);
        rest.drain(..).for_each(|(name, value)| map.push(name, value));
        map.end_row();
    }
    map.finish()
}
