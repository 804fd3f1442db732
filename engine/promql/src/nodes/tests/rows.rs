//! `absent`, `scalar`, `sort`, new numbers of rows, and rows of one step repeated over all.

use super::*;
use crate::nodes::absent::Absent;
use crate::nodes::batch::VALUES_PER_BATCH;
use crate::nodes::broadcast::Broadcast;
use crate::nodes::rows::MapRows;
use crate::nodes::scalar::ToScalar;
use crate::nodes::sort::{Sort, SortBy};

#[tokio::test]
async fn absent_where_no_row_has_an_element() {
    let cases = [
        ("", "0: 1 1 1"),
        ("0: 5 _ _", "0: _ 1 1"),
        ("0: 5 _ _; 1: _ _ 0", "0: _ 1 _"),
        ("0: 5 _ _ | 1: _ _ 0", "0: _ 1 _"),
        ("0: 5 6 7", ""),
        ("0: 5 _ _ | 1: _ 6 _ | 2: _ _ 7", ""),
        // What is no number is there, and so is a histogram.
        ("0: NaN _ _", "0: _ 1 1"),
        ("0: _ h2 _; 1: _ _ h0", "0: 1 _ _"),
        ("0: h1 2 h3", ""),
    ];
    for (input, expected) in cases {
        assert_eq!(rows(Absent { steps: 3 }, &[input]).await, expected, "{input}");
    }
}

#[tokio::test]
async fn a_scalar_is_the_only_float_of_its_step() {
    let cases = [
        ("", "0: NaN NaN NaN"),
        ("7: 1 2 3", "0: 1 2 3"),
        ("7: 1 _ 3", "0: 1 NaN 3"),
        ("0: 1 2 _; 1: 3 _ 5", "0: NaN 2 5"),
        ("0: 1 2 _ | 1: 3 _ 5", "0: NaN 2 5"),
        ("0: 1 _ _ | 1: 2 _ _ | 2: 3 _ _", "0: NaN NaN NaN"),
        ("0: -inf -0 NaN", "0: -inf -0 NaN"),
        ("0: NaN 1 1; 1: 5 _ _", "0: NaN 1 1"),
        // Histograms are not counted: the float beside one is the only one.
        ("0: 1 h5 h5; 1: h1 3 h6", "0: 1 3 NaN"),
    ];
    for (input, expected) in cases {
        assert_eq!(rows(ToScalar { steps: 3 }, &[input]).await, expected, "{input}");
    }
}

#[tokio::test]
async fn sorting_by_value_puts_nan_last_either_way() {
    let sort = |descending| Sort { by: SortBy::Value { descending }, histograms: true, rows: 6 };
    let cases = [
        ("", "", ""),
        ("0: 3; 1: 1; 2: 2", "1: 1; 2: 2; 0: 3", "0: 3; 2: 2; 1: 1"),
        ("0: 3 | 1: 1 | 2: 2", "1: 1; 2: 2; 0: 3", "0: 3; 2: 2; 1: 1"),
        ("0: NaN; 1: inf; 2: -inf", "2: -inf; 1: inf; 0: NaN", "1: inf; 2: -inf; 0: NaN"),
        ("3: NaN; 0: NaN; 1: 1", "1: 1; 3: NaN; 0: NaN", "1: 1; 3: NaN; 0: NaN"),
        // Equal values stay in the order in which they came, which is not that of their numbers.
        ("5: 1; 0: 0 | 2: 1; 4: 1", "0: 0; 5: 1; 2: 1; 4: 1", "5: 1; 2: 1; 4: 1; 0: 0"),
        ("1: 0; 0: -0", "1: 0; 0: -0", "1: 0; 0: -0"),
        // Histograms have no value to be sorted by.
        ("0: h3; 1: 2; 2: h1; 3: 1", "3: 1; 1: 2", "1: 2; 3: 1"),
        ("0: h3", "", ""),
    ];
    for (input, ascending, descending) in cases {
        assert_eq!(rows(sort(false), &[input]).await, ascending, "sort {input}");
        assert_eq!(rows(sort(true), &[input]).await, descending, "sort_desc {input}");
    }
}

