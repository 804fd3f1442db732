//! Texts of all warnings and infos of evaluation, and the set that a kernel fills while it runs over a series.
//!
//! Texts as in Prometheus 3.14 `util/annotations/annotations.go`, without prefix and position. The set defers building
//! texts to the end of a series, so that a problem repeated in many windows costs a bit and no string.

use quiver_types::go_format::{float_text, quote};

use crate::annotation::{AnnotationPlace, Annotations};

/// Which arithmetic of histograms an annotation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistogramOperation {
    /// `+`
    Addition,
    /// `-`
    Subtraction,
    /// Aggregation over series or over time.
    Aggregation,
}

impl HistogramOperation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Addition => "addition",
            Self::Subtraction => "subtraction",
            Self::Aggregation => "aggregation",
        }
    }
}

fn for_metric(text: &str, metric: &str) -> String {
    if metric.is_empty() { text.to_owned() } else { format!("{text} for metric name {}", quote(metric)) }
}

/// Warning: `quantile value should be between 0 and 1, got V`.
pub fn invalid_quantile(q: f64) -> String {
    format!("quantile value should be between 0 and 1, got {}", float_text(q))
}

/// Warning: `ratio value should be between -1 and 1, got V, capping to C`.
pub fn invalid_ratio(ratio: f64, capped: f64) -> String {
    format!("ratio value should be between -1 and 1, got {}, capping to {}", float_text(ratio), float_text(capped))
}

/// Warning about a classic bucket without usable `le`.
pub fn bad_bucket_label(metric: &str, le: &str) -> String {
    for_metric(&format!("bucket label \"le\" is missing or has a malformed value of {}", quote(le)), metric)
}

/// Warning about floats and histograms in one range.
pub fn mixed_floats_histograms(metric: &str) -> String {
    format!("encountered a mix of histograms and floats for metric name {}", quote(metric))
}

/// Warning about floats and histograms in one aggregation.
pub fn mixed_floats_histograms_aggregation() -> String {
    "encountered a mix of histograms and floats for aggregation".to_owned()
}

/// Warning about classic and native histograms with the same labels.
pub fn mixed_classic_native(metric: &str) -> String {
    for_metric("vector contains a mix of classic and native histograms", metric)
}

/// Warning about a rate of a gauge histogram.
pub fn native_histogram_not_counter(metric: &str) -> String {
    format!("this native histogram metric is not a counter: {}", quote(metric))
}

/// Warning about a delta of a counter histogram.
pub fn native_histogram_not_gauge(metric: &str) -> String {
    format!("this native histogram metric is not a gauge: {}", quote(metric))
}

/// Warning about exponential and custom buckets together.
pub fn mixed_exponential_custom(metric: &str) -> String {
    let text = "vector contains a mix of histograms with exponential and custom buckets schemas for metric name";
    format!("{text} {}", quote(metric))
}

/// Warning about a binary operator between exponential and custom buckets.
pub fn incompatible_bucket_layout(op: &str) -> String {
    format!("incompatible bucket layout encountered for binary operator {op}")
}

/// Warning about sorting in a range query.
pub fn sort_in_range_query() -> String {
    "sort is ineffective for range queries since results are always ordered by labels".to_owned()
}

/// Warning about histograms of which one says reset and one says no reset.
pub fn counter_reset_collision(operation: HistogramOperation) -> String {
    format!("conflicting counter resets during histogram {}", operation.as_str())
}

/// Warning about a start time before the previous sample.
pub fn start_time_overlap(metric: &str) -> String {
    format!("sample has start time that overlaps with previous sample timestamp for metric {}", quote(metric))
}

/// Info about a rate of a metric that is not named like a counter.
pub fn possible_non_counter(metric: &str) -> String {
    let text = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket:";
    format!("{text} {}", quote(metric))
}

/// Info about operands that an operator cannot work on; the types are `float` and `histogram`.
pub fn incompatible_types(lhs: &str, op: &str, rhs: &str) -> String {
    format!("incompatible sample types encountered for binary operator {}: {lhs} {op} {rhs}", quote(op))
}

/// Info about histograms that an aggregation leaves out.
pub fn histogram_ignored_in_aggregation(aggregation: &str) -> String {
    format!("ignored histogram in {aggregation} aggregation")
}

