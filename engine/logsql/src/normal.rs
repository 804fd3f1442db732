//! The normal form of a query: what means the same is written the same.
//!
//! `*` inside `and` and `or` goes, nested `and`, `or` and double `not` are flattened, stream selectors come first and are
//! joined, a leading `filter` pipe joins the filter, `limit` and `offset` join each other and the `sort` or `uniq` before
//! them, and subqueries take over the options of the query around them.

use quiver_types::logs::MSG;

use crate::ast::{FieldPattern, Filter, Options, Pipe, Query, StreamFilter, Test, Values};
use crate::pipes::filter::FilterRows;
use crate::pipes::limit::Limit;
use crate::pipes::offset::Offset;
use crate::pipes::sort::{Sort, SortForm};

/// Brings a query and its subqueries into normal form.
pub(crate) fn query(mut query: Query) -> Query {
    normalize(&mut query, &Options::default());
    query
}

/// Brings a filter into normal form.
pub(crate) fn filter(filter: Filter) -> Filter {
    let mut filter = simplify(filter);
    subqueries(&mut filter, &Options::default());
    filter
}

fn normalize(query: &mut Query, outer: &Options) {
    inherit(&mut query.options, outer);
    if let Some(global) = query.options.global_filter.take() {
        query.options.global_filter = Some(Box::new(simplify(*global)));
    }
    let mut parts = vec![std::mem::replace(&mut query.filter, Filter::All)];
    let leading = query.pipes.iter().take_while(|pipe| matches!(pipe, Pipe::Filter(_))).count();
    for pipe in query.pipes.drain(..leading) {
        if let Pipe::Filter(FilterRows(filter)) = pipe {
            parts.push(filter);
        }
    }
    query.filter = simplify(if parts.len() == 1 { parts.remove(0) } else { Filter::And(parts) });
    query.pipes = join_pipes(std::mem::take(&mut query.pipes));
    let options = query.options.clone();
    for pipe in &mut query.pipes {
        for filter in pipe.kind_mut().filters_mut() {
            *filter = simplify(std::mem::replace(filter, Filter::All));
            subqueries(filter, &options);
        }
        pipe.kind_mut().queries_mut().into_iter().for_each(|inner| normalize(inner, &options));
    }
    subqueries(&mut query.filter, &options);
}

/// Normalizes the subqueries of a filter.
fn subqueries(filter: &mut Filter, options: &Options) {
    match filter {
        Filter::And(inner) | Filter::Or(inner) => inner.iter_mut().for_each(|f| subqueries(f, options)),
        Filter::Not(inner) => subqueries(inner, options),
        Filter::StreamId(Values::Subquery(query))
        | Filter::Field {
            test:
                Test::In(Values::Subquery(query))
                | Test::ContainsAll(Values::Subquery(query))
                | Test::ContainsAny(Values::Subquery(query)),
            ..
        } => normalize(query, options),
        _ => {}
    }
}

fn inherit(options: &mut Options, outer: &Options) {
    options.concurrency = options.concurrency.or(outer.concurrency);
    options.parallel_readers = options.parallel_readers.or(outer.parallel_readers);
    options.ignore_global_time_filter = options.ignore_global_time_filter.or(outer.ignore_global_time_filter);
    options.allow_partial_response = options.allow_partial_response.or(outer.allow_partial_response);
}

fn simplify(filter: Filter) -> Filter {
    match filter {
        Filter::And(inner) => and(inner),
        Filter::Or(inner) => or(inner),
        Filter::Not(inner) => match simplify(*inner) {
            Filter::Not(inner) => *inner,
            inner => Filter::Not(Box::new(inner)),
        },
        Filter::Field { field, test } => of_field(field, test),
        other => other,
    }
}

fn of_field(field: FieldPattern, test: Test) -> Filter {
    match test {
        Test::Regexp(text) if matches!(text.as_str(), "" | ".*") && field.name().is_some() => Filter::All,
        // A text at the beginning of a word, whatever the text: written as `*`, which is every row.
        Test::Prefix(text) if text.is_empty() && field.name() == Some(MSG) => Filter::All,
        // Of the message this is written as `*`, which is every row.
        Test::Regexp(text) if text == ".+" && field.name() == Some(MSG) => Filter::All,
        Test::Regexp(text) if text == ".+" => Filter::Field { field, test: Test::Prefix(String::new()) },
        test => Filter::Field { field, test },
    }
}

