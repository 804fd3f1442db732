//! Writes that Prometheus refuses: a sample older than the newest of its series, or another value for the same timestamp.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use quiver_types::{Histogram, LabelSet, Matcher, Millis, ResetHint, is_stale};

use super::histogram_text;
use super::test_engine::Bench;
use crate::rules::{Element, ElementValue, Engine, Language, NewestSample, Reads, RuleSample};
use crate::text::float_text;

/// A bench that refuses samples that are not newer than the last one of their series, as Prometheus does.
pub(super) struct OrderedBench<'a> {
    bench: &'a dyn Bench,
    /// The newest sample of each series, by its labels.
    newest: RefCell<HashMap<Vec<u8>, (Millis, ElementValue)>>,
}

impl<'a> OrderedBench<'a> {
    pub(super) fn new(bench: &'a dyn Bench) -> Self {
        Self { bench, newest: RefCell::default() }
    }

    /// Writes samples of the test itself: of two at one time the later one counts.
    pub(super) fn feed(&self, samples: &[RuleSample]) -> Result<(), String> {
        let mut newest = self.newest.borrow_mut();
        for sample in samples {
            newest.insert(sample.labels.canonical().to_vec(), (sample.ts, sample.value.clone()));
        }
        self.bench.write(samples)
    }
}

impl Engine for OrderedBench<'_> {
    fn query(&self, rule: usize, language: Language, expr: &str, at: Millis) -> Result<Vec<Element>, String> {
        self.bench.query(rule, language, expr, at)
    }

    /// Writes what a rule made, but for what is refused; tells the last of that.
    fn write(&self, samples: &[RuleSample]) -> Result<(), String> {
        let mut newest = self.newest.borrow_mut();
        let (mut taken, mut refused) = (Vec::with_capacity(samples.len()), Ok(()));
        for sample in samples {
            let key = sample.labels.canonical();
            match newest.get(key).and_then(|(at, value)| refusal(*at, value, sample)) {
                None => {
                    newest.insert(key.to_vec(), (sample.ts, sample.value.clone()));
                    taken.push(sample.clone());
                }
                // Another rule goes on with a series that has ended in this one.
                Some(_) if matches!(sample.value, ElementValue::Float(value) if is_stale(value)) => {}
                Some(why) => refused = Err(why),
            }
        }
        if !taken.is_empty() {
            self.bench.write(&taken)?;
        }
        refused
    }

    fn newest(
        &self,
        rule: usize,
        matchers: &[Matcher],
        between: (Millis, Millis),
    ) -> Result<Vec<NewestSample>, String> {
        self.bench.newest(rule, matchers, between)
    }

    fn may_write(&self, rule: usize, labels: &LabelSet) -> bool {
        self.bench.may_write(rule, labels)
    }

    fn reads(&self, language: Language, expr: &str) -> Reads {
        self.bench.reads(language, expr)
    }

    fn elapsed(&self) -> Duration {
        self.bench.elapsed()
    }
}

/// Says why a sample does not come behind the newest one of its series, in Prometheus' words (`tsdb` `memSeries.appendable`,
/// `storage` `errDuplicateSampleForTimestamp`).
fn refusal(at: Millis, newest: &ElementValue, sample: &RuleSample) -> Option<String> {
    const TWICE: &str = "duplicate sample for timestamp";
    if sample.ts != at {
        return (sample.ts < at).then(|| "out of order sample".to_owned());
    }
    let (existing, value) = match (newest, &sample.value) {
        (ElementValue::Float(old), ElementValue::Float(new)) if old.to_bits() == new.to_bits() => return None,
        (ElementValue::Float(old), ElementValue::Float(new)) => (format!("existing {}", float_text(*old)), new),
        (ElementValue::Histogram(..), ElementValue::Float(new)) => ("existing is a histogram".to_owned(), new),
        (ElementValue::Histogram(old, _), ElementValue::Histogram(new, _)) if text_of(old) == text_of(new) => {
            return None;
        }
        (_, ElementValue::Histogram(..)) => return Some(TWICE.to_owned()),
    };
    // The time 0 stands for none.
    if at == 0 {
        return Some(TWICE.to_owned());
    }
    Some(format!("{TWICE} {at}; overrides not allowed: {existing}, new value {}", float_text(*value)))
}

