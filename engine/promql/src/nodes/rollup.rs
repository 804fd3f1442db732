//! From samples to steps: instant selectors (lookback) and functions of range vectors, over a scan or over the matrix
//! of a subquery.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use quiver_types::label::METRIC_NAME;
use quiver_types::series::LabelColumn;
use quiver_types::{Histogram, Millis, SeriesTable};
use serde::{Deserialize, Serialize};

use super::batch::{BlockBuilder, histogram_bytes, histograms_bytes, matrix_schema, to_block};
use super::driver::{Param, Worker, drive_after, params};
use super::operator_encoding::{self, Form};
use super::samples::{SampleBatch, SampleBuffers, grid_samples};
use super::{Batches, Env, Spread, StepOperator};
use crate::annotation::{AnnotationPlace, Annotations};
use crate::functions::{FunctionDef, Kernel, KernelContext, RangeCall, ScalarSteps, Scratch, function_reference};
use crate::kernel::{Grid, SeriesOut, SeriesSamples, Window};
use crate::run_state::RunState;
use crate::sample_stats::{Counts, TallyId};
use crate::window::{InstantValue, SharedWindows, StaleFree, WORK_AT_A_STRETCH, instant, instant_smoothed};

/// What is computed from the samples.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum RollupFunction {
    /// The newest sample of the lookback window, or its time.
    Instant(InstantValue),
    /// A `smoothed` value, interpolated between the samples around the step.
    Smoothed,
    /// A function of a range vector.
    Range(#[serde(with = "function_reference::of_range")] &'static FunctionDef),
}

/// Where samples come from.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum SampleSource {
    /// A scan of stored samples.
    Scan,
    /// The matrix of a subquery on its own grid.
    Grid(Grid),
}

/// The specification of a rollup.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Rollup {
    pub(crate) function: RollupFunction,
    pub(crate) source: SampleSource,
    /// Steps of the result.
    pub(crate) grid: Grid,
    /// Range and offset of the windows; there is one window per step.
    pub(crate) window: Window,
    /// Fixed end of all windows, for functions whose result still depends on the step.
    pub(crate) at: Option<Millis>,
    /// Scalar arguments of the function, constant or by step.
    pub(crate) params: Vec<Param>,
    /// What annotations refer to.
    pub(crate) place: AnnotationPlace,
    /// Labels of the rows, as annotations name the metric.
    pub(crate) table: Arc<SeriesTable>,
    /// Whether the samples may include histograms.
    pub(crate) histograms: bool,
    /// Whether only count and sum of histograms are needed.
    pub(crate) stats_only: bool,
    /// Where samples are counted, if at all.
    pub(crate) tally: TallyId,
}

