//! Turns sealed generations into parts: one per table and day, committed together with the writer's floor.
//!
//! The steps have the order of `architecture` 4, and a crash may follow each: register the pending keys, write and sync
//! the files, commit (add the parts, remove the pending keys, move the floor), publish the snapshot, delete generation
//! and WAL. Generations of a writer commit in order, since one task flushes them one by one. A failed attempt leaves
//! nothing behind: its files are deleted, and the next attempt has a new flush id.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use quiver_types::SpansBatch;
use quiver_types::error::disk_is_full;
use quiver_types::tables::{self, logs, metric_metadata, metrics, record_tables, spans};
use quiver_types::time::{DAY_MS, day_of};
use tokio::sync::mpsc::UnboundedReceiver;
use uuid::Uuid;

use crate::catalog::{Change, Floor};
use crate::cleaner;
use crate::core::{Backoff, Core};
use crate::error::{Context, Error, ErrorKind, Result, chain};
use crate::failpoint;
use crate::idempotency::AnsweredRequest;
use crate::memtable::spans::starts;
use crate::memtable::{Generation, GenerationId};
use crate::metric_metadata_rows::{MetadataRow, metadata_batch, newest_rows};
use crate::metrics::METRICS;
use crate::part::spans::{OwnColumn, SpanPartWriter, own_columns, sorted};
use crate::part::{PartCompression, PartId, PartMeta, PartOrigin, PartSpec, PartWriter, planned_keys, write_rows_part};

pub(crate) mod memory;
mod quarantine;

use memory::FlushMemory;
use quarantine::SetAsideGenerations;
pub(crate) use quarantine::held_id;

/// Number of failed attempts after which a generation is set aside.
const GIVEN_UP_AFTER: u32 = 5;
/// Typical ratio between the size of rows in memory and in parts.
const PACKED: u64 = 8;

/// Frees what a flushed generation holds: its memory and WAL segments.
pub(crate) trait Retire: Send + Sync {
    /// Called when the generation is in parts that readers see.
    fn retire(&self, id: GenerationId);

    /// Moves the WAL segments of a generation aside until it is retired, so that later ones can be committed before
    /// it.
    ///
    /// # Errors
    /// I/O errors. Some of its files may have moved; the next attempt or the next start moves the rest.
    fn set_aside(&self, id: GenerationId) -> Result<()>;
}

/// The generation that is being flushed, until its WAL is deleted, and those that were set aside.
#[derive(Debug, Default)]
pub(crate) struct FlushState {
    now: Mutex<Option<GenerationId>>,
    aside: Mutex<BTreeMap<GenerationId, String>>,
}

impl FlushState {
    /// Says whether one of these is being flushed.
    pub(crate) fn is_one_of(&self, ids: &HashSet<GenerationId>) -> bool {
        self.now.lock().is_some_and(|id| ids.contains(&id))
    }

    /// Says whether a generation was set aside.
    pub(crate) fn is_aside(&self, id: GenerationId) -> bool {
        self.aside.lock().contains_key(&id)
    }

    /// Says why one of these was set aside, if one was.
    pub(crate) fn set_aside_of(&self, ids: &HashSet<GenerationId>) -> Option<String> {
        let aside = self.aside.lock();
        aside.iter().find(|(id, _)| ids.contains(id)).map(|(id, why)| format!("generation {id} was set aside: {why}"))
    }
}

/// The generations found at the start.
#[derive(Debug, Default)]
pub(crate) struct StartupGenerations {
    /// In the order in which they must be flushed.
    pub(crate) replayed: Vec<Arc<Generation>>,
    /// Those that were set aside.
    pub(crate) aside: Vec<Arc<Generation>>,
}

