//! Determines which times of the data the steps of an expression depend on.

use quiver_types::{Millis, MillisRange};

use crate::ast::{AggregateOp, At, DurationExpr, DurationKind, Expr, ExprKind, VectorSelector};
use crate::duration::{evaluate, evaluate_positive};
use crate::kernel::Grid;

/// The time ranges that a step at `t` reads: `t + before ..= t + after`, and fixed ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Dependence {
    /// `(before, after)` in milliseconds relative to the step, both inclusive; `before` is mostly negative.
    moving: Vec<(i64, i64)>,
    /// Time ranges that all steps read (with a fixed `@`).
    fixed: Vec<MillisRange>,
}

/// What the time of a selector is relative to.
#[derive(Debug, Clone, Copy)]
enum TimeOrigin {
    /// The step, plus offsets from the first to the second number.
    Step(i64, i64),
    /// Fixed times, both inclusive, whatever the step is.
    Fixed(Millis, Millis),
}

impl TimeOrigin {
    /// The origin below a modifier `@`.
    fn at(self, at: Option<At>) -> Option<Self> {
        match at {
            None => Some(self),
            Some(At::Time(t)) => Some(Self::Fixed(t, t)),
            Some(At::Start | At::End) => None,
        }
    }

    fn moved(self, before: i64, after: i64) -> Self {
        match self {
            Self::Step(first, last) => Self::Step(first.saturating_sub(before), last.saturating_add(after)),
            Self::Fixed(first, last) => Self::Fixed(first.saturating_sub(before), last.saturating_add(after)),
        }
    }
}

/// Determines what an expression depends on. `None` if its steps depend on the query's range, or may differ in the last
/// bits when evaluated within another range.
pub(crate) fn dependence(expr: &Expr, step_ms: i64, lookback_ms: i64) -> Option<Dependence> {
    let mut walk = Walk { found: Dependence::default(), step_ms, lookback_ms };
    let mut waiting = vec![(expr, TimeOrigin::Step(0, 0))];
    while let Some((expr, origin)) = waiting.pop() {
        match &expr.kind {
            ExprKind::Number { .. } | ExprKind::String(_) => {}
            ExprKind::Paren(inner) | ExprKind::Unary { expr: inner, .. } => waiting.push((inner, origin)),
            ExprKind::VectorSelector(selector) => walk.selector(selector, None, origin)?,
            ExprKind::MatrixSelector { selector, range } => walk.selector(selector, Some(range), origin)?,
            ExprKind::Subquery(subquery) => {
                let range = walk.positive(&subquery.range)?;
                if let Some(step) = &subquery.step {
                    walk.positive(step)?;
                }
                let origin = origin.at(subquery.at)?;
                let offset = walk.offset(subquery.offset.as_ref())?;
                waiting.push((&subquery.expr, origin.moved(range.saturating_add(offset), -offset)));
            }
            ExprKind::Binary(binary) => waiting.extend([(&binary.lhs, origin), (&binary.rhs, origin)]),
            ExprKind::Aggregate(aggregate) => {
                // Partial states of variances are merged, and how the data is partitioned depends on the range; so do
                // the series that the `limit` operators see.
                let op = aggregate.op;
                if matches!(
                    op,
                    AggregateOp::Stddev | AggregateOp::Stdvar | AggregateOp::Limitk | AggregateOp::LimitRatio
                ) {
                    return None;
                }
                waiting.push((&aggregate.expr, origin));
                waiting.extend(aggregate.param.as_ref().map(|param| (param, origin)));
            }
            ExprKind::Call { function, args } => {
                // `start()` and the like depend on the query's range, `info` finds its series by it, and quantiles that
                // become labels are those of the first step.
                if matches!(&**function, "info" | "start" | "end" | "step" | "range" | "histogram_quantiles") {
                    return None;
                }
                waiting.extend(args.iter().map(|arg| (arg, origin)));
            }
        }
    }
    let Dependence { moving, fixed } = &mut walk.found;
    moving.sort_unstable();
    moving.dedup();
    fixed.sort_unstable_by_key(|r| (r.min, r.max));
    fixed.dedup();
    Some(walk.found)
}

