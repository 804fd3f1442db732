//! Keeps what a statement computes away from rows that its caller may not see. DataFusion merges the conditions of a
//! statement with the one that chooses visible rows, evaluates the cheaper ones first, and moves them below joins: a
//! cast that fails, or a division by zero, would tell what a hidden row holds. The condition on visible rows may move
//! down freely. A node above it stops the conditions and outputs of a statement, but for conditions that cannot fail
//! (a column is compared with a constant): these go on to the tables, which then read fewer rows.
//!
//! Only rows that are read without the caller's rights need it: what a scan leaves out is not there for anybody.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::catalog::Session;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchemaRef, JoinType};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::expr::{Alias, Between, BinaryExpr, Cast, InList, Like};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable as _, Extension, Filter, LogicalPlan, Operator, UserDefinedLogicalNode,
    UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use futures::future::{BoxFuture, ready};

use crate::node_defaults::rows_of_input;
use crate::plan_walk::change_physical;

/// The rule after which conditions pass, since it brings them there.
const AFTER: &str = "push_down_filter";
/// The name of the rule that lets conditions pass.
pub(crate) const NAME: &str = "visible_rows";

/// Marks rows as those that a caller may see; `rows` must leave out all others.
pub fn visible_rows(rows: LogicalPlan) -> LogicalPlan {
    LogicalPlan::Extension(Extension { node: Arc::new(VisibleRowsNode { rows }) })
}

/// The rows that [`visible_rows`] marked; `None` if the node is another one.
pub fn of_visible_rows(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    let LogicalPlan::Extension(Extension { node }) = plan else { return None };
    node.as_any().downcast_ref::<VisibleRowsNode>().map(|node| &node.rows)
}

/// The node: the rows of its input.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Hash)]
struct VisibleRowsNode {
    rows: LogicalPlan,
}

impl UserDefinedLogicalNodeCore for VisibleRowsNode {
    fn name(&self) -> &'static str {
        "VisibleRows"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.rows]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.rows.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VisibleRows")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { rows: inputs.swap_remove(0) })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }
}

/// Adds the rule to those of an optimizer.
pub(crate) fn with_rule(
    mut rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let behind = rules.iter().position(|rule| rule.name() == AFTER).map_or(rules.len(), |at| at + 1);
    rules.insert(behind, Arc::new(PassingConditions));
    rules
}

/// The rule that lets conditions pass which cannot fail.
#[derive(Debug)]
struct PassingConditions;

impl OptimizerRule for PassingConditions {
    fn name(&self) -> &'static str {
        NAME
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = &plan else { return Ok(Transformed::no(plan)) };
        let Some(rows) = of_visible_rows(&filter.input) else { return Ok(Transformed::no(plan)) };
        let conditions = split_conjunction_owned(filter.predicate.clone()).into_iter();
        let (passing, kept): (Vec<Expr>, Vec<Expr>) = conditions.partition(|condition| cannot_fail(condition, rows));
        let Some(passing) = conjunction(passing) else { return Ok(Transformed::no(plan)) };
        let rows = visible_rows(LogicalPlan::Filter(Filter::try_new(passing, Arc::new(rows.clone()))?));
        Ok(Transformed::yes(match conjunction(kept) {
            Some(kept) => LogicalPlan::Filter(Filter::try_new(kept, Arc::new(rows))?),
            None => rows,
        }))
    }
}

/// Whether an expression has a value for any row of a plan, with what its columns are made of.
fn cannot_fail(expr: &Expr, plan: &LogicalPlan) -> bool {
    use Operator::{And, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq, Or};
    match expr {
        Expr::Literal(..) => true,
        Expr::Column(column) => plan.schema().maybe_index_of_column(column).is_some_and(|at| is_safe(plan, at)),
        Expr::Alias(Alias { expr, .. })
        | Expr::Not(expr)
        | Expr::IsNull(expr)
        | Expr::IsNotNull(expr)
        | Expr::IsTrue(expr)
        | Expr::IsFalse(expr)
        | Expr::IsUnknown(expr)
        | Expr::IsNotTrue(expr)
        | Expr::IsNotFalse(expr)
        | Expr::IsNotUnknown(expr) => cannot_fail(expr, plan),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            matches!(op, And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
                && cannot_fail(left, plan)
                && cannot_fail(right, plan)
        }
        Expr::Between(Between { expr, low, high, .. }) => [expr, low, high].into_iter().all(|e| cannot_fail(e, plan)),
        Expr::InList(InList { expr, list, .. }) => cannot_fail(expr, plan) && list.iter().all(|e| cannot_fail(e, plan)),
        // A pattern that comes from a row may be invalid, and evaluating it then fails.
        Expr::Like(Like { expr, pattern, .. }) => matches!(**pattern, Expr::Literal(..)) && cannot_fail(expr, plan),
        Expr::Cast(Cast { expr, field }) => {
            expr.get_type(plan.schema()).is_ok_and(|from| is_lossless(&from, field.data_type()))
                && cannot_fail(expr, plan)
        }
        _ => false,
    }
}

