//! The queries of endpoints that count rows: by time and fields, by names and values of fields, by labels of streams.

use quiver_types::Result;
use quiver_types::logs::{STREAM, TIME};

use crate::ast::{FieldPattern, Filter, GroupBy, Literal, Pipe, Query, StatsCall, StatsFunc, Test, TimeBucket};
use crate::kernels::values::push_json_string;
use crate::pipes::answer_order::AnswerOrder;
use crate::pipes::facets::Facets;
use crate::pipes::filter::FilterRows;
use crate::pipes::sort::Sort;
use crate::pipes::stats::Stats;
use crate::pipes::stream_labels::StreamLabels;
use crate::pipes::top_groups::Others;
use crate::pipes::unroll::Unroll;
use crate::query_text::parse;
use crate::request_params::without_pipes;

/// The column of counts in the queries that are made here.
pub const HITS: &str = "__q_hits";
/// The column that is `1` in the rows of [`hits`] that stand for all groups beyond the limit.
pub const IS_OTHER: &str = "__q_other";

/// Counts rows by time and fields: group by group in the order of time, groups in the order of their values. Of more groups
/// than so many the smallest are one, which comes last ([`IS_OTHER`]).
#[must_use]
pub fn hits(query: Query, step: (i64, &str), offset: Option<(i64, &str)>, fields: &[String], limit: u64) -> Query {
    let literal = |(ns, text): (i64, &str)| Literal::new(ns as f64, text);
    let key = |field: &str| GroupBy { field: field.to_owned(), bucket: None, offset: None };
    let time =
        GroupBy { field: TIME.to_owned(), bucket: Some(TimeBucket::Step(literal(step))), offset: offset.map(literal) };
    let count = StatsCall { func: StatsFunc::Count(vec![FieldPattern::all()]), condition: None, name: HITS.to_owned() };
    let by = std::iter::once(time).chain(fields.iter().map(|field| key(field))).collect();
    let mut query = without_pipes(query);
    query.pipes.push(Stats { by, calls: vec![count] }.into());
    if fields.is_empty() {
        query.pipes.push(Sort::by(vec![(TIME.to_owned(), false)]).into());
        return query;
    }
    query.pipes.push(AnswerOrder::Groups { fields: fields.to_vec() }.into());
    let to = IS_OTHER.to_owned();
    query.pipes.push(Others { by: fields.to_vec(), limit, count: HITS.to_owned(), to }.into());
    query
}

/// Counts rows by the names of the labels of their streams, or by the values of one of them; the columns get these names.
pub(crate) fn by_stream_labels(label: Option<&str>, to: &str, count: &str) -> Vec<Pipe> {
    let by = |field: &str| vec![GroupBy { field: field.to_owned(), bucket: None, offset: None }];
    let called = |func| vec![StatsCall { func, condition: None, name: count.to_owned() }];
    let is_there = Filter::Field { field: FieldPattern::Name(to.to_owned()), test: Test::Prefix(String::new()) };
    let sum = StatsFunc::Sum(vec![FieldPattern::Name(count.to_owned())]);
    vec![
        Stats { by: by(STREAM), calls: called(StatsFunc::Count(vec![FieldPattern::all()])) }.into(),
        StreamLabels { label: label.map(str::to_owned), to: to.to_owned() }.into(),
        Unroll { fields: vec![to.to_owned()], condition: None }.into(),
        FilterRows(is_there).into(),
        Stats { by: by(to), calls: called(sum) }.into(),
    ]
}

/// The column of the names of fields.
const NAME: &str = "__q_name";
/// The column of values as texts, of fields whose values are something else.
const VALUE: &str = "__q_value";
/// The column of labels, or of the values of one.
const LABEL: &str = "__q_label";

/// Rows counted by what they have in one column.
#[derive(Debug, Clone)]
pub struct CountedBy {
    pipes: Vec<Pipe>,
    column: String,
}

impl CountedBy {
    /// By the names of their fields: a row counts for each.
    ///
    /// # Errors
    /// Those of [`parse`].
    pub fn field_names() -> Result<Self> {
        let pipes = pipes_of(&format!("field_names as {NAME} | rename hits as {HITS}"))?;
        Ok(Self { pipes, column: NAME.to_owned() })
    }

    /// By the values of a field.
    ///
    /// # Errors
    /// Those of [`parse`]: the name is one of a group of fields.
    pub fn values(field: &str) -> Result<Self> {
        let pipes = pipes_of(&format!("stats by ({}) count() as {HITS}", quoted(field)))?;
        Ok(Self { pipes, column: field.to_owned() })
    }

