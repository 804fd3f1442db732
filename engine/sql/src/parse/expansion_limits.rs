//! Limits the tables of a statement after each name of a `WITH` is replaced by its query. Plans contain that query
//! once per use: thirty names that each use the previous one twice are a billion tables, from two kilobytes of text.
//! Grouping sets are limited, too: `CUBE` of sixteen keys has 65,536, and each row belongs to all of them. So are
//! outputs that grouping and sort keys name: plans contain the whole expression for each name.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArguments, GroupByExpr, GroupByWithModifier, ObjectName, Query, Select, SetExpr, Visitor,
};
use quiver_types::{Error, ErrorKind, Result};

use crate::names::{normal, parts};
use crate::statement_walk::walk;

mod outputs;

/// The most tables, counting each use of a name.
const TABLES_MAX: usize = 500;
/// The most grouping sets of a select.
const SETS_MAX: usize = 256;

/// Refuses a query with too many tables.
///
/// # Errors
///
/// LimitExceeded.
pub(super) fn few_tables(query: &Query) -> Result<()> {
    match walk(query, &mut Counter::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(Many::Tables) => {
            let text = format!(
                "a statement comes to more than {TABLES_MAX} tables where each use of a name of its `WITH` counts as \
                 the tables of its query"
            );
            Err(Error::new(ErrorKind::LimitExceeded, text))
        }
        ControlFlow::Break(Many::Sets) => {
            let text = format!("`GROUP BY` comes to more than {SETS_MAX} sets of groups (`CUBE`, `GROUPING SETS`)");
            Err(Error::new(ErrorKind::LimitExceeded, text))
        }
        ControlFlow::Break(Many::Outputs) => {
            let text = format!(
                "groups and orders name the same outputs again and again: with each name standing for the whole output \
                 they come to more than {} bytes",
                outputs::NAMED_AGAIN_MAX
            );
            Err(Error::new(ErrorKind::LimitExceeded, text))
        }
    }
}

/// What there are too many of.
#[derive(Debug, Clone, Copy)]
enum Many {
    Tables,
    Sets,
    Outputs,
}

/// The number of grouping sets that an expression of `GROUP BY` stands for.
fn sets(expr: &Expr) -> usize {
    let of_all = |exprs: &Vec<Expr>| exprs.iter().map(sets).fold(1, usize::saturating_mul);
    match expr {
        Expr::Cube(keys) => cubed(keys.len()),
        Expr::Rollup(keys) => keys.len().saturating_add(1),
        Expr::GroupingSets(each) => each.iter().map(of_all).fold(0, usize::saturating_add),
        Expr::Nested(inner) => sets(inner),
        // Within `GROUPING SETS` the parser takes these for function calls.
        Expr::Function(call) => match (parts(&call.name).as_slice(), &call.args) {
            ([name], FunctionArguments::List(list)) if name == "cube" => cubed(list.args.len()),
            ([name], FunctionArguments::List(list)) if name == "rollup" => list.args.len().saturating_add(1),
            _ => 1,
        },
        _ => 1,
    }
}

fn cubed(keys: usize) -> usize {
    u32::try_from(keys).ok().and_then(|keys| 2_usize.checked_pow(keys)).unwrap_or(usize::MAX)
}

/// A query that is being visited.
#[derive(Debug, Default)]
struct Level {
    /// Its name, if it is one of a `WITH`.
    name: Option<String>,
    tables: usize,
    /// The numbers of tables of the names in its `WITH` so far.
    known: HashMap<String, usize>,
}

#[derive(Debug, Default)]
struct Counter {
    levels: Vec<Level>,
    /// Names of queries that are yet to be visited, by their addresses.
    named: HashMap<usize, String>,
}

fn place(query: &Query) -> usize {
    std::ptr::from_ref(query).addr()
}

impl Counter {
    fn add(&mut self, tables: usize) -> ControlFlow<Many> {
        let Some(level) = self.levels.last_mut() else { return ControlFlow::Continue(()) };
        level.tables = level.tables.saturating_add(tables);
        if level.tables > TABLES_MAX { ControlFlow::Break(Many::Tables) } else { ControlFlow::Continue(()) }
    }
}

