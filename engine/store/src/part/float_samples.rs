//! Reads `.samples`: finds the pages that hold given row ranges of series, and decodes them into vectors.
//!
//! There is one fetch per file, then each column is decoded straight into a vector, without Arrow arrays or row
//! selections. A page with the same exponent in all rows, or without any double, is known from the page index and not
//! read at all.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use quiver_types::{MillisRange, ReadStats, read_stats};

use super::byte_ranges::{FetchedRanges, Purpose};
use super::decimal;
use super::footer::{Footer, damaged};
use super::reader::Part;
use super::{FileMeta, SeriesRows};
use crate::error::{Error, Result};
use crate::series_run::FloatRun;

/// Rows that a stream decodes at once.
const CHUNK_ROWS: u64 = 256 * 1024;
/// Rows that a stream fetches at once: about 5 MB.
const FETCH_ROWS: u64 = 4 << 20;

/// Column indexes of a `.samples` file.
#[derive(Debug, Clone, Copy)]
struct Columns {
    ts: usize,
    exponent: usize,
    numerator: usize,
    double: usize,
    start: Option<usize>,
}

/// Rows of one series within one row group.
#[derive(Debug, Clone)]
struct Segment {
    wanted: usize,
    group: usize,
    rows: Range<usize>,
}

/// A samples file with its footer, ready for reading.
#[derive(Debug, Clone)]
struct Samples<'a> {
    file: &'a FileMeta,
    footer: &'a Footer,
    columns: Columns,
}

/// Whether the start times of samples are read beside their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartTimes {
    /// They are read.
    Read,
    /// They stay in the file: no sample has one in the result.
    Skip,
}

impl Part {
    /// Reads the float samples of series within a time range. Returns one run per entry of `wanted`; `wanted` must be
    /// ascending row ranges (from [`super::PartSeries::samples`]).
    ///
    /// # Errors
    /// Damaged: a file is damaged or gone. Unavailable: the store does not answer.
    pub async fn read_floats(
        &self,
        wanted: &[SeriesRows],
        range: MillisRange,
        starts: StartTimes,
        stats: &ReadStats,
    ) -> Result<Vec<FloatRun>> {
        let mut out = vec![FloatRun::default(); wanted.len()];
        let Some(file) = self.meta.file("samples").filter(|_| wanted.iter().any(|w| w.rows > 0)) else {
            return Ok(out);
        };
        let footer = self.footer(file, stats).await?;
        read_stats::add(&stats.pages_total, footer.pages());
        let samples = Samples::new(file, &footer, starts)?;
        let segments = samples.segments(wanted, range)?;
        let ranges = samples.ranges(&segments, Purpose::Query, stats);
        let fetched = Arc::new(self.fetch(file, &footer, ranges, Purpose::Query, stats).await?);
        samples.decode(&segments, &fetched, range, &mut out)?;
        read_stats::add(&stats.samples, out.iter().map(|r| r.len() as u64).sum());
        Ok(out)
    }

    /// Tells whether any sample has a start time; few clients send them.
    ///
    /// # Errors
    /// As [`Part::read_floats`].
    pub(crate) async fn has_start_times(&self, stats: &ReadStats) -> Result<bool> {
        let Some(file) = self.meta.file("samples") else { return Ok(false) };
        Ok(self.footer(file, stats).await?.column("start_ts").is_some())
    }
}

/// Streams all float samples of many series to a background job, in the order of `wanted`, leaving out series without
/// samples. Memory use stays at a few MB for any number of series. A series comes in one piece, with its start times.
#[derive(Debug)]
pub(super) struct FloatChunks {
    part: Arc<Part>,
    wanted: Vec<SeriesRows>,
    stats: Arc<ReadStats>,
    /// Entries of `wanted` before this one have been decoded.
    next: usize,
    /// Fetched bytes, which suffice for the entries before this one.
    fetched: Option<(usize, Arc<FetchedRanges>)>,
    ready: VecDeque<(usize, FloatRun)>,
}

