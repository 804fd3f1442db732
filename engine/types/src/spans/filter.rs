//! The filter that a scan of spans evaluates by itself. Filters are exact: nothing has to be filtered again above it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{TraceId, Value, any_item, hex};
use crate::matcher::WatchedRegex;
use crate::text::{is_exact, write_list};

/// Where an attribute stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// On the span itself.
    Span,
    /// On its resource; `service.name` too.
    Resource,
    /// On an event of the span.
    Event,
    /// On a link of the span.
    Link,
    /// On the instrumentation scope.
    Scope,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Span, Self::Resource, Self::Event, Self::Link, Self::Scope];

    /// Gives its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Span => "span",
            Self::Resource => "resource",
            Self::Event => "event",
            Self::Link => "link",
            Self::Scope => "scope",
        }
    }
}

/// A condition on a text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum TextTest {
    /// Equal to this.
    Is(String),
    /// Begins with this.
    Prefix(String),
    /// Has this somewhere within, case kept.
    Contains(String),
    /// Matches as a whole.
    Regex(#[serde(with = "super::encoding::regex")] Arc<WatchedRegex>),
    /// Equal to one of these, in order: a text is looked up among them, so many cost little more than a few.
    OneOf(Arc<Vec<String>>),
    /// In lower case it is this, which is so already.
    Lower(String),
}

impl TextTest {
    /// Reads `text*` as a prefix, anything else as it is.
    pub fn of_pattern(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Is(text.to_owned()),
        }
    }

    /// Makes the test that a text is equal to one of these.
    pub fn one_of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut texts: Vec<String> = texts.into_iter().map(str::to_owned).collect();
        texts.sort_unstable();
        texts.dedup();
        Self::OneOf(Arc::new(texts))
    }

    /// Says whether a text matches.
    pub fn matches(&self, text: &str) -> bool {
        match self {
            Self::OneOf(texts) => texts.binary_search_by(|known| known.as_str().cmp(text)).is_ok(),
            Self::Is(wanted) => text == wanted,
            Self::Prefix(prefix) => text.starts_with(prefix.as_str()),
            Self::Contains(part) => text.contains(part.as_str()),
            Self::Regex(regex) => regex.is_match(text),
            Self::Lower(wanted) if text.is_ascii() => text.eq_ignore_ascii_case(wanted),
            Self::Lower(wanted) => text.to_lowercase() == *wanted,
        }
    }
}

/// A condition on the value of an attribute.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum AttributeTest {
    /// There is such an attribute, whatever its value.
    Exists,
    /// Its text matches.
    Text(TextTest),
    /// Its text is this, or it is a number equal to it.
    Equals(String, Option<f64>),
    /// It is a number within these bounds, both included.
    Number(f64, f64),
    /// An item passes where the value is a list; what is none passes by itself.
    Item(#[serde(with = "crate::nesting")] Box<AttributeTest>),
    /// It equals one of these, as [`Self::Equals`] has it: a value is looked up among them, so many cost little more than
    /// a few.
    OneOf(Arc<ValueSet>),
    /// It passes one of these.
    Any(#[serde(with = "crate::nesting")] Vec<AttributeTest>),
}

/// Texts and numbers, each in order.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ValueSet {
    texts: Vec<String>,
    numbers: Vec<f64>,
}

impl ValueSet {
    fn new(mut texts: Vec<String>, mut numbers: Vec<f64>) -> Self {
        texts.sort_unstable();
        texts.dedup();
        // Minus zero equals zero.
        for number in &mut numbers {
            *number += 0.0;
        }
        numbers.sort_unstable_by(f64::total_cmp);
        numbers.dedup();
        Self { texts, numbers }
    }

    /// The texts; those of the numbers are among them.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// The numbers; their texts are among [`Self::texts`].
    pub fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    fn holds(&self, value: Value<'_>) -> bool {
        let has_number = |n: f64| self.numbers.binary_search_by(|own| own.total_cmp(&(n + 0.0))).is_ok();
        if let Some(n) = value.number().filter(|n| has_number(*n)) {
            let is_it = |text: &String| text.parse::<f64>().ok() == Some(n) && value.is_number(text, n);
            if is_exact(n) || self.texts.iter().any(is_it) {
                return true;
            }
        }
        // Where each text has its number, one that is none of these has another text: it is not written for each row.
        if matches!(value, Value::Int(_) | Value::Double(_)) && self.numbers.len() == self.texts.len() {
            return false;
        }
        let text = value.text();
        self.texts.binary_search_by(|own| own.as_str().cmp(&*text)).is_ok()
    }
}

impl AttributeTest {
    /// Makes the test that a value is equal, numbers as numbers.
    pub fn equals(text: &str) -> Self {
        let number = text.parse::<f64>().ok().filter(|n| n.is_finite());
        Self::Equals(text.to_owned(), number)
    }

