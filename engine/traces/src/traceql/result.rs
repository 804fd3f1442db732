//! What a query found in a trace: spans, and the sets that they are in.

use std::sync::Arc;

use super::value::FieldValue;

/// What a query found in a trace.
#[derive(Debug, Clone, Default)]
pub struct TraceMatch {
    /// Indexes of the wanted spans in [`Trace::spans`](crate::Trace::spans).
    pub spans: Vec<usize>,
    /// The sets that they are in.
    pub sets: Vec<FoundSet>,
}

/// Spans of a trace that go together.
#[derive(Debug, Clone, Default)]
pub struct FoundSet {
    /// Indexes of the spans in the trace, in its order.
    pub spans: Vec<usize>,
    /// What they have in common, and numbers that were compared.
    pub attributes: Vec<(Arc<str>, FieldValue)>,
}
