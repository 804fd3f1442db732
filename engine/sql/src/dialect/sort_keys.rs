//! Sort keys that name columns of tables while outputs have the same names (`SELECT upper(t.x) AS x … ORDER BY t.x`,
//! `… sum(x) AS x … ORDER BY sum(x) / 2`). The planner refuses two columns of one name, and within an expression
//! would take the name for the output; in PostgreSQL only a bare name refers to an output. So these outputs get
//! generated names.

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Ident, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor,
};
use quiver_types::{Error, Result};

use super::expressions::expr;
use super::naming::{AGAIN, name as output_name};
use crate::names::{Names, normal};

/// The name of the inner query if outputs were renamed; an outer query restores their names.
pub(super) const ORDERED: &str = "ordered";

/// The most sort keys that are compared with those of a `DISTINCT ON`; more are refused in any case.
const KEYS_MAX: usize = 512;

/// Renames outputs that have the names of columns in the sort keys.
pub(super) fn apart(query: &mut Query) {
    let Query { body, order_by, .. } = query;
    let (SetExpr::Select(select), Some(order)) = (&mut **body, order_by) else { return };
    let OrderByKind::Expressions(keys) = &mut order.kind else { return };
    if let Some(Distinct::On(ons)) = &mut select.distinct
        && ons.len().max(keys.len()) <= KEYS_MAX
    {
        *ons = as_ordered(std::mem::take(ons), keys);
    }
    let columns = columns_of(select, keys);
    let Select { projection, distinct, .. } = &mut **select;
    for item in projection {
        let SelectItem::ExprWithAlias { expr, alias } = item else { continue };
        let name = normal(alias);
        if !columns.iter().any(|column| column.last() == Some(&name) && !is_column(expr, column)) {
            continue;
        }
        let hidden = Ident::with_quote('"', format!("{name}{AGAIN}1"));
        let mut places: Vec<&mut Expr> = keys.iter_mut().map(|key| &mut key.expr).collect();
        if let Some(Distinct::On(ons)) = &mut *distinct {
            places.extend(ons);
        }
        for place in places {
            if matches!(place, Expr::Identifier(one) if normal(one) == name) {
                *place = Expr::Identifier(hidden.clone());
            }
        }
        *alias = hidden;
    }
}

/// The expressions of a `DISTINCT ON` without duplicates, in the order of the sort keys, which the planner requires.
fn as_ordered(ons: Vec<Expr>, keys: &[OrderByExpr]) -> Vec<Expr> {
    let mut ordered: Vec<Expr> = Vec::with_capacity(ons.len());
    let keys = keys.iter().map(|key| &key.expr).filter(|key| ons.contains(key));
    for on in keys.chain(&ons) {
        if !ordered.contains(on) {
            ordered.push(on.clone());
        }
    }
    ordered
}

/// Like [`apart`] for a query that is read as a table: an outer query restores the names of its outputs.
pub(super) fn apart_within(query: &mut Query) -> Result<()> {
    let SetExpr::Select(select) = &*query.body else { return Ok(()) };
    let Some(names) = names_of(select) else { return Ok(()) };
    apart(query);
    let SetExpr::Select(select) = &*query.body else { return Ok(()) };
    let Some(hidden) = names_of(select).filter(|hidden| *hidden != names) else { return Ok(()) };
    let around = expr(&format!("(SELECT 1 FROM (SELECT 1) AS \"{ORDERED}\")"))?;
    let Expr::Subquery(mut around) = around else { return Err(Error::internal("no subquery of ours")) };
    if let SetExpr::Select(select) = &mut *around.body
        && let Some(TableFactor::Derived { subquery, .. }) = select.from.first_mut().map(|from| &mut from.relation)
    {
        std::mem::swap(&mut **subquery, query);
        let item = |(hidden, alias)| SelectItem::ExprWithAlias { expr: Expr::Identifier(hidden), alias };
        select.projection = hidden.into_iter().zip(names).map(item).collect();
    }
    *query = *around;
    Ok(())
}

/// The names of the outputs of a select; `None` if they are not listed (`*`).
fn names_of(select: &Select) -> Option<Vec<Ident>> {
    let name = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
        SelectItem::UnnamedExpr(expr) => Some(output_name(expr)),
        _ => None,
    };
    select.projection.iter().map(name).collect()
}

