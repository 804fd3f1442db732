//! `rate`, `increase` and `delta`: how much a series grew in a range, extended to the ends of the range.
//!
//! Source: Prometheus 3.14 `promql/functions.go: extrapolatedRate`. Resets of counters are found once per series and
//! kept as a sparse list, so a window costs its two ends and the resets inside. Histograms are in `rate_histogram`,
//! `anchored` and `smoothed` in `rate_extended`.

use quiver_types::{Millis, Result};

use super::annotations::{Note, Notes};
use super::call::{KernelContext, RangeCall, Scratch};
use super::definition::{FunctionDef, MATRIX, RangeFunction, RangeKernel};
use super::growth::{Edges, Growth, Place, WindowExtent, is_start_reset, overlaps_before};
use super::rate_extended;
use super::rate_histogram::HistogramRates;
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::window::{Cursor, each};

const fn of_gauge(run: RangeKernel) -> RangeFunction {
    RangeFunction { anchored: true, smoothed: true, ..RangeFunction::new(run) }
}

/// Start times tell of resets of a counter that its values do not show.
const fn of_counter(run: RangeKernel) -> RangeFunction {
    RangeFunction { start_timestamps: true, ..of_gauge(run) }
}

pub(super) const RATE: FunctionDef =
    FunctionDef::range("rate", MATRIX, of_counter(rate), "The growth of a counter per second.");
pub(super) const INCREASE: FunctionDef =
    FunctionDef::range("increase", MATRIX, of_counter(increase), "The growth of a counter.");
pub(super) const DELTA: FunctionDef = FunctionDef::range(
    "delta",
    MATRIX,
    of_gauge(delta),
    "The difference between the last and the first value of a gauge.",
);

fn rate(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    run(samples, call, out, ctx, Growth { is_counter: true, is_rate: true });
    Ok(())
}

fn increase(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    run(samples, call, out, ctx, Growth { is_counter: true, is_rate: false });
    Ok(())
}

fn delta(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    run(samples, call, out, ctx, Growth { is_counter: false, is_rate: false });
    Ok(())
}

fn run(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
    growth: Growth,
) {
    let notes = if call.window.ends.are_extended() {
        rate_extended::run(samples, call, out, ctx.scratch, growth)
    } else {
        extrapolated(samples, call, out, ctx.scratch, growth)
    };
    ctx.note(notes);
    if growth.is_counter && out.present.contains(&true) {
        ctx.note_possible_non_counter();
    }
}

fn extrapolated(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    scratch: &mut Scratch,
    growth: Growth,
) -> Notes {
    let mut notes = Notes::default();
    let hists = (!samples.hist_ts.is_empty()).then(|| HistogramRates::new(samples, growth));
    let range_s = call.range_s();
    let scale = |factor: f64| if growth.is_rate { factor / range_s } else { factor };
    let mut rates = FloatRates::new(samples, growth, &mut scratch.events, &mut scratch.marks);
    each(samples, call, (0, 0), |w| {
        let edges = |c: Cursor, ts: &[Millis]| Edges {
            first: ts[c.lo],
            last: ts[c.hi - 1],
            gaps: c.len() - 1,
            start: w.start,
            end: w.end,
        };
        match (w.floats.is_empty(), &hists) {
            (false, _) if !w.hists.is_empty() => notes.set(Note::MixedFloatsHistograms),
            (false, _) => {
                if let Some(value) = rates.get(w.floats, &edges(w.floats, samples.ts), scale, &mut notes) {
                    out.values[w.step] = value;
                    out.present[w.step] = true;
                }
            }
            (true, Some(hists)) => {
                let edges = edges(w.hists, samples.hist_ts);
                if let Some((mut h, factor)) = hists.get(w.hists, &edges, &mut notes) {
                    crate::histogram::mul(&mut h, scale(factor));
                    out.hists.push((w.step as u32, h));
                }
            }
            (true, None) => {}
        }
    });
    notes
}

/// Growth of floats: values and the resets among them.
struct FloatRates<'a> {
    values: &'a [f64],
    starts: &'a [Millis],
    is_counter: bool,
    resets: Events<'a>,
    /// Samples whose start time lies before the sample before.
    overlaps: &'a [u32],
    /// The last extent and its factor: samples of regular scrapes stand alike in window after window.
    usual: Option<(Place, WindowExtent, f64)>,
}

impl<'a> FloatRates<'a> {
    fn new(s: &SeriesSamples<'a>, growth: Growth, events: &'a mut Vec<(u32, f64)>, marks: &'a mut Vec<u32>) -> Self {
        events.clear();
        marks.clear();
        let starts = if growth.is_counter { s.start_ts } else { &[] };
        if growth.is_counter {
            find_resets(s.values, events);
        }
        if !starts.is_empty() {
            add_start_resets(s, events, marks);
        }
        Self {
            values: s.values,
            starts,
            is_counter: growth.is_counter,
            resets: Events { list: events, next: 0 },
            overlaps: marks,
            usual: None,
        }
    }

