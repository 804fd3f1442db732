//! Spans that were sent more than once: rows that are equal in everything but their received time count once, wherever
//! they are stored. Compaction removes such repeats; until then readers skip them.
//!
//! A row that describes its side of a span differently from an earlier row is kept, but its calls are those of the
//! earlier one. A roll-up of both counts the calls once, and so must separate roll-ups when they are added.
//!
//! `quiver_types::spans::FirstReport` decides which rows report the same span, and which of them is first. If it does
//! not decide between rows of parts, the part with the lower id comes first; and parts come before live spans. Only
//! sources that are close in time are compared, including the days before and after, and within a part only traces that
//! the other one has spans of. The results are cached for each pair of parts.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{Int64Type, UInt8Type, UInt32Type};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quiver_types::spans::{
    FirstReport, RollupBuilder, RollupRow, SHARED, STATUS_ERROR, Side, TraceId, are_one_span, bucket, first_received,
    reports_near,
};
use quiver_types::tables::spans;
use quiver_types::time::day_of;
use quiver_types::{ReadStats, SpansBatch};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};
use crate::lru::Lru;
use crate::memtable::spans::{ChunkRepeats, SpanChunk};
use crate::part::spans::{SpanIndex, equal_but_received, roll_up};
use crate::part::{Part, PartId, PartMeta};
use crate::snapshot::Snapshot;

/// Size of each of the three caches.
const KEPT_BYTES: u64 = 4 << 20;
/// Rows that are compared in one step.
const STEP_ROWS: u64 = 64 * 1024;
/// Rows that are compared with all their columns at once.
const COMPARED_ROWS: usize = 4096;
/// Maximum number of rows under one key that are compared.
const SAME_KEY_MAX: usize = 16;

/// A part in the context of others: its id, and a hash of the others' ids or of what was found in its rows.
type Beside = (PartId, u64);

/// What was found about the rows of a part in the context of others: ascending ranges; no row is in both lists.
#[derive(Debug, Default)]
pub(crate) struct PartRepeats {
    /// Rows that repeat an earlier row.
    pub(crate) rows: Vec<Range<u64>>,
    /// Other rows for whose side of the span there is an earlier report.
    reported: Vec<Range<u64>>,
}

impl PartRepeats {
    fn of(marked: DuplicateRows<u64>) -> Self {
        let (rows, reported) = marked.lists();
        Self { rows: ranges(rows.into_iter()), reported: ranges(reported.into_iter()) }
    }

    fn bytes(&self) -> u64 {
        64 + 16 * (self.rows.len() + self.reported.len()) as u64
    }

    /// A hash of the result.
    fn signature(&self) -> u64 {
        let bounds = |list: &[Range<u64>]| list.iter().flat_map(|r| [r.start, r.end]).collect::<Vec<u64>>();
        let (rows, reported) = (bounds(&self.rows), bounds(&self.reported));
        let all = std::iter::once(rows.len() as u64).chain(rows).chain(reported);
        xxh3_64(&all.flat_map(u64::to_be_bytes).collect::<Vec<u8>>())
    }
}

/// Finds repeats and caches the results.
#[derive(Debug)]
pub(crate) struct Repeats {
    /// Results for a part in the context of all others near it in time.
    rows: Lru<Beside, Arc<PartRepeats>>,
    /// Results for the first part in the context of the second.
    pairs: Lru<(PartId, PartId), Arc<PartRepeats>>,
    corrections: Lru<Beside, Arc<Correction>>,
}

/// Corrects the roll-up of a part for rows that are repeats.
#[derive(Debug, Default)]
pub(crate) struct Correction {
    /// Entries to subtract, and entries to add.
    pub(crate) minus: Vec<RollupRow>,
    pub(crate) plus: Vec<RollupRow>,
}

impl Default for Repeats {
    fn default() -> Self {
        let (rows, pairs) = (Lru::new(KEPT_BYTES, 1), Lru::new(KEPT_BYTES, 1));
        Self { rows, pairs, corrections: Lru::new(KEPT_BYTES, 1) }
    }
}

/// Range of possible start times of a part's rows, in nanoseconds.
fn bounds(part: &Part) -> (i64, i64) {
    let ns = |ms: i64| ms.saturating_mul(1_000_000);
    (ns(part.meta.min_ts), ns(part.meta.max_ts.saturating_add(1)) - 1)
}

fn overlap(a: (i64, i64), b: (i64, i64)) -> Option<(i64, i64)> {
    let range = (a.0.max(b.0), a.1.min(b.1));
    (range.0 <= range.1).then_some(range)
}

