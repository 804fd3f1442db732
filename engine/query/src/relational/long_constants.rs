//! Long constants in many rows: `SELECT '…' FROM t` with a string of 64 KiB makes half a gigabyte of a batch of 8,192
//! rows, at once and before anything counts it. Below nodes that put such constants into rows, batches are cut into
//! slices of so few rows that the result stays small. Calls over constants whose result was too long to be folded into
//! the plan (`repeat('x', 100000)`) are evaluated once per batch and repeated in the same way.
//!
//! Batches are also cut below grouping sets (`CUBE`) and many aggregates: an aggregation puts a batch into all of its
//! sets, up to 256, and into all aggregates, up to 1,664, before it counts what it holds; four hundred `count(DISTINCT
//! …)` of strings took 300 MB before they could be refused. And below functions that unpack the spans of traces, whose
//! results are many times as large.

use std::fmt;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, Volatility};
use datafusion::physical_expr::expressions::{BinaryExpr, Column, InListExpr, LikeExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::BoundedWindowAggExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ReplaceChildrenOptions,
};
use futures::{TryStreamExt as _, stream};
use quiver_types::{Error, ErrorKind};

use super::grouping::node::CodedGroupExec;
use crate::error::to_datafusion;
use crate::functions::{CONSTANT_CALL_MAX, UNPACKED_ROWS, is_long, is_unpacking};
use crate::node_defaults::rows_of_input;
use crate::plan_walk::{change_physical, has_part};

/// The most rows of a batch.
const BATCH_ROWS: usize = 8192;
/// Values that a batch may have for all aggregates in all sets that its rows are grouped by.
const GROUPED_VALUES: usize = 32 * BATCH_ROWS;
/// A text counts for so many numbers, and so do the keys of a set.
const LONG_VALUES: usize = 8;
/// Nodes that put constants into rows.
const SPREADING: [&str; 2] = super::node_names::node_names![ProjectionExec, AggregateExec];
/// The node of conditions, which leave constants as they are.
const FILTER: &str = super::node_names::node_names![FilterExec][0];
/// The node that copies constants for each row that its moving window may still need, and the most bytes of constants
/// for it.
const MOVING: &str = super::node_names::node_names![BoundedWindowAggExec][0];
const MOVING_BYTES_MAX: usize = 256;

/// Puts slices below nodes with long constants, or many sets of groups: a batch has about so many bytes of constants.
///
/// # Errors
///
/// LimitExceeded: a long constant in a moving window. Those of making the nodes.
pub(crate) fn below_constants(plan: Arc<dyn ExecutionPlan>, batch_bytes: usize) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        if node.name() == MOVING {
            let bytes = constants(node.as_ref())?;
            if bytes > MOVING_BYTES_MAX {
                let text = format!("a window has constants of {bytes} bytes, at most {MOVING_BYTES_MAX} are allowed");
                return Err(to_datafusion(Error::new(ErrorKind::LimitExceeded, text)));
            }
        }
        let is_filter = node.name() == FILTER;
        let is_spreading = SPREADING.contains(&node.name());
        if !is_filter && !is_spreading && !node.is::<CodedGroupExec>() {
            return Ok(Transformed::no(node));
        }
        let of_constants = if is_spreading { batch_bytes / constants(node.as_ref())?.max(1) } else { BATCH_ROWS };
        let unpacked = if unpacks(node.as_ref())? { UNPACKED_ROWS } else { BATCH_ROWS };
        let rows = of_constants.min(grouped_rows(node.as_ref())?).min(unpacked).max(1);
        if rows >= BATCH_ROWS {
            return Ok(Transformed::no(node));
        }
        let sliced = |input: &Arc<dyn ExecutionPlan>| -> Arc<dyn ExecutionPlan> {
            Arc::new(SliceExec::new(Arc::clone(input), rows))
        };
        let children = node.children().into_iter().map(sliced).collect();
        let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Transformed::yes(node.replace_children(children, anew)?))
    })
}

/// The number of rows that an aggregation may be given at once.
fn grouped_rows(node: &dyn ExecutionPlan) -> Result<usize> {
    let (sets, aggregates, over) = if let Some(groups) = node.downcast_ref::<AggregateExec>() {
        (groups.group_expr().groups().len(), groups.aggr_expr(), groups.input_schema())
    } else if let Some(groups) = node.downcast_ref::<CodedGroupExec>() {
        let (aggregates, over) = groups.aggregates();
        (1, aggregates, over)
    } else {
        return Ok(BATCH_ROWS);
    };
    let mut values = 0;
    for aggregate in aggregates {
        let takes_long =
            aggregate.expressions().iter().any(|arg| arg.data_type(&over).is_ok_and(|kind| is_long(&kind)));
        let keeps_long = aggregate.state_fields()?.iter().any(|field| is_long(field.data_type()));
        values += if takes_long || keeps_long { LONG_VALUES } else { 1 };
    }
    Ok(GROUPED_VALUES / (sets.max(1) * values.max(LONG_VALUES)))
}

/// Puts slices below an aggregation of another crate, of so many functions that may keep texts: it is given so few rows at
/// once that what it makes of them can be counted in time.
pub fn below_aggregates(input: Arc<dyn ExecutionPlan>, functions: usize) -> Arc<dyn ExecutionPlan> {
    let rows = GROUPED_VALUES / (functions.max(1) * LONG_VALUES);
    if rows < BATCH_ROWS { Arc::new(SliceExec::new(input, rows)) } else { input }
}

