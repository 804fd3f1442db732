//! Remote write 1.0 and 2.0: valid requests decode to exactly their content; mutated ones give an error or a valid batch
//! within the limits.

use std::sync::Mutex;

use quiver_ingest::formats::{Format, remote_write, remote_write2};
use quiver_ingest::{Context, DeltaState, Limits, OtlpOptions, fuzz};
use quiver_tests::bodies::compress;
use quiver_types::{ErrorKind, LabelSet};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::drive::Target;
use crate::protobuf::{Field, double, encode, encode_mutated, int, message, packed, sint, snappy_mutated, text};

/// Limits of a case: small, so that they are met.
const LIMITS: Limits = Limits {
    body_bytes_max: 1 << 20,
    batch_bytes_max: 4 << 20,
    known_labels_bytes_max: 1 << 20,
    earliest_ms: i64::MIN,
    latest_ms: i64::MAX,
};

const WORDS: &[&str] =
    &["a", "b", "instance", "job", "le", "path", "0.5", "http://x/y?z", "grün", "\u{1f600}", "x.y-z", " "];
const VALUES: &[f64] = &[0.0, -0.0, 1.0, -2.5, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MIN_POSITIVE];

/// A series with float samples: sorted label pairs, then (time, value).
type Series = (Vec<(String, String)>, Vec<(i64, f64)>);

/// A body and, when nothing is broken, what it holds.
#[derive(Debug)]
struct Case {
    version: u8,
    body: Vec<u8>,
    expected: Option<Vec<Series>>,
}

fn series(random: &mut StdRng) -> Series {
    let mut labels =
        std::collections::BTreeMap::from([("__name__".to_owned(), (*WORDS.choose(random).expect("words")).to_owned())]);
    for _ in 0..random.random_range(0..6) {
        let word = |random: &mut StdRng| (*WORDS.choose(random).expect("words")).to_owned();
        labels.insert(word(random), format!("{}{}", word(random), random.random_range(0..10)));
    }
    let mut ts = random.random_range(0..2_000_000_000_000);
    let samples = (0..random.random_range(1..6)).map(|_| {
        ts += random.random_range(1..100_000);
        (ts, *VALUES.choose(random).expect("values"))
    });
    let samples = samples.collect();
    (labels.into_iter().collect(), samples)
}

/// A native histogram of integers whose counts fit together.
fn histogram(random: &mut StdRng, start_ts: bool) -> Field {
    let spans = |number| message(number, vec![sint(1, 1), int(2, 2)]);
    let mut fields = vec![
        int(1, 12),
        double(3, 3.5),
        sint(4, random.random_range(-4..=8)),
        double(5, 1e-3),
        int(6, 1),
        spans(8),
        packed(9, &[4, 1]),
        spans(11),
        packed(12, &[10, 3]),
        int(14, random.random_range(0..4)),
        int(15, random.random_range(1..2_000_000_000_000)),
    ];
    if start_ts {
        fields.push(int(17, 1));
    }
    message(if start_ts { 3 } else { 4 }, fields)
}

fn sample_fields(number: u64, samples: &[(i64, f64)]) -> impl Iterator<Item = Field> {
    samples.iter().map(move |(ts, value)| message(number, vec![double(1, *value), int(2, *ts as u64)]))
}

fn labels_of(labels: &[(String, String)]) -> Vec<Field> {
    labels.iter().map(|(name, value)| message(1, vec![text(1, name), text(2, value)])).collect()
}

fn request1(all: &[Series], extras: bool, random: &mut StdRng) -> Vec<Field> {
    let mut fields = Vec::new();
    for (labels, samples) in all {
        let mut one = labels_of(labels);
        one.extend(sample_fields(2, samples));
        if extras {
            one.push(histogram(random, false));
            let mut exemplar = labels_of(&[("trace_id".to_owned(), "abc".to_owned())]);
            exemplar.extend([double(2, 1.0), int(3, 5)]);
            one.push(message(3, exemplar));
        }
        fields.push(message(1, one));
    }
    if extras {
        fields.push(message(
            3,
            vec![int(1, random.random_range(0..10)), text(2, "m"), text(4, "Help."), text(5, "seconds")],
        ));
    }
    fields
}

