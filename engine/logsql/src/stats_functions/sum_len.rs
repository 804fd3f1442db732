//! `sum_len(a)`: bytes of all values.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt64Array};
use datafusion::common::Result;
use datafusion::logical_expr::EmitTo;

use super::args::{Args, Column};
use super::count::numbers;
use super::state::{Results, Rows, StatsState};

/// Bytes per group.
#[derive(Debug, Default)]
pub(super) struct SumLen {
    sums: Vec<u64>,
    buffer: String,
}

impl StatsState for SumLen {
    fn resize(&mut self, groups: usize) {
        self.sums.resize(groups.max(self.sums.len()), 0);
    }

    fn update(&mut self, args: &Args<'_>, rows: &Rows<'_>) {
        let Self { sums, buffer } = self;
        for column in &args.columns {
            match column {
                Column::Field { text, .. } => {
                    rows.each(|row, group| sums[group] += text.len_of(row, buffer) as u64);
                }
                Column::Rest(rest) => rows.each(|row, group| {
                    rest.each(row, &mut |_: &str, value: &str| sums[group] += value.len() as u64);
                }),
            }
        }
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[usize]) -> Result<()> {
        let states = numbers(states)?;
        for (row, &group) in groups.iter().enumerate() {
            self.sums[group] += if states.is_null(row) { 0 } else { states.value(row) };
        }
        Ok(())
    }

    fn state(&mut self, emit: EmitTo) -> Vec<ArrayRef> {
        vec![Arc::new(UInt64Array::from(emit.take_needed(&mut self.sums)))]
    }

    fn finish(&mut self, emit: EmitTo, out: &mut Results) {
        for sum in emit.take_needed(&mut self.sums) {
            out.push(|text| write!(text, "{sum}").expect("writing to a text cannot fail"));
        }
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<u64>()
    }
}
