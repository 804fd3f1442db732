//! `LATERAL` subqueries that are correlated otherwise than by `=`, or take some rows for each outer row, such as
//! `LATERAL (SELECT … WHERE r.time < t.time ORDER BY r.time DESC LIMIT 1)`, the latest row before. The planner does
//! not take them. They become joins: the distinct outer values that a subquery reads are joined with its own tables,
//! numbered or grouped by these values, and the result is joined with the outer tables by the same values.

mod conditions;
mod empty_groups;
mod grouped_rows;
mod groups;
mod joinable;
mod names;
mod outer_conditions;
mod outer_references;
mod quantified_comparison;
mod query_builder;
mod scalar_subqueries;
mod values_lists;
mod window_partitions;

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr, Ident, Join, JoinConstraint, JoinOperator, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Subscript, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins,
    Value, Visitor, VisitorMut,
};
use quiver_types::{Error, Result};

use super::columns::{ColumnSources, called, constraint, factors};
use super::expressions::{bare, expr};
use super::star_fields::factors_mut;
use super::{empty_queries, equality_lookups, groupings, queries, windows, with_ties};
use crate::error::unsupported;
use crate::names::normal;
use crate::statement_walk::{walk, walk_mut};
pub(super) use groups::translate as translate_groups;
use outer_references::{gives_beside_table, reads_beside_columns, reads_deeper, reads_otherwise, reads_within};

/// The name of the table of distinct outer values.
const KEYS: &str = "of rows";

/// What is needed to build the join that replaces a subquery.
#[derive(Clone, Copy)]
pub(super) struct LateralContext<'m> {
    pub(super) known: ColumnSources<'m>,
    pub(super) is_aggregate: &'m dyn Fn(&str) -> bool,
}

/// Replaces such subqueries of a `FROM`, and such look-ups, by joins.
pub(super) fn translate(select: &mut Select, making: LateralContext<'_>) -> Result<()> {
    join_listed_laterals(select);
    values_lists::translate(select);
    conditions::turn_right_joins(select);
    outer_conditions::translate(select, making.known)?;
    conditions::translate(select, making.known)?;
    for factor in select.from.iter_mut().flat_map(factors_mut) {
        names::of_row(factor);
        if let TableFactor::Derived { lateral: true, subquery, .. } = factor {
            equality_lookups::unlimited(subquery, making.is_aggregate);
        }
    }
    let looked_up = scalar_subqueries::translate(select, making)?;
    let own = select.from.first().map_or(0, |from| from.joins.len()) - looked_up;
    let mut made = Vec::new();
    let conditions = select.selection.clone();
    for (nth, from) in select.from.iter_mut().enumerate() {
        // Rows that a condition drops need no values.
        let conditions = conditions.as_ref().filter(|_| keeps_left(&from.joins));
        for at in 0..from.joins.len() {
            if !matches!(&from.joins[at].relation, TableFactor::Derived { lateral: true, .. }) {
                continue;
            }
            let before = TableWithJoins { relation: from.relation.clone(), joins: from.joins[..at].to_vec() };
            // A join that replaces a look-up is no table of the statement, so `*` must not show it.
            let origin = if nth > 0 || at < own { JoinOrigin::Statement } else { JoinOrigin::LookUp };
            let Some(found) = Lateral::of(&from.joins[at], &before, making, origin)? else { continue };
            let shown = if origin == JoinOrigin::Statement { found.shown() } else { Vec::new() };
            made.push((found.name.clone(), shown));
            from.joins[at] = found.join(&before, conditions)?;
        }
    }
    if made.is_empty() { Ok(()) } else { without_keys(select, &made) }
}

/// Whether none of some joins is a right or full one, which gives rows without the tables on its left.
fn keeps_left(joins: &[Join]) -> bool {
    let drops = |join: &Join| {
        matches!(&join.join_operator, JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_))
    };
    !joins.iter().any(drops)
}

/// `a, LATERAL (…)` as `a CROSS JOIN LATERAL (…)`.
fn join_listed_laterals(select: &mut Select) {
    let is_lateral = |from: &TableWithJoins| {
        from.joins.is_empty() && matches!(&from.relation, TableFactor::Derived { lateral: true, .. })
    };
    while select.from.get(1).is_some_and(is_lateral) {
        let relation = select.from.remove(1).relation;
        let join_operator = JoinOperator::CrossJoin(JoinConstraint::None);
        select.from[0].joins.push(Join { relation, global: false, join_operator });
    }
}

/// Where a join comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JoinOrigin {
    /// The statement contains it.
    Statement,
    /// It replaces a subquery that is used as a value.
    LookUp,
}

/// A correlated subquery and the outer values that it reads.
struct Lateral<'m> {
    query: Query,
    name: Ident,
    /// The names of its outputs as the outer query sees them.
    given: Vec<String>,
    /// The outer values that it reads.
    keys: Vec<Expr>,
    operator: JoinOperator,
    making: LateralContext<'m>,
}

