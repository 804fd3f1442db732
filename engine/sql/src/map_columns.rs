//! Labels and fields as columns of table functions: a name that a statement uses and that is not one of the function's
//! own columns is looked up in its map, as `attr` does.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Ident, OrderBy, Query, Select, SetExpr, TableFactor, TableWithJoins, VisitorMut,
};
use quiver_query::quoting::text as quoted;
use quiver_types::{Error, Result};

use crate::names::{Names, alias_of, normal, parts};
use crate::parse::{Params, ReadStatement, parse};
use crate::statement_walk::walk_mut;
use crate::table_functions::is_language;

/// Columns of PromQL's rows, the map last.
const POINTS: [&str; 3] = ["time", "value", "labels"];
/// Columns of LogsQL's rows, the map last.
const RECORDS: [&str; 3] = ["time", "message", "fields"];

/// Gives each call of a table function the columns that its query names.
///
/// # Errors
/// Internal: only by a fault of ours.
pub(crate) fn widen_calls(query: &mut Query) -> Result<()> {
    match walk_mut(query, &mut Widener) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Widener;

impl VisitorMut for Widener {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let Query { body, order_by, .. } = query;
        match &mut **body {
            SetExpr::Select(select) => flow(widen(select, order_by.as_ref())),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        flow(widen(select, None))
    }
}

fn flow(result: Result<()>) -> ControlFlow<Box<Error>> {
    result.map_or_else(|error| ControlFlow::Break(Box::new(error)), ControlFlow::Continue)
}

fn widen(select: &mut Select, order: Option<&OrderBy>) -> Result<()> {
    let names = spoken_of(select, order);
    // Beside other tables a name belongs to a call only with its alias.
    let is_alone = match select.from.as_slice() {
        [from] => from.joins.is_empty() && !matches!(from.relation, TableFactor::NestedJoin { .. }),
        _ => false,
    };
    widen_in(&mut select.from, &names, is_alone)
}

/// Widens the calls of a `FROM`, those within brackets too.
fn widen_in(from: &mut [TableWithJoins], names: &BTreeSet<Vec<String>>, is_alone: bool) -> Result<()> {
    for TableWithJoins { relation, joins } in from {
        for factor in std::iter::once(relation).chain(joins.iter_mut().map(|join| &mut join.relation)) {
            if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
                widen_in(std::slice::from_mut(&mut **table_with_joins), names, is_alone)?;
                continue;
            }
            let Some((alias, own)) = call_of(factor) else { continue };
            let columns = names.iter().filter_map(|name| match name.as_slice() {
                [column] if is_alone && *column != alias => Some(column),
                [.., table, column] if *table == alias => Some(column),
                _ => None,
            });
            let columns: Vec<&String> = columns.filter(|column| !own.contains(&column.as_str())).collect();
            if !columns.is_empty() {
                *factor = widened(factor.clone(), &alias, own[2], &columns)?;
            }
        }
    }
    Ok(())
}

/// Names of columns that a select speaks of, but for those that are its own outputs.
fn spoken_of(select: &Select, order: Option<&OrderBy>) -> BTreeSet<Vec<String>> {
    let (mut names, mut later) = (Names::default(), Names::default());
    names.read(&select.projection);
    read_around_calls(&select.from, &mut names);
    names.read(&select.selection);
    names.read(&select.distinct);
    later.read(&select.group_by);
    later.read(&select.having);
    later.read(&select.qualify);
    later.read(&select.named_window);
    if let Some(order) = order {
        later.read(order);
    }
    let aliases: Vec<String> = select.projection.iter().filter_map(alias_of).collect();
    later.found.retain(|name| name.len() > 1 || !aliases.contains(&name[0]));
    names.found.append(&mut later.found);
    names.found
}

