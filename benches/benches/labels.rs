//! Look-ups of labels over parts: names, values with and without a selector, series. A repeated selector is answered from
//! the cache of resolved ones; `new_…` ask for another one each time and read the index.

use criterion::{Criterion, criterion_group, criterion_main};
use quiver_benches::cpu;
use quiver_benches::data::{JOBS, METRIC, SERIES, last_ms};
use quiver_benches::world::{Caches, World};
use quiver_types::{Access, MatchOp, Matcher, MillisRange, ReadStats};

fn bench(c: &mut Criterion) {
    let world = World::filled(Caches::default());
    let (access, stats) = (Access::full(), ReadStats::default());
    let range = MillisRange::new(last_ms() - 3_600_000, last_ms());
    let names = |selectors: &[Vec<Matcher>]| {
        let snapshot = world.app.engines.series.snapshot();
        let found = world.runtime.block_on(snapshot.label_names(&access, selectors, range, &stats));
        found.expect("found").len()
    };
    let values = |name: &str, selectors: &[Vec<Matcher>]| {
        let snapshot = world.app.engines.series.snapshot();
        let found = world.runtime.block_on(snapshot.label_values(&access, name, selectors, range, &stats));
        found.expect("found").len()
    };
    let name = || Matcher::equal("__name__", METRIC);
    let of_job = [vec![name(), Matcher::equal("job", "job-3")]];
    let pattern = Matcher::new("path", MatchOp::Regex, "/api/v1/resource/7.*").expect("a pattern");
    let mut group = c.benchmark_group("labels");
    group.bench_function("names", |b| b.iter(|| assert_eq!(names(&[]), 6)));
    group.bench_function("names_of_a_selector", |b| b.iter(|| assert_eq!(names(&of_job), 6)));
    group.bench_function("values_few", |b| b.iter(|| assert_eq!(values("job", &[]), JOBS)));
    group.bench_function("values_many", |b| b.iter(|| assert_eq!(values("path", &[]), SERIES)));
    group.bench_function("values_of_a_selector", |b| b.iter(|| assert_eq!(values("path", &of_job), SERIES / JOBS)));
    group.bench_function("series_of_a_selector", |b| b.iter(|| world.select(of_job[0].clone(), range).table.len()));
    group.bench_function("series_of_a_pattern", |b| {
        b.iter(|| assert_eq!(world.select(vec![name(), pattern.clone()], range).table.len(), 1_111));
    });
    group
        .bench_function("series_all", |b| b.iter(|| assert_eq!(world.select(vec![name()], range).table.len(), SERIES)));
    let mut next = 0;
    // Never the same text twice, so that no answer is at hand.
    let mut other = |few: bool| {
        next += 1;
        let (label, op, value) = if few {
            ("path", MatchOp::Regex, format!("/api/v1/resource/7.*|{next}-none"))
        } else {
            ("job", MatchOp::NotEqual, format!("none-{next}"))
        };
        vec![name(), Matcher::new(label, op, value).expect("a matcher")]
    };
    group.bench_function("series_of_a_new_pattern", |b| {
        b.iter(|| assert_eq!(world.select(other(true), range).table.len(), 1_111));
    });
    group.bench_function("series_all_by_a_new_selector", |b| {
        b.iter(|| assert_eq!(world.select(other(false), range).table.len(), SERIES));
    });
    cpu::report("series of a new pattern", 500, || assert_eq!(world.select(other(true), range).table.len(), 1_111));
    cpu::report("series, all, by a new selector", 200, || {
        assert_eq!(world.select(other(false), range).table.len(), SERIES);
    });
    group.finish();
    cpu::report("label values, 10,000", 200, || assert_eq!(values("path", &[]), SERIES));
    cpu::report("series, all, repeated", 5_000, || assert_eq!(world.select(vec![name()], range).table.len(), SERIES));
}

criterion_group!(benches, bench);
criterion_main!(benches);
