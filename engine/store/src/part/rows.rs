//! The part of a table that has one file, `.rows` (metric metadata, and what the server records of itself): written a
//! batch after the other, read a piece at a time.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, TimestampMillisecondType};
use parquet::file::properties::EnabledStatistics;
use quiver_types::tables::{self, TableDef};
use quiver_types::{Millis, ReadStats, stats};

use super::fetch::Purpose;
use super::file::{PartFile, Unfinished, codec, column, properties};
use super::{FileMeta, Footer, NameFilter, Part, PartMeta, PartSpec, SERVICES_MAX};
use crate::error::{Error, Result};

/// Rows of a row group: who writes one holds it packed.
const GROUP_ROWS: usize = 65_536;
/// Most rows of a batch that is read.
const BATCH_ROWS: usize = 8192;

/// Writes a whole part. Rows must come in the order of the table's sort key; the table's time column is in
/// milliseconds, and its service column, if any, is called `__q_service`.
pub(crate) struct RowsPartWriter {
    table: &'static TableDef,
    spec: PartSpec,
    file: PartFile,
    unfinished: Unfinished,
    times: Option<(Millis, Millis)>,
    services: BTreeSet<String>,
    names: BTreeSet<String>,
}

impl RowsPartWriter {
    /// Creates the file.
    ///
    /// # Errors
    /// Invalid: an unknown table. Those of the disk.
    pub(crate) fn create(root: &Path, spec: PartSpec) -> Result<Self> {
        let table = table_of(&spec)?;
        let mut unfinished = Unfinished::default();
        let p = properties()
            .set_compression(codec(spec.compression))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_column_statistics_enabled(column(&[table.sort_key[0]]), EnabledStatistics::Page)
            .set_column_statistics_enabled(column(&[table.time_column]), EnabledStatistics::Page);
        let kind = table.files[0].kind;
        let file = PartFile::create(root, &spec, kind, table.columns(), p.build(), &mut unfinished)?;
        let (services, names) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { table, spec, file, unfinished, times: None, services, names })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// Invalid: columns that are not the table's. Those of the disk.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        fits(self.table, batch)?;
        let times = batch.column_by_name(self.table.time_column);
        let times = times.and_then(|c| c.as_primitive_opt::<TimestampMillisecondType>());
        let times =
            times.ok_or_else(|| Error::invalid(format!("table `{}` lacks its time column", self.table.name)))?;
        for &time in times.values() {
            let (min, max) = self.times.unwrap_or((time, time));
            self.times = Some((min.min(time), max.max(time)));
        }
        distinct(batch, "__q_service", SERVICES_MAX + 1, &mut self.services);
        distinct(batch, "metric", usize::MAX, &mut self.names);
        self.file.write(batch)
    }

    /// Ends the part.
    ///
    /// # Errors
    /// Invalid: no rows. Those of the disk.
    pub(crate) fn finish(mut self) -> Result<PartMeta> {
        let (min_ts, max_ts) = self.times.ok_or_else(|| Error::invalid(no_rows_of(self.table)))?;
        let services_all = self.services.len() > SERVICES_MAX;
        let services = if services_all { Vec::new() } else { self.services.into_iter().collect() };
        let spec = self.spec;
        let mut meta = PartMeta {
            id: spec.id,
            table: spec.table.clone(),
            day: spec.day,
            level: spec.level,
            place: spec.place,
            min_ts,
            max_ts,
            rows: self.file.rows(),
            bytes: 0,
            series: 0,
            services,
            services_all,
            names: NameFilter::of(&self.names.iter().map(String::as_str).collect::<Vec<_>>()),
            has_histograms: false,
            window: spec.window,
            origin: spec.origin.clone(),
            files: Vec::new(),
        };
        self.file.put_meta(&meta)?;
        meta.files.push(self.file.finish(&spec, (min_ts, max_ts), self.table.sort_key)?);
        meta.bytes = meta.files[0].bytes;
        self.unfinished.keep();
        Ok(meta)
    }
}

/// Writes a part of rows that are there as a whole; see [`RowsPartWriter`].
///
/// # Errors
/// Invalid: no rows, an unknown table or columns that are not the table's.
pub fn write_rows_part(root: &Path, spec: PartSpec, batch: &RecordBatch) -> Result<PartMeta> {
    let table = table_of(&spec)?;
    fits(table, batch)?;
    if batch.num_rows() == 0 {
        return Err(Error::invalid(no_rows_of(table)));
    }
    let mut part = RowsPartWriter::create(root, spec)?;
    part.push(batch)?;
    part.finish()
}

fn table_of(spec: &PartSpec) -> Result<&'static TableDef> {
    tables::table(&spec.table).ok_or_else(|| Error::invalid(format!("unknown table `{}`", spec.table)))
}

fn fits(table: &TableDef, batch: &RecordBatch) -> Result<()> {
    if batch.schema().fields() == table.columns().fields() {
        return Ok(());
    }
    Err(Error::invalid(format!("rows that are not those of table `{}`", table.name)))
}

fn no_rows_of(table: &TableDef) -> String {
    format!("no rows of table `{}`", table.name)
}

/// Adds the texts of a column, if it is there, until there are so many.
fn distinct(batch: &RecordBatch, name: &str, most: usize, out: &mut BTreeSet<String>) {
    let Some(column) = batch.column_by_name(name).filter(|c| *c.data_type() == DataType::Utf8) else { return };
    for text in column.as_string::<i32>().iter().flatten() {
        if !out.contains(text) && out.len() < most {
            out.insert(text.to_owned());
        }
    }
}

/// The rows of such a part, read a piece after the other.
pub(crate) struct RowPieces<'a> {
    part: &'a Part,
    file: &'a FileMeta,
    footer: Arc<Footer>,
    next: u64,
}

impl<'a> RowPieces<'a> {
    /// Opens a part; none where its table is another.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub(crate) async fn open(part: &'a Part, stats: &ReadStats) -> Result<Option<Self>> {
        let Some(file) = part.meta.file("rows") else { return Ok(None) };
        let footer = part.footer(file, stats).await?;
        stats::add(&stats.pages_total, footer.pages());
        Ok(Some(Self { part, file, footer, next: 0 }))
    }

    /// Rows of the part.
    pub(crate) fn total(&self) -> u64 {
        self.footer.rows()
    }

    /// Whether all of them were read.
    pub(crate) fn is_read(&self) -> bool {
        self.next >= self.total()
    }

    /// Reads the next rows, at most so many, and some columns of them (none: all).
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub(crate) async fn read(
        &mut self,
        rows: u64,
        columns: Option<&[&str]>,
        stats: &ReadStats,
    ) -> Result<Vec<RecordBatch>> {
        let piece = self.next..self.next.saturating_add(rows).min(self.total());
        self.next = piece.end;
        if piece.is_empty() {
            return Ok(Vec::new());
        }
        let (file, footer, piece) = (self.file, &self.footer, std::slice::from_ref(&piece));
        self.part.read_batches(file, footer, piece, columns, BATCH_ROWS, Purpose::Query, stats).await
    }
}
