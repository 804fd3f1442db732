//! The changes between Prometheus 2.42 and 3.14, as rules: how an expression is rewritten for 2.42 so that both must give
//! the same result, and which differences remain that no rewriting avoids.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use quiver_types::time::duration;
use serde_json::Value;

use super::grammar::Kind;
use super::same;
use crate::compared_answers::by_labels;

/// What was asked.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    /// The expression, in the spelling of 3.14.
    pub(crate) text: &'a str,
    /// Over a range.
    pub(crate) range: bool,
}

impl Asked<'_> {
    /// Says whether the answer has an order.
    pub(crate) fn ordered(&self) -> bool {
        !self.range && ["sort(", "sort_desc("].iter().any(|f| self.text.starts_with(f))
    }
}

/// A change that explains a difference.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Its name.
    pub(crate) name: &'static str,
    /// The change, and in which version it came.
    pub(crate) reason: &'static str,
    /// Whether it explains this difference: expression, answer of 2.42, our answer.
    applies: fn(&Asked<'_>, &Value, &Value) -> bool,
}

/// All of them.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        name: "atan2 drops the name",
        reason: "2.42 keeps the metric's name in the result of atan2; fixed in 2.47 (#12595)",
        applies: |asked, theirs, ours| {
            asked.text.contains("atan2") && same(&nameless(theirs), &nameless(ours), asked).is_ok()
        },
    },
    Rule {
        name: "filters check many-to-one",
        reason: "pairs that a comparison drops count as matches since 3.9 (#17668)",
        applies: |asked, theirs, ours| {
            let filters = ["==", "!=", "<", ">"].iter().any(|op| asked.text.contains(op));
            filters && succeeded(theirs) && error(ours).starts_with("multiple matches for labels")
        },
    },
    Rule {
        name: "stddev of what is not finite",
        reason: "a group with NaN or an infinity as its first element has no spread since 3.0 (#14941): NaN, not 0",
        applies: |asked, theirs, ours| {
            let spreads = ["stddev ", "stddev(", "stdvar ", "stdvar("].iter().any(|op| asked.text.contains(op));
            // A comparison or a rank over such a spread keeps other points; nothing else makes points come or go.
            let filters = FILTERS.iter().any(|op| asked.text.contains(op));
            spreads && succeeded(theirs) && succeeded(ours) && differ_by(theirs, ours, filters, |_, ours| ours.is_nan())
        },
    },
    Rule {
        name: "sums of minus zero",
        reason: "sums are compensated since 2.54 (#14074), averages since 2.55 (#14413): -0 plus a compensation of 0 is 0",
        applies: |asked, theirs, ours| {
            let sums = ["sum", "avg"].iter().any(|op| asked.text.contains(op));
            sums && same(&zeros(theirs), &zeros(ours), asked).is_ok()
        },
    },
    Rule {
        name: "overflow of compensated sums",
        reason: "a sum of squares that overflows is infinite since 2.55 (#14413); the compensation was NaN before",
        applies: |asked, theirs, ours| {
            let spreads = ["stddev_over_time(", "stdvar_over_time("].iter().any(|f| asked.text.contains(f));
            let infinite = |answer: &Value| answer["data"].to_string().contains("\"+Inf\"");
            spreads && infinite(ours) && theirs["data"].to_string().contains("\"NaN\"")
        },
    },
    Rule {
        name: "last digits of sums",
        reason: "sums and averages are compensated since 2.54 and 2.55 (#14074, #14413): what is left when nearly equal \
                 ones are subtracted, or where they are rounded, differs beyond the twelfth digit",
        applies: |asked, theirs, ours| {
            let sums = ["sum", "avg", "std", "deriv", "predict"].iter().any(|f| asked.text.contains(f));
            let rounds = ["floor", "ceil", "round"].iter().any(|f| asked.text.contains(f));
            sums && succeeded(theirs) && succeeded(ours) && near(asked, theirs, ours, if rounds { 1.0 } else { 1e-9 })
        },
    },
    Rule {
        name: "functions of time over @",
        reason: "2.42 lets the window of a selector with @ wander with the steps where a function looks at the time of the \
                 step, fixed in 2.50 (#13559); and timestamp() of such a selector leaves its offset out since then",
        applies: |asked, theirs, ours| {
            let timestamp = asked.text.contains("timestamp(");
            let steps = asked.range || asked.text.contains(':');
            let wanders = timestamp || (steps && asked.text.contains("predict_linear("));
            wanders && asked.text.contains('@') && succeeded(theirs) && succeeded(ours)
        },
    },
    Rule {
        name: "sums that are compared",
        reason: "since sums and averages are compensated (2.54, 2.55) a comparison of nearly equal ones can come out otherwise",
        applies: |asked, theirs, ours| {
            let sums = ["sum", "avg", "std"].iter().any(|f| asked.text.contains(f));
            let filters = ["==", "!=", "<", ">"].iter().any(|op| asked.text.contains(op));
            let both = succeeded(theirs) && succeeded(ours);
            sums && filters && both && only_one_has(theirs, ours) <= 2 && differ_by(theirs, ours, true, |_, _| false)
        },
    },
    Rule {
        name: "logarithms of subnormal numbers",
        reason: "the assembly behind Go's math.Log takes subnormal numbers for the least normal one",
        applies: |asked, theirs, ours| {
            let logarithms = ["ln(", "log10("].iter().any(|f| asked.text.contains(f));
            let least = |value: f64| (-307.96..-307.65).contains(&value) || (-709.2..-708.3).contains(&value);
            let numbers = |answer: &Value| -> Vec<f64> {
                let points = by_labels(&answer["data"]).into_values().flatten();
                points.filter_map(|point| point[1].as_str()?.parse().ok()).collect()
            };
            let (theirs, ours) = (numbers(theirs), numbers(ours));
            let fits = |(a, b): (&f64, &f64)| a == b || a.is_nan() || (a - b).abs() <= 1e-12 * a.abs() || least(*a);
            logarithms && theirs.len() == ours.len() && theirs.iter().zip(&ours).all(fits)
        },
    },
    Rule {
        name: "remainders",
        reason: "a remainder brings the last digit of its operands to the front, and functions such as atan2 round it \
                 otherwise in Go and here",
        applies: |asked, theirs, ours| {
            asked.text.contains('%') && succeeded(theirs) && succeeded(ours) && near(asked, theirs, ours, 1e-9)
        },
    },
    Rule {
        name: "order of zeros",
        reason: "0 and -0 are equal: which of them is the quantile, or the greatest, hangs on the order of sorting",
        applies: |asked, theirs, ours| {
            let picks = ["quantile", "min", "max"].iter().any(|op| asked.text.contains(op));
            picks && same(&zeros(theirs), &zeros(ours), asked).is_ok()
        },
    },
    Rule {
        name: "ties of topk",
        reason: "which of equal values stay is not defined; the values themselves are compared",
        applies: |asked, theirs, ours| {
            let picks = ["topk", "bottomk"].iter().any(|op| asked.text.starts_with(op));
            picks && succeeded(theirs) && succeeded(ours) && values_by_time(theirs) == values_by_time(ours)
        },
    },
];

