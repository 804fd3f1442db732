//! Resolves the series that a table over metrics reads.

use std::sync::Arc;

use quiver_types::{Access, Domain, MillisRange, ReadStats, Result, SelectedSeries, SeriesSelector, SeriesSnapshot};

use super::filter::{MetricFilter, MetricLower};
use super::labels::LabelCells;
use crate::tables::named_table::Ask;

/// The sources that tables over series read from.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) snapshot: Arc<dyn SeriesSnapshot>,
    pub(super) access: Access,
    pub(super) lower: MetricLower,
}

impl Series {
    /// The sources for a statement.
    pub(super) fn of(ask: &Ask<'_>) -> Self {
        Self {
            snapshot: Arc::clone(&ask.sources.series),
            access: ask.access(Domain::Metrics),
            lower: MetricLower { service_labels: Arc::clone(&ask.sources.service_labels) },
        }
    }

    /// Resolves the series of a filter, with the labels that the columns and the filter read.
    pub(super) async fn select(
        &self,
        filter: &MetricFilter,
        range: MillisRange,
        cells: &LabelCells,
        stats: &ReadStats,
    ) -> Result<SelectedSeries> {
        let mut labels = cells.labels();
        if let Some(labels) = &mut labels {
            filter.labels(&self.lower.service_labels, labels);
            labels.sort_unstable();
            labels.dedup();
        }
        let selector = SeriesSelector { matchers: filter.matchers(), range, labels: labels.map(Into::into) };
        let mut selected = self.snapshot.select(&self.access, &selector, stats).await?;
        if filter.needs_rows() {
            let keep =
                (0..selected.table.len()).map(|row| filter.takes(&selected.table, row, &self.lower.service_labels));
            let keep = keep.collect();
            selected.restrict(keep);
        }
        Ok(selected)
    }
}
