//! Reading a part: nothing is opened before it is asked for, and what was parsed once stays in the caches.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::Bytes;
use parquet::file::metadata::ParquetMetaDataReader;
use quiver_types::{ReadStats, stats};

use super::checksum::BLOCK_BYTES;
use super::fetch::{Purpose, kind_number};
use super::file::keys;
use super::footer::{Footer, damaged, key_value, row_groups_end};
use super::run_reader::RunReader;
use super::{FileMeta, PartMeta, Place};
use crate::cache::Caches;
use crate::decoded::DecodedCache;
use crate::error::{Context, Result};
use crate::io::PartIo;

/// Remote files up to this length are read as a whole when their footer is: another request costs more.
const WHOLE_BYTES_MAX: u64 = 2 * BLOCK_BYTES;

/// A part that can be read. Snapshots share it: as long as somebody holds its `Arc`, its files must stay.
#[derive(Debug)]
pub struct Part {
    /// What the catalog knows.
    pub meta: PartMeta,
    io: Arc<dyn PartIo>,
    cache: Arc<Caches>,
    /// Two queries that need the index of an older part at once make it once.
    decoding: tokio::sync::Mutex<()>,
}

impl Part {
    /// Makes a reader; does no I/O.
    pub fn new(meta: PartMeta, io: Arc<dyn PartIo>, cache: Arc<Caches>) -> Self {
        Self { meta, io, cache, decoding: tokio::sync::Mutex::new(()) }
    }

    /// The same part as it was before a kind of file was known, with caches of its own.
    #[cfg(test)]
    pub(crate) fn without(&self, kind: &str) -> Self {
        let mut meta = self.meta.clone();
        meta.files.retain(|file| file.kind != kind);
        Self::new(meta, Arc::clone(&self.io), Arc::new(Caches::new(64 << 20, false)))
    }

    /// Says whether reading it means asking a remote store.
    pub(crate) fn is_remote(&self) -> bool {
        self.io.remote(self.meta.place)
    }

    pub(super) fn io(&self) -> &dyn PartIo {
        &*self.io
    }

    pub(crate) fn cache(&self) -> &Caches {
        &self.cache
    }

    /// Gives the decoded columns of logs.
    pub(crate) fn decoded(&self) -> &DecodedCache {
        &self.cache.decoded
    }

    /// Gives the footer of a file; the cache's or, checked against the catalog's sum, the file's.
    pub(super) async fn footer(&self, file: &FileMeta, stats: &ReadStats) -> Result<Arc<Footer>> {
        let key = (self.meta.id, kind_number(&file.kind));
        if let Some(footer) = self.cache.footers.get(&key) {
            stats::add(&stats.cache_hits, 1);
            return Ok(footer);
        }
        stats::add(&stats.cache_misses, 1);
        let small = self.io.remote(self.meta.place) && file.bytes <= WHOLE_BYTES_MAX;
        let footer = if small { self.read_small(file, stats).await? } else { self.read_footer(file, stats).await? };
        let footer = Arc::new(footer);
        self.cache.footers.insert(key, Arc::clone(&footer), footer.memory_bytes());
        Ok(footer)
    }

    async fn read_footer(&self, file: &FileMeta, stats: &ReadStats) -> Result<Footer> {
        let start = file.bytes.checked_sub(file.tail_len).ok_or_else(|| damaged(&file.key, "its sizes do not fit"))?;
        let tail = self.read_range(file, start..file.bytes).await?;
        stats::add(&stats.objects_read, 1);
        stats::add(&stats.index_bytes_read, tail.len() as u64);
        Footer::parse(file, &tail)
    }

    /// Reads a small remote file in one go: its blocks are kept as if they had been asked for.
    async fn read_small(&self, file: &FileMeta, stats: &ReadStats) -> Result<Footer> {
        let data = file.bytes.checked_sub(file.tail_len).ok_or_else(|| damaged(&file.key, "its sizes do not fit"))?;
        let bytes = self.read_range(file, 0..file.bytes).await?;
        stats::add(&stats.objects_read, 1);
        stats::add(&stats.index_bytes_read, bytes.len() as u64);
        if bytes.len() as u64 != file.bytes {
            return Err(damaged(&file.key, "it is shorter than it was written"));
        }
        let footer = Footer::parse(file, &bytes.slice(data as usize..))?;
        for (block, content) in bytes[..data as usize].chunks(BLOCK_BYTES as usize).enumerate() {
            // A damaged block is found again, and told, by whoever needs it.
            if footer.check_block(file, block as u64, content).is_ok() {
                let key = (self.meta.id, kind_number(&file.kind), block as u32);
                self.cache.blocks.insert(key, Bytes::copy_from_slice(content), content.len() as u64);
            }
        }
        Ok(footer)
    }

    /// Reads the footers that a question about series needs, all at once. What fails here is told by whoever needs it.
    pub(crate) async fn warm(&self, stats: &ReadStats) {
        let files = ["index", "series"].iter().filter_map(|kind| self.meta.file(kind));
        futures::future::join_all(files.map(|file| self.footer(file, stats))).await;
    }

    async fn read_range(&self, file: &FileMeta, range: Range<u64>) -> Result<Bytes> {
        let read = self.io.read(&file.key, self.meta.place, std::slice::from_ref(&range)).await?;
        read.into_iter().next().ok_or_else(|| damaged(&file.key, "nothing came back"))
    }

    /// Waits until nobody else makes the index of the part in memory.
    pub(super) async fn decoding(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.decoding.lock().await
    }

    /// Streams the whole content by series, for compaction; bypasses the caches.
    pub fn runs(self: &Arc<Self>) -> RunReader {
        RunReader::new(Arc::clone(self))
    }

    /// Reads all rows of the one file of a table without series.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub async fn rows(&self, stats: &ReadStats) -> Result<Vec<RecordBatch>> {
        let Some(file) = self.meta.file("rows") else { return Ok(Vec::new()) };
        let footer = self.footer(file, stats).await?;
        stats::add(&stats.pages_total, footer.pages());
        let all = 0..footer.rows();
        self.read_batches(file, &footer, std::slice::from_ref(&all), None, 8192, Purpose::Query, stats).await
    }

    /// Reads every byte of every file and checks it. Caches are neither asked nor filled.
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