    /// By the names of the labels of their streams, or by the values of one of them.
    pub fn stream_labels(label: Option<&str>) -> Self {
        Self { pipes: by_stream_labels(label, LABEL, HITS), column: LABEL.to_owned() }
    }

    /// Keeps those whose text contains another one.
    ///
    /// # Errors
    /// Those of [`parse`].
    pub fn containing(mut self, text: &str) -> Result<Self> {
        // Filters treat times and streams differently from fields, so they are converted to text first. In one text
        // with the conversion: a filter that comes first would be parsed as the query's own.
        let filter = format!("filter {VALUE}:~{}", quoted(&regex::escape(text)));
        self.pipes.extend(pipes_of(&format!("rename {} as {VALUE} | {filter}", quoted(&self.column)))?);
        VALUE.clone_into(&mut self.column);
        Ok(self)
    }

    /// The query that counts the rows of another one's filter, and its column; the counts are in [`HITS`], the greatest
    /// first. The limit is part of it, so that of many values only those in the answer are held.
    pub fn of(self, query: Query, limit: Option<u64>) -> (Query, String) {
        let Self { mut pipes, column } = self;
        pipes.push(AnswerOrder::Counted { value: column.clone(), count: HITS.to_owned(), limit }.into());
        (Query { pipes, ..query }, column)
    }
}

/// The most frequent values of each field of the rows of a query's filter. A bound of 0 is the usual one.
#[must_use]
pub fn facets(query: Query, asked: &Facets) -> Query {
    let usual = Facets::default();
    let or = |asked: u64, usual: u64| if asked == 0 { usual } else { asked };
    let facets = Facets {
        limit: or(asked.limit, usual.limit),
        max_values_per_field: or(asked.max_values_per_field, usual.max_values_per_field),
        max_value_len: or(asked.max_value_len, usual.max_value_len),
        keep_const_fields: asked.keep_const_fields,
    };
    Query { pipes: vec![facets.into()], ..query }
}

fn pipes_of(text: &str) -> Result<Vec<Pipe>> {
    Ok(parse(&format!("* | {text}"))?.pipes)
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    push_json_string(&mut out, text);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(counted: Result<CountedBy>, limit: Option<u64>, expected: &str, column: &str) {
        let query = parse("a:b | fields c").expect("a query");
        let (query, by) = counted.expect("it counts").of(query, limit);
        assert_eq!((query.to_string().as_str(), by.as_str()), (expected, column));
    }

    #[test]
    fn rows_are_counted_by_columns() {
        let by_names = "a:b | field_names as __q_name | rename hits as __q_hits | counted __q_name by __q_hits";
        check(CountedBy::field_names(), None, by_names, "__q_name");
        let by_values = "a:b | stats by (\"x y\") count(*) as __q_hits | counted \"x y\" by __q_hits limit 3";
        check(CountedBy::values("x y"), Some(3), by_values, "x y");
        let (query, column) = CountedBy::stream_labels(Some("app")).of(parse("*").expect("a query"), None);
        assert_eq!((query.pipes.len(), column.as_str()), (6, "__q_label"));
    }

    /// Breaks if a text is read as a pattern, or its filter as the query's own.
    #[test]
    fn values_that_contain_a_text_are_kept() {
        let counted = CountedBy::values("_time").and_then(|counted| counted.containing("a.b"));
        let (query, column) = counted.expect("it counts").of(parse("a:b").expect("a query"), None);
        let pipes: Vec<String> = query.pipes.iter().map(ToString::to_string).collect();
        assert_eq!((column.as_str(), pipes.len()), ("__q_value", 4));
        assert_eq!(pipes[1], "rename _time as __q_value");
        assert!(pipes[2].starts_with("filter __q_value:~") && pipes[2].contains(r"\.b"), "{}", pipes[2]);
    }

    #[test]
    fn bounds_of_facets_that_are_not_given_are_the_usual_ones() {
        let asked = Facets { limit: 0, max_values_per_field: 0, max_value_len: 3, keep_const_fields: true };
        let query = facets(parse("a:b | fields c").expect("a query"), &asked);
        let read = parse("a:b | facets 10 max_value_len 3 keep_const_fields").expect("a query");
        assert_eq!(query.to_string(), read.to_string());
    }
}
