//! Aggregates that collect values, as PostgreSQL has them. With `DISTINCT` the values come sorted, because PostgreSQL
//! finds duplicates by sorting. Texts of one group may be joined in several orders, of which the planner supports
//! only one, and by separators that are values of the rows.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, OrderByExpr, Select, Value,
};
use quiver_types::Result;

use super::expressions::{arguments, bare, call, is_null, number, text};
use crate::error::unsupported;
use crate::statement_walk::{change_outside_subqueries, has_expression, look_outside_subqueries};

/// Rewrites `array_agg(DISTINCT x)` and `string_agg(DISTINCT x, ',')` as calls that sort by `x`, the only order that
/// they may have: the planner gives all aggregates of a select one order. `None` if it is another call.
pub(super) fn sorted(name: &str, function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let is_plain = function.over.is_none() && function.within_group.is_empty();
    if list.duplicate_treatment != Some(DuplicateTreatment::Distinct) || !is_plain {
        return None;
    }
    let (order, nulls) = match list.clauses.as_slice() {
        [] => ("ASC", "NULLS LAST"),
        [FunctionArgumentClause::OrderBy(keys)] => own_order(list, keys)?,
        _ => return None,
    };
    let mut gathering = function.clone();
    if let FunctionArguments::List(list) = &mut gathering.args {
        list.clauses.clear();
    }
    let in_order = |list: Expr| call("array_sort", vec![list, text(order), text(nulls)]);
    match name {
        "array_agg" => Some(in_order(Expr::Function(gathering))),
        "string_agg" => joined(&gathering, in_order),
        _ => None,
    }
}

/// The direction of an order by the first argument alone; `None` if it is another order.
fn own_order(list: &FunctionArgumentList, keys: &[OrderByExpr]) -> Option<(&'static str, &'static str)> {
    let ([FunctionArg::Unnamed(FunctionArgExpr::Expr(value)), ..], [key]) = (list.args.as_slice(), keys) else {
        return None;
    };
    if key.expr != *value || key.with_fill.is_some() {
        return None;
    }
    let is_descending = key.options.asc == Some(false);
    let nulls = if key.options.nulls_first.unwrap_or(is_descending) { "NULLS FIRST" } else { "NULLS LAST" };
    Some((if is_descending { "DESC" } else { "ASC" }, nulls))
}

/// `string_agg` with a separator that differs from row to row: each value stands behind the separator of its row, except the
/// first one. The planner takes one separator for all. `None` if it is another call.
///
/// # Errors
/// Unsupported: of different pairs of values and separators.
pub(super) fn separated(name: &str, function: &Function) -> Result<Option<Expr>> {
    if name != "string_agg" {
        return Ok(None);
    }
    let mut gathering = function.clone();
    let FunctionArguments::List(list) = &mut gathering.args else { return Ok(None) };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value)), FunctionArg::Unnamed(FunctionArgExpr::Expr(between))] =
        list.args.as_slice()
    else {
        return Ok(None);
    };
    if !may_differ(between) {
        return Ok(None);
    }
    if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
        return Err(unsupported("`string_agg(DISTINCT …)` takes a separator that is written out"));
    }
    let value = value.clone();
    let piece = call("make_array", vec![between.clone(), value.clone()]);
    list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(piece))];
    gathering.name = ObjectName::from(vec![Ident::new("array_agg")]);
    where_there(&mut gathering, value);
    let pieces = call("flatten", vec![Expr::Function(gathering)]);
    let behind_first = call("array_slice", vec![pieces, number(2), number(i64::from(i32::MAX))]);
    // Separators that are NULL are left out there.
    Ok(Some(call("array_to_string", vec![behind_first, text("")])))
}

/// Whether a value may differ from row to row, or is known only once the statement runs.
fn may_differ(value: &Expr) -> bool {
    has_expression(value, |part| matches!(part, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Subquery(_)))
}

