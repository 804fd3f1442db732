//! Scans of the samples of selected series.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use quiver_query::{from_datafusion, scan_table};
use quiver_types::{ReadStats, Result, SampleRequest, SelectedSeries};

/// A scan of a selector, with what it was created from. A table in a plan cannot be changed, so to scan fewer series it
/// is replaced by a new one.
#[derive(Debug, Clone)]
pub(crate) struct SelectorScan {
    /// Name for plans.
    pub(crate) name: Arc<str>,
    /// The selected series.
    pub(crate) selected: SelectedSeries,
    /// Which samples are read.
    pub(crate) request: SampleRequest,
    /// The table in the plan.
    pub(crate) table: Arc<dyn TableProvider>,
}

/// A plan that scans the samples of selected series.
pub(crate) fn sample_scan(
    name: &str,
    selected: &SelectedSeries,
    request: SampleRequest,
    stats: &ReadStats,
) -> Result<LogicalPlan> {
    scan_of(name, &scan_table(selected.samples_table(request, stats)))
}

/// A plan that scans a table.
pub(crate) fn scan_of(name: &str, table: &Arc<dyn TableProvider>) -> Result<LogicalPlan> {
    let name = datafusion::common::TableReference::bare(name);
    LogicalPlanBuilder::scan(name, provider_as_source(Arc::clone(table)), None)
        .and_then(LogicalPlanBuilder::build)
        .map_err(from_datafusion)
}
