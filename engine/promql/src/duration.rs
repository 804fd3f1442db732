//! The value of duration expressions.

use quiver_types::Error;
use quiver_types::time::duration::MILLIS_MAX;

use crate::ast::{DurationExpr, DurationKind, DurationOp, Expr, ExprKind, PosRange};

/// Gives the seconds of milliseconds.
pub(crate) fn seconds(millis: i64) -> f64 {
    (millis / 1000) as f64 + (millis % 1000) as f64 / 1000.0
}

/// Gives the milliseconds of an offset, which may be negative. `step_ms` and `range_ms` are those of the query.
///
/// # Errors
/// Invalid: division by zero, or no finite duration.
pub(crate) fn evaluate(duration: &DurationExpr, step_ms: i64, range_ms: i64) -> Result<i64, Error> {
    if let DurationKind::Literal { seconds, .. } = duration.kind {
        return Ok((seconds * 1e9).round() as i64 / 1_000_000);
    }
    let seconds = finite(duration, step_ms, range_ms)?;
    in_millis(duration, seconds)
}

/// Gives the milliseconds of a range or a step, which must be more than nothing.
///
/// # Errors
/// Invalid: as [`evaluate`], or not positive.
pub(crate) fn evaluate_positive(duration: &DurationExpr, step_ms: i64, range_ms: i64) -> Result<i64, Error> {
    if matches!(duration.kind, DurationKind::Literal { .. }) {
        return evaluate(duration, step_ms, range_ms);
    }
    let seconds = finite(duration, step_ms, range_ms)?;
    if seconds <= 0.0 {
        return fail(duration, "duration must be greater than 0");
    }
    in_millis(duration, seconds)
}

/// Checks the durations of all selectors and subqueries in an expression, in the order of Prometheus: the first one that fails
/// is told, even if its part of the expression is evaluated at no step. `step_ms` and `range_ms` as above.
///
/// # Errors
/// Invalid: as [`evaluate`] of offsets, and as [`evaluate_positive`] of ranges and steps.
pub(crate) fn check_all(expr: &Expr, step_ms: i64, range_ms: i64) -> Result<(), Error> {
    let check_offset = |offset: Option<&DurationExpr>| match offset {
        None => Ok(()),
        Some(offset) => evaluate(offset, step_ms, range_ms).map(drop),
    };
    let check_positive = |duration: &DurationExpr| evaluate_positive(duration, step_ms, range_ms).map(drop);
    // An explicit stack, because recursion over a long chain of operators could overflow the thread's.
    let mut waiting = vec![expr];
    while let Some(expr) = waiting.pop() {
        match &expr.kind {
            ExprKind::Number { .. } | ExprKind::String(_) => {}
            ExprKind::VectorSelector(selector) => check_offset(selector.offset.as_ref())?,
            ExprKind::MatrixSelector { selector, range } => {
                check_positive(range)?;
                check_offset(selector.offset.as_ref())?;
            }
            ExprKind::Subquery(subquery) => {
                check_offset(subquery.offset.as_ref())?;
                if let Some(step) = &subquery.step {
                    check_positive(step)?;
                }
                check_positive(&subquery.range)?;
                waiting.push(&subquery.expr);
            }
            ExprKind::Paren(inner) | ExprKind::Unary { expr: inner, .. } => waiting.push(inner),
            ExprKind::Binary(binary) => waiting.extend([&binary.rhs, &binary.lhs]),
            ExprKind::Aggregate(aggregate) => {
                waiting.extend(aggregate.param.as_ref());
                waiting.push(&aggregate.expr);
            }
            ExprKind::Call { args, .. } => waiting.extend(args.iter().rev()),
        }
    }
    Ok(())
}

fn finite(duration: &DurationExpr, step_ms: i64, range_ms: i64) -> Result<f64, Error> {
    let seconds = value(duration, step_ms, range_ms)?;
    if seconds.is_finite() { Ok(seconds) } else { fail(duration, "duration is NaN or infinite") }
}

fn in_millis(duration: &DurationExpr, seconds: f64) -> Result<i64, Error> {
    if seconds.abs() > MILLIS_MAX as f64 / 1000.0 {
        return fail(duration, "duration is out of range");
    }
    Ok((seconds * 1000.0) as i64)
}

