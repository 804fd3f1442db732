//! The write path: admits batches, waits for memory, hands them to the WAL's thread, and returns when they are durable
//! and visible.
//!
//! A write returns after its WAL record has been synced (level `sync`) or written (level `os`) and its rows are in the
//! open generation, so a client that got its answer can read its own write. Sealed generations are passed on to the
//! flush, and [`WritePath::retire`] deletes their WAL segments after it.

pub(crate) mod committer;
mod health;
pub(crate) mod limits;
mod memory_wait;
pub(crate) mod metric_metadata;
pub(crate) mod quota;
pub(crate) mod reset_hints;
mod set_aside;
pub(crate) mod staging;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Sender, channel};

use hashbrown::HashMap;
use parking_lot::Mutex;
use quiver_types::tables::history::TableRows;
use quiver_types::{Clock, Error, ErrorKind, LogsBatch, MetricsBatch, Result, SpansBatch};
use tokio::sync::{mpsc::UnboundedSender, oneshot};
use uuid::Uuid;

use crate::error::io_error;
use crate::failpoint;
use crate::flush::{StartupGenerations, held_id};
use crate::health::{Heartbeat, WalHealth};
use crate::idempotency::{Answer, AnsweredRequest, ClaimOutcome, KeyedWrite, RequestId, Requests};
use crate::memtable::logs::PreparedLogs;
use crate::memtable::{Generation, GenerationId};
use crate::registry::Registry;
use crate::settings::WriteSettings;
use crate::snapshot::{SnapshotPublisher, Visible};
use crate::wal::disk::WalDisk;
use crate::wal::folder::WalFolder;
use crate::wal::replay::{self, replay};
use crate::wal::segment;
use crate::writer::committer::{Committer, Files, Job, Log, QueuedBytes, SegmentFiles, WriteCounts, WriteJob};
use crate::writer::set_aside::{HELD, finish_moves, hold};
use crate::writer::staging::{Batch, KeyedRequest, Stager};

/// Why a sample, histogram, exemplar or log row was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Its time is too far in the past.
    TooOld,
    /// Its time is too far in the future.
    TooFarInFuture,
    /// Its series is new and the registry is full. The same sample may be accepted later.
    SeriesLimit,
    /// Its series is new and its service has created too many within the hour.
    ServiceSeriesLimit,
    /// The time of an exemplar is not accepted; it is dropped without failing the request.
    ExemplarTime,
}

impl Refusal {
    /// Gives the message for the sender.
    pub fn text(self) -> &'static str {
        match self {
            Self::TooOld => "too old sample",
            Self::TooFarInFuture => "sample is too far in the future",
            Self::SeriesLimit => "too many series",
            Self::ServiceSeriesLimit => "too many new series of one service",
            Self::ExemplarTime => "exemplar outside of the accepted time",
        }
    }
}

/// The result of a write: what was stored, and what was refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Float samples stored, including repeats of known ones.
    pub samples: u64,
    /// Native histograms stored.
    pub histograms: u64,
    /// Exemplars stored.
    pub exemplars: u64,
    /// Spans stored.
    pub spans: u64,
    /// Log rows stored.
    pub rows: u64,
    /// Number of refused items by reason; each reason at most once, with a count above 0.
    pub refused: Vec<(Refusal, u64)>,
}

