//! `deriv` and `predict_linear`: a least-squares line through the values of a range.

use quiver_types::{Millis, Result};

use super::call::{KernelContext, RangeCall};
use super::notes::{Note, Notes};
use super::{FunctionDef, MATRIX, RangeFunction};
use crate::ast::ValueType::{Matrix, Scalar};
use crate::kahan;
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::window::each;

pub(super) const DERIV: FunctionDef = FunctionDef::range(
    "deriv",
    MATRIX,
    RangeFunction::new(deriv),
    "The slope of a straight line through the values, per second.",
);
pub(super) const PREDICT_LINEAR: FunctionDef = FunctionDef::range(
    "predict_linear",
    &[Matrix, Scalar],
    RangeFunction::new(predict_linear),
    "The value that a straight line through the values has some seconds from now.",
)
.with_step_time();

fn deriv(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    // Any time near the samples will do as origin; far ones cost digits.
    fill(samples, call, out, ctx, |ts, values, _| line(ts, values, ts[0]).0);
    Ok(())
}

fn predict_linear(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    fill(samples, call, out, ctx, |ts, values, step| {
        let (slope, intercept) = line(ts, values, call.grid.at(step));
        slope * call.params[0].at(step) + intercept
    });
    Ok(())
}

fn fill(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
    f: impl Fn(&[Millis], &[f64], usize) -> f64,
) {
    let mut notes = Notes::default();
    each(samples, call, (0, 0), |w| {
        if !w.floats.is_empty() && !w.hists.is_empty() {
            notes.set(Note::HistogramsIgnored);
        }
        if w.floats.len() >= 2 {
            let window = w.floats.lo..w.floats.hi;
            out.values[w.step] = f(&samples.ts[window.clone()], &samples.values[window], w.step);
            out.present[w.step] = true;
        }
    });
    ctx.note(&notes);
}

/// Gives slope (per second) and the value at `origin`.
fn line(ts: &[Millis], values: &[f64], origin: Millis) -> (f64, f64) {
    let first = values[0];
    if values[1..].iter().all(|&v| v == first) {
        return if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, first) };
    }
    let (mut sums, mut lost) = ([0.0; 4], [0.0; 4]);
    for (&t, &y) in ts.iter().zip(values) {
        let x = (t - origin) as f64 / 1e3;
        kahan::inc_all([x, y, x * y, x * x], &mut sums, &mut lost);
    }
    let n = values.len() as f64;
    let [x, y, xy, xx] = std::array::from_fn(|i| sums[i] + lost[i]);
    let covariance = xy - x * y / n;
    let variance = xx - x * x / n;
    let slope = covariance / variance;
    (slope, y / n - slope * x / n)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, floats};

    #[test]
    fn lines() {
        let s = floats(&[(10, 10.0), (20, 20.0), (30, 30.0), (70, 5.0), (80, 5.0)]);
        check("deriv(60s)", &s, &[Some(1.0), Some(0.0), None]);
        check("predict_linear(60s; 10)", &s, &[Some(70.0), Some(5.0), None]);
        check("deriv(60s)", &floats(&[(10, f64::INFINITY), (20, f64::INFINITY)]), &[Some(f64::NAN), None, None]);
        check("deriv(60s)", &floats(&[(10, 1.0)]), &[None, None, None]);
    }
}
