//! Which parts a selector opens, which it skips, and what is cached.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use proptest::prelude::*;
use quiver_types::read_stats::{Gate, get};
use quiver_types::source::SeriesSource;
use quiver_types::{Access, Error, ErrorKind, LabelSet, MatchOp, Matcher, MillisRange, ReadStats, SeriesSelector};

use super::testing::{Item, World, labels, select, service_labels, wait};
use crate::series_run::SeriesRun;

fn item(pairs: &[(&str, &str)], ts: i64) -> (LabelSet, i64, Item) {
    (labels(pairs), ts, Item::Float(1.0, 0))
}

fn world() -> World {
    let mut world = World::new();
    world.add_part(&[item(&[("__name__", "a"), ("job", "x")], 1000), item(&[("__name__", "b"), ("job", "x")], 9000)]);
    world.add_part(&[
        item(&[("__name__", "a"), ("job", "y")], 20_000),
        item(&[("__name__", "c"), ("job", "y")], 21_000),
    ]);
    world
}

#[test]
fn parts_are_opened_for_a_reason() {
    use MatchOp::{Equal, NotEqual, Regex};

    let world = world();
    let check = |matchers: &[(&str, MatchOp, &str)], range: (i64, i64), access: Access, read: u64, series: usize| {
        wait(async {
            let stats = ReadStats::default();
            let matchers = matchers.iter().map(|m| Matcher::new(m.0, m.1, m.2).expect("valid")).collect();
            let selector = SeriesSelector { matchers, range: MillisRange::new(range.0, range.1), labels: None };
            let selected = world.snapshot().select(&access, &selector, &stats).await.expect("selects");
            assert_eq!((get(&stats.parts_read), selected.table.len()), (read, series), "{selector:?}");
            assert_eq!(get(&stats.parts_total), 2);
            if read == 0 {
                assert_eq!((get(&stats.objects_read), get(&stats.index_bytes_read)), (0, 0));
            }
        });
    };
    let full = Access::full;
    let ever = (i64::MIN, i64::MAX);
    check(&[], ever, full(), 2, 4);
    check(&[("__name__", Equal, "unknown")], ever, full(), 0, 0);
    check(&[("__name__", Regex, "unknown|missing")], ever, full(), 0, 0);
    check(&[("__name__", Regex, "unknown.*")], ever, full(), 0, 0);
    check(&[("__name__", Regex, "b|c")], ever, full(), 2, 2);
    check(&[("__name__", Equal, "c")], ever, full(), 1, 1);
    check(&[("__name__", Equal, "c"), ("__name__", NotEqual, "c")], ever, full(), 0, 0);
    check(&[("__name__", Equal, "a")], (0, 1000), full(), 1, 1);
    check(&[], (2000, 9500), full(), 1, 1);
    check(&[], (10_000, 11_000), full(), 0, 0);
    check(&[], (11_000, 10_000), full(), 0, 0);
    check(&[], ever, Access::services(["y"]), 1, 2);
    check(&[], ever, Access::services(["nobody"]), 0, 0);
    check(&[("job", Regex, "x|y")], ever, Access::services(["x"]), 1, 2);
}

#[test]
fn a_second_run_reads_no_index() {
    let mut world = world();
    let generation = world.add_generation();
    world.insert(generation, &[item(&[("__name__", "a"), ("job", "x")], 30_000), item(&[("__name__", "A")], 30_000)]);
    let source = world.source(world.seq);
    wait(async {
        let mut tables = Vec::new();
        for range in [(0, 40_000), (0, 40_000), (500, 39_000), (2000, 40_000)] {
            let stats = ReadStats::default();
            let range = MillisRange::new(range.0, range.1);
            let selected = select(
                &*source.snapshot(),
                vec![Matcher::new("job", MatchOp::Regex, ".*").expect("valid")],
                range,
                &stats,
            )
            .await;
            if !tables.is_empty() {
                assert_eq!((get(&stats.objects_read), get(&stats.index_bytes_read)), (0, 0));
                assert!(get(&stats.cache_hits) > 0);
            }
            tables.push(
                (0..selected.table.len()).map(|r| LabelSet::from_pairs(selected.table.labels(r))).collect::<Vec<_>>(),
            );
        }
        assert_eq!(tables[0].len(), 5);
        assert!(tables[0].is_sorted_by(|a, b| a.cmp_series(b).is_lt()));
        assert!(tables[1] == tables[0] && tables[2] == tables[0]);
        // `a{job="x"}` has nothing of the first part any more, but is live; the order stays.
        assert_eq!(tables[3].len(), 5);
    });
}

