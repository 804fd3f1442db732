//! Columns that `USING` merges. In right and full joins the planner reads such a column from the left side alone,
//! which is NULL for rows of the right side; behind several joins by one column it does not know which one a name means.
//! `*` lists them first in PostgreSQL; the planner leaves them in the order of the left side.

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, OrderBy, Query, ReplaceSelectElement,
    ReplaceSelectItem, Select, SelectItem, SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins,
    WildcardAdditionalOptions,
};
use quiver_types::{Error, Result};

use super::columns::constraint_mut;
use super::expressions::{call, expr};
use crate::error::unsupported;
use crate::names::{normal, parts};
use crate::statement_walk::{change_outside_subqueries, selects};

/// The value of a merged column.
struct Value {
    expr: Expr,
    /// Whether a right or full join merges it.
    is_outer: bool,
}

/// Merged columns that the planner would misread or not know, and their values.
type MergedColumnValues = BTreeMap<String, Value>;

/// Replaces each merged column by its value.
pub(super) fn translate(query: &mut Query) -> Result<()> {
    selects(query, of_select)
}

fn of_select(select: &mut Select, order: Option<&mut OrderBy>) -> Result<()> {
    let (mut merged, mut all) = (MergedColumnValues::new(), MergedColumnValues::new());
    let mut behind = Vec::new();
    for (nth, from) in select.from.iter().enumerate() {
        let joins = merge(from, &mut merged, &mut all)?;
        behind.extend(joins.into_iter().map(|(at, on)| (nth, at, on)));
    }
    // In a `WHERE` and an `ON` the planner takes any of them for two columns of one name.
    let put_all = |place: &mut Expr, merged: &MergedColumnValues| {
        put(place, merged);
        Ok(())
    };
    change_outside_subqueries(&mut select.selection, |place| put_all(place, &all))?;
    change_outside_subqueries(&mut select.from, |place| put_all(place, &all))?;
    put_in_order(select, &merged);
    if !behind.is_empty() && select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_))) {
        return Err(unsupported("`*` of tables behind a right or full join by other columns: name the columns"));
    }
    for (nth, at, on) in behind {
        if let Some(using) = constraint_mut(&mut select.from[nth].joins[at].join_operator) {
            *using = JoinConstraint::On(on);
        }
    }
    if merged.is_empty() {
        return Ok(());
    }
    // Sort keys refer to the outputs by these names.
    let mut outputs = Vec::new();
    for item in &mut select.projection {
        match item {
            SelectItem::UnnamedExpr(Expr::Identifier(name)) if merged.contains_key(&normal(name)) => {
                let name = name.clone();
                outputs.push(normal(&name));
                *item = SelectItem::ExprWithAlias { expr: Expr::Identifier(name.clone()), alias: name };
            }
            SelectItem::ExprWithAlias { alias, .. } => outputs.push(normal(alias)),
            SelectItem::Wildcard(options) if merged.values().any(|value| value.is_outer) => {
                outputs.extend(merged.keys().cloned());
                options.opt_replace = Some(values(&merged));
            }
            _ => {}
        }
    }
    change_outside_subqueries(select, |place| put_all(place, &merged))?;
    let Some(order) = order else { return Ok(()) };
    merged.retain(|name, _| !outputs.contains(name));
    change_outside_subqueries(order, |place| put_all(place, &merged))
}

