//! The filter that a log scan evaluates: a tree of conditions on fields, time and streams.
//!
//! The query language provides matchers. The scan uses their hints (words, numbers) for pruning, evaluates dictionaries
//! and constants once, and calls them for the rest. Filters are exact: nothing has to be filtered again above the scan.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Matcher;
use crate::logs::MatcherForm;
use crate::logs::stream::StreamId;
use crate::text::write_list;

/// Tells which values match. Values are never empty; a missing field is passed as the empty text.
pub trait ValueMatcher: Send + Sync + fmt::Debug {
    /// Says whether a value matches.
    fn matches(&self, value: &str) -> bool;

    /// What must hold for every matching value, for pruning. The default prunes nothing.
    fn hints(&self) -> MatchHints {
        MatchHints::default()
    }

    /// The filter in the query language, for `explain` and as part of cache keys: equal texts mean equal matchers.
    fn describe(&self) -> String;

    /// The serialized form, with which a plan can be sent to another engine; `None` if there is none.
    fn written(&self) -> Option<MatcherForm> {
        None
    }
}

/// What is known about all matching values, to skip parts and row groups without reading them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MatchHints {
    /// Each matching value contains all words of at least one of these lists, as whole words (maximal runs of letters,
    /// digits and `_`, case-sensitive). If there are no lists, or one is empty, nothing is known.
    pub words: Vec<Vec<String>>,
    /// Each matching value equals one of these.
    pub exact: Option<Vec<String>>,
    /// Each matching value is a number in this range.
    pub number: Option<NumberRange>,
    /// With `number`: among values that are the text of an integer, a plain decimal number, an IPv4 address or an RFC
    /// 3339 time, exactly those match whose value as a double lies in the range. (An exclusive bound is expressed by
    /// the next double.)
    pub number_decides: bool,
    /// Each matching value contains this text.
    pub substring: Option<String>,
    /// Each matching value starts with this text.
    pub starts: Option<String>,
    /// All values except the empty one match.
    pub present: bool,
}

/// A range of numbers, inclusive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NumberRange {
    /// Least number, included.
    pub min: f64,
    /// Greatest number, included.
    pub max: f64,
}

/// Tells which rows match, by the values of some fields (missing ones are empty).
pub trait RowMatcher: Send + Sync + fmt::Debug {
    /// Tells whether a row with these values, in the order of the requested fields, matches.
    fn matches(&self, values: &[&str]) -> bool;

    /// The filter as text, as [`ValueMatcher::describe`] gives it: equal texts, equal matchers.
    fn describe(&self) -> String;

    /// The serialized form, like [`ValueMatcher::written`]; `None` if there is none.
    fn written(&self) -> Option<MatcherForm> {
        None
    }
}

/// Which fields a matcher applies to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FieldPattern {
    /// One field by name.
    Name(String),
    /// All fields whose names start with this; the row matches if any of them does. Missing fields are not tested.
    Prefix(String),
}

/// PromQL-style matchers of stream labels: any group, with all matchers of the group. A missing label is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StreamSelector {
    /// Alternatives, each a list of matchers that must all match. If empty, every stream matches.
    pub groups: Vec<Vec<Matcher>>,
}

impl StreamSelector {
    /// Tells whether a stream matches; `label` returns a label's value, or the empty text if it is missing. Without
    /// groups, every stream matches.
    pub fn selects<'a>(&self, label: impl Fn(&str) -> &'a str) -> bool {
        self.groups.is_empty() || self.groups.iter().any(|group| group.iter().all(|m| m.matches(label(&m.name))))
    }
}

// Matchers are compared by their texts, as `describe` promises.
impl PartialEq for dyn ValueMatcher {
    fn eq(&self, other: &Self) -> bool {
        self.describe() == other.describe()
    }
}

impl Eq for dyn ValueMatcher {}

impl Hash for dyn ValueMatcher {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.describe().hash(state);
    }
}

impl PartialEq for dyn RowMatcher {
    fn eq(&self, other: &Self) -> bool {
        self.describe() == other.describe()
    }
}

impl Eq for dyn RowMatcher {}

