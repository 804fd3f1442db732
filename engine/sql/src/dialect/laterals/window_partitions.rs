//! Window functions of correlated subqueries: they see the rows of one outer row, so the outer values become keys of
//! their partitions.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, Ident, OrderByExpr, Query, SelectItem, SetExpr, Visit, WindowType,
};
use quiver_types::Result;

use super::{KEYS, key};
use crate::statement_walk::{change_outside_subqueries, look_outside_subqueries};

/// Whether a part of a query has window functions, not counting those of subqueries.
pub(super) fn has(part: &impl Visit) -> bool {
    let mut found = false;
    look_outside_subqueries(part, |expr| found |= matches!(expr, Expr::Function(call) if call.over.is_some()));
    found
}

/// Partitions the window functions of a query by its first `keys` columns.
pub(super) fn divide(query: &mut Query, keys: usize) -> Result<()> {
    let divided = |place: &mut Expr| {
        if let Expr::Function(Function { over: Some(WindowType::WindowSpec(window)), .. }) = place {
            let column = |at: usize| {
                let words = [KEYS.to_owned(), key(at)].map(|word| Ident::with_quote('"', word));
                Expr::CompoundIdentifier(words.to_vec())
            };
            let own = std::mem::take(&mut window.partition_by);
            window.partition_by = (1..=keys).map(column).chain(own).collect();
        }
        Ok(())
    };
    change_outside_subqueries(&mut query.order_by, divided)?;
    let mut open = vec![&mut *query.body];
    while let Some(body) = open.pop() {
        match body {
            SetExpr::Select(select) => change_outside_subqueries(&mut select.projection, divided)?,
            SetExpr::SetOperation { left, right, .. } => open.extend([&mut **left, &mut **right]),
            SetExpr::Query(inner) => {
                change_outside_subqueries(&mut inner.order_by, divided)?;
                open.push(&mut *inner.body);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Replaces sort keys by generated names (`always`, or only if they contain window functions, which cannot be keys of
/// another window), and returns the outputs that define these names.
pub(super) fn named(order: &mut [OrderByExpr], always: bool) -> Vec<SelectItem> {
    if !always && !order.iter().any(|key| has(&key.expr)) {
        return Vec::new();
    }
    let name = |(at, key): (usize, &mut OrderByExpr)| {
        let alias = Ident::with_quote('"', format!("order {}", at + 1));
        let expr = std::mem::replace(&mut key.expr, Expr::Identifier(alias.clone()));
        SelectItem::ExprWithAlias { expr, alias }
    };
    order.iter_mut().enumerate().map(name).collect()
}
