//! `x IN (subquery)` in outputs and sort keys. DataFusion plans these as joins only in conditions; here a join below
//! the node that uses the result marks each row with whether the subquery has its value.
//!
//! If the subquery has a NULL, the result for a value that is not found is NULL (unknown). DataFusion respects that
//! only where a whole condition is `x NOT IN (subquery)`. Nested in other expressions (`… OR x NOT IN (…)`, `(x IN (…))
//! IS NULL`) it takes the result for false, so these are marked here, too.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable as _, Filter, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Projection, lit,
    not, when,
};
use datafusion::optimizer::AnalyzerRule;

use crate::plan_walk::{change_nodes, change_parts, has_part};

/// The rule. It follows type coercion.
#[derive(Debug)]
pub(crate) struct InSubqueries;

impl AnalyzerRule for InSubqueries {
    fn name(&self) -> &'static str {
        "in_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut count = 0;
        change_nodes(plan, &mut |node| {
            if let LogicalPlan::Filter(filter) = &node {
                return Ok(match filtered(filter, &mut count)? {
                    Some(made) => Transformed::yes(made),
                    None => Transformed::no(node),
                });
            }
            if !asks(&node) {
                return Ok(Transformed::no(node));
            }
            let exprs = node.expressions();
            if !exprs.iter().map(has_subquery).collect::<Result<Vec<_>>>()?.contains(&true) {
                return Ok(Transformed::no(node));
            }
            let Some(input) = node.inputs().first().copied().cloned() else { return Ok(Transformed::no(node)) };
            let columns = input.schema().columns();
            let names = NamePreserver::new(&node);
            let mut below = input;
            let mut marked_exprs = Vec::with_capacity(exprs.len());
            for expr in exprs {
                let name = names.save(&expr);
                marked_exprs.push(name.restore(marked(expr, &mut below, &mut count)?));
            }
            let is_sort = matches!(node, LogicalPlan::Sort(_));
            let mut made = node.with_new_exprs(marked_exprs, vec![below])?;
            if is_sort {
                made = without_marks(made, columns)?;
            }
            Ok(Transformed::yes(made))
        })
    }
}

/// Nodes whose subqueries become joins here.
fn asks(node: &LogicalPlan) -> bool {
    use LogicalPlan::{Aggregate, Projection, Sort, Window};
    matches!(node, Projection(_) | Sort(_) | Aggregate(_) | Window(_))
}

/// Projects to the columns that were there before, so that the marks are not visible above.
fn without_marks(rows: LogicalPlan, columns: Vec<Column>) -> Result<LogicalPlan> {
    let columns = columns.into_iter().map(Expr::Column).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(rows))?))
}

/// A filter that reads marks; `None` if DataFusion can make the joins for all subqueries.
fn filtered(filter: &Filter, count: &mut usize) -> Result<Option<LogicalPlan>> {
    let parts = split_conjunction_owned(filter.predicate.clone());
    let asks = parts.iter().map(|part| tells_unknown(part, true)).collect::<Result<Vec<_>>>()?;
    if !asks.contains(&true) {
        return Ok(None);
    }
    let columns = filter.input.schema().columns();
    let mut below = filter.input.as_ref().clone();
    let mut conditions = Vec::with_capacity(parts.len());
    for (part, asks) in parts.into_iter().zip(asks) {
        conditions.push(if asks { marked(part, &mut below, count)? } else { part });
    }
    let Some(predicate) = conjunction(conditions) else { return Ok(None) };
    let kept = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(below))?);
    without_marks(kept, columns).map(Some)
}

/// Whether the result of a condition differs if an `IN` is NULL (unknown) instead of false. `is_whole`: it is the
/// whole condition.
fn tells_unknown(condition: &Expr, is_whole: bool) -> Result<bool> {
    match condition {
        Expr::InSubquery(asked) => Ok(asked.negated && !is_whole && asked.subquery.outer_ref_columns.is_empty()),
        Expr::Not(inner) if is_whole && matches!(&**inner, Expr::InSubquery(asked) if !asked.negated) => Ok(false),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            Ok(tells_unknown(left, false)? || tells_unknown(right, false)?)
        }
        other => has_subquery(other),
    }
}

/// Whether an expression contains an `IN` with an uncorrelated subquery.
fn has_subquery(expr: &Expr) -> Result<bool> {
    has_part(expr, &|e| matches!(e, Expr::InSubquery(asked) if asked.subquery.outer_ref_columns.is_empty()))
}

/// Columns with the number of values in the list, and the number of those that are not NULL.
const ALL: &str = "__all";
const KNOWN: &str = "__known";

/// A query of one row with these numbers.
fn counts_of(list: LogicalPlan, value: Expr, alias: &str) -> Result<LogicalPlan> {
    let counts = [count(lit(1)).alias(ALL), count(value).alias(KNOWN)];
    LogicalPlanBuilder::from(list).aggregate(Vec::<Expr>::new(), counts)?.alias(alias)?.build()
}

