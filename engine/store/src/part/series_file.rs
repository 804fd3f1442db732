//! Writing `.series` (a row per series, labels dictionary-coded) and `.index` (label value → bitmap of series).
//!
//! Until the part is complete the table stands in memory as columns of codes: some 60 bytes and 4 per label for a
//! series. Only the end tells which labels are the commonest.

use std::hash::BuildHasher;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, DictionaryArray, FixedSizeBinaryArray, Int32Array, MapArray, RecordBatch, StringArray,
    StringBuilder, StructArray, TimestampMillisecondArray, UInt32Array, UInt64Array,
};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Schema};
use hashbrown::HashTable;
use parquet::basic::{Compression, Encoding};
use quiver_types::LabelSet;
use quiver_types::label::METRIC_NAME;
use quiver_types::tables::metrics::{self, LABEL_COLUMNS};
use roaring::RoaringBitmap;

use super::file::{Choices, PartFile, Unfinished, codec, column, keys, properties};
use super::postings::Postings;
use super::{FileMeta, PartMeta, PartSpec};
use crate::error::{Context, Result};
use crate::run::SeriesRun;

const BATCH_ROWS: usize = 16 * 1024;

/// Distinct texts with a number each; number 0 is the empty text.
#[derive(Debug)]
struct Texts {
    list: Vec<Box<str>>,
    numbers: HashTable<u32>,
    hasher: foldhash::fast::FixedState,
}

impl Default for Texts {
    fn default() -> Self {
        Self { list: vec![Box::from("")], numbers: HashTable::new(), hasher: foldhash::fast::FixedState::default() }
    }
}

impl Texts {
    fn number(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let hash = self.hasher.hash_one(text);
        let Self { list, numbers, hasher } = self;
        if let Some(&number) = numbers.find(hash, |&n| *list[n as usize] == *text) {
            return number;
        }
        let number = list.len() as u32;
        list.push(Box::from(text));
        numbers.insert_unique(hash, number, |&n| hasher.hash_one(&*list[n as usize]));
        number
    }

    /// Positions of all texts but the empty one, in the order of the texts.
    fn sorted(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (1..self.list.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| self.list[a as usize].cmp(&self.list[b as usize]));
        order
    }
}

/// One label of all series so far; rows behind the end of `codes` lack it.
#[derive(Debug)]
struct Label {
    name: String,
    values: Texts,
    codes: Vec<u32>,
    present: usize,
}

impl Label {
    fn code(&self, row: usize) -> u32 {
        self.codes.get(row).copied().unwrap_or(0)
    }
}

/// The series of a part being written.
#[derive(Debug, Default)]
pub(super) struct SeriesTableWriter {
    ids: Vec<u8>,
    names: Texts,
    labels: Vec<Label>,
    /// Columns of the labels of the series before: most series have the same ones.
    guess: Vec<u32>,
    services: Texts,
    service_codes: Vec<u32>,
    /// First row and number of rows in each sibling.
    rows: [(Vec<u64>, Vec<u64>); 3],
    min_ts: Vec<i64>,
    max_ts: Vec<i64>,
}

impl SeriesTableWriter {
    /// Appends a series; `first` are the rows at which its data begins in samples, histograms and exemplars.
    pub(super) fn push(&mut self, run: &SeriesRun, first: [u64; 3], range: (i64, i64)) {
        let row = self.min_ts.len();
        self.ids.extend_from_slice(&run.id.to_bytes());
        self.push_labels(row, &run.labels);
        self.service_codes.push(self.services.number(&run.service));
        let counts = [run.samples.len(), run.hists.len(), run.exemplars.len()];
        for (((firsts, rows), first), count) in self.rows.iter_mut().zip(first).zip(counts) {
            firsts.push(first);
            rows.push(count as u64);
        }
        self.min_ts.push(range.0);
        self.max_ts.push(range.1);
    }

    fn push_labels(&mut self, row: usize, labels: &LabelSet) {
        let mut at = 0;
        for (name, value) in labels.iter() {
            let guessed = self.guess.get(at).copied().filter(|&l| self.labels[l as usize].name == name);
            let index = guessed.unwrap_or_else(|| self.label(name));
            match self.guess.get_mut(at) {
                Some(guess) => *guess = index,
                None => self.guess.push(index),
            }
            at += 1;
            let label = &mut self.labels[index as usize];
            let same = label.codes.last().copied().filter(|&c| *label.values.list[c as usize] == *value);
            let code = same.unwrap_or_else(|| label.values.number(value));
            label.codes.resize(row, 0);
            label.codes.push(code);
            label.present += 1;
        }
    }