/// Flushes the replayed generations, then those that are sealed, until the store closes. A generation that cannot be
/// flushed is set aside if others wait behind it, and retried when there is time.
pub(crate) async fn run(
    core: Arc<Core>,
    retire: Arc<dyn Retire>,
    found: StartupGenerations,
    mut sealed: UnboundedReceiver<Arc<Generation>>,
    flushing: Arc<FlushState>,
) {
    let mut waiting: VecDeque<_> = found.replayed.into();
    let mut aside = SetAsideGenerations::new(found.aside, Arc::clone(&flushing));
    loop {
        core.flush_health.rests();
        let next = if let Some(next) = waiting.pop_front() {
            next
        } else {
            tokio::select! {
                biased;
                () = core.stop.cancelled() => return,
                next = sealed.recv() => match next {
                    Some(next) => next,
                    None => return,
                },
                () = aside.due() => {
                    aside.retry(&core, &*retire).await;
                    continue;
                }
            }
        };
        let id = next.id();
        *flushing.now.lock() = Some(id);
        METRICS.flush_queue.set(sealed.len() as u64 + waiting.len() as u64 + 1);
        let others_wait = || aside.takes_more() && sealed.len() + waiting.len() > 0;
        match flush_until_done(&core, &next, others_wait).await {
            Outcome::Done => {
                // Drop our reference, so that retiring the generation frees its memory.
                drop(next);
                retire.retire(id);
                failpoint::hit("flush.after-retire");
            }
            Outcome::GivenUp(why) => {
                if !set_aside(&core, &*retire, id).await {
                    return;
                }
                aside.add(next, why);
            }
            Outcome::Closing => return,
        }
        *flushing.now.lock() = None;
        METRICS.flush_queue.set(sealed.len() as u64 + waiting.len() as u64);
        core.progress.bump();
        core.wake.upload.notify_one();
        core.wake.outbox.notify_one();
    }
}

/// Sets a generation aside, and retries until that is done; gives false if the store closes meanwhile. It must not be
/// flushed normally in between: once its first segment has moved, the next start takes it for one that was set aside
/// and looks for another id in the catalog, so it would replay it and have its rows twice.
async fn set_aside(core: &Core, retire: &dyn Retire, id: GenerationId) -> bool {
    let mut backoff = Backoff::new(core);
    while let Err(e) = retire.set_aside(id) {
        tracing::error!(generation = %id, error = %chain(&e), "cannot set a generation aside, will retry");
        core.flush_health.failed(format!("generation {id} cannot be set aside: {}", chain(&e)));
        if !backoff.pause(&core.stop).await {
            return false;
        }
    }
    true
}

/// How a generation left the queue.
enum Outcome {
    Done,
    /// Its content cannot be written, and others wait behind it.
    GivenUp(String),
    Closing,
}

/// Retries until it succeeds, the store closes, or the generation is to be set aside.
async fn flush_until_done(core: &Arc<Core>, generation: &Arc<Generation>, others_wait: impl Fn() -> bool) -> Outcome {
    let mut backoff = Backoff::new(core);
    let mut own_faults = 0;
    loop {
        if core.stop.is_cancelled() {
            return Outcome::Closing;
        }
        core.flush_health.moves();
        let Err(Failure { error, of_content }) = flush(core, generation, generation.id()).await else {
            core.flush_health.succeeded();
            return Outcome::Done;
        };
        let text = failed(core, generation, &error).await;
        own_faults += u32::from(of_content);
        if own_faults >= GIVEN_UP_AFTER && of_content && others_wait() {
            return Outcome::GivenUp(text);
        }
        if !backoff.pause(&core.stop).await {
            return Outcome::Closing;
        }
    }
}

/// Reports a failed flush, and deletes the files that it left.
async fn failed(core: &Core, generation: &Generation, error: &Error) -> String {
    METRICS.flush_failures.inc();
    let text = chain(error);
    tracing::error!(generation = %generation.id(), error = text, "flush failed, will retry");
    core.flush_health.failed(format!("generation {} cannot be flushed: {text}", generation.id()));
    // Delete at once, since the disk may be full.
    if let Err(e) = cleaner::clean_pending(core).await {
        tracing::warn!(error = %chain(&e), "files of a failed flush stay until the cleaner's next round");
    }
    text
}

/// Why a flush failed.
struct Failure {
    error: Error,
    /// Whether the content of the generation seems to be the cause, so that another generation may succeed.
    of_content: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, of_content: false }
    }
}

/// An internal error is attributed to the content; a full disk or a closing store is not.
fn of_content(error: Error) -> Failure {
    Failure { of_content: error.kind() == ErrorKind::Internal && !disk_is_full(&error), error }
}

/// One part to write.
struct Output {
    table: &'static str,
    day: i32,
    id: PartId,
    rows: Vec<MetadataRow>,
    spans: SpanOutput,
}

/// The spans of a day: batches, and the order of their rows.
#[derive(Debug, Default)]
struct SpanOutput {
    batches: Arc<Vec<SpansBatch>>,
    own: Arc<Vec<OwnColumn>>,
}