/// Info about histograms that a range function leaves out.
pub fn histogram_ignored_in_mixed_range(metric: &str) -> String {
    let text = "ignored histograms in a range containing both floats and histograms for metric name";
    format!("{text} {}", quote(metric))
}

/// Info about NaN observations above the quantile's bucket.
pub fn quantile_nan_result(metric: &str) -> String {
    for_metric("input to histogram_quantile has NaN observations, result is NaN", metric)
}

/// Info about NaN observations that move a quantile.
pub fn quantile_nan_skew(metric: &str) -> String {
    for_metric("input to histogram_quantile has NaN observations, result is skewed higher", metric)
}

/// Info about NaN observations that are in no fraction.
pub fn fraction_nan(metric: &str) -> String {
    let text = "input to histogram_fraction has NaN observations, which are excluded from all fractions";
    for_metric(text, metric)
}

/// Info about custom buckets that were reduced to their common bounds.
pub fn mismatched_custom_buckets(operation: HistogramOperation) -> String {
    format!("mismatched custom buckets were reconciled during {}", operation.as_str())
}

/// Info about classic buckets whose counts fell; [`crate::quantile::ForcedMonotonicity`] says where and how far.
pub fn forced_monotonicity(metric: &str) -> String {
    let text = "input to histogram_quantile needed to be fixed for monotonicity (see \
        https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)";
    for_metric(text, metric)
}

/// What a range kernel noted over the windows of one series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    bits: u16,
    /// Windows with overlapping start times.
    overlaps: u32,
}

/// One thing to note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Note {
    MixedFloatsHistograms = 1,
    NotCounter = 2,
    NotGauge = 4,
    MixedExponentialCustom = 8,
    ReconciledAddition = 16,
    ReconciledSubtraction = 32,
    ReconciledAggregation = 64,
    CollisionAggregation = 128,
    HistogramsIgnored = 256,
    StartTimeOverlap = 512,
}

impl Notes {
    pub(crate) fn set(&mut self, note: Note) {
        self.bits |= note as u16;
        self.overlaps += u32::from(note == Note::StartTimeOverlap);
    }

