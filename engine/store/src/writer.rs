//! The write path: admits batches, waits for memory, hands them to the WAL's thread, and answers when they are durable
//! and visible.
//!
//! A write returns after its records are synced (level `sync`) or written (level `os`) and its rows stand in the open
//! generation, so whoever got the answer finds what he wrote. Sealed generations are handed on for their flush, and
//! [`WritePath::retire`] deletes their segments afterwards.

pub(crate) mod committer;
pub(crate) mod described;
pub(crate) mod hints;
pub(crate) mod limits;
pub(crate) mod quota;
pub(crate) mod stage;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use quiver_types::tables::history::TableRows;
use quiver_types::{Clock, Error, ErrorKind, LogsBatch, MetricsBatch, Result, SpansBatch};
use tokio::sync::{mpsc::UnboundedSender, oneshot};
use uuid::Uuid;

use crate::error::io_error;
use crate::failpoint;
use crate::flush::{Found, held_id};
use crate::health::Heartbeat;
use crate::memtable::logs::PreparedLogs;
use crate::memtable::{Generation, GenerationId};
use crate::metrics::METRICS;
use crate::registry::Registry;
use crate::requests::{Answer, AnsweredRequest, Claimed, Once, RequestId, Requests};
use crate::settings::WriteSettings;
use crate::snapshot::{Shared, Visible};
use crate::wal::disk::WalDisk;
use crate::wal::replay::{self, replay};
use crate::wal::segment;
use crate::writer::committer::{Committer, Files, Job, Log, Queued, SegmentFiles, WriteJob, Written};
use crate::writer::stage::{Batch, Named, Stager};

/// How long a write waits for memory before it is refused.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(2);
const MEMORY_WAIT_STEP: Duration = Duration::from_millis(10);
/// So many generations may be in memory before writes wait for the flush.
const GENERATIONS_MAX: u64 = 2;
/// So many may be in memory, however small, before writes wait; with more than the second number they are refused.
const SMALL_GENERATIONS_MAX: [usize; 2] = [8, 32];
/// Folder in the WAL's for generations that were set aside.
const HELD: &str = "held";
/// This part of the budget is for writes even while the process is short of memory.
const FREE_PART: u64 = 4;

/// Why a sample, histogram, exemplar or log row was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Its time is older than what is accepted.
    TooOld,
    /// Further in the future than accepted.
    TooFarInFuture,
    /// Its series is new and the registry is full. The same sample may be taken later.
    SeriesLimit,
    /// Its series is new and its service brings too many.
    ServiceSeriesLimit,
    /// An exemplar outside of the accepted time; dropped without failing the request.
    ExemplarTime,
}

impl Refusal {
    /// Gives the text for the sender.
    pub fn text(self) -> &'static str {
        match self {
            Self::TooOld => "too old sample",
            Self::TooFarInFuture => "sample is more than 10 min in the future",
            Self::SeriesLimit => "too many series",
            Self::ServiceSeriesLimit => "too many new series of one service",
            Self::ExemplarTime => "exemplar outside of the accepted time",
        }
    }
}

/// What became of a write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Float samples written, repeats of known ones included.
    pub samples: u64,
    /// Native histograms written.
    pub histograms: u64,
    /// Exemplars that were written.
    pub exemplars: u64,
    /// Spans that were written.
    pub spans: u64,
    /// Log rows written.
    pub rows: u64,
    /// What was dropped, by reason; each reason once, counts not 0.
    pub refused: Vec<(Refusal, u64)>,
}

