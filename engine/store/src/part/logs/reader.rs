//! Reads a log part: its streams, columns for rows of a row group, and word filters.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::concat;
use arrow::datatypes::{TimestampNanosecondType, UInt64Type};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReaderBuilder, RowSelection, RowSelectionPolicy};
use parquet::errors::ParquetError;
use quiver_types::logs::{OBSERVED_TIME, SEVERITY_NUMBER};
use quiver_types::tables::logs as table;
use quiver_types::{LabelSet, ReadStats, SeriesId, read_stats};

use super::super::byte_ranges::{FetchedRanges, Purpose, Selection};
use super::super::footer::{Footer, damaged};
use super::super::{FileMeta, Part};
use super::columns::{COLUMNS_KEY, LogColumns, Optional};
use super::metadata::{ColumnIndex, PartLogs, PartStream};
use crate::error::{Error, Result};
use crate::memtable::log_streams::LiveStream;

/// A stream with at least this many rows is long; shorter ones are read as fast as their stream is looked up.
const LONG_ROWS: u64 = 8;

#[derive(Clone, Copy)]
pub(crate) struct GroupRows<'a> {
    /// What is known of the part.
    pub(crate) logs: &'a PartLogs,
    pub(crate) group: usize,
    /// They count from the group's first row, ascending and disjoint.
    pub(crate) rows: &'a [Range<u32>],
}

fn rows_file(part: &Part) -> Result<&FileMeta> {
    part.meta.file("rows").ok_or_else(|| Error::internal(format!("part `{}` has no rows", part.meta.id)))
}

impl Part {
    /// The metadata of a log part, from the cache or read from its files.
    ///
    /// # Errors
    /// As [`Part::series`].
    pub(crate) async fn logs(&self, stats: &ReadStats) -> Result<Arc<PartLogs>> {
        if let Some(known) = self.cache().logs.get(&self.meta.id) {
            read_stats::add(&stats.cache_hits, 1);
            return Ok(known);
        }
        read_stats::add(&stats.cache_misses, 1);
        let read = Arc::new(self.read_logs(Purpose::Query, stats).await?);
        self.cache().logs.insert(self.meta.id, Arc::clone(&read), read.memory_bytes());
        Ok(read)
    }

    /// Like `logs`, without using the caches, for background jobs.
    pub(crate) async fn logs_uncached(&self) -> Result<PartLogs> {
        self.read_logs(Purpose::Job, &ReadStats::default()).await
    }

    async fn read_logs(&self, purpose: Purpose, stats: &ReadStats) -> Result<PartLogs> {
        let file = rows_file(self)?;
        let in_blocks = purpose == Purpose::Query && self.has_labels();
        let streams = async { if in_blocks { Ok(None) } else { self.read_streams(purpose, stats).await.map(Some) } };
        let (footer, streams) = futures::try_join!(self.footer(file, stats), streams)?;
        let columns = footer.value(COLUMNS_KEY).ok_or_else(|| damaged(&file.key, "its columns are not told"))?;
        let columns: LogColumns = serde_json::from_str(columns)
            .map_err(|e| damaged(&file.key, "its columns cannot be read").with_source(e))?;
        let has = Optional {
            severity: footer.column(SEVERITY_NUMBER).is_some(),
            observed: footer.column(OBSERVED_TIME).is_some(),
            overflow: footer.column(table::FIELDS).is_some(),
        };
        let group_ranges = (0..footer.group_starts().len() - 1)
            .map(|g| {
                let rows = footer.group_starts()[g]..footer.group_starts()[g + 1];
                let pages = page_times(&footer, g);
                let of_pages = pages.iter().map(|p| p.1).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
                let of_streams = || {
                    let Some(streams) = &streams else { return (i64::MIN, i64::MAX) };
                    let at = streams.partition_point(|s: &PartStream| s.rows.end <= rows.start);
                    let here = streams[at..].iter().take_while(|s| s.rows.start < rows.end);
                    here.fold((i64::MAX, i64::MIN), |(min, max), s| (min.min(s.range.0), max.max(s.range.1)))
                };
                of_pages.unwrap_or_else(of_streams)
            })
            .collect();
        let long_streams = self.meta.series.saturating_mul(LONG_ROWS) <= self.meta.rows;
        Ok(PartLogs { columns, streams, long_streams, footer, has, group_ranges })
    }

    async fn read_streams(&self, purpose: Purpose, stats: &ReadStats) -> Result<Vec<PartStream>> {
        let file = self.meta.file("streams");
        let file = file.ok_or_else(|| Error::internal(format!("part `{}` has no streams", self.meta.id)))?;
        let footer = self.footer(file, stats).await?;
        let all = 0..footer.rows();
        let read =
            self.read_batches(file, &footer, Selection::of(std::slice::from_ref(&all), 8192), purpose, stats).await?;
        let mut out = Vec::with_capacity(footer.rows() as usize);
        for batch in &read {
            streams_of(batch, &mut out).ok_or_else(|| damaged(&file.key, "its columns have other types"))?;
        }
        Ok(out)
    }

