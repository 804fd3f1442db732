//! What the commands that work on a stopped store share: locking it, opening catalog and object store, reading parts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use quiver_types::Clock;

use crate::cache::Caches;
use crate::catalog::Catalog;
use crate::error::Result;
use crate::io::{LocalIo, PartIo};
use crate::layout::{DataDir, commit_key};
use crate::object::{Storage, StoreIo, list_files};
use crate::settings::StoreSettings;

/// Memory for footers while parts are checked.
const CACHE_BYTES: u64 = 16 << 20;
/// Commit objects that are fetched at a time. Up to 512 of them are needed, and each is a request of its own.
const OBJECTS_AT_A_TIME: usize = 16;

/// An installation that does not run.
pub(crate) struct Offline {
    pub(crate) dir: DataDir,
    pub(crate) catalog: Catalog,
    pub(crate) storage: Storage,
    pub(crate) io: Arc<dyn PartIo>,
    pub(crate) caches: Arc<Caches>,
}

impl Offline {
    /// Locks and opens it. `storage`: the store, where it is not the one that the settings name (tests).
    pub(crate) async fn open(
        settings: &StoreSettings,
        clock: Arc<dyn Clock>,
        storage: Option<Storage>,
    ) -> Result<Self> {
        let dir = DataDir::open(&settings.data_dir)?;
        let catalog = Catalog::open(&dir.database(), clock).await?;
        let storage = match storage {
            Some(storage) => storage,
            None => Storage::open(settings, &dir.store())?,
        };
        let (io, _) = part_io(&dir, &storage);
        let caches = Arc::new(Caches::local(CACHE_BYTES));
        Ok(Self { dir, catalog, storage, io, caches })
    }

    /// Lists files of the spool with their sizes; empty for a local store.
    pub(crate) fn spool_files(&self) -> Result<BTreeMap<String, u64>> {
        files_below(&self.dir.parts())
    }

    /// Fetches the objects of commits, several at a time, and gives them in the order of `commits`. `None`: it is not
    /// there.
    pub(crate) fn commit_objects(&self, commits: Vec<u64>) -> BoxStream<'static, Result<(u64, Option<Bytes>)>> {
        let one = |commit: u64| {
            let storage = self.storage.clone();
            async move { storage.get(&commit_key(commit)).await.map(|body| (commit, body)) }
        };
        let reads: Vec<_> = commits.into_iter().map(one).collect();
        futures::stream::iter(reads).buffered(OBJECTS_AT_A_TIME).boxed()
    }
}

/// Lists the files below a folder, by their paths from there, with their sizes.
pub(crate) fn files_below(root: &Path) -> Result<BTreeMap<String, u64>> {
    Ok(list_files(root, "")?.into_iter().collect())
}

/// Gives what reads parts, and the half of it that keeps local files open.
pub(crate) fn part_io(dir: &DataDir, storage: &Storage) -> (Arc<dyn PartIo>, Arc<LocalIo>) {
    if let Some(root) = storage.local_root() {
        let local = Arc::new(LocalIo::new(&dir.parts(), root));
        (Arc::clone(&local) as Arc<dyn PartIo>, local)
    } else {
        let local = Arc::new(LocalIo::new(&dir.parts(), &dir.store()));
        let runtime = tokio::runtime::Handle::current();
        (Arc::new(StoreIo::new(Arc::clone(&local), storage.clone(), runtime)), local)
    }
}
