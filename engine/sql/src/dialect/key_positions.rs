//! What sort keys and grouping keys say of outputs. A name that several different outputs have is none that says by which
//! to sort; the planner takes the first.
//!
//! Constants among sort keys and grouping keys. In PostgreSQL each must be the position of an output (`ORDER BY 1`).
//! The planner would take other constants, such as texts, and those in parentheses for values, and not sort at all.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, UnaryOperator, Value, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Location;
use quiver_types::{Error, Result};

use super::expressions::take;
use super::naming::name as output_name;
use crate::names::normal;
use crate::statement_walk::{refused, walk_mut};

/// Checks such constants and names, and removes parentheses around positions. Values of parameters do not count as constants.
///
/// # Errors
///
/// Invalid: a constant is no integer, there is no output at its position, or a name is that of several outputs.
pub(crate) fn look_up(query: &mut Query) -> Result<()> {
    match walk_mut(query, &mut Places) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Places;

impl VisitorMut for Places {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let count = outputs(&query.body);
        let Some(order) = &mut query.order_by else { return ControlFlow::Continue(()) };
        let OrderByKind::Expressions(keys) = &mut order.kind else { return ControlFlow::Continue(()) };
        let done = keys.iter_mut().try_for_each(|key| of_key(&mut key.expr, "ORDER BY", count));
        let items = first(&query.body).map_or(&[][..], |select| select.projection.as_slice());
        let done = done.and_then(|()| keys.iter().try_for_each(|key| of_one(&key.expr, "ORDER BY", items)));
        done.map_or_else(refused, ControlFlow::Continue)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        of_select(select).map_or_else(refused, ControlFlow::Continue)
    }
}

fn of_select(select: &mut Select) -> Result<()> {
    let count = listed(&select.projection);
    let Select { distinct, group_by, projection, .. } = select;
    if let Some(Distinct::On(ons)) = distinct {
        ons.iter_mut().try_for_each(|on| of_key(on, "DISTINCT ON", count))?;
        ons.iter().try_for_each(|on| of_one(on, "DISTINCT ON", projection))?;
    }
    let GroupByExpr::Expressions(keys, _) = group_by else { return Ok(()) };
    for key in keys {
        match key {
            Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => {
                sets.iter_mut().flatten().try_for_each(|part| of_key(part, "GROUP BY", count))?;
            }
            key => of_key(key, "GROUP BY", count)?,
        }
    }
    Ok(())
}

/// How many outputs a query has; `None` if there are `*`, or `VALUES`.
fn outputs(body: &SetExpr) -> Option<usize> {
    listed(&first(body)?.projection)
}

/// The select whose outputs name those of a query; `None` if it has `VALUES`.
fn first(mut body: &SetExpr) -> Option<&Select> {
    loop {
        match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::Query(inner) => body = &*inner.body,
            SetExpr::SetOperation { left, .. } => body = &**left,
            _ => return None,
        }
    }
}

/// Refuses a key that is the name of several outputs which are not the same.
fn of_one(key: &Expr, clause: &str, items: &[SelectItem]) -> Result<()> {
    let Expr::Identifier(key) = key else { return Ok(()) };
    let asked = normal(key);
    let named = items.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(value) => (normal(&output_name(value)) == asked).then_some(value),
        SelectItem::ExprWithAlias { expr, alias } => (normal(alias) == asked).then_some(expr),
        _ => None,
    });
    let named: Vec<&Expr> = named.collect();
    if named.windows(2).all(|pair| are_same(pair[0], pair[1])) {
        return Ok(());
    }
    let at = key.span.start;
    Err(Error::invalid(format!("{clause} \"{asked}\" is ambiguous at line {}, column {}", at.line, at.column)))
}

