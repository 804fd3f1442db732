//! Items of a `FROM` that read the current row of the items before them: `unnest` of a column, `LATERAL` with
//! expressions of the row. DataFusion plans such an item as a join, and only if it looks up rows by `=`. An item whose
//! rows are computed from the current row alone needs no join: it is evaluated over the rows of the left side.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result, ScalarValue, UnnestOptions};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;

use crate::plan_walk::{change_nodes, change_parts};

/// The qualifier of the right side's columns while the plan is being built.
const BESIDE: &str = "__beside";

/// The rule. It follows type coercion.
#[derive(Debug)]
pub(crate) struct Lateral;

impl AnalyzerRule for Lateral {
    fn name(&self) -> &'static str {
        "lateral"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| {
            let LogicalPlan::Join(join) = &node else { return Ok(Transformed::no(node)) };
            Ok(match over_left(join)? {
                Some(made) => Transformed::yes(made),
                None => Transformed::no(node),
            })
        })
    }
}

/// A join as a plan over its left side; `None` if the right side is not correlated, or reads other rows as well.
fn over_left(join: &Join) -> Result<Option<LogicalPlan>> {
    let fits = match join.join_type {
        JoinType::Inner => true,
        // Each row of the left side has exactly one on the right.
        JoinType::Left => {
            let holds = |filter: &Expr| matches!(filter, Expr::Literal(ScalarValue::Boolean(Some(true)), _));
            join.on.is_empty() && join.filter.as_ref().is_none_or(holds) && is_one_row(&join.right)
        }
        _ => false,
    };
    if !fits || !reads_row(&join.right) {
        return Ok(None);
    }
    let Some(below) = over(&join.right, &join.left)? else { return Ok(None) };
    let named = (0..join.right.schema().fields().len()).map(|at| {
        let (qualifier, field) = join.right.schema().qualified_field(at);
        own(&below, &join.left, at).alias_qualified(qualifier.cloned(), field.name())
    });
    let exprs: Vec<Expr> = left_columns(&join.left).chain(named).collect();
    let rows = LogicalPlanBuilder::from(below).project(exprs)?;
    let equal = join.on.iter().map(|(a, b)| a.clone().eq(b.clone()));
    let rows = match conjunction(equal.chain(join.filter.clone())) {
        Some(condition) => rows.filter(condition)?,
        None => rows,
    };
    rows.build().map(Some)
}

/// The single input of a node, if a right side may contain such a node.
fn below(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::Subquery(node) => Some(node.subquery.as_ref()),
        LogicalPlan::SubqueryAlias(node) => Some(node.input.as_ref()),
        LogicalPlan::Projection(node) => Some(node.input.as_ref()),
        LogicalPlan::Filter(node) => Some(node.input.as_ref()),
        LogicalPlan::Unnest(node) => Some(node.input.as_ref()),
        _ => None,
    }
}

/// Whether such a node reads the outer row.
fn reads_row(plan: &LogicalPlan) -> bool {
    let mut open = Some(plan);
    while let Some(node) = open {
        if node.contains_outer_reference() {
            return true;
        }
        open = below(node);
    }
    false
}

/// Whether a plan gives one row for each outer row.
fn is_one_row(plan: &LogicalPlan) -> bool {
    let mut open = Some(plan);
    while let Some(node) = open {
        if matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Unnest(_)) {
            return false;
        }
        open = below(node);
    }
    true
}

/// The columns of the left side, which come before all others.
fn left_columns(left: &LogicalPlan) -> impl Iterator<Item = Expr> {
    left.schema().columns().into_iter().map(Expr::Column)
}

/// A column of the right side by index.
fn own(rows: &LogicalPlan, left: &LogicalPlan, at: usize) -> Expr {
    Expr::Column(Column::from(rows.schema().qualified_field(left.schema().fields().len() + at)))
}

