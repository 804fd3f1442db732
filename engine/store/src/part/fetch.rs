//! Fetching byte ranges of a file: widened to whole blocks where these were not yet checked, merged when close
//! together, checked, and held for the decoders. Blocks of remote files come out of the cache when they are there.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::array::RecordBatch;
use bytes::{Buf, Bytes, BytesMut};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReaderBuilder, RowSelection, RowSelectionPolicy,
};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use quiver_types::{ReadStats, stats};

use super::checksum::BLOCK_BYTES;
use super::footer::{Footer, damaged};
use super::reader::Part;
use super::{FileMeta, KINDS};
use crate::error::Result;

/// Ranges closer than this are read as one.
const GAP_BYTES_MAX: u64 = 64 * 1024;

/// What a read is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A query: counts, and keeps remote blocks.
    Query,
    /// A background job, which reads everything once: keeps nothing.
    Job,
}

/// Bytes of a file, as far as they were fetched.
#[derive(Debug, Clone)]
pub(super) struct Fetched(Arc<Vec<(u64, Bytes)>>);

impl Fetched {
    fn slice(&self, start: u64, len: usize) -> Result<Bytes, ParquetError> {
        let missing = || ParquetError::General(format!("{len} bytes at {start} were not fetched"));
        let mut at = self.0.partition_point(|(s, _)| *s <= start).checked_sub(1).ok_or_else(missing)?;
        let (piece_start, piece) = &self.0[at];
        let from = (start - piece_start) as usize;
        if from + len <= piece.len() {
            return Ok(piece.slice(from..from + len));
        }
        // Only blocks out of the cache end inside a page.
        let mut out = BytesMut::with_capacity(len);
        let mut position = start;
        while out.len() < len {
            let (piece_start, piece) = self.0.get(at).ok_or_else(missing)?;
            let from = position.checked_sub(*piece_start).ok_or_else(missing)? as usize;
            let here = piece.get(from..).filter(|b| !b.is_empty()).ok_or_else(missing)?;
            let here = &here[..here.len().min(len - out.len())];
            out.extend_from_slice(here);
            position += here.len() as u64;
            at += 1;
        }
        Ok(out.freeze())
    }
}

impl Length for Fetched {
    fn len(&self) -> u64 {
        self.0.last().map_or(0, |(start, bytes)| start + bytes.len() as u64)
    }
}

impl ChunkReader for Fetched {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let at = self.0.partition_point(|(s, _)| *s <= start).checked_sub(1);
        let piece = at.map(|at| &self.0[at]).filter(|(s, bytes)| start - s < bytes.len() as u64);
        let (piece_start, bytes) =
            piece.ok_or_else(|| ParquetError::General(format!("byte {start} was not fetched")))?;
        Ok(bytes.slice((start - piece_start) as usize..).reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.slice(start, length)
    }
}

/// Number of a kind of file in cache keys.
pub(super) fn kind_number(kind: &str) -> u8 {
    KINDS.iter().position(|k| *k == kind).unwrap_or(KINDS.len()) as u8
}

/// Merges ascending ranges that overlap or lie close together.
fn merge(ranges: impl IntoIterator<Item = Range<u64>>, gap: u64) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start <= last.end + gap => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

/// Says whether files of a kind tell where data is.
fn is_index(kind: &str) -> bool {
    matches!(kind, "series" | "index" | "streams" | "rollup" | "filters" | "labels" | "traces")
}

/// The counter for the bytes of a kind of file.
fn bytes_counter<'a>(kind: &str, stats: &'a ReadStats) -> &'a AtomicU64 {
    if is_index(kind) { &stats.index_bytes_read } else { &stats.bytes_read }
}

