//! What a common table that reads itself (`WITH RECURSIVE`) may be, as in PostgreSQL: rows to begin with, `UNION`, and a query
//! that reads the rows before once. The engine would give wrong rows for others, or never end. The outputs of that query are
//! marked for [`crate::plan_checks`]: the planner casts them to the types of the first rows, whatever is lost.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Cte, Expr, Join, JoinOperator, LimitClause, Query, Select, SelectItem, SetExpr, SetOperator, TableFactor,
    TableWithJoins, Visit, Visitor,
};
use datafusion::sql::sqlparser::tokenizer::Location;
use quiver_query::functions::RECURSIVE_VALUE;
use quiver_types::{Error, Result};

use super::columns::factors;
use super::common_tables::has_common;
use super::empty_queries::{self, IsAggregate};
use super::expressions::{bare, call, expr, is_null, take};
use super::naming;
use crate::error::unsupported;
use crate::names::{normal, parts};
use crate::statement_walk::{has_expression, refused, walk};

/// Refuses recursive common tables of another form.
///
/// # Errors
/// Invalid, Unsupported: there is one.
pub(super) fn well_formed(query: &Query, is_aggregate: IsAggregate<'_>) -> Result<()> {
    struct Tables<'a>(IsAggregate<'a>);
    impl Visitor for Tables<'_> {
        type Break = Box<Error>;

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
            let Some(with) = query.with.as_ref().filter(|with| with.recursive) else {
                return ControlFlow::Continue(());
            };
            let wrong = with.cte_tables.iter().find_map(|table| of_table(table, self.0).err());
            wrong.map_or(ControlFlow::Continue(()), refused)
        }
    }
    match walk(query, &mut Tables(is_aggregate)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

fn of_table(table: &Cte, is_aggregate: IsAggregate<'_>) -> Result<()> {
    let name = normal(&table.alias.name);
    let query = &*table.query;
    if has_common(query, |own| own == name) || References::of(query, &name).all.is_empty() {
        return Ok(());
    }
    let mut body = &*query.body;
    while let SetExpr::Query(inner) = body
        && inner.with.is_none()
        && bounded(inner).is_none()
    {
        body = &*inner.body;
    }
    let SetExpr::SetOperation { op: SetOperator::Union, left, right, .. } = body else {
        let text =
            format!("recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term");
        return Err(placed(text, table.alias.name.span.start));
    };
    let within = |how: &str, at: Location| {
        Err(placed(format!("recursive reference to query \"{name}\" must not appear {how}"), at))
    };
    if let Some(at) = References::of(&**left, &name).all.first() {
        return within("within its non-recursive term", *at);
    }
    if let Some(clause) = bounded(query) {
        return Err(unsupported(format!("{clause} in a recursive query is not implemented")));
    }
    let found = References::of(&**right, &name);
    if let Some(at) = found.in_subquery {
        return within("within a subquery", at);
    }
    let mut selects = Selects { name: &name, nullable: None, aggregates: false, is_aggregate };
    let _ = walk(&**right, &mut selects);
    if let Some(at) = selects.nullable {
        return within("within an outer join", at);
    }
    if let Some(at) = found.all.get(1) {
        return within("more than once", *at);
    }
    if let Some(at) = excepted(right, &name) {
        return within("within EXCEPT", at);
    }
    if selects.aggregates {
        return Err(Error::invalid("aggregate functions are not allowed in a recursive query's recursive term"));
    }
    Ok(())
}

/// The first and the recursive term of a common table; `None` if it does not read itself.
fn terms(table: &mut Cte) -> Option<(&mut SetExpr, &mut SetExpr)> {
    let name = normal(&table.alias.name);
    if has_common(&table.query, |own| own == name) || References::of(&*table.query, &name).all.is_empty() {
        return None;
    }
    let mut body = &mut *table.query.body;
    loop {
        match body {
            SetExpr::Query(inner) if inner.with.is_none() => body = &mut *inner.body,
            SetExpr::SetOperation { op: SetOperator::Union, left, right, .. } => {
                return Some((&mut **left, &mut **right));
            }
            _ => return None,
        }
    }
}

/// The recursive common tables of a query.
fn recursive_tables(query: &mut Query) -> impl Iterator<Item = &mut Cte> {
    query.with.iter_mut().filter(|with| with.recursive).flat_map(|with| &mut with.cte_tables)
}

/// Makes NULL a text in the first rows, as PostgreSQL does: by itself it has a type that no other value is of.
///
/// # Errors
/// Internal: SQL of ours cannot be read.
pub(super) fn type_nulls(query: &mut Query) -> Result<()> {
    for (first, _) in recursive_tables(query).filter_map(terms) {
        let SetExpr::Select(select) = first else { continue };
        for item in &mut select.projection {
            let alias = match &*item {
                SelectItem::UnnamedExpr(value) if is_null(value) => naming::name(value),
                SelectItem::ExprWithAlias { expr: value, alias } if is_null(value) => alias.clone(),
                _ => continue,
            };
            *item = SelectItem::ExprWithAlias { expr: expr("CAST(NULL AS TEXT)")?, alias };
        }
    }
    Ok(())
}

/// Marks the outputs of recursive terms. Literals have the type of the first rows, and what gives several rows stays an
/// output by itself.
pub(super) fn mark_outputs(query: &mut Query) {
    for (first, mut term) in recursive_tables(query).filter_map(terms) {
        while let SetExpr::Query(inner) = term {
            term = &mut *inner.body;
        }
        let SetExpr::Select(select) = term else { continue };
        for (at, item) in select.projection.iter_mut().enumerate() {
            let (SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) = item else {
                continue;
            };
            if is_case(value) {
                open_to_null(first, at);
            }
            if !matches!(value, Expr::Value(_)) && !is_of_rows(value) {
                *value = call(RECURSIVE_VALUE, vec![take(value)]);
            }
        }
    }
}

fn is_case(value: &Expr) -> bool {
    match value {
        Expr::Nested(inner) => is_case(inner),
        value => matches!(value, Expr::Case { .. }),
    }
}

/// Marks a literal of the first term as nullable. The engine refuses a recursive term with nullable columns where the
/// first term has none, and does not always see that a `CASE` is never NULL.
fn open_to_null(mut first: &mut SetExpr, at: usize) {
    while let SetExpr::Query(inner) = first {
        first = &mut *inner.body;
    }
    let SetExpr::Select(select) = first else { return };
    if let Some(SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) =
        select.projection.get_mut(at)
        && matches!(value, Expr::Value(_))
    {
        *value = call("optional", vec![take(value)]);
    }
}

fn is_of_rows(value: &Expr) -> bool {
    has_expression(value, |part| matches!(part, Expr::Function(call) if bare(&call.name).as_deref() == Some("unnest")))
}

/// Where a recursive term takes the rows before away from others.
fn excepted(term: &SetExpr, name: &str) -> Option<Location> {
    match term {
        SetExpr::Query(inner) => excepted(&inner.body, name),
        SetExpr::SetOperation { op: SetOperator::Except, right, .. } => {
            References::of(&**right, name).all.first().copied()
        }
        SetExpr::SetOperation { left, right, .. } => excepted(left, name).or_else(|| excepted(right, name)),
        _ => None,
    }
}

fn placed(text: String, at: Location) -> Error {
    if at.line == 0 {
        return Error::invalid(text);
    }
    Error::invalid(format!("{text} at line {}, column {}", at.line, at.column))
}

/// The clause that bounds or orders all rows of a query.
fn bounded(query: &Query) -> Option<&'static str> {
    let is_behind =
        |clause: &LimitClause| matches!(clause, LimitClause::LimitOffset { limit: None, offset: Some(_), .. });
    if query.order_by.is_some() {
        Some("ORDER BY")
    } else if query.limit_clause.as_ref().is_some_and(is_behind) && query.fetch.is_none() {
        Some("OFFSET")
    } else if query.limit_clause.is_some() || query.fetch.is_some() {
        Some("LIMIT")
    } else {
        None
    }
}

