//! Remote write 1.0 compared with prost: messages that prost encodes are decoded to the same content, with fields in any
//! order; and invalid inputs.

use std::sync::Mutex;

use proptest::prelude::*;
use prost::Message;
use quiver_types::{Histogram, LabelSet, ResetHint, STALE_NAN_BITS, Span};

use super::*;
use crate::context::Limits;
use crate::formats::testproto as proto;
use crate::fuzz;
use crate::otlp::OtlpOptions;
use crate::wire::put_bytes;

fn decode_bytes(body: &[u8]) -> Result<DecodedMetrics> {
    let (options, delta) = (OtlpOptions::default(), Mutex::default());
    let ctx = Context { limits: Limits::default(), otlp: &options, delta: &delta, now_ms: 0, sender: None };
    let decoded = decode(body, &ctx)?;
    fuzz::check(&decoded.batch);
    Ok(decoded)
}

fn decode_request(timeseries: Vec<proto::TimeSeries>) -> DecodedMetrics {
    decode_bytes(&proto::WriteRequest { timeseries, metadata: vec![] }.encode_to_vec()).unwrap()
}

/// Flattens a batch to what was sent: (labels, time, value bits).
fn flat(decoded: &DecodedMetrics) -> Vec<(LabelSet, i64, u64)> {
    let b = &decoded.batch;
    let row = |i: usize| (LabelSet::from_canonical(b.labels(b.sample_series[i])), b.ts[i], b.values[i].to_bits());
    (0..b.ts.len()).map(row).collect()
}

fn expected(request: &proto::WriteRequest) -> Vec<(LabelSet, i64, u64)> {
    let rows = request.timeseries.iter().flat_map(|s| {
        let labels = LabelSet::from_pairs(s.labels.iter().map(|l| (l.name.as_str(), l.value.as_str())));
        // prost, like other encoders, leaves -0 out as if it were 0; its bits are tested by hand.
        let bits = |v: f64| if v == 0.0 { 0 } else { v.to_bits() };
        s.samples.iter().map(move |x| (labels.clone(), x.timestamp, bits(x.value)))
    });
    rows.collect()
}

#[test]
fn samples() {
    let request = proto::scrape(100);
    let decoded = decode_bytes(&request.encode_to_vec()).unwrap();
    assert_eq!(flat(&decoded), expected(&request));
    assert_eq!((decoded.samples, decoded.batch.series.len()), (100, 100));
    assert!(decoded.batch.start_ts.is_empty() && decoded.rejected.is_empty());
    let odd = [f64::from_bits(STALE_NAN_BITS), f64::from_bits(0x7ff8_dead_beef_0001), -0.0, f64::INFINITY, 0.0];
    let samples: Vec<_> = odd.iter().enumerate().map(|(i, v)| (i as i64 - 2, *v)).collect();
    let request = proto::WriteRequest {
        timeseries: vec![
            proto::series(&[("z", "1"), ("__name__", "m"), ("empty", "")], &samples),
            proto::series(&[("__name__", "no_samples")], &[]),
            proto::series(&[("__name__", "m"), ("é", "ü")], &[(i64::MAX, 1.0), (i64::MIN, 2.0)]),
        ],
        metadata: vec![],
    };
    let decoded = decode_bytes(&request.encode_to_vec()).unwrap();
    assert_eq!(flat(&decoded), expected(&request));
    assert_eq!(decoded.batch.series.len(), 2, "a series without anything is not stored");
    let mut body = proto::WriteRequest { timeseries: vec![proto::series(&[("__name__", "m")], &[])], metadata: vec![] }
        .encode_to_vec();
    body.extend([0x12, 11, 0x09, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x10, 7]);
    body[1] += 13;
    assert_eq!(decode_bytes(&body).unwrap().batch.values[0].to_bits(), (-0.0f64).to_bits());
}

#[test]
fn invalid_labels_cost_their_series_only() {
    let good = proto::series(&[("__name__", "m"), ("a", "1")], &[(1, 1.0)]);
    let check = |pairs: &[(&str, &str)], reason| {
        let mut bad = proto::series(pairs, &[(1, 5.0), (2, 6.0)]);
        bad.histograms = vec![proto::histogram(3)];
        bad.exemplars = vec![proto::Exemplar { labels: vec![], value: 1.0, timestamp: 1 }];
        let decoded = decode_request(vec![good.clone(), bad, good.clone()]);
        assert_eq!((decoded.samples, decoded.histograms, decoded.exemplars), (2, 0, 0), "{pairs:?}");
        assert_eq!(decoded.rejected.len(), 1);
        assert_eq!((decoded.rejected[0].reason, decoded.rejected[0].count), (reason, 1), "{pairs:?}");
        assert!(reason.is_label_fault());
    };
    check(&[("a", "1")], Reason::NoMetricName);
    check(&[("__name__", ""), ("a", "1")], Reason::NoMetricName);
    check(&[("__name__", "m"), ("a", "1"), ("a", "2")], Reason::RepeatedLabel);
    check(&[("__name__", "m"), ("", "1")], Reason::EmptyLabelName);
    let mut body = proto::WriteRequest { timeseries: vec![good], metadata: vec![] }.encode_to_vec();
    let at = body.iter().position(|b| *b == b'1').unwrap();
    body[at] = 0xff;
    let decoded = decode_bytes(&body).unwrap();
    assert_eq!((decoded.samples, decoded.rejected[0].reason), (0, Reason::InvalidUtf8));
}