impl Rollup {
    pub(crate) fn function_name(&self) -> &'static str {
        match self.function {
            RollupFunction::Instant(InstantValue::Value) => "last",
            RollupFunction::Instant(InstantValue::Timestamp) => "timestamp",
            RollupFunction::Instant(InstantValue::StartTimestamp) => "start_timestamp",
            RollupFunction::Smoothed => "smoothed",
            RollupFunction::Range(f) => f.name,
        }
    }

    /// Its text in plans.
    pub(crate) fn shown(&self) -> String {
        let w = &self.window;
        let mut out = format!("{} range={}ms", self.function_name(), w.range_ms);
        if w.offset_ms != 0 {
            let _ = write!(out, " offset={}ms", w.offset_ms);
        }
        if let Some(at) = self.at {
            let _ = write!(out, " at={at}");
        }
        if !self.params.is_empty() {
            let params: Vec<String> = self.params.iter().map(|p| p.shown()).collect();
            let _ = write!(out, " params=[{}]", params.join(", "));
        }
        let _ = write!(out, " series={} steps={}", self.table.len(), self.grid.steps);
        if let SampleSource::Grid(grid) = self.source {
            let _ = write!(out, " subquery_steps={} subquery_step={}ms", grid.steps, grid.step_ms);
        }
        out
    }

    /// The steps whose windows can contain a sample of a series. Short-lived series exist only for a small part of a
    /// long range.
    fn steps_of(&self, samples: &SeriesSamples<'_>) -> Range<usize> {
        let (grid, window) = (self.grid, self.window);
        let ends = [samples.ts, samples.hist_ts].map(|ts| ts.first().copied().zip(ts.last().copied()));
        let Some((first, last)) = ends.into_iter().flatten().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
            return 0..0;
        };
        if self.at.is_some() {
            return 0..grid.steps;
        }
        let extended = window.ends.are_extended() || matches!(self.function, RollupFunction::Smoothed);
        let back = match self.function {
            RollupFunction::Instant(_) => window.lookback_ms,
            _ if extended => window.range_ms.saturating_add(window.lookback_ms),
            _ => window.range_ms,
        };
        let ahead = if extended { window.lookback_ms } else { 0 };
        // The window of a step at t lies within (t - offset - back, t - offset + ahead].
        let step_at = |t: Millis| {
            let distance = t.saturating_sub(grid.start).max(0);
            usize::try_from(distance.div_euclid(grid.step_ms) + i64::from(distance.rem_euclid(grid.step_ms) > 0))
                .map_or(grid.steps, |step| step.min(grid.steps))
        };
        let from = first.saturating_add(window.offset_ms).saturating_sub(ahead);
        let to = last.saturating_add(window.offset_ms).saturating_add(back);
        step_at(from)..step_at(to).max(step_at(from))
    }

    /// Estimates how many samples a function reads in the windows of a series: functions that rescan each window read a
    /// sample once for each window that contains it.
    fn visits(&self, samples: &SeriesSamples<'_>, steps: usize) -> u64 {
        let count = (samples.ts.len() + samples.hist_ts.len()) as u64;
        let RollupFunction::Range(function) = self.function else { return count };
        let Kernel::Range(kernel) = &function.kernel else { return count };
        if !kernel.rescans {
            return count;
        }
        let windows = (self.window.range_ms / self.grid.step_ms).unsigned_abs() + 1;
        count.saturating_mul(if self.at.is_some() { steps as u64 } else { windows.min(steps as u64) })
    }

    /// Tells whether a scalar argument comes from an input.
    pub(crate) fn has_inputs(&self) -> bool {
        self.params.iter().any(|p| matches!(p, Param::Input(_)))
    }
}

impl StepOperator for Rollup {
    fn name(&self) -> &'static str {
        match self.source {
            SampleSource::Scan => "Rollup",
            SampleSource::Grid(_) => "SubqueryRollup",
        }
    }

    fn detail(&self) -> String {
        self.shown()
    }

    fn schema(&self) -> SchemaRef {
        matrix_schema(self.grid.steps, self.histograms)
    }

    fn spread(&self) -> Spread {
        // Each partition would compute the parameters anew.
        if self.has_inputs() { Spread::Once } else { Spread::Each }
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let main = inputs.remove(0);
        drive_after(main, async move {
            let params = params(&self.params, inputs, 1, &env).await?;
            let out = BlockBuilder::new(self.grid.steps, self.schema());
            Ok(RollupWorker { rows: SeriesRollup::new(self, params, &env)?, out, run: env.run })
        })
    }
}

impl Form for Rollup {
    const KIND: &'static str = "Rollup";
}

struct RollupWorker {
    rows: SeriesRollup,
    out: BlockBuilder,
    run: Arc<RunState>,
}

impl Worker for RollupWorker {
    fn push(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        let Self { rows, out, run } = self;
        let mut batches = Vec::new();
        let mut held = 0;
        rows.evaluator.memory.try_resize(out.memory_bytes())?;
        rows.each(batch, |evaluator, row, samples| {
            evaluator.hold(out.row_bytes())?;
            let (values, present) = out.row(row);
            let (_, hists) = evaluator.run(row, samples, values, present)?;
            out.histograms(hists);
            held += out.end_row();
            if let Some(batch) = out.full()? {
                run.hold(std::mem::take(&mut held))?;
                batches.push(batch);
            }
            Ok(())
        })?;
        run.hold(held)?;
        Ok(batches)
    }

    fn finish(&mut self) -> Result<Vec<RecordBatch>> {
        Ok(self.out.flush()?.into_iter().collect())
    }

