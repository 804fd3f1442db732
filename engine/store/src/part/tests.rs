//! Parts written and read back: values are equal bit for bit, only the pages needed are read, and every flipped bit is
//! detected.

mod contents;
mod long_labels;
mod memory;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMillisecondArray};
use bytes::Bytes;
use proptest::prelude::*;
use quiver_types::tables::metric_metadata;
use quiver_types::{Histogram, LabelSet, MillisRange, ReadStats, Span, read_stats};

pub(super) use memory::Budget;

use super::*;
use crate::cache::Caches;
use crate::io::{LocalIo, PartIo};
use crate::series_run::{RunExemplar, SeriesRun};

pub(super) fn spec(level: u8) -> PartSpec {
    PartSpec {
        table: "metrics".to_owned(),
        day: 20_000,
        level,
        id: Uuid::now_v7(),
        origin: PartOrigin::Flushed {
            writer: Uuid::nil(),
            generation: 7,
            flush_id: Uuid::max(),
            output: 0,
            outputs: 1,
        },
        place: Place::Store,
        window: 0,
        compression: if level == 0 { PartCompression::Fresh } else { PartCompression::Compacted },
    }
}

pub(super) fn write(root: &Path, level: u8, runs: &[SeriesRun]) -> PartMeta {
    let mut writer = PartWriter::metrics(root, spec(level));
    for run in runs {
        writer.push(run).unwrap();
    }
    writer.finish().unwrap()
}

pub(super) fn open(root: &Path, meta: &PartMeta) -> Arc<Part> {
    let io = Arc::new(LocalIo::new(root, root));
    Arc::new(Part::new(meta.clone(), io, Arc::new(Caches::local(64 << 20))))
}

pub(super) fn series(pairs: &[(&str, &str)], service: &str) -> SeriesRun {
    SeriesRun::new(LabelSet::from_pairs(pairs.iter().copied()), Arc::from(service))
}

fn sorted(mut runs: Vec<SeriesRun>) -> Vec<SeriesRun> {
    runs.sort_by(|a, b| a.labels.cmp_series(&b.labels));
    runs.iter_mut().for_each(SeriesRun::normalize);
    runs
}

type Bits = (LabelSet, String, Vec<(i64, u64, i64)>, Vec<(i64, Vec<u8>, i64)>, Vec<(i64, u64, LabelSet)>);

/// Everything in a run, with bits instead of floats.
fn bits(run: &SeriesRun) -> Bits {
    assert_eq!(run.id, run.labels.id());
    (
        run.labels.clone(),
        run.service.to_string(),
        (0..run.samples.len())
            .map(|i| (run.samples.ts[i], run.samples.values[i].to_bits(), run.samples.start(i)))
            .collect(),
        (0..run.hists.len())
            .map(|i| (run.hists.ts[i], run.hists.hists[i].canonical_bytes(), run.hists.start(i)))
            .collect(),
        run.exemplars.iter().map(|e| (e.ts, e.value.to_bits(), e.labels.clone())).collect(),
    )
}

async fn read_all(part: &Arc<Part>) -> crate::Result<Vec<SeriesRun>> {
    let mut reader = part.runs();
    let mut out = Vec::new();
    while let Some(run) = reader.next().await? {
        out.push(run);
    }
    Ok(out)
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn histogram(i: u64) -> Histogram {
    Histogram {
        schema: (i % 9) as i32,
        zero_threshold: 1e-128,
        zero_count: i as f64,
        count: (10 * i) as f64,
        sum: i as f64 / 3.0,
        positive_spans: vec![Span { offset: -(i as i32 % 5), length: 2 }, Span { offset: 4, length: 1 }],
        positive: vec![1.0, i as f64, 3.0],
        negative_spans: if i.is_multiple_of(2) { vec![] } else { vec![Span { offset: 0, length: 1 }] },
        negative: if i.is_multiple_of(2) { vec![] } else { vec![f64::from_bits(i)] },
        custom_bounds: if i.is_multiple_of(3) { vec![0.5, f64::INFINITY] } else { vec![] },
        reset_hint: quiver_types::ResetHint::from_number((i % 4) as u8),
        float: i.is_multiple_of(2),
    }
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-2000i32..2000, -3..4i32).prop_map(|(n, k)| f64::from(n) / 10f64.powi(k)),
        1 => any::<u64>().prop_map(f64::from_bits),
        1 => any::<i64>().prop_map(|n| n as f64),
        1 => prop_oneof![Just(-0.0), Just(f64::NAN), Just(f64::INFINITY), Just(quiver_types::stale_nan())],
    ]
}

