//! Serialization of physical plans (contract P6): DataFusion's own nodes and expressions as its protocol buffers, ours
//! as each crate writes them (`quiver_query::NodeCodec`).
//!
//! A plan that is read holds nothing of the engine that wrote it: functions are looked up in the session of the reading
//! engine, memory comes from its pools, and the state of a run comes with its task.

mod codec_state;
mod extension_messages;
mod functions;
mod nesting_limits;
mod nodes;
#[cfg(test)]
mod tests;
mod windows;

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use quiver_query::{NodeCodec, QueryEngine, ThroughCodec, from_datafusion};

use codec_state::{CodecState, Pass};

/// Writes physical plans, and reads them for an engine.
#[derive(Debug)]
pub struct PlanCodec {
    shared: Arc<CodecState>,
}

impl PlanCodec {
    /// Reads plans for an engine, with the forms of all crates whose nodes may come.
    pub fn new(engine: Arc<QueryEngine>, written: Vec<Arc<dyn NodeCodec>>) -> Self {
        let plain = SessionStateBuilder::new().with_default_features().build();
        Self { shared: Arc::new(CodecState { engine, written, plain }) }
    }

    /// Writes a plan.
    ///
    /// # Errors
    /// A node, an expression or a function has no written form; the error names it.
    pub fn write(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
        Pass::new(&self.shared, self.shared.engine.relational().config()).write(plan)
    }

    /// Reads a plan that was made with the settings of a session.
    ///
    /// # Errors
    /// These are no bytes of a plan.
    pub fn read(&self, bytes: &[u8], config: &SessionConfig) -> Result<Arc<dyn ExecutionPlan>> {
        Pass::new(&self.shared, config).read(bytes)
    }
}

impl ThroughCodec for PlanCodec {
    fn pass(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        session: &SessionState,
    ) -> quiver_types::Result<Arc<dyn ExecutionPlan>> {
        let passed = self.write(plan).and_then(|bytes| self.read(&bytes, session.config()));
        passed.map_err(from_datafusion)
    }

    fn engine(&self) -> &Arc<QueryEngine> {
        &self.shared.engine
    }
}
