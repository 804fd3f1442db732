//! Counters of received spans: by protocol and service, refusals, cuts, and how late spans arrived.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use parking_lot::Mutex;
use quiver_ingest::traces::DecodedSpans;
use quiver_types::SpansBatch;

use crate::metrics::text::write_metric;

/// Services that are counted by name; the rest counts as `other`.
const SERVICES_MAX: usize = 1000;
/// Bounds of the histogram of lateness, in seconds.
const LATE_BOUNDS: [f64; 10] = [0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0];

/// Counts of spans that were taken in or refused, for `/metrics`.
#[derive(Debug, Default)]
pub struct SpanMetrics(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    spans: BTreeMap<(&'static str, String), u64>,
    refused: BTreeMap<&'static str, u64>,
    cuts: BTreeMap<&'static str, u64>,
    late: [u64; LATE_BOUNDS.len() + 1],
    late_sum: f64,
}

impl SpanMetrics {
    /// Counts a request.
    pub(crate) fn count(&self, protocol: &'static str, batch: &SpansBatch, decoded: &DecodedSpans, now_ms: i64) {
        let mut by_service: BTreeMap<String, u64> = BTreeMap::new();
        let mut late = Vec::with_capacity(batch.len());
        batch.each(|service, _, end| {
            match by_service.get_mut(service) {
                Some(n) => *n += 1,
                None => _ = by_service.insert(service.to_owned(), 1),
            }
            late.push((now_ms as f64 / 1e3 - end as f64 / 1e9).max(0.0));
        });
        let mut inner = self.0.lock();
        for (service, n) in by_service {
            let full = inner.spans.len() >= SERVICES_MAX && !inner.spans.contains_key(&(protocol, service.clone()));
            let service = if full { "other".to_owned() } else { service };
            *inner.spans.entry((protocol, service)).or_default() += n;
        }
        for refused in &decoded.refused {
            *inner.refused.entry(refused.reason.word()).or_default() += refused.count;
        }
        for (cut, n) in &decoded.cuts {
            *inner.cuts.entry(cut.text()).or_default() += n;
        }
        for seconds in late {
            inner.late[LATE_BOUNDS.partition_point(|b| *b < seconds)] += 1;
            inner.late_sum += seconds;
        }
    }

    /// Writes all counters.
    pub(crate) fn write(&self, out: &mut String) {
        let inner = self.0.lock();
        let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let spans: Vec<(String, f64)> = (inner.spans.iter())
            .map(|((protocol, service), n)| {
                (format!("{{protocol=\"{protocol}\",service=\"{}\"}}", escape(service)), *n as f64)
            })
            .collect();
        write_metric(out, "quiver_ingest_spans_total", "counter", "Spans taken.", &spans);
        let of = |map: &BTreeMap<&'static str, u64>, label: &str| -> Vec<(String, f64)> {
            map.iter().map(|(word, n)| (format!("{{{label}=\"{word}\"}}"), *n as f64)).collect()
        };
        let refused = of(&inner.refused, "reason");
        write_metric(out, "quiver_ingest_refused_spans_total", "counter", "Spans refused.", &refused);
        write_metric(out, "quiver_ingest_cut_total", "counter", "What was cut of spans.", &of(&inner.cuts, "what"));
        let name = "quiver_ingest_late_seconds";
        write_metric(out, name, "histogram", "Time from the end of a span to its receipt.", &[]);
        let mut sum = 0;
        let bounds = LATE_BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, n) in bounds.zip(inner.late) {
            sum += n;
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {sum}");
        }
        let _ = write!(out, "{name}_sum {}\n{name}_count {sum}\n", inner.late_sum);
    }
}

#[cfg(test)]
mod tests {
    use quiver_ingest::traces::{RefusedSpans, SpanReason};
    use quiver_types::spans::{ContextFields, SpanFields, SpansBuilder, TruncationKind};

    use super::*;

    fn written(metrics: &SpanMetrics) -> String {
        let mut out = String::new();
        metrics.write(&mut out);
        out
    }

