//! The columns of a result in its Prometheus form: which are labels and which are values, and how pipes after `stats`
//! change that.

use std::fmt::Display;

use quiver_types::{Error, ErrorKind, Result};

use crate::ast::field::{FieldPattern, Originals, PatternPair};

/// The columns of an answer in its Prometheus form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatsColumns {
    /// Fields that the rows are grouped by: labels of the series.
    pub labels: Vec<String>,
    /// Results of functions: one series for each, under its name.
    pub values: Vec<String>,
    /// Values that are buckets, as [`histogram_buckets`] reads them; other functions give lists, too.
    pub histograms: Vec<String>,
    /// Values that are rows which stand for their group, such as those of `row_any`, or parts of them: no numbers.
    pub rows: Vec<String>,
}

/// Reads what `histogram` gives, `[{"vmrange":"1.000e+00...1.136e+00","hits":2}]`: ranges and hits. `None` of any other
/// text. In the Prometheus form, each of them is a sample of its own.
#[must_use]
pub fn histogram_buckets(text: &str) -> Option<Vec<(&str, u64)>> {
    let mut rest = text.strip_prefix('[')?.strip_suffix(']')?;
    let mut buckets = Vec::new();
    while !rest.is_empty() {
        if !buckets.is_empty() {
            rest = rest.strip_prefix(',')?;
        }
        let (range, tail) = rest.strip_prefix("{\"vmrange\":\"")?.split_once('"')?;
        let (hits, tail) = tail.strip_prefix(",\"hits\":")?.split_once('}')?;
        if range.contains('\\') || !hits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        buckets.push((range, hits.parse().ok()?));
        rest = tail;
    }
    Some(buckets)
}

/// Says why a query has no Prometheus form.
pub(crate) fn refused(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Execution, text)
}

impl StatsColumns {
    /// Leaves the columns that a pipe keeps; one that drops a label is refused.
    pub(crate) fn keep(&mut self, pipe: &dyn Display, kept: impl Fn(&String) -> bool) -> Result<()> {
        self.keep_labels(pipe, &kept)?;
        self.values.retain(kept);
        Ok(())
    }

    fn keep_labels(&self, pipe: &dyn Display, kept: impl Fn(&String) -> bool) -> Result<()> {
        match self.labels.iter().find(|label| !kept(label)) {
            Some(label) => Err(refused(format!("`{pipe}` loses `{label}`, by which rows are grouped"))),
            None => Ok(()),
        }
    }

    /// Adds a label that a pipe makes; a column of that name must not be there.
    pub(crate) fn add_label(&mut self, pipe: &dyn Display, name: &str) -> Result<()> {
        if self.labels.iter().chain(&self.values).any(|own| own == name) {
            return Err(refused(format!("`{pipe}` overwrites `{name}`")));
        }
        self.labels.push(name.to_owned());
        Ok(())
    }

    /// Adds a value that a pipe makes; it may replace another value, but no label.
    pub(crate) fn add_value(&mut self, pipe: &dyn Display, name: &str) -> Result<()> {
        if self.labels.iter().any(|label| label == name) {
            return Err(refused(format!("`{pipe}` overwrites `{name}`, by which rows are grouped")));
        }
        if !self.values.iter().any(|value| value == name) {
            self.values.push(name.to_owned());
        }
        self.histograms.retain(|own| own != name);
        self.rows.retain(|own| own != name);
        Ok(())
    }

    /// Adds parts of a row that stands for its group; nothing else can be taken apart.
    pub(crate) fn add_parts(
        &mut self,
        pipe: &dyn Display,
        row: &str,
        parts: impl Iterator<Item = String>,
    ) -> Result<()> {
        if !self.rows.iter().any(|own| own == row) {
            return Err(refused(format!("`{pipe}` cannot stand behind `stats` here")));
        }
        for part in parts {
            self.add_value(pipe, &part)?;
            self.rows.push(part);
        }
        Ok(())
    }

    /// The columns with rows that stand for their groups among the labels, beside numbers: an alert shows them with its
    /// number. Where there are no other values they stay.
    #[must_use]
    pub fn with_rows_as_labels(mut self) -> Self {
        let (rows, values): (Vec<String>, Vec<String>) =
            self.values.iter().cloned().partition(|name| self.rows.contains(name));
        if !values.is_empty() {
            self.labels.extend(rows);
            self.values = values;
        }
        self
    }

