//! `deriv` and `predict_linear`: a least-squares line through the values of a range.

mod integer_sums;
mod line;

use quiver_types::{Millis, Result};

use self::integer_sums::WholeSums;
use self::line::{Line, Times};
use super::annotations::{Note, Notes};
use super::call::{KernelContext, RangeCall};
use super::definition::{FunctionDef, MATRIX, RangeFunction};
use crate::ast::ValueType::{Matrix, Scalar};
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::window::each;

pub(super) const DERIV: FunctionDef = FunctionDef::range(
    "deriv",
    MATRIX,
    RangeFunction::new(deriv).rescanning(),
    "The slope of a straight line through the values, per second.",
);
pub(super) const PREDICT_LINEAR: FunctionDef = FunctionDef::range(
    "predict_linear",
    &[Matrix, Scalar],
    RangeFunction::new(predict_linear).rescanning(),
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
    each_line(samples, call, ctx, |ts, _| ts[0], |step, (slope, _)| out.set(step, slope));
    Ok(())
}

fn predict_linear(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    let value = |step, (slope, intercept): Line| slope * call.params[0].at(step) + intercept;
    each_line(samples, call, ctx, |_, step| call.grid.at(step), |step, line| out.set(step, value(step, line)));
    Ok(())
}

/// Gives `set` each step with the line through its window; `origin` says from when times count. Steps do not come in order.
fn each_line(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    ctx: &mut KernelContext<'_>,
    origin: impl Fn(&[Millis], usize) -> Millis,
    mut set: impl FnMut(usize, Line),
) {
    let mut notes = Notes::default();
    let mut times = Times::default();
    let mut whole = WholeSums::new(samples.ts, samples.values);
    // A window that waits for another with the same times: two sums side by side take hardly longer than one.
    let mut waiting: Option<(usize, &[f64])> = None;
    each(samples, call, (0, 0), |w| {
        if !w.floats.is_empty() && !w.hists.is_empty() {
            notes.set(Note::HistogramsIgnored);
        }
        if w.floats.len() < 2 {
            return;
        }
        let window = w.floats.lo..w.floats.hi;
        let (ts, own) = (&samples.ts[window.clone()], &samples.values[window]);
        let origin = origin(ts, w.step);
        if let Some(line) = whole.line(w.floats, origin) {
            return set(w.step, line);
        }
        let known = times.are(ts, origin);
        match waiting.take() {
            Some((step, other)) if known => {
                let [first, second] = times.two_lines(other, own);
                set(step, first);
                set(w.step, second);
            }
            other => {
                if let Some((step, other)) = other {
                    set(step, times.line(other));
                }
                if !known {
                    times.become_those(ts, origin);
                }
                waiting = Some((w.step, own));
            }
        }
    });
    if let Some((step, own)) = waiting {
        set(step, times.line(own));
    }
    ctx.note(notes);
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
        // Sums of values times seconds that become infinite, those of the values being 0.
        let far = [1.0, -1e307, 0.0, 1e307, 0.0, -1e307, 1.0, 2.0, 3.0];
        let s = floats(&far.iter().enumerate().map(|(i, &v)| (20 * i as i64, v)).collect::<Vec<_>>());
        check("deriv(60s)", &s, &[Some(f64::INFINITY), Some(f64::NEG_INFINITY), Some(0.05)]);
        // Windows in pairs, one left over, and one whose values are all the same.
        let values = [1.0, 4.0, 2.0, 8.0, 5.0, 7.0, 7.0, 7.0, 3.0];
        let s = floats(&values.iter().enumerate().map(|(i, &v)| (20 * i as i64, v)).collect::<Vec<_>>());
        check("deriv(60s)", &s, &[Some(0.1), Some(-0.025), Some(-0.1)]);
    }
}
