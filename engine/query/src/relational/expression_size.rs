//! Limits how large expressions become when rules duplicate them. DataFusion copies the operands of `BETWEEN`,
//! `coalesce`, short `IN` lists and conditions of `CASE`, asks twice for the type of a cast's operand, and substitutes
//! the outputs of a subquery into conditions that it pushes below it. Forty of them nested, or forty common table
//! expressions that each use an output of the previous one twice (`v + v AS v`), make a billion nodes out of a kilobyte
//! of text.

use std::collections::HashMap;

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::expr::{Between, Case, Cast, InList};
use datafusion::logical_expr::{Expr, LogicalPlan};
use quiver_types::{Error, ErrorKind, Result};

use crate::error::{from_datafusion, to_datafusion};

/// The most parts (nodes) of all expressions of a statement, once rules have duplicated them.
const PARTS_MAX: usize = 1 << 16;
/// The most parts of one expression: no rule can be cancelled within an expression.
const ONE_MAX: usize = 1 << 14;
/// `IN` lists up to this length become comparisons.
const SHORT_LIST: usize = 3;
/// A `CASE` with fewer arms than this becomes boolean conditions, which repeat the conditions of all earlier arms.
const FEW_ARMS: usize = 3;
/// Functions that become a `CASE` in which each argument except the last appears twice: as condition and as value.
const OPTIONAL: [&str; 4] = ["coalesce", "nvl", "ifnull", "nvl2"];

/// Refuses a plan whose expressions would become larger.
///
/// # Errors
///
/// LimitExceeded.
pub(super) fn few_parts(plan: &LogicalPlan) -> Result<()> {
    SizeCounter::default().outputs(plan).map(|_| ())
}

/// The number of parts of each output by name; names that are missing count as one part.
type Parts = HashMap<String, usize>;

/// Counts parts as they are after duplication.
#[derive(Debug, Default)]
struct SizeCounter {
    parts: usize,
    /// Whether subqueries in expressions have been counted already.
    is_again: bool,
}

impl SizeCounter {
    fn add(&mut self, parts: usize) -> Result<()> {
        self.parts = self.parts.saturating_add(parts);
        if parts <= ONE_MAX && self.parts <= PARTS_MAX {
            return Ok(());
        }
        let text = format!(
            "an expression comes to more than {ONE_MAX} parts, or all of a statement to {PARTS_MAX}, once `BETWEEN`, `coalesce`, `IN`, `CASE`, \
             casts and conditions about outputs of subqueries are written out"
        );
        Err(Error::new(ErrorKind::LimitExceeded, text))
    }

    /// Counts the expressions of a plan, and returns the sizes of its outputs.
    fn outputs(&mut self, plan: &LogicalPlan) -> Result<Parts> {
        let inputs = plan.inputs().into_iter().map(|input| self.outputs(input)).collect::<Result<Vec<_>>>()?;
        if let LogicalPlan::Union(union) = plan {
            // Its inputs have names of their own.
            let of_input = |at: usize| {
                let each = inputs.iter().zip(&union.inputs);
                each.filter_map(move |(parts, input)| parts.get(input.schema().field(at).name())).copied().max()
            };
            let fields = union.schema.fields().iter().enumerate();
            return Ok(fields.filter_map(|(at, field)| Some((field.name().clone(), of_input(at)?))).collect());
        }
        let mut named = Parts::new();
        for (name, parts) in inputs.into_iter().flatten() {
            let known = named.entry(name).or_default();
            *known = parts.max(*known);
        }
        let (made, is_condition) = match plan {
            LogicalPlan::Values(_) => return Ok(Parts::new()),
            LogicalPlan::Projection(projection) => (Some(projection.expr.as_slice()), false),
            // Conditions on its keys are pushed below it.
            LogicalPlan::Aggregate(aggregate) => (Some(aggregate.group_expr.as_slice()), false),
            LogicalPlan::Filter(_) | LogicalPlan::Join(_) => (None, true),
            _ => (None, false),
        };
        let none = Parts::new();
        let counted = plan.apply_expressions(|expr| {
            let parts = self.parts(expr, if is_condition { &named } else { &none }).map_err(to_datafusion)?;
            self.add(parts).map_err(to_datafusion)?;
            Ok(TreeNodeRecursion::Continue)
        });
        counted.map_err(from_datafusion)?;
        let Some(made) = made else { return Ok(named) };
        let mut outputs = Parts::new();
        for (expr, field) in made.iter().zip(plan.schema().fields()) {
            let parts = Self { is_again: true, ..Self::default() }.parts(expr, &named)?;
            if parts > 1 {
                outputs.insert(field.name().clone(), parts);
            }
        }
        Ok(outputs)
    }

