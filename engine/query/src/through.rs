//! Plans that leave the engine (contract P6): each physical plan is written, read by another engine over the same store, and
//! runs with what that one has.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use quiver_types::{Error, Result};

use crate::engine::QueryEngine;

/// Writes plans and reads them in another engine. Crate `codec` has it; who does not ask for it does not link that.
pub trait ThroughCodec: Debug + Send + Sync {
    /// Gives a plan that was made with a session as the other engine reads it.
    ///
    /// # Errors
    /// Internal: something of it has no written form; the error names it.
    fn pass(&self, plan: &Arc<dyn ExecutionPlan>, session: &SessionState) -> Result<Arc<dyn ExecutionPlan>>;

    /// The other engine.
    fn engine(&self) -> &Arc<QueryEngine>;
}

impl QueryEngine {
    /// Sends all plans through a codec from now on.
    ///
    /// # Errors
    /// Internal: they go through one already.
    pub fn send_through(&self, codec: Arc<dyn ThroughCodec>) -> Result<()> {
        self.through.set(codec).map_err(|_| Error::internal("plans of an engine go through one codec"))
    }

    /// A plan as it runs.
    pub(crate) fn passed(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        session: &SessionState,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match self.through.get() {
            Some(codec) => codec.pass(&plan, session),
            None => Ok(plan),
        }
    }

    /// The engine whose sessions and pools plans run with.
    pub(crate) fn runs(&self) -> &Self {
        self.through.get().map_or(self, |codec| &**codec.engine())
    }
}