impl<'m> Lateral<'m> {
    /// Examines a join; `None` if it is no such subquery, or the planner takes it as it is.
    fn of(
        join: &Join,
        before: &TableWithJoins,
        making: LateralContext<'m>,
        origin: JoinOrigin,
    ) -> Result<Option<Self>> {
        let TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None } = &join.relation else {
            return Ok(None);
        };
        let is_known = match &join.join_operator {
            JoinOperator::CrossJoin(JoinConstraint::None) => true,
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint) => matches!(constraint, JoinConstraint::On(_)),
            _ => false,
        };
        let mut query = (**subquery).clone();
        names::all(&mut query);
        names::of_tables(&mut query);
        with_ties(&mut query)?;
        queries::translate(&mut query)?;
        equality_lookups::unlimited(&mut query, making.is_aggregate);
        windows::written_out(&mut query)?;
        change_selects(&mut query, groupings::translate)?;
        let outer: HashSet<String> = factors(before).filter_map(called).collect();
        let Some(keys) = keys_of(&mut query, &outer) else { return Ok(None) };
        let is_own = origin == JoinOrigin::Statement;
        let is_taken = match row_of(&query) {
            Some(row) => !is_own || is_projected(row, &query, &join.join_operator, making),
            None => is_own && is_planned(&query, making),
        };
        if !is_known || is_taken || keys.is_empty() || !joinable::is_plain(&query, making.is_aggregate) {
            return Ok(None);
        }
        let Some(mut given) = making.known.of_query(&query) else { return Err(unsupported(query_builder::STARS)) };
        for (column, renamed) in given.iter_mut().zip(&alias.columns) {
            *column = normal(&renamed.name);
        }
        window_partitions::divide(&mut query, keys.len())?;
        change_selects(&mut query, |select| {
            select.from.iter_mut().flat_map(factors_mut).for_each(outer_references::of_table_before);
            Ok(())
        })?;
        let (name, operator) = (alias.name.clone(), join.join_operator.clone());
        Ok(Some(Self { query, name, given, keys, operator, making }))
    }

    /// Its columns, in the order in which `*` shows them.
    fn shown(&self) -> Vec<SelectItem> {
        let column = |column: &String| {
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(vec![self.name.clone(), Ident::with_quote('"', column)]))
        };
        self.given.iter().map(column).collect()
    }

    /// The join that gives the same rows.
    fn join(self, before: &TableWithJoins, conditions: Option<&Expr>) -> Result<Join> {
        let sql = self.of_query(&self.query, &self.values(&self.needed(before), conditions))?;
        let Expr::Subquery(subquery) = expr(&format!("({sql})"))? else {
            return Err(Error::internal("a join has no subquery"));
        };
        let keys = (1..=self.keys.len()).map(key);
        let column = |name: String| TableAliasColumnDef { name: Ident::with_quote('"', name), data_type: None };
        let columns = self.given.iter().cloned().chain(keys).map(column).collect();
        let alias = Some(TableAlias { explicit: true, name: self.name.clone(), columns, at: None });
        let mut on: Vec<String> = self.same(&self.name.to_string());
        let keeps_left = matches!(self.operator, JoinOperator::Left(_) | JoinOperator::LeftOuter(_));
        if let Some(JoinConstraint::On(other)) = constraint(&self.operator) {
            on.push(format!("({other})"));
        }
        let on = JoinConstraint::On(expr(&on.join(" AND "))?);
        let join_operator = if keeps_left { JoinOperator::LeftOuter(on) } else { JoinOperator::Inner(on) };
        let relation = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
        Ok(Join { relation, global: false, join_operator })
    }

    /// The outer tables up to the last one that the subquery reads. Leaving out later ones is safe: they can only
    /// drop rows, and unneeded values do no harm.
    fn needed(&self, before: &TableWithJoins) -> TableWithJoins {
        let read: HashSet<String> = self.keys.iter().filter_map(table_of).collect();
        let mut needed = before.clone();
        while keeps_left(&before.joins)
            && let Some(last) = needed.joins.pop()
        {
            if called(&last.relation).is_none_or(|name| read.contains(&name)) {
                needed.joins.push(last);
                break;
            }
        }
        needed
    }

    /// A query of the distinct outer values that the subquery reads.
    fn values(&self, before: &TableWithJoins, conditions: Option<&Expr>) -> String {
        let outer: HashSet<String> = factors(before).filter_map(called).collect();
        let mut kept = Vec::new();
        let mut open: Vec<&Expr> = conditions.into_iter().collect();
        while let Some(condition) = open.pop() {
            match condition {
                Expr::BinaryOp { left, op: BinaryOperator::And, right } => open.extend([&**left, &**right]),
                other if is_about(other, &outer) => kept.push(format!("({other})")),
                _ => {}
            }
        }
        let condition = if kept.is_empty() { String::new() } else { format!(" WHERE {}", kept.join(" AND ")) };
        let keys = self.keys.iter().enumerate().map(|(at, value)| format!("{value} AS {}", quoted(&key(at + 1))));
        format!(
            "(SELECT DISTINCT {} FROM {before}{condition}) AS {}",
            keys.collect::<Vec<_>>().join(", "),
            quoted(KEYS)
        )
    }

    /// Conditions that the values of `table` are those of the outer row. NULL equals NULL here.
    fn same(&self, table: &str) -> Vec<String> {
        let same =
            |(at, value): (usize, &Expr)| format!("({table}.{} IS NOT DISTINCT FROM {value})", quoted(&key(at + 1)));
        self.keys.iter().enumerate().map(same).collect()
    }
}