    /// The size of an expression. Constant parts are folded first.
    fn parts(&mut self, expr: &Expr, named: &Parts) -> Result<usize> {
        let twice = |parts: usize| parts.saturating_mul(2);
        Ok(match expr {
            Expr::Literal(..) => 0,
            // A typed literal (`DATE '2024-01-01'`), or a parameter.
            Expr::Cast(Cast { expr, .. }) if matches!(&**expr, Expr::Literal(..)) => 0,
            Expr::Column(column) => named.get(&column.name).copied().unwrap_or(1),
            Expr::Between(Between { expr, low, high, .. }) => {
                let ends = self.parts(low, named)?.saturating_add(self.parts(high, named)?);
                twice(self.parts(expr, named)?).saturating_add(ends).saturating_add(1)
            }
            Expr::InList(InList { expr, list, .. }) if list.len() <= SHORT_LIST => {
                let operand = self.parts(expr, named)?.saturating_mul(list.len());
                self.sum(list, named)?.saturating_add(operand).saturating_add(1)
            }
            Expr::Case(case) => self.case(case, named)?,
            // The nullability of a cast asks for that of its operand twice, at each level down to the column.
            Expr::Cast(Cast { expr, .. }) if !matches!(&**expr, Expr::Cast(_)) => {
                twice(self.parts(expr, named)?).saturating_add(1)
            }
            Expr::ScalarFunction(call) if OPTIONAL.contains(&call.name()) => {
                // The last argument is visited once, since such calls nest in it: `coalesce(a, coalesce(b, c))`.
                let Some((last, others)) = call.args.split_last() else { return Ok(1) };
                let last = self.parts(last, named)?;
                twice(self.sum(others, named)?).saturating_add(last).saturating_add(1)
            }
            other => {
                match other {
                    // Visited again for each level of nesting, inner subqueries would be counted exponentially often.
                    _ if self.is_again => {}
                    Expr::ScalarSubquery(query) => _ = self.outputs(&query.subquery)?,
                    Expr::Exists(exists) => _ = self.outputs(&exists.subquery.subquery)?,
                    Expr::InSubquery(set) => _ = self.outputs(&set.subquery.subquery)?,
                    Expr::SetComparison(set) => _ = self.outputs(&set.subquery.subquery)?,
                    _ => {}
                }
                let mut parts = 1_usize;
                let counted = other.apply_children(|child| {
                    parts = parts.saturating_add(self.parts(child, named).map_err(to_datafusion)?);
                    Ok(TreeNodeRecursion::Continue)
                });
                counted.map_err(from_datafusion)?;
                parts
            }
        })
    }

    /// The size of a `CASE`. DataFusion turns one with few arms, or one whose results are booleans (`WHEN a THEN true
    /// WHEN b THEN false …`), into conditions: each arm repeats those before it. Others stay.
    fn case(&mut self, case: &Case, named: &Parts) -> Result<usize> {
        let is_few = case.when_then_expr.len() < FEW_ARMS;
        let is_condition = !is_few && case.expr.is_none() && says_whether(case);
        let (mut parts, mut before) = (1_usize, 0_usize);
        for (when, then) in &case.when_then_expr {
            let own = self.parts(when, named)?;
            let times = if is_few || has_case(when)? { 3 } else { 1 };
            parts = parts.saturating_add(own.saturating_mul(times)).saturating_add(self.parts(then, named)?);
            if is_condition {
                parts = parts.saturating_add(before);
                before = before.saturating_add(own);
            }
        }
        let others = case.expr.iter().chain(&case.else_expr).map(|other| &**other);
        Ok(self.sum(others, named)?.saturating_add(parts))
    }

