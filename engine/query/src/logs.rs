//! How languages reach log rows: a snapshot and a request become a DataFusion table.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use quiver_types::logs::{LogRequest, LogSnapshot};
use quiver_types::{Access, ReadStats, Result};

/// Gives tables over the log rows of a snapshot. Implemented by the binary over the store.
///
/// The scan evaluates the filter exactly and gives the columns that [`LogRequest`] describes. What it reads counts in
/// the `ReadStats` of the task that it runs with.
pub trait LogTables: Send + Sync + Debug {
    /// Makes the table of the rows that match and that the caller may see; `stats` say whether others are hidden.
    ///
    /// # Errors
    /// Whatever the snapshot says when it pins what it reads.
    fn logs(
        &self,
        snapshot: &Arc<dyn LogSnapshot>,
        access: &Access,
        request: LogRequest,
        stats: &ReadStats,
    ) -> Result<Arc<dyn TableProvider>>;
}
