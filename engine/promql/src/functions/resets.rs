//! `resets` and `changes`: how often something happened between neighbouring samples. Events are counted once along the
//! series; a window is the difference of two counts.
//!
//! `anchored` selectors count from the sample at or before the start of the window, float or histogram.

use std::borrow::Cow;

use quiver_types::{Millis, Result};

use super::call::{KernelContext, RangeCall};
use super::definition::{FunctionDef, MATRIX, RangeFunction};
use super::growth::is_start_reset;
use crate::histogram::{detect_reset, equals};
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::range_ends::RangeEnds;
use crate::window::{Cursor, first_after};

pub(super) const RESETS: FunctionDef = FunctionDef::range(
    "resets",
    MATRIX,
    RangeFunction { anchored: true, start_timestamps: true, ..RangeFunction::new(resets) },
    "The number of counter resets in the range.",
);
pub(super) const CHANGES: FunctionDef = FunctionDef::range(
    "changes",
    MATRIX,
    RangeFunction { anchored: true, ..RangeFunction::new(changes) },
    "The number of times that the value changed in the range.",
);

fn resets(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    let s = samples;
    let by_start = |starts: &[Millis], ts: &[Millis], before: usize, now: usize| {
        now < starts.len() && is_start_reset((starts[before], ts[before]), (starts[now], ts[now]))
    };
    let float = |before: usize, now: usize| s.values[now] < s.values[before] || by_start(s.start_ts, s.ts, before, now);
    let hist = |before: usize, now: usize| {
        by_start(s.hist_start_ts, s.hist_ts, before, now) || detect_reset(&s.hists[now], &s.hists[before])
    };
    let events = &mut ctx.scratch.marks;
    let ts = count_up(samples, events, float, hist);
    differences(&ts, events, call, out);
    Ok(())
}

fn changes(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    let s = samples;
    let float = |before: usize, now: usize| {
        let (before, now) = (s.values[before], s.values[now]);
        before != now && !(before.is_nan() && now.is_nan())
    };
    let events = &mut ctx.scratch.marks;
    let ts = count_up(samples, events, float, |before, now| !equals(&s.hists[now], &s.hists[before]));
    differences(&ts, events, call, out);
    Ok(())
}

/// Numbers the events between neighbours up to each sample, and gives the times of the samples. A change between float and
/// histogram always is one.
fn count_up<'s>(
    samples: &SeriesSamples<'s>,
    events: &mut Vec<u32>,
    float: impl Fn(usize, usize) -> bool,
    hist: impl Fn(usize, usize) -> bool,
) -> Cow<'s, [Millis]> {
    events.clear();
    let mut total = 0_u32;
    if samples.hist_ts.is_empty() {
        events.extend((0..samples.ts.len()).map(|i| {
            total += u32::from(i > 0 && float(i - 1, i));
            total
        }));
        return Cow::Borrowed(samples.ts);
    }
    let order = merge_times(samples);
    events.extend((0..order.len()).map(|i| {
        if i > 0 {
            total += u32::from(match (order[i - 1].1, order[i].1) {
                (Sample::Float(before), Sample::Float(now)) => float(before, now),
                (Sample::Hist(before), Sample::Hist(now)) => hist(before, now),
                _ => true,
            });
        }
        total
    }));
    Cow::Owned(order.into_iter().map(|(t, _)| t).collect())
}

/// Gives each step the events within its window.
fn differences(ts: &[Millis], events: &[u32], call: &RangeCall<'_>, out: &mut SeriesOut<'_>) {
    let mut cursor = Cursor::default();
    let mut anchor_from = 0;
    for step in 0..call.grid.steps {
        let (start, end) = call.bounds(step);
        cursor.advance(ts, start, end);
        if cursor.is_empty() {
            continue;
        }
        let mut first = cursor.lo;
        if call.window.ends == RangeEnds::Anchored {
            anchor_from = first_after(ts, anchor_from, start - call.window.lookback_ms);
            // The newest sample before the window, if it is within the lookback.
            first = if anchor_from < cursor.lo { cursor.lo - 1 } else { cursor.lo };
        }
        out.set(step, f64::from(events[cursor.hi - 1] - events[first]));
    }
}

#[derive(Clone, Copy)]
enum Sample {
    Float(usize),
    Hist(usize),
}

