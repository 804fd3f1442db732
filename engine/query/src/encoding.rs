//! Serialized forms of physical nodes: how a plan leaves the engine that made it.

pub(crate) mod context;

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

/// What the serialization of our nodes needs from the codec: serialization of DataFusion's own types.
pub trait Forms: Send + Sync {
    /// Writes an expression.
    ///
    /// # Errors
    /// Some part of it cannot be serialized; the error names it.
    fn write_expr(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Vec<u8>>;

    /// Reads an expression over columns of a schema.
    ///
    /// # Errors
    /// The bytes are not a serialized expression.
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

    /// Writes a physical plan that a node holds besides its children.
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

/// Serialization of the nodes of one crate, and of its functions that hold values.
pub trait NodeCodec: fmt::Debug + Send + Sync + 'static {
    /// Unique name of the crate: `query`, `promql`, `logsql`, `store`…
    fn of(&self) -> &'static str;

    /// Writes a node; `None`: it is not one of this crate.
    ///
    /// # Errors
    /// Some part of it cannot be serialized; the error names it.
    fn write(&self, node: &dyn ExecutionPlan, forms: &dyn Forms) -> Result<Option<Vec<u8>>>;

    /// Reads a node; its children come in the order of `children()`.
    ///
    /// # Errors
    /// The bytes are not a serialized node of this crate.
    fn read(
        &self,
        bytes: &[u8],
        children: Vec<Arc<dyn ExecutionPlan>>,
        forms: &dyn Forms,
    ) -> Result<Arc<dyn ExecutionPlan>>;

    /// Writes the values that a scalar function holds; `None`: it is not one of this crate. A function without values,
    /// which the registry finds by its name, needs no serialization.
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

    /// Writes the values that an aggregate function holds; `None`: it is not one of this crate.
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
