//! Parameters of requests (times, steps, extra filters), and how they are applied to the query.

use std::fmt;

use quiver_types::{Error, Result};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::ast::{FieldPattern, Filter, Pipe, Query, StreamFilter, StreamMatch, StreamOp, Test, TimeFilter, Values};
use crate::literal::{parse_duration_or_seconds, parse_span};
use crate::parser::Regexps;
use crate::parser::names::field_name;
use crate::parser::time::moment;
use crate::pipes::fields::Fields;
use crate::pipes::join::Join;
use crate::pipes::limit::Limit;
use crate::pipes::offset::Offset;
use crate::pipes::pipe::Output;
use crate::pipes::sort::Sort;
use crate::query_text::parse_filter_among;
use crate::stats_labels::stats_columns;

/// Reads a time: RFC 3339 or a shorter form (its first moment), Unix time by magnitude, or relative to now.
pub fn time_param(text: &str, now_ns: i64) -> Option<i64> {
    let named = parse_span(text).map(|span| span.start);
    named.or_else(|| moment(text).map(|(first, _)| first.at(now_ns)))
}

/// The last moment that belongs to a range which ends at this one: as in `_time:[a, b]`, where a whole second, or a
/// time with exactly three digits behind it, stands for all of that second or millisecond.
pub fn last_moment(ns: i64) -> i64 {
    const MS: i64 = 1_000_000;
    const SECOND: i64 = 1_000 * MS;
    let unit = match ns.rem_euclid(SECOND) {
        0 => SECOND,
        below if below % MS == 0 && below / MS % 10 != 0 => MS,
        _ => 1,
    };
    ns.saturating_add(unit - 1)
}

/// Reads a duration, or seconds as a decimal number: nanoseconds.
pub fn duration_param(text: &str) -> Option<i64> {
    parse_duration_or_seconds(text)
}

/// Reads `extra_filters`: a filter, or a JSON object of fields and the texts they must equal. Regular expressions count
/// together with those of the other texts of a request.
///
/// # Errors
/// Invalid.
pub fn extra_filter(text: &str, regexps: &mut Regexps) -> Result<Option<Filter>> {
    let Some(fields) = json_object(text)? else { return parse_filter_among(text, regexps) };
    let has_fields = !fields.is_empty();
    let all = asking(fields).map(|(name, mut values)| {
        let test = if values.len() == 1 { Test::Exact(values.remove(0)) } else { Test::In(Values::List(values)) };
        Filter::Field { field: FieldPattern::Name(field_name(name)), test }
    });
    let filter = joined(all.collect());
    // Fields without any value must not match everything.
    if has_fields && filter.is_none() {
        return Err(Error::invalid("the lists of an extra filter have no text"));
    }
    Ok(filter)
}

/// Reads `extra_stream_filters`: a filter, or a JSON object of stream labels and the texts they must equal. See
/// [`extra_filter`].
///
/// # Errors
/// Invalid.
pub fn extra_stream_filter(text: &str, regexps: &mut Regexps) -> Result<Option<Filter>> {
    let Some(labels) = json_object(text)? else { return parse_filter_among(text, regexps) };
    let group: Vec<StreamMatch> = asking(labels)
        .map(|(label, mut values)| {
            let op = if values.len() == 1 { StreamOp::Equal(values.remove(0)) } else { StreamOp::In(values) };
            StreamMatch { label, op }
        })
        .collect();
    Ok((!group.is_empty()).then(|| Filter::Stream(StreamFilter { groups: vec![group] })))
}

/// Leaves out names with an empty list: a list of nothing asks for nothing.
fn asking(fields: NamedTexts) -> impl Iterator<Item = (String, Vec<String>)> {
    fields.into_iter().filter(|(_, values)| !values.is_empty())
}

fn joined(mut all: Vec<Filter>) -> Option<Filter> {
    if all.len() > 1 { Some(Filter::And(all)) } else { all.pop() }
}

/// Names with one text, several or none.
type NamedTexts = Vec<(String, Vec<String>)>;

