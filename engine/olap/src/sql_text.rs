//! An analytics plan as SQL text: what `/sql` prints, and what `/sql-api` runs with the same result (`olap-api.md` 9).
//!
//! `blocks` merges plan nodes into as few SELECTs as possible; `values` turns literals into parameters. Rows of a model
//! come from its table or SELECT, as the model defines them. DataFusion's own plan printer is used for expressions
//! only: it loses names when a projection is above an aggregate above a join.

mod blocks;
mod statement;
mod values;

use std::collections::HashSet;

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use serde_json::{Value, json};

use crate::error::OlapResult;
use crate::model::catalog::Catalog;
use crate::plan::QueryPlans;
use crate::query::Query;
use blocks::Printer;
pub use statement::print_statement;
pub(crate) use values::{instant_text, marked};

/// A statement with the values of its parameters `$1`, `$2`, ….
#[derive(Debug, Clone, PartialEq)]
pub struct SqlText {
    /// SQL text with `$1`, `$2`, … for values.
    pub text: String,
    /// Values by place.
    pub params: Vec<Value>,
    /// Names of its columns, in the order of [`QueryPlans::columns`].
    pub aliases: Vec<String>,
}

/// Prints a plan.
///
/// # Errors
/// Execution: it has a node or a function that SQL has no words for.
pub fn print(planned: &QueryPlans, catalog: &Catalog) -> OlapResult<SqlText> {
    let mut printer = Printer::new(catalog, &planned.selects, spoken_of(&planned.rows, catalog)?);
    let (text, aliases) = printer.statement(&planned.rows, &planned.columns)?;
    Ok(SqlText { text, params: printer.params.into_values(), aliases })
}

/// The answer of `sql` for one query.
pub fn answer(query: &Query, planned: &QueryPlans, printed: &SqlText) -> Value {
    let order = query.effective_order().into_iter();
    let order: serde_json::Map<String, Value> =
        order.map(|k| (k.id, Value::from(if k.descends { "desc" } else { "asc" }))).collect();
    let names = printed.aliases.iter().cloned().zip(planned.columns.iter().map(|c| Value::from(c.as_str())));
    let time = query.times.iter().find(|t| t.granularity.is_some());
    let time_alias = time.and_then(crate::query::TimeEntry::column).map(|c| alias_of(&c));
    json!({
        "sql": {
            "sql": [printed.text, printed.params],
            "order": order,
            "aliasNameToMember": names.collect::<serde_json::Map<String, Value>>(),
            "timeDimensionAlias": time_alias,
            "timeDimensionField": time.map(|t| t.member.to_string()),
            "dataSource": "default",
            "external": false,
            "cacheKeyQueries": [],
            "preAggregations": [],
        },
        "dataSource": "default",
    })
}

/// Names of all columns that expressions of a plan speak of; what lies below a model is not looked at.
fn spoken_of(plan: &LogicalPlan, catalog: &Catalog) -> OlapResult<HashSet<String>> {
    let mut names = HashSet::new();
    plan.apply_with_subqueries(|node| {
        if blocks::model_of(node, catalog).is_some() {
            return Ok(TreeNodeRecursion::Jump);
        }
        node.apply_expressions(|expr| {
            expr.apply(|e| {
                if let Expr::Column(c) = e {
                    names.insert(c.name.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(names)
}

/// The name of a column for a member: `Spans.startTime.day` is `spans__start_time_day`.
pub(crate) fn alias_of(column: &str) -> String {
    let mut parts = column.trim_start_matches('_').split('.');
    let snake = |part: &str| {
        let mut out = String::new();
        for c in part.chars() {
            if c.is_ascii_uppercase() && !out.is_empty() && !out.ends_with('_') {
                out.push('_');
            }
            out.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
        }
        out
    };
    let first = snake(parts.next().unwrap_or_default());
    let rest: Vec<String> = parts.map(snake).collect();
    if rest.is_empty() { first } else { format!("{first}__{}", rest.join("_")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_columns() {
        for (column, alias) in [
            ("Spans.startTime.day", "spans__start_time_day"),
            ("Services.name", "services__name"),
            ("__aggregate_0", "aggregate_0"),
            ("RumWebVitals.lcpP75", "rum_web_vitals__lcp_p75"),
        ] {
            assert_eq!(alias_of(column), alias);
        }
    }
}