    /// Reads a column for some rows of a row group.
    ///
    /// # Errors
    /// As [`Part::series`].
    pub(crate) async fn read_log_column(
        &self,
        chosen: GroupRows<'_>,
        column: &str,
        purpose: Purpose,
        stats: &ReadStats,
    ) -> Result<ArrayRef> {
        let GroupRows { logs, group, rows } = chosen;
        let file = rows_file(self)?;
        let footer = &logs.footer;
        let missing = || damaged(&file.key, &format!("it has no column `{column}`"));
        let schema = footer.metadata().file_metadata().schema_descr();
        let is_leaf = |&c: &usize| schema.column(c).path().parts().first().is_some_and(|p| p == column);
        let leaves: Vec<usize> = (0..schema.num_columns()).filter(is_leaf).collect();
        if leaves.is_empty() {
            return Err(missing());
        }
        let mut wanted = Vec::new();
        let mut pages = 0;
        for &leaf in &leaves {
            let of_group = rows.iter().map(|range| u64::from(range.start)..u64::from(range.end));
            pages += footer.add_pages(group, leaf, of_group, &mut wanted);
        }
        read_stats::add(&stats.pages_read, pages);
        let fetched = self.fetch(file, footer, wanted, purpose, stats).await?;
        read_stats::add(&stats.values, count(rows) as u64);
        decode(file, chosen, leaves, fetched)
            .map_err(|e| damaged(&file.key, "its rows cannot be decoded").with_source(e))?
            .ok_or_else(missing)
    }

    /// The word filters of a column; `None` if it has none.
    ///
    /// # Errors
    /// As [`Part::series`].
    pub(crate) async fn log_index(&self, column: &str, stats: &ReadStats) -> Result<Option<Arc<ColumnIndex>>> {
        let Some(file) = self.meta.file("index") else { return Ok(None) };
        let key = (self.meta.id, column.to_owned());
        if let Some(known) = self.cache().words.get(&key) {
            read_stats::add(&stats.cache_hits, 1);
            return Ok(Some(known));
        }
        read_stats::add(&stats.cache_misses, 1);
        let footer = self.footer(file, stats).await?;
        let rows = index_rows(&footer, column);
        let read = self
            .read_batches(
                file,
                &footer,
                Selection::of(&rows, 1024).only(&["column", "first_row", "rows", "payload"]),
                Purpose::Query,
                stats,
            )
            .await?;
        let mut filters = Vec::new();
        for batch in &read {
            index_of(batch, column, &mut filters).ok_or_else(|| damaged(&file.key, "its columns have other types"))?;
        }
        let index = Arc::new(ColumnIndex { filters });
        self.cache().words.insert(key, Arc::clone(&index), index.memory_bytes());
        Ok(Some(index))
    }
}

fn count(rows: &[Range<u32>]) -> usize {
    rows.iter().map(ExactSizeIterator::len).sum()
}

/// Decodes rows of a row group out of the pages that hold them.
fn decode(
    file: &FileMeta,
    chosen: GroupRows<'_>,
    leaves: Vec<usize>,
    fetched: FetchedRanges,
) -> std::result::Result<Option<ArrayRef>, ParquetError> {
    let GroupRows { logs, group, rows } = chosen;
    let external = |e: Error| ParquetError::External(Box::new(e));
    let (footer, selected) = (&logs.footer, count(rows));
    let group_len = (logs.group_rows(group).end - logs.group_rows(group).start) as usize;
    let schema = footer.metadata().file_metadata().schema_descr();
    let ranges = rows.iter().map(|r| r.start as usize..r.end as usize);
    let mut builder =
        ParquetRecordBatchReaderBuilder::new_with_metadata(fetched, footer.arrow(file).map_err(external)?.clone())
            .with_row_groups(vec![group])
            .with_projection(ProjectionMask::leaves(schema, leaves))
            .with_batch_size(selected.max(1));
    if selected < group_len {
        builder = builder
            .with_row_selection(RowSelection::from_consecutive_ranges(ranges, group_len))
            .with_row_selection_policy(RowSelectionPolicy::Selectors);
    }
    let mut arrays = Vec::new();
    for batch in builder.build()? {
        arrays.push(Arc::clone(batch?.column(0)));
    }
    Ok(match arrays.len() {
        0 => None,
        1 => arrays.pop(),
        _ => Some(concat(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>())?),
    })
}

/// For each page of the time column of a row group: its first row, and the first and last time.
pub(crate) fn page_times(footer: &Footer, group: usize) -> Vec<(u32, (i64, i64))> {
    use parquet::file::page_index::column_index::ColumnIndexMetaData;
    let Some(column) = footer.column(quiver_types::logs::TIME) else { return Vec::new() };
    let index = footer.metadata().column_index().and_then(|i| i.get(group)).and_then(|g| g.get(column));
    let Some(ColumnIndexMetaData::INT64(index)) = index else { return Vec::new() };
    let locations = footer.page_locations(group, column);
    let value = |v: Option<&i64>| v.copied();
    (locations.iter().enumerate())
        .filter_map(|(at, page)| {
            let range = (value(index.min_value(at))?, value(index.max_value(at))?);
            Some((page.first_row_index as u32, range))
        })
        .collect()
}