/// A text that is a JSON object.
fn json_object(text: &str) -> Result<Option<NamedTexts>> {
    let Ok(Members(members)) = serde_json::from_str(text) else { return Ok(None) };
    let bad = |name: &str| Error::invalid(format!("the value of `{name}` must be a text or a list of texts"));
    let one = |name: &str, value: Value| match value {
        Value::String(text) => Ok(text),
        _ => Err(bad(name)),
    };
    let all = members.into_iter().map(|(name, value)| {
        let values = match value {
            Value::Array(items) => items.into_iter().map(|item| one(&name, item)).collect::<Result<_>>()?,
            value => vec![one(&name, value)?],
        };
        Ok((name, values))
    });
    all.collect::<Result<_>>().map(Some)
}

/// The members of a JSON object in their order.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(InOrder)
    }
}

/// The order by time in which a request wants its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeOrder {
    /// `desc`: also where a request with a limit says nothing.
    #[default]
    NewestFirst,
    /// `asc`
    OldestFirst,
}

impl TimeOrder {
    /// Reads `asc` or `desc`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "asc" => Some(Self::OldestFirst),
            "desc" => Some(Self::NewestFirst),
            _ => None,
        }
    }

    fn sort(self) -> Sort {
        match self {
            Self::NewestFirst => Sort::newest_first(),
            Self::OldestFirst => Sort::oldest_first(),
        }
    }
}

/// Adds an offset and a limit: of the first rows by time if the pipes leave rows as they are, else of the rows as they
/// come.
#[must_use]
pub fn with_limit(mut query: Query, order: TimeOrder, offset: u64, limit: u64) -> Query {
    if keeps_rows(&query) {
        query.pipes.push(Sort { offset, limit: Some(limit), ..order.sort() }.into());
        return query;
    }
    if offset > 0 {
        query.pipes.push(Offset(offset).into());
    }
    query.pipes.push(Limit(limit).into());
    query
}

/// Adds an order by time, if the pipes leave rows as they are.
#[must_use]
pub fn in_order(mut query: Query, order: TimeOrder) -> Query {
    if keeps_rows(&query) {
        query.pipes.push(order.sort().into());
    }
    query
}

fn keeps_rows(query: &Query) -> bool {
    query.pipes.iter().all(|pipe| pipe.kind().keeps_rows())
}

/// The query without its pipes; filters right behind its filter are a part of that, and stay.
#[must_use]
pub fn without_pipes(mut query: Query) -> Query {
    query.pipes.clear();
    query
}

/// The first and the last moment that the query itself allows by ranges of `_time` which bind all its rows; `None`: it sets
/// none. Times of the day and days of the week set none, nor do ranges within `or` and `!`. With `options(time_offset=d)`
/// these are times as rows show them, by which a request asks for them.
pub fn own_range(query: &Query, now_ns: i64) -> (Option<i64>, Option<i64>) {
    let (mut first, mut last) = (i64::MIN, i64::MAX);
    let mut narrow = |filter: &Filter| {
        let Filter::Time(TimeFilter::Range { start, end, offset_ns, .. }) = filter else { return };
        // The ends of all time stay where they are.
        let at = |ns: i64| if matches!(ns, i64::MIN | i64::MAX) { ns } else { ns.saturating_sub(*offset_ns) };
        first = first.max(at(start.at(now_ns)));
        last = last.min(at(end.at(now_ns)));
    };
    for filter in query.options.global_filter.as_deref().into_iter().chain([&query.filter]) {
        match filter {
            Filter::And(all) => all.iter().for_each(&mut narrow),
            one => narrow(one),
        }
    }
    ((first != i64::MIN).then_some(first), (last != i64::MAX).then_some(last))
}

/// The fields of the rows of a query, in the order in which its pipes name them; `None` where the rows decide.
#[must_use]
pub fn fixed_fields(query: &Query) -> Option<Vec<String>> {
    let shaping = query.pipes.iter().rfind(|pipe| pipe.kind().output() != Output::Same)?;
    if let Some(Fields(fields)) = shaping.downcast_ref::<Fields>() {
        return fields.iter().map(|field| field.name().map(str::to_owned)).collect();
    }
    let columns = stats_columns(query).ok()?;
    Some([columns.labels, columns.values].concat())
}

