//! Texts in a list that a boolean is compared with (`is_error IN ('t')`) are read as booleans, and those in a list or a
//! `BETWEEN` beside an interval as intervals, as in PostgreSQL.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable as _, LogicalPlan, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::plan_walk::{any_expression, change_expressions, change_nodes};
use crate::relational::arithmetic::{interval, is_length, truth};

/// The rule. It precedes type coercion, which finds no common type for booleans or intervals and texts.
#[derive(Debug)]
pub(crate) struct BooleanTexts;

impl AnalyzerRule for BooleanTexts {
    fn name(&self) -> &'static str {
        "boolean_texts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| {
            if !has_texts(&node)? {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            change_expressions(node, &mut |e| Ok(read(e, &schema)))
        })
    }
}

/// Whether a node has an `IN` list or a `BETWEEN` with such a text.
fn has_texts(node: &LogicalPlan) -> Result<bool> {
    let is_text = |item: &Expr| truth(item).is_some() || interval(item).is_some();
    let has = |e: &Expr| match e {
        Expr::InList(of) => of.list.iter().any(is_text),
        Expr::Between(of) => interval(&of.low).is_some() || interval(&of.high).is_some(),
        _ => false,
    };
    any_expression(node, &has)
}

/// Replaces the texts in an `IN` list by booleans or intervals, if the value that is looked for is one, and those of a
/// `BETWEEN` by intervals.
fn read(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let is_condition = |e: &Expr| e.get_type(schema).is_ok_and(|kind| kind == DataType::Boolean);
    match expr {
        Expr::InList(mut of) if is_condition(&of.expr) => {
            let is_changed = replace(of.list.iter_mut(), |item| truth(item).map(lit));
            Transformed::new_transformed(Expr::InList(of), is_changed)
        }
        Expr::InList(mut of) if is_length(&of.expr, schema) => {
            let is_changed = replace(of.list.iter_mut(), interval);
            Transformed::new_transformed(Expr::InList(of), is_changed)
        }
        Expr::Between(mut of) if is_length(&of.expr, schema) => {
            let is_changed = replace([&mut *of.low, &mut *of.high].into_iter(), interval);
            Transformed::new_transformed(Expr::Between(of), is_changed)
        }
        other => Transformed::no(other),
    }
}

/// Replaces the values that mean something else. Returns whether there were any.
fn replace<'e>(values: impl Iterator<Item = &'e mut Expr>, meant: impl Fn(&Expr) -> Option<Expr>) -> bool {
    let mut is_changed = false;
    for value in values {
        if let Some(other) = meant(value) {
            *value = other;
            is_changed = true;
        }
    }
    is_changed
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, in_list};

    use super::*;

    #[test]
    fn conditions_are_looked_for_among_texts() {
        let schema = DFSchema::empty();
        let holds = || lit(1).eq(lit(1));
        let found = read(in_list(holds(), vec![lit("t"), lit("No"), lit("other")], false), &schema);
        assert_eq!(found.data, in_list(holds(), vec![lit(true), lit(false), lit("other")], false));
        for other in [in_list(lit("x"), vec![lit("t")], false), in_list(holds(), vec![lit("other")], true), col("a")] {
            assert!(!read(other, &schema).transformed);
        }
    }

    #[tokio::test]
    async fn rows_are_chosen_by_what_texts_say() {
        let rows = "select x from (values (1), (2), (null)) as t(x)";
        for (condition, expected) in [
            ("(x = 1) in ('t')", vec!["1"]),
            ("(x = 1) in ('yes', 'false')", vec!["1", "2"]),
            ("(x = 1) not in ('on')", vec!["2"]),
            ("(x = 1) in ('0')", vec!["2"]),
        ] {
            let statement = format!("{rows} where {condition} order by x");
            assert_eq!(crate::testing::answered(&statement).await.unwrap(), expected, "{statement}");
        }
    }
}
