//! Parts of tables that have a single file, `.rows` (metric metadata, and the records that the server keeps about
//! itself): written batch by batch, read in pieces.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, TimestampMillisecondType};
use parquet::file::properties::EnabledStatistics;
use quiver_types::tables::{self, TableDef};
use quiver_types::{Millis, ReadStats, read_stats};

use super::byte_ranges::{Purpose, Selection};
use super::file::{Draft, PartFile, codec, column, properties};
use super::{FileMeta, Footer, NameFilter, Part, PartMeta, PartSpec, SERVICES_MAX};
use crate::error::{Error, Result};

/// Rows per row group. A writer holds one row group in encoded form.
const GROUP_ROWS: usize = 65_536;
/// A row group ends at these bytes, however few rows they are.
const GROUP_BYTES: usize = 4 << 20;
/// Maximum rows of a batch when reading.
const BATCH_ROWS: usize = 8192;

/// Writes a whole part. Rows must come in the order of the table's sort key. The table's time column is in
/// milliseconds, and its service column, if it has one, is called `__q_service`.
pub(crate) struct RowsPartWriter {
    table: &'static TableDef,
    file: PartFile,
    draft: Draft,
    times: Option<(Millis, Millis)>,
    services: BTreeSet<String>,
    names: BTreeSet<String>,
}

impl RowsPartWriter {
    /// Creates the part's file.
    ///
    /// # Errors
    /// Invalid: unknown table. Otherwise I/O errors.
    pub(crate) fn create(root: &Path, spec: PartSpec) -> Result<Self> {
        let table = table_of(&spec)?;
        let mut draft = Draft::new(root, spec);
        let p = properties()
            .set_compression(codec(draft.spec.compression))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_column_statistics_enabled(column(&[table.sort_key[0]]), EnabledStatistics::Page)
            .set_column_statistics_enabled(column(&[table.time_column]), EnabledStatistics::Page);
        let kind = table.files[0].kind;
        let file = PartFile::create(&mut draft, kind, table.columns(), p.build())?;
        let (services, names) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { table, file, draft, times: None, services, names })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// Invalid: the columns are not those of the table. Otherwise I/O errors.
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
        self.file.write(batch)?;
        if self.file.open_bytes() >= GROUP_BYTES {
            self.file.end_group()?;
        }
        Ok(())
    }

    /// Finishes the part and returns its description.
    ///
    /// # Errors
    /// Invalid: no rows were written. Otherwise I/O errors.
    pub(crate) fn finish(mut self) -> Result<PartMeta> {
        let range = self.times.ok_or_else(|| Error::invalid(no_rows_of(self.table)))?;
        let spec = &self.draft.spec;
        let mut meta = PartMeta {
            names: NameFilter::of(&self.names.iter().map(String::as_str).collect::<Vec<_>>()),
            ..spec.describe(range, self.file.rows(), self.services.into_iter().collect())
        };
        self.file.put_meta(&meta)?;
        meta.files.push(self.file.finish(spec, range, self.table.sort_key)?);
        meta.bytes = meta.files[0].bytes;
        self.draft.keep();
        Ok(meta)
    }
}

/// Writes a part from a single batch; see [`RowsPartWriter`].
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

/// Collects distinct texts of a column, if the batch has it, up to a maximum number.
fn distinct(batch: &RecordBatch, name: &str, most: usize, out: &mut BTreeSet<String>) {
    let Some(column) = batch.column_by_name(name).filter(|c| *c.data_type() == DataType::Utf8) else { return };
    for text in column.as_string::<i32>().iter().flatten() {
        if !out.contains(text) && out.len() < most {
            out.insert(text.to_owned());
        }
    }
}

impl Part {
    /// Reads all rows of a part of a table with a single file.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub async fn rows(&self, stats: &ReadStats) -> Result<Vec<RecordBatch>> {
        let Some(file) = self.meta.file("rows") else { return Ok(Vec::new()) };
        let footer = self.footer(file, stats).await?;
        read_stats::add(&stats.pages_total, footer.pages());
        let all = 0..footer.rows();
        self.read_batches(file, &footer, Selection::of(std::slice::from_ref(&all), BATCH_ROWS), Purpose::Query, stats)
            .await
    }
}

/// Reads the rows of such a part in pieces.
pub(crate) struct RowPieces<'a> {
    part: &'a Part,
    file: &'a FileMeta,
    footer: Arc<Footer>,
    next: u64,
}

