//! Kinds of types that the catalog does not have: domains, rows, enumerations, ranges. Drivers (asyncpg) ask for them
//! by `CASE WHEN typtype = 'd' THEN (SELECT …)`, with correlated recursive subqueries that the planner cannot take.
//! Branches that can never apply are removed.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, ObjectName, Query, Value, Visitor};

use super::expressions::{literal, take};
use crate::names::{normal, parts};
use crate::statement_walk::walk;

/// Kinds that the types of the catalog have: base types and pseudo-types.
const KINDS: [&str; 2] = ["b", "p"];

/// Whether a statement reads `pg_type`.
pub(super) fn reads_types(query: &Query) -> bool {
    struct Finder;
    impl Visitor for Finder {
        type Break = ();

        fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
            let is_types = parts(name).last().is_some_and(|table| table == "pg_type");
            if is_types { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    walk(query, &mut Finder).is_break()
}

/// Removes the branches of a `CASE` for kinds of types that do not exist here.
pub(super) fn fold(place: &mut Expr) {
    let Expr::Case { operand: None, conditions, else_result, .. } = place else { return };
    conditions.retain(|when| !is_never(&when.condition));
    if conditions.is_empty() {
        *place = else_result.as_mut().map_or_else(|| Expr::Value(Value::Null.into()), |other| take(other));
    }
}

fn is_never(condition: &Expr) -> bool {
    let Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = condition else { return false };
    is_column(left, "typtype") && literal(right).is_some_and(|kind| !KINDS.contains(&kind))
}

/// Whether a value is the function that reads a type's binary form. It is a number, which clients compare with 0 and
/// with `pg_proc.oid` (Npgsql), and which others read as its name (ADBC): it is a name in outputs and in texts.
pub(super) fn is_receiver(expr: &Expr) -> bool {
    is_column(expr, "typreceive")
}

fn is_column(expr: &Expr, wanted: &str) -> bool {
    let name = match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(names) => names.last(),
        _ => None,
    };
    name.is_some_and(|name| normal(name) == wanted)
}

#[cfg(test)]
mod tests {
    use super::super::expressions::expr;
    use super::*;
    use crate::parse::{Params, ReadStatement, parse};

    #[test]
    fn branches_for_kinds_that_are_not_there_are_removed() {
        for (text, expected) in [
            (
                "CASE WHEN t.typtype = 'd' THEN 1 WHEN typtype = 'b' THEN 2 ELSE 3 END",
                "CASE WHEN typtype = 'b' THEN 2 ELSE 3 END",
            ),
            ("CASE WHEN typtype = 'e' THEN 1 ELSE a END", "a"),
            ("CASE WHEN typtype = 'r' THEN 1 END", "NULL"),
            ("CASE WHEN typname = 'd' THEN 1 END", "CASE WHEN typname = 'd' THEN 1 END"),
            ("CASE typtype WHEN 'd' THEN 1 END", "CASE typtype WHEN 'd' THEN 1 END"),
        ] {
            let mut value = expr(text).unwrap();
            fold(&mut value);
            assert_eq!(value.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn functions_that_read_types_are_columns_of_one_name() {
        for (text, expected) in [
            ("typreceive", true),
            ("t.TypReceive", true),
            ("\"TypReceive\"", false),
            ("t.typsend", false),
            ("typreceive = 1", false),
            ("'typreceive'", false),
        ] {
            assert_eq!(is_receiver(&expr(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn types_may_be_read_anywhere_in_a_statement() {
        for (text, expected) in [
            ("select 1 from pg_catalog.pg_type", true),
            ("select 1 from a join PG_TYPE t on t.oid = a.b", true),
            ("select 1 from a where b in (select oid from pg_type)", true),
            ("select pg_type from a", false),
            ("select 1 from \"PG_TYPE\"", false),
        ] {
            let ReadStatement::Query(query) = parse(text, &Params::default()).expect(text).statement else {
                panic!("no query: {text}")
            };
            assert_eq!(reads_types(&query), expected, "{text}");
        }
    }
}
