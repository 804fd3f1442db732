//! Operations on the whole store: flush, compaction, retention, deletion, closing.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::future::BoxFuture;

use super::Store;
use crate::compact::Extent;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::memtable::GenerationId;
use crate::{cleaner, failpoint, retention};

/// Callers that wait for background work give up if nothing at all progressed for this long.
pub(super) const STALL: Duration = Duration::from_mins(2);

impl Store {
    /// Flushes everything that was written before the call, and waits until it is committed and both the parts and
    /// their commit objects are in the object store.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if there is no progress (the object store is down), or if a generation could not be
    /// flushed and was set aside.
    pub fn flush_all(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let aside = self.flush_sealed().await?;
            self.wait_for_store().await?;
            aside.map_or(Ok(()), |text| Err(Error::new(ErrorKind::Unavailable, text)))
        })
    }

    /// Flushes what can be flushed; returns why a generation was set aside, if any was.
    pub(crate) async fn flush_sealed(&self) -> Result<Option<String>> {
        self.write_path.seal().await?;
        let sealed: HashSet<GenerationId> = {
            let visible = self.core.shared.visible();
            visible.generations.iter().filter(|g| g.sealed()).map(|g| g.id()).collect()
        };
        let flushed = || async {
            self.core.still_master()?;
            self.core.still_open()?;
            let visible = self.core.shared.visible();
            let waits = |id: GenerationId| sealed.contains(&id) && !self.flushing.is_aside(id);
            Ok(!visible.generations.iter().any(|g| waits(g.id())) && !self.flushing.is_one_of(&sealed))
        };
        let waited = self.core.progress.wait("the flush", STALL, flushed).await;
        waited.map_err(|e| with_reason(e, self.core.flush_health.trouble()))?;
        Ok(self.flushing.set_aside_of(&sealed))
    }

    async fn wait_for_store(&self) -> Result<()> {
        let core = &self.core;
        let commit = core.catalog.last_commit().await?;
        core.wake.upload.notify_one();
        core.wake.outbox.notify_one();
        let told = || async {
            core.still_master()?;
            core.still_open()?;
            Ok(core.catalog.first_unwritten().await?.is_none_or(|c| c > commit))
        };
        core.progress.wait("the upload to the object store", STALL, told).await
    }

    /// Compacts what is due. Waits until the result is in the object store, and deletes what it replaced (unless a query
    /// still reads it).
    ///
    /// # Errors
    /// As [`Store::flush_all`]; [`ErrorKind::Cancelled`] if the store is closing.
    pub async fn compact_due(&self) -> Result<()> {
        self.compact(Extent::Due).await
    }

    /// Compacts everything of every day to level 2, even open windows, and waits as [`Store::compact_due`] does.
    ///
    /// # Errors
    /// As [`Store::compact_due`].
    pub fn compact_all(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.compact(Extent::All))
    }

    async fn compact(&self, extent: Extent) -> Result<()> {
        self.flush_sealed().await?;
        self.wait_for_store().await?;
        let compacted = self.compactor.request(extent).await;
        self.core.still_master().and(compacted)?;
        self.wait_for_store().await?;
        cleaner::clean(&self.core).await?;
        self.core.catalog.checkpoint().await
    }

    /// Drops what is past its retention now, without waiting for the next round; returns the number of parts.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the catalog refuses.
    pub async fn expire(&self) -> Result<usize> {
        retention::expire(&self.core).await
    }

    /// Deletes the files that may be deleted now, without waiting for the next round; returns their number.
    ///
    /// # Errors
    /// Errors of the disk, the object store or the catalog.
    pub async fn clean(&self) -> Result<usize> {
        cleaner::clean(&self.core).await
    }

    /// Closes the store: refuses writes, flushes what it can within the given time (the rest stays in the WAL and is
    /// replayed at the next start), stops the background jobs, and releases the directory.
    pub fn close(&self, within: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.closing.swap(true, Relaxed) {
                return;
            }
            let flushed = async {
                self.core.still_master()?;
                self.flush_sealed().await
            };
            match tokio::time::timeout(within, flushed).await {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(aside))) => tracing::warn!(aside, "not all was flushed, the rest stays in the WAL"),
                Ok(Err(e)) => tracing::warn!(error = %chain(&e), "not all was flushed, the rest stays in the WAL"),
                Err(_) => tracing::info!("not all was flushed in time, the rest stays in the WAL"),
            }
            failpoint::hit("close.after-seal");
            self.core.stop.cancel();
            // Those who wait for background work see that there is none any more.
            self.core.progress.bump();
            self.write_path.shutdown().await;
            let tasks = std::mem::take(&mut *self.tasks.lock());
            for (name, task) in tasks {
                if let Err(e) = task.await {
                    tracing::error!(name, error = %e, "a background job ended badly");
                }
            }
            self.compactor.join().await;
            self.core.catalog.close().await;
            tracing::info!("store closed");
        })
    }
}

/// Says in the error of work that does not get on what is known to hold it up.
fn with_reason(error: Error, why: Option<String>) -> Error {
    match why {
        Some(why) if error.kind() == ErrorKind::Unavailable => Error { message: why, ..error },
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_work_up_is_told_instead_of_the_log() {
        let told =
            |kind, why: Option<&str>| with_reason(Error::new(kind, "no progress"), why.map(str::to_owned)).message;
        assert_eq!(told(ErrorKind::Unavailable, Some("the disk is full")), "the disk is full");
        assert_eq!(told(ErrorKind::Unavailable, None), "no progress");
        assert_eq!(told(ErrorKind::Conflict, Some("the disk is full")), "no progress");
    }
}
