//! Sums and means of the histograms of groups. Few groups have histograms, so the state is a map, not a matrix.

use foldhash::HashMap;
use quiver_types::{Histogram, ResetHint};

use crate::annotation::Annotations;
use crate::ast::PosRange;
use crate::functions::MeanHistogram;
use crate::functions::annotations::{self, HistogramOperation};
use crate::histogram::{self, Compensation};

/// Estimated memory of a slot besides its histogram: its place in the map, and the metric's name.
const SLOT_BYTES: usize = size_of::<(usize, HistogramSum)>() + 48;

/// The state of all slots (group and step) with a histogram.
#[derive(Debug, Default)]
pub(super) struct HistogramSums {
    slots: HashMap<usize, HistogramSum>,
    /// Names of metrics whose buckets were incompatible with the others.
    misfits: Vec<String>,
    reconciled: bool,
    /// Estimated memory of the slots.
    bytes: usize,
}

#[derive(Debug)]
struct HistogramSum {
    total: Total,
    saw_reset: bool,
    saw_no_reset: bool,
    /// Exponential and custom buckets were mixed: there is no result, and nothing more is added.
    incompatible: bool,
    /// Name of the first metric.
    metric: String,
}

/// The complete state of a slot, from which another node can continue.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "what was seen of histograms, each for itself")]
pub struct HistogramPart {
    /// Row and step: row × steps + step.
    pub slot: usize,
    /// Sum of the histograms so far, or their mean when `incremental`.
    pub total: Histogram,
    /// Compensation for the rounding errors of `total` (Kahan summation).
    pub lost: Compensation,
    /// Number of histograms, for means; 0 for sums.
    pub count: f64,
    /// For means: whether `total` is already a mean, and not a sum to be divided.
    pub incremental: bool,
    /// Whether one of the histograms indicated a counter reset.
    pub saw_reset: bool,
    /// Whether one of them indicated that there was no reset.
    pub saw_no_reset: bool,
    /// Whether exponential and custom buckets were mixed, so that there is no result.
    pub incompatible: bool,
    /// Name of the first metric.
    pub metric: String,
}

/// What is made of the histograms of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HistogramStatistic {
    Sum,
    Mean,
}

#[derive(Debug)]
enum Total {
    Sum(Box<(Histogram, Compensation)>),
    Mean(Box<MeanHistogram>),
}

impl Total {
    /// Approximate memory of the histogram and its compensation.
    fn bytes(&self) -> usize {
        match self {
            Self::Sum(sum) => 2 * sum.0.memory_bytes(),
            Self::Mean(mean) => mean.memory_bytes(),
        }
    }
}

impl HistogramSums {
    /// Approximate memory of the slots.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The slots, ascending.
    pub(super) fn into_parts(self) -> Vec<HistogramPart> {
        let part = |(slot, state): (usize, HistogramSum)| {
            let HistogramSum { total, saw_reset, saw_no_reset, incompatible, metric } = state;
            let (total, lost, count, incremental) = match total {
                Total::Sum(sum) => {
                    let (total, lost) = *sum;
                    (total, lost, 0.0, false)
                }
                Total::Mean(mean) => mean.into_parts(),
            };
            HistogramPart { slot, total, lost, count, incremental, saw_reset, saw_no_reset, incompatible, metric }
        };
        let mut parts: Vec<HistogramPart> = self.slots.into_iter().map(part).collect();
        parts.sort_unstable_by_key(|part| part.slot);
        parts
    }

    /// Restores the state; `slot_of` maps the slot of a part.
    pub(super) fn of_parts(
        parts: Vec<HistogramPart>,
        statistic: HistogramStatistic,
        slot_of: impl Fn(usize) -> usize,
    ) -> Self {
        let mut sums = Self::default();
        for part in parts {
            let HistogramPart { slot, total, lost, count, incremental, saw_reset, saw_no_reset, incompatible, metric } =
                part;
            let total = match statistic {
                HistogramStatistic::Sum => Total::Sum(Box::new((total, lost))),
                HistogramStatistic::Mean => {
                    Total::Mean(Box::new(MeanHistogram::of_parts(total, lost, count, incremental)))
                }
            };
            sums.bytes += total.bytes() + SLOT_BYTES;
            sums.slots.insert(slot_of(slot), HistogramSum { total, saw_reset, saw_no_reset, incompatible, metric });
        }
        sums
    }

    /// Adds annotations about the histograms added since the last call.
    pub(super) fn remark(&mut self, pos: PosRange, annotations: &mut Annotations) {
        for metric in self.misfits.drain(..) {
            annotations.warn(pos, annotations::mixed_exponential_custom(&metric));
        }
        if std::mem::take(&mut self.reconciled) {
            annotations.info(pos, annotations::mismatched_custom_buckets(HistogramOperation::Aggregation));
        }
    }

    /// Adds a histogram of a metric to a slot.
    pub(super) fn add(&mut self, slot: usize, h: &Histogram, statistic: HistogramStatistic, metric: &str) {
        let Some(state) = self.slots.get_mut(&slot) else {
            let total = match statistic {
                HistogramStatistic::Sum => Total::Sum(Box::new((h.clone(), Compensation::new(h)))),
                HistogramStatistic::Mean => Total::Mean(Box::new(MeanHistogram::new(h))),
            };
            let (saw_reset, saw_no_reset) = hints(h);
            let metric = metric.to_owned();
            self.bytes += total.bytes() + SLOT_BYTES;
            self.slots.insert(slot, HistogramSum { total, saw_reset, saw_no_reset, incompatible: false, metric });
            return;
        };
        if state.incompatible {
            return;
        }
        let (reset, no_reset) = hints(h);
        state.saw_reset |= reset;
        state.saw_no_reset |= no_reset;
        let before = state.total.bytes();
        let added = match &mut state.total {
            Total::Sum(sum) => histogram::add_compensated(&mut sum.0, &mut sum.1, h).map(|m| m.reconciled),
            Total::Mean(mean) => mean.add(h),
        };
        self.bytes += state.total.bytes().saturating_sub(before);
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

    /// Merges in the state of other rows.
    pub(super) fn merge(&mut self, other: Self) {
        self.reconciled |= other.reconciled;
        self.bytes += other.bytes;
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
                    lost.restore_to(&mut h);
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

    /// The results by slot, ascending. `has_float` tells which slots also have floats; those get no result.
    pub(super) fn finish(
        mut self,
        has_float: impl Fn(usize) -> bool,
        pos: PosRange,
        annotations: &mut Annotations,
    ) -> Vec<(usize, Option<Histogram>)> {
        self.remark(pos, annotations);
        let mut out: Vec<(usize, Option<Histogram>)> = Vec::with_capacity(self.slots.len());
        for (slot, state) in self.slots {
            if has_float(slot) {
                annotations.warn(pos, annotations::mixed_floats_histograms_aggregation());
                out.push((slot, None));
                continue;
            }
            if state.incompatible {
                out.push((slot, None));
                continue;
            }
            if state.saw_reset && state.saw_no_reset {
                annotations.warn(pos, annotations::counter_reset_collision(HistogramOperation::Aggregation));
            }
            let mut h = match state.total {
                Total::Sum(sum) => {
                    let (mut h, lost) = *sum;
                    lost.restore_to(&mut h);
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