prop_compose! {
    fn run(number: usize)(
        samples in prop::collection::vec((0i64..3000, value(), prop_oneof![3 => Just(0i64), 1 => -5i64..5]), 0..120),
        starts in any::<bool>(),
        hists in prop::collection::vec((0i64..3000, 0u64..50, -3i64..3), 0..6),
        exemplars in prop::collection::vec((0i64..3000, value(), 0..3usize), 0..4),
        label in "[a-zé]{0,3}",
        service in prop_oneof![Just(""), Just("web"), Just("db")],
    ) -> SeriesRun {
        let number = number.to_string();
        let metric = if label.len() % 2 == 0 { "m" } else { "n" };
        let mut out = series(&[("__name__", metric), ("l", &label), ("n", &number)], service);
        for (ts, v, start) in samples {
            out.samples.push(ts, v, if starts { start } else { 0 });
        }
        for (ts, h, start) in hists {
            out.hists.push(ts, histogram(h), start);
        }
        for (ts, value, n) in exemplars {
            let labels = LabelSet::from_pairs([("trace_id", "abc"), ("span", "d")].into_iter().take(n));
            out.exemplars.push(RunExemplar { ts, value, labels });
        }
        out
    }
}

fn runs() -> impl Strategy<Value = Vec<SeriesRun>> {
    (1..8usize).prop_flat_map(|n| (0..n).map(run).collect::<Vec<_>>()).prop_map(|runs| {
        let mut runs = sorted(runs);
        runs.retain(|r| !r.is_empty());
        runs
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn round_trip(runs in runs(), level in 0u8..2, min in 0i64..3000, len in 0i64..3000, pick in any::<u8>()) {
        let dir = tempfile::tempdir().unwrap();
        if runs.is_empty() {
            prop_assert!(PartWriter::metrics(dir.path(), spec(level)).finish().is_err());
            return Ok(());
        }
        let meta = write(dir.path(), level, &runs);
        let part = open(dir.path(), &meta);
        let read = block_on(read_all(&part)).unwrap();
        prop_assert_eq!(read.iter().map(bits).collect::<Vec<_>>(), runs.iter().map(bits).collect::<Vec<_>>());
        block_on(part.verify()).unwrap();

        let range = MillisRange::new(min, min + len);
        let stats = ReadStats::default();
        let table = block_on(part.series_page(0, &stats)).unwrap();
        let wanted: Vec<u32> = (0..runs.len() as u32).filter(|s| pick & (1 << s) != 0).collect();
        let rows = |f: fn(&SeriesPage, u32) -> SeriesRows| wanted.iter().map(|&s| f(&table, s)).collect::<Vec<_>>();
        let floats = block_on(part.read_floats(&rows(SeriesPage::samples), range, StartTimes::Read, &stats)).unwrap();
        let hists = block_on(part.read_hists(&rows(SeriesPage::hists), range, StartTimes::Read, &stats)).unwrap();
        let exemplars = block_on(part.read_exemplars(&rows(SeriesPage::exemplars), range, &stats)).unwrap();
        for (i, &s) in wanted.iter().enumerate() {
            let mut expected = runs[s as usize].clone();
            expected.samples.cut(range);
            expected.hists.cut(range);
            expected.exemplars.retain(|e| range.contains(e.ts));
            let mut got = SeriesRun::new(block_on(part.label_set(s, &stats)).unwrap(), Arc::clone(table.service(s)));
            (got.samples, got.hists, got.exemplars) = (floats[i].clone(), hists[i].clone(), exemplars[i].clone());
            prop_assert_eq!(bits(&got), bits(&expected));
            prop_assert_eq!(table.range(s), runs[s as usize].time_range().unwrap());
            prop_assert_eq!(table.id(s), runs[s as usize].id);
        }
    }
}

#[test]
fn what_the_catalog_knows_can_be_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut a = series(&[("__name__", "a"), ("x", "1")], "web");
    a.samples.push(5, 1.0, 0);
    a.hists.push(9, histogram(1), 0);
    a.exemplars.push(RunExemplar { ts: 3, value: 1.0, labels: LabelSet::default() });
    let mut b = series(&[("__name__", "b")], "");
    b.samples.push(-7, 0.5, 0);
    let meta = write(dir.path(), 1, &[a, b]);
    assert_eq!((meta.min_ts, meta.max_ts, meta.rows, meta.series, meta.has_histograms), (-7, 9, 4, 2, true));
    assert_eq!(meta.services, ["", "web"]);
    assert_eq!(meta.names, NameFilter::List(vec!["a".into(), "b".into()]));
    let kinds: Vec<_> = meta.files.iter().map(|f| f.kind.as_str()).collect();
    assert_eq!(kinds, ["series", "samples", "histograms", "exemplars", "index"]);
    let mut keys: Vec<_> = meta.files.iter().map(|f| f.key.clone()).collect();
    let mut planned = planned_keys("metrics", 20_000, meta.id, &KINDS[..5]);
    keys.sort();
    planned.sort();
    assert_eq!(keys, planned);
    assert!(keys[0].starts_with("metrics/2024-10-04/"));
    for file in &meta.files {
        assert_eq!(std::fs::metadata(dir.path().join(&file.key)).unwrap().len(), file.bytes);
    }
    let io = LocalIo::new(dir.path(), dir.path());
    let main = &meta.files[0];
    assert_eq!(block_on(PartMeta::read(&io, &main.key, Place::Store, main.bytes)).unwrap(), meta);
    let sibling = &meta.files[1];
    assert!(block_on(PartMeta::read(&io, &sibling.key, Place::Store, sibling.bytes)).is_err());
    let text = serde_json::to_string(&meta).unwrap();
    assert_eq!(serde_json::from_str::<PartMeta>(&text).unwrap(), meta);
}

#[test]
fn unfinished_parts_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = PartWriter::metrics(dir.path(), spec(0));
    let mut a = series(&[("__name__", "a")], "");
    for i in 0..100_000 {
        a.samples.push(i, 1.0, 0);
    }
    a.hists.push(100_001, histogram(1), 0);
    writer.push(&a).unwrap();
    let files = || std::fs::read_dir(dir.path().join("metrics/2024-10-04")).unwrap().count();
    assert_eq!(files(), 1);
    drop(writer);
    assert_eq!(files(), 0);
}