impl FloatChunks {
    pub(super) fn new(part: Arc<Part>, wanted: Vec<SeriesRows>, stats: Arc<ReadStats>) -> Self {
        Self { part, wanted, stats, next: 0, fetched: None, ready: VecDeque::new() }
    }

    /// The next series: its index in `wanted`, and its samples. `None` at the end.
    ///
    /// # Errors
    /// As [`Part::read_floats`].
    pub(super) async fn next(&mut self) -> Result<Option<(usize, FloatRun)>> {
        loop {
            if let Some(run) = self.ready.pop_front() {
                return Ok(Some(run));
            }
            if self.next == self.wanted.len() {
                return Ok(None);
            }
            self.decode_chunk().await?;
        }
    }

    async fn decode_chunk(&mut self) -> Result<()> {
        let Some(file) = self.part.meta.file("samples") else {
            self.next = self.wanted.len();
            return Ok(());
        };
        let footer = self.part.footer(file, &self.stats).await?;
        if self.next == 0 {
            read_stats::add(&self.stats.pages_total, footer.pages());
        }
        let samples = Samples::new(file, &footer, StartTimes::Read)?;
        let fetched = match &self.fetched {
            Some((end, fetched)) if *end > self.next => Arc::clone(fetched),
            _ => {
                let end = self.entries_of(FETCH_ROWS, self.wanted.len());
                let segments = samples.segments(&self.wanted[self.next..end], MillisRange::ALL)?;
                let ranges = samples.ranges(&segments, Purpose::Job, &self.stats);
                let fetched = Arc::new(self.part.fetch(file, &footer, ranges, Purpose::Job, &self.stats).await?);
                self.fetched = Some((end, Arc::clone(&fetched)));
                fetched
            }
        };
        let end = self.entries_of(CHUNK_ROWS, self.fetched.as_ref().map_or(self.wanted.len(), |(end, _)| *end));
        let wanted = &self.wanted[self.next..end];
        let segments = samples.segments(wanted, MillisRange::ALL)?;
        let mut runs = vec![FloatRun::default(); wanted.len()];
        samples.decode(&segments, &fetched, MillisRange::ALL, &mut runs)?;
        read_stats::add(&self.stats.samples, runs.iter().map(|r| r.len() as u64).sum());
        let first = self.next;
        self.ready.extend(runs.into_iter().enumerate().filter(|(_, r)| !r.is_empty()).map(|(i, r)| (first + i, r)));
        self.next = end;
        Ok(())
    }

    /// End of the entries from `next` on that have at most this many rows; at least one entry.
    fn entries_of(&self, rows_max: u64, end: usize) -> usize {
        let mut rows = 0;
        let fits = self.wanted[self.next..end].iter().take_while(|w| {
            rows += w.rows;
            rows <= rows_max
        });
        self.next + fits.count().max(1)
    }
}

impl<'a> Samples<'a> {
    fn new(file: &'a FileMeta, footer: &'a Footer, starts: StartTimes) -> Result<Self> {
        let column = |name: &str| footer.column(name).ok_or_else(|| damaged(&file.key, "it lacks a column"));
        let columns = Columns {
            ts: column("ts")?,
            exponent: column("ve")?,
            numerator: column("vi")?,
            double: column("vf")?,
            start: if starts == StartTimes::Read { footer.column("start_ts") } else { None },
        };
        Ok(Self { file, footer, columns })
    }

    fn failed(&self, error: ParquetError) -> Error {
        damaged(&self.file.key, "its samples cannot be decoded").with_source(error)
    }

    /// Splits row ranges at row groups, and trims them to pages that may hold times of the range.
    fn segments(&self, wanted: &[SeriesRows], range: MillisRange) -> Result<Vec<Segment>> {
        let starts = self.footer.group_starts();
        let mut out = Vec::with_capacity(wanted.len());
        let mut before = 0;
        for (i, w) in wanted.iter().enumerate() {
            let end = w.first + w.rows;
            if w.first < before || end > self.footer.rows() {
                return Err(Error::internal(format!(
                    "row ranges of `{}` are not ascending or not its own",
                    self.file.key
                )));
            }
            before = end;
            let mut row = w.first;
            while row < end {
                let group = starts.partition_point(|&s| s <= row) - 1;
                let group_end = end.min(starts[group + 1]);
                let rows = (row - starts[group]) as usize..(group_end - starts[group]) as usize;
                let rows = self.prune_by_time(group, rows, range);
                if !rows.is_empty() {
                    out.push(Segment { wanted: i, group, rows });
                }
                row = group_end;
            }
        }
        Ok(out)
    }

