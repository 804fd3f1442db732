use proptest::prelude::*;
use quiver_types::ResetHint;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::annotation::Level;
use crate::functions::testing::same;
use crate::histogram::testing::{custom, exponential, populated};
use crate::quantile::quantile;

type Rows = Vec<(u32, Vec<Option<f64>>)>;

fn row<'a>(first: usize, values: &'a [f64], present: &'a [bool], hists: &'a [(u32, Histogram)]) -> SeriesRow<'a> {
    SeriesRow { first, values, present, hists, metric_name: "m" }
}

fn aggregate(op: AggregateOp, param: &[f64], groups: usize, steps: usize, rows: &Rows, cut: usize) -> Vec<Option<f64>> {
    let make = || Accumulator::new(op, groups, steps, PosRange::default());
    let (mut a, mut b) = (make(), make());
    for (i, (group, cells)) in rows.iter().enumerate() {
        let values: Vec<f64> = cells.iter().map(|c| c.unwrap_or(f64::NAN)).collect();
        let present: Vec<bool> = cells.iter().map(Option::is_some).collect();
        if i < cut { &mut a } else { &mut b }.fold(*group, &row(0, &values, &present, &[]));
    }
    a.merge(b);
    let block = a.finish(param, &mut Annotations::default());
    block.values.iter().zip(&block.present).map(|(&v, &p)| p.then_some(v)).collect()
}

fn naive(op: AggregateOp, q: f64, values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let sum = kahan::total(values.iter().fold((0.0, 0.0), |(s, c), &v| kahan::inc(v, s, c)));
    let variance = || {
        let mean = sum / n;
        values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n
    };
    let extreme = |better: fn(f64, f64) -> bool| {
        values.iter().fold(f64::NAN, |best, &v| if better(v, best) || best.is_nan() { v } else { best })
    };
    match op {
        AggregateOp::Sum => sum,
        AggregateOp::Avg => sum / n,
        AggregateOp::Count => n,
        AggregateOp::Min => extreme(|a, b| a < b),
        AggregateOp::Max => extreme(|a, b| a > b),
        AggregateOp::Group => 1.0,
        AggregateOp::Stddev => variance().sqrt(),
        AggregateOp::Stdvar => variance(),
        AggregateOp::Quantile => quantile(q, &mut values.to_vec()),
        _ => unreachable!("not accumulated"),
    }
}

const OPS: [AggregateOp; 9] = [
    AggregateOp::Sum,
    AggregateOp::Avg,
    AggregateOp::Count,
    AggregateOp::Min,
    AggregateOp::Max,
    AggregateOp::Group,
    AggregateOp::Stddev,
    AggregateOp::Stdvar,
    AggregateOp::Quantile,
];

proptest! {
    #[test]
    fn equals_the_naive_way(
        rows in prop::collection::vec((0_u32..3, prop::collection::vec(prop::option::of(
            prop_oneof![9 => 0.0_f64..100.0, 1 => Just(f64::NAN)]), 4)), 0..20),
        cut in 0_usize..20, q in 0.0_f64..1.0,
    ) {
        for op in OPS {
            let got = aggregate(op, &[q], 3, 4, &rows, cut);
            for (slot, got) in got.iter().enumerate() {
                let (group, step) = (slot as u32 / 4, slot % 4);
                let column: Vec<f64> = rows.iter().filter(|r| r.0 == group).filter_map(|r| r.1[step]).collect();
                let expected = (!column.is_empty()).then(|| naive(op, q, &column));
                let close = match (got, expected) {
                    (Some(a), Some(b)) => (a - b).abs() < 1e-9,
                    _ => false,
                };
                prop_assert!(close || same(*got, expected), "{op:?} {slot}: {got:?} {expected:?}");
            }
        }
    }
}