/// Where a table of a name is read that no query within has one of its own for.
struct References<'n> {
    name: &'n str,
    all: Vec<Location>,
    /// The first that is in an expression.
    in_subquery: Option<Location>,
    /// How many queries enclose the visited place from one on that has such a table, and how many expressions do.
    hidden: usize,
    expressions: usize,
}

impl<'n> References<'n> {
    fn of(part: &impl Visit, name: &'n str) -> Self {
        let mut found = Self { name, all: Vec::new(), in_subquery: None, hidden: 0, expressions: 0 };
        let _ = walk(part, &mut found);
        found
    }
}

impl Visitor for References<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.hidden += usize::from(self.hidden > 0 || has_common(query, |own| own == self.name));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.hidden = self.hidden.saturating_sub(1);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, _part: &Expr) -> ControlFlow<()> {
        self.expressions += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _part: &Expr) -> ControlFlow<()> {
        self.expressions -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if self.hidden == 0
            && let Some(at) = reference(factor, self.name)
        {
            self.all.push(at);
            if self.expressions > 0 {
                self.in_subquery.get_or_insert(at);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Where a table of a `FROM` has that name; `None` if it has another one.
fn reference(factor: &TableFactor, name: &str) -> Option<Location> {
    let TableFactor::Table { name: relation, args: None, .. } = factor else { return None };
    let is_named = matches!(parts(relation).as_slice(), [own] if own == name);
    let ident = relation.0.first().and_then(|part| part.as_ident());
    is_named.then(|| ident.map_or(Location { line: 0, column: 0 }, |ident| ident.span.start))
}

/// What the selects of a recursive term do with the rows before.
struct Selects<'s> {
    name: &'s str,
    /// Where they are on the side of an outer join that gets NULLs.
    nullable: Option<Location>,
    /// Whether a select that reads them aggregates.
    aggregates: bool,
    is_aggregate: IsAggregate<'s>,
}

impl Selects<'_> {
    fn joined(&mut self, from: &TableWithJoins) {
        let mut before = vec![&from.relation];
        for Join { relation, join_operator, .. } in &from.joins {
            let (is_left, is_right) = match join_operator {
                JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => (false, true),
                JoinOperator::Right(_) | JoinOperator::RightOuter(_) => (true, false),
                JoinOperator::FullOuter(_) => (true, true),
                _ => (false, false),
            };
            let mut nullable = before.iter().copied().filter(|_| is_left).chain(is_right.then_some(relation));
            let found = nullable.find_map(|factor| References::of(factor, self.name).all.first().copied());
            self.nullable = self.nullable.or(found);
            before.push(relation);
        }
    }
}

impl Visitor for Selects<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        select.from.iter().for_each(|from| self.joined(from));
        let reads = select.from.iter().flat_map(factors).any(|factor| match factor {
            TableFactor::Derived { .. } => false,
            other => !References::of(other, self.name).all.is_empty(),
        });
        let gathers = empty_queries::has_aggregate(&select.projection, self.is_aggregate)
            || empty_queries::has_aggregate(&select.having, self.is_aggregate);
        self.aggregates |= reads && gathers;
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            self.joined(table_with_joins);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use super::*;
    use crate::parse::{Params, ReadStatement, parse};

    fn checked(text: &str) -> Result<()> {
        let ReadStatement::Query(query) = parse(text, &Params::default()).expect(text).statement else {
            panic!("no query: {text}")
        };
        well_formed(&query, &|name| ["count", "max"].contains(&name))
    }

    #[test]
    fn a_recursive_table_reads_itself_once_behind_its_first_rows() {
        let of = |query: &str| checked(&format!("with recursive t(n) as ({query}) select * from t"));
        for (query, said) in [
            ("select n + 1 from t", "does not have the form"),
            ("select 1 except select n from t", "does not have the form"),
            ("select n from t union all select 1", "within its non-recursive term at line 1, column 39"),
            ("select 1 union all select n from t union all select 2", "within its non-recursive term"),
            ("select 1 union all select 2 where 2 not in (select n from t)", "within a subquery"),
            ("select 1 union select a.n from t a, t b", "more than once"),
            ("select 1 union all select u.n from u left join t on t.n = u.n", "within an outer join"),
            ("select 1 union all select u.n from t right join u on t.n = u.n", "within an outer join"),
            ("select 1 union all select u.n from (u full join t on t.n = u.n)", "within an outer join"),
            ("select 1 union all (select 2 except select n from t)", "within EXCEPT"),
            ("select 1 union all select max(n) + 1 from t", "aggregate functions are not allowed"),
            ("select 1 union all select 2 from t having count(*) > 1", "aggregate functions are not allowed"),
        ] {
            let error = of(query).expect_err(query);
            assert_eq!((error.kind, error.message.contains(said)), (ErrorKind::Invalid, true), "{query}: {error}");
        }
        for (query, said) in [
            ("select 1 union all select n + 1 from t limit 3", "LIMIT in a recursive query"),
            ("select 1 union all select n + 1 from t order by 1", "ORDER BY in a recursive query"),
            ("select 1 union all select n + 1 from t offset 1", "OFFSET in a recursive query"),
        ] {
            let error = of(query).expect_err(query);
            assert_eq!((error.kind, error.message.contains(said)), (ErrorKind::Unsupported, true), "{query}: {error}");
        }
    }

    #[test]
    fn others_are_taken() {
        for text in [
            "with recursive t(n) as (select 1 union all select n + 1 from t where n < 5) select count(*) from t",
            "with recursive t as (select 1 union all select t.n from t left join u on u.n = t.n) select * from t, t u",
            "with recursive t as ((select 1 union all select 2) union select n from (select n from t) s) table t",
            "with recursive t as (select max(n) from u union all select n from t, (select count(*) from u) c) table t",
            "with recursive a as (select 1), b as (select count(*) from a order by 1 limit 1) select * from b",
            "with recursive t as (select 1 union all (select n from t limit 1)) select * from t",
            "with t as (select n from t) select * from t",
        ] {
            checked(text).expect(text);
        }
    }
}