    /// Drops leading and trailing pages whose times are outside the range. Only pages completely within the rows count:
    /// the bounds of others may come from another series.
    fn prune_by_time(&self, group: usize, mut rows: Range<usize>, range: MillisRange) -> Range<usize> {
        let Some(ColumnIndexMetaData::INT64(index)) = self.column_index(group, self.columns.ts) else { return rows };
        let locations = self.footer.page_locations(group, self.columns.ts);
        let first = locations.partition_point(|p| (p.first_row_index as usize) < rows.start);
        let end = locations.partition_point(|p| (p.first_row_index as usize) < rows.end);
        // The page at `end - 1` may reach beyond the rows.
        for page in first..end {
            let page_start = locations[page].first_row_index as usize;
            let page_end = locations.get(page + 1).map_or(rows.end, |p| p.first_row_index as usize);
            if page_end > rows.end || (page + 1 == locations.len() && !self.ends_group(group, rows.end)) {
                break;
            }
            let (Some(&min), Some(&max)) = (index.min_value(page), index.max_value(page)) else { break };
            if min > range.max {
                rows.end = page_start;
                break;
            }
            if min <= range.min {
                rows.start = page_start;
            }
            if max >= range.max {
                rows.end = page_end;
                break;
            }
        }
        rows
    }

    fn ends_group(&self, group: usize, row: usize) -> bool {
        let starts = self.footer.group_starts();
        starts[group] + row as u64 == starts[group + 1]
    }

    fn column_index(&self, group: usize, column: usize) -> Option<&ColumnIndexMetaData> {
        self.footer.metadata().column_index()?.get(group)?.get(column)
    }

    /// Indexes of the pages of a column that hold rows of a row group.
    fn pages(&self, group: usize, column: usize, rows: &Range<usize>) -> Range<usize> {
        let locations = self.footer.page_locations(group, column);
        let first = locations.partition_point(|p| p.first_row_index as usize <= rows.start).saturating_sub(1);
        first..first + locations[first..].partition_point(|p| (p.first_row_index as usize) < rows.end)
    }

    /// The exponent of a series, if the page index tells it.
    fn known_exponent(&self, group: usize, row: usize) -> Option<i32> {
        let Some(ColumnIndexMetaData::INT32(index)) = self.column_index(group, self.columns.exponent) else {
            return None;
        };
        let page = self.pages(group, self.columns.exponent, &(row..row + 1)).start;
        let (min, max) = (index.min_value(page)?, index.max_value(page)?);
        (min == max).then_some(*min)
    }

    /// Tells whether a page of an optional column contains only nulls.
    fn is_null_page(&self, group: usize, column: usize, page: usize) -> bool {
        self.column_index(group, column).is_some_and(|index| match index {
            ColumnIndexMetaData::NONE => false,
            index => index.is_null_page(page),
        })
    }

