//! Spans that were sent again: a row that equals an earlier one in all but the time of its receipt counts once, wherever
//! the two stand. Compaction leaves such rows out; until then readers do.
//!
//! What is earlier: parts by their ids, then generations, in each its batches. Only sources that overlap in time are
//! compared, and of a part only traces of which the other has spans; what was found is kept for the part beside the same
//! others.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quiver_types::spans::{RollupRow, TraceId};
use quiver_types::tables::spans;
use quiver_types::time::day_of;
use quiver_types::{ReadStats, SpansBatch};
use xxhash_rust::xxh3::xxh3_64;

use crate::cache::Lru;
use crate::error::{Error, Result};
use crate::memtable::spans::{SpanChunk, SpanKey};
use crate::part::spans::{SpanIndex, equal_but_received, roll_up};
use crate::part::{Part, PartId, PartMeta};
use crate::snapshot::Snapshot;

/// Bytes of what is kept, each of two.
const KEPT_BYTES: u64 = 4 << 20;
/// Rows that are looked at together.
const STEP_ROWS: u64 = 64 * 1024;
/// Rows that are compared as a whole at once.
const COMPARED_ROWS: usize = 4096;
/// So many rows under one key are told apart.
const SAME_KEY_MAX: usize = 16;

/// A part beside earlier ones: its id, and a hash of theirs.
type Beside = (PartId, u64);

/// Finds repeats, and keeps what it found.
#[derive(Debug)]
pub(crate) struct Repeats {
    rows: Lru<Beside, Arc<Vec<Range<u64>>>>,
    corrections: Lru<Beside, Arc<Correction>>,
}

/// What makes the roll-up of a part that of its rows without repeats.
#[derive(Debug, Default)]
pub(crate) struct Correction {
    /// To be taken out, then to be added.
    pub(crate) minus: Vec<RollupRow>,
    pub(crate) plus: Vec<RollupRow>,
}

impl Default for Repeats {
    fn default() -> Self {
        Self { rows: Lru::new(KEPT_BYTES, 1), corrections: Lru::new(KEPT_BYTES, 1) }
    }
}

/// First and last nanosecond that rows of a part may start at.
fn bounds(part: &Part) -> (i64, i64) {
    let ns = |ms: i64| ms.saturating_mul(1_000_000);
    (ns(part.meta.min_ts), ns(part.meta.max_ts.saturating_add(1)) - 1)
}

fn both(a: (i64, i64), b: (i64, i64)) -> Option<(i64, i64)> {
    let range = (a.0.max(b.0), a.1.min(b.1));
    (range.0 <= range.1).then_some(range)
}

/// Says whether two parts may have spans of one service: no others are repeats.
fn may_share(a: &PartMeta, b: &PartMeta) -> bool {
    a.services_all || b.services_all || a.services.iter().any(|s| b.services.contains(s))
}

/// Gives the parts with rows of some days.
fn of_days(snapshot: &Snapshot, first: i32, last: i32) -> &[Arc<Part>] {
    let all = snapshot.visible.table(spans::TABLE.name);
    let from = all.partition_point(|p| p.meta.day < first);
    &all[from..all.partition_point(|p| p.meta.day <= last)]
}

fn signature<'p>(ids: impl Iterator<Item = &'p [u8]>) -> u64 {
    xxh3_64(&ids.flatten().copied().collect::<Vec<u8>>())
}

impl Repeats {
    /// Gives the rows of a part that repeat those of earlier parts of a snapshot: ascending ranges.
    pub(crate) async fn of_part(&self, snapshot: &Snapshot, part: &Part, stats: &ReadStats) -> Result<Found> {
        let earlier = |p: &&Arc<Part>| {
            p.meta.id < part.meta.id && both(bounds(p), bounds(part)).is_some() && may_share(&p.meta, &part.meta)
        };
        let earlier: Vec<&Arc<Part>> = of_days(snapshot, part.meta.day, part.meta.day).iter().filter(earlier).collect();
        let beside = (part.meta.id, signature(earlier.iter().map(|p| &p.meta.id.as_bytes()[..])));
        if earlier.is_empty() {
            return Ok(Found { beside, rows: Arc::default() });
        }
        if let Some(rows) = self.rows.get(&beside) {
            return Ok(Found { beside, rows });
        }
        let mut rows = BTreeSet::new();
        for other in earlier {
            if let Err(error) = repeated(part, other, &mut rows, stats).await {
                // Who needs that part is told; who does not must not fail with it.
                tracing::warn!(part = %other.meta.id, %error, "cannot compare a part of spans with another");
                return Ok(Found { beside, rows: Arc::default() });
            }
        }
        let rows = Arc::new(ranges(rows.into_iter()));
        self.rows.insert(beside, Arc::clone(&rows), 64 + 16 * rows.len() as u64);
        Ok(Found { beside, rows })
    }

