//! Compares a result with what a script expects.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use quiver_types::histogram::{CUSTOM_SCHEMA, Span};
use quiver_types::{Histogram, LabelSet, ResetHint, is_stale};

use super::script::{Eval, TextTest, When};
use super::series::{Slot, buckets};
use super::{Answer, Outcome, Value};

/// Says whether two numbers are equal for the scripts.
pub fn close(a: f64, b: f64) -> bool {
    if is_stale(a) || is_stale(b) {
        return is_stale(a) && is_stale(b);
    }
    if a.is_nan() && b.is_nan() || a == b {
        return true;
    }
    let (sum, diff) = (a.abs() + b.abs(), (a - b).abs());
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE { diff < 1e-6 * f64::MIN_POSITIVE } else { diff / sum < 1e-6 }
}

fn same_histogram(expected: &Histogram, got: &Histogram, hinted: bool) -> bool {
    fn side(spans: &[Span], counts: &[f64]) -> BTreeMap<i32, f64> {
        buckets(spans, counts).into_iter().filter(|(_, c)| *c != 0.0).collect()
    }
    let sides = |h: &Histogram| [side(&h.positive_spans, &h.positive), side(&h.negative_spans, &h.negative)];
    let same_side = |(a, b): (&BTreeMap<i32, f64>, &BTreeMap<i32, f64>)| {
        a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.0 == y.0 && close(*x.1, *y.1))
    };
    let bounds = expected.schema != CUSTOM_SCHEMA || expected.custom_bounds == got.custom_bounds;
    expected.schema == got.schema
        && close(expected.count, got.count)
        && close(expected.sum, got.sum)
        && close(expected.zero_count, got.zero_count)
        && expected.zero_threshold == got.zero_threshold
        && bounds
        && sides(expected).iter().zip(&sides(got)).all(same_side)
        && (!hinted || hint(expected) == hint(got))
}

fn hint(h: &Histogram) -> ResetHint {
    h.reset_hint
}

fn same_value(expected: &Slot, got: &Value) -> bool {
    match (&expected.value, got) {
        (Some(Value::Float(e)), Value::Float(g)) => close(*e, *g),
        (Some(Value::Histogram(e)), Value::Histogram(g)) => same_histogram(e, g, expected.hinted),
        _ => false,
    }
}

/// Writes a value for a message.
pub fn show(value: &Value) -> String {
    match value {
        Value::Float(v) => v.to_string(),
        Value::Histogram(h) => {
            let mut out = format!("{{{{schema:{} count:{} sum:{}", h.schema, h.count, h.sum);
            if h.zero_count != 0.0 || h.zero_threshold != 0.0 {
                let _ = write!(out, " z_bucket:{} z_bucket_w:{}", h.zero_count, h.zero_threshold);
            }
            if !h.positive.is_empty() {
                let _ = write!(out, " buckets:{:?}", buckets(&h.positive_spans, &h.positive));
            }
            if !h.negative.is_empty() {
                let _ = write!(out, " n_buckets:{:?}", buckets(&h.negative_spans, &h.negative));
            }
            if !h.custom_bounds.is_empty() {
                let _ = write!(out, " custom_values:{:?}", h.custom_bounds);
            }
            format!("{out} hint:{:?}}}}}", h.reset_hint)
        }
    }
}

fn show_slot(slot: &Slot) -> String {
    slot.value.as_ref().map_or_else(|| "_".into(), show)
}

/// Judges the result of the eval itself; `Err` says what is wrong.
///
/// # Errors
/// What is wrong.
pub fn judge(eval: &Eval, got: &Result<Outcome, String>) -> Result<(), String> {
    let outcome = match (&eval.fail, got) {
        (Some(test), Err(error)) => {
            let passes = test.matches(error);
            return if passes { Ok(()) } else { Err(format!("expected failure {test:?}, got: {error}")) };
        }
        (Some(_), Ok(_)) => return Err("expected a failure, but the query succeeded".into()),
        (None, Err(error)) => return Err(format!("failed: {error}")),
        (None, Ok(outcome)) => outcome,
    };
    annotations("warning", &eval.warn, eval.no_warn, &outcome.warnings)?;
    annotations("info", &eval.info, eval.no_info, &outcome.infos)?;
    answer(eval, &outcome.answer, eval.ordered)
}

/// Judges annotations only up to their position: the query was rewritten.
///
/// # Errors
/// What is wrong.
pub fn judge_values(eval: &Eval, got: &Result<Outcome, String>) -> Result<(), String> {
    match got {
        Ok(outcome) => answer(eval, &outcome.answer, false),
        Err(error) => Err(format!("failed: {error}")),
    }
}

