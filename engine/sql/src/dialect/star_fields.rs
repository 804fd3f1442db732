//! Fields read through `*`: `SELECT level FROM (SELECT * FROM logs) q`, as tools write that wrap a query in another
//! one. `*` means the fixed columns of a table. Other fields that are read of such a subquery or common table are
//! added to its outputs, and excluded where `*` of it is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, GroupByExpr, Ident, JoinConstraint, ObjectName, OrderBy, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, VisitorMut, WildcardAdditionalOptions,
};

use super::columns::{called, constraint, factors, is_plain, leaves_out};
use super::common_tables::has_common;
use super::empty_queries;
use super::name_scope::{self, Scope};
use crate::catalog::Catalog;
use crate::names::{FixedColumnLookup, Names, alias_of, left_out, normal, parts};
use crate::statement_walk::{selects, walk_mut};

/// The most common tables that a field is followed through.
const TABLES_MAX: usize = 64;

/// Adds the fields that are read through `*` to the subqueries and common tables that they come from.
pub(super) fn translate(query: &mut Query, fixed: FixedColumnLookup<'_>) {
    let mut asked = FieldReferences::new();
    for _ in 0..TABLES_MAX {
        let mut stars = Stars { scope: Scope::new(fixed), open: Vec::new(), asked, wanted: FieldReferences::new() };
        let _ = walk_mut(query, &mut stars);
        asked = stars.wanted;
        if asked.is_empty() {
            return;
        }
    }
}

/// Names of common tables, each with the fields that are read of it.
type FieldReferences = BTreeMap<String, BTreeSet<String>>;

/// A table in a `FROM`.
type Table = name_scope::Table<Leads>;

/// Where fields of a table that are not among its columns come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leads {
    /// The table has no other fields.
    Nowhere,
    /// It is a table of telemetry, so they come from the data.
    ToData,
    /// It is a subquery or common table with a `*`, so they come from the tables within.
    Further,
}

struct Stars<'s> {
    scope: Scope<'s, Leads>,
    /// Names of common tables with a `*` of open tables.
    open: Vec<String>,
    /// Fields of common tables that were found in the last pass, and are added in this one.
    asked: FieldReferences,
    /// Fields of common tables that are found in this pass.
    wanted: FieldReferences,
}

