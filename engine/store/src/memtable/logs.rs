//! The log rows of a generation: batches as they arrived, in columns, with the streams that they refer to by slot.
//!
//! Arrays are shared, never copied: the WAL record is written from them, and queries read values in place. A slot
//! stands for a stream with a service, and is also its number in the WAL. Small batches are merged, so that single rows
//! do not slow down every query.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Int64Array, MapArray, StringArray, StringViewArray, StructArray, UInt8Array, UInt32Array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, Fields};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::RwLock;
use quiver_types::{LabelSet, LogsBatch, SeriesId};
use smallvec::SmallVec;

use super::log_streams::{LiveStream, StreamIndex, StreamList};
use super::string_views::{TextSources, TextViews};
use crate::error::{Context, Error, Result};
use crate::wal::record;

/// Batches with fewer rows than this are merged.
const MERGE_ROWS: usize = 4096;
/// Estimated memory of a batch besides its columns.
const CHUNK_BYTES: usize = 512;

/// Rows as columns. Row `i` has the fields `offsets[i]..offsets[i + 1]`; a field's name is an index into `names`.
#[derive(Debug, Clone)]
pub(crate) struct LogRows {
    pub(crate) time: ScalarBuffer<i64>,
    /// Slot of the stream and service.
    pub(crate) slots: ScalarBuffer<u32>,
    /// Severities, 0 for none; `None` if no row has one.
    pub(crate) severity: Option<ScalarBuffer<u8>>,
    /// Observed times in Unix nanoseconds, 0 for none; `None` if no row has one.
    pub(crate) observed: Option<ScalarBuffer<i64>>,
    pub(crate) offsets: OffsetBuffer<i32>,
    pub(crate) field_names: ScalarBuffer<u32>,
    pub(crate) values: StringArray,
    pub(crate) names: StringArray,
}

/// A batch to be inserted; the slots of its rows are still indexes into `pairs`.
#[derive(Debug)]
pub(crate) struct PreparedLogs {
    pub(crate) rows: LogRows,
    pub(crate) pairs: Vec<LiveStream>,
    pub(crate) bytes: usize,
}

/// The rows of one write, or of several small ones.
#[derive(Debug)]
pub(crate) struct LogChunk {
    pub(crate) rows: LogRows,
    /// First and last time.
    pub(crate) range: (i64, i64),
    /// For each write, its relative sequence number and the end of its rows.
    writes: SmallVec<[(u32, u32); 1]>,
    bytes: usize,
}

/// The log rows of a generation.
#[derive(Debug, Default)]
pub(crate) struct LiveLogs {
    inner: RwLock<Inner>,
    /// Index of the streams; separate from the rows, so that lookups do not block writers.
    index: Arc<StreamIndex>,
}

#[derive(Debug, Default)]
struct Inner {
    chunks: Vec<Arc<LogChunk>>,
    streams: StreamList,
    slots: HashMap<(SeriesId, Arc<str>), u32, FixedState>,
    days: BTreeSet<i32>,
}

/// What a reader sees of a generation's log rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogsView {
    /// Batches, each with the number of its visible rows.
    pub(crate) chunks: Vec<(Arc<LogChunk>, usize)>,
    /// Streams by slot.
    pub(crate) streams: StreamList,
    /// Index of the streams' labels; readers extend it when they need it.
    pub(crate) index: Arc<StreamIndex>,
}