/// The query as a live tail runs it: its rows in the order of time. Its range is what makes it a tail: one that ignored
/// it would show all rows again at each look.
///
/// # Errors
/// Invalid: a pipe orders, counts or limits rows.
pub fn followed(mut query: Query) -> Result<Query> {
    for pipe in &query.pipes {
        if !pipe.kind().follows() {
            return Err(Error::invalid(format!("a query with `{pipe}` cannot be followed")));
        }
    }
    query.options.ignore_global_time_filter = None;
    // A join has an order of its own.
    let ordered_at = query.pipes.iter().rposition(Pipe::is::<Join>).map_or(0, |at| at + 1);
    query.pipes.insert(ordered_at, Sort::oldest_first().into());
    Ok(query)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_text::parse;
    use crate::request_scope::QueryScope;

    #[test]
    fn a_tail_keeps_to_its_range() {
        let text = "options(ignore_global_time_filter=true) a b:in(c | fields d)";
        let scope = QueryScope { start_ns: Some(5), end_ns: Some(9), ..QueryScope::default() };
        let mut query = followed(parse(text).expect("a query")).expect("it can be followed");
        scope.bind(&mut query).expect("it is bound");
        let bound = query.to_string();
        assert!(bound.starts_with("_time:[5,9] a b:in("), "{bound}");
    }

    #[test]
    fn fields_that_pipes_name() {
        for (query, expected) in [
            ("*", None),
            ("* | fields b, a", Some("b a")),
            ("* | fields b, a | sort by (a) limit 3 | filter a:x", Some("b a")),
            ("* | fields a*", None),
            ("* | fields a | len(a) as n", None),
            ("* | stats by (z, a) count() n, sum(x) s", Some("z a n s")),
            ("* | stats by (z) count() n | rename n as m | limit 1", Some("z m")),
            ("* | stats by (z) count() n | fields n, z", Some("n z")),
            ("* | uniq by (a)", None),
        ] {
            let found = fixed_fields(&parse(query).expect(query)).map(|names| names.join(" "));
            assert_eq!(found.as_deref(), expected, "{query}");
        }
    }

    #[test]
    fn last_moments() {
        let check = |text: &str, last: i64| assert_eq!(time_param(text, 0).map(last_moment), Some(last), "{text}");
        check("2025-03-10T00:00:00Z", 1_741_564_800_999_999_999);
        check("1741564800", 1_741_564_800_999_999_999);
        check("2025-03-10", 1_741_564_800_999_999_999);
        check("1741564800123", 1_741_564_800_123_999_999);
        check("2025-03-10T00:00:00.5Z", 1_741_564_800_500_000_000);
        check("2025-03-10T00:00:00.120Z", 1_741_564_800_120_000_000);
        check("1741564800123456789", 1_741_564_800_123_456_789);
        assert_eq!(last_moment(-2_000_000_000), -1_000_000_001);
        assert_eq!((last_moment(i64::MAX), last_moment(9_223_372_036_000_000_000)), (i64::MAX, i64::MAX));
    }

    #[test]
    fn times_and_durations() {
        const NOW: i64 = 1_741_564_800_000_000_000;
        const MINUTE: i64 = 60_000_000_000;
        for (text, expected) in [
            ("now", Some(NOW)),
            ("now-5m", Some(NOW - 5 * MINUTE)),
            ("now+5m", Some(NOW + 5 * MINUTE)),
            ("5m", Some(NOW - 5 * MINUTE)),
            ("-5m", Some(NOW - 5 * MINUTE)),
            ("now-60", Some(NOW - MINUTE)),
            ("now-1.5", Some(NOW - MINUTE / 40)),
            ("-60", Some(NOW - MINUTE)),
            ("-6e1", Some(NOW - MINUTE)),
            ("now-1M", None),
            ("-1K", None),
            ("-inf", None),
            ("1970-01-01T00:01:00Z", Some(MINUTE)),
            ("1970-01-01T01:01:00+01:00", Some(MINUTE)),
            ("1741564800", Some(NOW)),
            ("tomorrow", None),
            ("", None),
        ] {
            assert_eq!(time_param(text, NOW), expected, "{text}");
        }
        for (text, expected) in [
            ("5m", Some(5 * MINUTE)),
            ("-1.5m", Some(-MINUTE * 3 / 2)),
            ("60", Some(MINUTE)),
            ("0.5", Some(500_000_000)),
            ("1e3", Some(1_000_000_000_000)),
            ("-2", Some(-2_000_000_000)),
            ("1h0m0s", Some(60 * MINUTE)),
            ("1M", None),
            ("1K", None),
            ("2KiB", None),
            ("0x10", None),
            ("1.2.3.4", None),
            ("2025-03-10T00:00:00Z", None),
            ("inf", None),
            ("nan", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(duration_param(text), expected, "{text}");
        }
    }

    #[test]
    fn pages_of_rows() {
        let page = |text: &str, offset, limit| {
            let query = parse(text).expect(text);
            with_limit(query, TimeOrder::NewestFirst, offset, limit).to_string()
        };
        assert_eq!(page("a", 0, 5), "a | sort by (_time desc) limit 5");
        assert_eq!(page("a | delete x", 7, 5), "a | delete x | sort by (_time desc) offset 7 limit 5");
        // Where rows have an order of their own they are counted as they come.
        assert_eq!(page("a | sort by (b)", 0, 5), "a | sort by (b) | limit 5");
        assert_eq!(page("a | sort by (b)", 7, 5), "a | sort by (b) | offset 7 | limit 5");
    }

    #[test]
    fn rows_in_the_order_of_a_request() {
        let read = TimeOrder::read;
        assert_eq!([read("asc"), read("DESC")], [Some(TimeOrder::OldestFirst), Some(TimeOrder::NewestFirst)]);
        assert_eq!([read(""), read("ascending")], [None, None]);
        let parsed = |text: &str| parse(text).expect(text);
        let oldest = TimeOrder::OldestFirst;
        assert_eq!(with_limit(parsed("a"), oldest, 7, 5).to_string(), "a | sort by (_time) offset 7 limit 5");
        assert_eq!(with_limit(parsed("a | sort by (b)"), oldest, 0, 5).to_string(), "a | sort by (b) | limit 5");
        assert_eq!(in_order(parsed("a"), oldest).to_string(), "a | sort by (_time)");
        assert_eq!(in_order(parsed("a"), TimeOrder::NewestFirst).to_string(), "a | sort by (_time desc)");
        assert_eq!(in_order(parsed("a | count() n"), oldest).to_string(), "a | stats count(*) as n");
    }

    #[test]
    fn filters_of_requests() {
        let text = |filter: Result<Option<Filter>>| filter.map(|filter| filter.map(|filter| filter.to_string()));
        for (given, expected) in [
            ("", None),
            ("{}", None),
            (r#"{"a":[],"b":"c"}"#, Some("b:=c")),
            (r#"{"":"x"}"#, Some("=x")),
            (r#"{"":["x","y"]}"#, Some("in(x,y)")),
            ("a:b or c", Some("a:b or c")),
            (r#"{"a":"b"}"#, Some("a:=b")),
            (r#"{"a":["b"]}"#, Some("a:=b")),
            (r#"{"b":["x","y z"],"a":"\"q"}"#, Some(r#"b:in(x,"y z") a:="\"q""#)),
        ] {
            assert_eq!(
                text(extra_filter(given, &mut Regexps::default())).expect(given).as_deref(),
                expected,
                "{given}"
            );
        }
        for open in [r#"{"a":[]}"#, r#"{"a":[],"b":[]}"#] {
            assert!(extra_filter(open, &mut Regexps::default()).is_err(), "{open}");
        }
        for (given, expected) in [
            ("{}", None),
            (r#"{"a":[]}"#, None),
            (r#"{"a":"b","c":["d","e"]}"#, Some(r#"{a="b",c in ("d","e")}"#)),
            (r#"{a="b"}"#, Some(r#"{a="b"}"#)),
        ] {
            assert_eq!(
                text(extra_stream_filter(given, &mut Regexps::default())).expect(given).as_deref(),
                expected,
                "{given}"
            );
        }
        for wrong in [r#"{"a":1}"#, r#"{"a":["b",null]}"#, r#"{"a":{"b":"c"}}"#, "a:(", r#"{"a""#] {
            let regexps = &mut Regexps::default();
            assert!(extra_filter(wrong, regexps).is_err() && extra_stream_filter(wrong, regexps).is_err(), "{wrong}");
        }
    }
}
