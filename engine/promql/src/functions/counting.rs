//! `count_over_time` and `present_over_time`: they depend only on the number of samples.

use quiver_types::Result;

use super::call::{KernelContext, RangeCall};
use super::definition::{FunctionDef, MATRIX, RangeFunction};
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::window::{StepWindow, each};

pub(super) const COUNT_OVER_TIME: FunctionDef = FunctionDef::range(
    "count_over_time",
    MATRIX,
    RangeFunction { times_only: true, ..RangeFunction::new(count) },
    "The number of samples in the range.",
);
pub(super) const PRESENT_OVER_TIME: FunctionDef = FunctionDef::range(
    "present_over_time",
    MATRIX,
    RangeFunction { times_only: true, ..RangeFunction::new(present) },
    "1 where the range has any sample.",
);

fn count(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    _ctx: &mut KernelContext<'_>,
) -> Result<()> {
    fill(samples, call, out, |w| (w.floats.len() + w.hists.len()) as f64);
    Ok(())
}

fn present(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    _ctx: &mut KernelContext<'_>,
) -> Result<()> {
    fill(samples, call, out, |_| 1.0);
    Ok(())
}

fn fill(samples: &SeriesSamples<'_>, call: &RangeCall<'_>, out: &mut SeriesOut<'_>, f: impl Fn(&StepWindow) -> f64) {
    each(samples, call, (0, 0), |w| {
        out.values[w.step] = f(&w);
        out.present[w.step] = true;
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, floats};

    #[test]
    fn counts_floats_and_histograms() {
        check("count_over_time(60s)", &floats(&[(0, 1.0), (30, 2.0), (60, 3.0)]), &[Some(2.0), Some(1.0), None]);
        check("present_over_time(60s)", &floats(&[(0, 1.0), (30, 2.0), (60, 3.0)]), &[Some(1.0), Some(1.0), None]);
    }

    #[test]
    fn samples_of_both_kinds_count() {
        use super::super::testing::with_hists;
        use crate::histogram::testing::exponential;

        let h = || exponential(0, 0, &[1.0]);
        let s = with_hists(floats(&[(10, f64::NAN), (60, 1.0)]), &[(20, h()), (70, h()), (160, h())]);
        check("count_over_time(60s)", &s, &[Some(3.0), Some(2.0), Some(1.0)]);
        check("present_over_time(60s)", &s, &[Some(1.0), Some(1.0), Some(1.0)]);
        check("count_over_time(10s)", &s, &[Some(1.0), None, Some(1.0)]);
    }
}
