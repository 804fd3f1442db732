//! Limits what the selects of a statement compute: values, and windows with different partitions or orders. The engine
//! refuses plans of more; but to make one, DataFusion's planner puts a node on the others for each such window, and looks
//! through all of them for the names of each: sixteen hundred, 100 KB of text, took minutes, in which nothing could cancel
//! the query, and memory that nothing counted.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, Select, SelectItem, Visitor, WindowType};
use quiver_query::{OUTPUTS_MAX, WINDOWS_MAX};
use quiver_types::{Error, ErrorKind, Result};

use crate::statement_walk::{refused, walk};

/// Refuses more than plans may have.
///
/// # Errors
/// LimitExceeded.
pub(crate) fn few_values(query: &Query) -> Result<()> {
    match walk(query, &mut Selects::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// Where a walk stands.
#[derive(Default)]
struct Selects {
    /// Partitions and orders as they are written.
    windows: HashSet<String>,
}

/// Whether an output is computed: columns and constants are not.
fn is_computed(item: &SelectItem) -> bool {
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { return false };
    !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) | Expr::UnaryOp { .. })
}

/// How a window divides and orders rows. Its frame makes no window of its own.
fn divided(window: &WindowType) -> String {
    match window {
        WindowType::NamedWindow(name) => format!("named {name}"),
        WindowType::WindowSpec(spec) => {
            let listed = |texts: Vec<String>| texts.join(", ");
            let partitions = listed(spec.partition_by.iter().map(ToString::to_string).collect());
            let orders = listed(spec.order_by.iter().map(ToString::to_string).collect());
            let base = spec.window_name.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("{base} by {partitions} order {orders}")
        }
    }
}

impl Visitor for Selects {
    type Break = Box<Error>;

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Self::Break> {
        let values = select.projection.iter().filter(|item| is_computed(item)).count();
        if values <= OUTPUTS_MAX {
            return ControlFlow::Continue(());
        }
        let text = format!("a select computes {values} values, at most {OUTPUTS_MAX} are allowed");
        refused(Error::new(ErrorKind::LimitExceeded, text))
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let Some(window) = &function.over else { return ControlFlow::Continue(()) };
        self.windows.insert(divided(window));
        if self.windows.len() <= WINDOWS_MAX {
            return ControlFlow::Continue(());
        }
        let text = format!(
            "a statement has windows of more than {WINDOWS_MAX} different partitions or orders, which are not allowed \
             (`OVER`)"
        );
        refused(Error::new(ErrorKind::LimitExceeded, text))
    }
}

#[cfg(test)]
mod tests {
    use crate::parse::{Params, ReadStatement, parse};

    use super::*;

    fn check(text: &str, is_allowed: bool) {
        let ReadStatement::Query(query) = parse(text, &Params::default()).unwrap().statement else {
            panic!("no query: {text}")
        };
        match few_values(&query) {
            Ok(()) => assert!(is_allowed, "{text:.200}"),
            Err(error) => assert!(!is_allowed && error.kind == ErrorKind::LimitExceeded, "{text:.200}: {error}"),
        }
    }

    /// A list of so many things.
    fn many(count: usize, of: impl Fn(usize) -> String) -> String {
        (0..count).map(of).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn windows_are_few() {
        let partitions = |n: usize| format!("sum(a) over (partition by left(b, {n}) order by c)");
        let orders = |n: usize| format!("sum(a) over (order by left(b, {n}))");
        let named = |n: usize| format!("sum(a) over w{n}");
        for (count, is_allowed) in [(WINDOWS_MAX, true), (WINDOWS_MAX + 1, false)] {
            check(&format!("select {} from t", many(count, partitions)), is_allowed);
            check(&format!("select 1 from t order by {}", many(count, orders)), is_allowed);
            check(&format!("select * from (select {} from t) q", many(count, partitions)), is_allowed);
            let windows = many(count, |n| format!("w{n} as (order by left(b, {n}))"));
            check(&format!("select {} from t window {windows}", many(count, named)), is_allowed);
        }
        // Frames, and functions, make no others.
        let frames = |n: usize| format!("sum(a + {n}) over (order by c rows {n} preceding)");
        check(&format!("select {} from t", many(900, frames)), true);
    }

    #[test]
    fn outputs_are_few() {
        let computed = |n: usize| format!("left(b, {n}) as c{n}");
        check(&format!("select {} from t", many(OUTPUTS_MAX, computed)), true);
        for text in ["select LIST from t", "select 1 where exists (select LIST from t)", "select 1 union select LIST"] {
            check(&text.replace("LIST", &many(OUTPUTS_MAX + 1, computed)), false);
        }
        // Columns and constants are only handed on.
        check(&format!("select {} from t", many(OUTPUTS_MAX + 1, |_| "b, t.b, 1, 'x'".to_owned())), true);
    }
}
