//! Translates the filters of a statement that the scan of logs can apply.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use quiver_types::logs::{
    FieldPattern, LogFilter, MatchHints, MatcherForm, MatcherReaders, NumberRange, STREAM, STREAM_ID, ValueMatcher,
    words,
};
use quiver_types::tables::logs::SERVICE;

use super::columns::field_of;
use crate::tables::cells::CellKind;
use crate::tables::filter_lowering::{Condition, Lower, LoweredFilter, MANY, int_of, nanos_of, range_of, texts_of};

/// Translates filters over `logs`.
#[derive(Debug)]
pub(super) struct LogLower {
    pub(super) kinds: Vec<(String, CellKind)>,
}

/// The field is there.
#[derive(Debug)]
struct PresenceMatcher;

/// The value is one of these.
#[derive(Debug)]
struct OneOf(BTreeSet<String>);

/// The value begins with this text.
#[derive(Debug)]
struct Begins(String);

/// The value contains this text.
#[derive(Debug)]
struct Holds(String);

/// The value is a number in this range.
#[derive(Debug)]
struct NumberRangeMatcher(NumberRange);

impl ValueMatcher for PresenceMatcher {
    fn matches(&self, value: &str) -> bool {
        !value.is_empty()
    }

    fn hints(&self) -> MatchHints {
        MatchHints { present: true, ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        "*".to_owned()
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("present"))
    }
}

impl ValueMatcher for OneOf {
    fn matches(&self, value: &str) -> bool {
        self.0.contains(value)
    }

    fn hints(&self) -> MatchHints {
        let of = |text: &String| words(text).map(str::to_owned).collect::<Vec<String>>();
        MatchHints {
            words: self.0.iter().map(of).collect(),
            exact: Some(self.0.iter().cloned().collect()),
            ..MatchHints::default()
        }
    }

    fn describe(&self) -> String {
        let texts: Vec<String> = self.0.iter().map(|text| format!("{text:?}")).collect();
        if let [one] = texts.as_slice() { format!("={one}") } else { format!("in({})", texts.join(",")) }
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("one_of").texts(&self.0))
    }
}

impl ValueMatcher for Begins {
    fn matches(&self, value: &str) -> bool {
        value.starts_with(self.0.as_str())
    }

    fn hints(&self) -> MatchHints {
        MatchHints { substring: Some(self.0.clone()), ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        format!("={:?}*", self.0)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("begins").texts([&self.0]))
    }
}

impl ValueMatcher for Holds {
    fn matches(&self, value: &str) -> bool {
        value.contains(self.0.as_str())
    }

    fn hints(&self) -> MatchHints {
        MatchHints { substring: Some(self.0.clone()), ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        format!("*{:?}*", self.0)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("holds").texts([&self.0]))
    }
}

impl ValueMatcher for NumberRangeMatcher {
    fn matches(&self, value: &str) -> bool {
        value.parse::<f64>().is_ok_and(|n| self.0.min <= n && n <= self.0.max)
    }

    fn describe(&self) -> String {
        format!("range[{}, {}]", self.0.min, self.0.max)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("within").numbers([self.0.min.to_bits(), self.0.max.to_bits()]))
    }
}

/// The namespace of these matchers in serialized plans.
const OF: &str = "sql";

/// Readers of serialized matchers.
pub(crate) const MATCHERS: MatcherReaders = MatcherReaders { of: OF, value: read_value, row: |_| Ok(None) };

/// The beginning of a matcher's serialized form.
fn form(kind: &str) -> MatcherForm {
    MatcherForm::new(OF, kind)
}

fn read_value(form: &MatcherForm) -> quiver_types::Result<Option<Arc<dyn ValueMatcher>>> {
    Ok(Some(match (form.kind.as_str(), form.texts.as_slice(), form.numbers.as_slice()) {
        ("present", [], []) => Arc::new(PresenceMatcher),
        ("one_of", texts, []) => Arc::new(OneOf(texts.iter().cloned().collect())),
        ("begins", [text], []) => Arc::new(Begins(text.clone())),
        ("holds", [text], []) => Arc::new(Holds(text.clone())),
        ("within", [], [min, max]) => {
            Arc::new(NumberRangeMatcher(NumberRange { min: f64::from_bits(*min), max: f64::from_bits(*max) }))
        }
        _ => return Ok(None),
    }))
}

