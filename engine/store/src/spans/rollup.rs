//! The table of roll-ups: those of parts as they were written, and one made of the live spans, which grows with them.

use std::fmt;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::UInt32Type;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use quiver_types::spans::{
    Counts, RollupBuilder, RollupKind, RollupRequest, RollupRow, RollupRows, RollupSum, rollup_batch, rollup_schema,
};
use quiver_types::tables::spans;
use quiver_types::{Access, ReadStats, SpansBatch, stats};
use tokio::sync::Mutex;

use super::repeats::{Found, Repeats, without};
use super::table::rows_about;
use crate::error::{Context, Result, leave_out};
use crate::memtable::GenerationId;
use crate::part::Part;
use crate::snapshot::Snapshot;

/// Live spans of which the roll-up is kept from one question to the next.
const KEPT_SPANS_MAX: usize = 1_000_000;

/// What a row of a roll-up takes in a file, about, at least.
const ROW_BYTES: u64 = 4;

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
    /// Gives the rows of the live spans of a snapshot.
    async fn rows(
        &self,
        snapshot: &Snapshot,
        repeats: &Repeats,
        wanted: impl Fn(RollupKind) -> bool,
        stats: &ReadStats,
    ) -> Result<Vec<RollupRow>> {
        let all = (i64::MIN, i64::MAX);
        let views = snapshot.visible.generations.iter().enumerate();
        let views = views.map(|(n, g)| (n, g.id(), g.span_view(all, snapshot.seq)));
        let views: Vec<_> = views.filter(|(_, _, chunks)| !chunks.is_empty()).collect();
        let mut kept = self.0.lock().await;
        let goes_on = kept.pushed.len() == views.len()
            && kept.pushed.iter().zip(&views).all(|((id, n), (_, now, chunks))| id == now && *n <= chunks.len());
        if !goes_on {
            *kept = Kept { pushed: views.iter().map(|(_, id, _)| (*id, 0)).collect(), ..Kept::default() };
        }
        for (n, (generation, _, chunks)) in views.iter().enumerate() {
            let done = kept.pushed[n].1;
            for chunk in &chunks[done..] {
                let repeated = repeats.of_chunk(snapshot, *generation, chunk, stats).await?;
                if repeated.is_empty() {
                    kept.push(&chunk.batch)?;
                } else {
                    let mut keep = vec![true; chunk.batch.len()];
                    repeated.iter().for_each(|&row| keep[row as usize] = false);
                    kept.push(&without(&chunk.batch, &keep)?)?;
                }
                kept.pushed[n].1 += 1;
            }
        }
        let rows = kept.builder.rows(wanted);
        if kept.spans > KEPT_SPANS_MAX {
            *kept = Kept::default();
        }
        Ok(rows)
    }
}

impl Kept {
    fn push(&mut self, batch: &SpansBatch) -> Result<()> {
        let SpansBatch { spans, contexts } = batch;
        let of = spans["context"].as_primitive::<UInt32Type>().values();
        let attributes = spans["attributes"].as_binary::<i32>();
        self.builder.push_spans(spans, contexts, of, |i| attributes.value(i))?;
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
    stats: Arc<ReadStats>,
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rollups").field("request", &self.request).finish_non_exhaustive()
    }
}

impl Scan {
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

    async fn batches(&self) -> Result<Vec<RecordBatch>> {
        let parts = self.parts();
        let asked = |kind| self.ranges.iter().any(|(k, _)| *k == kind);
        let mut live = self.live.rows(&self.snapshot, &self.repeats, asked, &self.stats).await?;
        live.retain(|r| self.wants(r.kind, r.minute));
        let all_parts = self.snapshot.visible.table(spans::TABLE.name).len();
        // Nobody else can have the parent of an open span.
        let alone = all_parts + usize::from(self.snapshot.visible.generations.iter().any(|g| g.spans() > 0)) < 2;
        let mut out = Vec::new();
        stats::add(&self.stats.parts_total, all_parts as u64);
        stats::add(&self.stats.parts_read, parts.len() as u64);
        if !live.is_empty() {
            out.push(rollup_batch(live.iter())?);
        }
        for part in parts {
            if self.request == RollupRequest::Services && !part.meta.services_all {
                // What the catalog knows of each part is enough.
                out.push(rollup_batch(
                    part.meta.services.iter().map(|name| of_service(name)).collect::<Vec<_>>().iter(),
                )?);
                continue;
            }
            match self.of_part(&part).await {
                Ok(rows) => out.extend(rows),
                Err(e) => leave_out(&self.stats, e)?,
            }
        }
        out.iter().map(|batch| self.seen(batch, alone)).collect()
    }

    /// Gives the roll-up of a part without the spans that repeat those of others.
    async fn of_part(&self, part: &Part) -> Result<Vec<RecordBatch>> {
        let rows = part.rollup(&self.request, &self.stats).await?;
        let repeated = self.repeats.of_part(&self.snapshot, part, &self.stats).await?;
        if repeated.rows.is_empty() {
            return Ok(rows);
        }
        Ok(vec![self.corrected(part, &rows, &repeated).await?])
    }

    async fn corrected(&self, part: &Part, batches: &[RecordBatch], repeated: &Found) -> Result<RecordBatch> {
        let correction = self.repeats.correction(part, repeated, &self.stats).await?;
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

#[derive(Debug)]
struct Rows(Arc<Scan>, SchemaRef);

impl PartitionStream for Rows {
    fn schema(&self) -> &SchemaRef {
        &self.1
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let scan = Arc::clone(&self.0);
        let read = async move {
            let batches = scan.batches().await.map_err(|e| DataFusionError::External(Box::new(e)))?;
            Ok::<_, DataFusionError>(futures::stream::iter(batches.into_iter().map(Ok)))
        };
        let batches = futures::TryStreamExt::try_flatten(futures::stream::once(read));
        Box::pin(RecordBatchStreamAdapter::new(rollup_schema(), batches))
    }
}

/// The table; a scan of it reads files only when it runs.
#[derive(Debug)]
struct RollupTable(StreamingTable, Arc<Scan>);

#[async_trait]
impl TableProvider for RollupTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        self.0.scan(state, projection, filters, limit).await
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(rows_about(self.1.rows_about(), &self.0.schema()))
    }
}

/// Makes the table of what a request asks for.
pub(super) fn table(
    snapshot: &Snapshot,
    (live, repeats): (&Arc<LiveRollup>, &Arc<Repeats>),
    access: &Access,
    request: RollupRequest,
    stats: Arc<ReadStats>,
) -> Result<Arc<dyn TableProvider>> {
    let (snapshot, live, access) = (snapshot.clone(), Arc::clone(live), access.clone());
    let repeats = Arc::clone(repeats);
    let ranges = request.ranges();
    let scan = Arc::new(Scan { snapshot, live, repeats, access, request, ranges, stats });
    let rows = Rows(Arc::clone(&scan), rollup_schema());
    let table = StreamingTable::try_new(rollup_schema(), vec![Arc::new(rows)])
        .map_err(|e| quiver_types::Error::internal("cannot make a table of roll-ups").with_source(e))?;
    Ok(Arc::new(RollupTable(table, scan)))
}
