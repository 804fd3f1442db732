//! Rows of very many steps, and histograms of many, count before they are made.

use super::super::broadcast::Broadcast;
use super::super::rollup::{Rollup, RollupFunction, SampleSource};
use super::*;
use crate::ast::PosRange;
use crate::functions::lookup;
use crate::kernel::{Grid, Window};
use crate::range_ends::RangeEnds;

/// How many cells the answer within so many bytes has; `None`: there is no room for it.
async fn cells(operator: impl StepOperator, input: &str, bytes: usize) -> Option<usize> {
    let (rows, _) = answer_within(operator, &[input], bytes).await;
    if rows.starts_with("error: ") {
        assert!(rows.contains("memory"), "{rows}");
        return None;
    }
    Some(rows.split_once(": ").expect("a row").1.split(' ').filter(|cell| *cell != "_").count())
}

#[tokio::test]
async fn repeated_values() {
    let steps = 100_000;
    let repeated = || Broadcast { steps, histograms: true };
    assert_eq!(cells(repeated(), "0: 1", 900_000).await, None);
    assert_eq!(cells(repeated(), "0: 1", 1_100_000).await, Some(steps));
    let repeated = || Broadcast { steps: 2000, histograms: true };
    assert_eq!(cells(repeated(), "0: 1", 0).await, Some(2000), "few count for nothing");
}

#[tokio::test]
async fn repeated_histograms() {
    let steps = 5000;
    let repeated = || Broadcast { steps, histograms: true };
    assert_eq!(cells(repeated(), "0: h1", 1 << 20).await, None);
    assert_eq!(cells(repeated(), "0: h1", 4 << 20).await, Some(steps));
    assert_eq!(
        answer_within(Broadcast { steps: 2, histograms: true }, &["0: h1; 1: 2; 7: h3"], 4096).await.0,
        "0: h1 h1; 1: 2 2; 7: h3 h3"
    );
}

/// Each step has the one histogram of the window. They are made piece by piece, and none is left out between these.
#[tokio::test]
async fn histograms_of_windows() {
    let rollup = |steps: usize| Rollup {
        function: RollupFunction::Range(lookup("last_over_time").expect("a function")),
        source: SampleSource::Grid(Grid { start: 0, step_ms: 1, steps: 1 }),
        grid: Grid { start: 0, step_ms: 1, steps },
        window: Window { range_ms: 1_000_000, offset_ms: 0, ends: RangeEnds::Samples, lookback_ms: 0 },
        at: None,
        params: vec![],
        place: PosRange::default().into(),
        table: table(1),
        histograms: true,
        stats_only: false,
        tally: 0,
    };
    assert_eq!(cells(rollup(6000), "0: h1", 1 << 20).await, None);
    assert_eq!(cells(rollup(6000), "0: h1", 16 << 20).await, Some(6000));
    // So do the values of a row.
    assert_eq!(cells(rollup(12_000), "0: 1", 100_000).await, None);
    assert_eq!(cells(rollup(12_000), "0: 1", 130_000).await, Some(12_000));
}
