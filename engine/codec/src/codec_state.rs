//! The state of serializing or deserializing one plan. The forms of nodes, functions and expressions are defined by
//! [`nodes`](crate::nodes), [`functions`](crate::functions) and [`windows`](crate::windows), which [`messages`]
//! calls.

mod messages;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::internal_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::physical_planning_context::ScalarSubqueryResults;
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use parking_lot::Mutex;
use quiver_query::{Forms as _, NodeCodec, QueryEngine};
use quiver_types::encoding::{sealed, unsealed};

use crate::extension_messages::{SortKey, broken};
use crate::nesting_limits::Levels;

/// What serializing any plan needs.
pub(crate) struct CodecState {
    /// The engine for which plans are read: functions are looked up in its session.
    pub(crate) engine: Arc<QueryEngine>,
    pub(crate) written: Vec<Arc<dyn NodeCodec>>,
    /// A session with DataFusion's functions only.
    pub(crate) plain: SessionState,
}

impl fmt::Debug for CodecState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodecState")
            .field("engine", &self.engine)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

/// Serializes or deserializes one plan.
pub(crate) struct Pass {
    pub(crate) shared: Arc<CodecState>,
    /// Functions and settings of the reader.
    task: TaskContext,
    plans: Levels,
    exprs: Levels,
    pub(crate) functions: Levels,
    /// Results of the scalar subqueries around the node that is being read, innermost last.
    results: Mutex<Vec<Option<ScalarSubqueryResults>>>,
    /// Expressions that several nodes share, by id.
    known: Mutex<HashMap<u64, Arc<dyn PhysicalExpr>>>,
    /// Names and columns of the recursive queries around the node that is being written, innermost last.
    pub(crate) recursive: Mutex<Vec<(String, SchemaRef)>>,
    /// The first part that cannot be serialized.
    refused: Mutex<Option<String>>,
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Pass {
    pub(crate) fn new(shared: &Arc<CodecState>, config: &SessionConfig) -> Self {
        let task = TaskContext::from(shared.engine.relational()).with_session_config(config.clone());
        Self {
            shared: Arc::clone(shared),
            task,
            plans: Levels::default(),
            exprs: Levels::default(),
            functions: Levels::default(),
            results: Mutex::default(),
            known: Mutex::default(),
            recursive: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Writes a plan.
    pub(crate) fn write(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
        let written = self.write_plan(plan).map(sealed);
        // DataFusion's error would contain the whole plan.
        written.map_err(|error| match self.refused.lock().take() {
            Some(what) => internal_datafusion_err!("{what} has no written form"),
            None => error,
        })
    }

    /// Reads a plan.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<Arc<dyn ExecutionPlan>> {
        self.read_plan(unsealed(bytes).ok_or_else(|| broken("its checksum is another one"))?)
    }

    /// The error for a part that cannot be serialized.
    pub(crate) fn refuse(&self, what: String) -> DataFusionError {
        let error = internal_datafusion_err!("{what} has no written form");
        self.refused.lock().get_or_insert(what);
        error
    }

    pub(crate) fn write_exprs<'e>(
        &self,
        exprs: impl IntoIterator<Item = &'e Arc<dyn PhysicalExpr>>,
    ) -> Result<Vec<Vec<u8>>> {
        exprs.into_iter().map(|expr| self.write_expr(expr)).collect()
    }

    pub(crate) fn read_exprs(&self, exprs: &[Vec<u8>], schema: &Schema) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
        exprs.iter().map(|expr| self.read_expr(expr, schema)).collect()
    }

    pub(crate) fn write_keys<'k>(&self, keys: impl IntoIterator<Item = &'k PhysicalSortExpr>) -> Result<Vec<SortKey>> {
        let key = |key: &PhysicalSortExpr| -> Result<SortKey> {
            let (expr, options) = (self.write_expr(&key.expr)?, key.options);
            Ok(SortKey { expr, descending: options.descending, nulls_first: options.nulls_first })
        };
        keys.into_iter().map(key).collect()
    }

    pub(crate) fn read_keys(&self, keys: &[SortKey], schema: &Schema) -> Result<Vec<PhysicalSortExpr>> {
        let key = |key: &SortKey| -> Result<PhysicalSortExpr> {
            let options = arrow::compute::SortOptions { descending: key.descending, nulls_first: key.nulls_first };
            Ok(PhysicalSortExpr { expr: self.read_expr(&key.expr, schema)?, options })
        };
        keys.iter().map(key).collect()
    }
}