/// Reads the names of a `FROM`, but for those within calls: arguments are constants, and a call that is given the columns
/// that it names itself would name them again, without end.
fn read_around_calls(from: &[TableWithJoins], names: &mut Names) {
    let read = |factor: &TableFactor, names: &mut Names| match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => {
            read_around_calls(std::slice::from_ref(&**table_with_joins), names);
        }
        factor if is_call(factor) => {}
        factor => names.read(factor),
    };
    for TableWithJoins { relation, joins } in from {
        read(relation, names);
        for join in joins {
            read(&join.relation, names);
            names.read(&join.join_operator);
        }
    }
}

/// Whether a language evaluates what is selected from.
fn is_call(factor: &TableFactor) -> bool {
    let TableFactor::Table { name, args: Some(_), .. } = factor else { return false };
    parts(name).pop().is_some_and(|function| is_language(&function))
}

/// The alias and the own columns of a call of a table function. Whoever names its columns himself gets these alone.
fn call_of(factor: &TableFactor) -> Option<(String, [&'static str; 3])> {
    let TableFactor::Table { name, alias, args: Some(_), .. } = factor else { return None };
    let function = parts(name).pop()?;
    if !is_language(&function) {
        return None;
    }
    if alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
        return None;
    }
    let own = if function == "logsql" { RECORDS } else { POINTS };
    Some((alias.as_ref().map_or(function, |alias| normal(&alias.name)), own))
}

/// A call as a subquery that gives entries of its map as columns, too.
fn widened(call: TableFactor, alias: &str, map: &str, columns: &[&String]) -> Result<TableFactor> {
    let column = |name: &&String| {
        let key = name.strip_prefix("labels.").unwrap_or(name);
        format!(", attr({map}, {}) AS {}", quoted(key), Ident::with_quote('"', name.as_str()))
    };
    let columns: String = columns.iter().map(column).collect();
    let alias = Ident::with_quote('"', alias);
    let read = parse(&format!("SELECT 1 FROM (SELECT *{columns} FROM called) AS {alias}"), &Params::default())?;
    let ReadStatement::Query(mut outer) = read.statement else { return Err(unexpected()) };
    let mut factor = relation(&mut outer).cloned().ok_or_else(unexpected)?;
    if let TableFactor::Derived { subquery, .. } = &mut factor
        && let Some(inner) = relation(subquery)
    {
        *inner = call;
        return Ok(factor);
    }
    Err(unexpected())
}

/// What a query selects from first.
fn relation(query: &mut Query) -> Option<&mut TableFactor> {
    match &mut *query.body {
        SetExpr::Select(select) => select.from.first_mut().map(|from| &mut from.relation),
        _ => None,
    }
}

