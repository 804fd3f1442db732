//! Open data: the SQL in `docs/formats/catalog.md`, run by DuckDB over the store's files, gives back every (labels, ts,
//! value) that was sent, bit for bit, in each state of the store.

use std::collections::BTreeMap;
use std::path::Path;

use quiver_tests::bodies::{compress, field, remote_write, varint};
use quiver_tests::s3::S3Server;
use quiver_tests::server::{Options, Server};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::tools::{document, python};

const DAY_MS: i64 = 86_400_000;
/// A UTC midnight.
const T0_MS: i64 = 1_699_920_000_000;
const STALE: u64 = 0x7ff0_0000_0000_0002;

type Labels = BTreeMap<String, String>;

/// What was sent, and what the store must give back.
#[derive(Default)]
struct Sent {
    floats: BTreeMap<(String, i64), u64>,
    /// Bits of count and sum, and of the positive counts.
    histograms: BTreeMap<(String, i64), (f64, f64, Vec<f64>)>,
}

impl Sent {
    /// Writes samples (ms, bits) of a series, and notes what stays of them by the equal-key rule.
    async fn write(&mut self, server: &Server, series: &[(Labels, Vec<(i64, u64)>)]) {
        let body: Vec<_> = series
            .iter()
            .map(|(labels, samples)| {
                let labels = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                (labels, samples.iter().map(|&(ts, bits)| (ts, f64::from_bits(bits))).collect())
            })
            .collect();
        server.write(remote_write(&body)).await;
        for (labels, samples) in series {
            for &(ts, bits) in samples {
                let kept = self.floats.entry((text(labels), ts)).or_insert(bits);
                if rank(*kept) < rank(bits) {
                    *kept = bits;
                }
            }
        }
    }

    async fn write_histogram(&mut self, server: &Server, labels: &Labels, ts: i64, counts: &[u64], sum: f64) {
        server.write(histogram_body(labels, ts, counts, sum)).await;
        let count = counts.iter().sum::<u64>() as f64;
        let sent = (count, sum, counts.iter().map(|&c| c as f64).collect());
        let kept = self.histograms.entry((text(labels), ts)).or_insert_with(|| sent.clone());
        // The first that differs in the canonical form; all else is the same here.
        if kept.0 < sent.0 {
            *kept = sent;
        }
    }

    /// Reads the files and compares everything.
    fn check(&self, root: &Path, state: &str) {
        let (mut floats, mut histograms, mut metadata) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let root = root.to_str().expect("a plain path");
        let catalog = document("docs/formats/catalog.md");
        let output = python("duckdb_read.py", &[catalog.to_str().expect("a plain path"), root]);
        let hex = |text: &str| u64::from_str_radix(text, 16).expect("bits in hex");
        for line in output.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let key = || (fields[1].to_owned(), fields[2].parse().expect("a time"));
            let twice = match fields[0] {
                "f" => floats.insert(key(), hex(fields[3])).is_some(),
                "h" => {
                    let number = |text: &str| f64::from_bits(hex(text));
                    let row = (number(fields[3]), number(fields[4]), fields[5].split(',').map(number).collect());
                    histograms.insert(key(), row).is_some()
                }
                _ => {
                    metadata.push(fields[1..].join("|"));
                    false
                }
            };
            assert!(!twice, "{state}: {line} is there twice");
        }
        let expected = self.floats.iter().filter(|(key, _)| !self.histograms.contains_key(*key));
        for (key, bits) in expected.clone() {
            let found = floats.get(key);
            assert_eq!(found, Some(bits), "{state}: {key:?}: {found:x?} instead of {bits:x}");
        }
        assert_eq!(floats.len(), expected.count(), "{state}: rows that nobody sent");
        assert_eq!(histograms, self.histograms, "{state}");
        let expected = ["requests_total|counter|All requests.|", "with_start_total|counter|From a start.|"];
        assert_eq!(metadata, expected, "{state}");
    }
}

/// Total order of doubles, the stale marker lowest.
fn rank(bits: u64) -> (bool, i64) {
    let signed = bits as i64;
    (bits != STALE, if signed < 0 { signed ^ i64::MAX } else { signed })
}

fn text(labels: &Labels) -> String {
    serde_json::to_string(labels).expect("texts")
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
}