/// Lists the merged columns first in `*`. Where tables are joined by different columns, one may have an unmerged
/// column of the same name; then the planner's order stays.
fn put_in_order(select: &mut Select, merged: &MergedColumnValues) {
    let is_all = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_));
    let [from] = select.from.as_slice() else { return };
    if !select.projection.iter().any(is_all) {
        return;
    }
    let Some((columns, tables)) = joined(from) else { return };
    let quoted = |column: &String| Ident::with_quote('"', column.clone());
    // With more than two tables the planner does not know which one a bare name refers to.
    let both = |column: &String| match tables.first() {
        Some(first) if !merged.contains_key(column) => {
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(vec![first.clone(), quoted(column)]))
        }
        _ => SelectItem::UnnamedExpr(Expr::Identifier(quoted(column))),
    };
    let others = |table: &Ident| {
        let names = columns.iter().map(|column| ObjectName::from(vec![quoted(column)])).collect();
        let options = WildcardAdditionalOptions {
            opt_exclude: Some(ExcludeSelectItem::Multiple(names)),
            ..WildcardAdditionalOptions::default()
        };
        let table = SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![table.clone()]));
        SelectItem::QualifiedWildcard(table, options)
    };
    for item in std::mem::take(&mut select.projection) {
        if is_all(&item) {
            select.projection.extend(columns.iter().map(both));
            select.projection.extend(tables.iter().map(others));
        } else {
            select.projection.push(item);
        }
    }
}

/// The columns by which all tables of a `FROM` item are joined, and the names of the tables; `None` if some are
/// joined otherwise.
fn joined(from: &TableWithJoins) -> Option<(Vec<String>, Vec<Ident>)> {
    let own = |factor: &TableFactor| match factor {
        // A name with a schema can be referred to with and without it.
        TableFactor::Table { name, alias: None, .. } if name.0.len() > 1 => None,
        factor => name(factor),
    };
    let mut tables = vec![own(&from.relation)?];
    let mut columns: Option<Vec<String>> = None;
    for join in &from.joins {
        let (JoinOperator::Join(JoinConstraint::Using(using))
        | JoinOperator::Inner(JoinConstraint::Using(using))
        | JoinOperator::Left(JoinConstraint::Using(using))
        | JoinOperator::LeftOuter(JoinConstraint::Using(using))
        | JoinOperator::Right(JoinConstraint::Using(using))
        | JoinOperator::RightOuter(JoinConstraint::Using(using))
        | JoinOperator::FullOuter(JoinConstraint::Using(using))) = &join.join_operator
        else {
            return None;
        };
        let using: Vec<String> = using.iter().filter_map(|column| parts(column).pop()).collect();
        let known = columns.get_or_insert_with(|| using.clone());
        if known.len() != using.len() || !using.iter().all(|column| known.contains(column)) {
            return None;
        }
        tables.push(own(&join.relation)?);
    }
    Some((columns?, tables))
}

/// The rows that a join keeps where they match none of the other side.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    /// Those of the left side, or none.
    Left,
    Right,
    Both,
}

/// The condition of a join, and what it keeps.
fn kept(operator: &JoinOperator) -> (&JoinConstraint, Keeps) {
    match operator {
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => (constraint, Keeps::Right),
        JoinOperator::FullOuter(constraint) => (constraint, Keeps::Both),
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint) => (constraint, Keeps::Left),
        _ => (&JoinConstraint::None, Keeps::Left),
    }
}