/// Tells whether two parts may have spans of a common service; otherwise they cannot have repeats.
fn may_share(a: &PartMeta, b: &PartMeta) -> bool {
    a.services_all || b.services_all || a.services.iter().any(|s| b.services.contains(s))
}

/// The parts that may have rows near a time range.
fn parts_near(snapshot: &Snapshot, range: (i64, i64)) -> impl Iterator<Item = &Arc<Part>> {
    let all = snapshot.visible.table(spans::TABLE.name);
    let day = |ns: i64| day_of(ns.div_euclid(1_000_000));
    let range = reports_near(range);
    let from = all.partition_point(|p| p.meta.day < day(range.0));
    let to = all.partition_point(|p| p.meta.day <= day(range.1));
    all[from..to].iter().filter(move |p| overlap(bounds(p), range).is_some())
}

fn signature<'p>(ids: impl Iterator<Item = &'p [u8]>) -> u64 {
    xxh3_64(&ids.flatten().copied().collect::<Vec<u8>>())
}

impl Repeats {
    /// The rows of a part that repeat rows of other parts in the snapshot, or that are not the first reports of their
    /// spans.
    pub(crate) async fn of_part(&self, snapshot: &Snapshot, part: &Part, stats: &ReadStats) -> Result<PartDuplicates> {
        let others = parts_near(snapshot, bounds(part));
        let others = others.filter(|p| p.meta.id != part.meta.id && may_share(&p.meta, &part.meta));
        let others: Vec<&Arc<Part>> = others.collect();
        let beside = (part.meta.id, signature(others.iter().map(|p| &p.meta.id.as_bytes()[..])));
        if others.is_empty() {
            return Ok(PartDuplicates::new(part, Arc::default()));
        }
        if let Some(repeats) = self.rows.get(&beside) {
            return Ok(PartDuplicates::new(part, repeats));
        }
        let mut marked = DuplicateRows::default();
        for other in others {
            match self.of_pair(part, other, stats).await {
                Ok(found) => marked.add(&found),
                Err(error) => {
                    // Queries that read that part report the error; others must not fail because of it.
                    tracing::warn!(part = %other.meta.id, %error, "cannot compare a part of spans with another");
                    return Ok(PartDuplicates::new(part, Arc::default()));
                }
            }
        }
        let repeats = Arc::new(PartRepeats::of(marked));
        self.rows.insert(beside, Arc::clone(&repeats), repeats.bytes());
        Ok(PartDuplicates::new(part, repeats))
    }

    /// Like `of_part`, compared with only one other part.
    async fn of_pair(&self, part: &Part, other: &Part, stats: &ReadStats) -> Result<Arc<PartRepeats>> {
        let pair = (part.meta.id, other.meta.id);
        if let Some(known) = self.pairs.get(&pair) {
            return Ok(known);
        }
        let mut marked = DuplicateRows::default();
        repeated(part, other, &mut marked, stats).await?;
        let found = Arc::new(PartRepeats::of(marked));
        self.pairs.insert(pair, Arc::clone(&found), found.bytes());
        Ok(found)
    }

    /// The correction of the roll-up of a part with repeats.
    pub(crate) async fn correction(
        &self,
        part: &Part,
        found: &PartDuplicates,
        stats: &ReadStats,
    ) -> Result<Arc<Correction>> {
        if let Some(known) = self.corrections.get(&found.beside) {
            return Ok(known);
        }
        let index = part.span_index(stats).await?;
        let PartRepeats { rows: repeated, reported } = &*found.repeats;
        let touched = |rows: &Range<u64>| overlaps(repeated, rows) || overlaps(reported, rows);
        let hashes: HashSet<u32> = index.entries().filter(|(_, rows)| touched(rows)).map(|(hash, _)| hash).collect();
        let entries: Vec<(u32, Range<u64>)> = index.entries().filter(|(hash, _)| hashes.contains(hash)).collect();
        let mut correction = Correction::default();
        for group in steps(&entries) {
            let mut rows: Vec<Range<u64>> = group.iter().map(|(_, rows)| rows.clone()).collect();
            rows.sort_unstable_by_key(|r| r.start);
            let batches = part.span_batches(&rows, stats).await?;
            correction.minus.extend(roll_up(&batches)?);
            let (mut kept, mut counted) = (Vec::new(), RollupBuilder::default());
            for (batch, at) in placed(&batches, &rows) {
                let known: Vec<bool> = at.iter().map(|row| contains(reported, *row)).collect();
                let keep: Vec<bool> =
                    at.iter().zip(&known).map(|(row, known)| !known && !contains(repeated, *row)).collect();
                kept.push(without(batch, &keep)?);
                push(&mut counted, &without(batch, &known)?, false)?;
            }
            correction.plus.extend(roll_up(&kept)?);
            correction.plus.extend(counted.rows(|_| true));
        }
        let correction = Arc::new(correction);
        let bytes = 64 + 400 * (correction.minus.len() + correction.plus.len()) as u64;
        self.corrections.insert(found.beside, Arc::clone(&correction), bytes);
        Ok(correction)
    }

