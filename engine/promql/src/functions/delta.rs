//! `irate` and `idelta`: growth between the last two samples of a range.
//!
//! Source: Prometheus 3.14 `promql/functions.go: instantValue`.

use quiver_types::{Histogram, Millis, ResetHint, Result};

use super::annotations::{Note, Notes};
use super::call::{KernelContext, RangeCall};
use super::definition::{FunctionDef, MATRIX, RangeFunction};
use super::growth::is_start_reset;
use crate::histogram::{self, detect_reset};
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::window::{StepWindow, each};

pub(super) const IRATE: FunctionDef = FunctionDef::range(
    "irate",
    MATRIX,
    RangeFunction { start_timestamps: true, ..RangeFunction::new(irate) },
    "The growth per second between the last two samples of a counter.",
);
pub(super) const IDELTA: FunctionDef = FunctionDef::range(
    "idelta",
    MATRIX,
    RangeFunction::new(idelta),
    "The difference between the last two samples of a gauge.",
);

fn irate(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    run(samples, call, out, ctx, LastChange::Rate);
    Ok(())
}

fn idelta(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
) -> Result<()> {
    run(samples, call, out, ctx, LastChange::Difference);
    Ok(())
}

/// What the last two samples are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastChange {
    /// That of a counter per second (`irate`).
    Rate,
    /// That of a gauge (`idelta`).
    Difference,
}

fn run(
    s: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
    change: LastChange,
) {
    let is_rate = change == LastChange::Rate;
    let mut notes = Notes::default();
    each(s, call, (0, 0), |w| {
        let seconds = |ts: &[Millis], i: usize| (ts[i] - ts[i - 1]) as f64 / 1000.0;
        match last_two(s, &w) {
            LastTwo::Fewer => {}
            LastTwo::Mixed => notes.set(Note::MixedFloatsHistograms),
            LastTwo::Floats(i) => {
                let (before, now) = (s.values[i - 1], s.values[i]);
                let reset = is_rate && (now < before || start_reset(s.start_ts, s.ts, i));
                let growth = if reset { now } else { now - before };
                out.values[w.step] = if is_rate { growth / seconds(s.ts, i) } else { growth };
                out.present[w.step] = true;
            }
            LastTwo::Hists(i) => {
                let reset = is_rate && start_reset(s.hist_start_ts, s.hist_ts, i);
                if let Some(mut h) = growth(&s.hists[i - 1], &s.hists[i], is_rate, reset, &mut notes) {
                    if is_rate {
                        histogram::div(&mut h, seconds(s.hist_ts, i));
                    }
                    out.hists.push((w.step as u32, h));
                }
            }
        }
    });
    ctx.note(notes);
}

/// The last two samples: both floats or both histograms (index of the later one), one of each, or fewer than two.
enum LastTwo {
    Floats(usize),
    Hists(usize),
    Mixed,
    Fewer,
}

fn last_two(s: &SeriesSamples<'_>, w: &StepWindow) -> LastTwo {
    let (f, h) = (w.floats, w.hists);
    if f.len() + h.len() < 2 {
        return LastTwo::Fewer;
    }
    if h.is_empty() {
        return LastTwo::Floats(f.hi - 1);
    }
    if f.is_empty() {
        return LastTwo::Hists(h.hi - 1);
    }
    if h.len() >= 2 && s.hist_ts[h.hi - 2] > s.ts[f.hi - 1] {
        return LastTwo::Hists(h.hi - 1);
    }
    if f.len() >= 2 && s.ts[f.hi - 2] > s.hist_ts[h.hi - 1] {
        return LastTwo::Floats(f.hi - 1);
    }
    LastTwo::Mixed
}

fn start_reset(starts: &[Millis], ts: &[Millis], i: usize) -> bool {
    i < starts.len() && is_start_reset((starts[i - 1], ts[i - 1]), (starts[i], ts[i]))
}

