//! Runs a query: the scan finds candidates, whole traces decide.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use quiver_query::QueryContext;
use quiver_types::spans::SpanFilter;

use super::ast::Query;
use super::evaluation::TraceView;
use super::memory::LABEL_BYTES;
use super::result::FoundSet;
use super::value::FieldValue;
use crate::assemble::Trace;
use crate::engine::{TraceError, TracesEngine};
use crate::search::{Accepts, Search};
use crate::summary::{Summary, summarize};

/// How long before the range a wanted span may start, in nanoseconds: what began earlier is looked for only in a range that
/// begins earlier, as otherwise all that is stored would be.
const BEFORE: i64 = 600_000_000_000;

/// A search for traces.
#[derive(Debug, Clone)]
pub struct TraceqlSearch {
    /// What spans are wanted of a trace.
    pub query: Arc<Query>,
    /// Unix nanoseconds, both included: the trace overlaps it, and a wanted span starts within or up to ten minutes before.
    pub range: (i64, i64),
    /// Conditions on spans beside the query.
    pub conditions: Vec<SpanFilter>,
    /// Most traces; the newest are given.
    pub limit: usize,
    /// Most spans that are shown of each set.
    pub spans: usize,
}

/// A trace that was found.
#[derive(Debug, Clone)]
pub struct TraceqlHit {
    /// The trace as a whole, with its spans that are not wanted.
    pub summary: Summary,
    /// Spans that the query wants, in the sets that it makes of them.
    pub sets: Vec<HitSet>,
}

/// Spans that go together.
#[derive(Debug, Clone)]
pub struct HitSet {
    /// How many spans it has, shown or not.
    pub matched: usize,
    /// The first of them, [`TraceqlSearch::spans`] at most.
    pub spans: Vec<HitSpan>,
    /// What they have in common, and numbers that were compared.
    pub attributes: Vec<(Arc<str>, FieldValue)>,
}

/// A span that was found.
#[derive(Debug, Clone)]
pub struct HitSpan {
    /// The span id, all 8 bytes.
    pub id: [u8; 8],
    /// Name, if the query asks for it.
    pub name: Option<String>,
    /// Start, Unix nanoseconds.
    pub start: i64,
    /// From start to end, in nanoseconds.
    pub duration: i64,
    /// Fields that the query names.
    pub attributes: Vec<(String, FieldValue)>,
}

impl TraceqlHit {
    fn of(query: &Query, trace: &Trace, spans_max: usize) -> Option<Self> {
        let looked = TraceView::at(trace);
        let (summary, found) = (summarize(trace)?, query.find_in(&looked)?);
        let span = |&i: &usize| {
            let span = &trace.spans[i];
            HitSpan {
                id: span.span_id,
                name: query.shows_name(&looked, i).then(|| span.name.clone()),
                start: span.start,
                duration: span.duration(),
                attributes: query.shown(&looked, i),
            }
        };
        let set = |set: FoundSet| HitSet {
            matched: set.spans.len(),
            spans: set.spans.iter().take(spans_max).map(span).collect(),
            attributes: set.attributes,
        };
        Some(Self { summary, sets: found.sets.into_iter().map(set).collect() })
    }
}

impl HitSet {
    /// What it takes in memory, about.
    fn bytes(&self) -> usize {
        let own = self.attributes.iter().map(|(key, value)| LABEL_BYTES + key.len() + value.held_bytes());
        let spans = self.spans.iter().map(|span| {
            let shown = span.attributes.iter().map(|(key, value)| LABEL_BYTES + key.len() + value.held_bytes());
            size_of::<HitSpan>() + span.name.as_ref().map_or(0, String::len) + shown.sum::<usize>()
        });
        size_of::<Self>() + own.sum::<usize>() + spans.sum::<usize>()
    }
}

