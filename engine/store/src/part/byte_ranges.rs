//! Fetches byte ranges of a file: widens them to whole blocks where those are not yet verified, merges ranges that are
//! close together, verifies checksums, and holds the bytes for the decoders. Blocks of remote files are taken from the
//! cache if possible.

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
use quiver_types::{ReadStats, read_stats};

use super::checksum::BLOCK_BYTES;
use super::footer::{Footer, damaged};
use super::reader::Part;
use super::{FileMeta, kind_number};
use crate::error::Result;
use crate::threads::leave_callers_thread;

/// Ranges with a smaller gap than this are read in one request.
const GAP_BYTES_MAX: u64 = 64 * 1024;

/// What a read is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A query: counted in the statistics, and blocks of remote files are cached.
    Query,
    /// A background job, which reads everything once: nothing is cached.
    Job,
}

/// Which rows of a file to read, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Selection<'a> {
    /// Ascending and disjoint.
    pub(super) rows: &'a [Range<u64>],
    /// Names of columns; `None`: all.
    pub(super) columns: Option<&'a [&'a str]>,
    /// Most rows of a batch.
    pub(super) batch_rows: usize,
    /// The types of the columns; `None`: those of the file.
    pub(super) arrow: Option<&'a ArrowReaderMetadata>,
}

impl<'a> Selection<'a> {
    /// These rows with all columns.
    pub(super) fn of(rows: &'a [Range<u64>], batch_rows: usize) -> Self {
        Self { rows, columns: None, batch_rows, arrow: None }
    }

    /// The same rows with these columns only.
    pub(super) fn only(self, columns: &'a [&'a str]) -> Self {
        Self { columns: Some(columns), ..self }
    }
}

/// Fetched pieces of a file, with the offset of each, ascending.
#[derive(Debug, Clone)]
pub(super) struct FetchedRanges(Arc<Vec<(u64, Bytes)>>);

impl FetchedRanges {
    fn slice(&self, start: u64, len: usize) -> Result<Bytes, ParquetError> {
        let missing = || ParquetError::General(format!("{len} bytes at {start} were not fetched"));
        let mut at = self.0.partition_point(|(s, _)| *s <= start).checked_sub(1).ok_or_else(missing)?;
        let (piece_start, piece) = &self.0[at];
        let from = (start - piece_start) as usize;
        if from + len <= piece.len() {
            return Ok(piece.slice(from..from + len));
        }
        // A requested range spans several pieces only if some of them came from the block cache.
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

impl Length for FetchedRanges {
    fn len(&self) -> u64 {
        self.0.last().map_or(0, |(start, bytes)| start + bytes.len() as u64)
    }
}

impl ChunkReader for FetchedRanges {
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

/// Tells whether a kind of file serves to locate data, for the statistics.
fn is_index(kind: &str) -> bool {
    matches!(kind, "series" | "index" | "streams" | "rollup" | "filters" | "labels" | "traces")
}

/// The counter of bytes read for a kind of file.
fn bytes_counter<'a>(kind: &str, stats: &'a ReadStats) -> &'a AtomicU64 {
    if is_index(kind) { &stats.index_bytes_read } else { &stats.bytes_read }
}

impl Part {
    /// Fetches byte ranges of a file's row groups. `wanted` may be in any order.
    pub(super) async fn fetch(
        &self,
        file: &FileMeta,
        footer: &Footer,
        mut wanted: Vec<Range<u64>>,
        purpose: Purpose,
        stats: &ReadStats,
    ) -> Result<FetchedRanges> {
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
            read_stats::add(&stats.cache_hits, pieces.len() as u64);
            read_stats::add(&stats.cache_misses, missing.len() as u64);
            // A gap that happens to be cached is not worth a second request either.
            merge(missing, GAP_BYTES_MAX)
        } else {
            merge(whole, GAP_BYTES_MAX)
        };
        if !missing.is_empty() {
            leave_callers_thread().await;
            let read = self.io().read(&file.key, self.meta.place, &missing).await?;
            read_stats::add(&stats.objects_read, 1);
            for (range, bytes) in missing.iter().zip(read) {
                if bytes.len() as u64 != range.end - range.start {
                    return Err(damaged(&file.key, "it is shorter than it was written"));
                }
                read_stats::add(bytes_counter(&file.kind, stats), bytes.len() as u64);
                self.check(file, footer, range.start, &bytes, remote && purpose == Purpose::Query)?;
                // A cached block may lie inside a gap of this range, which was then read again.
                pieces.retain(|(start, _)| !range.contains(start));
                pieces.push((range.start, bytes));
            }
            pieces.sort_unstable_by_key(|(start, _)| *start);
        }
        Ok(FetchedRanges(Arc::new(pieces)))
    }

