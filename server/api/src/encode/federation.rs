//! Federation results: families of samples as exposition text (`federation_proto`: as protobuf).
//!
//! Source: Prometheus 3.14 `web/federate.go`, and `expfmt/text_create.go` of `prometheus/common` 0.7x.

use quiver_promql::histogram;
use quiver_types::label::METRIC_NAME;
use quiver_types::{Histogram, LabelSet, Millis, ResetHint};

use super::escaping::{EscapingScheme, NameOf, is_plain};
use super::prometheus::{Notation, write_value};

pub(crate) use quiver_promql::NewestValue as Value;

/// The newest sample of a series.
#[derive(Debug, Clone)]
pub(crate) struct Newest {
    /// Labels, including the metric's name.
    pub(crate) labels: LabelSet,
    /// Time of the sample in Unix milliseconds.
    pub(crate) ts: Millis,
    /// Float or histogram.
    pub(crate) value: Value,
}

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricFamilyType {
    /// Floats, whose original type is unknown.
    Untyped,
    /// Histograms whose counts never decrease.
    Histogram,
    /// Histograms whose counts may decrease.
    GaugeHistogram,
}

impl Newest {
    /// The type of the family of the sample.
    pub(crate) fn kind(&self) -> MetricFamilyType {
        match &self.value {
            Value::Float(_) => MetricFamilyType::Untyped,
            Value::Histogram(h) if h.reset_hint == ResetHint::Gauge => MetricFamilyType::GaugeHistogram,
            Value::Histogram(_) => MetricFamilyType::Histogram,
        }
    }

    /// Whether only the protobuf format can express it.
    pub(crate) fn needs_protobuf(&self) -> bool {
        matches!(&self.value, Value::Histogram(h) if !histogram::uses_custom_buckets(h))
    }

    /// Whether another sample has the same name and type.
    pub(crate) fn is_of_family(&self, other: &Self) -> bool {
        self.labels.metric() == other.labels.metric() && self.kind() == other.kind()
    }

    /// The labels without the name. `instance` is always included, so that the scraper does not add its own.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let missing = self.labels.get("instance").is_empty().then_some(("instance", ""));
        self.labels.iter().filter(|(name, _)| *name != METRIC_NAME).chain(missing)
    }
}

/// Cumulative counts of custom buckets: upper bound, count.
pub(crate) fn cumulative(h: &Histogram) -> Vec<(f64, f64)> {
    let mut found = histogram::positive(h).peekable();
    let mut count = 0.0;
    h.custom_bounds
        .iter()
        .map(|&bound| {
            while let Some(bucket) = found.next_if(|b| b.upper <= bound) {
                count += bucket.count;
            }
            (bound, count)
        })
        .collect()
}

/// Approximate size of a piece in bytes.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// Writes samples that are sorted by name as text, from an index on until a piece is full; returns the next index.
/// Names that are still not plain after escaping are quoted.
pub(crate) fn text(samples: &[Newest], from: usize, escaping: EscapingScheme, out: &mut Vec<u8>) -> usize {
    let mut at = from;
    while at < samples.len() && out.len() < PIECE_BYTES {
        let sample = &samples[at];
        if at == 0 || !sample.is_of_family(&samples[at - 1]) {
            out.extend_from_slice(b"# TYPE ");
            write_name(out, &escaping.name(sample.labels.metric(), NameOf::Metric), NameOf::Metric);
            out.extend_from_slice(if sample.kind() == MetricFamilyType::Untyped {
                b" untyped\n"
            } else {
                b" histogram\n"
            });
        }
        match &sample.value {
            Value::Float(v) => line(out, sample, "", None, *v, escaping),
            Value::Histogram(h) => {
                for (bound, count) in cumulative(h) {
                    line(out, sample, "_bucket", Some(bound), count, escaping);
                }
                line(out, sample, "_bucket", Some(f64::INFINITY), h.count, escaping);
                line(out, sample, "_sum", None, h.sum, escaping);
                line(out, sample, "_count", None, h.count, escaping);
            }
        }
        at += 1;
    }
    at
}

fn line(out: &mut Vec<u8>, sample: &Newest, suffix: &str, bound: Option<f64>, value: f64, escaping: EscapingScheme) {
    let name = format!("{}{suffix}", escaping.name(sample.labels.metric(), NameOf::Metric));
    let inside = !is_plain(&name, NameOf::Metric);
    if inside {
        out.push(b'{');
    }
    write_name(out, &name, NameOf::Metric);
    let mut separator = if inside { b',' } else { b'{' };
    for (label, value) in sample.labels() {
        out.push(separator);
        separator = b',';
        write_name(out, &escaping.name(label, NameOf::Label), NameOf::Label);
        out.extend_from_slice(b"=\"");
        escape(out, value);
        out.push(b'"');
    }
    if let Some(bound) = bound {
        out.extend_from_slice(b",le=\"");
        write_value(out, bound, Notation::General);
        out.push(b'"');
    }
    out.extend_from_slice(b"} ");
    write_value(out, value, Notation::General);
    out.extend_from_slice(format!(" {}\n", sample.ts).as_bytes());
}

