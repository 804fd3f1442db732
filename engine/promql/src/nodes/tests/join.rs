//! Operators between vectors: one to one, `group_left`, `group_right`, `fill`, and series that must not match.

use smallvec::SmallVec;

use super::*;
use crate::ast::{BinaryOp, MatchCardinality, PosRange, VectorMatching};
use crate::nodes::join::{JoinGroup, StepJoin};

fn group(many: &[u32], one: &[u32], pairs: &[u32], lone: &[u32]) -> JoinGroup {
    let few = |rows: &[u32]| -> SmallVec<[u32; 2]> { SmallVec::from_slice(rows) };
    JoinGroup { many: few(many), one: few(one), pairs: few(pairs), lone: few(lone) }
}

/// A join of rows that match whatever their label `a` is.
fn join(op: BinaryOp, card: MatchCardinality, groups: Vec<JoinGroup>) -> StepJoin {
    let matching = VectorMatching {
        card,
        labels: vec!["a".to_owned()],
        on: false,
        include: vec![],
        fill_left: None,
        fill_right: None,
    };
    StepJoin {
        op,
        return_bool: false,
        steps: 3,
        histograms: true,
        swapped: card == MatchCardinality::OneToMany,
        one_to_one: card == MatchCardinality::OneToOne,
        fill_many: None,
        fill_one: None,
        groups,
        merges: true,
        many_table: table(3),
        one_table: table(3),
        matching,
        pos: PosRange::default(),
    }
}

/// One row on each side.
fn pair(op: BinaryOp) -> StepJoin {
    join(op, MatchCardinality::OneToOne, vec![group(&[0], &[0], &[0], &[])])
}

#[tokio::test]
async fn arithmetic_needs_both_sides() {
    let cases = [
        (BinaryOp::Add, "0: 1 2 _", "0: 10 _ 30", "0: 11 _ _"),
        (BinaryOp::Sub, "0: 1 2 3", "0: 10 20 30", "0: -9 -18 -27"),
        (BinaryOp::Div, "0: 1 -1 0", "0: 0 0 0", "0: inf -inf NaN"),
        (BinaryOp::Mod, "0: 7 -7 7", "0: 3 3 inf", "0: 1 -1 7"),
        (BinaryOp::Pow, "0: 2 0 NaN", "0: -1 0 0", "0: 0.5 1 1"),
        (BinaryOp::Mul, "0: NaN inf 1", "0: 1 0 1", "0: NaN NaN 1"),
        (BinaryOp::Add, "0: 1 2 3", "", ""),
        (BinaryOp::Add, "", "0: 1 2 3", ""),
        (BinaryOp::Add, "0: 1 _ _", "0: _ 1 1", ""),
    ];
    for (op, many, one, expected) in cases {
        assert_eq!(rows(pair(op), &[many, one]).await, expected, "{many} {op:?} {one}");
    }
}

#[tokio::test]
async fn comparisons_keep_the_left_value_or_say_whether_they_hold() {
    let cases = [
        (BinaryOp::Gtr, "0: 1 5 NaN", "0: 3 3 3", "0: _ 5 _", "0: 0 1 0"),
        (BinaryOp::Lte, "0: 1 5 3", "0: 3 3 3", "0: 1 _ 3", "0: 1 0 1"),
        (BinaryOp::Eql, "0: NaN 0 inf", "0: NaN -0 inf", "0: _ 0 inf", "0: 0 1 1"),
        (BinaryOp::Neq, "0: NaN 1 1", "0: NaN 1 2", "0: NaN _ 1", "0: 1 0 1"),
        (BinaryOp::Lss, "0: 1 _ 1", "0: 2 2 _", "0: 1 _ _", "0: 1 _ _"),
    ];
    for (op, many, one, kept, held) in cases {
        assert_eq!(rows(pair(op), &[many, one]).await, kept, "{many} {op:?} {one}");
        let with_bool = StepJoin { return_bool: true, ..pair(op) };
        assert_eq!(rows(with_bool, &[many, one]).await, held, "{many} {op:?} bool {one}");
    }
}