/// What makes points come and go by their values.
const FILTERS: &[&str] = &["==", "!=", "<", ">", "topk", "bottomk"];

/// The points of an answer: series and time, value.
fn points(answer: &Value) -> BTreeMap<(String, String), f64> {
    let number = |point: &Value| point[1].as_str().and_then(|v| v.parse().ok()).unwrap_or(f64::NAN);
    let all = by_labels(&answer["data"]).into_iter().flat_map(|(labels, points)| {
        points.into_iter().map(move |point| ((labels.clone(), point[0].to_string()), number(&point)))
    });
    all.collect()
}

/// How many points only one of the answers has.
fn only_one_has(theirs: &Value, ours: &Value) -> usize {
    let (theirs, ours) = (points(theirs), points(ours));
    theirs.keys().filter(|at| !ours.contains_key(*at)).count()
        + ours.keys().filter(|at| !theirs.contains_key(*at)).count()
}

/// Whether values at the same places differ as `explained` (theirs, ours) says, or by their last digits only; points may
/// be missing on one side where `missing` allows it.
fn differ_by(theirs: &Value, ours: &Value, missing: bool, explained: impl Fn(f64, f64) -> bool) -> bool {
    let close = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-6 * a.abs().max(b.abs());
    let (a, b) = (points(theirs), points(ours));
    (missing || only_one_has(theirs, ours) == 0)
        && a.iter().all(|(at, x)| b.get(at).is_none_or(|y| close(*x, *y) || explained(*x, *y)))
}