#[test]
fn labels_of_whole_parts() {
    let mut world = world();
    let generation = world.add_generation();
    world.insert(generation, &[item(&[("__name__", "live"), ("zone", "z"), ("job", "y")], 30_000)]);
    wait(async {
        let stats = ReadStats::default();
        let snapshot = world.snapshot();
        let all = MillisRange::ALL;
        let names = snapshot.label_names(&Access::full(), &[], all, &stats).await.expect("names");
        assert_eq!(names, ["__name__", "job", "zone"]);
        let values = |name: &'static str, access: Access, range: MillisRange| {
            let snapshot = Arc::clone(&snapshot);
            async move {
                let stats = ReadStats::default();
                snapshot.label_values(&access, name, &[], range, &stats).await.expect("values")
            }
        };
        assert_eq!(values("__name__", Access::full(), all).await, ["a", "b", "c", "live"]);
        assert_eq!(values("__name__", Access::full(), MillisRange::new(0, 5000)).await, ["a"]);
        assert_eq!(values("__name__", Access::services(["x"]), all).await, ["a", "b"]);
        assert_eq!(values("job", Access::services(["y"]), all).await, ["y"]);
        assert!(values("job", Access::services(["nobody"]), all).await.is_empty());
        assert!(values("missing", Access::full(), all).await.is_empty());
        assert_eq!(get(&stats.bytes_read), 0);
    });
}

#[test]
fn exemplars_of_parts_and_live() {
    let mut world = World::new();
    let series = labels(&[("__name__", "a"), ("job", "x")]);
    let at = |ts: i64, value: f64| (series.clone(), ts, Item::Exemplar(value));
    world.add_part(&[at(1000, 1.0), at(2000, 2.0), item(&[("__name__", "b")], 1000)]);
    let generation = world.add_generation();
    world.insert(generation, &[at(2000, 2.0), at(3000, 3.0)]);
    wait(async {
        let stats = ReadStats::default();
        let selectors = [vec![Matcher::equal("job", "x")], vec![Matcher::equal("__name__", "a")]];
        let range = MillisRange::new(1500, 9000);
        let snapshot = world.snapshot();
        let found = snapshot.exemplars(&Access::full(), &selectors, range, &stats).await.expect("exemplars");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].labels, series);
        assert_eq!(found[0].exemplars.iter().map(|e| (e.0, e.1)).collect::<Vec<_>>(), [(2000, 2.0), (3000, 3.0)]);
        let none = snapshot.exemplars(&Access::services(["z"]), &selectors, range, &stats).await.expect("exemplars");
        assert!(none.is_empty());
    });
}

fn label_set() -> impl Strategy<Value = LabelSet> {
    let pairs = proptest::collection::vec((0..5usize, 0..6usize), 0..5);
    (0..4usize, pairs).prop_map(|(metric, pairs)| {
        let names = ["A", "a", "job", "b", "z"];
        let values = ["", "1", "2", "12", "x1", "é"];
        let metric = ("__name__", ["", "m", "m1", "n"][metric]);
        LabelSet::from_pairs(pairs.iter().map(|&(n, v)| (names[n], values[v])).chain([metric, ("id", "i")]))
    })
}