/// What a write path is made of.
pub struct WritePathParts {
    /// Folder of the segments; created when it is missing.
    pub dir: PathBuf,
    /// The way to the disk.
    pub disk: Arc<dyn WalDisk>,
    /// Settings of WAL, registry and generations.
    pub settings: WriteSettings,
    /// Wall clock, for ages.
    pub clock: Arc<dyn Clock>,
    /// The process' registry.
    pub registry: Arc<Registry>,
    /// Where readers look; replayed generations and the open one are added to it.
    pub shared: Arc<Shared>,
    /// Gets each generation that is sealed from now on (replayed ones are returned by `open`), in order.
    pub on_sealed: UnboundedSender<Arc<Generation>>,
    /// Id of this process, a new UUIDv7.
    pub writer: Uuid,
    /// Says whether a generation is in parts already (at or below its writer's floor), so that its segments go.
    pub flushed: Box<dyn Fn(GenerationId) -> bool>,
    /// The same for a generation that was set aside.
    pub held_flushed: Box<dyn Fn(GenerationId) -> bool>,
}

impl std::fmt::Debug for WritePathParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WritePathParts").field("dir", &self.dir).field("writer", &self.writer).finish_non_exhaustive()
    }
}

/// The write side of the store.
#[derive(Debug)]
pub struct WritePath {
    jobs: Sender<Job>,
    settings: WriteSettings,
    clock: Arc<dyn Clock>,
    disk: Arc<dyn WalDisk>,
    dir: PathBuf,
    registry: Arc<Registry>,
    shared: Arc<Shared>,
    files: Arc<SegmentFiles>,
    queued_bytes: Arc<AtomicU64>,
    requests: Arc<Requests>,
    heartbeat: Heartbeat,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

fn stopped() -> Error {
    Error::new(ErrorKind::Unavailable, "the store is shutting down")
}

impl WritePath {
    /// Replays what is in the folder and starts the WAL's thread. Gives the generations that were found, sealed; they are
    /// visible already.
    ///
    /// # Errors
    /// Invalid: segments of a newer version. Internal: the folder cannot be read.
    pub(crate) fn open(parts: WritePathParts) -> Result<(Self, Found)> {
        let WritePathParts { dir, disk, settings, clock, registry, shared, on_sealed, writer, flushed, held_flushed } =
            parts;
        std::fs::create_dir_all(&dir).map_err(|e| io_error(format!("cannot create `{}`", dir.display()), e))?;
        let held_dir = dir.join(HELD);
        std::fs::create_dir_all(&held_dir)
            .map_err(|e| io_error(format!("cannot create `{}`", held_dir.display()), e))?;
        finish_moves(&*disk, &dir, &held_dir)?;
        let mut replayed = replay(&*disk, &held_dir, &registry, &*held_flushed)?;
        let held = replayed.len();
        replayed.extend(replay(&*disk, &dir, &registry, &*flushed)?);
        let mut files = HashMap::new();
        let mut found = Vec::with_capacity(replayed.len());
        for replayed in replayed {
            if replayed.damaged {
                let (generation, corrupt) = (replayed.generation.id(), replayed.corrupt);
                tracing::warn!(%generation, corrupt, "damage in the WAL: its segments are kept aside once flushed");
            }
            files.insert(replayed.generation.id(), Files { paths: replayed.files, damaged: replayed.damaged });
            found.push(replayed.generation);
        }
        let files = Arc::new(Mutex::new(files));
        // Above all that was found, so that one number cuts all generations of a snapshot.
        let last_seq = found.iter().map(|g| g.last_seq()).max().unwrap_or(0).max(shared.seq());
        let id = GenerationId { writer, number: 1 };
        let generation = Arc::new(Generation::new(id, last_seq + 1, Arc::clone(&registry)));
        shared.update(|visible| {
            let mut generations = visible.generations.clone();
            generations.extend(found.iter().cloned());
            generations.push(Arc::clone(&generation));
            Visible { generations, ..visible.clone() }
        });
        shared.advance(last_seq);
        let committer = Committer {
            dir: dir.clone(),
            disk: Arc::clone(&disk),
            settings: settings.clone(),
            clock: Arc::clone(&clock),
            registry: Arc::clone(&registry),
            shared: Arc::clone(&shared),
            on_sealed,
            files: Arc::clone(&files),
            generation,
            next_seq: last_seq + 1,
            stager: Stager::default(),
            log: Log::default(),
            opened: None,
            heartbeat: Heartbeat::default(),
        };
        let heartbeat = committer.heartbeat.clone();
        let (jobs, queue) = channel();
        let thread = std::thread::Builder::new().name("quiver-wal".into()).spawn(move || committer.run(&queue));
        let thread = thread.map_err(|e| Error::internal("cannot start the thread of the WAL").with_source(e))?;
        let thread = Mutex::new(Some(thread));
        let requests = Requests::new(settings.requests_bytes);
        let queued_bytes = Arc::default();
        let path = Self {
            jobs,
            settings,
            clock,
            disk,
            dir,
            registry,
            shared,
            files,
            queued_bytes,
            requests,
            heartbeat,
            thread,
        };
        path.load_requests(found.iter().flat_map(|g| g.requests()).collect());
        let replayed = found.split_off(held);
        Ok((path, Found { replayed, aside: found }))
    }