    /// Gives what makes the roll-up of a part with repeats right.
    pub(crate) async fn correction(&self, part: &Part, found: &Found, stats: &ReadStats) -> Result<Arc<Correction>> {
        if let Some(known) = self.corrections.get(&found.beside) {
            return Ok(known);
        }
        let index = part.span_index(stats).await?;
        let touched = |rows: &Range<u64>| {
            let at = found.rows.partition_point(|r| r.end <= rows.start);
            found.rows.get(at).is_some_and(|r| r.start < rows.end)
        };
        let hashes: HashSet<u32> = index.entries().filter(|(_, rows)| touched(rows)).map(|(hash, _)| hash).collect();
        let entries: Vec<(u32, Range<u64>)> = index.entries().filter(|(hash, _)| hashes.contains(hash)).collect();
        let mut correction = Correction::default();
        for group in steps(&entries) {
            let mut rows: Vec<Range<u64>> = group.iter().map(|(_, rows)| rows.clone()).collect();
            rows.sort_unstable_by_key(|r| r.start);
            let batches = part.span_batches(&rows, stats).await?;
            correction.minus.extend(roll_up(&batches)?);
            let mut kept = Vec::new();
            for (batch, at) in placed(&batches, &rows) {
                let keep: Vec<bool> = at.iter().map(|row| !contains(&found.rows, *row)).collect();
                kept.push(without(batch, &keep)?);
            }
            correction.plus.extend(roll_up(&kept)?);
        }
        let correction = Arc::new(correction);
        let bytes = 64 + 400 * (correction.minus.len() + correction.plus.len()) as u64;
        self.corrections.insert(found.beside, Arc::clone(&correction), bytes);
        Ok(correction)
    }

    /// Gives the rows of a live batch, of the generation at a place in the snapshot, that repeat earlier ones: ascending.
    pub(crate) async fn of_chunk(
        &self,
        snapshot: &Snapshot,
        generation: usize,
        chunk: &SpanChunk,
        stats: &ReadStats,
    ) -> Result<Arc<Vec<u32>>> {
        let days = |ns: i64| day_of(ns.div_euclid(1_000_000));
        let parts = of_days(snapshot, days(chunk.starts.0), days(chunk.starts.1)).iter();
        let parts: Vec<&Arc<Part>> = parts.filter(|p| both(bounds(p), chunk.starts).is_some()).collect();
        let before = &snapshot.visible.generations[..generation.min(snapshot.visible.generations.len())];
        let before: Vec<_> = before.iter().filter(|g| g.spans() > 0).collect();
        let numbers: Vec<[u8; 8]> = before.iter().map(|g| g.number.to_be_bytes()).collect();
        let ids = parts.iter().map(|p| &p.meta.id.as_bytes()[..]);
        let ids = ids.chain(before.iter().map(|g| &g.writer.as_bytes()[..])).chain(numbers.iter().map(|n| &n[..]));
        let signature = signature(ids);
        if let Some(known) = chunk.repeats(signature) {
            return Ok(known);
        }
        let mut rows: BTreeSet<u32> = chunk.repeated.iter().copied().collect();
        before.iter().for_each(|g| g.span_repeats(chunk, &mut rows));
        let mut whole = true;
        for part in parts {
            if let Err(error) = live_repeated(chunk, part, &mut rows, stats).await {
                tracing::warn!(part = %part.meta.id, %error, "cannot compare live spans with a part");
                whole = false;
            }
        }
        let rows = Arc::new(rows.into_iter().collect::<Vec<u32>>());
        if whole {
            chunk.keep_repeats(signature, &rows);
        }
        Ok(rows)
    }
}

/// Repeats of a part beside others.
#[derive(Debug)]
pub(crate) struct Found {
    beside: Beside,
    pub(crate) rows: Arc<Vec<Range<u64>>>,
}

fn contains(ranges: &[Range<u64>], row: u64) -> bool {
    let at = ranges.partition_point(|r| r.end <= row);
    ranges.get(at).is_some_and(|r| r.start <= row)
}

