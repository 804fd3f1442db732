//! Serialized forms of physical nodes: how a plan leaves the engine that made it.

pub(crate) mod at;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_plan::ExecutionPlan;

/// What a written form needs of the codec around it: how DataFusion's own things are written.
pub trait Forms: Send + Sync {
    /// Writes an expression.
    ///
    /// # Errors
    /// Something in it has no written form; the error names it.
    fn write_expr(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Vec<u8>>;

    /// Reads an expression over columns of a schema.
    ///
    /// # Errors
    /// These are no bytes of an expression.
    fn read_expr(&self, bytes: &[u8], schema: &Schema) -> Result<Arc<dyn PhysicalExpr>>;

    /// Writes an aggregate function over its arguments.
    ///
    /// # Errors
    /// As [`Self::write_expr`].
    fn write_aggregate(&self, aggregate: &AggregateFunctionExpr) -> Result<Vec<u8>>;

    /// Reads an aggregate function.
    ///
    /// # Errors
    /// As [`Self::read_expr`].
    fn read_aggregate(&self, bytes: &[u8], schema: &Schema) -> Result<Arc<AggregateFunctionExpr>>;

    /// Writes the call of a window function.
    ///
    /// # Errors
    /// As [`Self::write_expr`].
    fn write_window(&self, call: &Arc<dyn WindowExpr>) -> Result<Vec<u8>> {
        internal_err!("window function {} has no written form", call.name())
    }

    /// Reads such a call over columns of a schema.
    ///
    /// # Errors
    /// As [`Self::read_expr`].
    fn read_window(&self, bytes: &[u8], schema: &Schema) -> Result<Arc<dyn WindowExpr>> {
        let _ = (bytes, schema);
        internal_err!("window functions have no written form")
    }

    /// Writes a schema.
    ///
    /// # Errors
    /// As [`Self::write_expr`].
    fn write_schema(&self, schema: &Schema) -> Result<Vec<u8>>;

    /// Reads a schema.
    ///
    /// # Errors
    /// As [`Self::read_expr`].
    fn read_schema(&self, bytes: &[u8]) -> Result<SchemaRef>;

    /// Writes a physical plan below a node (for nodes that carry one that is no child).
    ///
    /// # Errors
    /// As [`Self::write_expr`].
    fn write_plan(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<u8>>;

    /// Reads such a plan.
    ///
    /// # Errors
    /// As [`Self::read_expr`].
    fn read_plan(&self, bytes: &[u8]) -> Result<Arc<dyn ExecutionPlan>>;
}

/// The written forms of the nodes (and functions that carry values) of one crate.
pub trait Written: fmt::Debug + Send + Sync + 'static {
    /// Whose nodes these are, unique: `query`, `promql`, `logsql`, `store`…
    fn of(&self) -> &'static str;

    /// Writes a node; `None`: it is none of these.
    ///
    /// # Errors
    /// Something in it has no written form; the error names it.
    fn write(&self, node: &dyn ExecutionPlan, forms: &dyn Forms) -> Result<Option<Vec<u8>>>;

    /// Reads a node over its children, which come as `children()` gave them.
    ///
    /// # Errors
    /// These are no bytes of such a node.
    fn read(
        &self,
        bytes: &[u8],
        children: Vec<Arc<dyn ExecutionPlan>>,
        forms: &dyn Forms,
    ) -> Result<Arc<dyn ExecutionPlan>>;

    /// Writes what a scalar function carries beside its name; `None`: it is none of these. A function without state that
    /// the registry finds by its name needs no form.
    ///
    /// # Errors
    /// As [`Self::write`].
    fn write_function(&self, function: &ScalarUDF) -> Result<Option<Vec<u8>>> {
        let _ = function;
        Ok(None)
    }

    /// Reads such a function.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn read_function(&self, name: &str, bytes: &[u8]) -> Result<Arc<ScalarUDF>> {
        let _ = bytes;
        internal_err!("{} has no written form of function {name}", self.of())
    }

    /// Writes what an aggregate function carries beside its name; `None`: it is none of these.
    ///
    /// # Errors
    /// As [`Self::write`].
    fn write_aggregate_function(&self, function: &AggregateUDF) -> Result<Option<Vec<u8>>> {
        let _ = function;
        Ok(None)
    }

    /// Reads such a function.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn read_aggregate_function(&self, name: &str, bytes: &[u8]) -> Result<Arc<AggregateUDF>> {
        let _ = bytes;
        internal_err!("{} has no written form of aggregate function {name}", self.of())
    }
}