    /// Makes the test that a value passes one of these, with all values that one may equal as one set.
    pub fn any_of(tests: impl IntoIterator<Item = Self>) -> Self {
        let (mut texts, mut numbers, mut any) = (Vec::new(), Vec::new(), Vec::new());
        for test in tests {
            match test {
                Self::Equals(text, number) => {
                    texts.push(text);
                    numbers.extend(number);
                }
                other => any.push(other),
            }
        }
        match texts.len() {
            0 => {}
            1 => any.extend(texts.pop().map(|text| Self::Equals(text, numbers.pop()))),
            _ => any.push(Self::OneOf(Arc::new(ValueSet::new(texts, numbers)))),
        }
        if any.len() == 1 { any.remove(0) } else { Self::Any(any) }
    }

    /// Gives the texts and the numbers that it asks for, if it asks for some values only.
    pub fn wanted(&self) -> Option<(Vec<&str>, Vec<f64>)> {
        match self {
            Self::Equals(text, number) => Some((vec![text.as_str()], number.iter().copied().collect())),
            Self::Item(test) => test.wanted(),
            Self::OneOf(set) => Some((set.texts.iter().map(String::as_str).collect(), set.numbers.clone())),
            Self::Any(any) => any.iter().map(Self::wanted).try_fold((Vec::new(), Vec::new()), |mut all, one| {
                let (texts, numbers) = one?;
                all.0.extend(texts);
                all.1.extend(numbers);
                Some(all)
            }),
            Self::Exists | Self::Text(_) | Self::Number(..) => None,
        }
    }

    /// Says whether a value matches, of a list one of its items.
    pub fn matches_item(&self, value: Value<'_>) -> bool {
        match value {
            Value::Json(list) => any_item(list, |item| self.matches(item)).unwrap_or_else(|| self.matches(value)),
            _ => self.matches(value),
        }
    }

    /// Says whether a value matches.
    pub fn matches(&self, value: Value<'_>) -> bool {
        match self {
            Self::Exists => true,
            Self::Item(test) => test.matches_item(value),
            Self::Text(test) => test.matches(&value.text()),
            Self::Equals(text, number) => match (value, number) {
                // Where the texts of two numbers are equal, the numbers are: nothing has to be written for it.
                (Value::Int(_) | Value::Double(_), Some(n)) => value.is_number(text, *n),
                _ => value.text() == text.as_str() || number.is_some_and(|n| value.is_number(text, n)),
            },
            Self::Number(min, max) => value.number().is_some_and(|n| *min <= n && n <= *max),
            Self::OneOf(set) => set.holds(value),
            Self::Any(any) => any.iter().any(|test| test.matches(value)),
        }
    }
}

