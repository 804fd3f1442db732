//! Merges parts: a k-way merge streams the sorted inputs, one series at a time, into new parts. Memory: one row group
//! of each open file, the current series, the tables of series of the outputs, and the encoded data that the writers hold.
//!
//! Every row that the catalog counts in the inputs must be read, and every row that is kept must be counted in the
//! outputs; otherwise nothing is committed.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use quiver_types::tables::{logs, metric_metadata, metrics, spans};
use quiver_types::{Millis, MillisRange, ReadStats};

use super::output::{begin_output, same_rows};
use super::plan::Plan;
use super::spans::merge_spans;
use crate::core::{Core, Job};
use crate::error::{Error, Result};
use crate::failpoint;
use crate::metric_metadata_rows::{metadata_batch, metadata_rows, newest_rows};
use crate::part::{Part, PartId, PartMeta, PartOrigin, PartWriter, RowPieces, RunReader, write_rows_part};
use crate::series_run::SeriesRun;

/// Merges the inputs of a plan. Returns the new parts, with files synced and keys pending.
pub(super) async fn merge(core: &Core, job: &Job, plan: &Plan, inputs: &[Arc<Part>]) -> Result<Vec<PartMeta>> {
    let outputs = if plan.table == metrics::TABLE.name {
        merge_series(core, job, plan, inputs).await?
    } else if plan.table == logs::TABLE.name {
        super::logs::merge(core, job, plan, inputs).await?
    } else if plan.table == spans::TABLE.name {
        merge_spans(core, job, plan, inputs).await?
    } else if plan.table == metric_metadata::TABLE.name {
        vec![merge_metadata(core, job, plan, inputs).await?]
    } else {
        vec![super::rows::merge_rows(core, job, plan, inputs).await?]
    };
    for output in &outputs {
        confirm(core, output).await?;
    }
    Ok(outputs)
}

/// Reads back what was written, as a reader would: verifies all checksums, and that the index has all rows. The inputs
/// are deleted on the basis of this check.
pub(super) async fn confirm(core: &Core, output: &PartMeta) -> Result<()> {
    let (part, stats) = (core.part(output.clone()), ReadStats::default());
    part.verify().await?;
    let found = if output.table == metrics::TABLE.name {
        part.confirm_series(&stats).await?
    } else if output.table == logs::TABLE.name {
        super::logs::confirm(&part).await?
    } else if output.table == spans::TABLE.name {
        part.span_index(&stats).await?.total
    } else {
        count_rows(&part, &stats).await?
    };
    let expected = if output.table == metrics::TABLE.name { output.series } else { output.rows };
    if found == expected {
        return Ok(());
    }
    Err(Error::internal(format!("part `{}` was written with {expected} series or rows and holds {found}", output.id)))
}

/// Counts the rows of a part of a table without series, by reading them.
async fn count_rows(part: &Part, stats: &ReadStats) -> Result<u64> {
    const PIECE_ROWS: u64 = 8192;
    const PIECE_BYTES: u64 = 16 << 20;
    let Some(mut pieces) = RowPieces::open(part, stats).await? else { return Ok(0) };
    let mut found = 0;
    while !pieces.is_read() {
        let read = pieces.read(PIECE_ROWS, PIECE_BYTES, None, stats).await?;
        found += read.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
    }
    Ok(found)
}

async fn merge_metadata(core: &Core, job: &Job, plan: &Plan, inputs: &[Arc<Part>]) -> Result<PartMeta> {
    let mut rows = Vec::new();
    for input in inputs {
        let batches = input.rows(&ReadStats::default()).await?;
        let found: u64 = batches.iter().map(|b| b.num_rows() as u64).sum();
        same_rows(input, "rows", input.meta.rows, found)?;
        for batch in &batches {
            rows.extend(metadata_rows(batch)?);
        }
        rows = newest_rows(rows);
    }
    let spec = begin_output(core, job, plan, inputs, 0).await?;
    let meta = write_rows_part(&core.output.root, spec, &metadata_batch(&rows)?)?;
    failpoint::hit("compact.after-part");
    Ok(meta)
}

/// Numbers of rows of samples, histograms and exemplars.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts([u64; 3]);

const KINDS: [&str; 3] = ["samples", "histograms", "exemplars"];

