//! What the background jobs of one store share: settings, catalog, object store, what is visible, which jobs run, and
//! who waits for whom.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quiver_types::{Clock, Millis};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::cache::Caches;
use crate::catalog::{Catalog, Change};
use crate::epoch::{self, Mastership};
use crate::error::{Error, ErrorKind, Result, chain};
use crate::graces::Graces;
use crate::health::FlushHealth;
use crate::identity;
use crate::io::{LocalIo, PartIo};
use crate::layout::DataDir;
use crate::memtable::GenerationId;
use crate::metrics::METRICS;
use crate::object::{Storage, jitter};
use crate::part::{Part, PartId, PartMeta, Place};
use crate::retention::clock::TrustedClock;
use crate::room::Room;
use crate::settings::StoreSettings;
use crate::snapshot::{Shared, Visible};
use crate::timer::Timer;
use crate::wal::disk::WalDisk;

/// State that background jobs share.
pub(crate) struct Core {
    pub(crate) settings: StoreSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) catalog: Catalog,
    pub(crate) storage: Storage,
    pub(crate) shared: Arc<Shared>,
    pub(crate) caches: Arc<Caches>,
    pub(crate) io: Arc<dyn PartIo>,
    local_io: Arc<LocalIo>,
    /// Where new parts are written: the local store itself, or the spool of a remote one.
    pub(crate) write_root: PathBuf,
    /// What that makes their place.
    pub(crate) write_place: Place,
    /// Files in the spool are below this directory.
    pub(crate) spool_root: PathBuf,
    pub(crate) installation: Uuid,
    /// Ends all background work.
    pub(crate) stop: CancellationToken,
    /// There may be parts to upload, an object to write, files to delete.
    pub(crate) upload: Notify,
    pub(crate) outbox: Notify,
    pub(crate) clean: Notify,
    pub(crate) progress: Progress,
    pub(crate) amplification: Amplification,
    /// Whether flushes get on.
    pub(crate) flush_health: FlushHealth,
    /// Free space on the data directory's disk.
    pub(crate) room: Room,
    /// Parts in the spool that are damaged, with what is wrong: nothing waits for their upload.
    pub(crate) damaged: Mutex<BTreeMap<PartId, Damage>>,
    spool_bytes: AtomicU64,
    /// The time that retention goes by; held while days are dropped.
    pub(crate) trusted_clock: tokio::sync::Mutex<Option<TrustedClock>>,
    /// Why that is not the clock of the machine.
    pub(crate) clock_note: Mutex<Option<String>>,
    /// How long dropped parts stay.
    pub(crate) graces: Graces,
    /// One backup at a time.
    pub(crate) backing_up: tokio::sync::Mutex<()>,
    /// One deletion run at a time.
    pub(crate) cleaning: tokio::sync::Mutex<()>,
    pub(crate) master: Mastership,
    // The lock lives as long as any job.
    _dir: Arc<DataDir>,
    jobs: Mutex<HashSet<Uuid>>,
    // What left `shared` and may still be read by a snapshot: removed parts, and parts as they were in the spool.
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