/// Adds the columns that the joins of a `FROM` item merge: to `merged` those that the planner would misread among outputs, too,
/// to `all` each whose value is known. Returns conditions for the joins behind a right or full join by the same columns,
/// which compare the merged values.
fn merge(
    from: &TableWithJoins,
    merged: &mut MergedColumnValues,
    all: &mut MergedColumnValues,
) -> Result<Vec<(usize, Expr)>> {
    nested(&from.relation)?;
    let mut left = vec![name(&from.relation)];
    // The values of all merged columns; `None` if it is not known which table has the column.
    let mut used: BTreeMap<String, Option<Expr>> = BTreeMap::new();
    let mut behind = Vec::new();
    for (at, join) in from.joins.iter().enumerate() {
        nested(&join.relation)?;
        let right = name(&join.relation);
        let (constraint, keeps) = kept(&join.join_operator);
        match constraint {
            JoinConstraint::Using(columns) => {
                let columns: Vec<String> = columns.iter().filter_map(|column| parts(column).pop()).collect();
                let is_outer = |column: &String| merged.get(column).is_some_and(|value| value.is_outer);
                let is_behind = columns.iter().any(is_outer);
                let mut equal = Vec::new();
                for column in columns {
                    let one = match left.as_slice() {
                        [Some(only)] => Some(column_of(only, &column)),
                        _ => None,
                    };
                    let before = used.get(&column).cloned().unwrap_or(one);
                    let own = right.as_ref().map(|table| column_of(table, &column));
                    if is_behind {
                        let (Some(before), Some(own)) = (&before, &own) else { return Err(unknown(&column)) };
                        equal.push(format!("{before} = {own}"));
                    }
                    let value = match keeps {
                        Keeps::Left => before,
                        Keeps::Right => Some(own.ok_or_else(|| unknown(&column))?),
                        Keeps::Both => {
                            let (Some(before), Some(own)) = (before, own) else { return Err(unknown(&column)) };
                            Some(call("coalesce", vec![before, own]))
                        }
                    };
                    let is_outer = keeps != Keeps::Left || merged.get(&column).is_some_and(|value| value.is_outer);
                    if let Some(expr) = &value
                        && (is_outer || used.contains_key(&column))
                    {
                        merged.insert(column.clone(), Value { expr: expr.clone(), is_outer });
                    }
                    used.insert(column, value);
                }
                if is_behind {
                    behind.push((at, expr(&equal.join(" AND "))?));
                }
            }
            JoinConstraint::Natural if keeps != Keeps::Left => return Err(natural()),
            _ => {}
        }
        left.push(right);
    }
    all.extend(used.into_iter().filter_map(|(column, value)| Some((column, Value { expr: value?, is_outer: false }))));
    Ok(behind)
}

fn column_of(table: &Ident, column: &str) -> Expr {
    Expr::CompoundIdentifier(vec![table.clone(), Ident::with_quote('"', column)])
}

/// The error for a column whose tables have no names, or of which it is not known which one has it.
fn unknown(column: &str) -> Error {
    unsupported(format!(
        "`USING ({column})` of, or behind, a right or full join needs a name of each side, and a left side of one table or \
         joined by that column: use `ON`, and `coalesce`"
    ))
}

/// Refuses such joins in parentheses, which have no name to qualify their columns by.
fn nested(factor: &TableFactor) -> Result<()> {
    let TableFactor::NestedJoin { table_with_joins, .. } = factor else { return Ok(()) };
    let mut merged = MergedColumnValues::new();
    merge(table_with_joins, &mut merged, &mut MergedColumnValues::new())?;
    if !merged.values().any(|value| value.is_outer) {
        return Ok(());
    }
    Err(unsupported("`USING` of a right or full join in parentheses is not supported: use `ON`"))
}

fn natural() -> Error {
    unsupported("`NATURAL` is not supported for right and full joins: name the columns by `USING`")
}

/// The name of a table in the statement.
fn name(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, alias: None, .. } => Some(Ident::with_quote('"', parts(name).pop()?)),
        _ => None,
    }
}

/// A `REPLACE` clause for `*` that gives the values of right and full joins. PostgreSQL has no such clause, so `*` has
/// none yet.
fn values(merged: &MergedColumnValues) -> ReplaceSelectItem {
    let item = |(name, value): (&String, &Value)| {
        let column_name = Ident::with_quote('"', name.clone());
        Box::new(ReplaceSelectElement { expr: value.expr.clone(), column_name, as_keyword: true })
    };
    ReplaceSelectItem { items: merged.iter().filter(|(_, value)| value.is_outer).map(item).collect() }
}

/// Replaces the bare name of a merged column by its value.
fn put(place: &mut Expr, merged: &MergedColumnValues) {
    if let Expr::Identifier(name) = place
        && let Some(value) = merged.get(&normal(name))
    {
        *place = value.expr.clone();
    }
}
