//! The WAL's thread: it alone logs, syncs, inserts and acknowledges, a group of writes at a time.
//!
//! There is no timer: a group is what came while the last sync ran. A failed write or sync closes the segment; the
//! group is written anew to the next one under the same sequence numbers, and what fails there too is answered
//! "unavailable". Numbers are never used twice.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;
use quiver_types::{Clock, Error, ErrorKind, Result};
use tokio::sync::{mpsc::UnboundedSender, oneshot};
use tracing::{debug, error, info, warn};

use super::stage::{Batch, StageContext, Staged, Stager};
use crate::failpoint;
use crate::health::Heartbeat;
use crate::memtable::{Generation, GenerationId, SampleRows};
use crate::metrics::METRICS;
use crate::registry::Registry;
use crate::settings::{WalLevel, WriteSettings};
use crate::snapshot::{Shared, Visible};
use crate::wal::disk::WalDisk;
use crate::wal::segment::{Segment, SegmentHeader};

/// A group takes no more writes when it is this large.
const GROUP_BYTES: usize = 8 << 20;
const GROUP_WRITES: usize = 1024;
/// How often the thread looks at the generation's age when nothing comes; also the sync interval of level `os`.
const TICK: Duration = Duration::from_secs(1);
/// How often the free space of the disk is looked at.
const SPACE_INTERVAL: Duration = Duration::from_millis(200);
/// A buffer larger than this is given back after its group.
const BUFFER_KEEP: usize = 4 << 20;
/// This part of the budget is for what is remembered of metadata of metrics.
const METADATA_SHARE: usize = 16;

/// Segments of sealed generations, until they are retired.
pub(crate) type SegmentFiles = Mutex<HashMap<GenerationId, Files>>;

/// The segments of one generation.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) paths: Vec<PathBuf>,
    /// Whether they are kept aside instead of deleted.
    pub(crate) damaged: bool,
}

/// What a write put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Written {
    pub(crate) samples: u64,
    pub(crate) histograms: u64,
    pub(crate) exemplars: u64,
    /// Log rows.
    pub(crate) rows: u64,
    /// Spans.
    pub(crate) spans: u64,
    /// Samples and histograms of series that the registry has no room for.
    pub(crate) refused: u64,
    /// Samples and histograms of series whose service brings too many.
    pub(crate) barred: u64,
}

/// A write on its way.
#[derive(Debug)]
pub(crate) struct WriteJob {
    pub(crate) batch: Batch,
    pub(crate) days: Vec<i32>,
    pub(crate) bytes: usize,
    pub(crate) queued: Queued,
    pub(crate) reply: oneshot::Sender<Result<Written>>,
}

/// Bytes that count as queued as long as this value lives.
#[derive(Debug)]
pub(crate) struct Queued {
    total: Arc<AtomicU64>,
    bytes: u64,
}

impl Queued {
    /// Adds to the bytes of the queue.
    pub(crate) fn new(total: &Arc<AtomicU64>, bytes: usize) -> Self {
        let bytes = bytes as u64;
        total.fetch_add(bytes, Relaxed);
        METRICS.ingest_queue.inc();
        METRICS.ingest_queue_bytes.add(bytes);
        Self { total: Arc::clone(total), bytes }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Relaxed);
        METRICS.ingest_queue.sub(1);
        METRICS.ingest_queue_bytes.sub(self.bytes);
    }
}

/// Unites ascending lists of days; says whether any is new.
fn add_days(days: &mut Vec<i32>, more: &[i32]) -> bool {
    let before = days.len();
    for day in more {
        if let Err(at) = days.binary_search(day) {
            days.insert(at, *day);
        }
    }
    days.len() > before
}

/// What the thread is asked to do.
#[derive(Debug)]
pub(crate) enum Job {
    Write(Box<WriteJob>),
    /// Seal the open generation, if it holds anything.
    Seal(oneshot::Sender<Option<Arc<Generation>>>),
    /// Make everything durable and end.
    Stop(oneshot::Sender<()>),
}

