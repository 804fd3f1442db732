//! Drops whole days of a table once they are past its retention, by one catalog commit; the cleaner deletes the files
//! (promise D12: nothing early, nothing later than one cycle).

use std::sync::Arc;

use quiver_types::time::DAY_MS;

use crate::catalog::Change;
use crate::core::Core;
use crate::error::{ErrorKind, Result, chain};
use crate::failpoint;
use crate::metrics::METRICS;
use crate::part::{Part, Place};

/// Runs until the store closes.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        if let Err(e) = expire(&core).await {
            tracing::error!(error = %chain(&e), "retention failed, will retry");
        }
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = tokio::time::sleep(core.settings.retention_interval) => {}
        }
    }
}

/// Drops what is due now, and gives the number of parts.
///
/// # Errors
/// [`ErrorKind::Internal`] when the catalog refuses.
pub(crate) async fn expire(core: &Core) -> Result<usize> {
    loop {
        let due = due(core);
        if !due.is_empty() {
            let removed: Vec<_> = due.iter().map(|p| p.meta.id).collect();
            failpoint::hit("retention.before-commit");
            let commit = match core.catalog.commit(&Change { removed: removed.clone(), ..Change::default() }).await {
                Ok(commit) => commit,
                // A compaction replaced one of them meanwhile; its output is due as well, once it can be seen.
                Err(e) if e.kind() == ErrorKind::Conflict => {
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    if core.stop.is_cancelled() {
                        return Ok(0);
                    }
                    continue;
                }
                Err(e) => return Err(e),
            };
            failpoint::hit("retention.after-commit");
            core.shared.dropping();
            core.publish(commit, Vec::new(), &removed, None);
            core.shared.dropping();
            failpoint::hit("retention.after-swap");
            METRICS.retention_parts.add(due.len() as u64);
            METRICS.retention_bytes.add(due.iter().map(|p| p.meta.bytes).sum());
            tracing::info!(commit, parts = due.len(), "dropped days past the retention");
            core.outbox.notify_one();
        }
        METRICS.retention_last_success.set_time(core.now());
        return Ok(due.len());
    }
}

fn due(core: &Core) -> Vec<Arc<Part>> {
    let now = core.now_ms();
    let past = |part: &&Arc<Part>| {
        let Some(retention) = core.settings.retention_of(&part.meta.table) else { return false };
        let keep_from = now.saturating_sub(i64::try_from(retention.as_millis()).unwrap_or(i64::MAX));
        // What the store does not have yet goes there first: its commit object waits for it.
        (i64::from(part.meta.day) + 1) * DAY_MS <= keep_from && part.meta.place == Place::Store
    };
    core.shared.visible().parts.iter().filter(past).map(Arc::clone).collect()
}