fn value(duration: &DurationExpr, step_ms: i64, range_ms: i64) -> Result<f64, Error> {
    Ok(match &duration.kind {
        DurationKind::Literal { seconds, .. } => *seconds,
        DurationKind::Step => seconds(step_ms),
        DurationKind::Range => seconds(range_ms),
        DurationKind::Unary { negate, expr } => {
            let value = value(expr, step_ms, range_ms)?;
            if *negate { -value } else { value }
        }
        DurationKind::Paren(inner) => value(inner, step_ms, range_ms)?,
        DurationKind::Binary { op, lhs, rhs } => {
            let (lhs, rhs) = (value(lhs, step_ms, range_ms)?, value(rhs, step_ms, range_ms)?);
            match op {
                DurationOp::Add => lhs + rhs,
                DurationOp::Sub => lhs - rhs,
                DurationOp::Mul => lhs * rhs,
                DurationOp::Div if rhs == 0.0 => return fail(duration, "division by zero"),
                DurationOp::Div => lhs / rhs,
                DurationOp::Mod if rhs == 0.0 => return fail(duration, "modulo by zero"),
                DurationOp::Mod => lhs % rhs,
                DurationOp::Pow => lhs.powf(rhs),
                DurationOp::Min => lhs.min(rhs),
                DurationOp::Max => lhs.max(rhs),
            }
        }
    })
}

/// Fails with the bytes from and to which the expression reaches, as Prometheus does.
fn fail<T>(duration: &DurationExpr, reason: &str) -> Result<T, Error> {
    let PosRange { start, end } = place(duration);
    Err(Error::invalid(format!("{start}:{end}: {reason}")))
}