struct Walk {
    found: Dependence,
    step_ms: i64,
    lookback_ms: i64,
}

impl Walk {
    fn positive(&self, duration: &DurationExpr) -> Option<i64> {
        if uses_range(duration) { None } else { evaluate_positive(duration, self.step_ms, 0).ok() }
    }

    fn offset(&self, duration: Option<&DurationExpr>) -> Option<i64> {
        duration.map_or(Some(0), |d| if uses_range(d) { None } else { evaluate(d, self.step_ms, 0).ok() })
    }

    fn selector(&mut self, selector: &VectorSelector, range: Option<&DurationExpr>, origin: TimeOrigin) -> Option<()> {
        let window = range.map_or(Some(self.lookback_ms), |range| self.positive(range))?;
        let (outside, after) = selector.ends.reach_ms(self.lookback_ms);
        // The window of an instant selector is the look-back.
        let before = if range.is_some() { outside } else { 0 };
        // `timestamp(m offset 5m @ 10)` ignores its offset: consider both times.
        let offset = self.offset(selector.offset.as_ref())?;
        let origin = origin.at(selector.at)?;
        let behind = window.saturating_add(before);
        for offset in if selector.at.is_some() { [offset, 0] } else { [offset; 2] } {
            match origin.moved(behind.saturating_add(offset), after.saturating_sub(offset)) {
                TimeOrigin::Step(first, last) => self.found.moving.push((first, last)),
                TimeOrigin::Fixed(min, max) => self.found.fixed.push(MillisRange::new(min, max)),
            }
        }
        Some(())
    }
}

fn uses_range(duration: &DurationExpr) -> bool {
    match &duration.kind {
        DurationKind::Literal { .. } | DurationKind::Step => false,
        DurationKind::Range => true,
        DurationKind::Unary { expr, .. } | DurationKind::Paren(expr) => uses_range(expr),
        DurationKind::Binary { lhs, rhs, .. } => uses_range(lhs) || uses_range(rhs),
    }
}