    fn rows_max(&self) -> usize {
        self.out.rows_max()
    }
}

/// Reads series from batches and evaluates them one by one.
#[derive(Debug)]
pub(crate) struct SeriesRollup {
    buffers: SampleBuffers,
    stale: StaleFree,
    evaluator: Evaluator,
}

impl SeriesRollup {
    pub(crate) fn new(spec: Arc<Rollup>, params: Vec<Vec<f64>>, env: &Env) -> Result<Self> {
        let run = Arc::clone(&env.run);
        let memory = env.reserve("steps", 0)?;
        let names = spec.table.column(METRIC_NAME).cloned();
        let annotations = Annotations::default();
        let counts = run.tallies.is_some().then(|| Counts::new(spec.grid.steps));
        let (scratch, windows) = (Scratch::default(), SharedWindows::default());
        let evaluator = Evaluator { spec, params, names, annotations, counts, scratch, windows, run, memory };
        Ok(Self { buffers: SampleBuffers::default(), stale: StaleFree::default(), evaluator })
    }

    /// Calls a function for each series of a batch.
    pub(crate) fn each(
        &mut self,
        batch: RecordBatch,
        mut f: impl FnMut(&mut Evaluator, u32, &SeriesSamples<'_>) -> Result<()>,
    ) -> Result<()> {
        let Self { buffers, stale, evaluator } = self;
        match evaluator.spec.source {
            SampleSource::Scan => {
                let keep_stale = matches!(evaluator.spec.function, RollupFunction::Instant(_));
                let batch = SampleBatch::new(&batch)?;
                evaluator.windows.reset();
                for idx in 0..batch.len() {
                    // A batch may take long; a cancelled query should not have to finish it (L5).
                    quiver_query::QueryEngine::check(&evaluator.run.ctx)?;
                    let samples = if evaluator.spec.stats_only {
                        batch.series_without_buckets(idx, buffers)?
                    } else {
                        batch.series(idx, buffers)?
                    };
                    let samples = if keep_stale {
                        samples
                    } else {
                        let clean = stale.clean(samples);
                        if !std::ptr::eq(clean.ts, samples.ts) {
                            // This is a buffer, which the next series may fill with other times.
                            evaluator.windows.reset();
                        }
                        clean
                    };
                    f(evaluator, batch.row(idx), &samples)?;
                }
                evaluator.windows.reset();
            }
            SampleSource::Grid(grid) => {
                let block = to_block(batch)?;
                for (idx, &row) in block.rows.iter().enumerate() {
                    evaluator.run.did(grid.steps)?;
                    let from = block.hists.partition_point(|h| (h.0 as usize) < idx);
                    let to = block.hists.partition_point(|h| h.0 as usize <= idx);
                    let samples = grid_samples(&block, idx, &block.hists[from..to], &grid, buffers);
                    f(evaluator, row, &samples)?;
                }
            }
        }
        Ok(())
    }
}

/// Evaluates the function on one series at a time.
#[derive(Debug)]
pub(crate) struct Evaluator {
    spec: Arc<Rollup>,
    params: Vec<Vec<f64>>,
    names: Option<LabelColumn>,
    annotations: Annotations,
    counts: Option<Counts>,
    scratch: Scratch,
    windows: SharedWindows,
    run: Arc<RunState>,
    /// What rows take that were made and not handed on yet: their histograms, and their values where they have many steps.
    memory: MemoryReservation,
}

/// Histograms of about so many bytes are made at a time.
const HISTOGRAM_BYTES_AT_ONCE: usize = 1 << 20;

/// How many steps are evaluated at a time: all, unless they may have very many histograms.
fn steps_at_once(samples: &SeriesSamples<'_>, steps: usize) -> usize {
    let largest = samples.hists.iter().map(histogram_bytes).max();
    largest.map_or(steps, |bytes| HISTOGRAM_BYTES_AT_ONCE / bytes).max(1)
}

type StepHistograms = Vec<(u32, Histogram)>;

impl Evaluator {
    /// Fills one row; returns the steps that may have a value, and the histograms by step.
    pub(crate) fn run(
        &mut self,
        row: u32,
        samples: &SeriesSamples<'_>,
        values: &mut [f64],
        present: &mut [bool],
    ) -> Result<(Range<usize>, StepHistograms)> {
        let spec = Arc::clone(&self.spec);
        let steps = spec.steps_of(samples);
        if steps.is_empty() {
            return Ok((steps, Vec::new()));
        }
        self.run.visit(spec.visits(samples, steps.len()))?;
        let at_once = steps_at_once(samples, steps.len());
        let mut hists = StepHistograms::new();
        let mut first = steps.start;
        while first < steps.end {
            let some = first..steps.end.min(first.saturating_add(at_once));
            let found = self.some_steps(row, samples, &some, &mut values[some.clone()], &mut present[some.clone()])?;
            hists.extend(found.into_iter().map(|(step, h)| (step + (some.start - steps.start) as u32, h)));
            first = some.end;
        }
        // A function that was interrupted has left the rest of the row unset.
        let most = steps.len().saturating_mul(1 + samples.ts.len() + samples.hist_ts.len());
        if most >= WORK_AT_A_STRETCH {
            self.run.pace().check().map_err(quiver_query::to_datafusion)?;
        }
        let out = SeriesOut { values: &mut values[steps.clone()], present: &mut present[steps.clone()], hists };
        self.count(samples, &steps, &out);
        let mut hists = out.hists;
        for (step, _) in &mut hists {
            *step += steps.start as u32;
        }
        Ok((steps, hists))
    }

