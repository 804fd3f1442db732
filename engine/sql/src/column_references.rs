//! Which columns a statement refers to, and of which table: fields, attributes and labels become columns by being
//! named.
//!
//! A name qualified by a table's alias belongs to that table. An unqualified one is resolved among the items of the
//! same `FROM`: it is a fixed column of a table or an output of a subquery if there is one, else it may be a column of
//! the data.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, ObjectName, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    TableFactor, TableWithJoins, Visit, Visitor, VisitorMut, WildcardAdditionalOptions,
};

use crate::dialect::{AGAIN, ColumnSources, Common, constraint, output_name};
use crate::names::{FixedColumnLookup, Names, TableName, alias_of, left_out, named, normal, parts, table_of_prefix};
use crate::statement_walk::{walk, walk_mut};

/// The tables that a statement names, each with the columns it speaks of that are not fixed ones.
pub(crate) type ColumnReferences = BTreeMap<TableName, BTreeSet<String>>;

/// Something in a `FROM`.
struct Relation {
    /// The name by which columns speak of it.
    alias: Option<String>,
    /// The table, if it is one of the catalog.
    table: Option<TableName>,
    /// Its columns as far as they are known; none: of a subquery with `*`.
    columns: Option<Vec<String>>,
    /// Its name with the schema, where columns speak of it without.
    path: Option<ObjectName>,
}

/// Finds what a query speaks of.
pub(crate) fn wanted(query: &Query, fixed: FixedColumnLookup<'_>) -> ColumnReferences {
    let mut finder = Finder { fixed, common: Vec::new(), around: Vec::new(), wanted: ColumnReferences::new() };
    let _ = walk(query, &mut finder);
    finder.wanted
}

struct Finder<'f> {
    fixed: FixedColumnLookup<'f>,
    common: Vec<Common>,
    /// The tables of each select around what is visited, inner ones last.
    around: Vec<Vec<Relation>>,
    wanted: ColumnReferences,
}

impl Visitor for Finder<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        add_common(query, self.fixed, &mut self.common);
        // The order of a query looks at the tables of its select.
        if let (SetExpr::Select(select), Some(order)) = (&*query.body, &query.order_by) {
            self.of_outputs(select, order);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let relations = relations(select, self.known());
        for relation in &relations {
            if let Some(table) = &relation.table {
                self.wanted.entry(table.clone()).or_default();
            }
        }
        let mut names = Names::default();
        names.read(&select.projection);
        names.read(&select.from);
        names.read(&select.selection);
        names.read(&select.distinct);
        self.add(&relations, names.found);
        select.from.iter().for_each(|from| self.of_using(from));
        self.of_outputs(select, &select.group_by);
        self.of_outputs(select, &select.having);
        self.of_outputs(select, &select.qualify);
        self.of_outputs(select, &select.named_window);
        self.around.push(relations);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _select: &Select) -> ControlFlow<()> {
        self.around.pop();
        ControlFlow::Continue(())
    }
}

impl Finder<'_> {
    fn known(&self) -> ColumnSources<'_> {
        ColumnSources { fixed: self.fixed, common: &self.common }
    }

    /// Names where an output of the select may be meant: its alias is no column of the data.
    fn of_outputs(&mut self, select: &Select, part: &impl Visit) {
        let mut names = Names::default();
        names.read(part);
        let aliases: Vec<String> = select.projection.iter().filter_map(alias_of).collect();
        names.found.retain(|name| name.len() > 1 || !aliases.contains(&name[0]));
        let relations = relations(select, self.known());
        self.add(&relations, names.found);
    }

    /// Columns that `USING` names: both sides have them.
    fn of_using(&mut self, from: &TableWithJoins) {
        let mut left = Vec::new();
        of_factor(&from.relation, self.known(), &mut left);
        for join in &from.joins {
            let mut right = Vec::new();
            of_factor(&join.relation, self.known(), &mut right);
            if let Some(JoinConstraint::Using(columns)) = constraint(&join.join_operator) {
                for column in columns.iter().filter_map(|column| parts(column).pop()) {
                    self.unqualified(&left, &column);
                    self.unqualified(&right, &column);
                }
            }
            left.append(&mut right);
        }
        for factor in std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)) {
            if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
                self.of_using(table_with_joins);
            }
        }
    }

    fn add(&mut self, relations: &[Relation], names: BTreeSet<Vec<String>>) {
        for name in names {
            match name.as_slice() {
                [column] => self.unqualified(relations, column),
                [.., alias, column] => {
                    let is_it = |r: &&Relation| r.alias.as_ref() == Some(alias);
                    // A subquery may speak of the row at hand, whose table has what it names.
                    let around = || self.around.iter().rev().flatten().find(is_it);
                    let owner = relations.iter().find(is_it).or_else(around);
                    if let Some(table) = owner.and_then(|r| r.table.clone()) {
                        self.want(&table, column);
                    }
                }
                [] => {}
            }
        }
    }

    fn unqualified(&mut self, relations: &[Relation], column: &str) {
        let is_known = |r: &Relation| r.columns.as_ref().is_none_or(|columns| columns.iter().any(|c| c == column));
        if relations.iter().any(is_known) {
            return;
        }
        let tables: Vec<&TableName> = relations.iter().filter_map(|r| r.table.as_ref()).collect();
        // Prefixed names of attributes and labels belong to their table, if the statement names it.
        let owner = table_of_prefix(column).filter(|owner| tables.iter().any(|t| t.1 == *owner));
        for table in tables {
            if owner.is_none_or(|owner| owner == table.1) {
                self.want(table, column);
            }
        }
    }

    fn want(&mut self, table: &TableName, column: &str) {
        if (self.fixed)(table).is_some_and(|fixed| !fixed.iter().any(|c| c == column)) {
            self.wanted.entry(table.clone()).or_default().insert(column.to_owned());
        }
    }
}

