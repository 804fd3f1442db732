//! One query in progress: planned, executed, finished, or explained.

use std::sync::Arc;
use std::time::Instant;

use datafusion::logical_expr::LogicalPlan;
use futures::StreamExt;
use quiver_query::{Explain, from_datafusion};
use quiver_types::{Error, ErrorKind, Millis, Result, SeriesTable};
use serde_json::Value;

use super::evaluation::{EvaluationResult, QueryTimings, too_many_rows};
use crate::ast::Expr;
use crate::kernel::Grid;
use crate::nodes::samples::{SampleBatch, SampleBuffers};
use crate::plan::labels::ranks;
use crate::plan::{ExprPlan, Planner, RangePlan, ScalarPlan, Scope, VectorPlan};
use crate::range_ends::RangeEnds;
use crate::result::{QueryValue, RawResult, RowOrder, SampleResult, SampleSeries, StepResult, arrange};
use crate::sample_stats::{Counts, histogram_samples};
use crate::window::{StaleFree, extend_floats};

/// Memory of a sample in a result: time and value.
const SAMPLE_BYTES: usize = size_of::<Millis>() + size_of::<f64>();

/// Memory of a matrix value: the value and its presence.
const VALUE_BYTES: u64 = 9;
/// A matrix that needs this many times the memory for queries is refused at once.
const HOPELESS: u64 = 16;

/// A query being evaluated: planner, checked expression, steps.
pub(super) struct Job {
    pub(super) planner: Planner,
    pub(super) expr: Expr,
    pub(super) scope: Scope,
}

impl Job {
    pub(super) async fn evaluate(self) -> Result<EvaluationResult> {
        let mut timings = QueryTimings::default();
        let began = Instant::now();
        let planned = self.planner.operand(&self.expr, self.scope).await?;
        timings.plan = began.elapsed();
        let value = match planned {
            ExprPlan::String(text) => QueryValue::String { time_ms: self.scope.grid.start, text },
            ExprPlan::Scalar(scalar) => self.scalar(scalar, &mut timings).await?,
            ExprPlan::Vector(vector) => {
                let result = self.vector(vector, self.scope, &mut timings).await?;
                if self.is_range() { QueryValue::Matrix(result) } else { QueryValue::Vector(result) }
            }
            ExprPlan::Range(range) => self.samples(range, &mut timings).await?,
        };
        let run = &self.planner.run;
        let mut annotations = run.annotations();
        annotations.leave_out(run.ctx.stats.left_out.texts());
        let mut memory = run.take_memory();
        memory.0.push(self.planner.room.into_memory());
        Ok(EvaluationResult {
            value: Arc::new(value),
            annotations,
            timings,
            samples: run.sample_stats(),
            memory: Arc::new(memory),
        })
    }

    fn is_range(&self) -> bool {
        self.planner.times.step_ms > 0
    }

    async fn scalar(&self, scalar: ScalarPlan, timings: &mut QueryTimings) -> Result<QueryValue> {
        if self.is_range() {
            let plan = self.planner.scalar_plan(scalar, self.scope)?;
            let table = Arc::new(SeriesTable::unlabelled());
            let vector = VectorPlan::of_floats(plan, table, Arc::new(vec![false]));
            return self.vector(vector, self.scope, timings).await.map(QueryValue::Matrix);
        }
        let began = Instant::now();
        let values = self.planner.evaluate_scalar(&scalar).await?;
        timings.execute = began.elapsed();
        let value = values.first().copied().ok_or_else(|| Error::internal("a scalar without a value"))?;
        Ok(QueryValue::Scalar { time_ms: self.scope.grid.start, value })
    }

    async fn vector(&self, vector: VectorPlan, scope: Scope, timings: &mut QueryTimings) -> Result<StepResult> {
        let (table, drop_name) = (Arc::clone(&vector.table), Arc::clone(&vector.drop_name));
        let histograms = vector.histograms;
        let order = match (self.is_range(), vector.ordered) {
            (true, _) => RowOrder::Labels,
            (false, true) => RowOrder::Arrival,
            (false, false) => RowOrder::Table,
        };
        self.check_size(table.len(), scope.grid.steps)?;
        let plan = self.planner.finish(vector, scope)?;
        let began = Instant::now();
        let blocks = self.planner.evaluate(&plan).await?;
        timings.execute = began.elapsed();
        let began = Instant::now();
        let raw = RawResult { blocks, table: &table, drop_name: &drop_name, grid: scope.grid, histograms };
        let result = arrange(&self.planner.room, raw, order)?;
        self.check_rows(result.len())?;
        timings.arrange = began.elapsed();
        Ok(result)
    }

