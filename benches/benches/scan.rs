//! The scan of samples, series already selected: all ten million, the last hour and the last five minutes of all series,
//! and one series; of samples that are kept decoded, and of pages.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quiver_benches::cpu;
use quiver_benches::data::{METRIC, ROUNDS, SAMPLES, SERIES, last_ms};
use quiver_benches::world::{Caches, World};
use quiver_types::{Matcher, MillisRange};

fn bench(c: &mut Criterion) {
    for (state, decoded) in [("decoded", true), ("encoded", false)] {
        state_of(c, state, &World::filled(Caches { decoded, ..Caches::default() }));
    }
}

fn state_of(c: &mut Criterion, state: &str, world: &World) {
    let last = |minutes: i64| MillisRange::new(last_ms() - minutes * 60_000, last_ms());
    let name = || Matcher::equal("__name__", METRIC);
    let all = world.select(vec![name()], MillisRange::ALL);
    let one = world.select(vec![name(), Matcher::equal("path", "/api/v1/resource/77")], MillisRange::ALL);
    assert_eq!((all.table.len(), one.table.len()), (SERIES, 1));
    let mut group = c.benchmark_group(format!("scan_{state}"));
    for (name, selected, range, samples) in [
        ("all", &all, MillisRange::ALL, SAMPLES),
        ("last_hour_of_all_series", &all, last(60), SERIES * 241),
        ("last_5_minutes_of_all_series", &all, last(5), SERIES * 21),
        ("one_series", &one, MillisRange::ALL, ROUNDS),
    ] {
        group.throughput(Throughput::Elements(samples as u64)).sample_size(if samples > 10_000 { 10 } else { 100 });
        group.bench_function(name, |b| b.iter(|| assert_eq!(world.scan(selected, range), samples)));
        let runs = if samples > 10_000 { 20 } else { 2_000 };
        cpu::report(&format!("scan {name}, {state}"), runs, || assert_eq!(world.scan(selected, range), samples));
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
