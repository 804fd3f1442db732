//! Rewrites `NATURAL JOIN` as a join `USING` the common columns, if the columns of both sides are known: the planner
//! would list the columns in the order of the left side, and has no merged value for them.

use datafusion::sql::sqlparser::ast::{Ident, JoinConstraint, ObjectName, Query, SetExpr, TableWithJoins};

use super::columns::{Known, constraint, constraint_mut};

/// Writes out the columns of such joins.
pub(super) fn translate(query: &mut Query, known: &Known<'_>) {
    let mut open = vec![&mut *query.body];
    while let Some(body) = open.pop() {
        match body {
            SetExpr::Select(select) => select.from.iter_mut().for_each(|from| of_joins(from, known)),
            SetExpr::SetOperation { left, right, .. } => open.extend([&mut **left, &mut **right]),
            _ => {}
        }
    }
}

fn of_joins(from: &mut TableWithJoins, known: &Known<'_>) {
    if !from.joins.iter().any(|join| matches!(constraint(&join.join_operator), Some(JoinConstraint::Natural))) {
        return;
    }
    let Some(mut left) = known.of_factor(&from.relation) else { return };
    for join in &mut from.joins {
        let Some(right) = known.of_factor(&join.relation) else { return };
        let both: Vec<ObjectName> = left
            .iter()
            .filter(|column| right.contains(column))
            .map(|column| ObjectName::from(vec![Ident::with_quote('"', column.clone())]))
            .collect();
        let natural = constraint_mut(&mut join.join_operator);
        if let Some(natural) = natural.filter(|natural| matches!(natural, JoinConstraint::Natural))
            && !both.is_empty()
        {
            *natural = JoinConstraint::Using(both);
        }
        let others: Vec<String> = right.into_iter().filter(|column| !left.contains(column)).collect();
        left.extend(others);
    }
}
