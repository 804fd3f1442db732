use std::sync::Arc;

use quiver_types::metrics::MetricMetadata;
use quiver_types::time::DAY_MS;
use quiver_types::{Access, Histogram, LabelSet, MatchOp, Matcher, MillisRange};
use roaring::RoaringBitmap;

use super::testing::{batch, generation};
use crate::idempotency::{Answer, AnsweredRequest, RequestId};
use crate::memtable::{Generation, HistogramRow, LiveSeries, SampleRows};
use crate::registry::Registry;
use crate::series_run::RunExemplar;

const ALL: MillisRange = MillisRange::ALL;

fn names(series: &[LiveSeries]) -> Vec<String> {
    let mut names: Vec<_> = series.iter().map(|s| format!("{}{}", s.labels.metric(), s.labels.get("i"))).collect();
    names.sort();
    names
}

fn sample() -> (Arc<Registry>, Arc<Generation>) {
    let registry = Arc::new(Registry::default());
    let g = generation(
        &registry,
        1,
        10,
        &[
            batch(&[(&[("__name__", "a"), ("i", "1"), ("job", "x")], &[(1000, 1.0), (2000, 2.0)])]),
            batch(&[
                (&[("__name__", "a"), ("i", "1"), ("job", "x")], &[(3000, 3.0)]),
                (&[("__name__", "a"), ("i", "2"), ("service", "y"), ("job", "x")], &[(3000, 4.0)]),
            ]),
            batch(&[(&[("__name__", "b")], &[(5000, 5.0), (4000, 6.0), (5000, 7.0)])]),
        ],
    );
    (registry, g)
}

#[test]
fn matching_honours_snapshot_access_and_range() {
    let (_registry, g) = sample();
    let check =
        |matchers: &[(&str, MatchOp, &str)], access: &Access, range: (i64, i64), seq: u64, expected: &[&str]| {
            let matchers: Vec<_> = matchers.iter().map(|(n, o, v)| Matcher::new(*n, *o, *v).unwrap()).collect();
            let found = g.matching(&matchers, access, MillisRange::new(range.0, range.1), seq);
            assert_eq!(names(&found), expected, "{matchers:?} {range:?} {seq}");
        };
    let (full, all) = (Access::full(), (i64::MIN, i64::MAX));
    check(&[], &full, all, 9, &[]);
    check(&[], &full, all, 10, &["a1"]);
    check(&[], &full, all, 11, &["a1", "a2"]);
    check(&[], &full, all, u64::MAX, &["a1", "a2", "b"]);
    check(&[], &full, (2500, 3500), 99, &["a1", "a2", "b"]);
    check(&[], &full, (500, 1500), 99, &["a1", "b"]);
    check(&[], &full, (6000, 7000), 99, &[]);
    check(&[("i", MatchOp::Equal, "")], &full, all, 99, &["b"]);
    check(&[], &Access::services(["x"]), all, 99, &["a1"]);
    check(&[], &Access::services(["y", "z"]), all, 99, &["a2"]);
    check(&[], &Access::services([""]), all, 99, &[]);
}

#[test]
fn copies_stop_at_the_snapshot() {
    let (_registry, g) = sample();
    let slot = |i: &str| g.matching(&[Matcher::equal("i", i)], &Access::full(), ALL, u64::MAX)[0].slot;
    let check = |i: &str, seq, expected: &[i64]| assert_eq!(g.copy_floats(slot(i), ALL, seq).ts, expected);
    check("1", 9, &[]);
    check("1", 10, &[1000, 2000]);
    check("1", 11, &[1000, 2000, 3000]);
    let b = g.copy_floats(slot(""), ALL, 12);
    assert_eq!((b.ts, b.values), (vec![4000, 5000], vec![6.0, 7.0]));
    assert_eq!(g.range(), Some(MillisRange::new(1000, 5000)));
    assert_eq!((g.samples(), g.series(), g.last_seq()), (7, 3, 12));
}

#[test]
fn a_generation_sees_only_its_own_series() {
    let (registry, first) = sample();
    let second = generation(
        &registry,
        2,
        13,
        &[batch(&[(&[("__name__", "b")], &[(9000, 1.0)]), (&[("__name__", "c")], &[(9000, 1.0)])])],
    );
    assert_eq!(registry.len(), 4);
    let found = second.matching(&[], &Access::full(), ALL, 13);
    assert_eq!(names(&found), ["b", "c"]);
    let in_first = first.matching(&[Matcher::equal("__name__", "b")], &Access::full(), ALL, 13);
    let b = found.iter().find(|s| s.labels.metric() == "b").unwrap();
    assert_eq!((in_first[0].number, in_first[0].id), (b.number, b.id));
    assert!(registry.generation_bytes() >= first.bytes() + second.bytes());
    drop(first);
    assert_eq!(registry.len(), 2);
    assert_eq!(second.matching(&[], &Access::full(), ALL, 13).len(), 2);
    drop(second);
    assert_eq!((registry.len(), registry.generation_bytes()), (0, 0));
}

