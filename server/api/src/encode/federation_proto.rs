//! Federation as protobuf: length-delimited messages `io.prometheus.client.MetricFamily`.
//!
//! Fields of `prometheus/client_model` `metrics.proto`.

use quiver_ingest::wire::{VARINT, put_varint, tag};
use quiver_promql::histogram;
use quiver_types::Histogram;
use quiver_types::histogram::Span;

use super::escaping::{EscapingScheme, NameOf};
use super::federation::{MetricFamilyType, Newest, PIECE_BYTES, Value, cumulative};
use super::protobuf::{put_double, put_message, put_text, put_uint};

/// Writes families of samples that are sorted by name, from an index on until a piece is full; returns the next
/// index. A family is one message, however large.
pub(crate) fn delimited(samples: &[Newest], from: usize, escaping: EscapingScheme, out: &mut Vec<u8>) -> usize {
    let mut at = from;
    for family in samples[from..].chunk_by(Newest::is_of_family) {
        if out.len() >= PIECE_BYTES {
            break;
        }
        at += family.len();
        let mut message = Vec::new();
        put_text(&mut message, 1, &escaping.name(family[0].labels.metric(), NameOf::Metric));
        let kind = match family[0].kind() {
            MetricFamilyType::Untyped => 3,
            MetricFamilyType::Histogram => 4,
            MetricFamilyType::GaugeHistogram => 5,
        };
        put_uint(&mut message, 3, kind);
        for sample in family {
            put_message(&mut message, 4, |out| metric(out, sample, escaping));
        }
        put_varint(out, message.len() as u64);
        out.extend_from_slice(&message);
    }
    at
}

fn metric(out: &mut Vec<u8>, sample: &Newest, escaping: EscapingScheme) {
    for (label, value) in sample.labels() {
        put_message(out, 1, |pair| {
            put_text(pair, 1, &escaping.name(label, NameOf::Label));
            put_text(pair, 2, value);
        });
    }
    match &sample.value {
        Value::Float(v) => put_message(out, 5, |untyped| put_double(untyped, 1, *v)),
        Value::Histogram(h) if histogram::uses_custom_buckets(h) => put_message(out, 7, |out| classic(out, h)),
        Value::Histogram(h) => put_message(out, 7, |out| native(out, h)),
    }
    put_varint(out, u64::from(tag(6, VARINT)));
    put_varint(out, sample.ts as u64);
}

fn classic(out: &mut Vec<u8>, h: &Histogram) {
    put_double(out, 2, h.sum);
    for (bound, count) in cumulative(h) {
        put_message(out, 3, |bucket| {
            put_double(bucket, 2, bound);
            put_double(bucket, 4, count);
        });
    }
    put_double(out, 4, h.count);
}

fn native(out: &mut Vec<u8>, h: &Histogram) {
    put_double(out, 2, h.sum);
    put_double(out, 4, h.count);
    zigzag(out, 5, h.schema);
    put_double(out, 6, h.zero_threshold);
    put_double(out, 8, h.zero_count);
    for (field, side, counts) in [(9, &h.negative_spans, &h.negative), (12, &h.positive_spans, &h.positive)] {
        for span in side {
            put_message(out, field, |message| bucket_span(message, *span));
        }
        for count in counts {
            put_double(out, field + 2, *count);
        }
    }
}

fn bucket_span(out: &mut Vec<u8>, span: Span) {
    zigzag(out, 1, span.offset);
    put_varint(out, u64::from(tag(2, VARINT)));
    put_varint(out, u64::from(span.length));
}

/// Writes zeros, too: in proto2 an absent field has a meaning of its own.
fn zigzag(out: &mut Vec<u8>, field: u32, value: i32) {
    put_varint(out, u64::from(tag(field, VARINT)));
    put_varint(out, u64::from((value as u32) << 1 ^ (value >> 31) as u32));
}

#[cfg(test)]
mod tests {
    use quiver_ingest::wire::Reader;
    use quiver_types::LabelSet;

    use super::*;

    #[test]
    fn families_are_delimited() {
        let sample = |name: &str, value: Value| Newest {
            labels: LabelSet::from_pairs([("__name__", name), ("instance", "i")]),
            ts: 7,
            value,
        };
        let h = Histogram { count: 3.0, schema: 2, ..Histogram::default() };
        let samples = [
            sample("a", Value::Float(1.0)),
            sample("a", Value::Float(2.0)),
            sample("a", Value::Histogram(Box::new(h))),
        ];
        let mut bytes = Vec::new();
        assert_eq!(delimited(&samples, 0, EscapingScheme::Underscores, &mut bytes), samples.len());
        let mut r = Reader::new(&bytes);
        let mut found = Vec::new();
        while !r.is_empty() {
            let mut family = Reader::new(r.bytes().unwrap());
            let (mut name, mut kind, mut metrics) = (Vec::new(), 0, 0);
            while !family.is_empty() {
                match family.tag().unwrap() {
                    10 => name = family.bytes().unwrap().to_vec(),
                    24 => kind = family.varint().unwrap(),
                    34 => metrics += usize::from(!family.bytes().unwrap().is_empty()),
                    other => panic!("{other}"),
                }
            }
            found.push((String::from_utf8(name).unwrap(), kind, metrics));
        }
        assert_eq!(found, [("a".to_owned(), 3, 2), ("a".to_owned(), 4, 1)]);
    }

