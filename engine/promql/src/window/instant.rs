//! The instant selector: the newest sample within the lookback of each step, or a value interpolated between two
//! samples.
//!
//! Source: Prometheus 3.14 `promql/engine.go`: `vectorSelectorSingle`, `smoothSeries`.

use quiver_types::{Histogram, Millis, ResetHint, is_stale};
use serde::{Deserialize, Serialize};

use super::cursor::{Cursor, first_after};
use super::extend::interpolate;
use crate::functions::annotations::Note;
use crate::functions::annotations::Notes;
use crate::functions::call::{KernelContext, RangeCall};
use crate::histogram;
use crate::kernel::{SeriesOut, SeriesSamples};

/// What to return of the sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InstantValue {
    /// Its value, float or histogram.
    Value,
    /// Its time in seconds.
    Timestamp,
    /// Its start time in seconds; 0 if not set.
    StartTimestamp,
}

/// Fills a row with the newest sample in `(t - lookback, t]` for each step, unless it is a stale marker. Uses
/// `window.lookback_ms` of the call; its range is ignored.
pub fn instant(samples: &SeriesSamples<'_>, call: &RangeCall<'_>, what: InstantValue, out: &mut SeriesOut<'_>) {
    if let Some(windows) = call.windows {
        for (step, window) in windows.iter().enumerate().filter(|(_, window)| !window.is_empty()) {
            let value = samples.values[window.hi - 1];
            if !is_stale(value) {
                out.present[step] = true;
                out.values[step] = match what {
                    InstantValue::Value => value,
                    InstantValue::Timestamp => seconds(samples.ts[window.hi - 1]),
                    InstantValue::StartTimestamp => start(samples.start_ts, window.hi - 1),
                };
            }
        }
        return;
    }
    let (mut float, mut hist) = (0, 0);
    for step in 0..call.grid.steps {
        let end = call.end(step);
        let oldest = end - call.window.lookback_ms;
        float = first_after(samples.ts, float, end);
        hist = first_after(samples.hist_ts, hist, end);
        let float_ts = newest(samples.ts, float);
        let hist_ts = newest(samples.hist_ts, hist);
        if float_ts.max(hist_ts) <= oldest {
            continue;
        }
        if float_ts > hist_ts {
            let value = samples.values[float - 1];
            if !is_stale(value) {
                out.present[step] = true;
                out.values[step] = match what {
                    InstantValue::Value => value,
                    InstantValue::Timestamp => seconds(float_ts),
                    InstantValue::StartTimestamp => start(samples.start_ts, float - 1),
                };
            }
            continue;
        }
        let found = &samples.hists[hist - 1];
        if found.is_stale() {
            continue;
        }
        match what {
            InstantValue::Value => out.hists.push((step as u32, found.clone())),
            InstantValue::Timestamp => set(out, step, seconds(hist_ts)),
            InstantValue::StartTimestamp => set(out, step, start(samples.hist_start_ts, hist - 1)),
        }
    }
}

fn newest(ts: &[Millis], end: usize) -> Millis {
    if end == 0 { Millis::MIN } else { ts[end - 1] }
}

fn seconds(ts: Millis) -> f64 {
    ts as f64 / 1000.0
}

fn start(starts: &[Millis], idx: usize) -> f64 {
    starts.get(idx).map_or(0.0, |&t| seconds(t))
}

fn set(out: &mut SeriesOut<'_>, step: usize, value: f64) {
    out.present[step] = true;
    out.values[step] = value;
}

/// Fills a row of a `smoothed` instant selector: the sample at the step, else a value interpolated between the
/// neighbours within the lookback on both sides, else the last value. Samples must not contain stale markers.
pub fn instant_smoothed(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) {
    let (mut floats, mut hists) = (Cursor::default(), Cursor::default());
    let mut notes = Notes::default();
    let lookback = call.window.lookback_ms;
    for step in 0..call.grid.steps {
        let t = call.end(step);
        floats.advance(samples.ts, t - lookback, t + lookback);
        hists.advance(samples.hist_ts, t - lookback, t + lookback);
        match (floats.is_empty(), hists.is_empty()) {
            (true, true) => {}
            (false, false) => notes.set(Note::MixedFloatsHistograms),
            (false, true) => {
                let (ts, values) = (&samples.ts[..floats.hi], &samples.values[..floats.hi]);
                let i = ts.partition_point(|&s| s < t);
                if i < ts.len() && ts[i] == t {
                    set(out, step, values[i]);
                } else if i > floats.lo && i < ts.len() {
                    set(out, step, interpolate((ts[i - 1], values[i - 1]), (ts[i], values[i]), t));
                } else if i > floats.lo {
                    set(out, step, values[i - 1]);
                }
            }
            (true, false) => {
                let i = samples.hist_ts[..hists.hi].partition_point(|&s| s < t);
                if let Some(h) = smooth_histogram(samples, hists, i, t, &mut notes) {
                    out.hists.push((step as u32, h));
                }
            }
        }
    }
    ctx.note(notes);
}

