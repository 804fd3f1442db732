//! What the background jobs of one store share: settings, catalog, object store, what is visible, the running jobs, and
//! the notifications by which they wake each other.

mod backoff;
mod progress;
mod write_amplification;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quiver_types::{Clock, Millis};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::cache::Caches;
use crate::catalog::{Catalog, Change};
use crate::disk_space::DiskSpace;
use crate::epoch::{self, Mastership};
use crate::error::{Error, ErrorKind, Result, chain};
use crate::grace_periods::Graces;
use crate::health::{FlushHealth, RetryHealth};
use crate::identity;
use crate::io::{LocalIo, PartIo};
use crate::layout::DataDir;
use crate::memtable::GenerationId;
use crate::metrics::METRICS;
use crate::object::Storage;
use crate::part::{Part, PartId, PartMeta, Place};
use crate::retention::clock::{SentTimes, TrustedClock};
use crate::settings::StoreSettings;
use crate::snapshot::{SnapshotPublisher, Visible};
use crate::threads;
use crate::wal::disk::WalDisk;
use progress::Progress;
use write_amplification::Amplification;

pub(crate) use backoff::Backoff;

/// State that background jobs share.
pub(crate) struct Core {
    pub(crate) settings: StoreSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) catalog: Catalog,
    pub(crate) storage: Storage,
    pub(crate) shared: Arc<SnapshotPublisher>,
    pub(crate) caches: Arc<Caches>,
    pub(crate) io: Arc<dyn PartIo>,
    local_io: Arc<LocalIo>,
    /// Where new parts are written.
    pub(crate) output: Output,
    pub(crate) spool: Spool,
    pub(crate) installation: Uuid,
    /// Ends all background work.
    pub(crate) stop: CancellationToken,
    pub(crate) wake: Wake,
    pub(crate) progress: Progress,
    pub(crate) amplification: Amplification,
    /// Whether flushes make progress.
    pub(crate) flush_health: FlushHealth,
    /// Health of uploading parts, and of writing commit objects.
    pub(crate) upload_health: RetryHealth,
    pub(crate) outbox_health: RetryHealth,
    /// Whether files that nobody reads any more are deleted, and whether days that are due are dropped.
    pub(crate) clean_health: RetryHealth,
    pub(crate) retention_health: RetryHealth,
    /// Free space on the data directory's disk.
    pub(crate) disk_space: DiskSpace,
    /// The time by which retention judges ages; locked while days are dropped.
    pub(crate) trusted_clock: tokio::sync::Mutex<Option<TrustedClock>>,
    /// What senders know of the time.
    pub(crate) sent: SentTimes,
    /// Why that time is not the machine's clock, if it is not.
    pub(crate) clock_note: Mutex<Option<String>>,
    /// What the spool holds that the catalog knows nothing of.
    pub(crate) spool_note: Mutex<Option<String>>,
    /// How long the files of dropped parts are kept.
    pub(crate) graces: Graces,
    /// Allows one backup at a time.
    pub(crate) backing_up: tokio::sync::Mutex<()>,
    /// Allows one run of the cleaner at a time.
    pub(crate) cleaning: tokio::sync::Mutex<()>,
    pub(crate) master: Mastership,
    // Keeps the directory locked for as long as any job runs.
    _dir: Arc<DataDir>,
    jobs: Mutex<HashSet<Uuid>>,
    // Parts that were removed from `shared` (deleted, or moved from the spool to the store) but that a snapshot may
    // still read.
    retired: Mutex<HashMap<PartId, Vec<Weak<Part>>>>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("storage", &self.storage)
            .field("visible", &self.shared.visible())
            .finish_non_exhaustive()
    }
}

/// Where new parts are written: the local store itself, or the spool of a remote one.
pub(crate) struct Output {
    pub(crate) root: PathBuf,
    pub(crate) place: Place,
}

/// The directory of parts that wait for their upload.
pub(crate) struct Spool {
    pub(crate) root: PathBuf,
    /// Damaged parts. They cannot be uploaded, so nothing waits for that.
    pub(crate) damaged: Mutex<BTreeMap<PartId, Damage>>,
    /// What the others take.
    bytes: AtomicU64,
}

/// Wakes the job that uploads parts, the one that writes commit objects, and the one that deletes files.
#[derive(Default)]
pub(crate) struct Wake {
    pub(crate) upload: Notify,
    pub(crate) outbox: Notify,
    pub(crate) clean: Notify,
}

