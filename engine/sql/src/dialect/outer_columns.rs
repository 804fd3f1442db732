//! Columns of a query around that a subquery speaks of without their table: they are given it.
//!
//! Tables of telemetry have any column that the data has. So `(SELECT count(*) FROM logs WHERE level = lv)` would look for a
//! field `lv`, and find none, though the query around has an output of that name. Subqueries that read the row at hand are
//! also known by the table.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, LimitClause, OrderBy, Query, Select, SetExpr, TableFactor, VisitorMut,
};

use super::columns::factors;
use super::empty_queries;
use super::expressions::{bare, is_bare_function};
use super::name_scope::{self, Scope};
use super::set_returning_functions::{gives_rows, gives_value};
use crate::names::{FixedColumnLookup, alias_of, normal};
use crate::statement_walk::{change_outside_subqueries, walk_mut};

/// Qualifies bare names in subqueries with the outer table that has such a column, if no table of their own has one.
pub(super) fn translate(query: &mut Query, fixed: FixedColumnLookup<'_>) {
    let mut fields = HashSet::new();
    for is_noting in [true, false] {
        let mut outer = Outer { scope: Scope::new(fixed), fields, is_noting, orders: Vec::new() };
        let _ = walk_mut(query, &mut outer);
        fields = outer.fields;
    }
}

/// A table in a `FROM`.
type Table = name_scope::Table<Beside>;

/// What is known of a table in addition to its columns.
struct Beside {
    /// Whether the data may give it more columns.
    is_open: bool,
    /// Whether it is an unnested list, whose column has the planner's name in addition to that of the statement.
    gives_items: bool,
    /// Whether it is such a list, or a function that gives rows, without a name of the statement.
    is_unnamed: bool,
}

/// The planner's name for the items of a list.
const ITEM: &str = "value";

struct Outer<'o> {
    scope: Scope<'o, Beside>,
    /// Names that can only be fields of the data somewhere in the statement: they are fields everywhere.
    fields: HashSet<String>,
    /// Whether this is the first pass, which only collects `fields`.
    is_noting: bool,
    /// Of each query around its sort keys, where these have been visited already.
    orders: Vec<Option<OrderBy>>,
}

impl Outer<'_> {
    fn tables(&self, select: &Select) -> Vec<Table> {
        select.from.iter().flat_map(factors).map(|factor| self.table(factor)).collect()
    }

    /// Visits the sort keys of a query, whose subqueries see the tables of its select, and takes them.
    fn take_order(&mut self, query: &mut Query) -> Option<OrderBy> {
        let SetExpr::Select(select) = &*query.body else { return None };
        let mut order = query.order_by.take()?;
        let tables = self.tables(select);
        self.scope.enter(tables);
        let _ = walk_mut(&mut order, self);
        self.scope.leave();
        Some(order)
    }

    fn table(&self, factor: &TableFactor) -> Table {
        let known = self.scope.known();
        let is_open = match factor {
            TableFactor::Table { name, args: None, .. } => {
                let named = empty_queries::named(name);
                known.common_table(&named).is_none() && (known.fixed)(&named).is_some()
            }
            _ => false,
        };
        let gives_items = match factor {
            TableFactor::UNNEST { alias: Some(alias), .. } => alias.columns.is_empty(),
            TableFactor::Table { name, alias: Some(alias), args: Some(_), .. } => {
                alias.columns.is_empty() && !bare(name).is_some_and(|name| gives_value(&name))
            }
            _ => false,
        };
        let unnamed = of_unnamed(factor);
        let mut table = self.scope.table(factor, Beside { is_open, gives_items, is_unnamed: unnamed.is_some() });
        table.columns = table.columns.or(unnamed);
        table
    }

    /// Collects a name that can only be a field of the data.
    fn note(&mut self, own: &[Table], place: &Expr) {
        let field = match place {
            Expr::Identifier(column) => {
                let column = normal(column);
                let may_be = |table: &Table| table.may_have(&column);
                let is_other = own.iter().any(may_be) || self.scope.visible().any(|tables| tables.iter().any(may_be));
                (own.iter().any(|table| table.beside.is_open) && !is_other).then_some(column)
            }
            Expr::CompoundIdentifier(names) => match names.as_slice() {
                [.., table, column] => {
                    let (table, column) = (normal(table), normal(column));
                    let is_it = |own: &Table| own.beside.is_open && own.is_called(&table) && !own.has(&column);
                    own.iter().any(is_it).then_some(column)
                }
                _ => None,
            },
            _ => None,
        };
        self.fields.extend(field);
    }

    /// The outer table that a bare name belongs to.
    fn owner(&self, own: &[Table], column: &str) -> Option<&str> {
        let may_have = |table: &Table| table.may_have(column) || table.is_called(column);
        let is_open = own.iter().any(|table| table.beside.is_open);
        if own.iter().any(may_have) || (is_open && self.fields.contains(column)) {
            return None;
        }
        for tables in self.scope.visible() {
            // Two tables of telemetry may both have a column that only one of them is known to have, and the data may
            // have a field to which the statement could not refer otherwise.
            let is_list = |table: &Table| table.beside.gives_items || table.beside.is_unnamed;
            let is_unsure = |table: &Table| table.beside.is_open || is_list(table) && column == ITEM;
            let has = |table: &&Table| table.has(column) && !(is_open && is_unsure(table));
            if let Some(table) = tables.iter().find(has) {
                return table.name.as_deref();
            }
            if tables.iter().any(|table| table.columns.is_none()) {
                return None;
            }
        }
        None
    }

    /// Qualifies a name with its table.
    fn qualify(&self, own: &[Table], place: &mut Expr) {
        if let Expr::Identifier(column) = &*place
            && !is_bare_function(column)
            && let Some(table) = beside_items(own, &normal(column)).or_else(|| self.owner(own, &normal(column)))
        {
            *place = Expr::CompoundIdentifier(vec![Ident::with_quote('"', table), column.clone()]);
        }
    }
}

