//! Spill files of one query, in the room that all queries share: who finds it full hears whether others fill it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use datafusion::error::Result;
use datafusion::execution::disk_manager::{DiskManager, DiskManagerBuilder};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures::stream::BoxStream;
use quiver_types::{Error, ErrorKind};

use crate::pool::QueryPool;

/// The setting by which DataFusion says that there is no more room.
const FULL: &str = "max_temp_directory_size";

/// Gives where a query makes its files.
pub(crate) fn files(shared: &Arc<DiskManager>, query: &Arc<QueryPool>) -> Arc<DiskManager> {
    let files = Files { shared: Arc::clone(shared), query: Arc::clone(query) };
    let made = DiskManagerBuilder::default().with_temp_file_factory(Arc::new(files)).build();
    // One that makes files elsewhere needs no folder, which is all that could fail.
    made.map_or_else(|_| Arc::clone(shared), Arc::new)
}

struct Files {
    shared: Arc<DiskManager>,
    query: Arc<QueryPool>,
}

impl TempFileFactory for Files {
    fn create_temp_file(&self, description: &str) -> Result<Arc<dyn SpillFile>> {
        let inner = self.shared.create_tmp_file(description)?;
        let (shared, query) = (Arc::clone(&self.shared), Arc::clone(&self.query));
        let written = Arc::new(Written { bytes: AtomicU64::new(0), shared, query });
        Ok(Arc::new(Counted { inner, written }))
    }
}

/// A file whose bytes count for its query, and go with it.
struct Counted {
    inner: Arc<dyn SpillFile>,
    written: Arc<Written>,
}

impl SpillFile for Counted {
    fn path(&self) -> Option<&Path> {
        self.inner.path()
    }

    fn size(&self) -> Option<u64> {
        self.inner.size()
    }

    fn read_stream(&self) -> Result<BoxStream<'static, Result<Bytes>>> {
        self.inner.read_stream()
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(Writer { inner: self.inner.open_writer()?, written: Arc::clone(&self.written) }))
    }
}

/// Bytes of a file.
struct Written {
    bytes: AtomicU64,
    shared: Arc<DiskManager>,
    query: Arc<QueryPool>,
}

impl Written {
    fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.query.spilled.fetch_add(bytes, Relaxed);
    }

    fn sub(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
        self.query.spilled.fetch_sub(bytes, Relaxed);
    }

    /// What to say of bytes that were not written, though they are counted.
    fn refused(&self, error: io::Error) -> io::Error {
        if !error.to_string().contains(FULL) {
            return error;
        }
        let fits = self.query.spilled.load(Relaxed) <= self.shared.max_temp_directory_size();
        io::Error::other(if fits {
            let text = "other queries hold the room for spill files that this one needs (setting `query.spill_max`): \
                        ask again later";
            Error::new(ErrorKind::Unavailable, text)
        } else {
            let text = "query needs more room for spill files than its limit allows (setting `query.spill_max`)";
            Error::new(ErrorKind::LimitExceeded, text)
        })
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        self.query.spilled.fetch_sub(self.bytes.load(Relaxed), Relaxed);
    }
}

/// Writes a file.
struct Writer {
    inner: Box<dyn SpillWriter>,
    written: Arc<Written>,
}

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Before they are written: what all hold is never more than what is known of each.
        let asked = bytes.len() as u64;
        self.written.add(asked);
        let written = self.inner.write(bytes).map_err(|error| self.written.refused(error));
        let left = asked - written.as_ref().map_or(0, |bytes| *bytes as u64).min(asked);
        self.written.sub(left);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> Result<()> {
        self.inner.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use arrow::error::ArrowError;
    use datafusion::execution::disk_manager::DiskManagerMode;
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use super::*;
    use crate::from_datafusion;
    use crate::pool::SharedPool;

    #[test]
    fn who_finds_the_room_filled_by_others_may_come_again() {
        let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![std::env::temp_dir()]));
        let disk = Arc::new(disk.with_max_temp_directory_size(100).build().unwrap());
        let shared = SharedPool::new(Arc::new(GreedyMemoryPool::new(6400)), 6400, Arc::default());
        let [one, other] = [(); 2].map(|()| Arc::new(QueryPool::new(Arc::clone(&shared), 6400)));
        let write = |query: &Arc<QueryPool>, bytes: usize| {
            let file = files(&disk, query).create_tmp_file("a test").unwrap();
            let outcome = file.open_writer().unwrap().write_all(&vec![0; bytes]);
            (file, outcome.err().map(|error| from_datafusion(ArrowError::from(error).into()).kind))
        };
        let (held, refused) = write(&one, 60);
        assert_eq!((refused, one.spilled.load(Relaxed)), (None, 60));
        assert_eq!(write(&other, 60).1, Some(ErrorKind::Unavailable));
        assert_eq!(write(&other, 101).1, Some(ErrorKind::LimitExceeded), "more than there is");
        assert_eq!(write(&one, 60).1, Some(ErrorKind::LimitExceeded), "its own files fill it");
        drop(held);
        assert_eq!(write(&one, 60).1, None);
        let left = (disk.used_disk_space(), one.spilled.load(Relaxed), other.spilled.load(Relaxed));
        assert_eq!(left, (0, 0, 0));
    }
}