#[test]
fn runs_are_by_day_in_series_order() {
    let registry = Arc::new(Registry::default());
    let g = generation(
        &registry,
        1,
        1,
        &[batch(&[
            (&[("__name__", "b"), ("job", "j")], &[(5, 1.0), (DAY_MS, 2.0)]),
            (&[("__name__", "a"), ("Z", "2")], &[(7, 3.0), (6, 4.0)]),
            (&[("__name__", "a")], &[(-1, 5.0)]),
        ])],
    );
    g.seal();
    let day = |day| -> Vec<(String, Vec<i64>, String)> {
        let run = |r: crate::series_run::SeriesRun| {
            assert_eq!(r.id, r.labels.id());
            (format!("{}{}", r.labels.metric(), r.labels.get("Z")), r.samples.ts, r.service.to_string())
        };
        g.runs(day).map(run).collect()
    };
    assert_eq!(g.days(), [-1, 0, 1]);
    assert_eq!(day(-1), [("a".to_owned(), vec![-1], String::new())]);
    assert_eq!(day(0), [("a2".to_owned(), vec![6, 7], String::new()), ("b".to_owned(), vec![5], "j".to_owned())]);
    assert_eq!(day(1), [("b".to_owned(), vec![DAY_MS], "j".to_owned())]);
    assert!(day(2).is_empty());
}

#[test]
fn series_far_apart_land_in_their_shards() {
    let registry = Arc::new(Registry::default());
    let texts: Vec<String> = (0..40_000).map(|n| n.to_string()).collect();
    let mut b = quiver_types::MetricsBatch::default();
    for (n, text) in texts.iter().enumerate() {
        let labels = LabelSet::from_pairs([("__name__", "m"), ("n", text.as_str())]);
        let series = b.push_series(labels.canonical());
        b.push_sample(series, 1, n as f64, 0);
    }
    let g = generation(&registry, 1, 1, &[b.clone(), b]);
    for n in [0usize, 255, 256, 16_383, 16_384, 39_999] {
        let found = g.matching(&[Matcher::equal("n", texts[n].as_str())], &Access::full(), ALL, 9);
        assert_eq!(found.len(), 1);
        let run = g.copy_floats(found[0].slot, ALL, 9);
        assert_eq!((run.ts, run.values), (vec![1], vec![n as f64]));
    }
    // The promise of the memory budget, at one sample per series.
    let per_series = (registry.bytes() + g.bytes()) / texts.len();
    assert!(per_series < 500, "{per_series} bytes per series");
}

/// One series, with samples of one write each.
fn single(writes: &[&[(i64, f64)]]) -> Arc<Generation> {
    let labels: &[(&str, &str)] = &[("__name__", "m"), ("job", "j")];
    let batches: Vec<_> = writes.iter().map(|samples| batch(&[(labels, *samples)])).collect();
    generation(&Arc::new(Registry::default()), 1, 1, &batches)
}

#[test]
fn what_comes_again_is_told_from_what_contradicts() {
    let g = single(&[&[(10, 1.0)]]);
    let insert = |seq: u64, samples: &[(i64, f64)]| {
        let (ts, values): (Vec<i64>, Vec<f64>) = samples.iter().copied().unzip();
        let slots = vec![0; samples.len()];
        let repeats = g.insert_samples(seq, SampleRows { slots: &slots, ts: &ts, values: &values, start_ts: &[] });
        (repeats.duplicates, repeats.conflicts)
    };
    assert_eq!(insert(2, &[]), (0, 0));
    assert_eq!(insert(3, &[(10, 1.0)]), (1, 0));
    assert_eq!(insert(4, &[(10, 2.0), (20, f64::NAN), (20, f64::NAN), (20, -0.0), (20, 0.0)]), (1, 3));
    // Only the sample that came last is looked at.
    assert_eq!(insert(5, &[(10, 1.0)]), (0, 0));
    assert_eq!((g.samples(), g.last_seq(), g.range()), (6, 5, Some(MillisRange::new(10, 20))));
    let at = |seq| {
        let run = g.copy_floats(0, ALL, seq);
        run.ts.iter().copied().zip(run.values.iter().map(|value| value.to_bits())).collect::<Vec<_>>()
    };
    assert!(at(0).is_empty());
    assert_eq!(at(3), [(10, 1.0f64.to_bits())]);
    assert_eq!(at(9), [(10, 2.0f64.to_bits()), (20, f64::NAN.to_bits())], "the greater one stays");
}

