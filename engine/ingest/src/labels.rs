//! Converts label pairs as received to the canonical bytes of a label set, written directly into a batch.
//!
//! One builder serves a whole request: nothing is allocated per series. Most senders sort labels, so they are sorted only
//! if a name is not greater than the one before it. UTF-8 is checked in one pass over the finished bytes if they are
//! ASCII.

use quiver_types::label::METRIC_NAME;

use crate::rejection::Reason;

/// Most labels of a series.
pub const LABELS_MAX: usize = 10_000;
/// Longest name or value.
pub const TEXT_MAX_BYTES: usize = 2 << 20;
/// All names and values of a series together.
pub const SERIES_MAX_BYTES: usize = 4 << 20;
/// Most characters of all names and values of an exemplar together (OpenMetrics, and Prometheus' storage).
pub const EXEMPLAR_MAX_CHARS: usize = 128;

/// Collects the label pairs of one series after another.
#[derive(Debug, Default)]
pub struct LabelBuilder<'a> {
    pairs: Vec<(&'a [u8], &'a [u8])>,
    unsorted: bool,
    bytes: usize,
}

impl<'a> LabelBuilder<'a> {
    /// Forgets the pairs of the series before.
    #[inline]
    pub fn clear(&mut self) {
        self.pairs.clear();
        self.unsorted = false;
        self.bytes = 0;
    }

    /// Empties the builder for texts of another lifetime; keeps the space.
    #[must_use]
    pub fn reuse<'b>(mut self) -> LabelBuilder<'b> {
        self.pairs.clear();
        // Collecting an empty list of the same layout hands the allocation over.
        let pairs = self.pairs.into_iter().map(|_| (&b""[..], &b""[..])).collect();
        LabelBuilder { pairs, unsorted: false, bytes: 0 }
    }

    /// Bytes of all names and values since the last `clear`. References to a table of texts can name the same text
    /// many times, so who refuses a series counts these bytes as work done.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a pair. Beyond the limits pairs are only counted: the series will be refused.
    #[inline]
    pub fn push(&mut self, name: &'a [u8], value: &'a [u8]) {
        self.bytes += name.len() + value.len();
        if self.bytes > SERIES_MAX_BYTES || self.pairs.len() > LABELS_MAX {
            return;
        }
        if let Some((last, _)) = self.pairs.last() {
            // Equal names are found in the sorted list, so they count as unsorted here.
            self.unsorted |= *last >= name;
        }
        self.pairs.push((name, value));
    }

    /// The value of a label, as it was received.
    pub fn get(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| *value)
    }

    /// Appends the canonical bytes of a series: sorted, without empty values. Nothing is appended on an error.
    ///
    /// # Errors
    /// The reason why the series cannot be stored: no metric name, an empty or repeated label name, invalid UTF-8,
    /// or a limit.
    #[inline]
    pub fn write_series(&mut self, out: &mut Vec<u8>) -> Result<(), Reason> {
        self.write(out, true)
    }

    /// Appends the canonical bytes of the labels of an exemplar, which need no metric name.
    ///
    /// # Errors
    /// Those of [`LabelBuilder::write_series`], and that there are too many characters.
    pub fn write_exemplar(&mut self, out: &mut Vec<u8>) -> Result<(), Reason> {
        let start = out.len();
        self.write(out, false)?;
        // Bytes are never fewer than characters, and nearly all exemplars are far below.
        if self.bytes > EXEMPLAR_MAX_CHARS && self.chars() > EXEMPLAR_MAX_CHARS {
            out.truncate(start);
            return Err(Reason::LongLabel);
        }
        Ok(())
    }

    /// Characters of what is written of texts that are UTF-8.
    fn chars(&self) -> usize {
        let begins = |text: &[u8]| text.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        let written = self.pairs.iter().filter(|(_, value)| !value.is_empty());
        written.map(|&(name, value)| begins(name) + begins(value)).sum()
    }

    fn write(&mut self, out: &mut Vec<u8>, is_series: bool) -> Result<(), Reason> {
        if self.pairs.len() > LABELS_MAX {
            return Err(Reason::TooManyLabels);
        }
        if self.bytes > SERIES_MAX_BYTES {
            return Err(Reason::LongLabel);
        }
        if self.unsorted {
            self.pairs.sort_unstable_by_key(|(name, _)| *name);
            if self.pairs.windows(2).any(|w| w[0].0 == w[1].0) {
                return Err(Reason::RepeatedLabel);
            }
        }
        if self.pairs.first().is_some_and(|(name, _)| name.is_empty()) {
            return Err(Reason::EmptyLabelName);
        }
        let start = out.len();
        let mut named = !is_series;
        let mut is_long = false;
        for &(name, value) in &self.pairs {
            if value.is_empty() {
                continue;
            }
            is_long |= name.len().max(value.len()) > TEXT_MAX_BYTES;
            named |= name == METRIC_NAME.as_bytes();
            push_text(out, name);
            push_text(out, value);
        }
        let is_text = |bytes| std::str::from_utf8(bytes).is_ok();
        // Lengths below 128 are ASCII too, so one pass over everything settles nearly all series.
        let reason = if is_long {
            Reason::LongLabel
        } else if !out[start..].is_ascii()
            && !self.pairs.iter().all(|(name, value)| value.is_empty() || is_text(name) && is_text(value))
        {
            Reason::InvalidUtf8
        } else if !named {
            Reason::NoMetricName
        } else {
            return Ok(());
        };
        out.truncate(start);
        Err(reason)
    }
}