/// What the thread works with.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) dir: PathBuf,
    pub(crate) disk: Arc<dyn WalDisk>,
    pub(crate) settings: WriteSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) on_sealed: UnboundedSender<Arc<Generation>>,
    pub(crate) files: Arc<SegmentFiles>,
    pub(crate) generation: Arc<Generation>,
    pub(crate) next_seq: u64,
    pub(crate) stager: Stager,
    pub(crate) log: Log,
    /// When the first row of the open generation came.
    pub(crate) opened: Option<Instant>,
    pub(crate) heartbeat: Heartbeat,
}

/// The segments of the open generation.
#[derive(Debug)]
pub(crate) struct Log {
    segment: Option<Segment>,
    paths: Vec<PathBuf>,
    next_segment: u32,
    previous_bytes: u64,
    buffer: Vec<u8>,
    /// Level `os`: whether something was written since the last sync.
    unsynced: bool,
    /// Level `os`: whether something acknowledged lies in a segment that was given up before it was synced.
    doubtful: bool,
    synced_at: Instant,
    space_checked: Option<Instant>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            segment: None,
            paths: Vec::new(),
            next_segment: 0,
            previous_bytes: 0,
            buffer: Vec::new(),
            unsynced: false,
            doubtful: false,
            synced_at: Instant::now(),
            space_checked: None,
        }
    }
}

/// Writes of a group that are staged, with whom to answer.
type Group = Vec<StagedWrite>;

/// One of them.
#[derive(Debug)]
struct StagedWrite {
    staged: Staged,
    days: Vec<i32>,
    reply: oneshot::Sender<Result<Written>>,
    _queued: Queued,
}

