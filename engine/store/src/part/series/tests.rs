#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::Int64Type;
use quiver_types::ErrorKind;

use super::super::tests::Budget;
use super::page::tests::{Row, batch};
use super::*;

#[test]
fn batches_are_split_where_pieces_end() {
    let batches: Vec<RecordBatch> = [0..3, 3..3, 3..7]
        .map(|rows| RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from_iter_values(rows)) as ArrayRef)]))
        .map(Result::unwrap)
        .to_vec();
    let pieces = |lens: &[usize]| {
        let pieces = split(&batches, lens.iter().copied())?;
        let numbers = |piece: &Vec<RecordBatch>| -> Vec<Vec<i64>> {
            assert!(piece.iter().all(|batch| batch.num_rows() > 0));
            piece.iter().map(|batch| batch["n"].as_primitive::<Int64Type>().values().to_vec()).collect()
        };
        Some(pieces.iter().map(numbers).collect::<Vec<_>>())
    };
    assert_eq!(pieces(&[2, 5]), Some(vec![vec![vec![0, 1]], vec![vec![2], vec![3, 4, 5, 6]]]));
    assert_eq!(pieces(&[3, 4]), Some(vec![vec![vec![0, 1, 2]], vec![vec![3, 4, 5, 6]]]));
    assert_eq!(pieces(&[0, 1, 0]), Some(vec![vec![], vec![vec![0]], vec![]]));
    assert_eq!(pieces(&[]), Some(vec![]));
    assert_eq!(pieces(&[7, 1]), None, "there are seven");
    assert_eq!(pieces(&[8]), None);
}

#[test]
fn pages_that_touch_are_one_range() {
    let check = |pages: &[u32], series: u64, expected: &[Range<u64>]| {
        assert_eq!(rows_of_pages(pages, series), expected, "{pages:?} of {series}");
    };
    check(&[], 10_000, &[]);
    check(&[0], 1, &[0..1]);
    check(&[0, 1], 10_000, &[0..8192]);
    check(&[0, 2], 10_000, &[0..4096, 8192..10_000]);
    check(&[0, 1, 2], 10_000, &[0..10_000]);
    check(&[1], 8192, &[4096..8192]);
}

/// Pages of a hundred series of two rows each.
fn hundreds(pages: u32) -> Vec<Arc<SeriesPage>> {
    let page = |number: u32| {
        let first = number * PAGE_SERIES;
        let row = |at: u64| (at as u8, "", 2 * at, 2, at as i64, at as i64 + 1);
        let mut page = SeriesPage::starting(first);
        page.add(&batch(&(0..100).map(row).collect::<Vec<Row>>())).unwrap();
        page.blocks = vec![first, first + 40, first + 100];
        Arc::new(page)
    };
    (0..pages).map(page).collect()
}

#[test]
fn chosen_series_are_the_same_whether_their_page_is_kept() {
    let pages = hundreds(3);
    // Of the first page few, of the second none, of the third many.
    let numbers: Vec<u32> = [3, 50, 99].into_iter().chain(2 * PAGE_SERIES + 5..2 * PAGE_SERIES + 60).collect();
    let chosen = ChosenSeries::new(&pages, &numbers, &ReadStats::default()).unwrap();
    assert_eq!(chosen.pages(), 2);
    assert!(matches!(&chosen.pages[..], [(0, PageSelection::Few(few)), (2, PageSelection::Page(_))] if few.len() == 3));
    for &number in &numbers {
        let page = &pages[(number / PAGE_SERIES) as usize];
        assert_eq!(chosen.samples(number), page.samples(number));
        assert_eq!((chosen.hists(number).rows, chosen.exemplars(number).rows), (0, 0));
        assert_eq!((chosen.range(number), chosen.block(number)), (page.range(number), page.block(number)));
        assert_eq!(chosen.block_samples(number), page.block_samples(number));
    }
    let first = 2 * PAGE_SERIES;
    assert_eq!((chosen.block(3), chosen.block(50), chosen.block(first + 39)), (0..40, 40..100, first..first + 40));
    assert_eq!((chosen.block_samples(3), chosen.block_samples(99)), (80, 120));
    let none = ChosenSeries::new(&pages, &[], &ReadStats::default()).unwrap();
    assert_eq!(none.pages(), 0);
}

#[test]
fn chosen_series_take_what_they_hold() {
    let pages = hundreds(1);
    let taken = |numbers: &[u32]| {
        let (budget, stats) = Budget::of(1 << 20);
        let chosen = ChosenSeries::new(&pages, numbers, &stats).unwrap();
        assert_eq!(chosen.pages(), 1);
        budget.taken()
    };
    assert_eq!(taken(&[7]), size_of::<Few>() as i64);
    assert_eq!(taken(&[7, 8, 9, 10, 11, 12]), 6 * size_of::<Few>() as i64);
    // A sixteenth of the page and more: the page itself.
    assert_eq!(taken(&[7, 8, 9, 10, 11, 12, 13]), pages[0].memory_bytes() as i64);
    let (budget, stats) = Budget::of(100);
    let refused = ChosenSeries::new(&pages, &(0..100).collect::<Vec<_>>(), &stats).unwrap_err();
    assert_eq!((refused.kind(), budget.taken()), (ErrorKind::LimitExceeded, 0));
}
