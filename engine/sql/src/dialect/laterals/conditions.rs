//! Join conditions with correlated subqueries, which the planner takes only in a `WHERE`. The condition of an inner
//! join moves there, unless a right or full join follows. The condition of a left join, and of other inner ones, becomes a
//! filter of the table on its right, as does one of a left join that searches values of the left side in a subquery. A
//! right join that comes first is a left one of the other side; other right and full joins are refused, where the
//! subquery has not become a column of one table. Full joins search other subqueries as lists.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, JoinConstraint, JoinOperator, Select, SelectItem, SelectItemQualifiedWildcardKind,
    TableAlias, TableFactor, TableWithJoins, Visitor,
};
use quiver_types::Result;

use super::super::columns::{ColumnSources, called, constraint};
use super::super::expressions::{boolean, expr, take};
use super::super::operators::binary;
use super::super::{empty_queries, equality_lookups, row_values, star_fields};
use super::{keeps_left, quoted, table_of};
use crate::catalog::Catalog;
use crate::error::unsupported;
use crate::names::{normal, parts};
use crate::statement_walk::{change_outside_subqueries, has_expression, look_outside_subqueries, walk};

/// Error text for a condition that reads the row at hand and stays where the planner does not take it.
const ASKING: &str = "a subquery that reads the row at hand is supported in the `ON` of inner and left joins, of columns that \
                      have their table before them, and in that of right and full ones where it reads one table that no outer \
                      join before them has put NULLs in the place of: compute it among the outputs of a subquery, and join by \
                      its result";

/// Moves such conditions to where the planner, or a look-up, takes them.
///
/// # Errors
/// Unsupported: a correlated one stays, in a `FROM` with right or full joins.
pub(super) fn translate(select: &mut Select, known: ColumnSources<'_>) -> Result<()> {
    let columns = columns_of_joins(select, known)?;
    let mut moved = Vec::new();
    for (nth, from) in select.from.iter_mut().enumerate() {
        let keeps_all = keeps_left(&from.joins);
        for at in 0..from.joins.len() {
            let condition = constraint(&from.joins[at].join_operator);
            if !matches!(condition, Some(JoinConstraint::On(condition)) if asks(condition) || searches(condition)) {
                continue;
            }
            let before = TableWithJoins { relation: from.relation.clone(), joins: from.joins[..=at].to_vec() };
            // A `WHERE` would drop rows that a later right or full join adds.
            let is_kept = keeps_left(&from.joins[at + 1..]);
            let join = &mut from.joins[at];
            let is_inner = matches!(join.join_operator, JoinOperator::Join(_) | JoinOperator::Inner(_));
            match &mut join.join_operator {
                JoinOperator::Join(JoinConstraint::On(condition))
                | JoinOperator::Inner(JoinConstraint::On(condition))
                    if is_kept && asks(condition) =>
                {
                    let (asking, others): (Vec<Expr>, Vec<Expr>) =
                        parts_of(take(condition)).into_iter().partition(asks);
                    *condition = all(others);
                    moved.extend(asking);
                }
                JoinOperator::Left(JoinConstraint::On(condition))
                | JoinOperator::LeftOuter(JoinConstraint::On(condition))
                | JoinOperator::Join(JoinConstraint::On(condition))
                | JoinOperator::Inner(JoinConstraint::On(condition)) => {
                    let mut own = condition.clone();
                    let is_named = row_values::with_tables(&mut own, std::slice::from_ref(&before), known)?;
                    let (asks, is_searching) = (asks(&own), !is_inner && searches_left(&own, &join.relation));
                    if (is_inner && is_kept) || !(asks || is_searching) {
                        continue;
                    }
                    let columns = columns.get(&(nth, at)).map(Vec::as_slice);
                    if let Some(table) = within(&join.relation, &own, known, columns).filter(|_| is_named) {
                        join.relation = table;
                        *condition = boolean(true);
                    } else if asks && !keeps_all {
                        return Err(unsupported(ASKING));
                    }
                }
                JoinOperator::Right(JoinConstraint::On(condition))
                | JoinOperator::RightOuter(JoinConstraint::On(condition))
                | JoinOperator::FullOuter(JoinConstraint::On(condition))
                    if asks(condition) =>
                {
                    return Err(unsupported(ASKING));
                }
                JoinOperator::FullOuter(JoinConstraint::On(condition)) => as_lists(condition)?,
                _ => {}
            }
        }
    }
    if !moved.is_empty() {
        moved.extend(select.selection.take());
        select.selection = Some(all(moved));
    }
    Ok(())
}