/// Notes the common tables of a query.
fn add_common(query: &Query, fixed: FixedColumnLookup<'_>, common: &mut Vec<Common>) {
    for table in query.with.iter().flat_map(|with| &with.cte_tables) {
        let columns = ColumnSources { fixed, common: common.as_slice() }.of_common(table);
        common.push((normal(&table.alias.name), columns));
    }
}

fn relations(select: &Select, known: ColumnSources<'_>) -> Vec<Relation> {
    let mut out = Vec::new();
    for TableWithJoins { relation, joins } in &select.from {
        std::iter::once(relation).chain(joins.iter().map(|join| &join.relation)).for_each(|factor| {
            of_factor(factor, known, &mut out);
        });
    }
    out
}

fn of_factor(factor: &TableFactor, known: ColumnSources<'_>, out: &mut Vec<Relation>) {
    match factor {
        TableFactor::Table { name, alias, args, .. } => {
            let named = named(name);
            let shown = alias.as_ref().map(|alias| normal(&alias.name));
            let is_table =
                |n: &TableName| args.is_none() && known.common_table(n).is_none() && (known.fixed)(n).is_some();
            let table = named.clone().filter(is_table);
            // What most table functions give is not known here.
            let columns = table.as_ref().map_or_else(|| known.of_factor(factor), known.fixed);
            let path = (alias.is_none() && table.is_some() && name.0.len() == 2).then(|| name.clone());
            out.push(Relation { alias: shown.or_else(|| named.map(|n| n.1)), table, columns, path });
        }
        TableFactor::Derived { alias, .. } => {
            let columns = known.of_factor(factor);
            let alias = alias.as_ref().map(|alias| normal(&alias.name));
            out.push(Relation { alias, table: None, columns, path: None });
        }
        TableFactor::NestedJoin { table_with_joins, .. } => {
            of_factor(&table_with_joins.relation, known, out);
            table_with_joins.joins.iter().for_each(|join| of_factor(&join.relation, known, out));
        }
        TableFactor::UNNEST { alias: Some(alias), .. } => {
            let columns = alias.columns.iter().map(|column| normal(&column.name)).collect();
            let alias = Some(normal(&alias.name));
            out.push(Relation { alias, table: None, columns: Some(columns), path: None });
        }
        // Columns of lists and the like have names of their own, or none.
        other => {
            let _ = other;
            out.push(Relation { alias: None, table: None, columns: Some(Vec::new()), path: None });
        }
    }
}

/// Writes `*` out where a table has columns beside its fixed ones: it stands for these alone.
pub(crate) fn expand_wildcards(query: &mut Query, wanted: &ColumnReferences, fixed: FixedColumnLookup<'_>) {
    let _ = walk_mut(query, &mut Expander { wanted, fixed, common: Vec::new(), depth: 0 });
}

struct Expander<'e> {
    wanted: &'e ColumnReferences,
    fixed: FixedColumnLookup<'e>,
    common: Vec<Common>,
    /// Of queries around what is visited.
    depth: usize,
}

