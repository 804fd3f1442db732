//! Names of outputs: PostgreSQL's where the statement gives none, and each once, as DataFusion wants it.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor, VisitMut, VisitorMut,
};

use super::arguments;
use crate::parse::{normal, parts};

/// What has no better name.
const NONE: &str = "?column?";

/// Names the outputs of a statement, before anything is put in their place, and those of the subqueries that it reads as
/// tables; those of others have no names that anybody speaks of.
pub(crate) fn translate(query: &mut Query) {
    of_query(query);
    let _ = VisitMut::visit(query, &mut Tables);
}

/// Finds subqueries that are tables.
struct Tables;

impl VisitorMut for Tables {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            of_query(&mut table.query);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, .. } = factor {
            of_query(subquery);
        }
        ControlFlow::Continue(())
    }
}

/// Names the outputs of one query.
pub(super) fn of_query(query: &mut Query) {
    let order = query.order_by.as_mut();
    let mut body = &mut *query.body;
    let select = loop {
        match body {
            SetExpr::Select(select) => break select,
            SetExpr::Query(inner) => body = &mut *inner.body,
            // The first of several says how all are named.
            SetExpr::SetOperation { left, .. } => body = &mut **left,
            _ => return,
        }
    };
    of_select(select);
    // Rows without their like are in the order of outputs alone, by their names.
    if let (Some(order), Some(_)) = (order, &select.distinct)
        && let OrderByKind::Expressions(keys) = &mut order.kind
    {
        for key in keys {
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

fn of_select(select: &mut Select) {
    let mut columns = HashSet::new();
    for item in &mut select.projection {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        // A column has a name; the same one again needs another.
        let is_column = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
        if !is_column || !columns.insert(expr.to_string()) {
            *item = SelectItem::ExprWithAlias { alias: name(expr), expr: expr.clone() };
        }
    }
    make_unique(&mut select.projection);
}

/// The name of an output that is given none, as PostgreSQL has it.
pub(crate) fn name(expr: &Expr) -> Ident {
    let word = |word: &str| Ident::with_quote('"', word);
    match expr {
        Expr::Identifier(ident) => ident.clone(),
        Expr::CompoundIdentifier(idents) => idents.last().cloned().unwrap_or_else(|| word(NONE)),
        // A measure has its own name.
        Expr::Function(call) if crate::models::is_measure_call(expr) => match arguments(&call.args).as_deref() {
            Some([measure]) => name(measure),
            _ => word(NONE),
        },
        Expr::Function(Function { name, .. }) => word(&parts(name).pop().unwrap_or_else(|| NONE.to_owned())),
        Expr::Cast { expr, .. } | Expr::Nested(expr) | Expr::Collate { expr, .. } => name(expr),
        Expr::Case { .. } => word("case"),
        Expr::Exists { .. } => word("exists"),
        Expr::Array(_) => word("array"),
        Expr::Extract { .. } => word("extract"),
        Expr::Position { .. } => word("position"),
        Expr::Substring { .. } => word("substring"),
        Expr::Trim { .. } => word("btrim"),
        Expr::Ceil { .. } => word("ceil"),
        Expr::Floor { .. } => word("floor"),
        Expr::AtTimeZone { .. } => word("timezone"),
        Expr::Interval(_) => word("interval"),
        _ => word(NONE),
    }
}

/// Outputs of one name are two columns for PostgreSQL, and an error for DataFusion, but for columns of two tables.
pub(crate) fn make_unique(items: &mut [SelectItem]) {
    let mut seen = HashMap::<String, usize>::new();
    let mut aliases = HashSet::new();
    for item in items {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => {
                let times = seen.entry(normal(alias)).or_default();
                *times += 1;
                if *times > 1 {
                    *alias = Ident::with_quote('"', format!("{}_{times}", normal(alias)));
                }
                aliases.insert(normal(alias));
            }
            SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
                let own = normal(&name(expr));
                let times = seen.entry(own.clone()).or_default();
                *times += 1;
                if aliases.contains(&own) {
                    let alias = Ident::with_quote('"', format!("{own}_{times}"));
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Parsed, parse_open};

    #[test]
    fn outputs_are_named_as_in_postgresql() {
        let check = |text: &str, expected: &str| {
            let Parsed::Query(mut query) = parse_open(text).expect(text).statement else { panic!("{text}") };
            translate(&mut query);
            assert_eq!(query.to_string(), expected, "{text}");
        };
        check(
            "select count(*), 1, a::text from t",
            "SELECT count(*) AS \"count\", 1 AS \"?column?\", a::TEXT AS a FROM t",
        );
        check("select 1, 2", "SELECT 1 AS \"?column?\", 2 AS \"?column?_2\"");
        check("select a, a, t.a from t", "SELECT a, a AS \"a_2\", t.a FROM t");
        check("select a a, a, t.a from t", "SELECT a AS a, a AS \"a_2\", t.a AS \"a_3\" FROM t");
        check("select t.a, t.a, u.a from t, u", "SELECT t.a, t.a AS \"a_2\", u.a FROM t, u");
        check(
            "select distinct lower(a) from t order by lower(a) desc",
            "SELECT DISTINCT lower(a) AS \"lower\" FROM t ORDER BY \"lower\" DESC",
        );
        check(
            "with c as (select count(*) from t) select count from (select count, 1 from c) s \
             where a in (select max(a) from t)",
            "WITH c AS (SELECT count(*) AS \"count\" FROM t) \
             SELECT count FROM (SELECT count, 1 AS \"?column?\" FROM c) s WHERE a IN (SELECT max(a) FROM t)",
        );
        check("select max(a) from t union select 2", "SELECT max(a) AS \"max\" FROM t UNION SELECT 2");
    }
}
