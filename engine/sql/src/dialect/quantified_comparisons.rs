//! `x > ANY (SELECT x FROM …)` and `ALL`. The planner makes an `EXISTS` of them, whose condition contains both sides.
//! If the subquery has a column of the name on the left, that would be compared with itself; so the subquery's column
//! gets a unique name.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, BinaryOperator, DataType, Expr, Select, SetExpr, SetOperator, SetQuantifier, TableFactor,
    UnaryOperator, Visitor,
};
use quiver_types::Result;

use super::expressions::{Quantifier, boolean, call, copied, expr, items_of_text, literal, take};
use super::{equality_lookups, nested_lists, operators, patterns, queries};
use crate::names::normal;
use crate::statement_walk::{change_outside_subqueries, walk};

/// Renames the column of a subquery that a value is compared with, if both may have the same name.
pub(super) fn apart(place: &mut Expr) -> Result<()> {
    let (Expr::AnyOp { left, right, .. } | Expr::AllOp { left, right, .. }) = place else { return Ok(()) };
    let Expr::Subquery(query) = &**right else { return Ok(()) };
    let (mut own, mut inner) = (Columns::default(), Columns::default());
    let _ = walk(&**left, &mut own);
    let _ = walk(&**query, &mut inner);
    if !own.0.is_disjoint(&inner.0) {
        **right = expr(&format!("(SELECT \"of set\" FROM ({query}) AS \"set\" (\"of set\"))"))?;
    }
    Ok(())
}

/// Bare names of columns.
#[derive(Default)]
struct Columns(HashSet<String>);

impl Visitor for Columns {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => _ = self.0.insert(normal(name)),
            Expr::CompoundIdentifier(name) => self.0.extend(name.last().map(normal)),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Whether an expression reads a column.
pub(super) fn names_columns(expr: &Expr) -> bool {
    let mut own = Columns::default();
    let _ = walk(expr, &mut own);
    !own.0.is_empty()
}

/// Rewrites `x = ANY (SELECT …)` and `x <> ALL (SELECT …)` as `IN` and `NOT IN`, and `x = ANY ('{1,2}')` as a
/// comparison with each item, which then gets the type of `x`.
pub(super) fn plain(place: &mut Expr) -> Result<()> {
    let (left, op, right, quantifier) = match place {
        Expr::AnyOp { left, compare_op, right, .. } => (left, compare_op, right, Quantifier::Any),
        Expr::AllOp { left, compare_op, right } => (left, compare_op, right, Quantifier::All),
        _ => return Ok(()),
    };
    let negated = match (&*op, quantifier) {
        (BinaryOperator::Eq, Quantifier::Any) => Some(false),
        (BinaryOperator::NotEq, Quantifier::All) => Some(true),
        _ => None,
    };
    values_within(right)?;
    // A cast gives the type of the items; only a bare literal is rewritten.
    if is_bare_value(right)
        && let Some(items) = items_of_literal(right)?
    {
        *place = match negated {
            _ if items.is_empty() => boolean(!quantifier.decisive()),
            Some(negated) => Expr::InList { expr: Box::new(take(left)), list: items, negated },
            None => operators::compared_with_each(left, op, items, quantifier)?,
        };
        return Ok(());
    }
    // The planner compares with lists only by `=`, `<` and similar operators.
    if patterns::is_regex(op)
        && let Some(items) = operators::items_of(right)
    {
        *place = operators::compared_with_each(left, op, items, quantifier)?;
        return Ok(());
    }
    if let (Some(negated), Expr::Subquery(query)) = (negated, &**right)
        && !matches!(**left, Expr::Tuple(_))
    {
        let subquery = query.clone();
        *place = Expr::InSubquery { expr: Box::new(take(left)), subquery, negated };
        return Ok(());
    }
    if let (Some(false), false) = (negated, matches!(**right, Expr::Subquery(_)) || matches!(**left, Expr::Tuple(_))) {
        *place = one_of(take(left), take(right));
        return Ok(());
    }
    if let (Quantifier::Any, Some(op)) = (quantifier, opposite(op))
        && !matches!(**right, Expr::Subquery(_))
        && !matches!(**left, Expr::Tuple(_))
    {
        *place = not_all(take(left), op, take(right));
    }
    Ok(())
}

/// Makes one list of lists of lists that are written out: a value is compared with all values within.
fn values_within(list: &mut Expr) -> Result<()> {
    let (list, of_type) = match list {
        Expr::Cast { expr, data_type, .. } => (&mut **expr, Some(data_type)),
        list => (list, None),
    };
    let Some(data_type) = of_type else {
        if let Some(elem) = nested_lists::values(list) {
            *list = Expr::Array(Array { elem, named: true });
        }
        return Ok(());
    };
    let DataType::Array(_) = data_type else { return Ok(()) };
    let lists = literal(list).map(nested_lists::of_text).transpose()?.flatten();
    if let Some(elem) = nested_lists::values(lists.as_ref().unwrap_or(list)) {
        let is_text = lists.is_some();
        *list = if is_text { call("make_array", elem) } else { Expr::Array(Array { elem, named: true }) };
        let item = Box::new(nested_lists::of_values(data_type).clone());
        *data_type = DataType::Array(ArrayElemTypeDef::SquareBracket(item, None));
    }
    Ok(())
}

/// The items of a text that is a list, or a list of lists.
fn items_of_literal(list: &Expr) -> Result<Option<Vec<Expr>>> {
    let Some(written) = literal(list) else { return Ok(None) };
    match nested_lists::of_text(written)? {
        Some(lists) => Ok(nested_lists::values(&lists)),
        None => Ok(items_of_text(written)),
    }
}

/// Whether an expression is a literal or a parameter, also in parentheses: JDBC writes `ANY (('{1,2}'))` where it puts
/// values into statements itself.
fn is_bare_value(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_bare_value(inner),
        other => matches!(other, Expr::Value(_)),
    }
}

