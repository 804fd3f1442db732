//! The work of a scan, in units that are distributed to partitions when it is planned (so that a plan can run more than
//! once), and the batches that the units produce. How the rows of a part are read is in `open_part`.

mod open_part;

use std::cmp::Reverse;
use std::collections::{HashSet, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

use arrow::array::RecordBatch;
use futures::StreamExt;
use quiver_types::scan::{ScanMemory, batch_bytes};
use quiver_types::spans::{SpanColumn, SpanFilter, SpanRequest, TextTest};
use quiver_types::tables::spans;
use quiver_types::{Access, ReadStats, read_stats};
use tokio::sync::OnceCell;

use self::open_part::OpenPart;
pub(super) use self::open_part::open;
use super::duplicates::Repeats;
use super::evaluation::matching;
use super::live::LiveRows;
use super::step_size::StepSize;
use crate::error::{Error, Result, leave_out};
use crate::memtable::spans::SpanChunk;
use crate::part::{Part, PartId, PartMeta};
use crate::snapshot::Snapshot;

/// Trace filters that are read concurrently.
const FILTERS_AT_ONCE: usize = 16;
/// Requests that are served from memory stay on the caller's thread; it yields before more rows than this are read, of many
/// columns or of few (as a search for the traces of matching spans has).
const FEW_ROWS: u64 = 512;
const FEW_NARROW_ROWS: u64 = 16 * 1024;
const NARROW_COLUMNS: usize = 4;

/// What the partitions of a scan share.
#[derive(Debug)]
pub(crate) struct ScanShared {
    pub(crate) request: SpanRequest,
    /// Whether texts are read as views.
    views: bool,
    pub(super) access: Access,
    /// Live batches, each with the index of its generation in the snapshot.
    pub(super) live: Vec<(usize, Arc<SpanChunk>)>,
    pub(crate) parts: Vec<Arc<Part>>,
    /// Number of parts of the table, and of parts pruned by time and by service.
    pub(crate) parts_total: usize,
    pub(crate) pruned: [usize; 2],
    pub(super) snapshot: Snapshot,
    repeats: Arc<Repeats>,
}

/// One run of a scan, shared by its partitions.
#[derive(Debug)]
pub(super) struct ScanRun {
    scan: Arc<ScanShared>,
    /// Statistics of the query.
    pub(super) stats: Arc<ReadStats>,
    /// For a lookup of traces: the parts that may contain one of them.
    holders: OnceCell<HashSet<PartId>>,
}

impl Deref for ScanRun {
    type Target = ScanShared;

    fn deref(&self) -> &ScanShared {
        &self.scan
    }
}

/// Tests on the service that every matching span passes at least one of; `None` if any service is possible.
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

/// Name of a service as conditions use it.
fn shown(service: &str) -> &str {
    if service.is_empty() { "unknown_service" } else { service }
}

fn may_match(meta: &PartMeta, access: &Access, wanted: Option<&[&TextTest]>) -> bool {
    meta.services_all
        || meta
            .services
            .iter()
            .any(|s| access.allows(s) && wanted.is_none_or(|tests| tests.iter().any(|t| t.matches(shown(s)))))
}

impl ScanShared {
    pub(super) fn new(snapshot: &Snapshot, repeats: &Arc<Repeats>, access: Access, request: SpanRequest) -> Self {
        let bounds = request.filter.start_bounds();
        let live = live_chunks(snapshot, bounds);
        let (repeats, snapshot_kept) = (Arc::clone(repeats), snapshot.clone());
        let all = snapshot.visible.table(spans::TABLE.name);
        let millis = |ns: i64| ns.div_euclid(1_000_000);
        let in_time = |p: &&Arc<Part>| p.meta.min_ts <= millis(bounds.1) && millis(bounds.0) <= p.meta.max_ts;
        let timely: Vec<&Arc<Part>> = all.iter().filter(in_time).collect();
        let wanted = services(&request.filter);
        let parts: Vec<Arc<Part>> =
            timely.iter().filter(|p| may_match(&p.meta, &access, wanted.as_deref())).map(|p| Arc::clone(p)).collect();
        let pruned = [all.len() - timely.len(), timely.len() - parts.len()];
        let (parts_total, snapshot) = (all.len(), snapshot_kept);
        let views = request.columns.iter().all(SpanColumn::takes_views);
        Self { request, views, access, live, parts, parts_total, pruned, snapshot, repeats }
    }

    /// Estimated number of rows in the time window of the request; rows of parts are assumed to be spread evenly over
    /// their time.
    pub(super) fn rows_about(&self) -> usize {
        let (min, max) = self.request.filter.start_bounds();
        let millis = |ns: i64| ns.div_euclid(1_000_000);
        let of_part = |part: &Arc<Part>| {
            let (from, to) = (part.meta.min_ts, part.meta.max_ts);
            let inside = to.min(millis(max)).saturating_sub(from.max(millis(min))).max(0) as f64 + 1.0;
            (part.meta.rows as f64 * inside / (to.saturating_sub(from).max(0) as f64 + 1.0)) as usize
        };
        let live: usize = self.live.iter().map(|(_, chunk)| chunk.batch.len()).sum();
        live + self.parts.iter().map(of_part).sum::<usize>()
    }

    /// Number of live batches.
    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }

    /// Number of units of work.
    pub(crate) fn units(&self) -> usize {
        self.live.len() + self.parts.len()
    }

    /// Distributes the units over partitions, balanced by rows; within a partition they keep their order.
    pub(super) fn shares(&self, partitions: usize) -> Vec<VecDeque<usize>> {
        let live = self.live.iter().map(|(_, chunk)| chunk.batch.len() as u64);
        let rows: Vec<u64> = live.chain(self.parts.iter().map(|p| p.meta.rows)).collect();
        share(&rows, partitions)
    }
}

