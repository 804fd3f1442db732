//! Refuses what belongs to aggregates and windows beside functions of one row, such as `lower(x) OVER ()`: DataFusion's
//! planner takes no notice of it.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArgumentClause, FunctionArguments, Query, Visitor,
};
use quiver_types::{Error, Result};

use crate::names::parts;
use crate::statement_walk::{refused, walk};

/// Refuses clauses that a call has no use for, given which functions are of one row.
///
/// # Errors
/// Invalid.
pub(crate) fn without_clauses(query: &Query, is_of_row: &dyn Fn(&str) -> bool) -> Result<()> {
    match walk(query, &mut Calls { is_of_row }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Calls<'f> {
    is_of_row: &'f dyn Fn(&str) -> bool,
}

impl Visitor for Calls<'_> {
    type Break = Box<Error>;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        let (Some(clause), Some(name)) = (clause_of(call), parts(&call.name).pop()) else {
            return ControlFlow::Continue(());
        };
        if !(self.is_of_row)(&name) {
            return ControlFlow::Continue(());
        }
        let other =
            if clause == "OVER" { "a window function nor an aggregate function" } else { "an aggregate function" };
        refused(Error::invalid(format!("{clause} specified, but {name} is not {other}")))
    }
}

/// The clause of a call that only aggregates and windows have.
fn clause_of(call: &Function) -> Option<&'static str> {
    if call.over.is_some() {
        return Some("OVER");
    }
    if call.filter.is_some() {
        return Some("FILTER");
    }
    if !call.within_group.is_empty() {
        return Some("WITHIN GROUP");
    }
    if call.null_treatment.is_some() {
        return Some("IGNORE NULLS");
    }
    let FunctionArguments::List(list) = &call.args else { return None };
    if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
        return Some("DISTINCT");
    }
    list.clauses.iter().find_map(|clause| match clause {
        FunctionArgumentClause::OrderBy(_) => Some("ORDER BY"),
        FunctionArgumentClause::IgnoreOrRespectNulls(_) => Some("IGNORE NULLS"),
        FunctionArgumentClause::Limit(_) => Some("LIMIT"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Params, ReadStatement, parse};

    fn check(text: &str, expected: Option<&str>) {
        let ReadStatement::Query(query) = parse(text, &Params::default()).unwrap().statement else {
            panic!("no query: {text}")
        };
        let found = without_clauses(&query, &|name| matches!(name, "lower" | "coalesce"));
        assert_eq!(found.err().map(|error| error.message).as_deref(), expected, "{text}");
    }

    #[test]
    fn functions_of_a_row_have_no_clauses_of_aggregates() {
        for (text, clause) in [
            ("select lower(a) filter (where b) from t", "FILTER"),
            ("select lower(distinct a) from t", "DISTINCT"),
            ("select lower(a order by a) from t", "ORDER BY"),
            ("select lower(a) within group (order by b) from t", "WITHIN GROUP"),
            ("select 1 from t where (select LOWER(a) ignore nulls) = 'a'", "IGNORE NULLS"),
        ] {
            check(text, Some(&format!("{clause} specified, but lower is not an aggregate function")));
        }
        check(
            "select sum(coalesce(a, 1) over (order by b)) from t",
            Some("OVER specified, but coalesce is not a window function nor an aggregate function"),
        );
        for text in [
            "select lower(a), lower(all a) from t",
            "select sum(distinct a) filter (where b), string_agg(a, ',' order by b) from t",
            "select rank() over (order by lower(a)) from t",
        ] {
            check(text, None);
        }
    }
}
