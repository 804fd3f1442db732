//! Reads the streams of a part that has many of them: block by block, only the requested columns; and which streams
//! have a label, from pages of `.labels`. What was read stays in the caches.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use quiver_types::{ReadStats, SeriesId, read_stats};

use super::super::byte_ranges::{Purpose, Selection};
use super::super::footer::{Footer, damaged};
use super::super::label_rows::{LabelDirectory, pages_of, pages_with};
use super::super::{FileMeta, Part};
use super::labels_file::{KIND_ID, place_of_id, streams_of_id};
use super::stream_pieces::{KeptPiece, LabelCodes, StreamBlocks, StreamColumns, StreamPiece};
use super::stream_set::each_run;
use super::streams_file::{BLOCKS_KEY, Blocks};
use crate::error::{Error, Result};

/// Cancellation is checked once per this many pages.
const PAGES_AT_ONCE: usize = 8;

fn file<'p>(part: &'p Part, kind: &str) -> Result<&'p FileMeta> {
    let file = part.meta.file(kind);
    file.ok_or_else(|| Error::internal(format!("part `{}` has no file of {kind}", part.meta.id)))
}

impl Part {
    /// Tells whether the part's streams are read in blocks.
    pub(crate) fn has_labels(&self) -> bool {
        self.meta.file("labels").is_some()
    }

    fn kept(&self, piece: &StreamPiece, stats: &ReadStats) -> Option<KeptPiece> {
        let found = self.cache().streams.get(&(self.meta.id, piece.clone()));
        let counter = if found.is_some() { &stats.cache_hits } else { &stats.cache_misses };
        read_stats::add(counter, 1);
        found
    }

    fn keep(&self, piece: StreamPiece, kept: KeptPiece, bytes: u64) {
        self.cache().streams.insert((self.meta.id, piece), kept, bytes);
    }

    /// Where the blocks of streams start.
    ///
    /// # Errors
    /// As [`Part::series`].
    pub(crate) async fn stream_blocks(&self, stats: &ReadStats) -> Result<Arc<StreamBlocks>> {
        if let Some(KeptPiece::Blocks(known)) = self.kept(&StreamPiece::Blocks, stats) {
            return Ok(known);
        }
        let file = file(self, "streams")?;
        let footer = self.footer(file, stats).await?;
        let told = footer.value(BLOCKS_KEY).and_then(|text| serde_json::from_str::<Blocks>(text).ok());
        let Blocks { streams: size, mut first_rows } =
            told.ok_or_else(|| damaged(&file.key, "its blocks cannot be read"))?;
        let streams = u32::try_from(footer.rows()).unwrap_or(u32::MAX);
        first_rows.push(self.meta.rows);
        let fits = size > 0 && streams.div_ceil(size.max(1)) as usize + 1 == first_rows.len();
        if !fits || !first_rows.is_sorted() {
            return Err(damaged(&file.key, "its blocks are not where its footer says"));
        }
        let blocks = Arc::new(StreamBlocks { footer, size, first_rows, streams });
        self.keep(StreamPiece::Blocks, KeptPiece::Blocks(Arc::clone(&blocks)), blocks.memory_bytes());
        Ok(blocks)
    }

    /// Reads columns of some blocks of streams; `blocks` must be ascending. Returns one batch per block.
    ///
    /// # Errors
    /// As [`Part::series`].
    pub(crate) async fn stream_columns(
        &self,
        blocks: &StreamBlocks,
        wanted: &[u32],
        columns: StreamColumns,
        stats: &ReadStats,
    ) -> Result<Vec<RecordBatch>> {
        let file = file(self, "streams")?;
        let mut out: Vec<Option<RecordBatch>> = Vec::with_capacity(wanted.len());
        let (mut missing, mut rows) = (Vec::new(), Vec::new());
        for (at, &block) in wanted.iter().enumerate() {
            if let Some(KeptPiece::Rows(batch)) = self.kept(&StreamPiece::Block(columns, block), stats) {
                out.push(Some(batch));
            } else {
                let own = blocks.streams_of(block);
                missing.push(at);
                rows.push(u64::from(own.start)..u64::from(own.end));
                out.push(None);
            }
        }
        if !missing.is_empty() {
            stats.check()?;
            read_stats::add(&stats.stream_blocks_read, missing.len() as u64);
            let selection = Selection::of(&rows, blocks.size as usize).only(columns.names());
            let read = self.read_batches(file, &blocks.footer, selection, Purpose::Query, stats).await?;
            let fits = read.iter().map(|b| b.num_rows() as u64).eq(rows.iter().map(|r| r.end - r.start));
            if !fits {
                return Err(damaged(&file.key, "its blocks have other sizes"));
            }
            for (at, batch) in missing.into_iter().zip(read) {
                let piece = StreamPiece::Block(columns, wanted[at]);
                self.keep(piece, KeptPiece::Rows(batch.clone()), batch.get_array_memory_size() as u64);
                out[at] = Some(batch);
            }
        }
        Ok(out.into_iter().flatten().collect())
    }

