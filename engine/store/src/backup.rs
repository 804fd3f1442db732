//! Backups: all parts of one snapshot, copied to a separate folder or bucket, with a manifest that lists them.
//!
//! Parts are immutable and have unique ids, so backups in the same place share them: a later backup copies only new
//! parts. A backup exists once its manifest does; files copied before a crash are reused by the next one. Each part is
//! checked against its checksums before it is copied. For its use see `docs/backup.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::{BoxFuture, LocalBoxFuture};
use quiver_types::Clock;

use crate::cache::Caches;
use crate::core::Core;
use crate::error::{Context, Error, ErrorKind, Result, chain};
use crate::failpoint;
use crate::io::{LocalIo, PartIo};
use crate::layout::{IDENTITY_KEY, STORE_FORMAT, WAL};
use crate::metrics::METRICS;
use crate::object::{Storage, Tail};
use crate::part::{FileMeta, Part, PartMeta, Place};
use crate::retention;
use crate::settings::StoreSettings;
use crate::steps::Steps;
use crate::store::Store;

mod attachments;
mod copy;
mod keys;
mod manifest;
mod prune;
mod report;
mod restore;
#[cfg(test)]
mod testing;

pub use attachments::{Attach, Detach};
pub use manifest::{AttachedFile, Manifest};
pub use report::BackupReport;
pub use restore::{RestoreReport, list, restore, restore_with};

use attachments::attach;
use copy::{checksum, fetch};
use keys::manifests;
use prune::prune;

/// Memory for footers while parts are checked.
const CACHE_BYTES: u64 = 16 << 20;
/// Folder of the data directory for files on their way. It is deleted after each use, so it must not have a name that
/// somebody gives to a place for backups.
const STAGE: &str = ".backup-stage";

/// Where a backup goes.
#[derive(Debug, Clone)]
pub struct BackupRequest {
    /// A folder, or a URL of the forms that `store.url` takes.
    pub to: String,
    /// How many backups stay there, this one included; none: all.
    pub keep: Option<usize>,
}

impl Store {
    /// Makes a backup while writes go on. It holds everything that was acknowledged before the call, and each later
    /// write as a whole or not at all.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when the place cannot be one of a backup, [`ErrorKind::Conflict`] when it is that of
    /// another installation or a backup runs, [`ErrorKind::Unavailable`] when a store does not answer.
    pub async fn backup(&self, request: &BackupRequest) -> Result<BackupReport> {
        self.backup_with(request, None).await
    }

    /// The same with a file of somebody else, written as soon as it is known which parts are copied.
    ///
    /// # Errors
    /// Those of [`Self::backup`], and those of writing the attached file.
    pub fn backup_with<'a>(
        &'a self,
        request: &'a BackupRequest,
        attached: Option<&'a dyn Attach>,
    ) -> BoxFuture<'a, Result<BackupReport>> {
        Box::pin(async move {
            let core = self.core();
            let _one =
                core.backing_up.try_lock().map_err(|_| Error::new(ErrorKind::Conflict, "a backup runs already"))?;
            if request.keep == Some(0) {
                return Err(Error::invalid("a backup must keep at least itself"));
            }
            let to = Storage::at(&request.to, &core.settings)?;
            if inside(&to, &core.storage) || inside(&core.storage, &to) {
                let text = format!(
                    "`{}` and the store `{}` lie in one another; name another place",
                    to.url(),
                    core.storage.url()
                );
                return Err(Error::invalid(text));
            }
            if let Some(ours) = folder_of_ours(&to, core) {
                let text = format!(
                    "`{}` and `{}`, a folder of the server, lie in one another; name another place",
                    to.url(),
                    ours.display()
                );
                return Err(Error::invalid(text));
            }
            // What is not in parts yet would be missing: the WAL is no part of a backup.
            let aside = self.flush_sealed().await?;
            let (commit, parts) = {
                let visible = core.shared.visible();
                (visible.commit, Arc::clone(&visible.parts))
            };
            failpoint::hit("backup.after-snapshot");
            let stage = Stage(stage(&core.settings));
            let backup = Backup { core, to: &to, stage: &stage.0, attached };
            let mut report = backup.run(commit, &parts, request.keep).await?;
            drop(stage);
            report.damaged.extend(aside);
            METRICS.backup_last_success.set_time(core.now());
            METRICS.backup_bytes.add(report.copied_bytes);
            tracing::info!(to = to.url(), "{report}");
            Ok(report)
        })
    }
}

/// A folder that goes with the backup, also with one whose client has gone.
struct Stage(PathBuf);