impl VisitorMut for Expander<'_> {
    type Break = ();

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        add_common(query, self.fixed, &mut self.common);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let relations = relations(select, ColumnSources { fixed: self.fixed, common: &self.common });
        Self::with_schema(select, &relations);
        Self::name_again(select, &relations, if self.depth == 1 { AGAIN } else { '_' });
        let has_more = |r: &Relation| {
            r.table.as_ref().is_some_and(|table| self.wanted.get(table).is_some_and(|columns| !columns.is_empty()))
        };
        if !relations.iter().any(has_more) || relations.iter().any(|r| r.alias.is_none()) {
            return ControlFlow::Continue(());
        }
        let items = std::mem::take(&mut select.projection);
        let all = |r: &Relation| r.alias.as_ref().map_or_else(Vec::new, |alias| self.columns_of(r, alias, has_more(r)));
        for item in items {
            match &item {
                // What it gives instead of columns is not of one table.
                SelectItem::Wildcard(options) if options.opt_replace.is_none() => {
                    select.projection.extend(relations.iter().flat_map(all));
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                    let alias = parts(name).pop().unwrap_or_default();
                    match relations.iter().find(|r| r.alias.as_ref() == Some(&alias) && has_more(r)) {
                        Some(relation) => {
                            let left_out = left_out(options);
                            let is_given = |item: &SelectItem| match item {
                                SelectItem::UnnamedExpr(column) => !left_out.contains(&normal(&output_name(column))),
                                _ => true,
                            };
                            select.projection.extend(all(relation).into_iter().filter(is_given));
                        }
                        None => select.projection.push(item),
                    }
                }
                _ => select.projection.push(item),
            }
        }
        ControlFlow::Continue(())
    }
}

