//! An alert as the router knows it.

use std::collections::BTreeMap;

use quiver_types::LabelSet;

/// What an alert takes beside its texts, wherever it is held.
const OWN_BYTES: usize = 1024;
/// How often its texts are held: by those who know it, its groups, its history, and on their way.
const COPIES: usize = 4;

/// An alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// Identity.
    pub labels: LabelSet,
    /// What else is said of it.
    pub annotations: BTreeMap<String, String>,
    /// Since when it fires.
    pub starts_at: i64,
    /// When it ended, or ends if nobody says otherwise.
    pub ends_at: i64,
    /// Whether the end was not given, but follows from silence of the sender.
    pub is_timeout: bool,
    /// When it was reported last.
    pub updated_at: i64,
    /// Where it comes from.
    pub generator_url: String,
}

impl Alert {
    /// Gives what it takes in memory, about.
    pub fn bytes(&self) -> usize {
        let annotations: usize = self.annotations.iter().map(|(name, value)| name.len() + value.len()).sum();
        OWN_BYTES + COPIES * (self.labels.canonical().len() + annotations + self.generator_url.len())
    }

    /// Says whether it has ended.
    pub fn is_resolved(&self, now: i64) -> bool {
        self.ends_at <= now
    }

    /// Says whether two reports of one label set speak of the same time.
    pub fn overlaps(&self, other: &Self) -> bool {
        (self.ends_at > other.starts_at && self.ends_at < other.ends_at)
            || (self.starts_at > other.starts_at && self.starts_at < other.ends_at)
            || (self.starts_at, self.ends_at) == (other.starts_at, other.ends_at)
    }

    /// Merges two reports that overlap: the earliest start, all else of the younger one; while that one fires, a later end
    /// that was given stays.
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
