//! Writes `.series` (one row per series) and `.index` (label value → bitmap of series).
//!
//! The table is held in memory until the part is complete, because only then is it known which labels are the most
//! common. It takes about 80 bytes per series, plus 4 per label of a series.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, FixedSizeBinaryArray, MapArray, RecordBatch, StringArray, StringBuilder, StructArray,
    TimestampMillisecondArray, UInt32Array, UInt64Array,
};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, Schema};
use parquet::basic::{Compression, Encoding};
use quiver_types::label::METRIC_NAME;
use quiver_types::tables::metrics::{self, LABEL_COLUMNS};
use roaring::RoaringBitmap;

use super::file::{ColumnEncodings, Draft, PartFile, codec, column, keys, properties};
use super::label_pairs::{PairTable, Texts};
use super::{FileMeta, PartMeta};
use crate::error::{Context, Result};
use crate::series_run::SeriesRun;

/// Rows of `.series` that are built at once, unless their labels have more than `BATCH_BYTES`.
const BATCH_ROWS: usize = 8 * 1024;
const BATCH_BYTES: usize = 4 << 20;
/// A row group of `.series` that has so many encoded bytes is ended, even if it has few rows.
const SERIES_GROUP_BYTES: usize = 16 << 20;
/// Rows per row group of `.series`; a label's dictionary covers one row group.
const SERIES_GROUP_ROWS: usize = 32 * 1024;
/// Rows per page of `.series`.
const SERIES_PAGE_ROWS: usize = 4096;
/// Rows per page of `.index`; fewer where bitmaps are large.
pub(super) const INDEX_PAGE_ROWS: usize = 1024;
/// Size limit for the bitmaps of a page of `.index`.
const INDEX_PAGE_BYTES: usize = 64 << 10;

/// The series of a part being written.
#[derive(Debug, Default)]
pub(super) struct SeriesTableWriter {
    ids: Vec<u8>,
    labels: PairTable,
    services: Texts,
    service_codes: Vec<u32>,
    /// First row and number of rows of each series in samples, histograms and exemplars.
    rows: [(Vec<u64>, Vec<u64>); 3],
    min_ts: Vec<i64>,
    max_ts: Vec<i64>,
}

impl SeriesTableWriter {
    /// Appends a series. `first` is the first row of its data in samples, histograms and exemplars; `range` its first
    /// and last time.
    pub(super) fn push(&mut self, run: &SeriesRun, first: [u64; 3], range: (i64, i64)) {
        self.ids.extend_from_slice(&run.id.to_bytes());
        self.labels.push(run.labels.iter());
        self.service_codes.push(self.services.number(&run.service));
        let counts = [run.samples.len(), run.hists.len(), run.exemplars.len()];
        for (((firsts, rows), first), count) in self.rows.iter_mut().zip(first).zip(counts) {
            firsts.push(first);
            rows.push(count as u64);
        }
        self.min_ts.push(range.0);
        self.max_ts.push(range.1);
    }

    /// Number of series.
    pub(super) fn len(&self) -> usize {
        self.min_ts.len()
    }

    /// Distinct services of the series, sorted; includes the empty text if some series has none.
    pub(super) fn services(&self) -> Vec<String> {
        let mut services: Vec<String> =
            self.services.sorted().iter().map(|&s| self.services.list[s as usize].to_string()).collect();
        if self.service_codes.contains(&0) {
            services.insert(0, String::new());
        }
        services
    }

    /// Distinct metric names, sorted. Series are sorted by metric name first.
    pub(super) fn metrics(&self) -> Vec<&str> {
        let mut metrics: Vec<&str> = (0..self.len()).map(|row| self.metric(row)).filter(|m| !m.is_empty()).collect();
        metrics.dedup();
        metrics
    }

    fn metric(&self, row: usize) -> &str {
        let of_metric = |pair: &&u32| self.labels.name(**pair) == METRIC_NAME;
        self.labels.of(row).iter().find(of_metric).map_or("", |&pair| self.labels.value(pair))
    }

    /// Numbers of the labels that get columns of their own, sorted by name.
    fn commonest(&self) -> Vec<u32> {
        let (names, present) = (&self.labels.names, &self.labels.present);
        let mut labels = names.sorted();
        labels.retain(|&label| *names.list[label as usize] != *METRIC_NAME);
        labels.sort_by_key(|&label| std::cmp::Reverse(present[label as usize]));
        labels.truncate(LABEL_COLUMNS);
        labels.sort_unstable_by(|&a, &b| names.list[a as usize].cmp(&names.list[b as usize]));
        labels
    }

