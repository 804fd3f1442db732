//! Reads the rows of a look-up from the index.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder, UInt64Array,
};
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use quiver_types::label::METRIC_NAME;
use quiver_types::metrics::MetricMetadata;
use quiver_types::source::SeriesExemplars;
use quiver_types::{Access, MatchOp, Matcher, MillisRange, ReadStats, SeriesSelector, SeriesSnapshot, SeriesTable};

use super::label_text::{labels_json, push_labels};
use super::lookup::{IndexSource, LookUp};
use crate::error::to_datafusion;

const BATCH_ROWS: usize = 8192;
/// Fields in which senders put the id of a trace.
const TRACE_FIELDS: [&str; 4] = ["trace_id", "traceId", "traceID", "trace.id"];
/// What a value that is counted takes, about.
const COUNT_BYTES: usize = 96;

type Batches = BoxStream<'static, Result<RecordBatch>>;

/// Where a look-up is made while it runs, and what counts for its query.
#[derive(Debug, Clone)]
pub(super) struct IndexLookup {
    snapshot: Arc<dyn SeriesSnapshot>,
    access: Access,
    stats: Arc<ReadStats>,
}

impl IndexLookup {
    pub(super) fn new(source: &IndexSource, stats: Arc<ReadStats>) -> Self {
        Self { snapshot: Arc::clone(&source.snapshot), access: source.access.clone(), stats }
    }
}

/// Makes a look-up once the stream is asked for rows.
pub(super) fn read(look_up: LookUp, source: IndexLookup, schema: SchemaRef) -> Batches {
    match look_up {
        LookUp::Series(selectors, range) => series(source, selectors, range, schema),
        other => stream::once(whole(other, source, schema)).try_flatten().boxed(),
    }
}

async fn select(source: &IndexLookup, matchers: Vec<Matcher>, range: MillisRange) -> Result<Arc<SeriesTable>> {
    let selector = SeriesSelector { matchers, range, labels: None };
    let selected = source.snapshot.select(&source.access, &selector, &source.stats).await.map_err(to_datafusion)?;
    source.stats.check().map_err(to_datafusion)?;
    Ok(Arc::clone(&selected.table))
}

/// Label sets are written batch by batch: only the table of a selector is there as a whole.
fn series(source: IndexLookup, selectors: Vec<Vec<Matcher>>, range: MillisRange, schema: SchemaRef) -> Batches {
    let tables = stream::iter(selectors).then(move |matchers| {
        let source = source.clone();
        async move { Ok::<_, DataFusionError>((select(&source, matchers, range).await?, source)) }
    });
    let batches = tables.map_ok(move |(table, source)| {
        let schema = Arc::clone(&schema);
        stream::iter((0..table.len()).step_by(BATCH_ROWS)).map(move |from| {
            source.stats.check().map_err(to_datafusion)?;
            let mut texts = StringBuilder::new();
            let mut text = String::new();
            for row in from..table.len().min(from + BATCH_ROWS) {
                text.clear();
                push_labels(&mut text, table.labels(row));
                texts.append_value(&text);
            }
            Ok(RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(texts.finish())])?)
        })
    });
    batches.try_flatten().boxed()
}

/// Look-ups whose rows the index gives as a whole, in the query's memory.
async fn whole(look_up: LookUp, source: IndexLookup, schema: SchemaRef) -> Result<Batches> {
    let IndexLookup { snapshot, access, stats } = &source;
    let batches = match look_up {
        LookUp::Names(selectors, range) => {
            let names = snapshot.label_names(access, &selectors, range, stats).await.map_err(to_datafusion)?;
            cut(names, schema, |names, _| vec![texts(names.iter().map(String::as_str))])
        }
        LookUp::Values(name, selectors, range) => {
            let values = snapshot.label_values(access, &name, &selectors, range, stats).await;
            cut(values.map_err(to_datafusion)?, schema, |values, _| vec![texts(values.iter().map(String::as_str))])
        }
        LookUp::Metadata(metric) => {
            let found = snapshot.metadata(access, metric.as_deref(), stats).await.map_err(to_datafusion)?;
            cut(found, schema, metadata)
        }
        LookUp::Exemplars(selectors, range) => {
            let found = snapshot.exemplars(access, &selectors, range, stats).await.map_err(to_datafusion)?;
            exemplars(found, schema)
        }
        LookUp::Cardinality => {
            let all = Matcher::new(METRIC_NAME, MatchOp::NotEqual, "").map_err(to_datafusion)?;
            let table = select(&source, vec![all], MillisRange::ALL).await?;
            cardinality(table, source, schema)
        }
        // Read by `series`.
        LookUp::Series(..) => stream::empty().boxed(),
    };
    Ok(batches)
}

