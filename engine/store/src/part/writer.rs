//! Writes a part of metrics: series in series order, streamed into the files. A part is finished completely or deleted.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringBuilder, TimestampMillisecondArray, UInt32Array};
use parquet::file::properties::WriterProperties;
use quiver_types::LabelSet;
use quiver_types::histogram::HistogramBuilder;
use quiver_types::tables::metrics;

use super::file::{ColumnEncodings, Draft, PartFile, codec, column, properties};
use super::samples_file::SamplesFile;
use super::series_file::{SeriesTableWriter, map_of};
use super::{FileMeta, NameFilter, PartMeta, PartSpec};
use crate::error::{Context, Result};
use crate::series_run::{HistRun, RunExemplar, SeriesRun};

/// Rows of histograms or exemplars that are written at once.
const BATCH_ROWS: usize = 1024;

/// Writes a part of metrics under a local directory. If dropped before [`PartWriter::finish`], it deletes its files.
///
/// Memory: one encoded row group of each file, plus the series table (see `series_file`).
pub struct PartWriter {
    samples: SamplesFile,
    hists: HistsFile,
    exemplars: ExemplarsFile,
    series: SeriesTableWriter,
    last: Option<LabelSet>,
    range: Option<(i64, i64)>,
    draft: Draft,
}

impl std::fmt::Debug for PartWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartWriter")
            .field("spec", &self.draft.spec)
            .field("series", &self.series.len())
            .finish_non_exhaustive()
    }
}

impl PartWriter {
    /// Starts a part; its files will be `root/<key>`, created with their first rows.
    pub fn metrics(root: &Path, spec: PartSpec) -> Self {
        assert_eq!(spec.table, metrics::TABLE.name, "a part of metrics");
        Self {
            samples: SamplesFile::default(),
            hists: HistsFile::default(),
            exemplars: ExemplarsFile::default(),
            series: SeriesTableWriter::default(),
            last: None,
            range: None,
            draft: Draft::new(root, spec),
        }
    }

    /// Appends a series. Series must come in series order, each only once, with normalized data. A series without data
    /// is ignored.
    ///
    /// # Errors
    /// I/O errors.
    pub fn push(&mut self, run: &SeriesRun) -> Result<()> {
        let Some(range) = run.time_range() else { return Ok(()) };
        assert!(
            self.last.as_ref().is_none_or(|last| last.cmp_series(&run.labels).is_lt()),
            "series come in series order, each once: {:?} after {:?}",
            run.labels,
            self.last
        );
        debug_assert!(run.samples.ts.windows(2).all(|w| w[0] < w[1]), "samples are normalized");
        let number = self.series.len() as u32;
        let first = [self.samples.rows(), self.hists.rows, self.exemplars.rows];
        self.series.push(run, first, (range.min, range.max));
        if !run.samples.is_empty() {
            self.samples.push(&mut self.draft, number, &run.samples)?;
        }
        for i in 0..run.hists.len() {
            self.hists.push(number, &run.hists, i);
            if self.hists.hists.len() >= BATCH_ROWS {
                self.hists.write(&mut self.draft)?;
            }
        }
        for exemplar in &run.exemplars {
            self.exemplars.push(number, exemplar);
            if self.exemplars.series.len() >= BATCH_ROWS {
                self.exemplars.write(&mut self.draft)?;
            }
        }
        let (min, max) = self.range.unwrap_or((range.min, range.max));
        self.range = Some((min.min(range.min), max.max(range.max)));
        self.last = Some(run.labels.clone());
        Ok(())
    }

    /// Number of series so far.
    pub fn series(&self) -> u64 {
        self.series.len() as u64
    }

    /// Approximate memory of the table of series, which is complete before it is written.
    pub(crate) fn table_bytes(&self) -> usize {
        self.series.memory_bytes()
    }

    /// Finishes all files, and syncs them and their directories.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Invalid`] if no series was written: a part must not be empty.
    pub fn finish(mut self) -> Result<PartMeta> {
        let Some(range) = self.range else {
            return Err(crate::Error::invalid("a part without rows"));
        };
        let draft = &mut self.draft;
        let rows = self.samples.rows() + self.hists.rows + self.exemplars.rows;
        let has_histograms = self.hists.rows > 0;
        let mut files = Vec::with_capacity(5);
        files.extend(std::mem::take(&mut self.samples).finish(draft, range)?);
        files.extend(std::mem::take(&mut self.hists).finish(draft, range)?);
        files.extend(std::mem::take(&mut self.exemplars).finish(draft, range)?);
        files.extend(self.series.write_index(draft, range)?);
        let mut meta = PartMeta {
            series: self.series.len() as u64,
            names: NameFilter::of(&self.series.metrics()),
            has_histograms,
            files,
            ..draft.spec.describe(range, rows, self.series.services())
        };
        let main = self.series.write(draft, range, &meta)?;
        meta.files.insert(0, main);
        meta.bytes = meta.files.iter().map(|f| f.bytes).sum();
        draft.keep();
        Ok(meta)
    }
}

