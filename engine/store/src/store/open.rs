//! Opens a store: connects write path, catalog, object store and background jobs, and replays the WAL.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use quiver_types::{Clock, Millis};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::Store;
use crate::cache::Caches;
use crate::catalog::Catalog;
use crate::compact::Compactor;
use crate::core::{Core, Parts};
use crate::decoded_cache::DecodedCache;
use crate::error::{Context, Error, ErrorKind, Result, chain};
use crate::flush::{FlushState, Retire, StartupGenerations, held_id};
use crate::idempotency::KEPT_MS;
use crate::layout::{DataDir, parse_part_key};
use crate::memtable::{Generation, GenerationId};
use crate::object::Storage;
use crate::offline::{files_below, part_io};
use crate::part::Place;
use crate::select::StoreSource;
use crate::settings::StoreSettings;
use crate::snapshot::{SnapshotPublisher, Visible};
use crate::wal::disk::{LocalDisk, WalDisk};
use crate::writer::{WritePath, WritePathParts};
use crate::{cleaner, failpoint, flush, identity, outbox, retention, threads, upload};

impl Retire for WritePath {
    fn retire(&self, id: GenerationId) {
        Self::retire(self, id);
    }

    fn set_aside(&self, id: GenerationId) -> Result<()> {
        Self::set_aside(self, id)
    }
}

/// Replacements that tests use.
#[derive(Debug, Default)]
pub struct StoreOverrides {
    /// Replaces the object store of the settings.
    pub storage: Option<Storage>,
    /// Replaces the file system of the WAL.
    pub wal_disk: Option<Arc<dyn WalDisk>>,
}

impl Store {
    /// Opens a store: locks the directory, checks that catalog and object store belong together, replays the WAL, and
    /// starts the background jobs on the current tokio runtime.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if another process holds the directory or the object store belongs to another
    /// installation, [`ErrorKind::Invalid`] for bad settings or formats of a newer build, [`ErrorKind::Unavailable`] if
    /// the object store of a new installation does not answer.
    pub async fn open(settings: StoreSettings, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        Self::open_with(settings, clock, StoreOverrides::default()).await
    }

    /// Like [`Store::open`], with parts of it replaced.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(
        settings: StoreSettings,
        clock: Arc<dyn Clock>,
        overrides: StoreOverrides,
    ) -> BoxFuture<'static, Result<Arc<Self>>> {
        // Boxed, so that all that opens a store is compiled in this crate alone.
        Box::pin(Self::opened(settings, clock, overrides))
    }

    async fn opened(settings: StoreSettings, clock: Arc<dyn Clock>, overrides: StoreOverrides) -> Result<Arc<Self>> {
        let dir = Arc::new(DataDir::open(&settings.data_dir)?);
        let catalog = Catalog::open_within(&dir.database(), Arc::clone(&clock), settings.memory_limit_bytes).await?;
        let storage = match overrides.storage {
            Some(storage) => storage,
            None => Storage::open(&settings, &dir.store())?,
        };
        let look_only = settings.look_only;
        let (installation, epoch) = if look_only {
            (looked_at(&catalog).await?, None)
        } else {
            refuse_half_restored(&dir, &catalog).await?;
            installation(&catalog, &storage, clock.now_ms()).await?
        };
        // The rest is for the source, which is made below.
        let cache_bytes = settings.cache_memory_bytes();
        let caches = Arc::new(part_caches(&settings, &storage, cache_bytes / 4 * 3));
        let (io, local_io) = part_io(&dir, &storage);
        let shared = Arc::new(SnapshotPublisher::new(Visible::default(), 0));
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
        let flushing = Arc::new(FlushState::default());
        let retire: Arc<dyn Retire> = Arc::clone(&write_path) as Arc<dyn Retire>;
        let mut tasks = Vec::new();
        if !look_only {
            forget_writers(&core, &write_path, writers).await?;
            match unnamed(&core).await {
                Ok(note) => *core.spool_note.lock() = note,
                Err(e) => {
                    tracing::warn!(error = %chain(&e), "what the spool holds cannot be compared with the catalog");
                }
            }
            tasks = background(&core, retire, found, sealed, &flushing);
        }
        let registry = Arc::clone(write_path.registry());
        let compactor = Compactor::start(Arc::clone(&core), registry, tokio::runtime::Handle::current())?;
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
            // A store that was opened read-only takes no writes.
            closing: AtomicBool::new(look_only),
            _dir: dir,
        }))
    }
}

