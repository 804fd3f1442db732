//! `double_exponential_smoothing`: a weighted mean that forgets, with a trend (Holt's method).

use quiver_types::{Error, ErrorKind, Result};

use super::annotations::{Note, Notes};
use super::call::{KernelContext, RangeCall};
use super::definition::{FunctionDef, RangeFunction};
use crate::ast::ValueType::{Matrix, Scalar};
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::window::each;

pub(super) const DOUBLE_EXPONENTIAL_SMOOTHING: FunctionDef = FunctionDef::range(
    "double_exponential_smoothing",
    &[Matrix, Scalar, Scalar],
    RangeFunction::new(smooth).rescanning(),
    "The smoothed last value; factors for values and for their trend, both between 0 and 1.",
)
.experimental();

fn smooth(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    let mut notes = Notes::default();
    let mut failed = None;
    each(samples, call, (0, 0), |w| {
        let (smoothing, trend) = (call.params[0].at(w.step), call.params[1].at(w.step));
        for (factor, name, short) in [(smoothing, "smoothing", "sf"), (trend, "trend", "tf")] {
            if (factor <= 0.0 || factor >= 1.0) && failed.is_none() {
                failed = Some(format!("invalid {name} factor. Expected: 0 < {short} < 1, got: {factor:.6}"));
            }
        }
        if failed.is_some() {
            return;
        }
        if !w.floats.is_empty() && !w.hists.is_empty() {
            notes.set(Note::HistogramsIgnored);
        }
        if w.floats.len() >= 2 {
            out.values[w.step] = holt(&samples.values[w.floats.lo..w.floats.hi], smoothing, trend);
            out.present[w.step] = true;
        }
    });
    if let Some(message) = failed {
        return Err(Error::new(ErrorKind::Execution, message));
    }
    ctx.note(notes);
    Ok(())
}

fn holt(values: &[f64], smoothing: f64, trend: f64) -> f64 {
    let (mut before, mut smoothed) = (0.0, values[0]);
    let mut slope = values[1] - values[0];
    for (i, &v) in values.iter().enumerate().skip(1) {
        if i > 1 {
            slope = trend * (smoothed - before) + (1.0 - trend) * slope;
        }
        let next = smoothing * v + (1.0 - smoothing) * (smoothed + slope);
        (before, smoothed) = (smoothed, next);
    }
    smoothed
}

#[cfg(test)]
mod tests {
    use super::super::testing::{call_error, check, floats};

    #[test]
    fn follows_a_line() {
        let s = floats(&[(10, 10.0), (20, 20.0), (30, 30.0), (40, 40.0)]);
        check("double_exponential_smoothing(60s; 0.5 0.1)", &s, &[Some(40.0), None, None]);
    }

    #[test]
    fn factors_are_checked() {
        let s = floats(&[(10, 10.0)]);
        let message = call_error("double_exponential_smoothing(60s; 1 0.1)", &s);
        assert_eq!(message, "invalid smoothing factor. Expected: 0 < sf < 1, got: 1.000000");
        let message = call_error("double_exponential_smoothing(60s; 0.1 0)", &s);
        assert_eq!(message, "invalid trend factor. Expected: 0 < tf < 1, got: 0.000000");
    }

    #[test]
    fn two_samples_are_needed_and_the_weights_are_those_of_holt() {
        let text = "double_exponential_smoothing(60s; 0.5 0.25)";
        check(text, &floats(&[(10, 10.0)]), &[None, None, None]);
        // 1, then 0.5 · 3 + 0.5 · (1 + 2) = 3; the slope is 0.25 · 2 + 0.75 · 2 = 2, so 0.5 · 9 + 0.5 · 5 = 7.
        check(text, &floats(&[(10, 1.0), (20, 3.0)]), &[Some(3.0), None, None]);
        check(text, &floats(&[(10, 1.0), (20, 3.0), (30, 9.0)]), &[Some(7.0), None, None]);
        check(text, &floats(&[(10, 7.0), (20, 7.0), (30, 7.0)]), &[Some(7.0), None, None]);
        check(text, &floats(&[(10, 1.0), (20, f64::INFINITY)]), &[Some(f64::INFINITY), None, None]);
    }

    #[test]
    fn factors_are_looked_at_where_there_are_samples() {
        let s = floats(&[(10, 10.0)]);
        for (factors, shown) in [("-0.5 0.5", "-0.500000"), ("1.5 0.5", "1.500000")] {
            let message = call_error(&format!("double_exponential_smoothing(60s; {factors})"), &s);
            assert_eq!(message, format!("invalid smoothing factor. Expected: 0 < sf < 1, got: {shown}"));
        }
        check("double_exponential_smoothing(60s; 5 5)", &floats(&[]), &[None, None, None]);
        check("double_exponential_smoothing(60s; 5 5)", &floats(&[(1000, 1.0)]), &[None, None, None]);
    }
}