#[test]
fn histograms() {
    let stale = proto::Histogram {
        count_int: Some(0),
        sum: f64::from_bits(STALE_NAN_BITS),
        timestamp: 2,
        ..proto::Histogram::default()
    };
    let float = proto::Histogram {
        count_float: Some(1.5),
        zero_count_float: Some(0.25),
        positive_spans: vec![proto::BucketSpan { offset: 0, length: 2 }],
        positive_counts: vec![0.5, 0.75],
        reset_hint: 3,
        timestamp: 3,
        ..proto::Histogram::default()
    };
    let custom = proto::Histogram {
        count_int: Some(3),
        schema: -53,
        custom_values: vec![0.1, 1.0],
        positive_spans: vec![proto::BucketSpan { offset: 0, length: 3 }],
        positive_deltas: vec![1, 0, 0],
        timestamp: 4,
        ..proto::Histogram::default()
    };
    let mut series = proto::series(&[("__name__", "h")], &[]);
    let bad_sum = proto::Histogram { count_int: Some(99), ..proto::histogram(5) };
    let bad_spans = proto::Histogram { positive_spans: vec![], ..proto::histogram(6) };
    series.histograms = vec![proto::histogram(1), bad_sum, stale, float, custom, bad_spans];
    let decoded = decode_request(vec![series]);
    assert_eq!((decoded.histograms, decoded.samples), (4, 0));
    assert_eq!((decoded.rejected[0].reason, decoded.rejected[0].count), (Reason::InvalidHistogram, 2));
    assert_eq!(decoded.rejected[0].example, "positive spans and buckets do not match: h{}");
    let h: Vec<_> = decoded.batch.histograms.iter().map(|h| (h.ts, &h.histogram)).collect();
    let spans = |list: &[(i32, u32)]| list.iter().map(|&(offset, length)| Span { offset, length }).collect::<Vec<_>>();
    let first = Histogram {
        schema: 3,
        zero_threshold: 1e-3,
        zero_count: 1.0,
        count: 12.0,
        sum: 3.5,
        positive_spans: spans(&[(1, 2), (1, 1)]),
        positive: vec![5.0, 3.0, 2.0],
        negative_spans: spans(&[(-2, 1)]),
        negative: vec![1.0],
        custom_bounds: vec![],
        reset_hint: ResetHint::NotReset,
        float: false,
    };
    assert_eq!(h[0], (1, &first));
    assert!(h[1].1.is_stale() && h[1].0 == 2);
    assert_eq!((h[2].1.float, &h[2].1.positive[..], h[2].1.reset_hint), (true, &[0.5, 0.75][..], ResetHint::Gauge));
    assert_eq!(
        (h[3].1.schema, &h[3].1.custom_bounds[..], &h[3].1.positive[..]),
        (-53, &[0.1, 1.0][..], &[1.0, 1.0, 1.0][..])
    );
}

#[test]
fn exemplars_and_metadata() {
    let mut series = proto::series(&[("__name__", "m")], &[(1, 1.0)]);
    let exemplar = |pairs: &[(&str, &str)]| proto::Exemplar { labels: proto::labels(pairs), value: 0.5, timestamp: 7 };
    series.exemplars = vec![exemplar(&[("trace_id", "abc")]), exemplar(&[("a", "1"), ("a", "2")]), exemplar(&[])];
    let metadata = |kind, name: &str| proto::MetricMetadata {
        kind,
        metric_family_name: name.into(),
        help: "Help".into(),
        unit: "s".into(),
    };
    let metadata = vec![metadata(1, "m"), metadata(99, "n"), metadata(2, "")];
    let decoded = decode_bytes(&proto::WriteRequest { timeseries: vec![series], metadata }.encode_to_vec()).unwrap();
    assert_eq!((decoded.samples, decoded.exemplars), (1, 2));
    let e = &decoded.batch.exemplars[0];
    assert_eq!((e.series, e.ts, e.value), (0, 7, 0.5));
    assert_eq!(LabelSet::from_canonical(&e.labels), LabelSet::from_pairs([("trace_id", "abc")]));
    let found: Vec<_> = decoded.batch.metadata.iter().map(|m| (m.metric.as_str(), m.metric_type.as_str())).collect();
    assert_eq!(found, [("m", "counter"), ("n", "unknown")]);
    assert!(decoded.rejected.iter().all(|r| r.reason.is_silent()));
    assert_eq!(decoded.rejected_count(|_| true), 2);
}

