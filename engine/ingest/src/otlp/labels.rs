//! The labels of a point: its attributes under Prometheus names, and what its resource and scope add.
//!
//! They are built once per point, and each series of the point (`_bucket{le}`, `_sum`, …) is written by merging two
//! labels into the sorted list: no sorting and no allocation per series.

use std::ops::Range;

use quiver_types::label::METRIC_NAME;

use super::{Fault, any, names};
use crate::decoded::Reason;
use crate::labels::{LABELS_MAX, TEXT_MAX_BYTES, push_text};
use crate::wire::put_varint;

/// Attributes as they stand in a message: keys and `AnyValue` messages.
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

    /// Finds the value of a key, as text; the last one counts.
    pub(super) fn get(&self, key: &str) -> Result<Option<String>, Fault> {
        let found = self.pairs.iter().rev().find(|(k, _)| *k == key.as_bytes());
        found
            .map(|(_, value)| {
                let mut out = String::new();
                any::push(value, &mut out).map(|()| out)
            })
            .transpose()
    }

    /// Keeps the attributes whose key the predicate likes.
    pub(super) fn retain(&mut self, like: impl Fn(&[u8]) -> bool) {
        self.pairs.retain(|(key, _)| like(key));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

/// What all series of a resource and scope have.
#[derive(Debug, Default, Clone)]
pub(super) struct FixedLabels {
    /// Labels that win over attributes of the same name.
    pub(super) winning: Vec<(String, String)>,
    /// Labels that attributes of the same name win over.
    pub(super) losing: Vec<(String, String)>,
}

#[derive(Debug, Clone)]
struct Entry {
    name: Range<usize>,
    value: Range<usize>,
}

/// The labels of one point after another.
#[derive(Debug, Default)]
pub(super) struct PointLabels {
    /// Names and values, one after the other.
    text: String,
    /// Sorted by name, names unique.
    entries: Vec<Entry>,
}

impl PointLabels {
    /// Bytes of all names and values.
    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Builds the labels of a point.
    pub(super) fn build(&mut self, attributes: &mut Attributes<'_>, fixed: &FixedLabels) -> Result<(), Fault> {
        self.text.clear();
        self.entries.clear();
        if attributes.overflow {
            return Err(Reason::TooManyLabels.into());
        }
        let pairs = &mut attributes.pairs;
        if !pairs.is_sorted_by(|a, b| a.0 <= b.0) {
            pairs.sort_by_key(|(key, _)| *key);
        }
        for (key, value) in pairs.iter() {
            let name_start = self.text.len();
            if !names::push_label_name(any::text(key)?, &mut self.text) {
                return Err(Reason::InvalidName.into());
            }
            let value_start = self.text.len();
            any::push(value, &mut self.text)?;
            self.entries.push(Entry { name: name_start..value_start, value: value_start..self.text.len() });
            if self.text.len() > TEXT_MAX_BYTES {
                return Err(Reason::LongLabel.into());
            }
        }
        self.merge_equal_names();
        for (name, value) in &fixed.losing {
            self.put(name, value, false);
        }
        for (name, value) in &fixed.winning {
            self.put(name, value, true);
        }
        Ok(())
    }

    /// Sorts by name; values of keys that became the same name are joined by `;`, in key order.
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
                    // A value at the end of the text is extended in place, so that many equal names stay linear.
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

    fn put(&mut self, name: &str, value: &str, wins: bool) {
        let found = self.entries.binary_search_by(|e| self.text[e.name.clone()].cmp(name));
        if found.is_ok() && !wins {
            return;
        }
        let name_start = self.text.len();
        self.text.push_str(name);
        let value_start = self.text.len();
        self.text.push_str(value);
        let entry = Entry { name: name_start..value_start, value: value_start..self.text.len() };
        match found {
            Ok(at) => self.entries[at] = entry,
            Err(at) => self.entries.insert(at, entry),
        }
    }

    /// Appends the canonical bytes of a series: these labels, the metric name (in two parts) and one more label. Both
    /// win over a label of the same name.
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

/// Writes the metric name, or the extra label after it; gives the label that comes next.
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

    use super::*;
    use crate::wire::put_bytes;

    fn value(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, 1, text.as_bytes());
        out
    }

    #[test]
    fn series() {
        let fixed = FixedLabels {
            winning: vec![("job".into(), "ns/svc".into())],
            losing: vec![("zone".into(), "eu".into()), ("a_b".into(), "never".into())],
        };
        let check = |attributes: &[(&str, &str)], extra: Option<(&str, &str)>, expected: &[(&str, &str)]| {
            let values: Vec<Vec<u8>> = attributes.iter().map(|(_, v)| value(v)).collect();
            let mut list = Attributes::default();
            attributes.iter().zip(&values).for_each(|((k, _), v)| list.push((k.as_bytes(), v)));
            let mut labels = PointLabels::default();
            labels.build(&mut list, &fixed).unwrap();
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
        check(&[("a.b", "2"), ("a-b", "1"), ("a_b", "3")], None, &with(&[("a_b", "1;2;3")]));
        check(&[("le", "7"), ("__name__", "no")], Some(("le", "5")), &with(&[("le", "5")]));
        check(&[("zz", "7")], Some(("quantile", "0.5")), &with(&[("quantile", "0.5"), ("zz", "7")]));
        check(&[("A", "7")], Some(("le", "+Inf")), &with(&[("le", "+Inf"), ("A", "7")]));
    }
}