impl Committer {
    /// Works until it is told to stop or nobody can ask any more.
    pub(crate) fn run(mut self, jobs: &Receiver<Job>) {
        let mut carried = None;
        loop {
            self.heartbeat.beat();
            let job = match carried.take() {
                Some(job) => job,
                None => match jobs.recv_timeout(TICK) {
                    Ok(job) => job,
                    Err(RecvTimeoutError::Timeout) => {
                        self.tick();
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => break self.end(),
                },
            };
            match job {
                Job::Write(first) => carried = self.group(*first, jobs),
                Job::Seal(reply) => {
                    // Nobody may be waiting any more.
                    let _ = reply.send(self.seal());
                }
                Job::Stop(reply) => {
                    self.end();
                    let _ = reply.send(());
                    break;
                }
            }
            self.tick();
        }
    }

    /// Commits a write and what waits behind it; gives back a job that belongs to the time after.
    fn group(&mut self, first: WriteJob, jobs: &Receiver<Job>) -> Option<Job> {
        if self.generation.days_with(&first.days) > self.settings.generation_days_max {
            self.seal();
        }
        let mut group = Group::new();
        let mut days: Vec<i32> = Vec::new();
        let mut bytes = 0;
        self.log.buffer.clear();
        self.stager.begin_group();
        let mut next = Some(first);
        let mut carried = None;
        while let Some(job) = next.take() {
            bytes += job.bytes;
            add_days(&mut days, &job.days);
            let ctx = StageContext {
                generation: &self.generation,
                service_labels: &self.settings.service_labels,
                registry_bytes_max: self.registry_bytes_max(),
                new_series_per_hour: self.settings.service_new_series_per_hour,
                metadata_bytes_max: self.settings.memory_bytes as usize / METADATA_SHARE,
                now: self.clock.now_ms(),
            };
            let staged = self.stager.stage(ctx, self.next_seq, job.batch, &mut self.log.buffer);
            self.next_seq += 1;
            group.push(StagedWrite { staged, days: job.days, reply: job.reply, _queued: job.queued });
            if bytes >= GROUP_BYTES || group.len() >= GROUP_WRITES {
                break;
            }
            match jobs.try_recv() {
                Ok(Job::Write(job)) => {
                    let mut all = days.clone();
                    if add_days(&mut all, &job.days)
                        && self.generation.days_with(&all) > self.settings.generation_days_max
                    {
                        carried = Some(Job::Write(job));
                    } else {
                        next = Some(*job);
                    }
                }
                Ok(other) => carried = Some(other),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
            }
        }
        self.commit(group);
        if self.log.buffer.capacity() > BUFFER_KEEP {
            self.log.buffer = Vec::new();
        }
        carried
    }

    /// The registry gets half of the budget; the rest is for rows.
    fn registry_bytes_max(&self) -> usize {
        self.settings.memory_bytes as usize / 2
    }

    fn commit(&mut self, group: Group) {
        let logged = if self.log.buffer.is_empty() { Ok(()) } else { self.write_group() };
        if let Err(error) = logged {
            self.stager.failed();
            METRICS.ingest_refused.add(group.len() as u64);
            for write in group {
                // The sender may have gone.
                let _ = write.reply.send(Err(error.clone()));
            }
            return;
        }
        self.stager.logged();
        let mut answers = Vec::with_capacity(group.len());
        let mut last_seq = 0;
        for write in group {
            last_seq = write.staged.seq;
            self.shared.changes().note(last_seq, write.staged.times());
            self.shared.log_changes().note(last_seq, write.staged.log_times());
            self.shared.span_changes().note(last_seq, write.staged.span_times());
            let mut staged = write.staged;
            let named = staged.request.take();
            let written = self.insert(staged, &write.days);
            if let Some(named) = &named {
                self.opened.get_or_insert_with(Instant::now);
                self.generation.insert_request(last_seq, Arc::clone(&named.request));
            }
            answers.push((written, named, write.reply));
        }
        self.shared.advance(last_seq);
        failpoint::hit("wal.after-insert");
        METRICS.wal_writes.add(answers.len() as u64);
        for (written, named, reply) in answers {
            if let Some(named) = named {
                named.claim.settle(named.request);
            }
            // The sender may have gone; what it wrote stays.
            let _ = reply.send(Ok(written));
        }
    }

    fn insert(&mut self, staged: Staged, days: &[i32]) -> Written {
        let generation = &self.generation;
        let mut written = Written { refused: staged.refused, barred: staged.barred, ..Written::default() };
        if staged.is_empty() {
            return written;
        }
        self.opened.get_or_insert_with(Instant::now);
        generation.touch_days(days);
        if let Some(columns) = &staged.samples {
            let start_ts = columns.start_ts.as_ref().map_or(&[][..], |s| s.values());
            let (slots, ts, values) = (columns.slots.values(), columns.ts.values(), columns.values.values());
            let repeats = generation.insert_samples(staged.seq, SampleRows { slots, ts, values, start_ts });
            written.samples = ts.len() as u64;
            METRICS.ingest_duplicates.add(repeats.duplicates);
            METRICS.ingest_conflicts.add(repeats.conflicts);
        }
        written.histograms = staged.histograms.len() as u64;
        written.exemplars = staged.exemplars.len() as u64;
        if !staged.histograms.is_empty() {
            generation.insert_histograms(staged.seq, staged.histograms);
        }
        if !staged.exemplars.is_empty() {
            generation.insert_exemplars(staged.seq, staged.exemplars);
        }
        if !staged.metadata.is_empty() {
            generation.insert_metadata(staged.seq, staged.metadata);
        }
        if let Some(rows) = staged.logs {
            written.rows = rows.len() as u64;
            generation.insert_logs(staged.seq, rows, days);
        }
        METRICS.ingest_log_rows.add(written.rows);
        if let Some(spans) = staged.spans {
            written.spans = spans.len() as u64;
            generation.insert_spans(staged.seq, spans);
        }
        for rows in staged.rows {
            generation.insert_rows(staged.seq, rows);
        }
        METRICS.ingest_spans.add(written.spans);
        METRICS.ingest_samples.add(written.samples);
        METRICS.ingest_histograms.add(written.histograms);
        METRICS.ingest_exemplars.add(written.exemplars);
        written
    }

    fn write_group(&mut self) -> Result<()> {
        self.check_space()?;
        let started = Instant::now();
        let mut result = self.try_write();
        if let Err(error) = &result {
            warn!(%error, generation = %self.generation.id(), "cannot write the WAL; trying a new segment");
            self.give_up_segment();
            result = self.try_write();
        }
        METRICS.wal_commit_time.add_time(started.elapsed());
        match result {
            Ok(()) => {
                METRICS.wal_commits.inc();
                METRICS.wal_written_bytes.add(self.log.buffer.len() as u64);
                Ok(())
            }
            Err(error) => {
                error!(%error, generation = %self.generation.id(), "cannot write the WAL; writes are refused");
                self.give_up_segment();
                let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
                let text = if full { "disk is full" } else { "write-ahead log cannot be written" };
                Err(Error::new(ErrorKind::Unavailable, text).with_source(error))
            }
        }
    }

    fn check_space(&mut self) -> Result<()> {
        if self.log.space_checked.is_some_and(|at| at.elapsed() < SPACE_INTERVAL) {
            return Ok(());
        }
        match self.disk.free_bytes(&self.dir) {
            Ok(free) if free < self.settings.disk_reserve_bytes => {
                self.log.space_checked = None;
                let text = format!("disk is nearly full: {free} bytes are free");
                Err(Error::new(ErrorKind::Unavailable, text))
            }
            Ok(_) => {
                self.log.space_checked = Some(Instant::now());
                Ok(())
            }
            // The write itself will tell.
            Err(error) => {
                debug!(%error, "cannot ask for the free space");
                Ok(())
            }
        }
    }

    fn try_write(&mut self) -> io::Result<()> {
        let wanted = self.log.buffer.len() as u64;
        if self.log.segment.as_ref().is_some_and(|s| s.bytes() + wanted > self.settings.segment_bytes) {
            self.close_segment()?;
        }
        let created = self.log.segment.is_none();
        if created {
            self.create_segment()?;
        }
        failpoint::hit("wal.before-write");
        let Some(segment) = self.log.segment.as_mut() else {
            return Err(io::Error::other("no segment"));
        };
        segment.append(&self.log.buffer)?;
        failpoint::hit("wal.after-write");
        if created || self.settings.level == WalLevel::Sync {
            segment.sync(&*self.disk)?;
            failpoint::hit("wal.after-sync");
        } else {
            self.log.unsynced = true;
        }
        segment.accept();
        Ok(())
    }

    fn create_segment(&mut self) -> io::Result<()> {
        let header = SegmentHeader {
            generation: self.generation.id(),
            segment: self.log.next_segment,
            base_seq: self.generation.base_seq(),
            previous_bytes: self.log.previous_bytes,
        };
        let path = self.dir.join(crate::wal::segment::file_name(header.generation, header.segment));
        match Segment::create(&*self.disk, &self.dir, &header) {
            Ok(segment) => {
                self.log.paths.push(path);
                self.log.next_segment += 1;
                self.log.segment = Some(segment);
                METRICS.wal_segments.inc();
                failpoint::hit("wal.after-create");
                Ok(())
            }
            Err(error) => {
                // Whatever was created must not stand in the way of the next attempt.
                if let Err(error) = self.disk.remove(&path) {
                    debug!(%error, "nothing to remove of a segment that could not be created");
                }
                Err(error)
            }
        }
    }

    /// Ends a full segment, whose content counts.
    fn close_segment(&mut self) -> io::Result<()> {
        if self.log.unsynced {
            self.sync_segment()?;
        }
        if let Some(segment) = self.log.segment.take() {
            self.log.previous_bytes = segment.good_bytes();
        }
        Ok(())
    }

    fn sync_segment(&mut self) -> io::Result<()> {
        if let Some(segment) = self.log.segment.as_mut() {
            segment.sync(&*self.disk)?;
        }
        self.log.unsynced = false;
        self.log.synced_at = Instant::now();
        Ok(())
    }

    /// Gives up the segment after a failure: what counts of it stays, the rest is cut if the disk lets us, and is
    /// ignored by replay in any case.
    fn give_up_segment(&mut self) {
        let Some(segment) = self.log.segment.take() else { return };
        METRICS.wal_failures.inc();
        let (path, good_bytes) = (segment.path().to_owned(), segment.good_bytes());
        drop(segment);
        if good_bytes == 0 && self.disk.remove(&path).is_ok() {
            // As if it had never been: the next one takes its number and follows the same predecessor.
            self.log.paths.pop();
            self.log.next_segment -= 1;
            return;
        }
        // Level `os`: no later sync reaches what was written to this file, so a part has to make it durable.
        self.log.doubtful |= std::mem::take(&mut self.log.unsynced);
        self.log.previous_bytes = good_bytes;
        if let Err(error) = self.disk.truncate(&path, good_bytes) {
            debug!(%error, path = %path.display(), "cannot cut a segment that was given up");
        }
    }

    /// What time brings: seals by size and age, syncs of level `os`.
    fn tick(&mut self) {
        let aged = self.opened.is_some_and(|at| at.elapsed() >= self.settings.generation_age);
        if aged || self.log.doubtful || self.generation.bytes() as u64 >= self.settings.generation_bytes {
            self.seal();
        }
        if self.log.unsynced && self.log.synced_at.elapsed() >= TICK {
            self.sync_written();
        }
    }

    /// Level `os`: a failed sync means that written records may be gone after a power cut. They stand in memory, so the
    /// generation goes to a part at once.
    fn sync_written(&mut self) {
        if let Err(error) = self.sync_segment() {
            error!(%error, generation = %self.generation.id(), "cannot sync the WAL; flushing what it holds");
            METRICS.wal_failures.inc();
            self.log.unsynced = false;
            self.log.segment = None;
            self.seal();
        }
    }

    /// Ends the open generation and begins the next; `None` when it holds nothing.
    fn seal(&mut self) -> Option<Arc<Generation>> {
        if self.generation.is_empty() {
            return None;
        }
        failpoint::hit("wal.before-seal");
        if let Err(error) = self.close_segment() {
            // The generation is on its way to a part, which is synced by itself.
            warn!(%error, generation = %self.generation.id(), "cannot sync the last segment of a generation");
            METRICS.wal_failures.inc();
        }
        let paths = std::mem::take(&mut self.log.paths);
        let buffer = std::mem::take(&mut self.log.buffer);
        self.log = Log { buffer, space_checked: self.log.space_checked, ..Log::default() };
        self.files.lock().insert(self.generation.id(), Files { paths, damaged: false });
        self.stager.new_generation();
        self.opened = None;
        let id = GenerationId { number: self.generation.number + 1, ..self.generation.id() };
        let next = Arc::new(Generation::new(id, self.next_seq, Arc::clone(&self.registry)));
        let sealed = std::mem::replace(&mut self.generation, Arc::clone(&next));
        sealed.seal();
        // Listed before its first row comes.
        self.shared.update(|visible| {
            let mut generations = visible.generations.clone();
            generations.push(Arc::clone(&next));
            Visible { generations, ..visible.clone() }
        });
        METRICS.generations_sealed.inc();
        info!(generation = %sealed.id(), samples = sealed.samples(), log_rows = sealed.log_rows(), bytes = sealed.bytes(), "sealed a generation");
        failpoint::hit("wal.after-seal");
        if self.on_sealed.send(Arc::clone(&sealed)).is_err() {
            warn!(generation = %sealed.id(), "nobody flushes any more; the generation stays in the WAL");
        }
        Some(sealed)
    }

    fn end(&mut self) {
        if self.log.unsynced
            && let Err(error) = self.sync_segment()
        {
            error!(%error, "cannot sync the WAL at the end");
        }
        self.log.segment = None;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Whoever waits for days is told of new ones only: none may be missed, and none told twice.
    #[test]
    fn days_are_united() {
        let lists: [&[i32]; 7] = [&[], &[5], &[3, 5], &[7, 3], &[5, 5], &[i32::MIN, 0, i32::MAX], &[-1, -1, 4]];
        for own in lists {
            let known: BTreeSet<i32> = own.iter().copied().collect();
            for more in lists {
                let mut days: Vec<i32> = known.iter().copied().collect();
                let is_new = more.iter().any(|day| !known.contains(day));
                assert_eq!(add_days(&mut days, more), is_new, "{known:?} and {more:?}");
                let both: BTreeSet<i32> = known.iter().chain(more).copied().collect();
                assert_eq!(days, both.into_iter().collect::<Vec<i32>>(), "{known:?} and {more:?}");
            }
        }
    }
}
