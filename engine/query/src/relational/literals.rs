//! Resolves untyped literals (see [`untyped_literal`](crate::functions::untyped_literal)): a literal becomes a cast to the type that
//! the values beside it require, or a plain text if there is none.

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Cast, Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;

use crate::functions::{text_list, untyped_literal};
use crate::plan_walk::any_expression;

/// The rule. It comes directly after type coercion.
#[derive(Debug)]
pub(crate) struct Literals;

impl AnalyzerRule for Literals {
    fn name(&self) -> &'static str {
        "literals"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_literals(&plan)? {
            return Ok(plan);
        }
        let mut are_all_typed = true;
        let changed = plan.transform_up_with_subqueries(|node| {
            let names = NamePreserver::new(&node);
            let changed = node.map_expressions(|expr| {
                let name = names.save(&expr);
                let changed = expr.transform_down(|e| Ok(read(e, &mut are_all_typed)))?;
                Ok(if changed.transformed { changed.update_data(|e| name.restore(e)) } else { changed })
            })?;
            // A column without a type may have become a text.
            let is_changed = changed.transformed;
            changed.map_data(|node| match node {
                LogicalPlan::Values(rows) if is_changed => LogicalPlanBuilder::values(rows.values)?.build(),
                other => other.recompute_schema(),
            })
        })?;
        if are_all_typed { Ok(changed.data) } else { TypeCoercion::new().analyze(changed.data, options) }
    }
}

fn is_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.name() == untyped_literal::NAME)
}

fn has_literals(plan: &LogicalPlan) -> Result<bool> {
    let mut has_any = false;
    plan.apply_with_subqueries(|node| {
        has_any |= any_expression(node, &is_literal)?;
        Ok(if has_any { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(has_any)
}

/// Replaces a literal by its text with the cast around it; clears the flag if there is no cast.
fn read(expr: Expr, are_all_typed: &mut bool) -> Transformed<Expr> {
    match expr {
        Expr::Cast(Cast { expr: inner, field }) if is_literal(&inner) => {
            let text = written(*inner);
            // A cast of a text to a list would give a list of one item, the text.
            let is_list = matches!(field.data_type(), DataType::List(_) | DataType::LargeList(_));
            let text = if is_list { text_list().call(vec![text]) } else { text };
            Transformed::yes(Expr::Cast(Cast { expr: Box::new(text), field }))
        }
        bare if is_literal(&bare) => {
            *are_all_typed = false;
            Transformed::yes(written(bare))
        }
        other => Transformed::no(other),
    }
}

/// The text within the call.
fn written(call: Expr) -> Expr {
    match call {
        Expr::ScalarFunction(mut call) if call.args.len() == 1 => call.args.remove(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::util::display::{ArrayFormatter, FormatOptions};
    use datafusion::prelude::SessionContext;

    use super::*;

    /// The type and the first value of the only column of a statement.
    async fn first(statement: &str) -> (DataType, String) {
        let context = SessionContext::new();
        context.register_udf(untyped_literal::function().as_ref().clone());
        context.add_analyzer_rule(Arc::new(Literals));
        let planned = context.sql(statement).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
        let batches = planned.collect().await.unwrap_or_else(|e| panic!("{statement}: {e}"));
        let column = batches.iter().find(|batch| batch.num_rows() > 0).expect("a row").column(0);
        let shown = ArrayFormatter::try_new(column, &FormatOptions::default()).unwrap().value(0).to_string();
        (column.data_type().clone(), shown)
    }

    #[tokio::test]
    async fn literals_are_of_the_type_of_the_others() {
        for (statement, kind, expected) in [
            ("select coalesce(x, literal('7')) from (values (cast(null as bigint))) t(x)", DataType::Int64, "7"),
            (
                "select coalesce(x, literal('2024-01-02')) from (values (cast(null as date))) t(x)",
                DataType::Date32,
                "2024-01-02",
            ),
            (
                "select case when x > 5 then x else literal('1.5') end from (values (1.0)) t(x)",
                DataType::Float64,
                "1.5",
            ),
            ("select case when x > 5 then literal('2') else 3 end + 1 from (values (9)) t(x)", DataType::Int64, "3"),
            ("select greatest(literal('10'), 9)", DataType::Int64, "10"),
            ("select x + 1 from (values (literal('5')), (6)) t(x) order by 1", DataType::Int64, "6"),
            ("select max(x) from (select literal('5') as x union all select 40) t", DataType::Int64, "40"),
            (
                "select x from (values (literal('1'))) t(x) union all select 2 from (values (1)) u(y) where y > 1",
                DataType::Int64,
                "1",
            ),
            (
                "select distinct literal('1') as x union all select 2 from (values (1)) u(y) where y > 1",
                DataType::Int64,
                "1",
            ),
            ("select array_element(make_array(literal('1'), 2), 1)", DataType::Int64, "1"),
            // Nothing determines a type, so they are texts.
            ("select literal('5')", DataType::Utf8, "5"),
            ("select x from (values (literal('5'))) t(x)", DataType::Utf8, "5"),
        ] {
            assert_eq!(first(statement).await, (kind, expected.to_owned()), "{statement}");
        }
    }
}
