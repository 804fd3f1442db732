//! Brings parts from the spool to a remote store, oldest commit first, and notes in the catalog that they are there.
//!
//! The queue is the catalog's list of spooled parts, so it is bounded by `spool_limit_bytes` on disk (writes get 503
//! above it), survives restarts, and drains by itself when the store is back (promise F3).

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};

use crate::core::{Backoff, Core};
use crate::error::{Result, chain};
use crate::failpoint;
use crate::metrics::METRICS;
use crate::object::Tail;
use crate::part::{FileMeta, PartMeta};

/// Files of one part that go up at a time.
const FILES_AT_A_TIME: usize = 4;

/// Runs until the store closes.
pub(crate) async fn run(core: Arc<Core>) {
    let mut backoff = Backoff::new(&core);
    loop {
        match drain(&core).await {
            Ok(()) => {
                backoff = Backoff::new(&core);
                tokio::select! {
                    () = core.stop.cancelled() => return,
                    () = core.upload.notified() => {}
                }
            }
            Err(e) => {
                METRICS.upload_failures.inc();
                tracing::warn!(error = %chain(&e), spool_bytes = core.spool_bytes(), "upload failed, will retry");
                if !backoff.pause(&core.stop).await {
                    return;
                }
            }
        }
    }
}

/// Uploads all that waits.
async fn drain(core: &Core) -> Result<()> {
    loop {
        let waiting = core.catalog.spooled_parts().await?;
        if waiting.is_empty() {
            return Ok(());
        }
        core.confirm_store().await?;
        for part in waiting {
            if core.stop.is_cancelled() {
                return Ok(());
            }
            upload(core, &part).await?;
        }
    }
}

async fn upload(core: &Core, part: &PartMeta) -> Result<()> {
    let one = |file: &FileMeta| {
        let (file, path) = (file.clone(), core.spool_root.join(&file.key));
        async move {
            failpoint::hit("upload.before-file");
            let tail = Tail { bytes: file.tail_len, crc: file.tail_crc };
            core.storage.put_file(&file.key, &path, file.bytes, tail).await?;
            failpoint::hit("upload.after-file");
            Ok::<_, crate::Error>(())
        }
    };
    let files: Vec<_> = part.files.iter().map(one).collect();
    futures::stream::iter(files).buffer_unordered(FILES_AT_A_TIME).try_collect::<()>().await?;
    failpoint::hit("upload.before-placed");
    let placed = core.catalog.placed(std::slice::from_ref(part)).await?;
    failpoint::hit("upload.after-placed");
    let ids: Vec<_> = placed.iter().map(|p| p.id).collect();
    core.publish(0, placed, &ids, None);
    failpoint::hit("upload.after-swap");
    METRICS.upload_runs.inc();
    METRICS.upload_bytes.add(part.bytes);
    METRICS.upload_last_success.set_time(core.now());
    core.outbox.notify_one();
    core.clean.notify_one();
    Ok(())
}
