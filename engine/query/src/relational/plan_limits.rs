//! Limits on the size of plans, and places where plans yield.
//!
//! Keys: for each computed key that keeps the order of its argument (`round(x, 1)`, `date_trunc('day', t)`), DataFusion
//! works out its relation to all other keys, and cannot be cancelled while it plans: a `GROUP BY` of a thousand such
//! keys, 12 KB of text, blocked one of few threads for minutes. Windows: the same for each window and those below it,
//! and still more often for the keys of a partition. Orders: each rule compares their keys; sixteen hundred took three
//! seconds. Products of tables (joins without a condition): each holds a batch of all columns so far, which no memory
//! budget counts.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion, TreeNodeRewriter, TreeNodeVisitor};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, SortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec, SymmetricHashJoinExec,
};
use datafusion::physical_plan::memory::LazyMemoryExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::unnest::UnnestExec;
use quiver_types::{Error, ErrorKind, Result};

use super::node_names::node_names;
use super::windows::WindowsExec;
use crate::error::{from_datafusion, of_planning};

/// The most keys of groups, joins and `DISTINCT` in a statement that computes as many values, and of partitions of
/// all windows together.
const KEYS_MAX: usize = 256;
/// The most partition keys of one window.
const PARTITION_KEYS_MAX: usize = 100;
/// The most windows with different partitions or orders, above each other.
pub const WINDOWS_MAX: usize = 128;
/// How many times as many windows, and keys of their partitions, may be side by side as above each other. A window costs
/// by the ones below it only, and analytics joins models that each bring windows of their own.
const BESIDE_MAX: usize = 4;
/// The most sort keys of one order: DataFusion compares each with the earlier ones again and again.
const ORDERS_MAX: usize = 512;
/// The most computed outputs of one select, as in PostgreSQL.
pub const OUTPUTS_MAX: usize = 1664;

/// Refuses a plan that exceeds these limits.
///
/// # Errors
///
/// LimitExceeded.
pub(super) fn few_keys(plan: &LogicalPlan) -> Result<()> {
    let (mut keys, mut values, mut orders) = (0, 0, 0);
    few_windows(plan)?;
    let walked = plan.apply_with_subqueries(|node| {
        keys = keys.max(keys_of(node));
        values = values.max(computed_of(node));
        orders = orders.max(orders_of(node));
        Ok(TreeNodeRecursion::Continue)
    });
    walked.map_err(of_planning)?;
    let refused = |text: String| Err(Error::new(ErrorKind::LimitExceeded, text));
    if keys > KEYS_MAX && values > KEYS_MAX {
        return refused(format!(
            "rows are told apart by {keys} values, at most {KEYS_MAX} are allowed where as many are computed \
             (`GROUP BY`, `DISTINCT`, joins, sets)"
        ));
    }
    if orders > ORDERS_MAX {
        return refused(format!(
            "rows are in an order of {orders} values, at most {ORDERS_MAX} are allowed (`ORDER BY`)"
        ));
    }
    if values > OUTPUTS_MAX {
        return refused(format!("a select computes {values} values, at most {OUTPUTS_MAX} are allowed"));
    }
    Ok(())
}

/// Refuses a plan with too many windows, or with windows that divide rows by too much.
fn few_windows(plan: &LogicalPlan) -> Result<()> {
    let mut counted = Windows::default();
    plan.visit_with_subqueries(&mut counted).map_err(of_planning)?;
    let refused = |text: String| Err(Error::new(ErrorKind::LimitExceeded, text));
    let WindowCounts { windows, divided } = counted.most;
    let all = counted.all;
    if windows > WINDOWS_MAX || all.windows > WINDOWS_MAX * BESIDE_MAX {
        return refused(format!(
            "a statement has {} windows of different partitions or orders, at most {WINDOWS_MAX} are allowed (`OVER`)",
            all.windows
        ));
    }
    if counted.longest > PARTITION_KEYS_MAX || divided > KEYS_MAX || all.divided > KEYS_MAX * BESIDE_MAX {
        return refused(format!(
            "windows divide rows by {} values, at most {PARTITION_KEYS_MAX} are allowed in one window and {KEYS_MAX} in \
             all (`PARTITION BY`)",
            all.divided
        ));
    }
    Ok(())
}

