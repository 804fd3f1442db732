//! The plans of one request, noted as they are made, so that `explain` shows those that run and no others.
//!
//! Whoever asks for an explanation takes the way of everybody else; the engine notes each plan that it is handed. With
//! `analyze` it runs them, else it gives no rows, but for what planning needs ([`QueryContext::planning`]).

use std::sync::{Arc, Mutex};
use std::time::Instant;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{EmptyRecordBatchStream, ExecutionPlan};
use quiver_types::ReadStats;
use serde_json::{Value, json};

use crate::context::QueryContext;
use crate::explain;

/// Plans that are shown of one request; more are counted.
const PLANS_MAX: usize = 100;

/// See the module.
#[derive(Debug)]
pub struct Explaining {
    analyze: bool,
    began: Instant,
    planned: Mutex<Planned>,
}

#[derive(Debug, Default)]
struct Planned {
    plans: Vec<Plan>,
    left_out: usize,
}

#[derive(Debug)]
struct Plan {
    logical: LogicalPlan,
    physical: Arc<dyn ExecutionPlan>,
    /// Whether it ran.
    ran: bool,
    stats: Arc<ReadStats>,
}

impl Explaining {
    /// Begins with no plans; with `analyze` they run.
    pub fn new(analyze: bool) -> Arc<Self> {
        Arc::new(Self { analyze, began: Instant::now(), planned: Mutex::default() })
    }

    fn add(&self, plan: Plan) {
        let mut planned = self.planned.lock().expect("nothing fails while it is locked");
        if planned.plans.len() < PLANS_MAX {
            planned.plans.push(plan);
        } else {
            planned.left_out += 1;
        }
    }

    /// Gives the plan that the answer comes out of, which is the one that ran last, with those before it as `children`;
    /// `None` when there was no plan.
    pub fn shown(&self) -> Option<Value> {
        let planned = self.planned.lock().expect("nothing fails while it is locked");
        let (root, before) = planned.plans.split_last()?;
        let mut out = self.plan(root);
        if self.analyze {
            let mut totals: Vec<&Arc<ReadStats>> = Vec::new();
            for plan in &planned.plans {
                if !totals.iter().any(|known| Arc::ptr_eq(known, &plan.stats)) {
                    totals.push(&plan.stats);
                }
            }
            out["totals"] = explain::totals(&totals, self.began.elapsed());
        }
        if !before.is_empty() {
            out["children"] = before.iter().map(|plan| self.plan(plan)).collect();
        }
        if planned.left_out > 0 {
            out["left_out"] = json!(planned.left_out);
        }
        Some(out)
    }

    /// Gives the plans that ran because planning needed their rows.
    pub(crate) fn needed(&self) -> Vec<Value> {
        let planned = self.planned.lock().expect("nothing fails while it is locked");
        planned.plans.iter().map(|plan| self.plan(plan)).collect()
    }

    fn plan(&self, plan: &Plan) -> Value {
        let mut out = explain::to_json(&plan.logical, &plan.physical, plan.ran, &plan.stats);
        if !self.analyze && plan.ran {
            // Planning needed its rows.
            out["executed"] = true.into();
        }
        out
    }
}

/// Puts the plans that ran before one, because planning needed their rows, below it.
pub(crate) fn put_children(shown: &mut Value, ctx: &QueryContext) {
    let children = ctx.explaining.as_ref().map(|explaining| explaining.needed()).unwrap_or_default();
    if !children.is_empty() {
        shown["children"] = children.into();
    }
}

impl QueryContext {
    /// Makes a context whose plans are noted instead of answered.
    #[must_use]
    pub fn explaining(mut self, explaining: Option<Arc<Explaining>>) -> Self {
        self.explaining = explaining;
        self
    }

    /// Makes the context of plans that must run before others can be made: they run under a plain `explain`, too, and are
    /// shown.
    #[must_use]
    pub fn planning(&self) -> Self {
        let mut ctx = self.clone();
        ctx.needed = true;
        ctx
    }

    /// Says whether plans are only shown, so that no rows come.
    pub fn is_only_planned(&self) -> bool {
        self.explaining.as_ref().is_some_and(|explaining| !explaining.analyze && !self.needed)
    }

    /// Counts a plan, logs it for who looks, and notes it where plans are shown. Gives the stream without rows of one that
    /// is not to run.
    pub(crate) fn planned(
        &self,
        logical: &LogicalPlan,
        physical: &Arc<dyn ExecutionPlan>,
    ) -> Option<SendableRecordBatchStream> {
        self.query().count_plan();
        if tracing::enabled!(target: "quiver::plan", tracing::Level::DEBUG) {
            let digest = explain::digest(physical);
            tracing::debug!(target: "quiver::plan", query = self.query().id, digest, "a plan runs");
        }
        let explaining = self.explaining.as_ref()?;
        let ran = !self.is_only_planned();
        let (logical, physical_kept) = (logical.clone(), Arc::clone(physical));
        explaining.add(Plan { logical, physical: physical_kept, ran, stats: Arc::clone(&self.stats) });
        let schema: SchemaRef = physical.schema();
        (!ran).then(|| Box::pin(EmptyRecordBatchStream::new(schema)) as SendableRecordBatchStream)
    }
}
