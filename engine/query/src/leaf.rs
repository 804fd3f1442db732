//! The one leaf of all plans over the store: wraps what implements `quiver_types::scan` as a DataFusion table provider
//! and as a plan node, which charges memory to the query and reports its counters and metrics.

mod encoding;
mod node;
mod task;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;
use quiver_types::scan::{ScanShape, ScanSource};

use crate::error::to_datafusion;
use crate::table_provider::table_by_plan;

pub use encoding::LeafForms;
pub use node::ScanExec;

/// Makes a DataFusion table of a scannable source.
pub fn scan_table(source: Arc<dyn ScanSource>) -> Arc<dyn TableProvider> {
    Arc::new(ScanTable { schema: source.schema(), source })
}

struct ScanTable {
    schema: SchemaRef,
    source: Arc<dyn ScanSource>,
}

impl fmt::Debug for ScanTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.source, f)
    }
}

impl TableProvider for ScanTable {
    table_by_plan!();

    fn statistics(&self) -> Option<Statistics> {
        let rows = self.source.rows_about()?;
        Some(Statistics { num_rows: Precision::Inexact(rows), ..Statistics::new_unknown(&self.schema) })
    }
}

impl ScanTable {
    fn plan<'a>(
        &'a self,
        state: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        _filters: &'a [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'a, DataFusionResult<Arc<dyn ExecutionPlan>>> {
        Box::pin(async move {
            let partitions = state.config().target_partitions();
            let shape = ScanShape { projection: projection.cloned(), limit, partitions };
            let scan = self.source.scan(&shape).map_err(to_datafusion)?;
            Ok(Arc::new(ScanExec::new(scan)) as Arc<dyn ExecutionPlan>)
        })
    }
}
