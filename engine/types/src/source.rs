//! How the languages read the store's indexes: traits implemented by `store`, wired by the binary.
//!
//! Async, Arrow only, each call with the caller's [`Access`]; what they read counts in [`ReadStats`].

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::metrics::MetricMetadata;
use crate::{Access, LabelSet, Matcher, Millis, MillisRange, ReadStats, Result, SeriesTable};

/// Matchers and the time that the answer needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SeriesSelector {
    /// All must match.
    pub matchers: Vec<Matcher>,
    /// Samples outside are of no interest. Series that have none inside may still be given.
    pub range: MillisRange,
}

/// The series that a selector gave, pinned to the snapshot that it was asked of.
#[derive(Clone)]
pub struct SelectedSeries {
    /// Labels; rows in no promised order, no two rows alike.
    pub table: Arc<SeriesTable>,
    /// Whether any of the series may hold native histograms in the range.
    pub has_histograms: bool,
    /// Where their samples are: known to the store alone, which scans it (`quiver_store::samples_table`).
    pub handle: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for SelectedSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelectedSeries")
            .field("series", &self.table.len())
            .field("has_histograms", &self.has_histograms)
            .finish()
    }
}

/// Gives snapshots.
pub trait SeriesSource: Send + Sync + fmt::Debug {
    /// Pins what is visible now. All selectors of one query read from one snapshot.
    fn snapshot(&self) -> Arc<dyn SeriesSnapshot>;
}

/// What was visible at one moment: parts, live generations, last inserted record.
#[async_trait]
pub trait SeriesSnapshot: Send + Sync + fmt::Debug {
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
    /// The series.
    pub labels: LabelSet,
    /// Time, value, labels of the exemplar.
    pub exemplars: Vec<(Millis, f64, LabelSet)>,
}