impl PreparedLogs {
    /// Converts the batch of a decoder.
    ///
    /// # Errors
    /// Internal: the batch is inconsistent. TooLarge: its texts do not fit into a column.
    pub(crate) fn new(batch: LogsBatch) -> Result<Self> {
        // Once and here, since whoever reads the rows indexes by these numbers.
        let broken = |what: &str| Error::internal(format!("a batch of logs contradicts itself: {what}"));
        let rows = batch.time.len();
        let below = |list: &[u32], len: usize| list.iter().all(|&i| (i as usize) < len);
        if batch.row_streams.len() != rows || batch.row_services.len() != rows || batch.field_ends.len() != rows {
            return Err(broken("columns differ in length"));
        }
        let all_or_none = |len: usize| len == 0 || len == rows;
        if !all_or_none(batch.severity.len()) || !all_or_none(batch.observed.len()) {
            return Err(broken("severities or times of observation"));
        }
        if !below(&batch.row_streams, batch.streams.len())
            || !below(&batch.row_services, batch.services.len())
            || !below(&batch.field_names, batch.names.len())
            || batch.field_names.len() != batch.value_ends.len()
            || batch.field_ends.last().map_or(0, |&e| e as usize) != batch.field_names.len()
        {
            return Err(broken("an index is out of bounds"));
        }
        let name_bytes: usize = batch.names.iter().map(|n| n.len()).sum();
        if batch.values.len() > i32::MAX as usize || batch.field_names.len() > i32::MAX as usize {
            return Err(Error::new(crate::ErrorKind::TooLarge, "request is larger than 2 GiB"));
        }
        let mut pairs: Vec<LiveStream> = Vec::new();
        let mut known: HashMap<(u32, u32), u32, FixedState> = HashMap::default();
        // Rows of a stream follow each other, mostly: the pair of the row before spares a look-up.
        let mut last = None;
        let mut slots = Vec::with_capacity(rows);
        for (&stream, &service) in batch.row_streams.iter().zip(&batch.row_services) {
            let pair = match last {
                Some((key, pair)) if key == (stream, service) => pair,
                _ => *known.entry((stream, service)).or_insert_with(|| {
                    let labels = LabelSet::from_canonical(batch.labels(stream));
                    let service = Arc::clone(&batch.services[service as usize]);
                    pairs.push(LiveStream { id: batch.streams[stream as usize].id, labels, service });
                    pairs.len() as u32 - 1
                }),
            };
            last = Some(((stream, service), pair));
            slots.push(pair);
        }
        let offsets = offsets(&batch.field_ends).ok_or_else(|| broken("ends of rows do not ascend"))?;
        let value_offsets = self::offsets(&batch.value_ends).ok_or_else(|| broken("ends of values do not ascend"))?;
        let mut values = batch.values;
        // What the decoder reserved in advance would be held until the flush.
        if values.capacity() > values.len() + values.len() / 4 {
            values.shrink_to_fit();
        }
        let values = StringArray::try_new(value_offsets, Buffer::from_vec(values), None);
        let rows = LogRows {
            time: batch.time.into(),
            slots: slots.into(),
            severity: (!batch.severity.is_empty()).then(|| batch.severity.into()),
            observed: (!batch.observed.is_empty()).then(|| batch.observed.into()),
            offsets,
            field_names: batch.field_names.into(),
            values: values.internal("a batch of logs holds text that is not UTF-8")?,
            names: StringArray::from_iter_values(batch.names.iter().map(|n| &**n)),
        };
        let labels: usize = pairs.iter().map(|p| p.labels.canonical().len() + 64).sum();
        let bytes = rows.bytes() + name_bytes + labels;
        Ok(Self { rows, pairs, bytes })
    }
}

impl PreparedLogs {
    /// Concatenates several batches.
    pub(crate) fn join(all: Vec<Self>) -> Self {
        let mut pairs: Vec<LiveStream> = Vec::new();
        let mut known: HashMap<(SeriesId, Arc<str>), u32, FixedState> = HashMap::default();
        let (mut rows, mut bytes) = (Vec::with_capacity(all.len()), 0);
        for mut part in all {
            let places: Vec<u32> = (part.pairs.into_iter())
                .map(|pair| {
                    *known.entry((pair.id, Arc::clone(&pair.service))).or_insert_with(|| {
                        pairs.push(pair);
                        pairs.len() as u32 - 1
                    })
                })
                .collect();
            part.rows.slots = part.rows.slots.iter().map(|&slot| places[slot as usize]).collect::<Vec<_>>().into();
            bytes += part.bytes;
            rows.push(part.rows);
        }
        let rows = match <[LogRows; 1]>::try_from(rows) {
            Ok([rows]) => rows,
            Err(rows) => LogRows::concat(&rows.iter().collect::<Vec<_>>()),
        };
        Self { rows, pairs, bytes }
    }
}

fn offsets(ends: &[u32]) -> Option<OffsetBuffer<i32>> {
    if !ends.is_sorted() {
        return None;
    }
    let all: Vec<i32> = std::iter::once(0).chain(ends.iter().map(|&e| e as i32)).collect();
    Some(OffsetBuffer::new(all.into()))
}

