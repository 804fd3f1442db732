//! The registry of all functions: signature, documentation and kernel.
//!
//! Parser, printer, documentation and planner read [`FUNCTIONS`]; nothing else names a function. `definition` says what
//! one is. A kernel is one of four kinds:
//!
//! - [`Kernel::Range`]: samples of one series → one row of results, over the whole grid in one call;
//! - [`Kernel::Elementwise`]: a block of results → the same block, changed in place;
//! - [`Kernel::Scalar`]: two scalars → a scalar, step by step;
//! - [`Kernel::Special`]: works on labels, groups or the query itself; the planner does it, with the helpers that
//!   [`SpecialKind`] names.
//!
//! One file per function or tight family, one line each in [`FUNCTIONS`].

#![expect(clippy::unnecessary_wraps, reason = "kernels of one kind share a signature, and some of them fail")]

pub mod annotations;
pub mod call;
pub mod elementwise;
pub(crate) mod function_reference;

mod average;
mod clamp;
mod counting;
mod date;
mod definition;
mod delta;
mod extremes;
mod first_last;
mod floats;
mod growth;
mod histogram_stats;
pub(crate) mod math;
mod order_statistics;
mod rate;
mod rate_extended;
mod rate_histogram;
mod regression;
mod resets;
mod smoothing;
mod special;
mod sum;
#[cfg(test)]
pub(crate) mod testing;
mod variance;

pub(crate) use average::MeanHistogram;
pub(crate) use call::names_counter;
pub use call::{KernelContext, RangeCall, ScalarSteps, Scratch};
pub use definition::{FunctionDef, Kernel, RangeFunction, RangeKernel, ScalarKernel, SpecialKind};
pub use elementwise::ElementwiseKernel;

/// All functions, by name.
pub static FUNCTIONS: &[FunctionDef] = &[
    math::ABS,
    special::ABSENT,
    special::ABSENT_OVER_TIME,
    math::ACOS,
    math::ACOSH,
    math::ASIN,
    math::ASINH,
    math::ATAN,
    math::ATANH,
    average::AVG_OVER_TIME,
    math::CEIL,
    resets::CHANGES,
    clamp::CLAMP,
    clamp::CLAMP_MAX,
    clamp::CLAMP_MIN,
    math::COS,
    math::COSH,
    counting::COUNT_OVER_TIME,
    date::DAY_OF_MONTH,
    date::DAY_OF_WEEK,
    date::DAY_OF_YEAR,
    date::DAYS_IN_MONTH,
    math::DEG,
    rate::DELTA,
    regression::DERIV,
    smoothing::DOUBLE_EXPONENTIAL_SMOOTHING,
    special::END,
    math::EXP,
    first_last::FIRST_OVER_TIME,
    math::FLOOR,
    histogram_stats::HISTOGRAM_AVG,
    histogram_stats::HISTOGRAM_COUNT,
    special::HISTOGRAM_FRACTION,
    special::HISTOGRAM_QUANTILE,
    special::HISTOGRAM_QUANTILES,
    histogram_stats::HISTOGRAM_STDDEV,
    histogram_stats::HISTOGRAM_STDVAR,
    histogram_stats::HISTOGRAM_SUM,
    date::HOUR,
    delta::IDELTA,
    rate::INCREASE,
    special::INFO,
    delta::IRATE,
    special::LABEL_JOIN,
    special::LABEL_REPLACE,
    first_last::LAST_OVER_TIME,
    math::LN,
    math::LOG10,
    math::LOG2,
    order_statistics::MAD_OVER_TIME,
    math::MAX_OF,
    extremes::MAX_OVER_TIME,
    math::MIN_OF,
    extremes::MIN_OVER_TIME,
    date::MINUTE,
    date::MONTH,
    special::PI,
    regression::PREDICT_LINEAR,
    counting::PRESENT_OVER_TIME,
    order_statistics::QUANTILE_OVER_TIME,
    math::RAD,
    special::RANGE,
    rate::RATE,
    resets::RESETS,
    clamp::ROUND,
    special::SCALAR,
    math::SGN,
    math::SIN,
    math::SINH,
    special::SORT,
    special::SORT_BY_LABEL,
    special::SORT_BY_LABEL_DESC,
    special::SORT_DESC,
    math::SQRT,
    special::START,
    special::START_TIMESTAMP,
    variance::STDDEV_OVER_TIME,
    variance::STDVAR_OVER_TIME,
    special::STEP,
    sum::SUM_OVER_TIME,
    math::TAN,
    math::TANH,
    special::TIME,
    special::TIMESTAMP,
    first_last::TS_OF_FIRST_OVER_TIME,
    first_last::TS_OF_LAST_OVER_TIME,
    extremes::TS_OF_MAX_OVER_TIME,
    extremes::TS_OF_MIN_OVER_TIME,
    special::VECTOR_,
    date::YEAR,
];

/// Finds a function by its name.
pub fn lookup(name: &str) -> Option<&'static FunctionDef> {
    FUNCTIONS.binary_search_by(|f| f.name.cmp(name)).ok().map(|i| &FUNCTIONS[i])
}