/// What a [`Core`] is made of.
pub(crate) struct Parts {
    pub(crate) settings: StoreSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) catalog: Catalog,
    pub(crate) storage: Storage,
    pub(crate) shared: Arc<Shared>,
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
        let (write_root, write_place) = match parts.storage.local_root() {
            Some(root) => (root.to_owned(), Place::Store),
            None => (parts.spool_root.clone(), Place::Spool),
        };
        let room = Room::new(parts.disk, write_root.clone(), parts.settings.disk_reserve_bytes);
        Self {
            settings: parts.settings,
            clock: parts.clock,
            catalog: parts.catalog,
            storage: parts.storage,
            shared: parts.shared,
            caches: parts.caches,
            io: parts.io,
            local_io: parts.local_io,
            write_root,
            write_place,
            spool_root: parts.spool_root,
            installation: parts.installation,
            stop: CancellationToken::new(),
            upload: Notify::new(),
            outbox: Notify::new(),
            clean: Notify::new(),
            progress: Progress::default(),
            amplification: Amplification::default(),
            flush_health: FlushHealth::default(),
            room,
            damaged: Mutex::default(),
            spool_bytes: AtomicU64::new(0),
            trusted_clock: tokio::sync::Mutex::default(),
            clock_note: Mutex::default(),
            graces: Graces::default(),
            backing_up: tokio::sync::Mutex::default(),
            cleaning: tokio::sync::Mutex::new(()),
            master: Mastership::new(parts.epoch),
            _dir: parts.dir,
            jobs: Mutex::default(),
            retired: Mutex::default(),
        }
    }

    /// Gives a flush or compaction its id; it counts as running until the guard is dropped.
    pub(crate) fn begin_job(self: &Arc<Self>) -> Job {
        let id = Uuid::now_v7();
        self.jobs.lock().insert(id);
        Job { id, core: Arc::clone(self) }
    }

    /// Says whether a job runs.
    pub(crate) fn runs(&self, job: Uuid) -> bool {
        self.jobs.lock().contains(&job)
    }

    /// Makes a part readable.
    pub(crate) fn part(&self, meta: PartMeta) -> Arc<Part> {
        Arc::new(Part::new(meta, Arc::clone(&self.io), Arc::clone(&self.caches)))
    }

    /// Swaps what readers see: parts in, parts out, generation out, in one store.
    pub(crate) fn publish(&self, commit: u64, added: Vec<PartMeta>, removed: &[PartId], flushed: Option<GenerationId>) {
        let mut added: Vec<_> = added.into_iter().map(|meta| self.part(meta)).collect();
        // Outside of the lock, for which the WAL's thread may wait.
        Visible::sort_parts(&mut added);
        let removed: HashSet<PartId> = removed.iter().copied().collect();
        // A part that only moved is still what it was.
        let gone: Vec<PartId> = removed.iter().copied().filter(|id| added.iter().all(|p| p.meta.id != *id)).collect();
        self.shared.update(|now| {
            let mut kept = Vec::with_capacity(now.parts.len());
            let mut retired = self.retired.lock();
            for part in now.parts.iter() {
                if removed.contains(&part.meta.id) {
                    // Before the swap, so that the cleaner finds it either here or among the visible ones.
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

    /// Brings the gauges of parts up to date.
    pub(crate) fn measure(&self) {
        let visible = self.shared.visible();
        let damaged = self.damaged.lock();
        let spooled =
            visible.parts.iter().filter(|p| p.meta.place == Place::Spool && !damaged.contains_key(&p.meta.id));
        let (mut count, mut spool_bytes) = (0, 0);
        for part in spooled {
            count += 1;
            spool_bytes += part.meta.bytes;
        }
        self.spool_bytes.store(spool_bytes, Relaxed);
        METRICS.upload_damaged.set(damaged.len() as u64);
        METRICS.upload_queue.set(count);
        METRICS.spool_bytes.set(spool_bytes);
        METRICS.catalog_parts.set(visible.parts.len() as u64);
        METRICS.catalog_part_bytes.set(visible.parts.iter().map(|p| p.meta.bytes).sum());
    }

    /// Gives the bytes of parts that wait for their upload.
    pub(crate) fn spool_bytes(&self) -> u64 {
        self.spool_bytes.load(Relaxed)
    }

    /// Says whether the spool takes no more.
    pub(crate) fn spool_full(&self) -> bool {
        self.write_place == Place::Spool && self.spool_bytes() >= self.settings.spool_limit_bytes
    }

    /// Gives the ids of parts that somebody may read: visible ones with `place`, and those that snapshots hold.
    pub(crate) fn readable(&self, place: Option<Place>) -> HashSet<PartId> {
        // This order: see `publish`.
        let visible = self.shared.visible();
        let mut retired = self.retired.lock();
        retired.retain(|_, holders| {
            holders.retain(|part| part.strong_count() > 0);
            !holders.is_empty()
        });
        let wanted = |part: &&Arc<Part>| place.is_none_or(|p| part.meta.place == p);
        visible.parts.iter().filter(wanted).map(|p| p.meta.id).chain(retired.keys().copied()).collect()
    }

    /// Makes sure that the store is that of this installation and this process its master, before anything is written to
    /// it or deleted from it; gives the epoch, taken now when the store was down at the start.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when the store is another's: then this process has begun to stop.
    pub(crate) async fn hold_store(&self) -> Result<u64> {
        self.still_master()?;
        let held = match self.master.epoch() {
            Some(epoch) => epoch::check(&self.storage, epoch).await.map(|()| epoch),
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

    /// Makes sure of the same before a commit, where that costs no request: another process would delete the files of a
    /// local store that its own catalog does not name.
    pub(crate) async fn may_commit(&self) -> Result<()> {
        match self.write_place {
            Place::Store => self.hold_store().await.map(|_| ()),
            Place::Spool => self.still_master(),
        }
    }

    /// Notes that the store is another's and ends all background work; gives the error back.
    pub(crate) fn lose_store(&self, error: Error) -> Error {
        self.master.lose(&error);
        self.stop.cancel();
        self.progress.bump();
        error
    }

    /// Fails once the store is another's.
    pub(crate) fn still_master(&self) -> Result<()> {
        self.master.lost().map_or(Ok(()), |why| Err(Error::new(ErrorKind::Conflict, why)))
    }

    /// Fails once the store closes.
    pub(crate) fn going_on(&self) -> Result<()> {
        if self.stop.is_cancelled() { Err(Error::new(ErrorKind::Cancelled, "the store closes")) } else { Ok(()) }
    }

    /// Says whether a compaction may go on.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] when the store closes, [`ErrorKind::Unavailable`] when the disk is too full.
    pub(crate) fn goes_on(&self) -> Result<()> {
        if self.stop.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "the store closes"));
        }
        self.room.while_compacting()
    }

    /// Gives the parts whose upload nothing waits for.
    pub(crate) fn damaged_ids(&self) -> HashSet<PartId> {
        self.damaged.lock().keys().copied().collect()
    }

    /// Closes local files that are about to be deleted.
    pub(crate) fn forget_file(&self, key: &str, place: Place) {
        self.local_io.forget(key, place);
    }

    pub(crate) fn now_ms(&self) -> Millis {
        self.clock.now_ms()
    }

    /// Unix time for gauges.
    pub(crate) fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms().max(0) as u64)
    }
}

/// Commits, again and again while the outcome is not known (a database that is busy or full): a commit whose answer was
/// lost is found by its job, so that what readers see and what the catalog says never part.
///
/// # Errors
/// [`ErrorKind::Conflict`] when nothing was changed; others when the store closes before it is known.
pub(crate) async fn commit(core: &Core, change: &Change) -> Result<u64> {
    debug_assert!(change.job.is_some(), "only a job's commit can be repeated");
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

/// A part in the spool whose files are not what was written.
#[derive(Debug)]
pub(crate) struct Damage {
    /// When they were read last.
    pub(crate) looked: Instant,
}

/// Lets those who wait for background work look again whenever something got done.
#[derive(Debug)]
pub(crate) struct Progress(watch::Sender<u64>);

impl Default for Progress {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Progress {
    /// Something got done.
    pub(crate) fn bump(&self) {
        self.0.send_modify(|n| *n += 1);
    }

    /// Waits until `done` says so. Gives up when nothing at all got done for `stall`.
    pub(crate) async fn wait<F, Fut>(&self, what: &str, stall: Duration, mut done: F) -> Result<()>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<bool>>,
    {
        let mut watch = self.0.subscribe();
        loop {
            watch.mark_unchanged();
            if done().await? {
                return Ok(());
            }
            if tokio::time::timeout(stall, watch.changed()).await.is_err() {
                let text = format!("{what} makes no progress; the log says why");
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
        }
    }
}

/// Bytes that flushes and compactions wrote since the start, to keep write amplification at 4 or less.
#[derive(Debug, Default)]
pub(crate) struct Amplification {
    flushed: AtomicU64,
    compacted: AtomicU64,
}

impl Amplification {
    /// What may be written beyond the ratio, so that a young process is not held back.
    const GRACE: u64 = 64 << 20;
    /// Optional work stops here, before the promised 4.
    const OPTIONAL_MAX: f64 = 3.5;

    pub(crate) fn add_flushed(&self, bytes: u64) {
        self.flushed.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn add_compacted(&self, bytes: u64) {
        self.compacted.fetch_add(bytes, Relaxed);
    }

    /// Bytes that optional rewriting (of late data) may still write.
    pub(crate) fn spare_bytes(&self) -> u64 {
        let flushed = self.flushed.load(Relaxed) as f64;
        let spare = flushed * (Self::OPTIONAL_MAX - 1.0) - self.compacted.load(Relaxed) as f64;
        (spare + Self::GRACE as f64).max(0.0) as u64
    }
}

/// Pauses between tries of background work: doubled each time, with jitter.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
    timer: Timer,
}

impl Backoff {
    pub(crate) fn new(core: &Core) -> Self {
        let timer = core.settings.timer.clone();
        Self { next: Duration::from_millis(200), longest: Duration::from_secs(20), timer }
    }

    /// Pauses; false when the store closes meanwhile.
    pub(crate) async fn pause(&mut self, stop: &CancellationToken) -> bool {
        let pause = jitter(self.next);
        self.next = (self.next * 2).min(self.longest);
        tokio::select! {
            () = stop.cancelled() => false,
            () = self.timer.sleep(pause) => true,
        }
    }
}
