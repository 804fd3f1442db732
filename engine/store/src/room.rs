//! Free disk, and what background work leaves of it: the reserve (`store.disk_reserve`) is for the WAL, the catalog and
//! the flush, which alone gives room back.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use crate::wal::disk::WalDisk;

/// How often work that is under way looks at the free space, milliseconds.
const INTERVAL_MS: u64 = 200;
/// Of the reserve the flush may use all but this part: its output frees WAL that takes more.
const FLUSH_LEAVES: u64 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Room {
    disk: Arc<dyn WalDisk>,
    /// A folder of the disk.
    dir: PathBuf,
    reserve: u64,
    start: Instant,
    /// When it was last looked at, milliseconds after the start.
    looked: AtomicU64,
}

impl Room {
    /// Watches the disk of a folder, of which `reserve` bytes are kept free.
    pub(crate) fn new(disk: Arc<dyn WalDisk>, dir: PathBuf, reserve: u64) -> Self {
        Self { disk, dir, reserve, start: Instant::now(), looked: AtomicU64::new(0) }
    }

    /// Says whether a flush that writes so many bytes may begin.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when it would leave too little.
    pub(crate) fn for_flush(&self, bytes: u64) -> Result<()> {
        // Never the whole reserve: where writes stop for want of room, the flush must not.
        self.leaves("a flush", bytes.min(self.reserve / 2), self.reserve / FLUSH_LEAVES)
    }

    /// Says whether a compaction that writes so many bytes may begin. `beside`: what others write meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when it would leave too little.
    pub(crate) fn for_compaction(&self, bytes: u64, beside: u64) -> Result<()> {
        self.leaves("a compaction", bytes, self.reserve.saturating_add(beside))
    }

    /// Says whether a compaction may go on; looks now and then.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the reserve is touched.
    pub(crate) fn while_compacting(&self) -> Result<()> {
        let now = self.start.elapsed().as_millis() as u64;
        if now < self.looked.load(Relaxed) + INTERVAL_MS {
            return Ok(());
        }
        self.looked.store(now, Relaxed);
        self.leaves("a compaction", 0, self.reserve)
    }

    fn leaves(&self, what: &str, bytes: u64, kept: u64) -> Result<()> {
        match self.disk.free_bytes(&self.dir) {
            Ok(free) if free < bytes.saturating_add(kept) => {
                let text = format!(
                    "the disk is too full for {what}: {free} bytes are free, {bytes} and {kept} to stay free are needed"
                );
                Err(Error::new(ErrorKind::Unavailable, text))
            }
            Ok(_) => Ok(()),
            // The work itself will tell.
            Err(error) => {
                tracing::debug!(%error, "cannot ask for the free space");
                Ok(())
            }
        }
    }
}