/// A number below 2^20 that no codec makes small.
fn random(seed: i64) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&seed.to_le_bytes()) >> 44
}

/// 70 series of 20,000 samples: two row groups, one series across both.
fn large(starts_from: usize) -> Vec<SeriesRun> {
    sorted(
        (0..70)
            .map(|s| {
                let name = format!("{s:02}");
                let mut run = series(&[("__name__", "m"), ("s", &name)], "");
                for i in 0..20_000i64 {
                    let v = if (i + s) % 5000 == 0 {
                        f64::NAN
                    } else {
                        random(i * 70 + s) as f64 / 10f64.powi(s as i32 % 4)
                    };
                    run.samples.push(i * 1000, v, if s as usize >= starts_from { i % 3 } else { 0 });
                }
                run
            })
            .collect(),
    )
}

#[test]
fn only_needed_pages_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let runs = large(usize::MAX);
    let meta = write(dir.path(), 0, &runs);
    let part = open(dir.path(), &meta);
    let file = meta.file("samples").unwrap();
    let read = |wanted: &[u32], range: MillisRange| {
        let stats = ReadStats::default();
        let table = block_on(part.series_page(0, &stats)).unwrap();
        let rows: Vec<_> = wanted.iter().map(|&s| table.samples(s)).collect();
        let got = block_on(part.read_floats(&rows, range, StartTimes::Skip, &stats)).unwrap();
        for (&s, got) in wanted.iter().zip(got) {
            let expected = runs[s as usize].samples.slice(range);
            assert_eq!(got.ts, expected.ts);
            assert!(got.values.iter().zip(&expected.values).all(|(a, b)| a.to_bits() == b.to_bits()));
            assert!(got.start_ts.is_empty());
        }
        stats
    };
    let stats = read(&[3], MillisRange::ALL);
    let count = |c: &AtomicU64| read_stats::get(c);
    assert_eq!(count(&stats.objects_read), 4, "two footers, the series table, the pages");
    assert!(count(&stats.index_bytes_read) > 0);
    // 20,000 rows are on five or six pages of each column.
    assert!(count(&stats.pages_read) <= 6 * 4, "{stats:?}");
    assert!(count(&stats.pages_total) > 600, "{stats:?}");
    assert!(count(&stats.bytes_read) < file.bytes / 3, "{stats:?}");
    assert_eq!(count(&stats.samples), 20_000);

    let stats = read(&[3], MillisRange::ALL);
    assert_eq!((count(&stats.index_bytes_read), count(&stats.objects_read)), (0, 1), "footers and series are cached");
    let whole_series = count(&stats.pages_read);
    let stats = read(&[3], MillisRange::new(9_000_000, 9_500_000));
    assert!(count(&stats.pages_read) < whole_series, "{stats:?}");
    assert_eq!(count(&stats.samples), 501);
    // 1,048,576 / 20,000 = 52.4: this one lies in both row groups.
    read(&[52], MillisRange::ALL);
    read(&[0, 52, 69], MillisRange::new(7_000, 19_000_000));
    read(&(0..70).collect::<Vec<_>>(), MillisRange::new(8_191_000, 8_193_000));
    read(&[], MillisRange::ALL);
    read(&[5], MillisRange::new(30_000_000, 40_000_000));
}