impl Dependence {
    /// Number of leading steps that depend on nothing that changed. `first_change` returns the earliest time in a range
    /// at which something changed.
    pub(crate) fn unchanged(&self, grid: Grid, first_change: impl Fn(MillisRange) -> Option<Millis>) -> usize {
        if self.fixed.iter().any(|&range| first_change(range).is_some()) {
            return 0;
        }
        let mut steps = grid.steps;
        for &(before, after) in &self.moving {
            let range = MillisRange::new(grid.start.saturating_add(before), grid.end().saturating_add(after));
            if let Some(changed) = first_change(range) {
                // The first step whose range includes it.
                let first = changed.saturating_sub(after).saturating_sub(grid.start);
                let whole = if first <= 0 { 0 } else { (first as u64).div_ceil(grid.step_ms as u64) as usize };
                steps = steps.min(whole);
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    fn of(text: &str) -> Option<Dependence> {
        dependence(&parse(text).expect(text), 15_000, 300_000)
    }

    #[test]
    fn windows_offsets_and_subqueries() {
        let check = |text: &str, moving: &[(i64, i64)], fixed: &[(i64, i64)]| {
            let fixed: Vec<_> = fixed.iter().map(|&(min, max)| MillisRange::new(min, max)).collect();
            assert_eq!(of(text), Some(Dependence { moving: moving.to_vec(), fixed }), "{text}");
        };
        check("1 + time()", &[], &[]);
        check("m", &[(-300_000, 0)], &[]);
        check("sum(rate(m[1m])) / m", &[(-300_000, 0), (-60_000, 0)], &[]);
        check("m offset 1m", &[(-360_000, -60_000)], &[]);
        check("m offset -1m", &[(-240_000, 60_000)], &[]);
        check("max_over_time(rate(m[1m])[10m:1m] offset 1s)", &[(-661_000, -1000)], &[]);
        check("m @ 1000", &[], &[(700_000, 1_000_000)]);
        check("max_over_time(m[10m:] @ 1000)", &[], &[(100_000, 1_000_000)]);
        check("rate(m[step()])", &[(-15_000, 0)], &[]);
        check("rate(m[1m] smoothed)", &[(-360_000, 300_000)], &[]);
    }

    #[test]
    fn what_knows_of_the_range_is_not_kept() {
        for text in ["m @ start()", "rate(m[1m] @ end())", "rate(m[range()])", "stddev(m)", "sum(limitk(2, m))"] {
            assert_eq!(of(text), None, "{text}");
        }
        for text in ["m + start()", "m > end() - 60", "clamp_max(m, range())", "vector(step())", "sum(m - (start()))"] {
            assert_eq!(of(text), None, "{text}");
        }
        for text in ["info(m)", "histogram_quantiles(m, 'q', scalar(s))", "limit_ratio(0.5, m)", "m offset range()"] {
            assert_eq!(of(text), None, "{text}");
        }
        assert!(
            of("start").is_some() && of("rate(m[step()])").is_some(),
            "a metric of that name, a step that is known"
        );
    }

    #[test]
    fn steps_before_the_first_change_stay() {
        let grid = Grid { start: 1_000_000, step_ms: 15_000, steps: 10 };
        let unchanged = |text: &str, at: i64| {
            let first = |range: MillisRange| range.contains(at).then_some(at);
            of(text).expect(text).unchanged(grid, first)
        };
        assert_eq!(unchanged("m", 0), 10);
        assert_eq!(unchanged("m", 1_000_000), 0);
        assert_eq!(unchanged("m", 1_000_001), 1);
        assert_eq!(unchanged("m", 1_015_000), 1);
        assert_eq!(unchanged("m", 1_015_001), 2);
        assert_eq!(unchanged("m", 2_000_000), 10);
        assert_eq!(unchanged("m offset 5m", 1_000_000), 10, "five minutes later");
        assert_eq!(unchanged("m offset 1m", 1_000_000), 4);
        assert_eq!(unchanged("m offset -1m", 1_060_001), 1);
        assert_eq!(unchanged("m @ 500 + m", 400_000), 0);
    }

    #[test]
    fn fixed_times_and_what_is_nested() {
        let check = |text: &str, moving: &[(i64, i64)], fixed: &[(i64, i64)]| {
            let fixed: Vec<_> = fixed.iter().map(|&(min, max)| MillisRange::new(min, max)).collect();
            assert_eq!(of(text), Some(Dependence { moving: moving.to_vec(), fixed }), "{text}");
        };
        check("topk(scalar(n), m offset 1m)", &[(-360_000, -60_000), (-300_000, 0)], &[]);
        check("max_over_time(sum_over_time(m[1m:])[10m:1m])", &[(-960_000, 0)], &[]);
        check("m + m + (m)", &[(-300_000, 0)], &[]);
        // What is within a subquery with a time of its own is counted from there, unless it has one, too.
        check("max_over_time((m offset 1m)[10m:] @ 1000)", &[], &[(40_000, 940_000)]);
        check("max_over_time((m @ 5)[10m:] offset 1h)", &[], &[(-295_000, 5000)]);
        // `timestamp` forgets the offset of a selector with a time.
        check("timestamp(m offset 1m @ 1000)", &[], &[(640_000, 940_000), (700_000, 1_000_000)]);
        check("increase(m[1m] anchored)", &[(-360_000, 0)], &[]);
        check("m smoothed", &[(-300_000, 300_000)], &[]);
    }

    #[test]
    fn a_change_of_what_is_fixed_changes_all_steps() {
        let grid = Grid { start: 1_000_000, step_ms: 15_000, steps: 10 };
        let rests_on = of("m @ 500 + n").expect("it is kept");
        let unchanged = |at: i64| rests_on.unchanged(grid, |range| range.contains(at).then_some(at));
        assert_eq!([199_999, 200_000, 500_000, 500_001].map(unchanged), [10, 0, 0, 10]);
        assert_eq!(rests_on.unchanged(grid, |_| None), 10);
        assert_eq!(of("1").expect("it is kept").unchanged(grid, |range| Some(range.min)), 10, "it rests on nothing");
    }
}
