//! Casts in aggregates and in keys of groups: the planner calls `sum(x::float8)` as it calls `sum(x)`, and takes no two
//! columns of one name. A function of one argument around the cast gives another name, and is gone from the plan.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, OrderBy, Query, Select, SetExpr, Visitor,
    VisitorMut,
};

use super::{bare, call, take};
use crate::walk::{walk, walk_mut};

/// Gives each aggregate and each key of groups a name of its own.
pub(super) fn translate(query: &mut Query, is_aggregate: &dyn Fn(&str) -> bool) {
    let Query { body, order_by, .. } = query;
    if let SetExpr::Select(select) = &mut **body {
        of_select(select, order_by.as_mut(), is_aggregate);
        return;
    }
    let mut open = vec![&mut **body];
    while let Some(body) = open.pop() {
        match body {
            SetExpr::Select(select) => of_select(select, None, is_aggregate),
            SetExpr::SetOperation { left, right, .. } => open.extend([&mut **left, &mut **right]),
            _ => {}
        }
    }
}

fn of_select(select: &mut Select, mut order: Option<&mut OrderBy>, is_aggregate: &dyn Fn(&str) -> bool) {
    let mut found = Found { is_aggregate, depth: 0, parts: Vec::new() };
    let _ = walk(&*select, &mut found);
    if let Some(order) = &order {
        let _ = walk(&**order, &mut found);
    }
    if let GroupByExpr::Expressions(keys, _) = &select.group_by {
        found.parts.extend(keys.iter().cloned());
    }
    if !found.parts.iter().any(has_cast) {
        return;
    }
    let mut named = BTreeMap::<String, Vec<(String, Expr)>>::new();
    for part in found.parts {
        let text = part.to_string();
        let alike = named.entry(without_casts(part.clone()).to_string()).or_default();
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
        return;
    }
    let _ = walk_mut(select, &mut Places { others: &others, depth: 0 });
    if let Some(order) = &mut order {
        let _ = walk_mut(&mut **order, &mut Places { others: &others, depth: 0 });
    }
}

/// Puts a function around what is cast, so often.
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

/// An expression as the planner names it.
fn without_casts(mut expr: Expr) -> Expr {
    let _ = walk_mut(&mut expr, &mut Casts);
    expr
}

/// Finds casts, or takes them away.
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

/// Finds aggregates and windows, but in subqueries.
struct Found<'f> {
    is_aggregate: &'f dyn Fn(&str) -> bool,
    depth: usize,
    parts: Vec<Expr>,
}

impl Visitor for Found<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Function(function) = expr
            && (function.over.is_some() || bare(&function.name).is_some_and(|name| (self.is_aggregate)(&name)))
        {
            self.parts.push(expr.clone());
        }
        ControlFlow::Continue(())
    }
}

/// Puts what has another name in the place of each, but in subqueries.
struct Places<'p> {
    others: &'p HashMap<String, Expr>,
    depth: usize,
}

impl VisitorMut for Places<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && matches!(place, Expr::Function(_) | Expr::Cast { .. } | Expr::BinaryOp { .. })
            && let Some(other) = self.others.get(&place.to_string())
        {
            *place = other.clone();
        }
        ControlFlow::Continue(())
    }
}
