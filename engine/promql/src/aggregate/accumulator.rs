//! The state of an aggregation: one slot per group and step, filled row by row.
//!
//! Rows are dense slices, so folding is a loop over steps without lookups. Sums and means are compensated; the order of
//! rows affects only the last digits. A partition passes its state on as [`Parts`], and [`Accumulator::merge`] combines
//! the states of several.

mod conversion;
mod rows;
mod state_columns;

use quiver_types::Histogram;

use rows::Rows;
pub use state_columns::Parts;

use super::histograms::{HistogramStatistic, HistogramSums};
use crate::annotation::Annotations;
use crate::ast::{AggregateOp, PosRange};
use crate::functions::annotations;
use crate::kahan;
use crate::kernel::Block;

/// A row to be aggregated.
#[derive(Debug, Clone, Copy)]
pub struct SeriesRow<'a> {
    /// The step of the first of `values`; the row has no floats at others.
    pub first: usize,
    /// Floats by step.
    pub values: &'a [f64],
    /// Which of the values are present.
    pub present: &'a [bool],
    /// Histograms by step.
    pub hists: &'a [(u32, Histogram)],
    /// For annotations about incompatible histograms.
    pub metric_name: &'a str,
}

/// Accumulates `sum`, `avg`, `count`, `min`, `max`, `group`, `stddev`, `stdvar` or `quantile`.
#[derive(Debug)]
pub struct Accumulator {
    op: AggregateOp,
    groups: usize,
    steps: usize,
    /// Position of the aggregated expression.
    pos: PosRange,
    /// Whether a slot has had a float (for `count` and `group`: any element). Unused if rows are kept, which have their
    /// own flags.
    seen: Vec<bool>,
    state: State,
    hists: HistogramSums,
    ignored_histograms: bool,
}

/// Matrices of `groups × steps`.
#[derive(Debug)]
enum State {
    Sum { sum: Vec<f64>, lost: Vec<f64> },
    Mean { sum: Vec<f64>, lost: Vec<f64>, count: Vec<f64>, incremental: Vec<bool> },
    Count(Vec<f64>),
    Extreme(Vec<f64>),
    Group,
    Deviation { count: Vec<f64>, mean: Vec<f64>, squares: Vec<f64> },
    Rows(Rows),
}

impl Accumulator {
    /// Makes the state. `pos` is the position of the expression that is aggregated.
    pub fn new(op: AggregateOp, groups: usize, steps: usize, pos: PosRange) -> Self {
        let slots = if op == AggregateOp::Quantile { 0 } else { groups * steps };
        let zeros = || vec![0.0; slots];
        let state = match op {
            AggregateOp::Sum => State::Sum { sum: zeros(), lost: zeros() },
            AggregateOp::Avg => {
                State::Mean { sum: zeros(), lost: zeros(), count: zeros(), incremental: vec![false; slots] }
            }
            AggregateOp::Count => State::Count(zeros()),
            AggregateOp::Min | AggregateOp::Max => State::Extreme(vec![f64::NAN; slots]),
            AggregateOp::Stddev | AggregateOp::Stdvar => {
                State::Deviation { count: zeros(), mean: zeros(), squares: zeros() }
            }
            AggregateOp::Quantile => State::Rows(Rows::default()),
            _ => State::Group,
        };
        Self {
            op,
            groups,
            steps,
            pos,
            seen: vec![false; slots],
            state,
            hists: HistogramSums::default(),
            ignored_histograms: false,
        }
    }

    /// Memory besides the matrices of the state: rows kept for `quantile`, and histograms.
    pub fn grown_bytes(&self) -> usize {
        let rows = if let State::Rows(rows) = &self.state { rows.bytes() } else { 0 };
        rows + self.hists.bytes()
    }

    /// Tells whether an operator is handled here.
    pub fn handles(op: AggregateOp) -> bool {
        use AggregateOp::{Avg, Count, Group, Max, Min, Quantile, Stddev, Stdvar, Sum};
        matches!(op, Sum | Avg | Count | Min | Max | Group | Stddev | Stdvar | Quantile)
    }

