//! Samples of selectors as they are stored, for federation and remote read. With the same label phase, scan, limits and
//! cancellation as queries.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use futures::StreamExt;
use quiver_query::{Pace, QueryContext, QueryEngine, Rules, from_datafusion};
use quiver_types::{
    Matcher, MillisRange, Result, SampleRequest, SelectedSeries, SeriesSelector, SeriesSnapshot, SeriesTable,
};

use crate::kernel::SeriesSamples;
use crate::nodes::samples::{SampleBatch, SampleBuffers};
use crate::plan::scan::sample_scan;

mod bit_writer;
pub mod chunks;
mod newest;
mod sorted_chunks;

pub use newest::{NewestSamples, NewestValue};
pub use sorted_chunks::OrderedChunks;

/// Reads one snapshot; use it inside of [`QueryEngine::run`].
#[derive(Debug, Clone)]
pub struct RawReader {
    pub(crate) snapshot: Arc<dyn SeriesSnapshot>,
    pub(crate) engine: Arc<QueryEngine>,
    pub(crate) ctx: QueryContext,
}

/// The series of a selector, and how to read their samples.
#[derive(Debug)]
pub struct RawSeries {
    /// Labels of the series; a row number stands for a series.
    pub table: Arc<SeriesTable>,
    plan: LogicalPlan,
    engine: Arc<QueryEngine>,
    ctx: QueryContext,
}

impl RawReader {
    /// Resolves a selector; both ends of the range are in it.
    ///
    /// # Errors
    /// LimitExceeded, Timeout, Cancelled, Internal.
    pub async fn select(&self, matchers: Vec<Matcher>, range: MillisRange) -> Result<RawSeries> {
        let selected = self.selected(matchers, range).await?;
        let plan = self.scan(&selected, range)?;
        let (table, engine) = (Arc::clone(&selected.table), Arc::clone(&self.engine));
        Ok(RawSeries { table, plan, engine, ctx: self.ctx.clone() })
    }

    /// Calls for each series of a selector that may have samples in the range, with a table and its row there. Reads no
    /// samples.
    ///
    /// # Errors
    /// Those of the visitor; LimitExceeded, Timeout, Cancelled, Internal.
    pub async fn each_labels(
        &self,
        matchers: Vec<Matcher>,
        range: MillisRange,
        mut visit: impl FnMut(&SeriesTable, u32) -> Result<()>,
    ) -> Result<()> {
        let table = self.selected(matchers, range).await?.table;
        let pace = Pace::new(&self.ctx, "query execution");
        for row in 0..table.len() as u32 {
            pace.did(1 + table.names().len())?;
            visit(&table, row)?;
        }
        Ok(())
    }

    async fn selected(&self, matchers: Vec<Matcher>, range: MillisRange) -> Result<SelectedSeries> {
        let selector = SeriesSelector { matchers, range, labels: None };
        let selected = self.snapshot.select(&self.ctx.access, &selector, &self.ctx.stats).await?;
        self.ctx.check("query preparation")?;
        Ok(selected)
    }

    fn scan(&self, selected: &SelectedSeries, range: MillisRange) -> Result<LogicalPlan> {
        let request = SampleRequest {
            range,
            histograms: selected.has_histograms,
            floats: true,
            start_times: false,
            read_repeatedly: false,
        };
        sample_scan("samples", selected, request, &self.ctx.stats)
    }
}

impl RawSeries {
    /// Calls for each row that has samples, in any order; stale markers are among them.
    ///
    /// # Errors
    /// Those of the visitor; LimitExceeded, Timeout, Cancelled, Internal.
    pub async fn each(&self, mut visit: impl FnMut(u32, &SeriesSamples<'_>) -> Result<()>) -> Result<()> {
        let mut batches = self.engine.execute(&self.plan, &self.ctx, Rules::Direct).await?;
        let mut buffers = SampleBuffers::default();
        while let Some(batch) = batches.next().await {
            let batch = SampleBatch::new(&batch.map_err(from_datafusion)?).map_err(from_datafusion)?;
            for idx in 0..batch.len() {
                self.ctx.check("query execution")?;
                let samples = batch.series(idx, &mut buffers).map_err(from_datafusion)?;
                visit(batch.row(idx), &samples)?;
            }
        }
        Ok(())
    }
}
