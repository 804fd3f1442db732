//! An alert in the router.

use std::collections::BTreeMap;
use std::sync::Arc;

use quiver_types::LabelSet;

/// Bytes that an alert takes besides its texts.
const OWN_BYTES: usize = 1024;
/// How many copies of its texts there are: in the list of alerts, in groups, in the history, and in messages.
const COPIES: usize = 4;

/// An alert as posted or sent by a rule. Times are Unix nanoseconds. Copies share its texts: each route that it takes has one,
/// and each message under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// Its identity, including `alertname`.
    pub labels: LabelSet,
    /// What else is said of it.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// Since when it is firing.
    pub starts_at: i64,
    /// When it ended, or will end if it is not reported again.
    pub ends_at: i64,
    /// Whether the end was not given, but follows from a timeout.
    pub is_timeout: bool,
    /// When it was last reported.
    pub updated_at: i64,
    /// URL of a page about its origin, as given by the sender.
    pub generator_url: Arc<str>,
}

impl Alert {
    /// Its approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        let annotations: usize = self.annotations.iter().map(|(name, value)| name.len() + value.len()).sum();
        OWN_BYTES + COPIES * (self.labels.canonical().len() + annotations + self.generator_url.len())
    }

    /// Says whether it has ended.
    pub fn is_resolved(&self, now: i64) -> bool {
        self.ends_at <= now
    }

    /// Whether two reports of one label set overlap in time.
    pub fn overlaps(&self, other: &Self) -> bool {
        (self.ends_at > other.starts_at && self.ends_at < other.ends_at)
            || (self.starts_at > other.starts_at && self.starts_at < other.ends_at)
            || (self.starts_at, self.ends_at) == (other.starts_at, other.ends_at)
    }

    /// Merges two overlapping reports: the earlier start, everything else from the newer one. While that one is
    /// firing, a later explicit end is kept.
    #[must_use]
    pub fn merge(&self, other: &Self, now: i64) -> Self {
        let (old, young) = if other.updated_at < self.updated_at { (other, self) } else { (self, other) };
        let mut out = young.clone();
        out.starts_at = old.starts_at.min(young.starts_at);
        let later = old.ends_at > young.ends_at;
        if young.is_resolved(now) {
            if later && old.is_resolved(now) {
                out.ends_at = old.ends_at;
            }
        } else if later && !old.is_timeout {
            (out.ends_at, out.is_timeout) = (old.ends_at, false);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(starts_at: i64, ends_at: i64, updated_at: i64) -> Alert {
        Alert {
            labels: LabelSet::from_pairs([("a", "1")]),
            annotations: Arc::default(),
            starts_at,
            ends_at,
            is_timeout: false,
            updated_at,
            generator_url: Arc::default(),
        }
    }

    /// The newer report counts, in either order of merging. A later end is kept while the alert is firing if it was
    /// explicit, but not if it was a timeout.
    #[test]
    fn merged() {
        const NOW: i64 = 100;
        for (old, young, expected) in [
            // Start, end, and whether that is a timeout.
            ((10, 200, false), (20, 300, false), (10, 300, false)),
            ((20, 200, false), (10, 300, true), (10, 300, true)),
            ((10, 300, false), (20, 200, true), (10, 300, false)),
            ((10, 300, true), (20, 200, false), (10, 200, false)),
            ((10, 300, true), (20, 200, true), (10, 200, true)),
            // The newer one is resolved: a later end counts if it has passed, too.
            ((10, 90, false), (20, 80, false), (10, 90, false)),
            ((10, 300, false), (20, 80, false), (10, 80, false)),
            ((10, 100, false), (20, 99, true), (10, 100, true)),
            ((10, 70, false), (20, 80, false), (10, 80, false)),
            // The older one was resolved.
            ((10, 50, false), (20, 300, true), (10, 300, true)),
        ] {
            let make = |(starts_at, ends_at, is_timeout), updated_at| Alert {
                is_timeout,
                ..alert(starts_at, ends_at, updated_at)
            };
            let (first, second) = (make(old, 1), make(young, 2));
            for merged in [first.merge(&second, NOW), second.merge(&first, NOW)] {
                assert_eq!((merged.starts_at, merged.ends_at, merged.is_timeout), expected, "{old:?} {young:?}");
                assert_eq!(merged.updated_at, 2, "{old:?} {young:?}");
            }
        }
        // Of two reports at the same time the last one counts.
        let last = Alert { generator_url: "last".into(), ..alert(0, 200, 1) };
        assert_eq!(alert(0, 200, 1).merge(&last, NOW).generator_url.as_ref(), "last");
    }

    #[test]
    fn ends() {
        for (ends_at, now, expected) in [(100, 99, false), (100, 100, true), (100, 101, true), (i64::MAX, 0, false)] {
            assert_eq!(alert(0, ends_at, 0).is_resolved(now), expected, "{ends_at} {now}");
        }
    }

    /// Everything that a sender may make long is counted.
    #[test]
    fn bytes_of_texts() {
        let plain = alert(0, 0, 0);
        let more = |alert: Alert| alert.bytes() - plain.bytes();
        assert!(plain.bytes() >= OWN_BYTES);
        assert_eq!(more(Alert { generator_url: "x".repeat(100).into(), ..plain.clone() }), 100 * COPIES);
        let annotations = [("n".repeat(10), "v".repeat(20)), (String::new(), "w".to_owned())];
        let annotations = Arc::new(BTreeMap::from(annotations));
        assert_eq!(more(Alert { annotations, ..plain.clone() }), 31 * COPIES);
        let value = "v".repeat(1000);
        let labels = LabelSet::from_pairs([("a", value.as_str())]);
        assert!(more(Alert { labels, ..plain.clone() }) >= 999 * COPIES);
    }
}