#[test]
fn start_times_stay_with_their_samples() {
    static SLOTS: [u32; 3] = [0; 3];
    let g = single(&[&[(10, 1.0), (20, 2.0)]]);
    let rows = |ts: &'static [i64], values: &'static [f64], start_ts: &'static [i64]| SampleRows {
        slots: &SLOTS[..ts.len()],
        ts,
        values,
        start_ts,
    };
    g.insert_samples(2, rows(&[30, 40], &[3.0, 4.0], &[7, 0]));
    g.insert_samples(3, rows(&[50], &[5.0], &[]));
    let starts = |min: i64, max: i64| {
        let run = g.copy_floats(0, MillisRange::new(min, max), 9);
        run.ts.iter().enumerate().map(|(at, ts)| (*ts, run.start(at))).collect::<Vec<_>>()
    };
    assert_eq!(starts(0, 99), [(10, 0), (20, 0), (30, 7), (40, 0), (50, 0)]);
    assert_eq!(starts(30, 30), [(30, 7)]);
    assert_eq!(starts(35, 99), [(40, 0), (50, 0)]);
    assert!(g.copy_floats(0, MillisRange::new(35, 99), 9).start_ts.is_empty(), "none of these has one");
    // One more sample out of order, and everything is sorted anew.
    g.insert_samples(4, rows(&[30], &[9.0], &[8]));
    assert_eq!(starts(20, 40), [(20, 0), (30, 8), (40, 0)]);
}

#[test]
fn a_range_without_samples_is_none() {
    let registry = Arc::new(Registry::default());
    let g = generation(&registry, 1, 1, &[]);
    assert_eq!((g.range(), g.samples(), g.series(), g.last_seq()), (None, 0, 0, 0));
    assert!(g.is_empty() && g.days().is_empty() && !g.sealed() && !g.is_aside());
    assert!(g.matching(&[], &Access::full(), ALL, u64::MAX).is_empty());
    assert!(g.copy_floats(7, ALL, u64::MAX).is_empty(), "there is no such slot");
    g.touch_days(&[3, -1, 3]);
    assert_eq!((g.days_with(&[]), g.days_with(&[3, 4]), g.days()), (2, 3, vec![-1, 3]));
    g.set_aside();
    assert!(g.is_aside() && !g.sealed());
}

#[test]
fn metadata_is_seen_up_to_a_write_and_within_room() {
    let g = single(&[&[(10, 1.0)]]);
    let said = |metric: &str, help: &str| MetricMetadata {
        metric: metric.to_owned(),
        metric_type: "gauge".to_owned(),
        help: help.to_owned(),
        unit: String::new(),
    };
    g.insert_metadata(2, vec![(5, said("a", "first"), "web".to_owned()), (5, said("b", ""), String::new())]);
    g.insert_metadata(3, vec![(6, said("a", "second"), "web".to_owned())]);
    let helps = |seq| g.metadata(seq).into_iter().map(|(ts, m, service)| (ts, m.help, service)).collect::<Vec<_>>();
    assert!(helps(1).is_empty());
    assert_eq!(helps(2), [(5, "first".to_owned(), "web".to_owned()), (5, String::new(), String::new())]);
    assert_eq!(helps(3).len(), 3);
    let asked = std::cell::Cell::new(0);
    let room = |bytes: usize| {
        asked.set(bytes);
        Ok(())
    };
    let wanted = |metric: &str, service: &str| (metric, service) == ("a", "web");
    assert_eq!(g.wanted_metadata(2, wanted, room).unwrap().len(), 1);
    let one = asked.get();
    assert_eq!(g.wanted_metadata(3, wanted, room).unwrap().len(), 2);
    assert_eq!(asked.get(), 2 * one + 1, "`second` is one byte longer than `first`");
    assert!(g.wanted_metadata(0, wanted, |_| panic!("nothing is seen")).unwrap().is_empty());
    let refused = g.wanted_metadata(3, wanted, |_| Err(quiver_types::Error::internal("no room"))).unwrap_err();
    assert_eq!(refused.message, "no room");
}

