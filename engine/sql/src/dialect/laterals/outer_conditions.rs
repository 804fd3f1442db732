//! Conditions of right and full joins with correlated subqueries: they decide about rows of both sides, so that they are
//! no filters of one. Nor are those of left joins with tables of the catalog, whose subqueries never become joins. A
//! subquery that reads the rows of one table is a value of that table. It becomes a column of it, which the condition
//! reads.

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins, VisitorMut, WildcardAdditionalOptions,
};
use quiver_types::Result;

use super::super::columns::{ColumnSources, called, constraint_mut, factors};
use super::super::{empty_queries, equality_lookups, row_values, star_fields};
use super::conditions::{asks, columns_read, named_as, outputs_of};
use super::{keys_of, table_of};
use crate::catalog::Catalog;
use crate::names::parts;
use crate::statement_walk::{look_outside_subqueries, walk_mut};

/// A subquery in a condition, and the table that it becomes a column of.
struct TableValue {
    table: String,
    column: Ident,
    value: Expr,
}

/// Makes such subqueries columns. A condition with others stays as it is.
pub(super) fn translate(select: &mut Select, known: ColumnSources<'_>) -> Result<()> {
    let mut all: Vec<TableValue> = Vec::new();
    for nth in 0..select.from.len() {
        for at in 0..select.from[nth].joins.len() {
            let Some((condition, found)) = divided(&select.from[nth], at, known, all.len())? else { continue };
            let Some(tables) = with_columns(select, nth, &found, known)? else { continue };
            for (place, table) in tables {
                if let Some(factor) = star_fields::factors_mut(&mut select.from[nth]).nth(place) {
                    *factor = table;
                }
            }
            let join = &mut select.from[nth].joins[at];
            if let Some(JoinConstraint::On(place)) = constraint_mut(&mut join.join_operator) {
                *place = condition;
            }
            all.extend(found);
        }
    }
    if !all.is_empty() {
        hide(&mut select.projection, &all);
    }
    Ok(())
}

/// A condition that reads columns instead of subqueries, and these; `None` if it has no subqueries, or others.
fn divided(
    from: &TableWithJoins,
    at: usize,
    known: ColumnSources<'_>,
    count: usize,
) -> Result<Option<(Expr, Vec<TableValue>)>> {
    let (condition, is_left) = match &from.joins[at].join_operator {
        JoinOperator::Left(JoinConstraint::On(condition)) | JoinOperator::LeftOuter(JoinConstraint::On(condition)) => {
            (condition, true)
        }
        JoinOperator::Right(JoinConstraint::On(condition))
        | JoinOperator::RightOuter(JoinConstraint::On(condition))
        | JoinOperator::FullOuter(JoinConstraint::On(condition)) => (condition, false),
        _ => return Ok(None),
    };
    if !asks(condition) || (is_left && !is_of_catalog(&from.joins[at].relation, known)) {
        return Ok(None);
    }
    let mut condition = condition.clone();
    let before = TableWithJoins { relation: from.relation.clone(), joins: from.joins[..=at].to_vec() };
    if !row_values::with_tables(&mut condition, std::slice::from_ref(&before), known)? {
        return Ok(None);
    }
    let outer: HashSet<String> = factors(&before).filter_map(called).collect();
    let right = if is_left { called(&from.joins[at].relation) } else { None };
    let mut finder = ValueFinder { outer: &outer, whole: whole(&before), right, count, depth: 0, found: Vec::new() };
    let is_divided = walk_mut(&mut condition, &mut finder).is_continue();
    Ok(is_divided.then_some((condition, finder.found)))
}

/// The tables whose rows are as they were read where the last of some joins is made: no outer join before it has put NULLs
/// in their place.
fn whole(before: &TableWithJoins) -> HashSet<String> {
    let Some((last, others)) = before.joins.split_last() else { return HashSet::new() };
    let mut whole = vec![&before.relation];
    for join in others {
        match &join.join_operator {
            JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_) => whole.push(&join.relation),
            JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => {}
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => whole = vec![&join.relation],
            _ => whole.clear(),
        }
    }
    whole.push(&last.relation);
    whole.into_iter().filter_map(called).collect()
}

