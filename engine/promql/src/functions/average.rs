//! `avg_over_time`: the sum divided by the count, and an incremental mean where the sum would overflow.

use quiver_types::{Histogram, Result};

use super::annotations::{Note, Notes};
use super::call::{KernelContext, RangeCall};
use super::definition::{FunctionDef, MATRIX, RangeFunction};
use super::sum::contradict;
use crate::histogram::{self, Compensation};
use crate::kahan;
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::window::{Sums, each};

pub(super) const AVG_OVER_TIME: FunctionDef =
    FunctionDef::range("avg_over_time", MATRIX, RangeFunction::new(average), "The mean of the values in the range.");

fn average(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    let mut notes = Notes::default();
    let mut sums = Sums::new(samples.values, &mut ctx.scratch.floats, &mut ctx.scratch.pairs);
    let may_overflow = sums.is_rescan();
    each(samples, call, (0, 0), |w| match (w.floats.is_empty(), w.hists.is_empty()) {
        (false, false) => notes.set(Note::MixedFloatsHistograms),
        (false, true) => {
            out.values[w.step] = if may_overflow {
                mean(&samples.values[w.floats.lo..w.floats.hi])
            } else {
                kahan::mean(sums.get(w.floats), w.floats.len() as f64)
            };
            out.present[w.step] = true;
        }
        _ => {
            if let Some(h) = mean_histogram(&samples.hists[w.hists.lo..w.hists.hi], &mut notes) {
                out.hists.push((w.step as u32, h));
            }
        }
    });
    ctx.note(notes);
    Ok(())
}

fn mean(values: &[f64]) -> f64 {
    let (mut sum, mut lost) = (values[0], 0.0);
    let mut mean = None;
    for (i, &v) in values.iter().enumerate().skip(1) {
        let count = (i + 1) as f64;
        if mean.is_none() {
            let (new_sum, new_lost) = kahan::inc(v, sum, lost);
            if !new_sum.is_infinite() {
                (sum, lost) = (new_sum, new_lost);
                continue;
            }
            mean = Some(sum / (count - 1.0));
            lost /= count - 1.0;
        }
        let q = (count - 1.0) / count;
        let (new_mean, new_lost) = kahan::inc(v / count, q * mean.unwrap_or_default(), q * lost);
        (mean, lost) = (Some(new_mean), new_lost);
    }
    let count = values.len() as f64;
    mean.map_or(kahan::mean((sum, lost), count), |mean| mean + lost)
}

fn mean_histogram(hists: &[Histogram], notes: &mut Notes) -> Option<Histogram> {
    let mut seen = Notes::default();
    let mut sum = MeanHistogram::new(&hists[0]);
    for h in &hists[1..] {
        let Ok(reconciled) = sum.add(h) else {
            // Only this is reported then.
            notes.set(Note::MixedExponentialCustom);
            return None;
        };
        if reconciled {
            seen.set(Note::ReconciledAggregation);
        }
    }
    if contradict(hists) {
        seen.set(Note::CollisionAggregation);
    }
    notes.merge(seen);
    Some(sum.finish())
}

/// A running mean of histograms.
#[derive(Debug, Clone)]
pub(crate) struct MeanHistogram {
    /// The sum, or the mean once the sum would overflow.
    value: Histogram,
    lost: Compensation,
    count: f64,
    incremental: bool,
}

impl MeanHistogram {
    pub(crate) fn new(first: &Histogram) -> Self {
        Self { value: first.clone(), lost: Compensation::new(first), count: 1.0, incremental: false }
    }

    /// Makes one again of what [`Self::into_parts`] gave.
    pub(crate) fn of_parts(value: Histogram, lost: Compensation, count: f64, incremental: bool) -> Self {
        Self { value, lost, count, incremental }
    }

    /// Gives the sum or mean, what it lost, of how many it is, and whether it is a mean.
    pub(crate) fn into_parts(self) -> (Histogram, Compensation, f64, bool) {
        (self.value, self.lost, self.count, self.incremental)
    }