#[test]
fn sums_are_compensated_and_means_do_not_overflow() {
    let one = |values: &[f64]| -> Rows { values.iter().map(|&v| (0, vec![Some(v)])).collect() };
    let check = |op, values: &[f64], cut, expected: f64| {
        let got = aggregate(op, &[], 1, 1, &one(values), cut)[0];
        assert!(same(got, Some(expected)), "{op:?} {values:?} {cut}: {got:?}");
    };
    for cut in 0..3 {
        check(AggregateOp::Sum, &[5e100, 1.0, -5e100], cut, 1.0);
        check(AggregateOp::Avg, &[f64::MAX, f64::MAX, f64::MAX], cut, f64::MAX);
        check(AggregateOp::Avg, &[f64::INFINITY, 1.0, 2.0], cut, f64::INFINITY);
        check(AggregateOp::Avg, &[f64::INFINITY, f64::NEG_INFINITY], cut, f64::NAN);
        check(AggregateOp::Stddev, &[1.0, f64::INFINITY], cut, f64::NAN);
        check(AggregateOp::Max, &[f64::NAN, 1.0, 0.0], cut, 1.0);
    }
}

fn with_hists(op: AggregateOp, list: &[Histogram], float: Option<f64>, cut: usize) -> (Block, Vec<String>) {
    let make = || Accumulator::new(op, 1, 1, PosRange::default());
    let (mut a, mut b) = (make(), make());
    for (i, h) in list.iter().enumerate() {
        if i < cut { &mut a } else { &mut b }.fold(0, &row(0, &[0.0], &[false], &[(0, h.clone())]));
    }
    if let Some(v) = float {
        a.fold(0, &row(0, &[v], &[true], &[]));
    }
    a.merge(b);
    let mut annotations = Annotations::default();
    let block = a.finish(&[0.5], &mut annotations);
    let mut texts = annotations.texts(Level::Warning, "");
    texts.extend(annotations.texts(Level::Info, ""));
    (block, texts)
}

#[test]
fn histograms_are_added_up() {
    let list = [exponential(1, 1, &[1.0, 2.0]), exponential(0, 1, &[3.0]), exponential(0, 2, &[6.0])];
    for cut in 0..4 {
        let (sum, texts) = with_hists(AggregateOp::Sum, &list, None, cut);
        assert_eq!(populated(&sum.hists[0].2), [(1, 6.0), (2, 6.0)]);
        assert_eq!((sum.present[0], texts.len()), (false, 0));
        let (mean, _) = with_hists(AggregateOp::Avg, &list, None, cut);
        assert_eq!(populated(&mean.hists[0].2), [(1, 2.0), (2, 2.0)]);
        let (count, _) = with_hists(AggregateOp::Count, &list, Some(1.0), cut);
        assert_eq!((count.present[0], count.values[0]), (true, 4.0));
    }
}

#[test]
fn what_does_not_fit_is_annotated() {
    let check = |op, list: &[Histogram], float, expected: &str| {
        for cut in 0..=list.len() {
            let (block, texts) = with_hists(op, list, float, cut);
            assert_eq!(texts, [format!("PromQL {expected} (1:1)")], "{cut}");
            let none = block.hists.is_empty() && !block.present[0];
            assert!(none || expected.starts_with("info") || expected.contains("conflicting"));
        }
    };
    let (a, b) = (exponential(0, 1, &[1.0]), custom(&[1.0], &[1.0, 2.0]));
    let mix = "warning: encountered a mix of histograms and floats for aggregation";
    check(AggregateOp::Sum, std::slice::from_ref(&a), Some(1.0), mix);
    let kinds = "warning: vector contains a mix of histograms with exponential and custom buckets schemas for metric name \"m\"";
    check(AggregateOp::Avg, &[a.clone(), b.clone()], None, kinds);
    let bounds = "info: mismatched custom buckets were reconciled during aggregation";
    check(AggregateOp::Sum, &[b, custom(&[2.0], &[1.0, 2.0])], None, bounds);
    check(AggregateOp::Max, std::slice::from_ref(&a), None, "info: ignored histogram in max aggregation");
    let reset = Histogram { reset_hint: ResetHint::Reset, ..a.clone() };
    let no_reset = Histogram { reset_hint: ResetHint::NotReset, ..a };
    let hints = "warning: conflicting counter resets during histogram aggregation";
    check(AggregateOp::Sum, &[reset, no_reset], None, hints);
}