    /// Verifies all blocks that lie completely within the bytes, unless they were verified before. With `keep`, caches
    /// them.
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
                // Copied, because a slice would keep the whole read in memory.
                let key = (self.meta.id, kind_number(&file.kind), block as u32);
                self.cache().blocks.insert(key, Bytes::copy_from_slice(content), content.len() as u64);
            }
        }
        Ok(())
    }

    /// Reads and verifies a small file in one request, bypassing the cache.
    pub(super) async fn read_whole(&self, file: &FileMeta, stats: &ReadStats) -> Result<(Footer, Vec<RecordBatch>)> {
        let all = 0..file.bytes;
        leave_callers_thread().await;
        let read = self.io().read(&file.key, self.meta.place, std::slice::from_ref(&all)).await?;
        let bytes = read.into_iter().next().filter(|bytes| bytes.len() as u64 == file.bytes);
        let bytes = bytes.ok_or_else(|| damaged(&file.key, "it is shorter than it was written"))?;
        read_stats::add(&stats.objects_read, 1);
        read_stats::add(bytes_counter(&file.kind, stats), bytes.len() as u64);
        let data_end = file.bytes.checked_sub(file.tail_len);
        let data_end = data_end.ok_or_else(|| damaged(&file.key, "its sizes do not fit"))? as usize;
        let footer = Footer::parse(file, &bytes.slice(data_end..))?;
        for (block, content) in bytes[..data_end].chunks(BLOCK_BYTES as usize).enumerate() {
            footer.check_block(file, block as u64, content)?;
        }
        let failed = |e: ParquetError| damaged(&file.key, "its rows cannot be decoded").with_source(e);
        let fetched = FetchedRanges(Arc::new(vec![(0, bytes)]));
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(fetched, footer.arrow(file)?.clone())
            .with_batch_size(64 * 1024)
            .build()
            .map_err(failed)?;
        let batches = reader.map(|b| b.map_err(|e| failed(e.into()))).collect::<Result<Vec<_>>>()?;
        Ok((footer, batches))
    }

    /// Reads rows of a file as batches, fetching only the pages that hold them.
    pub(super) async fn read_batches(
        &self,
        file: &FileMeta,
        footer: &Footer,
        selection: Selection<'_>,
        purpose: Purpose,
        stats: &ReadStats,
    ) -> Result<Vec<RecordBatch>> {
        self.decode(file, footer, selection, purpose, stats).await?.collect()
    }

    /// Like `read_batches`. A batch is decoded when it is taken, so that the caller may have only one in memory.
    pub(super) async fn decode(
        &self,
        file: &FileMeta,
        footer: &Footer,
        selection: Selection<'_>,
        purpose: Purpose,
        stats: &ReadStats,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
        let Selection { rows, columns, batch_rows, arrow } = selection;
        let arrow = if let Some(arrow) = arrow { arrow } else { footer.arrow(file)? };
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
                let of_group = here.iter().map(|r| r.start - bounds[0]..r.end - bounds[0]);
                pages += footer.add_pages(group, column, of_group, &mut ranges);
            }
            groups.push(group);
            selected.extend(
                here.iter().map(|r| (base + r.start - bounds[0]) as usize..(base + r.end - bounds[0]) as usize),
            );
            base += bounds[1] - bounds[0];
        }
        if !is_index(&file.kind) {
            read_stats::add(&stats.pages_read, pages);
        }
        let failed = move |e: ParquetError| damaged(&file.key, "its rows cannot be decoded").with_source(e);
        let reader = if groups.is_empty() {
            None
        } else {
            let fetched = self.fetch(file, footer, ranges, purpose, stats).await?;
            let selection = RowSelection::from_consecutive_ranges(selected.into_iter(), base as usize);
            let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(fetched, arrow.clone())
                .with_row_groups(groups)
                .with_projection(ProjectionMask::leaves(schema, leaves))
                .with_row_selection(selection)
                .with_row_selection_policy(RowSelectionPolicy::Selectors)
                .with_batch_size(batch_rows);
            Some(reader.build().map_err(failed)?)
        };
        Ok(reader.into_iter().flatten().map(move |batch| batch.map_err(|e| failed(e.into()))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

    use std::io::Read as _;

    use arrow::array::AsArray as _;
    use arrow::datatypes::{TimestampMillisecondType, UInt32Type};

    use super::super::KINDS;
    use super::super::tests::{block_on, open, series, small, write};
    use super::*;

    fn fetched(pieces: &[(u64, &[u8])]) -> FetchedRanges {
        FetchedRanges(Arc::new(pieces.iter().map(|(start, bytes)| (*start, Bytes::copy_from_slice(bytes))).collect()))
    }

    #[test]
    fn bytes_are_found_by_their_place_in_the_file() {
        let held = fetched(&[(10, b"abcd"), (14, b"efg"), (30, b"xyz")]);
        let check = |start: u64, len: usize, expected: &[u8]| {
            assert_eq!(held.get_bytes(start, len).unwrap(), expected, "{len} at {start}");
        };
        check(10, 4, b"abcd");
        check(12, 1, b"c");
        check(13, 0, b"");
        // Over the end of a piece into the one that follows.
        check(12, 3, b"cde");
        check(11, 6, b"bcdefg");
        check(30, 3, b"xyz");
        assert_eq!(held.len(), 33);
        assert_eq!(fetched(&[]).len(), 0);
        for (start, len) in [(9, 1), (16, 2), (17, 1), (20, 1), (29, 2), (32, 2), (33, 1)] {
            let error = held.get_bytes(start, len).unwrap_err().to_string();
            assert!(error.contains(&format!("{len} bytes at {start} were not fetched")), "{error}");
        }
    }

    #[test]
    fn a_reader_goes_to_the_end_of_its_piece() {
        let held = fetched(&[(10, b"abcd"), (14, b"efg"), (30, b"xyz")]);
        let read = |start: u64| {
            let mut out = Vec::new();
            held.get_read(start).map(|mut reader| reader.read_to_end(&mut out).unwrap()).map(|_| out)
        };
        assert_eq!(read(12).unwrap(), b"cd");
        assert_eq!(read(14).unwrap(), b"efg");
        assert_eq!(read(32).unwrap(), b"z");
        for start in [9, 17, 29, 33] {
            let error = read(start).unwrap_err().to_string();
            assert!(error.contains(&format!("byte {start} was not fetched")), "{error}");
        }
    }

    #[test]
    fn ranges_are_merged_over_gaps_that_are_worth_it() {
        let check = |ranges: &[Range<u64>], gap: u64, expected: &[Range<u64>]| {
            assert_eq!(merge(ranges.to_vec(), gap), expected, "{ranges:?} over {gap}");
        };
        check(&[], 10, &[]);
        check(&[0..5, 5..9], 0, &[0..9]);
        check(&[0..5, 6..9], 0, &[0..5, 6..9]);
        check(&[0..5, 6..9], 1, &[0..9]);
        check(&[0..5, 7..9], 1, &[0..5, 7..9]);
        check(&[0..10, 2..4, 3..12, 40..41], 5, &[0..12, 40..41]);
        check(&[3..3, 3..8, 3..4], 0, &[3..8]);
    }

    #[test]
    fn each_kind_of_file_counts_where_it_belongs() {
        let mut numbers: Vec<u8> = KINDS.iter().map(|kind| kind_number(kind)).collect();
        numbers.dedup();
        assert_eq!(numbers, (0..KINDS.len() as u8).collect::<Vec<_>>());
        assert_eq!(kind_number("other"), KINDS.len() as u8);
        let stats = ReadStats::default();
        for kind in KINDS {
            let data = ["samples", "histograms", "exemplars", "rows"].contains(&kind);
            let counter = if data { &stats.bytes_read } else { &stats.index_bytes_read };
            assert!(std::ptr::eq(bytes_counter(kind, &stats), counter), "{kind}");
        }
    }

    /// Rows of each of three series, of which a page holds the end of one and the beginning of the next.
    const ROWS: u64 = 9000;

    #[test]
    fn rows_come_back_whatever_ranges_are_asked() {
        let dir = tempfile::tempdir().unwrap();
        let runs = ["a", "b", "c"].map(|name| {
            let mut run = series(&[("__name__", name)], "");
            (0..ROWS as i64).for_each(|i| run.samples.push(i, i as f64, 0));
            run
        });
        let part = open(dir.path(), &write(dir.path(), 0, &runs));
        let file = part.meta.file("samples").unwrap();
        let stats = ReadStats::default();
        let footer = block_on(part.footer(file, &stats)).unwrap();
        let read = |rows: &[Range<u64>], batch_rows: usize, stats: &ReadStats| {
            let columns = Some(&["series", "ts"][..]);
            let selection = Selection { columns, ..Selection::of(rows, batch_rows) };
            block_on(part.read_batches(file, &footer, selection, Purpose::Query, stats)).unwrap()
        };
        let lists: [&[Range<u64>]; 8] = [
            &[],
            &[0..1],
            &[26_999..27_000],
            &[0..27_000],
            &[8191..8193],
            &[0..10, 10..20, 9000..9001],
            &[4000..12_000, 12_500..12_501, 26_000..26_001],
            &[17_999..18_001, 18_001..18_002],
        ];
        for rows in lists {
            let expected: Vec<(u32, i64)> =
                rows.iter().cloned().flatten().map(|row| ((row / ROWS) as u32, (row % ROWS) as i64)).collect();
            for batch_rows in [1000, 100_000] {
                let batches = read(rows, batch_rows, &stats);
                assert!(batches.iter().all(|b| b.num_rows() <= batch_rows && b.num_columns() == 2));
                let found = batches.iter().flat_map(|batch| {
                    let series = batch["series"].as_primitive::<UInt32Type>().values().to_vec();
                    series.into_iter().zip(batch["ts"].as_primitive::<TimestampMillisecondType>().values().to_vec())
                });
                assert_eq!(found.collect::<Vec<_>>(), expected, "{rows:?}");
            }
        }
        let counted = ReadStats::default();
        read(&[0..1, 3..4], 10, &counted);
        assert_eq!(read_stats::get(&counted.pages_read), 2, "one page of each column");
    }

    #[test]
    fn a_whole_file_is_what_its_ranges_are() {
        let dir = tempfile::tempdir().unwrap();
        let part = open(dir.path(), &write(dir.path(), 0, &small()));
        for file in &part.meta.files {
            let stats = ReadStats::default();
            let (footer, whole) = block_on(part.read_whole(file, &stats)).unwrap();
            assert_eq!(read_stats::get(&stats.objects_read), 1);
            assert_eq!(read_stats::get(bytes_counter(&file.kind, &stats)), file.bytes);
            let all = 0..footer.rows();
            let all = std::slice::from_ref(&all);
            let pieces =
                block_on(part.read_batches(file, &footer, Selection::of(all, 7), Purpose::Job, &stats)).unwrap();
            let pieces = arrow::compute::concat_batches(&whole[0].schema(), &pieces).unwrap();
            assert_eq!((whole.len(), &whole[0]), (1, &pieces), "{}", file.kind);
        }
        let wrong = FileMeta { tail_len: u64::MAX, ..part.meta.files[0].clone() };
        let error = block_on(part.read_whole(&wrong, &ReadStats::default())).unwrap_err();
        assert_eq!(error.message, format!("file `{}` is damaged: its sizes do not fit", wrong.key));
    }
}