    /// Reads fields as number, bytes and integer.
    fn fields(message: &[u8]) -> Vec<(u32, Vec<u8>, u64)> {
        let (mut r, mut out) = (Reader::new(message), Vec::new());
        while !r.is_empty() {
            let tag = r.tag().expect("a tag");
            out.push(match tag & 7 {
                0 => (tag >> 3, Vec::new(), r.varint().expect("a number")),
                1 => (tag >> 3, Vec::new(), r.fixed64().expect("8 bytes")),
                _ => (tag >> 3, r.bytes().expect("bytes").to_vec(), 0),
            });
        }
        out
    }

    #[test]
    fn numbers_with_a_sign() {
        for (value, expected) in
            [(0, 0), (-1, 1), (1, 2), (-2, 3), (i32::MAX, u64::from(u32::MAX) - 1), (i32::MIN, u64::from(u32::MAX))]
        {
            let mut out = Vec::new();
            zigzag(&mut out, 5, value);
            assert_eq!(fields(&out), [(5, Vec::new(), expected)], "{value}");
        }
    }

    #[test]
    fn a_native_histogram() {
        let h = Histogram {
            schema: -1,
            count: 7.5,
            sum: -2.0,
            zero_threshold: 0.25,
            zero_count: 1.0,
            positive_spans: vec![Span { offset: -3, length: 2 }],
            positive: vec![2.0, 0.5],
            negative_spans: vec![Span { offset: 0, length: 1 }],
            negative: vec![4.0],
            reset_hint: quiver_types::ResetHint::Gauge,
            ..Histogram::default()
        };
        let labels = LabelSet::from_pairs([("__name__", "h"), ("instance", "i")]);
        let sample = Newest { labels, ts: -1, value: Value::Histogram(Box::new(h)) };
        let mut bytes = Vec::new();
        assert_eq!(delimited(std::slice::from_ref(&sample), 0, EscapingScheme::Underscores, &mut bytes), 1);
        let mut whole = Reader::new(&bytes);
        let family = fields(whole.bytes().expect("a message"));
        assert!(whole.is_empty());
        assert_eq!(family.iter().map(|f| (f.0, f.2)).collect::<Vec<_>>(), [(1, 0), (3, 5), (4, 0)]);
        let metric = fields(&family[2].1);
        assert_eq!(metric.iter().map(|f| f.0).collect::<Vec<_>>(), [1, 7, 6]);
        assert_eq!(fields(&metric[0].1), [(1, b"instance".to_vec(), 0), (2, b"i".to_vec(), 0)]);
        assert_eq!(metric[2].2 as i64, -1, "times may lie before 1970");
        let number = |field: u32, value: f64| (field, Vec::new(), value.to_bits());
        let expected = [
            number(2, -2.0),
            number(4, 7.5),
            (5, Vec::new(), 1),
            number(6, 0.25),
            number(8, 1.0),
            (9, vec![8, 0, 16, 1], 0),
            number(11, 4.0),
            (12, vec![8, 5, 16, 2], 0),
            number(14, 2.0),
            number(14, 0.5),
        ];
        assert_eq!(fields(&metric[1].1), expected);
    }

    #[test]
    fn large_answers_come_in_pieces_of_whole_families() {
        let sample = |name: String| Newest {
            labels: LabelSet::from_pairs([("__name__", name.as_str()), ("instance", "i")]),
            ts: 7,
            value: Value::Float(1.0),
        };
        let samples: Vec<Newest> = (0..6000).map(|n| sample(format!("m{:04}", n / 2))).collect();
        let (mut at, mut pieces, mut whole) = (0, 0, Vec::new());
        while at < samples.len() {
            let mut piece = Vec::new();
            at = delimited(&samples, at, EscapingScheme::Underscores, &mut piece);
            assert_eq!(at % 2, 0, "a family is one message");
            assert!(piece.len() < PIECE_BYTES + 200, "{}", piece.len());
            whole.append(&mut piece);
            pieces += 1;
        }
        let mut r = Reader::new(&whole);
        let mut names = Vec::new();
        while !r.is_empty() {
            let family = fields(r.bytes().expect("a message"));
            assert_eq!(family.iter().filter(|f| f.0 == 4).count(), 2);
            names.push(String::from_utf8(family[0].1.clone()).expect("text"));
        }
        let expected: Vec<String> = (0..3000).map(|n| format!("m{n:04}")).collect();
        assert!(pieces > 1 && names == expected, "{pieces} pieces, {} families", names.len());
    }
}
