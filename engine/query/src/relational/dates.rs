//! Refuses to mix dates and numbers, as PostgreSQL does. DataFusion would compare a date with a number by its days
//! since 1970, and put both into one column of a `UNION`.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable as _, LogicalPlan, Operator, Union};
use datafusion::optimizer::AnalyzerRule;

/// The rule. It precedes type coercion, which would find a common type for dates and numbers.
#[derive(Debug)]
pub(crate) struct Dates;

impl AnalyzerRule for Dates {
    fn name(&self) -> &'static str {
        "dates"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::Union(union) = node {
                together(union)?;
            }
            let schema = merge_schema(&node.inputs());
            node.apply_expressions(|expr| expr.apply(|e| compared(e, &schema).map(|()| TreeNodeRecursion::Continue)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }
}

fn is_date(kind: &DataType) -> bool {
    matches!(kind, DataType::Date32 | DataType::Date64)
}

/// Whether one of two types is a date and the other one a number.
fn are_apart(left: &DataType, right: &DataType) -> bool {
    (is_date(left) && right.is_numeric()) || (left.is_numeric() && is_date(right))
}

/// Refuses a `UNION` with dates and numbers in one column.
fn together(union: &Union) -> Result<()> {
    let Some((first, others)) = union.inputs.split_first() else { return Ok(()) };
    for other in others {
        for (left, right) in first.schema().fields().iter().zip(other.schema().fields()) {
            let (left, right) = (left.data_type(), right.data_type());
            if are_apart(left, right) {
                return plan_err!("Incompatible inputs for Union: `{left}` and `{right}` are no one type");
            }
        }
    }
    Ok(())
}

/// Refuses a comparison of a date with a number.
fn compared(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let Expr::BinaryExpr(comparison) = expr else { return Ok(()) };
    let op = comparison.op;
    let compares =
        matches!(op, Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq);
    if !compares {
        return Ok(());
    }
    // An expression without a type is reported elsewhere.
    let (Ok(left), Ok(right)) = (comparison.left.get_type(schema), comparison.right.get_type(schema)) else {
        return Ok(());
    };
    if are_apart(&left, &right) {
        return plan_err!("Cannot infer common argument type for comparison operation {left} {op} {right}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    #[tokio::test]
    async fn dates_are_no_numbers() {
        for (statement, said) in [
            ("select date '2024-01-01' = 1", "operation Date32 = Int64"),
            ("select count(*) from (values (date '2024-01-01')) as t(x) where 5.5 < x", "operation Float64 < Date32"),
            ("select 1 as x where exists (select 1 where date '2024-01-01' <> 1)", "operation Date32 != Int64"),
            ("select 1 union select date '2024-01-01'", "`Int64` and `Date32` are no one type"),
            ("select date '2024-01-01' union all select 1.5", "`Date32` and `Float64` are no one type"),
        ] {
            let refused = answered(statement).await.unwrap_err().message;
            assert!(refused.contains(said), "{statement}: {refused}");
        }
        for (statement, expected) in [
            ("select date '2024-01-01' = '2024-01-01'", "true"),
            ("select date '2024-01-01' < timestamp '2024-01-01 01:00:00'", "true"),
            ("select date '2024-01-01' = null", "NULL"),
            ("select date '2024-01-01' union select '2024-01-01'", "2024-01-01"),
            ("select date '2024-01-01' union select null where false", "2024-01-01"),
        ] {
            assert_eq!(answered(statement).await.unwrap(), [expected], "{statement}");
        }
    }
}
