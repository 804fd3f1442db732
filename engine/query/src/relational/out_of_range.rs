//! Detects constant date arithmetic whose result is out of range. A constant expression that cannot be evaluated stays
//! in the plan, to fail when it is reached. Planning then asks for the bounds of its value, and DataFusion gives lower
//! and upper bound of an out-of-range timestamp different types (one without its time zone), which fails an assertion
//! in debug builds. Since such an expression is an error for every row anyway, it is reported before.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};

/// Refuses such expressions. The plan's constants must have been folded already.
pub(super) fn refuse(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| expr.apply(|e| moved(e).map(|()| TreeNodeRecursion::Continue)))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(plan)
}

fn is_moment(value: &ScalarValue) -> bool {
    matches!(value.data_type(), DataType::Timestamp(_, Some(_))) && !value.is_null()
}

fn is_length(value: &ScalarValue) -> bool {
    matches!(value.data_type(), DataType::Interval(_) | DataType::Duration(_)) && !value.is_null()
}

/// Evaluates a constant time plus or minus a constant interval, to see whether it is in range.
fn moved(expr: &Expr) -> Result<()> {
    let Expr::BinaryExpr(sum) = expr else { return Ok(()) };
    let (Expr::Literal(left, _), Expr::Literal(right, _)) = (&*sum.left, &*sum.right) else { return Ok(()) };
    match sum.op {
        Operator::Plus if (is_moment(left) && is_length(right)) || (is_length(left) && is_moment(right)) => {
            left.add_checked(right).map(|_| ())
        }
        Operator::Minus if is_moment(left) && is_length(right) => left.sub_checked(right).map(|_| ()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use crate::testing::answered;

    #[tokio::test]
    async fn moments_beyond_all_times_are_the_statements_fault() {
        for statement in [
            "select cast(timestamptz '2262-04-11 10:00:00+00' + interval '1000 years' as date)",
            "select cast(interval '1000 years' + timestamptz '2262-04-11 10:00:00+00' as timestamp)",
            "select cast(timestamptz '1800-04-11 10:00:00+00' - interval '1000 years' as timestamp)",
            "select cast(now() - interval '1000 years' as date)",
            "select case when value > 5 then cast(now() + interval '1000 years' as date) end from generate_series(1, 3)",
            "select (select cast(now() + interval '1000 years' as date)), value from generate_series(1, 3)",
        ] {
            let refused = answered(statement).await.expect_err(statement);
            assert_eq!(refused.kind, ErrorKind::Invalid, "{statement}: {refused:?}");
            assert!(refused.message.contains("Timestamp out of range"), "{statement}: {refused}");
        }
        let near = answered("select cast(timestamptz '2024-01-31 10:00:00+00' + interval '1 month' as date)").await;
        assert_eq!(near.unwrap(), ["2024-02-29"]);
        let unknown =
            answered("select cast(timestamptz '2024-01-31 10:00:00+00' + cast(null as interval) as date)").await;
        assert_eq!(unknown.unwrap(), ["NULL"]);
    }
}
