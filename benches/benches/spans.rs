//! Spans: decoding, writing, flushing and compacting two million of them; then look-ups, searches and the service graph.

use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quiver_benches::cpu;
use quiver_benches::spans::{SPANS, START, request, trace_id};
use quiver_benches::world::{Caches, World};
use quiver_ingest::traces::{DecodedSpans, TraceContext, TraceFormat, decode};
use quiver_query::{Limits, QueryContext};
use quiver_traces::{Search, Selection};
use quiver_types::Access;
use quiver_types::spans::{AttributeTest, SpanFilter, TextTest};

/// Traces of the data set: two million spans over a day.
const TRACES: u64 = 250_000;
/// Traces of a request.
const REQUEST: u64 = 125;
const DAY: i64 = 86_400_000_000_000;

fn decoded(body: &[u8]) -> DecodedSpans {
    let access = Access::full();
    let ctx = TraceContext {
        body_bytes_max: 64 << 20,
        batch_bytes_max: 256 << 20,
        now_ns: START,
        earliest_ns: 1,
        latest_ns: i64::MAX,
        access: &access,
    };
    decode(TraceFormat::Otlp, None, body, &ctx, &mut |_| true).expect("a valid body")
}

fn context() -> QueryContext {
    QueryContext::new(Access::full(), Limits::default())
}

fn load(world: &World) {
    let step = DAY / TRACES as i64;
    let bodies: Vec<Vec<u8>> = (0..TRACES).step_by(REQUEST as usize).map(|t| request(t, REQUEST, step)).collect();
    let spans = TRACES as usize * SPANS;
    let began = Instant::now();
    cpu::report_samples("decode, write and flush spans", spans, || {
        for body in &bodies {
            let batch = decoded(body).batch;
            world.runtime.block_on(world.app.engines.store.write_spans(batch)).expect("taken");
        }
        world.flush();
    });
    cpu::say(&format!("{:.0} spans/s", spans as f64 / began.elapsed().as_secs_f64()));
    cpu::report_samples("compact spans", spans, || world.compact());
    cpu::say(&format!("{:.1} bytes per span after compaction", world.stored_bytes() as f64 / spans as f64));
}

fn bench(c: &mut Criterion) {
    let body = request(0, REQUEST, 1_000_000);
    let mut group = c.benchmark_group("spans");
    group.throughput(Throughput::Elements(REQUEST * SPANS as u64));
    group.bench_function("decode_otlp", |b| b.iter(|| decoded(&body).batch.len()));
    group.finish();
    let world = World::empty(Caches::default());
    load(&world);
    let traces = &world.app.engines.traces;
    let mut group = c.benchmark_group("spans_read");
    group.bench_function("trace_by_id", |b| {
        let mut n = 0;
        b.iter(|| {
            n = (n + 7_919) % TRACES;
            let found = world.runtime.block_on(traces.trace(&context(), Selection::all(trace_id(n))));
            assert_eq!(found.expect("there").spans.len(), SPANS);
        });
    });
    let range = (START, START + DAY);
    let service = SpanFilter::Service(TextTest::Is("cart".to_owned()));
    let slow = SpanFilter::Duration(199_900_000, i64::MAX);
    let (key, test) = ("user.id".to_owned(), AttributeTest::equals("u4711"));
    let user = SpanFilter::Attribute { place: None, key, test };
    for (name, conditions, limit) in [
        ("search_service", vec![service.clone()], 20),
        ("search_slow", vec![service, slow], 1000),
        ("search_tag", vec![user], 1000),
    ] {
        let mut search = Search::new(range);
        (search.conditions, search.limit) = (conditions, limit);
        group.bench_function(name, |b| {
            b.iter(|| {
                let search = search.clone();
                world.runtime.block_on(traces.search(&context(), search, range.1)).expect("found").rows.len()
            });
        });
    }
    group.bench_function("dependencies_of_a_day", |b| {
        b.iter(|| {
            let graph = world.runtime.block_on(traces.dependencies(&context(), range, Vec::new()));
            assert!(!graph.expect("a graph").edges.is_empty());
        });
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