/// Gives where Prometheus says that an expression is: from its first to its last number or word. Parentheses do not
/// count, but for the opening one before a number; neither do the names `min_of` and `max_of`.
fn place(duration: &DurationExpr) -> PosRange {
    match &duration.kind {
        DurationKind::Literal { .. } | DurationKind::Step | DurationKind::Range => duration.pos,
        DurationKind::Unary { expr, .. } => PosRange { start: duration.pos.start, end: place(expr).end },
        DurationKind::Paren(inner) if matches!(inner.kind, DurationKind::Literal { .. }) => {
            PosRange { start: duration.pos.start, end: inner.pos.end }
        }
        DurationKind::Paren(inner) => place(inner),
        DurationKind::Binary { lhs, rhs, .. } => PosRange { start: place(lhs).start, end: place(rhs).end },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    #[test]
    fn the_first_duration_that_fails_is_told() {
        let check = |text: &str, expected: &str| {
            let told = check_all(&parse(text).expect(text), 0, 0).map_err(|e| e.message);
            assert_eq!(told, if expected.is_empty() { Ok(()) } else { Err(expected.to_owned()) }, "{text}");
        };
        check("sum(m) + rate(m[1m + 1m] offset -(1m)) * 2", "");
        check("m[5m:]", "");
        check("m offset (1 / step())", "10:20: division by zero");
        // From left to right, the operand of an aggregation before its parameter, and of a subquery offset, step, range.
        check("sum(rate(m[step()])) - sum(rate(m[range()]))", "11:17: duration must be greater than 0");
        check("topk(scalar(rate(m[step()])), rate(m[range()]))", "37:44: duration must be greater than 0");
        check("label_join(rate(m[step()]), 'a', '') or rate(m[range()])", "18:24: duration must be greater than 0");
        check("m[0+step():1 % range()] offset (1 / range())", "32:43: division by zero");
        check("m[0+step():1 % range()]", "11:22: modulo by zero");
        check("m[0+step():1m]", "2:10: duration must be greater than 0");
        // An hour has a step of two hours in it only now and then.
        let rare = "max_over_time((rate(m[step()] offset range()) + 1)[1h:2h])";
        check(rare, "22:28: duration must be greater than 0");
    }

    #[test]
    fn values() {
        let range = |text: &str| match parse(&format!("m[{text}]")).expect(text).kind {
            ExprKind::MatrixSelector { range, .. } => {
                evaluate_positive(&range, 15_000, 3_600_000).map_err(|e| e.message)
            }
            other => panic!("{other:?}"),
        };
        let check = |text: &str, expected: i64| assert_eq!(range(text), Ok(expected), "{text}");
        check("5m", 300_000);
        check("0.0014", 1);
        check("step()", 15_000);
        check("11s+10s-5*2^2", 1000);
        check("-2^2+5", 1000);
        check("2 ^ 3 ^ 2", 512_000);
        check("7 % 4 * 2", 6000);
        check("max_of(step(), range() / 120) - min_of(1s, 2)", 29_000);
        check("(1h + 30m)", 5_400_000);
        let check = |text: &str, expected: &str| assert_eq!(range(text), Err(expected.to_owned()), "{text}");
        check("-step()", "2:9: duration must be greater than 0");
        check("(5 - 10)", "3:9: duration must be greater than 0");
        check("1 / (0)", "2:8: division by zero");
        check("1 % (0)", "2:8: modulo by zero");
        check("-(1m)", "2:6: duration must be greater than 0");
        check("((-1m))", "3:7: duration must be greater than 0");
        check("(1m) - (2m)", "2:12: duration must be greater than 0");
        check("(step()) * -1", "3:15: duration must be greater than 0");
        check("+(5m - 10m)", "4:12: duration must be greater than 0");
        check("min_of(1m, -(step()))", "9:21: duration must be greater than 0");
        // A negative duration is reported before one that is too long.
        check("-(10y * 10y)", "2:13: duration must be greater than 0");
        check("(-1) ^ 0.5", "2:12: duration is NaN or infinite");
        check("10y ^ 10y", "2:11: duration is NaN or infinite");
        check("10y * 10y", "2:11: duration is out of range");
    }

    #[test]
    fn offsets_may_be_nothing_or_negative() {
        let offset =
            |text: &str, step_ms: i64, range_ms: i64| match parse(&format!("m offset {text}")).expect(text).kind {
                ExprKind::VectorSelector(selector) => {
                    selector.offset.map_or(Ok(0), |offset| evaluate(&offset, step_ms, range_ms).map_err(|e| e.message))
                }
                other => panic!("{other:?}"),
            };
        for (text, expected) in [
            ("0", 0),
            ("-0s", 0),
            ("-1ms", -1),
            ("1y", 31_536_000_000),
            ("step()", 15_000),
            ("-step()", -15_000),
            ("-range()", -60_000),
            ("(step() - 20s)", -5000),
            ("(step() - 15)", 0),
            ("min_of(step(), -1)", -1000),
            ("max_of(step(), range())", 60_000),
            ("(0.0009)", 0),
            ("(1.9996)", 1999),
            ("-(2 ^ -1)", -500),
            ("(7 % -4)", 3000),
            ("(-7 % 4)", -3000),
        ] {
            assert_eq!(offset(text, 15_000, 60_000), Ok(expected), "{text}");
        }
        // An instant query has neither steps nor a range.
        assert_eq!((offset("step()", 0, 0), offset("range()", 0, 0)), (Ok(0), Ok(0)));
        assert!(offset("(1 / step())", 0, 0).is_err_and(|e| e.ends_with("division by zero")));
        assert!(offset("(1 % range())", 0, 0).is_err_and(|e| e.ends_with("modulo by zero")));
    }

    #[test]
    fn a_range_must_be_more_than_nothing() {
        let range = |text: &str| match parse(&format!("m[{text}]")).expect(text).kind {
            ExprKind::MatrixSelector { range, .. } => evaluate_positive(&range, 0, 0).map_err(|e| e.message),
            other => panic!("{other:?}"),
        };
        assert_eq!(range("step()"), Err("2:8: duration must be greater than 0".to_owned()));
        assert_eq!(range("range() * 5"), Err("2:13: duration must be greater than 0".to_owned()));
        assert_eq!(range("1s + step()"), Ok(1000));
        // Less than a millisecond is still positive, although it is 0 when truncated to milliseconds.
        assert_eq!(range("(0.0001)"), Ok(0));
        assert_eq!((seconds(-1500), seconds(1), seconds(0)), (-1.5, 0.001, 0.0));
    }
}