impl LogRows {
    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.time.len()
    }

    /// First and last time.
    pub(crate) fn range(&self) -> (i64, i64) {
        self.time.iter().fold((i64::MAX, i64::MIN), |(min, max), &t| (min.min(t), max.max(t)))
    }

    /// Approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.time.len() * 16
            + self.severity.as_ref().map_or(0, ScalarBuffer::len)
            + self.observed.as_ref().map_or(0, |o| o.len() * 8)
            + self.field_names.len() * 8
            + self.values.values().len()
            + self.names.len() * 4
            + self.names.values().len()
    }

    pub(crate) fn names_len(&self) -> usize {
        self.names.len()
    }

    /// Index of a name; `None` if the batch does not have it.
    pub(crate) fn name(&self, name: &str) -> Option<u32> {
        self.names.iter().position(|n| n == Some(name)).map(|at| at as u32)
    }

    /// The fields of a row, as indexes into `field_names` and `values`.
    pub(crate) fn fields(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// The values of one field by row, without copying them.
    pub(crate) fn column(&self, name: u32, rows: usize) -> StringViewArray {
        let mut views = TextViews::new(TextSources::new([&self.values]), rows);
        let mut valid = vec![false; rows];
        for (row, valid) in valid.iter_mut().enumerate() {
            let Some(field) = self.fields(row).find(|&f| self.field_names[f] == name) else { continue };
            views.set(row, 0, field);
            *valid = true;
        }
        let nulls = NullBuffer::from(valid);
        views.finish((nulls.null_count() > 0).then_some(nulls))
    }

    /// Flags for the WAL record: which optional columns [`LogRows::columns`] returns.
    pub(crate) fn flags(&self) -> u16 {
        match (&self.severity, &self.observed) {
            (_, Some(_)) => record::OPTIONAL | record::OPTIONAL_2,
            (Some(_), None) => record::OPTIONAL,
            (None, None) => 0,
        }
    }

    /// The columns of the WAL record. Observed times never come without severities.
    pub(crate) fn columns(&self, entries: Fields) -> Vec<ArrayRef> {
        let pairs =
            vec![Arc::new(UInt32Array::new(self.field_names.clone(), None)) as _, Arc::new(self.values.clone()) as _];
        let field = arrow::datatypes::DataType::Struct(entries.clone());
        let field = Arc::new(arrow::datatypes::Field::new("entries", field, false));
        let entries = StructArray::new(entries, pairs, None);
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::new(self.time.clone(), None)),
            Arc::new(UInt32Array::new(self.slots.clone(), None)),
            Arc::new(MapArray::new(field, self.offsets.clone(), entries, None, false)),
        ];
        let severity = match (&self.severity, &self.observed) {
            (None, Some(_)) => Some(vec![0; self.len()].into()),
            (severity, _) => severity.clone(),
        };
        columns.extend(severity.map(|s| Arc::new(UInt8Array::new(s, None)) as ArrayRef));
        columns.extend(self.observed.clone().map(|o| Arc::new(Int64Array::new(o, None)) as ArrayRef));
        columns
    }

    /// Puts rows of several batches into one, in order; names of fields are numbered anew.
    fn concat(all: &[&Self]) -> Self {
        let rows = all.iter().map(|r| r.len()).sum();
        let fields = all.iter().map(|r| r.field_names.len()).sum();
        let (mut time, mut slots) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let severity = concat_marks(all, |rows| rows.severity.as_ref());
        let observed = concat_marks(all, |rows| rows.observed.as_ref());
        let mut ends: Vec<i32> = Vec::with_capacity(rows + 1);
        let mut field_names = Vec::with_capacity(fields);
        let mut value_ends: Vec<i32> = Vec::with_capacity(fields + 1);
        let mut values = Vec::with_capacity(all.iter().map(|r| r.values.values().len()).sum());
        let mut names: Vec<&str> = Vec::new();
        let mut known: HashMap<&str, u32, FixedState> = HashMap::default();
        ends.push(0);
        value_ends.push(0);
        for part in all {
            time.extend_from_slice(&part.time);
            slots.extend_from_slice(&part.slots);
            let own_names: Vec<u32> = (part.names.iter().flatten())
                .map(|name| {
                    *known.entry(name).or_insert_with(|| {
                        names.push(name);
                        names.len() as u32 - 1
                    })
                })
                .collect();
            let (field_base, value_base) = (field_names.len() as i32, values.len() as i32);
            let (first_field, first_value) = (part.offsets[0], part.values.value_offsets()[0]);
            ends.extend(part.offsets[1..].iter().map(|e| e - first_field + field_base));
            field_names.extend(part.field_names.iter().map(|&n| own_names[n as usize]));
            value_ends.extend(part.values.value_offsets()[1..].iter().map(|e| e - first_value + value_base));
            let last_value = part.values.value_offsets()[part.values.len()];
            values.extend_from_slice(&part.values.values()[first_value as usize..last_value as usize]);
        }
        Self {
            time: time.into(),
            slots: slots.into(),
            severity,
            observed,
            offsets: OffsetBuffer::new(ends.into()),
            field_names: field_names.into(),
            values: StringArray::new(OffsetBuffer::new(value_ends.into()), Buffer::from_vec(values), None),
            names: StringArray::from_iter_values(names),
        }
    }
}