#[test]
fn histograms_and_exemplars_are_cut_like_samples() {
    let g = single(&[&[(10, 1.0)]]);
    let histogram = |ts: i64, count: f64| HistogramRow {
        slot: 0,
        ts,
        start_ts: 0,
        histogram: Histogram { count, ..Histogram::default() },
    };
    let exemplar = |ts, value| (0, RunExemplar { ts, value, labels: LabelSet::default() });
    g.insert_histograms(2, vec![histogram(30, 1.0), histogram(20, 2.0)]);
    g.insert_histograms(3, vec![histogram(30, 5.0)]);
    g.insert_exemplars(4, vec![exemplar(50, 2.0), exemplar(40, 1.0), exemplar(50, 2.0)]);
    let counts = |min: i64, max: i64, seq: u64| {
        let run = g.copy_hists(0, MillisRange::new(min, max), seq);
        run.ts.iter().copied().zip(run.hists.iter().map(|h| h.count)).collect::<Vec<_>>()
    };
    assert!(counts(0, 99, 1).is_empty());
    assert_eq!(counts(0, 99, 2), [(20, 2.0), (30, 1.0)]);
    assert_eq!(counts(0, 99, 3), [(20, 2.0), (30, 5.0)], "the greater one stays");
    assert_eq!(counts(21, 30, 3), [(30, 5.0)]);
    let times = |range, seq| g.copy_exemplars(0, range, seq).iter().map(|e| e.ts).collect::<Vec<_>>();
    assert_eq!((times(ALL, 3), times(ALL, 4)), (vec![], vec![40, 50]));
    assert_eq!(times(MillisRange::new(41, 50), 4), [50]);
    // Samples and histograms are counted, exemplars are none of them.
    assert_eq!((g.samples(), g.range()), (4, Some(MillisRange::new(10, 50))));
    let found = |range, seq| g.matching(&[], &Access::full(), range, seq).first().map(|s| s.may_have_histograms);
    assert_eq!(found(MillisRange::new(10, 10), 1), Some(true));
    assert_eq!(found(MillisRange::new(40, 40), 3), None, "the exemplar came later");
    assert_eq!(found(MillisRange::new(40, 40), 4), Some(true));
    assert_eq!(found(MillisRange::new(31, 39), 4), None);
}

#[test]
fn a_request_is_something_to_flush() {
    let g = generation(&Arc::new(Registry::default()), 1, 1, &[]);
    let id = RequestId { caller: "c".to_owned(), path: "/p".to_owned(), key: "k".to_owned() };
    let answer = Answer { status: 204, content_type: String::new(), body: Vec::new() };
    let before = g.bytes();
    g.insert_request(7, Arc::new(AnsweredRequest { id, body_hash: 1, at: 2, answer }));
    assert!(!g.is_empty() && g.bytes() > before);
    assert_eq!((g.requests().len(), g.last_seq(), g.samples()), (1, 7, 0));
}

#[test]
fn few_and_many_numbers_find_the_same_series() {
    let registry = Arc::new(Registry::default());
    let texts: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let write = |range: std::ops::Range<usize>| {
        let mut all = quiver_types::MetricsBatch::default();
        for n in range {
            let labels = LabelSet::from_pairs([("__name__", "m"), ("n", texts[n].as_str())]);
            let series = all.push_series(labels.canonical());
            all.push_sample(series, 5, 1.0, 0);
        }
        all
    };
    let large = generation(&registry, 1, 1, &[write(0..200)]);
    let small = generation(&registry, 2, 2, &[write(190..200)]);
    let all: RoaringBitmap = (0..300).collect();
    let few: RoaringBitmap = (185..195).collect();
    let numbers = |g: &Generation, of: &RoaringBitmap| {
        let mut found: Vec<u32> = g.held_slots(of, &Access::full(), ALL, 9).iter().map(|found| found.1).collect();
        found.sort_unstable();
        found
    };
    assert_eq!(numbers(&large, &all), (0..200).collect::<Vec<_>>());
    assert_eq!(numbers(&large, &few), (185..195).collect::<Vec<_>>());
    assert_eq!(numbers(&small, &all), (190..200).collect::<Vec<_>>());
    assert_eq!(numbers(&small, &few), (190..195).collect::<Vec<_>>());
    let labels: Vec<String> = small
        .held(&few, &Access::full(), ALL, 9)
        .iter()
        .map(|series| {
            assert_eq!((series.labels.id(), small.service(series.slot).is_empty()), (series.id, true));
            series.labels.get("n").to_owned()
        })
        .collect();
    assert_eq!(labels, texts[190..195]);
}
