//! Logs: streams and rows for the query language, over parts and live generations of one snapshot.
//!
//! [`logs_source`] gives snapshots, [`logs_table`] a DataFusion table over one of them. Its node reads *blocks* (live
//! batches, row groups of parts; `block`): each prunes by what is known of it, evaluates the filter exactly (`eval`) and
//! gives the asked columns of the rows that matched (`output`). Partitions take blocks from one queue; an ordered scan
//! has one partition and goes through time in slices (`ordered`).

mod block;
mod blocks;
mod choose;
pub(crate) mod column;
mod eval;
mod exec;
pub(crate) mod flush;
mod group;
mod live;
mod ordered;
mod output;
mod parts;
mod prune;
pub(crate) mod rewrite;
mod slots;
mod source;
mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod values;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use quiver_types::logs::{LogRequest, LogSnapshot, LogSource};
use quiver_types::{Access, Error, ReadStats, Result};

pub use exec::LogsExec;
pub use source::{StoreLogSnapshot, StoreLogs};

use crate::snapshot::Snapshot;
use crate::store::Store;

/// Gives what the query language reads logs from.
pub fn logs_source(store: &Store) -> Arc<dyn LogSource> {
    store.logs()
}

/// Makes a table of the rows of a snapshot that match a filter and that the caller may see, with the asked columns
/// ([`LogRequest::schema`]). What its scans read is added to `stats`.
///
/// # Errors
/// Internal: the snapshot is of another source. Invalid: a column is asked for twice.
pub fn logs_table(
    snapshot: &dyn LogSnapshot,
    access: &Access,
    request: LogRequest,
    stats: Arc<ReadStats>,
) -> Result<Arc<dyn TableProvider>> {
    let own = snapshot.as_any().downcast_ref::<StoreLogSnapshot>();
    let own = own.ok_or_else(|| Error::internal("this snapshot of logs is of another source"))?;
    for (i, column) in request.columns.iter().enumerate() {
        if request.columns[..i].iter().any(|c| c.name == column.name) {
            return Err(Error::invalid(format!("column `{}` is asked for twice", column.name)));
        }
    }
    let schema = request.schema();
    let (snapshot, access) = (own.snapshot.clone(), access.clone());
    Ok(Arc::new(LogsTable { snapshot, access, request: Arc::new(request), stats, schema }))
}

struct LogsTable {
    snapshot: Snapshot,
    access: Access,
    request: Arc<LogRequest>,
    stats: Arc<ReadStats>,
    schema: SchemaRef,
}

impl fmt::Debug for LogsTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogsTable").field("request", &self.request).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for LogsTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let blocks = blocks::Blocks::new(&self.snapshot, &self.access, &self.request, &self.stats);
        let partitions = state.config().target_partitions();
        let all = || (0..self.schema.fields().len()).collect();
        let projection = projection.cloned().unwrap_or_else(all);
        Ok(Arc::new(LogsExec::try_new(blocks, Arc::clone(&self.request), projection, limit, partitions)?))
    }
}
