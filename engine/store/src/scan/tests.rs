//! A scan over parts and live generations gives what a naive merge of all samples gives.

mod decoded_hours;
mod speed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type, UInt32Type};
use datafusion::physical_plan::displayable;
use proptest::prelude::*;
use quiver_query::scan_table;
use quiver_types::histogram::read_histogram;
use quiver_types::read_stats::get;
use quiver_types::source::SeriesSource;
use quiver_types::{
    Access, Histogram, LabelSet, MatchOp, Matcher, Millis, MillisRange, ReadStats, SampleRequest, SelectedSeries,
    SeriesSelector, stale_nan,
};

use crate::select::testing::{Item, World, labels, scan, select, service_labels, wait};
use crate::series_run::{SeriesRun, cmp_float, cmp_histogram};

/// Samples of a series: time, bits, start time; time, histogram, start time.
#[derive(Debug, Default, Clone, PartialEq)]
struct Content {
    floats: Vec<(Millis, u64, Millis)>,
    hists: Vec<(Millis, Vec<u8>, Millis)>,
}

fn times(batch: &RecordBatch, column: &str, row: usize) -> Option<Vec<Millis>> {
    let column = batch.column_by_name(column)?;
    let list = match column.as_list_view_opt::<i32>() {
        Some(views) => views.value(row),
        None => column.as_list::<i32>().value(row),
    };
    assert_eq!(list.null_count(), 0);
    Some(list.as_primitive::<Int64Type>().values().to_vec())
}

/// Reads batches back, and checks their shape.
fn contents(selected: &SelectedSeries, batches: &[RecordBatch]) -> BTreeMap<Vec<u8>, Content> {
    let mut out = BTreeMap::new();
    for batch in batches {
        let rows = batch.column_by_name("row").expect("a row").as_primitive::<UInt32Type>().values().to_vec();
        assert!(rows.is_sorted() && !rows.is_empty());
        for (i, &row) in rows.iter().enumerate() {
            let mut content = Content::default();
            if let Some(ts) = times(batch, "ts", i) {
                let values = batch.column_by_name("v").expect("values").as_list_view::<i32>().value(i);
                let values = values.as_primitive::<Float64Type>().values().to_vec();
                let starts = times(batch, "start_ts", i).unwrap_or_default();
                assert!(starts.is_empty() || starts.len() == ts.len());
                let starts = starts.into_iter().chain(std::iter::repeat(0));
                assert!(ts.windows(2).all(|w| w[0] < w[1]));
                content.floats =
                    ts.into_iter().zip(values).zip(starts).map(|((t, v), s)| (t, v.to_bits(), s)).collect();
            }
            if let Some(ts) = times(batch, "h_ts", i) {
                let hists = batch.column_by_name("h").expect("histograms").as_list::<i32>().value(i);
                let hists = hists.as_struct().clone();
                let starts = times(batch, "h_start_ts", i).unwrap_or_default();
                assert!(starts.is_empty() || starts.len() == ts.len());
                let starts = starts.into_iter().chain(std::iter::repeat(0));
                let bytes = (0..hists.len()).map(|n| read_histogram(&hists, n).expect("a histogram").canonical_bytes());
                content.hists = ts.into_iter().zip(bytes).zip(starts).map(|((t, h), s)| (t, h, s)).collect();
            }
            let labels = LabelSet::from_pairs(selected.table.labels(row as usize));
            assert!(out.insert(labels.canonical().to_vec(), content).is_none(), "a series comes once");
        }
    }
    out
}

#[derive(Debug, Clone)]
struct Sample {
    series: usize,
    ts: Millis,
    item: Item,
    /// 0 and 1: generations; else parts.
    home: usize,
}

fn pool() -> Vec<LabelSet> {
    let mut out = Vec::new();
    for metric in ["m0", "m1", "other"] {
        for job in ["", "a", "b"] {
            for instance in ["", "1", "2"] {
                out.push(labels(&[("__name__", metric), ("job", job), ("instance", instance)]));
            }
        }
    }
    out.push(labels(&[("__name__", "m0"), ("Zone", "z"), ("service_name", "b"), ("job", "a")]));
    out
}