fn texts<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// Makes batches of some rows at a time; the function gets them with the place of the first.
fn cut<T: Send + 'static>(
    all: Vec<T>,
    schema: SchemaRef,
    columns: impl Fn(&[T], usize) -> Vec<ArrayRef> + Send + 'static,
) -> Batches {
    let starts = stream::iter((0..all.len()).step_by(BATCH_ROWS));
    let batch = move |from: usize| {
        let rows = &all[from..all.len().min(from + BATCH_ROWS)];
        Ok(RecordBatch::try_new(Arc::clone(&schema), columns(rows, from))?)
    };
    starts.map(batch).boxed()
}

fn metadata(rows: &[MetricMetadata], from: usize) -> Vec<ArrayRef> {
    let places = from as u64..(from + rows.len()) as u64;
    vec![
        texts(rows.iter().map(|m| m.metric.as_str())),
        texts(rows.iter().map(|m| m.metric_type.as_str())),
        texts(rows.iter().map(|m| m.unit.as_str())),
        texts(rows.iter().map(|m| m.help.as_str())),
        Arc::new(UInt64Array::from_iter_values(places)),
    ]
}

/// One batch for each run of exemplars of a series.
fn exemplars(found: Vec<SeriesExemplars>, schema: SchemaRef) -> Batches {
    let runs = found.into_iter().enumerate().flat_map(move |(number, series)| {
        let labels = labels_json(series.labels.iter());
        let schema = Arc::clone(&schema);
        let starts = (0..series.exemplars.len()).step_by(BATCH_ROWS);
        starts.map(move |from| {
            let rows = &series.exemplars[from..series.exemplars.len().min(from + BATCH_ROWS)];
            let mut traces = ListBuilder::new(StringBuilder::new());
            for (.., labels) in rows {
                for (_, id) in labels.iter().filter(|(name, _)| TRACE_FIELDS.contains(name)) {
                    traces.values().append_value(id.to_ascii_lowercase());
                }
                traces.append(true);
            }
            let own: Vec<String> = rows.iter().map(|(.., labels)| labels_json(labels.iter())).collect();
            let columns: Vec<ArrayRef> = vec![
                Arc::new(UInt64Array::from_value(number as u64, rows.len())),
                texts(rows.iter().map(|_| labels.as_str())),
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
                Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| row.1))),
                texts(own.iter().map(String::as_str)),
                Arc::new(traces.finish()),
            ];
            Ok::<_, DataFusionError>(RecordBatch::try_new(Arc::clone(&schema), columns)?)
        })
    });
    stream::iter(runs).boxed()
}

/// Counts label by label: a column has each of its values once, so that a number per value is all that is held.
fn cardinality(table: Arc<SeriesTable>, source: IndexLookup, schema: SchemaRef) -> Batches {
    let total: Vec<ArrayRef> = vec![
        Arc::new(StringArray::new_null(1)),
        Arc::new(StringArray::new_null(1)),
        Arc::new(UInt64Array::from_value(table.len() as u64, 1)),
    ];
    let first = RecordBatch::try_new(Arc::clone(&schema), total).map_err(DataFusionError::from);
    let labels = stream::iter(0..table.names().len());
    let counted = labels.then(move |at| {
        let counted = count_values(&table, at, &source, &schema);
        // A label takes as long as there are series: others get their turn between two.
        async move {
            tokio::task::yield_now().await;
            counted
        }
    });
    stream::once(std::future::ready(first)).chain(counted).boxed()
}

fn count_values(table: &SeriesTable, at: usize, source: &IndexLookup, schema: &SchemaRef) -> Result<RecordBatch> {
    source.stats.check().map_err(to_datafusion)?;
    let Some((label, column)) = table.columns().nth(at) else { return Ok(RecordBatch::new_empty(Arc::clone(schema))) };
    let bytes = column.values.len() * COUNT_BYTES;
    source.stats.take(bytes).map_err(to_datafusion)?;
    let mut counts: HashMap<&str, u64> = HashMap::new();
    (0..table.len()).map(|row| &**column.value(row)).filter(|v| !v.is_empty()).for_each(|value| {
        *counts.entry(value).or_default() += 1;
    });
    let columns: Vec<ArrayRef> = vec![
        texts(counts.keys().map(|_| &**label)),
        texts(counts.keys().copied()),
        Arc::new(UInt64Array::from_iter_values(counts.values().copied())),
    ];
    let batch = RecordBatch::try_new(Arc::clone(schema), columns);
    source.stats.give_back(bytes);
    Ok(batch?)
}