/// The tables of a `FROM` that get columns, by their places; `None` if one of them cannot.
fn with_columns(
    select: &Select,
    nth: usize,
    found: &[TableValue],
    known: ColumnSources<'_>,
) -> Result<Option<Vec<(usize, TableFactor)>>> {
    let names: BTreeSet<&str> = found.iter().map(|value| value.table.as_str()).collect();
    let mut tables = Vec::with_capacity(names.len());
    for name in names {
        let mut places = factors(&select.from[nth]).enumerate();
        let place = places.find(|(_, factor)| called(factor).as_deref() == Some(name));
        let Some((place, factor)) = place else { return Ok(None) };
        let columns = columns_read(select, factor, known)?;
        let outputs = match outputs_of(factor, known, columns.as_deref()) {
            Some(outputs) => outputs,
            None if is_of_catalog(factor, known) => "*".to_owned(),
            None => return Ok(None),
        };
        let own = found.iter().filter(|value| value.table == name);
        let values: Vec<String> = own.map(|own| format!("{} AS {}", own.value, own.column)).collect();
        let sql = format!("(SELECT {outputs}, {} FROM {factor})", values.join(", "));
        let Some(table) = named_as(factor, &sql, false) else { return Ok(None) };
        tables.push((place, table));
    }
    Ok(Some(tables))
}

/// Whether a table is one of the catalog, under the names that its columns have.
fn is_of_catalog(factor: &TableFactor, known: ColumnSources<'_>) -> bool {
    let TableFactor::Table { name, args: None, alias, .. } = factor else { return false };
    let named = empty_queries::named(name);
    let is_renamed = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
    !is_renamed && known.common_table(&named).is_none() && Catalog::has(&named)
}

/// Leaves such columns out of `*`.
fn hide(outputs: &mut [SelectItem], all: &[TableValue]) {
    for item in outputs {
        match item {
            SelectItem::Wildcard(options) => leave_out(options, all.iter()),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), options) => {
                let table = parts(of).pop();
                leave_out(options, all.iter().filter(|value| Some(&value.table) == table.as_ref()));
            }
            _ => {}
        }
    }
}

fn leave_out<'v>(options: &mut WildcardAdditionalOptions, values: impl Iterator<Item = &'v TableValue>) {
    let mut names = match options.opt_exclude.take() {
        None => Vec::new(),
        Some(ExcludeSelectItem::Single(name)) => vec![name],
        Some(ExcludeSelectItem::Multiple(names)) => names,
    };
    names.extend(values.map(|value| ObjectName::from(vec![value.column.clone()])));
    options.opt_exclude = (!names.is_empty()).then_some(ExcludeSelectItem::Multiple(names));
}

/// Replaces correlated subqueries of a condition by columns; ends at one that reads rows of several tables, or of one that
/// an outer join may have put NULLs in the place of.
struct ValueFinder<'f> {
    outer: &'f HashSet<String>,
    whole: HashSet<String>,
    /// The table on the right of a left join: the planner takes subqueries that read it, and conditions about others.
    right: Option<String>,
    /// How many columns there are already.
    count: usize,
    /// How many queries enclose the visited place.
    depth: usize,
    found: Vec<TableValue>,
}

impl VisitorMut for ValueFinder<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        let is_value = matches!(place, Expr::Subquery(_));
        let (query, value) = match &*place {
            Expr::Subquery(query) | Expr::Exists { subquery: query, .. } => (query, None),
            Expr::InSubquery { subquery, expr, .. } => (subquery, Some(expr)),
            Expr::AnyOp { left, right, .. } | Expr::AllOp { left, right, .. } => match &**right {
                Expr::Subquery(query) => (query, Some(left)),
                _ => return ControlFlow::Continue(()),
            },
            _ => return ControlFlow::Continue(()),
        };
        if !equality_lookups::reads_row(query) {
            return ControlFlow::Continue(());
        }
        let Some(keys) = keys_of(&mut (**query).clone(), self.outer) else { return ControlFlow::Break(()) };
        let mut read: BTreeSet<String> = keys.iter().filter_map(table_of).collect();
        if let Some(value) = value {
            look_outside_subqueries(&**value, |part| read.extend(table_of(part)));
        }
        let table = match read.pop_first() {
            Some(table) if read.is_empty() && self.whole.contains(&table) => table,
            _ => return ControlFlow::Break(()),
        };
        if self.right.as_ref().is_some_and(|right| !is_value || *right == table) {
            return ControlFlow::Break(());
        }
        // No column of a statement has such a name.
        let column = Ident::with_quote('"', format!("asked {}", self.count + self.found.len() + 1));
        let read = Expr::CompoundIdentifier(vec![Ident::with_quote('"', table.clone()), column.clone()]);
        let value = std::mem::replace(place, read);
        self.found.push(TableValue { table, column, value });
        ControlFlow::Continue(())
    }
}
