//! Free disk space, and how much of it background work must leave: the reserve (`store.disk_reserve`) is for the WAL,
//! the catalog and the flush, which is the only job that frees WAL space.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use crate::wal::disk::WalDisk;

/// How often a running compaction checks the free space, in milliseconds.
const INTERVAL_MS: u64 = 200;
/// The flush may use the reserve down to this fraction (1/n): it frees more space in the WAL than it takes.
const FLUSH_LEAVES: u64 = 4;

/// Watches the free space of a disk.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    disk: Arc<dyn WalDisk>,
    /// A folder on the disk.
    dir: PathBuf,
    reserve: u64,
    start: Instant,
    /// When the free space was last checked, in milliseconds after the start.
    looked: AtomicU64,
}

impl DiskSpace {
    /// Watches the disk that holds a folder; background work leaves `reserve` bytes of it free.
    pub(crate) fn new(disk: Arc<dyn WalDisk>, dir: PathBuf, reserve: u64) -> Self {
        Self { disk, dir, reserve, start: Instant::now(), looked: AtomicU64::new(0) }
    }

    /// Says whether a flush that writes this many bytes may begin.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when it would leave too little.
    pub(crate) fn for_flush(&self, bytes: u64) -> Result<()> {
        // Never the whole reserve: where writes stop for want of room, the flush must not.
        self.leaves("a flush", bytes.min(self.reserve / 2), self.reserve / FLUSH_LEAVES)
    }

    /// Says whether a compaction that writes this many bytes may begin, while others write `beside` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when it would leave too little.
    pub(crate) fn for_compaction(&self, bytes: u64, beside: u64) -> Result<()> {
        self.leaves("a compaction", bytes, self.reserve.saturating_add(beside))
    }

    /// Says whether a running compaction may go on; checks the disk only now and then.
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::wal::disk::WalFile;

    /// A disk that reports its free space only; `None`: not even that.
    #[derive(Debug, Default)]
    struct Free {
        bytes: Option<u64>,
        asked: AtomicU64,
    }

    fn never<T>() -> io::Result<T> {
        Err(io::Error::other("nobody asks for this"))
    }

    impl WalDisk for Free {
        fn create(&self, _: &Path) -> io::Result<Box<dyn WalFile>> {
            never()
        }

        fn sync_dir(&self, _: &Path) -> io::Result<()> {
            never()
        }

        fn list(&self, _: &Path) -> io::Result<Vec<PathBuf>> {
            never()
        }

        fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
            never()
        }

        fn read_head(&self, _: &Path, _: usize) -> io::Result<Vec<u8>> {
            never()
        }

        fn truncate(&self, _: &Path, _: u64) -> io::Result<()> {
            never()
        }

        fn remove(&self, _: &Path) -> io::Result<()> {
            never()
        }

        fn sync(&self, _: &Path) -> io::Result<()> {
            never()
        }

        fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
            never()
        }

        fn free_bytes(&self, _: &Path) -> io::Result<u64> {
            self.asked.fetch_add(1, Relaxed);
            self.bytes.map_or_else(never, Ok)
        }
    }

    fn room(free: Option<u64>, reserve: u64) -> (Arc<Free>, DiskSpace) {
        let disk = Arc::new(Free { bytes: free, ..Free::default() });
        (Arc::clone(&disk), DiskSpace::new(disk, PathBuf::from("/nowhere"), reserve))
    }

    #[test]
    fn a_flush_may_use_the_reserve_but_a_part() {
        let check = |free: u64, bytes: u64, may: bool| {
            let (_, room) = room(Some(free), 1000);
            assert_eq!(room.for_flush(bytes).is_ok(), may, "{bytes} of {free}");
        };
        // A quarter stays; a flush counts as half of the reserve at most, however large it is.
        check(249, 0, false);
        check(250, 0, true);
        check(349, 100, false);
        check(350, 100, true);
        check(749, 1 << 40, false);
        check(750, 1 << 40, true);
        check(750, u64::MAX, true);
        let error = room(Some(749), 1000).1.for_flush(10_000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "it may be tried again");
        let text = "the disk is too full for a flush: 749 bytes are free, 500 and 250 to stay free are needed";
        assert_eq!(error.message, text);
        assert!(room(Some(0), 0).1.for_flush(u64::MAX).is_ok(), "without a reserve the disk itself tells");
    }

    #[test]
    fn a_compaction_leaves_the_reserve_and_what_others_write() {
        let check = |free: u64, bytes: u64, beside: u64, may: bool| {
            let (_, room) = room(Some(free), 1000);
            assert_eq!(room.for_compaction(bytes, beside).is_ok(), may, "{bytes} beside {beside} of {free}");
        };
        check(999, 0, 0, false);
        check(1000, 0, 0, true);
        check(1599, 500, 100, false);
        check(1600, 500, 100, true);
        check(u64::MAX - 1, u64::MAX, 0, false);
        check(u64::MAX - 1, 1, u64::MAX, false);
        let error = room(Some(5), 1000).1.for_compaction(70, 8).unwrap_err();
        let text = "the disk is too full for a compaction: 5 bytes are free, 70 and 1008 to stay free are needed";
        assert_eq!((error.kind(), &*error.message), (ErrorKind::Unavailable, text));
    }

    #[test]
    fn a_disk_that_does_not_tell_is_left_to_the_work_itself() {
        let (disk, room) = room(None, 1000);
        assert!(room.for_flush(1).is_ok() && room.for_compaction(u64::MAX, 1).is_ok());
        assert_eq!(disk.asked.load(Relaxed), 2);
    }

    #[test]
    fn work_that_is_under_way_looks_now_and_then() {
        let (disk, mut room) = room(Some(999), 1000);
        room.start = Instant::now().checked_sub(Duration::from_mins(1)).expect("the machine runs for a minute");
        assert!(room.while_compacting().is_err(), "the reserve is touched");
        assert!(room.while_compacting().is_ok(), "it has looked a moment ago");
        assert_eq!(disk.asked.load(Relaxed), 1);
        room.looked.store(0, Relaxed);
        assert!(room.while_compacting().is_err());
    }
}
