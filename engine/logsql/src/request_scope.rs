//! What a request imposes on a query and all its subqueries: a time range, extra filters.

use quiver_types::matcher::{compiled_bytes, translate};
use quiver_types::{Error, ErrorKind, Result};

use crate::ast::{Filter, Pipe, Query, StreamFilter, StreamOp, Test, TimeFilter, TimePoint};
use crate::pipes::stream_context::StreamContext;
use crate::subquery_walk::each_subquery_mut;

/// Most bytes that filters of the request and of `global_filter` may come to, written out in all the queries that they
/// bind, with the regular expressions that each of these compiles.
const COPIED_MAX: usize = 16 << 20;

/// The surroundings of a query.
#[derive(Debug, Clone, Default)]
pub struct QueryScope {
    /// What `now` means; Unix nanoseconds.
    pub now_ns: i64,
    /// First moment of the request.
    pub start_ns: Option<i64>,
    /// Last moment of the request, included.
    pub end_ns: Option<i64>,
    /// Filters that each part of the query is bound by, subqueries included.
    pub extra: Vec<Filter>,
}

impl QueryScope {
    /// Binds a query: what it asks for beyond its scope it does not get.
    ///
    /// # Errors
    /// LimitExceeded: long filters in very many subqueries.
    pub fn bind(&self, query: &mut Query) -> Result<()> {
        // Subqueries of the request's own filters are bound by its time range, not by these filters again.
        let mut binding =
            ScopeBinder { scope: self, extra: Vec::new(), extra_len: 0, compiled: None, first: true, copied: 0 };
        let mut extra = self.extra.clone();
        for filter in &mut extra {
            each_subquery_mut(filter, &mut |inner| binding.query(inner, &[]));
        }
        binding.extra_len = len(&extra);
        binding.extra = extra;
        binding.query(query, &[]);
        if binding.copied > COPIED_MAX {
            let text = format!("filters that bind each subquery come to more than {COPIED_MAX} bytes in all");
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        Ok(())
    }

    /// The time range. It is lowered with the other filters, so `time_offset` moves it with them.
    fn time(&self) -> Option<Filter> {
        if self.start_ns.is_none() && self.end_ns.is_none() {
            return None;
        }
        Some(Filter::Time(TimeFilter::Range {
            start: TimePoint::At(self.start_ns.unwrap_or(i64::MIN)),
            end: TimePoint::At(self.end_ns.unwrap_or(i64::MAX)),
            offset_ns: 0,
            text: format!("[{},{}]", edge(self.start_ns), edge(self.end_ns)),
        }))
    }
}

/// The work of binding.
struct ScopeBinder<'a> {
    scope: &'a QueryScope,
    /// The request's filters, their own subqueries bound.
    extra: Vec<Filter>,
    extra_len: usize,
    /// Bytes of their regular expressions, compiled; `None`: not known yet.
    compiled: Option<usize>,
    /// Whether no query is bound yet. What the first one compiles is no copy.
    first: bool,
    /// Bytes of filters that were copied so far; beyond the bound nothing more is done.
    copied: usize,
}

impl ScopeBinder<'_> {
    /// Binds a query, by what `global_filter` of those around it says too.
    fn query(&mut self, query: &mut Query, outer: &[Filter]) {
        let mut global = outer.to_vec();
        if let Some(own) = query.options.global_filter.take() {
            // Its own subqueries are bound by those outside of it only: it cannot hold itself.
            let mut own = *own;
            each_subquery_mut(&mut own, &mut |inner| self.query(inner, outer));
            global.push(own);
        }
        self.copied = self.copied.saturating_add(self.extra_len).saturating_add(len(&global));
        if !std::mem::take(&mut self.first) {
            let extra = self.compiled.unwrap_or_else(|| compiled(&self.extra));
            self.compiled = Some(extra);
            self.copied = self.copied.saturating_add(extra).saturating_add(compiled(&global));
        }
        if self.copied > COPIED_MAX {
            return;
        }
        each_subquery_mut(&mut query.filter, &mut |inner| self.query(inner, &global));
        for pipe in &mut query.pipes {
            self.pipe(pipe, &global);
        }
        let mut all = self.extra.clone();
        all.append(&mut global);
        if query.options.ignore_global_time_filter != Some(true) {
            all.extend(self.scope.time());
        }
        let own = std::mem::replace(&mut query.filter, Filter::All);
        all.push(own);
        query.filter = if all.len() == 1 { all.remove(0) } else { Filter::And(all) };
    }

    fn pipe(&mut self, pipe: &mut Pipe, global: &[Filter]) {
        if let Some(context) = pipe.downcast_mut::<StreamContext>() {
            context.within.clone_from(&self.extra);
        }
        for filter in pipe.kind_mut().filters_mut() {
            each_subquery_mut(filter, &mut |inner| self.query(inner, global));
        }
        pipe.kind_mut().queries_mut().into_iter().for_each(|inner| self.query(inner, global));
    }
}

