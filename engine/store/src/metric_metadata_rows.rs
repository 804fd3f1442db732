//! Prepares rows of the table `metric_metadata` for a part: selects which rows of a metric are kept, and makes the
//! columns.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, StringArray, TimestampMillisecondArray};
use arrow::datatypes::TimestampMillisecondType;
use quiver_types::Millis;
use quiver_types::metrics::MetricMetadata;
use quiver_types::tables::metric_metadata;

use crate::error::{Context, Error, Result};

/// What a text takes beside its bytes.
const ALLOCATION_BYTES: usize = 8;

/// A row of the table: what a service said of a metric.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MetadataRow {
    /// When it was said last, Unix milliseconds.
    pub(crate) ts: Millis,
    /// What was said.
    pub(crate) metadata: MetricMetadata,
    /// Who said it; empty = none.
    pub(crate) service: String,
}

impl MetadataRow {
    /// About what it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let MetricMetadata { metric, metric_type, help, unit } = &self.metadata;
        let texts = [metric, metric_type, help, unit, &self.service];
        size_of::<Self>() + texts.map(|text| text.len() + ALLOCATION_BYTES).iter().sum::<usize>()
    }
}

/// Keeps the newest row of each metric and service (at one time the greatest text), sorted by metric, then time.
pub(crate) fn newest_rows(mut rows: Vec<MetadataRow>) -> Vec<MetadataRow> {
    rows.sort_by(|a, b| (&a.metadata.metric, &a.service, a).cmp(&(&b.metadata.metric, &b.service, b)));
    rows.dedup_by(|later, kept| {
        let is_same = later.metadata.metric == kept.metadata.metric && later.service == kept.service;
        if is_same {
            std::mem::swap(later, kept);
        }
        is_same
    });
    rows.sort_by(|a, b| (&a.metadata.metric, a.ts, &a.service).cmp(&(&b.metadata.metric, b.ts, &b.service)));
    rows
}

/// Makes the columns of `.rows`.
pub(crate) fn metadata_batch(rows: &[MetadataRow]) -> Result<RecordBatch> {
    let text = |get: fn(&MetadataRow) -> &str| Arc::new(StringArray::from_iter_values(rows.iter().map(get)));
    let ts = TimestampMillisecondArray::from_iter_values(rows.iter().map(|r| r.ts)).with_timezone("UTC");
    RecordBatch::try_new(
        metric_metadata::rows(),
        vec![
            Arc::new(ts),
            text(|r| &r.metadata.metric),
            text(|r| &r.metadata.metric_type),
            text(|r| &r.metadata.help),
            text(|r| &r.metadata.unit),
            text(|r| &r.service),
        ],
    )
    .internal("metadata does not fit its table")
}

/// Reads the rows of a batch.
pub(crate) fn metadata_rows(batch: &RecordBatch) -> Result<Vec<MetadataRow>> {
    let column = |name: &str| {
        let column = batch.column_by_name(name);
        column.ok_or_else(|| Error::internal(format!("a part of `metric_metadata` lacks `{name}`")))
    };
    let text = |name: &str| {
        let shape = || Error::internal(format!("`{name}` of a part of `metric_metadata` is no text"));
        column(name)?.as_string_opt::<i32>().ok_or_else(shape)
    };
    let shape = || Error::internal("`ts` of a part of `metric_metadata` is no time");
    let ts = column("ts")?.as_primitive_opt::<TimestampMillisecondType>().ok_or_else(shape)?;
    let [metric, metric_type, help, unit, service] =
        [text("metric")?, text("type")?, text("help")?, text("unit")?, text("__q_service")?];
    let row = |i: usize| MetadataRow {
        ts: ts.value(i),
        metadata: MetricMetadata {
            metric: metric.value(i).to_owned(),
            metric_type: metric_type.value(i).to_owned(),
            help: help.value(i).to_owned(),
            unit: unit.value(i).to_owned(),
        },
        service: service.value(i).to_owned(),
    };
    Ok((0..ts.len()).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stays() {
        let row = |ts, metric: &str, help: &str, service: &str| MetadataRow {
            ts,
            metadata: MetricMetadata {
                metric: metric.into(),
                metric_type: "counter".into(),
                help: help.into(),
                unit: String::new(),
            },
            service: service.into(),
        };
        let rows = vec![row(2, "m", "new", ""), row(1, "m", "old", ""), row(1, "m", "other", "s"), row(5, "a", "", "")];
        let kept = newest_rows(rows);
        assert_eq!(kept, [row(5, "a", "", ""), row(1, "m", "other", "s"), row(2, "m", "new", "")]);
        assert_eq!(metadata_rows(&metadata_batch(&kept).unwrap()).unwrap(), kept);
    }
}
