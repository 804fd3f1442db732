//! What the partitions of a scan of logs share.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use quiver_types::logs::{FieldNames, LogForm, LogRequest};
use quiver_types::scan::ScanCounters;
use quiver_types::{Access, ReadStats};

use super::blocks::{Blocks, Queue, Sources};
use super::values::LeftOut;

/// A scan: what it reads from, for whom, and what it gives.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) sources: Sources,
    pub(super) access: Access,
    pub(super) request: Arc<LogRequest>,
    pub(super) projection: Vec<usize>,
    pub(super) schema: SchemaRef,
    /// What the filter asks for.
    pub(super) filter_fields: FieldNames,
}

/// What the partitions share while the scan runs once.
#[derive(Debug)]
pub(super) struct ScanRun {
    pub(super) blocks: Arc<Blocks>,
    /// Blocks that nobody took.
    pub(super) queue: Queue,
    /// Fields whose values are not counted any more.
    pub(super) left_out: LeftOut,
}

impl Scan {
    /// Says whether a field is among those that are given out.
    pub(super) fn gives(&self, name: &str) -> bool {
        let columns = &self.request.columns;
        match columns.iter().position(|column| column.name == name) {
            Some(at) => self.projection.contains(&at),
            None => self.request.form == LogForm::Rows && self.projection.contains(&columns.len()),
        }
    }
}

/// Adds what was counted to the node and to the query.
pub(super) fn count(counted: &ReadStats, node: &dyn ScanCounters, query: &ReadStats) {
    node.add(&counted.drain_into(query));
}
