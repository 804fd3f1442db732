//! Which spans of the traces of a page match. Mostly the spans that were read for the summaries tell it; where a condition
//! looks at more than they have, they are read once more.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quiver_types::spans::{Span, SpanFilter, SpanId, TraceId};

use super::FIRST_MAX;
use crate::summary::{Matched, Summary};

/// The matching spans of one trace.
#[derive(Debug, Default)]
pub(super) struct Matches {
    spans: u64,
    /// The earliest of them, with their starts.
    first: Vec<(i64, Matched)>,
}

impl Matches {
    /// Adds a span that starts then; each id once.
    pub(super) fn add(&mut self, start: i64, span: Matched) {
        self.spans += 1;
        self.first.push((start, span));
        self.first.sort_unstable_by_key(|(start, span)| (*start, span.span_id));
        self.first.truncate(FIRST_MAX);
    }

    /// Writes them into the row of their trace.
    pub(super) fn note(self, row: &mut Summary) {
        row.matched = self.spans;
        row.first = self.first.into_iter().map(|(_, span)| span).collect();
    }
}

/// Says whether a filter looks at nothing that spans lack which are read for summaries.
pub(super) fn is_told(filter: &SpanFilter) -> bool {
    match filter {
        SpanFilter::And(all) | SpanFilter::Or(all) => all.iter().all(is_told),
        SpanFilter::Not(one) => is_told(one),
        SpanFilter::All
        | SpanFilter::None
        | SpanFilter::Once
        | SpanFilter::Traces(_)
        | SpanFilter::Starts(..)
        | SpanFilter::Overlaps(..)
        | SpanFilter::Duration(..)
        | SpanFilter::Service(_)
        | SpanFilter::Name(_)
        | SpanFilter::Kinds(_)
        | SpanFilter::Status(_)
        | SpanFilter::Root
        | SpanFilter::Received(_) => true,
        SpanFilter::Attribute { .. }
        | SpanFilter::Message(_)
        | SpanFilter::EventName(_)
        | SpanFilter::ScopeName(_)
        | SpanFilter::ScopeVersion(_) => false,
    }
}

/// Says whether a span passes a filter of which it tells; nothing passes another one.
fn passes(filter: &SpanFilter, span: &Span) -> bool {
    match filter {
        SpanFilter::All | SpanFilter::Once => true,
        SpanFilter::And(all) => all.iter().all(|one| passes(one, span)),
        SpanFilter::Or(any) => any.iter().any(|one| passes(one, span)),
        SpanFilter::Not(one) => is_told(one) && !passes(one, span),
        SpanFilter::Traces(ids) => ids.binary_search(&span.trace_id).is_ok(),
        SpanFilter::Starts(min, max) => (*min..=*max).contains(&span.start),
        SpanFilter::Overlaps(min, max) => span.start <= *max && span.end >= *min,
        SpanFilter::Duration(min, max) => (*min..=*max).contains(&span.duration()),
        SpanFilter::Service(test) => test.matches(span.service_shown()),
        SpanFilter::Name(test) => test.matches(&span.name),
        SpanFilter::Kinds(kinds) => kinds.contains(&span.kind),
        SpanFilter::Status(status) => span.status == *status,
        SpanFilter::Root => span.parent.is_none(),
        SpanFilter::Received(max) => span.received <= *max,
        SpanFilter::None
        | SpanFilter::Attribute { .. }
        | SpanFilter::Message(_)
        | SpanFilter::EventName(_)
        | SpanFilter::ScopeName(_)
        | SpanFilter::ScopeVersion(_) => false,
    }
}