fn matcher() -> impl Strategy<Value = Matcher> {
    let name = prop_oneof![Just("__name__"), Just("a"), Just("A"), Just("job"), Just("b"), Just("missing"), Just("id")];
    let op = prop_oneof![Just(MatchOp::Equal), Just(MatchOp::NotEqual), Just(MatchOp::Regex), Just(MatchOp::NotRegex)];
    let value = prop_oneof![
        Just(""),
        Just("1"),
        Just("2"),
        Just("m"),
        Just("i"),
        Just("x1"),
        Just("1|2"),
        Just("1.*"),
        Just(".*"),
        Just(".+"),
        Just("1|"),
        Just("m.?"),
        Just("é|1"),
        Just("[12]+"),
        Just("(?i)X1"),
        Just("never"),
    ];
    (name, op, value).prop_map(|(name, op, value)| Matcher::new(name, op, value).expect("valid"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    #[test]
    fn an_index_gives_what_a_walk_over_all_series_gives(
        sets in proptest::collection::btree_set(label_set().prop_map(|l| l.canonical().to_vec()), 1..40),
        state in 0..5usize,
        matchers in proptest::collection::vec(matcher(), 0..4),
        services in proptest::option::of(proptest::sample::subsequence(vec!["", "1", "2", "é"], 0..4)),
        wanted in proptest::option::of(proptest::sample::subsequence(vec!["A", "a", "job", "id", "missing"], 0..4)),
        (min, len) in (0i64..60, 0i64..60),
    ) {
        let sets: Vec<_> = sets.iter().map(|bytes| LabelSet::from_canonical(bytes)).collect();
        let mut world = World::new();
        let at = |i: usize| i as i64;
        let run = |i: usize| {
            let mut run = SeriesRun::new(sets[i].clone(), Arc::from(sets[i].service(&service_labels())));
            run.samples.push(at(i), 1.0, 0);
            run
        };
        // In parts: all, those of even number, none; live: all, those of odd number.
        let (parts, live): (&[usize], &[usize]) =
            [(&[1][..], &[][..]), (&[], &[1]), (&[2, 3], &[2]), (&[2, 1], &[3]), (&[1], &[1])][state];
        let some = |step: usize| (0..sets.len()).step_by(step).map(run).collect::<Vec<_>>();
        for &step in parts { world.add_runs(some(step)); }
        if state == 3 || sets.len() % 3 == 0 {
            world.forget_indexes();
        }
        for &step in live {
            let generation = world.add_generation();
            let items: Vec<_> =
                (0..sets.len()).step_by(step).map(|i| (sets[i].clone(), at(i), Item::Float(1.0, 0))).collect();
            world.insert(generation, &items);
        }
        let steps: Vec<usize> = parts.iter().chain(live).copied().collect();
        let access = services.as_ref().map_or_else(Access::full, |s| Access::services(s.iter().copied()));
        let range = MillisRange::new(min, min + len);
        let naive: Vec<usize> = (0..sets.len())
            .filter(|i| steps.iter().any(|step| i % step == 0) && range.contains(at(*i)))
            .filter(|&i| matchers.iter().all(|m| m.matches(sets[i].get(&m.name))))
            .filter(|&i| access.allows(sets[i].service(&service_labels())))
            .collect();
        let labels: Option<Arc<[String]>> = wanted.map(|w| w.iter().map(ToString::to_string).collect());
        let stats = ReadStats::default();
        wait(async {
            let selector = SeriesSelector { matchers: matchers.clone(), range, labels: None };
            let source = world.source(world.seq);
            let whole = source.snapshot().select(&access, &selector, &stats).await.unwrap();
            let rows: Vec<_> = (0..whole.table.len()).map(|r| LabelSet::from_pairs(whole.table.labels(r))).collect();
            let mut expected: Vec<_> = naive.iter().map(|&i| sets[i].clone()).collect();
            expected.sort_by(LabelSet::cmp_series);
            prop_assert_eq!(&rows, &expected);
            // Few labels: the same rows in the same order, known or not.
            for _ in 0..2 {
                let selector = SeriesSelector { labels: labels.clone(), ..selector.clone() };
                let narrow = source.snapshot().select(&access, &selector, &stats).await.unwrap();
                prop_assert_eq!(narrow.table.len(), expected.len());
                for (row, expected) in expected.iter().enumerate() {
                    let wanted = |name: &str| labels.as_ref().is_none_or(|labels| labels.iter().any(|l| l == name));
                    let expected: Vec<_> = expected.iter().filter(|(name, _)| wanted(name)).collect();
                    prop_assert_eq!(narrow.table.labels(row).collect::<Vec<_>>(), expected);
                }
            }
            let selectors = [matchers.clone()];
            let snapshot = world.snapshot();
            let names = snapshot.label_names(&access, &selectors, range, &stats).await.unwrap();
            let expected: BTreeSet<_> = naive.iter().flat_map(|&i| sets[i].iter().map(|l| l.0.to_owned())).collect();
            prop_assert_eq!(names, expected.into_iter().collect::<Vec<_>>());
            let values = snapshot.label_values(&access, "a", &selectors, range, &stats).await.unwrap();
            let expected: BTreeSet<_> = naive.iter().map(|&i| sets[i].get("a").to_owned()).collect();
            prop_assert_eq!(values, expected.into_iter().filter(|v| !v.is_empty()).collect::<Vec<_>>());
            Ok(())
        })?;
    }
}

/// Series as a cluster has them: metrics, services, pods that come and go, label names that few series have.
fn cluster(series: usize) -> Vec<SeriesRun> {
    let run = |i: usize| {
        let (metric, pod, service) = (format!("m{}", i % 200), format!("pod-{}", i / 10), format!("s{}", i % 40));
        let rare = format!("label_{:03}", i % 300);
        let value = (i % 97).to_string();
        let labels = labels(&[("__name__", &metric), ("pod", &pod), ("service", &service), (&rare, &value)]);
        let mut run = SeriesRun::new(labels, Arc::from(service.as_str()));
        run.samples.push(1000, i as f64, 0);
        run
    };
    (0..series).map(run).collect()
}

#[test]
fn few_series_cost_the_same_among_many() {
    // Series of one pod, by name; series of a pod; few labels of few series.
    let count = |series: usize| {
        let mut world = World::new();
        world.add_runs(cluster(series));
        let ask = |matchers: Vec<Matcher>, wanted: Option<&[&str]>, expected: usize| {
            let labels = wanted.map(|names| names.iter().map(ToString::to_string).collect());
            let selector = SeriesSelector { matchers, range: MillisRange::ALL, labels };
            wait(async {
                world.cold();
                let stats = ReadStats::default();
                let selected = world.snapshot().select(&Access::full(), &selector, &stats).await.unwrap();
                assert_eq!(selected.table.len(), expected, "{selector:?}");
                assert_eq!(get(&stats.series_considered), series as u64);
                get(&stats.index_pages_read)
            })
        };
        let equal = |name: &str, value: &str| Matcher::equal(name, value);
        let pattern = |name: &str, value: &str| Matcher::new(name, MatchOp::Regex, value).unwrap();
        [
            ask(vec![equal("__name__", "m77"), equal("pod", "pod-7")], None, 1),
            ask(vec![equal("__name__", "m77"), pattern("pod", "pod-(7|8)")], Some(&["service"]), 1),
            ask(vec![equal("pod", "nothing")], None, 0),
            ask(vec![equal("pod", "pod-7")], Some(&["service"]), 10),
        ]
    };
    let (small, large) = (count(5_000), count(50_000));
    // The series of a pod lie as far from each other as its metrics: a page of series and one of labels each.
    assert!(large[3] <= 2 * 10 + 2, "{large:?}");
    for (small, large) in small.iter().zip(&large).take(3) {
        // What a page is cut to may differ by one.
        assert!(*large as f64 <= 1.2 * *small as f64 + 1.0, "{small} pages among 5,000, {large} among 50,000");
    }
}

/// Some memory, and what was asked for at once when there was no more.
#[derive(Debug)]
struct Little {
    left: AtomicUsize,
    refused: AtomicUsize,
}

impl Gate for Little {
    fn take(&self, bytes: usize) -> quiver_types::Result<()> {
        let taken = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes));
        taken.map(|_| ()).map_err(|_| {
            self.refused.fetch_max(bytes, Relaxed);
            Error::new(ErrorKind::LimitExceeded, "no more memory")
        })
    }

    fn give_back(&self, bytes: usize) {
        self.left.fetch_add(bytes, Relaxed);
    }

    fn check(&self) -> quiver_types::Result<()> {
        Ok(())
    }
}