fn request2(all: &[Series], extras: bool, random: &mut StdRng) -> Vec<Field> {
    let mut symbols = vec![String::new()];
    let mut symbol = |text: &str| {
        symbols.iter().position(|s| s == text).unwrap_or_else(|| {
            symbols.push(text.to_owned());
            symbols.len() - 1
        }) as u64
    };
    let mut series = Vec::new();
    for (labels, samples) in all {
        let refs: Vec<u64> = labels.iter().flat_map(|(n, v)| [symbol(n), symbol(v)]).collect();
        let mut one = vec![packed(1, &refs)];
        one.extend(sample_fields(2, samples));
        if extras {
            one.push(histogram(random, true));
            one.push(message(4, vec![packed(1, &refs[..2]), double(2, 1.0), int(3, 5)]));
            one.push(message(5, vec![int(1, random.random_range(0..9)), int(3, symbol("Help.")), int(4, symbol("s"))]));
        }
        series.push(message(5, one));
    }
    symbols.iter().map(|s| text(4, s)).chain(series).collect()
}

fn make(random: &mut StdRng) -> Case {
    let all: Vec<Series> = (0..random.random_range(1..5)).map(|_| series(random)).collect();
    let version = random.random_range(1..=2);
    let request = if version == 1 { request1 } else { request2 };
    if random.random_bool(0.2) {
        let body = compress(&encode(&request(&all, false, random)));
        return Case { version, body, expected: Some(all) };
    }
    let fields = request(&all, true, random);
    let raw = encode_mutated(fields, random);
    Case { version, body: snappy_mutated(&raw, random), expected: None }
}

/// Decodes both forms of a body: a batch that keeps the contract, or an error that blames the sender.
pub(crate) fn decode(format: &Format, encoding: Option<&str>, body: &[u8]) -> Option<quiver_ingest::DecodedMetrics> {
    let (options, delta) = (OtlpOptions::default(), Mutex::new(DeltaState::new(1 << 20, 1000)));
    let ctx = Context { limits: LIMITS, otlp: &options, delta: &delta, now_ms: 1_700_000_000_000, sender: None };
    match format.decode_request(encoding, body, &ctx, &mut |_| true) {
        Ok(decoded) => {
            fuzz::check(&decoded.batch);
            let b = &decoded.batch;
            let bytes = b.label_bytes.len() + b.ts.len() * 20;
            assert!(bytes <= LIMITS.batch_bytes_max, "a batch of {bytes} bytes");
            assert_eq!(decoded.samples, b.ts.len() as u64);
            assert_eq!(decoded.histograms, b.histograms.len() as u64);
            let text = decoded.rejected_text(|_| true).unwrap_or_default();
            assert!(text.len() < 16 << 10, "an answer of {} bytes", text.len());
            Some(decoded)
        }
        Err(e) => {
            assert!(matches!(e.kind(), ErrorKind::Invalid | ErrorKind::TooLarge), "{e}");
            assert!(e.to_string().len() < 1 << 10, "a long error");
            None
        }
    }
}

fn check(case: &Case) {
    let format = if case.version == 1 { &remote_write::FORMAT } else { &remote_write2::FORMAT };
    let decoded = decode(format, Some("snappy"), &case.body);
    let Some(expected) = &case.expected else { return };
    let batch = decoded.expect("a valid body").batch;
    let got = (0..batch.ts.len()).map(|i| {
        let labels = LabelSet::from_canonical(batch.labels(batch.sample_series[i]));
        (labels, batch.ts[i], batch.values[i].to_bits())
    });
    let expected = expected.iter().flat_map(|(labels, samples)| {
        let labels = LabelSet::from_pairs(labels.iter().map(|(n, v)| (n.as_str(), v.as_str())));
        samples.iter().map(move |(ts, value)| (labels.clone(), *ts, value.to_bits()))
    });
    assert_eq!(got.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn bodies() {
    let target = Target {
        name: "remote_write",
        make,
        size: |case: &Case| case.body.len(),
        // The decompressed body and the batch, each while it grows.
        bytes_max: |_| 24 << 20,
    };
    assert!(target.run(check) > 0);
}
