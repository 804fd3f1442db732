//! Text import: valid lines decode to exactly their content, invalid ones are skipped and counted, and the result does
//! not depend on how the body is cut into pieces, compressed or not.

use std::fmt::Write as _;
use std::io::{BufReader, Read, Write};

use quiver_ingest::exposition::{ExpositionDecoder, ExpositionOptions};
use quiver_ingest::{DecodedMetrics, Encoding, content_encoding, fuzz};
use quiver_types::LabelSet;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::drive::Target;

const NAMES: &[&str] = &["a", "b:c", "http_requests_total", "_x", "A9"];
const LABELS: &[&str] = &["job", "le", "x_1", "instance"];
const VALUES: &[&str] = &["", "1", "a b", "q\"uote", "back\\slash", "line\nbreak", "grün", "}", "{a=\"b\"}", "# x"];
const NUMBERS: &[f64] = &[0.0, -0.0, 1.0, -2.5, 1e300, f64::INFINITY, f64::NEG_INFINITY, 0.1];
const BAD: &[&str] =
    &["m", "m{", "m{a=1} 1", "1m 2", "m 1 2 3", "m{a=\"1\",a=\"2\"} 1", "{} 1", "m x", "m{a=\"\\", "é 1"];

/// What a line holds.
type Sample = (LabelSet, i64, u64);

/// A text and, when nothing is broken at random, what it holds and how many lines are bad.
#[derive(Debug)]
struct Case {
    text: Vec<u8>,
    open_metrics: bool,
    pieces: usize,
    expected: Option<(Vec<Sample>, u64)>,
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn line(random: &mut StdRng, open_metrics: bool, out: &mut String) -> Sample {
    let name = *NAMES.choose(random).expect("names");
    let mut labels: Vec<(&str, &str)> = vec![("__name__", name)];
    out.push_str(name);
    let count = random.random_range(0..=LABELS.len());
    if count > 0 {
        out.push('{');
        for label in &LABELS[..count] {
            let value = *VALUES.choose(random).expect("values");
            labels.push((label, value));
            let _ = write!(out, "{label}=\"{}\",", escaped(value));
        }
        if random.random_bool(0.5) {
            out.pop();
        }
        out.push('}');
    }
    let value = *NUMBERS.choose(random).expect("numbers");
    let ms = random.random_range(0..2_000_000_000_000_i64);
    let time = if open_metrics { format!("{}.{:03}", ms / 1000, ms % 1000) } else { ms.to_string() };
    let _ = write!(out, " {value} {time}");
    if open_metrics && random.random_bool(0.2) {
        out.push_str(" # {trace_id=\"abc\"} 0.5");
    }
    (LabelSet::from_pairs(labels.into_iter().filter(|(_, v)| !v.is_empty())), ms, value.to_bits())
}

fn make(random: &mut StdRng) -> Case {
    let open_metrics = random.random_bool(0.5);
    let (mut text, mut samples, mut bad) = (String::new(), Vec::new(), 0);
    for _ in 0..random.random_range(0..20) {
        match random.random_range(0..10) {
            0 => {
                text.push_str(BAD.choose(random).expect("lines"));
                bad += 1;
            }
            1 => text.push_str("# TYPE a counter"),
            2 => text.push_str("# any comment"),
            3 => {}
            _ => samples.push(line(random, open_metrics, &mut text)),
        }
        text.push_str(if random.random_bool(0.1) { "\r\n" } else { "\n" });
    }
    let pieces = random.random_range(1..64);
    let mut text = text.into_bytes();
    if random.random_bool(0.5) {
        return Case { text, open_metrics, pieces, expected: Some((samples, bad)) };
    }
    for _ in 0..random.random_range(1..6) {
        let at = random.random_range(0..=text.len());
        match random.random_range(0..3) {
            0 if at < text.len() => text[at] = random.random(),
            1 if at < text.len() => drop(text.remove(at)),
            _ => text.insert(at, *b"\"\\{}=,#\n \xff".choose(random).expect("bytes")),
        }
    }
    Case { text, open_metrics, pieces, expected: None }
}

fn decode(pieces: &mut dyn Read, size: usize, open_metrics: bool) -> DecodedMetrics {
    let options = ExpositionOptions { open_metrics, now_ms: 5, ..ExpositionOptions::default() };
    let mut decoder = ExpositionDecoder::new(options);
    let mut buffer = vec![0; size];
    loop {
        match pieces.read(&mut buffer).expect("a whole body") {
            0 => return decoder.finish().expect("texts are small"),
            n => decoder.feed(&buffer[..n]).expect("texts are small"),
        }
    }
}

fn held(decoded: &DecodedMetrics) -> (Vec<Sample>, u64) {
    let b = &decoded.batch;
    let sample = |i: usize| (LabelSet::from_canonical(b.labels(b.sample_series[i])), b.ts[i], b.values[i].to_bits());
    ((0..b.ts.len()).map(sample).collect(), decoded.rejected_count(|r| !r.is_silent()))
}

fn check(case: &Case) {
    let whole = decode(&mut &case.text[..], case.text.len().max(1), case.open_metrics);
    fuzz::check(&whole.batch);
    let got = held(&whole);
    if let Some(expected) = &case.expected {
        assert_eq!(&got, expected);
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&case.text).expect("memory");
    let gzip = gzip.finish().expect("memory");
    let mut body = content_encoding::reader(Encoding::Gzip, BufReader::with_capacity(7, &gzip[..])).expect("gzip");
    assert_eq!(held(&decode(&mut body, case.pieces, case.open_metrics)), got, "pieces change nothing");
    let half = &case.text[..case.text.len() / 2];
    if let Ok(mut body) = content_encoding::reader(Encoding::Zstd, half) {
        // Anything may come as anything; an end is all that counts.
        let mut buffer = [0; 512];
        while body.read(&mut buffer).is_ok_and(|n| n > 0) {}
    }
}

#[test]
fn texts() {
    let target = Target { name: "import", make, size: |case: &Case| case.text.len(), bytes_max: |_| 24 << 20 };
    assert!(target.run(check) > 0);
}