/// A table has a code for each series and label, so labels that each series has for itself make it as large as their
/// number times itself: that is refused while it grows, label by label, not when it is there.
#[test]
fn labels_of_their_own_are_asked_for_one_by_one() {
    const SERIES: usize = 1000;
    const BYTES: usize = 1 << 20;
    let names: Vec<String> = (0..SERIES).map(|i| format!("l{i:04}")).collect();
    let items: Vec<_> = names.iter().map(|name| item(&[("__name__", "own"), (name, "x")], 1000)).collect();
    let (mut live, mut stored) = (World::new(), World::new());
    let generation = live.add_generation();
    live.insert(generation, &items);
    stored.add_part(&items);
    for world in [&live, &stored] {
        wait(async {
            let gate = Arc::new(Little { left: BYTES.into(), refused: 0.into() });
            let stats = ReadStats::default();
            stats.set_gate(Arc::clone(&gate) as _);
            let matcher = Matcher::new("__name__", MatchOp::Equal, "own").expect("valid");
            let selector = SeriesSelector { matchers: vec![matcher], range: MillisRange::ALL, labels: None };
            let selected = world.snapshot().select(&Access::full(), &selector, &stats).await;
            assert_eq!(selected.expect_err("too much").kind, ErrorKind::LimitExceeded);
            let refused = gate.refused.load(Relaxed);
            assert!((1..BYTES / 8).contains(&refused), "{refused} bytes at once");
            // One of them is no more than itself.
            let selector = SeriesSelector { labels: Some(Arc::from(["l0007".to_owned()])), ..selector };
            let stats = ReadStats::default();
            stats.set_gate(Arc::new(Little { left: BYTES.into(), refused: 0.into() }));
            let selected = world.snapshot().select(&Access::full(), &selector, &stats).await.expect("selects");
            assert_eq!((selected.table.len(), selected.table.names().len()), (SERIES, 1));
        });
    }
}

