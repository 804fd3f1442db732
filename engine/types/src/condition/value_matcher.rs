//! Uses a test as a matcher of log values, for scans that do not come from LogsQL text.

use std::sync::Arc;

use super::leaf::compiled;
use super::{Case, Glob, Operand, Test};
use crate::logs::{MatchHints, MatcherForm, MatcherReaders, ValueMatcher};
use crate::{Error, Result};

/// Name of the owner of this file's matchers.
pub(crate) const OF: &str = "condition";

/// How they are deserialized.
pub(crate) const MATCHERS: MatcherReaders = MatcherReaders { of: OF, value, row: |_| Ok(None) };

/// The test of a condition on a field. A missing field passes no test.
#[derive(Debug)]
pub struct ConditionMatcher(pub Test);

impl ValueMatcher for ConditionMatcher {
    fn matches(&self, value: &str) -> bool {
        !value.is_empty() && self.0.holds(value)
    }

    fn hints(&self) -> MatchHints {
        let exact = match &self.0 {
            // Numbers also match other spellings, so they cannot be searched as exact texts.
            Test::In(any, Case::Sensitive) if any.iter().all(|o| o.number.is_none()) => {
                Some(any.iter().map(|o| o.text.clone()).collect())
            }
            _ => None,
        };
        MatchHints { exact, present: matches!(self.0, Test::Exists(true)), ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        format!("segment:{:?}", self.0)
    }

    fn written(&self) -> Option<MatcherForm> {
        let form = |kind: &str| MatcherForm::new(OF, kind);
        let list = |kind: &str, all: &[Operand], case: Case| {
            let numbers = all.iter().flat_map(|one| bits(one.number));
            form(kind)
                .numbers([u64::from(case.is_ignored())])
                .numbers(numbers)
                .texts(all.iter().map(|one| one.text.as_str()))
        };
        let part =
            |kind: &str, part: &str, case: Case| form(kind).texts([part]).numbers([u64::from(case.is_ignored())]);
        Some(match &self.0 {
            Test::In(any, case) => list("in", any, *case),
            Test::NotIn(none, case) => list("not_in", none, *case),
            Test::Contains(text, case) => part("contains", text, *case),
            Test::Starts(text, case) => part("starts", text, *case),
            Test::Ends(text, case) => part("ends", text, *case),
            Test::Glob(glob) => part("glob", glob.text(), glob.case()),
            Test::Regex(regex) => form("regex").texts([regex.as_str()]),
            Test::Exists(there) => form("exists").numbers([u64::from(*there)]),
            Test::Within(low, high) => {
                let sides = [low, high].map(|side| match side {
                    None => ("", [0; 4]),
                    Some((operand, itself)) => {
                        let [is_number, bits] = bits(operand.number);
                        (operand.text.as_str(), [1, u64::from(*itself), is_number, bits])
                    }
                });
                form("within").texts(sides.map(|side| side.0)).numbers(sides.into_iter().flat_map(|side| side.1))
            }
        })
    }
}

/// Whether there is a number, and its bits.
fn bits(number: Option<f64>) -> [u64; 2] {
    number.map_or([0, 0], |n| [1, n.to_bits()])
}

fn case(ignored: u64) -> Case {
    Case::unless_ignored(ignored != 0)
}

fn operand(text: &str, is_number: u64, bits: u64) -> Operand {
    Operand { text: text.to_owned(), number: (is_number != 0).then(|| f64::from_bits(bits)) }
}

/// Builds operands from texts and the bits of their numbers, which must be equally many.
fn operands(texts: &[String], numbers: &[u64]) -> Option<Vec<Operand>> {
    let (numbers, rest) = numbers.as_chunks::<2>();
    let fits = rest.is_empty() && numbers.len() == texts.len();
    fits.then(|| texts.iter().zip(numbers).map(|(text, [is_number, bits])| operand(text, *is_number, *bits)).collect())
}

fn value(form: &MatcherForm) -> Result<Option<Arc<dyn ValueMatcher>>> {
    let test = match (form.kind.as_str(), form.texts.as_slice(), form.numbers.as_slice()) {
        ("in", texts, [ignored, numbers @ ..]) => operands(texts, numbers).map(|any| Test::In(any, case(*ignored))),
        ("not_in", texts, [ignored, numbers @ ..]) => {
            operands(texts, numbers).map(|none| Test::NotIn(none, case(*ignored)))
        }
        ("contains", [text], [ignored]) => Some(Test::Contains(text.clone(), case(*ignored))),
        ("starts", [text], [ignored]) => Some(Test::Starts(text.clone(), case(*ignored))),
        ("ends", [text], [ignored]) => Some(Test::Ends(text.clone(), case(*ignored))),
        ("glob", [text], [ignored]) => Some(Test::Glob(Glob::parse(text, case(*ignored)).map_err(Error::invalid)?)),
        ("regex", [text], []) => Some(Test::Regex(compiled(text).map_err(|e| Error::invalid(e.to_string()))?)),
        ("exists", [], [there]) => Some(Test::Exists(*there != 0)),
        (
            "within",
            [low, high],
            [low_is, low_itself, low_number, low_bits, high_is, high_itself, high_number, high_bits],
        ) => {
            let side = |text: &str, [is_there, itself, is_number, bits]: [u64; 4]| {
                (is_there != 0).then(|| (operand(text, is_number, bits), itself != 0))
            };
            let low = side(low, [*low_is, *low_itself, *low_number, *low_bits]);
            Some(Test::Within(low, side(high, [*high_is, *high_itself, *high_number, *high_bits])))
        }
        _ => None,
    };
    Ok(test.map(|test| Arc::new(ConditionMatcher(test)) as Arc<dyn ValueMatcher>))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_comes_back() {
        let operand = |text: &str, number| Operand { text: text.to_owned(), number };
        let list = || vec![operand("a", None), operand("0.1", Some(0.1)), operand("", None)];
        for test in [
            Test::In(list(), Case::Insensitive),
            Test::In(Vec::new(), Case::Sensitive),
            Test::NotIn(list(), Case::Sensitive),
            Test::Contains("Ä".to_owned(), Case::Insensitive),
            Test::Starts("a".to_owned(), Case::Sensitive),
            Test::Ends("a".to_owned(), Case::Insensitive),
            Test::Glob(Glob::parse("/cart/{id}/**", Case::Insensitive).expect("a pattern")),
            Test::Regex(compiled("(?i)^a|b").expect("a pattern")),
            Test::Exists(true),
            Test::Exists(false),
            Test::Within(None, Some((operand("5", Some(5.0)), true))),
            Test::Within(Some((operand("-1e300", Some(-1e300)), false)), Some((operand("x", None), false))),
            Test::Within(None, None),
        ] {
            let asked = ConditionMatcher(test);
            let form = asked.written().expect("it has a form");
            let read = form.value_matcher().expect("it is read");
            assert_eq!(read.describe(), asked.describe());
            assert_eq!(read.written(), Some(form));
            for text in ["", "a", "A", "xä", "/CART/1/2", "0.10", "4", "x"] {
                assert_eq!(read.matches(text), asked.matches(text), "{} of {text:?}", asked.describe());
            }
        }
    }

    #[test]
    fn what_no_test_is_made_of_is_told() {
        let form = |kind: &str| MatcherForm::new(OF, kind);
        for unknown in [
            form("in").texts(["a"]).numbers([0, 1]),
            form("in").texts(["a", "b"]).numbers([0, 0, 0]),
            form("glob").texts(["{"]).numbers([0]),
            form("regex").texts(["("]),
            form("is").texts(["a"]),
        ] {
            assert!(unknown.value_matcher().is_err(), "{unknown:?}");
        }
    }
}