/// Gives the names of the functions that a selector with a modifier may stand in, as the error text lists them.
pub fn names_where(allowed: impl Fn(&RangeFunction) -> bool) -> String {
    let names = FUNCTIONS.iter().filter(|f| matches!(&f.kernel, Kernel::Range(r) if allowed(r)));
    names.map(|f| f.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::testing::{Samples, execute, same};
    use super::*;
    use crate::ast::ValueType;
    use crate::kernel::{Grid, Window};
    use crate::range_ends::RangeEnds;
    use crate::window::Cursor;

    #[test]
    fn registry_is_sorted_and_complete() {
        assert!(FUNCTIONS.windows(2).all(|w| w[0].name < w[1].name));
        assert_eq!(FUNCTIONS.len(), 90);
        assert!(FUNCTIONS.iter().all(|f| lookup(f.name).is_some_and(|found| found.name == f.name)));
        assert!(lookup("nonexistent").is_none());
    }

    #[test]
    fn modifiers_as_upstream() {
        assert_eq!(names_where(|r| r.anchored), "changes, delta, increase, rate, resets");
        assert_eq!(names_where(|r| r.smoothed), "delta, increase, rate");
    }

    #[test]
    fn range_functions_name_their_matrix() {
        for f in FUNCTIONS {
            if let Kernel::Range(r) = &f.kernel {
                assert_eq!(f.args[r.matrix_arg], ValueType::Matrix, "{}", f.name);
            }
        }
    }

    /// Samples of all kinds: counters with resets, gauges below zero, NaN and infinities, gaps.
    fn some_samples(random: &mut SmallRng) -> Samples {
        let (mut t, mut value) = (-100_000_i64, 0.0);
        let mut samples = Samples::default();
        for _ in 0..random.random_range(0_usize..120) {
            t += [1, 5_000, 15_000, 15_000, 90_000][random.random_range(0_usize..5)];
            value = match random.random_range(0_u32..20) {
                0 => 0.0,
                1 => -value,
                2 => value + 0.5,
                3 => f64::NAN,
                4 => f64::INFINITY,
                by => {
                    if f64::is_finite(value) {
                        value + f64::from(by)
                    } else {
                        1.0
                    }
                }
            };
            samples.ts.push(t);
            samples.values.push(value);
        }
        samples
    }

    /// All range functions, each with parameters of 0.5.
    fn range_functions() -> impl Iterator<Item = (&'static FunctionDef, Vec<ScalarSteps<'static>>)> {
        let range = FUNCTIONS.iter().filter(|f| matches!(f.kernel, Kernel::Range(_)));
        range.map(|f| (f, vec![ScalarSteps::new(&[0.5]); f.args.len() - 1]))
    }

    const GRID: Grid = Grid { start: 0, step_ms: 20_000, steps: 40 };
    const WINDOW: Window = Window { range_ms: 60_000, offset_ms: 0, ends: RangeEnds::Samples, lookback_ms: 60_000 };

    fn floats_of(f: &FunctionDef, samples: &Samples, call: &RangeCall<'_>) -> Vec<Option<f64>> {
        execute(f.name, samples, call, "m").expect("the call does not fail").floats
    }

    fn check_same(f: &FunctionDef, got: &[Option<f64>], expected: &[Option<f64>], samples: &Samples) {
        let equal = got.len() == expected.len() && got.iter().zip(expected).all(|(&a, &b)| same(a, b));
        assert!(equal, "{}: {got:?}, not {expected:?} of {samples:?}", f.name);
    }

    #[test]
    fn of_nothing_comes_nothing() {
        for (f, params) in range_functions() {
            for ends in [RangeEnds::Samples, RangeEnds::Anchored, RangeEnds::Smoothed] {
                let window = Window { ends, ..WINDOW };
                let call = RangeCall { grid: GRID, window, at: None, params: &params, windows: None, pace: None };
                for samples in [testing::floats(&[]), testing::floats(&[(-1000, 1.0), (5000, 2.0)])] {
                    let got = execute(f.name, &samples, &call, "m").expect("the call does not fail");
                    assert_eq!(got.floats, [None; 40], "{}", f.name);
                    assert!(
                        got.hists.is_empty() && got.warnings.is_empty() && got.infos.is_empty(),
                        "{} {got:?}",
                        f.name
                    );
                }
            }
        }
    }

    /// Series that were sampled at the same times share their windows.
    #[test]
    fn windows_that_are_known_change_nothing() {
        let mut random = SmallRng::seed_from_u64(21);
        for _ in 0..20 {
            let samples = some_samples(&mut random);
            let mut window = Cursor::default();
            let windows: Vec<Cursor> = (0..GRID.steps)
                .map(|step| {
                    window.advance(&samples.ts, GRID.at(step) - WINDOW.range_ms, GRID.at(step));
                    window
                })
                .collect();
            for (f, params) in range_functions() {
                let call =
                    RangeCall { grid: GRID, window: WINDOW, at: None, params: &params, windows: None, pace: None };
                let expected = floats_of(f, &samples, &call);
                let got = floats_of(f, &samples, &RangeCall { windows: Some(&windows), ..call });
                check_same(f, &got, &expected, &samples);
            }
        }
    }

    /// A step does not know of those before it, whatever a kernel takes over from window to window.
    #[test]
    fn each_step_could_stand_alone() {
        let mut random = SmallRng::seed_from_u64(22);
        for _ in 0..5 {
            let samples = some_samples(&mut random);
            for (f, params) in range_functions() {
                let call =
                    RangeCall { grid: GRID, window: WINDOW, at: None, params: &params, windows: None, pace: None };
                let alone = |step| {
                    let grid = Grid { start: GRID.at(step), step_ms: 1, steps: 1 };
                    floats_of(f, &samples, &RangeCall { grid, ..call })[0]
                };
                let expected: Vec<Option<f64>> = (0..GRID.steps).map(alone).collect();
                check_same(f, &floats_of(f, &samples, &call), &expected, &samples);
            }
        }
    }

    /// `offset` looks at another time; only what tells of times themselves sees the difference.
    #[test]
    fn an_offset_moves_the_samples() {
        let mut random = SmallRng::seed_from_u64(23);
        for _ in 0..10 {
            let samples = some_samples(&mut random);
            let moved = Samples { ts: samples.ts.iter().map(|t| t + 7_000).collect(), ..samples.clone() };
            for (f, params) in range_functions().filter(|(f, _)| !f.name.starts_with("ts_of_") && !f.uses_step_time) {
                let call =
                    RangeCall { grid: GRID, window: WINDOW, at: None, params: &params, windows: None, pace: None };
                let window = Window { offset_ms: 7_000, ..WINDOW };
                let got = floats_of(f, &samples, &RangeCall { window, ..call });
                check_same(f, &got, &floats_of(f, &moved, &call), &samples);
            }
        }
    }

    /// With `@` all steps look at one window.
    #[test]
    fn a_fixed_window_is_the_same_for_all_steps() {
        let mut random = SmallRng::seed_from_u64(24);
        let samples = some_samples(&mut random);
        for (f, params) in range_functions().filter(|(f, _)| !f.uses_step_time) {
            let at = Some(300_000);
            let call = RangeCall { grid: GRID, window: WINDOW, at, params: &params, windows: None, pace: None };
            let grid = Grid { start: 300_000, step_ms: 1, steps: 1 };
            let alone = floats_of(f, &samples, &RangeCall { grid, at: None, ..call })[0];
            check_same(f, &floats_of(f, &samples, &call), &[alone; 40], &samples);
        }
    }

    /// What floats and histograms in one window come to.
    #[test]
    fn kinds_of_samples_in_one_window() {
        let histogram = crate::histogram::testing::exponential(0, 1, &[3.0]);
        let samples = testing::with_hists(testing::floats(&[(10, 1.0), (30, 2.0)]), &[(20, histogram)]);
        let ignored = "PromQL info: ignored histograms in a range containing both floats and histograms for metric name \"m\" (1:1)";
        let mixed = "PromQL warning: encountered a mix of histograms and floats for metric name \"m\" (1:1)";
        for text in [
            "deriv(60s)",
            "double_exponential_smoothing(60s; 0.5 0.5)",
            "mad_over_time(60s)",
            "max_over_time(50s)",
            "max_over_time(60s)",
            "min_over_time(60s)",
            "predict_linear(60s; 10)",
            "quantile_over_time(60s; 0.5)",
            "stddev_over_time(60s)",
            "stdvar_over_time(60s)",
            "ts_of_max_over_time(60s)",
            "ts_of_min_over_time(60s)",
        ] {
            let got = testing::run(text, &samples);
            assert_eq!(got.infos, [ignored], "{text}");
            assert!(got.warnings.is_empty() && got.hists.is_empty(), "{text}: {got:?}");
        }
        for text in
            ["avg_over_time(60s)", "sum_over_time(60s)", "delta(60s)", "increase(60s)", "rate(60s)", "irate(60s)"]
        {
            let got = testing::run(text, &samples);
            assert_eq!((got.warnings, got.infos), (vec![mixed.to_owned()], vec![]), "{text}");
            assert!(got.hists.is_empty() && got.floats == [None; 3], "{text}");
        }
        for (text, value) in [
            ("changes(60s)", 2.0),
            ("resets(60s)", 2.0),
            ("count_over_time(60s)", 3.0),
            ("present_over_time(60s)", 1.0),
            ("first_over_time(60s)", 1.0),
            ("last_over_time(60s)", 2.0),
            ("ts_of_first_over_time(60s)", 10.0),
            ("ts_of_last_over_time(60s)", 30.0),
        ] {
            let got = testing::run(text, &samples);
            assert_eq!(got.floats[0], Some(value), "{text}");
            assert!(got.warnings.is_empty() && got.infos.is_empty() && got.hists.is_empty(), "{text}: {got:?}");
        }
    }
}