/// Whether an expression is a call over constants, which gives the same long value for all rows.
fn is_constant_call(expr: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() else { return Ok(false) };
    if call.args().is_empty() || !is_long(call.return_type()) || is_volatile(call) {
        return Ok(false);
    }
    let varies = |e: &Arc<dyn PhysicalExpr>| {
        e.downcast_ref::<Column>().is_some() || e.downcast_ref::<ScalarFunctionExpr>().is_some_and(is_volatile)
    };
    Ok(!has_part(expr, &varies)?)
}

fn is_volatile(call: &ScalarFunctionExpr) -> bool {
    call.fun().signature().volatility == Volatility::Volatile
}

/// The two sides of a comparison; `None` if the expression is none.
fn compared(expr: &Arc<dyn PhysicalExpr>) -> Option<[&Arc<dyn PhysicalExpr>; 2]> {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    if let Some(like) = expr.downcast_ref::<LikeExpr>() {
        return Some([like.expr(), like.pattern()]);
    }
    let binary = expr.downcast_ref::<BinaryExpr>()?;
    let compares = matches!(binary.op(), Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom);
    compares.then(|| [binary.left(), binary.right()])
}

/// Bytes of the constants in an expression, not counting numbers.
pub(super) fn constants_in(expr: &Arc<dyn PhysicalExpr>) -> Result<usize> {
    let mut bytes = 0;
    expr.apply(|e| {
        // A list that values are looked up in is not copied into rows.
        if let Some(list) = e.downcast_ref::<InListExpr>() {
            bytes += constants_in(list.expr())?;
            return Ok(TreeNodeRecursion::Jump);
        }
        // Nor is a constant that values are compared with.
        if let Some(sides) = compared(e) {
            for side in sides {
                if side.downcast_ref::<Literal>().is_none() {
                    bytes += constants_in(side)?;
                }
            }
            return Ok(TreeNodeRecursion::Jump);
        }
        if let Some(literal) = e.downcast_ref::<Literal>() {
            bytes += literal.value().size().saturating_sub(size_of::<ScalarValue>());
        }
        if is_constant_call(e)? {
            bytes += CONSTANT_CALL_MAX;
            return Ok(TreeNodeRecursion::Jump);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(bytes)
}

/// Bytes of the constants in all expressions of a node.
fn constants(node: &dyn ExecutionPlan) -> Result<usize> {
    let mut bytes = 0;
    node.apply_expressions(&mut |expr| {
        bytes += constants_in(expr)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(bytes)
}

/// Whether an expression of a node unpacks spans.
fn unpacks(node: &dyn ExecutionPlan) -> Result<bool> {
    let is_one = |expr: &Arc<dyn PhysicalExpr>| {
        expr.downcast_ref::<ScalarFunctionExpr>().is_some_and(|call| is_unpacking(call.fun().name()))
    };
    let mut found = false;
    node.apply_expressions(&mut |expr| {
        found |= has_part(expr, &is_one)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The number of rows that batches of a plan may have, if each row holds all its constants and they take so many bytes:
/// joins and exchanges merge short batches into ones of the session's batch size.
///
/// # Errors
///
/// Those of walking through the plans.
pub(crate) fn batch_rows(
    logical: &LogicalPlan,
    physical: &Arc<dyn ExecutionPlan>,
    batch_bytes: usize,
) -> Result<usize> {
    let mut bytes = written_out(logical)?;
    physical.apply(|node| {
        if SPREADING.contains(&node.name()) {
            bytes += constants(node.as_ref())?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok((batch_bytes / bytes.max(1)).clamp(1, BATCH_ROWS))
}

/// Bytes of the longest row of each `VALUES` in a statement, not counting numbers.
fn written_out(plan: &LogicalPlan) -> Result<usize> {
    let literal = |expr: &Expr| match expr {
        Expr::Literal(value, _) => value.size().saturating_sub(size_of::<ScalarValue>()),
        _ => 0,
    };
    let mut bytes = 0;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Values(table) = node {
            let rows = table.values.iter().map(|row| row.iter().map(literal).sum::<usize>());
            bytes += rows.max().unwrap_or(0);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(bytes)
}

/// Splits batches into ones of few rows.
#[derive(Debug)]
pub(crate) struct SliceExec {
    input: Arc<dyn ExecutionPlan>,
    rows: usize,
}

impl SliceExec {
    /// Emits batches of at most this number of rows, and at least one.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, rows: usize) -> Self {
        Self { input, rows: rows.max(1) }
    }

    /// The most rows of an emitted batch.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, rows: self.rows }
    }
}

impl DisplayAs for SliceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SliceExec: rows={}", self.rows)
    }
}

impl ExecutionPlan for SliceExec {
    fn name(&self) -> &'static str {
        "SliceExec"
    }

    rows_of_input!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = self.rows;
        let batches = self.input.execute(partition, context)?;
        let slices = batches.map_ok(move |batch| {
            let starts = (0..batch.num_rows()).step_by(rows);
            let slice = move |at| Ok::<_, DataFusionError>(batch.slice(at, rows.min(batch.num_rows() - at)));
            stream::iter(starts.map(slice))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), slices.try_flatten())))
    }
}
