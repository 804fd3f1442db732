//! `Store::write_metrics`: WAL, group commit and live generation; requests of 500 series with one sample each over
//! 10,000 series, eight at a time. Flushes of full generations run beside it, as they do in production.

use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quiver_benches::cpu;
use quiver_benches::data::{REQUEST_SERIES, Requests, SAMPLES, request};
use quiver_benches::world::{Caches, World};
use quiver_types::MetricsBatch;

/// Requests on their way at the same time.
const WRITERS: usize = 8;

fn batches(requests: &mut Requests, count: usize) -> Vec<MetricsBatch> {
    let next = |_| {
        let (series, round) = requests.advance();
        request(series, round)
    };
    (0..count).map(next).collect()
}

fn write(world: &World, batches: Vec<MetricsBatch>) {
    let mut lanes: Vec<Vec<MetricsBatch>> = (0..WRITERS).map(|_| Vec::new()).collect();
    batches.into_iter().enumerate().for_each(|(i, batch)| lanes[i % WRITERS].push(batch));
    world.runtime.block_on(async {
        let lane = |lane: Vec<MetricsBatch>| {
            let store = std::sync::Arc::clone(&world.app.engines.store);
            tokio::spawn(async move {
                for batch in lane {
                    store.write_metrics(batch).await.expect("taken");
                }
            })
        };
        let lanes: Vec<_> = lanes.into_iter().map(lane).collect();
        for lane in lanes {
            lane.await.expect("no fault");
        }
    });
}

fn bench(c: &mut Criterion) {
    let (world, mut requests) = (World::empty(Caches::default()), Requests::default());
    let mut group = c.benchmark_group("write");
    group.throughput(Throughput::Elements(REQUEST_SERIES as u64));
    group.bench_function("request_of_500_series", |b| {
        b.iter_custom(|count| {
            let batches = batches(&mut requests, count as usize);
            let began = Instant::now();
            write(&world, batches);
            began.elapsed()
        });
    });
    group.finish();
    let count = SAMPLES / REQUEST_SERIES;
    let (mut used, mut walls) = (0.0, 0.0);
    // In pieces, so that the batches to be written do not fill the memory.
    for _ in 0..20 {
        let batches = batches(&mut requests, count / 20);
        let (began, before) = (Instant::now(), cpu::seconds());
        write(&world, batches);
        used += cpu::seconds() - before;
        walls += began.elapsed().as_secs_f64();
    }
    let millions = SAMPLES as f64 / 1e6;
    cpu::say(&format!(
        "write: {:.3} s CPU, {:.3} s wall per million samples, over {millions} million",
        used / millions,
        walls / millions
    ));
}

criterion_group!(benches, bench);
criterion_main!(benches);