    #[test]
    fn refusals_and_cuts_count_by_their_words() {
        let metrics = SpanMetrics::default();
        assert!(written(&metrics).contains("quiver_ingest_late_seconds_bucket{le=\"+Inf\"} 0\n"));
        let refused = |reason, count| RefusedSpans { reason, count, first: String::new() };
        let decoded = DecodedSpans {
            refused: vec![refused(SpanReason::TooOld, 4), refused(SpanReason::TraceId, 1)],
            cuts: vec![(TruncationKind::Names, 2)],
            ..DecodedSpans::default()
        };
        for _ in 0..2 {
            metrics.count("otlp", &SpansBatch::default(), &decoded, 0);
        }
        let out = written(&metrics);
        for line in [
            "quiver_ingest_refused_spans_total{reason=\"too_old\"} 8",
            "quiver_ingest_refused_spans_total{reason=\"trace_id\"} 2",
            "quiver_ingest_cut_total{what=\"names\"} 4",
            "quiver_ingest_late_seconds_count 0",
        ] {
            assert!(out.lines().any(|l| l == line), "`{line}` is not in\n{out}");
        }
        assert!(!out.contains("quiver_ingest_spans_total{"), "no span was taken:\n{out}");
    }

    #[test]
    fn names_of_services_are_escaped() {
        let metrics = SpanMetrics::default();
        metrics.0.lock().spans.insert(("otlp", "a\"b\\c\nd".to_owned()), 3);
        let line = r#"quiver_ingest_spans_total{protocol="otlp",service="a\"b\\c\nd"} 3"#;
        let out = written(&metrics);
        assert!(out.lines().any(|l| l == line), "`{line}` is not in\n{out}");
    }

    /// A batch of spans: service, and when each ended in milliseconds.
    fn batch(spans: &[(&str, i64)]) -> SpansBatch {
        let mut builder = SpansBuilder::default();
        for (n, (service, end_ms)) in spans.iter().enumerate() {
            let context = builder.context(&ContextFields { service, ..ContextFields::default() });
            let end = end_ms * 1_000_000;
            let (trace_id, span_id) = ([1; 16], (n as u64 + 1).to_be_bytes());
            builder.span(&SpanFields { trace_id, span_id, context, start: end, end, ..SpanFields::default() });
        }
        builder.finish()
    }

    #[test]
    fn how_late_spans_come() {
        let metrics = SpanMetrics::default();
        let now_ms = 100_000_000;
        let ends = [0, 1000, 1001, 60_000, 86_400_000, 86_400_001, -5000];
        let spans: Vec<(&str, i64)> = ends.iter().map(|late_ms| ("a", now_ms - late_ms)).collect();
        metrics.count("otlp", &batch(&spans), &DecodedSpans::default(), now_ms);
        let out = written(&metrics);
        // A span from the future is not late; bounds belong to their bucket.
        for (bound, count) in
            [("0.1", 2), ("1", 3), ("5", 4), ("15", 4), ("60", 5), ("21600", 5), ("86400", 6), ("+Inf", 7)]
        {
            let line = format!("quiver_ingest_late_seconds_bucket{{le=\"{bound}\"}} {count}");
            assert!(out.lines().any(|l| l == line), "`{line}` is not in\n{out}");
        }
        let line = "quiver_ingest_spans_total{protocol=\"otlp\",service=\"a\"} 7";
        assert!(out.lines().any(|l| l == line), "`{line}` is not in\n{out}");
    }

    /// Who makes up names of services makes no more counters than there may be.
    #[test]
    fn services_are_bounded() {
        let metrics = SpanMetrics::default();
        let names: Vec<String> = (0..SERVICES_MAX + 5).map(|n| format!("s{n:04}")).collect();
        let spans: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 0)).collect();
        metrics.count("otlp", &batch(&spans), &DecodedSpans::default(), 0);
        // Those that are known are counted on, under each protocol.
        metrics.count("otlp", &batch(&[("s0000", 0), ("new", 0)]), &DecodedSpans::default(), 0);
        metrics.count("zipkin", &batch(&[("s0000", 0)]), &DecodedSpans::default(), 0);
        let out = written(&metrics);
        for (protocol, service, count) in
            [("otlp", "s0000", 2), ("otlp", "s0999", 1), ("otlp", "other", 6), ("zipkin", "other", 1)]
        {
            let line = format!("quiver_ingest_spans_total{{protocol=\"{protocol}\",service=\"{service}\"}} {count}");
            assert!(out.lines().any(|l| l == line), "`{line}` is not there");
        }
        assert!(!out.contains("s1000"), "there is one more than there may be");
        assert_eq!(out.lines().filter(|line| line.starts_with("quiver_ingest_spans_total{")).count(), SERVICES_MAX + 2);
    }
}
