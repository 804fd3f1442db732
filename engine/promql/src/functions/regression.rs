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
    let mut times = Times::default();
    // Any time near the samples will do as origin; far ones cost digits.
    fill(samples, call, out, ctx, |ts, values, _| line(times.of(ts, ts[0]), values).0);
    Ok(())
}

fn predict_linear(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    let mut times = Times::default();
    fill(samples, call, out, ctx, |ts, values, step| {
        let (slope, intercept) = line(times.of(ts, call.grid.at(step)), values);
        slope * call.params[0].at(step) + intercept
    });
    Ok(())
}

fn fill(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
    mut f: impl FnMut(&[Millis], &[f64], usize) -> f64,
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

/// Times of a window from an origin. Windows of regular scrapes have the same ones again and again, and so the same sums.
#[derive(Debug, Default)]
struct Times {
    offsets: Vec<Millis>,
    seconds: Vec<f64>,
    /// Compensated sum of them, and of their squares.
    sums: [f64; 2],
}

impl Times {
    fn of(&mut self, ts: &[Millis], origin: Millis) -> &Self {
        let known = self.offsets.len() == ts.len()
            && self.offsets.iter().zip(ts).fold(0, |odd, (own, t)| odd | ((t - origin) ^ own)) == 0;
        if !known {
            self.offsets.clear();
            self.offsets.extend(ts.iter().map(|t| t - origin));
            self.seconds.clear();
            self.seconds.extend(self.offsets.iter().map(|&t| t as f64 / 1e3));
            self.sums = sums(self.seconds.iter().map(|&x| [x, x * x]));
        }
        self
    }
}

/// Compensated sums, side by side.
fn sums<const N: usize>(values: impl Iterator<Item = [f64; N]>) -> [f64; N] {
    let (mut sums, mut lost) = ([0.0; N], [0.0; N]);
    values.for_each(|values| kahan::inc_all(values, &mut sums, &mut lost));
    std::array::from_fn(|i| sums[i] + lost[i])
}

/// Gives slope (per second) and the value at the origin.
fn line(times: &Times, values: &[f64]) -> (f64, f64) {
    let first = values[0];
    if values[1..].iter().all(|&v| v == first) {
        return if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, first) };
    }
    let [x, xx] = times.sums;
    let [y, xy] = sums(times.seconds.iter().zip(values).map(|(x, y)| [*y, x * y]));
    let n = values.len() as f64;
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