/// Whether each value of a type is one of another type, too.
fn is_lossless(from: &DataType, to: &DataType) -> bool {
    let is_text = |kind: &DataType| matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    match (from, to) {
        (from, to) if from == to => true,
        (DataType::Dictionary(_, values), to) => is_lossless(values, to),
        (from, to) if is_text(to) => is_text(from) || from.is_integer() || *from == DataType::Boolean,
        (from, DataType::Int64) => from.is_integer() && *from != DataType::UInt64,
        (from, DataType::Float64) => from.is_integer() || *from == DataType::Float32,
        // Casts to a finer unit may overflow.
        (DataType::Timestamp(from, of), DataType::Timestamp(to, zone)) => to <= from && of.is_some() == zone.is_some(),
        _ => false,
    }
}

/// Whether a condition on a column of a plan cannot fail wherever it moves: DataFusion puts what the column is made of in
/// its place.
fn is_safe(plan: &LogicalPlan, at: usize) -> bool {
    match plan {
        LogicalPlan::Projection(node) => node.expr.get(at).is_some_and(|expr| cannot_fail(expr, &node.input)),
        LogicalPlan::SubqueryAlias(node) => is_safe(&node.input, at),
        LogicalPlan::Filter(node) => is_safe(&node.input, at),
        LogicalPlan::Sort(node) => is_safe(&node.input, at),
        LogicalPlan::Limit(node) => is_safe(&node.input, at),
        LogicalPlan::Distinct(Distinct::All(input)) => is_safe(input, at),
        LogicalPlan::Union(node) => node.inputs.iter().all(|input| is_safe(input, at)),
        LogicalPlan::Aggregate(node) => {
            let has_sets = node.group_expr.iter().any(|group| matches!(group, Expr::GroupingSet(_)));
            // A condition on what groups hold stays above them.
            !has_sets && node.group_expr.get(at).is_none_or(|group| cannot_fail(group, &node.input))
        }
        LogicalPlan::Window(node) => at >= node.input.schema().fields().len() || is_safe(&node.input, at),
        LogicalPlan::Join(node) => {
            let of = |side: &LogicalPlan, at: usize| at >= side.schema().fields().len() || is_safe(side, at);
            let left = node.left.schema().fields().len();
            match node.join_type {
                JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => of(&node.left, at),
                JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => of(&node.right, at),
                _ if at < left => of(&node.left, at),
                _ => of(&node.right, at - left),
            }
        }
        LogicalPlan::Extension(Extension { node }) => match node.inputs().as_slice() {
            [input] if input.schema().fields().len() == plan.schema().fields().len() => is_safe(input, at),
            _ => false,
        },
        LogicalPlan::TableScan(_) | LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_) => true,
        _ => false,
    }
}

/// The physical node, until DataFusion's rules are done, which would move outputs below conditions. It is gone before a
/// plan runs, so it has no written form, and no name of its own.
#[derive(Debug)]
struct VisibleRowsExec {
    input: Arc<dyn ExecutionPlan>,
}

impl VisibleRowsExec {
    #[expect(clippy::unused_self, reason = "`one_input!` makes each node over another input from what it is")]
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input }
    }
}

impl DisplayAs for VisibleRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VisibleRows")
    }
}

impl ExecutionPlan for VisibleRowsExec {
    fn name(&self) -> &'static str {
        "VisibleRows"
    }

    rows_of_input!();

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn execute(&self, partition: usize, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, task)
    }
}

/// Removes the nodes from a physical plan that no rule of DataFusion changes any more: rules of ours move no expressions.
///
/// # Errors
/// Those of walking through the plan.
pub(crate) fn removed(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        let input = node.downcast_ref::<VisibleRowsExec>().map(|node| Arc::clone(&node.input));
        Ok(match input {
            Some(input) => Transformed::yes(input),
            None => Transformed::no(node),
        })
    })
}

/// Turns the logical node into the physical one.
#[derive(Debug)]
pub(crate) struct VisibleRowsPlanner;

impl ExtensionPlanner for VisibleRowsPlanner {
    // Not written with `async_trait`, for the reason given in `table_provider`.
    fn plan_extension<'life0, 'life1, 'life2, 'life3, 'life4, 'life5, 'life6, 'life7, 'async_trait>(
        &'life0 self,
        _: &'life1 dyn PhysicalPlanner,
        node: &'life2 dyn UserDefinedLogicalNode,
        _: &'life3 [&'life4 LogicalPlan],
        physical_inputs: &'life5 [Arc<dyn ExecutionPlan>],
        _: &'life6 dyn Session,
        _: &'life7 PhysicalPlanningContext,
    ) -> BoxFuture<'async_trait, Result<Option<Arc<dyn ExecutionPlan>>>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        'life3: 'async_trait,
        'life4: 'async_trait,
        'life5: 'async_trait,
        'life6: 'async_trait,
        'life7: 'async_trait,
        Self: 'async_trait,
    {
        let is_own = node.as_any().is::<VisibleRowsNode>();
        let own = |input: &Arc<dyn ExecutionPlan>| -> Arc<dyn ExecutionPlan> {
            Arc::new(VisibleRowsExec { input: Arc::clone(input) })
        };
        let planned: Result<Option<Arc<dyn ExecutionPlan>>> = Ok(physical_inputs.first().filter(|_| is_own).map(own));
        Box::pin(ready(planned))
    }
}

#[cfg(test)]
mod tests;