/// A test that a field is there.
pub(super) fn present() -> Arc<dyn ValueMatcher> {
    Arc::new(PresenceMatcher)
}

fn value(field: &str, matcher: impl ValueMatcher + 'static) -> LogFilter {
    LogFilter::Value { field: FieldPattern::Name(field.to_owned()), matcher: Arc::new(matcher) }
}

fn one_of(field: &str, texts: Vec<&str>) -> LogFilter {
    if texts.is_empty() {
        return LogFilter::None;
    }
    value(field, OneOf(texts.into_iter().map(str::to_owned).collect()))
}

type LoweredLogFilter = Option<LoweredFilter<LogFilter>>;

impl Lower for LogLower {
    type Filter = LogFilter;

    fn condition(&self, column: &str, condition: &Condition<'_>) -> LoweredLogFilter {
        match column {
            "time" => {
                let Condition::Compare(op, value) = condition else { return None };
                let (nanos, _) = nanos_of(value)?;
                let range = range_of(*op, nanos);
                Some(LoweredFilter::exact(range.map_or(LogFilter::None, |range| LogFilter::Time(vec![range]))))
            }
            "service_name" => text(SERVICE, condition),
            "stream" => text(STREAM, condition),
            "stream_id" => text(STREAM_ID, condition),
            "observed_time" | "severity_number" | "fields" => None,
            name => {
                let field = field_of(name)?;
                match self.kinds.iter().find(|(known, _)| known == name) {
                    Some((_, CellKind::Int | CellKind::Float)) => number(field, condition),
                    _ => text(field, condition),
                }
            }
        }
    }

    fn all_of(mut filters: Vec<LogFilter>) -> LogFilter {
        match filters.len() {
            0 => LogFilter::All,
            1 => filters.swap_remove(0),
            _ => LogFilter::And(filters),
        }
    }

    fn any_of(filters: [LogFilter; 2]) -> Option<LogFilter> {
        Some(LogFilter::Or(filters.into()))
    }
}

fn text(field: &str, condition: &Condition<'_>) -> LoweredLogFilter {
    let there = || value(field, PresenceMatcher);
    let not = |filter| LogFilter::Not(Box::new(filter));
    Some(LoweredFilter::exact(match condition {
        Condition::Compare(Operator::Eq, value) => one_of(field, texts_of(&[value])?),
        Condition::In(values) => one_of(field, texts_of(values)?),
        Condition::NotIn(values) => {
            let others = texts_of(values)?;
            if others.is_empty() {
                return Some(LoweredFilter::exact(there()));
            }
            LogFilter::And(vec![there(), not(one_of(field, others))])
        }
        Condition::Prefix(prefix) => value(field, Begins(prefix.clone())),
        Condition::Contains(part) => value(field, Holds(part.clone())),
        Condition::NotNull => there(),
        Condition::Null => not(there()),
        Condition::Compare(..) => return None,
    }))
}

