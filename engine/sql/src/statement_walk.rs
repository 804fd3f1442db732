//! Walks over statements with a visitor behind a pointer. sqlparser's generic walk covers some three hundred types and
//! would be compiled again for every visitor and closure, half of this crate's code; this way it is compiled once.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, OrderBy, Query, Select, SetExpr, Statement, TableFactor, ValueWithSpan, Visit, VisitMut, Visitor,
    VisitorMut,
};
use quiver_types::{Error, Result};

/// Visits everything within a part of a statement, until the visitor breaks.
pub(crate) fn walk<B>(part: &impl Visit, visitor: &mut dyn Visitor<Break = B>) -> ControlFlow<B> {
    let mut recording = RecordingVisitor(visitor, None);
    let _ = part.visit(&mut DynVisitor(&mut recording));
    recording.1.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Like [`walk`], with a visitor that changes what it visits.
pub(crate) fn walk_mut<B>(part: &mut impl VisitMut, visitor: &mut dyn VisitorMut<Break = B>) -> ControlFlow<B> {
    let mut recording = RecordingVisitorMut(visitor, None);
    let _ = part.visit(&mut DynVisitorMut(&mut recording));
    recording.1.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Whether a part of a statement contains a matching expression, also within subqueries.
pub(crate) fn has_expression(part: &impl Visit, is_it: impl Fn(&Expr) -> bool) -> bool {
    walk(part, &mut Search(&is_it)).is_break()
}

/// Ends a walk with an error.
pub(crate) fn refused(error: Error) -> ControlFlow<Box<Error>> {
    ControlFlow::Break(Box::new(error))
}

/// Methods for a [`VisitorMut`] that skips subqueries: they count in `depth` the queries around the visited part.
macro_rules! counts_depth {
    () => {
        fn pre_visit_query(
            &mut self,
            _: &mut ::datafusion::sql::sqlparser::ast::Query,
        ) -> ::std::ops::ControlFlow<Self::Break> {
            self.depth += 1;
            ::std::ops::ControlFlow::Continue(())
        }

        fn post_visit_query(
            &mut self,
            _: &mut ::datafusion::sql::sqlparser::ast::Query,
        ) -> ::std::ops::ControlFlow<Self::Break> {
            self.depth -= 1;
            ::std::ops::ControlFlow::Continue(())
        }
    };
}

pub(crate) use counts_depth;

/// Visits each expression of a part except those within subqueries, which have names, outputs and groups of their own.
pub(crate) fn look_outside_subqueries(part: &impl Visit, mut look: impl FnMut(&Expr)) {
    let _ = walk(part, &mut Outside { depth: 0, look: &mut look });
}

/// Changes each expression of a part after those within it, but none of subqueries.
///
/// # Errors
/// The first one of `change`, with which it ends.
pub(crate) fn change_outside_subqueries(
    part: &mut impl VisitMut,
    mut change: impl FnMut(&mut Expr) -> Result<()>,
) -> Result<()> {
    match walk_mut(part, &mut ChangingOutside { depth: 0, change: &mut change }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// Hands on each select of a query, and the order that its rows have: that of several is one of their outputs.
pub(crate) fn selects(
    query: &mut Query,
    mut of_select: impl FnMut(&mut Select, Option<&mut OrderBy>) -> Result<()>,
) -> Result<()> {
    let Query { body, order_by, .. } = query;
    if let SetExpr::Select(select) = &mut **body {
        return of_select(select, order_by.as_mut());
    }
    let mut open = vec![&mut **body];
    while let Some(body) = open.pop() {
        match body {
            SetExpr::Select(select) => of_select(select, None)?,
            SetExpr::SetOperation { left, right, .. } => open.extend([&mut **left, &mut **right]),
            _ => {}
        }
    }
    Ok(())
}

struct Search<'f>(&'f dyn Fn(&Expr) -> bool);

impl Visitor for Search<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if (self.0)(expr) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

struct Outside<'l> {
    /// Of queries around what is visited.
    depth: usize,
    look: &'l mut dyn FnMut(&Expr),
}

impl Visitor for Outside<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if self.depth == 0 {
            (self.look)(expr);
        }
        ControlFlow::Continue(())
    }
}

struct ChangingOutside<'c> {
    /// Of queries around what is visited.
    depth: usize,
    change: &'c mut dyn FnMut(&mut Expr) -> Result<()>,
}

impl VisitorMut for ChangingOutside<'_> {
    type Break = Box<Error>;

    counts_depth!();

    fn post_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<Self::Break> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        (self.change)(place).map_or_else(|error| ControlFlow::Break(Box::new(error)), ControlFlow::Continue)
    }
}

/// A visitor behind a pointer, so that the walk is compiled once.
struct DynVisitor<'v>(&'v mut dyn Visitor<Break = ()>);
/// Like [`DynVisitor`], for a visitor that changes what it visits.
struct DynVisitorMut<'v>(&'v mut dyn VisitorMut<Break = ()>);

/// Records the value with which a visitor broke: the walk itself only passes on that it did.
struct RecordingVisitor<'v, B>(&'v mut dyn Visitor<Break = B>, Option<B>);
/// Like [`RecordingVisitor`], for a visitor that changes what it visits.
struct RecordingVisitorMut<'v, B>(&'v mut dyn VisitorMut<Break = B>, Option<B>);

/// Methods for all kinds of parts, each of which calls the visitor behind the pointer and evaluates an expression over
/// its result.
macro_rules! forward_each {
    (($visitor:ident, $flow:ident) => $ended:expr; $($of:ident: $part:ty),+) => {
        type Break = ();
        $(fn $of(&mut self, part: $part) -> ControlFlow<()> {
            let $visitor = self;
            let $flow = $visitor.0.$of(part);
            $ended
        })+
    };
}