    /// Writes a batch. Returns when it is durable as the level says, and visible.
    ///
    /// # Errors
    /// Invalid: the batch touches too many days; nothing of it is stored. Unavailable: no memory, no disk, or the store
    /// stops; the same batch may be sent again.
    pub async fn write_metrics(&self, mut batch: MetricsBatch) -> Result<WriteOutcome> {
        let admitted = limits::admit(&mut batch, self.clock.now_ms(), &self.settings)?;
        let mut outcome = WriteOutcome { refused: admitted.refused, ..WriteOutcome::default() };
        if batch.is_empty() {
            return Ok(outcome);
        }
        self.wait_for_memory().await?;
        let bytes = batch_bytes(&batch);
        let written = self.enqueue(Batch::Metrics(batch), bytes, admitted.days)?.await.map_err(|_| stopped())??;
        (outcome.samples, outcome.histograms, outcome.exemplars) =
            (written.samples, written.histograms, written.exemplars);
        if written.refused > 0 {
            outcome.refused.push((Refusal::SeriesLimit, written.refused));
        }
        if written.barred > 0 {
            outcome.refused.push((Refusal::ServiceSeriesLimit, written.barred));
        }
        Ok(outcome)
    }

    /// Writes log rows, likewise. Rows outside of the accepted time are dropped and counted.
    ///
    /// # Errors
    /// As [`WritePath::write_metrics`].
    pub async fn write_logs(&self, mut batch: LogsBatch) -> Result<WriteOutcome> {
        let admitted = limits::admit_logs(&mut batch, self.clock.now_ms(), &self.settings)?;
        let mut outcome = WriteOutcome { refused: admitted.refused, ..WriteOutcome::default() };
        if batch.is_empty() {
            return Ok(outcome);
        }
        self.wait_for_memory().await?;
        let prepared = PreparedLogs::new(batch)?;
        let bytes = prepared.bytes;
        let batch = Batch::Logs(Box::new(prepared), None);
        let written = self.enqueue(batch, bytes, admitted.days)?.await.map_err(|_| stopped())??;
        outcome.rows = written.rows;
        Ok(outcome)
    }

    /// The time of log rows, in nanoseconds, that a write accepts now.
    pub fn logs_window(&self) -> RangeInclusive<i64> {
        limits::logs_window(self.clock.now_ms(), &self.settings)
    }