/// What a write path is made of; see `WritePath::open`.
pub struct WritePathParts {
    /// Folder of the segments; created if it is missing.
    pub dir: PathBuf,
    /// Access to the disk; tests inject faults through it.
    pub disk: Arc<dyn WalDisk>,
    /// Settings of WAL, registry and generations.
    pub settings: WriteSettings,
    /// Wall clock, against which the ages of rows are checked.
    pub clock: Arc<dyn Clock>,
    /// What is visible to readers; replayed generations and the open one are added to it.
    pub shared: Arc<SnapshotPublisher>,
    /// Receives each generation that is sealed from now on, in order. Replayed ones are returned by `open` instead.
    pub on_sealed: UnboundedSender<Arc<Generation>>,
    /// Id of this process as a writer, a new UUIDv7.
    pub writer: Uuid,
    /// The first generation of each writer that has not been flushed; segments of those below it can be deleted.
    pub floors: HashMap<Uuid, u64>,
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
    shared: Arc<SnapshotPublisher>,
    files: Arc<SegmentFiles>,
    queued_bytes: Arc<AtomicU64>,
    requests: Arc<Requests>,
    heartbeat: Heartbeat,
    wal_health: WalHealth,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

fn stopped() -> Error {
    Error::new(ErrorKind::Unavailable, "the store is shutting down")
}

impl WritePath {
    /// Replays the WAL and starts its thread. Also gives the generations that were replayed; they are sealed, and
    /// already visible to readers.
    ///
    /// # Errors
    /// Invalid: segments of a newer version. Internal: the folder cannot be read.
    pub(crate) fn open(parts: WritePathParts) -> Result<(Self, StartupGenerations)> {
        let WritePathParts { dir, disk, settings, clock, shared, on_sealed, writer, floors } = parts;
        let registry = Arc::<Registry>::default();
        let flushed = |id: GenerationId| floors.get(&id.writer).is_some_and(|&floor| id.number < floor);
        std::fs::create_dir_all(&dir).map_err(|e| io_error(format!("cannot create `{}`", dir.display()), e))?;
        let held_dir = dir.join(HELD);
        std::fs::create_dir_all(&held_dir)
            .map_err(|e| io_error(format!("cannot create `{}`", held_dir.display()), e))?;
        let folder = WalFolder::open(&dir).map_err(|e| io_error(format!("cannot open `{}`", dir.display()), e))?;
        finish_moves(&*disk, &dir, &held_dir)?;
        let mut replayed = replay(&*disk, &held_dir, &registry, &|id| flushed(held_id(id)))?;
        let held = replayed.len();
        replayed.extend(replay(&*disk, &dir, &registry, &flushed)?);
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
        // Continue above all replayed numbers, so that a snapshot can cut all its generations at one number.
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
            folder,
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
            wal_health: WalHealth::default(),
        };
        let (heartbeat, wal_health) = (committer.heartbeat.clone(), committer.wal_health.clone());
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
            wal_health,
            thread,
        };
        path.load_requests(found.iter().flat_map(|g| g.requests()).collect());
        let replayed = found.split_off(held);
        Ok((path, StartupGenerations { replayed, aside: found }))
    }

    /// Writes a batch of metrics. Returns when it is as durable as the WAL's level promises, and visible.
    ///
    /// # Errors
    /// Invalid: the batch spans too many days; nothing of it is stored. Unavailable: no memory, no disk, or the store is
    /// closing; the same batch may be sent again.
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

    /// Writes log rows in the same way. Rows outside of the accepted time are dropped and counted.
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

    /// Gives the time range, in Unix nanoseconds, in which log rows are accepted now.
    pub fn logs_window(&self) -> RangeInclusive<i64> {
        limits::logs_window(self.clock.now_ms(), &self.settings)
    }

    /// Writes the log rows of a request with an idempotency key in one record, together with its answer, which `answer`
    /// makes from what was refused. A request that was stored before is not stored again.
    ///
    /// # Errors
    /// Those of [`WritePath::write_logs`], and those of `answer`; nothing is stored then, and the request may be repeated.
    /// Execution: the key was used before with another body.
    pub async fn write_logs_once(
        &self,
        id: RequestId,
        body_hash: u128,
        mut batches: Vec<LogsBatch>,
        answer: impl FnOnce(&[(Refusal, u64)]) -> Result<Answer>,
    ) -> Result<KeyedWrite> {
        let claim = match self.requests.claim(&id, body_hash, || self.clock.now_ms()).await? {
            ClaimOutcome::New(claim) => claim,
            ClaimOutcome::Known(known) => return Ok(KeyedWrite::Repeated(known)),
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
        let batch =
            Batch::Logs(Box::new(prepared), Some(Box::new(KeyedRequest { request: Arc::clone(&request), claim })));
        self.enqueue(batch, bytes, days)?.await.map_err(|_| stopped())??;
        Ok(KeyedWrite::Stored(request))
    }

    /// Adds the requests that the catalog knows to have been answered before this start.
    pub(crate) fn load_requests(&self, answered: Vec<Arc<AnsweredRequest>>) {
        self.requests.load(answered, self.clock.now_ms());
    }

    /// Writes spans in the same way.
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

    /// Writes rows of tables that store them unchanged, atomically.
    ///
    /// # Errors
    /// As [`WritePath::write_metrics`]; Internal: the columns are not those of the table.
    pub async fn write_rows(&self, rows: Vec<TableRows>) -> Result<()> {
        let (mut bytes, mut days) = (0, Vec::new());
        for rows in &rows {
            days.extend(crate::record_tables::days(rows)?);
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

    fn enqueue(&self, batch: Batch, bytes: usize, days: Vec<i32>) -> Result<oneshot::Receiver<Result<WriteCounts>>> {
        let (reply, answer) = oneshot::channel();
        let queued = QueuedBytes::new(&self.queued_bytes, bytes);
        self.jobs.send(Job::Write(Box::new(WriteJob { batch, days, bytes, queued, reply }))).map_err(|_| stopped())?;
        Ok(answer)
    }

    /// The registry of live series, which also counts what ingest holds.
    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Seals the open generation now and gives it; `None`: it is empty. It is also sent to `on_sealed`.
    ///
    /// # Errors
    /// Unavailable: the store stops.
    pub async fn seal(&self) -> Result<Option<Arc<Generation>>> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job::Seal(reply)).map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())
    }

    /// Forgets a generation whose flush has been committed: removes it from what is visible (unless the commit has done
    /// so) and deletes its segments, or moves them aside if replay found damage in them. Its memory and its entries in
    /// the registry are freed with the last snapshot that reads it.
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

    /// Gives the writers that still have segments on disk, including the ids under which generations that were set
    /// aside are committed. The floors of these writers must be kept: only a floor tells that a segment that could not
    /// be deleted has been flushed. Syncs the folders first, so that segments deleted earlier cannot reappear after a
    /// power cut when their writer's floor has been forgotten.
    ///
    /// # Errors
    /// Internal: the folder cannot be synced or listed.
    pub(crate) fn writers_with_segments(&self) -> Result<std::collections::HashSet<Uuid>> {
        let failed = |e| io_error(format!("cannot read `{}`", self.dir.display()), e);
        let held_dir = self.dir.join(HELD);
        let list = |dir: &Path| {
            self.disk.sync_dir(dir).map_err(failed)?;
            let paths = self.disk.list(dir).map_err(failed)?;
            let generations = paths.iter().filter_map(|path| segment::generation_of(&*self.disk, path));
            Ok::<Vec<GenerationId>, Error>(generations.collect())
        };
        let held = list(&held_dir)?.into_iter().map(|id| held_id(id).writer);
        Ok(held.chain(list(&self.dir)?.into_iter().map(|id| id.writer)).collect())
    }

    /// Moves the segments of a generation that cannot be flushed to a folder of their own, so that later generations
    /// can be committed before it.
    ///
    /// # Errors
    /// I/O errors. Segments that have not been moved then are moved by the next attempt, or before the replay of the
    /// next start.
    pub fn set_aside(&self, id: GenerationId) -> Result<()> {
        let held_dir = self.dir.join(HELD);
        let mut files = self.files.lock();
        let Some(files) = files.get_mut(&id) else { return Ok(()) };
        // Once one segment has moved, the next start moves the rest, see `finish_moves`. `hold` updates each path at
        // once, so that the paths are right even if a later move fails.
        for path in &mut files.paths {
            hold(&*self.disk, path, &held_dir)?;
        }
        self.disk.sync_dir(&held_dir).map_err(|e| io_error("cannot sync the folder of held segments", e))?;
        self.disk.sync_dir(&self.dir).map_err(|e| io_error("cannot sync the folder of the WAL", e))
    }

    /// Stops the thread once the queue is empty; later writes are refused. The open generation stays in the WAL; call
    /// [`WritePath::seal`] before if it should be flushed.
    pub async fn shutdown(&self) {
        let (reply, answer) = oneshot::channel();
        if self.jobs.send(Job::Stop(reply)).is_ok() {
            // An error means that the thread has already ended.
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

/// Estimates how much memory a batch takes in the queue.
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
