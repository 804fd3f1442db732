//! Names the outputs of statements and of the subqueries that they read as tables. Names must be unique for
//! DataFusion.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArguments, Ident, JoinConstraint, JoinOperator, OrderByKind, Query,
    Select, SelectItem, SetExpr, TableFactor, Value, VisitorMut,
};
use quiver_types::{Error, Result};

use super::columns::constraint;
use super::data_types::name_of;
use super::expressions::{is_bare_function, take};
use super::naming::{AGAIN, OutputUse, name, number};
use super::{sort_keys, type_kinds};
use crate::names::{normal, parts};
use crate::statement_walk::{refused, walk_mut};

/// Names the outputs of a statement and of the subqueries that it reads as tables, before anything is rewritten.
/// Nothing refers to the outputs of other subqueries.
///
/// # Errors
///
/// Only internal ones.
pub(crate) fn translate(query: &mut Query) -> Result<()> {
    name_all(query, OutputUse::Result);
    show_by_names(query);
    sort_keys::apart(query);
    match walk_mut(query, &mut Tables) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// Shows relations, types, schemas and functions by their names, which `'logs'::regclass` and its like say: these
/// become numbers.
fn show_by_names(query: &mut Query) {
    let reads_types = type_kinds::reads_types(query);
    let SetExpr::Select(select) = &mut *query.body else { return };
    for item in &mut select.projection {
        match item {
            SelectItem::UnnamedExpr(column) if reads_types && type_kinds::is_receiver(column) => {
                let (alias, expr) = (name(column), as_text(column));
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
            SelectItem::ExprWithAlias { expr: shown, .. } => {
                let is_number = match &*shown {
                    Expr::Cast { data_type, .. } => {
                        matches!(name_of(data_type).as_deref(), Some("regclass" | "regtype" | "regnamespace"))
                    }
                    other => reads_types && type_kinds::is_receiver(other),
                };
                if is_number {
                    *shown = as_text(shown);
                }
            }
            _ => {}
        }
    }
}

fn as_text(shown: &mut Expr) -> Expr {
    let expr = Box::new(take(shown));
    Expr::Cast { kind: CastKind::Cast, expr, data_type: DataType::Text, array: false, format: None }
}

/// Finds subqueries that are tables.
struct Tables;

impl VisitorMut for Tables {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            of_query(&mut table.query);
            if let Err(error) = sort_keys::apart_within(&mut table.query) {
                return refused(error);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Subquery(query)
            | Expr::InSubquery { subquery: query, .. }
            | Expr::Exists { subquery: query, .. }
            | Expr::Function(Function { args: FunctionArguments::Subquery(query), .. }) => sort_keys::apart(query),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        let TableFactor::Derived { lateral, subquery, .. } = factor else { return ControlFlow::Continue(()) };
        of_query(subquery);
        // A correlated subquery is recognized by its form, so it must stay as it is.
        let done = if *lateral { Ok(()) } else { sort_keys::apart_within(subquery) };
        done.map_or_else(refused, ControlFlow::Continue)
    }
}

/// Names the outputs of a query that another one reads.
pub(super) fn of_query(query: &mut Query) {
    name_all(query, OutputUse::Table);
}

fn name_all(query: &mut Query, usage: OutputUse) {
    let order = query.order_by.as_mut();
    let mut body = &mut *query.body;
    let mut others = Vec::new();
    let select = loop {
        match body {
            SetExpr::Select(select) => break select,
            SetExpr::Query(inner) => body = &mut *inner.body,
            // The first query of a set operation names the columns of all.
            SetExpr::SetOperation { left, right, .. } => {
                others.push(&mut **right);
                body = &mut **left;
            }
            _ => return,
        }
    };
    of_select(select, usage);
    apart_from(others, &select.projection);
    // A query with `DISTINCT` sorts by outputs alone, which are referred to by name.
    if let (Some(order), Some(_)) = (order, &select.distinct)
        && let OrderByKind::Expressions(keys) = &mut order.kind
    {
        // A number is a position, even if an output is that number.
        for key in keys.iter_mut().filter(|key| !is_number(&key.expr)) {
            let same = select.projection.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias } => (*expr == key.expr).then(|| alias.clone()),
                _ => None,
            });
            if let Some(alias) = same {
                key.expr = Expr::Identifier(alias);
            }
        }
    }
}

