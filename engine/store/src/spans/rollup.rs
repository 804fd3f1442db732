//! The table of roll-ups: those of parts as they were written, and one of the live spans, which is extended as they
//! arrive.

use std::fmt;
use std::sync::Arc;
use std::vec::IntoIter;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use quiver_types::read_stats::add;
use quiver_types::scan::{
    PlannedScan, ScanBatches, ScanMemory, ScanShape, ScanSource, ScanTask, ScanText, batch_bytes,
};
use quiver_types::spans::{
    Counts, RollupBuilder, RollupKind, RollupRequest, RollupRow, RollupRows, RollupSum, rollup_batch, rollup_schema,
};
use quiver_types::tables::spans;
use quiver_types::{Access, ReadStats, SpansBatch};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::duplicates::{Correction, Repeats, push, without};
use super::planned_scan::{BatchTrimmer, projected, write_end};
use crate::error::{Context, Result, leave_out};
use crate::memtable::GenerationId;
use crate::part::Part;
use crate::snapshot::{Snapshot, SnapshotForm};

/// With more live spans than this, their roll-up is not kept between queries.
const KEPT_SPANS_MAX: usize = 1_000_000;

/// Estimated minimum size of a roll-up row in a file.
const ROW_BYTES: u64 = 4;

/// Estimated memory of a roll-up row of live spans, besides its size in a batch.
const LIVE_ROW_BYTES: usize = 384;

/// The roll-up of the live spans, with the generations and the number of batches of each that it covers.
#[derive(Debug, Default)]
pub(crate) struct LiveRollup(Mutex<LiveRollupState>);

#[derive(Debug, Default)]
struct LiveRollupState {
    pushed: Vec<(GenerationId, usize)>,
    builder: RollupBuilder,
    spans: usize,
}

impl LiveRollup {
    /// The roll-up rows of a snapshot's live spans; reserves memory for them first.
    async fn rows(
        &self,
        snapshot: &Snapshot,
        repeats: &Repeats,
        wanted: impl Fn(RollupKind) -> bool,
        memory: &dyn ScanMemory,
        stats: &ReadStats,
    ) -> Result<Vec<RollupRow>> {
        let all = (i64::MIN, i64::MAX);
        let views = snapshot.visible.generations.iter().enumerate();
        let views = views.map(|(n, g)| (n, g.id(), g.span_view(all, snapshot.seq)));
        let views: Vec<_> = views.filter(|(_, _, chunks)| !chunks.is_empty()).collect();
        if !views.is_empty() {
            // Requests that are served from memory stay on the caller's thread; yield before counting live spans, which
            // may be many.
            tokio::task::yield_now().await;
        }
        let mut kept = self.0.lock().await;
        let goes_on = kept.pushed.len() == views.len()
            && kept.pushed.iter().zip(&views).all(|((id, n), (_, now, chunks))| id == now && *n <= chunks.len());
        if !goes_on {
            *kept = LiveRollupState {
                pushed: views.iter().map(|(_, id, _)| (*id, 0)).collect(),
                ..LiveRollupState::default()
            };
        }
        for (n, (generation, _, chunks)) in views.iter().enumerate() {
            let done = kept.pushed[n].1;
            for chunk in &chunks[done..] {
                let found = repeats.of_chunk(snapshot, *generation, chunk, stats).await?;
                if found.rows.is_empty() && found.reported.is_empty() {
                    kept.push(&chunk.batch, true)?;
                } else {
                    let rows = chunk.batch.len();
                    let (mut keep, mut reported) = (vec![true; rows], vec![false; rows]);
                    found.rows.iter().chain(&found.reported).for_each(|&row| keep[row as usize] = false);
                    found.reported.iter().for_each(|&row| reported[row as usize] = true);
                    kept.push(&without(&chunk.batch, &keep)?, true)?;
                    kept.push(&without(&chunk.batch, &reported)?, false)?;
                }
                kept.pushed[n].1 += 1;
            }
        }
        let room = memory.try_resize(kept.builder.rows_max(&wanted) * LIVE_ROW_BYTES);
        let rows = room.map(|()| kept.builder.rows(wanted));
        if kept.spans > KEPT_SPANS_MAX {
            *kept = LiveRollupState::default();
        }
        rows
    }
}