    /// The rows of a live batch that repeat earlier ones, and those for which parts have other reports. `generation` is
    /// the index of its generation in the snapshot.
    pub(crate) async fn of_chunk(
        &self,
        snapshot: &Snapshot,
        generation: usize,
        chunk: &SpanChunk,
        stats: &ReadStats,
    ) -> Result<Arc<ChunkRepeats>> {
        let parts: Vec<&Arc<Part>> = parts_near(snapshot, chunk.starts).collect();
        let before = &snapshot.visible.generations[..generation.min(snapshot.visible.generations.len())];
        let before: Vec<_> = before.iter().filter(|g| g.spans() > 0).collect();
        let numbers: Vec<[u8; 8]> = before.iter().map(|g| g.number.to_be_bytes()).collect();
        let ids = parts.iter().map(|p| &p.meta.id.as_bytes()[..]);
        let ids = ids.chain(before.iter().map(|g| &g.writer.as_bytes()[..])).chain(numbers.iter().map(|n| &n[..]));
        let signature = signature(ids);
        if let Some(known) = chunk.repeats(signature) {
            return Ok(known);
        }
        let mut marked =
            DuplicateRows { repeated: chunk.repeated.iter().copied().collect(), reported: BTreeSet::new() };
        for g in &before {
            g.span_repeats(chunk, &mut marked.repeated);
        }
        let mut whole = true;
        for part in parts {
            if let Err(error) = live_repeated(chunk, part, &mut marked, stats).await {
                tracing::warn!(part = %part.meta.id, %error, "cannot compare live spans with a part");
                whole = false;
            }
        }
        let (rows, reported) = marked.lists();
        let found = Arc::new(ChunkRepeats { rows, reported });
        if whole {
            chunk.keep_repeats(signature, &found);
        }
        Ok(found)
    }
}

/// Repeats of a part in the context of others.
#[derive(Debug)]
pub(crate) struct PartDuplicates {
    /// The part and a hash of what was found: what is derived from it stays valid if other parts are added without
    /// changing it.
    beside: Beside,
    pub(crate) repeats: Arc<PartRepeats>,
}

impl PartDuplicates {
    fn new(part: &Part, repeats: Arc<PartRepeats>) -> Self {
        Self { beside: (part.meta.id, repeats.signature()), repeats }
    }

    /// Tells whether the roll-up of the part needs no correction.
    pub(crate) fn is_empty(&self) -> bool {
        self.repeats.rows.is_empty() && self.repeats.reported.is_empty()
    }
}

/// Adds spans to a roll-up, with or without their calls.
pub(super) fn push(builder: &mut RollupBuilder, batch: &SpansBatch, calls: bool) -> Result<()> {
    let SpansBatch { spans, contexts } = batch;
    let of = spans["context"].as_primitive::<UInt32Type>().values();
    let attributes = spans["attributes"].as_binary::<i32>();
    builder.push_spans(spans, contexts, of, |i| attributes.value(i), calls)?;
    Ok(())
}

/// A row of a batch.
type At<'b> = (&'b SpansBatch, usize);

/// Tells whether two rows report the same side of a span.
fn same_side(a: At<'_>, b: At<'_>) -> bool {
    side(a) == side(b)
}

/// The service of a row, and the end of a call that it stands for.
fn side((batch, row): At<'_>) -> (&str, Side) {
    let small = |name: &str| batch.spans[name].as_primitive::<UInt8Type>().value(row);
    let (kind, shared) = (small("kind"), small("marks") & SHARED != 0);
    let context = batch.spans["context"].as_primitive::<UInt32Type>().value(row) as usize;
    let service = batch.contexts["service"].as_string::<i32>().value(context);
    (service, Side::of(kind, shared))
}

/// The data that decides whether a row is the first report of its side of a span.
fn report((batch, row): At<'_>) -> FirstReport {
    let time = |name: &str| batch.spans[name].as_primitive::<Int64Type>().value(row);
    let small = |name: &str| batch.spans[name].as_primitive::<UInt8Type>().value(row);
    let (start, received) = (time("start"), first_received(time("received"), small("marks")));
    (received, start, bucket(time("end").saturating_sub(start)), small("status") == STATUS_ERROR)
}

