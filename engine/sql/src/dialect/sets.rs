//! `x > ANY (SELECT x FROM …)` and `ALL`: the planner makes an `EXISTS` of them, whose condition has both sides. Where the
//! subquery has a column of the name that stands on the left, it would be compared with itself; so its one column gets a
//! name that no other has.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, Expr, Select, SetExpr, SetOperator, SetQuantifier, TableFactor, UnaryOperator, Visitor,
};
use quiver_types::Result;

use super::expressions::{boolean, expr, items_of_text, literal, take};
use super::{lookups, operators, patterns, queries};
use crate::names::normal;
use crate::walk::{change_outside_subqueries, walk};

/// Gives the column of a subquery that a value is compared with a name of its own, where they may have the same.
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

/// Names of columns without those of their tables.
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

/// `x = ANY (SELECT …)` and `x <> ALL (SELECT …)` as the `IN` that they are, and `x = ANY ('{1,2}')` as a comparison with
/// each item, whose type is that of `x`.
pub(super) fn plain(place: &mut Expr) -> Result<()> {
    let (left, op, right, is_any) = match place {
        Expr::AnyOp { left, compare_op, right, .. } => (left, compare_op, right, true),
        Expr::AllOp { left, compare_op, right } => (left, compare_op, right, false),
        _ => return Ok(()),
    };
    let negated = match (&*op, is_any) {
        (BinaryOperator::Eq, true) => Some(false),
        (BinaryOperator::NotEq, false) => Some(true),
        _ => None,
    };
    // A cast says of what type the items are; without one the text alone stands here.
    if let Expr::Value(_) = &**right
        && let Some(items) = literal(right).and_then(items_of_text)
    {
        *place = match negated {
            _ if items.is_empty() => boolean(!is_any),
            Some(negated) => Expr::InList { expr: Box::new(take(left)), list: items, negated },
            None => operators::each(left, op, items, is_any)?,
        };
        return Ok(());
    }
    // The planner compares with lists by the operators of orders alone.
    if patterns::is_regex(op)
        && let Some(items) = operators::items_of(right)
    {
        *place = operators::each(left, op, items, is_any)?;
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
    if let (true, Some(op)) = (is_any, opposite(op))
        && !matches!(**right, Expr::Subquery(_))
        && !matches!(**left, Expr::Tuple(_))
    {
        *place = not_all(take(left), op, take(right));
    }
    Ok(())
}

/// The operator of an order that holds where another one does not.
fn opposite(op: &BinaryOperator) -> Option<BinaryOperator> {
    Some(match op {
        BinaryOperator::Lt => BinaryOperator::GtEq,
        BinaryOperator::LtEq => BinaryOperator::Gt,
        BinaryOperator::Gt => BinaryOperator::LtEq,
        BinaryOperator::GtEq => BinaryOperator::Lt,
        _ => return None,
    })
}

/// `NOT (x op ALL (list))`, of which the planner knows what NULL among the items makes of it; of `ANY` it does not.
fn not_all(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    let all = Expr::AllOp { left: Box::new(left), compare_op: op, right: Box::new(right) };
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(all))) }
}

/// `x = ANY (list)`. The planner would ask whether the list has it, which is false, not NULL, where NULL is all that might be
/// the same; of `x <> ALL (list)` it knows that.
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

/// `x IN (VALUES (1), (2))` as the list that it is, and so a row of few rows.
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

/// Puts a set that tells its rows apart (`SELECT DISTINCT`, `UNION`) behind a name. Where it is one of several conditions
/// (`x IN (…) OR …`), the planner would have its column twice.
pub(super) fn behind_name(place: &mut Expr) -> Result<()> {
    let Expr::InSubquery { subquery, negated, .. } = place else { return Ok(()) };
    if *negated {
        lookups::without(subquery)?;
    }
    let tells_apart = match &*subquery.body {
        SetExpr::Select(select) => select.distinct.is_some(),
        SetExpr::SetOperation { op, set_quantifier, .. } => {
            *op != SetOperator::Union || *set_quantifier != SetQuantifier::All
        }
        _ => false,
    };
    let is_one = queries::names_of(&subquery.body).is_some_and(|names| names.len() == 1);
    if !tells_apart || !is_one || lookups::reads_row(subquery) {
        return Ok(());
    }
    let Expr::Subquery(mut named) = expr("(SELECT \"of set\" FROM (SELECT 1) AS \"set\" (\"of set\"))")? else {
        return Ok(());
    };
    if let SetExpr::Select(select) = &mut *named.body
        && let Some(from) = select.from.first_mut()
        && let TableFactor::Derived { subquery: set, .. } = &mut from.relation
    {
        // As it is: a text such as `it\'s` that is printed is not read as the same again.
        std::mem::swap(set, subquery);
        *subquery = named;
    }
    Ok(())
}