#[test]
fn streams_give_whole_series_in_order() {
    let dir = tempfile::tempdir().unwrap();
    // The first 40 series have no start times: the file is begun without them and then rewritten.
    let runs = large(40);
    let meta = write(dir.path(), 1, &runs);
    assert_eq!(std::fs::read_dir(dir.path().join("metrics/2024-10-04")).unwrap().count(), 3);
    let part = open(dir.path(), &meta);
    let read = block_on(read_all(&part)).unwrap();
    assert!(read.iter().map(bits).eq(runs.iter().map(bits)));
    assert!(!read[41].samples.start_ts.is_empty() && read[3].samples.start_ts.is_empty());
    let stats = Arc::new(ReadStats::default());
    let table = block_on(part.series_page(0, &stats)).unwrap();
    let wanted: Vec<_> = (0..70).step_by(2).map(|s| table.samples(s)).collect();
    let mut chunks = float_samples::FloatChunks::new(Arc::clone(&part), wanted, stats);
    let mut next = 0;
    while let Some((i, run)) = block_on(chunks.next()).unwrap() {
        let expected = &runs[2 * i].samples;
        assert_eq!((i, &run.ts), (next, &expected.ts));
        assert!(run.values.iter().zip(&expected.values).all(|(a, b)| a.to_bits() == b.to_bits()));
        next += 1;
    }
    assert_eq!(next, 35);
}