/// A cell that may be empty.
fn some_cell(random: &mut SmallRng) -> Option<f64> {
    match random.random_range(0_u32..6) {
        0 => None,
        1 => Some(f64::NAN),
        _ => Some(f64::from(random.random_range(-50_i32..50))),
    }
}

fn some_rows(random: &mut SmallRng, groups: u32, steps: usize) -> Rows {
    let mut rows = Rows::new();
    for _ in 0..random.random_range(0_usize..12) {
        let group = random.random_range(0..groups);
        rows.push((group, (0..steps).map(|_| some_cell(random)).collect()));
    }
    rows
}

/// The state of rows; what is missing has a number all the same.
fn folded(op: AggregateOp, groups: usize, steps: usize, rows: &Rows) -> Accumulator {
    let mut state = Accumulator::new(op, groups, steps, PosRange::default());
    for (group, cells) in rows {
        let values: Vec<f64> = cells.iter().map(|c| c.unwrap_or(777.0)).collect();
        let present: Vec<bool> = cells.iter().map(Option::is_some).collect();
        state.fold(*group, &row(0, &values, &present, &[]));
    }
    state
}

fn cells_of(state: Accumulator) -> Vec<Option<f64>> {
    let block = state.finish(&[0.5], &mut Annotations::default());
    block.values.iter().zip(&block.present).map(|(&v, &p)| p.then_some(v)).collect()
}

/// A state that was written down and read again goes on as if nothing had been, in whatever order its rows are read.
#[test]
fn states_travel() {
    let (groups, steps) = (4, 3);
    let mut random = SmallRng::seed_from_u64(41);
    for _ in 0..40 {
        let (first, second) = (some_rows(&mut random, 4, steps), some_rows(&mut random, 4, steps));
        for op in OPS {
            let mut expected = folded(op, groups, steps, &first);
            expected.merge(folded(op, groups, steps, &second));
            let mut got = Accumulator::new(op, groups, steps, PosRange::default());
            for state in [folded(op, groups, steps, &first), folded(op, groups, steps, &second)] {
                for mut parts in state.into_parts() {
                    if op != AggregateOp::Quantile {
                        turn(&mut parts, steps);
                    }
                    got.merge(Accumulator::of_parts(op, groups, steps, PosRange::default(), parts));
                }
            }
            let (got, expected) = (cells_of(got), cells_of(expected));
            let equal = got.iter().zip(&expected).all(|(a, b)| same(*a, *b));
            assert!(equal && got.len() == groups * steps, "{op:?}: {got:?}, not {expected:?}");
        }
    }
}

/// Puts the first row of parts last and leaves out the row of a group that has seen nothing.
fn turn(parts: &mut Parts, steps: usize) {
    parts.groups.rotate_left(1);
    parts.numbers.iter_mut().for_each(|rows| rows.rotate_left(steps));
    parts.flags.iter_mut().for_each(|rows| rows.rotate_left(steps));
    if let Some(row) = parts.flags[0].chunks(steps).position(|seen| !seen.contains(&true)) {
        parts.groups.remove(row);
        parts.numbers.iter_mut().for_each(|rows| drop(rows.drain(row * steps..(row + 1) * steps)));
        parts.flags.iter_mut().for_each(|rows| drop(rows.drain(row * steps..(row + 1) * steps)));
    }
}