/// Concatenates an optional column, with 0 where a batch lacks it; `None` if all lack it.
fn concat_marks<T: ArrowNativeType>(
    all: &[&LogRows],
    marks: impl Fn(&LogRows) -> Option<&ScalarBuffer<T>>,
) -> Option<ScalarBuffer<T>> {
    all.iter().any(|rows| marks(rows).is_some()).then(|| {
        let mut out = Vec::with_capacity(all.iter().map(|rows| rows.len()).sum());
        for rows in all {
            match marks(rows) {
                Some(own) => out.extend_from_slice(own),
                None => out.resize(out.len() + rows.len(), T::default()),
            }
        }
        out.into()
    })
}

impl LogChunk {
    fn new(rows: LogRows, seq: u32) -> Self {
        let writes = SmallVec::from_slice(&[(seq, rows.len() as u32)]);
        Self { range: rows.range(), bytes: rows.bytes() + CHUNK_BYTES, writes, rows }
    }

    fn merged(all: &[Arc<Self>]) -> Self {
        let rows = LogRows::concat(&all.iter().map(|c| &c.rows).collect::<Vec<_>>());
        let mut writes = SmallVec::new();
        let mut base = 0;
        for chunk in all {
            writes.extend(chunk.writes.iter().map(|&(seq, end)| (seq, base + end)));
            base += chunk.rows.len() as u32;
        }
        Self { range: rows.range(), bytes: rows.bytes() + CHUNK_BYTES, writes, rows }
    }

    /// Number of rows of writes up to a relative sequence number.
    fn visible(&self, cut: u32) -> usize {
        let writes = self.writes.partition_point(|&(seq, _)| seq <= cut);
        writes.checked_sub(1).map_or(0, |last| self.writes[last].1 as usize)
    }
}

impl LiveLogs {
    /// The slot of a stream with its service; it gets the next one if it is new (`true`).
    pub(crate) fn slot(&self, stream: &LiveStream) -> (u32, bool) {
        let mut inner = self.inner.write();
        let key = (stream.id, Arc::clone(&stream.service));
        if let Some(&slot) = inner.slots.get(&key) {
            return (slot, false);
        }
        let slot = inner.streams.len() as u32;
        inner.streams.push(Arc::new(stream.clone()));
        inner.slots.insert(key, slot);
        (slot, true)
    }

    /// Inserts rows with final slots; returns the bytes by which memory grew and by which it shrank.
    pub(crate) fn insert(&self, rows: LogRows, seq: u32, days: &[i32]) -> (usize, usize) {
        let chunk = LogChunk::new(rows, seq);
        let mut grown = chunk.bytes;
        let mut freed = 0;
        let mut inner = self.inner.write();
        inner.days.extend(days);
        inner.chunks.push(Arc::new(chunk));
        // Merge like a binary counter: each row is copied about twelve times at most.
        let chunks = &mut inner.chunks;
        let mut first = chunks.len() - 1;
        let mut sum = chunks[first].rows.len();
        while first > 0 && chunks[first - 1].rows.len() <= 2 * sum && sum + chunks[first - 1].rows.len() <= MERGE_ROWS {
            first -= 1;
            sum += chunks[first].rows.len();
        }
        if first + 1 < chunks.len() {
            let merged = LogChunk::merged(&chunks[first..]);
            freed += chunks[first..].iter().map(|c| c.bytes).sum::<usize>();
            grown += merged.bytes;
            chunks.truncate(first);
            chunks.push(Arc::new(merged));
        }
        (grown, freed)
    }

    /// Days of its rows, ascending.
    pub(crate) fn days(&self) -> Vec<i32> {
        self.inner.read().days.iter().copied().collect()
    }

    /// The rows of writes up to a relative sequence number that may lie in a time range.
    pub(crate) fn view(&self, cut: u32, range: (i64, i64)) -> LogsView {
        let inner = self.inner.read();
        let touches = |c: &Arc<LogChunk>| c.range.0 <= range.1 && range.0 <= c.range.1;
        let chunks = inner.chunks.iter().filter(|c| touches(c)).map(|c| (Arc::clone(c), c.visible(cut)));
        let chunks: Vec<_> = chunks.filter(|(_, rows)| *rows > 0).collect();
        let streams = if chunks.is_empty() { StreamList::default() } else { inner.streams.clone() };
        LogsView { chunks, streams, index: Arc::clone(&self.index) }
    }

    /// Bytes that queries have added to the index of streams since the last call.
    pub(crate) fn take_grown(&self) -> usize {
        self.index.take_grown()
    }
}

#[cfg(test)]
mod tests;