/// A right side evaluated over the rows of the left one: the left columns come first, then the right ones in their
/// order. `None` if it reads other rows as well.
fn over(plan: &LogicalPlan, left: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let Some(input) = below(plan) else {
        return Ok(match plan {
            LogicalPlan::EmptyRelation(empty) if empty.produce_one_row => Some(left.clone()),
            _ => None,
        });
    };
    let Some(rows) = over(input, left)? else { return Ok(None) };
    let place = Place { input: input.schema(), rows: &rows, left };
    let made = match plan {
        // Columns are identified by index, so aliases make no difference.
        LogicalPlan::Subquery(_) | LogicalPlan::SubqueryAlias(_) => return Ok(Some(rows)),
        LogicalPlan::Projection(node) => {
            let mut exprs: Vec<Expr> = left_columns(left).collect();
            for (at, expr) in node.expr.iter().enumerate() {
                let Some(expr) = place.of(expr)? else { return Ok(None) };
                exprs.push(expr.unalias().alias_qualified(Some(BESIDE), format!("column {at}")));
            }
            LogicalPlanBuilder::from(rows.clone()).project(exprs)?
        }
        LogicalPlan::Filter(node) => {
            let Some(condition) = place.of(&node.predicate)? else { return Ok(None) };
            LogicalPlanBuilder::from(rows.clone()).filter(condition)?
        }
        LogicalPlan::Unnest(node) => {
            let lists = node.exec_columns.iter().map(|list| place.column(list)).collect::<Result<Vec<_>>>()?;
            let mut options: UnnestOptions = node.options.clone();
            for recursion in &mut options.recursions {
                recursion.input_column = place.column(&recursion.input_column)?;
            }
            LogicalPlanBuilder::from(rows.clone()).unnest_columns_with_options(lists, options)?
        }
        _ => return Ok(None),
    };
    made.build().map(Some)
}

fn is_subquery(expr: &Expr) -> bool {
    use Expr::{Exists, InSubquery, ScalarSubquery, SetComparison};
    matches!(expr, Exists(_) | InSubquery(_) | ScalarSubquery(_) | SetComparison(_))
}

/// Where a node of the right side finds its input columns.
struct Place<'p> {
    /// The input schema of the original node.
    input: &'p DFSchema,
    /// The plan that has these columns now.
    rows: &'p LogicalPlan,
    left: &'p LogicalPlan,
}

impl Place<'_> {
    fn column(&self, column: &Column) -> Result<Column> {
        let at = self.left.schema().fields().len() + self.input.index_of_column(column)?;
        Ok(Column::from(self.rows.schema().qualified_field(at)))
    }

    /// An expression of the node over the new plan; `None` if it reads other rows.
    fn of(&self, expr: &Expr) -> Result<Option<Expr>> {
        let mut is_own = true;
        let changed = change_parts(expr.clone(), &mut |e| {
            Ok(match e {
                Expr::OuterReferenceColumn(_, column) => {
                    is_own &= self.left.schema().has_column(&column);
                    Transformed::yes(Expr::Column(column))
                }
                Expr::Column(column) => Transformed::yes(Expr::Column(self.column(&column)?)),
                other => {
                    is_own &= !is_subquery(&other);
                    Transformed::no(other)
                }
            })
        });
        let changed = changed?.data;
        Ok(is_own.then_some(changed))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    async fn rows(statement: &str) -> Vec<String> {
        crate::testing::rows(Arc::new(Lateral), statement).await
    }

    #[tokio::test]
    async fn rows_are_made_of_the_row_at_hand() {
        let lists = "(values (1, make_array(5, 6)), (2, make_array(7)), (3, null)) as t(id, list)";
        for (from, outputs, expected) in [
            (format!("{lists} cross join unnest(list) as u(v)"), "id, v", vec!["1|5", "1|6", "2|7"]),
            (format!("{lists}, unnest(t.list) as u(v)"), "id, u.v + 1", vec!["1|6", "1|7", "2|8"]),
            (format!("{lists} join unnest(list) as u(v) on v > 5"), "id, v", vec!["1|6", "2|7"]),
            (format!("{lists}, lateral (select id * 2 as id) as u"), "t.id, u.id", vec!["1|2", "2|4", "3|6"]),
            (
                format!("{lists} left join lateral (select t.id + 1 as a) as u on true"),
                "id, a",
                vec!["1|2", "2|3", "3|4"],
            ),
            (
                format!("{lists}, lateral (select t.id + 1 as a) as u, lateral (select u.a * 10 as b) as w"),
                "id, a, b",
                vec!["1|2|20", "2|3|30", "3|4|40"],
            ),
            (format!("{lists}, lateral (select id * 2 as a where id > 1) as u"), "id, a", vec!["2|4", "3|6"]),
        ] {
            let statement = format!("select {outputs} from {from} order by 1, 2");
            assert_eq!(rows(&statement).await, expected, "{statement}");
        }
    }
}