impl ScanRun {
    /// Starts a run whose reads count for a query.
    pub(super) fn new(scan: &Arc<ScanShared>, stats: Arc<ReadStats>) -> Self {
        read_stats::add(&stats.parts_total, scan.parts_total as u64);
        Self { scan: Arc::clone(scan), stats, holders: OnceCell::new() }
    }

    /// Tells whether a part may contain one of the requested traces. On first use, reads the trace filters of all
    /// parts.
    async fn may_hold(&self, part: &Part) -> Result<bool> {
        let Some(ids) = self.request.filter.traces() else { return Ok(true) };
        let holders = self.holders.get_or_try_init(|| async {
            let ask = |part: Arc<Part>| async move {
                let holds = part.may_hold_traces(ids, &self.stats).await;
                (part.meta.id, holds)
            };
            let asked = self.parts.clone().into_iter().map(ask);
            let mut answers = futures::stream::iter(asked).buffer_unordered(FILTERS_AT_ONCE);
            let mut holders = HashSet::new();
            while let Some((part, holds)) = answers.next().await {
                match holds {
                    Ok(true) => _ = holders.insert(part),
                    Ok(false) => {}
                    Err(e) => leave_out(&self.stats, e)?,
                }
                self.stats.check()?;
            }
            Ok::<_, Error>(holders)
        });
        Ok(holders.await?.contains(&part.meta.id))
    }

    /// For each row of a live batch, whether it matches and is not a repeat.
    pub(super) async fn matching_live(&self, generation: usize, chunk: &SpanChunk) -> Result<Vec<bool>> {
        let mut keep = matching(&LiveRows::new(&chunk.batch), &self.request.filter, &self.access, &self.stats)?;
        // A lookup of traces returns all reports; the caller deduplicates them.
        if self.request.filter.leaves_out_repeats() && keep.contains(&true) {
            let repeats = self.repeats.of_chunk(&self.snapshot, generation, chunk, &self.stats).await?;
            repeats.rows.iter().for_each(|&row| keep[row as usize] = false);
        }
        Ok(keep)
    }
}

/// The live batches of a snapshot with spans that may start in a closed time range, each with the index of its
/// generation.
pub(super) fn live_chunks(snapshot: &Snapshot, range: (i64, i64)) -> Vec<(usize, Arc<SpanChunk>)> {
    let generations = snapshot.visible.generations.iter().enumerate();
    generations.flat_map(|(n, g)| g.span_view(range, snapshot.seq).into_iter().map(move |c| (n, c))).collect()
}

fn share(rows: &[u64], partitions: usize) -> Vec<VecDeque<usize>> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&unit| Reverse(rows[unit]));
    let mut shares = vec![(0u64, Vec::new()); partitions.max(1)];
    for unit in order {
        if let Some(least) = shares.iter_mut().min_by_key(|(sum, units)| (*sum, units.len())) {
            least.0 += rows[unit];
            least.1.push(unit);
        }
    }
    let in_order = |(_, mut units): (u64, Vec<usize>)| {
        units.sort_unstable();
        units.into()
    };
    shares.into_iter().map(in_order).collect()
}

/// The result of one step of work.
#[derive(Debug)]
enum Step {
    /// A batch; it may have no rows.
    Read(Option<RecordBatch>),
    /// Nothing was read: the step only found out where to read next, or that a unit has nothing.
    Turned,
    /// There is nothing more.
    End,
}

/// Reads the rows of one partition step by step.
#[derive(Debug)]
pub(super) struct SpanStream {
    run: Arc<ScanRun>,
    /// The remaining units of its share.
    units: VecDeque<usize>,
    left: Option<usize>,
    part: Option<OpenPart>,
    /// Batches of the last step that were not returned yet.
    ready: VecDeque<RecordBatch>,
    /// What the last step gave.
    given: StepSize,
    /// Rows that were read since it last yielded, and how many may be.
    unyielded: u64,
    few: u64,
}

