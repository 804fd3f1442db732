//! What federation gives: families of samples, as exposition text 0.0.4 (`federation_proto`: as protobuf).
//!
//! Source: Prometheus 3.14 `web/federate.go`, and `expfmt/text_create.go` of `prometheus/common` 0.7x.

use quiver_promql::histogram;
use quiver_types::label::METRIC_NAME;
use quiver_types::{Histogram, LabelSet, Millis, ResetHint};

use super::prometheus::{Notation, write_value};

pub(crate) use quiver_promql::NewestValue as Value;

/// The newest sample of a series.
#[derive(Debug, Clone)]
pub(crate) struct Newest {
    /// Labels.
    pub(crate) labels: LabelSet,
    /// Time.
    pub(crate) ts: Millis,
    /// Float or histogram.
    pub(crate) value: Value,
}

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Floats: what they were is not known any more.
    Untyped,
    /// Histograms.
    Histogram,
    /// Histograms that may go down.
    GaugeHistogram,
}

impl Newest {
    /// Gives the type of the family that it belongs to.
    pub(crate) fn kind(&self) -> Kind {
        match &self.value {
            Value::Float(_) => Kind::Untyped,
            Value::Histogram(h) if h.reset_hint == ResetHint::Gauge => Kind::GaugeHistogram,
            Value::Histogram(_) => Kind::Histogram,
        }
    }

    /// Says whether only protobuf has a form for it.
    pub(crate) fn needs_protobuf(&self) -> bool {
        matches!(&self.value, Value::Histogram(h) if !histogram::uses_custom_buckets(h))
    }

    /// Gives the labels but the name; `instance` is always there, so that the scraper does not put its own.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let missing = self.labels.get("instance").is_empty().then_some(("instance", ""));
        self.labels.iter().filter(|(name, _)| *name != METRIC_NAME).chain(missing)
    }
}

/// Gives the cumulative counts of custom buckets: upper bound, count.
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

/// Writes samples that are sorted by name as text; `utf8` allows names in quotes, otherwise they are escaped.
pub(crate) fn text(samples: &[Newest], utf8: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for family in families(samples) {
        let (name, kind) = (family[0].labels.metric(), family[0].kind());
        out.extend_from_slice(b"# TYPE ");
        write_name(&mut out, name, utf8, false);
        out.extend_from_slice(if kind == Kind::Untyped { b" untyped\n" } else { b" histogram\n" });
        for sample in family {
            match &sample.value {
                Value::Float(v) => line(&mut out, sample, "", None, *v, utf8),
                Value::Histogram(h) => {
                    for (bound, count) in cumulative(h) {
                        line(&mut out, sample, "_bucket", Some(bound), count, utf8);
                    }
                    line(&mut out, sample, "_bucket", Some(f64::INFINITY), h.count, utf8);
                    line(&mut out, sample, "_sum", None, h.sum, utf8);
                    line(&mut out, sample, "_count", None, h.count, utf8);
                }
            }
        }
    }
    out
}

/// Gives runs of samples of one name and type.
pub(crate) fn families(samples: &[Newest]) -> impl Iterator<Item = &[Newest]> {
    samples.chunk_by(|a, b| a.labels.metric() == b.labels.metric() && a.kind() == b.kind())
}

fn line(out: &mut Vec<u8>, sample: &Newest, suffix: &str, bound: Option<f64>, value: f64, utf8: bool) {
    let name = format!("{}{suffix}", sample.labels.metric());
    let inside = utf8 && !is_plain(&name, true);
    if inside {
        out.push(b'{');
    }
    write_name(out, &name, utf8, false);
    let mut separator = if inside { b',' } else { b'{' };
    for (label, value) in sample.labels() {
        out.push(separator);
        separator = b',';
        write_name(out, label, utf8, true);
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

/// Says whether a name may stand without quotes; only metrics may have colons.
fn is_plain(name: &str, colons: bool) -> bool {
    let fits = |(i, b): (usize, u8)| {
        b.is_ascii_alphabetic() || b == b'_' || (colons && b == b':') || (i > 0 && b.is_ascii_digit())
    };
    !name.is_empty() && name.bytes().enumerate().all(fits)
}

fn write_name(out: &mut Vec<u8>, name: &str, utf8: bool, is_label: bool) {
    if is_plain(name, !is_label) {
        out.extend_from_slice(name.as_bytes());
    } else if utf8 {
        out.push(b'"');
        escape(out, name);
        out.push(b'"');
    } else {
        out.extend_from_slice(underscored(name, !is_label).as_bytes());
    }
}

/// Puts `_` for each character that a plain name does not have.
pub(crate) fn underscored(name: &str, colons: bool) -> String {
    let fits = |(i, c): (usize, char)| {
        let fits = c.is_ascii_alphabetic() || c == '_' || (colons && c == ':') || (i > 0 && c.is_ascii_digit());
        if fits { c } else { '_' }
    };
    name.chars().enumerate().map(fits).collect()
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
        let escaped = "# TYPE my_name untyped\nmy_name{l_l=\"v\",instance=\"\"} 1e-05 1500\n";
        assert_eq!(String::from_utf8(text(&samples, false)).unwrap(), format!("{expected}{escaped}"));
        let quoted = "# TYPE \"my.name\" untyped\n{\"my.name\",\"l.l\"=\"v\",instance=\"\"} 1e-05 1500\n";
        assert_eq!(String::from_utf8(text(&samples, true)).unwrap(), format!("{expected}{quoted}"));
    }
}