/// Writes a name unchanged, in quotes where it needs them.
fn write_name(out: &mut Vec<u8>, name: &str, of: NameOf) {
    if is_plain(name, of) {
        out.extend_from_slice(name.as_bytes());
    } else {
        out.push(b'"');
        escape(out, name);
        out.push(b'"');
    }
}

fn escape(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'"' => out.extend_from_slice(b"\\\""),
            b'\n' => out.extend_from_slice(b"\\n"),
            byte => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::histogram::{CUSTOM_SCHEMA, Span};

    use super::*;

    fn float(labels: &[(&str, &str)], value: f64) -> Newest {
        Newest { labels: LabelSet::from_pairs(labels.iter().copied()), ts: 1500, value: Value::Float(value) }
    }

    fn custom() -> Newest {
        let h = Histogram {
            schema: CUSTOM_SCHEMA,
            count: 7.0,
            sum: 18.5,
            positive_spans: vec![Span { offset: 0, length: 1 }, Span { offset: 1, length: 2 }],
            positive: vec![1.0, 2.0, 4.0],
            custom_bounds: vec![0.5, 1.0, 2.0],
            ..Histogram::default()
        };
        let labels = LabelSet::from_pairs([("__name__", "h"), ("instance", "i")]);
        Newest { labels, ts: -5, value: Value::Histogram(Box::new(h)) }
    }

    #[test]
    fn lines() {
        let samples = [
            float(&[("__name__", "a"), ("instance", "i"), ("x", "q\"\\\n")], 1e6),
            float(&[("__name__", "a"), ("job", "j")], f64::INFINITY),
            custom(),
            float(&[("__name__", "my.name"), ("l.l", "v")], 0.00001),
        ];
        let expected = "# TYPE a untyped\n\
            a{instance=\"i\",x=\"q\\\"\\\\\\n\"} 1e+06 1500\n\
            a{job=\"j\",instance=\"\"} +Inf 1500\n\
            # TYPE h histogram\n\
            h_bucket{instance=\"i\",le=\"0.5\"} 1 -5\n\
            h_bucket{instance=\"i\",le=\"1\"} 1 -5\n\
            h_bucket{instance=\"i\",le=\"2\"} 3 -5\n\
            h_bucket{instance=\"i\",le=\"+Inf\"} 7 -5\n\
            h_sum{instance=\"i\"} 18.5 -5\n\
            h_count{instance=\"i\"} 7 -5\n";
        let check = |escaping: EscapingScheme, last: &str| {
            let mut out = Vec::new();
            assert_eq!(text(&samples, 0, escaping, &mut out), samples.len());
            assert_eq!(String::from_utf8(out).unwrap(), format!("{expected}{last}"));
        };
        let plain = "# TYPE my_name untyped\nmy_name{l_l=\"v\",instance=\"\"} 1e-05 1500\n";
        check(EscapingScheme::Underscores, plain);
        let quoted = "# TYPE \"my.name\" untyped\n{\"my.name\",\"l.l\"=\"v\",instance=\"\"} 1e-05 1500\n";
        check(EscapingScheme::AllowUtf8, quoted);
        check(EscapingScheme::Dots, &plain.replace("my_name", "my_dot_name").replace("l_l", "l_dot_l"));
        check(EscapingScheme::Values, &plain.replace("my_name", "U__my_2e_name").replace("l_l", "U__l_2e_l"));
    }

    /// The suffix of a histogram's name is not escaped.
    #[test]
    fn suffixes_follow_escaped_names() {
        let labels = LabelSet::from_pairs([("__name__", "h.h"), ("instance", "i")]);
        let check = |escaping: EscapingScheme, count: &str| {
            let mut out = Vec::new();
            text(&[Newest { labels: labels.clone(), ..custom() }], 0, escaping, &mut out);
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text.lines().last(), Some(format!("{count}instance=\"i\"}} 7 -5").as_str()), "{escaping:?}");
        };
        check(EscapingScheme::AllowUtf8, "{\"h.h_count\",");
        check(EscapingScheme::Underscores, "h_h_count{");
        check(EscapingScheme::Dots, "h_dot_h_count{");
        check(EscapingScheme::Values, "U__h_2e_h_count{");
    }

    #[test]
    fn a_family_of_many_pieces_is_named_once() {
        let samples: Vec<Newest> = (0..5000).map(|_| float(&[("__name__", "a"), ("instance", "i")], 1.0)).collect();
        let (mut at, mut whole, mut pieces) = (0, String::new(), 0);
        while at < samples.len() {
            let mut piece = Vec::new();
            at = text(&samples, at, EscapingScheme::Underscores, &mut piece);
            assert!(piece.len() < PIECE_BYTES + 100);
            whole += &String::from_utf8(piece).unwrap();
            pieces += 1;
        }
        let lines = "a{instance=\"i\"} 1 1500\n".repeat(5000);
        assert!(pieces > 1 && whole == format!("# TYPE a untyped\n{lines}"));
    }

    fn with(more: Histogram) -> Newest {
        let labels = LabelSet::from_pairs([("__name__", "h")]);
        Newest { labels, ts: 0, value: Value::Histogram(Box::new(more)) }
    }

    #[test]
    fn families_are_of_one_name_and_type() {
        let native = || with(Histogram::default());
        let gauge = || with(Histogram { reset_hint: ResetHint::Gauge, ..Histogram::default() });
        let buckets = || with(Histogram { schema: CUSTOM_SCHEMA, ..Histogram::default() });
        for (sample, kind, needs_protobuf) in [
            (float(&[("__name__", "h")], f64::NAN), MetricFamilyType::Untyped, false),
            (native(), MetricFamilyType::Histogram, true),
            (gauge(), MetricFamilyType::GaugeHistogram, true),
            (buckets(), MetricFamilyType::Histogram, false),
            (
                with(Histogram { reset_hint: ResetHint::Reset, ..Histogram::default() }),
                MetricFamilyType::Histogram,
                true,
            ),
        ] {
            assert_eq!((sample.kind(), sample.needs_protobuf()), (kind, needs_protobuf));
        }
        assert!(native().is_of_family(&buckets()), "both are histograms");
        assert!(!native().is_of_family(&gauge()));
        assert!(!native().is_of_family(&float(&[("__name__", "h")], 1.0)));
        let [a, b] = ["a", "b"].map(|name| float(&[("__name__", name)], 1.0));
        assert!(a.is_of_family(&a) && !a.is_of_family(&b));
        // Samples without a name are a family, too.
        assert!(float(&[("x", "1")], 1.0).is_of_family(&float(&[("x", "2")], 2.0)));
    }

    #[test]
    fn counts_add_up_to_the_bounds() {
        let of = |spans: Vec<Span>, counts: &[f64], bounds: &[f64]| {
            let h = Histogram {
                schema: CUSTOM_SCHEMA,
                positive_spans: spans,
                positive: counts.to_vec(),
                custom_bounds: bounds.to_vec(),
                ..Histogram::default()
            };
            cumulative(&h)
        };
        assert!(of(Vec::new(), &[], &[]).is_empty());
        assert_eq!(of(Vec::new(), &[], &[1.0, 2.0]), [(1.0, 0.0), (2.0, 0.0)]);
        let all = |length: u32| vec![Span { offset: 0, length }];
        assert_eq!(of(all(2), &[1.0, 2.0], &[1.0, 2.0]), [(1.0, 1.0), (2.0, 3.0)]);
        // Observations above the last bound are in none of these buckets.
        assert_eq!(of(all(3), &[1.0, 2.0, 4.0], &[1.0, 2.0]), [(1.0, 1.0), (2.0, 3.0)]);
        let late = vec![Span { offset: 2, length: 1 }];
        assert_eq!(of(late, &[5.0], &[-1.0, 0.0, 1.0]), [(-1.0, 0.0), (0.0, 0.0), (1.0, 5.0)]);
    }

    #[test]
    fn the_instance_is_always_said() {
        let labels = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            float(pairs, 1.0).labels().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(labels(&[("__name__", "a")]), own(&[("instance", "")]));
        assert_eq!(labels(&[("__name__", "a"), ("instance", "i")]), own(&[("instance", "i")]));
        assert_eq!(labels(&[("b", "1"), ("instance", "")]), own(&[("b", "1"), ("instance", "")]));
    }

    #[test]
    fn what_is_no_plain_text() {
        let line_of = |name: &str, value: &str| {
            let mut out = Vec::new();
            text(&[float(&[("__name__", name), ("instance", value)], -0.0)], 0, EscapingScheme::AllowUtf8, &mut out);
            String::from_utf8(out).expect("text").lines().last().unwrap_or_default().to_owned()
        };
        assert_eq!(line_of("a", "ä\r\t"), "a{instance=\"ä\r\t\"} -0 1500");
        assert_eq!(line_of("a", "\\n"), "a{instance=\"\\\\n\"} -0 1500");
        assert_eq!(line_of("a\"b", "i"), "{\"a\\\"b\",instance=\"i\"} -0 1500");
        assert_eq!(line_of("1a", "i"), "{\"1a\",instance=\"i\"} -0 1500");
    }
}
