//! Columns that `USING` merges. In right and full joins the planner reads such a column from the left side alone,
//! which is NULL for rows of the right side. `*` lists them first in PostgreSQL; the planner leaves them in the order
//! of the left side.

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, OrderBy, Query, ReplaceSelectElement,
    ReplaceSelectItem, Select, SelectItem, SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins,
    WildcardAdditionalOptions,
};
use quiver_types::{Error, Result};

use super::expressions::expr;
use crate::error::unsupported;
use crate::names::{normal, parts};
use crate::walk::{change_outside_subqueries, selects};

/// Merged columns and the expressions of their values.
type Merged = BTreeMap<String, Expr>;

/// Replaces each merged column by the value of both sides.
pub(super) fn translate(query: &mut Query) -> Result<()> {
    selects(query, of_select)
}

fn of_select(select: &mut Select, order: Option<&mut OrderBy>) -> Result<()> {
    let mut merged = Merged::new();
    for from in &select.from {
        merge(from, &mut merged)?;
    }
    put_in_order(select, &merged);
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
            SelectItem::Wildcard(options) => {
                outputs.extend(merged.keys().cloned());
                options.opt_replace = Some(values(&merged));
            }
            _ => {}
        }
    }
    let put_all = |place: &mut Expr, merged: &Merged| {
        put(place, merged);
        Ok(())
    };
    change_outside_subqueries(select, |place| put_all(place, &merged))?;
    let Some(order) = order else { return Ok(()) };
    merged.retain(|name, _| !outputs.contains(name));
    change_outside_subqueries(order, |place| put_all(place, &merged))
}

/// Lists the merged columns first in `*`. Where tables are joined by different columns, one may have an unmerged
/// column of the same name; then the planner's order stays.
fn put_in_order(select: &mut Select, merged: &Merged) {
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

/// Adds the columns that the joins of a `FROM` item merge.
fn merge(from: &TableWithJoins, merged: &mut Merged) -> Result<()> {
    nested(&from.relation)?;
    let mut left = vec![&from.relation];
    for join in &from.joins {
        nested(&join.relation)?;
        let (constraint, is_outer) = match &join.join_operator {
            JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint) => (constraint, true),
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint) => (constraint, false),
            _ => (&JoinConstraint::None, false),
        };
        match constraint {
            JoinConstraint::Using(columns) => {
                for column in columns.iter().filter_map(|column| parts(column).pop()) {
                    if merged.contains_key(&column) {
                        let text = format!("`USING ({column})` behind a right or full join by it is not supported");
                        return Err(unsupported(text));
                    }
                    if is_outer {
                        let own = matches!(join.join_operator, JoinOperator::FullOuter(_));
                        let value = value(&column, if own { left.as_slice() } else { &[] }, &join.relation)?;
                        merged.insert(column, value);
                    }
                }
            }
            JoinConstraint::Natural if is_outer => return Err(natural()),
            _ => {}
        }
        left.push(&join.relation);
    }
    Ok(())
}

/// Refuses such joins in parentheses, which have no name to qualify their columns by.
fn nested(factor: &TableFactor) -> Result<()> {
    let TableFactor::NestedJoin { table_with_joins, .. } = factor else { return Ok(()) };
    let mut merged = Merged::new();
    merge(table_with_joins, &mut merged)?;
    if merged.is_empty() {
        return Ok(());
    }
    Err(unsupported("`USING` of a right or full join in parentheses is not supported: use `ON`"))
}

fn natural() -> Error {
    unsupported("`NATURAL` is not supported for right and full joins: name the columns by `USING`")
}

/// The value of a merged column: that of the right side, or the first that is not NULL.
fn value(column: &str, left: &[&TableFactor], right: &TableFactor) -> Result<Expr> {
    let of = |factor: &TableFactor| -> Result<String> {
        let table = name(factor).ok_or_else(|| {
            unsupported(format!("`USING ({column})` of a right or full join needs an alias of each side"))
        })?;
        Ok(format!("{table}.{}", Ident::with_quote('"', column)))
    };
    match left {
        [] => expr(&of(right)?),
        [left] => expr(&format!("coalesce({}, {})", of(left)?, of(right)?)),
        _ => Err(unsupported(format!(
            "`USING ({column})` of a full join behind other joins is not supported: use `ON`, and `coalesce`"
        ))),
    }
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

/// A `REPLACE` clause for `*` that gives the merged values. PostgreSQL has no such clause, so `*` has none yet.
fn values(merged: &Merged) -> ReplaceSelectItem {
    let item = |(name, value): (&String, &Expr)| {
        let column_name = Ident::with_quote('"', name.clone());
        Box::new(ReplaceSelectElement { expr: value.clone(), column_name, as_keyword: true })
    };
    ReplaceSelectItem { items: merged.iter().map(item).collect() }
}

/// Replaces the bare name of a merged column by its value.
fn put(place: &mut Expr, merged: &Merged) {
    if let Expr::Identifier(name) = place
        && let Some(value) = merged.get(&normal(name))
    {
        *place = value.clone();
    }
}