/// The select of a query that reads no table.
fn row_of(query: &Query) -> Option<&Select> {
    match &*query.body {
        SetExpr::Select(select) if select.from.is_empty() => Some(&**select),
        _ => None,
    }
}

/// Whether the planner takes a row without tables as it is: it computes the row beside the outer one, so that this must have
/// exactly one.
fn is_projected(row: &Select, query: &Query, operator: &JoinOperator, making: LateralContext<'_>) -> bool {
    let is_true = |on: &Expr| matches!(on, Expr::Value(value) if value.value == Value::Boolean(true));
    match operator {
        JoinOperator::Left(JoinConstraint::On(on)) | JoinOperator::LeftOuter(JoinConstraint::On(on)) => {
            let has_one = is_true(on) && row.selection.is_none() && query.limit_clause.is_none();
            has_one || row.having.is_some() || empty_queries::aggregates(row, making.is_aggregate)
        }
        _ => true,
    }
}

/// Whether the planner takes a subquery as it is.
fn is_planned(query: &Query, making: LateralContext<'_>) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    let is_half_known = select.having.is_some() && empty_groups::is_one_group(select, making.is_aggregate);
    let is_combined = grouped_rows::is_one(select) || empty_queries::aggregates(select, making.is_aggregate);
    let reads_otherwise = if is_combined { reads_beside_columns } else { reads_otherwise };
    query.limit_clause.is_none()
        && !window_partitions::has(&select.projection)
        && !window_partitions::has(&query.order_by)
        && !reads_otherwise(select.selection.as_ref())
        && !gives_beside_table(select)
        && !reads_within(select)
        && !reads_deeper(select)
        && !is_half_known
        && !grouped_rows::is_misread(select, making.is_aggregate)
}

/// Replaces `WITH TIES` by ranks, and lists the outputs again, which have become `*`.
fn with_ties(query: &mut Query) -> Result<()> {
    if query.fetch.as_ref().is_none_or(|fetch| !fetch.with_ties) {
        return Ok(());
    }
    let names = queries::names_of(&query.body);
    with_ties::translate(query)?;
    if let (Some(names), SetExpr::Select(select)) = (names, &mut *query.body) {
        let item = |name: Ident| SelectItem::ExprWithAlias { expr: Expr::Identifier(name.clone()), alias: name };
        select.projection = names.into_iter().map(item).collect();
    }
    Ok(())
}

/// Changes each select whose rows a query returns (each side of a union).
fn change_selects(query: &mut Query, mut change: impl FnMut(&mut Select) -> Result<()>) -> Result<()> {
    let mut open = vec![&mut *query.body];
    while let Some(body) = open.pop() {
        match body {
            SetExpr::Select(select) => change(select)?,
            SetExpr::SetOperation { left, right, .. } => open.extend([&mut **left, &mut **right]),
            SetExpr::Query(inner) => open.push(&mut *inner.body),
            _ => {}
        }
    }
    Ok(())
}

/// The table that qualifies a column.
fn table_of(column: &Expr) -> Option<String> {
    match column {
        Expr::CompoundIdentifier(name) => name.iter().rev().nth(1).map(normal),
        Expr::CompoundFieldAccess { root, .. } => table_of(root),
        _ => None,
    }
}

fn key(at: usize) -> String {
    format!("key {at}")
}

fn quoted(name: &str) -> String {
    Ident::with_quote('"', name).to_string()
}

/// Whether a condition reads columns of these tables alone, all of them qualified.
fn is_about(condition: &Expr, tables: &HashSet<String>) -> bool {
    struct ConditionCheck<'a> {
        tables: &'a HashSet<String>,
        reads: bool,
    }
    impl Visitor for ConditionCheck<'_> {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let is_fine = match expr {
                Expr::CompoundIdentifier(name) => {
                    self.reads = true;
                    matches!(name.as_slice(), [.., table, _] if self.tables.contains(&normal(table)))
                }
                Expr::Function(call) => bare(&call.name).is_some_and(|name| name != "random"),
                Expr::Identifier(_) => false,
                _ => true,
            };
            if is_fine { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }
    }
    let mut about = ConditionCheck { tables, reads: false };
    walk(condition, &mut about).is_continue() && about.reads
}