    /// Byte ranges of all pages that the segments need; also counts them for the statistics.
    fn ranges(&self, segments: &[Segment], purpose: Purpose, stats: &ReadStats) -> Vec<Range<u64>> {
        let mut out = Vec::new();
        let Columns { ts, exponent, numerator, double, start } = self.columns;
        let mut pages_read = 0;
        for group in segments.chunk_by(|a, b| a.group == b.group) {
            let number = group[0].group;
            let mut add = |column: usize, nullable: bool, rows: &mut dyn Iterator<Item = Range<usize>>| {
                let locations = self.footer.page_locations(number, column);
                let mut next = 0;
                for rows in rows {
                    let pages = self.pages(number, column, &rows);
                    for (page, location) in locations.iter().enumerate().take(pages.end).skip(pages.start.max(next)) {
                        if nullable && self.is_null_page(number, column, page) {
                            continue;
                        }
                        out.push(
                            location.offset as u64..(location.offset + i64::from(location.compressed_page_size)) as u64,
                        );
                        pages_read += 1;
                    }
                    next = next.max(pages.end);
                }
            };
            add(ts, false, &mut group.iter().map(|s| s.rows.clone()));
            add(numerator, false, &mut group.iter().map(|s| s.rows.clone()));
            add(double, true, &mut group.iter().map(|s| s.rows.clone()));
            if let Some(start) = start {
                add(start, true, &mut group.iter().map(|s| s.rows.clone()));
            }
            let mut unknown =
                group.iter().map(|s| s.rows.start).filter(|&r| self.known_exponent(number, r).is_none()).peekable();
            if unknown.peek().is_some() {
                add(exponent, false, &mut unknown.map(|r| r..r + 1));
                let (chunk_start, _) = self.footer.metadata().row_group(number).column(exponent).byte_range();
                if let Some(first) = self.footer.page_locations(number, exponent).first() {
                    out.push(chunk_start..first.offset as u64);
                }
            }
        }
        if purpose == Purpose::Query {
            read_stats::add(&stats.pages_read, pages_read);
        }
        out
    }

    /// Decodes segments and appends their samples within the range to the runs they belong to.
    fn decode(
        &self,
        segments: &[Segment],
        fetched: &Arc<FetchedRanges>,
        range: MillisRange,
        out: &mut [FloatRun],
    ) -> Result<()> {
        for group in segments.chunk_by(|a, b| a.group == b.group) {
            self.decode_group(group, fetched, range, out).map_err(|e| self.failed(e))?;
        }
        Ok(())
    }

    fn decode_group(
        &self,
        segments: &[Segment],
        fetched: &Arc<FetchedRanges>,
        range: MillisRange,
        out: &mut [FloatRun],
    ) -> Result<(), ParquetError> {
        let group = segments[0].group;
        // Adjacent segments are read together: if all series are wanted, a whole row group is one read.
        let mut spans: Vec<Range<usize>> = Vec::new();
        for s in segments {
            match spans.last_mut() {
                Some(last) if last.end == s.rows.start => last.end = s.rows.end,
                _ => spans.push(s.rows.clone()),
            }
        }
        let rows = spans.iter().map(ExactSizeIterator::len).sum();
        let ts = self.integers(fetched, group, self.columns.ts, &spans, rows)?;
        let numerators = self.integers(fetched, group, self.columns.numerator, &spans, rows)?;
        let exponents = self.exponents(fetched, group, segments)?;
        let doubles = self.optional::<DoubleType>(fetched, group, self.columns.double, &spans)?;
        let mut starts = Vec::new();
        if let Some(column) = self.columns.start {
            starts = vec![0; rows];
            for (row, start) in self.optional::<Int64Type>(fetched, group, column, &spans)? {
                starts[row] = start;
            }
        }
        let mut at = 0;
        let mut doubles = doubles.into_iter().peekable();
        for (segment, exponent) in segments.iter().zip(exponents) {
            let end = at + segment.rows.len();
            let power =
                decimal::power(exponent).ok_or_else(|| ParquetError::General(format!("exponent {exponent}")))?;
            let times = &ts[at..end];
            let first = at + times.partition_point(|&t| t < range.min);
            let last = at + times.partition_point(|&t| t <= range.max);
            let run = &mut out[segment.wanted];
            let before = run.values.len();
            if first < last {
                run.ts.extend_from_slice(&ts[first..last]);
                if power == 1.0 {
                    run.values.extend(numerators[first..last].iter().map(|&n| n as f64));
                } else {
                    run.values.extend(numerators[first..last].iter().map(|&n| n as f64 / power));
                }
                if let Some(starts) = starts.get(first..last) {
                    run.start_ts.extend_from_slice(starts);
                }
            }
            while let Some((row, v)) = doubles.next_if(|(row, _)| *row < end) {
                if (first..last).contains(&row) {
                    run.values[before + row - first] = v;
                }
            }
            at = end;
        }
        Ok(())
    }

