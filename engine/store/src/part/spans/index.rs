//! The index of a part of spans in memory: where its traces are, and where each minute starts.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt32Type;
use quiver_types::tables::spans::{minute_of, trace_hash};

use super::filters::SpanFilters;
use super::keys::{KEYS, SpanKeys};
use super::longest_durations::Slowest;
use crate::error::Result;
use crate::part::FileMeta;
use crate::part::footer::Footer;

/// Where the traces of a part are, and where each minute starts.
#[derive(Debug, Default)]
pub(crate) struct SpanIndex {
    hashes: Vec<u32>,
    first: Vec<u32>,
    rows: Vec<u32>,
    /// Each minute with its first row, ascending.
    pub(crate) minutes: Arc<[(i64, u64)]>,
    /// Number of rows.
    pub(crate) total: u64,
    /// Attribute keys that occur in maps and lists.
    pub(crate) keys: SpanKeys,
    /// Filters of attribute values.
    pub(crate) filters: SpanFilters,
    /// The longest duration of each service, by block of rows.
    pub(crate) slowest: Slowest,
}

impl SpanIndex {
    /// Ascending row ranges that may contain any of the traces.
    pub(crate) fn traces<'t>(&self, ids: impl Iterator<Item = &'t [u8; 16]>) -> Vec<Range<u64>> {
        let mut out: Vec<Range<u64>> = Vec::new();
        for id in ids {
            let hash = trace_hash(id);
            let start = self.hashes.partition_point(|&h| h < hash);
            for i in start..self.hashes.len() {
                if self.hashes[i] != hash {
                    break;
                }
                let first = u64::from(self.first[i]);
                out.push(first..first + u64::from(self.rows[i]));
            }
        }
        out.sort_unstable_by_key(|r| r.start);
        out.dedup();
        out
    }

    /// The rows of the minutes of a closed range of start times.
    pub(crate) fn starts(&self, (min, max): (i64, i64)) -> Range<u64> {
        let (min, max) = (minute_of(min), minute_of(max));
        let from = self.minutes.partition_point(|m| m.0 < min);
        let to = self.minutes.partition_point(|m| m.0 <= max);
        let row = |at: usize| self.minutes.get(at).map_or(self.total, |m| m.1);
        row(from)..row(to).max(row(from))
    }

    /// The first and the last minute of a range of rows.
    pub(crate) fn minutes_of(&self, rows: Range<u64>) -> (i64, i64) {
        let at = |row: u64| {
            let n = self.minutes.partition_point(|m| m.1 <= row);
            self.minutes.get(n.saturating_sub(1)).map_or((i64::MIN, i64::MAX), |m| (m.0, m.0))
        };
        (at(rows.start).0, at(rows.end.saturating_sub(1)).1)
    }

    /// The minutes within a range of rows, each with its first row there.
    pub(crate) fn minutes_in(&self, rows: &Range<u64>) -> impl Iterator<Item = (i64, u64)> {
        let from = self.minutes.partition_point(|m| m.1 <= rows.start).saturating_sub(1);
        let (start, end) = (rows.start, rows.end);
        self.minutes[from..].iter().take_while(move |m| m.1 < end).map(move |m| (m.0, m.1.max(start)))
    }

    /// Hash and rows of each trace within a range of rows.
    pub(crate) fn entries_in(&self, rows: &Range<u64>) -> impl Iterator<Item = (u32, Range<u64>)> {
        let (start, end) = (rows.start, rows.end);
        self.entries().map(move |(hash, r)| (hash, r.start.max(start)..r.end.min(end))).filter(|(_, r)| !r.is_empty())
    }

    /// Hash and rows of each trace, sorted by hash.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, Range<u64>)> {
        self.hashes.iter().enumerate().map(|(i, hash)| {
            let first = u64::from(self.first[i]);
            (*hash, first..first + u64::from(self.rows[i]))
        })
    }

    /// Starts the index with what the footer of `.rows` contains.
    pub(super) fn of_footer(file: &FileMeta, footer: &Footer) -> Result<Self> {
        let minutes = Arc::clone(footer.minutes(file)?);
        let keys = footer.value(KEYS).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Ok(Self { minutes, total: footer.rows(), keys, ..Self::default() })
    }

    /// Adds entries whose hashes are wanted; `None` if the batch has other types.
    pub(super) fn push(&mut self, batch: &RecordBatch, wanted: impl Fn(u32) -> bool) -> Option<()> {
        let column = |i: usize| batch.column(i).as_primitive_opt::<UInt32Type>();
        let (hashes, first, rows) = (column(0)?.values(), column(1)?.values(), column(2)?.values());
        for at in (0..hashes.len()).filter(|&at| wanted(hashes[at])) {
            self.hashes.push(hashes[at]);
            self.first.push(first[at]);
            self.rows.push(rows[at]);
        }
        Some(())
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let of_blocks = self.filters.memory_bytes() + self.slowest.memory_bytes();
        (self.hashes.len() * 12 + self.minutes.len() * 16 + of_blocks + 128) as u64
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

    use quiver_types::tables::spans::MINUTE_NS;

    use super::*;

    /// Rows 0..100 of minute 10, 100..250 of 11, 250..400 of 15, and traces that lie in one or two of them.
    fn index(traces: &[(u32, u32, u32)]) -> SpanIndex {
        SpanIndex {
            hashes: traces.iter().map(|t| t.0).collect(),
            first: traces.iter().map(|t| t.1).collect(),
            rows: traces.iter().map(|t| t.2).collect(),
            minutes: Arc::from([(10, 0), (11, 100), (15, 250)]),
            total: 400,
            ..SpanIndex::default()
        }
    }

    #[test]
    fn times_narrow_to_rows_of_their_minutes() {
        let index = index(&[]);
        let check = |from: i64, to: i64, expected: Range<u64>| {
            assert_eq!(index.starts((from, to)), expected, "{from} to {to}");
        };
        check(10 * MINUTE_NS, 11 * MINUTE_NS - 1, 0..100);
        check(10 * MINUTE_NS, 11 * MINUTE_NS, 0..250);
        check(11 * MINUTE_NS + 5, 15 * MINUTE_NS - 1, 100..250);
        check(15 * MINUTE_NS, i64::MAX, 250..400);
        check(i64::MIN, i64::MAX, 0..400);
        // Minutes of which there are no rows, before, between and behind the others.
        check(0, 10 * MINUTE_NS - 1, 0..0);
        check(12 * MINUTE_NS, 14 * MINUTE_NS, 250..250);
        check(16 * MINUTE_NS, 17 * MINUTE_NS, 400..400);
        assert!(index.starts((i64::MAX, i64::MIN)).is_empty());
    }

    #[test]
    fn rows_tell_their_minutes() {
        let index = index(&[]);
        let minutes = [0..1, 0..100, 99..101, 100..250, 249..251, 399..400, 0..400].map(|rows| index.minutes_of(rows));
        assert_eq!(minutes, [(10, 10), (10, 10), (10, 11), (11, 11), (11, 15), (15, 15), (10, 15)]);
        assert_eq!(SpanIndex::default().minutes_of(0..5), (i64::MIN, i64::MAX), "nothing is known");
        let within = |rows: Range<u64>| index.minutes_in(&rows).collect::<Vec<_>>();
        assert_eq!(within(0..400), [(10, 0), (11, 100), (15, 250)]);
        assert_eq!(within(50..251), [(10, 50), (11, 100), (15, 250)]);
        assert_eq!(within(100..250), [(11, 100)]);
        assert_eq!(within(249..250), [(11, 249)]);
        assert!(within(0..0).is_empty());
    }

    #[test]
    fn traces_are_cut_to_rows() {
        let index = index(&[(1, 0, 10), (1, 100, 5), (5, 10, 90), (9, 399, 1)]);
        let within = |rows: Range<u64>| index.entries_in(&rows).collect::<Vec<_>>();
        assert_eq!(within(0..400), [(1, 0..10), (1, 100..105), (5, 10..100), (9, 399..400)]);
        assert_eq!(within(5..102), [(1, 5..10), (1, 100..102), (5, 10..100)]);
        assert!(within(105..399).is_empty() && within(7..7).is_empty());
    }

    #[test]
    fn traces_are_found_by_their_hash() {
        let ids = [1u128, 2, 3].map(u128::to_be_bytes);
        // The first lies in two minutes, of the third there is nothing.
        let mut traces = vec![
            (trace_hash(&ids[0]), 0, 4),
            (trace_hash(&ids[0]), 250, 2),
            (trace_hash(&ids[1]), 30, 1),
            (trace_hash(&ids[0]) ^ 1, 8, 1),
        ];
        traces.sort_unstable();
        let index = index(&traces);
        assert_eq!(index.traces(ids[..1].iter()), [0..4, 250..252]);
        assert_eq!(index.traces(ids.iter().rev()), [0..4, 30..31, 250..252]);
        assert_eq!(index.traces([ids[1], ids[1]].iter()), [30..31], "rows come once");
        assert!(index.traces(ids[2..].iter()).is_empty() && index.traces(ids[3..].iter()).is_empty());
    }
}