/// Whether a value is a named part of a column, such as `t.x['a']`: there are fewer of these than of whole maps and lists.
fn is_member(value: &Expr) -> bool {
    let is_written =
        |access: &AccessExpr| matches!(access, AccessExpr::Subscript(Subscript::Index { index: Expr::Value(_) }));
    matches!(value, Expr::CompoundFieldAccess { root, access_chain }
        if matches!(**root, Expr::CompoundIdentifier(_)) && access_chain.iter().all(is_written))
}

/// The outer values that a query reads, which are replaced by columns of [`KEYS`]; `None` if it also reads other
/// tables.
fn keys_of(query: &mut Query, outer: &HashSet<String>) -> Option<Vec<Expr>> {
    struct TableNameCollector(HashSet<String>);
    impl Visitor for TableNameCollector {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            self.0.extend(called(factor));
            ControlFlow::Continue(())
        }
    }
    struct Reader<'r> {
        own: &'r HashSet<String>,
        outer: &'r HashSet<String>,
        found: Vec<(String, Expr)>,
        /// Whether the visited place has become a key on the way down.
        is_key: bool,
    }
    impl Reader<'_> {
        /// Replaces a value by a key; equal values, by the text `called`, share one.
        fn put(&mut self, place: &mut Expr, called: String) {
            let at = self.found.iter().position(|(known, _)| *known == called);
            let at = at.unwrap_or(self.found.len());
            let words = vec![Ident::with_quote('"', KEYS), Ident::with_quote('"', key(at + 1))];
            let value = std::mem::replace(place, Expr::CompoundIdentifier(words));
            if at == self.found.len() {
                self.found.push((called, value));
            }
        }
    }
    impl VisitorMut for Reader<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
            let is_outer = |table: &String| self.outer.contains(table) && !self.own.contains(table);
            if is_member(place) && table_of(place).as_ref().is_some_and(is_outer) {
                let called = place.to_string();
                self.put(place, called);
                self.is_key = true;
            }
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
            if std::mem::take(&mut self.is_key) {
                return ControlFlow::Continue(());
            }
            let Expr::CompoundIdentifier(name) = &*place else { return ControlFlow::Continue(()) };
            let [.., table, column] = name.as_slice() else { return ControlFlow::Continue(()) };
            let table = normal(table);
            if self.own.contains(&table) {
                return ControlFlow::Continue(());
            }
            if !self.outer.contains(&table) {
                return ControlFlow::Break(());
            }
            let called = format!("{table}.{}", normal(column));
            self.put(place, called);
            ControlFlow::Continue(())
        }
    }
    let mut own = TableNameCollector(HashSet::new());
    let _ = walk(&*query, &mut own);
    let mut reader = Reader { own: &own.0, outer, found: Vec::new(), is_key: false };
    if walk_mut(query, &mut reader).is_break() {
        return None;
    }
    Some(reader.found.into_iter().map(|(_, value)| value).collect())
}

/// Expands `*`, so that the values that are joined by do not become columns of the result.
fn without_keys(select: &mut Select, made: &[(Ident, Vec<SelectItem>)]) -> Result<()> {
    let of = |table: &str| made.iter().find(|(name, _)| normal(name) == table).map(|(_, columns)| columns.clone());
    let mut items = Vec::new();
    for item in std::mem::take(&mut select.projection) {
        match &item {
            SelectItem::Wildcard(options) => {
                let merges = |join: &Join| {
                    matches!(constraint(&join.join_operator), Some(JoinConstraint::Using(_) | JoinConstraint::Natural))
                };
                let names: Option<Vec<String>> = select.from.iter().flat_map(factors).map(called).collect();
                let is_merged = select.from.iter().flat_map(|from| &from.joins).any(merges);
                let Some(names) = names.filter(|_| !is_merged && options.opt_replace.is_none()) else {
                    return Err(unsupported("`*` beside such a `LATERAL` subquery: name the columns"));
                };
                for name in names {
                    let all =
                        || SelectItemQualifiedWildcardKind::ObjectName(vec![Ident::with_quote('"', &name)].into());
                    let own = || vec![SelectItem::QualifiedWildcard(all(), options.clone())];
                    items.extend(of(&name).unwrap_or_else(own));
                }
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                match bare(name).and_then(|name| of(&name)) {
                    Some(columns) => items.extend(columns),
                    None => items.push(item),
                }
            }
            _ => items.push(item),
        }
    }
    select.projection = items;
    Ok(())
}