/// The caches of what is read of parts. Bytes of a remote store are kept, those of local files are left to the system.
fn part_caches(settings: &StoreSettings, storage: &Storage, bytes: u64) -> Caches {
    let mut caches = if storage.local_root().is_some() { Caches::local(bytes) } else { Caches::remote(bytes) };
    if !settings.decoded_cache {
        caches.decoded = DecodedCache::new(0);
    }
    caches
}

/// Opens the write side with the data in the WAL that is not in parts.
async fn replayed(
    core: &Core,
    dir: PathBuf,
    disk: Arc<dyn WalDisk>,
    on_sealed: mpsc::UnboundedSender<Arc<Generation>>,
    writer: Uuid,
) -> Result<(WritePath, StartupGenerations)> {
    let floors = core.catalog.floors().await?.into_iter().map(|f| (f.writer, f.floor)).collect();
    let settings = core.settings.write();
    let (clock, shared) = (Arc::clone(&core.clock), Arc::clone(&core.shared));
    failpoint::hit("replay.begin");
    let replay =
        move || WritePath::open(WritePathParts { dir, disk, settings, clock, shared, on_sealed, writer, floors });
    let opened = tokio::task::spawn_blocking(replay).await;
    let opened = opened.internal("the replay of the WAL stopped")??;
    failpoint::hit("replay.end");
    Ok(opened)
}

/// Starts the background jobs.
fn background(
    core: &Arc<Core>,
    retire: Arc<dyn Retire>,
    found: StartupGenerations,
    sealed: mpsc::UnboundedReceiver<Arc<Generation>>,
    flushing: &Arc<FlushState>,
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

/// The installation of an existing directory.
async fn looked_at(catalog: &Catalog) -> Result<Uuid> {
    let known = catalog.installation().await?;
    known.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "the data directory holds no installation: no server ever ran on it")
    })
}

/// Refuses a directory into which a restore was begun and not finished. A new installation would begin there beside the
/// configuration, which is restored first.
async fn refuse_half_restored(dir: &DataDir, catalog: &Catalog) -> Result<()> {
    let mark = dir.restoring();
    if !mark.exists() || catalog.installation().await?.is_some() {
        return Ok(());
    }
    let text = format!(
        "a restore into `{}` was begun and did not finish: call `quiver restore` again; to begin with what is there instead, \
         remove `{}`",
        dir.root().display(),
        mark.display()
    );
    Err(Error::invalid(text))
}

/// The installation, and the epoch if the object store answers. If it does not, only a new installation fails: an
/// existing one continues with its spool, and takes its epoch before it writes to the store.
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

/// Drops the floors of all writers except the given ones and those that still have segments.
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

/// Says of which files in the spool the catalog knows nothing. A database that is an old copy, or lost its log, may have
/// lost the commits of an outage with it: no commit object tells of them, and their rows are not in the WAL any more.
async fn unnamed(core: &Core) -> Result<Option<String>> {
    if core.output.place == Place::Store {
        // Its commit objects are told at once, so a start compares those.
        return Ok(None);
    }
    let root = core.spool.root.clone();
    let mut files = threads::blocking(move || files_below(&root)).await.internal("the start stopped")??;
    files.retain(|key, _| parse_part_key(key).is_some());
    let (_, live) = core.catalog.live_parts().await?;
    let known = live.into_iter().flat_map(|part| part.files).map(|file| file.key);
    for key in known.chain(core.catalog.doomed_keys().await?) {
        files.remove(&key);
    }
    let Some(first) = files.keys().next() else { return Ok(None) };
    let text = format!(
        "{} files of parts in the spool are named by nobody (`{first}`, …), so queries do not see them: the catalog \
         (`quiver.db`) may be an old copy; stop the server, then `quiver catalog rebuild` takes back what it has lost",
        files.len()
    );
    tracing::warn!("{text}");
    Ok(Some(text))
}