fn growth(before: &Histogram, now: &Histogram, is_rate: bool, reset: bool, notes: &mut Notes) -> Option<Histogram> {
    let gauges = [before, now].map(|h| h.reset_hint == ResetHint::Gauge);
    if is_rate && gauges.contains(&true) {
        notes.set(Note::NotCounter);
    }
    if !is_rate && gauges.contains(&false) {
        notes.set(Note::NotGauge);
    }
    let mut growth = now.clone();
    if !is_rate || !(reset || detect_reset(now, before)) {
        histogram::sub_noting(&mut growth, before, notes)?;
    }
    growth.reset_hint = ResetHint::Gauge;
    histogram::compact(&mut growth);
    Some(growth)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, floats, run, with_hists};
    use crate::histogram::testing::{custom, exponential, populated};

    #[test]
    fn of_floats() {
        let s = floats(&[(10, 5.0), (20, 7.0), (40, 11.0), (70, 3.0)]);
        check("irate(60s)", &s, &[Some(0.2), None, None]);
        check("idelta(60s)", &s, &[Some(4.0), None, None]);
        check("irate(60s)", &floats(&[(10, 5.0), (20, 2.0)]), &[Some(0.2), None, None]);
        check("idelta(60s)", &floats(&[(10, 5.0), (20, 2.0)]), &[Some(-3.0), None, None]);
    }

    #[test]
    fn of_histograms() {
        let list = [(10, exponential(0, 1, &[5.0])), (20, exponential(0, 1, &[7.0]))];
        let got = run("irate(60s)", &with_hists(floats(&[(5, 1.0)]), &list));
        assert_eq!(populated(&got.hists[0].1), [(1, 0.2)]);
        let got = run("irate(60s)", &with_hists(floats(&[(15, 1.0)]), &list));
        assert!(got.hists.is_empty() && got.warnings.len() == 1);
        let got = run("idelta(60s)", &with_hists(floats(&[]), &[list[0].clone(), (20, custom(&[1.0], &[9.0, 1.0]))]));
        assert!(got.hists.is_empty());
        assert_eq!(got.warnings.len(), 2);
    }

    #[test]
    fn fewer_than_two_samples_are_no_difference() {
        let h = |count: f64| exponential(0, 1, &[count]);
        for text in ["irate(60s)", "idelta(60s)"] {
            for s in [floats(&[]), floats(&[(10, 5.0)]), with_hists(floats(&[]), &[(10, h(5.0))])] {
                let got = run(text, &s);
                assert!(got.floats == [None; 3] && got.hists.is_empty() && got.warnings.is_empty(), "{text}: {got:?}");
            }
        }
    }

    /// Only the last two samples count, whatever stood before them.
    #[test]
    fn kinds_before_the_last_two_do_not_matter() {
        let h = |count: f64| exponential(0, 1, &[count]);
        let s = with_hists(floats(&[(10, 1.0), (40, 5.0), (50, 9.0)]), &[(20, h(1.0)), (30, h(2.0))]);
        let got = run("idelta(60s)", &s);
        assert!(got.floats[0] == Some(4.0) && got.warnings.is_empty(), "{got:?}");
        let s = with_hists(floats(&[(10, 1.0)]), &[(20, h(1.0)), (40, h(5.0))]);
        let got = run("irate(60s)", &s);
        assert_eq!(populated(&got.hists[0].1), [(1, 0.2)]);
        assert!(got.warnings.is_empty() && got.floats[0].is_none(), "{got:?}");
    }

    #[test]
    fn resets_of_counters() {
        let h = |count: f64| exponential(0, 1, &[count]);
        let s = with_hists(floats(&[]), &[(10, h(5.0)), (20, h(2.0))]);
        assert_eq!(populated(&run("irate(60s)", &s).hists[0].1), [(1, 0.2)]);
        // A gauge may fall, and says so.
        let got = run("idelta(60s)", &s);
        assert_eq!(populated(&got.hists[0].1), [(1, -3.0)]);
        assert_eq!(got.warnings, ["PromQL warning: this native histogram metric is not a gauge: \"m\" (1:1)"]);
        // The start of a counter after the sample before it tells of a reset that values do not show.
        let mut s = floats(&[(10, 5.0), (20, 7.0)]);
        s.start_ts = vec![1_000, 15_000];
        check("irate(60s)", &s, &[Some(0.7), None, None]);
        check("idelta(60s)", &s, &[Some(2.0), None, None]);
        s.start_ts = vec![1_000, 1_000];
        check("irate(60s)", &s, &[Some(0.2), None, None]);
    }
}