fn smooth_histogram(
    samples: &SeriesSamples<'_>,
    window: Cursor,
    next: usize,
    t: Millis,
    notes: &mut Notes,
) -> Option<Histogram> {
    let at = |i: usize| (samples.hist_ts[i], &samples.hists[i]);
    if next < window.hi && samples.hist_ts[next] == t {
        return Some(samples.hists[next].clone());
    }
    if next == window.lo {
        return None;
    }
    let (prev_ts, prev) = at(next - 1);
    if next == window.hi {
        // The hint refers to the sample before, which is not the previous step's value here.
        return Some(Histogram { reset_hint: ResetHint::Unknown, ..prev.clone() });
    }
    let (next_ts, next) = at(next);
    if histogram::uses_custom_buckets(prev) != histogram::uses_custom_buckets(next) {
        notes.set(Note::MixedExponentialCustom);
        return None;
    }
    let is_counter = prev.reset_hint != ResetHint::Gauge || next.reset_hint != ResetHint::Gauge;
    histogram::interpolate((prev_ts, prev), (next_ts, next), t, is_counter, notes)
}

#[cfg(test)]
mod tests {
    use quiver_types::stale_nan;

    use super::*;
    use crate::kernel::{Grid, Window};
    use crate::range_ends::RangeEnds;

    fn row(samples: &SeriesSamples<'_>, what: InstantValue, steps: usize) -> Vec<Option<f64>> {
        let (mut values, mut present) = (vec![0.0; steps], vec![false; steps]);
        let mut out = SeriesOut { values: &mut values, present: &mut present, hists: vec![] };
        let window = Window { range_ms: 0, offset_ms: 0, ends: RangeEnds::Samples, lookback_ms: 50 };
        let call = RangeCall {
            grid: Grid { start: 0, step_ms: 25, steps },
            window,
            at: None,
            params: &[],
            windows: None,
            pace: None,
        };
        instant(samples, &call, what, &mut out);
        values.iter().zip(&present).map(|(&v, &p)| p.then_some(v)).collect()
    }

    #[test]
    fn look_back_is_open_on_the_left_and_stops_at_stale() {
        let values = [1.0, 2.0, stale_nan()];
        let samples = SeriesSamples { ts: &[0, 100, 120], values: &values, ..SeriesSamples::default() };
        let got = row(&samples, InstantValue::Value, 7);
        assert_eq!(got, [Some(1.0), Some(1.0), None, None, Some(2.0), None, None]);
        let got = row(&samples, InstantValue::Timestamp, 5);
        assert_eq!(got, [Some(0.0), Some(0.0), None, None, Some(0.1)]);
        let got = row(&samples, InstantValue::StartTimestamp, 2);
        assert_eq!(got, [Some(0.0), Some(0.0)]);
    }

    #[test]
    fn the_newer_of_float_and_histogram() {
        let hists = [Histogram { count: 3.0, ..Histogram::default() }];
        let samples =
            SeriesSamples { ts: &[0], values: &[1.0], hist_ts: &[25], hists: &hists, ..SeriesSamples::default() };
        assert_eq!(row(&samples, InstantValue::Value, 3), [Some(1.0), None, None]);
        assert_eq!(row(&samples, InstantValue::Timestamp, 3), [Some(0.0), Some(0.025), Some(0.025)]);
    }

    /// Values by step, sums of histograms by step, texts of notes.
    type Smoothed = (Vec<Option<f64>>, Vec<(u32, f64)>, Vec<String>);

    fn smoothed(samples: &SeriesSamples<'_>, steps: usize) -> Smoothed {
        use crate::annotation::{Annotations, Level};
        use crate::ast::PosRange;
        use crate::functions::Scratch;

        let (mut values, mut present) = (vec![0.0; steps], vec![false; steps]);
        let mut out = SeriesOut { values: &mut values, present: &mut present, hists: vec![] };
        let window = Window { range_ms: 0, offset_ms: 0, ends: RangeEnds::Smoothed, lookback_ms: 50 };
        let grid = Grid { start: 0, step_ms: 25, steps };
        let call = RangeCall { grid, window, at: None, params: &[], windows: None, pace: None };
        let (mut annotations, mut scratch) = (Annotations::default(), Scratch::default());
        let place = PosRange::default().into();
        let mut ctx = KernelContext { annotations: &mut annotations, place, metric_name: "m", scratch: &mut scratch };
        instant_smoothed(samples, &call, &mut out, &mut ctx);
        let hists = out.hists.iter().map(|(step, h)| (*step, h.count)).collect();
        let floats = values.iter().zip(&present).map(|(&v, &p)| p.then_some(v)).collect();
        (floats, hists, annotations.texts(Level::Warning, ""))
    }