/// For each page of a typed column of a row group: its first row, and the smallest and greatest value as numbers
/// (`None` if the page has no value).
pub(crate) fn page_numbers(footer: &Footer, group: usize, column: &str) -> Vec<(u32, Option<(f64, f64)>)> {
    use parquet::file::page_index::column_index::ColumnIndexMetaData as Index;
    let Some(at) = footer.column(column) else { return Vec::new() };
    let Some(index) = footer.metadata().column_index().and_then(|i| i.get(group)).and_then(|g| g.get(at)) else {
        return Vec::new();
    };
    let locations = footer.page_locations(group, at);
    let range = |page: usize| -> Option<Option<(f64, f64)>> {
        Some(match index {
            Index::INT64(i) => i.min_value(page).zip(i.max_value(page)).map(|(a, b)| (*a as f64, *b as f64)),
            Index::DOUBLE(i) => i.min_value(page).zip(i.max_value(page)).map(|(a, b)| (*a, *b)),
            Index::INT32(i) => {
                i.min_value(page).zip(i.max_value(page)).map(|(a, b)| (f64::from(*a as u32), f64::from(*b as u32)))
            }
            _ => return None,
        })
    };
    let all: Option<Vec<_>> =
        locations.iter().enumerate().map(|(n, page)| Some((page.first_row_index as u32, range(n)?))).collect();
    all.unwrap_or_default()
}

fn streams_of(batch: &RecordBatch, out: &mut Vec<PartStream>) -> Option<()> {
    let column = |name: &str| batch.column_by_name(name);
    let ids = column("stream_id")?.as_fixed_size_binary_opt()?;
    let labels = column("labels")?.as_map_opt()?;
    let (names, values) = (labels.keys().as_string_opt::<i32>()?, labels.values().as_string_opt::<i32>()?);
    let services = column("service")?.as_string_opt::<i32>()?;
    let first = column("first_row")?.as_primitive_opt::<UInt64Type>()?;
    let rows = column("rows")?.as_primitive_opt::<UInt64Type>()?;
    let min = column("min_time")?.as_primitive_opt::<TimestampNanosecondType>()?;
    let max = column("max_time")?.as_primitive_opt::<TimestampNanosecondType>()?;
    let mut known: Vec<Arc<str>> = Vec::new();
    for i in 0..batch.num_rows() {
        let pairs = labels.value_offsets()[i] as usize..labels.value_offsets()[i + 1] as usize;
        let labels = LabelSet::from_pairs(pairs.map(|p| (names.value(p), values.value(p))));
        let service = if let Some(known) = known.iter().find(|s| &***s == services.value(i)) {
            Arc::clone(known)
        } else {
            let new: Arc<str> = services.value(i).into();
            known.push(Arc::clone(&new));
            known.truncate(64);
            new
        };
        let id = SeriesId::from_bytes(ids.value(i).try_into().ok()?);
        out.push(PartStream {
            stream: Arc::new(LiveStream { id, labels, service }),
            rows: first.value(i)..first.value(i) + rows.value(i),
            range: (min.value(i), max.value(i)),
        });
    }
    Some(())
}

/// Rows of the index that may belong to a column.
fn index_rows(footer: &Footer, column: &str) -> Vec<Range<u64>> {
    use parquet::file::page_index::column_index::ColumnIndexMetaData;
    let all = || std::iter::once(0..footer.rows()).collect();
    let Some(at) = footer.column("column") else { return all() };
    let mut out = Vec::new();
    for (group, bounds) in footer.group_starts().windows(2).enumerate() {
        let index = footer.metadata().column_index().and_then(|i| i.get(group)).and_then(|g| g.get(at));
        let Some(ColumnIndexMetaData::BYTE_ARRAY(index)) = index else { return all() };
        let locations = footer.page_locations(group, at);
        for (page, location) in locations.iter().enumerate() {
            let (Some(min), Some(max)) = (index.min_value(page), index.max_value(page)) else { return all() };
            let end = locations.get(page + 1).map_or(bounds[1], |next| bounds[0] + next.first_row_index as u64);
            // Bounds of long strings are truncated in the statistics: a maximum is rounded up, a minimum is a prefix.
            // So they are still bounds.
            if min <= column.as_bytes() && column.as_bytes() <= max {
                out.push(bounds[0] + location.first_row_index as u64..end);
            }
        }
    }
    out
}

fn index_of(batch: &RecordBatch, column: &str, out: &mut Vec<(u64, u64, Bytes)>) -> Option<()> {
    let names = batch.column_by_name("column")?;
    let names = names.as_string_opt::<i32>()?;
    let first = batch.column_by_name("first_row")?.as_primitive_opt::<UInt64Type>()?;
    let rows = batch.column_by_name("rows")?.as_primitive_opt::<UInt64Type>()?;
    let payloads = batch.column_by_name("payload")?.as_binary_opt::<i32>()?;
    for i in (0..batch.num_rows()).filter(|&i| names.value(i) == column) {
        out.push((first.value(i), rows.value(i), Bytes::copy_from_slice(payloads.value(i))));
    }
    Some(())
}
