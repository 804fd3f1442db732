//! The spans of a generation: batches as they arrived, with their times. Appended by the WAL thread, read by anyone.
//!
//! Clients that got no response send again; rows that repeat an earlier one of the generation are detected on arrival.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{AsArray, FixedSizeBinaryArray};
use arrow::datatypes::{Int64Type, UInt8Type};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use quiver_types::SpansBatch;
use quiver_types::spans::NO_START;

use crate::part::spans::equal_but_received;

/// Maximum number of rows with the same key that are compared.
const SAME_KEY_MAX: u64 = 16;
/// Estimated memory of an entry of the known rows.
const KNOWN_BYTES: usize = 28;

/// Trace, span, start time: rows that differ in these are not repeats.
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

/// The spans of one write.
#[derive(Debug)]
pub(crate) struct SpanChunk {
    pub(crate) batch: SpansBatch,
    /// First and last start time, Unix nanoseconds.
    pub(crate) starts: (i64, i64),
    /// Rows that repeat an earlier one of the generation, ascending.
    pub(crate) repeated: Vec<u32>,
    seq: u32,
    /// Rows that repeat any other, with a hash of the sources they were compared with.
    repeats: Mutex<Option<(u64, Arc<ChunkRepeats>)>>,
}

/// What was found about the rows of a write in the context of other sources; both lists are ascending and disjoint.
#[derive(Debug, Default)]
pub(crate) struct ChunkRepeats {
    /// Rows that repeat an earlier row.
    pub(crate) rows: Vec<u32>,
    /// Other rows for whose side of the span a part has a report.
    pub(crate) reported: Vec<u32>,
}

impl SpanChunk {
    /// The cached result, if it was computed in the same context.
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

/// The spans of a generation; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct LiveSpans {
    chunks: RwLock<Vec<Arc<SpanChunk>>>,
    known: RwLock<SpanKeyMap>,
}

/// Maps the hash of a row's key to its write and row. Further rows with the same key are stored under the following
/// hashes.
#[derive(Debug, Default)]
struct SpanKeyMap(HashMap<u64, (u32, u32), FixedState>);

impl SpanKeyMap {
    /// Finds an equal row, or else the place for the row.
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
    /// An equal row exists.
    Known,
    Free(u64),
    /// Too many rows have this key to compare all of them.
    Crowded,
}

/// Start times of a batch.
pub(crate) fn starts(batch: &SpansBatch) -> &[i64] {
    batch.spans["start"].as_primitive::<Int64Type>().values()
}

/// Start times of a batch that the sender gave; spans without one have that of their arrival.
pub(crate) fn given_starts(batch: &SpansBatch) -> impl Iterator<Item = i64> {
    let marks = batch.spans["marks"].as_primitive::<UInt8Type>().values();
    starts(batch).iter().zip(marks).filter(|(_, marks)| **marks & NO_START == 0).map(|(&start, _)| start)
}

impl LiveSpans {
    /// Appends a write; returns its memory in bytes.
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

    /// Registers the rows of the next write; returns those that repeat an earlier row.
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

    /// Collects the rows of another generation's write that repeat a row of this generation.
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

    /// The writes up to a sequence number with spans that may start in a closed time range.
    pub(crate) fn view(&self, cut: u32, range: (i64, i64)) -> Vec<Arc<SpanChunk>> {
        let wanted = |c: &&Arc<SpanChunk>| c.seq <= cut && c.starts.0 <= range.1 && range.0 <= c.starts.1;
        self.chunks.read().iter().filter(wanted).map(Arc::clone).collect()
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::{ContextFields, SpanFields, SpansBuilder};

    use super::*;

    /// A span of a test: trace, span, start, name, when it was received.
    type Span<'a> = (u128, u64, i64, &'a str, i64);