/// The negated comparison operator.
fn opposite(op: &BinaryOperator) -> Option<BinaryOperator> {
    Some(match op {
        BinaryOperator::Lt => BinaryOperator::GtEq,
        BinaryOperator::LtEq => BinaryOperator::Gt,
        BinaryOperator::Gt => BinaryOperator::LtEq,
        BinaryOperator::GtEq => BinaryOperator::Lt,
        _ => return None,
    })
}

/// Rewrites as `NOT (x op ALL (list))`: the planner handles NULL items correctly for `ALL`, but not for `ANY`.
fn not_all(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    let all = Expr::AllOp { left: Box::new(left), compare_op: op, right: Box::new(right) };
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(all))) }
}

/// `x = ANY (list)` by way of `x <> ALL (list)`. The planner would test whether the list contains `x`, which is false
/// instead of NULL if there is no match but a NULL item.
fn one_of(left: Expr, right: Expr) -> Expr {
    match right {
        Expr::Array(Array { elem, .. })
            if !elem.is_empty() && !elem.iter().any(|one| matches!(one, Expr::Array(_))) =>
        {
            Expr::InList { expr: Box::new(left), list: elem, negated: false }
        }
        right => not_all(left, BinaryOperator::NotEq, right),
    }
}

/// `x IN (VALUES (1), (2))` as `x IN (1, 2)`, also for rows of several values.
pub(super) fn listed(place: &mut Expr) {
    let Expr::InSubquery { expr, subquery, negated } = place else { return };
    let width = match &**expr {
        Expr::Tuple(parts) => Some(parts.len()),
        _ => None,
    };
    let is_whole = subquery.with.is_none() && subquery.limit_clause.is_none() && subquery.fetch.is_none();
    let SetExpr::Values(values) = &mut *subquery.body else { return };
    let is_long = width.is_some() && values.rows.len() > operators::ITEMS_MAX;
    if !is_whole || is_long || values.rows.iter().any(|row| row.len() != width.unwrap_or(1)) {
        return;
    }
    let list = values.rows.iter_mut().filter_map(|row| match width {
        Some(_) => Some(Expr::Tuple(row.iter_mut().map(take).collect())),
        None => row.first_mut().map(take),
    });
    let list = list.collect();
    *place = Expr::InList { expr: Box::new(take(expr)), list, negated: *negated };
}

