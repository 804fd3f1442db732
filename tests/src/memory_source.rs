//! An in-memory stand-in for the store: series and their samples in a map, selected and scanned through the same
//! traits. Tests of the language run on it without a store.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, ListArray, UInt32Array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use quiver_query::{SampleRequest, SampleTables};
use quiver_types::histogram::{HistogramBuilder, histogram_fields};
use quiver_types::metrics::MetricMetadata;
use quiver_types::series::SeriesTableBuilder;
use quiver_types::source::SeriesExemplars;
use quiver_types::stats::add;
use quiver_types::{
    Access, Error, Histogram, LabelSet, Matcher, MillisRange, ReadStats, ResetHint, Result, SelectedSeries,
    SeriesSelector, SeriesSnapshot, SeriesSource,
};

/// A float or a histogram at a time.
#[derive(Debug, Clone)]
pub enum MemoryValue {
    /// Float.
    Float(f64),
    /// Histogram.
    Histogram(Box<Histogram>),
}

type Samples = BTreeMap<i64, (i64, MemoryValue)>;

/// The series.
#[derive(Debug, Clone, Default)]
pub struct MemorySource {
    series: Arc<BTreeMap<Key, Samples>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Key(LabelSet);

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp_series(&other.0)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl MemorySource {
    /// Adds a sample; the last one at a time wins.
    pub fn push(&mut self, labels: &LabelSet, ts: i64, start_ts: i64, value: MemoryValue) {
        let series = Arc::make_mut(&mut self.series).entry(Key(labels.clone())).or_default();
        series.insert(ts, (start_ts, value));
    }

    /// Sets the hints of histograms as a store gives them back: `unknown` where a run of histograms starts anew,
    /// `not_reset` where one continues its predecessor, `gauge` stays.
    pub fn settle_hints(&mut self) {
        for samples in Arc::make_mut(&mut self.series).values_mut() {
            let mut previous: Option<Histogram> = None;
            for (_, value) in samples.values_mut() {
                let MemoryValue::Histogram(h) = value else {
                    previous = None;
                    continue;
                };
                if h.is_stale() {
                    previous = None;
                    continue;
                }
                if h.reset_hint != ResetHint::Gauge {
                    let continues = previous.as_ref().is_some_and(|p| continues(p, h)) && h.reset_hint != ResetHint::Reset;
                    h.reset_hint = if continues { ResetHint::NotReset } else { ResetHint::Unknown };
                }
                previous = Some((**h).clone());
            }
        }
    }
}

fn continues(previous: &Histogram, next: &Histogram) -> bool {
    let counts = |h: &Histogram| {
        let side = |spans: &[quiver_types::Span], counts: &[f64], sign: i64| {
            let mut at = 0;
            let mut counts = counts.iter();
            let mut out = Vec::new();
            for span in spans {
                at += span.offset;
                for _ in 0..span.length {
                    out.push(((sign, at), counts.next().copied().unwrap_or(0.0)));
                    at += 1;
                }
            }
            out
        };
        let mut all = side(&h.positive_spans, &h.positive, 1);
        all.extend(side(&h.negative_spans, &h.negative, -1));
        all.into_iter().collect::<BTreeMap<_, _>>()
    };
    let after = counts(next);
    previous.reset_hint != ResetHint::Gauge
        && previous.schema == next.schema
        && previous.zero_threshold == next.zero_threshold
        && previous.custom_bounds == next.custom_bounds
        && previous.count <= next.count
        && previous.zero_count <= next.zero_count
        && counts(previous).iter().all(|(k, c)| after.get(k).copied().unwrap_or(0.0) >= *c)
}

impl SeriesSource for MemorySource {
    fn snapshot(&self) -> Arc<dyn SeriesSnapshot> {
        Arc::new(self.clone())
    }
}

#[async_trait]
impl SeriesSnapshot for MemorySource {
    async fn select(&self, _: &Access, selector: &SeriesSelector, stats: &ReadStats) -> Result<SelectedSeries> {
        let mut table = SeriesTableBuilder::default();
        let mut handle: Vec<Samples> = Vec::new();
        let mut has_histograms = false;
        for (Key(labels), samples) in &*self.series {
            if !selector.matchers.iter().all(|m| m.matches(labels.get(&m.name))) {
                continue;
            }
            let inside: Samples = samples
                .iter()
                .filter(|(t, _)| selector.range.contains(**t))
                .map(|(t, v)| (*t, v.clone()))
                .collect();
            if inside.is_empty() {
                continue;
            }
            has_histograms |= inside.values().any(|(_, v)| matches!(v, MemoryValue::Histogram(_)));
            table.push(labels.iter());
            handle.push(inside);
        }
        add(&stats.series, handle.len() as u64);
        Ok(SelectedSeries { table: Arc::new(table.finish()), has_histograms, handle: Arc::new(handle) })
    }

    async fn label_names(&self, _: &Access, _: &[Vec<Matcher>], _: MillisRange, _: &ReadStats) -> Result<Vec<String>> {
        Err(Error::internal("not part of this stand-in"))
    }

    async fn label_values(
        &self,
        _: &Access,
        _: &str,
        _: &[Vec<Matcher>],
        _: MillisRange,
        _: &ReadStats,
    ) -> Result<Vec<String>> {
        Err(Error::internal("not part of this stand-in"))
    }

