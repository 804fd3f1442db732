//! `and`, `unless` and `or`: who has an element with the same signature at the same step.

use super::*;
use crate::ast::BinaryOp;
use crate::nodes::set::StepSet;
use crate::nodes::union::{Operand, StepUnion};

/// Rows 0 and 1 of the left side have signature 0, row 2 has 1; on the right row 0 has 1, rows 1 and 2 have 0.
fn set(op: BinaryOp) -> StepSet {
    StepSet { op, steps: 2, histograms: true, left: vec![0, 0, 1], right: vec![1, 0, 0], signatures: 2 }
}

#[tokio::test]
async fn and_unless_by_signature_and_step() {
    let cases = [
        ("", "", "", ""),
        ("0: 1 2", "", "", "0: 1 2"),
        ("", "0: 1 2", "", ""),
        ("0: 1 2", "0: 1 2", "", "0: 1 2"),
        ("0: 1 2", "1: 9 _", "0: 1 _", "0: _ 2"),
        ("0: 1 2; 1: 3 4", "1: 9 _", "0: 1 _; 1: 3 _", "0: _ 2; 1: _ 4"),
        // Either row of a signature will do, also where they stand in batches of their own.
        ("0: 1 2", "1: 9 _ | 2: _ 9", "0: 1 2", ""),
        ("2: 1 2", "0: _ 9", "2: _ 2", "2: 1 _"),
        ("2: 5 6 | 0: 7 8", "0: 1 1; 2: _ 1", "2: 5 6; 0: _ 8", "0: 7 _"),
        // A histogram is an element, and so is NaN.
        ("0: h3 NaN", "1: NaN h2", "0: h3 NaN", ""),
        ("0: h3 h4", "1: h1 _", "0: h3 _", "0: _ h4"),
        ("0: 1 h4", "1: _ 1", "0: _ h4", "0: 1 _"),
    ];
    for (left, right, and, unless) in cases {
        assert_eq!(rows(set(BinaryOp::And), &[left, right]).await, and, "{left} and {right}");
        assert_eq!(rows(set(BinaryOp::Unless), &[left, right]).await, unless, "{left} unless {right}");
    }
}

/// Every element of the left side is in exactly one of both.
#[tokio::test]
async fn and_and_unless_complement_each_other() {
    for number in 0..64_u32 {
        let cell = |bit: u32| if (number >> bit) & 1 == 1 { bit.to_string() } else { "_".to_owned() };
        let row = |row: u32, first: u32| format!("{row}: {} {}", cell(first), cell(first + 1));
        let left = "0: 10 11; 1: 12 13; 2: 14 15";
        let all = [row(0, 0), row(1, 2), row(2, 4)];
        let right = all.iter().filter(|row| !row.ends_with("_ _")).cloned().collect::<Vec<_>>().join(" | ");
        let mut numbers: Vec<u32> = Vec::new();
        for op in [BinaryOp::And, BinaryOp::Unless] {
            let answer = rows(set(op), &[left, &right]).await;
            let cells =
                answer.split("; ").filter_map(|row| row.split_once(": ")).flat_map(|(_, cells)| cells.split(' '));
            numbers.extend(cells.filter_map(|cell| cell.parse::<u32>().ok()));
        }
        numbers.sort_unstable();
        assert_eq!(numbers, [10, 11, 12, 13, 14, 15], "{right}");
    }
}

fn union(operands: &[(&[u32], &[u32])], merges: bool) -> StepUnion {
    let operands = operands.iter().map(|(signatures, to)| Operand { signatures: signatures.to_vec(), to: to.to_vec() });
    StepUnion { steps: 2, histograms: true, operands: operands.collect(), signatures: 3, merges }
}

#[tokio::test]
async fn or_takes_what_is_not_there_yet() {
    let two = || union(&[(&[0, 1], &[0, 1]), (&[0, 2, 0], &[2, 3, 4])], false);
    let cases = [
        ("", "", ""),
        ("0: 1 2", "", "0: 1 2"),
        ("", "0: 1 2", "2: 1 2"),
        ("0: 1 2", "0: 3 4", "0: 1 2"),
        ("0: 1 _", "0: 3 4", "0: 1 _; 2: _ 4"),
        ("1: 1 2", "0: 3 4", "1: 1 2; 2: 3 4"),
        ("0: 1 _ | 1: 5 5", "0: 3 4; 1: 6 7", "0: 1 _; 1: 5 5; 2: _ 4; 3: 6 7"),
        // Rows of one operand do not hide each other, in one batch or in two.
        ("", "0: 3 4; 2: 5 6", "2: 3 4; 4: 5 6"),
        ("", "0: 3 4 | 2: 5 6", "2: 3 4; 4: 5 6"),
        ("0: h1 NaN", "0: 3 h4", "0: h1 NaN"),
        ("0: h1 _", "0: 3 h4; 2: 1 1", "0: h1 _; 2: _ h4; 4: _ 1"),
    ];
    for (left, right, expected) in cases {
        assert_eq!(rows(two(), &[left, right]).await, expected, "{left} or {right}");
    }
}

#[tokio::test]
async fn or_of_many_hides_by_all_that_came_before() {
    let three = || union(&[(&[0], &[0]), (&[0, 1], &[1, 2]), (&[0, 1, 2], &[3, 4, 5])], false);
    let cases = [
        (["", "", ""], ""),
        (["0: 1 _", "0: 2 2", "0: 3 3"], "0: 1 _; 1: _ 2"),
        (["0: 1 _", "1: 2 _", "0: 3 3; 1: 4 4; 2: 5 5"], "0: 1 _; 2: 2 _; 3: _ 3; 4: _ 4; 5: 5 5"),
        (["", "0: _ 2", "0: 3 3"], "1: _ 2; 3: 3 _"),
        (["", "", "2: 5 5"], "5: 5 5"),
    ];
    for (inputs, expected) in cases {
        assert_eq!(rows(three(), &inputs).await, expected, "{inputs:?}");
    }
}

/// `a or b` where both have one label set: steps of either side make one row.
#[tokio::test]
async fn equal_rows_of_both_sides_become_one() {
    let same = || union(&[(&[0], &[0]), (&[0], &[0])], true);
    let cases = [
        ("0: 1 _", "0: 3 4", "0: 1 4"),
        ("0: _ 2", "0: h3 4", "0: h3 2"),
        ("0: 1 2", "0: 3 4", "0: 1 2"),
        ("", "0: 3 4", "0: 3 4"),
    ];
    for (left, right, expected) in cases {
        assert_eq!(rows(same(), &[left, right]).await, expected, "{left} or {right}");
    }
    // With signatures apart (`on` other labels) both have an element at a step, and that is a fault.
    let apart = union(&[(&[0], &[0]), (&[1], &[0])], true);
    let expected = "error: vector cannot contain metrics with the same labelset";
    assert_eq!(rows(apart, &["0: 1 _", "0: 3 4"]).await, expected);
}
