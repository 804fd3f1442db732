//! A rule that compacts the inputs of sorts, and the collected side of joins ([`crate::held_rows`]). These nodes are
//! charged for whole buffers of which each batch uses a small part, and queries were refused for that: a join was
//! charged 120 MB for ids of 300,000 spans that take 30 MB, and a sort all groups of an aggregation for each 8,192 of
//! them, or a block of 4 MiB of log rows for each batch of it, and again for each batch that it merges.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ReplaceChildrenOptions,
};
use futures::TryStreamExt as _;

use super::batch_bytes::may_be_long;
use super::grouping::node::CodedGroupExec;
use super::windows::WindowsExec;
use crate::held_rows::HeldRows;
use crate::node_defaults::rows_of_input;
use crate::plan_walk::change_physical;
use crate::tables::convert::ConvertExec;

/// Puts a [`HeldRowsExec`] below sorts, merges of sorted partitions, and the sides of joins that are kept in memory.
///
/// # Errors
/// Those of making the nodes.
pub(crate) fn held(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        let mut children: Vec<_> = node.children().into_iter().cloned().collect();
        let Some(input) = children.first_mut().filter(|input| is_overcharged(&node, input)) else {
            return Ok(Transformed::no(node));
        };
        *input = Arc::new(HeldRowsExec::new(Arc::clone(input)));
        let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Transformed::yes(node.replace_children(children, anew)?))
    })
}

/// Puts the node over a side that a join of another crate holds.
pub fn held_side(side: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if has_views(&side) { Arc::new(HeldRowsExec::new(side)) } else { side }
}

/// Whether a node holds this input of its, and is charged for more than that takes.
fn is_overcharged(node: &Arc<dyn ExecutionPlan>, input: &Arc<dyn ExecutionPlan>) -> bool {
    // It is charged once for a buffer that several batches share, but for all of one that each has little of.
    if node.is::<HashJoinExec>() {
        return has_views(input);
    }
    if node.is::<NestedLoopJoinExec>() || node.is::<CrossJoinExec>() {
        return has_views(input) || gives_slices(input);
    }
    // Each batch of a sort that merged many has texts in the batches of all of them.
    if node.is::<SortPreservingMergeExec>() {
        return has_views(input) && is_whole_sort(input);
    }
    let Some(sort) = node.downcast_ref::<SortExec>() else { return false };
    // One that keeps few rows lets the others go with what they lie in.
    gives_slices(input) || sort.fetch().is_none() && may_be_long(&input.schema()) && shares_blocks(input)
}

/// Whether batches are rows of tables as these are stored: texts of many batches lie in the buffers of one block.
fn shares_blocks(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<ConvertExec>() || !makes_anew(node) && node.children().into_iter().any(shares_blocks)
}

/// Whether the rows of a node come from a sort of all rows.
fn is_whole_sort(node: &Arc<dyn ExecutionPlan>) -> bool {
    match (node.downcast_ref::<SortExec>(), node.children().as_slice()) {
        (Some(sort), _) => sort.fetch().is_none(),
        (None, [input]) => is_whole_sort(input),
        _ => false,
    }
}

/// Whether what is behind a node has been put together anew: by a sort, or a join by keys.
fn makes_anew(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<SortExec>() || node.is::<HashJoinExec>() || node.is::<HeldRowsExec>()
}

fn has_views(side: &Arc<dyn ExecutionPlan>) -> bool {
    let schema = side.schema();
    schema.fields().iter().any(|field| matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView))
}

/// Whether batches may come as slices of one large batch: groups and windows do, and most nodes hand them on.
fn gives_slices(node: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(groups) = node.downcast_ref::<AggregateExec>() {
        return !groups.group_expr().expr().is_empty();
    }
    if let Some(groups) = node.downcast_ref::<CodedGroupExec>() {
        return groups.has_keys();
    }
    node.is::<WindowsExec>() || !makes_anew(node) && node.children().into_iter().any(gives_slices)
}

/// Gives batches that are held together buffers of their own.
#[derive(Debug)]
pub(crate) struct HeldRowsExec {
    input: Arc<dyn ExecutionPlan>,
}

impl HeldRowsExec {
    /// Makes the node over what is held.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input }
    }

    #[expect(clippy::unused_self, reason = "`one_input!` makes each node over another input from what it is")]
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input }
    }
}

impl DisplayAs for HeldRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldRowsExec")
    }
}

impl ExecutionPlan for HeldRowsExec {
    fn name(&self) -> &'static str {
        "HeldRowsExec"
    }

    rows_of_input!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let batches = self.input.execute(partition, context)?;
        let mut rows = HeldRows::default();
        let held = batches.map_ok(move |batch| rows.held(batch));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), held)))
    }
}

#[cfg(test)]
mod tests;
