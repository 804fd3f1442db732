//! State that the partitions of a log scan share.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use quiver_types::logs::{FieldNames, LogForm, LogRequest};
use quiver_types::scan::ScanCounters;
use quiver_types::{Access, ReadStats};

use super::blocks::{Blocks, Queue, Sources};
use super::value_counts::LeftOut;

/// A scan: its sources, the caller's access, and what it returns.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) sources: Sources,
    pub(super) access: Access,
    pub(super) request: Arc<LogRequest>,
    pub(super) projection: Vec<usize>,
    pub(super) schema: SchemaRef,
    /// The fields that the filter examines.
    pub(super) filter_fields: FieldNames,
}

/// What the partitions share during one run of the scan.
#[derive(Debug)]
pub(super) struct ScanRun {
    pub(super) blocks: Arc<Blocks>,
    /// Blocks that no partition has taken yet.
    pub(super) queue: Queue,
    /// Fields whose values are no longer counted.
    pub(super) left_out: LeftOut,
}

impl Scan {
    /// Tells whether a field is among the returned ones.
    pub(super) fn gives(&self, name: &str) -> bool {
        let columns = &self.request.columns;
        match columns.iter().position(|column| column.name == name) {
            Some(at) => self.projection.contains(&at),
            None => self.request.form == LogForm::Rows && self.projection.contains(&columns.len()),
        }
    }
}

/// Adds statistics to the node and to the query.
pub(super) fn count(counted: &ReadStats, node: &dyn ScanCounters, query: &ReadStats) {
    node.add(&counted.drain_into(query));
}