/// Rows found so far.
#[derive(Debug, Default)]
struct DuplicateRows<N> {
    repeated: BTreeSet<N>,
    reported: BTreeSet<N>,
}

impl<N: Ord + Copy> DuplicateRows<N> {
    /// Records how a row relates to rows of another part. `is_first` is given a report from there and the one of this
    /// row, and tells whether the former comes first.
    fn note(
        &mut self,
        row: N,
        here: At<'_>,
        [same_start, any]: Candidates<'_>,
        others: &Rows,
        is_first: impl Fn(&FirstReport, &FirstReport) -> bool,
    ) {
        let this = report(here);
        let has = |list: &[(i64, u64)], is: fn(At<'_>, At<'_>) -> bool| {
            list.iter().any(|(start, other)| {
                let there = others.get(*other).filter(|_| are_one_span(this.1, *start));
                there.is_some_and(|there| is(here, there) && is_first(&report(there), &this))
            })
        };
        if has(same_start, equal_but_received) {
            self.repeated.insert(row);
        } else if has(same_start, same_side) || has(any, same_side) {
            self.reported.insert(row);
        }
    }

    /// The rows that are repeats, and those that were only reported before.
    fn lists(self) -> (Vec<N>, Vec<N>) {
        let reported = self.reported.difference(&self.repeated).copied().collect();
        (self.repeated.into_iter().collect(), reported)
    }
}

impl DuplicateRows<u64> {
    fn add(&mut self, found: &PartRepeats) {
        self.repeated.extend(found.rows.iter().cloned().flatten());
        self.reported.extend(found.reported.iter().cloned().flatten());
    }
}

fn contains(ranges: &[Range<u64>], row: u64) -> bool {
    overlaps(ranges, &(row..row + 1))
}

fn overlaps(ranges: &[Range<u64>], rows: &Range<u64>) -> bool {
    let at = ranges.partition_point(|r| r.end <= rows.start);
    ranges.get(at).is_some_and(|r| r.start < rows.end)
}

/// Joins ascending rows into ranges.
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

/// Splits entries, which are sorted by hash, into groups of about [`STEP_ROWS`] rows; equal hashes stay together.
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

/// Pairs each batch read from some ranges with the numbers of its rows.
fn placed<'b>(batches: &'b [SpansBatch], read: &[Range<u64>]) -> Vec<(&'b SpansBatch, Vec<u64>)> {
    let mut rows = read.iter().cloned().flatten();
    batches.iter().map(|batch| (batch, rows.by_ref().take(batch.len()).collect())).collect()
}

/// Removes rows from a batch.
pub(super) fn without(batch: &SpansBatch, keep: &[bool]) -> Result<SpansBatch> {
    let spans = arrow::compute::filter_record_batch(&batch.spans, &keep.to_vec().into())
        .map_err(|e| Error::internal("cannot leave out spans").with_source(e))?;
    Ok(SpansBatch { spans, contexts: batch.contexts.clone() })
}

/// Trace id and span id.
type Ids = (u128, u64);

fn ids_of(trace: &[u8], span: &[u8]) -> Ids {
    let (trace, span) = (trace.try_into().unwrap_or_default(), span.try_into().unwrap_or_default());
    (u128::from_be_bytes(trace), u64::from_be_bytes(span))
}

/// For each span of a part, start times and row numbers of its reports, ascending.
type SpanReports = HashMap<Ids, Vec<(i64, u64)>, FixedState>;

/// The reports of a span that a row is compared with: those with the same start, and any others; a few of each.
type Candidates<'r> = [&'r [(i64, u64)]; 2];

fn candidates(reports: &[(i64, u64)], start: i64) -> Candidates<'_> {
    let from = reports.partition_point(|report| report.0 < start);
    let until = reports.partition_point(|report| report.0 <= start);
    [&reports[from..until], reports].map(|list| &list[..list.len().min(SAME_KEY_MAX)])
}

/// Row numbers of candidates.
fn rows_of<'r>(lists: impl Iterator<Item = Candidates<'r>>) -> BTreeSet<u64> {
    lists.flatten().flatten().map(|(_, row)| *row).collect()
}

