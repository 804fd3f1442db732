//! Texts in a list that a boolean is compared with (`is_error IN ('t')`) are read as booleans, those in a list or a
//! `BETWEEN` beside an interval as intervals, and those beside a list as lists (`ids IN ('{1,2}')`), as in PostgreSQL.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable as _, LogicalPlan, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::plan_walk::{any_expression, change_expressions, change_nodes};
use crate::relational::arithmetic::{interval, is_length, list, list_type, truth};

/// The rule. It precedes type coercion, which finds no common type for booleans, intervals or lists and texts.
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
    let is_text = |item: &Expr| matches!(item, Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Utf8View(_), _));
    let has = |e: &Expr| match e {
        Expr::InList(of) => of.list.iter().any(is_text),
        Expr::Between(of) => is_text(&of.low) || is_text(&of.high),
        _ => false,
    };
    any_expression(node, &has)
}

/// Replaces the texts in an `IN` list by booleans, intervals or lists, if the value that is looked for is one, and those of
/// a `BETWEEN` by intervals or lists.
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
        Expr::InList(mut of) => match list_type(&of.expr, schema) {
            Some(kind) => {
                let is_changed = replace(of.list.iter_mut(), |item| list(item, &kind));
                Transformed::new_transformed(Expr::InList(of), is_changed)
            }
            None => Transformed::no(Expr::InList(of)),
        },
        Expr::Between(mut of) => match list_type(&of.expr, schema) {
            Some(kind) => {
                let is_changed = replace([&mut *of.low, &mut *of.high].into_iter(), |item| list(item, &kind));
                Transformed::new_transformed(Expr::Between(of), is_changed)
            }
            None => Transformed::no(Expr::Between(of)),
        },
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
            ("make_array(x, 5) in ('{1,5}', '{3,5}')", vec!["1"]),
            ("make_array(x, 5) not in ('{1,5}')", vec!["2", "NULL"]),
            ("make_array(x, 5) between '{2,5}' and '{2,7}'", vec!["2"]),
        ] {
            let statement = format!("{rows} where {condition} order by x");
            assert_eq!(crate::testing::answered(&statement).await.unwrap(), expected, "{statement}");
        }
    }
}
