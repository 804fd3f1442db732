//! Quantiles and fractions of groups of classic buckets and of native histograms, step by step.

use super::*;
use crate::ast::PosRange;
use crate::kernel::Grid;
use crate::nodes::driver::Param;
use crate::nodes::histogram::{HistogramFunction, HistogramGroup, StepHistogram};

const QUANTILE: HistogramFunction = HistogramFunction::Quantiles(vec![]);

/// Rows 0 to 2 are the buckets up to 1, 2 and infinity, row 3 is a native histogram with the same labels, row 4 has a
/// malformed `le`.
fn classic(function: HistogramFunction, params: &[f64]) -> StepHistogram {
    let (function, out) = match function {
        HistogramFunction::Quantiles(_) => {
            let positions = vec![PosRange::default(); params.len()];
            (HistogramFunction::Quantiles(positions), (0..params.len() as u32).collect())
        }
        HistogramFunction::Fraction => (function, vec![0]),
    };
    let mut builder = SeriesTableBuilder::default();
    for le in ["1", "2", "+Inf", "", "much"] {
        let name = if le.is_empty() { "m" } else { "m_bucket" };
        builder.push([("__name__", name), ("le", le)]);
    }
    let group = HistogramGroup { classic: vec![(0, 1.0), (1, 2.0), (2, f64::INFINITY)], native: Some(3), out };
    StepHistogram {
        function,
        params: params.iter().copied().map(Param::Const).collect(),
        places: vec![],
        grid: Grid { start: 5000, step_ms: 1000, steps: 3 },
        groups: vec![group],
        bad: vec![4],
        table: Arc::new(builder.finish()),
        pos: PosRange::default(),
        merges: false,
    }
}

fn quantile(q: f64) -> StepHistogram {
    classic(QUANTILE, &[q])
}

#[tokio::test]
async fn quantiles_of_the_buckets_of_a_step() {
    let cases = [
        (0.5, "0: 1 0 _; 1: 3 0 _; 2: 4 0 _", "0: 1.5 NaN _"),
        (0.5, "2: 4 0 _ | 0: 1 0 _ | 1: 3 0 _", "0: 1.5 NaN _"),
        // As upstream: no share of an empty first bucket is a number.
        (0.0, "0: 1 0 0; 1: 3 4 0; 2: 4 8 1", "0: 0 NaN NaN"),
        (0.25, "0: 1 1 4; 1: 3 3 4; 2: 4 4 4", "0: 1 1 0.25"),
        // What lies beyond the last bound is said to be at it.
        (1.0, "0: 1 1 4; 1: 3 3 4; 2: 4 5 4", "0: 2 2 1"),
        // A bucket that is missing at a step makes its neighbour wider; without the last one nothing is known.
        (0.5, "0: 1 _ 1; 1: _ 4 3; 2: 4 4 _", "0: 1 1 NaN"),
        (0.5, "2: 4 4 4", "0: NaN NaN NaN"),
        (0.5, "", ""),
    ];
    for (q, input, expected) in cases {
        assert_eq!(rows(quantile(q), &[input]).await, expected, "{q} {input}");
    }
}

#[tokio::test]
async fn several_quantiles_have_a_row_each() {
    let input = "0: 1 _ 0; 1: 3 _ 0; 2: 4 _ 0";
    let got = rows(classic(QUANTILE, &[1.0, 0.25, 0.5]), &[input]).await;
    assert_eq!(got, "0: 2 _ NaN; 1: 1 _ NaN; 2: 1.5 _ NaN");
    let by_step = StepHistogram { params: vec![Param::Input(1)], ..quantile(0.0) };
    assert_eq!(rows(by_step, &["0: 1 1 1; 1: 3 3 3; 2: 4 4 4", "0: 0.25 0.5 1"]).await, "0: 1 1.5 2");
}

#[tokio::test]
async fn a_quantile_that_changes_goes_to_a_row_of_its_label() {
    let mut op = classic(QUANTILE, &[0.25, 0.0]);
    op.params[1] = Param::Input(1);
    op.places = vec![vec![0], vec![1, 2, 1]];
    op.groups[0].out = vec![0, 1, 2];
    let got = rows(op, &["0: 1 1 1; 1: 3 3 3; 2: 4 4 4", "0: 1 0.5 1"]).await;
    assert_eq!(got, "0: 1 1 1; 1: 2 _ 2; 2: _ 1.5 _");
}

