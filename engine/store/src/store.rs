//! The store as others see it: open, write, flush, compact, read, close. Wires write path, catalog, object store and
//! the background jobs.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use quiver_types::logs::LogSource;
use quiver_types::source::RowSource;
use quiver_types::spans::SpanSource;
use quiver_types::tables::history::TableRows;
use quiver_types::{Clock, LogsBatch, MetricsBatch, Millis, SeriesSource, SpansBatch};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::cache::{CacheStats, Caches};
use crate::catalog::Catalog;
use crate::compact::Compactor;
use crate::core::{Core, Parts};
use crate::decoded::DecodedCache;
use crate::error::{Context, Error, ErrorKind, Result, chain};
use crate::flush::{Flushing, Found, Retire, held_id};
use crate::layout::DataDir;
use crate::logs::StoreLogs;
use crate::memtable::{Generation, GenerationId};
use crate::metrics::{METRICS, MetricLine};
use crate::object::Storage;
use crate::offline::part_io;
use crate::registry::Registry;
use crate::requests::{Answer, KEPT_MS, Once, RequestId};
use crate::rows::RowSnapshots;
use crate::select::StoreSource;
use crate::settings::StoreSettings;
use crate::snapshot::{Shared, Visible};
use crate::spans::SpanSnapshots;
use crate::wal::disk::{LocalDisk, WalDisk};
use crate::writer::{Refusal, WriteOutcome, WritePath, WritePathParts};
use crate::{cleaner, failpoint, flush, identity, outbox, retention, upload};

mod rewrite;

/// Those who wait for background work give up when nothing at all got done for so long.
const STALL: Duration = Duration::from_mins(2);
/// The catalog answers in milliseconds; when it does not within this time it hangs.
const CATALOG_ANSWERS: Duration = Duration::from_secs(5);

/// The store.
pub struct Store {
    core: Arc<Core>,
    write_path: Arc<WritePath>,
    source: Arc<StoreSource>,
    flushing: Arc<Flushing>,
    compactor: Compactor,
    tasks: Mutex<Vec<(&'static str, JoinHandle<()>)>>,
    closing: AtomicBool,
    // Last: the lock goes when nothing of the store runs any more.
    _dir: Arc<DataDir>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("core", &self.core).finish_non_exhaustive()
    }
}

impl Retire for WritePath {
    fn retire(&self, id: GenerationId) {
        Self::retire(self, id);
    }

    fn set_aside(&self, id: GenerationId) -> Result<()> {
        Self::set_aside(self, id)
    }
}

/// What tests put in the place of the real things.
#[derive(Debug, Default)]
pub struct StoreOverrides {
    /// Instead of the object store that the settings name.
    pub storage: Option<Storage>,
    /// Instead of the file system under the WAL.
    pub wal_disk: Option<Arc<dyn WalDisk>>,
}

impl Store {
    /// Opens a store: locks the directory, checks that catalog and object store belong together, replays the WAL, and
    /// starts the background jobs on the current tokio runtime.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another process has the directory or the object store belongs to another
    /// installation, [`ErrorKind::Invalid`] for bad settings or formats of a newer build,
    /// [`ErrorKind::Unavailable`] when a new installation's object store does not answer.
    pub async fn open(settings: StoreSettings, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        Self::open_with(settings, clock, StoreOverrides::default()).await
    }

