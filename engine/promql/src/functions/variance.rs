//! `stddev_over_time` and `stdvar_over_time`: Welford's method with compensated sums, window by window.

use quiver_types::Result;

use super::call::{KernelContext, RangeCall};
use super::definition::{FunctionDef, MATRIX, RangeFunction};
use super::floats::of_floats;
use crate::kahan;
use crate::kernel::{SeriesOut, SeriesSamples};

pub(super) const STDDEV_OVER_TIME: FunctionDef = FunctionDef::range(
    "stddev_over_time",
    MATRIX,
    RangeFunction::new(stddev).rescanning(),
    "The population standard deviation of the values in the range.",
);
pub(super) const STDVAR_OVER_TIME: FunctionDef = FunctionDef::range(
    "stdvar_over_time",
    MATRIX,
    RangeFunction::new(stdvar).rescanning(),
    "The population variance of the values in the range.",
);

fn stddev(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    of_floats(samples, call, out, ctx, |values| variance(values).sqrt());
    Ok(())
}

fn stdvar(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    of_floats(samples, call, out, ctx, variance);
    Ok(())
}

fn variance(values: &[f64]) -> f64 {
    let (mut mean, mut squares) = ((0.0, 0.0), (0.0, 0.0));
    let mut count = 0.0;
    for &v in values {
        count += 1.0;
        let delta = v - (mean.0 + mean.1);
        mean = kahan::inc(delta / count, mean.0, mean.1);
        squares = kahan::inc(delta * (v - (mean.0 + mean.1)), squares.0, squares.1);
    }
    (squares.0 + squares.1) / count
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, floats};

    #[test]
    fn of_values() {
        let s = floats(&[(10, 0.0), (20, 8.0), (30, 8.0), (40, 2.0), (50, 3.0)]);
        check("stdvar_over_time(60s)", &s, &[Some(10.56), None, None]);
        check("stddev_over_time(60s)", &s, &[Some(10.56_f64.sqrt()), None, None]);
        let s = floats(&[(10, 1.599_050_538_75e18), (20, 1.599_050_538_75e18)]);
        check("stdvar_over_time(60s)", &s, &[Some(0.0), None, None]);
    }

    #[test]
    fn of_one_value_or_of_such_as_are_no_numbers() {
        check("stddev_over_time(60s)", &floats(&[(10, 5.0)]), &[Some(0.0), None, None]);
        check("stdvar_over_time(60s)", &floats(&[(10, f64::INFINITY)]), &[Some(f64::NAN), None, None]);
        check("stdvar_over_time(60s)", &floats(&[(10, 1.0), (20, f64::NAN)]), &[Some(f64::NAN), None, None]);
        // Small differences of large values are not lost.
        let s = floats(&[(10, 1e15), (20, 1e15 + 2.0), (30, 1e15 + 4.0), (70, -1.0), (80, 1.0)]);
        check("stdvar_over_time(60s)", &s, &[Some(8.0 / 3.0), Some(1.0), None]);
        check("stddev_over_time(60s)", &s, &[Some((8.0_f64 / 3.0).sqrt()), Some(1.0), None]);
    }
}
