//! Filters of the language → filters that a scan evaluates.

mod lists;

use std::sync::Arc;

use quiver_types::logs::{
    FieldPattern as ScanField, LogFilter, RowMatcher, StreamSelector, TimePredicate, ValueMatcher,
};
use quiver_types::{Error, MatchOp, Matcher, SeriesId};

use crate::ast::{
    CompareOp, FieldPattern, Filter, PatternPlace as Place, RangeBound, StreamFilter, StreamMatch, StreamOp, Test,
    TimeFilter, Values,
};
use crate::error::Result;
use crate::kernels::filters as k;
use crate::reference_time::TimeScope;

const DAY_NS: i64 = 86_400_000_000_000;

/// Makes the filter of a scan. Subqueries were run before: their values stand in its place.
pub(crate) fn lower(filter: &Filter, scope: TimeScope) -> Result<LogFilter> {
    Ok(match filter {
        Filter::All => LogFilter::All,
        Filter::And(all) => {
            let all = lists::all_of(all);
            LogFilter::And(all.iter().map(|f| lower(f, scope)).collect::<Result<_>>()?)
        }
        Filter::Or(any) => {
            let any = lists::any_of(any);
            LogFilter::Or(any.iter().map(|f| lower(f, scope)).collect::<Result<_>>()?)
        }
        Filter::Not(inner) => LogFilter::Not(Box::new(lower(inner, scope)?)),
        Filter::Field { field, test } => of_field(field, test)?,
        Filter::Stream(stream) => of_stream(stream)?,
        Filter::StreamId(values) => LogFilter::StreamIds(list(values)?.iter().filter_map(|id| stream_id(id)).collect()),
        Filter::Time(time) => of_time(time, scope),
    })
}

fn list(values: &Values) -> Result<&[String]> {
    match values {
        Values::List(values) => Ok(values),
        Values::Subquery(query) => Err(Error::internal(format!("the subquery `{query}` was not run"))),
    }
}

/// Reads an identifier of 32 digits; others have no stream.
fn stream_id(text: &str) -> Option<SeriesId> {
    let is_plain = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| is_plain).map(SeriesId)
}

fn of_field(field: &FieldPattern, test: &Test) -> Result<LogFilter> {
    if let Some((op, other)) = compared(test) {
        let FieldPattern::Name(name) = field else {
            return Err(Error::invalid(format!("`{field}:{test}`: one field expected, not a group")));
        };
        let matcher: Arc<dyn RowMatcher> = Arc::new(k::FieldCompare::new(op, name.clone(), other.clone()));
        return Ok(LogFilter::Row { fields: vec![name.clone(), other.clone()], matcher });
    }
    let field = match field {
        FieldPattern::Name(name) => ScanField::Name(name.clone()),
        FieldPattern::Prefix(prefix) => ScanField::Prefix(prefix.clone()),
    };
    Ok(LogFilter::Value { field, matcher: matcher(test)? })
}

fn compared(test: &Test) -> Option<(k::FieldOp, &String)> {
    match test {
        Test::EqField(other) => Some((k::FieldOp::Eq, other)),
        Test::LeField(other) => Some((k::FieldOp::Le, other)),
        Test::LtField(other) => Some((k::FieldOp::Lt, other)),
        _ => None,
    }
}

