//! Sums and means of the histograms of groups. Few groups hold histograms, so their state is a map, not a matrix.

use foldhash::HashMap;
use quiver_types::{Histogram, ResetHint};

use crate::annotation::Annotations;
use crate::ast::PosRange;
use crate::functions::MeanHistogram;
use crate::functions::notes::{self, HistogramOperation};
use crate::histogram::{self, Compensation};

/// State of all slots (group and step) that have seen a histogram.
#[derive(Debug, Default)]
pub(super) struct HistogramSums {
    slots: HashMap<usize, Slot>,
    /// Names of metrics whose buckets did not fit those of the others.
    misfits: Vec<String>,
    reconciled: bool,
}

#[derive(Debug)]
struct Slot {
    total: Total,
    saw_reset: bool,
    saw_no_reset: bool,
    /// Exponential and custom buckets met: no result, and nothing more to add.
    incompatible: bool,
    /// Name of the first metric.
    metric: String,
}

#[derive(Debug)]
enum Total {
    Sum(Box<(Histogram, Compensation)>),
    Mean(Box<MeanHistogram>),
}

impl HistogramSums {
    /// Adds a histogram of a metric to a slot.
    pub(super) fn add(&mut self, slot: usize, h: &Histogram, mean: bool, metric: &str) {
        let Some(state) = self.slots.get_mut(&slot) else {
            let total = if mean {
                Total::Mean(Box::new(MeanHistogram::new(h)))
            } else {
                Total::Sum(Box::new((h.clone(), Compensation::new(h))))
            };
            let (saw_reset, saw_no_reset) = hints(h);
            let metric = metric.to_owned();
            self.slots.insert(slot, Slot { total, saw_reset, saw_no_reset, incompatible: false, metric });
            return;
        };
        if state.incompatible {
            return;
        }
        let (reset, no_reset) = hints(h);
        state.saw_reset |= reset;
        state.saw_no_reset |= no_reset;
        let added = match &mut state.total {
            Total::Sum(sum) => histogram::add_compensated(&mut sum.0, &mut sum.1, h).map(|m| m.reconciled),
            Total::Mean(mean) => mean.add(h),
        };
        if let Ok(reconciled) = added {
            self.reconciled |= reconciled;
        } else {
            state.incompatible = true;
            self.misfit(metric.to_owned());
        }
    }

    fn misfit(&mut self, metric: String) {
        if !self.misfits.contains(&metric) {
            self.misfits.push(metric);
        }
    }

    /// Takes over the state of other rows.
    pub(super) fn merge(&mut self, other: Self) {
        self.reconciled |= other.reconciled;
        for metric in other.misfits {
            self.misfit(metric);
        }
        for (slot, theirs) in other.slots {
            let Some(state) = self.slots.get_mut(&slot) else {
                self.slots.insert(slot, theirs);
                continue;
            };
            state.incompatible |= theirs.incompatible;
            if state.incompatible {
                continue;
            }
            state.saw_reset |= theirs.saw_reset;
            state.saw_no_reset |= theirs.saw_no_reset;
            let added = match (&mut state.total, theirs.total) {
                (Total::Sum(own), Total::Sum(others)) => {
                    let (mut h, lost) = *others;
                    lost.settle(&mut h);
                    histogram::add_compensated(&mut own.0, &mut own.1, &h).map(|m| m.reconciled)
                }
                (Total::Mean(own), Total::Mean(others)) => own.merge(&others),
                _ => unreachable!("both sides were made by the same operator"),
            };
            if let Ok(reconciled) = added {
                self.reconciled |= reconciled;
            } else {
                state.incompatible = true;
                self.misfit(theirs.metric);
            }
        }
    }

    /// Gives the results by slot, ascending. `has_float` says which slots have floats as well; they get no result.
    pub(super) fn finish(
        self,
        has_float: impl Fn(usize) -> bool,
        pos: PosRange,
        annotations: &mut Annotations,
    ) -> Vec<(usize, Option<Histogram>)> {
        for metric in &self.misfits {
            annotations.warn(pos, notes::mixed_exponential_custom(metric));
        }
        if self.reconciled {
            annotations.info(pos, notes::mismatched_custom_buckets(HistogramOperation::Aggregation));
        }
        let mut out: Vec<(usize, Option<Histogram>)> = Vec::with_capacity(self.slots.len());
        for (slot, state) in self.slots {
            if has_float(slot) {
                annotations.warn(pos, notes::mixed_floats_histograms_aggregation());
                out.push((slot, None));
                continue;
            }
            if state.incompatible {
                out.push((slot, None));
                continue;
            }
            if state.saw_reset && state.saw_no_reset {
                annotations.warn(pos, notes::counter_reset_collision(HistogramOperation::Aggregation));
            }
            let mut h = match state.total {
                Total::Sum(sum) => {
                    let (mut h, lost) = *sum;
                    lost.settle(&mut h);
                    h
                }
                Total::Mean(mean) => mean.finish(),
            };
            histogram::compact(&mut h);
            out.push((slot, Some(h)));
        }
        out.sort_unstable_by_key(|r| r.0);
        out
    }
}

fn hints(h: &Histogram) -> (bool, bool) {
    (h.reset_hint == ResetHint::Reset, h.reset_hint == ResetHint::NotReset)
}