impl Part {
    /// Fetches ranges of the row groups of a file; `wanted` in any order.
    pub(super) async fn fetch(
        &self,
        file: &FileMeta,
        footer: &Footer,
        mut wanted: Vec<Range<u64>>,
        purpose: Purpose,
        stats: &ReadStats,
    ) -> Result<Fetched> {
        wanted.sort_unstable_by_key(|r| r.start);
        let remote = self.io().remote(self.meta.place);
        let end = footer.data_end();
        let block_start = |at: u64| at / BLOCK_BYTES * BLOCK_BYTES;
        let block_end = |at: u64| (at.div_ceil(BLOCK_BYTES) * BLOCK_BYTES).min(end);
        let whole = wanted.into_iter().filter(|r| !r.is_empty()).map(|r| {
            let good = |at: u64| !remote && footer.is_good(at / BLOCK_BYTES);
            let start = if good(r.start) { r.start } else { block_start(r.start) };
            start..if good(r.end - 1) { r.end } else { block_end(r.end) }
        });
        let mut pieces: Vec<(u64, Bytes)> = Vec::new();
        let kind = kind_number(&file.kind);
        let missing = if remote {
            let mut missing = Vec::new();
            for range in merge(whole, 0) {
                for block in range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES) {
                    match self.cache().blocks.get(&(self.meta.id, kind, block as u32)) {
                        Some(bytes) => pieces.push((block * BLOCK_BYTES, bytes)),
                        None => missing.push(block * BLOCK_BYTES..((block + 1) * BLOCK_BYTES).min(end)),
                    }
                }
            }
            stats::add(&stats.cache_hits, pieces.len() as u64);
            stats::add(&stats.cache_misses, missing.len() as u64);
            // A gap that the cache could fill is not worth a second request either.
            merge(missing, GAP_BYTES_MAX)
        } else {
            merge(whole, GAP_BYTES_MAX)
        };
        if !missing.is_empty() {
            let read = self.io().read(&file.key, self.meta.place, &missing).await?;
            stats::add(&stats.objects_read, 1);
            for (range, bytes) in missing.iter().zip(read) {
                if bytes.len() as u64 != range.end - range.start {
                    return Err(damaged(&file.key, "it is shorter than it was written"));
                }
                stats::add(bytes_counter(&file.kind, stats), bytes.len() as u64);
                self.check(file, footer, range.start, &bytes, remote && purpose == Purpose::Query)?;
                // The cache may have given a block inside a gap, which came again with this range.
                pieces.retain(|(start, _)| !range.contains(start));
                pieces.push((range.start, bytes));
            }
            pieces.sort_unstable_by_key(|(start, _)| *start);
        }
        Ok(Fetched(Arc::new(pieces)))
    }

    /// Checks all blocks that lie wholly in the bytes, unless they were found good; keeps those of remote files.
    fn check(&self, file: &FileMeta, footer: &Footer, start: u64, bytes: &Bytes, keep: bool) -> Result<()> {
        let end = start + bytes.len() as u64;
        for block in start.div_ceil(BLOCK_BYTES)..end.div_ceil(BLOCK_BYTES) {
            let from = block * BLOCK_BYTES;
            let to = (from + BLOCK_BYTES).min(footer.data_end());
            if to > end {
                break;
            }
            let content = &bytes[(from - start) as usize..(to - start) as usize];
            if keep || !footer.is_good(block) {
                footer.check_block(file, block, content)?;
            }
            if keep {
                // A copy, or each block would keep the whole read in memory.
                let key = (self.meta.id, kind_number(&file.kind), block as u32);
                self.cache().blocks.insert(key, Bytes::copy_from_slice(content), content.len() as u64);
            }
        }
        Ok(())
    }

    /// Reads all of a small file in one go, and checks it; nothing of it is cached.
    pub(super) async fn read_whole(&self, file: &FileMeta, stats: &ReadStats) -> Result<(Footer, Vec<RecordBatch>)> {
        let all = 0..file.bytes;
        let read = self.io().read(&file.key, self.meta.place, std::slice::from_ref(&all)).await?;
        let bytes = read.into_iter().next().filter(|bytes| bytes.len() as u64 == file.bytes);
        let bytes = bytes.ok_or_else(|| damaged(&file.key, "it is shorter than it was written"))?;
        stats::add(&stats.objects_read, 1);
        stats::add(bytes_counter(&file.kind, stats), bytes.len() as u64);
        let data_end = file.bytes.checked_sub(file.tail_len);
        let data_end = data_end.ok_or_else(|| damaged(&file.key, "its sizes do not fit"))? as usize;
        let footer = Footer::parse(file, &bytes.slice(data_end..))?;
        for (block, content) in bytes[..data_end].chunks(BLOCK_BYTES as usize).enumerate() {
            footer.check_block(file, block as u64, content)?;
        }
        let failed = |e: ParquetError| damaged(&file.key, "its rows cannot be decoded").with_source(e);
        let fetched = Fetched(Arc::new(vec![(0, bytes)]));
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(fetched, footer.arrow(file)?.clone())
            .with_batch_size(64 * 1024)
            .build()
            .map_err(failed)?;
        let batches = reader.map(|b| b.map_err(|e| failed(e.into()))).collect::<Result<Vec<_>>>()?;
        Ok((footer, batches))
    }

    /// Reads rows of a file as batches; `rows` ascending and disjoint, `columns` by name (none: all). Only the pages
    /// that hold them are fetched.
    #[allow(clippy::too_many_arguments, reason = "what to read, of where, for whom")]
    pub(super) async fn read_batches(
        &self,
        file: &FileMeta,
        footer: &Footer,
        rows: &[Range<u64>],
        columns: Option<&[&str]>,
        batch_rows: usize,
        purpose: Purpose,
        stats: &ReadStats,
    ) -> Result<Vec<RecordBatch>> {
        let arrow = footer.arrow(file)?;
        self.read_batches_as(file, footer, arrow, rows, columns, batch_rows, purpose, stats, Ok).await
    }

    /// The same with columns of the types that `arrow` says, each batch made into what it is wanted as before the next is
    /// decoded.
    #[allow(clippy::too_many_arguments, reason = "what to read, of where, as what, for whom")]
    pub(super) async fn read_batches_as<T>(
        &self,
        file: &FileMeta,
        footer: &Footer,
        arrow: &ArrowReaderMetadata,
        rows: &[Range<u64>],
        columns: Option<&[&str]>,
        batch_rows: usize,
        purpose: Purpose,
        stats: &ReadStats,
        make: impl Fn(RecordBatch) -> Result<T> + Send,
    ) -> Result<Vec<T>> {
        let schema = footer.metadata().file_metadata().schema_descr();
        let wanted_column = |c: usize| {
            let column = schema.column(c);
            let root = column.path().parts().first().map_or("", String::as_str);
            columns.is_none_or(|list| list.contains(&root))
        };
        let leaves: Vec<usize> = (0..schema.num_columns()).filter(|&c| wanted_column(c)).collect();
        let (mut ranges, mut groups, mut selected, mut base, mut pages) = (Vec::new(), Vec::new(), Vec::new(), 0u64, 0);
        for (group, bounds) in footer.group_starts().windows(2).enumerate() {
            let cut = |r: &Range<u64>| r.start.max(bounds[0])..r.end.min(bounds[1]);
            let here: Vec<_> = rows.iter().map(cut).filter(|r| r.start < r.end).collect();
            if here.is_empty() {
                continue;
            }
            for &column in &leaves {
                let (chunk_start, _) = footer.metadata().row_group(group).column(column).byte_range();
                let locations = footer.page_locations(group, column);
                if let Some(first) = locations.first().filter(|p| p.offset as u64 > chunk_start) {
                    ranges.push(chunk_start..first.offset as u64);
                }
                let mut next = 0;
                for r in &here {
                    let (from, to) = (r.start - bounds[0], r.end - bounds[0]);
                    let first = locations.partition_point(|p| p.first_row_index as u64 <= from).saturating_sub(1);
                    for page in locations.iter().enumerate().skip(first.max(next)) {
                        if page.1.first_row_index as u64 >= to {
                            break;
                        }
                        ranges.push(page.1.offset as u64..page.1.offset as u64 + page.1.compressed_page_size as u64);
                        next = page.0 + 1;
                        pages += 1;
                    }
                }
            }
            groups.push(group);
            selected.extend(
                here.iter().map(|r| (base + r.start - bounds[0]) as usize..(base + r.end - bounds[0]) as usize),
            );
            base += bounds[1] - bounds[0];
        }
        if !is_index(&file.kind) {
            stats::add(&stats.pages_read, pages);
        }
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let fetched = self.fetch(file, footer, ranges, purpose, stats).await?;
        let failed = |e: ParquetError| damaged(&file.key, "its rows cannot be decoded").with_source(e);
        let selection = RowSelection::from_consecutive_ranges(selected.into_iter(), base as usize);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(fetched, arrow.clone())
            .with_row_groups(groups)
            .with_projection(ProjectionMask::leaves(schema, leaves))
            .with_row_selection(selection)
            .with_row_selection_policy(RowSelectionPolicy::Selectors)
            .with_batch_size(batch_rows)
            .build()
            .map_err(failed)?;
        reader.map(|b| b.map_err(|e| failed(e.into())).and_then(&make)).collect()
    }
}
