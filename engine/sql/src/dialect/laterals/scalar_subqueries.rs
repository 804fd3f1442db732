//! Scalar subqueries in outputs and conditions that are correlated otherwise than by `=`: `(SELECT … WHERE r.time <
//! t.time ORDER BY … LIMIT 1)`.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArguments, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator, LimitClause,
    Query, Select, SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins, Value, VisitorMut,
};
use quiver_types::{Error, Result};

use super::super::columns::{called, constraint, factors};
use super::super::equality_lookups::{self, LookUp};
use super::super::expressions::{bare, boolean, call, number, take};
use super::super::{arrays, empty_queries, exists, groupings, queries, set_returning_functions};
use super::empty_groups::is_one_group;
use super::outer_references::{has_query, reads_beside_columns, reads_deeper, reads_keys, reads_within};
use super::quantified_comparison::Among;
use super::{JoinOrigin, Lateral, LateralContext, grouped_rows, keeps_left, keys_of, window_partitions};
use crate::names::{alias_of, normal};
use crate::statement_walk::{counts_depth, walk_mut};

/// Replaces such subqueries by left joins and returns how many there are. In a select with groups, only arguments of
/// aggregates, in outputs and the `HAVING`, and expressions that are grouping keys have an outer row.
pub(super) fn translate(select: &mut Select, making: LateralContext<'_>) -> Result<usize> {
    if !has_query(&select.projection) && !has_query(&select.selection) && !has_query(&select.having) {
        return Ok(0);
    }
    let Some(mut from) = beside_each_other(&select.from) else { return Ok(0) };
    let is_grouped = !empty_queries::is_ungrouped(select)
        || select.having.is_some()
        || empty_queries::aggregates(select, making.is_aggregate);
    by_places(select);
    let mut finder = Finder::new(&from, making);
    let Select { projection, group_by, selection, having, .. } = &mut *select;
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
    finder.place = Place::Groups;
    if let ControlFlow::Break(error) = walk_mut(having, &mut finder) {
        return Err(*error);
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

/// Combines the comma-separated tables of a `FROM` into one join; `None` if they can be joined in one order only.
fn beside_each_other(from: &[TableWithJoins]) -> Option<TableWithJoins> {
    let (first, others) = from.split_first()?;
    let merges = |join: &Join| {
        matches!(constraint(&join.join_operator), Some(JoinConstraint::Using(_) | JoinConstraint::Natural))
    };
    if !others.is_empty() && !from.iter().all(|from| keeps_left(&from.joins) && !from.joins.iter().any(merges)) {
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

/// Replaces grouping keys that are outputs with subqueries by the positions of these outputs.
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

/// Whether an output is a grouping key.
pub(super) fn is_key(at: usize, item: &SelectItem, group_by: &GroupByExpr) -> bool {
    let GroupByExpr::Expressions(keys, _) = group_by else { return false };
    keys.iter().any(|key| match key {
        Expr::Value(value) => matches!(&value.value, Value::Number(place, _) if *place == at.to_string()),
        Expr::Identifier(name) => alias_of(item).is_some_and(|alias| alias == normal(name)),
        _ => false,
    })
}

/// Where in the select a subquery is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Outputs,
    /// The `HAVING`, and outputs that are no grouping keys: only arguments of aggregates have an outer row.
    Groups,
    Keys,
    Conditions,
}

struct Finder<'f> {
    from: &'f TableWithJoins,
    making: LateralContext<'f>,
    place: Place,
    /// How many enclosing calls are aggregates, and how many are window functions.
    aggregates: usize,
    windows: usize,
    /// How many enclosing expressions, the visited one included, are something other than `AND`, `OR` and parentheses.
    parts: usize,
    /// How many queries enclose the visited place: they have outputs of their own.
    depth: usize,
    /// Subqueries that are read as sets (`IN`, `ANY`), and not as values.
    sets: HashSet<*const Query>,
    found: Vec<Join>,
}

/// When a subquery becomes a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JoinNeed {
    /// If the planner does not take it as it is.
    Unplanned,
    Always,
}

impl<'f> Finder<'f> {
    fn new(from: &'f TableWithJoins, making: LateralContext<'f>) -> Self {
        let (aggregates, windows, parts, depth) = (0, 0, 0, 0);
        let (sets, found) = (HashSet::new(), Vec::new());
        Self { from, making, place: Place::Outputs, aggregates, windows, parts, depth, sets, found }
    }

    /// The join and the column that holds the value; `None` if it cannot be joined, or need not be.
    fn joined_value(&self, query: &Query, need: JoinNeed) -> Result<Option<(Join, Expr)>> {
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
        // A query that may return several rows becomes a list, which must have one item at most.
        let is_list = !has_one && equality_lookups::translate(&mut query, is_aggregate)? == Some(LookUp::List);
        if !has_one && !is_list {
            return Ok(None);
        }
        let SetExpr::Select(select) = &mut *query.body else { return Ok(None) };
        let [item] = select.projection.as_mut_slice() else { return Ok(None) };
        let (SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) = item else {
            return Ok(None);
        };
        // No column of a statement has such a name.
        let name = Ident::with_quote('"', format!("value {}", self.found.len() + 1));
        *item = SelectItem::ExprWithAlias { expr: take(value), alias: name.clone() };
        let Some(seen) = self.seen(&query) else { return Ok(None) };
        let is_ordered_by_row = reads_keys(&seen.order_by);
        let SetExpr::Select(seen) = &*seen.body else { return Ok(None) };
        // The planner takes no subqueries in aggregates and window functions.
        let is_first_of_one = is_first && grouped_rows::is_one(seen);
        let is_planned = matches!(self.place, Place::Outputs | Place::Conditions)
            && self.windows == 0
            && !is_behind
            && !is_first_of_one
            && !reads_beside_columns(seen.selection.as_ref())
            && !is_ordered_by_row
            && !reads_keys(&seen.projection)
            && !reads_keys(&seen.having)
            && !reads_within(seen)
            && !reads_deeper(seen)
            && !window_partitions::has(&seen.projection)
            && !grouped_rows::is_misread(seen, is_aggregate);
        if is_planned && need == JoinNeed::Unplanned {
            return Ok(None);
        }
        let alias = Some(TableAlias { explicit: true, name: name.clone(), columns: Vec::new(), at: None });
        let relation = TableFactor::Derived { lateral: true, subquery: Box::new(query), alias, sample: None };
        let join_operator = JoinOperator::LeftOuter(JoinConstraint::On(boolean(true)));
        let join = Join { relation, global: false, join_operator };
        // A subquery that cannot become a join stays; it is refused later.
        if Lateral::of(&join, self.from, self.making, JoinOrigin::LookUp)?.is_none() {
            return Ok(None);
        }
        let column = Expr::CompoundIdentifier(vec![name.clone(), name]);
        Ok(Some((join, if is_list { call("sole", vec![column]) } else { column })))
    }

    /// A query and the outer values that it reads; `None` if it reads none, or also reads tables further out.
    fn seen(&self, query: &Query) -> Option<Query> {
        let outer: HashSet<String> = factors(self.from).filter_map(called).collect();
        let mut seen = query.clone();
        let keys = keys_of(&mut seen, &outer)?;
        (!keys.is_empty()).then_some(seen)
    }

    /// Whether a condition about a query is one that the planner cannot turn into a join: the outer row is read in
    /// nested parts, or the query has a limit.
    fn must_be_joined(&self, query: &Query) -> bool {
        let Some(seen) = self.seen(query) else { return false };
        let SetExpr::Select(select) = &*seen.body else { return true };
        seen.limit_clause.is_some() || seen.fetch.is_some() || reads_within(select) || reads_deeper(select)
    }

    /// Like [`Self::joined_value`] for `EXISTS`.
    fn joined_exists(&self, query: &Query, negated: bool) -> Result<Option<(Join, Expr)>> {
        let query = exists::unlimited(query)?;
        let is_condition = self.place == Place::Conditions;
        if is_condition && !self.must_be_joined(&query) {
            return Ok(None);
        }
        let counting = match exists::counting(&query, self.making.is_aggregate)? {
            Some(counting) => counting,
            None => exists::counting_around(&query)?,
        };
        let need = if is_condition { JoinNeed::Always } else { JoinNeed::Unplanned };
        let found = self.joined_value(&counting, need)?;
        let op = if negated { BinaryOperator::Eq } else { BinaryOperator::Gt };
        Ok(found.map(|(join, count)| {
            let any = Expr::BinaryOp { left: Box::new(count), op, right: Box::new(number(0)) };
            (join, Expr::Nested(Box::new(any)))
        }))
    }

    /// Like [`Self::joined_value`] for a value that is compared with the rows of a query.
    fn joined_comparison(&self, part: &Expr, is_whole: bool) -> Result<Option<(Join, Expr)>> {
        let Some(among) = Among::of(part) else { return Ok(None) };
        // The planner joins `IN` if it is a condition by itself.
        let is_condition = self.place == Place::Conditions && is_whole && among.is_in();
        if is_condition && !self.must_be_joined(among.query) {
            return Ok(None);
        }
        match among.value(self.from, self.making)? {
            Some(query) => self.joined_value(&query, JoinNeed::Always),
            None => Ok(None),
        }
    }

    /// Like [`Self::joined_value`] for `ARRAY(SELECT …)`.
    fn joined_list(&self, query: &Query) -> Result<Option<(Join, Expr)>> {
        if set_returning_functions::items_of(query).is_some() {
            return Ok(None);
        }
        let mut listed = query.clone();
        // A join does not keep the order of rows.
        if !arrays::listed(&mut listed, self.making.is_aggregate)? {
            return Ok(None);
        }
        let found = self.joined_value(&listed, JoinNeed::Unplanned)?;
        Ok(found.map(|(join, list)| (join, call("or_empty", vec![list]))))
    }

    fn is_aggregate(&self, part: &Expr) -> bool {
        matches!(part, Expr::Function(call) if call.over.is_none()
            && (!call.within_group.is_empty() || bare(&call.name).is_some_and(|name| (self.making.is_aggregate)(&name))))
    }
}

fn is_window(part: &Expr) -> bool {
    matches!(part, Expr::Function(call) if call.over.is_some())
}

/// Whether an expression is an `AND`, an `OR` or in parentheses.
fn is_logical(part: &Expr) -> bool {
    let is_joint = |op: &BinaryOperator| matches!(op, BinaryOperator::And | BinaryOperator::Or);
    matches!(part, Expr::Nested(_)) || matches!(part, Expr::BinaryOp { op, .. } if is_joint(op))
}

impl VisitorMut for Finder<'_> {
    type Break = Box<Error>;

    counts_depth!();

    fn pre_visit_expr(&mut self, part: &mut Expr) -> ControlFlow<Self::Break> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        exists::always(part, self.making.is_aggregate);
        equality_lookups::compared(part, self.making.is_aggregate);
        self.aggregates += usize::from(self.is_aggregate(part));
        self.windows += usize::from(is_window(part));
        self.parts += usize::from(!is_logical(part));
        if let Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } = &*part
            && let Expr::Subquery(query) = &**right
        {
            self.sets.insert(std::ptr::from_ref(&**query));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, part: &mut Expr) -> ControlFlow<Self::Break> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        self.aggregates -= usize::from(self.is_aggregate(part));
        self.windows -= usize::from(is_window(part));
        let is_whole = self.parts == 1;
        self.parts -= usize::from(!is_logical(part));
        if self.place == Place::Groups && self.aggregates == 0 {
            return ControlFlow::Continue(());
        }
        let found = match &*part {
            Expr::Subquery(query) if self.sets.remove(&std::ptr::from_ref(&**query)) => Ok(None),
            Expr::Subquery(query) => self.joined_value(query, JoinNeed::Unplanned),
            Expr::Exists { subquery, negated } => self.joined_exists(subquery, *negated),
            Expr::InSubquery { .. } | Expr::AnyOp { .. } | Expr::AllOp { .. } => self.joined_comparison(part, is_whole),
            Expr::Function(call) if bare(&call.name).as_deref() == Some("array") => match &call.args {
                FunctionArguments::Subquery(query) => self.joined_list(query),
                _ => Ok(None),
            },
            _ => Ok(None),
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
