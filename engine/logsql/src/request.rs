//! Parameters of requests: times, steps, further filters; and what a request makes of the query it brings.

use std::fmt;

use quiver_types::logs::TIME;
use quiver_types::{Error, Result};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::ast::{
    FieldPattern, Filter, GroupBy, Literal, Pipe, Query, StatsCall, StatsFunc, StreamFilter, StreamMatch, StreamOp,
    Test, TimeBucket, Values,
};
use crate::kernels::values::parse_unix;
use crate::literal::{parse_duration, parse_number, parse_span};
use crate::parser::{moment, parse_filter};
use crate::pipes::limit::Limit;
use crate::pipes::sort::Sort;
use crate::pipes::stats::Stats;

/// Reads a time: RFC 3339 or a shorter form (its first moment), Unix time by magnitude, or relative to now.
pub fn time_param(text: &str, now_ns: i64) -> Option<i64> {
    if let Some(span) = parse_span(text) {
        return Some(span.start);
    }
    parse_unix(text).or_else(|| moment(text).map(|(first, _)| first.at(now_ns)))
}

/// Reads a duration, or seconds: nanoseconds.
pub fn duration_param(text: &str) -> Option<i64> {
    parse_duration(text).or_else(|| parse_number(text).filter(|s| s.is_finite()).map(|seconds| (seconds * 1e9) as i64))
}

/// Reads `extra_filters`: a filter, or a JSON object of fields and the texts they must equal.
///
/// # Errors
/// Invalid.
pub fn extra_filter(text: &str) -> Result<Option<Filter>> {
    let Some(fields) = json_object(text)? else { return parse_filter(text) };
    let all = fields.into_iter().map(|(name, mut values)| {
        let test = if values.len() == 1 { Test::Exact(values.remove(0)) } else { Test::In(Values::List(values)) };
        Filter::Field { field: FieldPattern::Name(name), test }
    });
    Ok(joined(all.collect()))
}

/// Reads `extra_stream_filters`: a filter, or a JSON object of stream labels and the texts they must equal.
///
/// # Errors
/// Invalid.
pub fn extra_stream_filter(text: &str) -> Result<Option<Filter>> {
    let Some(labels) = json_object(text)? else { return parse_filter(text) };
    let group: Vec<StreamMatch> = labels
        .into_iter()
        .map(|(label, mut values)| {
            let op = if values.len() == 1 { StreamOp::Equal(values.remove(0)) } else { StreamOp::In(values) };
            StreamMatch { label, op }
        })
        .collect();
    Ok((!group.is_empty()).then(|| Filter::Stream(StreamFilter { groups: vec![group] })))
}

fn joined(mut all: Vec<Filter>) -> Option<Filter> {
    if all.len() > 1 { Some(Filter::And(all)) } else { all.pop() }
}

/// A text that is a JSON object: names with one text or several.
fn json_object(text: &str) -> Result<Option<Vec<(String, Vec<String>)>>> {
    let Ok(Members(members)) = serde_json::from_str(text) else { return Ok(None) };
    let bad = |name: &str| Error::invalid(format!("the value of `{name}` must be a text or a list of texts"));
    let one = |name: &str, value: Value| match value {
        Value::String(text) => Ok(text),
        _ => Err(bad(name)),
    };
    // A list of nothing asks for nothing.
    let some = members.into_iter().filter(|(_, value)| value.as_array().is_none_or(|items| !items.is_empty()));
    let all = some.map(|(name, value)| {
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

/// The newest rows where that makes sense, else any so many.
#[must_use]
pub fn with_limit(mut query: Query, limit: u64) -> Query {
    let keeps_rows = query.pipes.iter().all(|pipe| pipe.kind().keeps_rows());
    let newest = || Sort { limit: Some(limit), ..Sort::by_time(true) };
    query.pipes.push(if keeps_rows { newest().into() } else { Limit(limit).into() });
    query
}

/// The query without its pipes, but for filters right behind its filter.
#[must_use]
pub fn without_pipes(mut query: Query) -> Query {
    query.pipes.clear();
    query
}

/// The query as it is followed: its rows in the order of time.
///
/// # Errors
/// Invalid: a pipe orders, counts or limits rows.
pub fn followed(mut query: Query) -> Result<Query> {
    for pipe in &query.pipes {
        if !pipe.kind().follows() {
            return Err(Error::invalid(format!("a query with `{pipe}` cannot be followed")));
        }
    }
    // A join has an order of its own.
    let ordered_at = query.pipes.iter().rposition(|pipe| matches!(pipe, Pipe::Join(_))).map_or(0, |at| at + 1);
    query.pipes.insert(ordered_at, Sort::by_time(false).into());
    Ok(query)
}

/// Counts rows by time and fields.
#[must_use]
pub fn hits(query: Query, step: (i64, &str), offset: Option<(i64, &str)>, fields: &[String]) -> Query {
    let literal = |(ns, text): (i64, &str)| Literal::new(ns as f64, text);
    let time =
        GroupBy { field: TIME.to_owned(), bucket: Some(TimeBucket::Step(literal(step))), offset: offset.map(literal) };
    let more = fields.iter().map(|field| GroupBy { field: field.clone(), bucket: None, offset: None });
    let calls = vec![StatsCall {
        func: StatsFunc::Count(vec![FieldPattern::all()]),
        condition: None,
        name: "__q_hits".to_owned(),
    }];
    let mut query = without_pipes(query);
    query.pipes.push(Stats { by: std::iter::once(time).chain(more).collect(), calls }.into());
    query
}
