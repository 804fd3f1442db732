//! Avoids reading rows that an operator will not use: a series without a partner on the other side of a binary operator
//! has no result, and the labels of both sides are known before samples are read.
//!
//! Done only if it cannot be observed: not with native histograms, not with functions that add an annotation for each
//! metric name they see, and not where any sample at all makes a function complain or fail.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::LogicalPlan;
use quiver_query::{from_datafusion, scan_table};
use quiver_types::Result;

use super::scan::{SelectorScan, scan_of};
use super::{Planner, VectorPlan};
use crate::functions::names_counter;
use crate::nodes::driver::Param;
use crate::nodes::rollup::{Rollup, RollupFunction};

/// Maps the rows of a vector to the series of the scan below it.
#[derive(Debug, Clone)]
pub(crate) struct Narrow {
    scanned: Arc<SelectorScan>,
    /// Row of the vector that each series of the scan belongs to; `None` if they are the same.
    rows: Option<Arc<Vec<u32>>>,
}

impl Narrow {
    /// The mapping for a rollup over a scan; `None` if excluding series could be observed.
    pub(crate) fn of_rollup(rollup: &Rollup, scanned: SelectorScan) -> Option<Self> {
        let silent = match rollup.function {
            RollupFunction::Instant(_) => true,
            RollupFunction::Smoothed => false,
            RollupFunction::Range(function) => {
                let table = &rollup.table;
                let params = |good: fn(f64) -> bool| {
                    rollup.params.iter().all(|param| matches!(param, Param::Const(value) if good(*value)))
                };
                match function.name {
                    "rate" | "increase" => (0..table.len()).all(|row| names_counter(table.metric(row))),
                    "quantile_over_time" => params(|quantile| (0.0..=1.0).contains(&quantile)),
                    "double_exponential_smoothing" => params(|factor| factor > 0.0 && factor < 1.0),
                    _ => true,
                }
            }
        };
        (silent && !rollup.histograms).then(|| Self { scanned: Arc::new(scanned), rows: None })
    }

    /// The mapping for an aggregation over this; `groups` has the group of each row.
    pub(crate) fn grouped(&self, groups: &[u32]) -> Self {
        let rows = match &self.rows {
            None => groups.to_vec(),
            Some(rows) => rows.iter().map(|&row| groups[row as usize]).collect(),
        };
        Self { scanned: Arc::clone(&self.scanned), rows: Some(Arc::new(rows)) }
    }
}

impl Planner {
    /// Excludes the rows that are `false` in `keep` from reading, if possible. No user of the plan may need them.
    pub(crate) fn restrict(&self, vector: &mut VectorPlan, keep: Vec<bool>) -> Result<()> {
        if vector.histograms || !keep.contains(&false) {
            return Ok(());
        }
        let Some(Narrow { scanned, rows }) = &mut vector.narrow else { return Ok(()) };
        let scanned = Arc::make_mut(scanned);
        scanned.selected.restrict(match rows {
            None => keep,
            Some(rows) => rows.iter().map(|&row| keep[row as usize]).collect(),
        });
        let table = scan_table(scanned.selected.samples_table(scanned.request, &self.run.ctx.stats));
        let scan = scan_of(&scanned.name, &table)?;
        let before = std::mem::replace(&mut scanned.table, table);
        let inputs = vector.rollup.iter_mut().flat_map(|(_, inputs)| inputs);
        for plan in std::iter::once(&mut vector.plan).chain(inputs) {
            *plan = with_scan(plan.clone(), &before, &scan)?;
        }
        Ok(())
    }
}

/// Replaces the scan of a table in a plan by another one.
fn with_scan(plan: LogicalPlan, before: &Arc<dyn TableProvider>, scan: &LogicalPlan) -> Result<LogicalPlan> {
    let replaced = plan.transform_down(|node| {
        let LogicalPlan::TableScan(found) = &node else { return Ok(Transformed::no(node)) };
        if !Arc::ptr_eq(&source_as_provider(&found.source)?, before) {
            return Ok(Transformed::no(node));
        }
        Ok(Transformed::new(scan.clone(), true, TreeNodeRecursion::Stop))
    });
    replaced.map(|replaced| replaced.data).map_err(from_datafusion)
}
