//! Where the bytes of parts come from: positioned reads of ranges, on local disk or through an object store.

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::{Advice, fadvise};

use crate::error::{Error, ErrorKind, Result, is_short_of_resources};
use crate::lru::Lru;
use crate::part::Place;

/// Open files kept; each costs one descriptor.
const OPEN_FILES_MAX: u64 = 512;

/// Reads parts of objects.
#[async_trait]
pub trait PartIo: Send + Sync + std::fmt::Debug {
    /// Reads ranges of one object, in the order given; callers have merged what is close together.
    ///
    /// # Errors
    /// Damaged: there is no such object, it is shorter than its ranges, or the disk fails. Unavailable: a store that does
    /// not answer, or no descriptor is free.
    async fn read(&self, key: &str, place: Place, ranges: &[Range<u64>]) -> Result<Vec<Bytes>>;

    /// Reads a range on the calling thread; none where it comes over the network.
    ///
    /// # Errors
    /// As [`PartIo::read`].
    fn read_here(&self, key: &str, place: Place, range: Range<u64>) -> Option<Result<Bytes>> {
        let _ = (key, place, range);
        None
    }

    /// Says whether reads of a place go over the network, so that bytes are worth keeping in memory. (The system
    /// keeps those of a local disk.)
    fn remote(&self, place: Place) -> bool {
        let _ = place;
        false
    }
}

/// Reads from local directories, on the calling thread: a disk read that the system's cache answers takes less time
/// than handing it to another thread.
#[derive(Debug)]
pub struct LocalIo {
    spool: PathBuf,
    store: PathBuf,
    open: Lru<(Place, String), Arc<File>>,
}

impl LocalIo {
    /// Reads parts in `spool` and in `store`. For a remote store only the spool is asked for.
    pub fn new(spool: &Path, store: &Path) -> Self {
        Self { spool: spool.to_owned(), store: store.to_owned(), open: Lru::new(OPEN_FILES_MAX, 4) }
    }

    /// Closes the file of an object that is about to be deleted, so that its space is freed.
    pub fn forget(&self, key: &str, place: Place) {
        self.open.remove(&(place, key.to_owned()));
    }

    fn open(&self, key: &str, place: Place) -> Result<Arc<File>> {
        let cache_key = (place, key.to_owned());
        if let Some(file) = self.open.get(&cache_key) {
            return Ok(file);
        }
        let root = if place == Place::Spool { &self.spool } else { &self.store };
        let path = root.join(key);
        let file = match quiver_files::open(&path) {
            // What is kept open is no more than a convenience: others need descriptors, too.
            Err(e) if is_short_of_resources(&e) => {
                self.open.clear();
                quiver_files::open(&path)
            }
            outcome => outcome,
        };
        let file = file.map_err(|e| cannot_read(key, e))?;
        let file = Arc::new(file);
        self.open.insert(cache_key, Arc::clone(&file), 1);
        Ok(file)
    }
}

/// Tells the system of ranges that are read now, one after the other: what it does not have comes from the disk at once, and
/// not each piece when the one before it is there.
fn announce(file: &File, ranges: &[Range<u64>]) {
    for range in ranges {
        if let Some(len) = NonZeroU64::new(range.end - range.start) {
            // Only helps, so a refusal is no error.
            let _ = fadvise(file, range.start, Some(len), Advice::WillNeed);
        }
    }
}

fn read_range(file: &File, key: &str, range: &Range<u64>) -> Result<Bytes> {
    let mut bytes = vec![0u8; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start).map_err(|e| cannot_read(key, e))?;
    Ok(Bytes::from(bytes))
}

/// Says what is wrong with a file: a process that is short of descriptors or memory may read it later.
fn cannot_read(key: &str, error: std::io::Error) -> Error {
    use std::io::ErrorKind as Io;
    let (kind, text) = match error.kind() {
        Io::NotFound => (ErrorKind::Damaged, format!("file `{key}` is gone")),
        Io::UnexpectedEof => {
            (ErrorKind::Damaged, format!("file `{key}` is damaged: it is shorter than it was written"))
        }
        _ if is_short_of_resources(&error) => (ErrorKind::Unavailable, format!("cannot read `{key}` now")),
        _ => (ErrorKind::Damaged, format!("file `{key}` cannot be read from its disk")),
    };
    Error::new(kind, text).with_source(error)
}

#[async_trait]
impl PartIo for LocalIo {
    async fn read(&self, key: &str, place: Place, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let file = self.open(key, place)?;
        if ranges.len() > 1 {
            announce(&file, ranges);
        }
        ranges.iter().map(|range| read_range(&file, key, range)).collect()
    }

    fn read_here(&self, key: &str, place: Place, range: Range<u64>) -> Option<Result<Bytes>> {
        Some(self.open(key, place).and_then(|file| read_range(&file, key, &range)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

    use super::*;

    #[tokio::test]
    async fn ranges_and_missing_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), b"0123456789").unwrap();
        let io = LocalIo::new(dir.path(), Path::new("/nowhere"));
        let read = io.read("a", Place::Spool, &[2..4, 9..10, 5..5]).await.unwrap();
        assert_eq!(read, [&b"23"[..], b"9", b""]);
        assert_eq!(io.read("a", Place::Store, &[0..1]).await.unwrap_err().kind(), ErrorKind::Damaged);
        assert_eq!(io.read("a", Place::Spool, &[8..11]).await.unwrap_err().kind(), ErrorKind::Damaged);
        std::fs::remove_file(dir.path().join("a")).unwrap();
        assert!(io.read("a", Place::Spool, std::slice::from_ref(&(0..1))).await.is_ok(), "the handle is kept");
        io.forget("a", Place::Spool);
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("pipe"), mode).unwrap();
        let refused = io.read("pipe", Place::Spool, std::slice::from_ref(&(0..1))).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Damaged, "nobody is waited for");
        assert_eq!(
            io.read("a", Place::Spool, std::slice::from_ref(&(0..1))).await.unwrap_err().kind(),
            ErrorKind::Damaged
        );
    }
}