/// Wraps a set with `DISTINCT` or `UNION` in another select. If the set is one of several conditions (`x IN (…) OR
/// …`), the planner would otherwise have its column twice.
pub(super) fn behind_name(place: &mut Expr) -> Result<()> {
    let Expr::InSubquery { subquery, negated, .. } = place else { return Ok(()) };
    if *negated {
        equality_lookups::without(subquery)?;
    }
    let tells_apart = match &*subquery.body {
        SetExpr::Select(select) => select.distinct.is_some(),
        SetExpr::SetOperation { op, set_quantifier, .. } => {
            *op != SetOperator::Union || *set_quantifier != SetQuantifier::All
        }
        _ => false,
    };
    let is_one = queries::names_of(&subquery.body).is_some_and(|names| names.len() == 1);
    if !tells_apart || !is_one || equality_lookups::reads_row(subquery) {
        return Ok(());
    }
    let Expr::Subquery(mut named) = expr("(SELECT \"of set\" FROM (SELECT 1) AS \"set\" (\"of set\"))")? else {
        return Ok(());
    };
    if let SetExpr::Select(select) = &mut *named.body
        && let Some(from) = select.from.first_mut()
        && let TableFactor::Derived { subquery: set, .. } = &mut from.relation
    {
        // Swapped rather than printed and parsed: texts such as `it\'s` would not be read back as the same.
        std::mem::swap(set, subquery);
        *subquery = named;
    }
    Ok(())
}

/// `5 NOT IN (SELECT …)` as counts. For a constant left side, the planner's join keeps all rows if the set contains
/// NULL, though the result is unknown then.
pub(super) fn without(place: &mut Expr) -> Result<()> {
    let Expr::InSubquery { expr: left, subquery, negated: true } = &*place else { return Ok(()) };
    if names_columns(left) || matches!(**left, Expr::Tuple(_)) || equality_lookups::reads_row(subquery) {
        return Ok(());
    }
    let (is_it, rows) = (format!("\"of set\" = ({left})"), format!("({subquery}) AS \"set\" (\"of set\")"));
    *place = counted(&is_it, &rows, false)?;
    Ok(())
}

/// SQL of three-valued `IN` over some rows: `is_in` if the condition holds for a row, else NULL if it is unknown for
/// one, else the opposite. The condition appears once, so nested conditions do not grow exponentially.
pub(super) fn counted(condition: &str, rows: &str, is_in: bool) -> Result<Expr> {
    expr(&format!(
        "(SELECT CASE WHEN bool_or(\"is it\") THEN {is_in} WHEN count(*) > count(\"is it\") THEN CAST(NULL AS BOOLEAN) \
         ELSE {} END FROM (SELECT {condition} AS \"is it\" FROM {rows}) AS \"found\")",
        !is_in
    ))
}

/// `x > ANY (SELECT …)` and `ALL` within outputs and conditions of joins: the planner joins only those in a `WHERE`. They
/// become comparisons with the minimum or the maximum.
pub(super) fn elsewhere(select: &mut Select) -> Result<()> {
    change_outside_subqueries(&mut select.projection, by_ends)?;
    let joins = select.from.iter_mut().flat_map(|from| from.joins.iter_mut());
    for join in joins {
        change_outside_subqueries(&mut join.join_operator, by_ends)?;
    }
    Ok(())
}

fn by_ends(place: &mut Expr) -> Result<()> {
    let found = match &*place {
        Expr::AnyOp { left, compare_op, right, .. } => compared(left, compare_op, right, Quantifier::Any)?,
        Expr::AllOp { left, compare_op, right } => compared(left, compare_op, right, Quantifier::All)?,
        _ => None,
    };
    if let Some(found) = found {
        *place = found;
    }
    Ok(())
}