impl<'a> RowPieces<'a> {
    /// Opens a part; `None` if it has no file `.rows`.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub(crate) async fn open(part: &'a Part, stats: &ReadStats) -> Result<Option<Self>> {
        let Some(file) = part.meta.file("rows") else { return Ok(None) };
        let footer = part.footer(file, stats).await?;
        read_stats::add(&stats.pages_total, footer.pages());
        Ok(Some(Self { part, file, footer, next: 0 }))
    }

    /// Rows of the part.
    pub(crate) fn total(&self) -> u64 {
        self.footer.rows()
    }

    /// Tells whether all rows have been read.
    pub(crate) fn is_read(&self) -> bool {
        self.next >= self.total()
    }

    /// Reads the next rows, at most as many as given, with the given columns (`None` means all). They are fewer if those
    /// would take more than about `bytes` with all columns, but at least one.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub(crate) async fn read(
        &mut self,
        rows: u64,
        bytes: u64,
        columns: Option<&[&str]>,
        stats: &ReadStats,
    ) -> Result<Vec<RecordBatch>> {
        let mut count = rows.min(self.total() - self.next);
        while count > 1 && self.footer.whole_bytes(&(self.next..self.next + count)) > bytes {
            count /= 2;
        }
        let piece = self.next..self.next + count;
        self.next = piece.end;
        if piece.is_empty() {
            return Ok(Vec::new());
        }
        let selection = Selection { columns, ..Selection::of(std::slice::from_ref(&piece), BATCH_ROWS) };
        self.part.read_batches(self.file, &self.footer, selection, Purpose::Query, stats).await
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, StringArray, TimestampMillisecondArray};
    use quiver_types::tables::metric_metadata;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::super::tests::{block_on, open, small, spec, write};
    use super::*;
    use crate::ErrorKind;

    fn metadata_spec() -> PartSpec {
        PartSpec { table: metric_metadata::TABLE.name.to_owned(), ..spec(0) }
    }

    /// Metadata of metrics by number, each of a service of its own out of so many.
    fn batch(numbers: std::ops::Range<i64>, services: i64) -> RecordBatch {
        let texts = |of: &dyn Fn(i64) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(numbers.clone().map(of)))
        };
        let columns = vec![
            Arc::new(TimestampMillisecondArray::from_iter_values(numbers.clone()).with_timezone("UTC")) as ArrayRef,
            texts(&|n| format!("m{:02}", n % 40)),
            texts(&|_| "gauge".to_owned()),
            texts(&|n| n.to_string()),
            texts(&|_| String::new()),
            texts(&|n| format!("s{}", n % services)),
        ];
        RecordBatch::try_new(metric_metadata::rows(), columns).unwrap()
    }

    #[test]
    fn only_rows_of_the_table_become_a_part() {
        let dir = tempfile::tempdir().unwrap();
        let check = |spec: PartSpec, batch: &RecordBatch, expected: &str| {
            let error = write_rows_part(dir.path(), spec, batch).unwrap_err();
            assert_eq!((error.kind(), error.message.as_str()), (ErrorKind::Invalid, expected));
        };
        let rows = batch(0..3, 1);
        check(PartSpec { table: "other".to_owned(), ..spec(0) }, &rows, "unknown table `other`");
        check(metadata_spec(), &batch(0..0, 1), "no rows of table `metric_metadata`");
        let strange = "rows that are not those of table `metric_metadata`";
        check(metadata_spec(), &rows.project(&[1, 0, 2, 3, 4, 5]).unwrap(), strange);
        check(metadata_spec(), &rows.project(&[0, 1, 2, 3, 4]).unwrap(), strange);
        // Neither are they pushed later.
        let spec = metadata_spec();
        let mut writer = RowsPartWriter::create(dir.path(), spec).unwrap();
        assert_eq!(writer.push(&rows.project(&[0]).unwrap()).unwrap_err().message, strange);
        assert_eq!(writer.finish().unwrap_err().message, "no rows of table `metric_metadata`");
        let left = std::fs::read_dir(dir.path().join("metric_metadata/2024-10-04")).unwrap().count();
        assert_eq!(left, 0, "what is not finished goes");
    }

    #[test]
    fn pieces_are_the_rows_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = RowsPartWriter::create(dir.path(), metadata_spec()).unwrap();
        writer.push(&batch(0..6000, 3)).unwrap();
        writer.push(&batch(0..0, 3)).unwrap();
        writer.push(&batch(6000..9001, 7)).unwrap();
        let meta = writer.finish().unwrap();
        assert_eq!((meta.rows, meta.min_ts, meta.max_ts, meta.series), (9001, 0, 9000, 0));
        assert_eq!(meta.services, ["s0", "s1", "s2", "s3", "s4", "s5", "s6"]);
        assert_eq!(meta.names.list().map(<[String]>::len), Some(40));
        assert_eq!(meta.bytes, meta.files[0].bytes);
        let part = open(dir.path(), &meta);
        let stats = ReadStats::default();
        let mut pieces = block_on(RowPieces::open(&part, &stats)).unwrap().unwrap();
        assert_eq!((pieces.total(), pieces.is_read()), (9001, false));
        let mut helps = Vec::new();
        for expected in [4000, 4000, 1001, 0] {
            let read = block_on(pieces.read(4000, u64::MAX, Some(&["help"]), &stats)).unwrap();
            assert_eq!(read.iter().map(RecordBatch::num_rows).sum::<usize>(), expected);
            for batch in read {
                assert_eq!(batch.num_columns(), 1);
                helps.extend(batch["help"].as_string::<i32>().iter().flatten().map(str::to_owned));
            }
            assert_eq!(pieces.is_read(), helps.len() == 9001);
        }
        assert!(helps.into_iter().eq((0..9001).map(|n| n.to_string())));
        let mut all = block_on(RowPieces::open(&part, &stats)).unwrap().unwrap();
        let read = block_on(all.read(u64::MAX, u64::MAX, None, &stats)).unwrap();
        assert!(read.iter().all(|batch| batch.num_rows() <= BATCH_ROWS && batch.num_columns() == 6));
        assert!(all.is_read() && block_on(all.read(0, u64::MAX, None, &stats)).unwrap().is_empty());
        let metrics = open(dir.path(), &write(dir.path(), 0, &small()));
        assert!(block_on(RowPieces::open(&metrics, &stats)).unwrap().is_none());
    }

    /// Breaks if a piece is limited by its rows only: long texts take hundreds of megabytes.
    #[test]
    fn pieces_of_long_texts_have_fewer_rows() {
        let dir = tempfile::tempdir().unwrap();
        let long = |rows: i64| {
            let rows = batch(0..rows, 1);
            let mut columns = rows.columns().to_vec();
            // One text for all: in the pages it stands once.
            columns[3] = Arc::new(StringArray::from_iter_values((0..rows.num_rows()).map(|_| "x".repeat(10_000))));
            RecordBatch::try_new(rows.schema(), columns).unwrap()
        };
        let meta = write_rows_part(dir.path(), metadata_spec(), &long(400)).unwrap();
        assert!(meta.bytes < 100_000, "{} bytes", meta.bytes);
        let part = open(dir.path(), &meta);
        let stats = ReadStats::default();
        let mut pieces = block_on(RowPieces::open(&part, &stats)).unwrap().unwrap();
        let (mut found, mut reads) = (0, 0);
        while !pieces.is_read() {
            let read = block_on(pieces.read(400, 500_000, None, &stats)).unwrap();
            let rows = read.iter().map(RecordBatch::num_rows).sum::<usize>();
            assert!((1..=50).contains(&rows), "{rows} rows");
            (found, reads) = (found + rows, reads + 1);
        }
        assert_eq!(found, 400);
        assert!(reads < 40, "{reads} reads");
        // A row that takes more by itself is read alone.
        let mut pieces = block_on(RowPieces::open(&part, &stats)).unwrap().unwrap();
        let read = block_on(pieces.read(400, 1, None, &stats)).unwrap();
        assert_eq!(read.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
    }

    /// Breaks if a writer collects 65,536 rows whatever their length.
    #[test]
    fn a_row_group_of_long_rows_ends_early() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = RowsPartWriter::create(dir.path(), metadata_spec()).unwrap();
        let mut random = StdRng::seed_from_u64(1);
        for from in [0, 100, 200, 300, 400] {
            let rows = batch(from..from + 100, 1);
            let mut text = || {
                let words: Vec<String> = (0..2560).map(|_| format!("{:016x}", random.random::<u64>())).collect();
                words.concat()
            };
            let mut columns = rows.columns().to_vec();
            columns[3] = Arc::new(StringArray::from_iter_values((0..100).map(|_| text())));
            writer.push(&RecordBatch::try_new(rows.schema(), columns).unwrap()).unwrap();
            assert!(writer.file.open_bytes() < GROUP_BYTES);
        }
        let meta = writer.finish().unwrap();
        let part = open(dir.path(), &meta);
        let pieces = block_on(RowPieces::open(&part, &ReadStats::default())).unwrap().unwrap();
        assert!(pieces.footer.group_starts().len() > 2, "{:?}", pieces.footer.group_starts());
        assert_eq!((pieces.total(), meta.rows), (500, 500));
    }

    #[test]
    fn services_are_counted_no_further_than_they_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let most = SERVICES_MAX as i64;
        let meta = write_rows_part(dir.path(), metadata_spec(), &batch(0..2 * most, most)).unwrap();
        assert_eq!((meta.services.len(), meta.services_all), (SERVICES_MAX, false));
        let meta = write_rows_part(dir.path(), metadata_spec(), &batch(0..2 * most, most + 1)).unwrap();
        assert_eq!((meta.services.len(), meta.services_all), (0, true));
        let mut few = BTreeSet::new();
        distinct(&batch(0..10, 5), "__q_service", 2, &mut few);
        assert_eq!(few.iter().collect::<Vec<_>>(), ["s0", "s1"]);
        distinct(&batch(0..10, 5), "no such column", 9, &mut few);
        distinct(&batch(0..10, 5), "ts", 9, &mut few);
        assert_eq!(few.len(), 2, "only texts");
    }
}