/// Whether two outputs are the same; a column may have its table before it, or not.
fn are_same(one: &Expr, other: &Expr) -> bool {
    match (plain(one), plain(other)) {
        (Expr::Identifier(name), Expr::CompoundIdentifier(names))
        | (Expr::CompoundIdentifier(names), Expr::Identifier(name)) => {
            names.last().is_some_and(|last| normal(last) == normal(name))
        }
        (one, other) => one == other || folded(one).is_some_and(|text| folded(other) == Some(text)),
    }
}

/// An expression in small letters; `None` if their case may mean something, since there are quotes.
fn folded(expr: &Expr) -> Option<String> {
    let text = expr.to_string();
    if text.contains(['\'', '"', '$']) { None } else { Some(text.to_ascii_lowercase()) }
}

fn listed(items: &[SelectItem]) -> Option<usize> {
    let is_one = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    items.iter().all(is_one).then_some(items.len())
}

fn of_key(key: &mut Expr, clause: &str, count: Option<usize>) -> Result<()> {
    let Some((number, at)) = constant(key) else { return Ok(()) };
    let place = format!("at line {}, column {}", at.line, at.column);
    let Some(number) = number.and_then(|number| number.parse::<i32>().ok()) else {
        let text = format!("non-integer constant in `{clause}`: a constant there is the place of an output {place}");
        return Err(Error::invalid(text));
    };
    let is_there = usize::try_from(number).is_ok_and(|number| number > 0 && count.is_none_or(|count| number <= count));
    if !is_there {
        return Err(Error::invalid(format!("`{clause}` position {number} is not in the list of outputs {place}")));
    }
    while let Expr::Nested(inner) = key {
        *key = take(inner);
    }
    Ok(())
}

/// The number that a constant is, and its location in the text; the inner `None` is a constant of another type.
/// Booleans are no constants, since PostgreSQL reads them as casts.
fn constant(key: &Expr) -> Option<(Option<String>, Location)> {
    let (inner, sign) = match plain(key) {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => (plain(expr), "-"),
        other => (other, ""),
    };
    let Expr::Value(value) = inner else { return None };
    let at = value.span.start;
    // The value of a parameter has no location.
    if at.line == 0 {
        return None;
    }
    match &value.value {
        Value::Boolean(_) | Value::Placeholder(_) => None,
        Value::Number(number, _) => Some((Some(format!("{sign}{number}")), at)),
        _ => sign.is_empty().then_some((None, at)),
    }
}

