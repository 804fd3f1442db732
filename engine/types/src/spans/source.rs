//! The traits through which the trace engine reads the store: snapshots and scan requests.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{SpanColumn, SpanFilter};
use crate::{MillisRange, Version};

/// Gives snapshots of the spans of a store.
pub trait SpanSource: Send + Sync + fmt::Debug {
    /// Pins what is visible now. All scans of one query read from one snapshot.
    fn snapshot(&self) -> Arc<dyn SpanSnapshot>;
}

/// What was visible at one moment. The scan itself is a [`crate::scan::ScanSource`] (`quiver_store::spans_table`), for which the
/// store gets its own snapshot back.
pub trait SpanSnapshot: Any + Send + Sync + fmt::Debug {
    /// Gives the moment; none: the source tells none from another.
    fn version(&self) -> Option<Version> {
        None
    }

    /// Says whether the spans that start in a range are those that an older snapshot saw.
    fn is_unchanged(&self, _since: Version, _range: MillisRange) -> bool {
        false
    }
}

/// What a scan is asked for. Rows come in no promised order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpanRequest {
    /// Which spans are given; those that the caller may not see are left out besides.
    pub filter: SpanFilter,
    /// Columns, in this order.
    pub columns: Vec<SpanColumn>,
}
