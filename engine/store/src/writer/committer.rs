//! The WAL thread: the only one that logs, syncs, inserts and acknowledges, one group of writes at a time.
//!
//! There is no timer: a group consists of the writes that arrived during the last sync. If a write or sync fails, the
//! segment is closed and the group is written again to the next segment with the same sequence numbers; if that fails
//! too, the response is "unavailable". Sequence numbers are never reused.

mod job;
mod log;
mod seal;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use quiver_types::{Clock, Result};
use tokio::sync::{mpsc::UnboundedSender, oneshot};

use super::staging::{StageContext, StagedRows, Stager};
use crate::failpoint;
use crate::health::{Heartbeat, WalHealth};
use crate::memtable::{Generation, SampleRows};
use crate::metrics::METRICS;
use crate::registry::Registry;
use crate::settings::WriteSettings;
use crate::snapshot::SnapshotPublisher;
use crate::wal::disk::WalDisk;
use crate::wal::folder::WalFolder;

pub(crate) use self::job::{Job, QueuedBytes, WriteCounts, WriteJob};
pub(crate) use self::log::Log;
pub(crate) use self::seal::{Files, SegmentFiles};

/// Size at which a group takes no more writes.
const GROUP_BYTES: usize = 8 << 20;
const GROUP_WRITES: usize = 1024;
/// How often the thread checks the generation's age if no writes arrive; also the sync interval at level `os`.
const TICK: Duration = Duration::from_secs(1);
/// A larger buffer is freed after its group.
const BUFFER_KEEP: usize = 4 << 20;
/// One in this many bytes of the memory budget is for remembering metadata of metrics.
const METADATA_SHARE: usize = 16;
/// Most memory for the last histograms of series, which take as large a share.
const HINT_BYTES_MAX: usize = 64 << 20;

/// Merges ascending lists of days; returns whether any is new.
fn add_days(days: &mut Vec<i32>, more: &[i32]) -> bool {
    let before = days.len();
    for day in more {
        if let Err(at) = days.binary_search(day) {
            days.insert(at, *day);
        }
    }
    days.len() > before
}

/// The state of the thread.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) folder: WalFolder,
    pub(crate) disk: Arc<dyn WalDisk>,
    pub(crate) settings: WriteSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) shared: Arc<SnapshotPublisher>,
    pub(crate) on_sealed: UnboundedSender<Arc<Generation>>,
    pub(crate) files: Arc<SegmentFiles>,
    pub(crate) generation: Arc<Generation>,
    pub(crate) next_seq: u64,
    pub(crate) stager: Stager,
    pub(crate) log: Log,
    /// When the first row of the open generation arrived.
    pub(crate) opened: Option<Instant>,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) wal_health: WalHealth,
}

/// The staged writes of a group.
type Group = Vec<StagedWrite>;

/// A staged write, with the channel for its response.
#[derive(Debug)]
struct StagedWrite {
    staged: StagedRows,
    days: Vec<i32>,
    reply: oneshot::Sender<Result<WriteCounts>>,
    _queued: QueuedBytes,
}

impl Committer {
    /// Runs until it is told to stop or all senders are gone.
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
                    // The caller may have stopped waiting.
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

    /// Commits a write together with those queued behind it; returns a job that must run after the group.
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
                hint_bytes_max: HINT_BYTES_MAX.min(self.settings.memory_bytes as usize / METADATA_SHARE),
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

    /// The registry may use half of the memory budget; the rest is for rows.
    fn registry_bytes_max(&self) -> usize {
        self.settings.memory_bytes as usize / 2
    }

    fn commit(&mut self, group: Group) {
        let logged = if self.log.buffer.is_empty() { Ok(()) } else { self.write_group() };
        if let Err(error) = logged {
            self.stager.failed();
            METRICS.ingest_refused.add(group.len() as u64);
            for write in group {
                // The client may have gone.
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
            // The client may have gone; the data stays written.
            let _ = reply.send(Ok(written));
        }
    }

    fn insert(&mut self, staged: StagedRows, days: &[i32]) -> WriteCounts {
        let generation = &self.generation;
        let mut written = WriteCounts { refused: staged.refused, barred: staged.barred, ..WriteCounts::default() };
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
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Breaks if a subscriber of days misses a new one, or is notified of one twice.
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
