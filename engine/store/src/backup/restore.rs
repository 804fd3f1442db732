//! Restores a backup: copies its files into an empty store and builds a catalog that lists them. The result is a new
//! installation, so that it can never be confused with the one that was backed up.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::LocalBoxFuture;
use quiver_types::Clock;
use uuid::Uuid;

use super::attachments::{Detach, detach};
use super::copy::{checksum, fetch};
use super::keys::manifests;
use super::manifest::Manifest;
use super::{objects, stage};
use crate::catalog::{NextObject, Rebuilt};
use crate::error::{Error, ErrorKind, Result, chain, io_error};
use crate::failpoint;
use crate::identity;
use crate::layout::{DataDir, IDENTITY_KEY, commit_key, sync_dir};
use crate::object::{Storage, Tail};
use crate::offline::Offline;
use crate::part::FileMeta;
use crate::retention::clock;
use crate::settings::StoreSettings;
use crate::steps::Steps;

/// The result of a restore.
#[derive(Debug, Clone)]
pub struct RestoreReport {
    /// Name of the backup that was restored.
    pub name: String,
    /// Id of the new installation.
    pub installation: Uuid,
    /// Number of parts that were restored.
    pub parts: usize,
    /// Bytes of the parts that were restored.
    pub bytes: u64,
    /// Number of parts that the backup lacks, because they were damaged when it was made.
    pub lacking: usize,
    /// Whether an attached file was requested and is in the backup.
    pub attached: bool,
}

impl fmt::Display for RestoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, installation, parts, bytes, lacking, .. } = self;
        write!(f, "restored backup `{name}` as installation {installation}: {parts} parts, {bytes} bytes")?;
        if *lacking > 0 {
            write!(f, "; it lacks {lacking} parts, which were damaged when it was made: an older one may have them")?;
        }
        Ok(())
    }
}

/// Names of the backups at a location, oldest first.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if it does not answer, [`ErrorKind::NotFound`] if there is none.
pub fn list<'a>(settings: &'a StoreSettings, from: &'a str) -> LocalBoxFuture<'a, Result<Vec<String>>> {
    Box::pin(async move {
        let objects = objects(&Storage::at(from, settings)?).await?;
        let names: Vec<String> = manifests(&objects).into_iter().collect();
        if names.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no backup at `{from}`")));
        }
        Ok(names)
    })
}

/// Restores a backup (by default the newest) into an empty data directory and an empty store. An interrupted restore
/// can be repeated.
///
/// # Errors
/// [`ErrorKind::Conflict`] if the target is not empty, [`ErrorKind::NotFound`] if there is no such backup,
/// [`ErrorKind::Internal`] if one of its files is damaged or missing.
pub async fn restore(
    settings: StoreSettings,
    clock: Arc<dyn Clock>,
    from: &str,
    at: Option<&str>,
) -> Result<RestoreReport> {
    restore_with(settings, clock, (from, at), None).await
}

/// Like [`restore`], with an attached file.
///
/// # Errors
/// Those of [`restore`], and those of reading the attached file, which happens before anything is copied.
pub fn restore_with<'a>(
    settings: StoreSettings,
    clock: Arc<dyn Clock>,
    (from, at): (&'a str, Option<&'a str>),
    attached: Option<&'a dyn Detach>,
) -> LocalBoxFuture<'a, Result<RestoreReport>> {
    Box::pin(async move {
        let source = Storage::at(from, &settings)?;
        let objects = objects(&source).await?;
        let missing = || Error::new(ErrorKind::NotFound, format!("`{}` holds no backup", source.url()));
        let name = match at {
            Some(name) => name.to_owned(),
            None => manifests(&objects).pop_last().ok_or_else(missing)?,
        };
        let manifest = Manifest::read(&source, &name).await?;
        manifest.check_files(&objects, &name, attached.map(Detach::name))?;
        let offline = Offline::open(&settings, clock, None).await?;
        let stage = stage(&settings);
        let restore = Restore { source: &source, manifest: &manifest, offline: &offline };
        let restored = restore.run(&settings, &name, attached).await;
        let _ = tokio::fs::remove_dir_all(&stage).await;
        offline.catalog.close().await;
        let bytes = manifest.parts.iter().map(|p| p.bytes).sum();
        let (installation, attached) = restored?;
        let (parts, lacking) = (manifest.parts.len(), manifest.lacking.as_ref().map_or(0, BTreeSet::len));
        Ok(RestoreReport { name, installation, parts, bytes, lacking, attached })
    })
}

/// Notes that a restore has begun, so that no server takes what it left for all there is.
fn begin(dir: &DataDir, name: &str) -> Result<()> {
    let mark = dir.restoring();
    let written = File::create(&mark).and_then(|mut file| writeln!(file, "{name}").and_then(|()| file.sync_all()));
    written.map_err(|e| io_error(format!("cannot write `{}`", mark.display()), e))?;
    sync_dir(dir.root())
}

