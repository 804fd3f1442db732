//! The session of relational languages (SQL, analytics): DataFusion's analyzer, optimizer and functions over the same pool,
//! limits and cancellation that all other plans run under.
//!
//! Nothing is registered in its catalog: a statement's tables come from [`crate::tables`], with the caller's rights.

use std::sync::Arc;
use std::time::Instant;

use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::physical_planner::PhysicalPlanner as _;
use datafusion::prelude::SessionConfig;
use futures::StreamExt as _;
use quiver_types::Result;
use serde_json::Value;

use crate::context::QueryContext;
use crate::engine::QueryEngine;
use crate::error::from_datafusion;
use crate::{explain, functions};
use crate::running::Phase;

/// Makes the session.
pub(crate) fn session(config: SessionConfig, runtime_env: Arc<RuntimeEnv>) -> SessionState {
    let state = SessionStateBuilder::new().with_config(config).with_runtime_env(runtime_env).with_default_features();
    let mut state = state.build();
    functions::register(&mut state).expect("a registry of its own takes each function");
    state
}

impl QueryEngine {
    /// Gives the session whose rules and functions relational plans are made with.
    pub fn relational(&self) -> &SessionState {
        &self.relational
    }

    /// Optimizes a relational plan and makes the physical one.
    ///
    /// # Errors
    /// Those of the rules and of the planners.
    pub async fn plan_relational(&self, plan: &LogicalPlan) -> Result<(LogicalPlan, Arc<dyn ExecutionPlan>)> {
        let optimized = self.relational.optimize(plan).map_err(from_datafusion)?;
        let physical =
            self.planner.create_physical_plan(&optimized, &self.relational).await.map_err(from_datafusion)?;
        Ok((optimized, physical))
    }

    /// Plans and starts a relational plan; call it inside of [`Self::run`].
    ///
    /// # Errors
    /// Those of planning; the stream carries those of running.
    pub async fn execute_relational(
        &self,
        plan: &LogicalPlan,
        ctx: &QueryContext,
    ) -> Result<SendableRecordBatchStream> {
        ctx.check("query planning")?;
        let (_, physical) = self.plan_relational(plan).await?;
        ctx.query().enter(Phase::Execute);
        execute_stream(physical, self.relational_task(ctx)).map_err(from_datafusion)
    }

    /// Gives the optimized plans as JSON; with `analyze` runs them first and shows what each node did (no rows either way).
    ///
    /// # Errors
    /// Those of planning and running.
    pub async fn explain_relational(&self, plan: &LogicalPlan, ctx: &QueryContext, analyze: bool) -> Result<Value> {
        let (optimized, physical) = self.plan_relational(plan).await?;
        let began = Instant::now();
        if analyze {
            let mut rows = execute_stream(Arc::clone(&physical), self.relational_task(ctx)).map_err(from_datafusion)?;
            while let Some(batch) = rows.next().await {
                batch.map_err(from_datafusion)?;
                ctx.check("query execution")?;
            }
        }
        Ok(explain::to_json(&optimized, &physical, analyze.then(|| (&*ctx.stats, began.elapsed()))))
    }

    /// The context of a run, with the functions of the session.
    fn relational_task(&self, ctx: &QueryContext) -> Arc<TaskContext> {
        let bound = self.task(ctx);
        let task = TaskContext::from(&self.relational).with_session_config(bound.session_config().clone());
        Arc::new(task.with_runtime(bound.runtime_env()))
    }
}
