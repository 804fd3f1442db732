//! The metadata of parts, and contents that span several reads.

use super::*;

/// A part of one series with a sample for each of some services.
fn of_services(root: &Path, services: usize) -> PartMeta {
    let runs = (0..services).map(|n| {
        let mut run = series(&[("__name__", "m"), ("n", &n.to_string())], &format!("service-{n:04}"));
        run.samples.push(1, 1.0, 0);
        run
    });
    write(root, 0, &sorted(runs.collect()))
}

#[test]
fn services_are_listed_while_they_are_few() {
    let dir = tempfile::tempdir().unwrap();
    let few = of_services(dir.path(), SERVICES_MAX);
    assert_eq!((few.services.len(), few.services_all), (SERVICES_MAX, false));
    assert!(few.services.is_sorted());
    let may_show = |meta: &PartMeta, service: &str| meta.may_show(&Access::services([service]));
    assert!(may_show(&few, "service-0999") && !may_show(&few, "service-1000"));
    assert!(!few.may_show(&Access::services(Vec::<&str>::new())) && few.may_show(&Access::full()));
    let many = of_services(dir.path(), SERVICES_MAX + 1);
    assert_eq!((many.services.len(), many.services_all), (0, true));
    assert!(may_show(&many, "service-1000") && may_show(&many, "any other"));
}

#[test]
fn files_are_named_after_day_and_part() {
    let id = Uuid::from_u128(7);
    assert_eq!(part_key("t", 0, id, "rows"), "t/1970-01-01/00000000-0000-0000-0000-000000000007.rows.parquet");
    assert!(part_key("t", -1, id, "rows").starts_with("t/1969-12-31/"));
    let keys = planned_keys("logs", 20_000, id, &["rows", "index"]);
    assert_eq!(keys, ["rows", "index"].map(|kind| part_key("logs", 20_000, id, kind)));
    assert!(planned_keys("logs", 20_000, id, &[]).is_empty());
}

#[test]
fn a_description_is_of_its_main_file_alone() {
    let dir = tempfile::tempdir().unwrap();
    let meta = write(dir.path(), 0, &small());
    assert_eq!(meta.file("samples").map(|file| file.rows), Some(200));
    assert!(meta.file("rows").is_none());
    assert_eq!(meta.range(), MillisRange::new(0, 139));
    let io = LocalIo::new(dir.path(), dir.path());
    let main = &meta.files[0];
    let read = |bytes: u64| block_on(PartMeta::read(&io, &main.key, Place::Spool, bytes));
    assert_eq!(read(main.bytes).unwrap(), PartMeta { place: Place::Spool, ..meta.clone() });
    let short = read(11).unwrap_err();
    assert_eq!(short.message, format!("file `{}` is damaged: it is too short", main.key));
    // As if the object ended before its footer.
    let cut = read(main.bytes - 1).unwrap_err();
    assert_eq!(cut.message, format!("file `{}` is damaged: it has no footer", main.key));
    assert_eq!(cut.kind(), crate::ErrorKind::Damaged);
}

/// Exemplars and histograms are read some thousands of rows ahead, over the borders of series.
#[test]
fn whole_series_come_however_many_rows_are_read_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let counts = [(3000, 0), (0, 5), (1097, 700), (5000, 0), (0, 0), (1, 4000), (2, 1)];
    let runs = counts.iter().enumerate().map(|(n, &(exemplars, hists))| {
        let mut run = series(&[("__name__", "m"), ("n", &n.to_string())], "web");
        run.samples.push(n as i64, 0.5, 0);
        for ts in 0..exemplars {
            run.exemplars.push(RunExemplar { ts, value: ts as f64, labels: LabelSet::default() });
        }
        let hist = Histogram { count: n as f64, ..Histogram::default() };
        (0..hists).for_each(|ts| run.hists.push(ts, hist.clone(), 0));
        run
    });
    let runs = sorted(runs.collect());
    let part = open(dir.path(), &write(dir.path(), 1, &runs));
    let read = block_on(read_all(&part)).unwrap();
    assert_eq!(read.len(), counts.len());
    for (read, run) in read.iter().zip(&runs) {
        let counts = |run: &SeriesRun| (run.exemplars.len(), run.hists.len(), run.samples.len());
        assert_eq!(counts(read), counts(run), "{:?}", run.labels);
        assert_eq!(bits(read), bits(run));
    }
}

#[test]
fn what_a_part_has_not_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = series(&[("__name__", "m")], "");
    run.hists.push(5, histogram(2), 0);
    let part = open(dir.path(), &write(dir.path(), 0, &[run]));
    assert_eq!(part.meta.files.iter().map(|f| f.kind.as_str()).collect::<Vec<_>>(), ["series", "histograms", "index"]);
    let stats = Arc::new(ReadStats::default());
    let wanted = [SeriesRows { series: 0, first: 0, rows: 1 }];
    let runs = block_on(part.read_floats(&wanted, MillisRange::ALL, StartTimes::Read, &stats)).unwrap();
    assert_eq!((runs.len(), runs[0].len()), (1, 0));
    assert!(block_on(part.read_exemplars(&wanted, MillisRange::ALL, &stats)).unwrap()[0].is_empty());
    assert!(!block_on(part.has_start_times(&stats)).unwrap());
    let mut chunks = float_samples::FloatChunks::new(Arc::clone(&part), wanted.to_vec(), Arc::clone(&stats));
    assert!(block_on(chunks.next()).unwrap().is_none());
    assert!(block_on(part.rows(&stats)).unwrap().is_empty());
    assert_eq!(read_stats::get(&stats.objects_read), 0);
    // One that is there, but out of the range.
    let hists = block_on(part.read_hists(&wanted, MillisRange::new(6, 9), StartTimes::Read, &stats)).unwrap();
    assert_eq!((hists.len(), hists[0].len(), read_stats::get(&stats.samples)), (1, 0, 0));
}

/// What a query takes for its series is asked for before, and refused as a whole.
#[test]
fn labels_and_series_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let part = open(dir.path(), &write(dir.path(), 0, &small()));
    let (budget, stats) = Budget::of(1 << 20);
    let numbers: Vec<u32> = (0..5).collect();
    let labels = block_on(part.labels(&numbers, None, &stats)).unwrap();
    assert_eq!(labels.iter().map(|label| &*label.name).collect::<Vec<_>>(), ["__name__", "s"]);
    assert!(budget.taken() > 0, "codes and texts are there as long as the query");
    for most in [0, 60] {
        let (budget, stats) = Budget::of(most);
        let error = block_on(part.labels(&numbers, None, &stats)).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::LimitExceeded);
        assert!(budget.taken() <= most);
    }
}
