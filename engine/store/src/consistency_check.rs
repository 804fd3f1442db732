//! `quiver store check`: checks that object store, spool and catalog agree, and that every byte of every live part is
//! what was written. Changes nothing; files that the catalog does not know are only reported.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use quiver_types::{Clock, SystemClock};

use crate::catalog::CommitObject;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::identity;
use crate::layout::{IDENTITY_KEY, commit_key, parse_epoch_key};
use crate::object::Storage;
use crate::offline::Offline;
use crate::part::{Part, PartMeta, Place};
use crate::retention::clock::{LEAP_MAX, believed, file, words};
use crate::settings::StoreSettings;
use crate::steps::Steps;

/// Parts that are read at a time; each takes 4 MiB.
const PARTS_AT_A_TIME: usize = 4;

/// What a check found.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// Number of live parts.
    pub parts: usize,
    /// Number of the files of live parts.
    pub files: usize,
    /// Bytes of the files of live parts.
    pub bytes: u64,
    /// Keys that no catalog entry refers to; those in the spool begin with `parts/`.
    pub unknown: Vec<String>,
    /// Keys that the catalog names and that are not there, or have another size.
    pub missing: Vec<String>,
    /// Parts that cannot be read, with the reason.
    pub damaged: Vec<String>,
    /// What an operator should know beside that.
    pub notes: Vec<String>,
}

impl CheckReport {
    /// Says whether nothing is missing and nothing damaged.
    pub fn sound(&self) -> bool {
        self.missing.is_empty() && self.damaged.is_empty()
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parts, files, bytes, unknown, missing, damaged, notes } = self;
        writeln!(f, "checked {parts} parts: {files} files, {bytes} bytes")?;
        list(f, "missing, or not as the catalog says", missing)?;
        list(f, "damaged", damaged)?;
        list(
            f,
            "named by nobody (no harm; `quiver catalog rebuild` takes back what the catalog has lost, the rest may be deleted)",
            unknown,
        )?;
        notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))?;
        f.write_str(if self.sound() { "store and catalog agree" } else { "store and catalog do not agree" })
    }
}

/// Writes a headed list, or nothing.
pub(crate) fn list(f: &mut fmt::Formatter<'_>, head: &str, items: &[String]) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    writeln!(f, "{} {head}:", items.len())?;
    items.iter().try_for_each(|item| writeln!(f, "  {item}"))
}

/// Checks. The server must not run.
///
/// # Errors
/// [`ErrorKind::Conflict`] when the server runs or store and catalog do not belong together,
/// [`ErrorKind::Unavailable`] when the store does not answer. What is missing or damaged is in the report.
pub async fn check(settings: StoreSettings) -> Result<CheckReport> {
    check_with(settings, Arc::new(SystemClock), None).await
}

/// The same with a given clock and store.
///
/// # Errors
/// As [`check`].
pub fn check_with(
    settings: StoreSettings,
    clock: Arc<dyn Clock>,
    storage: Option<Storage>,
) -> BoxFuture<'static, Result<CheckReport>> {
    Box::pin(async move {
        let offline = Offline::open(&settings, Arc::clone(&clock), storage).await?;
        let report = run(&offline).await;
        offline.catalog.close().await;
        let mut report = report?;
        let (now, believed) = (clock.now_ms(), believed(&file(&settings.data_dir)));
        report.notes.extend(believed.filter(|then| now.abs_diff(*then) > LEAP_MAX as u64).map(|then| words(now, then)));
        Ok(report)
    })
}

