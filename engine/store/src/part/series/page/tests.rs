use arrow::array::{ArrayRef, FixedSizeBinaryArray, StringArray, TimestampMillisecondArray, UInt32Array, UInt64Array};

use super::*;
use crate::part::tests::{small, write};

/// A series as its columns tell: identity, service, first row and rows of samples, first and last time.
pub(in crate::part::series) type Row = (u8, &'static str, u64, u64, i64, i64);

pub(in crate::part::series) fn batch(rows: &[Row]) -> RecordBatch {
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
    let mut page = SeriesPage::starting(4096);
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
        let mut page = SeriesPage::starting(first);
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
