//! Operators of filters by their definitions (`olap-api.md` 4).

use std::cmp::Ordering;

use chrono_tz::Tz;
use serde_json::Value;

use super::time::{Range, end_instant, first_instant, point};
use super::value::Val;

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// How a value compares with a listed one; none: that is NULL.
fn compare(value: &Val, with: &Value, tz: Tz) -> Option<Ordering> {
    if with.is_null() {
        return None;
    }
    let with = text(with);
    Some(match value {
        Val::Text(value) => value.as_str().cmp(&with),
        Val::Bool(is) => is.cmp(&(with == "true")),
        Val::Time(at) => at.cmp(&first_instant(tz, point(&with, tz).0)),
        other => other.number().unwrap().total_cmp(&with.parse().unwrap()),
    })
}

/// A range that values stand for: a pair, or one day or phrase.
pub(crate) fn range(values: &[Value], tz: Tz) -> Range {
    let ends: Vec<Range> = values.iter().map(|v| point(v.as_str().unwrap(), tz)).collect();
    (ends[0].0, ends[ends.len() - 1].1)
}

/// Whether a value satisfies a condition; NULL does not, unless an operator says so.
pub(crate) fn holds(op: &str, values: &[Value], value: &Val, tz: Tz) -> bool {
    let lists_null = values.iter().any(Value::is_null);
    let equals = || values.iter().any(|with| compare(value, with, tz) == Some(Ordering::Equal));
    let occurs = |test: &dyn Fn(&str, &str) -> bool| match value {
        Val::Text(value) => values
            .iter()
            .filter(|with| !with.is_null())
            .any(|with| test(&value.to_lowercase(), &text(with).to_lowercase())),
        _ => false,
    };
    match op {
        "set" => return !value.is_null(),
        "notSet" => return value.is_null(),
        "equals" | "in" | "contains" | "startsWith" | "endsWith" if value.is_null() => return lists_null,
        "notEquals" | "notIn" | "notContains" | "notStartsWith" | "notEndsWith" if value.is_null() => {
            return !lists_null;
        }
        _ if value.is_null() => return false,
        _ => {}
    }
    let is = |orders: &[Ordering]| compare(value, &values[0], tz).is_some_and(|o| orders.contains(&o));
    let at = if let Val::Time(at) = value { *at } else { 0 };
    let (start, end) = if op.contains("Date") { range(values, tz) } else { (0, 0) };
    let (start, end) = (first_instant(tz, start), end_instant(tz, end));
    match op {
        "equals" | "in" => equals(),
        "notEquals" | "notIn" => !equals(),
        "contains" => occurs(&|value, with| value.contains(with)),
        "notContains" => !occurs(&|value, with| value.contains(with)),
        "startsWith" => occurs(&|value, with| value.starts_with(with)),
        "notStartsWith" => !occurs(&|value, with| value.starts_with(with)),
        "endsWith" => occurs(&|value, with| value.ends_with(with)),
        "notEndsWith" => !occurs(&|value, with| value.ends_with(with)),
        "gt" => is(&[Ordering::Greater]),
        "gte" => is(&[Ordering::Greater, Ordering::Equal]),
        "lt" => is(&[Ordering::Less]),
        "lte" => is(&[Ordering::Less, Ordering::Equal]),
        "inDateRange" | "onTheDate" => start <= at && at < end,
        "notInDateRange" => at < start || at >= end,
        "beforeDate" => at < start,
        "afterOrOnDate" => at >= start,
        "beforeOrOnDate" => at < end,
        "afterDate" => at >= end,
        other => panic!("no operator {other}"),
    }
}
