//! How the trace engine reaches spans: a request becomes a DataFusion table.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use quiver_types::spans::{KnownKind, Place, RollupRequest, SpanRequest, SpanSnapshot, TagRequest};
use quiver_types::{Access, ReadStats, Result};

/// Gives tables over the spans of a snapshot. Implemented by the binary over the store.
///
/// The schema is `quiver_types::spans::schema_of` the columns; rows are those that the filter takes and the caller may
/// see, in no promised order. What scans read counts in the `ReadStats` of the task that they run with.
#[async_trait]
pub trait SpanTables: Send + Sync + Debug {
    /// Makes the table; `stats` say whether spans are hidden from whoever asks.
    ///
    /// # Errors
    /// Whatever the snapshot says when it looks at the request.
    fn spans(
        &self,
        snapshot: &Arc<dyn SpanSnapshot>,
        access: &Access,
        request: &SpanRequest,
        stats: &ReadStats,
    ) -> Result<Arc<dyn TableProvider>>;

    /// Says what values of attributes of spans or their resources are, out of what the store keeps of its files; `Unknown`
    /// where only rows could tell.
    async fn kinds(
        &self,
        snapshot: &Arc<dyn SpanSnapshot>,
        access: &Access,
        attributes: &[(Place, String)],
        stats: &ReadStats,
    ) -> Result<Vec<KnownKind>>;

    /// Makes the table of roll-ups: columns are `quiver_types::spans::rollup_schema`, rows as the caller may see them.
    ///
    /// # Errors
    /// Whatever the snapshot says when it looks at the request.
    fn rollups(
        &self,
        snapshot: &Arc<dyn SpanSnapshot>,
        access: &Access,
        request: &RollupRequest,
    ) -> Result<Arc<dyn TableProvider>>;

    /// Makes the table of keys or values of attributes: columns are `quiver_types::spans::tag_schema`, counted over the
    /// spans that the filter takes and the caller may see.
    ///
    /// # Errors
    /// Whatever the snapshot says when it looks at the request.
    fn tags(
        &self,
        snapshot: &Arc<dyn SpanSnapshot>,
        access: &Access,
        request: &TagRequest,
    ) -> Result<Arc<dyn TableProvider>>;
}
