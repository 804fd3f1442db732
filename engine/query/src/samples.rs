//! How languages reach metric samples: series that the label phase resolved become a DataFusion table.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use quiver_types::{ReadStats, Result, SampleRequest, SelectedSeries};

/// Gives tables over selected series. Implemented by the binary over the store.
///
/// Batches hold one row per series: `row` `UInt32` (row in `SelectedSeries::table`), `ts` `ListView<Int64>` in
/// Unix milliseconds, `v` `ListView<Float64>`, and as requested `start_ts`, `h_ts`, `h_start_ts` `List<Int64>` and `h`
/// `List<Struct>` of `quiver_types::histogram::histogram_fields`. Times ascend; none is in both `ts` and `h_ts`; stale
/// markers are kept. Rows without a sample in the range are left out.
pub trait SampleTables: Send + Sync + Debug {
    /// Makes the table. The caller's access was applied when the series were selected; `stats` say whether it hides
    /// any. What scans read counts in the `ReadStats` of their task.
    ///
    /// # Errors
    /// Whatever the snapshot says when it looks at the request.
    fn samples(
        &self,
        series: &SelectedSeries,
        request: &SampleRequest,
        stats: &ReadStats,
    ) -> Result<Arc<dyn TableProvider>>;
}
