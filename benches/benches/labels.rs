//! Look-ups of labels: names, values with and without a selector, series; over parts, from the index alone.

use criterion::{Criterion, criterion_group, criterion_main};
use quiver_benches::cpu;
use quiver_benches::data::{JOBS, METRIC, SERIES, last_ms};
use quiver_benches::world::World;
use quiver_types::{Access, MatchOp, Matcher, MillisRange, ReadStats};

fn bench(c: &mut Criterion) {
    let world = World::filled();
    let (access, stats) = (Access::full(), ReadStats::default());
    let range = MillisRange::new(last_ms() - 3_600_000, last_ms());
    let names = |selectors: &[Vec<Matcher>]| {
        let snapshot = world.app.source.snapshot();
        let found = world.runtime.block_on(snapshot.label_names(&access, selectors, range, &stats));
        found.expect("found").len()
    };
    let values = |name: &str, selectors: &[Vec<Matcher>]| {
        let snapshot = world.app.source.snapshot();
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
    group.finish();
    cpu::report("label values, 10,000", 200, || assert_eq!(values("path", &[]), SERIES));
    cpu::report("series, all", 200, || assert_eq!(world.select(vec![name()], range).table.len(), SERIES));
}

criterion_group!(benches, bench);
criterion_main!(benches);