    /// The same, with parts of it replaced.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn open_with(
        settings: StoreSettings,
        clock: Arc<dyn Clock>,
        overrides: StoreOverrides,
    ) -> Result<Arc<Self>> {
        let dir = Arc::new(DataDir::open(&settings.data_dir)?);
        let catalog = Catalog::open(&dir.database(), Arc::clone(&clock)).await?;
        let storage = match overrides.storage {
            Some(storage) => storage,
            None => Storage::open(&settings, &dir.store())?,
        };
        let look_only = settings.look_only;
        let (installation, epoch) = if look_only {
            (looked_at(&catalog).await?, None)
        } else {
            installation(&catalog, &storage, clock.now_ms()).await?
        };
        let cache_bytes = settings.cache_memory_bytes();
        let mut caches = Caches::new(cache_bytes / 4 * 3, storage.local_root().is_none());
        if !settings.decoded_cache {
            caches.decoded = DecodedCache::new(0);
        }
        let caches = Arc::new(caches);
        let (io, local_io) = part_io(&dir, &storage);
        let shared = Arc::new(Shared::new(Visible::default(), 0));
        let disk = overrides.wal_disk.unwrap_or_else(|| Arc::new(LocalDisk));
        let parts = Parts {
            settings,
            clock,
            catalog,
            storage,
            shared,
            caches,
            io,
            local_io,
            spool_root: dir.parts(),
            installation,
            epoch,
            dir: Arc::clone(&dir),
            disk: Arc::clone(&disk),
        };
        let core = Arc::new(Core::new(parts));
        let (commit, live) = core.catalog.live_parts().await?;
        core.publish(commit, live, &[], None);

        let (sealed_to, sealed) = mpsc::unbounded_channel();
        let writer = Uuid::now_v7();
        let (write_path, found) = replayed(&core, dir.wal(), disk, sealed_to, writer).await?;
        let oldest = core.now_ms().saturating_sub(KEPT_MS);
        let answered = core.catalog.answered_since(oldest).await?;
        write_path.load_requests(answered.into_iter().map(Arc::new).collect());
        let write_path = Arc::new(write_path);
        let held = found.aside.iter().map(|g| held_id(g.id()).writer);
        let writers = found.replayed.iter().map(|g| g.writer).chain(held).chain([writer]).collect();
        let flushing = Arc::new(Flushing::default());
        let retire: Arc<dyn Retire> = Arc::clone(&write_path) as Arc<dyn Retire>;
        let mut tasks = Vec::new();
        if !look_only {
            forget_writers(&core, &write_path, writers).await?;
            tasks = background(&core, retire, found, sealed, &flushing);
        }
        let compactor = Compactor::start(Arc::clone(&core), tokio::runtime::Handle::current())?;
        let source_bytes = usize::try_from(cache_bytes / 4).unwrap_or(usize::MAX);
        let source = Arc::new(StoreSource::new(Arc::clone(&core.shared), source_bytes));
        tracing::info!(store = core.storage.url(), %installation, %writer, epoch, commit, "store opened");
        Ok(Arc::new(Self {
            core,
            write_path,
            source,
            flushing,
            compactor,
            tasks: Mutex::new(tasks),
            // What is looked at takes no writes.
            closing: AtomicBool::new(look_only),
            _dir: dir,
        }))
    }

    /// Writes a batch. When it returns the batch is durable as the WAL's level says, and visible to queries.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when there is no room (memory, disk, spool) or the store closes: the same batch may
    /// be sent again later. [`ErrorKind::Invalid`] when nothing of it can be taken.
    pub async fn write_metrics(&self, batch: MetricsBatch) -> Result<WriteOutcome> {
        self.takes_writes()?;
        self.write_path.write_metrics(batch).await
    }

    /// Writes log rows, likewise. Rows that are too old or too far in the future are dropped and counted; the rest is
    /// stored.
    ///
    /// # Errors
    /// As [`Store::write_metrics`].
    pub async fn write_logs(&self, batch: LogsBatch) -> Result<WriteOutcome> {
        self.takes_writes()?;
        self.write_path.write_logs(batch).await
    }

    /// The time of log rows, in nanoseconds, that a write accepts now; others are dropped.
    pub fn logs_window(&self) -> RangeInclusive<i64> {
        self.write_path.logs_window()
    }

    /// Writes the log rows of a request that names itself, all or nothing, once: its repeats within ten minutes get the
    /// answer of the first. `answer` makes it of what the store refused.
    ///
    /// # Errors
    /// As [`Store::write_metrics`], and those of `answer`: then nothing is stored, and the request is not known.
    /// [`ErrorKind::Execution`] when it came before with another body.
    pub async fn write_logs_once(
        &self,
        id: RequestId,
        body_hash: u128,
        batches: Vec<LogsBatch>,
        answer: impl FnOnce(&[(Refusal, u64)]) -> Result<Answer>,
    ) -> Result<Once> {
        self.takes_writes()?;
        self.write_path.write_logs_once(id, body_hash, batches, answer).await
    }

    /// Writes spans, likewise.
    ///
    /// # Errors
    /// As [`Store::write_metrics`].
    pub async fn write_spans(&self, batch: SpansBatch) -> Result<WriteOutcome> {
        self.takes_writes()?;
        self.write_path.write_spans(batch).await
    }

    /// Writes rows of tables that keep them as they came (`tables::history`), all or nothing.
    ///
    /// # Errors
    /// As [`Store::write_metrics`].
    pub async fn write_rows(&self, rows: Vec<TableRows>) -> Result<()> {
        self.takes_writes()?;
        self.write_path.write_rows(rows).await
    }

    /// Gives what queries of such tables read from.
    pub fn row_source(&self) -> Arc<dyn RowSource> {
        Arc::new(RowSnapshots::new(Arc::clone(&self.core.shared)))
    }

    /// Gives what queries of spans read from.
    pub fn span_source(&self) -> Arc<dyn SpanSource> {
        Arc::new(SpanSnapshots::new(Arc::clone(&self.core.shared)))
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    fn takes_writes(&self) -> Result<()> {
        if self.closing.load(Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "the store is shutting down"));
        }
        if let Some(why) = self.core.master.lost() {
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
        if self.core.spool_full() {
            METRICS.spool_refused.inc();
            let text = "the object store is behind and the spool is full; try again later";
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        Ok(())
    }

    /// Says whether the store takes writes and answers queries, as far as is known without asking the catalog.
    pub fn ready(&self) -> bool {
        !self.closing.load(Relaxed) && self.standstill().is_none()
    }

    /// Says what keeps the store from its work, none if nothing does: a part of it that has ended, hangs, or fails
    /// again and again.
    pub async fn trouble(&self) -> Option<String> {
        if self.closing.load(Relaxed) {
            return Some("the store is shutting down".into());
        }
        if let Some(text) = self.standstill() {
            return Some(text);
        }
        match tokio::time::timeout(CATALOG_ANSWERS, self.core.catalog.last_commit()).await {
            Ok(Ok(_)) => None,
            Ok(Err(e)) => Some(chain(&e)),
            Err(_) => Some(format!("the catalog has not answered for {} s", CATALOG_ANSWERS.as_secs())),
        }
    }

    /// Waits until another server has taken the store: then this one takes no writes any more, and should be closed.
    /// Gives the reason.
    pub async fn lost(&self) -> Error {
        self.core.master.wait().await;
        Error::new(ErrorKind::Conflict, self.core.master.lost().unwrap_or_default())
    }

    /// Gives what an operator should know and do something about, in words, though nothing is ill.
    pub fn notes(&self) -> Vec<String> {
        self.core.clock_note.lock().clone().into_iter().collect()
    }

    fn standstill(&self) -> Option<String> {
        let ended = |tasks: &[(&str, JoinHandle<()>)]| {
            tasks.iter().find(|(_, task)| task.is_finished()).map(|(name, _)| format!("the {name} has ended"))
        };
        (self.core.master.lost().map(str::to_owned))
            .or_else(|| self.write_path.trouble())
            .or_else(|| ended(&self.tasks.lock()))
            .or_else(|| self.compactor.has_ended().then(|| "the compaction has ended".into()))
            .or_else(|| self.core.flush_health.trouble())
    }

    /// Gives the installation that catalog and object store belong to.
    pub fn installation(&self) -> Uuid {
        self.core.installation
    }

    /// Gives the settings it was opened with.
    pub fn settings(&self) -> &StoreSettings {
        &self.core.settings
    }

    /// Gives what queries read from.
    pub fn source(self: &Arc<Self>) -> Arc<dyn SeriesSource> {
        Arc::clone(&self.source) as Arc<dyn SeriesSource>
    }

    /// Gives what queries read logs from.
    pub fn logs(&self) -> Arc<dyn LogSource> {
        Arc::new(StoreLogs::new(Arc::clone(&self.core.shared)))
    }

    /// Pins what is visible now, for tests that change it.
    #[cfg(test)]
    pub(crate) fn core_snapshot(&self) -> crate::snapshot::Snapshot {
        self.core.shared.snapshot()
    }

    /// Where snapshots come from, for tests that make their own.
    #[cfg(test)]
    pub(crate) fn core_shared(&self) -> Arc<Shared> {
        Arc::clone(&self.core.shared)
    }

    /// Gives what is visible now (tests, explain).
    pub fn visible(&self) -> Arc<Visible> {
        self.core.shared.visible()
    }

    /// Gives what each cache holds and did.
    pub fn cache_stats(&self) -> Vec<(&'static str, CacheStats)> {
        self.core.caches.stats().to_vec()
    }

    /// Gives the own metrics.
    pub fn metrics(&self) -> Vec<MetricLine> {
        METRICS.list()
    }

    /// Bytes of generations, registry and queued writes.
    pub fn ingest_memory_bytes(&self) -> u64 {
        self.write_path.memory_bytes()
    }

    /// Flushes everything that was written before, and waits until it is committed, in the object store, and told by
    /// its commit objects.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when that makes no progress (the object store is down), or a generation cannot be
    /// flushed and was set aside.
    pub async fn flush_all(&self) -> Result<()> {
        let aside = self.flush_sealed().await?;
        self.wait_for_store().await?;
        aside.map_or(Ok(()), |text| Err(Error::new(ErrorKind::Unavailable, text)))
    }

    /// Flushes what can be flushed; says what was set aside of it.
    pub(crate) async fn flush_sealed(&self) -> Result<Option<String>> {
        self.write_path.seal().await?;
        let sealed: HashSet<GenerationId> = {
            let visible = self.core.shared.visible();
            visible.generations.iter().filter(|g| g.sealed()).map(|g| g.id()).collect()
        };
        let flushed = || async {
            self.core.still_master()?;
            let visible = self.core.shared.visible();
            let waits = |id: GenerationId| sealed.contains(&id) && !self.flushing.is_aside(id);
            Ok(!visible.generations.iter().any(|g| waits(g.id())) && !self.flushing.is_one_of(&sealed))
        };
        self.core.progress.wait("the flush", STALL, flushed).await?;
        Ok(self.flushing.set_aside_of(&sealed))
    }

    async fn wait_for_store(&self) -> Result<()> {
        let core = &self.core;
        let commit = core.catalog.last_commit().await?;
        core.upload.notify_one();
        core.outbox.notify_one();
        let told =
            || async { core.still_master().and(Ok(core.catalog.first_unwritten().await?.is_none_or(|c| c > commit))) };
        core.progress.wait("the upload to the object store", STALL, told).await
    }

    /// Compacts what is due, or with `force` everything of every day, open windows too, to level 2; waits until the
    /// outcome is in the object store, and deletes what it replaced (as far as no query reads it).
    ///
    /// # Errors
    /// As [`Store::flush_all`]; [`ErrorKind::Cancelled`] when the store closes.
    pub async fn compact_all(&self, force: bool) -> Result<()> {
        self.flush_sealed().await?;
        self.wait_for_store().await?;
        let compacted = self.compactor.request(force).await;
        self.core.still_master().and(compacted)?;
        self.wait_for_store().await?;
        cleaner::clean(&self.core).await?;
        self.core.catalog.checkpoint().await
    }

    /// Drops what is past its retention now, without waiting for the next round; gives the number of parts.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the catalog refuses.
    pub async fn expire(&self) -> Result<usize> {
        retention::expire(&self.core).await
    }

    /// Deletes the files that may go now, without waiting for the next round; gives their number.
    ///
    /// # Errors
    /// What disk, store or catalog say.
    pub async fn clean(&self) -> Result<usize> {
        cleaner::clean(&self.core).await
    }

    /// Closes the store: refuses writes, flushes what it can within the given time (the rest stays in the WAL and is
    /// replayed at the next start), stops the background jobs, and gives the directory free.
    pub async fn close(&self, within: Duration) {
        if self.closing.swap(true, Relaxed) {
            return;
        }
        let flushed = async {
            self.core.still_master()?;
            self.flush_sealed().await
        };
        match tokio::time::timeout(within, flushed).await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(aside))) => tracing::warn!(aside, "not all was flushed, the rest stays in the WAL"),
            Ok(Err(e)) => tracing::warn!(error = %chain(&e), "not all was flushed, the rest stays in the WAL"),
            Err(_) => tracing::info!("not all was flushed in time, the rest stays in the WAL"),
        }
        failpoint::hit("close.after-seal");
        self.core.stop.cancel();
        self.write_path.shutdown().await;
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for (name, task) in tasks {
            if let Err(e) = task.await {
                tracing::error!(name, error = %e, "a background job ended badly");
            }
        }
        self.compactor.join().await;
        self.core.catalog.close().await;
        tracing::info!("store closed");
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Without `close`: as after a kill, only tidier.
        self.core.stop.cancel();
    }
}

