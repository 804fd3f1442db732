use quiver_types::ErrorKind;

use super::super::PartMeta;
use super::super::tests::{block_on, open, series, write};
use super::*;
use crate::series_run::SeriesRun;

/// Two series with a page of their own each, and one of a few rows.
fn runs() -> Vec<SeriesRun> {
    let lens = [("a", 20_000), ("b", 5000), ("c", 3)];
    lens.map(|(name, len)| {
        let mut run = series(&[("__name__", name)], "");
        for i in 0..len {
            // No decimals, and those on few pages only.
            let value = if (9000..9010).contains(&i) { f64::NAN } else { (i % 1000) as f64 / 4.0 };
            run.samples.push(10 * i, value, if name == "b" && i % 2 == 0 { i + 1 } else { 0 });
        }
        run
    })
    .to_vec()
}

fn rows(series: u32, first: u64, rows: u64) -> SeriesRows {
    SeriesRows { series, first, rows }
}

fn of_all() -> [SeriesRows; 3] {
    [rows(0, 0, 20_000), rows(1, 20_000, 5000), rows(2, 25_000, 3)]
}

fn part() -> (tempfile::TempDir, PartMeta, Arc<Part>) {
    let dir = tempfile::tempdir().unwrap();
    let meta = write(dir.path(), 0, &runs());
    let part = open(dir.path(), &meta);
    (dir, meta, part)
}

fn assert_same(got: &FloatRun, expected: &FloatRun, what: &str) {
    assert_eq!(got.ts, expected.ts, "{what}");
    let bits = |run: &FloatRun| run.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(got), bits(expected), "{what}");
}

#[test]
fn runs_are_cut_to_any_range() {
    let (_dir, _, part) = part();
    let runs = runs();
    let stats = ReadStats::default();
    // About the borders of pages, of the doubles, and of the series.
    let edges = [-1, 5, 81_910, 81_920, 90_000, 163_840, 199_990, 200_000];
    for (n, &min) in edges.iter().enumerate() {
        for &max in &edges[n..] {
            let range = MillisRange::new(min, max);
            let got = block_on(part.read_floats(&of_all(), range, StartTimes::Skip, &stats)).unwrap();
            for (got, run) in got.iter().zip(&runs) {
                assert_same(got, &run.samples.slice(range), &format!("{min}..={max} of {:?}", run.labels));
                assert!(got.start_ts.is_empty());
            }
        }
    }
    let none = block_on(part.read_floats(&of_all(), MillisRange::new(50, 40), StartTimes::Skip, &stats)).unwrap();
    assert!(none.iter().all(FloatRun::is_empty));
}

#[test]
fn start_times_come_where_they_are_asked_for() {
    let (_dir, _, part) = part();
    let stats = ReadStats::default();
    assert!(block_on(part.has_start_times(&stats)).unwrap());
    let got = block_on(part.read_floats(&of_all()[1..], MillisRange::new(0, 30), StartTimes::Read, &stats)).unwrap();
    assert_eq!((&got[0].ts[..], &got[0].start_ts[..]), (&[0, 10, 20, 30][..], &[1, 0, 3, 0][..]));
    // Of a series without any they are unset.
    assert_eq!((&got[1].ts[..], &got[1].start_ts[..]), (&[0, 10, 20][..], &[0, 0, 0][..]));
}

#[test]
fn rows_come_in_order_and_are_of_the_file() {
    let (_dir, meta, part) = part();
    let key = &meta.file("samples").unwrap().key;
    let stats = ReadStats::default();
    for wanted in [
        &[rows(1, 20_000, 10), rows(0, 0, 10)][..],
        &[rows(0, 0, 11), rows(1, 10, 5)],
        &[rows(2, 25_000, 4)],
        &[rows(9, 25_004, 1)],
    ] {
        let error = block_on(part.read_floats(wanted, MillisRange::ALL, StartTimes::Skip, &stats)).unwrap_err();
        let expected = format!("row ranges of `{key}` are not ascending or not its own");
        assert_eq!((error.kind(), error.message), (ErrorKind::Internal, expected), "{wanted:?}");
    }
    // Parts of series, and none of some, are ranges like others.
    let wanted = [rows(0, 3, 2), rows(0, 5, 0), rows(0, 5, 1), rows(1, 20_001, 1)];
    let got = block_on(part.read_floats(&wanted, MillisRange::ALL, StartTimes::Skip, &stats)).unwrap();
    assert_eq!(got.iter().map(|run| run.ts.clone()).collect::<Vec<_>>(), [vec![30, 40], vec![], vec![50], vec![10]]);
}

#[test]
fn nothing_is_read_where_nothing_is_wanted() {
    let (_dir, _, part) = part();
    let stats = ReadStats::default();
    for wanted in [&[][..], &[rows(0, 0, 0)], &[rows(0, 0, 0), rows(1, 20_000, 0)]] {
        let got = block_on(part.read_floats(wanted, MillisRange::ALL, StartTimes::Read, &stats)).unwrap();
        assert!(got.len() == wanted.len() && got.iter().all(FloatRun::is_empty));
    }
    assert_eq!(read_stats::get(&stats.objects_read), 0);
    // Whoever asks has left out series without a sample in the range, so their pages are read and none of it is given.
    block_on(part.read_floats(&of_all(), MillisRange::new(-50, -10), StartTimes::Read, &stats)).unwrap();
    assert_eq!(read_stats::get(&stats.samples), 0);
}

#[test]
fn a_stream_leaves_out_series_without_samples() {
    let (_dir, _, part) = part();
    let stats = Arc::new(ReadStats::default());
    let wanted = vec![rows(0, 0, 20_000), rows(1, 20_000, 0), rows(2, 25_000, 3)];
    let mut chunks = FloatChunks::new(Arc::clone(&part), wanted, Arc::clone(&stats));
    let mut found = Vec::new();
    while let Some((at, run)) = block_on(chunks.next()).unwrap() {
        assert_same(&run, &runs()[at].samples, "streamed");
        found.push(at);
    }
    assert_eq!(found, [0, 2], "nothing is wanted of the second");
    assert_eq!(read_stats::get(&stats.samples), 20_003);
    assert!(block_on(chunks.next()).unwrap().is_none(), "it stays at its end");
    let mut none = FloatChunks::new(part, Vec::new(), stats);
    assert!(block_on(none.next()).unwrap().is_none());
}
