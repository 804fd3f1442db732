//! Literal texts beside other values: `coalesce(time, '1970-01-01')`, `CASE … THEN 1 ELSE '2' END`. In PostgreSQL
//! they get the type of the others, which only the planner knows; wrapped in `literal` they are resolved during
//! planning. A text that can be nothing but a text stays as it is.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, Expr, FunctionArguments, Query, SelectItem, SetExpr, SetOperator, TableFactor, Value,
    VisitorMut,
};

use super::expressions::{bare, call, take, value_of};
use crate::names::parts;
use crate::statement_walk::walk_mut;
use crate::table_functions::CALLS;

/// Functions whose arguments have one common type.
const OF_ONE_TYPE: [&str; 4] = ["coalesce", "greatest", "least", "make_array"];
/// Words that are values of other types.
const WORDS: [&str; 12] = ["t", "true", "y", "yes", "on", "f", "false", "n", "no", "off", "nan", "infinity"];

/// Wraps such texts, so that their types are resolved later.
pub(crate) fn leave_open(query: &mut Query) {
    // The visitor never breaks.
    let _ = walk_mut(query, &mut Opener { recursive: HashSet::new(), calls: 0 });
}

struct Opener {
    /// Recursive common tables: their first part determines the types of the columns.
    recursive: HashSet<*const Query>,
    /// How many enclosing calls are evaluated before the statement is planned, with the texts of their arguments.
    calls: usize,
}

/// Whether a table in a `FROM` is a call of one of our table functions.
fn is_call(factor: &TableFactor) -> bool {
    let TableFactor::Table { name, args: Some(_), .. } = factor else { return false };
    parts(name).last().is_some_and(|name| CALLS.iter().any(|(known, _)| known == name))
}