/// A condition on single spans, which the store evaluates.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum SpanFilter {
    /// Every span passes.
    All,
    /// No span passes.
    None,
    /// Spans that pass all of these.
    And(#[serde(with = "crate::nesting")] Vec<SpanFilter>),
    /// Spans that pass any of these.
    Or(#[serde(with = "crate::nesting")] Vec<SpanFilter>),
    /// Spans that do not pass this one.
    Not(#[serde(with = "crate::nesting")] Box<SpanFilter>),
    /// Of one of these traces.
    Traces(Arc<Vec<TraceId>>),
    /// Takes every span, and says of a look-up of traces that reports that were sent again count once, as they do
    /// everywhere else.
    WithoutRepeats,
    /// Starts within these Unix nanoseconds, both included.
    Starts(i64, i64),
    /// Overlaps these Unix nanoseconds, both included.
    Overlaps(i64, i64),
    /// Lasts so many nanoseconds, both included.
    Duration(i64, i64),
    /// Of a service (as shown: `unknown_service` for none).
    Service(TextTest),
    /// Has a name that passes this.
    Name(TextTest),
    /// Has one of these kinds, by number ([`super::KIND_NAMES`]).
    Kinds(Vec<u8>),
    /// Has this status: 0 unset, 1 ok, 2 error.
    Status(u8),
    /// Has no parent.
    Root,
    /// Was received up to this Unix nanosecond.
    Received(i64),
    /// Has an attribute whose value passes a test.
    Attribute {
        /// Where the attribute stands; none: anywhere.
        place: Option<Place>,
        /// Key of the attribute.
        key: String,
        /// What its value must pass.
        test: AttributeTest,
    },
    /// Has a status message that passes this.
    Message(TextTest),
    /// Has an event of this name.
    EventName(TextTest),
    /// Has an instrumentation scope whose name passes this.
    ScopeName(TextTest),
    /// Has an instrumentation scope whose version passes this.
    ScopeVersion(TextTest),
}

impl SpanFilter {
    /// Gives a range that holds the starts of all spans that match.
    pub fn start_bounds(&self) -> (i64, i64) {
        const ALL: (i64, i64) = (i64::MIN, i64::MAX);
        match self {
            Self::None => (i64::MAX, i64::MIN),
            Self::Starts(min, max) => (*min, *max),
            Self::Overlaps(_, max) => (i64::MIN, *max),
            Self::And(all) => all.iter().map(Self::start_bounds).fold(ALL, |a, b| (a.0.max(b.0), a.1.min(b.1))),
            Self::Or(any) => any
                .iter()
                .map(Self::start_bounds)
                .filter(|(min, max)| min <= max)
                .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
                .unwrap_or((i64::MAX, i64::MIN)),
            _ => ALL,
        }
    }

    /// Gives the traces that all matching spans are of, if the filter names them.
    pub fn traces(&self) -> Option<&Arc<Vec<TraceId>>> {
        match self {
            Self::Traces(ids) => Some(ids),
            Self::And(all) => all.iter().find_map(Self::traces),
            _ => None,
        }
    }

    /// Says whether reports of a span that were sent again are left out: always but in look-ups of traces, which tell
    /// them apart by themselves unless they ask for [`Self::WithoutRepeats`].
    pub fn leaves_out_repeats(&self) -> bool {
        fn refuses_repeats(filter: &SpanFilter) -> bool {
            match filter {
                SpanFilter::WithoutRepeats => true,
                SpanFilter::And(all) => all.iter().any(refuses_repeats),
                _ => false,
            }
        }
        self.traces().is_none() || refuses_repeats(self)
    }

    /// Both together, flattened.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, one) | (one, Self::All) => one,
            (Self::And(mut all), Self::And(more)) => {
                all.extend(more);
                Self::And(all)
            }
            (Self::And(mut all), one) => {
                all.push(one);
                Self::And(all)
            }
            (a, b) => Self::And(vec![a, b]),
        }
    }
}

impl fmt::Display for TextTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(text) => write!(f, "= {text:?}"),
            Self::Prefix(text) => write!(f, "begins with {text:?}"),
            Self::Contains(text) => write!(f, "contains {text:?}"),
            Self::Regex(regex) => write!(f, "=~ {:?}", regex.as_str()),
            Self::OneOf(texts) => write!(f, "in {} texts", texts.len()),
            Self::Lower(text) => write!(f, "in lower case = {text:?}"),
        }
    }
}

impl fmt::Display for AttributeTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists => f.write_str("exists"),
            Self::Text(test) => write!(f, "{test}"),
            Self::Equals(text, _) => write!(f, "= {text:?}"),
            Self::Number(min, max) => write!(f, "in [{min}, {max}]"),
            Self::Item(test) => write!(f, "{test}"),
            Self::OneOf(set) => write!(f, "in {} values", set.texts.len()),
            Self::Any(any) => {
                for (i, test) in any.iter().enumerate() {
                    write!(f, "{}{test}", if i == 0 { "(" } else { " or " })?;
                }
                f.write_str(")")
            }
        }
    }
}

impl fmt::Display for SpanFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::WithoutRepeats => f.write_str("without repeats"),
            Self::None => f.write_str("none"),
            Self::And(all) => write_list(f, all, " and "),
            Self::Or(any) => write_list(f, any, " or "),
            Self::Not(one) => write!(f, "not {one}"),
            Self::Traces(ids) => match ids.as_slice() {
                [one] => write!(f, "trace = {}", hex(one)),
                many => write!(f, "trace in {} ids", many.len()),
            },
            Self::Starts(min, max) => write!(f, "start in [{min}, {max}]"),
            Self::Overlaps(min, max) => write!(f, "overlaps [{min}, {max}]"),
            Self::Duration(min, max) => write!(f, "duration in [{min}, {max}]"),
            Self::Service(test) => write!(f, "service {test}"),
            Self::Name(test) => write!(f, "name {test}"),
            Self::Kinds(kinds) => write!(f, "kind in {kinds:?}"),
            Self::Status(status) => write!(f, "status = {status}"),
            Self::Root => f.write_str("root"),
            Self::Received(max) => write!(f, "received <= {max}"),
            Self::Message(test) => write!(f, "status message {test}"),
            Self::EventName(test) => write!(f, "event name {test}"),
            Self::ScopeName(test) => write!(f, "scope name {test}"),
            Self::ScopeVersion(test) => write!(f, "scope version {test}"),
            Self::Attribute { place, key, test } => {
                write!(f, "{}.{key} {test}", place.map_or("any", Place::name))
            }
        }
    }
}

#[cfg(test)]
mod tests;
