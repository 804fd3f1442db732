//! Removes repeated keys from the `ORDER BY` of aggregates: `array_agg(y ORDER BY y, y)`, and `DISTINCT ON (x) … ORDER
//! BY x, y, x`, which becomes an aggregate. DataFusion's grouped aggregates remember the order without the repeated key
//! but are passed it with it, and fail an assertion.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};

use crate::plan_walk::{change_expressions, change_nodes, has_part};

/// Removes repeated keys from a plan. Expressions must have been simplified already, since that may make keys equal.
pub(super) fn left_out(plan: LogicalPlan) -> Result<LogicalPlan> {
    change_nodes(plan, &mut |node| {
        if !has_repeated(&node)? {
            return Ok(Transformed::no(node));
        }
        // Column names contain the order, and must not change.
        change_expressions(node, &mut |e| Ok(without_repeats(e)))
    })
}

fn has_repeated(node: &LogicalPlan) -> Result<bool> {
    let LogicalPlan::Aggregate(aggregate) = node else { return Ok(false) };
    let has = |e: &Expr| matches!(e, Expr::AggregateFunction(call) if repeats(&call.params.order_by));
    for expr in &aggregate.aggr_expr {
        if has_part(expr, &has)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_among(key: &SortExpr, others: &[SortExpr]) -> bool {
    others.iter().any(|other| other.expr == key.expr)
}

fn repeats(order: &[SortExpr]) -> bool {
    order.iter().enumerate().any(|(at, key)| is_among(key, &order[..at]))
}

fn without_repeats(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::AggregateFunction(mut call) if repeats(&call.params.order_by) => {
            let mut order = Vec::new();
            for key in std::mem::take(&mut call.params.order_by) {
                if !is_among(&key, &order) {
                    order.push(key);
                }
            }
            call.params.order_by = order;
            Transformed::yes(Expr::AggregateFunction(call))
        }
        other => Transformed::no(other),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    #[tokio::test]
    async fn what_is_repeated_orders_nothing() {
        let rows = "from (values (1, 2), (1, 1), (2, 5)) as t(x, y)";
        for (outputs, rest, expected) in [
            ("x, array_agg(y order by y, y)", "group by x order by x", ["1|[1, 2]", "2|[5]"]),
            ("x, array_agg(y order by y desc, x, y)", "group by x order by x", ["1|[2, 1]", "2|[5]"]),
            ("x, first_value(y order by y, y desc)", "group by x order by x", ["1|1", "2|5"]),
            ("x, last_value(y order by y, x, y) as l", "group by x order by x", ["1|2", "2|5"]),
            ("distinct on (x) x, y", "order by x, y, x", ["1|1", "2|5"]),
            ("distinct on (x) x, y", "order by x, x, y desc", ["1|2", "2|5"]),
        ] {
            let statement = format!("select {outputs} {rows} {rest}");
            assert_eq!(answered(&statement).await.unwrap(), expected, "{statement}");
        }
    }
}