#[test]
fn bad_messages() {
    let check = |body: &[u8]| assert!(decode_bytes(body).is_err(), "{body:x?}");
    check(&[0x0a]);
    check(&[0x0a, 5, 1]);
    check(&[0x00]);
    check(&[0x08, 1]); // timeseries as a number
    check(&[0x0a, 2, 0x10, 1]); // samples as a number
    check(&[0x0a, 4, 0x12, 2, 0x0a, 0]); // value as bytes
    check(&[0x0a, 2, 0x0b, 0x0c]); // a group
    check(&[0x0a, 1, 0xff]);
    check(&[0xff; 11]);
    // Unknown fields of every kind are skipped.
    let mut body = proto::scrape(1).encode_to_vec();
    body.extend([0x98, 0x06, 1, 0x99, 0x06, 0, 0, 0, 0, 0, 0, 0, 0, 0x9a, 0x06, 1, 0, 0x9d, 0x06, 0, 0, 0, 0]);
    assert_eq!(decode_bytes(&body).unwrap().samples, 1);
}

#[test]
fn cut_anywhere() {
    let mut request = proto::scrape(3);
    request.timeseries[1].histograms = vec![proto::histogram(1)];
    let body = request.encode_to_vec();
    for len in 0..body.len() {
        // A cut between two series is a valid shorter message; all else is an error. Neither may panic.
        if let Ok(decoded) = decode_bytes(&body[..len]) {
            assert!(decoded.samples < 3, "cut at {len}");
        }
    }
}

#[test]
fn memory_is_bounded() {
    let empty_sample = [0x12, 0x00];
    let mut series = vec![];
    put_bytes(&mut series, 1, &[0x0a, 8, b'_', b'_', b'n', b'a', b'm', b'e', b'_', b'_', 0x12, 1, b'm']);
    let name = series.clone();
    series.extend(empty_sample.repeat(6 << 20));
    let mut body = vec![];
    put_bytes(&mut body, 1, &series);
    assert_eq!(decode_bytes(&body).unwrap_err().kind(), quiver_types::ErrorKind::TooLarge);
    let empty_histogram = [0x22, 0x00];
    let mut series = name.clone();
    series.extend(empty_histogram.repeat(2 << 20));
    body.clear();
    put_bytes(&mut body, 1, &series);
    assert_eq!(decode_bytes(&body).unwrap_err().kind(), quiver_types::ErrorKind::TooLarge);
    let mut series = name;
    series.extend([0x0a, 0x00].repeat(1 << 20));
    body.clear();
    put_bytes(&mut body, 1, &series);
    assert_eq!(decode_bytes(&body).unwrap().rejected[0].reason, Reason::TooManyLabels);
}

fn any_request() -> impl Strategy<Value = proto::WriteRequest> {
    let label = ("[a-c_é]{1,3}", "[a-zü ]{0,4}");
    let labels = proptest::collection::btree_map(label.0, label.1, 0..5);
    let series = (labels, proptest::collection::vec((any::<i64>(), any::<f64>()), 1..4));
    proptest::collection::vec(series, 0..6).prop_map(|list| {
        let series = list.iter().map(|(labels, samples)| {
            let mut pairs: Vec<_> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            pairs.push(("__name__", "m"));
            proto::series(&pairs, samples)
        });
        proto::WriteRequest { timeseries: series.collect(), metadata: vec![] }
    })
}

proptest! {
    #[test]
    fn same_as_prost(request in any_request()) {
        let decoded = decode_bytes(&request.encode_to_vec()).unwrap();
        prop_assert_eq!(flat(&decoded), expected(&request));
    }

    #[test]
    fn mutated_bodies(request in any_request(), flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut body = request.encode_to_vec();
        for (at, byte) in flips {
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] = byte;
            }
        }
        fuzz::fuzz_remote_write(&body);
        fuzz::fuzz_remote_write2(&body);
    }
}

/// Not a test of behaviour: prints the time per sample. `cargo test --release -- --ignored --nocapture speed`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "a measurement")]
fn speed() {
    let body = proto::scrape(500).encode_to_vec();
    let (options, delta) = (OtlpOptions::default(), Mutex::default());
    let ctx = Context { limits: Limits::default(), otlp: &options, delta: &delta, now_ms: 0, sender: None };
    let compressed = snap::raw::Encoder::new().compress_vec(&body).unwrap();
    for (name, repeat) in [("decode", 4000), ("decode", 4000), ("with snappy", 4000)] {
        let start = std::time::Instant::now();
        let mut samples = 0;
        for _ in 0..repeat {
            samples += match name {
                "decode" => decode(&body, &ctx).unwrap().samples,
                _ => FORMAT.decode_request(None, &compressed, &ctx, &mut |_| true).unwrap().samples,
            };
        }
        let ns = start.elapsed().as_nanos() as f64 / samples as f64;
        println!("{name}: {ns:.0} ns per sample, {} bytes per sample", body.len() / 500);
    }
}
