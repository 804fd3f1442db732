//! Row groups of a part in encoded form, which a compaction copies as they are.

use std::ops::Range;

use arrow::datatypes::Schema;
use bytes::Bytes;
use hashbrown::HashMap;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::reader::ChunkReader;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;
use quiver_types::ReadStats;

use super::columns::Builder;
use super::dedicated_columns::OwnColumn;
use crate::error::{Error, Result};
use crate::part::byte_ranges::Purpose;
use crate::part::footer::damaged;
use crate::part::reader::Part;
use crate::part::row_groups::ColumnCopy;

/// One row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpanGroup {
    number: usize,
    /// Its rows, numbered within the part.
    pub(crate) rows: Range<u64>,
    /// Bytes of its encoded columns.
    pub(crate) bytes: u64,
    /// Start times of the first and last span, in Unix nanoseconds.
    pub(crate) starts: (i64, i64),
}

/// Tells whether all columns of a part can be copied unchanged to a part with these attribute columns.
pub(crate) fn can_hold(own: &[OwnColumn], schema: &Schema) -> bool {
    let target = Builder::new(own).schema();
    schema.fields().iter().all(|f| target.column_with_name(f.name()).is_some_and(|(_, t)| **f == *t))
}

impl Part {
    /// The row groups; only those with known times.
    pub(crate) async fn span_groups(&self, stats: &ReadStats) -> Result<Vec<SpanGroup>> {
        let file = self.meta.file("rows").ok_or_else(|| Error::internal("a part of spans lacks its rows"))?;
        let footer = self.footer(file, stats).await?;
        let Some(column) = footer.column("start_time") else { return Ok(Vec::new()) };
        let groups = footer.metadata().row_groups().iter().zip(footer.group_starts().windows(2)).enumerate();
        let group = |(number, (of, rows)): (usize, (&parquet::file::metadata::RowGroupMetaData, &[u64]))| {
            let Some(Statistics::Int64(times)) = of.column(column).statistics() else { return None };
            let starts = (*times.min_opt()?, *times.max_opt()?);
            let bytes = u64::try_from(of.compressed_size()).unwrap_or(u64::MAX);
            Some(SpanGroup { number, rows: rows[0]..rows[1], bytes, starts })
        };
        Ok(groups.filter_map(group).collect())
    }

    /// Reads the encoded columns of a row group, in the order of the target's leaves; `None` for leaves it does not
    /// have.
    pub(in crate::part) async fn span_group_columns(
        &self,
        group: &SpanGroup,
        leaves: &[ColumnDescPtr],
    ) -> Result<Vec<Option<ColumnCopy>>> {
        let stats = ReadStats::default();
        let file = self.meta.file("rows").ok_or_else(|| Error::internal("a part of spans lacks its rows"))?;
        let footer = self.footer(file, &stats).await?;
        let metadata = footer.metadata();
        let columns = metadata.row_group(group.number).columns();
        let range = |column: usize| {
            let (start, length) = columns[column].byte_range();
            start..start + length
        };
        let fetched = self.fetch(file, &footer, (0..columns.len()).map(range).collect(), Purpose::Job, &stats).await?;
        let known: HashMap<String, usize> =
            columns.iter().enumerate().map(|(i, column)| (column.column_path().string(), i)).collect();
        let copy = |leaf: &ColumnDescPtr| -> Result<Option<ColumnCopy>> {
            let Some(&i) = known.get(&leaf.path().string()) else { return Ok(None) };
            let Range { start, end } = range(i);
            let bytes: Bytes = fetched
                .get_bytes(start, (end - start) as usize)
                .map_err(|e| damaged(&file.key, "a column cannot be read").with_source(e))?;
            let of_group = |g: Option<&Vec<_>>| g.and_then(|columns: &Vec<_>| columns.get(i)).cloned();
            let index = of_group(metadata.column_index().and_then(|groups| groups.get(group.number)));
            let offsets = metadata.offset_index().and_then(|groups| groups.get(group.number)?.get(i)).cloned();
            let close = ColumnCloseResult {
                bytes_written: end - start,
                rows_written: group.rows.end - group.rows.start,
                metadata: columns[i].clone(),
                bloom_filter: None,
                column_index: index.filter(|index| !matches!(index, ColumnIndexMetaData::NONE)),
                offset_index: offsets,
            };
            Ok(Some(ColumnCopy { start, bytes, close }))
        };
        leaves.iter().map(copy).collect()
    }
}