/// Makes the matcher of one value.
fn matcher(test: &Test) -> Result<Arc<dyn ValueMatcher>> {
    let values = |values: &Values| list(values).map(<[String]>::to_vec);
    Ok(match test {
        Test::Phrase(text) => Arc::new(k::Phrase::new(text)),
        Test::Prefix(text) => Arc::new(k::Prefix::new(text)),
        Test::Substring(text) => Arc::new(k::Substring::new(text)),
        Test::AnyCasePhrase(text) => Arc::new(k::AnyCasePhrase::new(text)),
        Test::AnyCasePrefix(text) => Arc::new(k::AnyCasePrefix::new(text)),
        Test::Exact(text) => Arc::new(k::Exact::new(text)),
        Test::ExactPrefix(text) => Arc::new(k::ExactPrefix::new(text)),
        Test::In(all) => Arc::new(k::InList::new(values(all)?)),
        Test::ContainsAll(all) => Arc::new(k::ContainsAll::new(values(all)?)),
        Test::ContainsAny(all) => Arc::new(k::ContainsAny::new(values(all)?)),
        Test::EqualsCommonCase(all) => Arc::new(k::EqualsCommonCase::new(all.clone())),
        Test::ContainsCommonCase(all) => Arc::new(k::ContainsCommonCase::new(all.clone())),
        Test::Sequence(all) => Arc::new(k::Sequence::new(all.clone())),
        Test::Regexp(text) => Arc::new(k::Regexp::new(text).map_err(Error::invalid)?),
        Test::Range { min, max, .. } => {
            let min = match *min {
                RangeBound::Included(value) => value,
                RangeBound::Excluded(value) => value.next_up(),
            };
            let max = match *max {
                RangeBound::Included(value) => value,
                RangeBound::Excluded(value) => value.next_down(),
            };
            Arc::new(k::Range::new(min, max))
        }
        Test::TextCompare { op, value } => {
            let op = match op {
                CompareOp::Gt => k::TextOp::Gt,
                CompareOp::Ge => k::TextOp::Ge,
                CompareOp::Lt => k::TextOp::Lt,
                CompareOp::Le => k::TextOp::Le,
            };
            Arc::new(k::TextCompare::new(op, value))
        }
        Test::Ipv4Range { min, max } => Arc::new(k::Ipv4Range::new(*min, *max)),
        Test::Ipv6Range { min, max } => Arc::new(k::Ipv6Range::new(*min, *max)),
        Test::StringRange { min, max } => Arc::new(k::StringRange::new(min, max)),
        Test::LenRange { min, max } => Arc::new(k::LenRange::new(min.value, max.value)),
        Test::ValueType(name) => Arc::new(k::ValueType::new(name)),
        Test::PatternMatch { place, pattern } => {
            let place = match place {
                Place::Any => k::PatternPlace::Any,
                Place::Full => k::PatternPlace::Full,
                Place::Prefix => k::PatternPlace::Prefix,
                Place::Suffix => k::PatternPlace::Suffix,
            };
            Arc::new(k::PatternMatch::new(place, pattern))
        }
        Test::JsonArrayContainsAny(all) => Arc::new(k::JsonArrayContainsAny::new(all.clone())),
        Test::EqField(_) | Test::LeField(_) | Test::LtField(_) => {
            return Err(Error::internal("a comparison of fields is no test of one value"));
        }
    })
}

fn of_stream(stream: &StreamFilter) -> Result<LogFilter> {
    // No condition.
    if stream.groups.is_empty() {
        return Ok(LogFilter::All);
    }
    let group = |group: &Vec<StreamMatch>| group.iter().map(label_matcher).collect::<Result<Vec<_>>>();
    Ok(LogFilter::Stream(StreamSelector { groups: stream.groups.iter().map(group).collect::<Result<_>>()? }))
}

fn label_matcher(one: &StreamMatch) -> Result<Matcher> {
    let any = |values: &[String]| values.iter().map(|v| regex::escape(v)).collect::<Vec<_>>().join("|");
    // No value at all: an expression that nothing fits.
    let any = |values: &[String]| if values.is_empty() { "[^\\s\\S]".to_owned() } else { any(values) };
    match &one.op {
        StreamOp::Equal(value) => Matcher::new(&one.label, MatchOp::Equal, value),
        StreamOp::NotEqual(value) => Matcher::new(&one.label, MatchOp::NotEqual, value),
        StreamOp::Regexp(text) => Matcher::new(&one.label, MatchOp::Regex, text),
        StreamOp::NotRegexp(text) => Matcher::new(&one.label, MatchOp::NotRegex, text),
        StreamOp::In(values) => Matcher::new(&one.label, MatchOp::Regex, any(values)),
        StreamOp::NotIn(values) => Matcher::new(&one.label, MatchOp::NotRegex, any(values)),
    }
}