fn unexpected() -> Error {
    Error::internal("a call of a table function cannot be given columns")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let ReadStatement::Query(mut query) = parse(text, &Params::default()).unwrap().statement else {
            panic!("no query")
        };
        widen_calls(&mut query).unwrap();
        assert_eq!(query.to_string(), expected, "{text}");
    }

    #[test]
    fn labels_are_columns_where_they_are_named() {
        check("SELECT value FROM promql_instant('up', 5)", "SELECT value FROM promql_instant('up', 5)");
        check(
            "SELECT job, max(value) AS m FROM promql_instant('up', 5) GROUP BY job ORDER BY m",
            "SELECT job, max(value) AS m FROM (SELECT *, attr(labels, 'job') AS \"job\" FROM promql_instant('up', 5)) \
             AS \"promql_instant\" GROUP BY job ORDER BY m",
        );
        check(
            "SELECT l.level, p.job, host FROM logs AS l, promql_instant('up', 5) AS p ORDER BY p.value",
            "SELECT l.level, p.job, host FROM logs AS l, \
             (SELECT *, attr(labels, 'job') AS \"job\" FROM promql_instant('up', 5) AS p) AS \"p\" ORDER BY p.value",
        );
        check(
            "SELECT sum(n::BIGINT) FROM logsql('*') WHERE level = 'error'",
            "SELECT sum(n::BIGINT) FROM (SELECT *, attr(fields, 'level') AS \"level\", attr(fields, 'n') AS \"n\" \
             FROM logsql('*')) AS \"logsql\" WHERE level = 'error'",
        );
    }

    #[test]
    fn names_are_those_of_the_map() {
        check(
            r#"SELECT "k8s.pod", "it's", "a""b", LEVEL FROM logsql('*')"#,
            r#"SELECT "k8s.pod", "it's", "a""b", LEVEL FROM (SELECT *, attr(fields, 'a"b') AS "a""b", attr(fields, 'it''s') AS "it's", attr(fields, 'k8s.pod') AS "k8s.pod", attr(fields, 'level') AS "level" FROM logsql('*')) AS "logsql""#,
        );
        // As results of PromQL elsewhere call them.
        check(
            r#"SELECT "labels.job" FROM promql_instant('up', 5)"#,
            "SELECT \"labels.job\" FROM (SELECT *, attr(labels, 'job') AS \"labels.job\" FROM promql_instant('up', 5)) \
             AS \"promql_instant\"",
        );
        for same in [
            // Own columns are no labels, and whoever names the columns gets these alone.
            "SELECT p.time, p.value, p.labels FROM promql_range('up', 1, 2, 1) AS p",
            "SELECT message FROM logsql('*') ORDER BY time",
            "SELECT a, job FROM promql_instant('up', 5) AS p (a, b, c)",
            "SELECT job FROM generate_series(1, 2) AS g",
            "SELECT job FROM promql_instant",
            // Arguments have no columns to name.
            "SELECT * FROM logsql(arr)",
            "SELECT 1 FROM logsql(upper(w.arr)) AS w, logs",
            "SELECT 1 FROM (promql_instant('up', p.at) AS p CROSS JOIN logs AS l)",
            "SELECT 1 FROM logs AS l JOIN promql_instant('up', l.at, p.at) AS p ON true",
        ] {
            check(same, same);
        }
    }

    #[test]
    fn calls_are_widened_wherever_they_stand() {
        check(
            "SELECT job FROM promql_instant('a', 5) UNION SELECT level FROM logsql('*')",
            "SELECT job FROM (SELECT *, attr(labels, 'job') AS \"job\" FROM promql_instant('a', 5)) AS \"promql_instant\" \
             UNION SELECT level FROM (SELECT *, attr(fields, 'level') AS \"level\" FROM logsql('*')) AS \"logsql\"",
        );
        check(
            "SELECT 1 FROM logs AS l JOIN promql_instant('up', 5) AS p ON p.host = l.host",
            "SELECT 1 FROM logs AS l JOIN (SELECT *, attr(labels, 'host') AS \"host\" FROM promql_instant('up', 5) AS p) \
             AS \"p\" ON p.host = l.host",
        );
        check(
            "SELECT p.job, host FROM (promql_instant('up', 5) AS p CROSS JOIN logs AS l)",
            "SELECT p.job, host FROM ((SELECT *, attr(labels, 'job') AS \"job\" FROM promql_instant('up', 5) AS p) \
             AS \"p\" CROSS JOIN logs AS l)",
        );
        check(
            "SELECT x IN (SELECT job FROM promql_instant('up', 5)) FROM t",
            "SELECT x IN (SELECT job FROM (SELECT *, attr(labels, 'job') AS \"job\" FROM promql_instant('up', 5)) \
             AS \"promql_instant\") FROM t",
        );
        // A name that an output has is that output's where groups are kept and rows are ordered.
        check(
            "SELECT max(value) AS job FROM promql_instant('up', 5) GROUP BY host HAVING job > 1",
            "SELECT max(value) AS job FROM (SELECT *, attr(labels, 'host') AS \"host\" FROM promql_instant('up', 5)) \
             AS \"promql_instant\" GROUP BY host HAVING job > 1",
        );
    }
}