/// Live series of which only some labels are wanted stand in the order in which all of their labels put them.
#[test]
fn live_series_with_some_of_their_labels_are_in_series_order() {
    let mut sets: Vec<Vec<(String, String)>> = Vec::new();
    for n in 0..60u32 {
        let own = |text: String| (text, format!("v{}", n * 7 % 5));
        let metric = ("__name__".to_owned(), format!("m{}", n * 11 % 3));
        let more = [own(format!("A{}", n % 4)), own(format!("l{}", n * 13 % 6)), ("n".to_owned(), n.to_string())];
        sets.push(more.into_iter().take(n as usize % 4).chain((n % 5 > 0).then_some(metric)).collect());
    }
    let set = |pairs: &Vec<(String, String)>| LabelSet::from_pairs(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())));
    let items = sets.iter().map(set).filter(|set| set.iter().next().is_some());
    let items: Vec<_> = items.map(|set| (set, 1000, Item::Float(1.0, 0))).collect();
    let mut world = World::new();
    for part in [&items[..], &items[..items.len() / 2]] {
        let generation = world.add_generation();
        world.insert(generation, part);
    }
    wait(async {
        let mut tables = Vec::new();
        for labels in [None, Some(Arc::<[String]>::from(["n".to_owned(), "l1".to_owned()]))] {
            let selector = SeriesSelector { matchers: vec![], range: MillisRange::ALL, labels };
            let stats = ReadStats::default();
            let selected = world.snapshot().select(&Access::full(), &selector, &stats).await.expect("selects");
            let wanted = |row| {
                let labels = selected.table.labels(row).filter(|l| l.0 == "n" || l.0 == "l1");
                labels.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
            };
            tables.push((0..selected.table.len()).map(wanted).collect::<Vec<_>>());
        }
        assert_eq!(tables[0], tables[1]);
        assert!(tables[0].len() > 20);
    });
}
