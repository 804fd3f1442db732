//! Compares actual results with expected ones, and describes the differences.

use quiver_types::{Histogram, LabelSet, ResetHint, Span};

use super::series::{self, Value};
use super::{ExpectedSample, series::buckets};
use crate::rules::{Element, ElementValue, show_pairs};
use crate::text::{float_text, with_precision};

/// Most numbers of an expected histogram.
const NUMBERS_MAX: usize = 1 << 20;

/// A sample in a form that is compared and shown.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) labels: LabelSet,
    pub(super) value: f64,
    /// Text of a histogram; then the number is 0.
    pub(super) histogram: Option<String>,
}

impl Sample {
    pub(super) fn got(element: Element) -> Self {
        let (value, histogram) = match element.value {
            ElementValue::Float(value) => (value, None),
            ElementValue::Histogram(h, _) => (0.0, Some(histogram_text(&h))),
        };
        Self { labels: element.labels, value, histogram }
    }

    /// Reads an expected one.
    pub(super) fn expected(sample: &ExpectedSample) -> Result<Self, String> {
        let fail = |e: String| format!("labels {}: {e}", crate::text::quote(&sample.labels));
        let labels = match sample.labels.trim() {
            "" => LabelSet::default(),
            text => {
                let (labels, _, rest) = series::labels(text).map_err(fail)?;
                if !rest.is_empty() {
                    return Err(fail(format!("unexpected `{rest}`")));
                }
                labels
            }
        };
        if sample.histogram.is_empty() {
            return Ok(Self { labels, value: sample.value, histogram: None });
        }
        // One is wanted; that there are more is said of two.
        let mut room = series::Room { slots: 2, numbers: NUMBERS_MAX };
        let slots = series::items_within(&sample.histogram, &mut room).map_err(fail)?;
        match slots.as_slice() {
            [slot] => match &slot.value {
                Some(Value::Histogram(h)) => Ok(Self { labels, value: 0.0, histogram: Some(histogram_text(h)) }),
                Some(Value::Float(value)) => {
                    Err(fail(format!("expected histogram, got {}", with_precision(*value, 'f', None))))
                }
                None => Err(fail("expected histogram, got _".to_owned())),
            },
            slots => Err(fail(format!("expected 1 value, got {}", slots.len()))),
        }
    }

    pub(super) fn show(&self) -> String {
        let labels = show_pairs(self.labels.iter());
        match &self.histogram {
            Some(text) => format!("{labels} {text}"),
            None => format!("{labels} {}", scientific(self.value)),
        }
    }
}

