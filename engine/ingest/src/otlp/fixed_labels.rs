//! Labels that all series of a resource and scope have in addition to those of their points.

use quiver_types::SeriesId;

use crate::labels::push_text;

/// A label, and whether it takes precedence over an attribute of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FixedLabel {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) wins: bool,
}

/// Labels of a resource and scope: sorted, with unique names and no empty values.
#[derive(Debug, Default, Clone)]
pub(super) struct FixedLabels {
    labels: Vec<FixedLabel>,
    key: SeriesId,
}

impl FixedLabels {
    /// Of equal names the last label counts, unless an earlier one takes precedence over attributes and it does not.
    pub(super) fn new(labels: impl IntoIterator<Item = FixedLabel>) -> Self {
        let mut kept: Vec<FixedLabel> = labels.into_iter().filter(|l| !l.value.is_empty()).collect();
        kept.sort_by(|a, b| a.name.cmp(&b.name));
        kept.dedup_by(|later, kept| {
            let is_same = later.name == kept.name;
            if is_same && (later.wins || !kept.wins) {
                std::mem::swap(later, kept);
            }
            is_same
        });
        let mut bytes = Vec::new();
        for label in &kept {
            push_text(&mut bytes, label.name.as_bytes());
            push_text(&mut bytes, label.value.as_bytes());
            bytes.push(u8::from(label.wins));
        }
        Self { key: SeriesId::of(&bytes), labels: kept }
    }

    /// The labels, sorted by name.
    pub(super) fn labels(&self) -> &[FixedLabel] {
        &self.labels
    }

    /// A hash that identifies these labels.
    pub(super) fn key(&self) -> SeriesId {
        self.key
    }

    /// Adds labels that take precedence over all others.
    pub(super) fn with(&self, more: Vec<FixedLabel>) -> Self {
        Self::new(self.labels.iter().cloned().chain(more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_equal_names() {
        let label = |name: &str, value: &str, wins| FixedLabel { name: name.into(), value: value.into(), wins };
        let check = |labels: &[FixedLabel], expected: &[FixedLabel]| {
            assert_eq!(FixedLabels::new(labels.iter().cloned()).labels(), expected, "{labels:?}");
        };
        check(&[label("b", "1", false), label("a", "2", true)], &[label("a", "2", true), label("b", "1", false)]);
        check(&[label("job", "own", true), label("job", "attribute", false)], &[label("job", "own", true)]);
        check(&[label("job", "attribute", false), label("job", "own", true)], &[label("job", "own", true)]);
        check(&[label("job", "attribute", false), label("job", "", true)], &[label("job", "attribute", false)]);
        let key = |value: &str, wins| FixedLabels::new([label("a", value, wins)]).key();
        assert!(key("1", true) != key("1", false) && key("1", true) != key("2", true), "keys tell labels apart");
    }
}
