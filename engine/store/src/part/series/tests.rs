#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

use arrow::array::{
    ArrayRef, FixedSizeBinaryArray, Int64Array, StringArray, TimestampMillisecondArray, UInt32Array, UInt64Array,
};
use arrow::datatypes::Int64Type;
use quiver_types::ErrorKind;

use super::super::tests::{Budget, small, write};
use super::*;

/// A series as its columns tell: identity, service, first row and rows of samples, first and last time.
type Row = (u8, &'static str, u64, u64, i64, i64);

fn batch(rows: &[Row]) -> RecordBatch {
    let ids = FixedSizeBinaryArray::try_from_iter(rows.iter().map(|row| [row.0; 16])).unwrap();
    let times =
        |of: fn(&Row) -> i64| Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(of))) as ArrayRef;
    let numbers = |of: fn(&Row) -> u64| Arc::new(UInt64Array::from_iter_values(rows.iter().map(of))) as ArrayRef;
    let columns: [(&str, ArrayRef); 6] = [
        ("series_id", Arc::new(ids)),
        ("service", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1)))),
        ("samples_first", numbers(|row| row.2)),
        ("samples_rows", numbers(|row| row.3)),
        ("min_time", times(|row| row.4)),
        ("max_time", times(|row| row.5)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn a_page_tells_of_each_series_where_its_rows_are() {
    let mut page = SeriesPage { first: 4096, ..SeriesPage::default() };
    page.add(&batch(&[(1, "a", 10, 3, -5, 9), (2, "b", 13, 0, 7, 7), (3, "a", 13, 4, 0, 1)])).unwrap();
    // What is read as another batch goes on where the one before ended.
    page.add(&batch(&[(4, "", 17, 2, 5, 6), (5, "b", 19, 1, 8, 8)])).unwrap();
    assert_eq!(page.numbers(), 4096..4101);
    let rows: Vec<_> = page.numbers().map(|series| page.samples(series)).collect();
    let expected = [(10, 3), (13, 0), (13, 4), (17, 2), (19, 1)];
    let expected = (4096..).zip(expected).map(|(series, (first, rows))| SeriesRows { series, first, rows });
    assert_eq!(rows, expected.collect::<Vec<_>>());
    assert_eq!(page.hists(4098), SeriesRows { series: 4098, first: 0, rows: 0 });
    assert_eq!(page.exemplars(4100).rows, 0);
    let services: Vec<&str> = page.numbers().map(|series| &**page.service(series)).collect();
    assert_eq!(services, ["a", "b", "a", "", "b"]);
    assert_eq!(page.services().iter().map(|s| &**s).collect::<Vec<_>>(), ["a", "b", ""]);
    assert_eq!((page.service_code(4096), page.service_code(4098), page.service_code(4099)), (0, 0, 2));
    assert_eq!(page.range(4096), MillisRange::new(-5, 9));
    assert_eq!(page.id(4099), SeriesId::from_bytes([4; 16]));
}

#[test]
fn rows_that_do_not_follow_each_other_are_no_page() {
    let adds = |batches: &[&[Row]]| {
        let mut page = SeriesPage::default();
        batches.iter().all(|rows| page.add(&batch(rows)).is_some())
    };
    assert!(adds(&[&[(1, "", 0, 3, 0, 0), (2, "", 3, 1, 0, 0)]]));
    assert!(!adds(&[&[(1, "", 0, 3, 0, 0), (2, "", 4, 1, 0, 0)]]), "a gap");
    assert!(!adds(&[&[(1, "", 0, 3, 0, 0), (2, "", 2, 1, 0, 0)]]), "rows of two series");
    assert!(!adds(&[&[(1, "", 0, 3, 0, 0)], &[(2, "", 0, 1, 0, 0)]]), "another batch begins anew");
    assert!(!adds(&[&[(1, "", u64::MAX, 1, 0, 0)]]), "more than there are numbers");
    let good = batch(&[(1, "", 0, 3, 0, 0)]);
    for name in ["series_id", "service", "min_time", "max_time"] {
        let without = good.schema().fields().iter().position(|field| field.name() == name).unwrap();
        let others: Vec<usize> = (0..good.num_columns()).filter(|at| *at != without).collect();
        assert!(SeriesPage::default().add(&good.project(&others).unwrap()).is_none(), "{name}");
        let mut columns = good.columns().to_vec();
        columns[without] = Arc::new(UInt32Array::from(vec![1]));
        let names = good.schema_ref().fields().iter().map(|field| field.name().as_str());
        let other = RecordBatch::try_from_iter(names.zip(columns)).unwrap();
        assert!(SeriesPage::default().add(&other).is_none(), "{name} of another type");
    }
    // A part without samples has no such columns.
    let bare = good.project(&[0, 1, 4, 5]).unwrap();
    let mut page = SeriesPage::default();
    page.add(&bare).unwrap();
    assert_eq!(page.samples(0).rows, 0);
}

#[test]
fn a_page_fits_the_files_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut meta = write(dir.path(), 0, &small());
    meta.files.retain(|file| file.kind == "samples");
    let page = |first: u32, rows: &[Row]| {
        let mut page = SeriesPage { first, ..SeriesPage::default() };
        page.add(&batch(rows)).unwrap();
        page
    };
    let check = |samples: u64, series: u64, page: &SeriesPage, expected: bool| {
        let mut meta = meta.clone();
        meta.files[0].rows = samples;
        assert_eq!(page.fits(&meta, series), expected, "{samples} samples of {series} series");
    };
    let two: &[Row] = &[(1, "", 0, 3, 0, 0), (2, "", 3, 4, 0, 0)];
    check(7, 2, &page(0, two), true);
    check(8, 2, &page(0, two), false);
    check(8, 3, &page(0, two), true);
    let later: &[Row] = &[(1, "", 5, 3, 0, 0)];
    check(8, 1, &page(0, later), false);
    check(8, 4097, &page(4096, later), true);
    check(9, 4097, &page(4096, later), false);
    check(9, 4098, &page(4096, later), true);
    let mut none = meta.clone();
    none.files.clear();
    assert!(!page(0, two).fits(&none, 2), "there is no file of samples");
}

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
        let mut page = SeriesPage { first, ..SeriesPage::default() };
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
    assert!(matches!(&chosen.pages[..], [(0, Kept::Few(few)), (2, Kept::Page(_))] if few.len() == 3));
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