impl VisitorMut for Opener {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(with) = query.with.as_ref().filter(|with| with.recursive) {
            self.recursive.extend(with.cte_tables.iter().map(|table| std::ptr::from_ref(&*table.query)));
        }
        if !self.recursive.contains(&std::ptr::from_ref(&*query)) {
            of_rows(&mut query.body);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        self.calls += usize::from(is_call(factor));
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        self.calls -= usize::from(is_call(factor));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.calls > 0 {
            return ControlFlow::Continue(());
        }
        match expr {
            Expr::Case { conditions, else_result, .. } => {
                let results = conditions.iter_mut().map(|when| &mut when.result);
                open_unless_bare(results.chain(else_result.as_deref_mut()).collect());
            }
            Expr::Array(Array { elem, .. }) => open_unless_bare(elem.iter_mut().collect()),
            Expr::BinaryOp { left, op, right } if compares(op) && (is_interval(left) || is_interval(right)) => {
                open_all(vec![&mut **left, &mut **right]);
            }
            Expr::Function(function)
                if function.over.is_none()
                    && bare(&function.name).is_some_and(|name| OF_ONE_TYPE.contains(&name.as_str())) =>
            {
                if let FunctionArguments::List(list) = &mut function.args {
                    open_unless_bare(list.args.iter_mut().filter_map(value_of).collect());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn compares(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// Whether an expression is an interval literal: the planner compares times with texts, but not intervals.
fn is_interval(value: &Expr) -> bool {
    match value {
        Expr::Nested(inner) => is_interval(inner),
        Expr::Interval(_) => true,
        _ => false,
    }
}

/// Handles each column of rows that `VALUES` and `UNION` combine.
fn of_rows(body: &mut SetExpr) {
    let (mut rows, mut open) = (Vec::<Vec<&mut Expr>>::new(), vec![body]);
    // Whether there are rows whose values are not literal.
    let mut are_others = false;
    while let Some(body) = open.pop() {
        match body {
            SetExpr::SetOperation { op: SetOperator::Union, left, right, .. } => {
                open.extend([&mut **left, &mut **right]);
            }
            SetExpr::Values(values) => {
                rows.extend(values.rows.iter_mut().map(|row| row.iter_mut().collect::<Vec<_>>()));
            }
            SetExpr::Select(select) => match select.projection.iter_mut().map(output_of).collect::<Option<Vec<_>>>() {
                Some(outputs) => rows.push(outputs),
                None => are_others = true,
            },
            _ => are_others = true,
        }
    }
    if rows.len() + usize::from(are_others) < 2 {
        return;
    }
    let width = rows.iter().map(Vec::len).max().unwrap_or_default();
    let mut rows: Vec<_> = rows.into_iter().map(IntoIterator::into_iter).collect();
    for _ in 0..width {
        let column: Vec<&mut Expr> = rows.iter_mut().filter_map(Iterator::next).collect();
        if are_others { open_all(column) } else { open_unless_bare(column) }
    }
}

fn output_of(item: &mut SelectItem) -> Option<&mut Expr> {
    match item {
        SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. } => Some(value),
        _ => None,
    }
}

/// Wraps the texts among values, if one of these is neither a literal text nor NULL.
fn open_unless_bare(values: Vec<&mut Expr>) {
    if values.iter().any(|value| !is_bare(value)) {
        open_all(values);
    }
}

fn open_all(values: Vec<&mut Expr>) {
    for value in values {
        if written(value).is_some_and(may_be_other) {
            *value = call("literal", vec![take(value)]);
        }
    }
}

/// Whether a value has no type of its own.
fn is_bare(value: &Expr) -> bool {
    match value {
        Expr::Nested(inner) => is_bare(inner),
        Expr::Value(value) => value.value == Value::Null || text_of(&value.value).is_some(),
        _ => false,
    }
}

fn written(value: &Expr) -> Option<&str> {
    match value {
        Expr::Nested(inner) => written(inner),
        Expr::Value(value) => text_of(&value.value),
        _ => None,
    }
}

fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
        _ => None,
    }
}

/// Whether a text may be a number, a time, a list or a boolean.
fn may_be_other(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    let number = text.trim_start_matches(['+', '-', '.', '{']);
    text.starts_with('{') || number.starts_with(|letter: char| letter.is_ascii_digit()) || WORDS.contains(&number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Params, ReadStatement, parse};

    fn check(text: &str, expected: &str) {
        let ReadStatement::Query(mut query) = parse(text, &Params::default()).unwrap().statement else {
            panic!("no query")
        };
        leave_open(&mut query);
        assert_eq!(query.to_string(), expected, "{text}");
    }

    #[test]
    fn texts_beside_values_are_open() {
        check(
            "SELECT coalesce(a, '1'), greatest('2', (b)), CASE WHEN c THEN '-3' WHEN d THEN 1 ELSE 'f' END, ARRAY['4', e]",
            "SELECT coalesce(a, literal('1')), greatest(literal('2'), (b)), \
             CASE WHEN c THEN literal('-3') WHEN d THEN 1 ELSE literal('f') END, ARRAY[literal('4'), e]",
        );
        check("SELECT (INTERVAL '1 day') < '1 hour'", "SELECT (INTERVAL '1 day') < literal('1 hour')");
        for same in [
            "SELECT coalesce(a, 'none'), coalesce('1', NULL, '2'), CASE WHEN c THEN '1' ELSE '0' END, ARRAY['1', '2']",
            "SELECT concat(a, '1'), a || '1', a = '1', a IN (1, '2')",
            "SELECT '1' AS a UNION ALL SELECT '2'",
            "SELECT '1' AS a EXCEPT SELECT b FROM t",
            "VALUES ('1', 2), ('3', 4)",
            "VALUES ('1'), (NULL)",
            "WITH RECURSIVE r AS (SELECT '1' AS a UNION ALL SELECT a || '2' FROM r) SELECT a FROM r",
        ] {
            check(same, same);
        }
    }

    #[test]
    fn arguments_of_table_functions_have_their_values() {
        let same = "SELECT value FROM promql_range('up', greatest('2025-03-10', now()), CASE WHEN true THEN '9' ELSE 8 END, \
                    '1m') AS p, quiver.logsql(coalesce('5', 6))";
        check(same, same);
        check(
            "SELECT coalesce('5', 6) FROM logsql(coalesce('5', 6)), generate_series(1, coalesce('5', 6)) AS g",
            "SELECT coalesce(literal('5'), 6) FROM logsql(coalesce('5', 6)), \
             generate_series(1, coalesce(literal('5'), 6)) AS g",
        );
    }

    #[test]
    fn columns_of_several_rows_have_one_type() {
        check("VALUES ('1', 'a'), (2, b)", "VALUES (literal('1'), 'a'), (2, b)");
        check(
            "SELECT '1' AS a, 'x' AS b, 'v' AS c UNION SELECT a, '2', '2' FROM t UNION ALL VALUES ('3', 'z', 5)",
            "SELECT literal('1') AS a, 'x' AS b, 'v' AS c UNION SELECT a, '2', literal('2') FROM t \
             UNION ALL VALUES (literal('3'), 'z', 5)",
        );
        check(
            "SELECT a FROM (SELECT '1' AS a UNION ALL SELECT * FROM t) AS s",
            "SELECT a FROM (SELECT literal('1') AS a UNION ALL SELECT * FROM t) AS s",
        );
    }
}