/// Windows, and the values by which they divide rows.
#[derive(Debug, Default, Clone, Copy)]
struct WindowCounts {
    windows: usize,
    divided: usize,
}

/// Counts the windows of a plan.
#[derive(Debug, Default)]
struct Windows {
    /// From the root to the node that is visited.
    path: WindowCounts,
    /// The counts on the path with the most windows.
    most: WindowCounts,
    all: WindowCounts,
    /// The most values by which one window divides rows.
    longest: usize,
}

/// The number of values by which a window divides rows; none: the node is no window. All functions of a node have the
/// same partitions and order.
fn divided_by(node: &LogicalPlan) -> Option<usize> {
    let LogicalPlan::Window(window) = node else { return None };
    Some(window.window_expr.iter().map(|expr| partitions(expr).len()).max().unwrap_or(0))
}

impl<'n> TreeNodeVisitor<'n> for Windows {
    type Node = LogicalPlan;

    fn f_down(&mut self, node: &'n LogicalPlan) -> DataFusionResult<TreeNodeRecursion> {
        if let Some(divided) = divided_by(node) {
            for counts in [&mut self.path, &mut self.all] {
                counts.windows += 1;
                counts.divided += divided;
            }
            self.most.windows = self.most.windows.max(self.path.windows);
            self.most.divided = self.most.divided.max(self.path.divided);
            self.longest = self.longest.max(divided);
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn f_up(&mut self, node: &'n LogicalPlan) -> DataFusionResult<TreeNodeRecursion> {
        if let Some(divided) = divided_by(node) {
            self.path.windows -= 1;
            self.path.divided -= divided;
        }
        Ok(TreeNodeRecursion::Continue)
    }
}

/// The number of keys that a node groups, joins or distinguishes rows by.
fn keys_of(node: &LogicalPlan) -> usize {
    match node {
        LogicalPlan::Aggregate(aggregate) => keys_in(&aggregate.group_expr).len(),
        LogicalPlan::Distinct(Distinct::All(input)) => input.schema().fields().len(),
        LogicalPlan::Distinct(Distinct::On(distinct)) => distinct.on_expr.len(),
        LogicalPlan::Join(join) => join.on.len(),
        _ => 0,
    }
}

/// The number of values that a node computes.
fn computed_of(node: &LogicalPlan) -> usize {
    match node {
        LogicalPlan::Projection(projection) => computed(&projection.expr),
        LogicalPlan::Aggregate(aggregate) => computed(keys_in(&aggregate.group_expr)).max(aggregate.aggr_expr.len()),
        LogicalPlan::Window(window) => window.window_expr.len(),
        LogicalPlan::Distinct(Distinct::On(distinct)) => computed(&distinct.on_expr),
        _ => 0,
    }
}

/// The number of keys that a node sorts by.
fn orders_of(node: &LogicalPlan) -> usize {
    match node {
        LogicalPlan::Sort(sort) => sort.expr.len(),
        LogicalPlan::Window(window) => window.window_expr.iter().map(|expr| orders(expr).len()).max().unwrap_or(0),
        _ => 0,
    }
}

fn computed<'e>(exprs: impl IntoIterator<Item = &'e Expr>) -> usize {
    exprs.into_iter().filter(|expr| is_computed(expr)).count()
}

/// The grouping keys, without duplicates among grouping sets.
fn keys_in(groups: &[Expr]) -> Vec<&Expr> {
    match groups {
        [Expr::GroupingSet(sets)] => sets.distinct_expr(),
        keys => keys.iter().collect(),
    }
}

/// The partition keys of a window function.
fn partitions(expr: &Expr) -> &[Expr] {
    match expr {
        Expr::Alias(alias) => partitions(&alias.expr),
        Expr::WindowFunction(call) => &call.params.partition_by,
        _ => &[],
    }
}

/// The sort keys of a window function.
fn orders(expr: &Expr) -> &[SortExpr] {
    match expr {
        Expr::Alias(alias) => orders(&alias.expr),
        Expr::WindowFunction(call) => &call.params.order_by,
        _ => &[],
    }
}

fn is_computed(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_computed(&alias.expr),
        Expr::Column(_) | Expr::Literal(..) => false,
        _ => true,
    }
}

