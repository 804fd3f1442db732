//! `rate`, `increase` and `delta` of `anchored` and `smoothed` selectors: exact ends instead of extrapolation.
//!
//! `anchored` starts from the sample at or before the window, `smoothed` from values interpolated between the samples
//! around each end. Source: Prometheus 3.14 `promql/functions.go`: `extendedRate`, `extendedHistogramRate`.

use quiver_types::{Histogram, Millis, ResetHint};

use super::annotations::{Note, Notes};
use super::call::{RangeCall, Scratch};
use super::growth::Growth;
use crate::histogram::{self, detect_reset, uses_custom_buckets};
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::window::{Cursor, StepWindow, each, interpolate, interpolate_counter, outer_samples};

pub(super) fn run(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    scratch: &mut Scratch,
    growth: Growth,
) -> Notes {
    let mut notes = Notes::default();
    let lookback = call.window.lookback_ms;
    let smoothed = call.window.ends.are_smoothed();
    let widen = (lookback, if smoothed { lookback } else { 0 });
    let falls = &mut scratch.marks;
    falls.clear();
    if growth.is_counter {
        falls.extend(samples.values.windows(2).zip(1_u32..).filter(|(w, _)| w[1] < w[0]).map(|(_, i)| i));
    }
    each(samples, call, widen, |w| match (w.floats.is_empty(), w.hists.is_empty()) {
        (false, false) => notes.set(Note::MixedFloatsHistograms),
        (false, true) => {
            if let Some(value) = floats(samples, &w, smoothed, growth, falls) {
                out.values[w.step] = if growth.is_rate { value / call.range_s() } else { value };
                out.present[w.step] = true;
            }
        }
        _ => {
            if let Some(mut h) = histograms(samples, &w, smoothed, growth, &mut notes) {
                if growth.is_rate {
                    histogram::div(&mut h, call.range_s());
                }
                h.reset_hint = ResetHint::Gauge;
                histogram::compact(&mut h);
                out.hists.push((w.step as u32, h));
            }
        }
    });
    notes
}

/// The first and last sample to use; `None` if the window has nothing to measure.
fn ends(ts: &[Millis], w: Cursor, step: &StepWindow, smoothed: bool) -> Option<(usize, usize)> {
    let (first, last) = outer_samples(&ts[w.lo..w.hi], step.start, step.end, smoothed);
    let (first, last) = (first + w.lo, last + w.lo);
    (ts[last] > step.start && !(smoothed && ts[first] > step.end)).then_some((first, last))
}

fn floats(s: &SeriesSamples<'_>, step: &StepWindow, smoothed: bool, growth: Growth, falls: &[u32]) -> Option<f64> {
    let w = step.floats;
    let (first, last) = ends(s.ts, w, step, smoothed)?;
    let at = |i: usize| (s.ts[i], s.values[i]);
    let between = |first, second, t| {
        if growth.is_counter { interpolate_counter(first, second, t) } else { interpolate(first, second, t) }
    };
    let left = if smoothed && s.ts[first] < step.start {
        between(at(first), at(first + 1), step.start)
    } else {
        s.values[first]
    };
    let right = if smoothed && last > w.lo && s.ts[last] > step.end {
        between(at(last - 1), at(last), step.end)
    } else {
        s.values[last]
    };
    if !growth.is_counter {
        return Some(right - left);
    }
    // Only samples strictly inside count for resets; interpolation has handled those at the ends.
    let from = if s.ts[first] <= step.start { first + 1 } else { first };
    let to = if s.ts[last] >= step.end { last } else { last + 1 };
    let mut lost = 0.0;
    if from < to {
        if s.values[from] < left {
            lost += left;
        }
        let inside = falls.partition_point(|&i| i as usize <= from)..falls.partition_point(|&i| (i as usize) < to);
        lost = falls[inside].iter().fold(lost, |lost, &i| lost + s.values[i as usize - 1]);
        if right < s.values[to - 1] {
            lost += s.values[to - 1];
        }
    } else if right < left {
        lost += left;
    }
    Some(right - left + lost)
}

