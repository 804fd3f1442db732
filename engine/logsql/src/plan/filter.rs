//! Filters of the language → filters that a scan evaluates.

mod lists;

use std::sync::Arc;

use quiver_types::logs::{
    FieldPattern as ScanField, LogFilter, RowMatcher, StreamSelector, TimePredicate, ValueMatcher,
};
use quiver_types::{Error, MatchOp, Matcher, SeriesId};

use crate::ast::{
    Bound, CompareOp, FieldPattern, Filter, PatternPlace as Place, StreamFilter, StreamMatch, StreamOp, Test,
    TimeFilter, Values,
};
use crate::error::Result;
use crate::kernels::filters as k;
use crate::needs::Needs;
use quiver_types::logs::{STREAM, STREAM_ID, TIME};

const DAY_NS: i64 = 86_400_000_000_000;

/// What a filter is evaluated against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeScope {
    /// The moment that `now` means.
    pub(crate) now_ns: i64,
    /// Rows are this much older than what the filter says (`options(time_offset=d)`).
    pub(crate) offset_ns: i64,
}

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

/// Adds the fields that a filter looks at.
pub(crate) fn add_needs(filter: &Filter, needs: &mut Needs) {
    match filter {
        Filter::All => {}
        Filter::And(inner) | Filter::Or(inner) => inner.iter().for_each(|f| add_needs(f, needs)),
        Filter::Not(inner) => add_needs(inner, needs),
        Filter::Field { field, test } => {
            needs.add_pattern(field);
            if let Test::EqField(other) | Test::LeField(other) | Test::LtField(other) = test {
                needs.add(other);
            }
        }
        Filter::Stream(_) => needs.add(STREAM),
        Filter::StreamId(_) => needs.add(STREAM_ID),
        Filter::Time(_) => needs.add(TIME),
    }
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
                Bound::Included(value) => value,
                Bound::Excluded(value) => value.next_up(),
            };
            let max = match *max {
                Bound::Included(value) => value,
                Bound::Excluded(value) => value.next_down(),
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
