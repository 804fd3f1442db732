//! Casts in aggregates and in keys of groups. The planner gives `sum(x::float8)` and `sum(x)` the same name, and
//! refuses two columns of one name. Wrapping the cast in a function of one argument makes the names differ; the
//! function does not remain in the plan.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, ObjectName, OrderBy, Query, Select,
    Visitor, VisitorMut,
};
use quiver_types::Result;

use super::expressions::{bare, call, take};
use crate::statement_walk::{change_outside_subqueries, look_outside_subqueries, selects, walk, walk_mut};

/// Gives each aggregate and each key of groups a name of its own.
pub(super) fn translate(query: &mut Query, is_aggregate: &dyn Fn(&str) -> bool) -> Result<()> {
    selects(query, |select, order| of_select(select, order, is_aggregate))
}

fn of_select(select: &mut Select, order: Option<&mut OrderBy>, is_aggregate: &dyn Fn(&str) -> bool) -> Result<()> {
    let mut parts = Vec::new();
    let mut find = |expr: &Expr| {
        if let Expr::Function(function) = expr
            && (function.over.is_some() || bare(&function.name).is_some_and(|name| is_aggregate(&name)))
        {
            parts.push(expr.clone());
        }
    };
    look_outside_subqueries(&*select, &mut find);
    if let Some(order) = &order {
        look_outside_subqueries(&**order, &mut find);
    }
    if let GroupByExpr::Expressions(keys, _) = &select.group_by {
        parts.extend(keys.iter().cloned());
    }
    if !parts.iter().any(has_cast) {
        return Ok(());
    }
    let mut named = BTreeMap::<String, Vec<(String, Expr)>>::new();
    for part in parts {
        let text = part.to_string();
        let alike = named.entry(planned_name(&part)).or_default();
        if alike.iter().all(|(known, _)| *known != text) {
            alike.push((text, part));
        }
    }
    let mut others = HashMap::new();
    for alike in named.into_values().filter(|alike| alike.len() > 1) {
        let cast = alike.into_iter().filter(|(_, part)| has_cast(part));
        others.extend(cast.enumerate().map(|(at, (text, part))| (text, wrapped(part, at + 1))));
    }
    if others.is_empty() {
        return Ok(());
    }
    let put = |place: &mut Expr| {
        if matches!(place, Expr::Function(_) | Expr::Cast { .. } | Expr::BinaryOp { .. })
            && let Some(other) = others.get(&place.to_string())
        {
            *place = other.clone();
        }
        Ok(())
    };
    change_outside_subqueries(select, put)?;
    order.map_or(Ok(()), |order| change_outside_subqueries(order, put))
}

/// Wraps a cast in that function, the given number of times.
fn wrapped(part: Expr, times: usize) -> Expr {
    let around = |value: Expr| (0..times).fold(value, |value, _| call("coalesce", vec![value]));
    let Expr::Function(mut function) = part else { return around(part) };
    if let FunctionArguments::List(list) = &mut function.args {
        for arg in &mut list.args {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = arg
                && has_cast(value)
            {
                *value = around(take(value));
            }
        }
    }
    Expr::Function(function)
}

fn has_cast(expr: &Expr) -> bool {
    walk(expr, &mut Casts).is_break()
}

/// What the planner calls an aggregate or a key. Both forms of documents are made of the same lists.
fn planned_name(part: &Expr) -> String {
    let mut part = without_casts(part.clone());
    if let Expr::Function(function) = &mut part
        && let Some(rest) = bare(&function.name).as_deref().and_then(|name| name.strip_prefix("jsonb_"))
    {
        function.name = ObjectName::from(vec![Ident::new(format!("json_{rest}"))]);
    }
    part.to_string()
}

/// An expression without its casts, which is what the planner names it by.
fn without_casts(mut expr: Expr) -> Expr {
    let _ = walk_mut(&mut expr, &mut Casts);
    expr
}

/// Finds casts, or removes them.
struct Casts;

impl Visitor for Casts {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if matches!(expr, Expr::Cast { .. }) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl VisitorMut for Casts {
    type Break = ();

    fn post_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        if let Expr::Cast { expr, .. } | Expr::Nested(expr) = place {
            *place = take(expr);
        }
        ControlFlow::Continue(())
    }
}