/// Replaces `IN` by reads of marks, and adds the marks to `rows`.
fn marked(expr: Expr, rows: &mut LogicalPlan, count: &mut usize) -> Result<Expr> {
    let changed = change_parts(expr, &mut |e| {
        let Expr::InSubquery(asked) = &e else { return Ok(Transformed::no(e)) };
        if !asked.subquery.outer_ref_columns.is_empty() {
            return Ok(Transformed::no(e));
        }
        *count += 1;
        let alias = format!("__marked_{count}");
        let list = asked.subquery.subquery.as_ref().clone();
        let list = LogicalPlanBuilder::from(list).alias(alias.clone())?.build()?;
        let value = Expr::Column(Column::from(list.schema().qualified_field(0)));
        let wanted = asked.expr.as_ref().clone();
        let is_nullable = wanted.nullable(rows.schema())?;
        let has_nulls = list.schema().field(0).is_nullable();
        let counted = (is_nullable || has_nulls).then(|| list.clone());
        let same = Expr::eq(wanted.clone(), value.clone());
        *rows = LogicalPlanBuilder::from(rows.clone()).join_on(list, JoinType::LeftMark, [same])?.build()?;
        let mark = Expr::Column(Column::new(Some(alias), "mark"));
        let found = match counted {
            None => mark,
            Some(list) => {
                let counts = format!("__counted_{count}");
                let one = counts_of(list, value, &counts)?;
                // The single row comes first, because a cross join holds its left side.
                *rows = LogicalPlanBuilder::from(one).cross_join(rows.clone())?.build()?;
                let of = |name| Expr::Column(Column::new(Some(counts.clone()), name));
                let mut is_open = of(ALL).gt(of(KNOWN));
                if is_nullable {
                    is_open = is_open.or(wanted.is_null().and(of(ALL).gt(lit(0_i64))));
                }
                let unknown = lit(ScalarValue::Boolean(None));
                when(mark, lit(true)).when(is_open, unknown).otherwise(lit(false))?
            }
        };
        Ok(Transformed::yes(if asked.negated { not(found) } else { found }))
    });
    Ok(changed?.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn rows(statement: &str) -> Vec<String> {
        crate::testing::rows(Arc::new(InSubqueries), statement).await
    }

    #[tokio::test]
    async fn values_are_looked_up_in_outputs_and_orders() {
        for (statement, expected) in [
            (
                "select value, value in (select 2 union all select 3) as f from generate_series(1, 3) order by 1",
                vec!["1|false", "2|true", "3|true"],
            ),
            (
                "select case when value not in (select 2) then 'a' else 'b' end as c from generate_series(1, 2) \
                 order by 1",
                vec!["a", "b"],
            ),
            (
                "select -value as v from generate_series(1, 4) \
                 order by case when value in (select 3) then 0 else 1 end, 1",
                vec!["-3", "-4", "-2", "-1"],
            ),
            (
                "select x, x in (select 1) as f from (values (1), (null), (2)) as t(x) order by x nulls last",
                vec!["1|true", "2|false", "NULL|NULL"],
            ),
            (
                "select value in (select 2) as f, count(*) as n from generate_series(1, 3) group by 1 order by 1",
                vec!["false|2", "true|1"],
            ),
            (
                "select value in (select 2) as a, value in (select 1) as b from generate_series(1, 2) order by 2",
                vec!["true|false", "false|true"],
            ),
            // An unknown value may equal the NULL; in an empty set it cannot be.
            (
                "select x, x in (select y from (values (1), (null)) as u(y)) as f, \
                 x not in (select y from (values (1), (null)) as u(y) where y > 1) as n \
                 from (values (1), (null), (2)) as t(x) order by x nulls last",
                vec!["1|true|true", "2|NULL|true", "NULL|NULL|true"],
            ),
        ] {
            assert_eq!(rows(statement).await, expected, "{statement}");
        }
    }

    #[tokio::test]
    async fn conditions_know_what_is_not_known() {
        let of = |condition: &str| {
            format!(
                "select x from (values (1), (2), (null)) as t(x) where {} order by x nulls last",
                condition.replace("SET", "(select y from (values (1), (null)) as u(y))")
            )
        };
        for (condition, expected) in [
            ("x not in SET or x = 7", vec![]),
            ("x in SET or x = 2", vec!["1", "2"]),
            ("(x in SET) is null", vec!["2", "NULL"]),
            ("(x in SET) is not true and x = 2", vec!["2"]),
            ("case when x not in SET then true else x = 1 end", vec!["1"]),
            ("not (x in SET)", vec![]),
            ("x not in SET", vec![]),
            ("x not in (select 5) or x is null", vec!["1", "2", "NULL"]),
        ] {
            assert_eq!(rows(&of(condition)).await, expected, "{condition}");
        }
        for (statement, expected) in [
            (
                "select g, count(*) as n from (values (1), (2)) as t(g) group by g \
                 having g not in (select y from (values (1), (null)) as u(y)) or g = 1",
                vec!["1|1"],
            ),
            (
                "select count(*) filter (where x not in (select y from (values (1), (null)) as u(y))) as n \
                 from (values (1), (2)) as t(x)",
                vec!["0"],
            ),
        ] {
            assert_eq!(rows(statement).await, expected, "{statement}");
        }
    }
}