    /// Writes the log rows of a request that names itself, as one write, with the answer that it gets; `answer` makes it
    /// of what was refused. A request that was written before is not written again.
    ///
    /// # Errors
    /// As [`WritePath::write_logs`], and those of `answer`: then nothing is stored, and the request is not known.
    /// Execution: the same name was used with another body.
    pub async fn write_logs_once(
        &self,
        id: RequestId,
        body_hash: u128,
        mut batches: Vec<LogsBatch>,
        answer: impl FnOnce(&[(Refusal, u64)]) -> Result<Answer>,
    ) -> Result<Once> {
        let claim = match self.requests.claim(&id, body_hash, || self.clock.now_ms()).await? {
            Claimed::New(claim) => claim,
            Claimed::Known(known) => return Ok(Once::Repeated(known)),
        };
        let (mut days, mut refused) = (Vec::new(), Vec::new());
        for batch in &mut batches {
            let admitted = limits::admit_logs(batch, self.clock.now_ms(), &self.settings)?;
            days.extend(admitted.days);
            refused.extend(admitted.refused);
        }
        days.sort_unstable();
        days.dedup();
        limits::check_days(&days, &self.settings)?;
        let answer = answer(&refused)?;
        self.wait_for_memory().await?;
        let filled = batches.into_iter().filter(|b| !b.is_empty());
        let prepared = PreparedLogs::join(filled.map(PreparedLogs::new).collect::<Result<_>>()?);
        let request = Arc::new(AnsweredRequest { id, body_hash, at: self.clock.now_ms(), answer });
        let bytes = prepared.bytes + request.bytes();
        let batch = Batch::Logs(Box::new(prepared), Some(Box::new(Named { request: Arc::clone(&request), claim })));
        self.enqueue(batch, bytes, days)?.await.map_err(|_| stopped())??;
        Ok(Once::Stored(request))
    }

    /// Adds requests that were answered before the start and stand in the catalog.
    pub(crate) fn load_requests(&self, answered: Vec<Arc<AnsweredRequest>>) {
        self.requests.load(answered, self.clock.now_ms());
    }

    /// Writes spans, likewise.
    ///
    /// # Errors
    /// As [`WritePath::write_metrics`].
    pub async fn write_spans(&self, batch: SpansBatch) -> Result<WriteOutcome> {
        let admitted = limits::admit_spans(&batch, &self.settings)?;
        if batch.is_empty() {
            return Ok(WriteOutcome::default());
        }
        self.wait_for_memory().await?;
        let bytes = batch.memory_bytes();
        let written = self.enqueue(Batch::Spans(batch), bytes, admitted.days)?.await.map_err(|_| stopped())??;
        Ok(WriteOutcome { spans: written.spans, ..WriteOutcome::default() })
    }

    /// Writes rows of tables that keep them as they came, all or nothing.
    ///
    /// # Errors
    /// As [`WritePath::write_metrics`]; Internal: columns that are not the table's.
    pub async fn write_rows(&self, rows: Vec<TableRows>) -> Result<()> {
        let (mut bytes, mut days) = (0, Vec::new());
        for rows in &rows {
            days.extend(crate::rows::days(rows)?);
            bytes += rows.rows.get_array_memory_size();
        }
        let rows: Vec<TableRows> = rows.into_iter().filter(|rows| rows.rows.num_rows() > 0).collect();
        if rows.is_empty() {
            return Ok(());
        }
        self.wait_for_memory().await?;
        days.sort_unstable();
        days.dedup();
        self.enqueue(Batch::Rows(rows), bytes, days)?.await.map_err(|_| stopped())??;
        Ok(())
    }

    fn enqueue(&self, batch: Batch, bytes: usize, days: Vec<i32>) -> Result<oneshot::Receiver<Result<Written>>> {
        let (reply, answer) = oneshot::channel();
        let queued = Queued::new(&self.queued_bytes, bytes);
        self.jobs.send(Job::Write(Box::new(WriteJob { batch, days, bytes, queued, reply }))).map_err(|_| stopped())?;
        Ok(answer)
    }

    /// Bytes of generations, registry and queue.
    pub fn memory_bytes(&self) -> u64 {
        (self.registry.bytes() + self.registry.generation_bytes()) as u64 + self.queued_bytes.load(Relaxed)
    }

    /// Whether writes have to wait. What others take is no reason to refuse the few bytes that are always left to them.
    fn lacks_memory(&self) -> bool {
        let held = self.memory_bytes();
        let short = self.settings.pressure.is_short() && held > self.settings.memory_bytes / FREE_PART;
        held > self.settings.memory_bytes || short
    }

    /// Says what keeps writes from being taken: the thread has ended, or the disk under it does not answer.
    pub(crate) fn trouble(&self) -> Option<String> {
        if self.thread.lock().as_ref().is_some_and(std::thread::JoinHandle::is_finished) {
            return Some("the thread of the write-ahead log has ended".into());
        }
        let silent = self.heartbeat.silent()?.as_secs();
        Some(format!("the write-ahead log has not answered for {silent} s"))
    }