    /// Gives growth between the samples, extended to the window and scaled.
    #[inline]
    fn get(&mut self, w: Cursor, edges: &Edges, scale: impl Fn(f64) -> f64, notes: &mut Notes) -> Option<f64> {
        let first = self.values[w.lo];
        let mut growth = self.values[w.hi - 1] - first;
        if !self.overlaps.is_empty() {
            let from = self.overlaps.partition_point(|&i| i as usize <= w.lo);
            if self.overlaps.get(from).is_some_and(|&i| (i as usize) < w.hi) {
                notes.set(Note::StartTimeOverlap);
            }
        }
        for &(_, before) in self.resets.inside(w) {
            growth += before;
        }
        let started = self.starts.get(w.lo).copied().filter(|&t| edges.starts_inside(t));
        if let Some(start_ts) = started {
            // Growth is not extended to the start, whenever it was zero.
            return Some((growth + first) * scale(edges.factor(Some(start_ts), None)));
        }
        if edges.gaps == 0 {
            return None;
        }
        let place = edges.place();
        let (extent, factor) = match self.usual {
            Some((usual, extent, factor)) if usual == place => (extent, factor),
            _ => {
                let extent = edges.extent(None);
                let factor = scale(extent.factor(None));
                self.usual = Some((place, extent, factor));
                (extent, factor)
            }
        };
        let grew = self.is_counter && growth > 0.0 && first >= 0.0;
        if grew && !extent.is_above_zero(first, growth) {
            return Some(growth * scale(extent.factor(Some(first / growth))));
        }
        Some(growth * factor)
    }
}

/// Lists the samples that are below the one before, with the value before. Most counters have none, so many pairs are looked
/// at together.
fn find_resets(values: &[f64], events: &mut Vec<(u32, f64)>) {
    const TOGETHER: usize = 64;
    for from in (1..values.len()).step_by(TOGETHER) {
        let to = values.len().min(from + TOGETHER);
        let (before, now) = (&values[from - 1..to - 1], &values[from..to]);
        let falls: u64 = before.iter().zip(now).map(|(before, now)| u64::from(now < before)).sum();
        if falls > 0 {
            let pairs = before.iter().zip(now).zip(from as u32..);
            events.extend(pairs.filter(|((before, now), _)| now < before).map(|((before, _), i)| (i, *before)));
        }
    }
}

/// Adds resets that only start times tell of, and lists overlaps.
fn add_start_resets(s: &SeriesSamples<'_>, events: &mut Vec<(u32, f64)>, overlaps: &mut Vec<u32>) {
    events.clear();
    for i in 1..s.values.len().min(s.start_ts.len()) {
        let before = (s.start_ts[i - 1], s.ts[i - 1]);
        let now = (s.start_ts[i], s.ts[i]);
        if s.values[i] < s.values[i - 1] || is_start_reset(before, now) {
            events.push((i as u32, s.values[i - 1]));
        }
        if overlaps_before(before, now.0) {
            overlaps.push(i as u32);
        }
    }
}

/// Sparse events of a series, by the index of the sample; windows move forward.
pub(super) struct Events<'a> {
    list: &'a [(u32, f64)],
    next: usize,
}

