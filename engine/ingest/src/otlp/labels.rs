//! The labels of a point: its attributes under Prometheus names, and those of its resource and scope. They are built
//! at most once per point, when one of its series is unknown. Each series of the point (`_bucket{le}`, `_sum`, …) is
//! written by merging two more labels into the sorted list, without sorting or allocating per series.

use std::ops::Range;

use quiver_types::SeriesId;
use quiver_types::label::METRIC_NAME;

use super::fixed_labels::FixedLabels;
use super::{Fault, any_value, names};
use crate::labels::{LABELS_MAX, TEXT_MAX_BYTES, push_text};
use crate::rejection::Reason;
use crate::wire::put_varint;

/// Attributes as keys and `AnyValue` messages, unparsed.
#[derive(Debug, Default)]
pub(super) struct Attributes<'a> {
    pairs: Vec<(&'a [u8], &'a [u8])>,
    overflow: bool,
}

impl<'a> Attributes<'a> {
    pub(super) fn clear(&mut self) {
        self.pairs.clear();
        self.overflow = false;
    }

    pub(super) fn push(&mut self, pair: (&'a [u8], &'a [u8])) {
        self.overflow |= self.pairs.len() == LABELS_MAX;
        if !self.overflow {
            self.pairs.push(pair);
        }
    }

    /// Sorts by key; of equal keys the last one remains.
    pub(super) fn keep_last(&mut self) -> Result<(), Reason> {
        if self.overflow {
            return Err(Reason::TooManyLabels);
        }
        self.pairs.sort_by_key(|(key, _)| *key);
        self.pairs.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                kept.1 = later.1;
            }
            is_same
        });
        Ok(())
    }

    /// The value of a key, as text.
    pub(super) fn get(&self, key: &str) -> Result<Option<String>, Fault> {
        let found = self.pairs.iter().find(|(k, _)| *k == key.as_bytes());
        found
            .map(|(_, value)| {
                let mut out = String::new();
                any_value::push(value, &mut out).map(|()| out)
            })
            .transpose()
    }

    /// Keeps the attributes whose key satisfies the predicate.
    pub(super) fn retain(&mut self, like: impl Fn(&[u8]) -> bool) {
        self.pairs.retain(|(key, _)| like(key));
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &'a [u8]> {
        self.pairs.iter().map(|(key, _)| *key)
    }

    /// Gives keys and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.pairs.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

#[derive(Debug, Clone)]
struct Entry {
    name: Range<usize>,
    value: Range<usize>,
}

/// The labels of one point after another.
#[derive(Debug, Default)]
pub(super) struct PointLabels<'a> {
    attributes: Attributes<'a>,
    /// A hash that identifies attributes and fixed labels.
    key: SeriesId,
    is_built: bool,
    /// Names and values, concatenated.
    text: String,
    /// Labels sorted by name, with unique names.
    entries: Vec<Entry>,
    scratch: Vec<u8>,
    merged: Vec<Entry>,
}

impl<'a> PointLabels<'a> {
    /// Bytes of all names and values that were built for the current point.
    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Begins a point: swaps its attributes with those of the previous point.
    pub(super) fn begin(&mut self, attributes: &mut Attributes<'a>, fixed: &FixedLabels) {
        self.forget();
        std::mem::swap(&mut self.attributes, attributes);
        self.scratch.clear();
        self.scratch.extend_from_slice(&fixed.key().to_bytes());
        for (key, value) in &self.attributes.pairs {
            push_text(&mut self.scratch, key);
            push_text(&mut self.scratch, value);
        }
        self.key = SeriesId::of(&self.scratch);
    }

    /// Discards the labels that were built for the previous point.
    pub(super) fn forget(&mut self) {
        self.is_built = false;
        self.text.clear();
        self.entries.clear();
    }

    /// A hash that identifies a series of the point; `metric` identifies the metric's name.
    #[inline]
    pub(super) fn key(&mut self, metric: SeriesId, suffix: &str, extra: Option<(&str, &str)>) -> SeriesId {
        let out = &mut self.scratch;
        out.clear();
        out.extend_from_slice(&self.key.to_bytes());
        out.extend_from_slice(&metric.to_bytes());
        push_text(out, suffix.as_bytes());
        if let Some((name, value)) = extra {
            push_text(out, name.as_bytes());
            push_text(out, value.as_bytes());
        }
        SeriesId::of(out)
    }