/// Conditions on a numeric field. The store compares doubles, while the statement may compare integers.
fn number(field: &str, condition: &Condition<'_>) -> LoweredLogFilter {
    let number_of = |value: &ScalarValue| match value {
        ScalarValue::Float64(Some(n)) if n.is_finite() => Some(*n),
        other => int_of(other).map(|n| n as f64),
    };
    let within = |min, max| value(field, NumberRangeMatcher(NumberRange { min, max }));
    let there = || value(field, PresenceMatcher);
    Some(LoweredFilter::wider(match condition {
        Condition::Compare(op, value) => {
            let n = number_of(value)?;
            match op {
                Operator::Eq => within(n, n),
                Operator::Lt | Operator::LtEq => within(f64::NEG_INFINITY, n),
                Operator::Gt | Operator::GtEq => within(n, f64::INFINITY),
                _ => return None,
            }
        }
        Condition::In(values) => {
            let numbers = values.iter().map(|value| number_of(value)).collect::<Option<Vec<_>>>()?;
            if numbers.len() >= MANY {
                let min = numbers.iter().copied().fold(f64::INFINITY, f64::min);
                return Some(LoweredFilter::wider(within(min, numbers.into_iter().fold(f64::NEG_INFINITY, f64::max))));
            }
            LogFilter::Or(numbers.into_iter().map(|n| within(n, n)).collect())
        }
        Condition::NotIn(_) => there(),
        Condition::NotNull => return Some(LoweredFilter::exact(there())),
        Condition::Null => return Some(LoweredFilter::exact(LogFilter::Not(Box::new(there())))),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{Expr, cast, col, ident, lit};

    use super::*;
    use crate::tables::filter_lowering::lower;

    type Texts<'a> = &'a [&'a str];

    #[test]
    fn filters_of_logs() {
        let lower_it = |expr: &Expr| lower(&LogLower { kinds: vec![("bytes".to_owned(), CellKind::Int)] }, expr);
        let check = |expr: Expr, expected: &str, exact: bool| {
            let lowered = lower_it(&expr).expect("the store can say it");
            assert_eq!((lowered.filter.to_string().as_str(), lowered.exact), (expected, exact), "{expr}");
        };
        check(col("service_name").eq(lit("cart")), "__q_service:=\"cart\"", true);
        check(col("message").like(lit("%boom%")), "_msg:*\"boom\"*", true);
        check(col("level").not_eq(lit("info")), "(level:* !level:=\"info\")", true);
        check(col("level").is_null(), "!level:*", true);
        check(col("level").eq(lit("")), "!*", true);
        check(col("bytes").gt(lit(5i64)), "bytes:range[5, inf]", false);
        let squares = (0..20i64).map(|n| lit(n * n - 3)).collect();
        check(col("bytes").in_list(squares, false), "bytes:range[-3, 358]", false);
        check(cast(col("user"), arrow::datatypes::DataType::Utf8).eq(lit("x")), "user:=\"x\"", true);
        assert!(lower_it(&col("severity_number").gt(lit(9i64))).is_none());
        assert!(lower_it(&col("level").gt(lit("a"))).is_none());
        assert!(lower_it(&col("fields").is_null()).is_none());
    }

    #[test]
    fn each_matcher_comes_back() {
        let texts = || ["b", "", "a\"x"].map(str::to_owned).into_iter().collect();
        let all: [Arc<dyn ValueMatcher>; 5] = [
            Arc::new(PresenceMatcher),
            Arc::new(OneOf(texts())),
            Arc::new(Begins("a".to_owned())),
            Arc::new(Holds("x".to_owned())),
            Arc::new(NumberRangeMatcher(NumberRange { min: -0.0, max: f64::INFINITY })),
        ];
        for matcher in all {
            let form = matcher.written().expect("it has a form");
            let read = read_value(&form).expect("it is read").unwrap_or_else(|| panic!("{form:?}"));
            assert_eq!(format!("{read:?}"), format!("{matcher:?}"));
        }
        assert!(read_value(&form("begins")).expect("no error").is_none());
    }

    #[test]
    fn each_matcher_takes_its_values() {
        let one_of = |texts: &[&str]| OneOf(texts.iter().map(|text| (*text).to_owned()).collect());
        let within = |min, max| NumberRangeMatcher(NumberRange { min, max });
        let cases: [(Box<dyn ValueMatcher>, Texts<'_>, Texts<'_>); 8] = [
            (Box::new(PresenceMatcher), &["a", " ", "0"], &[""]),
            (Box::new(one_of(&["a", "b c"])), &["a", "b c"], &["", "A", "b", "a "]),
            (Box::new(one_of(&[])), &[], &["", "a"]),
            (Box::new(Begins("ä/".to_owned())), &["ä/", "ä/x"], &["", "ä", "a/", " ä/"]),
            (Box::new(Holds("a.c".to_owned())), &["a.c", "xa.cx"], &["", "abc", "a.", "A.C"]),
            (Box::new(within(-1.0, 5.0)), &["-1", "5", "5.0", "1e0", "-0", "0.5"], &["", "5.1", "x", "NaN", "1 ", "6"]),
            (Box::new(within(5.0, f64::INFINITY)), &["5", "1e300"], &["4.9", "-inf", "five"]),
            (Box::new(within(1.0, 0.0)), &[], &["0", "0.5", "1"]),
        ];
        for (matcher, yes, no) in cases {
            for value in yes {
                assert!(matcher.matches(value), "{} {value:?}", matcher.describe());
            }
            for value in no {
                assert!(!matcher.matches(value), "{} {value:?}", matcher.describe());
            }
        }
    }

    #[test]
    fn hints_hold_for_all_that_matches() {
        let hints = OneOf(["GET /a", "boom"].map(str::to_owned).into()).hints();
        assert_eq!(hints.words, [vec!["GET", "a"], vec!["boom"]], "texts in their order");
        assert_eq!(hints.exact, Some(vec!["GET /a".to_owned(), "boom".to_owned()]));
        assert!(PresenceMatcher.hints().present);
        assert_eq!(Begins("ab".to_owned()).hints().substring.as_deref(), Some("ab"));
        assert_eq!(Holds("ab".to_owned()).hints().substring.as_deref(), Some("ab"));
        assert_eq!(NumberRangeMatcher(NumberRange { min: 0.0, max: 1.0 }).hints(), MatchHints::default());
    }

    #[test]
    fn conditions_on_each_kind_of_column() {
        let kinds = vec![("bytes".to_owned(), CellKind::Int), ("load".to_owned(), CellKind::Float)];
        let table = LogLower { kinds };
        let at = |ns: i64| lit(ScalarValue::TimestampNanosecond(Some(ns), Some("UTC".into())));
        let check = |expr: Expr, expected: Option<(&str, bool)>| {
            let lowered = lower(&table, &expr).map(|lowered| (lowered.filter.to_string(), lowered.exact));
            assert_eq!(lowered.as_ref().map(|(text, exact)| (text.as_str(), *exact)), expected, "{expr}");
        };
        check(col("time").eq(at(5)), Some(("_time:[(5, 5)]", true)));
        check(col("time").lt(at(i64::MIN)), Some(("!*", true)));
        let both = "(_time:[(7, 9223372036854775807)] _time:[(-9223372036854775808, 8)])";
        check(col("time").gt_eq(at(7)).and(col("time").lt(at(9))), Some((both, true)));
        check(col("time").not_eq(at(5)), None);
        check(col("time").is_null(), None);
        check(col("time").eq(lit("yesterday")), None);
        check(col("observed_time").eq(at(5)), None);
        check(col("trace_id").eq(lit("ab")), Some(("trace_id:=\"ab\"", true)));
        check(col("stream").is_not_null(), Some(("_stream:*", true)));
        check(col("stream_id").eq(lit("x")), Some(("_stream_id:=\"x\"", true)));
        check(col("level").in_list(vec![lit("b"), lit(""), lit("a")], false), Some(("level:in(\"a\",\"b\")", true)));
        check(col("level").in_list(vec![lit("")], true), Some(("level:*", true)));
        check(col("level").in_list(vec![lit("")], false), Some(("!*", true)));
        check(col("level").like(lit("err%")), Some(("level:=\"err\"*", true)));
        check(col("level").eq(lit(5i64)), None);
        check(ident("a b.c").is_not_null(), Some(("a b.c:*", true)));
        check(col("bytes").eq(lit(5i64)), Some(("bytes:range[5, 5]", false)));
        check(col("bytes").lt(lit(5i64)), Some(("bytes:range[-inf, 5]", false)));
        let either = "(bytes:range[1, 1] or bytes:range[2, 2])";
        check(col("bytes").in_list(vec![lit(1i64), lit(2i64)], false), Some((either, false)));
        check(col("bytes").not_eq(lit(5i64)), Some(("bytes:*", false)));
        check(col("bytes").is_null(), Some(("!bytes:*", true)));
        check(col("bytes").is_not_null(), Some(("bytes:*", true)));
        check(col("bytes").eq(lit("5")), None);
        check(col("load").gt(lit(0.5)), Some(("load:range[0.5, inf]", false)));
        check(col("load").lt(lit(f64::INFINITY)), None);
        check(col("load").eq(lit(f64::NAN)), None);
        check(ident(crate::tables::convert::ROW_ID).eq(lit(5i64)), None);
        let any = "(level:=\"a\" or bytes:range[1, inf])";
        check(col("level").eq(lit("a")).or(col("bytes").gt(lit(1i64))), Some((any, false)));
        check(col("level").eq(lit("a")).or(col("fields").is_null()), None);
        assert_eq!(LogLower::all_of(Vec::new()).to_string(), "*", "no condition takes all");
    }
}