/// Whether a key is a number in the statement's text. The value of a parameter has no location.
fn is_number(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if value.span.start.line > 0 && matches!(value.value, Value::Number(..)))
}

fn of_select(select: &mut Select, usage: OutputUse) {
    // A merged column has no table, and one of a table may be it.
    let merged: HashSet<String> =
        select.from.iter().flat_map(|from| &from.joins).flat_map(|join| merged_by(&join.join_operator)).collect();
    let (mut columns, mut bare, mut qualified) = (HashSet::new(), HashSet::new(), HashSet::new());
    for item in &mut select.projection {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let known = normal(&name(expr));
        // A column has a name; a second one of the same name needs another, also where only one has its table before it.
        let (is_column, is_again) = match expr {
            Expr::Identifier(name) => {
                bare.insert(known.clone());
                (!is_bare_function(name), qualified.contains(&known))
            }
            Expr::CompoundIdentifier(_) => {
                qualified.insert(known.clone());
                (true, bare.contains(&known))
            }
            _ => (false, false),
        };
        let own = if merged.contains(&known) { known } else { spelled(expr) };
        if !is_column || is_again || !columns.insert(own) {
            *item = SelectItem::ExprWithAlias { alias: name(expr), expr: expr.clone() };
        }
    }
    number(&mut select.projection, AGAIN, usage);
}

/// A column as the planner finds it, however it is written: `t.a`, `T.A`, `"t".a`.
fn spelled(column: &Expr) -> String {
    match column {
        Expr::Identifier(name) => normal(name),
        Expr::CompoundIdentifier(parts) => parts.iter().map(normal).collect::<Vec<String>>().join("\0"),
        other => other.to_string(),
    }
}

/// The columns that a join merges.
fn merged_by(operator: &JoinOperator) -> Vec<String> {
    match constraint(operator) {
        Some(JoinConstraint::Using(columns)) => columns.iter().filter_map(|column| parts(column).pop()).collect(),
        _ => Vec::new(),
    }
}

/// Names the outputs of the later parts of a set operation, which are not visible. The planner would name an unnamed
/// one after the output of the first part at its position, and that may be the name of a column beside it.
fn apart_from(mut sets: Vec<&mut SetExpr>, first: &[SelectItem]) {
    while let Some(set) = sets.pop() {
        match set {
            SetExpr::Select(select) => tell_apart(&mut select.projection, first),
            SetExpr::Query(inner) => sets.push(&mut *inner.body),
            SetExpr::SetOperation { left, right, .. } => sets.extend([&mut **left, &mut **right]),
            _ => {}
        }
    }
}