/// The columns of tables in the sort keys: qualified ones, and within expressions also those that the select reads.
/// Other names may refer to outputs, which the planner resolves although PostgreSQL does not.
fn columns_of(select: &Select, keys: &[OrderByExpr]) -> Vec<Vec<String>> {
    let (mut ordered, mut read) = (Names::default(), Names::default());
    for key in keys {
        if !matches!(key.expr, Expr::Identifier(_)) {
            ordered.read(&key.expr);
        }
    }
    read.read(&select.projection);
    read.read(&select.selection);
    let is_read = |name: &[String]| read.found.iter().any(|found| found.last() == name.last());
    ordered.found.into_iter().filter(|name| name.len() > 1 || is_read(name)).collect()
}

/// Whether an output is just that column.
fn is_column(expr: &Expr, column: &[String]) -> bool {
    match expr {
        Expr::Identifier(name) => column.last() == Some(&normal(name)),
        Expr::CompoundIdentifier(names) => {
            let names: Vec<String> = names.iter().map(normal).collect();
            names.ends_with(column) || column.ends_with(&names)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::dialect::name_outputs;
    use crate::parse::{Params, ReadStatement, parse};

    fn check(text: &str, expected: &str) {
        let ReadStatement::Query(mut query) = parse(text, &Params::default()).expect(text).statement else {
            panic!("{text}")
        };
        name_outputs(&mut query).expect(text);
        assert_eq!(query.to_string().replace('\u{2063}', "~"), expected, "{text}");
    }

    #[test]
    fn an_order_by_a_column_is_none_by_an_output() {
        check(
            "select -t.x as x, 1 as y from t order by t.x, x desc, y",
            "SELECT -t.x AS \"x~1\", 1 AS y FROM t ORDER BY t.x, \"x~1\" DESC, y",
        );
        check(
            "select sum(x) as x from t group by g having sum(x) > 1 order by sum(x) / 2",
            "SELECT sum(x) AS \"x~1\" FROM t GROUP BY g HAVING sum(x) > 1 ORDER BY sum(x) / 2",
        );
        check(
            "select distinct on (g) upper(t.g) as g from t order by g, t.g",
            "SELECT DISTINCT ON (\"g~1\") upper(t.g) AS \"g~1\" FROM t ORDER BY \"g~1\", t.g",
        );
        check(
            "select distinct on (a, b, a) c as c from t order by b, a, b, c",
            "SELECT DISTINCT ON (b, a) c AS c FROM t ORDER BY b, a, b, c",
        );
        check("select u.x as x from t, u order by t.x", "SELECT u.x AS \"x~1\" FROM t, u ORDER BY t.x");
        check(
            "select (select -t.x as x from t order by t.x limit 1)",
            "SELECT (SELECT -t.x AS \"x~1\" FROM t ORDER BY t.x LIMIT 1) AS x",
        );
    }

    #[test]
    fn other_outputs_keep_their_names() {
        for text in [
            "SELECT t.x AS x FROM t ORDER BY t.x, x",
            "SELECT x AS x FROM t ORDER BY t.x, abs(x)",
            "SELECT -x AS x FROM t ORDER BY x DESC",
            // Within an expression the name refers to the output, which the planner resolves.
            "SELECT a + b AS x FROM t ORDER BY x + 1",
            "SELECT -t.x AS x FROM t UNION SELECT 1 ORDER BY x",
        ] {
            check(text, text);
        }
    }

    #[test]
    fn tables_have_the_names_that_are_written() {
        check(
            "select x from (select -t.x as x, t.y from t order by t.x limit 2) s",
            "SELECT x FROM (SELECT \"x~1\" AS x, y AS y FROM (SELECT -t.x AS \"x~1\", t.y FROM t ORDER BY t.x LIMIT 2) \
             AS \"ordered\") s",
        );
        check(
            "with s as (select -t.x as x from t order by t.x) select x from s",
            "WITH s AS (SELECT \"x~1\" AS x FROM (SELECT -t.x AS \"x~1\" FROM t ORDER BY t.x) AS \"ordered\") \
             SELECT x FROM s",
        );
        let lateral = "SELECT x FROM t, LATERAL (SELECT -u.x AS x FROM u ORDER BY u.x LIMIT 1) s";
        check(lateral, lateral);
        let all = "SELECT x FROM (SELECT *, -t.x AS x FROM t ORDER BY t.x) s";
        check(all, all);
    }
}