    /// Writes `.series`. Its footer gets `meta`, the description of the part without this file.
    pub(super) fn write(&self, draft: &mut Draft, range: (i64, i64), meta: &PartMeta) -> Result<FileMeta> {
        let own = self.commonest();
        let column_name = |label: u32| format!("label.{}", self.labels.names.list[label as usize]);
        let fields = |kind: &DataType| {
            let mut fields: Vec<_> = metrics::series().fields().iter().cloned().collect();
            fields.extend(own.iter().map(|&l| Arc::new(Field::new(column_name(l), kind.clone(), true))));
            Arc::new(Schema::new(fields))
        };
        let schema = fields(&DataType::Utf8);
        // Readers get these columns as dictionaries.
        let shown = fields(&DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)));
        let mut p = properties()
            .set_max_row_group_row_count(Some(SERIES_GROUP_ROWS))
            .set_data_page_row_count_limit(SERIES_PAGE_ROWS)
            .set_dictionary_page_size_limit(64 << 20)
            .set_compression(codec(super::PartCompression::Compacted))
            .set_column_dictionary_enabled(column(&["series_id"]), false)
            .set_column_compression(column(&["series_id"]), Compression::UNCOMPRESSED)
            .page_statistics(&["metric"]);
        for name in ["series", "min_time", "max_time"] {
            p = p.delta(&[name]);
        }
        for sibling in ["samples", "histograms", "exemplars"] {
            p = p.delta(&[&format!("{sibling}_first")]).delta(&[&format!("{sibling}_rows")]);
        }
        let mut file = PartFile::create_as(draft, "series", &schema, &shown, p.build())?;
        let names: Vec<&str> =
            self.labels.names.sorted().iter().map(|&l| &*self.labels.names.list[l as usize]).collect();
        file.put(keys::LABELS, serde_json::to_string(&names).internal("cannot write label names")?);
        file.put_meta(meta)?;
        // Index of each label among those with a column.
        let mut places = vec![usize::MAX; self.labels.names.list.len()];
        own.iter().enumerate().for_each(|(place, &label)| places[label as usize] = place);
        let mut start = 0;
        while start < self.len() {
            let rows = start..self.batch_end(start);
            start = rows.end;
            let mut columns = self.fixed_columns(rows.clone())?;
            columns.extend(self.label_columns(rows, &places, own.len()));
            file.write(
                &RecordBatch::try_new(Arc::clone(&schema), columns).internal("cannot build a batch of series")?,
            )?;
            if file.open_bytes() >= SERIES_GROUP_BYTES {
                file.end_group()?;
            }
        }
        file.finish(&draft.spec, range, &["metric", "labels"])
    }

    /// The end of the rows that are built at once.
    fn batch_end(&self, start: usize) -> usize {
        let most = self.len().min(start + BATCH_ROWS);
        let mut bytes = 0;
        for row in start..most {
            bytes += self.labels.of(row).iter().map(|&pair| self.labels.value(pair).len()).sum::<usize>();
            if row > start && bytes > BATCH_BYTES {
                return row;
            }
        }
        most
    }

    /// Approximate size in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.ids.len() * 6 + self.labels.memory_bytes()
    }

    fn label_columns(&self, rows: std::ops::Range<usize>, places: &[usize], columns: usize) -> Vec<ArrayRef> {
        let mut texts: Vec<Vec<Option<&str>>> = vec![vec![None; rows.len()]; columns];
        for (at, row) in rows.enumerate() {
            for &pair in self.labels.of(row) {
                if let Some(texts) = texts.get_mut(places[self.labels.label(pair) as usize]) {
                    texts[at] = Some(self.labels.value(pair));
                }
            }
        }
        texts.into_iter().map(|texts| Arc::new(StringArray::from(texts)) as ArrayRef).collect()
    }

    fn fixed_columns(&self, rows: std::ops::Range<usize>) -> Result<Vec<ArrayRef>> {
        let time =
            |list: &[i64]| Arc::new(TimestampMillisecondArray::from(list[rows.clone()].to_vec()).with_timezone("UTC"));
        let services = self.service_codes[rows.clone()].iter().map(|&s| &*self.services.list[s as usize]);
        let ids = Buffer::from(&self.ids[rows.start * 16..rows.end * 16]);
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from_iter_values(rows.start as u32..rows.end as u32)),
            Arc::new(FixedSizeBinaryArray::try_new(16, ids, None).internal("cannot build the column of ids")?),
            Arc::new(StringArray::from_iter_values(rows.clone().map(|row| self.metric(row)))),
            Arc::new(self.label_maps(rows.clone())?),
            Arc::new(StringArray::from_iter_values(services)),
        ];
        for (firsts, counts) in &self.rows {
            columns.push(Arc::new(UInt64Array::from(firsts[rows.clone()].to_vec())));
            columns.push(Arc::new(UInt64Array::from(counts[rows.clone()].to_vec())));
        }
        columns.push(time(&self.min_ts));
        columns.push(time(&self.max_ts));
        Ok(columns)
    }

    fn label_maps(&self, rows: std::ops::Range<usize>) -> Result<MapArray> {
        let (mut names, mut values) = (StringBuilder::new(), StringBuilder::new());
        let mut offsets = Vec::with_capacity(rows.len() + 1);
        let mut pairs = 0;
        offsets.push(pairs);
        for row in rows {
            for &pair in self.labels.of(row) {
                names.append_value(self.labels.name(pair));
                values.append_value(self.labels.value(pair));
                pairs += 1;
            }
            offsets.push(pairs);
        }
        map_of(offsets, names, values)
    }

    /// Writes `.index`; `None` if no series has a label.
    pub(super) fn write_index(&self, draft: &mut Draft, range: (i64, i64)) -> Result<Option<FileMeta>> {
        let sorted = self.labels.sorted();
        if sorted.is_empty() {
            return Ok(None);
        }
        let p = properties()
            .set_max_row_group_row_count(Some(1 << 20))
            .set_data_page_row_count_limit(INDEX_PAGE_ROWS)
            .set_write_batch_size(INDEX_PAGE_ROWS)
            .set_data_page_size_limit(INDEX_PAGE_BYTES)
            .set_compression(codec(super::PartCompression::Compacted))
            .set_column_dictionary_enabled(column(&["value"]), false)
            .set_column_encoding(column(&["value"]), Encoding::DELTA_BYTE_ARRAY)
            .set_column_dictionary_enabled(column(&["series"]), false)
            .page_statistics(&["label"])
            .page_statistics(&["value"]);
        let mut file = PartFile::create(draft, "index", metrics::index(), p.build())?;
        let (mut batch, postings) = (IndexBatch::default(), self.labels.postings());
        let mut directory: Vec<(&str, u64, u64)> = Vec::new();
        for (row, pair) in (0..).zip(sorted) {
            let name = self.labels.name(pair);
            match directory.last_mut() {
                Some(last) if last.0 == name => last.2 += 1,
                _ => directory.push((name, row, 1)),
            }
            batch.push(name, self.labels.value(pair), postings.of(pair))?;
            // A batch whose bitmaps reach the size limit ends the page.
            if batch.rows == INDEX_PAGE_ROWS || batch.bytes >= INDEX_PAGE_BYTES {
                batch.write(&mut file)?;
            }
        }
        batch.write(&mut file)?;
        file.put(keys::LABEL_ROWS, serde_json::to_string(&directory).internal("cannot write the rows of labels")?);
        file.finish(&draft.spec, range, &["label", "value"]).map(Some)
    }
}