    /// Whether more waits for its flush than one generation beside the open one: memory would grow with what comes in,
    /// as long as that is faster than the disk.
    fn runs_ahead(&self) -> bool {
        let (generations, bytes) = self.unflushed();
        generations > SMALL_GENERATIONS_MAX[0]
            || (generations > 1 && bytes as u64 > self.settings.generation_bytes * GENERATIONS_MAX)
    }

    /// The open generation and those on their way to parts, and their bytes. Those that were set aside are not on their
    /// way: whoever waited for them would wait for ever.
    fn unflushed(&self) -> (usize, usize) {
        let visible = self.shared.visible();
        let on_their_way = visible.generations.iter().filter(|g| !g.is_aside());
        on_their_way.fold((0, 0), |(count, bytes), g| (count + 1, bytes + g.bytes()))
    }

    /// Whether so many generations wait that the flush has to come first, whatever their size.
    fn lacks_flush(&self) -> bool {
        self.unflushed().0 > SMALL_GENERATIONS_MAX[1]
    }

    /// Waits until there is room. Who only runs ahead of the flush goes on after a while, who is over the budget does not.
    async fn wait_for_memory(&self) -> Result<()> {
        if !self.lacks_memory() && !self.runs_ahead() {
            return Ok(());
        }
        METRICS.ingest_waits.inc();
        let started = Instant::now();
        if self.unflushed().0 <= 1 {
            // Nothing is on its way out, so nothing would ever become free.
            self.seal().await?;
        }
        while self.lacks_memory() || self.runs_ahead() {
            if started.elapsed() >= MEMORY_WAIT_MAX {
                let text = match (self.lacks_memory(), self.lacks_flush()) {
                    (true, _) => "ingest is over its memory limit; waiting for the flush",
                    (false, true) => "too many generations wait for their flush",
                    (false, false) => break,
                };
                METRICS.ingest_refused.inc();
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
            tokio::time::sleep(MEMORY_WAIT_STEP).await;
        }
        Ok(())
    }

    /// Seals the open generation now; `None` when it holds nothing. It also goes to `on_sealed`.
    ///
    /// # Errors
    /// Unavailable: the store stops.
    pub async fn seal(&self) -> Result<Option<Arc<Generation>>> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job::Seal(reply)).map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())
    }

    /// Forgets a generation whose flush has committed: takes it off the list of what is visible (if the swap has not
    /// done so), and deletes its segments, or keeps them aside when replay found damage in them. Its memory and its
    /// places in the registry go with the last snapshot that reads it.
    pub fn retire(&self, id: GenerationId) {
        self.shared.update(|visible| {
            let generations = visible.generations.iter().filter(|g| g.id() != id).cloned().collect();
            Visible { generations, ..visible.clone() }
        });
        failpoint::hit("wal.before-retire");
        let Some(files) = self.files.lock().remove(&id) else { return };
        for path in &files.paths {
            if files.damaged {
                replay::quarantine(&*self.disk, path);
            } else {
                replay::discard(&*self.disk, path);
            }
        }
        let held = files.paths.first().and_then(|path| path.parent()).unwrap_or(&self.dir);
        if let Err(error) = self.disk.sync_dir(held) {
            tracing::warn!(%error, "cannot sync the folder of the WAL after a removal");
        }
        failpoint::hit("wal.after-retire");
    }

    /// Gives the writers of which segments are there, those under which generations that were set aside are committed
    /// among them: that a segment which could not be deleted was flushed is known by its writer's floor. What was removed
    /// before stays removed: whoever forgets the floors of other writers must not see their segments come back with a
    /// power cut.
    ///
    /// # Errors
    /// Internal: the folder cannot be synced or listed.
    pub(crate) fn writers_with_segments(&self) -> Result<std::collections::HashSet<Uuid>> {
        let failed = |e| io_error(format!("cannot read `{}`", self.dir.display()), e);
        let held_dir = self.dir.join(HELD);
        let list = |dir: &Path| {
            self.disk.sync_dir(dir).map_err(failed)?;
            let paths = self.disk.list(dir).map_err(failed)?;
            Ok::<Vec<GenerationId>, Error>(paths.iter().filter_map(|p| Some(segment::parse_file_name(p)?.0)).collect())
        };
        let held = list(&held_dir)?.into_iter().map(|id| held_id(id).writer);
        Ok(held.chain(list(&self.dir)?.into_iter().map(|id| id.writer)).collect())
    }

    /// Moves the segments of a generation that cannot be flushed out of the way of the others, which are committed
    /// before it.
    ///
    /// # Errors
    /// What the disk says. What has not moved then is moved by the next try, or at the next start before the replay.
    pub fn set_aside(&self, id: GenerationId) -> Result<()> {
        let held_dir = self.dir.join(HELD);
        let mut files = self.files.lock();
        let Some(files) = files.get_mut(&id) else { return Ok(()) };
        // The first that moves tells the next start that all of them belong there. Each is known where it lies, also
        // when the next one does not move.
        for path in &mut files.paths {
            hold(&*self.disk, path, &held_dir)?;
        }
        self.disk.sync_dir(&held_dir).map_err(|e| io_error("cannot sync the folder of held segments", e))?;
        self.disk.sync_dir(&self.dir).map_err(|e| io_error("cannot sync the folder of the WAL", e))
    }

    /// Stops the thread after what is queued. The open generation stays in the WAL; [`WritePath::seal`] it before if
    /// it should be flushed. Later writes are refused.
    pub async fn shutdown(&self) {
        let (reply, answer) = oneshot::channel();
        if self.jobs.send(Job::Stop(reply)).is_ok() {
            // An error means that it has ended already.
            let _ = answer.await;
        }
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread of the WAL has panicked");
        }
    }
}

