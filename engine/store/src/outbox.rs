//! Writes commit objects to the store in order, each once the parts that it adds are uploaded, and deletes those older
//! than the last two full lists. Catches up with the catalog's outbox by itself, however long the store was
//! unreachable.

use std::sync::Arc;

use bytes::Bytes;

use crate::catalog::{CommitObject, NextObject};
use crate::core::{Backoff, Core};
use crate::error::{Error, ErrorKind, Result, chain};
use crate::failpoint;
use crate::layout::commit_key;
use crate::metrics::METRICS;
use crate::part::Place;

/// Runs until the store closes.
pub(crate) async fn run(core: Arc<Core>) {
    let mut backoff = Backoff::new(&core);
    loop {
        let done = tokio::select! {
            // A request that hangs does not hold up the end: the next start goes on from what the catalog says.
            () = core.stop.cancelled(), if core.output.place == Place::Spool => return,
            done = drain(&core) => done,
        };
        match done {
            Ok(()) => {
                core.outbox_health.succeeded();
                backoff = Backoff::new(&core);
                tokio::select! {
                    () = core.stop.cancelled() => return,
                    () = core.wake.outbox.notified() => {}
                }
            }
            Err(e) => {
                core.outbox_health.failed(core.settings.timer.now(), e.to_string());
                tracing::warn!(error = %chain(&e), "commit objects wait, will retry");
                if !backoff.pause(&core.stop).await {
                    return;
                }
            }
        }
    }
}

/// Writes what can be written now.
pub(crate) async fn drain(core: &Core) -> Result<()> {
    loop {
        METRICS.outbox_depth.set(core.catalog.outbox_depth().await?);
        let object = match core.catalog.next_object(&core.damaged_ids()).await? {
            NextObject::Ready(object) => object,
            NextObject::Waiting { commit, parts } => {
                tracing::debug!(commit, parts, "commit object waits for uploads");
                break;
            }
            NextObject::None => break,
        };
        let epoch = core.hold_store().await?;
        failpoint::hit("outbox.before-put");
        let (key, body) = (commit_key(object.commit), Bytes::from(object.body(Some(epoch))));
        let other = core.storage.create(&key, body.clone()).await?.filter(|found| !object.is(found));
        if other.as_deref().is_some_and(|found| CommitObject::is_damaged(&key, found)) {
            // Damaged bytes are no sign of another server, and the epoch, which was checked just now, says that none has
            // taken the store.
            tracing::warn!(%key, "a commit object arrived damaged and is written again");
            core.storage.put(&key, body).await?;
        } else if other.is_some() {
            let text = format!(
                "commit object `{key}` of the store `{}` is another server's, which runs with a copy of this data \
                 directory; this one writes no more",
                core.storage.url()
            );
            return Err(core.lose_store(Error::new(ErrorKind::Conflict, text)));
        }
        failpoint::hit("outbox.after-put");
        core.catalog.object_written(object.commit).await?;
        failpoint::hit("outbox.after-forget");
        METRICS.outbox_written.inc();
        core.progress.bump();
        core.wake.clean.notify_one();
    }
    prune(core).await
}

async fn prune(core: &Core) -> Result<()> {
    let outdated = core.catalog.outdated_objects().await?;
    let Some(last) = outdated.last() else { return Ok(()) };
    core.hold_store().await?;
    failpoint::hit("outbox.before-prune");
    let keys: Vec<_> = outdated.iter().map(|&commit| commit_key(commit)).collect();
    core.storage.delete(&keys).await?;
    failpoint::hit("outbox.after-prune-object");
    core.catalog.forget_commits(last + 1).await?;
    failpoint::hit("outbox.after-prune");
    Ok(())
}
