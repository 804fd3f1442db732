//! Reads a part. Files are opened only when needed, and parsed metadata stays in the caches.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use parquet::file::metadata::ParquetMetaDataReader;
use quiver_types::{ReadStats, read_stats};

use super::checksum::BLOCK_BYTES;
use super::file::keys;
use super::footer::{Footer, damaged, key_value, row_groups_end};
use super::{FileMeta, PartId, PartMeta, Place, kind_number};
use crate::cache::Caches;
use crate::decoded_cache::DecodedCache;
use crate::error::{Context, Result};
use crate::io::PartIo;
use crate::threads::leave_callers_thread;

/// Remote files up to this size are read completely together with their footer, because a second request would cost
/// more.
const WHOLE_BYTES_MAX: u64 = 2 * BLOCK_BYTES;

/// A readable part, shared by snapshots. Its files must not be deleted while anyone holds its `Arc`.
#[derive(Debug)]
pub struct Part {
    /// Description of the part from the catalog.
    pub meta: PartMeta,
    io: Arc<dyn PartIo>,
    cache: Arc<Caches>,
    /// Makes queries that need the in-memory index of an older part at the same time build it only once.
    decoding: tokio::sync::Mutex<()>,
    /// Makes threads that need a footer at the same time read it only once.
    opening: Mutex<()>,
}

impl Part {
    /// Makes a reader; does no I/O.
    pub fn new(meta: PartMeta, io: Arc<dyn PartIo>, cache: Arc<Caches>) -> Self {
        Self { meta, io, cache, decoding: tokio::sync::Mutex::new(()), opening: Mutex::new(()) }
    }

    /// The same part as if it had no file of this kind, with caches of its own.
    #[cfg(test)]
    pub(crate) fn without(&self, kind: &str) -> Self {
        let mut meta = self.meta.clone();
        meta.files.retain(|file| file.kind != kind);
        Self::new(meta, Arc::clone(&self.io), Arc::new(Caches::local(64 << 20)))
    }

    /// Tells whether the part's files are in a remote store.
    pub(crate) fn is_remote(&self) -> bool {
        self.io.remote(self.meta.place)
    }

    pub(super) fn io(&self) -> &dyn PartIo {
        &*self.io
    }

    pub(crate) fn cache(&self) -> &Caches {
        &self.cache
    }

    /// The cache of decoded log columns.
    pub(crate) fn decoded(&self) -> &DecodedCache {
        &self.cache.decoded
    }

    /// The footer of a file, from the cache; or read from the file and verified against the catalog's checksum.
    pub(super) async fn footer(&self, file: &FileMeta, stats: &ReadStats) -> Result<Arc<Footer>> {
        let key = (self.meta.id, kind_number(&file.kind));
        if let Some(footer) = self.known_footer(key, stats) {
            return Ok(footer);
        }
        if let Some(footer) = self.footer_here(key, file, stats)? {
            return Ok(footer);
        }
        read_stats::add(&stats.cache_misses, 1);
        let small = self.is_remote() && file.bytes <= WHOLE_BYTES_MAX;
        let footer = if small { self.read_small(file, stats).await? } else { self.read_footer(file, stats).await? };
        Ok(self.keep_footer(key, footer))
    }

    fn known_footer(&self, key: (PartId, u8), stats: &ReadStats) -> Option<Arc<Footer>> {
        let footer = self.cache.footers.get(&key)?;
        read_stats::add(&stats.cache_hits, 1);
        Some(footer)
    }

    fn keep_footer(&self, key: (PartId, u8), footer: Footer) -> Arc<Footer> {
        let footer = Arc::new(footer);
        self.cache.footers.insert(key, Arc::clone(&footer), footer.memory_bytes());
        footer
    }

    /// Reads the footer if the file is local; `None` if it is remote. Other threads may block on this read; that is
    /// safe because it runs synchronously, so it completes whichever query is polled.
    fn footer_here(&self, key: (PartId, u8), file: &FileMeta, stats: &ReadStats) -> Result<Option<Arc<Footer>>> {
        if self.is_remote() {
            return Ok(None);
        }
        let _reading = if let Some(reading) = self.opening.try_lock() {
            reading
        } else {
            let reading = self.opening.lock();
            if let Some(footer) = self.known_footer(key, stats) {
                return Ok(Some(footer));
            }
            reading
        };
        let Some(tail) = self.io.read_here(&file.key, self.meta.place, tail_of(file)?) else { return Ok(None) };
        read_stats::add(&stats.cache_misses, 1);
        Ok(Some(self.keep_footer(key, parse(file, &tail?, stats)?)))
    }

