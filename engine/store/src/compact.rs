//! Compaction: makes fewer, larger, better compressed parts. One thread of low priority plans and merges, one
//! compaction at a time. Its commits run at normal priority, since flushes wait for them; a commit names its inputs and
//! fails if one of them is no longer live.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::catalog::Change;
use crate::cleaner;
use crate::core::{Core, Job, commit};
use crate::error::{Context as _, Error, ErrorKind, Result, chain};
use crate::failpoint;
use crate::flush::memory::{FlushMemory, SERIES_BYTES};
use crate::metrics::METRICS;
use crate::part::{Part, PartId, PartMeta, Place};
use crate::registry::{Registry, Work};
use crate::threads;

mod backoff;
mod logs;
mod merge;
mod output;
mod plan;
pub(crate) mod rewrite;
mod rows;
pub(crate) mod spans;
#[cfg(test)]
mod tests;

use backoff::PausedDays;
use plan::{Context, Plan, plan};
use rewrite::{Outcome, SpanRewriter};

/// Number of conflicts (inputs removed by another commit) after which a run leaves the rest to the next one.
const CONFLICTS_MAX: usize = 16;
/// New days are compacted first, since they are queried most. One in `OLDEST_EVERY` compactions is of the oldest day,
/// so that it is never starved.
const OLDEST_EVERY: usize = 4;

/// Highest ratio between the size of rows while they are merged and in parts that is typical.
const UNPACKED: u64 = 16;

/// Number of live parts of level 0 above which compaction no longer rests on a busy machine: each costs every query.
const LEVEL0_PARTS_MAX: usize = 128;

/// The handle of the compaction thread.
#[derive(Debug)]
pub(crate) struct Compactor {
    requests: mpsc::Sender<Request>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// How much a compaction takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What is due.
    Due,
    /// Everything, to level 2, even open windows.
    All,
}

#[derive(Debug)]
enum Request {
    /// Compacts parts.
    Compact { extent: Extent, done: oneshot::Sender<Result<()>> },
    /// Rewrites a part of spans.
    Rewrite { part: PartId, rewriter: Arc<dyn SpanRewriter>, done: oneshot::Sender<Result<Outcome>> },
}

impl Compactor {
    /// Starts the thread. It ends when the store closes.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the thread cannot be started.
    pub(crate) fn start(core: Arc<Core>, registry: Arc<Registry>, runtime: tokio::runtime::Handle) -> Result<Self> {
        let (requests, received) = mpsc::channel(16);
        let work = move || {
            threads::give_way();
            runtime.block_on(run(core, registry, received));
        };
        let thread = std::thread::Builder::new().name("quiver-compact".into()).spawn(work);
        let thread = Mutex::new(Some(thread.internal("cannot start the compaction thread")?));
        Ok(Self { requests, thread })
    }

    /// Compacts, and waits until it is done.
    ///
    /// # Errors
    /// Those of the compaction; [`ErrorKind::Cancelled`] when the store closes.
    pub(crate) async fn request(&self, extent: Extent) -> Result<()> {
        let (done, answer) = oneshot::channel();
        self.requests.send(Request::Compact { extent, done }).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Rewrites a part of spans between compactions, and waits until it is done.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub(crate) async fn rewrite(&self, part: PartId, rewriter: &Arc<dyn SpanRewriter>) -> Result<Outcome> {
        let (done, answer) = oneshot::channel();
        let request = Request::Rewrite { part, rewriter: Arc::clone(rewriter), done };
        self.requests.send(request).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Says whether the thread has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.lock().as_ref().is_some_and(std::thread::JoinHandle::is_finished)
    }

    /// Waits for the thread to end, after the store was told to stop.
    pub(crate) async fn join(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            tracing::error!("the compaction thread has panicked");
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Cancelled, "the store closes")
}

async fn run(core: Arc<Core>, registry: Arc<Registry>, mut requests: mpsc::Receiver<Request>) {
    let settings = core.settings.compaction.clone();
    let mut resting = PausedDays::default();
    loop {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            request = requests.recv() => match request {
                // The caller may be gone; the work is done nevertheless.
                Some(Request::Compact { extent, done }) => {
                    let _ = done.send(compact(&core, &registry, extent, &mut resting).await);
                }
                Some(Request::Rewrite { part, rewriter, done }) => {
                    threads::rest_from_now(false);
                    let bytes = usize::try_from(core.settings.compaction_memory_bytes()).unwrap_or(usize::MAX);
                    let memory = FlushMemory::new(&registry, Work::Compaction, bytes);
                    let outcome = rewrite::rewrite(&core, part, &*rewriter).await;
                    drop(memory);
                    let _ = done.send(outcome);
                }
                None => return,
            },
            () = tokio::time::sleep(settings.interval), if settings.enabled => {
                match compact(&core, &registry, Extent::Due, &mut resting).await {
                    Ok(()) => METRICS.compaction_last_success.set_time(core.now()),
                    Err(e) if e.kind() == ErrorKind::Cancelled => {}
                    Err(e) => tracing::error!(error = %chain(&e), "compaction failed, will retry"),
                }
            }
        }
    }
}

