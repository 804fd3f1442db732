//! Prints the plan of a statement over models. Its outputs keep their names, and those that are members are listed.

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use quiver_query::tables::models::{ModelPlan, OLAP_SCHEMA};
use serde_json::{Map, Value, json};

use super::blocks::Printer;
use super::spoken_of;
use crate::error::OlapResult;
use crate::model::MemberId;
use crate::model::catalog::Catalog;

/// Prints the plan of a statement over models: the answer of `sql` with `format=sql`.
///
/// # Errors
/// Execution: it has a node or a function that SQL has no words for.
pub fn print_statement(planned: &ModelPlan, catalog: &Catalog) -> OlapResult<Value> {
    let mut printer = Printer::new(catalog, &planned.texts, spoken_of(&planned.plan, catalog)?);
    let names: Vec<String> = planned.plan.schema().fields().iter().map(|field| field.name().clone()).collect();
    let text = printer.named(&planned.plan, &names)?;
    Ok(json!({
        "sql": {
            "status": "ok",
            "query_type": "regular",
            "sql": [text, printer.params.into_values()],
            "order": {},
            "aliasNameToMember": members(&planned.plan, catalog)?,
            "timeDimensionAlias": null,
            "timeDimensionField": null,
            "dataSource": "default",
            "external": false,
            "cacheKeyQueries": [],
            "preAggregations": [],
        },
        "dataSource": "default",
    }))
}

/// The members that outputs refer to.
fn members(plan: &LogicalPlan, catalog: &Catalog) -> OlapResult<Map<String, Value>> {
    let mut top = plan;
    let outputs = loop {
        match top {
            LogicalPlan::Projection(node) => break node.expr.iter().zip(node.schema.fields()),
            LogicalPlan::Sort(node) => top = &node.input,
            LogicalPlan::Limit(node) => top = &node.input,
            LogicalPlan::Filter(node) => top = &node.input,
            _ => return Ok(Map::new()),
        }
    };
    let mut members = Map::new();
    for (output, field) in outputs {
        let Some((table, name)) = column(output).and_then(|c| Some((c.relation.clone()?, &c.name))) else { continue };
        plan.apply(|node| {
            let LogicalPlan::SubqueryAlias(alias) = node else { return Ok(TreeNodeRecursion::Continue) };
            if alias.alias.schema() != Some(OLAP_SCHEMA) || alias.alias.table() != table.table() {
                return Ok(TreeNodeRecursion::Continue);
            }
            if let LogicalPlan::Projection(made) = &*alias.input
                && let Some(value) = made.expr.iter().find(|e| e.schema_name().to_string() == *name)
                && let Some(of) = column(value)
                && is_member(&of.name, catalog)
            {
                members.insert(field.name().clone(), of.name.clone().into());
            }
            Ok(TreeNodeRecursion::Stop)
        })?;
    }
    Ok(members)
}

/// The column that an expression is, through aliases and casts.
fn column(expr: &Expr) -> Option<&datafusion::common::Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => column(&alias.expr),
        Expr::Cast(cast) => column(&cast.expr),
        _ => None,
    }
}

/// Whether a name is a member, with or without a granularity.
fn is_member(name: &str, catalog: &Catalog) -> bool {
    let mut parts = name.splitn(3, '.');
    let (Some(model), Some(member)) = (parts.next(), parts.next()) else { return false };
    catalog.find(&MemberId::new(model, member)).is_some()
}
