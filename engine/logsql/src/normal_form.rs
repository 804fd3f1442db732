//! The normal form of a query: queries with the same meaning are written the same.
//!
//! `*` within `and` and `or` is removed; nested `and`, `or` and double `not` are flattened; stream selectors are merged
//! and moved to the front; a leading `filter` pipe is merged into the filter; `limit` and `offset` are merged with each
//! other and with a preceding `sort` or `uniq`; subqueries inherit the options of the query around them.

use quiver_types::logs::MSG;

use crate::ast::{FieldPattern, Filter, Options, Pipe, Query, StreamFilter, Test};
use crate::pipes::pipe::{PipeMerge, RowSlice};
use crate::subquery_walk::each_subquery_mut;

/// Brings a query and its subqueries into normal form.
pub(crate) fn query(mut query: Query) -> Query {
    normalize(&mut query, &Options::default());
    query
}

/// Brings a filter of stored rows into normal form.
pub(crate) fn filter(filter: Filter) -> Filter {
    condition(without_any_message(filter))
}

/// Brings a filter of a pipe into normal form.
pub(crate) fn condition(filter: Filter) -> Filter {
    let mut filter = simplify(filter);
    subqueries(&mut filter, &Options::default());
    filter
}

fn normalize(query: &mut Query, outer: &Options) {
    inherit(&mut query.options, outer);
    if let Some(global) = query.options.global_filter.take() {
        query.options.global_filter = Some(Box::new(simplify(without_any_message(*global))));
    }
    query.pipes = join_pipes(std::mem::take(&mut query.pipes));
    let mut filter = std::mem::replace(&mut query.filter, Filter::All);
    if let Some(leading) = query.pipes.first_mut().and_then(|pipe| pipe.kind_mut().only_filter()) {
        filter = Filter::And(vec![filter, std::mem::replace(leading, Filter::All)]);
        query.pipes.remove(0);
    }
    query.filter = simplify(without_any_message(filter));
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
    each_subquery_mut(filter, &mut |inner| normalize(inner, options));
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
        Test::Regexp(text) if text == ".+" => Filter::Field { field, test: Test::Prefix(String::new()) },
        test => Filter::Field { field, test },
    }
}

/// Messages of stored rows are not looked at to see that they are there: `_msg:*` is every row. Behind pipes it is not.
fn without_any_message(filter: Filter) -> Filter {
    // In the same memory: a filter may have hundreds of thousands of parts.
    let each = |inner: Vec<Filter>| -> Vec<Filter> { inner.into_iter().map(without_any_message).collect() };
    match filter {
        Filter::And(inner) => Filter::And(each(inner)),
        Filter::Or(inner) => Filter::Or(each(inner)),
        Filter::Not(inner) => Filter::Not(Box::new(without_any_message(*inner))),
        Filter::Field { field, test } if field.name() == Some(MSG) && is_any(&test) => Filter::All,
        other => other,
    }
}

