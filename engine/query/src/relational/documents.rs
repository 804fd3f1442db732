//! Says what is chosen among documents to be one (`coalesce`, `CASE`), and what lists of documents have. A statement shows
//! some documents by how it is written, and these are marked before it is planned; of columns only their types tell.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable as _, LogicalPlan, LogicalPlanBuilder, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::{Room, is_document, is_json, is_json_list, of_documents, untyped_literal};
use crate::plan_walk::{any_expression, change_expressions, change_nodes};

/// The function that gathers values in a list.
const GATHERING: &str = "array_agg";
/// The function that marks a document.
const KNOWN: &str = "json_known";
/// Functions that give documents to those that put them together, within what one call of a statement stands for.
const PIECES: [&str; 3] = ["json_outer_row", "json_row", "to_json"];

/// The rule. It precedes type coercion, after whose casts types no longer tell.
#[derive(Debug)]
pub(crate) struct Documents {
    known: Arc<ScalarUDF>,
    listed: Arc<ScalarUDF>,
}

impl Documents {
    /// Makes the rule; its functions take memory from `room`.
    pub(crate) fn new(room: &Room) -> Self {
        let of = |name: &str| of_documents(name, room).expect("a function of ours");
        Self { known: of(KNOWN), listed: of("json_known_list") }
    }

    /// An expression, marked if it is a document or a list of some.
    fn marked(&self, expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
        match expr {
            // It has been marked twice: by the statement, and as what is in it.
            Expr::ScalarFunction(mut call) if call.func.name() == KNOWN => match call.args.pop() {
                Some(inner) if is_call(&inner, KNOWN) => Transformed::yes(inner),
                inner => {
                    call.args.extend(inner);
                    Transformed::no(Expr::ScalarFunction(call))
                }
            },
            one if is_choice(&one, schema) => Transformed::yes(self.known.call(vec![one])),
            list if is_list(&list, schema) => Transformed::yes(self.listed.call(vec![list])),
            other => Transformed::no(other),
        }
    }

    /// A node whose columns are marked that are lists of documents: no expression of its own can say so.
    fn gathered(&self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &node else { return Ok(Transformed::no(node)) };
        let schema = aggregate.input.schema();
        let keys = node.schema().fields().len() - aggregate.aggr_expr.len();
        let lists: Vec<bool> = aggregate.aggr_expr.iter().map(|value| gathers(value, schema)).collect();
        if !lists.contains(&true) {
            return Ok(Transformed::no(node));
        }
        let columns = node.schema().iter().enumerate().map(|(at, (table, field))| {
            let column = Expr::Column(Column::new(table.cloned(), field.name()));
            match at.checked_sub(keys).and_then(|at| lists.get(at)) {
                Some(true) => self.listed.call(vec![column]).alias_qualified(table.cloned(), field.name()),
                _ => column,
            }
        });
        let columns: Vec<Expr> = columns.collect();
        LogicalPlanBuilder::from(node).project(columns)?.build().map(Transformed::yes)
    }
}

impl AnalyzerRule for Documents {
    fn name(&self) -> &'static str {
        "documents"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_documents(&plan)? {
            return Ok(plan);
        }
        let mut is_any = false;
        change_nodes(plan, &mut |node| {
            let changed = if any_expression(&node, &may_be)? {
                let schema = merge_schema(&node.inputs());
                change_expressions(node, &mut |expr| Ok(self.marked(expr, &schema)))?
            } else {
                Transformed::no(node)
            };
            is_any |= changed.transformed;
            // What is above tells from the types of the columns below.
            let node = if is_any { changed.data.recompute_schema()? } else { changed.data };
            let gathered = self.gathered(node)?;
            is_any |= gathered.transformed;
            Ok(Transformed::new_transformed(gathered.data, is_any))
        })
    }
}

