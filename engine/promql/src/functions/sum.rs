//! `sum_over_time`: compensated sums of floats or of histograms.

use quiver_types::{Histogram, ResetHint, Result};

use super::annotations::{Note, Notes};
use super::call::{KernelContext, RangeCall};
use super::definition::{FunctionDef, MATRIX, RangeFunction};
use crate::histogram::{self, Compensation};
use crate::kahan;
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::window::{Sums, each};

pub(super) const SUM_OVER_TIME: FunctionDef =
    FunctionDef::range("sum_over_time", MATRIX, RangeFunction::new(sum), "The sum of the values in the range.");

fn sum(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    let mut notes = Notes::default();
    let mut sums = Sums::new(samples.values, &mut ctx.scratch.floats, &mut ctx.scratch.pairs);
    each(samples, call, (0, 0), |w| match (w.floats.is_empty(), w.hists.is_empty()) {
        (false, false) => notes.set(Note::MixedFloatsHistograms),
        (false, true) => {
            out.values[w.step] = kahan::total(sums.get(w.floats));
            out.present[w.step] = true;
        }
        _ => {
            if let Some(h) = sum_histograms(&samples.hists[w.hists.lo..w.hists.hi], &mut notes) {
                out.hists.push((w.step as u32, h));
            }
        }
    });
    ctx.note(notes);
    Ok(())
}

fn sum_histograms(hists: &[Histogram], notes: &mut Notes) -> Option<Histogram> {
    let mut sum = hists[0].clone();
    let mut lost = Compensation::new(&sum);
    let mut seen = Notes::default();
    for h in &hists[1..] {
        let Ok(merged) = histogram::add_compensated(&mut sum, &mut lost, h) else {
            // Only this annotation is reported then.
            notes.set(Note::MixedExponentialCustom);
            return None;
        };
        if merged.reconciled {
            seen.set(Note::ReconciledAggregation);
        }
    }
    lost.restore_to(&mut sum);
    if contradict(hists) {
        seen.set(Note::CollisionAggregation);
    }
    notes.merge(seen);
    Some(sum)
}

/// Tells whether one histogram indicates a reset and another one that there was none.
pub(super) fn contradict(hists: &[Histogram]) -> bool {
    let has = |hint| hists.iter().any(|h| h.reset_hint == hint);
    has(ResetHint::Reset) && has(ResetHint::NotReset)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{any_case, check, floats, oracle, run, with_hists};
    use super::*;
    use crate::histogram::testing::{custom, exponential, populated};

    proptest! {
        #[test]
        fn equals_a_rescan(case in any_case()) {
            oracle("sum_over_time", &case, |w| {
                Some(kahan::total(w.values.iter().fold((0.0, 0.0), |(s, c), &v| kahan::inc(v, s, c))))
            });
        }
    }

    #[test]
    fn of_floats() {
        let s = floats(&[(10, 1e100), (20, 1.0), (30, -1e100)]);
        check("sum_over_time(60s)", &s, &[Some(1.0), None, None]);
    }

    #[test]
    fn of_histograms() {
        let list = [(10, exponential(1, 1, &[1.0, 2.0])), (20, exponential(0, 1, &[4.0]))];
        let got = run("sum_over_time(60s)", &with_hists(floats(&[]), &list));
        assert_eq!(populated(&got.hists[0].1), [(1, 7.0)]);
        assert!(got.warnings.is_empty());

        let list = [(10, exponential(1, 1, &[1.0, 2.0])), (20, custom(&[1.0], &[4.0, 1.0]))];
        let got = run("sum_over_time(60s)", &with_hists(floats(&[]), &list));
        assert!(got.hists.is_empty());
        assert_eq!(got.warnings.len(), 1);

        let got = run("sum_over_time(60s)", &with_hists(floats(&[(5, 1.0)]), &list[..1]));
        let text = "PromQL warning: encountered a mix of histograms and floats for metric name \"m\" (1:1)";
        assert_eq!(got.warnings, [text]);
        assert_eq!(got.floats[0], None);
    }

    #[test]
    fn numbers_that_are_none() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        check("sum_over_time(60s)", &floats(&[(10, inf), (20, 1.0)]), &[Some(inf), None, None]);
        check("sum_over_time(60s)", &floats(&[(10, inf), (20, -inf)]), &[Some(nan), None, None]);
        check("sum_over_time(60s)", &floats(&[(10, f64::MAX), (20, f64::MAX)]), &[Some(inf), None, None]);
        // Later windows do not suffer.
        let s = floats(&[(10, nan), (20, inf), (70, 1.0), (120, 2.0)]);
        check("sum_over_time(60s)", &s, &[Some(nan), Some(1.0), Some(2.0)]);
    }

    #[test]
    fn hints_that_contradict_each_other() {
        use ResetHint::{Gauge, NotReset, Reset, Unknown};

        let hinted = |count: f64, reset_hint| Histogram { reset_hint, ..exponential(0, 1, &[count]) };
        let told = |hints: &[ResetHint]| {
            let list: Vec<_> = hints.iter().zip(1..).map(|(&hint, at)| (at, hinted(1.0, hint))).collect();
            let got = run("sum_over_time(60s)", &with_hists(floats(&[]), &list));
            assert_eq!(populated(&got.hists[0].1), [(1, hints.len() as f64)]);
            got.warnings
        };
        let conflict = "PromQL warning: conflicting counter resets during histogram aggregation (1:1)";
        assert_eq!(told(&[Reset, NotReset]), [conflict]);
        // Whatever stands between, and also where the sum has long lost its hint.
        assert_eq!(told(&[NotReset, Gauge, Unknown, Reset]), [conflict]);
        for hints in [&[Reset, Reset][..], &[NotReset, Gauge], &[Unknown, Reset], &[Gauge]] {
            assert!(told(hints).is_empty(), "{hints:?}");
        }
    }

    #[test]
    fn custom_bounds_are_reconciled() {
        let list = [(10, custom(&[1.0, 2.0], &[1.0, 2.0, 3.0])), (20, custom(&[2.0, 4.0], &[10.0, 20.0, 30.0]))];
        let got = run("sum_over_time(60s)", &with_hists(floats(&[]), &list));
        let sum = &got.hists[0].1;
        assert_eq!((&sum.custom_bounds[..], populated(sum)), (&[2.0][..], vec![(0, 13.0), (1, 53.0)]));
        let text = "PromQL info: mismatched custom buckets were reconciled during aggregation (1:1)";
        assert_eq!((got.warnings.len(), got.infos), (0, vec![text.to_owned()]));
    }
}