impl Counts {
    fn add(&mut self, run: &SeriesRun) {
        for (sum, n) in self.0.iter_mut().zip([run.samples.len(), run.hists.len(), run.exemplars.len()]) {
            *sum += n as u64;
        }
    }

    fn of(meta: &PartMeta) -> Self {
        Self(KINDS.map(|kind| meta.file(kind).map_or(0, |f| f.rows)))
    }

    fn plus(self, other: Self) -> Self {
        Self([0, 1, 2].map(|i| self.0[i] + other.0[i]))
    }
}

/// A sorted stream of series: one part, or all outputs of an earlier compaction in sequence.
struct Source {
    part: Arc<Part>,
    reader: RunReader,
    rest: VecDeque<Arc<Part>>,
    counts: Counts,
    read: Counts,
}

impl Source {
    fn new(mut parts: VecDeque<Arc<Part>>) -> Option<Self> {
        let part = parts.pop_front()?;
        let reader = part.runs();
        Some(Self { part, reader, rest: parts, counts: Counts::default(), read: Counts::default() })
    }

    async fn next(&mut self) -> Result<Option<SeriesRun>> {
        loop {
            if let Some(run) = self.reader.next().await? {
                self.counts.add(&run);
                return Ok(Some(run));
            }
            let expected = Counts::of(&self.part.meta);
            for (i, kind) in KINDS.iter().enumerate() {
                same_rows(&self.part, kind, expected.0[i], self.counts.0[i])?;
            }
            self.read = self.read.plus(std::mem::take(&mut self.counts));
            let Some(next) = self.rest.pop_front() else { return Ok(None) };
            self.reader = next.runs();
            self.part = next;
        }
    }
}

/// Chains parts that do not overlap into one source, in series order.
async fn sources(inputs: &[Arc<Part>]) -> Result<Vec<Source>> {
    let mut chains: HashMap<PartId, Vec<Arc<Part>>> = HashMap::new();
    for part in inputs {
        let chain = match &part.meta.origin {
            PartOrigin::Compacted { compaction_id, .. } if part.meta.level >= 2 => *compaction_id,
            _ => part.meta.id,
        };
        chains.entry(chain).or_default().push(Arc::clone(part));
    }
    let mut sources = Vec::with_capacity(chains.len());
    for (_, parts) in chains {
        let mut keyed = Vec::with_capacity(parts.len());
        let alone = parts.len() == 1;
        for part in parts {
            let first = if alone { None } else { Some(part.label_set(0, &ReadStats::default()).await?) };
            keyed.push((first, part));
        }
        keyed.sort_by(|a, b| match (&a.0, &b.0) {
            (Some(a), Some(b)) => a.cmp_series(b),
            _ => Ordering::Equal,
        });
        sources.extend(Source::new(keyed.into_iter().map(|(_, part)| part).collect()));
    }
    Ok(sources)
}

/// The next series of a source. Ordered so that the heap yields the smallest label set first.
struct Head {
    run: SeriesRun,
    source: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        other.run.labels.cmp_series(&self.run.labels).then(other.source.cmp(&self.source))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

async fn merge_series(core: &Core, job: &Job, plan: &Plan, inputs: &[Arc<Part>]) -> Result<Vec<PartMeta>> {
    let mut sources = sources(inputs).await?;
    let mut heap = BinaryHeap::with_capacity(sources.len());
    for (source, stream) in sources.iter_mut().enumerate() {
        heap.extend(stream.next().await?.map(|run| Head { run, source }));
    }
    let mut outputs = Outputs::new(core, job, plan, inputs);
    let mut kept = Counts::default();
    while let Some(Head { mut run, source }) = heap.pop() {
        heap.extend(sources[source].next().await?.map(|run| Head { run, source }));
        while heap.peek().is_some_and(|next| next.run.labels == run.labels) {
            let Some(Head { run: other, source }) = heap.pop() else { break };
            heap.extend(sources[source].next().await?.map(|run| Head { run, source }));
            run.merge(other);
        }
        kept.add(&run);
        outputs.push(&run).await?;
        failpoint::hit("compact.in-merge");
        core.may_compact()?;
    }
    let read = sources.iter().fold(Counts::default(), |sum, s| sum.plus(s.read));
    let outputs = outputs.finish()?;
    let written = outputs.iter().fold(Counts::default(), |sum, o| sum.plus(Counts::of(o)));
    let less = (0..3).any(|i| written.0[i] > read.0[i]);
    if written != kept || less {
        let text = format!("a compaction read {read:?} rows, kept {kept:?} and wrote {written:?}");
        return Err(Error::internal(text));
    }
    Ok(outputs)
}

/// The parts being written: one per time window, or one after the other.
struct Outputs<'a> {
    core: &'a Core,
    job: &'a Job,
    plan: &'a Plan,
    inputs: &'a [Arc<Part>],
    open: BTreeMap<Millis, PartWriter>,
    rows: u64,
    rows_max: u64,
    /// Outputs end when the tables of their series take so much memory.
    tables_max: usize,
    /// Bytes of labels since the tables were last measured.
    unmeasured: usize,
    done: Vec<PartMeta>,
}

