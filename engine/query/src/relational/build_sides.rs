//! Sides of joins that are held in memory as a whole. Texts and bytes in them keep buffers that others fill, or nobody: a
//! join would be charged 120 MB for ids of 300,000 spans that take 30 MB, and its query be refused. Their batches are
//! given buffers of their own before the join counts them ([`crate::view_compaction`]).

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};
use futures::TryStreamExt as _;

use crate::node_defaults::{no_expressions, one_input};
use crate::plan_walk::change_physical;
use crate::view_compaction::HeldTexts;

/// Puts the node below joins, on the side that they hold.
///
/// # Errors
/// Those of making the nodes.
pub(crate) fn held(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        let is_join = node.is::<HashJoinExec>() || node.is::<NestedLoopJoinExec>() || node.is::<CrossJoinExec>();
        let mut children: Vec<_> = node.children().into_iter().cloned().collect();
        let Some(side) = children.first_mut().filter(|side| is_join && has_views(side)) else {
            return Ok(Transformed::no(node));
        };
        *side = Arc::new(HeldTextsExec::new(Arc::clone(side)));
        let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Transformed::yes(node.replace_children(children, anew)?))
    })
}

/// Puts the node over a side that a join of another crate holds.
pub fn held_texts(side: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if has_views(&side) { Arc::new(HeldTextsExec::new(side)) } else { side }
}

fn has_views(side: &Arc<dyn ExecutionPlan>) -> bool {
    let schema = side.schema();
    schema.fields().iter().any(|field| matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView))
}

/// Gives texts and bytes of batches that are held together buffers of their own.
#[derive(Debug)]
pub(crate) struct HeldTextsExec {
    input: Arc<dyn ExecutionPlan>,
}

impl HeldTextsExec {
    /// Makes the node over what is held.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input }
    }

    #[expect(clippy::unused_self, reason = "`one_input!` makes each node over another input from what it is")]
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input }
    }
}

impl DisplayAs for HeldTextsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldTextsExec")
    }
}

impl ExecutionPlan for HeldTextsExec {
    fn name(&self) -> &'static str {
        "HeldTextsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    one_input!();
    no_expressions!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let batches = self.input.execute(partition, context)?;
        let mut texts = HeldTexts::default();
        let held = batches.map_ok(move |batch| texts.held(batch));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), held)))
    }
}

#[cfg(test)]
mod tests;