fn histogram(n: u8) -> Histogram {
    if n == 0 { Histogram::stale() } else { Histogram { count: f64::from(n), sum: 1.5, ..Histogram::default() } }
}

fn sample() -> impl Strategy<Value = Sample> {
    let values = [0.0, -0.0, 1.0, 1.5, 2.0, -3.25, 1e300, f64::INFINITY, f64::NAN, stale_nan()];
    let float = (0..values.len(), 0..3i64).prop_map(move |(v, start)| Item::Float(values[v], start));
    let hist = (0..3u8, 0..3i64).prop_map(|(n, start)| Item::Hist(Box::new(histogram(n)), start));
    let item = prop_oneof![8 => float, 1 => hist];
    (0..pool().len(), 0..40i64, item, 0..6usize).prop_map(|(series, t, item, home)| Sample {
        series,
        ts: t * 1000,
        item,
        home,
    })
}

fn matcher() -> impl Strategy<Value = Matcher> {
    use MatchOp::{Equal, NotEqual, NotRegex, Regex};
    let all = [
        ("__name__", Equal, "m0"),
        ("__name__", Equal, "unknown"),
        ("__name__", Regex, "m0|m1"),
        ("__name__", Regex, "m.*"),
        ("__name__", NotEqual, "m1"),
        ("job", Equal, "a"),
        ("job", Equal, ""),
        ("job", NotEqual, "a"),
        ("job", Regex, "a|b"),
        ("job", NotRegex, "a?"),
        ("instance", Regex, ".+"),
        ("instance", Regex, "1?"),
        ("Zone", NotEqual, ""),
        ("missing", Equal, ""),
        ("missing", NotEqual, ""),
    ];
    (0..all.len()).prop_map(move |i| Matcher::new(all[i].0, all[i].1, all[i].2).expect("valid"))
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![Just(Access::full()), Just(Access::services(["a"])), Just(Access::services(["b", "nobody"]))]
}

/// What a caller may see, merged naively: the winner per series and time.
fn oracle(samples: &[(Sample, u64)], seq: u64, access: &Access) -> BTreeMap<usize, BTreeMap<Millis, Item>> {
    let pool = pool();
    let mut out: BTreeMap<usize, BTreeMap<Millis, Item>> = BTreeMap::new();
    for (sample, at) in samples {
        let labels = &pool[sample.series];
        if (sample.home < 2 && *at > seq) || !access.allows(labels.service(&service_labels())) {
            continue;
        }
        let known = out.entry(sample.series).or_default().entry(sample.ts).or_insert_with(|| sample.item.clone());
        let wins = match (&sample.item, &*known) {
            (Item::Float(v, s), Item::Float(w, t)) => cmp_float((*v, *s), (*w, *t)).is_gt(),
            (Item::Hist(v, s), Item::Hist(w, t)) => cmp_histogram((v, *s), (w, *t)).is_gt(),
            (new, _) => matches!(new, Item::Hist(..)),
        };
        if wins {
            *known = sample.item.clone();
        }
    }
    out
}

fn expected(items: &BTreeMap<Millis, Item>, request: &SampleRequest) -> Content {
    let mut out = Content::default();
    for (&ts, item) in items.iter().filter(|(ts, _)| request.range.contains(**ts)) {
        match item {
            Item::Float(v, start) if request.floats => {
                out.floats.push((ts, v.to_bits(), if request.start_times { *start } else { 0 }));
            }
            Item::Hist(h, start) if request.histograms => out.hists.push((ts, h.canonical_bytes(), *start)),
            _ => {}
        }
    }
    out
}

