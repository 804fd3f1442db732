//! `sum by (job) (rate(m[5m]))` over 10,000 series, one hour at a step of 15 s: the query that the issue sets a goal for;
//! and what it is made of. Samples are kept decoded, or read from pages; at last the same query from the cache of results.

use criterion::{Criterion, criterion_group, criterion_main};
use quiver_benches::cpu;
use quiver_benches::data::{JOBS, METRIC};
use quiver_benches::world::{Caches, World};
use quiver_promql::QueryValue;

fn series(value: &QueryValue) -> usize {
    match value {
        QueryValue::Matrix(rows) | QueryValue::Vector(rows) => rows.len(),
        _ => 0,
    }
}

fn bench(c: &mut Criterion) {
    let queries = [
        ("sum_by_job_rate", format!("sum by (job) (rate({METRIC}[5m]))")),
        ("sum_by_job", format!("sum by (job) ({METRIC})")),
        ("sum_by_job_sum_over_time", format!("sum by (job) (sum_over_time({METRIC}[5m]))")),
    ];
    for (state, decoded) in [("rate_decoded", true), ("rate_encoded", false)] {
        state_of(c, state, &World::filled(Caches { decoded, ..Caches::default() }), &queries);
    }
    state_of(c, "rate_known", &World::filled(Caches { results: true, ..Caches::default() }), &queries[..1]);
}

fn state_of(c: &mut Criterion, state: &str, world: &World, queries: &[(&str, String)]) {
    let mut group = c.benchmark_group(state);
    group.sample_size(20);
    for (name, query) in queries {
        let outcome = world.last_hour(query);
        assert_eq!(series(&outcome.value), JOBS, "{query}");
        let t = outcome.timings;
        cpu::say(&format!(
            "{state}/{name}, first run: parse {:?}, plan {:?}, execute {:?}, settle {:?}",
            t.parse, t.plan, t.execute, t.arrange
        ));
        group.bench_function(*name, |b| b.iter(|| world.last_hour(query)));
        let t = world.last_hour(query).timings;
        cpu::say(&format!(
            "{state}/{name}, warm: parse {:?}, plan {:?}, execute {:?}, settle {:?}",
            t.parse, t.plan, t.execute, t.arrange
        ));
        cpu::report(&format!("{state}/{name}"), 20, || drop(world.last_hour(query)));
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
