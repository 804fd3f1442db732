//! Federation as protobuf: messages `io.prometheus.client.MetricFamily`, each with its length before it.
//!
//! Fields of `prometheus/client_model` `metrics.proto`.

use quiver_ingest::wire::{VARINT, put_varint, tag};
use quiver_promql::histogram;
use quiver_types::Histogram;
use quiver_types::histogram::Span;

use super::escaping::Escaping;
use super::federation::{Kind, Newest, PIECE_BYTES, Value, cumulative};
use super::protobuf::{put_double, put_message, put_text, put_uint};

/// Writes families of samples that are sorted by name, from a place on until a piece is full, and gives the next place.
/// A family is one message, however large.
pub(crate) fn delimited(samples: &[Newest], from: usize, escaping: Escaping, out: &mut Vec<u8>) -> usize {
    let mut at = from;
    for family in samples[from..].chunk_by(Newest::is_of_family) {
        if out.len() >= PIECE_BYTES {
            break;
        }
        at += family.len();
        let mut message = Vec::new();
        put_text(&mut message, 1, &escaping.name(family[0].labels.metric(), true));
        let kind = match family[0].kind() {
            Kind::Untyped => 3,
            Kind::Histogram => 4,
            Kind::GaugeHistogram => 5,
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

fn metric(out: &mut Vec<u8>, sample: &Newest, escaping: Escaping) {
    for (label, value) in sample.labels() {
        put_message(out, 1, |pair| {
            put_text(pair, 1, &escaping.name(label, false));
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

/// Zeros stand too: an absent field has a meaning of its own in this version of the language.
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
        assert_eq!(delimited(&samples, 0, Escaping::Underscores, &mut bytes), samples.len());
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
}
