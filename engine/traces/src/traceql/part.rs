//! A part of a trace: the spans that a filter wants, with some of those above and below them (Tempo's `tracefilter`).

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::spans::SpanId;

use super::ast::{Query, Spanset};
use super::fields::{Field, Intrinsic};
use crate::assemble::Trace;

/// Which spans of a trace are given.
#[derive(Debug, Clone)]
pub struct TracePart {
    query: Query,
    above: usize,
    below: usize,
}

impl TracePart {
    /// Reads a filter. Of the spans above and below those that pass it, so many levels are given, too.
    ///
    /// # Errors
    /// The text is not one set of spans, or it asks for more than what a span itself tells; the reason has Tempo's words.
    pub fn parse(text: &str, above: usize, below: usize) -> Result<Self, String> {
        let invalid = |reason: String| Err(format!("invalid TraceQL filter: {reason}"));
        let query = match Query::parse(text) {
            Ok(query) => query,
            Err(error) => return invalid(format!("failed to parse TraceQL spanset filter: {error}")),
        };
        if !matches!(query.spans, Spanset::Filter(_)) || !query.stages.is_empty() || query.is_metric() {
            return invalid("only a single TraceQL filter is supported".to_owned());
        }
        let of_trace = query.named_fields().into_iter().find(|field| is_of_trace(field));
        if let Some(field) = of_trace {
            return invalid(format!("intrinsic is not supported by this filter: \"{field}\""));
        }
        Ok(Self { query, above, below })
    }

    /// Keeps the spans of a trace that are given.
    pub fn keep(&self, trace: &mut Trace) {
        let found = self.query.find(trace).map(|found| found.spans).unwrap_or_default();
        let by_id: HashMap<SpanId, usize, FixedState> =
            trace.spans.iter().enumerate().map(|(i, span)| (span.span_id, i)).collect();
        let (mut parents, mut children) = (vec![Vec::new(); trace.spans.len()], vec![Vec::new(); trace.spans.len()]);
        for (i, span) in trace.spans.iter().enumerate() {
            if let Some(&parent) = span.parent.and_then(|id| by_id.get(&id)) {
                parents[i].push(parent);
                children[parent].push(i);
            }
        }
        let (above, below) = (reached(&found, self.above, &parents), reached(&found, self.below, &children));
        let mut wanted: Vec<bool> = above.into_iter().zip(below).map(|(above, below)| above || below).collect();
        for i in found {
            wanted[i] = true;
        }
        let mut wanted = wanted.into_iter();
        trace.spans.retain(|_| wanted.next().unwrap_or(false));
    }
}

/// Whether what a field says takes more than the span.
fn is_of_trace(field: &Field) -> bool {
    use Intrinsic::{
        ChildCount, NestedSetLeft, NestedSetParent, NestedSetRight, RootName, RootService, TraceDuration, TraceId,
    };
    let Field::Intrinsic(intrinsic) = field else { return false };
    matches!(
        intrinsic,
        ChildCount
            | NestedSetLeft
            | NestedSetParent
            | NestedSetRight
            | RootName
            | RootService
            | TraceDuration
            | TraceId
    )
}

/// Which spans are within some steps of others. Spans may be each other's parents, so each is taken once.
fn reached(from: &[usize], levels: usize, near: &[Vec<usize>]) -> Vec<bool> {
    let mut seen = vec![false; near.len()];
    let mut last = from.to_vec();
    for _ in 0..levels {
        let mut next = Vec::new();
        for &other in last.iter().flat_map(|&i| &near[i]) {
            if !std::mem::replace(&mut seen[other], true) {
                next.push(other);
            }
        }
        if next.is_empty() {
            break;
        }
        last = next;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::assemble;
    use crate::assemble::tests::span;

    /// A chain of five spans, beside whose third there is another; and two that are each other's parents.
    fn trace() -> Trace {
        let of = |id: u64, parent: u64| span(id, parent, "shop", 2, id as i64, 10 + id as i64);
        let chain = (1..6).map(|id| of(id, id - 1));
        assemble([1; 16], chain.chain([of(6, 2), of(7, 8), of(8, 7)]).collect())
    }

    fn kept(text: &str, above: usize, below: usize) -> Vec<u64> {
        let mut trace = trace();
        TracePart::parse(text, above, below).expect(text).keep(&mut trace);
        trace.spans.iter().map(|span| u64::from_be_bytes(span.span_id)).collect()
    }

    #[test]
    fn spans_above_and_below_are_given_by_levels() {
        let third = r#"{ name = "op3" }"#;
        for (above, below, expected) in [
            (0, 0, &[3][..]),
            (1, 0, &[2, 3]),
            (usize::MAX, 0, &[1, 2, 3]),
            (0, 1, &[3, 4]),
            (0, usize::MAX, &[3, 4, 5]),
            (usize::MAX, usize::MAX, &[1, 2, 3, 4, 5]),
        ] {
            assert_eq!(kept(third, above, below), expected, "{above} {below}");
        }
        assert_eq!(kept(r#"{ span:id = "0000000000000007" }"#, usize::MAX, usize::MAX), [7, 8]);
        assert_eq!(kept("{}", 0, 0).len(), 8);
        assert!(kept("{ status = error }", usize::MAX, usize::MAX).is_empty());
    }

    #[test]
    fn what_is_no_single_filter_is_refused() {
        let one = "only a single TraceQL filter is supported";
        for (text, reason) in [
            ("{} >> {}", one),
            ("{} | count() > 1", one),
            ("{} | rate()", one),
            ("{} || {}", one),
            (r#"{ rootName = "x" }"#, "intrinsic is not supported by this filter: \"rootName\""),
            ("{ !(duration > 1s && traceDuration > 1s) }", "intrinsic is not supported"),
            ("{", "failed to parse TraceQL spanset filter: parse error at line 1"),
        ] {
            let error = TracePart::parse(text, 0, 0).expect_err(text);
            assert!(error.starts_with(&format!("invalid TraceQL filter: {reason}")), "{text}: {error}");
        }
    }
}
