//! One row about a trace, over the spans that the caller may see (`traces-api` 3.1).

use std::collections::BTreeMap;

use quiver_types::spans::{Span, SpanId, TraceId, hex};
use serde_json::{Value, json};

use crate::assemble::Trace;
use crate::tree::Tree;

/// Spans of one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCount {
    /// Service.
    pub name: String,
    /// Spans.
    pub spans: u64,
    /// Spans that failed.
    pub errors: u64,
}

/// A span that a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matched {
    pub(crate) span_id: SpanId,
    pub(crate) service: String,
    pub(crate) name: String,
    pub(crate) duration: i64,
    pub(crate) error: bool,
}

/// What is known of a trace at a glance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Trace.
    pub id: TraceId,
    /// Service of the main root.
    pub root_service: String,
    /// Name of the main root.
    pub root_name: String,
    /// Whether the root is not among the spans.
    pub root_missing: bool,
    /// Earliest start.
    pub start: i64,
    /// Latest end.
    pub end: i64,
    /// Spans.
    pub spans: u64,
    /// Spans that failed.
    pub errors: u64,
    /// Spans whose parent is not there.
    pub orphans: u64,
    /// By service, in order of names.
    pub services: Vec<ServiceCount>,
    /// Spans that the search found.
    pub(crate) matched: u64,
    /// The first of them.
    pub(crate) first: Vec<Matched>,
}

impl Summary {
    /// Length in nanoseconds.
    pub fn duration(&self) -> i64 {
        self.end.saturating_sub(self.start)
    }

    /// Gives the row as JSON.
    pub fn to_json(&self) -> Value {
        let services: Vec<Value> =
            (self.services.iter()).map(|s| json!({"name": s.name, "spans": s.spans, "errors": s.errors})).collect();
        let first: Vec<Value> = (self.first.iter())
            .map(|m| {
                json!({"spanId": hex(&m.span_id), "service": m.service, "name": m.name, "durationNs": m.duration,
                    "error": m.error})
            })
            .collect();
        json!({
            "traceId": hex(&self.id), "rootService": self.root_service, "rootName": self.root_name,
            "rootMissing": self.root_missing, "start": self.start.to_string(), "end": self.end.to_string(),
            "durationNs": self.duration(), "spans": self.spans, "errors": self.errors, "services": services,
            "matched": {"spans": self.matched, "first": first},
        })
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
    let orphans = trace.spans.iter().zip(&tree.parent).filter(|(s, p)| s.parent.is_some() && p.is_none());
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
