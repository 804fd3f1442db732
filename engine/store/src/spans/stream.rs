//! The work of a scan: units that partitions take, and the batches that they become.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arrow::array::RecordBatch;
use quiver_types::spans::{SpanFilter, SpanRequest, TextTest};
use quiver_types::tables::spans;
use quiver_types::{Access, ReadStats, stats};

use super::eval::matching;
use super::live::LiveRows;
use crate::error::Result;
use crate::memtable::spans::SpanChunk;
use crate::part::spans::{SpanRows, needed};
use crate::part::{Part, PartMeta};
use crate::snapshot::Snapshot;

/// Rows of a part that are decoded at once.
const STEP_ROWS: u64 = 32 * 1024;

/// What the partitions of a scan share.
#[derive(Debug)]
pub(crate) struct ScanShared {
    pub(crate) request: SpanRequest,
    access: Access,
    pub(crate) stats: Arc<ReadStats>,
    live: Vec<Arc<SpanChunk>>,
    pub(crate) parts: Vec<Arc<Part>>,
    /// Parts of the table, and those left out by time and by service.
    pub(crate) parts_total: usize,
    pub(crate) pruned: [usize; 2],
    next: AtomicUsize,
}

/// Gives the services of which every matching span is one; none: any.
fn services(filter: &SpanFilter) -> Option<Vec<&TextTest>> {
    match filter {
        SpanFilter::Service(test) => Some(vec![test]),
        SpanFilter::And(all) => all.iter().find_map(services),
        SpanFilter::Or(any) if !any.is_empty() => {
            any.iter().map(services).collect::<Option<Vec<_>>>().map(|lists| lists.into_iter().flatten().collect())
        }
        _ => None,
    }
}

fn may_match(meta: &PartMeta, access: &Access, wanted: Option<&[&TextTest]>) -> bool {
    let shown = |s: &str| if s.is_empty() { "unknown_service".to_owned() } else { s.to_owned() };
    meta.services_all
        || meta
            .services
            .iter()
            .any(|s| access.allows(s) && wanted.is_none_or(|tests| tests.iter().any(|t| t.matches(&shown(s)))))
}

impl ScanShared {
    pub(crate) fn new(snapshot: &Snapshot, access: Access, request: SpanRequest, stats: Arc<ReadStats>) -> Self {
        let bounds = request.filter.start_bounds();
        let live = snapshot.visible.generations.iter().flat_map(|g| g.span_view(bounds, snapshot.seq)).collect();
        let all = snapshot.visible.table(spans::TABLE.name);
        let millis = |ns: i64| ns.div_euclid(1_000_000);
        let in_time = |p: &&Arc<Part>| p.meta.min_ts <= millis(bounds.1) && millis(bounds.0) <= p.meta.max_ts;
        let timely: Vec<&Arc<Part>> = all.iter().filter(in_time).collect();
        let wanted = services(&request.filter);
        let parts: Vec<Arc<Part>> =
            timely.iter().filter(|p| may_match(&p.meta, &access, wanted.as_deref())).map(|p| Arc::clone(p)).collect();
        let pruned = [all.len() - timely.len(), timely.len() - parts.len()];
        stats::add(&stats.parts_total, all.len() as u64);
        Self { parts_total: all.len(), pruned, request, access, stats, live, parts, next: AtomicUsize::new(0) }
    }

    /// Number of live batches.
    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }

    /// Number of units of work.
    pub(crate) fn units(&self) -> usize {
        self.live.len() + self.parts.len()
    }
}

/// One partition.
#[derive(Debug)]
pub(super) struct SpanStream {
    scan: Arc<ScanShared>,
    left: Option<usize>,
    part: Option<OpenPart>,
}

#[derive(Debug)]
struct OpenPart {
    part: Arc<Part>,
    ranges: VecDeque<Range<u64>>,
    columns: Vec<String>,
    ready: VecDeque<SpanRows>,
}

impl SpanStream {
    pub(super) fn new(scan: &Arc<ScanShared>, limit: Option<usize>) -> Self {
        Self { scan: Arc::clone(scan), left: limit, part: None }
    }

    /// Gives the next batch that is not empty.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.left == Some(0) {
                return Ok(None);
            }
            let Some(batch) = self.step().await? else { return Ok(None) };
            if batch.num_rows() == 0 {
                // Whoever asks gets a chance to see his deadline between steps.
                tokio::task::yield_now().await;
                continue;
            }
            let rows = self.left.map_or(batch.num_rows(), |left| left.min(batch.num_rows()));
            self.left = self.left.map(|left| left - rows);
            return Ok(Some(batch.slice(0, rows)));
        }
    }

    /// Does one step of work; an empty batch when it gave nothing.
    async fn step(&mut self) -> Result<Option<RecordBatch>> {
        let scan = Arc::clone(&self.scan);
        let columns = &scan.request.columns;
        if let Some(open) = &mut self.part {
            if let Some(rows) = open.ready.pop_front() {
                let keep = matching(&rows, &scan.request.filter, &scan.access);
                return rows.filter(&keep)?.project(columns).map(Some);
            }
            let mut step = Vec::new();
            let mut taken = 0;
            while taken < STEP_ROWS
                && let Some(range) = open.ranges.pop_front()
            {
                let end = range.end.min(range.start + STEP_ROWS - taken);
                taken += end - range.start;
                step.push(range.start..end);
                if end < range.end {
                    open.ranges.push_front(end..range.end);
                }
            }
            if step.is_empty() {
                self.part = None;
            } else {
                let names: Vec<&str> = open.columns.iter().map(String::as_str).collect();
                open.ready = open.part.span_rows(&step, &names, false, &scan.stats).await?.into();
            }
            return Ok(Some(RecordBatch::new_empty(quiver_types::spans::schema_of(columns))));
        }
        let unit = scan.next.fetch_add(1, Relaxed);
        if let Some(chunk) = scan.live.get(unit) {
            let rows = LiveRows::new(&chunk.batch);
            let keep = matching(&rows, &scan.request.filter, &scan.access);
            if !keep.contains(&true) {
                return Ok(Some(RecordBatch::new_empty(quiver_types::spans::schema_of(columns))));
            }
            return rows.project(&keep, columns).map(Some);
        }
        let Some(part) = scan.parts.get(unit - scan.live.len()) else { return Ok(None) };
        self.part = Some(open(&scan, Arc::clone(part)).await?);
        Ok(Some(RecordBatch::new_empty(quiver_types::spans::schema_of(columns))))
    }
}

async fn open(scan: &ScanShared, part: Arc<Part>) -> Result<OpenPart> {
    let filter = &scan.request.filter;
    let index = part.span_index(&scan.stats).await?;
    let timely = index.starts(filter.start_bounds());
    let ranges: Vec<Range<u64>> = match filter.traces() {
        Some(ids) => {
            let cut = |r: Range<u64>| r.start.max(timely.start)..r.end.min(timely.end);
            index.traces(ids.iter()).into_iter().map(cut).filter(|r| r.start < r.end).collect()
        }
        None if timely.is_empty() => Vec::new(),
        None => vec![timely],
    };
    let mut columns = Vec::new();
    if !ranges.is_empty() {
        stats::add(&scan.stats.parts_read, 1);
        let schema = part.span_columns(&scan.stats).await?;
        columns = needed(filter, &scan.request.columns, !scan.access.is_full(), &schema);
    }
    Ok(OpenPart { part, ranges: ranges.into(), columns, ready: VecDeque::new() })
}
