//! Writes `.samples`: one row per float sample, sorted by series and time, with values stored as decimals per series.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int8Array, Int64Array, RecordBatch, TimestampMillisecondArray, UInt32Array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{Schema, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::WriterProperties;
use quiver_types::tables::metrics;

use super::decimal::Decimals;
use super::file::{ColumnEncodings, Draft, PAGE_ROWS, PartFile, codec, column, properties};
use super::{FileMeta, PartCompression};
use crate::error::{Context, Result, io_error};
use crate::series_run::FloatRun;

/// Rows per row group.
const GROUP_ROWS: usize = 1 << 20;
/// A page with at least this many rows ends before a series that does not fit completely. Numerators jump from one
/// series to the next, which would widen 64 packed differences; and a query for a series then reads no page of another
/// one.
const PAGE_ROWS_ENOUGH: usize = PAGE_ROWS / 2;
/// Rows of a batch: a whole number of pages.
const BATCH_ROWS: usize = 8 * PAGE_ROWS;

/// The `.samples` file being written. It is created with its first rows, and has a column `start_ts` only if some
/// sample has a start time.
#[derive(Default)]
pub(super) struct SamplesFile {
    file: Option<PartFile>,
    with_starts: bool,
    rows: u64,
    series: Vec<u32>,
    ts: Vec<i64>,
    exponents: Vec<i8>,
    numerators: Vec<i64>,
    /// Row index in the batch and value of each value that stays a double.
    doubles: Vec<(u32, f64)>,
    starts: Vec<i64>,
    /// Ends of pages in the batch. Rows after the last end are in the page that is being filled.
    pages: Vec<usize>,
    decimals: Decimals,
    last: i64,
}

impl SamplesFile {
    /// Appends the samples of a series.
    pub(super) fn push(&mut self, draft: &mut Draft, series: u32, run: &FloatRun) -> Result<()> {
        if !run.start_ts.is_empty() && !self.with_starts {
            self.begin_starts(draft)?;
        }
        self.decimals.decompose(&run.values, self.last);
        let mut doubles = std::mem::take(&mut self.decimals.doubles);
        let mut next_double = doubles.iter().peekable();
        let mut from = 0;
        let open = self.open_rows();
        if open >= PAGE_ROWS_ENOUGH && open + run.len() > PAGE_ROWS {
            self.end_page(draft)?;
        }
        while from < run.len() {
            let rows = (run.len() - from).min(PAGE_ROWS - self.open_rows());
            let before = self.ts.len();
            let to = from + rows;
            self.series.resize(before + rows, series);
            self.ts.extend_from_slice(&run.ts[from..to]);
            self.exponents.resize(before + rows, self.decimals.exponent);
            self.numerators.extend_from_slice(&self.decimals.numerators[from..to]);
            while let Some(&i) = next_double.next_if(|&&i| (i as usize) < to) {
                self.doubles.push(((before + i as usize - from) as u32, run.values[i as usize]));
            }
            if self.with_starts {
                match run.start_ts.get(from..to) {
                    Some(starts) => self.starts.extend_from_slice(starts),
                    None => self.starts.resize(before + rows, 0),
                }
            }
            from = to;
            if self.open_rows() == PAGE_ROWS {
                self.end_page(draft)?;
            }
        }
        self.last = self.decimals.numerators.last().copied().unwrap_or(self.last);
        doubles.clear();
        self.decimals.doubles = doubles;
        self.rows += run.len() as u64;
        Ok(())
    }

    /// Rows of the page that is being filled.
    fn open_rows(&self) -> usize {
        self.ts.len() - self.pages.last().copied().unwrap_or(0)
    }

    fn end_page(&mut self, draft: &mut Draft) -> Result<()> {
        self.pages.push(self.ts.len());
        if self.ts.len() + PAGE_ROWS > BATCH_ROWS { self.write(draft) } else { Ok(()) }
    }

    /// Rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Writes the rest and finishes the file; `None` if there were no rows.
    pub(super) fn finish(mut self, draft: &mut Draft, range: (i64, i64)) -> Result<Option<FileMeta>> {
        self.write(draft)?;
        self.file.map(|f| f.finish(&draft.spec, range, &["series", "ts"])).transpose()
    }