    /// The directory of `.labels`: which rows belong to which label.
    ///
    /// # Errors
    /// As [`Part::series`].
    pub(crate) async fn label_directory(&self, stats: &ReadStats) -> Result<Arc<LabelDirectory>> {
        if let Some(KeptPiece::Directory(known)) = self.kept(&StreamPiece::Directory, stats) {
            return Ok(known);
        }
        let file = file(self, "labels")?;
        let footer = self.footer(file, stats).await?;
        let directory = LabelDirectory::read(&footer);
        let directory = Arc::new(directory.ok_or_else(|| damaged(&file.key, "its directory cannot be read"))?);
        let kept = KeptPiece::Directory(Arc::clone(&directory));
        self.keep(StreamPiece::Directory, kept, directory.memory_bytes());
        Ok(directory)
    }

    /// Reads rows of one page of `.labels`, with values and payloads.
    async fn label_page(&self, footer: &Footer, rows: Range<u64>, stats: &ReadStats) -> Result<RecordBatch> {
        let piece = StreamPiece::Page(rows.start);
        if let Some(KeptPiece::Rows(batch)) = self.kept(&piece, stats) {
            return Ok(batch);
        }
        let file = file(self, "labels")?;
        read_stats::add(&stats.stream_blocks_read, 1);
        let len = (rows.end - rows.start) as usize;
        let selection = Selection::of(std::slice::from_ref(&rows), len).only(&["value", "streams"]);
        let read = self.read_batches(file, footer, selection, Purpose::Query, stats).await?;
        let batch = read.into_iter().next().filter(|batch| batch.num_rows() == len);
        let batch = batch.ok_or_else(|| damaged(&file.key, "its pages have other sizes"))?;
        self.keep(piece, KeptPiece::Rows(batch.clone()), batch.get_array_memory_size() as u64);
        Ok(batch)
    }