impl<'a> Outputs<'a> {
    fn new(core: &'a Core, job: &'a Job, plan: &'a Plan, inputs: &'a [Arc<Part>]) -> Self {
        let sum = |of: fn(&PartMeta) -> u64| inputs.iter().map(|p| of(&p.meta)).sum::<u64>().max(1);
        let (rows, bytes) = (sum(|m| m.rows), sum(|m| m.bytes));
        // Estimated from the inputs' bytes per row, which outputs rarely exceed.
        let rows_max = plan.rows_max(core.settings.compaction.part_bytes, rows, bytes);
        let tables_max = usize::try_from(core.settings.compaction_memory_bytes()).unwrap_or(usize::MAX);
        let (open, done) = (BTreeMap::new(), Vec::new());
        Self { core, job, plan, inputs, open, rows: 0, rows_max, tables_max, unmeasured: 0, done }
    }

    async fn push(&mut self, run: &SeriesRun) -> Result<()> {
        self.unmeasured += run.labels.canonical().len();
        if self.rows >= self.rows_max || self.has_large_tables() {
            self.close()?;
        }
        self.rows += run.rows() as u64;
        let Some(range) = run.time_range() else { return Ok(()) };
        let Some(window_ms) = self.plan.window_ms else { return self.write(0, run).await };
        let (first, last) = (range.min.div_euclid(window_ms), range.max.div_euclid(window_ms));
        if first == last {
            return self.write(first * window_ms, run).await;
        }
        for window in first..=last {
            let start = window * window_ms;
            let piece = cut(run, MillisRange::new(start, start + window_ms - 1));
            if !piece.is_empty() {
                self.write(start, &piece).await?;
            }
        }
        Ok(())
    }

    /// Says whether the tables take too much memory, and outputs may end for that: those of level 1 must be fewer than half
    /// of their inputs, or they would be merged again and again.
    fn has_large_tables(&mut self) -> bool {
        if self.unmeasured < self.tables_max / 8 {
            return false;
        }
        self.unmeasured = 0;
        let outputs = self.done.len() + 2 * self.open.len();
        let may_end = self.plan.level >= 2 || outputs <= self.inputs.len() / 2;
        may_end && self.open.values().map(PartWriter::table_bytes).sum::<usize>() >= self.tables_max
    }

    async fn write(&mut self, window: Millis, run: &SeriesRun) -> Result<()> {
        if !self.open.contains_key(&window) {
            let spec = begin_output(self.core, self.job, self.plan, self.inputs, window).await?;
            self.open.insert(window, PartWriter::metrics(&self.core.output.root, spec));
        }
        match self.open.get_mut(&window) {
            Some(writer) => writer.push(run),
            None => Ok(()),
        }
    }

    fn close(&mut self) -> Result<()> {
        for (_, writer) in std::mem::take(&mut self.open) {
            self.done.push(writer.finish()?);
            failpoint::hit("compact.after-part");
        }
        self.rows = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<PartMeta>> {
        self.close()?;
        Ok(self.done)
    }
}

/// Copies the data that lies within a range.
fn cut(run: &SeriesRun, range: MillisRange) -> SeriesRun {
    let mut hists = run.hists.clone();
    hists.cut(range);
    SeriesRun {
        labels: run.labels.clone(),
        id: run.id,
        service: Arc::clone(&run.service),
        samples: run.samples.slice(range),
        hists,
        exemplars: run.exemplars.iter().filter(|e| range.contains(e.ts)).cloned().collect(),
    }
}
