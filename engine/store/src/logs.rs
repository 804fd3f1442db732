//! Logs: streams and rows for the query language, over parts and live generations of one snapshot.
//!
//! [`logs_source`] gives snapshots, [`logs_table`] a table over one of them. A scan reads *blocks* (live
//! batches, row groups of parts; `block`): each prunes by what is known of it, evaluates the filter exactly (`evaluation`) and
//! gives the asked columns of the rows that matched (`output`, `output_size`). Partitions take blocks from one queue; an ordered scan
//! has one partition and goes through time in slices (`ordered_scan`).

mod block;
mod blocks;
pub(crate) mod column;
mod evaluation;
pub(crate) mod flush;
mod live_blocks;
mod open_part;
mod ordered_scan;
mod output;
mod output_size;
mod part_selection;
mod part_streams;
mod planned_scan;
mod pruning;
pub(crate) mod rewrite;
mod row_group;
mod scan;
pub(crate) mod source;
mod stream;
mod stream_selection;
mod stream_values;
#[cfg(test)]
mod tests;
pub(crate) mod typed_text;
mod value_counts;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use quiver_types::logs::{LogRequest, LogSnapshot, LogSource};
use quiver_types::scan::{PlannedScan, ScanShape, ScanSource};
use quiver_types::{Access, Error, ReadStats, Result};

pub(crate) use planned_scan::{LogsForm, LogsScan};
pub use source::{StoreLogSnapshot, StoreLogs};

use crate::snapshot::Snapshot;
use crate::store::Store;

/// Gives what the query language reads logs from.
pub fn logs_source(store: &Store) -> Arc<dyn LogSource> {
    store.logs()
}

/// Makes a table of the rows of a snapshot that match a filter and that the caller may see, with the asked columns
/// ([`LogRequest::schema`]). What its scans read counts in the `ReadStats` of their task; `stats` say whether rows are
/// hidden from whoever asks.
///
/// # Errors
/// Internal: the snapshot is of another source. Invalid: a column is asked for twice.
pub fn logs_table(
    snapshot: &dyn LogSnapshot,
    access: &Access,
    request: LogRequest,
    stats: &ReadStats,
) -> Result<Arc<dyn ScanSource>> {
    let own: &dyn Any = snapshot;
    let own = own
        .downcast_ref::<StoreLogSnapshot>()
        .ok_or_else(|| Error::internal("this snapshot of logs is of another source"))?;
    for (i, column) in request.columns.iter().enumerate() {
        if request.columns[..i].iter().any(|c| c.name == column.name) {
            return Err(Error::invalid(format!("column `{}` is asked for twice", column.name)));
        }
    }
    let schema = request.schema();
    let (snapshot, access, hidden) = (own.snapshot.clone(), access.clone(), stats.is_hidden());
    Ok(Arc::new(LogsTable { snapshot, access, request: Arc::new(request), hidden, schema }))
}

struct LogsTable {
    snapshot: Snapshot,
    access: Access,
    request: Arc<LogRequest>,
    hidden: bool,
    schema: SchemaRef,
}

impl fmt::Debug for LogsTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogsTable").field("request", &self.request).finish_non_exhaustive()
    }
}

impl ScanSource for LogsTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn scan(&self, shape: &ScanShape) -> Result<Arc<dyn PlannedScan>> {
        let (access, request) = (self.access.clone(), Arc::clone(&self.request));
        Ok(Arc::new(LogsScan::try_new(&self.snapshot, access, request, self.hidden, shape.clone())?))
    }
}