fn merge_times(s: &SeriesSamples<'_>) -> Vec<(Millis, Sample)> {
    let mut order = Vec::with_capacity(s.ts.len() + s.hist_ts.len());
    let (mut f, mut h) = (0, 0);
    while f < s.ts.len() || h < s.hist_ts.len() {
        if h == s.hist_ts.len() || (f < s.ts.len() && s.ts[f] < s.hist_ts[h]) {
            order.push((s.ts[f], Sample::Float(f)));
            f += 1;
        } else {
            order.push((s.hist_ts[h], Sample::Hist(h)));
            h += 1;
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{any_case, check, floats, oracle, with_hists};
    use crate::histogram::testing::exponential;

    proptest! {
        #[test]
        fn equals_a_scan(case in any_case()) {
            oracle("resets", &case, |w| Some(w.values.windows(2).filter(|p| p[1] < p[0]).count() as f64));
            oracle("changes", &case, |w| {
                let changed = |p: &&[f64]| p[0] != p[1] && !(p[0].is_nan() && p[1].is_nan());
                Some(w.values.windows(2).filter(changed).count() as f64)
            });
        }
    }

    #[test]
    fn floats_and_histograms() {
        let h = |count: f64| exponential(0, 1, &[count]);
        let s = with_hists(floats(&[(10, 1.0), (20, 0.0), (50, 0.0)]), &[(30, h(3.0)), (40, h(3.0)), (70, h(1.0))]);
        check("resets(60s)", &s, &[Some(3.0), Some(0.0), None]);
        check("changes(60s)", &s, &[Some(3.0), Some(0.0), None]);
    }

    #[test]
    fn anchored() {
        let s = floats(&[(-70, 9.0), (-10, 5.0), (10, 4.0), (70, 4.0), (90, 1.0)]);
        check("resets(60s anchored)", &s, &[Some(1.0), Some(1.0), None]);
        check("changes(60s anchored)", &s, &[Some(1.0), Some(1.0), None]);
        check("changes(60s anchored)", &floats(&[(-70, 9.0), (10, 4.0)]), &[Some(0.0), None, None]);
    }

    #[test]
    fn starts_tell_of_resets_that_values_do_not_show() {
        let mut s = floats(&[(10, 1.0), (20, 2.0), (30, 3.0), (40, 2.0), (50, 5.0)]);
        check("resets(60s)", &s, &[Some(1.0), None, None]);
        // After the first sample, and at the fall: two. An unset start says nothing, nor does one at the sample itself.
        s.start_ts = vec![1_000, 15_000, 15_000, 35_000, 0];
        check("resets(60s)", &s, &[Some(2.0), None, None]);
        s.start_ts = vec![1_000, 1_000, 30_000, 30_000, 50_000];
        check("resets(60s)", &s, &[Some(1.0), None, None]);
        check("changes(60s)", &s, &[Some(4.0), None, None]);
    }

    #[test]
    fn what_is_a_change() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let of = |values: &[f64], changes: f64, resets: f64| {
            let list: Vec<(i64, f64)> = (1..).zip(values.iter().copied()).collect();
            check("changes(60s)", &floats(&list), &[Some(changes), None, None]);
            check("resets(60s)", &floats(&list), &[Some(resets), None, None]);
        };
        of(&[1.0], 0.0, 0.0);
        of(&[1.0, 1.0, 1.0], 0.0, 0.0);
        of(&[nan, nan, nan], 0.0, 0.0);
        of(&[1.0, nan, 1.0], 2.0, 0.0);
        of(&[0.0, -0.0, 0.0], 0.0, 0.0);
        of(&[inf, inf, -inf], 1.0, 1.0);
        of(&[3.0, 2.0, 1.0], 2.0, 2.0);
    }

    #[test]
    fn anchors_of_both_kinds() {
        let h = |count: f64| exponential(0, 1, &[count]);
        // The sample before the window counts as where it begins, of whichever kind it is.
        let s = with_hists(floats(&[(10, 4.0), (20, 4.0)]), &[(-10, h(1.0))]);
        check("changes(60s)", &s, &[Some(0.0), None, None]);
        check("changes(60s anchored)", &s, &[Some(1.0), None, None]);
        check("resets(60s anchored)", &s, &[Some(1.0), None, None]);
        // One that is too old for the look-back does not.
        let s = with_hists(floats(&[(10, 4.0), (20, 4.0)]), &[(-60, h(1.0))]);
        check("changes(60s anchored)", &s, &[Some(0.0), None, None]);
    }
}