    fn sum<'e>(&mut self, exprs: impl IntoIterator<Item = &'e Expr>, named: &Parts) -> Result<usize> {
        let mut sum = 0_usize;
        for expr in exprs {
            sum = sum.saturating_add(self.parts(expr, named)?);
        }
        Ok(sum)
    }
}

/// Whether all results of a `CASE` are boolean constants, and few of them are true or few are false.
fn says_whether(case: &Case) -> bool {
    let truth = |then: &Expr| match then {
        Expr::Literal(ScalarValue::Boolean(holds), _) => Some(*holds),
        _ => None,
    };
    let Some(truths) = case.when_then_expr.iter().map(|(_, then)| truth(then)).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let are_few = |holds: bool| truths.iter().filter(|truth| **truth == Some(holds)).count() < FEW_ARMS;
    are_few(true) || (are_few(false) && case.else_expr.as_deref().is_none_or(|other| truth(other).is_some()))
}

/// Whether an expression contains a `CASE`. In the condition of an arm, its nullability is evaluated as well.
fn has_case(expr: &Expr) -> Result<bool> {
    expr.exists(|part| Ok(matches!(part, Expr::Case(_)))).map_err(from_datafusion)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::DataType;
    use datafusion::functions::core::coalesce;
    use datafusion::logical_expr::{LogicalPlanBuilder, cast, in_list, scalar_subquery};
    use datafusion::prelude::{col, lit};
    use quiver_types::Access;

    use super::*;
    use crate::Limits;
    use crate::context::QueryContext;
    use crate::name_resolution::Names;
    use crate::relational::tests::engine;

    /// How many arms there are, what they return, and how many parts are expected.
    type Counted = (i64, fn(i64) -> Expr, usize);

    /// Nests something in a number of brackets.
    fn nested(open: &str, within: &str, close: &str, deep: usize) -> String {
        format!("select {}{within}{} from generate_series(1, 3)", open.repeat(deep), close.repeat(deep))
    }

    #[tokio::test]
    async fn what_rules_copy_is_bounded() {
        let engine = engine();
        // Runs on the engine's threads, which have enough stack.
        let planned = async |statement: String| {
            let (ctx, own) = (QueryContext::new(Access::full(), Limits::default()), Arc::clone(&engine));
            let work = async move {
                let plan = Names::new(own.relational()).plan(&statement)?;
                own.plan_relational(&plan).await.map(|_| ())
            };
            engine.run(&ctx, work).await
        };
        for (open, within, close) in [
            ("coalesce(", "value", ", 1)"),
            ("nvl(", "value", ", 1)"),
            ("(", "value", " between 0 and 2)::int"),
            ("(", "(value > 1)", " in (true, false))"),
            ("(", "value", " + 1)::int"),
            ("case when ", "value > 1", " then value > 2 else value > 3 end"),
        ] {
            planned(nested(open, within, close, 5)).await.unwrap_or_else(|e| panic!("{open}: {e}"));
            let error = planned(nested(open, within, close, 20)).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::LimitExceeded, "{open}: {error}");
        }
        let chain = |long: usize, condition: &str| {
            let one = |n: usize| format!("c{n} as (select v + v as v from c{})", n - 1);
            let all = ["c0 as (select value as v from generate_series(1, 3))".to_owned()];
            let all: Vec<String> = all.into_iter().chain((1..long).map(one)).collect();
            format!("with {} select * from c{} {condition}", all.join(", "), long - 1)
        };
        planned(chain(8, "where v > 3")).await.unwrap();
        // Without conditions on them, the outputs are computed once each.
        planned(chain(40, "")).await.unwrap();
        for condition in ["where v > 3", "where v in (select v from c0 where v > 3)", "join c1 on c1.v < c39.v"] {
            let error = planned(chain(40, condition)).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::LimitExceeded, "{condition}: {error}");
        }
    }

    #[test]
    fn subqueries_are_counted_once() {
        let count = || {
            let mut plan = LogicalPlanBuilder::empty(true).project([lit(1).alias("v")]).unwrap().build().unwrap();
            for _ in 0..60 {
                let value = scalar_subquery(Arc::new(plan)).alias("v");
                plan = LogicalPlanBuilder::empty(true).project([value]).unwrap().build().unwrap();
            }
            few_parts(&plan).unwrap();
        };
        // The same stack size as the engine's threads.
        std::thread::Builder::new().stack_size(32 << 20).spawn(count).unwrap().join().unwrap();
    }

    /// Guards against counting the last argument twice at each level, which would not end for forty levels.
    #[test]
    fn what_stands_last_is_counted_once() {
        let mut expr = col("column1");
        for _ in 0..40 {
            expr = coalesce().call(vec![col("column1"), expr]);
        }
        let rows = LogicalPlanBuilder::values(vec![vec![lit(1_i64)]]).unwrap();
        few_parts(&rows.project([expr]).unwrap().build().unwrap()).unwrap();
    }

    #[test]
    fn arms_count_as_often_as_they_are_written() {
        // `column1 = n` adds two parts.
        let case = |arms: i64, then: fn(i64) -> Expr| {
            let arm = |n: i64| (Box::new(col("column1").eq(lit(n))), Box::new(then(n)));
            Expr::Case(Case::new(None, (0..arms).map(arm).collect(), None))
        };
        let parts = |expr: &Expr| SizeCounter::default().parts(expr, &Parts::new()).unwrap();
        let cases: [Counted; 10] = [
            // Few arms: each counts three times.
            (1, |_| lit("x"), 1 + 6),
            (2, |_| lit(true), 1 + 12),
            // Otherwise they count once, with their results.
            (3, |_| lit("x"), 1 + 6),
            (4_000, |_| lit("x"), 1 + 8_000),
            (3, |n| col("column1") + lit(n), 1 + 3 * 4),
            (3, |n| if n > 0 { lit(true) } else { lit("x") }, 1 + 6),
            // Booleans: each arm repeats all before it, 0 + 2 + 4 + 6.
            (4, |_| lit(false), 1 + 8 + 12),
            (3, |_| lit(ScalarValue::Boolean(None)), 1 + 6 + 6),
            // Not if there are both many true and many false results.
            (6, |n| lit(n < 3), 1 + 12),
            (5, |n| lit(n < 3), 1 + 10 + 20),
        ];
        for (arms, then, expected) in cases {
            assert_eq!(parts(&case(arms, then)), expected, "{arms} arms");
        }
        // A `CASE` in the condition of an arm counts three times again.
        let inner = case(3, |_| lit(1_i64));
        let asked = [inner.eq(lit(1_i64)), col("a"), col("b")];
        let arms = asked.map(|when| (Box::new(when), Box::new(lit("x"))));
        let outer = Expr::Case(Case::new(None, arms.into(), None));
        assert_eq!(parts(&outer), 1 + 3 * (7 + 1) + 1 + 1);
        let planned = |expr: Expr| {
            let rows = LogicalPlanBuilder::values(vec![vec![lit(1_i64)]]).unwrap();
            few_parts(&rows.project([expr.alias("x")]).unwrap().build().unwrap())
        };
        planned(case(6_000, |_| lit("x"))).unwrap();
        for many in [case(9_000, |_| lit("x")), case(200, |n| lit(n == 7))] {
            assert_eq!(planned(many).unwrap_err().kind, ErrorKind::LimitExceeded);
        }
    }

    #[test]
    fn constants_are_no_parts() {
        let items = |count: usize, item: fn(Expr) -> Expr| {
            let list = (0..count).map(|n| item(cast(lit(n.to_string()), DataType::Int64))).collect();
            let rows = LogicalPlanBuilder::values(vec![vec![lit(1_i64)]]).unwrap();
            few_parts(&rows.filter(in_list(col("column1"), list, false)).unwrap().build().unwrap())
        };
        items(2 * ONE_MAX, |item| item).unwrap();
        let error = items(2 * ONE_MAX, |item| item + col("column1")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::LimitExceeded);
    }
}
