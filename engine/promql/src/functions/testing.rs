//! Short ways to run a range function in tests: over given samples on a fixed grid, and against a naive oracle.

use proptest::prelude::*;
use quiver_types::{Histogram, Millis};

use super::call::{KernelContext, RangeCall, ScalarSteps, Scratch};
use super::definition::Kernel;
use super::lookup;
use crate::annotation::{Annotations, Level};
use crate::ast::PosRange;
use crate::kernel::{Grid, SeriesOut, SeriesSamples, Window};
use crate::range_ends::RangeEnds;

/// Samples that own their lists.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    pub(crate) ts: Vec<Millis>,
    pub(crate) values: Vec<f64>,
    pub(crate) start_ts: Vec<Millis>,
    pub(crate) hist_ts: Vec<Millis>,
    pub(crate) hists: Vec<Histogram>,
    pub(crate) hist_start_ts: Vec<Millis>,
}

impl Samples {
    pub(crate) fn borrow(&self) -> SeriesSamples<'_> {
        SeriesSamples {
            ts: &self.ts,
            values: &self.values,
            start_ts: &self.start_ts,
            hist_ts: &self.hist_ts,
            hists: &self.hists,
            hist_start_ts: &self.hist_start_ts,
        }
    }
}

/// Floats at times in seconds.
pub(crate) fn floats(list: &[(i64, f64)]) -> Samples {
    Samples {
        ts: list.iter().map(|s| s.0 * 1000).collect(),
        values: list.iter().map(|s| s.1).collect(),
        ..Samples::default()
    }
}

/// Adds histograms at times in seconds.
pub(crate) fn with_hists(mut samples: Samples, list: &[(i64, Histogram)]) -> Samples {
    samples.hist_ts = list.iter().map(|s| s.0 * 1000).collect();
    samples.hists = list.iter().map(|s| s.1.clone()).collect();
    samples
}

/// What came out.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) floats: Vec<Option<f64>>,
    pub(crate) hists: Vec<(u32, Histogram)>,
    pub(crate) warnings: Vec<String>,
    pub(crate) infos: Vec<String>,
}

/// The grid of [`run`]: at 60 s, 110 s and 160 s.
pub(crate) const GRID: Grid = Grid { start: 60_000, step_ms: 50_000, steps: 3 };

/// Runs `name(60s; params)`, optionally `name(60s anchored)`, for a metric `m`; look-back 60 s.
pub(crate) fn run(text: &str, samples: &Samples) -> Outcome {
    run_named(text, samples, "m").expect("the call does not fail")
}

/// The message of a call that fails.
pub(crate) fn call_error(text: &str, samples: &Samples) -> String {
    run_named(text, samples, "m").expect_err("the call fails").message
}

/// Runs for a metric of some name.
pub(crate) fn run_named(text: &str, samples: &Samples, metric_name: &str) -> quiver_types::Result<Outcome> {
    let (name, rest) = text.split_once('(').expect("a call");
    let (selector, params) = rest.trim_end_matches(')').split_once(';').unwrap_or((rest.trim_end_matches(')'), ""));
    let mut words = selector.split_whitespace();
    let range: i64 = words.next().and_then(|w| w.strip_suffix('s')).and_then(|w| w.parse().ok()).expect("a range");
    let modifier = words.next().unwrap_or("");
    let mut all_ends = [RangeEnds::Samples, RangeEnds::Anchored, RangeEnds::Smoothed].into_iter();
    let ends = all_ends.find(|ends| ends.word() == modifier).expect("a modifier");
    let params: Vec<Vec<f64>> = params.split_whitespace().map(|p| vec![p.parse().expect("a number")]).collect();
    let params: Vec<ScalarSteps<'_>> = params.iter().map(|p| ScalarSteps::new(p)).collect();
    let window = Window { range_ms: range * 1000, offset_ms: 0, ends, lookback_ms: 60_000 };
    execute(
        name,
        samples,
        &RangeCall { grid: GRID, window, at: None, params: &params, windows: None, pace: None },
        metric_name,
    )
}

