//! `sum(...)`, `rate_sum(...)`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::Float64Type;
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::EmitTo;

use super::args::{Args, Column};
use super::state::{Results, Rows, StatsState};
use crate::kernels::columns::NumberRule;
use crate::kernels::values::push_f64;

/// A sum per group, NaN without numbers; perhaps divided by seconds.
#[derive(Debug)]
pub(super) struct Sum {
    rule: NumberRule,
    seconds: Option<f64>,
    sums: Vec<f64>,
}

impl Sum {
    pub(super) fn new(rule: NumberRule, seconds: Option<f64>) -> Self {
        Self { rule, seconds, sums: Vec::new() }
    }
}

/// Calls a function with the group of each number.
pub(super) fn each_number(args: &Args<'_>, rows: &Rows<'_>, rule: NumberRule, mut call: impl FnMut(usize, f64)) {
    for column in &args.columns {
        match column {
            Column::Field { text, .. } => {
                let numbers = rows.numbers(text, args.rows, rule);
                rows.each(|row, group| {
                    if !numbers[row].is_nan() {
                        call(group, numbers[row]);
                    }
                });
            }
            Column::Rest(rest) => rows.each(|row, group| {
                let rule = rows.rule_of(row, rule);
                rest.each(row, &mut |_: &str, value: &str| {
                    let number = rule.read(value);
                    if !number.is_nan() {
                        call(group, number);
                    }
                });
            }),
        }
    }
}

fn add(sum: &mut f64, more: f64) {
    *sum = if sum.is_nan() { more } else { *sum + more };
}

impl StatsState for Sum {
    fn resize(&mut self, groups: usize) {
        self.sums.resize(groups.max(self.sums.len()), f64::NAN);
    }

    fn update(&mut self, args: &Args<'_>, rows: &Rows<'_>) {
        let sums = &mut self.sums;
        each_number(args, rows, self.rule, |group, number| add(&mut sums[group], number));
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[usize]) -> Result<()> {
        let states = floats(states, 0)?;
        for (row, &group) in groups.iter().enumerate() {
            if states.is_valid(row) && !states.value(row).is_nan() {
                add(&mut self.sums[group], states.value(row));
            }
        }
        Ok(())
    }

    fn state(&mut self, emit: EmitTo) -> Vec<ArrayRef> {
        vec![Arc::new(Float64Array::from(emit.take_needed(&mut self.sums)))]
    }

    fn finish(&mut self, emit: EmitTo, out: &mut Results) {
        for sum in emit.take_needed(&mut self.sums) {
            out.push(|text| push_f64(text, sum / self.seconds.unwrap_or(1.0)));
        }
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<f64>()
    }
}

/// A column of a state.
pub(super) fn floats(states: &[ArrayRef], column: usize) -> Result<&Float64Array> {
    states
        .get(column)
        .and_then(|s| s.as_primitive_opt::<Float64Type>())
        .ok_or_else(|| exec_datafusion_err!("a state of `stats` is of another type"))
}