impl SpanStream {
    pub(super) fn new(run: Arc<ScanRun>, units: VecDeque<usize>, limit: Option<usize>) -> Self {
        let few = if run.request.columns.len() > NARROW_COLUMNS { FEW_ROWS } else { FEW_NARROW_ROWS };
        let ready = VecDeque::new();
        Self { run, units, left: limit, part: None, ready, given: StepSize::default(), unyielded: 0, few }
    }

    /// Bytes of the batches that come next, and are there.
    pub(super) fn ready_bytes(&self) -> usize {
        self.ready.iter().map(batch_bytes).sum()
    }

    /// The next batch that is not empty; `None` at the end. What is decoded for it takes memory while it is made.
    pub(super) async fn next(&mut self, memory: &dyn ScanMemory) -> Result<Option<RecordBatch>> {
        loop {
            if self.left == Some(0) {
                return Ok(None);
            }
            let batch = match self.step(memory).await? {
                Step::Read(Some(batch)) if batch.num_rows() > 0 => batch,
                Step::Read(_) => {
                    // Let the caller check its deadline between steps.
                    tokio::task::yield_now().await;
                    continue;
                }
                Step::Turned => {
                    // Yielding makes the thread poll its sockets, which is not worth it after such a short step, but is
                    // after many in a row.
                    tokio::task::coop::consume_budget().await;
                    continue;
                }
                Step::End => return Ok(None),
            };
            let rows = self.left.map_or(batch.num_rows(), |left| left.min(batch.num_rows()));
            self.left = self.left.map(|left| left - rows);
            return Ok(Some(batch.slice(0, rows)));
        }
    }

    /// Does one step of work.
    async fn step(&mut self, memory: &dyn ScanMemory) -> Result<Step> {
        let scan = Arc::clone(&self.run);
        if let Some(batch) = self.ready.pop_front() {
            return Ok(Step::Read(Some(batch)));
        }
        if let Some(open) = &mut self.part {
            let left: u64 = open.ranges.iter().map(|range| range.end - range.start).sum();
            let (step, rows) = open.next_rows(open.size.max(self.given).reserve(left, memory));
            if step.is_empty() {
                self.part = None;
                return Ok(Step::Turned);
            }
            self.unyielded += rows;
            if self.unyielded > self.few {
                tokio::task::yield_now().await;
                self.unyielded = 0;
            }
            match open.read(&scan, &step, rows).await {
                Ok(batches) => {
                    self.given = self.given.after(&batches, rows);
                    self.ready.extend(batches);
                }
                Err(e) => {
                    leave_out(&scan.stats, e)?;
                    self.part = None;
                }
            }
            return Ok(Step::Read(self.ready.pop_front()));
        }
        let Some(unit) = self.units.pop_front() else { return Ok(Step::End) };
        if let Some((generation, chunk)) = scan.live.get(unit) {
            let rows = LiveRows::new(&chunk.batch);
            let keep = scan.matching_live(*generation, chunk).await?;
            if !keep.contains(&true) {
                return Ok(Step::Read(None));
            }
            return rows.project(&keep, &scan.request.columns, &scan.stats).map(|batch| Step::Read(Some(batch)));
        }
        let Some(part) = scan.parts.get(unit - scan.live.len()) else { return Ok(Step::End) };
        if !scan.may_hold(part).await? {
            return Ok(Step::Turned);
        }
        match open(&scan, Arc::clone(part)).await {
            Ok(opened) => self.part = Some(opened),
            Err(e) => leave_out(&scan.stats, e)?,
        }
        Ok(Step::Turned)
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::{SpanFilter, TextTest};

    use super::{services, share};

    #[test]
    fn shares_are_even_and_in_order() {
        assert_eq!(share(&[5, 1, 1, 1, 1, 1], 2), [vec![0], vec![1, 2, 3, 4, 5]]);
        assert_eq!(share(&[0, 0, 0], 2), [vec![0, 2], vec![1]]);
        assert!(share(&[], 1)[0].is_empty());
    }

    #[test]
    fn services_are_known_where_every_span_is_of_one() {
        let of = |name: &str| SpanFilter::Service(TextTest::Is(name.to_owned()));
        let names = |filter: &SpanFilter| {
            let tests = services(filter)?;
            Some(["a", "b", "c"].into_iter().filter(|name| tests.iter().any(|t| t.matches(name))).collect::<String>())
        };
        let check = |filter: SpanFilter, expected: Option<&str>| {
            assert_eq!(names(&filter).as_deref(), expected, "{filter}");
        };
        check(SpanFilter::All, None);
        check(of("a"), Some("a"));
        check(SpanFilter::Root.and(of("b")), Some("b"));
        check(SpanFilter::Or(vec![of("a"), SpanFilter::Root.and(of("c"))]), Some("ac"));
        check(SpanFilter::Or(vec![of("a"), SpanFilter::Root]), None);
        check(SpanFilter::Or(Vec::new()), None);
        check(SpanFilter::Not(Box::new(of("a"))), None);
    }
}