impl Events<'_> {
    /// Gives the events between the first and the last sample of a window.
    #[inline]
    fn inside(&mut self, w: Cursor) -> &[(u32, f64)] {
        while self.list.get(self.next).is_some_and(|e| e.0 as usize <= w.lo) {
            self.next += 1;
        }
        let rest = &self.list[self.next..];
        let len = rest.iter().take_while(|e| (e.0 as usize) < w.hi).count();
        &rest[..len]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{NaiveWindow, Samples, any_case, check, execute, floats, oracle, run, run_named};
    use super::*;
    use crate::kernel::{Grid, Window};
    use crate::range_ends::RangeEnds;

    fn naive(w: &NaiveWindow<'_>, range_s: Option<f64>, is_counter: bool) -> Option<f64> {
        let (n, starts) = (w.values.len(), w.start_ts);
        let mut growth = w.values[n - 1] - w.values[0];
        for i in 1..n {
            let reset = !starts.is_empty() && is_start_reset((starts[i - 1], w.ts[i - 1]), (starts[i], w.ts[i]));
            if is_counter && (w.values[i] < w.values[i - 1] || reset) {
                growth += w.values[i - 1];
            }
        }
        let mut to_start = (w.ts[0] - w.start) as f64 / 1000.0;
        let mut to_end = (w.end - w.ts[n - 1]) as f64 / 1000.0;
        let mut sampled = (w.ts[n - 1] - w.ts[0]) as f64 / 1000.0;
        let distance = if n > 1 { sampled / (n - 1) as f64 } else { 0.0 };
        if is_counter && !starts.is_empty() && starts[0] != 0 && starts[0] > w.start && starts[0] < w.ts[0] {
            to_start = 0.0;
            sampled = (w.ts[n - 1] - starts[0]) as f64 / 1000.0;
            growth += w.values[0];
        } else if n == 1 {
            return None;
        } else {
            if to_start >= distance * 1.1 {
                to_start = distance / 2.0;
            }
            if is_counter && growth > 0.0 && w.values[0] >= 0.0 {
                to_start = to_start.min(sampled * (w.values[0] / growth));
            }
        }
        if to_end >= distance * 1.1 {
            to_end = distance / 2.0;
        }
        let mut factor = (sampled + to_start + to_end) / sampled;
        if let Some(range_s) = range_s {
            factor /= range_s;
        }
        Some(growth * factor)
    }

    proptest! {
        #[test]
        fn equals_the_naive_way(case in any_case()) {
            let range_s = case.window.range_ms as f64 / 1000.0;
            oracle("rate", &case, |w| naive(w, Some(range_s), true));
            oracle("increase", &case, |w| naive(w, None, true));
            oracle("delta", &case, |w| naive(w, None, false));
        }

        #[test]
        fn start_times_too(mut case in any_case(), back in prop::collection::vec(0_i64..60_000, 200)) {
            let s = &mut case.samples;
            s.start_ts = s.ts.iter().zip(&back).map(|(t, b)| if b % 3 == 0 { 0 } else { t - b }).collect();
            oracle("increase", &case, |w| naive(w, None, true));
        }
    }

    proptest! {
        #[test]
        fn what_windows_share_changes_nothing(
            grown in prop::collection::vec(0_i32..9, 200),
            first in prop_oneof![Just(0.0), 0.0_f64..1e3, 1e6_f64..1e9],
            late in 0_i64..15_000,
        ) {
            let grow = |sum: &mut f64, by: &i32| {
                *sum = if *by == 8 { 0.5 } else { *sum + f64::from(*by) };
                Some(*sum)
            };
            let values = grown.iter().scan(first, grow).collect();
            let samples = Samples { ts: (0..200).map(|i| 15_000 * i + late).collect(), values, ..Samples::default() };
            let window =
                Window { range_ms: 300_000, offset_ms: 0, ends: RangeEnds::Samples, lookback_ms: 60_000 };
            let of = |name: &str, grid: Grid| {
                let call = RangeCall { grid, window, at: None, params: &[], windows: None, pace: None };
                execute(name, &samples, &call, "m").expect("the call does not fail").floats
            };
            let grid = Grid { start: 60_000, step_ms: 60_000, steps: 50 };
            for name in ["rate", "increase", "delta"] {
                for (step, together) in of(name, grid).into_iter().enumerate() {
                    let alone = of(name, Grid { start: grid.at(step), step_ms: 1, steps: 1 })[0];
                    prop_assert_eq!(together.map(f64::to_bits), alone.map(f64::to_bits), "{} at step {}", name, step);
                }
            }
        }
    }

    #[test]
    fn a_reset_is_found_wherever_it_is() {
        for at in 1..200_usize {
            let mut values: Vec<f64> = (0..200).map(f64::from).collect();
            values[at] = -1.0;
            let mut events = Vec::new();
            find_resets(&values, &mut events);
            assert_eq!(events, [(at as u32, (at - 1) as f64)]);
        }
    }

    #[test]
    fn extrapolation() {
        // Distance 10 s, both ends of (0, 60] are near.
        let s = floats(&[(5, 0.0), (15, 10.0), (25, 20.0), (35, 30.0), (45, 40.0), (55, 50.0)]);
        check("delta(60s)", &s, &[Some(60.0), None, None]);
        // A counter cannot have been below zero.
        check("increase(60s)", &s, &[Some(55.0), None, None]);
        check("rate(60s)", &s, &[Some(55.0 / 60.0), None, None]);
        // Far from both ends: half a distance each.
        let s = floats(&[(25, 100.0), (35, 110.0)]);
        check("increase(60s)", &s, &[Some(20.0), None, None]);
        check("increase(60s)", &floats(&[(25, 100.0)]), &[None, None, None]);
    }

    #[test]
    fn start_times() {
        let mut s = floats(&[(30, 6.0)]);
        s.start_ts = vec![20_000];
        check("increase(60s)", &s, &[Some(6.0), None, None]);
        s.start_ts = vec![0];
        check("increase(60s)", &s, &[None, None, None]);
    }

    #[test]
    fn overlap_is_noted() {
        let mut s = floats(&[(10, 1.0), (30, 2.0), (50, 3.0)]);
        s.start_ts = vec![5_000, 7_000, 7_000];
        let got = run("rate(60s)", &s);
        let text = "sample has start time that overlaps with previous sample timestamp for metric \"m\"";
        assert_eq!(got.warnings, [format!("PromQL warning: {text} (1:1)")]);
    }

    #[test]
    fn names_of_counters() {
        let s = floats(&[(10, 1.0), (30, 2.0)]);
        assert_eq!(run_named("rate(60s)", &s, "m").unwrap().infos.len(), 1);
        assert_eq!(run_named("delta(60s)", &s, "m").unwrap().infos.len(), 0);
        assert_eq!(run_named("rate(60s)", &s, "m_total").unwrap().infos.len(), 0);
        assert_eq!(run_named("rate(60s)", &s, "").unwrap().infos.len(), 0);
        assert_eq!(run_named("rate(60s)", &floats(&[]), "m").unwrap().infos.len(), 0);
    }
}
