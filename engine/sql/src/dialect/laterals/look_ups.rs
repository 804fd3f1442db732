//! Look-ups among outputs and conditions that read the row at hand otherwise than by `=`:
//! `(SELECT … WHERE r.time < t.time ORDER BY … LIMIT 1)`.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Join, JoinConstraint, JoinOperator, LimitClause, Query, Select, SelectItem, SetExpr,
    TableAlias, TableFactor, TableWithJoins, Value, VisitorMut,
};
use quiver_types::{Error, Result};

use super::super::columns::{called, factors};
use super::super::expressions::{bare, boolean, number, take};
use super::super::{empty, exists};
use super::{Lateral, Making, keys_of, reads_otherwise, windowed};
use crate::walk::walk_mut;

/// Looks such subqueries up by joins that keep the row. Outputs of groups have a row at hand in their aggregates alone.
pub(super) fn translate(select: &mut Select, making: Making<'_>) -> Result<()> {
    let [from] = select.from.as_slice() else { return Ok(()) };
    let is_grouped =
        !empty::is_ungrouped(select) || select.having.is_some() || empty::aggregates(select, making.is_aggregate);
    let place = if is_grouped { Place::Groups } else { Place::Outputs };
    let mut finder = Finder { from, making, place, aggregates: 0, depth: 0, found: Vec::new() };
    if let ControlFlow::Break(error) = walk_mut(&mut select.projection, &mut finder) {
        return Err(*error);
    }
    finder.place = Place::Conditions;
    if let ControlFlow::Break(error) = walk_mut(&mut select.selection, &mut finder) {
        return Err(*error);
    }
    let found = finder.found;
    if let Some(from) = select.from.first_mut() {
        from.joins.extend(found);
    }
    Ok(())
}

/// Where subqueries stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Outputs,
    Groups,
    Conditions,
}

struct Finder<'f> {
    from: &'f TableWithJoins,
    making: Making<'f>,
    place: Place,
    /// Of aggregates around what is visited.
    aggregates: usize,
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
        let has_one = is_first || (empty::is_ungrouped(select) && empty::aggregates(select, self.making.is_aggregate));
        let [item] = select.projection.as_mut_slice() else { return Ok(None) };
        let (SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) = item else {
            return Ok(None);
        };
        // No column of a statement is called so.
        let name = Ident::with_quote('"', format!("value {}", self.found.len() + 1));
        *item = SelectItem::ExprWithAlias { expr: take(value), alias: name.clone() };
        let outer: HashSet<String> = factors(self.from).filter_map(called).collect();
        let mut seen = query.clone();
        let Some(keys) = keys_of(&mut seen, &outer) else { return Ok(None) };
        let SetExpr::Select(seen) = &*seen.body else { return Ok(None) };
        // In aggregates the planner takes none.
        let is_planned = self.place != Place::Groups
            && !reads_otherwise(seen.selection.as_ref())
            && !windowed::has(&seen.projection);
        if !has_one || keys.is_empty() || is_planned {
            return Ok(None);
        }
        let alias = Some(TableAlias { explicit: true, name: name.clone(), columns: Vec::new(), at: None });
        let relation = TableFactor::Derived { lateral: true, subquery: Box::new(query), alias, sample: None };
        let join_operator = JoinOperator::LeftOuter(JoinConstraint::On(boolean(true)));
        let join = Join { relation, global: false, join_operator };
        // What does not become a join stays as it is, and is told of.
        let is_taken = Lateral::of(&join, self.from, self.making, false)?.is_some();
        Ok(is_taken.then(|| (join, Expr::CompoundIdentifier(vec![name.clone(), name]))))
    }

    /// The same for whether a query has rows.
    fn whether(&self, query: &Query, negated: bool) -> Result<Option<(Join, Expr)>> {
        let Some(counting) = exists::counting(query, self.making.is_aggregate)? else { return Ok(None) };
        let found = self.one(&counting)?;
        let op = if negated { BinaryOperator::Eq } else { BinaryOperator::Gt };
        Ok(found.map(|(join, count)| {
            let any = Expr::BinaryOp { left: Box::new(count), op, right: Box::new(number(0)) };
            (join, Expr::Nested(Box::new(any)))
        }))
    }

    fn is_aggregate(&self, part: &Expr) -> bool {
        matches!(part, Expr::Function(call) if call.over.is_none()
            && bare(&call.name).is_some_and(|name| (self.making.is_aggregate)(&name)))
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

    fn pre_visit_expr(&mut self, part: &mut Expr) -> ControlFlow<Self::Break> {
        self.aggregates += usize::from(self.depth == 0 && self.is_aggregate(part));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, part: &mut Expr) -> ControlFlow<Self::Break> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        self.aggregates -= usize::from(self.is_aggregate(part));
        let has_row = self.place != Place::Groups || self.aggregates > 0;
        let found = match &*part {
            Expr::Subquery(query) if has_row => self.one(query),
            // The planner takes those in conditions.
            Expr::Exists { subquery, negated } if has_row && self.place != Place::Conditions => {
                self.whether(subquery, *negated)
            }
            _ => return ControlFlow::Continue(()),
        };
        match found {
            Ok(None) => {}
            Ok(Some((join, value))) => {
                self.found.push(join);
                *part = value;
            }
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }
}
