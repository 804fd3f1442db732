//! Serialized matchers, so that a filter can be sent to another engine. Each matcher writes the data that it was made
//! from and the name of the crate that reads it.
//!
//! Each crate registers the reader of its matchers once per process ([`read_matchers`]); the rest of a filter is plain
//! data.

use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use super::filter::{RowMatcher, ValueMatcher};
use crate::condition::value_matcher;
use crate::{Error, Result};

/// The serialized form of a matcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatcherForm {
    /// The crate that makes the matcher, by the name in its [`MatcherReaders`].
    pub of: String,
    /// Which matcher of that crate it is.
    pub kind: String,
    /// Texts that it compares with, or patterns.
    pub texts: Vec<String>,
    /// Numbers, as their bits.
    pub numbers: Vec<u64>,
}

impl MatcherForm {
    /// Begins a form, which has no texts and numbers yet.
    pub fn new(of: &str, kind: &str) -> Self {
        Self { of: of.to_owned(), kind: kind.to_owned(), texts: Vec::new(), numbers: Vec::new() }
    }

    /// Appends texts.
    #[must_use]
    pub fn texts<T: Into<String>>(mut self, texts: impl IntoIterator<Item = T>) -> Self {
        self.texts.extend(texts.into_iter().map(Into::into));
        self
    }

    /// Adds numbers, as their bits, behind those that are there.
    #[must_use]
    pub fn numbers(mut self, numbers: impl IntoIterator<Item = u64>) -> Self {
        self.numbers.extend(numbers);
        self
    }

    /// Makes the matcher of values.
    ///
    /// # Errors
    /// Internal: nobody knows the kind, or it is not made of this; those of making it.
    pub fn value_matcher(&self) -> Result<Arc<dyn ValueMatcher>> {
        (self.readers()?.value)(self)?.ok_or_else(|| self.unknown())
    }

    /// Makes the matcher of rows.
    ///
    /// # Errors
    /// As [`Self::value_matcher`].
    pub fn row_matcher(&self) -> Result<Arc<dyn RowMatcher>> {
        (self.readers()?.row)(self)?.ok_or_else(|| self.unknown())
    }

    fn readers(&self) -> Result<MatcherReaders> {
        if self.of == value_matcher::OF {
            return Ok(value_matcher::MATCHERS);
        }
        let all = READERS.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|readers| readers.of == self.of).copied().ok_or_else(|| self.unknown())
    }

    fn unknown(&self) -> Error {
        let Self { of, kind, texts, numbers } = self;
        let (texts, numbers) = (texts.len(), numbers.len());
        Error::internal(format!("no matcher `{of}.{kind}` is made of {texts} texts and {numbers} numbers"))
    }
}

/// Makes a matcher of values from its written form; `None`: the form is none of its crate's.
pub type ReadValueMatcher = fn(&MatcherForm) -> Result<Option<Arc<dyn ValueMatcher>>>;
/// Makes a matcher of rows from its written form; `None`: the form is none of its crate's.
pub type ReadRowMatcher = fn(&MatcherForm) -> Result<Option<Arc<dyn RowMatcher>>>;

/// How the matchers of one crate are read; `None`: it has none of that kind, or none that is made of this.
#[derive(Debug, Clone, Copy)]
pub struct MatcherReaders {
    /// The name of the crate in each [`MatcherForm`] of its matchers.
    pub of: &'static str,
    /// Reads those of values.
    pub value: ReadValueMatcher,
    /// Reads those of rows.
    pub row: ReadRowMatcher,
}

static READERS: RwLock<Vec<MatcherReaders>> = RwLock::new(Vec::new());

/// Says how the matchers of a crate are read, if that was not said yet.
pub fn read_matchers(readers: MatcherReaders) {
    let mut all = READERS.write().unwrap_or_else(PoisonError::into_inner);
    if !all.iter().any(|known| known.of == readers.of) {
        all.push(readers);
    }
}

/// The form of a matcher in a filter that is written.
fn form<E: serde::ser::Error>(form: Option<MatcherForm>, text: impl FnOnce() -> String) -> Result<MatcherForm, E> {
    form.ok_or_else(|| E::custom(format!("the matcher `{}` has no written form", text())))
}

/// For `#[serde(with = …)]` of a matcher of values.
pub(super) mod value {
    use std::sync::Arc;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::{MatcherForm, ValueMatcher};

    pub(in crate::logs) fn serialize<S: Serializer>(
        matcher: &Arc<dyn ValueMatcher>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        super::form::<S::Error>(matcher.written(), || matcher.describe())?.serialize(serializer)
    }

    pub(in crate::logs) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<dyn ValueMatcher>, D::Error> {
        MatcherForm::deserialize(deserializer)?.value_matcher().map_err(D::Error::custom)
    }
}

/// For `#[serde(with = …)]` of a matcher of rows.
pub(super) mod row {
    use std::sync::Arc;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::{MatcherForm, RowMatcher};

