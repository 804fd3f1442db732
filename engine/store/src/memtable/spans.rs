//! The spans of a generation: batches as they came, with their times. Appended by the WAL's thread, read by anyone.
//!
//! A sender that got no answer sends again; rows that repeat an earlier one of the generation are found when they come.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{AsArray, FixedSizeBinaryArray};
use arrow::datatypes::Int64Type;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use quiver_types::SpansBatch;

use crate::part::spans::equal_but_received;

/// So many rows under one key are told apart.
const SAME_KEY_MAX: u64 = 16;
/// What an entry of the known rows takes.
const KNOWN_BYTES: usize = 28;

/// Trace, span, start: rows that differ here are no repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SpanKey(u128, u64, i64);

impl SpanKey {
    pub(crate) fn new(trace: &[u8], span: &[u8], start: i64) -> Self {
        let (trace, span) = (trace.try_into().unwrap_or_default(), span.try_into().unwrap_or_default());
        Self(u128::from_be_bytes(trace), u64::from_be_bytes(span), start)
    }

    fn hash(self) -> u64 {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.1.to_be_bytes());
        bytes[24..].copy_from_slice(&self.2.to_be_bytes());
        xxhash_rust::xxh3::xxh3_64(&bytes)
    }
}

/// One write.
#[derive(Debug)]
pub(crate) struct SpanChunk {
    pub(crate) batch: SpansBatch,
    /// First and last start, Unix nanoseconds.
    pub(crate) starts: (i64, i64),
    /// Rows that repeat an earlier one of the generation, ascending.
    pub(crate) repeated: Vec<u32>,
    seq: u32,
    /// Rows that repeat any, beside which others.
    repeats: Mutex<Option<(u64, Arc<ChunkRepeats>)>>,
}

/// What was found of the rows of a write beside others; both ascend, and no row is in both.
#[derive(Debug, Default)]
pub(crate) struct ChunkRepeats {
    /// Rows that repeat an earlier one.
    pub(crate) rows: Vec<u32>,
    /// Other rows of whose side of the span a part has a report.
    pub(crate) reported: Vec<u32>,
}

impl SpanChunk {
    /// Gives what was found, if it was beside the same others.
    pub(crate) fn repeats(&self, beside: u64) -> Option<Arc<ChunkRepeats>> {
        self.repeats.lock().as_ref().filter(|(known, _)| *known == beside).map(|(_, found)| Arc::clone(found))
    }

    pub(crate) fn keep_repeats(&self, beside: u64, found: &Arc<ChunkRepeats>) {
        *self.repeats.lock() = Some((beside, Arc::clone(found)));
    }

    fn keys(&self) -> impl Iterator<Item = SpanKey> {
        keys(&self.batch)
    }
}

fn keys(batch: &SpansBatch) -> impl Iterator<Item = SpanKey> {
    let ids = |name: &str| -> &FixedSizeBinaryArray { batch.spans[name].as_fixed_size_binary() };
    let (traces, spans) = (ids("trace_id"), ids("span_id"));
    starts(batch).iter().enumerate().map(move |(i, start)| SpanKey::new(traces.value(i), spans.value(i), *start))
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LiveSpans {
    chunks: RwLock<Vec<Arc<SpanChunk>>>,
    known: RwLock<Known>,
}

/// By hash of its key the write and the row; of several rows with one key the next ones under the next hashes.
#[derive(Debug, Default)]
struct Known(HashMap<u64, (u32, u32), FixedState>);

impl Known {
    /// Looks for an equal row, else for the place where the row belongs.
    fn find(&self, hash: u64, equal: impl Fn(u32, u32) -> bool) -> Place {
        for at in (0..SAME_KEY_MAX).map(|n| hash.wrapping_add(n)) {
            match self.0.get(&at) {
                Some(&(chunk, row)) if equal(chunk, row) => return Place::Known,
                Some(_) => {}
                None => return Place::Free(at),
            }
        }
        Place::Crowded
    }
}

enum Place {
    /// An equal row stands there.
    Known,
    Free(u64),
    /// Too many rows have this key to look at all of them.
    Crowded,
}

/// Gives the starts of a batch.
pub(crate) fn starts(batch: &SpansBatch) -> &[i64] {
    batch.spans["start"].as_primitive::<Int64Type>().values()
}

impl LiveSpans {
    /// Appends a write; gives the bytes that it takes.
    pub(crate) fn insert(&self, batch: SpansBatch, seq: u32) -> usize {
        let (mut min, mut max) = (i64::MAX, i64::MIN);
        for &t in starts(&batch) {
            (min, max) = (min.min(t), max.max(t));
        }
        let repeated = self.note(&batch);
        let bytes = batch.memory_bytes() + size_of::<SpanChunk>() + KNOWN_BYTES * batch.len();
        let chunk = SpanChunk { batch, starts: (min, max), repeated, seq, repeats: Mutex::default() };
        self.chunks.write().push(Arc::new(chunk));
        bytes
    }

    /// Notes the rows of the next write, and gives those that repeat an earlier one.
    fn note(&self, batch: &SpansBatch) -> Vec<u32> {
        let (chunks, mut known) = (self.chunks.read(), self.known.write());
        let (next, mut repeated) = (chunks.len() as u32, Vec::new());
        known.0.reserve(batch.len());
        for (row, key) in (0..).zip(keys(batch)) {
            let equal = |chunk: u32, other: u32| {
                let of = chunks.get(chunk as usize).map_or(batch, |chunk| &chunk.batch);
                equal_but_received((of, other as usize), (batch, row as usize))
            };
            match known.find(key.hash(), equal) {
                Place::Known => repeated.push(row),
                Place::Free(at) => drop(known.0.insert(at, (next, row))),
                Place::Crowded => {}
            }
        }
        repeated
    }

    /// Adds the rows of another generation's write that repeat one of this.
    pub(crate) fn repeats(&self, chunk: &SpanChunk, out: &mut BTreeSet<u32>) {
        let (chunks, known) = (self.chunks.read(), self.known.read());
        let last = chunks.iter().map(|c| c.starts.1).max().unwrap_or(i64::MIN);
        if chunk.starts.0 > last {
            return;
        }
        for (row, key) in (0..).zip(chunk.keys()) {
            let equal = |of: u32, other: u32| {
                let of = chunks.get(of as usize);
                of.is_some_and(|of| equal_but_received((&of.batch, other as usize), (&chunk.batch, row as usize)))
            };
            if matches!(known.find(key.hash(), equal), Place::Known) {
                out.insert(row);
            }
        }
    }

    /// Gives the writes up to a number whose starts may lie in a closed range.
    pub(crate) fn view(&self, cut: u32, range: (i64, i64)) -> Vec<Arc<SpanChunk>> {
        let wanted = |c: &&Arc<SpanChunk>| c.seq <= cut && c.starts.0 <= range.1 && range.0 <= c.starts.1;
        self.chunks.read().iter().filter(wanted).map(Arc::clone).collect()
    }
}