impl LiveRollupState {
    fn push(&mut self, batch: &SpansBatch, calls: bool) -> Result<()> {
        push(&mut self.builder, batch, calls)?;
        self.spans += batch.len();
        Ok(())
    }
}

/// What a scan of roll-ups reads.
struct Scan {
    snapshot: Snapshot,
    live: Arc<LiveRollup>,
    repeats: Arc<Repeats>,
    access: Access,
    request: RollupRequest,
    /// Derived from the request once.
    ranges: Vec<(RollupKind, (i64, i64))>,
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rollups").field("request", &self.request).finish_non_exhaustive()
    }
}

impl Scan {
    fn new(
        snapshot: &Snapshot,
        (live, repeats): (&Arc<LiveRollup>, &Arc<Repeats>),
        access: &Access,
        request: RollupRequest,
    ) -> Self {
        let (snapshot, access, ranges) = (snapshot.clone(), access.clone(), request.ranges());
        Self { snapshot, live: Arc::clone(live), repeats: Arc::clone(repeats), access, request, ranges }
    }

    fn wants(&self, kind: RollupKind, minute: i64) -> bool {
        self.ranges.iter().any(|(k, (from, to))| *k == kind && (*from..=*to).contains(&minute))
    }

    fn parts(&self) -> Vec<Arc<Part>> {
        let Some((min, max)) = self.request.bounds() else { return Vec::new() };
        let all = self.snapshot.visible.table(spans::TABLE.name);
        let millis = |minute: i64| minute.saturating_mul(60_000);
        let timely = |p: &&Arc<Part>| p.meta.min_ts < millis(max.saturating_add(1)) && millis(min) <= p.meta.max_ts;
        all.iter().filter(timely).map(Arc::clone).collect()
    }

    /// Estimated number of rows; unknown ones are estimated from the size of the files.
    fn rows_about(&self) -> usize {
        let live = self.snapshot.visible.generations.iter().map(|g| g.spans() as usize).sum::<usize>();
        let of_part = |part: &Arc<Part>| match &part.meta {
            meta if self.request == RollupRequest::Services && !meta.services_all => meta.services.len(),
            meta => meta.file("rollup").map_or(meta.rows, |file| file.bytes / ROW_BYTES) as usize,
        };
        live.min(KEPT_SPANS_MAX) + self.parts().iter().map(of_part).sum::<usize>()
    }

    /// Tells whether there is only one source, so that no other can contain the parent of a span without one.
    fn is_alone(&self) -> bool {
        let parts = self.snapshot.visible.table(spans::TABLE.name).len();
        parts + usize::from(self.snapshot.visible.generations.iter().any(|g| g.spans() > 0)) < 2
    }

    /// The roll-up of the live spans.
    async fn of_live(&self, memory: &dyn ScanMemory, stats: &ReadStats) -> Result<Vec<RecordBatch>> {
        let asked = |kind| self.ranges.iter().any(|(k, _)| *k == kind);
        let mut live = self.live.rows(&self.snapshot, &self.repeats, asked, memory, stats).await?;
        live.retain(|r| self.wants(r.kind, r.minute));
        if live.is_empty() { Ok(Vec::new()) } else { Ok(vec![rollup_batch(live.iter())?]) }
    }

