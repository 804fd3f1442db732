//! The rules that a plan goes through before it runs, and what its nodes share while it does.

use std::fmt;
use std::sync::Arc;

use quiver_types::RunShared;

use crate::double_run::PlanRun;

/// The optimizer rules that a plan goes through. The planner chooses them, since it knows which ones the plan needs, and
/// each costs time.
#[derive(Debug)]
pub enum Rules {
    /// None: the plan is written as it is to run (PromQL, LogsQL, traces, look-ups).
    Direct,
    /// None either, for a plan whose nodes share state.
    Shared(Arc<dyn SharedState>),
    /// Those that lists need: groups, orders and joins over many partitions.
    Lists,
    /// All those of SQL and analytics.
    Relational,
}

impl Rules {
    /// Makes what the nodes of the plan share during one run.
    pub(crate) fn shared(&self, run: PlanRun) -> RunShared {
        match self {
            Self::Shared(state) => Arc::clone(state).of_run(run),
            Self::Direct | Self::Lists | Self::Relational => RunShared::default(),
        }
    }
}

/// State that the nodes of a plan share. A plan may run several times, so it is made anew for each run.
pub trait SharedState: fmt::Debug + Send + Sync {
    /// Makes the state of one run.
    fn of_run(self: Arc<Self>, run: PlanRun) -> RunShared;
}