/// Flushes a generation under an id: its own, or the one used for generations that were set aside.
async fn flush(core: &Arc<Core>, generation: &Arc<Generation>, id: GenerationId) -> Result<(), Failure> {
    let started = Instant::now();
    // Also before anything is written: what lies in a store that is not ours, nobody deletes.
    core.may_commit().await?;
    core.disk_space.for_flush(generation.bytes() as u64 / PACKED)?;
    let _memory = FlushMemory::of(generation);
    let job = core.begin_job();
    failpoint::hit("flush.before-pending");
    let planned = {
        let generation = Arc::clone(generation);
        tokio::task::spawn_blocking(move || plan(&generation))
            .await
            .internal("the flush stopped")
            .map_err(of_content)?
    };
    let keys: Vec<_> = planned.iter().flat_map(|o| keys(o.table, o.day, o.id)).collect();
    core.catalog.add_pending(job.id, &keys).await?;
    failpoint::hit("flush.after-pending");
    let added = {
        let (core, generation, flush_id) = (Arc::clone(core), Arc::clone(generation), job.id);
        let write = move || write(&core, &generation, (id, flush_id), planned);
        let written = tokio::task::spawn_blocking(write).await.internal("the flush stopped");
        written.and_then(|written| written).map_err(of_content)?
    };
    failpoint::hit("flush.before-commit");
    let bytes: u64 = added.iter().map(|p| p.bytes).sum();
    let parts = added.len();
    let mut answered = generation.requests();
    answered.retain(|request| !request.expired(core.now_ms()));
    let (commit, added) = commit_flush(core, id, job.id, added, answered).await?;
    failpoint::hit("flush.after-commit");
    core.publish(commit, added, &[], Some(generation.id()));
    failpoint::hit("flush.after-swap");
    METRICS.flush_runs.inc();
    METRICS.flush_parts.add(parts as u64);
    METRICS.flush_bytes.add(bytes);
    METRICS.flush_time.add_time(started.elapsed());
    METRICS.flush_last_success.set_time(core.now());
    core.amplification.add_flushed(bytes);
    tracing::debug!(generation = %generation.id(), commit, parts, bytes, "flushed");
    Ok(())
}

/// Gives the keys that a part may get.
pub(crate) fn keys(table: &str, day: i32, id: PartId) -> Vec<String> {
    let kinds: Vec<_> = tables::table(table).map_or(&[][..], |t| t.files).iter().map(|f| f.kind).collect();
    planned_keys(table, day, id, &kinds)
}

fn plan(generation: &Generation) -> Vec<Output> {
    let output = |table, day, rows| Output { table, day, id: Uuid::now_v7(), rows, spans: SpanOutput::default() };
    // Each part records the number of parts of its flush, so a day that turns out empty must not be counted.
    let days = generation.days().into_iter().filter(|&day| generation.has_runs(day));
    let mut outputs: Vec<_> = days.map(|day| output(metrics::TABLE.name, day, Vec::new())).collect();
    let mut metadata: BTreeMap<i32, Vec<MetadataRow>> = BTreeMap::new();
    for (ts, metadata_of, service) in generation.metadata(u64::MAX) {
        metadata.entry(day_of(ts)).or_default().push(MetadataRow { ts, metadata: metadata_of, service });
    }
    outputs.extend(generation.logs().days().into_iter().map(|day| output(logs::TABLE.name, day, Vec::new())));
    outputs.extend(plan_spans(generation));
    outputs.extend(metadata.into_iter().map(|(day, rows)| output(metric_metadata::TABLE.name, day, newest_rows(rows))));
    for table in record_tables::TABLES {
        let days = crate::record_tables::all_days(&generation.table_rows(table.name, u64::MAX));
        outputs.extend(days.into_iter().map(|day| output(table.name, day, Vec::new())));
    }
    outputs
}

fn plan_spans(generation: &Generation) -> Vec<Output> {
    let chunks = generation.span_view((i64::MIN, i64::MAX), u64::MAX);
    let batches: Arc<Vec<SpansBatch>> = Arc::new(chunks.iter().map(|c| c.batch.clone()).collect());
    let days: BTreeSet<i32> = batches.iter().flat_map(|b| starts(b).iter().map(|&t| day_of_ns(t))).collect();
    let own = Arc::new(own_columns(batches.iter()));
    let table = spans::TABLE.name;
    let output = |day| {
        let spans = SpanOutput { batches: Arc::clone(&batches), own: Arc::clone(&own) };
        Output { table, day, id: Uuid::now_v7(), rows: Vec::new(), spans }
    };
    days.into_iter().map(output).collect()
}

fn day_of_ns(time: i64) -> i32 {
    day_of(time.div_euclid(1_000_000))
}