fn tell_apart(items: &mut [SelectItem], first: &[SelectItem]) {
    let is_listed = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    if !items.iter().chain(first).all(is_listed) {
        return;
    }
    let column = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
            Some(normal(&name(expr)))
        }
        _ => None,
    };
    let columns: HashSet<String> = items.iter().filter_map(column).collect();
    let mut seen = HashSet::new();
    for (at, item) in items.iter_mut().enumerate() {
        let own = column(item);
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let given = match first.get(at) {
            Some(SelectItem::UnnamedExpr(expr)) => normal(&name(expr)),
            Some(SelectItem::ExprWithAlias { alias, .. }) => normal(alias),
            _ => continue,
        };
        let is_another = match &own {
            Some(_) => !seen.insert(expr.to_string()),
            None => columns.contains(&given),
        };
        if is_another {
            let alias = Ident::with_quote('"', format!("{}{AGAIN}{}", own.unwrap_or(given), at + 1));
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
    number(items, AGAIN, OutputUse::Result);
}

/// Refuses a string literal behind another one, which the parser takes for an alias.
///
/// # Errors
///
/// Invalid.
pub(super) fn no_texts(select: &Select) -> Result<()> {
    for item in &select.projection {
        if let SelectItem::ExprWithAlias { expr: Expr::Value(value), alias } = item
            && alias.quote_style == Some('\'')
            && matches!(value.value, Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_))
        {
            return Err(Error::invalid(format!(
                "two texts stand one behind the other: write `||` between them, or a name in double quotes, \"{}\"",
                alias.value
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::types::pg_type;
    use crate::parse::{Param, Params, ReadStatement, parse, parse_open};

    #[test]
    fn outputs_are_named_as_in_postgresql() {
        let check = |text: &str, expected: &str| {
            let ReadStatement::Query(mut query) = parse_open(text).expect(text).statement else { panic!("{text}") };
            translate(&mut query).expect(text);
            assert_eq!(query.to_string(), expected, "{text}");
        };
        check("select current_role", "SELECT current_role AS current_role");
        check(
            "select count(*), 1, a::text from t",
            "SELECT count(*) AS \"count\", 1 AS \"?column?\", a::TEXT AS a FROM t",
        );
        check(
            "select 1::int, '2'::float8[], date '2024-01-01', (select max(a) from t), a[1], substr(a, 2) from t",
            "SELECT 1::INT AS \"int4\", '2'::FLOAT8[] AS \"float8\", DATE '2024-01-01' AS \"date\", \
             (SELECT max(a) FROM t) AS \"max\", a[1] AS a, SUBSTR(a, 2) AS \"substr\" FROM t",
        );
        check("select 1, 2", "SELECT 1 AS \"?column?\", 2 AS \"?column?\u{2063}2\"");
        check("select a, a, t.a from t", "SELECT a, a AS \"a\u{2063}2\", t.a AS \"a\u{2063}3\" FROM t");
        check("select a a, a, t.a from t", "SELECT a AS a, a AS \"a\u{2063}2\", t.a AS \"a\u{2063}3\" FROM t");
        check("select t.a, t.a, u.a from t, u", "SELECT t.a, t.a AS \"a\u{2063}2\", u.a FROM t, u");
        check(
            "select a, t.a, u.b from t join u using (a)",
            "SELECT a, t.a AS \"a\u{2063}2\", u.b FROM t JOIN u USING(a)",
        );
        check(
            "select 1 from (select a, a from t) s, (select t.b, u.b from t, u) r",
            "SELECT 1 AS \"?column?\" FROM (SELECT a, a AS \"a\u{2063}2\" FROM t) s, \
             (SELECT t.b, u.b AS \"b\u{2063}2\" FROM t, u) r",
        );
        check(
            "select '1'::float8::int, case when a then b end, case when a then b else c end::int from t",
            "SELECT '1'::FLOAT8::INT AS \"int4\", CASE WHEN a THEN b END AS \"case\", \
             CASE WHEN a THEN b ELSE c END::INT AS c FROM t",
        );
        check(
            "select distinct lower(a) from t order by lower(a) desc",
            "SELECT DISTINCT lower(a) AS \"lower\" FROM t ORDER BY \"lower\" DESC",
        );
        check("select distinct a, 1 as c from t order by 1", "SELECT DISTINCT a, 1 AS c FROM t ORDER BY 1");
        let params = Params::positional(vec![Param::Number("1".to_owned())]);
        let text = "select distinct a, $1 as c from t order by $1";
        let ReadStatement::Query(mut query) = parse(text, &params).expect(text).statement else { panic!("{text}") };
        translate(&mut query).expect(text);
        assert_eq!(query.to_string(), "SELECT DISTINCT a, 1 AS c FROM t ORDER BY c", "a parameter is no place");
        check(
            "with c as (select count(*) from t) select count from (select count, 1 from c) s \
             where a in (select max(a) from t)",
            "WITH c AS (SELECT count(*) AS \"count\" FROM t) \
             SELECT count FROM (SELECT count, 1 AS \"?column?\" FROM c) s WHERE a IN (SELECT max(a) FROM t)",
        );
        check(
            "select exists (select 1), not exists (select 1)",
            "SELECT EXISTS (SELECT 1) AS \"exists\", NOT EXISTS (SELECT 1) AS \"?column?\"",
        );
        check("select max(a) from t union select 2", "SELECT max(a) AS \"max\" FROM t UNION SELECT 2");
    }

    #[test]
    fn parameters_have_no_names() {
        let int = |value: &str| Param::Typed(Some(value.to_owned()), pg_type(23).expect("a type"));
        let params = Params::positional(vec![int("1"), int("2"), Param::List(vec![int("3")])]);
        let text = "select $1, ($2), $1::text, cast($2 as int), $3";
        let ReadStatement::Query(mut query) = parse(text, &params).expect(text).statement else { panic!("{text}") };
        translate(&mut query).expect(text);
        let SetExpr::Select(select) = &*query.body else { panic!("{text}") };
        let name = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { alias, .. } => alias.value.split(AGAIN).next().map(str::to_owned),
            _ => None,
        };
        let names: Vec<String> = select.projection.iter().filter_map(name).collect();
        assert_eq!(names, ["?column?", "?column?", "text", "int4", "?column?"]);
    }

    #[test]
    fn names_of_the_catalog_are_shown() {
        let text = "select 'logs'::regclass, 'int4'::pg_catalog.regtype::oid, oid::regclass, 'a'::text from t";
        let ReadStatement::Query(mut query) = parse_open(text).expect(text).statement else { panic!("{text}") };
        translate(&mut query).expect(text);
        assert_eq!(
            query.to_string(),
            "SELECT CAST('logs'::REGCLASS AS TEXT) AS \"regclass\", 'int4'::pg_catalog.regtype::oid AS \"oid\", \
             CAST(oid::REGCLASS AS TEXT) AS \"oid\u{2063}2\", 'a'::TEXT AS \"text\" FROM t"
        );
        let text = "select t.typreceive, typreceive <> 0 from pg_catalog.pg_type t";
        let ReadStatement::Query(mut query) = parse_open(text).expect(text).statement else { panic!("{text}") };
        translate(&mut query).expect(text);
        let shown = query.to_string();
        assert!(shown.starts_with("SELECT CAST(t.typreceive AS TEXT) AS typreceive, typreceive <> 0"), "{shown}");
    }

    #[test]
    fn a_column_with_and_without_its_table_is_there_twice() {
        for (text, expected) in [
            ("select t.x, x, t.y, t.x from t", "SELECT t.x, x AS \"x~2\", t.y, t.x AS \"x~3\" FROM t"),
            ("select x, t.x, u.y from t, u", "SELECT x, t.x AS \"x~2\", u.y FROM t, u"),
            ("select t.x, u.x from t, u", "SELECT t.x, u.x FROM t, u"),
        ] {
            let ReadStatement::Query(mut query) = parse_open(text).expect(text).statement else { panic!("{text}") };
            translate(&mut query).expect(text);
            assert_eq!(query.to_string().replace(AGAIN, "~"), expected, "{text}");
        }
    }

    #[test]
    fn outputs_of_further_parts_of_a_set_are_told_apart() {
        let check = |text: &str, expected: &str| {
            let ReadStatement::Query(mut query) = parse_open(text).expect(text).statement else { panic!("{text}") };
            translate(&mut query).expect(text);
            assert_eq!(query.to_string().replace(AGAIN, "~"), expected, "{text}");
        };
        check(
            "select a, b from t union all select b / 10, a from u",
            "SELECT a, b FROM t UNION ALL SELECT b / 10 AS \"a~1\", a FROM u",
        );
        check(
            "select a, 1 x from t except (select u.x, u.a + 1 from u) union select a, a from v",
            "SELECT a, 1 AS x FROM t EXCEPT (SELECT u.x, u.a + 1 AS \"x~2\" FROM u) UNION SELECT a, a AS \"a~2\" FROM v",
        );
        check(
            "select a, b from t intersect select b x, c x from u",
            "SELECT a, b FROM t INTERSECT SELECT b AS x, c AS \"x~2\" FROM u",
        );
        check(
            "select x from (select a, b from t union select 2, a from u) s",
            "SELECT x FROM (SELECT a, b FROM t UNION SELECT 2 AS \"a~1\", a FROM u) s",
        );
        for same in ["SELECT a, b FROM t UNION SELECT 2, c FROM u", "SELECT a, b FROM t UNION SELECT *, a FROM u"] {
            check(same, same);
        }
    }
}
