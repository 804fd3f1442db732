//! Elementwise work in chains: what each piece leaves is what the next one gets.

use super::*;
use crate::ast::{BinaryOp, PosRange};
use crate::functions::function_reference::{KernelKind, NamedKernel};
use crate::functions::{ElementwiseKernel, FUNCTIONS};
use crate::kernel::Grid;
use crate::nodes::driver::Param;
use crate::nodes::map::{Map, Stage};

fn map(stages: Vec<Stage>) -> Map {
    Map { stages, grid: Grid { start: -1500, step_ms: 1500, steps: 3 }, histograms: true, table: table(4) }
}

fn function(name: &str, params: Vec<Param>) -> Stage {
    let found = FUNCTIONS.iter().find(|f| f.name == name).expect("a function");
    let kernel = ElementwiseKernel::of(&found.kernel).expect("a function of elements");
    Stage::Function { function: NamedKernel { name: found.name, kernel }, params }
}

fn with(op: BinaryOp, scalar: Param) -> Stage {
    Stage::Binary { op, return_bool: false, scalar_left: false, scalar, pos: PosRange::default() }
}

#[tokio::test]
async fn stages_follow_each_other() {
    let two = Param::Const(2.0);
    let cases = [
        (vec![], "0: 1 _ h3", "0: 1 _ h3"),
        (vec![Stage::Negate], "0: 1 -0 h3", "0: -1 0 h-3"),
        (vec![Stage::Negate, Stage::Negate], "0: 1 _ h3", "0: 1 _ h3"),
        (vec![with(BinaryOp::Mul, two), with(BinaryOp::Gtr, Param::Const(3.0))], "0: 1 2 3", "0: _ 4 6"),
        (vec![with(BinaryOp::Gtr, two), with(BinaryOp::Mul, two)], "0: 1 2 3; 1: 2 2 2", "0: _ _ 6"),
        (vec![Stage::FloatsOnly], "0: 1 h2 _; 1: h1 _ _", "0: 1 _ _"),
        (vec![Stage::Nothing], "0: 1 h2 _; 1: h1 _ _", ""),
        // Times of steps stand for histograms, too; the milliseconds are not lost, nor is what is before 1970.
        (vec![Stage::StepTime], "0: 5 h2 _; 1: _ _ NaN", "0: -1.5 0 _; 1: _ _ 1.5"),
        (vec![Stage::FloatsOnly, Stage::StepTime], "0: 5 h2 _", "0: -1.5 _ _"),
        (vec![function("abs", vec![])], "0: -1 NaN -inf | 2: _ -0 7", "0: 1 NaN inf; 2: _ 0 7"),
        (vec![function("abs", vec![]), Stage::Negate], "0: -1 _ 1", "0: -1 _ -1"),
    ];
    for (stages, input, expected) in cases {
        let shown = format!("{stages:?} {input}");
        assert_eq!(rows(map(stages), &[input]).await, expected, "{shown}");
    }
}

#[tokio::test]
async fn scalars_of_inputs_go_by_step() {
    let input = "0: 1 2 3; 1: 4 5 6";
    let one = map(vec![with(BinaryOp::Add, Param::Input(1))]);
    assert_eq!(rows(one, &[input, "0: 10 20 30"]).await, "0: 11 22 33; 1: 14 25 36");
    // Each stage has its own input, those that are known are between.
    let stages = vec![
        with(BinaryOp::Add, Param::Input(1)),
        with(BinaryOp::Mul, Param::Const(2.0)),
        Stage::ScalarBinary(BinaryOp::Sub, Param::Input(2)),
    ];
    assert_eq!(rows(map(stages), &[input, "0: 1 0 1", "0: 5 5 NaN"]).await, "0: -1 -1 NaN; 1: 5 5 NaN");
    let clamped = map(vec![function("clamp", vec![Param::Input(1), Param::Input(2)])]);
    assert_eq!(rows(clamped, &[input, "0: 2 0 9", "0: 3 1 5"]).await, "0: 2 1 _; 1: 3 1 _");
}

#[tokio::test]
async fn a_scalar_on_the_left_keeps_the_vector() {
    let left = |op, return_bool| {
        let (scalar, pos) = (Param::Const(2.0), PosRange::default());
        map(vec![Stage::Binary { op, return_bool, scalar_left: true, scalar, pos }])
    };
    let input = "0: 1 2 NaN; 1: 4 _ 6";
    assert_eq!(rows(left(BinaryOp::Sub, false), &[input]).await, "0: 1 0 NaN; 1: -2 _ -4");
    assert_eq!(rows(left(BinaryOp::Pow, false), &[input]).await, "0: 2 4 NaN; 1: 16 _ 64");
    assert_eq!(rows(left(BinaryOp::Lss, false), &[input]).await, "1: 4 _ 6");
    assert_eq!(rows(left(BinaryOp::Lss, true), &[input]).await, "0: 0 0 0; 1: 1 _ 1");
    assert_eq!(rows(left(BinaryOp::Neq, false), &[input]).await, "0: 1 _ NaN; 1: 4 _ 6");
}

#[tokio::test]
async fn what_does_not_fit_is_said_once_for_all_batches() {
    let (got, notes) = answer(map(vec![with(BinaryOp::Add, Param::Const(1.0))]), &["0: 1 h2 _ | 1: h3 _ 4"]).await;
    assert_eq!(got, "0: 2 _ _; 1: _ _ 5");
    let text = "PromQL info: incompatible sample types encountered for binary operator \"+\": histogram + float (1:1)";
    assert_eq!(notes, [text]);
}

#[test]
fn scalars_of_inputs_need_all_partitions() {
    assert_eq!(map(vec![with(BinaryOp::Add, Param::Const(1.0))]).spread(), Spread::Each);
    assert_eq!(map(vec![Stage::Negate, with(BinaryOp::Add, Param::Input(1))]).spread(), Spread::Once);
    let stages = vec![with(BinaryOp::Gte, Param::Const(0.5)), Stage::ScalarBinary(BinaryOp::Mod, Param::Input(3))];
    assert_eq!(map(stages).detail(), "v >= 0.5 | s % input 3 series=4");
    let left = Stage::Binary {
        op: BinaryOp::Eql,
        return_bool: true,
        scalar_left: true,
        scalar: Param::Const(1.0),
        pos: PosRange::default(),
    };
    assert_eq!(
        map(vec![left, function("clamp_min", vec![Param::Const(-1.0)])]).detail(),
        "1 == bool v | clamp_min(v, -1) series=4"
    );
}