/// An expression without parentheses around it.
fn plain(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = &**inner;
    }
    expr
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Param, Params, ReadStatement, parse};

    fn looked_up(text: &str) -> Result<String> {
        let values = [Param::Text("a".to_owned()), Param::Number("1.5".to_owned())];
        let params = Params::positional(if text.contains('$') { values.to_vec() } else { Vec::new() });
        let ReadStatement::Query(mut query) = parse(text, &params).expect(text).statement else {
            panic!("no query: {text}")
        };
        look_up(&mut query)?;
        Ok(query.to_string())
    }

    #[test]
    fn places_are_those_of_outputs() {
        for (text, expected) in [
            ("select a from t order by (1), ((1)) desc", "SELECT a FROM t ORDER BY 1, 1 DESC"),
            ("select a, b from t group by (2), rollup ((1))", "SELECT a, b FROM t GROUP BY 2, ROLLUP (1)"),
            ("select distinct on ((1)) a from t", "SELECT DISTINCT ON (1) a FROM t"),
        ] {
            assert_eq!(looked_up(text).expect(text), expected);
        }
        for same in [
            "SELECT a FROM t ORDER BY true, +1, 1 + 1, 'a'::TEXT, DATE '2024-01-01', -a",
            "SELECT * FROM t ORDER BY 9",
            "SELECT a, t.* FROM t GROUP BY 9",
            "SELECT sum(a) OVER (PARTITION BY 'a' ORDER BY 9), array_agg(a ORDER BY 'a') FROM t",
            "VALUES (1, 2) ORDER BY 2",
        ] {
            assert_eq!(looked_up(same).expect(same), same);
        }
        let params = "select a, $1, $2 from t group by $1, $2 order by $1, $2";
        assert!(looked_up(params).is_ok());
    }

    #[test]
    fn names_of_several_outputs_are_refused() {
        for same in [
            "SELECT a AS x, b AS y FROM t ORDER BY x",
            "SELECT a AS x, t.a AS x FROM t ORDER BY x",
            "SELECT t.a, a, (a) FROM t ORDER BY a",
            "SELECT upper(a), upper(a) FROM t ORDER BY upper",
            "SELECT a, A, t.a, T.A FROM t ORDER BY a",
            "SELECT upper(a), UPPER(A) FROM t ORDER BY upper",
            "SELECT a AS x, b AS \"X\" FROM t ORDER BY x",
            "SELECT a AS x, b AS x FROM t ORDER BY t.x, x || 'a'",
            "SELECT a AS x, b AS x FROM t",
            "VALUES (1, 2) ORDER BY column1",
        ] {
            assert_eq!(looked_up(same).expect(same), same);
        }
        for (text, said) in [
            ("select a as x, b as x from t order by X", "ORDER BY \"x\" is ambiguous at line 1, column 39"),
            ("select a::date, a::text from t order by a", "ORDER BY \"a\" is ambiguous at line 1, column 41"),
            ("select a, -a as a union select 1, 2\norder by a", "ORDER BY \"a\" is ambiguous at line 2, column 10"),
            ("select 'a' x, 'A' x from t order by x", "ORDER BY \"x\" is ambiguous at line 1, column 37"),
            ("select distinct on (x) a x, b x from t", "DISTINCT ON \"x\" is ambiguous at line 1, column 21"),
            ("select (select a x, b x from t order by x)", "ORDER BY \"x\" is ambiguous at line 1, column 41"),
        ] {
            assert_eq!(looked_up(text).expect_err(text).message, said, "{text}");
        }
    }

    #[test]
    fn other_constants_are_refused() {
        let whole = "non-integer constant in `";
        for (text, said) in [
            ("select a from t order by\n 'b'", format!("{whole}ORDER BY`: … at line 2, column 2")),
            ("select a from t order by a, 1.5", format!("{whole}ORDER BY`: … at line 1, column 29")),
            ("select a from t order by null", format!("{whole}ORDER BY`: … at line 1, column 26")),
            ("select a from t order by 3000000000", format!("{whole}ORDER BY`: … at line 1, column 26")),
            ("select a from t group by 'b'", format!("{whole}GROUP BY`: … at line 1, column 26")),
            ("select a from t group by -1.5", format!("{whole}GROUP BY`: … at line 1, column 27")),
            (
                "select a from t group by grouping sets ((a), (1.5))",
                format!("{whole}GROUP BY`: … at line 1, column 47"),
            ),
            ("select distinct on ('b') a from t", format!("{whole}DISTINCT ON`: … at line 1, column 21")),
            ("select a from t order by 2", "`ORDER BY` position 2 is … at line 1, column 26".to_owned()),
            ("select a from t order by -1", "`ORDER BY` position -1 is … at line 1, column 27".to_owned()),
            ("select * from t order by 0", "`ORDER BY` position 0 is … at line 1, column 26".to_owned()),
            ("select a from t group by cube (2)", "`GROUP BY` position 2 is … at line 1, column 32".to_owned()),
            ("select distinct on (2) a from t", "`DISTINCT ON` position 2 is … at line 1, column 21".to_owned()),
            ("select 1 union (select 2) order by 2", "`ORDER BY` position 2 is … at line 1, column 36".to_owned()),
            ("select (select a from t order by 2)", "`ORDER BY` position 2 is … at line 1, column 34".to_owned()),
        ] {
            let error = looked_up(text).expect_err(text);
            let (begins, ends) = said.split_once('…').expect("a gap");
            assert!(error.message.starts_with(begins) && error.message.ends_with(ends), "{text}: {error}");
        }
    }
}