struct Restore<'a> {
    source: &'a Storage,
    manifest: &'a Manifest,
    offline: &'a Offline,
}

impl Restore<'_> {
    async fn run(&self, settings: &StoreSettings, name: &str, attached: Option<&dyn Detach>) -> Result<(Uuid, bool)> {
        let target = &self.offline.storage;
        let there = self.check_empty().await?;
        begin(&self.offline.dir, name)?;
        let attached = match attached {
            Some(by) => detach(by, (self.source, &stage(settings)), name, self.manifest).await?,
            None => false,
        };
        let mut steps = Steps::new("restored", self.manifest.parts.iter().map(|p| p.bytes).sum());
        for file in self.manifest.parts.iter().flat_map(|p| &p.files) {
            if there.get(&file.key) != Some(&file.bytes) {
                self.copy(file, settings).await?;
            }
            steps.advance(file.bytes);
        }
        failpoint::hit("restore.after-files");
        let stored = identity::stored(target).await?;
        let installation = stored.map_or_else(Uuid::now_v7, |i| i.installation);
        identity::write(target, installation).await?;
        // The time of the backup, not the current one: otherwise a backup older than the retention would be dropped at
        // start.
        let time = self.manifest.trusted_ms.unwrap_or(self.manifest.made_ms);
        clock::write(&clock::file(&settings.data_dir), time)?;
        failpoint::hit("restore.after-identity");
        let rebuilt = Rebuilt {
            installation,
            commits: Vec::new(),
            live: Vec::new(),
            removed: Vec::new(),
            adopted: self.manifest.parts.clone(),
            floors: Vec::new(),
        };
        self.offline.catalog.replace(&rebuilt).await?;
        if let Err(error) = self.tell_store().await {
            // All is there, and the first start tells it.
            tracing::warn!(error = %chain(&error), "the store does not name its parts yet: start the server before a rebuild");
        }
        // One that stays means nothing any more.
        let _ = std::fs::remove_file(self.offline.dir.restoring());
        Ok((installation, attached))
    }

    /// Writes the commit object that names the parts: without it, `quiver catalog rebuild` before the first start would find
    /// files of no part, and a catalog without any.
    async fn tell_store(&self) -> Result<()> {
        let Offline { catalog, storage, .. } = self.offline;
        while let NextObject::Ready(object) = catalog.next_object(&HashSet::new()).await? {
            let key = commit_key(object.commit);
            let there = storage.create(&key, Bytes::from(object.body(None))).await?;
            if there.is_some_and(|found| !object.is(&found)) {
                return Err(Error::new(ErrorKind::Conflict, format!("`{key}` is another one's")));
            }
            catalog.object_written(object.commit).await?;
        }
        Ok(())
    }

    /// Refuses a target that contains anything but what an interrupted restore of this backup left, and returns the
    /// latter.
    async fn check_empty(&self) -> Result<HashMap<String, u64>> {
        let target = &self.offline.storage;
        let conflict = |text: String| Err(Error::new(ErrorKind::Conflict, text));
        let dir = self.offline.dir.root().display();
        if let Some(id) = self.offline.catalog.installation().await? {
            return conflict(format!(
                "the data directory `{dir}` holds installation `{id}`; restore into an empty one"
            ));
        }
        let wal = std::fs::read_dir(self.offline.dir.wal()).is_ok_and(|mut files| files.next().is_some());
        if wal || !self.offline.spool_files()?.is_empty() {
            return conflict(format!("the data directory `{dir}` holds data; restore into an empty one"));
        }
        let there: HashMap<String, u64> = target.list("").await?.into_iter().collect();
        let other = there.keys().find(|key| !self.manifest.files.contains_key(*key) && *key != IDENTITY_KEY);
        match other {
            Some(key) => {
                conflict(format!("the store `{}` holds objects (`{key}`, …); restore into an empty one", target.url()))
            }
            None => Ok(there),
        }
    }

    async fn copy(&self, file: &FileMeta, settings: &StoreSettings) -> Result<()> {
        let local = self.source.local_root().map(|root| root.join(&file.key));
        let path = local.clone().unwrap_or_else(|| stage(settings).join(&file.key));
        if local.is_none() {
            fetch(self.source, &file.key, file.bytes, &path).await?;
        }
        let sum = checksum(path.clone()).await?;
        if self.manifest.files.get(&file.key) != Some(&sum) {
            let text =
                format!("file `{}` of the backup is damaged: it has another checksum than when it was made", file.key);
            return Err(Error::internal(text));
        }
        failpoint::hit("restore.before-file");
        let tail = Tail { bytes: file.tail_len, crc: file.tail_crc };
        self.offline.storage.put_file(&file.key, &path, file.bytes, tail).await?;
        if local.is_none() {
            let _ = tokio::fs::remove_file(&path).await;
        }
        Ok(())
    }
}