    async fn metadata(&self, _: &Access, _: Option<&str>, _: &ReadStats) -> Result<Vec<MetricMetadata>> {
        Err(Error::internal("not part of this stand-in"))
    }

    async fn exemplars(
        &self,
        _: &Access,
        _: &[Vec<Matcher>],
        _: MillisRange,
        _: &ReadStats,
    ) -> Result<Vec<SeriesExemplars>> {
        Err(Error::internal("not part of this stand-in"))
    }
}

/// Scans what [`MemorySource`] selected. Gives two partitions, and batches of a few series, so that merging is tested.
#[derive(Debug, Default)]
pub struct MemoryTables;

impl SampleTables for MemoryTables {
    fn samples(
        &self,
        series: &SelectedSeries,
        request: &SampleRequest,
        stats: &Arc<ReadStats>,
    ) -> Result<Arc<dyn TableProvider>> {
        let handle = Arc::clone(&series.handle);
        let samples = handle.downcast_ref::<Vec<Samples>>().ok_or_else(|| Error::internal("another source's series"))?;
        let mut partitions = vec![vec![], vec![]];
        let half = samples.len().div_ceil(2).max(1);
        let rows: Vec<u32> = (0..samples.len() as u32).collect();
        for (i, chunk) in rows.chunks(half.min(3)).enumerate() {
            let place = usize::from(i * half.min(3) >= half);
            partitions[place].push(batch(samples, chunk, request, stats)?);
        }
        let schema = schema(request);
        let table = MemTable::try_new(schema, partitions).map_err(quiver_query::from_datafusion)?;
        Ok(Arc::new(table))
    }
}

fn list_type(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", item, false)))
}

fn schema(request: &SampleRequest) -> Arc<Schema> {
    let mut fields = vec![Field::new("row", DataType::UInt32, false)];
    let mut add = |name: &str, item: DataType| fields.push(Field::new(name, list_type(item), false));
    if request.floats {
        add("ts", DataType::Int64);
        add("v", DataType::Float64);
        if request.start_times {
            add("start_ts", DataType::Int64);
        }
    }
    if request.histograms {
        add("h_ts", DataType::Int64);
        add("h_start_ts", DataType::Int64);
        add("h", DataType::Struct(histogram_fields()));
    }
    Arc::new(Schema::new(fields))
}

fn batch(samples: &[Samples], rows: &[u32], request: &SampleRequest, stats: &ReadStats) -> Result<RecordBatch> {
    let mut ts: (Vec<usize>, Vec<i64>) = Default::default();
    let (mut values, mut starts) = (Vec::<f64>::new(), (Vec::<usize>::new(), Vec::<i64>::new()));
    let mut h_ts: (Vec<usize>, Vec<i64>) = Default::default();
    let mut h_starts: (Vec<usize>, Vec<i64>) = Default::default();
    let mut hists = HistogramBuilder::default();
    let mut kept = Vec::new();
    for &row in rows {
        let inside = || samples[row as usize].iter().filter(|(t, _)| request.range.contains(**t));
        let floats: Vec<(i64, i64, f64)> = inside()
            .filter_map(|(t, (s, v))| match v {
                MemoryValue::Float(v) => Some((*t, *s, *v)),
                MemoryValue::Histogram(_) => None,
            })
            .collect();
        let histograms: Vec<(i64, i64, &Histogram)> = inside()
            .filter_map(|(t, (s, v))| match v {
                MemoryValue::Histogram(h) => Some((*t, *s, &**h)),
                MemoryValue::Float(_) => None,
            })
            .collect();
        if floats.is_empty() && histograms.is_empty() {
            continue;
        }
        add(&stats.samples, (floats.len() + histograms.len()) as u64);
        kept.push(row);
        let started = floats.iter().any(|f| f.1 != 0);
        ts.0.push(floats.len());
        starts.0.push(if started { floats.len() } else { 0 });
        for (t, s, v) in floats {
            ts.1.push(t);
            values.push(v);
            if started {
                starts.1.push(s);
            }
        }
        let started = histograms.iter().any(|f| f.1 != 0);
        h_ts.0.push(histograms.len());
        h_starts.0.push(if started { histograms.len() } else { 0 });
        for (t, s, h) in histograms {
            h_ts.1.push(t);
            hists.push(h);
            if started {
                h_starts.1.push(s);
            }
        }
    }
    let list = |lengths: &[usize], items: ArrayRef| -> ArrayRef {
        let field = Arc::new(Field::new("item", items.data_type().clone(), false));
        Arc::new(ListArray::new(field, OffsetBuffer::from_lengths(lengths.iter().copied()), items, None))
    };
    let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt32Array::from(kept))];
    if request.floats {
        columns.push(list(&ts.0, Arc::new(Int64Array::from(ts.1))));
        columns.push(list(&ts.0, Arc::new(Float64Array::from(values))));
        if request.start_times {
            columns.push(list(&starts.0, Arc::new(Int64Array::from(starts.1))));
        }
    }
    if request.histograms {
        columns.push(list(&h_ts.0, Arc::new(Int64Array::from(h_ts.1))));
        columns.push(list(&h_starts.0, Arc::new(Int64Array::from(h_starts.1))));
        columns.push(list(&h_ts.0, Arc::new(hists.finish())));
    }
    RecordBatch::try_new(schema(request), columns).map_err(|e| Error::internal("a batch of the stand-in").with_source(e))
}