/// What merging parts takes: rows and row groups, and the table of series, which is complete before it is written. Parts
/// of a day mostly have the same series.
fn memory_bytes(core: &Core, inputs: &[Arc<Part>]) -> usize {
    let part_bytes: u64 = inputs.iter().map(|part| part.meta.bytes).sum();
    let rows = core.settings.compaction_memory_bytes().min(part_bytes.saturating_mul(UNPACKED));
    let series = inputs.iter().map(|part| part.meta.series).max().unwrap_or(0);
    usize::try_from(rows.saturating_add(series.saturating_mul(SERIES_BYTES as u64))).unwrap_or(usize::MAX)
}

/// Plans and runs compactions until none is due.
async fn compact(core: &Arc<Core>, registry: &Arc<Registry>, extent: Extent, resting: &mut PausedDays) -> Result<()> {
    let force = extent == Extent::All;
    let (mut conflicts, mut turn) = (0, 0);
    // A day that cannot be compacted (a damaged part) must not block the others.
    let mut failed: HashSet<(String, i32)> = HashSet::new();
    let mut first_error = None;
    loop {
        if core.stop.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "the store closes"));
        }
        let visible = core.shared.visible();
        let ctx = Context {
            now_ms: core.now_ms(),
            settings: &core.settings.compaction,
            force,
            spare_bytes: core.amplification.spare_bytes(),
        };
        let damaged = core.damaged_ids();
        let sound = visible.parts.iter().map(|p| &p.meta).filter(|p| !damaged.contains(&p.id));
        let mut plans = plan(sound, &ctx);
        plans.retain(|p| !failed.contains(&(p.table.clone(), p.day)) && (force || !resting.rests(&p.table, p.day)));
        METRICS.compaction_queue.set(plans.len() as u64);
        // A compaction adds to the spool before it frees anything, so uploads come first.
        turn += 1;
        let oldest = turn % OLDEST_EVERY == 0;
        let next = if oldest { plans.pop() } else { plans.into_iter().next() };
        // When memory is short, work that clients wait for comes first.
        let short = core.settings.pressure.is_short();
        let Some(next) = next.filter(|_| force || !(core.spool_full() || short)) else {
            let waits = |p: &Part| p.meta.place == Place::Spool && !damaged.contains(&p.meta.id);
            let uploads = visible.parts.iter().any(|p| waits(p) && p.meta.level < 2);
            drop(visible);
            if force && uploads && first_error.is_none() {
                wait_for_uploads(core).await?;
                continue;
            }
            return first_error.map_or(Ok(()), Err);
        };
        let behind = visible.parts.iter().filter(|p| p.meta.level == 0).count() > LEVEL0_PARTS_MAX;
        threads::rest_from_now(!(force || behind));
        let inputs: Vec<_> =
            visible.parts.iter().filter(|p| next.inputs.contains(&p.meta.id)).map(Arc::clone).collect();
        drop(visible);
        // Outputs are rarely larger than their inputs, which are deleted only after the commit.
        let wanted = inputs.iter().map(|p| p.meta.bytes).sum();
        let room = core.disk_space.for_compaction(wanted, core.settings.generation_bytes());
        let begins = room.is_ok();
        let done = match room {
            Ok(()) => {
                let _memory = FlushMemory::new(registry, Work::Compaction, memory_bytes(core, &inputs));
                run_plan(core, &next, inputs).await
            }
            Err(e) => Err(e),
        };
        match done {
            Ok(()) => {
                conflicts = 0;
                resting.succeeded(&next.table, next.day);
            }
            Err(e) => {
                METRICS.compaction_failures.inc();
                METRICS.compaction_no_room.add(u64::from(e.kind() == ErrorKind::Unavailable));
                if let Err(left) = cleaner::clean_pending(core).await {
                    tracing::warn!(error = %chain(&left), "files of a failed compaction stay for now");
                }
                if e.kind() == ErrorKind::Cancelled {
                    return Err(e);
                }
                conflicts += 1;
                if e.kind() == ErrorKind::Conflict && conflicts <= CONFLICTS_MAX {
                    tracing::debug!(error = %chain(&e), "a compaction lost its inputs");
                    continue;
                }
                let pause_s = resting.failed(&next.table, next.day, begins).as_secs();
                let (table, day) = (&next.table, next.day);
                tracing::warn!(table, day, pause_s, error = %chain(&e), "a day cannot be compacted, will retry after a pause");
                failed.insert((next.table, next.day));
                first_error.get_or_insert(e);
            }
        }
    }
}