/// The `.histograms` file being written.
#[derive(Default)]
struct HistsFile {
    file: Option<PartFile>,
    rows: u64,
    series: Vec<u32>,
    ts: Vec<i64>,
    starts: Vec<i64>,
    hists: HistogramBuilder,
}

impl HistsFile {
    fn push(&mut self, series: u32, run: &HistRun, i: usize) {
        self.rows += 1;
        self.series.push(series);
        self.ts.push(run.ts[i]);
        self.starts.push(run.start(i));
        self.hists.push(&run.hists[i]);
    }

    fn write(&mut self, draft: &mut Draft) -> Result<()> {
        if self.hists.is_empty() {
            return Ok(());
        }
        let starts: TimestampMillisecondArray =
            std::mem::take(&mut self.starts).into_iter().map(|s| (s != 0).then_some(s)).collect();
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from(std::mem::take(&mut self.series))),
            Arc::new(TimestampMillisecondArray::from(std::mem::take(&mut self.ts)).with_timezone("UTC")),
            Arc::new(starts.with_timezone("UTC")),
        ];
        columns.extend(self.hists.finish().columns().iter().cloned());
        let batch =
            RecordBatch::try_new(metrics::histograms(), columns).internal("cannot build a batch of histograms")?;
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let schema = metrics::histograms();
                let properties = hist_properties(&draft.spec);
                none.insert(PartFile::create(draft, "histograms", schema, properties)?)
            }
        };
        file.write(&batch)
    }

    fn finish(mut self, draft: &mut Draft, range: (i64, i64)) -> Result<Option<FileMeta>> {
        self.write(draft)?;
        self.file.map(|f| f.finish(&draft.spec, range, &["series", "ts"])).transpose()
    }
}

fn hist_properties(spec: &PartSpec) -> WriterProperties {
    let mut p = properties()
        .set_max_row_group_row_count(Some(128 * 1024))
        .set_data_page_row_count_limit(1024)
        .set_compression(codec(spec.compression))
        .delta(&["ts"])
        .delta(&["start_ts"])
        .page_statistics(&["series"])
        .page_statistics(&["ts"]);
    for name in ["zero_count", "count", "sum"] {
        p = p.split(&[name]);
    }
    for side in ["positive", "negative"] {
        p = p.split(&[&format!("{side}_counts"), "list", "item"]);
    }
    p.build()
}

/// The `.exemplars` file being written.
#[derive(Default)]
struct ExemplarsFile {
    file: Option<PartFile>,
    rows: u64,
    series: Vec<u32>,
    ts: Vec<i64>,
    values: Vec<f64>,
    offsets: Vec<i32>,
    names: StringBuilder,
    label_values: StringBuilder,
}

impl ExemplarsFile {
    fn push(&mut self, series: u32, exemplar: &RunExemplar) {
        self.rows += 1;
        self.series.push(series);
        self.ts.push(exemplar.ts);
        self.values.push(exemplar.value);
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        for (name, value) in exemplar.labels.iter() {
            self.names.append_value(name);
            self.label_values.append_value(value);
        }
        self.offsets.push(arrow::array::ArrayBuilder::len(&self.names) as i32);
    }

    fn write(&mut self, draft: &mut Draft) -> Result<()> {
        if self.series.is_empty() {
            return Ok(());
        }
        let (names, values) = (std::mem::take(&mut self.names), std::mem::take(&mut self.label_values));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from(std::mem::take(&mut self.series))),
            Arc::new(TimestampMillisecondArray::from(std::mem::take(&mut self.ts)).with_timezone("UTC")),
            Arc::new(Float64Array::from(std::mem::take(&mut self.values))),
            Arc::new(map_of(std::mem::take(&mut self.offsets), names, values)?),
        ];
        let batch =
            RecordBatch::try_new(metrics::exemplars(), columns).internal("cannot build a batch of exemplars")?;
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let schema = metrics::exemplars();
                let properties = exemplar_properties(&draft.spec);
                none.insert(PartFile::create(draft, "exemplars", schema, properties)?)
            }
        };
        file.write(&batch)
    }

    fn finish(mut self, draft: &mut Draft, range: (i64, i64)) -> Result<Option<FileMeta>> {
        self.write(draft)?;
        self.file.map(|f| f.finish(&draft.spec, range, &["series", "ts"])).transpose()
    }
}

fn exemplar_properties(spec: &PartSpec) -> WriterProperties {
    properties()
        .set_max_row_group_row_count(Some(128 * 1024))
        .set_data_page_row_count_limit(2048)
        .set_compression(codec(spec.compression))
        .delta(&["ts"])
        .set_column_dictionary_enabled(column(&["value"]), false)
        .page_statistics(&["series"])
        .page_statistics(&["ts"])
        .build()
}
