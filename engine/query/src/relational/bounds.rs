//! What a plan may come to, and where it gives way.
//!
//! Keys: DataFusion asks of each computed value that follows the order of another one (`round(x, 1)`, `date_trunc('day', t)`)
//! how it stands to all others, and nobody can end it while it plans: a `GROUP BY` of a thousand, 12 KB of text, held one of
//! few threads for minutes. Products: each holds a batch of all columns so far, which no budget counts.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coop::CooperativeExec;
use quiver_types::{Error, ErrorKind, Result};

use crate::error::{from_datafusion, of_planning};

/// Most keys of groups, partitions, joins and `DISTINCT` in a statement that computes as many values.
const KEYS_MAX: usize = 256;
/// Most computed values of one select, as in PostgreSQL.
const OUTPUTS_MAX: usize = 1664;

/// Refuses a plan of more.
///
/// # Errors
/// LimitExceeded.
pub(super) fn few_keys(plan: &LogicalPlan) -> Result<()> {
    let (mut keys, mut values) = (0, 0);
    let walked = plan.apply_with_subqueries(|node| {
        keys = keys.max(keys_of(node));
        values = values.max(computed_of(node));
        Ok(TreeNodeRecursion::Continue)
    });
    walked.map_err(of_planning)?;
    let refused = |text: String| Err(Error::new(ErrorKind::LimitExceeded, text));
    if keys > KEYS_MAX && values > KEYS_MAX {
        return refused(format!(
            "rows are told apart by {keys} values, at most {KEYS_MAX} are allowed where as many are computed \
             (`GROUP BY`, `PARTITION BY`, `DISTINCT`, joins, sets)"
        ));
    }
    if values > OUTPUTS_MAX {
        return refused(format!("a select computes {values} values, at most {OUTPUTS_MAX} are allowed"));
    }
    Ok(())
}

/// By how many values a node tells rows apart.
fn keys_of(node: &LogicalPlan) -> usize {
    match node {
        LogicalPlan::Aggregate(aggregate) => keys_in(&aggregate.group_expr).len(),
        LogicalPlan::Distinct(Distinct::All(input)) => input.schema().fields().len(),
        LogicalPlan::Distinct(Distinct::On(distinct)) => distinct.on_expr.len(),
        LogicalPlan::Window(window) => window.window_expr.iter().map(|expr| partitions(expr).len()).max().unwrap_or(0),
        LogicalPlan::Join(join) => join.on.len(),
        _ => 0,
    }
}

/// How many values a node computes.
fn computed_of(node: &LogicalPlan) -> usize {
    match node {
        LogicalPlan::Projection(projection) => computed(&projection.expr),
        LogicalPlan::Aggregate(aggregate) => computed(keys_in(&aggregate.group_expr)).max(aggregate.aggr_expr.len()),
        LogicalPlan::Window(window) => {
            let keys = window.window_expr.iter().map(|expr| computed(partitions(expr)));
            keys.max().unwrap_or(0).max(window.window_expr.len())
        }
        _ => 0,
    }
}

fn computed<'e>(exprs: impl IntoIterator<Item = &'e Expr>) -> usize {
    exprs.into_iter().filter(|expr| is_computed(expr)).count()
}

/// Keys of groups, those of sets once.
fn keys_in(groups: &[Expr]) -> Vec<&Expr> {
    match groups {
        [Expr::GroupingSet(sets)] => sets.distinct_expr(),
        keys => keys.iter().collect(),
    }
}

/// Keys of the partitions of a window.
fn partitions(expr: &Expr) -> &[Expr] {
    match expr {
        Expr::Alias(alias) => partitions(&alias.expr),
        Expr::WindowFunction(call) => &call.params.partition_by,
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

/// Nodes that may give many batches for one that they take, or out of nothing.
const MULTIPLYING: [&str; 10] = [
    "CrossJoinExec",
    "NestedLoopJoinExec",
    "HashJoinExec",
    "SortMergeJoinExec",
    "PiecewiseMergeJoinExec",
    "SymmetricHashJoinExec",
    "UnnestExec",
    "WindowsExec",
    "RecursiveQueryExec",
    "LazyMemoryExec",
];

/// Nodes that put each row of one side beside each of the other, and how many of them a plan may have: each holds a batch of
/// what it gives, of all columns so far, which no budget counts.
const PRODUCTS: [&str; 3] = ["CrossJoinExec", "NestedLoopJoinExec", "PiecewiseMergeJoinExec"];
const PRODUCTS_MAX: usize = 16;

/// Whether a plan gives one row, as subqueries that stand for a value do.
fn gives_one_row(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.downcast_ref::<AggregateExec>() {
        Some(aggregate) => aggregate.group_expr().expr().is_empty(),
        None if MULTIPLYING.contains(&plan.name()) => false,
        None => matches!(plan.children().as_slice(), [one] if gives_one_row(one)),
    }
}

/// Refuses a plan with too many products of tables.
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

/// Lets nodes that multiply rows give way between batches. DataFusion's own rule sees to leaves alone, and a cross join
/// takes from these so seldom that a query would hold its thread long after its deadline.
pub(super) fn giving_way(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let wrapped = plan.transform_up(|node| {
        Ok(if MULTIPLYING.contains(&node.name()) {
            Transformed::yes(Arc::new(CooperativeExec::new(node)) as Arc<dyn ExecutionPlan>)
        } else {
            Transformed::no(node)
        })
    });
    wrapped.map(|wrapped| wrapped.data).map_err(from_datafusion)
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::LogicalPlanBuilder;
    use datafusion::prelude::{col, lit};

    use super::*;

    /// A row of so many plain columns.
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
            // Where one of both is few, all is well.
            check(computed(), true);
            check(computed().aggregate(names(3), none()).unwrap(), true);
        }
        check(row(1000).distinct().unwrap(), true);
        check(row(1).project(sums(OUTPUTS_MAX)).unwrap(), true);
        check(row(1).project(sums(OUTPUTS_MAX + 1)).unwrap(), false);
    }
}