/// Appends one text of canonical bytes: LEB128 length, bytes.
#[inline]
pub(crate) fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    if text.len() < 0x80 {
        out.push(text.len() as u8);
    } else {
        crate::wire::put_varint(out, text.len() as u64);
    }
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use quiver_types::LabelSet;

    use super::*;

    fn write(pairs: &[(&str, &str)]) -> Result<Vec<u8>, Reason> {
        let mut builder = LabelBuilder::default();
        for (n, v) in pairs {
            builder.push(n.as_bytes(), v.as_bytes());
        }
        let mut out = vec![1, 2, 3];
        let result = builder.write_series(&mut out);
        assert_eq!(out[..3], [1, 2, 3]);
        result.map(|()| out.split_off(3)).inspect_err(|_| assert_eq!(out.len(), 3))
    }

    #[test]
    fn canonical_bytes() {
        let check = |pairs: &[(&str, &str)]| {
            let expected = LabelSet::from_pairs(pairs.iter().copied());
            assert_eq!(write(pairs).as_deref(), Ok(expected.canonical()), "{pairs:?}");
        };
        let long = "é".repeat(200);
        check(&[("__name__", "m")]);
        check(&[("__name__", "m"), ("a", "1"), ("b", "2")]);
        check(&[("b", "2"), ("a", "1"), ("__name__", "m")]);
        check(&[("A", "1"), ("__name__", "m"), ("c", "")]);
        check(&[("__name__", "m"), ("ü", long.as_str())]);
        check(&[("__name__", "m"), (long.as_str(), long.as_str())]);
    }

    #[test]
    fn refusals() {
        let check = |pairs: &[(&str, &str)], reason| assert_eq!(write(pairs), Err(reason), "{pairs:?}");
        check(&[], Reason::NoMetricName);
        check(&[("a", "1")], Reason::NoMetricName);
        check(&[("__name__", "")], Reason::NoMetricName);
        check(&[("__name__", "m"), ("", "1")], Reason::EmptyLabelName);
        check(&[("", "1"), ("__name__", "m")], Reason::EmptyLabelName);
        check(&[("__name__", "m"), ("a", "1"), ("a", "1")], Reason::RepeatedLabel);
        check(&[("a", "1"), ("__name__", "m"), ("a", "")], Reason::RepeatedLabel);
        let mut builder = LabelBuilder::default();
        for (name, value) in [(&b"__name__"[..], &b"m"[..]), (b"a", b"\xff")] {
            builder.push(name, value);
        }
        assert_eq!(builder.write_series(&mut vec![]), Err(Reason::InvalidUtf8));
        builder.clear();
        builder.push(b"__name__", b"m");
        // A label without a value is no label, whatever its name.
        builder.push(b"a\xc3", b"");
        assert_eq!(builder.write_series(&mut vec![]), Ok(()));
        builder.clear();
        assert_eq!(builder.write_exemplar(&mut vec![]), Ok(()));
        builder.clear();
        builder.push(b"__name__", b"m");
        (0..=LABELS_MAX).for_each(|_| builder.push(b"a", b""));
        assert_eq!(builder.write_series(&mut vec![]), Err(Reason::TooManyLabels));
        let long = vec![b'x'; TEXT_MAX_BYTES + 1];
        builder.clear();
        builder.push(b"__name__", &long);
        assert_eq!(builder.write_series(&mut vec![]), Err(Reason::LongLabel));
        builder.push(b"a", &long);
        assert_eq!(builder.write_series(&mut vec![]), Err(Reason::LongLabel));
        assert_eq!(builder.bytes(), 9 + 2 * long.len());
    }
}