/// `string_agg` as the text of a list of the values that are not NULL; `None` if the separator is no constant.
fn joined(function: &Function, made: impl Fn(Expr) -> Expr) -> Option<Expr> {
    let mut gathering = function.clone();
    let FunctionArguments::List(list) = &mut gathering.args else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value)), FunctionArg::Unnamed(FunctionArgExpr::Expr(between))] =
        list.args.as_slice()
    else {
        return None;
    };
    let (value, between) = (value.clone(), separator(between)?);
    list.args.truncate(1);
    gathering.name = ObjectName::from(vec![Ident::new("array_agg")]);
    where_there(&mut gathering, value);
    Some(call("array_to_string", vec![made(Expr::Function(gathering)), between]))
}

/// The separator for the items of a list that becomes the text of a `string_agg`; `None` if it is no constant. A NULL
/// separator becomes an empty text, since NULL would make the whole text NULL.
pub(super) fn separator(between: &Expr) -> Option<Expr> {
    match between {
        Expr::Value(value) if value.value == Value::Null => Some(text("")),
        Expr::Value(_) => Some(between.clone()),
        _ => None,
    }
}

/// Restricts an aggregate to the rows in which a value is not NULL.
fn where_there(gathering: &mut Function, value: Expr) {
    let is_there = Expr::IsNotNull(Box::new(Expr::Nested(Box::new(value))));
    gathering.filter = Some(Box::new(match gathering.filter.take() {
        Some(own) => {
            Expr::BinaryOp { left: Box::new(Expr::Nested(own)), op: BinaryOperator::And, right: Box::new(is_there) }
        }
        None => is_there,
    }));
}

/// `array_remove(list, NULL)` as a list of the values that are not NULL; `None` if it is another call.
pub(super) fn without_nulls(args: &[Expr]) -> Option<Expr> {
    let [list, what] = args else { return None };
    let removes_null = match what {
        Expr::Cast { expr, .. } => is_null(expr),
        other => is_null(other),
    };
    removes_null.then(|| gathered(list).unwrap_or_else(|| call("array_compact", vec![list.clone()])))
}

/// The aggregate call within a list expression; `None` if it is another list.
fn gathered(list: &Expr) -> Option<Expr> {
    let mut list = list.clone();
    let Expr::Function(outer) = &mut list else { return None };
    let gathering = match bare(&outer.name)?.as_str() {
        "array_agg" => outer,
        // Distinct values have been sorted already.
        "array_sort" => match &mut outer.args {
            FunctionArguments::List(within) => match within.args.first_mut()? {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(inner))) => inner,
                _ => return None,
            },
            _ => return None,
        },
        _ => return None,
    };
    if bare(&gathering.name)? != "array_agg" {
        return None;
    }
    let [value]: [Expr; 1] = arguments(&gathering.args)?.try_into().ok()?;
    where_there(gathering, value);
    Some(call("or_empty", vec![list]))
}

/// If a select joins texts in several orders, each is made from a list, which has an order of its own.
pub(super) fn apart(select: &mut Select) -> Result<()> {
    let mut orders = HashSet::new();
    look_outside_subqueries(&*select, |expr| {
        if let Expr::Function(function) = expr {
            orders.extend(order_of(function));
        }
    });
    if orders.len() < 2 {
        return Ok(());
    }
    change_outside_subqueries(select, |place| {
        if let Expr::Function(function) = &*place
            && order_of(function).is_some()
            && let Some(found) = joined(function, |list| list)
        {
            *place = found;
        }
        Ok(())
    })
}

/// The order in which a call of `string_agg` joins texts.
fn order_of(function: &Function) -> Option<String> {
    let FunctionArguments::List(list) = &function.args else { return None };
    if function.over.is_some() || bare(&function.name)? != "string_agg" {
        return None;
    }
    list.clauses.iter().find_map(|clause| match clause {
        FunctionArgumentClause::OrderBy(keys) => {
            Some(keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        }
        _ => None,
    })
}
