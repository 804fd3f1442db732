//! The scan of metric samples: a series-major node of its own (`architecture` 8, `engines` 1.2).
//!
//! A `Selection` makes a table of the samples of selected series. Its node reads parts and live generations side by side in
//! series order and gives one row per series with its samples as lists; labels never travel with them.
//!
//! | column | type | |
//! |---|---|---|
//! | `row` | `UInt32` | row in `SelectedSeries::table`; ascending within a partition, no row in two partitions |
//! | `ts`, `v` | `ListView<Int64>`, `ListView<Float64>` | if floats: times (Unix ms, ascending, unique) and values, stale markers kept |
//! | `start_ts` | List<Int64> | if start times: one per sample, 0 = unset; empty = none known |
//! | `h_ts`, `h_start_ts`, `h` | List<Int64>, List<Int64>, List<Struct> | if histograms: likewise |
//!
//! List items are not null; a series with nothing in the range has no row.

mod batch;
mod plan;
mod planned_scan;
mod stream;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use quiver_types::scan::{PlannedScan, ScanShape, ScanSource};
use quiver_types::{ReadStats, Result, SampleRequest, SelectedSamples};

pub(crate) use planned_scan::{SamplesForm, SamplesScan};

use crate::select::Selection;

impl SelectedSamples for Selection {
    fn table(
        self: Arc<Self>,
        keep: Option<Arc<Vec<bool>>>,
        request: SampleRequest,
        stats: &ReadStats,
    ) -> Arc<dyn ScanSource> {
        let (schema, hidden) = (batch::schema(&request), stats.is_hidden());
        Arc::new(SamplesTable { schema, selection: self, keep, request, hidden })
    }
}

struct SamplesTable {
    selection: Arc<Selection>,
    /// Rows that are wanted; none: all.
    keep: Option<Arc<Vec<bool>>>,
    request: SampleRequest,
    hidden: bool,
    schema: SchemaRef,
}

impl fmt::Debug for SamplesTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SamplesTable")
            .field("selector", &self.selection.selector)
            .field("series", &self.selection.rows)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

impl ScanSource for SamplesTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn scan(&self, shape: &ScanShape) -> Result<Arc<dyn PlannedScan>> {
        let selection = match &self.keep {
            None => Arc::clone(&self.selection),
            Some(keep) => Arc::new(self.selection.kept(keep)),
        };
        Ok(Arc::new(SamplesScan::try_new(selection, self.request, self.hidden, shape.clone())?))
    }
}
