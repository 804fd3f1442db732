//! Plans and runs relational plans in a [session of their own](crate::relational).

use std::sync::Arc;
use std::time::Instant;

use datafusion::execution::session_state::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::physical_planner::PhysicalPlanner as _;
use futures::StreamExt as _;
use quiver_types::{Result, RunShared};
use serde_json::Value;

use super::QueryEngine;
use crate::context::QueryContext;
use crate::error::{from_datafusion, of_planning};
use crate::merged_stream::gathered;
use crate::relational::slices::batch_rows;
use crate::relational::streaming::{STRAIGHT_ROWS, is_straight};
use crate::relational::{bounded, optimized};
use crate::running::Phase;
use crate::{explain, functions};

impl QueryEngine {
    /// Gives the session of SQL and analytics, with its rules and functions.
    pub fn relational(&self) -> &SessionState {
        &self.relational
    }

    /// Optimizes a plan of SQL or analytics and makes the physical one.
    ///
    /// # Errors
    /// Those of the rules and of the planners.
    pub async fn plan_relational(&self, plan: &LogicalPlan) -> Result<(LogicalPlan, Arc<dyn ExecutionPlan>)> {
        let optimized = optimized(plan, &self.relational, &self.planning)?;
        let counted = functions::counted(optimized.clone(), &self.planning.room).map_err(of_planning)?;
        let physical = self.planner.create_physical_plan(&counted, &self.relational).await.map_err(of_planning)?;
        let physical = bounded(physical, &self.relational)?;
        Ok((optimized, self.passed(physical, &self.relational)?))
    }

    /// Plans and starts a plan of SQL or analytics. To be called within [`Self::run`].
    ///
    /// # Errors
    /// Those of planning; the stream carries those of running.
    pub async fn execute_relational(
        &self,
        plan: &LogicalPlan,
        ctx: &QueryContext,
    ) -> Result<SendableRecordBatchStream> {
        ctx.check("query planning")?;
        let (optimized, physical) = self.plan_relational(plan).await?;
        if let Some(no_rows) = ctx.planned(&optimized, &physical) {
            return Ok(no_rows);
        }
        ctx.query().enter(Phase::Execute);
        // Aggregates check their constants only when they start, so errors of starting are reported like those of
        // planning.
        let task = self.relational_task(ctx, &optimized, &physical)?;
        gathered(&physical, &task, self.reservation("rows that wait", ctx)).map_err(of_planning)
    }

    /// Gives the optimized plans as JSON; with `analyze` also runs them and shows what each node did. Gives no rows in
    /// either case.
    ///
    /// # Errors
    /// Those of planning and running.
    pub async fn explain_relational(&self, plan: &LogicalPlan, ctx: &QueryContext, analyze: bool) -> Result<Value> {
        let (optimized, physical) = self.plan_relational(plan).await?;
        let began = Instant::now();
        if analyze {
            let task = self.relational_task(ctx, &optimized, &physical)?;
            let mut rows = execute_stream(Arc::clone(&physical), task).map_err(of_planning)?;
            while let Some(batch) = rows.next().await {
                batch.map_err(from_datafusion)?;
                ctx.check("query execution")?;
            }
        }
        let mut shown = explain::to_json(&optimized, &physical, analyze, &ctx.stats);
        if analyze {
            shown["totals"] = explain::totals(&[&ctx.stats], began.elapsed());
        }
        ctx.put_children(&mut shown);
        Ok(shown)
    }

    /// Makes the context of a run, with a batch size that suits the width of the plan.
    fn relational_task(
        &self,
        ctx: &QueryContext,
        optimized: &LogicalPlan,
        physical: &Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<TaskContext>> {
        let (config, runtime) = self.bound(ctx, RunShared::default());
        let rows = batch_rows(optimized, physical).map_err(from_datafusion)?;
        let most = if is_straight(physical) { STRAIGHT_ROWS } else { usize::MAX };
        let rows = rows.min(config.batch_size()).min(most);
        Ok(Self::task_in(config.with_batch_size(rows), runtime))
    }
}
