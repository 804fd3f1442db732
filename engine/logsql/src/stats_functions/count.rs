//! `count()`, `count(a, b)`, `count_empty(a, b)`, `rate()`.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::datatypes::UInt64Type;
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::EmitTo;
use quiver_types::logs::write_int;

use super::args::Args;
use super::state::{Results, Rows, StatsState};
use crate::kernels::values::push_f64;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountTarget {
    /// Rows, whatever they hold.
    Rows,
    /// Rows with a field that is not empty.
    Filled,
    /// Rows whose fields are all empty.
    Empty,
}

/// A number of rows per group, perhaps divided by seconds.
#[derive(Debug)]
pub(super) struct Count {
    what: CountTarget,
    seconds: Option<f64>,
    counts: Vec<u64>,
}

impl Count {
    pub(super) fn new(what: CountTarget, seconds: Option<f64>) -> Self {
        Self { what, seconds, counts: Vec::new() }
    }
}

impl StatsState for Count {
    fn resize(&mut self, groups: usize) {
        self.counts.resize(groups.max(self.counts.len()), 0);
    }

    fn update(&mut self, args: &Args<'_>, rows: &Rows<'_>) {
        let counts = &mut self.counts;
        match self.what {
            CountTarget::Rows => match rows.runs() {
                Some(runs) => runs.iter().for_each(|(group, rows)| counts[*group] += rows.len() as u64),
                None => rows.each(|_, group| counts[group] += 1),
            },
            CountTarget::Filled => rows.each(|row, group| counts[group] += u64::from(args.any(row))),
            CountTarget::Empty => rows.each(|row, group| counts[group] += u64::from(!args.any(row))),
        }
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[usize]) -> Result<()> {
        let states = numbers(states)?;
        for (row, &group) in groups.iter().enumerate() {
            self.counts[group] += if states.is_null(row) { 0 } else { states.value(row) };
        }
        Ok(())
    }

    fn state(&mut self, emit: EmitTo) -> Vec<ArrayRef> {
        vec![Arc::new(UInt64Array::from(emit.take_needed(&mut self.counts)))]
    }

    fn finish(&mut self, emit: EmitTo, out: &mut Results) {
        for count in emit.take_needed(&mut self.counts) {
            out.push(|text| match (self.seconds, i64::try_from(count)) {
                (Some(seconds), _) => push_f64(text, count as f64 / seconds),
                (None, Ok(count)) => write_int(count, text),
                (None, Err(_)) => write!(text, "{count}").expect("writing to a text cannot fail"),
            });
        }
    }

    fn size(&self) -> usize {
        self.counts.capacity() * size_of::<u64>()
    }
}

/// The state of functions that count.
pub(super) fn numbers(states: &[ArrayRef]) -> Result<&UInt64Array> {
    states
        .first()
        .and_then(|s| s.as_primitive_opt::<UInt64Type>())
        .ok_or_else(|| exec_datafusion_err!("a state of `stats` is of another type"))
}
