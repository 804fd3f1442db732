//! Decides which fields of a log part get a column and of which kind. Fields with one value in all rows are stored in
//! the footer.

use std::collections::{BTreeMap, HashSet};

use quiver_types::logs::{MSG, STREAM, STREAM_ID, TIME};
use quiver_types::tables::logs::OWN_PREFIX;
use serde::{Deserialize, Serialize};

/// Footer key of the description of the columns.
pub(super) const COLUMNS_KEY: &str = "quiver.columns";
/// Fields with longer names never get a column.
const NAME_BYTES_MAX: usize = 256;
/// Limits on the columns of a part, and on its column chunks (a column within a row group), all of which are listed in
/// the footer.
const COLUMNS_MAX: usize = 256;
const COLUMN_CHUNKS_MAX: usize = 4096;
/// A field in fewer rows per thousand than this gets a column only if it is among the most common fields.
const PER_MILLE_MIN: u64 = 10;
const COMMONEST: usize = 64;
/// Even one of the most common fields must be in this many rows.
const ROWS_MIN: u64 = 16;
const COMMONEST_PER_MILLE_MIN: u64 = 1;

/// How the values of a column are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ColumnKind {
    /// Text with mostly distinct values.
    Text,
    /// Text with few distinct values, dictionary-encoded.
    Coded,
    /// 64-bit integers, in decimal notation.
    Int,
    /// Fractional numbers, in decimal notation without an exponent.
    Float,
    /// IPv4 addresses in dotted notation.
    Ipv4,
    /// Timestamps with this number of fractional digits of the second.
    Time(u8),
    /// This number of bytes as lower-case hex digits.
    Hex(u16),
}

/// A column of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ColumnPlan {
    /// Name of the field and of the column.
    pub(crate) name: String,
    /// How its values are stored.
    pub(crate) kind: ColumnKind,
    /// Number of rows that have the field.
    pub(crate) rows: u64,
    /// Whether the field of every row equals the label of the same name of the row's stream (or both are absent).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) of_stream: bool,
    /// For each row group, the number of rows that have the field; filled in when the part is complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) in_groups: Vec<u64>,
}

/// The fields of a part that are not in the overflow map.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogColumns {
    /// Fields with a column, by name.
    pub(crate) columns: Vec<ColumnPlan>,
    /// Fields with the same value in all rows.
    pub(crate) constants: BTreeMap<String, String>,
}

impl LogColumns {
    /// Finds a column.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.columns.binary_search_by(|c| c.name.as_str().cmp(name)).ok()
    }
}

/// Which of the optional columns a part has: a column is written only if some row has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Optional {
    pub(crate) severity: bool,
    pub(crate) observed: bool,
    /// The map of fields without a column.
    pub(crate) overflow: bool,
}

/// Selects the field names that get a column.
#[derive(Debug)]
pub(crate) struct NamePolicy {
    max: usize,
    least: u64,
    least_commonest: u64,
}

impl NamePolicy {
    /// The policy for a part with this many rows.
    pub(crate) fn new(rows: u64, group_rows: usize) -> Self {
        let groups = (rows as usize).div_ceil(group_rows).max(1);
        Self {
            max: (COLUMN_CHUNKS_MAX / groups).clamp(32, COLUMNS_MAX),
            least: (rows * PER_MILLE_MIN / 1000).max(1),
            least_commonest: (rows * COMMONEST_PER_MILLE_MIN / 1000).max(ROWS_MIN).min(rows.max(1)),
        }
    }

    /// A lower bound: fields in fewer rows never get a column.
    pub(crate) fn rows_min(&self) -> u64 {
        self.least.min(self.least_commonest)
    }

    /// Selects from names with their row counts; the result is sorted by name.
    pub(crate) fn choose(&self, mut counts: Vec<(String, u64)>) -> Vec<(String, u64)> {
        counts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        // Some other readers of the files ignore case in column names, so names must differ in more than case.
        let mut taken: HashSet<String> = [TIME, STREAM, STREAM_ID].map(str::to_owned).into();
        let mut chosen: Vec<(String, u64)> = Vec::new();
        for (at, (name, rows)) in counts.into_iter().enumerate() {
            let common = rows >= self.least || (at < COMMONEST && rows >= self.least_commonest);
            if !common || chosen.len() >= self.max {
                break;
            }
            let allowed = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains('\0');
            let lower = name.to_lowercase();
            if allowed && !lower.starts_with(OWN_PREFIX) && taken.insert(lower) {
                chosen.push((name, rows));
            }
        }
        chosen.sort_unstable();
        chosen
    }
}

/// Tells whether dictionary encoding pays off for a text column that has `distinct` values among `sampled` ones.
pub(crate) fn worth_codes(name: &str, distinct: usize, sampled: usize) -> bool {
    name != MSG && distinct * 4 <= sampled.max(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_fields_get_columns() {
        let check = |rows: u64, counts: &[(&str, u64)], expected: &[&str]| {
            let counts = counts.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect();
            let chosen = NamePolicy::new(rows, 128 * 1024).choose(counts);
            assert_eq!(chosen.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), expected);
        };
        check(10_000, &[("b", 10_000), ("a", 100), ("c", 9), ("d", 16)], &["a", "b", "d"]);
        check(100, &[("Level", 50), ("level", 60), ("__Q_x", 100), ("_TIME", 100), ("", 100)], &["level"]);
        check(3, &[("a", 1)], &["a"]);
        let long = "n".repeat(257);
        check(10, &[(&long, 10)], &[]);
        let many: Vec<(String, u64)> = (0..1000).map(|i| (format!("f{i:03}"), 500)).collect();
        assert_eq!(NamePolicy::new(1000, 128 * 1024).choose(many.clone()).len(), 256);
        assert_eq!(NamePolicy::new(20_000_000, 128 * 1024).choose(many).len(), 0);
    }
}