/// `5 NOT IN (SELECT …)` as counts. Of a value that no row has the planner makes a join that lets all rows by where the set
/// has a NULL, though it is not known then whether the value is in it.
pub(super) fn without(place: &mut Expr) -> Result<()> {
    let Expr::InSubquery { expr: left, subquery, negated: true } = &*place else { return Ok(()) };
    if names_columns(left) || matches!(**left, Expr::Tuple(_)) || lookups::reads_row(subquery) {
        return Ok(());
    }
    let (is_it, rows) = (format!("\"of set\" = ({left})"), format!("({subquery}) AS \"set\" (\"of set\")"));
    *place = counted(&is_it, &rows, false)?;
    Ok(())
}

/// `is_in` where a condition holds for one of some rows, else the contrary; NULL where it is not known of one and holds for
/// none. The condition is written once: of such values one in the other, each would stand twice in the one around it.
pub(super) fn counted(condition: &str, rows: &str, is_in: bool) -> Result<Expr> {
    expr(&format!(
        "(SELECT CASE WHEN bool_or(\"is it\") THEN {is_in} WHEN count(*) > count(\"is it\") THEN CAST(NULL AS BOOLEAN) \
         ELSE {} END FROM (SELECT {condition} AS \"is it\" FROM {rows}) AS \"found\")",
        !is_in
    ))
}

/// `x > ANY (SELECT …)` and `ALL` that are, or are part of, an output: the planner makes joins of those in conditions alone.
/// The least or the greatest value says the same.
pub(super) fn in_outputs(select: &mut Select) -> Result<()> {
    change_outside_subqueries(&mut select.projection, |place| {
        let found = match &*place {
            Expr::AnyOp { left, compare_op, right, .. } => compared(left, compare_op, right, true)?,
            Expr::AllOp { left, compare_op, right } => compared(left, compare_op, right, false)?,
            _ => None,
        };
        if let Some(found) = found {
            *place = found;
        }
        Ok(())
    })
}

/// A comparison with a set that does not read the row at hand, as one with its ends; none: it is another one.
fn compared(left: &Expr, op: &BinaryOperator, right: &Expr, is_any: bool) -> Result<Option<Expr>> {
    let Expr::Subquery(query) = right else { return Ok(None) };
    if lookups::reads_row(query) {
        return Ok(None);
    }
    operators::copied(right, 8)?;
    operators::copied(left, 4)?;
    let of_set = |value: &str| format!("(SELECT {value} FROM ({query}) AS \"set\" (\"of set\"))");
    let side = |op: &str, end: &str, is_any: bool| {
        // Where a value is NULL it is not known of it, unless another one says enough.
        let holds = format!("(({left}) {op} {})", of_set(&format!("{end}(\"of set\")")));
        let enough = if is_any { holds.clone() } else { format!("NOT {holds}") };
        format!(
            "(CASE WHEN {} = 0 THEN {} WHEN {enough} THEN {is_any} WHEN {} THEN CAST(NULL AS BOOLEAN) ELSE {holds} END)",
            of_set("count(*)"),
            !is_any,
            of_set("count(*) > count(\"of set\")"),
        )
    };
    let (least, greatest) = if is_any { ("min", "max") } else { ("max", "min") };
    let sql = match op {
        BinaryOperator::Gt => side(">", least, is_any),
        BinaryOperator::GtEq => side(">=", least, is_any),
        BinaryOperator::Lt => side("<", greatest, is_any),
        BinaryOperator::LtEq => side("<=", greatest, is_any),
        BinaryOperator::Eq if !is_any => format!("({} AND {})", side(">=", "max", false), side("<=", "min", false)),
        BinaryOperator::NotEq if is_any => {
            format!("(NOT ({} AND {}))", side(">=", "max", false), side("<=", "min", false))
        }
        _ => return Ok(None),
    };
    expr(&sql).map(Some)
}