    fn write(&mut self, draft: &mut Draft) -> Result<()> {
        if self.ts.is_empty() {
            return Ok(());
        }
        let batch = self.take_batch()?;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(create(draft, self.with_starts)?),
        };
        // Each call writes one page (see [`sample_properties`]).
        let mut from = 0;
        for to in self.pages.drain(..).chain([batch.num_rows()]) {
            if from < to {
                file.write(&batch.slice(from, to - from))?;
                from = to;
            }
        }
        Ok(())
    }

    fn take_batch(&mut self) -> Result<RecordBatch> {
        let rows = self.ts.len();
        let time = |values: Vec<i64>, nulls| -> ArrayRef {
            Arc::new(TimestampMillisecondArray::new(values.into(), nulls).with_timezone("UTC"))
        };
        let doubles: ArrayRef = if self.doubles.is_empty() {
            Arc::new(Float64Array::new_null(rows))
        } else {
            let (mut values, mut there) = (vec![0f64; rows], vec![false; rows]);
            for (i, v) in self.doubles.drain(..) {
                values[i as usize] = v;
                there[i as usize] = true;
            }
            Arc::new(Float64Array::new(values.into(), Some(NullBuffer::from(there))))
        };
        let take = |list: &mut Vec<i64>| std::mem::replace(list, Vec::with_capacity(BATCH_ROWS));
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from(std::mem::replace(&mut self.series, Vec::with_capacity(BATCH_ROWS)))),
            time(take(&mut self.ts), None),
            Arc::new(Int8Array::from(std::mem::replace(&mut self.exponents, Vec::with_capacity(BATCH_ROWS)))),
            Arc::new(Int64Array::from(take(&mut self.numerators))),
            doubles,
        ];
        if self.with_starts {
            let starts = std::mem::take(&mut self.starts);
            let there = NullBuffer::new(BooleanBuffer::collect_bool(rows, |i| starts[i] != 0));
            columns.push(time(starts, Some(there)));
        }
        RecordBatch::try_new(schema(self.with_starts), columns).internal("cannot build a batch of samples")
    }

    /// Adds the column of start times. Rows already in the file are copied to a new one; this happens at most once per
    /// part, and never if either some of the first 64 k samples have a start time or none has.
    fn begin_starts(&mut self, draft: &mut Draft) -> Result<()> {
        self.with_starts = true;
        self.starts.resize(self.ts.len(), 0);
        let Some(file) = self.file.take() else { return Ok(()) };
        let path = file.path().to_owned();
        let aside = path.with_extension("without-starts");
        file.finish(&draft.spec, (0, 0), &[])?;
        let failed = |e| io_error("cannot rewrite samples with start times", e);
        std::fs::rename(&path, &aside).map_err(failed)?;
        let old = std::fs::File::open(&aside).map_err(failed)?;
        // Only the open handle is needed from now on; so nothing is left behind if something fails.
        std::fs::remove_file(&aside).map_err(failed)?;
        let damaged = "cannot read back samples to rewrite";
        let mut copy = create(draft, true)?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(old).internal(damaged)?.with_batch_size(BATCH_ROWS);
        for batch in reader.build().internal(damaged)? {
            let batch = batch.internal(damaged)?;
            let mut columns = batch.columns().to_vec();
            columns.push(Arc::new(TimestampMillisecondArray::new_null(batch.num_rows()).with_timezone("UTC")));
            copy.write(&RecordBatch::try_new(schema(true), columns).internal(damaged)?)?;
        }
        self.file = Some(copy);
        Ok(())
    }
}

fn schema(with_starts: bool) -> SchemaRef {
    let all = metrics::samples();
    if with_starts {
        return all;
    }
    Arc::new(Schema::new(all.fields().iter().filter(|f| f.name() != "start_ts").cloned().collect::<Vec<_>>()))
}

fn create(draft: &mut Draft, with_starts: bool) -> Result<PartFile> {
    let properties = sample_properties(with_starts, draft.spec.compression);
    PartFile::create(draft, "samples", schema(with_starts), properties)
}

/// Numerators are packed so tightly that compression saves little, so they get the fastest codec. The other columns are
/// long runs, and doubles that repeat. Each write becomes one page.
fn sample_properties(with_starts: bool, compression: PartCompression) -> WriterProperties {
    let mut p = properties()
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS_ENOUGH)
        .set_write_batch_size(PAGE_ROWS)
        .set_compression(codec(compression))
        .set_column_compression(column(&["vi"]), Compression::LZ4_RAW)
        // In a row group with too many series for the dictionary page, the writer falls back to differences, which are
        // 0 or 1.
        .set_column_encoding(column(&["series"]), Encoding::DELTA_BINARY_PACKED)
        .delta(&["ts"])
        .delta(&["vi"])
        .split(&["vf"]);
    for name in ["series", "ts", "ve", "vf"] {
        p = p.page_statistics(&[name]);
    }
    if with_starts {
        p = p.delta(&["start_ts"]).page_statistics(&["start_ts"]);
    }
    p.build()
}