/// Opens the write side over what the WAL holds and no part has.
async fn replayed(
    core: &Core,
    dir: PathBuf,
    disk: Arc<dyn WalDisk>,
    on_sealed: mpsc::UnboundedSender<Arc<Generation>>,
    writer: Uuid,
) -> Result<(WritePath, Found)> {
    let floors: HashMap<Uuid, u64> = core.catalog.floors().await?.into_iter().map(|f| (f.writer, f.floor)).collect();
    let floors = Arc::new(floors);
    let below = move |floors: &HashMap<Uuid, u64>, id: GenerationId| {
        floors.get(&id.writer).is_some_and(|&floor| id.number < floor)
    };
    let settings = core.settings.write();
    let (clock, shared) = (Arc::clone(&core.clock), Arc::clone(&core.shared));
    failpoint::hit("replay.begin");
    let replay = move || {
        WritePath::open(WritePathParts {
            dir,
            disk,
            settings,
            clock,
            registry: Arc::new(Registry::default()),
            shared,
            on_sealed,
            writer,
            flushed: Box::new({
                let floors = Arc::clone(&floors);
                move |id| below(&floors, id)
            }),
            held_flushed: Box::new(move |id| below(&floors, held_id(id))),
        })
    };
    let opened = tokio::task::spawn_blocking(replay).await;
    let opened = opened.internal("the replay of the WAL stopped")??;
    failpoint::hit("replay.end");
    Ok(opened)
}

