//! The table of roll-ups: those of parts as they were written, and one made of the live spans, which grows with them.

use std::fmt;
use std::sync::Arc;
use std::vec::IntoIter;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use quiver_types::scan::{
    PlannedScan, ScanBatches, ScanMemory, ScanShape, ScanSource, ScanTask, ScanText, batch_bytes,
};
use quiver_types::spans::{
    Counts, RollupBuilder, RollupKind, RollupRequest, RollupRow, RollupRows, RollupSum, rollup_batch, rollup_schema,
};
use quiver_types::stats::add;
use quiver_types::tables::spans;
use quiver_types::{Access, ReadStats, SpansBatch};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::planned::{Cut, projected, write_end};
use super::repeats::{Correction, Repeats, push, without};
use crate::error::{Context, Result, leave_out};
use crate::memtable::GenerationId;
use crate::part::Part;
use crate::snapshot::{Snapshot, SnapshotForm};

/// Live spans of which the roll-up is kept from one question to the next.
const KEPT_SPANS_MAX: usize = 1_000_000;

/// What a row of a roll-up takes in a file, about, at least.
const ROW_BYTES: u64 = 4;

/// What a row of live spans takes in memory, about, beside what it takes in a batch.
const LIVE_ROW_BYTES: usize = 384;

/// The roll-up of live spans: which generations, how many batches of each are in.
#[derive(Debug, Default)]
pub(crate) struct LiveRollup(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    pushed: Vec<(GenerationId, usize)>,
    builder: RollupBuilder,
    spans: usize,
}

impl LiveRollup {
    /// Gives the rows of the live spans of a snapshot, and asks the memory for them first.
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
            // Who looks up what is in memory gives way before live spans are counted, which may be many.
            tokio::task::yield_now().await;
        }
        let mut kept = self.0.lock().await;
        let goes_on = kept.pushed.len() == views.len()
            && kept.pushed.iter().zip(&views).all(|((id, n), (_, now, chunks))| id == now && *n <= chunks.len());
        if !goes_on {
            *kept = Kept { pushed: views.iter().map(|(_, id, _)| (*id, 0)).collect(), ..Kept::default() };
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
            *kept = Kept::default();
        }
        rows
    }
}

impl Kept {
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
    /// Of the request, made once.
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

    /// How many rows there are, about: what is not known is taken from the size of files.
    fn rows_about(&self) -> usize {
        let live = self.snapshot.visible.generations.iter().map(|g| g.spans() as usize).sum::<usize>();
        let of_part = |part: &Arc<Part>| match &part.meta {
            meta if self.request == RollupRequest::Services && !meta.services_all => meta.services.len(),
            meta => meta.file("rollup").map_or(meta.rows, |file| file.bytes / ROW_BYTES) as usize,
        };
        live.min(KEPT_SPANS_MAX) + self.parts().iter().map(of_part).sum::<usize>()
    }

    /// Says whether nobody else can have the parent of an open span.
    fn is_alone(&self) -> bool {
        let parts = self.snapshot.visible.table(spans::TABLE.name).len();
        parts + usize::from(self.snapshot.visible.generations.iter().any(|g| g.spans() > 0)) < 2
    }

    /// Gives the roll-up of the live spans.
    async fn of_live(&self, memory: &dyn ScanMemory, stats: &ReadStats) -> Result<Vec<RecordBatch>> {
        let asked = |kind| self.ranges.iter().any(|(k, _)| *k == kind);
        let mut live = self.live.rows(&self.snapshot, &self.repeats, asked, memory, stats).await?;
        live.retain(|r| self.wants(r.kind, r.minute));
        if live.is_empty() { Ok(Vec::new()) } else { Ok(vec![rollup_batch(live.iter())?]) }
    }

    /// Gives the roll-up of a part without the spans that repeat those of others.
    async fn of_part(&self, part: &Part, memory: &dyn ScanMemory, stats: &ReadStats) -> Result<Vec<RecordBatch>> {
        if self.request == RollupRequest::Services && !part.meta.services_all {
            // What the catalog knows of each part is enough.
            let rows: Vec<RollupRow> = part.meta.services.iter().map(|name| of_service(name)).collect();
            return Ok(vec![rollup_batch(rows.iter())?]);
        }
        // As with live spans.
        tokio::task::yield_now().await;
        let rows = part.rollup(&self.request, memory, stats).await?;
        let repeated = self.repeats.of_part(&self.snapshot, part, stats).await?;
        if repeated.is_empty() {
            return Ok(rows);
        }
        let correction = self.repeats.correction(part, &repeated, stats).await?;
        // Their sum is there beside them.
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

    /// Keeps the rows that are asked for, as the caller may see them.
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

/// The table; a scan of it reads files only when it runs.
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

/// Reads roll-ups, all in one partition: they are few.
#[derive(Debug)]
pub(crate) struct RollupScan {
    scan: Arc<Scan>,
    schema: SchemaRef,
    shape: ScanShape,
}

/// The written form of such a scan.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RollupForm {
    snapshot: SnapshotForm,
    access: Access,
    request: RollupRequest,
    shape: ScanShape,
}

impl RollupForm {
    /// Plans the scan again, over the same snapshot.
    pub(crate) fn scan(self, live: &Arc<LiveRollup>, repeats: &Arc<Repeats>) -> Result<RollupScan> {
        let scan = Scan::new(&self.snapshot.snapshot()?, (live, repeats), &self.access, self.request);
        RollupScan::try_new(Arc::new(scan), self.shape)
    }
}

impl RollupScan {
    /// Gives its written form.
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

/// What the one partition reads: live spans first, then part by part, so that no more than one of them is held.
struct Rows {
    scan: Arc<Scan>,
    stats: Arc<ReadStats>,
    memory: Arc<dyn ScanMemory>,
    cut: Cut,
    /// What [`Scan::is_alone`] says: whether nobody else can have the parent of an open span.
    alone: bool,
    /// Whether live spans are still to be read.
    live_left: bool,
    /// Parts that are still to be read.
    parts: IntoIter<Arc<Part>>,
    /// What was read and is still to be given out.
    read: IntoIter<RecordBatch>,
}

impl Rows {
    fn new(scan: &Arc<Scan>, shape: &ScanShape, task: ScanTask) -> Self {
        let ScanTask { memory, stats, .. } = task;
        let parts = scan.parts();
        add(&stats.parts_total, scan.snapshot.visible.table(spans::TABLE.name).len() as u64);
        add(&stats.parts_read, parts.len() as u64);
        let (alone, cut, scan) = (scan.is_alone(), Cut::new(shape), Arc::clone(scan));
        let (parts, read) = (parts.into_iter(), Vec::new().into_iter());
        Self { scan, stats, memory, cut, alone, live_left: true, parts, read }
    }

    /// Reads what comes next; none: there is no more.
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
            // What is given of one of them is there beside them.
            self.memory.try_resize(bytes().sum::<usize>() + bytes().max().unwrap_or(0))?;
            self.read = batches.into_iter();
        }
        self.memory.free();
        Ok(None)
    }
}

/// Makes the table of what a request asks for.
pub(super) fn table(
    snapshot: &Snapshot,
    kept: (&Arc<LiveRollup>, &Arc<Repeats>),
    access: &Access,
    request: RollupRequest,
) -> Arc<dyn ScanSource> {
    Arc::new(RollupTable(Arc::new(Scan::new(snapshot, kept, access, request))))
}