    /// Adds a row to a group.
    pub fn fold(&mut self, group: u32, row: &SeriesRow<'_>) {
        let SeriesRow { first, values, present, hists, metric_name } = *row;
        let base = group as usize * self.steps;
        let slots = base + first..base + first + values.len();
        let floats = values.iter().copied().zip(present.iter().copied());
        match &mut self.state {
            State::Sum { sum, lost } => {
                let slots = sum[slots.clone()].iter_mut().zip(&mut lost[slots.clone()]);
                for ((value, present), (sum, lost)) in floats.zip(slots) {
                    // Adding zero has no effect, which avoids a branch on presence.
                    (*sum, *lost) = kahan::inc(if present { value } else { 0.0 }, *sum, *lost);
                }
            }
            State::Mean { sum, lost, count, incremental } => {
                for (i, (value, _)) in floats.enumerate().filter(|(_, (_, present))| *present) {
                    let i = slots.start + i;
                    count[i] += 1.0;
                    add_to_mean(value, count[i], &mut sum[i], &mut lost[i], &mut incremental[i]);
                }
            }
            State::Count(count) => {
                for ((_, present), count) in floats.zip(&mut count[slots.clone()]) {
                    *count += f64::from(present);
                }
            }
            State::Extreme(extreme) => {
                let extreme = &mut extreme[slots.clone()];
                if self.op == AggregateOp::Max {
                    keep_better(floats, extreme, |new, old| new > old);
                } else {
                    keep_better(floats, extreme, |new, old| new < old);
                }
            }
            State::Group => {}
            State::Deviation { count, mean, squares } => {
                for (i, (value, _)) in floats.enumerate().filter(|(_, (_, present))| *present) {
                    let i = slots.start + i;
                    count[i] += 1.0;
                    let delta = value - mean[i];
                    mean[i] += delta / count[i];
                    squares[i] += delta * (value - mean[i]);
                }
            }
            State::Rows(rows) => rows.push(group, first, values, present, self.steps),
        }
        if !self.seen.is_empty() {
            self.seen[slots].iter_mut().zip(present).for_each(|(seen, &p)| *seen |= p);
        }
        if !hists.is_empty() {
            self.fold_histograms(base, hists, metric_name);
        }
    }

    fn fold_histograms(&mut self, base: usize, hists: &[(u32, Histogram)], metric_name: &str) {
        for (step, h) in hists {
            let slot = base + *step as usize;
            match (self.op, &mut self.state) {
                (AggregateOp::Sum, _) => self.hists.add(slot, h, HistogramStatistic::Sum, metric_name),
                (AggregateOp::Avg, _) => self.hists.add(slot, h, HistogramStatistic::Mean, metric_name),
                (_, State::Count(count)) => {
                    count[slot] += 1.0;
                    self.seen[slot] = true;
                }
                (_, State::Group) => self.seen[slot] = true,
                _ => self.ignored_histograms = true,
            }
        }
    }

    /// Merges in the state of other rows; operator, groups and steps must be the same.
    pub fn merge(&mut self, other: Self) {
        self.ignored_histograms |= other.ignored_histograms;
        self.hists.merge(other.hists);
        match (&mut self.state, other.state) {
            (State::Sum { sum, lost }, State::Sum { sum: sums, lost: losts }) => {
                for ((sum, lost), other) in sum.iter_mut().zip(lost).zip(sums.into_iter().zip(losts)) {
                    (*sum, *lost) = kahan::merge((*sum, *lost), other);
                }
            }
            (
                State::Mean { sum, lost, count, incremental },
                State::Mean { sum: sums, lost: losts, count: counts, incremental: incrementals },
            ) => {
                for i in 0..sum.len() {
                    let other = Mean { sum: sums[i], lost: losts[i], count: counts[i], incremental: incrementals[i] };
                    let own = Mean { sum: sum[i], lost: lost[i], count: count[i], incremental: incremental[i] };
                    let merged = own.merge(&other);
                    (sum[i], lost[i]) = (merged.sum, merged.lost);
                    (count[i], incremental[i]) = (merged.count, merged.incremental);
                }
            }
            (State::Count(count), State::Count(counts)) => {
                count.iter_mut().zip(counts).for_each(|(a, b)| *a += b);
            }
            (State::Extreme(extreme), State::Extreme(others)) => {
                let row = others.into_iter().zip(other.seen.iter().copied());
                if self.op == AggregateOp::Max {
                    keep_better(row, extreme, |new, old| new > old);
                } else {
                    keep_better(row, extreme, |new, old| new < old);
                }
            }
            (
                State::Deviation { count, mean, squares },
                State::Deviation { count: counts, mean: means, squares: others },
            ) => {
                for i in (0..count.len()).filter(|&i| counts[i] > 0.0) {
                    let total = count[i] + counts[i];
                    let delta = means[i] - mean[i];
                    squares[i] +=
                        others[i] + if count[i] == 0.0 { 0.0 } else { delta * delta * count[i] * counts[i] / total };
                    mean[i] = if count[i] == 0.0 { means[i] } else { mean[i] + delta * counts[i] / total };
                    count[i] = total;
                }
            }
            (State::Rows(rows), State::Rows(others)) => rows.append(others),
            _ => {}
        }
        self.seen.iter_mut().zip(other.seen).for_each(|(a, b)| *a |= b);
    }

