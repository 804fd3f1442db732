//! Flush of a generation of a million samples into a part, committed and told by its commit object; ten generations and
//! more, then the compaction of them all.

use std::time::Instant;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use quiver_benches::cpu;
use quiver_benches::data::{SERIES, batch};
use quiver_benches::world::{Caches, World};

/// Rounds of one generation.
const ROUNDS: usize = 100;

fn bench(c: &mut Criterion) {
    let world = World::empty(Caches::default());
    let mut round = 0;
    let mut group = c.benchmark_group("flush");
    group.throughput(Throughput::Elements((SERIES * ROUNDS) as u64)).sample_size(10).sampling_mode(SamplingMode::Flat);
    group.bench_function("a_million_samples", |b| {
        b.iter_custom(|count| {
            (0..count)
                .map(|_| {
                    (0..SERIES).step_by(1_000).for_each(|first| world.write(batch(first, 1_000, round, ROUNDS)));
                    round += ROUNDS;
                    let began = Instant::now();
                    world.flush();
                    began.elapsed()
                })
                .sum()
        });
    });
    group.finish();
    let samples = SERIES * round;
    cpu::report_samples("compaction of all generations", samples, || world.compact());
    cpu::say(&format!("{:.3} bytes per sample after compaction", world.stored_bytes() as f64 / samples as f64));
}

criterion_group!(benches, bench);
criterion_main!(benches);