impl Drop for Stage {
    fn drop(&mut self) {
        // Often there is none.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One run of a backup: what is copied from where to where.
struct Backup<'a> {
    core: &'a Core,
    to: &'a Storage,
    /// Folder for files on their way from one remote store to another.
    stage: &'a Path,
    attached: Option<&'a dyn Attach>,
}

impl Backup<'_> {
    async fn run(&self, commit: u64, parts: &[Arc<Part>], keep: Option<usize>) -> Result<BackupReport> {
        let there = objects(self.to).await?;
        if there.contains_key(IDENTITY_KEY) {
            let text =
                format!("`{}` is a store, not a place for backups; name another folder or prefix", self.to.url());
            return Err(Error::invalid(text));
        }
        let mut names = manifests(&there);
        let newest = match names.last() {
            Some(name) => Some(Manifest::read(self.to, name).await.map_err(|e| what_to_do(e, name))?),
            None => None,
        };
        if let Some(other) = newest.as_ref().filter(|m| m.installation != self.core.installation) {
            let text = format!("`{}` holds backups of another installation (`{}`)", self.to.url(), other.installation);
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        let known = newest.map(|m| m.files).unwrap_or_default();
        let made_ms = self.core.now_ms();
        let mut report = BackupReport {
            name: keys::next_name(commit, made_ms, names.last().map(String::as_str)),
            commit,
            ..BackupReport::default()
        };
        let mut manifest = Manifest {
            format: STORE_FORMAT,
            installation: self.core.installation,
            commit,
            made_ms,
            trusted_ms: Some(retention::trusted_time(self.core).await?),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            parts: Vec::with_capacity(parts.len()),
            lacking: Some(BTreeSet::new()),
            files: BTreeMap::new(),
            attached: BTreeMap::new(),
        };
        if let Some(by) = self.attached {
            attach(by, (self.to, self.stage), &mut report, &mut manifest).await?;
        }
        let mut steps = Steps::new("backed up", parts.iter().map(|p| p.meta.bytes).sum());
        for part in parts {
            self.core.still_open()?;
            let has =
                |file: &FileMeta| known.get(&file.key).filter(|_| there.get(&file.key) == Some(&file.bytes)).copied();
            let old: Option<Vec<(String, u32)>> =
                part.meta.files.iter().map(|f| Some((f.key.clone(), has(f)?))).collect();
            self.add(&part.meta, old, &mut manifest, &mut report).await?;
            steps.advance(part.meta.bytes);
        }
        failpoint::hit("backup.before-manifest");
        manifest.write(self.to, &report.name).await?;
        failpoint::hit("backup.after-manifest");
        names.insert(report.name.clone());
        if let Some(keep) = keep {
            let pruned = prune(self.to, &names, keep, &manifest).await;
            report.deleted_files = pruned.map_err(|mut e| {
                let name = &report.name;
                e.message = format!("backup `{name}` is complete, but older ones were not deleted: {}", e.message);
                e
            })?;
        }
        Ok(report)
    }

    /// Adds a part to a backup. Its files are copied unless an earlier backup has all of them (`old`, with their
    /// checksums). A part that cannot be read is noted and left out.
    async fn add(
        &self,
        part: &PartMeta,
        old: Option<Vec<(String, u32)>>,
        manifest: &mut Manifest,
        report: &mut BackupReport,
    ) -> Result<()> {
        match old {
            Some(old) => manifest.files.extend(old),
            None => match self.copy(part).await {
                Ok(sums) => {
                    report.copied_files += sums.len();
                    report.copied_bytes += part.bytes;
                    manifest.files.extend(sums);
                }
                // If a file is damaged or missing, the part is left out; the backup itself goes on.
                Err(e) if matches!(e.kind(), ErrorKind::Damaged | ErrorKind::Internal | ErrorKind::NotFound) => {
                    tracing::error!(part = %part.id, error = %chain(&e), "a part cannot be backed up");
                    report.damaged.push(format!("{}: {}", part.id, chain(&e)));
                    manifest.lacking.get_or_insert_default().insert(part.id);
                    return Ok(());
                }
                Err(e) => return Err(e),
            },
        }
        report.parts += 1;
        report.bytes += part.bytes;
        manifest.parts.push(PartMeta { place: Place::Store, ..part.clone() });
        Ok(())
    }

    /// Copies the files of a part, and gives their checksums.
    async fn copy(&self, part: &PartMeta) -> Result<Vec<(String, u32)>> {
        let local = match part.place {
            Place::Spool => Some(self.core.spool.root.as_path()),
            Place::Store => self.core.storage.local_root(),
        };
        let root = local.unwrap_or(self.stage).to_owned();
        if local.is_none() {
            for file in &part.files {
                let fetched = fetch(&self.core.storage, &file.key, file.bytes, &root.join(&file.key)).await;
                // Of our disk or the store, not of the part: not to be taken for damage.
                fetched.map_err(|e| match e.kind() {
                    ErrorKind::NotFound | ErrorKind::Damaged | ErrorKind::Unavailable => e,
                    _ => Error::new(ErrorKind::Unavailable, "a part cannot be fetched").with_source(e),
                })?;
            }
        }
        let io: Arc<dyn PartIo> = Arc::new(LocalIo::new(&root, &root));
        Part::new(part.clone(), io, Arc::new(Caches::local(CACHE_BYTES))).verify().await?;
        let mut sums = Vec::with_capacity(part.files.len());
        for file in &part.files {
            failpoint::hit("backup.before-file");
            let path = root.join(&file.key);
            let sum = checksum(path.clone()).await?;
            let tail = Tail { bytes: file.tail_len, crc: file.tail_crc };
            let sent = self.to.put_file(&file.key, &path, file.bytes, tail).await;
            // Of the other store, not of the part: not to be taken for damage.
            sent.map_err(|e| Error::new(ErrorKind::Unavailable, "the backup cannot be written").with_source(e))?;
            sums.push((file.key.clone(), sum));
            if local.is_none() {
                let _ = tokio::fs::remove_file(&path).await;
            }
        }
        Ok(sums)
    }
}

/// Makes a backup of a store that does not run: opens it, which replays its WAL, and closes it again.
///
/// # Errors
/// As [`Store::open`] and [`Store::backup_with`].
pub fn backup<'a>(
    settings: StoreSettings,
    clock: Arc<dyn Clock>,
    request: &'a BackupRequest,
    attached: Option<&'a dyn Attach>,
) -> LocalBoxFuture<'a, Result<BackupReport>> {
    Box::pin(async move {
        let mut settings = settings;
        // It changes nothing beyond what a start does; least of all does it drop what is about to be saved.
        settings.compaction.enabled = false;
        (settings.retention, settings.size_max) = (None, None);
        settings.table_retention.clear();
        let store = Store::open(settings, clock).await?;
        let report = store.backup_with(request, attached).await;
        store.close(std::time::Duration::from_mins(1)).await;
        report
    })
}