/// With `group_right` the second input, the one that has one row, stands on the left.
#[tokio::test]
async fn sides_keep_their_hands() {
    let right = |op| join(op, MatchCardinality::OneToMany, vec![group(&[0, 1], &[0], &[0, 1], &[])]);
    let (many, one) = ("0: 1 2 30; 1: 4 5 _", "0: 10 10 10");
    assert_eq!(rows(right(BinaryOp::Sub), &[many, one]).await, "0: 9 8 -20; 1: 6 5 _");
    assert_eq!(rows(right(BinaryOp::Gtr), &[many, one]).await, "0: 10 10 _; 1: 10 10 _");
    let left = |op| join(op, MatchCardinality::ManyToOne, vec![group(&[0, 1], &[0], &[0, 1], &[])]);
    assert_eq!(rows(left(BinaryOp::Sub), &[many, one]).await, "0: -9 -8 20; 1: -6 -5 _");
    assert_eq!(rows(left(BinaryOp::Gtr), &[many, one]).await, "0: _ _ 30");
    // Rows may come in any order and any batches.
    assert_eq!(rows(left(BinaryOp::Mul), &["1: 4 5 _ | 0: 1 2 30", one]).await, "0: 10 20 300; 1: 40 50 _");
}

#[tokio::test]
async fn one_side_has_one_row_at_each_step() {
    let two = |card| join(BinaryOp::Add, card, vec![group(&[0], &[0, 1], &[0, 0], &[])]);
    let fault = |hand: &str, a: u32, b: u32| {
        format!(
            "error: found duplicate series for the match group {{}} on the {hand} hand-side of the operation: \
             [{{a=\"{a}\"}}, {{a=\"{b}\"}}];many-to-many matching not allowed: matching labels must be unique on one side"
        )
    };
    let one_to_one = || two(MatchCardinality::OneToOne);
    assert_eq!(rows(one_to_one(), &["0: 1 1 1", "0: 1 _ _; 1: 1 _ _"]).await, fault("right", 0, 1));
    let swapped = two(MatchCardinality::OneToMany);
    assert_eq!(rows(swapped, &["0: 1 1 1", "0: _ _ 1; 1: _ _ h1"]).await, fault("left", 0, 1));
    // Rows that take turns are one row.
    assert_eq!(rows(one_to_one(), &["0: 5 5 5", "0: 1 _ _; 1: _ 2 _"]).await, "0: 6 7 _");
    assert_eq!(rows(one_to_one(), &["0: 5 5 5", "0: 1 _ 3 | 1: _ 2 _"]).await, "0: 6 7 8");
    // Where the other side is empty at the step nobody looks.
    assert_eq!(rows(one_to_one(), &["0: _ 5 5", "0: 1 _ _; 1: 1 2 _"]).await, "0: _ 7 _");
    assert_eq!(rows(one_to_one(), &["", "0: 1 1 1; 1: 1 1 1"]).await, "");
    // Any row of the other side will do for that, matched or not.
    assert_eq!(rows(one_to_one(), &["2: 1 _ _", "0: 1 _ _; 1: 1 _ _"]).await, fault("right", 0, 1));
}

