//! How the languages read the store's indexes: traits implemented by `store`, wired by the binary.
//!
//! Async, Arrow only, each call with the caller's [`Access`]; what they read counts in [`ReadStats`].

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::metrics::MetricMetadata;
use crate::tables::TableDef;
use crate::{Access, LabelSet, Matcher, Millis, MillisRange, ReadStats, Result, SeriesTable};

/// Matchers and the time that the answer needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SeriesSelector {
    /// What the labels of a series must match, all of them.
    pub matchers: Vec<Matcher>,
    /// Samples outside are of no interest. Series that have none inside may still be given.
    pub range: MillisRange,
    /// Labels that the operators around the selector look at; `None`: all. The table of the answer has no others.
    pub labels: Option<Arc<[String]>>,
}

/// The series that a selector gave, pinned to the snapshot that it was asked of.
#[derive(Clone)]
pub struct SelectedSeries {
    /// Labels; rows in no promised order. No two series are alike, but rows may be where some labels were asked for.
    pub table: Arc<SeriesTable>,
    /// Whether any of the series may hold native histograms in the range.
    pub has_histograms: bool,
    /// Which rows are wanted after all; `None`: every row.
    pub keep: Option<Arc<Vec<bool>>>,
    /// Where their samples are: known to the store alone, which scans it (`quiver_store::samples_table`).
    pub handle: Arc<dyn Any + Send + Sync>,
}

impl SelectedSeries {
    /// Drops the rows that `keep` does not have (one entry per row); what was dropped before stays so. An operator that
    /// matches series of two sides narrows each to those that have a partner on the other, before any sample is read.
    /// Tables that were made of the selection stay as they are.
    pub fn restrict(&mut self, keep: Vec<bool>) {
        self.keep = Some(Arc::new(match &self.keep {
            None => keep,
            Some(before) => before.iter().zip(keep).map(|(a, b)| *a && b).collect(),
        }));
    }
}

impl fmt::Debug for SelectedSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelectedSeries")
            .field("series", &self.table.len())
            .field("has_histograms", &self.has_histograms)
            .finish_non_exhaustive()
    }
}

/// Gives snapshots of the series and samples of a store.
pub trait SeriesSource: Send + Sync + fmt::Debug {
    /// Pins what is visible now. All selectors of one query read from one snapshot.
    fn snapshot(&self) -> Arc<dyn SeriesSnapshot>;
}

/// A moment of a source, told by what had been written and dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// Sequence number of the last write that is visible.
    pub written: u64,
    /// How often data had been dropped.
    pub dropped: u64,
}

/// What was visible at one moment: parts, live generations, last inserted record.
#[async_trait]
pub trait SeriesSnapshot: Send + Sync + fmt::Debug {
    /// Gives the moment.
    fn version(&self) -> Version;

    /// Gives the first moment of a range at which samples may have been written or dropped since an older snapshot was
    /// taken; `None`: what that one saw in the range is what this one sees.
    fn first_change(&self, since: Version, range: MillisRange) -> Option<Millis>;

    /// Resolves a selector.
    async fn select(&self, access: &Access, selector: &SeriesSelector, stats: &ReadStats) -> Result<SelectedSeries>;

    /// Gives the sorted label names of all series that match one of the selectors (none: all series) in the range.
    async fn label_names(
        &self,
        access: &Access,
        selectors: &[Vec<Matcher>],
        range: MillisRange,
        stats: &ReadStats,
    ) -> Result<Vec<String>>;

    /// Gives the sorted values of a label, likewise.
    async fn label_values(
        &self,
        access: &Access,
        name: &str,
        selectors: &[Vec<Matcher>],
        range: MillisRange,
        stats: &ReadStats,
    ) -> Result<Vec<String>>;

    /// Gives type, help and unit, sorted by metric; of `metric` alone when it is named.
    async fn metadata(&self, access: &Access, metric: Option<&str>, stats: &ReadStats) -> Result<Vec<MetricMetadata>>;

    /// Gives exemplars of the series that match one of the selectors, by series.
    async fn exemplars(
        &self,
        access: &Access,
        selectors: &[Vec<Matcher>],
        range: MillisRange,
        stats: &ReadStats,
    ) -> Result<Vec<SeriesExemplars>>;
}

/// Exemplars of one series in time order.
#[derive(Debug, Clone)]
pub struct SeriesExemplars {
    /// Labels of the series, `__name__` included.
    pub labels: LabelSet,
    /// Time, value, labels of the exemplar.
    pub exemplars: Vec<(Millis, f64, LabelSet)>,
}

/// Gives snapshots of the tables of one file whose rows are kept as they came (`tables::history`).
pub trait RowSource: Send + Sync + fmt::Debug {
    /// Pins what is visible now.
    fn snapshot(&self) -> Arc<dyn RowSnapshot>;
}

/// Rows that were visible at one moment.
#[async_trait]
pub trait RowSnapshot: Send + Sync + fmt::Debug {
    /// Gives the rows of a closed range of time that the caller may see, with the named columns in their order. What
    /// they take counts in the memory of `stats`.
    async fn rows(
        &self,
        table: &'static TableDef,
        columns: &[&str],
        access: &Access,
        range: MillisRange,
        stats: &ReadStats,
    ) -> Result<Vec<RecordBatch>>;
}
