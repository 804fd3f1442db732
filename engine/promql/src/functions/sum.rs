//! `sum_over_time`: compensated sums of floats or of histograms.

use quiver_types::{Histogram, ResetHint, Result};

use super::call::{KernelContext, RangeCall};
use super::notes::{Note, Notes};
use super::{FunctionDef, MATRIX, RangeFunction};
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
            // Only this is reported then.
            notes.set(Note::MixedExponentialCustom);
            return None;
        };
        if merged.reconciled {
            seen.set(Note::ReconciledAggregation);
        }
    }
    lost.settle(&mut sum);
    if contradict(hists) {
        seen.set(Note::CollisionAggregation);
    }
    notes.merge(seen);
    Some(sum)
}

/// Says whether one histogram tells of a reset and another one that there was none.
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
}
