//! Deletes files that can no longer be read: those of parts that a commit removed and no snapshot holds (parts dropped
//! by retention only after a grace period), of jobs that died before their commit, and spool files of parts that have
//! been uploaded.
//!
//! It deletes only what the catalog lists, and the catalog forgets a file after its deletion, so a crash between the
//! two only means that the next run deletes it again. Files that the catalog does not list are never touched (`quiver
//! store check` reports them).

use std::sync::Arc;
use std::time::Duration;

use crate::catalog::RemovedPart;
use crate::core::{Backoff, Core};
use crate::error::{Context, ErrorKind, Result, chain};
use crate::failpoint;
use crate::metrics::METRICS;
use crate::object::delete_files;
use crate::part::{PartMeta, Place};

/// How often it looks without being told: snapshots end without telling anybody.
const INTERVAL: Duration = Duration::from_secs(5);
/// Parts that are deleted before the catalog forgets them together.
const BATCH: usize = 32;

/// Runs until the store closes.
pub(crate) async fn run(core: Arc<Core>) {
    let mut backoff = Backoff::new(&core);
    loop {
        let done = tokio::select! {
            // A request that hangs does not hold up the end: what was deleted and not forgotten is deleted again.
            () = core.stop.cancelled(), if core.output.place == Place::Spool => return,
            done = clean(&core) => done,
        };
        match done {
            Ok(_) => {
                METRICS.cleaner_last_success.set_time(core.now());
                core.clean_health.succeeded();
                backoff = Backoff::new(&core);
            }
            Err(e) => {
                METRICS.cleaner_failures.inc();
                core.clean_health.failed(core.settings.timer.now(), chain(&e));
                tracing::warn!(error = %chain(&e), "deletion failed, will retry");
                // A store that refuses deletions alone takes new parts, each of which would bring on another attempt.
                if !backoff.pause(&core.stop).await {
                    return;
                }
                continue;
            }
        }
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = core.wake.clean.notified() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// Deletes what can be deleted now, and gives the number of files.
///
/// # Errors
/// What disk, store or catalog say; the rest is tried again at the next run.
pub(crate) async fn clean(core: &Core) -> Result<usize> {
    let _one = core.cleaning.lock().await;
    // What one of them cannot delete is not in the way of the others.
    let (pending, spooled, removed) = (clean_pending(core).await, clean_spool(core).await, clean_removed(core).await);
    let files = pending? + spooled? + removed?;
    METRICS.cleaner_objects.add(files as u64);
    METRICS.cleaner_queue.set(core.catalog.removed_count().await?);
    if files > 0 {
        core.progress.bump();
    }
    Ok(files)
}

/// Deletes what jobs left that do not run any more.
pub(crate) async fn clean_pending(core: &Core) -> Result<usize> {
    failpoint::hit("cleaner.before-doom");
    let keys = core.catalog.doom_pending(|job| core.runs(job)).await?;
    if keys.is_empty() {
        return Ok(0);
    }
    core.may_commit().await?;
    failpoint::hit("cleaner.after-doom");
    // Nothing of them can be in a remote store: uploads begin after the commit, which takes the keys.
    let (mut gone, mut failed) = (keys, None);
    if delete_local(core, core.output.root.clone(), gone.clone()).await.is_err() {
        // One file that cannot be deleted must not keep all others.
        for key in std::mem::take(&mut gone) {
            match delete_local(core, core.output.root.clone(), vec![key.clone()]).await {
                Ok(()) => gone.push(key),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
    }
    failpoint::hit("cleaner.after-doomed-delete");
    core.catalog.forget_pending(&gone).await?;
    failpoint::hit("cleaner.after-doomed-forget");
    failed.map_or(Ok(gone.len()), Err)
}

async fn clean_spool(core: &Core) -> Result<usize> {
    if core.output.place == Place::Store {
        return Ok(0);
    }
    let (mut files, mut failed) = (0, None);
    let leftovers = core.catalog.spool_leftovers().await?;
    if leftovers.is_empty() {
        return Ok(0);
    }
    let read = core.readable(Some(Place::Spool));
    for part in leftovers.iter().filter(|p| !read.contains(&p.id)) {
        failpoint::hit("spool.before-delete");
        if let Err(e) = delete_local(core, core.spool.root.clone(), keys(part)).await {
            failed = failed.or(Some(e));
            continue;
        }
        failpoint::hit("spool.after-delete");
        core.catalog.spool_cleared(part.id).await?;
        failpoint::hit("spool.after-forget");
        files += part.files.len();
    }
    failed.map_or(Ok(files), Err)
}

async fn clean_removed(core: &Core) -> Result<usize> {
    let removed = core.catalog.removed_parts().await?;
    if removed.is_empty() {
        return Ok(0);
    }
    let read = core.readable(None);
    let (now, grace) = (core.clock.elapsed(), core.settings.drop_grace);
    let waits = |p: &RemovedPart| p.dropped && core.graces.wait(p.meta.id, now, grace);
    let free: Vec<_> = removed.iter().filter(|p| !waits(p) && !read.contains(&p.meta.id)).collect();
    if free.is_empty() {
        return Ok(0);
    }
    core.hold_store().await?;
    let (mut files, mut failed) = (0, None);
    for batch in free.chunks(BATCH) {
        match delete_parts(core, batch).await {
            Ok(n) => files += n,
            Err(e) if e.kind() == ErrorKind::Unavailable => return Err(e),
            // One file that cannot be deleted must not keep all others.
            Err(_) => {
                for part in batch.chunks(1) {
                    match delete_parts(core, part).await {
                        Ok(n) => files += n,
                        Err(e) => failed = failed.or(Some(e)),
                    }
                }
            }
        }
    }
    failed.map_or(Ok(files), Err)
}

async fn delete_parts(core: &Core, batch: &[&RemovedPart]) -> Result<usize> {
    failpoint::hit("cleaner.before-delete");
    let all: Vec<String> = batch.iter().flat_map(|p| keys(&p.meta)).collect();
    let ids: Vec<_> = batch.iter().map(|p| p.meta.id).collect();
    core.caches.forget(&ids);
    for part in batch {
        part.meta.files.iter().for_each(|f| core.forget_file(&f.key, Place::Store));
    }
    let spooled: Vec<String> = batch.iter().filter(|p| p.spooled).flat_map(|p| keys(&p.meta)).collect();
    if !spooled.is_empty() {
        delete_local(core, core.spool.root.clone(), spooled).await?;
    }
    failpoint::hit("cleaner.in-delete");
    core.storage.delete(&all).await?;
    failpoint::hit("cleaner.after-delete");
    core.catalog.forget_parts(&ids).await?;
    core.graces.forget(&ids);
    failpoint::hit("cleaner.after-forget");
    METRICS.cleaner_bytes.add(batch.iter().map(|p| p.meta.bytes).sum());
    Ok(all.len())
}

fn keys(part: &PartMeta) -> Vec<String> {
    part.files.iter().map(|f| f.key.clone()).collect()
}

async fn delete_local(core: &Core, root: std::path::PathBuf, keys: Vec<String>) -> Result<()> {
    for key in &keys {
        core.forget_file(key, core.output.place);
    }
    crate::threads::blocking(move || delete_files(&root, &keys)).await.internal("the deletion stopped")?
}
