//! `histogram_quantile`, `histogram_quantiles` and `histogram_fraction`: of classic buckets, grouped by their labels
//! without `le`, and of native histograms.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use quiver_types::{Histogram, SeriesTable};
use serde::{Deserialize, Serialize};

use super::batch::matrix_schema;
use super::driver::{Matrix, Param, RowView, batches_of, collect, params};
use super::operator_encoding::{self, Form};
use super::rows::{Merger, to_batches};
use super::{Batches, Env, Spread, StepOperator};
use crate::annotation::{AnnotationPlace, Annotations};
use crate::ast::PosRange;
use crate::functions::{ScalarSteps, annotations};
use crate::kernel::{Block, Grid};
use crate::quantile::{
    ClassicBucket, Fix, ForcedMonotonicity, NanNote, bucket_fraction, bucket_quantile, histogram_fraction,
    histogram_quantile,
};

/// Rows with the same labels except `le`, and the row of native histograms with exactly these labels.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct HistogramGroup {
    /// Classic buckets: row and upper bound, sorted by bound.
    pub(crate) classic: Vec<(u32, f64)>,
    /// Row of native histograms, if there is one.
    pub(crate) native: Option<u32>,
    /// Output rows: one, or one per label of a quantile.
    pub(crate) out: Vec<u32>,
}

/// The function to compute.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum HistogramFunction {
    /// One quantile per parameter; with the position of each parameter.
    Quantiles(Vec<PosRange>),
    /// The fraction between two parameters.
    Fraction,
}

/// Quantiles or fractions of classic and native histograms, by step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StepHistogram {
    /// The function to compute.
    pub(crate) function: HistogramFunction,
    /// Quantiles, or lower and upper.
    pub(crate) params: Vec<Param>,
    /// For each quantile, which of the output rows of a group it goes to: at all steps, or at each. Empty if there is one
    /// quantile, or a fraction.
    pub(crate) places: Vec<Vec<u32>>,
    /// Times of the steps.
    pub(crate) grid: Grid,
    /// One for each label set without `le`.
    pub(crate) groups: Vec<HistogramGroup>,
    /// Rows with a missing or malformed `le`.
    pub(crate) bad: Vec<u32>,
    /// Labels of the input.
    pub(crate) table: Arc<SeriesTable>,
    /// Position of the vector argument.
    pub(crate) pos: PosRange,
    /// Whether two groups may have the same labels in the output.
    pub(crate) merges: bool,
}

impl StepOperator for StepHistogram {
    fn name(&self) -> &'static str {
        match self.function {
            HistogramFunction::Quantiles(_) => "HistogramQuantile",
            HistogramFunction::Fraction => "HistogramFraction",
        }
    }

    fn detail(&self) -> String {
        let params: Vec<String> = self.params.iter().map(|p| p.shown()).collect();
        format!("params=[{}] groups={}", params.join(", "), self.groups.len())
    }

    fn schema(&self) -> SchemaRef {
        matrix_schema(self.grid.steps, false)
    }

    fn spread(&self) -> Spread {
        // The buckets of a histogram are series of their own, in any partition.
        Spread::Once
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let main = inputs.remove(0);
        batches_of(env.clone(), async move {
            let params = params(&self.params, inputs, 1, &env).await?;
            let matrix = collect(main, self.table.len(), &env).await?;
            let params: Vec<ScalarSteps<'_>> = params.iter().map(|p| ScalarSteps::new(p)).collect();
            let mut work = Work { op: &self, params, annotations: Annotations::default(), fixes: BTreeMap::new() };
            let batches = work.run(&matrix, &env)?;
            env.run.annotate(work.finish());
            Ok(batches)
        })
    }
}

impl Form for StepHistogram {
    const KIND: &'static str = "StepHistogram";
}

impl StepHistogram {
    /// How many values a group has at a step.
    fn outputs(&self) -> usize {
        match &self.function {
            HistogramFunction::Quantiles(positions) => positions.len(),
            HistogramFunction::Fraction => 1,
        }
    }

    /// Which of a group's output rows one of its values at a step goes to.
    fn place(&self, output: usize, step: usize) -> usize {
        self.places.get(output).map_or(output, |of| *of.get(step).unwrap_or(&of[0]) as usize)
    }
}

struct Work<'a> {
    op: &'a StepHistogram,
    params: Vec<ScalarSteps<'a>>,
    annotations: Annotations,
    /// Corrections of classic histograms with non-monotonic counts, by metric.
    fixes: BTreeMap<&'a str, ForcedMonotonicity>,
}

