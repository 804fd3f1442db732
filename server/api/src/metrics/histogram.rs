//! A histogram of durations. It consists of a few atomics, so that observing costs a request next to nothing.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets in seconds, with their labels.
const BOUNDS: [(u64, &str); 16] = [
    (100, "0.0001"),
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (1_000_000, "1"),
    (2_500_000, "2.5"),
    (5_000_000, "5"),
    (15_000_000, "15"),
    (60_000_000, "60"),
];

/// Durations by bucket.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// Observations per bucket, not cumulative; the last bucket is for durations above all bounds.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl Histogram {
    /// Adds a duration.
    pub(crate) fn observe(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|(micros, _)| micros * 1000 < nanos);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    /// Writes the lines of a histogram; `labels` are written before `le`, in the form `a="b"`.
    fn write(&self, out: &mut String, name: &str, labels: &str) {
        let mut count = 0;
        let bounds = BOUNDS.iter().map(|(_, label)| *label).chain(["+Inf"]);
        for (bound, bucket) in bounds.zip(&self.buckets) {
            count += bucket.load(Relaxed);
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
        }
        let seconds = self.nanos.load(Relaxed) as f64 / 1e9;
        let _ = writeln!(out, "{name}_sum{{{labels}}} {seconds}\n{name}_count{{{labels}}} {count}");
    }
}

/// Writes a family of histograms with its `# HELP` and `# TYPE` lines.
pub(crate) fn write_histograms<'a>(
    out: &mut String,
    name: &str,
    help: &str,
    each: impl Iterator<Item = (String, &'a Histogram)>,
) {
    super::write_metric(out, name, "histogram", help, &[]);
    each.for_each(|(labels, histogram)| histogram.write(out, name, &labels));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up() {
        let histogram = Histogram::default();
        for micros in [0, 100, 101, 250_000, 61_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let mut out = String::new();
        write_histograms(&mut out, "x_seconds", "X.", [("a=\"b\"".to_owned(), &histogram)].into_iter());
        let has = |line: &str| assert!(out.lines().any(|l| l == line), "{line}:\n{out}");
        has("# TYPE x_seconds histogram");
        has("x_seconds_bucket{a=\"b\",le=\"0.0001\"} 2");
        has("x_seconds_bucket{a=\"b\",le=\"0.0005\"} 3");
        has("x_seconds_bucket{a=\"b\",le=\"0.25\"} 4");
        has("x_seconds_bucket{a=\"b\",le=\"60\"} 4");
        has("x_seconds_bucket{a=\"b\",le=\"+Inf\"} 5");
        has("x_seconds_count{a=\"b\"} 5");
        has("x_seconds_sum{a=\"b\"} 61.250201");
    }

    /// A duration equal to a bound falls into its bucket, one nanosecond more into the next.
    #[test]
    fn bounds_belong_to_their_bucket() {
        for (n, (micros, label)) in BOUNDS.into_iter().enumerate() {
            assert_eq!(label.parse::<f64>().unwrap() * 1e6, micros as f64, "{label}");
            let histogram = Histogram::default();
            let bound = Duration::from_micros(micros);
            histogram.observe(bound);
            histogram.observe(bound + Duration::from_nanos(1));
            let counts: Vec<u64> = histogram.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
            assert_eq!((counts[n], counts[n + 1], counts.iter().sum::<u64>()), (1, 1, 2), "{label}");
        }
        assert!(BOUNDS.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn the_longest_time_is_counted() {
        let histogram = Histogram::default();
        histogram.observe(Duration::MAX);
        assert_eq!(histogram.buckets[BOUNDS.len()].load(Relaxed), 1);
        assert_eq!(histogram.nanos.load(Relaxed), u64::MAX);
    }
}