impl Hash for dyn RowMatcher {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.describe().hash(state);
    }
}

/// A filter of rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogFilter {
    /// Every row passes.
    All,
    /// No row passes.
    None,
    /// Rows that pass all of these.
    And(#[serde(with = "crate::nesting")] Vec<LogFilter>),
    /// Rows that pass any of these.
    Or(#[serde(with = "crate::nesting")] Vec<LogFilter>),
    /// Rows that do not pass this one.
    Not(#[serde(with = "crate::nesting")] Box<LogFilter>),
    /// The value of a field matches. `_time`, `_stream` and `_stream_id` are tested in the form that users see.
    Value {
        /// The field, or all fields with a prefix.
        field: FieldPattern,
        /// Tells whether a value matches.
        #[serde(with = "crate::logs::encoding::value")]
        matcher: Arc<dyn ValueMatcher>,
    },
    /// The values of several fields match together.
    Row {
        /// Names of the fields whose values the matcher gets, in this order.
        fields: Vec<String>,
        /// Tells whether the values match together.
        #[serde(with = "crate::logs::encoding::row")]
        matcher: Arc<dyn RowMatcher>,
    },
    /// The time lies in one of these ranges of Unix nanoseconds; inclusive, ascending and disjoint.
    Time(Vec<(i64, i64)>),
    /// The time of the day, or the day of the week.
    TimeOf(TimePredicate),
    /// The stream's labels match.
    Stream(StreamSelector),
    /// The stream is one of these.
    StreamIds(Vec<StreamId>),
}

/// A part of a recurring period, such as some hours of each day.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TimePredicate {
    /// Its text in the query language.
    pub text: String,
    /// Length of the period in nanoseconds; positive.
    #[serde(deserialize_with = "above_0")]
    pub period_ns: i64,
    /// The position of 1970-01-01 within a period, in the zone's local time.
    pub phase_ns: i64,
    /// Offset of the zone from UTC in nanoseconds, positive to the east.
    pub zone_ns: i64,
    /// First and last nanosecond of the part, within the period.
    pub part_ns: (i64, i64),
}

/// Deserializes the length of a period, which must be positive because times are divided by it.
fn above_0<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let ns = i64::deserialize(deserializer)?;
    if ns > 0 { Ok(ns) } else { Err(D::Error::custom("a period must be above 0")) }
}

impl TimePredicate {
    /// Whether a time is in the part.
    pub fn matches(&self, ns: i64) -> bool {
        let within = ns.saturating_add(self.zone_ns).rem_euclid(self.period_ns) + self.phase_ns;
        let within = within.rem_euclid(self.period_ns);
        self.part_ns.0 <= within && within <= self.part_ns.1
    }
}

/// Names of fields, and prefixes of names.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct FieldNames {
    names: HashSet<String>,
    prefixes: HashSet<String>,
}

impl FieldNames {
    /// Says whether there are any.
    pub fn any(&self) -> bool {
        !self.names.is_empty() || !self.prefixes.is_empty()
    }

    /// Says whether a field is one of them.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(name) || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

impl LogFilter {
    /// The fields whose values it needs.
    pub fn fields(&self) -> FieldNames {
        let mut out = FieldNames::default();
        let mut open = vec![self];
        while let Some(filter) = open.pop() {
            match filter {
                Self::And(some) | Self::Or(some) => open.extend(some),
                Self::Not(one) => open.push(one),
                Self::Value { field: FieldPattern::Name(name), .. } => _ = out.names.insert(name.clone()),
                Self::Value { field: FieldPattern::Prefix(prefix), .. } => _ = out.prefixes.insert(prefix.clone()),
                Self::Row { fields, .. } => out.names.extend(fields.iter().cloned()),
                _ => {}
            }
        }
        out
    }