    /// Calls a function for each value of a label (or each service) with the runs of its streams; if a value is given,
    /// only for that one.
    ///
    /// # Errors
    /// As [`Part::series`]; those of the memory gate of `stats`.
    pub(crate) async fn each_label_value(
        &self,
        kind: u8,
        label: &str,
        only: Option<&str>,
        stats: &ReadStats,
        visit: &mut (dyn FnMut(&str, LabelRuns<'_>) + Send),
    ) -> Result<()> {
        let file = file(self, "labels")?;
        let rows = self.label_directory(stats).await?.rows(kind, label);
        if rows.is_empty() {
            return Ok(());
        }
        let footer = self.footer(file, stats).await?;
        let pages = match only {
            Some(value) => pages_with(&footer, "value", &rows, value),
            None => pages_of(&footer, "value", &rows),
        };
        for (at, page) in pages.into_iter().enumerate() {
            if at % PAGES_AT_ONCE == PAGES_AT_ONCE - 1 {
                stats.check()?;
                tokio::task::yield_now().await;
            }
            let batch = self.label_page(&footer, page, stats).await?;
            let other = || damaged(&file.key, "its columns have other types");
            let values = batch.column(0).as_string_opt::<i32>().ok_or_else(other)?;
            let payloads = batch.column(1).as_binary_opt::<i32>().ok_or_else(other)?;
            let mut whole = true;
            let mut call = |row: usize| {
                visit(values.value(row), LabelRuns { payload: payloads.value(row), whole: &mut whole });
            };
            match only {
                None => (0..batch.num_rows()).for_each(call),
                Some(wanted) => {
                    let (mut low, mut high) = (0, batch.num_rows());
                    while low < high {
                        let middle = low + (high - low) / 2;
                        if values.value(middle) < wanted { low = middle + 1 } else { high = middle }
                    }
                    if low < batch.num_rows() && values.value(low) == wanted {
                        call(low);
                    }
                }
            }
            if !whole {
                return Err(damaged(&file.key, "a list of streams cannot be read"));
            }
        }
        Ok(())
    }

    /// The value of a label for each stream.
    ///
    /// # Errors
    /// As [`Part::each_label_value`].
    pub(crate) async fn label_codes(
        &self,
        blocks: &StreamBlocks,
        label: &str,
        stats: &ReadStats,
    ) -> Result<Arc<LabelCodes>> {
        let piece = StreamPiece::Codes(label.into());
        if let Some(KeptPiece::Codes(known)) = self.kept(&piece, stats) {
            return Ok(known);
        }
        // Reserved for the query; the cached copy counts towards the cache.
        let bytes = blocks.streams as usize * size_of::<u32>();
        stats.take(bytes)?;
        let mut codes = LabelCodes { of_stream: vec![0; blocks.streams as usize], values: vec!["".into()] };
        let LabelCodes { of_stream, values } = &mut codes;
        let each = &mut |value: &str, runs: LabelRuns<'_>| {
            let code = values.len() as u32;
            values.push(value.into());
            runs.each(|run| {
                let end = (run.end as usize).min(of_stream.len());
                of_stream[(run.start as usize).min(end)..end].fill(code);
            });
        };
        self.each_label_value(super::KIND_LABEL, label, None, stats, each).await?;
        stats.give_back(bytes);
        let codes = Arc::new(codes);
        self.keep(piece, KeptPiece::Codes(Arc::clone(&codes)), codes.memory_bytes());
        Ok(codes)
    }

    /// The streams with an identifier; there is one for each service.
    ///
    /// # Errors
    /// As [`Part::series`].
    pub(crate) async fn streams_with_id(
        &self,
        blocks: &StreamBlocks,
        id: SeriesId,
        stats: &ReadStats,
    ) -> Result<Vec<u32>> {
        let file = file(self, "labels")?;
        let rows = self.label_directory(stats).await?.rows(KIND_ID, "");
        let place = place_of_id(id, rows.end - rows.start);
        let (row, key) = place.ok_or_else(|| damaged(&file.key, "it lacks rows of identifiers"))?;
        let row = rows.start + row;
        let footer = self.footer(file, stats).await?;
        let batch = self.label_page(&footer, row..row + 1, stats).await?;
        let payload = batch.column(1).as_binary_opt::<i32>().map(|a| a.value(0));
        let found = payload.and_then(|payload| streams_of_id(payload, key));
        let found = found.ok_or_else(|| damaged(&file.key, "a row of identifiers cannot be read"))?;
        let mut out = Vec::with_capacity(found.len());
        for stream in found.into_iter().filter(|stream| *stream < blocks.streams) {
            let block = blocks.of_stream(stream);
            let read = self.stream_columns(blocks, &[block], StreamColumns::Ids, stats).await?;
            let ids = read.first().and_then(|batch| batch.column(0).as_fixed_size_binary_opt());
            let at = (stream - blocks.streams_of(block).start) as usize;
            if ids.is_some_and(|ids| ids.value(at) == id.to_bytes()) {
                out.push(stream);
            }
        }
        Ok(out)
    }
}

/// The streams that have a value, as encoded runs.
#[derive(Debug)]
pub(crate) struct LabelRuns<'p> {
    payload: &'p [u8],
    whole: &'p mut bool,
}

impl LabelRuns<'_> {
    /// Calls a function for each run.
    pub(crate) fn each(self, visit: impl FnMut(Range<u32>)) {
        *self.whole &= each_run(self.payload, visit).is_some();
    }
}
