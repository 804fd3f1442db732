//! Input samples that Prometheus refuses to store, which makes a unit test fail.

use quiver_types::histogram::CUSTOM_SCHEMA;
use quiver_types::{Histogram, LabelSet};

use super::series::{Slot, Value};
use crate::text::float_text;

/// Schemas of exponential buckets.
const EXPONENTIAL: std::ops::RangeInclusive<i32> = -4..=8;

/// Checks the samples of a series.
pub(super) fn samples(labels: &LabelSet, slots: &[Slot]) -> Result<(), String> {
    let mut values = slots.iter().filter_map(|slot| slot.value.as_ref()).peekable();
    if values.peek().is_some() && labels.canonical().is_empty() {
        return Err("empty labelset: invalid sample".to_owned());
    }
    values.try_for_each(|value| match value {
        Value::Histogram(histogram) => check(histogram),
        Value::Float(_) => Ok(()),
    })
}

fn check(h: &Histogram) -> Result<(), String> {
    if h.schema == CUSTOM_SCHEMA {
        custom(h)?;
    } else if EXPONENTIAL.contains(&h.schema) {
        counts("negative", &h.negative)?;
        if h.zero_count < 0.0 {
            return Err(format!("zero bucket has observation count of {}", float_text(h.zero_count)));
        }
        if !h.custom_bounds.is_empty() {
            return Err("histogram with exponential schema must not have custom bounds".to_owned());
        }
    } else {
        return Err(format!("histogram has an invalid schema, got schema {}", h.schema));
    }
    if h.count < 0.0 {
        return Err(format!("observation count is {}: histogram's observation count is negative", float_text(h.count)));
    }
    counts("positive", &h.positive)
}

fn counts(side: &str, counts: &[f64]) -> Result<(), String> {
    let Some(at) = counts.iter().position(|count| *count < 0.0) else { return Ok(()) };
    let count = float_text(counts[at]);
    let reason = "histogram has a bucket whose observation count is negative";
    Err(format!("{side} side: bucket number {} has observation count of {count}: {reason}", at + 1))
}

fn custom(h: &Histogram) -> Result<(), String> {
    let refused = |reason: &str| Err(format!("custom buckets: {reason}"));
    if h.custom_bounds.iter().any(|bound| bound.is_nan()) {
        return refused("histogram custom bounds must not be NaN");
    }
    if h.custom_bounds.windows(2).any(|pair| pair[1] <= pair[0]) {
        return refused("histogram custom bounds must be in strictly increasing order");
    }
    if h.custom_bounds.last() == Some(&f64::INFINITY) {
        return refused("histogram custom bounds must be finite");
    }
    if h.positive_spans.iter().any(|span| span.offset < 0) {
        return refused("histogram has a span whose offset is negative");
    }
    let covered: i64 = h.positive_spans.iter().map(|span| i64::from(span.offset) + i64::from(span.length)).sum();
    if covered > h.custom_bounds.len() as i64 + 1 {
        return refused("histogram custom bounds are too few");
    }
    if h.zero_count != 0.0 || h.zero_threshold != 0.0 {
        return refused("must have zero count and threshold of 0");
    }
    if !h.negative.is_empty() {
        return refused("must not have negative buckets");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit_tests::series::items;

    #[test]
    fn what_is_refused() {
        let set = LabelSet::from_pairs([("__name__", "h")]);
        let told = |text: &str| samples(&set, &items(text).expect(text)).err().unwrap_or_default();
        assert_eq!(told("1 _ {{schema:0 buckets:[1 0]}} {{schema:-53 custom_values:[5 10] buckets:[1 2 1]}}"), "");
        assert!(told("{{buckets:[1 -2]}}").contains("bucket number 2 has observation count of -2"));
        assert!(told("{{buckets:[1]}}-{{buckets:[1]}}x2").contains("is negative"));
        assert!(told("{{count:-1}}").contains("count is negative"));
        assert!(told("{{custom_values:[1 2]}}").contains("must not have custom bounds"));
        assert!(told("{{schema:-53 custom_values:[2 1] buckets:[1]}}").contains("increasing order"));
        assert!(told("{{schema:-53 custom_values:[1] buckets:[1 2 3]}}").contains("too few"));
        assert!(told("{{schema:9}}").contains("invalid schema"));
        assert!(samples(&LabelSet::default(), &items("_ 1").expect("valid")).is_err());
        assert!(samples(&LabelSet::default(), &items("_x3").expect("valid")).is_ok());
    }
}