/// Lists what a place for backups holds. Errors name it: they speak of "the store" otherwise, which works.
async fn objects(place: &Storage) -> Result<BTreeMap<String, u64>> {
    let of_place = |e: Error| Error { message: format!("`{}`: {}", place.url(), e.message), ..e };
    Ok(place.list("").await.map_err(of_place)?.into_iter().collect())
}

/// Says what to do about a manifest that cannot be read: without it nobody knows whose backups these are.
fn what_to_do(mut error: Error, name: &str) -> Error {
    if error.kind() == ErrorKind::Internal {
        let key = keys::of_manifest(name);
        error.message = format!("{}; move `{key}` away: then the next backup is made without it", error.message);
    }
    error
}

/// Says whether one place lies in another, or is it.
fn inside(inner: &Storage, outer: &Storage) -> bool {
    let rest = inner.url().trim_end_matches('/').strip_prefix(outer.url().trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Gives the folder for files on their way.
fn stage(settings: &StoreSettings) -> PathBuf {
    settings.data_dir.join(STAGE)
}

/// Gives the folder of the server that lies in a place for backups, or the other way round. A backup deletes files of
/// its place that no manifest names, and the server deletes files of its folders: neither must do so to the other.
fn folder_of_ours(to: &Storage, core: &Core) -> Option<PathBuf> {
    let to = real(to.local_root()?);
    let ours = [core.spool.root.clone(), core.settings.data_dir.join(WAL), stage(&core.settings)];
    let store = core.storage.local_root().map(Path::to_owned);
    let mut all = ours.into_iter().chain(store).map(|folder| real(&folder));
    all.find(|folder| to.starts_with(folder) || folder.starts_with(&to))
}

/// Follows links and `..` in a path, as far as it is there.
fn real(path: &Path) -> PathBuf {
    let of_above = |above: &Path| Some(std::fs::canonicalize(above).ok()?.join(path.strip_prefix(above).ok()?));
    path.ancestors().find_map(of_above).unwrap_or_else(|| path.to_owned())
}

/// Turns a local path into an absolute one.
fn absolute(path: &str) -> Result<PathBuf> {
    std::path::absolute(path).internal(format!("`{path}` is no path"))
}

impl Storage {
    /// Opens a place by a URL of the forms that `store.url` takes, or by the path of a folder.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for URLs of no known form.
    pub fn at(place: &str, settings: &StoreSettings) -> Result<Self> {
        if place.is_empty() {
            return Err(Error::invalid("name a folder or URL for the backup"));
        }
        if !place.contains("://") {
            return Ok(Self::local(&absolute(place)?, settings));
        }
        let settings = StoreSettings { store_url: Some(place.to_owned()), ..settings.clone() };
        Self::open(&settings, Path::new(""))
    }
}
