//! Limits how deeply subqueries are nested in expressions. DataFusion checks the subqueries of a plan again with each
//! one around them, so each level doubles the time: thirty levels, half a kilobyte of text, would never end.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, Visitor};
use quiver_types::{Error, ErrorKind, Result};

use crate::statement_walk::walk;

/// Most of them one in the other; what people write has two or three.
const SUBQUERIES_MAX: usize = 10;

/// Refuses more.
///
/// # Errors
/// LimitExceeded.
pub(crate) fn few_levels(query: &Query) -> Result<()> {
    match walk(query, &mut Levels::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => {
            let text = format!("a statement has at most {SUBQUERIES_MAX} subqueries one in the other");
            Err(Error::new(ErrorKind::LimitExceeded, text))
        }
    }
}

/// Where a walk stands.
#[derive(Default)]
struct Levels {
    /// Queries of the expressions around, by their places in memory: tables of `FROM` are no levels.
    queries: Vec<*const Query>,
    depth: usize,
}

/// The query of an expression that is made of one.
fn query_of(expr: &Expr) -> Option<*const Query> {
    match expr {
        Expr::Subquery(query) | Expr::Exists { subquery: query, .. } | Expr::InSubquery { subquery: query, .. } => {
            Some(std::ptr::from_ref(&**query))
        }
        _ => None,
    }
}

impl Visitor for Levels {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.queries.extend(query_of(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if query_of(expr).is_some() {
            self.queries.pop();
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.depth += usize::from(self.queries.last() == Some(&std::ptr::from_ref(query)));
        if self.depth > SUBQUERIES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.depth -= usize::from(self.queries.last() == Some(&std::ptr::from_ref(query)));
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use crate::parse::{Params, ReadStatement, parse};

    use super::*;

    fn read(text: &str) -> Result<()> {
        let ReadStatement::Query(query) = parse(text, &Params::default())?.statement else {
            panic!("no query: {text}")
        };
        few_levels(&query)
    }

    #[test]
    fn levels_of_subqueries_are_bounded() {
        for (open, close) in [("select (", ")"), ("select exists (", ")"), ("select 1 in (", ")")] {
            let nested = |levels: usize| format!("{}select 1{}", open.repeat(levels), close.repeat(levels));
            read(&nested(SUBQUERIES_MAX)).unwrap_or_else(|e| panic!("{open}: {e}"));
            let error = read(&nested(SUBQUERIES_MAX + 1)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::LimitExceeded, "{open}: {error}");
        }
        // Side by side, and tables of `FROM`, are no levels.
        read(&format!("select 1{}", " + (select 1)".repeat(40))).unwrap();
        read(&format!("{}select 1{}", "select * from (".repeat(12), ") t".repeat(12))).unwrap();
    }
}