/// A remote-write 1.0 body with one integer histogram: schema 0, no zero bucket, one run of buckets from index 1.
fn histogram_body(labels: &Labels, ts: i64, counts: &[u64], sum: f64) -> Vec<u8> {
    let zigzag = |n: i64| ((n << 1) ^ (n >> 63)) as u64;
    let (mut one, mut h) = (Vec::new(), Vec::new());
    for (name, value) in labels {
        let mut label = Vec::new();
        field(&mut label, 1, name.as_bytes());
        field(&mut label, 2, value.as_bytes());
        field(&mut one, 1, &label);
    }
    h.push(0x08); // count
    varint(&mut h, counts.iter().sum());
    h.push(0x19); // sum
    h.extend_from_slice(&sum.to_le_bytes());
    h.push(0x29); // zero threshold
    h.extend_from_slice(&1e-128f64.to_le_bytes());
    h.extend_from_slice(&[0x30, 0]); // zero count
    field(&mut h, 11, &[0x08, 0x02, 0x10, counts.len() as u8]); // a span: offset 1, length
    let (mut deltas, mut last) = (Vec::new(), 0);
    for &count in counts {
        varint(&mut deltas, zigzag(count as i64 - last));
        last = count as i64;
    }
    field(&mut h, 12, &deltas);
    h.push(0x78); // time
    varint(&mut h, ts as u64);
    field(&mut one, 4, &h);
    let mut raw = Vec::new();
    field(&mut raw, 1, &one);
    compress(&raw)
}

/// A body with nothing but the metadata of `requests_total`.
fn metadata_body(help: &str) -> Vec<u8> {
    let mut one = vec![0x08, 0x01];
    field(&mut one, 2, b"requests_total");
    field(&mut one, 4, help.as_bytes());
    let mut raw = Vec::new();
    field(&mut raw, 3, &one);
    compress(&raw)
}

fn special() -> Vec<u64> {
    let mut bits = vec![
        STALE,
        0x7ff0_0000_0000_0001, // signalling
        0x7ff8_0000_0000_0000,
        0x7ff8_dead_beef_0001,
        0xfff8_0000_0000_0001,
        0xffff_ffff_ffff_ffff,
        0x7fff_ffff_ffff_ffff,
    ];
    let values = [
        0.0,
        -0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        5e-324,
        -5e-324,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
        0.1,
        0.3,
        1.0 / 3.0,
        9_007_199_254_740_991.0,
        9_007_199_254_740_992.0,
        -9_007_199_254_740_993.0,
        1e15,
        1e-15,
        1e22,
        1e300,
        123_456.789,
        4.35,
        0.000_001,
        90_071_992_547_409.9,
    ];
    bits.extend(values.iter().map(|v: &f64| v.to_bits()));
    bits
}

/// Counters, decimals, odd bits and odd labels over an hour.
async fn first(server: &Server, sent: &mut Sent, random: &mut StdRng) {
    let mut series = Vec::new();
    for i in 0..300 {
        let (job, instance) = (["api", "db", "web"][i % 3], format!("10.0.{}.{}:9100", i / 50, i % 50));
        let labels = labels(&[("__name__", "requests_total"), ("job", job), ("instance", &instance)]);
        let sample = |s: i64| (T0_MS + s * 60_000 + i as i64, ((s * 15 * (i as i64 + 1)) as f64).to_bits());
        series.push((labels, (0..60).map(sample).collect()));
    }
    for i in 0..40 {
        let labels = labels(&[("__name__", "temperature_celsius"), ("sensor", &format!("s{i}"))]);
        let scale = [1.0, 10.0, 100.0, 1e4, 1e7][i % 5];
        let samples: Vec<_> = (0..60)
            .map(|s| {
                let bits =
                    if s == 30 { STALE } else { (random.random_range(-50_000i64..50_000) as f64 / scale).to_bits() };
                (T0_MS + s * 60_000, bits)
            })
            .collect();
        series.push((labels, samples));
    }
    let special = special();
    for shift in 0..3 {
        let labels = labels(&[("__name__", "special"), ("shift", &shift.to_string())]);
        let sample = |s: usize| (T0_MS + s as i64 * 1000, special[(s + shift) % special.len()]);
        series.push((labels, (0..special.len()).map(sample).collect()));
    }
    for i in 0..20 {
        let labels = labels(&[("__name__", "random_bits"), ("n", &i.to_string())]);
        series.push((labels, (0..100).map(|s| (T0_MS + s * 7_001, random.next_u64())).collect()));
    }
    let mut many = labels(&[("__name__", "many_labels"), ("Ünïcode \"näme\"", "zwei\nZeilen, \\ und 日本\u{1}")]);
    many.extend((0..30).map(|i| (format!("label_{i:02}"), format!("value {i}"))));
    series.push((many, vec![(T0_MS + 5, 1f64.to_bits()), (T0_MS + 6, 2.5f64.to_bits())]));
    series.push((labels(&[("__name__", "alone")]), vec![(T0_MS, 7f64.to_bits())]));
    for chunk in series.chunks(64) {
        sent.write(server, chunk).await;
    }
    // The same again: stored once.
    for chunk in series.chunks(100) {
        sent.write(server, chunk).await;
    }
    for (i, ts) in [T0_MS, T0_MS + 15_000, T0_MS + 30_000].into_iter().enumerate() {
        let labels = labels(&[("__name__", "latency_seconds"), ("job", "api")]);
        sent.write_histogram(server, &labels, ts, &[1, 2, 3 + i as u64], 17.5).await;
        sent.write_histogram(server, &labels, ts, &[1, 2, 3 + i as u64], 17.5).await;
    }
    server.write(metadata_body("Old help.")).await;
}

