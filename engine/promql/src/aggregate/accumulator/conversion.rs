//! Converts the state of an aggregation to parts and back.

use super::rows::Rows;
use super::state_columns::Parts;
use super::{Accumulator, State};
use crate::aggregate::histograms::{HistogramStatistic, HistogramSums};
use crate::ast::{AggregateOp, PosRange};

impl Accumulator {
    /// Removes and returns full blocks of rows, if rows are kept.
    pub fn take_full(&mut self) -> Vec<Parts> {
        if let State::Rows(rows) = &mut self.state { rows.take_full() } else { vec![] }
    }

    /// Returns the whole state, without the annotations, which must be fetched before (see [`Self::remark`]).
    pub fn into_parts(self) -> Vec<Parts> {
        let (numbers, incremental) = match self.state {
            State::Sum { sum, lost } => (vec![sum, lost], None),
            State::Mean { sum, lost, count, incremental } => (vec![sum, lost, count], Some(incremental)),
            State::Count(numbers) | State::Extreme(numbers) => (vec![numbers], None),
            State::Group => (vec![], None),
            State::Deviation { count, mean, squares } => (vec![count, mean, squares], None),
            State::Rows(rows) => return rows.into_parts(),
        };
        if self.groups == 0 {
            return vec![];
        }
        vec![Parts {
            groups: (0..self.groups as u32).collect(),
            numbers,
            flags: std::iter::once(self.seen).chain(incremental).collect(),
            hists: self.hists.into_parts(),
        }]
    }

    /// Restores the state. Matrices are reused unchanged if there is a row for each group, in order; groups without a
    /// row are empty.
    pub fn of_parts(op: AggregateOp, groups: usize, steps: usize, pos: PosRange, parts: Parts) -> Self {
        if op == AggregateOp::Quantile {
            return Self { state: State::Rows(Rows::of_parts(parts)), ..Self::new(op, groups, steps, pos) };
        }
        let Parts { groups: of_row, numbers, flags, hists } = parts;
        let whole = of_row.len() == groups && of_row.iter().zip(0..).all(|(group, row)| *group == row);
        let nothing = if matches!(op, AggregateOp::Min | AggregateOp::Max) { f64::NAN } else { 0.0 };
        let mut numbers = numbers.into_iter();
        let mut number = || {
            let rows = numbers.next().unwrap_or_default();
            if whole { rows } else { placed(&rows, nothing, &of_row, groups, steps) }
        };
        let mut flags = flags.into_iter();
        let mut flag = || {
            let rows = flags.next().unwrap_or_default();
            if whole { rows } else { placed(&rows, false, &of_row, groups, steps) }
        };
        let seen = flag();
        let state = match op {
            AggregateOp::Sum => State::Sum { sum: number(), lost: number() },
            AggregateOp::Avg => State::Mean { sum: number(), lost: number(), count: number(), incremental: flag() },
            AggregateOp::Count => State::Count(number()),
            AggregateOp::Min | AggregateOp::Max => State::Extreme(number()),
            AggregateOp::Stddev | AggregateOp::Stdvar => {
                State::Deviation { count: number(), mean: number(), squares: number() }
            }
            _ => State::Group,
        };
        let slot = |slot: usize| of_row[slot / steps] as usize * steps + slot % steps;
        let statistic = if op == AggregateOp::Avg { HistogramStatistic::Mean } else { HistogramStatistic::Sum };
        let hists = HistogramSums::of_parts(hists, statistic, slot);
        Self { op, groups, steps, pos, seen, state, hists, ignored_histograms: false }
    }
}

/// Moves rows to the positions of their groups.
fn placed<T: Copy>(rows: &[T], nothing: T, of_row: &[u32], groups: usize, steps: usize) -> Vec<T> {
    let mut out = vec![nothing; groups * steps];
    for (row, &group) in rows.chunks_exact(steps.max(1)).zip(of_row) {
        let at = group as usize * steps;
        out[at..at + steps].copy_from_slice(row);
    }
    out
}
