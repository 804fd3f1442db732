//! Decoding of requests, decompression included: remote write 1.0 and 2.0, OTLP; beside `prost`, which only builds its
//! messages and leaves checks, sorting and hashing of labels to whoever comes next.

use std::sync::Mutex;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message;
use quiver_benches::data::{REQUEST_SERIES, ROUNDS, Requests};
use quiver_benches::{cpu, proto};
use quiver_ingest::formats::{Format, otlp_metrics, remote_write, remote_write2};
use quiver_ingest::{Context, DeltaState, Limits, OtlpOptions};

/// Makes a body out of first series and round.
type Make = fn(usize, usize) -> Vec<u8>;
/// A format: its name, bodies of it, and what reads one.
type Measured = (&'static str, Make, fn(&[u8]) -> usize);

fn ours(format: &Format, encoding: Option<&str>, body: &[u8]) -> u64 {
    let (options, delta) = (OtlpOptions::default(), Mutex::new(DeltaState::new(1 << 20, 1_000)));
    let ctx = Context { limits: Limits::default(), otlp: &options, delta: &delta, now_ms: 0, sender: None };
    format.decode_request(encoding, body, &ctx, &mut |_| true).expect("a valid body").samples
}

fn unpack(body: &[u8]) -> Vec<u8> {
    snap::raw::Decoder::new().decompress_vec(body).expect("snappy")
}

fn bench(c: &mut Criterion) {
    let one: &[Measured] = &[
        (
            "remote_write_1",
            |series, round| proto::remote_write(series, round, 1),
            |body| ours(&remote_write::FORMAT, Some("snappy"), body) as usize,
        ),
        (
            "remote_write_1_prost",
            |series, round| proto::remote_write(series, round, 1),
            |body| proto::WriteRequest::decode(&*unpack(body)).expect("valid").timeseries.len(),
        ),
        (
            "remote_write_2",
            |series, round| proto::remote_write2(series, round, 1),
            |body| ours(&remote_write2::FORMAT, Some("snappy"), body) as usize,
        ),
        (
            "remote_write_2_prost",
            |series, round| proto::remote_write2(series, round, 1),
            |body| proto::Request2::decode(&*unpack(body)).expect("valid").timeseries.len(),
        ),
        ("otlp", proto::otlp, |body| ours(&otlp_metrics::FORMAT, None, body) as usize),
        ("otlp_prost", proto::otlp, |body| {
            let request = ExportMetricsServiceRequest::decode(body).expect("valid");
            request.resource_metrics.len() * REQUEST_SERIES
        }),
    ];
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(REQUEST_SERIES as u64));
    for (name, make, decode) in one {
        let mut requests = Requests::default();
        let mut next = || {
            let (series, round) = requests.advance();
            make(series, round % ROUNDS)
        };
        group.bench_function(*name, |b| {
            let decode = |body: Vec<u8>| assert_eq!(decode(&body), REQUEST_SERIES, "{name}");
            b.iter_batched(&mut next, decode, BatchSize::SmallInput);
        });
    }
    group.finish();
    // Twenty samples of each series in one body: what a sender that was cut off sends.
    let bodies: Vec<_> = (0..20).map(|i| proto::remote_write(i * REQUEST_SERIES, 0, 20)).collect();
    let samples = bodies.len() * REQUEST_SERIES * 20;
    cpu::report_samples("decode remote_write_1 of 20 samples per series", samples * 50, || {
        for body in bodies.iter().cycle().take(bodies.len() * 50) {
            assert_eq!(ours(&remote_write::FORMAT, Some("snappy"), body), 20 * REQUEST_SERIES as u64);
        }
    });
    // Ten million samples, one per series and request: the bodies of a round over and over.
    let bodies: Vec<_> = (0..20).map(|i| proto::remote_write(i * REQUEST_SERIES, 0, 1)).collect();
    let times = 10_000_000 / (bodies.len() * REQUEST_SERIES);
    cpu::report_samples("decode remote_write_1 of one sample per series", 10_000_000, || {
        for body in bodies.iter().cycle().take(bodies.len() * times) {
            assert_eq!(ours(&remote_write::FORMAT, Some("snappy"), body), REQUEST_SERIES as u64);
        }
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
