//! Rows that an operator will not look at are not read: a series without a partner on the other side of a binary
//! operator gives no result, and both sides' labels are known before any sample is.
//!
//! Only where that cannot be seen: not with native histograms, and not where a function says something about the name
//! of each metric that it meets.

use std::sync::Arc;

use quiver_types::RowMask;

use super::VectorPlan;
use crate::functions::names_counter;
use crate::nodes::rollup::{Rollup, RollupFunction};

/// The way from the rows of a vector to the series of the scan below it.
#[derive(Debug, Clone)]
pub(crate) struct Narrow {
    keep: Arc<RowMask>,
    /// Row of the vector that each series of the scan belongs to; none: its own.
    rows: Option<Arc<Vec<u32>>>,
}

impl Narrow {
    /// The way for a rollup over a scan; none where leaving out series could be seen.
    pub(crate) fn of_rollup(rollup: &Rollup, keep: &Arc<RowMask>) -> Option<Self> {
        let silent = match rollup.function {
            RollupFunction::Instant(_) => true,
            RollupFunction::Smoothed => false,
            RollupFunction::Range(function) => {
                let table = &rollup.table;
                !matches!(function.name, "rate" | "increase")
                    || (0..table.len()).all(|row| names_counter(table.metric(row)))
            }
        };
        (silent && !rollup.histograms).then(|| Self { keep: Arc::clone(keep), rows: None })
    }

    /// The way for an aggregation over this: `groups` has the group of each row.
    pub(crate) fn grouped(&self, groups: &[u32]) -> Self {
        let rows = match &self.rows {
            None => groups.to_vec(),
            Some(rows) => rows.iter().map(|&row| groups[row as usize]).collect(),
        };
        Self { keep: Arc::clone(&self.keep), rows: Some(Arc::new(rows)) }
    }
}

impl VectorPlan {
    /// Keeps the rows that `keep` does not have from being read, where that is possible. They must be of no use to
    /// whoever uses this plan.
    pub(crate) fn restrict(&self, keep: Vec<bool>) {
        let Some(narrow) = self.narrow.as_ref().filter(|_| !self.histograms && keep.contains(&false)) else { return };
        let keep = match &narrow.rows {
            None => keep,
            Some(rows) => rows.iter().map(|&row| keep[row as usize]).collect(),
        };
        narrow.keep.restrict(keep);
    }
}