    #[test]
    fn values_between_samples() {
        let samples = SeriesSamples { ts: &[10, 60, 150], values: &[1.0, 6.0, 5.0], ..SeriesSamples::default() };
        let (floats, hists, warnings) = smoothed(&samples, 9);
        // At 0 and 125 nothing is before, at 75 the next one is too far; at 200 the last one is too old.
        let between = Some(6.0 - 40.0 / 90.0);
        let expected = [None, Some(2.5), Some(5.0), Some(6.0), between, None, Some(5.0), Some(5.0), None];
        let close = |(a, b): (&Option<f64>, &Option<f64>)| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-12,
            (a, b) => a == b,
        };
        assert!(floats.iter().zip(&expected).all(close), "{floats:?}");
        assert!(hists.is_empty() && warnings.is_empty());
    }

    #[test]
    fn histograms_between_samples() {
        use crate::histogram::testing::{custom, exponential};

        let h = |count: f64| exponential(0, 1, &[count]);
        let hists = [h(10.0), h(60.0)];
        let samples = SeriesSamples { hist_ts: &[10, 60], hists: &hists, ..SeriesSamples::default() };
        let (floats, counts, _) = smoothed(&samples, 6);
        assert_eq!(floats, [None; 6]);
        assert_eq!(counts, [(1, 25.0), (2, 50.0), (3, 60.0), (4, 60.0)]);
        // Floats and histograms around one step are no value, nor are kinds of buckets that do not fit.
        let mixed = SeriesSamples { ts: &[30], values: &[1.0], ..samples };
        let (floats, counts, warnings) = smoothed(&mixed, 2);
        assert!(floats == [None; 2] && counts.is_empty() && warnings.len() == 1, "{floats:?} {counts:?}");
        let kinds = [h(10.0), custom(&[1.0], &[1.0, 2.0])];
        let (_, counts, warnings) = smoothed(&SeriesSamples { hist_ts: &[10, 60], hists: &kinds, ..samples }, 4);
        assert_eq!((counts, warnings.len()), (vec![(3, 3.0)], 1));
    }

    #[test]
    fn start_times_and_histograms_by_what_is_asked() {
        let hists = [Histogram { count: 3.0, ..Histogram::default() }, Histogram::stale()];
        let samples = SeriesSamples {
            ts: &[0],
            values: &[f64::NAN],
            start_ts: &[-7000],
            hist_ts: &[25, 75],
            hists: &hists,
            hist_start_ts: &[1500, 0],
        };
        let value = row(&samples, InstantValue::Value, 4);
        assert!(value[0].is_some_and(f64::is_nan) && value[1..] == [None; 3], "NaN is a value like any other");
        assert_eq!(row(&samples, InstantValue::StartTimestamp, 4), [Some(-7.0), Some(1.5), Some(1.5), None]);
        assert_eq!(row(&samples, InstantValue::Timestamp, 4), [Some(0.0), Some(0.025), Some(0.025), None]);
    }

    #[test]
    fn windows_that_are_known() {
        let values = [1.0, stale_nan(), 3.0];
        let samples =
            SeriesSamples { ts: &[0, 25, 50], values: &values, start_ts: &[1000, 0, 3000], ..SeriesSamples::default() };
        let windows = [(0, 1), (0, 2), (1, 3), (3, 3)].map(|(lo, hi)| Cursor { lo, hi });
        let of = |what| {
            let (mut values, mut present) = (vec![0.0; 4], vec![false; 4]);
            let mut out = SeriesOut { values: &mut values, present: &mut present, hists: vec![] };
            let window = Window { range_ms: 0, offset_ms: 0, ends: RangeEnds::Samples, lookback_ms: 50 };
            let grid = Grid { start: 0, step_ms: 25, steps: 4 };
            let call = RangeCall { grid, window, at: None, params: &[], windows: Some(&windows), pace: None };
            instant(&samples, &call, what, &mut out);
            values.iter().zip(&present).map(|(&v, &p)| p.then_some(v)).collect::<Vec<_>>()
        };
        assert_eq!(of(InstantValue::Value), [Some(1.0), None, Some(3.0), None]);
        assert_eq!(of(InstantValue::Timestamp), [Some(0.0), None, Some(0.05), None]);
        assert_eq!(of(InstantValue::StartTimestamp), [Some(1.0), None, Some(3.0), None]);
    }
}