/// What counts when histograms are compared: not how they came about.
fn text_of(histogram: &Histogram) -> String {
    histogram_text(&Histogram { reset_hint: ResetHint::Unknown, ..histogram.clone() })
}

#[cfg(test)]
mod tests {
    use quiver_types::stale_nan;

    use super::*;
    use crate::unit_tests::series::{Value, items};

    /// Keeps what is written.
    #[derive(Default)]
    struct Kept(RefCell<Vec<RuleSample>>);

    impl Engine for Kept {
        fn query(&self, _: usize, _: Language, _: &str, _: Millis) -> Result<Vec<Element>, String> {
            Ok(Vec::new())
        }

        fn write(&self, samples: &[RuleSample]) -> Result<(), String> {
            self.0.borrow_mut().extend_from_slice(samples);
            Ok(())
        }
    }

    impl Bench for Kept {}

    fn sample(ts: Millis, value: ElementValue) -> RuleSample {
        RuleSample { labels: LabelSet::from_pairs([("__name__", "a")]), ts, value }
    }

    fn histogram(text: &str) -> ElementValue {
        let Some(Value::Histogram(h)) = items(text).expect(text).remove(0).value else { panic!("{text}") };
        ElementValue::Histogram(h, String::new())
    }

    #[test]
    fn as_prometheus_takes_and_refuses() {
        use ElementValue::Float;
        let check = |first: RuleSample, second: RuleSample, expected: &str| {
            let kept = Kept::default();
            let bench = OrderedBench::new(&kept);
            bench.write(&[first]).expect("nothing is before it");
            assert_eq!(bench.write(std::slice::from_ref(&second)).err().unwrap_or_default(), expected, "{second:?}");
            assert_eq!(kept.0.borrow().len() == 2, expected.is_empty(), "{second:?}");
        };
        let number = |ts, value| sample(ts, Float(value));
        check(number(60_000, 1.0), number(120_000, 2.0), "");
        check(number(60_000, 1.0), number(60_000, 1.0), "");
        check(number(60_000, 1.0), number(59_999, 1.0), "out of order sample");
        let twice = "duplicate sample for timestamp";
        check(
            number(60_000, 1.0),
            number(60_000, 2e7),
            &format!("{twice} 60000; overrides not allowed: existing 1, new value 2e+07"),
        );
        check(number(0, 1.0), number(0, 2.0), twice);
        check(
            number(60_000, stale_nan()),
            number(60_000, 4.0),
            &format!("{twice} 60000; overrides not allowed: existing NaN, new value 4"),
        );
        let buckets = "{{count:1 buckets:[1]}}";
        check(
            sample(60_000, histogram(buckets)),
            number(60_000, 1.0),
            &format!("{twice} 60000; overrides not allowed: existing is a histogram, new value 1"),
        );
        check(number(60_000, 1.0), sample(60_000, histogram(buckets)), twice);
        check(sample(60_000, histogram(buckets)), sample(60_000, histogram("{{count:2 buckets:[1]}}")), twice);
        let other = "{{count:1 buckets:[1] counter_reset_hint:not_reset}}";
        check(sample(60_000, histogram(buckets)), sample(60_000, histogram(other)), "");
    }

    #[test]
    fn an_end_gives_way() {
        let kept = Kept::default();
        let bench = OrderedBench::new(&kept);
        bench.feed(&[sample(0, ElementValue::Float(1.0)), sample(0, ElementValue::Float(2.0))]).expect("it writes");
        // Another rule has ended the series: its mark would hide the sample.
        bench.write(&[sample(0, ElementValue::Float(stale_nan()))]).expect("it is left out");
        assert_eq!(kept.0.borrow().len(), 2);
        bench.write(&[sample(0, ElementValue::Float(2.0))]).expect("the same again");
        bench.write(&[sample(1, ElementValue::Float(stale_nan()))]).expect("it ends");
        assert_eq!(kept.0.borrow().len(), 4);
    }
}
