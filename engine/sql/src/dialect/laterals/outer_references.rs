//! What a correlated subquery reads of the outer row, once that is replaced by columns of [`KEYS`].

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArguments, Query, Select, TableFactor, Visit, Visitor,
};

use super::super::columns::factors;
use super::KEYS;
use crate::statement_walk::{has_expression, walk};

/// Whether the `FROM` of a select reads [`KEYS`]: in subqueries, unnested lists or join conditions.
pub(super) fn reads_within(select: &Select) -> bool {
    reads_keys(&select.from)
}

/// Marks a subquery that reads [`KEYS`] as `LATERAL`.
pub(super) fn of_table_before(factor: &mut TableFactor) {
    if reads_keys(&*factor)
        && let TableFactor::Derived { lateral, .. } = factor
    {
        *lateral = true;
    }
}

/// Whether a condition reads [`KEYS`] otherwise than by `=`.
pub(super) fn reads_otherwise(condition: Option<&Expr>) -> bool {
    reads_but_in(condition, |_, _| true)
}

/// Whether a condition reads [`KEYS`] otherwise than by `=` with a column of its own: where rows are combined, the planner
/// joins by these alone.
pub(super) fn reads_beside_columns(condition: Option<&Expr>) -> bool {
    reads_but_in(condition, |left, right| {
        let is_row = |part: &Expr| matches!(part, Expr::Tuple(_));
        let compares = |own: &Expr, other: &Expr| is_own_column(own) && reads_only_keys(other);
        // Rows become comparisons of their items.
        is_row(left) || is_row(right) || compares(left, right) || compares(right, left)
    })
}

/// Whether a condition reads [`KEYS`] in other parts than in such comparisons by `=`.
fn reads_but_in(condition: Option<&Expr>, is_fine: impl Fn(&Expr, &Expr) -> bool) -> bool {
    let mut open: Vec<&Expr> = condition.into_iter().collect();
    let mut is_other = false;
    while let Some(part) = open.pop() {
        match part {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => open.extend([&**left, &**right]),
            Expr::Nested(inner) => open.push(&**inner),
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } if is_fine(left, right) => {}
            other => is_other |= reads_keys(other),
        }
    }
    is_other
}

fn is_own_column(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_own_column(inner),
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => !is_key(expr),
        _ => false,
    }
}

/// Whether the outputs of a select with tables, or its `HAVING`, read [`KEYS`]. The planner finds these only in a
/// `WHERE`; a select without tables is handled by an optimizer rule.
pub(super) fn gives_beside_table(select: &Select) -> bool {
    let is_table = |factor: &TableFactor| matches!(factor, TableFactor::Table { args: None, .. });
    let reads = reads_keys(&select.projection) || reads_keys(&select.having);
    select.from.iter().flat_map(factors).any(is_table) && reads
}

/// Whether a subquery of a select reads [`KEYS`]: the planner resolves outer columns only one level up.
pub(super) fn reads_deeper(select: &Select) -> bool {
    struct Deeper(usize);
    impl Visitor for Deeper {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            self.0 -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if self.0 > 0 && is_key(expr) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    walk(select, &mut Deeper(0)).is_break()
}

/// Whether an expression contains a subquery.
pub(super) fn has_query(part: &impl Visit) -> bool {
    has_expression(part, |part| match part {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => true,
        Expr::Function(call) => matches!(call.args, FunctionArguments::Subquery(_)),
        _ => false,
    })
}

fn is_key(expr: &Expr) -> bool {
    matches!(expr, Expr::CompoundIdentifier(name) if name.first().is_some_and(|table| table.value == KEYS))
}

/// Whether a part of a statement reads [`KEYS`].
pub(super) fn reads_keys(part: &impl Visit) -> bool {
    struct Reads;
    impl Visitor for Reads {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if is_key(expr) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    walk(part, &mut Reads).is_break()
}

/// Whether an expression reads nothing but [`KEYS`]: no other column, and no rows.
pub(super) fn reads_only_keys(part: &Expr) -> bool {
    struct Others;
    impl Visitor for Others {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let is_other = match expr {
                Expr::Identifier(_) => true,
                Expr::CompoundIdentifier(_) => !is_key(expr),
                Expr::Function(call) => call.over.is_some(),
                _ => false,
            };
            if is_other { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    walk(part, &mut Others).is_continue()
}

#[cfg(test)]
mod tests {
    use super::super::super::expressions::expr;
    use super::*;

    /// An expression in which `outer` stands for the table of [`KEYS`].
    fn read(text: &str) -> Expr {
        expr(&text.replace("outer", &format!("\"{KEYS}\""))).expect(text)
    }

    fn check(of: fn(&Expr) -> bool, yes: &[&str], no: &[&str]) {
        for (texts, expected) in [(yes, true), (no, false)] {
            for text in texts {
                assert_eq!(of(&read(text)), expected, "{text}");
            }
        }
    }

    #[test]
    fn expressions_that_read_the_row_around() {
        check(
            reads_keys,
            &["outer.a", "b + outer.a", "exists (select 1 from t where t.a = outer.a)"],
            &["a", "t.a + 1", "exists (select 1 from t)"],
        );
        check(
            reads_only_keys,
            &["outer.a", "outer.a + 1", "f(outer.a, 'x')", "1"],
            &["a", "outer.a + t.b", "(select 1)", "count(outer.a) over ()"],
        );
    }

    #[test]
    fn conditions_that_compare_with_the_row_around() {
        check(
            |of| reads_otherwise(Some(of)),
            &["a > outer.a", "a = outer.a and (b = 1 and b < outer.b)", "a = outer.a or b = 1", "not a = outer.a"],
            &["a = outer.a", "(a = outer.a) and (b = 1 and c > 2)", "a > 1"],
        );
        assert!(!reads_otherwise(None));
        check(
            |of| reads_beside_columns(Some(of)),
            &[
                "a > outer.a",
                "f(a) = outer.a",
                "outer.a = 1",
                "a + outer.a = 2",
                "a = b + outer.a",
                "a::text = outer.a",
            ],
            &["a = outer.a", "f(outer.a) = (t.a) and f(a) = 2", "(a, b) = (outer.a, outer.b)", "a = outer.a::text"],
        );
    }

    #[test]
    fn expressions_that_hold_queries() {
        check(
            has_query,
            &["(select 1)", "a + (select 1)", "exists (select 1)", "a in (select 1)", "array(select 1)"],
            &["a", "f(a)", "a in (1, 2)", "array[1]"],
        );
    }
}
