//! Plans of all languages run here: each is planned with the rules that its writer asks for, then started or explained.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt as _;
use quiver_types::{Error, Result};
use serde_json::Value;

use super::QueryEngine;
use crate::context::QueryContext;
use crate::double_run::{PlanRun, rehearsed};
use crate::error::{from_datafusion, of_planning};
use crate::explain;
use crate::merged_stream::gathered;
use crate::operator::planned;
use crate::plan_recorder::Explain;
use crate::planning_rules::Rules;
use crate::running_queries::Phase;
use crate::short_work::give_way;

impl QueryEngine {
    /// Makes the physical plan, without any rules.
    ///
    /// # Errors
    /// Those of the planners.
    pub async fn plan(&self, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
        let physical = planned(plan, &self.planner, &self.state).await.map_err(from_datafusion)?;
        self.passed(physical, &self.state)
    }

    /// Plans a logical plan and starts it. To be called within [`Self::run`], so that partitions run on the CPU
    /// runtime.
    ///
    /// # Errors
    /// Those of planning; the stream carries those of running.
    pub async fn execute(
        &self,
        plan: &LogicalPlan,
        ctx: &QueryContext,
        rules: Rules,
    ) -> Result<SendableRecordBatchStream> {
        ctx.check("query planning")?;
        let (logical, mut physical) = self.plan_with(&rules, plan, ctx).await?;
        if let Some(no_rows) = ctx.planned(&logical, &physical) {
            return Ok(no_rows);
        }
        if matches!(rules, Rules::Direct | Rules::Shared(_)) {
            if ctx.rehearse {
                let task = || self.task(ctx, rules.shared(PlanRun::Rehearsal));
                physical = rehearsed(physical, ctx, task).await?;
            }
            if physical.properties().output_partitioning().partition_count() > 1 {
                // Each partition becomes a task on the runtime that starts it, so move to the engine's first.
                give_way().await;
            }
        }
        ctx.query().enter(Phase::Execute);
        let task = self.task_with(&rules, &logical, &physical, ctx)?;
        let started = match rules {
            // Their rows are handed on as they come, to readers who may be slow.
            Rules::Relational | Rules::Direct => gathered(&physical, &task, self.reservation("rows that wait", ctx)),
            Rules::Shared(_) | Rules::Lists => execute_stream(physical, task),
        };
        started.map_err(|e| not_started(&rules, e))
    }

    /// Gives logical and physical plan as JSON; [`Explain::Analyze`] also runs the plan and shows what each node did.
    /// Gives no rows in either case.
    ///
    /// # Errors
    /// Those of planning and running.
    pub async fn explain(
        &self,
        plan: &LogicalPlan,
        ctx: &QueryContext,
        rules: Rules,
        explain: Explain,
    ) -> Result<Value> {
        let analyze = explain == Explain::Analyze;
        let (logical, physical) = self.plan_with(&rules, plan, ctx).await?;
        let began = Instant::now();
        if analyze {
            ctx.query().enter(Phase::Execute);
            let task = self.task_with(&rules, &logical, &physical, ctx)?;
            let mut rows = execute_stream(Arc::clone(&physical), task).map_err(|e| not_started(&rules, e))?;
            while let Some(batch) = rows.next().await {
                batch.map_err(from_datafusion)?;
                ctx.check("query execution")?;
            }
        }
        let mut shown = explain::to_json(&logical, &physical, analyze, &ctx.stats);
        if analyze {
            shown["totals"] = explain::totals(&[&ctx.stats], began.elapsed());
        }
        ctx.put_children(&mut shown);
        Ok(shown)
    }

    /// The plan after the rules, and the physical one.
    async fn plan_with<'p>(
        &self,
        rules: &Rules,
        plan: &'p LogicalPlan,
        ctx: &QueryContext,
    ) -> Result<(Cow<'p, LogicalPlan>, Arc<dyn ExecutionPlan>)> {
        match rules {
            Rules::Direct | Rules::Shared(_) => Ok((Cow::Borrowed(plan), self.plan(plan).await?)),
            Rules::Lists => Ok((Cow::Borrowed(plan), self.plan_list(plan, ctx).await?)),
            Rules::Relational => {
                let (optimized, physical) = self.plan_relational(plan).await?;
                Ok((Cow::Owned(optimized), physical))
            }
        }
    }

    /// The context of the run whose rows are the answer.
    fn task_with(
        &self,
        rules: &Rules,
        logical: &LogicalPlan,
        physical: &Arc<dyn ExecutionPlan>,
        ctx: &QueryContext,
    ) -> Result<Arc<TaskContext>> {
        match rules {
            Rules::Relational => self.relational_task(ctx, logical, physical),
            Rules::Direct | Rules::Shared(_) | Rules::Lists => Ok(self.task(ctx, rules.shared(PlanRun::Answer))),
        }
    }
}

/// Aggregates of SQL check their constants only when they start, so errors of starting are reported like those of
/// planning.
fn not_started(rules: &Rules, error: DataFusionError) -> Error {
    match rules {
        Rules::Relational => of_planning(error),
        Rules::Direct | Rules::Shared(_) | Rules::Lists => from_datafusion(error),
    }
}