fn histograms(
    s: &SeriesSamples<'_>,
    step: &StepWindow,
    smoothed: bool,
    growth: Growth,
    notes: &mut Notes,
) -> Option<Histogram> {
    let w = step.hists;
    let (first, last) = ends(s.hist_ts, w, step, smoothed)?;
    let custom = uses_custom_buckets(&s.hists[first]);
    for h in &s.hists[first..=last] {
        if uses_custom_buckets(h) != custom {
            notes.set(Note::MixedExponentialCustom);
            return None;
        }
        if growth.is_counter && h.reset_hint == ResetHint::Gauge {
            notes.set(Note::NotCounter);
        }
    }
    let at = |i: usize| (s.hist_ts[i], &s.hists[i]);
    let left = if smoothed && s.hist_ts[first] < step.start {
        histogram::interpolate(at(first), at(first + 1), step.start, growth.is_counter, notes)?
    } else {
        s.hists[first].clone()
    };
    let right = if smoothed && last > w.lo && s.hist_ts[last] > step.end {
        histogram::interpolate(at(last - 1), at(last), step.end, growth.is_counter, notes)?
    } else {
        s.hists[last].clone()
    };
    let are_gauges = [&left, &right].iter().all(|h| h.reset_hint == ResetHint::Gauge);
    if !growth.is_counter && !are_gauges {
        notes.set(Note::NotGauge);
    }
    let mut result = right.clone();
    histogram::sub_noting(&mut result, &left, notes)?;
    if growth.is_counter {
        let spanned = smoothed && s.hist_ts[first] < step.start;
        if let Some(lost) = lost_to_resets(s, (first, last), (&left, &right), spanned, notes)? {
            histogram::add_noting(&mut result, &lost, notes)?;
        }
    }
    Some(result)
}

/// Adds up what was lost to resets between the two ends; the outer `None` means that the histograms cannot be added.
#[allow(clippy::option_option, reason = "no loss and no result are different things")]
fn lost_to_resets(
    s: &SeriesSamples<'_>,
    (first, last): (usize, usize),
    (left, right): (&Histogram, &Histogram),
    left_is_between: bool,
    notes: &mut Notes,
) -> Option<Option<Histogram>> {
    let mut from = first + 1;
    let mut previous = left;
    // The left end was interpolated across a reset, which is accounted for already.
    if left_is_between && detect_reset(&s.hists[first + 1], &s.hists[first]) {
        previous = &s.hists[first + 1];
        from += 1;
    }
    // The last histogram is represented by `right`, which has its hint.
    if from > last {
        return Some(None);
    }
    let mut lost: Option<Histogram> = None;
    for h in s.hists[from..last].iter().chain(std::iter::once(right)) {
        if detect_reset(h, previous) {
            match &mut lost {
                Some(lost) => histogram::add_noting(lost, previous, notes)?,
                None => lost = Some(previous.clone()),
            }
        }
        previous = h;
    }
    Some(lost)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, floats as samples, run, with_hists};
    use crate::histogram::testing::{exponential, populated};

    #[test]
    fn anchored_floats() {
        let s = samples(&[(-10, 5.0), (15, 10.0), (40, 30.0), (59, 31.0), (100, 41.0)]);
        check("increase(60s anchored)", &s, &[Some(26.0), Some(11.0), None]);
        check("rate(60s anchored)", &s, &[Some(26.0 / 60.0), Some(11.0 / 60.0), None]);
        let s = samples(&[(0, 5.0), (15, 10.0), (40, 3.0), (60, 4.0)]);
        check("increase(60s anchored)", &s, &[Some(9.0), Some(1.0), None]);
        check("delta(60s anchored)", &s, &[Some(-1.0), Some(1.0), None]);
        check("increase(60s anchored)", &samples(&[(30, 5.0)]), &[Some(0.0), None, None]);
    }

    #[test]
    fn smoothed_floats() {
        let s = samples(&[(-10, 0.0), (10, 10.0), (50, 30.0), (70, 50.0)]);
        // At 0: 5, at 60: 40; at 50: 30, at 110: 50.
        check("increase(60s smoothed)", &s, &[Some(35.0), Some(20.0), None]);
        let s = samples(&[(-10, 8.0), (10, 4.0), (70, 10.0)]);
        // The line over a reset starts at zero: 2 at 0, 9 at 60.
        check("increase(60s smoothed)", &s, &[Some(7.0), Some(2.0), None]);
    }

    #[test]
    fn histograms_both_ways() {
        let list =
            [(-10, exponential(0, 1, &[0.0])), (10, exponential(0, 1, &[10.0])), (70, exponential(0, 1, &[40.0]))];
        let got = run("increase(60s anchored)", &with_hists(samples(&[]), &list));
        assert_eq!(populated(&got.hists[0].1), [(1, 10.0)]);
        let got = run("increase(60s smoothed)", &with_hists(samples(&[]), &list));
        assert_eq!(populated(&got.hists[0].1), [(1, 30.0)]);
        let list = [(0, exponential(0, 1, &[8.0])), (20, exponential(0, 1, &[3.0])), (60, exponential(0, 1, &[4.0]))];
        let got = run("increase(60s anchored)", &with_hists(samples(&[]), &list));
        assert_eq!(populated(&got.hists[0].1), [(1, 4.0)]);
    }
}