fn succeeded(answer: &Value) -> bool {
    answer["status"] == "success"
}

fn error(answer: &Value) -> &str {
    answer["error"].as_str().unwrap_or_default()
}

/// The data of an answer without the names of metrics.
fn nameless(answer: &Value) -> Value {
    let mut data = answer["data"].clone();
    for series in data["result"].as_array_mut().into_iter().flatten() {
        if let Some(metric) = series["metric"].as_object_mut() {
            metric.remove("__name__");
        }
    }
    data
}

/// The data of an answer with one zero.
fn zeros(answer: &Value) -> Value {
    let text = answer["data"].to_string().replace("\"-0\"", "\"0\"");
    serde_json::from_str(&text).expect("it was JSON before")
}

/// Says whether the same points are there, with values that are not farther from each other than a part in a hundred
/// million (in a million for spreads, where large means cancel), or than `most`.
fn near(asked: &Asked<'_>, theirs: &Value, ours: &Value, most: f64) -> bool {
    let part = if asked.text.contains("std") { 1e-6 } else { 1e-8 };
    let (theirs, ours) = (by_labels(&theirs["data"]), by_labels(&ours["data"]));
    let number = |point: &Value| point[1].as_str().and_then(|v| v.parse::<f64>().ok()).unwrap_or(f64::NAN);
    let close = |(a, b): (&Value, &Value)| {
        let (x, y) = (number(a), number(b));
        a[0] == b[0] && (a[1] == b[1] || (x - y).abs() <= most.max(part * x.abs().max(y.abs())))
    };
    theirs.len() == ours.len()
        && theirs.iter().all(|(labels, points)| {
            ours.get(labels).is_some_and(|found| found.len() == points.len() && points.iter().zip(found).all(close))
        })
}

/// The values at each time, in order, whoever has them.
fn values_by_time(answer: &Value) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for point in by_labels(&answer["data"]).values().flatten() {
        found.entry(point[0].to_string()).or_default().push(point[1].to_string());
    }
    for values in found.values_mut() {
        values.sort_unstable();
    }
    found
}

/// Gives the name of the rule that explains a difference.
pub(crate) fn explain(asked: &Asked<'_>, theirs: &Value, ours: &Value) -> Option<&'static str> {
    RULES.iter().find(|rule| (rule.applies)(asked, theirs, ours)).map(|rule| rule.name)
}

/// Says an expression as 2.42 has to be asked.
///
/// - 3.0 renamed `holt_winters` to `double_exponential_smoothing`.
/// - 3.0 made windows of range selectors and subqueries open on the left. On the grid, where a sample stands on the edge,
///   a range that is a millisecond shorter holds the same samples under the old rule.
pub(crate) fn told_to_242(text: &str, kind: Kind) -> String {
    let text = text.replace("double_exponential_smoothing", "holt_winters");
    if kind == Kind::OffGrid {
        return text;
    }
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('[') {
        out += before;
        out.push('[');
        rest = after;
        // What is no duration stands in a regular expression.
        let end = after.find([']', ':']).unwrap_or(0);
        if let Some(range) = duration::parse(&after[..end]).ok().filter(|_| end > 0) {
            let _ = write!(out, "{}ms", range - 1);
            rest = &after[end..];
        }
    }
    out + rest
}
