//! Look-ups among outputs and conditions that read the row at hand otherwise than by `=`:
//! `(SELECT … WHERE r.time < t.time ORDER BY … LIMIT 1)`.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArguments, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator, LimitClause,
    Query, Select, SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins, Value, Visit, VisitorMut,
    visit_expressions,
};
use quiver_types::{Error, Result};

use super::super::columns::{called, constraint, factors};
use super::super::expressions::{bare, boolean, call, number, take};
use super::super::lookups::{self, LookUp};
use super::super::{arrays, empty, exists, groupings, queries, rows};
use super::emptied::is_one_group;
use super::reading::{reads_otherwise, reads_within};
use super::{Lateral, Making, gathered, keeps_left, keys_of, windowed};
use crate::names::{alias_of, normal};
use crate::walk::walk_mut;

/// Looks such subqueries up by joins that keep the row. Outputs of groups have a row at hand in their aggregates alone, but
/// for those by which is grouped.
/// Says how many there are.
pub(super) fn translate(select: &mut Select, making: Making<'_>) -> Result<usize> {
    if !has_query(&select.projection) && !has_query(&select.selection) {
        return Ok(0);
    }
    let Some(mut from) = beside_each_other(&select.from) else { return Ok(0) };
    let is_grouped =
        !empty::is_ungrouped(select) || select.having.is_some() || empty::aggregates(select, making.is_aggregate);
    by_places(select);
    let mut finder = Finder { from: &from, making, place: Place::Outputs, aggregates: 0, depth: 0, found: Vec::new() };
    let Select { projection, group_by, selection, .. } = &mut *select;
    for (item, at) in projection.iter_mut().zip(1_usize..) {
        finder.place = if !is_grouped {
            Place::Outputs
        } else if is_key(at, item, group_by) {
            Place::Keys
        } else {
            Place::Groups
        };
        if let ControlFlow::Break(error) = walk_mut(item, &mut finder) {
            return Err(*error);
        }
    }
    finder.place = Place::Conditions;
    if let ControlFlow::Break(error) = walk_mut(selection, &mut finder) {
        return Err(*error);
    }
    let found = finder.found;
    let count = found.len();
    if count > 0 {
        from.joins.extend(found);
        select.from = vec![from];
    }
    Ok(count)
}

/// Whether a part has subqueries in expressions.
fn has_query(part: &impl Visit) -> bool {
    let look = |part: &Expr| match part {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(()),
        Expr::Function(call) if matches!(call.args, FunctionArguments::Subquery(_)) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    visit_expressions(part, look).is_break()
}

/// Tables that stand beside each other as a join of them; none: they may be joined in one order alone.
fn beside_each_other(from: &[TableWithJoins]) -> Option<TableWithJoins> {
    let (first, others) = from.split_first()?;
    let merges = |join: &Join| {
        matches!(constraint(&join.join_operator), Some(JoinConstraint::Using(_) | JoinConstraint::Natural))
    };
    if !others.is_empty() && !from.iter().all(|from| keeps_left(from) && !from.joins.iter().any(merges)) {
        return None;
    }
    let mut all = first.clone();
    for other in others {
        let join_operator = JoinOperator::CrossJoin(JoinConstraint::None);
        all.joins.push(Join { relation: other.relation.clone(), global: false, join_operator });
        all.joins.extend(other.joins.iter().cloned());
    }
    Some(all)
}

/// Names outputs with subqueries by their places where groups are made of them.
fn by_places(select: &mut Select) {
    let Select { projection, group_by: GroupByExpr::Expressions(keys, _), .. } = select else { return };
    for key in keys.iter_mut().filter(|key| has_query(&**key)) {
        let place = projection.iter().zip(1..).find_map(|(item, at)| match item {
            SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. } => {
                (*value == *key).then_some(at)
            }
            _ => None,
        });
        if let Some(place) = place {
            *key = number(place);
        }
    }
}