/// The matching ones of spans as they are stored, by trace; of those with one id the first.
pub(super) fn of_reports(filter: &SpanFilter, reports: &[Span]) -> HashMap<TraceId, Matches, FixedState> {
    let mut found: HashMap<TraceId, Matches, FixedState> = HashMap::default();
    let mut seen: HashSet<(TraceId, SpanId), FixedState> = HashSet::default();
    for span in reports.iter().filter(|span| passes(filter, span)) {
        if seen.insert((span.trace_id, span.span_id)) {
            let matched = Matched {
                span_id: span.span_id,
                service: span.service_shown().to_owned(),
                name: span.name.clone(),
                duration: span.duration(),
                error: span.is_error(),
            };
            found.entry(span.trace_id).or_default().add(span.start, matched);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quiver_types::spans::{AttributeTest, STATUS_ERROR, TextTest};

    use super::*;
    use crate::assemble::tests::span;
    use crate::testing;

    fn is(text: &str) -> TextTest {
        TextTest::Is(text.to_owned())
    }

    /// Filters that summaries tell.
    fn told() -> Vec<SpanFilter> {
        let each = vec![
            SpanFilter::All,
            SpanFilter::None,
            SpanFilter::Once,
            SpanFilter::Traces(Arc::new(vec![[0; 16], [1; 16]])),
            SpanFilter::Traces(Arc::new(vec![[2; 16]])),
            SpanFilter::Starts(20, 30),
            SpanFilter::Overlaps(31, 40),
            SpanFilter::Duration(5, 10),
            SpanFilter::Service(is("a")),
            SpanFilter::Service(is("unknown_service")),
            SpanFilter::Name(TextTest::Prefix("op2".to_owned())),
            SpanFilter::Kinds(vec![2, 3]),
            SpanFilter::Status(STATUS_ERROR),
            SpanFilter::Root,
            SpanFilter::Received(5),
        ];
        let not = each.iter().map(|one| SpanFilter::Not(Box::new(one.clone())));
        let pairs = each.windows(2).flat_map(|two| [SpanFilter::And(two.to_vec()), SpanFilter::Or(two.to_vec())]);
        each.iter().cloned().chain(not).chain(pairs).collect()
    }

    fn spans() -> Vec<Span> {
        let mut failed = span(22, 1, "", 3, 30, 70);
        failed.status = STATUS_ERROR;
        failed.received = 6;
        vec![span(1, 0, "a", 2, 10, 90), span(2, 1, "a", 3, 20, 25), failed, span(3, 2, "b", 1, 31, 41)]
    }

    /// Breaks where a count of matches says another thing than the scan that found the trace.
    #[test]
    fn filters_are_those_of_scans() {
        for filter in told() {
            assert!(is_told(&filter), "{filter}");
            for span in &spans() {
                assert_eq!(passes(&filter, span), testing::passes(&filter, span), "{filter} of {span:?}");
            }
        }
    }

    /// Breaks where a condition on what was not read is taken for one that nothing passes, or everything.
    #[test]
    fn what_is_not_read_tells_nothing() {
        for other in [
            SpanFilter::Attribute { place: None, key: "k".to_owned(), test: AttributeTest::Exists },
            SpanFilter::Message(is("")),
            SpanFilter::EventName(is("")),
            SpanFilter::ScopeName(is("")),
            SpanFilter::ScopeVersion(is("")),
        ] {
            let not = SpanFilter::Not(Box::new(other.clone()));
            let and = SpanFilter::And(vec![SpanFilter::Root, not.clone()]);
            let or = SpanFilter::Or(vec![SpanFilter::Root, other.clone()]);
            for filter in [other, not, and, or] {
                assert!(!is_told(&filter), "{filter}");
            }
        }
    }

    #[test]
    fn the_earliest_spans_are_named_and_each_id_counts_once() {
        let mut reports = spans();
        reports.extend([span(9, 1, "a", 2, 5, 6), span(9, 1, "a", 2, 5, 6), span(8, 1, "a", 2, 80, 81)]);
        reports.push(Span { trace_id: [2; 16], ..span(1, 0, "a", 2, 1, 2) });
        let mut found = of_reports(&SpanFilter::Service(is("a")), &reports);
        assert_eq!(found.len(), 2);
        let mut row = super::super::tests::row(1, (5, 90), 6, 1, 2);
        found.remove(&[1; 16]).expect("matches").note(&mut row);
        let first: Vec<(u8, i64)> = row.first.iter().map(|span| (span.span_id[7], span.duration)).collect();
        assert_eq!((row.matched, first), (4, vec![(9, 1), (1, 80), (2, 5)]));
        assert_eq!(
            (row.first[0].name.as_str(), row.first[0].service.as_str(), row.first[0].error),
            ("op9", "a", false)
        );
    }
}