/// Moves a segment to the folder of those that were set aside, if it is not there.
fn hold(disk: &dyn WalDisk, path: &mut PathBuf, held_dir: &Path) -> Result<()> {
    let Some(name) = path.file_name() else { return Ok(()) };
    let to = held_dir.join(name);
    if *path == to {
        return Ok(());
    }
    match disk.rename(path, &to) {
        // A try before has moved it and could not make that last; whoever calls does.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && disk.read_head(&to, 1).is_ok() => {}
        moved => moved.map_err(|e| io_error(format!("cannot move `{}`", path.display()), e))?,
    }
    *path = to;
    Ok(())
}

/// Moves the rest of generations that were being set aside when the process ended.
fn finish_moves(disk: &dyn WalDisk, dir: &Path, held_dir: &Path) -> Result<()> {
    let list = |dir: &Path| disk.list(dir).map_err(|e| io_error(format!("cannot list `{}`", dir.display()), e));
    let of = |path: &Path| segment::parse_file_name(path).map(|(id, _)| id);
    let held: HashSet<GenerationId> = list(held_dir)?.iter().filter_map(|path| of(path)).collect();
    if held.is_empty() {
        return Ok(());
    }
    for mut path in list(dir)? {
        if of(&path).is_some_and(|id| held.contains(&id)) {
            hold(disk, &mut path, held_dir)?;
        }
    }
    disk.sync_dir(held_dir).map_err(|e| io_error("cannot sync the folder of held segments", e))
}

/// About how much memory a batch takes in the queue.
fn batch_bytes(batch: &MetricsBatch) -> usize {
    let histograms: usize = batch.histograms.iter().map(|h| h.histogram.memory_bytes() + 24).sum();
    let exemplars: usize = batch.exemplars.iter().map(|e| e.labels.len() + 48).sum();
    batch.label_bytes.len()
        + batch.series.len() * 32
        + batch.ts.len() * 28
        + histograms
        + exemplars
        + batch.metadata.len() * 128
}

#[cfg(test)]
mod tests;