/// Few series with everything in them; small enough to flip many of its bits.
pub(super) fn small() -> Vec<SeriesRun> {
    sorted(
        (0..5u64)
            .map(|s| {
                let name = s.to_string();
                let mut run = series(&[("__name__", "m"), ("s", &name)], "web");
                for i in 0..40 {
                    run.samples.push(i, i as f64 / 3.0, i % 2);
                    run.hists.push(100 + i, histogram(s), 0);
                    run.exemplars.push(RunExemplar { ts: i, value: 0.5, labels: LabelSet::from_pairs([("t", "x")]) });
                }
                run
            })
            .collect(),
    )
}

#[test]
fn every_flipped_bit_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let meta = write(dir.path(), 1, &small());
    let io = LocalIo::new(dir.path(), dir.path());
    for file in &meta.files {
        let path = dir.path().join(&file.key);
        let good = std::fs::read(&path).unwrap();
        for at in (0..good.len()).step_by(7).chain(good.len() - 12..good.len()) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bad).unwrap();
            let part = open(dir.path(), &meta);
            let error = block_on(part.verify()).expect_err("verify reads everything");
            assert!(error.message.contains(&file.key), "{error}");
            // Reading all rows does not need the index.
            if file.kind != "index" {
                let error = block_on(read_all(&part)).expect_err("a damaged file gives no rows");
                assert!(error.message.contains(&file.key), "{error}");
            }
            if file.kind == "series" {
                // Found or not: never a panic, and never another description.
                if let Ok(read) = block_on(PartMeta::read(&io, &file.key, Place::Store, file.bytes)) {
                    assert_eq!(read.files[1..], meta.files[1..]);
                }
                io.forget(&file.key, Place::Store);
            }
        }
        for len in [0, 3, good.len() / 2, good.len() - 1] {
            std::fs::write(&path, &good[..len]).unwrap();
            let error = block_on(open(dir.path(), &meta).verify()).expect_err("a truncated file");
            assert!(error.message.contains(&file.key), "{error}");
        }
        std::fs::write(&path, &good).unwrap();
    }
    block_on(open(dir.path(), &meta).verify()).unwrap();
}

/// A remote store: counts requests, and checks that nobody asks for more than there is.
#[derive(Debug)]
struct Remote {
    local: LocalIo,
    requests: AtomicU64,
}

#[async_trait::async_trait]
impl PartIo for Remote {
    async fn read(&self, key: &str, place: Place, ranges: &[Range<u64>]) -> crate::Result<Vec<Bytes>> {
        self.requests.fetch_add(1, Relaxed);
        self.local.read(key, place, ranges).await
    }

    fn remote(&self, place: Place) -> bool {
        place == Place::Store
    }
}

#[test]
fn a_second_run_asks_a_remote_store_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let runs = large(0);
    let meta = write(dir.path(), 0, &runs);
    let io = Arc::new(Remote { local: LocalIo::new(dir.path(), dir.path()), requests: AtomicU64::new(0) });
    let part = Arc::new(Part::new(meta, Arc::clone(&io) as Arc<dyn PartIo>, Arc::new(Caches::remote(64 << 20))));
    let stats = ReadStats::default();
    let table = block_on(part.series_page(0, &stats)).unwrap();
    let read = |wanted: &[u32]| {
        let rows: Vec<_> = wanted.iter().map(|&s| table.samples(s)).collect();
        let got = block_on(part.read_floats(&rows, MillisRange::ALL, StartTimes::Read, &stats)).unwrap();
        for (&s, got) in wanted.iter().zip(got) {
            assert_eq!(got.ts, runs[s as usize].samples.ts);
            assert_eq!(got.start_ts, runs[s as usize].samples.start_ts);
        }
        io.requests.load(Relaxed)
    };
    let first = read(&[7, 30]);
    assert_eq!(first, 3, "the small file as a whole, a footer, the pages");
    assert_eq!(read(&[7, 30]), first);
    assert_eq!(read(&[30]), first);
    assert_eq!(read(&[7, 12, 30]), first + 1);
    assert_eq!(read(&(0..70).collect::<Vec<_>>()), first + 2);
    assert_eq!(read(&(0..70).collect::<Vec<_>>()), first + 2);
}