/// The columns of a function that gives rows under its own name; `None` if it is another table.
fn of_unnamed(factor: &TableFactor) -> Option<Vec<String>> {
    let name = match factor {
        TableFactor::Table { name, alias: None, args: Some(_), with_ordinality: false, .. } => {
            bare(name).filter(|name| gives_rows(name))?
        }
        TableFactor::UNNEST { alias: None, array_exprs, with_ordinality: false, .. } if array_exprs.len() == 1 => {
            "unnest".to_owned()
        }
        _ => return None,
    };
    Some(vec![name, ITEM.to_owned()])
}

/// The table of the select that a column of the planner's name for items belongs to: the one that is known to have it, or else
/// the one whose data may.
fn beside_items<'o>(own: &'o [Table], column: &str) -> Option<&'o str> {
    let is_other = |table: &Table| table.columns.is_none() || table.is_called(column) || table.beside.is_unnamed;
    if column != ITEM || !own.iter().any(|table| table.beside.gives_items) || own.iter().any(is_other) {
        return None;
    }
    let others = || own.iter().filter(|table| !table.beside.gives_items);
    let (mut known, mut open) =
        (others().filter(|table| table.has(column)), others().filter(|table| table.beside.is_open));
    match (known.next(), known.next()) {
        (Some(table), None) => table.name.as_deref(),
        (None, _) => open.next().filter(|_| open.next().is_none())?.name.as_deref(),
        _ => None,
    }
}

/// Calls a function for each expression of a select outside of its subqueries, except names of the select's own
/// outputs.
fn each(select: &mut Select, mut hand_on: impl FnMut(&mut Expr)) {
    let aliases: Vec<String> = select.projection.iter().filter_map(alias_of).collect();
    let mut plain = |place: &mut Expr| {
        hand_on(place);
        Ok(())
    };
    let _ = change_outside_subqueries(&mut select.projection, &mut plain);
    let _ = change_outside_subqueries(&mut select.from, &mut plain);
    let _ = change_outside_subqueries(&mut select.selection, &mut plain);
    let mut beside_outputs = |place: &mut Expr| match place {
        Expr::Identifier(name) if aliases.contains(&normal(name)) => Ok(()),
        place => plain(place),
    };
    let _ = change_outside_subqueries(&mut select.group_by, &mut beside_outputs);
    let _ = change_outside_subqueries(&mut select.having, &mut beside_outputs);
}