#[tokio::test]
async fn quantiles_that_are_none_are_warned_of() {
    let input = "0: 1 1 1; 1: 3 3 3; 2: 4 4 4";
    let text = |q: &str| format!("PromQL warning: quantile value should be between 0 and 1, got {q} (1:1)");
    for (q, shown, expected) in [
        (-0.1, "-0.1", "0: -inf -inf -inf"),
        (1.5, "1.5", "0: inf inf inf"),
        (f64::INFINITY, "+Inf", "0: inf inf inf"),
        (f64::NAN, "NaN", "0: NaN NaN NaN"),
    ] {
        let (got, notes) = answer(quantile(q), &[input]).await;
        assert_eq!((got.as_str(), notes), (expected, vec![text(shown)]));
    }
    // The warning is about the query: it needs no rows.
    assert_eq!(answer(quantile(2.0), &[""]).await, (String::new(), vec![text("2")]));
}

#[tokio::test]
async fn fractions_between_two_bounds() {
    let input = "0: 1 0 _; 1: 3 0 _; 2: 4 0 _";
    let inf = f64::INFINITY;
    let cases = [
        (0.0, 1.0, "0: 0.25 NaN _"),
        (1.0, 2.0, "0: 0.5 NaN _"),
        (0.5, 1.5, "0: 0.375 NaN _"),
        (2.0, inf, "0: 0.25 NaN _"),
        (-inf, inf, "0: 1 NaN _"),
        (2.0, 1.0, "0: 0 NaN _"),
        (f64::NAN, 1.0, "0: NaN NaN _"),
    ];
    for (lower, upper, expected) in cases {
        let got = rows(classic(HistogramFunction::Fraction, &[lower, upper]), &[input]).await;
        assert_eq!(got, expected, "{lower} to {upper}");
    }
}

#[tokio::test]
async fn native_histograms_go_by_step() {
    // Four observations between 1 and 2.
    assert_eq!(rows(quantile(1.0), &["3: h4 _ h4"]).await, "0: 2 _ 2");
    assert_eq!(rows(quantile(0.0), &["3: _ h4 h0"]).await, "0: _ 1 NaN");
    let fraction = || classic(HistogramFunction::Fraction, &[1.0, 2.0]);
    assert_eq!(rows(fraction(), &["3: h4 _ h0"]).await, "0: 1 _ NaN");
    // Classic at one step and native at the next.
    assert_eq!(rows(quantile(1.0), &["0: 1 _ _; 1: 3 _ _; 2: 4 _ _; 3: _ h4 _"]).await, "0: 2 2 _");
    // Floats of a metric without `le` are no histogram.
    assert_eq!(rows(quantile(1.0), &["3: 5 6 7"]).await, "");
}

#[tokio::test]
async fn classic_and_native_at_one_step_give_nothing() {
    let (got, notes) = answer(quantile(1.0), &["0: 1 1 _; 1: 3 3 _; 2: 4 4 _; 3: h4 _ h4"]).await;
    assert_eq!(got, "0: _ 2 2");
    let text = "PromQL warning: vector contains a mix of classic and native histograms for metric name \"m\" (1:1)";
    assert_eq!(notes, [text]);
}

#[tokio::test]
async fn malformed_bounds_are_warned_of() {
    let text = "PromQL warning: bucket label \"le\" is missing or has a malformed value of \"much\" for metric name \
                \"m_bucket\" (1:1)";
    let (got, notes) = answer(quantile(0.5), &["4: 1 _ _"]).await;
    assert_eq!((got.as_str(), notes), ("", vec![text.to_owned()]));
    // Without a float nobody missed a bound.
    assert_eq!(rows(quantile(0.5), &["4: h1 _ _"]).await, "");
}

#[tokio::test]
async fn counts_that_fall_are_lifted_and_told_once_per_metric() {
    let (got, notes) = answer(quantile(1.0), &["0: 1 5 1; 1: 3 3 3; 2: 4 4 2"]).await;
    assert_eq!(got, "0: 2 1 2");
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("m_bucket"), "{notes:?}");
    // A difference of rounding is no fault.
    assert_eq!(rows(quantile(0.0), &["0: 1e13 _ _; 1: 9999999999999 _ _; 2: 1e13 _ _"]).await, "0: 0 _ _");
}

#[tokio::test]
async fn groups_with_equal_labels_are_merged() {
    let merged = || {
        let mut op = quantile(1.0);
        op.groups.push(HistogramGroup { classic: vec![], native: Some(4), out: vec![0] });
        (op.bad, op.merges) = (vec![], true);
        op
    };
    assert_eq!(rows(merged(), &["3: h4 _ _; 4: _ h4 _"]).await, "0: 2 2 _");
    let expected = "error: vector cannot contain metrics with the same labelset";
    assert_eq!(rows(merged(), &["3: h4 _ _; 4: h4 _ _"]).await, expected);
}
