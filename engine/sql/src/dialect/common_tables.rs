//! Common tables that have the name of a table that they read: `WITH spans AS (SELECT … FROM spans) SELECT … FROM
//! spans`. A common table is visible to later ones and to its query, but not to itself, unless it is recursive. Such
//! a table is renamed, and its readers alias it to the old name, so that a name means one thing throughout a
//! statement. So is one whose name a query within takes for a common table of its own, which the planner refuses.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Cte, Ident, ObjectName, Query, TableAlias, TableFactor, VisitMut, Visitor, VisitorMut,
};

use crate::names::{normal, parts};
use crate::statement_walk::{walk, walk_mut};

/// Whether a query has a common table of such a name of its own.
pub(super) fn has_common(query: &Query, is_named: impl Fn(&str) -> bool) -> bool {
    query.with.iter().flat_map(|with| &with.cte_tables).any(|table| is_named(&normal(&table.alias.name)))
}

/// Renames common tables of a query, and of queries within it, whose names also refer to something else.
pub(crate) fn tell_apart(query: &mut Query) {
    let _ = walk_mut(query, &mut Renamer { count: 0 });
}

struct Renamer {
    /// How many names have been made so far.
    count: usize,
}

impl VisitorMut for Renamer {
    type Break = ();

    /// Inner queries are visited first, so their tables already differ when the outer ones are looked at.
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let Some(mut with) = query.with.take_if(|with| !with.recursive) else { return ControlFlow::Continue(()) };
        let mut mentioned = RelationNames::default();
        let mut names = Names::default();
        let mut within = CommonNames::default();
        for table in &with.cte_tables {
            let _ = walk(&table.query, &mut within);
        }
        // What remains of it are the queries within.
        let _ = walk(&*query, &mut within);
        for table in &mut with.cte_tables {
            let _ = walk(&table.query, &mut mentioned);
            names.put(&mut table.query);
            let name = normal(&table.alias.name);
            if mentioned.0.contains(&name) || within.0.contains(&name) {
                self.count += 1;
                let own = format!("{name} ({})", self.count + 1);
                rename(table, &own);
                names.given.insert(name, own);
            }
        }
        names.put(query);
        query.with = Some(with);
        ControlFlow::Continue(())
    }
}

fn rename(table: &mut Cte, name: &str) {
    let span = table.alias.name.span;
    table.alias.name = Ident { span, ..Ident::with_quote('"', name) };
}

/// Relations that are named without a schema.
#[derive(Default)]
struct RelationNames(HashSet<String>);

impl Visitor for RelationNames {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        if let [name] = parts(relation).as_slice() {
            self.0.insert(name.clone());
        }
        ControlFlow::Continue(())
    }
}

/// Common tables of all queries.
#[derive(Default)]
struct CommonNames(HashSet<String>);

impl Visitor for CommonNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.0.extend(tables.map(|table| normal(&table.alias.name)));
        ControlFlow::Continue(())
    }
}

/// New names of common tables, by their old ones.
#[derive(Default)]
struct Names {
    given: HashMap<String, String>,
    /// For each enclosing query, the names that its own common tables shadow.
    hidden: Vec<Vec<String>>,
}

impl Names {
    /// Replaces the old names in a part of a statement.
    fn put(&mut self, part: &mut impl VisitMut) {
        if !self.given.is_empty() {
            let _ = walk_mut(part, self);
        }
    }
}

impl VisitorMut for Names {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.hidden.push(tables.map(|table| normal(&table.alias.name)).collect());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.hidden.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table { name: relation, alias, args: None, .. } = factor else {
            return ControlFlow::Continue(());
        };
        let [name] = &parts(relation)[..] else { return ControlFlow::Continue(()) };
        if self.hidden.iter().flatten().any(|hidden| hidden == name) {
            return ControlFlow::Continue(());
        }
        if let Some(own) = self.given.get(name) {
            let called = Ident::with_quote('"', name);
            alias.get_or_insert_with(|| TableAlias { explicit: true, name: called, columns: Vec::new(), at: None });
            *relation = ObjectName::from(vec![Ident::with_quote('"', own)]);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Params, ReadStatement, parse};

    #[test]
    fn a_name_means_one_thing() {
        let check = |text: &str, expected: &str| {
            let ReadStatement::Query(mut query) = parse(text, &Params::default()).unwrap().statement else {
                panic!("no query: {text}");
            };
            tell_apart(&mut query);
            assert_eq!(query.to_string(), expected, "{text}");
        };
        check(
            "WITH spans AS (SELECT name FROM spans) SELECT spans.name FROM spans",
            r#"WITH "spans (2)" AS (SELECT name FROM spans) SELECT spans.name FROM "spans (2)" AS "spans""#,
        );
        // An alias of its own stays. A name with a schema is another table.
        check(
            "WITH a AS (SELECT 1 AS x FROM a) SELECT * FROM a AS b, public.a",
            r#"WITH "a (2)" AS (SELECT 1 AS x FROM a) SELECT * FROM "a (2)" AS b, public.a"#,
        );
        // Later common tables read the renamed one; earlier ones do not.
        check(
            "WITH b AS (SELECT * FROM a), a AS (SELECT * FROM b), c AS (SELECT * FROM a) SELECT * FROM a, b, c",
            "WITH b AS (SELECT * FROM a), \"a (2)\" AS (SELECT * FROM b), c AS (SELECT * FROM \"a (2)\" AS \"a\") \
             SELECT * FROM \"a (2)\" AS \"a\", b, c",
        );
        // The inner query has its own common table of that name.
        check(
            "WITH a AS (SELECT * FROM a) SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) AS d, a",
            r#"WITH "a (2)" AS (SELECT * FROM a) SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) AS d, "a (2)" AS "a""#,
        );
        check(
            "WITH a AS (SELECT 1) SELECT * FROM (WITH a AS (SELECT * FROM a) SELECT * FROM a) AS d",
            r#"WITH a AS (SELECT 1) SELECT * FROM (WITH "a (2)" AS (SELECT * FROM a) SELECT * FROM "a (2)" AS "a") AS d"#,
        );
        // A query within has a common table of the same name that does not read this one.
        check(
            "WITH a AS (SELECT 1 AS x), b AS (WITH a AS (SELECT 2 AS x) SELECT * FROM a) SELECT * FROM a, b",
            "WITH \"a (2)\" AS (SELECT 1 AS x), b AS (WITH a AS (SELECT 2 AS x) SELECT * FROM a) \
             SELECT * FROM \"a (2)\" AS \"a\", b",
        );
        check(
            "WITH a (x) AS (SELECT 1) SELECT * FROM a WHERE x IN (WITH a (x) AS (SELECT 2) SELECT x FROM a)",
            "WITH \"a (2)\" (x) AS (SELECT 1) SELECT * FROM \"a (2)\" AS \"a\" WHERE x IN \
             (WITH a (x) AS (SELECT 2) SELECT x FROM a)",
        );
        for same in [
            "WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT * FROM a, b",
            "WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM a WHERE n < 5) SELECT * FROM a",
            "WITH a AS (SELECT 1) SELECT * FROM (SELECT * FROM a) AS a",
        ] {
            check(same, same);
        }
    }
}