/// Whether groups are made of an output.
fn is_key(at: usize, item: &SelectItem, group_by: &GroupByExpr) -> bool {
    let GroupByExpr::Expressions(keys, _) = group_by else { return false };
    keys.iter().any(|key| match key {
        Expr::Value(value) => matches!(&value.value, Value::Number(place, _) if *place == at.to_string()),
        Expr::Identifier(name) => alias_of(item).is_some_and(|alias| alias == normal(name)),
        _ => false,
    })
}

/// Where subqueries stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Outputs,
    /// Outputs of groups, and those of which the groups are made.
    Groups,
    Keys,
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
        let is_aggregate = self.making.is_aggregate;
        let mut query = query.clone();
        if query.fetch.as_ref().is_some_and(|fetch| !fetch.with_ties) {
            queries::translate(&mut query)?;
        }
        let (is_first, is_behind) = match &query.limit_clause {
            Some(LimitClause::LimitOffset { limit: Some(Expr::Value(limit)), offset, .. }) => {
                (matches!(&limit.value, Value::Number(rows, _) if rows == "1"), offset.is_some())
            }
            Some(_) => (false, true),
            None => (false, false),
        };
        let SetExpr::Select(select) = &mut *query.body else { return Ok(None) };
        groupings::translate(select)?;
        let has_one = is_first || is_one_group(select, is_aggregate);
        // Of one that may have several there must be one at most.
        let is_list = !has_one && lookups::translate(&mut query, is_aggregate)? == Some(LookUp::List);
        if !has_one && !is_list {
            return Ok(None);
        }
        let SetExpr::Select(select) = &mut *query.body else { return Ok(None) };
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
        let is_planned = matches!(self.place, Place::Outputs | Place::Conditions)
            && !is_behind
            && !(is_first && gathered::is_one(seen))
            && !reads_otherwise(seen.selection.as_ref())
            && !reads_within(seen)
            && !windowed::has(&seen.projection)
            && !gathered::is_misread(seen, is_aggregate);
        if keys.is_empty() || is_planned {
            return Ok(None);
        }
        let alias = Some(TableAlias { explicit: true, name: name.clone(), columns: Vec::new(), at: None });
        let relation = TableFactor::Derived { lateral: true, subquery: Box::new(query), alias, sample: None };
        let join_operator = JoinOperator::LeftOuter(JoinConstraint::On(boolean(true)));
        let join = Join { relation, global: false, join_operator };
        // What does not become a join stays as it is, and is told of.
        if Lateral::of(&join, self.from, self.making, false)?.is_none() {
            return Ok(None);
        }
        let column = Expr::CompoundIdentifier(vec![name.clone(), name]);
        Ok(Some((join, if is_list { call("sole", vec![column]) } else { column })))
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

    /// The same for the list of a query's rows.
    fn list(&self, query: &Query) -> Result<Option<(Join, Expr)>> {
        if rows::items_of(query).is_some() {
            return Ok(None);
        }
        let mut listed = query.clone();
        arrays::listed(&mut listed, self.making.is_aggregate)?;
        // Rows that are joined are in no order.
        let is_around = match (&*query.body, &*listed.body) {
            (SetExpr::Select(own), SetExpr::Select(around)) => own.from != around.from,
            _ => true,
        };
        if is_around && query.order_by.is_some() {
            return Ok(None);
        }
        let found = self.one(&listed)?;
        Ok(found.map(|(join, list)| (join, call("or_empty", vec![list]))))
    }

    fn is_aggregate(&self, part: &Expr) -> bool {
        matches!(part, Expr::Function(call) if call.over.is_none()
            && (!call.within_group.is_empty() || bare(&call.name).is_some_and(|name| (self.making.is_aggregate)(&name))))
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
        if self.depth == 0 {
            lookups::compared(part, self.making.is_aggregate);
            self.aggregates += usize::from(self.is_aggregate(part));
        }
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
            Expr::Function(call) if has_row && bare(&call.name).as_deref() == Some("array") => match &call.args {
                FunctionArguments::Subquery(query) => self.list(query),
                _ => return ControlFlow::Continue(()),
            },
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