async fn run(offline: &Offline) -> Result<CheckReport> {
    let Some(installation) = offline.catalog.installation().await? else {
        return Err(Error::new(ErrorKind::NotFound, "the catalog is empty; `quiver catalog rebuild` makes it anew"));
    };
    identity::confirm(&offline.catalog, &offline.storage, installation).await?;
    let mut objects: BTreeMap<String, u64> = offline.storage.list("").await?.into_iter().collect();
    let mut spool = offline.spool_files()?;
    let mut report = CheckReport::default();
    let (_, live) = offline.catalog.live_parts().await?;
    let whole = check_files(&live, &mut objects, &mut spool, &mut report);
    for key in offline.catalog.doomed_keys().await? {
        objects.remove(&key);
        spool.remove(&key);
    }
    objects.remove(IDENTITY_KEY);
    objects.retain(|key, _| parse_epoch_key(key).is_none());
    check_commits(offline, &mut objects, &mut report).await?;
    let whole_parts = live.into_iter().zip(whole).filter(|(_, is_whole)| *is_whole).map(|(meta, _)| meta).collect();
    verify_parts(offline, whole_parts, &mut report).await?;
    report.unknown = objects.into_keys().chain(spool.into_keys().map(|k| format!("parts/{k}"))).collect();
    Ok(report)
}

/// Checks that the files of live parts are there in their sizes, and takes them out of what was listed. Says of each part
/// whether all of them are: of others nothing can be read.
fn check_files(
    live: &[PartMeta],
    objects: &mut BTreeMap<String, u64>,
    spool: &mut BTreeMap<String, u64>,
    report: &mut CheckReport,
) -> Vec<bool> {
    let mut whole = Vec::with_capacity(live.len());
    for part in live {
        report.parts += 1;
        let before = report.missing.len();
        for file in &part.files {
            report.files += 1;
            report.bytes += file.bytes;
            let (found, name) = match part.place {
                Place::Store => (objects.remove(&file.key), file.key.clone()),
                Place::Spool => (spool.remove(&file.key), format!("parts/{}", file.key)),
            };
            // A part may still lie in the spool after its upload, or be half uploaded.
            spool.remove(&file.key);
            objects.remove(&file.key);
            match found {
                Some(bytes) if bytes == file.bytes => {}
                Some(bytes) => report.missing.push(format!("{name} ({bytes} bytes instead of {})", file.bytes)),
                None => report.missing.push(name),
            }
        }
        whole.push(report.missing.len() == before);
    }
    whole
}

/// Reads the commit objects, and takes them out of what was listed.
async fn check_commits(offline: &Offline, objects: &mut BTreeMap<String, u64>, report: &mut CheckReport) -> Result<()> {
    // A rebuild needs them, and that is no time to learn that one of them cannot be read.
    let mut commits = offline.commit_objects(offline.catalog.written_commits().await?);
    while let Some((commit, body)) = commits.try_next().await? {
        let key = commit_key(commit);
        objects.remove(&key);
        match body {
            None => report.missing.push(key),
            Some(body) => report.damaged.extend(CommitObject::parse(&key, &body).err().map(|e| chain(&e))),
        }
    }
    // The object of the next commit may have arrived without our having noted it.
    for commit in offline.catalog.unwritten_commits().await? {
        objects.remove(&commit_key(commit));
    }
    Ok(())
}

/// Checks every byte of parts whose files are all there.
async fn verify_parts(offline: &Offline, parts: Vec<PartMeta>, report: &mut CheckReport) -> Result<()> {
    let verify = |meta: PartMeta| {
        let part = Part::new(meta, Arc::clone(&offline.io), Arc::clone(&offline.caches));
        async move { (part.meta.id, part.meta.bytes, part.verify().await) }
    };
    let mut steps = Steps::new("checked", parts.iter().map(|p| p.bytes).sum());
    let verified: Vec<_> = parts.into_iter().map(verify).collect();
    let mut verified = futures::stream::iter(verified).buffered(PARTS_AT_A_TIME);
    while let Some((id, bytes, outcome)) = verified.next().await {
        steps.advance(bytes);
        match outcome {
            Ok(()) => {}
            // Of the store, not of the part: not to be taken for damage.
            Err(e) if e.kind() == ErrorKind::Unavailable => return Err(e),
            Err(e) => report.damaged.push(format!("{id}: {}", chain(&e))),
        }
    }
    Ok(())
}