/// Joins ascending rows to ranges.
fn ranges(rows: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    for row in rows {
        match out.last_mut() {
            Some(last) if last.end == row => last.end = row + 1,
            _ => out.push(row..row + 1),
        }
    }
    out
}

/// Cuts entries, which are sorted by hash, into groups of whole hashes of about [`STEP_ROWS`].
fn steps(entries: &[(u32, Range<u64>)]) -> Vec<&[(u32, Range<u64>)]> {
    let (mut out, mut from, mut rows) = (Vec::new(), 0, 0);
    for at in 0..entries.len() {
        rows += entries[at].1.end - entries[at].1.start;
        let ends = entries.get(at + 1).is_none_or(|next| next.0 != entries[at].0);
        if ends && (rows >= STEP_ROWS || at + 1 == entries.len()) {
            out.push(&entries[from..=at]);
            (from, rows) = (at + 1, 0);
        }
    }
    out
}

/// Gives each batch that was read of some ranges with the numbers of its rows.
fn placed<'b>(batches: &'b [SpansBatch], read: &[Range<u64>]) -> Vec<(&'b SpansBatch, Vec<u64>)> {
    let mut rows = read.iter().cloned().flatten();
    batches.iter().map(|batch| (batch, rows.by_ref().take(batch.len()).collect())).collect()
}

/// Leaves rows out of a batch.
pub(super) fn without(batch: &SpansBatch, keep: &[bool]) -> Result<SpansBatch> {
    let spans = arrow::compute::filter_record_batch(&batch.spans, &keep.to_vec().into())
        .map_err(|e| Error::internal("cannot leave out spans").with_source(e))?;
    Ok(SpansBatch { spans, contexts: batch.contexts.clone() })
}

/// Where rows of a part stand, by key.
type Keyed = HashMap<SpanKey, Vec<u64>, FixedState>;

/// Reads the keys of rows of a part whose starts lie in a range; `rows` in any order.
async fn keys(part: &Part, rows: &mut Vec<Range<u64>>, range: (i64, i64), stats: &ReadStats) -> Result<Keyed> {
    rows.sort_unstable_by_key(|r| r.start);
    rows.dedup();
    let read = part.span_rows(rows, &["trace_id", "span_id", "start_time"], false, stats).await?;
    let mut numbers = rows.iter().cloned().flatten();
    let mut out = Keyed::default();
    for batch in &read {
        let (Some(traces), Some(ids)) = (batch.ids("trace_id"), batch.ids("span_id")) else {
            return Err(Error::internal("a part of spans lacks its ids"));
        };
        let starts = batch.starts()?;
        for (i, row) in numbers.by_ref().take(batch.len()).enumerate() {
            if range.0 <= starts[i] && starts[i] <= range.1 {
                out.entry(SpanKey::new(traces.value(i), ids.value(i), starts[i])).or_default().push(row);
            }
        }
    }
    Ok(out)
}

/// Adds the rows of a part that repeat those of another.
async fn repeated(part: &Part, other: &Part, out: &mut BTreeSet<u64>, stats: &ReadStats) -> Result<()> {
    let Some(range) = both(bounds(part), bounds(other)) else { return Ok(()) };
    let (mine, theirs) = (part.span_index(stats).await?, other.span_index(stats).await?);
    let of = |index: &SpanIndex| -> Vec<(u32, Range<u64>)> { index.entries_in(&index.starts(range)).collect() };
    let (mine, theirs) = (of(&mine), of(&theirs));
    let hashes: HashSet<u32, FixedState> = theirs.iter().map(|(hash, _)| *hash).collect();
    let shared: Vec<(u32, Range<u64>)> = mine.into_iter().filter(|(hash, _)| hashes.contains(hash)).collect();
    for group in steps(&shared) {
        let mut own: Vec<Range<u64>> = group.iter().map(|(_, rows)| rows.clone()).collect();
        let (first, last) = (group[0].0, group[group.len() - 1].0);
        let from = theirs.partition_point(|(hash, _)| *hash < first);
        let to = theirs.partition_point(|(hash, _)| *hash <= last);
        let wanted: HashSet<u32, FixedState> = group.iter().map(|(hash, _)| *hash).collect();
        let mut others: Vec<Range<u64>> =
            theirs[from..to].iter().filter(|(hash, _)| wanted.contains(hash)).map(|(_, rows)| rows.clone()).collect();
        let own = keys(part, &mut own, range, stats).await?;
        let others = keys(other, &mut others, range, stats).await?;
        let mut pairs: Vec<(u64, &[u64])> = own
            .iter()
            .filter_map(|(key, rows)| Some((rows, others.get(key)?)))
            .flat_map(|(rows, theirs)| rows.iter().map(|row| (*row, &theirs[..theirs.len().min(SAME_KEY_MAX)])))
            .collect();
        pairs.sort_unstable();
        for pairs in pairs.chunks(COMPARED_ROWS) {
            let mine = Rows::read(part, pairs.iter().map(|(row, _)| *row), stats).await?;
            let theirs = Rows::read(other, pairs.iter().flat_map(|(_, rows)| rows.iter().copied()), stats).await?;
            let equal = |a: u64, b: u64| match (mine.get(a), theirs.get(b)) {
                (Some((x, i)), Some((y, j))) => equal_but_received((x, i), (y, j)),
                _ => false,
            };
            out.extend(pairs.iter().filter(|(a, rows)| rows.iter().any(|b| equal(*a, *b))).map(|(a, _)| *a));
        }
    }
    Ok(())
}