fn build(samples: Vec<Sample>) -> (World, Vec<(Sample, u64)>) {
    let pool = pool();
    let mut world = World::new();
    let mut placed = Vec::new();
    for home in 0..6 {
        let own: Vec<Sample> = samples.iter().filter(|s| s.home == home).cloned().collect();
        let item = |s: &Sample| (pool[s.series].clone(), s.ts, s.item.clone());
        if home >= 2 {
            if !own.is_empty() {
                world.add_part(&own.iter().map(item).collect::<Vec<_>>());
            }
            placed.extend(own.into_iter().map(|s| (s, 0)));
        } else {
            let generation = world.add_generation();
            for sample in own {
                let seq = world.insert(generation, &[item(&sample)]);
                placed.push((sample, seq));
            }
        }
    }
    (world, placed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn scan_is_the_naive_merge(
        samples in proptest::collection::vec(sample(), 0..160),
        questions in proptest::collection::vec(
            (proptest::collection::vec(matcher(), 0..3), 0..40i64, 0..40i64, access(), 0..16u8, 0..=100u64), 1..12),
    ) {
        let (world, placed) = build(samples);
        for (matchers, first, len, access, flags, cut) in questions {
            let seq = world.seq * cut / 100;
            let range = MillisRange::new(first * 1000, (first + len) * 1000);
            let request = SampleRequest { range, floats: flags & 3 != 0, histograms: flags & 3 != 1, start_times: flags & 4 != 0, read_repeatedly: flags & 8 != 0 };
            let truth = oracle(&placed, seq, &access);
            wait(async {
                let snapshot = world.source(seq).snapshot();
                let stats = Arc::new(ReadStats::default());
                let selector = SeriesSelector { matchers: matchers.clone(), range, labels: None };
                let selected = snapshot.select(&access, &selector, &stats).await.expect("selects");
                let rows: Vec<_> = (0..selected.table.len()).map(|r| LabelSet::from_pairs(selected.table.labels(r))).collect();
                for labels in &rows {
                    assert!(matchers.iter().all(|m| m.matches(labels.get(&m.name))), "{labels:?}");
                    assert!(access.allows(labels.service(&service_labels())), "{labels:?}");
                }
                let pool = pool();
                let mut wanted = BTreeMap::new();
                for (series, items) in &truth {
                    let labels = &pool[*series];
                    let content = expected(items, &request);
                    if content != Content::default() && matchers.iter().all(|m| m.matches(labels.get(&m.name))) {
                        assert!(selected.has_histograms || content.hists.is_empty());
                        wanted.insert(labels.canonical().to_vec(), content);
                    }
                }
                let (_, batches) = scan(&selected, request, 3, &stats).await;
                assert_eq!(contents(&selected, &batches), wanted);
                label_answers(&*snapshot, &truth, &access, &matchers, range).await;
            });
        }
    }
}

/// Names and values hold those of all series with samples in the range, and nothing of series that do not match or
/// that the caller may not see.
async fn label_answers(
    snapshot: &dyn quiver_types::SeriesSnapshot,
    truth: &BTreeMap<usize, BTreeMap<Millis, Item>>,
    access: &Access,
    matchers: &[Matcher],
    range: MillisRange,
) {
    let pool = pool();
    let matching = |series: &&usize| matchers.iter().all(|m| m.matches(pool[**series].get(&m.name)));
    let inside = |series: &&usize| truth[*series].keys().any(|&ts| range.contains(ts));
    let stats = ReadStats::default();
    let selectors = if matchers.is_empty() { vec![] } else { vec![matchers.to_vec(), matchers.to_vec()] };
    let check = |found: Vec<String>, give: &dyn Fn(&LabelSet) -> Vec<String>| {
        assert!(found.is_sorted());
        let found: BTreeSet<String> = found.into_iter().collect();
        let all = |series: &mut dyn Iterator<Item = &usize>| -> BTreeSet<String> {
            series.flat_map(|s| give(&pool[*s])).filter(|v| !v.is_empty()).collect()
        };
        let least = all(&mut truth.keys().filter(matching).filter(inside));
        let most = all(&mut truth.keys().filter(matching));
        assert!(least.is_subset(&found) && found.is_subset(&most), "{least:?} {found:?} {most:?}");
    };
    let found = snapshot.label_names(access, &selectors, range, &stats).await.expect("names");
    check(found, &|labels| labels.iter().map(|(name, _)| name.to_owned()).collect());
    for name in ["__name__", "job", "instance", "missing"] {
        let found = snapshot.label_values(access, name, &selectors, range, &stats).await.expect("values");
        check(found, &|labels| vec![labels.get(name).to_owned()]);
    }
}

/// Long series in several parts and live: many partitions, many windows.
#[test]
fn long_series_come_whole() {
    let mut world = World::new();
    let series: Vec<LabelSet> = (0..40).map(|i| labels(&[("__name__", "m"), ("i", &format!("{i:02}"))])).collect();
    for part in 0..2i64 {
        let runs = series.iter().map(|labels| {
            let mut run = SeriesRun::new(labels.clone(), Arc::from(""));
            (0..10_000).for_each(|i| run.samples.push((2 * i + part) * 1000, i as f64, 0));
            run
        });
        world.add_runs(runs.collect());
    }
    let generation = world.add_generation();
    world.insert(generation, &[(series[7].clone(), 30_000_000, Item::Float(7.0, 0))]);
    wait(async {
        let stats = Arc::new(ReadStats::default());
        let selected =
            select(&*world.snapshot(), vec![Matcher::equal("__name__", "m")], MillisRange::ALL, &stats).await;
        let (plan, batches) = scan(&selected, SampleRequest::default(), 3, &stats).await;
        let found = contents(&selected, &batches);
        assert_eq!(found.len(), 40);
        for (labels, content) in &found {
            let extra = usize::from(*labels == series[7].canonical());
            assert_eq!(content.floats.len(), 20_000 + extra);
            assert_eq!(content.floats[3], (3000, 1f64.to_bits(), 0));
        }
        assert_eq!(get(&stats.samples), 800_001);
        assert!(batches.len() > 5, "{}", batches.len());
        assert_eq!(plan.properties().partitioning.partition_count(), 3);
        let shown = displayable(&*plan).one_line().to_string();
        assert!(shown.starts_with("SamplesExec: ") && shown.contains(", series=40, parts=2/2, "), "{shown}");
        let metrics = plan.metrics().expect("metrics");
        assert_eq!(metrics.output_rows(), Some(40));
        let counted = |name: &str| metrics.sum_by_name(name).map(|v| v.as_usize() as u64);
        assert_eq!(counted("samples"), Some(800_001));
        assert_eq!(counted("pages_total"), Some(get(&stats.pages_total)));
        assert!(get(&stats.pages_read) > 0);
        // The same once more, in one partition: pages of a part count once per scan.
        let again = Arc::new(ReadStats::default());
        let (_, batches) = scan(&selected, SampleRequest::default(), 1, &again).await;
        assert_eq!(contents(&selected, &batches), found);
        assert_eq!(get(&again.pages_total), get(&stats.pages_total));
    });
}

#[test]
fn a_plan_that_runs_again_counts_for_that_run() {
    use datafusion::physical_plan::collect;
    use datafusion::physical_plan::execution_plan::reset_plan_states;
    use datafusion::prelude::{SessionConfig, SessionContext};

    let mut world = World::new();
    world.add_part(&[(labels(&[("__name__", "m")]), 1000, Item::Float(1.0, 0))]);
    wait(async {
        let stats = Arc::new(ReadStats::default());
        let selected = select(&*world.snapshot(), vec![], MillisRange::ALL, &stats).await;
        let (plan, _) = scan(&selected, SampleRequest::default(), 1, &stats).await;
        let first = stats.list();
        let (once, samples) = (get(&stats.pages_total), get(&stats.samples));
        assert!(once > 0 && samples == 1);
        let plan = reset_plan_states(plan).expect("ready for another run");
        let again = Arc::new(ReadStats::default());
        let config = SessionConfig::new().with_extension(Arc::clone(&again));
        collect(Arc::clone(&plan), SessionContext::new_with_config(config).task_ctx()).await.expect("batches");
        // Its block is kept since the first run.
        assert_eq!((get(&again.pages_total), get(&again.samples)), (0, samples));
        assert!(get(&again.cache_hits) > 0);
        assert_eq!(stats.list(), first, "the first run is over");
        let counted = plan.metrics().and_then(|metrics| metrics.sum_by_name("samples"));
        assert_eq!(counted.map(|n| n.as_usize() as u64), Some(samples), "as do the metrics of its node");
        collect(plan, SessionContext::new().task_ctx()).await.expect("batches");
        assert_eq!((stats.list(), get(&again.samples)), (first, samples), "without an engine nobody counts");
    });
}

/// Breaks if a short scan of what is in memory gives way behind its rows: the query would go on on another thread, to
/// learn there that these were all.
#[test]
fn a_short_scan_ends_without_giving_way() {
    use datafusion::prelude::SessionContext;
    use futures::{FutureExt as _, StreamExt as _};

    let mut world = World::new();
    let generation = world.add_generation();
    world.insert(generation, &[(labels(&[("__name__", "m")]), 1000, Item::Float(1.0, 0))]);
    wait(async {
        let stats = Arc::new(ReadStats::default());
        let selected = select(&*world.snapshot(), vec![], MillisRange::ALL, &stats).await;
        let (plan, batches) = scan(&selected, SampleRequest::default(), 1, &stats).await;
        let rows = plan.execute(0, SessionContext::new().task_ctx()).expect("a run");
        let at_once = rows.collect::<Vec<_>>().now_or_never().expect("all of it at once");
        assert_eq!((at_once.len(), batches.len()), (1, 1));
    });
}

#[test]
fn a_selection_is_narrowed_for_scans_that_are_made_of_it_later() {
    let mut world = World::new();
    let items: Vec<_> =
        (0..5).map(|i| (labels(&[("__name__", "m"), ("i", &i.to_string())]), 1000, Item::Float(1.0, 0))).collect();
    world.add_part(&items);
    wait(async {
        let stats = Arc::new(ReadStats::default());
        let mut selected = select(&*world.snapshot(), vec![], MillisRange::ALL, &stats).await;
        let whole = selected.samples_table(SampleRequest::default(), &stats);
        selected.restrict(vec![true, true, false, true, true]);
        selected.restrict(vec![false, true, true, true, false]);
        let (_, batches) = scan(&selected, SampleRequest::default(), 1, &stats).await;
        let rows = |batches: &[RecordBatch]| -> Vec<u32> {
            let columns = batches.iter().map(|b| b.column_by_name("row").expect("a row").as_primitive::<UInt32Type>());
            columns.flat_map(|rows| rows.values().to_vec()).collect()
        };
        assert_eq!(rows(&batches), [1, 3]);
        let session = datafusion::prelude::SessionContext::new();
        let batches = session.read_table(scan_table(whole)).expect("a frame").collect().await.expect("batches");
        assert_eq!(
            batches.iter().map(RecordBatch::num_rows).sum::<usize>(),
            5,
            "a table that was there stays as it is"
        );
    });
}

#[test]
fn projection_and_limit() {
    use datafusion::prelude::SessionContext;

    let mut world = World::new();
    let items: Vec<_> =
        (0..5).map(|i| (labels(&[("__name__", "m"), ("i", &i.to_string())]), 1000, Item::Float(1.0, 0))).collect();
    world.add_part(&items);
    wait(async {
        let stats = Arc::new(ReadStats::default());
        let selected = select(&*world.snapshot(), vec![], MillisRange::ALL, &stats).await;
        let table = selected.samples_table(SampleRequest::default(), &stats);
        let session = SessionContext::new();
        let frame = session.read_table(scan_table(table)).expect("a frame");
        let frame = frame.select_columns(&["v", "row"]).expect("columns");
        let batches = frame.limit(0, Some(3)).expect("a limit").collect().await.expect("batches");
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
        assert_eq!(batches[0].schema().field(0).name(), "v");
    });
}