#[tokio::test]
async fn a_fault_names_the_matched_labels() {
    let mut on = join(BinaryOp::Add, MatchCardinality::OneToOne, vec![group(&[0], &[0, 1], &[0, 0], &[])]);
    let mut builder = SeriesTableBuilder::default();
    builder.push([("__name__", "m"), ("host", "ä\"b"), ("n", "2")]);
    builder.push([("__name__", "m"), ("host", "ä\"b"), ("n", "1")]);
    on.one_table = Arc::new(builder.finish());
    on.matching.on = true;
    on.matching.labels = vec!["host".to_owned()];
    let got = rows(on, &["0: 1 _ _", "0: 1 _ _; 1: 1 _ _"]).await;
    assert!(got.contains(r#"for the match group {host="ä\"b"} on the right"#), "{got}");
    let (first, second) = (r#"{__name__="m", host="ä\"b", n="1"}"#, r#"{__name__="m", host="ä\"b", n="2"}"#);
    assert!(got.contains(&format!("[{first}, {second}]")), "{got}");
}

/// Like [`rows`], whatever the operator has to say of elements that it leaves out.
async fn outcome(operator: impl StepOperator, inputs: &[&str]) -> String {
    answer(operator, inputs).await.0
}

#[tokio::test]
async fn several_matches_must_be_explicit() {
    const EXPLICIT: &str =
        "error: multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)";
    const UNIQUE: &str = "error: multiple matches for labels: grouping labels must ensure unique matches";
    let with = |card, pairs: &[u32]| join(BinaryOp::Add, card, vec![group(&[0, 1], &[0], pairs, &[])]);
    let one_to_one = || with(MatchCardinality::OneToOne, &[0, 1]);
    let cases = [
        ("0: 1 _ _; 1: 1 _ _", "0: 1 1 1", EXPLICIT),
        // As in Prometheus, which looks at what an operator gives before it looks for other matches.
        ("0: _ _ 1 | 1: _ _ h1", "0: 1 1 1", "0: _ _ 2"),
        ("0: _ _ 1 | 1: _ _ 2", "0: 1 1 1", EXPLICIT),
        ("0: 1 _ _; 1: _ 2 _", "0: 1 1 1", "0: 2 _ _; 1: _ 3 _"),
        // Without a partner nothing matches.
        ("0: 1 _ _; 1: 1 _ 5", "0: _ 1 1", "1: _ _ 6"),
        ("0: 1 1 1; 1: 1 1 1", "", ""),
    ];
    for (many, one, expected) in cases {
        assert_eq!(outcome(one_to_one(), &[many, one]).await, expected, "{many} + {one}");
    }
    // Two rows of "many" whose labels end up equal.
    let equal = || with(MatchCardinality::ManyToOne, &[0, 0]);
    assert_eq!(outcome(equal(), &["0: 1 _ _; 1: 1 _ _", "0: 1 1 1"]).await, UNIQUE);
    assert_eq!(outcome(equal(), &["0: 1 _ _; 1: _ 1 _", "0: 1 1 1"]).await, "0: 2 2 _");
    let apart = || with(MatchCardinality::ManyToOne, &[0, 1]);
    assert_eq!(outcome(apart(), &["0: 1 _ _; 1: 1 _ _", "0: 1 1 1"]).await, "0: 2 _ _; 1: 2 _ _");
}

/// What cannot be combined does not match: rows that come to the same labels may stand beside each other.
#[tokio::test]
async fn elements_that_refuse_each_other_are_no_match() {
    let with = |op, card, pairs: &[u32]| join(op, card, vec![group(&[0, 1], &[0], pairs, &[])]);
    let one_to_one = |op| with(op, MatchCardinality::OneToOne, &[0, 1]);
    assert_eq!(outcome(one_to_one(BinaryOp::Add), &["0: h1 _ _; 1: h1 _ _", "0: 1 1 1"]).await, "");
    assert_eq!(outcome(one_to_one(BinaryOp::Add), &["0: h1 _ _; 1: 2 _ _", "0: 1 1 1"]).await, "1: 3 _ _");
    assert_eq!(outcome(one_to_one(BinaryOp::Lss), &["0: 1 1 1; 1: 1 1 1", "0: h1 h1 h1"]).await, "");
    assert_eq!(outcome(one_to_one(BinaryOp::TrimUpper), &["0: 1 1 1; 1: 1 1 1", "0: 1 1 1"]).await, "");
    let equal = with(BinaryOp::Pow, MatchCardinality::ManyToOne, &[0, 0]);
    assert_eq!(outcome(equal, &["0: 2 _ _; 1: h2 _ _", "0: 3 3 3"]).await, "0: 8 _ _");
    let got = outcome(one_to_one(BinaryOp::Mul), &["0: h1 _ _; 1: 2 _ _", "0: 1 1 1"]).await;
    assert!(got.starts_with("error: multiple matches"), "a histogram may be multiplied: {got}");
    // A row that nothing matched gets the value that stands in.
    let filled = join(BinaryOp::Mul, MatchCardinality::OneToOne, vec![group(&[0], &[0], &[0], &[0])]);
    let filled = StepJoin { fill_many: Some(2.0), ..filled };
    assert_eq!(outcome(filled, &["0: h4 _ 3", "0: h3 h3 h3"]).await, "0: h6 h6 h9");
}

/// At one step duplicates are looked for before matches are.
#[tokio::test]
async fn duplicates_are_told_before_matches() {
    let groups = vec![group(&[1, 2], &[2], &[1, 2], &[]), group(&[0], &[0, 1], &[0, 0], &[])];
    let both = join(BinaryOp::Add, MatchCardinality::OneToOne, groups);
    let got = rows(both, &["0: 1 1 1; 1: 1 1 1; 2: 1 1 1", "0: 1 1 1; 1: 1 1 1; 2: 1 1 1"]).await;
    assert!(got.starts_with("error: found duplicate series"), "{got}");
}

/// The error of the earliest step is reported, whichever group it is in.
#[tokio::test]
async fn the_earliest_fault_counts() {
    let groups = vec![group(&[0], &[0, 1], &[0, 0], &[]), group(&[1, 2], &[2], &[1, 2], &[])];
    let both = || join(BinaryOp::Add, MatchCardinality::OneToOne, groups.clone());
    let explicit = "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)";
    let many = "0: 1 1 1; 1: 1 _ 1; 2: 1 1 1";
    let got = rows(both(), &[many, "0: _ _ 1; 1: _ _ 1; 2: 1 1 1"]).await;
    assert_eq!(got, format!("error: {explicit}"));
    let got = rows(both(), &[many, "0: _ 1 1; 1: _ 1 1; 2: _ _ 1"]).await;
    assert!(got.starts_with("error: found duplicate series"), "{got}");
}

#[tokio::test]
async fn fill_stands_in_for_who_is_missing() {
    let fill = |many: Option<f64>, one: Option<f64>| {
        let pairs: &[u32] = if one.is_some() { &[0, 0] } else { &[0] };
        let group = group(&[0], &[0], pairs, &[0]);
        let join = join(BinaryOp::Sub, MatchCardinality::OneToOne, vec![group]);
        StepJoin { fill_many: many, fill_one: one, ..join }
    };
    let cases = [
        (None, Some(0.0), "0: 1 2 _", "0: 10 _ 30", "0: -9 2 _"),
        (Some(100.0), None, "0: 1 _ _", "0: 10 20 _", "0: -9 80 _"),
        (Some(100.0), Some(0.0), "0: 1 2 _", "0: 10 _ 30", "0: -9 2 70"),
        (Some(100.0), Some(0.0), "0: 1 2 3", "", "0: 1 2 3"),
        (Some(100.0), Some(0.0), "", "0: 10 20 30", "0: 90 80 70"),
        (Some(f64::NAN), Some(f64::NAN), "0: 1 2 _", "0: 10 _ 30", "0: -9 NaN NaN"),
        (Some(1.0), Some(1.0), "", "", ""),
    ];
    for (fill_many, fill_one, many, one, expected) in cases {
        let got = rows(fill(fill_many, fill_one), &[many, one]).await;
        assert_eq!(got, expected, "{many} - {one}, {fill_many:?} {fill_one:?}");
    }
}

#[tokio::test]
async fn histograms_meet_histograms_and_numbers() {
    let float_histogram =
        "PromQL info: incompatible sample types encountered for binary operator \"+\": float + histogram (1:1)";
    let (got, notes) = answer(pair(BinaryOp::Add), &["0: h4 1 h2", "0: h1 h1 _"]).await;
    assert_eq!((got.as_str(), notes), ("0: h5 _ _", vec![float_histogram.to_owned()]));
    assert_eq!(rows(pair(BinaryOp::Mul), &["0: h4 3 _", "0: 2 h2 2"]).await, "0: h8 h6 _");
    assert_eq!(rows(pair(BinaryOp::Div), &["0: h4 8 _", "0: 2 2 2"]).await, "0: h2 4 _");
    assert_eq!(rows(pair(BinaryOp::Eql), &["0: h4 h4 _", "0: h4 h3 h1"]).await, "0: h4 _ _");
    assert_eq!(rows(pair(BinaryOp::Neq), &["0: h4 h4 _", "0: h4 h3 h1"]).await, "0: _ h4 _");
}

#[tokio::test]
async fn groups_do_not_see_each_other() {
    let groups = vec![group(&[0], &[2], &[1], &[]), group(&[2], &[0], &[0], &[]), group(&[1], &[], &[], &[])];
    let apart = join(BinaryOp::Add, MatchCardinality::OneToOne, groups);
    let got = rows(StepJoin { merges: false, ..apart }, &["0: 1 1 1; 1: 2 2 2; 2: 3 3 3", "0: 10 10 _; 2: 20 _ 20"]);
    assert_eq!(got.await, "1: 21 _ 21; 0: 13 13 _");
}