    /// Refuses hopelessly large queries before they cost anything: rows are dense, and even if many turn out to be
    /// empty, that cannot make up for many times the available memory.
    fn check_size(&self, rows: usize, steps: usize) -> Result<()> {
        let bytes = (rows * steps) as u64 * VALUE_BYTES;
        let max = self.planner.run.ctx.limits.memory_max;
        if bytes / HOPELESS > max {
            let text =
                format!("{rows} series at {steps} steps need {bytes} bytes, far more than the {max} for queries");
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        Ok(())
    }

    fn check_rows(&self, rows: usize) -> Result<()> {
        let max = self.planner.run.ctx.limits.rows_max;
        if rows as u64 > max {
            return Err(too_many_rows(rows, max));
        }
        Ok(())
    }

    async fn samples(&self, range: RangePlan, timings: &mut QueryTimings) -> Result<QueryValue> {
        let began = Instant::now();
        let (table, mut series) = match range {
            RangePlan::Grid { vector, grid } => {
                let scope = Scope::whole(grid, grid.steps == 1);
                let result = self.vector(vector, scope, timings).await?;
                let room = &self.planner.room;
                let mut series = Vec::with_capacity(result.len());
                for row in result.rows() {
                    let samples = row.present.iter().filter(|p| **p).count();
                    let hists: usize = row.hists.iter().map(|h| h.2.memory_bytes() + size_of::<Millis>()).sum();
                    room.take(size_of::<SampleSeries>() + samples * SAMPLE_BYTES + hists)?;
                    room.did(grid.steps)?;
                    series.push(grid_series(&row, grid));
                }
                (Arc::clone(&result.table), series)
            }
            RangePlan::Scan { plan, table, .. } if table.is_empty() => {
                drop(plan);
                (table, vec![])
            }
            RangePlan::Scan { plan, table, bounds, ends } => {
                let series = self.scan(&plan, bounds, ends).await?;
                (table, series)
            }
        };
        timings.execute = began.elapsed();
        self.check_rows(series.len())?;
        let began = Instant::now();
        let ranks = ranks(&self.planner.room, &table)?;
        series.sort_unstable_by_key(|s: &SampleSeries| ranks[s.row as usize]);
        timings.arrange = began.elapsed();
        Ok(QueryValue::Samples(SampleResult { table, series }))
    }

    async fn scan(&self, plan: &LogicalPlan, bounds: (Millis, Millis), ends: RangeEnds) -> Result<Vec<SampleSeries>> {
        self.planner.give_way_if_long().await;
        let run = &self.planner.run;
        let mut batches = self.planner.engine.execute(plan, &run.ctx, run.rules()).await?;
        let (mut buffers, mut stale) = (SampleBuffers::default(), StaleFree::default());
        let memory = self.planner.engine.reservation("samples", &self.planner.run.ctx);
        let mut out = Vec::new();
        while let Some(batch) = batches.next().await {
            let mut held = 0;
            let batch = SampleBatch::new(&batch.map_err(from_datafusion)?).map_err(from_datafusion)?;
            for idx in 0..batch.len() {
                let samples = batch.series(idx, &mut buffers).map_err(from_datafusion)?;
                let samples = stale.clean(samples);
                if ends.are_extended() && !samples.hists.is_empty() {
                    let text = format!("{} modifier is not supported with histograms", ends.word());
                    return Err(crate::plan::failed(text));
                }
                let hist_bytes: usize = samples.hists.iter().map(|h| h.memory_bytes() + size_of::<Millis>()).sum();
                let bytes = samples.ts.len() * SAMPLE_BYTES + hist_bytes + size_of::<SampleSeries>();
                memory.try_grow(bytes).map_err(from_datafusion)?;
                let (ts, values) = if ends.are_extended() {
                    extend_floats(samples.ts, samples.values, bounds.0, bounds.1, ends.are_smoothed())
                } else {
                    (samples.ts.to_vec(), samples.values.to_vec())
                };
                if ts.is_empty() && samples.hists.is_empty() {
                    continue;
                }
                held += ts.len() + samples.hists.len();
                out.push(SampleSeries {
                    row: batch.row(idx),
                    ts,
                    values,
                    hist_ts: samples.hist_ts.to_vec(),
                    hists: samples.hists.to_vec(),
                });
            }
            self.planner.run.hold(held).map_err(from_datafusion)?;
        }
        if let Some(tallies) = &self.planner.run.tallies {
            let mut counts = Counts::new(1);
            for s in &out {
                counts.both(0, s.ts.len() as u64 + s.hists.iter().map(histogram_samples).sum::<u64>());
            }
            tallies.add(0, &counts);
        }
        self.planner.run.keep(memory);
        Ok(out)
    }

    pub(super) async fn explain(self, explain: Explain) -> Result<Value> {
        let plan = match self.planner.operand(&self.expr, self.scope).await? {
            ExprPlan::String(text) => self.planner.row(format!("{text:?}"), vec![0.0])?,
            ExprPlan::Scalar(scalar) => self.planner.scalar_plan(scalar, self.scope)?,
            ExprPlan::Vector(vector) => self.planner.finish(vector, self.scope)?,
            ExprPlan::Range(RangePlan::Scan { plan, .. }) => plan,
            ExprPlan::Range(RangePlan::Grid { vector, grid }) => {
                self.planner.finish(vector, Scope::whole(grid, grid.steps == 1))?
            }
        };
        let run = &self.planner.run;
        self.planner.engine.explain(&plan, &run.ctx, run.rules(), explain).await
    }
}

fn grid_series(row: &crate::result::StepRow<'_>, grid: Grid) -> SampleSeries {
    let there = || (0..grid.steps).filter(|&s| row.present[s]);
    SampleSeries {
        row: row.row,
        ts: there().map(|s| grid.at(s)).collect(),
        values: there().map(|s| row.values[s]).collect(),
        hist_ts: row.hists.iter().map(|h| grid.at(h.1 as usize)).collect(),
        hists: row.hists.iter().map(|h| h.2.clone()).collect(),
    }
}