fn and(inner: Vec<Filter>) -> Filter {
    let mut all = Vec::new();
    for filter in inner.into_iter().map(simplify) {
        match filter {
            Filter::All => {}
            Filter::And(nested) => all.extend(nested),
            other => all.push(other),
        }
    }
    let (streams, mut others): (Vec<_>, Vec<_>) = all.into_iter().partition(|f| matches!(f, Filter::Stream(_)));
    let mut all = join_streams(streams);
    all.append(&mut others);
    match all.len() {
        0 => Filter::All,
        1 => all.remove(0),
        _ => Filter::And(all),
    }
}

/// Selectors without `or` become one.
fn join_streams(streams: Vec<Filter>) -> Vec<Filter> {
    let groups: Option<Vec<_>> = streams
        .iter()
        .map(|f| match f {
            Filter::Stream(StreamFilter { groups }) if groups.len() == 1 => Some(groups[0].clone()),
            _ => None,
        })
        .collect();
    match groups {
        Some(groups) if groups.len() > 1 => vec![Filter::Stream(StreamFilter { groups: vec![groups.concat()] })],
        _ => streams,
    }
}

fn or(inner: Vec<Filter>) -> Filter {
    let mut any = Vec::new();
    for filter in inner.into_iter().map(simplify) {
        match filter {
            Filter::All => return Filter::All,
            Filter::Or(nested) => any.extend(nested),
            other => any.push(other),
        }
    }
    if any.len() == 1 { any.remove(0) } else { Filter::Or(any) }
}

/// Joins `limit` and `offset` with each other and with the `sort` or `uniq` before them, and filters with filters.
fn join_pipes(pipes: Vec<Pipe>) -> Vec<Pipe> {
    let mut joined = Vec::with_capacity(pipes.len());
    for pipe in pipes {
        push(&mut joined, pipe);
    }
    joined
}

fn push(joined: &mut Vec<Pipe>, pipe: Pipe) {
    match (joined.last_mut(), pipe) {
        (_, Pipe::Offset(Offset(0))) => {}
        // An operator of the best 0 rows does not exist: such a limit stays a pipe of its own.
        (Some(Pipe::Sort(sort)), Pipe::Limit(Limit(limit))) if limit > 0 && joins(sort) => {
            sort.limit = least(sort.limit, limit);
        }
        (Some(Pipe::Sort(sort)), Pipe::Offset(Offset(offset))) if joins(sort) => match sort.limit {
            Some(limit) if limit <= offset => *joined.last_mut().expect("it is there") = Limit(0).into(),
            limit => {
                sort.limit = limit.map(|limit| limit - offset);
                sort.offset = sort.offset.saturating_add(offset);
            }
        },
        (Some(Pipe::Uniq(uniq)), Pipe::Limit(Limit(limit))) if limit > 0 => uniq.limit = least(uniq.limit, limit),
        (Some(Pipe::Limit(before)), Pipe::Limit(limit)) => before.0 = limit.0.min(before.0),
        (Some(Pipe::Limit(before)), Pipe::Offset(offset)) if before.0 <= offset.0 => before.0 = 0,
        (Some(Pipe::Offset(before)), Pipe::Offset(offset)) => before.0 = before.0.saturating_add(offset.0),
        // Fewer rows go on from one pipe to the next.
        (Some(Pipe::Offset(before)), Pipe::Limit(limit)) => {
            let offset = before.0;
            joined.pop();
            push(joined, Limit(limit.0.saturating_add(offset)).into());
            push(joined, Offset(offset).into());
        }
        (Some(Pipe::Filter(FilterRows(Filter::And(all)))), Pipe::Filter(FilterRows(filter))) => all.push(filter),
        (Some(Pipe::Filter(FilterRows(before))), Pipe::Filter(FilterRows(filter))) => {
            *before = Filter::And(vec![std::mem::replace(before, Filter::All), filter]);
        }
        (_, pipe) => joined.push(pipe),
    }
}

fn least(limit: Option<u64>, other: u64) -> Option<u64> {
    Some(limit.map_or(other, |limit| limit.min(other)))
}

fn joins(sort: &Sort) -> bool {
    sort.form == SortForm::Sort && sort.partition_by.is_empty() && sort.rank.is_none()
}
