//! First and last sample of a range: their values, and when they were.

use quiver_types::{Millis, Result};

use super::call::{KernelContext, RangeCall};
use super::definition::{FunctionDef, MATRIX, RangeFunction};
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::window::{StepWindow, each};

pub(super) const FIRST_OVER_TIME: FunctionDef = FunctionDef::range(
    "first_over_time",
    MATRIX,
    RangeFunction { keeps_name: true, ..RangeFunction::new(first) },
    "The oldest sample in the range.",
);
pub(super) const LAST_OVER_TIME: FunctionDef = FunctionDef::range(
    "last_over_time",
    MATRIX,
    RangeFunction { keeps_name: true, ..RangeFunction::new(last) },
    "The newest sample in the range.",
);
pub(super) const TS_OF_FIRST_OVER_TIME: FunctionDef = FunctionDef::range(
    "ts_of_first_over_time",
    MATRIX,
    RangeFunction { times_only: true, ..RangeFunction::new(ts_of_first) },
    "The time of the oldest sample in the range, in seconds.",
)
.experimental();
pub(super) const TS_OF_LAST_OVER_TIME: FunctionDef = FunctionDef::range(
    "ts_of_last_over_time",
    MATRIX,
    RangeFunction { times_only: true, ..RangeFunction::new(ts_of_last) },
    "The time of the newest sample in the range, in seconds.",
)
.experimental();

/// Which sample it is: index and time among the floats, among the histograms.
type Candidates = (Option<(usize, Millis)>, Option<(usize, Millis)>);

fn firsts(samples: &SeriesSamples<'_>, w: &StepWindow) -> Candidates {
    let float = (!w.floats.is_empty()).then(|| (w.floats.lo, samples.ts[w.floats.lo]));
    let hist = (!w.hists.is_empty()).then(|| (w.hists.lo, samples.hist_ts[w.hists.lo]));
    (float, hist)
}

fn lasts(samples: &SeriesSamples<'_>, w: &StepWindow) -> Candidates {
    let float = (!w.floats.is_empty()).then(|| (w.floats.hi - 1, samples.ts[w.floats.hi - 1]));
    let hist = (!w.hists.is_empty()).then(|| (w.hists.hi - 1, samples.hist_ts[w.hists.hi - 1]));
    (float, hist)
}

fn first(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    _ctx: &mut KernelContext<'_>,
) -> Result<()> {
    each(samples, call, (0, 0), |w| put(samples, w.step, firsts(samples, &w), |f, h| f < h, out));
    Ok(())
}

fn last(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    _ctx: &mut KernelContext<'_>,
) -> Result<()> {
    each(samples, call, (0, 0), |w| put(samples, w.step, lasts(samples, &w), |f, h| f > h, out));
    Ok(())
}

fn put(
    samples: &SeriesSamples<'_>,
    step: usize,
    candidates: Candidates,
    prefer_float: impl Fn(Millis, Millis) -> bool,
    out: &mut SeriesOut<'_>,
) {
    match candidates {
        (Some(f), h) if h.is_none_or(|h| prefer_float(f.1, h.1)) => {
            out.values[step] = samples.values[f.0];
            out.present[step] = true;
        }
        (_, Some(h)) => out.hists.push((step as u32, samples.hists[h.0].clone())),
        _ => {}
    }
}

fn ts_of_first(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    _ctx: &mut KernelContext<'_>,
) -> Result<()> {
    each(samples, call, (0, 0), |w| {
        let (f, h) = firsts(samples, &w);
        put_time(w.step, f.into_iter().chain(h).map(|c| c.1).min(), out);
    });
    Ok(())
}

fn ts_of_last(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    _ctx: &mut KernelContext<'_>,
) -> Result<()> {
    each(samples, call, (0, 0), |w| {
        let (f, h) = lasts(samples, &w);
        put_time(w.step, f.into_iter().chain(h).map(|c| c.1).max(), out);
    });
    Ok(())
}

fn put_time(step: usize, ts: Option<Millis>, out: &mut SeriesOut<'_>) {
    if let Some(ts) = ts {
        out.values[step] = ts as f64 / 1000.0;
        out.present[step] = true;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, floats, run, with_hists};
    use crate::histogram::testing::exponential;

    #[test]
    fn of_floats() {
        let s = floats(&[(0, 1.0), (30, 2.0), (60, 3.0)]);
        check("first_over_time(60s)", &s, &[Some(2.0), Some(3.0), None]);
        check("last_over_time(60s)", &s, &[Some(3.0), Some(3.0), None]);
        check("ts_of_first_over_time(60s)", &s, &[Some(30.0), Some(60.0), None]);
        check("ts_of_last_over_time(60s)", &s, &[Some(60.0), Some(60.0), None]);
    }

    #[test]
    fn the_nearer_of_float_and_histogram() {
        let s = with_hists(
            floats(&[(10, 1.0), (40, 2.0)]),
            &[(20, exponential(0, 0, &[1.0])), (60, exponential(0, 0, &[7.0]))],
        );
        let first = run("first_over_time(60s)", &s);
        assert_eq!(first.floats[0], Some(1.0));
        let last = run("last_over_time(60s)", &s);
        assert_eq!((last.floats[0], last.hists[0].1.count), (None, 7.0));
        check("ts_of_first_over_time(60s)", &s, &[Some(10.0), Some(60.0), None]);
        check("ts_of_last_over_time(60s)", &s, &[Some(60.0), Some(60.0), None]);
    }

    #[test]
    fn histograms_alone() {
        let h = |count: f64| exponential(0, 0, &[count]);
        let s = with_hists(floats(&[]), &[(10, h(1.0)), (30, h(2.0)), (70, h(3.0))]);
        let counts = |text: &str| run(text, &s).hists.iter().map(|(step, h)| (*step, h.count)).collect::<Vec<_>>();
        assert_eq!(counts("first_over_time(60s)"), [(0, 1.0), (1, 3.0)]);
        assert_eq!(counts("last_over_time(60s)"), [(0, 2.0), (1, 3.0)]);
        check("ts_of_first_over_time(60s)", &s, &[Some(10.0), Some(70.0), None]);
        check("ts_of_last_over_time(60s)", &s, &[Some(30.0), Some(70.0), None]);
    }

    #[test]
    fn a_window_is_open_where_it_begins() {
        let s = floats(&[(0, 1.0), (50, 2.0), (60, 3.0), (110, 4.0), (160, 5.0)]);
        check("first_over_time(60s)", &s, &[Some(2.0), Some(3.0), Some(4.0)]);
        check("last_over_time(60s)", &s, &[Some(3.0), Some(4.0), Some(5.0)]);
        check("first_over_time(1s)", &s, &[Some(3.0), Some(4.0), Some(5.0)]);
        check("ts_of_first_over_time(50s)", &s, &[Some(50.0), Some(110.0), Some(160.0)]);
        check("last_over_time(60s)", &floats(&[(10, f64::NAN)]), &[Some(f64::NAN), None, None]);
    }
}
