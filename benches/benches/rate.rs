//! `sum by (job) (rate(m[5m]))` over 10,000 series, one hour at a step of 15 s: the query that the issue sets a goal for;
//! and what it is made of.

use criterion::{Criterion, criterion_group, criterion_main};
use quiver_benches::cpu;
use quiver_benches::data::{JOBS, METRIC};
use quiver_benches::world::World;
use quiver_promql::QueryValue;

fn series(value: &QueryValue) -> usize {
    match value {
        QueryValue::Matrix(rows) | QueryValue::Vector(rows) => rows.len(),
        _ => 0,
    }
}

fn bench(c: &mut Criterion) {
    let world = World::filled();
    let mut group = c.benchmark_group("rate");
    group.sample_size(20);
    for (name, query) in [
        ("sum_by_job_rate", format!("sum by (job) (rate({METRIC}[5m]))")),
        ("sum_by_job", format!("sum by (job) ({METRIC})")),
        ("sum_by_job_sum_over_time", format!("sum by (job) (sum_over_time({METRIC}[5m]))")),
    ] {
        let outcome = world.last_hour(&query);
        assert_eq!(series(&outcome.value), JOBS, "{query}");
        let t = outcome.timings;
        cpu::say(&format!(
            "{name}, first run: parse {:?}, plan {:?}, execute {:?}, settle {:?}",
            t.parse, t.plan, t.execute, t.settle
        ));
        group.bench_function(name, |b| b.iter(|| world.last_hour(&query)));
        let t = world.last_hour(&query).timings;
        cpu::say(&format!(
            "{name}, warm: parse {:?}, plan {:?}, execute {:?}, settle {:?}",
            t.parse, t.plan, t.execute, t.settle
        ));
        cpu::report(name, 20, || drop(world.last_hour(&query)));
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
