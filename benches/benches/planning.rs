//! What planning costs, without running anything: a query of one selector, which has no rules (goal: 0.2 ms), and a
//! statement over three tables with the rules of DataFusion (goal: 5 ms). The plans are shown as text, which is counted.

use criterion::{Criterion, criterion_group, criterion_main};
use quiver_benches::cpu;
use quiver_benches::data::{METRIC, batch};
use quiver_benches::world::{Caches, World};

/// Rows of logs beside their spans and the samples of their services.
const STATEMENT: &str = "select l.service_name, count(*) as rows, max(s.duration) as slowest, avg(m.value) as mean \
     from logs l join spans s on s.trace_id = l.trace_id join metric_samples m on m.service_name = l.service_name \
     where s.status_code = 'ERROR' and m.name = 'http_requests_total' and l.severity_text = 'ERROR' \
     group by l.service_name order by slowest desc limit 10";

fn bench(c: &mut Criterion) {
    let world = World::empty(Caches::default());
    world.write(batch(0, 1_000, 0, 100));
    world.flush();
    let selector = format!("{METRIC}{{path=\"/api/v1/resource/77\"}}");
    let mut group = c.benchmark_group("planning");
    group.bench_function("selector", |b| b.iter(|| world.plan_last_hour(&selector)));
    group.bench_function("three_tables", |b| b.iter(|| world.plan_sql(STATEMENT)));
    group.finish();
    cpu::report("planning of one selector", 2_000, || world.plan_last_hour(&selector));
    cpu::report("planning of a statement over three tables", 500, || world.plan_sql(STATEMENT));
}

criterion_group!(benches, bench);
criterion_main!(benches);
