//! Remote write 2.0 compared with prost, the reasons for which a series is refused, and hostile symbol tables.

use std::sync::Mutex;

use prost::Message;
use quiver_types::{ErrorKind, LabelSet};

use super::*;
use crate::context::Limits;
use crate::formats::testproto::{self as proto, Request2, TimeSeries2};
use crate::fuzz;
use crate::otlp::OtlpOptions;

fn decode_bytes(body: &[u8]) -> Result<DecodedMetrics> {
    let (options, delta) = (OtlpOptions::default(), Mutex::default());
    let ctx = Context { limits: Limits::default(), otlp: &options, delta: &delta, now_ms: 0, sender: None };
    let decoded = decode(body, &ctx)?;
    fuzz::check(&decoded.batch);
    Ok(decoded)
}

const SYMBOLS: [&str; 10] = ["", "__name__", "m_bucket", "job", "a", "Help", "seconds", "trace_id", "abc", "m"];

fn decode_series(timeseries: Vec<TimeSeries2>) -> DecodedMetrics {
    let symbols = SYMBOLS.iter().map(|s| (*s).to_owned()).collect();
    decode_bytes(&Request2 { symbols, timeseries }.encode_to_vec()).unwrap()
}

fn sample(timestamp: i64, start_timestamp: i64) -> proto::Sample {
    proto::Sample { value: 1.5, timestamp, start_timestamp }
}

fn series(refs: &[u32]) -> TimeSeries2 {
    TimeSeries2 { labels_refs: refs.to_vec(), samples: vec![sample(7, 0)], ..TimeSeries2::default() }
}

#[test]
fn everything() {
    let mut first = series(&[1, 2, 3, 4]);
    first.samples = vec![sample(1, 0), sample(2, 9)];
    first.histograms = vec![proto::Histogram { start_timestamp: 8, ..proto::histogram(3) }, proto::histogram(4)];
    first.exemplars = vec![
        proto::Exemplar2 { labels_refs: vec![7, 8], value: 0.5, timestamp: 6 },
        proto::Exemplar2 { labels_refs: vec![7], value: 0.5, timestamp: 6 },
    ];
    first.metadata = Some(proto::Metadata2 { kind: 3, help_ref: 5, unit_ref: 6 });
    first.created_timestamp = 5;
    let mut second = series(&[3, 4, 1, 9]);
    second.metadata = first.metadata;
    let decoded = decode_series(vec![first, second]);
    let b = &decoded.batch;
    assert_eq!(LabelSet::from_canonical(b.labels(0)), LabelSet::from_pairs([("__name__", "m_bucket"), ("job", "a")]));
    assert_eq!(LabelSet::from_canonical(b.labels(1)), LabelSet::from_pairs([("__name__", "m"), ("job", "a")]));
    assert_eq!((&b.ts[..], &b.start_ts[..]), (&[1, 2, 7][..], &[5, 9, 0][..]));
    let starts: Vec<_> = b.histograms.iter().map(|h| (h.ts, h.start_ts)).collect();
    assert_eq!(starts, [(3, 8), (4, 5)]);
    assert_eq!((b.exemplars.len(), b.exemplars[0].ts), (1, 6));
    assert_eq!(decoded.rejected[0].reason, Reason::InvalidExemplar);
    let metadata: Vec<_> =
        b.metadata.iter().map(|m| [&m.metric[..], &m.metric_type[..], &m.help[..], &m.unit[..]]).collect();
    assert_eq!(metadata, [["m", "histogram", "Help", "seconds"]], "once per family");
}

#[test]
fn exemplars_have_at_most_128_characters() {
    let check = |value: &str, kept: usize| {
        let symbols = ["", "__name__", "m", "id", value, "none"].map(str::to_owned).to_vec();
        let mut one = series(&[1, 2]);
        // What has no value is no label, and does not count.
        one.exemplars = vec![proto::Exemplar2 { labels_refs: vec![3, 4, 5, 0], value: 0.5, timestamp: 6 }];
        let decoded = decode_bytes(&Request2 { symbols, timeseries: vec![one] }.encode_to_vec()).unwrap();
        assert_eq!(
            (decoded.samples, decoded.exemplars, decoded.batch.exemplars.len()),
            (1, kept as u64, kept),
            "{value}"
        );
        let refused: Vec<_> = decoded.rejected.iter().map(|r| (r.reason, r.count)).collect();
        assert_eq!(refused, [(Reason::InvalidExemplar, 1)][kept..], "{value}");
    };
    check(&"x".repeat(126), 1);
    check(&"x".repeat(127), 0);
    check(&"ä".repeat(126), 1);
    check(&"ä".repeat(127), 0);
}