/// Turns right joins with such a condition into left ones. A `*` would show the other side first.
pub(super) fn turn_right_joins(select: &mut Select) {
    if select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_))) {
        return;
    }
    for from in &mut select.from {
        let Some(join) = from.joins.first_mut() else { continue };
        let (JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint)) = &mut join.join_operator else {
            continue;
        };
        if matches!(constraint, JoinConstraint::On(condition) if asks(condition)) {
            let constraint = std::mem::replace(constraint, JoinConstraint::None);
            join.join_operator = JoinOperator::LeftOuter(constraint);
            std::mem::swap(&mut from.relation, &mut join.relation);
        }
    }
}

/// For each join with such a condition whose right side may become a filter, by its place, the columns that are read of
/// a table of telemetry there.
fn columns_of_joins(select: &Select, known: ColumnSources<'_>) -> Result<HashMap<(usize, usize), Vec<String>>> {
    let mut found = HashMap::new();
    for (nth, from) in select.from.iter().enumerate() {
        for (at, join) in from.joins.iter().enumerate() {
            let is_one = match &join.join_operator {
                JoinOperator::Left(JoinConstraint::On(condition))
                | JoinOperator::LeftOuter(JoinConstraint::On(condition)) => asks(condition) || searches(condition),
                JoinOperator::Join(JoinConstraint::On(condition))
                | JoinOperator::Inner(JoinConstraint::On(condition)) => {
                    asks(condition) && !keeps_left(&from.joins[at + 1..])
                }
                _ => false,
            };
            if is_one && let Some(columns) = columns_read(select, &join.relation, known)? {
                found.insert((nth, at), columns);
            }
        }
    }
    Ok(found)
}

/// The fixed columns of a table of telemetry and the fields that a select reads of it; `None` if it is another table, or
/// a `*` would show the fields.
pub(super) fn columns_read(
    select: &Select,
    factor: &TableFactor,
    known: ColumnSources<'_>,
) -> Result<Option<Vec<String>>> {
    let TableFactor::Table { name: table, args: None, alias, .. } = factor else { return Ok(None) };
    let named = empty_queries::named(table);
    let is_renamed = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
    if is_renamed || known.common_table(&named).is_some() || Catalog::has(&named) {
        return Ok(None);
    }
    let (Some(name), Some(fixed)) = (called(factor), (known.fixed)(&named)) else { return Ok(None) };
    let mut read = star_fields::names(select, None);
    read.extend(qualified(select));
    let mut fields = BTreeSet::new();
    for column in &read {
        let (owner, column) = match column.as_slice() {
            [column] => {
                let mut value = Expr::Identifier(Ident::with_quote('"', column));
                row_values::with_tables(&mut value, &select.from, known)?;
                (table_of(&value), column)
            }
            [.., table, column] => (Some(table.clone()), column),
            [] => continue,
        };
        if owner.as_ref() == Some(&name) && !fixed.contains(column) {
            fields.insert(column.clone());
        }
    }
    let shows = |item: &SelectItem| match item {
        SelectItem::Wildcard(_) => true,
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), _) => {
            parts(of).pop().as_ref() == Some(&name)
        }
        _ => false,
    };
    if !fields.is_empty() && select.projection.iter().any(shows) {
        return Ok(None);
    }
    Ok(Some(fixed.into_iter().chain(fields).collect()))
}

/// The qualified names of columns in a select and its subqueries.
fn qualified(select: &Select) -> BTreeSet<Vec<String>> {
    struct QualifiedNameCollector(BTreeSet<Vec<String>>);
    impl Visitor for QualifiedNameCollector {
        type Break = ();

        fn pre_visit_expr(&mut self, part: &Expr) -> ControlFlow<()> {
            if let Expr::CompoundIdentifier(name) = part {
                self.0.insert(name.iter().map(normal).collect());
            }
            ControlFlow::Continue(())
        }
    }
    let mut found = QualifiedNameCollector(BTreeSet::new());
    let _ = walk(select, &mut found);
    found.0
}

