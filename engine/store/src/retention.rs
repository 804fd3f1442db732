//! Drops whole days of a table: those past its retention, and the oldest of all tables while the store exceeds its size
//! limit. Each day is one catalog commit; the cleaner deletes the files, those dropped by retention after a grace
//! period (promise D12: nothing early, nothing later than one cycle).
//!
//! A clock that jumps must not delete data: retention goes by `clock::TrustedClock`, drops only a few days in one
//! round, and the files of dropped days are kept for hours.

use std::sync::Arc;
use std::time::Duration;

use quiver_types::Millis;
use uuid::Uuid;

use crate::catalog::Change;
use crate::core::{Core, commit};
use crate::error::{Error, ErrorKind, Result, chain};
use crate::failpoint;
use crate::metrics::METRICS;
use crate::part::Part;
use crate::snapshot::Visible;

pub(crate) mod clock;
mod expiry;

use clock::{ClockReading, SentTimes, TrustedClock};

/// How often one round may lose a part to a compaction before it leaves the rest to the next.
const CONFLICTS_MAX: usize = 100;

/// Runs until the store closes.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        match expire(&core).await {
            Ok(_) => core.retention_health.succeeded(),
            Err(e) => {
                core.retention_health.failed(core.settings.timer.now(), chain(&e));
                tracing::error!(error = %chain(&e), "retention failed, will retry");
            }
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
    // One round at a time: the clock's state is also the lock.
    let mut clock = core.trusted_clock.lock().await;
    let time = read(core, &mut clock).await?;
    let mut dropped = drop_all(core, "past the retention", |now| expiry::past(&core.settings, now, time)).await?;
    METRICS.retention_parts.add(dropped.len() as u64);
    METRICS.retention_bytes.add(dropped.iter().map(|p| p.meta.bytes).sum());
    if let Some(limit) = core.settings.size_max {
        let over = drop_all(core, "over the size of the store", |now| expiry::over(limit, now, time)).await?;
        METRICS.size_parts.add(over.len() as u64);
        METRICS.size_bytes.add(over.iter().map(|p| p.meta.bytes).sum());
        // Room is what this is about, and no clock has a say in it.
        core.graces.none(over.iter().map(|p| p.meta.id));
        dropped.extend(over);
        core.wake.clean.notify_one();
    }
    METRICS.retention_last_success.set_time(core.now());
    Ok(dropped.len())
}

/// Gives the time that retention goes by now.
///
/// # Errors
/// [`ErrorKind::Internal`] when the catalog cannot be read.
pub(crate) async fn trusted_time(core: &Core) -> Result<Millis> {
    let mut clock = core.trusted_clock.lock().await;
    read(core, &mut clock).await
}

async fn read(core: &Core, clock: &mut Option<TrustedClock>) -> Result<Millis> {
    let clock = match clock {
        Some(clock) => clock,
        none => none.insert(trusted_clock(core).await?),
    };
    let wall = core.now_ms();
    let now = ClockReading { wall, elapsed: core.clock.elapsed(), newest: core.sent.newest(wall) };
    Ok(clock.read(now, &core.clock_note).await)
}

/// Begins with the time that an earlier process believed, else with that of the store's content.
async fn trusted_clock(core: &Core) -> Result<TrustedClock> {
    let (wall, elapsed, file) = (core.now_ms(), core.clock.elapsed(), clock::file(&core.settings.data_dir));
    let time = match clock::believed(&file) {
        Some(time) => time,
        None => newest(core, wall).max(core.catalog.last_committed_ms().await?).unwrap_or(wall),
    };
    Ok(TrustedClock::new(file, time, elapsed, core.settings.clock_confirm))
}

/// Gives the newest sample of the parts, of those that the clock allows.
fn newest(core: &Core, wall: Millis) -> Option<Millis> {
    let times = core.shared.visible();
    SentTimes::newest_of(times.parts.iter().map(|p| p.meta.max_ts), wall)
}

/// Drops what `choose` finds among the visible parts.
async fn drop_all(core: &Core, why: &str, choose: impl Fn(&Visible) -> Vec<Arc<Part>>) -> Result<Vec<Arc<Part>>> {
    for _ in 0..CONFLICTS_MAX {
        let chosen = choose(&core.shared.visible());
        if chosen.is_empty() || core.stop.is_cancelled() {
            return Ok(Vec::new());
        }
        let removed: Vec<_> = chosen.iter().map(|p| p.meta.id).collect();
        core.may_commit().await?;
        failpoint::hit("retention.before-commit");
        let change = Change { job: Some(Uuid::now_v7()), removed, ..Change::default() };
        let number = match commit(core, &change).await {
            Ok(number) => number,
            // A compaction replaced one of them meanwhile; its output is due as well, once it can be seen.
            Err(e) if e.kind() == ErrorKind::Conflict => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
            Err(e) => return Err(e),
        };
        failpoint::hit("retention.after-commit");
        core.shared.dropping();
        core.publish(number, Vec::new(), &change.removed, None);
        core.shared.dropping();
        failpoint::hit("retention.after-swap");
        let (first, last) = expiry::days(&chosen);
        tracing::info!(commit = number, parts = chosen.len(), first, last, "dropped days {why}");
        core.wake.outbox.notify_one();
        return Ok(chosen);
    }
    Err(Error::new(ErrorKind::Conflict, "compactions replace again and again what is due"))
}