impl Visitor for Counter {
    type Break = Many;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Many> {
        let name = self.named.remove(&place(query));
        self.levels.push(Level { name, ..Level::default() });
        for named in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.named.insert(place(&named.query), normal(&named.alias.name));
        }
        match &*query.body {
            SetExpr::Select(select) => outputs::in_order(select, query.order_by.as_ref()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<Many> {
        let Some(level) = self.levels.pop() else { return ControlFlow::Continue(()) };
        let Some(name) = level.name else { return self.add(level.tables) };
        if let Some(around) = self.levels.last_mut() {
            // A query without tables counts as one, since it takes room as well.
            around.known.insert(name, level.tables.max(1));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Many> {
        let GroupByExpr::Expressions(exprs, modifiers) = &select.group_by else { return ControlFlow::Continue(()) };
        let of_modifier = |modifier: &GroupByWithModifier| match modifier {
            GroupByWithModifier::Cube => cubed(exprs.len()),
            GroupByWithModifier::Rollup => exprs.len().saturating_add(1),
            GroupByWithModifier::GroupingSets(expr) => sets(expr),
            GroupByWithModifier::Totals => 2,
        };
        let each = exprs.iter().map(sets).chain(modifiers.iter().map(of_modifier));
        if each.fold(1, usize::saturating_mul) > SETS_MAX {
            return ControlFlow::Break(Many::Sets);
        }
        outputs::in_groups(select)
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<Many> {
        let known = match parts(name).as_slice() {
            [name] => self.levels.iter().rev().find_map(|level| level.known.get(name)).copied(),
            _ => None,
        };
        self.add(known.unwrap_or(1))
    }
}

#[cfg(test)]
mod tests {
    use crate::parse::{ReadStatement, parse_open};

    #[test]
    fn sets_of_groups_are_few() {
        let check = |groups: &str, is_read: bool| {
            let read = parse_open(&format!("select count(*) from t group by {groups}"));
            assert_eq!(read.is_ok(), is_read, "{groups}: {read:?}");
        };
        let keys = |n: usize| (0..n).map(|n| format!("a{n}")).collect::<Vec<_>>().join(", ");
        check(&keys(20), true);
        check(&format!("cube({})", keys(8)), true);
        check(&format!("cube({})", keys(9)), false);
        check(&format!("rollup({})", keys(40)), true);
        check(&format!("rollup({}), cube(b, c, d), e", keys(40)), false);
        check("grouping sets ((a), (b, c), ())", true);
        check(&format!("cube({0}), cube({0})", keys(5)), false);
        check(&format!("grouping sets (cube({}), (a, b))", keys(7)), true);
        check(&format!("grouping sets (cube({0}), Cube({0}), cube({0}))", keys(7)), false);
        check(&format!("grouping sets (cube({}))", keys(9)), false);
        check(&format!("grouping sets (rollup({}), rollup(a, b))", keys(252)), true);
        check(&format!("grouping sets (rollup({}), rollup(a, b))", keys(255)), false);
    }

    /// A `WITH` in which each name uses the previous one twice.
    fn doubled(names: usize, query: &str) -> String {
        let first = "a0 as (select 1 x)".to_owned();
        let others = (1..names).map(|n| format!("a{n} as (select b.x from a{} b, A{0} c)", n - 1));
        let all: Vec<String> = std::iter::once(first).chain(others).collect();
        query.replace("NAMES", &all.join(", ")).replace("LAST", &format!("a{}", names - 1))
    }

    #[test]
    fn names_that_use_names_count_as_often() {
        let check = |statement: &str, is_read: bool| match parse_open(statement) {
            Ok(read) => assert!(is_read && matches!(read.statement, ReadStatement::Query(_)), "{statement}"),
            Err(error) => assert!(!is_read && error.message.contains("comes to more"), "{statement}: {error:?}"),
        };
        for query in [
            "with NAMES select count(*) from LAST",
            "select * from (with NAMES select x from LAST) t",
            "with outermost as (with NAMES select x from LAST) select x from outermost",
            "select 1 where exists (with NAMES select x from LAST)",
        ] {
            check(&doubled(8, query), true);
            check(&doubled(30, query), false);
        }
        let inner = "with b as (NAMED select x from LAST), c as (select b.x from b, b d) \
                     select c.x from c, c d, c e, c f";
        check(&doubled(5, &inner.replace("NAMED", "with NAMES")), true);
        check(&doubled(9, &inner.replace("NAMED", "with NAMES")), false);
        // A name in one query is independent of the same name in another.
        let apart = "select * from (with NAMES select x from LAST) t, (select x from LAST) u, (select x from LAST) v";
        check(&doubled(8, apart), true);
        check("with recursive r as (select 1 n union all select n + 1 from r where n < 5) select n from r, r s", true);
        check("with a as (select 1), b as (select * from a, a x, a y) select * from b, b c, b d", true);
    }
}