    fn batch_of(service: &str, spans: &[Span<'_>]) -> SpansBatch {
        let mut builder = SpansBuilder::default();
        let context = builder.context(&ContextFields { service, ..ContextFields::default() });
        for &(trace, span, start, name, received) in spans {
            builder.span(&SpanFields {
                trace_id: trace.to_be_bytes(),
                span_id: span.to_be_bytes(),
                context,
                name,
                start,
                end: start,
                received,
                ..SpanFields::default()
            });
        }
        builder.finish()
    }

    fn batch(spans: &[Span<'_>]) -> SpansBatch {
        batch_of("web", spans)
    }

    /// What of each write repeats an earlier row.
    fn repeated(live: &LiveSpans) -> Vec<Vec<u32>> {
        live.view(u32::MAX, ALL).iter().map(|chunk| chunk.repeated.clone()).collect()
    }

    const ALL: (i64, i64) = (i64::MIN, i64::MAX);

    #[test]
    fn a_row_that_says_the_same_again_repeats() {
        let live = LiveSpans::default();
        // When it was received is nothing that it says.
        live.insert(batch(&[(1, 1, 10, "a", 0), (1, 1, 10, "a", 99), (1, 2, 10, "a", 0)]), 0);
        live.insert(batch(&[(1, 2, 10, "a", 5), (2, 1, 10, "a", 0), (1, 1, 11, "a", 0), (1, 1, 10, "b", 0)]), 1);
        live.insert(batch_of("db", &[(1, 1, 10, "a", 0)]), 2);
        live.insert(batch(&[(1, 1, 10, "b", 0), (1, 1, 10, "a", 0)]), 3);
        assert_eq!(repeated(&live), [vec![1], vec![0], vec![], vec![0, 1]]);
    }

    /// Breaks if a sender that gives all its spans one id makes each write look at all rows before it.
    #[test]
    fn of_very_many_rows_under_one_key_some_are_known() {
        let names: Vec<String> = (0..SAME_KEY_MAX + 4).map(|n| n.to_string()).collect();
        let spans: Vec<Span<'_>> = names.iter().map(|name| (7, 7, 7, name.as_str(), 0)).collect();
        let live = LiveSpans::default();
        live.insert(batch(&spans), 0);
        live.insert(batch(&spans), 1);
        assert_eq!(repeated(&live), [vec![], (0..SAME_KEY_MAX as u32).collect()]);
        assert_eq!(live.known.read().0.len() as u64, SAME_KEY_MAX);
    }

    #[test]
    fn repeats_of_another_generation_are_found() {
        let (first, second) = (LiveSpans::default(), LiveSpans::default());
        let add = |chunk: &Arc<SpanChunk>, known: &[u32]| {
            let mut out: BTreeSet<u32> = known.iter().copied().collect();
            first.repeats(chunk, &mut out);
            out.into_iter().collect::<Vec<_>>()
        };
        second.insert(batch(&[(1, 1, 10, "a", 0), (1, 1, 20, "a", 0), (1, 2, 10, "a", 0)]), 0);
        second.insert(batch(&[(1, 1, 21, "a", 0)]), 1);
        let chunks = second.view(u32::MAX, ALL);
        assert_eq!(add(&chunks[0], &[]), [0; 0], "nothing is there");
        first.insert(batch(&[(1, 1, 20, "a", 3), (1, 2, 10, "a", 3), (1, 1, 10, "other", 3)]), 0);
        assert_eq!(add(&chunks[0], &[]), [1, 2]);
        assert_eq!(add(&chunks[0], &[0, 2]), [0, 1, 2], "what was found elsewhere stays");
        assert_eq!(add(&chunks[1], &[]), [0; 0], "it starts behind all of them");
        let beside = |n: u64| chunks[0].repeats(n).map(|found| found.rows.clone());
        assert_eq!(beside(5), None);
        chunks[0].keep_repeats(5, &Arc::new(ChunkRepeats { rows: vec![1], reported: vec![] }));
        assert_eq!((beside(5), beside(6)), (Some(vec![1]), None), "beside others they may be others");
    }

    #[test]
    fn a_view_has_the_writes_that_may_start_in_a_range() {
        let live = LiveSpans::default();
        let bytes = live.insert(batch(&[(1, 1, 10, "a", 0), (1, 2, 30, "a", 0)]), 0);
        assert!(bytes > 2 * KNOWN_BYTES);
        live.insert(batch(&[(1, 3, i64::MIN, "a", 0)]), 3);
        live.insert(batch(&[(1, 4, i64::MAX, "a", 0)]), 4);
        let check = |cut: u32, range: (i64, i64), expected: &[u32]| {
            let seqs: Vec<u32> = live.view(cut, range).iter().map(|chunk| chunk.seq).collect();
            assert_eq!(seqs, expected, "{range:?} up to {cut}");
        };
        check(9, ALL, &[0, 3, 4]);
        check(3, ALL, &[0, 3]);
        check(2, ALL, &[0]);
        check(9, (11, 29), &[0]);
        check(9, (30, 30), &[0]);
        check(9, (31, 99), &[]);
        check(9, (i64::MIN, 9), &[3]);
        check(9, (i64::MAX, i64::MAX), &[4]);
    }

    #[test]
    fn keys_of_other_lengths_are_no_fault() {
        assert_eq!(SpanKey::new(&[1; 3], &[2; 9], 5), SpanKey::new(&[], &[0; 8], 5));
        assert_ne!(SpanKey::new(&[1; 16], &[2; 8], 5), SpanKey::new(&[1; 16], &[2; 8], 6));
        assert_ne!(SpanKey::new(&[1; 16], &[2; 8], 5).hash(), SpanKey::new(&[1; 16], &[2; 8], 6).hash());
    }
}