    /// Builds the labels of the point, unless they have been built.
    pub(super) fn build(&mut self, fixed: &FixedLabels) -> Result<(), Fault> {
        if self.is_built {
            return Ok(());
        }
        self.forget();
        if self.attributes.overflow {
            return Err(Reason::TooManyLabels.into());
        }
        let pairs = &mut self.attributes.pairs;
        if !pairs.is_sorted_by(|a, b| a.0 <= b.0) {
            pairs.sort_by_key(|(key, _)| *key);
        }
        for (key, value) in pairs.iter() {
            let name_start = self.text.len();
            if !names::push_label_name(any_value::text(key)?, &mut self.text) {
                return Err(Reason::InvalidName.into());
            }
            let value_start = self.text.len();
            any_value::push(value, &mut self.text)?;
            self.entries.push(Entry { name: name_start..value_start, value: value_start..self.text.len() });
            if self.text.len() > TEXT_MAX_BYTES {
                return Err(Reason::LongLabel.into());
            }
        }
        self.merge_equal_names();
        self.merge_fixed(fixed);
        if self.entries.len() > LABELS_MAX {
            return Err(Reason::TooManyLabels.into());
        }
        self.is_built = true;
        Ok(())
    }

    /// Sorts by name. Values of keys that map to one name are joined by `;` in key order, from the first that is not
    /// empty.
    fn merge_equal_names(&mut self) {
        let text = &self.text;
        if self.entries.is_sorted_by(|a, b| text[a.name.clone()] < text[b.name.clone()]) {
            return;
        }
        self.entries.sort_by(|a, b| text[a.name.clone()].cmp(&text[b.name.clone()]));
        let mut merged: Vec<Entry> = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            match merged.last_mut() {
                Some(last) if self.text[last.name.clone()] == self.text[entry.name.clone()] => {
                    if last.value.is_empty() {
                        last.value = entry.value.clone();
                        continue;
                    }
                    // A value at the end of the text is extended in place, so that many equal names take linear time.
                    if last.value.end != self.text.len() {
                        let start = self.text.len();
                        self.text.extend_from_within(last.value.clone());
                        last.value = start..self.text.len();
                    }
                    self.text.push(';');
                    self.text.extend_from_within(entry.value.clone());
                    last.value.end = self.text.len();
                }
                _ => merged.push(entry.clone()),
            }
        }
        self.entries = merged;
    }

    /// Merges the labels of resource and scope; attributes with an empty value are dropped.
    fn merge_fixed(&mut self, fixed: &FixedLabels) {
        self.merged.clear();
        let mut own = self.entries.drain(..).peekable();
        for label in fixed.labels() {
            while let Some(entry) = own.next_if(|e| self.text[e.name.clone()] < *label.name) {
                self.merged.push(entry);
            }
            if let Some(entry) = own.next_if(|e| self.text[e.name.clone()] == *label.name)
                && !label.wins
                && !entry.value.is_empty()
            {
                self.merged.push(entry);
                continue;
            }
            let name = self.text.len();
            self.text.push_str(&label.name);
            let value = self.text.len();
            self.text.push_str(&label.value);
            self.merged.push(Entry { name: name..value, value: value..self.text.len() });
        }
        self.merged.extend(own);
        std::mem::swap(&mut self.entries, &mut self.merged);
    }

    /// Appends the canonical form of a series: these labels, the metric name (in two parts) and one more label. Both
    /// take precedence over labels of the same name.
    pub(super) fn write_series(&self, name: &str, suffix: &str, extra: Option<(&str, &str)>, out: &mut Vec<u8>) {
        debug_assert!(extra.is_none_or(|(label, _)| label > METRIC_NAME), "the metric name comes first");
        let mut waiting = Some(METRIC_NAME);
        for entry in &self.entries {
            let label = &self.text[entry.name.clone()];
            while let Some(next) = waiting.filter(|next| *next <= label) {
                waiting = push_special(next, name, suffix, extra, out);
            }
            let is_special = label == METRIC_NAME || extra.is_some_and(|(extra, _)| extra == label);
            if !is_special && !entry.value.is_empty() {
                push_text(out, label.as_bytes());
                push_text(out, self.text[entry.value.clone()].as_bytes());
            }
        }
        while let Some(next) = waiting {
            waiting = push_special(next, name, suffix, extra, out);
        }
    }
}

