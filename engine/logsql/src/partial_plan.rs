//! A partial plan: the nodes so far, and what is known of their rows.

use std::hash::Hash;
use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::logical_expr::{EmptyRelation, LogicalPlan};
use quiver_types::{Error, Result};

use crate::nodes::step_plan;
use crate::rows::Shape;
use crate::step::Step;

/// A plan and what its rows look like.
#[derive(Debug, Clone)]
pub(crate) struct PartialPlan {
    pub(crate) plan: LogicalPlan,
    pub(crate) shape: Shape,
    /// Bounds of the time of the rows, both included: what rates are over.
    pub(crate) time: (i64, i64),
}

impl PartialPlan {
    /// No rows, and no columns.
    pub(crate) fn nothing() -> Self {
        let schema = Arc::new(DFSchema::empty());
        let plan = LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema });
        Self { plan, shape: Shape::default(), time: (i64::MIN, i64::MAX) }
    }

    /// Adds a step.
    pub(crate) fn then(self, step: impl Step + Eq + Hash, shape: Shape) -> Result<Self> {
        Ok(Self { plan: step_plan(step, self.plan)?, shape, time: self.time })
    }
}

/// An error of planning that only a fault of ours can cause.
pub(crate) fn internal(message: &str) -> Error {
    Error::internal(message)
}