    pub(in crate::logs) fn serialize<S: Serializer>(
        matcher: &Arc<dyn RowMatcher>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        super::form::<S::Error>(matcher.written(), || matcher.describe())?.serialize(serializer)
    }

    pub(in crate::logs) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<dyn RowMatcher>, D::Error> {
        MatcherForm::deserialize(deserializer)?.row_matcher().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::{FieldPattern, LogColumn, LogFilter, LogForm, LogOrder, LogRequest, TimePredicate, ValueLimits};

    /// A text, and how often it must stand there.
    #[derive(Debug)]
    struct Often(String, u64);

    impl ValueMatcher for Often {
        fn matches(&self, value: &str) -> bool {
            value.matches(&self.0).count() as u64 >= self.1
        }

        fn describe(&self) -> String {
            format!("often({:?}, {})", self.0, self.1)
        }

        fn written(&self) -> Option<MatcherForm> {
            Some(MatcherForm::new("test", "often").texts([&self.0]).numbers([self.1]))
        }
    }

    /// One that is not written.
    #[derive(Debug)]
    struct Mute;

    impl ValueMatcher for Mute {
        fn matches(&self, _: &str) -> bool {
            true
        }

        fn describe(&self) -> String {
            "mute".to_owned()
        }
    }

    impl RowMatcher for Mute {
        fn matches(&self, _: &[&str]) -> bool {
            true
        }

        fn describe(&self) -> String {
            "mute".to_owned()
        }

        fn written(&self) -> Option<MatcherForm> {
            Some(MatcherForm::new("test", "mute"))
        }
    }

    fn read_those_of_tests() {
        read_matchers(MatcherReaders {
            of: "test",
            value: |form| match (form.kind.as_str(), form.texts.as_slice(), form.numbers.as_slice()) {
                ("often", [text], [count]) => Ok(Some(Arc::new(Often(text.clone(), *count)))),
                _ => Ok(None),
            },
            row: |form| if form.kind == "mute" { Ok(Some(Arc::new(Mute))) } else { Ok(None) },
        });
    }

    fn of(matcher: impl ValueMatcher + 'static) -> LogFilter {
        LogFilter::Value { field: FieldPattern::Prefix("a.".to_owned()), matcher: Arc::new(matcher) }
    }

    fn often(count: u64) -> LogFilter {
        of(Often("x\"y".to_owned(), count))
    }

    #[test]
    fn filters_come_back() {
        read_those_of_tests();
        let time = TimePredicate {
            text: "_time:day_range[08:00, 18:00]".to_owned(),
            period_ns: 86_400_000_000_000,
            phase_ns: 0,
            zone_ns: -7,
            part_ns: (1, 2),
        };
        let filter = LogFilter::And(vec![
            LogFilter::Or(vec![often(u64::MAX), LogFilter::Not(Box::new(often(1))), LogFilter::All, LogFilter::None]),
            LogFilter::Row { fields: vec!["a".to_owned(), String::new()], matcher: Arc::new(Mute) },
            LogFilter::Time(vec![(i64::MIN, -1), (5, i64::MAX)]),
            LogFilter::TimeOf(time),
            LogFilter::And(Vec::new()),
        ]);
        let columns = vec![LogColumn::text("_msg"), LogColumn::stored("level")];
        let form = LogForm::ValueCounts(ValueLimits { values: 7, bytes: u64::MAX });
        let request = LogRequest { filter, columns, rest: true, order: LogOrder::OldestFirst, form };
        let written = serde_json::to_value(&request).expect("written");
        let read: LogRequest = serde_json::from_value(written).expect("read");
        assert_eq!(format!("{read:?}"), format!("{request:?}"));
        let LogFilter::And(all) = &read.filter else { panic!("{read:?}") };
        let LogFilter::Or(any) = &all[0] else { panic!("{read:?}") };
        let LogFilter::Not(last) = &any[1] else { panic!("{read:?}") };
        let LogFilter::Value { matcher, .. } = &**last else { panic!("{read:?}") };
        assert!(matcher.matches("x\"y") && !matcher.matches("xy"));
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        read_those_of_tests();
        let error = serde_json::to_value(of(Mute)).expect_err("it has no form");
        assert!(error.to_string().contains("`mute` has no written form"), "{error}");
        let written = serde_json::to_value(often(1)).expect("written");
        for (name, other) in [
            ("of", serde_json::json!("nobody")),
            ("kind", serde_json::json!("seldom")),
            ("numbers", serde_json::json!([])),
        ] {
            let mut broken = written.clone();
            broken["Value"]["matcher"][name] = other;
            let error = serde_json::from_value::<LogFilter>(broken).expect_err(name);
            assert!(error.to_string().contains("no matcher"), "{error}");
        }
    }

    #[test]
    fn a_period_has_a_length() {
        let (text, part_ns) = (String::new(), (0, 1));
        let never = LogFilter::TimeOf(TimePredicate { text, period_ns: 0, phase_ns: 0, zone_ns: 0, part_ns });
        let written = serde_json::to_value(never).expect("written");
        assert!(serde_json::from_value::<LogFilter>(written).is_err());
    }
}
