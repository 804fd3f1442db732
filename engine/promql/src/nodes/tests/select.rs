//! `topk`, `bottomk`, `limitk` and `limit_ratio` by group and step.

use super::*;
use crate::ast::{AggregateOp, PosRange};
use crate::nodes::driver::Param;
use crate::nodes::select::StepSelect;

/// Rows 0, 1 and 2 are one group, row 3 is another.
fn select(op: AggregateOp, param: Param, steps: usize) -> StepSelect {
    StepSelect {
        op,
        steps,
        single: steps == 1,
        ids: vec![0, 0, 0, 1],
        groups: 2,
        hashes: vec![0, 1 << 62, 1 << 63, u64::MAX],
        param,
        param_pos: PosRange { start: 5, end: 6 },
        pos: PosRange::default(),
        histograms: true,
    }
}

const TOPK: AggregateOp = AggregateOp::Topk;
const BOTTOMK: AggregateOp = AggregateOp::Bottomk;
const LIMITK: AggregateOp = AggregateOp::Limitk;
const LIMIT_RATIO: AggregateOp = AggregateOp::LimitRatio;

#[tokio::test]
async fn an_instant_answer_comes_best_first() {
    let cases = [
        (TOPK, 1.0, "0: 1; 1: 3; 2: 2; 3: 0", "1: 3; 3: 0"),
        (TOPK, 2.0, "0: 1; 1: 3; 2: 2; 3: 0", "1: 3; 2: 2; 3: 0"),
        (BOTTOMK, 2.0, "0: 1; 1: 3; 2: 2; 3: 0", "0: 1; 2: 2; 3: 0"),
        (TOPK, 9.0, "2: 2; 0: 1 | 3: 7; 1: 3", "1: 3; 2: 2; 0: 1; 3: 7"),
        (TOPK, 2.9, "0: 1; 1: 3; 2: 2", "1: 3; 2: 2"),
        // NaN is worse than any number, for either operator.
        (TOPK, 2.0, "0: NaN; 1: -inf; 2: inf", "2: inf; 1: -inf"),
        (BOTTOMK, 2.0, "0: NaN; 1: -inf; 2: inf", "1: -inf; 2: inf"),
        (TOPK, 3.0, "0: NaN; 1: 1; 2: 2", "2: 2; 1: 1; 0: NaN"),
        // Among equals the earlier row stays.
        (TOPK, 2.0, "0: 1; 1: 1; 2: 1", "0: 1; 1: 1"),
        (BOTTOMK, 1.0, "0: 1; 1: 1; 2: 1", "0: 1"),
        (LIMITK, 2.0, "2: 5; 1: 1; 0: 3; 3: 9", "0: 3; 1: 1; 3: 9"),
        (LIMITK, 2.0, "0: h4; 2: 5; 3: h1", "0: h4; 2: 5; 3: h1"),
        (TOPK, 0.0, "0: 1; 1: 2", ""),
        (TOPK, -3.0, "0: 1; 1: 2", ""),
        (LIMITK, 0.99, "0: 1; 1: 2", ""),
        (TOPK, 1.0, "", ""),
    ];
    for (op, k, input, expected) in cases {
        let got = rows(select(op, Param::Const(k), 1), &[input]).await;
        assert_eq!(got, expected, "{op:?} {k} {input}");
    }
}

#[tokio::test]
async fn steps_are_chosen_apart() {
    let cases = [
        (TOPK, "0: 1 9 _; 1: 2 8 NaN; 3: _ 1 1", "0: _ 9 _; 1: 2 _ NaN; 3: _ 1 1"),
        (BOTTOMK, "0: 1 9 _; 1: 2 8 NaN; 3: _ 1 1", "0: 1 _ _; 1: _ 8 NaN; 3: _ 1 1"),
        (LIMITK, "0: _ 9 _; 1: 2 8 _; 2: 1 1 h1", "0: _ 9 _; 1: 2 _ _; 2: _ _ h1"),
        (LIMITK, "2: 1 1 h1 | 0: _ h9 _", "0: _ h9 _; 2: 1 _ h1"),
    ];
    for (op, input, expected) in cases {
        assert_eq!(rows(select(op, Param::Const(1.0), 3), &[input]).await, expected, "{op:?} {input}");
    }
}

#[tokio::test]
async fn the_parameter_may_differ_by_step() {
    let select = || select(TOPK, Param::Input(1), 3);
    let input = "0: 1 2 3; 1: 4 5 6; 2: 7 8 9";
    let cases = [
        ("0: 1 0 2", "1: _ _ 6; 2: 7 _ 9"),
        ("0: 0 0 0", ""),
        ("0: -1 3 0.5", "0: _ 2 _; 1: _ 5 _; 2: _ 8 _"),
        ("0: 1 NaN 1", "error: Parameter value is NaN"),
        ("0: 1 1e300 1", "error: Scalar value 1e+300 overflows int64"),
        ("0: 1 -inf 1", "error: Scalar value -Inf underflows int64"),
    ];
    for (param, expected) in cases {
        assert_eq!(rows(select(), &[input, param]).await, expected, "{param}");
    }
    // A fault of the parameter shows without a row, too.
    assert_eq!(rows(select(), &["", "0: NaN 1 1"]).await, "error: Parameter value is NaN");
}

#[tokio::test]
async fn histograms_have_no_rank() {
    let note = |op: &str| vec![format!("PromQL info: ignored histogram in {op} aggregation (1:1)")];
    let input = "0: h9 1 1; 1: 2 _ 3";
    let got = answer(select(TOPK, Param::Const(1.0), 3), &[input]).await;
    assert_eq!(got, ("0: _ 1 _; 1: 2 _ 3".to_owned(), note("topk")));
    let got = answer(select(BOTTOMK, Param::Const(5.0), 3), &[input]).await;
    assert_eq!(got, ("0: _ 1 1; 1: 2 _ 3".to_owned(), note("bottomk")));
    // Nothing is ignored at a step at which nothing is asked for.
    let got = answer(select(TOPK, Param::Input(1), 3), &[input, "0: 0 1 1"]).await;
    assert_eq!(got, ("0: _ 1 _; 1: _ _ 3".to_owned(), vec![]));
}

#[tokio::test]
async fn ratios_take_rows_by_their_hash() {
    let input = "0: 1 _ h1; 1: 2 2 2; 2: 3 3 3; 3: 4 4 4";
    let cases = [
        (0.5, "0: 1 _ h1; 1: 2 2 2"),
        (-0.5, "2: 3 3 3; 3: 4 4 4"),
        (0.25, "0: 1 _ h1"),
        (-0.75, "1: 2 2 2; 2: 3 3 3; 3: 4 4 4"),
        (1e-300, "0: 1 _ h1"),
        (-1.0, "0: 1 _ h1; 1: 2 2 2; 2: 3 3 3; 3: 4 4 4"),
        (0.0, ""),
        (-0.0, ""),
        (f64::NAN, "error: Ratio value is NaN"),
    ];
    for (ratio, expected) in cases {
        assert_eq!(rows(select(LIMIT_RATIO, Param::Const(ratio), 3), &[input]).await, expected, "{ratio}");
    }
    let (got, notes) = answer(select(LIMIT_RATIO, Param::Const(-7.0), 3), &[input]).await;
    assert_eq!(got, input);
    assert_eq!(notes.len(), 1, "{notes:?}");
    let by_step = rows(select(LIMIT_RATIO, Param::Input(1), 3), &[input, "0: 0.5 -0.5 0"]).await;
    assert_eq!(by_step, "0: 1 _ _; 1: 2 _ _; 2: _ 3 _; 3: _ 4 _");
}
