//! Why decoders of metrics reject something, and the message for each reason.

/// Why something was left out. A closed set, fit for a metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// No `__name__`, or an empty one.
    NoMetricName,
    /// A label without a name.
    EmptyLabelName,
    /// The same label name twice.
    RepeatedLabel,
    /// Text that is not UTF-8.
    InvalidUtf8,
    /// More labels than [`crate::labels::LABELS_MAX`].
    TooManyLabels,
    /// A name or value longer than [`crate::labels::TEXT_MAX_BYTES`].
    LongLabel,
    /// The symbol table does not begin with the empty text, or a reference points outside of it, or is unpaired.
    BadSymbols,
    /// A series without samples and histograms.
    EmptySeries,
    /// A histogram whose counts, spans, bounds or schema do not fit together.
    InvalidHistogram,
    /// An exemplar without a value, or with invalid or too many labels. Never fails a request.
    InvalidExemplar,
    /// A point without a time.
    ZeroTime,
    /// A point that is older than what is kept.
    TooOld,
    /// A point further in the future than accepted.
    TooNew,
    /// A point without a value.
    NoValue,
    /// A name of which nothing is left after escaping.
    InvalidName,
    /// A sum or histogram that says neither cumulative nor delta.
    NoTemporality,
    /// A delta point at or before the time of the one before it.
    LateDelta,
    /// A new delta series while the table of sums is full.
    DeltaLimit,
    /// A line that is not exposition text.
    BadLine,
    /// Metadata that is not UTF-8 or too long. Never fails a request.
    InvalidMetadata,
    /// Of a service that the sender may not write.
    Service,
}

impl Reason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 21] = [
        Self::NoMetricName,
        Self::EmptyLabelName,
        Self::RepeatedLabel,
        Self::InvalidUtf8,
        Self::TooManyLabels,
        Self::LongLabel,
        Self::BadSymbols,
        Self::EmptySeries,
        Self::InvalidHistogram,
        Self::InvalidExemplar,
        Self::ZeroTime,
        Self::TooOld,
        Self::TooNew,
        Self::NoValue,
        Self::InvalidName,
        Self::NoTemporality,
        Self::LateDelta,
        Self::DeltaLimit,
        Self::BadLine,
        Self::InvalidMetadata,
        Self::Service,
    ];

    /// Gives the reason as a word for metrics' labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoMetricName => "no_metric_name",
            Self::EmptyLabelName => "empty_label_name",
            Self::RepeatedLabel => "repeated_label",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::TooManyLabels => "too_many_labels",
            Self::LongLabel => "long_label",
            Self::BadSymbols => "bad_symbols",
            Self::EmptySeries => "empty_series",
            Self::InvalidHistogram => "invalid_histogram",
            Self::InvalidExemplar => "invalid_exemplar",
            Self::ZeroTime => "zero_time",
            Self::TooOld => "too_old",
            Self::TooNew => "too_new",
            Self::NoValue => "no_value",
            Self::InvalidName => "invalid_name",
            Self::NoTemporality => "no_temporality",
            Self::LateDelta => "late_delta",
            Self::DeltaLimit => "delta_limit",
            Self::BadLine => "bad_line",
            Self::InvalidMetadata => "invalid_metadata",
            Self::Service => "service",
        }
    }

    /// Gives the reason as a text for the sender.
    pub fn message(self) -> &'static str {
        match self {
            Self::NoMetricName => "no metric name",
            Self::EmptyLabelName => "empty label name",
            Self::RepeatedLabel => "repeated label name",
            Self::InvalidUtf8 => "invalid UTF-8",
            Self::TooManyLabels => "too many labels",
            Self::LongLabel => "label name or value too long",
            Self::BadSymbols => "bad symbols or references to them",
            Self::EmptySeries => "series without samples and histograms",
            Self::InvalidHistogram => "invalid histogram",
            Self::InvalidExemplar => "invalid exemplar",
            Self::ZeroTime => "time is zero",
            Self::TooOld => "too old sample",
            Self::TooNew => "sample is too far in the future",
            Self::NoValue => "point without a value",
            Self::InvalidName => "invalid metric or attribute name",
            Self::NoTemporality => "aggregation temporality is neither cumulative nor delta",
            Self::LateDelta => "delta point is not newer than the one before",
            Self::DeltaLimit => "too many delta series",
            Self::BadLine => "bad line",
            Self::InvalidMetadata => "invalid metadata",
            Self::Service => "no right to write this service",
        }
    }

    /// Says whether the rest of a request answers as if nothing were wrong.
    pub fn is_silent(self) -> bool {
        matches!(self, Self::InvalidExemplar | Self::InvalidMetadata)
    }

    /// Says whether the labels of a series are none: remote write 1.0 answers 204 all the same, as Prometheus does. Labels
    /// that are too many or too long for us are told.
    pub fn is_label_fault(self) -> bool {
        use Reason::{EmptyLabelName, InvalidUtf8, NoMetricName, RepeatedLabel};
        matches!(self, NoMetricName | EmptyLabelName | RepeatedLabel | InvalidUtf8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_reasons_stand_at_their_numbers() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number, "{reason:?}");
            assert!(Reason::ALL[..number].iter().all(|other| other.as_str() != reason.as_str()), "{reason:?} twice");
        }
        assert_eq!(Reason::ALL.last(), Some(&Reason::Service), "the last of the enumeration");
    }

    /// The limits on times are settings, so a message with a number would often be wrong.
    #[test]
    fn texts_about_times_tell_no_limit() {
        for reason in [Reason::TooOld, Reason::TooNew] {
            assert!(!reason.message().contains(|c: char| c.is_ascii_digit()), "{}", reason.message());
        }
    }
}
