//! Rewrites `NATURAL JOIN` as a join `USING` the common columns, if the columns of both sides are known: the planner
//! would list the columns in the order of the left side, and has no merged value for them.

use datafusion::sql::sqlparser::ast::{Ident, JoinConstraint, ObjectName, Query, SetExpr, TableFactor, TableWithJoins};
use quiver_types::Result;

use super::columns::{ColumnSources, constraint, constraint_mut};
use super::empty_queries;
use crate::catalog::Catalog;
use crate::error::unsupported;

/// Writes out the columns of such joins.
///
/// # Errors
///
/// Unsupported: a table of telemetry has no fixed column of the other side. It may have such fields, and a product of
/// the two would hide that.
pub(super) fn translate(query: &mut Query, known: &ColumnSources<'_>) -> Result<()> {
    let mut open = vec![&mut *query.body];
    while let Some(body) = open.pop() {
        match body {
            SetExpr::Select(select) => select.from.iter_mut().try_for_each(|from| of_joins(from, known))?,
            SetExpr::SetOperation { left, right, .. } => open.extend([&mut **left, &mut **right]),
            _ => {}
        }
    }
    Ok(())
}

/// Whether the data may give a table more columns than are known.
fn has_fields(factor: &TableFactor, known: &ColumnSources<'_>) -> bool {
    let TableFactor::Table { name, args: None, .. } = factor else { return false };
    let named = empty_queries::named(name);
    known.common_table(&named).is_none() && !Catalog::has(&named) && (known.fixed)(&named).is_some()
}

fn of_joins(from: &mut TableWithJoins, known: &ColumnSources<'_>) -> Result<()> {
    if !from.joins.iter().any(|join| matches!(constraint(&join.join_operator), Some(JoinConstraint::Natural))) {
        return Ok(());
    }
    let Some(mut left) = known.of_factor(&from.relation) else { return Ok(()) };
    let mut is_open = has_fields(&from.relation, known);
    for join in &mut from.joins {
        let Some(right) = known.of_factor(&join.relation) else { return Ok(()) };
        is_open |= has_fields(&join.relation, known);
        let both: Vec<ObjectName> = left
            .iter()
            .filter(|column| right.contains(column))
            .map(|column| ObjectName::from(vec![Ident::with_quote('"', column.clone())]))
            .collect();
        let natural = constraint_mut(&mut join.join_operator);
        if let Some(natural) = natural.filter(|natural| matches!(natural, JoinConstraint::Natural)) {
            if both.is_empty() && is_open {
                return Err(unsupported(
                    "`NATURAL JOIN` of tables without a fixed column in common: name the fields by `USING`",
                ));
            }
            if !both.is_empty() {
                *natural = JoinConstraint::Using(both);
            }
        }
        let others: Vec<String> = right.into_iter().filter(|column| !left.contains(column)).collect();
        left.extend(others);
    }
    Ok(())
}