/// Nodes that may emit many batches for one batch of input, or for none.
const MULTIPLYING: [&str; 10] = node_names![
    CrossJoinExec,
    NestedLoopJoinExec,
    HashJoinExec,
    SortMergeJoinExec,
    PiecewiseMergeJoinExec,
    SymmetricHashJoinExec,
    UnnestExec,
    WindowsExec,
    RecursiveQueryExec,
    LazyMemoryExec,
];

/// Nodes that pair each row of one side with each of the other, and the most of them that a plan may have: each holds
/// a batch of its output, with all columns so far, which no memory budget counts.
const PRODUCTS: [&str; 3] = node_names![CrossJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec];
const PRODUCTS_MAX: usize = 16;

/// Whether a plan gives exactly one row, as scalar subqueries do.
fn gives_one_row(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.downcast_ref::<AggregateExec>() {
        Some(aggregate) => aggregate.group_expr().expr().is_empty(),
        None if MULTIPLYING.contains(&plan.name()) => false,
        None => matches!(plan.children().as_slice(), [one] if gives_one_row(one)),
    }
}

/// Refuses a plan with too many cross products.
pub(super) fn few_products(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let mut products = 0;
    let counted = plan.apply(|node| {
        let multiplies = PRODUCTS.contains(&node.name()) && !node.children().into_iter().any(gives_one_row);
        products += usize::from(multiplies);
        Ok(TreeNodeRecursion::Continue)
    });
    counted.map_err(from_datafusion)?;
    if products <= PRODUCTS_MAX {
        return Ok(());
    }
    let text = format!("a statement has {products} joins without `=`, at most {PRODUCTS_MAX} are allowed");
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

/// The most cooperative nodes on one path. Each uses up a part of the budget of operations that tokio gives a task
/// (128) before it polls its input: with more of them, no poll would reach the leaf, and the query would never end.
const GIVING_WAY_MAX: usize = 64;

/// Inserts nodes that yield above those that multiply rows. DataFusion's own rule makes only leaves yield, and a
/// cross join polls these so rarely that a query would occupy its thread long after its deadline.
pub(super) fn giving_way(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let mut giving = GivingWay { apart: 1 + multiplying(&plan) / GIVING_WAY_MAX, below: vec![0] };
    plan.rewrite(&mut giving).map(|given| given.data).map_err(from_datafusion)
}

/// The most nodes that multiply rows on one path.
fn multiplying(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let below = plan.children().into_iter().map(multiplying).max().unwrap_or(0);
    below + usize::from(MULTIPLYING.contains(&plan.name()))
}

/// Inserts a yielding node above each multiplying node, or above every second, third … one if there are many.
struct GivingWay {
    apart: usize,
    /// For each node on the path from the root, how many multiplying nodes are below it.
    below: Vec<usize>,
}

impl TreeNodeRewriter for GivingWay {
    type Node = Arc<dyn ExecutionPlan>;

    fn f_down(&mut self, node: Self::Node) -> DataFusionResult<Transformed<Self::Node>> {
        self.below.push(0);
        Ok(Transformed::no(node))
    }

    fn f_up(&mut self, node: Self::Node) -> DataFusionResult<Transformed<Self::Node>> {
        let multiplies = MULTIPLYING.contains(&node.name());
        let all = self.below.pop().unwrap_or(0) + usize::from(multiplies);
        if let Some(above) = self.below.last_mut() {
            *above = all.max(*above);
        }
        Ok(if multiplies && all.is_multiple_of(self.apart) {
            Transformed::yes(Arc::new(CooperativeExec::new(node)) as Self::Node)
        } else {
            Transformed::no(node)
        })
    }
}

#[cfg(test)]
mod tests {
    use datafusion::functions_aggregate::count::count_udaf;
    use datafusion::logical_expr::expr::WindowFunction;
    use datafusion::logical_expr::{ExprFunctionExt as _, LogicalPlanBuilder};
    use datafusion::prelude::{col, lit};

    use super::*;

    /// A row with this number of plain columns.
    fn row(columns: usize) -> LogicalPlanBuilder {
        LogicalPlanBuilder::values(vec![vec![lit(1_i64); columns]]).unwrap()
    }

    fn sums(count: usize) -> Vec<Expr> {
        (0..count).map(|n| (col("column1") + lit(n as i64)).alias(format!("c{n}"))).collect()
    }

    fn names(count: usize) -> Vec<Expr> {
        (0..count).map(|n| col(format!("c{n}"))).collect()
    }

    #[test]
    fn computed_keys_are_few() {
        let check = |plan: LogicalPlanBuilder, is_planned: bool| {
            let plan = plan.build().unwrap();
            match few_keys(&plan) {
                Ok(()) => assert!(is_planned, "{}", plan.display_indent()),
                Err(error) => assert!(!is_planned && error.kind == ErrorKind::LimitExceeded, "{error}"),
            }
        };
        let none = Vec::<Expr>::new;
        for (count, is_planned) in [(KEYS_MAX, true), (KEYS_MAX + 1, false)] {
            check(row(1).aggregate(sums(count), none()).unwrap(), is_planned);
            let computed = || row(1).project(sums(count)).unwrap();
            check(computed().aggregate(names(count), none()).unwrap(), is_planned);
            check(computed().distinct().unwrap(), is_planned);
            check(computed().distinct_on(names(count), vec![col("c0")], None).unwrap(), is_planned);
            let keys = sums(count).into_iter().map(Expr::unalias).collect();
            check(row(1).distinct_on(keys, vec![col("column1")], None).unwrap(), is_planned);
            // It is enough that either keys or values are few.
            check(computed(), true);
            check(computed().aggregate(names(3), none()).unwrap(), true);
        }
        check(row(1000).distinct().unwrap(), true);
        // Windows count by their partitions and orders; equal ones count once.
        let window = |keys: Vec<Expr>| {
            Expr::from(WindowFunction::new(count_udaf(), vec![col("column1")])).partition_by(keys).build().unwrap()
        };
        let different = |many: usize, width: usize| -> LogicalPlanBuilder {
            (0..many).fold(row(300), |below, n| {
                let keys = (0..width).map(|k| col(format!("column{}", (n * width + k) % 300 + 1)));
                below.window([window(keys.collect()).alias(format!("w{n}"))]).unwrap()
            })
        };
        for (many, width, is_planned) in [
            (WINDOWS_MAX, 1, true),
            (WINDOWS_MAX + 1, 1, false),
            (1, PARTITION_KEYS_MAX, true),
            (1, PARTITION_KEYS_MAX + 1, false),
            (4, KEYS_MAX / 4, true),
            (5, KEYS_MAX / 4, false),
        ] {
            check(different(many, width), is_planned);
        }
        // More windows are allowed side by side than above each other.
        let beside = |parts: usize, many: usize| {
            let more = (1..parts).map(|_| different(many, 1).build().unwrap());
            more.fold(different(many, 1), |all, part| all.union(part).unwrap())
        };
        for (parts, many, is_planned) in
            [(BESIDE_MAX, WINDOWS_MAX, true), (BESIDE_MAX + 1, WINDOWS_MAX, false), (2, WINDOWS_MAX + 1, false)]
        {
            check(beside(parts, many), is_planned);
        }
        let equal = (0..500).map(|n| window(vec![col("column1")]).alias(format!("w{n}")));
        check(row(1).window(equal).unwrap(), true);
        // Sort keys, also those within windows.
        let order = |count: usize| sums(count).into_iter().map(|sum| sum.unalias().sort(true, false));
        let ordered = |count| {
            let ranked = Expr::from(WindowFunction::new(count_udaf(), vec![col("column1")]));
            row(1).window([ranked.order_by(order(count).collect()).build().unwrap()]).unwrap()
        };
        for (count, is_planned) in [(ORDERS_MAX, true), (ORDERS_MAX + 1, false)] {
            check(row(1).sort(order(count)).unwrap(), is_planned);
            check(ordered(count), is_planned);
        }
        check(row(1).project(sums(OUTPUTS_MAX)).unwrap(), true);
        check(row(1).project(sums(OUTPUTS_MAX + 1)).unwrap(), false);
    }
}