fn many_series() -> Vec<SeriesRun> {
    let mut runs = Vec::new();
    for i in 0..6000u32 {
        let mut pairs: BTreeMap<String, String> = BTreeMap::new();
        pairs.insert("__name__".into(), format!("metric_{}", i % 7));
        pairs.insert("instance".into(), format!("host-{}", i % 500));
        pairs.insert("id".into(), i.to_string());
        if i % 3 == 0 {
            pairs.insert("zone".into(), ["a", "b", "é"][(i / 3 % 3) as usize].to_owned());
        }
        // More labels than columns, so that some are in the map alone.
        for l in 0..20 {
            if (i + l) % (l + 2) == 0 {
                pairs.insert(format!("l{l:02}"), (i % (l + 3)).to_string());
            }
        }
        let pairs: Vec<_> = pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let mut run = series(&pairs, ["", "web", "db"][(i % 3) as usize]);
        run.samples.push(i64::from(i), 1.0, 0);
        run.samples.push(i64::from(i) + 100, 1.0, 0);
        runs.push(run);
    }
    sorted(runs)
}

#[test]
fn series_and_labels_are_read_by_page() {
    let dir = tempfile::tempdir().unwrap();
    let runs = many_series();
    let meta = write(dir.path(), 1, &runs);
    let part = open(dir.path(), &meta);
    let stats = ReadStats::default();
    assert_eq!(block_on(part.confirm_series(&stats)).unwrap(), 6000);
    // All, some of them, few of them.
    for step in [1, 3, 1000] {
        let numbers: Vec<u32> = (1..6000).step_by(step).collect();
        let pages = block_on(part.series_pages(&numbers, &stats)).unwrap();
        assert_eq!(pages.len(), 2);
        let chosen = ChosenSeries::new(&pages, &numbers, &stats).unwrap();
        let labels = block_on(part.labels(&numbers, None, &stats)).unwrap();
        assert!(labels.is_sorted_by(|a, b| a.name < b.name));
        for (i, &number) in numbers.iter().enumerate() {
            let run = &runs[number as usize];
            let page = &pages[usize::from(number >= 4096)];
            assert_eq!((page.id(number), &**page.service(number)), (run.id, &*run.service));
            let rows = SeriesRows { series: number, first: 2 * u64::from(number), rows: 2 };
            assert_eq!((chosen.samples(number), page.samples(number)), (rows, rows));
            assert_eq!((chosen.hists(number).rows, chosen.exemplars(number).rows), (0, 0));
            assert_eq!(chosen.range(number), run.time_range().unwrap());
            assert_eq!(chosen.block(number), page.block(number));
            assert!(chosen.block(number).contains(&number));
            let pairs = labels.iter().map(|label| (&*label.name, &*label.values[label.codes[i] as usize]));
            assert_eq!(LabelSet::from_pairs(pairs), run.labels);
        }
        // By columns, by the map, and by the index.
        for wanted in [&["zone", "missing"][..], &["l00", "l19", "zone"], &["__name__"]] {
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            let labels = block_on(part.labels(&numbers, Some(&wanted), &stats)).unwrap();
            assert!(labels.iter().all(|label| wanted.iter().any(|name| **name == *label.name)));
            for name in &wanted {
                let label = labels.iter().find(|label| *label.name == **name);
                for (i, &number) in numbers.iter().enumerate() {
                    let found = label.map_or("", |label| &label.values[label.codes[i] as usize]);
                    assert_eq!(found, runs[number as usize].labels.get(name), "{name} of {number}");
                }
            }
        }
    }
}