fn annotations(kind: &str, tests: &[TextTest], none: bool, got: &[String]) -> Result<(), String> {
    if none && !got.is_empty() {
        return Err(format!("expected no {kind}, got {got:?}"));
    }
    if tests.is_empty() {
        return Ok(());
    }
    if got.is_empty() {
        return Err(format!("expected a {kind}"));
    }
    let texts: Vec<_> = tests.iter().filter(|t| !matches!(t, TextTest::Any)).collect();
    for test in &texts {
        if !got.iter().any(|g| test.matches(g)) {
            return Err(format!("expected {kind} {test:?}, got {got:?}"));
        }
    }
    if !texts.is_empty() {
        for text in got {
            if !texts.iter().any(|t| t.matches(text)) {
                return Err(format!("unexpected {kind}: {text}"));
            }
        }
    }
    Ok(())
}

fn answer(eval: &Eval, got: &Answer, ordered: bool) -> Result<(), String> {
    match got {
        Answer::String(text) => match &eval.string {
            Some(expected) if expected == text => Ok(()),
            expected => Err(format!("expected {expected:?}, got the string {text:?}")),
        },
        Answer::Scalar(v) => match eval.scalar {
            Some(expected) if close(expected, *v) => Ok(()),
            expected => Err(format!("expected {expected:?}, got the scalar {v}")),
        },
        _ if eval.scalar.is_some() || eval.string.is_some() => Err(format!("expected a scalar or string, got {got:?}")),
        Answer::Vector(elements) => vector(eval, elements, ordered),
        Answer::Matrix(series) => {
            let times = match (eval.range_vector, eval.when) {
                (Some(times), _) => times,
                (None, When::Range(start, end, step)) => (start, end, step),
                (None, When::Instant(t)) => (t, t, 1),
            };
            matrix(eval, series, times)
        }
    }
}

fn vector(eval: &Eval, elements: &[(LabelSet, Value)], ordered: bool) -> Result<(), String> {
    for (i, (labels, value)) in elements.iter().enumerate() {
        if elements[..i].iter().any(|(l, _)| l == labels) {
            return Err(format!("{labels:?} occurs twice"));
        }
        let Some(place) = eval.series.iter().position(|(l, _)| l == labels) else {
            return Err(format!("unexpected {labels:?} = {}", show(value)));
        };
        if ordered && place != i {
            return Err(format!("{labels:?} expected at {place}, is at {i}"));
        }
        let expected = eval.series[place].1.first().ok_or("an expectation without a value")?;
        if !same_value(expected, value) {
            return Err(format!("{labels:?}: expected {}, got {}", show_slot(expected), show(value)));
        }
    }
    missing(eval, elements.iter().map(|e| &e.0))
}

fn missing<'a>(eval: &Eval, got: impl Iterator<Item = &'a LabelSet> + Clone) -> Result<(), String> {
    let lost = eval.series.iter().find(|(l, _)| !got.clone().any(|g| g == l));
    lost.map_or(Ok(()), |(l, slots)| {
        Err(format!("missing {l:?} = {}", slots.iter().map(show_slot).collect::<Vec<_>>().join(" ")))
    })
}

fn matrix(
    eval: &Eval,
    series: &[(LabelSet, Vec<(i64, Value)>)],
    (start, end, step): (i64, i64, i64),
) -> Result<(), String> {
    let pairs = |l: &LabelSet| l.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect::<Vec<_>>();
    if series.windows(2).any(|w| pairs(&w[0].0) > pairs(&w[1].0)) {
        return Err("the matrix is not sorted by labels".into());
    }
    for (i, (labels, points)) in series.iter().enumerate() {
        if series[..i].iter().any(|(l, _)| l == labels) {
            return Err(format!("{labels:?} occurs twice"));
        }
        let Some((_, slots)) = eval.series.iter().find(|(l, _)| l == labels) else {
            let shown: Vec<String> = points.iter().map(|(t, v)| format!("{}@{t}", show(v))).collect();
            return Err(format!("unexpected {labels:?} {}", shown.join(" ")));
        };
        let expected: Vec<(i64, &Slot)> = slots
            .iter()
            .enumerate()
            .map(|(i, s)| (start + i as i64 * step, s))
            .filter(|(_, s)| s.value.is_some())
            .collect();
        if expected.iter().any(|(t, _)| *t > end) {
            return Err("more points expected than the range has".into());
        }
        let same = expected.len() == points.len()
            && expected.iter().zip(points).all(|((t, s), (got_t, got))| t == got_t && same_value(s, got));
        if !same {
            let expected: Vec<String> = expected.iter().map(|(t, s)| format!("{}@{t}", show_slot(s))).collect();
            let got: Vec<String> = points.iter().map(|(t, v)| format!("{}@{t}", show(v))).collect();
            return Err(format!("{labels:?}: expected {}, got {}", expected.join(" "), got.join(" ")));
        }
    }
    missing(eval, series.iter().map(|s| &s.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert!(close(1.0, 1.000_000_5));
        assert!(!close(1.0, 1.00001));
        assert!(close(f64::NAN, f64::NAN));
        assert!(!close(0.0, 1e-300));
        assert!(close(f64::INFINITY, f64::INFINITY));
        assert!(!close(f64::INFINITY, f64::NEG_INFINITY));
    }
}