/// Bytes of the regular expressions of filters, compiled.
fn compiled(filters: &[Filter]) -> usize {
    let bytes = |pattern: &str| translate(pattern).map_or(0, |text| compiled_bytes(&text));
    let of_one = |filter: &Filter| match filter {
        Filter::And(inner) | Filter::Or(inner) => compiled(inner),
        Filter::Not(inner) => compiled(std::slice::from_ref(inner.as_ref())),
        Filter::Field { test: Test::Regexp(pattern), .. } => bytes(pattern),
        Filter::Stream(StreamFilter { groups }) => {
            let of_label = |op: &StreamOp| match op {
                StreamOp::Regexp(pattern) | StreamOp::NotRegexp(pattern) => bytes(pattern),
                _ => 0,
            };
            groups.iter().flatten().map(|label| of_label(&label.op)).sum()
        }
        _ => 0,
    };
    filters.iter().map(of_one).sum()
}

/// Length of filters as text.
fn len(filters: &[Filter]) -> usize {
    filters.iter().map(|filter| filter.to_string().len()).sum()
}

fn edge(ns: Option<i64>) -> String {
    ns.map_or_else(|| "now".to_owned(), |ns| ns.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_text::{parse, parse_filter};

    fn filter(text: &str) -> Filter {
        parse_filter(text).expect("a filter").expect("not empty")
    }

    fn check(scope: &QueryScope, text: &str, expected: &str) {
        let mut query = parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        scope.bind(&mut query).expect("it is bound");
        assert_eq!(query.to_string(), expected, "{text}");
    }

    #[test]
    fn nothing_is_laid_upon_a_query() {
        let scope = QueryScope::default();
        for text in ["*", "a or b", "a:in(b | fields c) | limit 5"] {
            check(&scope, text, text);
        }
    }

    #[test]
    fn each_part_has_the_range_of_time() {
        let scope = QueryScope { start_ns: Some(5), end_ns: Some(9), ..QueryScope::default() };
        check(&scope, "a", "_time:[5,9] a");
        check(&scope, "a or b", "_time:[5,9] (a or b)");
        check(&scope, "a:in(b | fields c)", "_time:[5,9] a:in(_time:[5,9] b | fields c)");
        check(&scope, "* | union (b)", "_time:[5,9] * | union (_time:[5,9] b)");
        check(
            &scope,
            "* | limit 1 | filter a:in(b | fields c)",
            "_time:[5,9] * | limit 1 | filter a:in(_time:[5,9] b | fields c)",
        );
        let ignores = "options(ignore_global_time_filter=true) a";
        check(&scope, ignores, ignores);
        let end = QueryScope { end_ns: Some(9), ..QueryScope::default() };
        check(&end, "a", "_time:[now,9] a");
    }

    #[test]
    fn each_part_is_bound_by_filters() {
        let scope = QueryScope { extra: vec![filter("x:1"), filter("y or z")], ..QueryScope::default() };
        check(&scope, "a", "x:1 (y or z) a");
        check(&scope, "a:in(b | fields c)", "x:1 (y or z) a:in(x:1 (y or z) b | fields c)");
        // Not even such a query gets around them.
        check(
            &scope,
            "options(ignore_global_time_filter=true) a",
            "options(ignore_global_time_filter=true) x:1 (y or z) a",
        );
        // Subqueries of the filters themselves have the range alone.
        let nested =
            QueryScope { start_ns: Some(5), end_ns: Some(9), extra: vec![filter("a:in(b | fields c)")], now_ns: 0 };
        check(&nested, "d", "a:in(_time:[5,9] b | fields c) _time:[5,9] d");
    }

    #[test]
    fn a_global_filter_binds_what_is_within() {
        let scope = QueryScope::default();
        check(&scope, "options(global_filter=(g)) a", "g a");
        check(&scope, "options(global_filter=(g)) a:in(b | fields c)", "g a:in(g b | fields c)");
        check(
            &scope,
            "options(global_filter=(g)) a:in(options(global_filter=(h)) b:in(d | fields e) | fields c)",
            "g a:in(g h b:in(g h d | fields e) | fields c)",
        );
        check(&scope, "options(global_filter=(g:in(h | fields k))) a", "g:in(h | fields k) a");
    }

    #[test]
    fn an_end_that_is_not_said_is_open() {
        let start = QueryScope { start_ns: Some(-5), ..QueryScope::default() };
        check(&start, "a", "_time:[-5,now] a");
        let range = |scope: &QueryScope| match scope.time() {
            Some(Filter::Time(TimeFilter::Range { start, end, offset_ns, .. })) => (start.at(7), end.at(7), offset_ns),
            other => panic!("{other:?}"),
        };
        assert_eq!(range(&start), (-5, i64::MAX, 0));
        let end = QueryScope { end_ns: Some(9), now_ns: 100, ..QueryScope::default() };
        assert_eq!(range(&end), (i64::MIN, 9, 0));
        assert_eq!(QueryScope { now_ns: 100, ..QueryScope::default() }.time(), None);
    }

    /// Breaks if rows come in by a part of a query that a filter of the request does not bind.
    #[test]
    fn queries_of_all_pipes_are_bound() {
        let scope = QueryScope { extra: vec![filter("x:1")], ..QueryScope::default() };
        for (text, expected) in [
            ("* | join by (a) (b | fields a)", "x:1 * | join by (a) (x:1 b | fields a)"),
            ("* | union (a | union (b))", "x:1 * | union (x:1 a | union (x:1 b))"),
            ("* | union (a:in(b | fields c))", "x:1 * | union (x:1 a:in(x:1 b | fields c))"),
            ("* | count() if (a:in(b | fields c)) n", "x:1 * | stats count(*) if (a:in(x:1 b | fields c)) as n"),
            ("* | format if (a:in(b | fields c)) 'd' as e", "x:1 * | format if (a:in(x:1 b | fields c)) d as e"),
            ("* | unroll if (!a:in(b | fields c)) by (d)", "x:1 * | unroll if (!a:in(x:1 b | fields c)) by (d)"),
            (
                "* | unpack_json if (a:in(b | fields c)) from d",
                "x:1 * | unpack_json if (a:in(x:1 b | fields c)) from d",
            ),
            (
                "* | set_stream_fields if (a:in(b | fields c)) d",
                "x:1 * | set_stream_fields if (a:in(x:1 b | fields c)) d",
            ),
            ("a or !b:contains_all(c | fields d)", "x:1 (a or !b:contains_all(x:1 c | fields d))"),
            ("_stream_id:in(a | fields _stream_id)", "x:1 _stream_id:in(x:1 a | fields _stream_id)"),
            // Written rows are nobody's.
            ("* | union rows({a:b})", "x:1 * | union rows({\"a\":\"b\"})"),
        ] {
            check(&scope, text, expected);
        }
        // Neighbours of a row are bound as the row is.
        let mut query = parse("a | stream_context before 1").expect("a query");
        scope.bind(&mut query).expect("it is bound");
        let context = query.pipes[0].downcast_ref::<StreamContext>().expect("a pipe of this type");
        assert_eq!(context.within, scope.extra);
    }

    #[test]
    fn who_ignores_the_range_of_time_does_so_for_what_is_within() {
        let scope = QueryScope { start_ns: Some(5), end_ns: Some(9), ..QueryScope::default() };
        let (yes, no) = ("options(ignore_global_time_filter=true)", "options(ignore_global_time_filter=false)");
        check(&scope, &format!("a:in({yes} b | fields c)"), &format!("_time:[5,9] a:in({yes} b | fields c)"));
        check(&scope, &format!("{yes} a:in(b | fields c)"), &format!("{yes} a:in({yes} b | fields c)"));
        check(&scope, &format!("{yes} a:in({no} b | fields c)"), &format!("{yes} a:in({no} _time:[5,9] b | fields c)"));
        check(&scope, &format!("{yes} * | union (b)"), &format!("{yes} * | union ({yes} b)"));
        check(&scope, &format!("{no} a"), &format!("{no} _time:[5,9] a"));
    }

    #[test]
    fn regular_expressions_are_not_copied_without_bounds() {
        let large = [r#"a:~"(?i)[\\p{L}]{1,20}""#; 4];
        for text in [large.join(" or "), format!("!({})", large.join(" "))] {
            let scope = QueryScope { extra: vec![filter(&text)], ..QueryScope::default() };
            let bound = |subqueries: usize| {
                let mut query = parse(&format!("*{}", " | join by (a) (b)".repeat(subqueries))).expect("a query");
                scope.bind(&mut query).map_err(|error| error.kind)
            };
            assert_eq!((bound(0), bound(1)), (Ok(()), Ok(())));
            assert_eq!(bound(200), Err(ErrorKind::LimitExceeded));
        }
    }

    #[test]
    fn filters_are_not_copied_without_bounds() {
        let scope = QueryScope { extra: vec![filter(&"x".repeat(1 << 19))], ..QueryScope::default() };
        let bound = |subqueries: usize| {
            let mut query = parse(&vec!["a:in(b | fields c)"; subqueries].join(" ")).expect("a query");
            scope.bind(&mut query).map_err(|error| error.kind)
        };
        assert_eq!(bound(5), Ok(()));
        assert_eq!(bound(40), Err(ErrorKind::LimitExceeded));
        let mut query = parse(&vec!["a:in(b | fields c)"; 40].join(" ")).expect("a query");
        let refused = scope.bind(&mut query).expect_err("too much");
        assert_eq!(refused.message, "filters that bind each subquery come to more than 16777216 bytes in all");
    }
}