#[test]
fn refusals() {
    let good = series(&[1, 2]);
    let check = |bad: TimeSeries2, reason| {
        let decoded = decode_series(vec![good.clone(), bad.clone(), good.clone()]);
        assert_eq!(decoded.samples, 2, "{bad:?}");
        assert_eq!((decoded.rejected[0].reason, decoded.rejected[0].count), (reason, 1), "{bad:?}");
        assert!(!reason.is_silent());
        assert_eq!(decoded.batch.series.len(), 2);
    };
    check(series(&[1, 2, 3]), Reason::BadSymbols);
    check(series(&[1, 99]), Reason::BadSymbols);
    check(series(&[3, 4]), Reason::NoMetricName);
    check(series(&[]), Reason::NoMetricName);
    check(series(&[1, 0]), Reason::NoMetricName);
    check(series(&[1, 2, 0, 4]), Reason::EmptyLabelName);
    check(series(&[1, 2, 3, 4, 3, 4]), Reason::RepeatedLabel);
    check(TimeSeries2 { samples: vec![], ..series(&[1, 2]) }, Reason::EmptySeries);
    let bad = proto::Histogram { count_int: Some(1), ..proto::histogram(1) };
    check(TimeSeries2 { samples: vec![], histograms: vec![bad], ..series(&[1, 2]) }, Reason::InvalidHistogram);
    let body = Request2 { symbols: vec!["x".into(), "__name__".into(), "m".into()], timeseries: vec![series(&[1, 2])] };
    assert_eq!(decode_bytes(&body.encode_to_vec()).unwrap().rejected[0].reason, Reason::BadSymbols);
    let text = decode_series(vec![series(&[1, 99])]).rejected_text(|_| true).unwrap();
    assert_eq!(text, "1 rejected: bad symbols or references to them");
}

#[test]
fn metadata_without_type_is_no_error() {
    let mut one = series(&[1, 2]);
    one.metadata = Some(proto::Metadata2 { kind: 0, help_ref: 5, unit_ref: 0 });
    let mut other = series(&[1, 9]);
    other.metadata = Some(proto::Metadata2 { kind: 1, help_ref: 77, unit_ref: 0 });
    let decoded = decode_series(vec![one, other, series(&[1, 9])]);
    assert_eq!((decoded.samples, decoded.batch.metadata.len()), (3, 1));
    assert_eq!(decoded.batch.metadata[0].metric_type, "unknown");
    assert_eq!(decoded.rejected[0].reason, Reason::InvalidMetadata);
}

#[test]
fn symbols_after_series_and_other_orders() {
    let request = Request2 { symbols: SYMBOLS.iter().map(|s| (*s).into()).collect(), timeseries: vec![] };
    let mut body = Request2 { symbols: vec![], timeseries: vec![series(&[1, 2])] }.encode_to_vec();
    body.extend(request.encode_to_vec());
    assert_eq!(decode_bytes(&body).unwrap().samples, 1);
    // References one by one instead of packed, after the samples.
    let mut message = vec![];
    wire::put_bytes(&mut message, 2, &[0x10, 5]);
    message.extend([0x08, 1, 0x08, 2]);
    let mut body = request.encode_to_vec();
    wire::put_bytes(&mut body, 5, &message);
    assert_eq!(decode_bytes(&body).unwrap().batch.ts, [5]);
    for len in 0..body.len() {
        let _ = decode_bytes(&body[..len]);
    }
}

#[test]
fn amplification_is_bounded() {
    // One long symbol named by many series: each is small on the wire and large in memory.
    let mut symbols: Vec<String> = vec![String::new(), "__name__".into(), "m".into(), "a".into()];
    symbols.push("x".repeat(1 << 20));
    let request = Request2 { symbols, timeseries: vec![series(&[1, 2, 3, 4]); 500] };
    assert_eq!(decode_bytes(&request.encode_to_vec()).unwrap_err().kind(), ErrorKind::TooLarge);
    // The same with series that are refused: no memory, but work.
    let refused = Request2 { timeseries: vec![series(&[3, 4, 3, 4]); 500], ..request.clone() };
    assert_eq!(decode_bytes(&refused.encode_to_vec()).unwrap_err().kind(), ErrorKind::TooLarge);
    let many_refs = Request2 { timeseries: vec![series(&[4; 100_000])], ..request };
    assert_eq!(decode_bytes(&many_refs.encode_to_vec()).unwrap_err().kind(), ErrorKind::TooLarge);
    let mut body = vec![];
    body.extend([0x22, 0x00].repeat(16 << 20));
    assert_eq!(decode_bytes(&body).unwrap_err().kind(), ErrorKind::TooLarge);
}