    /// The roll-up of a part, corrected for spans that repeat those of other parts.
    async fn of_part(&self, part: &Part, memory: &dyn ScanMemory, stats: &ReadStats) -> Result<Vec<RecordBatch>> {
        if self.request == RollupRequest::Services && !part.meta.services_all {
            // The catalog's description of the part is enough.
            let rows: Vec<RollupRow> = part.meta.services.iter().map(|name| of_service(name)).collect();
            return Ok(vec![rollup_batch(rows.iter())?]);
        }
        // As with live spans: yield first.
        tokio::task::yield_now().await;
        let rows = part.rollup(&self.request, memory, stats).await?;
        let repeated = self.repeats.of_part(&self.snapshot, part, stats).await?;
        if repeated.is_empty() {
            return Ok(rows);
        }
        let correction = self.repeats.correction(part, &repeated, stats).await?;
        // The corrected sum is in memory at the same time.
        memory.try_grow(rows.iter().map(batch_bytes).sum())?;
        Ok(vec![self.corrected(&rows, &correction)?])
    }

    fn corrected(&self, batches: &[RecordBatch], correction: &Correction) -> Result<RecordBatch> {
        let mut sum = RollupSum::default();
        for batch in batches {
            let rows = RollupRows::of(batch)?;
            (0..batch.num_rows()).filter_map(|i| rows.row(i)).for_each(|row| sum.add(row));
        }
        correction.minus.iter().for_each(|row| sum.remove(row));
        let wanted = |row: &&RollupRow| self.wants(row.kind, row.minute);
        correction.plus.iter().filter(wanted).for_each(|row| sum.add(row.clone()));
        rollup_batch(sum.rows().iter())
    }

    /// Keeps the requested rows, as far as the caller may see them.
    fn seen(&self, batch: &RecordBatch, alone: bool) -> Result<RecordBatch> {
        let rows = RollupRows::of(batch)?;
        let wanted = |i: usize| {
            rows.place(i).is_some_and(|(kind, minute)| self.wants(kind, minute) && !(alone && kind == RollupKind::Open))
        };
        if self.access.is_full() {
            let keep: BooleanArray = (0..batch.num_rows()).map(|i| Some(wanted(i))).collect();
            return filter_record_batch(batch, &keep).internal("cannot filter a roll-up");
        }
        let shown = (0..batch.num_rows()).filter(|&i| wanted(i)).filter_map(|i| rows.row(i)?.seen_by(&self.access));
        let shown: Vec<RollupRow> = shown.collect();
        rollup_batch(shown.iter())
    }
}

/// A row that stands for all operations of a service.
fn of_service(name: &str) -> RollupRow {
    RollupRow {
        kind: RollupKind::Operation,
        minute: 0,
        service: name.to_owned(),
        peer: String::new(),
        sort: 0,
        counts: Counts::default(),
        ids: None,
    }
}

/// The table. Files are read only when a scan of it runs.
#[derive(Debug)]
struct RollupTable(Arc<Scan>);

impl ScanSource for RollupTable {
    fn schema(&self) -> SchemaRef {
        rollup_schema()
    }

    fn rows_about(&self) -> Option<usize> {
        Some(self.0.rows_about())
    }

    fn scan(&self, shape: &ScanShape) -> Result<Arc<dyn PlannedScan>> {
        Ok(Arc::new(RollupScan::try_new(Arc::clone(&self.0), shape.clone())?))
    }
}

/// Reads roll-ups in a single partition, as they are small.
#[derive(Debug)]
pub(crate) struct RollupScan {
    scan: Arc<Scan>,
    schema: SchemaRef,
    shape: ScanShape,
}

/// The serialized form of such a scan.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RollupForm {
    snapshot: SnapshotForm,
    access: Access,
    request: RollupRequest,
    shape: ScanShape,
}

impl RollupForm {
    /// Recreates the scan over the same snapshot.
    pub(crate) fn scan(self, live: &Arc<LiveRollup>, repeats: &Arc<Repeats>) -> Result<RollupScan> {
        let scan = Scan::new(&self.snapshot.snapshot()?, (live, repeats), &self.access, self.request);
        RollupScan::try_new(Arc::new(scan), self.shape)
    }
}