impl<'a> Work<'a> {
    fn run(&mut self, matrix: &Matrix, env: &Env) -> Result<Vec<RecordBatch>> {
        self.check_quantiles();
        for &row in &self.op.bad {
            if matrix.row(row).is_some_and(|v| v.present.contains(&true)) {
                let (metric, le) = (self.op.table.metric(row as usize), self.op.table.value(row as usize, "le"));
                self.annotations.warn(self.op.pos, annotations::bad_bucket_label(metric, le));
            }
        }
        let steps = self.op.grid.steps;
        let (schema, mut merged) = (self.op.schema(), Merger::new(steps).within(env)?);
        let memory = env.reserve("quantiles", 0)?;
        let (mut block, mut batches) = (Block::new(steps), Vec::new());
        for group in &self.op.groups {
            let there = |row: u32| matrix.row(row).is_some();
            if !group.native.is_some_and(there) && !group.classic.iter().any(|c| there(c.0)) {
                continue;
            }
            let _rows = env.reserve("quantiles", group.out.len() * steps * (size_of::<f64>() + 1))?;
            let mut rows = vec![(vec![0.0; steps], vec![false; steps]); group.out.len()];
            self.group(group, matrix, &mut rows, env)?;
            for ((values, present), &row) in rows.into_iter().zip(&group.out) {
                if !present.contains(&true) {
                    continue;
                }
                block.rows.push(row);
                block.values.extend(values);
                block.present.extend(present);
                if block.values.len() >= super::batch::VALUES_PER_BATCH {
                    let block = std::mem::replace(&mut block, Block::new(steps));
                    if self.op.merges {
                        merged.add(block)?;
                    } else {
                        memory.try_grow(block.memory_bytes())?;
                        batches.extend(to_batches(block, &schema)?);
                    }
                }
            }
        }
        if self.op.merges {
            merged.add(block)?;
            return merged.finish(&schema);
        }
        batches.extend(to_batches(block, &schema)?);
        Ok(batches)
    }

    fn check_quantiles(&mut self) {
        let HistogramFunction::Quantiles(positions) = &self.op.function else { return };
        for (param, pos) in self.params.iter().zip(positions) {
            for &q in param.values() {
                if !(0.0..=1.0).contains(&q) {
                    let place = AnnotationPlace { shown: *pos, evaluated: self.op.pos };
                    self.annotations.warn(place, annotations::invalid_quantile(q));
                }
            }
        }
    }

    fn group(
        &mut self,
        group: &'a HistogramGroup,
        matrix: &Matrix,
        rows: &mut [(Vec<f64>, Vec<bool>)],
        env: &Env,
    ) -> Result<()> {
        let views = group.classic.iter().filter_map(|&(row, bound)| matrix.row(row).map(|v| (bound, v)));
        let classic: Vec<(f64, RowView<'_>)> = views.collect();
        let native = group.native.and_then(|row| matrix.row(row));
        let op = self.op;
        let name = |row: Option<u32>| row.map_or("", |r| op.table.metric(r as usize));
        let (classic_name, native_name) = (name(group.classic.first().map(|c| c.0)), name(group.native));
        let mut buckets = Vec::with_capacity(classic.len());
        for step in 0..op.grid.steps {
            env.run.did((classic.len() + 1) * (op.outputs() + 1))?;
            buckets.clear();
            for (upper_bound, view) in &classic {
                if view.present[step] {
                    buckets.push(ClassicBucket { upper_bound: *upper_bound, count: view.values[step] });
                }
            }
            let histogram = native.as_ref().and_then(|v| v.histogram(step));
            match (buckets.is_empty(), histogram) {
                (true, None) => {}
                (false, Some(_)) => self.annotations.warn(op.pos, annotations::mixed_classic_native(native_name)),
                (true, Some(h)) => self.native(h, step, native_name, rows),
                (false, None) => self.classic(&mut buckets, step, classic_name, rows),
            }
        }
        Ok(())
    }

    fn native(&mut self, h: &Histogram, step: usize, metric: &str, rows: &mut [(Vec<f64>, Vec<bool>)]) {
        let op = self.op;
        for i in 0..op.outputs() {
            let (value, note) = match &self.op.function {
                HistogramFunction::Quantiles(_) => histogram_quantile(self.params[i].at(step), h),
                HistogramFunction::Fraction => histogram_fraction(self.params[0].at(step), self.params[1].at(step), h),
            };
            let (values, present) = &mut rows[op.place(i, step)];
            (values[step], present[step]) = (value, true);
            if let Some(note) = note {
                let text = match note {
                    NanNote::Result => annotations::quantile_nan_result(metric),
                    NanNote::Skew => annotations::quantile_nan_skew(metric),
                    NanNote::Fraction => annotations::fraction_nan(metric),
                };
                self.annotations.info(self.op.pos, text);
            }
        }
    }

    fn classic(
        &mut self,
        buckets: &mut Vec<ClassicBucket>,
        step: usize,
        metric: &'a str,
        rows: &mut [(Vec<f64>, Vec<bool>)],
    ) {
        let op = self.op;
        for i in 0..op.outputs() {
            let value = match &self.op.function {
                HistogramFunction::Quantiles(_) => {
                    let (value, fix) = bucket_quantile(self.params[i].at(step), buckets);
                    if let Some(fix) = fix {
                        self.fixed(metric, fix, step);
                    }
                    value
                }
                HistogramFunction::Fraction => {
                    bucket_fraction(self.params[0].at(step), self.params[1].at(step), buckets)
                }
            };
            let (values, present) = &mut rows[op.place(i, step)];
            (values[step], present[step]) = (value, true);
        }
    }

    fn fixed(&mut self, metric: &'a str, fix: Fix, step: usize) {
        let fix = ForcedMonotonicity::new(fix, self.op.grid.at(step));
        self.fixes.entry(metric).and_modify(|f| f.merge(&fix)).or_insert(fix);
    }

    fn finish(mut self) -> Annotations {
        for (metric, fix) in &self.fixes {
            self.annotations.info_of_lifted(self.op.pos, annotations::forced_monotonicity(metric), *fix);
        }
        self.annotations
    }
}