impl VisitorMut for Outer<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.scope.add_common(table);
        }
        // Bounds may only read the row at hand, and no table of the query itself.
        if !self.is_noting
            && let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause
        {
            for bound in limit.iter_mut().chain(offset.as_mut().map(|offset| &mut offset.value)) {
                let _ = change_outside_subqueries(bound, |place| {
                    self.qualify(&[], place);
                    Ok(())
                });
            }
        }
        let order = self.take_order(query);
        self.orders.push(order);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(order) = self.orders.pop().flatten() {
            query.order_by = Some(order);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let own = self.tables(select);
        if self.is_noting {
            each(select, |place| self.note(&own, place));
        } else if self.scope.visible().next().is_some() || own.iter().any(|table| table.beside.gives_items) {
            each(select, |place| self.qualify(&own, place));
        }
        self.scope.enter(own);
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
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use quiver_query::tables::TableEntry;

    use super::*;
    use crate::catalog::Catalog;
    use crate::parse::{Params, ReadStatement, parse};
    use crate::session::Session;

    fn check(text: &str, expected: &str) {
        let entry = |name: &str, columns: &[&str]| {
            let fields: Vec<Field> = columns.iter().map(|name| Field::new(*name, DataType::Int64, false)).collect();
            TableEntry { schema: "quiver", name: name.to_owned(), columns: Arc::new(Schema::new(fields)) }
        };
        let entries = vec![entry("logs", &["time", "message"]), entry("spans", &["start_time", "duration"])];
        let catalog = Catalog::new(entries, &Session::default());
        let ReadStatement::Query(mut query) = parse(text, &Params::default()).expect(text).statement else {
            panic!("no query: {text}")
        };
        translate(&mut query, &|named| catalog.fixed(named));
        assert_eq!(query.to_string(), expected, "{text}");
    }

    #[test]
    fn outputs_around_are_meant() {
        check(
            "with c as (select 1 as lv) select (select count(*) from logs where level = lv) from c",
            "WITH c AS (SELECT 1 AS lv) SELECT (SELECT count(*) FROM logs WHERE level = \"c\".lv) FROM c",
        );
        check(
            "select 1 from generate_series(1, 3) b where exists (select 1 from logs where time > b and level = 'x')",
            "SELECT 1 FROM generate_series(1, 3) b WHERE EXISTS (SELECT 1 FROM logs WHERE time > \"b\".b AND level = 'x')",
        );
        check(
            "select value, x from logs l, generate_series(1, 3) x where message = 'x' group by value",
            "SELECT \"l\".value, x FROM logs l, generate_series(1, 3) x WHERE message = 'x' GROUP BY \"l\".value",
        );
        check(
            "select value, x from (select 1 as value) v, logs l, generate_series(1, 3) x where value > 0",
            "SELECT \"v\".value, x FROM (SELECT 1 AS value) v, logs l, generate_series(1, 3) x WHERE \"v\".value > 0",
        );
        check(
            "select q.m from (select 1 as m) q where m in (select time from (select time from logs where m = n) r)",
            "SELECT q.m FROM (SELECT 1 AS m) q WHERE m IN (SELECT time FROM (SELECT time FROM logs WHERE \"q\".m = n) r)",
        );
        check(
            "select 1 from (select 1 as a) x, lateral (select max(time) from logs where level = a) y",
            "SELECT 1 FROM (SELECT 1 AS a) x, LATERAL (SELECT max(time) FROM logs WHERE level = \"x\".a) y",
        );
        check(
            "select 1 from (select 1 as n) x, lateral (select time from logs order by time limit n + 1 offset x.n) y limit 1",
            "SELECT 1 FROM (SELECT 1 AS n) x, LATERAL (SELECT time FROM logs ORDER BY time LIMIT \"x\".n + 1 OFFSET x.n) y \
             LIMIT 1",
        );
        check(
            "select 1 from spans where duration in (select a from (values (1)) v(a) where a > start_time)",
            "SELECT 1 FROM spans WHERE duration IN (SELECT a FROM (VALUES (1)) v (a) WHERE a > \"spans\".start_time)",
        );
        // Functions of rows have no columns but their own.
        check(
            "select (select count(*) from unnest(a)), (select max(value) from jsonb_array_elements(j)) from \
             (select 1 as a, 2 as j, 3 as value) x",
            "SELECT (SELECT count(*) FROM UNNEST(\"x\".a)), (SELECT max(value) FROM jsonb_array_elements(\"x\".j)) FROM \
             (SELECT 1 AS a, 2 AS j, 3 AS value) x",
        );
        // So may subqueries among sort keys, also below one another.
        check(
            "select a as k from (select 1 as a) x order by (select max(time) from logs where level = a), k",
            "SELECT a AS k FROM (SELECT 1 AS a) x ORDER BY (SELECT max(time) FROM logs WHERE level = \"x\".a), k",
        );
        check(
            "select 1 from (select 1 as a) x order by (select b from (values (1)) v(b) order by (select a + b))",
            "SELECT 1 FROM (SELECT 1 AS a) x ORDER BY \
             (SELECT b FROM (VALUES (1)) v (b) ORDER BY (SELECT \"x\".a + \"v\".b))",
        );
    }

    #[test]
    fn what_the_data_has_is_meant() {
        for text in [
            // The common table reads the name as a field, so the subquery does, too.
            "WITH c AS (SELECT level FROM logs) SELECT 1 FROM c WHERE 1 IN (SELECT time FROM logs WHERE level = 'x')",
            "WITH c AS (SELECT max(l.n) AS n FROM logs l) SELECT (SELECT count(*) FROM logs WHERE n > c.n) FROM c",
            // Log records may have a field that is named like a column of spans.
            "SELECT 1 FROM spans WHERE start_time IN (SELECT time FROM logs WHERE duration > 5)",
            "SELECT value FROM generate_series(1, 3) x",
            "SELECT value FROM logs, generate_series(1, 3) value",
            "SELECT value, x.value FROM logs, spans, generate_series(1, 3) x",
            // Functions of documents have such a column themselves.
            "SELECT value FROM logs l, json_each_text(l.fields) e",
            "SELECT value FROM logs l, jsonb_array_elements(l.message) e",
            "SELECT 1 FROM generate_series(1, 3) b WHERE EXISTS (SELECT 1 FROM logs WHERE value = 'x' AND time > 1)",
            // Tables of one `FROM` do not see each other.
            "SELECT 1 FROM (SELECT 1 AS a) x JOIN (SELECT time FROM logs WHERE a = 1) y ON true",
            // Its own table may have the column: its columns are not known.
            "SELECT (SELECT 1 FROM promql('up', 1) p WHERE a = 1) FROM (SELECT 1 AS a) x",
            "SELECT (SELECT max(time) AS a FROM logs GROUP BY a) FROM (SELECT 1 AS a) x",
        ] {
            check(text, text);
        }
    }
}