/// Runs a call.
pub(crate) fn execute(
    name: &str,
    samples: &Samples,
    call: &RangeCall<'_>,
    metric_name: &str,
) -> quiver_types::Result<Outcome> {
    let Some(Kernel::Range(function)) = lookup(name).map(|f| f.kernel) else { panic!("`{name}` is a range function") };
    let steps = call.grid.steps;
    let (mut values, mut present) = (vec![0.0; steps], vec![false; steps]);
    let mut annotations = Annotations::default();
    let mut scratch = Scratch::default();
    let mut out = SeriesOut { values: &mut values, present: &mut present, hists: vec![] };
    let place = PosRange::default().into();
    let mut ctx = KernelContext { annotations: &mut annotations, place, metric_name, scratch: &mut scratch };
    (function.run)(&samples.borrow(), call, &mut out, &mut ctx)?;
    let hists = out.hists;
    Ok(Outcome {
        floats: values.iter().zip(&present).map(|(&v, &p)| p.then_some(v)).collect(),
        hists,
        warnings: annotations.texts(Level::Warning, ""),
        infos: annotations.texts(Level::Info, ""),
    })
}

/// Says whether two results are the same up to rounding.
pub(crate) fn same(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-12 * a.abs().max(b.abs()),
        (None, None) => true,
        _ => false,
    }
}

/// Runs and compares the floats.
pub(crate) fn check(text: &str, samples: &Samples, expected: &[Option<f64>]) {
    let got = run(text, samples).floats;
    let equal = got.len() == expected.len() && got.iter().zip(expected).all(|(&a, &b)| same(a, b));
    assert!(equal, "{text}: {got:?}, not {expected:?}");
}

/// A window as the oracle sees it.
#[derive(Debug)]
pub(crate) struct NaiveWindow<'a> {
    pub(crate) start: Millis,
    pub(crate) end: Millis,
    pub(crate) ts: &'a [Millis],
    pub(crate) values: &'a [f64],
    pub(crate) start_ts: &'a [Millis],
}

/// Random samples and a random grid.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) samples: Samples,
    pub(crate) grid: Grid,
    pub(crate) window: Window,
}

/// Counters with resets, gauges, NaN, infinities; regular and irregular times; short and long windows.
pub(crate) fn any_case() -> impl Strategy<Value = Case> {
    let value = prop_oneof![
        12 => (0_i32..1000).prop_map(f64::from),
        6 => 0.0_f64..1e6,
        3 => -1e3_f64..1e3,
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
    ];
    let plain = prop_oneof![(0_i32..1000).prop_map(f64::from), 0.0_f64..1e6];
    let times =
        prop_oneof![prop::collection::vec(Just(15_000_i64), 0..200), prop::collection::vec(1_i64..40_000, 0..200)];
    let values = prop_oneof![
        prop::collection::vec(value, 200),
        prop::collection::vec(plain, 200),
        prop::collection::vec((0_i32..9).prop_map(f64::from), 200).prop_map(|steps| {
            let grow = |sum: &mut f64, s: f64| {
                *sum = if s == 8.0 { 1.0 } else { *sum + s };
                Some(*sum)
            };
            steps.into_iter().scan(0.0, grow).collect()
        }),
    ];
    let grid = (-100_000_i64..100_000, 1_i64..200_000, 1_usize..40);
    (times, values, grid, 1_i64..900_000, -50_000_i64..50_000).prop_map(
        |(gaps, mut values, grid, range_ms, offset_ms)| {
            let ts: Vec<i64> = gaps
                .iter()
                .scan(0, |t, g| {
                    *t += g;
                    Some(*t)
                })
                .collect();
            values.truncate(ts.len());
            let samples = Samples { ts, values, ..Samples::default() };
            let grid = Grid { start: grid.0, step_ms: grid.1, steps: grid.2 };
            let window = Window { range_ms, offset_ms, ends: RangeEnds::Samples, lookback_ms: 60_000 };
            Case { samples, grid, window }
        },
    )
}

/// Compares a kernel with a function of single windows.
pub(crate) fn oracle(name: &str, case: &Case, f: impl Fn(&NaiveWindow<'_>) -> Option<f64>) {
    let call = RangeCall { grid: case.grid, window: case.window, at: None, params: &[], windows: None, pace: None };
    let got = execute(name, &case.samples, &call, "m").expect("the call does not fail").floats;
    let s = &case.samples;
    for (step, got) in got.iter().enumerate() {
        let end = case.grid.at(step) - case.window.offset_ms;
        let start = end - case.window.range_ms;
        let (lo, hi) = (s.ts.partition_point(|&t| t <= start), s.ts.partition_point(|&t| t <= end));
        let start_ts = if s.start_ts.is_empty() { &[][..] } else { &s.start_ts[lo..hi] };
        let window = NaiveWindow { start, end, ts: &s.ts[lo..hi], values: &s.values[lo..hi], start_ts };
        let expected = if lo == hi { None } else { f(&window) };
        assert!(same(*got, expected), "{name} step {step}: {got:?}, not {expected:?} from {window:?}");
    }
}