    /// Follows a pair of `copy` or `rename`, names or prefixes.
    pub(crate) fn move_pair(&mut self, pipe: &dyn Display, pair: &PatternPair, originals: Originals) -> Result<()> {
        if pair.source == pair.target {
            return Ok(());
        }
        let renamed = |name: &str| match (&pair.source, &pair.target) {
            (FieldPattern::Name(source), FieldPattern::Name(target)) => (source == name).then(|| target.clone()),
            (FieldPattern::Prefix(old), FieldPattern::Prefix(new)) => {
                name.strip_prefix(old.as_str()).map(|n| format!("{new}{n}"))
            }
            (FieldPattern::Prefix(old), FieldPattern::Name(target)) => {
                name.starts_with(old.as_str()).then(|| target.clone())
            }
            (FieldPattern::Name(_), FieldPattern::Prefix(_)) => None,
        };
        let labels: Vec<(String, String)> =
            self.labels.iter().filter_map(|name| Some((name.clone(), renamed(name)?))).collect();
        let kinds = |name: &String| (self.histograms.contains(name), self.rows.contains(name));
        let values: Vec<(String, String, (bool, bool))> =
            self.values.iter().filter_map(|name| Some((name.clone(), renamed(name)?, kinds(name)))).collect();
        if originals == Originals::Drop {
            self.labels.retain(|name| renamed(name).is_none());
            self.values.retain(|name| renamed(name).is_none());
        }
        // What no row has still overwrites what it is moved to.
        if let (FieldPattern::Name(_), FieldPattern::Name(target), true) =
            (&pair.source, &pair.target, labels.is_empty() && values.is_empty())
        {
            self.values.retain(|name| name != target);
            return self.keep_labels(pipe, |label| label != target);
        }
        if let (FieldPattern::Prefix(_), FieldPattern::Prefix(target), true) =
            (&pair.source, &pair.target, labels.is_empty() && values.is_empty())
            && self.labels.iter().chain(&self.values).any(|name| name.starts_with(target.as_str()))
        {
            return Err(refused(format!("`{pipe}` may overwrite `{target}*`")));
        }
        for (_, target) in labels {
            self.add_label(pipe, &target)?;
        }
        for (_, target, (is_histogram, is_row)) in values {
            self.add_value(pipe, &target)?;
            if is_histogram {
                self.histograms.push(target);
            } else if is_row {
                self.rows.push(target);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_of_histograms() {
        assert_eq!(histogram_buckets("[]"), Some(vec![]));
        let one = r#"[{"vmrange":"1.000e+00...1.136e+00","hits":0}]"#;
        assert_eq!(histogram_buckets(one), Some(vec![("1.000e+00...1.136e+00", 0)]));
        let two = r#"[{"vmrange":"0...1.000e-09","hits":18446744073709551615},{"vmrange":"","hits":7}]"#;
        assert_eq!(histogram_buckets(two), Some(vec![("0...1.000e-09", u64::MAX), ("", 7)]));
        for other in [
            "",
            "5",
            "[",
            "]",
            "[{}]",
            "[],",
            "[]x",
            r#"["a"]"#,
            r#"[{"vmrange":"a","hits":1}"#,
            r#"[{"vmrange":"a","hits":1},]"#,
            r#"[{"vmrange":"a","hits":1}{"vmrange":"b","hits":2}]"#,
            r#"[{"vmrange":"a","hits":}]"#,
            r#"[{"vmrange":"a","hits":-1}]"#,
            r#"[{"vmrange":"a","hits":+1}]"#,
            r#"[{"vmrange":"a","hits":1.5}]"#,
            r#"[{"vmrange":"a","hits":18446744073709551616}]"#,
            r#"[{"vmrange":"a\"b","hits":1}]"#,
            r#"[{"vmrange":"a","hits":1,"x":2}]"#,
            r#"[{"hits":1,"vmrange":"a"}]"#,
        ] {
            assert_eq!(histogram_buckets(other), None, "{other}");
        }
    }
}
