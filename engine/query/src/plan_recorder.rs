//! The plans of one request, recorded as they are made, so that `explain` shows exactly the plans that run.
//!
//! A request to explain a query takes the same path as the query itself; the engine records each plan that it is given.
//! With `analyze` it also runs them. Otherwise it gives no rows, except for plans whose rows are needed to make others
//! (`QueryContext::planning`).

use std::sync::{Arc, Mutex};
use std::time::Instant;

use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use quiver_types::ReadStats;
use serde_json::{Value, json};

use crate::explain;

/// Most plans that are shown for one request; more are only counted.
const PLANS_MAX: usize = 100;

/// How plans are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explain {
    /// As they would run.
    Plan,
    /// As they ran, with rows and time of each node.
    Analyze,
}

/// Collects the plans of a request that is explained.
#[derive(Debug)]
pub struct PlanRecorder {
    explain: Explain,
    began: Instant,
    planned: Mutex<RecordedPlans>,
}

#[derive(Debug, Default)]
struct RecordedPlans {
    plans: Vec<Plan>,
    left_out: usize,
}

/// A recorded plan.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) logical: LogicalPlan,
    pub(crate) physical: Arc<dyn ExecutionPlan>,
    pub(crate) ran: bool,
    pub(crate) stats: Arc<ReadStats>,
}

impl PlanRecorder {
    /// Makes an empty record.
    pub fn new(explain: Explain) -> Arc<Self> {
        Arc::new(Self { explain, began: Instant::now(), planned: Mutex::default() })
    }

    /// Says whether plans are also run.
    pub(crate) fn analyzes(&self) -> bool {
        self.explain == Explain::Analyze
    }

    /// Records a plan.
    pub(crate) fn add(&self, plan: Plan) {
        let mut planned = self.planned.lock().expect("nothing fails while it is locked");
        if planned.plans.len() < PLANS_MAX {
            planned.plans.push(plan);
        } else {
            planned.left_out += 1;
        }
    }

    /// Gives the plan that produces the result, which is the last one, with those before it as `children`; `None`: no
    /// plan was made.
    pub fn shown(&self) -> Option<Value> {
        let planned = self.planned.lock().expect("nothing fails while it is locked");
        let (root, before) = planned.plans.split_last()?;
        let mut out = self.plan(root);
        if self.analyzes() {
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
        if !self.analyzes() && plan.ran {
            // It ran because planning needed its rows.
            out["executed"] = true.into();
        }
        out
    }
}