/// Whether a test holds of any text that is not empty.
fn is_any(test: &Test) -> bool {
    match test {
        Test::Prefix(text) => text.is_empty(),
        Test::Regexp(text) => text == ".+",
        _ => false,
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

/// Joins pipes with those before them that take them over: `limit` and `offset` with each other and with the `sort` or
/// `uniq` before them, and filters with filters.
fn join_pipes(pipes: Vec<Pipe>) -> Vec<Pipe> {
    let mut joined = Vec::with_capacity(pipes.len());
    for pipe in pipes {
        push(&mut joined, pipe);
    }
    joined
}

fn push(joined: &mut Vec<Pipe>, mut pipe: Pipe) {
    if pipe.kind().cut() == Some(RowSlice::Offset(0)) {
        return;
    }
    match joined.last_mut().map_or(PipeMerge::Apart, |before| before.kind_mut().take_over(&mut pipe)) {
        PipeMerge::Apart => joined.push(pipe),
        PipeMerge::One => {}
        PipeMerge::Others(others) => {
            joined.pop();
            for other in others {
                push(joined, other);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::ast::{StreamMatch, StreamOp};
    use crate::pipes::sort::Sort;
    use crate::query_text::{parse, parse_filter};

    const FIELDS: usize = 3;
    const LABELS: usize = 2;

    fn field_filter(at: usize) -> Filter {
        Filter::Field { field: FieldPattern::Name(format!("f{at}")), test: Test::Phrase("x".to_owned()) }
    }

    fn stream_filter(groups: Vec<Vec<usize>>) -> Filter {
        let one = |at: usize| StreamMatch { label: format!("s{at}"), op: StreamOp::Equal("x".to_owned()) };
        let groups = groups.into_iter().map(|group| group.into_iter().map(one).collect()).collect();
        Filter::Stream(StreamFilter { groups })
    }

    fn filters() -> impl Strategy<Value = Filter> {
        let leaf = prop_oneof![
            Just(Filter::All),
            (0..FIELDS).prop_map(field_filter),
            vec(vec(0..LABELS, 1..3), 1..3).prop_map(stream_filter),
        ];
        leaf.prop_recursive(5, 30, 3, |inner| {
            prop_oneof![
                vec(inner.clone(), 1..4).prop_map(Filter::And),
                vec(inner.clone(), 1..4).prop_map(Filter::Or),
                inner.prop_map(|one| Filter::Not(Box::new(one))),
            ]
        })
    }

    /// Whether a row matches; a bit each says which fields and labels of it fit.
    fn holds(filter: &Filter, row: usize) -> bool {
        let bit = |name: &str, above: usize| {
            let at: usize = name[1..].parse().expect("a number");
            row >> (above + at) & 1 == 1
        };
        match filter {
            Filter::All => true,
            Filter::And(all) => all.iter().all(|one| holds(one, row)),
            Filter::Or(any) => any.iter().any(|one| holds(one, row)),
            Filter::Not(one) => !holds(one, row),
            Filter::Field { field, .. } => bit(field.name().expect("a name"), 0),
            Filter::Stream(stream) => stream.groups.iter().any(|group| group.iter().all(|one| bit(&one.label, FIELDS))),
            other => panic!("{other}"),
        }
    }

    proptest! {
        /// Breaks if the normal form matches other rows, is no end of its own, or is read as something else.
        #[test]
        fn filters_keep_their_meaning(filter in filters()) {
            let normal = simplify(filter.clone());
            for row in 0..1 << (FIELDS + LABELS) {
                prop_assert!(holds(&normal, row) == holds(&filter, row), "{filter:?} is {normal} in {row:b}");
            }
            prop_assert_eq!(&simplify(normal.clone()), &normal);
            let text = normal.to_string();
            let read = parse_filter(&text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            prop_assert_eq!(read, Some(normal));
        }
    }

    /// Pipes that join each other, or stand between those that do.
    const PIPES: [&str; 19] = [
        "limit 0",
        "limit 2",
        "limit 5",
        "limit 18446744073709551615",
        "offset 0",
        "offset 1",
        "offset 3",
        "offset 18446744073709551615",
        "sort by (a)",
        "sort by (a desc)",
        "sort by (a) desc",
        "sort by (a) limit 2",
        "sort by (a) offset 2",
        "sort by (a desc) offset 1 limit 4",
        "sort by (a) limit 3 rank as r",
        "first 3 by (a)",
        "last 2 by (a)",
        "last by (a desc)",
        "sort by (a) limit 6",
    ];

    /// What the pipes leave of some rows.
    fn applied(pipes: &[Pipe]) -> Vec<u64> {
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let mut rows = vec![5, 3, 9, 1, 8, 2, 7, 4, 6, 0];
        for pipe in pipes {
            match pipe.kind().cut() {
                Some(RowSlice::Limit(limit)) => rows.truncate(count(limit)),
                Some(RowSlice::Offset(offset)) => rows = rows.into_iter().skip(count(offset)).collect(),
                None => {
                    let sort = pipe.downcast_ref::<Sort>().unwrap_or_else(|| panic!("{pipe}"));
                    rows.sort_unstable();
                    if sort.by[0].1 != sort.is_reversed() {
                        rows.reverse();
                    }
                    let limit = sort.limit.map_or(usize::MAX, count);
                    rows = rows.into_iter().skip(count(sort.offset)).take(limit).collect();
                }
            }
        }
        rows
    }

    proptest! {
        /// Breaks if limits and offsets come to other rows when they are put together.
        #[test]
        fn limits_and_offsets_keep_their_meaning(chosen in vec(0..PIPES.len(), 0..7)) {
            let one = |at: &usize| parse(&format!("* | {}", PIPES[*at])).expect("a pipe").pipes;
            let pipes: Vec<Pipe> = chosen.iter().flat_map(one).collect();
            let joined = join_pipes(pipes.clone());
            prop_assert!(applied(&joined) == applied(&pipes), "{pipes:?} are {joined:?}");
            prop_assert!(joined.len() <= pipes.len());
            prop_assert_eq!(&join_pipes(joined.clone()), &joined);
        }

        /// Breaks if what is read of a canonical text is written in yet another way.
        #[test]
        fn canonical_text_is_its_own(chosen in vec(0..PIPES.len() + 6, 0..7)) {
            const OTHERS: [&str; 6] =
                ["filter f:x", "filter *", "filter f:x or g:y", "uniq by (a)", "uniq by (a) with hits limit 3", "fields a"];
            let pipes: Vec<&str> =
                chosen.iter().map(|&at| PIPES.get(at).copied().unwrap_or_else(|| OTHERS[at - PIPES.len()])).collect();
            let text = [&["e:z"][..], pipes.as_slice()].concat().join(" | ");
            let canonical = parse(&text).unwrap_or_else(|fault| panic!("{text}: {fault}")).to_string();
            let again = parse(&canonical).unwrap_or_else(|fault| panic!("{canonical}: {fault}")).to_string();
            prop_assert_eq!(again, canonical, "{}", text);
        }
    }

    fn check(text: &str, expected: &str) {
        let query = parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        assert_eq!(query.to_string(), expected, "{text}");
    }

    #[test]
    fn filters_that_come_to_stand_first_join_that_of_the_query() {
        check("a | filter b | where c or d | limit 1", "a b (c or d) | limit 1");
        check("* | filter b", "b");
        check("* | filter *", "*");
        check("a or b | c", "(a or b) c");
        check("* | offset 0 | filter b", "b");
        check("* | offset 0 | filter b | offset 0 | filter c | limit 1 | filter d", "b c | limit 1 | filter d");
        check("* | limit 1 | filter *", "* | limit 1 | filter *");
        check("* | limit 1 | filter * | filter b | filter (c d)", "* | limit 1 | filter b c d");
    }

    #[test]
    fn no_rows_are_left_of_a_limit_within_an_offset() {
        check("* | limit 5 | sort by (a) limit 2 | offset 2", "* | limit 0");
        check("* | limit 5 | offset 1 | offset 4", "* | limit 0");
        check("* | limit 5 | offset 1 | offset 3", "* | limit 5 | offset 4");
        check("* | offset 3 | sort by (a) limit 2 | offset 9", "* | limit 0");
        check("* | uniq by (a) | sort by (a) limit 1 | offset 1", "* | uniq by (a) | limit 0");
        check("* | fields a | sort by (a) limit 1 | offset 1 | limit 7", "* | fields a | limit 0");
    }

    #[test]
    fn subqueries_and_conditions_are_in_normal_form() {
        check("a:in(* b * | filter c | fields d)", "a:in(b c | fields d)");
        check("!(!a:in(!!b | fields d))", "a:in(b | fields d)");
        check("* | union (a b * | offset 0 | limit 3 | limit 2)", "* | union (a b | limit 2)");
        check("* | join by (a) (x | filter y | fields a)", "* | join by (a) (x y | fields a)");
        check("* | count() if (* (a (b c))) n", "* | stats count(*) if (a b c) as n");
        check("* | format if (a or (b or *)) 'x' as y", "* | format if (*) x as y");
        check("options(global_filter=(a (b *))) c", "options(global_filter=(a b)) c");
        check(
            "options(concurrency=2, allow_partial_response=true) * | union (options(concurrency=3) a)",
            "options(concurrency=2, allow_partial_response=true) * | union (options(concurrency=3, allow_partial_response=true) a)",
        );
        // What moves rows in time, and binds subqueries anyway, is not taken over.
        check(
            "options(time_offset=1h, global_filter=(g)) * | union (a)",
            "options(time_offset=1h, global_filter=(g)) * | union (a)",
        );
    }
}