    async fn read_footer(&self, file: &FileMeta, stats: &ReadStats) -> Result<Footer> {
        let tail = self.read_range(file, tail_of(file)?).await?;
        parse(file, &tail, stats)
    }

    /// Reads a small remote file in one request and caches its blocks as if they had been requested.
    async fn read_small(&self, file: &FileMeta, stats: &ReadStats) -> Result<Footer> {
        let data = file.bytes.checked_sub(file.tail_len).ok_or_else(|| damaged(&file.key, "its sizes do not fit"))?;
        let bytes = self.read_range(file, 0..file.bytes).await?;
        read_stats::add(&stats.objects_read, 1);
        read_stats::add(&stats.index_bytes_read, bytes.len() as u64);
        if bytes.len() as u64 != file.bytes {
            return Err(damaged(&file.key, "it is shorter than it was written"));
        }
        let footer = Footer::parse(file, &bytes.slice(data as usize..))?;
        for (block, content) in bytes[..data as usize].chunks(BLOCK_BYTES as usize).enumerate() {
            // A damaged block is not cached; whoever needs it will find and report the damage.
            if footer.check_block(file, block as u64, content).is_ok() {
                let key = (self.meta.id, kind_number(&file.kind), block as u32);
                self.cache.blocks.insert(key, Bytes::copy_from_slice(content), content.len() as u64);
            }
        }
        Ok(footer)
    }

    /// Prefetches the footers that a query for series needs, concurrently. Errors are ignored here; whoever needs the
    /// footer reports them.
    pub(crate) async fn warm(&self, stats: &ReadStats) {
        let files = ["index", "series"].iter().filter_map(|kind| self.meta.file(kind));
        futures::future::join_all(files.map(|file| self.footer(file, stats))).await;
    }

    async fn read_range(&self, file: &FileMeta, range: Range<u64>) -> Result<Bytes> {
        leave_callers_thread().await;
        let read = self.io.read(&file.key, self.meta.place, std::slice::from_ref(&range)).await?;
        read.into_iter().next().ok_or_else(|| damaged(&file.key, "nothing came back"))
    }

    /// Lock held while the in-memory index of the part is built.
    pub(super) async fn decoding(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.decoding.lock().await
    }

    /// Reads and verifies every byte of every file, without using the caches.
    ///
    /// # Errors
    /// As [`Part::series_pages`]; the error names the file.
    pub async fn verify(&self) -> Result<()> {
        const STEP: u64 = 64 * BLOCK_BYTES;
        let stats = ReadStats::default();
        for file in &self.meta.files {
            let footer = self.read_footer(file, &stats).await?;
            let mut start = 0;
            while start < footer.data_end() {
                let end = (start + STEP).min(footer.data_end());
                let bytes = self.read_range(file, start..end).await?;
                for (i, block) in bytes.chunks(BLOCK_BYTES as usize).enumerate() {
                    footer.check_block(file, start / BLOCK_BYTES + i as u64, block)?;
                }
                start = end;
            }
            if footer.rows() != file.rows {
                return Err(damaged(&file.key, "its number of rows is not the catalog's"));
            }
        }
        Ok(())
    }
}

/// Where the footer of a file is, with its page indexes.
fn tail_of(file: &FileMeta) -> Result<Range<u64>> {
    let start = file.bytes.checked_sub(file.tail_len).ok_or_else(|| damaged(&file.key, "its sizes do not fit"))?;
    Ok(start..file.bytes)
}

/// Counts a tail that was read, and parses it.
fn parse(file: &FileMeta, tail: &Bytes, stats: &ReadStats) -> Result<Footer> {
    read_stats::add(&stats.objects_read, 1);
    read_stats::add(&stats.index_bytes_read, tail.len() as u64);
    Footer::parse(file, tail)
}