/// Reads the keys of a part's rows whose start lies in a range. `rows` may be in any order; they are sorted and
/// deduplicated.
async fn keys(part: &Part, rows: &mut Vec<Range<u64>>, range: (i64, i64), stats: &ReadStats) -> Result<SpanReports> {
    rows.sort_unstable_by_key(|r| r.start);
    rows.dedup();
    let read = part.span_rows(rows, &["trace_id", "span_id", "start_time"], stats).await?;
    let mut numbers = rows.iter().cloned().flatten();
    let mut out = SpanReports::default();
    for batch in &read {
        let (Some(traces), Some(ids)) = (batch.ids("trace_id"), batch.ids("span_id")) else {
            return Err(Error::internal("a part of spans lacks its ids"));
        };
        let starts = batch.starts()?;
        for (i, row) in numbers.by_ref().take(batch.len()).enumerate() {
            if range.0 <= starts[i] && starts[i] <= range.1 {
                out.entry(ids_of(traces.value(i), ids.value(i))).or_default().push((starts[i], row));
            }
        }
    }
    out.values_mut().for_each(|reports| reports.sort_unstable());
    Ok(out)
}

/// Finds the rows of a part that repeat rows of another part, or report the same.
async fn repeated(part: &Part, other: &Part, out: &mut DuplicateRows<u64>, stats: &ReadStats) -> Result<()> {
    let (mine, theirs) = (bounds(part), bounds(other));
    let Some(range) = overlap(reports_near(mine), reports_near(theirs)) else { return Ok(()) };
    let lower = other.meta.id < part.meta.id;
    let is_first = |there: &FirstReport, this: &FirstReport| there < this || there == this && lower;
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
        let mut pairs: Vec<(u64, Candidates<'_>)> = own
            .iter()
            .filter_map(|(ids, reports)| Some((reports, others.get(ids)?)))
            .flat_map(|(reports, theirs)| reports.iter().map(move |(start, row)| (*row, candidates(theirs, *start))))
            .collect();
        pairs.sort_unstable_by_key(|pair| pair.0);
        for pairs in pairs.chunks(COMPARED_ROWS) {
            let mine = Rows::read(part, pairs.iter().map(|(row, _)| *row).collect(), stats).await?;
            let theirs = Rows::read(other, rows_of(pairs.iter().map(|(_, lists)| *lists)), stats).await?;
            for (row, lists) in pairs {
                if let Some(here) = mine.get(*row) {
                    out.note(*row, here, *lists, &theirs, is_first);
                }
            }
        }
    }
    Ok(())
}

/// Finds the rows of a live batch that repeat rows of a part, or report the same.
async fn live_repeated(chunk: &SpanChunk, part: &Part, out: &mut DuplicateRows<u32>, stats: &ReadStats) -> Result<()> {
    let range = reports_near(bounds(part));
    let index = part.span_index(stats).await?;
    let traces = chunk.batch.spans["trace_id"].as_fixed_size_binary();
    let ids = chunk.batch.spans["span_id"].as_fixed_size_binary();
    let starts = chunk.batch.spans["start"].as_primitive::<Int64Type>().values();
    let rows = || (0..starts.len()).filter(|&i| range.0 <= starts[i] && starts[i] <= range.1);
    let wanted: BTreeSet<TraceId> = rows().map(|i| traces.value(i).try_into().unwrap_or_default()).collect();
    let within = index.starts(overlap(range, reports_near(chunk.starts)).unwrap_or(range));
    let cut = |r: Range<u64>| r.start.max(within.start)..r.end.min(within.end);
    let mut found: Vec<Range<u64>> =
        index.traces(wanted.iter()).into_iter().map(cut).filter(|r| r.start < r.end).collect();
    if found.is_empty() {
        return Ok(());
    }
    let known = keys(part, &mut found, range, stats).await?;
    let reports_of = |i: usize| known.get(&ids_of(traces.value(i), ids.value(i)));
    let pairs: Vec<(usize, Candidates<'_>)> =
        rows().filter_map(|i| Some((i, candidates(reports_of(i)?, starts[i])))).collect();
    for pairs in pairs.chunks(COMPARED_ROWS) {
        let theirs = Rows::read(part, rows_of(pairs.iter().map(|(_, lists)| *lists)), stats).await?;
        for (i, lists) in pairs {
            out.note(*i as u32, (&chunk.batch, *i), *lists, &theirs, |_, _| true);
        }
    }
    Ok(())
}

/// Rows of a part with all columns.
struct Rows {
    batches: Vec<SpansBatch>,
    /// For each row number, the batch and the index within it.
    at: HashMap<u64, (u32, u32), FixedState>,
}

impl Rows {
    async fn read(part: &Part, rows: BTreeSet<u64>, stats: &ReadStats) -> Result<Self> {
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

#[cfg(test)]
mod tests;
