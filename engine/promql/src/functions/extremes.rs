//! Largest and smallest value of a range, and when it occurred.
//!
//! A queue holds the candidates: samples that no later sample beats. Each sample enters and leaves it once, whatever
//! the length of the window, and the result is always at its front. NaN is the result only if there is nothing else.

use std::collections::VecDeque;

use quiver_types::Result;

use super::annotations::{Note, Notes};
use super::call::{KernelContext, RangeCall};
use super::definition::{FunctionDef, MATRIX, RangeFunction};
use super::floats::of_floats;
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::window::each;

/// Values that are compared at once.
const LANES: usize = 8;

pub(super) const MAX_OVER_TIME: FunctionDef =
    FunctionDef::range("max_over_time", MATRIX, RangeFunction::new(max), "The largest value in the range.");
pub(super) const MIN_OVER_TIME: FunctionDef =
    FunctionDef::range("min_over_time", MATRIX, RangeFunction::new(min), "The smallest value in the range.");
pub(super) const TS_OF_MAX_OVER_TIME: FunctionDef = FunctionDef::range(
    "ts_of_max_over_time",
    MATRIX,
    RangeFunction::new(ts_of_max),
    "The time of the last sample with the largest value in the range, in seconds.",
)
.experimental();
pub(super) const TS_OF_MIN_OVER_TIME: FunctionDef = FunctionDef::range(
    "ts_of_min_over_time",
    MATRIX,
    RangeFunction::new(ts_of_min),
    "The time of the last sample with the smallest value in the range, in seconds.",
)
.experimental();

fn max(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    value(samples, call, out, ctx, |new, old| new > old);
    Ok(())
}

fn min(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    value(samples, call, out, ctx, |new, old| new < old);
    Ok(())
}

fn ts_of_max(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    extreme(samples, call, ctx, |new, old| new >= old, |step, at| out.set(step, samples.ts[at] as f64 / 1000.0));
    Ok(())
}

fn ts_of_min(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    extreme(samples, call, ctx, |new, old| new <= old, |step, at| out.set(step, samples.ts[at] as f64 / 1000.0));
    Ok(())
}

fn value(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
    beats: impl Fn(f64, f64) -> bool + Copy,
) {
    if call.window.range_ms > call.grid.step_ms {
        return extreme(samples, call, ctx, beats, |step, at| out.set(step, samples.values[at]));
    }
    // No sample is in two windows, so a queue would gain nothing.
    of_floats(samples, call, out, ctx, |values| best(values, beats));
}

/// The first of the values that no other beats; if all are NaN, the last one.
fn best(values: &[f64], beats: impl Fn(f64, f64) -> bool) -> f64 {
    let Some(start) = values.iter().position(|v| !v.is_nan()) else {
        return values.last().copied().unwrap_or(f64::NAN);
    };
    let (chunks, rest) = values[start..].as_chunks::<LANES>();
    let mut lanes = [values[start]; LANES];
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane = if beats(v, *lane) { v } else { *lane };
        }
    }
    let all = || lanes.iter().chain(rest).copied();
    let found = all().fold(lanes[0], |found, v| if beats(v, found) { v } else { found });
    if found != 0.0 {
        return found;
    }
    // Zeros of either sign are equal; return the first of them.
    values[start..].iter().copied().find(|&v| v == 0.0).unwrap_or(found)
}

/// Tells `found` of each step with samples which of these no other beats.
fn extreme(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    ctx: &mut KernelContext<'_>,
    beats: impl Fn(f64, f64) -> bool,
    mut found: impl FnMut(usize, usize),
) {
    let mut notes = Notes::default();
    let queue: &mut VecDeque<u32> = &mut ctx.scratch.deque;
    queue.clear();
    let mut entered = 0;
    each(samples, call, (0, 0), |w| {
        if w.floats.is_empty() {
            return;
        }
        if !w.hists.is_empty() {
            notes.set(Note::HistogramsIgnored);
        }
        entered = entered.max(w.floats.lo);
        for i in entered..w.floats.hi {
            let value = samples.values[i];
            if value.is_nan() {
                continue;
            }
            while queue.back().is_some_and(|&b| beats(value, samples.values[b as usize])) {
                queue.pop_back();
            }
            queue.push_back(i as u32);
        }
        entered = w.floats.hi;
        while queue.front().is_some_and(|&f| (f as usize) < w.floats.lo) {
            queue.pop_front();
        }
        // All are NaN: return the last of them.
        found(w.step, queue.front().map_or(w.floats.hi - 1, |&f| f as usize));
    });
    ctx.note(notes);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quiver_types::stale_nan;

    use super::super::testing::{any_case, check, floats, oracle};

    #[test]
    fn nan_loses() {
        let nan = f64::NAN;
        let s = floats(&[(10, nan), (20, 1.0), (30, 5.0), (40, nan), (50, 5.0), (70, 2.0)]);
        check("max_over_time(60s)", &s, &[Some(5.0), Some(2.0), None]);
        check("min_over_time(60s)", &s, &[Some(1.0), Some(2.0), None]);
        check("ts_of_max_over_time(60s)", &s, &[Some(50.0), Some(70.0), None]);
        check("ts_of_max_over_time(60s)", &floats(&[(10, nan), (20, nan)]), &[Some(20.0), None, None]);
    }

    #[test]
    fn windows_side_by_side() {
        let check = |values: &[f64], largest: f64, smallest: f64| {
            let found = (super::best(values, |new, old| new > old), super::best(values, |new, old| new < old));
            assert_eq!((found.0.to_bits(), found.1.to_bits()), (largest.to_bits(), smallest.to_bits()), "{values:?}");
        };
        let nan = f64::NAN;
        check(&[nan, stale_nan()], stale_nan(), stale_nan());
        check(&[nan, 3.0, nan], 3.0, 3.0);
        check(&[0.0, -0.0], 0.0, 0.0);
        check(&[-1.0, -0.0, 0.0], -0.0, -1.0);
        let mut many: Vec<f64> = (0..61).map(|i| f64::from(i * 37 % 61) - 30.0).collect();
        check(&many, 30.0, -30.0);
        many.iter_mut().step_by(3).for_each(|v| *v = nan);
        let there = || many.iter().copied().filter(|v| !v.is_nan());
        check(&many, there().fold(-99.0, f64::max), there().fold(99.0, f64::min));
    }

    proptest! {
        #[test]
        fn equals_a_scan(case in any_case()) {
            oracle("max_over_time", &case, |w| {
                let mut best = w.values[0];
                w.values.iter().for_each(|&v| if v > best || best.is_nan() { best = v });
                Some(best)
            });
            oracle("min_over_time", &case, |w| {
                let mut best = w.values[0];
                w.values.iter().for_each(|&v| if v < best || best.is_nan() { best = v });
                Some(best)
            });
            oracle("ts_of_max_over_time", &case, |w| {
                let mut best = 0;
                for (i, &v) in w.values.iter().enumerate() {
                    if v >= w.values[best] || w.values[best].is_nan() { best = i; }
                }
                Some(w.ts[best] as f64 / 1000.0)
            });
            oracle("ts_of_min_over_time", &case, |w| {
                let mut best = 0;
                for (i, &v) in w.values.iter().enumerate() {
                    if v <= w.values[best] || w.values[best].is_nan() { best = i; }
                }
                Some(w.ts[best] as f64 / 1000.0)
            });
        }
    }
}
