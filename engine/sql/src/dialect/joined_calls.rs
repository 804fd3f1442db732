//! Tables in a `FROM` that the planner takes in fewer places than PostgreSQL: functions that read tables before them and are
//! left joined by a condition, which become subqueries with that condition; and joins in parentheses with a name, whose `*`
//! the planner would give merged columns twice.

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Join, JoinConstraint, JoinOperator, Select, SelectItem, SetExpr, TableAlias, TableAliasColumnDef,
    TableFactor, TableWithJoins, Value, Visit,
};

use super::columns::constraint;
use super::expressions::{bare, boolean, is_bare_function, plain_arguments, query};
use super::set_returning_functions::{MEMBER, gives_members, gives_value, table_function, unnest};
use crate::statement_walk::has_expression;
use crate::table_functions::CALLS;

/// Puts conditions of left joins into subqueries around the functions.
pub(super) fn translate(select: &mut Select) {
    for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
        let (JoinOperator::Left(JoinConstraint::On(on)) | JoinOperator::LeftOuter(JoinConstraint::On(on))) =
            &mut join.join_operator
        else {
            continue;
        };
        let is_true = matches!(&*on, Expr::Value(value) if value.value == Value::Boolean(true));
        if !is_true
            && reads_columns(&join.relation)
            && let Some(kept) = kept(&join.relation, on)
        {
            join.relation = kept;
            *on = boolean(true);
        }
    }
}

/// Puts `(a JOIN b USING (x)) AS j` as `(SELECT * FROM a JOIN b USING (x)) AS j`.
pub(super) fn merged(factor: &mut TableFactor) {
    let TableFactor::NestedJoin { table_with_joins, alias: Some(alias) } = &*factor else { return };
    let merges = |join: &Join| {
        matches!(constraint(&join.join_operator), Some(JoinConstraint::Using(_) | JoinConstraint::Natural))
    };
    if !table_with_joins.joins.iter().any(merges) {
        return;
    }
    let Some(mut subquery) = query("SELECT * FROM t") else { return };
    if let SetExpr::Select(select) = &mut *subquery.body {
        select.from = vec![(**table_with_joins).clone()];
    }
    let (alias, subquery) = (Some(alias.clone()), Box::new(subquery));
    *factor = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
}

/// Whether a part of a statement reads columns.
pub(super) fn reads_columns(part: &impl Visit) -> bool {
    has_expression(part, |part| match part {
        Expr::Identifier(name) => !is_bare_function(name),
        Expr::CompoundIdentifier(_) => true,
        _ => false,
    })
}

/// The call of a function as the first table of a select stands beside none that it could read.
pub(super) fn first_alone(select: &mut Select) {
    let Some(TableFactor::Derived { lateral, subquery, .. }) = select.from.first_mut().map(|from| &mut from.relation)
    else {
        return;
    };
    if matches!(&*subquery.body, SetExpr::Select(row) if row.from.is_empty() && row.projection.len() == 1) {
        *lateral = false;
    }
}

/// A subquery of the rows of a function for which a condition holds; `None` if the factor is none, or its columns are not
/// known.
fn kept(factor: &TableFactor, on: &Expr) -> Option<TableFactor> {
    let mut call = match factor.clone() {
        TableFactor::Function { lateral: true, name, args, with_ordinality, alias } => {
            match plain_arguments(&args).filter(|_| bare(&name).as_deref() == Some("unnest")) {
                Some(lists) => unnest(alias, lists, with_ordinality),
                None => table_function(name, args, alias, with_ordinality),
            }
        }
        other => other,
    };
    let (table, columns) = named(&mut call)?;
    let mut subquery = query("SELECT 1 FROM t WHERE true")?;
    let SetExpr::Select(select) = &mut *subquery.body else { return None };
    let output = |column: Ident| SelectItem::UnnamedExpr(Expr::CompoundIdentifier(vec![table.clone(), column]));
    select.projection = columns.into_iter().map(output).collect();
    select.from = vec![TableWithJoins { relation: call, joins: Vec::new() }];
    select.selection = Some(on.clone());
    let alias = Some(TableAlias { explicit: true, name: table, columns: Vec::new(), at: None });
    Some(TableFactor::Derived { lateral: true, subquery: Box::new(subquery), alias, sample: None })
}

/// The name of a function's table, and its columns: the one of values gets that name.
fn named(call: &mut TableFactor) -> Option<(Ident, Vec<Ident>)> {
    let (alias, function, is_numbered) = match call {
        TableFactor::UNNEST { alias: Some(alias), array_exprs, with_ordinality, .. }
            if array_exprs.len() == 1 || !alias.columns.is_empty() =>
        {
            (alias, "unnest".to_owned(), *with_ordinality)
        }
        TableFactor::Table { name, alias: Some(alias), args: Some(_), with_ordinality, .. } => {
            (alias, bare(name)?, *with_ordinality)
        }
        _ => return None,
    };
    if CALLS.iter().any(|(known, _)| *known == function) || (is_numbered && alias.columns.len() < 2) {
        return None;
    }
    let table = alias.name.clone();
    let mut columns: Vec<Ident> = alias.columns.iter().map(|column| column.name.clone()).collect();
    if gives_members(&function) {
        columns.extend(MEMBER.into_iter().skip(columns.len()).map(|name| Ident::with_quote('"', name)));
    } else if columns.is_empty() {
        // The alias would name a record with that column instead of the value.
        if gives_value(&function) {
            return None;
        }
        alias.columns.push(TableAliasColumnDef { name: table.clone(), data_type: None });
        columns.push(table.clone());
    }
    Some((table, columns))
}