/// A comparison with an uncorrelated set as one with its minimum or maximum; `None` if it is another one.
fn compared(left: &Expr, op: &BinaryOperator, right: &Expr, quantifier: Quantifier) -> Result<Option<Expr>> {
    let Expr::Subquery(query) = right else { return Ok(None) };
    if equality_lookups::reads_row(query) {
        return Ok(None);
    }
    copied(right, 8)?;
    copied(left, 4)?;
    let of_set = |value: &str| format!("(SELECT {value} FROM ({query}) AS \"set\" (\"of set\"))");
    let side = |op: &str, end: &str, quantifier: Quantifier| {
        // A NULL in the set makes the result unknown, unless another value decides.
        let holds = format!("(({left}) {op} {})", of_set(&format!("{end}(\"of set\")")));
        let decisive = quantifier.decisive();
        let enough = if decisive { holds.clone() } else { format!("NOT {holds}") };
        format!(
            "(CASE WHEN {} = 0 THEN {} WHEN {enough} THEN {decisive} WHEN {} THEN CAST(NULL AS BOOLEAN) ELSE {holds} END)",
            of_set("count(*)"),
            !decisive,
            of_set("count(*) > count(\"of set\")"),
        )
    };
    // The end of the set that `>` is compared with, and that of `<`.
    let (least, greatest) = match quantifier {
        Quantifier::Any => ("min", "max"),
        Quantifier::All => ("max", "min"),
    };
    let equals_all = || format!("{} AND {}", side(">=", "max", Quantifier::All), side("<=", "min", Quantifier::All));
    let sql = match op {
        BinaryOperator::Gt => side(">", least, quantifier),
        BinaryOperator::GtEq => side(">=", least, quantifier),
        BinaryOperator::Lt => side("<", greatest, quantifier),
        BinaryOperator::LtEq => side("<=", greatest, quantifier),
        BinaryOperator::Eq if quantifier == Quantifier::All => format!("({})", equals_all()),
        BinaryOperator::NotEq if quantifier == Quantifier::Any => format!("(NOT ({}))", equals_all()),
        _ => return Ok(None),
    };
    expr(&sql).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a rewrite makes of an expression.
    fn rewritten(text: &str, rewrite: fn(&mut Expr) -> Result<()>) -> String {
        let mut place = expr(text).unwrap();
        rewrite(&mut place).unwrap();
        place.to_string()
    }

    #[test]
    fn quantifiers_become_lists_and_negations() {
        let check = |text: &str, expected: &str| assert_eq!(rewritten(text, plain), expected, "{text}");
        check("x = ANY (SELECT y FROM t)", "x IN (SELECT y FROM t)");
        check("x <> ALL (SELECT y FROM t)", "x NOT IN (SELECT y FROM t)");
        check("x = ANY ('{1,b}')", "x IN ('1', 'b')");
        check("x = ANY (('{1,b}'))", "x IN ('1', 'b')");
        check("x <> ALL ('{1,b}')", "x NOT IN ('1', 'b')");
        check("x > ALL ('{1,2}')", "(x > '1' AND x > '2')");
        check("x > ANY ('{1,2}')", "(x > '1' OR x > '2')");
        check("x = ANY (ARRAY[1, 2])", "x IN (1, 2)");
        check("x < ANY (ARRAY[1, 2])", "NOT (x >= ALL(ARRAY[1, 2]))");
        // Lists within have no meaning of their own.
        check("x = ANY (ARRAY[[1, 2], [3, 4]])", "x IN (1, 2, 3, 4)");
        check("x <> ALL ('{{1,2},{3,4}}')", "x NOT IN ('1', '2', '3', '4')");
        check("x <> ALL ('{{1},{2}}'::int[][])", "x <> ALL(make_array('1', '2')::INT[])");
        // Of nothing, nothing holds for any, and all for all.
        check("x = ANY ('{}')", "false");
        check("x > ALL ('{}')", "true");
    }

    #[test]
    fn sets_are_compared_by_their_ends() {
        let ends = |text: &str| {
            let found = rewritten(text, by_ends);
            (found.contains("min(\"of set\")"), found.contains("max(\"of set\")"))
        };
        assert_eq!(ends("x > ANY (SELECT y FROM t)"), (true, false));
        assert_eq!(ends("x > ALL (SELECT y FROM t)"), (false, true));
        assert_eq!(ends("x <= ANY (SELECT y FROM t)"), (false, true));
        assert_eq!(ends("x <= ALL (SELECT y FROM t)"), (true, false));
        assert_eq!(ends("x = ALL (SELECT y FROM t)"), (true, true));
        assert_eq!(ends("x <> ANY (SELECT y FROM t)"), (true, true));
        assert_eq!(ends("x = ANY (SELECT y FROM t)"), (false, false), "that is `IN`");
    }
}