macro_rules! forward {
    (($visitor:ident, $flow:ident) => $ended:expr) => {
        forward_each!(
            ($visitor, $flow) => $ended;
            pre_visit_query: &Query,
            post_visit_query: &Query,
            pre_visit_select: &Select,
            post_visit_select: &Select,
            pre_visit_relation: &ObjectName,
            post_visit_relation: &ObjectName,
            pre_visit_table_factor: &TableFactor,
            post_visit_table_factor: &TableFactor,
            pre_visit_expr: &Expr,
            post_visit_expr: &Expr,
            pre_visit_statement: &Statement,
            post_visit_statement: &Statement,
            pre_visit_value: &ValueWithSpan,
            post_visit_value: &ValueWithSpan
        );
    };
}

macro_rules! forward_mut {
    (($visitor:ident, $flow:ident) => $ended:expr) => {
        forward_each!(
            ($visitor, $flow) => $ended;
            pre_visit_query: &mut Query,
            post_visit_query: &mut Query,
            pre_visit_select: &mut Select,
            post_visit_select: &mut Select,
            pre_visit_relation: &mut ObjectName,
            post_visit_relation: &mut ObjectName,
            pre_visit_table_factor: &mut TableFactor,
            post_visit_table_factor: &mut TableFactor,
            pre_visit_expr: &mut Expr,
            post_visit_expr: &mut Expr,
            pre_visit_statement: &mut Statement,
            post_visit_statement: &mut Statement,
            pre_visit_value: &mut ValueWithSpan,
            post_visit_value: &mut ValueWithSpan
        );
    };
}

impl Visitor for DynVisitor<'_> {
    forward!((visitor, flow) => flow);
}

impl VisitorMut for DynVisitorMut<'_> {
    forward_mut!((visitor, flow) => flow);
}

impl<B> Visitor for RecordingVisitor<'_, B> {
    forward!((visitor, flow) => flow.map_break(|why| visitor.1 = Some(why)));
}

impl<B> VisitorMut for RecordingVisitorMut<'_, B> {
    forward_mut!((visitor, flow) => flow.map_break(|why| visitor.1 = Some(why)));
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::{BinaryOperator, Ident};

    use super::*;
    use crate::testing::query;

    /// Walks through a part of a statement.
    type Visited<'a> = &'a dyn Fn(&mut dyn FnMut(&Expr));

    fn select(query: &mut Query) -> &mut Select {
        match &mut *query.body {
            SetExpr::Select(select) => select,
            other => panic!("no select: {other}"),
        }
    }

    #[test]
    fn subqueries_are_not_looked_into() {
        let mut query = query(
            "select a, f(b + (select c from t where d = 1)) from u where e in (select g from v) and exists (select h)",
        );
        let names = |part: Visited<'_>| {
            let mut names = Vec::new();
            part(&mut |expr: &Expr| {
                if let Expr::Identifier(name) = expr {
                    names.push(name.value.clone());
                }
            });
            names
        };
        let select = select(&mut query);
        assert_eq!(names(&|look| look_outside_subqueries(&select.projection, |expr| look(expr))), ["a", "b"]);
        assert_eq!(names(&|look| look_outside_subqueries(&select.selection, |expr| look(expr))), ["e"]);
    }

    #[test]
    fn inner_parts_change_before_outer_ones() {
        let mut query = query("select a + b * (select a) as x, c from t");
        let mut seen = Vec::new();
        change_outside_subqueries(&mut select(&mut query).projection, |place| {
            match place {
                Expr::Identifier(name) => {
                    seen.push(name.value.clone());
                    *name = Ident::new(name.value.to_uppercase());
                }
                Expr::BinaryOp { op, .. } => {
                    seen.push(op.to_string());
                    if *op == BinaryOperator::Plus {
                        *op = BinaryOperator::Minus;
                    }
                }
                _ => {}
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, ["a", "b", "*", "+", "c"]);
        assert_eq!(query.to_string(), "SELECT A - B * (SELECT a) AS x, C FROM t");
    }

    #[test]
    fn the_first_error_ends_a_change() {
        let mut query = query("select a, b, c from t");
        let mut seen = 0;
        let done = change_outside_subqueries(&mut select(&mut query).projection, |place| {
            seen += 1;
            if place.to_string() == "b" { Err(Error::invalid("no `b`")) } else { Ok(()) }
        });
        assert_eq!((done.unwrap_err().message.as_str(), seen), ("no `b`", 2));
    }

    #[test]
    fn selects_come_with_the_order_of_their_rows() {
        let found = |text: &str| {
            let mut query = query(text);
            let mut found = Vec::new();
            selects(&mut query, |select, order| {
                found.push((select.projection.len(), order.is_some()));
                Ok(())
            })
            .unwrap();
            found.sort_unstable();
            found
        };
        assert_eq!(found("select 1 from t order by a"), [(1, true)]);
        assert_eq!(found("select 1 from t"), [(1, false)]);
        // The order of several is that of what they give together.
        assert_eq!(
            found("select 1 union select 1, 2 except (values (1)) union all select 1, 2, 3 order by 1"),
            [(1, false), (2, false), (3, false)]
        );
        assert!(found("values (1)").is_empty());
        let refused = selects(&mut query("select 1 union select 2"), |_, _| Err(Error::invalid("no select")));
        assert_eq!(refused.unwrap_err().message, "no select");
    }
}
