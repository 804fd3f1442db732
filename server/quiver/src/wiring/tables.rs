//! Logs and spans of the store as tables of the engine.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use quiver_query::{LogTables, SpanTables, scan_table};
use quiver_types::logs::{LogRequest, LogSnapshot};
use quiver_types::spans::{KnownKind, Place, RollupRequest, SpanRequest, SpanSnapshot, TagRequest};
use quiver_types::{Access, ReadStats, Result};

/// Logs of the store as tables.
#[derive(Debug)]
pub(super) struct StoreLogs;

impl LogTables for StoreLogs {
    fn logs(
        &self,
        snapshot: &Arc<dyn LogSnapshot>,
        access: &Access,
        request: LogRequest,
        stats: &ReadStats,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(scan_table(quiver_store::logs_table(&**snapshot, access, request, stats)?))
    }
}

/// Spans of the store as tables.
#[derive(Debug)]
pub(super) struct StoreSpans;

#[async_trait]
impl SpanTables for StoreSpans {
    fn spans(
        &self,
        snapshot: &Arc<dyn SpanSnapshot>,
        access: &Access,
        request: &SpanRequest,
        stats: &ReadStats,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(scan_table(quiver_store::spans_table(snapshot, access, request, stats)?))
    }

    async fn kinds(
        &self,
        snapshot: &Arc<dyn SpanSnapshot>,
        access: &Access,
        attributes: &[(Place, String)],
        stats: &ReadStats,
    ) -> Result<Vec<KnownKind>> {
        quiver_store::attribute_kinds(snapshot, access, attributes, stats).await
    }

    fn rollups(
        &self,
        snapshot: &Arc<dyn SpanSnapshot>,
        access: &Access,
        request: &RollupRequest,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(scan_table(quiver_store::rollups_table(snapshot, access, request.clone())?))
    }

    fn tags(
        &self,
        snapshot: &Arc<dyn SpanSnapshot>,
        access: &Access,
        request: &TagRequest,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(scan_table(quiver_store::tags_table(snapshot, access, request)?))
    }
}