impl Stars<'_> {
    fn table(&self, factor: &TableFactor) -> Table {
        let leads = match factor {
            TableFactor::Derived { subquery, alias, .. } => {
                let is_renamed = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
                if !is_renamed && self.leads_further(subquery) { Leads::Further } else { Leads::Nowhere }
            }
            TableFactor::Table { name, alias, args: None, .. } => {
                let named = empty_queries::named(name);
                if alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
                    Leads::Nowhere
                } else if self.scope.known().common_table(&named).is_some() {
                    if self.open.contains(&named.1) { Leads::Further } else { Leads::Nowhere }
                } else if !Catalog::has(&named) && (self.scope.known().fixed)(&named).is_some() {
                    Leads::ToData
                } else {
                    Leads::Nowhere
                }
            }
            _ => Leads::Nowhere,
        };
        self.scope.table(factor, leads)
    }

    fn tables(&self, select: &Select) -> Vec<Table> {
        select.from.iter().flat_map(factors).map(|factor| self.table(factor)).collect()
    }

    /// Whether a query has a `*` of a table that has more fields than `*` shows.
    fn leads_further(&self, query: &Query) -> bool {
        let SetExpr::Select(select) = &*query.body else { return false };
        query.with.is_none() && self.source(select).is_some()
    }

    /// The index of the only open table that the `*` of a select shows; `None` if there is none, or there are
    /// several.
    fn source(&self, select: &Select) -> Option<usize> {
        // With `DISTINCT` or `GROUP BY`, another output would change the rows.
        let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
        if select.distinct.is_some() || is_grouped {
            return None;
        }
        let tables = self.tables(select);
        let given = |table: &Table| {
            select.projection.iter().any(|item| match item {
                SelectItem::Wildcard(options) => is_plain(options),
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                    leaves_out(options) && parts(name).pop() == table.name
                }
                _ => false,
            })
        };
        let mut sources = (0..).zip(&tables).filter(|&(_, table)| table.beside != Leads::Nowhere && given(table));
        match (sources.next(), sources.next()) {
            (Some((at, _)), None) => Some(at),
            _ => None,
        }
    }

    /// Whether a query has a column among its outputs; `None` if that is not known.
    fn gives(&self, query: &Query, column: &str) -> Option<bool> {
        self.scope.known().of_query(query).map(|columns| columns.iter().any(|known| known == column))
    }

    /// Adds to a query a field that it has only through `*`. Returns whether it was added.
    fn give(&mut self, query: &mut Query, field: &str) -> bool {
        if self.gives(query, field) != Some(false) {
            return false;
        }
        let SetExpr::Select(select) = &mut *query.body else { return false };
        let Some(at) = self.source(select) else { return false };
        let Some(table) = self.tables(select).into_iter().nth(at) else { return false };
        if table.beside == Leads::Further
            && !table.may_have(field)
            && let Some(factor) = select.from.iter_mut().flat_map(factors_mut).nth(at)
        {
            self.read(factor, field);
        }
        // A subquery may have it in its `*` by now.
        if self.gives(query, field) == Some(true) {
            return true;
        }
        if let (SetExpr::Select(select), Some(table)) = (&mut *query.body, &table.name) {
            let column = vec![Ident::with_quote('"', table), Ident::with_quote('"', field)];
            select.projection.push(SelectItem::UnnamedExpr(Expr::CompoundIdentifier(column)));
            return true;
        }
        false
    }

    /// Makes a subquery or common table return a field. Returns whether that changed it; common tables are changed
    /// later.
    fn read(&mut self, factor: &mut TableFactor, field: &str) -> bool {
        match factor {
            TableFactor::Derived { subquery, .. } => self.give(subquery, field),
            TableFactor::Table { name, .. } => {
                self.wanted.entry(empty_queries::named(name).1).or_default().insert(field.to_owned());
                false
            }
            _ => false,
        }
    }

    /// Finds the fields that a select reads of its tables.
    fn of_select(&mut self, select: &mut Select, order: Option<&OrderBy>) {
        let tables = self.tables(select);
        if tables.iter().any(|table| table.beside == Leads::Further) {
            let names = names(select, order);
            let read: BTreeSet<(usize, &str)> = names.iter().filter_map(|name| self.reads(&tables, name)).collect();
            for (at, field) in read {
                let factor = select.from.iter_mut().flat_map(factors_mut).nth(at);
                if factor.is_some_and(|factor| self.read(factor, field)) {
                    hide(select, at, field);
                }
            }
        }
    }

    /// The index of the table from which a name is read through `*`, and the field.
    fn reads<'n>(&self, tables: &[Table], name: &'n [String]) -> Option<(usize, &'n str)> {
        let lacks = |table: &Table, field: &str| table.beside == Leads::Further && !table.may_have(field);
        match name {
            [field] => {
                let field = field.as_str();
                let is_other =
                    |table: &Table| table.beside == Leads::ToData || table.may_have(field) || table.is_called(field);
                let is_around = self.scope.visible().flatten().any(|table| table.may_have(field));
                if is_around || tables.iter().any(is_other) {
                    return None;
                }
                let mut found = (0..).zip(tables).filter(|&(_, table)| lacks(table, field));
                match (found.next(), found.next()) {
                    (Some((at, _)), None) => Some((at, field)),
                    _ => None,
                }
            }
            [.., table, field] => {
                let at = tables.iter().position(|known| known.is_called(table))?;
                lacks(&tables[at], field.as_str()).then_some((at, field.as_str()))
            }
            [] => None,
        }
    }
}

/// Excludes a field from the `*` of a select: its table has it only because it is read by name.
fn hide(select: &mut Select, at: usize, field: &str) {
    let Some(tables) = select.from.iter().flat_map(factors).map(called).collect::<Option<Vec<_>>>() else { return };
    // Columns merged by `USING` appear once in `*`, which lists of each table's columns could not express.
    let is_merged = select.from.iter().flat_map(|from| &from.joins).any(|join| {
        matches!(constraint(&join.join_operator), Some(JoinConstraint::Using(_) | JoinConstraint::Natural))
    });
    let all = |table: &String| {
        let name = ObjectName::from(vec![Ident::with_quote('"', table)]);
        let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
        SelectItem::QualifiedWildcard(kind, WildcardAdditionalOptions::default())
    };
    for item in std::mem::take(&mut select.projection) {
        match item {
            SelectItem::Wildcard(options) if is_plain(&options) && !is_merged => {
                select.projection.extend(tables.iter().map(all));
            }
            other => select.projection.push(other),
        }
    }
    for item in &mut select.projection {
        if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) = item
            && leaves_out(options)
            && parts(name).pop().as_ref() == tables.get(at)
        {
            let mut names = left_out(options);
            if !names.iter().any(|name| name == field) {
                names.push(field.to_owned());
            }
            let quoted = |name: &String| ObjectName::from(vec![Ident::with_quote('"', name)]);
            options.opt_exclude = Some(ExcludeSelectItem::Multiple(names.iter().map(quoted).collect()));
        }
    }
}

