//! Snapshots for reading spans, and the tables over them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use quiver_types::scan::{PlannedScan, ScanShape, ScanSource};
use quiver_types::spans::{RollupRequest, SpanRequest, SpanSnapshot, SpanSource, TagRequest, schema_of};
use quiver_types::{Access, Error, MillisRange, ReadStats, Result, Version};

use super::duplicates::Repeats;
use super::planned_scan::SpansScan;
use super::rollup::{self, LiveRollup};
use super::stream::ScanShared;
use super::tags;
use crate::snapshot::{Snapshot, SnapshotPublisher};

/// Provides snapshots of the store for reading spans.
#[derive(Debug)]
pub struct SpanSnapshots {
    shared: Arc<SnapshotPublisher>,
    live: Arc<LiveRollup>,
    repeats: Arc<Repeats>,
}

impl SpanSnapshots {
    /// Reads what a store publishes.
    pub(crate) fn new(shared: Arc<SnapshotPublisher>) -> Self {
        Self { shared, live: Arc::default(), repeats: Arc::default() }
    }
}

impl SpanSource for SpanSnapshots {
    fn snapshot(&self) -> Arc<dyn SpanSnapshot> {
        let (shared, live, repeats) = (Arc::clone(&self.shared), Arc::clone(&self.live), Arc::clone(&self.repeats));
        Arc::new(StoreSpanSnapshot { snapshot: shared.snapshot(), shared, live, repeats })
    }
}

#[derive(Debug)]
pub(super) struct StoreSpanSnapshot {
    pub(super) snapshot: Snapshot,
    shared: Arc<SnapshotPublisher>,
    live: Arc<LiveRollup>,
    repeats: Arc<Repeats>,
}

impl SpanSnapshot for StoreSpanSnapshot {
    fn version(&self) -> Option<Version> {
        Some(self.snapshot.version())
    }

    fn is_unchanged(&self, since: Version, range: MillisRange) -> bool {
        self.snapshot.is_unchanged(&self.shared, self.shared.span_changes(), since, range)
    }
}

/// Creates a table of the spans in a snapshot that match a request and that the caller may see. Reads are counted in
/// the `ReadStats` of the scan's task; `stats` tell whether some spans are hidden from the user.
///
/// # Errors
/// Internal: the snapshot is from another source.
pub fn spans_table(
    snapshot: &Arc<dyn SpanSnapshot>,
    access: &Access,
    request: &SpanRequest,
    stats: &ReadStats,
) -> Result<Arc<dyn ScanSource>> {
    let pinned = pinned(snapshot)?;
    let scan = ScanShared::new(&pinned.snapshot, &pinned.repeats, access.clone(), request.clone());
    let (schema, hidden) = (schema_of(&request.columns), stats.is_hidden());
    Ok(Arc::new(SpansTable { schema, scan: Arc::new(scan), hidden }))
}

pub(super) fn pinned(snapshot: &Arc<dyn SpanSnapshot>) -> Result<&StoreSpanSnapshot> {
    let snapshot: &dyn Any = &**snapshot;
    snapshot
        .downcast_ref::<StoreSpanSnapshot>()
        .ok_or_else(|| Error::internal("this snapshot was taken by another source"))
}

/// Creates a table of the roll-ups of the spans in a snapshot, as far as the caller may see them. Reads are counted in
/// the `ReadStats` of the scan's task.
///
/// # Errors
/// Internal: the snapshot is from another source.
pub fn rollups_table(
    snapshot: &Arc<dyn SpanSnapshot>,
    access: &Access,
    request: RollupRequest,
) -> Result<Arc<dyn ScanSource>> {
    let pinned = pinned(snapshot)?;
    Ok(rollup::table(&pinned.snapshot, (&pinned.live, &pinned.repeats), access, request))
}

/// Creates a table of attribute keys or values in a snapshot, counted over the spans that match a request and that the
/// caller may see. Reads are counted in the `ReadStats` of the scan's task.
///
/// # Errors
/// Internal: the snapshot is from another source.
pub fn tags_table(
    snapshot: &Arc<dyn SpanSnapshot>,
    access: &Access,
    request: &TagRequest,
) -> Result<Arc<dyn ScanSource>> {
    let pinned = pinned(snapshot)?;
    Ok(tags::table(&pinned.snapshot, &pinned.repeats, access.clone(), request.clone()))
}

struct SpansTable {
    schema: SchemaRef,
    scan: Arc<ScanShared>,
    hidden: bool,
}

impl fmt::Debug for SpansTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpansTable").field("request", &self.scan.request).finish_non_exhaustive()
    }
}

impl ScanSource for SpansTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn rows_about(&self) -> Option<usize> {
        // Query plans depend on this number and `explain` shows them, so it must not reveal spans that the user may not
        // see.
        (!self.hidden).then(|| self.scan.rows_about())
    }

    fn scan(&self, shape: &ScanShape) -> Result<Arc<dyn PlannedScan>> {
        Ok(Arc::new(SpansScan::try_new(&self.scan, self.hidden, shape.clone())?))
    }
}
