//! `quantile_over_time` and `mad_over_time`, which depend on the order of values. Each window is copied and partly
//! sorted; up to some thousand samples this is faster than keeping windows sorted.

use quiver_types::Result;

use super::annotations::{self, Note, Notes};
use super::call::{KernelContext, RangeCall};
use super::definition::{FunctionDef, MATRIX, RangeFunction};
use crate::ast::ValueType::{Matrix, Scalar};
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::quantile::quantile;
use crate::window::each;

pub(super) const QUANTILE_OVER_TIME: FunctionDef = FunctionDef::range(
    "quantile_over_time",
    &[Scalar, Matrix],
    RangeFunction { matrix_arg: 1, ..RangeFunction::new(quantile_over_time).rescanning() },
    "The quantile of the values in the range.",
);
pub(super) const MAD_OVER_TIME: FunctionDef = FunctionDef::range(
    "mad_over_time",
    MATRIX,
    RangeFunction::new(mad_over_time).rescanning(),
    "The median absolute deviation of the values in the range.",
)
.experimental();

fn quantile_over_time(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    let mut ignored = Notes::default();
    let mut invalid: Option<f64> = None;
    let buffer = &mut ctx.scratch.floats;
    let (annotations, place) = (&mut *ctx.annotations, ctx.place);
    each(samples, call, (0, 0), |w| {
        if w.floats.is_empty() {
            return;
        }
        let q = call.params[0].at(w.step);
        if !(0.0..=1.0).contains(&q) && invalid.is_none_or(|last| last.to_bits() != q.to_bits()) {
            annotations.warn(place, annotations::invalid_quantile(q));
            invalid = Some(q);
        }
        if !w.hists.is_empty() {
            ignored.set(Note::HistogramsIgnored);
        }
        buffer.clear();
        buffer.extend_from_slice(&samples.values[w.floats.lo..w.floats.hi]);
        out.values[w.step] = quantile(q, buffer);
        out.present[w.step] = true;
    });
    ctx.note(ignored);
    Ok(())
}

fn mad_over_time(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    let mut ignored = Notes::default();
    let buffer = &mut ctx.scratch.floats;
    each(samples, call, (0, 0), |w| {
        if w.floats.is_empty() {
            return;
        }
        if !w.hists.is_empty() {
            ignored.set(Note::HistogramsIgnored);
        }
        buffer.clear();
        buffer.extend_from_slice(&samples.values[w.floats.lo..w.floats.hi]);
        out.values[w.step] = deviation(buffer);
        out.present[w.step] = true;
    });
    ctx.note(ignored);
    Ok(())
}

fn deviation(values: &mut [f64]) -> f64 {
    if values.iter().any(|v| v.is_nan()) {
        return f64::NAN;
    }
    let median = quantile(0.5, values);
    for v in values.iter_mut() {
        *v = (*v - median).abs();
    }
    quantile(0.5, values)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, floats, run};

    #[test]
    fn medians() {
        let s = floats(&[(10, 4.0), (20, 6.0), (30, 2.0), (40, 1.0), (50, 999.0), (55, 1.0), (60, 2.0)]);
        check("mad_over_time(60s)", &s, &[Some(1.0), Some(0.5), None]);
        check("quantile_over_time(60s; 0.5)", &s, &[Some(2.0), Some(1.5), None]);
        let got = run("quantile_over_time(60s; 2)", &s);
        assert_eq!(got.floats[0], Some(f64::INFINITY));
        assert_eq!(got.warnings, ["PromQL warning: quantile value should be between 0 and 1, got 2 (1:1)"]);
    }

    #[test]
    fn quantiles_may_differ_by_step_and_are_checked_where_they_are_used() {
        use super::super::testing::execute;
        use super::super::{RangeCall, ScalarSteps};
        use crate::kernel::Window;
        use crate::range_ends::RangeEnds;

        let s = floats(&[(10, 1.0), (20, 2.0), (30, 3.0), (70, 4.0)]);
        let window = Window { range_ms: 60_000, offset_ms: 0, ends: RangeEnds::Samples, lookback_ms: 60_000 };
        let run = |q: &[f64]| {
            let params = [ScalarSteps::new(q)];
            let grid = super::super::testing::GRID;
            let call = RangeCall { grid, window, at: None, params: &params, windows: None, pace: None };
            execute("quantile_over_time", &s, &call, "m").expect("the call does not fail")
        };
        let got = run(&[0.0, 1.0, 7.0]);
        assert_eq!(got.floats, [Some(1.0), Some(4.0), None]);
        assert!(got.warnings.is_empty(), "no window has a sample where the quantile is none");
        let got = run(&[-1.0, f64::NAN, 0.5]);
        assert_eq!(got.floats[0], Some(f64::NEG_INFINITY));
        assert!(got.floats[1].is_some_and(f64::is_nan));
        let told =
            ["-1", "NaN"].map(|q| format!("PromQL warning: quantile value should be between 0 and 1, got {q} (1:1)"));
        assert_eq!(got.warnings, told);
    }

    #[test]
    fn deviations_from_the_median() {
        let of = |values: &[f64]| super::deviation(&mut values.to_vec());
        assert_eq!(of(&[5.0]), 0.0);
        assert_eq!(of(&[1.0, 3.0]), 1.0);
        assert_eq!(of(&[1.0, 2.0, 100.0]), 1.0);
        assert_eq!(of(&[-1.0, -1.0, -1.0, 7.0]), 0.0);
        assert!(of(&[1.0, f64::NAN, 2.0]).is_nan());
        assert!(of(&[f64::INFINITY, f64::INFINITY, 1.0]).is_nan(), "so is the median");
    }
}