    fn hold(&self, bytes: usize) -> Result<()> {
        // Most series have none, and asking the pool takes a lock that all queries share.
        if bytes == 0 { Ok(()) } else { self.memory.try_grow(bytes) }
    }

    /// Releases the memory of the rows so far, which have been used.
    pub(crate) fn used(&self) {
        self.memory.free();
    }

    /// Evaluates some steps; returns the histograms by step, counted from the first of these.
    fn some_steps(
        &mut self,
        row: u32,
        samples: &SeriesSamples<'_>,
        steps: &Range<usize>,
        values: &mut [f64],
        present: &mut [bool],
    ) -> Result<StepHistograms> {
        let spec = &*self.spec;
        let grid = Grid { start: spec.grid.at(steps.start), steps: steps.len(), ..spec.grid };
        let mut out = SeriesOut { values, present, hists: Vec::new() };
        let params: smallvec::SmallVec<[ScalarSteps<'_>; 2]> =
            self.params.iter().map(|p| ScalarSteps::new(p).within(steps)).collect();
        let mut ctx = KernelContext {
            annotations: &mut self.annotations,
            place: spec.place,
            metric_name: self.names.as_ref().map_or("", |c| &**c.value(row as usize)),
            scratch: &mut self.scratch,
        };
        let pace = Some(self.run.pace());
        let mut call = RangeCall { grid, window: spec.window, at: spec.at, params: &params, windows: None, pace };
        if samples.hist_ts.is_empty() && matches!(spec.source, SampleSource::Scan) {
            call.windows = self.windows.get(samples.ts, &call);
        }
        match spec.function {
            RollupFunction::Instant(what) => instant(samples, &call, what, &mut out),
            RollupFunction::Smoothed => instant_smoothed(samples, &call, &mut out, &mut ctx),
            RollupFunction::Range(function) => {
                if let Kernel::Range(kernel) = &function.kernel {
                    (kernel.run)(samples, &call, &mut out, &mut ctx).map_err(quiver_query::to_datafusion)?;
                }
            }
        }
        let bytes = out.hists.iter().map(|h| histogram_bytes(&h.1)).sum();
        self.hold(histograms_bytes(bytes))?;
        Ok(out.hists)
    }

    /// Counts the samples of the steps, if they are counted.
    fn count(&mut self, samples: &SeriesSamples<'_>, steps: &Range<usize>, out: &SeriesOut<'_>) {
        let spec = &*self.spec;
        let Some(counts) = &mut self.counts else { return };
        match spec.function {
            RollupFunction::Instant(_) => counts.instant(out, steps.start),
            RollupFunction::Smoothed | RollupFunction::Range(_) => {
                let grid = Grid { start: spec.grid.at(steps.start), steps: steps.len(), ..spec.grid };
                let (window, at) = (spec.window, spec.at);
                let call = RangeCall { grid, window, at, params: &[], windows: None, pace: None };
                counts.range(samples, &call, steps.start, matches!(spec.source, SampleSource::Scan));
            }
        }
    }
}

impl Drop for Evaluator {
    fn drop(&mut self) {
        self.run.annotate(std::mem::take(&mut self.annotations));
        if let (Some(counts), Some(tallies)) = (&self.counts, &self.run.tallies) {
            tallies.add(self.spec.tally, counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ast::PosRange;
    use crate::functions::lookup;
    use crate::functions::testing::{Case, any_case, floats};
    use crate::range_ends::RangeEnds;

    fn rollup(function: RollupFunction, grid: Grid, window: Window) -> Rollup {
        Rollup {
            function,
            source: SampleSource::Scan,
            grid,
            window,
            at: None,
            params: vec![],
            place: PosRange::default().into(),
            table: Arc::default(),
            histograms: false,
            stats_only: false,
            tally: 0,
        }
    }

    fn range(name: &str) -> RollupFunction {
        RollupFunction::Range(lookup(name).expect("a function"))
    }

    /// The steps whose windows `(t - back, t + ahead]` meet the time of the samples, one by one.
    fn naive(ts: &[Millis], grid: Grid, offset_ms: i64, back: i64, ahead: i64) -> Vec<usize> {
        let (Some(&first), Some(&last)) = (ts.first(), ts.last()) else { return vec![] };
        let meets = |step: &usize| {
            let end = grid.at(*step) - offset_ms;
            end + ahead >= first && end - back < last
        };
        (0..grid.steps).filter(meets).collect()
    }

    fn check(rollup: &Rollup, ts: &[Millis], expected: &[usize]) {
        let values = vec![0.0; ts.len()];
        let steps = rollup.steps_of(&SeriesSamples { ts, values: &values, ..SeriesSamples::default() });
        assert_eq!(steps.collect::<Vec<_>>(), expected, "{rollup:?} {ts:?}");
    }

    const GRID: Grid = Grid { start: 100, step_ms: 10, steps: 5 };
    const WINDOW: Window = Window { range_ms: 15, offset_ms: 0, ends: RangeEnds::Samples, lookback_ms: 20 };

    #[test]
    fn steps_outside_of_a_series_are_left_out() {
        let sum = |window| rollup(range("sum_over_time"), GRID, window);
        // Windows end at 100, 110, 120, 130, 140 and do not hold their beginning.
        check(&sum(WINDOW), &[], &[]);
        check(&sum(WINDOW), &[110], &[1, 2]);
        check(&sum(WINDOW), &[111], &[2]);
        check(&sum(WINDOW), &[85], &[]);
        check(&sum(WINDOW), &[86], &[0]);
        check(&sum(WINDOW), &[140], &[4]);
        check(&sum(WINDOW), &[141], &[]);
        check(&sum(WINDOW), &[0, 1000], &[0, 1, 2, 3, 4]);
        check(&sum(WINDOW), &[i64::MIN, i64::MAX], &[0, 1, 2, 3, 4]);
        check(&sum(WINDOW), &[i64::MIN], &[]);
        check(&sum(WINDOW), &[i64::MAX], &[]);
        check(&sum(Window { offset_ms: 30, ..WINDOW }), &[100], &[3, 4]);
        check(&sum(Window { offset_ms: -30, ..WINDOW }), &[140], &[1, 2]);
        check(&sum(Window { offset_ms: i64::MAX / 2, ..WINDOW }), &[100], &[]);
        check(&sum(Window { range_ms: i64::MAX / 2, ..WINDOW }), &[120], &[2, 3, 4]);
        // What looks around its window meets more.
        check(&sum(Window { ends: RangeEnds::Anchored, ..WINDOW }), &[80], &[0, 1]);
        check(&sum(Window { ends: RangeEnds::Smoothed, ..WINDOW }), &[125], &[1, 2, 3, 4]);
        // An instant selector looks back as far as it may, whatever the range says.
        let instant = rollup(RollupFunction::Instant(InstantValue::Value), GRID, WINDOW);
        check(&instant, &[110], &[1, 2]);
        check(&instant, &[111], &[2, 3]);
        // With `@` all steps have one window.
        let fixed = Rollup { at: Some(0), ..sum(WINDOW) };
        check(&fixed, &[1_000_000], &[0, 1, 2, 3, 4]);
    }

    #[test]
    fn histograms_count_as_samples() {
        let hists = [Histogram::default(), Histogram::default()];
        let samples =
            SeriesSamples { ts: &[120], values: &[1.0], hist_ts: &[90, 91], hists: &hists, ..SeriesSamples::default() };
        let sum = rollup(range("sum_over_time"), GRID, WINDOW);
        assert_eq!(sum.steps_of(&samples), 0..4);
        assert_eq!(sum.steps_of(&SeriesSamples { ts: &[], values: &[], ..samples }), 0..1);
        // Those that go over each window anew meet a sample in each of the windows that it is in.
        assert_eq!(sum.visits(&samples, 4), 3);
        let anew = rollup(range("quantile_over_time"), GRID, WINDOW);
        assert_eq!(anew.visits(&samples, 4), 6);
        let wide = rollup(range("quantile_over_time"), GRID, Window { range_ms: 1_000_000, ..WINDOW });
        assert_eq!(wide.visits(&samples, 4), 12, "no more than there are steps");
        let instant = rollup(RollupFunction::Instant(InstantValue::Value), GRID, WINDOW);
        assert_eq!(instant.visits(&samples, 4), 3);
    }

    #[test]
    fn plans_show_what_is_computed() {
        let sum = || rollup(range("sum_over_time"), GRID, WINDOW);
        let check = |rollup: &Rollup, expected: &str| assert_eq!(rollup.shown(), expected);
        check(&sum(), "sum_over_time range=15ms series=0 steps=5");
        let offset = Rollup { window: Window { offset_ms: -5, ..WINDOW }, at: Some(7), ..sum() };
        check(&offset, "sum_over_time range=15ms offset=-5ms at=7 series=0 steps=5");
        let params = vec![Param::Const(0.5), Param::Input(1)];
        let of_inputs = Rollup { params, source: SampleSource::Grid(GRID), ..sum() };
        let text =
            "sum_over_time range=15ms params=[0.5, input 1] series=0 steps=5 subquery_steps=5 subquery_step=10ms";
        check(&of_inputs, text);
        assert_eq!((of_inputs.name(), of_inputs.spread()), ("SubqueryRollup", Spread::Once));
        assert_eq!((sum().name(), sum().spread()), ("Rollup", Spread::Each));
        for (what, name) in [
            (InstantValue::Value, "last"),
            (InstantValue::Timestamp, "timestamp"),
            (InstantValue::StartTimestamp, "start_timestamp"),
        ] {
            assert_eq!(rollup(RollupFunction::Instant(what), GRID, WINDOW).function_name(), name);
        }
    }

    proptest! {
        #[test]
        fn steps_are_those_whose_windows_meet_the_samples(case in any_case()) {
            let Case { samples, grid, window } = case;
            let of = |function, window| rollup(function, grid, window);
            let plain = of(range("sum_over_time"), window);
            check(&plain, &samples.ts, &naive(&samples.ts, grid, window.offset_ms, window.range_ms, 0));
            let instant = of(RollupFunction::Instant(InstantValue::Value), window);
            check(&instant, &samples.ts, &naive(&samples.ts, grid, window.offset_ms, window.lookback_ms, 0));
            let back = window.range_ms + window.lookback_ms;
            let anchored = of(range("increase"), Window { ends: RangeEnds::Anchored, ..window });
            check(&anchored, &samples.ts, &naive(&samples.ts, grid, window.offset_ms, back, window.lookback_ms));
        }
    }

    #[test]
    fn seconds_become_milliseconds() {
        let samples = floats(&[(60, 1.0), (110, 2.0)]);
        let sum =
            rollup(range("sum_over_time"), crate::functions::testing::GRID, Window { range_ms: 60_000, ..WINDOW });
        assert_eq!(sum.steps_of(&samples.borrow()), 0..3);
    }
}
