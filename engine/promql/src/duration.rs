//! Durations: literals such as `1h30m`, and the value of duration expressions.

use quiver_types::Error;

use crate::ast::{DurationExpr, DurationKind, DurationOp, PosRange};
use crate::lexer::quote::quote;

const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 24 * 3_600_000),
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Longest duration, in milliseconds: that of 64-bit nanoseconds.
const MILLIS_MAX: i64 = i64::MAX / 1_000_000;

/// Parses a duration as HTTP parameters have it, `1h30m` or `0`; gives milliseconds. Units go from large to small.
pub fn parse_duration(text: &str) -> Option<i64> {
    parse_literal(text).ok()
}

/// Parses a duration; gives milliseconds or why it is none.
pub(crate) fn parse_literal(text: &str) -> Result<i64, String> {
    const TOO_LONG: &str = "duration out of range";
    let invalid = || format!("not a valid duration string: {}", quote(text));
    match text {
        "0" => return Ok(0),
        "" => return Err("empty duration string".to_owned()),
        _ => {}
    }
    let (mut rest, mut total, mut units) = (text, 0_i64, &UNITS[..]);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
        let count: u64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = &rest[..unit_end];
        rest = &rest[unit_end..];
        if !UNITS.iter().any(|(name, _)| *name == unit) {
            return Err(format!("unknown unit {} in duration {}", quote(unit), quote(text)));
        }
        let at = units.iter().position(|(name, _)| *name == unit).ok_or_else(invalid)?;
        let part = i64::try_from(count).ok().and_then(|c| c.checked_mul(units[at].1)).ok_or(TOO_LONG)?;
        total = total.checked_add(part).filter(|&t| t <= MILLIS_MAX).ok_or(TOO_LONG)?;
        units = &units[at + 1..];
    }
    Ok(total)
}

/// Gives the seconds of milliseconds.
pub(crate) fn seconds(millis: i64) -> f64 {
    (millis / 1000) as f64 + (millis % 1000) as f64 / 1000.0
}

/// Writes milliseconds as Prometheus does: `1h30m`; years and weeks only when nothing remains; nothing is `0s`.
pub fn format_duration(millis: i64) -> String {
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut out = String::new();
    if millis < 0 {
        out.push('-');
    }
    let mut rest = millis.unsigned_abs();
    for (unit, length) in UNITS {
        let length = length.unsigned_abs();
        let whole_only = matches!(unit, "y" | "w");
        if rest >= length && (!whole_only || rest.is_multiple_of(length)) {
            out += &(rest / length).to_string();
            out += unit;
            rest %= length;
        }
    }
    out
}

/// Gives the milliseconds of an offset, which may be negative. `step_ms` and `range_ms` are those of the query.
///
/// # Errors
/// Invalid: division by zero, or no finite duration.
pub fn evaluate(duration: &DurationExpr, step_ms: i64, range_ms: i64) -> Result<i64, Error> {
    if let DurationKind::Literal { seconds, .. } = duration.kind {
        return Ok((seconds * 1e9).round() as i64 / 1_000_000);
    }
    let seconds = value(duration, step_ms, range_ms)?;
    if !seconds.is_finite() {
        return fail(duration, "duration is NaN or infinite");
    }
    if seconds.abs() > MILLIS_MAX as f64 / 1000.0 {
        return fail(duration, "duration is out of range");
    }
    Ok((seconds * 1000.0) as i64)
}

/// Gives the milliseconds of a range or a step, which must be more than nothing.
///
/// # Errors
/// Invalid: as [`evaluate`], or not positive.
pub fn evaluate_positive(duration: &DurationExpr, step_ms: i64, range_ms: i64) -> Result<i64, Error> {
    let millis = evaluate(duration, step_ms, range_ms)?;
    let literal = matches!(duration.kind, DurationKind::Literal { .. });
    if !literal && value(duration, step_ms, range_ms)? <= 0.0 {
        return fail(duration, "duration must be greater than 0");
    }
    Ok(millis)
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
    let PosRange { start, end } = match &duration.kind {
        DurationKind::Paren(inner) if !matches!(inner.kind, DurationKind::Literal { .. }) => inner.pos,
        _ => duration.pos,
    };
    Err(Error::invalid(format!("{start}:{end}: {reason}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::ExprKind;
    use crate::parser::parse;

    #[test]
    fn literals() {
        let check = |text: &str, expected: Option<i64>| assert_eq!(parse_duration(text), expected, "{text}");
        check("0", Some(0));
        check("1h30m", Some(5_400_000));
        check("1y2w3d4h5m6s7ms", Some(33_019_506_007));
        check("292y", Some(292 * 365 * 86_400_000));
        check("293y", None);
        check("99999999999999999999s", None);
        check("1m1h", None);
        check("1m1m", None);
        check("5", None);
        check("1hs", None);
        check("-5m", None);
        check("", None);
        assert_eq!(parse_literal("5y1hs"), Err("unknown unit \"hs\" in duration \"5y1hs\"".to_owned()));
        assert_eq!(parse_literal("5m1h"), Err("not a valid duration string: \"5m1h\"".to_owned()));
    }

    #[test]
    fn written_back() {
        let check = |text: &str| assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        check("1h30m");
        check("90d");
        check("2w");
        check("3y");
        check("400d4h5m6s7ms");
        assert_eq!(format_duration(0), "0s");
        assert_eq!(format_duration(-420_000), "-7m");
        assert_eq!(format_duration(14 * 86_400_000), "2w");
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
        check("1 / (0)", "2:9: division by zero");
        check("1 % (0)", "2:9: modulo by zero");
        check("(-1) ^ 0.5", "2:12: duration is NaN or infinite");
        check("10y ^ 10y", "2:11: duration is NaN or infinite");
        check("10y * 10y", "2:11: duration is out of range");
    }
}