async fn wait_for_uploads(core: &Core) -> Result<()> {
    let done = || async {
        core.still_open()?;
        let damaged = core.damaged_ids();
        let waits = |p: &Part| p.meta.place == Place::Spool && !damaged.contains(&p.meta.id);
        Ok(!core.shared.visible().parts.iter().any(|p| waits(p)))
    };
    core.progress.wait("the upload", Duration::from_mins(2), done).await
}

async fn run_plan(core: &Arc<Core>, plan: &Plan, inputs: Vec<Arc<Part>>) -> Result<()> {
    let started = Instant::now();
    // Also before anything is written: what lies in a store that is not ours, nobody deletes.
    core.may_commit().await?;
    let job = core.begin_job();
    let added = merge::merge(core, &job, plan, &inputs).await?;
    replace(core, plan, Replacement { job, inputs, added, started }).await
}

/// Parts that a job made of others.
struct Replacement {
    job: Job,
    inputs: Vec<Arc<Part>>,
    added: Vec<PartMeta>,
    /// When the job began.
    started: Instant,
}

/// Commits new parts in place of their inputs.
async fn replace(core: &Arc<Core>, plan: &Plan, replacement: Replacement) -> Result<()> {
    let Replacement { job, inputs, added, started } = replacement;
    failpoint::hit("compact.before-commit");
    let sum = |parts: &mut dyn Iterator<Item = u64>| parts.sum::<u64>();
    let (read, written) = (sum(&mut inputs.iter().map(|p| p.meta.bytes)), sum(&mut added.iter().map(|p| p.bytes)));
    let change = Change { job: Some(job.id), added, removed: plan.inputs.clone(), ..Change::default() };
    let (commit, change) = threads::at_once({
        let core = Arc::clone(core);
        async move {
            core.may_commit().await?;
            Result::Ok((commit(&core, &change).await?, change))
        }
    })
    .await?;
    failpoint::hit("compact.after-commit");
    let outputs = change.added.len();
    core.publish(commit, change.added, &plan.inputs, None);
    failpoint::hit("compact.after-swap");
    METRICS.compaction_runs.inc();
    METRICS.compaction_parts_read.add(inputs.len() as u64);
    METRICS.compaction_read_bytes.add(read);
    METRICS.compaction_written_bytes.add(written);
    METRICS.compaction_time.add_time(started.elapsed());
    METRICS.compaction_last_success.set_time(core.now());
    core.amplification.add_compacted(written);
    tracing::info!(
        table = plan.table,
        day = plan.day,
        level = plan.level,
        commit,
        inputs = inputs.len(),
        outputs,
        read,
        written,
        "compacted"
    );
    // These references keep the old files alive.
    drop(inputs);
    core.wake.upload.notify_one();
    core.wake.outbox.notify_one();
    core.wake.clean.notify_one();
    Ok(())
}