impl Expander<'_> {
    /// Gives `t.*` the schema that the table is named with: the planner knows it by both.
    fn with_schema(select: &mut Select, relations: &[Relation]) {
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item
                && let [alias] = parts(name).as_slice()
                && let Some(relation) = relations.iter().find(|r| r.alias.as_ref() == Some(alias))
                && let Some(path) = &relation.path
            {
                name.clone_from(path);
            }
        }
    }

    /// Names outputs once more that `*` gives too (`SELECT t.a, t.* FROM t`): two columns for PostgreSQL, and an error for
    /// DataFusion.
    fn name_again(select: &mut Select, relations: &[Relation], again: char) {
        let is_given = |r: &&Relation| {
            select.projection.iter().any(|item| match item {
                SelectItem::Wildcard(_) => true,
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    r.alias.is_some() && parts(name).pop() == r.alias
                }
                _ => false,
            })
        };
        let columns = relations.iter().filter(is_given).filter_map(|r| r.columns.as_ref());
        let mut given: BTreeSet<String> = columns.flatten().cloned().collect();
        for item in &select.projection {
            if let SelectItem::QualifiedWildcard(_, options) = item {
                given.retain(|name| !left_out(options).contains(name));
            }
        }
        if given.is_empty() {
            return;
        }
        let own = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
                Some((expr.clone(), normal(&output_name(expr))))
            }
            SelectItem::ExprWithAlias { expr, alias } => Some((expr.clone(), normal(alias))),
            _ => None,
        };
        let mut taken = given.clone();
        taken.extend(select.projection.iter().filter_map(own).map(|(_, name)| name));
        for item in &mut select.projection {
            let Some((expr, name)) = own(item).filter(|(_, name)| given.contains(name)) else { continue };
            let mut free = (2..).map(|times| format!("{name}{again}{times}")).filter(|name| !taken.contains(name));
            let Some(name) = free.next() else { continue };
            *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', &name) };
            taken.insert(name);
        }
    }

    fn columns_of(&self, relation: &Relation, alias: &str, written_out: bool) -> Vec<SelectItem> {
        let quoted = |name: &str| Ident::with_quote('"', name);
        let Some(columns) = relation.table.as_ref().and_then(self.fixed).filter(|_| written_out) else {
            let kind = SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![quoted(alias)]));
            return vec![SelectItem::QualifiedWildcard(kind, WildcardAdditionalOptions::default())];
        };
        let column =
            |name: &String| SelectItem::UnnamedExpr(Expr::CompoundIdentifier(vec![quoted(alias), quoted(name)]));
        columns.iter().map(column).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Params, ReadStatement, parse};

    fn fixed(table: &TableName) -> Option<Vec<String>> {
        let of = |names: &[&str]| Some(names.iter().map(|n| (*n).to_owned()).collect());
        match table.1.as_str() {
            "logs" => of(&["time", "message", "trace_id", "fields"]),
            "spans" => of(&["start_time", "duration", "trace_id", "name"]),
            "metric_samples" => of(&["time", "value", "name"]),
            _ => None,
        }
    }

    fn query(text: &str) -> Query {
        match parse(text, &Params::default()).unwrap_or_else(|e| panic!("{text}: {e}")).statement {
            ReadStatement::Query(query) => *query,
            other => panic!("{other:?}"),
        }
    }

    fn check(text: &str, expected: &[(&str, &[&str])]) {
        let found = wanted(&query(text), &fixed);
        let found: Vec<(&str, Vec<&str>)> =
            found.iter().map(|(t, c)| (t.1.as_str(), c.iter().map(String::as_str).collect())).collect();
        let expected: Vec<(&str, Vec<&str>)> = expected.iter().map(|(t, c)| (*t, c.to_vec())).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn names_find_their_tables() {
        check("select message, level from logs where \"user.id\" = '5'", &[("logs", &["level", "user.id"])]);
        check("select date_trunc('minute', time) as m, count(*) n from logs group by m order by n", &[("logs", &[])]);
        check("select upper(level) as level from logs group by level", &[("logs", &["level"])]);
        check(
            "select l.level, duration, \"attributes.x\" from logs l join spans s on l.trace_id = s.trace_id",
            &[("logs", &["level"]), ("spans", &["attributes.x"])],
        );
        check(
            "select x.a from (select level as a from logs) x join spans on true where a > 1 and \"resource.h\" = ''",
            &[("logs", &["level"]), ("spans", &["resource.h"])],
        );
        check("with c as (select host from logs) select host from c", &[("logs", &["host"])]);
        check(
            "select message from logs where trace_id in (select trace_id from spans where duration > 5)",
            &[("logs", &[]), ("spans", &[])],
        );
        check("select 1 from logs a join logs b using (level, trace_id, host)", &[("logs", &["host", "level"])]);
        check(
            "select 1 from (logs a left join logs b using (level)) join spans using (trace_id)",
            &[("logs", &["level"]), ("spans", &[])],
        );
        check("select 1 from quiver.logs order by logs.host", &[("logs", &["host"])]);
        check("select * from nothing where x = 1", &[]);
        check("select x, level from logs, (values (1)) v(x)", &[("logs", &["level"])]);
        check("select x, level from logs, (select 1 as y) v(x)", &[("logs", &["level"])]);
        check("with c as (select 1 as x) select x, level from logs, c", &[("logs", &["level"])]);
        check(
            "with c as (select 1 union all select 2), d(x) as (select * from c) select x, level from logs, d",
            &[("logs", &["level"])],
        );
        check("select x, level from logs, generate_series(1, 3) x", &[("logs", &["level"])]);
        check("select x, level from logs, promql_instant('up', 1)", &[("logs", &[])]);
    }

    #[test]
    fn stars_are_fixed_columns() {
        let check = |text: &str, expected: &str| {
            let mut query = query(text);
            let wanted = wanted(&query, &fixed);
            expand_wildcards(&mut query, &wanted, &fixed);
            assert_eq!(query.to_string(), expected);
        };
        check("select * from logs", "SELECT * FROM logs");
        check("select logs.*, 1 from quiver.logs", "SELECT quiver.logs.*, 1 FROM quiver.logs");
        check("select logs.* from quiver.logs as logs", "SELECT logs.* FROM quiver.logs AS logs");
        check(
            "select * from logs where level = 'x'",
            "SELECT \"logs\".\"time\", \"logs\".\"message\", \"logs\".\"trace_id\", \"logs\".\"fields\" FROM logs \
             WHERE level = 'x'",
        );
        check("select l.time, l.* from logs l", "SELECT l.time AS \"time\u{2063}2\", l.* FROM logs l");
        check(
            "select l.time, upper(x) as name, s.* from logs l, spans s",
            "SELECT l.time, upper(x) AS \"name\u{2063}2\", \"s\".\"start_time\", \"s\".\"duration\", \"s\".\"trace_id\", \
             \"s\".\"name\" FROM logs l, spans s",
        );
        check("select s.*, l.host from logs l, spans s", "SELECT s.*, l.host FROM logs l, spans s");
        check(
            "select *, -v.x as x from (values (1, 2)) v(x, y)",
            "SELECT *, -v.x AS \"x\u{2063}2\" FROM (VALUES (1, 2)) v (x, y)",
        );
    }
}
