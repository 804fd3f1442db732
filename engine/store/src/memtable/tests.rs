use std::sync::Arc;

use quiver_types::time::DAY_MS;
use quiver_types::{Access, MatchOp, Matcher, MillisRange};

use super::testing::{batch, generation};
use crate::memtable::{Generation, LiveSeries};
use crate::registry::Registry;

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
        let run = |r: crate::run::SeriesRun| {
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
        let labels = quiver_types::LabelSet::from_pairs([("__name__", "m"), ("n", text.as_str())]);
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
