//! Uploads parts from the spool to a remote store, oldest commit first, and notes in the catalog that they are there.
//!
//! The queue is the catalog's list of spooled parts, so it survives restarts and is bounded by `spool_limit_bytes` on
//! disk (above it writes get 503). It drains by itself when the store is reachable again (promise F3).

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};

use crate::core::{Backoff, Core, Damage};
use crate::error::{Context, Error, ErrorKind, Result, chain};
use crate::failpoint;
use crate::metrics::METRICS;
use crate::object::Tail;
use crate::part::{FileMeta, PartMeta};

/// Files of one part that go up at a time.
const FILES_AT_A_TIME: usize = 4;
/// How long to wait before a damaged part is checked again: its files may have been restored meanwhile.
const LOOK_AGAIN: Duration = Duration::from_mins(10);

/// Runs until the store closes.
pub(crate) async fn run(core: Arc<Core>) {
    let mut backoff = Backoff::new(&core);
    loop {
        let done = tokio::select! {
            // A request that hangs does not hold up the end: the next start goes on from what the catalog says.
            () = core.stop.cancelled() => return,
            done = drain(&core) => done,
        };
        match done {
            Ok(()) => {
                core.upload_health.succeeded();
                backoff = Backoff::new(&core);
                let rests = !core.spool.damaged.lock().is_empty();
                tokio::select! {
                    () = core.stop.cancelled() => return,
                    () = core.wake.upload.notified() => {}
                    () = tokio::time::sleep(LOOK_AGAIN), if rests => {}
                }
            }
            Err(e) => {
                core.upload_health.failed(core.settings.timer.now(), e.to_string());
                METRICS.upload_failures.inc();
                tracing::warn!(error = %chain(&e), spool_bytes = core.spool_bytes(), "upload failed, will retry");
                if !backoff.pause(&core.stop).await {
                    return;
                }
            }
        }
    }
}

/// Uploads all that waits. A part that does not go up, though the store answers, is not in the way of the others.
async fn drain(core: &Core) -> Result<()> {
    loop {
        let mut waiting = core.catalog.spooled_parts().await?;
        {
            let damaged = core.spool.damaged.lock();
            waiting.retain(|p| damaged.get(&p.id).is_none_or(|d| d.looked.elapsed() >= LOOK_AGAIN));
        }
        if waiting.is_empty() {
            return Ok(());
        }
        core.hold_store().await?;
        let mut failed = None;
        for part in waiting {
            if core.stop.is_cancelled() {
                return Ok(());
            }
            let done = match sound(core, &part).await {
                Ok(()) => upload(core, &part).await,
                Err(e) if e.kind() == ErrorKind::Unavailable => Err(e),
                Err(e) => {
                    set_aside(core, &part, &e);
                    Ok(())
                }
            };
            match done {
                Err(e) if e.kind() == ErrorKind::Unavailable => return Err(e),
                done => failed = failed.or(done.err()),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
}

/// Reads the files of a part: after the upload the copy in the store is the only one.
async fn sound(core: &Core, part: &PartMeta) -> Result<()> {
    let (part, runtime) = (core.part(part.clone()), tokio::runtime::Handle::current());
    let read = move || runtime.block_on(part.verify());
    tokio::task::spawn_blocking(read).await.internal("the check of a part stopped")?
}

/// Leaves a damaged part where it is: others go up, and their commit objects do not wait for it.
fn set_aside(core: &Core, part: &PartMeta, error: &Error) {
    let known = core.spool.damaged.lock().insert(part.id, Damage { looked: Instant::now() }).is_some();
    if !known {
        let (table, day) = (&part.table, part.day);
        tracing::error!(
            part = %part.id, table, day, error = %chain(error),
            "a part in the spool is damaged: it is not uploaded, queries that need it fail; see `quiver store check`"
        );
    }
    core.measure();
    core.wake.outbox.notify_one();
    core.progress.bump();
}

async fn upload(core: &Core, part: &PartMeta) -> Result<()> {
    let one = |file: &FileMeta| {
        let (file, path) = (file.clone(), core.spool.root.join(&file.key));
        async move {
            failpoint::hit("upload.before-file");
            let tail = Tail { bytes: file.tail_len, crc: file.tail_crc };
            core.storage.put_file(&file.key, &path, file.bytes, tail).await?;
            failpoint::hit("upload.after-file");
            Ok::<_, Error>(())
        }
    };
    let files: Vec<_> = part.files.iter().map(one).collect();
    futures::stream::iter(files).buffer_unordered(FILES_AT_A_TIME).try_collect::<()>().await?;
    failpoint::hit("upload.before-placed");
    let placed = core.catalog.placed(std::slice::from_ref(part)).await?;
    failpoint::hit("upload.after-placed");
    let ids: Vec<_> = placed.iter().map(|p| p.id).collect();
    core.spool.damaged.lock().remove(&part.id);
    core.publish(0, placed, &ids, None);
    failpoint::hit("upload.after-swap");
    METRICS.upload_runs.inc();
    METRICS.upload_bytes.add(part.bytes);
    METRICS.upload_last_success.set_time(core.now());
    core.wake.outbox.notify_one();
    core.wake.clean.notify_one();
    Ok(())
}
