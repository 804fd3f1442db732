//! Columns of the outer row as rows, `LATERAL (VALUES ('a', t.a), ('b', t.b))`: for each column its values become a
//! list, and the lists are unnested side by side.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, Query, Select, SelectItem, SetExpr, SetOperator, SetQuantifier,
    TableAliasColumnDef, TableFactor, Value, Visitor,
};

use super::super::expressions::{bare, call};
use super::super::{empty_queries, queries, set_returning_functions};
use crate::statement_walk::walk;

/// Rewrites such rows in a `FROM` as unnested lists.
pub(super) fn translate(select: &mut Select) {
    for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
        let is_taken = match &join.join_operator {
            JoinOperator::CrossJoin(JoinConstraint::None) => true,
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => {
                matches!(constraint, JoinConstraint::On(_))
            }
            // There is always a row, so a left join keeps nothing more than an inner one.
            JoinOperator::Left(JoinConstraint::On(condition))
            | JoinOperator::LeftOuter(JoinConstraint::On(condition)) => {
                matches!(condition, Expr::Value(value) if value.value == Value::Boolean(true))
            }
            _ => false,
        };
        if is_taken && let Some(lists) = lists_of(&join.relation) {
            join.relation = lists;
        }
    }
}

/// The lists for rows that are written out; `None` if the table is another one, or its rows read no outer row.
fn lists_of(factor: &TableFactor) -> Option<TableFactor> {
    let TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None } = factor else {
        return None;
    };
    let Query { with: None, order_by: None, limit_clause: None, fetch: None, .. } = &**subquery else { return None };
    let mut query = (**subquery).clone();
    set_returning_functions::typed(&mut query);
    let names = queries::names_of(&query.body)?;
    let mut found = Vec::new();
    rows_of(&query.body, &mut found)?;
    let is_even = found.iter().all(|row| row.len() == names.len());
    let is_row = found.len() < 2 && !matches!(&*query.body, SetExpr::Values(_));
    let reads = found.iter().flatten().any(set_returning_functions::reads_columns);
    if !is_even || is_row || !reads || walk(&query, &mut Deeper(0)).is_break() {
        return None;
    }
    let mut alias = alias.clone();
    let given = alias.columns.len();
    let column = |name: Ident| TableAliasColumnDef { name, data_type: None };
    alias.columns.extend(names.iter().skip(given).cloned().map(column));
    let list = |at: usize| call("make_array", found.iter().filter_map(|row| row.get(at).cloned()).collect());
    Some(set_returning_functions::unnest(Some(alias), (0..names.len()).map(list).collect(), false))
}

/// Collects the rows of a set; `None` if some come from anything but constants and expressions.
fn rows_of(set: &SetExpr, found: &mut Vec<Vec<Expr>>) -> Option<()> {
    match set {
        SetExpr::Values(values) => found.extend(values.rows.iter().map(|row| row.iter().cloned().collect())),
        SetExpr::SetOperation { op: SetOperator::Union, set_quantifier: SetQuantifier::All, left, right } => {
            rows_of(left, found)?;
            rows_of(right, found)?;
        }
        SetExpr::Select(select) if empty_queries::is_single_row(select) => {
            let value = |item: &SelectItem| match item {
                SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. } => Some(value.clone()),
                _ => None,
            };
            found.push(select.projection.iter().map(value).collect::<Option<Vec<Expr>>>()?);
        }
        _ => return None,
    }
    Some(())
}

/// Stops at anything that is no plain value of the outer row: subqueries, window functions, functions that return
/// rows.
struct Deeper(usize);

impl Visitor for Deeper {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.0 += 1;
        if self.0 > 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn pre_visit_expr(&mut self, part: &Expr) -> ControlFlow<()> {
        match part {
            Expr::Function(function)
                if function.over.is_some()
                    || bare(&function.name).is_some_and(|name| set_returning_functions::gives_rows(&name)) =>
            {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}