/// Starts what goes on beside reading and writing.
fn background(
    core: &Arc<Core>,
    retire: Arc<dyn Retire>,
    found: Found,
    sealed: mpsc::UnboundedReceiver<Arc<Generation>>,
    flushing: &Arc<Flushing>,
) -> Vec<(&'static str, JoinHandle<()>)> {
    let mut tasks = vec![
        ("flush", tokio::spawn(flush::run(Arc::clone(core), retire, found, sealed, Arc::clone(flushing)))),
        ("writer of commit objects", tokio::spawn(outbox::run(Arc::clone(core)))),
        ("retention", tokio::spawn(retention::run(Arc::clone(core)))),
        ("cleaner", tokio::spawn(cleaner::run(Arc::clone(core)))),
    ];
    if core.storage.local_root().is_none() {
        tasks.push(("upload", tokio::spawn(upload::run(Arc::clone(core)))));
    }
    tasks
}

/// The installation of a directory that is there already.
async fn looked_at(catalog: &Catalog) -> Result<Uuid> {
    let known = catalog.installation().await?;
    known.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "the data directory holds no installation: no server ever ran on it")
    })
}

/// Gives the installation, and the epoch if the object store answers. One that is down stops only a new installation:
/// an old one goes on with its spool, and takes its epoch before anything is written to the store.
async fn installation(catalog: &Catalog, storage: &Storage, now: Millis) -> Result<(Uuid, Option<u64>)> {
    match identity::establish(catalog, storage, now).await {
        Ok((id, epoch)) => Ok((id, Some(epoch))),
        Err(e) if e.kind() == ErrorKind::Unavailable => match catalog.installation().await? {
            Some(id) if catalog.last_commit().await? > 0 => {
                tracing::warn!(error = %chain(&e), "the object store does not answer, starting without it");
                Ok((id, None))
            }
            _ => Err(e),
        },
        Err(e) => Err(e),
    }
}

/// Forgets the floors of all writers but these and those whose logs are still there.
async fn forget_writers(core: &Core, write_path: &Arc<WritePath>, writers: Vec<Uuid>) -> Result<()> {
    let write_path = Arc::clone(write_path);
    let with_segments = tokio::task::spawn_blocking(move || write_path.writers_with_segments()).await;
    match with_segments.internal("the start stopped")? {
        Ok(mut keep) => {
            keep.extend(writers);
            core.catalog.forget_writers(&keep).await
        }
        Err(e) => {
            tracing::warn!(error = %chain(&e), "writers without a log are kept in the catalog until the next start");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
