//! How the trace engine reaches the store: snapshots, and what a scan is asked for.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::{SpanColumn, SpanFilter};

/// Gives snapshots.
pub trait SpanSource: Send + Sync + fmt::Debug {
    /// Pins what is visible now. All scans of one query read from one snapshot.
    fn snapshot(&self) -> Arc<dyn SpanSnapshot>;
}

/// What was visible at one moment. The scan itself is a `TableProvider` (`quiver_store::spans_table`).
pub trait SpanSnapshot: Send + Sync + fmt::Debug {
    /// For the store, which gets its own snapshot back.
    fn as_any(&self) -> &(dyn Any + Send + Sync);
}

/// What a scan is asked for. Rows come in no promised order.
#[derive(Debug, Clone)]
pub struct SpanRequest {
    /// Which spans.
    pub filter: SpanFilter,
    /// Columns, in this order.
    pub columns: Vec<SpanColumn>,
}