/// Excludes a field of a common table wherever `*` of the table is shown.
struct StarFieldExcluder<'h> {
    table: &'h str,
    field: &'h str,
    /// How many enclosing queries have another common table of that name.
    others: usize,
}

impl StarFieldExcluder<'_> {
    fn has_other(&self, query: &Query) -> bool {
        has_common(query, |name| name == self.table)
    }
}

impl VisitorMut for StarFieldExcluder<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.others += usize::from(self.has_other(query));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.others -= usize::from(self.has_other(query));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let is_it = |factor: &TableFactor| match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let is_renamed = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
                let (schema, name) = empty_queries::named(name);
                schema.is_none() && name == self.table && !is_renamed
            }
            _ => false,
        };
        if self.others == 0 {
            let tables = (0..).zip(select.from.iter().flat_map(factors));
            let found: Vec<usize> = tables.filter(|(_, factor)| is_it(factor)).map(|(at, _)| at).collect();
            for at in found {
                hide(select, at, self.field);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Names of columns in a select and its order, except names of its own outputs.
pub(super) fn names(select: &Select, order: Option<&OrderBy>) -> BTreeSet<Vec<String>> {
    let (mut plain, mut beside_outputs) = (Names::default(), Names::default());
    plain.read(&select.projection);
    plain.read(&select.from);
    plain.read(&select.selection);
    beside_outputs.read(&select.distinct);
    beside_outputs.read(&select.group_by);
    beside_outputs.read(&select.having);
    plain.read(&select.named_window);
    if let Some(order) = order {
        beside_outputs.read(order);
    }
    let aliases: Vec<String> = select.projection.iter().filter_map(alias_of).collect();
    beside_outputs.found.retain(|name| name.len() > 1 || !aliases.contains(&name[0]));
    plain.found.append(&mut beside_outputs.found);
    plain.found
}

/// Like [`factors`], but mutable.
pub(super) fn factors_mut(from: &mut TableWithJoins) -> impl Iterator<Item = &mut TableFactor> {
    std::iter::once(&mut from.relation).chain(from.joins.iter_mut().map(|join| &mut join.relation))
}

impl VisitorMut for Stars<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let Query { with, body, .. } = &mut *query;
        let mut left = with.as_mut().map(|with| with.cte_tables.as_mut_slice()).unwrap_or_default();
        while let [table, later @ ..] = left {
            let name = normal(&table.alias.name);
            for field in self.asked.get(&name).cloned().unwrap_or_default() {
                if self.give(&mut table.query, &field) {
                    let mut hiding = StarFieldExcluder { table: &name, field: &field, others: 0 };
                    for other in &mut *later {
                        let _ = walk_mut(&mut other.query, &mut hiding);
                    }
                    let _ = walk_mut(&mut *body, &mut hiding);
                }
            }
            if table.alias.columns.is_empty() && self.leads_further(&table.query) {
                self.open.push(name);
            }
            self.scope.add_common(table);
            left = later;
        }
        let done = selects(query, |select, order| {
            self.of_select(select, order.as_deref());
            Ok(())
        });
        if done.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let tables = self.tables(select);
        self.scope.enter(tables);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _select: &mut Select) -> ControlFlow<()> {
        self.scope.leave();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        self.scope.enter_table(factor);
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        self.scope.leave_table(factor);
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::TableName;
    use crate::parse::{Params, ReadStatement, parse};

    fn check(text: &str, expected: &str) {
        let fixed = |table: &TableName| match table.1.as_str() {
            "logs" => Some(vec!["time".to_owned(), "message".to_owned()]),
            "spans" => Some(vec!["trace_id".to_owned()]),
            "pg_database" => Some(vec!["oid".to_owned()]),
            _ => None,
        };
        let ReadStatement::Query(mut query) = parse(text, &Params::default()).expect(text).statement else {
            panic!("no query: {text}")
        };
        translate(&mut query, &fixed);
        assert_eq!(query.to_string(), expected, "{text}");
    }

    #[test]
    fn fields_are_read_through_subqueries() {
        check(
            "select level, q.n from (select * from logs) q where message = 'x' group by level order by host",
            "SELECT level, q.n FROM (SELECT *, \"logs\".\"host\", \"logs\".\"level\", \"logs\".\"n\" FROM logs) q \
             WHERE message = 'x' GROUP BY level ORDER BY host",
        );
        check(
            "select a.n from (select * from (select l.* from logs l) b) a",
            "SELECT a.n FROM (SELECT * FROM (SELECT l.*, \"l\".\"n\" FROM logs l) b) a",
        );
        check(
            "with src as (select * from logs), r as (select time, level as lv from src) select lv from r",
            "WITH src AS (SELECT *, \"logs\".\"level\" FROM logs), r AS (SELECT time, level AS lv FROM src) SELECT lv FROM r",
        );
        check(
            "select level, c from (select level, count(*) as c from (select * from logs) q group by q.level) a",
            "SELECT level, c FROM (SELECT level, count(*) AS c FROM (SELECT *, \"logs\".\"level\" FROM logs) q \
             GROUP BY q.level) a",
        );
        check(
            "with a as (select * from logs), b as (select * from a), c as (select * from b) select n from c",
            "WITH a AS (SELECT *, \"logs\".\"n\" FROM logs), b AS (SELECT \"a\".* EXCLUDE (\"n\"), \"a\".\"n\" FROM a), \
             c AS (SELECT \"b\".* EXCLUDE (\"n\"), \"b\".\"n\" FROM b) SELECT n FROM c",
        );
    }

    #[test]
    fn what_is_read_is_not_shown() {
        check(
            "select * from (select * from logs) q where level = 'x' union all select * from logs",
            "SELECT \"q\".* EXCLUDE (\"level\") FROM (SELECT *, \"logs\".\"level\" FROM logs) q WHERE level = 'x' \
             UNION ALL SELECT * FROM logs",
        );
        check(
            "select q.*, s.* from (select * from logs) q join spans s on q.n = s.trace_id where q.level = 'x'",
            "SELECT q.* EXCLUDE (\"level\", \"n\"), s.* FROM (SELECT *, \"logs\".\"level\", \"logs\".\"n\" FROM logs) q \
             JOIN spans s ON q.n = s.trace_id WHERE q.level = 'x'",
        );
        // A common table returns the field for all who read it, and `*` does not show it.
        check(
            "with a as (select * from logs) select x.*, y.level from a x, (select * from a) y",
            "WITH a AS (SELECT *, \"logs\".\"level\" FROM logs) SELECT x.* EXCLUDE (\"level\"), y.level \
             FROM a x, (SELECT \"a\".* EXCLUDE (\"level\"), \"a\".\"level\" FROM a) y",
        );
        // A table that reads the field for itself still returns it to those who ask for it.
        check(
            "with a as (select * from (select * from logs) q where level = 'x') select level from a",
            "WITH a AS (SELECT \"q\".* EXCLUDE (\"level\"), \"q\".\"level\" FROM (SELECT *, \"logs\".\"level\" FROM logs) q \
             WHERE level = 'x') SELECT level FROM a",
        );
    }

    #[test]
    fn others_are_left() {
        for text in [
            "SELECT message FROM (SELECT * FROM logs) q",
            "SELECT level FROM (SELECT time FROM logs) q",
            "SELECT level FROM (SELECT DISTINCT * FROM logs) q",
            "SELECT x FROM (SELECT * FROM t) q",
            "SELECT oid_2 FROM (SELECT d.oid, d.* FROM pg_database d) s",
            "SELECT level FROM (SELECT * FROM logs) q (a, b)",
            "SELECT a AS level FROM (SELECT time AS a, logs.* FROM logs) q GROUP BY level",
            // The field may be of either table.
            "SELECT level FROM (SELECT * FROM logs) q, (SELECT * FROM logs) r",
            "SELECT level FROM (SELECT * FROM logs) q, spans",
            "SELECT 1 FROM (SELECT 1 AS x) o WHERE EXISTS (SELECT 1 FROM (SELECT * FROM logs) q WHERE time = x)",
            "SELECT count(q) FROM (SELECT * FROM logs) q",
        ] {
            check(text, text);
        }
    }
}