/// Writes the metric name, or the additional label; returns the label that comes next.
fn push_special<'a>(
    label: &str,
    name: &str,
    suffix: &str,
    extra: Option<(&'a str, &str)>,
    out: &mut Vec<u8>,
) -> Option<&'a str> {
    push_text(out, label.as_bytes());
    if label == METRIC_NAME {
        put_varint(out, (name.len() + suffix.len()) as u64);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(suffix.as_bytes());
        return extra.map(|(label, _)| label);
    }
    push_text(out, extra.map_or("", |(_, value)| value).as_bytes());
    None
}

#[cfg(test)]
mod tests {
    use quiver_types::LabelSet;

    use super::super::fixed_labels::FixedLabel;
    use super::*;
    use crate::wire::put_bytes;

    fn value(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, 1, text.as_bytes());
        out
    }

    #[test]
    fn series() {
        let label = |name: &str, value: &str, wins| FixedLabel { name: name.into(), value: value.into(), wins };
        let fixed = [label("job", "ns/svc", true), label("zone", "eu", false), label("a_b", "never", false)];
        let fixed = FixedLabels::new(fixed);
        let check = |attributes: &[(&str, &str)], extra: Option<(&str, &str)>, expected: &[(&str, &str)]| {
            let values: Vec<Vec<u8>> = attributes.iter().map(|(_, v)| value(v)).collect();
            let mut list = Attributes::default();
            attributes.iter().zip(&values).for_each(|((k, _), v)| list.push((k.as_bytes(), v)));
            let mut labels = PointLabels::default();
            labels.begin(&mut list, &fixed);
            labels.build(&fixed).unwrap();
            let mut out = Vec::new();
            labels.write_series("m", "_x", extra, &mut out);
            let expected = LabelSet::from_pairs(expected.iter().copied());
            assert_eq!(LabelSet::from_canonical(&out), expected, "{attributes:?} {extra:?}");
        };
        let own = [("__name__", "m_x"), ("job", "ns/svc"), ("zone", "eu"), ("a_b", "never")];
        check(&[], None, &own);
        let with = |more: &[(&'static str, &'static str)]| {
            let mut all = own.to_vec();
            all.extend_from_slice(more);
            all
        };
        check(&[("x", "1"), ("c", "2"), ("empty", "")], None, &with(&[("x", "1"), ("c", "2")]));
        check(&[("job", "other"), ("zone", "us")], None, &with(&[("zone", "us")]));
        check(&[("zone", "")], None, &own);
        check(&[("a.b", "2"), ("a-b", "1"), ("a_b", "3")], None, &with(&[("a_b", "1;2;3")]));
        check(&[("a.b", ""), ("a-b", "1"), ("a_b", "3")], None, &with(&[("a_b", "1;;3")]));
        check(&[("a.b", "2"), ("a-b", ""), ("a_b", "")], None, &with(&[("a_b", "2;")]));
        check(&[("le", "7"), ("__name__", "no")], Some(("le", "5")), &with(&[("le", "5")]));
        check(&[("zz", "7")], Some(("quantile", "0.5")), &with(&[("quantile", "0.5"), ("zz", "7")]));
        check(&[("A", "7")], Some(("le", "+Inf")), &with(&[("le", "+Inf"), ("A", "7")]));
    }

    #[test]
    fn keys_tell_series_apart() {
        let none = FixedLabels::default();
        let fixed = FixedLabels::new([FixedLabel { name: "a".into(), value: "1".into(), wins: false }]);
        let mut seen = Vec::new();
        let (name, other) = (SeriesId(1), SeriesId(2));
        for attributes in [&[][..], &[("a", "1")], &[("a1", "")], &[("a", "1"), ("b", "")], &[("a", ""), ("1b", "")]] {
            for fixed in [&none, &fixed] {
                for (metric, suffix, extra) in [
                    (name, "", None),
                    (other, "", None),
                    (name, "_sum", None),
                    (name, "_bucket", Some(("le", "1"))),
                    (name, "_bucket", Some(("le", "11"))),
                    (name, "", Some(("quantile", "1"))),
                ] {
                    let mut list = Attributes::default();
                    for (k, v) in attributes {
                        list.push((k.as_bytes(), v.as_bytes()));
                    }
                    let mut labels = PointLabels::default();
                    labels.begin(&mut list, fixed);
                    seen.push(labels.key(metric, suffix, extra));
                }
            }
        }
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }
}
