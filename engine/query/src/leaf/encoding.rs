//! The written form of the leaf: that of its scan, which the store knows.

use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use quiver_types::scan::ScanForms;

use super::node::ScanExec;
use crate::encoding::{Forms, NodeCodec};
use crate::error::to_datafusion;

/// Writes and reads scans of a store.
#[derive(Debug)]
pub struct LeafForms {
    scans: Arc<dyn ScanForms>,
}

impl LeafForms {
    /// Writes scans as a store says.
    pub fn new(scans: Arc<dyn ScanForms>) -> Self {
        Self { scans }
    }
}

impl NodeCodec for LeafForms {
    fn of(&self) -> &'static str {
        "store"
    }

    fn write(&self, node: &dyn ExecutionPlan, _: &dyn Forms) -> Result<Option<Vec<u8>>> {
        let Some(node) = node.downcast_ref::<ScanExec>() else { return Ok(None) };
        self.scans.write(&**node.scan()).map_err(to_datafusion)
    }

    fn read(
        &self,
        bytes: &[u8],
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: &dyn Forms,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !children.is_empty() {
            return internal_err!("a scan has no children");
        }
        Ok(Arc::new(ScanExec::new(self.scans.read(bytes).map_err(to_datafusion)?)))
    }
}