    fn label(&mut self, name: &str) -> u32 {
        // Number 0 is the empty name, which no label has.
        let number = self.names.number(name);
        if number as usize > self.labels.len() {
            let values = Texts::default();
            self.labels.push(Label { name: name.to_owned(), values, codes: Vec::new(), present: 0 });
        }
        number - 1
    }

    /// Number of series.
    pub(super) fn len(&self) -> usize {
        self.min_ts.len()
    }

    /// Services, sorted.
    pub(super) fn services(&self) -> Vec<String> {
        let mut services: Vec<String> =
            self.services.sorted().iter().map(|&s| self.services.list[s as usize].to_string()).collect();
        if self.service_codes.contains(&0) {
            services.insert(0, String::new());
        }
        services
    }

    /// Metric names, sorted.
    pub(super) fn metrics(&self) -> Vec<&str> {
        let metric = self.labels.iter().find(|l| l.name == METRIC_NAME);
        metric.map_or_else(Vec::new, |m| m.values.sorted().iter().map(|&v| &*m.values.list[v as usize]).collect())
    }

    /// Labels in name order.
    fn by_name(&self) -> Vec<&Label> {
        let mut labels: Vec<_> = self.labels.iter().collect();
        labels.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        labels
    }

    /// The labels that get a column of their own, in name order.
    fn commonest(&self) -> Vec<&Label> {
        let mut labels: Vec<_> = self.labels.iter().filter(|l| l.name != METRIC_NAME).collect();
        labels.sort_unstable_by(|a, b| b.present.cmp(&a.present).then_with(|| a.name.cmp(&b.name)));
        labels.truncate(LABEL_COLUMNS);
        labels.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        labels
    }

    /// Writes `.series`. `meta` goes into its footer: what is known of the part but this file.
    pub(super) fn write(
        &self,
        root: &Path,
        spec: &PartSpec,
        range: (i64, i64),
        meta: &PartMeta,
        unfinished: &mut Unfinished,
    ) -> Result<FileMeta> {
        let own = self.commonest();
        let mut fields: Vec<_> = metrics::series().fields().iter().cloned().collect();
        let coded = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        fields.extend(own.iter().map(|l| Arc::new(Field::new(format!("label.{}", l.name), coded.clone(), true))));
        let schema = Arc::new(Schema::new(fields));
        let mut p = properties()
            .set_max_row_group_row_count(Some(1 << 20))
            .set_data_page_row_count_limit(1 << 16)
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
        let mut file = PartFile::create(root, spec, "series", Arc::clone(&schema), p.build(), unfinished)?;
        let names: Vec<&str> = self.by_name().iter().map(|l| &*l.name).collect();
        file.put(keys::LABELS, serde_json::to_string(&names).internal("cannot write label names")?);
        file.put_meta(meta)?;
        let values: Vec<ArrayRef> =
            own.iter().map(|l| Arc::new(StringArray::from_iter_values(l.values.list.iter())) as ArrayRef).collect();
        let all = self.by_name();
        for start in (0..self.len()).step_by(BATCH_ROWS) {
            let rows = start..(start + BATCH_ROWS).min(self.len());
            let mut columns = self.fixed_columns(&all, rows.clone())?;
            for (label, values) in own.iter().zip(&values) {
                let codes: Int32Array = rows.clone().map(|r| Some(label.code(r) as i32).filter(|&c| c != 0)).collect();
                let coded = DictionaryArray::<Int32Type>::try_new(codes, Arc::clone(values));
                columns.push(Arc::new(coded.internal("cannot build a label column")?));
            }
            file.write(
                &RecordBatch::try_new(Arc::clone(&schema), columns).internal("cannot build a batch of series")?,
            )?;
        }
        file.finish(spec, range, &["metric", "labels"])
    }

