//! `rate`, `increase` and `delta`: how much a series grew in a range, extended to the ends of the range.
//!
//! Source: Prometheus 3.14 `promql/functions.go: extrapolatedRate`. Resets of counters are found once per series and
//! kept as a sparse list, so a window costs its two ends and the resets inside. Histograms are in `rate_histogram`,
//! `anchored` and `smoothed` in `rate_extended`.

use quiver_types::{Millis, Result};

use super::call::{KernelContext, RangeCall};
use super::notes::{Note, Notes};
use super::rate_histogram::HistogramRates;
use super::{FunctionDef, MATRIX, RangeFunction, rate_extended};
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::window::{Cursor, each};

const fn growth(run: super::RangeKernel, start_timestamps: bool) -> RangeFunction {
    RangeFunction { anchored: true, smoothed: true, start_timestamps, ..RangeFunction::new(run) }
}

pub(super) const RATE: FunctionDef =
    FunctionDef::range("rate", MATRIX, growth(rate, true), "The growth of a counter per second.");
pub(super) const INCREASE: FunctionDef =
    FunctionDef::range("increase", MATRIX, growth(increase, true), "The growth of a counter.");
pub(super) const DELTA: FunctionDef = FunctionDef::range(
    "delta",
    MATRIX,
    growth(delta, false),
    "The difference between the last and the first value of a gauge.",
);

/// Which of the three it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    pub(super) is_counter: bool,
    pub(super) is_rate: bool,
}

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
    let mut notes = Notes::default();
    if call.window.anchored || call.window.smoothed {
        rate_extended::run(samples, call, out, ctx.scratch, growth, &mut notes);
    } else {
        extrapolated(samples, call, out, ctx.scratch, growth, &mut notes);
    }
    ctx.note(&notes);
    if growth.is_counter && out.present.contains(&true) {
        ctx.note_possible_non_counter();
    }
}

fn extrapolated(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    scratch: &mut super::Scratch,
    growth: Growth,
    notes: &mut Notes,
) {
    let hists = (!samples.hist_ts.is_empty()).then(|| HistogramRates::new(samples, growth));
    let mut rates = FloatRates::new(samples, growth, &mut scratch.events, &mut scratch.marks);
    let range_s = call.range_s();
    each(samples, call, (0, 0), |w| {
        let edges = |c: Cursor, ts: &[Millis]| Edges {
            first: ts[c.lo],
            last: ts[c.hi - 1],
            gaps: c.len() - 1,
            start: w.start,
            end: w.end,
        };
        let scale = |factor: f64| if growth.is_rate { factor / range_s } else { factor };
        match (w.floats.is_empty(), &hists) {
            (false, _) if !w.hists.is_empty() => notes.set(Note::MixedFloatsHistograms),
            (false, _) => {
                if let Some((value, factor)) = rates.get(w.floats, &edges(w.floats, samples.ts), notes) {
                    out.values[w.step] = value * scale(factor);
                    out.present[w.step] = true;
                }
            }
            (true, Some(hists)) => {
                let edges = edges(w.hists, samples.hist_ts);
                if let Some((mut h, factor)) = hists.get(w.hists, &edges, notes) {
                    crate::histogram::mul(&mut h, scale(factor));
                    out.hists.push((w.step as u32, h));
                }
            }
            (true, None) => {}
        }
    });
}

/// Times of the samples at the ends of a window, and the window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edges {
    first: Millis,
    last: Millis,
    /// Samples minus one.
    gaps: usize,
    start: Millis,
    end: Millis,
}

impl Edges {
    /// Says whether a counter is known to have started inside of the window, before its first sample; then there was
    /// a zero at that time.
    pub(super) fn starts_inside(&self, start_ts: Millis) -> bool {
        start_ts != 0 && start_ts > self.start && start_ts < self.first
    }

    /// Gives the factor that extends growth between the samples to the window.
    ///
    /// A series is taken to go on to the end of the window when the last sample is nearer to it than 1.1 times the
    /// usual distance, else for half a distance; likewise at the start, where a counter does not go back beyond the
    /// time at which it would have been zero. `ratio`: first value by growth, of a counter that grew.
    #[inline]
    pub(super) fn factor(&self, started: Option<Millis>, ratio: Option<f64>) -> f64 {
        let mut sampled = (self.last - self.first) as f64 / 1000.0;
        let mut to_start = (self.first - self.start) as f64 / 1000.0;
        let mut to_end = (self.end - self.last) as f64 / 1000.0;
        let distance = if self.gaps > 0 { sampled / self.gaps as f64 } else { 0.0 };
        let threshold = distance * 1.1;
        if let Some(start_ts) = started {
            to_start = 0.0;
            sampled = (self.last - start_ts) as f64 / 1000.0;
        } else {
            if to_start >= threshold {
                to_start = distance / 2.0;
            }
            if let Some(ratio) = ratio {
                let to_zero = sampled * ratio;
                if to_zero < to_start {
                    to_start = to_zero;
                }
            }
        }
        if to_end >= threshold {
            to_end = distance / 2.0;
        }
        if sampled == 0.0 { 1.0 } else { (sampled + to_start + to_end) / sampled }
    }
}

/// Growth of floats: values and the resets among them.
struct FloatRates<'a> {
    values: &'a [f64],
    starts: &'a [Millis],
    is_counter: bool,
    resets: Events<'a>,
    /// Samples whose start time lies before the sample before.
    overlaps: &'a [u32],
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
        }
    }

    /// Gives growth between the samples and the factor to extend it.
    #[inline]
    fn get(&mut self, w: Cursor, edges: &Edges, notes: &mut Notes) -> Option<(f64, f64)> {
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
        if started.is_some() {
            growth += first;
        } else if edges.gaps == 0 {
            return None;
        }
        let ratio = (self.is_counter && growth > 0.0 && first >= 0.0).then(|| first / growth);
        Some((growth, edges.factor(started, ratio)))
    }
}

/// Lists the samples that are below the one before, with the value before.
fn find_resets(values: &[f64], events: &mut Vec<(u32, f64)>) {
    let pairs = values.windows(2).zip(1_u32..);
    events.extend(pairs.filter(|(w, _)| w[1] < w[0]).map(|(w, i)| (i, w[0])));
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

/// Says whether start times (paired with the times of their samples) tell of a reset between two samples.
pub(super) fn is_start_reset(before: (Millis, Millis), now: (Millis, Millis)) -> bool {
    // Unset, impossible, or the unknown start of OpenTelemetry (equal to the sample's time).
    if now.0 == 0 || now.0 >= now.1 || now.0 < before.1 {
        return false;
    }
    if now.0 > before.1 {
        return true;
    }
    // A start at the time of the sample before: a delta, or a cumulative series whose first sample had an unknown
    // start, which is not a reset; then the start before is unset, its own time, or (impossible) later.
    before.0 != 0 && before.0 < before.1
}

/// Says whether a start time lies before the sample before although it is another one than that sample's.
pub(super) fn overlaps_before(before: (Millis, Millis), start_ts: Millis) -> bool {
    start_ts != 0 && start_ts < before.1 && start_ts != before.0
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

    use super::super::testing::{NaiveWindow, any_case, check, floats, oracle, run, run_named};
    use super::*;

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
        let check = |before, now, expected| assert_eq!(is_start_reset(before, now), expected, "{before:?} {now:?}");
        check((0, 60), (60, 120), false);
        check((60, 60), (60, 120), false);
        check((90, 60), (60, 120), false);
        check((30, 60), (60, 120), true);
        check((0, 60), (61, 120), true);
        check((0, 60), (120, 120), false);
        check((0, 60), (59, 120), false);
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