/// Whether a condition contains an `IN` with a subquery.
fn searches(condition: &Expr) -> bool {
    has_expression(condition, |part| matches!(part, Expr::InSubquery { .. }))
}

/// Puts `x IN (SELECT …)` as `x = ANY (ARRAY(SELECT …))`: the planner takes no `IN` in the condition of a full join, whose rows
/// it must not drop.
fn as_lists(condition: &mut Expr) -> Result<()> {
    change_outside_subqueries(condition, |part| {
        let Expr::InSubquery { expr: value, subquery, negated } = &*part else { return Ok(()) };
        if !matches!(&**value, Expr::Tuple(_)) {
            let comparison = if *negated { "<> ALL" } else { "= ANY" };
            *part = expr(&format!("({value}) {comparison} (ARRAY({subquery}))"))?;
        }
        Ok(())
    })
}

/// Whether a condition of a left join searches values that are not of the table on its right alone: the planner takes
/// no others.
fn searches_left(condition: &Expr, right: &TableFactor) -> bool {
    let right = called(right);
    has_expression(condition, |part| {
        let Expr::InSubquery { expr, .. } = part else { return false };
        let mut is_other = false;
        look_outside_subqueries(&**expr, |value| {
            is_other |= table_of(value).is_some_and(|table| Some(&table) != right.as_ref());
        });
        is_other
    })
}

/// Whether a condition contains a correlated subquery.
pub(super) fn asks(condition: &Expr) -> bool {
    has_expression(condition, |part| match part {
        Expr::Subquery(query) | Expr::Exists { subquery: query, .. } | Expr::InSubquery { subquery: query, .. } => {
            equality_lookups::reads_row(query)
        }
        _ => false,
    })
}

/// Splits a condition at its `AND`s.
fn parts_of(condition: Expr) -> Vec<Expr> {
    let (mut parts, mut open) = (Vec::new(), vec![condition]);
    while let Some(part) = open.pop() {
        match part {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => open.extend([*right, *left]),
            Expr::Nested(inner) if matches!(*inner, Expr::BinaryOp { op: BinaryOperator::And, .. }) => {
                open.push(*inner);
            }
            other => parts.push(other),
        }
    }
    parts
}

/// Joins conditions by `AND`.
fn all(conditions: Vec<Expr>) -> Expr {
    let nested = conditions.into_iter().map(|condition| Expr::Nested(Box::new(condition)));
    nested.reduce(|before, next| binary(before, BinaryOperator::And, next)).unwrap_or_else(|| boolean(true))
}

/// The rows of a table for which a condition holds, with the given columns or all; `None` if none are given and the
/// table may have more than are known.
fn within(
    factor: &TableFactor,
    condition: &Expr,
    known: ColumnSources<'_>,
    columns: Option<&[String]>,
) -> Option<TableFactor> {
    let outputs = outputs_of(factor, known, columns)?;
    named_as(factor, &format!("(SELECT {outputs} FROM {factor} WHERE {condition})"), true)
}

/// The outputs of a query of a table, the given columns or all; `None` if none are given and the table may have more than
/// are known.
pub(super) fn outputs_of(factor: &TableFactor, known: ColumnSources<'_>, columns: Option<&[String]>) -> Option<String> {
    let is_whole = match factor {
        TableFactor::Derived { lateral: false, .. } => true,
        TableFactor::Table { name, args: None, .. } => known.common_table(&empty_queries::named(name)).is_some(),
        _ => false,
    };
    let name = called(factor)?;
    let Some(columns) = columns else {
        return (is_whole && known.of_factor(factor).is_some()).then(|| "*".to_owned());
    };
    let column = |column: &String| format!("{}.{}", quoted(&name), quoted(column));
    Some(columns.iter().map(column).collect::<Vec<_>>().join(", "))
}

/// A subquery that has the name of a table; `None` if the table has none.
pub(super) fn named_as(factor: &TableFactor, sql: &str, lateral: bool) -> Option<TableFactor> {
    let Ok(Expr::Subquery(subquery)) = expr(sql) else { return None };
    let name = Ident::with_quote('"', called(factor)?);
    let alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
    Some(TableFactor::Derived { lateral, subquery, alias, sample: None })
}
