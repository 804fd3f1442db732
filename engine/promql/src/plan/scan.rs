//! Scans of the samples of selected series.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use quiver_query::{SampleRequest, SampleTables, from_datafusion};
use quiver_types::{ReadStats, Result, SelectedSeries};

/// A scan of a selector, and what it is made of. A table that is in a plan stays as it is, so a scan of fewer series is
/// another one in its place.
#[derive(Debug, Clone)]
pub(crate) struct Scanned {
    /// Name that plans show.
    pub(crate) name: Arc<str>,
    /// The series of the selector.
    pub(crate) selected: SelectedSeries,
    /// What is read of them.
    pub(crate) request: SampleRequest,
    /// The table in the plan.
    pub(crate) table: Arc<dyn TableProvider>,
}

/// Gives the plan that scans the samples of selected series.
pub(crate) fn sample_scan(
    tables: &dyn SampleTables,
    name: &str,
    selected: &SelectedSeries,
    request: &SampleRequest,
    stats: &ReadStats,
) -> Result<LogicalPlan> {
    scan_of(name, &tables.samples(selected, request, stats)?)
}

/// Gives the plan that scans a table.
pub(crate) fn scan_of(name: &str, table: &Arc<dyn TableProvider>) -> Result<LogicalPlan> {
    let name = datafusion::common::TableReference::bare(name);
    LogicalPlanBuilder::scan(name, provider_as_source(Arc::clone(table)), None)
        .and_then(LogicalPlanBuilder::build)
        .map_err(from_datafusion)
}
