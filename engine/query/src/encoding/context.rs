//! Where nodes of this crate are written and read, and what their forms have in common.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::internal_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use quiver_types::Pins;

use super::Forms;
use crate::error::to_datafusion;

/// Where something is written or read.
pub(crate) struct At<'a> {
    pub(crate) forms: &'a dyn Forms,
}

impl At<'_> {
    /// Serializes expressions, in order.
    pub(crate) fn write_exprs<'e>(
        &self,
        exprs: impl IntoIterator<Item = &'e Arc<dyn PhysicalExpr>>,
    ) -> Result<Vec<Vec<u8>>> {
        exprs.into_iter().map(|expr| self.forms.write_expr(expr)).collect()
    }

    /// Reads expressions over columns of a schema.
    pub(crate) fn read_exprs(&self, exprs: &[Vec<u8>], schema: &Schema) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
        let read = exprs.iter().map(|expr| self.forms.read_expr(expr, schema)).collect::<Result<Vec<_>>>()?;
        within(&read, schema)?;
        Ok(read)
    }

    pub(crate) fn write_schema(&self, schema: &SchemaRef) -> Result<Vec<u8>> {
        self.forms.write_schema(schema)
    }
}

/// The error for bytes that are not a serialized form.
pub(crate) fn damaged(error: impl std::fmt::Display) -> DataFusionError {
    internal_datafusion_err!("the written form of a node of the engine is damaged: {error}")
}

/// What a plan was planned over and names by a number (`types::Pins`).
pub(crate) fn pinned<T: ?Sized + Send + Sync + 'static>(number: u64) -> Result<Arc<T>> {
    Pins::of_process().pinned(number).map_err(to_datafusion)
}

/// Refuses expressions over columns that are not there.
pub(crate) fn within<'e>(exprs: impl IntoIterator<Item = &'e Arc<dyn PhysicalExpr>>, schema: &Schema) -> Result<()> {
    for expr in exprs {
        if collect_columns(expr).iter().any(|column| column.index() >= schema.fields().len()) {
            return Err(damaged("it is about other columns"));
        }
    }
    Ok(())
}
