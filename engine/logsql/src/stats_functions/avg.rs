//! `avg(...)`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array};
use datafusion::common::Result;
use datafusion::logical_expr::EmitTo;

use super::args::Args;
use super::state::{Results, Rows, StatsState};
use super::sum::{each_number, floats};
use crate::kernels::columns::NumberRule;
use crate::kernels::values::push_f64;

/// Sum and number of the numbers per group.
#[derive(Debug)]
pub(super) struct Avg {
    rule: NumberRule,
    sums: Vec<f64>,
    counts: Vec<f64>,
}

impl Avg {
    pub(super) fn new(rule: NumberRule) -> Self {
        Self { rule, sums: Vec::new(), counts: Vec::new() }
    }
}

impl StatsState for Avg {
    fn resize(&mut self, groups: usize) {
        let groups = groups.max(self.sums.len());
        self.sums.resize(groups, 0.0);
        self.counts.resize(groups, 0.0);
    }

    fn update(&mut self, args: &Args<'_>, rows: &Rows<'_>) {
        let Self { sums, counts, .. } = self;
        each_number(args, rows, self.rule, |group, number| {
            sums[group] += number;
            counts[group] += 1.0;
        });
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[usize]) -> Result<()> {
        let (sums, counts) = (floats(states, 0)?, floats(states, 1)?);
        for (row, &group) in groups.iter().enumerate() {
            if counts.is_valid(row) {
                self.sums[group] += sums.value(row);
                self.counts[group] += counts.value(row);
            }
        }
        Ok(())
    }

    fn state(&mut self, emit: EmitTo) -> Vec<ArrayRef> {
        let columns = [emit.take_needed(&mut self.sums), emit.take_needed(&mut self.counts)];
        columns.into_iter().map(|c| Arc::new(Float64Array::from(c)) as ArrayRef).collect()
    }

    fn finish(&mut self, emit: EmitTo, out: &mut Results) {
        let counts = emit.take_needed(&mut self.counts);
        for (sum, count) in emit.take_needed(&mut self.sums).into_iter().zip(counts) {
            out.push(|text| push_f64(text, sum / count));
        }
    }

    fn size(&self) -> usize {
        (self.sums.capacity() + self.counts.capacity()) * size_of::<f64>()
    }
}