/// Other values at the same times, a histogram where a float is, and late samples of other days.
async fn second(server: &Server, sent: &mut Sent, random: &mut StdRng) {
    let special = special();
    let mut series = Vec::new();
    for shift in 0..3usize {
        let labels = labels(&[("__name__", "special"), ("shift", &shift.to_string())]);
        let sample = |s: usize| (T0_MS + s as i64 * 1000, special[(s * 7 + 3 + shift) % special.len()]);
        series.push((labels, (0..special.len()).map(sample).collect::<Vec<_>>()));
    }
    for i in 0..10 {
        let labels = labels(&[("__name__", "late"), ("n", &i.to_string())]);
        // Backwards, over five days.
        let sample = |s: i64| (T0_MS + 2 * DAY_MS - s * DAY_MS / 8, random.random_range(0..1000i64) as f64 / 8.0);
        series.push((labels, (0..40).map(sample).map(|(ts, v)| (ts, v.to_bits())).collect()));
    }
    sent.write(server, &series).await;
    let both = labels(&[("__name__", "special"), ("shift", "0")]);
    sent.write_histogram(server, &both, T0_MS + 2000, &[4, 4], 1.25).await;
    let labels = labels(&[("__name__", "latency_seconds"), ("job", "api")]);
    sent.write_histogram(server, &labels, T0_MS, &[1, 2, 9], 17.5).await;
    sent.write_histogram(server, &labels, T0_MS + 15_000, &[1, 2, 1], 17.5).await;
    server.write(metadata_body("All requests.")).await;
    // Start times: a column that the other parts lack.
    let point = |s: i64| {
        let (start, ts) = ((T0_MS + 500) * 1_000_000, (T0_MS + 1000 * s) * 1_000_000);
        format!("{{\"startTimeUnixNano\":\"{start}\",\"timeUnixNano\":\"{ts}\",\"asDouble\":{}.25}}", s * 3)
    };
    let points: Vec<String> = (1..50).map(point).collect();
    let sum = format!("{{\"dataPoints\":[{}],\"aggregationTemporality\":2,\"isMonotonic\":true}}", points.join(","));
    let metric = format!("{{\"name\":\"with_start\",\"description\":\"From a start.\",\"sum\":{sum}}}");
    let body = format!("{{\"resourceMetrics\":[{{\"scopeMetrics\":[{{\"metrics\":[{metric}]}}]}}]}}");
    let headers = [("content-type", "application/json")];
    let answer = server.post("/metrics-api/api/v1/otlp/v1/metrics", &headers, body.into_bytes()).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
    for s in 1..50 {
        let key = (text(&self::labels(&[("__name__", "with_start_total")])), T0_MS + 1000 * s);
        sent.floats.insert(key, (s as f64 * 3.0 + 0.25).to_bits());
    }
}

async fn in_every_state(options: &Options, root: impl Fn(&Path) -> std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let root = root(dir.path());
    let (mut sent, mut random) = (Sent::default(), StdRng::seed_from_u64(20_261_121));
    let server = Server::start(dir.path(), options).await;
    first(&server, &mut sent, &mut random).await;
    server.flush().await;
    second(&server, &mut sent, &mut random).await;
    server.flush().await;
    sent.check(&root, "flushed twice");
    server.compact().await;
    sent.check(&root, "compacted");
    first(&server, &mut sent, &mut random).await;
    server.write(metadata_body("All requests.")).await;
    server.flush().await;
    sent.check(&root, "compacted and flushed");
    server.compact().await;
    sent.check(&root, "compacted twice");
    assert!(sent.floats.len() > 20_000 && sent.histograms.len() == 4, "{}", sent.floats.len());
    assert_eq!(server.stop(), Some(0));
    sent.check(&root, "stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn duckdb_reads_everything_back() {
    in_every_state(&Options::default(), |data| data.join("store")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duckdb_reads_what_went_over_s3() {
    let s3 = S3Server::start().await;
    // The server of the tests keeps objects as files, which spares DuckDB an extension from the network.
    in_every_state(&s3.options(), |_| s3.root()).await;
}