    /// A range that contains the times of all matching rows.
    pub fn time_bounds(&self) -> (i64, i64) {
        const ALL: (i64, i64) = (i64::MIN, i64::MAX);
        match self {
            Self::None => (i64::MAX, i64::MIN),
            Self::Time(ranges) => match (ranges.first(), ranges.last()) {
                (Some(first), Some(last)) => (first.0, last.1),
                _ => (i64::MAX, i64::MIN),
            },
            Self::And(all) => all.iter().map(Self::time_bounds).fold(ALL, |a, b| (a.0.max(b.0), a.1.min(b.1))),
            Self::Or(any) => any
                .iter()
                .map(Self::time_bounds)
                .filter(|(min, max)| min <= max)
                .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
                .unwrap_or((i64::MAX, i64::MIN)),
            _ => ALL,
        }
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::None => f.write_str("!*"),
            Self::And(all) => write_list(f, all, " "),
            Self::Or(any) => write_list(f, any, " or "),
            Self::Not(one) => write!(f, "!{one}"),
            Self::Value { field: FieldPattern::Name(name), matcher } => write!(f, "{name}:{}", matcher.describe()),
            Self::Value { field: FieldPattern::Prefix(name), matcher } => write!(f, "{name}*:{}", matcher.describe()),
            Self::Row { matcher, .. } => f.write_str(&matcher.describe()),
            Self::Time(ranges) => write!(f, "_time:{ranges:?}"),
            Self::TimeOf(predicate) => f.write_str(&predicate.text),
            Self::Stream(selector) => {
                f.write_str("{")?;
                for (i, group) in selector.groups.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { " or " })?;
                    for (j, m) in group.iter().enumerate() {
                        write!(f, "{}{}{}{:?}", if j == 0 { "" } else { "," }, m.name, m.op.as_str(), m.value)?;
                    }
                }
                f.write_str("}")
            }
            Self::StreamIds(ids) => write!(f, "_stream_id:in({} ids)", ids.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Any;

    impl ValueMatcher for Any {
        fn matches(&self, _value: &str) -> bool {
            true
        }

        fn describe(&self) -> String {
            "*".to_owned()
        }
    }

    #[test]
    fn fields() {
        let value = |field| LogFilter::Value { field, matcher: Arc::new(Any) };
        let name = |name: &str| FieldPattern::Name(name.to_owned());
        let not = LogFilter::Not(Box::new(value(FieldPattern::Prefix("http.".to_owned()))));
        let fields = LogFilter::And(vec![value(name("a")), LogFilter::Or(vec![LogFilter::All, not])]).fields();
        let known = ["a", "http.", "http.path", "b", ""].map(|name| fields.contains(name));
        assert_eq!(known, [true, true, true, false, false]);
    }

    #[test]
    fn filters_are_equal_by_what_they_say() {
        let one = || LogFilter::Value { field: FieldPattern::Name("a".to_owned()), matcher: Arc::new(Any) };
        assert_eq!(one(), one());
        assert_ne!(one(), LogFilter::Not(Box::new(one())));
        assert_ne!(LogFilter::Time(vec![(0, 1)]), LogFilter::Time(vec![(0, 2)]));
    }

    #[test]
    fn parts_of_days_and_weeks() {
        const HOUR: i64 = 3_600_000_000_000;
        let part = |days: i64, phase_ns, zone_ns, part_ns| TimePredicate {
            text: String::new(),
            period_ns: days * 24 * HOUR,
            phase_ns,
            zone_ns,
            part_ns,
        };
        let morning = part(1, 0, 2 * HOUR, (6 * HOUR, 9 * HOUR));
        // Two hours east of UTC it is 6 when it is 4 there.
        let found = [3, 4, 7, 8, 28, -20, -21].map(|hour| morning.matches(hour * HOUR));
        assert_eq!(found, [false, true, true, false, true, true, false]);
        // 1970 began on a Thursday, the fourth day after a Sunday.
        let sunday = part(7, 4 * 24 * HOUR, 0, (0, 24 * HOUR - 1));
        let found = [0, 2, 3, 4, 10, -4].map(|day| sunday.matches(day * 24 * HOUR));
        assert_eq!(found, [false, false, true, false, true, true]);
    }

    #[test]
    fn bounds_of_time() {
        let time = |min, max| LogFilter::Time(vec![(min, max)]);
        let both = LogFilter::And(vec![time(0, 10), LogFilter::Or(vec![time(5, 7), time(9, 20)]), LogFilter::All]);
        assert_eq!(both.time_bounds(), (5, 10));
        assert_eq!(LogFilter::Not(Box::new(time(1, 2))).time_bounds(), (i64::MIN, i64::MAX));
        let (min, max) = LogFilter::Or(vec![]).time_bounds();
        assert!(min > max);
    }

    #[test]
    fn selectors_of_streams() {
        let matcher = |name: &str, op, value: &str| Matcher::new(name, op, value).expect("a matcher");
        let app = |value: &str| matcher("app", crate::MatchOp::Equal, value);
        let selects = |groups: Vec<Vec<Matcher>>, app: &'static str, host: &'static str| {
            let label = |name: &str| match name {
                "app" => app,
                "host" => host,
                _ => "",
            };
            StreamSelector { groups }.selects(label)
        };
        let no_host = || matcher("host", crate::MatchOp::Equal, "");
        assert!(selects(vec![], "a", ""), "no group is no condition");
        assert!(selects(vec![vec![app("a")], vec![app("b")]], "b", ""));
        assert!(!selects(vec![vec![app("a"), no_host()]], "a", "h1"), "all of a group");
        assert!(selects(vec![vec![app("a"), no_host()]], "a", ""), "a missing label is empty");
        assert!(selects(vec![vec![matcher("zone", crate::MatchOp::NotRegex, ".+")]], "a", ""));
        let selector = StreamSelector { groups: vec![vec![app("a\""), no_host()], vec![app("b")]] };
        assert_eq!(LogFilter::Stream(selector).to_string(), r#"{app="a\"",host="" or app="b"}"#);
    }

    #[test]
    fn filters_as_texts() {
        let value = |field| LogFilter::Value { field, matcher: Arc::new(Any) };
        let all = vec![
            value(FieldPattern::Name("a".to_owned())),
            LogFilter::Or(vec![value(FieldPattern::Prefix("b.".to_owned())), LogFilter::None]),
            LogFilter::Not(Box::new(LogFilter::And(Vec::new()))),
            LogFilter::Time(vec![(1, 2), (5, 5)]),
            LogFilter::StreamIds(vec![StreamId::default(); 2]),
        ];
        let expected = "(a:* (b.*:* or !*) !() _time:[(1, 2), (5, 5)] _stream_id:in(2 ids))";
        assert_eq!(LogFilter::And(all).to_string(), expected);
    }

    #[test]
    fn parts_of_periods_at_the_ends_of_time() {
        let hour = TimePredicate { text: String::new(), period_ns: 24, phase_ns: -5, zone_ns: -7, part_ns: (0, 11) };
        for ns in [i64::MIN, i64::MIN + 1, i64::MAX, 0] {
            // The moment that is told is not beyond all times.
            let moment = i128::from(ns.saturating_add(-7)) - 5;
            assert_eq!(hour.matches(ns), moment.rem_euclid(24) <= 11, "{ns}");
        }
        let written = |period_ns: i64| {
            let part = serde_json::json!([0, 1]);
            serde_json::json!({"text": "", "period_ns": period_ns, "phase_ns": 0, "zone_ns": 0, "part_ns": part})
        };
        assert!(serde_json::from_value::<TimePredicate>(written(1)).is_ok());
        for period_ns in [0, -1, i64::MIN] {
            assert!(serde_json::from_value::<TimePredicate>(written(period_ns)).is_err(), "{period_ns}");
        }
    }

    #[test]
    fn bounds_of_several_ranges() {
        let ranges = LogFilter::Time(vec![(1, 2), (8, 9)]);
        assert_eq!(ranges.time_bounds(), (1, 9));
        for none in [LogFilter::None, LogFilter::Time(Vec::new()), LogFilter::Or(vec![LogFilter::None])] {
            let (min, max) = none.time_bounds();
            assert!(min > max, "{none}");
        }
        let or = LogFilter::Or(vec![LogFilter::None, ranges.clone()]);
        assert_eq!(or.time_bounds(), (1, 9), "what holds of nothing widens nothing");
        assert_eq!(LogFilter::Or(vec![LogFilter::All, ranges]).time_bounds(), (i64::MIN, i64::MAX));
    }
}