    pub(crate) fn has(self, note: Note) -> bool {
        self.bits & note as u16 != 0
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.bits |= other.bits;
        self.overlaps += other.overlaps;
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn write(self, annotations: &mut Annotations, place: AnnotationPlace, metric: &str) {
        use HistogramOperation::{Addition, Aggregation, Subtraction};
        let warnings = [
            (Note::MixedFloatsHistograms, mixed_floats_histograms as fn(&str) -> String),
            (Note::NotCounter, native_histogram_not_counter),
            (Note::NotGauge, native_histogram_not_gauge),
            (Note::MixedExponentialCustom, mixed_exponential_custom),
            (Note::CollisionAggregation, |_| counter_reset_collision(Aggregation)),
        ];
        for (note, text) in warnings {
            if self.has(note) {
                annotations.warn(place, text(metric));
            }
        }
        if self.overlaps > 0 {
            annotations.warn_of_many(place, start_time_overlap(metric), u64::from(self.overlaps));
        }
        let infos = [
            (Note::HistogramsIgnored, histogram_ignored_in_mixed_range as fn(&str) -> String),
            (Note::ReconciledAddition, |_| mismatched_custom_buckets(Addition)),
            (Note::ReconciledSubtraction, |_| mismatched_custom_buckets(Subtraction)),
            (Note::ReconciledAggregation, |_| mismatched_custom_buckets(Aggregation)),
        ];
        for (note, text) in infos {
            if self.has(note) {
                annotations.info(place, text(metric));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::Level;
    use crate::ast::PosRange;

    fn written(notes: Notes, metric: &str) -> (Vec<String>, Vec<String>) {
        let mut annotations = Annotations::default();
        notes.write(&mut annotations, PosRange::default().into(), metric);
        (annotations.texts(Level::Warning, ""), annotations.texts(Level::Info, ""))
    }

    #[test]
    fn each_note_has_its_level_and_text() {
        let warnings = [
            (Note::MixedFloatsHistograms, "encountered a mix of histograms and floats for metric name \"m\""),
            (Note::NotCounter, "this native histogram metric is not a counter: \"m\""),
            (Note::NotGauge, "this native histogram metric is not a gauge: \"m\""),
            (
                Note::MixedExponentialCustom,
                "vector contains a mix of histograms with exponential and custom buckets schemas for metric name \"m\"",
            ),
            (Note::CollisionAggregation, "conflicting counter resets during histogram aggregation"),
            (
                Note::StartTimeOverlap,
                "sample has start time that overlaps with previous sample timestamp for metric \"m\"",
            ),
        ];
        let infos = [
            (
                Note::HistogramsIgnored,
                "ignored histograms in a range containing both floats and histograms for metric name \"m\"",
            ),
            (Note::ReconciledAddition, "mismatched custom buckets were reconciled during addition"),
            (Note::ReconciledSubtraction, "mismatched custom buckets were reconciled during subtraction"),
            (Note::ReconciledAggregation, "mismatched custom buckets were reconciled during aggregation"),
        ];
        let mut all = Notes::default();
        assert!(all.is_empty());
        for (note, text) in warnings {
            let mut notes = Notes::default();
            notes.set(note);
            assert!(notes.has(note) && !all.has(note));
            all.merge(notes);
            assert_eq!(written(notes, "m"), (vec![format!("PromQL warning: {text} (1:1)")], vec![]));
        }
        for (note, text) in infos {
            let mut notes = Notes::default();
            notes.set(note);
            notes.set(note);
            assert!(notes.has(note) && !all.has(note) && !notes.is_empty());
            all.merge(notes);
            assert_eq!(written(notes, "m"), (vec![], vec![format!("PromQL info: {text} (1:1)")]));
        }
        let (told, said) = written(all, "m");
        assert_eq!((told.len(), said.len()), (6, 4));
        assert_eq!(written(Notes::default(), "m"), (vec![], vec![]));
        let mut overlaps = Notes::default();
        overlaps.set(Note::StartTimeOverlap);
        overlaps.merge(overlaps);
        assert!(written(overlaps, "m").0[0].ends_with("for metric \"m\" (2 occurrences) (1:1)"));
    }

    #[test]
    fn metrics_without_a_name_are_not_named() {
        assert_eq!(mixed_classic_native(""), "vector contains a mix of classic and native histograms");
        assert_eq!(
            mixed_classic_native("a \"b\"\n"),
            "vector contains a mix of classic and native histograms for metric name \"a \\\"b\\\"\\n\""
        );
        assert_eq!(
            bad_bucket_label("", "1\u{200b}"),
            "bucket label \"le\" is missing or has a malformed value of \"1\\u200b\""
        );
        assert_eq!(
            quantile_nan_skew("ü"),
            "input to histogram_quantile has NaN observations, result is skewed higher for metric name \"ü\""
        );
        assert_eq!(quantile_nan_result(""), "input to histogram_quantile has NaN observations, result is NaN");
        // Here the name stands, whatever it is.
        assert_eq!(mixed_floats_histograms(""), "encountered a mix of histograms and floats for metric name \"\"");
    }

    #[test]
    fn numbers_in_texts() {
        assert_eq!(invalid_quantile(f64::NAN), "quantile value should be between 0 and 1, got NaN");
        assert_eq!(invalid_quantile(-1e-7), "quantile value should be between 0 and 1, got -1e-07");
        assert_eq!(invalid_ratio(1.5, 1.0), "ratio value should be between -1 and 1, got 1.5, capping to 1");
        assert_eq!(
            invalid_ratio(f64::NEG_INFINITY, -1.0),
            "ratio value should be between -1 and 1, got -Inf, capping to -1"
        );
        assert_eq!(
            incompatible_types("float", ">/", "histogram"),
            "incompatible sample types encountered for binary operator \">/\": float >/ histogram"
        );
    }

    #[test]
    fn what_was_lifted_names_the_metric() {
        let text = "input to histogram_quantile needed to be fixed for monotonicity (see \
                    https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)";
        assert_eq!(forced_monotonicity("m_bucket"), format!("{text} for metric name \"m_bucket\""));
        assert_eq!(forced_monotonicity(""), text);
    }
}
