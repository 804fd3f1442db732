//! Aggregation into as many groups as there are series, and what sorts or counts them; over one hour at a step of 15 s,
//! and at one time.

use criterion::{Criterion, criterion_group, criterion_main};
use quiver_benches::cpu;
use quiver_benches::data::METRIC;
use quiver_benches::world::{Caches, World};

fn bench(c: &mut Criterion) {
    let world = World::filled(Caches::default());
    let mut group = c.benchmark_group("cardinality");
    group.sample_size(10);
    for (name, query) in [
        ("sum_by_path", format!("sum by (path) (rate({METRIC}[5m]))")),
        ("count_of_groups", format!("count(sum by (path, status) ({METRIC}))")),
        ("topk", format!("topk(10, rate({METRIC}[5m]))")),
        ("quantile", format!("quantile by (job) (0.9, rate({METRIC}[5m]))")),
    ] {
        group.bench_function(format!("{name}_last_hour"), |b| b.iter(|| world.last_hour(&query)));
        cpu::report(&format!("{name}, last hour"), 5, || drop(world.last_hour(&query)));
        group.bench_function(format!("{name}_instant"), |b| b.iter(|| world.instant(&query)));
        cpu::report(&format!("{name}, instant"), 20, || drop(world.instant(&query)));
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