/// Whether a plan has documents.
fn has_documents(plan: &LogicalPlan) -> Result<bool> {
    let makes = |expr: &Expr| matches!(expr, Expr::ScalarFunction(call) if call.func.name().starts_with("json"));
    let mut has_any = false;
    plan.apply_with_subqueries(|node| {
        has_any = node.schema().fields().iter().any(|field| is_json(field)) || any_expression(node, &makes)?;
        Ok(if has_any { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(has_any)
}

fn is_call(value: &Expr, name: &str) -> bool {
    matches!(value, Expr::ScalarFunction(call) if call.func.name() == name)
}

/// Whether an expression may be marked.
fn may_be(expr: &Expr) -> bool {
    match expr {
        Expr::Case(_) => true,
        Expr::ScalarFunction(call) => {
            matches!(
                call.func.name(),
                "array_element" | "coalesce" | "greatest" | "json_known" | "least" | "make_array" | "nullif"
            )
        }
        _ => false,
    }
}

/// Whether the type of a value says that it is a document.
fn is_one(value: &Expr, schema: &DFSchema) -> bool {
    value.to_field(schema).is_ok_and(|(_, field)| is_json(&field))
}

/// Whether a value takes the type of those beside it, and would be a document.
fn is_open(value: &Expr) -> bool {
    match value {
        Expr::Literal(value, _) if value.is_null() => true,
        Expr::Literal(
            ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)),
            _,
        ) => is_document(text),
        Expr::ScalarFunction(call) if call.func.name() == untyped_literal::NAME => call.args.iter().all(is_open),
        _ => false,
    }
}

/// Whether one of several values is a document, and all others may be.
fn are_all<'v>(values: impl IntoIterator<Item = &'v Expr>, schema: &DFSchema) -> bool {
    let mut is_any = false;
    for value in values {
        let is_one = is_one(value, schema);
        is_any |= is_one;
        if !is_one && !is_open(value) {
            return false;
        }
    }
    is_any
}

/// Whether an expression gives one of several documents.
fn is_choice(value: &Expr, schema: &DFSchema) -> bool {
    match value {
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| &**then);
            are_all(results.chain(case.else_expr.as_deref()), schema)
        }
        Expr::ScalarFunction(call) => match call.func.name() {
            "coalesce" | "greatest" | "least" => are_all(&call.args, schema),
            "nullif" => are_all(call.args.first(), schema),
            "array_element" => call.args.first().is_some_and(|list| is_known_list(list, schema)),
            _ => false,
        },
        _ => false,
    }
}

/// Whether the type of a value says that it is a list of documents.
fn is_known_list(value: &Expr, schema: &DFSchema) -> bool {
    value.to_field(schema).is_ok_and(|(_, field)| is_json_list(&field))
}

/// Whether an expression makes a list of documents.
fn is_list(value: &Expr, schema: &DFSchema) -> bool {
    match value {
        Expr::ScalarFunction(call) => call.func.name() == "make_array" && are_all(&call.args, schema),
        _ => false,
    }
}

/// Whether an aggregate gathers documents.
fn gathers(value: &Expr, schema: &DFSchema) -> bool {
    let value = match value {
        Expr::Alias(alias) => &*alias.expr,
        other => other,
    };
    let Expr::AggregateFunction(call) = value else { return false };
    let is_piece = |item: &Expr| matches!(item, Expr::ScalarFunction(call) if PIECES.contains(&call.func.name()));
    match call.params.args.as_slice() {
        [item] => call.func.name() == GATHERING && !is_piece(item) && is_one(item, schema),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    const OF: &str = r#"(select json_value(column1) as g, json_value(column2) as h, column2 as s
                         from (values ('{"x": 1}', '[2]'), (null, '3'))) as t"#;

    #[tokio::test]
    async fn what_is_made_of_documents_is_known_to_be_some() {
        for (asked, expected) in [
            ("coalesce(g, h)", [r#"{"x": 1}"#, "3"]),
            ("coalesce(g, '{}')", [r#"{"x": 1}"#, "{}"]),
            ("nullif(g, '1')", [r#"{"x": 1}"#, "NULL"]),
            ("case when g is null then h end", ["NULL", "3"]),
            ("case when g is null then '[]' else g end", [r#"{"x": 1}"#, "[]"]),
            ("coalesce(coalesce(g, null), h)", [r#"{"x": 1}"#, "3"]),
            ("json_known(coalesce(g, h))", [r#"{"x": 1}"#, "3"]),
            ("make_array(g, h)", [r#"[{"x": 1},[2]]"#, "[null,3]"]),
            ("make_array(g, h)[1]", [r#"{"x": 1}"#, "NULL"]),
        ] {
            assert_eq!(answered(&format!("select to_json({asked}) from {OF}")).await.unwrap(), expected, "{asked}");
        }
    }

    #[tokio::test]
    async fn gathered_documents_are_known() {
        let gathered = format!("(select array_agg(g) as l, array_agg(s) as s, count(*) as n from {OF}) as u");
        for (asked, expected) in [
            (format!("select to_json(l) from {gathered}"), r#"[{"x": 1},null]"#),
            (format!("select to_json(l[1]), n from {gathered}"), r#"{"x": 1}|2"#),
            (format!("select json_build_object('a', array_agg(h)) from {OF}"), r#"{"a" : [[2],3]}"#),
            (format!("select to_json(array_agg(h)) from {OF} where g is null group by s"), "[3]"),
            (format!("select to_json(s) from {gathered}"), r#"["[2]","3"]"#),
        ] {
            assert_eq!(answered(&asked).await.unwrap(), [expected], "{asked}");
        }
    }

    #[tokio::test]
    async fn texts_among_documents_make_texts() {
        for (asked, expected) in [
            ("coalesce(s, '[]')", [r#""[2]""#, r#""3""#]),
            ("coalesce(g, s)", [r#""{\"x\": 1}""#, r#""3""#]),
            ("coalesce(g, 'none')", [r#""{\"x\": 1}""#, r#""none""#]),
            ("make_array(g, s)", [r#"["{\"x\": 1}","[2]"]"#, r#"[null,"3"]"#]),
        ] {
            assert_eq!(answered(&format!("select to_json({asked}) from {OF}")).await.unwrap(), expected, "{asked}");
        }
    }
}
