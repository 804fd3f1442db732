//! The table, and the snapshot that it reads.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use quiver_types::spans::{RollupRequest, SpanRequest, SpanSnapshot, SpanSource, TagRequest, schema_of};
use quiver_types::{Access, Error, MillisRange, ReadStats, Result, Version};

use super::exec::SpansExec;
use super::repeats::Repeats;
use super::rollup::{self, LiveRollup};
use super::stream::ScanShared;
use super::tags;
use crate::snapshot::{Shared, Snapshot};

/// Gives snapshots of the store for reading spans.
#[derive(Debug)]
pub struct SpanSnapshots {
    shared: Arc<Shared>,
    live: Arc<LiveRollup>,
    repeats: Arc<Repeats>,
}

impl SpanSnapshots {
    /// Reads from what a store publishes.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, live: Arc::default(), repeats: Arc::default() }
    }
}

impl SpanSource for SpanSnapshots {
    fn snapshot(&self) -> Arc<dyn SpanSnapshot> {
        let (shared, live, repeats) = (Arc::clone(&self.shared), Arc::clone(&self.live), Arc::clone(&self.repeats));
        Arc::new(Pinned { snapshot: shared.snapshot(), shared, live, repeats })
    }
}

#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) snapshot: Snapshot,
    shared: Arc<Shared>,
    live: Arc<LiveRollup>,
    repeats: Arc<Repeats>,
}

impl SpanSnapshot for Pinned {
    fn version(&self) -> Option<Version> {
        Some(self.snapshot.version())
    }

    fn is_unchanged(&self, since: Version, range: MillisRange) -> bool {
        self.snapshot.is_unchanged(&self.shared, self.shared.span_changes(), since, range)
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
    }
}

/// Makes a table of the spans of a snapshot that a request takes and a caller may see. What its scans read is added to
/// `stats`.
///
/// # Errors
/// Internal: the snapshot is of another source.
pub fn spans_table(
    snapshot: &Arc<dyn SpanSnapshot>,
    access: &Access,
    request: &SpanRequest,
    stats: Arc<ReadStats>,
) -> Result<Arc<dyn TableProvider>> {
    let pinned = pinned(snapshot)?;
    let scan = ScanShared::new(&pinned.snapshot, &pinned.repeats, access.clone(), request.clone(), stats);
    Ok(Arc::new(SpansTable { schema: schema_of(&request.columns), scan: Arc::new(scan) }))
}

/// What a planner hears of a table of so many rows, about.
pub(super) fn rows_about(rows: usize, schema: &SchemaRef) -> Statistics {
    Statistics { num_rows: Precision::Inexact(rows), ..Statistics::new_unknown(schema) }
}

pub(super) fn pinned(snapshot: &Arc<dyn SpanSnapshot>) -> Result<&Pinned> {
    let pinned = snapshot.as_any().downcast_ref::<Pinned>();
    pinned.ok_or_else(|| Error::internal("this snapshot was taken by another source"))
}

/// Makes a table of the roll-ups of spans of a snapshot, as a caller may see them. What its scans read is added to
/// `stats`.
///
/// # Errors
/// Internal: the snapshot is of another source.
pub fn rollups_table(
    snapshot: &Arc<dyn SpanSnapshot>,
    access: &Access,
    request: RollupRequest,
    stats: Arc<ReadStats>,
) -> Result<Arc<dyn TableProvider>> {
    let pinned = pinned(snapshot)?;
    rollup::table(&pinned.snapshot, (&pinned.live, &pinned.repeats), access, request, stats)
}

/// Makes a table of keys or values of attributes of a snapshot, counted over the spans that a request takes and a caller
/// may see. What its scan reads is added to `stats`.
///
/// # Errors
/// Internal: the snapshot is of another source.
pub fn tags_table(
    snapshot: &Arc<dyn SpanSnapshot>,
    access: &Access,
    request: &TagRequest,
    stats: Arc<ReadStats>,
) -> Result<Arc<dyn TableProvider>> {
    let pinned = pinned(snapshot)?;
    let spans = SpanRequest { filter: request.filter.clone(), columns: request.columns() };
    tags::table(ScanShared::new(&pinned.snapshot, &pinned.repeats, access.clone(), spans, stats), request.clone())
}

struct SpansTable {
    schema: SchemaRef,
    scan: Arc<ScanShared>,
}

impl fmt::Debug for SpansTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpansTable").field("request", &self.scan.request).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for SpansTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let partitions = state.config().target_partitions();
        Ok(Arc::new(SpansExec::try_new(&self.scan, projection.cloned(), limit, partitions)?))
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(rows_about(self.scan.rows_about(), &self.schema))
    }
}