    /// About how much memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        2 * self.value.memory_bytes()
    }

    /// Adds one; says whether custom bounds had to be reconciled.
    pub(crate) fn add(&mut self, h: &Histogram) -> Result<bool, histogram::IncompatibleBuckets> {
        self.count += 1.0;
        if !self.incremental {
            if let Some(reconciled) = self.add_to_sum(h)? {
                return Ok(reconciled);
            }
            self.go_incremental(self.count - 1.0);
        }
        let q = (self.count - 1.0) / self.count;
        self.lost.scale(|v| v * q);
        histogram::mul(&mut self.value, q);
        let mut part = h.clone();
        histogram::div(&mut part, self.count);
        Ok(histogram::add_compensated(&mut self.value, &mut self.lost, &part)?.reconciled)
    }

    /// Adds another running mean.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<bool, histogram::IncompatibleBuckets> {
        let count = self.count + other.count;
        let mut others = other.value.clone();
        other.lost.restore_to(&mut others);
        if !self.incremental
            && !other.incremental
            && let Some(reconciled) = self.add_to_sum(&others)?
        {
            self.count = count;
            return Ok(reconciled);
        }
        if !self.incremental {
            self.go_incremental(self.count);
        }
        let (q, weight) = (self.count / count, other.count / count);
        self.lost.scale(|v| v * q);
        histogram::mul(&mut self.value, q);
        if other.incremental {
            histogram::mul(&mut others, weight);
        } else {
            histogram::div(&mut others, count);
        }
        self.count = count;
        Ok(histogram::add_compensated(&mut self.value, &mut self.lost, &others)?.reconciled)
    }

    /// Adds to the sum; `None`, with nothing changed, when that overflows.
    fn add_to_sum(&mut self, h: &Histogram) -> Result<Option<bool>, histogram::IncompatibleBuckets> {
        // Far from the largest number there is no need for a copy to go back to.
        const FAR: f64 = f64::MAX / 1e6;
        let near = |h: &Histogram| !(h.count.abs() < FAR && h.sum.abs() < FAR);
        let before = (near(&self.value) || near(h)).then(|| (self.value.clone(), self.lost.clone()));
        let merged = histogram::add_compensated(&mut self.value, &mut self.lost, h)?;
        match before {
            Some(before) if histogram::has_overflow(&self.value) => {
                (self.value, self.lost) = before;
                Ok(None)
            }
            _ => Ok(Some(merged.reconciled)),
        }
    }

    fn go_incremental(&mut self, count: f64) {
        self.incremental = true;
        histogram::div(&mut self.value, count);
        self.lost.scale(|v| v / count);
    }

    pub(crate) fn finish(mut self) -> Histogram {
        if !self.incremental {
            self.go_incremental(self.count);
        }
        self.lost.restore_to(&mut self.value);
        self.value
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{any_case, check, floats, oracle, run, with_hists};
    use super::*;
    use crate::histogram::testing::{exponential, populated};

    proptest! {
        #[test]
        fn equals_a_rescan(case in any_case()) {
            oracle("avg_over_time", &case, |w| Some(mean(w.values)));
        }
    }

    #[test]
    fn of_floats() {
        let huge = f64::MAX;
        check("avg_over_time(60s)", &floats(&[(10, huge), (20, huge)]), &[Some(huge), None, None]);
        let s = floats(&[(10, huge), (20, huge), (30, -huge), (40, -huge)]);
        let got = run("avg_over_time(60s)", &s);
        assert!(got.floats[0].is_some_and(|v| v.abs() < huge * 1e-15));
        let inf = f64::INFINITY;
        check("avg_over_time(60s)", &floats(&[(10, 1.0), (20, inf)]), &[Some(inf), None, None]);
        check("avg_over_time(60s)", &floats(&[(10, inf), (20, -inf)]), &[Some(f64::NAN), None, None]);
    }

    #[test]
    fn of_histograms() {
        let list = [(10, exponential(0, 1, &[1.0, 2.0])), (20, exponential(0, 1, &[4.0]))];
        let got = run("avg_over_time(60s)", &with_hists(floats(&[]), &list));
        assert_eq!(populated(&got.hists[0].1), [(1, 2.5), (2, 1.0)]);
    }

    #[test]
    fn merging_means() {
        let list: Vec<_> = (1..6).map(|i| exponential(0, 1, &[f64::from(i)])).collect();
        let (mut a, mut b) = (MeanHistogram::new(&list[0]), MeanHistogram::new(&list[2]));
        a.add(&list[1]).unwrap();
        b.add(&list[3]).unwrap();
        b.add(&list[4]).unwrap();
        a.merge(&b).unwrap();
        assert_eq!(populated(&a.finish()), [(1, 3.0)]);

        let huge = exponential(0, 1, &[f64::MAX / 4.0]);
        let (mut a, b) = (MeanHistogram::new(&huge), MeanHistogram::new(&huge));
        a.merge(&b).unwrap();
        let mut c = MeanHistogram::new(&huge);
        c.add(&huge).unwrap();
        a.merge(&c).unwrap();
        let got = a.finish().positive[0];
        assert!((got / (f64::MAX / 4.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn what_does_not_fit_gives_nothing() {
        use crate::histogram::testing::custom;

        let (a, b) = (exponential(0, 1, &[1.0]), custom(&[1.0], &[1.0, 2.0]));
        for list in [[(10, a.clone()), (20, b.clone())], [(10, b.clone()), (20, a.clone())]] {
            let got = run("avg_over_time(60s)", &with_hists(floats(&[]), &list));
            assert!(got.hists.is_empty() && got.infos.is_empty() && got.warnings.len() == 1, "{got:?}");
        }
        let mut mean = MeanHistogram::new(&a);
        assert!(mean.add(&b).is_err() && MeanHistogram::new(&b).merge(&MeanHistogram::new(&a)).is_err());
        let mut custom_mean = MeanHistogram::new(&b);
        assert_eq!(custom_mean.add(&custom(&[2.0], &[1.0, 2.0])), Ok(true), "bounds were reconciled");
        assert_eq!(custom_mean.add(&custom(&[], &[6.0])), Ok(false), "now they are the same");
        assert_eq!(populated(&custom_mean.finish()), [(0, 4.0)]);
    }

    #[test]
    fn means_go_on_elsewhere() {
        let list: Vec<Histogram> = (1..=8).map(|i| exponential(i % 3, 1, &[f64::from(i), 1.0])).collect();
        let mut whole = MeanHistogram::new(&list[0]);
        list[1..].iter().for_each(|h| assert!(whole.add(h).is_ok()));
        let mut parts = MeanHistogram::new(&list[0]);
        for h in &list[1..] {
            let (value, lost, count, incremental) = parts.into_parts();
            assert!(!incremental);
            parts = MeanHistogram::of_parts(value, lost, count, incremental);
            assert!(parts.add(h).is_ok());
        }
        assert_eq!(populated(&parts.finish()), populated(&whole.finish()));
    }

    /// The mean of numbers whose sum is beyond all numbers, whichever of both sides is a mean already.
    #[test]
    fn merging_sums_that_would_overflow() {
        let large = f64::MAX / 4.0;
        let of = |counts: &[f64]| {
            let mut mean = MeanHistogram::new(&exponential(0, 1, &counts[..1]));
            counts[1..].iter().for_each(|count| assert!(mean.add(&exponential(0, 1, &[*count])).is_ok()));
            mean
        };
        let (one, many) = ([large], [large, large / 2.0, large, large / 2.0, large]);
        for (a, b) in [(&one[..], &many[..]), (&many[..], &one[..]), (&many[..], &many[..]), (&one[..], &one[..])] {
            let mut merged = of(a);
            assert!(merged.merge(&of(b)).is_ok());
            let expected = a.iter().chain(b).map(|v| v / large).sum::<f64>() / (a.len() + b.len()) as f64;
            let got = merged.finish().positive[0] / large;
            assert!((got - expected).abs() < 1e-12, "{got}, not {expected}");
        }
    }
}
