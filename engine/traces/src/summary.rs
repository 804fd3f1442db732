//! One row about a trace, over the spans that the caller may see (`traces-api` 3.1).

use std::collections::BTreeMap;

use quiver_types::spans::{Span, SpanId, TraceId};

use crate::assemble::Trace;
use crate::span_tree::Tree;

/// Spans of one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCount {
    /// `service.name`; `unknown_service` when spans have none.
    pub name: String,
    /// Number of its spans in the trace.
    pub spans: u64,
    /// Those of them that failed (status `error`).
    pub errors: u64,
}

/// A span that a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedSpan {
    /// Its id.
    pub span_id: SpanId,
    /// `service.name`; `unknown_service` when it has none.
    pub service: String,
    /// Its name.
    pub name: String,
    /// Its length in nanoseconds.
    pub duration: i64,
    /// Whether it failed (status `error`).
    pub error: bool,
}

/// What is known of a trace at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// The trace id, all 16 bytes.
    pub id: TraceId,
    /// Service of the main root; `unknown_service` when it has none.
    pub root_service: String,
    /// Name of the main root.
    pub root_name: String,
    /// Whether the root is not among the spans.
    pub root_missing: bool,
    /// Earliest start of a span, Unix nanoseconds.
    pub start: i64,
    /// Latest end of a span, Unix nanoseconds.
    pub end: i64,
    /// Number of all spans of the trace, matching or not.
    pub spans: u64,
    /// Those of them that failed (status `error`).
    pub errors: u64,
    /// Spans that name a parent which is not among them.
    pub orphans: u64,
    /// By service, in order of names.
    pub services: Vec<ServiceCount>,
    /// Number of spans that the search found.
    pub matched: u64,
    /// The first of them.
    pub first: Vec<MatchedSpan>,
}

impl Summary {
    /// Length in nanoseconds.
    pub fn duration(&self) -> i64 {
        self.end.saturating_sub(self.start)
    }
}

/// Sums a trace up; `None` without spans.
pub fn summarize(trace: &Trace) -> Option<Summary> {
    let tree = Tree::of(trace);
    let root: &Span = &trace.spans[tree.main_root(trace)?];
    let mut services: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for span in &trace.spans {
        let count = services.entry(span.service_shown()).or_default();
        count.0 += 1;
        count.1 += u64::from(span.is_error());
    }
    let orphans = (0..trace.spans.len()).filter(|&span| tree.is_orphan(trace, span));
    Some(Summary {
        id: trace.id,
        root_service: root.service_shown().to_owned(),
        root_name: root.name.clone(),
        root_missing: root.parent.is_some(),
        start: trace.start(),
        end: trace.end(),
        spans: trace.spans.len() as u64,
        errors: services.values().map(|s| s.1).sum(),
        orphans: orphans.count() as u64,
        services: services
            .into_iter()
            .map(|(name, (spans, errors))| ServiceCount { name: name.to_owned(), spans, errors })
            .collect(),
        matched: 0,
        first: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::STATUS_ERROR;

    use super::*;
    use crate::assemble::assemble;
    use crate::assemble::tests::span;

    /// Breaks if a trace whose root is hidden from the caller is shown with a root.
    #[test]
    fn a_trace_without_its_root() {
        let mut failed = span(3, 2, "b", 3, 30, 70);
        failed.status = STATUS_ERROR;
        let trace = assemble([7; 16], vec![span(2, 1, "", 2, 20, 60), failed, span(4, 9, "b", 3, 25, 26)]);
        let summary = summarize(&trace).unwrap();
        assert_eq!((summary.root_service.as_str(), summary.root_name.as_str()), ("unknown_service", "op2"));
        assert!(summary.root_missing);
        assert_eq!((summary.spans, summary.errors, summary.orphans, summary.duration()), (3, 1, 2, 50));
        assert_eq!((summary.id, summary.start, summary.end, summary.matched), ([7; 16], 20, 70, 0));
        let service = |name: &str, spans, errors| ServiceCount { name: name.to_owned(), spans, errors };
        assert_eq!(summary.services, [service("b", 2, 1), service("unknown_service", 1, 0)]);
    }

    #[test]
    fn the_first_root_stands_for_the_trace() {
        // One whose parent is not there begins first; what has no parent goes before it.
        let spans = vec![span(5, 9, "a", 2, 10, 90), span(6, 0, "b", 2, 30, 40), span(7, 0, "c", 2, 20, 21)];
        let summary = summarize(&assemble([1; 16], spans)).unwrap();
        assert_eq!((summary.root_name.as_str(), summary.root_missing, summary.orphans), ("op7", false, 1));
        assert_eq!(summarize(&Trace::default()), None);
    }
}
