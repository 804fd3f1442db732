//! Look-ups among outputs and conditions that read the row at hand otherwise than by `=`:
//! `(SELECT … WHERE r.time < t.time ORDER BY … LIMIT 1)`.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Join, JoinConstraint, JoinOperator, LimitClause, Query, Select, SelectItem, SetExpr, TableAlias,
    TableFactor, TableWithJoins, Value, VisitorMut,
};
use quiver_types::{Error, Result};

use super::super::columns::{called, factors};
use super::super::{boolean, empty, take};
use super::{Lateral, Making, keys_of, reads_otherwise};
use crate::walk::walk_mut;

/// Looks such subqueries up by joins that keep the row. Outputs of groups have no row at hand.
pub(super) fn translate(select: &mut Select, making: Making<'_>) -> Result<()> {
    let [from] = select.from.as_slice() else { return Ok(()) };
    let has_rows =
        empty::is_ungrouped(select) && select.having.is_none() && !empty::aggregates(select, making.is_aggregate);
    let mut finder = Finder { from, making, depth: 0, found: Vec::new() };
    if has_rows && let ControlFlow::Break(error) = walk_mut(&mut select.projection, &mut finder) {
        return Err(*error);
    }
    if let ControlFlow::Break(error) = walk_mut(&mut select.selection, &mut finder) {
        return Err(*error);
    }
    let found = finder.found;
    if let Some(from) = select.from.first_mut() {
        from.joins.extend(found);
    }
    Ok(())
}

struct Finder<'f> {
    from: &'f TableWithJoins,
    making: Making<'f>,
    /// Of queries around what is visited: these have outputs of their own.
    depth: usize,
    found: Vec<Join>,
}

impl Finder<'_> {
    /// The join, and the column that has the value; none: the planner takes the subquery, or nobody does.
    fn one(&self, query: &Query) -> Result<Option<(Join, Expr)>> {
        let mut query = query.clone();
        let is_first = matches!(
            &query.limit_clause,
            Some(LimitClause::LimitOffset { limit: Some(Expr::Value(limit)), .. })
                if matches!(&limit.value, Value::Number(rows, _) if rows == "1")
        );
        let SetExpr::Select(select) = &mut *query.body else { return Ok(None) };
        let has_one = is_first || empty::aggregates(select, self.making.is_aggregate);
        let [item] = select.projection.as_mut_slice() else { return Ok(None) };
        let (SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) = item else {
            return Ok(None);
        };
        let column = Ident::with_quote('"', "value");
        *item = SelectItem::ExprWithAlias { expr: take(value), alias: column.clone() };
        let outer: HashSet<String> = factors(self.from).filter_map(called).collect();
        let mut seen = query.clone();
        let Some(keys) = keys_of(&mut seen, &outer) else { return Ok(None) };
        let SetExpr::Select(seen) = &*seen.body else { return Ok(None) };
        if !has_one || keys.is_empty() || !reads_otherwise(seen.selection.as_ref()) {
            return Ok(None);
        }
        let name = Ident::with_quote('"', format!("value {}", self.found.len() + 1));
        let alias = Some(TableAlias { explicit: true, name: name.clone(), columns: Vec::new(), at: None });
        let relation = TableFactor::Derived { lateral: true, subquery: Box::new(query), alias, sample: None };
        let join_operator = JoinOperator::LeftOuter(JoinConstraint::On(boolean(true)));
        let join = Join { relation, global: false, join_operator };
        // What does not become a join stays as it is, and is told of.
        let is_taken = Lateral::of(&join, self.from, self.making)?.is_some();
        Ok(is_taken.then(|| (join, Expr::CompoundIdentifier(vec![name, column]))))
    }
}

impl VisitorMut for Finder<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Self::Break> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Self::Break> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<Self::Break> {
        let Expr::Subquery(query) = &*place else { return ControlFlow::Continue(()) };
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        match self.one(query) {
            Ok(None) => {}
            Ok(Some((join, value))) => {
                self.found.push(join);
                *place = value;
            }
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }
}