/// Writes a number as Go's `'E'` does.
fn scientific(value: f64) -> String {
    if !value.is_finite() {
        return float_text(value);
    }
    let text = format!("{value:E}");
    let (mantissa, exponent) = text.split_once('E').unwrap_or((&text, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |d| ('-', d));
    format!("{mantissa}E{sign}{digits:0>2}")
}

/// Says whether two lists are equal.
pub(super) fn equal(expected: &[Sample], got: &[Sample], fuzzy: bool) -> bool {
    let near = |x: f64, y: f64| x == y || (fuzzy && (x.next_down() == y || x.next_up() == y));
    let same = |(a, b): (&Sample, &Sample)| {
        a.labels == b.labels && a.histogram == b.histogram && (a.histogram.is_some() || near(a.value, b.value))
    };
    expected.len() == got.len() && expected.iter().zip(got).all(same)
}

/// Writes samples, `nil` for none.
pub(super) fn show(samples: &[Sample]) -> String {
    if samples.is_empty() {
        return "nil".to_owned();
    }
    samples.iter().map(Sample::show).collect::<Vec<_>>().join(", ")
}

/// Writes samples, each in a line of its own.
pub(super) fn lines(samples: &[Sample]) -> String {
    if samples.is_empty() { show(samples) } else { samples.iter().map(Sample::show).collect::<Vec<_>>().join("\n") }
}

/// Most empty buckets that are written between two others: two far apart have four billion between them.
const GAP_MAX: i64 = 100;

/// Writes a histogram in the notation of series: the counts of a side in one run, or in several where too much is empty
/// between them.
pub(super) fn histogram_text(h: &Histogram) -> String {
    let mut parts = Vec::new();
    if h.schema != 0 {
        parts.push(format!("schema:{}", h.schema));
    }
    let numbers = [("count", h.count), ("sum", h.sum), ("z_bucket", h.zero_count), ("z_bucket_w", h.zero_threshold)];
    parts.extend(numbers.iter().filter(|(_, v)| *v != 0.0).map(|(name, v)| format!("{name}:{}", float_text(*v))));
    if h.schema == quiver_types::histogram::CUSTOM_SCHEMA {
        parts.push(format!("custom_values:[{}]", list(h.custom_bounds.iter().copied())));
    }
    match h.reset_hint {
        ResetHint::Reset => parts.push("counter_reset_hint:reset".to_owned()),
        ResetHint::NotReset => parts.push("counter_reset_hint:not_reset".to_owned()),
        ResetHint::Gauge => parts.push("counter_reset_hint:gauge".to_owned()),
        ResetHint::Unknown => {}
    }
    for (prefix, spans, counts) in [("", &h.positive_spans, &h.positive), ("n_", &h.negative_spans, &h.negative)] {
        side(&mut parts, prefix, spans, counts);
    }
    format!("{{{{{}}}}}", parts.join(" "))
}

fn list(values: impl Iterator<Item = f64>) -> String {
    values.map(float_text).collect::<Vec<_>>().join(" ")
}

fn side(parts: &mut Vec<String>, prefix: &str, spans: &[Span], counts: &[f64]) {
    let mut runs: Vec<(i32, Vec<f64>)> = Vec::new();
    for (index, count) in buckets(spans, counts).into_iter().filter(|(_, count)| *count != 0.0) {
        let gap = runs.last().map(|(first, run)| i64::from(index) - i64::from(*first) - run.len() as i64);
        match (runs.last_mut(), gap) {
            (Some((_, run)), Some(gap @ 0..=GAP_MAX)) => {
                run.resize(run.len() + gap as usize, 0.0);
                run.push(count);
            }
            _ => runs.push((index, vec![count])),
        }
    }
    for (first, run) in runs {
        if first != 0 {
            parts.push(format!("{prefix}offset:{first}"));
        }
        parts.push(format!("{prefix}buckets:[{}]", list(run.into_iter())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_as_text() {
        let check = |text: &str, expected: &str| {
            let Some(Value::Histogram(h)) = series::items(text).expect(text).remove(0).value else { panic!("{text}") };
            assert_eq!(histogram_text(&h), expected);
        };
        check(
            "{{schema:1 sum:-0.3 count:32.1 z_bucket:7.1 z_bucket_w:0.05 buckets:[5.1 10 7] offset:-3 n_buckets:[4.1 5] n_offset:-5}}",
            "{{schema:1 count:32.1 sum:-0.3 z_bucket:7.1 z_bucket_w:0.05 offset:-3 buckets:[5.1 10 7] n_offset:-5 n_buckets:[4.1 5]}}",
        );
        check(
            "{{buckets:[0 2 0] counter_reset_hint:not_reset}}",
            "{{counter_reset_hint:not_reset offset:1 buckets:[2]}}",
        );
        check("{{buckets:[1 0 0 2] n_buckets:[0 0 1]}}", "{{buckets:[1 0 0 2] n_offset:2 n_buckets:[1]}}");
    }

    #[test]
    fn buckets_far_apart_are_runs() {
        let last = |text: &str| {
            let Some(Value::Histogram(h)) = series::items(text).expect(text).pop().and_then(|slot| slot.value) else {
                panic!("{text}")
            };
            histogram_text(&h)
        };
        let far = last("{{offset:-2147483648 buckets:[1]}}+{{offset:2147483646 buckets:[2 3]}}x1");
        assert_eq!(far, "{{offset:-2147483648 buckets:[1] offset:2147483646 buckets:[2 3]}}");
        let zeros = " 0".repeat(GAP_MAX as usize);
        assert_eq!(last(&format!("{{{{buckets:[1{zeros} 2]}}}}")), format!("{{{{buckets:[1{zeros} 2]}}}}"));
        assert_eq!(last(&format!("{{{{buckets:[1{zeros} 0 2]}}}}")), "{{buckets:[1] offset:102 buckets:[2]}}");
        // Each bucket is looked at once.
        let many = format!("{{{{buckets:[{}]}}}}", vec!["1"; 300_000].join(" "));
        assert_eq!(last(&many), many);
    }

    #[test]
    fn one_histogram_is_expected() {
        let expected = |histogram: &str| {
            let (labels, histogram) = ("h".to_owned(), histogram.to_owned());
            Sample::expected(&ExpectedSample { labels, value: 0.0, histogram })
        };
        assert!(expected("{{count:1}}").is_ok());
        assert!(expected("5").is_err_and(|e| e.ends_with("expected histogram, got 5.000000")));
        assert!(expected("_").is_err_and(|e| e.ends_with("expected histogram, got _")));
        assert!(expected("{{count:1}}x18446744073709551615").is_err_and(|e| e.contains("expected 1 value")));
    }

    #[test]
    fn numbers() {
        assert_eq!([1.0, 0.5, 12345.0, f64::NAN].map(scientific).join(" "), "1E+00 5E-01 1.2345E+04 NaN");
        let sample = |value| Sample { labels: LabelSet::default(), value, histogram: None };
        let next = sample(3.0_f64.next_up());
        assert!(equal(&[sample(3.0)], std::slice::from_ref(&next), true) && !equal(&[sample(3.0)], &[next], false));
        assert!(!equal(&[sample(f64::NAN)], &[sample(f64::NAN)], true));
    }
}