#[tokio::test]
async fn sorting_by_labels_keeps_histograms() {
    let sort = || Sort { by: SortBy::Rank(vec![2, 0, 1, 1]), histograms: true, rows: 4 };
    let cases = [
        ("", ""),
        ("0: 5; 1: h1; 2: NaN", "1: h1; 2: NaN; 0: 5"),
        ("2: 7 | 1: h1 | 0: 5", "1: h1; 2: 7; 0: 5"),
        ("3: 1; 2: 2", "3: 1; 2: 2"),
        ("2: 2; 3: 1", "2: 2; 3: 1"),
    ];
    for (input, expected) in cases {
        assert_eq!(rows(sort(), &[input]).await, expected, "{input}");
    }
}

fn map_rows(to: &[u32], merges: bool) -> MapRows {
    MapRows { steps: 3, histograms: true, to: Arc::new(to.to_vec()), merges, shown: String::new() }
}

#[tokio::test]
async fn rows_get_new_numbers() {
    let cases =
        [("", ""), ("0: 1 2 3; 2: _ h5 NaN", "9: 1 2 3; 7: _ h5 NaN"), ("2: 1 2 3 | 1: 4 _ 6", "7: 1 2 3; 8: 4 _ 6")];
    for (input, expected) in cases {
        assert_eq!(rows(map_rows(&[9, 8, 7], false), &[input]).await, expected, "{input}");
    }
}

#[tokio::test]
async fn rows_of_one_number_are_merged_unless_they_meet() {
    const MEET: &str = "error: vector cannot contain metrics with the same labelset";
    let cases = [
        ("", ""),
        ("0: 1 _ _; 1: _ 2 _; 2: _ _ 3", "4: 1 2 _; 5: _ _ 3"),
        ("1: 1 _ _ | 2: 9 9 9 | 0: _ _ 3", "4: 1 _ 3; 5: 9 9 9"),
        ("0: 1 _ _; 1: _ h2 _", "4: 1 h2 _"),
        ("0: _ h1 _ | 1: h2 _ 3", "4: h2 h1 3"),
        ("0: 1 _ _; 1: 1 _ _", MEET),
        ("0: _ _ 1 | 1: _ _ NaN", MEET),
        ("0: h1 _ _; 1: h1 _ _", MEET),
        ("0: 1 _ _; 1: h2 _ _", MEET),
        ("0: h1 _ _ | 1: 2 _ _", MEET),
    ];
    for (input, expected) in cases {
        assert_eq!(rows(map_rows(&[4, 4, 5], true), &[input]).await, expected, "{input}");
    }
}

#[tokio::test]
async fn one_step_is_repeated() {
    let cases = [
        ("", ""),
        ("3: 5", "3: 5 5 5 5"),
        ("3: 5; 1: NaN; 2: h4", "3: 5 5 5 5; 1: NaN NaN NaN NaN; 2: h4 h4 h4 h4"),
        ("2: h4 | 3: -0", "2: h4 h4 h4 h4; 3: -0 -0 -0 -0"),
    ];
    for (input, expected) in cases {
        assert_eq!(rows(Broadcast { steps: 4, histograms: true }, &[input]).await, expected, "{input}");
    }
}

/// More rows than one batch holds come out in several, all of them and in order.
#[tokio::test]
async fn large_answers_come_in_pieces() {
    let steps = VALUES_PER_BATCH / 2;
    let input = (0..5).map(|row| format!("{row}: {row}")).collect::<Vec<_>>().join("; ");
    let step = Arc::new(Step(Arc::new(Broadcast { steps, histograms: false })));
    let plan = step.physical(vec![literal(&input)], &SessionContext::new().state()).expect("a plan");
    let run = RunState::new(QueryContext::new(Access::full(), Limits::default()), None);
    let config = SessionConfig::new().with_extension(Arc::new(RunShared::with(Arc::new(run))));
    let batches = collect(plan, Arc::new(TaskContext::default().with_session_config(config))).await.expect("rows");
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [2, 2, 1]);
    let blocks: Vec<Block> = batches.into_iter().map(|batch| to_block(batch).expect("a step matrix")).collect();
    assert_eq!(blocks.iter().flat_map(|block| block.rows.clone()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    for block in &blocks {
        for (idx, &row) in block.rows.iter().enumerate() {
            let (values, present) = block.row(idx);
            assert!(values.iter().all(|v| *v == f64::from(row)) && !present.contains(&false), "row {row}");
        }
    }
}
