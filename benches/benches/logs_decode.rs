//! Decoding of logs in all formats, into batches that the store takes; and what a million rows cost in CPU.

use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quiver_benches::cpu;
use quiver_benches::logs::{self, ROWS};
use quiver_ingest::logs::bulk::Bulk;
use quiver_ingest::logs::{FieldOptions, JsonLines, LogsContext, LogsLimits, otlp, push, saas};

/// A format: its name, its body, and how many rows a decoder gives.
type Case = (&'static str, Vec<u8>, fn(&[u8], &LogsContext) -> u64);

fn context() -> LogsContext {
    let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let options = FieldOptions {
        stream: Some(names(&["app", "namespace", "pod"])),
        service: Arc::from(names(&quiver_ingest::logs::SERVICE_FIELDS)),
        ..FieldOptions::default()
    };
    LogsContext {
        options: Arc::new(options),
        limits: LogsLimits::default(),
        now_ns: 1,
        future_max_ns: i64::MAX,
        sender: None,
    }
}

fn json_lines(body: &[u8], ctx: &LogsContext) -> u64 {
    let mut lines = JsonLines::new(ctx);
    body.chunks(64 << 10).for_each(|piece| lines.feed(piece));
    lines.finish();
    lines.rows.take_all().iter().map(|b| b.len() as u64).sum()
}

fn bulk(body: &[u8], ctx: &LogsContext) -> u64 {
    let mut bulk = Bulk::new(ctx);
    bulk.feed(body).and_then(|()| bulk.finish()).expect("a valid body");
    bulk.take_all().iter().map(|b| b.len() as u64).sum()
}

fn bench(c: &mut Criterion) {
    let ctx = context();
    let cases: [Case; 6] = [
        ("jsonline", logs::lines(false), json_lines),
        ("bulk", logs::lines(true), bulk),
        ("push_json", logs::push_json(), |b, ctx| push::decode_json(b, ctx).expect("valid").report.rows),
        ("push_protobuf", logs::push_protobuf(), |b, ctx| push::decode_protobuf(b, ctx).expect("valid").report.rows),
        ("saas", logs::saas(), |b, ctx| saas::decode(b, &saas::UrlFields::default(), ctx).expect("valid").report.rows),
        ("otlp", logs::otlp(), |b, ctx| otlp::decode(b, ctx).expect("valid").report.rows),
    ];
    let mut group = c.benchmark_group("logs_decode");
    group.throughput(Throughput::Elements(ROWS as u64));
    for (name, body, decode) in &cases {
        group.bench_function(*name, |b| b.iter(|| assert_eq!(decode(body, &ctx), ROWS as u64, "{name}")));
    }
    group.finish();
    for (name, body, decode) in &cases {
        cpu::report_samples(&format!("decode logs, {name}"), 100 * ROWS, || {
            (0..100).for_each(|_| assert_eq!(decode(body, &ctx), ROWS as u64));
        });
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