impl TracesEngine {
    /// Gives the newest traces that a query wants.
    ///
    /// # Errors
    /// Those of a search.
    pub fn traceql<'a>(
        self: &'a Arc<Self>,
        ctx: &'a QueryContext,
        wanted: &'a TraceqlSearch,
        now: i64,
    ) -> BoxFuture<'a, Result<Vec<TraceqlHit>, TraceError>> {
        async move {
            let query = Arc::clone(&wanted.query);
            // As in Tempo, a trace counts that overlaps the range, with all of its spans.
            let (begin, end) = wanted.range;
            let accepts = Accepts(Arc::new(move |trace: &Trace| trace.end() >= begin && query.find(trace).is_some()));
            let range = (begin.saturating_sub(BEFORE), end);
            let mut conditions = wanted.conditions.clone();
            conditions.push(wanted.query.filter());
            let search = Search { conditions, limit: wanted.limit, accepts: Some(accepts), ..Search::new(range) };
            let traces = self.search_whole(ctx, search, now).await?;
            let memory = self.collected("hits", ctx);
            let mut hits = Vec::new();
            for trace in &traces {
                let Some(hit) = TraceqlHit::of(&wanted.query, trace, wanted.spans) else { continue };
                memory.add(size_of::<TraceqlHit>() + hit.sets.iter().map(HitSet::bytes).sum::<usize>())?;
                hits.push(hit);
            }
            ctx.keep(memory);
            Ok(hits)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::{Attributes, Value as Attribute};

    use super::*;
    use crate::assemble::assemble;
    use crate::assemble::tests::span;

    /// A root, and three calls below it.
    fn trace() -> Trace {
        let calls = (2..5).map(|id| {
            let mut call = span(id, 1, "shop", 3, id as i64, 10 * id as i64);
            call.attributes = Attributes::of([("n", Attribute::Int(id as i64 % 2))]);
            call
        });
        assemble([1; 16], std::iter::once(span(1, 0, "shop", 2, 1, 100)).chain(calls).collect())
    }

    fn hit(text: &str, spans_max: usize) -> Option<TraceqlHit> {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        TraceqlHit::of(&query, &trace(), spans_max)
    }

    /// Breaks if the spans that are left out of an answer are left out of its count, too.
    #[test]
    fn a_set_tells_how_many_spans_it_has() {
        let found = hit("{ kind = client } | select(span.n)", 2).unwrap();
        let [set] = found.sets.as_slice() else { panic!("{found:?}") };
        assert_eq!((set.matched, set.spans.len()), (3, 2));
        let first = &set.spans[0];
        assert_eq!(
            (first.id, first.start, first.duration, first.name.as_deref()),
            ([0, 0, 0, 0, 0, 0, 0, 2], 2, 18, None)
        );
        let shown: Vec<(&str, &FieldValue)> =
            first.attributes.iter().map(|(key, value)| (key.as_str(), value)).collect();
        assert_eq!(shown, [("n", &FieldValue::Int(0)), ("kind", &FieldValue::text("client"))]);
        assert_eq!((found.summary.spans, found.summary.root_name.as_str()), (4, "op1"));
        assert_eq!(hit("{ kind = client }", 0).unwrap().sets[0].matched, 3);
        assert!(hit("{ kind = producer }", 3).is_none());
        assert!(TraceqlHit::of(&Query::parse("{}").unwrap(), &Trace::default(), 3).is_none());
    }

    #[test]
    fn groups_are_sets_and_names_are_told_where_they_are_asked_for() {
        let found = hit("{ name =~ `op[234]` } | by(span.n)", 5).unwrap();
        let sets: Vec<(usize, &FieldValue)> =
            found.sets.iter().map(|set| (set.matched, &set.attributes[0].1)).collect();
        assert_eq!(sets, [(2, &FieldValue::Int(0)), (1, &FieldValue::Int(1))]);
        let names: Vec<Option<&str>> = found.sets[0].spans.iter().map(|span| span.name.as_deref()).collect();
        assert_eq!(names, [Some("op2"), Some("op4")]);
    }

    /// Breaks if texts of an answer are held without reserving memory for them.
    #[test]
    fn a_set_counts_what_it_holds() {
        let bytes = |text: &str, spans: usize| hit(text, spans).unwrap().sets[0].bytes();
        let one = bytes("{ kind = client }", 1);
        assert!(one >= size_of::<HitSet>() + size_of::<HitSpan>() + "client".len());
        assert!(bytes("{ kind = client }", 2) - one >= size_of::<HitSpan>() + "client".len());
        assert!(bytes("{ kind = client && name != nil }", 1) >= one + "op2".len());
        assert!(bytes("{ kind = client } | by(name)", 1) > one);
    }
}
