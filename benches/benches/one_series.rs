//! A query of one series out of 10,000: planning alone, then plan and answer, at one time and over an hour. The same
//! query again finds its series resolved in the cache; `other_series` asks for another one each time and does not.

use criterion::{Criterion, criterion_group, criterion_main};
use quiver_benches::cpu;
use quiver_benches::data::{METRIC, SERIES};
use quiver_benches::world::{Caches, World};

fn bench(c: &mut Criterion) {
    let world = World::filled(Caches::default());
    let plain = format!("{METRIC}{{path=\"/api/v1/resource/77\"}}");
    let rate = format!("rate({plain}[5m])");
    let mut group = c.benchmark_group("one_series");
    group.bench_function("plan", |b| b.iter(|| world.plan_last_hour(&rate)));
    group.bench_function("instant", |b| b.iter(|| world.instant(&plain)));
    group.bench_function("instant_rate", |b| b.iter(|| world.instant(&rate)));
    group.bench_function("last_hour", |b| b.iter(|| world.last_hour(&plain)));
    group.bench_function("last_hour_rate", |b| b.iter(|| world.last_hour(&rate)));
    let mut next = 0;
    let mut other = || {
        next = (next + 7) % SERIES;
        format!("rate({METRIC}{{path=\"/api/v1/resource/{next}\"}}[5m])")
    };
    group.bench_function("other_series_last_hour_rate", |b| b.iter(|| world.last_hour(&other())));
    group.finish();
    cpu::report("another series each time, rate over an hour", 2_000, || drop(world.last_hour(&other())));
    cpu::report("one series, instant", 2_000, || drop(world.instant(&plain)));
    cpu::report("one series, rate over an hour", 2_000, || drop(world.last_hour(&rate)));
    let t = world.last_hour(&rate).timings;
    cpu::say(&format!(
        "one series, rate over an hour: parse {:?}, plan {:?}, execute {:?}, settle {:?}",
        t.parse, t.plan, t.execute, t.arrange
    ));
}

criterion_group!(benches, bench);
criterion_main!(benches);