    fn fixed_columns(&self, labels: &[&Label], rows: std::ops::Range<usize>) -> Result<Vec<ArrayRef>> {
        let time =
            |list: &[i64]| Arc::new(TimestampMillisecondArray::from(list[rows.clone()].to_vec()).with_timezone("UTC"));
        let metric = labels.iter().find(|l| l.name == METRIC_NAME);
        let metrics = rows.clone().map(|r| metric.map_or("", |m| &*m.values.list[m.code(r) as usize]));
        let services = self.service_codes[rows.clone()].iter().map(|&s| &*self.services.list[s as usize]);
        let ids = Buffer::from(&self.ids[rows.start * 16..rows.end * 16]);
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from_iter_values(rows.start as u32..rows.end as u32)),
            Arc::new(FixedSizeBinaryArray::try_new(16, ids, None).internal("cannot build the column of ids")?),
            Arc::new(StringArray::from_iter_values(metrics)),
            Arc::new(label_maps(labels, rows.clone())?),
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

    /// Writes `.index`.
    pub(super) fn write_index(
        &self,
        root: &Path,
        spec: &PartSpec,
        range: (i64, i64),
        unfinished: &mut Unfinished,
    ) -> Result<FileMeta> {
        let p = properties()
            .set_max_row_group_row_count(Some(1 << 20))
            .set_data_page_row_count_limit(4096)
            .set_write_batch_size(128)
            .set_data_page_size_limit(32 << 10)
            .set_compression(codec(super::PartCompression::Compacted))
            .set_column_dictionary_enabled(column(&["value"]), false)
            .set_column_encoding(column(&["value"]), Encoding::DELTA_BYTE_ARRAY)
            .set_column_dictionary_enabled(column(&["series"]), false)
            .page_statistics(&["label"])
            .page_statistics(&["value"]);
        let mut file = PartFile::create(root, spec, "index", metrics::index(), p.build(), unfinished)?;
        let mut batch = IndexBatch::default();
        for label in self.by_name() {
            let codes = (0..self.len()).map(|r| label.code(r));
            let postings = Postings::of(codes, label.values.list.len());
            for value in label.values.sorted() {
                let rows = postings.rows(value as usize);
                batch.push(&label.name, &label.values.list[value as usize], rows)?;
                if batch.bytes > 1 << 20 {
                    batch.write(&mut file)?;
                }
            }
        }
        batch.write(&mut file)?;
        file.finish(spec, range, &["label", "value"])
    }
}

#[derive(Default)]
struct IndexBatch {
    labels: StringBuilder,
    values: StringBuilder,
    series: BinaryBuilder,
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
        self.bytes += label.len() + value.len() + bytes.len();
        self.series.append_value(bytes);
        Ok(())
    }

    fn write(&mut self, file: &mut PartFile) -> Result<()> {
        self.bytes = 0;
        let columns: Vec<ArrayRef> =
            vec![Arc::new(self.labels.finish()), Arc::new(self.values.finish()), Arc::new(self.series.finish())];
        file.write(&RecordBatch::try_new(metrics::index(), columns).internal("cannot build a batch of the index")?)
    }
}

fn label_maps(labels: &[&Label], rows: std::ops::Range<usize>) -> Result<MapArray> {
    let (mut names, mut values) = (StringBuilder::new(), StringBuilder::new());
    let mut offsets = Vec::with_capacity(rows.len() + 1);
    offsets.push(0);
    let mut pairs = 0i32;
    for row in rows {
        for label in labels {
            let code = label.code(row);
            if code != 0 {
                names.append_value(&label.name);
                values.append_value(&label.values.list[code as usize]);
                pairs += 1;
            }
        }
        offsets.push(pairs);
    }
    map_of(offsets, names, values)
}

/// Gives a map column of the type of `labels` out of its pairs.
pub(super) fn map_of(offsets: Vec<i32>, mut names: StringBuilder, mut values: StringBuilder) -> Result<MapArray> {
    let fields =
        Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, false)]);
    let pairs: Vec<ArrayRef> = vec![Arc::new(names.finish()), Arc::new(values.finish())];
    let what = "cannot build a column of labels";
    let entries = StructArray::try_new(fields.clone(), pairs, None).internal(what)?;
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    MapArray::try_new(field, OffsetBuffer::new(ScalarBuffer::from(offsets)), entries, None, true).internal(what)
}