#[derive(Default)]
struct IndexBatch {
    labels: StringBuilder,
    values: StringBuilder,
    series: BinaryBuilder,
    rows: usize,
    bytes: usize,
}

impl IndexBatch {
    fn push(&mut self, label: &str, value: &str, rows: &[u32]) -> Result<()> {
        let mut bitmap = RoaringBitmap::from_sorted_iter(rows.iter().copied()).internal("postings are not sorted")?;
        bitmap.optimize();
        let mut bytes = Vec::with_capacity(bitmap.serialized_size());
        bitmap.serialize_into(&mut bytes).internal("cannot write a bitmap")?;
        self.labels.append_value(label);
        self.values.append_value(value);
        self.bytes += bytes.len();
        self.rows += 1;
        self.series.append_value(bytes);
        Ok(())
    }

    fn write(&mut self, file: &mut PartFile) -> Result<()> {
        (self.bytes, self.rows) = (0, 0);
        let columns: Vec<ArrayRef> =
            vec![Arc::new(self.labels.finish()), Arc::new(self.values.finish()), Arc::new(self.series.finish())];
        file.write(&RecordBatch::try_new(metrics::index(), columns).internal("cannot build a batch of the index")?)
    }
}

/// Builds a map column, with the type of the column `labels`, from its pairs.
pub(super) fn map_of(offsets: Vec<i32>, mut names: StringBuilder, mut values: StringBuilder) -> Result<MapArray> {
    let fields =
        Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, false)]);
    let pairs: Vec<ArrayRef> = vec![Arc::new(names.finish()), Arc::new(values.finish())];
    let what = "cannot build a column of labels";
    let entries = StructArray::try_new(fields.clone(), pairs, None).internal(what)?;
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    MapArray::try_new(field, OffsetBuffer::new(ScalarBuffer::from(offsets)), entries, None, true).internal(what)
}
