//! Values compared with the rows of a correlated subquery: `x NOT IN (SELECT …)`, `x > ALL (…)`. They become a
//! subquery that aggregates the comparisons into one value: true, false, or NULL where no row decides and one is
//! unknown.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, SelectItem, SetExpr, TableFactor, TableWithJoins, Visitor,
};
use quiver_types::{Error, Result};

use super::super::columns::called;
use super::super::expressions::{Quantifier, copied, expr};
use super::super::{equality_lookups, exists, row_values};
use super::outer_references::has_query;
use super::{LateralContext, table_of, window_partitions};
use crate::statement_walk::{look_outside_subqueries, walk};

/// A comparison with the rows of a subquery.
pub(super) struct Among<'a> {
    left: &'a Expr,
    op: BinaryOperator,
    pub(super) query: &'a Query,
    quantifier: Quantifier,
}

impl<'a> Among<'a> {
    /// Examines a part of a statement; `None` if it is no such comparison, or compares rows of values.
    pub(super) fn of(part: &'a Expr) -> Option<Self> {
        let (left, op, query, quantifier) = match part {
            Expr::InSubquery { expr, subquery, negated: false } => {
                (expr, BinaryOperator::Eq, &**subquery, Quantifier::Any)
            }
            Expr::InSubquery { expr, subquery, negated: true } => {
                (expr, BinaryOperator::NotEq, &**subquery, Quantifier::All)
            }
            Expr::AnyOp { left, compare_op, right, .. } => {
                (left, compare_op.clone(), subquery_of(right)?, Quantifier::Any)
            }
            Expr::AllOp { left, compare_op, right } => (left, compare_op.clone(), subquery_of(right)?, Quantifier::All),
            _ => return None,
        };
        (!matches!(**left, Expr::Tuple(_))).then_some(Self { left, op, query, quantifier })
    }

    /// Whether it asks for an equal row.
    pub(super) fn is_in(&self) -> bool {
        self.quantifier == Quantifier::Any && self.op == BinaryOperator::Eq
    }

    /// The query that returns that value; `None` if the left operand would mean something else within the subquery.
    pub(super) fn value(&self, from: &TableWithJoins, making: LateralContext<'_>) -> Result<Option<Query>> {
        let mut left = self.left.clone();
        if !equality_lookups::reads_row(self.query) || has_query(&left) {
            return Ok(None);
        }
        let is_named = row_values::with_tables(&mut left, std::slice::from_ref(from), making.known)?;
        if !is_named || reads_one_of(&left, &tables_of(self.query)) {
            return Ok(None);
        }
        let (item, mut query) = match alone(self.query, making)? {
            Some((item, query)) => (item, query),
            None => (expr("\"of set\"")?, around(self.query)?),
        };
        copied(&left, 4)?;
        copied(&item, 4)?;
        let holds = format!("(({left}) {} ({item}))", self.op);
        let (decides, otherwise) = match self.quantifier {
            Quantifier::Any => ("bool_or", false),
            Quantifier::All => ("NOT bool_and", true),
        };
        let value = expr(&format!(
            "CASE WHEN {decides}({holds}) THEN {} WHEN count(*) > count({holds}) THEN CAST(NULL AS BOOLEAN) ELSE \
             {otherwise} END",
            !otherwise
        ))?;
        if let SetExpr::Select(select) = &mut *query.body {
            select.projection = vec![SelectItem::UnnamedExpr(value)];
            select.distinct = None;
        }
        query.order_by = None;
        Ok(Some(query))
    }
}

fn subquery_of(set: &Expr) -> Option<&Query> {
    match set {
        Expr::Subquery(query) => Some(query),
        _ => None,
    }
}

/// The only output of a query that gives one row for each that it reads, and a copy of the query in which it may be
/// replaced.
fn alone(query: &Query, making: LateralContext<'_>) -> Result<Option<(Expr, Query)>> {
    if exists::counting(query, making.is_aggregate)?.is_none() {
        return Ok(None);
    }
    let SetExpr::Select(select) = &*query.body else { return Ok(None) };
    if select.from.is_empty() || window_partitions::has(&select.projection) {
        return Ok(None);
    }
    Ok(match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] => {
            Some((item.clone(), query.clone()))
        }
        _ => None,
    })
}

/// Wraps a query in another select.
fn around(query: &Query) -> Result<Query> {
    match expr(&format!("(SELECT 1 FROM ({query}) AS \"set\" (\"of set\"))"))? {
        Expr::Subquery(around) => Ok(*around),
        _ => Err(Error::internal("no subquery of ours")),
    }
}

/// The names of the tables of a query.
fn tables_of(query: &Query) -> HashSet<String> {
    struct Tables(HashSet<String>);
    impl Visitor for Tables {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            self.0.extend(called(factor));
            ControlFlow::Continue(())
        }
    }
    let mut tables = Tables(HashSet::new());
    let _ = walk(query, &mut tables);
    tables.0
}

fn reads_one_of(value: &Expr, tables: &HashSet<String>) -> bool {
    let mut reads = false;
    look_outside_subqueries(value, |part| reads |= table_of(part).is_some_and(|table| tables.contains(&table)));
    reads
}