/// Adds the rows of a live batch that repeat those of a part.
async fn live_repeated(chunk: &SpanChunk, part: &Part, out: &mut BTreeSet<u32>, stats: &ReadStats) -> Result<()> {
    let range = bounds(part);
    let index = part.span_index(stats).await?;
    let traces = chunk.batch.spans["trace_id"].as_fixed_size_binary();
    let ids = chunk.batch.spans["span_id"].as_fixed_size_binary();
    let starts = chunk.batch.spans["start"].as_primitive::<Int64Type>().values();
    let rows = || (0..starts.len()).filter(|&i| range.0 <= starts[i] && starts[i] <= range.1);
    let wanted: BTreeSet<TraceId> = rows().map(|i| traces.value(i).try_into().unwrap_or_default()).collect();
    let within = index.starts(both(range, chunk.starts).unwrap_or(range));
    let cut = |r: Range<u64>| r.start.max(within.start)..r.end.min(within.end);
    let mut found: Vec<Range<u64>> =
        index.traces(wanted.iter()).into_iter().map(cut).filter(|r| r.start < r.end).collect();
    if found.is_empty() {
        return Ok(());
    }
    let known = keys(part, &mut found, range, stats).await?;
    let key = |i: usize| SpanKey::new(traces.value(i), ids.value(i), starts[i]);
    let few = |rows: &Vec<u64>| rows.len().min(SAME_KEY_MAX);
    let known_of = |i: usize| known.get(&key(i)).map(|rows| &rows[..few(rows)]);
    let pairs: Vec<(usize, &[u64])> = rows().filter_map(|i| Some((i, known_of(i)?))).collect();
    for pairs in pairs.chunks(COMPARED_ROWS) {
        let theirs = Rows::read(part, pairs.iter().flat_map(|(_, rows)| rows.iter().copied()), stats).await?;
        let equal = |i: usize, row: u64| theirs.get(row).is_some_and(|y| equal_but_received((&chunk.batch, i), y));
        out.extend(pairs.iter().filter(|(i, rows)| rows.iter().any(|row| equal(*i, *row))).map(|(i, _)| *i as u32));
    }
    Ok(())
}

/// Rows of a part with all their columns.
struct Rows {
    batches: Vec<SpansBatch>,
    /// By number of the row its batch and place there.
    at: HashMap<u64, (u32, u32), FixedState>,
}

impl Rows {
    async fn read(part: &Part, rows: impl Iterator<Item = u64>, stats: &ReadStats) -> Result<Self> {
        let rows: BTreeSet<u64> = rows.collect();
        let wanted = ranges(rows.into_iter());
        let batches = part.span_batches(&wanted, stats).await?;
        let mut at = HashMap::default();
        for (b, (_, rows)) in placed(&batches, &wanted).into_iter().enumerate() {
            at.extend(rows.into_iter().enumerate().map(|(i, row)| (row, (b as u32, i as u32))));
        }
        Ok(Self { batches, at })
    }

    fn get(&self, row: u64) -> Option<(&SpansBatch, usize)> {
        let (batch, i) = self.at.get(&row)?;
        Some((&self.batches[*batch as usize], *i as usize))
    }
}