fn of_time(time: &TimeFilter, scope: TimeScope) -> LogFilter {
    let shift_ns = scope.offset_ns;
    match time {
        TimeFilter::Range { start, end, offset_ns, .. } => {
            let at = |ns: i64| {
                // The ends of all time stay where they are.
                if matches!(ns, i64::MIN | i64::MAX) {
                    ns
                } else {
                    ns.saturating_sub(*offset_ns).saturating_sub(shift_ns)
                }
            };
            let (start, end) = (at(start.at(scope.now_ns)), at(end.at(scope.now_ns)));
            if start > end { LogFilter::None } else { LogFilter::Time(vec![(start, end)]) }
        }
        TimeFilter::DayRange { start_ns, end_ns, offset_ns, .. } => LogFilter::TimeOf(TimePredicate {
            text: format!("_time:{time}"),
            period_ns: DAY_NS,
            phase_ns: 0,
            zone_ns: offset_ns.saturating_add(shift_ns),
            part_ns: (*start_ns, *end_ns),
        }),
        TimeFilter::WeekRange { first_day, last_day, offset_ns, .. } => LogFilter::TimeOf(TimePredicate {
            text: format!("_time:{time}"),
            period_ns: 7 * DAY_NS,
            // 1970 began on a Thursday.
            phase_ns: 4 * DAY_NS,
            zone_ns: offset_ns.saturating_add(shift_ns),
            part_ns: (i64::from(*first_day) * DAY_NS, (i64::from(*last_day) + 1) * DAY_NS - 1),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_text::{parse, parse_filter};

    const NOW: i64 = 1_000_000_000_000_000_000;
    const MINUTE: i64 = 60_000_000_000;
    const HOUR: i64 = 60 * MINUTE;

    fn lowered_at(text: &str, offset_ns: i64) -> LogFilter {
        let filter = parse_filter(text).unwrap_or_else(|fault| panic!("{text}: {fault}")).expect("a filter");
        lower(&filter, TimeScope { now_ns: NOW, offset_ns }).unwrap_or_else(|fault| panic!("{text}: {fault}"))
    }

    fn lowered(text: &str) -> LogFilter {
        lowered_at(text, 0)
    }

    #[test]
    fn ranges_of_time_are_fixed_moments() {
        let check = |text: &str, shift: i64, start: i64, end: i64| {
            assert_eq!(lowered_at(text, shift), LogFilter::Time(vec![(start, end)]), "{text}");
        };
        check("_time:5m", 0, NOW - 5 * MINUTE, NOW);
        check("_time:5m offset 1h", 0, NOW - 5 * MINUTE - HOUR, NOW - HOUR);
        check("_time:5m offset -1h", 0, NOW - 5 * MINUTE + HOUR, NOW + HOUR);
        check("_time:5m", 2 * HOUR, NOW - 5 * MINUTE - 2 * HOUR, NOW - 2 * HOUR);
        check("_time:5m offset 1h", 2 * HOUR, NOW - 5 * MINUTE - 3 * HOUR, NOW - 3 * HOUR);
        check("_time:offset 1h", 0, i64::MIN, NOW - HOUR);
        check("_time:1970-01-01T00", HOUR, -HOUR, -1);
        // The ends of all time stay where they are, and what would be beyond them is there.
        check("_time:>=1970", 3 * HOUR, -3 * HOUR, i64::MAX);
        check("_time:<1970 offset 1h", 0, i64::MIN, -1 - HOUR);
        check("_time:>=1678 offset 292y", 0, i64::MIN, i64::MAX);
        check("_time:<=2261 offset -292y", 0, i64::MIN, i64::MAX);
        // A range whose ends are swapped is empty.
        for text in ["_time:[1971, 1970]", "_time:[1970, 1970)", "_time:(now, now)", "_time:[now, now-5m]"] {
            assert_eq!(lowered(text), LogFilter::None, "{text}");
        }
    }

    #[test]
    fn hours_of_the_day_and_days_of_the_week() {
        let matches = |text: &str, shift: i64, ns: i64| match lowered_at(text, shift) {
            LogFilter::TimeOf(predicate) => predicate.matches(ns),
            other => panic!("{text}: {other}"),
        };
        let day = 24 * HOUR;
        for (text, shift, from, to) in [
            ("_time:day_range[08:00, 18:00)", 0, 8 * HOUR, 18 * HOUR),
            ("_time:day_range(08:00, 18:00]", 0, 8 * HOUR + 1, 18 * HOUR + 1),
            ("_time:day_range[08:00, 18:00) offset 2h", 0, 6 * HOUR, 16 * HOUR),
            ("_time:day_range[08:00, 18:00) offset -2h", 0, 10 * HOUR, 20 * HOUR),
            ("_time:day_range[08:00, 18:00) offset 2h", HOUR, 5 * HOUR, 15 * HOUR),
            ("_time:day_range[00:00, 24:00]", 0, 0, day),
        ] {
            for begin in [0, day, 20_000 * day, -day, -20_000 * day] {
                let found = [from, to - 1, to].map(|ns| matches(text, shift, begin + ns));
                assert_eq!(found, [true, true, to == day], "{text} in the day at {begin}");
                assert_eq!(matches(text, shift, begin + from - 1), from == 0 && to == day, "{text}");
            }
        }
        // 1970 began on a Thursday, which is day 4.
        for days in -15..15_i64 {
            let weekday = (days + 4).rem_euclid(7);
            for ns in [0, day - 1] {
                let at = days * day + ns;
                assert_eq!(matches("_time:week_range[Mon, Fri]", 0, at), (1..=5).contains(&weekday), "{days}");
                assert_eq!(matches("_time:week_range[Sun, Sun]", 0, at), weekday == 0, "{days}");
                assert_eq!(matches("_time:week_range(Mon, Fri)", 0, at), (2..=4).contains(&weekday), "{days}");
                // An hour east of UTC, days begin an hour before.
                assert_eq!(matches("_time:week_range[Sat, Sat] offset 1h", 0, at - HOUR), weekday == 6, "{days}");
                assert_eq!(matches("_time:week_range[Sat, Sat]", HOUR, at - HOUR), weekday == 6, "{days}");
            }
        }
    }

    /// Each test of a value by what it takes and what it does not.
    #[test]
    fn values_are_tested_as_they_are_asked_for() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("foo", &["foo", "a foo b", "foo-bar"], &["", "foobar", "Foo"]),
            ("\"\"", &[""], &["a", " "]),
            ("foo*", &["foo", "foobar", "a foox"], &["", "xfoo"]),
            ("*", &["a", " "], &[""]),
            ("*oo*", &["foobar"], &["", "o o"]),
            ("i(FOO)", &["a Foo"], &["foobar"]),
            ("i(FO*)", &["a Foobar"], &["xfoo"]),
            ("=foo", &["foo"], &["foo ", "Foo", ""]),
            ("=fo*", &["fo", "foobar"], &["a fo", ""]),
            ("in(x, 'y z')", &["x", "y z"], &["y", "x y z", ""]),
            ("in()", &[], &["", "x"]),
            ("contains_all(x, y)", &["y-x", "x a y"], &["x", "xy"]),
            ("contains_any(x, y)", &["a y", "x"], &["xy", ""]),
            ("equals_common_case(Foo)", &["foo", "FOO", "Foo"], &["fOO", "a foo"]),
            ("contains_common_case(Foo)", &["a FOO"], &["a fOO"]),
            ("seq(x, y)", &["x y", "a x b y"], &["y x", "x"]),
            ("~'^f.o$'", &["foo"], &["fooo", "Foo"]),
            ("range(1, 2]", &["1.5", "2", "1.000000000000001"], &["1", "2.1", "x", ""]),
            ("range[1, 2)", &["1", "1.9"], &["2", "0.9"]),
            ("range[1KB, 1h]", &["1000", "2KB", "30m"], &["999", "2h"]),
            ("range[2, 1]", &[], &["1", "1.5", "2"]),
            (">5", &["5.1", "6"], &["5", "4", "x"]),
            (">=5", &["5"], &["4.9"]),
            ("<-5", &["-6"], &["-5", "0"]),
            ("<=-5", &["-5"], &["-4.9"]),
            (">b", &["c", "bb"], &["b", "a"]),
            (">=b", &["b"], &["a"]),
            ("<b", &["a"], &["b", "bb"]),
            ("<=b", &["b"], &["bb"]),
            ("string_range(b, d)", &["b", "czz"], &["d", "a", ""]),
            ("len_range(2, 3)", &["ab", "жжж"], &["a", "abcd", ""]),
            ("len_range(2, inf)", &["abcd"], &["a"]),
            ("ipv4_range(10.0.0.0/8)", &["10.0.0.0", "10.255.255.255"], &["11.0.0.0", "9.255.255.255", "x"]),
            ("ipv6_range('2001:db8::/127')", &["2001:db8::1"], &["2001:db8::2", "x"]),
            ("pattern_match('x <N>')", &["a x 5 b"], &["x y"]),
            ("pattern_match_full('x <N>')", &["x 5"], &["a x 5", "x 5 b"]),
            ("pattern_match_prefix('x <N>')", &["x 5 b"], &["a x 5"]),
            ("pattern_match_suffix('x <N>')", &["a x 5"], &["x 5 b"]),
            ("json_array_contains_any(x, 1)", &["[\"x\"]", "[2,1]"], &["[\"xx\"]", "x", "[]"]),
        ];
        for (test, takes, refuses) in cases {
            let LogFilter::Value { field, matcher } = lowered(&format!("a:{test}")) else { panic!("{test}") };
            assert_eq!(field, ScanField::Name("a".to_owned()), "{test}");
            for value in *takes {
                assert!(matcher.matches(value), "{test} takes {value:?}");
            }
            for value in *refuses {
                assert!(!matcher.matches(value), "{test} refuses {value:?}");
            }
        }
        let LogFilter::Value { field, .. } = lowered("pre*:x") else { panic!("a group") };
        assert_eq!(field, ScanField::Prefix("pre".to_owned()));
        let LogFilter::Value { field, .. } = lowered("*:x") else { panic!("all fields") };
        assert_eq!(field, ScanField::Prefix(String::new()));
    }

    #[test]
    fn fields_are_compared_one_with_one() {
        for (text, equal, less, greater) in [
            ("a:eq_field(b)", true, false, false),
            ("a:le_field(b)", true, true, false),
            ("a:lt_field(b)", false, true, false),
        ] {
            let LogFilter::Row { fields, matcher } = lowered(text) else { panic!("{text}") };
            assert_eq!(fields, ["a", "b"], "{text}");
            let found = [["9", "9"], ["9", "10"], ["10", "9"]].map(|values| matcher.matches(&values));
            assert_eq!(found, [equal, less, greater], "{text}");
        }
        let filter = parse_filter("a*:eq_field(b)").expect("it is read").expect("a filter");
        let fault = lower(&filter, TimeScope { now_ns: NOW, offset_ns: 0 }).expect_err("a group");
        assert_eq!(fault.message, "`a*:eq_field(b)`: one field expected, not a group");
    }

    #[test]
    fn streams_are_chosen_by_their_labels() {
        let selects = |text: &str, labels: &[(&str, &'static str)]| match lowered(text) {
            LogFilter::Stream(selector) => {
                selector.selects(|name| labels.iter().find(|(own, _)| *own == name).map_or("", |(_, value)| *value))
            }
            other => panic!("{text}: {other}"),
        };
        let both = [("a", "x.y"), ("b", "1")];
        for (text, expected) in [
            ("{a=\"x.y\"}", true),
            ("{a=\"x.y\",b=\"2\"}", false),
            ("{a=\"x.y\",b=\"2\" or b=\"1\"}", true),
            ("{b!=\"1\"}", false),
            ("{c!=\"1\"}", true),
            ("{c=\"\"}", true),
            ("{a=\"\"}", false),
            ("{a=~\"x\"}", false),
            ("{a=~\"x.*\"}", true),
            ("{a!~\"x\"}", true),
            ("{a in (z, \"x.y\")}", true),
            ("{a not_in (z, \"x.y\")}", false),
            // Values of lists are no expressions.
            ("{a in (\"x|y\", \"x.*\")}", false),
            ("{b in (\"[0-9]\")}", false),
            ("{a in ()}", false),
            ("{c in ()}", false),
            ("{a not_in ()}", true),
            ("{a in (*)}", true),
            ("{a not_in (*)}", false),
        ] {
            assert_eq!(selects(text, &both), expected, "{text}");
        }
        // In a list of values a dot is literal.
        assert!(!selects("{a in (\"x.y\")}", &[("a", "xzy")]));
        assert_eq!(lowered("{} a:b"), LogFilter::And(vec![LogFilter::All, lowered("a:b")]));
        let (id, long) = ("0000000000000000e934a84adb052768", "0000000000000000e934a84adb05276890d7f7bfcadabe92");
        let known = SeriesId(0xe934_a84a_db05_2768);
        assert_eq!(lowered(&format!("_stream_id:{id}")), LogFilter::StreamIds(vec![known]));
        assert_eq!(lowered(&format!("_stream_id:{}", id.to_uppercase())), LogFilter::StreamIds(vec![known]));
        // Identifiers of another length are of no stream here.
        assert_eq!(lowered(&format!("_stream_id:in({long}, {id})")), LogFilter::StreamIds(vec![known]));
        assert_eq!(lowered("_stream_id:in()"), LogFilter::StreamIds(Vec::new()));
    }

    #[test]
    fn the_tree_of_conditions_stays() {
        let [a, b, c] = ["a:x", "b:y", "c:z"].map(lowered);
        let not = |one: &LogFilter| LogFilter::Not(Box::new(one.clone()));
        assert_eq!(lowered("a:x !(b:y or !c:z)"), {
            LogFilter::And(vec![a.clone(), not(&LogFilter::Or(vec![b.clone(), not(&c)]))])
        });
        assert_eq!(lowered("*"), LogFilter::All);
        assert_eq!(lowered("!*"), not(&LogFilter::All));
        // A subquery is run before there is a plan.
        for text in ["a:in(b | fields c)", "a:contains_all(b | fields c)", "_stream_id:in(b | fields c)"] {
            let query = parse(text).expect("a query");
            let fault = lower(&query.filter, TimeScope { now_ns: NOW, offset_ns: 0 }).expect_err(text);
            assert!(fault.message.contains("was not run"), "{text}: {fault}");
        }
    }
}