#[test]
fn histograms_travel_with_what_was_seen_of_them() {
    let hinted = |reset_hint| Histogram { reset_hint, ..exponential(0, 1, &[1.0]) };
    let state = |op, list: &[Histogram]| {
        let mut state = Accumulator::new(op, 2, 2, PosRange::default());
        for h in list {
            state.fold(1, &row(0, &[0.0; 2], &[false; 2], &[(1, h.clone())]));
        }
        state
    };
    for op in [AggregateOp::Sum, AggregateOp::Avg] {
        let mut whole = Accumulator::new(op, 2, 2, PosRange::default());
        for list in [&[hinted(ResetHint::Reset)][..], &[hinted(ResetHint::NotReset), exponential(0, 1, &[4.0])]] {
            let mut parts = state(op, list).into_parts();
            assert_eq!(parts[0].hists.iter().map(|part| part.slot).collect::<Vec<_>>(), [3]);
            whole.merge(Accumulator::of_parts(op, 2, 2, PosRange::default(), parts.remove(0)));
        }
        let mut annotations = Annotations::default();
        let block = whole.finish(&[], &mut annotations);
        let count = if op == AggregateOp::Sum { 6.0 } else { 2.0 };
        assert_eq!(block.hists.iter().map(|h| (h.0, h.1, h.2.count)).collect::<Vec<_>>(), [(1, 1, count)]);
        let text = "PromQL warning: conflicting counter resets during histogram aggregation (1:1)";
        assert_eq!(annotations.texts(Level::Warning, ""), [text], "{op:?}");
        // Kinds that do not fit stay so, and what comes later does not count.
        let misfit = state(op, &[exponential(0, 1, &[1.0]), custom(&[1.0], &[1.0, 2.0])]);
        let parts = misfit.into_parts().remove(0);
        assert!(parts.hists[0].incompatible);
        let mut again = Accumulator::of_parts(op, 2, 2, PosRange::default(), parts);
        again.merge(state(op, &[exponential(0, 1, &[1.0])]));
        let block = again.finish(&[], &mut Annotations::default());
        assert!(block.hists.is_empty() && !block.present.contains(&true), "{op:?}");
    }
}

#[test]
fn rows_may_begin_late() {
    for (op, expected) in [
        (AggregateOp::Sum, [Some(1.0), Some(7.0), Some(5.0), None]),
        (AggregateOp::Count, [Some(1.0), Some(2.0), Some(1.0), None]),
        (AggregateOp::Max, [Some(1.0), Some(5.0), Some(5.0), None]),
        (AggregateOp::Avg, [Some(1.0), Some(3.5), Some(5.0), None]),
        (AggregateOp::Group, [Some(1.0), Some(1.0), Some(1.0), None]),
        (AggregateOp::Quantile, [Some(1.0), Some(3.5), Some(5.0), None]),
    ] {
        let mut state = Accumulator::new(op, 1, 4, PosRange::default());
        state.fold(0, &row(1, &[5.0, 5.0], &[true, true], &[]));
        state.fold(0, &row(0, &[1.0, 2.0], &[true, true], &[]));
        state.fold(0, &row(3, &[9.0], &[false], &[]));
        state.fold(0, &row(4, &[], &[], &[]));
        assert_eq!(cells_of(state), expected, "{op:?}");
    }
}

#[test]
fn memory_is_told_of_what_grows() {
    let h = exponential(0, 1, &[1.0; 100]);
    for op in OPS {
        assert!(Accumulator::handles(op));
        let mut state = Accumulator::new(op, 1, 2, PosRange::default());
        assert_eq!(state.grown_bytes(), 0, "{op:?}");
        state.fold(0, &row(0, &[1.0, 2.0], &[true, true], &[]));
        assert_eq!(state.grown_bytes() > 0, op == AggregateOp::Quantile, "{op:?}");
        let before = state.grown_bytes();
        state.fold(0, &row(0, &[0.0; 2], &[false; 2], &[(0, h.clone()), (1, h.clone())]));
        let sums = matches!(op, AggregateOp::Sum | AggregateOp::Avg);
        assert_eq!(state.grown_bytes() - before >= 2 * h.memory_bytes(), sums, "{op:?}");
    }
    for op in [AggregateOp::Topk, AggregateOp::Limitk, AggregateOp::LimitRatio, AggregateOp::CountValues] {
        assert!(!Accumulator::handles(op), "{op:?}");
    }
}