impl PartMeta {
    /// Reads what is known of a part out of its main file (`series` or `rows`), which was written last: for a rebuild
    /// without a catalog. `bytes` is the object's length. Siblings stand in it with their sums.
    ///
    /// # Errors
    /// Internal: not the main file of a part, or damaged. NotFound, Unavailable: as for any read.
    pub async fn read(io: &dyn PartIo, key: &str, place: Place, bytes: u64) -> Result<Self> {
        let damaged = |what: &str| damaged(key, what);
        let read = async |range: Range<u64>| -> Result<Bytes> {
            let read = io.read(key, place, std::slice::from_ref(&range)).await?;
            read.into_iter().next().ok_or_else(|| damaged("nothing came back"))
        };
        if bytes < 12 {
            return Err(damaged("it is too short"));
        }
        let end = read(bytes - 8..bytes).await?;
        let (len, magic) = end.split_at(4);
        let len = u64::from(u32::from_le_bytes(len.try_into().internal("four bytes")?));
        if magic != b"PAR1" || len + 8 > bytes {
            return Err(damaged("it has no footer"));
        }
        let footer = read(bytes - 8 - len..bytes - 8).await?;
        let metadata = ParquetMetaDataReader::decode_metadata(&footer)
            .map_err(|e| damaged("its footer cannot be read").with_source(e))?;
        let text = key_value(&metadata, keys::META).ok_or_else(|| damaged("it is not the main file of a part"))?;
        if key_value(&metadata, keys::META_CRC) != Some(crc32c::crc32c(text.as_bytes()).to_string().as_str()) {
            return Err(damaged("the checksum of its description is wrong"));
        }
        let mut meta: Self =
            serde_json::from_str(text).map_err(|e| damaged("its description cannot be read").with_source(e))?;
        let data_end = row_groups_end(&metadata).filter(|&e| e <= bytes - 8 - len);
        let data_end = data_end.ok_or_else(|| damaged("its columns are not where its footer says"))?;
        let tail = read(data_end..bytes).await?;
        let kind = if meta.table == quiver_types::tables::metrics::TABLE.name { "series" } else { "rows" };
        let main = FileMeta {
            kind: kind.to_owned(),
            key: key.to_owned(),
            bytes,
            rows: metadata.file_metadata().num_rows() as u64,
            tail_len: tail.len() as u64,
            tail_crc: crc32c::crc32c(&tail),
        };
        Footer::parse(&main, &tail)?;
        meta.place = place;
        meta.files.insert(0, main);
        meta.bytes = meta.files.iter().map(|f| f.bytes).sum();
        Ok(meta)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::sync::atomic::Ordering::Relaxed;
    use std::thread;
    use std::time::Duration;

    use super::super::tests::{block_on, small, write};
    use super::*;
    use crate::io::LocalIo;

    /// A disk that waits a moment for a second reader before it answers the first.
    #[derive(Debug)]
    struct Slow {
        local: LocalIo,
        readers: std::sync::Mutex<u32>,
        came: Condvar,
    }

    #[async_trait::async_trait]
    impl PartIo for Slow {
        async fn read(&self, key: &str, place: Place, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
            self.local.read(key, place, ranges).await
        }

        fn read_here(&self, key: &str, place: Place, range: Range<u64>) -> Option<Result<Bytes>> {
            let mut readers = self.readers.lock().unwrap();
            *readers += 1;
            self.came.notify_all();
            let alone = |readers: &mut u32| *readers < 2;
            drop(self.came.wait_timeout_while(readers, Duration::from_secs(1), alone).unwrap());
            self.local.read_here(key, place, range)
        }
    }

    #[test]
    fn threads_that_need_a_footer_at_once_read_it_once() {
        let dir = tempfile::tempdir().unwrap();
        let meta = write(dir.path(), 0, &small());
        let local = LocalIo::new(dir.path(), dir.path());
        let io = Arc::new(Slow { local, readers: std::sync::Mutex::new(0), came: Condvar::new() });
        let part = Part::new(meta, Arc::clone(&io) as Arc<dyn PartIo>, Arc::new(Caches::local(64 << 20)));
        let (stats, file) = (ReadStats::default(), part.meta.file("samples").unwrap());
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| block_on(part.footer(file, &stats)).unwrap());
            }
        });
        assert_eq!((*io.readers.lock().unwrap(), stats.objects_read.load(Relaxed)), (1, 1));
    }
}