#[test]
fn an_index_is_the_same_on_disk_and_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let runs = many_series();
    let meta = write(dir.path(), 0, &runs);
    let mut old = meta.clone();
    old.files.retain(|file| file.kind != "index");
    let (new, old) = (open(dir.path(), &meta), open(dir.path(), &old));
    let stats = ReadStats::default();
    let (file, memory) = (block_on(new.label_index(&stats)).unwrap(), block_on(old.label_index(&stats)).unwrap());
    assert!(matches!((&file, &memory), (LabelIndex::File(_), LabelIndex::Memory(_))));
    assert_eq!(file.names(), memory.names());
    for name in file.names() {
        let rows = file.rows(name).unwrap();
        assert_eq!(memory.rows(name), Some(rows.clone()));
        let values = |index: &LabelIndex<'_>| {
            let mut out = Vec::new();
            block_on(
                index.values(std::slice::from_ref(&rows), &stats, &mut |row, value| out.push((row, value.to_owned()))),
            )
            .unwrap();
            out
        };
        let all = values(&file);
        assert_eq!(values(&memory), all);
        for (row, value) in all.iter().step_by(37) {
            let naive = (0..).zip(&runs).filter(|(_, run)| run.labels.get(name) == value).map(|(n, _)| n);
            let naive: Vec<u32> = naive.collect();
            for index in [&file, &memory] {
                assert_eq!(block_on(index.find(rows.clone(), &[value], &stats)).unwrap(), [*row]);
                assert_eq!(block_on(index.one(*row, &stats)).unwrap().iter().collect::<Vec<_>>(), naive);
                assert!(index.with_prefix(rows.clone(), value).iter().any(|run| run.contains(row)));
            }
        }
        let some: Vec<u64> = rows.clone().step_by(3).collect();
        assert_eq!(block_on(file.union(&some, &stats)).unwrap(), block_on(memory.union(&some, &stats)).unwrap());
        let wanted = ["", "1", "3999", "4000", "host-3", "nothing", "zzz"];
        let found = block_on(file.find(rows.clone(), &wanted, &stats)).unwrap();
        assert_eq!(found, block_on(memory.find(rows.clone(), &wanted, &stats)).unwrap());
    }
    // A prefix leaves the pages that may have it.
    let rows = file.rows("id").unwrap();
    let narrow = file.with_prefix(rows.clone(), "47");
    let left: u64 = narrow.iter().map(|run| run.end - run.start).sum();
    assert!(left <= 3 * 1024 && rows.end - rows.start == 6000, "{narrow:?} of {rows:?}");
    assert_eq!(block_on(file.count(&stats)).unwrap(), block_on(memory.count(&stats)).unwrap());
}

#[test]
fn tables_with_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let text = |values: [&str; 3]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
    let columns = vec![
        Arc::new(TimestampMillisecondArray::from(vec![5, 7, 6]).with_timezone("UTC")) as ArrayRef,
        text(["a", "b", "b"]),
        text(["counter", "gauge", "gauge"]),
        text(["help", "", "héłp"]),
        text(["", "", "s"]),
        text(["web", "", "web"]),
    ];
    let batch = RecordBatch::try_new(metric_metadata::rows(), columns).unwrap();
    let spec = PartSpec { table: "metric_metadata".into(), ..spec(0) };
    let meta = write_rows_part(dir.path(), spec.clone(), &batch).unwrap();
    assert_eq!((meta.min_ts, meta.max_ts, meta.rows), (5, 7, 3));
    assert_eq!(meta.services, ["", "web"]);
    assert!(meta.names.may_contain("b") && !meta.names.may_contain("c"));
    let part = open(dir.path(), &meta);
    let stats = ReadStats::default();
    let rows = block_on(part.rows(&stats)).unwrap();
    assert_eq!(rows, std::slice::from_ref(&batch));
    block_on(part.verify()).unwrap();
    let io = LocalIo::new(dir.path(), dir.path());
    assert_eq!(block_on(PartMeta::read(&io, &meta.files[0].key, Place::Store, meta.bytes)).unwrap(), meta);
    assert!(write_rows_part(dir.path(), spec.clone(), &batch.slice(0, 0)).is_err());
    assert!(write_rows_part(dir.path(), spec, &batch.project(&[0, 1]).unwrap()).is_err());
}