    /// Adds annotations about the rows added since the last call.
    pub fn remark(&mut self, annotations: &mut Annotations) {
        if std::mem::take(&mut self.ignored_histograms) {
            annotations.info(self.pos, annotations::histogram_ignored_in_aggregation(self.op.as_str()));
        }
        self.hists.remark(self.pos, annotations);
    }

    /// One row per group (row number = group), also for groups without any element; adds annotations. `param` is the
    /// parameter of `quantile`, one value or one per step.
    pub fn finish(mut self, param: &[f64], annotations: &mut Annotations) -> Block {
        self.remark(annotations);
        let values = self.values(param);
        let mut block = Block {
            rows: (0..self.groups as u32).collect(),
            steps: self.steps,
            values,
            present: self.seen,
            hists: Vec::new(),
        };
        let steps = self.steps.max(1);
        for (slot, h) in self.hists.finish(|slot| block.present[slot], self.pos, annotations) {
            block.present[slot] = false;
            if let Some(h) = h {
                block.hists.push(((slot / steps) as u32, (slot % steps) as u32, h));
            }
        }
        block
    }

    fn values(&mut self, param: &[f64]) -> Vec<f64> {
        let is_stddev = self.op == AggregateOp::Stddev;
        match &mut self.state {
            State::Sum { sum, lost } => {
                sum.iter_mut().zip(lost).for_each(|(sum, lost)| *sum += *lost);
                std::mem::take(sum)
            }
            State::Mean { sum, lost, count, incremental } => {
                for i in 0..sum.len() {
                    sum[i] = if incremental[i] { sum[i] + lost[i] } else { kahan::mean((sum[i], lost[i]), count[i]) };
                }
                std::mem::take(sum)
            }
            State::Count(values) | State::Extreme(values) => std::mem::take(values),
            State::Group => vec![1.0; self.groups * self.steps],
            State::Deviation { count, squares, .. } => {
                for (squares, count) in squares.iter_mut().zip(count) {
                    let variance = *squares / *count;
                    *squares = if is_stddev { variance.sqrt() } else { variance };
                }
                std::mem::take(squares)
            }
            State::Rows(rows) => {
                let (values, seen) = rows.quantiles(param, self.groups, self.steps);
                self.seen = seen;
                values
            }
        }
    }
}

/// Replaces a slot if the value is present and better, or the slot is NaN (as it is until it has had a number).
fn keep_better(row: impl Iterator<Item = (f64, bool)>, slots: &mut [f64], better: impl Fn(f64, f64) -> bool) {
    for ((value, present), slot) in row.zip(slots) {
        *slot = if present & (better(value, *slot) | slot.is_nan()) { value } else { *slot };
    }
}

/// Adds the `count`-th value. The state is a sum until that would overflow, then a running mean.
#[inline]
fn add_to_mean(value: f64, count: f64, sum: &mut f64, lost: &mut f64, incremental: &mut bool) {
    if count == 1.0 {
        *sum = value;
        return;
    }
    if !*incremental {
        let (new_sum, new_lost) = kahan::inc(value, *sum, *lost);
        if !new_sum.is_infinite() {
            (*sum, *lost) = (new_sum, new_lost);
            return;
        }
        *incremental = true;
        *sum /= count - 1.0;
        *lost /= count - 1.0;
    }
    let q = (count - 1.0) / count;
    (*sum, *lost) = kahan::inc(value / count, q * *sum, q * *lost);
}

#[derive(Debug, Clone, Copy)]
struct Mean {
    sum: f64,
    lost: f64,
    count: f64,
    incremental: bool,
}

impl Mean {
    fn merge(self, other: &Self) -> Self {
        if other.count == 0.0 {
            return self;
        }
        if self.count == 0.0 {
            return *other;
        }
        let count = self.count + other.count;
        if !self.incremental && !other.incremental {
            let (sum, lost) = kahan::merge((self.sum, self.lost), (other.sum, other.lost));
            if !sum.is_infinite() {
                return Self { sum, lost, count, incremental: false };
            }
        }
        let share = |m: &Self| {
            let q = if m.incremental { m.count / count } else { 1.0 / count };
            (m.sum * q, m.lost * q)
        };
        let (sum, lost) = kahan::merge(share(&self), share(other));
        Self { sum, lost, count, incremental: true }
    }
}

#[cfg(test)]
mod tests;