fn write_spans(root: &Path, spec: PartSpec, output: &SpanOutput) -> Result<PartMeta> {
    let day = spec.day;
    let mut part = SpanPartWriter::create(root, spec, output.own.to_vec(), true)?;
    let sorted = sorted(&output.batches, |start| day_of_ns(start) == day)?;
    part.push(&sorted.batches, &sorted.rows)?;
    part.finish()?.ok_or_else(|| Error::internal("a day of spans turned out empty"))
}

fn write(
    core: &Core,
    generation: &Generation,
    (id, flush_id): (GenerationId, Uuid),
    planned: Vec<Output>,
) -> Result<Vec<PartMeta>> {
    let outputs = planned.len() as u32;
    let mut written = Vec::with_capacity(planned.len());
    for (i, planned) in planned.into_iter().enumerate() {
        if core.stop.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "the store closes"));
        }
        let GenerationId { writer, number } = id;
        let spec = PartSpec {
            table: planned.table.to_owned(),
            day: planned.day,
            level: 0,
            id: planned.id,
            origin: PartOrigin::Flushed { writer, generation: number, flush_id, output: i as u32, outputs },
            place: core.output.place,
            window: 0,
            compression: PartCompression::Fresh,
        };
        let root: &Path = &core.output.root;
        let meta = if planned.table == metrics::TABLE.name {
            let mut part = PartWriter::metrics(root, spec);
            for run in generation.runs(planned.day) {
                part.push(&run)?;
            }
            part.finish()?
        } else if planned.table == logs::TABLE.name {
            let first = i64::from(planned.day) * DAY_MS;
            let range = (first.saturating_mul(1_000_000), (first + DAY_MS).saturating_mul(1_000_000).saturating_sub(1));
            crate::logs::flush::write_day(root, spec, &generation.log_view(range, u64::MAX))?
        } else if planned.table == spans::TABLE.name {
            write_spans(root, spec, &planned.spans)?
        } else if planned.table == metric_metadata::TABLE.name {
            write_rows_part(root, spec, &metadata_batch(&planned.rows)?)?
        } else {
            let rows = crate::record_tables::of_day(&generation.table_rows(planned.table, u64::MAX), planned.day)?;
            write_rows_part(root, spec, &rows)?
        };
        written.push(meta);
        core.flush_health.moves();
        failpoint::check("flush.after-part")?;
    }
    Ok(written)
}

/// Commits the parts of a generation together with its floor; gives the parts that are valid.
async fn commit_flush(
    core: &Core,
    id: GenerationId,
    flush_id: Uuid,
    added: Vec<PartMeta>,
    answered: Vec<Arc<AnsweredRequest>>,
) -> Result<(u64, Vec<PartMeta>)> {
    core.may_commit().await?;
    let floor = Floor { writer: id.writer, generation: id.number };
    let change = Change { job: Some(flush_id), added, floors: vec![floor], answered, ..Change::default() };
    let mut backoff = Backoff::new(core);
    loop {
        let error = match core.catalog.commit(&change).await {
            Ok(commit) => return Ok((commit, change.added)),
            Err(e) if e.kind() == ErrorKind::Conflict => return committed_before(core, id, e).await,
            Err(e) => e,
        };
        let text = chain(&error);
        tracing::error!(generation = %id, error = text, "commit of a flush failed, will retry");
        core.flush_health.failed(format!("generation {id} cannot be committed: {text}"));
        if !backoff.pause(&core.stop).await {
            return Err(error);
        }
    }
}

/// Handles a conflict: an earlier flush of this generation may have been committed without our knowledge. Then its
/// parts are valid, and those of this flush are left to the cleaner.
async fn committed_before(core: &Core, id: GenerationId, error: Error) -> Result<(u64, Vec<PartMeta>)> {
    let floors = core.catalog.floors().await?;
    if !floors.iter().any(|f| f.writer == id.writer && f.floor > id.number) {
        return Err(error);
    }
    let (commit, live) = core.catalog.live_parts().await?;
    let known: Vec<_> = core.shared.visible().parts.iter().map(|p| p.meta.id).collect();
    let ours = |p: &PartMeta| match &p.origin {
        PartOrigin::Flushed { writer, generation, .. } => (*writer, *generation) == (id.writer, id.number),
        PartOrigin::Compacted { .. } => false,
    };
    Ok((commit, live.into_iter().filter(|p| ours(p) && !known.contains(&p.id)).collect()))
}
