//! How the query languages read the store's indexes: traits that `store` implements and the binary wires up.
//!
//! Every call takes the caller's [`Access`] and counts what it reads in [`ReadStats`].

use std::fmt;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::metrics::MetricMetadata;
use crate::scan::ScanSource;
use crate::tables::TableDef;
use crate::{Access, LabelSet, Matcher, Millis, MillisRange, ReadStats, Result, SeriesTable};

/// Which series a query selects: matchers, and the time range that the query needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SeriesSelector {
    /// Matchers on labels; a series must match all of them.
    pub matchers: Vec<Matcher>,
    /// The time range whose samples are needed. The result may still hold series without samples in it.
    pub range: MillisRange,
    /// Labels that the operators around the selector use; `None`: all. The resulting table has only these.
    pub labels: Option<Arc<[String]>>,
}

/// The series that a selector matched, tied to the snapshot that resolved it.
#[derive(Clone)]
pub struct SelectedSeries {
    /// Their labels, one row per series, in no particular order. Rows may repeat if only some labels were asked for.
    pub table: Arc<SeriesTable>,
    /// Whether any of the series may hold native histograms in the range.
    pub has_histograms: bool,
    /// Which rows are still wanted, one entry per row; `None`: all rows. See [`Self::restrict`].
    pub keep: Option<Arc<Vec<bool>>>,
    /// Where their samples are.
    pub samples: Arc<dyn SelectedSamples>,
}

/// Where the samples of selected series are, as the source that selected them knows it. It keeps them readable for as long
/// as it is held.
pub trait SelectedSamples: Send + Sync + fmt::Debug {
    /// Makes a table of the samples, one row per series: `row` `UInt32` (row in [`SelectedSeries::table`]), `ts`
    /// `ListView<Int64>` in Unix milliseconds, `v` `ListView<Float64>`, and as requested `start_ts`, `h_ts`, `h_start_ts`
    /// `List<Int64>` and `h` `List<Struct>` of [`crate::histogram::histogram_fields`]. Times ascend; none is in both `ts`
    /// and `h_ts`; stale markers are kept. Series without a sample in the range have no row.
    ///
    /// `keep` is that of [`SelectedSeries`]. The caller's access was applied when the series were selected; `stats` say
    /// whether it hides any. What scans of the table read counts in the `ReadStats` of their task.
    fn table(
        self: Arc<Self>,
        keep: Option<Arc<Vec<bool>>>,
        request: SampleRequest,
        stats: &ReadStats,
    ) -> Arc<dyn ScanSource>;
}

impl SelectedSeries {
    /// Makes a table of the samples of the rows that are wanted now; see [`SelectedSamples::table`].
    pub fn samples_table(&self, request: SampleRequest, stats: &ReadStats) -> Arc<dyn ScanSource> {
        Arc::clone(&self.samples).table(self.keep.clone(), request, stats)
    }

    /// Drops the rows whose entry in `keep` (one per row) is false, in addition to rows dropped before. A binary
    /// operator thus narrows each side to the series that have a partner on the other side, before any sample is read.
    /// Scan tables made from the selection earlier are not affected.
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

/// What a scan of selected series must deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "columns that are wanted or not")]
pub struct SampleRequest {
    /// Times, both ends included.
    pub range: MillisRange,
    /// Whether float samples are wanted: columns `ts`, `v`.
    pub floats: bool,
    /// Whether native histograms are wanted: columns `h_ts`, `h_start_ts`, `h`.
    pub histograms: bool,
    /// Whether start times of float samples are wanted: column `start_ts`.
    pub start_times: bool,
    /// Whether the same query reads the same series more than once, so that keeping them decoded pays.
    pub read_repeatedly: bool,
}

impl Default for SampleRequest {
    fn default() -> Self {
        Self { range: MillisRange::ALL, floats: true, histograms: false, start_times: false, read_repeatedly: false }
    }
}

/// Gives snapshots of the series and samples in a store.
pub trait SeriesSource: Send + Sync + fmt::Debug {
    /// Pins what is visible now. All selectors of one query read from one snapshot.
    fn snapshot(&self) -> Arc<dyn SeriesSnapshot>;
}

/// A state of a source, identified by how much had been written and dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// Sequence number of the last visible write.
    pub written: u64,
    /// Number of times that data had been dropped (by retention, for example).
    pub dropped: u64,
}

/// What was visible at one moment: parts, and live generations up to the last inserted record.
#[async_trait]
pub trait SeriesSnapshot: Send + Sync + fmt::Debug {
    /// Gives the version of the source at that moment.
    fn version(&self) -> Version;

    /// Gives the earliest timestamp in the range at which samples may have been written or dropped since the snapshot
    /// `since` was taken; `None`: both snapshots see the same samples in the range.
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

    /// Gives the sorted values of a label of the same series.
    async fn label_values(
        &self,
        access: &Access,
        name: &str,
        selectors: &[Vec<Matcher>],
        range: MillisRange,
        stats: &ReadStats,
    ) -> Result<Vec<String>>;

    /// Gives type, help and unit of all metrics, or of `metric` only; sorted by metric.
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

/// Gives snapshots of tables whose rows are stored unchanged in one file per part (`tables::history`).
pub trait RowSource: Send + Sync + fmt::Debug {
    /// Pins what is visible now.
    fn snapshot(&self) -> Arc<dyn RowSnapshot>;
}

/// Rows that were visible at one moment.
#[async_trait]
pub trait RowSnapshot: Send + Sync + fmt::Debug {
    /// Gives the rows in a time range (both ends included) that the caller may see, with the named columns in that
    /// order. The memory that they take is charged to the query through `stats`.
    async fn rows(
        &self,
        table: &'static TableDef,
        columns: &[&str],
        access: &Access,
        range: MillisRange,
        stats: &ReadStats,
    ) -> Result<Vec<RecordBatch>>;
}
