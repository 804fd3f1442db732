//! Plans relational plans in a [session of their own](crate::relational).

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::PhysicalPlanner as _;
use quiver_types::{Result, RunShared};

use super::QueryEngine;
use crate::context::QueryContext;
use crate::error::{from_datafusion, of_planning};
use crate::functions;
use crate::relational::batch_bytes::{batch_bytes, merged_rows};
use crate::relational::long_constants::batch_rows;
use crate::relational::streaming::{STRAIGHT_ROWS, is_straight, spreads_texts};
use crate::relational::{bounded, optimized};

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

    /// Makes the context of a run, with a batch size that suits the width of the plan.
    pub(super) fn relational_task(
        &self,
        ctx: &QueryContext,
        optimized: &LogicalPlan,
        physical: &Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<TaskContext>> {
        let (config, runtime) = self.bound(ctx, RunShared::default());
        let bytes = batch_bytes(runtime.memory_pool.as_ref());
        let rows = batch_rows(optimized, physical, bytes).map_err(from_datafusion)?;
        let most = if is_straight(physical) {
            STRAIGHT_ROWS
        } else if spreads_texts(physical) {
            merged_rows(runtime.memory_pool.as_ref())
        } else {
            usize::MAX
        };
        let rows = rows.min(self.relational.config().batch_size()).min(most);
        Ok(Self::task_in(config.with_batch_size(rows), runtime))
    }
}
