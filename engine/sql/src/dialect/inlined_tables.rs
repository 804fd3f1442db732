//! `WITH` of a subquery that reads the row at hand: its common tables are written where they are read. A correlated
//! subquery becomes a join, of which the common tables would see nothing.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Cte, Query, TableAlias, TableFactor, VisitorMut};

use super::common_tables::has_common;
use super::{empty_queries, equality_lookups};
use crate::names::normal;
use crate::statement_walk::walk_mut;

/// The most copies of common tables that one `WITH` may become.
const COPIES_MAX: usize = 64;

/// Writes out the common tables of correlated subqueries.
pub(super) fn translate(query: &mut Query) {
    let _ = walk_mut(query, &mut Queries { depth: 0 });
}

/// Visits the queries of a statement.
struct Queries {
    /// How many queries enclose the visited place.
    depth: usize,
}

impl VisitorMut for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        let is_plain = query.with.as_ref().is_some_and(|with| !with.recursive);
        if self.depth > 1
            && is_plain
            && equality_lookups::reads_row(query)
            && let Some(found) = written_out(query)
        {
            *query = found;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

/// A query with its common tables written out; `None` if there would be too many copies.
fn written_out(query: &Query) -> Option<Query> {
    let mut query = query.clone();
    let mut tables = query.with.take()?.cte_tables;
    // A copy of a table holds the copies that were put into it.
    let mut weights = vec![1_usize; tables.len()];
    let mut copies = 0;
    for at in 0..tables.len() {
        let (before, later) = tables.split_at_mut(at + 1);
        let (table, weight) = (before.last()?, weights[at]);
        let mut put = TableInliner { table, others: 0, copies: 0 };
        // A later table of that name would be another one.
        if later.iter().any(|later| put.is_called(&normal(&later.alias.name))) {
            return None;
        }
        for (later, of_later) in later.iter_mut().zip(&mut weights[at + 1..]) {
            let _ = walk_mut(&mut later.query, &mut put);
            *of_later += weight * std::mem::take(&mut put.copies);
            if *of_later > COPIES_MAX {
                return None;
            }
        }
        let _ = walk_mut(&mut query, &mut put);
        copies += weight * put.copies;
        if copies > COPIES_MAX {
            return None;
        }
    }
    Some(query)
}

/// Puts a common table where it is read.
struct TableInliner<'p> {
    table: &'p Cte,
    /// How many enclosing queries have another common table of that name.
    others: usize,
    copies: usize,
}

impl TableInliner<'_> {
    fn is_called(&self, name: &str) -> bool {
        normal(&self.table.alias.name) == name
    }

    fn has_other(&self, query: &Query) -> bool {
        has_common(query, |name| self.is_called(name))
    }

    /// The common table as a subquery, with the names that it has where it is read.
    fn as_subquery(&self, alias: Option<TableAlias>) -> TableFactor {
        let own = &self.table.alias;
        let plain = || TableAlias { explicit: true, name: own.name.clone(), columns: Vec::new(), at: None };
        let mut alias = alias.unwrap_or_else(plain);
        let given = alias.columns.len();
        alias.columns.extend(own.columns.iter().skip(given).cloned());
        TableFactor::Derived { lateral: false, subquery: self.table.query.clone(), alias: Some(alias), sample: None }
    }
}

impl VisitorMut for TableInliner<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.others += usize::from(self.has_other(query));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.others -= usize::from(self.has_other(query));
        ControlFlow::Continue(())
    }

    /// Afterwards, so that nothing is looked for in what was put there.
    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else { return ControlFlow::Continue(()) };
        let (schema, name) = empty_queries::named(name);
        if self.others == 0 && schema.is_none() && self.is_called(&name) {
            self.copies += 1;
            if self.copies > COPIES_MAX {
                return ControlFlow::Break(());
            }
            *factor = self.as_subquery(alias.take());
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Params, ReadStatement, parse};

    fn written(text: &str) -> String {
        let ReadStatement::Query(mut query) = parse(text, &Params::default()).expect(text).statement else {
            panic!("no query: {text}")
        };
        translate(&mut query);
        query.to_string()
    }

    #[test]
    fn common_tables_stand_where_they_are_read() {
        for (text, expected) in [
            (
                "select 1 from t, lateral (with c as (select w from r where r.k = t.k) select max(w) from c) l",
                "SELECT 1 FROM t, LATERAL (SELECT max(w) FROM (SELECT w FROM r WHERE r.k = t.k) AS c) l",
            ),
            (
                "select (with c(a, b) as (select 1, t.x), d as (select p from c x(p)) select d.p + c.b from d, c) from t",
                "SELECT (SELECT d.p + c.b FROM (SELECT p FROM (SELECT 1, t.x) x (p, b)) AS d, (SELECT 1, t.x) AS c (a, b)) \
                 FROM t",
            ),
            // What is read within is the table of that name, and what another WITH gives is another one.
            (
                "select 1 from t where exists (with r as (select 1 from r where r.k > t.k) \
                 select 1 from r where 1 in (with r as (select 2) select * from r))",
                "SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM (SELECT 1 FROM r WHERE r.k > t.k) AS r \
                 WHERE 1 IN (WITH r AS (SELECT 2) SELECT * FROM r))",
            ),
        ] {
            assert_eq!(written(text), expected);
        }
    }

    #[test]
    fn others_stay() {
        for text in [
            "WITH c AS (SELECT 1) SELECT (SELECT 2 FROM c) FROM t",
            "SELECT (WITH c AS (SELECT 1 AS a) SELECT a FROM c) FROM t",
            "SELECT (WITH RECURSIVE c AS (SELECT t.a UNION ALL SELECT a + 1 FROM c) SELECT max(a) FROM c) FROM t",
        ] {
            assert_eq!(written(text), text);
        }
    }

    #[test]
    fn copies_of_copies_are_few() {
        let mut tables = "c0 AS (SELECT t.a AS a)".to_owned();
        for at in 1..9 {
            let before = at - 1;
            tables = format!("{tables}, c{at} AS (SELECT 1 AS a FROM c{before} AS x, c{before} AS y)");
        }
        let text = format!("SELECT (WITH {tables} SELECT max(a) FROM c8) FROM t");
        assert_eq!(written(&text), text);
    }
}