    fn column_reader<T: DataType>(
        &self,
        fetched: &Arc<FetchedRanges>,
        group: usize,
        column: usize,
    ) -> Result<ColumnReaderImpl<T>, ParquetError> {
        let metadata = self.footer.metadata().row_group(group);
        let chunk = metadata.column(column);
        let locations = self.footer.page_locations(group, column).to_vec();
        let pages =
            SerializedPageReader::new(Arc::clone(fetched), chunk, metadata.num_rows() as usize, Some(locations))?;
        Ok(ColumnReaderImpl::new(chunk.column_descr_ptr(), Box::new(pages)))
    }

    /// Decodes a non-null integer column at some row ranges, concatenated.
    fn integers(
        &self,
        fetched: &Arc<FetchedRanges>,
        group: usize,
        column: usize,
        spans: &[Range<usize>],
        rows: usize,
    ) -> Result<Vec<i64>, ParquetError> {
        let mut reader = self.column_reader::<Int64Type>(fetched, group, column)?;
        let mut out = Vec::with_capacity(rows);
        let mut at = 0;
        for span in spans {
            skip(&mut reader, span.start - at)?;
            reader.read_records(span.len(), None, None, &mut out)?;
            at = span.end;
        }
        if out.len() == rows { Ok(out) } else { Err(ParquetError::General("too few rows".to_owned())) }
    }

    /// The exponent of each segment, read from its first row.
    fn exponents(
        &self,
        fetched: &Arc<FetchedRanges>,
        group: usize,
        segments: &[Segment],
    ) -> Result<Vec<i32>, ParquetError> {
        let mut out = Vec::with_capacity(segments.len());
        let mut reader = None;
        let mut at = 0;
        for segment in segments {
            let row = segment.rows.start;
            if let Some(known) = self.known_exponent(group, row) {
                out.push(known);
                continue;
            }
            let reader = match &mut reader {
                Some(reader) => reader,
                none => none.insert(self.column_reader::<Int32Type>(fetched, group, self.columns.exponent)?),
            };
            skip(reader, row - at)?;
            reader.read_records(1, None, None, &mut out)?;
            at = row + 1;
        }
        if out.len() == segments.len() { Ok(out) } else { Err(ParquetError::General("too few exponents".to_owned())) }
    }

    /// Decodes the non-null values of an optional column, each with its position in the decoded rows. Pages of nulls
    /// are not touched.
    fn optional<T: DataType>(
        &self,
        fetched: &Arc<FetchedRanges>,
        group: usize,
        column: usize,
        spans: &[Range<usize>],
    ) -> Result<Vec<(usize, T::T)>, ParquetError>
    where
        T::T: Clone,
    {
        let locations = self.footer.page_locations(group, column);
        let mut out = Vec::new();
        let mut reader = None;
        let (mut at, mut base) = (0, 0);
        let (mut levels, mut values) = (Vec::new(), Vec::new());
        for span in spans {
            for page in self.pages(group, column, span) {
                if self.is_null_page(group, column, page) {
                    continue;
                }
                let page_end = locations.get(page + 1).map_or(usize::MAX, |p| p.first_row_index as usize);
                let rows = span.start.max(locations[page].first_row_index as usize)..span.end.min(page_end);
                let reader = match &mut reader {
                    Some(reader) => reader,
                    none => none.insert(self.column_reader::<T>(fetched, group, column)?),
                };
                skip(reader, rows.start - at)?;
                levels.clear();
                values.clear();
                reader.read_records(rows.len(), Some(&mut levels), None, &mut values)?;
                at = rows.end;
                let there = levels.iter().enumerate().filter(|(_, level)| **level != 0).map(|(i, _)| i);
                let first = base + rows.start - span.start;
                out.extend(there.zip(values.drain(..)).map(|(i, v)| (first + i, v)));
            }
            base += span.len();
        }
        Ok(out)
    }
}

/// Skips rows; pages that are skipped entirely are not read.
fn skip<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize) -> Result<(), ParquetError> {
    if rows > 0 && reader.skip_records(rows)? != rows {
        return Err(ParquetError::General("too few rows".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