/// What a [`Core`] is made of.
pub(crate) struct Parts {
    pub(crate) settings: StoreSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) catalog: Catalog,
    pub(crate) storage: Storage,
    pub(crate) shared: Arc<SnapshotPublisher>,
    pub(crate) caches: Arc<Caches>,
    pub(crate) io: Arc<dyn PartIo>,
    pub(crate) local_io: Arc<LocalIo>,
    pub(crate) spool_root: PathBuf,
    pub(crate) installation: Uuid,
    pub(crate) epoch: Option<u64>,
    pub(crate) dir: Arc<DataDir>,
    pub(crate) disk: Arc<dyn WalDisk>,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Self {
        let output = match parts.storage.local_root() {
            Some(root) => Output { root: root.to_owned(), place: Place::Store },
            None => Output { root: parts.spool_root.clone(), place: Place::Spool },
        };
        let disk_space = DiskSpace::new(parts.disk, output.root.clone(), parts.settings.disk_reserve_bytes);
        Self {
            settings: parts.settings,
            clock: parts.clock,
            catalog: parts.catalog,
            storage: parts.storage,
            shared: parts.shared,
            caches: parts.caches,
            io: parts.io,
            local_io: parts.local_io,
            output,
            spool: Spool { root: parts.spool_root, damaged: Mutex::default(), bytes: AtomicU64::new(0) },
            installation: parts.installation,
            stop: CancellationToken::new(),
            wake: Wake::default(),
            progress: Progress::default(),
            amplification: Amplification::default(),
            flush_health: FlushHealth::default(),
            upload_health: RetryHealth::default(),
            outbox_health: RetryHealth::default(),
            clean_health: RetryHealth::default(),
            retention_health: RetryHealth::default(),
            disk_space,
            trusted_clock: tokio::sync::Mutex::default(),
            sent: SentTimes::default(),
            clock_note: Mutex::default(),
            spool_note: Mutex::default(),
            graces: Graces::default(),
            backing_up: tokio::sync::Mutex::default(),
            cleaning: tokio::sync::Mutex::new(()),
            master: Mastership::new(parts.epoch),
            _dir: parts.dir,
            jobs: Mutex::default(),
            retired: Mutex::default(),
        }
    }

    /// Registers a flush or compaction under a new id; it counts as running until the guard is dropped.
    pub(crate) fn begin_job(self: &Arc<Self>) -> Job {
        let id = Uuid::now_v7();
        self.jobs.lock().insert(id);
        Job { id, core: Arc::clone(self) }
    }

    /// Says whether a job runs.
    pub(crate) fn runs(&self, job: Uuid) -> bool {
        self.jobs.lock().contains(&job)
    }

    /// Makes a readable part of its metadata, over this store's I/O and caches.
    pub(crate) fn part(&self, meta: PartMeta) -> Arc<Part> {
        Arc::new(Part::new(meta, Arc::clone(&self.io), Arc::clone(&self.caches)))
    }

    /// Publishes a commit to readers: adds and removes parts and removes the flushed generation, in one atomic step.
    pub(crate) fn publish(&self, commit: u64, added: Vec<PartMeta>, removed: &[PartId], flushed: Option<GenerationId>) {
        let mut added: Vec<_> = added.into_iter().map(|meta| self.part(meta)).collect();
        // Sorted before `update` takes its lock, since the WAL's thread may wait for that.
        Visible::sort_parts(&mut added);
        let removed: HashSet<PartId> = removed.iter().copied().collect();
        // A part that was only moved to another place is in both lists, and its cached content stays valid.
        let gone: Vec<PartId> = removed.iter().copied().filter(|id| added.iter().all(|p| p.meta.id != *id)).collect();
        self.shared.update(|now| {
            let mut kept = Vec::with_capacity(now.parts.len());
            let mut retired = self.retired.lock();
            for part in now.parts.iter() {
                if removed.contains(&part.meta.id) {
                    // Retired before it becomes invisible, so that the cleaner always finds it in one of the two.
                    retired.entry(part.meta.id).or_default().push(Arc::downgrade(part));
                } else {
                    kept.push(Arc::clone(part));
                }
            }
            let parts = Visible::merge_parts(kept, added);
            let generations = now.generations.iter().filter(|g| Some(g.id()) != flushed).map(Arc::clone).collect();
            Visible { commit: now.commit.max(commit), parts: Arc::new(parts), generations }
        });
        self.caches.forget(&gone);
        self.measure();
        self.progress.bump();
    }

    /// Updates the gauges about parts.
    pub(crate) fn measure(&self) {
        let visible = self.shared.visible();
        let damaged = self.spool.damaged.lock();
        let spooled =
            visible.parts.iter().filter(|p| p.meta.place == Place::Spool && !damaged.contains_key(&p.meta.id));
        let (mut count, mut spool_bytes) = (0, 0);
        for part in spooled {
            count += 1;
            spool_bytes += part.meta.bytes;
        }
        self.spool.bytes.store(spool_bytes, Relaxed);
        METRICS.upload_damaged.set(damaged.len() as u64);
        METRICS.upload_queue.set(count);
        METRICS.spool_bytes.set(spool_bytes);
        METRICS.catalog_parts.set(visible.parts.len() as u64);
        METRICS.catalog_part_bytes.set(visible.parts.iter().map(|p| p.meta.bytes).sum());
    }

    /// Gives the bytes of parts that wait for their upload.
    pub(crate) fn spool_bytes(&self) -> u64 {
        self.spool.bytes.load(Relaxed)
    }

    /// Says whether the spool is full.
    pub(crate) fn spool_full(&self) -> bool {
        self.output.place == Place::Spool && self.spool_bytes() >= self.settings.spool_limit_bytes
    }

    /// Gives the ids of parts that may be read: visible ones (with `place` only those there), and those held by
    /// snapshots.
    pub(crate) fn readable(&self, place: Option<Place>) -> HashSet<PartId> {
        // `publish` retires a part before it hides it, so visible parts must be read first.
        let visible = self.shared.visible();
        let mut retired = self.retired.lock();
        retired.retain(|_, holders| {
            holders.retain(|part| part.strong_count() > 0);
            !holders.is_empty()
        });
        let wanted = |part: &&Arc<Part>| place.is_none_or(|p| part.meta.place == p);
        visible.parts.iter().filter(wanted).map(|p| p.meta.id).chain(retired.keys().copied()).collect()
    }

    /// Makes sure that the object store belongs to this installation and that this process is its master; to be called
    /// before anything is written to it or deleted from it. Gives the epoch, which is taken now if the store could not
    /// be reached at the start.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another process has taken the store; this process has then begun to stop.
    pub(crate) async fn hold_store(&self) -> Result<u64> {
        self.still_master()?;
        let held = match self.master.epoch() {
            Some(epoch) => self.master.check(&self.storage, epoch).await.map(|()| epoch),
            None => self.take_store().await,
        };
        held.map_err(|e| if e.kind() == ErrorKind::Conflict { self.lose_store(e) } else { e })
    }

    async fn take_store(&self) -> Result<u64> {
        let _one = self.master.taking.lock().await;
        if let Some(epoch) = self.master.epoch() {
            return Ok(epoch);
        }
        identity::confirm(&self.catalog, &self.storage, self.installation).await?;
        let epoch = epoch::take(&self.storage, self.installation, self.now_ms()).await?;
        self.master.took(epoch);
        Ok(epoch)
    }

    /// The check before a commit. Parts in a local store are checked as by [`Self::hold_store`], since another master
    /// would delete files that its own catalog does not name. For a remote store, which a commit does not write to,
    /// this process must merely not know of another master, so that a commit costs no request.
    pub(crate) async fn may_commit(&self) -> Result<()> {
        match self.output.place {
            Place::Store => self.hold_store().await.map(|_| ()),
            Place::Spool => self.still_master(),
        }
    }

    /// Notes that another process has taken the store and ends all background work; gives the error back.
    pub(crate) fn lose_store(&self, error: Error) -> Error {
        self.master.lose(&error);
        self.stop.cancel();
        self.progress.bump();
        error
    }

    /// Fails once another process has taken the store.
    pub(crate) fn still_master(&self) -> Result<()> {
        self.master.lost().map_or(Ok(()), |why| Err(Error::new(ErrorKind::Conflict, why)))
    }

    /// Fails once the store is closing.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`].
    pub(crate) fn still_open(&self) -> Result<()> {
        if self.stop.is_cancelled() { Err(Error::new(ErrorKind::Cancelled, "the store closes")) } else { Ok(()) }
    }

    /// Fails if a compaction must stop. To be called between its steps, on its thread, which rests here on a busy machine.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] when the store is closing, [`ErrorKind::Unavailable`] when the disk is too full.
    pub(crate) fn may_compact(&self) -> Result<()> {
        threads::rest_if_busy();
        self.still_open()?;
        self.disk_space.while_compacting()
    }

    /// Gives the damaged parts in the spool.
    pub(crate) fn damaged_ids(&self) -> HashSet<PartId> {
        self.spool.damaged.lock().keys().copied().collect()
    }

    /// Closes a cached local file that is about to be deleted.
    pub(crate) fn forget_file(&self, key: &str, place: Place) {
        self.local_io.forget(key, place);
    }

    pub(crate) fn now_ms(&self) -> Millis {
        self.clock.now_ms()
    }

    /// The time since the Unix epoch, for gauges.
    pub(crate) fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms().max(0) as u64)
    }
}

/// Commits a change to the catalog, and retries while the outcome is unknown (the database is busy or full). A commit
/// that succeeded although its reply was lost is recognized by its job, so what readers see never differs from the
/// catalog.
///
/// # Errors
/// [`ErrorKind::Conflict`] when nothing was changed; others when the store closes before the outcome is known.
pub(crate) async fn commit(core: &Core, change: &Change) -> Result<u64> {
    debug_assert!(change.job.is_some(), "only a job's commit can be retried");
    let mut backoff = Backoff::new(core);
    loop {
        let error = match core.catalog.commit(change).await {
            Err(e) if e.kind() != ErrorKind::Conflict => e,
            known => return known,
        };
        tracing::error!(error = %chain(&error), "a commit failed, will retry");
        if !backoff.pause(&core.stop).await {
            return Err(error);
        }
    }
}

/// A running flush or compaction.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: Uuid,
    core: Arc<Core>,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.core.jobs.lock().remove(&self.id);
    }
}

/// A part in the spool whose files do not hold what was written.
#[derive(Debug)]
pub(crate) struct Damage {
    /// When they were last read.
    pub(crate) looked: Instant,
}
