//! What a selector opens, what it leaves out, and what is kept for the next one.

use std::sync::Arc;

use quiver_types::source::SeriesSource;
use quiver_types::stats::get;
use quiver_types::{Access, LabelSet, MatchOp, Matcher, MillisRange, ReadStats, SeriesSelector};

use super::testing::{Item, World, labels, select, wait};

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
    let world = world();
    let check = |matchers: &[(&str, MatchOp, &str)], range: (i64, i64), access: Access, read: u64, series: usize| {
        wait(async {
            let stats = ReadStats::default();
            let matchers = matchers.iter().map(|m| Matcher::new(m.0, m.1, m.2).expect("valid")).collect();
            let selector = SeriesSelector { matchers, range: MillisRange::new(range.0, range.1) };
            let selected = world.snapshot().select(&access, &selector, &stats).await.expect("selects");
            assert_eq!((get(&stats.parts_read), selected.table.len()), (read, series), "{selector:?}");
            assert_eq!(get(&stats.parts_total), 2);
            if read == 0 {
                assert_eq!((get(&stats.objects_read), get(&stats.index_bytes_read)), (0, 0));
            }
        });
    };
    use MatchOp::{Equal, NotEqual, Regex};
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