impl RollupScan {
    /// The serialized form of the scan.
    pub(crate) fn form(&self) -> RollupForm {
        let Scan { snapshot, access, request, .. } = &*self.scan;
        let (access, request) = (access.clone(), request.clone());
        RollupForm { snapshot: snapshot.form(), access, request, shape: self.shape.clone() }
    }

    fn try_new(scan: Arc<Scan>, shape: ScanShape) -> Result<Self> {
        let schema = projected(rollup_schema(), &shape)?;
        Ok(Self { scan, schema, shape })
    }
}

impl PlannedScan for RollupScan {
    fn name(&self) -> &'static str {
        "SpanRollupsExec"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn partitions(&self) -> usize {
        1
    }

    fn explain(&self, _: ScanText, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpanRollupsExec: ")?;
        write_end(&self.schema, self.shape.limit, f)
    }

    fn open(&self, _: usize, task: ScanTask) -> Result<Box<dyn ScanBatches>> {
        Ok(Box::new(Rows::new(&self.scan, &self.shape, task)))
    }
}

/// The rows of the only partition: live spans first, then part by part, so that only one of these is in memory.
struct Rows {
    scan: Arc<Scan>,
    stats: Arc<ReadStats>,
    memory: Arc<dyn ScanMemory>,
    cut: BatchTrimmer,
    /// The result of [`Scan::is_alone`].
    alone: bool,
    /// Whether live spans are still to be read.
    live_left: bool,
    /// Parts still to be read.
    parts: IntoIter<Arc<Part>>,
    /// Batches that were read but not returned yet.
    read: IntoIter<RecordBatch>,
}

impl Rows {
    fn new(scan: &Arc<Scan>, shape: &ScanShape, task: ScanTask) -> Self {
        let ScanTask { memory, stats, .. } = task;
        let parts = scan.parts();
        add(&stats.parts_total, scan.snapshot.visible.table(spans::TABLE.name).len() as u64);
        add(&stats.parts_read, parts.len() as u64);
        let (alone, cut, scan) = (scan.is_alone(), BatchTrimmer::new(shape), Arc::clone(scan));
        let (parts, read) = (parts.into_iter(), Vec::new().into_iter());
        Self { scan, stats, memory, cut, alone, live_left: true, parts, read }
    }

    /// Reads the next source; `None` at the end.
    async fn read(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        let (memory, stats) = (&*self.memory, &*self.stats);
        if std::mem::take(&mut self.live_left) {
            return self.scan.of_live(memory, stats).await.map(Some);
        }
        let Some(part) = self.parts.next() else { return Ok(None) };
        match self.scan.of_part(&part, memory, stats).await {
            Ok(batches) => Ok(Some(batches)),
            Err(e) => leave_out(stats, e).map(|()| Some(Vec::new())),
        }
    }
}

#[async_trait]
impl ScanBatches for Rows {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        tokio::task::coop::consume_budget().await;
        while !self.cut.is_done() {
            if let Some(batch) = self.read.next() {
                let seen = self.scan.seen(&batch, self.alone)?;
                return self.cut.take(&seen).map(Some);
            }
            let Some(batches) = self.read().await? else { break };
            let bytes = || batches.iter().map(batch_bytes);
            // The filtered copy of one batch is in memory at the same time.
            self.memory.try_resize(bytes().sum::<usize>() + bytes().max().unwrap_or(0))?;
            self.read = batches.into_iter();
        }
        self.memory.free();
        Ok(None)
    }
}

/// Creates the table for a request.
pub(super) fn table(
    snapshot: &Snapshot,
    kept: (&Arc<LiveRollup>, &Arc<Repeats>),
    access: &Access,
    request: RollupRequest,
) -> Arc<dyn ScanSource> {
    Arc::new(RollupTable(Arc::new(Scan::new(snapshot, kept, access, request))))
}
